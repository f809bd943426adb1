//! G-PDUs from unknown addresses, held for a short time.
//!
//! After an Xn handover the target RAN node sends uplink packets before the path switch names its
//! address on N4. They are held until then, and dropped if that does not happen. A packet is held
//! only if it names a tunnel and its inner source is the tunnel's UE. An attacker must know both,
//! and exhausts the limit of that tunnel only.

use crate::engine::datagram::Datagram;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use vireo_types::{Duration, Instant, Teid};

/// Hold time: the path switch takes milliseconds, its retransmission on N2 or N4 up to a second.
const HOLD_TIME: Duration = Duration::from_secs(1);
/// Maximum held octets in total. [`TUNNEL_OCTETS`] is the maximum of one tunnel.
const OCTETS: usize = 8 << 20;
const TUNNEL_OCTETS: usize = 1 << 20;
/// Octets that each packet counts in addition to its length.
const OVERHEAD: usize = 128;

/// A datagram that was received at one of our N3 addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldDatagram {
    from: SocketAddr,
    local: IpAddr,
    datagram: Box<[u8]>,
    teid: Teid,
    since: Instant,
}

impl HeldDatagram {
    /// Returns the datagram as it was received.
    pub(crate) fn received(&self) -> Datagram<'_> {
        Datagram { from: self.from, local: self.local, octets: &self.datagram }
    }

    /// Returns the time of arrival.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    fn octets(&self) -> usize {
        self.datagram.len() + OVERHEAD
    }
}

/// Held datagrams by source address.
#[derive(Debug, Default)]
pub(crate) struct HeldDatagrams {
    sources: HashMap<IpAddr, Vec<HeldDatagram>>,
    tunnels: HashMap<Teid, usize>,
    octets: usize,
}

impl HeldDatagrams {
    pub(crate) fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// Returns the number of held datagrams.
    #[cfg(test)]
    pub(crate) fn packets(&self) -> usize {
        self.sources.values().map(Vec::len).sum()
    }

    /// Holds a datagram for a tunnel. Returns false if a limit is reached.
    pub(crate) fn hold(&mut self, teid: Teid, datagram: Datagram<'_>, now: Instant) -> bool {
        let Datagram { from, local, octets: contents } = datagram;
        let octets = contents.len() + OVERHEAD;
        let of_tunnel = self.tunnels.get(&teid).copied().unwrap_or(0);
        if self.octets + octets > OCTETS || of_tunnel + octets > TUNNEL_OCTETS {
            return false;
        }
        let held = HeldDatagram { from, local, datagram: contents.into(), teid, since: now };
        self.sources.entry(from.ip()).or_default().push(held);
        self.tunnels.insert(teid, of_tunnel + octets);
        self.octets += octets;
        true
    }

    /// Takes the datagrams from an address in arrival order.
    pub(crate) fn take(&mut self, from: IpAddr) -> Vec<HeldDatagram> {
        let taken = self.sources.remove(&from).unwrap_or_default();
        self.release(&taken);
        taken
    }

    /// Removes datagrams that were held too long. Returns their source addresses and numbers.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        let mut gone = vec![];
        let mut expired = vec![];
        for (from, held) in &mut self.sources {
            let old = held.iter().take_while(|datagram| now.since(datagram.since) >= HOLD_TIME).count();
            if old > 0 {
                gone.push((*from, old as u64));
                expired.extend(held.drain(..old));
            }
        }
        self.release(&expired);
        self.sources.retain(|_, held| !held.is_empty());
        gone
    }

    fn release(&mut self, taken: &[HeldDatagram]) {
        for datagram in taken {
            self.octets -= datagram.octets();
            if let Some(octets) = self.tunnels.get_mut(&datagram.teid) {
                *octets -= datagram.octets();
                if *octets == 0 {
                    self.tunnels.remove(&datagram.teid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn from(n: u8, octets: &[u8]) -> Datagram<'_> {
        Datagram { from: SocketAddr::new(source(n), 2152), local: IpAddr::from([192, 0, 2, 1]), octets }
    }

    #[test]
    fn datagrams_come_back_in_order_or_expire() {
        let mut held = HeldDatagrams::default();
        let at = |ms: u64| Instant(1_000_000) + Duration::from_millis(ms);
        assert!(held.hold(Teid(1), from(7, b"a"), at(0)) && held.hold(Teid(1), from(8, b"b"), at(0)));
        assert!(held.hold(Teid(2), from(7, b"c"), at(600)));
        assert_eq!(held.expire(at(999)), []);
        let taken = held.take(source(7));
        assert_eq!(taken.iter().map(|held| &held.datagram[..]).collect::<Vec<_>>(), [b"a", b"c"]);
        assert_eq!(held.take(source(7)), []);
        assert_eq!(held.expire(at(1_000)), [(source(8), 1)]);
        assert!(held.is_empty() && held.tunnels.is_empty() && held.sources.is_empty());
    }

    #[test]
    fn flood_fills_room_of_its_tunnel_only() {
        let mut held = HeldDatagrams::default();
        let (packet, now) = ([7; 1_400], Instant(1));
        let flood = (0..2_000).filter(|_| held.hold(Teid(1), from(7, &packet), now)).count();
        assert_eq!(flood, TUNNEL_OCTETS / (1_400 + OVERHEAD));
        assert!(held.hold(Teid(2), from(7, &packet), now));
        let all = (3..100).flat_map(|teid| std::iter::repeat_n(teid, 1_000));
        let refused = all.filter(|teid| !held.hold(Teid(*teid), from(9, &packet), now)).count();
        assert!(refused > 0);
        assert!(held.octets <= OCTETS && held.octets > OCTETS - 2_000);
    }
}
