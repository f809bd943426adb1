//! Attach and tracking area updating (TS 24.301 5.5.1, 5.5.3).
//!
//! An attach is a registration that also sets up the default bearer. The session part answers to
//! the AMF part; the accept of the bearer leaves in ATTACH ACCEPT.

use super::state::Stage;
use super::{Next, Registering, Request, RequestIdentity, RequestKind, reject};
use crate::amf::context::{
    CiotFeatures, DrxCycle, ExtendedDrx, PagingInfo, Procedure, Registration, Retry, UeSecurityCapability,
};
use crate::amf::n2::{Cause, SessionSetup};
use crate::amf::procedures::common::congestion::back_off;
use crate::amf::procedures::common::power_saving::{self, PowerSavingRequest};
use crate::amf::procedures::common::user_plane::{bitmap, bitmap_octets, status};
use crate::amf::procedures::common::{context_setup, emm, end_of_registration, guti, user_plane};
use crate::config::{CoreConfig, Timers};
use crate::gprs_timer::{TIMER_2, timer_3};
use crate::smf::{self, N2Sm, SmContext};
use crate::step::{Kind, Note, StepContext};
use vireo_types::{Dialect, Duration, Instant, limits};
use vireo_wire::nas::GmmCause;
use vireo_wire::nas_eps::*;
use vireo_wire::ngap::CauseNas;

/// T3489 (TS 24.301 table 10.3.2).
const T3489: Duration = Duration::from_secs(4);
/// Retransmissions of ESM INFORMATION REQUEST (6.6.1.2.6 a).
const T3489_REPEATS: u8 = 2;

/// Reads ATTACH REQUEST. The second value is its ESM message.
pub fn read_attach(message: &NasAttachRequest) -> (Request, Vec<u8>) {
    let kind = match message.eps_attach_type.attach_type() {
        AttachType::EpsAttach => RequestKind::Initial,
        AttachType::CombinedEpsImsiAttach => RequestKind::Combined,
        AttachType::EpsEmergencyAttach => RequestKind::Emergency,
        _ => RequestKind::Unserved,
    };
    let identity = &message.eps_mobile_identity;
    let identity = if let Some(imsi) = identity.as_imsi().and_then(|imsi| imsi.to_string().parse().ok()) {
        RequestIdentity::Imsi(imsi)
    } else if identity.as_guti().is_some() {
        RequestIdentity::Guti
    } else if identity.as_imei().is_some() {
        RequestIdentity::Imei
    } else {
        RequestIdentity::Other
    };
    let mut capability = NasUeSecurityCapability::from_ue_network_capability(&message.ue_network_capability);
    if let Some(gprs) = &message.ms_network_capability {
        capability = capability.with_gea_of(gprs);
    }
    let additional = additional(&message.ue_additional_security_capability);
    let capability =
        UeSecurityCapability::from_eps(&capability.value).with_en_dc(additional, message.ue_network_capability.dcnr());
    let esm: Vec<u8> = message.esm_message_container.value.iter().take(limits::NAS_PDU_OCTETS).copied().collect();
    let request = Request {
        kind,
        // A UE without PDN connection requests it by the signalling active flag.
        follow_on: !is_dummy(&esm) || stays_connected(&message.additional_update_type),
        ngksi: message.nas_key_set_identifier.value & 0x07,
        identity,
        capability: Some(capability),
        requested: Vec::new(),
        uplink_data: 0,
        session_status: None,
    };
    (request, esm)
}

/// Decodes the ATTACH REQUEST in SECURITY MODE COMPLETE. No other request starts the security mode
/// procedure without valid protection (4.4.4.3): an update is rejected.
pub(super) fn read_container(octets: &[u8]) -> Option<Box<NasAttachRequest>> {
    match NasEpsMessage::decode(octets).ok()? {
        NasEpsMessage::Emm(_, NasEmmMessage::AttachRequest(message)) => Some(message),
        _ => None,
    }
}

/// Returns true if the UE wants to send more after its request (9.9.3.0B, signalling active flag).
fn stays_connected(kind: &Option<NasAdditionalUpdateType>) -> bool {
    kind.as_ref().is_some_and(NasAdditionalUpdateType::signalling_active)
}

