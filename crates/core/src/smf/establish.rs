//! PDU session establishment (TS 24.501 6.4.1, TS 23.502 4.3.2.2.1).
//!
//! From the UE's request to the request to the UPF, and from the UPF's answer to the accept.

use super::context::{N4State, PfcpSession, RanState, SessionHandover, SmContext, Stage, Usage, ebi, seid};
use super::interface::{Create, Output};
use super::n1::{self, Received5gsm};
use super::session_request::SessionRequest;
use super::terms::SessionTerms;
use super::{esm, messages, n4, options, release, user_plane};
use crate::Env;
use crate::config::{CoreConfig, DnnConfig, UpfConfig};
use crate::subscription::is_gbr;
use vireo_types::{Dialect, Dnn, Ltmsi, PduSessionType, SessionAddress};
use vireo_wire::nas::{GsmCause, Nas5gsmMessage, NasPduSessionEstablishmentRequest, NasSscMode, SscModeValue};

/// Refusal of a session: answer to the UE, if any.
type Refusal = Option<Output>;

pub(super) fn create(request: &Create<'_>, env: &mut Env<'_>) -> (Option<SmContext>, Vec<Output>) {
    match begin(request, env) {
        Ok((sm, establishment)) => (Some(sm), vec![establishment]),
        Err(answer) => (None, answer.into_iter().collect()),
    }
}

fn begin(request: &Create<'_>, env: &mut Env<'_>) -> Result<(SmContext, Output), Refusal> {
    let requested = match request.dialect {
        Dialect::Nr => establishment_request(request)?,
        Dialect::Eps => esm::connectivity_request(request.n1, env.config.emergency(Dialect::Eps) == Some(request.dnn))?,
    };
    let pti = requested.pti;
    let refuse = |cause| messages::reject(request.dialect, request.psi, pti, cause);
    let dnn = data_network(env.config, request).map_err(refuse)?;
    if is_gbr(request.subscription.five_qi) {
        return Err(refuse(GsmCause::RequestRejectedUnspecified));
    }
    let (kind, cause) = session_type(requested.kind, &request.subscription.types, &dnn.types).map_err(refuse)?;
    let is_single = requested.kind == Some(PduSessionType::Ipv4v6) && kind != PduSessionType::Ipv4v6;
    let cause = match cause.map(GsmCause::as_u8) {
        None if is_single && request.dialect == Dialect::Eps => Some(esm::SINGLE_ADDRESS_BEARERS),
        other => other,
    };
    let Some(upf) = user_plane_function(env.config, request.dnn, request.ltmsi) else {
        return Err(messages::congestion_reject(request.dialect, request.psi, pti, env));
    };
    let terms = SessionTerms {
        snssai: request.snssai,
        dnn: request.dnn.clone(),
        ambr: request.subscription.ambr,
        five_qi: request.subscription.five_qi,
        arp_priority: request.subscription.arp_priority,
        // The subscribed policy precedes the configured one (TS 33.501 6.6.1).
        up_security: request.subscription.up_security.or(dnn.up_security),
        framed_routes: request.subscription.framed_routes.clone(),
        change: None,
    };
    // A UE of EPS that assigns a PDU session identity learns the session that its PDN connection
    // becomes in 5G (TS 23.502 4.11.1.5.4).
    let moves = request.dialect == Dialect::Eps && request.psi != 0;
    let further = if moves { options::session_parameters(&terms, ebi(request.index), env.config) } else { Vec::new() };
    let mut options = requested.options.map_or_else(Vec::new, |options| options::answer(&options, dnn, kind, further));
    if requested.is_extended {
        options::mark_extended(&mut options);
    }
    let generation = u32::from_be_bytes(env.random());
    // The last step that can fail for a reason of the network, so that no address is allocated in
    // vain.
    let Some(address) = address(request, dnn, kind, env).map_err(refuse)? else {
        return Err(messages::congestion_reject(request.dialect, request.psi, pti, env));
    };
    let sm = SmContext {
        psi: request.psi,
        dialect: request.dialect,
        index: request.index,
        terms,
        kind,
        address,
        always_on: requested.always_on,
        integrity_rate: requested.integrity_rate,
        pfcp: PfcpSession {
            upf: upf.n4,
            cp_seid: seid(request.ltmsi, request.index, generation),
            up_seid: 0,
            over_nas: false,
        },
        uplink: None,
        downlink: None,
        handover: SessionHandover::default(),
        end_marker: false,
        usage: Usage::default(),
        relocation: None,
        stage: Stage::Requested { pti, cause, options },
        ran: RanState::Idle,
        n4: N4State::Establishing,
        deadline: None,
        since: env.arrived,
    };
    let establishment = n4::establishment_request(&sm, env.config, 0);
    Ok((sm, establishment))
}

