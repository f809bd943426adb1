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

/// The addresses of one data network's UEs, and what its routers tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// IPv4 network and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network and prefix length, 64 at the most; each UE has a /64 of it.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link MTU in octets.
    pub mtu: u16,
    /// DNS servers; the IPv6 ones are told in router advertisements.
    pub dns: Vec<IpAddr>,
    /// Whether its UEs neither send to UEs nor are sent to by UEs, of whichever pool.
    pub isolated: bool,
}

impl Pool {
    /// Whether an address lies in the pool.
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

/// The bounds of the tables, and how they are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tunnels, and UEs with an address, each. Default 65,536; 2^24 at the most.
    pub records: usize,
    /// Downlink buffering.
    pub buffer: BufferLimits,
    /// Modules, each with a range of our TEIDs.
    pub modules: usize,
    /// How packets and changes keep out of each other's way.
    pub locking: Locking,
    /// Users whose records lie together while they have packets, about; 0 = all stay where they are.
    pub hot_users: usize,
    /// Whether a G-PDU must come from the address that its session's downlink packets go to, or from [`crate::Access::ran`].
    pub own_peer_only: bool,
    /// Tunnels of another life of this program are to be restored: until [`Tables::restored`] nobody is told of one that is not there,
    /// or RAN nodes would let sessions go.
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
    /// Records that an index can name.
    pub(crate) fn bounded(&self) -> usize {
        self.records.min(1 << 24)
    }
}

/// Why a rule was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// [`Limits::records`] is reached.
    #[error("the tables are full")]
    Full,
    /// Another session has this TEID.
    #[error("the TEID is in use")]
    TeidInUse,
    /// Another session has one of these addresses, or there is none.
    #[error("the UE's address is in use or missing")]
    AddressInUse,
}

/// A downlink record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DownlinkId(pub(crate) u32);

/// What a change of the tables lets go.
#[derive(Debug, Default)]
pub struct Released {
    /// Datagrams for N3: they must leave before the next packet is decided on.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Packets that were buffered and are dropped.
    pub dropped: u64,
    /// Whether all that was decided before the change must leave before them: a tunnel ends.
    pub(crate) last: bool,
    /// Our addresses on N3 that the datagrams leave from, one of each family; `None` = the first.
    pub sources: [Option<IpAddr>; 2],
    /// Datagrams from N3 that were held and are decided on now, before the next packet.
    pub(crate) uplinks: Vec<HeldDatagram>,
}

/// What of a downlink record only changes and reports need.
#[derive(Debug)]
struct Downlink {
    ue: SessionAddress,
    session: u64,
    pdr: u16,
}

/// Where the records and the index of addresses lie: memory of our own, or of the kernel's program too.
#[derive(Debug)]
pub(crate) struct TableMemory {
    pub(crate) uplinks: Shared<UplinkEntry>,
    pub(crate) downlinks: Shared<DownlinkEntry>,
    pub(crate) addresses: Shared<AtomicU32>,
    /// None where nobody reads records beside us.
    pub(crate) cells: Shared<Cell>,
    /// Words of workers that are processes of their own; none where they are threads.
    pub(crate) seats: Shared<WorkerSlot>,
    /// The table of addresses, of [`access::table::LINES`] lines.
    pub(crate) access: Shared<Line>,
}

/// Whoever looks for records beside us; told of what is not in arrays.
pub(crate) trait KernelMirror: Send + Sync + std::fmt::Debug {
    /// The TEID, which is no index, leads to this index now, or to none.
    fn foreign(&mut self, teid: Teid, index: Option<u32>);
    /// The network leads to the UE of this entry now, with packets of at most so many octets, or to none.
    fn framed(&mut self, network: Network, to: Option<(u32, u16)>);
}

/// A record that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum UnsettledEntry {
    Uplink(u32),
    Downlink(u32),
}

/// Addresses of one pool that are kept in arrays; beyond these they go to a hash.
pub(crate) const LARGEST: u64 = 1 << 24;

