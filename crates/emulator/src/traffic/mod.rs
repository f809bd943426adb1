//! The user plane of a UE without a kernel: it writes and reads its own IP packets.
//!
//! Pure: packets are written into a buffer and read from a slice. It knows no socket, tunnel or UE.

mod checksum;
pub mod ipv4;
pub mod ipv6;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};

/// The UDP port of the echo service (RFC 862).
pub const ECHO_PORT: u16 = 7;

/// What an echo packet carries besides its padding, so that its answer can be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// ICMP identifier, or the source port of UDP.
    pub identifier: u16,
    /// ICMP sequence number, or the first two octets of the UDP payload.
    pub sequence: u16,
}

/// How an echo is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ICMP or ICMPv6 echo request.
    Icmp,
    /// A UDP datagram to this port.
    Udp(u16),
}

/// What a downlink packet is to the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The answer to an echo, from this address.
    Echo {
        /// Who answered.
        from: IpAddr,
        /// Which echo.
        mark: Mark,
    },
    /// A Router Advertisement with a /64 prefix for autonomous addresses (RFC 4862).
    Prefix(Ipv6Addr),
    /// Something else that is well formed.
    Other,
    /// Not well formed, a wrong checksum, or not for this UE.
    Bad,
}

/// An echo to be written: how, between whom, which, and how many octets of payload (two at least).
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// ICMP or UDP.
    pub kind: Kind,
    /// Which echo.
    pub mark: Mark,
    /// Octets of payload.
    pub octets: usize,
}

/// Writes an echo from `source` to `target`, which are of one IP version. `None` if they are not, or if the packet
/// would pass 64 KiB.
pub fn write_echo(echo: Echo, source: IpAddr, target: IpAddr, out: &mut Vec<u8>) -> Option<()> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => ipv4::write_echo(echo, source, target, out),
        (IpAddr::V6(source), IpAddr::V6(target)) => ipv6::write_echo(echo, source, target, out),
        _ => None,
    }
}

/// Reads a downlink packet for a UE with these addresses.
pub fn read(packet: &[u8], ours: &[IpAddr]) -> Received {
    match packet.first().map(|octet| octet >> 4) {
        Some(4) => ipv4::read(packet, ours),
        Some(6) => ipv6::read(packet, ours),
        _ => Received::Bad,
    }
}

/// UDP header and payload, or ICMP header and payload, with the checksum field zero.
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
    // a padding that is not constant, so that a truncated or shifted answer fails its checksum
    out.extend((2..octets).map(|n| n as u8));
    Some(())
}

/// The mark of an ICMP echo reply or of a UDP answer, after its checksum was found right.
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
