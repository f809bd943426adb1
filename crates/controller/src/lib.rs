//! Controller process: sockets and storage around [`ControllerMachine`].
//!
//! It has one thread and carries no signalling; no member waits for it.

#![forbid(unsafe_code)]

mod drain;
mod embedded;
mod etcd;
mod executor;
mod io;
mod kubernetes;
mod leader_store;
mod provisioner;
mod stateful_set;

pub use drain::DrainHandle;
use drain::Order;
pub use embedded::EmbeddedController;
pub use etcd::{EtcdError, check_tls};
pub use executor::check_scaling;
pub use kubernetes::KubernetesError;
pub use leader_store::{decode_state, encode_state};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use etcd::Etcd;
use executor::ScalingExecutor;
use io::ControllerIo;
use leader_store::{LeaderEvent, LeaderStore};
use rand::RngCore;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use vireo_cluster::{ClusterConfig, Rebalance, member_status, note_dead_hosts, resolve};
use vireo_core::placement::ConnectionId;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{
    self, ClusterMap, ControllerMachine, ControllerSettings, DurableState, MachineLabel, Secrets, machine,
};
use vireo_fabric::Security;
use vireo_fabric::frame::FrameError;
use vireo_ops::clock::clock;
use vireo_ops::config::{NF_KINDS, SliceRuntime};
use vireo_ops::metrics::Metrics;
use vireo_ops::n4::recovery_time_stamp;
use vireo_sctp::Waker;
use vireo_types::Instant;

/// Maximum number of connections of non-members.
const MAX_UNIDENTIFIED_CONNECTIONS: usize = 64;
/// Time for which a controller without state waits for members of an existing cluster, which try to
/// connect every 200 ms.
const DISCOVERY_TIME: vireo_types::Duration = vireo_types::Duration::from_millis(600);
/// Time for which the loads of hosts must differ before their weights change.
const REBALANCE_PAUSE: vireo_types::Duration = vireo_types::Duration::from_secs(2);
/// Maximum number of queued orders.
const ORDERS: usize = 64;
/// Maximum time until a standby controller notices that it must end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time for which a leader tries to bind an address.
const BIND_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections per member: messages and heartbeats.
const CONNECTIONS: usize = 2;
const LISTENER: u64 = 0;
const WAKER: u64 = 1;

/// State of the controller for other threads.
pub type View = Arc<Mutex<ControllerView>>;

/// Content of a [`View`].
#[derive(Clone, Debug, Default)]
pub struct ControllerView {
    /// Current map, if this controller leads and there is one.
    pub map: Option<Box<ClusterMap>>,
    /// Machines of the hosts that have a label.
    pub machines: BTreeMap<HostId, MachineLabel>,
    /// True if all buckets are where they belong, with all their copies.
    pub is_settled: bool,
    /// Hosts that get no other buckets and no new UEs.
    pub cordoned: Vec<u16>,
    /// Hosts that left the map while they owned buckets, the last one at the end.
    pub dead_hosts: Vec<u16>,
}

/// Handle of a running controller.
#[derive(Debug)]
pub struct ControllerHandle {
    view: View,
    orders: Sender<Order>,
    stop: Arc<AtomicBool>,
    /// True if the controller must end without informing its members.
    is_detaching: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// Settings of the controller thread.
#[derive(Debug)]
struct ControllerSetup {
    config: ClusterConfig,
    security: Security,
    settings: ControllerSettings,
    /// Latency objective of each pool in microseconds.
    objectives: Vec<f32>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    is_detaching: Arc<AtomicBool>,
    view: View,
    /// Orders of other threads.
    orders: (Sender<Order>, Receiver<Order>),
    embedded: bool,
    metrics: Arc<Metrics>,
}

/// Reason why the controller loop ended.
#[derive(Debug, PartialEq, Eq)]
enum ControllerExit {
    /// The controller was stopped.
    Stopped,
    /// Another controller leads, or may lead.
    Deposed,
}

impl ControllerHandle {
    /// Starts a controller without a store, which learns an existing cluster from its members. An
    /// `embedded` controller considers the previous balancer dead.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    pub fn start(
        listener: TcpListener,
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        embedded: bool,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let setup = ControllerSetup::new((config, security), slices, embedded, metrics)?;
        ControllerHandle::controller_loop(listener, setup, None)
    }

