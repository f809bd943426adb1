//! Access checks of the tables: known addresses, and handling of G-PDUs from unknown addresses.

use super::{Released, Tables};
use crate::engine::access::table::{Bits, SourceEntry};
use crate::engine::access::{Access, PeerBinding, Use};
use crate::engine::datagram::Datagram;
use crate::engine::entry::{ANY_PEER, NO_PEER, UplinkEntry};
use crate::engine::index::address_keys;
use crate::network::Network;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::PoisonError;
use vireo_types::{Instant, SessionAddress, Teid};

impl Tables {
    /// Replaces the access configuration.
    pub fn set_access(&mut self, access: Access) {
        let arrays = self.shared_arrays();
        self.access.known.configure(access, &arrays.checks);
    }

    /// Sets the addresses of this machine. No UE may send to them.
    pub fn set_local_addresses(&mut self, addresses: &[Network]) {
        let arrays = self.shared_arrays();
        self.access.known.set_local(addresses, &arrays.checks);
    }

    /// Notes that an association with this peer was set up or ended. No UE may send to the address
    /// of a peer. G-PDUs are accepted from the address of a RAN node.
    pub fn set_peer(&mut self, address: IpAddr, what: Use, there: bool) {
        if there {
            self.begin_use(address, what);
        } else {
            self.end_use(address, what);
        }
    }

    /// Returns true if a RAN node or another UPF may have the address: no UE and no service of UEs
    /// has it, and the configuration does not exclude it.
    pub fn may_be_tunnel_end(&self, address: IpAddr) -> bool {
        let is_dns_server = self.arrays().pools.iter().any(|pool| pool.dns.contains(&address));
        !self.is_in_pools(address) && !is_dns_server && self.access.known.may_be_tunnel_end(address)
    }

    /// Returns the number of known RAN node addresses.
    pub fn known_nodes(&self) -> usize {
        self.access.known.nodes()
    }

    pub(crate) fn begin_use(&mut self, address: IpAddr, what: Use) {
        let arrays = self.shared_arrays();
        let new = self.access.known.begin(address, what, &arrays.checks);
        // If each session is bound to its peer, packets from a known address may be held too.
        if new || arrays.checks.own_peer_only {
            self.access.joined.push(address);
        }
    }

    pub(crate) fn end_use(&mut self, address: IpAddr, what: Use) {
        let arrays = self.shared_arrays();
        self.access.known.end(address, what, &arrays.checks);
    }

    /// Replaces the tunnel peers `before` by `now`.
    pub(crate) fn replace_tunnels(&mut self, before: &[IpAddr], now: &[IpAddr]) {
        now.iter().for_each(|address| self.begin_use(*address, Use::Tunnel));
        before.iter().for_each(|address| self.end_use(*address, Use::Tunnel));
    }

    /// Binds a TEID to the required source of its packets. `None` = no source is known yet.
    pub fn bind_uplink(&mut self, teid: Teid, peer: Option<PeerBinding>) {
        let arrays = self.shared_arrays();
        if !arrays.checks.own_peer_only {
            return;
        }
        let Some(record) = self.find_uplink(teid) else { return };
        record.set_peer(match peer {
            None => NO_PEER,
            Some(PeerBinding::Known) => ANY_PEER,
            Some(PeerBinding::One(address)) => match arrays.checks.table.source(Bits::from_address(address)) {
                SourceEntry::Node(place) => place,
                // The address table is full: the slow path decides.
                SourceEntry::Prefix | SourceEntry::Unknown => NO_PEER,
            },
        });
        match peer {
            Some(peer) => drop(self.access.bound.insert(teid, peer)),
            None => drop(self.access.bound.remove(&teid)),
        }
        if let Some(PeerBinding::One(address)) = peer {
            self.access.joined.push(address);
        }
    }

    /// Returns true if the address is a permitted source of the packets of a tunnel.
    pub(crate) fn accepts(&self, from: IpAddr, teid: Teid, record: &UplinkEntry) -> bool {
        let (checks, bits) = (&self.arrays().checks, Bits::from_address(from));
        if checks.table.is_in_ran(bits) {
            return true;
        }
        let is_known = || matches!(checks.table.source(bits), SourceEntry::Node(_));
        match (checks.own_peer_only, self.access.bound.get(&teid)) {
            (true, Some(PeerBinding::One(own))) => from == *own,
            (true, Some(PeerBinding::Known)) => is_known(),
            (true, None) => false,
            (false, _) => is_known() || self.is_peer_of(record.rule().ue, from),
        }
    }

    /// Returns true if the address is the tunnel peer of a UE. A known address may be missing in a
    /// full address table.
    fn is_peer_of(&self, ue: SessionAddress, from: IpAddr) -> bool {
        let mut records = address_keys(ue).filter_map(|key| self.find_downlink(key)).map(|id| self.downlink(id));
        records.any(|record| record.tunnel().is_some_and(|tunnel| tunnel.address == from))
    }

    /// Holds a datagram for a tunnel until its sender is known. Returns false if the limit is
    /// reached.
    pub(crate) fn hold(&self, teid: Teid, datagram: Datagram<'_>, now: Instant) -> bool {
        let mut held = self.access.held_datagrams.lock().unwrap_or_else(PoisonError::into_inner);
        held.hold(teid, datagram, now)
    }

    /// Ends a change: releases the held datagrams of senders that became known. They are classified
    /// next.
    pub(crate) fn release_held(&mut self, released: &mut Released) {
        let joined: HashSet<IpAddr> = self.access.joined.drain(..).collect();
        let mut held = self.access.held_datagrams.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() {
            return;
        }
        let datagrams = joined.into_iter().map(|address| held.take(address));
        released.uplinks.extend(datagrams.flatten());
    }

    /// Drops datagrams that were held too long. Returns their source addresses and numbers. Must be
    /// called about once a second.
    pub fn expire_held(&self, now: Instant) -> Vec<(IpAddr, u64)> {
        let mut held = self.access.held_datagrams.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() { vec![] } else { held.expire(now) }
    }

    /// Evicts RAN nodes that were not used for a long time. Must be called once a second.
    pub fn age_peers(&mut self) {
        let arrays = self.shared_arrays();
        self.access.known.age(&arrays.checks);
    }
}

#[cfg(test)]
impl Tables {
    /// Returns the entry of the UE with these addresses.
    pub(crate) fn find_downlink_of(&self, ue: SessionAddress) -> Option<crate::engine::index::DownlinkId> {
        address_keys(ue).find_map(|key| self.find_downlink(key))
    }
}
