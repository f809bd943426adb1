//! The driver in the kernel: an XDP program (`bpf/upf.bpf.c`) that does what is usual, on the records of our tables.
//!
//! The tables lie in the program's maps, so rules, rates and counters are shared and nothing is copied. What the
//! program passes goes to the sockets driver, which runs as ever. The program is attached by links that this process
//! owns: when it ends, however it ends, the kernel takes the program off, and nothing is pinned.

mod shared;
#[cfg(test)]
mod tests;

use crate::access::table;
use crate::counters::Stats;
use crate::filter::Network;
use crate::flow_rules::{FlowPackets, cells};
use crate::index;
use crate::modules::{self, Module};
use crate::os_setup::{self, StartError};
use crate::slices::{self, WorkerLoad};
use crate::sys::bpf::Attached;
use crate::sys::netlink;
use crate::sys::shared::Shared;
use crate::tables::{KernelMirror, Limits, Pool, TableMemory, Tables};
use aya::maps::lpm_trie::{self, LpmTrie};
use aya::maps::{CpuMap, HashMap, Map, MapData, MapError, PerCpuArray, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp as Program};
use aya::{Ebpf, EbpfLoader};
pub(crate) use shared::Config;
use shared::Counted;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use tracing::{info, warn};
use vireo_types::Teid;

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the network driver, before the kernel makes a packet of its own of what was received.
    #[default]
    Native,
    /// In the kernel's stack, for drivers that have no XDP. Slower, for tests and odd hardware.
    Generic,
}

/// What the XDP driver is told at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpConfig {
    /// The Ethernet interfaces of N3 and N6. Packets leave by these alone, by the kernel's routes; what is routed
    /// elsewhere goes through the sockets driver.
    pub interfaces: Vec<String>,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Where uplink packets go, at most one of each family: by this next hop, whatever the routes for their
    /// destinations are (also those to networks behind other UEs), unless these are in the pools or N3 addresses of
    /// ours. Without one they go by the routes, which are asked for every packet.
    pub next_hops: Vec<IpAddr>,
    /// Parts with interfaces, N3 addresses and next hops of their own; none = all is one.
    pub modules: Vec<Module>,
    /// Whether the network cards divide packets among their queues by ranges of addresses.
    pub nic_filters: bool,
}

/// Addresses of one pool that are in the kernel's arrays, which take their memory at once; what lies beyond is found
/// by the sockets driver.
const LARGEST: u64 = 1 << 22;

/// Aligned as ELF asks.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/upf.bpf.o")));

/// The loaded program. The kernel takes it off all interfaces when this is dropped.
#[derive(Debug)]
pub(crate) struct Xdp {
    bpf: Ebpf,
    interfaces: Vec<(String, u32)>,
    modules: Vec<Module>,
    /// The program that frames come to first.
    entry: &'static str,
    mode: XdpMode,
    links: Vec<Attached>,
    counted: KernelCounters,
}

