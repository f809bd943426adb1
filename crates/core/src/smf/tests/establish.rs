use super::*;
use vireo_wire::nas::{PcoDirection, QosFlowOpCode, QosRuleOpCode};

#[test]
fn established_session_context_is_small() {
    let mut bench = Bench::new();
    assert_eq!(brief(&bench.create(REQUEST)), "establishment-request");
    assert_eq!(bench.sm().summary().state, SessionState::Establishing);
    assert_eq!(brief(&bench.established()), "accept/1 SetupRequest");
    assert_eq!(brief(&bench.ran_up(0x201)), "modification-request");
    assert_eq!(bench.modified(), [Output::Established]);
    assert_eq!(bench.sm().summary().state, SessionState::Active);
    assert_eq!(deadline(bench.sm()), None);
    let stored = postcard::to_stdvec(bench.sm()).expect("a context encodes");
    assert!(stored.len() <= 110, "{} octets", stored.len());
}

#[test]
fn simple_device_session_requests_fewer_rules() {
    let requested = |profile| {
        let mut bench = Bench::new();
        bench.config.slices[0].profile = profile;
        let out = bench.create(REQUEST);
        let [Output::Pfcp { message, .. }] = out.as_slice() else { panic!("{out:?}") };
        let message = pfcp::Message::new(message).expect("a sound message");
        let request = pfcp::SessionEstablishmentRequest::parse(&message).expect("a sound request");
        let flows: Vec<_> = request.create_pdrs[0].pdi.qfis.iter().map(|qfi| qfi.0).collect();
        assert_eq!(request.create_qers[0].qfi.map(|qfi| qfi.0), Some(1), "what downlink packets are marked with");
        assert_eq!((request.create_pdrs.len(), request.create_urrs.len()), (2, 0));
        (flows, request.create_qers[0].mbr.is_some())
    };
    assert_eq!(requested(SliceProfile::Full), (vec![1], true));
    assert_eq!(requested(SliceProfile::Iot), (vec![], false), "the RAN holds the rate of the only session");
}

#[test]
fn accept_describes_session() {
    let mut bench = Bench::new();
    bench.subscription.ambr.uplink_bps = 50_000_000;
    // Requests IPv4v6, always-on, DNS and MTU.
    bench.create("2e0501c1ffff93b17b000a80000d00001000000300");
    let accept = match nas(&bench.established()).remove(0) {
        (5, 1, Nas5gsmMessage::PduSessionEstablishmentAccept(accept)) => accept,
        other => panic!("{other:?}"),
    };
    let address = accept.pdu_address.as_ref().expect("an address");
    assert_eq!(address.ipv4(), Some([10, 45, 0, 2]));
    let identifier = n1::interface_identifier("2001:db8:45:2::".parse().expect("a prefix"));
    assert_eq!(address.ipv6_interface_id(), Some(identifier));
    let ambr = accept.session_ambr.parse().expect("a rate");
    assert_eq!((ambr.dl_kbps, ambr.ul_kbps), (1_000_000, 50_000));
    let rules = accept.authorized_qos_rules.rules();
    assert_eq!(rules.len(), 1);
    assert_eq!((rules[0].dqr, rules[0].op_code, rules[0].qfi), (true, QosRuleOpCode::Create, Some(1)));
    assert!(accept.authorized_qos_rules.is_well_formed());
    let flows = accept.authorized_qos_flow_descriptions.as_ref().expect("a flow").descriptions();
    assert_eq!((flows.len(), flows[0].op_code, flows[0].qfi), (1, QosFlowOpCode::Create, 1));
    assert_eq!(flows[0].params, [vireo_wire::nas::QosFlowParameter::FiveQi(9)]);
    assert!(accept.always_on_pdu_session_indication.as_ref().is_some_and(|ie| ie.apsi()));
    let options = accept.extended_protocol_configuration_options.as_ref();
    let options = options.and_then(|ie| ie.pco(PcoDirection::Downlink)).expect("options");
    assert_eq!(options.entry(0x0d).map(|e| e.contents.as_slice()), Some(&[8, 8, 8, 8][..]));
    assert_eq!(options.entry(0x10).map(|e| e.contents.as_slice()), Some(&[0x05, 0x78][..]));
    assert!(accept.fgsm_cause.is_none());
}

