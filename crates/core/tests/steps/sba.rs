//! AMF of SBA mode against the emulator's UE and gNB.
//!
//! The test itself transports the requests to the SMF. The SMF is the core's own session logic,
//! with a UPF that responds at once.

mod handover;
mod n2;
mod smf;

use crate::lab::nas::{CIPHERED, downlink, protected};
use crate::lab::{ASSOC, Lab};
use smf::{ALL, amf, answers, is_at, succeeded, with_sessions};
pub(crate) use smf::{Smf, idle, stages, transferred, with_session};
use vireo_core::amf::context::{Procedure, RemoteStage};
use vireo_core::amf::engine::Event;
use vireo_core::sba::{
    ImpliedCreateResponse, N1N2Content, N1N2Transfer, N1N2TransferResult, PiggybackedSmContext, SmfCreateRequest,
    SmfRequest, SmfResponse, SmfUpdateRequest,
};
use vireo_core::smf::{Input, N2Sm, RanState};
use vireo_core::step::{Effect, Kind, Note};
use vireo_emulator::gnb;
use vireo_emulator::ue::{self, Event as UeEvent, MmState};
use vireo_types::*;
use vireo_wire::ngap::{NGAP_PDU, ie};

#[test]
fn remote_smf_session_lives_through_idle() {
    let (mut lab, mut smf) = with_session();
    assert_eq!((succeeded(&lab, Kind::Session), stages(&lab)), (1, vec![(RemoteStage::Established, true)]));
    assert!(lab.context().is_some_and(|c| c.sessions.is_empty()), "it is the SMF's");
    lab.idle();
    smf.serve(&mut lab);
    assert_eq!(stages(&lab), [(RemoteStage::Established, false)]);
    assert!(smf.sessions[0].1.downlink.is_none(), "the UPF buffers");

    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(!lab.events.contains(&UeEvent::ServiceAccepted), "the RAN is told with what the SMF has for it");
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::ServiceAccepted));
    assert_eq!((succeeded(&lab, Kind::ServiceRequest), succeeded(&lab, Kind::Activation)), (1, 1), "{:?}", lab.notes);
    assert!(smf.sessions[0].1.downlink.is_some(), "the UPF forwards");

    lab.ue_does(|ue, _, out| ue.release(5, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 5 }));
    assert!(stages(&lab).is_empty() && smf.sessions.is_empty(), "{:?}", stages(&lab));
}

/// The SMF learns that the gNB has released the session, and releases it at the UE.
#[test]
fn session_dropped_by_gnb_ends_at_smf() {
    let (mut lab, mut smf) = with_session();
    lab.gnb_does(|gnb, ran, out| gnb.drop_session(ran, 5, out).expect("a message"));
    assert_eq!(stages(&lab), [(RemoteStage::Established, false)]);
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 5 }));
    assert!(stages(&lab).is_empty() && smf.sessions.is_empty(), "{:?}", stages(&lab));
}

/// The session of a separate SMF keeps its tunnel.
#[test]
fn modify_indication_is_refused_for_separate_smf() {
    let (mut lab, smf) = with_session();
    let before = smf.sessions[0].1.downlink;
    lab.gnb_does(|gnb, ran, out| gnb.indicate_modification(ran, out).expect("a message"));
    let failed = |event: &gnb::Event| matches!(event, gnb::Event::ModificationConfirmed { failed: 1, .. });
    assert!(lab.gnb_events.iter().any(failed), "{:?}", lab.gnb_events);
    assert_eq!(smf.sessions[0].1.downlink, before);
}

