//! SM contexts of an AMF that takes the first transfer for the answer to its request (`state.answer = "implied"`): that is there when
//! the UPF has answered, and says what the answer would. The AMF withdraws its request when it has the transfer, and so gets no
//! answer by itself; what becomes of a session without a transfer it is answered as ever.
//!
//! Until the AMF has said that it has taken the transfer, its request stays: if it has not, the answer is given after all. An SMF that
//! is killed before has left the transfer in the SM context, from where the next one says it again; and the request that the AMF
//! asks again, because the connection has broken, finds that it was carried out.

use super::*;

impl Sessions {
    /// Who waits is answered when it is known what became of a transfer, if that is not the answer.
    pub(super) fn hold(&mut self, ltmsi: Ltmsi, answer: Reply) {
        if let Some(reply) = self.waiting.remove(&ltmsi) {
            self.held.insert(ltmsi, (reply, answer));
        }
    }

    /// It is known what became of the transfer: who has not taken it for the answer still waits, and nobody else hears this.
    pub(super) fn is_said(&mut self, ltmsi: Ltmsi) {
        let waits = self.held.remove(&ltmsi);
        self.actions.extend(waits.map(|(reply, answer)| Action::Reply(reply, answer)));
    }
}
