use super::*;
use vireo_types::Network;

#[test]
fn without_an_association_there_is_no_session() {
    let mut b = bench();
    assert_eq!(b.establish(&request()).cause, Cause::NO_ESTABLISHED_ASSOCIATION);
}

#[test]
fn foreign_control_plane_changes_no_session() {
    let mut b = bench();
    let (seid, teid) = b.session();
    let (own, stranger) = (Bench::smf(), SocketAddr::from((Ipv4Addr::new(192, 0, 2, 66), 8805)));
    let release = AssociationReleaseRequest { node_id: node() };
    let all = |b: &mut Bench| {
        let modified = b.modify(seid, &forward(RAN_TEID)).cause;
        let released: (_, AssociationReleaseResponse) = b.request(|out, sequence| release.emit(out, sequence));
        [b.establish(&request()).cause, modified, b.delete(seid).cause, released.1.cause]
    };
    b.from = stranger;
    assert_eq!(all(&mut b), [Cause::NO_ESTABLISHED_ASSOCIATION; 4]);
    // an association of its own does not make the session its own
    let other = AssociationSetupRequest {
        node_id: NodeId::Ipv4(Ipv4Addr::new(192, 0, 2, 66)),
        recovery_time_stamp: RecoveryTimeStamp(1),
        up_function_features: None,
        cp_function_features: None,
        session_retention: None,
    };
    let set_up: (_, AssociationSetupResponse) = b.request(|out, sequence| other.emit(out, sequence));
    assert_eq!(set_up.1.cause, Cause::REQUEST_ACCEPTED);
    let (unknown, none) = (Cause::SESSION_CONTEXT_NOT_FOUND, Cause::NO_ESTABLISHED_ASSOCIATION);
    assert_eq!(all(&mut b), [none, unknown, unknown, none]);
    b.from = own;
    b.uplink(teid, &ipv4(UE, SERVER, 40));
    assert_eq!((b.plane.n6.len(), b.modify(seid, &forward(RAN_TEID)).cause), (1, Cause::REQUEST_ACCEPTED));
    // two control planes may share an address
    b.from = own;
    let other = AssociationSetupRequest { node_id: NodeId::Ipv4(Ipv4Addr::new(192, 0, 2, 67)), ..other };
    let set_up: (_, AssociationSetupResponse) = b.request(|out, sequence| other.emit(out, sequence));
    assert_eq!(set_up.1.cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    // another host of the same control plane may modify the session
    b.from = stranger;
    let hosts = vec![Network::host(own.ip()), Network::host(stranger.ip())];
    b.upf.settings.associations.control_planes = vec![ControlPlane { node_id: Some(node()), networks: hosts }];
    assert_eq!(b.associate().cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(b.delete(seid).cause, Cause::REQUEST_ACCEPTED);
}

#[test]
fn requests_may_come_in_any_order_and_again() {
    let mut b = bench();
    let (seid, _) = b.session();
    let octets = |sequence: u32, teid: u32| {
        let mut octets = vec![];
        forward(Teid(teid)).emit(&mut octets, seid, sequence).expect("short");
        octets
    };
    let (late, early) = (octets(72, 0x72), octets(71, 0x71));
    let answers = [b.deliver(&late), b.deliver(&early)];
    for (request, answer) in [(&early, &answers[1]), (&late, &answers[0])] {
        assert_eq!(b.deliver(request), *answer);
    }
    assert_eq!(b.upf.stats.repeated, 2);
    // a repeat is answered and not executed again: the last new request prevails
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    assert_eq!(b.tunnelled().last().map(|(teid, _)| *teid), Some(Teid(0x71)));
}

#[test]
fn restarted_control_plane_gets_own_answers() {
    let mut b = bench();
    b.associate();
    let mut octets = vec![];
    request().emit(&mut octets, 0, 4711).expect("short");
    let first = b.deliver(&octets);
    assert_eq!((b.deliver(&octets), b.upf.sessions()), (first.clone(), 1));
    b.associate_as(7_000_001);
    assert_eq!(b.upf.sessions(), 0);
    let again = b.deliver(&octets);
    assert!(again != first && b.upf.sessions() == 1, "a session that is gone was confirmed");
}

#[test]
fn missing_element_is_named() {
    let mut b = bench();
    b.associate();
    let mut refused = |change: &dyn Fn(&mut SessionEstablishmentRequest)| {
        let mut request = request();
        change(&mut request);
        let response = b.establish(&request);
        assert!(response.up_f_seid.is_none() && b.plane.tables.is_empty(), "{response:?}");
        (response.cause, response.offending_ie.map(|ie| ie.0), response.failed_rule_id)
    };
    let missing = |ie| (Cause::MANDATORY_IE_MISSING, Some(ie), None);
    let conditional = |ie| (Cause::CONDITIONAL_IE_MISSING, Some(ie), None);
    let failed = |rule| (Cause::RULE_FAILURE, None, Some(rule));
    assert_eq!(refused(&|r| r.create_pdrs.clear()), missing(CreatePdr::ID));
    assert_eq!(refused(&|r| r.create_fars.clear()), missing(CreateFar::ID));
    assert_eq!(refused(&|r| r.create_pdrs[0].pdi.f_teid = None), conditional(FTeid::ID));
    assert_eq!(refused(&|r| r.create_pdrs[0].outer_header_removal = None), conditional(OuterHeaderRemoval::ID));
    assert_eq!(refused(&|r| r.create_pdrs[0].far_id = None), conditional(FarId::ID));
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.ue_ip_addresses.clear()), conditional(UeIpAddress::ID));
    assert_eq!(refused(&|r| r.create_fars[0].forwarding_parameters = None), conditional(ForwardingParameters::ID));
    // references to missing rules, duplicate IDs, and more rules than are supported
    assert_eq!(refused(&|r| r.create_pdrs[1].far_id = Some(FarId(8))), failed(FailedRuleId::Pdr(2)));
    assert_eq!(refused(&|r| r.create_pdrs[0].qer_ids[0] = QerId(8)), failed(FailedRuleId::Pdr(1)));
    assert_eq!(refused(&|r| r.create_pdrs[0].urr_ids.push(UrrId(8))), failed(FailedRuleId::Pdr(1)));
    assert_eq!(refused(&|r| r.create_pdrs[1].pdr_id = PdrId(1)), failed(FailedRuleId::Pdr(1)));
    assert_eq!(refused(&|r| r.create_fars[1].far_id = FarId(1)), failed(FailedRuleId::Far(1)));
    assert_eq!(refused(&|r| r.create_fars[0].apply_action = ApplyAction::BUFF), failed(FailedRuleId::Far(1)));
    let filter = |text: &str| vec![SdfFilter::new(text)];
    let other = "permit out tcp from any to assigned established";
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.sdf_filters = filter(other)), failed(FailedRuleId::Pdr(2)));
    let nameless = SdfFilter { id: Some(7), ..SdfFilter::default() };
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.sdf_filters = vec![nameless.clone()]), failed(FailedRuleId::Pdr(2)));
    let many = (0..33).map(|port| SdfFilter::new(&format!("permit out 17 from any {port} to any"))).collect::<Vec<_>>();
    let no_room = (Cause::NO_RESOURCES, None, None);
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.sdf_filters.clone_from(&many)), no_room);
    let qers = || (0..33).map(|_| QerId(1)).collect::<List<_, 4>>();
    assert_eq!(refused(&|r| r.create_pdrs[1].qer_ids = qers()), no_room);
    let sets = || (0..33).map(|n| FqCsid(vec![0x01, 192, 0, 2, 5, 0, n].as_slice().into()));
    assert_eq!(refused(&|r| r.fq_csids = sets().collect()), no_room);
    let route = FramedRoute::from("192.0.2.0/99");
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.framed_routes = vec![route.clone()]), failed(FailedRuleId::Pdr(2)));
    let unspecified = UeIpAddress::destination(Some(Ipv4Addr::UNSPECIFIED), None);
    let incorrect = (Cause::MANDATORY_IE_INCORRECT, Some(UeIpAddress::ID), None);
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.ue_ip_addresses[0] = unspecified), incorrect);
    let wanted = UeIpAddress { choose_ipv4: true, ..UeIpAddress::default() };
    let unsupported = (Cause::SERVICE_NOT_SUPPORTED, Some(UeIpAddress::ID), None);
    assert_eq!(refused(&|r| r.create_pdrs[1].pdi.ue_ip_addresses[0] = wanted), unsupported);
    let app = Some(ApplicationId::from("video"));
    let unknown = (Cause::UNKNOWN_APPLICATION, None, Some(FailedRuleId::Pdr(1)));
    assert_eq!(refused(&|r| r.create_pdrs[0].pdi.application_id = app.clone()), unknown);
    let wants_v6 = FTeid::Choose { ipv4: false, ipv6: true, id: None };
    let (cause, _, rule) = refused(&|r| r.create_pdrs[0].pdi.f_teid = Some(wants_v6));
    assert_eq!((cause, rule), (Cause::INVALID_F_TEID_ALLOCATION, Some(FailedRuleId::Pdr(1))));
    // a filter that matches all packets is no filter
    let mut request = request();
    request.create_pdrs[1].pdi.sdf_filters = filter("permit out ip from any to assigned");
    assert_eq!(b.establish(&request).cause, Cause::REQUEST_ACCEPTED);
}

