//! Allocation of UE addresses by the UPF (UEIP, TS 29.244 5.21).
//!
//! Each data network has address pools. A released address is reused as late as possible.

use crate::config::Pool;
use crate::machine::pdi::AddressChoice;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vireo_core::ids::address_pool::Range;
use vireo_types::SessionAddress;
use vireo_wire::pfcp::{ApnDnn, NetworkInstance};

/// Maximum number of candidates per allocation: the control plane may have assigned some itself.
const TRIES: usize = 4096;
/// Number of addresses that a restarted UPF uses last. The previous incarnation may have assigned
/// them to sessions that it did not store.
const PASSED_OVER: u32 = 256;

/// Allocator of one address pool. It returns unused addresses first, then the address that was
/// released longest ago.
#[derive(Debug, Default)]
struct AddressAllocator {
    range: Range,
    /// Positions in the range: the first unused one, and the released ones in order of release.
    next: u32,
    back: VecDeque<u32>,
}

impl AddressAllocator {
    fn new(range: Option<Range>) -> Self {
        AddressAllocator { range: range.unwrap_or_default(), ..AddressAllocator::default() }
    }

    fn take(&mut self) -> Option<u32> {
        if self.next < self.range.size() {
            self.next += 1;
            return Some(self.next - 1);
        }
        self.back.pop_front()
    }

    /// Marks positions that a previous incarnation assigned. Must be called before any allocation.
    /// The free positions between them come after those that were certainly never assigned.
    fn mark_assigned(&mut self, mut positions: Vec<u32>) {
        positions.sort_unstable();
        for position in positions {
            if position >= self.next {
                self.back.extend(self.next..position);
                self.next = position + 1;
            }
        }
        let end = self.next.saturating_add(PASSED_OVER).min(self.range.size());
        self.back.extend(self.next..end);
        self.next = end;
    }

    /// Allocates the next free address; `address` converts a position.
    fn take_free(
        &mut self,
        address: impl Fn(&Range, u32) -> SessionAddress,
        free: impl Fn(SessionAddress) -> bool,
    ) -> Option<SessionAddress> {
        for _ in 0..TRIES {
            let index = self.take()?;
            let taken = address(&self.range, index);
            if free(taken) {
                return Some(taken);
            }
            self.back.push_back(index);
        }
        None
    }
}

#[derive(Debug)]
struct Network {
    name: String,
    ipv4: AddressAllocator,
    ipv6: AddressAllocator,
}

/// The address pools of all data networks.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    networks: Vec<Network>,
}

/// Addresses that the UPF chose for a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AllocatedAddresses {
    network: usize,
    pub(crate) ue: SessionAddress,
}

impl Addresses {
    /// Creates the pools without the addresses that belong to the machine ([`Range`]).
    pub(crate) fn new(pools: &[Pool]) -> Self {
        let networks = pools.iter().map(|pool| Network {
            name: pool.dnn.as_str().to_owned(),
            ipv4: AddressAllocator::new(pool.ipv4.map(|(network, length)| Range::ipv4(network, length))),
            ipv6: AddressAllocator::new(pool.ipv6.map(|(network, length)| Range::ipv6(network, length))),
        });
        Addresses { networks: networks.collect() }
    }

    /// Returns true if there is no pool.
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Returns the data network of a session: that of the network instance, else of the DNN, else
    /// the only one.
    pub(crate) fn network(&self, instance: Option<&NetworkInstance>, dnn: Option<&ApnDnn>) -> Option<usize> {
        // a network instance may be encoded as the labels of a DNN
        let dnn = dnn.map(|dnn| NetworkInstance(dnn.0.clone()));
        let named = |instance: &NetworkInstance| self.networks.iter().position(|network| instance.is(&network.name));
        let only = || (self.networks.len() == 1).then_some(0);
        instance.and_then(named).or_else(|| dnn.as_ref().and_then(named)).or_else(only)
    }

    /// Allocates the requested addresses. Returns `None` if a requested family has no free address.
    pub(crate) fn choose(
        &mut self,
        network: usize,
        wanted: AddressChoice,
        free: impl Fn(SessionAddress) -> bool,
    ) -> Option<AllocatedAddresses> {
        let pool = self.networks.get_mut(network)?;
        let mut ue = SessionAddress::default();
        if wanted.ipv4 {
            let address = |range: &Range, at| SessionAddress { ipv4: Some(range.ipv4_at(at)), ipv6_prefix: None };
            ue.ipv4 = pool.ipv4.take_free(address, &free)?.ipv4;
        }
        if wanted.ipv6 {
            let address = |range: &Range, at| SessionAddress { ipv4: None, ipv6_prefix: Some(range.ipv6_at(at)) };
            let Some(taken) = pool.ipv6.take_free(address, &free) else {
                self.release(AllocatedAddresses { network, ue });
                return None;
            };
            ue.ipv6_prefix = taken.ipv6_prefix;
        }
        Some(AllocatedAddresses { network, ue })
    }

    /// Marks the addresses of stored sessions of a previous incarnation as assigned.
    pub(crate) fn mark_assigned(&mut self, all: &[AllocatedAddresses]) {
        for (n, network) in self.networks.iter_mut().enumerate() {
            let ues = || all.iter().filter(|chosen| chosen.network == n).map(|chosen| chosen.ue);
            let ipv4 = ues().filter_map(|ue| network.ipv4.range.index_of_ipv4(ue.ipv4?)).collect();
            let ipv6 = ues().filter_map(|ue| network.ipv6.range.index_of_ipv6(ue.ipv6_prefix?)).collect();
            network.ipv4.mark_assigned(ipv4);
            network.ipv6.mark_assigned(ipv6);
        }
    }

