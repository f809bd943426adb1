//! Addresses that sessions may name, and permitted sources of uplink packets.

use super::*;
use vireo_datapath::{Access, DropReason};

const TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

impl Bench {
    fn uplink_from(&mut self, gnb: Ipv4Addr, teid: Teid, packet: &[u8]) {
        let mut datagram =
            gtpu::g_pdu_header(teid, PduSession::Uplink { qfi: 1 }, packet.len()).expect("short").to_vec();
        datagram.extend(packet);
        self.plane.receive_n3((gnb, 2152).into(), &datagram, self.now.instant);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.plane.stats.dropped(reason)
    }
}

/// A control plane that names a UE as RAN node would direct packets of other UEs there.
#[test]
fn tunnel_to_ue_address_is_refused() {
    let mut b = bench();
    let (seid, _) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    for ue in [UE.into(), "10.45.77.1".parse().expect("one"), "2001:db8:45:9::1".parse::<IpAddr>().expect("one")] {
        let response = b.modify(seid, &forward_to(RAN_TEID, ue, None));
        assert_eq!(response.cause, Cause::RULE_FAILURE, "{ue}");
        assert_eq!(response.failed_rule_id, Some(FailedRuleId::Far(2)), "{ue}");
    }
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    assert_eq!(b.tunnelled().last().map(|(teid, _)| *teid), Some(RAN_TEID), "the rule before holds");
}

/// UEs lose an address that a tunnel leads to: a RAN node could take their services away. Packets
/// for the core could reach it through the UPF.
#[test]
fn tunnel_to_service_of_ues_is_refused() {
    let dns = Ipv4Addr::new(198, 51, 100, 53);
    let mut b = bench();
    let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), dns: vec![dns.into()], ..Pool::default() };
    b.plane = plane(pool, Limits { records: 64, ..Limits::default() });
    let network = |address: Ipv4Addr, length| vireo_datapath::Network { address: address.into(), length };
    let reachable = Ipv4Addr::new(203, 0, 113, 7);
    let core = Ipv4Addr::new(203, 0, 113, 5);
    let own = vec![network(core, 32), network(Ipv4Addr::new(127, 0, 0, 0), 8)];
    let access = Access { reachable: vec![network(reachable, 32)], core: own, ..Access::default() };
    b.plane.change(|tables, _| tables.set_access(access.clone()));
    let (seid, _) = b.session();
    for service in [dns, reachable, core, Ipv4Addr::LOCALHOST] {
        assert_eq!(b.modify(seid, &forward_to(RAN_TEID, service.into(), None)).cause, Cause::RULE_FAILURE, "{service}");
    }
    // A gNB on the machine of the core.
    b.plane.change(|tables, _| tables.set_peer(Ipv4Addr::LOCALHOST.into(), vireo_datapath::Use::Node, true));
    assert_eq!(b.modify(seid, &forward_to(RAN_TEID, Ipv4Addr::LOCALHOST.into(), None)).cause, Cause::REQUEST_ACCEPTED);
    let elsewhere = Ipv4Addr::new(203, 0, 113, 8);
    assert_eq!(b.modify(seid, &forward_to(RAN_TEID, elsewhere.into(), None)).cause, Cause::REQUEST_ACCEPTED);
    let tunnel_ends = vec![network(Ipv4Addr::new(192, 0, 2, 0), 24)];
    b.plane.change(|tables, _| tables.set_access(Access { tunnel_ends, ..access }));
    let response = b.modify(seid, &forward_to(Teid(7), elsewhere.into(), None));
    assert_eq!((response.cause, response.failed_rule_id), (Cause::RULE_FAILURE, Some(FailedRuleId::Far(2))));
    assert_eq!(b.modify(seid, &forward_to(RAN_TEID, TARGET.into(), None)).cause, Cause::REQUEST_ACCEPTED);
}

