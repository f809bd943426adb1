//! Import of many subscribers, from CSV or JSON.

use super::extract::{Parameters, PathItem, body, media_type};
use crate::context::Api;
use crate::imports::{Conflict, ImportState, Progress};
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::Identity;
use vireo_subscribers::Subscriber;
use vireo_subscribers::format::{FormatError, read_csv, read_json};

/// Maximum size of a file in bytes; more is imported by `vireo subscriber import`.
const FILE: usize = 32 << 20;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(import)).routes(routes!(progress))
}

/// Query of an import.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct ImportQuery {
    /// If true, the file is only checked.
    #[param(default = false)]
    dry_run: bool,
    /// What happens to subscribers that are there already.
    #[param(inline)]
    conflict: ConflictName,
}

/// Handling of subscribers that are there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ConflictName {
    /// Nothing is imported.
    #[default]
    Fail,
    Replace,
    /// They stay as they are.
    Skip,
}

impl From<ConflictName> for Conflict {
    fn from(name: ConflictName) -> Self {
        match name {
            ConflictName::Fail => Conflict::Fail,
            ConflictName::Replace => Conflict::Replace,
            ConflictName::Skip => Conflict::Skip,
        }
    }
}

/// Result of the check of a file.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct CheckedImport {
    /// Records in the file; null if the check stopped at 20 errors.
    rows: Option<u64>,
    /// True if the file can be imported.
    valid: bool,
    errors: Vec<RowError>,
    /// Subscribers of the file that are there already.
    existing: u64,
}

/// Error of one record.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct RowError {
    /// Line in CSV, or number of the record in JSON, from 1; absent for the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    detail: String,
}

/// An import that has begun.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ImportAccepted {
    id: u64,
}

/// Progress of an import.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Import {
    id: u64,
    #[schema(example = "running")]
    state: &'static str,
    rows: u64,
    done: u64,
    /// Reason of a failure. Nothing is imported then.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

fn errors_in(error: &FormatError) -> Vec<RowError> {
    match error {
        FormatError::Records(records) => records
            .iter()
            .map(|record| RowError {
                line: record.position.rsplit(' ').next().and_then(|number| number.parse().ok()),
                detail: record.problem.to_string(),
            })
            .collect(),
        FormatError::File(detail) => vec![RowError { line: None, detail: detail.clone() }],
        FormatError::Io(error) => vec![RowError { line: None, detail: error.to_string() }],
    }
}

/// Import subscribers from a file
///
/// The file has the form of `vireo subscriber import`: CSV with a header line, or a JSON array. It
/// is imported as a whole or not at all. At most 32 MiB; one import at a time.
#[utoipa::path(post, path = "/v1/subscribers/import", tag = "subscribers", security(("bearer" = ["admin"])),
    params(ImportQuery), request_body(content((String = "text/csv"), (Vec<super::subscribers::SubscriberRecord> = "application/json"))),
    responses((status = 200, description = "The file was checked (dry_run)", body = CheckedImport),
        (status = 202, body = ImportAccepted, headers(("Location" = String))),
        (status = 409, description = "Another import is running", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn import(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    Parameters(query): Parameters<ImportQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let is_csv = match media_type(&request).as_str() {
        "text/csv" => true,
        "application/json" => false,
        _ => {
            let reason = "the body is neither text/csv nor application/json; set Content-Type";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
    };
    let octets = body(request, FILE).await?;
    let read = move || if is_csv { read_csv(&octets[..]) } else { read_json(&octets[..]) };
    let read = crate::context::blocking(read).await?;
    if query.dry_run {
        return Ok(Json(checked(&api, read, query.conflict).await?).into_response());
    }
    let records = read.map_err(|error| {
        let rows = errors_in(&error).into_iter().map(|row| crate::problem::FieldError {
            pointer: row.line.map_or_else(String::new, |line| format!("/{line}")),
            detail: row.detail,
        });
        Problem::unprocessable("nothing is imported: the file has errors, by line or record", rows.collect())
    });
    let result = records.and_then(|records| api.begin_import(&identity, records, query.conflict.into()));
    let id = match result {
        Ok(id) => id,
        Err(problem) => return api.record(&identity, "subscribers.import", "", Err(problem)).await,
    };
    let location = HeaderValue::from_str(&format!("/v1/imports/{id}"));
    let mut response = (StatusCode::ACCEPTED, Json(ImportAccepted { id })).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn checked(
    api: &Api,
    read: Result<Vec<Subscriber>, FormatError>,
    conflict: ConflictName,
) -> Result<CheckedImport, Problem> {
    let records = match read {
        Ok(records) => records,
        Err(error) => return Ok(CheckedImport { rows: None, valid: false, errors: errors_in(&error), existing: 0 }),
    };
    let rows = records.len() as u64;
    let existing = api.store(move |store| {
        let supis: Vec<_> = records.iter().map(|record| record.supi).collect();
        let found = store.get_many(&supis, &mut |_| {}).map_err(|error| crate::database::problem(&error))?;
        Ok(found.len() as u64)
    });
    let existing = existing.await?;
    let conflicts = existing > 0 && conflict == ConflictName::Fail;
    let detail = || format!("{existing} subscribers are there already: import with conflict=replace or skip");
    let errors = conflicts.then(|| RowError { line: None, detail: detail() });
    Ok(CheckedImport { rows: Some(rows), valid: !conflicts, errors: errors.into_iter().collect(), existing })
}

/// Progress of an import
///
/// The process keeps the last 16.
#[utoipa::path(get, path = "/v1/imports/{id}", tag = "subscribers", security(("bearer" = ["admin"])),
    params(("id" = u64, Path, description = "Number of the import")),
    responses((status = 200, body = Import), (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn progress(State(api): State<Api>, PathItem(id): PathItem<u64>) -> Result<Json<Import>, Problem> {
    let Progress { rows, done, state } =
        api.import(id).ok_or_else(|| Problem::not_found("there is no such import; the last 16 are kept"))?;
    let (state, detail) = match state {
        ImportState::Running => ("running", None),
        ImportState::Done => ("done", None),
        ImportState::Failed(reason) => ("failed", Some(reason)),
    };
    Ok(Json(Import { id, state, rows, done, detail }))
}
