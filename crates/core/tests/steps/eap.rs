//! EAP-AKA' (TS 24.501 5.4.1.2, TS 33.501 6.1.3.1; RFC 9048, RFC 4187, RFC 3748).

use crate::lab::nas::downlink;
use crate::lab::{self, Lab};
use vireo_core::amf::context::{NasSecurity, Procedure};
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::{AuthenticationError, AuthenticationMethod, Resync};
use vireo_emulator::ue::{self, Event as UeEvent, Fault};
use vireo_emulator::usim::{Answer, Challenge, Usim};
use vireo_types::Duration;
use vireo_wire::eap::{self, Body, Code, Packet, SessionKeys, TransformedKeys};
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, ie};
use vireo_wire::security::milenage::{K, Milenage, Opc};
use vireo_wire::security::{Autn, Rand};

/// EAP message to the UE, with the message of NAS that has it.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    kind: u8,
    packet: Vec<u8>,
    /// ngKSI of AUTHENTICATION REQUEST and SECURITY MODE COMMAND.
    ngksi: Option<u8>,
}

impl Sent {
    fn header(&self) -> (Code, u8) {
        let packet = Packet::parse(&self.packet).expect("an EAP packet");
        (packet.code, packet.identifier)
    }
}

const REQUEST: u8 = 0x56;
const REJECT: u8 = 0x58;
const COMMAND: u8 = 0x5d;

fn keys(lab: &Lab) -> Option<NasSecurity> {
    lab.context().and_then(|ue| ue.security)
}

/// Returns the EAP messages to the UE.
fn sent(lab: &Lab) -> Vec<Sent> {
    let keys = keys(lab);
    let message = |pdu: &Vec<u8>| {
        let nas = match &keys {
            Some(keys) => downlink(keys, pdu)?,
            None => NGAP_PDU::decode(pdu).ok()?.ie::<ie::NAS_PDU>()?.ok()?.0.to_vec(),
        };
        // SECURITY MODE COMMAND is not ciphered.
        let plain = if nas.get(1) == Some(&3) { &nas[7..] } else { &nas[..] };
        let (kind, message, ngksi) = match Nas5gsMessage::decode(plain).ok()? {
            Nas5gsMessage::Gmm(_, Nas5gmmMessage::AuthenticationRequest(m)) => (REQUEST, m.eap_message, Some(m.ngksi)),
            Nas5gsMessage::Gmm(_, Nas5gmmMessage::AuthenticationReject(m)) => (REJECT, m.eap_message, None),
            Nas5gsMessage::Gmm(_, Nas5gmmMessage::SecurityModeCommand(m)) => (COMMAND, m.eap_message, Some(m.ngksi)),
            _ => return None,
        };
        Some(Sent { kind, packet: message?.value.to_vec(), ngksi: ngksi.map(|ngksi| ngksi.value & 7) })
    };
    lab.sent.iter().filter_map(message).collect()
}

fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.method = AuthenticationMethod::EapAkaPrime;
    lab.ue.require_eap();
    lab
}

fn register(lab: &mut Lab, registration: ue::Registration) {
    lab.ue_does(|ue, p, out| ue.register(p, registration, out).expect("a request"));
}

/// Returns a network whose challenge has not reached the UE.
fn challenged() -> Lab {
    let mut lab = lab();
    lab.reachable = false;
    register(&mut lab, ue::Registration::Fresh);
    assert_eq!(sent(&lab).len(), 1, "{:?}", lab.notes);
    lab
}

