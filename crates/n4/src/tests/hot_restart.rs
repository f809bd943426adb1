use super::*;

/// Resumes the endpoint in another process.
fn handed_over(bench: &mut Bench, change: impl FnOnce(&mut Config)) {
    let octets = postcard::to_stdvec(&bench.n4.snapshot()).expect("it encodes");
    let carried = postcard::from_bytes(&octets).expect("it decodes");
    // A configuration with another first sequence number.
    let mut config = Config::new(CP, vec![UPF], RecoveryTimeStamp(1), 7_000);
    change(&mut config);
    bench.n4 = N4::resume(config, carried);
}

#[test]
fn request_survives_hot_restart() {
    let mut bench = Bench::associated_with(|config| config.shared = true);
    bench.submit(Some(5), seid(1), &deletion()).expect("sent");
    let answered = view(&bench.sent_one()).sequence();
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, seid(1).0, answered));
    bench.submit(Some(6), seid(2), &deletion()).expect("sent");
    let waits = view(&bench.sent_one()).sequence();
    bench.submit(None, seid(3), &deletion()).expect("sent");
    let own = view(&bench.sent_one()).sequence();
    bench.pass(Duration::from_millis(400));
    bench.take_events();

    handed_over(&mut bench, |config| config.shared = true);
    assert!(bench.n4.is_up(UPF) && bench.n4.is_active());
    assert_eq!(
        (bench.tick().is_some(), bench.sent().len(), bench.take_events()),
        (true, 0, vec![]),
        "nothing is set up anew"
    );
    assert_eq!(bench.submit(Some(6), seid(2), &deletion()), Ok(SubmitResult::Waiting));
    bench.pass(Duration::from_millis(600));
    let again: Vec<u32> = bench.sent().iter().map(|octets| view(octets).sequence()).collect();
    assert_eq!(again, [waits, own], "when their time has come");
    bench.receive(&deletion_response(Cause::REQUEST_ACCEPTED, seid(2).0, waits));
    assert!(matches!(&bench.take_events()[..], [OwnedEvent::Delivered { seid, .. }] if *seid == self::seid(2)));
    bench.submit(Some(5), seid(1), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), answered, "a repeat is known by its number");
    bench.submit(None, seid(4), &deletion()).expect("sent");
    assert_eq!(view(&bench.sent_one()).sequence(), own + 1, "numbers go on");
    bench.pass(Duration::from_secs(3));
    assert!(bench.take_events().contains(&OwnedEvent::Timeout(seid(3), None)));
}

#[test]
fn reports_survive_hot_restart() {
    let mut bench = Bench::associated();
    for sequence in [7, 8] {
        bench.receive(&report(seid(4).0, sequence));
    }
    bench.n4.send_response(bench.now, UPF, &report_response(7), &mut bench.net);
    let answer = bench.sent_one();
    bench.take_events();
    handed_over(&mut bench, |_| {});
    bench.receive(&report(seid(4).0, 7));
    bench.receive(&report(seid(4).0, 8));
    assert_eq!(
        (bench.sent_one(), bench.take_events()),
        (answer, vec![]),
        "one is answered again, the other was delivered"
    );
    let from = (CP, 40_000).into();
    bench.n4.send_response(bench.now, from, &report_response(8), &mut bench.net);
    bench.sent();
    // Heartbeats continue on schedule.
    bench.pass(Duration::from_secs(10));
    bench.answer_heartbeat();
    assert_eq!(bench.take_events(), []);
}

#[test]
fn hot_restart_applies_new_configuration() {
    let mut bench = Bench::associated();
    bench.submit(Some(6), seid(2), &deletion()).expect("sent");
    bench.sent();
    let new = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 3).into(), PORT);
    handed_over(&mut bench, |config| config.upfs = vec![new]);
    bench.tick();
    assert_eq!((bench.net.sent[0].0, bench.sent_kinds()), (new, vec![MessageType::ASSOCIATION_SETUP_REQUEST]));
    assert_eq!(bench.n4.counters().outstanding, 1);
}
