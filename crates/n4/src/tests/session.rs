use super::*;

#[test]
fn lost_request_is_repeated_then_times_out() {
    let mut bench = Bench::associated();
    assert_eq!(bench.submit(Some(5), seid(1), &deletion()), Ok(SubmitResult::Sent));
    let first = bench.sent_one();
    for _ in 0..3 {
        bench.pass(Duration::from_millis(999));
        assert_eq!(bench.sent().len(), 0);
        bench.pass(Duration::from_millis(1));
        bench.tick();
        assert_eq!(bench.sent_one(), first);
    }
    assert_eq!(bench.take_events(), []);
    bench.pass(SECOND);
    bench.tick();
    assert_eq!(bench.take_events(), [OwnedEvent::Timeout(seid(1), Some(5))]);
    assert_eq!((bench.sent().len(), bench.n4.counters().outstanding), (0, 0));
    assert_eq!((bench.n4.counters().repeated, bench.n4.counters().timeouts), (3, 1));
}

#[test]
fn repeat_recovers_lost_response() {
    let mut bench = Bench::associated();
    bench.submit(None, seid(1), &deletion()).expect("sent");
    bench.pass(Duration::from_millis(2_500));
    let sent = bench.sent();
    assert_eq!(sent.len(), 3);
    let response = deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, view(&sent[2]).sequence());
    bench.receive(&response);
    assert_eq!(bench.take_events(), [OwnedEvent::Delivered { seid: seid(1), request: false, message: response }]);
    bench.pass(Duration::from_secs(5));
    assert_eq!((bench.sent().len(), bench.take_events()), (0, vec![]));
}

#[test]
fn repeated_and_late_responses_are_dropped() {
    let mut bench = Bench::associated();
    bench.submit(None, seid(1), &deletion()).expect("sent");
    let response = deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, view(&bench.sent_one()).sequence());
    bench.receive(&response);
    bench.receive(&response);
    assert_eq!(bench.take_events().len(), 1);
    bench.submit(None, seid(2), &deletion()).expect("sent");
    let response = deletion_response(Cause::REQUEST_ACCEPTED, seid(2).0, view(&bench.sent_one()).sequence());
    bench.pass(Duration::from_millis(4_001));
    assert_eq!(bench.take_events(), [OwnedEvent::Timeout(seid(2), None)]);
    bench.receive(&response);
    assert_eq!((bench.take_events(), bench.n4.counters().unexpected), (vec![], 2));
}

#[test]
fn late_session_is_deleted() {
    let mut bench = Bench::associated();
    let mut establishment = Vec::new();
    let request = SessionEstablishmentRequest::new(CP.into(), FSeid::new(seid(1).0, CP));
    request.emit(&mut establishment, 0, 0).expect("fits");
    bench.submit(Some(1), seid(1), &establishment).expect("sent");
    let sequence = view(&bench.sent_one()).sequence();
    bench.pass(Duration::from_millis(4_001));
    assert_eq!(bench.take_events(), [OwnedEvent::Timeout(seid(1), Some(1))]);
    bench.sent();
    let mut late = Vec::new();
    let response = SessionEstablishmentResponse::accepted(upf_node_id(), FSeid::new(0xabc, UPF.ip()));
    response.emit(&mut late, seid(1).0, sequence).expect("fits");
    bench.receive(&late);
    let deletion = bench.sent_one();
    assert_eq!(
        (view(&deletion).message_type(), view(&deletion).seid()),
        (MessageType::SESSION_DELETION_REQUEST, 0xabc)
    );
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, 0, view(&deletion).sequence()));
    // neither a repeat of the response nor that of an answered request deletes a session
    bench.receive(&late);
    bench.submit(Some(2), seid(2), &establishment).expect("sent");
    let mut good = Vec::new();
    response.emit(&mut good, seid(2).0, view(&bench.sent_one()).sequence()).expect("fits");
    bench.receive(&good);
    bench.receive(&good);
    assert_eq!((bench.sent().len(), bench.take_events().len(), bench.n4.counters().outstanding), (0, 1, 0));
}