/// TS 38.413 8.2.1.4: the gNB would refuse another session with this ID. It answers the AMF, which
/// has released the SM context.
#[test]
fn session_lost_by_ue_is_released_at_gnb() {
    let (mut lab, mut smf) = with_session();
    let reference = smf.sessions[0].0.clone();
    let context = lab.context().expect("a context");
    let (keys, tmsi) = (context.security.expect("keys"), context.identity.tmsi.expect("a 5G-TMSI"));
    let guti = [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat();
    // REGISTRATION REQUEST with the PDU session status of a UE without session.
    let update = [&[0x7e, 0, 0x41, 0x0b][..], &guti, &[0x2e, 2, 0xf0, 0x70, 0x50, 2, 0, 0]].concat();
    lab.reachable = false;
    lab.inject(&protected(&keys, CIPHERED, &update));
    assert_eq!(stages(&lab), [(RemoteStage::Ending, false)], "{:?}", lab.notes);
    let released = lab.sent.iter().filter_map(|pdu| {
        let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
        let list = pdu.ie::<ie::PDUSessionResourceToReleaseListRelCmd>()?.expect("a list");
        Some(list.0.iter().map(|item| item.pdu_session_id.0).collect::<Vec<_>>())
    });
    assert_eq!(released.flatten().collect::<Vec<_>>(), [5]);
    let requests = smf.new_requests(&lab);
    assert_eq!(requests, [(0, SmfRequest::Release { reference })]);
    for (number, request) in requests {
        smf.answer(&mut lab, number, request);
    }
    assert!(stages(&lab).is_empty() && smf.sessions.is_empty(), "{:?}", stages(&lab));
}

#[test]
fn deregistration_releases_remote_sessions() {
    let (mut lab, mut smf) = with_session();
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert_eq!(stages(&lab), [(RemoteStage::Ending, false)]);
    smf.serve(&mut lab);
    assert!(stages(&lab).is_empty() && smf.sessions.is_empty());
    assert_eq!(lab.ue.mm(), MmState::Deregistered);
}

#[test]
fn downlink_packet_pages_and_reactivates() {
    let (mut lab, mut smf) = idle();
    assert_eq!(smf.downlink_packet(&mut lab, 5), Some(N1N2TransferResult::Attempting));
    assert!(matches!(lab.context().and_then(|c| c.procedure), Some(Procedure::Paging(_))));
    lab.settle();
    smf.serve(&mut lab);
    assert!(lab.gnb_events.iter().any(|e| matches!(e, gnb::Event::Paging(_))));
    assert!(lab.events.contains(&UeEvent::ServiceAccepted));
    assert_eq!((succeeded(&lab, Kind::Paging), stages(&lab)), (1, vec![(RemoteStage::Established, true)]));
}

#[test]
fn smf_hears_of_unanswered_paging() {
    let (mut lab, mut smf) = idle();
    lab.answers_paging = false;
    smf.downlink_packet(&mut lab, 5);
    lab.settle();
    lab.wait(Duration::from_secs(30));
    let new_requests = smf.new_requests(&lab);
    let supi = lab.ue.usim().supi();
    let unreached = SmfRequest::Unreached { uri: "http://smf/unreached".into(), supi, transfer: smf.token };
    assert_eq!(new_requests, [(0, unreached)]);
}

#[test]
fn n1_message_for_idle_ue_waits() {
    let (mut lab, mut smf) = idle();
    let name = smf.sessions[0].0.clone();
    let (content, _) = smf.update(&lab, &name, Input::Release(39)).expect("a session");
    assert!(content.n1.is_some());
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    assert_eq!(transferred(&lab), Some(N1N2TransferResult::Attempting));
    lab.settle();
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 5 }), "{:?}", lab.events);
    assert!(stages(&lab).is_empty(), "{:?}", stages(&lab));
}

#[test]
fn silent_smf_costs_only_the_session() {
    let (mut lab, mut smf) = (amf(), Smf { silent: true, ..Smf::default() });
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.notes.contains(&Note::Failed(Kind::Session, 0)) && stages(&lab).is_empty());
    assert_eq!(lab.ue.active_sessions().count(), 0);
    // The UE requests the session again, and the SMF responds.
    smf.silent = false;
    lab.ue_does(|ue, p, out| ue.establish(p, 6, PduSessionType::Ipv4, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.ue.active_sessions().any(|s| s == 6), "{:?}", lab.events);
    lab.idle();
    smf.serve(&mut lab);
    smf.silent = true;
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::ServiceAccepted), "the UE is served without it");
    assert_eq!(stages(&lab), [(RemoteStage::Established, false)]);
}