/// Returns true for ESM DUMMY MESSAGE, which stands for no PDN connection (8.3.12A).
fn is_dummy(esm: &[u8]) -> bool {
    matches!(NasEpsMessage::decode(esm), Ok(NasEpsMessage::Esm(_, NasEsmMessage::EsmDummyMessage(_))))
}

/// Reads TRACKING AREA UPDATE REQUEST.
pub fn read_update(message: &NasTrackingAreaUpdateRequest) -> Request {
    let kind = match message.eps_update_type.update_type() {
        Some(UpdateType::PeriodicUpdating) => RequestKind::Periodic,
        Some(UpdateType::CombinedTaLaUpdating | UpdateType::CombinedTaLaUpdatingWithImsiAttach) => {
            RequestKind::CombinedUpdate
        }
        _ => RequestKind::Mobility,
    };
    let active = message.eps_update_type.is_active();
    let capability = message.ue_network_capability.as_ref().map(|capability| {
        let mut replayed = NasUeSecurityCapability::from_ue_network_capability(capability);
        if let Some(gprs) = &message.ms_network_capability {
            replayed = replayed.with_gea_of(gprs);
        }
        let additional = additional(&message.ue_additional_security_capability);
        UeSecurityCapability::from_eps(&replayed.value).with_en_dc(additional, capability.dcnr())
    });
    Request {
        kind,
        follow_on: active || stays_connected(&message.additional_update_type),
        ngksi: message.nas_key_set_identifier.value & 0x07,
        identity: RequestIdentity::Guti,
        capability,
        requested: Vec::new(),
        uplink_data: if active { u16::MAX } else { 0 },
        session_status: message.eps_bearer_context_status.as_ref().map(|s| bitmap(&s.value)),
    }
}

/// Returns the octets of a UE additional security capability (9.9.3.53).
fn additional(ie: &Option<NasUeAdditionalSecurityCapability>) -> Option<[u8; 4]> {
    ie.as_ref()?.value.first_chunk().copied()
}

/// Stores how the UE of ATTACH REQUEST is paged, and the CIoT EPS optimisations that it requests.
/// It has sent all that applies.
pub fn set_attach_paging(ctx: &mut StepContext<'_, '_>, message: &NasAttachRequest) {
    set_ciot(ctx, &message.ue_network_capability, &message.additional_update_type);
    ctx.ue.reachability.paging.drx = message.drx_parameter.as_ref().and_then(drx);
    let saving = saving(&message.t3324_value, &message.t3412_extended_value, &message.extended_drx_parameters);
    // 5.3.11, 5.3.12: a UE that attaches for emergency services has to be reachable.
    let is_emergency = message.eps_attach_type.attach_type() == AttachType::EpsEmergencyAttach
        || connectivity_request(&message.esm_message_container.value)
            .is_some_and(|(_, request)| request.request_type.request_type() == Some(RequestTypeValue::Emergency));
    let saving = if is_emergency { PowerSavingRequest::default() } else { saving };
    power_saving::grant(ctx, saving, TIMER_2);
}

/// Stores how the UE of TRACKING AREA UPDATE REQUEST is paged, and deletes a radio capability that
/// has changed (5.5.3.2.2 n).
pub fn set_update_paging(ctx: &mut StepContext<'_, '_>, message: &NasTrackingAreaUpdateRequest) {
    if let Some(capability) = &message.ue_network_capability {
        set_ciot(ctx, capability, &message.additional_update_type);
    }
    if let Some(parameter) = &message.drx_parameter {
        ctx.ue.reachability.paging.drx = drx(parameter);
    }
    if message.ue_radio_capability_information_update_needed.as_ref().is_some_and(|needed| needed.value & 1 == 1) {
        ctx.ue.delete_radio_capability();
    }
    let saving = saving(&message.t3324_value, &message.t3412_extended_value, &message.extended_drx_parameters);
    let is_emergency = ctx.ue.has_emergency_session(ctx.env.config);
    let saving = if is_emergency { PowerSavingRequest::default() } else { saving };
    power_saving::grant(ctx, saving, TIMER_2);
}

