//! Processes of a cluster: balancers, hosts and the controller.
//!
//! Balancers terminate SCTP and N4, hosts run the procedures, and the controller decides on
//! membership and bucket placement. They are the parts of [`crate::control`], started as separate
//! processes and connected by the fabric.

use crate::control::{ControlStatus, StartError, adopt_ran, bind_ran, in_process, pools, start_udm, upfs};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vireo_amf::{Host, HostBuilder, HostConfig, Membership};
use vireo_api::Management;
use vireo_balancer::hot_restart::{HotRestartError, HotRestartListener, ReceivedState, ResumeError, SuccessorConfig};
use vireo_balancer::{Balancer, Fleet, FleetConfig, FleetView, StopHandle};
use vireo_cluster::replicator::{self, ReplicatorStatus, ReplicatorThread};
use vireo_cluster::{
    COMMANDS, ClusterConfig, HostQueues, HostSender, HostThread, HostWaker, Input, Link, LinkError, LinkStatus,
    ResidentController, ServerAddress, channel, member_status,
};
use vireo_controller::{self as controller, EmbeddedController, check_tls};
use vireo_core::config::CoreConfig;
use vireo_core::placement::balance::HostId;
use vireo_fabric::identity::TlsError;
use vireo_fabric::{Role, Security};
use vireo_ops::api::{self, DrainError, Status, StatusFilter, StatusSource};
use vireo_ops::config::{ApiConfig, N2Config, N4Config, SliceRuntime, WorkerModel};
use vireo_ops::metrics::Metrics;
use vireo_ops::n4::{self, N4Identity};
use vireo_ops::reload::Reload;
use vireo_ops::sbi::SbiConfig;
use vireo_sctp::{BindError, Endpoint, EndpointSnapshot, Waker};
use vireo_subscribers::{Store, UdmConfig};
use vireo_types::{DeregistrationCause, Supi};
use vireo_upf::UpfHandle;

/// Maximum time for which a stopping host waits until other hosts have its UEs.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which a replica may leave copies unacknowledged. It is shorter than the
/// retention of sent effects and inputs, in case one of the two hosts must be evicted for it.
const REPLICA_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Polling interval of a stopping host.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Configuration of a cluster's balancer.
#[derive(Debug)]
pub struct BalancerConfig {
    /// Settings that decisions depend on.
    pub core: CoreConfig,
    /// Slices in the order of `core.slices`.
    pub slices: Vec<SliceRuntime>,
    pub n2: N2Config,
    pub n4: N4Config,
    /// Address and settings of the status interface.
    pub api: ApiConfig,
    pub cluster: ClusterConfig,
    /// Embedded UPF, if any.
    pub upf: Option<Arc<UpfHandle>>,
    /// What the API manages besides the core.
    pub management: Management,
}

/// Running balancer of a cluster.
#[derive(Debug)]
pub struct BalancerNode {
    stopper: StopHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// Controller, if the only balancer runs it too.
    controller: Option<Arc<EmbeddedController>>,
    api: Option<api::Server>,
    source: Arc<BalancerSource>,
    driver: String,
}

impl BalancerNode {
    /// Starts the balancer, which joins its cluster. RAN nodes may connect from then on, and are
    /// answered when the hosts are there.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is unavailable, or if no controller accepts the balancer.
    pub fn start(config: BalancerConfig, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        BalancerNode::start_on(bind_ran(&config.n2)?, config, metrics)
    }

    /// Starts the balancer on an existing SCTP endpoint.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is unavailable.
    pub fn start_on(
        endpoint: Box<dyn Endpoint>,
        config: BalancerConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        if config.cluster.hot_restart_socket.is_some() {
            check_hot_restart(&config)?;
        }
        let security = secured_balancer(&config.cluster)?;
        BalancerNode::start_secured(endpoint, config, security, metrics)
    }

