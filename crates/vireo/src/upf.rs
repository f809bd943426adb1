//! `vireo upf`: the user plane alone, for any control plane that speaks PFCP.
//!
//! A signal ends the process. It reads the same file as `vireo run` and uses only `[upf]`, `[dnn]`,
//! `[datapath]`, `[state]`, `[api]` and `[log]`.

use crate::logging;
use crate::reload::{Function, Reloader};
use crate::run::{Health, Signals};
use std::path::PathBuf;
use std::sync::Arc;
use vireo_config::worker_process::log_of_data_workers;
use vireo_config::{Config, Failure};
use vireo_ops::api;
use vireo_ops::metrics::Metrics;
use vireo_ops::state::DurableRecords;
use vireo_upf::{StandaloneStatus, start, start_stored};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read the configuration from FILE [default: vireo.toml, if present]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the UPF.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    logging::start(&config.log)?;
    config.start_traces("upf")?;
    config.protect_named_servers();
    let mut reloader = Reloader::new(args.config.as_deref(), &config, Function::Upf);
    let Some(mut upf) = config.upf.take() else {
        return Err(Failure("upf.enabled is false in the configuration: `vireo upf` needs it to be true".into()));
    };
    log_of_data_workers(Some(&mut upf), &config.log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    config.unlock_state()?;
    config.state.check_tls()?;
    let metrics = Arc::new(Metrics::new());
    let upf = match DurableRecords::from_state(&config.state) {
        Some(records) => start_stored(upf, &records, Arc::clone(&metrics))?,
        None => start(upf)?,
    };
    let upf = Arc::new(upf);
    upf.publish(&metrics);
    let source = Arc::new(StandaloneStatus::new(Arc::clone(&upf)));
    let api = api::Server::start(&config.api, source, metrics)?;
    tracing::info!(n4 = %upf.n4(), api = ?api.as_ref().and_then(api::Server::address), "UPF started");
    let reload = || {
        let Some(mut config) = reloader.read() else { return false };
        config.protect_named_servers();
        let Some(config) = config.upf else { return false };
        upf.reload(config);
        true
    };
    let health = Health { has_failed: || upf.has_failed(), progress: || vec![upf.progress()] };
    let failed = runtime.block_on(signals.unless("the UPF stops", health, reload));
    // The API holds a reference to the UPF. Its sockets and devices close with the last reference.
    drop(api);
    drop(upf);
    if failed { Err(Failure("a part of the UPF has ended by itself; see the log".into())) } else { Ok(()) }
}
