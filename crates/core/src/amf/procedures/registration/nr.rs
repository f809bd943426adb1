//! NAS messages of registration.

use super::{Request, RequestIdentity, RequestKind, Slices, equivalent_plmns};
use crate::amf::context::{
    DrxCycle, ExtendedDrx, PagingInfo, PowerSaving, Registration, UeContext, UeSecurityCapability,
};
use crate::amf::procedures::common::congestion::back_off;
use crate::amf::procedures::common::power_saving::{self, PowerSavingRequest};
use crate::amf::procedures::common::user_plane::{bitmap, bitmap_octets, status};
use crate::amf::procedures::common::{areas, gmm};
use crate::gprs_timer::{TIMER_3, t3512};
use crate::smf::{SmContext, ebi};
use crate::step::StepContext;
use vireo_types::{Dialect, Snssai, limits};
use vireo_wire::nas::*;

/// Types of identity (TS 24.501 table 9.11.3.4.1).
const IMEI: u8 = 3;
const IMEISV: u8 = 5;

/// "Emergency registered" in the 5GS registration result (9.11.3.6).
const EMERGENCY_REGISTERED: u8 = 0x20;
/// Emergency services in NR and in E-UTRA connected to 5GCN, in the 5GS network feature support
/// (9.11.3.5).
const EMERGENCY_SERVICES: u8 = 0x0c;

/// Reads REGISTRATION REQUEST.
pub fn read(message: &NasRegistrationRequest) -> Request {
    let kind = match message.fgs_registration_type.registration_type() {
        Some(RegistrationType::InitialRegistration) => RequestKind::Initial,
        Some(RegistrationType::MobilityRegistrationUpdating) => RequestKind::Mobility,
        Some(RegistrationType::PeriodicRegistrationUpdating) => RequestKind::Periodic,
        Some(RegistrationType::EmergencyRegistration) => RequestKind::Emergency,
        // An unused value (9.11.3.7).
        None => RequestKind::Initial,
        Some(_) => RequestKind::Unserved,
    };
    let identity = &message.fgs_mobile_identity;
    let identity = if identity.as_suci().is_some() {
        RequestIdentity::Suci(identity.value.to_vec())
    } else if identity.as_guti().is_some() {
        if is_from_eps(message) { RequestIdentity::MappedGuti } else { RequestIdentity::Guti }
    } else if identity.value.first().is_some_and(|octet| matches!(octet & 7, IMEI | IMEISV)) {
        RequestIdentity::Imei
    } else {
        RequestIdentity::Other
    };
    let is_default = message.network_slicing_indication.as_ref().is_some_and(NasNetworkSlicingIndication::dcni);
    let is_extended = message.fgmm_capability.as_ref().is_some_and(|capability| capability.er_nssai());
    let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
    let marks = mark(is_default, Request::DEFAULT_NSSAI) | mark(is_extended, Request::EXTENDED_REJECTED);
    Request {
        kind,
        follow_on: message.fgs_registration_type.follow_on_request(),
        ngksi: message.ngksi.value & 0x07 | marks,
        identity,
        capability: message.ue_security_capability.as_ref().map(|c| UeSecurityCapability::new(&c.value)),
        requested: message.requested_nssai.as_ref().map(requested).unwrap_or_default(),
        uplink_data: message.uplink_data_status.as_ref().map_or(0, |s| bitmap(&s.value)),
        session_status: message.pdu_session_status.as_ref().map(|s| bitmap(&s.value)),
    }
}

/// Returns true if the UE comes from EPS: it sends an EPS NAS message container, or indicates that
/// it is registered in EPS (5.5.1.3.2; UE status IE, 9.11.3.56).
fn is_from_eps(message: &NasRegistrationRequest) -> bool {
    let registered_in_eps =
        message.ue_status.as_ref().is_some_and(|status| status.value.first().is_some_and(|octet| octet & 1 == 1));
    message.eps_nas_message_container.is_some() || registered_in_eps
}

