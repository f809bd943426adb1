//! Mapping between peers and their virtual ports in the library.
//!
//! In usrsctp, all peers of an endpoint have one address, and each has a *virtual* port: a keyed
//! hash of its real address and port. This has three effects:
//!
//! - INITs of any number of forged peers need bounded memory. If a peer was removed in the
//!   meantime, its returning state cookie yields the same hash.
//! - The library's tables are filled evenly, even if all peers use one port.
//! - The library scans its list of local addresses for each packet; the list has one entry per
//!   endpoint.
//!
//! A peer with several addresses has one virtual port: that of the address it associated from.
//! Packets from its other addresses are recognised by the verification tag of this side. Answers go
//! to the first address.

use crate::assocs::FastMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

/// A peer as it appears on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// IP address and UDP port (0 over raw IP).
    pub(super) address: SocketAddr,
    /// SCTP port of the peer.
    pub(super) port: u16,
    /// Number of the local address that communicates with the peer.
    pub(super) local: u8,
}

impl Peer {
    /// Returns the address of the peer for the owner of the endpoint: IP address and SCTP port.
    pub(super) fn name(&self) -> SocketAddr {
        SocketAddr::new(self.address.ip(), self.port)
    }
}

/// The peers of one endpoint: those with associations, and those of current packets.
#[derive(Debug, Default)]
pub(super) struct Peers {
    key: RandomState,
    by_port: FastMap<u32, Entry>,
    /// Virtual port by the verification tag that a peer with an association must use.
    by_tag: FastMap<u32, u16>,
    /// Virtual ports of peers that had no association when they were added, oldest first.
    passing: VecDeque<u16>,
    /// Number of peers with an open probe.
    probed: usize,
}

/// Maximum number of remembered peers without an association.
///
/// Remembering them prevents that two peers with simultaneous handshakes get the same port. Beyond
/// the limit the hash alone decides, which is correct unless two hashes collide.
const PASSING: usize = 8192;

#[derive(Debug)]
struct Entry {
    peer: Peer,
    associations: u32,
    /// Verification tag that the peer must use, if it has or sets up an association; else 0.
    tag: u32,
    /// True if the port is in `passing`.
    passing: bool,
    /// State of an open probe.
    probe: Option<Box<Probe>>,
}

/// Maximum number of remembered heartbeats of a probe.
const HEARTBEATS: usize = 8;

/// The heartbeats sent to a peer on demand.
#[derive(Debug, Default)]
struct Probe {
    /// Keyed hashes of their contents, which only a receiver of the heartbeats can return.
    sent: VecDeque<u64>,
    answered: bool,
}

impl Peers {
    /// Returns the virtual port of a peer, which stays valid at least until
    /// [`Peers::forget_passing`].
    ///
    /// Returns `None` if other peers use all ports that the peer may have. The caller then drops
    /// the packet.
    pub(super) fn enter(&mut self, peer: Peer) -> Option<u16> {
        let hash = self.key.hash_one(peer);
        let candidates = [hash, hash >> 16, hash >> 32, hash >> 48].map(|bits| bits as u16);
        let of = |port: &u16| self.by_port.get(&u32::from(*port)).map(|entry| entry.peer);
        if let Some(known) = candidates.iter().find(|port| of(port) == Some(peer)) {
            return Some(*known);
        }
        let free = *candidates.iter().find(|port| **port != 0 && of(port).is_none())?;
        self.by_port.insert(free.into(), Entry { peer, associations: 0, tag: 0, passing: true, probe: None });
        self.passing.push_back(free);
        Some(free)
    }

    /// Returns the virtual port for a packet with verification tag `tag` from `peer`.
    ///
    /// It is that of the peer itself, or that of the peer which has this address as a further one.
    pub(super) fn enter_by_tag(&mut self, peer: Peer, tag: u32) -> Option<u16> {
        let port = self.enter(peer)?;
        let known = self.by_port.get(&u32::from(port)).is_some_and(|entry| entry.associations > 0);
        if known || tag == 0 {
            return Some(port);
        }
        let first =
            self.by_tag.get(&tag).filter(|first| self.get(**first).is_some_and(|known| known.port == peer.port));
        Some(first.copied().unwrap_or(port))
    }