    /// Releases addresses.
    pub(crate) fn release(&mut self, chosen: AllocatedAddresses) {
        let Some(pool) = self.networks.get_mut(chosen.network) else { return };
        let (ipv4, ipv6) = (&mut pool.ipv4, &mut pool.ipv6);
        ipv4.back.extend(chosen.ue.ipv4.and_then(|v4| ipv4.range.index_of_ipv4(v4)));
        ipv6.back.extend(chosen.ue.ipv6_prefix.and_then(|v6| ipv6.range.index_of_ipv6(v6)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn addresses() -> Addresses {
        let pool = |name: &str, ipv4: [u8; 4], ipv6: Option<&str>| Pool {
            dnn: name.parse().expect("a name"),
            ipv4: Some((ipv4.into(), 29)),
            ipv6: ipv6.map(|network| (network.parse().expect("a network"), 62)),
            mtu: 1400,
            dns: vec![],
            isolated: false,
        };
        Addresses::new(&[pool("internet", [10, 45, 0, 0], Some("2001:db8:45::")), pool("ims", [10, 46, 0, 0], None)])
    }

    #[test]
    fn released_address_is_assigned_last() {
        let mut all = addresses();
        let v4 = AddressChoice { ipv4: true, ipv6: false };
        let take = |all: &mut Addresses| all.choose(0, v4, |_| true).map(|chosen| (chosen, chosen.ue.ipv4));
        let given: Vec<_> = std::iter::from_fn(|| take(&mut all)).collect();
        let last_octets: Vec<_> = given.iter().filter_map(|(_, v4)| v4.map(|v4| v4.octets()[3])).collect();
        assert_eq!(last_octets, [2, 3, 4, 5, 6], "neither the network's, nor the machine's, nor the broadcast address");
        all.release(given[3].0);
        all.release(given[1].0);
        assert_eq!(take(&mut all).and_then(|(_, v4)| v4), given[3].1);
        // an address that a control plane has chosen meanwhile is skipped, and tried again later
        let other = given[1].0.ue;
        assert_eq!(all.choose(0, v4, |ue| ue != other), None);
        assert_eq!(take(&mut all).and_then(|(_, v4)| v4), given[1].1);
    }

    #[test]
    fn address_of_stored_session_is_not_assigned() {
        let v4 = AddressChoice { ipv4: true, ipv6: false };
        let mut before = addresses();
        let given: Vec<_> = std::iter::from_fn(|| before.choose(0, v4, |_| true)).collect();
        let mut all = addresses();
        all.mark_assigned(&[given[3], given[1]]);
        let left: Vec<_> = std::iter::from_fn(|| all.choose(0, v4, |_| true)).collect();
        assert_eq!(left, [given[0], given[2], given[4]]);
        assert_eq!(all.choose(1, v4, |_| true).and_then(|chosen| chosen.ue.ipv4), Some([10, 46, 0, 2].into()));
    }

    /// A restarted UPF does not reuse an address at once whose session was announced but not
    /// stored.
    #[test]
    fn address_maybe_assigned_before_comes_last() {
        let pool = Pool {
            dnn: "internet".parse().expect("a name"),
            ipv4: Some(([10, 45, 0, 0].into(), 16)),
            ipv6: None,
            mtu: 1400,
            dns: vec![],
            isolated: false,
        };
        let v4 = AddressChoice { ipv4: true, ipv6: false };
        let mut before = Addresses::new(std::slice::from_ref(&pool));
        let written = before.choose(0, v4, |_| true).expect("room");
        let unwritten: Vec<_> = (0..100).filter_map(|_| before.choose(0, v4, |_| true)).collect();
        let mut all = Addresses::new(&[pool]);
        all.mark_assigned(&[written]);
        let next: Vec<_> = (0..1_000).filter_map(|_| all.choose(0, v4, |_| true)).collect();
        assert!(next.len() == 1_000 && !next.iter().any(|one| unwritten.contains(one) || *one == written));
    }

    #[test]
    fn both_families_or_none() {
        let mut all = addresses();
        let both = AddressChoice { ipv4: true, ipv6: true };
        let prefixes: Vec<_> =
            std::iter::from_fn(|| all.choose(0, both, |_| true)).filter_map(|chosen| chosen.ue.ipv6_prefix).collect();
        assert_eq!(prefixes.len(), 3);
        assert_eq!(prefixes[0], "2001:db8:45:1::".parse::<Ipv6Addr>().expect("an address"));
        // the IPv4 address of the failed attempt is free again
        let left = std::iter::from_fn(|| all.choose(0, AddressChoice { ipv4: true, ipv6: false }, |_| true)).count();
        assert_eq!(left, 2);
        assert_eq!(all.choose(1, both, |_| true), None, "no prefixes there");
    }

    #[test]
    fn data_network_is_found_by_either_name() {
        let all = addresses();
        let instance = |name: &str| NetworkInstance::from(name);
        assert_eq!(all.network(Some(&instance("ims")), None), Some(1));
        assert_eq!(all.network(Some(&instance("core.example.org")), ApnDnn::from_name("ims").as_ref()), Some(1));
        assert_eq!(all.network(None, ApnDnn::from_name("internet").as_ref()), Some(0));
        assert_eq!(all.network(Some(&instance("other")), None), None, "two to choose from and none is named");
    }
}
