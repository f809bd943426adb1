//! Fuzz target of the user plane's verdict on packets, with an active session.

use super::input::Script;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_datapath::{
    ALL_FLOWS, Action, DownlinkRule, Filter, FlowRule, Limits, Marking, Memory, Pool, Rate, Released, SessionFlows,
    Source, Tables, Target, Tunnel, UplinkRule,
};
use vireo_types::{Instant, SessionAddress, Teid};

const GNB: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// Runs a script of packets after an octet that selects the kind of session. 0 is a packet from N3
/// as it is, 1 from N3 in the session's tunnel, 2 from N6, 3 from N6 to the session.
pub fn packets(data: &[u8]) {
    let mut script = Script(data);
    // True if the session needs flow rules that entries cannot hold.
    let (mut upf, teid) = with_session(script.byte() & 1 == 1);
    for tick in 0..64 {
        if script.is_done() {
            break;
        }
        let (step, piece, now) = (script.byte() % 4, script.piece(), Instant(1_000_000 + tick * 1000));
        match step {
            0 => upf.receive_n3(SocketAddr::new(GNB, 2152), piece, now),
            1 => {
                let mut datagram = vec![0x30, 0xff, 0, 0];
                datagram.extend(teid.0.to_be_bytes());
                datagram.extend(piece);
                let length = u16::try_from(piece.len()).expect("a piece is short");
                datagram[2..4].copy_from_slice(&length.to_be_bytes());
                upf.receive_n3(SocketAddr::new(GNB, 2152), &datagram, now);
            }
            2 => upf.receive_n6(piece, now),
            _ => {
                let mut packet = piece.to_vec();
                if let Some(to) = packet.get_mut(16..20) {
                    to.copy_from_slice(&[10, 45, 0, 2]);
                }
                upf.receive_n6(&packet, now);
            }
        }
    }
}

fn with_session(flows: bool) -> (Memory, Teid) {
    let pool = Pool {
        ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
        ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
        mtu: 1400,
        ..Pool::default()
    };
    let mut tables = Tables::new(vec![pool], Limits { records: 4, ..Limits::default() });
    let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2, 0, 0, 0, 0);
    let ue = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 2)), ipv6_prefix: Some(prefix) };
    let mbr = Rate::UNLIMITED;
    let up = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr };
    let teid = tables.add_uplink(None, up).expect("room");
    let down = tables.add_downlink(ue, 7).expect("room");
    let tunnel = Some(Tunnel { teid: Teid(1), address: GNB });
    let rule = DownlinkRule {
        session: 7,
        pdr: 2,
        qfi: Some(9),
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel,
        mbr,
    };
    tables.set_downlink(down, rule, false, &mut Released::default());
    if flows {
        let filter = Filter { protocol: Some(17), remote_ports: vec![7..=7], ..Filter::default() };
        let target = Target::Tunnel { tunnel: Tunnel { teid: Teid(2), address: GNB }, marking: Marking::Received };
        let first = FlowRule {
            pdr: 1,
            source: Source::Tunnel(teid),
            uplink: true,
            flows: ALL_FLOWS,
            filters: vec![filter],
            gate_open: true,
            target: Target::DataNetwork,
            rates: vec![],
            meters: vec![],
        };
        let second = FlowRule { filters: vec![], target, ..first.clone() };
        let back = FlowRule { source: Source::DataNetwork, uplink: false, ..second.clone() };
        let third = FlowRule { target: Target::Buffer { notify: true }, ..back.clone() };
        let back = FlowRule { filters: first.filters.clone(), ..back };
        let rules = vec![first, second, back, third];
        let flows = SessionFlows { rules, ..SessionFlows::default() };
        tables.set_flows(7, Some(flows), &[teid], &[down], &mut Released::default());
    }
    (Memory::new(tables, Ipv4Addr::new(127, 0, 0, 8).into()), teid)
}
