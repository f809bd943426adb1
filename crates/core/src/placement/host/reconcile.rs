//! Copies for replicas that lack them, and removal of entries that this owner does not confirm.

use super::committed::CommittedInputs;
use super::io::HostIo;
use super::machine::HostMachine;
use crate::placement::balance::HostId;
use crate::placement::message::ToReplica;
use crate::placement::replica::{BucketOwner, Commit, EffectAssociations, ReconcileRequest, ReplicaUpdate, SlotKey};
use vireo_types::Ltmsi;

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Sends some UEs to a replica that lacks their copies.
    pub(super) fn copy_missing<O>(&mut self, io: &O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let count = self.limits.scanned_slots;
        let Some(owner) = &mut self.owner else { return };
        let Some((to, from)) = owner.next_lagging_replica(io) else { return };
        let mut next = from + count;
        for (at, slot) in io.slots_from(from, count) {
            let is_missing = io.ltmsi_of(slot).is_some_and(|ltmsi| owner.is_missing_copy(to, slot, ltmsi));
            if is_missing && !copy_stored(owner, (to, slot), &self.committed, io) {
                next = at;
                break;
            }
        }
        let request = owner.on_scanned(to, (next < io.slot_bound()).then_some(next));
        send_request(to, request, io);
    }

    /// Handles a replica's list of this host's UEs that it has from other hosts. Existing UEs are
    /// copied again. Entries of other UEs are removed: none of their effects were sent.
    pub(super) fn on_reconcile_reply<O>(&mut self, (from, number): (HostId, u64), ues: &[Ltmsi], io: &O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(owner) = self.owner.as_mut().filter(|owner| owner.is_pending_request(from, number)) else { return };
        let mut unknown = Vec::new();
        for ltmsi in ues.iter().filter(|ltmsi| owner.owns(ltmsi.bucket())).collect::<Vec<_>>() {
            // A former LTMSI is not the one of a UE.
            let slot = io.slot_of(*ltmsi).filter(|slot| io.ltmsi_of(*slot) == Some(*ltmsi));
            match slot.filter(|slot| io.read(*slot).is_some()) {
                Some(slot) => {
                    owner.resend_full(from, slot);
                    // A UE whose last commit was not passed is copied when it is.
                    copy_stored(owner, (from, slot), &self.committed, io);
                }
                None => unknown.push(*ltmsi),
            }
        }
        if !unknown.is_empty() {
            let number = owner.number(from);
            io.send_to_replica(from, number, &ToReplica::ReconcileRemove { number, ues: unknown });
        }
        let request = owner.on_reconciled(from, ues.len());
        send_request(from, request, io);
    }
}

/// Copies the stored state of a UE to a replica. Returns false if the UE's last commit was not
/// passed to the machine yet; its copy will follow. A replica with this state and without that copy
/// would not know the commit's effects and input.
///
/// The copy also names inputs that serving hosts and dead owners have executed. A balancer that
/// does not know it yet may give them to this replica when it becomes the owner. One copy names one
/// input.
fn copy_stored<S: SlotKey, P, O: HostIo<Slot = S>>(
    owner: &mut BucketOwner<S, P>,
    (to, slot): (HostId, S),
    committed: &CommittedInputs,
    io: &O,
) -> bool {
    let Some(ue) = io.read(slot) else { return true };
    if !ue.is_passed {
        return false;
    }
    let before = io.ltmsi_of(slot).filter(|before| *before != ue.ltmsi);
    let mut send = |to, copy: ReplicaUpdate<'_>| io.send_to_replica(to, copy.number, &ToReplica::Copy(copy));
    let mut inputs = committed.by_ue(ue.ltmsi);
    let mut input = inputs.next().unwrap_or_default();
    loop {
        let commit = Commit { before, input, ..stored_commit(slot, ue.ltmsi, &ue.context, &[]) };
        owner.send(to, &commit, io, &mut send);
        let Some(next) = inputs.next() else { return true };
        input = next;
    }
}

/// Requests from a replica that was sent all copies the entries that it has from other hosts.
fn send_request(to: HostId, request: Option<ReconcileRequest>, io: &impl HostIo) {
    if let Some(ReconcileRequest { number, buckets }) = request {
        io.send_to_replica(to, number, &ToReplica::ReconcileRequest { number, buckets });
    }
}

/// Returns the commit that copies a UE as it is stored, to a replica that lacks it.
pub(super) fn stored_commit<'a, S>(slot: S, ltmsi: Ltmsi, context: &'a [u8], outbox: &'a [u8]) -> Commit<'a, S> {
    let associations = EffectAssociations::default();
    Commit { slot, ltmsi, before: None, input: 0, context, outbox, associations, proposer: None }
}
