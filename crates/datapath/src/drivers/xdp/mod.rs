//! XDP driver: a kernel program (`bpf/upf.bpf.c`) that runs the fast path on the entries of the
//! tables.
//!
//! The tables lie in the maps of the program, so both sides share rules, rates and counters without
//! copies. The sockets driver handles the packets that the program passes. Links owned by this
//! process attach the program. When the process ends for any reason, the kernel detaches the
//! program, and nothing is pinned.

mod config;
mod counters;
mod lookup_maps;

pub use config::{XdpConfig, XdpMode};
pub(crate) use counters::KernelCounters;

use crate::drivers::bpf::{Aligned, errno, not_attached, refused};
use crate::drivers::kernel_config::KernelConfig;
use crate::drivers::slice_steering;
use crate::engine::access::table::{self, HashKey};
use crate::engine::flow_rules::cells;
use crate::engine::index;
use crate::engine::limits::Limits;
use crate::engine::table_memory::TableMemory;
use crate::engine::tables::Tables;
use crate::network::Pool;
use crate::start_error::StartError;
use crate::sys::bpf::AttachedProgram;
use crate::sys::netlink;
use crate::sys::route::Routes;
use crate::sys::shared::{Plain, Shared};
use aya::maps::{CpuMap, Map, MapError, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp as Program};
use aya::{Ebpf, EbpfLoader};
use lookup_maps::LookupMaps;
use std::net::IpAddr;
use std::os::fd::AsFd;
use tracing::info;

/// Maximum addresses of one pool in the kernel's arrays, whose memory is allocated at once. The
/// sockets driver looks up the others.
const LARGEST: u64 = 1 << 22;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/upf.bpf.o")));
/// The same programs for frames in several buffers.
static FRAGS_OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/upf_frags.bpf.o")));

/// Largest MTU in octets at which network drivers receive a frame into one buffer, a page of 4 KiB
/// with headroom.
const ONE_BUFFER: u32 = 3_000;

/// The loaded program. When the value is dropped, the kernel detaches the program from all
/// interfaces.
#[derive(Debug)]
pub(crate) struct Xdp {
    pub(crate) bpf: Ebpf,
    interfaces: Vec<(String, u32)>,
    /// Name of the program that receives frames first.
    entry: &'static str,
    mode: XdpMode,
    /// An interface whose frames are in several buffers.
    jumbo: Option<JumboInterface>,
    pub(crate) links: Vec<AttachedProgram>,
    counters: KernelCounters,
}

/// Parts of the user plane's configuration that the program needs.
pub(crate) struct XdpSetup<'a> {
    pub(crate) n3: &'a [IpAddr],
    pub(crate) pools: Vec<Pool>,
    pub(crate) limits: Limits,
    /// Device that the kernel routes packets of UEs to.
    pub(crate) tun: &'a str,
    /// If true, the kernel's stack forwards uplink packets.
    pub(crate) nat: bool,
    /// Processors of the workers of slices. If not empty, the processor of a user's worker handles
    /// the user's packets.
    pub(crate) processors: &'a [usize],
}

/// An interface with a large MTU.
#[derive(Clone, Debug)]
struct JumboInterface {
    name: String,
    mtu: u32,
}

impl JumboInterface {
    /// Returns the first interface with an MTU above [`ONE_BUFFER`], if the network driver runs the
    /// program. In generic mode the kernel copies such a frame into one buffer.
    fn find(config: &XdpConfig) -> Result<Option<Self>, StartError> {
        if config.mode == XdpMode::Generic {
            return Ok(None);
        }
        let routes = Routes::open()?;
        let jumbo = config.interfaces.iter().find_map(|name| {
            let mtu = routes.interface(name).ok()?.mtu;
            (mtu > ONE_BUFFER).then(|| JumboInterface { name: name.clone(), mtu })
        });
        Ok(jumbo)
    }

    fn refused(self) -> StartError {
        StartError::XdpMtu { interface: self.name, mtu: self.mtu, most: ONE_BUFFER }
    }
}

