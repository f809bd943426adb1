//! Replicator thread: connections between hosts, for copies in both directions.
//!
//! Unacknowledged copies are kept and sent again after a connection was lost.

use crate::input_queue::HostSender;
use crate::poll_set::{PollSet, Sockets, interest, wait};
use crate::progress::ProgressCounter;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vireo_core::amf::context::{EncodedContext, Versions};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::ClusterMap;
use vireo_core::placement::host::{AckSchedule, AddressAuditMessage, CopyQueue, Received, receive};
use vireo_core::placement::message::{ToOwner, ToReplica};
use vireo_core::placement::replica::{Proposal, ProposalAnswer, ReplicaAcks, ReplicaStore, TakeoverSet};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::{Stream, to_displace};
use vireo_fabric::{Role, Security};
use vireo_ops::clock::clock;
use vireo_ops::metrics::{Flow, Metrics};
use vireo_sctp::Waker;
use vireo_types::{Ltmsi, Tmsi};

/// Number of possible host IDs.
const HOSTS: usize = 1 << 16;
/// Maximum number of queued commands; the thread never waits for the host.
const MAX_COMMANDS: usize = 65_536;
/// Retry interval of a lost connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Initial size of a batch in bytes: a few copies.
const BATCH_CAPACITY: usize = 1 << 10;
/// Size of a batch in bytes at which it is passed to the thread.
const BATCH_BYTES: usize = 64 << 10;
/// Maximum unsent bytes in a connection before more are added.
const MAX_UNSENT_BYTES: usize = 1 << 20;
/// Maximum number of incoming connections.
const INCOMING: usize = 1024;
/// Time within which a connected host must identify itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of reads from one connection before others are served.
const MAX_READS: usize = 16;

/// Maximum number of queued messages of peers that are not copies.
const MAX_PEER_MESSAGES: usize = 4096;

/// Message of a peer that is not a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Message of the address audit.
    AddressAudit { from: HostId, message: AddressAuditMessage },
    /// The peer has these UEs of this host from other hosts.
    ReconcileReply {
        from: HostId,
        /// Number of the reconcile request.
        number: u64,
        ues: Vec<Ltmsi>,
    },
    /// The peer has run a step of a UE of this host.
    Proposal { from: HostId, proposal: Box<Proposal> },
}

/// Command to the thread.
#[derive(Debug)]
enum ReplicatorCommand {
    /// Sends copies to a host.
    Send(HostId, Batch),
    /// Sends a proposal to the owner of its UE.
    Propose(HostId, Box<Proposal>),
    /// Replaces the other hosts and the epoch.
    Peers(Vec<(HostId, SocketAddr)>, u64),
    Stop,
}

/// Copies for one host that are sent together.
#[derive(Debug)]
struct Batch {
    /// Number of the last copy in the batch.
    last: u64,
    /// One frame per copy.
    frames: frame::FrameWriter,
}

#[derive(Debug)]
struct Shared {
    replica_store: Mutex<ReplicaStore>,
    /// By host ID: the last acknowledged copy, and whether the host has left copies unacknowledged
    /// for too long.
    acked: Box<[AtomicU64]>,
    unreached: Box<[AtomicBool]>,
    sleeping: AtomicBool,
    fenced: AtomicBool,
    /// True if a handoff was received and not yet consumed.
    handoff_received: AtomicBool,
    /// True if proposals of this host were answered, and if one of them was refused.
    has_proposal_answers: AtomicBool,
    has_refusals: AtomicBool,
    /// True if an input of the host waits for such an answer.
    awaits_answers: AtomicBool,
    /// Received messages that are not copies, and whether there are any.
    peer_messages: Mutex<Vec<PeerMessage>>,
    has_peer_messages: AtomicBool,
    /// True if the host has drained.
    drained: AtomicBool,
}

