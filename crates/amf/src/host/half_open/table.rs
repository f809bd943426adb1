//! Half-open UEs of a host by peer address, RAN node and age.
//!
//! The table selects the UE to evict. The UEs of a RAN node form a list from the oldest to the
//! youngest. The RAN nodes of an address and the addresses are ordered by their number of UEs. An
//! operation takes constant time plus the logarithm of the number of RAN nodes. A UE that is being
//! evicted is in no list, but counts as a slot until its context is gone. The table is plain data.

use crate::host::origin::Origin;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use vireo_ops::config::HalfOpenConfig;
use vireo_store::region::Slot;
use vireo_types::{AssocId, Duration, Instant};

/// Maximum number of concurrent evictions. Their steps delay other UEs, so the host rejects new UEs
/// beyond.
pub(super) const MAX_EVICTIONS: usize = 32;

/// The limit that a new UE meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// `half-open.max-ues-per-node`.
    Node,
    /// `half-open.max-ues-per-address`.
    Address,
    /// `half-open.max-ues`.
    All,
    /// `state.ues`, half-open UEs or not.
    Room,
}

/// The decision about a new UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewUeDecision {
    /// There is room.
    Free,
    /// The UE of this slot is evicted to make room.
    Evicts(Slot, Limit),
    /// The new UE is rejected.
    Refused(Limit),
}

/// A new UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) origin: Origin,
    pub(super) now: Instant,
    /// An emergency or high-priority UE: it evicts UEs of any age.
    pub(super) urgent: bool,
    /// The host has `state.ues` UEs.
    pub(super) full: bool,
}

#[derive(Debug)]
struct HalfOpenUe {
    since: Instant,
    /// `None`: the UE is being evicted.
    node: Option<AssocId>,
    older: Option<Slot>,
    younger: Option<Slot>,
}

/// The half-open UEs of one RAN node, at least one.
#[derive(Debug)]
struct NodeUes {
    /// Peer address when the first of these UEs was added.
    address: Option<IpAddr>,
    count: usize,
    oldest: Option<Slot>,
    youngest: Option<Slot>,
}

/// The RAN nodes of one peer address that have half-open UEs, at least one.
#[derive(Debug, Default)]
struct AddressNodes {
    count: usize,
    by_count: BTreeSet<(usize, AssocId)>,
}

/// All half-open UEs.
#[derive(Debug)]
pub(super) struct HalfOpenTable {
    config: HalfOpenConfig,
    entries: FxHashMap<Slot, HalfOpenUe>,
    nodes: FxHashMap<AssocId, NodeUes>,
    addresses: FxHashMap<Option<IpAddr>, AddressNodes>,
    by_count: BTreeSet<(usize, Option<IpAddr>)>,
    evicting: usize,
}

impl HalfOpenTable {
    pub(super) fn new(config: HalfOpenConfig) -> Self {
        HalfOpenTable {
            config,
            entries: FxHashMap::default(),
            nodes: FxHashMap::default(),
            addresses: FxHashMap::default(),
            by_count: BTreeSet::new(),
            evicting: 0,
        }
    }

