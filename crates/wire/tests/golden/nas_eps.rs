//! NAS-EPS messages of pycrate: read, encoded again to the same octets, and built from values.
//!
//! The LTE UE of `crates/emulator` sends and reads most of them; those of further PDN connections
//! have their values here.

use crate::case::eps_golden;
use std::collections::BTreeMap;
use vireo_wire::nas_eps::*;

/// Names of messages that the network sends. All others are of the UE.
const DOWNLINK: [&str; 22] = [
    "ActivateDefaultEPSBearerContextRequest",
    "AttachAccept",
    "AttachReject",
    "AttachReject-esm",
    "AuthenticationReject",
    "AuthenticationRequest",
    "BearerResourceAllocationReject",
    "DeactivateEPSBearerContextRequest",
    "DetachAccept-network",
    "DetachRequest-network",
    "EMMInformation",
    "EMMStatus",
    "ESMInformationRequest",
    "GUTIReallocationCommand",
    "IdentityRequest",
    "PDNConnectivityReject",
    "PDNConnectivityReject-congestion",
    "PDNDisconnectReject",
    "SecurityModeCommand",
    "ServiceReject",
    "TrackingAreaUpdateAccept",
    "TrackingAreaUpdateReject",
];

fn nas() -> BTreeMap<String, Vec<u8>> {
    // S1AP PDUs begin with 0x00, 0x20 or 0x40.
    eps_golden().into_iter().filter(|(_, octets)| octets[0] & 0xf != 0).collect()
}

fn esm(message: impl Into<NasEsmMessage>, ebi: u8, pti: u8) -> Vec<u8> {
    NasEpsMessage::new_esm(message, ebi, pti).encode().expect("it encodes")
}

fn emm(message: impl Into<NasEmmMessage>) -> Vec<u8> {
    NasEpsMessage::new_emm(message).encode().expect("it encodes")
}

#[test]
fn eps_messages_decode_and_encode_to_same_octets() {
    for (name, octets) in nas() {
        let is_downlink = DOWNLINK.contains(&name.as_str());
        let direction = if is_downlink { Direction::Downlink } else { Direction::Uplink };
        let message = NasEpsMessage::decode_with_direction(&octets, direction);
        let message = message.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(message.encode().expect("it encodes"), octets, "{name}: {message:?}");
    }
}

#[test]
fn esm_messages_equal_pycrate_octets() {
    let ims = || NasAccessPointName::from_string("ims").expect("a name");
    let options = || NasProtocolConfigurationOptions::new(vec![0x80, 0, 0x0d, 0, 0, 0x10, 0]);
    let cause = NasEsmCause::from_cause;
    let kind = NasPdnType::from_pdn_type(PdnType::Ipv4v6);
    let request = NasPdnConnectivityRequest::new(NasRequestType::from_request_type(RequestTypeValue::Initial), kind)
        .with_access_point_name(ims())
        .with_protocol_configuration_options(options());
    let quality = NasEpsQualityOfService::new(vec![5]);
    let address = NasPdnAddress::from_ipv4v6([2, 0, 0, 1, 0, 0, 0, 0x45], [10, 46, 0, 3]);
    let ambr = NasApnAggregateMaximumBitRate::from_kbps(1_000_000, 1_000_000).expect("a rate");
    let activate = NasActivateDefaultEpsBearerContextRequest::new(quality, ims(), address)
        .with_apn_ambr(ambr)
        .with_esm_cause(NasEsmCause::new(52))
        .with_protocol_configuration_options(options());
    let rejected = |reason| NasPdnConnectivityReject::new(cause(reason));
    let busy = rejected(EsmCause::InsufficientResources).with_back_off_timer_value(NasGprsTimer3::new(vec![0x65]));
    let disconnect = NasPdnDisconnectRequest::new(NasLinkedEpsBearerIdentity::new(6));
    let refused = esm(rejected(EsmCause::MissingOrUnknownApn), 0, 1);
    let mut attach = NasAttachReject::new(NasEmmCause::from_cause(EmmCause::EsmFailure));
    attach.set_esm_message_container(NasEsmMessageContainer::new(refused));
    let goldens = nas();
    for (name, built) in [
        ("PDNConnectivityRequest", esm(request, 0, 2)),
        ("PDNConnectivityReject", esm(rejected(EsmCause::MissingOrUnknownApn), 0, 2)),
        ("PDNConnectivityReject-congestion", esm(busy, 0, 2)),
        ("ActivateDefaultEPSBearerContextRequest", esm(activate, 6, 2)),
        ("PDNDisconnectRequest", esm(disconnect, 0, 3)),
        (
            "PDNDisconnectReject",
            esm(NasPdnDisconnectReject::new(cause(EsmCause::LastPdnDisconnectionNotAllowed)), 0, 3),
        ),
        (
            "BearerResourceAllocationReject",
            esm(NasBearerResourceAllocationReject::new(cause(EsmCause::ServiceOptionNotSupported)), 0, 4),
        ),
        ("ESMStatus", esm(NasEsmStatus::new(NasEsmCause::new(97)), 5, 0)),
        ("AttachReject-esm", emm(attach)),
    ] {
        assert_eq!(hex::encode(built), hex::encode(&goldens[name]), "{name}");
    }
}
