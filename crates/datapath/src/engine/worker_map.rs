//! Map from packets to workers: a word for each TEID index and for each UE address in the address
//! arrays.
//!
//! The kernel programs read the same words (`bpf/slices.h`).

use crate::engine::index::{self, AddressKey, Range, address_keys};
use crate::network::Pool;
use crate::sys::shared::Shared;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use vireo_types::{SessionAddress, Teid};

/// Maximum number of workers. The worker word is one byte.
pub const WORKERS: usize = 64;

/// Maximum addresses of one pool with words, whose memory is allocated at once. The first worker
/// handles the others.
pub(crate) const LARGEST_ARRAY: u64 = 1 << 22;

/// Worker words. Any thread may write them at any time: a packet uses the old or the new word, with
/// the same result.
#[derive(Debug)]
pub struct WorkerMap {
    tunnels: Shared<AtomicU8>,
    addresses: Shared<AtomicU8>,
    ranges: Vec<Range>,
}

impl Default for WorkerMap {
    /// Returns the map of a user plane without slices: it has no words.
    fn default() -> Self {
        WorkerMap { tunnels: Shared::private(0), addresses: Shared::private(0), ranges: vec![] }
    }
}

impl WorkerMap {
    /// Creates a map in private memory for `tunnels` tunnels.
    pub(crate) fn private(tunnels: usize, pools: &[Pool]) -> Self {
        let ranges = index::ranges(pools, LARGEST_ARRAY);
        WorkerMap::over(Shared::private(tunnels), Shared::private(index::entries(&ranges)), ranges)
    }

    /// Creates a map in the given memory. `addresses` has one byte for each address of the ranges.
    pub(crate) fn over(tunnels: Shared<AtomicU8>, addresses: Shared<AtomicU8>, ranges: Vec<Range>) -> Self {
        WorkerMap { tunnels, addresses, ranges }
    }

    /// Assigns the packets of these tunnels and addresses to a worker.
    pub fn assign(&self, tunnels: &[Teid], addresses: impl Iterator<Item = SessionAddress>, worker: u8) {
        if self.ranges.is_empty() {
            return;
        }
        let tunnels = tunnels.iter().filter_map(|teid| self.tunnels.get(teid.index() as usize));
        let addresses = addresses.flat_map(address_keys).filter_map(|key| self.addresses.get(self.position(key)?));
        tunnels.chain(addresses).for_each(|word| word.store(worker, Relaxed));
    }

    fn position(&self, key: AddressKey) -> Option<usize> {
        self.ranges.iter().find_map(|range| range.entry(key))
    }

    /// Returns the worker of a TEID, as the kernel programs find it.
    pub fn worker_by_tunnel(&self, teid: Teid) -> u8 {
        self.tunnels.get(teid.index() as usize).map_or(0, |word| word.load(Relaxed))
    }

    /// Returns the worker of an address, as the kernel programs find it. The first worker if the
    /// address is in no array.
    pub fn worker_by_address(&self, ue: SessionAddress) -> u8 {
        let word = address_keys(ue).find_map(|key| self.addresses.get(self.position(key)?));
        word.map_or(0, |word| word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn user_is_found_by_tunnel_and_address() {
        let pools = [Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 24)), ..Pool::default() }];
        let owners = WorkerMap::private(4, &pools);
        let ue = |last| SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, last)), ipv6_prefix: None };
        let teid = |index| Teid::from_index(index, 7);
        owners.assign(&[teid(2), teid(3), teid(4)], [ue(9), ue(255)].into_iter(), 5);
        assert_eq!(
            [1, 2, 3, 4].map(|index| owners.worker_by_tunnel(teid(index))),
            [0, 5, 5, 0],
            "the last is in no array"
        );
        assert_eq!([8, 9, 255].map(|last| owners.worker_by_address(ue(last))), [0, 5, 5]);
        let elsewhere = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 46, 0, 9)), ipv6_prefix: None };
        owners.assign(&[], [elsewhere].into_iter(), 5);
        assert_eq!(owners.worker_by_address(elsewhere), 0);
        let none = WorkerMap::default();
        none.assign(&[teid(2)], [ue(9)].into_iter(), 5);
        assert_eq!((none.worker_by_tunnel(teid(2)), none.worker_by_address(ue(9))), (0, 0));
    }
}
