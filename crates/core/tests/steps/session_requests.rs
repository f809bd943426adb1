//! Requests for PDU sessions that repeat, collide or exceed limits, and terms by subscriber.

use crate::lab::Lab;
use crate::lab::nas::{CIPHERED, downlink, protected};
use vireo_core::config::{SliceProfile, StaticPools};
use vireo_core::step::Note;
use vireo_core::subscription::{UpProtection, UpSecurity};
use vireo_emulator::ue::{Cause, Event as UeEvent, Fault, Registration};
use vireo_types::{PduSessionType, Supi};
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, PDUSessionResourceSetupRequestTransfer, decode_open_type, ie};
use vireo_wire::pfcp;

/// Returns UL NAS TRANSPORT with a PDU SESSION ESTABLISHMENT REQUEST as an initial request.
fn request(psi: u8, pti: u8) -> Vec<u8> {
    let rate = NasIntegrityProtectionMaximumDataRate::new(0xffff);
    let n1 = Nas5gsMessage::new_5gsm(NasPduSessionEstablishmentRequest::new(rate), psi, pti);
    let n1 = n1.encode().expect("a request encodes");
    let message = transport(PayloadContainerKind::N1SmInformation, &n1)
        .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(psi))
        .with_request_type(NasRequestType::from_request_type(RequestTypeValue::InitialRequest));
    Nas5gsMessage::new_5gmm(message).encode().expect("a transport encodes")
}

fn transport(kind: PayloadContainerKind, payload: &[u8]) -> NasUlNasTransport {
    NasUlNasTransport::new(NasPayloadContainerType::from_kind(kind), NasPayloadContainer::new(payload.to_vec()))
}

/// Sends a plain message under the UE's keys, in its place. The UE gets no answer.
fn send(lab: &mut Lab, plain: &[u8]) {
    lab.reachable = false;
    let security = lab.context().and_then(|ue| ue.security).expect("keys");
    lab.inject(&protected(&security, CIPHERED, plain));
}

/// Returns the kinds of PFCP requests so far.
fn pfcp_requests(lab: &Lab) -> Vec<pfcp::MessageType> {
    lab.pfcp.iter().map(|octets| pfcp::Message::new(octets).expect("a message").message_type()).collect()
}

const ESTABLISHMENT: pfcp::MessageType = pfcp::MessageType::SESSION_ESTABLISHMENT_REQUEST;
const DELETION: pfcp::MessageType = pfcp::MessageType::SESSION_DELETION_REQUEST;

#[test]
fn repeated_request_creates_one_session() {
    let mut lab = Lab::new();
    lab.register();
    lab.upf_answers = false;
    send(&mut lab, &request(5, 9));
    // T3580 has expired: the same request again (TS 24.501 6.4.1.6 a).
    send(&mut lab, &request(5, 9));
    assert_eq!(pfcp_requests(&lab), [ESTABLISHMENT]);
    lab.upf_catches_up();
    lab.settle();
    assert_eq!(lab.context().expect("a context").sessions.len(), 1);
}

#[test]
fn request_with_new_pti_replaces_outstanding_one() {
    let mut lab = Lab::new();
    lab.register();
    lab.upf_answers = false;
    send(&mut lab, &request(5, 9));
    send(&mut lab, &request(5, 10));
    assert_eq!(pfcp_requests(&lab), [ESTABLISHMENT; 2]);
    lab.upf_answers = true;
    lab.upf_catches_up();
    lab.settle();
    assert_eq!(pfcp_requests(&lab).iter().filter(|kind| **kind == DELETION).count(), 1, "the first one ends");
    let sessions = lab.context().expect("a context").sessions;
    assert_eq!(sessions.iter().filter(|session| session.is_live()).count(), 1);
}

#[test]
fn request_for_psi_in_use_replaces_session() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(5);
    let before = lab.context().expect("a context").sessions.remove(0);
    send(&mut lab, &request(5, 77));
    let after = lab.context().expect("a context").sessions;
    assert_eq!(after.len(), 1, "TS 24.501 5.4.5.2.3 a 2");
    assert_ne!(after[0].pfcp.cp_seid, before.pfcp.cp_seid);
    assert_eq!(pfcp_requests(&lab).iter().filter(|kind| **kind == DELETION).count(), 1);
}

