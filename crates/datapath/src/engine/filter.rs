//! Filters on user packets (TS 29.244 8.2.5), in compiled form.
//!
//! Addresses and ports are those of the *remote* host and of the *local* UE, so one filter serves
//! both directions.

use crate::engine::inner::Inner;
use crate::network::Network;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Conditions on a packet. A field that is `None` or empty matches any packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Protocol number (IPv4) or next header after extension headers (IPv6).
    pub protocol: Option<u8>,
    /// Network of the host in the data network.
    pub remote: Option<Network>,
    /// Allowed ports of the remote host.
    pub remote_ports: Vec<RangeInclusive<u16>>,
    /// Network of the UE.
    pub local: Option<Network>,
    /// Allowed ports of the UE.
    pub local_ports: Vec<RangeInclusive<u16>>,
    /// Type of service or traffic class: value and mask.
    pub traffic_class: Option<(u8, u8)>,
    /// Security Parameter Index of ESP.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const DESTINATION: u8 = 60;
/// Maximum number of extension headers that are skipped to find the ports.
const EXTENSIONS: usize = 6;

/// Packet fields that filters compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    flow_label: Option<u32>,
    /// First four octets above IP. `None` in all fragments but the first.
    start: Option<[u8; 4]>,
}

impl Flow {
    #[inline]
    pub(crate) fn read(inner: &Inner<'_>) -> Self {
        match *inner {
            Inner::V4 { source, destination, packet } => {
                let first = packet[6] & 0x1f == 0 && packet[7] == 0;
                let start = packet.get(usize::from(packet[0] & 0xf) * 4..).filter(|_| first);
                Flow {
                    protocol: packet[9],
                    source: IpAddr::V4(source.into()),
                    destination: IpAddr::V4(destination.into()),
                    traffic_class: packet[1],
                    flow_label: None,
                    start: start.and_then(|start| start.first_chunk().copied()),
                }
            }
            Inner::V6 { source, destination, packet } => {
                let (protocol, start) = above_ipv6(packet);
                let word = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
                Flow {
                    protocol,
                    source: IpAddr::V6(source.into()),
                    destination: IpAddr::V6(destination.into()),
                    traffic_class: (word >> 20) as u8,
                    flow_label: Some(word & 0x000f_ffff),
                    start,
                }
            }
        }
    }

    fn ports(&self) -> Option<(u16, u16)> {
        const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
        let [a, b, c, d] = self.start.filter(|_| WITH_PORTS.contains(&self.protocol))?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }
}

/// Returns the protocol after the extension headers of an IPv6 packet, and its first four octets.
fn above_ipv6(packet: &[u8]) -> (u8, Option<[u8; 4]>) {
    let (mut protocol, mut rest) = (packet[6], packet.get(40..).unwrap_or_default());
    for _ in 0..EXTENSIONS {
        let octets = match (protocol, rest.first_chunk::<4>()) {
            (HOP_BY_HOP | ROUTING | DESTINATION, Some(head)) => 8 + usize::from(head[1]) * 8,
            (FRAGMENT, Some(head)) if u16::from_be_bytes([head[2], head[3]]) >> 3 == 0 => 8,
            (FRAGMENT, Some(head)) => return (head[0], None),
            (_, start) => return (protocol, start.copied()),
        };
        protocol = rest[0];
        rest = rest.get(octets..).unwrap_or_default();
    }
    (protocol, None)
}

fn any_of(ports: &[RangeInclusive<u16>], port: Option<u16>) -> bool {
    ports.is_empty() || port.is_some_and(|port| ports.iter().any(|range| range.contains(&port)))
}