/// Reads the request if the 5GSM message is an establishment request.
fn establishment_request(request: &Create<'_>) -> Result<SessionRequest, Refusal> {
    let Received5gsm { psi, pti, message } = n1::decode(request.n1)?;
    match message {
        _ if pti == 0 => Err(n1::status(psi, pti, GsmCause::InvalidPtiValue)),
        Nas5gsmMessage::PduSessionEstablishmentRequest(requested) if psi == request.psi => {
            if !requested.ssc_mode.as_ref().is_none_or(is_ssc_mode_1) {
                return Err(n1::establishment_reject(psi, pti, GsmCause::NotSupportedSscMode));
            }
            session_request(pti, *requested)
                .ok_or_else(|| n1::establishment_reject(psi, pti, GsmCause::UnknownPduSessionType))
        }
        Nas5gsmMessage::PduSessionModificationRequest(_) => {
            Err(n1::modification_reject(psi, pti, GsmCause::InvalidPduSessionIdentity))
        }
        Nas5gsmMessage::PduSessionReleaseRequest(_) => {
            Err(n1::release_reject(psi, pti, GsmCause::InvalidPduSessionIdentity))
        }
        Nas5gsmMessage::FiveGsmStatus(_) => Err(None),
        _ => Err(n1::status(psi, pti, GsmCause::InvalidPduSessionIdentity)),
    }
}

/// Returns the request; `None` if its session type is unknown.
fn session_request(pti: u8, requested: NasPduSessionEstablishmentRequest) -> Option<SessionRequest> {
    use vireo_wire::nas::PduSessionTypeValue as Value;
    let kind = match requested.pdu_session_type.as_ref().map(|ie| ie.session_type()) {
        None => None,
        Some(Some(Value::Ipv4)) => Some(PduSessionType::Ipv4),
        Some(Some(Value::Ipv6)) => Some(PduSessionType::Ipv6),
        Some(Some(Value::Ipv4v6)) => Some(PduSessionType::Ipv4v6),
        Some(_) => return None,
    };
    Some(SessionRequest {
        pti,
        kind,
        always_on: requested.always_on_pdu_session_requested.as_ref().is_some_and(|ie| ie.apsr()),
        integrity_rate: requested.integrity_protection_maximum_data_rate.value,
        options: requested.extended_protocol_configuration_options,
        is_extended: false,
    })
}

fn data_network<'c>(config: &'c CoreConfig, request: &Create<'_>) -> Result<&'c DnnConfig, GsmCause> {
    config.dnn(request.dnn, request.snssai).ok_or_else(|| {
        let elsewhere = config.dnns.iter().any(|d| d.name == *request.dnn);
        if elsewhere { GsmCause::MissingOrUnknownDnnInASlice } else { GsmCause::MissingOrUnknownDnn }
    })
}

/// Selects the session type from the requested, subscribed and supported ones. The cause in the
/// result tells the UE that an IPv4v6 request gets the only supported type (TS 24.501 6.4.1.3). An
/// error is the cause of the reject (6.4.1.4).
fn session_type(
    requested: Option<PduSessionType>,
    subscribed: &[PduSessionType],
    served: &[PduSessionType],
) -> Result<(PduSessionType, Option<GsmCause>), GsmCause> {
    use PduSessionType::{Ipv4, Ipv4v6, Ipv6};
    let allowed = |kind: PduSessionType| subscribed.contains(&kind) && served.contains(&kind);
    let default =
        *subscribed.iter().find(|kind| allowed(**kind)).ok_or(GsmCause::RequestedServiceOptionNotSubscribed)?;
    let Some(wanted) = requested else { return Ok((default, None)) };
    match (wanted, allowed(Ipv4), allowed(Ipv6)) {
        _ if allowed(wanted) => Ok((wanted, None)),
        (Ipv4v6, true, true) => Ok((default, None)),
        (Ipv4v6, true, false) => Ok((Ipv4, Some(GsmCause::PduSessionTypeIpv4OnlyAllowed))),
        (Ipv4v6, false, _) => Ok((Ipv6, Some(GsmCause::PduSessionTypeIpv6OnlyAllowed))),
        _ if allowed(Ipv4v6) => Err(GsmCause::PduSessionTypeIpv4v6OnlyAllowed),
        (Ipv4, _, _) => Err(GsmCause::PduSessionTypeIpv6OnlyAllowed),
        (Ipv6, _, _) => Err(GsmCause::PduSessionTypeIpv4OnlyAllowed),
    }
}

