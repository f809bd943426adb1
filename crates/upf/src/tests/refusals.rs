//! Elements that the UPF does not serve, and addresses that cannot be.

use super::*;
use vireo_datapath::DropReason;

/// Cause, offending element and failed rule of a response.
type Refusal = (Cause, Option<u16>, Option<FailedRuleId>);

/// Returns an element with its type and length.
fn element(id: u16, content: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat()
}

/// Returns elements with one more in the first group at this path.
fn inserted(elements: &[u8], path: &[u16], added: &[u8]) -> Vec<u8> {
    let Some((group, rest)) = path.split_first() else { return [elements, added].concat() };
    let (mut out, mut is_inserted) = (vec![], false);
    for ie in Ies::new(elements).map(|ie| ie.expect("sound")) {
        let is_place = ie.id == *group && !is_inserted;
        is_inserted |= is_place;
        let content = if is_place { inserted(ie.value, rest, added) } else { ie.value.to_vec() };
        out.extend(element(ie.id, &content));
    }
    assert!(is_inserted, "no element {group}");
    out
}

/// Returns a session message with one more element in the first group at this path.
fn message_with(octets: &[u8], path: &[u16], id: u16, content: &[u8]) -> Vec<u8> {
    const HEADER: usize = 16;
    let mut out = octets[..HEADER].to_vec();
    out.extend(inserted(&octets[HEADER..], path, &element(id, content)));
    let length = (out.len() - 4) as u16;
    out[2..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// Sends a request for a session with one more element. Returns the refusal.
fn refusal(b: &mut Bench, (path, id, content): (&[u16], u16, &[u8])) -> Refusal {
    let mut request = rules::two_flows();
    request.create_fars[1].bar_id = Some(BarId(1));
    request.create_bars.push(CreateBar { bar_id: BarId(1), ..CreateBar::default() });
    b.sequence += 1;
    let mut octets = vec![];
    request.emit(&mut octets, 0, b.sequence).expect("short");
    let out = b.deliver(&message_with(&octets, path, id, content));
    let message = Message::new(&out[0].1).expect("sound");
    let response = SessionEstablishmentResponse::parse(&message).expect("a response");
    assert!(b.upf.sessions() == 0 && b.plane.tables.is_empty(), "{path:?} {id}: {response:?}");
    (response.cause, response.offending_ie.map(|ie| ie.0), response.failed_rule_id)
}

#[test]
fn unserved_element_is_named() {
    const PDR: &[u16] = &[CreatePdr::ID];
    const PDI: &[u16] = &[CreatePdr::ID, Pdi::ID];
    const FAR: &[u16] = &[CreateFar::ID];
    const FORWARDING: &[u16] = &[CreateFar::ID, ForwardingParameters::ID];
    let (pdr, far) = (Some(FailedRuleId::Pdr(1)), Some(FailedRuleId::Far(1)));
    let urr = Some(FailedRuleId::Urr(5));
    let (qer, bar) = (Some(FailedRuleId::Qer(1)), Some(FailedRuleId::Bar(1)));
    let mut b = bench();
    b.associate();
    let of_session =
        [127, 129, 130, 152, 165, 168, 169, 194, 199, 211, 212, 213, 220, 261, 263, 276, 277, 300, 310, 316];
    let cases = [
        (&[][..], &of_session[..], None),
        (PDR, &[170, 177, 179, 188, 265, 271], pdr),
        (PDI, &[131, 132, 142, 188, 255], pdr),
        (FAR, &[5, 105, 270, 301, 302], far),
        (FORWARDING, &[38, 98, 131, 137, 232, 293], far),
        (&[CreateUrr::ID], &[115, 118, 146, 147, 148, 149, 182], urr),
        (&[CreateQer::ID], &[28, 94, 97, 158, 251, 319], qer),
        (&[CreateBar::ID], &[249], bar),
    ];
    for (path, elements, rule) in cases {
        for id in elements {
            // as long as the longest of those that the codecs read
            let found = refusal(&mut b, (path, *id, &[0; 4]));
            assert_eq!(found, (Cause::SERVICE_NOT_SUPPORTED, Some(*id), rule), "{path:?}");
        }
    }
    let policy = refusal(&mut b, (FORWARDING, ForwardingPolicy::ID, b"\x04gold"));
    assert_eq!(policy, (Cause::INVALID_FORWARDING_POLICY, Some(ForwardingPolicy::ID), far));
    let unsupported = |id, rule| (Cause::SERVICE_NOT_SUPPORTED, Some(id), rule);
    let marking = TransportLevelMarking::ID;
    assert_eq!(refusal(&mut b, (FORWARDING, marking, &[0xb8, 0xfc])), unsupported(marking, far));
    for kind in [PdnType::NON_IP, PdnType::ETHERNET] {
        assert_eq!(refusal(&mut b, (&[], PdnType::ID, &[kind.0])), unsupported(PdnType::ID, None));
    }
    assert_eq!(refusal(&mut b, (&[], SeReqFlags::ID, &[2])), unsupported(SeReqFlags::ID, None));
    assert_eq!(refusal(&mut b, (PDI, FramedRouting::ID, &[0, 0, 0, 1])), unsupported(FramedRouting::ID, None));
    let inactive = (&[CreateUrr::ID][..], MeasurementInformation::ID, &[2][..]);
    assert_eq!(refusal(&mut b, inactive), unsupported(MeasurementInformation::ID, urr));
    let times = [ActivationTime::ID, DeactivationTime::ID];
    for time in times {
        assert_eq!(refusal(&mut b, (PDR, time, &[0; 4])), unsupported(time, pdr));
    }
}

#[test]
fn marking_of_zero_is_accepted() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    let parameters = request.create_fars[0].forwarding_parameters.as_mut().expect("there");
    parameters.transport_level_marking = Some(TransportLevelMarking(0x00fc));
    assert_eq!(b.establish(&request).cause, Cause::REQUEST_ACCEPTED);
}

#[test]
fn unserved_change_has_no_effect() {
    const REDIRECT_INFORMATION: u16 = 38;
    let mut b = bench();
    let (seid, _) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let mut change = |request: &SessionModificationRequest, added: Option<(&[u16], u16, &[u8])>| {
        b.sequence += 1;
        let mut octets = vec![];
        request.emit(&mut octets, seid, b.sequence).expect("short");
        if let Some((path, id, content)) = added {
            octets = message_with(&octets, path, id, content);
        }
        let out = b.deliver(&octets);
        let message = Message::new(&out[0].1).expect("sound");
        let response = SessionModificationResponse::parse(&message).expect("a response");
        b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
        assert_eq!(b.tunnelled().last().map(|(teid, _)| *teid), Some(RAN_TEID), "{response:?}");
        (response.cause, response.offending_ie.map(|ie| ie.0), response.failed_rule_id)
    };
    let (refused, far) = (Cause::SERVICE_NOT_SUPPORTED, Some(FailedRuleId::Far(2)));
    let other = forward(Teid(0xcafe));
    let redirect = (&[UpdateFar::ID, UpdateForwardingParameters::ID][..], REDIRECT_INFORMATION, &[0; 4][..]);
    assert_eq!(change(&other, Some(redirect)), (refused, Some(REDIRECT_INFORMATION), far));
    let flags = forward_to(Teid(0xcafe), GNB.into(), Some(SmReqFlags(8)));
    assert_eq!(change(&flags, None), (refused, Some(SmReqFlags::ID), far));
    let suspend = SessionModificationRequest { flags: Some(SmReqFlags(8)), ..other.clone() };
    assert_eq!(change(&suspend, None), (refused, Some(SmReqFlags::ID), None));
    let mut update = other.clone();
    update.update_pdrs.push(UpdatePdr {
        pdr_id: PdrId(2),
        deactivate_predefined_rules: vec![DeactivatePredefinedRules::from("video")],
        ..UpdatePdr::default()
    });
    assert_eq!(change(&update, None), (Cause::UNKNOWN_PREDEFINED_RULE, None, Some(FailedRuleId::Pdr(2))));
}

/// TS 29.244 8.2.26.
#[test]
fn contradictory_actions_are_refused() {
    use ApplyAction as Flag;
    let mut b = bench();
    b.associate();
    let mut refused = |action| {
        let mut request = request();
        request.create_fars[1].apply_action = action;
        let response = b.establish(&request);
        let rule = Some(FailedRuleId::Far(2));
        assert_eq!((response.offending_ie, response.failed_rule_id), (Some(OffendingIe(Flag::ID)), rule), "{action:?}");
        response.cause
    };
    let contradictory = [
        Flag(0),
        Flag::NOCP,
        Flag::FORW | Flag::BUFF,
        Flag::DROP | Flag::FORW,
        Flag::DROP | Flag::BUFF | Flag::NOCP,
        Flag::FORW | Flag::NOCP,
        Flag::DROP | Flag::NOCP,
    ];
    assert_eq!(contradictory.map(&mut refused), [Cause::RULE_FAILURE; 7]);
    // duplication, multicast, fast path failure, and reports of buffered and discarded packets
    let all = (4..16).map(|bit| Flag(1 << bit));
    for flag in all {
        assert_eq!(refused(Flag::FORW | flag), Cause::SERVICE_NOT_SUPPORTED, "{flag:?}");
    }
}

/// TS 29.244 8.2.31: DROBU with a tunnel in the same request.
#[test]
fn buffered_packets_drop_before_forwarding() {
    let mut b = bench();
    let (seid, _) = b.session();
    (0..2).for_each(|_| b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant));
    let change = SessionModificationRequest { flags: Some(SmReqFlags::DROBU), ..forward(RAN_TEID) };
    // a refused request drops none
    let mut refused = change.clone();
    refused.update_fars.push(UpdateFar { far_id: FarId(44), ..UpdateFar::default() });
    assert_eq!(b.modify(seid, &refused).cause, Cause::RULE_FAILURE);
    assert_eq!(b.plane.tables.buffered_octets(), 80);
    assert_eq!(b.modify(seid, &change).cause, Cause::REQUEST_ACCEPTED);
    assert_eq!((b.tunnelled(), b.plane.tables.buffered_octets()), (vec![], 0));
    b.plane.receive_n6(&ipv4(SERVER, UE, 41), b.now.instant);
    assert_eq!(b.tunnelled(), [(RAN_TEID, ipv4(SERVER, UE, 41))]);
}

