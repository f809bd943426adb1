//! Command queue from the host to the balancer, with the wake-up of the balancer.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::message::{AssociationOwner, PoolLoad};
use vireo_sctp::Waker;
use vireo_types::{AssocId, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// Capacity of the command queue from the host to the balancer.
pub const COMMANDS: usize = 65_536;

/// A request of the host to the balancer.
#[derive(Debug)]
pub enum Command {
    /// Send an NGAP PDU.
    Ngap {
        /// Association of the RAN node.
        assoc: AssocId,
        /// UE that the PDU concerns, if any. All messages of a UE use the same stream.
        ue: Option<Ltmsi>,
        /// Deduplication key of the effect, equal if its step runs again; 0 = none.
        key: u64,
        pdu: Vec<u8>,
    },
    /// Send a PFCP message.
    Pfcp {
        /// N4 address of the UPF.
        upf: SocketAddr,
        /// Deduplication key of the request, equal if its step runs again.
        key: u64,
        /// Session of the request; `None` if the context no longer has the session.
        seid: Option<Seid>,
        message: Vec<u8>,
    },
    /// Reject a UPF's report about a session that no context has.
    RefuseReport {
        /// N4 address of the UPF.
        upf: SocketAddr,
        /// The PFCP Session Report Request.
        message: Vec<u8>,
    },
    /// Abort an association.
    Abort { assoc: AssocId },
    /// Check with a probe that the peer of an association is reachable.
    Probe { assoc: AssocId },
    /// To a balancer of a cluster: all effects of an input have been sent.
    Done {
        /// Number of the input.
        number: u64,
    },
    /// To a balancer of a cluster: a subscriber has registered at this host.
    Claim {
        supi: Supi,
        /// UE context of the subscriber.
        ue: Ltmsi,
        /// Time of the registration.
        at: Instant,
    },
    /// To all balancers of a cluster: the following commands apply to this epoch.
    Epoch { epoch: u64 },
    /// To the balancers and the controller of a cluster: the load of the host.
    Report {
        /// Utilisation of the host's CPUs, 0 to 1.
        cpu: f32,
        /// Processed messages per second, averaged.
        rate: f32,
        /// Load of each pool.
        pools: Vec<PoolLoad>,
    },
    /// To a balancer of a cluster: another host has all copies that the epoch requires.
    CaughtUp {
        epoch: u64,
        /// Replica that acknowledged the copies.
        host: HostId,
    },
    /// To a balancer of a cluster: confirm when all preceding commands are executed.
    Barrier {
        /// Host that waits for the confirmation.
        host: HostId,
        /// Number of the barrier.
        number: u64,
    },
    /// To all balancers of the map, including those not yet connected: confirm when the balancer
    /// has sent all its state to this host.
    Introduce {
        /// Number of the barrier.
        number: u64,
    },
    /// To a balancer of a cluster: an input concerns a UE of another host.
    ReturnInput {
        /// The balancer's number of the input.
        number: u64,
    },
    /// To a balancer of a cluster: an address of another host's pool partition is no longer in use.
    ReturnAddress {
        /// Owner of the pool partition.
        to: HostId,
        /// Data network and address.
        of: Box<(Dnn, SessionAddress)>,
    },
    /// To the controller: pool partitions of removed hosts from which UEs of this host still use
    /// addresses.
    PoolPartitions {
        /// Epoch of the statement.
        epoch: u64,
        /// Numbers of the pool partitions.
        parts: Vec<u16>,
    },
    /// To the controller: hosts that this host cannot reach to send copies.
    UnreachablePeers(Vec<HostId>),
    /// To the balancer of an additional TNL association: the RAN node of the association.
    Node(Box<AssociationOwner>),
    /// To a balancer of a cluster: the host wants to leave the cluster.
    Leave,
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
    pub fn send(&mut self, command: Command) {
        self.unflushed = true;
        if let Err(error) = self.queue.try_send(command) {
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

    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}
