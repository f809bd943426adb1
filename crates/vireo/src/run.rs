//! `vireo run`: the whole core as one process.
//!
//! A signal ends the process. [`Signals`] also serves the other roles.

use crate::commit::COMMIT;
use crate::configuration::ReloadRequest;
use crate::reload::{self, Function, Reloader};
use crate::service_manager::ServiceManager;
use crate::{logging, shards};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use vireo_api::Management;
use vireo_config::roles::{Prepared, prepare, serve_this_core};
use vireo_config::{Config, Failure, Source, worker_process};
use vireo_node::control::Control;
use vireo_ops::config::{StateAnswer, StateCarry};
use vireo_ops::privileges;
use vireo_upf::UpfHandle;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read the configuration from FILE [default: vireo.toml, if present]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the configuration with all defaults, without secrets, and exit
    #[arg(long)]
    print_config: bool,
}

/// Interval between checks for a component that failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the core until a signal ends the process or a component fails.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = Source::read(args.config.as_deref())?;
    let mut config = Config::from_source(&source)?;
    if args.print_config {
        print!("{}", vireo_config::shown(args.config.as_deref())?);
        return Ok(());
    }
    if config.shards == 1 && config.cluster.replication.is_on() {
        return Err(Failure(
            "replication.mode: the one host of `vireo run` has no replica; remove the key, or run `vireo balancer` and \
             several `vireo host`"
                .into(),
        ));
    }
    if config.state.carry != StateCarry::None {
        return Err(Failure(
            "state.carry: `vireo run` has no separate SMF for piggybacking; remove the key, or run `vireo amf`, `vireo \
             smf` and `vireo upf`"
                .into(),
        ));
    }
    if config.state.answer != StateAnswer::Explicit {
        return Err(Failure(
            "state.answer: `vireo run` has no separate SMF that responds; remove the key, or run `vireo amf`, `vireo \
             smf` and `vireo upf`"
                .into(),
        ));
    }
    if config.state.scope.is_shared() {
        return Err(Failure(
            "state.scope: AMF and SMF of `vireo run` share one record in any case; remove the key, or run `vireo amf`, \
             `vireo smf` and `vireo upf`"
                .into(),
        ));
    }
    logging::start(&config.log)?;
    config.start_traces("core")?;
    if config.shards > 1 {
        return shards::run(args.config.as_deref(), config, source);
    }
    let mut reloader = Reloader::new(args.config.as_deref(), &config, Function::Core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    config.keep_contexts()?;
    let Prepared { mut control, store, metrics, upf } = prepare(config)?;
    configure_management(&mut control.management, &reloader, &signals);
    let slices = control.management.slices.clone();
    let control = Control::start(control, store, metrics)?;
    tracing::info!(sctp = control.driver(), api = ?control.api(), "core started");
    let has_failed = || control.has_failed() || upf.as_ref().is_some_and(|upf| upf.has_failed());
    let progress = || {
        let upf = upf.as_ref().map(|upf| upf.progress());
        control.progress().into_iter().chain(upf).collect()
    };
    let reload = || {
        let Some(mut config) = reloader.read() else { return false };
        let reload = reload::reloadable(&config);
        slices.reload(&reload);
        control.reload(reload);
        reload_upf(&mut config, upf.as_deref())
    };
    let failed = runtime.block_on(signals.unless("the core stops", Health { has_failed, progress }, reload));
    let stopped = control.stop();
    drop(upf);
    stopped.map_err(|e| Failure(format!("the N2 endpoint has failed: {e}; see the log")))?;
    if failed { Err(Failure("a part of the core has ended by itself; see the log".into())) } else { Ok(()) }
}

/// Sets the commit and the configuration file that the API of this process shows and changes.
pub(crate) fn configure_management(management: &mut Management, reloader: &Reloader, signals: &Signals) {
    management.commit = COMMIT.to_owned();
    management.configuration = reloader.file(signals.requests());
}