/// KgNB is that of the Service Request (TS 33.501 6.8.1.2.2), even if the UE sends messages before
/// it is served. The NH chain starts with it.
#[test]
fn early_uplink_does_not_change_key() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.idle();
    smf.serve(&mut lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let new_requests = smf.new_requests(&lab);
    let name = smf.sessions[0].0.clone();
    let (content, _) = smf.update(&lab, &name, Input::Release(39)).expect("a session");
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    lab.settle();
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 5 }), "and the UE has said so");
    new_requests.into_iter().for_each(|(number, request)| smf.answer(&mut lab, number, request));
    smf.serve(&mut lab);
    lab.xn(ALL, |_| true);
    smf.serve(&mut lab);
    is_at(&lab, &smf, 1, &[6]);
}

#[test]
fn smf_without_context_ends_session() {
    let (mut lab, mut smf) = idle();
    smf.sessions.clear();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::ServiceAccepted) && stages(&lab).is_empty());
}

#[test]
fn late_created_session_is_released() {
    let (mut lab, mut smf) = (amf(), Smf::default());
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    let (number, request) = smf.new_requests(&lab).remove(0);
    // The UE leaves before the response.
    lab.idle();
    assert_eq!((stages(&lab), smf.new_requests(&lab)), (vec![(RemoteStage::Ending, false)], vec![]));
    lab.event(Event::Smf {
        number,
        request: request.clone(),
        response: SmfResponse::Created("http://smf/x".into()),
        sm_context: None,
    });
    let release = SmfRequest::Release { reference: "http://smf/x".into() };
    assert_eq!(smf.new_requests(&lab), [(number, release.clone())]);
    // A session that the AMF has dropped is released, too.
    lab.event(Event::Smf {
        number: number + 9,
        request,
        response: SmfResponse::Created("http://smf/x".into()),
        sm_context: None,
    });
    assert_eq!(smf.new_requests(&lab), [(number + 9, release)]);
}

/// The SMF's first transfer, and the RAN's response, may arrive before the reference of the SM
/// context.
#[test]
fn event_before_session_reference_is_not_lost() {
    let (mut lab, mut smf) = (amf(), Smf::default());
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    let (number, request) = smf.new_requests(&lab).remove(0);
    let SmfRequest::Create(create) = &request else { panic!("{request:?}") };
    let (reference, content) = smf.create(&lab, create);
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    lab.settle();
    assert!(lab.ue.active_sessions().any(|s| s == 5));
    assert_eq!(smf.new_requests(&lab), [], "there is no name to ask by");
    lab.event(Event::Smf { number, request, response: SmfResponse::Created(reference), sm_context: None });
    smf.serve(&mut lab);
    assert_eq!((succeeded(&lab, Kind::Session), stages(&lab)), (1, vec![(RemoteStage::Established, true)]));
    assert!(smf.sessions[0].1.downlink.is_some(), "the UPF forwards");
    // A packet that was reported just before has no effect.
    smf.downlink_packet(&mut lab, 5);
    assert_eq!((transferred(&lab), lab.downlink_waits()), (Some(N1N2TransferResult::Initiated), 0));
}

/// The RAN releases a UE that has a session without a reference so far: the session becomes idle
/// and is not ended.
#[test]
fn session_without_reference_survives_release() {
    let (mut lab, mut smf) = (amf(), Smf::default());
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    let (number, request) = smf.new_requests(&lab).remove(0);
    let SmfRequest::Create(create) = &request else { panic!("{request:?}") };
    let (reference, content) = smf.create(&lab, create);
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    lab.settle();
    assert!(lab.ue.active_sessions().any(|s| s == 5));
    lab.idle();
    lab.event(Event::Smf { number, request, response: SmfResponse::Created(reference), sm_context: None });
    smf.serve(&mut lab);
    assert_eq!(stages(&lab), [(RemoteStage::Established, false)]);
    assert!(smf.sessions[0].1.downlink.is_none(), "the UPF buffers");
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    assert_eq!(stages(&lab), [(RemoteStage::Established, true)]);
    assert!(smf.sessions[0].1.downlink.is_some(), "the UPF forwards");
}

