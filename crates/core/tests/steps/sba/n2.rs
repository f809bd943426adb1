//! N2 handovers in SBA mode.
//!
//! Success; loss of a session, an SMF, the target or the UE; cancellation.

use super::*;
use vireo_core::amf::context::PendingServiceAccept;
use vireo_core::amf::procedures::service_request::Request;
use vireo_core::sba::HandoverStep;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};

/// Returns the session number and the handover step of each request.
fn steps(new_requests: &[(u32, SmfRequest)]) -> Vec<(u32, &'static str)> {
    let step = |(number, request): &(u32, SmfRequest)| match request {
        SmfRequest::Update { update: SmfUpdateRequest::Handover(_, step), .. } => {
            let step = match step {
                HandoverStep::Prepare { .. } => "prepare",
                HandoverStep::Prepared(N2Sm::HandoverRequestAcknowledge, _) => "prepared",
                HandoverStep::Prepared(..) => "not taken",
                HandoverStep::Complete(_) => "complete",
                HandoverStep::Cancel => "cancel",
            };
            (*number, step)
        }
        other => panic!("{other:?}"),
    };
    new_requests.iter().map(step).collect()
}

/// Answers the requests for `step` of both sessions, the last one first. Returns the number of NGAP
/// messages that the AMF sent before and after the last response.
fn answer_both(lab: &mut Lab, smf: &mut Smf, step: &'static str) -> [usize; 2] {
    let mut new_requests = smf.new_requests(lab);
    new_requests.sort_by_key(|(number, _)| *number);
    assert_eq!(steps(&new_requests), [(0, step), (1, step)]);
    let sent = lab.sent.len();
    let [first, last] = new_requests.try_into().expect("two questions");
    smf.answer(lab, last.0, last.1);
    lab.settle();
    let before = lab.sent.len() - sent;
    smf.answer(lab, first.0, first.1);
    lab.settle();
    [before, lab.sent.len() - sent]
}

#[test]
fn n2_handover_waits_for_all_smfs() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    for (hop, n) in [1, 0, 1].into_iter().enumerate() {
        lab.n2(1 + n as u32);
        // HANDOVER REQUEST, then HANDOVER COMMAND, after which the RAN status transfer and the UE
        // go to the target; then the release of the source.
        assert_eq!(answer_both(&mut lab, &mut smf, "prepare"), [0, 1]);
        assert_eq!(answer_both(&mut lab, &mut smf, "prepared"), [0, 2]);
        assert_eq!(lab.gnbs[1 - n].connected(), 1, "the source waits for the UPFs");
        assert_eq!(answer_both(&mut lab, &mut smf, "complete"), [0, 1]);
        assert_eq!((lab.gnbs[1 - n].connected(), succeeded(&lab, Kind::Handover)), (0, hop + 1));
        is_at(&lab, &smf, n, &[5, 6]);
    }
    // The UE is served at its new gNB.
    lab.ue_does(|ue, _, out| ue.release(6, out).expect("a request"));
    smf.serve(&mut lab);
    lab.idle();
    smf.serve(&mut lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    is_at(&lab, &smf, 1, &[5]);
    lab.xn(ALL, |_| true);
    smf.serve(&mut lab);
    is_at(&lab, &smf, 0, &[5]);
    assert!(!lab.notes.iter().any(|note| matches!(note, Note::Failed(..) | Note::Fault(_))), "{:?}", lab.notes);
}

/// Returns the sessions with a downlink tunnel, and the address of its gNB.
fn towards(smf: &Smf) -> Vec<(u8, std::net::IpAddr)> {
    smf.sessions.iter().filter_map(|(_, sm)| Some((sm.psi, sm.downlink?.address))).collect()
}

fn sent(lab: &Lab, kind: NgapPduKind) -> usize {
    let is = |pdu: &&Vec<u8>| NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind() == kind;
    lab.sent.iter().filter(is).count()
}

