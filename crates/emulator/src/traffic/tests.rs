use super::*;
use std::net::Ipv4Addr;

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 45, 0, 2));
const THEIRS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 45, 0, 1));
const OURS6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2));
const THEIRS6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const MARK: Mark = Mark { identifier: 0x1234, sequence: 7 };

fn echo(kind: Kind, octets: usize) -> Echo {
    Echo { kind, mark: MARK, octets }
}

#[test]
fn icmp_echo_has_octets_of_rfc_792() {
    let mut packet = Vec::new();
    write_echo(echo(Kind::Icmp, 4), OURS, THEIRS, &mut packet).expect("one version");
    // Written by hand; the two checksums are computed independently of this code.
    let expected = [
        0x45, 0, 0, 32, 0, 7, 0x40, 0, 64, 1, 0x26, 0x7a, 10, 45, 0, 2, 10, 45, 0, 1, //
        8, 0, 0xe3, 0xba, 0x12, 0x34, 0, 7, 0, 7, 2, 3,
    ];
    assert_eq!(packet, expected);
}

/// Turns a request into the target's answer, byte by byte.
fn answer(packet: &[u8], kind: Kind) -> Vec<u8> {
    let mut answer = packet.to_vec();
    let (addresses, transport) = if packet[0] >> 4 == 4 { (12..20, 20) } else { (8..40, 40) };
    let half = addresses.len() / 2;
    answer[addresses].rotate_left(half);
    match kind {
        Kind::Icmp => {
            let (request, reply) = if transport == 20 { (8u32, 0u32) } else { (128, 129) };
            assert_eq!(u32::from(answer[transport]), request);
            answer[transport] = reply as u8;
            // RFC 1624, equation 3: the complemented sum subtracts the old field and adds the new
            // one.
            let sum = u32::from(!u16::from_be_bytes([answer[transport + 2], answer[transport + 3]]));
            let sum = sum + (0xffff - (request << 8)) + (reply << 8);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
            answer[transport + 2..transport + 4].copy_from_slice(&sum.to_be_bytes());
        }
        Kind::Udp(_) => answer[transport..transport + 4].rotate_left(2),
    }
    answer
}

#[test]
fn answers_are_matched_and_damage_is_seen() {
    for (ours, theirs) in [(OURS, THEIRS), (OURS6, THEIRS6)] {
        for kind in [Kind::Icmp, Kind::Udp(ECHO_PORT)] {
            for octets in [2, 56, 57, 1400] {
                let mut packet = Vec::new();
                write_echo(echo(kind, octets), ours, theirs, &mut packet).expect("one version");
                let good = answer(&packet, kind);
                let received = read(&good, &[ours]);
                assert_eq!(received, Received::Echo { from: theirs, mark: MARK }, "{kind:?} {octets}");
                assert_eq!(read(&good, &[theirs]), Received::Bad);
                let last = good.len() - 1;
                for place in [0, 4, last] {
                    let mut bad = good.clone();
                    bad[place] ^= 0x10;
                    assert_ne!(read(&bad, &[ours]), received, "{kind:?} {octets} at {place}");
                }
                assert_eq!(read(&good[..last], &[ours]), Received::Bad);
            }
        }
    }
}

#[test]
fn router_advertisement_yields_prefix() {
    let interface = [0, 0, 0, 0, 0, 0, 0, 9];
    let ours = IpAddr::V6(ipv6::link_local(interface));
    let mut packet = Vec::new();
    ipv6::write_solicitation(interface, &mut packet).expect("short");
    assert_eq!((packet.len(), packet[7], packet[40]), (48, 255, 133));
    // A Router Advertisement: header, hop limit 64, lifetime, one prefix option fd00:0:0:5::/64
    // with L and A.
    let mut advertisement = vec![0x60, 0, 0, 0, 0, 48, 58, 255];
    advertisement.extend(ipv6::link_local([0, 0, 0, 0, 0, 0, 0, 1]).octets());
    advertisement.extend(ipv6::link_local(interface).octets());
    advertisement.extend([134, 0, 0, 0, 64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    advertisement.extend([3, 4, 64, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let prefix = Ipv6Addr::new(0xfd00, 0, 0, 5, 0, 0, 0, 0);
    advertisement.extend(prefix.octets());
    let sum = ones_complement(&advertisement);
    advertisement[42..44].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(read(&advertisement, &[ours]), Received::Prefix(prefix));
    advertisement[7] = 64;
    assert_eq!(read(&advertisement, &[ours]), Received::Bad);
    for end in 0..advertisement.len() {
        assert_eq!(read(&advertisement[..end], &[ours]), Received::Bad);
    }
}

/// Computes the ICMPv6 checksum by another method than the code under test: one large sum, folded
/// at the end.
fn ones_complement(packet: &[u8]) -> u16 {
    let mut words: u64 = (packet.len() as u64 - 40) + 58;
    for pair in packet[8..].chunks(2) {
        words += u64::from(pair[0]) * 256 + u64::from(*pair.get(1).unwrap_or(&0));
    }
    while words > 0xffff {
        words = (words & 0xffff) + (words >> 16);
    }
    !(words as u16)
}

#[test]
fn impossible_packet_is_not_written() {
    assert_eq!(write_echo(echo(Kind::Icmp, 8), OURS, THEIRS6, &mut Vec::new()), None);
    assert_eq!(write_echo(echo(Kind::Icmp, 70_000), OURS, THEIRS, &mut Vec::new()), None);
    assert_eq!(read(&[], &[OURS]), Received::Bad);
}
