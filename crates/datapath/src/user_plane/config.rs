//! Configuration of a user plane.

use crate::drivers::frames::{FrameIo, FramesConfig};
use crate::drivers::module::{self, Module};
use crate::drivers::xdp::XdpConfig;
use crate::engine::access::Access;
use crate::engine::limits::Limits;
use crate::engine::locking::Locking;
use crate::network::Pool;
use crate::start_error::StartError;
use crate::workers::process::ProcessSpawner;
use crate::workers::slices::{self, SliceWorkers, SteerTarget};
use std::net::IpAddr;
use std::sync::Arc;

/// Configuration of a user plane.
#[derive(Clone, Debug)]
pub struct UserPlaneConfig {
    /// Addresses on N3, at least one.
    pub n3: Vec<IpAddr>,
    /// Name of the TUN device.
    pub tun: String,
    /// Address pools of the UEs.
    pub pools: Vec<Pool>,
    /// Bounds of the tables.
    pub limits: Limits,
    /// Number of worker threads. The kernel distributes packets to them by addresses and ports.
    pub workers: usize,
    /// If true, UEs reach the data network through the machine's address.
    pub nat: bool,
    /// Destinations that UEs must not reach, and permitted sources of G-PDUs.
    pub access: Access,
    /// If true, each UE named in [`crate::TablesHandle::set_host_route`] has a host route. Another
    /// user plane may then share its pool.
    pub host_routes: bool,
    /// If set, the kernel program runs the fast path and the sockets only the slow path.
    pub xdp: Option<XdpConfig>,
    /// If set, `workers` threads run the fast path on frames. One more thread runs the slow path on
    /// the sockets.
    pub frames: Option<FramesConfig>,
    /// If not empty, the workers of the slices replace `workers`.
    pub slices: Vec<SliceWorkers>,
    /// If set, workers are processes that it spawns. A standby worker takes over from a dead one.
    pub processes: Option<Arc<dyn ProcessSpawner>>,
}

impl UserPlaneConfig {
    /// Returns how the driver steers packets of slices.
    pub(super) fn steer_target(&self) -> SteerTarget {
        match (&self.xdp, self.frames.as_ref().map(|frames| frames.io)) {
            (Some(_), _) => SteerTarget::Processor,
            (None, Some(FrameIo::AfXdp(_))) => SteerTarget::Any,
            (None, Some(FrameIo::AfPacket(_)) | None) => SteerTarget::Thread,
        }
    }

    /// Returns the number of packet threads, without those of modules.
    pub(super) fn threads(&self) -> usize {
        match self.slices.iter().map(|slice| slice.workers).sum::<usize>() {
            of_slices if of_slices > 0 && self.xdp.is_none() => of_slices,
            _ => self.workers.max(1),
        }
    }

    /// Returns the modules of the driver.
    pub(super) fn modules(&self) -> &[Module] {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.modules);
        of_xdp.or(self.frames.as_ref().map(|frames| &frames.modules)).map_or(&[], Vec::as_slice)
    }

    /// Returns the interfaces with NIC filters.
    pub(super) fn filtered_interfaces(&self) -> Option<&[String]> {
        let of_xdp = self.xdp.as_ref().map(|xdp| (xdp.nic_filters, &xdp.interfaces));
        let of_frames = self.frames.as_ref().map(|frames| (frames.nic_filters, &frames.interfaces));
        of_xdp.or(of_frames).filter(|(filters, _)| *filters).map(|(_, interfaces)| interfaces.as_slice())
    }

    /// Returns the next hops of uplink packets, for the driver and its modules.
    pub(super) fn next_hops(&self) -> Vec<IpAddr> {
        let of_xdp = self.xdp.as_ref().map(|xdp| &xdp.next_hops);
        let all = of_xdp.or(self.frames.as_ref().map(|frames| &frames.next_hops)).into_iter().flatten();
        all.chain(self.modules().iter().flat_map(|module| &module.next_hops)).copied().collect()
    }

    /// Checks that the parts of the configuration fit together and that the machine has what they
    /// name.
    ///
    /// # Errors
    ///
    /// Returns an error that names the conflicting setting.
    pub(super) fn check(&self) -> Result<(), StartError> {
        if self.n3.is_empty() {
            return Err(StartError::NoN3);
        }
        if self.frames.is_some() && self.nat {
            return Err(StartError::FramesNat);
        }
        module::check(self.modules(), &self.n3)?;
        slices::check(&self.slices, self.modules().len(), self.steer_target())?;
        self.check_processes()
    }

    /// Checks that the rest of the configuration permits worker processes.
    fn check_processes(&self) -> Result<(), StartError> {
        if self.processes.is_none() {
            return Ok(());
        }
        if self.xdp.is_some() {
            return Err(StartError::ProcessesOfXdp);
        }
        if self.frames.as_ref().is_some_and(|frames| matches!(frames.io, FrameIo::AfXdp(_))) {
            return Err(StartError::ProcessesOfAfXdp);
        }
        if self.limits.locking != Locking::Fine {
            return Err(StartError::ProcessesLocking);
        }
        if self.limits.hot_users > 0 {
            return Err(StartError::ProcessesHot);
        }
        Ok(())
    }
}
