use crate::access::held::{HeldDatagram, HeldDatagrams};
use crate::access::table::{self, Line};
use crate::access::{KnownAddresses, PeerBinding, Use};
use crate::answer;
use crate::buffer::{BufferLimits, Buffers};
use crate::counters::Volume;
use crate::entry::{DATA, DownlinkEntry, TUNNEL_ERROR, UplinkEntry};
use crate::fast::{Arrays, Locking};
use crate::filter::Network;
use crate::flow_rules::cells::Cell;
use crate::flow_rules::{Cells, Flows};
use crate::hot::{HotManager, HotTable};
use crate::index::{self, AddressKey, HashedAddresses, Range};
use crate::ndp::Link;
use crate::processes::WorkerSlot;
use crate::rate::{Policer, Rate};
use crate::rule::{Action, DownlinkRule, Tunnel, UplinkRule};
use crate::slab::{PartitionedSlab, Slab};
use crate::slices::WorkerMap;
use crate::sys::shared::Shared;
use crate::tunnels::Tunnels;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu;

/// UE addresses of one data network, and the link parameters that its router advertises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// IPv4 network and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network and prefix length, at most 64. Each UE has a /64 of it.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link MTU in octets.
    pub mtu: u16,
    /// DNS servers. Router advertisements carry the IPv6 ones.
    pub dns: Vec<IpAddr>,
    /// If true, the UEs of the pool exchange no packets with UEs of any pool.
    pub isolated: bool,
}

impl Pool {
    /// Returns true if the address lies in the pool.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (address, self.ipv4, self.ipv6) {
            (IpAddr::V4(address), Some((base, length)), _) => {
                (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(length)
            }
            (IpAddr::V6(address), _, Some((base, length))) => {
                (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(length)
            }
            _ => false,
        }
    }
}

/// Bounds of the tables, and how writers and readers share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of tunnels, and of UEs with an address. Default 65,536; at most 2^24.
    pub records: usize,
    /// Limits of downlink buffering.
    pub buffer: BufferLimits,
    /// Number of modules. Each has a range of our TEIDs.
    pub modules: usize,
    /// Exclusion of packets and changes.
    pub locking: Locking,
    /// Approximate number of active users whose entries lie in the hot table. 0 = no hot table.
    pub hot_users: usize,
    /// Restricts the sources of a G-PDU to its session's downlink peer and [`crate::Access::ran`].
    pub own_peer_only: bool,
    /// Tunnels of an earlier run are being restored. Until [`Tables::restored`] unknown tunnels
    /// cause no Error Indication: RAN nodes would release the sessions.
    pub restoring: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            records: 65_536,
            buffer: BufferLimits::default(),
            modules: 1,
            locking: Locking::default(),
            hot_users: 0,
            own_peer_only: false,
            restoring: false,
        }
    }
}

impl Limits {
    /// Returns the number of entries, limited to the range of indexes.
    pub(crate) fn bounded(&self) -> usize {
        self.records.min(1 << 24)
    }
}

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

/// Identifies a downlink entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DownlinkId(pub(crate) u32);

/// Output that a change of the tables releases.
#[derive(Debug, Default)]
pub struct Released {
    /// Datagrams for N3. They must be sent before the next packet is classified.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Number of buffered packets that are dropped.
    pub dropped: u64,
    /// A tunnel ends: packets classified before the change must be sent before the datagrams.
    pub(crate) last: bool,
    /// Source addresses of the datagrams on N3, one of each family. `None` = the first address.
    pub sources: [Option<IpAddr>; 2],
    /// Held datagrams from N3 that must be classified before the next packet.
    pub(crate) uplinks: Vec<HeldDatagram>,
}

/// Fields of a downlink entry that only changes and reports need.
#[derive(Debug)]
struct Downlink {
    ue: SessionAddress,
    session: u64,
    pdr: u16,
}

/// Memory of the entries and of the address index: private, or shared with the kernel program.
#[derive(Debug)]
pub(crate) struct TableMemory {
    pub(crate) uplinks: Shared<UplinkEntry>,
    pub(crate) downlinks: Shared<DownlinkEntry>,
    pub(crate) addresses: Shared<AtomicU32>,
    /// Empty if no kernel program reads the entries.
    pub(crate) cells: Shared<Cell>,
    /// Slots of worker processes. Empty if the workers are threads.
    pub(crate) seats: Shared<WorkerSlot>,
    /// Address table with [`access::table::LINES`] lines.
    pub(crate) access: Shared<Line>,
}