#[test]
fn response_goes_to_requesting_session() {
    let mut bench = Bench::associated();
    // the UPF does not know the session and sends SEID 0, or a wrong one
    for wrong in [0, seid(9).0] {
        bench.submit(None, seid(1), &deletion()).expect("sent");
        let response = deletion_response(Cause::SESSION_CONTEXT_NOT_FOUND, wrong, view(&bench.sent_one()).sequence());
        bench.receive(&response);
        assert_eq!(bench.take_events(), [OwnedEvent::Delivered { seid: seid(1), request: false, message: response }]);
    }
    // a response of another type with this number answers nothing
    bench.submit(None, seid(1), &deletion()).expect("sent");
    let sequence = view(&bench.sent_one()).sequence();
    bench.receive(&heartbeat_response(STARTED, sequence));
    assert_eq!(bench.take_events(), []);
    // nor does a response from another address
    let other = SocketAddr::from(([192, 0, 2, 66], PORT));
    bench.receive_from(other, &deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, sequence));
    assert_eq!((bench.take_events(), bench.n4.counters().outstanding), (vec![], 1));
}

#[test]
fn key_identifies_one_request() {
    let mut bench = Bench::associated();
    bench.submit(Some(9), seid(1), &deletion()).expect("sent");
    let first = bench.sent_one();
    assert_eq!(bench.submit(Some(9), seid(1), &deletion()), Ok(SubmitResult::Waiting));
    assert_eq!(bench.sent().len(), 0);
    // other keys are other requests
    bench.submit(Some(10), seid(1), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), view(&first).sequence() + 1);
    // a request that is submitted again after its response, which a crash may have lost, has the
    // same number
    let response = deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, view(&first).sequence());
    bench.receive(&response);
    bench.submit(Some(9), seid(1), &deletion()).expect("sent");
    assert_eq!(bench.sent_one(), first);
    bench.receive(&response);
    let delivered = OwnedEvent::Delivered { seid: seid(1), request: false, message: response };
    assert_eq!(bench.take_events(), [delivered.clone(), delivered]);
    // after the retention at the UPF it is a new request
    bench.now = bench.now + Duration::from_secs(11);
    bench.submit(Some(9), seid(1), &deletion()).expect("sent");
    let sent = bench.sent();
    assert_ne!(view(&sent[0]).sequence(), view(&first).sequence());
}

/// Requests to the UPF of this process leave nothing behind.
#[test]
fn answered_request_is_not_remembered() {
    let mut bench = Bench::associated();
    bench.n4.set_lossless(UPF);
    let mut exchange = || {
        bench.submit(Some(9), seid(1), &deletion()).expect("sent");
        let sequence = view(&bench.sent_one()).sequence();
        bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, sequence));
        sequence
    };
    let first = exchange();
    assert_eq!(exchange(), first + 1, "it is another request");
    // It is one request as long as it has no answer.
    bench.submit(Some(9), seid(1), &deletion()).expect("sent");
    assert_eq!(bench.submit(Some(9), seid(1), &deletion()), Ok(SubmitResult::Waiting));
    // Another UPF may lose responses.
    bench.n4.set_lossless(SocketAddr::from(([192, 0, 2, 66], PORT)));
    bench.sent();
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, first + 2));
    bench.submit(Some(9), seid(1), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), first + 2);
}

#[test]
fn numbers_wrap_and_skip_those_in_use() {
    let mut bench = Bench::associated_with(|config| {
        config.first_sequence = 0x00ff_fffe;
        config.n1 = 200;
    });
    // the setup had fffffe; this request keeps ffffff for the whole round
    bench.submit(None, seid(0), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), 0x00ff_ffff);
    bench.submit(None, seid(1), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), 0);
    bench.n4.peers[0] = Peer::new(UPF, 0x00ff_ffff, SECOND);
    bench.n4.peers[0].state = State::Up { since: bench.now, heartbeat_at: None, release_at: None };
    bench.submit(None, seid(2), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), 1);
}

#[test]
fn pending_requests_are_bounded() {
    let mut bench = Bench::associated_with(|config| config.outstanding = 3);
    for n in 0..3 {
        bench.submit(None, seid(n), &deletion()).expect("room");
    }
    assert_eq!(bench.submit(None, seid(3), &deletion()), Err(SubmitError::Full));
    let sequence = view(&bench.sent()[1]).sequence();
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, 1, sequence));
    assert_eq!(bench.submit(None, seid(3), &deletion()), Ok(SubmitResult::Sent));
}

