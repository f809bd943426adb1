//! The core in one answer.

use crate::context::Api;
use crate::overview::{Overview, without_lists};
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(overview))
}

/// Totals, rates, latencies and alarms
#[utoipa::path(get, path = "/v1/overview", tag = "overview", security(("bearer" = ["read"])),
    responses((status = 200, body = Overview),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn overview(State(api): State<Api>) -> Result<Json<Overview>, Problem> {
    let status = api.status(without_lists()).await?;
    Ok(Json(api.overview(&status)))
}
