//! Rules that entries cannot hold.

use super::*;
use vireo_datapath::DropReason;

/// Returns a UDP packet from or to port 4000 of the UE.
pub(crate) fn udp(source: Ipv4Addr, destination: Ipv4Addr, [from, to]: [u16; 2], octets: u16) -> Vec<u8> {
    let mut packet = ipv4(source, destination, octets);
    packet[20..22].copy_from_slice(&from.to_be_bytes());
    packet[22..24].copy_from_slice(&to.to_be_bytes());
    packet
}

fn accepted(b: &mut Bench, request: &SessionEstablishmentRequest) -> SessionEstablishmentResponse {
    let response = b.establish(request);
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    response
}

fn to_gnb(far: u32, teid: u32) -> CreateFar {
    CreateFar {
        far_id: FarId(far),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(teid), GNB.into())),
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    }
}

const SHARED: FTeid = FTeid::Choose { ipv4: true, ipv6: false, id: Some(5) };

/// DNS in QoS flow 5 under QER and URR 5, all other packets in flow 1 under QER 1.
pub(crate) fn two_flows() -> SessionEstablishmentRequest {
    let mut request = request();
    request.create_fars[1] = to_gnb(2, RAN_TEID.0);
    let dns = "permit out 17 from 198.51.100.0/24 53 to assigned";
    request.create_pdrs[0].pdi.f_teid = Some(SHARED);
    request.create_qers.push(CreateQer { qer_id: QerId(5), qfi: Some(Qfi(5)), ..CreateQer::default() });
    request.create_urrs.push(CreateUrr {
        urr_id: UrrId(5),
        measurement_method: MeasurementMethod::VOLUM,
        ..CreateUrr::default()
    });
    let mut up = uplink_pdr(11, SHARED);
    let mut down = downlink_pdr(12, Some(UE), None);
    up.pdi.sdf_filters = vec![SdfFilter { id: Some(1), ..SdfFilter::new(dns) }];
    // a reference to the same filter by ID
    down.pdi.sdf_filters = vec![SdfFilter { id: Some(1), ..SdfFilter::default() }];
    for mut pdr in [up, down] {
        pdr.precedence = Precedence(10);
        pdr.qer_ids = std::iter::once(QerId(5)).collect();
        pdr.urr_ids = std::iter::once(UrrId(5)).collect();
        request.create_pdrs.push(pdr);
    }
    request
}

fn flows_of(b: &mut Bench) -> Vec<Option<u8>> {
    let sent = std::mem::take(&mut b.plane.n3);
    sent.iter().map(|(_, d)| Packet::parse(d).expect("sound").pdu_session.map(PduSession::qfi)).collect()
}

