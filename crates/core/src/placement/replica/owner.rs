//! Owner side of replication: copies to replicas, and release of effects.
//!
//! [`BucketOwner`] decides which copies each replica receives and when the effects of a commit may
//! leave.

use super::message::{EffectAssociations, ReconcileRequest, ReplicaUpdate};
use super::owner_state::{EffectWatermark, Nodes, OutgoingBuckets, ReplicaProgress};
use super::{Mode, ReplicationConfig};
use crate::amf::context::{self, EncodedContext as Parts};
use crate::placement::balance::HostId;
use crate::placement::balance::map::{BucketMap, BucketPlacement};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::hash::Hash;
use vireo_types::{Bucket, Ltmsi};

/// Maximum number of unacknowledged copies. Beyond it a replica receives no more copies, but later
/// all UEs in their state at that time.
const MAX_UNACKED_COPIES: u64 = 65_536;
/// Maximum number of unacknowledged copies at which a replica receives further UEs that it lacks.
const MAX_CATCH_UP_COPIES: u64 = 4096;

/// Acknowledgements received from replicas.
pub trait ReplicaAcks {
    /// Returns the number of the last copy that a host has acknowledged.
    fn acked_up_to(&self, host: HostId) -> u64;
}

/// Commit in the form in which it is copied.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a, S> {
    /// Key of the UE at this host.
    pub slot: S,
    pub ltmsi: Ltmsi,
    /// LTMSI until this commit, if it was a different one.
    pub before: Option<Ltmsi>,
    /// Input that was executed; 0 if it is not a balancer's.
    pub input: u64,
    /// Encoded context; empty: deleted.
    pub context: &'a [u8],
    /// Effects of the commit; empty if they were executed long ago.
    pub outbox: &'a [u8],
    /// Associations that the effects use.
    pub associations: EffectAssociations,
    /// Host whose proposal this is. It has the commit already.
    pub proposer: Option<HostId>,
}

/// Commit that is copied again, to a replica that replaces a dead one.
#[derive(Clone, Debug)]
pub struct ResentCommit<S> {
    /// Key of the UE at this host.
    pub slot: S,
    pub ltmsi: Ltmsi,
    /// Former LTMSI, if it differs: the UE had it before this commit or before another one that
    /// still waits.
    pub before: Option<Ltmsi>,
    /// Input that was executed; 0 if it is not a balancer's.
    pub input: u64,
    /// Context in its stored form.
    pub context: Vec<u8>,
    /// Effects of the commit.
    pub outbox: Vec<u8>,
    /// Associations that the effects use.
    pub associations: EffectAssociations,
}

/// Hosts that must acknowledge this copy number or a later one.
type RequiredAcks = SmallVec<[(HostId, u64); 2]>;

/// Commit whose effects wait for acknowledgements.
#[derive(Debug)]
pub(super) struct AwaitingCommit<P> {
    record: P,
    /// True if the commit ends a procedure.
    ended: bool,
    needs: RequiredAcks,
    /// All copies of the commit, required or not.
    pub(super) sent: RequiredAcks,
}

