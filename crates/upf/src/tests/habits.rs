//! Requests as SMFs of other cores send them, with missing and additional elements.

use super::*;

/// Request of Open5GS: four PDRs, 3GPP Interface Types, network instances, a URR with a threshold,
/// and a BAR. Two of the PDRs are for the tunnel between UPF and SMF, which carries router
/// advertisements.
pub(crate) fn open5gs() -> SessionEstablishmentRequest {
    let choose = FTeid::Choose { ipv4: true, ipv6: false, id: Some(5) };
    let mut request = SessionEstablishmentRequest::new(node(), FSeid::new(CP_SEID, SMF.into()));
    let internet = || Some(NetworkInstance::from("internet"));
    let pdr = |id: u16, precedence, pdi: Pdi| CreatePdr {
        pdr_id: PdrId(id),
        precedence: Precedence(precedence),
        outer_header_removal: pdi.f_teid.map(|_| OuterHeaderRemoval::GTPU_IPV4),
        pdi,
        far_id: Some(FarId(id.into())),
        ..CreatePdr::default()
    };
    let ue = |destination| {
        std::iter::once(UeIpAddress { destination, ..UeIpAddress::source(Some(UE), None) }).collect::<List<_, 1>>()
    };
    let mut down = pdr(1, 65_535, Pdi { source_interface: SourceInterface::CORE, ..Pdi::default() });
    down.pdi.network_instance = internet();
    down.pdi.ue_ip_addresses = ue(true);
    down.pdi.source_interface_type = Some(InterfaceType::N6);
    let access = Pdi { source_interface: SourceInterface::ACCESS, f_teid: Some(choose), ..Pdi::default() };
    let mut up = pdr(2, 65_535, Pdi { network_instance: internet(), ue_ip_addresses: ue(false), ..access.clone() });
    up.pdi.source_interface_type = Some(InterfaceType::N3_3GPP);
    up.pdi.qfis.push(Qfi(1));
    let control = Pdi { source_interface: SourceInterface::CP_FUNCTION, f_teid: Some(CHOOSE), ..Pdi::default() };
    let from_smf = pdr(3, 65_535, Pdi { ue_ip_addresses: ue(false), ..control });
    let mut to_smf = pdr(4, 255, access);
    to_smf.pdi.sdf_filters = vec![SdfFilter::new("permit out 58 from ff02::2/128 to assigned")];
    for pdr in [&mut down, &mut up] {
        pdr.qer_ids.push(QerId(1));
        pdr.urr_ids.push(UrrId(1));
    }
    request.create_pdrs = [down, up, from_smf, to_smf].into_iter().collect();
    let far = |id, apply_action, parameters| CreateFar {
        far_id: FarId(id),
        apply_action,
        forwarding_parameters: parameters,
        bar_id: None,
    };
    let to = |destination_interface| ForwardingParameters {
        destination_interface,
        network_instance: internet(),
        ..ForwardingParameters::default()
    };
    let buffer = ApplyAction::BUFF | ApplyAction::NOCP;
    let into_smf = ForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(0x5), SMF.into())),
        ..to(DestinationInterface::CP_FUNCTION)
    };
    request.create_fars = [
        CreateFar { bar_id: Some(BarId(1)), ..far(1, buffer, Some(to(DestinationInterface::ACCESS))) },
        far(2, ApplyAction::FORW, Some(to(DestinationInterface::CORE))),
        far(3, buffer, Some(to(DestinationInterface::ACCESS))),
        far(4, ApplyAction::FORW, Some(into_smf)),
    ]
    .into_iter()
    .collect();
    request.create_qers.push(CreateQer {
        qer_id: QerId(1),
        mbr: Some(Mbr { uplink_kbps: 1_000_000, downlink_kbps: 1_000_000 }),
        qfi: Some(Qfi(1)),
        ..CreateQer::default()
    });
    request.create_urrs.push(CreateUrr {
        urr_id: UrrId(1),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: ReportingTriggers::VOLTH,
        volume_threshold: Some(VolumeThreshold { total: Some(100 << 20), ..VolumeThreshold::default() }),
        ..CreateUrr::default()
    });
    request.create_bars.push(CreateBar { bar_id: BarId(1), ..CreateBar::default() });
    request.pdn_type = Some(PdnType::IPV4);
    request
}

