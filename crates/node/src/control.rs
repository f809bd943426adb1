//! Control plane of one process: subscriber service, host, balancer, status API.
//!
//! The parts start in the order of their dependencies and stop in reverse.

use crossbeam_channel::{Sender, bounded};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use vireo_amf::{Host, HostBuilder, HostConfig, HostError, RegionUsage};
use vireo_api::Management;
use vireo_balancer::hot_restart::HotRestartError;
use vireo_balancer::{Balancer, BalancerParts, ENDPOINT_ASSOCIATIONS, StopHandle};
use vireo_cluster::replicator::ReplicatorStatus;
use vireo_cluster::{HostSender, HostWaker, Input};
use vireo_core::config::CoreConfig;
use vireo_n4::InProcess;
use vireo_ops::api::{
    self, MoveError, MoveRequest, MoveResult, PoolStatus, RelocateError, SlicesStatus, Status, StatusFilter,
    StatusSource, UePage, UeQuery,
};
use vireo_ops::clock::clock;
use vireo_ops::config::{ApiConfig, N2Config, N4Config, WorkerModel};
use vireo_ops::metrics::Metrics;
use vireo_ops::n4::{self, N4BindError, N4Identity};
use vireo_ops::reload::Reload;
use vireo_ops::sbi::SbiConfig;
use vireo_sctp::{BindError, Endpoint, EndpointSnapshot, HandoffError};
use vireo_subscribers::{Changes, Store, Udm, UdmConfig, UdmError, UdmOutput};
use vireo_types::{DeregistrationCause, Ltmsi, Supi};
use vireo_upf::UpfHandle;

/// Maximum wait of the status API for an answer of the host.
const STATUS_WAIT: Duration = Duration::from_secs(2);

/// Configuration of a control plane. The host and the balancer have the same allow list.
#[derive(Debug)]
pub struct ControlConfig {
    pub host: HostConfig,
    pub n2: N2Config,
    pub n4: N4Config,
    pub api: ApiConfig,
    pub udm: UdmConfig,
    /// The embedded UPF, if there is one.
    pub upf: Option<Arc<UpfHandle>>,
    /// SBI of the AMF in SBA mode, where a separate SMF has the sessions. `None` = the core has its
    /// own SMF.
    pub sbi: Option<SbiConfig>,
    /// What the API manages besides the core.
    pub management: Management,
}