/// Returns the requested S-NSSAIs, each once.
fn requested(nssai: &NasNssai) -> Vec<Snssai> {
    let mut requested = Vec::new();
    for snssai in nssai.parse_all().iter().take(limits::ALLOWED_SNSSAIS).map(snssai_of) {
        if !requested.contains(&snssai) {
            requested.push(snssai);
        }
    }
    requested
}

/// Takes the EPS bearer context status of a UE from EPS into the PDU session status: a session
/// whose EPS bearer the UE does not have is inactive (5.5.1.3.4, TS 23.502 4.11.1.3.3).
pub fn reconcile_bearers(ue: &UeContext, message: &NasRegistrationRequest, request: &mut Request) {
    let Some(active) = message.eps_bearer_context_status.as_ref().map(|status| bitmap(&status.value)) else { return };
    let is_inactive = |session: &&SmContext| ebi(session.index).is_some_and(|ebi| active >> ebi & 1 == 0);
    let inactive = ue.sessions.iter().filter(is_inactive).fold(0, |bits, session| bits | 1 << session.psi);
    if inactive != 0 {
        request.session_status = Some(request.session_status.unwrap_or(u16::MAX) & !inactive);
    }
}

/// Returns the EPS bearer context status of the sessions: those that are active in the network.
fn bearer_status(ue: &UeContext) -> u16 {
    let active = ue.sessions.iter().filter(|session| session.is_established()).filter_map(|session| ebi(session.index));
    active.fold(0, |bits, ebi| bits | 1 << ebi)
}

/// Returns the S-NSSAI of an IE's contents.
pub(crate) fn snssai_of(contents: &SNssaiContents) -> Snssai {
    Snssai::from_octets(contents.sst, contents.sd)
}

/// Reads the request in a Security Mode Complete; `None` if it is another message.
pub fn read_container(octets: &[u8]) -> Option<(Box<NasRegistrationRequest>, Request)> {
    match Nas5gsMessage::decode(octets).ok()? {
        Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationRequest(message)) => {
            let request = read(&message);
            Some((message, request))
        }
        _ => None,
    }
}

/// Stores how the UE of REGISTRATION REQUEST is paged, and deletes a radio capability that has
/// changed (NG-RAN-RCU, 5.5.1.3.2 n). MICO mode without an active time is power saving mode from
/// the moment at which the UE becomes idle (5.3.6).
pub fn set_paging(ctx: &mut StepContext<'_, '_>, message: &NasRegistrationRequest) {
    if message.fgs_update_type.as_ref().is_some_and(NasFGsUpdateType::ng_ran_rcu) {
        ctx.ue.delete_radio_capability();
    }
    let (drx, mut saving) = requested_paging(message);
    // The codings of cycle and window are those of the RAT (TS 24.008 table 10.5.5.32).
    let is_eutra = ctx.ue.connection.is_some_and(|connection| ctx.env.ran.is_ng_enb(connection.assoc));
    let long = message.requested_extended_drx_parameters.as_ref().and_then(|ie| ie.value.get(1)).copied();
    let in_nr = |drx: ExtendedDrx| drx.in_nr().with_long_window(long);
    saving.extended_drx = saving.extended_drx.map(|drx| if is_eutra { drx } else { in_nr(drx) });
    ctx.ue.reachability.paging.drx = drx;
    // 5.3.6, 5.3.16: a UE has to be reachable that registers for emergency services alone, or has
    // an emergency session.
    let kind = message.fgs_registration_type.registration_type();
    let is_emergency = ctx.ue.registration == Registration::Emergency || ctx.ue.has_emergency_session(ctx.env.config);
    let is_emergency =
        kind == Some(RegistrationType::EmergencyRegistration) || is_emergency && read(message).kind.is_update();
    let saving = if is_emergency { PowerSavingRequest::default() } else { saving };
    power_saving::grant(ctx, saving, TIMER_3);
}

