//! Fast path: classification of packets without a lock, concurrent with one writer.
//!
//! The entries and the address index lie in arrays ([`Arrays`]). The control side writes them and
//! workers read them, protected by the sequence word of each entry. A worker checks that word
//! before it reads the rule and again before it applies the rule. Workers count and police in
//! place.
//!
//! So each part of a user's state has one kind of writer: the control side for rules, the workers
//! for counters and policers. Neither waits for the other. The locked [`Tables`] are the slow path,
//! with the same functions (`verdict`). They handle:
//! - entries in a write section
//! - TEIDs that are no indexes
//! - flow rules, buffering and errors
//!
//! No packet overtakes the output of a change: the sequence word stays odd until it is sent, and
//! packets of the entry wait at the lock. Earlier packets must leave before an End Marker, and must
//! be counted before a count is final. Such a change waits for them: see [`quiescence`].

mod quiescence;
mod shared;
#[cfg(test)]
mod tests;

use crate::access::Checks;
use crate::access::table::Line;
use crate::entry::{DownlinkEntry, EntryCounters, UplinkEntry};
use crate::hot::HotTable;
use crate::index::{self, AddressKey, Addresses};
use crate::inner;
use crate::processes::WorkerSlot;
use crate::sys::prefetch;
use crate::sys::shared::Shared;
use crate::tables::{DownlinkId, Pool, TableMemory, Tables};
use crate::verdict::{DownlinkVerdict, Event, UplinkVerdict};
pub(crate) use quiescence::{Quiescence, ReadSection, SpinWait};
pub use shared::SharedTables;
pub(crate) use shared::{Batch, PuntBatch, Reader, WorkerEnv, finish};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vireo_types::{Instant, SessionAddress, Teid};

/// Mutual exclusion between workers and the control side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Neither waits for the other. The sequence word protects an entry, and packets are counted in
    /// place.
    #[default]
    Fine,
    /// One lock around everything, taken for each batch of packets and each change. For comparison.
    Coarse,
    /// A lock for each entry, which holds rule and counters together. Taken for each packet and
    /// each change. For comparison.
    SharedWriter,
}

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
    alone: AtomicBool,
    pub(crate) quiet: Quiescence,
}

/// Notification that the fast path defers to the end of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingNotification {
    /// A count of the session with these addresses passed a watched multiple.
    Uplink(SessionAddress),
    /// A count of the session of this entry passed a watched multiple.
    Downlink(DownlinkId),
}

/// Source of verdicts: the locked tables, or the fast path, which has less information.
pub(crate) trait Classifier {
    fn arrays(&self) -> &Arrays;
    /// Returns the tables if they are locked. The tables classify every packet.
    fn tables(&self) -> Option<&Tables>;
    /// Classifies a datagram from N3 and counts it to its session. `None` = punt to the tables.
    /// `tell` receives notifications about the count.
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>>;
    /// Classifies a packet from N6; see [`Classifier::uplink`].
    fn downlink(&self, packet: &[u8], now: Instant, tell: &mut impl FnMut(Event)) -> Option<DownlinkVerdict>;
    /// Returns true if the tables must classify the rest of the batch.
    fn ends(&self) -> bool;
}

impl Classifier for Tables {
    #[inline]
    fn arrays(&self) -> &Arrays {
        self.arrays()
    }

    #[inline]
    fn tables(&self) -> Option<&Tables> {
        Some(self)
    }

    #[inline]
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>> {
        Some(self.decide_uplink(from, datagram, now, tell))
    }

    #[inline]
    fn downlink(&self, packet: &[u8], now: Instant, tell: &mut impl FnMut(Event)) -> Option<DownlinkVerdict> {
        Some(self.decide_downlink(packet, now, tell))
    }

    #[inline]
    fn ends(&self) -> bool {
        false
    }
}

impl Classifier for ReadSection<'_> {
    #[inline]
    fn arrays(&self) -> &Arrays {
        self.arrays
    }

    #[inline]
    fn tables(&self) -> Option<&Tables> {
        None
    }

    #[inline]
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        _: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>> {
        self.arrays.usual_uplink(from, datagram, now, &self.owed)
    }

    #[inline]
    fn downlink(&self, packet: &[u8], now: Instant, _: &mut impl FnMut(Event)) -> Option<DownlinkVerdict> {
        self.arrays.usual_downlink(packet, now, &self.owed)
    }

    #[inline]
    fn ends(&self) -> bool {
        self.owed.get().is_some()
    }
}

impl Arrays {
    pub(crate) fn new(
        uplinks: Shared<UplinkEntry>,
        downlinks: Shared<DownlinkEntry>,
        addresses: Addresses,
        pools: Vec<Pool>,
        (locking, hot): (Locking, Option<HotTable>),
        (seats, access): (Shared<WorkerSlot>, Shared<Line>),
    ) -> Self {
        let (alone, quiet) = (AtomicBool::new(false), Quiescence::new(seats));
        let (checks, isolates) = (Checks::over(access), pools.iter().any(|pool| pool.isolated));
        Arrays { uplinks, downlinks, addresses, pools, locking, hot, checks, isolates, alone, quiet }
    }

    /// Returns the downlink entry of an index, in the hot or the cold table.
    #[inline]
    pub(crate) fn downlink(&self, index: u32) -> Option<&DownlinkEntry> {
        let home = self.downlinks.get(index as usize)?;
        Some(self.hot.as_ref().map_or(home, |hot| hot.wherever(home)))
    }

    /// Selects non-atomic counters; see [`Tables::decided_by_one`].
    pub(crate) fn decided_by_one(&self, alone: bool) {
        self.alone.store(alone, Relaxed);
    }

    /// Counts a packet to an entry. Returns the octets counted before it.
    #[inline]
    pub(crate) fn count(&self, state: &EntryCounters, octets: usize) -> u64 {
        // The holder of the entry's lock is the only one that counts.
        if self.locking == Locking::SharedWriter || self.alone.load(Relaxed) {
            state.count_alone(octets)
        } else {
            state.count(octets)
        }
    }

    /// Returns true if the address belongs to a pool, whether or not a UE has it.
    #[inline]
    pub(crate) fn is_of_a_ue(&self, address: IpAddr) -> bool {
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
    pub(crate) fn prefetch_record_of(&self, packet: &[u8]) -> bool {
        let Some(key) = inner::destination(packet) else { return true };
        match &self.hot {
            None => self.prefetch_downlink(key),
            Some(hot) if hot.prefetch_record(key) => {}
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

impl TableMemory {
    pub(crate) fn into_arrays(
        self,
        ranges: Vec<index::Range>,
        pools: Vec<Pool>,
        locking: (Locking, Option<HotTable>),
    ) -> (Arrays, Shared<crate::flow_rules::cells::Cell>) {
        let TableMemory { uplinks, downlinks, addresses, cells, seats, access } = self;
        let shared = (seats, access);
        (Arrays::new(uplinks, downlinks, Addresses::new(ranges, addresses), pools, locking, shared), cells)
    }
}