/// Reasons why a control plane does not start. No part of it runs after an error.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A host name of the configuration is not known.
    #[error("{key}: {error}; check the name and the resolver of this machine")]
    Unresolved { key: &'static str, error: std::io::Error },
    /// The N2 endpoint cannot be bound.
    #[error("N2 does not start: {0}")]
    N2(#[from] BindError),
    /// The S1 endpoint cannot be bound.
    #[error("S1 does not start: {0}")]
    S1(#[source] BindError),
    /// The endpoints of N2 and S1 cannot be polled by one thread.
    #[error("N2 and S1 do not start together: {0}")]
    Pair(#[source] std::io::Error),
    /// The N4 endpoint cannot be bound.
    #[error(transparent)]
    N4(#[from] N4BindError),
    /// The subscriber service does not start.
    #[error(transparent)]
    Subscribers(#[from] UdmError),
    /// The host does not start.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The SBI client or server does not start.
    #[error(transparent)]
    Sbi(#[from] vireo_ops::sbi::SbiError),
    /// The listener of the fabric cannot be opened.
    #[error(
        "the fabric does not start on {address}: {error}; check cluster.controller, cluster.balancer and cluster.listen"
    )]
    Fabric { address: std::net::SocketAddr, error: std::io::Error },
    /// The TLS files of the fabric are unusable.
    #[error(transparent)]
    Tls(#[from] vireo_fabric::identity::TlsError),
    /// Etcd, which stores the controller state, is unusable.
    #[error(transparent)]
    Etcd(#[from] vireo_controller::EtcdError),
    /// The API server of Kubernetes, which scales the hosts, is not configured.
    #[error(transparent)]
    Kubernetes(#[from] vireo_controller::KubernetesError),
    /// The connection to the controller fails.
    #[error(transparent)]
    Link(#[from] vireo_cluster::LinkError),
    /// The hot restart of a balancer fails.
    #[error(transparent)]
    Handover(#[from] HotRestartError),
    /// The status API does not start.
    #[error(transparent)]
    Api(#[from] api::ApiError),
    /// The shards do not start.
    #[error(transparent)]
    Shards(#[from] crate::shards::error::ShardError),
    /// The operating system cannot start a thread.
    #[error("a thread cannot be started: {0}; see the limits on processes and memory")]
    Thread(#[from] std::io::Error),
}

/// A running control plane. Dropping it without [`Control::stop`] leaves its threads running until
/// the process exits.
#[derive(Debug)]
pub struct Control {
    inputs: HostSender,
    stopper: StopHandle,
    balancer: Option<JoinHandle<std::io::Result<()>>>,
    /// Absent if the host runs on the thread of the balancer.
    host: Option<JoinHandle<()>>,
    api: Option<api::Server>,
    driver: String,
    gauge: RegionUsage,
    metrics: Arc<Metrics>,
}

impl Control {
    /// Starts a control plane with a subscriber database.
    pub fn start(config: ControlConfig, store: Store, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let endpoint = bind_ran(&config.n2)?;
        Control::start_on(endpoint, config, store, metrics)
    }

    /// Starts a control plane on an existing N2 endpoint, for example one in memory. Of
    /// [`ControlConfig::n2`] only the limits and the allow list apply.
    pub fn start_on(
        endpoint: Box<dyn Endpoint>,
        config: ControlConfig,
        store: Store,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StartError> {
        // Fallible set-up comes first, so that an error leaves no part running.
        let driver = endpoint.driver().to_owned();
        let identity = N4Identity { recovery: n4::recovery_time_stamp(clock()), is_shared: false };
        let (settings, beside) = (config.host, config.upf.clone());
        let n4 = n4::bind(&settings.core, &config.n4, identity, in_process(config.upf.as_ref()))?;
        let is_inline = settings.pools.worker_model == WorkerModel::Inline;
        let mut builder = match is_inline {
            true => HostBuilder::on_shared_thread(&settings, HostWaker::shared_thread(endpoint.waker()))?,
            false => HostBuilder::new(&settings)?,
        };
        if let Some(sbi) = &config.sbi {
            builder.connect_smf(sbi, &settings)?;
        }
        let (inputs, gauge) = (builder.input_sender(), builder.region_usage());
        let udm = start_udm(store, config.udm, inputs.clone())?;
        let source = ControlStatus {
            inputs: inputs.clone(),
            upf: config.upf,
            upfs: upfs(&settings.core),
            pools: pools(&settings.core),
            gauge: builder.region_usage(),
            metrics: Arc::clone(&metrics),
            copies: None,
        };
        let parts = Balancer::with_local_host(endpoint, n4, inputs.clone(), Arc::clone(&metrics))?;
        let BalancerParts { mut balancer, commands: outbound, stopper } = parts;
        balancer.limit(&config.n2);
        if let Some(upf) = beside {
            balancer.set_node_callback(move |node, there| upf.set_node(node, there));
        }
        let host = Host::start(builder, settings, udm, Arc::clone(&metrics), outbound)?;
        // The API starts last, so that every client finds a working core.
        let api = vireo_api::start(&config.api, Arc::new(source), Arc::clone(&metrics), config.management)?;
        let host = match is_inline {
            true => {
                balancer.run_on_thread(Box::new(host));
                None
            }
            false => Some(std::thread::Builder::new().name("host".into()).spawn(move || host.run())?),
        };
        let balancer = std::thread::Builder::new().name("balancer".into()).spawn(move || balancer.run())?;
        Ok(Control { inputs, stopper, balancer: Some(balancer), host, api, driver, gauge, metrics })
    }

    /// Returns the SCTP driver and the reason for its choice.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the TCP address of the status API, if it has one.
    pub fn api(&self) -> Option<std::net::SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Updates the region-usage metrics, as the status API does periodically.
    pub fn gauge(&self) {
        self.gauge.read(&self.metrics);
    }

    /// Applies the reloadable part of the configuration.
    pub fn reload(&self, reload: Reload) {
        self.stopper.allow(reload.allow_lists());
        // A host that has ended is detected elsewhere.
        let _ = self.inputs.send_urgent(Input::Reload(Box::new(reload)));
    }

    /// Returns true if the balancer or host thread has ended unexpectedly.
    pub fn has_failed(&self) -> bool {
        self.balancer.as_ref().is_none_or(JoinHandle::is_finished)
            || self.host.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Wakes balancer and host, and returns the number of iterations of each. Each number grows at
    /// least once a second unless its thread hangs.
    pub fn progress(&self) -> [u64; 2] {
        self.inputs.wake();
        [self.stopper.progress(), self.inputs.progress().count()]
    }

    /// Stops in order: accepts no new messages, finishes queued ones, then shuts down the
    /// associations.
    ///
    /// # Errors
    ///
    /// Returns the error that ended the balancer, if it ended earlier.
    pub fn stop(mut self) -> std::io::Result<()> {
        self.stopper.stop();
        let result = self.balancer.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())));
        let _ = self.inputs.send_urgent(Input::Stop);
        if let Some(host) = self.host.take() {
            let _ = host.join();
        }
        result
    }
}

/// Starts the subscriber service. Its answers arrive in the input queue of a host.
pub(crate) fn start_udm(store: Store, config: UdmConfig, input_sender: HostSender) -> Result<Udm, UdmError> {
    Udm::start(store, config, clock(), move |output| {
        let input = match output {
            UdmOutput::Answer { token, answer } => {
                Input::Authentication { ltmsi: Ltmsi::from_raw(token as u32), answer: Box::new(answer) }
            }
            UdmOutput::Record { supi, is_repeated, subscription } => {
                Input::SubscriberRecord { supi, is_repeated, subscription: Box::new(subscription) }
            }
            UdmOutput::Changed(Changes::These(supis)) => Input::SubscribersChanged(Some(supis)),
            UdmOutput::Changed(Changes::Many) => Input::SubscribersChanged(None),
        };
        // A send fails only if the host has stopped with the core. The answer is then not needed.
        let _ = input_sender.send(input);
    })
}

/// Returns names and N4 addresses of the UPFs.
pub(crate) fn upfs(core: &CoreConfig) -> Vec<(String, SocketAddr)> {
    core.upfs.iter().map(|upf| (upf.name.clone(), upf.n4)).collect()
}

/// Returns the address pools, each with the number of its table in the state region.
pub(crate) fn pools(core: &CoreConfig) -> Vec<(usize, PoolStatus)> {
    let pools = core.dnns.iter().enumerate().flat_map(|(n, dnn)| {
        let v4 = dnn.ipv4_pool.map(|(network, length)| (2 * n, format!("{network}/{length}")));
        let v6 = dnn.ipv6_pool.map(|(network, length)| (2 * n + 1, format!("{network}/{length}")));
        let name = dnn.name.to_string();
        v4.into_iter()
            .chain(v6)
            .map(move |(table, cidr)| (table, PoolStatus { dnn: name.clone(), cidr, used: 0, size: 0 }))
    });
    pools.collect()
}

/// Binds the endpoints for RAN nodes: N2's, and S1's if there is one.
pub(crate) fn bind_ran(n2: &N2Config) -> Result<Box<dyn Endpoint>, StartError> {
    let endpoint = vireo_sctp::bind(&sctp(n2))?;
    if n2.s1.addresses.is_empty() {
        return Ok(endpoint);
    }
    let s1 = vireo_sctp::bind(&sctp_of_s1(n2)).map_err(StartError::S1)?;
    vireo_sctp::pair(endpoint, s1).map_err(StartError::Pair)
}

/// Continues the endpoints for RAN nodes of another process, each by `adopt`.
pub(crate) fn adopt_ran(
    n2: &N2Config,
    mut handoff: EndpointSnapshot,
    adopt: impl Fn(&vireo_sctp::Config, EndpointSnapshot) -> Result<Box<dyn Endpoint>, BindError>,
) -> Result<Box<dyn Endpoint>, StartError> {
    let s1 = handoff.s1.take();
    if s1.is_none() != n2.s1.addresses.is_empty() {
        return Err(HotRestartError::from(HandoffError::Pair).into());
    }
    let endpoint = adopt(&sctp(n2), handoff)?;
    let Some(s1) = s1 else { return Ok(endpoint) };
    let s1 = adopt(&sctp_of_s1(n2), *s1).map_err(StartError::S1)?;
    vireo_sctp::pair(endpoint, s1).map_err(StartError::Pair)
}

fn sctp_of_s1(n2: &N2Config) -> vireo_sctp::Config {
    vireo_sctp::Config {
        addresses: n2.s1.addresses.clone(),
        port: n2.s1.port,
        udp_local_port: n2.s1.udp_port,
        ..sctp(n2)
    }
}

fn sctp(n2: &N2Config) -> vireo_sctp::Config {
    vireo_sctp::Config {
        driver: n2.driver,
        addresses: n2.addresses.clone(),
        port: n2.port,
        listen: true,
        udp_local_port: n2.udp_port,
        udp_remote_port: n2.udp_peer_port,
        max_associations: ENDPOINT_ASSOCIATIONS,
        ..vireo_sctp::Config::default()
    }
}

/// Returns the access of a control plane to the UPF of this process, if there is one.
pub(crate) fn in_process(upf: Option<&Arc<UpfHandle>>) -> Option<Box<dyn InProcess>> {
    upf.and_then(|upf| upf.direct()).map(|upf| Box::new(upf) as _)
}

/// Status source that queries the host.
#[derive(Debug)]
pub(crate) struct ControlStatus {
    pub(crate) inputs: HostSender,
    pub(crate) upf: Option<Arc<UpfHandle>>,
    /// Names and N4 addresses of the UPFs.
    pub(crate) upfs: Vec<(String, SocketAddr)>,
    /// Address pools, by the number of their table in the region.
    pub(crate) pools: Vec<(usize, PoolStatus)>,
    pub(crate) gauge: RegionUsage,
    pub(crate) metrics: Arc<Metrics>,
    /// Replication status; only in a host of a cluster.
    pub(crate) copies: Option<ReplicatorStatus>,
}

impl ControlStatus {
    /// Sends a request about one UE to the host. Returns whether the UE exists, or `None` if the
    /// host does not answer in time.
    fn order(&self, order: impl FnOnce(Sender<bool>) -> Input) -> Option<bool> {
        let (reply, answer) = bounded(1);
        self.inputs.send_timeout(order(reply), STATUS_WAIT).ok()?;
        answer.recv_timeout(STATUS_WAIT).ok()
    }
}

impl StatusSource for ControlStatus {
    fn status(&self, filter: &StatusFilter) -> Option<Status> {
        let (reply, answer) = bounded(1);
        self.inputs.send_timeout(Input::Status { filter: filter.clone(), reply }, STATUS_WAIT).ok()?;
        let mut status: Status = answer.recv_timeout(STATUS_WAIT).ok()?;
        status.copies = self.copies.as_ref().map_or(0, ReplicatorStatus::copies);
        for worker in &mut status.workers {
            // A worker that has exited meanwhile has no CPU time.
            worker.cpu_us = vireo_ops::metrics::process::cpu_us_of(worker.pid).unwrap_or(0);
        }
        if let Some(upf) = &self.upf {
            let node = upf.n4().to_string();
            status.upfs.iter_mut().filter(|entry| entry.node == node).for_each(|entry| upf.fill_status(entry));
        }
        Some(status)
    }

    fn ues(&self, query: &UeQuery) -> Option<UePage> {
        let (reply, answer) = bounded(1);
        self.inputs.send_timeout(Input::Ues { query: query.clone(), reply }, STATUS_WAIT).ok()?;
        answer.recv_timeout(STATUS_WAIT).ok()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let numbers = self.gauge.numbers();
        let pools = self.pools.iter().filter_map(|(table, pool)| {
            let (used, size) = numbers.get(*table).copied().flatten()?;
            Some(PoolStatus { used: used.into(), size: size.into(), ..pool.clone() })
        });
        pools.collect()
    }

    fn slices(&self, counts: bool) -> SlicesStatus {
        self.upf.as_ref().map(|upf| upf.slices(counts)).unwrap_or_default()
    }

    fn move_users(&self, order: &MoveRequest) -> Result<MoveResult, MoveError> {
        self.upf.as_ref().ok_or(MoveError::NoSlices)?.move_users(order)
    }

    fn upkeep(&self) {
        self.gauge.read(&self.metrics);
    }

    fn count(&self) {
        self.gauge.count(&self.metrics);
    }

    fn deregister(&self, supi: Supi, again: bool, cause: Option<DeregistrationCause>) -> Option<bool> {
        self.order(|reply| Input::Deregister { supi, reregister: again, cause, reply })
    }

    fn relocate(&self, supi: Supi, to: &str) -> Result<(), RelocateError> {
        let Some((_, upf)) = self.upfs.iter().find(|(name, _)| name == to) else {
            let known: Vec<_> = self.upfs.iter().map(|(name, _)| name.as_str()).collect();
            return Err(RelocateError::UnknownUpf { name: to.to_owned(), known: known.join(", ") });
        };
        match self.order(|reply| Input::Relocate { supi, upf: *upf, reply }) {
            Some(true) => Ok(()),
            Some(false) => Err(RelocateError::NoUe),
            None => Err(RelocateError::Busy),
        }
    }

    fn locate(&self, supi: Supi) -> Option<bool> {
        self.order(|reply| Input::Locate { supi, reply })
    }
}