/// Kernel copy of the lookups that are not in arrays.
pub(crate) trait KernelMirror: Send + Sync + std::fmt::Debug {
    /// Maps a foreign TEID, which encodes no index, to an entry index, or removes it.
    fn foreign(&mut self, teid: Teid, index: Option<u32>);
    /// Maps a network to the address index value of its UE and its MTU in octets, or removes it.
    fn framed(&mut self, network: Network, to: Option<(u32, u16)>);
}

/// An entry in a write section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum UnsettledEntry {
    Uplink(u32),
    Downlink(u32),
}

/// Maximum number of addresses of one pool in arrays. A hash holds the others.
pub(crate) const LARGEST: u64 = 1 << 24;

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
    others: HashedAddresses,
    changed: Vec<UnsettledEntry>,
    /// Changed entries that no packet uses until the end of the change.
    paused: HashSet<UnsettledEntry>,
    mirror: Option<Box<dyn KernelMirror>>,
    tunnels: Tunnels,
    /// State of the known addresses that the packet checks do not need.
    pub(crate) known: KnownAddresses,
    /// G-PDUs from unknown senders.
    pub(crate) held: Mutex<HeldDatagrams>,
    /// Peers of the tunnels that this change added.
    pub(crate) joined: Vec<IpAddr>,
    /// Required source of the packets with these TEIDs ([`Limits::own_peer_only`]).
    pub(crate) bound: HashMap<Teid, PeerBinding>,
    buffers: Mutex<Buffers>,
    /// Rules of the sessions that need more than entries.
    pub(crate) flows: Flows,
    pub(crate) cells: Cells,
    pub(crate) owners: WorkerMap,
    pub(crate) keeper: HotManager,
    /// Rates of the entries that point to rule lists.
    rates: HashMap<UnsettledEntry, Rate>,
    links: Vec<Link>,
    /// Next entry of [`Tables::advertise_again`], and the elapsed part of its interval.
    next_advertised: u32,
    advertising_credit: u64,
    /// Error Indications. Each kind of unsolicited answer is limited to 1,000 per second.
    pub(crate) errors: Policer,
    /// See [`Limits::restoring`].
    pub(crate) restoring: bool,
    pub(crate) echoes: Policer,
    pub(crate) responses: Policer,
    pub(crate) solicitations: Policer,
}

/// Calls of [`Tables::advertise_again`] per round over all UEs: 6 hours at 1 call/s.
const ADVERTISING_ROUND: u64 = 6 * 3600;

/// An answer counts as one octet, so this is one answer per millisecond.
pub(crate) const ANSWERS: Rate = Rate::from_kbps(8);

impl Tables {
    /// Creates empty tables for these pools.
    pub fn new(pools: Vec<Pool>, limits: Limits) -> Self {
        let ranges = index::ranges(&pools, LARGEST);
        let memories = TableMemory {
            uplinks: Shared::private(limits.bounded()),
            downlinks: Shared::private(limits.bounded()),
            addresses: Shared::private(index::entries(&ranges)),
            cells: Shared::private(0),
            seats: Shared::private(0),
            access: Shared::private(table::LINES),
        };
        Tables::over(memories, ranges, pools, limits, None)
    }

    /// Creates empty tables in `memories`, whose sizes match the limits and ranges.
    pub(crate) fn over(
        memories: TableMemory,
        ranges: Vec<Range>,
        pools: Vec<Pool>,
        limits: Limits,
        mirror: Option<Box<dyn KernelMirror>>,
    ) -> Self {
        let modules = limits.modules;
        let records = limits.bounded().min(memories.uplinks.len()).min(memories.downlinks.len());
        let links = pools.iter().map(|pool| Link::new(pool.mtu, &pool.dns)).collect();
        let hot = HotTable::new(limits.hot_users);
        let keeper = HotManager::new(hot.as_ref());
        let (mut arrays, cells) = memories.into_arrays(ranges, pools, (limits.locking, hot));
        arrays.checks.own_peer_only = limits.own_peer_only;
        Tables {
            arrays: Arc::new(arrays),
            uplinks: PartitionedSlab::new(records, modules),
            foreign: HashMap::new(),
            downlinks: Slab::new(records),
            others: HashedAddresses::default(),
            changed: vec![],
            paused: HashSet::new(),
            mirror,
            tunnels: Tunnels::new(records),
            known: KnownAddresses::default(),
            held: Mutex::default(),
            joined: vec![],
            bound: HashMap::new(),
            buffers: Mutex::new(Buffers::new(limits.buffer)),
            flows: Flows::default(),
            cells: Cells::new(cells),
            owners: WorkerMap::default(),
            keeper,
            rates: HashMap::new(),
            links,
            next_advertised: 0,
            advertising_credit: 0,
            errors: Policer::default(),
            restoring: limits.restoring,
            echoes: Policer::default(),
            responses: Policer::default(),
            solicitations: Policer::default(),
        }
    }

