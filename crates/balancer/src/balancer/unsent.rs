//! Messages for which the send buffers of associations have no room.

use super::{Association, Balancer, offer};
use crate::ppid;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::IpAddr;
use vireo_core::amf::access;
use vireo_core::placement::message::PeerEvent;
use vireo_ops::metrics::Fault;
use vireo_sctp::SendError;
use vireo_types::AssocId;

/// Maximum of bytes queued for one association whose peer does not read. Beyond it, the association
/// is aborted.
const UNSENT_LIMIT: usize = 16 << 20;
/// Bytes queued for one association beyond which containers of other RAN nodes are refused. So
/// these alone end no association, and some hundred handovers at once have room.
const RELAY_LIMIT: usize = 2 << 20;
/// Maximum of bytes queued for all associations. Beyond it, the address with the most loses the
/// association with the most.
pub(super) const TOTAL_LIMIT: usize = 256 << 20;
/// Bytes by which the queue of an association grows until both are checked.
const CHECK_STEP: usize = 64 << 10;

impl Association {
    /// Returns an association with queued messages.
    pub(crate) fn with_unsent(streams: u16, unsent: VecDeque<(u16, Vec<u8>)>) -> Self {
        let unsent_octets = unsent.iter().map(|(_, pdu)| size(pdu)).sum();
        Association { streams, peer: None, unsent, unsent_octets }
    }

    /// Returns true if a message for which the association has no room is refused: it relays a
    /// container of another RAN node, which could otherwise fill the queue.
    pub(super) fn refuses(&self, assoc: AssocId, pdu: &[u8]) -> bool {
        self.unsent_octets > RELAY_LIMIT && access::relays_container(assoc.dialect(), pdu)
    }

    /// Queues a message. Returns true if the limits must be checked.
    pub(super) fn queue(&mut self, stream: u16, pdu: Vec<u8>) -> bool {
        let before = self.unsent_octets / CHECK_STEP;
        self.unsent_octets += size(&pdu);
        self.unsent.push_back((stream, pdu));
        self.unsent_octets / CHECK_STEP > before
    }

    /// Removes the message that was queued first.
    fn remove_first(&mut self) {
        if let Some((_, pdu)) = self.unsent.pop_front() {
            self.unsent_octets -= size(&pdu);
        }
    }
}

impl Balancer {
    /// Sends the queued messages of an association that has room again.
    pub(super) fn send_unsent(&mut self, assoc: AssocId) {
        let Some(association) = self.associations.get_mut(&assoc) else { return };
        while let Some((stream, pdu)) = association.unsent.front() {
            if matches!(self.endpoint.send(assoc, *stream, ppid::by_dialect(assoc), pdu), Err(SendError::Full)) {
                return;
            }
            association.remove_first();
        }
    }

    /// Refuses a message with a container of another RAN node. The host gets HANDOVER FAILURE as
    /// the answer to a HANDOVER REQUEST. Without HANDOVER COMMAND, the source ends the handover by
    /// its timer (TS 38.413 8.4.1.2, TS 36.413 8.4.1.2).
    pub(super) fn refuse_relayed(&mut self, assoc: AssocId, pdu: &[u8]) {
        self.metrics.fault(Fault::Limit);
        let octets = pdu.len();
        tracing::warn!(assoc = assoc.0, octets, "RAN node does not read; container of another one not relayed");
        let Some(pdu) = access::refuse_handover(assoc.dialect(), pdu) else { return };
        let (view, assoc) = (access::peek(assoc.dialect(), &pdu).ok(), self.assoc_ids.to_cluster(assoc));
        offer(&mut self.hosts, &mut self.deferred, PeerEvent::Ngap { assoc, view, pdu });
    }

    /// Aborts associations with too many queued messages. `assoc` has got a further one.
    ///
    /// A peer may have hundreds of associations, so that the limit of one bounds no memory.
    pub(super) fn limit_unsent(&mut self, assoc: AssocId) {
        if self.associations.get(&assoc).is_some_and(|association| association.unsent_octets > UNSENT_LIMIT) {
            self.abort_unread(assoc);
        }
        let mut total: usize = self.associations.values().map(|association| association.unsent_octets).sum();
        while total > TOTAL_LIMIT {
            let Some(worst) = self.slowest_reader() else { return };
            total -= self.abort_unread(worst);
        }
    }

    /// Returns the association with the most queued bytes of the address with the most.
    fn slowest_reader(&self) -> Option<AssocId> {
        let mut machines: FxHashMap<Option<IpAddr>, usize> = FxHashMap::default();
        for (assoc, association) in &self.associations {
            *machines.entry(self.admission.machine(*assoc)).or_default() += association.unsent_octets;
        }
        let (slowest, _) = machines.into_iter().max_by_key(|(machine, octets)| (*octets, *machine))?;
        let its = self.associations.iter().filter(|(assoc, _)| self.admission.machine(**assoc) == slowest);
        let worst = its.max_by_key(|(assoc, association)| (association.unsent_octets, **assoc));
        worst.filter(|(_, association)| association.unsent_octets > 0).map(|(assoc, _)| *assoc)
    }

    /// Aborts an association whose peer does not read. Returns the freed bytes.
    fn abort_unread(&mut self, assoc: AssocId) -> usize {
        tracing::warn!(assoc = assoc.0, "RAN node does not read; association aborted");
        self.endpoint.abort(assoc);
        let Some(association) = self.associations.get_mut(&assoc) else { return 0 };
        association.unsent = VecDeque::new();
        std::mem::take(&mut association.unsent_octets)
    }
}

/// Returns the bytes that a queued message takes.
fn size(pdu: &[u8]) -> usize {
    pdu.len() + size_of::<(u16, Vec<u8>)>()
}
