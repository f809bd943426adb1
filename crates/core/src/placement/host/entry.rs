//! Entry of UEs of other hosts: takeover from dead hosts, and receipt from live ones.

use super::io::{HostIo, StepOutbox, UeNotice};
use super::machine::{HostMachine, UnsureUe};
use crate::amf::context::UeContext;
use crate::placement::balance::HostId;
use crate::placement::replica::{
    self, BucketOwner, ClaimResolution, EffectAssociations, Origin, ReplicaEntry, SlotKey, TakeoverSet, UnsentOutbox,
};
use crate::step::Effect;
use rustc_hash::FxHashSet;
use vireo_types::{Bucket, Instant, Ltmsi, Supi};

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Enters UEs that this host owns since this epoch.
    pub(super) fn take_over<O>(&mut self, mut set: TakeoverSet, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(owner) = &mut self.owner else { return };
        let mut awaited = std::mem::take(&mut set.awaited);
        awaited.extend(&self.loading);
        owner.set_awaited(awaited);
        self.enter_all(set, false, now, io);
    }

    /// Enters the UEs that were held back: all balancers have sent their RAN nodes and claims.
    pub(super) fn on_nodes_known<O>(&mut self, barrier: u64, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let set = self.owner.as_mut().and_then(|owner| owner.on_nodes_known(barrier));
        if let Some(set) = set.filter(|set| !set.ues.is_empty() || !set.handed.is_empty()) {
            self.enter_all(set, true, now, io);
        }
    }

    /// Enters UEs. Unless the RAN nodes and claims are certain, it holds back UEs of unknown RAN
    /// nodes and UEs that a claim supersedes.
    fn enter_all<O>(&mut self, set: TakeoverSet, is_certain: bool, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        for (ltmsi, input) in set.inputs {
            self.committed.add_taken_over(ltmsi, input, now);
        }
        let (mut taken_over, mut migrated) = (0, 0);
        for (ltmsi, entry) in set.ues {
            taken_over += usize::from(self.take_over_ue((ltmsi, entry), is_certain, now, io));
        }
        for (from, ltmsi, entry) in set.handed.into_iter().filter(|(.., entry)| !entry.ephemeral.is_empty()) {
            migrated += usize::from(self.receive_ue((from, is_certain), (ltmsi, entry), now, io));
        }
        io.on_entered(taken_over, migrated);
        self.finish_entry(io);
    }

    /// Completes the entry of UEs: the host serves their buckets from here on.
    pub fn finish_entry<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        // Numbers are allocated in these buckets only after all numbers in use are known.
        self.publish_buckets(io);
        self.owner.iter_mut().for_each(BucketOwner::rescan);
        self.release_inputs();
    }

    /// Handles that the UEs of these buckets were read from the database, with the inputs that
    /// their previous hosts committed. The caller enters them with [`HostMachine::enter`], and
    /// calls [`HostMachine::finish_entry`].
    pub fn on_loaded(&mut self, buckets: &FxHashSet<Bucket>, inputs: Vec<u64>, now: Instant) {
        self.note_committed(inputs, now);
        self.loading.retain(|bucket| !buckets.contains(bucket));
        let Some(owner) = &mut self.owner else { return };
        let awaited = owner.incoming().iter().copied().filter(|bucket| !buckets.contains(bucket)).collect();
        owner.set_awaited(awaited);
        owner.restart_classification();
    }

    /// Takes over a UE of a dead host. Returns false if it is held back or lost.
    fn take_over_ue<O>(
        &mut self,
        (ltmsi, entry): (Ltmsi, ReplicaEntry),
        is_certain: bool,
        now: Instant,
        io: &mut O,
    ) -> bool
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if entry.ephemeral.is_empty() {
            self.repeat_effects(None, (ltmsi, &entry), now, io);
            return true;
        }
        let Some(mut ue) = entry.decode() else {
            io.on_invalid_entry(ltmsi);
            return false;
        };
        if !is_certain && self.awaits_balancers((ltmsi, &ue), &entry, now, io) {
            self.hold_back_ue(ltmsi, entry, Origin::Dead);
            return false;
        }
        // The copy may lag behind messages that were sent.
        let may_lag = self.owner.as_ref().is_some_and(|owner| owner.replication().may_lag());
        if may_lag {
            replica::skip(&mut ue);
        }
        let Some(context) = (if may_lag { entry.next_version(&ue) } else { entry.encoded_context() }) else {
            io.on_invalid_entry(ltmsi);
            return false;
        };
        let claimed = || claimed_at::<O::Outbox>(&entry, now);
        if let Some(slot) = self.enter((ltmsi, &ue), &context, claimed, io) {
            record_connecting_input((slot, &entry), now, io);
            self.repeat_effects(Some(slot), (ltmsi, &entry), now, io);
        }
        true
    }

    /// Enters a UE that a live host has handed off. That host keeps a replica entry if it is a
    /// replica. Returns false if the UE is held back or lost.
    fn receive_ue<O>(
        &mut self,
        (from, is_certain): (Option<HostId>, bool),
        (ltmsi, entry): (Ltmsi, ReplicaEntry),
        now: Instant,
        io: &mut O,
    ) -> bool
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let (Some(ue), Some(context)) = (entry.decode(), entry.encoded_context()) else {
            io.on_invalid_entry(ltmsi);
            return false;
        };
        if !is_certain && self.awaits_balancers((ltmsi, &ue), &entry, now, io) {
            self.hold_back_ue(ltmsi, entry, Origin::Handed(from));
            return false;
        }
        let claimed = || claimed_at::<O::Outbox>(&entry, now);
        let Some(slot) = self.enter((ltmsi, &ue), &context, claimed, io) else { return true };
        record_connecting_input((slot, &entry), now, io);
        if let (Some(owner), Some(from)) = (&mut self.owner, from)
            && owner.keeps_copies(from, ltmsi.bucket())
        {
            owner.set_replica_version(from, slot, ltmsi, entry.perpetual_version());
        }
        // All effects were executed except requests whose answer the previous owner would receive.
        let outbox = entry.last_outbox().and_then(O::Outbox::decode);
        for effect in outbox.iter().flat_map(StepOutbox::effects) {
            if let Effect::Authenticate(request) = effect {
                io.authenticate(slot, ltmsi, request.clone());
            }
        }
        true
    }

    /// Enters a UE of another host with this encoded context. `claimed` returns the time at which
    /// one of its last commits claimed the subscriber. Returns its slot.
    pub fn enter<O>(
        &mut self,
        (ltmsi, ue): (Ltmsi, &UeContext),
        context: &[u8],
        claimed: impl Fn() -> Option<Instant>,
        io: &mut O,
    ) -> Option<S>
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let slot = io.insert(ltmsi, ue, context)?;
        if self.owner.is_some() {
            self.addresses.enter(io.partitions_of(ue));
            let unknown = ue.associations().filter(|node| !io.has_node(*node));
            self.unsure.extend(unknown.map(|node| UnsureUe { slot, ltmsi, node }));
        }
        self.enter_subscriber(slot, ue, claimed, io);
        Some(slot)
    }

    /// Returns true if the RAN node of a UE from another host is unknown, or if a claim supersedes
    /// the UE. Its RAN node or a later claim may still arrive: balancers send them on other
    /// connections.
    fn awaits_balancers<O>(&self, (ltmsi, ue): (Ltmsi, &UeContext), entry: &ReplicaEntry, now: Instant, io: &O) -> bool
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let claimed = || claimed_at::<O::Outbox>(entry, now);
        let resolution = self.claims.resolve(ue, |claimed| claimed == ltmsi, claimed);
        resolution == ClaimResolution::Superseded || ue.associations().any(|node| !io.has_node(node))
    }

    fn hold_back_ue(&mut self, ltmsi: Ltmsi, entry: ReplicaEntry, origin: Origin) {
        if let Some(owner) = &mut self.owner {
            owner.hold_back(ltmsi, entry, origin);
        }
    }

    /// Executes effects of a UE's last commits again, with the same keys, unless they are known to
    /// be sent.
    fn repeat_effects<O>(&mut self, slot: Option<S>, (ltmsi, entry): (Ltmsi, &ReplicaEntry), now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        for UnsentOutbox { outbox, associations, sent } in entry.unsent_outboxes(now) {
            let Some(mut outbox) = O::Outbox::decode(outbox) else {
                io.on_invalid_entry(ltmsi);
                continue;
            };
            if sent {
                outbox.retain_requests();
            }
            self.repeat_outbox(slot, (outbox, associations), now, io);
        }
    }

    /// Executes the effects of a commit of another host again, with the same keys. Claims are
    /// repeated; the other effects are part of the context or of the tables derived from it.
    pub fn repeat_outbox<O>(
        &mut self,
        slot: Option<S>,
        (outbox, paths): (O::Outbox, EffectAssociations),
        now: Instant,
        io: &mut O,
    ) where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let at = outbox.at();
        let claims: Vec<(Supi, Instant)> =
            outbox.effects().iter().filter_map(|effect| effect.claims_subscriber(at)).collect();
        io.execute_again(slot, outbox, paths);
        let Some(slot) = slot else { return };
        for (supi, at) in claims {
            self.repeat_claim_of_entered((slot, supi), at, now, io);
        }
    }

    /// Makes UEs idle whose RAN nodes are still unknown after all reports were processed. Does
    /// nothing while inputs wait, which may be reports.
    pub fn disconnect_unsure<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if self.unsure.is_empty() || !self.waiting_mut().is_empty() {
            return;
        }
        for UnsureUe { slot, ltmsi, node } in std::mem::take(&mut self.unsure) {
            if io.slot_of(ltmsi) != Some(slot) {
                continue;
            }
            match io.has_node(node) {
                true => io.node_of_ue_known(slot, node),
                false => self.notify(slot, UeNotice::ConnectionLost { node }, io),
            }
        }
    }
}

/// Returns the time at which one of an entry's last commits claimed its subscriber.
fn claimed_at<T: StepOutbox>(entry: &ReplicaEntry, now: Instant) -> Option<Instant> {
    entry.unsent_outboxes(now).filter_map(|unsent| T::decode(unsent.outbox)?.claimed_at()).max()
}

/// Records the inputs of an entry's last commits that have connected the UE. A reset by its RAN
/// node that comes before them ends an older connection.
fn record_connecting_input<S, P, E, O>((slot, entry): (S, &ReplicaEntry), now: Instant, io: &mut O)
where
    S: SlotKey,
    O: HostIo<Slot = S, Record = P, Event = E>,
{
    let outboxes = entry.unsent_outboxes(now).filter_map(|unsent| O::Outbox::decode(unsent.outbox));
    for input in outboxes.filter_map(|outbox| outbox.connecting_input()) {
        io.record_connecting_input(slot, input);
    }
}
