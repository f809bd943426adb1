//! Packets, built and checked independently of the program.

use super::{FAR_GNB, GNB, UPF, mac};
use crate::Memory;
use std::net::{IpAddr, SocketAddr};
use vireo_types::Instant;

/// Input of the reference, by interface.
#[derive(Debug)]
pub(super) enum Side<'a> {
    N3 { from: SocketAddr, datagram: &'a [u8] },
    N6 { packet: &'a [u8] },
}

impl Side<'_> {
    pub(super) fn put_into(&self, memory: &mut Memory, now: Instant) {
        match self {
            Side::N3 { from, datagram } => memory.receive_n3(*from, datagram, now),
            Side::N6 { packet } => memory.receive_n6(packet, now),
        }
    }
}

fn sum(octets: &[u8]) -> u32 {
    let (pairs, rest) = octets.as_chunks::<2>();
    let last = rest.first().map_or(0, |last| u32::from(*last) << 8);
    pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum::<u32>() + last
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sets the checksum of an IPv4 header.
pub(super) fn with_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let header = (usize::from(packet[0] & 0xf) * 4).clamp(20, packet.len());
    let checksum = !fold(sum(&packet[..header]));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Returns an IP packet.
pub(super) fn packet(from: IpAddr, to: IpAddr, protocol: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut packet = match from {
        IpAddr::V4(_) => {
            let [high, low] = (length + 20).to_be_bytes();
            vec![0x45, 0, high, low, 0x12, 0x34, 0, 0, hops, protocol, 0, 0]
        }
        IpAddr::V6(_) => {
            let [high, low] = length.to_be_bytes();
            vec![0x60, 0, 0, 0, high, low, protocol, hops]
        }
    };
    packet.extend(octets(from));
    packet.extend(octets(to));
    if from.is_ipv4() {
        with_checksum(&mut packet);
    }
    packet.extend(payload);
    packet
}

/// Returns UDP from and to port 2152. The IPv4 checksum is absent, because no receiver checks it.
pub(super) fn tunnelled(from: IpAddr, to: IpAddr, datagram: &[u8]) -> Vec<u8> {
    let mut udp = vec![0x08, 0x68, 0x08, 0x68];
    udp.extend((datagram.len() as u16 + 8).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(datagram);
    packet(from, to, 17, 64, &udp)
}

/// Sets the UDP checksum in IPv6, which is mandatory.
pub(super) fn with_udp_checksum(packet: &mut [u8]) {
    let pseudo = sum(&packet[8..40]) + 17 + (packet.len() as u32 - 40);
    let checksum = match !fold(pseudo + sum(&packet[40..])) {
        0 => 0xffff,
        checksum => checksum,
    };
    packet[46..48].copy_from_slice(&checksum.to_be_bytes());
}

pub(super) fn frame(from: [u8; 6], to: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let version = if packet.first().is_some_and(|first| first >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] };
    [&to[..], &from, &version, packet].concat()
}

/// The frame that must leave.
#[derive(Debug)]
pub(super) struct Expected {
    frame: Vec<u8>,
    /// True if the program chooses the identification and checksum of the outer IPv4 header.
    outer_v4: bool,
}

/// Decrements the hop limit.
fn hop(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[8] -= 1;
        with_checksum(packet);
    } else {
        packet[7] -= 1;
    }
}

/// Returns the forwarded form of the only packet that the reference has sent.
pub(super) fn forwarded(memory: &Memory, side: &Side<'_>) -> Expected {
    match (&memory.n3[..], &memory.n6[..]) {
        ([], [packet]) => {
            let mut packet = packet.clone();
            hop(&mut packet);
            Expected { frame: frame(mac(6, 1), mac(6, 7), &packet), outer_v4: false }
        }
        ([(to, datagram)], []) => {
            assert!([GNB, FAR_GNB].as_flattened().contains(&to.ip()) && to.port() == 2152);
            let mut datagram = datagram.clone();
            let header = if datagram[0] & 4 != 0 { 16 } else { 8 };
            // Forwarding from tunnel to tunnel does not decrement the hop limit of the packet.
            if matches!(side, Side::N6 { .. }) {
                hop(&mut datagram[header..]);
            }
            let v6 = to.is_ipv6();
            let mut packet = tunnelled(UPF[usize::from(v6)], to.ip(), &datagram);
            if v6 {
                with_udp_checksum(&mut packet);
            }
            Expected { frame: frame(mac(3, 1), mac(3, 9), &packet), outer_v4: !v6 }
        }
        other => panic!("the reference does not forward: {other:?}"),
    }
}

impl Expected {
    pub(super) fn matches(&self, frame: &[u8]) -> bool {
        if !self.outer_v4 {
            return self.frame == frame;
        }
        // The program chooses identification and checksum.
        let parts =
            |frame: &[u8]| Some((frame.get(..18)?.to_vec(), frame.get(20..24)?.to_vec(), frame.get(26..)?.to_vec()));
        parts(frame) == parts(&self.frame) && frame.get(14..34).is_some_and(|header| fold(sum(header)) == 0xffff)
    }
}