#[test]
fn filtered_pdrs_share_a_tunnel_and_an_address() {
    let mut b = bench();
    b.associate();
    let response = accepted(&mut b, &two_flows());
    let (seid, ends) = (response.up_f_seid.expect("there").seid, &response.created_pdrs);
    let teid = ends[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("chosen");
    assert!(ends.len() == 2 && ends[1].f_teid == ends[0].f_teid);
    b.uplink(teid, &udp(UE, SERVER, [4000, 53], 60));
    b.uplink(teid, &udp(UE, SERVER, [4000, 80], 100));
    b.plane.receive_n6(&udp(SERVER, UE, [53, 4000], 70), b.now.instant);
    b.plane.receive_n6(&udp(SERVER, UE, [80, 4000], 100), b.now.instant);
    assert_eq!((b.plane.n6.len(), flows_of(&mut b)), (2, vec![Some(5), Some(1)]));
    // one gate is closed, the other flow continues; the measurement remains
    let mut change = SessionModificationRequest::default();
    let gate_status = Some(GateStatus { uplink_closed: true, downlink_closed: true });
    change.update_qers.push(UpdateQer { qer_id: QerId(5), gate_status, ..UpdateQer::default() });
    change.query_urrs.push(QueryUrr { urr_id: UrrId(5) });
    let reports = b.modify(seid, &change).usage_reports;
    assert_eq!(reports[0].0.volume.map(|v| (v.uplink, v.downlink)), Some((Some(60), Some(70))));
    b.uplink(teid, &udp(UE, SERVER, [4000, 53], 60));
    b.uplink(teid, &udp(UE, SERVER, [4000, 80], 100));
    assert_eq!((b.plane.n6.len(), b.plane.stats.dropped(DropReason::GateClosed)), (3, 1));
    // without the filtered PDRs entries suffice again
    let mut change = SessionModificationRequest::default();
    change.remove_pdrs.extend([11, 12].map(|id| RemovePdr { pdr_id: PdrId(id) }));
    assert_eq!(b.modify(seid, &change).cause, Cause::REQUEST_ACCEPTED);
    b.plane.receive_n6(&udp(SERVER, UE, [53, 4000], 70), b.now.instant);
    assert_eq!(flows_of(&mut b), [Some(1)]);
    let last = b.delete(seid).usage_reports;
    assert_eq!(last[0].0.volume.and_then(|volume| volume.total), Some(0));
    assert!(b.plane.tables.is_empty());
}

#[test]
fn packets_of_one_flow_wait_while_others_pass() {
    let mut b = bench();
    b.associate();
    let mut request = two_flows();
    request.create_fars.push(CreateFar {
        far_id: FarId(7),
        apply_action: ApplyAction::BUFF | ApplyAction::NOCP,
        ..CreateFar::default()
    });
    request.create_pdrs[3].far_id = Some(FarId(7));
    let seid = accepted(&mut b, &request).up_f_seid.expect("there").seid;
    b.plane.receive_n6(&udp(SERVER, UE, [53, 4000], 70), b.now.instant);
    b.plane.receive_n6(&udp(SERVER, UE, [80, 4000], 100), b.now.instant);
    assert_eq!(flows_of(&mut b), [Some(1)]);
    let out = b.events();
    assert_filtered_flow_is_reported(&out);
    b.modify(seid, &forward_filtered_flow());
    assert_eq!(flows_of(&mut b), [Some(5)]);

    // The other flow is forwarded again before the events of both are handled.
    b.modify(seid, &buffer());
    let mut change = buffer();
    change.update_fars[0].far_id = FarId(7);
    b.modify(seid, &change);
    b.plane.receive_n6(&udp(SERVER, UE, [53, 4000], 70), b.now.instant);
    b.plane.receive_n6(&udp(SERVER, UE, [80, 4000], 100), b.now.instant);
    b.modify(seid, &forward(RAN_TEID));
    assert_eq!(flows_of(&mut b), [Some(1)]);
    let out = b.events();
    assert_filtered_flow_is_reported(&out);
    b.modify(seid, &forward_filtered_flow());
    assert_eq!(flows_of(&mut b), [Some(5)]);
}

fn assert_filtered_flow_is_reported(out: &Outgoing) {
    let (_, report) = reports::the_report(out);
    let data = report.downlink_data.expect("there");
    let flow = DownlinkDataServiceInformation { qfi: Some(5), paging_policy: None };
    assert_eq!((&data.pdr_ids[..], &data.service_information[..]), (&[PdrId(12)][..], &[flow][..]));
}

fn forward_filtered_flow() -> SessionModificationRequest {
    let mut change = forward(RAN_TEID);
    change.update_fars[0].far_id = FarId(7);
    change
}

#[test]
fn session_between_upfs_relays_and_ends_tunnels() {
    let anchor: IpAddr = Ipv4Addr::new(192, 0, 2, 200).into();
    let mut b = bench();
    b.associate();
    let mut request = request();
    // no UE address: only the anchor knows it
    request.create_fars[0].forwarding_parameters = Some(ForwardingParameters {
        destination_interface: DestinationInterface::CORE,
        outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(0xa), anchor)),
        ..ForwardingParameters::default()
    });
    request.create_fars[1] = to_gnb(2, RAN_TEID.0);
    let mut down = uplink_pdr(2, CHOOSE);
    down.pdi.source_interface = SourceInterface::CORE;
    down.far_id = Some(FarId(2));
    request.create_pdrs[1] = down;
    let response = accepted(&mut b, &request);
    let ends: Vec<_> =
        response.created_pdrs.iter().filter_map(|pdr| pdr.f_teid.and_then(|f_teid| f_teid.teid())).collect();
    let sent = |b: &mut Bench| {
        let sent = std::mem::take(&mut b.plane.n3);
        let read = |(to, d): &(SocketAddr, Vec<u8>)| {
            let packet = Packet::parse(d).expect("sound");
            (to.ip(), packet.kind, packet.teid, packet.payload.len())
        };
        sent.iter().map(read).collect::<Vec<_>>()
    };
    b.uplink(ends[0], &ipv4(UE, SERVER, 60));
    b.uplink(ends[1], &ipv4(SERVER, UE, 80));
    let kind = gtpu::MessageType::GPdu;
    assert_eq!(sent(&mut b), [(anchor, kind, Teid(0xa), 60), (GNB.into(), kind, RAN_TEID, 80)]);
    assert!(b.plane.n6.is_empty());
    let seid = response.up_f_seid.expect("there").seid;
    // End Markers pass on in either direction (TS 29.281 7.3.2)
    let markers = [(GNB.into(), ends[0], anchor, Teid(0xa)), (anchor, ends[1], GNB.into(), RAN_TEID)];
    for (from, end, to, next) in markers {
        let mut marker = [0; gtpu::SIGNALLING_OCTETS];
        let marker = gtpu::end_marker(&mut marker, end).expect("short").to_vec();
        b.plane.receive_n3((from, 2152).into(), &marker, b.now.instant);
        assert_eq!(sent(&mut b), [(to, gtpu::MessageType::EndMarker, next, 0)]);
    }
    // the anchor does not have the tunnel: reported once (TS 23.527 5.3.3)
    for expected in [1, 0] {
        let mut error = [0; gtpu::SIGNALLING_OCTETS];
        let error = gtpu::error_indication_message(&mut error, 0, Teid(0xa), anchor).expect("short").to_vec();
        b.plane.receive_n3((anchor, 2152).into(), &error, b.now.instant);
        let out = b.events();
        assert_eq!(out.len(), expected);
        let message = out.first().map(|(_, octets)| Message::new(octets).expect("sound"));
        let report = message.map(|message| SessionReportRequest::parse(&message).expect("a report"));
        let ends = report.and_then(|report| report.error_indication).map(|error| error.remote_f_teids.to_vec());
        assert_eq!(ends, (expected == 1).then(|| vec![FTeid::new(Teid(0xa), anchor)]));
    }
    b.modify(seid, &forward_to(Teid(0xcafe), GNB.into(), Some(SmReqFlags::SNDEM)));
    assert_eq!(sent(&mut b), [(GNB.into(), gtpu::MessageType::EndMarker, RAN_TEID, 0)]);
    b.uplink(ends[1], &ipv4(SERVER, UE, 80));
    assert_eq!(sent(&mut b)[0].2, Teid(0xcafe));
    b.delete(seid);
    assert!(b.plane.tables.is_empty());
}