    /// Stores the verification tag of an association that is being set up.
    ///
    /// The tag comes from the peer's COOKIE ECHO, or from an INIT of this side. It is valid from
    /// the next [`Peers::came_up`] on.
    pub(super) fn propose_tag(&mut self, port: u16, tag: u32) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            entry.tag = tag;
        }
    }

    /// Handles the start or restart of an association: the last proposed tag becomes valid.
    pub(super) fn came_up(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get(&u32::from(port)).filter(|entry| entry.tag != 0) {
            self.by_tag.insert(entry.tag, port);
        }
    }

    /// Starts a probe: subsequent heartbeats to the peer are remembered.
    pub(super) fn probe(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            self.probed += usize::from(entry.probe.is_none());
            entry.probe.get_or_insert_default();
        }
    }

    /// Returns true if the peer has an open probe.
    pub(super) fn is_probed(&self, port: u16) -> bool {
        self.probed > 0 && self.by_port.get(&u32::from(port)).is_some_and(|entry| entry.probe.is_some())
    }

    /// Remembers a heartbeat that is sent to a peer with an open probe.
    pub(super) fn on_heartbeat_sent(&mut self, port: u16, heartbeat: &[u8]) {
        let hash = self.key.hash_one(heartbeat);
        let entry = self.by_port.get_mut(&u32::from(port));
        if let Some(probe) = entry.and_then(|entry| entry.probe.as_mut()) {
            if probe.sent.len() == HEARTBEATS {
                probe.sent.pop_front();
            }
            probe.sent.push_back(hash);
        }
    }

    /// Handles an answer to a heartbeat. It counts only with the correct verification tag and
    /// contents.
    pub(super) fn on_heartbeat_ack(&mut self, port: u16, tag: u32, answer: &[u8]) {
        let hash = self.key.hash_one(answer);
        let entry = self.by_port.get_mut(&u32::from(port)).filter(|entry| entry.tag == tag);
        if let Some(probe) = entry.and_then(|entry| entry.probe.as_mut()) {
            probe.answered |= probe.sent.contains(&hash);
        }
    }

    /// Returns true once after a peer has answered a probe.
    pub(super) fn take_answer(&mut self, port: u16) -> bool {
        let entry = self.by_port.get_mut(&u32::from(port));
        let answered = entry.is_some_and(|entry| entry.probe.take_if(|probe| probe.answered).is_some());
        self.probed -= usize::from(answered);
        answered
    }

    /// Returns the peer of a virtual port.
    pub(super) fn get(&self, port: u16) -> Option<&Peer> {
        self.by_port.get(&u32::from(port)).map(|entry| &entry.peer)
    }

    /// Keeps a peer while an association needs it.
    pub(super) fn pin(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            entry.associations += 1;
        }
    }

    /// Reverts one [`Peers::pin`].
    pub(super) fn unpin(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            entry.associations = entry.associations.saturating_sub(1);
            if !entry.passing {
                entry.passing = true;
                self.passing.push_back(port);
            }
            if entry.associations == 0 {
                self.probed -= usize::from(entry.probe.take().is_some());
                self.by_tag.retain(|_, of| *of != port);
            }
        }
    }

    /// Removes the oldest peers without an association, beyond `PASSING`.
    ///
    /// It is called after the answers to their packets have been sent.
    pub(super) fn forget_passing(&mut self) {
        while self.passing.len() > PASSING {
            let Some(port) = self.passing.pop_front() else { return };
            match self.by_port.get_mut(&u32::from(port)) {
                Some(entry) if entry.associations > 0 => entry.passing = false,
                _ => drop(self.by_port.remove(&u32::from(port))),
            }
        }
    }
}