/// The gNB would refuse a second session with this ID (TS 38.413 8.2.1.4).
#[test]
fn replaced_session_is_released_at_gnb_first() {
    use NgapPduKind::{Initiating_PDUSessionResourceRelease as Release, Initiating_PDUSessionResourceSetup as Setup};
    let resources = |lab: &Lab, before: usize| {
        let kinds = lab.sent[before..].iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind());
        kinds.filter(|kind| [Release, Setup].contains(kind)).collect::<Vec<_>>()
    };
    for answers in [true, false] {
        let mut lab = Lab::new();
        lab.register();
        lab.session(5);
        let before = lab.sent.len();
        let security = lab.context().and_then(|ue| ue.security).expect("keys");
        lab.slow = Some(NgapPduKind::Successful_PDUSessionResourceRelease);
        lab.inject(&protected(&security, CIPHERED, &request(5, 77)));
        assert_eq!(resources(&lab, before), [Release]);
        lab.slow = None;
        let late = lab.late.pop().expect("an answer");
        lab.reachable = false;
        match answers {
            true => lab.take_from_gnb(late.0, &late.1),
            false => lab.wait(lab.config.timers.ran_response),
        }
        assert_eq!(resources(&lab, before), [Release, Setup]);
        assert!(!lab.notes.iter().any(|note| matches!(note, Note::Fault(_))), "{:?}", lab.notes);
    }
}

/// The gNB would refuse a second set-up (TS 38.413 8.2.1.4).
#[test]
fn active_user_plane_is_not_set_up_again() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(5);
    let before = lab.context().expect("a context");
    let tmsi = before.identity.tmsi.expect("a 5G-GUTI");
    let guti = lab.config.guami();
    let set = (guti.set << 6 | u16::from(guti.pointer)).to_be_bytes();
    let identity = [&[0xf4, set[0], set[1]][..], &tmsi.0.to_be_bytes()].concat();
    let key_set = NasKeySetIdentifier::new(before.security.as_ref().expect("keys").key_set.identifier());
    let request = NasServiceRequest::new(
        key_set,
        NasServiceType::from_service_type(ServiceType::Data),
        NasFGsMobileIdentity::new(identity),
    )
    .with_uplink_data_status(NasUplinkDataStatus::from_sessions(&[5]).expect("a bitmap"));
    lab.sent.clear();
    send(&mut lab, &Nas5gsMessage::new_5gmm(request).encode().expect("a request encodes"));
    let security = before.security.as_ref().expect("keys");
    let [accept] = &lab.sent.iter().filter_map(|pdu| downlink(security, pdu)).collect::<Vec<_>>()[..] else {
        panic!("SERVICE ACCEPT alone: {} PDUs", lab.sent.len());
    };
    let accept = Nas5gsMessage::decode(accept).expect("a message");
    let Nas5gsMessage::Gmm(_, Nas5gmmMessage::ServiceAccept(accept)) = accept else { panic!("{accept:?}") };
    assert_eq!(accept.pdu_session_reactivation_result.expect("a result").value, [0, 0]);
    assert_eq!((lab.sent.len(), lab.context().expect("a context").sessions), (1, before.sessions));
}

/// The session has ended by the message of the UE.
#[test]
fn late_answer_of_gnb_to_release_is_no_fault() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(5);
    lab.slow = Some(NgapPduKind::Successful_PDUSessionResourceRelease);
    lab.ue_does(|ue, _, out| ue.release(5, out).expect("a request"));
    let late = std::mem::take(&mut lab.late);
    assert_eq!((late.len(), lab.context().expect("a context").sessions.len()), (1, 0));
    lab.take_from_gnb(late[0].0, &late[0].1);
    assert!(!lab.notes.iter().any(|note| matches!(note, Note::Fault(_))), "{:?}", lab.notes);
}

#[test]
fn second_session_of_iot_slice_exceeds_limit() {
    let mut lab = Lab::new();
    lab.config.slices[0].profile = SliceProfile::Iot;
    lab.register();
    lab.session(5);
    lab.ue_does(|ue, p, out| ue.establish(p, 6, PduSessionType::Ipv4, out).expect("a request"));
    let refused = UeEvent::SessionRejected { psi: 6, cause: Cause::Mm(65) };
    assert!(lab.events.contains(&refused), "{:?}", lab.events);
    assert_eq!(lab.context().expect("a context").sessions.len(), 1);
}