#[test]
fn other_headers_and_interfaces_are_refused() {
    let mut b = bench();
    b.associate();
    let mut refused = |change: &dyn Fn(&mut SessionEstablishmentRequest)| {
        let mut request = request();
        change(&mut request);
        let response = b.establish(&request);
        assert_eq!(response.cause, Cause::SERVICE_NOT_SUPPORTED, "{response:?}");
        (response.offending_ie.map(|ie| ie.0), response.failed_rule_id)
    };
    let pdr = |n| Some(FailedRuleId::Pdr(n));
    let udp = OuterHeaderRemoval { description: 2, extension_deletion: None };
    for n in [0, 1] {
        let found = refused(&|r| r.create_pdrs[n].outer_header_removal = Some(udp));
        assert_eq!(found, (Some(OuterHeaderRemoval::ID), pdr(n as u16 + 1)));
    }
    let from_group = refused(&|r| r.create_pdrs[0].pdi.source_interface = SourceInterface::VN_INTERNAL);
    assert_eq!(from_group, (Some(SourceInterface::ID), pdr(1)));
    let far = Some(FailedRuleId::Far(1));
    for to in [DestinationInterface::LI_FUNCTION, DestinationInterface::VN_INTERNAL] {
        let found = refused(&|r| {
            let parameters = r.create_fars[0].forwarding_parameters.as_mut().expect("there");
            parameters.destination_interface = to;
        });
        assert_eq!(found, (Some(DestinationInterface::ID), far));
    }
    let tunnel = OuterHeaderCreation::gtpu(RAN_TEID, GNB.into());
    let udp = OuterHeaderCreation { teid: None, ipv4: Some(GNB), port: Some(9), ..OuterHeaderCreation::default() };
    let tagged = OuterHeaderCreation { c_tag: Some([7, 0, 1]), ..tunnel };
    for creation in [udp, tagged, OuterHeaderCreation { indications: 1, ..tunnel }] {
        let found = refused(&|r| {
            let parameters = r.create_fars[0].forwarding_parameters.as_mut().expect("there");
            parameters.outer_header_creation = Some(creation);
        });
        assert_eq!(found, (Some(OuterHeaderCreation::ID), far));
    }
}

