//! Budget of UE Context Release Commands for unknown connections.
//!
//! An unknown connection is one that the RAN node has and the UE context lacks. The command answers
//! a message of the RAN node that receives it. A RAN node that sends many such messages is limited
//! by its own budget, and does not affect others.

mod budgets;

pub(super) use budgets::Budgets;

use super::state::Host;
use vireo_core::amf::access;
use vireo_core::placement::message::RanOutput;
use vireo_ops::clock::clock;
use vireo_store::region::Slot;
use vireo_types::{AmfUeNgapId, AssocId, Ltmsi, RanUeNgapId};

impl Host {
    /// Sends a RAN node the release of a connection that the UE's context lacks, within its budget.
    pub(super) fn release_stale(
        &mut self,
        (slot, ue): (Slot, Ltmsi),
        node: AssocId,
        (amf_id, ran_id): (AmfUeNgapId, RanUeNgapId),
        key: u64,
    ) {
        let now = clock();
        if !self.stale.spend(node, now) {
            return self.statistics.step_metrics.fault(
                "limit",
                now,
                format_args!("gNB on association {}: stale connections", node.0),
            );
        }
        if let Some(assoc) = self.nodes.association_to(node, Some(slot)) {
            let pdu = access::stale_release_command(assoc.dialect(), amf_id, ran_id);
            self.egress.send(RanOutput::Ngap { assoc, ue: Some(ue), key, pdu });
        }
    }
}
