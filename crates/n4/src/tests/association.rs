use super::*;

#[test]
fn association_setup_is_retried() {
    let mut bench = Bench::new(|_| {});
    // 1 + N1 transmissions with one number, then after 0.5 s, 1 s, 2 s and so on up to 30 s
    bench.pass(Duration::from_millis(4_000));
    let sent = bench.sent();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|octets| *octets == sent[0]));
    let request = AssociationSetupRequest::parse(&view(&sent[0])).expect("sound");
    assert_eq!((request.node_id, request.recovery_time_stamp), (CP.into(), RecoveryTimeStamp(1)));
    bench.pass(Duration::from_millis(499));
    assert_eq!((bench.sent().len(), bench.take_events()), (0, vec![OwnedEvent::Failed(None)]));
    bench.pass(Duration::from_millis(2));
    assert_eq!(bench.sent().len(), 1);
    // refused: the next wait is twice as long
    let refusal = setup_response(Cause::CONGESTION, STARTED, view(&sent[0]).sequence() + 1);
    bench.receive(&refusal);
    assert_eq!(bench.take_events(), [OwnedEvent::Failed(Some(Cause::CONGESTION))]);
    bench.pass(Duration::from_millis(998));
    assert_eq!(bench.sent().len(), 0);
    bench.pass(Duration::from_millis(4));
    bench.answer_setup();
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
    assert!(bench.n4.is_up(UPF));
}

#[test]
fn waits_between_attempts_are_bounded() {
    let mut bench = Bench::new(|config| config.n1 = 0);
    bench.pass(Duration::from_secs(600));
    // 1 s of T1 for each, and 0.5 + 1 + 2 + 4 + 8 + 16, then 30 s
    assert_eq!(bench.sent().len(), 7 + (600 - 37) / 31);
}

#[test]
fn heartbeats_go_out_and_are_answered() {
    let mut bench = Bench::associated();
    for _ in 0..3 {
        bench.pass(Duration::from_secs(10));
        bench.tick();
        bench.answer_heartbeat();
    }
    let request = node(&HeartbeatRequest { recovery_time_stamp: STARTED }, 9);
    bench.receive(&request);
    bench.receive(&request);
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    let response = HeartbeatResponse::parse(&view(&sent[0])).expect("sound");
    assert_eq!((response.recovery_time_stamp, view(&sent[0]).sequence()), (RecoveryTimeStamp(1), 9));
    assert_eq!(bench.take_events(), []);
}

#[test]
fn silent_upf_returns_with_its_sessions() {
    let mut bench = Bench::associated();
    bench.pass(Duration::from_secs(13));
    assert_eq!(bench.sent_kinds(), [MessageType::HEARTBEAT_REQUEST; 4]);
    assert_eq!(bench.submit(Some(1), seid(1), &deletion()), Ok(SubmitResult::Sent));
    bench.pass(SECOND);
    bench.tick();
    // pending requests time out with it, and no more can be sent
    assert_eq!(bench.take_events(), [OwnedEvent::Down { sessions_kept: true }, OwnedEvent::Timeout(seid(1), Some(1))]);
    assert_eq!(bench.submit(None, seid(1), &deletion()), Err(SubmitError::NoAssociation(UPF)));
    bench.sent();
    bench.pass(Duration::from_millis(501));
    bench.answer_heartbeat();
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
    assert_eq!(bench.submit(None, seid(1), &deletion()), Ok(SubmitResult::Sent));
}

#[test]
fn restarted_upf_is_detected_by_response() {
    let mut bench = Bench::associated();
    bench.submit(Some(1), seid(1), &deletion()).expect("sent");
    bench.sent();
    bench.now = bench.now + Duration::from_secs(10);
    bench.n4.tend(bench.now, 0, &mut bench.net);
    bench.upf_started = RecoveryTimeStamp(STARTED.0 - 5); // its clock may have gone back
    bench.answer_heartbeat();
    assert_eq!(bench.take_events(), [OwnedEvent::Restarted, OwnedEvent::Timeout(seid(1), Some(1))]);
    assert!(!bench.n4.is_up(UPF));
    bench.answer_setup();
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
}

