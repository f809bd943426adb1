use crate::world::*;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};
use vireo_datapath::{Access, DropReason, Network};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, MessageType};
use vireo_wire::pfcp::{self, *};

#[test]
fn echo_crosses_and_kernel_counts_match() {
    let mut w = World::new();
    let upf = w.start(config()).expect("started");
    let (seid, teid) = w.active_session();
    (0..20).for_each(|n| w.ping(teid, n));
    // the device receives the packets that the UPF writes, and sends those that it reads; the
    // latter include the kernel's multicast packets
    let stats = counted(&upf, |stats| {
        let [received, sent] = w.counters("upf", TUN);
        let ours = stats.packets;
        let read = ours.downlink.packets + ours.drops.iter().sum::<u64>();
        received == (ours.uplink.packets, ours.uplink.octets) && sent.0 == read && ours.downlink.packets == 20
    });
    assert_eq!((stats.packets.uplink.packets, stats.sessions), (20, 1));
    assert_eq!(stats.packets.downlink.octets, 20 * 84);
    // the other end of the data network's link has seen these packets
    let [at_host, _] = w.counters("dn", "eth");
    assert!(at_host.0 >= 20, "{at_host:?}");

    let deletion: SessionDeletionResponse =
        w.request(|out, sequence| (SessionDeletionRequest {}).emit(out, seid, sequence));
    assert_eq!(deletion.cause, Cause::REQUEST_ACCEPTED);
    upf.stop();
    let links = w.run("upf", "ip -o link");
    assert!(!links.contains(TUN), "the device is gone: {links}");
}

#[test]
fn bad_packets_are_dropped_or_answered() {
    let mut w = World::new();
    let upf = w.start(config()).expect("started");
    let (_, teid) = w.active_session();
    w.tunnel_up(teid, &echo(Ipv4Addr::new(10, 45, 0, 3), HOST, 1));
    w.ping(teid, 2);
    counted(&upf, |stats| stats.packets.dropped(DropReason::Spoofed) == 1);

    let unknown = Teid(teid.0 ^ 0x00ff_0000);
    w.tunnel_up(unknown, &echo(UE, HOST, 3));
    let datagram = w.for_gnb();
    let packet = gtpu::Packet::parse(&datagram).expect("sound");
    assert_eq!(packet.kind, MessageType::ErrorIndication);
    let indication = gtpu::error_indication(packet.payload).expect("sound");
    assert_eq!((indication.teid, indication.peer), (unknown, UPF.into()));

    let good = {
        let mut datagram = vec![0x34, 0xff, 0, 92];
        datagram.extend(teid.0.to_be_bytes());
        datagram.extend([0, 0, 0, 0x85, 1, 0x10, QFI, 0]);
        datagram.extend(echo(UE, HOST, 4));
        datagram
    };
    for end in 0..good.len() {
        w.gnb.send_to(&good[..end], (UPF, gtpu::PORT)).expect("sent");
    }
    for n in 0..=255_u8 {
        w.gnb.send_to(&[n; 64], (UPF, gtpu::PORT)).expect("sent");
        w.gnb.send_to(&[0x34, 0xff, 0, 12, n, n, n, n, 0, 0, 0, n, n, 1, 2, 3, 4, 5, 6, 7], (UPF, gtpu::PORT)).ok();
    }
    let mut big = vec![0x30, 0xff, 0xff, 0xf0];
    big.resize(60_000, 0);
    w.gnb.send_to(&big, (UPF, gtpu::PORT)).expect("sent");
    w.gnb.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    let mut buffer = [0; 4096];
    while w.gnb.recv(&mut buffer).is_ok() {}
    w.gnb.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    w.ping(teid, 5);
    // no other packet reached the data network
    let stats = counted(&upf, |s| (s.packets.uplink.packets, s.packets.downlink.packets) == (2, 2));
    assert!(stats.packets.dropped(DropReason::Malformed) > 300, "{stats:?}");

    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let echo = gtpu::echo_request(&mut buffer, 77).expect("room");
    w.gnb.send_to(echo, (UPF, gtpu::PORT)).expect("sent");
    let datagram = w.for_gnb();
    let response = gtpu::Packet::parse(&datagram).expect("sound");
    assert_eq!((response.kind, response.sequence), (MessageType::EchoResponse, Some(77)));
}