/// Stores the CIoT EPS optimisations that a UE supports, and prefers (9.9.3.34, 9.9.3.0B).
fn set_ciot(
    ctx: &mut StepContext<'_, '_>,
    capability: &NasUeNetworkCapability,
    kind: &Option<NasAdditionalUpdateType>,
) {
    let preferred = kind.as_ref().and_then(NasAdditionalUpdateType::preferred_ciot_behavior);
    let ciot = &mut ctx.ue.reachability.paging.ciot;
    ciot.requested = CiotFeatures {
        without_pdn: capability.erw_opdn(),
        control_plane: capability.cp_ciot() && preferred == Some(PreferredCiotBehavior::ControlPlane),
    };
    (ciot.service_gap, ciot.data_back_off) = (capability.sgc(), capability.cp_backoff());
}

/// Encodes EPS network feature support (9.9.3.12A): the CIoT EPS optimisations in use, whether
/// there are emergency bearer services, and extended protocol configuration options, which a UE
/// sends after it knows of their support. There is no IMS voice. A UE that supports dual
/// connectivity with NR learns that it is restricted.
fn feature_support(ctx: &StepContext<'_, '_>) -> NasEpsNetworkFeatureSupport {
    let CiotFeatures { without_pdn, control_plane } = ctx.ue.ciot();
    let support = NasEpsNetworkFeatureSupport::new(vec![0])
        .with_erw_opdn(without_pdn)
        .with_cp_ciot(control_plane)
        .with_epco(true)
        .with_emc_bs(ctx.env.config.emergency(Dialect::Eps).is_some());
    match ctx.ue.security_capability.supports_dcnr() && ctx.ue.restricts_dcnr(ctx.env.config) {
        true => support.with_restrict_dcnr(true),
        false => support,
    }
}

fn drx(parameter: &NasDrxParameter) -> Option<(Dialect, DrxCycle)> {
    Some((Dialect::Eps, DrxCycle::from_value(parameter.s1_drx_value_raw()?, 6)?))
}

fn saving(
    t3324: &Option<NasGprsTimer2>,
    t3412: &Option<NasT3412ExtendedValue>,
    extended_drx: &Option<NasExtendedDrxParameters>,
) -> PowerSavingRequest {
    PowerSavingRequest {
        active_s: t3324.as_ref().and_then(NasGprsTimer2::to_seconds),
        periodic_s: t3412.as_ref().and_then(|timer| timer.to_seconds_with_integrity(true)),
        extended_drx: extended_drx
            .as_ref()
            .map(|parameters| ExtendedDrx { cycle: parameters.edrx_value(), window: parameters.paging_time_window() }),
    }
}

/// IEs of power saving in an accept, as far as the UE has requested and the network grants it.
struct GrantedPowerSaving {
    t3324: Option<NasGprsTimer2>,
    t3412: Option<NasT3412ExtendedValue>,
    extended_drx: Option<NasExtendedDrxParameters>,
}

impl GrantedPowerSaving {
    fn new(paging: &PagingInfo) -> Self {
        let saving = paging.power_saving;
        let periodic = saving.and_then(|saving| saving.periodic_s);
        GrantedPowerSaving {
            t3324: saving.and_then(|saving| NasGprsTimer2::from_seconds(saving.active_s.into()).ok()),
            t3412: periodic
                .and_then(|seconds| timer_3(seconds.into()))
                .map(|octet| NasT3412ExtendedValue::new(vec![octet])),
            extended_drx: paging.extended_drx.map(|drx| NasExtendedDrxParameters::new(drx.octets())),
        }
    }
}

/// Returns T3402 if it differs from the default that a UE has without it (10.2).
fn t3402(config: &CoreConfig) -> Option<NasGprsTimer> {
    let seconds = config.timers.t3402.as_secs();
    let default = Timers::default().t3402.as_secs();
    (seconds != default).then(|| NasGprsTimer::from_seconds(seconds).ok()).flatten()
}

/// Returns T3447 if service gap control is configured and the UE supports it (5.3.17).
fn t3447(ctx: &StepContext<'_, '_>) -> Option<NasGprsTimer3> {
    let seconds = ctx.env.config.timers.t3447.as_secs();
    let is_used = seconds > 0 && ctx.ue.reachability.paging.ciot.service_gap;
    is_used.then(|| NasGprsTimer3::from_seconds(seconds).ok()).flatten()
}

