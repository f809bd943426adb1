//! The machine of a host (`core::placement::host`) over the types of this crate.

use super::cluster::{Membership, Pending};
use super::deferred_event::DeferredEvent;
use vireo_cluster::Input;
use vireo_core::config::Timers;
use vireo_core::placement::host::{HostLimits, HostMachine};
use vireo_core::placement::replica::Claims;
use vireo_store::region::Slot;

/// Decisions of a host about the UEs in its state region.
pub(super) type Machine = HostMachine<Slot, Pending, Input, DeferredEvent>;

/// Creates the machine of a host; `member` is present in a cluster. A claim lasts until the network
/// abandons a registration that began before.
pub(super) fn new_machine(member: Option<&Membership>, timers: &Timers) -> Box<Machine> {
    let pool_partitions = member.map_or(1, |member| member.welcome.part.1);
    let limits = HostLimits { pool_partitions, waiting_inputs: 16_384, scanned_slots: 64 };
    let owner = member.map(Membership::owner);
    Box::new(HostMachine::new(owner, Claims::new(timers.registration_time_limit()), limits))
}
