//! A host that runs on the thread of its balancer or of its link.

use std::time::Duration;

/// What a turn of a host has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTurn {
    /// It has processed something, and more may wait.
    Busy,
    /// Nothing waits.
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
