//! Handovers in SBA mode.

use super::*;

#[test]
fn path_switch_waits_for_all_smfs() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    for (hop, n) in [1, 0, 1].into_iter().enumerate() {
        lab.xn(ALL, |_| true);
        let new_requests = smf.new_requests(&lab);
        let places = new_requests.iter().map(|(_, request)| match request {
            SmfRequest::Update { update: SmfUpdateRequest::Switch(_, (tai, _)), .. } => tai.tac,
            other => panic!("{other:?}"),
        });
        assert_eq!(places.collect::<Vec<_>>(), [Tac(1 + n as u32); 2], "where the UE is");
        // The last request is answered first.
        for (waits, (number, request)) in new_requests.into_iter().rev().enumerate() {
            assert_eq!(answers(&lab), (hop, 0), "{waits} of 2");
            smf.answer(&mut lab, number, request);
            lab.settle();
        }
        assert_eq!(answers(&lab), (hop + 1, 0));
        is_at(&lab, &smf, n, &[5, 6]);
    }
    assert_eq!((succeeded(&lab, Kind::PathSwitch), succeeded(&lab, Kind::Session)), (3, 2), "{:?}", lab.notes);
    // The UE is served at its new gNB.
    lab.ue_does(|ue, _, out| ue.release(6, out).expect("a request"));
    smf.serve(&mut lab);
    lab.idle();
    smf.serve(&mut lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    is_at(&lab, &smf, 1, &[5]);
}

#[test]
fn unswitched_session_does_not_delay_others() {
    type Change = fn(&mut Lab, &mut Smf);
    let cases: [(Change, bool, &str); 4] = [
        (|_, smf| drop(smf.sessions.pop()), false, "the SMF has lost it"),
        (|_, smf| smf.sessions[1].1.ran = RanState::Idle, true, "it has no user plane, as the SMF knows it"),
        (
            |lab, smf| {
                smf.sessions.pop();
                lab.event(Event::SmContextReleased { number: 1 });
            },
            false,
            "it ends meanwhile",
        ),
        (|_, _| (), true, "the SMF does not answer"),
    ];
    for (change, is_left, reason) in cases {
        let (mut lab, mut smf) = with_sessions(&[5, 6]);
        lab.xn(ALL, |_| true);
        let mut new_requests = smf.new_requests(&lab);
        change(&mut lab, &mut smf);
        let (number, request) = new_requests.remove(1);
        smf.silent = reason.ends_with("answer");
        smf.answer(&mut lab, number, request);
        smf.silent = false;
        assert_eq!(answers(&lab), (0, 0), "{reason}");
        let (number, request) = new_requests.remove(0);
        smf.answer(&mut lab, number, request);
        lab.settle();
        smf.serve(&mut lab);
        assert_eq!(answers(&lab), (1, 0), "{reason}");
        is_at(&lab, &smf, 1, &[5]);
        let is_there = lab.context().is_some_and(|c| c.remote_sessions.sessions.iter().any(|s| s.psi == 6));
        assert_eq!(is_there, is_left && reason.ends_with("answer"), "{reason}");
        let buffers = smf.sessions.iter().all(|(_, sm)| sm.psi == 5 || sm.downlink.is_none());
        assert!(buffers, "{reason}");
    }
}

/// The SMF has switched the session, and the RAN is told to release it before the path switch is
/// acknowledged: nothing is left to switch.
#[test]
fn session_ended_before_switch_is_not_reported() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.xn(ALL, |_| true);
    let mut new_requests = smf.new_requests(&lab);
    let (number, request) = new_requests.remove(0);
    smf.answer(&mut lab, number, request);
    lab.settle();
    lab.ue_does(|ue, _, out| ue.release(5, out).expect("a request"));
    let [(number, request)] = smf.new_requests(&lab).try_into().expect("one question");
    smf.answer(&mut lab, number, request);
    smf.silent = true;
    let (number, request) = new_requests.remove(0);
    smf.answer(&mut lab, number, request);
    lab.settle();
    assert_eq!(answers(&lab), (0, 1));
}

#[test]
fn session_refused_by_new_gnb_ends() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    lab.xn(ALL, |psi| psi == 6);
    smf.serve(&mut lab);
    assert_eq!(answers(&lab), (1, 0));
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 5 }), "{:?}", lab.events);
    is_at(&lab, &smf, 1, &[6]);
    assert_eq!(smf.sessions.len(), 1);
}

#[test]
fn path_switch_without_any_session_is_refused() {
    // No session exists, and no SMF switches it.
    let (mut lab, mut smf) = with_sessions(&[5]);
    smf.silent = true;
    lab.xn(ALL, |_| true);
    smf.serve(&mut lab);
    assert_eq!((answers(&lab), lab.notes.contains(&Note::Failed(Kind::PathSwitch, 0))), ((0, 1), true));
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.connection.is_none() && context.remote_sessions.handover.is_none());
    smf.silent = false;
    smf.serve(&mut lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    smf.serve(&mut lab);
    is_at(&lab, &smf, 1, &[5]);

    let ran = lab.ran.expect("a connection");
    let mut handed = lab.gnbs[1].handover_context(ran, ALL).expect("a UE");
    handed.tunnels[0].psi = 9;
    let mut out = gnb::Outbox::default();
    lab.gnbs[0].path_switch(handed, |_| true, &mut out).expect("a request");
    lab.bring_to_core(0, &out);
    lab.settle();
    assert_eq!((answers(&lab), smf.new_requests(&lab)), ((0, 2), vec![]));
    is_at(&lab, &smf, 1, &[5]);
}

/// The UE moves again before the SMF has responded: the late response is ignored.
#[test]
fn path_switch_overtakes_previous() {
    let (mut lab, mut smf) = with_sessions(&[5]);
    lab.xn(ALL, |_| true);
    let (number, first) = smf.new_requests(&lab).remove(0);
    lab.xn(ALL, |_| true);
    smf.answer(&mut lab, number, first);
    lab.settle();
    assert_eq!(answers(&lab), (0, 0));
    smf.serve(&mut lab);
    assert_eq!(answers(&lab), (1, 0));
    is_at(&lab, &smf, 0, &[5]);
}

/// The new RAN node has released the sessions that it does not name (TS 38.413 8.4.4.2).
#[test]
fn unnamed_session_becomes_idle() {
    let (mut lab, mut smf) = with_sessions(&[5, 6]);
    let ran = lab.ran.expect("a connection");
    let mut handed = lab.gnbs[0].handover_context(ran, ALL).expect("a UE");
    lab.gnbs[0].forget(ran);
    handed.tunnels.retain(|tunnel| tunnel.psi == 5);
    let mut out = gnb::Outbox::default();
    (lab.ran, lab.at) = (Some(lab.gnbs[1].path_switch(handed, |_| true, &mut out).expect("a request")), 1);
    lab.bring_to_core(1, &out);
    lab.settle();
    let new_requests = smf.new_requests(&lab);
    assert_eq!(new_requests.len(), 2, "a question for each session: {new_requests:?}");
    for (number, request) in new_requests {
        smf.answer(&mut lab, number, request);
        lab.settle();
    }
    let tunnels = lab.gnbs[1].tunnels(lab.ran.expect("a connection"));
    assert!(!tunnels.is_empty() && tunnels.iter().all(|tunnel| tunnel.psi == 5));
    assert_eq!(answers(&lab), (1, 0));
    assert_eq!(stages(&lab), [(RemoteStage::Established, true), (RemoteStage::Established, false)]);
    assert!(smf.sessions[1].1.downlink.is_none(), "the UPF buffers");
}
