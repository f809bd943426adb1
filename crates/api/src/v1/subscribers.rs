//! Subscribers. K and OPc are write-only.

use super::extract::{Body, Parameters, SupiPath};
use crate::context::Api;
use crate::database::problem;
use crate::page::{Cut, Page, PageQuery};
use crate::problem::{FieldError, Problem};
use crate::tag::{header_value, matches};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use vireo_ops::api::{Identity, Role};
use vireo_subscribers::format::{RecordProblem, read_record, record_without_keys};
use vireo_subscribers::{Filter, Msisdn, Page as StorePage, Store, Subscriber};
use vireo_types::{Snssai, Supi};

/// Records that one page examines for a filter without an index.
const MAX_EXAMINED_RECORDS: usize = 4000;

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(subscribers, create)).routes(routes!(subscriber, replace, remove))
}

/// A subscriber. K and OPc can be written, and are never read.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Subscriber)]
#[allow(dead_code, reason = "the schema of what the subscriber formats read and write")]
pub(super) struct SubscriberRecord {
    /// Digits of the IMSI. Answers to the role read have asterisks in place of the last ones;
    /// requests with asterisks are refused.
    #[schema(example = "999700000000001", pattern = r"^((imsi-)?[0-9]{6,15}|[0-9]{5}[*]{1,10})$")]
    imsi: String,
    /// MSISDN, the GPSI, which no other subscriber has; with asterisks like `imsi`.
    #[schema(example = "4915112345678", pattern = r"^((msisdn-)?[0-9]{5,15}|[0-9]{4}[*]{1,11})$")]
    msisdn: Option<String>,
    /// Key K, 32 hexadecimal digits. A new subscriber needs it.
    #[schema(write_only, pattern = "^[0-9a-fA-F]{32}$")]
    k: Option<String>,
    /// OPc, 32 hexadecimal digits. With `k`, either `opc` or `op` is needed, not both.
    #[schema(write_only, pattern = "^[0-9a-fA-F]{32}$")]
    opc: Option<String>,
    /// OP, from which OPc is derived.
    #[schema(write_only, pattern = "^[0-9a-fA-F]{32}$")]
    op: Option<String>,
    /// Authentication management field, 4 hexadecimal digits; the first bit is 1 (TS 33.501
    /// 6.1.3.2).
    #[schema(example = "8000", pattern = "^[89a-fA-F][0-9a-fA-F]{3}$")]
    amf: Option<String>,
    /// `5g-aka` or `eap-aka-prime`: authentication method of 5G. Without it, that of the
    /// configuration.
    #[schema(pattern = "^(5g-aka|eap-aka-prime)$")]
    authentication_method: Option<String>,
    /// Static IPv4 address in the first data network of the default slice.
    #[schema(format = "ipv4")]
    ipv4: Option<String>,
    /// Without it, the subscriber has SST 1 with the data network `internet`.
    #[schema(required = false)]
    subscription: SubscriptionRecord,
}

/// Subscription of a subscriber.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Subscription)]
#[allow(dead_code, reason = "a schema")]
struct SubscriptionRecord {
    /// Subscribed slices, the default one first.
    #[schema(min_items = 1)]
    slices: Vec<SubscribedSlice>,
    /// Rates of the UE-AMBR.
    ambr: BitRates,
    /// `4g` or `5g`: the only core network that the subscriber may use.
    #[schema(pattern = "^(4g|5g)$")]
    only: Option<String>,
    /// True if the subscriber may not use NR as secondary RAT.
    #[schema(required = false)]
    restricts_dcnr: bool,
    /// Index to RAT/Frequency Selection Priority.
    #[schema(minimum = 1, maximum = 256)]
    rfsp: Option<u16>,
    /// Tracking area codes in which the subscriber gets no service.
    #[schema(required = false, max_items = 64, maximum = 16777215)]
    forbidden_areas: Vec<u32>,
    /// Service area restriction in 5G.
    service_area: Option<ServiceAreaRecord>,
    /// True if the subscriber is suspended: it gets no service.
    #[schema(required = false)]
    suspended: bool,
}