/// Applies the address lists of a reloaded configuration to the embedded UPF. Returns false if they
/// are wrong.
pub(crate) fn reload_upf(config: &mut Config, upf: Option<&UpfHandle>) -> bool {
    if let Err(Failure(error)) = serve_this_core(config) {
        tracing::error!("{error}; the lists that were there stay");
        return false;
    }
    if let (Some(upf), Some(config)) = (upf, config.upf.take()) {
        upf.reload(config);
    }
    true
}

/// Runs this process as a worker of the core that started it.
pub(crate) fn worker() -> Result<(), Failure> {
    let kept = privileges::drop_all();
    start_log()?;
    ignore_hangup()?;
    kept.log();
    Ok(vireo_amf::run_worker(set_log_level)?)
}

/// Runs this process as a data worker of the user plane that started it.
pub(crate) fn data_worker() -> Result<(), Failure> {
    let kept = privileges::drop_all();
    start_log()?;
    ignore_hangup()?;
    kept.log();
    Ok(vireo_ops::supervisor::data_worker()?)
}

/// Applies the log level that the host reloaded.
fn set_log_level(level: &str) {
    if let Err(error) = logging::set_level(level) {
        tracing::warn!("log.level: {error}; it stays as it is");
    }
}

/// Ignores SIGHUP. The signal is meant for the parent; `pkill -HUP vireo` must not end a worker.
pub(crate) fn ignore_hangup() -> std::io::Result<()> {
    // The handler outlives the runtime that registered it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(drop)
}

/// Starts the log with the settings that the parent passed.
fn start_log() -> Result<(), Failure> {
    logging::start(&worker_process::log_of_parent())?;
    Ok(logging::report_to_parent()?)
}

/// Health of the components of this process.
pub(crate) struct Health<F, P> {
    /// Returns true if a component has ended by itself.
    pub(crate) has_failed: F,
    /// Returns the number of iterations of each watched thread. Each grows at least once a second
    /// unless its thread hangs.
    pub(crate) progress: P,
}

/// Signals that end a process in order (SIGINT, SIGTERM), and the one that reloads the
/// configuration (SIGHUP).
pub(crate) struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    /// Requests of the API to read the configuration again.
    requests: mpsc::Receiver<ReloadRequest>,
    requester: mpsc::Sender<ReloadRequest>,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (requester, requests) = mpsc::channel(1);
        Ok(Signals {
            requests,
            requester,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns the sender of requests to read the configuration again.
    pub(crate) fn requests(&self) -> mpsc::Sender<ReloadRequest> {
        self.requester.clone()
    }

    /// Waits for a signal that ends the process, and logs it with `meaning`. Returns early with
    /// true if `has_failed` reports a failed component. Calls `reload` for each SIGHUP and each
    /// request of the API meanwhile; it returns true if it has applied the configuration.
    /// Tells the service manager that the process is ready, reloads, makes progress and stops.
    pub(crate) async fn unless(
        &mut self,
        meaning: &str,
        Health { has_failed, progress }: Health<impl Fn() -> bool, impl Fn() -> Vec<u64>>,
        mut reload: impl FnMut() -> bool,
    ) -> bool {
        let mut manager = ServiceManager::from_env();
        manager.report_ready();
        let interval = manager.watchdog_interval().map_or(CHECK_INTERVAL, |interval| interval.min(CHECK_INTERVAL));
        let failed = loop {
            tokio::select! {
                _ = self.term.recv() => {
                    tracing::info!(signal = "SIGTERM", "{meaning}");
                    break false;
                }
                _ = self.int.recv() => {
                    tracing::info!(signal = "SIGINT", "{meaning}");
                    break false;
                }
                _ = self.hangup.recv() => {
                    manager.report_reloading();
                    reload();
                    manager.report_ready();
                }
                Some(reply) = self.requests.recv() => {
                    manager.report_reloading();
                    // The API may have ended meanwhile.
                    let _ = reply.send(reload());
                    manager.report_ready();
                }
                () = tokio::time::sleep(interval) => {
                    if has_failed() {
                        break true;
                    }
                    manager.keep_alive(progress());
                }
            }
        };
        manager.report_stopping();
        failed
    }
}