impl Shared {
    fn replica_store(&self) -> MutexGuard<'_, ReplicaStore> {
        // A panic under the lock leaves the store consistent: each step is complete.
        self.replica_store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the result of an owner's message to the host. Returns the answer to the owner.
    fn take(&self, from: HostId, received: Received) -> Result<Option<ToOwner>, FrameError> {
        if let Some(ltmsi) = received.missing_base {
            tracing::error!(%ltmsi, "bug: copy without its base");
        }
        self.handoff_received.fetch_or(received.is_handoff, Ordering::Release);
        self.has_proposal_answers.fetch_or(received.is_proposal_answer, Ordering::Release);
        self.has_refusals.fetch_or(received.is_refusal, Ordering::Release);
        let audit = received.audit.map(|message| PeerMessage::AddressAudit { from, message });
        audit.map_or(Ok(()), |audit| self.push_peer_message(audit))?;
        Ok(received.answer)
    }

    /// Returns true if the host must process answers to its proposals now: an input waits for one,
    /// or returns to its balancer because of one. It processes others with its next input.
    fn has_due_answers(&self) -> bool {
        self.has_proposal_answers.load(Ordering::Acquire)
            && (self.awaits_answers.load(Ordering::Relaxed) || self.has_refusals.load(Ordering::Acquire))
    }

    /// Queues a message that is not a copy; returns an error if too many are queued.
    fn push_peer_message(&self, peer_messages: PeerMessage) -> Result<(), FrameError> {
        let mut all = self.peer_messages.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PEER_MESSAGES {
            return Err(FrameError::Refused("it says more than it is asked".into()));
        }
        all.push(peer_messages);
        self.has_peer_messages.store(true, Ordering::Release);
        Ok(())
    }
}

/// Host side of the replicator.
#[derive(Debug)]
pub struct Replicator {
    own: HostId,
    shared: Arc<Shared>,
    commands: Sender<ReplicatorCommand>,
    waker: Waker,
    /// Batches per host that were not passed to the thread yet.
    batches: RefCell<SmallVec<[(HostId, Batch); 4]>>,
}

/// Status of the replicator for other threads.
#[derive(Clone, Debug)]
pub struct ReplicatorStatus(Arc<Shared>);

impl ReplicatorStatus {
    /// Returns the number of replica entries.
    pub fn copies(&self) -> usize {
        self.0.replica_store().len()
    }

    /// Returns true if another host has refused this host's epoch.
    pub fn is_fenced(&self) -> bool {
        self.0.fenced.load(Ordering::Relaxed)
    }

    /// Returns true if the host has drained: other hosts have all its state.
    pub fn has_left(&self) -> bool {
        self.0.drained.load(Ordering::Relaxed)
    }
}

/// Replicator thread, before it runs.
#[derive(Debug)]
pub struct ReplicatorThread {
    own: HostId,
    shared: Arc<Shared>,
    commands: Receiver<ReplicatorCommand>,
    waker: Waker,
    listener: TcpListener,
    security: Security,
    metrics: Arc<Metrics>,
    /// Maximum time for which a host may leave copies unacknowledged.
    ack_timeout: Duration,
    epoch: u64,
    peers: FxHashMap<HostId, Peer>,
    incoming: Vec<OwnerConnection>,
    /// True if a connection waits at the listener.
    connection_pending: bool,
    progress: ProgressCounter,
}

/// Host that is or may become a replica of this host's UEs.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    stream: Option<Stream>,
    /// Frames that the host has not acknowledged.
    queue: CopyQueue<frame::FrameWriter>,
    /// Time of the next connection attempt.
    retry_at: Instant,
}

/// Connection from a host that sends copies.
#[derive(Debug)]
struct OwnerConnection {
    stream: Stream,
    from: Option<(HostId, u64)>,
    since: Instant,
    acks: AckSchedule,
    /// Copies that were received and not acknowledged.
    copies: u64,
}

impl OwnerConnection {
    fn new(stream: Stream) -> Self {
        OwnerConnection { stream, from: None, since: Instant::now(), acks: AckSchedule::default(), copies: 0 }
    }

    /// Logs why the connection ended.
    fn on_end(&self, error: &FrameError) {
        tracing::debug!(from = ?self.from, %error, "host connection ended");
    }
}

