//! The data side of the tables: what packets are decided by without a lock, beside the one who changes it.
//!
//! The records and the index of addresses lie in arrays ([`Arrays`]) that the owner of the tables writes and workers read,
//! under the sequence word of each record: a worker looks at it before it reads the rule and again before it goes by it,
//! and counts and takes rates in place. So the state of a user is cut by who writes it (rules: the owner; counts and
//! words of rates: the workers), and neither waits for the other. Whatever is not usual goes through the locked
//! [`Tables`], which decide by the same functions (`verdict`): a record that changes right now, TEIDs that are no
//! indexes, rules beside records, buffering, errors.
//!
//! What a change lets go is not overtaken: the record is odd until it has left, and its packets wait at the lock. What
//! was decided before and must leave first (before an End Marker), or be counted first (before a count is the last
//! one), is waited for: see [`quiet`].

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

/// How those who decide on packets and the one who changes rules keep out of each other's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Neither waits for the other: a record is read under its sequence word, and counted in place.
    #[default]
    Fine,
    /// One lock around everything, taken for each batch of packets and each change. For comparison.
    Coarse,
    /// A lock for each record, which holds rule and counts together: taken for each packet and each change. For comparison.
    SharedWriter,
}

/// What of the tables is decided by without a lock.
#[derive(Debug)]
pub(crate) struct Arrays {
    pub(crate) uplinks: Shared<UplinkEntry>,
    pub(crate) downlinks: Shared<DownlinkEntry>,
    pub(crate) addresses: Addresses,
    pub(crate) pools: Vec<Pool>,
    pub(crate) locking: Locking,
    /// Records that lie apart from the others because they have packets.
    pub(crate) hot: Option<HotTable>,
    /// Where UEs may not send to, and where G-PDUs may come from.
    pub(crate) checks: Checks,
    /// Whether UEs of any pool do not reach each other.
    pub(crate) isolates: bool,
    /// Whether only one thread at a time decides on packets.
    alone: AtomicBool,
    pub(crate) quiet: Quiescence,
}

/// What the owner must be told of a packet that was decided on without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingNotification {
    /// The count of the session that has these addresses has passed a mark.
    Uplink(SessionAddress),
    /// The same of the session of this record.
    Downlink(DownlinkId),
}

/// Whoever decides on packets: the tables, or what needs no lock and knows less.
pub(crate) trait Classifier {
    fn arrays(&self) -> &Arrays;
    /// The tables, where they are locked: these know what becomes of any packet.
    fn tables(&self) -> Option<&Tables>;
    /// Decides on a datagram from N3 and counts it to its session; `None` = the tables must be asked. `tell` gets what the
    /// owner must know of the count.
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>>;
    /// The same for a packet from N6.
    fn downlink(&self, packet: &[u8], now: Instant, tell: &mut impl FnMut(Event)) -> Option<DownlinkVerdict>;
    /// Whether the tables must be asked for the rest of the batch.
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

    /// The downlink record of an index, wherever it is.
    #[inline]
    pub(crate) fn downlink(&self, index: u32) -> Option<&DownlinkEntry> {
        let home = self.downlinks.get(index as usize)?;
        Some(self.hot.as_ref().map_or(home, |hot| hot.wherever(home)))
    }

    /// See [`Tables::decided_by_one`].
    pub(crate) fn decided_by_one(&self, alone: bool) {
        self.alone.store(alone, Relaxed);
    }

    /// Counts a packet to a record; gives the octets before it.
    #[inline]
    pub(crate) fn count(&self, state: &EntryCounters, octets: usize) -> u64 {
        // whoever holds the record's lock is alone with it
        if self.locking == Locking::SharedWriter || self.alone.load(Relaxed) {
            state.count_alone(octets)
        } else {
            state.count(octets)
        }
    }

    /// Whether an address belongs to a UE, or to nobody but a pool.
    #[inline]
    pub(crate) fn is_of_a_ue(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.contains(address))
    }

    /// Fetches the record of a TEID into the cache: the packet that asks for it is some packets ahead.
    #[inline]
    pub(crate) fn prefetch_uplink(&self, teid: Teid) {
        if let Some(record) = self.uplinks.get(teid.index() as usize) {
            prefetch(record);
        }
    }

    /// The same for a datagram that may be a G-PDU.
    #[inline]
    pub(crate) fn prefetch_datagram(&self, datagram: &[u8]) {
        if let Some(teid) = datagram.get(4..).and_then(|teid| teid.first_chunk()) {
            self.prefetch_uplink(Teid(u32::from_be_bytes(*teid)));
        }
    }

    /// Fetches what leads from a packet's destination to its record.
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

    /// Fetches the record of a packet's destination, for which what leads to it should be there; `false` if there is one
    /// more step to it ([`Arrays::prefetch_cold_of`]).
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

    /// Fetches the record of a packet's destination that is not hot.
    #[inline]
    pub(crate) fn prefetch_cold_of(&self, packet: &[u8]) {
        if let Some(key) = inner::destination(packet) {
            self.prefetch_downlink(key);
        }
    }

    /// Fetches the record of an address, for which what leads to it should be there.
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
