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
    Ends,
    /// All effects have left: the caller completes the migration
    /// ([`BucketOwner::finish_migration`]).
    HandsOver,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Returns true if the bucket migrates and no procedure of its UEs is started.
    pub fn is_quiesced(&self, bucket: Bucket) -> bool {
        let asleep = |leaving: &&OutgoingBuckets<S>| matches!(leaving.stage, MigrationStage::Quiesced(_));
        self.leaving.as_ref().filter(asleep).is_some_and(|leaving| leaving.owners.contains_key(&bucket))
    }

    /// Returns true if this host processes inputs for the UEs of a bucket.
    pub fn takes(&self, bucket: Bucket) -> bool {
        let asked = |leaving: &OutgoingBuckets<S>| matches!(leaving.stage, MigrationStage::Asked(_));
        let leaves = self.leaving.as_ref().is_some_and(|l| !asked(l) && l.owners.contains_key(&bucket));
        self.owns(bucket) && !leaves
    }

    /// Returns true if a bucket migrates to another host, or is about to.
    pub fn leaves(&self, bucket: Bucket) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.owners.contains_key(&bucket))
    }

    /// Returns the number of buckets that migrate away.
    pub fn leaving(&self) -> usize {
        self.leaving.as_ref().map_or(0, |leaving| leaving.owners.len())
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
            Some(bucket) if numbered && !self.takes(bucket) => InputDisposition::Return,
            _ => InputDisposition::Process,
        }
    }

    /// Starts a new classification of the inputs that were held back.
    pub fn sorts_again(&mut self) {
        self.stalled = false;
    }

    /// Starts or changes the migration after a new map: more buckets move to other hosts, or some
    /// stay because their next owner has died. `before` is the previous map. Returns the number of
    /// a barrier to send to the balancers, if one is needed.
    pub(super) fn begin_migration(&mut self, before: Option<BucketMap>) -> Option<u64> {
        let (Some(before), Some(map)) = (before, &self.map) else { return None };
        let own = self.own();
        let mut leaving = self.leaving.take();
        if let Some(leaving) = &mut leaving {
            leaving.owners.retain(|bucket, _| map.owners(*bucket).owner() != Some(own));
        }
        let goes = |bucket: &Bucket| {
            let had = before.owners(*bucket).owner() == Some(own) && !self.incoming_buckets.contains(bucket);
            had && map.owners(*bucket).owner().is_some_and(|next| next != own)
        };
        let more: Vec<Bucket> = (0..Bucket::COUNT).map(Bucket::new).filter(goes).collect();
        let epoch = map.epoch();
        let mut question = None;
        if !more.is_empty() {
            let number = self.ask();
            question = Some(number);
            let new = || OutgoingBuckets { owners: FxHashMap::default(), epoch, stage: MigrationStage::Asked(number) };
            let next = leaving.get_or_insert_with(new);
            (next.epoch, next.stage) = (epoch, MigrationStage::Asked(number));
            next.owners.extend(more.into_iter().map(|bucket| (bucket, before.owners(bucket))));
        }
        self.leaving = leaving.filter(|leaving| !leaving.owners.is_empty());
        question
    }

    /// Handles that the balancers have answered a barrier.
    pub fn on_barrier(&mut self, number: u64) -> BarrierResult {
        let Some(leaving) = &mut self.leaving else { return BarrierResult::Nothing };
        match leaving.stage {
            MigrationStage::Asked(asked) if asked == number => {
                leaving.stage = MigrationStage::Ending(Vec::new());
                BarrierResult::Ends
            }
            MigrationStage::Quiesced(asked) if asked == number => BarrierResult::HandsOver,
            _ => BarrierResult::Nothing,
        }
    }

    /// Returns the UEs that had a procedure in progress at the last check; `None` if the migration
    /// is not in that stage.
    pub fn take_ending(&mut self) -> Option<Vec<S>> {
        match self.leaving.as_mut().map(|leaving| &mut leaving.stage) {
            Some(MigrationStage::Ending(busy)) => Some(std::mem::take(busy)),
            _ => None,
        }
    }

    /// Stores the UEs that still have a procedure in progress.
    pub fn still_ends(&mut self, busy: Vec<S>) {
        if let Some(leaving) = &mut self.leaving {
            leaving.stage = MigrationStage::Ending(busy);
        }
    }

    /// Stops starting procedures: all have ended, and the last copies are sent. Returns the number
    /// of the barrier to send to the balancers.
    pub fn quiesce(&mut self) -> u64 {
        let number = self.ask();
        if let Some(leaving) = &mut self.leaving {
            leaving.stage = MigrationStage::Quiesced(number);
        }
        number
    }

    /// Returns true if a next owner has so many unacknowledged copies that the handoff must wait.
    pub fn is_next_far_behind(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let buckets = self.leaving.iter().flat_map(|leaving| leaving.owners.keys());
        let mut next = buckets.filter_map(|bucket| self.next_owner(*bucket));
        next.any(|host| self.is_far_behind(host, acknowledged))
    }

    /// Ends the migration: all effects of the UEs that migrate have left, and other hosts own them.
    /// The caller has kept copies of those of which this host is a replica.
    pub fn finish_migration(&mut self) -> Option<MigratedBuckets> {
        let leaving = self.leaving.take()?;
        let own = self.own();
        let mut to: Vec<HostId> = leaving.owners.keys().filter_map(|bucket| self.next_owner(*bucket)).collect();
        to.retain(|host| *host != own);
        to.sort_unstable();
        to.dedup();
        Some(MigratedBuckets { epoch: leaving.epoch, to })
    }
}