impl Xdp {
    /// Loads the program; gives the tables that it reads. It is on no interface yet. The kernel's routes for UEs lead to
    /// the device `tun`. With `nat`, uplink packets go to the
    /// kernel's stack, which sends them on. Where there are slices, each user's packets are handled by the processor of its
    /// worker.
    pub(crate) fn load(
        config: &XdpConfig,
        n3: &[IpAddr],
        pools: Vec<Pool>,
        limits: Limits,
        tun: &str,
        nat: bool,
        processors: &[usize],
    ) -> Result<(Self, Tables), StartError> {
        if config.interfaces.is_empty() {
            return Err(StartError::NoXdpInterface);
        }
        let index = |name: &String| match netlink::index_of(name) {
            Ok(index) => Ok((name.clone(), index)),
            Err(_) => Err(StartError::XdpInterface(name.clone())),
        };
        let interfaces = config.interfaces.iter().map(index).collect::<Result<Vec<_>, _>>()?;
        let indexes: Vec<u32> = interfaces.iter().map(|(_, index)| *index).collect();
        let ranges = index::ranges(&pools, LARGEST);
        let records = limits.bounded().max(1);
        let entries = index::entries(&ranges).next_multiple_of(ENTRIES).max(ENTRIES);
        let cells = (2 * records).clamp(1024, cells::MOST);
        let mut constants = Config::new(&ranges, n3, &indexes, &config.next_hops)?;
        constants.set_tun(netlink::index_of(tun)?);
        constants.divide(&config.modules, &interfaces)?;
        constants.place(processors);
        constants.keep_apart(limits.own_peer_only, pools.iter().any(|pool| pool.isolated));
        if nat {
            if !config.next_hops.is_empty() || config.modules.iter().any(|module| !module.next_hops.is_empty()) {
                return Err(StartError::XdpNatNextHop);
            }
            os_setup::reverse_path(&config.interfaces)?;
            constants.leave_to_stack();
        }
        let mut loader = EbpfLoader::new();
        let loader = slices::steer::sized(loader.override_global("config", &constants, true), &ranges, limits);
        let mut bpf = loader
            .map_max_entries("processors", processors.iter().max().map_or(1, |most| *most as u32 + 1))
            .map_max_entries("uplinks", records as u32)
            .map_max_entries("downlinks", records as u32)
            .map_max_entries("addresses", (entries / ENTRIES) as u32)
            .map_max_entries("foreign", records as u32)
            .map_max_entries("framed", records as u32)
            .map_max_entries("cells", cells as u32)
            .load(&OBJECT.0)
            .map_err(|error| refused(&error))?;
        for name in PROGRAMS {
            program(&mut bpf, name)?.load().map_err(|error| refused(&error))?;
        }
        go_on(&mut bpf, "programs", &PROGRAMS)?;
        let entry = match processors.is_empty() {
            true => PROGRAMS[0],
            false => divide(&mut bpf, processors)?,
        };
        let owners = slices::steer::owners(&bpf, ranges.clone(), limits)?;
        let memories = TableMemory {
            uplinks: mapped(&bpf, "uplinks", records)?,
            downlinks: mapped(&bpf, "downlinks", records)?,
            addresses: mapped(&bpf, "addresses", entries)?,
            cells: mapped(&bpf, "cells", cells)?,
            seats: Shared::private(0),
            access: mapped(&bpf, "access", table::LINES)?,
        };
        let found = LookupMaps { foreign: taken(&mut bpf, "foreign")?, framed: taken(&mut bpf, "framed")? };
        let counted = taken(&mut bpf, "counted")?;
        let mut tables = Tables::over(memories, ranges, pools, limits, Some(Box::new(found)));
        if !processors.is_empty() {
            tables.owners = owners;
        }
        let counted = KernelCounters { all: Arc::new(counted), workers: processors.into() };
        Ok((
            Xdp { bpf, interfaces, modules: config.modules.clone(), entry, mode: config.mode, links: vec![], counted },
            tables,
        ))
    }

    /// Puts the program on its interfaces.
    pub(crate) fn attach(&mut self) -> Result<(), StartError> {
        let mode = match self.mode {
            XdpMode::Native => aya::programs::XdpMode::Driver,
            XdpMode::Generic => aya::programs::XdpMode::Skb,
        };
        let program: &mut Program = program(&mut self.bpf, self.entry)?;
        for (name, index) in &self.interfaces {
            let link = program.attach_to_if_index(*index, mode).map_err(|error| not_attached(name, &error))?;
            let link = program.take_link(link).map_err(|error| refused(&error))?;
            // one that is no descriptor would outlive a process that is killed
            let link = FdLink::try_from(link).map_err(|_| StartError::Xdp("it has no links for XDP".to_owned()))?;
            self.links.push(link.into());
        }
        modules::move_interrupts(&self.modules);
        let names: Vec<&str> = self.interfaces.iter().map(|(name, _)| name.as_str()).collect();
        info!("XDP: {:?} on {}", self.mode, names.join(", "));
        Ok(())
    }

