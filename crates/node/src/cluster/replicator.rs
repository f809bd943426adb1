//! The connections between hosts, on a thread of their own: copies of this host's UEs to others, others' to here. Copies
//! that nobody has said to have are kept and sent again when a connection was lost.

use super::heartbeat::ProgressCounter;
use crate::clock::clock;
use crate::host::HostSender;
use crate::metrics::{Flow, Metrics};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, poll};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vireo_core::balance::HostId;
use vireo_core::context::EncodedContext;
use vireo_core::replica::{ApplyResult, Fenced, ReplicaAcks, ReplicaStore, ReplicaUpdate, TakeoverSet};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::message::{ClusterMap, ToOwner, ToReplica};
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_sctp::Waker;
use vireo_types::Ltmsi;

/// Numbers that hosts can have.
const HOSTS: usize = 1 << 16;
/// What may wait for the thread, which never waits for the host.
const ORDERS: usize = 65_536;
/// How soon a lost connection is made again.
const AGAIN: Duration = Duration::from_millis(100);
/// Octets that a few copies have.
const ROOM: usize = 1 << 10;
/// Octets of copies that are gathered for a host before the thread is given them.
const GATHERED: usize = 64 << 10;
/// Octets that are put into a connection before it has taken those that are there.
const UNSENT: usize = 1 << 20;
/// Other hosts that are listened to.
const INCOMING: usize = 1024;
/// How long one that is connected may not say which host it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pieces that are read of one connection before others are.
const PIECES: usize = 16;

/// What hosts have said beside copies and this one has not taken, at most.
const SAID: usize = 4096;

/// What a host says beside copies: of addresses that UEs have taken along, and of copies that it has of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerMessage {
    /// It asks which of its part this one's UEs have.
    Asks {
        /// The host.
        from: HostId,
        /// Of which epoch.
        epoch: u64,
    },
    /// Its UEs have these of this one's part.
    Has {
        /// The host.
        from: HostId,
        /// Of which epoch.
        epoch: u64,
        /// The table of numbers.
        table: u8,
        /// Numbers.
        numbers: Vec<u32>,
        /// All was said.
        last: bool,
    },
    /// It has these of this one's UEs by others' copies.
    Others {
        /// The host.
        from: HostId,
        /// The number of the question.
        number: u64,
        /// The UEs.
        ues: Vec<Ltmsi>,
    },
}

/// What the thread is told.
#[derive(Debug)]
enum ReplicatorCommand {
    /// Copies for a host.
    Send(HostId, Batch),
    /// These other hosts are there, in this epoch.
    Peers(Vec<(HostId, SocketAddr)>, u64),
    /// The end.
    Stop,
}

/// Copies for a host that go together.
#[derive(Debug)]
struct Batch {
    /// The number of the last of them.
    last: u64,
    /// A frame for each.
    frames: frame::FrameWriter,
}

#[derive(Debug)]
struct Shared {
    shadows: Mutex<ReplicaStore>,
    /// By the numbers of hosts: the last copy that each has said to have, and whether it has said nothing of some for too long.
    kept: Box<[AtomicU64]>,
    unreached: Box<[AtomicBool]>,
    sleeping: AtomicBool,
    fenced: AtomicBool,
    /// Something was handed over and not taken yet.
    handed: AtomicBool,
    /// What was said beside copies and not taken yet, and whether there is something.
    said: Mutex<Vec<PeerMessage>>,
    has_said: AtomicBool,
    /// The host has left its cluster in good order.
    left: AtomicBool,
}

impl Shared {
    fn shadows(&self) -> MutexGuard<'_, ReplicaStore> {
        // What is done under the lock leaves it whole at each step.
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a host says beside copies, unless too much waits.
    fn says(&self, said: PeerMessage) -> Result<(), FrameError> {
        let mut all = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SAID {
            return Err(FrameError::Refused("it says more than it is asked".into()));
        }
        all.push(said);
        self.has_said.store(true, Ordering::Release);
        Ok(())
    }
}