/// Returns true if packets from or to this address may be answered (RFC 9260 8.4, first rule).
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
    fn peer_flood_is_bounded() {
        let mut peers = Peers::default();
        let kept = peers.enter(peer(0)).expect("a port");
        peers.pin(kept);
        let flood = |peers: &mut Peers, kept: u16| {
            for n in 1..200_000 {
                assert_ne!(peers.enter(peer(n)), Some(kept));
                if n % 32 == 0 {
                    peers.forget_passing();
                    assert!(peers.by_port.len() <= PASSING + 1 && peers.passing.len() <= PASSING);
                }
            }
        };
        flood(&mut peers, kept);
        assert_eq!((peers.get(kept).copied(), peers.enter(peer(0))), (Some(peer(0)), Some(kept)));
        peers.unpin(kept);
        peers.forget_passing();
        assert_eq!(peers.get(kept), Some(&peer(0)), "its last packets still need it");
        for n in 200_000..220_000 {
            peers.enter(peer(n));
            peers.forget_passing();
        }
        assert_ne!(peers.get(kept), Some(&peer(0)));
    }

    #[test]
    fn concurrent_handshakes_keep_ports() {
        let mut peers = Peers::default();
        let inits: Vec<_> = (0..4000).filter_map(|n| Some((n, peers.enter(peer(n))?))).collect();
        // In one run of a hundred, all four possible ports of one of them are in use.
        assert!(inits.len() >= 3998, "{} have a port", inits.len());
        peers.forget_passing();
        for (n, port) in &inits {
            assert_eq!(peers.enter(peer(*n)), Some(*port), "COOKIE ECHO");
            peers.pin(*port);
            peers.forget_passing();
        }
    }

    #[test]
    fn further_address_is_known_by_tag() {
        let mut peers = Peers::default();
        let (first, further) = (peer(1), peer(2));
        let port = peers.enter(first).expect("a port");
        peers.propose_tag(port, 77);
        assert_ne!(peers.enter_by_tag(further, 77), Some(port), "not before it is up");
        peers.pin(port);
        peers.came_up(port);
        assert_eq!(peers.enter_by_tag(further, 77), Some(port));
        assert_ne!(peers.enter_by_tag(further, 78), Some(port));
        assert_ne!(
            peers.enter_by_tag(Peer { port: 1, ..further }, 77),
            Some(port),
            "another SCTP port is another peer"
        );
        peers.unpin(port);
        assert_ne!(peers.enter_by_tag(further, 77), Some(port), "not after it is gone");
        assert!(peers.by_tag.is_empty());
    }

    #[test]
    fn only_sent_heartbeat_is_acknowledged() {
        let mut peers = Peers::default();
        let port = peers.enter(peer(1)).expect("a port");
        peers.propose_tag(port, 77);
        peers.pin(port);
        peers.on_heartbeat_sent(port, b"nobody asked");
        peers.probe(port);
        assert!(peers.is_probed(port) && !peers.is_probed(port ^ 1));
        peers.on_heartbeat_sent(port, b"first");
        peers.on_heartbeat_sent(port, b"second");
        for (tag, answer) in [(77, &b"third"[..]), (78, b"first"), (77, b"nobody asked"), (77, b"")] {
            peers.on_heartbeat_ack(port, tag, answer);
            assert!(!peers.take_answer(port), "{answer:?}");
        }
        peers.on_heartbeat_ack(port, 77, b"first");
        assert!(peers.take_answer(port) && !peers.take_answer(port) && !peers.is_probed(port));
        peers.probe(port);
        peers.unpin(port);
        assert_eq!(peers.probed, 0);
    }

    #[test]
    fn many_associations_keep_ports() {
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
        for port in ports.iter().step_by(2) {
            port.inspect(|port| peers.unpin(*port));
        }
        peers.forget_passing();
        for (n, port) in ports.iter().enumerate().skip(1).step_by(2).filter(|(_, port)| port.is_some()) {
            assert_eq!(peers.enter(peer(n as u32)), *port, "a port that got free must not move another peer");
        }
    }
}
