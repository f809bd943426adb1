//! Migration of buckets between live hosts, at the old and the new owner.
//!
//! The old owner stays the owner until the balancers have answered a barrier: from then on they
//! route all inputs by the new map. It then ends the procedures in progress and waits until all
//! copies are acknowledged and all effects are with the balancers. It keeps copies of its UEs and
//! sends the handoff to the next owner, which has held back the inputs that arrived meanwhile. No
//! step is executed twice, and no input overtakes another. If the old owner dies during the
//! migration, the next owner takes over as from any dead host. If the next owner dies, the old one
//! continues with its own state or with its copies.

use super::owner::{BucketOwner, ReplicaAcks, SlotKey};
use super::owner_state::{MigrationStage, OutgoingBuckets};
use crate::placement::balance::HostId;
use crate::placement::balance::map::BucketMap;
use rustc_hash::FxHashMap;
use vireo_types::Bucket;

/// Treatment of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputDisposition {
    /// The input is processed.
    Process,
    /// The input is held back until its UE is here.
    HoldBack,
    /// The input is returned to the balancer: its UE belongs to another host.
    Return,
}

/// Result of a completed migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedBuckets {
    /// Epoch whose map moved the buckets.
    pub epoch: u64,
    /// New owners. Each receives a handoff after its last copy.
    pub to: Vec<HostId>,
}

