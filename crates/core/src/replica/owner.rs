//! An owner's side: which copies go to whom, and when effects may leave.

use super::effect_watermark::EffectWatermark;
use super::migration::OutgoingBuckets;
use super::nodes::Nodes;
use super::reconcile::{ReconcileRequest, ReplicaProgress};
use super::{EffectAssociations, Mode, ReplicaUpdate, ReplicationConfig};
use crate::balance::HostId;
use crate::balance::map::{BucketMap, BucketPlacement};
use crate::context::{self, EncodedContext as Parts};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::hash::Hash;
use vireo_types::{Bucket, Ltmsi};

/// Copies that a host may be behind by before it gets no more, but all UEs as they are then.
const BEHIND: u64 = 65_536;
/// And by how many it may be for more UEs to be sent to it that it has no copy of.
const CATCHES_UP: u64 = 4096;

/// What other hosts have said to have.
pub trait ReplicaAcks {
    /// The number of the last copy that a host has said to have.
    fn acked_up_to(&self, host: HostId) -> u64;
}

/// A commit as it is copied.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a, S> {
    /// Where the UE is here.
    pub slot: S,
    /// The UE.
    pub ltmsi: Ltmsi,
    /// The number that it had until this commit, if that was another.
    pub before: Option<Ltmsi>,
    /// The input that was carried out, 0 if it was none of a balancer's.
    pub input: u64,
    /// The context in its stored form; empty: it is gone.
    pub context: &'a [u8],
    /// What the commit wants done; empty if that was done long ago.
    pub outbox: &'a [u8],
    /// By which associations.
    pub ways: EffectAssociations,
}

/// A commit that is copied once more, to a host that follows one which is gone.
#[derive(Clone, Debug)]
pub struct ResentCommit<S> {
    /// Where the UE is here.
    pub slot: S,
    /// The UE.
    pub ltmsi: Ltmsi,
    /// The number that it has outside, if that is another: it had it before this commit or one that waits, too.
    pub before: Option<Ltmsi>,
    /// The input that was carried out.
    pub input: u64,
    /// The context in its stored form.
    pub context: Vec<u8>,
    /// What it wants done.
    pub outbox: Vec<u8>,
    /// By which associations.
    pub ways: EffectAssociations,
}

/// Hosts that have to have a copy, or a later one.
type RequiredAcks = SmallVec<[(HostId, u64); 2]>;

/// A record whose effects wait for copies.
#[derive(Debug)]
pub(super) struct AwaitingCommit<P> {
    record: P,
    /// It ends a procedure.
    ended: bool,
    needs: RequiredAcks,
    /// All copies of it.
    pub(super) sent: RequiredAcks,
}

/// What a host has of its own UEs at others. `S` is where a UE is, `P` a record whose effects wait.
#[derive(Debug)]
pub struct BucketOwner<S, P> {
    own: HostId,
    replication: ReplicationConfig,
    /// Of UEs whose slice is not known and of each slice: how many hosts keep copies besides the owner.
    replicas: Vec<usize>,
    pub(super) map: Option<BucketMap>,
    /// The hosts that there are.
    hosts: Vec<HostId>,
    /// The number of the last copy to each host.
    numbers: FxHashMap<HostId, u64>,
    pub(super) awaiting: VecDeque<AwaitingCommit<P>>,
    /// Of each host that has copies: the UE and the version of the perpetual part that it has of each slot.
    pub(super) replica_versions: FxHashMap<HostId, FxHashMap<S, (Ltmsi, u32)>>,
    /// Hosts that are to have copies of all UEs of some buckets, and how far they have.
    lagging: VecDeque<(HostId, u32)>,
    /// Hosts of which the controller was not told that they have all copies, and how far each is.
    pub(super) catching_up: Vec<(HostId, ReplicaProgress)>,
    /// Buckets that go to hosts that live.
    pub(super) leaving: Option<OutgoingBuckets<S>>,
    /// Buckets that are this host's as soon as who had them hands them over.
    pub(super) incoming_buckets: FxHashSet<Bucket>,
    /// Whether all inputs wait behind some that wait for that.
    pub(super) stalled: bool,
    /// The number of the last question whether the balancers have done all.
    barriers: u64,
    pub(super) left: EffectWatermark,
    pub(super) nodes: Nodes,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// A host that is in no map yet, with what is copied of which slice ([`ReplicationConfig::of_slices`]).
    pub fn new(own: HostId, replication: ReplicationConfig, replicas: Vec<usize>) -> Self {
        BucketOwner {
            own,
            replication,
            replicas,
            map: None,
            hosts: Vec::new(),
            numbers: FxHashMap::default(),
            awaiting: VecDeque::new(),
            replica_versions: FxHashMap::default(),
            lagging: VecDeque::new(),
            catching_up: Vec::new(),
            leaving: None,
            incoming_buckets: FxHashSet::default(),
            stalled: false,
            barriers: 0,
            left: EffectWatermark::default(),
            nodes: Nodes::default(),
        }
    }