/// What a host has of the thread.
#[derive(Debug)]
pub(crate) struct Replicator {
    own: HostId,
    shared: Arc<Shared>,
    orders: Sender<ReplicatorCommand>,
    waker: Waker,
    /// What the thread is to be given of each host's copies.
    gathered: RefCell<SmallVec<[(HostId, Batch); 4]>>,
}

/// What others see of it.
#[derive(Clone, Debug)]
pub(crate) struct ReplicatorStatus(Arc<Shared>);

impl ReplicatorStatus {
    /// How many UEs of other hosts there are copies of.
    pub(crate) fn copies(&self) -> usize {
        self.0.shadows().len()
    }

    /// Whether another host has said that this one's epoch is over.
    pub(crate) fn is_fenced(&self) -> bool {
        self.0.fenced.load(Ordering::Relaxed)
    }

    /// Whether the host has left its cluster, and others have all that it had.
    pub(crate) fn has_left(&self) -> bool {
        self.0.left.load(Ordering::Relaxed)
    }
}

/// The thread, before it runs.
#[derive(Debug)]
pub(crate) struct ReplicatorThread {
    own: HostId,
    shared: Arc<Shared>,
    orders: Receiver<ReplicatorCommand>,
    waker: Waker,
    listener: TcpListener,
    security: Security,
    metrics: Arc<Metrics>,
    /// How long a host may say nothing of copies that it was sent.
    patience: Duration,
    epoch: u64,
    peers: FxHashMap<HostId, Peer>,
    incoming: Vec<OwnerConnection>,
    /// Somebody waits at the listener.
    knocked: bool,
    turns: ProgressCounter,
}

/// A host that keeps copies of this one's UEs, or may have to.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    stream: Option<Stream>,
    /// Copies that it has not said to have.
    unkept: VecDeque<Batch>,
    /// How many of them the connection was given.
    given: usize,
    again: Instant,
    /// Since when there are some and it has said nothing of them.
    since: Option<Instant>,
}

/// A host that sends copies here.
#[derive(Debug)]
struct OwnerConnection {
    stream: Stream,
    from: Option<(HostId, u64)>,
    since: Instant,
}

/// Both ends; hosts may say nothing of copies for so long.
pub(crate) fn replicator(
    own: HostId,
    patience: Duration,
    (listener, security): (TcpListener, Security),
    metrics: Arc<Metrics>,
) -> std::io::Result<(Replicator, ReplicatorThread)> {
    listener.set_nonblocking(true)?;
    let (sender, orders) = bounded(ORDERS);
    let waker = Waker::new()?;
    let shared = Arc::new(Shared {
        shadows: Mutex::new(ReplicaStore::new(own)),
        // Numbers of hosts are given once.
        kept: (0..HOSTS).map(|_| AtomicU64::new(0)).collect(),
        unreached: (0..HOSTS).map(|_| AtomicBool::new(false)).collect(),
        sleeping: AtomicBool::new(false),
        fenced: AtomicBool::new(false),
        handed: AtomicBool::new(false),
        said: Mutex::default(),
        has_said: AtomicBool::new(false),
        left: AtomicBool::new(false),
    });
    let thread = ReplicatorThread {
        own,
        shared: Arc::clone(&shared),
        orders,
        waker: waker.clone(),
        listener,
        security,
        metrics,
        patience,
        epoch: 0,
        peers: FxHashMap::default(),
        incoming: Vec::new(),
        knocked: false,
        turns: ProgressCounter::default(),
    };
    Ok((Replicator { own, shared, orders: sender, waker, gathered: RefCell::default() }, thread))
}

impl ReplicaAcks for Replicator {
    #[inline]
    fn acked_up_to(&self, host: HostId) -> u64 {
        self.shared.kept.get(host.index()).map_or(0, |kept| kept.load(Ordering::Acquire))
    }
}

impl Replicator {
    /// Sends a copy of a UE to a host; its octets. It stays here until [`Replicator::flush`].
    pub(crate) fn send_copy(&self, to: HostId, copy: ReplicaUpdate<'_>) -> usize {
        self.send(to, copy.number, &ToReplica::Copy(copy))
    }

