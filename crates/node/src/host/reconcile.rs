//! Removal of replica entries that the owner does not confirm.
//!
//! Such entries come from the last copies of dead hosts, received by one host and acknowledged by
//! none. `core::placement::replica` decides ([`vireo_core::placement::replica::ReconcileRequest`]).

use super::Host;
use super::cluster::{Cluster, Membership, as_it_is};
use crate::worker::outbox::Outbox;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::message::ToReplica;
use vireo_core::placement::replica::{Commit, ReconcileRequest};
use vireo_store::region::{Slot, Snapshot};
use vireo_types::Ltmsi;

impl Cluster {
    /// Asks a replica that was sent all copies which entries it has from other hosts.
    pub(super) fn ask_for_others(&self, to: HostId, whole: Option<ReconcileRequest>) {
        let Some(ReconcileRequest { number, buckets }) = whole else { return };
        self.member.replicator.send(to, number, &ToReplica::ReconcileRequest { number, buckets });
    }
}

impl Host {
    /// Copies the current state of a UE to a replica that lacks it. Returns false if the host has
    /// not read the UE's last commit yet; its copy will follow. A replica with this state and
    /// without that copy would not know the commit's effects and input.
    pub(super) fn send_ue(&mut self, to: HostId, slot: Slot, ltmsi: Ltmsi, record: &Snapshot) -> bool {
        if !record.sent && *self.order.last(slot) != record.version() {
            return false;
        }
        let Some(cluster) = self.cluster.as_mut() else { return true };
        let Cluster { primary, member: Membership { replicator, .. }, .. } = &mut **cluster;
        // The LTMSI in the context: the slot keeps the previous one while effects wait.
        let now = Outbox::decode(&record.outbox).map_or(ltmsi, |outbox| outbox.ltmsi);
        let before = Some(ltmsi).filter(|before| *before != now);
        let commit = Commit { before, ..as_it_is(slot, now, &record.context, &[]) };
        primary.send(to, &commit, &*replicator, &mut |to, copy| _ = replicator.send_copy(to, copy));
        true
    }

    /// Handles a replica's list of this host's UEs that it has from other hosts. Existing UEs are
    /// copied again. Entries of other UEs are removed: none of their effects were sent.
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
            // An alias is not the LTMSI of a UE.
            let is_its_own = |slot: &Slot| self.region.ltmsi_of(*slot) == Some(*ltmsi);
            match self.region.slot_of(*ltmsi).filter(is_its_own) {
                Some(slot) if self.region.read(slot, &mut record) => {
                    cluster.primary.resend_full(from, slot);
                    // A UE whose last commit was not read is copied when it is.
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