/// Answers the AMF's current requests, which must be for `step`.
fn answer_all(lab: &mut Lab, smf: &mut Smf, step: &'static str) {
    let new_requests = smf.new_requests(lab);
    assert!(steps(&new_requests).iter().all(|(_, new_requests)| *new_requests == step), "{step}: {new_requests:?}");
    for (number, request) in new_requests {
        smf.answer(lab, number, request);
        lab.settle();
    }
}

/// Asserts that the UE is still at its gNB and served, that no handover state is left, and that the
/// next handover works.
fn stays(lab: &mut Lab, smf: &mut Smf, sessions: &[u8]) {
    lab.settle();
    smf.serve(lab);
    is_at(lab, smf, 0, sessions);
    assert_eq!((lab.gnbs[1].connected(), succeeded(lab, Kind::Handover)), (0, 0));
    assert!(smf.sessions.iter().all(|(_, sm)| sm.handover.target.is_none()), "nothing is prepared any more");
    (lab.arrives, lab.reachable) = (true, true);
    lab.gnbs[1].refuse_handover(false);
    lab.n2(2);
    smf.serve(lab);
    is_at(lab, smf, 1, sessions);
}

/// Starts an N2 handover and stops where the SMFs have the requests for `step`.
fn until(step: &'static str) -> (Lab, Smf) {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.arrives = false;
    lab.n2(2);
    for earlier in ["prepare", "prepared"] {
        if earlier == step {
            return (lab, smf);
        }
        answer_all(&mut lab, &mut smf, earlier);
    }
    if step == "complete" {
        lab.arrive();
    }
    (lab, smf)
}

#[test]
fn unusable_target_leaves_ue_at_source() {
    let (mut lab, mut smf) = with_sessions(&[5]);
    lab.n2(77);
    assert_eq!(smf.new_requests(&lab), [], "of no target nobody hears");
    lab.gnbs[1].refuse_handover(true);
    lab.n2(2);
    answer_all(&mut lab, &mut smf, "prepare");
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 2);
    answer_all(&mut lab, &mut smf, "cancel");
    stays(&mut lab, &mut smf, &[5]);
}

/// HANDOVER CANCEL, and the loss of the target, at each step.
#[test]
fn abandoned_handover_leaves_ue_at_source() {
    for step in ["prepare", "prepared", "on its way"] {
        for cancels in [true, false] {
            let (mut lab, mut smf) = until(step);
            let mut new_requests = smf.new_requests(&lab);
            match cancels {
                true => lab.gnb_does(|gnb, ran, out| gnb.cancel_handover(ran, out).expect("a request")),
                false => lab.event(Event::ConnectionLost { assoc: AssocId(ASSOC.0 + 1) }),
            }
            lab.settle();
            let failed = usize::from(!cancels && step != "on its way");
            assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), failed, "{step}");
            assert_eq!(sent(&lab, NgapPduKind::Successful_HandoverCancel), usize::from(cancels), "{step}");
            // A target without a request is sent nothing.
            let content = sent(&lab, NgapPduKind::Initiating_UEContextRelease);
            assert_eq!(content, usize::from(step != "prepare"), "{step}");
            let cancelled = smf.new_requests(&lab);
            assert_eq!(steps(&cancelled), [(0, "cancel"), (1, "cancel")], "{step}");
            // Late responses to earlier requests are ignored.
            new_requests.extend(cancelled);
            for (number, request) in new_requests {
                smf.answer(&mut lab, number, request);
            }
            if cancels {
                stays(&mut lab, &mut smf, &[5, 6]);
            } else {
                is_at(&lab, &smf, 0, &[5, 6]);
            }
        }
    }
}

