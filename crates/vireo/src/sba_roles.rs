//! `vireo amf` and `vireo smf`: control-plane processes of SBA mode.
//!
//! Each runs until a signal ends it; `vireo upf` is the third process. All read the same file as
//! `vireo run`; `[sbi]` holds their addresses.

use crate::cluster_roles::{leave_sessions_to_smf, run_host};
use crate::logging;
use crate::reload::{self, Function, Reloader};
use crate::run::{Health, Signals, configure_management};
use std::path::PathBuf;
use std::sync::Arc;
use vireo_config::roles::{Prepared, prepare};
use vireo_config::{Config, Failure};
use vireo_node::control::Control;
use vireo_ops::metrics::Metrics;
use vireo_smf::{Smf, SmfConfig};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read the configuration from FILE [default: vireo.toml, if present]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AmfArgs {
    #[command(flatten)]
    common: Args,
    /// Join a balancer as one of several AMFs
    ///
    /// The AMF is a host of the configured cluster, behind `vireo balancer`, which terminates N2.
    /// Contexts are in a database (state.location). If an AMF fails, the other AMFs take over its
    /// UEs from there.
    #[arg(long)]
    join: bool,
}

/// Runs the AMF.
pub(crate) fn amf(args: &AmfArgs) -> Result<(), Failure> {
    let mut config = Config::load(args.common.config.as_deref())?;
    config.check_no_shards()?;
    if config.cluster.replication.is_on() {
        return Err(Failure(
            "replication.mode: an AMF of a service-based chain keeps no copies: remove the key".into(),
        ));
    }
    leave_sessions_to_smf(&mut config);
    if args.join {
        if !config.state.location.is_database() {
            let reason =
                "state.location: AMFs of a cluster have their contexts in a database, where the others find them";
            return Err(Failure(format!("{reason}: set it, or state.preset")));
        }
        let sbi = config.sbi.clone();
        return run_host(args.common.config.as_deref(), config, Some(sbi));
    }
    logging::start(&config.log)?;
    config.start_traces("amf")?;
    let mut reloader = Reloader::new(args.common.config.as_deref(), &config, Function::Amf);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let sbi = config.sbi.clone();
    let Prepared { mut control, store, metrics, .. } = prepare(config)?;
    control.sbi = Some(sbi.clone());
    configure_management(&mut control.management, &reloader, &signals);
    let slices = control.management.slices.clone();
    let control = Control::start(control, store, metrics)?;
    tracing::info!(sctp = control.driver(), api = ?control.api(), sbi = %sbi.own_amf(), smf = %sbi.smf, "AMF started");
    let reload = || {
        let Some(config) = reloader.read() else { return false };
        let reload = reload::reloadable(&config);
        slices.reload(&reload);
        control.reload(reload);
        true
    };
    let health = Health { has_failed: || control.has_failed(), progress: || control.progress().to_vec() };
    let failed = runtime.block_on(signals.unless("the AMF stops", health, reload));
    let stopped = control.stop();
    stopped.map_err(|e| Failure(format!("the N2 endpoint has failed: {e}; see the log")))?;
    if failed { Err(Failure("a part of the AMF has ended by itself; see the log".into())) } else { Ok(()) }
}

/// Runs the SMF.
pub(crate) fn smf(args: &Args) -> Result<(), Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    config.check_no_shards()?;
    logging::start(&config.log)?;
    let mut reloader = Reloader::new(args.config.as_deref(), &config, Function::Smf);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    if config.core.upfs.is_empty() {
        return Err(Failure(
            "there is no UPF: `vireo smf` needs upf.enabled to be true, or an [[external-upf]]".into(),
        ));
    }
    config.state.check_tls()?;
    config.unlock_state()?;
    let store = config.subscribers.open()?;
    let settings =
        SmfConfig { core: config.core, n4: config.n4, sbi: config.sbi, state: config.state, api: config.api };
    let smf = Smf::start(settings, store, Arc::new(Metrics::new()))?;
    tracing::info!(sbi = %smf.address(), api = ?smf.api(), "SMF started");
    let reload = || {
        let Some(config) = reloader.read() else { return false };
        smf.reload(reload::reloadable(&config));
        true
    };
    let health = Health { has_failed: || smf.has_failed(), progress: Vec::new };
    let failed = runtime.block_on(signals.unless("the SMF stops", health, reload));
    smf.stop().map_err(|e| Failure(format!("the N4 endpoint has failed: {e}; see the log")))?;
    if failed { Err(Failure("a part of the SMF has ended by itself; see the log".into())) } else { Ok(()) }
}