/// Continues an attach or update whose UE is secured.
pub(super) fn accept(ctx: &mut StepContext<'_, '_>, request: Request, started: Instant, esm: Option<Vec<u8>>) -> Next {
    if let Err(cause) = super::prepare(ctx, &request) {
        return reject(ctx, request.kind.counted(), cause);
    }
    // The KeNB uses the COUNT of this message, even if ESM information is requested (TS 33.401
    // A.3).
    context_setup::begin(ctx);
    let Some(esm) = esm else { return accept_update(ctx, request, started) };
    if ctx.ue.ciot().without_pdn && is_dummy(&esm) {
        return accept_without_pdn(ctx, request, started, esm);
    }
    if wants_information(&esm) {
        send_information_request(ctx, &esm);
        let retry = Retry::start(ctx.now(), T3489);
        return Some(Registering { request, started, stage: Stage::EsmInformation { esm, retry } });
    }
    Some(Registering { request, started, stage: Stage::AwaitingBearer { esm, is_requested: false } })
}

/// Returns true if the UE sends APN and options only in ESM INFORMATION RESPONSE (6.5.1.2).
fn wants_information(esm: &[u8]) -> bool {
    let flag = |request: &NasPdnConnectivityRequest| {
        request.esm_information_transfer_flag.as_ref().is_some_and(NasEsmInformationTransferFlag::is_required)
    };
    connectivity_request(esm).is_some_and(|(_, request)| flag(&request))
}

fn connectivity_request(esm: &[u8]) -> Option<(u8, Box<NasPdnConnectivityRequest>)> {
    match NasEpsMessage::decode(esm).ok()? {
        NasEpsMessage::Esm(header, NasEsmMessage::PdnConnectivityRequest(request)) => {
            Some((header.procedure_transaction_identity, request))
        }
        _ => None,
    }
}

fn send_information_request(ctx: &mut StepContext<'_, '_>, esm: &[u8]) {
    let Some((pti, _)) = connectivity_request(esm) else { return };
    let request = NasEpsMessage::new_esm(NasEsmInformationRequest::new(), 0, pti);
    if let Some(nas) = request.encode().ok().and_then(|plain| ctx.protect(plain)) {
        ctx.send_encoded_nas(nas);
    }
}

/// Returns true if the attach waits for ESM INFORMATION RESPONSE with this PTI.
pub fn awaits_information(attach: &Registering, pti: u8) -> bool {
    matches!(&attach.stage, Stage::EsmInformation { esm, .. }
        if connectivity_request(esm).is_some_and(|(own, _)| own == pti))
}

/// Handles ESM INFORMATION RESPONSE that the attach waits for: its APN and options become those of
/// the connectivity request.
pub fn on_information_response(attach: Registering, m: &NasEsmInformationResponse) -> Registering {
    let Registering { request, started, stage } = attach;
    let Stage::EsmInformation { esm, .. } = &stage else { return Registering { request, started, stage } };
    let Some((own, mut connect)) = connectivity_request(esm) else { return Registering { request, started, stage } };
    if m.access_point_name.is_some() {
        connect.access_point_name = m.access_point_name.clone();
    }
    // One of the two IEs replaces both: the answer is in that of the latest options.
    if m.protocol_configuration_options.is_some() || m.extended_protocol_configuration_options.is_some() {
        connect.protocol_configuration_options = m.protocol_configuration_options.clone();
        connect.extended_protocol_configuration_options = m.extended_protocol_configuration_options.clone();
    }
    let esm = NasEpsMessage::new_esm(*connect, 0, own).encode().unwrap_or_else(|_| esm.clone());
    Registering { request, started, stage: Stage::AwaitingBearer { esm, is_requested: false } }
}