/// Rules of a tunnel for packets that the source of a handover forwards to the target's `to`.
fn forwarding(to: Teid, qfi: Option<u8>, extension_deletion: Option<u8>) -> SessionModificationRequest {
    let mut request = SessionModificationRequest::default();
    let removal = OuterHeaderRemoval { extension_deletion, ..OuterHeaderRemoval::GTPU };
    request.create_pdrs.push(CreatePdr {
        outer_header_removal: Some(removal),
        far_id: Some(FarId(3)),
        qer_ids: std::iter::once(QerId(3)).collect(),
        ..uplink_pdr(3, CHOOSE)
    });
    request.create_fars.push(to_gnb(3, to.0));
    let qfi = qfi.map(Qfi);
    request.create_qers.push(CreateQer { qer_id: QerId(3), qfi, ..CreateQer::default() });
    request
}

/// Tunnels that relay to each other would pass a packet on without end. A target of a handover
/// names the addresses.
#[test]
fn relay_to_upf_itself_is_refused() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let relay = |address: Ipv4Addr| {
        let mut request = forwarding(teid, None, None);
        let parameters = request.create_fars[0].forwarding_parameters.as_mut().expect("a tunnel");
        parameters.outer_header_creation = Some(OuterHeaderCreation::gtpu(teid, address.into()));
        request
    };
    for address in [UPF, Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::BROADCAST] {
        let response = b.modify(seid, &relay(address));
        let refused = (Cause::RULE_FAILURE, Some(FailedRuleId::Far(3)));
        assert_eq!((response.cause, response.failed_rule_id), refused, "{address}");
    }
    assert_eq!(b.modify(seid, &relay(Ipv4Addr::new(192, 0, 2, 10))).cause, Cause::REQUEST_ACCEPTED);
}

