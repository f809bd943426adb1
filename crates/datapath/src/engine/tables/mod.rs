//! Tables: all rules of a user plane, with one writer.

mod access;
mod answers;
mod downlinks;
mod flows;
mod hot;
mod kernel_mirror;
mod released;
mod uplinks;
mod verdict;
mod write_sections;

pub(crate) use kernel_mirror::KernelMirror;
pub use released::Released;

use crate::engine::access::AccessState;
use crate::engine::advertiser::RouterAdvertiser;
use crate::engine::answer::AnswerLimits;
use crate::engine::arrays::{Arrays, ArraysConfig};
use crate::engine::buffer::Buffers;
use crate::engine::entry::{DownlinkEntry, UplinkEntry};
use crate::engine::flow_rules::Flows;
use crate::engine::hot::manager::HotManager;
use crate::engine::hot::table::HotTable;
use crate::engine::index::{self, AddressKey, DownlinkId, HashedAddresses, LARGEST_ARRAY, Range};
use crate::engine::limits::Limits;
use crate::engine::rate::Rate;
use crate::engine::slab::{PartitionedSlab, Slab};
use crate::engine::table_memory::TableMemory;
use crate::engine::tunnels::Tunnels;
use crate::engine::worker_map::WorkerMap;
use crate::network::{Network, Pool};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::gtpu;
use write_sections::{UnsettledEntry, WriteSections};

/// Reason for refusing a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// [`Limits::records`] is reached.
    #[error("the tables are full")]
    Full,
    /// Another session has this TEID.
    #[error("the TEID is in use")]
    TeidInUse,
    /// Another session has one of these addresses, or the UE has none.
    #[error("the UE's address is in use or missing")]
    AddressInUse,
}

/// Fields of a downlink entry that only changes and reports need.
#[derive(Debug)]
struct Downlink {
    ue: SessionAddress,
    session: u64,
    pdr: u16,
}

/// All rules of a user plane and the state of its packets.
///
/// One writer, the control side, changes them. Classifying packets needs only `&self`. The tables
/// know sessions as numbers. They have no sockets and no clock, and do not know PFCP.
#[derive(Debug)]
pub struct Tables {
    /// Entries and address index, which are read without a lock.
    arrays: Arc<Arrays>,
    uplinks: PartitionedSlab<()>,
    /// TEIDs that this user plane did not assign.
    foreign: HashMap<Teid, u32>,
    downlinks: Slab<Downlink>,
    /// UE addresses that lie in no array.
    hashed_addresses: HashedAddresses,
    writes: WriteSections,
    /// Rates of the entries that point to rule lists.
    rates: HashMap<UnsettledEntry, Rate>,
    mirror: Option<Box<dyn KernelMirror>>,
    tunnels: Tunnels,
    /// Access state that the checks of packets do not need.
    pub(crate) access: AccessState,
    buffers: Mutex<Buffers>,
    /// Rules of the sessions that need more than entries.
    flows: Flows,
    /// Map from packets to workers.
    worker_map: WorkerMap,
    hot: HotManager,
    advertiser: RouterAdvertiser,
    answer_limits: AnswerLimits,
    /// True until [`Tables::end_restoration`]; see [`Limits::restoring`].
    restoring: bool,
}

impl Tables {
    /// Creates empty tables for these pools.
    pub fn new(pools: Vec<Pool>, limits: Limits) -> Self {
        let ranges = index::ranges(&pools, LARGEST_ARRAY);
        let memory = TableMemory::private(limits.bounded(), &ranges);
        Tables::over(memory, ranges, pools, limits, None)
    }