/// Sends ATTACH ACCEPT or ATTACH REJECT once the session part has answered.
pub fn proceed(ctx: &mut StepContext<'_, '_>) {
    let awaits = |procedure: &mut Procedure| matches!(procedure, Procedure::Registration(r) if r.awaits_bearer());
    // The session part does not answer octets that are no ESM message.
    let waits = ctx.ue.sessions.iter().any(SmContext::is_live);
    if ctx.ue.deferred.is_empty() && waits {
        return;
    }
    let Some(Procedure::Registration(registering)) = ctx.ue.procedure.take_if(awaits) else { return };
    let mut n1 = None;
    let mut setup = None;
    for message in std::mem::take(&mut ctx.ue.deferred) {
        n1 = message.n1.or(n1);
        if let Some((N2Sm::SetupRequest, transfer)) = message.n2 {
            setup = Some((message.psi, Some(transfer)));
        }
    }
    // A session over NAS has no user plane at the eNB.
    let over_nas = ctx.ue.sessions.iter().find(|session| session.is_over_nas() && session.is_offered());
    let setup = setup.or_else(|| over_nas.map(|session| (session.id(), None)));
    let Registering { request, started, stage } = *registering;
    let requested = match stage {
        Stage::AwaitingBearer { esm, .. } => esm,
        _ => Vec::new(),
    };
    let next = match (n1, setup) {
        (Some(esm), Some(setup)) => accept_attach(ctx, request, started, (requested, esm), setup),
        // An attach without PDN connection (5.5.1.2.2), which UE and network do not support both.
        _ if is_dummy(&requested) => {
            reject_attach(ctx, request.kind.counted(), GmmCause::ProtocolErrorUnspecified, Some(requested))
        }
        (esm, _) => reject_attach(ctx, request.kind.counted(), GmmCause::ProtocolErrorUnspecified, esm),
    };
    ctx.ue.procedure = next.map(Procedure::registration);
}

/// Accepts an attach without PDN connection (5.5.1.2.4). The eNB gets no UE context: it has no
/// bearer.
fn accept_without_pdn(ctx: &mut StepContext<'_, '_>, request: Request, started: Instant, requested: Vec<u8>) -> Next {
    if let Err(cause) = super::enrol(ctx, Registration::Registered) {
        return reject(ctx, request.kind.counted(), cause);
    }
    let dummy = NasEpsMessage::new_esm(NasEsmDummyMessage::new(), 0, 0);
    let esm = dummy.encode().unwrap_or_default();
    if let Some(nas) = attach_accept(ctx, &request, esm.clone()) {
        ctx.send_encoded_nas(nas);
    }
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3550);
    Some(Registering { request, started, stage: Stage::AttachAccepted { retry, requested, esm } })
}

fn accept_attach(
    ctx: &mut StepContext<'_, '_>,
    request: Request,
    started: Instant,
    (requested, esm): (Vec<u8>, Vec<u8>),
    (ebi, transfer): (u8, Option<Vec<u8>>),
) -> Next {
    if let Err(cause) = super::enrol(ctx, Registration::Registered) {
        return reject(ctx, request.kind.counted(), cause);
    }
    let Some(session) = ctx.ue.session(ebi) else {
        return reject(ctx, request.kind.counted(), GmmCause::ProtocolErrorUnspecified);
    };
    let snssai = session.terms.snssai;
    smf::offered_by_attach(session, ctx.env);
    let nas = attach_accept(ctx, &request, esm.clone());
    let setup = transfer.map(|transfer| SessionSetup { psi: ebi, snssai, nas: None, transfer });
    context_setup::set_up(ctx, nas, setup.into_iter().collect());
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3550);
    Some(Registering { request, started, stage: Stage::AttachAccepted { retry, requested, esm } })
}

/// Encodes ATTACH ACCEPT (8.2.1), protected.
pub(super) fn attach_accept(ctx: &mut StepContext<'_, '_>, request: &Request, esm: Vec<u8>) -> Option<Vec<u8>> {
    let config = ctx.env.config;
    let mut message = NasAttachAccept::new(
        NasEpsAttachResult::from_attach_result(AttachResult::EpsOnly),
        emm::t3412(config),
        emm::tai_list(&ctx.ue.reachability.area)?,
        NasEsmMessageContainer::new(esm),
    )
    .with_eps_network_feature_support(feature_support(ctx));
    let granted = GrantedPowerSaving::new(&ctx.ue.reachability.paging);
    (message.t3324_value, message.t3412_extended_value) = (granted.t3324, granted.t3412);
    (message.extended_drx_parameters, message.t3402_value) = (granted.extended_drx, t3402(config));
    message.t3447_value = t3447(ctx);
    if let Some(guti) = ctx.ue.identity.gutis_of_eps(config).next() {
        message = message.with_guti(emm::guti(guti));
    }
    message.equivalent_plmns = super::equivalent_plmns(ctx).map(NasPlmnList::new);
    if request.kind == RequestKind::Combined {
        // The UE is attached for EPS services only (5.5.1.3.4.3).
        message = message.with_emm_cause(NasEmmCause::from_cause(EmmCause::CsDomainNotAvailable));
    }
    let plain = ctx.emm(message)?;
    ctx.protect(plain)
}

