//! EMM messages of identification, EPS AKA and security mode control (TS 24.301 8.2).

use super::{AkaFailure, FailureCause};
use crate::amf::context::{NasSecurity, UeSecurityCapability};
use crate::step::StepContext;
use crate::subscription::{AuthenticationInfo, SubscriberIdentity};
use vireo_types::Pei;
use vireo_wire::nas_eps::*;

/// Returns the IMSI of IDENTITY RESPONSE.
pub fn identity(response: &NasIdentityResponse) -> Option<SubscriberIdentity> {
    let imsi = response.mobile_identity.as_imsi()?;
    imsi.to_string().parse().ok().map(SubscriberIdentity::Imsi)
}

/// Returns RES of AUTHENTICATION RESPONSE.
pub fn response(response: &NasAuthenticationResponse) -> &[u8] {
    &response.authentication_response_parameter.value
}

/// Reads AUTHENTICATION FAILURE.
pub fn failure(failure: &NasAuthenticationFailure) -> AkaFailure {
    let cause = match failure.emm_cause.cause() {
        Some(EmmCause::SynchFailure) => FailureCause::Synchronisation,
        Some(EmmCause::MacFailure | EmmCause::NonEpsAuthenticationUnacceptable) => FailureCause::Mac,
        _ => FailureCause::Other,
    };
    let parameter = failure.authentication_failure_parameter.as_ref();
    AkaFailure { cause, auts: parameter.and_then(|p| p.value[..].try_into().ok()) }
}

/// Returns the IMEISV of SECURITY MODE COMPLETE, and the request that the UE repeats because its
/// HASHMME differs.
pub fn complete(message: &NasSecurityModeComplete) -> (Option<Pei>, Option<Vec<u8>>) {
    let imeisv = message.imeisv.as_ref().and_then(|imeisv| imeisv.as_imeisv());
    let pei = imeisv.and_then(|imeisv| imeisv.to_string().parse().ok()).map(Pei);
    (pei, message.replayed_nas_message_container.as_ref().map(|container| container.value.to_vec()))
}

pub(super) fn send_identity_request(ctx: &mut StepContext<'_, '_>) {
    // IMSI is type 1 (TS 24.008 table 10.5.4).
    ctx.send_early_emm(NasIdentityRequest::new(NasIdentityType2::new(1)));
}

pub(super) fn send_challenge(ctx: &mut StepContext<'_, '_>, info: &AuthenticationInfo, eksi: u8) {
    ctx.send_early_emm(NasAuthenticationRequest::new(
        NasKeySetIdentifier::new(eksi),
        NasAuthenticationParameterRand::from_rand(info.rand),
        NasAuthenticationParameterAutn::from_autn(info.autn),
    ));
}

/// Sends SECURITY MODE COMMAND with the capabilities that the network received, so that the UE
/// detects a bidding-down attack, and with the hash of a request without valid protection (TS
/// 33.401 7.2.4.4).
pub(super) fn send_security_mode(
    ctx: &mut StepContext<'_, '_>,
    pending: &mut NasSecurity,
    capability: UeSecurityCapability,
) {
    let mut command = NasSecurityModeCommand::new(
        NasSecurityAlgorithms::new(pending.ciphering << 4 | pending.integrity),
        NasKeySetIdentifier::new(pending.key_set.identifier()),
        NasUeSecurityCapability::new(capability.replayed_by_eps().to_vec()),
    )
    .with_imeisv_request(NasImeisvRequest::new(1));
    if let Some(octets) = capability.additional() {
        let additional = NasUeAdditionalSecurityCapability::new(octets);
        command = command.with_replayed_ue_additional_security_capability(additional);
    }
    if let Some(hash) = ctx.request_hash {
        command = command.with_hash_mme(NasHashMme::from_hash_mme(hash));
    }
    let plain = ctx.emm(command);
    ctx.send_new_context(pending, plain);
}

pub(super) fn send_reject(ctx: &mut StepContext<'_, '_>) {
    ctx.send_early_emm(NasAuthenticationReject::new());
}
