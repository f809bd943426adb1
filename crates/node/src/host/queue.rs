//! The way into a host: a bounded queue, and a bell for the host that may sleep over it.

use super::Input;
use crate::cluster::ProgressCounter;
use crossbeam_channel::{Receiver, SendError, SendTimeoutError, Sender, TrySendError, bounded};
use std::time::Duration;
use vireo_store::region::Bell;

/// What puts inputs before a host. Clones lead to the same one.
#[derive(Clone, Debug)]
pub struct HostSender {
    queue: Sender<Input>,
    /// What is heard although the queue has to wait: of workers, without which nothing would go on, and the end.
    urgent: Sender<Input>,
    bell: Bell,
    turns: ProgressCounter,
}

/// The host's end.
#[derive(Debug)]
pub(super) struct HostReceiver {
    pub(super) queue: Receiver<Input>,
    pub(super) urgent: Receiver<Input>,
    turns: ProgressCounter,
}

impl HostReceiver {
    /// The host is at work: it does not hang.
    #[inline]
    pub(super) fn turn(&self) {
        self.turns.turn();
    }
}

impl HostSender {
    /// A door with room for so many inputs, and the host's end of it.
    pub(super) fn new(capacity: usize, bell: Bell) -> (Self, HostReceiver) {
        let (queue, waiting) = bounded(capacity);
        // A few for each worker there can be.
        let (urgent, heard) = bounded(4096);
        let turns = ProgressCounter::default();
        let inputs = HostReceiver { queue: waiting, urgent: heard, turns: turns.clone() };
        (HostSender { queue, urgent, bell, turns }, inputs)
    }

    /// Puts an input before all others.
    ///
    /// # Errors
    ///
    /// When there is no host.
    pub(crate) fn send_urgent(&self, input: Input) -> Result<(), SendError<Input>> {
        self.urgent.send(input)?;
        self.bell.ring();
        Ok(())
    }

    /// Puts an input in if there is room, as one of several: the host may sleep over it until [`HostSender::wake`].
    ///
    /// # Errors
    ///
    /// Gives it back when there is none, or no host.
    pub fn try_put(&self, input: Input) -> Result<(), TrySendError<Input>> {
        self.queue.try_send(input)
    }

    /// Grows as long as the host does not hang, if it is waked from time to time.
    pub(crate) fn turns(&self) -> ProgressCounter {
        self.turns.clone()
    }

    /// Wakes the host for what was put in.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Puts an input in, waiting for room.
    ///
    /// # Errors
    ///
    /// When there is no host.
    pub fn send(&self, input: Input) -> Result<(), SendError<Input>> {
        self.queue.send(input)?;
        self.bell.ring();
        Ok(())
    }

    /// As [`HostSender::send`], but not for ever.
    ///
    /// # Errors
    ///
    /// When there was no room all the time, or there is no host.
    pub fn send_timeout(&self, input: Input, at_most: Duration) -> Result<(), SendTimeoutError<Input>> {
        self.queue.send_timeout(input, at_most)?;
        self.bell.ring();
        Ok(())
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
impl HostSender {
    /// A door without a host, and what comes through it.
    pub(crate) fn alone() -> (Self, Receiver<Input>) {
        use crate::worker::region_layout::{self, RegionLayout};
        use vireo_store::region::{Region, RegionConfig};
        let (rings, board) = RegionLayout { nfs: 1 }.sizes(1);
        let region = Region::create(RegionConfig { rings, board, ..RegionConfig::new(4, 3, 32 << 20) }).expect("room");
        let (door, inputs) = HostSender::new(16, RegionLayout { nfs: 1 }.bell(&region, region_layout::HOST));
        (door, inputs.queue)
    }
}
