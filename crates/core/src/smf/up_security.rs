//! User plane security policy of a session at the RAN (TS 33.501 6.6.1).

use super::context::SmContext;
use crate::subscription::{UpProtection, UpSecurity};
use vireo_wire::ngap::*;

/// Extension with the downlink rate (TS 38.413 9.3.1.27).
const MAXIMUM_RATE_DL: u16 = 151;
/// Value of an octet of the UE's IE for 64 kbit/s (TS 24.501 9.11.4.7).
const RATE_64_KBPS: u8 = 0x00;

/// Returns the Security Indication of a session that has a policy. The rates are those of the UE;
/// they follow only where integrity protection may be used.
pub(super) fn indication(sm: &SmContext) -> Option<SecurityIndication> {
    let UpSecurity { integrity, confidentiality } = sm.terms.up_security?;
    let [uplink, downlink] = sm.integrity_rate.to_be_bytes().map(rate);
    let is_limited = integrity != UpProtection::NotNeeded;
    let integrity = match integrity {
        UpProtection::Required => IntegrityProtectionIndication::required,
        UpProtection::Preferred => IntegrityProtectionIndication::preferred,
        UpProtection::NotNeeded => IntegrityProtectionIndication::not_needed,
    };
    let confidentiality = match confidentiality {
        UpProtection::Required => ConfidentialityProtectionIndication::required,
        UpProtection::Preferred => ConfidentialityProtectionIndication::preferred,
        UpProtection::NotNeeded => ConfidentialityProtectionIndication::not_needed,
    };
    // Without the extension, the rate of the uplink applies to both directions.
    let extension = (is_limited && downlink != uplink).then(|| encode_open_type(&downlink).ok()).flatten();
    let extension = extension.map(|octets| {
        ProtocolExtensionContainer(vec![ProtocolExtensionField::new(MAXIMUM_RATE_DL, Criticality::ignore, octets)])
    });
    Some(SecurityIndication::new(integrity, confidentiality, is_limited.then_some(uplink), extension))
}

fn rate(octet: u8) -> MaximumIntegrityProtectedDataRate {
    match octet {
        RATE_64_KBPS => MaximumIntegrityProtectedDataRate::bitrate64kbs,
        _ => MaximumIntegrityProtectedDataRate::maximum_UE_rate,
    }
}

/// Returns true if the RAN node reports that it does not apply a protection that the session
/// requires.
pub(super) fn is_missed(sm: &SmContext, result: Option<&SecurityResult>) -> bool {
    let (Some(policy), Some(result)) = (sm.terms.up_security, result) else { return false };
    let lacks_integrity = result.integrity_protection_result == IntegrityProtectionResult::not_performed;
    let lacks_confidentiality =
        result.confidentiality_protection_result == ConfidentialityProtectionResult::not_performed;
    policy.integrity == UpProtection::Required && lacks_integrity
        || policy.confidentiality == UpProtection::Required && lacks_confidentiality
}

/// Returns true if a PDU Session Resource Setup Unsuccessful Transfer has the cause of a RAN node
/// that cannot apply a required protection.
pub(super) fn is_impossible(unsuccessful: &[u8]) -> bool {
    let transfer = decode_open_type::<PDUSessionResourceSetupUnsuccessfulTransfer>(unsuccessful);
    transfer.is_ok_and(|transfer| {
        matches!(
            transfer.cause,
            Cause::radioNetwork(
                CauseRadioNetwork::up_integrity_protection_not_possible
                    | CauseRadioNetwork::up_confidentiality_protection_not_possible
            )
        )
    })
}