/// Service area restriction: one of the two lists of tracking area codes.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ServiceArea)]
#[allow(dead_code, reason = "a schema")]
enum ServiceAreaRecord {
    Allowed(AllowedAreas),
    NotAllowed(NotAllowedAreas),
}

/// Service area restriction by the areas with service.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema")]
struct AllowedAreas {
    /// Tracking areas in which the subscriber gets service; in others it may only register.
    #[schema(min_items = 1, max_items = 16, maximum = 16777215)]
    allowed: Vec<u32>,
}

/// Service area restriction by the areas without service.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema")]
struct NotAllowedAreas {
    /// Tracking areas in which the subscriber may only register.
    #[schema(min_items = 1, max_items = 16, maximum = 16777215)]
    not_allowed: Vec<u32>,
}

/// A subscribed slice.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema")]
struct SubscribedSlice {
    snssai: SnssaiRecord,
    /// True for a default S-NSSAI.
    #[schema(required = false)]
    default: bool,
    /// Data networks, the default one first.
    dnns: Vec<SubscribedDataNetwork>,
}

/// An S-NSSAI.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Snssai)]
#[allow(dead_code, reason = "a schema")]
struct SnssaiRecord {
    #[schema(maximum = 255)]
    sst: u8,
    /// Slice differentiator, 24 bits. Requests may have six hexadecimal digits as text instead.
    #[schema(maximum = 16777215)]
    sd: Option<u32>,
}

/// A subscribed data network.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema")]
struct SubscribedDataNetwork {
    #[schema(example = "internet", max_length = 99, pattern = r"^[0-9A-Za-z-]{1,63}([.][0-9A-Za-z-]{1,63})*$")]
    dnn: String,
    /// `ipv4`, `ipv6`, `ipv4v6`; the default one first.
    #[schema(min_items = 1, pattern = "^(ipv4|ipv6|ipv4v6)$")]
    types: Vec<String>,
    /// Rates of the Session-AMBR.
    ambr: BitRates,
    /// Non-GBR 5QI of the default QoS flow: 65 to 67, 71 to 76 and 82 to 90 are refused.
    #[schema(minimum = 5, maximum = 255)]
    five_qi: u8,
    #[schema(minimum = 1, maximum = 15)]
    arp_priority: u8,
    /// Policy for the protection of user data; without it, that of the data network.
    up_security: Option<UserPlaneSecurity>,
    /// Static IPv4 address, in the static addresses of the data network.
    #[schema(format = "ipv4")]
    static_ipv4: Option<String>,
    /// Static IPv6 prefix of 64 bits: its first address.
    #[schema(format = "ipv6", example = "2001:db8:45:8001::")]
    static_ipv6_prefix: Option<String>,
    /// Networks behind the UE: IPv4 /8 to /32, IPv6 /16 to /64.
    #[schema(required = false, max_items = 8)]
    framed_routes: Vec<String>,
}

/// User plane security policy: `required`, `preferred` or `not-needed`.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema")]
struct UserPlaneSecurity {
    #[schema(pattern = "^(required|preferred|not-needed)$")]
    integrity: String,
    #[schema(pattern = "^(required|preferred|not-needed)$")]
    confidentiality: String,
}

/// Maximum bit rates.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "a schema")]
struct BitRates {
    #[schema(maximum = 4_000_000_000_000_i64)]
    uplink_bps: u64,
    #[schema(maximum = 4_000_000_000_000_i64)]
    downlink_bps: u64,
}

/// Filter of the list.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
struct SubscriberFilter {
    /// First digits of the IMSI; for the role read at most 5, which it sees.
    #[param(pattern = "^[0-9]{0,15}$")]
    supi_prefix: Option<String>,
    /// MSISDN, with or without `msisdn-`: the subscriber that has it.
    #[param(pattern = "^(msisdn-)?[0-9]{5,15}$")]
    gpsi: Option<String>,
    /// Name of a subscribed data network. A page examines at most 4,000 subscribers.
    dnn: Option<String>,
    /// Name of a subscribed slice of this core, or `SST` or `SST-SD`.
    slice: Option<String>,
}