/// Creates both sides; a host may leave copies unacknowledged for `ack_timeout`.
pub fn replicator(
    own: HostId,
    ack_timeout: Duration,
    (listener, security): (TcpListener, Security),
    metrics: Arc<Metrics>,
) -> std::io::Result<(Replicator, ReplicatorThread)> {
    listener.set_nonblocking(true)?;
    let (sender, commands) = bounded(MAX_COMMANDS);
    let waker = Waker::new()?;
    let shared = Arc::new(Shared {
        replica_store: Mutex::new(ReplicaStore::new(own)),
        // Host IDs are never reused.
        acked: (0..HOSTS).map(|_| AtomicU64::new(0)).collect(),
        unreached: (0..HOSTS).map(|_| AtomicBool::new(false)).collect(),
        sleeping: AtomicBool::new(false),
        fenced: AtomicBool::new(false),
        handoff_received: AtomicBool::new(false),
        has_proposal_answers: AtomicBool::new(false),
        has_refusals: AtomicBool::new(false),
        awaits_answers: AtomicBool::new(false),
        peer_messages: Mutex::default(),
        has_peer_messages: AtomicBool::new(false),
        drained: AtomicBool::new(false),
    });
    let thread = ReplicatorThread {
        own,
        shared: Arc::clone(&shared),
        commands,
        waker: waker.clone(),
        listener,
        security,
        metrics,
        ack_timeout,
        epoch: 0,
        peers: FxHashMap::default(),
        incoming: Vec::new(),
        connection_pending: false,
        progress: ProgressCounter::default(),
    };
    Ok((Replicator { own, shared, commands: sender, waker, batches: RefCell::default() }, thread))
}

impl ReplicaAcks for Replicator {
    #[inline]
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.shared.acked.get(host.index()).map_or(0, |acked| acked.load(Ordering::Acquire))
    }
}

impl Replicator {
    /// Returns true if a host has left copies unacknowledged for too long.
    pub fn is_unreached(&self, host: HostId) -> bool {
        self.shared.unreached.get(host.index()).is_some_and(|unreached| unreached.load(Ordering::Relaxed))
    }

    /// Buffers a message for a host, with its number in the sequence of copies, until
    /// [`Replicator::flush`]. Returns its length in bytes.
    pub fn put(&self, to: HostId, number: u64, message: &ToReplica<'_>) -> usize {
        let mut batches = self.batches.borrow_mut();
        let position = batches.iter().position(|(host, _)| *host == to).unwrap_or_else(|| {
            batches.push((to, Batch { last: number, frames: frame::FrameWriter::with_capacity(BATCH_CAPACITY) }));
            batches.len() - 1
        });
        let batch = &mut batches[position].1;
        batch.last = number;
        // Messages always encode: their parts have known lengths.
        let octets = batch.frames.put(message).unwrap_or(0);
        if batch.frames.len() >= BATCH_BYTES {
            let (to, batch) = batches.swap_remove(position);
            self.send_command(ReplicatorCommand::Send(to, batch));
        }
        octets
    }

    fn send_command(&self, command: ReplicatorCommand) {
        if let Err(error) = self.commands.try_send(command) {
            // Queue full: wake the thread to make room. It ends with the host.
            self.wake();
            let _ = self.commands.send(error.into_inner());
        }
    }

    /// Passes all buffered messages to the thread and wakes it.
    pub fn flush(&self) {
        self.pass_batches();
        self.wake();
    }

    /// Passes the buffered messages to the thread.
    fn pass_batches(&self) {
        self.batches
            .borrow_mut()
            .drain(..)
            .for_each(|(to, batch)| self.send_command(ReplicatorCommand::Send(to, batch)));
    }

