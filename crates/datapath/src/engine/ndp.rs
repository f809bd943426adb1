//! IPv6 router at the far end of a session (TS 23.501 5.8.2.2.3, RFC 4861).
//!
//! It answers Router Solicitations with the session's prefix, and Neighbor Solicitations for
//! itself. The rest of Neighbor Discovery has no meaning on a link with two ends.

use std::net::{IpAddr, Ipv6Addr};

/// Link-local address of the router.
pub(crate) const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xffff);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Maximum number of DNS servers in a router advertisement.
const DNS_SERVERS: usize = 4;
/// Longest message that this Rust module writes, in octets.
pub(crate) const MAX_MESSAGE_OCTETS: usize = 40 + 16 + 32 + 8 + 8 + 16 * DNS_SERVERS;

const ICMPV6: u8 = 58;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

/// Solicitation of a UE, with the address of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solicitation {
    Router {
        reply_to: Ipv6Addr,
    },
    /// Neighbor Solicitation for [`ROUTER`]. `solicited` is false if the sender has no address yet.
    Neighbor {
        reply_to: Ipv6Addr,
        solicited: bool,
    },
}

/// Returns true for an address of link scope: unspecified, link-local, or link-local multicast.
#[inline]
pub(crate) fn is_link_scope(address: u128) -> bool {
    address == 0 || address >> 118 == 0xfe80 >> 6 || address >> 112 == 0xff02
}

/// Parses a solicitation. Returns `None` for any other packet, and for packets that RFC 4861 6.1.1
/// and 7.1.1 discard.
pub(crate) fn solicitation(packet: &[u8]) -> Option<Solicitation> {
    let (header, message) = packet.split_first_chunk::<40>()?;
    let (next_header, hop_limit) = (header[6], header[7]);
    if next_header != ICMPV6 || hop_limit != 255 || message.len() < 8 || message[1] != 0 {
        return None;
    }
    let source = Ipv6Addr::from(*header[8..].first_chunk::<16>()?);
    let destination = Ipv6Addr::from(*header[24..].first_chunk::<16>()?);
    if checksum(source, destination, message) != 0 {
        return None;
    }
    let reply_to = if source.is_unspecified() { ALL_NODES } else { source };
    match message[0] {
        ROUTER_SOLICITATION => Some(Solicitation::Router { reply_to }),
        NEIGHBOR_SOLICITATION => {
            let target = Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?);
            let solicited = !source.is_unspecified();
            (target == ROUTER).then_some(Solicitation::Neighbor { reply_to, solicited })
        }
        _ => None,
    }
}

/// Content of a router advertisement apart from the prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) mtu: u16,
    pub(crate) dns: Vec<Ipv6Addr>,
}

impl Link {
    pub(crate) fn new(mtu: u16, dns: &[IpAddr]) -> Self {
        let v6 = dns.iter().filter_map(|dns| match dns {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        });
        Link { mtu, dns: v6.take(DNS_SERVERS).collect() }
    }
}