    /// The interfaces that are there no more, or are others of the same name: the program is not on them, and their
    /// packets go through the sockets.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &str> {
        let lost = |(name, index): &&(String, u32)| netlink::index_of(name).ok() != Some(*index);
        self.interfaces.iter().filter(lost).map(|(name, _)| name.as_str())
    }

    /// What the program counts.
    pub(crate) fn counters(&self) -> KernelCounters {
        self.counted.clone()
    }
}

/// `struct entries` of `bpf/entry.h`.
const ENTRIES: usize = 16;

/// The counters of all processors.
#[derive(Clone)]
pub(crate) struct KernelCounters {
    all: Arc<PerCpuArray<MapData, Counted>>,
    /// The processors of the workers of slices.
    workers: Arc<[usize]>,
}

impl std::fmt::Debug for KernelCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelCounters").finish_non_exhaustive()
    }
}

impl KernelCounters {
    /// Adds what the program has counted so far.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        match self.all.get(&0, 0) {
            Ok(processors) => processors.iter().for_each(|counted| counted.add_to(stats)),
            Err(error) => warn!("the counters of the XDP program cannot be read: {error}"),
        }
    }

    /// What the processors of slices have done.
    pub(crate) fn loads(&self) -> Vec<WorkerLoad> {
        let processors = self.all.get(&0, 0);
        let of = |processor: &usize| {
            let mut stats = Stats::default();
            if let Some(counted) = processors.as_ref().ok().and_then(|all| all.get(*processor)) {
                counted.add_to(&mut stats);
            }
            WorkerLoad { uplink: stats.uplink, downlink: stats.downlink, dropped: stats.drops.iter().sum() }
        };
        self.workers.iter().map(of).collect()
    }

    /// Packets of marked records.
    pub(crate) fn flow_packets(&self) -> FlowPackets {
        let mut sum = FlowPackets::default();
        for counted in self.all.get(&0, 0).iter().flat_map(|processors| processors.iter()) {
            sum.decided += counted.rules[0];
            sum.left += counted.rules[1];
        }
        sum
    }
}

/// What the program finds records by beside arrays: TEIDs that are no indexes, and networks behind UEs.
struct LookupMaps {
    foreign: HashMap<MapData, u32, u32>,
    framed: LpmTrie<MapData, [u8; 20], [u32; 2]>,
}

impl std::fmt::Debug for LookupMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

impl KernelMirror for LookupMaps {
    fn foreign(&mut self, teid: Teid, index: Option<u32>) {
        let result = match index {
            Some(index) => self.foreign.insert(teid.0, index, 0),
            None => self.foreign.remove(&teid.0),
        };
        // what the program does not find it passes, and a record of another TEID it does not use: slower, not wrong
        if let Err(error) = result {
            warn!("the XDP program was not told of TEID {:#x}: {error}", teid.0);
        }
    }

    fn framed(&mut self, network: Network, to: Option<(u32, u16)>) {
        // `struct network` of `bpf/entry.h`
        let mut data = [0; 20];
        let family = if network.address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        data[..4].copy_from_slice(&family.to_ne_bytes());
        let most = match network.address {
            IpAddr::V4(v4) => {
                data[4..8].copy_from_slice(&v4.octets());
                32
            }
            IpAddr::V6(v6) => {
                data[4..].copy_from_slice(&v6.octets());
                128
            }
        };
        let key = lpm_trie::Key::new(32 + u32::from(network.length.min(most)), data);
        let result = match to {
            Some((entry, mtu)) => self.framed.insert(&key, [entry, mtu.into()], 0),
            None => self.framed.remove(&key),
        };
        if let Err(error) = result {
            warn!("the XDP program was not told of the framed route {network:?}: {error}");
        }
    }
}

