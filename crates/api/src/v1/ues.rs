//! UEs: look-up, pages, deregistration, relocation, location.

use super::extract::{Body, Parameters, SupiPath};
use super::subscribers::{gpsi, shown_msisdn};
use crate::context::Api;
use crate::database::problem;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{
    Identity, RelocateError, Role, SessionStatus, UePage, UeQuery, UeSelector, UeState, UeStatus, deregistration_cause,
};
use vireo_subscribers::{Msisdn, Store};
use vireo_types::Supi;

pub(super) fn routes() -> OpenApiRouter<Api> {
    let router = OpenApiRouter::new().routes(routes!(ues)).routes(routes!(ue));
    router.routes(routes!(deregister)).routes(routes!(relocate)).routes(routes!(locate))
}

/// A UE with a context.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Ue {
    /// `imsi-` and digits; masked for the role read, empty while unknown.
    supi: String,
    /// Dialect, `nr` or `eps`.
    #[schema(example = "nr")]
    rat: String,
    state: State5gmm,
    /// True if the UE has a connection to the RAN.
    connected: bool,
    /// `PLMN-AMF-TMSI`, the latter two in hexadecimal; in EPS the AMF Identifier is that to which
    /// the MME maps (TS 23.003 2.10.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "99970-020040-c1a2b3d4")]
    guti: Option<String>,
    /// ID of the serving RAN node, if the UE is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_node: Option<String>,
    /// `PLMN-TAC`, if the UE is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    tracking_area: Option<String>,
    /// Host that has the UE, in a core with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<u16>,
    /// Number of its sessions.
    sessions: usize,
}

/// Registration state (5GMM or EMM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State5gmm {
    Registered,
    Registering,
    Deregistered,
}

impl From<&UeStatus> for Ue {
    fn from(ue: &UeStatus) -> Self {
        Ue {
            supi: ue.supi.clone(),
            rat: ue.rat.clone(),
            state: match ue.rm.as_str() {
                "REGISTERED" => State5gmm::Registered,
                "REGISTERING" => State5gmm::Registering,
                _ => State5gmm::Deregistered,
            },
            connected: ue.cm == "CONNECTED",
            guti: ue.guti.clone(),
            ran_node: ue.ran_node.clone(),
            tracking_area: (!ue.tai.is_empty()).then(|| ue.tai.clone()),
            host: ue.host,
            sessions: ue.sessions.len(),
        }
    }
}

/// A UE with its sessions.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UeDetail {
    supi: String,
    #[schema(example = "nr")]
    rat: String,
    state: State5gmm,
    connected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    guti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_node: Option<String>,
    /// Name of the serving RAN node.
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracking_area: Option<String>,
    /// Last reported cell as `PLMN-CELL`, the latter in hexadecimal, if the UE is connected. Absent
    /// for the role read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "99970-000abc001")]
    cell: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<u16>,
    /// MSISDN of the subscriber; masked for the role read. Absent if the subscriber has none, or if
    /// this process has no subscriber database that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "4915112345678")]
    msisdn: Option<String>,
    sessions: Vec<Session>,
}

/// A PDU session, or a PDN connection.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PduSession)]
pub(crate) struct Session {
    /// PDU session identity; in EPS the identity of the default bearer.
    pub(crate) id: u8,
    pub(crate) dnn: String,
    /// Name of the slice.
    slice: String,
    /// S-NSSAI as `SST` or `SST-SD`.
    snssai: String,
    /// IPv4 address, else the IPv6 prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<String>,
    /// `active`, `inactive` (no user plane), `establishing` or `releasing`.
    state: String,
    /// Name of the UPF.
    upf: String,
    /// True while the session moves to another UPF.
    relocating: bool,
    /// QoS flow identifier of the default flow.
    qfi: u8,
    five_qi: u8,
    /// Rate of the Session-AMBR.
    uplink_bps: u64,
    downlink_bps: u64,
    /// Volume that the UPF has reported; only if the slice measures it (`count-sessions`,
    /// `report-every` or `session-quota`).
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink_octets: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    downlink_octets: Option<u64>,
}

