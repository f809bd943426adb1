//! `vireo controller`, `vireo balancer` and `vireo host`: roles of a cluster.
//!
//! Each role runs until a signal ends it and reads the same file as `vireo run`. A balancer also
//! runs the user plane of `[upf]`; the other roles have none.

use crate::logging;
use crate::reload::{self, Function, Reloader};
use crate::run::{Health, Signals, configure_management};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vireo_config::worker_process::log_of_data_workers;
use vireo_config::{Config, Failure, SubscribersConfig, roles};
use vireo_node::cluster::{BalancerNode, ControllerConfig, ControllerNode, HostNode};
use vireo_ops::metrics::Metrics;
use vireo_ops::sbi::SbiConfig;
use vireo_subscribers::Store;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read the configuration from FILE [default: vireo.toml, if present]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BalancerArgs {
    #[command(flatten)]
    common: Args,
    /// Replace the running balancer that has the same cluster.handover
    ///
    /// The new process takes over on this machine. RAN nodes, UPFs and hosts keep their
    /// connections.
    #[arg(long)]
    take_over: bool,
    /// Serve N2 only, for AMFs behind this balancer
    ///
    /// The hosts are AMFs in SBA mode (`vireo amf --join`). Their SMF holds the PFCP associations.
    #[arg(long)]
    n2_only: bool,
}

/// Runs a balancer.
pub(crate) fn balancer(args: &BalancerArgs) -> Result<(), Failure> {
    let take_over = args.take_over;
    let mut config = Config::load(args.common.config.as_deref())?;
    config.check_no_shards()?;
    if args.n2_only {
        leave_sessions_to_smf(&mut config);
    }
    logging::start(&config.log)?;
    config.start_traces("balancer")?;
    let mut reloader = Reloader::new(args.common.config.as_deref(), &config, Function::Balancer);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let metrics = Arc::new(Metrics::new());
    config.protect_named_servers();
    log_of_data_workers(config.upf.as_mut(), &config.log);
    let upf = config.upf.take().map(vireo_upf::start).transpose()?.map(Arc::new);
    if let Some(upf) = &upf {
        upf.publish(&metrics);
    }
    let hosts = config.cluster.hosts;
    let mut settings = roles::balancer(config, upf.clone());
    configure_management(&mut settings.management, &reloader, &signals);
    let slices = settings.management.slices.clone();
    let node = match take_over {
        true => BalancerNode::take_over(settings, metrics)?,
        false => BalancerNode::start(settings, metrics)?,
    };
    tracing::info!(take_over, sctp = node.driver(), api = ?node.api(), hosts, "balancer started; waiting for hosts");
    let has_failed = || node.has_failed() || upf.as_ref().is_some_and(|upf| upf.has_failed());
    let progress = || {
        let upf = upf.as_ref().map(|upf| upf.progress());
        std::iter::once(node.progress()).chain(upf).collect()
    };
    let reload = || {
        let Some(mut config) = reloader.read() else { return false };
        let reload = reload::reloadable(&config);
        slices.reload(&reload);
        node.reload(&reload);
        config.protect_named_servers();
        if let (Some(upf), Some(config)) = (&upf, config.upf.take()) {
            upf.reload(config);
        }
        true
    };
    let failed = runtime.block_on(signals.unless("the balancer stops", Health { has_failed, progress }, reload));
    if node.has_successor() {
        return Ok(());
    }
    let stopped = node.stop();
    drop(upf);
    stopped.map_err(|e| Failure(format!("the balancer has ended: {e}; see the log")))?;
    if failed { Err(Failure("a part of the balancer has ended by itself; see the log".into())) } else { Ok(()) }
}

/// Removes the UPFs from the N4 configuration: a separate SMF owns the sessions and the PFCP
/// associations.
pub(crate) fn leave_sessions_to_smf(config: &mut Config) {
    config.core.smf_is_remote = true;
    config.core.upfs.clear();
    config.upf = None;
    config.n4.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
}

/// Runs the controller.
pub(crate) fn controller(args: &Args) -> Result<(), Failure> {
    let config = Config::load(args.config.as_deref())?;
    config.check_no_shards()?;
    logging::start(&config.log)?;
    let mut reloader = Reloader::new(args.config.as_deref(), &config, Function::Controller);
    if config.cluster.controllers.is_empty() {
        let reason = "cluster.controller says where it takes balancers and hosts: set it, for all of them";
        return Err(Failure(format!("{reason}; without it the only balancer is the controller")));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    // The cluster appears as one AMF.
    let (amf, plmn) = (&config.core, config.core.plmns.first());
    let plmn = plmn.map(ToString::to_string).unwrap_or_default();
    let name = format!("{plmn}-{}-{}-{}", amf.amf_region, amf.amf_set, amf.amf_pointer);
    let mut management = config.management();
    configure_management(&mut management, &reloader, &signals);
    let Config { slices, cluster, api, .. } = config;
    let settings = ControllerConfig { slices, name, cluster, api, management };
    let node = ControllerNode::start(&settings, Arc::new(Metrics::new()))?;
    tracing::info!(api = ?node.api(), "controller started");
    // Only the log level is reloadable here.
    let reload = || reloader.read().is_some();
    let meaning = "the controller stops: nothing else does";
    let health = Health { has_failed: || node.has_failed(), progress: Vec::new };
    let failed = runtime.block_on(signals.unless(meaning, health, reload));
    node.stop();
    if failed { Err(Failure("the controller has ended by itself; see the log".into())) } else { Ok(()) }
}

/// Runs a host.
pub(crate) fn host(args: &Args) -> Result<(), Failure> {
    run_host(args.config.as_deref(), Config::load(args.config.as_deref())?, None)
}

/// Runs a host. In SBA mode (`sbi` set) the host is an AMF that uses a separate SMF.
pub(crate) fn run_host(path: Option<&Path>, mut config: Config, sbi: Option<SbiConfig>) -> Result<(), Failure> {
    config.check_no_shards()?;
    logging::start(&config.log)?;
    config.start_traces("host")?;
    let mut reloader = Reloader::new(path, &config, Function::Host);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    config.state.check_tls()?;
    config.unlock_state()?;
    config.read_home_network_keys()?;
    let store = open(&config.subscribers)?;
    let mut settings = roles::host(config, sbi);
    configure_management(&mut settings.management, &reloader, &signals);
    let slices = settings.management.slices.clone();
    let node = HostNode::start(settings, store, Arc::new(Metrics::new()))?;
    tracing::info!(host = node.number(), api = ?node.api(), "host started");
    let reload = || {
        let Some(config) = reloader.read() else { return false };
        let reload = reload::reloadable(&config);
        slices.reload(&reload);
        node.reload(reload);
        true
    };
    let meaning = "the host leaves: others get its UEs";
    let health = Health { has_failed: || node.has_failed(), progress: || vec![node.progress()] };
    let ended = runtime.block_on(signals.unless(meaning, health, reload));
    let failed = ended && !node.has_left();
    node.stop()?;
    if failed { Err(Failure("the host was removed from its cluster; see the log".into())) } else { Ok(()) }
}

/// Opens the subscriber database. If several hosts start without one, one host creates it, and the
/// others may briefly see it incomplete.
fn open(subscribers: &SubscribersConfig) -> Result<Store, Failure> {
    for _ in 0..TRIES {
        if let Ok(store) = subscribers.open() {
            return Ok(store);
        }
        std::thread::sleep(RETRY_DELAY);
    }
    Ok(subscribers.open()?)
}

const TRIES: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_millis(300);