    /// Starts the balancer with this security of its connections.
    pub(crate) fn start_secured(
        endpoint: Box<dyn Endpoint>,
        config: BalancerConfig,
        security: Security,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let driver = endpoint.driver().to_owned();
        if config.cluster.hot_restart_socket.is_some() {
            endpoint.snapshot().map_err(HotRestartError::from)?;
        }
        let mut cluster = config.cluster;
        let mut address = cluster.balancer;
        let mut running = None;
        let several = !cluster.controllers.is_empty();
        if !several {
            // Members find the controller at the balancer's address, and the balancer listens at
            // another port.
            controller::check_scaling(cluster.scaling.as_ref())?;
            let fabric = |error| StartError::Fabric { address: cluster.balancer, error };
            let listener = TcpListener::bind(cluster.balancer).map_err(fabric)?;
            let fabric_config = (&cluster, &security);
            let embedded = EmbeddedController::new(listener, fabric_config, &config.slices, Arc::clone(&metrics));
            let controller = Arc::new(embedded);
            controller.begin(None).map_err(fabric)?;
            cluster.controllers = vec![controller.address().map_err(fabric)?.into()];
            (running, address) = (Some(controller), SocketAddr::new(cluster.balancer.ip(), 0));
        }
        let listener = TcpListener::bind(address).map_err(|error| StartError::Fabric { address, error })?;
        let fleet_config = FleetConfig {
            cluster: &cluster,
            security: &security,
            endpoints: &config.n2.addresses,
            core: &config.core,
            slices: &config.slices,
        };
        let mut fleet = Fleet::join(listener, fleet_config, Arc::clone(&metrics))?;
        if !several {
            fleet.set_only_balancer();
        }
        // Another balancer may take over, or another process if this is the only one.
        let identity = N4Identity { recovery: fleet.assignment().recovery, is_shared: true };
        let n4 = n4::bind(&config.core, &config.n4, identity, in_process(config.upf.as_ref()))?;
        let controller = running.clone();
        let (view, upf) = (fleet.view(), config.upf.clone());
        let source = Arc::new(BalancerSource { view, controller, upf: config.upf, started: Instant::now() });
        let (mut balancer, stopper) = Balancer::for_fleet(endpoint, n4, fleet, Arc::clone(&metrics))?;
        balancer.limit(&config.n2);
        if let Some(upf) = upf {
            balancer.set_node_callback(move |node, there| upf.set_node(node, there));
        }
        let api = vireo_api::start(&config.api, Arc::clone(&source) as _, metrics, config.management)?;
        if let Some(path) = &cluster.hot_restart_socket {
            let hot_restart = HotRestartListener::open(path, listens_by(api.as_ref())?, running.clone().map(resident))?;
            balancer.accept_hot_restarts(hot_restart)?;
        }
        let thread = std::thread::Builder::new().name("balancer".into()).spawn(move || balancer.run())?;
        Ok(BalancerNode { stopper, thread: Some(thread), controller: running, api, source, driver })
    }

    /// Replaces the running balancer with the same `cluster.handover` (hot restart). RAN nodes,
    /// UPFs, hosts and the controller continue with the new process on the same sockets.
    ///
    /// # Errors
    ///
    /// Returns an error if no balancer is running, or if it does not hand over; it then continues.
    pub fn take_over(config: BalancerConfig, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        BalancerNode::take_over_by(vireo_sctp::adopt, config, metrics)
    }

    /// The same, with a function that creates an SCTP endpoint of a configuration from its handoff.
    ///
    /// # Errors
    ///
    /// Same as [`BalancerNode::take_over`].
    pub fn take_over_by(
        adopt: impl Fn(&vireo_sctp::Config, EndpointSnapshot) -> Result<Box<dyn Endpoint>, BindError>,
        config: BalancerConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        check_hot_restart(&config)?;
        let security = secured_balancer(&config.cluster)?;
        let path = config.cluster.hot_restart_socket.as_ref().ok_or(HotRestartError::NoPath)?;
        let mut received = ReceivedState::request(path)?;
        let endpoint = adopt_ran(&config.n2, received.sctp()?, adopt)?;
        let driver = endpoint.driver().to_owned();
        let (listener, controller) = (received.api(), received.controller());
        // The mode must not change: with a separate controller there is none to continue.
        let several = !config.cluster.controllers.is_empty();
        if several == controller.is_some() {
            return Err(HotRestartError::Controller.into());
        }
        let controller = controller.map(|(listener, record)| {
            let fabric_config = (&config.cluster, &security);
            let embedded = EmbeddedController::new(listener, fabric_config, &config.slices, Arc::clone(&metrics));
            (Arc::new(embedded), record)
        });
        let by = SuccessorConfig {
            endpoint,
            n4: n4::settings(&config.core, &config.n4, N4Identity { recovery: received.recovery(), is_shared: true }),
            core: &config.core,
            slices: &config.slices,
            cluster: &config.cluster,
            security: &security,
            n2: &config.n2,
        };
        let (ready, stopper) = received.resume(by, Arc::clone(&metrics)).map_err(|error| match error {
            ResumeError::Link(error) => StartError::from(error),
            ResumeError::Io(error) => HotRestartError::from(error).into(),
        })?;
        let embedded = controller.as_ref().map(|(embedded, _)| Arc::clone(embedded));
        let (view, controller_of) = (ready.view(), embedded.clone());
        let source = Arc::new(BalancerSource { view, controller: controller_of, upf: None, started: Instant::now() });
        let api = api::Prepared::resume(listener, &config.api)?;
        let controller = controller.map(|(controller, record)| (resident(controller), record));
        let balancer = ready.serve(api.listener()?.map(OwnedFd::from), controller)?;
        // Not before the running process has passed on everything: otherwise this process would
        // receive its clients.
        let api = vireo_api::serve(api, Arc::clone(&source) as _, metrics, config.management)?;
        let thread = std::thread::Builder::new().name("balancer".into()).spawn(move || balancer.run())?;
        Ok(BalancerNode { stopper, thread: Some(thread), controller: embedded, api, source, driver })
    }