impl From<&SessionStatus> for Session {
    fn from(session: &SessionStatus) -> Self {
        Session {
            id: session.psi,
            dnn: session.dnn.clone(),
            slice: session.slice.clone(),
            snssai: session.snssai.clone(),
            address: session.ipv4.clone().or_else(|| session.ipv6.clone()),
            ipv4: session.ipv4.clone(),
            ipv6: session.ipv6.clone(),
            state: session.state.to_ascii_lowercase(),
            upf: session.upf.clone(),
            relocating: session.moves,
            qfi: session.qfi,
            five_qi: session.five_qi,
            uplink_bps: session.uplink_bps,
            downlink_bps: session.downlink_bps,
            uplink_octets: session.volume.map(|volume| volume.uplink_octets),
            downlink_octets: session.volume.map(|volume| volume.downlink_octets),
        }
    }
}

impl From<&UeStatus> for UeDetail {
    fn from(status: &UeStatus) -> Self {
        let Ue { supi, rat, state, connected, guti, ran_node, tracking_area, host, .. } = Ue::from(status);
        let sessions = status.sessions.iter().map(Session::from).collect();
        let ran_node_name = status.gnb.clone();
        let cell = status.cell.clone();
        UeDetail {
            supi,
            rat,
            state,
            connected,
            guti,
            ran_node,
            ran_node_name,
            tracking_area,
            cell,
            host,
            msisdn: None,
            sessions,
        }
    }
}

/// Filter of the list; at most one.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct UeFilter {
    /// `imsi-` and digits, or digits.
    #[param(pattern = "^(imsi-)?[0-9]{6,15}$")]
    supi: Option<String>,
    /// MSISDN, with or without `msisdn-`, of a subscriber in the database of this process.
    #[param(pattern = "^(msisdn-)?[0-9]{5,15}$")]
    gpsi: Option<String>,
    /// IPv4 address of a session, or an address in its IPv6 prefix.
    address: Option<String>,
    /// GUTI as in the answer, or its TMSI alone (8 hexadecimal digits).
    #[param(pattern = "^(.*-)?[0-9a-fA-F]{8}$")]
    guti: Option<String>,
    /// ID of a RAN node; its connected UEs.
    ran_node: Option<String>,
    /// A page examines at most 4,096 UEs, so it may be short or empty before the last.
    #[param(inline)]
    state: Option<StateFilter>,
}

/// State as a filter.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StateFilter {
    Registered,
    Registering,
    Deregistered,
    Connected,
    Idle,
}

impl From<StateFilter> for UeState {
    fn from(state: StateFilter) -> Self {
        match state {
            StateFilter::Registered => UeState::Registered,
            StateFilter::Registering => UeState::Registering,
            StateFilter::Deregistered => UeState::Deregistered,
            StateFilter::Connected => UeState::Connected,
            StateFilter::Idle => UeState::Idle,
        }
    }
}

impl UeFilter {
    fn selector(&self) -> Result<UeSelector, Problem> {
        let wrong = |key: &str, reason: &dyn std::fmt::Display| Problem::bad_request(format_args!("{key}: {reason}"));
        let supi = |text: &String| text.parse().map(UeSelector::supi).map_err(|error| wrong("supi", &error));
        let address =
            |text: &String| text.parse::<IpAddr>().map(UeSelector::Address).map_err(|error| wrong("address", &error));
        let all = [
            self.supi.as_ref().map(supi),
            self.address.as_ref().map(address),
            self.guti
                .as_ref()
                .map(|text| tmsi(text).ok_or_else(|| wrong("guti", &"PLMN-AMF-TMSI, or 8 hexadecimal digits"))),
            self.ran_node.clone().map(|id| Ok(UeSelector::RanNode(id))),
            self.state.map(|state| Ok(UeSelector::State(state.into()))),
            // The subscriber database knows its SUPI.
            self.gpsi.as_ref().map(|_| Ok(UeSelector::All)),
        ];
        let mut given = all.into_iter().flatten();
        match (given.next(), given.next()) {
            (None, _) => Ok(UeSelector::All),
            (Some(one), None) => one,
            (Some(_), Some(_)) => {
                Err(Problem::bad_request("supi, gpsi, address, guti, ran_node, state: give one of them"))
            }
        }
    }
}

