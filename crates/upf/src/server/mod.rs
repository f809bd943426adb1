//! Thread and handle of the UPF.
//!
//! The thread connects socket, clock, datapath and events to the state machine.
//!
//! The handle also gives a control plane of the same process access.

pub(crate) mod direct;
mod metrics;
pub(crate) mod rebalance;
pub(crate) mod slice_queues;
pub(crate) mod standalone;

use crate::config::UpfConfig;
use crate::machine::exchange::Outgoing;
use crate::machine::settings::{Settings, Timestamps};
use crate::machine::tables_access::TablesAccess;
use crate::machine::{PfcpStats, Upf, user_migration};
use crate::persistence::{self, PersistenceBackend, TransactionContext};
use crossbeam_channel::{Receiver, bounded};
use direct::{InProcessN4, UpfShared};
use metrics::UpfMetrics;
use rebalance::Rebalance;
use slice_queues::SliceQueues;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{debug, info, warn};
use vireo_datapath::{
    Event, FlowPackets, FlowSessions, Limits, Poller, ProcessSpawner, StartError, Stats, StatsHandle, TakeoverStats,
    Use, UserPlane, UserPlaneConfig, Waker,
};
use vireo_n4::udp::{DatagramReceiver, DatagramSender};
use vireo_n4::ue_peers::UePeers;
use vireo_ops::api::{MoveError, MoveRequest, MoveResult, SlicesStatus};
use vireo_ops::database::DatabaseError;
use vireo_ops::metrics::Metrics;
use vireo_ops::state::DurableRecords;

