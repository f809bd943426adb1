//! Bounded input queue of the host. Sending wakes its thread.

use crate::input::Input;
use crate::progress::ProgressCounter;
use crossbeam_channel::{Receiver, SendError, SendTimeoutError, Sender, TrySendError, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;
use vireo_sctp::Waker;
use vireo_store::region::Bell;
#[cfg(any(test, feature = "testing"))]
use vireo_store::region::{Region, RegionConfig};

/// Sender of the host's input queue. Clones send to the same queue.
#[derive(Clone, Debug)]
pub struct HostSender {
    queue: Sender<Input>,
    /// Takes precedence over a full queue: worker events, which keep the host going, and the end.
    urgent: Sender<Input>,
    waker: HostWaker,
    progress: ProgressCounter,
}

/// Wakes the thread of a host.
#[derive(Clone, Debug)]
pub enum HostWaker {
    /// The host has a separate thread, which waits for this bell.
    Bell(Box<Bell>),
    /// The host runs on the thread of its balancer or of its link.
    SharedThread(SharedThreadWaker),
}

/// Wakes the thread that a host shares.
#[derive(Clone, Debug)]
pub struct SharedThreadWaker {
    waker: Waker,
    sleeping: Arc<AtomicBool>,
}

impl HostWaker {
    /// Returns the waker of a host on the thread that `waker` wakes.
    pub fn shared_thread(waker: Waker) -> Self {
        HostWaker::SharedThread(SharedThreadWaker { waker, sleeping: Arc::default() })
    }

    fn wake(&self) {
        match self {
            HostWaker::Bell(bell) => bell.ring(),
            HostWaker::SharedThread(SharedThreadWaker { waker, sleeping }) => {
                // Pairs with the fence of `HostReceiver::sleep`: either the receiver sees the
                // input, or this thread sees that the receiver sleeps.
                fence(Ordering::SeqCst);
                if sleeping.load(Ordering::SeqCst) && sleeping.swap(false, Ordering::SeqCst) {
                    waker.wake();
                }
            }
        }
    }
}

/// Receiving end of the host's input queue.
#[derive(Debug)]
pub struct HostReceiver {
    pub queue: Receiver<Input>,
    pub urgent: Receiver<Input>,
    /// Only on a shared thread: true while that sleeps.
    sleeping: Option<Arc<AtomicBool>>,
    progress: ProgressCounter,
}

impl HostReceiver {
    /// Counts one pass of the host loop, so that the watchdog does not report a hang.
    #[inline]
    pub fn tick(&self) {
        self.progress.tick();
    }

    /// Announces that the shared thread will sleep. Returns false if an input waits.
    pub fn sleep(&self) -> bool {
        let Some(sleeping) = &self.sleeping else { return true };
        sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let may_sleep = self.queue.is_empty() && self.urgent.is_empty();
        sleeping.store(may_sleep, Ordering::SeqCst);
        may_sleep
    }

    /// Announces that the thread runs again, after [`HostReceiver::sleep`].
    pub fn awake(&self) {
        self.sleeping.iter().for_each(|sleeping| sleeping.store(false, Ordering::SeqCst));
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
        let (input_sender, inputs) =
            HostSender::new(16, HostWaker::Bell(Box::new(region.ring(0).expect("the only ring").bell())));
        (input_sender, inputs.queue)
    }
}

#[allow(clippy::result_large_err, reason = "a refused input returns to its sender, and none is allocated")]
impl HostSender {
    /// Creates a queue with this capacity, and its receiving end.
    pub fn new(capacity: usize, waker: HostWaker) -> (Self, HostReceiver) {
        let (queue, waiting) = bounded(capacity);
        // A few for each possible worker.
        let (urgent, urgent_receiver) = bounded(4096);
        let progress = ProgressCounter::default();
        let sleeping = match &waker {
            HostWaker::Bell(_) => None,
            HostWaker::SharedThread(SharedThreadWaker { sleeping, .. }) => Some(Arc::clone(sleeping)),
        };
        let inputs = HostReceiver { queue: waiting, urgent: urgent_receiver, sleeping, progress: progress.clone() };
        (HostSender { queue, urgent, waker, progress }, inputs)
    }

    /// Sends an input that precedes all others.
    ///
    /// # Errors
    ///
    /// Returns an error if the host has exited.
    pub fn send_urgent(&self, input: Input) -> Result<(), SendError<Input>> {
        self.urgent.send(input)?;
        self.waker.wake();
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
        self.waker.wake();
    }

    /// Sends an input; blocks while the queue is full.
    ///
    /// # Errors
    ///
    /// Returns an error if the host has exited.
    pub fn send(&self, input: Input) -> Result<(), SendError<Input>> {
        self.queue.send(input)?;
        self.waker.wake();
        Ok(())
    }

    /// Sends an input like [`HostSender::send`], with a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue stays full until the timeout, or the host has exited.
    pub fn send_timeout(&self, input: Input, at_most: Duration) -> Result<(), SendTimeoutError<Input>> {
        self.queue.send_timeout(input, at_most)?;
        self.waker.wake();
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
