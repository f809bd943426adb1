//! Sessions of all UEs.

use super::extract::Parameters;
use super::ues::Session;
use crate::context::Api;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{Identity, UeSelector};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(sessions))
}

/// A session with its UE.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct SessionOfUe {
    /// SUPI of the UE; masked for the role read.
    supi: String,
    #[serde(flatten)]
    session: Session,
}

/// List sessions
///
/// A page has the sessions of up to `limit` UEs, so it may have more or fewer items; `total` is
/// null.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<SessionOfUe>),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn sessions(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Page<SessionOfUe>>, Problem> {
    let (ues, page) = super::ues::page(&api, &identity, UeSelector::All, &query).await?;
    let items = ues.iter().flat_map(|ue| {
        ue.sessions.iter().map(|session| SessionOfUe { supi: ue.supi.clone(), session: session.into() })
    });
    Ok(Json(Page { items: items.collect(), next: page.next, total: None }))
}