/// A RAN node names its end of the tunnel. Packets that return to the UPF would be those of any UE,
/// and pass between two of them for as long as they have hops.
#[test]
fn tunnel_to_upf_itself_is_refused() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let own = ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:127.0.0.1"];
    for address in own.into_iter().chain(["169.254.169.254", "0.1.2.3", "240.0.0.1", "fe80::1", "ff05::2", "::"]) {
        let address: IpAddr = address.parse().expect("one");
        let response = b.modify(seid, &forward_to(teid, address, None));
        let refused = (Cause::RULE_FAILURE, Some(FailedRuleId::Far(2)));
        assert_eq!((response.cause, response.failed_rule_id), refused, "{address}");
    }
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    assert_eq!(b.tunnelled().last().map(|(teid, _)| *teid), Some(RAN_TEID), "the rule before holds");
}

/// TS 23.401 5.5.1.2.2: a tunnel for each direction, whose packets do not mix.
#[test]
fn both_directions_of_source_reach_target() {
    let (down, up) = (Teid(0xf00), Teid(0xf01));
    let mut b = bench();
    let (seid, _) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let mut request = forwarding(down, None, None);
    request.create_pdrs.push(CreatePdr {
        outer_header_removal: Some(OuterHeaderRemoval::GTPU),
        far_id: Some(FarId(4)),
        qer_ids: std::iter::once(QerId(3)).collect(),
        ..uplink_pdr(4, CHOOSE)
    });
    request.create_fars.push(to_gnb(4, up.0));
    let response = b.modify(seid, &request);
    assert_eq!((response.cause, response.created_pdrs.len()), (Cause::REQUEST_ACCEPTED, 2));
    let ends: Vec<_> =
        response.created_pdrs.iter().filter_map(|pdr| pdr.f_teid.and_then(|f_teid| f_teid.teid())).collect();
    for (end, to, packet) in [(ends[0], down, ipv4(SERVER, UE, 80)), (ends[1], up, ipv4(UE, SERVER, 60))] {
        let mut datagram = gtpu::plain_g_pdu_header(end, packet.len()).expect("short").to_vec();
        datagram.extend(&packet);
        b.plane.receive_n3((GNB, 2152).into(), &datagram, b.now.instant);
        let sent = std::mem::take(&mut b.plane.n3);
        let relayed = Packet::parse(&sent[0].1).expect("sound");
        assert_eq!((sent.len(), relayed.teid, relayed.payload), (1, to, &packet[..]));
    }
    assert!(b.plane.n6.is_empty());
    let mut removal = SessionModificationRequest::default();
    for (pdr, far) in [(3, 3), (4, 4)] {
        removal.remove_pdrs.push(RemovePdr { pdr_id: PdrId(pdr) });
        removal.remove_fars.push(RemoveFar { far_id: FarId(far) });
    }
    removal.remove_qers.push(RemoveQer { qer_id: QerId(3) });
    assert_eq!(b.modify(seid, &removal).cause, Cause::REQUEST_ACCEPTED);
    b.delete(seid);
    assert!(b.plane.tables.is_empty());
}