    /// Whether a host has said nothing for too long of copies that it was sent.
    pub(crate) fn is_unreached(&self, host: HostId) -> bool {
        self.shared.unreached.get(host.index()).is_some_and(|unreached| unreached.load(Ordering::Relaxed))
    }

    /// Sends a message to a host, of this number in its order among the copies; its octets. It stays here until
    /// [`Replicator::flush`].
    pub(crate) fn send(&self, to: HostId, number: u64, message: &ToReplica<'_>) -> usize {
        let mut gathered = self.gathered.borrow_mut();
        let place = gathered.iter().position(|(host, _)| *host == to).unwrap_or_else(|| {
            gathered.push((to, Batch { last: number, frames: frame::FrameWriter::with_room(ROOM) }));
            gathered.len() - 1
        });
        let batch = &mut gathered[place].1;
        batch.last = number;
        // It has an encoding: its parts have known lengths.
        let octets = batch.frames.put(message).unwrap_or(0);
        if batch.frames.len() >= GATHERED {
            let (to, batch) = gathered.swap_remove(place);
            self.tell(ReplicatorCommand::Send(to, batch));
        }
        octets
    }

    fn tell(&self, order: ReplicatorCommand) {
        if let Err(error) = self.orders.try_send(order) {
            // Full: the thread is waked to make room. It ends with the host.
            self.wake();
            let _ = self.orders.send(error.into_inner());
        }
    }

    /// What was sent leaves.
    pub(crate) fn flush(&self) {
        self.give();
        self.wake();
    }

    /// Gives the thread what was gathered.
    fn give(&self) {
        self.gathered.borrow_mut().drain(..).for_each(|(to, batch)| self.tell(ReplicatorCommand::Send(to, batch)));
    }

    /// Wakes the thread, if there is something for it.
    fn wake(&self) {
        if self.orders.is_empty() {
            return;
        }
        // Pairs with the fence of the thread that is about to sleep.
        fence(Ordering::SeqCst);
        if self.shared.sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// A new epoch; what this host takes over.
    pub(crate) fn adopt(&self, map: &ClusterMap) -> TakeoverSet {
        let hosts: Vec<HostId> = map.hosts.iter().map(|(host, _)| *host).collect();
        let taken = self.shared.shadows().adopt(&map.buckets, &hosts);
        let others = map.hosts.iter().copied().filter(|(host, _)| *host != self.own).collect();
        // What was sent by the map before leaves by that.
        self.give();
        self.tell(ReplicatorCommand::Peers(others, map.buckets.epoch()));
        self.flush();
        taken
    }

    /// The host has left its cluster.
    pub(crate) fn tell_left(&self) {
        self.shared.left.store(true, Ordering::Relaxed);
    }

    /// Whether a host has handed something over.
    #[inline]
    pub(crate) fn has_handed(&self) -> bool {
        self.shared.handed.load(Ordering::Acquire)
    }

    /// What hosts have handed over since.
    pub(crate) fn take_handed(&self) -> TakeoverSet {
        self.shared.handed.store(false, Ordering::Release);
        self.shared.shadows().take_handed()
    }

    /// Whether hosts have said something beside copies.
    #[inline]
    pub(crate) fn has_said(&self) -> bool {
        self.shared.has_said.load(Ordering::Acquire)
    }

    /// What they have said since.
    pub(crate) fn take_peer_messages(&self) -> Vec<PeerMessage> {
        if !self.has_said() {
            return Vec::new();
        }
        self.shared.has_said.store(false, Ordering::Release);
        std::mem::take(&mut *self.shared.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps copies of what this host hands over.
    pub(crate) fn keep_own<'a>(&self, ues: impl Iterator<Item = (Ltmsi, EncodedContext<'a>)>) {
        let mut shadows = self.shared.shadows();
        ues.for_each(|(ltmsi, parts)| shadows.keep_own(ltmsi, &parts));
    }

    /// What others may see of it.
    pub(crate) fn watch(&self) -> ReplicatorStatus {
        ReplicatorStatus(Arc::clone(&self.shared))
    }
}

impl Drop for Replicator {
    fn drop(&mut self) {
        self.tell(ReplicatorCommand::Stop);
        self.waker.wake();
    }
}

impl ReplicatorThread {
    /// How it shows that it does not hang.
    pub(crate) fn turns(&self) -> ProgressCounter {
        self.turns.clone()
    }

