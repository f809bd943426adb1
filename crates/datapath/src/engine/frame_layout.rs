//! Ethernet frames: parsing of received frames and headers of sent frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use vireo_wire::gtpu;

pub(crate) const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// Octets that are kept free before a frame, for the headers of the longest tunnel.
pub(crate) const ROOM: usize = IPV6 + UDP + gtpu::G_PDU_HEADER;

/// Position of a frame's IP packet in the received octets. Kept small, because workers hold a batch
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FramePayload {
    begin: u32,
    end: u32,
    /// Start of the UDP payload if it is for the GTP-U port, otherwise 0.
    gtp: u32,
    gtp_end: u32,
    v6: bool,
}

impl FramePayload {
    /// Returns the range of the IP packet.
    #[inline]
    pub(crate) fn packet(&self) -> Range<usize> {
        self.begin as usize..self.end as usize
    }

    /// Returns the range of the UDP payload if it is for the GTP-U port.
    #[inline]
    pub(crate) fn gtp(&self) -> Option<Range<usize>> {
        (self.gtp != 0).then_some(self.gtp as usize..self.gtp_end as usize)
    }

    /// Returns the source port of a datagram for the GTP-U port.
    #[inline]
    pub(crate) fn port(&self, octets: &[u8]) -> u16 {
        u16_at(octets, (self.gtp as usize).saturating_sub(UDP))
    }

    #[inline]
    fn address(&self, octets: &[u8], v4: usize, v6: usize) -> IpAddr {
        let begin = self.begin as usize;
        // `read` has checked that the header is complete.
        match self.v6 {
            false => v4_at(octets, begin + v4).unwrap_or(Ipv4Addr::UNSPECIFIED).into(),
            true => v6_at(octets, begin + v6).unwrap_or(Ipv6Addr::UNSPECIFIED).into(),
        }
    }

    /// Returns the source address of the IP packet.
    #[inline]
    pub(crate) fn source(&self, octets: &[u8]) -> IpAddr {
        self.address(octets, 12, 8)
    }

    /// Returns the destination address of the IP packet.
    #[inline]
    pub(crate) fn destination(&self, octets: &[u8]) -> IpAddr {
        self.address(octets, 16, 24)
    }
}

#[inline]
fn u16_at(octets: &[u8], at: usize) -> u16 {
    octets.get(at..).and_then(|o| o.first_chunk()).map_or(0, |o| u16::from_be_bytes(*o))
}

#[inline]
fn v4_at(octets: &[u8], at: usize) -> Option<Ipv4Addr> {
    octets.get(at..)?.first_chunk::<4>().map(|v4| Ipv4Addr::from(*v4))
}

#[inline]
fn v6_at(octets: &[u8], at: usize) -> Option<Ipv6Addr> {
    octets.get(at..)?.first_chunk::<16>().map(|v6| Ipv6Addr::from(*v6))
}

/// Parses the frame that begins at `start`. Returns `None` if it has no valid IP packet.
#[inline]
pub(crate) fn read(octets: &[u8], start: usize) -> Option<FramePayload> {
    let kind = u16_at(octets, start + 12);
    let ip = start + ETHERNET;
    let header = octets.get(ip..)?;
    let (protocol, header_octets, total) = match kind {
        0x0800 if header.len() >= IPV4 && header[0] == 0x45 => {
            // A later fragment has no UDP header.
            let protocol = if u16_at(header, 6) & 0x3fff == 0 { header[9] } else { 0 };
            (protocol, IPV4, usize::from(u16_at(header, 2)))
        }
        0x86dd if header.len() >= IPV6 && header[0] >> 4 == 6 => {
            (header[6], IPV6, IPV6 + usize::from(u16_at(header, 4)))
        }
        _ => return None,
    };
    if total < header_octets || total > header.len() {
        return None;
    }
    let udp = ip + header_octets;
    let length = usize::from(u16_at(octets, udp + 4));
    let fits = (UDP..=total - header_octets).contains(&length);
    let is_gtp = protocol == PROTOCOL_UDP && u16_at(octets, udp + 2) == gtpu::PORT && fits;
    // The header of the user's packet is checked with the packet.
    if is_gtp && header_octets == IPV4 && !is_intact(&header[..IPV4]) {
        return None;
    }
    let (gtp, gtp_end) = if is_gtp { (udp + UDP, udp + length) } else { (0, 0) };
    let [begin, end, gtp, gtp_end] = [ip, ip + total, gtp, gtp_end].map(|at| at as u32);
    Some(FramePayload { begin, end, gtp, gtp_end, v6: header_octets == IPV6 })
}

/// Returns the destination of a valid IP packet that a router may forward directly: it has hops
/// left and no options.
#[inline]
pub(crate) fn routed(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? {
        0x45 if packet[8] > 1 => Some(v4_at(packet, 16)?.into()),
        first if first >> 4 == 6 && packet[7] > 1 && packet[6] != 0 => Some(v6_at(packet, 24)?.into()),
        _ => None,
    }
}

