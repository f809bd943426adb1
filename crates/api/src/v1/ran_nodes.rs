//! RAN nodes.

use super::extract::Parameters;
use crate::context::Api;
use crate::page::{Cut, Page, PageQuery};
use crate::problem::Problem;
use crate::time::rfc3339;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{GnbStatus, StatusFilter};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(ran_nodes))
}

/// A RAN node with NG Setup or S1 Setup done.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RanNode {
    /// Global RAN Node ID as `PLMN-number`.
    pub(crate) id: String,
    /// Name; empty if the RAN node sent none.
    name: String,
    #[schema(example = "gNB")]
    kind: String,
    /// Peer address of its first association.
    address: String,
    /// Number of its SCTP associations.
    associations: usize,
    /// TACs that it supports.
    tracking_areas: Vec<u32>,
    /// S-NSSAIs as `SST` or `SST-SD`.
    slices: Vec<String>,
    connected_ues: usize,
    /// Time from which on this process knows the RAN node.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

impl RanNode {
    pub(crate) fn new(node: GnbStatus, since: Option<u64>) -> Self {
        RanNode {
            id: node.id,
            name: node.name,
            kind: node.kind,
            address: node.address,
            associations: node.associations,
            tracking_areas: node.tacs,
            slices: node.slices,
            connected_ues: node.ues,
            since: since.map(rfc3339),
        }
    }
}

/// List RAN nodes
#[utoipa::path(get, path = "/v1/ran-nodes", tag = "RAN nodes", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<RanNode>),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn ran_nodes(
    State(api): State<Api>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Page<RanNode>>, Problem> {
    let Cut { limit, after } = query.cut(api.cursors())?;
    let offset = after.and_then(|after| after.parse().ok()).unwrap_or(0);
    let filter = StatusFilter { offset, limit, ues: false, ..StatusFilter::default() };
    let status = api.status(filter).await?;
    let (end, total) = (offset + status.gnbs.len(), status.counts.gnbs);
    let next = (end < total && end > offset).then(|| api.cursors().seal(&end.to_string())).transpose()?;
    let known = |node: GnbStatus| {
        let since = api.known_since(&node.id);
        RanNode::new(node, since)
    };
    Ok(Json(Page { items: status.gnbs.into_iter().map(known).collect(), next, total: Some(total as u64) }))
}