#[test]
fn named_addresses_are_protected_from_ues() {
    let mut b = bench();
    let (seid, teid) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    b.plane.change(|tables, _| tables.set_access(Access::default()));
    b.uplink(teid, &ipv4(UE, SMF, 40));
    assert_eq!((b.plane.n6.len(), b.dropped(DropReason::Protected)), (0, 1), "the control plane");
    b.uplink(teid, &ipv4(UE, TARGET, 40));
    assert_eq!(b.plane.n6.len(), 1, "no RAN node yet");
    b.modify(seid, &forward_to(RAN_TEID, TARGET.into(), None));
    b.uplink(teid, &ipv4(UE, TARGET, 40));
    b.uplink(teid, &ipv4(UE, GNB, 40));
    assert_eq!((b.plane.n6.len(), b.dropped(DropReason::Protected)), (1, 3), "the RAN nodes of now and before");
    // without its association the address has no special meaning
    b.establish(&request());
    let release = AssociationReleaseRequest { node_id: node() };
    let _: (_, AssociationReleaseResponse) = b.request(|out, sequence| release.emit(out, sequence));
    let (_, teid) = {
        b.from = (Ipv4Addr::new(192, 0, 2, 66), 8805).into();
        b.session()
    };
    b.uplink(teid, &ipv4(UE, SMF, 40));
    assert_eq!((b.plane.n6.len(), b.dropped(DropReason::Protected)), (2, 3));
}

/// In an Xn handover the target forwards uplink packets before the path switch (TS 23.502
/// 4.9.1.2.2).
#[test]
fn uplink_of_xn_target_waits_for_path_switch() {
    for own_peer_only in [false, true] {
        let mut b = bench_of(vec![], Limits { own_peer_only, ..Limits::default() });
        let (seid, teid) = b.session();
        b.modify(seid, &forward(RAN_TEID));
        b.uplink(teid, &ipv4(UE, SERVER, 41));
        (42..45).for_each(|octets| b.uplink_from(TARGET, teid, &ipv4(UE, SERVER, octets)));
        assert_eq!(b.plane.n6.len(), 1, "the target is not known");
        b.modify(seid, &forward_to(Teid(0x77), TARGET.into(), None));
        b.uplink_from(TARGET, teid, &ipv4(UE, SERVER, 45));
        let octets: Vec<usize> = b.plane.n6.iter().map(Vec::len).collect();
        assert_eq!(octets, [41, 42, 43, 44, 45], "in order, each once");
        // packets still queued at the source pass, unless each tunnel is bound to its own peer
        b.uplink(teid, &ipv4(UE, SERVER, 46));
        assert_eq!(b.plane.n6.len(), if own_peer_only { 5 } else { 6 });
        assert_eq!(b.plane.stats.drops.iter().sum::<u64>(), 0);
    }
}

/// Another RAN node sends into a tunnel that is not its own.
#[test]
fn bound_tunnel_takes_packets_of_own_peer() {
    let other = Ipv4Addr::new(10, 45, 0, 3);
    for own_peer_only in [false, true] {
        let mut b = bench_of(vec![], Limits { own_peer_only, ..Limits::default() });
        let (seid, teid) = b.session();
        b.uplink(teid, &ipv4(UE, SERVER, 40));
        assert_eq!(b.plane.n6.len(), usize::from(!own_peer_only), "no tunnel yet");
        b.modify(seid, &forward(RAN_TEID));
        assert_eq!(b.plane.n6.len(), 1, "what came before its tunnel was named is not lost");
        let mut second = request();
        second.create_pdrs[1] = downlink_pdr(2, Some(other), None);
        let (seid, _) = established(&b.establish(&second));
        b.modify(seid, &forward_to(Teid(0x78), TARGET.into(), None));
        b.uplink_from(TARGET, teid, &ipv4(UE, SERVER, 40));
        assert_eq!(b.plane.n6.len(), if own_peer_only { 1 } else { 2 });
    }
}
