//! Who stands behind a port number inside the library.
//!
//! usrsctp is told that all peers of an endpoint have one address, and that each has a *virtual* port: a keyed hash
//! of its real address and port. So INITs of any number of forged peers take no memory (the state cookie comes back
//! with the same hash), the library's tables are evenly filled even if all peers use one port, and its list of local
//! addresses, which it walks for each packet, has one entry an endpoint.

use crate::assocs::FastMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

/// One peer, as the wire knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// IP address and UDP port (0 over raw IP).
    pub(super) address: SocketAddr,
    /// SCTP port.
    pub(super) port: u16,
    /// Which local address it speaks with.
    pub(super) local: u8,
}

impl Peer {
    /// What the owner of the endpoint calls its address: IP address and SCTP port.
    pub(super) fn name(&self) -> SocketAddr {
        SocketAddr::new(self.address.ip(), self.port)
    }
}

/// The peers of one endpoint: those with associations, and those of the packets under way.
#[derive(Debug, Default)]
pub(super) struct Peers {
    key: RandomState,
    by_port: FastMap<u32, Entry>,
    /// Virtual ports whose peers had no association when they were last looked at.
    passing: Vec<u16>,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    associations: u32,
}

impl Peers {
    /// The virtual port of a peer, which stays known at least until [`Peers::forget_passing`]. `None` if all it may
    /// have are taken by others; its packet is then as good as lost.
    pub(super) fn enter(&mut self, peer: Peer) -> Option<u16> {
        let hash = self.key.hash_one(peer);
        let candidates = [hash, hash >> 16, hash >> 32, hash >> 48].map(|bits| bits as u16);
        let of = |port: &u16| self.by_port.get(&u32::from(*port)).map(|entry| entry.peer);
        if let Some(known) = candidates.iter().find(|port| of(port) == Some(peer)) {
            return Some(*known);
        }
        let free = *candidates.iter().find(|port| **port != 0 && of(port).is_none())?;
        self.by_port.insert(free.into(), Entry { peer, associations: 0 });
        self.passing.push(free);
        Some(free)
    }

    /// The peer behind a virtual port.
    pub(super) fn get(&self, port: u16) -> Option<&Peer> {
        self.by_port.get(&u32::from(port)).map(|entry| &entry.peer)
    }

    /// Keeps a peer as long as an association needs it.
    pub(super) fn pin(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            entry.associations += 1;
        }
    }

    /// The counterpart of [`Peers::pin`].
    pub(super) fn unpin(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            entry.associations = entry.associations.saturating_sub(1);
            self.passing.push(port);
        }
    }

    /// Forgets the peers that have no association: called when the answers to their packets are on their way.
    pub(super) fn forget_passing(&mut self) {
        for port in self.passing.drain(..) {
            if self.by_port.get(&u32::from(port)).is_some_and(|entry| entry.associations == 0) {
                self.by_port.remove(&u32::from(port));
            }
        }
    }
}

/// Whether packets from or to there deserve an answer at all (RFC 9260 8.4, first rule).
pub(super) fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn peer(n: u32) -> Peer {
        let address = SocketAddr::from((Ipv6Addr::from((0x2001_0db8_u128 << 96) | u128::from(n)), 0));
        Peer { address, port: 38412, local: 0 }
    }

    #[test]
    fn a_flood_of_peers_leaves_nothing_behind_and_spares_those_with_associations() {
        let mut peers = Peers::default();
        let kept = peers.enter(peer(0)).expect("a port");
        peers.pin(kept);
        for n in 1..1_000_000 {
            assert_ne!(peers.enter(peer(n)), Some(kept));
            if n % 32 == 0 {
                peers.forget_passing();
                assert_eq!((peers.by_port.len(), peers.passing.len()), (1, 0));
            }
        }
        assert_eq!((peers.get(kept).copied(), peers.enter(peer(0))), (Some(peer(0)), Some(kept)));
        peers.unpin(kept);
        assert_eq!(peers.get(kept), Some(&peer(0)), "its last packets still need it");
        peers.forget_passing();
        assert_eq!(
            (peers.get(kept).copied(), peers.enter(peer(0))),
            (None, Some(kept)),
            "the state cookie needs the same port"
        );
    }

    #[test]
    fn many_associations_find_room_and_keep_their_ports() {
        let mut peers = Peers::default();
        let ports: Vec<_> = (0..16_384)
            .map(|n| {
                let port = peers.enter(peer(n));
                port.inspect(|port| peers.pin(*port));
                port
            })
            .collect();
        let refused = ports.iter().filter(|port| port.is_none()).count();
        assert!(refused <= 64, "{refused} of 16384 with a quarter of the ports taken");
        for (n, port) in ports.iter().enumerate().step_by(2) {
            port.inspect(|port| peers.unpin(*port));
            assert_eq!(peers.get(port.unwrap_or(0)).is_some(), port.is_some(), "{n}");
        }
        peers.forget_passing();
        for (n, port) in ports.iter().enumerate().skip(1).step_by(2).filter(|(_, port)| port.is_some()) {
            assert_eq!(peers.enter(peer(n as u32)), *port, "a port that got free must not move another peer");
        }
    }
}
