//! IPv6 echoes (RFC 4443, UDP) and address autoconfiguration (RFC 4861, 4862).
//!
//! The Router Solicitation starts the autoconfiguration.

use super::checksum::Sum;
use super::{Echo, Kind, Received, read_mark, write_transport};
use std::net::{IpAddr, Ipv6Addr};

const HEADER: usize = 40;
const ICMPV6: u8 = 58;
const UDP: u8 = 17;
const ROUTER_ADVERTISEMENT: u8 = 134;
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the address of an interface identifier under a /64 prefix.
pub fn address(prefix: Ipv6Addr, interface: [u8; 8]) -> Ipv6Addr {
    let mut octets = prefix.octets();
    octets[8..].copy_from_slice(&interface);
    octets.into()
}

/// Returns the link-local address of an interface identifier.
pub fn link_local(interface: [u8; 8]) -> Ipv6Addr {
    address(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), interface)
}

fn write_header(next: u8, hops: u8, length: usize, ends: (Ipv6Addr, Ipv6Addr), out: &mut Vec<u8>) -> Option<()> {
    let length = u16::try_from(length).ok()?.to_be_bytes();
    out.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], next, hops]);
    out.extend_from_slice(&ends.0.octets());
    out.extend_from_slice(&ends.1.octets());
    Some(())
}

fn transport_sum(next: u8, packet: &[u8]) -> Sum {
    let (addresses, transport) = (&packet[8..HEADER], &packet[HEADER..]);
    Sum::default().add(addresses).add(&(transport.len() as u32).to_be_bytes()).add(&[0, next]).add(transport)
}

fn finish(next: u8, packet: &mut [u8]) {
    let sum = transport_sum(next, packet).finish();
    let place = HEADER + if next == ICMPV6 { 2 } else { 6 };
    let sum = if next == UDP && sum == 0 { 0xffff } else { sum };
    packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Writes an echo; see [`super::write_echo`].
pub fn write_echo(echo: Echo, source: Ipv6Addr, target: Ipv6Addr, out: &mut Vec<u8>) -> Option<()> {
    let (start, next) = (out.len(), if echo.kind == Kind::Icmp { ICMPV6 } else { UDP });
    write_header(next, 64, 8 + echo.octets.max(2), (source, target), out)?;
    write_transport(echo, 128, out)?;
    finish(next, &mut out[start..]);
    Some(())
}

/// Writes the Router Solicitation of a UE with an interface identifier from the network.
pub fn write_solicitation(interface: [u8; 8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    // Hop limit 255 proves that no router forwarded the packet (RFC 4861 6.1.1).
    write_header(ICMPV6, 255, 8, (link_local(interface), ALL_ROUTERS), out)?;
    out.extend_from_slice(&[133, 0, 0, 0, 0, 0, 0, 0]);
    finish(ICMPV6, &mut out[start..]);
    Some(())
}

/// Parses a downlink packet; see [`super::read`].
pub fn read(packet: &[u8], ours: &[IpAddr]) -> Received {
    let Some((header, transport)) = packet.split_at_checked(HEADER) else { return Received::Bad };
    let (from, to) = (octets(&header[8..24]), octets(&header[24..40]));
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mine = ours.contains(&IpAddr::V6(to)) || to == ALL_NODES;
    if length != transport.len() || !mine {
        return Received::Bad;
    }
    let next = header[6];
    if !matches!(next, ICMPV6 | UDP) {
        return Received::Other;
    }
    if transport.len() < 8 || transport_sum(next, packet).finish() != 0 {
        return Received::Bad;
    }
    if next == ICMPV6 && transport[0] == ROUTER_ADVERTISEMENT {
        let valid = header[7] == 255 && from.segments()[0] & 0xffc0 == 0xfe80;
        return if valid { read_prefix(transport) } else { Received::Bad };
    }
    match read_mark(next, 129, transport) {
        Some(mark) => Received::Echo { from: IpAddr::V6(from), mark },
        None => Received::Other,
    }
}

fn octets(slice: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(slice);
    octets.into()
}

/// Returns the first Prefix Information option with the A flag and 64 bits (RFC 4861 4.6.2).
fn read_prefix(advertisement: &[u8]) -> Received {
    let mut options = advertisement.get(16..).unwrap_or(&[]);
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        let Some((option, rest)) = options.split_at_checked(length).filter(|_| length > 0) else {
            return Received::Bad;
        };
        if kind == 3 && length == 32 && option[2] == 64 && option[3] & 0x40 != 0 {
            let mut prefix = octets(&option[16..32]).octets();
            prefix[8..].fill(0);
            return Received::Prefix(prefix.into());
        }
        options = rest;
    }
    Received::Other
}