/// Ends an attach whose UE updates before ATTACH COMPLETE. The UE has the GUTI of the attach
/// (5.5.1.2.7 g), and the network cannot know whether it has the bearer.
pub fn end_incomplete(ctx: &mut StepContext<'_, '_>) {
    let awaits = |procedure: &mut Procedure| matches!(procedure, Procedure::Registration(r) if r.is_accepted_attach());
    if let Some(Procedure::Registration(attach)) = ctx.ue.procedure.take_if(awaits) {
        ctx.note(Note::Failed(attach.request.kind.counted(), 0));
        guti::confirm(ctx);
        end_of_registration::end(ctx);
    }
}

/// Ends an attach whose UE has rejected the bearer of ATTACH ACCEPT (6.4.1.4). The accept would be
/// repeated with a bearer that has ended.
pub fn end_without_bearer(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.ciot().without_pdn || ctx.ue.sessions.iter().any(SmContext::remains) {
        return;
    }
    let awaits = |procedure: &mut Procedure| matches!(procedure, Procedure::Registration(r) if r.is_accepted_attach());
    if let Some(Procedure::Registration(attach)) = ctx.ue.procedure.take_if(awaits) {
        ctx.note(Note::Failed(attach.request.kind.counted(), 0));
        abandon(ctx);
    }
}

/// Ends an attach without ATTACH COMPLETE: the UE counts as detached (5.5.1.2.7 c).
pub(super) fn abandon(ctx: &mut StepContext<'_, '_>) {
    end_of_registration::end(ctx);
    ctx.release(Cause::nas(CauseNas::normal_release));
}

fn accept_update(ctx: &mut StepContext<'_, '_>, request: Request, started: Instant) -> Next {
    if !ctx.ue.ciot().without_pdn && !ctx.ue.sessions.iter().any(SmContext::is_live) {
        return reject_without_bearer(ctx, request.kind.counted());
    }
    if let Err(cause) = super::enrol(ctx, Registration::Registered) {
        return reject(ctx, request.kind.counted(), cause);
    }
    // The active flag, or bearers for which an idle UE was paged. The eNB gets all bearers with the
    // UE context: a later one would need a NAS message (TS 36.413 9.1.3.1).
    let wanted = request.uplink_data | std::mem::take(&mut ctx.ue.pending.sessions);
    let sessions = user_plane::activate(ctx, |_| wanted != 0);
    let nas = update_accept(ctx, &request);
    context_setup::set_up(ctx, nas, sessions);
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3550);
    Some(Registering { request, started, stage: Stage::Accepted { retry, back: 0 } })
}

/// Encodes TRACKING AREA UPDATE ACCEPT (8.2.26), protected.
pub(super) fn update_accept(ctx: &mut StepContext<'_, '_>, request: &Request) -> Option<Vec<u8>> {
    let config = ctx.env.config;
    let mut message = NasTrackingAreaUpdateAccept::new(NasEpsUpdateResult::from_update_result(UpdateResult::TaUpdated))
        .with_t3412_value(emm::t3412(config))
        .with_eps_network_feature_support(feature_support(ctx));
    let granted = GrantedPowerSaving::new(&ctx.ue.reachability.paging);
    (message.t3324_value, message.t3412_extended_value) = (granted.t3324, granted.t3412);
    (message.extended_drx_parameters, message.t3402_value) = (granted.extended_drx, t3402(config));
    message.t3447_value = t3447(ctx);
    if let Some(guti) = ctx.ue.identity.gutis_of_eps(config).next() {
        message = message.with_guti(emm::guti(guti));
    }
    if let Some(areas) = emm::tai_list(&ctx.ue.reachability.area) {
        message = message.with_tai_list(areas);
    }
    message.equivalent_plmns = super::equivalent_plmns(ctx).map(NasPlmnList::new);
    if request.session_status.is_some() {
        message = message.with_eps_bearer_context_status(NasEpsBearerContextStatus::new(bitmap_octets(status(ctx.ue))));
    }
    if request.kind == RequestKind::CombinedUpdate {
        message = message.with_emm_cause(NasEmmCause::from_cause(EmmCause::CsDomainNotAvailable));
    }
    let plain = ctx.emm(message)?;
    ctx.protect(plain)
}

