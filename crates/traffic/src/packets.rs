//! User packets with IPv4 and UDP, with or without a tunnel.

use std::net::Ipv4Addr;
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};

/// Length of an IPv4 header without options, in octets.
pub const IPV4_HEADER: usize = 20;
/// Length of a UDP header in octets.
pub const UDP_HEADER: usize = 8;
/// Octets that the tunnel adds to a packet: IPv4, UDP, and GTP-U with a PDU Session Container.
pub const OUTER: usize = IPV4_HEADER + UDP_HEADER + gtpu::G_PDU_HEADER;
/// Length of an Ethernet header in octets.
pub const ETHERNET: usize = 14;

/// Returns the folded ones' complement sum of RFC 1071.
pub fn sum(octets: &[u8]) -> u16 {
    let (words, last) = octets.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum += last.first().map_or(0, |octet| u64::from(*octet) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the header of an IPv4 packet with UDP, of `length` octets in total.
pub fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr, length: u16) -> [u8; IPV4_HEADER] {
    const UDP: u8 = 17;
    let [l1, l2] = length.to_be_bytes();
    let mut header = [0x45, 0, l1, l2, 0, 0, 0x40, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&source.octets());
    header[16..].copy_from_slice(&destination.octets());
    let check = !sum(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header
}

/// Returns a UDP header without a checksum, which IPv4 permits.
pub fn udp_header(source: u16, destination: u16, length: u16) -> [u8; UDP_HEADER] {
    let ([s1, s2], [d1, d2], [l1, l2]) = (source.to_be_bytes(), destination.to_be_bytes(), length.to_be_bytes());
    [s1, s2, d1, d2, l1, l2, 0, 0]
}

/// Returns the headers of an uplink tunnel for a packet of `payload` octets. Returns `None` if it
/// is too long.
pub fn tunnel(gnb: Ipv4Addr, upf: Ipv4Addr, teid: Teid, qfi: u8, payload: usize) -> Option<[u8; OUTER]> {
    let gtp = gtpu::g_pdu_header(teid, PduSession::Uplink { qfi }, payload)?;
    let length = u16::try_from(OUTER + payload).ok()?;
    let mut headers = [0; OUTER];
    headers[..IPV4_HEADER].copy_from_slice(&ipv4_header(gnb, upf, length));
    let udp = udp_header(gtpu::PORT, gtpu::PORT, length - IPV4_HEADER as u16);
    headers[IPV4_HEADER..IPV4_HEADER + UDP_HEADER].copy_from_slice(&udp);
    headers[IPV4_HEADER + UDP_HEADER..].copy_from_slice(&gtp);
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_right_checksums() {
        let header = ipv4_header(Ipv4Addr::new(10, 45, 0, 2), Ipv4Addr::new(198, 51, 100, 7), 128);
        assert_eq!(sum(&header), 0xffff, "RFC 1071: a header with its checksum sums to all ones");
        assert_eq!(sum(&[0xff, 0xff, 0x00, 0x02, 0x01]), 0x0102);
        let outer = tunnel(Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(192, 0, 2, 1), Teid(7), 9, 100).unwrap();
        assert_eq!((sum(&outer[..20]), &outer[20..24]), (0xffff, &[8, 0x68, 8, 0x68][..]));
        assert_eq!(gtpu::Packet::parse(&[&outer[28..], &[0x45; 100]].concat()).unwrap().teid, Teid(7));
        assert!(tunnel(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Teid(7), 9, 65_500).is_none());
    }
}
