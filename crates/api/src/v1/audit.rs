//! The audit log.

use super::extract::Parameters;
use crate::audit::AuditEntry;
use crate::context::Api;
use crate::page::{Cut, Page, PageQuery};
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(audit))
}

/// List changes, the newest first
///
/// The log has the changes by the API of this process, also those that failed. It keeps 40 MiB.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", security(("bearer" = ["admin"])), params(PageQuery),
    responses((status = 200, body = Page<AuditEntry>)))]
async fn audit(
    State(api): State<Api>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Page<AuditEntry>>, Problem> {
    let Cut { limit, after } = query.cut(api.cursors())?;
    let items = api.audit(after.and_then(|after| after.parse().ok()), limit).await?;
    let more = items.len() == limit;
    let next = items.last().filter(|_| more).map(|last| api.cursors().seal(&last.id.to_string())).transpose()?;
    Ok(Json(Page { items, next, total: None }))
}