/// Returns RES and `K_aut` of a USIM with the keys of the lab for the last challenge.
fn usim_keys(lab: &Lab) -> ([u8; 8], SessionKeys) {
    let challenge = sent(lab).pop().expect("a challenge");
    let Body::AkaPrime(message) = Packet::parse(&challenge.packet).expect("a packet").body else { panic!("a method") };
    let attributes = message.attributes().expect("attributes");
    let (rand, autn) = (attributes.rand.expect("AT_RAND"), attributes.autn.expect("AT_AUTN"));
    let name = attributes.network_name.expect("AT_KDF_INPUT");
    assert_eq!(name, b"5G:mnc070.mcc999.3gppnetwork.org");
    let milenage = Milenage::new(&K::new(&lab.home_keys.k), &Opc::new(&lab.home_keys.opc));
    let autn = Autn::new(autn);
    let response = milenage.check_autn(&Rand::new(rand), &autn).expect("AUTN of the home network");
    let keys = TransformedKeys::derive(response.ck(), response.ik(), name, &autn).expect("keys");
    (*response.res().as_octets(), SessionKeys::derive(&keys, b"999700000000001"))
}

fn response(packet: Vec<u8>) -> Vec<u8> {
    let message = NasAuthenticationResponse::new().with_eap_message(NasEapMessage::new(packet));
    Nas5gsMessage::new_5gmm(message).encode().expect("it encodes")
}

/// Sends a NAS message in place of the UE, whose gNB has no message of the core so far.
fn inject(lab: &mut Lab, nas: &[u8]) {
    let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
    lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, nas));
}

fn count(lab: &Lab, fault: &'static str) -> usize {
    lab.notes.iter().filter(|note| **note == Note::fault(fault)).count()
}

fn refusals(lab: &Lab) -> Vec<String> {
    let reason = |note: &Note| match note {
        Note::Refused(request) => Some(request.reason.to_string()),
        _ => None,
    };
    lab.notes.iter().filter_map(reason).collect()
}

fn resyncs(lab: &Lab) -> Vec<Resync> {
    let resync = |effect: &Effect| match effect {
        Effect::Authenticate(request) => request.resync,
        _ => None,
    };
    lab.effects.iter().filter_map(resync).collect()
}

fn violations(lab: &Lab) -> Vec<UeEvent> {
    lab.events.iter().filter(|event| matches!(event, UeEvent::Violation(_))).copied().collect()
}

/// The UE checks `AT_MAC`, the network name, EAP-Success, and the KgNB that the gNB gets.
#[test]
fn registration_by_eap_completes() {
    let mut lab = lab();
    lab.register();
    lab.session(1);
    assert_eq!(violations(&lab), []);
    let sent = sent(&lab);
    let [challenge, success] = &sent[..] else { panic!("{sent:?}") };
    let (code, identifier) = challenge.header();
    assert_eq!((challenge.kind, code, success.kind), (REQUEST, Code::Request, COMMAND));
    assert_eq!((success.header(), success.ngksi), ((Code::Success, identifier), challenge.ngksi));
    assert_eq!(lab.ue.active_sessions().count(), 1);
}

#[test]
fn failures_of_eap_are_refused() {
    let cases = [
        (Fault::MacFailure, "MAC failure: check K and OPc"),
        (Fault::WrongResponse, "wrong RES: check K and OPc"),
        (Fault::WrongEapMac, "wrong AT_MAC: check K and OPc"),
        (Fault::EapClientError, "the device cannot process the challenge"),
    ];
    for (fault, reason) in cases {
        let mut lab = lab();
        lab.ue.inject(fault);
        register(&mut lab, ue::Registration::Fresh);
        assert_eq!(refusals(&lab), [reason]);
        assert!(lab.events.contains(&UeEvent::AuthenticationRejected), "{fault:?}: {:?}", lab.events);
        assert_eq!(violations(&lab), [], "the UE gets EAP-Failure");
        let (first, last) = (sent(&lab)[0].header().1, sent(&lab).pop().expect("a reject"));
        assert_eq!((last.kind, last.header()), (REJECT, (Code::Failure, first)));
        assert!(lab.context().is_none(), "nothing is left of it");
    }
}