    /// Returns true if another process has replaced this one: nothing remains to be stopped.
    pub fn has_successor(&self) -> bool {
        self.stopper.has_successor()
    }

    /// Returns the controller, if the balancer runs it too.
    pub(crate) fn controller(&self) -> Option<&Arc<EmbeddedController>> {
        self.controller.as_ref()
    }

    /// Returns the status of the balancer for an API of the caller.
    pub(crate) fn source(&self) -> Arc<dyn StatusSource> {
        Arc::clone(&self.source) as _
    }

    /// Returns the SCTP driver and the reason for its selection.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the address of the status interface, if there is one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Applies the settings that can change at run time.
    pub fn reload(&self, reload: &Reload) {
        self.stopper.allow(reload.allow_lists());
    }

    /// Returns true if the balancer has ended by itself.
    pub fn has_failed(&self) -> bool {
        let controller = self.controller.as_ref().is_some_and(|controller| controller.has_failed());
        controller || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the number of iterations of the balancer: it grows at least once a second unless the
    /// thread hangs.
    pub fn progress(&self) -> u64 {
        self.stopper.progress()
    }

    /// Stops in order: informs hosts if the cluster ends with it, and shuts down associations.
    ///
    /// # Errors
    ///
    /// Returns the error with which the balancer ended before, if it did.
    pub fn stop(mut self) -> std::io::Result<()> {
        if let Some(controller) = &self.controller {
            controller.stop();
        }
        self.shut_down()
    }

    /// Stops in order: shuts down associations, ends the hosts by `end_hosts`, then the controller.
    ///
    /// # Errors
    ///
    /// Same as [`BalancerNode::stop`].
    pub(crate) fn stop_before(mut self, end_hosts: impl FnOnce()) -> std::io::Result<()> {
        let stopped = self.shut_down();
        end_hosts();
        if let Some(controller) = &self.controller {
            controller.stop();
        }
        stopped
    }

    fn shut_down(&mut self) -> std::io::Result<()> {
        self.stopper.stop();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

/// Returns the controller as the balancer of its process sees it.
fn resident(controller: Arc<EmbeddedController>) -> Arc<dyn ResidentController> {
    controller
}

/// Loads the security of a balancer, which is the controller too if there is no other.
fn secured_balancer(cluster: &ClusterConfig) -> Result<Security, TlsError> {
    cluster.check_listener(cluster.balancer)?;
    let own: &[Role] =
        if cluster.controllers.is_empty() { &[Role::Balancer, Role::Controller] } else { &[Role::Balancer] };
    Security::load(cluster.tls.as_ref(), own)
}

/// Returns an error if another process cannot continue such a balancer.
fn check_hot_restart(config: &BalancerConfig) -> Result<(), HotRestartError> {
    match config {
        BalancerConfig { upf: Some(_), .. } => Err(HotRestartError::Upf),
        BalancerConfig { cluster: ClusterConfig { tls: Some(_), .. }, .. } => Err(HotRestartError::Tls),
        _ => Ok(()),
    }
}

/// Returns the listening socket of a status interface.
fn listens_by(api: Option<&api::Server>) -> std::io::Result<Option<OwnedFd>> {
    api.map_or(Ok(None), api::Server::listener).map(|listener| listener.map(OwnedFd::from))
}

/// Configuration of a cluster's controller.
#[derive(Debug)]
pub struct ControllerConfig {
    /// Address and settings of the status interface.
    pub api: ApiConfig,
    pub cluster: ClusterConfig,
    /// Slices in the order of `core.slices`.
    pub slices: Vec<SliceRuntime>,
    /// Name of the cluster in etcd.
    pub name: String,
    /// What the API manages besides the core.
    pub management: Management,
}

/// Running controller in its own process.
#[derive(Debug)]
pub struct ControllerNode {
    running: controller::ControllerHandle,
    api: Option<api::Server>,
}

impl ControllerNode {
    /// Starts the controller. Members may join from then on, and those of a previous controller
    /// rejoin.
    ///
    /// # Errors
    ///
    /// Returns an error if none of the configured addresses is available.
    pub fn start(config: &ControllerConfig, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let ControllerConfig { api, cluster, slices, name, management } = config;
        let security = Security::load(cluster.tls.as_ref(), &[Role::Controller])?;
        cluster.etcd_tls.as_ref().map_or(Ok(()), check_tls)?;
        controller::check_scaling(cluster.scaling.as_ref())?;
        let unresolved = |error| StartError::Unresolved { key: "cluster.controller", error };
        let addresses = vireo_cluster::resolve(&cluster.controllers()).map_err(unresolved)?;
        for address in &addresses {
            cluster.check_listener(*address)?;
        }
        let is_open =
            |server: &&ServerAddress| server.address().is_none_or(|address| !address.ip().to_canonical().is_loopback());
        if let Some(address) = cluster.etcd.iter().filter(|_| cluster.etcd_tls.is_none()).find(is_open) {
            tracing::warn!(%address, "connections to etcd are not secured: the key of 5G-TMSIs goes there; set cluster.etcd-tls");
        }
        let fabric = |error| StartError::Fabric { address: addresses[0], error };
        let running = if cluster.etcd.is_empty() {
            let listener = TcpListener::bind(&addresses[..]).map_err(fabric)?;
            controller::ControllerHandle::start(listener, (cluster, &security), slices, false, &metrics)
                .map_err(fabric)?
        } else {
            controller::ControllerHandle::start_standby((cluster, &security), slices, name, &metrics).map_err(fabric)?
        };
        let source = ControllerSource { view: running.view(), drainer: running.drainer(), started: Instant::now() };
        let api = vireo_api::start(api, Arc::new(source), metrics, management.clone())?;
        Ok(ControllerNode { running, api })
    }

    /// Returns the address of the status interface, if there is one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Returns true if the controller has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.running.has_failed()
    }

    /// Stops the controller; its members continue.
    pub fn stop(mut self) {
        self.running.stop();
    }
}

/// Status source of a controller.
#[derive(Debug)]
struct ControllerSource {
    view: controller::View,
    drainer: controller::DrainHandle,
    started: Instant,
}

impl StatusSource for ControllerSource {
    fn status(&self, _: &StatusFilter) -> Option<Status> {
        // Never poisoned: the code under the lock does not panic.
        let view = self.view.lock().map_or_else(|_| controller::ControllerView::default(), |view| view.clone());
        let members = view.map.map(|map| member_status(&map, &view.machines));
        let (mut hosts, balancers) = members.unwrap_or_default();
        hosts.iter_mut().for_each(|host| host.cordoned = view.cordoned.contains(&host.host));
        let (version, uptime_s) = (env!("CARGO_PKG_VERSION").into(), self.started.elapsed().as_secs());
        let dead_hosts = view.dead_hosts;
        Some(Status { version, uptime_s, hosts, dead_hosts, balancers, ..Status::default() })
    }

    fn deregister(&self, _: Supi, _: bool, _: Option<DeregistrationCause>) -> Option<bool> {
        Some(false)
    }

    fn drain(&self, host: u16) -> Result<(), DrainError> {
        self.drainer.drain(host)
    }

    fn cordon(&self, host: u16, is_cordoned: bool) -> Result<(), DrainError> {
        self.drainer.cordon(host, is_cordoned)
    }
}

/// Status source of a balancer.
#[derive(Debug)]
struct BalancerSource {
    view: FleetView,
    /// Controller, if the balancer runs it too.
    controller: Option<Arc<EmbeddedController>>,
    upf: Option<Arc<UpfHandle>>,
    started: Instant,
}

impl StatusSource for BalancerSource {
    fn status(&self, _: &StatusFilter) -> Option<Status> {
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.started.elapsed().as_secs(),
            ..Status::default()
        };
        if let Ok(view) = self.view.lock() {
            (status.hosts, status.balancers) = (view.hosts.clone(), view.balancers.clone());
            status.dead_hosts.clone_from(&view.dead_hosts);
            let entry = |(upf, up): &(SocketAddr, bool)| api::UpfStatus {
                node: upf.to_string(),
                associated: *up,
                ..api::UpfStatus::default()
            };
            status.upfs = view.upfs.iter().map(entry).collect();
        }
        let mut view = self.controller.as_ref().map(|controller| controller.view()).unwrap_or_default();
        for host in &mut status.hosts {
            host.machine = view.machines.remove(&HostId(host.host)).map(String::from);
            host.cordoned = view.cordoned.contains(&host.host);
        }
        if let Some(upf) = &self.upf {
            let node = upf.n4().to_string();
            status.upfs.iter_mut().filter(|entry| entry.node == node).for_each(|entry| upf.fill_status(entry));
        }
        Some(status)
    }

    fn deregister(&self, _: Supi, _: bool, _: Option<DeregistrationCause>) -> Option<bool> {
        Some(false)
    }

    fn drain(&self, host: u16) -> Result<(), DrainError> {
        self.controller.as_ref().ok_or(DrainError::NoController)?.drain(host)
    }

    fn cordon(&self, host: u16, is_cordoned: bool) -> Result<(), DrainError> {
        self.controller.as_ref().ok_or(DrainError::NoController)?.cordon(host, is_cordoned)
    }
}

/// Configuration of a cluster's host.
#[derive(Debug)]
pub struct HostNodeConfig {
    pub host: HostConfig,
    /// Address and settings of the status interface.
    pub api: ApiConfig,
    /// Settings of the subscriber service.
    pub udm: UdmConfig,
    pub cluster: ClusterConfig,
    /// SBI settings of an AMF in SBA mode, which has no sessions itself.
    pub sbi: Option<SbiConfig>,
    /// What the API manages besides the core.
    pub management: Management,
}

/// Thread of a host's link.
type LinkThread = JoinHandle<Result<(), LinkError>>;

/// Threads of a host.
#[derive(Debug)]
enum HostThreads {
    /// Host and link; the replicator's thread ends with the host.
    Separate { host: JoinHandle<()>, link: LinkThread },
    /// All on one.
    Shared(LinkThread),
}

impl HostThreads {
    fn separate(host: Host, link: Link, copier: ReplicatorThread, queues: HostQueues) -> std::io::Result<Self> {
        let (input_sender, copying) = (queues.input_sender.clone(), copier.progress());
        spawn("copies", move || copier.run(&input_sender))?;
        let host = spawn("host", move || host.run())?;
        let link = spawn("link", move || link.run(queues, copying))?;
        Ok(HostThreads::Separate { host, link })
    }