    /// Runs until its host is gone, waking that by its door when there is news.
    pub(crate) fn run(mut self, door: &HostSender) {
        loop {
            self.turns.turn();
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    ReplicatorCommand::Send(to, batch) => {
                        if let Some(peer) = self.peers.get_mut(&to) {
                            peer.unkept.push_back(batch);
                            peer.since.get_or_insert_with(Instant::now);
                        }
                    }
                    ReplicatorCommand::Peers(peers, epoch) => self.update_peers(peers, epoch),
                    ReplicatorCommand::Stop => return,
                }
            }
            if self.knocked {
                self.accept();
            }
            self.send();
            let news = self.receive_acks();
            self.look_at_replicas();
            self.receive_copies();
            if news || self.shared.handed.load(Ordering::Relaxed) || self.shared.has_said.load(Ordering::Relaxed) {
                door.wake();
            }
            if let Err(error) = self.sleep() {
                return tracing::error!(%error, "the connections between hosts are not heard any more");
            }
        }
    }

    fn update_peers(&mut self, peers: Vec<(HostId, SocketAddr)>, epoch: u64) {
        self.epoch = epoch;
        // Numbers are given once: who is gone is not late.
        self.shared.unreached.iter().for_each(|unreached| unreached.store(false, Ordering::Relaxed));
        self.peers.retain(|host, _| peers.iter().any(|(other, _)| other == host));
        for (host, address) in peers {
            let new = || Peer {
                address,
                stream: None,
                unkept: VecDeque::new(),
                given: 0,
                again: Instant::now(),
                since: None,
            };
            let peer = self.peers.entry(host).or_insert_with(new);
            if let Some(stream) = &mut peer.stream {
                stream.put(&ToReplica::Hello { host: self.own, epoch });
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, peer)) = self.listener.accept() {
            if self.incoming.len() >= INCOMING {
                tracing::warn!(%peer, "too many connections of other hosts");
                continue;
            }
            match Stream::accepted(socket, &self.security, Role::Peer, &[Role::Peer]) {
                Ok(stream) => self.incoming.push(OwnerConnection { stream, from: None, since: Instant::now() }),
                Err(error) => tracing::warn!(%peer, %error, "a connection of another host"),
            }
        }
    }

    /// Connects where there is no connection, and sends what there is.
    fn send(&mut self) {
        let (own, epoch) = (self.own, self.epoch);
        for (host, peer) in &mut self.peers {
            if peer.stream.is_none() && Instant::now() >= peer.again {
                peer.again = Instant::now() + AGAIN;
                peer.given = 0;
                match Stream::connect(peer.address, &self.security, Role::Peer, &[Role::Peer]) {
                    Ok(mut stream) => {
                        stream.put(&ToReplica::Hello { host: own, epoch });
                        peer.stream = Some(stream);
                    }
                    Err(error) => tracing::debug!(host = host.0, %error, "no connection to another host"),
                }
            }
            let Some(stream) = &mut peer.stream else { continue };
            while peer.given < peer.unkept.len() && stream.unsent() < UNSENT {
                stream.frames(&peer.unkept[peer.given].frames);
                peer.given += 1;
            }
            if let Err(error) = stream.flush() {
                peer.lose(*host, &error);
            }
        }
    }

    /// Hears which copies others have. Whether there is something new.
    fn receive_acks(&mut self) -> bool {
        let mut news = false;
        for (host, peer) in &mut self.peers {
            let mut heard = PeerAcks::default();
            let result = peer.hear(*host, &self.shared, &mut heard);
            if let Some(number) = heard.kept {
                if let Some(kept) = self.shared.kept.get(host.index()) {
                    // Numbers of copies and of hosts are given once, and what a host has it keeps as long as it is in the map. Of what
                    // is sent again by another connection it says first that it has what it had before, and had said more.
                    kept.fetch_max(number, Ordering::AcqRel);
                }
                news = true;
            }
            if let Some(epoch) = heard.fenced {
                tracing::error!(host = host.0, epoch, "others have taken this host's UEs over: its epoch is over");
                self.shared.fenced.store(true, Ordering::Relaxed);
            }
            if let Err(error) = result {
                peer.lose(*host, &error);
            }
        }
        news
    }

    /// Which hosts have said nothing for too long of copies that they were sent.
    fn look_at_replicas(&self) {
        for (host, peer) in &self.peers {
            if let Some(unreached) = self.shared.unreached.get(host.index()) {
                let is_late = peer.since.is_some_and(|since| since.elapsed() >= self.patience);
                unreached.store(is_late, Ordering::Relaxed);
            }
        }
    }

    /// Keeps others' copies.
    fn receive_copies(&mut self) {
        let (shared, metrics) = (&self.shared, &self.metrics);
        self.incoming.retain_mut(|incoming| match incoming.hear(shared, metrics) {
            Ok(()) => incoming.from.is_some() || incoming.since.elapsed() < PATIENCE,
            Err(error) => {
                tracing::debug!(from = ?incoming.from, %error, "a connection of another host ended");
                false
            }
        });
    }

    fn sleep(&mut self) -> rustix::io::Result<()> {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let wait = if self.orders.is_empty() { AGAIN } else { Duration::ZERO };
        let interest = |stream: &Stream| match stream.wants_room() {
            false => PollFlags::IN,
            true => PollFlags::IN | PollFlags::OUT,
        };
        let mut fds: SmallVec<[PollFd<'_>; 16]> =
            smallvec![PollFd::new(&self.waker, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        let outgoing = self.peers.values().filter_map(|peer| peer.stream.as_ref());
        let streams = outgoing.chain(self.incoming.iter().map(|incoming| &incoming.stream));
        fds.extend(streams.map(|stream| PollFd::from_borrowed_fd(stream.fd(), interest(stream))));
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
        let waited = match poll(&mut fds, Some(&wait)) {
            Err(rustix::io::Errno::INTR) => Ok(0),
            other => other,
        };
        self.shared.sleeping.store(false, Ordering::SeqCst);
        let ready: SmallVec<[bool; 16]> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            self.waker.clear();
        }
        self.knocked = ready.next() == Some(true);
        let outgoing = self.peers.values_mut().filter_map(|peer| peer.stream.as_mut());
        for stream in outgoing.chain(self.incoming.iter_mut().map(|incoming| &mut incoming.stream)) {
            stream.tell_readable(ready.next() == Some(true));
        }
        waited.map(|_| ())
    }
}

/// What a host that keeps copies has said: up to which number it has them, or that this one's epoch is over.
#[derive(Debug, Default)]
struct PeerAcks {
    kept: Option<u64>,
    fenced: Option<u64>,
}

impl Peer {
    /// What it has said, until the connection is lost or there is no more.
    fn hear(&mut self, host: HostId, shared: &Shared, heard: &mut PeerAcks) -> Result<(), FrameError> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let read = stream.fill();
        while let Some(octets) = stream.frame()? {
            match frame::decode(octets)? {
                ToOwner::CopyAck { number } => {
                    while self.unkept.front().is_some_and(|batch| batch.last <= number) {
                        self.unkept.pop_front();
                        self.given = self.given.saturating_sub(1);
                    }
                    self.since = (!self.unkept.is_empty()).then(Instant::now);
                    heard.kept = Some(number);
                }
                ToOwner::Fenced { epoch } => heard.fenced = Some(epoch),
                // It has said so before it says to have the question: a connection that is lost brings it again.
                ToOwner::ReconcileReply { number, ues } => {
                    shared.says(PeerMessage::Others { from: host, number, ues })?
                }
            }
        }
        read.map(|_| ())
    }

    fn lose(&mut self, host: HostId, why: &FrameError) {
        tracing::debug!(host = host.0, %why, "a connection to another host is lost");
        self.stream = None;
        self.given = 0;
    }
}