#[test]
fn failed_modification_changes_nothing() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let before = b.plane.tables.len();
    let mut change = forward(Teid(0xcafe));
    change.create_pdrs.push(uplink_pdr(5, CHOOSE));
    change.create_pdrs.push(downlink_pdr(6, Some(UE), Some("2001:db8:45:9::".parse().expect("an address"))));
    let response = b.modify(seid, &change);
    assert_eq!((response.cause, response.failed_rule_id), (Cause::RULE_FAILURE, Some(FailedRuleId::Pdr(6))));
    assert_eq!(b.plane.tables.len(), before);
    b.uplink(teid, &ipv4(UE, SERVER, 40));
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    assert_eq!((b.plane.n6.len(), b.tunnelled()[0].0), (1, RAN_TEID));
    let unknown = |far_id| {
        let mut request = SessionModificationRequest::default();
        request.update_fars.push(UpdateFar { far_id: FarId(far_id), ..UpdateFar::default() });
        request
    };
    assert_eq!(b.modify(seid, &unknown(44)).failed_rule_id, Some(FailedRuleId::Far(44)));
}

#[test]
fn address_has_one_session_and_upf_a_limit() {
    let mut b = bench();
    b.session();
    let mut other = request();
    other.cp_f_seid.seid += 1;
    let response = b.establish(&other);
    assert_eq!((response.cause, response.offending_ie), (Cause::RULE_FAILURE, Some(OffendingIe(UeIpAddress::ID))));
    assert_eq!(b.plane.tables.len(), (1, 1), "the tunnel end is given back");
    let mut nth = |n| {
        let mut request = request();
        request.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, n)), None);
        b.establish(&request).cause
    };
    assert_eq!([nth(3), nth(4), nth(5)], [Cause::REQUEST_ACCEPTED; 3]);
    assert_eq!(nth(6), Cause::NO_RESOURCES);
}

