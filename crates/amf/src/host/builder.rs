//! Configuration and unstarted parts of a host.

use super::cluster::Membership;
use super::error::HostError;
use super::limits::{self, INPUTS};
use super::pools;
use super::region_usage::RegionUsage;
use crate::smf_link::SmfLink;
use crate::worker::region_layout::{self, RegionLayout};
use std::sync::Arc;
use vireo_cluster::{HostReceiver, HostSender, HostWaker};
use vireo_core::amf::ran::admission::Allow;
use vireo_core::config::CoreConfig;
use vireo_ops::config::{OverloadConfig, PoolsConfig, SliceRuntime, StateConfig};
use vireo_ops::sbi::{SbiConfig, SbiError};
use vireo_ops::supervisor;
use vireo_store::region::Region;

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Configuration of the steps.
    pub core: CoreConfig,
    /// Slices for the NFs, in the order of `CoreConfig::slices`.
    pub slices: Vec<SliceRuntime>,
    /// Worker processes and their NFs.
    pub pools: PoolsConfig,
    pub state: StateConfig,
    /// Limits for load shedding.
    pub overload: OverloadConfig,
    /// Command that starts a worker process.
    pub program: supervisor::Program,
    /// Allowed source addresses of RAN nodes; empty = any.
    pub allow: Vec<Allow>,
}

/// Region and input queue of a host. They exist before the host, so other parts can receive them.
#[derive(Debug)]
pub struct HostBuilder {
    pub(super) region: Region,
    pub(super) input_sender: HostSender,
    pub(super) inputs: HostReceiver,
    pub(super) plan: RegionLayout,
    /// Only in a cluster.
    pub(super) member: Option<Membership>,
    /// Only in the AMF of SBA mode.
    pub(super) smf: Option<SmfLink>,
}

impl HostBuilder {
    /// Creates the state region and the input queue of a host with a thread of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the sizes are invalid or the operating system refuses the memory.
    pub fn new(config: &HostConfig) -> Result<Self, HostError> {
        Self::with_waker(config, None)
    }

    /// Creates the same for a host on the thread of its balancer or of its link
    /// ([`HostWaker::shared_thread`]).
    ///
    /// # Errors
    ///
    /// Returns an error like [`HostBuilder::new`].
    pub fn on_shared_thread(config: &HostConfig, waker: HostWaker) -> Result<Self, HostError> {
        Self::with_waker(config, Some(waker))
    }

    fn with_waker(config: &HostConfig, waker: Option<HostWaker>) -> Result<Self, HostError> {
        let plan = RegionLayout { nfs: pools::nfs_per_worker(&config.pools, config.slices.len()) };
        let workers = limits::workers(config.pools.worker_model);
        let region = Region::create(region_layout::region_config(plan, &config.state, workers, &config.core))?;
        let waker = waker.unwrap_or_else(|| HostWaker::Bell(Box::new(plan.bell(&region, region_layout::HOST))));
        let (input_sender, inputs) = HostSender::new(INPUTS, waker);
        Ok(HostBuilder { region, input_sender, inputs, plan, member: None, smf: None })
    }

    /// Makes the host a member of a cluster.
    pub fn join(&mut self, member: Membership) {
        self.member = Some(member);
    }

    /// Makes the host an AMF that manages sessions by an SMF (SBA mode). A member of a cluster
    /// joins first.
    ///
    /// # Errors
    ///
    /// Returns an error if the SBI client or server does not start.
    pub fn connect_smf(&mut self, sbi: &SbiConfig, config: &HostConfig) -> Result<(), SbiError> {
        let (events, is_shared) = (Arc::new(self.input_sender.clone()), self.member.is_some());
        self.smf = Some(SmfLink::start(sbi, &config.core, &config.state, events, is_shared)?);
        Ok(())
    }

    /// Returns the sender of the input queue.
    pub fn input_sender(&self) -> HostSender {
        self.input_sender.clone()
    }

    /// Returns a reader of the region's fill level.
    pub fn region_usage(&self) -> RegionUsage {
        RegionUsage::new(self.region.clone())
    }
}
