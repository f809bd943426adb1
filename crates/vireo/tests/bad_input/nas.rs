//! Forged, replayed, misplaced and malformed NAS.
//!
//! The clauses are TS 24.501 4.4, 5.4.1 and 7.

use crate::assert_serves_another;
use crate::core::Core;
use crate::device::{Device, nas_of, plain, registration};
use crate::messages;
use crate::ran::Ran;
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};

fn status_cause(octets: &[u8]) -> Option<u8> {
    match octets {
        [0x7e, 0, 0x64, cause] => Some(*cause),
        _ => None,
    }
}

#[test]
fn forged_and_replayed_nas_is_discarded() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    let mut device = Device::new(1);
    device.register(&mut ran);
    let genuine = device.sent.last().expect("a message").clone();
    // Every bit of the MAC, another sequence number, other contents, and less than a header
    // (4.4.3.3, 7.2.1).
    for bit in 0..32 {
        let mut forged = genuine.clone();
        forged[2 + bit / 8] ^= 1 << (bit % 8);
        forged[6] = forged[6].wrapping_add(1);
        device.send_plain(&mut ran, &forged);
    }
    for end in 1..8.min(genuine.len()) {
        device.send_plain(&mut ran, &genuine[..end]);
    }
    // An accepted message is not accepted again, nor is any older one (4.4.3.1).
    for old in device.sent.clone() {
        device.send_plain(&mut ran, &old);
    }
    // Unprotected messages that require protection have no effect (4.4.4.3).
    let guti = NasFGsMobileIdentity::from_guti(device.guti.expect("a 5G-GUTI"));
    let ngksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(0)).expect("an ngKSI");
    let leave = NasDeRegistrationType::new(0).with_deregistration_access_type(DeregistrationAccessType::ThreeGppAccess);
    device.send_plain(&mut ran, &plain(NasDeregistrationRequestUeOriginating::new(leave, ngksi, guti)));
    device.send_plain(&mut ran, &plain(NasRegistrationComplete::new()));
    device.send_plain(&mut ran, &plain(NasSecurityModeComplete::new()));
    ran.assert_silent("forged, replayed and unprotected NAS");
    device.assert_served(&mut ran, "the UE whose messages were forged");
    assert_eq!(core.count("registered"), 1);
    assert_serves_another(&mut core, 2);
}

#[test]
fn higher_nas_count_passes_lower_is_discarded() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    let mut device = Device::new(1);
    device.register(&mut ran);
    // 200 messages are lost; the next one is valid (TS 24.501 4.4.3.1).
    for _ in 0..200 {
        let status = NasFGmmStatus::new(NasFGmmCause::from_cause(GmmCause::Congestion));
        let message = Nas5gsMessage::new_5gmm(status);
        device.protect(&message, Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered);
    }
    device.assert_served(&mut ran, "after 200 lost messages");
    let late = device.sent[device.sent.len() - 50].clone();
    device.send_plain(&mut ran, &late);
    ran.assert_silent("a message older than the last");
    device.assert_served(&mut ran, "after the late message");
    assert_serves_another(&mut core, 2);
}

