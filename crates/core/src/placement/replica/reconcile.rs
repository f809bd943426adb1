//! Removal of replica entries that the owner does not confirm.
//!
//! A dying host may have sent a copy to two replicas of which only one received it, and that one
//! need not be the new owner. No effect of such a commit has left, and the new owner executes its
//! input again. If the new owner dies too, the other replica would continue from the unacknowledged
//! copy. It would then have a step besides the one executed in its place, or a UE that does not
//! exist.
//!
//! The new owner copies all its UEs to all replicas, and those copies replace entries of another
//! owner ([`ReplicaStore::apply`]). It sends no copy of UEs that it does not have. Behind its last
//! copy it therefore asks which UEs of its buckets the replica has from other hosts
//! ([`ReconcileRequest`]). It then names the UEs that do not exist
//! ([`ReplicaStore::remove_orphans`]) and sends the others again. Only then does that replica have
//! all copies.
//!
//! The owner decides, not the replica. The sender of a copy proves nothing where messages of
//! several hosts overtake each other, but the owner knows which UEs exist.

use super::message::ReconcileRequest;
use super::owner::{BucketOwner, SlotKey};
use super::owner_state::ReplicaProgress;
use super::{Fenced, ReplicaEntry, ReplicaStore};
use crate::placement::balance::HostId;
use vireo_types::{Bucket, Instant, Ltmsi};

/// Maximum number of UEs named in one answer. For more, the owner asks again.
pub const MAX_NAMED_UES: usize = 4096;

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Returns the request to a replica that was sent all copies; `None` if it is not a replica.
    pub(super) fn request_reconcile(&mut self, to: HostId) -> Option<ReconcileRequest> {
        let at = self.catching_up.iter().position(|(host, _)| *host == to)?;
        let all = (0..Bucket::COUNT).map(Bucket::new);
        let buckets = all.filter(|bucket| self.keeps_copies(to, *bucket) && self.owns(*bucket)).collect();
        let number = self.number(to);
        self.catching_up[at].1 = ReplicaProgress::Requested(number);
        Some(ReconcileRequest { number, buckets })
    }

    /// Returns true if the last request to a host has this number. The caller then sends the host
    /// the named UEs that exist here ([`BucketOwner::resend_full`]), and names those that do not.
    pub fn is_pending_request(&self, host: HostId, number: u64) -> bool {
        self.catching_up.contains(&(host, ReplicaProgress::Requested(number)))
    }

    /// Makes the next copy of the UE in a slot a full one.
    pub fn resend_full(&mut self, to: HostId, slot: S) {
        self.replica_versions.entry(to).or_default().remove(&slot);
    }

    /// Handles that all `named` foreign UEs of a host were sent or declared nonexistent. Returns
    /// the next request, if there may be more.
    pub fn on_reconciled(&mut self, host: HostId, named: usize) -> Option<ReconcileRequest> {
        if named >= MAX_NAMED_UES {
            return self.request_reconcile(host);
        }
        let sent = self.last_number(host);
        let replica = self.catching_up.iter_mut().find(|(replica, _)| *replica == host);
        replica.into_iter().for_each(|(_, progress)| *progress = ReplicaProgress::Sent(sent));
        None
    }
}

impl ReplicaStore {
    /// Handles a reconcile request: a host has sent all that it has of these buckets. Returns UEs
    /// of these buckets that this host has from other hosts. A repeated request is answered again.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn foreign_entries(
        &mut self,
        (from, epoch): (HostId, u64),
        number: u64,
        buckets: &[Bucket],
    ) -> Result<Vec<Ltmsi>, Fenced> {
        self.check(from, epoch)?;
        self.check_repeat(from, number);
        let theirs = buckets.iter().filter(|bucket| self.is_owner((from, epoch), **bucket));
        let ues = theirs.filter_map(|bucket| self.ues.get(bucket)).flatten();
        let others = ues.filter(|(_, entry)| entry.is_foreign_to(from)).map(|(ltmsi, _)| *ltmsi);
        Ok(others.take(MAX_NAMED_UES).collect())
    }

    /// Removes UEs that their owner does not have. The entries were never acknowledged, and their
    /// inputs are treated as not executed.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn remove_orphans(
        &mut self,
        (from, epoch): (HostId, u64),
        number: u64,
        gone: &[Ltmsi],
        now: Instant,
    ) -> Result<(), Fenced> {
        self.check(from, epoch)?;
        if self.check_repeat(from, number) {
            return Ok(());
        }
        for ltmsi in gone.iter().filter(|ltmsi| self.is_owner((from, epoch), ltmsi.bucket())).collect::<Vec<_>>() {
            let Some(ues) = self.ues.get_mut(&ltmsi.bucket()) else { continue };
            // Entries that a later owner has sent stay.
            if ues.get(ltmsi).is_some_and(|entry| entry.is_foreign_to(from) && entry.epoch <= epoch) {
                let entry = ues.remove(ltmsi);
                self.void.extend(entry.iter().flat_map(|entry| &entry.outboxes).map(|commit| commit.input));
                self.note_removed((from, epoch), *ltmsi, now);
            }
        }
        Ok(())
    }

    /// Returns true if a host owns a bucket, as far as this host knows.
    pub(super) fn is_owner(&self, (from, epoch): (HostId, u64), bucket: Bucket) -> bool {
        let Some(map) = self.map.as_ref().filter(|map| epoch <= map.epoch()) else { return true };
        let awaited = self.awaited_buckets.get(&bucket).is_some_and(|(who, _)| *who == from);
        awaited || map.owners(bucket).owner() == Some(from)
    }
}