#[test]
fn invalid_pfcp_is_not_answered() {
    let mut b = bench();
    let (seid, _) = b.session();
    let mut good = vec![];
    forward(RAN_TEID).emit(&mut good, seid, 50).expect("short");
    for end in 0..good.len() {
        assert_eq!(b.deliver(&good[..end]), vec![], "a datagram of {end} octets");
    }
    // the response to another version contains the UPF's version
    let mut other = good.clone();
    other[0] = 0x41;
    let answer = b.deliver(&other);
    assert_eq!(Message::new(&answer[0].1).expect("sound").message_type(), MessageType::VERSION_NOT_SUPPORTED_RESPONSE);
    // an unsolicited response, a request that only control planes answer, an unknown type
    for kind in [57, 56, 12, 200] {
        let mut stray = good.clone();
        stray[1] = kind;
        assert_eq!(b.deliver(&stray), vec![], "type {kind}");
    }
    // a truncated element in a message of correct length
    let mut cut = vec![];
    let mut builder = Builder::new(&mut cut, MessageType::SESSION_MODIFICATION_REQUEST, Some(seid), 51);
    builder.put_raw(UpdateFar::ID, &[0, 108, 0, 4, 0, 0]);
    builder.finish().expect("short");
    let answer = b.deliver(&cut);
    let message = Message::new(&answer[0].1).expect("sound");
    let response = SessionModificationResponse::parse(&message).expect("an answer");
    assert_eq!((response.cause, response.offending_ie), (Cause::INVALID_LENGTH, Some(OffendingIe(FarId::ID))));
    // unknown elements are skipped
    let mut unknown = vec![];
    let mut builder = Builder::new(&mut unknown, MessageType::SESSION_MODIFICATION_REQUEST, Some(seid), 52);
    builder.put_raw(999, &[1, 2, 3]).put_raw(0x8001, &[0, 10, 1]);
    builder.finish().expect("short");
    let answer = b.deliver(&unknown);
    let message = Message::new(&answer[0].1).expect("sound");
    assert_eq!(message.need(), Ok(Cause::REQUEST_ACCEPTED));
}

#[test]
fn mutated_requests_keep_state_consistent() {
    // a fixed sequence of pseudo-random changes (xorshift), so that failures are reproducible
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut b = bench();
    b.associate();
    // outside the range of the loop
    b.sequence = 1 << 20;
    let encode = |request: &SessionEstablishmentRequest| {
        let mut octets = vec![];
        request.emit(&mut octets, 0, 1).expect("short");
        octets
    };
    let good = [encode(&request()), encode(&rules::two_flows()), encode(&habits::open5gs())];
    for sequence in 0..20_000 {
        let mut octets = good[sequence as usize % good.len()].clone();
        pfcp::set_sequence(&mut octets, sequence);
        for _ in 0..1 + random() % 3 {
            let at = 16 + random() as usize % (octets.len() - 16);
            octets[at] = random() as u8;
        }
        for (_, answer) in b.deliver(&octets) {
            let message = Message::new(&answer).expect("a sound answer");
            let cause: Cause = message.need().expect("a cause");
            let (sessions, tables) = (b.upf.sessions(), &b.plane.tables);
            assert_eq!(tables.is_empty(), sessions == 0, "{sessions} sessions and {:?} records", tables.len());
            if cause.is_accepted() {
                let seid = message.need::<FSeid>().expect("accepted").seid;
                assert_eq!(b.delete(seid).cause, Cause::REQUEST_ACCEPTED);
            }
        }
    }
}
