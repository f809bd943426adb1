//! Controller process: connections of the members around [`vireo_core::placement::cluster`].
//!
//! It has one thread and carries no signalling; no member waits for it.

mod drain;
mod embedded;
mod etcd;
mod leader_store;
mod member;
mod provisioner;

pub(crate) use drain::DrainHandle;
pub(crate) use embedded::EmbeddedController;
pub use etcd::{EtcdError, EtcdTls};
pub use leader_store::{kept, record};

use crate::cluster::ClusterConfig;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use etcd::Etcd;
use leader_store::{LeaderEvent, LeaderStore};
use member::Connection;
use provisioner::{HostProvisioner, ProgramLauncher};
use rand::RngCore;
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{
    self, ClusterMap, ControllerSettings, DurableState, HostUtilisation, Member, Refusal, ScalingDecision, Secrets,
};
use vireo_core::placement::message::{BalancerAssignment, PoolLoad, ToController, ToMember, Welcome};
use vireo_fabric::frame::FrameError;
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security};
use vireo_ops::clock::clock;
use vireo_ops::config::{NF_KINDS, SliceRuntime};
use vireo_ops::n4::recovery_time_stamp;
use vireo_sctp::Waker;
use vireo_types::Instant;

/// Maximum number of connections of non-members.
const STRANGERS: usize = 64;
/// Maximum time for which a connection may remain without a member.
const PATIENCE: vireo_types::Duration = vireo_types::Duration::from_secs(5);
/// Time for which a controller without state waits for members of an existing cluster, which try to
/// connect every 200 ms.
const LISTENS: vireo_types::Duration = vireo_types::Duration::from_millis(600);
/// Maximum number of queued drain requests.
const DRAINS: usize = 64;
/// Maximum time until a standby controller notices that it must end.
const STOPPED_WITHIN: Duration = Duration::from_millis(100);
/// Maximum time for which a leader tries to bind an address.
const BOUND_WITHIN: Duration = Duration::from_secs(5);
/// Connections per member: messages and heartbeats.
const CONNECTIONS: usize = 2;
const LISTENER: u64 = 0;
const WAKER: u64 = 1;

/// Map for other threads: the current one, if this controller leads and there is one.
pub(crate) type View = Arc<Mutex<Option<Box<ClusterMap>>>>;