/// tshark 4.0.17 decodes the octets in `golden` with the intended values and without a warning.
#[test]
fn accept_octets_equal_tshark_checked_bytes() {
    let mut bench = Bench::new();
    let requested = bench.create(REQUEST);
    let [Output::Pfcp { message, .. }] = requested.as_slice() else { panic!("{requested:?}") };
    assert_eq!(hex::encode(message), include_str!("golden/establishment-request.hex").trim());
    let out = bench.established();
    let [Output::N1(accept), Output::N2(_, setup)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(hex::encode(accept), include_str!("golden/accept.hex").trim());
    assert_eq!(hex::encode(setup), include_str!("golden/setup-request-transfer.hex").trim());
    let out = bench.ran_up(0x201);
    let [Output::Pfcp { message, .. }] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(hex::encode(message), include_str!("golden/modification-request.hex").trim());
}

#[test]
fn session_type_is_asked_subscribed_and_served() {
    use PduSessionType::{Ipv4, Ipv4v6, Ipv6};
    const NONE: u8 = 0;
    const V4: u8 = 1;
    const V6: u8 = 2;
    const BOTH: u8 = 3;
    let all = [Ipv4, Ipv6, Ipv4v6].as_slice();
    type Case<'a> = (&'static str, &'a [PduSessionType], u8, Result<(PduSessionType, &'static str), u8>);
    let cases: [Case<'_>; 17] = [
        ("internet", all, NONE, Ok((Ipv4, "accept/1"))),
        ("internet", &[Ipv6, Ipv4], NONE, Ok((Ipv6, "accept/1"))),
        ("internet", all, V4, Ok((Ipv4, "accept/1"))),
        ("internet", all, V6, Ok((Ipv6, "accept/1"))),
        ("internet", all, BOTH, Ok((Ipv4v6, "accept/1"))),
        ("four", all, BOTH, Ok((Ipv4, "accept/1#50"))),
        ("six", all, BOTH, Ok((Ipv6, "accept/1#51"))),
        ("internet", &[Ipv4], BOTH, Ok((Ipv4, "accept/1#50"))),
        ("either", &[Ipv6, Ipv4], BOTH, Ok((Ipv6, "accept/1"))),
        ("four", all, V6, Err(50)),
        ("six", all, V4, Err(51)),
        ("both", all, V4, Err(57)),
        ("both", all, V6, Err(57)),
        ("four", &[Ipv6], V4, Err(33)),
        ("internet", &[], NONE, Err(33)),
        ("internet", all, 4, Err(28)),
        ("internet", all, 7, Err(28)),
    ];
    for (dnn, subscribed, requested, expected) in cases {
        let mut bench = Bench::new();
        bench.dnn = dnn;
        bench.subscription.types = subscribed.to_vec();
        let ie = if requested == NONE { String::new() } else { format!("9{requested}") };
        let out = bench.create(&format!("2e0501c1ffff{ie}"));
        let case = format!("{dnn} {subscribed:?} {requested}");
        match expected {
            Err(cause) => assert_eq!(brief(&out), format!("reject/1#{cause}"), "{case}"),
            Ok((kind, accept)) => {
                assert_eq!(brief(&out), "establishment-request", "{case}");
                assert_eq!(bench.sm().kind, kind, "{case}");
                assert_eq!(brief(&bench.established()), format!("{accept} SetupRequest"), "{case}");
            }
        }
    }
}