    /// Creates empty tables in `memory`, whose sizes match the limits and ranges.
    pub(crate) fn over(
        memory: TableMemory,
        ranges: Vec<Range>,
        pools: Vec<Pool>,
        limits: Limits,
        mirror: Option<Box<dyn KernelMirror>>,
    ) -> Self {
        let entries = limits.bounded().min(memory.uplinks.len()).min(memory.downlinks.len());
        let advertiser = RouterAdvertiser::new(&pools);
        let hot_table = HotTable::new(limits.hot_users);
        let hot = HotManager::new(hot_table.as_ref());
        let config = ArraysConfig { ranges, pools, locking: limits.locking, own_peer_only: limits.own_peer_only };
        let (arrays, cells) = Arrays::new(memory, config, hot_table);
        Tables {
            arrays: Arc::new(arrays),
            uplinks: PartitionedSlab::new(entries, limits.modules),
            foreign: HashMap::new(),
            downlinks: Slab::new(entries),
            hashed_addresses: HashedAddresses::default(),
            writes: WriteSections::default(),
            rates: HashMap::new(),
            mirror,
            tunnels: Tunnels::new(entries),
            access: AccessState::default(),
            buffers: Mutex::new(Buffers::new(limits.buffer)),
            flows: Flows::new(cells),
            worker_map: WorkerMap::default(),
            hot,
            advertiser,
            answer_limits: AnswerLimits::new(),
            restoring: limits.restoring,
        }
    }

    /// Selects non-atomic counters. `alone` requires that one thread and no kernel program
    /// classifies.
    pub fn set_single_worker(&mut self, alone: bool) {
        self.arrays.set_single_worker(alone);
    }

    /// Makes TEIDs equal in all tables on which this is called.
    #[cfg(test)]
    pub(crate) fn choose_known_teids(&mut self) {
        self.uplinks.make_generations_known();
    }

    /// Allocates the worker map in private memory. Drivers that steer by it supply their memory.
    pub fn enable_steering(&mut self) {
        self.worker_map = WorkerMap::private(self.arrays.uplinks.len(), &self.arrays.pools);
    }

    /// Sets the map from packets to workers that a driver steers by.
    pub(crate) fn set_worker_map(&mut self, map: WorkerMap) {
        self.worker_map = map;
    }

    /// Returns the map from packets to workers.
    pub fn worker_map(&self) -> &WorkerMap {
        &self.worker_map
    }

    /// Returns the session of the UE that has the address.
    pub fn session_at(&self, address: IpAddr) -> Option<u64> {
        let key = match address {
            IpAddr::V4(v4) => AddressKey::V4(v4.to_bits()),
            IpAddr::V6(v6) => AddressKey::V6((v6.to_bits() >> 64) as u64),
        };
        self.session_of(self.find_downlink(key)?)
    }

    /// Returns the part that is read without a lock.
    #[inline]
    pub(crate) fn arrays(&self) -> &Arrays {
        &self.arrays
    }

    pub(crate) fn shared_arrays(&self) -> Arc<Arrays> {
        self.arrays.clone()
    }

    /// Ends all write sections of the change, whose output the caller has sent. Until this call,
    /// packets of changed entries wait.
    pub(crate) fn settle(&mut self) {
        self.writes.paused.clear();
        for changed in self.writes.changed.drain(..) {
            match changed {
                UnsettledEntry::Uplink(index) => self.arrays.uplinks[index as usize].end_write(),
                UnsettledEntry::Downlink(index) => {
                    self.arrays.downlink(index).into_iter().for_each(DownlinkEntry::end_write)
                }
            }
        }
    }

    /// Holds the packets of these entries until the end of the change, and waits for running
    /// batches. The counters are then final. A kernel program may still count the packet that it
    /// processes.
    pub fn hold_packets(&mut self, uplinks: &[Teid], downlinks: impl IntoIterator<Item = DownlinkId>) {
        let uplinks = uplinks.iter().filter_map(|teid| self.uplink_index(*teid)).map(UnsettledEntry::Uplink);
        let mut records: Vec<_> =
            uplinks.chain(downlinks.into_iter().map(|id| UnsettledEntry::Downlink(id.0))).collect();
        records.retain(|record| self.writes.paused.insert(*record));
        for record in &records {
            match *record {
                UnsettledEntry::Uplink(index) => self.change_uplink(index).begin_write(),
                UnsettledEntry::Downlink(index) => self.change_downlink(index).begin_write(),
            }
        }
        if !records.is_empty() {
            self.arrays.quiescence.wait();
        }
    }

    /// Begins a write section on the entry of an index that is or was in use.
    fn change_uplink(&mut self, index: u32) -> &UplinkEntry {
        self.writes.changed.push(UnsettledEntry::Uplink(index));
        &self.arrays.uplinks[index as usize]
    }

