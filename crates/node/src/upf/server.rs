//! What is around the state machine: a thread with a socket, a clock, the datapath and its events; and the way in for a
//! control plane of the same process.

use super::config::UpfConfig;
use super::direct::{InProcessN4, UpfShared};
use super::exchange::Outgoing;
use super::metrics::UpfMetrics;
use super::persistence::{self, PersistenceBackend, TransactionContext};
use super::rebalance::Rebalance;
use super::slice_queues::SliceQueues;
use super::state::{PfcpStats, Settings, TablesAccess, Timestamps, Upf};
use crate::api::{MoveError, MoveRequest, MoveResult, SlicesStatus};
use crate::database::DatabaseError;
use crate::metrics::Metrics;
use crate::state::DurableRecords;
use crossbeam_channel::{Receiver, bounded};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{debug, info, warn};
use vireo_datapath::poll::{Poller, Waker};
use vireo_datapath::{
    Event, FlowPackets, FlowSessions, Limits, ProcessSpawner, Sockets, SocketsConfig, StartError, Stats, StatsHandle,
    TakeoverStats, Use,
};
use vireo_n4::udp::{DatagramReceiver, DatagramSender};
use vireo_n4::ue_peers::UePeers;

/// Events that may wait for the N4 thread; more are told again by their next packet.
const EVENTS: usize = 16_384;
/// Of them, so many are handled in one go.
const EVENTS_AT_ONCE: usize = 128;
/// Batches of PFCP messages that are handled before the events get their turn.
const BATCHES: usize = 8;
/// Batches that are taken in before slices get their turns, and how many turns they get then.
const TAKEN: usize = 16;
const TURNS: usize = 16;
/// How often buffers and usage are looked through.
const UPKEEP: Duration = Duration::from_secs(1);