    /// Selects non-atomic counters. `alone` requires that one thread and no kernel program
    /// classifies.
    pub fn decided_by_one(&mut self, alone: bool) {
        self.arrays.decided_by_one(alone);
    }

    /// Makes TEIDs equal in all tables on which this is called.
    #[cfg(test)]
    pub(crate) fn choose_known_teids(&mut self) {
        self.uplinks.make_known();
    }

    /// Allocates the worker map in private memory. Drivers that steer by it supply their memory.
    pub fn enable_steering(&mut self) {
        self.owners = WorkerMap::private(self.arrays.uplinks.len(), &self.arrays.pools);
    }

    /// Returns the map from packets to workers.
    pub fn owners(&self) -> &WorkerMap {
        &self.owners
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
        self.paused.clear();
        for changed in self.changed.drain(..) {
            match changed {
                UnsettledEntry::Uplink(index) => self.arrays.uplinks[index as usize].end_write(),
                UnsettledEntry::Downlink(index) => {
                    self.arrays.downlink(index).into_iter().for_each(DownlinkEntry::settle)
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
        records.retain(|record| self.paused.insert(*record));
        for record in &records {
            match *record {
                UnsettledEntry::Uplink(index) => self.change_uplink(index).begin_write(),
                UnsettledEntry::Downlink(index) => self.change_downlink(index).open(),
            }
        }
        if !records.is_empty() {
            self.arrays.quiet.wait();
        }
    }

    /// Begins a write section on the entry of an index that is or was in use.
    fn change_uplink(&mut self, index: u32) -> &UplinkEntry {
        self.changed.push(UnsettledEntry::Uplink(index));
        &self.arrays.uplinks[index as usize]
    }

    fn change_downlink(&mut self, index: u32) -> &DownlinkEntry {
        self.changed.push(UnsettledEntry::Downlink(index));
        self.downlink(DownlinkId(index))
    }

    fn set_foreign(&mut self, teid: Teid, index: Option<u32>) {
        match index {
            Some(index) => drop(self.foreign.insert(teid, index)),
            None if self.foreign.remove(&teid).is_none() => return,
            None => {}
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.foreign(teid, index);
        }
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

    /// Returns the MTU for a UE.
    fn mtu_of(&self, id: DownlinkId) -> u16 {
        let ue = self.downlink_ue(id).unwrap_or_default();
        let of = |address: IpAddr| self.arrays.pools.iter().find(|pool| pool.contains(address)).map(|pool| pool.mtu);
        let mtus = [ue.ipv4.and_then(|v4| of(v4.into())), ue.ipv6_prefix.and_then(|v6| of(v6.into()))];
        mtus.into_iter().flatten().min().unwrap_or(0)
    }

    /// Creates an uplink entry with the TEID `given`, or with an assigned one.
    pub fn add_uplink(&mut self, given: Option<Teid>, rule: UplinkRule) -> Result<Teid, TableError> {
        self.add_uplink_in(0, given, rule)
    }

    /// Creates an uplink entry. An assigned TEID is in the range of the module.
    pub fn add_uplink_in(&mut self, module: usize, given: Option<Teid>, rule: UplinkRule) -> Result<Teid, TableError> {
        if let Some(teid) = given
            && (teid == gtpu::NO_TEID || self.uplink_index(teid).is_some())
        {
            return Err(TableError::TeidInUse);
        }
        let (index, generation) = self.uplinks.insert(module, ()).ok_or(TableError::Full)?;
        if let Some(teid) = given {
            self.change_uplink(index).begin(teid, &rule);
            self.set_foreign(teid, Some(index));
            return Ok(teid);
        }
        let own = Teid::from_index(index, generation);
        if self.foreign.contains_key(&own) {
            // A peer chose this number as a foreign TEID, so the index gets its next generation.
            self.uplinks.remove(index);
            return self.add_uplink_in(module, None, rule);
        }
        self.change_uplink(index).begin(own, &rule);
        Ok(own)
    }

    /// Creates an uplink entry with a TEID that an earlier run assigned. TEIDs restored in
    /// ascending order of their indexes keep them. Others are stored as foreign TEIDs.
    pub fn restore_uplink(&mut self, teid: Teid, rule: UplinkRule) -> Result<Teid, TableError> {
        if teid == gtpu::NO_TEID || self.uplink_index(teid).is_some() {
            return Err(TableError::TeidInUse);
        }
        if !self.uplinks.insert_at(teid.index(), teid.generation(), ()) {
            return self.add_uplink(Some(teid), rule);
        }
        self.change_uplink(teid.index()).begin(teid, &rule);
        Ok(teid)
    }

    /// Sets the number of this run, counted where tunnels are stored. Successive runs assign
    /// different TEIDs. Must be called before the first tunnel exists.
    pub fn begin_life(&mut self, life: u32) {
        self.uplinks.begin_life(life);
    }

    /// Ends the restoration of tunnels of an earlier run.
    pub fn restored(&mut self) {
        self.restoring = false;
    }

    /// Replaces the rule of a TEID.
    pub fn set_uplink(&mut self, teid: Teid, rule: UplinkRule) {
        if let Some(index) = self.uplink_index(teid) {
            let record = self.change_uplink(index);
            record.set(&rule);
            if record.overflows() {
                self.rates.insert(UnsettledEntry::Uplink(index), rule.mbr);
            }
        }
    }

    /// Points an uplink entry to a rule list for the kernel program, or removes it. Cell 0 = punt
    /// to user space.
    pub(crate) fn lead_uplink(&mut self, teid: Teid, list: Option<u32>) {
        let Some(index) = self.uplink_index(teid) else { return };
        let of = UnsettledEntry::Uplink(index);
        let record = &self.arrays.uplinks[index as usize];
        match (record.list(), list) {
            (before, after) if before == after => {}
            (before, Some(list)) => {
                if before.is_none() {
                    self.rates.insert(of, record.rule().mbr);
                }
                self.change_uplink(index).set_rule_list(list);
            }
            (_, None) => {
                let mbr = self.rates.remove(&of).unwrap_or(Rate::UNLIMITED);
                self.change_uplink(index).clear_rule_list(mbr);
            }
        }
    }

    /// Points a downlink entry to a rule list; see [`Tables::lead_uplink`].
    pub(crate) fn lead_downlink(&mut self, id: DownlinkId, list: Option<u32>) {
        let Some(rule) = self.downlink_rule(id) else { return };
        let of = UnsettledEntry::Downlink(id.0);
        match (self.downlink(id).list(), list) {
            (before, after) if before == after => {}
            (_, Some(list)) => {
                self.rates.insert(of, rule.mbr);
                self.change_downlink(id.0).set_rule_list(list);
            }
            (_, None) => {
                self.rates.remove(&of);
                self.change_downlink(id.0).clear_rule_list(rule.mbr);
            }
        }
    }

    /// Removes a TEID. Returns its volume.
    pub fn remove_uplink(&mut self, teid: Teid) -> Volume {
        self.hold_packets(&[teid], []);
        let Some(index) = self.uplink_index(teid) else {
            return Volume::default();
        };
        let record = self.change_uplink(index);
        record.end();
        let volume = record.state.volume();
        self.rates.remove(&UnsettledEntry::Uplink(index));
        self.bound.remove(&teid);
        self.set_foreign(teid, None);
        self.uplinks.remove(index);
        volume
    }

    /// Returns the volume of a TEID.
    pub fn uplink_volume(&self, teid: Teid) -> Volume {
        self.find_uplink(teid).map(|uplink| uplink.state.volume()).unwrap_or_default()
    }

    /// Creates a downlink entry for the UE with these addresses. It drops all packets until
    /// [`Tables::set_downlink`].
    pub fn add_downlink(&mut self, ue: SessionAddress, session: u64) -> Result<DownlinkId, TableError> {
        let keys = keys(ue);
        if keys.clone().any(|key| self.others.get(&self.arrays.addresses, key).is_some())
            || keys.clone().next().is_none()
        {
            return Err(TableError::AddressInUse);
        }
        let rule = DownlinkRule {
            session,
            pdr: 0,
            qfi: None,
            rqi: false,
            gate_open: true,
            action: Action::Drop,
            tunnel: None,
            mbr: Rate::UNLIMITED,
        };
        let downlink = Downlink { ue, session, pdr: 0 };
        let (index, generation) = self.downlinks.insert(downlink).ok_or(TableError::Full)?;
        self.change_downlink(index).begin(generation, &rule);
        // The generation shows lock-free readers that the entry belongs to another UE.
        let entry = Teid::from_index(index, generation).0;
        keys.for_each(|key| self.others.set(&self.arrays.addresses, key, entry));
        Ok(DownlinkId(index))
    }

    /// Replaces the rule of a downlink entry. Buffered packets are released if the rule forwards,
    /// dropped if it drops. A new tunnel triggers a router advertisement to an IPv6 UE. With
    /// `end_marker`, a replaced tunnel gets an End Marker. Every call re-enables the report of the
    /// first packet, even with an equal rule.
    pub fn set_downlink(&mut self, id: DownlinkId, rule: DownlinkRule, end_marker: bool, released: &mut Released) {
        let (Some(old), Some(downlink)) = (self.downlink_rule(id), self.downlinks.get_mut(id.0)) else {
            return;
        };
        (downlink.session, downlink.pdr) = (rule.session, rule.pdr);
        let record = self.change_downlink(id.0);
        record.set(&rule);
        record.report_again(DATA);
        let overflows = record.overflows();
        if overflows {
            self.rates.insert(UnsettledEntry::Downlink(id.0), rule.mbr);
        }
        if old.tunnel != rule.tunnel {
            self.downlink(id).report_again(TUNNEL_ERROR);
            if let Some(tunnel) = rule.tunnel {
                self.begin_use(tunnel.address, Use::Tunnel);
            }
            if let Some(tunnel) = old.tunnel {
                self.tunnels.remove(tunnel, id.0);
                self.end_use(tunnel.address, Use::Tunnel);
            }
            if let Some(tunnel) = rule.tunnel {
                let arrays = &self.arrays;
                self.tunnels.insert(tunnel, id.0, |record| arrays.downlink(record)?.tunnel());
            }
            if let (Some(tunnel), true, true) = (old.tunnel, end_marker, rule.tunnel.is_some()) {
                Tables::end_marker(tunnel, released);
            }
        }
        let was_up = old.action == Action::Forward && old.tunnel == rule.tunnel;
        match (rule.action, rule.tunnel) {
            (Action::Forward, Some(tunnel)) => {
                if !was_up {
                    released.datagrams.extend(self.advertisement(id));
                }
                if overflows {
                    return;
                }
                let packets = self.buffers().take(id.0);
                let marked = answer::container(&rule);
                let datagrams = packets.iter().filter_map(|packet| answer::g_pdu(tunnel, marked, packet));
                released.datagrams.extend(datagrams);
            }
            (Action::Buffer { .. }, _) => {}
            // The flow rules release the buffered packets.
            _ if overflows => {}
            (Action::Drop | Action::Forward, _) => self.drop_buffered(id, released),
        }
    }

    /// Returns the rule of a downlink entry.
    pub fn downlink_rule(&self, id: DownlinkId) -> Option<DownlinkRule> {
        let Downlink { session, pdr, .. } = self.downlinks.get(id.0)?;
        let record = self.downlink(id);
        let mut rule = record.rule(*session, *pdr);
        if record.overflows() {
            rule.mbr = self.rates.get(&UnsettledEntry::Downlink(id.0)).copied().unwrap_or(Rate::UNLIMITED);
        }
        Some(rule)
    }

    /// Limits the buffered packets of an entry, within [`BufferLimits::packets_per_session`].
    /// `None` = that limit.
    pub fn limit_buffer(&self, id: DownlinkId, packets: Option<usize>) {
        self.buffers().limit(id.0, packets);
    }

    /// Returns true if no UE has any of these addresses.
    pub fn is_free(&self, ue: SessionAddress) -> bool {
        keys(ue).all(|key| self.others.get(&self.arrays.addresses, key).is_none())
    }

    /// Drops the buffered packets of a downlink entry.
    pub fn drop_buffered(&self, id: DownlinkId, released: &mut Released) {
        released.dropped += self.buffers().take(id.0).len() as u64;
    }

    /// Removes a downlink entry and drops its buffered packets. Returns its volume.
    pub fn remove_downlink(&mut self, id: DownlinkId, released: &mut Released) -> Volume {
        let Some(rule) = self.downlink_rule(id) else {
            return Volume::default();
        };
        self.hold_packets(&[], [id]);
        if let Some(downlink) = self.downlinks.remove(id.0) {
            keys(downlink.ue).for_each(|key| self.others.remove(&self.arrays.addresses, key));
        }
        self.demote_entry(id);
        let record = self.change_downlink(id.0);
        record.end();
        let volume = record.state.volume();
        self.rates.remove(&UnsettledEntry::Downlink(id.0));
        if let Some(tunnel) = rule.tunnel {
            self.tunnels.remove(tunnel, id.0);
            self.end_use(tunnel.address, Use::Tunnel);
        }
        self.drop_buffered(id, released);
        self.limit_buffer(id, None);
        volume
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

    /// Returns the volume of a downlink entry.
    pub fn downlink_volume(&self, id: DownlinkId) -> Volume {
        self.downlinks.get(id.0).map(|_| self.downlink(id).state.volume()).unwrap_or_default()
    }

    /// Drops the packets that were buffered too long and returns their number. The next packet of
    /// such a UE is reported again. Must be called about once a second.
    pub fn expire_buffers(&self, now: Instant) -> u64 {
        let mut packets = 0;
        self.buffers().expire(now, |record, lost| {
            packets += lost as u64;
            self.report_data_again(DownlinkId(record));
        });
        packets
    }

    /// Sends router advertisements to some IPv6 UEs, well before the router lifetime of 18 hours
    /// ends (RFC 4861 6.2.1). An idle UE gets one with its next tunnel. Must be called about once a
    /// second.
    pub fn advertise_again(&mut self, released: &mut Released) {
        let records = self.downlinks.indexes();
        self.advertising_credit += u64::from(records);
        while self.advertising_credit >= ADVERTISING_ROUND {
            self.advertising_credit -= ADVERTISING_ROUND;
            let id = DownlinkId(self.next_advertised);
            self.next_advertised = if id.0 + 1 < records { id.0 + 1 } else { 0 };
            let active = self.downlink_rule(id).is_some_and(|rule| rule.action == Action::Forward);
            if active {
                released.datagrams.extend(self.advertisement(id));
            }
        }
    }

    /// Re-enables the report after the report of the first buffered packet was lost.
    pub(crate) fn report_data_again(&self, id: DownlinkId) {
        self.downlink(id).report_again(DATA);
    }

    /// Returns the total size of buffered packets in octets.
    pub fn buffered_octets(&self) -> usize {
        self.buffers().octets()
    }

    /// Returns the number of TEIDs and the number of UE entries.
    pub fn len(&self) -> (usize, usize) {
        (self.uplinks.len(), self.downlinks.len())
    }

    /// Returns true if the tables have no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Returns a router advertisement to the UE of an entry, as a datagram for its tunnel.
    fn advertisement(&self, id: DownlinkId) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; answer::LONGEST];
        let (to, octets) = answer::router_advertisement(self, id, None, &mut buffer)?;
        Some((to, octets.to_vec()))
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
        self.others.get(&self.arrays.addresses, key).map(|entry| DownlinkId(Teid(entry).index()))
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

    /// Returns the session and the entry of a tunnel.
    pub(crate) fn find_tunnel(&self, tunnel: Tunnel) -> Option<(u64, &DownlinkEntry)> {
        let id = DownlinkId(self.tunnels.find(tunnel, |record| self.downlink(DownlinkId(record)).tunnel())?);
        Some((self.downlinks.get(id.0)?.session, self.downlink(id)))
    }

    /// Returns the link parameters of a prefix.
    pub(crate) fn link(&self, prefix: Ipv6Addr) -> Option<&Link> {
        let position = self.arrays.pools.iter().position(|pool| pool.contains(prefix.into()))?;
        self.links.get(position)
    }

    /// Returns true if the address belongs to a pool. Its packets to N3 or N4 came through a
    /// tunnel, and no UE is a RAN node or a control plane.
    pub fn is_of_a_ue(&self, address: IpAddr) -> bool {
        self.arrays.is_of_a_ue(address)
    }

    pub(crate) fn buffers(&self) -> MutexGuard<'_, Buffers> {
        // Buffers are consistent between calls, so a panic of another worker is harmless.
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lookup keys of a UE.
pub(crate) fn keys(ue: SessionAddress) -> impl Iterator<Item = AddressKey> + Clone {
    let v4 = ue.ipv4.map(|v4| AddressKey::V4(v4.to_bits()));
    v4.into_iter().chain(ue.ipv6_prefix.map(|prefix| AddressKey::V6((prefix.to_bits() >> 64) as u64)))
}
