//! How the owner of the tables changes what is known of addresses, and what becomes of G-PDUs from unknown ones.

use super::held::HeldDatagram;
use super::table::{Bits, SourceEntry};
use super::{Access, Use};
use crate::entry::{ANY_PEER, NO_PEER, UplinkEntry};
use crate::filter::Network;
use crate::tables::{Released, Tables, keys};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;
use vireo_types::{Instant, SessionAddress, Teid};

/// Where the packets of a TEID must come from, with [`crate::Limits::own_peer_only`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerBinding {
    /// From this address.
    One(IpAddr),
    /// From any that is known: the session has tunnels to several.
    Known,
}

impl Tables {
    /// Goes by this configuration from now on.
    pub fn set_access(&mut self, access: Access) {
        let arrays = self.shared_arrays();
        self.known.configure(access, &arrays.checks);
    }

    /// These are the addresses of this machine, which no UE may send to.
    pub fn set_local_addresses(&mut self, addresses: &[Network]) {
        let arrays = self.shared_arrays();
        self.known.set_local(addresses, &arrays.checks);
    }

    /// An association with this peer has come or gone: no UE may send to its address, and from a RAN node's address G-PDUs
    /// are accepted.
    pub fn set_peer(&mut self, address: IpAddr, what: Use, there: bool) {
        if there {
            self.begin_use(address, what);
        } else {
            self.end_use(address, what);
        }
    }

    /// How many addresses of RAN nodes are known.
    pub fn known_nodes(&self) -> usize {
        self.known.nodes()
    }

    pub(crate) fn begin_use(&mut self, address: IpAddr, what: Use) {
        let arrays = self.shared_arrays();
        let new = self.known.begin(address, what, &arrays.checks);
        // with each session bound to its own peer, what a known address sends may be held too
        if new || arrays.checks.own_peer_only {
            self.joined.push(address);
        }
    }

    pub(crate) fn end_use(&mut self, address: IpAddr, what: Use) {
        let arrays = self.shared_arrays();
        self.known.end(address, what, &arrays.checks);
    }

    /// Tunnels lead to these addresses instead of those before.
    pub(crate) fn replace_tunnels(&mut self, before: &[IpAddr], now: &[IpAddr]) {
        now.iter().for_each(|address| self.begin_use(*address, Use::Tunnel));
        before.iter().for_each(|address| self.end_use(*address, Use::Tunnel));
    }

    /// Says where the packets of a TEID must come from, if that matters; `None`: from nowhere yet.
    pub fn bind_uplink(&mut self, teid: Teid, peer: Option<PeerBinding>) {
        let arrays = self.shared_arrays();
        if !arrays.checks.own_peer_only {
            return;
        }
        let Some(record) = self.find_uplink(teid) else { return };
        record.set_peer(match peer {
            None => NO_PEER,
            Some(PeerBinding::Known) => ANY_PEER,
            Some(PeerBinding::One(address)) => match arrays.checks.table.source(Bits::of(address)) {
                SourceEntry::Node(place) => place,
                // there was no room for it in the table: the tables decide
                SourceEntry::Prefix | SourceEntry::Unknown => NO_PEER,
            },
        });
        match peer {
            Some(peer) => drop(self.bound.insert(teid, peer)),
            None => drop(self.bound.remove(&teid)),
        }
        if let Some(PeerBinding::One(address)) = peer {
            self.joined.push(address);
        }
    }

    /// Whether packets of a tunnel may come from an address.
    pub(crate) fn accepts(&self, from: IpAddr, teid: Teid, record: &UplinkEntry) -> bool {
        let (checks, bits) = (&self.arrays().checks, Bits::of(from));
        if checks.table.is_in_ran(bits) {
            return true;
        }
        let is_known = || matches!(checks.table.source(bits), SourceEntry::Node(_));
        match (checks.own_peer_only, self.bound.get(&teid)) {
            (true, Some(PeerBinding::One(own))) => from == *own,
            (true, Some(PeerBinding::Known)) => is_known(),
            (true, None) => false,
            (false, _) => is_known() || self.is_peer_of(record.rule().ue, from),
        }
    }

    /// Whether the packets of a UE go to an address. One that is known may have found no room in the table.
    fn is_peer_of(&self, ue: SessionAddress, from: IpAddr) -> bool {
        let mut records = keys(ue).filter_map(|key| self.find_downlink(key)).map(|id| self.downlink(id));
        records.any(|record| record.tunnel().is_some_and(|tunnel| tunnel.address == from))
    }

    /// Holds a datagram for a tunnel until its sender is known; `false` if there is no room.
    pub(crate) fn hold(&self, peers: (SocketAddr, IpAddr), teid: Teid, datagram: &[u8], now: Instant) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.hold(peers, teid, datagram, now)
    }

    /// Ends a change: what was held of senders that are known now is decided on next.
    pub(crate) fn release_held(&mut self, released: &mut Released) {
        let joined: HashSet<IpAddr> = self.joined.drain(..).collect();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() {
            return;
        }
        let taken = joined.into_iter().map(|address| held.take(address));
        released.uplinks.extend(taken.flatten());
    }

    /// Drops what was held too long: gives the addresses that it came from, with how many packets. To be called about once
    /// a second.
    pub fn expire_held(&self, now: Instant) -> Vec<(IpAddr, u64)> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() { vec![] } else { held.expire(now) }
    }

    /// Forgets RAN nodes that were not used for long. To be called once a second.
    pub fn age_peers(&mut self) {
        let arrays = self.shared_arrays();
        self.known.age(&arrays.checks);
    }
}

#[cfg(test)]
impl Tables {
    /// The record of the UE of these addresses.
    pub(crate) fn find_downlink_of(&self, ue: SessionAddress) -> Option<crate::DownlinkId> {
        keys(ue).find_map(|key| self.find_downlink(key))
    }
}

impl Released {
    /// What was held and is decided on now.
    pub(crate) fn take_uplinks(&mut self) -> Vec<HeldDatagram> {
        std::mem::take(&mut self.uplinks)
    }
}
