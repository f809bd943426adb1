//! UPFs, and the slices and data workers of the user plane in this process.

use super::extract::Parameters;
use crate::context::Api;
use crate::overview::Traffic;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{SliceStatus, SliceWorkerStatus, UpfStatus};

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(upfs)).routes(routes!(user_plane))
}

/// A UPF of the core.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Upf {
    name: String,
    /// Address or Node ID on N4.
    node: String,
    /// True if the PFCP association is up.
    associated: bool,
    /// Present if the UPF is in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_plane: Option<UpfUserPlane>,
}

/// State of a UPF in this process.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UpfUserPlane {
    /// Number of PFCP sessions.
    sessions: u64,
    traffic: Traffic,
    /// Takeovers of data workers that died, and the longest in microseconds.
    takeovers: u64,
    longest_takeover_us: u64,
}

impl From<UpfStatus> for Upf {
    fn from(upf: UpfStatus) -> Self {
        let is_here = upf.sessions > 0 || upf.uplink_packets > 0 || upf.downlink_packets > 0 || upf.dropped_packets > 0;
        let user_plane = is_here.then(|| UpfUserPlane {
            sessions: upf.sessions,
            traffic: Traffic::from_upf(&upf),
            takeovers: upf.takeovers,
            longest_takeover_us: upf.longest_takeover_us,
        });
        Upf { name: upf.name, node: upf.node, associated: upf.associated, user_plane }
    }
}

/// List UPFs
#[utoipa::path(get, path = "/v1/upfs", tag = "user plane", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<Upf>),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn upfs(State(api): State<Api>, Parameters(query): Parameters<PageQuery>) -> Result<Json<Page<Upf>>, Problem> {
    let cut = query.cut(api.cursors())?;
    let status = api.status(crate::overview::without_lists()).await?;
    Page::from_all(status.upfs.into_iter().map(Upf::from).collect(), cut, api.cursors()).map(Json)
}

/// The user plane of this process.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UserPlane {
    /// Moves of users between slices and workers since the start.
    moved: u64,
    /// Those of them that load balancing initiated.
    rebalanced: u64,
    /// Empty if the user plane is not divided, or another process has it.
    slices: Vec<UserPlaneSlice>,
}

/// A slice of the user plane.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UserPlaneSlice {
    slice: String,
    /// S-NSSAI as `SST` or `SST-SD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    snssai: Option<String>,
    /// Sessions of the slice.
    users: u64,
    workers: Vec<DataWorker>,
    /// Traffic of the users, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    octets: Option<u64>,
}

/// A data worker.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct DataWorker {
    number: u8,
    /// CPU to which the worker is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<usize>,
    users: u64,
    traffic: Traffic,
}

impl From<SliceWorkerStatus> for DataWorker {
    fn from(worker: SliceWorkerStatus) -> Self {
        let traffic = Traffic {
            uplink_packets: worker.uplink_packets,
            uplink_octets: worker.uplink_bytes,
            downlink_packets: worker.downlink_packets,
            downlink_octets: worker.downlink_bytes,
            dropped_packets: worker.dropped_packets,
        };
        DataWorker { number: worker.number, core: worker.core, users: worker.users, traffic }
    }
}

impl From<SliceStatus> for UserPlaneSlice {
    fn from(slice: SliceStatus) -> Self {
        UserPlaneSlice {
            slice: slice.name,
            snssai: slice.snssai,
            users: slice.users,
            workers: slice.workers.into_iter().map(DataWorker::from).collect(),
            packets: slice.counted.map(|counted| counted.packets),
            octets: slice.counted.map(|counted| counted.octets),
        }
    }
}

/// Query of the user plane.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct UserPlaneQuery {
    /// If true, the answer has the traffic of each slice's users, which reads every session.
    #[param(default = false)]
    counts: bool,
}

/// Slices and data workers
#[utoipa::path(get, path = "/v1/user-plane", tag = "user plane", security(("bearer" = ["read"])),
    params(UserPlaneQuery), responses((status = 200, body = UserPlane)))]
async fn user_plane(
    State(api): State<Api>,
    Parameters(query): Parameters<UserPlaneQuery>,
) -> Result<Json<UserPlane>, Problem> {
    let status = api.core(move |source| source.slices(query.counts)).await?;
    let slices = status.slices.into_iter().map(UserPlaneSlice::from).collect();
    Ok(Json(UserPlane { moved: status.moved, rebalanced: status.rebalanced, slices }))
}