/// Why a UPF does not start. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum UpfError {
    /// Another process has the port.
    #[error("UDP port {} of {} is in use: end the other UPF or choose another N4 address", .0.port(), .0.ip())]
    N4InUse(SocketAddr),
    /// The address belongs to another machine.
    #[error("the N4 address {0} is not an address of this machine: see `ip address`, then correct the configuration")]
    N4NotLocal(IpAddr),
    /// All addresses is no address.
    #[error("the N4 address must be one address of this machine, not {0}: control planes are told it")]
    N4Unspecified(IpAddr),
    /// Two data networks share addresses.
    #[error("the pools {0} and {1} overlap: give each data network addresses of its own")]
    Overlap(String, String),
    /// Anything else about the socket.
    #[error("cannot open the N4 socket at {address}: {source}")]
    N4 {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The datapath.
    #[error(transparent)]
    Datapath(#[from] StartError),
    /// The records of sessions.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Threads or descriptors ran out.
    #[error("cannot start the UPF: {0}")]
    Io(#[from] io::Error),
}

/// What a UPF has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpfStats {
    /// Associations with control planes now.
    pub associations: usize,
    /// Sessions now.
    pub sessions: usize,
    /// Octets in buffers now.
    pub buffered_octets: usize,
    /// Packets.
    pub packets: Stats,
    /// Sessions with more rules than a record holds.
    pub flow_sessions: FlowSessions,
    /// Their packets, where a program in the kernel sees them.
    pub flow_packets: FlowPackets,
    /// PFCP.
    pub pfcp: PfcpStats,
    /// Data workers that were processes of their own, and died.
    pub takeovers: TakeoverStats,
    /// Addresses of RAN nodes and of other UPFs that are known.
    pub ran_addresses: usize,
}

/// A running UPF; it ends when this is dropped.
#[derive(Debug)]
pub struct UpfHandle {
    n4: SocketAddr,
    served: Arc<UpfShared>,
    datapath: StatsHandle,
    shared: Arc<Mutex<Shared>>,
    /// Whether sessions have routes in the kernel.
    host_routes: bool,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

/// What the N4 thread and the handle share.
#[derive(Debug, Default)]
struct Shared {
    associations: usize,
    sessions: usize,
    pfcp: PfcpStats,
    metrics: Option<UpfMetrics>,
}

impl Shared {
    fn stats(&self, datapath: &StatsHandle) -> UpfStats {
        let (buffered_octets, flow_sessions, ran_addresses) =
            datapath.look(|tables| (tables.buffered_octets(), tables.flow_sessions(), tables.known_nodes()));
        let Shared { associations, sessions, pfcp, .. } = *self;
        let (packets, flow_packets) = (datapath.stats(), datapath.flow_packets());
        let takeovers = datapath.takeovers();
        UpfStats {
            associations,
            sessions,
            buffered_octets,
            packets,
            flow_sessions,
            flow_packets,
            pfcp,
            takeovers,
            ran_addresses,
        }
    }
}

impl UpfHandle {
    /// What was counted so far.
    pub fn stats(&self) -> UpfStats {
        self.shared().stats(&self.datapath)
    }

    /// Sets these metrics once a second from now on.
    pub fn publish(&self, metrics: UpfMetrics) {
        self.shared().metrics = Some(metrics);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a part of it has ended by itself; the log says why.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The way in for a control plane of this process; `None` with routes in the kernel for each UE: these need a privilege that
    /// the thread of the control plane does not have, and this UPF's thread has.
    pub fn direct(&self) -> Option<InProcessN4> {
        (!self.host_routes).then(|| InProcessN4::new(self.n4, Arc::clone(&self.served)))
    }

    /// The slices and their workers; with what the users' records have counted, if `counts` are wanted.
    pub fn slices(&self, counts: bool) -> SlicesStatus {
        super::slices::status(&self.datapath, counts, |look| look(&self.served.upf()))
    }

    /// Moves users to another slice. Their packets are not stopped for it.
    pub fn move_users(&self, order: &MoveRequest) -> Result<MoveResult, MoveError> {
        super::slices::move_users(order, |act| act(&mut self.served.upf(), &mut self.served.plane()))
    }

    /// Takes the lists of a configuration that was read again: control planes (those that are associated and not listed are not
    /// heard any more), addresses that UEs may and may not send to, and those that G-PDUs may come from.
    pub fn reload(&self, config: UpfConfig) {
        self.served.upf().set_control_planes(config.associations.control_planes);
        self.served.plane().change(|tables, _| tables.set_access(config.access));
    }

    /// A RAN node has an association with the core from this address, or has none any more: no UE may send there, and its
    /// G-PDUs are accepted.
    pub fn set_node(&self, address: IpAddr, there: bool) {
        self.served.plane().change(|tables, _| tables.set_peer(address, Use::Node, there));
    }

    /// Where it listens for PFCP.
    pub fn n4(&self) -> SocketAddr {
        self.n4
    }

    /// Ends it: threads, sockets, TUN device and address translation are gone when this returns.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for UpfHandle {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            // one that panicked has said so already
            let _ = thread.join();
        }
    }
}

/// Starts a UPF.
pub fn start(config: UpfConfig) -> Result<UpfHandle, UpfError> {
    start_over(config, None)
}

/// Starts a UPF whose sessions are in records that outlive it: it goes on with those that the one before at this address has left there.
pub fn start_stored(config: UpfConfig, records: &DurableRecords, metrics: Arc<Metrics>) -> Result<UpfHandle, UpfError> {
    let begun = persistence::begin(records, (config.n4.ip(), config.max_sessions), super::direct::ntp_now())?;
    start_over(config, Some((begun, metrics)))
}

fn start_over(
    config: UpfConfig,
    begun: Option<(persistence::OpenedStore, Arc<Metrics>)>,
) -> Result<UpfHandle, UpfError> {
    check_pools(&config)?;
    let (n4, host_routes) = (config.n4, config.host_routes);
    if n4.ip().is_unspecified() {
        return Err(UpfError::N4Unspecified(n4.ip()));
    }
    let socket = vireo_n4::udp::bind(n4).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => UpfError::N4InUse(n4),
        io::ErrorKind::AddrNotAvailable => UpfError::N4NotLocal(n4.ip()),
        _ => UpfError::N4 { address: n4, source },
    })?;
    let n4 = socket.local_addr()?;
    let (events_in, events) = bounded(EVENTS);
    let (stop, wake) = (Waker::new()?, Waker::new()?);
    let poller = Poller::new()?;
    poller.add(socket.as_fd(), SOCKET)?;
    poller.add(wake.as_fd(), EVENT)?;
    poller.add(stop.as_fd(), STOP)?;
    let sink_wake = wake.clone();
    let sink = move |event: Event| {
        let taken = events_in.try_send(event).is_ok();
        sink_wake.wake();
        taken
    };
    let mut datapath = datapath_config(&config);
    datapath.limits.restoring = begun.is_some();
    let datapath = Sockets::start(datapath, Arc::new(sink))?;
    let settings = Settings {
        address: n4.ip(),
        n3: config.told(),
        max_sessions: config.max_sessions,
        pools: config.pools.clone(),
        slices: config.slices.clone(),
        lean: config.lean.clone(),
        response_time: config.response_time.into(),
        attempts: config.attempts,
        path_check: config.path_check.map(Into::into),
        associations: config.associations.clone(),
        started: super::direct::ntp_now(),
        seed: rand::random(),
        record_octets: begun.as_ref().and_then(|(begun, _)| begun.record_octets()),
        room: begun.as_ref().and_then(|(begun, _)| begun.room()),
    };
    if config.associations.is_open_at(n4.ip()) {
        warn!(%n4, "any control plane may use this UPF; list those that may in upf.control-planes");
    }
    info!("UPF: N4 {n4}, N3 {:?}, N6 {}", config.n3, config.tun);
    let (shared, view) = (Arc::default(), datapath.view());
    let served = Arc::new(UpfShared::new(Upf::new(settings), socket, &datapath, wake.clone()));
    let keeper = begun.map(|(begun, metrics)| {
        let mut on = TransactionContext {
            upf: &mut served.upf(),
            now: served.now(),
            plane: &mut served.plane(),
            out: &mut Outgoing::new(),
        };
        PersistenceBackend::start(begun, metrics, (wake.clone(), served.clock()), &mut on)
    });
    let keeper = keeper.transpose()?;
    let server = Server {
        served: Arc::clone(&served),
        keeper,
        inbox: DatagramReceiver::new(),
        outbox: DatagramSender::default(),
        poller,
        wake,
        events,
        datapath,
        view: view.clone(),
        shared: Arc::clone(&shared),
        turns: SliceQueues::default(),
        by_turns: config.slices.len() > 1,
        rebalance: config.rebalance.then(Rebalance::default),
        // the tables know the pools
        ue_peers: UePeers::of("n4", vec![]),
    };
    let thread = std::thread::Builder::new().name("upf-n4".to_owned()).spawn(move || server.run())?;
    Ok(UpfHandle { n4, served, datapath: view, shared, host_routes, stop, thread: Some(thread) })
}