#[test]
fn malformed_nas_gets_status_of_clause_7() {
    let mut core = Core::start(8, "");
    let mut ran = Ran::set_up(&core, 1);
    // An unknown message type, a mandatory IE of impossible length, and a missing one.
    let cases: [(&[u8], u8); 3] = [
        (&[0x7e, 0, 0x3f], 97),
        (&[0x7e, 0, 0x41, 0x79, 0, 3, 0xf2, 0x99, 0xf9, 0x2e, 2, 0xf0, 0x70], 96),
        (&[0x7e, 0, 0x41, 0x79], 96),
    ];
    for (n, (nas, cause)) in (0..).zip(cases) {
        ran.send(1, &messages::initial_ue(100 + n, nas, None));
        let answer = ran.expect("malformed NAS", |p| p.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
        assert_eq!(status_cause(&nas_of(&answer).expect("NAS")), Some(cause), "{nas:02x?}");
        // The core releases a connection without a valid request.
        let answer = ran.expect("the connection", |p| p.kind() == NgapPduKind::Initiating_UEContextRelease);
        drop(answer);
    }
    ran.receive_until_silent();
    // Too short for a message, or of another protocol: the core ignores it (7.2.1, 7.1). It answers
    // only the gNB.
    for (n, nas) in (0..).zip([&[0x7e][..], &[0x7e, 0], &[0x42, 0, 0x41], &[0x2e, 1, 1, 0xc1, 0xff, 0xff]]) {
        ran.send(1, &messages::initial_ue(200 + n, nas, None));
    }
    for octets in ran.receive_until_silent() {
        let pdu = NGAP_PDU::decode(&octets).expect("a PDU");
        assert_eq!(pdu.kind(), NgapPduKind::Initiating_UEContextRelease, "{pdu}");
    }
    // With a security context, the answer is protected with the UE's keys, and the UE continues.
    let mut device = Device::new(1);
    device.register(&mut ran);
    let header = Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered;
    let security = device.security.as_mut().expect("keys");
    let nas = security.protect_opaque_payload(vec![0x7e, 0, 0x3f], header, Direction::Uplink).expect("octets");
    device.send_plain(&mut ran, &nas);
    let answer = ran.expect("malformed protected NAS", |p| p.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
    let answer = device.security.as_mut().expect("keys").unprotect(&nas_of(&answer).expect("NAS"), Direction::Downlink);
    let answer = answer.expect("it verifies").message.encode().expect("octets");
    assert_eq!(status_cause(&answer), Some(97));
    device.assert_served(&mut ran, "the UE of the malformed message");
    assert_serves_another(&mut core, 2);
}

#[test]
fn out_of_order_messages_end_only_themselves() {
    let mut core = Core::start(8, "");
    let mut ran = Ran::set_up(&core, 1);
    let response = NasAuthenticationResponseParameter::from_res_star([7; 16]);
    let unasked = [
        plain(NasAuthenticationResponse::new().with_authentication_response_parameter(response)),
        plain(NasSecurityModeComplete::new()),
        plain(NasRegistrationComplete::new()),
        plain(NasIdentityResponse::new(NasFGsMobileIdentity::from_no_identity())),
        plain(NasConfigurationUpdateComplete::new()),
    ];
    // As the first message of a connection: the UE gets at most a status, and the connection is
    // released.
    for (n, nas) in (0..).zip(&unasked) {
        ran.send(1, &messages::initial_ue(100 + n, nas, None));
    }
    for octets in ran.receive_until_silent() {
        let pdu = NGAP_PDU::decode(&octets).expect("a PDU");
        let status = nas_of(&pdu).is_some_and(|nas| status_cause(&nas).is_some());
        assert!(status || pdu.kind() == NgapPduKind::Initiating_UEContextRelease, "{pdu}");
    }
    // During a registration, while the authentication is in progress: the registration continues.
    let mut device = Device::new(1);
    ran.send(1, &messages::initial_ue(device.ran_id, &registration(1).encode().expect("octets"), None));
    let (_, challenge) = ran.next(crate::ran::ANSWER).expect("an Authentication Request");
    let pdu = NGAP_PDU::decode(&challenge).expect("a PDU");
    let id = pdu.ie::<vireo_wire::ngap::ie::AMF_UE_NGAP_ID>().expect("an id").expect("it decodes").0;
    for nas in &unasked[1..] {
        ran.send(1, &messages::uplink_nas(id, device.ran_id, nas));
    }
    ran.send(1, &messages::context_set_up(id, device.ran_id));
    let strange: Vec<_> = ran.receive_until_silent().into_iter().filter(|octets| !is_status(octets)).collect();
    assert!(strange.is_empty(), "{strange:02x?}");
    device.receive(&mut ran, &challenge);
    while device.guti.is_none() {
        let (_, octets) = ran.next(crate::ran::ANSWER).expect("the registration goes on");
        device.receive(&mut ran, &octets);
    }
    // After the registration: repeated completes and unsolicited answers.
    device.send(&mut ran, NasRegistrationComplete::new());
    ran.send(1, &messages::context_set_up(device.amf_id, device.ran_id));
    ran.assert_silent("answers that come again");
    device.assert_served(&mut ran, "the UE of the messages out of order");
    assert_serves_another(&mut core, 2);
}

fn is_status(octets: &[u8]) -> bool {
    let pdu = NGAP_PDU::decode(octets).expect("a PDU");
    nas_of(&pdu).is_some_and(|nas| status_cause(&nas).is_some())
}

#[test]
fn wrong_challenge_response_is_rejected() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    ran.send(1, &messages::initial_ue(1, &registration(1).encode().expect("octets"), None));
    let challenge = ran.expect("a challenge", |p| p.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
    let id = challenge.ie::<vireo_wire::ngap::ie::AMF_UE_NGAP_ID>().expect("an id").expect("it decodes").0;
    let response = NasAuthenticationResponseParameter::from_res_star([7; 16]);
    let response = NasAuthenticationResponse::new().with_authentication_response_parameter(response);
    ran.send(1, &messages::uplink_nas(id, 1, &plain(response)));
    let reject = ran.expect("a wrong RES*", |p| p.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
    assert_eq!(nas_of(&reject).expect("NAS"), [0x7e, 0, 0x58], "AUTHENTICATION REJECT");
    ran.expect("the connection", |p| p.kind() == NgapPduKind::Initiating_UEContextRelease);
    ran.send(1, &messages::release_complete(id, 1));
    core.wait_for_count("ues", 0);
    // An unknown subscriber, and one in the database.
    ran.send(1, &messages::initial_ue(2, &registration(4_000_000).encode().expect("octets"), None));
    let reject = ran.expect("an unknown subscriber", |p| p.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
    let reject = Nas5gsMessage::decode(&nas_of(&reject).expect("NAS")).expect("a message");
    let refused = matches!(
        reject,
        Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationReject(_) | Nas5gmmMessage::AuthenticationReject(_))
    );
    assert!(refused, "{reject}");
    assert_serves_another(&mut core, 2);
}