/// Maximum number of queued events for the N4 thread. A lost event is raised again by its next
/// packet.
const MAX_QUEUED_EVENTS: usize = 16_384;
/// Maximum number of events per iteration.
const EVENTS_AT_ONCE: usize = 128;
/// Maximum number of batches of PFCP messages before events are handled.
const BATCHES: usize = 8;
/// Number of batches that are received before slices are served, and number of requests served
/// then.
const MAX_BATCHES_PER_TURN: usize = 16;
const TURNS: usize = 16;
/// Interval of scans of buffers and usage.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// A reason that prevents the start of a UPF.
#[derive(Debug, thiserror::Error)]
pub enum UpfError {
    /// Another process has bound the port.
    #[error("UDP port {} of {} is in use: end the other UPF or choose another N4 address", .0.port(), .0.ip())]
    N4InUse(SocketAddr),
    #[error("the N4 address {0} is not an address of this machine: see `ip address`, then correct the configuration")]
    N4NotLocal(IpAddr),
    /// The unspecified address is not permitted, because the UPF sends its address to control
    /// planes.
    #[error("the N4 address must be one address of this machine, not {0}; control planes send to it")]
    N4Unspecified(IpAddr),
    #[error("the pools {0} and {1} overlap: give each data network addresses of its own")]
    Overlap(String, String),
    /// Any other error of the socket.
    #[error("cannot open the N4 socket at {address}: {source}")]
    N4 {
        address: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    #[error(transparent)]
    Datapath(#[from] StartError),
    /// The stored sessions cannot be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Threads or file descriptors are exhausted.
    #[error("cannot start the UPF: {0}")]
    Io(#[from] io::Error),
}

/// Statistics of a UPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpfStats {
    /// Current number of associations with control planes.
    pub associations: usize,
    /// Current number of sessions.
    pub sessions: usize,
    /// Current size of all buffered packets in bytes.
    pub buffered_octets: usize,
    pub packets: Stats,
    /// Sessions with flow rules.
    pub flow_sessions: FlowSessions,
    /// Packets of these sessions at the kernel's XDP program, if there is one.
    pub flow_packets: FlowPackets,
    pub pfcp: PfcpStats,
    /// Deaths of data worker processes.
    pub takeovers: TakeoverStats,
    /// Number of known addresses of RAN nodes and other UPFs.
    pub ran_addresses: usize,
}

/// A running UPF. Dropping the handle stops it.
#[derive(Debug)]
pub struct UpfHandle {
    n4: SocketAddr,
    served: Arc<UpfShared>,
    datapath: StatsHandle,
    shared: Arc<Mutex<Shared>>,
    /// True if sessions have routes in the kernel.
    host_routes: bool,
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the N4 thread and the handle.
#[derive(Debug, Default)]
struct Shared {
    associations: usize,
    sessions: usize,
    pfcp: PfcpStats,
    /// Iterations of the N4 thread.
    iterations: u64,
    metrics: Option<UpfMetrics>,
}

impl Shared {
    fn stats(&self, datapath: &StatsHandle) -> UpfStats {
        let (buffered_octets, flow_sessions, ran_addresses) =
            datapath.read(|tables| (tables.buffered_octets(), tables.flow_sessions(), tables.known_nodes()));
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
    /// Returns the statistics since the start.
    pub fn stats(&self) -> UpfStats {
        self.shared().stats(&self.datapath)
    }

    /// Registers the metrics of the UPF, `vireo_upf_*`, and updates them once a second.
    pub fn publish(&self, metrics: &Metrics) {
        self.shared().metrics = Some(metrics.register(UpfMetrics::register));
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a thread of the UPF has ended by itself. The log contains the reason.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the number of iterations of the N4 thread: it grows at least once a second unless
    /// the thread hangs.
    pub fn progress(&self) -> u64 {
        self.shared().iterations
    }

    /// Returns access for a control plane of this process. Returns `None` with host routes: these
    /// need a privilege that this UPF's thread has and the control plane's thread lacks.
    pub fn direct(&self) -> Option<InProcessN4> {
        (!self.host_routes).then(|| InProcessN4::new(self.n4, Arc::clone(&self.served)))
    }

    /// Returns the slices and their workers. With `counts` the result includes the volume of the
    /// users' entries.
    pub fn slices(&self, counts: bool) -> SlicesStatus {
        user_migration::status(&self.datapath, counts, |look| look(&self.served.upf()))
    }

    /// Migrates users to another slice or worker. Their packets are not interrupted.
    pub fn move_users(&self, order: &MoveRequest) -> Result<MoveResult, MoveError> {
        user_migration::move_users(order, |act| act(&mut self.served.upf(), &mut self.served.plane()))
    }

    /// Applies the lists of a reloaded configuration:
    ///
    /// - permitted control planes (the UPF drops messages of associated control planes that are not
    ///   listed),
    /// - addresses that UEs may and may not send to,
    /// - addresses from which G-PDUs are accepted.
    pub fn reload(&self, config: UpfConfig) {
        self.served.upf().set_control_planes(config.associations.control_planes);
        self.served.plane().change(|tables, _| tables.set_access(config.access));
    }

    /// Adds or removes a RAN node's address, from which it has an association with the core. UEs
    /// may not send to the address, and its G-PDUs are accepted.
    pub fn set_node(&self, address: IpAddr, there: bool) {
        self.served.plane().change(|tables, _| tables.set_peer(address, Use::Node, there));
    }

    /// Returns the PFCP address.
    pub fn n4(&self) -> SocketAddr {
        self.n4
    }

    /// Stops the UPF. When it returns, threads, sockets, TUN device and address translation are
    /// removed.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for UpfHandle {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            // a panic has been logged already
            let _ = thread.join();
        }
    }
}

/// Starts a UPF whose sessions end with it.
///
/// # Errors
///
/// Returns an error if the configuration is invalid, or the machine refuses a socket, a device or a
/// thread.
pub fn start(config: UpfConfig) -> Result<UpfHandle, UpfError> {
    start_over(config, None)
}

/// Starts a UPF whose sessions are stored in `records`. It restores the sessions of a previous UPF
/// at the same address.
///
/// # Errors
///
/// Returns an error as [`start`] does, or if the records cannot be read.
pub fn start_stored(config: UpfConfig, records: &DurableRecords, metrics: Arc<Metrics>) -> Result<UpfHandle, UpfError> {
    let begun = persistence::begin(records, (config.n4.ip(), config.max_sessions), direct::ntp_now())?;
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
    let (events_in, events) = bounded(MAX_QUEUED_EVENTS);
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
    let datapath = UserPlane::start(datapath, Arc::new(sink))?;
    let settings = Settings {
        address: n4.ip(),
        n3: config.n3_endpoints(),
        n3_addresses: config.n3_addresses(),
        max_sessions: config.max_sessions,
        pools: config.pools.clone(),
        framed: config.framed.clone(),
        slices: config.slices.clone(),
        lean: config.lean.clone(),
        response_time: config.response_time.into(),
        attempts: config.attempts,
        path_check: config.path_check.map(Into::into),
        associations: config.associations.clone(),
        started: direct::ntp_now(),
        seed: rand::random(),
        record_octets: begun.as_ref().and_then(|(begun, _)| begun.record_octets()),
        room: begun.as_ref().and_then(|(begun, _)| begun.room()),
    };
    if config.associations.is_open_at(n4.ip()) {
        warn!(%n4, "any control plane may use this UPF; list those that may in upf.control-planes");
    }
    if config.accepts_any_tunnel_end() {
        let n3 = config.n3_addresses();
        warn!(?n3, "RAN nodes may name any address as tunnel end; list their networks in upf.tunnel-ends");
    }
    info!("UPF: N4 {n4}, N3 {:?}, N6 {}", config.n3, config.tun);
    let (shared, view) = (Arc::default(), datapath.stats());
    let served = Arc::new(UpfShared::new(Upf::new(settings), socket, &datapath, wake.clone()));
    let persistence = begun.map(|(begun, metrics)| {
        let mut on = TransactionContext {
            upf: &mut served.upf(),
            now: served.now(),
            plane: &mut served.plane(),
            out: &mut Outgoing::new(),
        };
        PersistenceBackend::start(begun, metrics, (wake.clone(), served.clock()), &mut on)
    });
    let persistence = persistence.transpose()?;
    let server = Server {
        served: Arc::clone(&served),
        persistence,
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
        // the tables contain the pools
        ue_peers: UePeers::new("n4", vec![]),
    };
    let thread = std::thread::Builder::new().name("upf-n4".to_owned()).spawn(move || server.run())?;
    Ok(UpfHandle { n4, served, datapath: view, shared, host_routes, stop, thread: Some(thread) })
}

fn datapath_config(config: &UpfConfig) -> UserPlaneConfig {
    let pools = config.pools.iter().map(|pool| vireo_datapath::Pool {
        ipv4: pool.ipv4,
        ipv6: pool.ipv6,
        mtu: pool.mtu,
        dns: pool.dns.clone(),
        isolated: pool.isolated,
    });
    // framed networks have the largest MTU of all pools, because packets reach UEs in the same
    // tunnels
    let mtu = config.pools.iter().map(|pool| pool.mtu).max().unwrap_or(1400);
    // their data network is unknown, so one isolated pool isolates all of them
    let isolated = config.pools.iter().any(|pool| pool.isolated);
    let framed = config.framed.iter().map(|(network, length)| {
        let (mut ipv4, mut ipv6) = (None, None);
        match network {
            IpAddr::V4(network) => ipv4 = Some((*network, *length)),
            IpAddr::V6(network) => ipv6 = Some((*network, *length)),
        }
        vireo_datapath::Pool { ipv4, ipv6, mtu, dns: vec![], isolated }
    });
    UserPlaneConfig {
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
    // addresses of either family as 128-bit numbers, with the prefix length in which they must
    // differ
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
    /// If set, sessions are stored in records that outlive the UPF.
    persistence: Option<PersistenceBackend>,
    inbox: DatagramReceiver,
    outbox: DatagramSender,
    poller: Poller,
    wake: Waker,
    events: Receiver<Event>,
    /// Owned by this thread, so that cleanup runs in the network namespace where the set-up ran.
    datapath: UserPlane,
    view: StatsHandle,
    shared: Arc<Mutex<Shared>>,
    /// Queued requests, if there are several slices.
    turns: SliceQueues,
    /// True if there are several slices, which are served in turn.
    by_turns: bool,
    rebalance: Option<Rebalance>,
    /// Logs senders of PFCP messages with addresses of UEs.
    ue_peers: UePeers,
}

impl Server {
    /// Runs until the handle stops it.
    fn run(mut self) {
        let (mut unsent, mut behind) = (0, false);
        let mut looked = std::time::Instant::now();
        let mut out = Outgoing::new();
        let mut upkeep = self.served.now().instant + SCAN_INTERVAL.into();
        // a peer that waits for a response must not wait for the processing of packets
        if let Err(error) = vireo_datapath::request_short_time_slices() {
            debug!("N4 thread keeps its scheduler slice: {error}");
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
                tracing::error!("UPF ends: a packet thread ended");
                return;
            }
            if second {
                self.datapath.upkeep();
            }
            if second {
                upkeep = now.instant + SCAN_INTERVAL.into();
                let before = std::mem::replace(&mut unsent, self.outbox.unsent());
                if unsent > before {
                    debug!("{} PFCP messages could not be sent", unsent - before);
                }
            }
            // a control plane may wait for the lock: each iteration does a bounded amount of work
            let mut upf = self.served.upf();
            let more =
                act(&mut upf, &mut self.persistence, &self.events, (second, now), &mut self.served.plane(), &mut out);
            behind = more || upf.is_behind() || !self.events.is_empty() || !self.turns.is_empty();
            let (associations, sessions, pfcp) = (upf.associations(), upf.sessions(), upf.stats);
            drop(upf);
            self.send(&mut out);
            if second {
                let span = std::mem::replace(&mut looked, std::time::Instant::now()).elapsed();
                let Server { served, view, rebalance, .. } = &mut self;
                if let Some(rebalance) = rebalance {
                    rebalance.check(&view.loads(), span.as_secs_f64(), |act| {
                        act(&mut served.upf(), &mut served.plane());
                    });
                }
            }
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            (shared.associations, shared.sessions, shared.pfcp) = (associations, sessions, pfcp);
            shared.iterations = shared.iterations.wrapping_add(1);
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

    /// Receives datagrams into the queues and serves the slices in turn. It does a bounded amount
    /// at a time, so that other callers get the lock.
    fn receive_by_turns(&mut self, out: &mut Outgoing) {
        for _ in 0..BATCHES {
            for _ in 0..MAX_BATCHES_PER_TURN {
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
                    match self.view.read(|tables| tables.is_in_pools(from.ip())) {
                        true => ues.push(from.ip()),
                        false if !upf.admits(from.ip()) => upf.receive(from, datagram, now, &mut plane, out),
                        false if self.turns.push(&upf, from, datagram) => {}
                        false => debug!("too many requests for a slice; request of {from} dropped"),
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
                receive(&self.served, &mut self.persistence, from, &datagram, out);
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
                // ICMP error of an earlier datagram: its peer is gone, the others are not
                Err(error) => return debug!("N4: {error}"),
            };
            for (from, datagram) in self.inbox.datagrams(count) {
                // a UE reaches the address through its tunnel, and is not a control plane
                if self.view.read(|tables| tables.is_in_pools(from.ip())) {
                    self.served.upf().stats.from_ues += 1;
                    self.ue_peers.log(from.ip(), 1);
                    continue;
                }
                receive(&self.served, &mut self.persistence, from, datagram, out);
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

/// Processes a datagram of a control plane.
fn receive(
    served: &UpfShared,
    persistence: &mut Option<PersistenceBackend>,
    from: SocketAddr,
    datagram: &[u8],
    out: &mut Outgoing,
) {
    match persistence {
        None => {
            served.receive(from, datagram, true, out);
        }
        Some(persistence) => {
            let mut on =
                TransactionContext { upf: &mut served.upf(), now: served.now(), plane: &mut served.plane(), out };
            persistence.stored.receive(&mut on, from, datagram);
            persistence.submit(&mut on);
        }
    }
}

/// Processes events of the datapath, deadlines, and results of the database. Returns true if more
/// results are available.
fn act<P: TablesAccess>(
    upf: &mut Upf,
    persistence: &mut Option<PersistenceBackend>,
    events: &Receiver<Event>,
    (second, now): (bool, Timestamps),
    plane: &mut P,
    out: &mut Outgoing,
) -> bool {
    let events = events.try_iter().take(EVENTS_AT_ONCE);
    let Some(persistence) = persistence else {
        events.for_each(|event| upf.event(event, now, plane, out));
        upf.tick(now, out);
        upf.upkeep(second, now, plane, out);
        return false;
    };
    let (on, stored) = (&mut TransactionContext { upf, now, plane, out }, &mut persistence.stored);
    events.for_each(|event| stored.act(on, |upf, now, plane, out| upf.event(event, now, plane, out)));
    stored.tick(on);
    stored.act(on, |upf, now, plane, out| upf.upkeep(second, now, plane, out));
    if second {
        persistence.on_time(on);
    }
    persistence.poll(on)
}
