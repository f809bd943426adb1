//! The holder of the token.

use crate::context::Api;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{Identity, Role};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(session))
}

/// Rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RoleName {
    Read,
    Operate,
    Admin,
}

impl From<Role> for RoleName {
    fn from(role: Role) -> Self {
        match role {
            Role::Read => RoleName::Read,
            Role::Operate => RoleName::Operate,
            Role::Admin => RoleName::Admin,
        }
    }
}

/// The sender of the request, and the process.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Session {
    /// Name of the token; `local` on the unix socket without one.
    name: String,
    role: RoleName,
    version: &'static str,
    /// Git commit of the program; empty if unknown.
    commit: String,
}

/// Who sends the request
#[utoipa::path(get, path = "/v1/session", tag = "session", security(("bearer" = ["read"])),
    responses((status = 200, body = Session)))]
async fn session(State(api): State<Api>, Extension(identity): Extension<Identity>) -> Json<Session> {
    let (name, role) = (identity.name, identity.role.into());
    Json(Session { name, role, version: env!("CARGO_PKG_VERSION"), commit: api.management().commit.clone() })
}