    /// Its number.
    pub fn own(&self) -> HostId {
        self.own
    }

    /// Which commits are copied.
    pub fn replication(&self) -> ReplicationConfig {
        self.replication
    }

    /// Whether commits are copied.
    pub fn copies(&self) -> bool {
        self.replicas.iter().any(|replicas| *replicas > 0)
    }

    /// Whether those of a bucket's UEs are: buckets are dealt to slice 0 and the slices in turn.
    pub fn is_copied(&self, bucket: Bucket) -> bool {
        let slices = self.replicas.len().max(1);
        self.replicas.get(usize::from(bucket.get()) % slices).is_some_and(|replicas| *replicas > 0)
    }

    /// The epoch, if no UEs are on their way to this host or from it.
    pub fn settled(&self) -> Option<u64> {
        let settled = self.incoming_buckets.is_empty() && self.leaving.is_none();
        self.map.as_ref().filter(|_| settled).map(BucketMap::epoch)
    }

    /// The map that it goes by.
    pub fn map(&self) -> Option<&BucketMap> {
        self.map.as_ref()
    }

    /// The hosts that there are.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// Buckets that are this host's as soon as who had them hands them over.
    pub fn coming(&self) -> &FxHashSet<Bucket> {
        &self.incoming_buckets
    }

    /// Records whose effects wait.
    pub fn waiting(&self) -> usize {
        self.awaiting.len()
    }

    /// Whether effects may leave that have waited, or somebody has all copies of which that was not said.
    pub fn has_released_effects(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let caught_up =
            || self.incoming_buckets.is_empty() && self.catching_up.iter().any(|u| self.has_caught_up(u, acknowledged));
        self.is_next_there(acknowledged) || caught_up()
    }

    /// Whether there is more to do of what is done a little at a time, or is looked at again and again.
    pub fn is_moving(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let more = || self.lagging.front().is_some_and(|(to, _)| !self.is_far_behind(*to, acknowledged));
        self.leaving.is_some() || more()
    }

    fn is_next_there(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let is_there = |(host, number): &(HostId, u64)| acknowledged.acked_up_to(*host) >= *number;
        self.awaiting.front().is_some_and(|first| first.needs.iter().all(is_there))
    }

    /// How many copies a host has not said to have.
    fn lag(&self, host: HostId, acknowledged: &impl ReplicaAcks) -> u64 {
        self.last_number(host).saturating_sub(acknowledged.acked_up_to(host))
    }

    /// Whether a host is so far behind that it is not sent more than it must be.
    pub fn is_far_behind(&self, host: HostId, acknowledged: &impl ReplicaAcks) -> bool {
        self.lag(host, acknowledged) > CATCHES_UP
    }

    /// The hosts of a bucket, by the map by which this host works for it.
    pub(super) fn owners(&self, bucket: Bucket) -> BucketPlacement {
        let before = self.leaving.as_ref().and_then(|leaving| leaving.owners.get(&bucket)).copied();
        before.or_else(|| Some(self.map.as_ref()?.owners(bucket))).unwrap_or_default()
    }

    /// The hosts that keep copies of a bucket's UEs, and whether each is waited for where one is.
    fn replicas(&self, bucket: Bucket) -> SmallVec<[(HostId, bool); 4]> {
        let owners = self.owners(bucket);
        let there = owners.replicas().filter(|host| self.is_copied(bucket) && self.hosts.contains(host));
        there.map(|host| (host, owners.first_replica().any(|first| first == host))).collect()
    }