/// No response: of the SMFs, of the target, of the SMFs again, and no arrival of the UE.
#[test]
fn silent_party_is_awaited_ten_seconds() {
    for step in ["prepare", "target", "prepared", "on its way"] {
        let (mut lab, mut smf) = match step {
            "target" => with_sessions(&[5, 6]),
            _ => until(step),
        };
        if step == "target" {
            lab.n2(2);
            let new_requests = smf.new_requests(&lab);
            lab.reachable = false;
            for (number, request) in new_requests {
                smf.answer(&mut lab, number, request);
            }
        }
        let late = smf.new_requests(&lab);
        lab.wait(Duration::from_secs(9));
        assert!(lab.context().is_some_and(|c| c.handover.is_some()), "{step}");
        lab.wait(Duration::from_secs(2));
        assert!(lab.context().is_some_and(|c| c.handover.is_none() && c.remote_sessions.handover.is_none()), "{step}");
        lab.reachable = true;
        let failed = usize::from(step != "on its way");
        assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), failed, "{step}");
        for (number, request) in late {
            smf.answer(&mut lab, number, request);
        }
        if step != "target" {
            stays(&mut lab, &mut smf, &[5, 6]);
        }
    }
}

/// A session is not handed over, and ends, if its SMF does not have it, does not respond, or has no
/// user plane for it. The other session is handed over.
#[test]
fn unprepared_session_does_not_stop_others() {
    type Change = fn(&mut Lab, &mut Smf);
    let cases: [(Change, &str); 4] = [
        (|_, smf| drop(smf.sessions.pop()), "the SMF has lost it"),
        (
            |_, smf| {
                let sm = &mut smf.sessions[1].1;
                (sm.ran, sm.downlink) = (RanState::Idle, None);
            },
            "it has no user plane, as the SMF knows it",
        ),
        (
            |lab, smf| {
                smf.sessions.pop();
                lab.event(Event::SmContextReleased { number: 1 });
            },
            "it ends meanwhile",
        ),
        (|_, smf| smf.silent = true, "the SMF does not answer"),
    ];
    for step in ["prepare", "prepared"] {
        for (change, reason) in cases {
            let (mut lab, mut smf) = until(step);
            let mut new_requests = smf.new_requests(&lab);
            new_requests.sort_by_key(|(number, _)| *number);
            change(&mut lab, &mut smf);
            let (number, request) = new_requests.remove(1);
            smf.answer(&mut lab, number, request);
            smf.silent = false;
            let (number, request) = new_requests.remove(0);
            smf.answer(&mut lab, number, request);
            lab.settle();
            smf.serve(&mut lab);
            let goes = |event: &&gnb::Event| matches!(event, gnb::Event::HandoverCommand { .. });
            assert_eq!(lab.gnb_events.iter().filter(goes).count(), 1, "{step}: {reason}");
            lab.arrive();
            smf.serve(&mut lab);
            assert_eq!(succeeded(&lab, Kind::Handover), 1, "{step}: {reason}");
            let context = lab.context().expect("a context");
            assert!(
                context.handover.is_none() && context.source.is_none() && context.remote_sessions.handover.is_none()
            );
            let to = std::net::IpAddr::from([127, 0, 0, 3]);
            assert_eq!(towards(&smf), [(5, to)], "{step}: {reason}");
            let up: Vec<_> = context.remote_sessions.sessions.iter().filter(|s| s.up).map(|s| s.psi).collect();
            assert_eq!(up, [5], "{step}: {reason}");
        }
    }
}

/// No session is prepared: the source is informed, and no target is requested.
#[test]
fn handover_without_prepared_session_fails() {
    let (mut lab, mut smf) = until("prepare");
    smf.silent = true;
    answer_all(&mut lab, &mut smf, "prepare");
    smf.silent = false;
    assert_eq!(sent(&lab, NgapPduKind::Initiating_HandoverResourceAllocation), 0);
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 1);
    stays(&mut lab, &mut smf, &[5, 6]);
    let (mut lab, mut smf) = until("prepared");
    smf.silent = true;
    answer_all(&mut lab, &mut smf, "prepared");
    smf.silent = false;
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 1);
    stays(&mut lab, &mut smf, &[5, 6]);
}

