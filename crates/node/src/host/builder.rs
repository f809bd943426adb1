//! What a host is made of, before it is there.

use super::{HostError, HostSender, INPUTS, Membership, RegionUsage, WORKERS, queue};
use crate::config::{OverloadConfig, PoolsConfig, SliceRuntime, StateConfig};
use crate::sbi::amf::SmfLink;
use crate::supervisor;
use crate::worker::region_layout::{self, RegionLayout};
use vireo_core::config::CoreConfig;
use vireo_core::ran::admission::Allow;
use vireo_store::region::Region;

/// What a host is made with.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What decisions depend on.
    pub core: CoreConfig,
    /// The slices, as their NFs see them; in the order of `core.slices`.
    pub slices: Vec<SliceRuntime>,
    /// The workers and their NFs.
    pub pools: PoolsConfig,
    /// The state region.
    pub state: StateConfig,
    /// What is shed when there is too much work.
    pub overload: OverloadConfig,
    /// How a worker process is started.
    pub program: supervisor::Program,
    /// Which RAN nodes may come from where; empty = any.
    pub allow: Vec<Allow>,
}

/// The region of a host and the way into it: there before the host is, so that others can be given it.
#[derive(Debug)]
pub struct HostBuilder {
    pub(super) region: Region,
    pub(super) door: HostSender,
    pub(super) inputs: queue::HostReceiver,
    pub(super) plan: RegionLayout,
    /// Of a host of a cluster: what it is there.
    pub(super) member: Option<Membership>,
    /// Of the AMF of a service-based chain: the way to the SMF.
    pub(super) smf: Option<SmfLink>,
}

impl HostBuilder {
    /// Makes the region.
    ///
    /// # Errors
    ///
    /// When its sizes do not fit or the system refuses the memory.
    pub fn new(config: &HostConfig) -> Result<Self, HostError> {
        let plan = RegionLayout { nfs: config.pools.nfs_per_worker.max(1) };
        let region = Region::create(region_layout::region_config(plan, &config.state, WORKERS, &config.core))?;
        let (door, inputs) = HostSender::new(INPUTS, plan.bell(&region, region_layout::HOST));
        Ok(HostBuilder { region, door, inputs, plan, member: None, smf: None })
    }

    /// The host is to be one of a cluster.
    pub(crate) fn join(&mut self, member: Membership) {
        self.member = Some(member);
    }

    /// The host has no sessions itself.
    pub(crate) fn ask(&mut self, smf: SmfLink) {
        self.smf = Some(smf);
    }

    /// The way in.
    pub fn door(&self) -> HostSender {
        self.door.clone()
    }

    /// What tells how full the region is.
    pub(crate) fn gauge(&self) -> RegionUsage {
        RegionUsage::new(self.region.clone())
    }
}