/// Returns the DRX cycle and the power saving that the UE requests, extended DRX in the coding of
/// E-UTRA.
fn requested_paging(message: &NasRegistrationRequest) -> (Option<(Dialect, DrxCycle)>, PowerSavingRequest) {
    let drx = message.requested_drx_parameters.as_ref().and_then(NasFGsDrxParameters::drx_value_raw);
    let drx = drx.and_then(|value| DrxCycle::from_value(value, 1)).map(|cycle| (Dialect::Nr, cycle));
    let active_s = message.t3324_value.as_ref().and_then(NasGprsTimer3::to_seconds);
    let mico = message.mico_indication.as_ref().map(|_| active_s.unwrap_or_default());
    let parameters = message.requested_extended_drx_parameters.as_ref().and_then(|ie| ie.value.first());
    let extended_drx = parameters.map(|octet| ExtendedDrx::from_octet(*octet));
    (drx, PowerSavingRequest { active_s: mico, periodic_s: None, extended_drx })
}

/// Adds the IEs of [`set_paging`] to an accept.
fn add_paging(message: &mut NasRegistrationAccept, paging: &PagingInfo) {
    message.negotiated_drx_parameters =
        paging.drx_in(Dialect::Nr).map(|drx| NasFGsDrxParameters::new(vec![drx as u8 + 1]));
    message.negotiated_extended_drx_parameters =
        paging.extended_drx.map(|drx| NasExtendedDrxParameters::new(drx.octets()));
    if let Some(PowerSaving { active_s, .. }) = paging.power_saving {
        message.mico_indication = Some(NasMicoIndication::from_flags(false, false));
        let timer = (active_s > 0).then(|| NasGprsTimer3::from_seconds(active_s.into()).ok());
        message.t3324_value = timer.flatten();
    }
}

/// Encodes REGISTRATION ACCEPT (8.2.7) of the context, protected. `back` has the sessions whose
/// user plane is activated, one bit each.
pub fn accept(ctx: &mut StepContext<'_, '_>, request: &Request, slices: &Slices, back: u16) -> Option<Vec<u8>> {
    let config = ctx.env.config;
    let is_emergency = ctx.ue.registration == Registration::Emergency;
    // No IMS voice: sent explicitly, so that a phone does not search for it. Emergency services are
    // offered in NR and E-UTRA (9.11.3.5).
    let services = if config.emergency(Dialect::Nr).is_some() { EMERGENCY_SERVICES } else { 0 };
    let result = RegistrationResult::ThreeGppAccess as u8 | if is_emergency { EMERGENCY_REGISTERED } else { 0 };
    let mut message = NasRegistrationAccept::new(NasFGsRegistrationResult::new(vec![result]))
        .with_fgs_network_feature_support(NasFGsNetworkFeatureSupport::new(vec![services, 0]));
    add_paging(&mut message, &ctx.ue.reachability.paging);
    if let Some(areas) = gmm::tai_list(&ctx.ue.reachability.area) {
        message = message.with_tai_list(areas);
    }
    message.equivalent_plmns = equivalent_plmns(ctx).map(NasPlmnList::new);
    let service = ctx.ue.areas().and_then(|areas| areas.service.as_ref());
    if let (Some(_), Some(tai)) = (service, areas::location(ctx.ue)) {
        message.service_area_list = Some(areas::service_area_list(service, tai.plmn));
    }
    if let Some(tmsi) = ctx.ue.identity.tmsi {
        message = message.with_fg_guti(gmm::mobile_identity(UeContext::guti(config, tmsi)));
    }
    // The slice of emergency services is the network's own (TS 23.501 5.16.4.1).
    if let Some(allowed) = gmm::nssai(&ctx.ue.allowed).filter(|_| !is_emergency) {
        message = message.with_allowed_nssai(allowed);
    }
    message.rejected_nssai = slices.rejected_nssai();
    message.extended_rejected_nssai = slices.extended_rejected_nssai();
    if let Some(configured) = gmm::nssai(&slices.configured) {
        message = message.with_configured_nssai(configured);
    }
    message = message.with_t3512_value(NasT3512Value::new(vec![t3512(config.timers.t3512.as_secs())]));
    if request.session_status.is_some() {
        message = message.with_pdu_session_status(NasPduSessionStatus::new(bitmap_octets(status(ctx.ue))));
    }
    if request.uplink_data != 0 {
        // A bit is set for a session whose user plane was requested and is not activated
        // (9.11.3.42).
        let failed = request.uplink_data & !back;
        let octets = bitmap_octets(failed);
        message = message.with_pdu_session_reactivation_result(NasPduSessionReactivationResult::new(octets));
        message.pdu_session_reactivation_result_error_cause = gmm::restricted_sessions(ctx, failed);
    }
    if request.identity == RequestIdentity::MappedGuti && config.eps.interworks {
        let octets = bitmap_octets(bearer_status(ctx.ue));
        message = message.with_eps_bearer_context_status(NasEpsBearerContextStatus::new(octets));
    }
    ctx.nas(message.into())
}

