//! Property tests: random input never panics, and decoding inverts encoding.

use crate::samples;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::Teid;
use vireo_wire::pfcp::*;

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Into::into)
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 16]>().prop_map(Into::into)
}

fn list<T: std::fmt::Debug, const N: usize>(one: impl Strategy<Value = T>) -> impl Strategy<Value = List<T, N>> {
    vec(one, 0..4).prop_map(List::from_vec)
}

/// Returns addresses of which at least one is present.
fn addresses() -> impl Strategy<Value = (Option<Ipv4Addr>, Option<Ipv6Addr>)> {
    prop_oneof![
        v4().prop_map(|a| (Some(a), None)),
        v6().prop_map(|a| (None, Some(a))),
        (v4(), v6()).prop_map(|(a, b)| (Some(a), Some(b))),
    ]
}

fn f_teid() -> impl Strategy<Value = FTeid> {
    let flags = prop_oneof![Just((true, false)), Just((false, true)), Just((true, true))];
    prop_oneof![
        (any::<u32>(), addresses()).prop_map(|(teid, (ipv4, ipv6))| FTeid::Allocated { teid: Teid(teid), ipv4, ipv6 }),
        (flags, of(any::<u8>())).prop_map(|((ipv4, ipv6), id)| FTeid::Choose { ipv4, ipv6, id }),
    ]
}

fn f_seid() -> impl Strategy<Value = FSeid> {
    (any::<u64>(), addresses()).prop_map(|(seid, (ipv4, ipv6))| FSeid { seid, ipv4, ipv6 })
}

fn node_id() -> impl Strategy<Value = NodeId> {
    prop_oneof![
        v4().prop_map(NodeId::Ipv4),
        v6().prop_map(NodeId::Ipv6),
        "[a-z]{1,63}(\\.[a-z0-9]{1,9}){0,3}".prop_filter_map("labels", |name| NodeId::fqdn(&name)),
    ]
}

fn ue_ip() -> impl Strategy<Value = UeIpAddress> {
    (of(v4()), of(v6()), any::<bool>(), of(any::<u8>()), of(any::<u8>()), any::<bool>(), any::<bool>()).prop_map(
        |(ipv4, ipv6, destination, delegation_bits, prefix_length, choose_ipv4, choose_ipv6)| UeIpAddress {
            ipv4,
            ipv6,
            destination,
            delegation_bits,
            prefix_length,
            choose_ipv4,
            choose_ipv6,
        },
    )
}

fn sdf_filter() -> impl Strategy<Value = SdfFilter> {
    (of(".{0,40}"), of(any::<u16>()), of(any::<u32>()), of(0..1_u32 << 20), of(any::<u32>())).prop_map(
        |(text, traffic_class, spi, flow_label, id)| SdfFilter {
            flow_description: text.as_deref().map(Into::into),
            traffic_class,
            spi,
            flow_label,
            id,
        },
    )
}

fn outer_header() -> impl Strategy<Value = OuterHeaderCreation> {
    let kind = prop_oneof![
        any::<u32>().prop_map(|teid| (Some(Teid(teid)), None)),
        any::<u16>().prop_map(|port| (None, Some(port))),
        Just((None, None)),
    ];
    (kind, addresses(), of(any::<[u8; 3]>()), of(any::<[u8; 3]>()), any::<u8>()).prop_map(
        |((teid, port), (ipv4, ipv6), c_tag, s_tag, indications)| OuterHeaderCreation {
            teid,
            ipv4,
            ipv6,
            port,
            c_tag,
            s_tag,
            indications,
        },
    )
}

fn pdi() -> impl Strategy<Value = Pdi> {
    let packets = (vec(sdf_filter(), 0..3), list((0..64_u8).prop_map(Qfi)), of(".{0,30}"), of(0..64_u8));
    (0..16_u8, of(f_teid()), of(".{0,30}"), list(ue_ip()), packets).prop_map(
        |(interface, f_teid, network, ue_ip_addresses, (sdf_filters, qfis, application, kind))| Pdi {
            source_interface: SourceInterface(interface),
            f_teid,
            network_instance: network.as_deref().map(Into::into),
            ue_ip_addresses,
            sdf_filters,
            application_id: application.as_deref().map(Into::into),
            qfis,
            source_interface_type: kind.map(InterfaceType),
            ..Pdi::default()
        },
    )
}

