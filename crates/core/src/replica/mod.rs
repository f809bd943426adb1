//! Copies of UEs' contexts on several hosts, and who speaks for a UE: what makes a host's death, stop or cut-off lose nothing
//! and lets no two hosts be heard (DESIGN decisions 4 to 6). Pure: connections, records, threads and time are the caller's,
//! which is `node::host` in a running cluster and the fault campaign in the simulator.
//!
//! By the map of an epoch ([`crate::balance::map`]) a bucket has one owner, which carries out its UEs' procedures, and hosts
//! that keep copies.
//!
//! 1. [`BucketOwner`] is an owner's side. A commit goes to those who keep copies ([`ReplicaUpdate`], the parts that they have not), numbered by
//!    receiver, on connections that keep the order and send again what was not received. Its effects leave when those that
//!    [`Ack`] says have it, and after those of all commits before ([`BucketOwner::on_commit`], [`BucketOwner::next_released`]). A slice
//!    may have fewer copies than others, or none; a UE that has come to it is taken back from who keeps none there.
//! 2. [`ReplicaStore`] is the other side: copies as they came, undecoded, and what they want done. Who is not in the map is refused.
//! 3. By the next map who has a dead host's buckets takes its shadows ([`ReplicaStore::adopt`]), does once more what may not have left,
//!    under the same names, and is given again what the dead host was not done with ([`InflightInputs`]). Who emits drops what it
//!    has sent ([`EffectDedup`]); who took over drops inputs whose result it has ([`TakeoverSet::inputs`]).
//! 4. A bucket goes from a host that lives in order: [`BucketOwner::adopt`] asks for a mark behind all that is given by the old map,
//!    what was begun is ended, nothing is begun, all effects have left, and then it is handed over ([`ReplicaStore::on_handoff`]).
//! 5. What a dead host's last copies have left at one host alone, which nobody acknowledged, goes when the next owner has sent all
//!    that it has ([`ReconcileRequest`]).
//! 6. Which of two contexts of a subscriber counts, all hosts know for a while ([`Claims`]).
//! 7. Nobody owns a UE whose RAN node it does not know ([`BucketOwner::asks_for_nodes`]).

mod claims;
mod effect_watermark;
mod inflight;
mod message;
mod migration;
mod nodes;
mod owner;
mod reconcile;
mod store;
#[cfg(test)]
mod tests;

pub use claims::{Claim, ClaimResolution, Claims};
pub use effect_watermark::{ASKED_EVERY, WatermarkUpdate};
pub use inflight::{EffectDedup, InflightInputs, LoadShare, RecentEffects};
pub use message::{EffectAssociations, ReplicaUpdate};
pub use migration::{BarrierResult, InputDisposition, MigratedBuckets};
pub use nodes::Origin;
pub use owner::{BucketOwner, Commit, ReplicaAcks, ResentCommit, SlotKey};
pub use reconcile::{NAMED, ReconcileRequest};
pub use store::{ApplyResult, DONE_AGAIN, Fenced, ReplicaEntry, ReplicaStore, TakeoverSet, UnsentOutbox};

use crate::context::UeContext;

/// Steps that a host may have done beyond its last copy, where copies may lag: what it has had sent has their names.
pub const SKIPPED_STEPS: u64 = 1 << 12;
/// COUNTs that it may have used beyond (DESIGN decision 5).
const SKIPPED_COUNTS: u32 = 32;

/// Which commits are copied, to how many hosts, and what waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationConfig {
    /// Which commits.
    pub mode: Mode,
    /// Hosts besides the owner: 0 to 2.
    pub replicas: usize,
    /// What effects wait for.
    pub ack: Ack,
}

impl ReplicationConfig {
    /// Hosts besides the owner at the most.
    pub const MOST: usize = 2;

    /// How many hosts besides the owner keep copies of UEs whose slice is not known yet, and of each slice's, by how many each
    /// asks for: of the former as many as of any slice that they may turn out to be of.
    pub fn of_slices(&self, wanted: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let most = if self.is_on() { self.replicas } else { 0 };
        let mut replicas = vec![0];
        replicas.extend(wanted.into_iter().map(|wanted| wanted.min(most)));
        replicas[0] = replicas[1..].iter().max().copied().unwrap_or(most);
        replicas
    }

    /// Whether nothing of any slice's UEs is lost with a host that dies, as long as there are copies: each commit has one before
    /// anybody is told of it.
    pub fn is_lossless(&self, wanted: impl IntoIterator<Item = usize>) -> bool {
        !self.may_lag() && self.of_slices(wanted).iter().all(|replicas| *replicas > 0)
    }

    /// Whether there are copies at all.
    pub fn is_on(&self) -> bool {
        self.mode != Mode::None && self.replicas > 0
    }

    /// Whether a host may use COUNTs that no copy knows of.
    pub fn may_lag(&self) -> bool {
        self.mode == Mode::Cold || self.ack == Ack::None
    }
}

/// Which commits are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// None.
    #[default]
    None,
    /// Those that end a procedure.
    Cold,
    /// Each.
    Hot,
}

/// What the effects of a commit wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Nothing.
    None,
    /// The host that takes over first; at the end of a procedure all that have copies.
    #[default]
    One,
    /// All hosts that have copies.
    All,
}

impl Ack {
    /// Whether the effects of a commit, which may end a procedure, wait for a host, which may be the one that takes over first.
    pub fn waits(self, first: bool, ended: bool) -> bool {
        match self {
            Ack::None => false,
            Ack::One => first || ended,
            Ack::All => true,
        }
    }

    /// All of them.
    pub const ALL: [Ack; 3] = [Ack::None, Ack::One, Ack::All];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Ack::None => "none",
            Ack::One => "one",
            Ack::All => "all",
        }
    }

    /// That of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Ack::ALL.into_iter().find(|ack| ack.name() == name)
    }
}

/// Goes beyond what a dead host may have done and no copy knows of.
pub fn skip(ue: &mut UeContext) {
    ue.sequence += SKIPPED_STEPS;
    if let Some(security) = &mut ue.security {
        security.downlink = security.downlink.saturating_add(SKIPPED_COUNTS);
    }
}