    fn shared(parts: HostThread) -> std::io::Result<Self> {
        spawn("host", move || parts.run()).map(HostThreads::Shared)
    }

    /// Returns true if the thread of the host has ended.
    fn has_host_ended(&self) -> bool {
        match self {
            HostThreads::Separate { host, .. } => host.is_finished(),
            HostThreads::Shared(thread) => thread.is_finished(),
        }
    }

    /// Joins the threads that have ended; `link_ended`: also that of the link, with its result.
    fn end(self, link_ended: bool) -> Result<(), LinkError> {
        let link = match self {
            HostThreads::Separate { host, link } => {
                if host.is_finished() {
                    let _ = host.join();
                }
                link
            }
            HostThreads::Shared(thread) => thread,
        };
        if link_ended { link.join().unwrap_or(Ok(())) } else { Ok(()) }
    }
}

fn spawn<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}

/// Running host of a cluster.
#[derive(Debug)]
pub struct HostNode {
    inputs: HostSender,
    threads: HostThreads,
    ended: LinkStatus,
    watch: ReplicatorStatus,
    api: Option<api::Server>,
    source: Arc<ControlStatus>,
    number: u16,
}

impl HostNode {
    /// Finds the controller, joins, and starts the host.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no controller, if it refuses this host, or if a part does not
    /// start.
    pub fn start(config: HostNodeConfig, store: Store, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        config.cluster.check_listener(config.cluster.listen)?;
        let security = Security::load(config.cluster.tls.as_ref(), &[Role::Host])?;
        HostNode::start_secured(config, security, store, metrics)
    }