#[test]
fn ipv6_ue_finds_router_and_host() {
    let mut w = World::new();
    // as in many containers
    w.run("upf", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
    let _upf = w.start(config()).expect("started");
    let (_, teid) = w.active_session();
    let link_local: Ipv6Addr = "fe80::2".parse().expect("an address");
    let all_routers: Ipv6Addr = "ff02::2".parse().expect("an address");
    w.tunnel_up(teid, &icmpv6(link_local, all_routers, 133, &[0; 4]));
    let advertisement = w.tunnel_down();
    assert_eq!((advertisement[40], &advertisement[24..40]), (134, &link_local.octets()[..]));
    assert_eq!(advertisement[72..88], PREFIX.octets(), "its prefix");
    assert_eq!(advertisement[88..96], [5, 1, 0, 0, 0, 0, 0x05, 0x78], "the MTU");
    let router: [u8; 16] = *advertisement[8..].first_chunk().expect("a source");
    // the checksum is correct: an echo of the same octets has it too
    let again = icmpv6(router.into(), link_local, 134, &advertisement[44..]);
    assert_eq!(again[42..44], advertisement[42..44]);

    let own = Ipv6Addr::from_bits(PREFIX.to_bits() | 0x1234_5678);
    w.tunnel_up(teid, &icmpv6(own, HOST6, 128, b"\x12\x34\x00\x01some data"));
    let reply = w.tunnel_down();
    assert_eq!((&reply[8..24], &reply[24..40]), (&HOST6.octets()[..], &own.octets()[..]));
    assert_eq!((reply[40], &reply[44..]), (129, &b"\x12\x34\x00\x01some data"[..]));
}

#[test]
fn packets_for_an_idle_ue_are_reported_and_kept() {
    let mut w = World::new();
    let upf = w.start(config()).expect("started");
    let (seid, _) = w.active_session();
    w.downlink(seid, false);
    let host = w.inside("dn", || UdpSocket::bind((HOST, 4000))).expect("bound");
    for n in 1..=3_u8 {
        host.send_to(&[n; 10], (UE, 5000)).expect("sent");
    }
    let mut buffer = [0; 2048];
    let (length, from) = w.smf.recv_from(&mut buffer).expect("a report");
    let message = Message::new(&buffer[..length]).expect("sound");
    let report = SessionReportRequest::parse(&message).expect("a report");
    assert_eq!((report.report_type, message.seid(), from.port()), (ReportType::DLDR, 0x77, pfcp::PORT));
    let mut answer = vec![];
    SessionReportResponse::new(Cause::REQUEST_ACCEPTED).emit(&mut answer, seid, message.sequence()).expect("short");
    w.smf.send_to(&answer, from).expect("sent");
    w.downlink(seid, true);
    assert_eq!(w.tunnel_down()[40], 134);
    for n in 1..=3_u8 {
        assert_eq!(w.tunnel_down()[28..], [n; 10], "in the order they came");
    }
    counted(&upf, |s| (s.packets.buffered, s.buffered_octets, s.pfcp.reports) == (3, 0, 1));
}

#[test]
fn network_mtu_is_sent_to_host() {
    let mut w = World::new();
    let _upf = w.start(config()).expect("started");
    let (_, _) = w.active_session();
    // the kernel sets Don't Fragment for applications: 1,472 bytes make a packet of 1,500
    let host = w.inside("dn", || UdpSocket::bind((HOST, 4000))).expect("bound");
    host.send_to(&[0; 1472], (UE, 5000)).expect("sent");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let route = w.run("dn", &format!("ip route get {UE}"));
        if route.contains("mtu 1400") {
            return;
        }
        assert!(Instant::now() < deadline, "{route}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn fragmented_tunnel_packet_is_reassembled() {
    let mut w = World::new();
    let upf = w.start(config()).expect("started");
    let (_, teid) = w.active_session();
    let host = w.inside("dn", || UdpSocket::bind((HOST, 9000))).expect("bound");
    host.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    let data = [0x5a; 1460];
    // 1,488 bytes of the UE, more than the link can carry with tunnel headers
    w.tunnel_up(teid, &udp(UE, HOST, 9000, &data));
    let mut buffer = [0; 2048];
    let (length, from) = host.recv_from(&mut buffer).expect("all of it");
    assert_eq!((&buffer[..length], from), (&data[..], (UE, 4000).into()));
    w.ping(teid, 1);
    counted(&upf, |stats| stats.packets.uplink.packets == 2);
}

#[test]
fn two_workers_share_the_tables() {
    let mut w = World::new();
    let upf = w.start(vireo_upf::UpfConfig { workers: 2, ..config() }).expect("started");
    let (_, teid) = w.active_session();
    let bind = |port| UdpSocket::bind((GNB, port)).expect("bound");
    let others: Vec<UdpSocket> = w.inside("ran", || (40_000..40_016).map(bind).collect());
    // from many ports, so that the kernel gives some to each worker
    let mut header = gtpu::g_pdu_header(teid, gtpu::PduSession::Uplink { qfi: QFI }, 84).expect("short").to_vec();
    header.extend(echo(UE, HOST, 1));
    for socket in &others {
        socket.send_to(&header, (UPF, gtpu::PORT)).expect("sent");
        assert_eq!(w.tunnel_down()[20], 0);
    }
    counted(&upf, |stats| (stats.packets.uplink.packets, stats.packets.downlink.packets) == (16, 16));
}

#[test]
fn pfcp_of_ue_is_ignored() {
    for reachable in [false, true] {
        ue_sends_to_upf(reachable);
    }
}

/// A UE sends PFCP and GTP-U to the UPF's own address, which the configuration makes reachable or
/// not.
fn ue_sends_to_upf(reachable: bool) {
    let own = Network { address: UPF.into(), length: 32 };
    let access = Access { reachable: if reachable { vec![own] } else { vec![] }, ..Access::default() };
    let mut w = World::new();
    let upf = w.start(vireo_upf::UpfConfig { access, ..config() }).expect("started");
    let (_, teid) = w.active_session();
    let mut request = vec![];
    let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(9) };
    heartbeat.emit(&mut request, 5).expect("short");
    w.tunnel_up(teid, &udp(UE, UPF, pfcp::PORT, &request));
    w.tunnel_up(
        teid,
        &udp(UE, UPF, gtpu::PORT, &gtpu::g_pdu_header(teid, gtpu::PduSession::Uplink { qfi: 9 }, 0).expect("short")),
    );
    let (stopped, ignored) = if reachable { (0, 1) } else { (2, 0) };
    counted(&upf, |stats| {
        let dropped = |reason| stats.packets.dropped(reason);
        (dropped(DropReason::Protected), dropped(DropReason::FromUe), stats.pfcp.from_ues)
            == (stopped, ignored, ignored)
    });
    // the UE's echo returns first: its PFCP has no response
    w.ping(teid, 1);
    // Only requests of the control plane; the counter is published a moment after the responses.
    counted(&upf, |stats| stats.pfcp.accepted == 3);
}

#[test]
fn two_ues_reach_each_other() {
    let mut w = World::new();
    let _upf = w.start(config()).expect("started");
    let (_, teid) = w.active_session();
    let other = Ipv4Addr::new(10, 45, 0, 3);
    let (seid, _) = w.establish_for(other, "2001:db8:45:3::".parse().expect("an address"));
    w.downlink_to(seid, Some((Teid(0x33), GNB.into())));
    w.for_gnb();
    w.tunnel_up(teid, &echo(UE, other, 1));
    let datagram = w.for_gnb();
    let packet = gtpu::Packet::parse(&datagram).expect("sound");
    assert_eq!((packet.teid, &packet.payload[16..20]), (Teid(0x33), &other.octets()[..]));
    assert_eq!(packet.payload[20], 8, "the echo request");
}

#[test]
fn ran_node_with_ipv6_works() {
    let mut w = World::new();
    let both = vireo_upf::UpfConfig { n3: vec![UPF.into(), UPF6.into()], ..config() };
    let _upf = w.start(both).expect("started");
    let (seid, teid) = w.active_session();
    let gnb6 = w.inside("ran", || UdpSocket::bind((GNB6, gtpu::PORT))).expect("bound");
    gnb6.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    w.downlink_to(seid, Some((Teid(0x66), GNB6.into())));
    let mut buffer = [0; 2048];
    let (_, from) = gnb6.recv_from(&mut buffer).expect("the prefix of the UE");
    assert_eq!(from, (UPF6, gtpu::PORT).into());
    let mut datagram = gtpu::g_pdu_header(teid, gtpu::PduSession::Uplink { qfi: QFI }, 84).expect("short").to_vec();
    datagram.extend(echo(UE, HOST, 1));
    gnb6.send_to(&datagram, (UPF6, gtpu::PORT)).expect("sent");
    let length = gnb6.recv(&mut buffer).expect("the reply");
    let packet = gtpu::Packet::parse(&buffer[..length]).expect("sound");
    assert_eq!((packet.teid, packet.payload[20], packet.payload.len()), (Teid(0x66), 0, 84));
}
