//! Hosts and balancers.

use super::extract::{Parameters, PathItem};
use crate::context::Api;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{DrainError, Identity, Status};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(hosts))
        .routes(routes!(balancers))
        .routes(routes!(drain))
        .routes(routes!(cordon))
        .routes(routes!(uncordon))
}

/// A host of the cluster, or a shard of this core.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Host {
    pub(crate) id: u16,
    /// Address for replication; absent for a shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Label of the machine (`cluster.machine`).
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// `serving`, `starting` or `ended`; in a cluster `joining` while the host owns no bucket.
    pub(crate) state: String,
    /// Number of the shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u8>,
    /// Buckets that the host owns, of 4,096.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<usize>,
    /// Buckets of which the host is a replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<usize>,
    /// UEs whose steps the host commits; known of shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    ues: Option<usize>,
    /// UEs of other shards with a copy here.
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<usize>,
    /// CPU time of the process in microseconds; known of shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us: Option<u64>,
    /// Epoch of the cluster map.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    /// True if the host gets no other buckets and no new UEs; known of hosts of a cluster, by the
    /// process with the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    cordoned: Option<bool>,
}

/// Returns the hosts in a status.
pub(crate) fn hosts_in(status: &Status) -> Vec<Host> {
    let members = status.hosts.iter().map(|host| Host {
        id: host.host,
        address: Some(host.address.clone()),
        machine: host.machine.clone(),
        state: if host.buckets > 0 { "serving" } else { "joining" }.into(),
        shard: None,
        buckets: Some(host.buckets),
        replicas: Some(host.replicas),
        ues: None,
        copies: None,
        cpu_us: None,
        epoch: Some(host.epoch),
        cordoned: Some(host.cordoned),
    });
    let shards = status.shards.iter().filter_map(|shard| {
        Some(Host {
            id: shard.host?,
            address: None,
            machine: None,
            state: shard.state.clone(),
            shard: Some(shard.shard),
            buckets: None,
            replicas: None,
            ues: Some(shard.ues),
            copies: Some(shard.copies),
            cpu_us: Some(shard.cpu_us),
            epoch: None,
            cordoned: None,
        })
    });
    members.chain(shards).collect()
}

/// List hosts
///
/// In a cluster the controller and the balancers know them; a core with several shards lists these.
#[utoipa::path(get, path = "/v1/hosts", tag = "cluster", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<Host>),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn hosts(State(api): State<Api>, Parameters(query): Parameters<PageQuery>) -> Result<Json<Page<Host>>, Problem> {
    let cut = query.cut(api.cursors())?;
    let status = api.status(crate::overview::without_lists()).await?;
    Page::from_all(hosts_in(&status), cut, api.cursors()).map(Json)
}

/// A balancer of the cluster.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Balancer {
    id: u8,
    /// Address to which hosts connect.
    address: String,
    state: &'static str,
    /// True if this balancer exchanges PFCP with the UPFs.
    holds_n4: bool,
}

/// List balancers
#[utoipa::path(get, path = "/v1/balancers", tag = "cluster", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<Balancer>),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn balancers(
    State(api): State<Api>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Page<Balancer>>, Problem> {
    let cut = query.cut(api.cursors())?;
    let status = api.status(crate::overview::without_lists()).await?;
    let all = status.balancers.into_iter().map(|balancer| Balancer {
        id: balancer.balancer,
        address: balancer.address,
        state: "serving",
        holds_n4: balancer.holds_n4,
    });
    Page::from_all(all.collect(), cut, api.cursors()).map(Json)
}

/// Drain a host
///
/// The cluster migrates the UEs of the host to others, and the host leaves. Only the process with
/// the controller takes the request.
#[utoipa::path(post, path = "/v1/hosts/{id}/drain", tag = "cluster", security(("bearer" = ["operate"])),
    params(("id" = u16, Path, maximum = 65535, description = "Number of the host")),
    responses((status = 202, description = "The migration has begun"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "This process has no controller", body = Problem,
            content_type = "application/problem+json")))]
async fn drain(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    PathItem(id): PathItem<u16>,
) -> Result<StatusCode, Problem> {
    let result = drain_response(api.core(move |source| source.drain(id)).await?);
    api.record(&identity, "host.drain", &id.to_string(), result).await
}

/// Cordon a host
///
/// The host keeps its UEs and the buckets of which it has copies, and gets no other buckets and no
/// new UEs; if all hosts are cordoned, new UEs go to them all the same. Only the process with the
/// controller takes the request.
#[utoipa::path(post, path = "/v1/hosts/{id}/cordon", tag = "cluster", security(("bearer" = ["operate"])),
    params(("id" = u16, Path, maximum = 65535, description = "Number of the host")),
    responses((status = 202, description = "The host is cordoned"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "This process has no controller", body = Problem,
            content_type = "application/problem+json")))]
async fn cordon(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    PathItem(id): PathItem<u16>,
) -> Result<StatusCode, Problem> {
    let result = drain_response(api.core(move |source| source.cordon(id, true)).await?);
    api.record(&identity, "host.cordon", &id.to_string(), result).await
}

/// End the cordon of a host
///
/// The host gets its share of the buckets again.
#[utoipa::path(post, path = "/v1/hosts/{id}/uncordon", tag = "cluster", security(("bearer" = ["operate"])),
    params(("id" = u16, Path, maximum = 65535, description = "Number of the host")),
    responses((status = 202, description = "The host is not cordoned any more"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "This process has no controller", body = Problem,
            content_type = "application/problem+json")))]
async fn uncordon(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    PathItem(id): PathItem<u16>,
) -> Result<StatusCode, Problem> {
    let result = drain_response(api.core(move |source| source.cordon(id, false)).await?);
    api.record(&identity, "host.uncordon", &id.to_string(), result).await
}

/// Returns the answer to a request for the controller.
fn drain_response(result: Result<(), DrainError>) -> Result<StatusCode, Problem> {
    match result {
        Ok(()) => Ok(StatusCode::ACCEPTED),
        Err(error @ DrainError::NoController) => Err(Problem::conflict(error)),
        Err(error @ DrainError::NoHost) => Err(Problem::not_found(error)),
    }
}
