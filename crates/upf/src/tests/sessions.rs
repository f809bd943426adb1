use super::*;
use vireo_datapath::DropReason;

#[test]
fn heartbeat_and_association_have_start_time() {
    let mut b = bench();
    let request = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) };
    let (header, response): (_, HeartbeatResponse) = b.request(|out, sequence| request.emit(out, sequence));
    assert_eq!((header.seid, response.recovery_time_stamp.0), (None, STARTED));
    let response = b.associate();
    assert_eq!((response.cause, response.node_id), (Cause::REQUEST_ACCEPTED, NodeId::Ipv4(UPF)));
    assert_eq!(response.recovery_time_stamp.0, STARTED);
    let features = response.up_function_features.expect("told");
    assert!(features.contains(UpFunctionFeatures::FTUP | UpFunctionFeatures::EMPU));
}

#[test]
fn session_exists_until_deletion() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!(b.plane.n6.len(), 1);
    b.uplink(teid, &ipv4(SERVER, UE, 100));
    assert_eq!(b.plane.stats.dropped(DropReason::Spoofed), 1);

    assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    let down = ipv4(SERVER, UE, 60);
    b.plane.receive_n6(&down, b.now.instant);
    assert_eq!(b.tunnelled(), vec![(RAN_TEID, down)]);

    assert_eq!(b.delete(seid).cause, Cause::REQUEST_ACCEPTED);
    assert!(b.plane.tables.is_empty() && b.upf.sessions() == 0);
    assert_eq!(b.delete(seid).cause, Cause::SESSION_CONTEXT_NOT_FOUND);
    assert_eq!(b.modify(seid, &buffer()).cause, Cause::SESSION_CONTEXT_NOT_FOUND);
}

#[test]
fn response_has_seid_of_control_plane() {
    let mut b = bench();
    let (seid, _) = b.session();
    let request = forward(RAN_TEID);
    let (header, _): (_, SessionModificationResponse) = b.request(|out, sequence| request.emit(out, seid, sequence));
    assert_eq!(header.seid, Some(CP_SEID));
    let (header, _): (_, SessionDeletionResponse) =
        b.request(|out, sequence| (SessionDeletionRequest {}).emit(out, 12345, sequence));
    assert_eq!(header.seid, Some(0), "nobody's");
}

#[test]
fn repeated_request_is_executed_once() {
    let mut b = bench();
    b.associate();
    let mut octets = vec![];
    request().emit(&mut octets, 0, 99).expect("short");
    let first = b.deliver(&octets);
    assert_eq!(b.deliver(&octets), first);
    assert_eq!((b.upf.sessions(), b.upf.stats.repeated), (1, 1));
    // a restarted control plane reuses the sequence numbers, but its requests differ
    let mut request = request();
    request.cp_f_seid.seid += 1;
    request.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None);
    octets.clear();
    request.emit(&mut octets, 0, 99).expect("short");
    assert_ne!(b.deliver(&octets), first);
    assert_eq!(b.upf.sessions(), 2);
}

/// Responses to a control plane of the same process, which loses none, take no memory.
#[test]
fn response_without_repeat_is_not_stored() {
    let mut b = bench();
    b.associate();
    let mut octets = vec![];
    request().emit(&mut octets, 0, 99).expect("short");
    let once = |b: &mut Bench, octets: &[u8]| {
        let mut out = vec![];
        b.upf.process(b.from, octets, false, b.now, &mut b.plane, &mut out);
        out
    };
    let (first, second) = (once(&mut b, &octets), once(&mut b, &octets));
    assert_ne!(first, second, "the session is set up anew, with another SEID");
    assert_eq!((first.len(), second.len(), b.upf.sessions(), b.upf.stats.repeated), (1, 1, 1, 0));
    assert_eq!(b.deliver(&octets).len(), 1);
    assert_eq!(b.upf.stats.repeated, 0, "no response is found over the network either");
    // The answer to a setup may be late and come over the network, so that it is repeated.
    let setup = AssociationSetupRequest {
        node_id: node(),
        recovery_time_stamp: RecoveryTimeStamp(1_000),
        up_function_features: None,
        cp_function_features: None,
        session_retention: None,
    };
    octets.clear();
    setup.emit(&mut octets, 100).expect("short");
    let answers = [(); 2].map(|()| once(&mut b, &octets));
    assert_eq!((answers[0] == answers[1], b.upf.stats.repeated), (true, 1));
}