#[test]
fn tunnel_end_of_another_node_is_refused() {
    let mut b = bench();
    let v6: Ipv6Addr = "2001:db8:200::9".parse().expect("an address");
    let both = FTeid::Allocated { teid: Teid(0x77), ipv4: Some(UPF), ipv6: Some(v6) };
    let foreign = [FTeid::new(Teid(0x77), GNB.into()), FTeid::new(Teid(0x77), v6.into()), both];
    b.associate();
    for end in foreign {
        let mut request = request();
        request.create_pdrs[0] = uplink_pdr(1, end);
        let response = b.establish(&request);
        let expected = (Cause::RULE_FAILURE, Some(OffendingIe(FTeid::ID)), Some(FailedRuleId::Pdr(1)));
        assert_eq!((response.cause, response.offending_ie, response.failed_rule_id), expected, "{end:?}");
        assert!(b.plane.tables.is_empty());
    }
    let (seid, _) = b.session();
    let mut change = SessionModificationRequest::default();
    change.create_pdrs.push(uplink_pdr(3, foreign[0]));
    assert_eq!(b.modify(seid, &change).offending_ie, Some(OffendingIe(FTeid::ID)));
}

#[test]
fn impossible_ue_address_is_refused() {
    let pool = crate::Pool {
        ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
        ..rules::pool("internet", [10, 45, 0, 0])
    };
    let mut b = bench_with(vec![pool]);
    b.associate();
    let mut establish = |address: &str| {
        let mut request = request();
        let (v4, v6) = match address.parse().expect("an address") {
            IpAddr::V4(v4) => (Some(v4), None),
            IpAddr::V6(v6) => (None, Some(v6)),
        };
        request.create_pdrs[1] = downlink_pdr(2, v4, v6);
        let response = b.establish(&request);
        (response.cause, response.offending_ie)
    };
    let impossible = ["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.0.9", "169.254.3.4", "224.0.0.5", "255.255.255.255"];
    let own = ["192.0.2.1", "10.45.0.0", "10.45.0.1"];
    let impossible_v6 = ["::", "::1", "fe80::1", "ff02::1", "2001:db8:45::1"];
    let refused = (Cause::MANDATORY_IE_INCORRECT, Some(OffendingIe(UeIpAddress::ID)));
    for address in impossible.iter().chain(&own).chain(&impossible_v6) {
        assert_eq!(establish(address), refused, "{address}");
    }
    for address in ["10.45.0.2", "10.45.0.6", "2001:db8:45:1::1"] {
        assert_eq!(establish(address), (Cause::REQUEST_ACCEPTED, None), "{address}");
    }
}

