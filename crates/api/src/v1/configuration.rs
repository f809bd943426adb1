//! The configuration file of this process.

use super::extract::{body, media_type};
use crate::context::{Api, blocking};
use crate::management::{ConfigurationControl, Validation};
use crate::problem::{FieldError, Problem};
use crate::secrets::{mask, unmask};
use crate::tag::{header_value, matches};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::Identity;

/// Maximum size of the file in bytes.
const FILE: usize = 1 << 20;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(configuration, replace_configuration)).routes(routes!(validate))
}

/// Result of the check of a configuration.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct CheckedConfiguration {
    valid: bool,
    /// Problems, one sentence each.
    errors: Vec<String>,
    /// Keys that differ from the configuration in force.
    changes: Vec<Change>,
}

/// Change of one key.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Change {
    #[schema(example = "slice.phones.slo.paging")]
    key: String,
    /// Value in force, as TOML; null if there is none.
    old: Option<String>,
    new: Option<String>,
    /// `now`, or `restart`: the running process keeps the old value.
    applies: &'static str,
}

impl From<Validation> for CheckedConfiguration {
    fn from(validation: Validation) -> Self {
        let change = |change: crate::management::Change| Change {
            key: change.key,
            old: change.old,
            new: change.new,
            applies: if change.is_live { "now" } else { "restart" },
        };
        CheckedConfiguration {
            valid: validation.errors.is_empty(),
            errors: validation.errors,
            changes: validation.changes.into_iter().map(change).collect(),
        }
    }
}

fn control(api: &Api) -> Result<Arc<dyn ConfigurationControl>, Problem> {
    let none = "this process has no configuration file that the API may change";
    api.management().configuration.clone().ok_or_else(|| Problem::not_found(none))
}

fn unreadable(reason: String) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, reason)
}

/// Reads the TOML text of a request, with the secrets of the present file in place of their masks.
async fn text(request: Request, present: &str) -> Result<String, Problem> {
    if !["application/toml", "text/plain"].contains(&media_type(&request).as_str()) {
        let reason = "the body is neither application/toml nor text/plain; set Content-Type";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let octets = body(request, FILE).await?;
    let text = std::str::from_utf8(&octets).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
    unmask(text, present).map_err(|reason| Problem::unprocessable(reason, Vec::new()))
}

/// The configuration file, with secrets masked
#[utoipa::path(get, path = "/v1/configuration", tag = "configuration", security(("bearer" = ["admin"])),
    responses((status = 200, description = "TOML", body = String, content_type = "application/toml",
            headers(("ETag" = String))),
        (status = 404, description = "This process has no such file", body = Problem,
            content_type = "application/problem+json")))]
async fn configuration(State(api): State<Api>) -> Result<Response, Problem> {
    let control = control(&api)?;
    let present = blocking(move || control.read()).await?.map_err(unreadable)?;
    let kind = HeaderValue::from_static("application/toml");
    let tag = header_value(&api.tags().tag(present.as_bytes()));
    let shown = mask(&present).map_err(Problem::conflict)?;
    Ok(([(header::CONTENT_TYPE, kind), (header::ETAG, tag)], shown).into_response())
}

/// Check a configuration, and compare it with that in force
///
/// A masked value stands for the secret in its place in the present file.
#[utoipa::path(post, path = "/v1/configuration/validate", tag = "configuration", security(("bearer" = ["admin"])),
    request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = CheckedConfiguration),
        (status = 422, description = "Masked values do not match the present file", body = Problem,
            content_type = "application/problem+json")))]
async fn validate(State(api): State<Api>, request: Request) -> Result<Json<CheckedConfiguration>, Problem> {
    let control = control(&api)?;
    let own = Arc::clone(&control);
    let present = blocking(move || own.read()).await?.map_err(unreadable)?;
    let text = text(request, &present).await?;
    Ok(Json(blocking(move || control.validate(&text)).await?.into()))
}

/// Replace the configuration file, and apply it
///
/// The process applies the keys that can change live; `changes` names those that wait for a
/// restart. If the file is not valid or cannot be applied, everything stays as it was.
#[utoipa::path(put, path = "/v1/configuration", tag = "configuration", security(("bearer" = ["admin"])),
    params(("If-Match" = String, Header, description = "ETag of the file")),
    request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = CheckedConfiguration, headers(("ETag" = String))),
        (status = 409, description = "The file could not be applied, and is as before", body = Problem,
            content_type = "application/problem+json"),
        (status = 412, description = "The file has changed", body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn replace_configuration(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    request: Request,
) -> Result<Response, Problem> {
    let control = control(&api)?;
    let result = change(&api, control, request).await;
    let (checked, tag) = api.record(&identity, "configuration.replace", "", result).await?;
    Ok(([(header::ETAG, header_value(&tag))], Json(checked)).into_response())
}

/// Applies the text of a request. Returns what changed, and the tag of the file.
async fn change(
    api: &Api,
    control: Arc<dyn ConfigurationControl>,
    request: Request,
) -> Result<(CheckedConfiguration, String), Problem> {
    let headers = request.headers().clone();
    // Changes by the API are made one after another.
    let _turn = api.configuration_turn().await;
    let own = Arc::clone(&control);
    let present = blocking(move || own.read()).await?.map_err(unreadable)?;
    matches(&headers, &api.tags().tag(present.as_bytes()))?;
    let text = text(request, &present).await?;
    let tag = api.tags().tag(text.as_bytes());
    let (own, checked) = (Arc::clone(&control), text.clone());
    let validation = blocking(move || own.validate(&checked)).await?;
    if !validation.errors.is_empty() {
        let error = |detail| FieldError { pointer: String::new(), detail };
        let errors = validation.errors.into_iter().map(error).collect();
        return Err(Problem::unprocessable("nothing is changed: the configuration is wrong", errors));
    }
    let applied = blocking(move || control.apply(&text)).await?;
    applied.map(|validation| (validation.into(), tag)).map_err(Problem::conflict)
}