fn is_ssc_mode_1(ie: &NasSscMode) -> bool {
    ie.mode() == Some(SscModeValue::Ssc1)
}

/// Returns the static addresses of the subscriber, and allocates the others that the session type
/// needs. `None` if a pool is exhausted. An error is the cause of the reject: a static address is
/// not in the static pool of the data network.
fn address(
    request: &Create<'_>,
    dnn: &DnnConfig,
    kind: PduSessionType,
    env: &mut Env<'_>,
) -> Result<Option<SessionAddress>, GsmCause> {
    let ipv4 = request.subscription.static_ipv4.filter(|_| kind != PduSessionType::Ipv6);
    let ipv6_prefix = request.subscription.static_ipv6_prefix.filter(|_| kind != PduSessionType::Ipv4);
    let fixed = SessionAddress { ipv4, ipv6_prefix };
    if !dnn.may_be_static(&fixed) {
        return Err(GsmCause::NetworkFailure);
    }
    let needs_ipv4 = kind != PduSessionType::Ipv6 && ipv4.is_none();
    let needs_ipv6 = kind != PduSessionType::Ipv4 && ipv6_prefix.is_none();
    let further = match (needs_ipv4, needs_ipv6) {
        (true, true) => env.ids.address(request.dnn, PduSessionType::Ipv4v6),
        (true, false) => env.ids.address(request.dnn, PduSessionType::Ipv4),
        (false, true) => env.ids.address(request.dnn, PduSessionType::Ipv6),
        (false, false) => Some(SessionAddress::default()),
    };
    Ok(further.map(|further| SessionAddress {
        ipv4: ipv4.or(further.ipv4),
        ipv6_prefix: ipv6_prefix.or(further.ipv6_prefix),
    }))
}

/// Selects a UPF that reaches the data network, distributed by LTMSI.
fn user_plane_function<'c>(config: &'c CoreConfig, dnn: &Dnn, ltmsi: Ltmsi) -> Option<&'c UpfConfig> {
    let reach = || config.upfs.iter().filter(|upf| upf.reaches(dnn));
    let chosen = (ltmsi.get() as usize).checked_rem(reach().count())?;
    reach().nth(chosen)
}

/// Handles that the UPF has established a session that the UE waits for. A session with the ID of
/// another one waits until the RAN has released that.
pub(super) fn upf_ready(sm: &mut SmContext, pti: u8, env: &Env<'_>, out: &mut Vec<Output>) {
    let Stage::Requested { cause, options, .. } = &mut sm.stage else {
        return;
    };
    if matches!(sm.ran, RanState::Releasing { .. }) {
        return;
    }
    let (cause, options) = (*cause, std::mem::take(options));
    if sm.is_over_nas() {
        return upf_ready_over_nas(sm, pti, messages::accept(sm, pti, cause, options, env.config), env, out);
    }
    match (messages::accept(sm, pti, cause, options, env.config), messages::ran_setup_request(sm)) {
        (Some(accept), Some(setup)) => {
            (sm.stage, sm.deadline) = match (sm.dialect, &accept) {
                (Dialect::Eps, Output::N1(request)) => esm::activating(pti, request.clone(), env),
                _ => (Stage::Accepted { pti }, Some(env.now + env.config.timers.ran_response)),
            };
            sm.ran = RanState::SettingUp;
            out.extend([accept, setup]);
        }
        // The pool assigned no address of the selected type: there is nothing to send to the UE.
        _ => release::reject(sm, GsmCause::NetworkFailure, out),
    }
}

/// As [`upf_ready`], for a session without user plane at the RAN.
fn upf_ready_over_nas(sm: &mut SmContext, pti: u8, accept: Option<Output>, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(Output::N1(request)) = accept else { return release::reject(sm, GsmCause::NetworkFailure, out) };
    (sm.stage, sm.deadline) = esm::activating(pti, request.clone(), env);
    out.push(Output::N1(request));
    user_plane::set_up(sm, env, out);
}