/// The target admits one of two sessions: the source gets the cause from the SMF, and the other
/// session ends.
#[test]
fn session_refused_by_target_ends() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.gnbs[1].refuse_session(Some(6));
    lab.n2(2);
    answer_all(&mut lab, &mut smf, "prepare");
    let new_requests = smf.new_requests(&lab);
    assert_eq!(steps(&new_requests), [(0, "prepared"), (1, "not taken")]);
    for (number, request) in new_requests {
        smf.answer(&mut lab, number, request);
        lab.settle();
    }
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 6 }), "{:?}", lab.events);
    is_at(&lab, &smf, 1, &[5]);
    assert_eq!((smf.sessions.len(), stages(&lab).len()), (1, 1));
}

/// It is unknown whether packets reach the UE: it becomes idle and reconnects where it is.
#[test]
fn smf_missing_completion_reactivates_session() {
    let (mut lab, mut smf) = until("complete");
    smf.silent = true;
    answer_all(&mut lab, &mut smf, "complete");
    smf.silent = false;
    smf.serve(&mut lab);
    assert!(lab.ran.is_none() && lab.context().is_some_and(|c| c.is_registered() && c.source.is_none()));
    assert_eq!(towards(&smf), []);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    is_at(&lab, &smf, 1, &[5, 6]);
}

/// After the crash of a worker, its successor may receive two responses to one request; any second
/// response is ignored.
#[test]
fn repeated_answer_changes_nothing() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.n2(2);
    for step in ["prepare", "prepared", "complete"] {
        let new_requests = smf.new_requests(&lab);
        assert_eq!(steps(&new_requests), [(0, step), (1, step)]);
        for (number, request) in new_requests {
            smf.answer(&mut lab, number, request.clone());
            lab.event(Event::Smf { number, request, response: SmfResponse::Silence, sm_context: None });
            lab.settle();
        }
    }
    is_at(&lab, &smf, 1, &[5, 6]);
    assert_eq!((smf.new_requests(&lab), succeeded(&lab, Kind::Handover)), (vec![], 1));
    assert_eq!(lab.gnbs[0].connected(), 0);
}

/// Stops at `step`, where the SMF of the second session does not respond and that of the first one
/// does.
fn one_is_silent(step: &'static str) -> (Lab, Smf) {
    let (mut lab, mut smf) = until(step);
    let mut new_requests = smf.new_requests(&lab);
    let (number, request) = new_requests.remove(1);
    lab.event(Event::Smf { number, request, response: SmfResponse::Silence, sm_context: None });
    let (number, request) = new_requests.remove(0);
    smf.answer(&mut lab, number, request);
    lab.settle();
    (lab, smf)
}

/// An SMF that did not respond whether it has prepared a session is sent a cancellation before the
/// completion.
#[test]
fn smf_silent_on_target_gets_failure() {
    let (mut lab, mut smf) = one_is_silent("prepared");
    assert_eq!(steps(&smf.new_requests(&lab)), [(1, "cancel")]);
    lab.arrive();
    assert_eq!(steps(&smf.new_requests(&lab)), [(0, "complete"), (1, "complete")]);
}

/// The UE releases a session before it moves; and the SMF releases one while the UE moves, of which
/// the UE learns at the target.
#[test]
fn session_released_in_handover_ends() {
    let (mut lab, mut smf) = until("prepared");
    let new_requests = smf.new_requests(&lab);
    lab.ue_does(|ue, _, out| ue.release(6, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 6 }), "{:?}", lab.events);
    for (number, request) in new_requests {
        smf.answer(&mut lab, number, request);
    }
    lab.settle();
    lab.arrive();
    smf.serve(&mut lab);
    // The target keeps its resources of that session, which belong to no session of the core.
    let to = std::net::IpAddr::from([127, 0, 0, 3]);
    assert_eq!((towards(&smf), stages(&lab)), (vec![(5, to)], vec![(RemoteStage::Established, true)]));
    assert_eq!((lab.at, succeeded(&lab, Kind::Handover)), (1, 1));

    let (mut lab, mut smf) = until("on its way");
    let name = smf.sessions[1].0.clone();
    let (content, _) = smf.update(&lab, &name, Input::Release(39)).expect("a session");
    let transfer = smf.transfer(6, content);
    let before = lab.sent.len();
    lab.event(Event::Transfer(transfer));
    assert_eq!(lab.sent.len(), before, "it is at neither gNB");
    lab.arrive();
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 6 }), "{:?}", lab.events);
    is_at(&lab, &smf, 1, &[5]);
}

