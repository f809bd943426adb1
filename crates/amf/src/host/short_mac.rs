//! Refusal of SERVICE REQUESTs of eNBs that guess the short MAC.
//!
//! The MAC of SERVICE REQUEST has 16 bits (TS 24.301 8.2.25, 9.9.3.28). An eNB that finds it for an
//! S-TMSI gets the UE's context with the key of the eNB and the tunnels of the bearers, although
//! the UE is elsewhere. A wrong MAC for the S-TMSI of a UE counts for the peer address. Beyond the
//! budget of [`GuessLimit`], SERVICE REQUESTs of the address do not reach the UEs that they name:
//! they are rejected with #9, and UEs there attach. UEs at other addresses are not concerned.
//!
//! The budgets are those of a host. As a serving host it leaves the requests of such an address to
//! the owner of the UE.
//!
//! [`GuessLimit`]: super::path_switch::GuessLimit

use super::origin::origin;
use super::state::Host;
use vireo_core::amf::access;
use vireo_core::amf::ran::admission::Refusal;
use vireo_ops::clock::clock;
use vireo_types::{AssocId, Dialect};

impl Host {
    /// Returns true if a first message with the S-TMSI of a UE is a SERVICE REQUEST of an address
    /// that has guessed too often.
    pub(super) fn refuses_short_mac(&self, node: AssocId, pdu: &[u8]) -> bool {
        let is_refused = node.dialect() == Dialect::Eps
            && self.admission.short_macs.refuses(origin(&self.nodes, node).address, clock())
            && access::has_short_mac(node.dialect(), pdu);
        if is_refused {
            self.statistics.step_metrics.metrics.n2_refused(Refusal::Guessing);
        }
        is_refused
    }

    /// Counts a first message that is not of the UE whose S-TMSI it has, if it is a SERVICE
    /// REQUEST. With contexts in the memory of workers, the context may have ended with its worker.
    pub(super) fn on_unproved_initial(&mut self, node: AssocId, pdu: &[u8]) {
        if self.ues.private.is_some() || !access::has_short_mac(node.dialect(), pdu) {
            return;
        }
        let begins = self.admission.short_macs.add_failure(origin(&self.nodes, node).address, clock());
        if begins {
            self.warn_about_guesses(node, "SERVICE REQUEST");
        }
    }

    /// Returns true if the owner of a UE must decide about a first message to this host as the
    /// serving host: a SERVICE REQUEST of an address whose requests it could not prove.
    pub(super) fn defers_short_mac(&self, node: AssocId, pdu: &[u8]) -> bool {
        node.dialect() == Dialect::Eps
            && self.guests.short_macs.refuses(origin(&self.nodes, node).address, clock())
            && access::has_short_mac(node.dialect(), pdu)
    }

    /// Counts a first message that a serving host returns to the owner of the UE.
    pub(super) fn on_returned_initial(&mut self, node: AssocId, pdu: &[u8]) {
        if access::has_short_mac(node.dialect(), pdu) {
            self.guests.short_macs.add_failure(origin(&self.nodes, node).address, clock());
        }
    }

    /// Logs that the requests of a RAN node's address are refused because it guesses.
    pub(super) fn warn_about_guesses(&self, node: AssocId, request: &'static str) {
        if let Some(known) = self.nodes.get(node) {
            tracing::warn!(
                assoc = node.0, peer = %known.peer, gnb = ?known.record.id, request,
                reason = Refusal::Guessing.label(), "requests of a peer address refused"
            );
        }
    }
}