impl Slices {
    fn entries(&self, is_extended: bool) -> Vec<(RejectedNssaiCause, NasSNssai)> {
        let rejected = self.rejected.iter().filter(|_| self.is_extended == is_extended);
        rejected.map(|(snssai, cause)| (*cause, gmm::snssai(*snssai))).collect()
    }

    /// Returns the rejected NSSAI for a UE that does not support the extended one.
    fn rejected_nssai(&self) -> Option<NasRejectedNssai> {
        let slices = self.entries(false);
        let entries: Vec<_> = slices.iter().map(|(cause, snssai)| (*cause, snssai)).collect();
        NasRejectedNssai::from_entries(&entries).ok()
    }

    /// Returns the extended rejected NSSAI (9.11.3.75) for a UE that supports it, without a
    /// back-off time.
    fn extended_rejected_nssai(&self) -> Option<NasExtendedRejectedNssai> {
        let slices = self.entries(true);
        // One partial list of type 000.
        let mut octets = vec![u8::try_from(slices.len().checked_sub(1)?).ok()?];
        for (cause, snssai) in &slices {
            octets.push((snssai.value.len() as u8) << 4 | *cause as u8);
            octets.extend_from_slice(&snssai.value);
        }
        Some(NasExtendedRejectedNssai::new(octets))
    }
}

/// Sends REGISTRATION REJECT (8.2.9).
pub fn send_reject(ctx: &mut StepContext<'_, '_>, cause: GmmCause, slices: &Slices) {
    let mut message = NasRegistrationReject::new(NasFGmmCause::from_cause(cause));
    if cause == GmmCause::Congestion
        && let Some(timer) = back_off(ctx)
    {
        message = message.with_t3346_value(timer);
    }
    message.rejected_nssai = slices.rejected_nssai();
    message.extended_rejected_nssai = slices.extended_rejected_nssai();
    ctx.send_nas(message.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REGISTRATION REQUEST and REGISTRATION ACCEPT with MICO mode, T3324 of 10 s and a DRX cycle
    /// of 640 ms.
    #[test]
    fn mico_mode_and_drx_are_read_and_confirmed() {
        let plain = [
            0x7e, 0, 0x41, 0x71, 0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40, 0xde, 0xad, 0xbe, 0xef, 0xb0, 0x51, 1, 2,
            0x6e, 1, 0x35, 0x6a, 1, 0x65,
        ];
        let (message, _) = read_container(&plain).expect("a request");
        let (drx, saving) = requested_paging(&message);
        assert_eq!(drx, Some((Dialect::Nr, DrxCycle::Frames64)));
        let extended_drx = Some(ExtendedDrx { cycle: 5, window: 3 });
        assert_eq!(saving, PowerSavingRequest { active_s: Some(10), periodic_s: None, extended_drx });
        let result = NasFGsRegistrationResult::from_result(RegistrationResult::ThreeGppAccess);
        for (active_s, tail) in [(10, "5101026e01356a0165"), (0, "5101026e0135")] {
            let mut accept = NasRegistrationAccept::new(result.clone());
            let power_saving = Some(PowerSaving { active_s, periodic_s: None });
            add_paging(&mut accept, &PagingInfo { drx, extended_drx, power_saving, ..PagingInfo::default() });
            let octets = Nas5gsMessage::new_5gmm(accept).encode().expect("it encodes");
            let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            assert_eq!(hex, format!("7e00420101b0{tail}"), "{active_s} s");
        }
        let (message, _) = read_container(&plain[..17]).expect("a request");
        assert_eq!(requested_paging(&message), (None, PowerSavingRequest::default()));
    }
}