    /// Wakes the thread if commands are queued.
    fn wake(&self) {
        if self.commands.is_empty() {
            return;
        }
        // Pairs with the fence of the thread before it sleeps.
        fence(Ordering::SeqCst);
        if self.shared.sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Adopts the map of a new epoch; returns what this host takes over.
    pub fn adopt(&self, map: &ClusterMap) -> TakeoverSet {
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let takeover = {
            let mut replica_store = self.shared.replica_store();
            let takeover = replica_store.adopt(&map.buckets, &hosts);
            // Those to dead owners may be refused.
            let has_answers = replica_store.has_proposal_answers();
            self.shared.has_proposal_answers.fetch_or(has_answers, Ordering::Release);
            self.shared.has_refusals.fetch_or(has_answers, Ordering::Release);
            takeover
        };
        let others = map.hosts.iter().copied().filter(|(host, _)| *host != self.own).collect();
        // Messages of the previous map are sent first.
        self.pass_batches();
        self.send_command(ReplicatorCommand::Peers(others, map.buckets.epoch()));
        self.flush();
        takeover
    }

    /// Records that the host has left its cluster.
    pub fn set_left(&self) {
        self.shared.drained.store(true, Ordering::Relaxed);
    }

    /// Returns true if a handoff was received.
    #[inline]
    pub fn has_handoff(&self) -> bool {
        self.shared.handoff_received.load(Ordering::Acquire)
    }

    /// Returns the buckets handed off since the last call.
    pub fn take_handed_off(&self) -> TakeoverSet {
        self.shared.handoff_received.store(false, Ordering::Release);
        self.shared.replica_store().take_handed_off()
    }

    /// Returns true if a message other than a copy was received.
    #[inline]
    pub fn has_peer_message(&self) -> bool {
        self.shared.has_peer_messages.load(Ordering::Acquire)
    }

    /// Returns the messages received since the last call.
    pub fn take_peer_messages(&self) -> Vec<PeerMessage> {
        if !self.has_peer_message() {
            return Vec::new();
        }
        self.shared.has_peer_messages.store(false, Ordering::Release);
        std::mem::take(&mut *self.shared.peer_messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if proposals of this host were answered.
    #[inline]
    pub fn has_proposal_answers(&self) -> bool {
        self.shared.has_proposal_answers.load(Ordering::Acquire)
    }

    /// Returns true if answers to proposals of this host must be processed before its next input.
    #[inline]
    pub fn has_due_answers(&self) -> bool {
        self.shared.has_due_answers()
    }

    /// Sets whether an input of the host waits for the answer to a proposal. The host calls it
    /// before it sleeps, and then checks [`Replicator::has_due_answers`].
    pub fn set_awaits_answers(&self, awaits: bool) {
        self.shared.awaits_answers.store(awaits, Ordering::SeqCst);
    }

    /// Returns the answers to proposals of this host since the last call.
    pub fn take_proposal_answers(&self) -> Vec<ProposalAnswer> {
        self.shared.has_refusals.store(false, Ordering::Release);
        self.shared.has_proposal_answers.store(false, Ordering::Release);
        self.shared.replica_store().take_proposal_answers()
    }

    /// Returns the UE that has a 5G-TMSI, among those with an entry.
    pub fn ltmsi_of(&self, tmsi: Tmsi) -> Option<Ltmsi> {
        self.shared.replica_store().ltmsi_of(tmsi)
    }

    /// Returns true if this host may serve the procedures of a UE.
    pub fn is_servable(&self, ltmsi: Ltmsi) -> bool {
        self.shared.replica_store().is_servable(ltmsi)
    }

    /// Returns true if this host has a copy of a UE.
    pub fn has_copy(&self, ltmsi: Ltmsi) -> bool {
        self.shared.replica_store().has_copy(ltmsi)
    }

    /// Returns the versions of a UE whose procedures this host may serve.
    pub fn versions_for_serving(&self, ltmsi: Ltmsi) -> Option<Versions> {
        self.shared.replica_store().versions_for_serving(ltmsi)
    }

    /// Returns the stored form of a UE whose procedures this host may serve.
    pub fn read_for_serving(&self, ltmsi: Ltmsi) -> Option<Vec<u8>> {
        self.shared.replica_store().read_for_serving(ltmsi)
    }

    /// Stores a proposal until its answer, and sends it to the owner of its UE.
    pub fn propose(&self, proposal: Proposal) {
        let owner = self.shared.replica_store().propose(proposal.clone(), clock());
        // Without a connection it is sent on the next one.
        if let Some(owner) = owner {
            self.send_command(ReplicatorCommand::Propose(owner, Box::new(proposal)));
        }
    }

    /// Stores replica entries of UEs that this host hands off.
    pub fn store_own<'a>(&self, ues: impl Iterator<Item = (Ltmsi, EncodedContext<'a>)>) {
        let mut replica_store = self.shared.replica_store();
        ues.for_each(|(ltmsi, parts)| replica_store.insert_own(ltmsi, &parts));
    }

    /// Returns the status for other threads.
    pub fn watch(&self) -> ReplicatorStatus {
        ReplicatorStatus(Arc::clone(&self.shared))
    }
}

impl Drop for Replicator {
    fn drop(&mut self) {
        self.send_command(ReplicatorCommand::Stop);
        self.waker.wake();
    }
}

impl ReplicatorThread {
    /// Returns the progress counter of the thread.
    pub fn progress(&self) -> ProgressCounter {
        self.progress.clone()
    }