/// A checked [`SubscriberFilter`].
struct Selection {
    prefix: String,
    msisdn: Option<Msisdn>,
    dnn: Option<String>,
    snssai: Option<Snssai>,
}

impl SubscriberFilter {
    fn check(self, api: &Api, identity: &Identity) -> Result<Selection, Problem> {
        let prefix = self.supi_prefix.unwrap_or_default();
        if prefix.len() > 15 || !prefix.bytes().all(|octet| octet.is_ascii_digit()) {
            return Err(Problem::bad_request("supi_prefix: up to 15 digits are allowed"));
        }
        // Ten requests would reveal each masked digit.
        if identity.role < Role::Operate && prefix.len() > Supi::SHOWN_DIGITS {
            let cause = "supi_prefix: more than 5 digits need the role operate, because others are masked";
            return Err(Problem::new(StatusCode::FORBIDDEN, cause));
        }
        let snssai = |text: String| {
            let configured = api.slices().into_iter().find(|slice| slice.runtime.name == text);
            let known = configured.map(|slice| slice.runtime.snssai).or_else(|| text.parse().ok());
            known.ok_or_else(|| Problem::bad_request("slice: no slice has this name, and it is no S-NSSAI"))
        };
        let msisdn = self.gpsi.as_deref().map(gpsi).transpose()?;
        Ok(Selection { prefix, msisdn, dnn: self.dnn, snssai: self.slice.map(snssai).transpose()? })
    }
}

/// Parses a GPSI of the MSISDN kind.
pub(super) fn gpsi(text: &str) -> Result<Msisdn, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format_args!("gpsi: {error}")))
}

impl Selection {
    fn needs_scan(&self) -> bool {
        self.dnn.is_some() || self.snssai.is_some()
    }

    fn fits(&self, subscriber: &Subscriber) -> bool {
        subscriber.subscription.slices.iter().any(|slice| {
            let is_slice = self.snssai.is_none_or(|snssai| slice.snssai == snssai);
            is_slice && self.dnn.as_ref().is_none_or(|dnn| slice.dnns.iter().any(|known| known.dnn.as_str() == dnn))
        })
    }

    /// Reads a page. The last subscriber that was examined is where the next page begins.
    fn read(&self, store: &mut Store, after: Option<Supi>, limit: usize) -> Result<Found, Problem> {
        if let Some(msisdn) = &self.msisdn {
            let supi = store.find_msisdn(msisdn).map_err(|error| problem(&error))?;
            let found = supi.map(|supi| store.get(supi)).transpose().map_err(|error| problem(&error))?.flatten();
            let is_selected = |one: &Subscriber| one.supi.reveal().starts_with(&self.prefix) && self.fits(one);
            let subscribers: Vec<_> = found.into_iter().filter(is_selected).collect();
            let total = Some(subscribers.len() as u64);
            return Ok(Found { subscribers, next: None, total });
        }
        let filter = Filter { prefix: self.prefix.clone() };
        let mut found = Found { subscribers: Vec::new(), next: after, total: None };
        if !self.needs_scan() {
            found.total = Some(store.count(&filter).map_err(|error| problem(&error))?);
        }
        let mut examined = 0;
        while found.subscribers.len() < limit {
            if examined >= MAX_EXAMINED_RECORDS {
                return Ok(found);
            }
            let page = StorePage { after: found.next, limit: u32::try_from(limit).unwrap_or(u32::MAX) };
            let page = store.list(&filter, page).map_err(|error| problem(&error))?;
            let is_last = page.len() < limit;
            for subscriber in page {
                if found.subscribers.len() == limit {
                    return Ok(found);
                }
                examined += 1;
                found.next = Some(subscriber.supi);
                if !self.needs_scan() || self.fits(&subscriber) {
                    found.subscribers.push(subscriber);
                }
            }
            if is_last {
                return Ok(Found { next: None, ..found });
            }
        }
        Ok(found)
    }
}

struct Found {
    subscribers: Vec<Subscriber>,
    next: Option<Supi>,
    total: Option<u64>,
}

