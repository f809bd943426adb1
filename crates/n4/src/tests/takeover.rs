use super::*;

fn shared(config: &mut Config) {
    config.shared = true;
}

/// Creates an endpoint that takes over and has sent its setup request.
fn taking_over() -> Bench {
    let mut bench = Bench::new(shared);
    bench.n4.deactivate(bench.now);
    bench.pass(SECOND);
    assert_eq!((bench.sent().len(), bench.take_events()), (0, vec![]), "it says nothing until it is its turn");
    bench.n4.activate(bench.now, true, &mut bench.net);
    bench
}

#[test]
fn queued_request_without_association_fails() {
    let mut bench = taking_over();
    let setup = bench.sent_one();
    let request = AssociationSetupRequest::parse(&view(&setup)).expect("sound");
    assert!(request.session_retention.is_some());
    assert_eq!(bench.submit(Some(5), seid(1), &deletion()), Ok(SubmitResult::Waiting));
    bench.pass(Duration::from_millis(4_000));
    bench.tick();
    // The UPF's state at the previous endpoint is invalid.
    let seen =
        [OwnedEvent::Failed(None), OwnedEvent::Down { sessions_kept: true }, OwnedEvent::Timeout(seid(1), Some(5))];
    assert_eq!(bench.take_events(), seen);
    assert_eq!(bench.submit(Some(6), seid(2), &deletion()), Err(SubmitError::NoAssociation(UPF)));
    bench.pass(Duration::from_secs(10));
    let seen = bench.take_events();
    assert!(!seen.contains(&OwnedEvent::Down { sessions_kept: true }), "said once: {seen:?}");
}

#[test]
fn deactivation_drops_queued_requests() {
    let mut bench = taking_over();
    bench.sent();
    bench.submit(Some(5), seid(1), &deletion()).expect("it waits");
    bench.n4.deactivate(bench.now);
    bench.pass(Duration::from_secs(30));
    assert_eq!((bench.sent().len(), bench.take_events(), bench.n4.counters().outstanding), (0, vec![], 0));
    let heartbeat = node(&HeartbeatRequest { recovery_time_stamp: STARTED }, 4);
    bench.receive(&heartbeat);
    assert_eq!(bench.sent_kinds(), [], "the UPF asks whether it may give its sessions to another endpoint");
}

#[test]
fn derived_number_is_not_reused() {
    let mut bench = Bench::associated_with(shared);
    bench.submit(Some(5), seid(1), &deletion()).expect("sent");
    let number = view(&bench.sent_one()).sequence();
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, number));
    // The next number of the endpoint would be the same.
    bench.n4.peers[0] = Peer::new(UPF, number, SECOND);
    bench.n4.peers[0].state = State::Up { since: bench.now, heartbeat_at: None, release_at: None };
    bench.submit(None, seid(2), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), (number + 1) & 0x00ff_ffff);
    // With the same key it is the same request.
    bench.submit(Some(5), seid(1), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), number);
}

#[test]
fn report_goes_to_endpoint_of_session() {
    let mut bench = Bench::associated_with(shared);
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99));
    let mut octets = Vec::new();
    let request = SessionEstablishmentRequest::new(CP.into(), FSeid::new(seid(1).0, elsewhere));
    request.emit(&mut octets, 0, 0).expect("fits");
    bench.submit(Some(1), seid(1), &octets).expect("sent");
    let sent = bench.sent_one();
    assert_eq!(view(&sent).need::<FSeid>(), Ok(FSeid::new(seid(1).0, CP)));
}
