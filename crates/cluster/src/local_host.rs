//! A host that runs on the thread of its balancer or of its link.

use std::time::{Duration, Instant};

/// Time after which a host on the thread of its sockets has no further turn before these are read:
/// other hosts wait for its answers to copies and proposals, and the balancer recalls the inputs of
/// a proposal after 50 ms.
const TURNS_TIME: Duration = Duration::from_millis(1);

/// The turns that a host has until its thread reads the sockets again.
#[derive(Debug)]
pub struct HostTurns {
    begin: Instant,
    count: u32,
    at_most: u32,
}

impl HostTurns {
    /// Begins at most `at_most` turns; 0 counts as 1.
    pub fn begin(at_most: u32) -> Self {
        HostTurns { begin: Instant::now(), count: 0, at_most }
    }
}

impl Iterator for HostTurns {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        let may_run = self.count == 0 || self.count < self.at_most && self.begin.elapsed() < TURNS_TIME;
        self.count += u32::from(may_run);
        may_run.then_some(())
    }
}

/// Result of one turn of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTurn {
    /// The host has processed an input or step, and more may wait.
    Busy,
    /// No input and no step waits.
    Idle,
    /// The host has ended.
    Ended,
}

/// A host on the thread of its balancer or of its link, which runs both in turn.
pub trait LocalHost: Send + std::fmt::Debug {
    /// Processes a bounded number of inputs and steps.
    fn run_once(&mut self) -> HostTurn;

    /// Announces that the thread will sleep. Returns the maximum time; `None` if an input waits.
    fn sleep(&mut self) -> Option<Duration>;

    /// Announces that the thread runs again.
    fn awake(&mut self);

    /// Ends the host. Its last commands are then queued.
    fn end(self: Box<Self>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_end_by_number_and_by_time() {
        let now = Instant::now();
        let count = |begin| HostTurns { begin, ..HostTurns::begin(16) }.count();
        assert_eq!(count(now + Duration::from_secs(3600)), 16);
        let long_ago = now.checked_sub(TURNS_TIME).expect("a machine that has run for a millisecond");
        assert_eq!(count(long_ago), 1, "a slow host has one turn");
    }
}