/// Returns the record for a reader.
fn shown(subscriber: &Subscriber, identity: &Identity) -> Value {
    let mut record = record_without_keys(subscriber);
    if identity.role < Role::Operate {
        record["imsi"] = subscriber.supi.to_string().trim_start_matches("imsi-").into();
        if let Some(msisdn) = &subscriber.msisdn {
            record["msisdn"] = shown_msisdn(msisdn, identity).into();
        }
    }
    record
}

/// Returns the digits of an MSISDN for a reader.
pub(super) fn shown_msisdn(msisdn: &Msisdn, identity: &Identity) -> String {
    if identity.role >= Role::Operate {
        return msisdn.reveal().to_owned();
    }
    msisdn.to_string().trim_start_matches("msisdn-").to_owned()
}

/// Returns the tag of a record, which changes with its keys too.
fn tag(api: &Api, subscriber: &Subscriber) -> String {
    let record = record_without_keys(subscriber).to_string();
    api.tags().tag(&[record.as_bytes(), subscriber.k.octets(), subscriber.opc.octets()].concat())
}

fn answer(api: &Api, status: StatusCode, subscriber: &Subscriber, identity: &Identity) -> Response {
    let tag = header_value(&tag(api, subscriber));
    (status, [(header::ETAG, tag)], Json(shown(subscriber, identity))).into_response()
}

/// Returns the problem of a record.
fn unprocessable(error: &RecordProblem) -> Problem {
    let pointer = match error {
        RecordProblem::Missing(field) | RecordProblem::Empty(field) => format!("/{field}"),
        RecordProblem::Key { field, .. } | RecordProblem::Range { field, .. } => format!("/{field}"),
        RecordProblem::Imsi { .. } => "/imsi".into(),
        RecordProblem::Msisdn { .. } => "/msisdn".into(),
        RecordProblem::Amf(_) => "/amf".into(),
        RecordProblem::Ipv4(_) => "/ipv4".into(),
        RecordProblem::LongIpv6Prefix(_) | RecordProblem::FramedRoutes(_) => "/subscription".into(),
        RecordProblem::NoOpc | RecordProblem::OpcAndOp => "/opc".into(),
        RecordProblem::NoSlice | RecordProblem::NoSessionType(_) => "/subscription".into(),
        RecordProblem::Qos(_) | RecordProblem::Gbr(..) => "/subscription".into(),
        RecordProblem::ServiceArea => "/subscription/service_area".into(),
        RecordProblem::Areas | RecordProblem::BitRates | RecordProblem::UnknownField(_) => "/subscription".into(),
        _ => String::new(),
    };
    Problem::unprocessable("the subscriber is not valid", vec![FieldError { pointer, detail: error.to_string() }])
}

/// List subscribers, without keys
#[utoipa::path(get, path = "/v1/subscribers", tag = "subscribers", security(("bearer" = ["read"])),
    params(PageQuery, SubscriberFilter), responses((status = 200, body = Page<SubscriberRecord>)))]
async fn subscribers(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    Parameters(query): Parameters<PageQuery>,
    Parameters(filter): Parameters<SubscriberFilter>,
) -> Result<Json<Page<Value>>, Problem> {
    let Cut { limit, after } = query.cut(api.cursors())?;
    let (selection, after) = (filter.check(&api, &identity)?, after.and_then(|after| after.parse().ok()));
    let found = api.store(move |store| selection.read(store, after, limit)).await?;
    let next = found.next.map(|next| api.cursors().seal(&next.reveal())).transpose()?;
    let items = found.subscribers.iter().map(|subscriber| shown(subscriber, &identity)).collect();
    Ok(Json(Page { items, next, total: found.total }))
}

