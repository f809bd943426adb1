//! XDP driver: a kernel program (`bpf/upf.bpf.c`) that runs the fast path on the entries of the
//! tables.
//!
//! The tables lie in the maps of the program, so both sides share rules, rates and counters without
//! copies. The sockets driver handles the packets that the program passes. Links owned by this
//! process attach the program. When the process ends for any reason, the kernel detaches the
//! program, and nothing is pinned.

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

/// Attachment mode of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the network driver, before the kernel allocates a socket buffer for the received frame.
    #[default]
    Native,
    /// In the kernel's stack, for network drivers without XDP. Slower; for tests and unusual
    /// hardware.
    Generic,
}

/// Configuration of the XDP driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpConfig {
    /// Ethernet interfaces on N3 and N6. Packets leave only through these, by the kernel's routes.
    /// Packets routed elsewhere go through the sockets driver.
    pub interfaces: Vec<String>,
    /// Attachment mode of the program.
    pub mode: XdpMode,
    /// Next hops of uplink packets, at most one of each family. They replace the routes of the
    /// destinations, also those to framed routes of other UEs. Destinations in the pools and N3
    /// addresses of this user plane are excepted. Without a next hop, the routes are queried for
    /// every packet.
    pub next_hops: Vec<IpAddr>,
    /// Modules with separate interfaces, N3 addresses and next hops. Empty = no division.
    pub modules: Vec<Module>,
    /// If true, the network cards distribute packets to their queues by address ranges.
    pub nic_filters: bool,
}

/// Maximum addresses of one pool in the kernel's arrays, whose memory is allocated at once. The
/// sockets driver looks up the others.
const LARGEST: u64 = 1 << 22;

/// Bytes with the alignment that ELF requires.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/upf.bpf.o")));

/// The loaded program. When the value is dropped, the kernel detaches the program from all
/// interfaces.
#[derive(Debug)]
pub(crate) struct Xdp {
    bpf: Ebpf,
    interfaces: Vec<(String, u32)>,
    modules: Vec<Module>,
    /// Name of the program that receives frames first.
    entry: &'static str,
    mode: XdpMode,
    links: Vec<Attached>,
    counted: KernelCounters,
}

impl Xdp {
    /// Loads the program without attaching it. Returns it with the tables that it reads.
    ///
    /// The kernel routes packets of UEs to the device `tun`. With `nat`, the kernel's stack
    /// forwards uplink packets. With slices, the processor of a user's worker handles the user's
    /// packets.
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the kernel refuses the program or the configuration
    /// exceeds its tables.
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

    /// Attaches the program to its interfaces.
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the kernel refuses the attachment.
    pub(crate) fn attach(&mut self) -> Result<(), StartError> {
        let mode = match self.mode {
            XdpMode::Native => aya::programs::XdpMode::Driver,
            XdpMode::Generic => aya::programs::XdpMode::Skb,
        };
        let program: &mut Program = program(&mut self.bpf, self.entry)?;
        for (name, index) in &self.interfaces {
            let link = program.attach_to_if_index(*index, mode).map_err(|error| not_attached(name, &error))?;
            let link = program.take_link(link).map_err(|error| refused(&error))?;
            // A link that is no descriptor would outlive a killed process.
            let link = FdLink::try_from(link).map_err(|_| StartError::Xdp("it has no links for XDP".to_owned()))?;
            self.links.push(link.into());
        }
        modules::move_interrupts(&self.modules);
        let names: Vec<&str> = self.interfaces.iter().map(|(name, _)| name.as_str()).collect();
        info!("XDP: {:?} on {}", self.mode, names.join(", "));
        Ok(())
    }

    /// Returns the interfaces that have disappeared or were replaced by others of the same name.
    /// The program is not attached to them, and their packets go through the sockets.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &str> {
        let lost = |(name, index): &&(String, u32)| netlink::index_of(name).ok() != Some(*index);
        self.interfaces.iter().filter(lost).map(|(name, _)| name.as_str())
    }

    /// Returns a handle to the counters of the program.
    pub(crate) fn counters(&self) -> KernelCounters {
        self.counted.clone()
    }
}

/// `struct entries` of `bpf/entry.h`.
const ENTRIES: usize = 16;

/// Counters of the program on all processors.
#[derive(Clone)]
pub(crate) struct KernelCounters {
    all: Arc<PerCpuArray<MapData, Counted>>,
    /// Processors of the workers of slices.
    workers: Arc<[usize]>,
}

impl std::fmt::Debug for KernelCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelCounters").finish_non_exhaustive()
    }
}

impl KernelCounters {
    /// Adds the current counters of the program.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        match self.all.get(&0, 0) {
            Ok(processors) => processors.iter().for_each(|counted| counted.add_to(stats)),
            Err(error) => warn!("the counters of the XDP program cannot be read: {error}"),
        }
    }

    /// Returns the loads of the processors of slices.
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

    /// Returns the number of packets of marked entries.
    pub(crate) fn flow_packets(&self) -> FlowPackets {
        let mut sum = FlowPackets::default();
        for counted in self.all.get(&0, 0).iter().flat_map(|processors| processors.iter()) {
            sum.decided += counted.rules[0];
            sum.left += counted.rules[1];
        }
        sum
    }
}

/// Lookups of the program that are not in arrays: foreign TEIDs and framed routes.
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
        // The program passes packets that it does not find, and ignores an entry of another TEID:
        // slower, not wrong.
        if let Err(error) = result {
            warn!("the XDP program was not told of TEID {:#x}: {error}", teid.0);
        }
    }

    fn framed(&mut self, network: Network, to: Option<(u32, u16)>) {
        // `struct network` of `bpf/entry.h`.
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

/// The entry program for interfaces and its tail-call targets, in the order of their numbers in
/// `bpf/flow_rules.h`.
const PROGRAMS: [&str; 3] = ["upf", "upf_uplink", "upf_downlink"];

fn program<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, StartError> {
    let program = bpf.program_mut(name).ok_or_else(|| StartError::Xdp(format!("it has no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| refused(&error))
}

/// Variants of [`PROGRAMS`] for the processors of slices.
const THERE: [&str; 3] = ["upf_there", "upf_uplink_there", "upf_downlink_there"];
/// Maximum frames that wait for a processor.
const WAITING: u32 = 2048;

/// Makes the kernel redirect frames to the processors of slices. Returns the name of the
/// redirecting program.
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

/// Enters the tail-call targets of a program in its map. The kernel drops them with the last
/// descriptor of the map.
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

/// Maps the values of an array map into this process.
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

/// Returns the errno at the end of an error chain.
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
