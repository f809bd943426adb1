use smallvec::SmallVec;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// A parsed Flow Description.
///
/// It is an IPFilterRule (RFC 6733 4.3.1) in the restricted form of TS 29.212 5.4.2: `permit out
/// PROTOCOL from REMOTE [PORTS] to LOCAL [PORTS]`. The remote host is in the data network and the
/// local one is the UE, in both directions of a PDR (TS 29.244 5.2.1A.2A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowDescription {
    /// Protocol above IP; `None` = any ("ip").
    pub protocol: Option<u8>,
    /// The host in the data network.
    pub remote: FlowEnd,
    pub local: FlowEnd,
}

/// One end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowEnd {
    /// Network and prefix length; `None` = any address ("any"), or for the UE its own ("assigned").
    pub network: Option<(IpAddr, u8)>,
    /// Port ranges, any of which may match; empty matches all.
    pub ports: SmallVec<[(u16, u16); 1]>,
}

/// Maximum number of port ranges in one list.
const PORTS: usize = 16;

impl FlowDescription {
    /// Parses the text. Returns `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        if !words.next()?.eq_ignore_ascii_case("permit") {
            return None;
        }
        // "out" is towards the UE, so the source is remote; "in" is only tolerated
        let outward = match words.next()? {
            word if word.eq_ignore_ascii_case("out") => true,
            word if word.eq_ignore_ascii_case("in") => false,
            _ => return None,
        };
        let protocol = protocol(words.next()?)?;
        let rest: SmallVec<[&str; 8]> = words.collect();
        let to = rest.iter().position(|word| word.eq_ignore_ascii_case("to"))?;
        let (from, to) = rest.split_at(to);
        if !from.first()?.eq_ignore_ascii_case("from") {
            return None;
        }
        let (source, destination) = (end(&from[1..])?, end(&to[1..])?);
        let (remote, local) = if outward { (source, destination) } else { (destination, source) };
        Some(FlowDescription { protocol, remote, local })
    }

    /// Returns the port ranges of an end.
    pub fn ranges(end: &FlowEnd) -> Vec<RangeInclusive<u16>> {
        end.ports.iter().map(|(first, last)| *first..=*last).collect()
    }
}

fn protocol(word: &str) -> Option<Option<u8>> {
    match word {
        word if word.eq_ignore_ascii_case("ip") => Some(None),
        // the form has no protocol names, but some control planes send them
        word if word.eq_ignore_ascii_case("icmp") => Some(Some(1)),
        word if word.eq_ignore_ascii_case("tcp") => Some(Some(6)),
        word if word.eq_ignore_ascii_case("udp") => Some(Some(17)),
        number => number.parse().ok().map(Some),
    }
}

/// Parses an address and its ports. Further options are not part of the form.
fn end(words: &[&str]) -> Option<FlowEnd> {
    let (address, ports) = match *words {
        [address] => (address, ""),
        [address, ports] => (address, ports),
        _ => return None,
    };
    let network = match address {
        word if word.eq_ignore_ascii_case("any") || word.eq_ignore_ascii_case("assigned") => None,
        word => Some(network(word)?),
    };
    let mut end = FlowEnd { network, ports: SmallVec::new() };
    for range in ports.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || end.ports.len() >= PORTS {
            return None;
        }
        end.ports.push((first, last));
    }
    Some(end)
}

fn network(word: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match word.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (word, None),
    };
    // text behind the prefix is not part of it
    if let Ok(v4) = address.parse::<Ipv4Addr>() {
        let length = length.map_or(Some(32), |text| text.parse().ok().filter(|n| *n <= 32))?;
        return Some((IpAddr::V4(v4), length));
    }
    let v6 = address.parse::<Ipv6Addr>().ok()?;
    Some((IpAddr::V6(v6), length.map_or(Some(128), |text| text.parse().ok().filter(|n| *n <= 128))?))
}

/// Returns the network at the start of a Framed-Route (RFC 2865 5.22: `192.168.1.0/24 192.168.1.1
/// 1`) or a Framed-IPv6-Route (RFC 3162 2.5). A UPF ignores gateway and metrics. Returns `None` if
/// the text has another form.
pub fn framed_network(text: &str) -> Option<(IpAddr, u8)> {
    let word = text.split_ascii_whitespace().next()?;
    // RFC 2865: if the length is absent, the class of the address determines it
    match (word.contains('/'), word.parse::<Ipv4Addr>()) {
        (false, Ok(v4)) => {
            let length = match v4.octets()[0] {
                0..128 => 8,
                128..192 => 16,
                _ => 24,
            };
            Some((v4.into(), length))
        }
        _ => network(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FlowDescription {
        FlowDescription::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn flow_description_accepts_known_forms() {
        let everything = FlowDescription::default();
        for text in [
            "permit out ip from any to assigned",
            "permit out ip from any to any",
            "PERMIT OUT IP FROM ANY TO ASSIGNED",
        ] {
            assert_eq!(read(text), everything);
        }
        let dns = read("permit out 17 from 198.51.100.0/24 53,5353-5400 to assigned 1024-65535");
        assert_eq!((dns.protocol, dns.remote.network), (Some(17), Some(([198, 51, 100, 0].into(), 24))));
        assert_eq!(
            (&dns.remote.ports[..], &dns.local.ports[..]),
            (&[(53, 53), (5353, 5400)][..], &[(1024, 65535)][..])
        );
        assert_eq!(read("permit out 58 from ff02::2/128 to assigned").remote.network.map(|(_, n)| n), Some(128));
        assert_eq!(read("permit in udp from 10.45.0.2 to any 53").remote.ports[..], [(53, 53)]);
        assert_eq!(
            read("permit out tcp from 2001:db8::1 to 10.45.0.2").local.network,
            Some(([10, 45, 0, 2].into(), 32))
        );
    }

    #[test]
    fn other_forms_are_none() {
        for text in [
            "",
            "permit",
            "deny out ip from any to any",
            "permit out ip from any",
            "permit out ip from any to",
            "permit out ip from to any",
            "permit out 256 from any to any",
            "permit out ip from 10.0.0.0/33 to any",
            "permit out ip from any 9-2 to any",
            "permit out ip from any 70000 to any",
            "permit out ip from any to any established",
            "permit out ip from any 1 2 to any",
            "permit out ip from !10.0.0.1 to any",
            "permit out ip from any 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 to any",
        ] {
            assert_eq!(FlowDescription::parse(text), None, "{text}");
        }
    }

    #[test]
    fn framed_routes_are_read_to_their_network() {
        assert_eq!(framed_network("192.168.9.0/24 10.45.0.2 1"), Some(([192, 168, 9, 0].into(), 24)));
        assert_eq!(framed_network("10.9.0.0"), Some(([10, 9, 0, 0].into(), 8)));
        assert_eq!(framed_network("192.168.9.0"), Some(([192, 168, 9, 0].into(), 24)));
        assert_eq!(framed_network("2001:db8:9::/48 :: 1").map(|(_, n)| n), Some(48));
        for text in ["", "x", "192.168.9.0/40", "2001:db8::/200"] {
            assert_eq!(framed_network(text), None, "{text}");
        }
    }
}
