//! Requests to the subscriber service, and SUCIs that wait for it.
//!
//! De-concealment takes up to 0.3 ms of a processor, also for a SUCI that no home network has made.
//! The subscriber service has few SUCIs at a time. The others wait here, by peer address and RAN
//! node in turn, so that the SUCIs of one peer do not delay those of others. If too many wait,
//! those of the address with the most get no vector.

use super::concealed_request::ConcealedRequest;
use super::limits::BATCH;
use super::origin::{Origin, origin};
use super::state::Host;
use rand::RngCore;
use vireo_core::amf::engine::Event;
use vireo_core::schedule::kind::NfKind;
use vireo_core::subscription::{AuthenticationError, AuthenticationRequest};
use vireo_ops::clock::clock;
use vireo_store::region::Slot;
use vireo_subscribers::{Answer, Udm};
use vireo_types::{AssocId, Ltmsi};

/// Maximum number of SUCIs in the queue of the subscriber service.
const MAX_SUBMITTED: usize = 64;

impl Host {
    /// Requests a vector for a UE. `node` is its RAN node; `None` if another host has requested it
    /// before.
    pub(super) fn authenticate(
        &mut self,
        (slot, ltmsi): (Slot, Ltmsi),
        node: Option<AssocId>,
        request: AuthenticationRequest,
    ) {
        let rand = self.rand();
        if let Some(answer) = self.udm.try_now(&request, clock(), rand) {
            return self.deliver_answer(slot, answer);
        }
        if !Udm::is_concealed(&request) || self.admission.concealed.is_empty() && self.submits_concealed() {
            return self.submit((slot, ltmsi), request);
        }
        let origin = node.map_or(Origin::new(AssocId(0), None), |node| origin(&self.nodes, node));
        let waiting = ConcealedRequest { slot, ltmsi, request };
        if let Some(refused) = self.admission.concealed.push_fairly(origin, waiting)
            && self.ues.region.slot_of(refused.ltmsi) == Some(refused.slot)
        {
            self.deliver_answer(refused.slot, Err(AuthenticationError::Unavailable));
        }
    }

    /// Returns true if the subscriber service may be given a further SUCI.
    fn submits_concealed(&self) -> bool {
        self.udm.deconceal_waiting() < MAX_SUBMITTED
    }

    /// Submits waiting SUCIs while there is room. Returns true if it submitted or dropped any.
    pub(super) fn submit_concealed(&mut self) -> bool {
        for submitted in 0..BATCH {
            if self.admission.concealed.is_empty() || !self.submits_concealed() {
                return submitted > 0;
            }
            let Some(ConcealedRequest { slot, ltmsi, request }) = self.admission.concealed.pop() else {
                return submitted > 0;
            };
            // The UE may be gone: the owner of its number has another slot then.
            if self.ues.region.slot_of(ltmsi) == Some(slot) {
                self.submit((slot, ltmsi), request);
            }
        }
        true
    }

    fn submit(&mut self, (slot, ltmsi): (Slot, Ltmsi), request: AuthenticationRequest) {
        let rand = self.rand();
        if let Err(error) = self.udm.submit(u64::from(ltmsi.get()), request, clock(), rand) {
            self.deliver_answer(slot, Err(error));
        }
    }

    fn deliver_answer(&mut self, slot: Slot, answer: Answer) {
        self.deliver(slot, &Event::Authentication(answer).into(), NfKind::Registration);
    }

    /// Returns a RAND for a vector.
    fn rand(&mut self) -> [u8; 16] {
        let mut rand = [0; 16];
        self.rng.fill_bytes(&mut rand);
        rand
    }
}
