//! Fast path: classification of packets without a lock, concurrent with one writer.
//!
//! The entries and the address index lie in arrays ([`Arrays`]). The control side writes them and
//! workers read them, protected by the sequence word of each entry. A worker checks that word
//! before it reads the rule and again before it applies the rule. Workers count and police in
//! place.
//!
//! So each part of a user's state has one kind of writer: the control side for rules, the workers
//! for counters and policers. Neither waits for the other. The locked [`crate::Tables`] are the
//! slow path, with the same functions. They handle:
//! - entries in a write section
//! - TEIDs that are no indexes
//! - flow rules, buffering and errors
//!
//! No packet overtakes the output of a change: the sequence word stays odd until it is sent, and
//! packets of the entry wait at the lock. Earlier packets must leave before an End Marker, and must
//! be counted before a count is final. Such a change waits for them: see
//! [`crate::engine::quiescence`].

pub(crate) mod lookup;
mod verdict;

use crate::engine::access::Checks;
use crate::engine::entry::{DownlinkEntry, EntryCounters, UplinkEntry};
use crate::engine::flow_rules::cells::Cell;
use crate::engine::hot::table::HotTable;
use crate::engine::index::{self, AddressKey, Addresses, Range};
use crate::engine::inner;
use crate::engine::locking::Locking;
use crate::engine::quiescence::Quiescence;
use crate::engine::table_memory::TableMemory;
use crate::network::Pool;
use crate::sys::prefetch;
use crate::sys::shared::Shared;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vireo_types::Teid;

/// Part of the tables that the fast path reads without a lock.
#[derive(Debug)]
pub(crate) struct Arrays {
    pub(crate) uplinks: Shared<UplinkEntry>,
    pub(crate) downlinks: Shared<DownlinkEntry>,
    pub(crate) addresses: Addresses,
    pub(crate) pools: Vec<Pool>,
    pub(crate) locking: Locking,
    /// Hot table: the entries of active users, apart from the others.
    pub(crate) hot: Option<HotTable>,
    /// Destinations that UEs must not reach, and permitted sources of G-PDUs.
    pub(crate) checks: Checks,
    /// True if the UEs of any pool are isolated.
    pub(crate) isolates: bool,
    /// True if only one thread at a time classifies packets.
    single_worker: AtomicBool,
    pub(crate) quiescence: Quiescence,
}

/// Configuration of the arrays.
pub(crate) struct ArraysConfig {
    /// Array ranges of the pools.
    pub(crate) ranges: Vec<Range>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) locking: Locking,
    /// G-PDUs of a tunnel come from its own peer only ([`crate::Limits::own_peer_only`]).
    pub(crate) own_peer_only: bool,
}

impl Arrays {
    /// Creates the arrays in this memory, whose sizes match the ranges. Returns them with the cells
    /// of flow rules.
    pub(crate) fn new(memory: TableMemory, config: ArraysConfig, hot: Option<HotTable>) -> (Self, Shared<Cell>) {
        let TableMemory { uplinks, downlinks, addresses, cells, worker_slots, access } = memory;
        let ArraysConfig { ranges, pools, locking, own_peer_only } = config;
        let arrays = Arrays {
            uplinks,
            downlinks,
            addresses: Addresses::new(ranges, addresses),
            isolates: pools.iter().any(|pool| pool.isolated),
            pools,
            locking,
            hot,
            checks: Checks::over(access, own_peer_only),
            single_worker: AtomicBool::new(false),
            quiescence: Quiescence::new(worker_slots),
        };
        (arrays, cells)
    }

    /// Returns the downlink entry of an index, in the hot or the cold table.
    #[inline]
    pub(crate) fn downlink(&self, index: u32) -> Option<&DownlinkEntry> {
        let home = self.downlinks.get(index as usize)?;
        Some(self.hot.as_ref().map_or(home, |hot| hot.current(home)))
    }

    /// Selects non-atomic counters; see [`crate::Tables::set_single_worker`].
    pub(crate) fn set_single_worker(&self, alone: bool) {
        self.single_worker.store(alone, Relaxed);
    }

    /// Counts a packet to an entry. Returns the octets counted before it.
    #[inline]
    pub(crate) fn count(&self, state: &EntryCounters, octets: usize) -> u64 {
        // The holder of the entry's lock is the only one that counts.
        if self.locking == Locking::SharedWriter || self.single_worker.load(Relaxed) {
            state.count_alone(octets)
        } else {
            state.count(octets)
        }
    }

    /// Returns true if the address belongs to a pool, whether or not a UE has it.
    #[inline]
    pub(crate) fn is_in_pools(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.contains(address))
    }

    /// Prefetches the entry of a TEID. The packet that needs it follows some packets later.
    #[inline]
    pub(crate) fn prefetch_uplink(&self, teid: Teid) {
        if let Some(record) = self.uplinks.get(teid.index() as usize) {
            prefetch(record);
        }
    }

    /// Prefetches the entry of a datagram that may be a G-PDU.
    #[inline]
    pub(crate) fn prefetch_datagram(&self, datagram: &[u8]) {
        if let Some(teid) = datagram.get(4..).and_then(|teid| teid.first_chunk()) {
            self.prefetch_uplink(Teid(u32::from_be_bytes(*teid)));
        }
    }

    /// Prefetches the lookup data of a packet's destination.
    #[inline]
    pub(crate) fn prefetch_address_of(&self, packet: &[u8]) {
        let Some(key) = inner::destination(packet) else { return };
        if let Some(hot) = &self.hot {
            return hot.prefetch_tags(key);
        }
        if let Some(entry) = self.addresses.entry(key) {
            prefetch(entry);
        }
    }

    /// Prefetches the entry of a packet's destination, whose lookup data should be in the cache.
    /// Returns false if one more step is needed ([`Arrays::prefetch_cold_of`]).
    #[inline]
    pub(crate) fn prefetch_entry_of(&self, packet: &[u8]) -> bool {
        let Some(key) = inner::destination(packet) else { return true };
        match &self.hot {
            None => self.prefetch_downlink(key),
            Some(hot) if hot.prefetch_entry(key) => {}
            Some(_) => {
                self.addresses.entry(key).into_iter().for_each(prefetch);
                return false;
            }
        }
        true
    }

    /// Prefetches the entry of a packet's destination that is not hot.
    #[inline]
    pub(crate) fn prefetch_cold_of(&self, packet: &[u8]) {
        if let Some(key) = inner::destination(packet) {
            self.prefetch_downlink(key);
        }
    }

    /// Prefetches the entry of an address, whose lookup data should be in the cache.
    #[inline]
    fn prefetch_downlink(&self, key: AddressKey) {
        let number = self.addresses.entry(key).and_then(index::number);
        if let Some(record) = number.and_then(|number| self.downlinks.get(Teid(number).index() as usize)) {
            prefetch(record);
        }
    }
}
