//! Implied create responses (`state.answer = "implied"`).
//!
//! The AMF accepts the first transfer of a session as response to its create request. That transfer
//! is sent when the UPF has responded, and contains what the response would. The AMF then cancels
//! its request, which gets no other response. A session without a transfer is answered as usual.
//!
//! The request stays pending until the AMF replies to the transfer. If the AMF does not accept the
//! transfer, the response is sent after all. If the SMF dies earlier, the transfer is stored in the
//! SM context, and the next SMF repeats it. When the AMF repeats the create request after a lost
//! connection, the next SMF finds that it was executed.

use super::*;

impl Sessions {
    /// Holds the response to the waiting request until the AMF has replied to the transfer.
    pub(super) fn hold(&mut self, ltmsi: Ltmsi, answer: Reply) {
        if let Some(reply) = self.waiting.remove(&ltmsi) {
            self.held_replies.insert(ltmsi, (reply, answer));
        }
    }

    /// Sends the held response after the AMF has replied to the transfer. It has no effect if the
    /// AMF has cancelled the request.
    pub(super) fn release_reply(&mut self, ltmsi: Ltmsi) {
        let waits = self.held_replies.remove(&ltmsi);
        self.actions.extend(waits.map(|(reply, answer)| Action::Reply(reply, answer)));
    }
}
