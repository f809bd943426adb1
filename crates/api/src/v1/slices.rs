//! Slices with their objectives, and data networks with their pools.

use super::extract::Parameters;
use crate::context::Api;
use crate::management;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_core::schedule::kind::NfKind;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(slices)).routes(routes!(data_networks))
}

/// A slice of the core.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Slice {
    slice: String,
    /// S-NSSAI as `SST` or `SST-SD`.
    snssai: String,
    /// Names of the data networks that the slice may use.
    data_networks: Vec<String>,
    objectives: Vec<Objective>,
    /// Maximum CPU share of the slice's NFs, in CPUs.
    cpu_limit: f64,
    /// Minimum CPU share of the slice's NFs with work, in CPUs.
    cpu_guarantee: f64,
}

/// Latency objective of a kind of procedure.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Objective {
    procedure: &'static str,
    objective_us: u64,
}

impl From<&management::Slice> for Slice {
    fn from(slice: &management::Slice) -> Self {
        let runtime = &slice.runtime;
        let objective =
            |kind: &NfKind| Objective { procedure: kind.name(), objective_us: runtime.slo[kind.index()].as_micros() };
        Slice {
            slice: runtime.name.clone(),
            snssai: runtime.snssai.to_string(),
            data_networks: slice.data_networks.clone(),
            objectives: NfKind::ALL.iter().map(objective).collect(),
            cpu_limit: runtime.limit,
            cpu_guarantee: runtime.guarantee,
        }
    }
}

/// List slices
#[utoipa::path(get, path = "/v1/slices", tag = "slices", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<Slice>)))]
async fn slices(
    State(api): State<Api>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Page<Slice>>, Problem> {
    let cut = query.cut(api.cursors())?;
    let all = api.slices().iter().map(Slice::from).collect();
    Page::from_all(all, cut, api.cursors()).map(Json)
}

/// A data network of the core.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct DataNetwork {
    dnn: String,
    pools: Vec<Pool>,
    /// Names of the UPFs that serve the data network.
    upfs: Vec<String>,
}

/// An address pool.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct Pool {
    cidr: String,
    /// Addresses, or prefixes of 64 bits, that sessions have.
    used: u64,
    size: u64,
}

/// List data networks
#[utoipa::path(get, path = "/v1/data-networks", tag = "slices", security(("bearer" = ["read"])), params(PageQuery),
    responses((status = 200, body = Page<DataNetwork>)))]
async fn data_networks(
    State(api): State<Api>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<Page<DataNetwork>>, Problem> {
    let cut = query.cut(api.cursors())?;
    let pools = api.core(|source| source.pools()).await?;
    let all = api.management().data_networks.iter().map(|network| DataNetwork {
        dnn: network.name.clone(),
        pools: pools
            .iter()
            .filter(|pool| pool.dnn == network.name)
            .map(|pool| Pool { cidr: pool.cidr.clone(), used: pool.used, size: pool.size })
            .collect(),
        upfs: network.upfs.clone(),
    });
    Page::from_all(all.collect(), cut, api.cursors()).map(Json)
}