    /// Whether this host carries out the steps of a bucket's UEs.
    pub fn owns(&self, bucket: Bucket) -> bool {
        self.owners(bucket).owner() == Some(self.own) && !self.incoming_buckets.contains(&bucket)
    }

    /// Whether a host has copies of a bucket's UEs at each commit.
    pub fn keeps_copies(&self, host: HostId, bucket: Bucket) -> bool {
        self.owners(bucket).keeps_copies(host) && self.is_copied(bucket) && self.hosts.contains(&host)
    }

    /// The number of something that is sent to a host in its order among the copies.
    pub fn number(&mut self, to: HostId) -> u64 {
        let last = self.numbers.entry(to).or_default();
        *last += 1;
        *last
    }

    /// The number of what was sent to a host last.
    pub(super) fn last_number(&self, to: HostId) -> u64 {
        self.numbers.get(&to).copied().unwrap_or_default()
    }

    /// The number of a question to the balancers, to say when all is done that was said so far.
    pub fn ask(&mut self) -> u64 {
        self.barriers += 1;
        self.barriers
    }

    /// A host has a UE with this version of the perpetual part.
    pub fn knows(&mut self, host: HostId, slot: S, ltmsi: Ltmsi, perpetual: u32) {
        self.replica_versions.entry(host).or_default().insert(slot, (ltmsi, perpetual));
    }

    /// A slot is nobody's any more.
    pub fn forget(&mut self, slot: S) {
        for known in self.replica_versions.values_mut() {
            known.remove(&slot);
        }
    }

