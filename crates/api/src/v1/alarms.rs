//! Alarms.

use super::extract::{Parameters, PathItem};
use crate::alarms::Alarm;
use crate::context::Api;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::Identity;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(alarms)).routes(routes!(acknowledge))
}

/// Filter of the list.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct AlarmFilter {
    /// If true, active alarms only; if false, those that are over.
    active: Option<bool>,
}

/// List alarms, the newest first
///
/// The process keeps the last 1,000.
#[utoipa::path(get, path = "/v1/alarms", tag = "alarms", security(("bearer" = ["read"])),
    params(PageQuery, AlarmFilter), responses((status = 200, body = Page<Alarm>)))]
async fn alarms(
    State(api): State<Api>,
    Parameters(query): Parameters<PageQuery>,
    Parameters(filter): Parameters<AlarmFilter>,
) -> Result<Json<Page<Alarm>>, Problem> {
    let cut = query.cut(api.cursors())?;
    Page::from_all(api.watched(|watched| watched.alarms.list(filter.active)), cut, api.cursors()).map(Json)
}

/// Acknowledge an alarm
///
/// That of a lost RAN node or a dead host is cleared by it.
#[utoipa::path(post, path = "/v1/alarms/{id}/acknowledge", tag = "alarms", security(("bearer" = ["operate"])),
    params(("id" = u64, Path, description = "Number of the alarm")),
    responses((status = 204, description = "The alarm is acknowledged"),
        (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn acknowledge(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    PathItem(id): PathItem<u64>,
) -> Result<StatusCode, Problem> {
    let result = match api.acknowledge(id, &identity.name) {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("there is no such alarm")),
    };
    api.record(&identity, "alarm.acknowledge", &id.to_string(), result).await
}