#[test]
fn given_and_shared_tunnel_ends_are_taken() {
    let mut b = bench();
    b.associate();
    let mut given = request();
    given.create_pdrs[0] = uplink_pdr(1, FTeid::new(Teid(0x1234_5678), UPF.into()));
    let response = b.establish(&given);
    assert_eq!((response.cause, response.created_pdrs.len()), (Cause::REQUEST_ACCEPTED, 0));
    b.uplink(Teid(0x1234_5678), &ipv4(UE, SERVER, 40));
    assert_eq!(b.plane.n6.len(), 1);
    let clash = b.establish(&given);
    assert_eq!(clash.cause, Cause::INVALID_F_TEID_ALLOCATION);
    assert_eq!(clash.failed_rule_id, Some(FailedRuleId::Pdr(1)));

    // two PDRs with one CHOOSE ID, for two QoS flows, have one tunnel end
    let mut shared = request();
    let choose = FTeid::Choose { ipv4: true, ipv6: false, id: Some(5) };
    let flow = |id, qfi| {
        let mut pdr = uplink_pdr(id, choose);
        pdr.pdi.qfis.push(Qfi(qfi));
        pdr
    };
    shared.create_pdrs =
        [flow(1, 1), flow(3, 2), downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None)].into_iter().collect();
    let response = b.establish(&shared);
    let ends: Vec<_> = response.created_pdrs.iter().map(|pdr| pdr.f_teid.and_then(|f_teid| f_teid.teid())).collect();
    assert!(ends.len() == 2 && ends[0].is_some() && ends[0] == ends[1], "{response:?}");
}

#[test]
fn gate_rate_and_flow_of_the_qer_hold() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let mut update = SessionModificationRequest::default();
    let gate_status = GateStatus { uplink_closed: true, downlink_closed: false };
    update.update_qers.push(UpdateQer {
        qer_id: QerId(1),
        gate_status: Some(gate_status),
        mbr: Some(Mbr { uplink_kbps: 0, downlink_kbps: 80 }),
        qfi: Some(Qfi(33)),
        ..UpdateQer::default()
    });
    assert_eq!(b.modify(seid, &update).cause, Cause::REQUEST_ACCEPTED);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!(b.plane.stats.dropped(DropReason::GateClosed), 1);
    b.plane.receive_n6(&ipv4(SERVER, UE, 100), b.now.instant);
    let qfi = Packet::parse(&b.plane.n3[0].1).expect("sound").pdu_session.map(PduSession::qfi);
    assert_eq!(qfi, Some(33));
    (0..100).for_each(|_| b.plane.receive_n6(&ipv4(SERVER, UE, 1000), b.now.instant));
    assert!(b.plane.stats.dropped(DropReason::RateExceeded) > 90);
}

#[test]
fn handover_ends_old_tunnel() {
    let mut b = bench();
    let (seid, _) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    b.tunnelled();
    b.modify(seid, &forward_to(Teid(0xcafe), GNB.into(), Some(SmReqFlags::SNDEM)));
    let end_marker = Packet::parse(&b.plane.n3[0].1).expect("sound");
    assert_eq!((end_marker.kind, end_marker.teid), (gtpu::MessageType::EndMarker, RAN_TEID));
    b.tunnelled();
    b.modify(seid, &forward_to(Teid(0xf00d), GNB.into(), None));
    assert_eq!(b.tunnelled(), vec![], "nobody asked for one");
}

#[test]
fn rules_come_and_go() {
    let mut b = bench();
    let (seid, teid) = b.session();
    // another tunnel for the same session replaces the first
    let mut change = SessionModificationRequest::default();
    change.create_pdrs.push(uplink_pdr(7, CHOOSE));
    change.remove_pdrs.push(RemovePdr { pdr_id: PdrId(1) });
    let response = b.modify(seid, &change);
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let new = response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("chosen");
    b.uplink(teid, &ipv4(UE, SERVER, 40));
    b.uplink(new, &ipv4(UE, SERVER, 40));
    assert_eq!((b.plane.n6.len(), b.plane.stats.dropped(DropReason::UnknownTeid)), (1, 1));
    assert_eq!(b.plane.tables.len(), (1, 1));
    // the downlink PDR gets another FAR, which drops
    let mut change = SessionModificationRequest::default();
    change.create_fars.push(CreateFar { far_id: FarId(9), apply_action: ApplyAction::DROP, ..CreateFar::default() });
    change.update_pdrs.push(UpdatePdr { pdr_id: PdrId(2), far_id: Some(FarId(9)), ..UpdatePdr::default() });
    change.remove_fars.push(RemoveFar { far_id: FarId(2) });
    assert_eq!(b.modify(seid, &change).cause, Cause::REQUEST_ACCEPTED);
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    assert_eq!(b.plane.stats.dropped(DropReason::Action), 1);
}

