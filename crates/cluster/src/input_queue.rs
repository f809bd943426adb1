//! Bounded input queue of the host thread. Sending wakes the thread.

use crate::input::Input;
use crate::progress::ProgressCounter;
use crossbeam_channel::{Receiver, SendError, SendTimeoutError, Sender, TrySendError, bounded};
use std::time::Duration;
use vireo_store::region::Bell;
#[cfg(any(test, feature = "testing"))]
use vireo_store::region::{Region, RegionConfig};

/// Sender of the host's input queue. Clones send to the same queue.
#[derive(Clone, Debug)]
pub struct HostSender {
    queue: Sender<Input>,
    /// Takes precedence over a full queue: worker events, which keep the host going, and the end.
    urgent: Sender<Input>,
    bell: Bell,
    progress: ProgressCounter,
}

/// Receiving end of the host's input queue.
#[derive(Debug)]
pub struct HostReceiver {
    pub queue: Receiver<Input>,
    pub urgent: Receiver<Input>,
    progress: ProgressCounter,
}

impl HostReceiver {
    /// Counts one pass of the host loop, so that the watchdog does not report a hang.
    #[inline]
    pub fn tick(&self) {
        self.progress.tick();
    }
}

#[cfg(any(test, feature = "testing"))]
impl HostSender {
    /// Creates a sender without a host, and the receiver of its inputs, for tests of senders.
    ///
    /// # Panics
    ///
    /// Panics if the operating system refuses the memory of a small region.
    pub fn without_host() -> (Self, Receiver<Input>) {
        let config = RegionConfig { rings: 1, ..RegionConfig::new(4, 3, 32 << 20) };
        let region = Region::create(config).expect("memory of a small region");
        let (input_sender, inputs) = HostSender::new(16, region.ring(0).expect("the only ring").bell());
        (input_sender, inputs.queue)
    }
}

#[allow(clippy::result_large_err, reason = "a refused input returns to its sender, and none is allocated")]
impl HostSender {
    /// Creates a queue with this capacity, and its receiving end.
    pub fn new(capacity: usize, bell: Bell) -> (Self, HostReceiver) {
        let (queue, waiting) = bounded(capacity);
        // A few for each possible worker.
        let (urgent, urgent_receiver) = bounded(4096);
        let progress = ProgressCounter::default();
        let inputs = HostReceiver { queue: waiting, urgent: urgent_receiver, progress: progress.clone() };
        (HostSender { queue, urgent, bell, progress }, inputs)
    }

    /// Sends an input that precedes all others.
    ///
    /// # Errors
    ///
    /// Returns an error if the host has exited.
    pub fn send_urgent(&self, input: Input) -> Result<(), SendError<Input>> {
        self.urgent.send(input)?;
        self.bell.ring();
        Ok(())
    }

    /// Enqueues an input if there is room. The host may not notice it before [`HostSender::wake`].
    ///
    /// # Errors
    ///
    /// Returns the input if the queue is full or the host has exited.
    pub fn try_put(&self, input: Input) -> Result<(), TrySendError<Input>> {
        self.queue.try_send(input)
    }

    /// Returns the progress counter: it grows while the host does not hang and is woken from time
    /// to time.
    pub fn progress(&self) -> ProgressCounter {
        self.progress.clone()
    }

    /// Wakes the host for enqueued inputs.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Sends an input; blocks while the queue is full.
    ///
    /// # Errors
    ///
    /// Returns an error if the host has exited.
    pub fn send(&self, input: Input) -> Result<(), SendError<Input>> {
        self.queue.send(input)?;
        self.bell.ring();
        Ok(())
    }

    /// Sends an input like [`HostSender::send`], with a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue stays full until the timeout, or the host has exited.
    pub fn send_timeout(&self, input: Input, at_most: Duration) -> Result<(), SendTimeoutError<Input>> {
        self.queue.send_timeout(input, at_most)?;
        self.bell.ring();
        Ok(())
    }

    /// Returns the number of inputs in the queue.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