#[test]
fn unavailable_session_is_rejected_with_cause() {
    type Change = fn(&mut Bench);
    let cases: [(&str, Change, &str); 14] = [
        (REQUEST, |b| b.dnn = "nowhere", "reject/1#27"),
        (REQUEST, |b| b.dnn = "elsewhere", "reject/1#70"),
        (REQUEST, |b| b.config.upfs.clear(), "reject/1#26"),
        (REQUEST, |b| b.config.upfs[0].dnns = vec!["ims".parse().expect("a DNN")], "reject/1#26"),
        (REQUEST, |b| b.ids.used_up = true, "reject/1#26"),
        (REQUEST, |b| b.subscription.five_qi = 1, "reject/1#31"),
        (REQUEST, |b| b.subscription.five_qi = 82, "reject/1#31"),
        ("2e0501c1ffff91a2", |_| (), "reject/1#68"),
        ("2e0500c1ffff91", |_| (), "status/0#81"),
        ("2e0601c1ffff91", |_| (), "status/1#43"),
        ("2e0501d1", |_| (), "release-reject/1#43"),
        ("2e0501c9", |_| (), "modification-reject/1#43"),
        ("2e0501d4", |_| (), "status/1#43"),
        ("2e0501d65f", |_| (), ""),
    ];
    for (octets, change, expected) in cases {
        let mut bench = Bench::new();
        change(&mut bench);
        assert_eq!(brief(&bench.create(octets)), expected, "{octets}");
        assert_eq!(bench.sm, None, "{octets}");
    }
    // The UE learns the supported SSC mode; a request for mode 1 itself is granted.
    let (_, _, reject) = nas(&Bench::new().create("2e0501c1ffff91a3")).remove(0);
    let Nas5gsmMessage::PduSessionEstablishmentReject(reject) = reject else { panic!("{reject:?}") };
    assert!(reject.allowed_ssc_mode.as_ref().is_some_and(|ie| ie.ssc1() && !ie.ssc2() && !ie.ssc3()));
    assert_eq!(brief(&Bench::new().create("2e0501c1ffff91a1")), "establishment-request");
}

#[test]
fn non_request_gets_answer_of_clause_7() {
    let cases = [
        ("", ""),
        ("2e", ""),
        ("2e0501", ""),
        ("7e0041", ""),
        ("2e05ffc1ffff91", ""),
        ("2e0501c1", "reject/1#96"),
        ("2e0501c1ff", "reject/1#96"),
        ("2e050100", "status/1#97"),
        // Comprehension required of an unknown IE.
        ("2e0501c1ffff910301ff", "reject/1#96"),
        // Unknown IE that may be skipped.
        ("2e0501c1ffff915a01ff", "establishment-request"),
    ];
    for (octets, expected) in cases {
        assert_eq!(brief(&Bench::new().create(octets)), expected, "{octets}");
    }
}

#[test]
fn upfs_are_shared_by_the_ues() {
    let mut bench = Bench::new();
    let n4 = "127.0.0.8:8805".parse().expect("an address");
    let another = UpfConfig { name: "there".into(), n4, dnns: vec![], n3_ipv6: false };
    let of_another_network = UpfConfig { dnns: vec!["ims".parse().expect("a DNN")], ..another.clone() };
    bench.config.upfs.extend([of_another_network, another]);
    bench.create(REQUEST);
    // 1234 + 7 << 16 is even.
    assert_eq!(bench.sm().pfcp.upf, UPF.parse().expect("an address"));
}

#[test]
fn failing_upf_rejects_only_this_request() {
    let kind = pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE;
    for (cause, expected) in [
        (pfcp::Cause::NO_RESOURCES, "reject/1#26 free released"),
        (pfcp::Cause::REQUEST_REJECTED, "reject/1#38 free released"),
        (pfcp::Cause::NO_ESTABLISHED_ASSOCIATION, "reject/1#38 free released"),
    ] {
        let mut bench = Bench::new();
        bench.create(REQUEST);
        assert_eq!(brief(&bench.upf(kind, cause)), expected);
    }
    let mut bench = Bench::new();
    bench.create(REQUEST);
    assert_eq!(brief(&bench.step(Input::PfcpTimeout)), "reject/1#38 free released");
}

#[test]
fn upf_without_tunnel_is_released() {
    let mut bench = Bench::new();
    bench.create(REQUEST);
    let mut octets = Vec::new();
    let kind = pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE;
    let mut message = pfcp::Builder::new(&mut octets, kind, Some(bench.sm().pfcp.cp_seid.0), 1);
    message.put(&pfcp::Cause::REQUEST_ACCEPTED).put(&pfcp::FSeid::new(9, Ipv4Addr::LOCALHOST.into()));
    message.finish().expect("a short message");
    assert_eq!(brief(&bench.step(Input::Pfcp(&octets))), "reject/1#38 deletion-request");
    assert_eq!(brief(&bench.deleted()), "free released");
}