#[test]
fn two_families_in_one_pdr_or_in_two() {
    let prefix: Ipv6Addr = "2001:db8:45:2::".parse().expect("an address");
    for pdrs in [
        vec![downlink_pdr(2, Some(UE), Some(prefix))],
        vec![downlink_pdr(2, Some(UE), None), downlink_pdr(3, None, Some(prefix))],
    ] {
        let mut b = bench();
        b.associate();
        let mut request = request();
        request.create_pdrs.truncate(1);
        request.create_pdrs.extend(pdrs);
        let (seid, teid) = established(&b.establish(&request));
        b.modify(seid, &forward(RAN_TEID));
        let tunnelled = b.tunnelled();
        assert_eq!((tunnelled.len(), tunnelled[0].1[40]), (1, 134), "its prefix is told to the UE");
        b.uplink(teid, &ipv4(UE, SERVER, 40));
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
        v6.extend(prefix.octets());
        v6.extend([0xab; 16]);
        b.uplink(teid, &v6);
        assert_eq!(b.plane.n6.len(), 2);
        b.delete(seid);
        assert!(b.plane.tables.is_empty());
    }
}

#[test]
fn control_plane_restart_removes_its_sessions() {
    let mut b = bench();
    b.session();
    assert_eq!(b.associate().cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(b.upf.sessions(), 1, "the same time stamp");
    assert_eq!(b.associate_as(2_000).cause, Cause::REQUEST_ACCEPTED);
    assert!(b.upf.sessions() == 0 && b.plane.tables.is_empty());

    b.establish(&request());
    let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(3_000) };
    let _: (_, HeartbeatResponse) = b.request(|out, sequence| heartbeat.emit(out, sequence));
    assert!(b.upf.sessions() == 0 && b.plane.tables.is_empty());
    assert_eq!(b.establish(&request()).cause, Cause::NO_ESTABLISHED_ASSOCIATION);
}

#[test]
fn release_ends_association_and_sessions() {
    let mut b = bench();
    b.session();
    let update = AssociationUpdateRequest {
        node_id: node(),
        up_function_features: None,
        cp_function_features: None,
        release_requested: None,
        graceful_release_period: None,
        flags: None,
    };
    let (_, response): (_, AssociationUpdateResponse) = b.request(|out, sequence| update.emit(out, sequence));
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
    let release = AssociationReleaseRequest { node_id: node() };
    let request_release =
        |b: &mut Bench| -> AssociationReleaseResponse { b.request(|out, sequence| release.emit(out, sequence)).1 };
    assert_eq!(request_release(&mut b).cause, Cause::REQUEST_ACCEPTED);
    assert!(b.plane.tables.is_empty());
    assert_eq!(request_release(&mut b).cause, Cause::NO_ESTABLISHED_ASSOCIATION);
}

#[test]
fn session_with_one_address_is_compact() {
    for in_uplink in [false, true] {
        let mut b = bench();
        b.associate();
        let mut request = request();
        if in_uplink {
            request.create_pdrs[0].pdi.ue_ip_addresses.push(UeIpAddress::source(Some(UE), None));
        }
        let (seid, teid) = established(&b.establish(&request));
        let check = |b: &Bench, tunnel: Option<Teid>| {
            assert!(b.upf.sessions.is_small(seid));
            let session = b.upf.sessions.get(&seid).expect("it exists");
            let addresses: Vec<_> = session.rules.pdrs.iter().map(|pdr| pdr.detection.ue.ipv4).collect();
            assert_eq!(addresses, [in_uplink.then_some(UE), Some(UE)]);
            let tunnels: Vec<_> = session.rules.fars.iter().map(|far| far.tunnel.map(|end| end.teid)).collect();
            assert_eq!((tunnels, session.first_teid()), (vec![None, tunnel], Some(teid)));
        };
        check(&b, None);
        assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
        check(&b, Some(RAN_TEID));
        b.uplink(teid, &ipv4(UE, SERVER, 100));
        let down = ipv4(SERVER, UE, 60);
        b.plane.receive_n6(&down, b.now.instant);
        assert_eq!((b.plane.n6.len(), b.tunnelled()), (1, vec![(RAN_TEID, down)]));
    }
}