    /// Starts the host with this security of its connections.
    pub(crate) fn start_secured(
        mut config: HostNodeConfig,
        security: Security,
        store: Store,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let address = config.cluster.listen;
        let fabric = |error| StartError::Fabric { address, error };
        let listener = TcpListener::bind(address).map_err(fabric)?;
        let copies = listener.local_addr().map_err(fabric)?;
        let (link, welcome) = Link::join(&config.cluster, &security, copies)?;
        let number = welcome.host.0;
        // Authentication vectors of two hosts must never have the same sequence number (TS 33.102
        // C.1.1.2).
        config.udm.ind = (welcome.part.0 % 32) as u8;
        let silence = Duration::from_millis(welcome.heartbeat.0.into()) * welcome.heartbeat.1;
        let patience = (silence * 2).min(REPLICA_ANSWER_TIMEOUT);
        let (replicator, copier) =
            replicator::replicator(welcome.host, patience, (listener, security), Arc::clone(&metrics))?;
        let watch = replicator.watch();
        let waker = Waker::new()?;
        let is_inline = config.host.pools.worker_model == WorkerModel::Inline;
        let mut builder = match is_inline {
            true => HostBuilder::on_shared_thread(&config.host, HostWaker::shared_thread(waker.clone()))?,
            false => HostBuilder::new(&config.host)?,
        };
        let replication = config.cluster.replication;
        let replicas = replication.replicas_by_slice(config.host.slices.iter().map(|slice| slice.replicas));
        builder.join(Membership { welcome, replication, replicas, replicator });
        let inputs = builder.input_sender();
        if let Some(sbi) = &config.sbi {
            builder.connect_smf(sbi, &config.host)?;
        }
        let udm = start_udm(store, config.udm, inputs.clone())?;
        let source = Arc::new(ControlStatus {
            inputs: inputs.clone(),
            upf: None,
            upfs: upfs(&config.host.core),
            pools: pools(&config.host.core),
            gauge: builder.region_usage(),
            metrics: Arc::clone(&metrics),
            copies: Some(watch.clone()),
        });
        let (outbound, commands) = channel(COMMANDS, waker.clone());
        let host = Host::start(builder, config.host, udm, Arc::clone(&metrics), outbound)?;
        let api = vireo_api::start(&config.api, Arc::clone(&source) as _, metrics, config.management)?;
        let ended = link.ended();
        let queues = HostQueues { input_sender: inputs.clone(), commands, waker };
        let threads = match is_inline {
            true => HostThreads::shared(HostThread { host: Box::new(host), link, replicator: copier, queues })?,
            false => HostThreads::separate(host, link, copier, queues)?,
        };
        Ok(HostNode { inputs, threads, ended, watch, api, source, number })
    }