fn create_pdr() -> impl Strategy<Value = CreatePdr> {
    let removal = (any::<u8>(), of(any::<u8>()));
    let ids = (of(any::<u32>()), list(any::<u32>().prop_map(UrrId)), list(any::<u32>().prop_map(QerId)));
    (any::<u16>(), any::<u32>(), pdi(), of(removal), ids, of(any::<u32>())).prop_map(
        |(id, precedence, pdi, removal, (far_id, urr_ids, qer_ids), time)| CreatePdr {
            pdr_id: PdrId(id),
            precedence: Precedence(precedence),
            pdi,
            outer_header_removal: removal
                .map(|(description, extension_deletion)| OuterHeaderRemoval { description, extension_deletion }),
            far_id: far_id.map(FarId),
            urr_ids,
            qer_ids,
            activation_time: time.map(ActivationTime),
            ..CreatePdr::default()
        },
    )
}

fn create_far() -> impl Strategy<Value = CreateFar> {
    let parameters = (0..16_u8, of(outer_header()), of(any::<u16>()), of(".{0,80}")).prop_map(
        |(interface, outer_header_creation, marking, policy)| ForwardingParameters {
            destination_interface: DestinationInterface(interface),
            outer_header_creation,
            transport_level_marking: marking.map(TransportLevelMarking),
            forwarding_policy: policy.filter(|p| p.len() < 256).map(|p| ForwardingPolicy(p.as_str().into())),
            ..ForwardingParameters::default()
        },
    );
    (any::<u32>(), any::<u16>(), of(parameters), of(any::<u8>())).prop_map(
        |(id, action, forwarding_parameters, bar)| CreateFar {
            far_id: FarId(id),
            apply_action: ApplyAction(action),
            forwarding_parameters,
            bar_id: bar.map(BarId),
        },
    )
}

fn create_qer() -> impl Strategy<Value = CreateQer> {
    let rate = (0..1_u64 << 40, 0..1_u64 << 40);
    (any::<u32>(), any::<[bool; 2]>(), of(rate.clone()), of(rate), of(0..64_u8), of(any::<u32>())).prop_map(
        |(id, [uplink_closed, downlink_closed], mbr, gbr, qfi, window)| CreateQer {
            qer_id: QerId(id),
            gate_status: GateStatus { uplink_closed, downlink_closed },
            mbr: mbr.map(|(uplink_kbps, downlink_kbps)| Mbr { uplink_kbps, downlink_kbps }),
            gbr: gbr.map(|(uplink_kbps, downlink_kbps)| Gbr { uplink_kbps, downlink_kbps }),
            qfi: qfi.map(Qfi),
            averaging_window: window.map(AveragingWindow),
            ..CreateQer::default()
        },
    )
}

fn usage_report() -> impl Strategy<Value = UsageReport> {
    let count = || of(any::<u64>());
    let volume = (count(), count(), count(), count(), count(), count()).prop_map(|(a, b, c, d, e, f)| {
        let (total_packets, uplink_packets, downlink_packets) = (d, e, f);
        VolumeMeasurement { total: a, uplink: b, downlink: c, total_packets, uplink_packets, downlink_packets }
    });
    (any::<u32>(), any::<u32>(), any::<u32>(), of(volume), of(any::<u32>()), of(ue_ip())).prop_map(
        |(id, number, trigger, volume, duration, ue_ip_address)| UsageReport {
            urr_id: UrrId(id),
            ur_seqn: UrSeqn(number),
            trigger: UsageReportTrigger(trigger),
            volume,
            duration: duration.map(DurationMeasurement),
            ue_ip_address,
            ..UsageReport::default()
        },
    )
}

fn create_urr() -> impl Strategy<Value = CreateUrr> {
    let count = || of(any::<u64>());
    let volume = || of((count(), count(), count()));
    (any::<u32>(), any::<u8>(), any::<u32>(), volume(), volume(), of(any::<u32>()), of(any::<u16>())).prop_map(
        |(id, method, triggers, threshold, quota, time, reports)| CreateUrr {
            urr_id: UrrId(id),
            measurement_method: MeasurementMethod(method),
            reporting_triggers: ReportingTriggers(triggers),
            volume_threshold: threshold.map(|(total, uplink, downlink)| VolumeThreshold { total, uplink, downlink }),
            volume_quota: quota.map(|(total, uplink, downlink)| VolumeQuota { total, uplink, downlink }),
            time_quota: time.map(TimeQuota),
            number_of_reports: reports.map(NumberOfReports),
            ..CreateUrr::default()
        },
    )
}

