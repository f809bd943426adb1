//! Routes of `/v1`, one module for each resource.
//!
//! The OpenAPI document names the role of each operation (`security: bearer: [role]`), and the same
//! document is what [`roles::authorize`] enforces: an operation without a role is refused.

mod alarms;
mod audit;
mod cluster;
mod configuration;
mod document;
mod events;
mod extract;
mod imports;
mod overview;
mod ran_nodes;
mod roles;
mod session;
mod sessions;
mod slices;
mod subscribers;
mod ue_events;
mod ues;
mod user_plane;

pub(crate) use document::document;
pub(crate) use ue_events::run as run_ue_events;

use crate::context::Api;
use crate::problem::Problem;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use roles::Roles;
use utoipa_axum::router::OpenApiRouter;

/// Returns all documented routes, without state.
fn documented() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(document::base())
        .merge(session::routes())
        .merge(overview::routes())
        .merge(ues::routes())
        .merge(sessions::routes())
        .merge(ran_nodes::routes())
        .merge(cluster::routes())
        .merge(user_plane::routes())
        .merge(slices::routes())
        .merge(subscribers::routes())
        .merge(imports::routes())
        .merge(configuration::routes())
        .merge(alarms::routes())
        .merge(events::routes())
        .merge(audit::routes())
        .merge(document::routes())
}

/// Returns the router of a process.
pub(crate) fn router(api: Api) -> Router {
    let (router, openapi) = documented().split_for_parts();
    let roles = Roles::from_document(&openapi);
    router
        .route_layer(from_fn_with_state(roles, roles::authorize))
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the path has no such method; see /v1/openapi.json")
        })
        .with_state(api)
        .route("/v1/", axum::routing::any(unknown))
        .route("/v1/{*path}", axum::routing::any(unknown))
}

async fn unknown() -> Problem {
    Problem::not_found("there is no such path; see /v1/openapi.json")
}
