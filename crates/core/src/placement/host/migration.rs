//! Migration of buckets to live hosts: quiescence and handoff.

use super::io::{HostIo, StepOutbox};
use super::machine::HostMachine;
use super::reconcile::stored_commit;
use crate::amf::context::EncodedContext;
use crate::placement::message::{ClusterOutput, ToReplica};
use crate::placement::replica::{BucketOwner, MigratedBuckets, ReplicaUpdate, SlotKey};

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Returns the UEs in buckets that migrate, or are about to.
    fn outgoing_slots<O>(&self, io: &O) -> Vec<S>
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(owner) = self.owner.as_ref().filter(|owner| owner.outgoing_count() > 0) else { return vec![] };
        let is_outgoing = |slot: &S| io.ltmsi_of(*slot).is_some_and(|ltmsi| owner.is_outgoing(ltmsi.bucket()));
        let mut slots = io.slots();
        slots.retain(is_outgoing);
        slots
    }

    /// Checks whether all migrating UEs are at rest. If so, quiesces their buckets and sends a
    /// barrier.
    pub(super) fn end_migration<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(mut busy) = self.owner.as_mut().and_then(BucketOwner::take_ending) else { return };
        busy.retain(|slot| !io.is_at_rest(*slot));
        if busy.is_empty() {
            // A UE that was at rest may have received an event since.
            busy = self.outgoing_slots(io);
            busy.retain(|slot| !io.is_at_rest(*slot));
        }
        let is_quiesced = busy.is_empty() && self.send_last_copies(io);
        let Some(owner) = &mut self.owner else { return };
        if is_quiesced {
            let number = owner.quiesce();
            io.send(ClusterOutput::Barrier { number });
        } else {
            owner.resume_ending(busy);
        }
    }

    /// Sends to the next owners the UEs that they lack: those that are not copied at each commit,
    /// and those that wait for the subscriber service, whose request the next owner repeats.
    /// Returns false if a next owner is far behind.
    fn send_last_copies<O>(&mut self, io: &O) -> bool
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let slots = self.outgoing_slots(io);
        let Some(owner) = &mut self.owner else { return false };
        if owner.is_next_far_behind(io) {
            return false;
        }
        for slot in slots {
            let Some((ltmsi, ue)) = io.ltmsi_of(slot).zip(io.read(slot)) else { continue };
            let has_request = O::Outbox::decode(&ue.outbox).is_some_and(|outbox| outbox.has_request());
            if let Some(to) = owner.last_copy(slot, ltmsi, has_request) {
                let outbox = if has_request { &ue.outbox[..] } else { &[] };
                let commit = stored_commit(slot, ltmsi, &ue.context, outbox);
                let mut send =
                    |to, copy: ReplicaUpdate<'_>| io.send_to_replica(to, copy.number, &ToReplica::Copy(copy));
                owner.send_now(to, &commit, &mut send);
            }
        }
        true
    }

    /// Hands the migrating UEs off to their next owners: all effects were sent.
    pub(super) fn hand_off<O>(&mut self, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let slots = self.outgoing_slots(io);
        let Some(owner) = &mut self.owner else { return };
        let Some(MigratedBuckets { epoch, to }) = owner.finish_migration() else { return };
        // These events concern UEs that belong to other hosts.
        self.deferred.clear();
        let mut entries = Vec::new();
        for slot in slots {
            let Some(ltmsi) = io.ltmsi_of(slot) else { continue };
            let context = io.remove(slot);
            owner.forget(slot);
            let is_replica = owner.map().is_some_and(|map| map.owners(ltmsi.bucket()).has(owner.host_id()));
            let valid = context.filter(|context| is_replica && EncodedContext::new(context).is_ok());
            entries.extend(valid.map(|context| (ltmsi, context)));
        }
        // Before the next owner starts and sends its changes.
        io.store_own_entries(&entries);
        for host in to {
            let number = owner.number(host);
            io.send_to_replica(host, number, &ToReplica::BucketHandoff { number, epoch });
        }
        self.publish_buckets(io);
    }
}