/// Handles the expiry of T3489 (6.6.1.2.6 a).
pub(super) fn on_information_deadline(
    ctx: &mut StepContext<'_, '_>,
    request: Request,
    started: Instant,
    (esm, retry): (Vec<u8>, Retry),
) -> Next {
    if retry.deadline > ctx.now() {
        return Some(Registering { request, started, stage: Stage::EsmInformation { esm, retry } });
    }
    match retry.next(ctx.now(), T3489, T3489_REPEATS) {
        Some(retry) => {
            send_information_request(ctx, &esm);
            Some(Registering { request, started, stage: Stage::EsmInformation { esm, retry } })
        }
        None => {
            let pti = connectivity_request(&esm).map_or(0, |(pti, _)| pti);
            let cause = NasEsmCause::from_cause(EsmCause::EsmInformationNotReceived);
            let esm = NasEpsMessage::new_esm(NasPdnConnectivityReject::new(cause), 0, pti).encode().ok();
            reject_attach(ctx, request.kind.counted(), GmmCause::ProtocolErrorUnspecified, esm)
        }
    }
}

/// Rejects an attach whose bearer is not set up, with #19 and the ESM message (5.5.1.2.5).
fn reject_attach(ctx: &mut StepContext<'_, '_>, counted: Kind, cause: GmmCause, esm: Option<Vec<u8>>) -> Next {
    let Some(esm) = esm else { return reject(ctx, counted, cause) };
    let message = NasAttachReject::new(NasEmmCause::from_cause(EmmCause::EsmFailure))
        .with_esm_message_container(NasEsmMessageContainer::new(esm));
    ctx.send_emm(message);
    // The sessions of an earlier attach have ended.
    end_detached(ctx, counted, EmmCause::EsmFailure)
}

/// Rejects an update of a UE that has no bearer, or whose sessions of 5G cannot be bearers, with
/// #40 (5.5.3.2.5). The UE attaches then.
fn reject_without_bearer(ctx: &mut StepContext<'_, '_>, counted: Kind) -> Next {
    let cause = EmmCause::NoEpsBearerContextActivated;
    ctx.send_emm(NasTrackingAreaUpdateReject::new(NasEmmCause::from_cause(cause)));
    end_detached(ctx, counted, cause)
}

/// Ends an attach or update after which the UE is deregistered (5.5.1.2.5, 5.5.3.2.5).
fn end_detached(ctx: &mut StepContext<'_, '_>, counted: Kind, cause: EmmCause) -> Next {
    ctx.note(Note::Failed(counted, cause.as_u8()));
    ctx.release(Cause::nas(CauseNas::normal_release));
    super::drop_unregistered_keys(ctx);
    // The sessions of an earlier attach have ended (5.5.1.2.5: the UE is deregistered).
    end_of_registration::end(ctx);
    None
}

/// Sends ATTACH REJECT (8.2.3), or TRACKING AREA UPDATE REJECT (8.2.28) to a UE that updates.
pub(super) fn send_reject(ctx: &mut StepContext<'_, '_>, counted: Kind, cause: GmmCause) {
    let timer = if cause == GmmCause::Congestion { back_off(ctx) } else { None };
    let timer = timer.map(|timer| NasGprsTimer2::new(timer.value.to_vec()));
    let cause = NasEmmCause::from_cause(emm::cause(cause));
    if counted == Kind::Mobility {
        let mut message = NasTrackingAreaUpdateReject::new(cause);
        if let Some(timer) = timer {
            message = message.with_t3346_value(timer);
        }
        ctx.send_emm(message);
    } else {
        let mut message = NasAttachReject::new(cause);
        if let Some(timer) = timer {
            message = message.with_t3346_value(timer);
        }
        ctx.send_emm(message);
    }
}