/// RFC 4187 6.3.2, RFC 3748 5.3.1: other answers to the challenge end the authentication.
#[test]
fn other_eap_answers_are_refused() {
    let packets: [fn(u8) -> Vec<u8>; 8] = [
        // Legacy Nak, and a response of EAP-AKA.
        |id| vec![2, id, 0, 6, 3, 13],
        |id| vec![2, id, 0, 8, 23, 1, 0, 0],
        // AKA'-Notification, AKA'-Identity, and a subtype that does not exist.
        |id| vec![2, id, 0, 8, 50, 12, 0, 0],
        |id| vec![2, id, 0, 8, 50, 5, 0, 0],
        |id| vec![2, id, 0, 8, 50, 99, 0, 0],
        // Another KDF, neither AT_RES nor AT_MAC, and an attribute cut short.
        |id| vec![2, id, 0, 12, 50, 1, 0, 0, 24, 1, 0, 2],
        |id| vec![2, id, 0, 8, 50, 1, 0, 0],
        |id| vec![2, id, 0, 10, 50, 1, 0, 0, 3, 3],
    ];
    for (number, packet) in packets.iter().enumerate() {
        let mut lab = challenged();
        let identifier = sent(&lab)[0].header().1;
        inject(&mut lab, &response(packet(identifier)));
        assert_eq!(sent(&lab).last().map(|sent| sent.kind), Some(REJECT), "{number}: {:?}", lab.notes);
        assert_eq!(refusals(&lab).len(), 1);
    }
}

/// RFC 3748 4, 4.1: packets of another conversation, and octets that are none, are discarded.
#[test]
fn foreign_packets_are_discarded() {
    let mut lab = challenged();
    let (identifier, (res, keys)) = (sent(&lab)[0].header().1, usim_keys(&lab));
    let right = eap::response(identifier, &res, keys.k_aut());
    let mut request = right.clone();
    request[0] = 1;
    for (number, packet) in
        [eap::response(identifier.wrapping_add(1), &res, keys.k_aut()), request, eap::success(identifier).to_vec()]
            .into_iter()
            .enumerate()
    {
        inject(&mut lab, &response(packet));
        assert_eq!((count(&lab, "eap-discarded"), sent(&lab).len()), (number + 1, 1), "{:?}", lab.notes);
    }
    // RES* instead of an EAP message.
    let res_star = NasAuthenticationResponse::new()
        .with_authentication_response_parameter(NasAuthenticationResponseParameter::from_res_star([7; 16]));
    inject(&mut lab, &Nas5gsMessage::new_5gmm(res_star).encode().expect("it encodes"));
    assert_eq!((count(&lab, "nas-out-of-place"), sent(&lab).len()), (1, 1));
    // The right answer is still accepted, and its repeat is ignored.
    inject(&mut lab, &response(right.clone()));
    assert_eq!(sent(&lab).last().map(Sent::header), Some((Code::Success, identifier)), "{:?}", lab.notes);
    inject(&mut lab, &response(right));
    assert_eq!(sent(&lab).len(), 2);
}

/// An EAP message does not answer 5G AKA.
#[test]
fn eap_message_in_5g_aka_is_ignored() {
    let mut lab = Lab::new();
    lab.reachable = false;
    register(&mut lab, ue::Registration::Fresh);
    inject(&mut lab, &response(eap::authentication_reject(0)));
    assert_eq!(count(&lab, "nas-out-of-place"), 1, "{:?}", lab.notes);
    lab.reachable = true;
    lab.wait(Duration::from_secs(7));
    assert_eq!(lab.ue.mm(), ue::MmState::Registered);
}

/// TS 33.501 6.1.3.1 step 4: the ngKSI stays; RFC 3748 4.1: a new request has a new identifier.
#[test]
fn synchronisation_failure_keeps_conversation() {
    let mut lab = lab();
    lab.ue.inject(Fault::SynchFailure);
    lab.register();
    assert_eq!((resyncs(&lab).len(), violations(&lab)), (1, vec![]));
    let sent = sent(&lab);
    let [first, second, success] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((first.ngksi, second.header().1), (second.ngksi, first.header().1.wrapping_add(1)));
    assert_eq!(success.header(), (Code::Success, second.header().1));
}