/// Writes an advertisement of the session's prefix to `destination` (`None` = all nodes) into the
/// start of `out`. Returns its length. `out` must have at least [`MAX_MESSAGE_OCTETS`] octets.
///
/// The prefix is for autoconfiguration and not on the link. Its lifetimes are infinite: it is valid
/// until the session ends (TS 29.061 11.2.1.3.2).
pub(crate) fn router_advertisement(
    out: &mut [u8],
    destination: Option<Ipv6Addr>,
    prefix: Ipv6Addr,
    link: &Link,
) -> usize {
    let mut w = Writer { out, at: 40 };
    // Current hop limit 64, no flags, the longest router lifetime, reachable and retransmission
    // times unspecified.
    w.put(&[ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Prefix Information: /64, A without L, infinite lifetimes.
    w.put(&[3, 4, 64, 0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    w.put(&prefix.octets());
    let [high, low] = link.mtu.to_be_bytes();
    w.put(&[5, 1, 0, 0, 0, 0, high, low]);
    if !link.dns.is_empty() {
        // Recursive DNS Server (RFC 8106 5.1), infinite lifetime.
        w.put(&[25, 1 + 2 * link.dns.len() as u8, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        for server in &link.dns {
            w.put(&server.octets());
        }
    }
    w.finish(destination.unwrap_or(ALL_NODES))
}

/// Writes the answer to a Neighbor Solicitation for [`ROUTER`], with the router flag.
pub(crate) fn neighbor_advertisement(out: &mut [u8], destination: Ipv6Addr, solicited: bool) -> usize {
    let mut w = Writer { out, at: 40 };
    let flags = 0x80 | if solicited { 0x40 } else { 0 } | 0x20;
    w.put(&[NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
    w.put(&ROUTER.octets());
    w.finish(destination)
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, octets: &[u8]) {
        self.out[self.at..self.at + octets.len()].copy_from_slice(octets);
        self.at += octets.len();
    }

    /// Writes the IPv6 header and the checksum. Returns the length of the packet.
    fn finish(self, destination: Ipv6Addr) -> usize {
        let (header, message) = self.out[..self.at].split_at_mut(40);
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, message.len() as u8, ICMPV6, 255]);
        header[8..24].copy_from_slice(&ROUTER.octets());
        header[24..].copy_from_slice(&destination.octets());
        let sum = checksum(ROUTER, destination, message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.at
    }
}

/// Returns the ICMPv6 checksum over a message whose checksum field is 0. Over a message with a
/// valid checksum the result is 0 (RFC 4443 2.3).
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let words = |octets: &[u8]| -> u32 {
        octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum()
    };
    let mut sum = words(&source.octets()) + words(&destination.octets());
    sum += message.len() as u32 + u32::from(ICMPV6) + words(message);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Router Solicitation of fe80::5 with an independently computed checksum.
    const SOLICITATION: [u8; 48] = [
        0x60, 0, 0, 0, 0, 8, 58, 255, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0xff, 2, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 2, 133, 0, 0x7d, 0x32, 0, 0, 0, 0,
    ];

    #[test]
    fn solicitation_is_parsed_and_checked() {
        let reply_to = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5);
        assert_eq!(solicitation(&SOLICITATION), Some(Solicitation::Router { reply_to }));
        for at in [7, 40, 41, 42, 47] {
            let mut bad = SOLICITATION;
            bad[at] ^= 1;
            assert_eq!(solicitation(&bad), None, "octet {at}");
        }
        for end in 0..SOLICITATION.len() {
            assert_eq!(solicitation(&SOLICITATION[..end]), None);
        }
    }

    #[test]
    fn advertisements_have_valid_checksum_and_length() {
        let mut out = [0; MAX_MESSAGE_OCTETS];
        let dns: Vec<IpAddr> = (1..9).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into()).collect();
        let link = Link::new(1400, &dns);
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 7, 0, 0, 0, 0);
        let length = router_advertisement(&mut out, None, prefix, &link);
        assert_eq!(length, MAX_MESSAGE_OCTETS);
        assert_eq!(checksum(ROUTER, ALL_NODES, &out[40..length]), 0);
        assert_eq!(usize::from(out[5]), length - 40);
        let length = neighbor_advertisement(&mut out, ALL_NODES, false);
        assert_eq!((length, checksum(ROUTER, ALL_NODES, &out[40..length])), (64, 0));
    }

    #[test]
    fn neighbor_solicitation_is_for_router_only() {
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5);
        let ask = |target: Ipv6Addr| {
            let mut packet = SOLICITATION[..40].to_vec();
            packet[5] = 24;
            packet.extend([135, 0, 0, 0, 0, 0, 0, 0]);
            packet.extend(target.octets());
            let destination = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
            let sum = checksum(source, destination, &packet[40..]);
            packet[42..44].copy_from_slice(&sum.to_be_bytes());
            solicitation(&packet)
        };
        assert_eq!(ask(ROUTER), Some(Solicitation::Neighbor { reply_to: source, solicited: true }));
        assert_eq!(ask(source), None);
    }

    #[test]
    fn link_scope_is_fe80_ff02_and_the_unspecified() {
        let link = |text: &str| is_link_scope(text.parse::<Ipv6Addr>().expect("an address").to_bits());
        assert!(link("fe80::1") && link("febf::1") && link("::") && link("ff02::2"));
        assert!(!link("fec0::1") && !link("2001:db8::1") && !link("::1") && !link("ff05::2"));
    }
}
