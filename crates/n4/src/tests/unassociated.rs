use super::*;

const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 5)), 1_234);

#[test]
fn strangers_get_the_cause_of_the_specification() {
    let mut bench = Bench::associated();
    let requests = [
        node(&AssociationReleaseRequest { node_id: upf_node_id() }, 1),
        node(
            &AssociationSetupRequest {
                node_id: upf_node_id(),
                recovery_time_stamp: STARTED,
                up_function_features: None,
                cp_function_features: None,
                session_retention: None,
            },
            2,
        ),
        report(seid(1).0, 3),
    ];
    for request in requests {
        bench.receive_from(STRANGER, &request);
        let (to, response) = bench.net.sent.remove(0);
        assert_eq!((to, view(&response).sequence()), (STRANGER, view(&request).sequence()));
        assert_eq!(Some(view(&response).message_type()), view(&request).message_type().response());
        assert_eq!(view(&response).get(), Ok(Some(Cause::NO_ESTABLISHED_ASSOCIATION)));
        let text = format!("{:?}", walk(&response));
        assert!(text.contains("Response"), "the refusal itself is sound: {text}");
    }
    bench.receive_from(STRANGER, &node(&HeartbeatRequest { recovery_time_stamp: STARTED }, 4));
    assert_eq!(bench.sent_kinds(), [MessageType::HEARTBEAT_RESPONSE]);
    assert_eq!(bench.take_events(), []);
}

/// A UE that reaches the endpoint is no UPF: its datagrams are dropped.
#[test]
fn datagrams_of_ues_are_ignored() {
    let pools = [("10.45.0.0", 16), ("2001:db8:45::", 48)];
    let network = |(address, length): (&str, u8)| Network::new(address.parse().expect("an address"), length);
    let mut bench = Bench::associated_with(|config| config.ue_pools = pools.map(network).to_vec());
    let heartbeat = node(&HeartbeatRequest { recovery_time_stamp: STARTED }, 4);
    let release = node(&AssociationReleaseRequest { node_id: upf_node_id() }, 5);
    for ue in ["10.45.0.7", "::ffff:10.45.255.9", "2001:db8:45:1::7"] {
        let ue: IpAddr = ue.parse().expect("an address");
        for request in [&heartbeat, &release] {
            bench.receive_from(SocketAddr::new(ue, PORT), request);
        }
        assert_eq!((bench.sent().len(), bench.n4.take_ue(), bench.n4.take_ue()), (0, Some(ue), None));
    }
    assert_eq!((bench.n4.counters().from_ues, bench.take_events()), (6, vec![]));
    bench.receive_from(STRANGER, &heartbeat);
    assert_eq!(bench.sent_kinds(), [MessageType::HEARTBEAT_RESPONSE]);
}

#[test]
fn addresses_outside_the_list_are_not_read() {
    let mut bench = Bench::associated_with(|config| config.allow = vec!["192.0.2.0/28".parse().expect("a network")]);
    for request in [node(&HeartbeatRequest { recovery_time_stamp: STARTED }, 4), report(seid(1).0, 3), vec![0x41, 7, 0]]
    {
        bench.receive_from(STRANGER, &request);
    }
    assert_eq!((bench.sent().len(), bench.take_events()), (0, vec![]));
    assert_eq!((bench.n4.counters().unlisted, bench.n4.counters().unassociated), (3, 0));
    bench.receive(&report(seid(1).0, 3));
    assert_eq!(bench.take_events().len(), 1, "the UPF is heard");
    let neighbour = SocketAddr::from(([192, 0, 2, 9], PORT));
    bench.receive_from(neighbour, &node(&HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(u32::MAX) }, 5));
    assert_eq!((bench.sent_kinds(), bench.take_events()), (vec![MessageType::HEARTBEAT_RESPONSE], vec![]));
}

#[test]
fn upf_without_association_is_stranger_too() {
    let mut bench = Bench::new(|_| {});
    bench.receive(&report(seid(1).0, 3));
    assert_eq!(view(&bench.sent_one()).get(), Ok(Some(Cause::NO_ESTABLISHED_ASSOCIATION)));
    assert_eq!(bench.take_events(), []);
}

#[test]
fn unexpected_messages_are_dropped() {
    let mut bench = Bench::associated();
    bench.receive(&deletion());
    bench.receive_from(STRANGER, &deletion());
    let mut unknown = deletion();
    unknown[1] = 99;
    bench.receive(&unknown);
    assert_eq!((bench.sent().len(), bench.take_events()), (0, vec![]));
    assert_eq!((bench.n4.counters().garbage, bench.n4.counters().unassociated), (2, 1));
}

#[test]
fn other_version_is_answered_without_loop() {
    let mut bench = Bench::associated();
    let mut other = deletion();
    other[0] = 2 << 5 | 1;
    set_sequence(&mut other, 77);
    bench.receive(&other);
    let response = bench.sent_one();
    assert_eq!(view(&response).message_type(), MessageType::VERSION_NOT_SUPPORTED_RESPONSE);
    assert_eq!(view(&response).sequence(), 77);
    let mut answer = response;
    answer[0] = 2 << 5;
    bench.receive(&answer);
    assert_eq!(bench.sent().len(), 0);
    // as the response to a request of this endpoint it ends that request
    bench.submit(None, seid(1), &deletion()).expect("sent");
    let sequence = view(&bench.sent_one()).sequence();
    bench.receive(&node(&VersionNotSupportedResponse {}, sequence));
    assert_eq!(bench.take_events(), [OwnedEvent::Timeout(seid(1), None)]);
}

#[test]
fn garbage_is_counted_and_dropped() {
    let mut bench = Bench::associated();
    let sound = report(seid(1).0, 3);
    for length in 0..sound.len() {
        bench.receive(&sound[..length]);
    }
    assert_eq!((bench.sent().len(), bench.take_events()), (0, vec![]));
    assert_eq!(bench.n4.counters().garbage, sound.len() as u64);
    // a linear congruential generator suffices as noise
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut octets = [0_u8; 40];
        for octet in &mut octets {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *octet = (state >> 56) as u8;
        }
        // half of them with a valid header
        if state >> 63 == 0 {
            let kind = octets[1] % 60;
            octets[..4].copy_from_slice(&[0x21, kind, 0, 36]);
        }
        bench.receive(&octets);
    }
    assert!(bench.n4.counters().outstanding < 10);
    bench.pass(Duration::from_secs(60));
}

#[test]
fn unsendable_message_is_reported() {
    let mut bench = Bench::associated();
    let nobody = SocketAddr::from(([192, 0, 2, 99], PORT));
    let result = bench.n4.submit(bench.now, nobody, None, seid(1), &deletion(), &mut bench.net);
    assert_eq!(result, Err(SubmitError::UnknownUpf(nobody)));
    assert_eq!(bench.submit(None, seid(1), &[0x20]), Err(SubmitError::Malformed(HeaderError::Short(1))));
    assert_eq!(bench.sent().len(), 0);
}