/// Owner side of a host's replication. `S` is the key of a UE, `P` a commit whose effects wait.
#[derive(Debug)]
pub struct BucketOwner<S, P> {
    own: HostId,
    replication: ReplicationConfig,
    /// Number of replicas for UEs of unknown slice (element 0) and for each slice.
    replicas: Vec<usize>,
    pub(super) map: Option<BucketMap>,
    /// Hosts of the current map.
    hosts: Vec<HostId>,
    /// Number of the last copy sent to each host.
    numbers: FxHashMap<HostId, u64>,
    pub(super) awaiting: VecDeque<AwaitingCommit<P>>,
    /// Per replica and slot: LTMSI and version of the perpetual part that the replica has.
    pub(super) replica_versions: FxHashMap<HostId, FxHashMap<S, (Ltmsi, u32)>>,
    /// Replicas that must receive all UEs of some buckets, and the slot from which the scan
    /// continues.
    lagging: VecDeque<(HostId, u32)>,
    /// Replicas whose completion was not yet reported to the controller, with their progress.
    pub(super) catching_up: Vec<(HostId, ReplicaProgress)>,
    /// Buckets that migrate to live hosts.
    pub(super) outgoing: Option<OutgoingBuckets<S>>,
    /// Buckets that this host owns once their previous owner hands them off.
    pub(super) incoming_buckets: FxHashSet<Bucket>,
    /// True if all inputs wait behind one that waits for such a handoff.
    pub(super) stalled: bool,
    /// Number of the last barrier to the balancers.
    barriers: u64,
    pub(super) watermark: EffectWatermark,
    pub(super) nodes: Nodes,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Creates the owner side of a host that is in no map yet. `replicas` comes from
    /// [`ReplicationConfig::replicas_by_slice`].
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
            outgoing: None,
            incoming_buckets: FxHashSet::default(),
            stalled: false,
            barriers: 0,
            watermark: EffectWatermark::default(),
            nodes: Nodes::default(),
        }
    }

    /// Returns the ID of this host.
    pub fn host_id(&self) -> HostId {
        self.own
    }

    /// Returns the replication settings.
    pub fn replication(&self) -> ReplicationConfig {
        self.replication
    }

    /// Returns true if any commits are copied.
    pub fn copies(&self) -> bool {
        self.replicas.iter().any(|replicas| *replicas > 0)
    }

    /// Returns true if the UEs of a bucket are copied. Buckets belong to slice 0 and the other
    /// slices in turn.
    pub fn is_copied(&self, bucket: Bucket) -> bool {
        let slices = self.replicas.len().max(1);
        self.replicas.get(usize::from(bucket.get()) % slices).is_some_and(|replicas| *replicas > 0)
    }

    /// Returns the epoch, if no bucket migrates to this host or from it.
    pub fn settled_epoch(&self) -> Option<u64> {
        let settled = self.incoming_buckets.is_empty() && self.outgoing.is_none();
        self.map.as_ref().filter(|_| settled).map(BucketMap::epoch)
    }

    /// Returns the current bucket map.
    pub fn map(&self) -> Option<&BucketMap> {
        self.map.as_ref()
    }

    /// Returns the hosts of the current map.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// Returns the buckets that this host owns once their previous owner hands them off.
    pub fn incoming(&self) -> &FxHashSet<Bucket> {
        &self.incoming_buckets
    }

    /// Returns the number of commits whose effects wait.
    pub fn waiting(&self) -> usize {
        self.awaiting.len()
    }

    /// Returns true if effects became sendable, or a replica has caught up and that was not
    /// reported.
    pub fn has_released_effects(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let caught_up =
            || self.incoming_buckets.is_empty() && self.catching_up.iter().any(|u| self.has_caught_up(u, acknowledged));
        self.is_next_acknowledged(acknowledged) || caught_up()
    }

    /// Returns true if incremental work or a check remains to be done: a migration, or a scan for
    /// missing copies.
    pub fn is_moving(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let more = || self.lagging.front().is_some_and(|(to, _)| !self.is_far_behind(*to, acknowledged));
        self.outgoing.is_some() || more()
    }

    fn is_next_acknowledged(&self, acknowledged: &impl ReplicaAcks) -> bool {
        let is_there = |(host, number): &(HostId, u64)| acknowledged.acked_up_to(*host) >= *number;
        self.awaiting.front().is_some_and(|first| first.needs.iter().all(is_there))
    }

    /// Returns the number of copies that a host has not acknowledged.
    fn lag(&self, host: HostId, acknowledged: &impl ReplicaAcks) -> u64 {
        self.last_number(host).saturating_sub(acknowledged.acked_up_to(host))
    }

    /// Returns true if a host has so many unacknowledged copies that it receives only mandatory
    /// ones.
    pub fn is_far_behind(&self, host: HostId, acknowledged: &impl ReplicaAcks) -> bool {
        self.lag(host, acknowledged) > MAX_CATCH_UP_COPIES
    }

    /// Returns the placement of a bucket, by the map that this host applies to it.
    pub(super) fn owners(&self, bucket: Bucket) -> BucketPlacement {
        let before = self.outgoing.as_ref().and_then(|outgoing| outgoing.owners.get(&bucket)).copied();
        before.or_else(|| Some(self.map.as_ref()?.owners(bucket))).unwrap_or_default()
    }

    /// Returns the replicas of a bucket; true if it is one whose acknowledgement `ack = one` waits
    /// for.
    fn replicas(&self, bucket: Bucket) -> SmallVec<[(HostId, bool); 4]> {
        let owners = self.owners(bucket);
        let present = owners.replicas().filter(|host| self.is_copied(bucket) && self.hosts.contains(host));
        present.map(|host| (host, owners.first_replica().any(|first| first == host))).collect()
    }

    /// Returns true if this host executes the steps of a bucket's UEs.
    pub fn owns(&self, bucket: Bucket) -> bool {
        self.owners(bucket).owner() == Some(self.own) && !self.incoming_buckets.contains(&bucket)
    }

    /// Returns true if a host receives a copy of the bucket's UEs at each commit.
    pub fn keeps_copies(&self, host: HostId, bucket: Bucket) -> bool {
        self.owners(bucket).keeps_copies(host) && self.is_copied(bucket) && self.hosts.contains(&host)
    }

    /// Allocates the number of a message to a host in the sequence of copies.
    pub fn number(&mut self, to: HostId) -> u64 {
        let last = self.numbers.entry(to).or_default();
        *last += 1;
        *last
    }

    /// Returns the number of the last message to a host.
    pub(super) fn last_number(&self, to: HostId) -> u64 {
        self.numbers.get(&to).copied().unwrap_or_default()
    }

    /// Allocates the number of a barrier to the balancers. Its answer means that everything sent
    /// before is done.
    pub fn next_barrier(&mut self) -> u64 {
        self.barriers += 1;
        self.barriers
    }

    /// Records that a host has a UE with this version of the perpetual part.
    pub fn set_replica_version(&mut self, host: HostId, slot: S, ltmsi: Ltmsi, perpetual: u32) {
        self.replica_versions.entry(host).or_default().insert(slot, (ltmsi, perpetual));
    }

    /// Removes a slot that holds no UE.
    pub fn forget(&mut self, slot: S) {
        for known in self.replica_versions.values_mut() {
            known.remove(&slot);
        }
    }

    /// Handles a commit; `ended`: it ends a procedure. Passes the copies to `send`. Returns the
    /// commit if its effects may leave immediately. Else the commit waits here behind all that wait
    /// already, so that the effects of a UE leave in commit order.
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

    /// Sends the state of a UE after a commit to all its replicas. Returns the required
    /// acknowledgements and all copies.
    pub(super) fn replicate(
        &mut self,
        (commit, ended): (&Commit<'_, S>, bool),
        acknowledged: &impl ReplicaAcks,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> (RequiredAcks, RequiredAcks) {
        let (mut needs, mut sent, bucket) = (RequiredAcks::new(), RequiredAcks::new(), commit.ltmsi.bucket());
        for (to, first) in self.replicas(bucket) {
            let is_proposer = commit.proposer == Some(to);
            let waits = self.replication.ack.requires(first, ended) && !is_proposer;
            // The answer to the proposer follows the copy.
            let number = match waits || is_proposer {
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

    /// Handles a new LTMSI, of a slice that may have fewer replicas. Hosts that had copies and are
    /// not replicas any longer receive a deletion.
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
        let deleted = hosts.filter(|host| had(host) && !stays.iter().any(|(to, _)| to == host));
        let (context, outbox, associations) = (&[][..], &[][..], EffectAssociations::default());
        for to in deleted.collect::<SmallVec<[HostId; 4]>>() {
            self.send_now(
                to,
                &Commit { slot, ltmsi: before, before: None, input: 0, context, outbox, associations, proposer: None },
                send,
            );
        }
    }

    /// Returns the next commit whose effects may leave.
    pub fn next_released(&mut self, acknowledged: &impl ReplicaAcks) -> Option<P> {
        if !self.is_next_acknowledged(acknowledged) {
            return None;
        }
        self.awaiting.pop_front().map(|pending| pending.record)
    }

    /// Sends the state of a UE after a commit to a host. Returns the number of the copy; `None` if
    /// the host has too many unacknowledged copies. It then receives all UEs later.
    pub fn send(
        &mut self,
        to: HostId,
        commit: &Commit<'_, S>,
        acknowledged: &impl ReplicaAcks,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> Option<u64> {
        if self.lag(to, acknowledged) > MAX_UNACKED_COPIES && self.awaiting.is_empty() {
            // No effects wait for this host, or only this copy would be sent.
            self.replica_versions.entry(to).or_default().clear();
            if !self.lagging.iter().any(|(host, _)| *host == to) {
                self.lagging.push_back((to, 0));
            }
            self.catching_up
                .iter_mut()
                .filter(|(host, _)| *host == to)
                .for_each(|(_, progress)| *progress = ReplicaProgress::Scanning);
            return None;
        }
        self.send_now(to, commit, send)
    }

    /// Sends a copy, whatever number the host has not acknowledged. Returns `None` if the stored
    /// context has no parts.
    pub fn send_now(
        &mut self,
        to: HostId,
        commit: &Commit<'_, S>,
        send: &mut impl FnMut(HostId, ReplicaUpdate<'_>),
    ) -> Option<u64> {
        let Commit { slot, ltmsi, before, input, context, outbox, associations, .. } = *commit;
        let known = self.replica_versions.entry(to).or_default();
        let deleted = Parts { versions: context::Versions::default(), perpetual: &[], ephemeral: &[] };
        let parts = if context.is_empty() { deleted } else { Parts::new(context).ok()? };
        let context::Versions { layout, perpetual: version, ephemeral } = parts.versions;
        let had = if context.is_empty() { known.remove(&slot) } else { known.insert(slot, (ltmsi, version)) };
        let number = self.number(to);
        let copy = ReplicaUpdate {
            number,
            ltmsi,
            before,
            input,
            layout,
            perpetual_version: version,
            ephemeral_version: ephemeral,
            perpetual: (had != Some((ltmsi, version))).then_some(parts.perpetual),
            ephemeral: parts.ephemeral,
            outbox,
            associations,
        };
        send(to, copy);
        Some(number)
    }

    /// Replaces acknowledgements of dead hosts by those of their successors, to which the commits
    /// are sent again in the state that `read` returns. A UE may have advanced since by commits
    /// that do not require the successor's acknowledgement. It is therefore scanned again for its
    /// current state ([`BucketOwner::rescan`]).
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
                if !ack.requires(first, *ended) || needs.iter().any(|(host, _)| *host == to) {
                    continue;
                }
                let ResentCommit { slot, ltmsi, before, input, associations, .. } = again;
                let (context, outbox) = (&again.context[..], &again.outbox[..]);
                let commit = Commit { slot, ltmsi, before, input, context, outbox, associations, proposer: None };
                let number = self.send_now(to, &commit, send).map(|number| (to, number));
                needs.extend(number);
                sent.extend(number);
                self.replica_versions.entry(to).or_default().remove(&slot);
            }
        }
        self.awaiting = awaiting;
    }

    /// Adopts the map of the next epoch, in order of epochs. Before this call, the caller passes
    /// the map to its [`super::ReplicaStore`] and sends it to the balancers. Returns the number of
    /// a barrier to the balancers if buckets migrate to live hosts.
    pub fn adopt(&mut self, map: BucketMap, hosts: Vec<HostId>) -> Option<u64> {
        self.hosts = hosts;
        let before = self.map.replace(map);
        self.begin_migration(before)
    }

    /// Takes ownership of all buckets of this host except `awaited` ones
    /// ([`super::TakeoverSet::awaited`]). Recorded replica versions stay only for buckets that this
    /// host owns and for hosts in their placement.
    pub fn set_awaited(&mut self, awaited: FxHashSet<Bucket>) {
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

    /// Restarts the scan for UEs that replicas must have and lack.
    pub fn rescan(&mut self) {
        let Some(map) = &self.map else { return };
        let (own, copies) = (self.own, self.copies());
        let replicas = map.replication_pairs_of(own).into_iter().map(|(_, host)| host);
        // Without replication, the next host receives everything in the handoff.
        let progress = |host| if !copies || host == own { ReplicaProgress::Sent(0) } else { ReplicaProgress::Scanning };
        // This host must learn the RAN nodes, whether it owns buckets or not.
        let others = replicas.filter(|host| *host != own).map(|host| (host, progress(host)));
        self.catching_up = others.chain([(own, progress(own))]).collect();
        let to = self.hosts.iter().filter(|host| copies && **host != own);
        self.lagging = to.map(|host| (*host, 0)).collect();
    }

    /// Returns a host that must receive more copies and the slot from which to scan for those that
    /// it lacks. The caller reports the result to [`BucketOwner::on_scanned`].
    pub fn next_lagging_replica(&mut self, acknowledged: &impl ReplicaAcks) -> Option<(HostId, u32)> {
        let (to, from) = self.lagging.pop_front()?;
        if self.is_far_behind(to, acknowledged) {
            self.lagging.push_back((to, from));
            return None;
        }
        Some((to, from))
    }

    /// Returns true if a host must have a copy of a UE and has none.
    pub fn is_missing_copy(&self, to: HostId, slot: S, ltmsi: Ltmsi) -> bool {
        let has = || self.replica_versions.get(&to).is_some_and(|known| known.contains_key(&slot));
        self.keeps_copies(to, ltmsi.bucket()) && !has()
    }

    /// Handles that all missing copies were sent, up to slot `next` or of all slots (`None`). In
    /// the second case it returns the reconcile request.
    pub fn on_scanned(&mut self, to: HostId, next: Option<u32>) -> Option<ReconcileRequest> {
        if let Some(next) = next {
            self.lagging.push_front((to, next));
            return None;
        }
        self.request_reconcile(to)
    }

    /// Returns the hosts that have received all copies since the last call, for a report to the
    /// controller with the epoch. This host itself counts when it has received its handoffs and
    /// knows the RAN nodes of the map's balancers.
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

    fn has_caught_up(&self, (host, progress): &(HostId, ReplicaProgress), acknowledged: &impl ReplicaAcks) -> bool {
        let knows = *host != self.own || self.knows_nodes();
        knows && matches!(progress, ReplicaProgress::Sent(progress) if acknowledged.acked_up_to(*host) >= *progress)
    }

    /// Returns the host that must receive a migrating UE once more before the handoff. This is so
    /// for a UE that is not copied at each commit, or that waits for an answer (`has_request`)
    /// which the next owner must request again.
    pub fn last_copy(&self, slot: S, ltmsi: Ltmsi, has_request: bool) -> Option<HostId> {
        let to = self.next_owner(ltmsi.bucket())?;
        let each = self.replication.mode == Mode::Hot && self.is_copied(ltmsi.bucket());
        let known = self.replica_versions.get(&to).is_some_and(|known| known.contains_key(&slot));
        (has_request || !each || !known).then_some(to)
    }
}

/// Key of a UE at its host; small and copyable.
pub trait SlotKey: std::marker::Copy + Eq + Hash {}

impl<S: std::marker::Copy + Eq + Hash> SlotKey for S {}
