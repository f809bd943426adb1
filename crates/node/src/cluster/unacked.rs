//! What a host has given to a balancer for its UEs, until the balancer says that it was sent. When the balancer dies, other
//! associations of the same RAN nodes take it: nobody else would say it again before the UE's timers do. What was sent and
//! not said to be is a repeat then, octet for octet, which RAN nodes and UEs know by UE NGAP IDs and NAS COUNTs.

use std::collections::VecDeque;
use vireo_types::{AssocId, Ltmsi};

/// Messages that are kept at most; then the oldest go. Balancers say many times a second how far they are.
const MOST: usize = 1 << 16;

/// A message about a UE that may never have been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnackedMessage {
    /// The association that it was for.
    pub(crate) assoc: AssocId,
    /// The UE.
    pub(crate) ue: Ltmsi,
    /// The name of the effect.
    pub(crate) key: u64,
    /// The PDU.
    pub(crate) pdu: Vec<u8>,
}

/// Those of one connection.
#[derive(Debug, Default)]
pub(super) struct UnackedQueue {
    /// Messages to RAN nodes that were put into the connection, about UEs or not.
    count: u64,
    messages: VecDeque<(u64, UnackedMessage)>,
}

impl UnackedQueue {
    /// Another message is put into the connection; one that is about no UE goes with its association.
    pub(super) fn add(&mut self, message: Option<UnackedMessage>) {
        self.count += 1;
        self.messages.extend(message.map(|message| (self.count, message)));
        if self.messages.len() > MOST {
            self.messages.pop_front();
        }
    }

    /// So many of them were sent.
    pub(super) fn sent(&mut self, count: u64) {
        while self.messages.front().is_some_and(|(number, _)| *number <= count) {
            self.messages.pop_front();
        }
    }

    /// The connection is over: those that may not have been.
    pub(super) fn end(&mut self) -> Vec<UnackedMessage> {
        self.count = 0;
        self.messages.drain(..).map(|(_, message)| message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: u8) -> UnackedMessage {
        UnackedMessage { assoc: AssocId(1), ue: Ltmsi::from_raw(7), key: 0, pdu: vec![n] }
    }

    #[test]
    fn what_is_not_said_to_be_sent_is_left() {
        let mut given = UnackedQueue::default();
        given.add(Some(message(1)));
        given.add(None);
        given.add(Some(message(3)));
        given.add(Some(message(4)));
        given.sent(2);
        given.sent(0);
        assert_eq!(given.end(), [message(3), message(4)]);
        assert_eq!(given.end(), []);
        given.add(Some(message(5)));
        given.sent(1);
        assert_eq!(given.end(), [], "another connection counts from the beginning");
    }
}