/// Returns the reason why the kernel does not load a program or attach it.
fn refused_with(jumbo: Option<&JumboInterface>, error: &(dyn std::error::Error + 'static)) -> Option<StartError> {
    let is_refused = matches!(errno(error), Some(libc::EINVAL | libc::ERANGE));
    jumbo.filter(|_| is_refused).cloned().map(JumboInterface::refused)
}

impl Xdp {
    /// Loads the program without attaching it. Returns it with the tables that it reads.
    ///
    ///
    /// # Errors
    ///
    /// Returns an error with a remedy if the kernel refuses the program or the configuration
    /// exceeds its tables.
    pub(crate) fn load(config: &XdpConfig, setup: XdpSetup<'_>) -> Result<(Self, Tables), StartError> {
        let XdpSetup { n3, pools, limits, tun, nat, processors } = setup;
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
        let cells = (2 * records).clamp(1024, cells::MAX_CELLS);
        let mut constants = KernelConfig::new(&ranges, n3, &indexes, &config.next_hops)?;
        constants.set_tun(netlink::index_of(tun)?);
        constants.set_modules(&config.modules, &interfaces)?;
        constants.set_processors(processors);
        constants.set_checks(limits.own_peer_only, pools.iter().any(|pool| pool.isolated));
        let access_key = HashKey::random();
        constants.set_access_key(access_key);
        if nat {
            if !config.next_hops.is_empty() || config.modules.iter().any(|module| !module.next_hops.is_empty()) {
                return Err(StartError::XdpNatNextHop);
            }
            constants.leave_to_stack();
        }
        let jumbo = JumboInterface::find(config)?;
        let object = if jumbo.is_some() { FRAGS_OBJECT } else { OBJECT };
        let mut loader = EbpfLoader::new();
        let loader = slice_steering::set_map_sizes(loader.override_global("config", &constants, true), &ranges, limits);
        let mut bpf = loader
            .map_max_entries("processors", processors.iter().max().map_or(1, |most| *most as u32 + 1))
            .map_max_entries("uplinks", records as u32)
            .map_max_entries("downlinks", records as u32)
            .map_max_entries("addresses", (entries / ENTRIES) as u32)
            .map_max_entries("foreign", records as u32)
            .map_max_entries("framed", records as u32)
            .map_max_entries("cells", cells as u32)
            .load(&object.0)
            .map_err(|error| refused(&error))?;
        for name in PROGRAMS {
            let loaded = program(&mut bpf, name)?.load();
            loaded.map_err(|error| refused_with(jumbo.as_ref(), &error).unwrap_or_else(|| refused(&error)))?;
        }
        set_tail_calls(&mut bpf, "programs", &PROGRAMS)?;
        let entry = match processors.is_empty() {
            true => PROGRAMS[0],
            false => divide(&mut bpf, processors)?,
        };
        let worker_map = slice_steering::worker_map(&bpf, ranges.clone(), limits)?;
        let memory = TableMemory {
            uplinks: mapped(&bpf, "uplinks", records)?,
            downlinks: mapped(&bpf, "downlinks", records)?,
            addresses: mapped(&bpf, "addresses", entries)?,
            cells: mapped(&bpf, "cells", cells)?,
            worker_slots: Shared::private(0),
            access: mapped(&bpf, "access", table::LINES)?,
        };
        access_key.store(&memory.access);
        let found = LookupMaps { foreign: take_map(&mut bpf, "foreign")?, framed: take_map(&mut bpf, "framed")? };
        let counted = take_map(&mut bpf, "counted")?;
        let mut tables = Tables::over(memory, ranges, pools, limits, Some(Box::new(found)));
        if !processors.is_empty() {
            tables.set_worker_map(worker_map);
        }
        let counters = KernelCounters::new(counted, processors);
        Ok((Xdp { bpf, interfaces, entry, mode: config.mode, jumbo, links: vec![], counters }, tables))
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
            let link = program.attach_to_if_index(*index, mode).map_err(|error| {
                refused_with(self.jumbo.as_ref(), &error).unwrap_or_else(|| not_attached(name, &error))
            })?;
            let link = program.take_link(link).map_err(|error| refused(&error))?;
            // A link that is no descriptor would outlive a killed process.
            let link = FdLink::try_from(link).map_err(|_| StartError::Xdp("it has no links for XDP".to_owned()))?;
            self.links.push(link.into());
        }
        let names: Vec<&str> = self.interfaces.iter().map(|(name, _)| name.as_str()).collect();
        info!("XDP: {:?} on {}", self.mode, names.join(", "));
        Ok(())
    }

    /// Returns the interfaces that have disappeared or were replaced by others of the same name.
    /// The program is not attached to them, and their packets go through the sockets.
    pub(crate) fn missing_interfaces(&self) -> impl Iterator<Item = &str> {
        let is_missing = |(name, index): &&(String, u32)| netlink::index_of(name).ok() != Some(*index);
        self.interfaces.iter().filter(is_missing).map(|(name, _)| name.as_str())
    }

    /// Returns a handle to the counters of the program.
    pub(crate) fn counters(&self) -> KernelCounters {
        self.counters.clone()
    }
}