/// TS 23.502 4.9.1.3 and 4.11.1.2.
#[test]
fn packets_of_handover_source_reach_target() {
    let (old, new, to) = (RAN_TEID, Teid(0xcafe), Teid(0xf00));
    let received = PduSession::Downlink { qfi: 5, rqi: true };
    let marked = PduSession::Downlink { qfi: 1, rqi: false };
    let cases = [
        (None, None, Some(received), Some(received)),
        (None, Some(OuterHeaderRemoval::PDU_SESSION_CONTAINER), Some(received), None),
        (Some(1), None, None, Some(marked)),
        (None, None, None, None),
    ];
    for (qfi, deletion, container, expected) in cases {
        let mut b = bench();
        let (seid, teid) = b.session();
        b.modify(seid, &forward(old));
        let response = b.modify(seid, &forwarding(to, qfi, deletion));
        assert_eq!((response.cause, response.created_pdrs.len()), (Cause::REQUEST_ACCEPTED, 1));
        let end = response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("allocated");
        assert_ne!(end, teid);
        let packet = ipv4(SERVER, UE, 80);
        let mut datagram = match container {
            Some(container) => gtpu::g_pdu_header(end, container, packet.len()).expect("short").to_vec(),
            None => gtpu::plain_g_pdu_header(end, packet.len()).expect("short").to_vec(),
        };
        datagram.extend(&packet);
        b.plane.receive_n3((GNB, 2152).into(), &datagram, b.now.instant);
        let sent = std::mem::take(&mut b.plane.n3);
        let relayed = Packet::parse(&sent[0].1).expect("sound");
        assert_eq!((sent.len(), relayed.teid, relayed.payload), (1, to, &packet[..]));
        assert_eq!(relayed.pdu_session, expected, "{qfi:?} {deletion:?} {container:?}");
        // The session goes on beside, and the path switch ends the old path.
        b.uplink(teid, &ipv4(UE, SERVER, 60));
        b.plane.receive_n6(&packet, b.now.instant);
        assert_eq!((b.plane.n6.len(), b.tunnelled()), (1, vec![(old, packet.clone())]));
        b.modify(seid, &forward_to(new, GNB.into(), Some(SmReqFlags::SNDEM)));
        assert_eq!(b.tunnelled(), [(old, vec![])], "an End Marker");
        let mut marker = [0; gtpu::SIGNALLING_OCTETS];
        let marker = gtpu::end_marker(&mut marker, end).expect("short").to_vec();
        b.plane.receive_n3((GNB, 2152).into(), &marker, b.now.instant);
        let sent = std::mem::take(&mut b.plane.n3);
        let passed = Packet::parse(&sent[0].1).expect("sound");
        assert_eq!((sent.len(), passed.kind, passed.teid), (1, gtpu::MessageType::EndMarker, to));

        let mut removal = SessionModificationRequest::default();
        removal.remove_pdrs.push(RemovePdr { pdr_id: PdrId(3) });
        removal.remove_fars.push(RemoveFar { far_id: FarId(3) });
        removal.remove_qers.push(RemoveQer { qer_id: QerId(3) });
        b.modify(seid, &removal);
        assert_eq!(b.plane.tables.flow_sessions().all, 0, "the entries suffice again");
        b.plane.receive_n3((GNB, 2152).into(), &marker, b.now.instant);
        b.plane.receive_n6(&packet, b.now.instant);
        assert_eq!(b.tunnelled(), [(new, packet)], "the tunnel is unknown");
        b.delete(seid);
        assert!(b.plane.tables.is_empty());
    }
}

/// Of an unknown sender, of the tunnel of a session, and of none.
#[test]
fn other_end_markers_have_no_effect() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let response = b.modify(seid, &forwarding(Teid(0xf00), None, None));
    let end = response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("allocated");
    for (from, teid) in [(Ipv4Addr::new(203, 0, 113, 9), end), (GNB, teid), (GNB, Teid(end.0 ^ 1))] {
        let mut marker = [0; gtpu::SIGNALLING_OCTETS];
        let marker = gtpu::end_marker(&mut marker, teid).expect("short").to_vec();
        b.plane.receive_n3((from, 2152).into(), &marker, b.now.instant);
        assert_eq!(b.tunnelled(), []);
    }
}

#[test]
fn networks_behind_the_ue_are_reached_through_it() {
    let behind = Ipv4Addr::new(10, 45, 77, 9);
    let mut b = bench();
    b.associate();
    let mut request = request();
    request.create_fars[1] = to_gnb(2, RAN_TEID.0);
    request.create_pdrs[1].pdi.framed_routes = vec![FramedRoute::from("10.45.77.0/24 0.0.0.0 1")];
    let response = accepted(&mut b, &request);
    let (seid, teid) = established(&response);
    b.uplink(teid, &ipv4(behind, SERVER, 60));
    b.plane.receive_n6(&ipv4(SERVER, behind, 60), b.now.instant);
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    assert_eq!((b.plane.n6.len(), b.tunnelled().len()), (1, 2));
    b.delete(seid);
    b.plane.receive_n6(&ipv4(SERVER, behind, 60), b.now.instant);
    assert_eq!(b.plane.stats.dropped(DropReason::UnknownUe), 1);
}

