//! Buckets on their way between hosts that live: out of one, and into the next owner.
//!
//! A host that another one is to follow goes on as the owner until the balancers have said that all that they give it from now
//! on is by the new map. Then it ends what it has begun, waits until all copies are kept and all effects are with the
//! balancers, keeps copies of its own, and tells the next owner that the UEs are its. That one has kept back what came for
//! them meanwhile. Nothing is done twice, and nothing overtakes anything. If the old owner dies on the way, the next one goes
//! on as from a dead host; if the next one dies, the old one goes on, with what it has or with its copies.

use super::owner::{BucketOwner, ReplicaAcks, SlotKey};
use crate::balance::HostId;
use crate::balance::map::{BucketMap, BucketPlacement};
use rustc_hash::FxHashMap;
use vireo_types::Bucket;

/// Buckets that go to other hosts.
#[derive(Debug)]
pub(super) struct OutgoingBuckets<S> {
    /// Their hosts until now.
    pub(super) owners: FxHashMap<Bucket, BucketPlacement>,
    /// The epoch by which they go.
    epoch: u64,
    stage: MigrationStage<S>,
}

/// How far that is.
#[derive(Debug)]
enum MigrationStage<S> {
    /// The balancers may have given inputs by the last map until they answer this question.
    Asked(u64),
    /// These have something under way.
    Ending(Vec<S>),
    /// Nothing is under way, and nothing is begun. The balancers have all that was wanted sent when they answer.
    Quiesced(u64),
}

/// What to do with an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputDisposition {
    /// It is dealt with.
    Process,
    /// It is kept back until its UE is here.
    HoldBack,
    /// It is given back: it is for another host's UE.
    Return,
}

/// What was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedBuckets {
    /// The epoch by which it went.
    pub epoch: u64,
    /// To whom: each is told so, behind its last copy.
    pub to: Vec<HostId>,
}

/// What the balancers' answer lets a host do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierResult {
    /// Nothing.
    Nothing,
    /// All that is given by the old map has come: UEs of these buckets get no numbers here any more.
    Ends,
    /// All effects have left: what goes is to be handed over ([`BucketOwner::finish_migration`]).
    HandsOver,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Whether nothing is begun for a bucket's UEs any more, which go to another host.
    pub fn is_quiesced(&self, bucket: Bucket) -> bool {
        let asleep = |leaving: &&OutgoingBuckets<S>| matches!(leaving.stage, MigrationStage::Quiesced(_));
        self.leaving.as_ref().filter(asleep).is_some_and(|leaving| leaving.owners.contains_key(&bucket))
    }

    /// Whether inputs for a bucket's UEs are carried out here.
    pub fn takes(&self, bucket: Bucket) -> bool {
        let asked = |leaving: &OutgoingBuckets<S>| matches!(leaving.stage, MigrationStage::Asked(_));
        let leaves = self.leaving.as_ref().is_some_and(|l| !asked(l) && l.owners.contains_key(&bucket));
        self.owns(bucket) && !leaves
    }

    /// Whether a bucket's UEs go to another host, or are to.
    pub fn leaves(&self, bucket: Bucket) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.owners.contains_key(&bucket))
    }

    /// How many buckets do.
    pub fn leaving(&self) -> usize {
        self.leaving.as_ref().map_or(0, |leaving| leaving.owners.len())
    }

    pub(super) fn next_owner(&self, bucket: Bucket) -> Option<HostId> {
        self.map.as_ref()?.owners(bucket).owner()
    }

    /// What to do with an input for a bucket's UE (`None`: for nobody in particular), where `room` says whether more may be
    /// kept back. One of a node or UPF, which all hosts hear, stalls all that follows it.
    pub fn classify_input(
        &mut self,
        bucket: Option<Bucket>,
        of_node: bool,
        numbered: bool,
        room: bool,
    ) -> InputDisposition {
        let waits = bucket.is_some_and(|bucket| self.incoming_buckets.contains(&bucket));
        if self.stalled || waits || of_node && !self.incoming_buckets.is_empty() {
            // What all hosts hear is not given again to all of them.
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

    /// What was kept back is sorted again.
    pub fn sorts_again(&mut self) {
        self.stalled = false;
    }

    /// By the new map some buckets go to other hosts, or stay after all because those have died. `before` is the map that
    /// held until now. The number of the question that is to be asked.
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

    /// The balancers have done all that was said before a question.
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

    /// The UEs that were busy when it was looked last whether all has ended of those that go; `None` if that is not waited for.
    pub fn take_ending(&mut self) -> Option<Vec<S>> {
        match self.leaving.as_mut().map(|leaving| &mut leaving.stage) {
            Some(MigrationStage::Ending(busy)) => Some(std::mem::take(busy)),
            _ => None,
        }
    }

    /// These are busy still.
    pub fn still_ends(&mut self, busy: Vec<S>) {
        if let Some(leaving) = &mut self.leaving {
            leaving.stage = MigrationStage::Ending(busy);
        }
    }

    /// All has ended, and the last copies are sent: nothing is begun from here on. The number of the question to the balancers.
    pub fn quiesce(&mut self) -> u64 {
        let number = self.ask();
        if let Some(leaving) = &mut self.leaving {
            leaving.stage = MigrationStage::Quiesced(number);
        }
        number
    }

    /// Whether a host that is to have UEs is so far behind that they are not handed over yet.
    pub fn is_next_far_behind(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let buckets = self.leaving.iter().flat_map(|leaving| leaving.owners.keys());
        let mut next = buckets.filter_map(|bucket| self.next_owner(*bucket));
        next.any(|host| self.is_far_behind(host, acknowledged))
    }

    /// All has been done that this host's UEs have wanted done which go to other hosts: they are theirs now. The caller has kept
    /// copies of those of which this host is to have one.
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