/// Up to which number another host has been heard, and what it is answered.
type Answered = (Option<u64>, Option<ToOwner>);

/// Does what another host says of its copies, unless its epoch is over.
fn take(
    message: ToReplica<'_>,
    from: (HostId, u64),
    shadows: &mut ReplicaStore,
    shared: &Shared,
) -> Result<Result<Answered, Fenced>, FrameError> {
    let heard = |number: u64| (Some(number), None);
    Ok(match message {
        // Its connection keeps that.
        ToReplica::Hello { .. } => Ok((None, None)),
        ToReplica::Copy(copy) => shadows.apply(from, &copy, clock()).map(|of| {
            if of == ApplyResult::MissingBase {
                tracing::error!(ltmsi = %copy.ltmsi, "a copy builds on none: please report it");
            }
            heard(copy.number)
        }),
        ToReplica::BucketHandoff { number, epoch } => shadows.on_handoff(from, number, epoch).map(|awaited| {
            shared.handed.fetch_or(awaited, Ordering::Release);
            heard(number)
        }),
        ToReplica::ReconcileRequest { number, buckets } => {
            let others = shadows.foreign_entries(from, number, &buckets);
            others.map(|ues| (Some(number), Some(ToOwner::ReconcileReply { number, ues })))
        }
        ToReplica::ReconcileRemove { number, ues } => {
            shadows.remove_orphans(from, number, &ues).map(|()| heard(number))
        }
        ToReplica::EffectWatermark { number, until } => shadows.left(from, number, until).map(|()| heard(number)),
        ToReplica::AddressAuditRequest { number, epoch } => match shadows.check_sequence(from, number) {
            Ok(first) => {
                if first {
                    shared.says(PeerMessage::Asks { from: from.0, epoch })?;
                }
                Ok(heard(number))
            }
            Err(error) => Err(error),
        },
        ToReplica::AddressAuditReply { number, epoch, table, numbers, last } => {
            match shadows.check_sequence(from, number) {
                Ok(first) => {
                    if first {
                        shared.says(PeerMessage::Has { from: from.0, epoch, table, numbers, last })?;
                    }
                    Ok(heard(number))
                }
                Err(error) => Err(error),
            }
        }
    })
}