    /// Runs until its host ends. Wakes the host through `input_sender` when there are
    /// acknowledgements or messages.
    pub fn run(mut self, input_sender: &HostSender) {
        while self.run_once(input_sender) {
            let at_most = self.before_sleep();
            if let Err(error) = wait(&mut [&mut self], at_most) {
                return tracing::error!(%error, "connections between hosts cannot be polled");
            }
        }
    }

    /// Sends what the host has for others, and receives what they sent. Returns false if the host
    /// has ended.
    fn run_once(&mut self, input_sender: &HostSender) -> bool {
        let is_running = self.execute_commands();
        if is_running {
            self.send_copies();
            self.receive(input_sender);
        }
        is_running
    }

    /// Sends what the host has for others.
    pub(crate) fn send(&mut self) {
        self.execute_commands();
        self.send_copies();
        self.incoming.retain_mut(|incoming| {
            let sent = incoming.stream.flush();
            sent.inspect_err(|error| incoming.on_end(error)).is_ok()
        });
    }

    /// Executes the commands of the host. Returns false if the host has ended.
    fn execute_commands(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                ReplicatorCommand::Send(to, batch) => {
                    if let Some(peer) = self.peers.get_mut(&to) {
                        peer.queue.push(batch.last, batch.frames, clock());
                    }
                }
                ReplicatorCommand::Propose(owner, proposal) => self.propose(owner, *proposal),
                ReplicatorCommand::Peers(peers, epoch) => self.update_peers(peers, epoch),
                ReplicatorCommand::Stop => return false,
            }
        }
        true
    }

    /// Receives what other hosts sent, acknowledges copies, and wakes the host for what it must
    /// process.
    pub(crate) fn receive(&mut self, input_sender: &HostSender) {
        self.progress.tick();
        if self.connection_pending {
            self.accept();
        }
        let has_acks = self.receive_acks();
        self.check_replicas();
        self.receive_copies();
        // Pairs with the fence of the host before it sleeps: either it sees the answers, or this
        // thread sees that an input waits for them.
        fence(Ordering::SeqCst);
        if has_acks
            || self.shared.handoff_received.load(Ordering::Relaxed)
            || self.shared.has_peer_messages.load(Ordering::Relaxed)
            || self.shared.has_due_answers()
        {
            input_sender.wake();
        }
    }

    /// Announces that the thread will sleep. Returns the maximum time.
    pub(crate) fn before_sleep(&self) -> Duration {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.commands.is_empty() {
            return Duration::ZERO;
        }
        let due = self.incoming.iter().filter_map(|incoming| incoming.acks.due()).min();
        due.map_or(RETRY_INTERVAL, |due| RETRY_INTERVAL.min(due.since(clock()).into()))
    }

    fn update_peers(&mut self, peers: Vec<(HostId, SocketAddr)>, epoch: u64) {
        self.epoch = epoch;
        // Host IDs are never reused: a departed host cannot be late.
        self.shared.unreached.iter().for_each(|unreached| unreached.store(false, Ordering::Relaxed));
        self.peers.retain(|host, _| peers.iter().any(|(other, _)| other == host));
        for (host, address) in peers {
            let new = || Peer { address, stream: None, queue: CopyQueue::default(), retry_at: Instant::now() };
            let peer = self.peers.entry(host).or_insert_with(new);
            if let Some(stream) = &mut peer.stream {
                stream.put(&ToReplica::Hello { host: self.own, epoch });
            }
        }
    }

    fn propose(&mut self, owner: HostId, proposal: Proposal) {
        let mut of_owner = self.incoming.iter_mut().rev();
        if let Some(incoming) = of_owner.find(|incoming| incoming.from.is_some_and(|(host, _)| host == owner)) {
            incoming.stream.put(&ToOwner::Proposal(Box::new(proposal)));
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, peer)) = self.listener.accept() {
            if self.incoming.len() >= INCOMING {
                tracing::warn!(%peer, "too many connections of other hosts");
                let strangers = self.incoming.iter().map(|incoming| &incoming.stream).enumerate();
                let Some(oldest) = to_displace(strangers) else { continue };
                self.incoming.remove(oldest);
            }
            match Stream::accepted(socket, &self.security, Role::Peer, &[Role::Peer]) {
                Ok(stream) => self.incoming.push(OwnerConnection::new(stream)),
                Err(error) => tracing::warn!(%peer, %error, "host connection failed"),
            }
        }
    }

    /// Connects to peers without a connection, and sends batches.
    fn send_copies(&mut self) {
        let (own, epoch) = (self.own, self.epoch);
        for (host, peer) in &mut self.peers {
            if peer.stream.is_none() && Instant::now() >= peer.retry_at {
                peer.retry_at = Instant::now() + RETRY_INTERVAL;
                peer.queue.on_connection_lost();
                match Stream::connect(peer.address, &self.security, Role::Peer, &[Role::Peer]) {
                    Ok(mut stream) => {
                        stream.put(&ToReplica::Hello { host: own, epoch });
                        peer.stream = Some(stream);
                    }
                    Err(error) => tracing::debug!(host = host.0, %error, "no connection to another host"),
                }
            }
            let Some(stream) = &mut peer.stream else { continue };
            while stream.unsent() < MAX_UNSENT_BYTES
                && let Some(frames) = peer.queue.next_unwritten()
            {
                stream.frames(frames);
            }
            if let Err(error) = stream.flush() {
                peer.on_disconnect(*host, &error);
            }
        }
    }

    /// Receives acknowledgements of other hosts. Returns true if there are new ones.
    fn receive_acks(&mut self) -> bool {
        let mut has_acks = false;
        for (host, peer) in &mut self.peers {
            let mut acks = PeerAcks::default();
            let result = peer.receive(*host, &self.shared, &mut acks);
            if let Some(number) = acks.acked {
                if let Some(acked) = self.shared.acked.get(host.index()) {
                    // Copy numbers and host IDs are never reused, and a host keeps a copy as long
                    // as it is in the map. After a reconnection a host first acknowledges repeats,
                    // with lower numbers than it had acknowledged before.
                    acked.fetch_max(number, Ordering::AcqRel);
                }
                has_acks = true;
            }
            if let Some(epoch) = acks.fenced {
                tracing::error!(host = host.0, epoch, "fenced: other hosts have taken over the UEs of this host");
                self.shared.fenced.store(true, Ordering::Relaxed);
            }
            if let Err(error) = result {
                peer.on_disconnect(*host, &error);
            }
        }
        has_acks
    }

    /// Determines which hosts have left copies unacknowledged for too long.
    fn check_replicas(&self) {
        for (host, peer) in &self.peers {
            if let Some(unreached) = self.shared.unreached.get(host.index()) {
                unreached.store(peer.queue.is_late(self.ack_timeout.into(), clock()), Ordering::Relaxed);
            }
        }
    }

    /// Receives and stores copies of other hosts.
    fn receive_copies(&mut self) {
        let (shared, metrics) = (&self.shared, &self.metrics);
        self.incoming.retain_mut(|incoming| match incoming.receive(shared, metrics) {
            Ok(()) => incoming.from.is_some() || incoming.since.elapsed() < HELLO_TIMEOUT,
            Err(error) => {
                incoming.on_end(&error);
                false
            }
        });
    }
}

