//! Messages that a replica has not acknowledged.

use std::collections::VecDeque;
use vireo_types::{Duration, Instant};

/// Unacknowledged messages to a replica, in batches. They are sent again on each new connection.
#[derive(Debug)]
pub struct CopyQueue<B> {
    /// Each batch with the number of its last message, oldest first.
    batches: VecDeque<(u64, B)>,
    /// Number of batches that were written to the current connection.
    written: usize,
    /// Time of the last acknowledgement, or of the first batch after none was pending; `None`: none
    /// is pending.
    pending_since: Option<Instant>,
}

impl<B> Default for CopyQueue<B> {
    fn default() -> Self {
        CopyQueue { batches: VecDeque::new(), written: 0, pending_since: None }
    }
}

impl<B> CopyQueue<B> {
    /// Adds a batch; `last` is the number of its last message.
    pub fn push(&mut self, last: u64, batch: B, now: Instant) {
        self.batches.push_back((last, batch));
        self.pending_since.get_or_insert(now);
    }

    /// Returns the next batch to write to the connection.
    pub fn next_unwritten(&mut self) -> Option<&B> {
        let (_, batch) = self.batches.get(self.written)?;
        self.written += 1;
        Some(batch)
    }

    /// Handles that the replica has acknowledged all messages up to a number.
    pub fn acknowledge(&mut self, number: u64, now: Instant) {
        while self.batches.front().is_some_and(|(last, _)| *last <= number) {
            self.batches.pop_front();
            self.written = self.written.saturating_sub(1);
        }
        self.pending_since = (!self.batches.is_empty()).then_some(now);
    }

    /// Handles the loss of the connection.
    pub fn on_connection_lost(&mut self) {
        self.written = 0;
    }

    /// Returns true if the replica has acknowledged nothing for `limit`, although batches are
    /// pending.
    pub fn is_late(&self, limit: Duration, now: Instant) -> bool {
        self.pending_since.is_some_and(|since| now.since(since) >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_connection_repeats_unacked_batches() {
        let (mut queue, limit) = (CopyQueue::default(), Duration(10));
        queue.push(2, "two", Instant(5));
        queue.push(4, "four", Instant(6));
        let next = |queue: &mut CopyQueue<&'static str>| queue.next_unwritten().copied();
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some("two"), Some("four"), None]);
        assert!(!queue.is_late(limit, Instant(14)) && queue.is_late(limit, Instant(15)));
        queue.acknowledge(3, Instant(15));
        assert!(!queue.is_late(limit, Instant(24)));
        queue.push(5, "five", Instant(16));
        assert_eq!(next(&mut queue), Some("five"));
        queue.on_connection_lost();
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some("four"), Some("five"), None]);
        queue.acknowledge(9, Instant(17));
        assert!(!queue.is_late(limit, Instant(100)) && queue.next_unwritten().is_none());
    }
}