#[test]
fn restarted_upf_is_detected_by_heartbeat() {
    let mut bench = Bench::associated();
    bench.receive(&node(&HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(STARTED.0 - 1) }, 1));
    assert_eq!((bench.take_events(), bench.sent_kinds()), (vec![], vec![MessageType::HEARTBEAT_RESPONSE]));
    bench.upf_started = RecoveryTimeStamp(STARTED.0 + 1);
    bench.receive(&node(&HeartbeatRequest { recovery_time_stamp: bench.upf_started }, 2));
    assert_eq!(bench.take_events(), [OwnedEvent::Restarted]);
    assert_eq!(view(&bench.net.sent.remove(0).1).message_type(), MessageType::HEARTBEAT_RESPONSE);
    bench.answer_setup();
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
}

#[test]
fn restart_during_outage_is_detected() {
    let mut bench = Bench::associated();
    bench.pass(Duration::from_secs(14));
    bench.tick();
    assert_eq!(bench.take_events(), [OwnedEvent::Down { sessions_kept: true }]);
    bench.sent();
    bench.upf_started = RecoveryTimeStamp(STARTED.0 + 9);
    bench.pass(Duration::from_millis(501));
    bench.answer_heartbeat();
    assert_eq!(bench.take_events(), [OwnedEvent::Restarted]);
    bench.answer_setup();
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
}

#[test]
fn upf_without_association_lost_sessions() {
    let mut bench = Bench::associated();
    bench.submit(None, seid(1), &deletion()).expect("sent");
    let sequence = view(&bench.sent_one()).sequence();
    bench.receive(&deletion_response(Cause::NO_ESTABLISHED_ASSOCIATION, 0, sequence));
    let seen = bench.take_events();
    assert!(matches!(seen[..], [OwnedEvent::Delivered { .. }, OwnedEvent::Restarted]), "{seen:?}");
    bench.answer_setup();
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
}

fn setup_request(recovery_time_stamp: RecoveryTimeStamp, sequence: u32) -> Vec<u8> {
    let up_function_features = Some(UpFunctionFeatures::FTUP);
    let node_id = upf_node_id();
    let cp_function_features = None;
    let request = AssociationSetupRequest {
        node_id,
        recovery_time_stamp,
        up_function_features,
        cp_function_features,
        session_retention: None,
    };
    node(&request, sequence)
}

#[test]
fn upf_may_begin() {
    let mut bench = Bench::new(|_| {});
    bench.tick();
    let ours = view(&bench.sent_one()).sequence();
    bench.receive(&setup_request(STARTED, 5));
    let response = bench.sent_one();
    assert_eq!(view(&response).get(), Ok(Some(Cause::REQUEST_ACCEPTED)));
    assert_eq!(bench.take_events(), [OwnedEvent::Up]);
    // the response to our request, which crossed the UPF's request, changes nothing
    bench.receive(&setup_response(Cause::REQUEST_ACCEPTED, STARTED, ours));
    bench.receive(&setup_request(STARTED, 5));
    assert_eq!(bench.sent_one(), response);
    assert_eq!(bench.take_events(), []);
    // a new setup request much later starts a new association, whatever its time stamp (TS 29.244
    // 6.2.6)
    bench.now = bench.now + Duration::from_secs(60);
    bench.receive(&setup_request(STARTED, 6));
    assert_eq!(bench.take_events(), [OwnedEvent::Restarted, OwnedEvent::Up]);
}

#[test]
fn upf_may_end_it() {
    let mut bench = Bench::associated();
    bench.submit(None, seid(3), &deletion()).expect("sent");
    bench.sent();
    let request = node(&AssociationReleaseRequest { node_id: upf_node_id() }, 5);
    bench.receive(&request);
    let response = bench.sent_one();
    assert_eq!(view(&response).get(), Ok(Some(Cause::REQUEST_ACCEPTED)));
    assert_eq!(bench.take_events(), [OwnedEvent::Down { sessions_kept: false }, OwnedEvent::Timeout(seid(3), None)]);
    // a repeat gets the same response; a new request finds no association
    bench.receive(&request);
    assert_eq!(bench.sent_one(), response);
    bench.receive(&node(&AssociationReleaseRequest { node_id: upf_node_id() }, 6));
    assert_eq!(view(&bench.sent_one()).get(), Ok(Some(Cause::NO_ESTABLISHED_ASSOCIATION)));
    assert_eq!(bench.take_events(), []);
}