impl Sockets for ReplicatorThread {
    fn register<'a>(&'a self, set: &mut PollSet<'a>) {
        set.push(PollFd::new(&self.waker, PollFlags::IN));
        set.push(PollFd::new(&self.listener, PollFlags::IN));
        let outgoing = self.peers.values().filter_map(|peer| peer.stream.as_ref());
        let streams = outgoing.chain(self.incoming.iter().map(|incoming| &incoming.stream));
        set.extend(streams.map(|stream| PollFd::from_borrowed_fd(stream.fd(), interest(stream.has_unwritten(), true))));
    }

    fn on_polled(&mut self, ready: &mut dyn Iterator<Item = bool>) {
        self.shared.sleeping.store(false, Ordering::SeqCst);
        if ready.next() == Some(true) {
            self.waker.clear();
        }
        self.connection_pending = ready.next() == Some(true);
        let outgoing = self.peers.values_mut().filter_map(|peer| peer.stream.as_mut());
        for stream in outgoing.chain(self.incoming.iter_mut().map(|incoming| &mut incoming.stream)) {
            stream.set_readable(ready.next() == Some(true));
        }
    }
}

/// Messages of a replica: last acknowledged copy, or refusal of this host's epoch.
#[derive(Debug, Default)]
struct PeerAcks {
    acked: Option<u64>,
    fenced: Option<u64>,
}

