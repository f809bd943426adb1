//! Kernel programs that steer a packet to its user's worker (`bpf/slices.bpf.c`).
//!
//! They exist as long as the sockets and devices that they are attached to.

use crate::drivers::bpf::{Aligned, errno};
use crate::drivers::kernel_config::KernelConfig;
use crate::engine::index;
use crate::engine::limits::Limits;
use crate::engine::worker_map::{LARGEST_ARRAY, WorkerMap};
use crate::network::Pool;
use crate::start_error::StartError;
use crate::sys::shared::Shared;
use aya::maps::Map;
use aya::programs::SocketFilter;
use aya::{Ebpf, EbpfLoader};
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU8;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/slices.bpf.o")));

/// `OWNERS` of `bpf/slices.h`.
const IN_A_LINE: usize = 64;

/// Descriptors of the steering programs.
pub(crate) struct SliceSteering {
    /// Program for frames, and for packets that are routed to a TUN device.
    pub(crate) packets: OwnedFd,
    /// Program for datagrams of UDP port 2152.
    pub(crate) datagrams: OwnedFd,
}

/// Loads the programs. Returns them with their worker map.
///
/// # Errors
///
/// Returns an error if the kernel refuses the programs.
pub(crate) fn load(n3: &[IpAddr], pools: &[Pool], limits: Limits) -> Result<(SliceSteering, WorkerMap), StartError> {
    let ranges = index::ranges(pools, LARGEST_ARRAY);
    let constants = KernelConfig::new(&ranges, n3, &[], &[])?;
    let mut loader = EbpfLoader::new();
    let loader = set_map_sizes(loader.override_global("config", &constants, true), &ranges, limits);
    let mut bpf = loader.load(&OBJECT.0).map_err(|error| refused(&error))?;
    let packets = program(&mut bpf, "slice_of_packet")?;
    let datagrams = program(&mut bpf, "slice_of_datagram")?;
    Ok((SliceSteering { packets, datagrams }, worker_map(&bpf, ranges, limits)?))
}

/// Sets the sizes of the maps for the words.
pub(crate) fn set_map_sizes<'l, 'c>(
    loader: &'l mut EbpfLoader<'c>,
    ranges: &[index::Range],
    limits: Limits,
) -> &'l mut EbpfLoader<'c> {
    loader
        .map_max_entries("tunnel_owners", lines(limits.bounded()))
        .map_max_entries("address_owners", lines(index::entries(ranges)))
}

fn lines(words: usize) -> u32 {
    words.div_ceil(IN_A_LINE).max(1) as u32
}

/// Maps the words of a loaded object.
pub(crate) fn worker_map(bpf: &Ebpf, ranges: Vec<index::Range>, limits: Limits) -> Result<WorkerMap, StartError> {
    let tunnels = mapped(bpf, "tunnel_owners", limits.bounded())?;
    let addresses = mapped(bpf, "address_owners", index::entries(&ranges))?;
    Ok(WorkerMap::over(tunnels, addresses, ranges))
}

fn mapped(bpf: &Ebpf, name: &str, words: usize) -> Result<Shared<AtomicU8>, StartError> {
    match bpf.map(name) {
        Some(Map::Array(map)) => Ok(Shared::mapped(map.fd().as_fd(), words)?),
        _ => Err(StartError::Slices(format!("it has no array {name}"))),
    }
}

fn program(bpf: &mut Ebpf, name: &str) -> Result<OwnedFd, StartError> {
    let program = bpf.program_mut(name).ok_or_else(|| StartError::Slices(format!("it has no program {name}")))?;
    let program: &mut SocketFilter =
        program.try_into().map_err(|error: aya::programs::ProgramError| refused(&error))?;
    program.load().map_err(|error| refused(&error))?;
    let descriptor = program.fd().map_err(|error| refused(&error))?;
    descriptor.as_fd().try_clone_to_owned().map_err(StartError::Io)
}

fn refused(error: &(dyn Error + 'static)) -> StartError {
    match errno(error) {
        Some(libc::EPERM) => StartError::SlicesPermission,
        Some(code) => StartError::Slices(io::Error::from_raw_os_error(code).to_string()),
        None => StartError::Slices(error.to_string()),
    }
}