#[test]
fn report_is_delivered_once() {
    let mut bench = Bench::associated();
    // from another port of the UPF than the configured one
    let from = SocketAddr::new(UPF.ip(), 40_000);
    let request = report(seid(4).0, 7);
    bench.receive_from(from, &request);
    bench.receive_from(from, &request);
    assert_eq!(bench.take_events(), [OwnedEvent::Delivered { seid: seid(4), request: true, message: request.clone() }]);
    assert_eq!(bench.sent().len(), 0);
    let response = report_response(7);
    assert_eq!(bench.submit(None, seid(4), &response), Ok(SubmitResult::Sent));
    assert_eq!(bench.net.sent, [(from, response.clone())]);
    bench.sent();
    bench.receive_from(from, &request);
    assert_eq!((bench.sent_one(), bench.take_events()), (response, vec![]));
    // the number is free for another report after the retention of repeats
    bench.now = bench.now + Duration::from_secs(11);
    bench.receive_from(from, &request);
    assert_eq!(bench.take_events().len(), 1);
}

#[test]
fn answers_kept_for_repeats_are_bounded() {
    let mut bench = Bench::associated_with(|config| config.replies = 2);
    for sequence in 0..5 {
        bench.receive(&report(seid(4).0, sequence));
        bench.n4.send_response(bench.now, UPF, &report_response(sequence), &mut bench.net);
    }
    assert_eq!((bench.take_events().len(), bench.sent().len()), (5, 5));
    bench.receive(&report(seid(4).0, 4));
    bench.receive(&report(seid(4).0, 3));
    assert_eq!((bench.take_events().len(), bench.sent().len()), (0, 2));
    bench.receive(&report(seid(4).0, 2));
    assert_eq!(bench.take_events().len(), 1);
}

#[test]
fn unknown_reports_are_refused() {
    let mut bench = Bench::associated();
    bench.receive(&report(0, 1));
    assert_eq!(view(&bench.sent_one()).get(), Ok(Some(Cause::SESSION_CONTEXT_NOT_FOUND)));
    let request = report(seid(4).0, 2);
    bench.receive(&request);
    assert_eq!(bench.take_events().len(), 1);
    let error = Error { cause: Cause::SESSION_CONTEXT_NOT_FOUND, offending_ie: None };
    bench.n4.refuse_report(bench.now, UPF, &request, error, &mut bench.net);
    let response = bench.sent_one();
    assert_eq!(view(&response).sequence(), 2);
    bench.receive(&request);
    assert_eq!((bench.sent_one(), bench.take_events()), (response, vec![]));
}

#[test]
fn clock_step_back_delays_briefly() {
    let mut bench = Bench::associated();
    bench.submit(None, seid(1), &deletion()).expect("sent");
    bench.sent();
    bench.now = Instant(0);
    bench.submit(None, seid(2), &deletion()).expect("sent");
    bench.sent();
    bench.now = Instant(2_000_001);
    bench.tick();
    assert_eq!(bench.sent().len(), 2);
}

/// A sink that keeps only the last datagram.
struct Last(Vec<u8>);

impl Sink for Last {
    fn send(&mut self, _to: SocketAddr, octets: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(octets);
    }

    fn event(&mut self, _event: Event<'_>) {}
}

#[test]
#[ignore = "a measurement; run it in release mode on a quiet machine"]
fn time_of_a_request_and_its_response() {
    const CALLS: u32 = 1_000_000;
    let mut bench = Bench::associated();
    let (message, mut last) = (deletion(), Last(Vec::new()));
    let mut response = deletion_response(Cause::REQUEST_ACCEPTED, 1, 0);
    let start = std::time::Instant::now();
    for n in 0..CALLS {
        // 100,000 per second, so that the queue has the deadlines of one second
        bench.now = bench.now + Duration(10);
        bench.n4.submit(bench.now, UPF, Some(n.into()), seid(n), &message, &mut last).expect("sent");
        set_sequence(&mut response, view(&last.0).sequence());
        bench.n4.on_datagram(bench.now, UPF, &response, &mut last);
        bench.n4.on_time(bench.now, &mut last);
    }
    println!("{} ns per request, response and timer", start.elapsed().as_nanos() / u128::from(CALLS));
    assert_eq!(bench.n4.counters().outstanding, 1, "the heartbeat");
}