/// Add a subscriber
#[utoipa::path(post, path = "/v1/subscribers", tag = "subscribers", security(("bearer" = ["admin"])),
    request_body = SubscriberRecord,
    responses((status = 201, body = SubscriberRecord, headers(("Location" = String), ("ETag" = String))),
        (status = 409, description = "The subscriber is there already, or another one has the MSISDN", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn create(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    Body(record): Body<Value>,
) -> Result<Response, Problem> {
    let (object, result) = match read_record(record, None) {
        Ok(subscriber) => {
            let object = named(subscriber.supi);
            let stored = api.store(move |store| {
                store.add(&subscriber).map_err(|error| problem(&error))?;
                Ok(subscriber)
            });
            (object, stored.await)
        }
        Err(error) => (String::new(), Err(unprocessable(&error))),
    };
    let subscriber = api.record(&identity, "subscriber.create", &object, result).await?;
    let mut response = answer(&api, StatusCode::CREATED, &subscriber, &identity);
    let location = format!("/v1/subscribers/{}", named(subscriber.supi));
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn named(supi: Supi) -> String {
    format!("imsi-{}", supi.reveal())
}

const NONE: &str = "there is no such subscriber";

fn load_subscriber(store: &mut Store, supi: Supi) -> Result<Subscriber, Problem> {
    store.get(supi).map_err(|error| problem(&error))?.ok_or_else(|| Problem::not_found(NONE))
}

/// One subscriber, without keys
#[utoipa::path(get, path = "/v1/subscribers/{supi}", tag = "subscribers", security(("bearer" = ["read"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
            description = "`imsi-` and digits, or digits")),
    responses((status = 200, body = SubscriberRecord, headers(("ETag" = String))),
        (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn subscriber(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
) -> Result<Response, Problem> {
    let found = api.store(move |store| load_subscriber(store, supi)).await?;
    Ok(answer(&api, StatusCode::OK, &found, &identity))
}

/// Replace a subscriber
///
/// Without `k`, `opc` and `op` the keys stay. The core applies the change to a registered UE of the
/// subscriber.
#[utoipa::path(put, path = "/v1/subscribers/{supi}", tag = "subscribers", security(("bearer" = ["admin"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
            description = "`imsi-` and digits, or digits"),
        ("If-Match" = String, Header, description = "ETag of the subscriber")),
    request_body = SubscriberRecord,
    responses((status = 200, body = SubscriberRecord, headers(("ETag" = String))),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Another subscriber has the MSISDN", body = Problem,
            content_type = "application/problem+json"),
        (status = 412, description = "The subscriber has changed", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn replace(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
    headers: HeaderMap,
    Body(record): Body<Value>,
) -> Result<Response, Problem> {
    let own = api.clone();
    let result = api.store(move |store| {
        let before = load_subscriber(store, supi)?;
        matches(&headers, &tag(&own, &before))?;
        let next = read_record(record, Some(&before)).map_err(|error| unprocessable(&error))?;
        if next.supi != supi {
            let pointer = "/imsi".into();
            let errors = vec![FieldError { pointer, detail: "the IMSI of a subscriber cannot be changed".into() }];
            return Err(Problem::unprocessable("the subscriber is not valid", errors));
        }
        store.upsert(&next).map_err(|error| problem(&error))?;
        Ok(next)
    });
    let stored = api.record(&identity, "subscriber.replace", &named(supi), result.await).await?;
    Ok(answer(&api, StatusCode::OK, &stored, &identity))
}

/// Remove a subscriber
///
/// The core deregisters a registered UE of the subscriber.
#[utoipa::path(delete, path = "/v1/subscribers/{supi}", tag = "subscribers", security(("bearer" = ["admin"])),
    params(("supi" = String, Path, pattern = "^(imsi-)?[0-9]{6,15}$",
            description = "`imsi-` and digits, or digits"),
        ("If-Match" = String, Header, description = "ETag of the subscriber")),
    responses((status = 204, description = "The subscriber is removed"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The subscriber has changed", body = Problem,
            content_type = "application/problem+json")))]
async fn remove(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    SupiPath(supi): SupiPath,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let own = api.clone();
    let result = api.store(move |store| {
        matches(&headers, &tag(&own, &load_subscriber(store, supi)?))?;
        store.remove([supi]).map_err(|error| problem(&error))?;
        Ok(StatusCode::NO_CONTENT)
    });
    api.record(&identity, "subscriber.remove", &named(supi), result.await).await
}