/// Returns the selector of the TMSI at the end of a GUTI.
fn tmsi(guti: &str) -> Option<UeSelector> {
    let digits = guti.rsplit('-').next()?;
    let plain = digits.len() == 8 && digits.bytes().all(|octet| octet.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| plain).map(UeSelector::Tmsi)
}

/// Reads a page of UEs.
pub(super) async fn page(
    api: &Api,
    identity: &Identity,
    select: UeSelector,
    query: &PageQuery,
) -> Result<(Vec<UeStatus>, Page<Ue>), Problem> {
    let cut = query.cut(api.cursors())?;
    let after = cut.after.and_then(|after| after.parse().ok());
    let query = UeQuery { select, after, limit: cut.limit, reveal_supi: identity.role >= Role::Operate };
    let page = core_page(api, query).await?;
    let next = page.next.map(|next| api.cursors().seal(&next.to_string())).transpose()?;
    let items = page.ues.iter().map(Ue::from).collect();
    Ok((page.ues, Page { items, next, total: page.total.map(|total| total as u64) }))
}

async fn core_page(api: &Api, query: UeQuery) -> Result<UePage, Problem> {
    let page = api.core(move |source| source.ues(&query)).await?;
    page.ok_or_else(Problem::no_answer)
}

/// List UEs, or look one up
#[utoipa::path(get, path = "/v1/ues", tag = "ues", security(("bearer" = ["read"])), params(PageQuery, UeFilter),
    responses((status = 200, body = Page<Ue>), (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "gpsi: this process has no subscriber database", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn ues(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    Parameters(query): Parameters<PageQuery>,
    Parameters(filter): Parameters<UeFilter>,
) -> Result<Json<Page<Ue>>, Problem> {
    let mut select = filter.selector()?;
    if let Some(text) = &filter.gpsi {
        let msisdn = gpsi(text)?;
        let find = move |store: &mut Store| store.find_msisdn(&msisdn).map_err(|error| problem(&error));
        match api.store(find).await? {
            Some(supi) => select = UeSelector::supi(supi),
            None => return Ok(Json(Page { items: Vec::new(), next: None, total: Some(0) })),
        }
    }
    Ok(Json(page(&api, &identity, select, &query).await?.1))
}

/// Returns the UE of a subscriber.
async fn find(api: &Api, supi: Supi, reveal_supi: bool) -> Result<UeStatus, Problem> {
    let query = UeQuery { select: UeSelector::supi(supi), after: None, limit: 1, reveal_supi };
    let page = core_page(api, query).await?;
    page.ues.into_iter().next().ok_or_else(|| Problem::not_found(NO_UE))
}

/// Returns the MSISDN of a subscriber, if a database knows it in time.
async fn find_msisdn(api: &Api, supi: Supi) -> Option<Msisdn> {
    let get = move |store: &mut Store| store.get(supi).map_err(|error| problem(&error));
    let subscriber = tokio::time::timeout(MSISDN_TIMEOUT, api.store(get)).await.ok()?.ok()?;
    subscriber?.msisdn
}

/// Time after which a UE is shown without its MSISDN.
const MSISDN_TIMEOUT: Duration = Duration::from_secs(1);
const NO_UE: &str = "this core has no UE of that subscriber";

/// One UE with its sessions
#[utoipa::path(get, path = "/v1/ues/{supi}", tag = "ues", security(("bearer" = ["read"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
        description = "`imsi-` and digits, or digits")),
    responses((status = 200, body = UeDetail), (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn ue(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
) -> Result<Json<UeDetail>, Problem> {
    let detail = UeDetail::from(&find(&api, supi, identity.role >= Role::Operate).await?);
    let msisdn = find_msisdn(&api, supi).await.map(|msisdn| shown_msisdn(&msisdn, &identity));
    Ok(Json(UeDetail { msisdn, ..detail }))
}

/// Body of a deregistration.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Deregistration {
    /// If true, the UE is asked to register again.
    #[serde(default)]
    reregister: bool,
    /// 5GMM cause, in 4G EMM cause: 3, 6, 7, 8, 11, 12, 13, 14, 15 or 27. Without one, the UE may
    /// register again by itself. Not with `reregister`.
    #[serde(default)]
    #[schema(example = 7, minimum = 3, maximum = 27)]
    cause: Option<u8>,
}

/// Deregister a UE
///
/// The network deregisters the UE (TS 24.501 5.5.2.3); in EPS it detaches it.
#[utoipa::path(post, path = "/v1/ues/{supi}/deregister", tag = "ues", security(("bearer" = ["operate"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
        description = "`imsi-` and digits, or digits")), request_body = Deregistration,
    responses((status = 202, description = "The procedure has begun"),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn deregister(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
    Body(request): Body<Deregistration>,
) -> Result<StatusCode, Problem> {
    let cause = deregistration_cause(request.reregister, request.cause).map_err(Problem::bad_request)?;
    let result = match api.core(move |source| source.deregister(supi, request.reregister, cause)).await? {
        Some(true) => Ok(StatusCode::ACCEPTED),
        Some(false) => Err(Problem::not_found(NO_UE)),
        None => Err(Problem::no_answer()),
    };
    api.record(&identity, "ue.deregister", &format!("imsi-{}", supi.reveal()), result).await
}

/// Body of a relocation.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Relocation {
    /// Name of the target UPF.
    upf: String,
}

