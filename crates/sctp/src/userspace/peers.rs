//! Who stands behind a port number inside the library.
//!
//! usrsctp is told that all peers of an endpoint have one address, and that each has a *virtual* port: a keyed hash
//! of its real address and port. So INITs of any number of forged peers take a bounded memory (the state cookie comes
//! back with the same hash, if it does not come while we still remember), the library's tables are evenly filled even if all peers use one port, and its list of local
//! addresses, which it walks for each packet, has one entry an endpoint.
//!
//! A peer with several addresses has one port: that of the address it associated from. What comes from the others is
//! known by the verification tag we gave it, and answers go to the first.

use crate::assocs::FastMap;
use std::collections::VecDeque;
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
    /// The verification tags that peers with an association must use, and their virtual ports.
    by_tag: FastMap<u32, u16>,
    /// Virtual ports whose peers had no association when they came, oldest first.
    passing: VecDeque<u16>,
    /// How many were asked for a sign of life.
    probed: usize,
}

/// Peers without an association that are remembered, so that two which shake hands at the same time do not take one
/// port. Beyond them the hash alone decides, which is right unless two hashes clash.
const PASSING: usize = 8192;

#[derive(Debug)]
struct Entry {
    peer: Peer,
    associations: u32,
    /// The verification tag it must use, if it has (or is about to have) an association; else 0.
    tag: u32,
    /// Whether its port is in `passing`.
    passing: bool,
    /// Of a peer that was asked for a sign of life.
    probe: Option<Box<Probe>>,
}

/// Heartbeats that a peer may answer.
const HEARTBEATS: usize = 8;

/// What is known of heartbeats that a peer was sent on demand.
#[derive(Debug, Default)]
struct Probe {
    /// Their contents, as keyed hashes: what nobody who has not received them gives back.
    sent: VecDeque<u64>,
    answered: bool,
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
        self.by_port.insert(free.into(), Entry { peer, associations: 0, tag: 0, passing: true, probe: None });
        self.passing.push_back(free);
        Some(free)
    }

    /// The virtual port for a packet with verification tag `tag` from `peer`: that of the peer itself, or that of the
    /// peer whose further address this is.
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

    /// Notes the tag an association that is being set up will have: what the peer's COOKIE ECHO, or our INIT, says.
    /// It counts from the next [`Peers::came_up`] on.
    pub(super) fn propose_tag(&mut self, port: u16, tag: u32) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            entry.tag = tag;
        }
    }

    /// An association with the peer came up, or restarted: its tag is what was proposed last.
    pub(super) fn came_up(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get(&u32::from(port)).filter(|entry| entry.tag != 0) {
            self.by_tag.insert(entry.tag, port);
        }
    }

    /// The heartbeats that leave for a peer from now on are remembered.
    pub(super) fn probe(&mut self, port: u16) {
        if let Some(entry) = self.by_port.get_mut(&u32::from(port)) {
            self.probed += usize::from(entry.probe.is_none());
            entry.probe.get_or_insert_default();
        }
    }

    /// Whether answers of a peer are looked for.
    pub(super) fn is_probed(&self, port: u16) -> bool {
        self.probed > 0 && self.by_port.get(&u32::from(port)).is_some_and(|entry| entry.probe.is_some())
    }

    /// A heartbeat leaves for a peer.
    pub(super) fn asked(&mut self, port: u16, heartbeat: &[u8]) {
        let hash = self.key.hash_one(heartbeat);
        let entry = self.by_port.get_mut(&u32::from(port));
        if let Some(probe) = entry.and_then(|entry| entry.probe.as_mut()) {
            if probe.sent.len() == HEARTBEATS {
                probe.sent.pop_front();
            }
            probe.sent.push_back(hash);
        }
    }

    /// An answer to a heartbeat has come with a verification tag, perhaps.
    pub(super) fn answered(&mut self, port: u16, tag: u32, answer: &[u8]) {
        let hash = self.key.hash_one(answer);
        let entry = self.by_port.get_mut(&u32::from(port)).filter(|entry| entry.tag == tag);
        if let Some(probe) = entry.and_then(|entry| entry.probe.as_mut()) {
            probe.answered |= probe.sent.contains(&hash);
        }
    }

    /// Whether a peer has answered, once.
    pub(super) fn take_answer(&mut self, port: u16) -> bool {
        let entry = self.by_port.get_mut(&u32::from(port));
        let answered = entry.is_some_and(|entry| entry.probe.take_if(|probe| probe.answered).is_some());
        self.probed -= usize::from(answered);
        answered
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

    /// Forgets the oldest peers that have no association, beyond those worth remembering. Called when the answers to
    /// their packets are on their way.
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
    fn a_flood_of_peers_is_bounded_and_spares_those_with_associations() {
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
    fn peers_that_shake_hands_at_the_same_time_keep_the_ports_of_their_cookies() {
        let mut peers = Peers::default();
        let inits: Vec<_> = (0..4000).filter_map(|n| Some((n, peers.enter(peer(n))?))).collect();
        // In one run of a hundred all four ports that one of them may have are taken.
        assert!(inits.len() >= 3998, "{} have a port", inits.len());
        peers.forget_passing();
        for (n, port) in &inits {
            assert_eq!(peers.enter(peer(*n)), Some(*port), "COOKIE ECHO");
            peers.pin(*port);
            peers.forget_passing();
        }
    }

    #[test]
    fn a_further_address_is_known_by_its_tag_while_the_association_lives() {
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
    fn only_the_heartbeat_that_was_sent_is_answered() {
        let mut peers = Peers::default();
        let port = peers.enter(peer(1)).expect("a port");
        peers.propose_tag(port, 77);
        peers.pin(port);
        peers.asked(port, b"nobody asked");
        peers.probe(port);
        assert!(peers.is_probed(port) && !peers.is_probed(port ^ 1));
        peers.asked(port, b"first");
        peers.asked(port, b"second");
        for (tag, answer) in [(77, &b"third"[..]), (78, b"first"), (77, b"nobody asked"), (77, b"")] {
            peers.answered(port, tag, answer);
            assert!(!peers.take_answer(port), "{answer:?}");
        }
        peers.answered(port, 77, b"first");
        assert!(peers.take_answer(port) && !peers.take_answer(port) && !peers.is_probed(port));
        peers.probe(port);
        peers.unpin(port);
        assert_eq!(peers.probed, 0);
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
        for port in ports.iter().step_by(2) {
            port.inspect(|port| peers.unpin(*port));
        }
        peers.forget_passing();
        for (n, port) in ports.iter().enumerate().skip(1).step_by(2).filter(|(_, port)| port.is_some()) {
            assert_eq!(peers.enter(peer(n as u32)), *port, "a port that got free must not move another peer");
        }
    }
}