impl ReplicaEntry {
    /// Returns true if the UE exists and the entry was not sent by `host`.
    fn is_foreign_to(&self, host: HostId) -> bool {
        self.from != Some(host) && !self.ephemeral.is_empty()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Ack, ApplyResult, Commit, Mode, ReplicaAcks, ReplicaUpdate, ReplicationConfig};
    use super::*;
    use crate::amf::context::{self, EncodedContext, UeContext};
    use crate::placement::balance::map::{BucketMap, SliceBuckets};
    use crate::placement::balance::ring::WeightedHost;
    use std::collections::BTreeMap;
    use vireo_types::Duration;

    pub(in super::super) const NOW: Instant = Instant(1);

    #[derive(Default)]
    pub(in super::super) struct Acks(pub(in super::super) BTreeMap<HostId, u64>);

    impl ReplicaAcks for Acks {
        fn acked_up_to(&self, host: HostId) -> u64 {
            self.0.get(&host).copied().unwrap_or_default()
        }
    }

    pub(in super::super) fn parts(hosts: &[HostId]) -> Vec<SliceBuckets> {
        let hosts = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
        vec![SliceBuckets { weight: 1.0, replicas: 2, hosts }]
    }

    /// Owner of a bucket, its first and its second replica (`hosts`). `maps`: the first map, and
    /// the map in which the first replica is the owner.
    pub(in super::super) struct World {
        pub(in super::super) bucket: Bucket,
        pub(in super::super) hosts: [HostId; 3],
        pub(in super::super) maps: [BucketMap; 2],
    }

    impl World {
        pub(in super::super) fn new() -> Self {
            let all = [0, 1, 2].map(HostId);
            let first = BucketMap::first(&parts(&all));
            let bucket = Bucket::new(7);
            let owners: Vec<HostId> = first.owners(bucket).all().collect();
            let second = first.next(&parts(&owners[1..]));
            assert!(second.owners(bucket).all().eq(owners[1..].iter().copied()), "as it was the next");
            World { bucket, hosts: [owners[0], owners[1], owners[2]], maps: [first, second] }
        }

        /// The second replica, by the first map.
        pub(in super::super) fn second_replica(&self) -> ReplicaStore {
            let mut store = ReplicaStore::new(self.hosts[2]);
            store.adopt(&self.maps[0], &self.hosts);
            store
        }

        /// The first replica as the new owner, after it has scanned all UEs that it must copy.
        pub(in super::super) fn next_owner(&self) -> BucketOwner<u32, ()> {
            let replication = ReplicationConfig { mode: Mode::Hot, replicas: 2, ack: Ack::One };
            let mut owner = BucketOwner::new(self.hosts[1], replication, vec![2]);
            owner.adopt(self.maps[0].clone(), self.hosts.to_vec());
            owner.adopt(self.maps[1].clone(), self.hosts[1..].to_vec());
            owner.set_awaited(Default::default());
            owner.rescan();
            let barrier = owner.request_nodes().expect("of the map");
            assert!(owner.on_nodes_known(barrier).is_some());
            owner
        }
    }