/// Returns cause and reason of refusals that the log has.
fn refusals(lab: &Lab) -> Vec<(Option<Supi>, u8, String)> {
    let refused = |note: &Note| match note {
        Note::Refused(request) => Some((request.supi, request.cause, request.reason.to_string())),
        _ => None,
    };
    lab.notes.iter().filter_map(refused).collect()
}

#[test]
fn refused_devices_are_noted_with_reason() {
    let supi = Some("999700000000001".parse().expect("an IMSI"));
    let mut lab = Lab::new();
    lab.ue.inject(Fault::MacFailure);
    lab.ue_does(|ue, p, out| ue.register(p, Registration::Initial, out).expect("a request"));
    assert_eq!(refusals(&lab), [(supi, 0, "MAC failure: check K and OPc".to_owned())]);
    let mut lab = Lab::new();
    lab.subscription.slices[0].snssai.sst = 9;
    lab.ue_does(|ue, p, out| ue.register(p, Registration::Initial, out).expect("a request"));
    let reason = "no slice is subscribed and served; requested: 1".to_owned();
    assert_eq!(refusals(&lab), [(supi, 62, reason)]);
    let mut lab = Lab::new();
    lab.register();
    lab.profile.dnn = "ims".parse().expect("a DNN");
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    let reason = "data network ims of slice 1 is not subscribed or not served".to_owned();
    assert_eq!(refusals(&lab), [(supi, 91, reason)]);
    let mut lab = Lab::new();
    lab.ids.address_pool_empty = true;
    lab.register();
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    assert_eq!(refusals(&lab), [(supi, 26, "data network internet of slice 1".to_owned())]);
}

#[test]
fn static_terms_follow_subscriber_into_context() {
    let mut lab = Lab::new();
    lab.config.dnns[0].static_pools = StaticPools { ipv4: Some(([10, 45, 128, 0].into(), 17)), ipv6: None };
    let network = &mut lab.subscription.slices[0].dnns[0];
    network.static_ipv4 = Some([10, 45, 200, 1].into());
    network.framed_routes = vec!["192.168.7.0/24".parse().expect("a network")];
    lab.register();
    // The session is set up later, from what the context has stored.
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request"));
    lab.session(5);
    let addresses = lab.events.iter().filter_map(|event| match event {
        UeEvent::SessionUp { address, .. } => address.ipv4,
        _ => None,
    });
    assert_eq!(addresses.collect::<Vec<_>>(), [std::net::Ipv4Addr::from([10, 45, 200, 1])]);
    let established = lab.pfcp.iter().map(|octets| pfcp::Message::new(octets).expect("a message"));
    let established = established.into_iter().find(|message| message.message_type() == ESTABLISHMENT);
    let established = established.expect("an establishment");
    let request = pfcp::SessionEstablishmentRequest::parse(&established).expect("a request");
    assert_eq!(request.create_pdrs[1].pdi.framed_routes, [pfcp::FramedRoute::from("192.168.7.0/24 0.0.0.0 1")]);
    // The terms of a session stay when the subscription changes.
    lab.change(|ue| ue.subscription = None);
    let context = lab.context().expect("a context");
    assert_eq!(context.sessions[0].terms.framed_routes.len(), 1);
    lab.idle();
}

/// Returns the number of NGAP messages with a Security Indication, whose integrity is required.
fn indications(lab: &Lab) -> Vec<bool> {
    let transfers = lab.sent.iter().flat_map(|octets| {
        let pdu = NGAP_PDU::decode(octets).expect("a PDU");
        let setup = pdu.ie::<ie::PDUSessionResourceSetupListSUReq>().and_then(Result::ok);
        let setup = setup.map(|list| {
            list.0.into_iter().map(|item| item.pdu_session_resource_setup_request_transfer.to_vec()).collect::<Vec<_>>()
        });
        let context = pdu.ie::<ie::PDUSessionResourceSetupListCxtReq>().and_then(Result::ok);
        let context = context.map(|list| {
            list.0.into_iter().map(|item| item.pdu_session_resource_setup_request_transfer.to_vec()).collect()
        });
        let handover = pdu.ie::<ie::PDUSessionResourceSetupListHOReq>().and_then(Result::ok);
        let handover =
            handover.map(|list| list.0.into_iter().map(|item| item.handover_request_transfer.to_vec()).collect());
        [setup, context, handover].into_iter().flatten().flatten().collect::<Vec<_>>()
    });
    let is_indicated = |octets: Vec<u8>| {
        let transfer = decode_open_type::<PDUSessionResourceSetupRequestTransfer<'_>>(&octets).expect("a transfer");
        transfer.protocol_ies.0.iter().any(|ie| ie.id.0 == 138)
    };
    transfers.map(is_indicated).collect()
}