/// All rules of a user plane and the state of their packets. One owner changes them; the functions that decide on
/// packets ([`Tables::uplink`], [`Tables::downlink`]) only need `&self`.
///
/// It knows sessions as numbers and has no sockets, no clock and no idea of PFCP.
#[derive(Debug)]
pub struct Tables {
    /// Records and addresses, which are read without a lock.
    arrays: Arc<Arrays>,
    uplinks: PartitionedSlab<()>,
    /// TEIDs that were not ours to choose.
    foreign: HashMap<Teid, u32>,
    downlinks: Slab<Downlink>,
    others: HashedAddresses,
    changed: Vec<UnsettledEntry>,
    /// Changed records that nobody goes by any more.
    paused: HashSet<UnsettledEntry>,
    mirror: Option<Box<dyn KernelMirror>>,
    tunnels: Tunnels,
    /// What is known of addresses beside what packets are checked against.
    pub(crate) known: KnownAddresses,
    /// G-PDUs whose sender is not known yet.
    pub(crate) held: Mutex<HeldDatagrams>,
    /// Where tunnels lead to that have come in this change.
    pub(crate) joined: Vec<IpAddr>,
    /// Where packets of these TEIDs must come from, if it matters ([`Limits::own_peer_only`]).
    pub(crate) bound: HashMap<Teid, PeerBinding>,
    buffers: Mutex<Buffers>,
    /// The rules of sessions that need more than records hold.
    pub(crate) flows: Flows,
    pub(crate) cells: Cells,
    pub(crate) owners: WorkerMap,
    pub(crate) keeper: HotManager,
    /// The rates of records that lead to such rules.
    rates: HashMap<UnsettledEntry, Rate>,
    links: Vec<Link>,
    /// Where [`Tables::advertise_again`] goes on, and how much of the next record's turn has passed.
    next_advertised: u32,
    advertising_credit: u64,
    /// Answers to what nobody asked for are limited: 1,000 a second and kind.
    pub(crate) errors: Policer,
    /// See [`Limits::restoring`].
    pub(crate) restoring: bool,
    pub(crate) echoes: Policer,
    pub(crate) responses: Policer,
    pub(crate) solicitations: Policer,
}

/// In how many calls of [`Tables::advertise_again`] every UE has its turn: with one a second, 6 hours.
const ADVERTISING_ROUND: u64 = 6 * 3600;

/// An answer counts as one octet: one a millisecond.
pub(crate) const ANSWERS: Rate = Rate::from_kbps(8);

impl Tables {
    /// Empty tables for these pools.
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

    /// Empty tables over these memories, which are as large as limits and ranges say.
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

    /// Says whether only one thread at a time decides on packets, and no program in the kernel: then it counts without
    /// keeping others from it.
    pub fn decided_by_one(&mut self, alone: bool) {
        self.arrays.decided_by_one(alone);
    }

    /// Chooses the TEIDs that other tables choose of which this is said.
    #[cfg(test)]
    pub(crate) fn choose_known_teids(&mut self) {
        self.uplinks.make_known();
    }

    /// Has words for whose packets a worker handles, in memory of our own. Drivers that steer by them have their own.
    pub fn enable_steering(&mut self) {
        self.owners = WorkerMap::private(self.arrays.uplinks.len(), &self.arrays.pools);
    }

    /// Whose packets which worker handles.
    pub fn owners(&self) -> &WorkerMap {
        &self.owners
    }

    /// Whose the address is: the session of the UE that has it.
    pub fn session_at(&self, address: IpAddr) -> Option<u64> {
        let key = match address {
            IpAddr::V4(v4) => AddressKey::V4(v4.to_bits()),
            IpAddr::V6(v6) => AddressKey::V6((v6.to_bits() >> 64) as u64),
        };
        self.session_of(self.find_downlink(key)?)
    }

    /// What is read without a lock.
    #[inline]
    pub(crate) fn arrays(&self) -> &Arrays {
        &self.arrays
    }

    pub(crate) fn shared_arrays(&self) -> Arc<Arrays> {
        self.arrays.clone()
    }

    /// Says that what the changes so far let go has left: packets may go by the records as they are now, without a lock.
    /// Until then the packets of changed records wait for us.
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

    /// Keeps packets from these records until the end of the change, and waits for those that are being decided on: from
    /// now on what the records have counted stays as it is. A program in the kernel may still be counting the packet that
    /// it has.
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

    /// The record of an index that is in use or was.
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

    /// Tells whoever looks for records beside us what a network leads to.
    pub(crate) fn mirror_framed(&mut self, network: Network, to: Option<DownlinkId>) {
        let to = to.map(|id| (self.entry(id), self.mtu_of(id)));
        if let Some(mirror) = &mut self.mirror {
            mirror.framed(network, to);
        }
    }

    /// The entry of a UE in arrays of addresses.
    pub(crate) fn entry(&self, id: DownlinkId) -> u32 {
        Teid::from_index(id.0, self.downlink(id).generation()).0
    }