    /// Starts a controller beside the only balancer, from a known state.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    pub fn resume(
        listener: TcpListener,
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        record: DurableState,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let setup = ControllerSetup::new((config, security), slices, true, metrics)?;
        ControllerHandle::controller_loop(listener, setup, Some(record))
    }

    fn controller_loop(
        listener: TcpListener,
        setup: ControllerSetup,
        record: Option<DurableState>,
    ) -> std::io::Result<Self> {
        ControllerHandle::spawn(setup, move |setup| {
            let (settings, now) = (setup.settings.clone(), clock());
            let controller = match record {
                None => cluster::Controller::new(settings, secrets(now), now),
                Some(record) => cluster::Controller::restore(settings, record, now),
            };
            setup.update_view(controller.map(), controller.machines());
            if let Err(error) = ControllerLoop::new(setup, listener, controller, None).and_then(ControllerLoop::run) {
                tracing::error!(%error, "controller ends: its connections cannot be polled");
            }
        })
    }

    /// Starts a controller that stores its state in etcd under the cluster's name. It leads when no
    /// other does, and only then accepts members, at the first available address.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    pub fn start_standby(
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        name: &str,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let setup = ControllerSetup::new((config, security), slices, false, metrics)?;
        let own = format!("process {}", std::process::id());
        let etcd = Etcd::new(config.etcd.clone(), config.etcd_tls.clone()).map_err(std::io::Error::other)?;
        let leader_store = LeaderStore::start(etcd, name, own, setup.waker.clone())?;
        ControllerHandle::spawn(setup, move |setup| {
            if let Err(error) = setup.lead_while_elected(leader_store) {
                tracing::error!(%error, "the controller ends");
            }
        })
    }

    fn spawn(setup: ControllerSetup, run: impl FnOnce(&ControllerSetup) + Send + 'static) -> std::io::Result<Self> {
        let (stop, waker, view) = (Arc::clone(&setup.stop), setup.waker.clone(), Arc::clone(&setup.view));
        let is_detaching = Arc::clone(&setup.is_detaching);
        let orders = setup.orders.0.clone();
        let thread = std::thread::Builder::new().name("controller".into()).spawn(move || run(&setup))?;
        Ok(ControllerHandle { view, orders, stop, is_detaching, waker, thread: Some(thread) })
    }

    /// Returns the handle with which other threads drain hosts.
    pub fn drainer(&self) -> DrainHandle {
        DrainHandle { view: self.view(), orders: self.orders.clone(), waker: self.waker.clone() }
    }

    /// Returns the state for other threads.
    pub fn view(&self) -> View {
        Arc::clone(&self.view)
    }

    /// Returns true if the controller has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the controller. Beside the only balancer the cluster ends with it; else members
    /// continue and search the next one.
    pub fn stop(&mut self) {
        self.end();
    }

    /// Ends the controller without informing members: another process continues at its address.
    pub fn detach(&mut self) {
        self.is_detaching.store(true, Ordering::SeqCst);
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ControllerSetup {
    fn new(
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        embedded: bool,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let silence = vireo_types::Duration::from(config.heartbeat * config.misses);
        let replica_counts = || slices.iter().map(|slice| slice.replicas);
        let settings = ControllerSettings {
            hosts: config.hosts.into(),
            max_hosts: config.pool_partitions,
            lossless: config.replication.is_lossless(replica_counts()),
            replicas: config.replication.replicas_by_slice(replica_counts()),
            migrates: config.migrates,
            max_migrating_buckets: config.max_migrating_buckets.into(),
            scaling: config.scaling.as_ref().map(|scaling| scaling.hosts),
            rebalance_pause: (config.rebalance == Rebalance::Load).then_some(REBALANCE_PAUSE),
            silence,
            reconnect_timeout: vireo_types::Duration(silence.0 * u64::from(vireo_cluster::CONTROLLER_SILENCE_FACTOR)),
            discovery_time: DISCOVERY_TIME,
            is_embedded: embedded,
        };
        let (waker, stop) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let (view, orders) = (View::default(), bounded(ORDERS));
        let objectives = objectives(slices);
        let security = security.clone();
        let is_detaching = Arc::default();
        Ok(ControllerSetup {
            config: config.clone(),
            security,
            settings,
            objectives,
            waker,
            stop,
            is_detaching,
            view,
            orders,
            embedded,
            metrics: Arc::clone(metrics),
        })
    }

    /// Returns the settings of the connections; `stores` is true if maps are stored.
    fn connection_settings(&self, stores: bool) -> machine::Settings {
        machine::Settings {
            heartbeat: self.config.heartbeat.into(),
            misses: self.config.misses,
            report: self.config.load_report_interval.into(),
            partitions: self.config.pool_partitions,
            reconnect_timeout: self.settings.reconnect_timeout,
            objectives: self.objectives.clone(),
            stores,
        }
    }

    fn update_view(&self, map: Option<&ClusterMap>, machines: Vec<(HostId, MachineLabel)>) {
        // Never poisoned: the code under the lock does not panic.
        if let Ok(mut view) = self.view.lock() {
            let (map, machines) = (map.cloned().map(Box::new), machines.into_iter().collect());
            let mut dead_hosts = std::mem::take(&mut view.dead_hosts);
            if let (Some(before), Some(now)) = (&view.map, &map) {
                note_dead_hosts(&mut dead_hosts, &member_status(before, &BTreeMap::new()).0, now);
            }
            let cordoned = std::mem::take(&mut view.cordoned);
            *view = ControllerView { map, machines, is_settled: false, cordoned, dead_hosts };
        }
        if map.is_none() {
            self.metrics.rebalancing.set_weights([]);
        }
    }

    fn show_state(&self, controller: &cluster::Controller) {
        if let Ok(mut view) = self.view.lock() {
            view.is_settled = controller.is_settled();
            view.cordoned.clear();
            view.cordoned.extend(controller.cordoned().map(|host| host.0));
        }
    }

    fn show_machine(&self, host: HostId, machine: &MachineLabel) {
        if let Ok(mut view) = self.view.lock() {
            view.machines.insert(host, machine.clone());
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Leads whenever the leader store reports leadership, until stopped.
    fn lead_while_elected(&self, leader_store: LeaderStore) -> std::io::Result<()> {
        let mut leader_store = Some(leader_store);
        while let Some(store) = leader_store.take().filter(|_| !self.is_stopped()) {
            let record = match store.events.recv_timeout(STOP_POLL_INTERVAL) {
                Ok(LeaderEvent::Leads(record)) => *record,
                Ok(LeaderEvent::Written(_) | LeaderEvent::Deposed(_)) | Err(RecvTimeoutError::Timeout) => {
                    leader_store = Some(store);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(std::io::Error::other("the leader store has ended")),
            };
            let now = clock();
            tracing::info!(epoch = record.as_ref().and_then(|r| Some(r.map.as_ref()?.epoch())), "controller leads");
            let controller = match record {
                Some(record) => cluster::Controller::restore(self.settings.clone(), record, now),
                None => cluster::Controller::new(self.settings.clone(), secrets(now), now),
            };
            let Some(listener) = self.listen()? else { return Ok(()) };
            let mut controller_loop = ControllerLoop::new(self, listener, controller, Some(store))?;
            let controller = controller_loop.machine.controller();
            self.update_view(controller.map(), controller.machines());
            let end = controller_loop.run_until_end()?;
            self.update_view(None, Vec::new());
            leader_store = controller_loop.io.store.take();
            if end == ControllerExit::Deposed {
                tracing::warn!("controller is standby");
            }
        }
        Ok(())
    }

    /// Binds the first available address. An address may belong to another machine, or be in use
    /// for a moment after a controller was stopped on this one.
    fn listen(&self) -> std::io::Result<Option<TcpListener>> {
        let until = std::time::Instant::now() + BIND_TIMEOUT;
        while !self.is_stopped() {
            match resolve(&self.config.controllers()).and_then(|addresses| TcpListener::bind(&addresses[..])) {
                Ok(listener) => return Ok(Some(listener)),
                Err(error) if std::time::Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(STOP_POLL_INTERVAL),
            }
        }
        Ok(None)
    }
}

/// Returns the latency objective of each pool in microseconds; UEs of unknown slice have the
/// strictest one.
fn objectives(slices: &[SliceRuntime]) -> Vec<f32> {
    let strictest = |kind| slices.iter().map(|slice| slice.slo[kind]).min().unwrap_or(SliceRuntime::SLO);
    let all = (0..NF_KINDS).map(strictest).chain(slices.iter().flat_map(|slice| slice.slo));
    all.map(|slo| slo.as_micros() as f32).collect()
}

/// Creates the secrets that the hosts of a new cluster share.
fn secrets(now: Instant) -> Secrets {
    let mut tmsi_key = [0; 16];
    rand::rng().fill_bytes(&mut tmsi_key);
    Secrets { tmsi_key, recovery: recovery_time_stamp(now) }
}

/// The controller with its connections.
#[derive(Debug)]
struct ControllerLoop<'a> {
    setup: &'a ControllerSetup,
    machine: ControllerMachine,
    io: ControllerIo<'a>,
    /// Changes the number of hosts, if configured.
    executor: Option<ScalingExecutor>,
}

impl<'a> ControllerLoop<'a> {
    fn new(
        setup: &'a ControllerSetup,
        listener: TcpListener,
        controller: cluster::Controller,
        store: Option<LeaderStore>,
    ) -> std::io::Result<Self> {
        let settings = setup.connection_settings(store.is_some());
        let io = ControllerIo::new(setup, listener, store)?;
        let executor = setup.config.scaling.as_ref().map(ScalingExecutor::start).transpose()?.flatten();
        Ok(ControllerLoop { setup, machine: ControllerMachine::new(controller, settings, clock()), io, executor })
    }

    fn on(&mut self, input: machine::Input, now: Instant) {
        self.machine.on(input, now, &mut self.io);
    }

    fn run(mut self) -> std::io::Result<()> {
        self.run_until_end().map(|_| ())
    }

    fn run_until_end(&mut self) -> std::io::Result<ControllerExit> {
        while !self.setup.is_stopped() {
            self.run_once()?;
            if self.machine.controller().must_restart() {
                // Its members keep searching for a controller; those that have joined this one end.
                let cause = "a cluster was found after this controller had begun another one: restart it, it then learns that one";
                return Err(std::io::Error::other(cause));
            }
            if !self.poll_store() {
                return Ok(ControllerExit::Deposed);
            }
        }
        if self.setup.embedded && !self.setup.is_detaching.load(Ordering::SeqCst) {
            self.on(machine::Input::Stop, clock());
            self.flush();
        }
        Ok(ControllerExit::Stopped)
    }

    /// Handles events of the leader store. Returns true if this controller still leads.
    fn poll_store(&mut self) -> bool {
        while let Some(event) = self.io.store.as_ref().and_then(|store| store.events.try_recv().ok()) {
            match event {
                LeaderEvent::Written(epoch) => {
                    self.on(machine::Input::Stored(epoch), clock());
                    self.flush();
                }
                LeaderEvent::Deposed(cause) => {
                    tracing::warn!(reason = cause, "controller lost leadership");
                    return false;
                }
                LeaderEvent::Leads(_) => {}
            }
        }
        true
    }

    fn run_once(&mut self) -> std::io::Result<()> {
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 32];
        let due = Duration::from_micros(self.machine.due().since(clock()).as_micros());
        let wait = due.min(self.setup.config.heartbeat / 2);
        let wait = rustix::event::Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        let ready = match epoll::wait(&self.io.epoll, &mut events[..], Some(&wait)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let now = clock();
        for event in &events[..ready] {
            match event.data.u64() {
                LISTENER => {
                    let limit = MAX_UNIDENTIFIED_CONNECTIONS + self.machine.member_count() * CONNECTIONS;
                    let [accepted, displaced] = self.io.accept(limit);
                    accepted.into_iter().for_each(|connection| self.on(machine::Input::Connected(connection), now));
                    displaced.into_iter().for_each(|connection| self.on(machine::Input::Disconnected(connection), now));
                }
                WAKER => self.setup.waker.clear(),
                token => self.read(ConnectionId(token), now),
            }
        }
        while let Ok(order) = self.setup.orders.1.try_recv() {
            let input = match order {
                Order::Drain(host) => machine::Input::Drain(host),
                Order::Cordon { host, is_cordoned } => machine::Input::Cordon { host, is_cordoned },
                Order::Ended(host) => machine::Input::HostEnded(host),
            };
            self.on(input, now);
        }
        let beats = now >= self.machine.due();
        self.on(machine::Input::Advance, now);
        self.setup.show_state(self.machine.controller());
        if beats {
            self.scale_hosts();
        }
        self.flush();
        Ok(())
    }

    /// Reads and handles the messages of a connection.
    fn read(&mut self, connection: ConnectionId, now: Instant) {
        let mut messages = Vec::new();
        let mut received = self.io.read(connection, &mut messages);
        self.on(machine::Input::DataReceived(connection), now);
        for message in messages {
            if !self.io.permits(connection, &message) {
                received = Err(FrameError::Message);
                break;
            }
            self.on(machine::Input::Message { connection, message }, now);
        }
        if let Err(error) = received {
            self.disconnect(connection, &error);
        }
    }

    /// Handles the end of a connection.
    fn disconnect(&mut self, connection: ConnectionId, cause: &FrameError) {
        if let Some(member) = self.machine.member_of(connection) {
            tracing::warn!(?member, reason = %cause, "member connection ended");
        }
        self.io.remove(connection);
        self.on(machine::Input::Disconnected(connection), clock());
    }

    /// Executes scaling decisions. During discovery the hosts may exist already.
    fn scale_hosts(&mut self) {
        let controller = self.machine.controller();
        if let Some(executor) = self.executor.as_mut().filter(|_| !controller.is_discovering()) {
            executor.execute(controller);
        }
    }

    fn flush(&mut self) {
        for (connection, error) in self.io.flush() {
            self.disconnect(connection, &error);
        }
    }
}