/// An SMF that did not respond to the preparation is sent a cancellation once the others have
/// responded.
#[test]
fn smf_silent_on_preparation_gets_cancel() {
    let (lab, mut smf) = one_is_silent("prepare");
    assert_eq!(steps(&smf.new_requests(&lab)), [(1, "cancel"), (0, "prepared")]);
}

/// A container too large for the context is refused: each gNB is informed, and the UE stays at the
/// source.
#[test]
fn oversized_container_is_refused() {
    let required = |lab: &mut Lab, octets: usize| {
        let (id, area) = (lab.gnbs[1].config().id, lab.gnbs[1].config().tai);
        lab.gnb_does(|gnb, ran, out| {
            gnb.set_container(octets);
            gnb.require_handover(ran, id, area, out).expect("a request");
        });
    };
    let (mut lab, mut smf) = with_sessions(&[5]);
    lab.arrives = false;
    required(&mut lab, 16 * 1024 + 1);
    assert_eq!(smf.new_requests(&lab), []);
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 1);
    assert!(lab.notes.contains(&Note::fault("limit")));
    // Container of the target's response.
    lab.gnbs[1].set_container(16 * 1024 + 1);
    required(&mut lab, 16 * 1024);
    answer_all(&mut lab, &mut smf, "prepare");
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 2);
    answer_all(&mut lab, &mut smf, "cancel");
    lab.gnbs[1].set_container(16);
    stays(&mut lab, &mut smf, &[5]);
}

/// The UE requests the user plane of another session, and its SMF responds while the UE moves. The
/// session is set up at the target, and nothing is sent to the source.
#[test]
fn service_in_handover_continues_at_target() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    let (name, _) = smf.sessions[1].clone();
    smf.update(&lab, &name, Input::Deactivate).expect("a session");
    lab.change(|ue| ue.remote_sessions.by_psi(6).expect("a session").up = false);
    lab.arrives = false;
    lab.n2(2);
    let activates = SmfRequest::Update { reference: name, update: SmfUpdateRequest::Activate };
    let accept = PendingServiceAccept { request: Request::default(), waiting: 1 << 6, items: Vec::new() };
    lab.change(|ue| ue.remote_sessions.pending_accept = Some(accept));
    for step in ["prepare", "prepared"] {
        let new_requests = smf.new_requests(&lab);
        assert_eq!(steps(&new_requests), [(0, step)]);
        new_requests.into_iter().for_each(|(number, request)| smf.answer(&mut lab, number, request));
        lab.settle();
    }
    let (before, before_setups) = (lab.sent.len(), sent(&lab, NgapPduKind::Initiating_PDUSessionResourceSetup));
    smf.answer(&mut lab, 1, activates);
    lab.settle();
    assert_eq!(lab.sent.len(), before, "the UE does not hear the source any more");
    // The emulator's UE has not requested it, and would report a violation.
    lab.reachable = false;
    lab.arrive();
    assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceSetup), before_setups + 1);
    assert_eq!(steps(&smf.new_requests(&lab)), [(0, "complete"), (1, "complete")]);
    let mut context = lab.context().expect("a context");
    assert!(
        context.remote_sessions.pending_accept.is_none()
            && context.remote_sessions.by_psi(6).is_some_and(|session| session.up)
    );
    assert!(
        context.remote_sessions.handover.is_some_and(|handover| handover.accepted.iter().any(|(psi, ..)| *psi == 6))
    );
}
