//! What dead hosts' last copies have left at one host alone, and nobody acknowledged: what `core::replica` decides
//! ([`vireo_core::replica::Whole`]), carried out.

use super::Host;
use super::cluster::{Cluster, Membership, as_it_is};
use crate::worker::outbox::Outbox;
use vireo_core::balance::HostId;
use vireo_core::replica::{Commit, ReconcileRequest};
use vireo_fabric::message::ToReplica;
use vireo_store::region::{Slot, Snapshot};
use vireo_types::Ltmsi;

impl Cluster {
    /// Asks a host that was sent all copies what it has of others.
    pub(super) fn ask_for_others(&self, to: HostId, whole: Option<ReconcileRequest>) {
        let Some(ReconcileRequest { number, buckets }) = whole else { return };
        self.member.replicator.send(to, number, &ToReplica::ReconcileRequest { number, buckets });
    }
}

impl Host {
    /// Sends a host a UE as it is now, which it lacks. False if its last commit was not seen here yet: a copy of that is to come,
    /// and what it wants done, and which input it has carried out, nobody would know of who had the UE as it is before.
    pub(super) fn send_ue(&mut self, to: HostId, slot: Slot, ltmsi: Ltmsi, record: &Snapshot) -> bool {
        if !record.sent && *self.order.last(slot) != record.version() {
            return false;
        }
        let Some(cluster) = self.cluster.as_mut() else { return true };
        let Cluster { primary, member: Membership { replicator, .. }, .. } = &mut **cluster;
        // The number of the context: that of the slot is the one before as long as effects wait.
        let now = Outbox::decode(&record.outbox).map_or(ltmsi, |outbox| outbox.ltmsi);
        let before = Some(ltmsi).filter(|before| *before != now);
        let commit = Commit { before, ..as_it_is(slot, now, &record.context, &[]) };
        primary.send(to, &commit, &*replicator, &mut |to, copy| _ = replicator.send_copy(to, copy));
        true
    }

    /// A host has these of this one's UEs by others' copies. What is here it is sent once more; of what is not, nobody was told.
    pub(super) fn has_others(&mut self, from: HostId, question: u64, ues: &[Ltmsi]) {
        let (mut record, mut gone) = (Snapshot::default(), Vec::new());
        for ltmsi in ues {
            let Some(cluster) = self.cluster.as_mut() else { return };
            if !cluster.primary.is_asked(from, question) {
                return;
            }
            if !cluster.primary.owns(ltmsi.bucket()) {
                continue;
            }
            // A number that only leads to a UE is no longer its own.
            let is_its_own = |slot: &Slot| self.region.ltmsi_of(*slot) == Some(*ltmsi);
            match self.region.slot_of(*ltmsi).filter(is_its_own) {
                Some(slot) if self.region.read(slot, &mut record) => {
                    cluster.primary.resend_full(from, slot);
                    // One that was not seen yet is copied when it is.
                    self.send_ue(from, slot, *ltmsi, &record);
                }
                _ => gone.push(*ltmsi),
            }
        }
        let Some(cluster) = self.cluster.as_mut() else { return };
        if !cluster.primary.is_asked(from, question) {
            return;
        }
        let Cluster { primary, member: Membership { replicator, .. }, .. } = &mut **cluster;
        if !gone.is_empty() {
            tracing::info!(host = from.0, ues = gone.len(), "copies that nobody acknowledged go");
            let number = primary.number(from);
            replicator.send(from, number, &ToReplica::ReconcileRemove { number, ues: gone });
        }
        let again = primary.answered(from, ues.len());
        cluster.ask_for_others(from, again);
    }
}