/// Handle of a running controller.
#[derive(Debug)]
pub(crate) struct ControllerHandle {
    view: View,
    drains: Sender<HostId>,
    stop: Arc<AtomicBool>,
    /// True if the controller must end without informing its members.
    leaves: Arc<AtomicBool>,
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
    leaves: Arc<AtomicBool>,
    view: View,
    /// Hosts that the operator drains.
    drains: (Sender<HostId>, Receiver<HostId>),
    beside: bool,
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
    /// Starts a controller without a store, which learns an existing cluster from its members. A
    /// controller `beside` the only balancer considers the previous balancer dead.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    pub(crate) fn start(
        listener: TcpListener,
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        beside: bool,
    ) -> std::io::Result<Self> {
        ControllerHandle::shell(listener, ControllerSetup::new((config, security), slices, beside)?, None)
    }

    /// Starts a controller beside the only balancer, from a known state.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    pub(crate) fn resume(
        listener: TcpListener,
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        record: DurableState,
    ) -> std::io::Result<Self> {
        ControllerHandle::shell(listener, ControllerSetup::new((config, security), slices, true)?, Some(record))
    }

    fn shell(listener: TcpListener, setup: ControllerSetup, record: Option<DurableState>) -> std::io::Result<Self> {
        ControllerHandle::spawn(setup, move |setup| {
            let (settings, now) = (setup.settings.clone(), clock());
            let controller = match record {
                None => cluster::Controller::new(settings, secrets(now), now),
                Some(record) => cluster::Controller::restore(settings, record, now),
            };
            setup.show(controller.map());
            if let Err(error) = ControllerLoop::new(setup, listener, controller, None).and_then(ControllerLoop::run) {
                tracing::error!(%error, "the controller ends: its connections are not heard any more");
            }
        })
    }

    /// Starts a controller that stores its state in etcd under the cluster's name. It leads when no
    /// other does, and only then accepts members, at the first available address.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    pub(crate) fn start_standby(
        (config, security): (&ClusterConfig, &Security),
        slices: &[SliceRuntime],
        name: &str,
    ) -> std::io::Result<Self> {
        let setup = ControllerSetup::new((config, security), slices, false)?;
        let own = format!("process {}", std::process::id());
        let etcd = Etcd::new(config.etcd.clone(), config.etcd_tls.clone()).map_err(std::io::Error::other)?;
        let keeper = LeaderStore::start(etcd, name, own, setup.waker.clone())?;
        ControllerHandle::spawn(setup, move |setup| {
            if let Err(error) = setup.lead_in_turn(keeper) {
                tracing::error!(%error, "the controller ends");
            }
        })
    }

    fn spawn(setup: ControllerSetup, run: impl FnOnce(&ControllerSetup) + Send + 'static) -> std::io::Result<Self> {
        let (stop, waker, view) = (Arc::clone(&setup.stop), setup.waker.clone(), Arc::clone(&setup.view));
        let leaves = Arc::clone(&setup.leaves);
        let drains = setup.drains.0.clone();
        let thread = std::thread::Builder::new().name("controller".into()).spawn(move || run(&setup))?;
        Ok(ControllerHandle { view, drains, stop, leaves, waker, thread: Some(thread) })
    }

    /// Returns the handle with which other threads drain hosts.
    pub(crate) fn drainer(&self) -> DrainHandle {
        DrainHandle { view: self.view(), drains: self.drains.clone(), waker: self.waker.clone() }
    }

    /// Returns the map for other threads.
    pub(crate) fn view(&self) -> View {
        Arc::clone(&self.view)
    }

    /// Returns true if the controller has ended by itself.
    pub(crate) fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the controller. Beside the only balancer the cluster ends with it; else members
    /// continue and search the next one.
    pub(crate) fn stop(&mut self) {
        self.end();
    }

    /// Ends the controller without informing members: another process continues at its address.
    pub(crate) fn leave(&mut self) {
        self.leaves.store(true, Ordering::SeqCst);
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
        beside: bool,
    ) -> std::io::Result<Self> {
        let silence = vireo_types::Duration::from(config.heartbeat * config.misses);
        let wanted = || slices.iter().map(|slice| slice.replicas);
        let settings = ControllerSettings {
            hosts: config.hosts.into(),
            most_hosts: config.address_parts,
            lossless: config.replication.is_lossless(wanted()),
            replicas: config.replication.of_slices(wanted()),
            moves: config.moves,
            at_once: config.at_once.into(),
            scaling: config.scaling.as_ref().map(|scaling| scaling.hosts),
            silence,
            reconnect_timeout: vireo_types::Duration(silence.0 * u64::from(crate::cluster::PATIENCE)),
            listens: LISTENS,
            alone: beside,
        };
        let (waker, stop) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let (view, drains) = (View::default(), bounded(DRAINS));
        let objectives = objectives(slices);
        let security = security.clone();
        let leaves = Arc::default();
        Ok(ControllerSetup {
            config: config.clone(),
            security,
            settings,
            objectives,
            waker,
            stop,
            leaves,
            view,
            drains,
            beside,
        })
    }

    fn show(&self, map: Option<&ClusterMap>) {
        // Never poisoned: the code under the lock does not panic.
        if let Ok(mut view) = self.view.lock() {
            *view = map.cloned().map(Box::new);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Leads whenever the leader store reports leadership, until stopped.
    fn lead_in_turn(&self, keeper: LeaderStore) -> std::io::Result<()> {
        let mut keeper = Some(keeper);
        while let Some(kept) = keeper.take().filter(|_| !self.is_stopped()) {
            let record = match kept.news.recv_timeout(STOPPED_WITHIN) {
                Ok(LeaderEvent::Leads(record)) => *record,
                Ok(LeaderEvent::Written(_) | LeaderEvent::Deposed(_)) | Err(RecvTimeoutError::Timeout) => {
                    keeper = Some(kept);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(std::io::Error::other("its keeper has ended")),
            };
            let now = clock();
            tracing::info!(
                epoch = record.as_ref().and_then(|r| Some(r.map.as_ref()?.epoch())),
                "this controller leads"
            );
            let controller = match record {
                Some(record) => cluster::Controller::restore(self.settings.clone(), record, now),
                None => cluster::Controller::new(self.settings.clone(), secrets(now), now),
            };
            let Some(listener) = self.listen()? else { return Ok(()) };
            let mut shell = ControllerLoop::new(self, listener, controller, Some(kept))?;
            self.show(shell.controller.map());
            let end = shell.carry()?;
            self.show(None);
            keeper = shell.keeper.take();
            if end == ControllerExit::Deposed {
                tracing::warn!("this controller leads no longer, and stands by");
            }
        }
        Ok(())
    }

    /// Binds the first available address. An address may belong to another machine, or be in use
    /// for a moment after a controller was stopped on this one.
    fn listen(&self) -> std::io::Result<Option<TcpListener>> {
        let until = std::time::Instant::now() + BOUND_WITHIN;
        while !self.is_stopped() {
            match TcpListener::bind(&self.config.controllers()[..]) {
                Ok(listener) => return Ok(Some(listener)),
                Err(error) if std::time::Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(STOPPED_WITHIN),
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

/// Returns true if a procedure that starts at this time would be late at a host: `(Q / C + 1) T_t`
/// of a pool exceeds its objective (MMLite, seed 1, Algorithm 1).
fn is_late(pools: &[PoolLoad], objectives: &[f32]) -> bool {
    // A pool without NFs has no work.
    let works = |load: &PoolLoad| load.share > 0.0;
    let late = |(load, objective): (&PoolLoad, &f32)| works(load) && (load.backlog + 1.0) * load.time_us > *objective;
    pools.iter().zip(objectives).any(late)
}

/// Creates the secrets that the hosts of a new cluster share.
fn secrets(now: Instant) -> Secrets {
    let mut tmsi_key = [0; 16];
    rand::rng().fill_bytes(&mut tmsi_key);
    Secrets { tmsi_key, recovery: recovery_time_stamp(now) }
}

#[derive(Debug)]
struct ControllerLoop<'a> {
    setup: &'a ControllerSetup,
    listener: TcpListener,
    epoll: OwnedFd,
    /// Connections by their epoll tokens.
    connections: BTreeMap<u64, Connection>,
    /// Token of each connected member.
    members: BTreeMap<Member, u64>,
    next_token: u64,
    controller: cluster::Controller,
    /// Store of the maps; `None`: maps take effect at once.
    keeper: Option<LeaderStore>,
    /// Epoch that is being stored.
    writes: Option<u64>,
    /// Epoch of the last map that was sent.
    told: u64,
    beaten: Instant,
    /// Starts missing hosts, if configured.
    recruiter: Option<HostProvisioner>,
}

impl<'a> ControllerLoop<'a> {
    fn new(
        setup: &'a ControllerSetup,
        listener: TcpListener,
        controller: cluster::Controller,
        keeper: Option<LeaderStore>,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &setup.waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        tracing::info!(address = ?listener.local_addr().ok(), "the controller takes members");
        let start = setup.config.scaling.as_ref().map(|scaling| &scaling.start).filter(|start| !start.is_empty());
        let recruiter = start.map(|start| HostProvisioner::new(Box::new(ProgramLauncher::new(start.clone()))));
        Ok(ControllerLoop {
            setup,
            listener,
            epoll,
            connections: BTreeMap::new(),
            members: BTreeMap::new(),
            next_token: WAKER + 1,
            controller,
            keeper,
            writes: None,
            told: 0,
            beaten: clock(),
            recruiter,
        })
    }

    fn run(mut self) -> std::io::Result<()> {
        self.carry().map(|_| ())
    }

    fn carry(&mut self) -> std::io::Result<ControllerExit> {
        while !self.setup.is_stopped() {
            self.turn()?;
            if self.controller.is_ignorant() {
                // Its members keep searching for a controller; those that have joined this one end.
                let why = "a cluster was found after this controller had begun another one: restart it, it then learns that one";
                return Err(std::io::Error::other(why));
            }
            if !self.hear_keeper() {
                return Ok(ControllerExit::Deposed);
            }
        }
        if self.setup.beside && !self.setup.leaves.load(Ordering::SeqCst) {
            let is_host = |connection: &&mut Connection| matches!(connection.member, Some(Member::Host(_)));
            for connection in self.connections.values_mut().filter(is_host) {
                connection.stream.put(&ToMember::Refused("the cluster's only balancer stops".into()));
                let _ = connection.stream.flush();
            }
        }
        Ok(ControllerExit::Stopped)
    }

    /// Handles events of the leader store. Returns true if this controller still leads.
    fn hear_keeper(&mut self) -> bool {
        while let Some(news) = self.keeper.as_ref().and_then(|keeper| keeper.news.try_recv().ok()) {
            match news {
                LeaderEvent::Written(epoch) => {
                    self.writes = None;
                    self.controller.written(epoch);
                    self.tell();
                    self.flush();
                }
                LeaderEvent::Deposed(why) => {
                    tracing::warn!(why, "this controller is deposed");
                    return false;
                }
                LeaderEvent::Leads(_) => {}
            }
        }
        true
    }

    fn turn(&mut self) -> std::io::Result<()> {
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 32];
        let heartbeat = self.setup.config.heartbeat;
        let due = vireo_types::Duration::from(heartbeat).0.saturating_sub(clock().since(self.beaten).0);
        let wait = Duration::from_micros(due).min(heartbeat / 2);
        let wait = rustix::event::Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&wait)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        // Before all events: the controller thereby notices whether it was suspended itself.
        let now = clock();
        self.controller.begin_tick(now);
        for event in &events[..ready] {
            match event.data.u64() {
                LISTENER => self.accept(),
                WAKER => self.setup.waker.clear(),
                token => self.read(token, now),
            }
        }
        self.join_waiting(now);
        while let Ok(host) = self.setup.drains.1.try_recv() {
            self.drain(host);
        }
        self.controller.check_liveness(now);
        match self.controller.take_scaled() {
            Some(ScalingDecision::ScaleOut) => {
                tracing::info!("one more host is to work: those that do have too much to do")
            }
            Some(ScalingDecision::ScaleIn(host)) => {
                tracing::info!(host = host.0, "the others have room for what this host does: it leaves")
            }
            None => {}
        }
        self.dismiss();
        self.release_drained_hosts();
        self.write();
        self.tell();
        if now.since(self.beaten) >= vireo_types::Duration::from(heartbeat) {
            self.beaten = now;
            self.beat(now);
            self.start_missing_hosts();
        }
        self.flush();
        Ok(())
    }

    fn accept(&mut self) {
        while let Ok((socket, peer)) = self.listener.accept() {
            if self.connections.len() >= STRANGERS + self.members.len() * CONNECTIONS {
                tracing::warn!(%peer, "too many connections to the controller are of nobody who has joined");
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let stream =
                Stream::accepted(socket, &self.setup.security, Role::Controller, &[Role::Host, Role::Balancer]);
            let stream = stream.and_then(|stream| {
                epoll::add(&self.epoll, stream.fd(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
                Ok(stream)
            });
            match stream {
                Ok(stream) => drop(self.connections.insert(token, Connection::new(stream, clock()))),
                Err(error) => tracing::warn!(%peer, %error, "a connection to the controller"),
            }
        }
    }

    /// Reads and handles the messages of a connection.
    fn read(&mut self, token: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let mut said = Vec::new();
        connection.stream.set_readable(true);
        let heard = connection.read(&mut said);
        // Heartbeats count only for connected members.
        let pulse = connection.pulse.filter(|member| self.members.contains_key(member));
        if pulse.is_some() {
            connection.since = now;
        }
        if let Some(member) = connection.member.or(pulse) {
            self.controller.on_message(member, now);
        }
        for message in said {
            self.said(token, message, now);
        }
        if let Err(error) = heard {
            self.lose(token, &error);
        }
    }

    fn said(&mut self, token: u64, message: ToController, now: Instant) {
        let Some(connection) =
            self.connections.get_mut(&token).filter(|connection| !connection.refused && !connection.left)
        else {
            return;
        };
        match (message, connection.member) {
            (join @ (ToController::Host { .. } | ToController::Balancer { .. }), None)
                if connection.pulse.is_none() =>
            {
                connection.join = Some(join);
                self.join(token, now);
            }
            (ToController::Ready, Some(member)) => {
                if self.controller.is_ready(member) == Some(false) {
                    tracing::info!(?member, "a member is ready");
                }
                self.controller.ready(member, now);
                connection.since = now;
            }
            (ToController::SilentHosts(hosts), Some(Member::Balancer(balancer))) => {
                self.controller.report_silent_hosts(balancer, hosts);
            }
            (ToController::CaughtUp { epoch, host }, Some(Member::Host(owner))) => {
                self.controller.caught_up(owner, epoch, host);
            }
            (ToController::UnreachablePeers(hosts), Some(Member::Host(host))) => {
                self.controller.report_unreachable_peers(host, hosts)
            }
            (ToController::PoolPartitions { epoch, parts }, Some(Member::Host(host))) => {
                self.controller.report_used_partitions(host, epoch, parts);
            }
            (ToController::Leave, Some(Member::Host(host))) => self.drain(host),
            (ToController::Report { cpu, rate, pools }, Some(Member::Host(host))) => {
                let late = is_late(&pools, &self.setup.objectives);
                tracing::debug!(host = host.0, cpu, rate, late, "a host's load");
                self.controller.reported(host, HostUtilisation { cpu, late, rate }, now);
            }
            (ToController::Pulse(of), None) if connection.may_be_pulse(of) => connection.pulse = Some(of),
            (ToController::Beat, Some(_)) => {}
            (ToController::Beat, None) if connection.pulse.is_some() => {}
            (message, member) => {
                tracing::warn!(?member, ?message, "something that is not this member's to say");
                self.lose(token, &FrameError::Message);
            }
        }
    }

    /// Handles the join requests that came too early.
    fn join_waiting(&mut self, now: Instant) {
        let waiting: Vec<u64> =
            self.connections.iter().filter(|(_, c)| c.join.is_some()).map(|(token, _)| *token).collect();
        waiting.into_iter().for_each(|token| self.join(token, now));
    }

    fn join(&mut self, token: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let role = connection.stream.role();
        let joined = match &connection.join {
            Some(ToController::Host { copies, past }) if role == Some(Role::Host) => {
                let past = past.as_deref().cloned();
                self.controller.join_host(*copies, past, now).map(Member::Host)
            }
            Some(ToController::Balancer { address, past }) if role == Some(Role::Balancer) => {
                let past = past.as_deref().cloned();
                self.controller.join_balancer(*address, past, now).map(Member::Balancer)
            }
            Some(_) => return self.lose(token, &FrameError::Message),
            None => return,
        };
        let member = match joined {
            Ok(member) => member,
            Err(Refusal::NotYet | Refusal::Unlearned) => return,
            Err(why) => {
                tracing::warn!(peer = ?connection.stream.peer(), %why, "somebody may not join");
                return connection.refuse(why.to_string());
            }
        };
        let again = connection.join.take().is_some_and(|join| match join {
            ToController::Host { past, .. } => past.is_some(),
            ToController::Balancer { past, .. } => past.is_some(),
            _ => false,
        });
        connection.member = Some(member);
        let welcome = self.welcome(member);
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stream.put(&welcome);
            if let Some(map) = self.controller.map() {
                connection.stream.put(&ToMember::Map(Box::new(map.clone())));
            }
            tracing::info!(?member, again, peer = ?connection.stream.peer(), "a member joins");
        }
        // An earlier connection of the same member has ended unnoticed.
        if let Some(earlier) = self.members.insert(member, token) {
            self.close(earlier);
        }
        // So have its heartbeats, which use another connection.
        let pulses = self.connections.iter().filter(|(_, connection)| connection.pulse == Some(member));
        let pulses: Vec<u64> = pulses.map(|(token, _)| *token).collect();
        for pulse in pulses {
            self.close(pulse);
        }
    }

    fn welcome(&self, member: Member) -> ToMember {
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        let Secrets { tmsi_key, recovery } = self.controller.secrets();
        let heartbeat = (millis(self.setup.config.heartbeat), self.setup.config.misses);
        match member {
            Member::Host(host) => ToMember::Welcome(Welcome {
                host,
                tmsi_key,
                part: (cluster::partition_of(host, self.setup.config.address_parts), self.setup.config.address_parts),
                heartbeat,
                report: millis(self.setup.config.report),
                recovery,
            }),
            Member::Balancer(balancer) => {
                ToMember::Assignment(BalancerAssignment { balancer, tmsi_key, recovery, heartbeat })
            }
        }
    }

    /// Handles the end of a connection.
    fn lose(&mut self, token: u64, why: &FrameError) {
        let Some(member) = self.close(token) else { return };
        // The member may already have another connection.
        if self.members.get(&member) == Some(&token) {
            self.members.remove(&member);
            tracing::warn!(?member, %why, "the connection of a member is over");
            self.controller.on_disconnect(member);
        }
    }

    fn close(&mut self, token: u64) -> Option<Member> {
        let connection = self.connections.remove(&token)?;
        let _ = epoll::delete(&self.epoll, connection.stream.fd());
        connection.member
    }

    /// Evicts members that were declared dead.
    fn dismiss(&mut self) {
        for (member, why) in self.controller.take_evicted() {
            tracing::warn!(?member, %why, "a member is taken for dead");
            let Some(token) = self.members.remove(&member) else { continue };
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.refuse(why.to_string());
                let _ = connection.stream.flush();
            }
            self.close(token);
        }
    }

    fn drain(&mut self, host: HostId) {
        if self.controller.drain(host) {
            tracing::info!(host = host.0, "a host is to leave: others get its UEs");
        }
    }

    /// Lets drained hosts end.
    fn release_drained_hosts(&mut self) {
        for host in self.controller.take_departed() {
            tracing::info!(host = host.0, "a host leaves");
            let Some(token) = self.members.remove(&Member::Host(host)) else { continue };
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.stream.put(&ToMember::LeaveGranted);
                // Not a member: it ends this connection itself.
                (connection.member, connection.left, connection.since) = (None, true, clock());
            }
        }
    }

    /// Starts missing hosts. During discovery the hosts may exist already.
    fn start_missing_hosts(&mut self) {
        if let Some(recruiter) = self.recruiter.as_mut().filter(|_| !self.controller.is_discovering()) {
            recruiter.look(self.controller.missing_hosts(), std::time::Instant::now());
        }
    }

    /// Stores the next map, and sends it once it is stored.
    fn write(&mut self) {
        if self.writes.is_some() {
            return;
        }
        let Some(record) = self.controller.to_write() else { return };
        let epoch = record.map.as_ref().map_or(0, ClusterMap::epoch);
        match &self.keeper {
            Some(keeper) => {
                keeper.write(record);
                self.writes = Some(epoch);
            }
            None => {
                self.controller.written(epoch);
            }
        }
    }

    /// Sends the current map if it was not sent. It may be one that a member has brought.
    fn tell(&mut self) {
        let Some(map) = self.controller.map().filter(|map| map.epoch() != self.told) else { return };
        self.told = map.epoch();
        let (epoch, hosts, balancers) = (map.epoch(), map.hosts.len(), map.balancers.len());
        tracing::info!(epoch, hosts, idle = self.controller.idle(), balancers, "a new epoch");
        self.setup.show(Some(map));
        let message = ToMember::Map(Box::new(map.clone()));
        for token in self.members.values() {
            if let Some(connection) = self.connections.get_mut(token) {
                connection.stream.put(&message);
            }
        }
    }

    fn beat(&mut self, now: Instant) {
        let mut late = Vec::new();
        // A member that just became ready counts as alive until its heartbeat is due.
        let beating: BTreeSet<Member> = self.connections.values().filter_map(|connection| connection.pulse).collect();
        let timeout = self.setup.settings.reconnect_timeout;
        let is_new = |connection: &&Connection| now.since(connection.since) < timeout;
        for member in self.connections.values().filter(is_new).filter_map(|connection| connection.member) {
            if !beating.contains(&member) {
                self.controller.on_message(member, now);
            }
        }
        for (token, connection) in &mut self.connections {
            match connection.member.or(connection.pulse.filter(|member| self.members.contains_key(member))) {
                Some(_) => {
                    connection.stream.put(&ToMember::Beat);
                }
                None if now.since(connection.since) > PATIENCE => late.push(*token),
                None => {}
            }
        }
        for token in late {
            self.close(token);
        }
    }

    fn flush(&mut self) {
        let mut over = Vec::new();
        for (token, connection) in &mut self.connections {
            match connection.stream.flush_at(&self.epoll, *token) {
                Err(error) => over.push((*token, error)),
                Ok(()) if connection.refused && connection.stream.unsent() == 0 => {
                    over.push((*token, FrameError::Refused("it was refused".into())));
                }
                Ok(()) => {}
            }
        }
        over.into_iter().for_each(|(token, error)| self.lose(token, &error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_too_much_to_do_is_late_and_whoever_has_nothing_is_not() {
        let pool = |backlog, share| PoolLoad { backlog, share, time_us: 100.0 };
        let objectives = objectives(&[]);
        assert_eq!(objectives.len(), NF_KINDS);
        let slo = objectives[0];
        assert!(!is_late(&[pool(1e9, 0.0), pool(3.0, 0.5)], &objectives), "nobody works in the first");
        assert!(is_late(&[pool(0.0, 1.0), pool(slo / 100.0, 0.5)], &objectives));
    }
}