fn establishment() -> impl Strategy<Value = SessionEstablishmentRequest> {
    let rules = (vec(create_pdr(), 1..4), vec(create_far(), 1..4), list(create_qer()), list(create_urr()));
    (node_id(), f_seid(), rules, of(0..8_u8)).prop_map(|(node, seid, (pdrs, fars, create_qers, create_urrs), kind)| {
        SessionEstablishmentRequest {
            create_pdrs: pdrs.into(),
            create_fars: fars.into(),
            create_qers,
            create_urrs,
            pdn_type: kind.map(PdnType),
            ..SessionEstablishmentRequest::new(node, seid)
        }
    })
}

fn report() -> impl Strategy<Value = SessionReportRequest> {
    (vec(usage_report(), 1..3), list(any::<u16>().prop_map(PdrId)), list(f_teid())).prop_map(
        |(usage_reports, pdr_ids, remote_f_teids)| SessionReportRequest {
            report_type: ReportType::DLDR | ReportType::USAR | ReportType::ERIR,
            downlink_data: Some(DownlinkDataReport { pdr_ids, ..DownlinkDataReport::default() }),
            usage_reports,
            error_indication: Some(ErrorIndicationReport { remote_f_teids }),
            flags: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn establishment_roundtrip_is_exact(request in establishment(), seid: u64, sequence in 0..1_u32 << 24) {
        let mut octets = Vec::new();
        request.emit(&mut octets, seid, sequence).expect("fits");
        let message = Message::new(&octets).expect("sound");
        prop_assert_eq!((message.seid(), message.sequence()), (seid, sequence));
        prop_assert_eq!(SessionEstablishmentRequest::parse(&message), Ok(request));
    }

    #[test]
    fn report_roundtrip_is_exact(request in report(), seid: u64) {
        let mut octets = Vec::new();
        request.emit(&mut octets, seid, 1).expect("fits");
        prop_assert_eq!(SessionReportRequest::parse(&Message::new(&octets).expect("sound")), Ok(request));
    }

    #[test]
    fn f_seid_address_is_replaced(
        node_id in node_id(),
        cp_f_seid in f_seid(),
        address in prop_oneof![v4().prop_map(IpAddr::V4), v6().prop_map(IpAddr::V6)],
    ) {
        let mut request = SessionEstablishmentRequest::new(node_id, cp_f_seid);
        request.pdn_type = Some(PdnType::IPV4);
        let mut octets = Vec::new();
        request.emit(&mut octets, 0, 1).expect("fits");
        prop_assert!(set_f_seid_address(&mut octets, address));
        request.cp_f_seid = FSeid::new(cp_f_seid.seid, address);
        let mut wanted = Vec::new();
        request.emit(&mut wanted, 0, 1).expect("fits");
        prop_assert_eq!(octets, wanted);
    }

    #[test]
    fn random_octets_are_survived(octets in vec(any::<u8>(), 0..300), kind in 1..60_u8) {
        walk(&octets);
        let (mut changed, mut after) = (octets.clone(), octets.clone());
        if !set_f_seid_address(&mut changed, Ipv4Addr::LOCALHOST.into()) {
            prop_assert_eq!(&changed, &octets);
        }
        after.insert(0, 0x21);
        set_f_seid_address(&mut after, Ipv6Addr::LOCALHOST.into());
        // with a valid header, so that the elements are reached
        let mut message = vec![0x21, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0];
        message.extend(&octets);
        let length = (message.len() - 4) as u16;
        message[2..4].copy_from_slice(&length.to_be_bytes());
        walk(&message);
    }

    /// Valid messages with a few modified octets or a missing end test deeper layers than noise.
    #[test]
    fn damaged_messages_are_survived(
        index: prop::sample::Index,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut: prop::sample::Index,
    ) {
        let samples = samples::all();
        let mut octets = index.get(&samples).1.clone();
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        walk(&octets);
        octets.truncate(cut.index(octets.len()));
        walk(&octets);
    }
}

#[test]
fn every_sample_is_walked_to_its_end() {
    for (kind, octets) in samples::all() {
        assert_eq!(walk(&octets), Some(kind));
    }
}