impl OwnerConnection {
    fn hear(&mut self, shared: &Shared, metrics: &Metrics) -> Result<(), FrameError> {
        let mut kept = None;
        let mut count = 0;
        for _ in 0..PIECES {
            let read = self.stream.fill();
            let mut shadows = None;
            let mut fenced = None;
            while let Some(octets) = self.stream.frame()? {
                let message = frame::decode(octets)?;
                if let ToReplica::Hello { host, epoch } = message {
                    self.from = Some((host, epoch));
                    continue;
                }
                let from = self.from.ok_or(FrameError::Message)?;
                count += u64::from(matches!(message, ToReplica::Copy(_)));
                match take(message, from, shadows.get_or_insert_with(|| shared.shadows()), shared)? {
                    Ok((number, answer)) => {
                        kept = number.or(kept);
                        if let Some(answer) = answer {
                            self.stream.put(&answer);
                        }
                    }
                    Err(error) => fenced = Some(error),
                }
            }
            drop(shadows);
            if let Some(error) = fenced {
                self.stream.put(&ToOwner::Fenced { epoch: error.epoch });
            }
            if read? == 0 {
                break;
            }
        }
        if let Some(number) = kept {
            // Once for all that came.
            self.stream.put(&ToOwner::CopyAck { number });
            metrics.messages(Flow::CopiesIn, count);
        }
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
