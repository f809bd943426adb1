//! Replication of UE contexts between hosts, bucket ownership and takeover.
//!
//! A host failure, stop or network partition loses no acknowledged commit, and at most one host
//! emits the effects of a UE. The Rust module is pure: connections, stored commits, threads and
//! time belong to the caller. The caller is the host machine ([`crate::placement::host`]).
//!
//! The cluster map of an epoch ([`crate::placement::balance::map`]) assigns each bucket one owner,
//! which executes the procedures of its UEs, and replicas, which store copies.
//!
//! 1. [`BucketOwner`] is the owner side. It sends each commit to the replicas as a
//!    [`ReplicaUpdate`] with the parts that the replica lacks. Copies are numbered per receiver;
//!    the connections keep the order and resend what was not received. The effects of a commit
//!    leave when the replicas that [`Ack`] selects have acknowledged it, after the effects of all
//!    earlier commits ([`BucketOwner::on_commit`], [`BucketOwner::next_released`]). A slice may
//!    have fewer replicas than others, or none. When a UE moves to such a slice, its copies are
//!    retracted from hosts that are not replicas there.
//! 2. [`ReplicaStore`] is the replica side: copies as received, not decoded, with their outboxes.
//!    Copies of hosts that are not in the cluster map are refused.
//! 3. After a host failure, the new owner of each bucket takes over its replica entries
//!    ([`ReplicaStore::adopt`]). It re-executes effects that may not have been sent, under the same
//!    keys, and receives the unacknowledged inputs of the dead host again ([`InflightInputs`]). The
//!    balancer drops effects that it has already sent ([`EffectDedup`]); the new owner drops inputs
//!    whose result it has ([`TakeoverSet::inputs`]).
//! 4. Between live hosts a bucket migrates in order. [`BucketOwner::adopt`] requests a barrier
//!    behind all inputs that were routed by the old map. The old owner completes the procedures in
//!    progress and starts none. When all effects have left, it hands the bucket off
//!    ([`ReplicaStore::on_handoff`]).
//! 5. The last copies of a dead host may exist at one replica only, unacknowledged. That replica
//!    removes them when the new owner has sent all that it has ([`ReconcileRequest`]).
//! 6. All hosts remember for a limited time which of two contexts of a subscriber is valid
//!    ([`Claims`]).
//! 7. No host owns a UE whose RAN node it does not know ([`BucketOwner::request_nodes`]), or
//!    supersedes one whose claim may still arrive.

mod claims;
mod effect_watermark;
mod entry;
mod inflight;
mod message;
mod migration;
mod nodes;
mod owner;
mod owner_state;
mod proposal;
mod reconcile;
mod store;
#[cfg(test)]
mod tests;

pub use claims::{Claim, ClaimResolution, Claims};
pub use effect_watermark::{WATERMARK_INTERVAL, WatermarkUpdate};
pub use entry::{REEXECUTION_WINDOW, ReplicaEntry, UnsentOutbox};
pub use inflight::{EffectDedup, InflightInputs, LoadShare, RecentEffects};
pub use message::{EffectAssociations, ReconcileRequest, ReplicaUpdate};
pub use migration::{BarrierResult, InputDisposition, MigratedBuckets};
pub use owner::{BucketOwner, Commit, ReplicaAcks, ResentCommit, SlotKey};
pub use owner_state::Origin;
pub use proposal::{Proposal, ProposalAnswer, ProposalResult, ServedStep};
pub use reconcile::MAX_NAMED_UES;
pub use store::{ApplyResult, Fenced, MAX_SILENCE, ReplicaStore, TakeoverSet};

pub use crate::amf::context::{SKIPPED_STEPS, skip};

/// Replication settings: which commits are copied, to how many hosts, and which acknowledgements
/// effects wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationConfig {
    pub mode: Mode,
    /// Hosts besides the owner: 0 to 2.
    pub replicas: usize,
    pub ack: Ack,
}

impl ReplicationConfig {
    /// Maximum of `replicas`.
    pub const MAX_REPLICAS: usize = 2;

    /// Returns the number of replicas per slice, given the number that each slice requests
    /// (`wanted`). Element 0 is for UEs whose slice is not known yet. It is the maximum of all
    /// slices, because the UE may belong to any of them.
    pub fn replicas_by_slice(&self, wanted: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let most = if self.is_on() { self.replicas } else { 0 };
        let mut replicas = vec![0];
        replicas.extend(wanted.into_iter().map(|wanted| wanted.min(most)));
        replicas[0] = replicas[1..].iter().max().copied().unwrap_or(most);
        replicas
    }

    /// Returns true if a host failure loses nothing of any slice's UEs as long as there are copies.
    /// In that case each commit has a copy before any effect of it leaves.
    pub fn is_lossless(&self, wanted: impl IntoIterator<Item = usize>) -> bool {
        !self.may_lag() && self.replicas_by_slice(wanted).iter().all(|replicas| *replicas > 0)
    }

    /// Returns true if commits are copied at all.
    pub fn is_on(&self) -> bool {
        self.mode != Mode::None && self.replicas > 0
    }

    /// Returns true if a host may use NAS COUNTs that no copy contains.
    pub fn may_lag(&self) -> bool {
        self.mode == Mode::Cold || self.ack == Ack::None
    }
}

/// Selection of the commits that are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No commit is copied.
    #[default]
    None,
    /// Commits that end a procedure.
    Cold,
    /// Every commit is copied.
    Hot,
}

/// Acknowledgements that the effects of a commit wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Effects wait for no acknowledgement.
    None,
    /// The first replica in takeover order; at the end of a procedure, all replicas.
    #[default]
    One,
    /// Effects wait for all replicas.
    All,
}

impl Ack {
    /// Returns true if the effects of a commit wait for a replica. `first`: the replica is the
    /// first in takeover order; `ended`: the commit ends a procedure.
    pub fn requires(self, first: bool, ended: bool) -> bool {
        match self {
            Ack::None => false,
            Ack::One => first || ended,
            Ack::All => true,
        }
    }

    /// All values, from the weakest to the strongest.
    pub const ALL: [Ack; 3] = [Ack::None, Ack::One, Ack::All];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Ack::None => "none",
            Ack::One => "one",
            Ack::All => "all",
        }
    }

    /// Returns the value with a configuration name.
    pub fn from_name(name: &str) -> Option<Self> {
        Ack::ALL.into_iter().find(|ack| ack.name() == name)
    }
}