/// Move the sessions of a UE to another UPF
///
/// The sessions keep their addresses (TS 23.502 4.3.5.3). The UE shows the outcome.
#[utoipa::path(post, path = "/v1/ues/{supi}/relocate", tag = "ues", security(("bearer" = ["operate"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
        description = "`imsi-` and digits, or digits")), request_body = Relocation,
    responses((status = 202, description = "The procedure has begun"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn relocate(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
    Body(request): Body<Relocation>,
) -> Result<StatusCode, Problem> {
    let done = api.core(move |source| source.relocate(supi, &request.upf)).await?;
    let result = match done {
        Ok(()) => Ok(StatusCode::ACCEPTED),
        Err(error @ RelocateError::Busy) => Err(Problem::unavailable(error)),
        Err(error) => Err(Problem::not_found(error)),
    };
    api.record(&identity, "ue.relocate", &format!("imsi-{}", supi.reveal()), result).await
}

/// Request the cell of a UE
///
/// The RAN node of a connected UE reports the cell (TS 38.413 8.12.1, TS 36.413 8.11.1). The UE
/// then shows it. An idle UE is not paged.
#[utoipa::path(post, path = "/v1/ues/{supi}/locate", tag = "ues", security(("bearer" = ["operate"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
        description = "`imsi-` and digits, or digits")),
    responses((status = 202, description = "The request is sent"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")))]
async fn locate(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
) -> Result<StatusCode, Problem> {
    let result = match api.core(move |source| source.locate(supi)).await? {
        Some(true) => Ok(StatusCode::ACCEPTED),
        Some(false) => Err(Problem::not_found(NO_UE)),
        None => Err(Problem::no_answer()),
    };
    api.record(&identity, "ue.locate", &format!("imsi-{}", supi.reveal()), result).await
}