#[test]
fn ran_without_resources_rejects_session() {
    let mut bench = Bench::new();
    bench.create(REQUEST);
    bench.established();
    let out = bench.step(Input::N2(N2Sm::SetupUnsuccessful, &[0, 0]));
    assert_eq!(brief(&out), "reject/1#26 deletion-request");
    assert_eq!(brief(&bench.deleted()), "free released");
}

#[test]
fn silent_or_faulty_ran_releases_session() {
    let mut bench = Bench::new();
    bench.create(REQUEST);
    bench.established();
    assert_eq!(deadline(bench.sm()), Some(bench.now + bench.config.timers.ran_response));
    assert_eq!(bench.step(Input::Deadline), [], "not yet due");
    bench.wait(bench.config.timers.ran_response);
    assert_eq!(brief(&bench.step(Input::Deadline)), "release/0#38 ReleaseCommand deletion-request");
    for octets in [&b""[..], b"\x00", b"\xff\xff\xff\xff"] {
        let mut bench = Bench::new();
        bench.create(REQUEST);
        bench.established();
        let out = bench.step(Input::N2(N2Sm::SetupResponse, octets));
        assert_eq!(brief(&out), "release/0#38 ReleaseCommand deletion-request");
    }
}

/// Packets would return to the UPF, as packets of a UE, or reach no RAN node.
#[test]
fn tunnel_end_at_upf_itself_is_unusable() {
    let (v6, mapped) = (Ipv6Addr::UNSPECIFIED.octets(), Ipv4Addr::new(10, 3, 0, 1).to_ipv6_mapped().octets());
    let v4 = [[10_u8, 3, 0, 1], [0, 0, 0, 0], [169, 254, 3, 4], [224, 0, 0, 1], [255; 4]];
    for address in v4.iter().map(|octets| &octets[..]).chain([&v6[..], &mapped[..]]) {
        let mut bench = Bench::new();
        bench.create(REQUEST);
        bench.established();
        let own = bench.sm().uplink.expect("an end of the UPF");
        assert_eq!(own.address, Ipv4Addr::new(10, 3, 0, 1));
        let octets = setup_response(0x201);
        let mut transfer =
            decode_open_type::<PDUSessionResourceSetupResponseTransfer<'_>>(&octets).expect("a transfer");
        let end =
            GTPTunnel::new(TransportLayerAddress(address.to_vec().into()), GTPTEID(own.teid.0.to_be_bytes()), None);
        let flows = &mut transfer.dl_qos_flow_per_tnl_information;
        flows.up_transport_layer_information = UPTransportLayerInformation::gTPTunnel(end);
        let octets = encode_open_type(&transfer).expect("a transfer encodes");
        let out = bench.step(Input::N2(N2Sm::SetupResponse, &octets));
        assert_eq!(brief(&out), "release/0#38 ReleaseCommand deletion-request", "{address:?}");
    }
}

#[test]
fn ue_lost_before_answer_leaves_no_session() {
    let mut bench = Bench::new();
    bench.create(REQUEST);
    assert_eq!(bench.step(Input::Deactivate), []);
    assert_eq!(brief(&bench.established()), "deletion-request");
    assert_eq!(brief(&bench.deleted()), "free released");
    // The accept was in transit: the session stays, without user plane.
    let mut bench = Bench::new();
    bench.create(REQUEST);
    bench.established();
    assert_eq!(brief(&bench.step(Input::Deactivate)), "modification-request", "the UPF buffers, and reports again");
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.sm().summary().state, SessionState::Inactive);
    assert_eq!(bench.ran_up(0x201), [], "the RAN's answer comes too late");
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
}

#[test]
fn repeated_request_is_answered_once() {
    let mut bench = Bench::new();
    bench.create(REQUEST);
    assert_eq!(bench.n1(REQUEST), []);
    bench.established();
    assert_eq!(bench.n1(REQUEST), []);
    assert_eq!(brief(&Bench::active().n1(REQUEST)), "status/1#98");
}