impl Peer {
    /// Receives messages until the connection is lost or there are no more.
    fn receive(&mut self, host: HostId, shared: &Shared, acks: &mut PeerAcks) -> Result<(), FrameError> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let read = stream.fill();
        while let Some(octets) = stream.frame()? {
            match frame::decode(octets)? {
                ToOwner::CopyAck { number } => {
                    self.queue.acknowledge(number, clock());
                    acks.acked = Some(number);
                }
                ToOwner::Fenced { epoch } => acks.fenced = Some(epoch),
                // The host sends this reply before it acknowledges the request: a lost connection
                // repeats it.
                ToOwner::ReconcileReply { number, ues } => {
                    shared.push_peer_message(PeerMessage::ReconcileReply { from: host, number, ues })?
                }
                ToOwner::Proposal(proposal) => {
                    shared.push_peer_message(PeerMessage::Proposal { from: host, proposal })?
                }
            }
        }
        read.map(|_| ())
    }

    fn on_disconnect(&mut self, host: HostId, cause: &FrameError) {
        tracing::debug!(host = host.0, reason = %cause, "a connection to another host is lost");
        self.stream = None;
        self.queue.on_connection_lost();
    }
}

impl OwnerConnection {
    fn receive(&mut self, shared: &Shared, metrics: &Metrics) -> Result<(), FrameError> {
        for _ in 0..MAX_READS {
            let read = self.stream.fill();
            let mut replica_store = None;
            let mut fenced = None;
            while let Some(octets) = self.stream.frame()? {
                let message = frame::decode(octets)?;
                if let ToReplica::Hello { host, epoch } = message {
                    if self.from.replace((host, epoch)).is_none() {
                        let store = replica_store.get_or_insert_with(|| shared.replica_store());
                        for proposal in store.unanswered_proposals(host) {
                            self.stream.put(&ToOwner::Proposal(Box::new(proposal.clone())));
                        }
                    }
                    continue;
                }
                let from = self.from.ok_or(FrameError::Message)?;
                self.copies += u64::from(matches!(message, ToReplica::Copy(_)));
                match receive(replica_store.get_or_insert_with(|| shared.replica_store()), from, message, clock()) {
                    Ok(received) => {
                        self.acks.on_received(&received, clock());
                        if let Some(answer) = shared.take(from.0, received)? {
                            self.stream.put(&answer);
                        }
                    }
                    Err(error) => fenced = Some(error),
                }
            }
            drop(replica_store);
            if let Some(error) = fenced {
                self.stream.put(&ToOwner::Fenced { epoch: error.epoch });
            }
            if read? == 0 {
                break;
            }
        }
        if let Some(number) = self.acks.take_due(clock()) {
            // One acknowledgement for all received copies.
            self.stream.put(&ToOwner::CopyAck { number });
            metrics.messages(Flow::CopiesIn, std::mem::take(&mut self.copies));
        }
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
