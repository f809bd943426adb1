//! Kernel programs that select the frames for user space (`bpf/steer.bpf.c`).
//!
//! Links of this process hold them. When the process ends for any reason, the kernel gets all
//! frames again, and nothing is pinned.

use super::config::FramesConfig;
use crate::drivers::bpf::{Aligned, errno, not_attached};
use crate::drivers::kernel_config::KernelConfig;
use crate::drivers::xdp::XdpMode;
use crate::engine::index;
use crate::network::Pool;
use crate::start_error::StartError;
use crate::sys::bpf::AttachedProgram;
use crate::sys::netlink;
use aya::maps::XskMap;
use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, SocketFilter, TcAttachType, Xdp};
use aya::{Ebpf, EbpfLoader};
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o")));

/// Constant of `bpf/steer.bpf.c`.
const QUEUES: u32 = 64;

/// The loaded programs.
#[derive(Debug)]
pub(crate) struct FrameSteering {
    bpf: Ebpf,
    pub(crate) interfaces: Vec<(String, u32)>,
    links: Vec<AttachedProgram>,
}

impl FrameSteering {
    pub(crate) fn load(config: &FramesConfig, n3: &[IpAddr], pools: &[Pool]) -> Result<Self, StartError> {
        let index = |name: &String| match netlink::index_of(name) {
            Ok(index) => Ok((name.clone(), index)),
            Err(_) => Err(StartError::FramesInterface(name.clone())),
        };
        let interfaces = config.interfaces.iter().map(index).collect::<Result<Vec<_>, _>>()?;
        let indexes: Vec<u32> = interfaces.iter().map(|(_, index)| *index).collect();
        let constants = KernelConfig::new(&index::ranges(pools, u64::MAX), n3, &indexes, &[])?;
        let mut loader = EbpfLoader::new();
        let bpf = loader.override_global("config", &constants, true).load(&OBJECT.0).map_err(|e| refused(&e))?;
        Ok(FrameSteering { bpf, interfaces, links: vec![] })
    }

    /// Attaches the program that selects the frames of a packet socket.
    pub(crate) fn filter(&mut self, sockets: impl Iterator<Item = impl AsFd>) -> Result<(), StartError> {
        let program: &mut SocketFilter = self.program("steer_in")?;
        program.load().map_err(|error| refused(&error))?;
        for socket in sockets {
            program.attach(socket).map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    /// Keeps the selected frames from the rest of the kernel.
    pub(crate) fn withhold_from_kernel(&mut self) -> Result<(), StartError> {
        let names: Vec<String> = self.interfaces.iter().map(|(name, _)| name.clone()).collect();
        let program: &mut SchedClassifier = self.program("steer_off")?;
        program.load().map_err(|error| refused(&error))?;
        let mut links = vec![];
        for name in names {
            let how = TcAttachOptions::TcxOrder(LinkOrder::first());
            let link = program
                .attach_with_options(&name, TcAttachType::Ingress, how)
                .map_err(|error| not_withheld(&name, &error))?;
            let link = program.take_link(link).map_err(|error| refused(&error))?;
            links.push(FdLink::try_from(link).map_err(|error| refused(&error))?.into());
        }
        self.links = links;
        Ok(())
    }

    /// Sets the AF_XDP socket for the frames of a queue. `place` is the index of the interface.
    pub(crate) fn redirect(&mut self, place: usize, queue: u32, socket: &impl AsFd) -> Result<(), StartError> {
        let map = self.bpf.map_mut("xsks").ok_or_else(|| StartError::Frames("it has no map".to_owned()))?;
        let mut map = XskMap::try_from(map).map_err(|error| refused(&error))?;
        map.set(place as u32 * QUEUES + queue, socket.as_fd().as_raw_fd(), 0).map_err(|error| refused(&error))
    }

    /// Attaches the program that redirects frames to the AF_XDP sockets.
    pub(crate) fn redirect_all(&mut self, mode: XdpMode) -> Result<(), StartError> {
        let mode = match mode {
            XdpMode::Native => aya::programs::XdpMode::Driver,
            XdpMode::Generic => aya::programs::XdpMode::Skb,
        };
        let interfaces = self.interfaces.clone();
        let program: &mut Xdp = self.program("steer_xsk")?;
        program.load().map_err(|error| refused(&error))?;
        let mut links = vec![];
        for (name, index) in interfaces {
            let link = program.attach_to_if_index(index, mode).map_err(|error| not_attached(&name, &error))?;
            let link = program.take_link(link).map_err(|error| refused(&error))?;
            links.push(FdLink::try_from(link).map_err(|error| refused(&error))?.into());
        }
        self.links = links;
        Ok(())
    }

    /// Returns the interfaces that have disappeared or were replaced by others of the same name.
    pub(crate) fn missing_interfaces(&self) -> impl Iterator<Item = &str> {
        let is_missing = |(name, index): &&(String, u32)| netlink::index_of(name).ok() != Some(*index);
        self.interfaces.iter().filter(is_missing).map(|(name, _)| name.as_str())
    }

    fn program<'p, P>(&'p mut self, name: &str) -> Result<&'p mut P, StartError>
    where
        &'p mut P: TryFrom<&'p mut aya::programs::Program, Error = ProgramError>,
    {
        let program = self.bpf.program_mut(name).ok_or(StartError::Frames("it has no program".to_owned()))?;
        program.try_into().map_err(|error: ProgramError| refused(&error))
    }
}

fn refused(error: &(dyn Error + 'static)) -> StartError {
    match errno(error) {
        Some(libc::EPERM) => StartError::FramesPermission,
        Some(code) => StartError::Frames(io::Error::from_raw_os_error(code).to_string()),
        None => StartError::Frames(error.to_string()),
    }
}

fn not_withheld(interface: &str, error: &(dyn Error + 'static)) -> StartError {
    match errno(error) {
        // Errors of kernels without links of this kind.
        Some(libc::EINVAL | libc::EOPNOTSUPP) => StartError::NoTcx(interface.to_owned()),
        _ => refused(error),
    }
}
