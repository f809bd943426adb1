//! Messages of an owner, as its replica handles them.

use crate::placement::balance::HostId;
use crate::placement::message::{ToOwner, ToReplica};
use crate::placement::replica::{ApplyResult, Fenced, ReplicaStore};
use vireo_types::{Duration, Instant, Ltmsi};

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
    /// True if no effect waits for this acknowledgement: the copy is of a proposal of this host.
    pub is_ack_late: bool,
    /// Answer to the owner.
    pub answer: Option<ToOwner>,
    /// True if buckets were handed off for which this host waits.
    pub is_handoff: bool,
    /// Message for the address audit of this host.
    pub audit: Option<AddressAuditMessage>,
    /// True if a proposal of this host was answered, and if it was refused.
    pub is_proposal_answer: bool,
    pub is_refusal: bool,
    /// UE whose copy lacks a part that was never received.
    pub missing_base: Option<Ltmsi>,
}

/// Time for which an acknowledgement waits if no effect waits for it.
const ACK_DELAY: Duration = Duration::from_millis(20);

/// Acknowledgements of a replica on one connection. One is sent for all messages that are received
/// together. If an owner has sent only what this host proposed, the acknowledgement waits for the
/// next one: the owner counts the proposer as a host that has the commit.
#[derive(Clone, Debug, Default)]
pub struct AckSchedule {
    /// Number of the last received message that was not acknowledged, with the time until which
    /// it may wait.
    pending: Option<(u64, Instant)>,
}

impl AckSchedule {
    /// Records a received message.
    pub fn on_received(&mut self, received: &Received, now: Instant) {
        let Some(number) = received.acknowledged else { return };
        let latest = if received.is_ack_late { now + ACK_DELAY } else { now };
        let due = self.pending.map_or(latest, |(_, due)| due.min(latest));
        self.pending = Some((number, due));
    }

    /// Returns the time of the next acknowledgement.
    pub fn due(&self) -> Option<Instant> {
        self.pending.map(|(_, due)| due)
    }

    /// Returns the number to acknowledge, if it is time.
    pub fn take_due(&mut self, now: Instant) -> Option<u64> {
        self.pending.take_if(|(_, due)| *due <= now).map(|(number, _)| number)
    }
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
            received.is_ack_late = store.has_proposed(copy.ltmsi, copy.input);
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
            received.is_ack_late = true;
            if store.check_sequence(from, number)? {
                store.on_proposal_answer(from.0, (ltmsi, input), is_committed);
                received.is_proposal_answer = store.has_proposal_answers();
                received.is_refusal = received.is_proposal_answer && !is_committed;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::balance::map::{BucketMap, SliceBuckets};
    use crate::placement::balance::ring::WeightedHost;
    use crate::placement::replica::{EffectAssociations, Proposal};
    use vireo_types::Bucket;

    #[test]
    fn refusal_of_proposal_is_distinguished() {
        let [owner, own] = [0, 1].map(HostId);
        let hosts = [owner, own].map(|host| WeightedHost::new(host, 1.0)).to_vec();
        let map = BucketMap::new(1, &[SliceBuckets { weight: 1.0, replicas: 1, hosts }]);
        let theirs = (0..Bucket::COUNT).map(Bucket::new).find(|bucket| map.owners(*bucket).owner() == Some(owner));
        let (ltmsi, input) = (Ltmsi::new(theirs.expect("a bucket"), 7), 11);
        for is_committed in [true, false] {
            let mut store = ReplicaStore::new(own);
            store.adopt(&map, &[owner, own]);
            let proposal = Proposal {
                epoch: 1,
                ltmsi,
                input,
                base: 1,
                layout: 5,
                perpetual_version: 1,
                perpetual: None,
                ephemeral: vec![1],
                outbox: vec![],
                associations: EffectAssociations::default(),
                deadline: None,
                is_in_progress: false,
            };
            assert_eq!(store.propose(proposal, Instant(0)), Some(owner));
            let answer = ToReplica::ProposalAnswer { number: 1, ltmsi, input, is_committed };
            let received = receive(&mut store, (owner, 1), answer, Instant(0)).expect("of a member");
            assert_eq!((received.is_proposal_answer, received.is_refusal), (true, !is_committed));
        }
    }

    #[test]
    fn ack_of_own_proposal_waits_for_the_next() {
        let at = |millis| Instant::default() + Duration::from_millis(millis);
        let message = |number, is_ack_late| Received { acknowledged: Some(number), is_ack_late, ..Received::default() };
        let mut schedule = AckSchedule::default();
        assert_eq!((schedule.due(), schedule.take_due(at(0))), (None, None));
        schedule.on_received(&message(1, true), at(0));
        schedule.on_received(&message(2, true), at(10));
        schedule.on_received(&Received::default(), at(10));
        assert_eq!((schedule.due(), schedule.take_due(at(19))), (Some(at(20)), None));
        assert_eq!((schedule.take_due(at(20)), schedule.take_due(at(40))), (Some(2), None));
        schedule.on_received(&message(3, true), at(50));
        schedule.on_received(&message(4, false), at(51));
        schedule.on_received(&message(5, true), at(51));
        assert_eq!(schedule.take_due(at(51)), Some(5), "effects wait for number 4");
    }
}