fn datapath_config(config: &UpfConfig) -> SocketsConfig {
    let pools = config.pools.iter().map(|pool| vireo_datapath::Pool {
        ipv4: pool.ipv4,
        ipv6: pool.ipv6,
        mtu: pool.mtu,
        dns: pool.dns.clone(),
        isolated: pool.isolated,
    });
    // what is behind UEs reaches them as their own addresses do
    let mtu = config.pools.iter().map(|pool| pool.mtu).max().unwrap_or(1400);
    // nothing says whose data network they are of: where one keeps its UEs apart, they are kept apart too
    let isolated = config.pools.iter().any(|pool| pool.isolated);
    let framed = config.framed.iter().map(|(network, length)| {
        let (mut ipv4, mut ipv6) = (None, None);
        match network {
            IpAddr::V4(network) => ipv4 = Some((*network, *length)),
            IpAddr::V6(network) => ipv6 = Some((*network, *length)),
        }
        vireo_datapath::Pool { ipv4, ipv6, mtu, dns: vec![], isolated }
    });
    SocketsConfig {
        n3: config.n3.clone(),
        tun: config.tun.clone(),
        pools: pools.chain(framed).collect(),
        limits: Limits {
            records: config.max_sessions.saturating_mul(2),
            buffer: config.buffer,
            modules: config.modules().len().max(1),
            locking: config.locking,
            hot_users: if config.xdp.is_some() { 0 } else { config.hot_users },
            own_peer_only: config.own_peer_only,
            restoring: false,
        },
        workers: config.workers,
        nat: config.nat,
        access: config.access.clone(),
        host_routes: config.host_routes,
        xdp: config.xdp.clone(),
        frames: config.frames.clone(),
        slices: config.slices.iter().map(|slice| slice.workers.clone()).collect(),
        processes: config.processes.clone().map(|program| Arc::new(program) as Arc<dyn ProcessSpawner>),
    }
}