pub(crate) fn pool(name: &str, network: [u8; 4]) -> crate::Pool {
    let dnn = name.parse().expect("a name");
    crate::Pool { dnn, ipv4: Some((network.into(), 29)), ipv6: None, mtu: 1400, dns: vec![], isolated: false }
}

#[test]
fn upf_assigns_address_of_network_instance() {
    let mut b = bench_with(vec![pool("internet", [10, 45, 0, 0]), pool("ims", [10, 46, 0, 0])]);
    let features = b.associate().up_function_features.expect("told");
    assert!(features.contains(UpFunctionFeatures::UEIP));
    let wanting = |b: &mut Bench, instance: Option<&str>, dnn: Option<&str>| {
        let mut request = request();
        request.create_fars[1] = to_gnb(2, RAN_TEID.0);
        request.apn_dnn = dnn.and_then(ApnDnn::from_name);
        for pdr in &mut request.create_pdrs {
            let destination = pdr.pdi.source_interface == SourceInterface::CORE;
            let wanted = UeIpAddress { choose_ipv4: true, destination, ..UeIpAddress::default() };
            pdr.pdi.ue_ip_addresses = std::iter::once(wanted).collect();
            pdr.pdi.network_instance = instance.map(NetworkInstance::from);
        }
        b.establish(&request)
    };
    let address = |response: &SessionEstablishmentResponse| {
        let all: Vec<_> = response.created_pdrs.iter().map(|pdr| pdr.ue_ip_addresses[0]).collect();
        assert_eq!((all.len(), all[0].destination, all[1].destination), (2, false, true));
        assert_eq!(all[0].ipv4, all[1].ipv4);
        all[0].ipv4.expect("chosen")
    };
    let ims = wanting(&mut b, Some("ims"), None);
    assert_eq!(address(&ims), Ipv4Addr::new(10, 46, 0, 2));
    let first = wanting(&mut b, Some("core.example"), Some("internet"));
    assert_eq!(address(&first), Ipv4Addr::new(10, 45, 0, 2));
    // the UE's packets with that address pass
    let teid = first.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("chosen");
    b.uplink(teid, &ipv4(UE, SERVER, 60));
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    assert_eq!((b.plane.n6.len(), b.tunnelled().len()), (1, 1));
    assert_eq!(wanting(&mut b, None, None).offending_ie, Some(OffendingIe(NetworkInstance::ID)), "which of the two?");
    // an address that the control plane has chosen itself is not allocated again
    let mut given = request();
    given.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None);
    assert_eq!(b.establish(&given).cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(address(&wanting(&mut b, Some("internet"), None)), Ipv4Addr::new(10, 45, 0, 4));
    b.delete(ims.up_f_seid.expect("there").seid);
    let seids: Vec<_> = (0..5).map(|_| wanting(&mut b, Some("ims"), None)).map(|r| (r.cause, r.up_f_seid)).collect();
    let refused = seids.iter().filter(|(cause, _)| *cause == Cause::NO_RESOURCES).count();
    assert_eq!(refused, 4, "the UPF's limit of sessions: {seids:?}");
}

#[test]
fn exhausted_pool_is_reported_as_cause() {
    let mut small = pool("internet", [10, 45, 0, 0]);
    small.ipv4 = Some(([10, 45, 0, 0].into(), 30));
    let mut b = bench_with(vec![small]);
    b.associate();
    let mut request = request();
    request.create_pdrs[1].pdi.ue_ip_addresses[0] = UeIpAddress { choose_ipv4: true, ..UeIpAddress::default() };
    let first = accepted(&mut b, &request);
    let refused = b.establish(&request);
    assert_eq!((refused.cause, b.upf.sessions()), (Cause::ALL_ADDRESSES_OCCUPIED, 1));
    b.delete(first.up_f_seid.expect("there").seid);
    assert_eq!(accepted(&mut b, &request).created_pdrs[1].ue_ip_addresses[0].ipv4, Some(UE));
}
