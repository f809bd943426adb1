//! Host as cluster member: which UE a message names, when effects leave, takeover and migration.
//!
//! [`HostMachine`] decides for one host. It is driven by [`Input`]s and the current time, reads the
//! stored UEs and acts through [`HostIo`]. The caller is `amf::host` in a running cluster and the
//! fault campaign in the simulator. [`receive`] is the replica's side, and [`CopyQueue`] has what a
//! replica has not acknowledged. [`Barriers`], [`PendingPfcp`] and [`UnackedQueue`] have what
//! balancers have not answered or confirmed, and [`BalancerAssociations`] the associations of each.
//!
//! Invariants:
//!
//! - Effects of a commit leave after the acknowledgements that it requires, in commit order.
//! - A host that owns a bucket has all its UEs, and knows the RAN nodes of the map's balancers.
//! - No procedure of a UE starts between the quiescence of its bucket and the handoff.
//! - An input whose result is in a replica entry is not executed again.
//!
//! Connections, threads, stored contexts, workers and clocks belong to the caller.

mod addresses;
mod associations;
mod barriers;
mod claims;
mod committed;
mod copy_queue;
mod entry;
mod io;
mod machine;
mod migration;
mod pending_pfcp;
mod reconcile;
mod replica_side;
mod routing;
mod served;
mod serving;
#[cfg(test)]
mod tests;
mod unacked;

pub use addresses::AddressNumber;
pub use associations::BalancerAssociations;
pub use barriers::{BarrierReply, Barriers};
pub use copy_queue::CopyQueue;
pub use io::{HostIo, ReplicaTransport, StepOutbox, StoredUe, UeNotice};
pub use machine::{HostLimits, HostMachine, Input};
pub use pending_pfcp::{PendingPfcp, PfcpRequest};
pub use replica_side::{AckSchedule, AddressAuditMessage, Received, receive};
pub use routing::{InputTarget, NamedUe, named_ue};
pub use served::{MAX_SERVED_UES, ServedInput};
pub use serving::ProposalDecision;
pub use unacked::UnackedQueue;