#[test]
fn open5gs_has_a_tunnel_to_the_smf() {
    let mut b = bench();
    b.associate();
    let response = b.establish(&open5gs());
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let end = |id| {
        let created = response.created_pdrs.iter().find(|pdr| pdr.pdr_id == PdrId(id));
        created.and_then(|pdr| pdr.f_teid?.teid()).expect("chosen")
    };
    assert!(end(2) == end(4) && end(2) != end(3));

    // a router solicitation goes to the SMF, user packets to the data network
    let mut solicitation = vec![0x60, 0, 0, 0, 0, 8, 58, 255, 0xfe, 0x80];
    solicitation.extend([0; 13]);
    solicitation.push(5);
    solicitation.extend("ff02::2".parse::<Ipv6Addr>().expect("an address").octets());
    solicitation.extend([133, 0, 0, 0, 0, 0, 0, 0]);
    b.uplink(end(4), &solicitation);
    b.uplink(end(2), &ipv4(UE, SERVER, 60));
    assert_eq!(b.plane.n6, [ipv4(UE, SERVER, 60)]);
    let (to, datagram) = b.plane.n3.remove(0);
    let packet = Packet::parse(&datagram).expect("sound");
    assert_eq!((to, packet.teid, packet.payload), ((SMF, 2152).into(), Teid(0x5), &solicitation[..]));
    // packets that the SMF sends while the UE is idle are buffered, and leave with the rest once
    // both FARs forward
    let mut datagram =
        gtpu::g_pdu_header(end(3), PduSession::Downlink { qfi: 1, rqi: false }, 48).expect("short").to_vec();
    datagram.extend(ipv4(SMF, UE, 48));
    b.plane.receive_n3((SMF, 2152).into(), &datagram, b.now.instant);
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    assert_eq!(b.events().len(), 1, "one report");
    let mut change = forward(RAN_TEID);
    let mut other = change.update_fars[0].clone();
    (change.update_fars[0].far_id, other.far_id) = (FarId(1), FarId(3));
    change.update_fars.push(other);
    b.modify(response.up_f_seid.expect("there").seid, &change);
    let lengths: Vec<_> = b.tunnelled().iter().map(|(teid, packet)| (*teid, packet.len())).collect();
    assert_eq!(lengths, [(RAN_TEID, 48), (RAN_TEID, 60)]);
}

/// Request of free5GC: filters that permit all packets "to" the UE's own address, and an explicit
/// F-TEID in updates. The FAR drops until the gNB's tunnel is known.
#[test]
fn free5gc_filter_with_ue_address_matches() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    for pdr in &mut request.create_pdrs {
        pdr.pdi.network_instance = Some(NetworkInstance::from("internet"));
        pdr.pdi.sdf_filters = vec![SdfFilter::new("permit out ip from any to 10.45.0.2/32")];
        pdr.pdi.ue_ip_addresses = std::iter::once(UeIpAddress::destination(Some(UE), None)).collect();
    }
    request.create_fars[1].apply_action = ApplyAction::DROP;
    let (seid, teid) = established(&b.establish(&request));
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    let mut change = forward(RAN_TEID);
    let mut pdi = request.create_pdrs[0].pdi.clone();
    pdi.f_teid = Some(FTeid::new(teid, UPF.into()));
    change.update_pdrs.push(UpdatePdr { pdr_id: PdrId(1), pdi: Some(pdi), ..UpdatePdr::default() });
    assert_eq!(b.modify(seid, &change).cause, Cause::REQUEST_ACCEPTED);
    b.uplink(teid, &ipv4(UE, SERVER, 60));
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    assert_eq!((b.plane.n6.len(), b.tunnelled().len()), (1, 1));
}

/// Request of OAI: the modification creates the downlink PDR, with the gNB's tunnel and without a
/// QER; its PDI names the QoS flow.
#[test]
fn oai_downlink_added_later_without_qer_works() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    request.create_pdrs.truncate(1);
    request.create_fars.truncate(1);
    request.create_qers.clear();
    let pdr = &mut request.create_pdrs[0];
    pdr.qer_ids.clear();
    pdr.pdi.qfis.push(Qfi(7));
    pdr.pdi.network_instance = Some(NetworkInstance::from("access.oai.org"));
    pdr.pdi.ue_ip_addresses.push(UeIpAddress::source(Some(UE), None));
    let (seid, _) = established(&b.establish(&request));
    let mut change = SessionModificationRequest::default();
    let mut down = downlink_pdr(2, Some(UE), None);
    down.qer_ids.clear();
    down.pdi.qfis.push(Qfi(7));
    down.pdi.network_instance = Some(NetworkInstance::from("core.oai.org"));
    change.create_pdrs.push(down);
    change.create_fars.push(CreateFar {
        far_id: FarId(2),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(RAN_TEID, GNB.into())),
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    });
    assert_eq!(b.modify(seid, &change).cause, Cause::REQUEST_ACCEPTED);
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    let flow = Packet::parse(&b.plane.n3[0].1).expect("sound").pdu_session.map(PduSession::qfi);
    assert_eq!(flow, Some(7));
}
