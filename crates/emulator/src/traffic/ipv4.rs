//! IPv4 echoes: ICMP (RFC 792) and UDP.

use super::checksum::Sum;
use super::{Echo, Kind, Received, read_mark, write_transport};
use std::net::{IpAddr, Ipv4Addr};

const HEADER: usize = 20;
const ICMP: u8 = 1;
const UDP: u8 = 17;

/// Writes an echo; see [`super::write_echo`].
pub fn write_echo(echo: Echo, source: Ipv4Addr, target: Ipv4Addr, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    let protocol = if echo.kind == Kind::Icmp { ICMP } else { UDP };
    let length = u16::try_from(HEADER + 8 + echo.octets.max(2)).ok()?.to_be_bytes();
    let identification = echo.mark.sequence.to_be_bytes();
    out.extend_from_slice(&[0x45, 0, length[0], length[1], identification[0], identification[1], 0x40, 0]);
    out.extend_from_slice(&[64, protocol, 0, 0]);
    out.extend_from_slice(&source.octets());
    out.extend_from_slice(&target.octets());
    write_transport(echo, 8, out)?;
    let header = Sum::default().add(&out[start..start + HEADER]).finish();
    out[start + 10..start + 12].copy_from_slice(&header.to_be_bytes());
    let packet = &mut out[start..];
    let sum = transport_sum(protocol, packet).finish();
    let place = HEADER + if protocol == ICMP { 2 } else { 6 };
    // A UDP checksum of zero means that there is none (RFC 768).
    let sum = if protocol == UDP && sum == 0 { 0xffff } else { sum };
    packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn transport_sum(protocol: u8, packet: &[u8]) -> Sum {
    let transport = &packet[HEADER..];
    let sum = Sum::default().add(transport);
    match protocol {
        UDP => sum.add(&packet[12..20]).add(&[0, UDP]).add(&(transport.len() as u16).to_be_bytes()),
        _ => sum,
    }
}

/// Parses a downlink packet; see [`super::read`].
pub fn read(packet: &[u8], ours: &[IpAddr]) -> Received {
    let Some(header) = packet.get(..HEADER) else { return Received::Bad };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let to = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    let from = Ipv4Addr::new(header[12], header[13], header[14], header[15]);
    let whole = header[0] == 0x45 && length == packet.len() && header[6] & 0x3f == 0 && header[7] == 0;
    if !whole || Sum::default().add(header).finish() != 0 || !ours.contains(&IpAddr::V4(to)) {
        return Received::Bad;
    }
    let protocol = header[9];
    if !matches!(protocol, ICMP | UDP) {
        return Received::Other;
    }
    let no_sum = protocol == UDP && packet.get(HEADER + 6..HEADER + 8) == Some(&[0, 0]);
    if !no_sum && transport_sum(protocol, packet).finish() != 0 {
        return Received::Bad;
    }
    match read_mark(protocol, 0, &packet[HEADER..]) {
        Some(mark) => Received::Echo { from: IpAddr::V4(from), mark },
        None => Received::Other,
    }
}