/// `struct entries` of `bpf/entry.h`.
const ENTRIES: usize = 16;

/// The entry program for interfaces and its tail-call targets, in the order of their numbers in
/// `bpf/flow_rules.h`.
pub(crate) const PROGRAMS: [&str; 3] = ["upf", "upf_uplink", "upf_downlink"];

pub(crate) fn program<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Program, StartError> {
    let program = bpf.program_mut(name).ok_or_else(|| StartError::Xdp(format!("it has no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| refused(&error))
}

/// Variants of [`PROGRAMS`] for the processors of slices.
pub(crate) const THERE: [&str; 3] = ["upf_there", "upf_uplink_there", "upf_downlink_there"];
/// Maximum frames that wait for a processor.
const CPUMAP_QUEUE_FRAMES: u32 = 2048;

/// Makes the kernel redirect frames to the processors of slices. Returns the name of the
/// redirecting program.
fn divide(bpf: &mut Ebpf, processors: &[usize]) -> Result<&'static str, StartError> {
    const DIVIDE: &str = "upf_divide";
    for name in THERE.into_iter().chain([DIVIDE]) {
        program(bpf, name)?.load().map_err(|error| refused(&error))?;
    }
    set_tail_calls(bpf, "programs_there", &THERE)?;
    let there = program(bpf, THERE[0])?.fd().map_err(|error| refused(&error))?;
    let there = there.try_clone().map_err(|error| refused(&error))?;
    let map = bpf.map_mut("processors").ok_or_else(|| StartError::Xdp("it has no map processors".to_owned()))?;
    let mut map = CpuMap::try_from(map).map_err(|error| refused(&error))?;
    for processor in processors {
        map.set(*processor as u32, CPUMAP_QUEUE_FRAMES, Some(&there), 0).map_err(|error| refused(&error))?;
    }
    Ok(DIVIDE)
}

/// Enters the tail-call targets of a program in its map. The kernel drops them with the last
/// descriptor of the map.
fn set_tail_calls(bpf: &mut Ebpf, map: &str, programs: &[&str; 3]) -> Result<(), StartError> {
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
fn mapped<T: Plain>(bpf: &Ebpf, name: &str, length: usize) -> Result<Shared<T>, StartError> {
    match bpf.map(name) {
        Some(Map::Array(map)) => Ok(Shared::mapped(map.fd().as_fd(), length)?),
        _ => Err(StartError::Xdp(format!("it has no array {name}"))),
    }
}

fn take_map<M: TryFrom<Map, Error = MapError>>(bpf: &mut Ebpf, name: &str) -> Result<M, StartError> {
    let map = bpf.take_map(name).ok_or_else(|| StartError::Xdp(format!("it has no map {name}")))?;
    M::try_from(map).map_err(|error| refused(&error))
}
