//! IP packets of a UE, without a kernel network stack.
//!
//! Pure functions write packets into a buffer and read them from a slice. They have no socket,
//! tunnel or UE.

mod checksum;
pub mod ipv4;
pub mod ipv6;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};

/// UDP port of the echo service (RFC 862).
pub const ECHO_PORT: u16 = 7;

/// Identification of an echo packet, which matches the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// ICMP identifier, or the source port of UDP.
    pub identifier: u16,
    /// ICMP sequence number, or the first two octets of the UDP payload.
    pub sequence: u16,
}

/// Packet type of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ICMP or ICMPv6 echo request.
    Icmp,
    /// UDP datagram to this port.
    Udp(u16),
}

/// Result of parsing a downlink packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Answer to an echo, from this address.
    Echo { from: IpAddr, mark: Mark },
    /// Router Advertisement with a /64 prefix for autonomous addresses (RFC 4862).
    Prefix(Ipv6Addr),
    /// Another well-formed packet.
    Other,
    /// Malformed packet, wrong checksum, or a packet for another UE.
    Bad,
}

/// Echo to write: packet type, mark and payload size in octets (at least two).
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// ICMP or UDP (packet type).
    pub kind: Kind,
    pub mark: Mark,
    pub octets: usize,
}

/// Writes an echo from `source` to `target`. Returns `None` if their IP versions differ, or if the
/// packet would exceed 64 KiB.
pub fn write_echo(echo: Echo, source: IpAddr, target: IpAddr, out: &mut Vec<u8>) -> Option<()> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => ipv4::write_echo(echo, source, target, out),
        (IpAddr::V6(source), IpAddr::V6(target)) => ipv6::write_echo(echo, source, target, out),
        _ => None,
    }
}

/// Parses a downlink packet for a UE with the addresses `ours`.
pub fn read(packet: &[u8], ours: &[IpAddr]) -> Received {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => ipv4::read(packet, ours),
        Some(6) => ipv6::read(packet, ours),
        _ => Received::Bad,
    }
}

/// Writes the UDP or ICMP header and the payload, with a checksum field of zero.
fn write_transport(echo: Echo, echo_type: u8, out: &mut Vec<u8>) -> Option<()> {
    let octets = echo.octets.max(2);
    let (high, low) = (echo.mark.identifier.to_be_bytes(), echo.mark.sequence.to_be_bytes());
    match echo.kind {
        Kind::Icmp => out.extend_from_slice(&[echo_type, 0, 0, 0, high[0], high[1], low[0], low[1]]),
        Kind::Udp(port) => {
            let (port, length) = (port.to_be_bytes(), u16::try_from(octets + 8).ok()?.to_be_bytes());
            out.extend_from_slice(&[high[0], high[1], port[0], port[1], length[0], length[1], 0, 0]);
        }
    }
    out.extend_from_slice(&low);
    // Variable padding, so that a truncated or shifted answer fails its checksum.
    out.extend((2..octets).map(|n| n as u8));
    Some(())
}

/// Returns the mark of an ICMP echo reply or a UDP answer whose checksum is already verified.
fn read_mark(protocol: u8, reply_type: u8, transport: &[u8]) -> Option<Mark> {
    const UDP: u8 = 17;
    let &[a, b, c, d, e, f, g, h, ref payload @ ..] = transport else { return None };
    match protocol {
        UDP => {
            let sequence = u16::from_be_bytes([*payload.first()?, *payload.get(1)?]);
            Some(Mark { identifier: u16::from_be_bytes([c, d]), sequence })
        }
        _ if a == reply_type && b == 0 => {
            Some(Mark { identifier: u16::from_be_bytes([e, f]), sequence: u16::from_be_bytes([g, h]) })
        }
        _ => None,
    }
}