fn check_pools(config: &UpfConfig) -> Result<(), UpfError> {
    // addresses of either family as numbers of 128 bits, with the length of what must differ
    let networks: Vec<(IpAddr, u8)> = config
        .pools
        .iter()
        .flat_map(|pool| {
            let v4 = pool.ipv4.map(|(network, length)| (IpAddr::V4(network), length));
            v4.into_iter().chain(pool.ipv6.map(|(network, length)| (IpAddr::V6(network), length)))
        })
        .chain(config.framed.iter().copied())
        .collect();
    for (n, (a, a_length)) in networks.iter().enumerate() {
        for (b, b_length) in &networks[n + 1..] {
            let length = u32::from(*a_length.min(b_length));
            let differ = match (a, b) {
                (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
                (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
                _ => continue,
            };
            if differ.leading_zeros() >= length {
                return Err(UpfError::Overlap(format!("{a}/{a_length}"), format!("{b}/{b_length}")));
            }
        }
    }
    Ok(())
}

const SOCKET: u64 = 0;
const EVENT: u64 = 1;
const STOP: u64 = 2;

struct Server {
    served: Arc<UpfShared>,
    /// With it, sessions are in records that outlive the UPF.
    keeper: Option<PersistenceBackend>,
    inbox: DatagramReceiver,
    outbox: DatagramSender,
    poller: Poller,
    wake: Waker,
    events: Receiver<Event>,
    /// Owned by this thread, so that what it set up goes from the network namespace where it is.
    datapath: Sockets,
    view: StatsHandle,
    shared: Arc<Mutex<Shared>>,
    /// What waits for its turn.
    turns: SliceQueues,
    /// Whether there are slices, which take turns.
    by_turns: bool,
    rebalance: Option<Rebalance>,
    /// Senders of PFCP messages that have addresses of UEs.
    ue_peers: UePeers,
}

impl Server {
    /// Runs until it is told to stop.
    fn run(mut self) {
        let (mut unsent, mut behind) = (0, false);
        let mut looked = std::time::Instant::now();
        let mut out = Outgoing::new();
        let mut upkeep = self.served.now().instant + UPKEEP.into();
        // whoever waits for an answer is not to wait for packets to be done
        if let Err(error) = vireo_datapath::take_short_turns() {
            debug!("the N4 thread takes turns of the usual length: {error}");
        }
        loop {
            let next = self.served.deadline().map_or(upkeep, |deadline| deadline.min(upkeep));
            let wait = if behind { Duration::ZERO.into() } else { next.since(self.served.now().instant) };
            let (mut received, mut stop) = (false, false);
            let waited = self.poller.wait(Some(wait.into()), |token| match token {
                SOCKET => received = true,
                STOP => stop = true,
                _ => {}
            });
            if let Err(error) = waited {
                tracing::error!("the UPF's N4 thread ends: {error}");
                return;
            }
            if stop {
                return;
            }
            if received || !self.turns.is_empty() {
                self.receive(&mut out);
            }
            self.wake.clear();
            let now = self.served.now();
            let second = now.instant >= upkeep;
            if second && self.datapath.has_failed() {
                tracing::error!("the UPF ends, because a packet thread has");
                return;
            }
            if second {
                self.datapath.upkeep();
            }
            if second {
                upkeep = now.instant + UPKEEP.into();
                let before = std::mem::replace(&mut unsent, self.outbox.unsent());
                if unsent > before {
                    debug!("{} PFCP messages could not be sent", unsent - before);
                }
            }
            // a control plane may wait for it: not too much of anything in one go
            let mut upf = self.served.upf();
            let more = act(&mut upf, &mut self.keeper, &self.events, (second, now), &mut self.served.plane(), &mut out);
            behind = more || upf.is_behind() || !self.events.is_empty() || !self.turns.is_empty();
            let (associations, sessions, pfcp) = (upf.associations(), upf.sessions(), upf.stats);
            drop(upf);
            self.send(&mut out);
            if second {
                let span = std::mem::replace(&mut looked, std::time::Instant::now()).elapsed();
                let Server { served, view, rebalance, .. } = &mut self;
                if let Some(rebalance) = rebalance {
                    rebalance.look(&view.loads(), span.as_secs_f64(), |act| {
                        act(&mut served.upf(), &mut served.plane());
                    });
                }
            }
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            (shared.associations, shared.sessions, shared.pfcp) = (associations, sessions, pfcp);
            if second && let Some(metrics) = &shared.metrics {
                metrics.set(&shared.stats(&self.view));
            }
        }
    }

    fn receive(&mut self, out: &mut Outgoing) {
        match self.by_turns {
            true => self.receive_by_turns(out),
            false => self.receive_in_order(out),
        }
    }

    /// Takes what there is and lets the slices take turns, some at a time, so that whoever asks meanwhile gets its turn.
    fn receive_by_turns(&mut self, out: &mut Outgoing) {
        for _ in 0..BATCHES {
            for _ in 0..TAKEN {
                let count = match self.inbox.receive(&self.served.socket) {
                    Ok(count) => count,
                    Err(error) => {
                        debug!("N4: {error}");
                        break;
                    }
                };
                let (mut upf, now, mut plane) = (self.served.upf(), self.served.now(), self.served.plane());
                let mut ues = vec![];
                for (from, datagram) in self.inbox.datagrams(count) {
                    match self.view.look(|tables| tables.is_of_a_ue(from.ip())) {
                        true => ues.push(from.ip()),
                        false if !upf.admits(from.ip()) => upf.receive(from, datagram, now, &mut plane, out),
                        false if self.turns.push(&upf, from, datagram) => {}
                        false => debug!("a slice has too many requests: one from {from} has to come again"),
                    }
                }
                upf.stats.from_ues += ues.len() as u64;
                drop(upf);
                ues.last().into_iter().for_each(|ue| self.ue_peers.log(*ue, ues.len() as u64));
                if count < DatagramReceiver::BATCH {
                    break;
                }
            }
            for _ in 0..TURNS {
                let Some((from, datagram)) = self.turns.pop() else { break };
                receive(&self.served, &mut self.keeper, from, &datagram, out);
            }
            self.send(out);
            if self.turns.is_empty() {
                return;
            }
        }
    }

    fn receive_in_order(&mut self, out: &mut Outgoing) {
        for _ in 0..BATCHES {
            let count = match self.inbox.receive(&self.served.socket) {
                Ok(count) => count,
                // the ICMP error of an earlier datagram: its peer is gone, the others are not
                Err(error) => return debug!("N4: {error}"),
            };
            for (from, datagram) in self.inbox.datagrams(count) {
                // a UE reaches the address through its tunnel, and is no control plane
                if self.view.look(|tables| tables.is_of_a_ue(from.ip())) {
                    self.served.upf().stats.from_ues += 1;
                    self.ue_peers.log(from.ip(), 1);
                    continue;
                }
                receive(&self.served, &mut self.keeper, from, datagram, out);
            }
            self.send(out);
            if count < DatagramReceiver::BATCH {
                return;
            }
        }
    }

    fn send(&mut self, out: &mut Outgoing) {
        out.drain(..).for_each(|(to, datagram)| self.outbox.push(&self.served.socket, to, &datagram));
        self.outbox.flush(&self.served.socket);
    }
}

/// A datagram of a control plane.
fn receive(
    served: &UpfShared,
    keeper: &mut Option<PersistenceBackend>,
    from: SocketAddr,
    datagram: &[u8],
    out: &mut Outgoing,
) {
    match keeper {
        None => {
            served.receive(from, datagram, out);
        }
        Some(keeper) => {
            let mut on =
                TransactionContext { upf: &mut served.upf(), now: served.now(), plane: &mut served.plane(), out };
            keeper.stored.receive(&mut on, from, datagram);
            keeper.ask(&mut on);
        }
    }
}

/// What besides control planes makes the UPF do something: packets, time, the database. Whether there is more of the last.
fn act<P: TablesAccess>(
    upf: &mut Upf,
    keeper: &mut Option<PersistenceBackend>,
    events: &Receiver<Event>,
    (second, now): (bool, Timestamps),
    plane: &mut P,
    out: &mut Outgoing,
) -> bool {
    let events = events.try_iter().take(EVENTS_AT_ONCE);
    let Some(keeper) = keeper else {
        events.for_each(|event| upf.event(event, now, plane, out));
        upf.tick(now, out);
        upf.upkeep(second, now, plane, out);
        return false;
    };
    let (on, stored) = (&mut TransactionContext { upf, now, plane, out }, &mut keeper.stored);
    events.for_each(|event| stored.act(on, |upf, now, plane, out| upf.event(event, now, plane, out)));
    stored.tick(on);
    stored.act(on, |upf, now, plane, out| upf.upkeep(second, now, plane, out));
    if second {
        keeper.on_time(on);
    }
    keeper.turn(on)
}
