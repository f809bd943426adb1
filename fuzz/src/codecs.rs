//! Fuzz targets of the codecs: octets to values and back.

use super::seeds;
use vireo_wire::nas::{
    Direction, KAmf, Nas5gmmMessage, Nas5gsMessage, NasCount, NasFGsMobileIdentity, NasSecurityContext, Validate,
};
use vireo_wire::ngap::{NGAP_PDU, decode_open_type};
use vireo_wire::security::nas_5gs::{HomeNetworkPrivateKey, Suci};
use vireo_wire::{eap as eap_codec, gtpu as gtpu_codec, ngap as ngap_codec, pfcp as pfcp_codec};

/// Decodes an NGAP PDU: envelope, each IE as its type, check against the object set, and the answer
/// to faults.
pub fn ngap(data: &[u8]) {
    if let Ok(pdu) = NGAP_PDU::decode(data) {
        let _ = (pdu.kind(), pdu.direction(), pdu.procedure_name(), pdu.to_string());
        if let Ok(deviations) = pdu.check() {
            let _ = deviations.iter().find_map(ngap_codec::Deviation::cause);
            let _ = pdu.criticality_diagnostics_for_response(&deviations);
        }
        if let Ok(ies) = pdu.protocol_ies() {
            ies.0.iter().for_each(|ie| transfers(&ie.value));
        }
        let again = pdu.encode().expect("what is decoded encodes");
        let second = NGAP_PDU::decode(&again).expect("what is encoded decodes");
        assert_eq!(second.encode().expect("it encodes"), again, "an NGAP PDU changes when it is encoded again");
    }
    transfers(data);
}

/// Decodes the transfers that a core reads.
fn transfers(data: &[u8]) {
    let _ = decode_open_type::<ngap_codec::PDUSessionResourceSetupRequestTransfer<'_>>(data);
    let _ = decode_open_type::<ngap_codec::PDUSessionResourceSetupResponseTransfer<'_>>(data);
    let _ = decode_open_type::<ngap_codec::PDUSessionResourceSetupUnsuccessfulTransfer>(data);
    let _ = decode_open_type::<ngap_codec::PDUSessionResourceReleaseResponseTransfer>(data);
    let _ = decode_open_type::<ngap_codec::PathSwitchRequestTransfer<'_>>(data);
}

/// Decodes an unprotected NAS message strictly and leniently, and builds the answer to a faulty
/// one.
pub fn nas(data: &[u8]) {
    let received = Nas5gsMessage::decode(data);
    for direction in [Direction::Uplink, Direction::Downlink] {
        if let Some(answer) = Nas5gsMessage::answer_to(data, &received, direction) {
            answer.encode().expect("an answer encodes");
        }
    }
    let _ = Nas5gsMessage::decode_lenient(data).map(|(message, _)| message.to_string());
    if let Ok(message) = received {
        let _ = (message.validate(), message.to_string());
        containers(&message);
        let again = message.encode().expect("what is decoded encodes");
        let second = Nas5gsMessage::decode(&again).expect("what is encoded decodes");
        assert_eq!(second.encode().expect("it encodes"), again, "a NAS message changes when it is encoded again");
    }
}

/// Decodes messages and identities inside a message.
fn containers(message: &Nas5gsMessage) {
    let Nas5gsMessage::Gmm(_, message) = message else { return };
    match message {
        Nas5gmmMessage::RegistrationRequest(request) => {
            identity(&request.fgs_mobile_identity.value);
            let _ = request.nas_message_container.as_ref().map(|c| c.decode_as_nas_message());
            let _ = request.requested_nssai.as_ref().map(|n| n.parse_all());
        }
        Nas5gmmMessage::SecurityModeComplete(complete) => {
            let _ = complete.nas_message_container.as_ref().map(|c| c.decode_as_nas_message());
            let _ = complete.imeisv.as_ref().map(|id| id.as_imeisv());
        }
        Nas5gmmMessage::UlNasTransport(transport) => {
            let _ = transport.payload_container.decode_as_n1_sm_message();
        }
        _ => {}
    }
}

/// Unprotects a NAS message with the right keys: only messages protected with them may pass.
pub fn nas_protected(data: &[u8]) {
    let (count, octets) = data.split_at(data.len().min(3));
    let count = count.iter().fold(0, |count, octet| count << 8 | u32::from(*octet));
    for direction in [Direction::Uplink, Direction::Downlink] {
        let _ = seed_context(count).unprotect(octets, direction).map(|read| read.message.to_string());
    }
}

/// Returns the context of tests/reference/security.txt with this next NAS COUNT.
pub fn seed_context(count: u32) -> NasSecurityContext {
    use vireo_wire::nas::{CipheringAlgorithm::NEA2, IntegrityAlgorithm::NIA2};
    let (_, kamf) = seeds::security().iter().find(|(name, _)| name == "kamf").expect("it is in the file");
    let kamf = KAmf::from_slice(kamf).expect("32 octets");
    let next = Some(NasCount::new(count & 0xff_ffff).expect("24 bits"));
    NasSecurityContext::restore_from_kamf(&kamf, NIA2, NEA2, (next, next), (None, None)).expect("counts")
}

/// Decodes a 5GS mobile identity as the AMF does and, for a SUCI, as the home network does.
pub fn identity(data: &[u8]) {
    let identity = NasFGsMobileIdentity::new(data.to_vec());
    let _ = (identity.identity_type(), identity.as_guti(), identity.as_s_tmsi(), identity.as_imeisv(), identity.plmn());
    let _ = (identity.as_suci().map(|suci| suci.to_string()), identity.to_string());
    if let Ok(suci) = Suci::from_nas_octets(data) {
        let a = HomeNetworkPrivateKey::profile_a(&[7; 32]);
        let b = HomeNetworkPrivateKey::profile_b(&[7; 32]).expect("a scalar of the curve");
        let _ = (suci.deconceal(None), suci.deconceal(Some(&a)), suci.deconceal(Some(&b)));
    }
}

/// Reads an EAP packet and its attributes of EAP-AKA', and verifies its `AT_MAC`.
pub fn eap(data: &[u8]) {
    let Ok(packet) = eap_codec::Packet::parse(data) else { return };
    let eap_codec::Body::AkaPrime(message) = packet.body else { return };
    let Ok(attributes) = message.attributes() else { return };
    assert!(attributes.res.is_none_or(|res| (4..=16).contains(&res.len())), "RES has 32 to 128 bits");
    if let Some(at) = attributes.mac_at {
        assert!(at + 16 <= data.len(), "AT_MAC is in the packet");
        assert!(!eap_codec::has_mac(data, at, &[0x5a; 32]), "nobody has this key");
    }
}

/// Decodes a PFCP datagram.
pub fn pfcp(data: &[u8]) {
    let _ = pfcp_codec::walk(data);
}

/// Parses a Flow Description of an SDF filter or a Framed-Route.
pub fn flow_description(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(flow) = pfcp_codec::FlowDescription::parse(text) {
        let sound = |end: &pfcp_codec::FlowEnd| {
            let longest = end.network.map(|(address, length)| (if address.is_ipv4() { 32 } else { 128 }, length));
            longest.is_none_or(|(longest, length)| length <= longest)
                && end.ports.iter().all(|(first, last)| first <= last)
        };
        assert!(sound(&flow.remote) && sound(&flow.local), "{flow:?}");
    }
    let _ = pfcp_codec::framed_network(text);
}

/// Decodes a GTP-U datagram.
pub fn gtpu(data: &[u8]) {
    gtpu_codec::walk(data);
}