#[test]
fn up_security_is_indicated_in_every_setup() {
    for policy in
        [None, Some(UpSecurity { integrity: UpProtection::Required, confidentiality: UpProtection::Preferred })]
    {
        let mut lab = Lab::new();
        lab.subscription.slices[0].dnns[0].up_security = policy;
        lab.register();
        lab.session(5);
        lab.idle();
        lab.ue_does(|ue, _, out| ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request"));
        lab.n2(2);
        assert_eq!(indications(&lab), [policy.is_some(); 3], "session, service request and N2 handover");
    }
}

#[test]
fn containers_are_counted_and_ciot_data_returned() {
    for (kind, word) in [
        (PayloadContainerKind::Sms, "nas-transport-sms"),
        (PayloadContainerKind::LtePp, "nas-transport-location"),
        (PayloadContainerKind::LocationServices, "nas-transport-location"),
        (PayloadContainerKind::UePolicy, "nas-transport-other"),
        (PayloadContainerKind::CIoT, "nas-transport-ciot"),
        (PayloadContainerKind::N1SmInformation, "nas-transport-session"),
    ] {
        let mut lab = Lab::new();
        lab.register();
        lab.sent.clear();
        let plain = Nas5gsMessage::new_5gmm(transport(kind, &[1, 2, 3])).encode().expect("it encodes");
        send(&mut lab, &plain);
        assert!(lab.notes.contains(&Note::fault(word)), "{word}: {:?}", lab.notes);
        let security = lab.context().and_then(|ue| ue.security).expect("keys");
        let answers: Vec<_> = lab.sent.iter().filter_map(|pdu| downlink(&security, pdu)).collect();
        // DL NAS TRANSPORT, CIoT user data, the payload, cause #90 (TS 24.501 8.2.11).
        let returned = vec![0x7e, 0, 0x68, 8, 0, 3, 1, 2, 3, 0x58, 90];
        let expected = if kind == PayloadContainerKind::CIoT { vec![returned] } else { Vec::new() };
        assert_eq!(answers, expected, "{kind:?}");
    }
}

/// A transfer of a session from another access (TS 24.501 5.4.5.2.5, 5.4.5.3.1 h): there is none.
#[test]
fn request_for_existing_session_is_returned() {
    let with_type = |kind: u8, psi| {
        let mut plain = request(psi, 9);
        *plain.last_mut().expect("a request type") = 0x80 | kind;
        plain
    };
    for kind in [2, 4] {
        let mut lab = Lab::new();
        lab.register();
        send(&mut lab, &with_type(kind, 5));
        let security = lab.context().and_then(|ue| ue.security).expect("keys");
        let returned = lab.sent.iter().rev().find_map(|pdu| match Nas5gsMessage::decode(&downlink(&security, pdu)?) {
            Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::DlNasTransport(message))) => Some(message),
            _ => None,
        });
        let returned = returned.expect("DL NAS TRANSPORT");
        assert_eq!(returned.fgmm_cause.map(|ie| ie.value), Some(90));
        assert_eq!(lab.context().expect("a context").sessions.len(), 0);
        // One that the UE has by this access stays.
        lab.reachable = true;
        lab.forget_ue();
        lab.idle();
    }
    let mut lab = Lab::new();
    lab.register();
    lab.session(5);
    let before = lab.context().expect("a context").sessions.remove(0).pfcp.cp_seid;
    send(&mut lab, &with_type(2, 5));
    assert_eq!(lab.context().expect("a context").sessions.remove(0).pfcp.cp_seid, before);
}