    /// Returns the status of the host for a parent process.
    pub(crate) fn source(&self) -> &ControlStatus {
        &self.source
    }

    /// Returns the host ID.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the address of the status interface, if there is one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Applies the settings that can change at run time.
    pub fn reload(&self, reload: Reload) {
        // A host that has ended is reported separately.
        let _ = self.inputs.send_urgent(Input::Reload(Box::new(reload)));
    }

    /// Returns true if the host has ended or was removed from its cluster.
    pub fn has_failed(&self) -> bool {
        self.ended.has_ended() || self.watch.is_fenced() || self.threads.has_host_ended()
    }

    /// Returns true if the host has drained: other hosts have its UEs.
    pub fn has_left(&self) -> bool {
        self.watch.has_left()
    }

    /// Wakes the host, and returns the number of its iterations: it grows at least once a second
    /// unless the thread hangs.
    pub fn progress(&self) -> u64 {
        self.inputs.wake();
        self.inputs.progress().count()
    }

    /// Drains the host and stops it. If draining takes too long, other hosts take over as from a
    /// dead host.
    ///
    /// # Errors
    ///
    /// Returns the reason if the host was removed from its cluster before.
    pub fn stop(self) -> Result<(), LinkError> {
        let ended = self.ended.has_ended();
        let _ = self.inputs.send_urgent(Input::Leave);
        let until = Instant::now() + LEAVE_TIMEOUT;
        while !self.has_failed() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
        let _ = self.inputs.send_urgent(Input::Stop);
        let until = Instant::now() + LEAVE_TIMEOUT;
        while !self.threads.has_host_ended() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
        // A thread that still runs ends with the process: the balancer has the host's effects, or
        // they are executed again.
        self.threads.end(ended)
    }
}