#[test]
fn third_synchronisation_failure_is_refused() {
    let mut lab = lab();
    lab.ue.inject(Fault::RepeatedSynchFailure);
    register(&mut lab, ue::Registration::Fresh);
    assert_eq!((resyncs(&lab).len(), refusals(&lab)), (2, vec!["repeated synchronisation failures".to_owned()]));
    assert!(lab.events.contains(&UeEvent::AuthenticationRejected) && violations(&lab).is_empty());
}

#[test]
fn wrong_auts_of_eap_is_refused() {
    let mut lab = challenged();
    let identifier = sent(&lab)[0].header().1;
    inject(&mut lab, &response(eap::synchronization_failure(identifier, &[7; 14])));
    assert_eq!(refusals(&lab), ["AUTS does not verify"]);
    assert_eq!(sent(&lab).last().map(Sent::header), Some((Code::Failure, identifier)));
}

/// The home network may change the method during the conversation.
#[test]
fn method_changes_after_synchronisation_failure() {
    let mut lab = challenged();
    let (identifier, keys) = (sent(&lab)[0].header().1, lab.home_keys);
    let first = sent(&lab).remove(0);
    let Body::AkaPrime(message) = Packet::parse(&first.packet).expect("a packet").body else { panic!("EAP") };
    let values = message.attributes().expect("attributes");
    let (rand, autn) = (*values.rand.expect("AT_RAND"), *values.autn.expect("AT_AUTN"));
    let mut ahead = Usim::new("999700000000001".parse().expect("a SUPI"), keys);
    ahead.run_ahead(1 << 16);
    let answer = ahead.answer_eap(&Challenge { rand, autn }, b"5G:mnc070.mcc999.3gppnetwork.org", &[0, 0]);
    let Ok(Answer::SynchFailure(auts)) = answer else { panic!("the USIM is ahead") };
    lab.method = AuthenticationMethod::FiveGAka;
    inject(&mut lab, &response(eap::synchronization_failure(identifier, &auts)));
    assert_eq!(sent(&lab).len(), 1, "no further EAP message: {:?}", lab.notes);
    assert!(lab.sent.last().is_some_and(|pdu| pdu.windows(3).any(|octets| octets == [0x7e, 0, REQUEST])));
}

#[test]
fn ngksi_in_use_begins_another_conversation() {
    let mut lab = lab();
    lab.ue.inject(Fault::KeySetInUse);
    lab.register();
    let sent = sent(&lab);
    let [first, second, success] = &sent[..] else { panic!("{sent:?}") };
    assert_ne!(first.ngksi, second.ngksi);
    assert_eq!((success.header(), success.ngksi), ((Code::Success, second.header().1), second.ngksi));
    assert_eq!(violations(&lab), []);
}

/// Failures of AKA are in EAP messages: #20 and #21 end the authentication.
#[test]
fn authentication_failure_ends_eap() {
    for cause in [20, 21] {
        let mut lab = challenged();
        inject(&mut lab, &[0x7e, 0, 0x59, cause]);
        assert_eq!(refusals(&lab).len(), 1, "{:?}", lab.notes);
        assert_eq!(sent(&lab).last().map(|sent| sent.kind), Some(REJECT));
    }
}

/// T3560 repeats the same octets (RFC 3748 4.1), four times.
#[test]
fn unanswered_challenge_is_repeated() {
    let mut lab = challenged();
    lab.wait(Duration::from_secs(41));
    let sent = sent(&lab);
    assert_eq!(sent.len(), 5);
    assert!(sent.iter().all(|again| *again == sent[0]));
    assert!(lab.context().is_none_or(|ue| ue.procedure.is_none()), "{:?}", lab.notes);
}

