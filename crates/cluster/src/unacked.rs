//! NGAP messages of a host to a balancer until the balancer confirms that they were sent.
//!
//! If the balancer dies, they are sent on other associations of the same RAN nodes. Otherwise no
//! process would repeat them before the UE's timers expire. A message that was sent but not
//! confirmed is then repeated byte for byte. RAN nodes and UEs recognise the repeat by UE NGAP IDs
//! and NAS COUNTs.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use vireo_types::{AssocId, Ltmsi};

/// Maximum number of stored messages; beyond it the oldest are dropped. Balancers confirm many
/// times per second.
const MOST: usize = 1 << 16;

/// Message about a UE that may not have been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnackedMessage {
    /// Association that the message was for.
    pub assoc: AssocId,
    pub ue: Ltmsi,
    /// Key of the effect.
    pub key: u64,
    pub pdu: Vec<u8>,
}

/// State of a lost balancer that other balancers continue.
#[derive(Debug)]
pub struct LostBalancer {
    pub associations: BTreeSet<AssocId>,
    /// AMF addresses at which the associations ended.
    pub endpoints: Vec<IpAddr>,
    /// Messages that the balancer may not have sent.
    pub unsent: Vec<UnackedMessage>,
}

/// Unconfirmed messages of one connection.
#[derive(Debug, Default)]
pub(super) struct UnackedQueue {
    /// Number of messages to RAN nodes written to the connection, about UEs or not.
    count: u64,
    messages: VecDeque<(u64, UnackedMessage)>,
}

impl UnackedQueue {
    /// Records a message written to the connection. A message without a UE is only counted: it is
    /// lost with its association.
    pub(super) fn add(&mut self, message: Option<UnackedMessage>) {
        self.count += 1;
        self.messages.extend(message.map(|message| (self.count, message)));
        if self.messages.len() > MOST {
            self.messages.pop_front();
        }
    }

    /// Removes the messages up to number `count`, which were sent.
    pub(super) fn sent(&mut self, count: u64) {
        while self.messages.front().is_some_and(|(number, _)| *number <= count) {
            self.messages.pop_front();
        }
    }

    /// Ends the connection: returns the messages that may not have been sent.
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
    fn unacknowledged_message_remains() {
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
