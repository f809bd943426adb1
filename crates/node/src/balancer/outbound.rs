//! What goes from the host to the balancer, and how the balancer is woken for it.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use vireo_core::balance::HostId;
use vireo_fabric::message::{AssociationOwner, PoolLoad};
use vireo_sctp::Waker;
use vireo_types::{AssocId, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// What the host wants sent.
#[derive(Debug)]
pub enum Command {
    /// An NGAP PDU.
    Ngap {
        /// The RAN node's association.
        assoc: AssocId,
        /// The UE it is about, if it is about one: its messages keep to one stream.
        ue: Option<Ltmsi>,
        /// The name of the effect, the same when its step runs again; 0 = it has none.
        key: u64,
        /// The PDU.
        pdu: Vec<u8>,
    },
    /// A PFCP message.
    Pfcp {
        /// The UPF.
        upf: SocketAddr,
        /// The name of the request, the same when its step runs again.
        key: u64,
        /// The session; `None` once the context has forgotten it.
        seid: Option<Seid>,
        /// The message.
        message: Vec<u8>,
    },
    /// A report of a UPF about a session that nobody has.
    RefuseReport {
        /// The UPF.
        upf: SocketAddr,
        /// The report.
        message: Vec<u8>,
    },
    /// The association ends at once.
    Abort {
        /// Which.
        assoc: AssocId,
    },
    /// The peer of an association is asked for a sign of life.
    Probe {
        /// The association.
        assoc: AssocId,
    },
    /// To a cluster's balancer: what an input has caused has all been said.
    Done {
        /// Its number.
        number: u64,
    },
    /// To a cluster's balancer: a subscriber's context is here now.
    Claim {
        /// Whose.
        supi: Supi,
        /// The UE that has it.
        ue: Ltmsi,
        /// When the subscriber registered.
        at: Instant,
    },
    /// To all balancers of a cluster: what follows is by the map of an epoch.
    Epoch {
        /// The epoch.
        epoch: u64,
    },
    /// To a cluster's balancers and its controller: how loaded the host is.
    Report {
        /// The part of its processors that is in use.
        cpu: f32,
        /// Messages that it has dealt with a second, averaged.
        rate: f32,
        /// Its pools.
        pools: Vec<PoolLoad>,
    },
    /// To a cluster's balancer: another host has all copies that an epoch wants it to have.
    CaughtUp {
        /// The epoch.
        epoch: u64,
        /// The other host.
        host: HostId,
    },
    /// To a cluster's balancer: the host is to be told when all before this is done.
    Barrier {
        /// The host that asks.
        host: HostId,
        /// The number of the question.
        number: u64,
    },
    /// To all balancers of the map, also those that are not connected yet: the host is to be told when each has sent all that it
    /// knows.
    Introduce {
        /// The number of the question.
        number: u64,
    },
    /// To a cluster's balancer: an input is for a UE of another host.
    ReturnInput {
        /// The balancer's number of it.
        number: u64,
    },
    /// To a cluster's balancer: nobody has these addresses of another host's part any more.
    ReturnAddress {
        /// That host.
        to: HostId,
        /// The data network and the addresses.
        of: Box<(Dnn, SessionAddress)>,
    },
    /// To the controller: of which parts of the UE addresses, whose hosts are gone, this host's UEs have some in an epoch.
    PoolPartitions {
        /// The epoch.
        epoch: u64,
        /// The parts.
        parts: Vec<u16>,
    },
    /// To a cluster's controller: these hosts do not take this one's copies.
    UnreachablePeers(Vec<HostId>),
    /// To the balancer of a further association: which node it is of.
    Node(Box<AssociationOwner>),
    /// To a cluster's balancer: the host wants to leave.
    Leave,
}

/// The host's end: a bounded queue. It waits when the balancer is behind; the balancer never waits for the host, so
/// that the two cannot wait for each other.
#[derive(Debug)]
pub struct CommandSender {
    queue: Sender<Command>,
    sleeping: Arc<AtomicBool>,
    waker: Waker,
    unflushed: bool,
}

/// The balancer's end.
#[derive(Debug)]
pub(crate) struct CommandReceiver {
    pub(crate) queue: Receiver<Command>,
    sleeping: Arc<AtomicBool>,
}

/// Both ends of a queue of at most `capacity` commands.
pub(crate) fn channel(capacity: usize, waker: Waker) -> (CommandSender, CommandReceiver) {
    let (sender, receiver) = bounded(capacity);
    let sleeping = Arc::new(AtomicBool::new(false));
    let outbound = CommandSender { queue: sender, sleeping: Arc::clone(&sleeping), waker, unflushed: false };
    (outbound, CommandReceiver { queue: receiver, sleeping })
}

impl CommandSender {
    /// Queues a command. It may stay there until [`CommandSender::flush`].
    pub fn send(&mut self, command: Command) {
        self.unflushed = true;
        if let Err(error) = self.queue.try_send(command) {
            // Full: the balancer is woken to make room. Without a balancer there is nobody to send for.
            self.flush();
            let _ = self.queue.send(error.into_inner());
            self.unflushed = true;
        }
    }

    /// Wakes the balancer if it sleeps over commands.
    pub fn flush(&mut self) {
        if !std::mem::take(&mut self.unflushed) {
            return;
        }
        // Pairs with the fence of `CommandReceiver::sleep`: either it sees the command, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
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

impl CommandReceiver {
    /// Says that the balancer is about to sleep; `false` if there is something to do first.
    pub(crate) fn sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.queue.is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}