    fn change_downlink(&mut self, index: u32) -> &DownlinkEntry {
        self.writes.changed.push(UnsettledEntry::Downlink(index));
        self.downlink(DownlinkId(index))
    }

    /// Updates the network in the kernel program's lookups.
    pub(crate) fn mirror_framed(&mut self, network: Network, to: Option<DownlinkId>) {
        let to = to.map(|id| (self.entry(id), self.mtu_of(id)));
        if let Some(mirror) = &mut self.mirror {
            mirror.framed(network, to);
        }
    }

    /// Returns the value of a UE in the address index.
    pub(crate) fn entry(&self, id: DownlinkId) -> u32 {
        Teid::from_index(id.0, self.downlink(id).generation()).0
    }

    /// Enables [`crate::Event::Volume`] each time a count of these entries passes a multiple of
    /// 2^`watch` octets ([`crate::watch_for`]). 0 = never. The setting ends with the entry.
    pub fn watch(&self, uplinks: &[Teid], downlinks: impl Iterator<Item = DownlinkId>, watch: u32) {
        uplinks.iter().filter_map(|teid| self.find_uplink(*teid)).for_each(|record| record.set_watch(watch));
        let downlinks = downlinks.filter(|id| self.downlinks.get(id.0).is_some());
        downlinks.for_each(|id| self.downlink(id).set_watch(watch));
    }

    /// Marks entries as lean or not. Their packets are not watched, and workers count the packets
    /// of all lean entries together. The setting ends with the entry.
    pub fn set_lean(&self, uplinks: &[Teid], downlinks: impl Iterator<Item = DownlinkId>, lean: bool) {
        uplinks.iter().filter_map(|teid| self.find_uplink(*teid)).for_each(|record| record.set_lean(lean));
        let downlinks = downlinks.filter(|id| self.downlinks.get(id.0).is_some());
        downlinks.for_each(|id| self.downlink(id).set_lean(lean));
    }

    /// Returns the number of TEIDs and the number of UE entries.
    pub fn len(&self) -> (usize, usize) {
        (self.uplinks.len(), self.downlinks.len())
    }

    /// Returns true if the tables have no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    #[inline]
    fn uplink_index(&self, teid: Teid) -> Option<u32> {
        match self.arrays.uplinks.get(teid.index() as usize) {
            Some(record) if record.teid() == teid && teid != gtpu::NO_TEID => Some(teid.index()),
            _ if self.foreign.is_empty() => None,
            _ => self.foreign.get(&teid).copied(),
        }
    }

    #[inline]
    pub(crate) fn find_uplink(&self, teid: Teid) -> Option<&UplinkEntry> {
        self.arrays.uplinks.get(self.uplink_index(teid)? as usize)
    }

    #[inline]
    pub(crate) fn find_downlink(&self, key: AddressKey) -> Option<DownlinkId> {
        self.hashed_addresses.get(&self.arrays.addresses, key).map(|entry| DownlinkId(Teid(entry).index()))
    }

    /// Returns the entry of a downlink index that is or was in use.
    #[inline]
    pub(crate) fn downlink(&self, id: DownlinkId) -> &DownlinkEntry {
        self.arrays.downlink(id.0).unwrap_or_else(|| &self.arrays.downlinks[id.0 as usize])
    }

    /// Returns the session of the entry.
    pub(crate) fn session_of(&self, id: DownlinkId) -> Option<u64> {
        self.downlinks.get(id.0).map(|downlink| downlink.session)
    }

    pub(crate) fn downlink_ue(&self, id: DownlinkId) -> Option<SessionAddress> {
        self.downlinks.get(id.0).map(|downlink| downlink.ue)
    }

    /// Returns true if the address belongs to a pool. Its packets to N3 or N4 came through a
    /// tunnel, and no UE is a RAN node or a control plane.
    pub fn is_in_pools(&self, address: IpAddr) -> bool {
        self.arrays.is_in_pools(address)
    }

    pub(crate) fn buffers(&self) -> MutexGuard<'_, Buffers> {
        // Buffers are consistent between calls, so a panic of another worker is harmless.
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