    /// Returns the number of half-open UEs without pending evictions.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.evicting
    }

    /// Returns the number of pending evictions.
    pub(super) fn evicting(&self) -> usize {
        self.evicting
    }

    /// Returns the number of half-open UEs of a RAN node.
    pub(super) fn node_count(&self, node: AssocId) -> usize {
        self.nodes.get(&node).map_or(0, |group| group.count)
    }

    /// Returns the number of half-open UEs of an address.
    pub(super) fn address_count(&self, address: Option<IpAddr>) -> usize {
        self.addresses.get(&address).map_or(0, |of| of.count)
    }

    /// Returns the RAN node with the most UEs of the address with the most UEs.
    pub(super) fn largest(&self) -> Option<AssocId> {
        self.largest_of(self.by_count.last()?.1)
    }

    fn largest_of(&self, address: Option<IpAddr>) -> Option<AssocId> {
        Some(self.addresses.get(&address)?.by_count.last()?.1)
    }

    /// Decides about a new UE.
    pub(super) fn admit(&self, arrival: Arrival) -> NewUeDecision {
        let Origin { node, address } = arrival.origin;
        let limit = match () {
            () if self.node_count(node) >= self.config.ues_per_node => Limit::Node,
            () if self.address_count(address) >= self.config.ues_per_address => Limit::Address,
            () if self.len() >= self.config.ues => Limit::All,
            () if arrival.full => Limit::Room,
            () => return NewUeDecision::Free,
        };
        let victims = match limit {
            Limit::Node => Some(node),
            Limit::Address => self.largest_of(address),
            Limit::All | Limit::Room => self.largest(),
        };
        let victims = victims.and_then(|node| self.nodes.get(&node));
        let Some((group, oldest)) = victims.and_then(|group| Some((group, group.oldest?))) else {
            return if arrival.urgent { NewUeDecision::Free } else { NewUeDecision::Refused(limit) };
        };
        if self.evicting >= MAX_EVICTIONS {
            return NewUeDecision::Refused(limit);
        }
        // A UE has min-age to answer. Otherwise UEs of a burst would evict each other and none
        // would register. The oldest UE of a peer with many half-open UEs is evicted earlier for a
        // UE of a peer with less than half as many.
        let since = self.entries.get(&oldest).map_or(arrival.now, |entry| entry.since);
        let is_old = arrival.now.since(since) >= Duration::from(self.config.min_age);
        let (own, others) = match group.address == address {
            true => (self.node_count(node), group.count),
            false => (self.address_count(address), self.address_count(group.address)),
        };
        if arrival.urgent || is_old || own * 2 < others {
            NewUeDecision::Evicts(oldest, limit)
        } else {
            NewUeDecision::Refused(limit)
        }
    }

    /// Adds a UE that has become half-open. A UE in the table keeps its age and RAN node.
    pub(super) fn enter(&mut self, slot: Slot, origin: Origin, now: Instant) {
        if self.entries.contains_key(&slot) {
            return;
        }
        let Origin { node, address } = origin;
        let new = NodeUes { address, count: 0, oldest: None, youngest: None };
        let older = self.nodes.entry(node).or_insert(new).youngest.replace(slot);
        self.entries.insert(slot, HalfOpenUe { since: now, node: Some(node), older, younger: None });
        match older.and_then(|older| self.entries.get_mut(&older)) {
            Some(entry) => entry.younger = Some(slot),
            None => self.set_oldest(node, Some(slot)),
        }
        self.count(node, |count| count + 1);
    }

    /// Removes a UE that has been authenticated, or whose context is gone.
    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(entry) = self.entries.remove(&slot) else { return };
        match entry.node {
            Some(node) => self.unlink(node, &entry),
            None => self.evicting -= 1,
        }
    }

    /// Marks a UE as being evicted.
    pub(super) fn evict(&mut self, slot: Slot) {
        let Some(entry) = self.entries.get_mut(&slot) else { return };
        let entry = HalfOpenUe { node: entry.node.take(), ..*entry };
        if let Some(node) = entry.node {
            self.evicting += 1;
            self.unlink(node, &entry);
        }
    }

    fn unlink(&mut self, node: AssocId, entry: &HalfOpenUe) {
        match entry.older.and_then(|older| self.entries.get_mut(&older)) {
            Some(older) => older.younger = entry.younger,
            None => self.set_oldest(node, entry.younger),
        }
        match entry.younger.and_then(|younger| self.entries.get_mut(&younger)) {
            Some(younger) => younger.older = entry.older,
            None => {
                if let Some(group) = self.nodes.get_mut(&node) {
                    group.youngest = entry.older;
                }
            }
        }
        self.count(node, |count| count - 1);
    }

    fn set_oldest(&mut self, node: AssocId, slot: Option<Slot>) {
        if let Some(group) = self.nodes.get_mut(&node) {
            group.oldest = slot;
        }
    }

    /// Changes the number of UEs of a RAN node, and of its address.
    fn count(&mut self, node: AssocId, change: impl Fn(usize) -> usize) {
        let Some(group) = self.nodes.get_mut(&node) else { return };
        let (before, after, peer) = (group.count, change(group.count), group.address);
        group.count = after;
        if after == 0 {
            self.nodes.remove(&node);
        }
        let address = self.addresses.entry(peer).or_default();
        address.by_count.remove(&(before, node));
        if after > 0 {
            address.by_count.insert((after, node));
        }
        self.by_count.remove(&(address.count, peer));
        address.count = change(address.count);
        if address.count > 0 {
            self.by_count.insert((address.count, peer));
        } else {
            self.addresses.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::{BTreeMap, VecDeque};
    use std::net::Ipv4Addr;
    use vireo_store::region::{Region, RegionConfig};

    const A: u32 = 1;
    const B: u32 = 2;

    /// RAN node `node` of address 10.0.0.`address`.
    fn shared(node: u32, address: u8) -> Origin {
        Origin { node: AssocId(node), address: Some(Ipv4Addr::new(10, 0, 0, address).into()) }
    }

    /// A RAN node with a separate address.
    fn separate(node: u32) -> Origin {
        shared(node, node as u8)
    }

    fn config(ues: usize, ues_per_node: usize) -> HalfOpenConfig {
        HalfOpenConfig { ues, ues_per_address: ues, ues_per_node, min_age: std::time::Duration::from_secs(3) }
    }

    fn slots(count: u32) -> Vec<Slot> {
        let region = Region::create(RegionConfig::new(count, 1, 64 << 20)).expect("a region");
        (0..count).map(|n| region.slot_at(n).expect("a slot")).collect()
    }

    fn from(origin: Origin, seconds: u64) -> Arrival {
        Arrival { origin, now: Instant(seconds * 1_000_000), urgent: false, full: false }
    }

    fn at(node: u32, seconds: u64) -> Arrival {
        from(separate(node), seconds)
    }

    /// A table with UEs of each origin that were added at second 0.
    fn table(config: HalfOpenConfig, slots: &[Slot], origins: &[(Origin, usize)]) -> HalfOpenTable {
        let mut table = HalfOpenTable::new(config);
        let mut slots = slots.iter();
        for (origin, count) in origins {
            slots.by_ref().take(*count).for_each(|slot| table.enter(*slot, *origin, Instant(0)));
        }
        table
    }

    #[test]
    fn node_at_its_limit_evicts_its_own_oldest() {
        let slots = slots(20);
        let table = table(config(100, 5), &slots, &[(separate(A), 5), (separate(B), 4)]);
        assert_eq!(table.admit(at(A, 3)), NewUeDecision::Evicts(slots[0], Limit::Node));
        assert_eq!(table.admit(at(A, 2)), NewUeDecision::Refused(Limit::Node), "the oldest UE may still answer");
        assert_eq!(table.admit(Arrival { urgent: true, ..at(A, 2) }), NewUeDecision::Evicts(slots[0], Limit::Node));
        assert_eq!(table.admit(at(B, 0)), NewUeDecision::Free);
    }

    #[test]
    fn address_at_limit_evicts_from_largest_node() {
        let slots = slots(20);
        let config = HalfOpenConfig { ues_per_address: 8, ..config(100, 50) };
        let table = table(config, &slots, &[(shared(1, 9), 2), (shared(2, 9), 6), (separate(3), 7)]);
        assert_eq!(table.address_count(separate(9).address), 8);
        // A new identity at the same address does not get more.
        let new = shared(4, 9);
        assert_eq!(table.admit(from(new, 0)), NewUeDecision::Evicts(slots[2], Limit::Address), "it has few itself");
        assert_eq!(table.admit(from(shared(2, 9), 2)), NewUeDecision::Refused(Limit::Address));
        assert_eq!(table.admit(from(shared(2, 9), 3)), NewUeDecision::Evicts(slots[2], Limit::Address));
        assert_eq!(table.admit(from(separate(3), 0)), NewUeDecision::Free, "another address has its own limit");
        assert_eq!(table.admit(from(separate(5), 0)), NewUeDecision::Free);
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let slots = slots(20);
        let ipv6 = |node: u32, peer: &str| Origin::new(AssocId(node), Some(peer.parse().expect("an address")));
        let config = HalfOpenConfig { ues_per_address: 2, ..config(100, 50) };
        let nodes = [(ipv6(1, "2001:db8::1"), 1), (ipv6(2, "2001:db8::2"), 1)];
        let table = table(config, &slots, &nodes);
        let third = table.admit(from(ipv6(3, "2001:db8::ffff:3"), 0));
        assert!(matches!(third, NewUeDecision::Evicts(_, Limit::Address)), "{third:?}");
        assert_eq!(table.admit(from(ipv6(4, "2001:db8:0:1::1"), 0)), NewUeDecision::Free);
    }

    #[test]
    fn limit_of_all_evicts_from_the_largest_node() {
        let slots = slots(20);
        let table = table(config(9, 9), &slots, &[(separate(B), 2), (separate(A), 7)]);
        assert_eq!(table.largest(), Some(AssocId(A)));
        assert_eq!(
            table.admit(at(B, 0)),
            NewUeDecision::Evicts(slots[2], Limit::All),
            "B has few: A's is evicted at once"
        );
        assert_eq!(table.admit(at(3, 0)), NewUeDecision::Evicts(slots[2], Limit::All));
        assert_eq!(table.admit(at(A, 2)), NewUeDecision::Refused(Limit::All));
        assert_eq!(table.admit(at(A, 3)), NewUeDecision::Evicts(slots[2], Limit::All));
    }

    #[test]
    fn many_nodes_of_one_address_count_as_one_peer() {
        let slots = slots(20);
        let nodes: Vec<(Origin, usize)> = (10..20).map(|node| (shared(node, 9), 1)).chain([(separate(A), 3)]).collect();
        let table = table(config(13, 13), &slots, &nodes);
        let NewUeDecision::Evicts(slot, Limit::All) = table.admit(at(A, 0)) else {
            panic!("A has fewer than the address")
        };
        assert!(slots[..10].contains(&slot), "A has the most of a node, and not the most of an address");
    }

    #[test]
    fn equal_nodes_do_not_evict_each_other_at_once() {
        let slots = slots(20);
        let table = table(config(10, 10), &slots, &[(separate(B), 4), (separate(A), 6)]);
        assert_eq!(table.admit(at(B, 2)), NewUeDecision::Refused(Limit::All));
        assert_eq!(table.admit(at(B, 3)), NewUeDecision::Evicts(slots[4], Limit::All));
    }

    #[test]
    fn full_host_evicts_half_open_ues_only() {
        let slots = slots(20);
        let full = |arrival| Arrival { full: true, ..arrival };
        let mut table = table(config(100, 50), &slots, &[(separate(A), 1)]);
        assert_eq!(table.admit(full(at(B, 0))), NewUeDecision::Evicts(slots[0], Limit::Room));
        table.remove(slots[0]);
        assert_eq!(table.admit(full(at(B, 0))), NewUeDecision::Refused(Limit::Room));
        let urgent = Arrival { urgent: true, ..full(at(B, 0)) };
        assert_eq!(table.admit(urgent), NewUeDecision::Free, "the region has spare slots for emergencies");
    }

    #[test]
    fn unfinished_evictions_are_limited() {
        let slots = slots(MAX_EVICTIONS as u32 + 10);
        let mut table = table(config(1000, 1000), &slots, &[(separate(A), slots.len())]);
        for slot in &slots[..MAX_EVICTIONS] {
            assert_eq!(table.admit(Arrival { full: true, ..at(A, 3) }), NewUeDecision::Evicts(*slot, Limit::Room));
            table.evict(*slot);
            table.evict(*slot);
        }
        assert_eq!((table.len(), table.evicting()), (10, MAX_EVICTIONS));
        let urgent = Arrival { urgent: true, full: true, ..at(A, 3) };
        assert_eq!(table.admit(urgent), NewUeDecision::Refused(Limit::Room));
        table.enter(slots[0], separate(A), Instant(0));
        assert_eq!(table.len(), 10, "a UE that is being evicted does not enter again");
        table.remove(slots[3]);
        table.remove(slots[3]);
        assert_eq!((table.len(), table.evicting()), (10, MAX_EVICTIONS - 1));
        assert_eq!(table.admit(urgent), NewUeDecision::Evicts(slots[MAX_EVICTIONS], Limit::Room));
    }

    /// Compares the table with lists that are searched.
    #[test]
    fn table_agrees_with_a_model() {
        let slots = slots(400);
        let mut rng = StdRng::seed_from_u64(25);
        let mut table = HalfOpenTable::new(HalfOpenConfig { ues_per_address: 150, ..config(300, 100) });
        let mut model: BTreeMap<u32, VecDeque<Slot>> = BTreeMap::new();
        let mut evicting: Vec<Slot> = Vec::new();
        // Three addresses of three RAN nodes each.
        let origin = |node: u32| shared(node, (node / 3) as u8);
        for step in 0..40_000_u64 {
            let (slot, node) = (slots[rng.random_range(0..slots.len())], rng.random_range(0..9));
            match rng.random_range(0..4) {
                0 | 1 => {
                    let known = model.values().any(|of| of.contains(&slot)) || evicting.contains(&slot);
                    table.enter(slot, origin(node), Instant(step));
                    if !known {
                        model.entry(node).or_default().push_back(slot);
                    }
                }
                2 => {
                    table.remove(slot);
                    model.values_mut().for_each(|of| of.retain(|other| *other != slot));
                    evicting.retain(|other| *other != slot);
                }
                _ => {
                    table.evict(slot);
                    if model.values().any(|of| of.contains(&slot)) {
                        evicting.push(slot);
                    }
                    model.values_mut().for_each(|of| of.retain(|other| *other != slot));
                }
            }
            model.retain(|_, of| !of.is_empty());
            let address_count =
                |address: u32| (0..3).map(|n| model.get(&(address * 3 + n)).map_or(0, VecDeque::len)).sum();
            let largest = |address: u32| (0..3).filter_map(|n| model.get(&(address * 3 + n))).map(VecDeque::len).max();
            let sizes: [usize; 3] = [0, 1, 2].map(address_count);
            assert_eq!((table.len(), table.evicting()), (sizes.iter().sum(), evicting.len()));
            assert_eq!([0, 1, 2].map(|address| table.address_count(origin(address * 3).address)), sizes);
            assert_eq!(table.node_count(AssocId(node)), model.get(&node).map_or(0, VecDeque::len));
            if let Some(AssocId(node)) = table.largest() {
                assert_eq!(Some(&sizes[node as usize / 3]), sizes.iter().max());
                assert_eq!(model.get(&node).map(VecDeque::len), largest(node / 3));
            } else {
                assert!(model.is_empty());
            }
            let urgent = Arrival { urgent: true, full: true, ..from(origin(node), 0) };
            if let NewUeDecision::Evicts(victim, limit) = table.admit(urgent) {
                let owner = model.iter().find(|(_, of)| of.front() == Some(&victim)).map(|(node, _)| *node);
                let owner = owner.expect("the oldest UE of a RAN node");
                match limit {
                    Limit::Node => assert_eq!(owner, node),
                    Limit::Address => assert_eq!(owner / 3, node / 3),
                    Limit::All | Limit::Room => assert_eq!(Some(&sizes[owner as usize / 3]), sizes.iter().max()),
                }
                assert!(limit == Limit::Node || model.get(&owner).map(VecDeque::len) == largest(owner / 3));
            }
        }
    }
}
