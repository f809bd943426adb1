//! 5GMM messages of identification, 5G AKA, EAP-AKA' and security mode control (TS 24.501 8.2).

use super::{AkaFailure, FailureCause, eps_algorithms};
use crate::amf::context::{NasSecurity, UeSecurityCapability};
use crate::step::StepContext;
use crate::subscription::{AuthenticationInfo, SubscriberIdentity};
use vireo_types::{Pei, Supi};
use vireo_wire::eap;
use vireo_wire::nas::*;
use vireo_wire::security::nas_5gs::{KSeaf, derive_kamf};

/// ABBA of the first release of 5G (TS 33.501 A.7.1).
const ABBA: [u8; 2] = [0, 0];

/// Returns the SUCI of IDENTITY RESPONSE.
pub fn identity(response: &NasIdentityResponse) -> Option<SubscriberIdentity> {
    response.mobile_identity.as_suci()?;
    Some(SubscriberIdentity::Suci(response.mobile_identity.value.to_vec()))
}

/// Returns RES* of AUTHENTICATION RESPONSE; empty if there is none.
pub fn response(response: &NasAuthenticationResponse) -> &[u8] {
    response.authentication_response_parameter.as_ref().and_then(|p| p.res_star()).map_or(&[], |res| &res[..])
}

/// Returns the EAP message of AUTHENTICATION RESPONSE.
pub fn eap_message(response: &NasAuthenticationResponse) -> Option<&[u8]> {
    response.eap_message.as_ref().map(|message| &message.value[..])
}

/// Reads AUTHENTICATION FAILURE.
pub fn failure(failure: &NasAuthenticationFailure) -> AkaFailure {
    let cause = match failure.fgmm_cause.cause() {
        Some(GmmCause::SynchFailure) => FailureCause::Synchronisation,
        Some(GmmCause::NgKsiAlreadyInUse) => FailureCause::KeySetInUse,
        Some(GmmCause::MacFailure | GmmCause::NonFiveGAuthenticationUnacceptable) => FailureCause::Mac,
        _ => FailureCause::Other,
    };
    let parameter = failure.authentication_failure_parameter.as_ref();
    AkaFailure { cause, auts: parameter.and_then(|p| p.value[..].try_into().ok()) }
}

/// Returns the IMEISV and the initial message of SECURITY MODE COMPLETE.
pub fn complete(message: &NasSecurityModeComplete) -> (Option<Pei>, Option<Vec<u8>>) {
    let mut pei = None;
    if let Some(imeisv) = message.imeisv.as_ref().and_then(|imeisv| imeisv.as_imeisv()) {
        pei = imeisv.to_string().parse().ok().map(Pei);
    }
    (pei, message.nas_message_container.as_ref().map(|c| c.value.to_vec()))
}

/// Returns KAMF (TS 33.501 A.7).
pub(super) fn root_key(supi: Supi, kseaf: &[u8; 32]) -> Option<[u8; 32]> {
    let text = format!("imsi-{}", supi.reveal());
    let supi = vireo_wire::security::nas_5gs::Supi::parse(&text).ok()?;
    Some(*derive_kamf(&KSeaf::new(kseaf), &supi, &ABBA).ok()?.as_octets())
}

pub(super) fn send_identity_request(ctx: &mut StepContext<'_, '_>) {
    // SUCI is type 1 (TS 24.501 table 9.11.3.3.1).
    ctx.send_early(NasIdentityRequest::new(NasFGsIdentityType::new(1)).into());
}

pub(super) fn send_challenge(ctx: &mut StepContext<'_, '_>, info: &AuthenticationInfo, ngksi: u8) {
    let request = NasAuthenticationRequest::new(NasKeySetIdentifier::new(ngksi), NasAbba::new(ABBA.to_vec()))
        .with_authentication_parameter_rand(NasAuthenticationParameterRand::from_rand(info.rand))
        .with_authentication_parameter_autn(NasAuthenticationParameterAutn::from_autn(info.autn));
    ctx.send_early(request.into());
}

/// Sends AUTHENTICATION REQUEST with an EAP message.
pub(super) fn send_eap_request(ctx: &mut StepContext<'_, '_>, packet: Vec<u8>, ngksi: u8) {
    let request = NasAuthenticationRequest::new(NasKeySetIdentifier::new(ngksi), NasAbba::new(ABBA.to_vec()))
        .with_eap_message(NasEapMessage::new(packet));
    ctx.send_early(request.into());
}

/// Sends SECURITY MODE COMMAND. After EAP-AKA' it has EAP-Success under this identifier, and ABBA
/// (TS 24.501 5.4.2.2, TS 33.501 6.1.3.1 step 11).
pub(super) fn send_security_mode(
    ctx: &mut StepContext<'_, '_>,
    pending: &mut NasSecurity,
    capability: UeSecurityCapability,
    eap_identifier: Option<u8>,
) {
    let algorithms = NasSecurityAlgorithms::new(pending.ciphering << 4 | pending.integrity);
    let mut command = NasSecurityModeCommand::new(
        algorithms,
        NasKeySetIdentifier::new(pending.key_set.ie()),
        NasUeSecurityCapability::new(capability.as_slice().to_vec()),
    )
    .with_imeisv_request(NasImeisvRequest::new(1))
    // The UE repeats its complete initial message under the new keys, which reveals alterations in
    // transit (TS 33.501 6.4.6). Requesting this always costs a few octets and avoids a condition.
    .with_additional_5g_security_information(NasAdditional5gSecurityInformation::from_flags(true, false));
    if let Some(identifier) = eap_identifier {
        command = command
            .with_eap_message(NasEapMessage::new(eap::success(identifier).to_vec()))
            .with_abba(NasAbba::new(ABBA.to_vec()));
    }
    // The UE uses them once it has moved to EPS.
    if let Some((eia, eea)) = eps_algorithms(ctx.env.config, capability).filter(|_| ctx.env.config.eps.interworks) {
        let algorithms = NasEpsNasSecurityAlgorithms::new((eea as u8) << 4 | eia as u8);
        command = command.with_selected_eps_nas_security_algorithms(algorithms);
    }
    let plain = ctx.plain(command.into());
    ctx.send_new_context(pending, plain);
}

/// Sends AUTHENTICATION REJECT, which ends an EAP conversation with EAP-Failure under its
/// identifier (TS 24.501 5.4.1.2.1).
pub(super) fn send_reject(ctx: &mut StepContext<'_, '_>, eap_identifier: Option<u8>) {
    let mut reject = NasAuthenticationReject::new();
    if let Some(identifier) = eap_identifier {
        reject = reject.with_eap_message(NasEapMessage::new(eap::failure(identifier).to_vec()));
    }
    ctx.send_early(reject.into());
}
