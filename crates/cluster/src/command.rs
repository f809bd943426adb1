//! Command queue from the host to the balancer, with the wake-up of the balancer.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use vireo_core::placement::message::{ClusterOutput, HostNotice, RanOutput};
use vireo_sctp::Waker;

/// Capacity of the command queue from the host to the balancer.
pub const COMMANDS: usize = 65_536;

/// Output of a host, for the balancer in its process or for its link to the cluster.
#[derive(Debug)]
pub enum Command {
    /// To a RAN node or UPF.
    Ran(RanOutput),
    /// To the members of the cluster. A host without a cluster has no such output.
    Cluster(ClusterOutput),
}

impl From<RanOutput> for Command {
    fn from(output: RanOutput) -> Self {
        Command::Ran(output)
    }
}

impl From<ClusterOutput> for Command {
    fn from(output: ClusterOutput) -> Self {
        Command::Cluster(output)
    }
}

impl From<HostNotice> for Command {
    fn from(notice: HostNotice) -> Self {
        Command::Cluster(notice.into())
    }
}

/// Sender of commands, used by the host. The queue is bounded. The sender blocks while it is full;
/// the balancer never blocks on the host, so there is no deadlock.
#[derive(Debug)]
pub struct CommandSender {
    queue: Sender<Command>,
    sleeping: Arc<AtomicBool>,
    waker: Waker,
    unflushed: bool,
}

/// Receiver of commands, used by the balancer.
#[derive(Debug)]
pub struct CommandReceiver {
    pub queue: Receiver<Command>,
    sleeping: Arc<AtomicBool>,
}

/// Creates a queue of at most `capacity` commands. `waker` wakes the balancer.
pub fn channel(capacity: usize, waker: Waker) -> (CommandSender, CommandReceiver) {
    let (sender, receiver) = bounded(capacity);
    let sleeping = Arc::new(AtomicBool::new(false));
    let outbound = CommandSender { queue: sender, sleeping: Arc::clone(&sleeping), waker, unflushed: false };
    (outbound, CommandReceiver { queue: receiver, sleeping })
}

impl CommandSender {
    /// Queues a command. The balancer may not see it until [`CommandSender::flush`].
    pub fn send(&mut self, command: impl Into<Command>) {
        self.unflushed = true;
        if let Err(error) = self.queue.try_send(command.into()) {
            // The queue is full: wake the balancer to make room. If the balancer has ended, the
            // command is dropped.
            self.flush();
            let _ = self.queue.send(error.into_inner());
            self.unflushed = true;
        }
    }

    /// Wakes the balancer if it sleeps while commands are queued.
    pub fn flush(&mut self) {
        if !std::mem::take(&mut self.unflushed) {
            return;
        }
        // Pairs with the fence of `CommandReceiver::sleep`: either the receiver sees the command,
        // or this thread sees that the receiver sleeps.
        fence(Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Returns the number of queued commands.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if no command is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl CommandReceiver {
    /// Announces that the balancer will sleep. Returns false if a command is queued.
    pub fn sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.queue.is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    /// Announces that the balancer runs again, after [`CommandReceiver::sleep`].
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "testing"))]
impl CommandSender {
    /// Creates a sender without a balancer, and the receiver of its commands, for tests of hosts.
    ///
    /// # Panics
    ///
    /// Panics if the operating system refuses a descriptor.
    pub fn without_balancer() -> (Self, CommandReceiver) {
        channel(COMMANDS, Waker::new().expect("a descriptor"))
    }
}