/// Decrements the hop limit of a packet with more than one hop left, and updates the checksum (RFC
/// 1624).
#[inline]
pub(crate) fn take_hop(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
        return;
    }
    packet[8] -= 1;
    let sum = u32::from(u16_at(packet, 10)) + 0x0100;
    let sum = (sum + u32::from(sum >= 0xffff)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the sum of 16-bit words, not folded. The octets are added four at a time in host byte
/// order. The result is swapped at the end (RFC 1071 2).
#[inline]
fn sum(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    sum
}

#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns true if the checksum of an IPv4 header is right (RFC 1071). The octets are those of the
/// header, a multiple of four.
#[inline]
pub(crate) fn is_intact(header: &[u8]) -> bool {
    // The sum of all ones is the same in either byte order.
    fold(sum(header)) == 0xffff
}

/// Returns the checksum of a sum.
#[inline]
fn checksum(sum: u64) -> u16 {
    // The words were added in host byte order.
    !u16::from_be(fold(sum))
}

/// Sets the checksum of an IPv4 header without options.
#[cfg(test)]
pub(crate) fn complete_header(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let result = checksum(sum(&packet[..IPV4]));
    packet[10..12].copy_from_slice(&result.to_be_bytes());
}

fn pseudo(source: &[u8], destination: &[u8], protocol: u8, length: usize) -> u64 {
    let rest = (length as u32).to_be_bytes();
    sum(source) + sum(destination) + sum(&rest) + sum(&[0, 0, 0, protocol])
}

/// Completes the checksum of a UDP or TCP packet whose sender left it to hardware that the packet
/// did not pass.
#[cold]
pub(crate) fn complete_checksum(packet: &mut [u8]) {
    let (addresses, header, protocol) = match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4 => (12..20, usize::from(packet[0] & 0xf) * 4, packet[9]),
        Some(6) if packet.len() >= IPV6 => (8..40, IPV6, packet[6]),
        _ => return,
    };
    let field = match protocol {
        PROTOCOL_UDP => 6,
        PROTOCOL_TCP => 16,
        _ => return,
    };
    let half = addresses.len() / 2;
    let (ip, data) = packet.split_at_mut(header.min(packet.len()));
    if data.len() < field + 2 {
        return;
    }
    data[field..field + 2].fill(0);
    let (source, destination) = ip[addresses].split_at(half);
    let result = checksum(pseudo(source, destination, protocol, data.len()) + sum(data));
    let result = if result == 0 && protocol == PROTOCOL_UDP { 0xffff } else { result };
    data[field..field + 2].copy_from_slice(&result.to_be_bytes());
}

/// Writes the Ethernet header directly before `packet`. Returns the start of the frame. `macs`:
/// destination, source.
#[inline]
pub(crate) fn write_ethernet(octets: &mut [u8], packet: usize, macs: &[u8; 12], v6: bool) -> usize {
    let start = packet - ETHERNET;
    octets[start..start + 12].copy_from_slice(macs);
    octets[start + 12..packet].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
    start
}

/// Returns the octets of the IP and UDP headers of a datagram of this family.
#[inline]
pub(crate) fn outer(v6: bool) -> usize {
    UDP + if v6 { IPV6 } else { IPV4 }
}

/// Writes IP and UDP headers directly before the datagram `octets[datagram]`. Returns the start of
/// the packet. Both addresses are of one family.
#[inline(always)]
pub(crate) fn write_udp(octets: &mut [u8], datagram: Range<usize>, from: IpAddr, to: IpAddr, id: u16) -> usize {
    let length = datagram.len() + UDP;
    let udp = datagram.start - UDP;
    let ports = u64::from(gtpu::PORT) << 48 | u64::from(gtpu::PORT) << 32;
    octets[udp..udp + UDP].copy_from_slice(&(ports | u64::from(length as u16) << 16).to_be_bytes());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start = udp - IPV4;
            let total = (length + IPV4) as u16;
            let (from, to) = (from.to_bits(), to.to_bits());
            // Summed from the header fields: octets that were just written are slow to read in
            // another size.
            let fixed = 0x4500 + u64::from(u16::from_be_bytes([64, PROTOCOL_UDP]));
            let words = |address: u32| u64::from(address >> 16) + u64::from(address & 0xffff);
            let sum = fixed + u64::from(total) + u64::from(id) + words(from) + words(to);
            let first = 0x4500_0000_0000_0000 | u64::from(total) << 32 | u64::from(id) << 16;
            let check = !fold(sum);
            let second = u64::from(u16::from_be_bytes([64, PROTOCOL_UDP])) << 48 | u64::from(check) << 32;
            octets[start..start + 8].copy_from_slice(&first.to_be_bytes());
            octets[start + 8..start + 16].copy_from_slice(&(second | u64::from(from)).to_be_bytes());
            octets[start + 16..udp].copy_from_slice(&to.to_be_bytes());
            start
        }
        (from, to) => write_udp_v6(octets, udp..datagram.end, from, to),
    }
}

/// Writes the checksum and the IPv6 header of the UDP packet `octets[udp]`; see [`write_udp`].
#[inline(never)]
fn write_udp_v6(octets: &mut [u8], udp: Range<usize>, from: IpAddr, to: IpAddr) -> usize {
    let (length, end, udp) = (udp.len(), udp.end, udp.start);
    let start = udp - IPV6;
    let [from, to] = [from, to].map(|address| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    });
    // RFC 8200 8.1: the UDP checksum is mandatory with IPv6.
    let whole = pseudo(&from.octets(), &to.octets(), PROTOCOL_UDP, length) + sum(&octets[udp..end]);
    let result = match checksum(whole) {
        0 => 0xffff,
        other => other,
    };
    octets[udp + 6..udp + 8].copy_from_slice(&result.to_be_bytes());
    let header = &mut octets[start..udp];
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, PROTOCOL_UDP, 64]);
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[8..24].copy_from_slice(&from.octets());
    header[24..40].copy_from_slice(&to.octets());
    start
}
