//! Messages of an owner, as its replica handles them.

use crate::placement::balance::HostId;
use crate::placement::message::{ToOwner, ToReplica};
use crate::placement::replica::{ApplyResult, Fenced, ReplicaStore};
use vireo_types::{Instant, Ltmsi};

/// Message of the address audit among hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressAuditMessage {
    /// Requests the addresses of the sender's pool partition that the receiver's UEs use.
    Request { epoch: u64 },
    /// Addresses of the receiver's pool partition that the sender's UEs use.
    Reply {
        epoch: u64,
        /// Number of the address table.
        table: u8,
        /// Numbers in the table that UEs use.
        numbers: Vec<u32>,
        /// True for the last part.
        last: bool,
    },
}

/// Result of an owner's message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Number to acknowledge, after `answer` was sent.
    pub acknowledged: Option<u64>,
    /// Answer to the owner.
    pub answer: Option<ToOwner>,
    /// True if buckets were handed off for which this host waits.
    pub is_handoff: bool,
    /// Message for the address audit of this host.
    pub audit: Option<AddressAuditMessage>,
    /// True if a proposal of this host was answered.
    pub is_proposal_answer: bool,
    /// UE whose copy lacks a part that was never received.
    pub missing_base: Option<Ltmsi>,
}

/// Handles a message of the host `from`, which has the map of an epoch.
///
/// # Errors
///
/// Returns an error if the sender is not in the cluster map.
pub fn receive(
    store: &mut ReplicaStore,
    from: (HostId, u64),
    message: ToReplica<'_>,
    now: Instant,
) -> Result<Received, Fenced> {
    let mut received = Received::default();
    let number = match message {
        // Handled by the connection.
        ToReplica::Hello { .. } => return Ok(received),
        ToReplica::Copy(copy) => {
            let result = store.apply(from, &copy, now)?;
            received.missing_base = (result == ApplyResult::MissingBase).then_some(copy.ltmsi);
            copy.number
        }
        ToReplica::BucketHandoff { number, epoch } => {
            received.is_handoff = store.on_handoff(from, number, epoch)?;
            number
        }
        ToReplica::ReconcileRequest { number, buckets } => {
            let ues = store.foreign_entries(from, number, &buckets)?;
            received.answer = Some(ToOwner::ReconcileReply { number, ues });
            number
        }
        ToReplica::ReconcileRemove { number, ues } => {
            store.remove_orphans(from, number, &ues, now)?;
            number
        }
        ToReplica::EffectWatermark { number, watermark } => {
            store.on_watermark(from, number, watermark)?;
            number
        }
        ToReplica::ProposalAnswer { number, ltmsi, input, is_committed } => {
            if store.check_sequence(from, number)? {
                store.on_proposal_answer(from.0, (ltmsi, input), is_committed);
                received.is_proposal_answer = store.has_proposal_answers();
            }
            number
        }
        ToReplica::AddressAuditRequest { number, epoch } => {
            let is_new = store.check_sequence(from, number)?;
            received.audit = is_new.then_some(AddressAuditMessage::Request { epoch });
            number
        }
        ToReplica::AddressAuditReply { number, epoch, table, numbers, last } => {
            let is_new = store.check_sequence(from, number)?;
            received.audit = is_new.then_some(AddressAuditMessage::Reply { epoch, table, numbers, last });
            number
        }
    };
    received.acknowledged = Some(number);
    Ok(received)
}