    pub(in super::super) fn copy(number: u64, ltmsi: Ltmsi, version: u32, outbox: &[u8]) -> ReplicaUpdate<'_> {
        ReplicaUpdate {
            number,
            ltmsi,
            before: None,
            input: if outbox.is_empty() { 0 } else { 100 + u64::from(version) },
            layout: context::LAYOUT_VERSION,
            perpetual_version: 1,
            ephemeral_version: version,
            perpetual: Some(b"perpetual"),
            ephemeral: b"ephemeral",
            outbox,
            associations: [None; 2],
        }
    }

    fn outboxes(entry: &ReplicaEntry) -> Vec<&[u8]> {
        entry.unsent_outboxes(NOW).map(|unsent| unsent.outbox).collect()
    }

    /// Regression test for seed 2637 of the fault campaign. The first replica never received the
    /// first commit of a UE, the second one did, and both owners die within a moment.
    #[test]
    fn unacknowledged_ue_is_removed_before_takeover() {
        let world = World::new();
        let [dead, next, last] = world.hosts;
        let [real, phantom] = [1, 2].map(|number| Ltmsi::new(world.bucket, number));
        let (mut store, mut owner, mut acks) = (world.second_replica(), world.next_owner(), Acks::default());
        let context = context::encode(&UeContext::new(real), Vec::new()).unwrap();
        let EncodedContext { perpetual, ephemeral, .. } = EncodedContext::new(&context).unwrap();
        let first = ReplicaUpdate { perpetual: Some(perpetual), ephemeral, ..copy(1, real, 1, b"real") };
        store.apply((dead, 1), &first, NOW).unwrap();
        store.apply((dead, 1), &copy(2, phantom, 2, b"phantom"), NOW).unwrap();
        store.adopt(&world.maps[1], &world.hosts[1..]);
        // The new owner has only the real UE, and copies it.
        let commit = Commit {
            slot: 7,
            ltmsi: real,
            before: None,
            input: 0,
            context: &context,
            outbox: b"",
            associations: [None; 2],
            proposer: None,
        };
        let (to, _) = owner.next_lagging_replica(&acks).expect("the other host");
        assert_eq!(to, last);
        owner.send(to, &commit, &acks, &mut |_, copy| _ = store.apply((next, 2), &copy, NOW).unwrap()).unwrap();
        let ReconcileRequest { number, buckets } = owner.on_scanned(to, None).expect("a question");
        assert!(buckets.contains(&world.bucket) && owner.is_pending_request(last, number));
        acks.0.insert(last, number);
        assert_eq!(owner.caught_up(&acks).to_vec(), [next], "itself; the other one has not answered");
        let others = store.foreign_entries((next, 2), number, &buckets).unwrap();
        assert_eq!(others, [phantom]);
        assert_eq!(store.foreign_entries((next, 2), number, &buckets).unwrap(), others, "it may be asked again");
        let gone = owner.number(last);
        assert_eq!(owner.on_reconciled(last, others.len()), None);
        assert!(!owner.is_pending_request(last, number) && owner.caught_up(&acks).is_empty());
        store.remove_orphans((next, 2), gone, &others, NOW).unwrap();
        acks.0.insert(last, gone);
        assert_eq!(owner.caught_up(&acks).to_vec(), [last]);

        let takeover = store.adopt(&world.maps[1].next(&parts(&[last])), &[last]);
        let ues: Vec<Ltmsi> = takeover.ues.iter().map(|(ltmsi, _)| *ltmsi).collect();
        assert_eq!(
            (ues, takeover.inputs),
            (vec![real], vec![(real, 101)]),
            "what it was the result of is not carried out"
        );
    }

    #[test]
    fn unacknowledged_step_is_replaced() {
        let world = World::new();
        let [dead, next, last] = world.hosts;
        let ue = Ltmsi::new(world.bucket, 1);
        for as_it_is in [true, false] {
            let mut store = world.second_replica();
            for (number, outbox) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
                store.apply((dead, 1), &copy(number, ue, number as u32, outbox), NOW).unwrap();
            }
            store.adopt(&world.maps[1], &world.hosts[1..]);
            // The new owner has the first step; its second step differs.
            if as_it_is {
                assert_eq!(store.apply((next, 2), &copy(1, ue, 1, b""), NOW), Ok(ApplyResult::Applied));
                assert_eq!(outboxes(&store.ues[&world.bucket][&ue]), [b"one"]);
            }
            assert_eq!(store.apply((next, 2), &copy(2, ue, 2, b"again"), NOW), Ok(ApplyResult::Applied));
            let takeover = store.adopt(&world.maps[1].next(&parts(&[last])), &[last]);
            assert_eq!(outboxes(&takeover.ues[0].1), [&b"one"[..], b"again"]);
            let mut inputs: Vec<u64> = takeover.inputs.into_iter().map(|(_, input)| input).collect();
            inputs.dedup();
            assert_eq!(inputs, [101, 102], "103 is given again");
        }
    }

    /// Requests of hosts that are not the owner, or were it before, remove nothing. Entries that
    /// the owner has sent stay.
    #[test]
    fn non_owner_removes_no_entry() {
        let world = World::new();
        let [dead, next, last] = world.hosts;
        let [ue, other] = [1, 2].map(|number| Ltmsi::new(world.bucket, number));
        let mut store = world.second_replica();
        store.apply((dead, 1), &copy(1, ue, 1, b"one"), NOW).unwrap();
        assert_eq!(store.foreign_entries((next, 1), 1, &[world.bucket]), Ok(vec![]), "the bucket is another one's");
        store.remove_orphans((next, 1), 2, &[ue], NOW).unwrap();
        store.remove_orphans((dead, 1), 2, &[ue], NOW).unwrap();
        assert_eq!(store.len(), 1, "the one has not sent it, the other one has");
        // A later map, which is not known here yet, makes `next` the owner.
        store.apply((next, 2), &copy(3, other, 1, b""), NOW).unwrap();
        assert_eq!(store.foreign_entries((next, 2), 4, &[world.bucket]), Ok(vec![ue]));
        // Meanwhile a later owner follows it.
        store.apply((dead, 3), &copy(3, ue, 2, b"two"), NOW).unwrap();
        store.remove_orphans((next, 2), 5, &[ue, other], NOW).unwrap();
        assert_eq!(store.len(), 2);
        let third = world.maps[1].next(&parts(&[next, last]));
        store.adopt(&world.maps[1], &world.hosts[1..]);
        store.adopt(&third, &world.hosts[1..]);
        store.remove_orphans((next, 3), 6, &[ue], NOW).unwrap();
        assert_eq!(store.len(), 1);
        assert_eq!(store.remove_orphans((dead, 1), 9, &[other], NOW), Err(Fenced { epoch: 3 }));
        assert_eq!(store.foreign_entries((dead, 1), 9, &[world.bucket]), Err(Fenced { epoch: 3 }));
    }

    /// Inputs that were not executed are remembered only as long as they could be taken for
    /// executed.
    #[test]
    fn void_inputs_expire_with_their_inputs() {
        let world = World::new();
        let [dead, next, last] = world.hosts;
        let [ue, other] = [1, 2].map(|number| Ltmsi::new(world.bucket, number));
        let mut store = world.second_replica();
        store.apply((dead, 1), &copy(1, ue, 1, b"one"), NOW).unwrap();
        store.apply((dead, 1), &ReplicaUpdate { input: 0, ..copy(2, other, 1, b"of no input") }, NOW).unwrap();
        store.adopt(&world.maps[1], &world.hosts[1..]);
        store.remove_orphans((next, 2), 1, &[ue, other], NOW).unwrap();
        assert!(store.void.contains(&101));
        let third = world.maps[1].next(&parts(&[next, last]));
        store.adopt(&third, &world.hosts[1..]);
        assert_eq!(store.void.iter().collect::<Vec<_>>(), [&101], "it may be given again");
        let later = NOW + Duration::from_secs(11);
        store.apply((next, 3), &ReplicaUpdate { input: 0, ..copy(2, ue, 2, b"two") }, later).unwrap();
        // A later owner removes an entry whose input is already forgotten.
        store.void.insert(101);
        let takeover = store.adopt(&third.next(&parts(&[last])), &[last]);
        assert!(takeover.inputs.is_empty() && store.void.is_empty());
    }

    #[test]
    fn reconcile_repeats_beyond_one_message() {
        let world = World::new();
        let [_, next, last] = world.hosts;
        let (mut owner, mut store) = (world.next_owner(), world.second_replica());
        store.adopt(&world.maps[1], &world.hosts[1..]);
        let versions = context::Versions { perpetual: 1, ephemeral: 4, ..context::Versions::default() };
        let parts = context::EncodedContext { versions, perpetual: b"p", ephemeral: b"e" };
        store.insert_own(Ltmsi::new(world.bucket, 1), &parts);
        assert_eq!(store.foreign_entries((next, 2), 1, &[world.bucket]), Ok(vec![]), "who it was handed to has it");
        let (to, _) = owner.next_lagging_replica(&Acks::default()).expect("the other host");
        owner.replica_versions.entry(to).or_default().insert(7, (Ltmsi::new(world.bucket, 1), 1));
        let first = owner.on_scanned(to, None).expect("a question");
        owner.resend_full(to, 7);
        assert!(owner.is_missing_copy(to, 7, Ltmsi::new(world.bucket, 1)));
        let second = owner.on_reconciled(last, MAX_NAMED_UES).expect("a question");
        assert!(second.number > first.number && second.buckets == first.buckets);
        assert!(owner.is_pending_request(last, second.number) && !owner.is_pending_request(last, first.number));
        assert_eq!(owner.on_reconciled(last, MAX_NAMED_UES - 1), None);
    }
}