/// Action that becomes possible when the balancers answer a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierResult {
    /// The barrier enables nothing.
    Nothing,
    /// All inputs routed by the old map have arrived: UEs of these buckets get no LTMSI from this
    /// host from here on.
    EndProcedures,
    /// All effects have left: the caller completes the migration
    /// ([`BucketOwner::finish_migration`]).
    HandOff,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Returns true if the bucket migrates and no procedure of its UEs is started.
    pub fn is_quiesced(&self, bucket: Bucket) -> bool {
        let is_quiesced = |outgoing: &&OutgoingBuckets<S>| matches!(outgoing.stage, MigrationStage::Quiesced(_));
        self.outgoing.as_ref().filter(is_quiesced).is_some_and(|outgoing| outgoing.owners.contains_key(&bucket))
    }

    /// Returns true if this host processes inputs for the UEs of a bucket.
    pub fn accepts_inputs(&self, bucket: Bucket) -> bool {
        let is_routed_here =
            |outgoing: &OutgoingBuckets<S>| matches!(outgoing.stage, MigrationStage::AwaitingBarrier(_));
        let is_closed = self.outgoing.as_ref().is_some_and(|l| !is_routed_here(l) && l.owners.contains_key(&bucket));
        self.owns(bucket) && !is_closed
    }

    /// Returns true if a bucket migrates to another host, or is about to.
    pub fn is_outgoing(&self, bucket: Bucket) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.owners.contains_key(&bucket))
    }

    /// Returns the number of buckets that migrate away.
    pub fn outgoing_count(&self) -> usize {
        self.outgoing.as_ref().map_or(0, |outgoing| outgoing.owners.len())
    }

    pub(super) fn next_owner(&self, bucket: Bucket) -> Option<HostId> {
        self.map.as_ref()?.owners(bucket).owner()
    }

    /// Classifies an input for a UE of a bucket (`None`: for no particular UE). `room` is true if
    /// more inputs may be held back. An input of a RAN node or UPF (`of_node`), which all hosts
    /// receive, stalls all inputs behind it.
    pub fn classify_input(
        &mut self,
        bucket: Option<Bucket>,
        of_node: bool,
        numbered: bool,
        room: bool,
    ) -> InputDisposition {
        let waits = bucket.is_some_and(|bucket| self.incoming_buckets.contains(&bucket));
        if self.stalled || waits || of_node && !self.incoming_buckets.is_empty() {
            // An input that all hosts receive is not redelivered to all of them.
            if of_node || !numbered || room {
                self.stalled |= of_node;
                return InputDisposition::HoldBack;
            }
            return InputDisposition::Return;
        }
        match bucket {
            Some(bucket) if numbered && !self.accepts_inputs(bucket) => InputDisposition::Return,
            _ => InputDisposition::Process,
        }
    }

    /// Starts a new classification of the inputs that were held back.
    pub fn restart_classification(&mut self) {
        self.stalled = false;
    }

    /// Starts or changes the migration after a new map: more buckets move to other hosts, or some
    /// stay because their next owner has died. `before` is the previous map. Returns the number of
    /// a barrier to send to the balancers, if one is needed.
    pub(super) fn begin_migration(&mut self, before: Option<BucketMap>) -> Option<u64> {
        let (Some(before), Some(map)) = (before, &self.map) else { return None };
        let own = self.host_id();
        let mut outgoing = self.outgoing.take();
        if let Some(outgoing) = &mut outgoing {
            outgoing.owners.retain(|bucket, _| map.owners(*bucket).owner() != Some(own));
        }
        let is_moved = |bucket: &Bucket| {
            let had = before.owners(*bucket).owner() == Some(own) && !self.incoming_buckets.contains(bucket);
            had && map.owners(*bucket).owner().is_some_and(|next| next != own)
        };
        let more: Vec<Bucket> = (0..Bucket::COUNT).map(Bucket::new).filter(is_moved).collect();
        let epoch = map.epoch();
        let mut barrier = None;
        if !more.is_empty() {
            let number = self.next_barrier();
            barrier = Some(number);
            let new = || OutgoingBuckets {
                owners: FxHashMap::default(),
                epoch,
                stage: MigrationStage::AwaitingBarrier(number),
            };
            let next = outgoing.get_or_insert_with(new);
            (next.epoch, next.stage) = (epoch, MigrationStage::AwaitingBarrier(number));
            next.owners.extend(more.into_iter().map(|bucket| (bucket, before.owners(bucket))));
        }
        self.outgoing = outgoing.filter(|outgoing| !outgoing.owners.is_empty());
        barrier
    }

    /// Handles that the balancers have answered a barrier.
    pub fn on_barrier(&mut self, number: u64) -> BarrierResult {
        let Some(outgoing) = &mut self.outgoing else { return BarrierResult::Nothing };
        match outgoing.stage {
            MigrationStage::AwaitingBarrier(barrier) if barrier == number => {
                outgoing.stage = MigrationStage::Ending(Vec::new());
                BarrierResult::EndProcedures
            }
            MigrationStage::Quiesced(barrier) if barrier == number => BarrierResult::HandOff,
            _ => BarrierResult::Nothing,
        }
    }

    /// Returns the UEs that had a procedure in progress at the last check; `None` if the migration
    /// is not in that stage.
    pub fn take_ending(&mut self) -> Option<Vec<S>> {
        match self.outgoing.as_mut().map(|outgoing| &mut outgoing.stage) {
            Some(MigrationStage::Ending(busy)) => Some(std::mem::take(busy)),
            _ => None,
        }
    }

    /// Stores the UEs that still have a procedure in progress.
    pub fn resume_ending(&mut self, busy: Vec<S>) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.stage = MigrationStage::Ending(busy);
        }
    }

    /// Stops starting procedures: all have ended, and the last copies are sent. Returns the number
    /// of the barrier to send to the balancers.
    pub fn quiesce(&mut self) -> u64 {
        let number = self.next_barrier();
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.stage = MigrationStage::Quiesced(number);
        }
        number
    }

    /// Returns true if a next owner has so many unacknowledged copies that the handoff must wait.
    pub fn is_next_far_behind(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let buckets = self.outgoing.iter().flat_map(|outgoing| outgoing.owners.keys());
        let mut next = buckets.filter_map(|bucket| self.next_owner(*bucket));
        next.any(|host| self.is_far_behind(host, acknowledged))
    }

    /// Ends the migration: all effects of the UEs that migrate have left, and other hosts own them.
    /// The caller has kept copies of those of which this host is a replica.
    pub fn finish_migration(&mut self) -> Option<MigratedBuckets> {
        let outgoing = self.outgoing.take()?;
        let own = self.host_id();
        let mut to: Vec<HostId> = outgoing.owners.keys().filter_map(|bucket| self.next_owner(*bucket)).collect();
        to.retain(|host| *host != own);
        to.sort_unstable();
        to.dedup();
        Some(MigratedBuckets { epoch: outgoing.epoch, to })
    }
}