    /// The longest packet for a UE.
    fn mtu_of(&self, id: DownlinkId) -> u16 {
        let ue = self.downlink_ue(id).unwrap_or_default();
        let of = |address: IpAddr| self.arrays.pools.iter().find(|pool| pool.contains(address)).map(|pool| pool.mtu);
        let mtus = [ue.ipv4.and_then(|v4| of(v4.into())), ue.ipv6_prefix.and_then(|v6| of(v6.into()))];
        mtus.into_iter().flatten().min().unwrap_or(0)
    }

    /// Makes an uplink record under a TEID of our choice, or under the one given.
    pub fn add_uplink(&mut self, given: Option<Teid>, rule: UplinkRule) -> Result<Teid, TableError> {
        self.add_uplink_in(0, given, rule)
    }

    /// The same, where the TEID is one of a module's.
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
            // somebody else chose this very number: the index gets its next generation
            self.uplinks.remove(index);
            return self.add_uplink_in(module, None, rule);
        }
        self.change_uplink(index).begin(own, &rule);
        Ok(own)
    }

    /// Makes an uplink record under a TEID that was ours in another life of this program. In the order of their indexes such TEIDs lead
    /// to their records as they did; others are as good as foreign ones.
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

    /// The number of this life of the program, counted where tunnels are written down that are to be restored: other TEIDs are chosen
    /// than those of the lives before. To be called before there is a tunnel.
    pub fn begin_life(&mut self, life: u32) {
        self.uplinks.begin_life(life);
    }

    /// All tunnels of another life are there that can be.
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

    /// Says that the packets of a TEID are decided on by further rules, which the kernel's program finds from this cell on
    /// (0 = not at all), or not any more.
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

    /// The same of a downlink record.
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

    /// Removes a TEID; tells what it carried.
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

    /// What a TEID has carried.
    pub fn uplink_volume(&self, teid: Teid) -> Volume {
        self.find_uplink(teid).map(|uplink| uplink.state.volume()).unwrap_or_default()
    }

    /// Makes a downlink record for the UE of these addresses, which no other may have. It drops everything until
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
        // the generation tells whoever reads without our lock that the record is another's meanwhile
        let entry = Teid::from_index(index, generation).0;
        keys.for_each(|key| self.others.set(&self.arrays.addresses, key, entry));
        Ok(DownlinkId(index))
    }

    /// Replaces the rule of a downlink record. What was buffered is let go if the rule forwards and dropped if it
    /// drops; a tunnel that comes up tells an IPv6 UE its prefix; with `end_marker` the old tunnel is ended when there
    /// is a new one. A rule that buffers reports its first packet anew, be it the same rule or another.
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
            // what waits is let go by the further rules
            _ if overflows => {}
            (Action::Drop | Action::Forward, _) => self.drop_buffered(id, released),
        }
    }

    /// The rule of a downlink record.
    pub fn downlink_rule(&self, id: DownlinkId) -> Option<DownlinkRule> {
        let Downlink { session, pdr, .. } = self.downlinks.get(id.0)?;
        let record = self.downlink(id);
        let mut rule = record.rule(*session, *pdr);
        if record.overflows() {
            rule.mbr = self.rates.get(&UnsettledEntry::Downlink(id.0)).copied().unwrap_or(Rate::UNLIMITED);
        }
        Some(rule)
    }

    /// Says how many packets of a downlink record may wait, within [`BufferLimits::packets_per_session`]; `None` = as
    /// many as that.
    pub fn limit_buffer(&self, id: DownlinkId, packets: Option<usize>) {
        self.buffers().limit(id.0, packets);
    }

    /// Whether no UE has any of these addresses.
    pub fn is_free(&self, ue: SessionAddress) -> bool {
        keys(ue).all(|key| self.others.get(&self.arrays.addresses, key).is_none())
    }

    /// Drops what is buffered for a downlink record.
    pub fn drop_buffered(&self, id: DownlinkId, released: &mut Released) {
        released.dropped += self.buffers().take(id.0).len() as u64;
    }

    /// Removes a downlink record, and drops what is buffered for it; tells what it carried.
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

    /// Has the owner told ([`crate::Event::Volume`]) each time that one of these records' counts passes a multiple of
    /// 2^`watch` octets ([`crate::watch_for`]); 0 = never. It is forgotten when a record ends.
    pub fn watch(&self, uplinks: &[Teid], downlinks: impl Iterator<Item = DownlinkId>, watch: u32) {
        uplinks.iter().filter_map(|teid| self.find_uplink(*teid)).for_each(|record| record.set_watch(watch));
        let downlinks = downlinks.filter(|id| self.downlinks.get(id.0).is_some());
        downlinks.for_each(|id| self.downlink(id).set_watch(watch));
    }

    /// Says that these records' packets are not counted one by one, and that nobody watches them, or that they are again:
    /// whoever decides on them counts them all together. It is forgotten when a record ends.
    pub fn set_lean(&self, uplinks: &[Teid], downlinks: impl Iterator<Item = DownlinkId>, lean: bool) {
        uplinks.iter().filter_map(|teid| self.find_uplink(*teid)).for_each(|record| record.set_lean(lean));
        let downlinks = downlinks.filter(|id| self.downlinks.get(id.0).is_some());
        downlinks.for_each(|id| self.downlink(id).set_lean(lean));
    }

    /// What a downlink record has carried.
    pub fn downlink_volume(&self, id: DownlinkId) -> Volume {
        self.downlinks.get(id.0).map(|_| self.downlink(id).state.volume()).unwrap_or_default()
    }

    /// Drops what has waited too long and tells how many packets that were; the next one for such a UE is reported
    /// anew. To be called about once a second.
    pub fn expire_buffers(&self, now: Instant) -> u64 {
        let mut packets = 0;
        self.buffers().expire(now, |record, lost| {
            packets += lost as u64;
            self.report_data_again(DownlinkId(record));
        });
        packets
    }

    /// Tells some of the IPv6 UEs their prefix again, so that each hears it well before its router's lifetime of 18
    /// hours ends (RFC 4861 6.2.1). Idle UEs are told when they are back. To be called about once a second.
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

    /// The report of the first buffered packet was lost: the next packet is reported.
    pub(crate) fn report_data_again(&self, id: DownlinkId) {
        self.downlink(id).report_again(DATA);
    }

    /// Octets that wait in buffers.
    pub fn buffered_octets(&self) -> usize {
        self.buffers().octets()
    }

    /// How many TEIDs and how many UE records there are.
    pub fn len(&self) -> (usize, usize) {
        (self.uplinks.len(), self.downlinks.len())
    }

    /// Whether there is no record at all.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// A router advertisement for the UE of a record, as the datagram that goes into its tunnel.
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

    /// The record of a downlink that is in use or was.
    #[inline]
    pub(crate) fn downlink(&self, id: DownlinkId) -> &DownlinkEntry {
        self.arrays.downlink(id.0).unwrap_or_else(|| &self.arrays.downlinks[id.0 as usize])
    }

    /// Whose record it is.
    pub(crate) fn session_of(&self, id: DownlinkId) -> Option<u64> {
        self.downlinks.get(id.0).map(|downlink| downlink.session)
    }

    pub(crate) fn downlink_ue(&self, id: DownlinkId) -> Option<SessionAddress> {
        self.downlinks.get(id.0).map(|downlink| downlink.ue)
    }

    /// Whose tunnel it is: session and record.
    pub(crate) fn find_tunnel(&self, tunnel: Tunnel) -> Option<(u64, &DownlinkEntry)> {
        let id = DownlinkId(self.tunnels.find(tunnel, |record| self.downlink(DownlinkId(record)).tunnel())?);
        Some((self.downlinks.get(id.0)?.session, self.downlink(id)))
    }

    /// What is told of the link that a prefix is on.
    pub(crate) fn link(&self, prefix: Ipv6Addr) -> Option<&Link> {
        let position = self.arrays.pools.iter().position(|pool| pool.contains(prefix.into()))?;
        self.links.get(position)
    }

    /// Whether an address belongs to a UE, or to nobody but a pool: what it sends to N3 or N4 came through a tunnel,
    /// and no UE is a RAN node or a control plane.
    pub fn is_of_a_ue(&self, address: IpAddr) -> bool {
        self.arrays.is_of_a_ue(address)
    }

    pub(crate) fn buffers(&self) -> MutexGuard<'_, Buffers> {
        // the buffers are consistent between their calls: a worker that panicked elsewhere spoils nothing
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a UE is found by.
pub(crate) fn keys(ue: SessionAddress) -> impl Iterator<Item = AddressKey> + Clone {
    let v4 = ue.ipv4.map(|v4| AddressKey::V4(v4.to_bits()));
    v4.into_iter().chain(ue.ipv6_prefix.map(|prefix| AddressKey::V6((prefix.to_bits() >> 64) as u64)))
}