    /// A commit, whose procedure has ended with it or not: `send` is given the copies of it. The record, if its effects may
    /// leave now; else it waits here, behind all that wait already: a UE's effects leave in the order of its commits.
    pub fn on_commit(
        &mut self,
        (commit, ended): (&Commit<'_, S>, bool),
        acknowledged: &impl ReplicaAcks,
        record: P,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> Option<P> {
        let (mut needs, mut sent) = (RequiredAcks::new(), RequiredAcks::new());
        if self.replication.mode == Mode::Hot || ended {
            (needs, sent) = self.replicate((commit, ended), acknowledged, send);
        }
        if needs.is_empty() && self.awaiting.is_empty() {
            return Some(record);
        }
        self.awaiting.push_back(AwaitingCommit { record, ended, needs, sent });
        None
    }

    /// Sends a UE as a commit has left it to all who keep copies of it. Who is waited for, and all copies.
    pub(super) fn replicate(
        &mut self,
        (commit, ended): (&Commit<'_, S>, bool),
        acknowledged: &impl ReplicaAcks,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> (RequiredAcks, RequiredAcks) {
        let (mut needs, mut sent, bucket) = (RequiredAcks::new(), RequiredAcks::new(), commit.ltmsi.bucket());
        for (to, first) in self.replicas(bucket) {
            let waits = self.replication.ack.waits(first, ended);
            let number = match waits {
                true => self.send_now(to, commit, send),
                false => self.send(to, commit, acknowledged, send),
            };
            sent.extend(number.map(|number| (to, number)));
            needs.extend(number.filter(|_| waits).map(|number| (to, number)));
        }
        if let Some(before) = commit.before {
            self.retract_copies(commit.slot, before, bucket, send);
        }
        (needs, sent)
    }

    /// A UE has got another number, of a slice that may have fewer copies: hosts that had copies and are to have none any more
    /// are told that it is gone.
    fn retract_copies(
        &mut self,
        slot: S,
        before: Ltmsi,
        next: Bucket,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) {
        let stays = self.replicas(next);
        let had = |host: &HostId| self.replica_versions.get(host).is_some_and(|known| known.contains_key(&slot));
        let hosts = self.replicas(before.bucket()).into_iter().map(|(host, _)| host);
        let gone = hosts.filter(|host| had(host) && !stays.iter().any(|(to, _)| to == host));
        let (context, outbox, ways) = (&[][..], &[][..], EffectAssociations::default());
        for to in gone.collect::<SmallVec<[HostId; 4]>>() {
            self.send_now(to, &Commit { slot, ltmsi: before, before: None, input: 0, context, outbox, ways }, send);
        }
    }

    /// The next record whose effects may leave.
    pub fn next_released(&mut self, acknowledged: &impl ReplicaAcks) -> Option<P> {
        if !self.is_next_there(acknowledged) {
            return None;
        }
        self.awaiting.pop_front().map(|pending| pending.record)
    }

    /// Sends a UE as a commit has it to a host; the number of the copy. `None` if it is too far behind, and gets all later.
    pub fn send(
        &mut self,
        to: HostId,
        commit: &Commit<'_, S>,
        acknowledged: &impl ReplicaAcks,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> Option<u64> {
        if self.lag(to, acknowledged) > BEHIND && self.awaiting.is_empty() {
            // Nothing waits for it, or nothing more than this would be sent.
            self.replica_versions.entry(to).or_default().clear();
            if !self.lagging.iter().any(|(host, _)| *host == to) {
                self.lagging.push_back((to, 0));
            }
            self.catching_up
                .iter_mut()
                .filter(|(host, _)| *host == to)
                .for_each(|(_, until)| *until = ReplicaProgress::Looked);
            return None;
        }
        self.send_now(to, commit, send)
    }

    /// The same, however many it has not said to have. `None` if what is stored has no parts.
    pub fn send_now(
        &mut self,
        to: HostId,
        commit: &Commit<'_, S>,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> Option<u64> {
        let Commit { slot, ltmsi, before, input, context, outbox, ways } = *commit;
        let known = self.replica_versions.entry(to).or_default();
        let gone = Parts { versions: context::Versions::default(), perpetual: &[], ephemeral: &[] };
        let parts = if context.is_empty() { gone } else { Parts::new(context).ok()? };
        let version = parts.versions.perpetual;
        let had = if context.is_empty() { known.remove(&slot) } else { known.insert(slot, (ltmsi, version)) };
        let number = self.number(to);
        let copy = ReplicaUpdate {
            number,
            ltmsi,
            before,
            input,
            perpetual_version: version,
            ephemeral_version: parts.versions.ephemeral,
            perpetual: (had != Some((ltmsi, version))).then_some(parts.perpetual),
            ephemeral: parts.ephemeral,
            outbox,
            ways,
        };
        send(to, copy);
        Some(number)
    }

    /// Records that wait for a host that is gone wait for the one that takes over in its place, which is sent them as `read`
    /// finds them. The UE may have gone on since, by commits that the host is not waited for with: it is looked through again for
    /// what it is now ([`BucketOwner::rescan`]).
    pub fn reassign_acks(
        &mut self,
        mut read: impl FnMut(&P) -> Option<ResentCommit<S>>,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) {
        let ack = self.replication.ack;
        let mut awaiting = std::mem::take(&mut self.awaiting);
        for AwaitingCommit { record, ended, needs, sent } in &mut awaiting {
            let before = needs.len();
            needs.retain(|(host, _)| self.hosts.contains(host));
            let Some(again) = (before != needs.len()).then(|| read(record)).flatten() else { continue };
            for (to, first) in self.replicas(again.ltmsi.bucket()) {
                if !ack.waits(first, *ended) || needs.iter().any(|(host, _)| *host == to) {
                    continue;
                }
                let ResentCommit { slot, ltmsi, before, input, ways, .. } = again;
                let (context, outbox) = (&again.context[..], &again.outbox[..]);
                let commit = Commit { slot, ltmsi, before, input, context, outbox, ways };
                let number = self.send_now(to, &commit, send).map(|number| (to, number));
                needs.extend(number);
                sent.extend(number);
                self.replica_versions.entry(to).or_default().remove(&slot);
            }
        }
        self.awaiting = awaiting;
    }

    /// The map of the next epoch, in the order of epochs; the caller has its shadows adopt it before, and tells the balancers
    /// first. The number of a question to the balancers that is to be asked, if buckets go to hosts that live.
    pub fn adopt(&mut self, map: BucketMap, hosts: Vec<HostId>) -> Option<u64> {
        self.hosts = hosts;
        let before = self.map.replace(map);
        self.begin_migration(before)
    }

    /// What is this host's but for what others have to hand over first ([`super::TakeoverSet::awaited`]). Who is to have nothing of a
    /// bucket any more, or has it of another owner, has nothing of it.
    pub fn entered(&mut self, awaited: FxHashSet<Bucket>) {
        self.incoming_buckets = awaited;
        self.incoming_buckets.extend(self.nodes.buckets());
        let mut known = std::mem::take(&mut self.replica_versions);
        known.retain(|host, known| {
            let has = |bucket: Bucket| self.owns(bucket) && self.owners(bucket).has(*host);
            known.retain(|_, (ltmsi, _)| has(ltmsi.bucket()));
            self.hosts.contains(host)
        });
        self.replica_versions = known;
    }

    /// All that other hosts are to have of this one's UEs is looked through, for what they have not.
    pub fn rescan(&mut self) {
        let Some(map) = &self.map else { return };
        let (own, copies) = (self.own, self.copies());
        let replicas = map.pairs_of(own).into_iter().map(|(_, host)| host);
        // Without copies, all that another host is to have it gets when a bucket is handed over.
        let until = |host| if !copies || host == own { ReplicaProgress::Kept(0) } else { ReplicaProgress::Looked };
        // It knows the RAN nodes, whether it owns anything or not.
        let others = replicas.filter(|host| *host != own).map(|host| (host, until(host)));
        self.catching_up = others.chain([(own, until(own))]).collect();
        let to = self.hosts.iter().filter(|host| copies && **host != own);
        self.lagging = to.map(|host| (*host, 0)).collect();
    }

    /// A host that is to have copies from now on, and from which slot on it is to be looked what it has not; what was looked
    /// through is said by [`BucketOwner::looked`].
    pub fn next_lagging_replica(&mut self, acknowledged: &impl ReplicaAcks) -> Option<(HostId, u32)> {
        let (to, from) = self.lagging.pop_front()?;
        if self.is_far_behind(to, acknowledged) {
            self.lagging.push_back((to, from));
            return None;
        }
        Some((to, from))
    }

    /// Whether a host is to have a copy of a UE, and has none.
    pub fn lacks(&self, to: HostId, slot: S, ltmsi: Ltmsi) -> bool {
        let has = || self.replica_versions.get(&to).is_some_and(|known| known.contains_key(&slot));
        self.keeps_copies(to, ltmsi.bucket()) && !has()
    }

    /// All that a host lacked has been sent, up to the slot of a number, or of all (`None`): then it is to be asked what it has of
    /// others.
    pub fn looked(&mut self, to: HostId, next: Option<u32>) -> Option<ReconcileRequest> {
        if let Some(next) = next {
            self.lagging.push_front((to, next));
            return None;
        }
        self.request_reconcile(to)
    }

    /// Hosts that have all copies since this was asked last: the controller is told, with the epoch. Of this host itself:
    /// it has what was handed over to it, and knows the RAN nodes of the map's balancers.
    pub fn caught_up(&mut self, acknowledged: &impl ReplicaAcks) -> SmallVec<[HostId; 2]> {
        if !self.incoming_buckets.is_empty() || self.catching_up.is_empty() {
            return SmallVec::new();
        }
        let uncaught = std::mem::take(&mut self.catching_up);
        let (have, have_not) = uncaught.iter().partition(|uncaught| self.has_caught_up(uncaught, acknowledged));
        let have: Vec<(HostId, ReplicaProgress)> = have;
        self.catching_up = have_not;
        have.into_iter().map(|(host, _)| host).collect()
    }

    fn has_caught_up(&self, (host, until): &(HostId, ReplicaProgress), acknowledged: &impl ReplicaAcks) -> bool {
        let knows = *host != self.own || self.knows_nodes();
        knows && matches!(until, ReplicaProgress::Kept(until) if acknowledged.acked_up_to(*host) >= *until)
    }

    /// The host to which a UE that goes is to be sent once more before it is handed over: one that is not copied at each
    /// commit, or that waits for an answer (`asks`) which the next owner has to ask for again.
    pub fn last_copy(&self, slot: S, ltmsi: Ltmsi, asks: bool) -> Option<HostId> {
        let to = self.next_owner(ltmsi.bucket())?;
        let each = self.replication.mode == Mode::Hot && self.is_copied(ltmsi.bucket());
        let known = self.replica_versions.get(&to).is_some_and(|known| known.contains_key(&slot));
        (asks || !each || !known).then_some(to)
    }
}

/// Where a UE is at its host: a small key.
pub trait SlotKey: std::marker::Copy + Eq + Hash {}

impl<S: std::marker::Copy + Eq + Hash> SlotKey for S {}