/// T3560 repeats SECURITY MODE COMMAND with EAP-Success; a repeated challenge gets the same answer.
#[test]
fn lost_success_is_repeated() {
    let (mut lab, mut out) = (lab(), ue::UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    // The challenge reaches the UE, SECURITY MODE COMMAND does not.
    lab.inject_until(&request, &mut 1);
    assert_eq!(sent(&lab).last().map(|sent| sent.kind), Some(COMMAND));
    lab.reachable = true;
    lab.wait(Duration::from_secs(7));
    assert_eq!((lab.ue.mm(), violations(&lab)), (ue::MmState::Registered, vec![]));
    let sent = sent(&lab);
    assert_eq!((sent.len(), &sent[1].packet), (3, &sent[2].packet));
}

#[test]
fn repeated_challenge_gets_same_answer() {
    let mut lab = lab();
    let (p, mut out) = (lab.profile.clone(), ue::UeOutput::default());
    lab.reachable = false;
    register(&mut lab, ue::Registration::Fresh);
    let message = NasAuthenticationRequest::new(NasKeySetIdentifier::new(0), NasAbba::new(vec![0, 0]))
        .with_eap_message(NasEapMessage::new(sent(&lab)[0].packet.clone()));
    let request = Nas5gsMessage::new_5gmm(message).encode().expect("it encodes");
    lab.ue.receive(&p, &request, &mut out);
    lab.ue.receive(&p, &request, &mut out);
    let answers: Vec<_> = out.messages().collect();
    assert_eq!(answers.len(), 2, "{:?}", out.events);
    assert_eq!(answers[0], answers[1]);
}

/// TS 24.501 5.4.1.2.2: a GUTI may belong to another UE, so that the identity is requested first.
#[test]
fn wrong_key_of_known_ue_is_identified() {
    let mut lab = lab();
    lab.config.security.key_lifetime.time = Duration::from_secs(600);
    lab.register();
    lab.idle();
    lab.wait(Duration::from_secs(601));
    lab.home_keys.k = [7; 16];
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::AuthenticationRejected), "{:?}", lab.events);
    let failures = lab.events.iter().filter(|event| matches!(event, UeEvent::AuthenticationFailed { cause: 20 }));
    assert_eq!(failures.count(), 2);
    assert!(lab.context().is_none_or(|ue| !ue.is_registered() && ue.security.is_none()));
}

/// On a connection with secure exchange, the messages are ciphered.
#[test]
fn eap_renews_keys_of_connection() {
    let mut lab = lab();
    lab.register();
    lab.session(1);
    let before = keys(&lab).expect("keys");
    lab.config.security.key_lifetime.nas_count = before.uplink + 1;
    lab.ue_does(|ue, p, out| ue.establish(p, 2, vireo_types::PduSessionType::Ipv4, out).expect("a request"));
    let after = keys(&lab).expect("keys");
    assert_ne!((after.kamf, after.key_set), (before.kamf, before.key_set), "{:?}", lab.notes);
    assert!(lab.notes.iter().any(|note| matches!(note, Note::Succeeded(Kind::Authentication, _))));
    assert_eq!((lab.ue.active_sessions().count(), violations(&lab)), (2, vec![]));
}

/// TS 24.501 5.5.1.2.5: no vector for the resynchronisation.
#[test]
fn missing_vector_ends_conversation() {
    let mut lab = lab();
    lab.ue.inject(Fault::SynchFailure);
    lab.reachable = false;
    register(&mut lab, ue::Registration::Fresh);
    let mut procedure = lab.context().and_then(|ue| ue.procedure);
    assert_eq!(
        procedure.as_mut().and_then(Procedure::securing).map(|s| s.awaited()).map(|a| format!("{a:?}")),
        Some("Challenge".to_owned())
    );
    lab.reachable = true;
    lab.subscriber_error = Some(AuthenticationError::Unavailable);
    lab.wait(Duration::from_secs(7));
    assert!(
        lab.events.iter().any(|e| matches!(e, UeEvent::RegistrationRejected { cause: 22, .. })),
        "{:?}",
        lab.events
    );
}