impl Filter {
    /// Returns true if the filter matches a packet to the data network (`uplink`) or to the UE.
    pub(crate) fn matches(&self, flow: &Flow, uplink: bool) -> bool {
        let ports = flow.ports();
        let (source, destination) = (ports.map(|(source, _)| source), ports.map(|(_, destination)| destination));
        let ((remote, remote_port), (local, local_port)) = match uplink {
            true => ((flow.destination, destination), (flow.source, source)),
            false => ((flow.source, source), (flow.destination, destination)),
        };
        let spi = || flow.start.filter(|_| flow.protocol == ESP).map(u32::from_be_bytes);
        self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && self.remote.is_none_or(|network| network.contains(remote))
            && self.local.is_none_or(|network| network.contains(local))
            && any_of(&self.remote_ports, remote_port)
            && any_of(&self.local_ports, local_port)
            && self.traffic_class.is_none_or(|(value, mask)| (flow.traffic_class ^ value) & mask == 0)
            && self.spi.is_none_or(|wanted| spi() == Some(wanted))
            && self.flow_label.is_none_or(|label| flow.flow_label == Some(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, length: u8) -> Option<Network> {
        Some(Network { address: text.parse().expect("an address"), length })
    }

    fn flow(packet: &[u8]) -> Flow {
        let mut packet = packet.to_vec();
        if packet[0] >> 4 == 4 {
            crate::engine::frame_layout::complete_header(&mut packet);
        }
        Flow::read(&Inner::read(&packet).expect("sound"))
    }

    /// UDP from 10.45.0.2 port 4000 to 198.51.100.7 port 53.
    fn udp() -> Vec<u8> {
        let mut packet = vec![0x45, 0x28, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 45, 0, 2, 198, 51, 100, 7];
        packet.extend([0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn one_filter_serves_both_directions() {
        let dns = Filter {
            protocol: Some(17),
            remote: network("198.51.100.0", 24),
            remote_ports: vec![53..=53],
            ..Filter::default()
        };
        let up = udp();
        let mut down = up.clone();
        down[12..16].copy_from_slice(&up[16..20]);
        down[16..20].copy_from_slice(&up[12..16]);
        down[20..24].copy_from_slice(&[0, 53, 0x0f, 0xa0]);
        assert!(dns.matches(&flow(&up), true) && dns.matches(&flow(&down), false));
        assert!(!dns.matches(&flow(&up), false) && !dns.matches(&flow(&down), true));
    }

    #[test]
    fn every_part_of_a_filter_counts() {
        let up = flow(&udp());
        let no = |filter: Filter| assert!(!filter.matches(&up, true), "{filter:?}");
        let yes = |filter: Filter| assert!(filter.matches(&up, true), "{filter:?}");
        yes(Filter::default());
        no(Filter { protocol: Some(6), ..Filter::default() });
        no(Filter { remote: network("198.51.101.0", 24), ..Filter::default() });
        no(Filter { remote: network("2001:db8::", 0), ..Filter::default() });
        yes(Filter { local: network("10.45.0.2", 32), ..Filter::default() });
        no(Filter { local: network("10.45.0.3", 32), ..Filter::default() });
        yes(Filter { local_ports: vec![1..=9, 4000..=4001], ..Filter::default() });
        no(Filter { local_ports: vec![4001..=5000], ..Filter::default() });
        yes(Filter { traffic_class: Some((0x28, 0xfc)), ..Filter::default() });
        no(Filter { traffic_class: Some((0x2c, 0xfc)), ..Filter::default() });
        no(Filter { spi: Some(0x0fa0_0035), ..Filter::default() });
        no(Filter { flow_label: Some(0), ..Filter::default() });
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut later = udp();
        later[7] = 1;
        let filter = Filter { remote_ports: vec![0..=65535], ..Filter::default() };
        assert!(filter.matches(&flow(&udp()), true) && !filter.matches(&flow(&later), true));
        assert!(Filter { protocol: Some(17), ..Filter::default() }.matches(&flow(&later), true));
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let mut packet = vec![0x61, 0x2a, 0xbc, 0xde, 0, 24, 0, 64];
        packet.extend([0x20; 16]);
        packet.extend([0x30; 16]);
        // A hop-by-hop header, then a first fragment.
        packet.extend([44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 9]);
        packet.extend([0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
        let filter = Filter {
            protocol: Some(17),
            remote_ports: vec![53..=53],
            traffic_class: Some((0x12, 0xff)),
            flow_label: Some(0xa_bcde),
            ..Filter::default()
        };
        assert!(filter.matches(&flow(&packet), true));
        packet[51] = 8;
        assert!(!filter.matches(&flow(&packet), true), "a later fragment");
        packet[6] = ESP;
        let esp = Filter { spi: Some(0x2c00_0000), ..Filter::default() };
        assert!(esp.matches(&flow(&packet), true));
        // Extension headers that exceed the packet.
        packet[6] = HOP_BY_HOP;
        packet[41] = 200;
        assert_eq!(flow(&packet).start, None);
    }
}
