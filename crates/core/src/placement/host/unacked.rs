//! NGAP and S1AP messages of a host to a balancer until the balancer confirms that they were sent.
//!
//! If the balancer dies, they are sent on other associations of the same RAN nodes. Otherwise no
//! process would repeat them before the UE's timers expire. A message that was sent but not
//! confirmed is then repeated byte for byte. RAN nodes and UEs recognise the repeat by UE IDs and
//! NAS COUNTs.

use std::collections::VecDeque;

/// Maximum number of stored messages; beyond it the oldest are dropped. Balancers confirm many
/// times per second.
const MAX_MESSAGES: usize = 1 << 16;

/// Unconfirmed messages of one connection.
#[derive(Debug)]
pub struct UnackedQueue<M> {
    /// Number of messages to RAN nodes written to the connection, about UEs or not.
    count: u64,
    messages: VecDeque<(u64, M)>,
}

impl<M> Default for UnackedQueue<M> {
    fn default() -> Self {
        UnackedQueue { count: 0, messages: VecDeque::new() }
    }
}

impl<M> UnackedQueue<M> {
    /// Records a message written to the connection. A message without a UE is only counted: it is
    /// lost with its association.
    pub fn add(&mut self, message: Option<M>) {
        self.count += 1;
        self.messages.extend(message.map(|message| (self.count, message)));
        if self.messages.len() > MAX_MESSAGES {
            self.messages.pop_front();
        }
    }

    /// Removes the messages up to number `count`, which were sent.
    pub fn on_sent(&mut self, count: u64) {
        while self.messages.front().is_some_and(|(number, _)| *number <= count) {
            self.messages.pop_front();
        }
    }

    /// Ends the connection: returns the messages that may not have been sent.
    pub fn end(&mut self) -> Vec<M> {
        self.count = 0;
        self.messages.drain(..).map(|(_, message)| message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unacknowledged_message_remains() {
        let mut queue = UnackedQueue::default();
        queue.add(Some(1));
        queue.add(None);
        queue.add(Some(3));
        queue.add(Some(4));
        queue.on_sent(2);
        queue.on_sent(0);
        assert_eq!(queue.end(), [3, 4]);
        assert_eq!(queue.end(), []);
        queue.add(Some(5));
        queue.on_sent(1);
        assert_eq!(queue.end(), [], "another connection counts from the beginning");
    }
}