#[test]
fn upf_may_ask_for_end() {
    let mut bench = Bench::associated();
    let update = AssociationUpdateRequest {
        node_id: upf_node_id(),
        up_function_features: None,
        cp_function_features: None,
        release_requested: Some(AssociationReleaseRequested::SARR),
        graceful_release_period: Some(GracefulReleasePeriod::at_least(Duration::from_secs(6))),
        flags: None,
    };
    bench.receive(&node(&update, 5));
    assert_eq!(bench.sent_kinds(), [MessageType::ASSOCIATION_UPDATE_RESPONSE]);
    assert_eq!(bench.take_events(), [OwnedEvent::Releasing(Duration::from_secs(6))]);
    // sessions can be relocated until then
    assert_eq!(bench.submit(None, seid(1), &deletion()), Ok(SubmitResult::Sent));
    let sequence = view(&bench.sent_one()).sequence();
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, 1, sequence));
    assert_eq!(bench.take_events().len(), 1);
    bench.pass(Duration::from_millis(6_001));
    let request = bench.sent_one();
    assert_eq!(view(&request).message_type(), MessageType::ASSOCIATION_RELEASE_REQUEST);
    let response = AssociationReleaseResponse { node_id: upf_node_id(), cause: Cause::REQUEST_ACCEPTED };
    bench.receive(&node(&response, view(&request).sequence()));
    assert_eq!(bench.take_events(), [OwnedEvent::Down { sessions_kept: false }]);
    assert_eq!(bench.submit(None, seid(1), &deletion()), Err(SubmitError::NoAssociation(UPF)));
}

#[test]
fn drain_releases_every_association() {
    let other = SocketAddr::from(([192, 0, 2, 3], PORT));
    let mut bench = Bench::new(|config| config.upfs.push(other));
    bench.tick();
    let requests = bench.sent();
    assert_eq!(requests.len(), 2);
    bench.receive(&setup_response(Cause::REQUEST_ACCEPTED, STARTED, view(&requests[0]).sequence()));
    assert!(!bench.n4.is_releasing());
    bench.n4.release_all(bench.now, &mut bench.net);
    assert_eq!(bench.net.sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [UPF]);
    let request = bench.sent_one();
    assert_eq!(view(&request).message_type(), MessageType::ASSOCIATION_RELEASE_REQUEST);
    assert!(bench.n4.is_releasing());
    let response = AssociationReleaseResponse { node_id: upf_node_id(), cause: Cause::REQUEST_ACCEPTED };
    bench.receive(&node(&response, view(&request).sequence()));
    assert!(!bench.n4.is_releasing());
}

#[test]
fn node_report_names_path() {
    let mut bench = Bench::associated();
    let gnb = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let report = NodeReportRequest {
        node_id: upf_node_id(),
        report_type: NodeReportType::UPFR,
        path_failure: Some(UserPlanePathFailureReport { remote_peers: [RemoteGtpuPeer(gnb)].into_iter().collect() }),
        path_recovery: None,
    };
    bench.receive(&node(&report, 4));
    assert_eq!(view(&bench.sent_one()).get(), Ok(Some(Cause::REQUEST_ACCEPTED)));
    assert_eq!(bench.take_events(), [OwnedEvent::Path(gnb, false)]);
    // a report without Node ID is rejected, and the response names the element
    let mut octets = Vec::new();
    let mut builder = Builder::new(&mut octets, MessageType::NODE_REPORT_REQUEST, None, 5);
    builder.put(&NodeReportType::UPFR);
    builder.finish().expect("fits");
    bench.receive(&octets);
    let response = bench.sent_one();
    let response = NodeReportResponse::parse(&view(&response)).expect("sound");
    assert_eq!((response.cause, response.offending_ie), (Cause::MANDATORY_IE_MISSING, Some(OffendingIe(60))));
}