/// The one for interfaces, and those that it goes on to, in the order of their numbers in `bpf/flow_rules.h`.
const PROGRAMS: [&str; 3] = ["upf", "upf_uplink", "upf_downlink"];

fn program<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, StartError> {
    let program = bpf.program_mut(name).ok_or_else(|| StartError::Xdp(format!("it has no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| refused(&error))
}

/// Those that do the same on the processors of slices.
const THERE: [&str; 3] = ["upf_there", "upf_uplink_there", "upf_downlink_there"];
/// Frames that may wait for a processor.
const WAITING: u32 = 2048;

/// Has frames handed to the processors of slices; gives the program that does it.
fn divide(bpf: &mut Ebpf, processors: &[usize]) -> Result<&'static str, StartError> {
    const DIVIDE: &str = "upf_divide";
    for name in THERE.into_iter().chain([DIVIDE]) {
        program(bpf, name)?.load().map_err(|error| refused(&error))?;
    }
    go_on(bpf, "programs_there", &THERE)?;
    let there = program(bpf, THERE[0])?.fd().map_err(|error| refused(&error))?;
    let there = there.try_clone().map_err(|error| refused(&error))?;
    let map = bpf.map_mut("processors").ok_or_else(|| StartError::Xdp("it has no map processors".to_owned()))?;
    let mut map = CpuMap::try_from(map).map_err(|error| refused(&error))?;
    for processor in processors {
        map.set(*processor as u32, WAITING, Some(&there), 0).map_err(|error| refused(&error))?;
    }
    Ok(DIVIDE)
}

/// Tells the first program the ones that it goes on to. The kernel forgets them when nobody holds the map any more.
fn go_on(bpf: &mut Ebpf, map: &str, programs: &[&str; 3]) -> Result<(), StartError> {
    for (number, name) in (0..).zip(&programs[1..]) {
        let descriptor = program(bpf, name)?.fd().map_err(|error| refused(&error))?;
        let descriptor = descriptor.try_clone().map_err(|error| refused(&error))?;
        let map = bpf.map_mut(map).ok_or_else(|| StartError::Xdp(format!("it has no map {map}")))?;
        let mut programs = ProgramArray::try_from(map).map_err(|error| refused(&error))?;
        programs.set(number, &descriptor, 0).map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// The values of an array map in our memory.
fn mapped<T: crate::sys::shared::Plain>(bpf: &Ebpf, name: &str, length: usize) -> Result<Shared<T>, StartError> {
    match bpf.map(name) {
        Some(Map::Array(map)) => Ok(Shared::mapped(map.fd().as_fd(), length)?),
        _ => Err(StartError::Xdp(format!("it has no array {name}"))),
    }
}

fn taken<M: TryFrom<Map, Error = MapError>>(bpf: &mut Ebpf, name: &str) -> Result<M, StartError> {
    let map = bpf.take_map(name).ok_or_else(|| StartError::Xdp(format!("it has no map {name}")))?;
    M::try_from(map).map_err(|error| refused(&error))
}

/// What the kernel said, below all that was said about it.
pub(crate) fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        cause = error.source();
    }
    None
}

fn refused(error: &(dyn std::error::Error + 'static)) -> StartError {
    match errno(error) {
        Some(libc::EPERM) => StartError::XdpPermission,
        Some(code) => StartError::Xdp(io::Error::from_raw_os_error(code).to_string()),
        None => StartError::Xdp(error.to_string()),
    }
}

pub(crate) fn not_attached(interface: &str, error: &(dyn std::error::Error + 'static)) -> StartError {
    match errno(error) {
        Some(libc::EOPNOTSUPP) => StartError::XdpNotNative(interface.to_owned()),
        Some(libc::EBUSY | libc::EEXIST) => StartError::XdpBusy(interface.to_owned()),
        _ => refused(error),
    }
}