#[test]
fn route_outside_configuration_is_refused() {
    let mut b = bench();
    b.associate();
    let refused = |b: &mut Bench, v4: Option<&str>, v6: Option<&str>| {
        let mut request = request();
        request.create_pdrs[1].pdi.framed_routes = v4.map(FramedRoute::from).into_iter().collect();
        request.create_pdrs[1].pdi.framed_ipv6_routes = v6.map(FramedIpv6Route::from).into_iter().collect();
        let response = b.establish(&request);
        assert_eq!((response.cause, response.failed_rule_id), (Cause::RULE_FAILURE, Some(FailedRuleId::Pdr(2))));
        response.offending_ie.map(|ie| ie.0)
    };
    for route in ["203.0.113.0/24", "0.0.0.0/0", "10.45.0.0/16", "10.45.128.0/24", "127.0.0.0/8"] {
        assert_eq!(refused(&mut b, Some(route), None), Some(FramedRoute::ID), "{route}");
    }
    assert_eq!(refused(&mut b, None, Some("2001:db8:77::/48")), Some(FramedIpv6Route::ID));
    assert!(b.plane.tables.is_empty());
}

/// free5GC creates a BAR for each FAR that buffers.
#[test]
fn several_bars_delay_and_limit_their_fars() {
    let mut b = bench();
    b.associate();
    let mut request = rules::two_flows();
    let bar = |id, delay, packets| CreateBar {
        bar_id: BarId(id),
        downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(delay)),
        suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(packets)),
    };
    request.create_bars.extend([bar(1, 0, 1), bar(2, 40, 3)]);
    let buffering = |id, bar| CreateFar {
        far_id: FarId(id),
        apply_action: ApplyAction::BUFF | ApplyAction::NOCP,
        forwarding_parameters: None,
        bar_id: Some(BarId(bar)),
    };
    request.create_fars[1] = buffering(2, 1);
    request.create_fars.push(buffering(7, 2));
    request.create_pdrs[3].far_id = Some(FarId(7));
    let response = b.establish(&request);
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let seid = response.up_f_seid.expect("accepted").seid;
    let dns = rules::udp(SERVER, UE, [53, 4000], 60);
    (0..4).for_each(|_| b.plane.receive_n6(&dns, b.now.instant));
    assert_eq!((b.plane.stats.buffered, b.plane.stats.dropped(DropReason::BufferFull)), (3, 1), "the larger of both");
    assert_eq!(b.events(), vec![], "the second BAR delays the report");
    // each BAR has an ID of its own, and a FAR names one of the session
    let again = SessionModificationRequest { create_bars: [bar(2, 1, 1)].into_iter().collect(), ..Default::default() };
    assert_eq!(b.modify(seid, &again).failed_rule_id, Some(FailedRuleId::Bar(2)));
    let mut other = SessionModificationRequest::default();
    other.update_fars.push(UpdateFar { far_id: FarId(2), bar_id: Some(BarId(9)), ..UpdateFar::default() });
    let response = b.modify(seid, &other);
    assert_eq!(response.offending_ie, Some(OffendingIe(BarId::ID)));
    assert_eq!((response.cause, response.failed_rule_id), (Cause::RULE_FAILURE, Some(FailedRuleId::Far(2))));
    let mut removal = SessionModificationRequest::default();
    removal.remove_bars.extend([1, 2].map(|id| RemoveBar { bar_id: BarId(id) }));
    assert_eq!(b.modify(seid, &removal).cause, Cause::REQUEST_ACCEPTED);
    b.plane.receive_n6(&dns, b.now.instant);
    assert_eq!(b.plane.stats.buffered, 4, "without a limit of the session");
}

/// TS 29.244 8.2.25. Each bit has a test of its feature in this crate.
#[test]
fn announced_features_are_the_served_ones() {
    use UpFunctionFeatures as Bit;
    let served = [Bit::DDND, Bit::FTUP, Bit::EMPU, Bit::UDBC, Bit::QUOAC, Bit::FRRT, Bit::MNOP, Bit::VTIME];
    let all = served.into_iter().fold(Bit::default(), |all, bit| all | bit);
    assert_eq!(bench().associate().up_function_features, Some(all));
    let mut b = bench_with(vec![rules::pool("internet", [10, 45, 0, 0])]);
    assert_eq!(b.associate().up_function_features, Some(all | Bit::UEIP));
}