/// A Registration Request ends a service request that waits for an SMF (TS 24.501 5.5.1.2.8): the
/// SMF's response causes no accept.
#[test]
fn registration_ends_service_waiting_for_smf() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.idle();
    smf.serve(&mut lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let new_requests = smf.new_requests(&lab);
    // The gNB learns the AMF-UE-NGAP-ID from a message to the UE in the meantime.
    let name = smf.sessions[0].0.clone();
    let (content, _) = smf.update(&lab, &name, Input::Release(39)).expect("a session");
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    lab.settle();
    lab.reachable = false;
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    let mut out = ue::UeOutput::default();
    Lab::new().ue.register(&lab.profile, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject(&protected(&keys, CIPHERED, &request));
    let sent = lab.sent.len();
    new_requests.into_iter().for_each(|(number, request)| smf.answer(&mut lab, number, request));
    let context = lab.context().expect("a context");
    assert!(matches!(context.procedure, Some(Procedure::Registration(_))), "{:?}", lab.notes);
    let keys = context.security.expect("keys");
    let content: Vec<_> = lab.sent[sent..].iter().filter_map(|pdu| downlink(&keys, pdu)).collect();
    let is_service_accept = |nas: &Vec<u8>| nas.starts_with(&[0x7e, 0, 0x4e]);
    assert!(!content.iter().any(is_service_accept), "{content:02x?}");
    assert_eq!(succeeded(&lab, Kind::ServiceRequest), 0);
}

/// Has the UE request a session; returns the AMF's create request to the SMF.
fn request_session(lab: &mut Lab, smf: &mut Smf) -> (u32, SmfCreateRequest) {
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    match smf.new_requests(lab).remove(0) {
        (number, SmfRequest::Create(create)) => (number, *create),
        other => panic!("{other:?}"),
    }
}

/// The SMF's reject is counted with its 5GSM cause, in a response or in a transfer. The SMF's
/// release notification that follows is not a second failure.
#[test]
fn reject_of_smf_counts_once_by_its_cause() {
    for by_itself in [false, true] {
        let (mut lab, mut smf) = (amf(), Smf::default());
        let (number, create) = request_session(&mut lab, &mut smf);
        let pti = create.n1[2];
        let content = N1N2Content { n1: Some(vec![0x2e, 5, pti, 0xc3, 26]), n2: None };
        let request = SmfRequest::Create(Box::new(create));
        if by_itself {
            let name = "http://smf/1".to_owned();
            lab.event(Event::Smf { number, request, response: SmfResponse::Created(name), sm_context: None });
            let transfer = smf.transfer(5, content);
            lab.event(Event::Transfer(transfer));
            lab.event(Event::SmContextReleased { number });
        } else {
            let answer = SmfResponse::Refused { content, unknown: false };
            lab.event(Event::Smf { number, request, response: answer, sm_context: None });
        }
        lab.settle();
        let failed = lab.notes.iter().filter(|note| matches!(note, Note::Failed(Kind::Session, _)));
        assert_eq!(failed.collect::<Vec<_>>(), [&Note::Failed(Kind::Session, 26)]);
        let rejected = UeEvent::SessionRejected { psi: 5, cause: ue::Cause::Sm(26) };
        assert!(lab.events.contains(&rejected), "{:?}", lab.events);
        assert!(stages(&lab).is_empty(), "{:?}", stages(&lab));
    }
}

fn created(number: u32, reference: &str) -> Option<ImpliedCreateResponse> {
    Some(ImpliedCreateResponse { number, key: 3, reference: reference.to_owned(), open: true })
}

/// The SMF's first transfer reports that the session exists, and its reference: no create response
/// is needed.
#[test]
fn transfer_answers_session_creation() {
    let (mut lab, mut smf) = (amf(), Smf::default());
    let (number, create) = request_session(&mut lab, &mut smf);
    let (reference, content) = smf.create(&lab, &create);
    let transfer = N1N2Transfer { created: created(number, &reference), ..smf.transfer(5, content.clone()) };
    lab.event(Event::Transfer(transfer));
    lab.settle();
    smf.serve(&mut lab);
    assert_eq!(transferred(&lab), Some(N1N2TransferResult::Initiated));
    assert_eq!((succeeded(&lab, Kind::Session), stages(&lab)), (1, vec![(RemoteStage::Established, true)]));
    assert!(smf.sessions[0].1.downlink.is_some(), "the UPF forwards");
    // A restarted SMF still sends the response.
    let request = SmfRequest::Create(Box::new(create.clone()));
    lab.event(Event::Smf { number, request, response: SmfResponse::Created(reference), sm_context: None });
    assert_eq!((smf.new_requests(&lab), stages(&lab)), (vec![], vec![(RemoteStage::Established, true)]));

    // A piggybacked SM context is sent with the requests that follow.
    let (mut lab, mut smf) = (amf(), Smf::default());
    let (number, create) = request_session(&mut lab, &mut smf);
    let (reference, content) = smf.create(&lab, &create);
    let created = created(number, &reference);
    lab.event(Event::Transfer(N1N2Transfer { created, sm_context: sm_context(3), ..smf.transfer(5, content) }));
    lab.settle();
    let new_requests = new_updates(&lab, &mut smf);
    assert!(matches!(new_requests[..], [(SmfUpdateRequest::N2(N2Sm::SetupResponse, _), 3)]), "{new_requests:?}");
}

/// A transfer reports a session that the UE does not have: the SMF learns of it from the result and
/// ends the session. The SMF's create response names the session, and it is then released once,
/// even by an SMF that missed the result.
#[test]
fn late_transfer_session_is_released() {
    for (left, again) in [(None, false), (sm_context(7), false), (None, true)] {
        let (mut lab, mut smf) = (amf(), Smf::default());
        let (number, create) = request_session(&mut lab, &mut smf);
        let (reference, content) = smf.create(&lab, &create);
        if again {
            // The UE has requested another session with the same ID.
            lab.ue_does(|ue, _, _| ue.forget_session(5));
            request_session(&mut lab, &mut smf);
        } else {
            // The UE has left before.
            lab.idle();
        }
        assert_eq!((stages(&lab)[0], smf.new_requests(&lab)), ((RemoteStage::Ending, false), vec![]));
        let transfer = |created| {
            let (content, sm_context) = (content.clone(), left.clone());
            N1N2Transfer { token: 9, psi: 5, content, unreached: None, sm_context, created, requested_session: None }
        };
        let notes = lab.notes.len();
        lab.event(Event::Transfer(transfer(created(number, &reference))));
        // Nor is a session that the AMF has dropped accepted.
        assert_eq!((transferred(&lab), smf.new_requests(&lab)), (Some(N1N2TransferResult::Unknown), vec![]));
        lab.event(Event::Transfer(transfer(created(number + 9, &reference))));
        assert_eq!((transferred(&lab), smf.new_requests(&lab)), (Some(N1N2TransferResult::Unknown), vec![]));
        assert_eq!(lab.notes.len(), notes, "the UE is told nothing");
        let (request, answer) = (SmfRequest::Create(Box::new(create)), SmfResponse::Created(reference.clone()));
        lab.event(Event::Smf { number, request, response: answer, sm_context: left.clone() });
        let released = lab.effects[smf.effects_read..].iter().filter_map(|effect| match effect {
            Effect::SmfRequest { number, request: SmfRequest::Release { reference }, sm_context } => {
                Some((*number, reference.clone(), sm_context.clone()))
            }
            _ => None,
        });
        assert_eq!(released.collect::<Vec<_>>(), [(number, reference, left)]);
    }
}

/// The session number alone does not identify the create request: a UE that registers again counts
/// its sessions from zero.
#[test]
fn transfer_of_other_request_is_ignored() {
    let (mut lab, mut smf) = (amf(), Smf::default());
    let (number, create) = request_session(&mut lab, &mut smf);
    let (reference, content) = smf.create(&lab, &create);
    let transfer = |open, reference: &str| {
        let created = created(number, reference).map(|created| ImpliedCreateResponse { open, ..created });
        Event::Transfer(N1N2Transfer {
            token: 9,
            psi: 5,
            content: content.clone(),
            unreached: None,
            sm_context: None,
            created,
            requested_session: None,
        })
    };
    lab.event(transfer(false, "http://smf/other"));
    assert_eq!(
        (transferred(&lab), stages(&lab)),
        (Some(N1N2TransferResult::Unknown), vec![(RemoteStage::Creating, false)])
    );
    lab.event(transfer(true, &reference));
    assert_eq!((transferred(&lab), stages(&lab)[0].0), (Some(N1N2TransferResult::Initiated), RemoteStage::Offered));
    // The same transfer is accepted again; one with another reference is not.
    lab.event(transfer(false, &reference));
    assert_eq!(transferred(&lab), Some(N1N2TransferResult::Initiated));
    lab.event(transfer(false, "http://smf/other"));
    assert_eq!(transferred(&lab), Some(N1N2TransferResult::Unknown));
}

#[test]
fn absent_session_causes_no_message() {
    let (mut lab, mut smf) = with_session();
    assert_eq!(smf.downlink_packet(&mut lab, 6), Some(N1N2TransferResult::Unknown));
    lab.event(Event::SmContextReleased { number: 77 });
    assert_eq!(stages(&lab).len(), 1);
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert_eq!(smf.downlink_packet(&mut lab, 5), Some(N1N2TransferResult::Unknown));
}

/// Returns the new update requests with the versions of their SM contexts.
fn new_updates(lab: &Lab, smf: &mut Smf) -> Vec<(SmfUpdateRequest, u32)> {
    let new = lab.effects[smf.effects_read..].to_vec();
    smf.effects_read = lab.effects.len();
    let of = |effect| match effect {
        Effect::SmfRequest { request: SmfRequest::Update { update, .. }, sm_context, .. } => {
            Some((update, sm_context.expect("it goes along").version))
        }
        _ => None,
    };
    new.into_iter().filter_map(of).collect()
}

fn sm_context(version: u32) -> Option<PiggybackedSmContext> {
    Some(PiggybackedSmContext { version, octets: vec![1] })
}

/// The AMF stores the SM context and sends it with each request. At most one request is in flight.
#[test]
fn piggybacked_context_is_of_last_answer() {
    let (mut lab, mut smf) = with_session();
    let left = N1N2Transfer { sm_context: sm_context(3), ..smf.transfer(5, N1N2Content::default()) };
    lab.event(Event::Transfer(left));
    let (number, reference) = (0, smf.sessions[0].0.clone());
    lab.idle();
    assert_eq!(new_updates(&lab, &mut smf), [(SmfUpdateRequest::Deactivate, 3)]);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert_eq!(new_updates(&lab, &mut smf), [], "the other question is not answered yet");
    let answer = |lab: &mut Lab, update, answer, sm_context| {
        let request = SmfRequest::Update { reference: reference.clone(), update };
        lab.event(Event::Smf { number, request, response: answer, sm_context });
    };
    answer(&mut lab, SmfUpdateRequest::Deactivate, SmfResponse::Done(N1N2Content::default()), sm_context(5));
    assert_eq!(new_updates(&lab, &mut smf), [(SmfUpdateRequest::Activate, 5)]);
    // An older version that arrives late is ignored.
    let late = N1N2Transfer { sm_context: sm_context(4), ..smf.transfer(5, N1N2Content::default()) };
    lab.event(Event::Transfer(late));
    answer(&mut lab, SmfUpdateRequest::Activate, SmfResponse::Stale, None);
    assert_eq!(new_updates(&lab, &mut smf), [(SmfUpdateRequest::Activate, 5)], "it is asked again");
    // A UPF report has the SMF request the SM context from the AMF.
    let wants = |number| {
        let (content, unreached, sm_context, requested_session) =
            (N1N2Content::default(), None, None, Some((number, 0x3fff)));
        N1N2Transfer { token: 9, psi: 0, content, unreached, sm_context, created: None, requested_session }
    };
    for (name, known) in [(number, true), (1, false)] {
        lab.event(Event::Transfer(wants(name)));
        let Some(Effect::N1N2TransferReply { sm_context: left, .. }) = lab.effects.last() else { panic!("an answer") };
        assert_eq!(left.as_ref().map(|left| left.version), known.then_some(5), "{name}");
    }
    // The number of retries is limited.
    smf.effects_read = lab.effects.len();
    (0..9).for_each(|_| answer(&mut lab, SmfUpdateRequest::Activate, SmfResponse::Stale, None));
    assert!(new_updates(&lab, &mut smf).len() < 4);
    lab.settle();
    assert!(lab.events.contains(&UeEvent::ServiceAccepted), "the UE is served without it");
}
