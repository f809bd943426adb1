//! `vireo run`: the whole core as one process.
//!
//! A signal ends the process. [`Signals`] and [`prepare`] also serve the other roles.

use crate::cli::Failure;
use crate::config::{self, Config, LogConfig};
use crate::logging;
use crate::reload::{self, Function, Reloader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vireo_node::control::{Control, ControlConfig};
use vireo_ops::config::{StateAnswer, StateCarry};
use vireo_ops::metrics::Metrics;
use vireo_ops::privileges;
use vireo_ops::supervisor::Program;
use vireo_subscribers::Store;
use vireo_upf::{UpfConfig, UpfHandle};

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
const WATCH: Duration = Duration::from_millis(500);

/// Runs the core until a signal ends the process or a component fails.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut config = Config::load(args.config.as_deref())?;
    if args.print_config {
        print!("{}", config::shown(args.config.as_deref())?);
        return Ok(());
    }
    if config.cluster.replication.is_on() {
        return Err(Failure(
            "replication.mode: `vireo run` has one host, and nowhere to keep copies: remove the key, or run `vireo balancer` \
             and several `vireo host`"
                .into(),
        ));
    }
    if config.state.carry != StateCarry::None {
        return Err(Failure(
            "state.carry: `vireo run` has its sessions itself, and nowhere to carry them: remove the key, or run `vireo amf`, \
             `vireo smf` and `vireo upf`"
                .into(),
        ));
    }
    if config.state.answer != StateAnswer::Explicit {
        return Err(Failure(
            "state.answer: `vireo run` has its sessions itself, and nobody answers it: remove the key, or run `vireo amf`, `vireo \
             smf` and `vireo upf`"
                .into(),
        ));
    }
    if config.state.scope.is_shared() {
        return Err(Failure(
            "state.scope: `vireo run` has AMF and SMF in one, whose state is one record as it is: remove the key, or run `vireo amf`, \
             `vireo smf` and `vireo upf`"
                .into(),
        ));
    }
    logging::start(&config.log)?;
    let mut reloader = Reloader::new(args.config.as_deref(), &config, Function::Core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    config.keep_contexts()?;
    let Prepared { control, store, metrics, upf } = prepare(config)?;
    let control = Control::start(control, store, metrics)?;
    tracing::info!(sctp = control.driver(), api = ?control.api(), "the core is up");
    let has_failed = || control.has_failed() || upf.as_ref().is_some_and(|upf| upf.has_failed());
    let reload = || {
        if let Some(mut config) = reloader.read() {
            control.reload(reload::of(&config));
            reload_upf(&mut config, upf.as_deref());
        }
    };
    let failed = runtime.block_on(signals.unless("the core stops", has_failed, reload));
    let stopped = control.stop();
    drop(upf);
    stopped.map_err(|e| Failure(format!("the N2 endpoint has failed: {e}; see the log")))?;
    if failed { Err(Failure("a part of the core has ended by itself; see the log".into())) } else { Ok(()) }
}

/// Applies the address lists of a reloaded configuration to the embedded UPF.
fn reload_upf(config: &mut Config, upf: Option<&UpfHandle>) {
    if let Err(Failure(error)) = serve_this_core(config) {
        tracing::error!("{error}; the lists that were there stay");
    } else if let (Some(upf), Some(config)) = (upf, config.upf.take()) {
        upf.reload(config);
    }
}

/// Configuration of a control plane, and the running embedded UPF.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) control: ControlConfig,
    pub(crate) store: Store,
    pub(crate) metrics: Arc<Metrics>,
    /// Embedded UPF, if configured. It must outlive the control plane.
    pub(crate) upf: Option<Arc<UpfHandle>>,
}

/// Allows the embedded UPF to associate with its own core, and with other control planes only if
/// `upf.control-planes` lists them.
fn serve_this_core(config: &mut Config) -> Result<(), Failure> {
    let Some(upf) = &mut config.upf else { return Ok(()) };
    let own = config.n4.listen.ip();
    upf.associations.or_only(own);
    match upf.associations.may_associate(own, &config.core.n4_node.id()) {
        true => Ok(()),
        false => Err(Failure(format!("upf.control-planes: this core's own {own} (n4.listen) is not in it; add it"))),
    }
}

/// Opens the subscriber database and starts the UPF. The UPF starts first so that the control plane
/// can associate with it.
pub(crate) fn prepare(mut config: Config) -> Result<Prepared, Failure> {
    config.state.check_tls()?;
    let metrics = Arc::new(Metrics::new());
    config.unlock_state()?;
    let store = config.subscribers.open()?;
    log_of_data_workers(config.upf.as_mut(), &config.log);
    serve_this_core(&mut config)?;
    let upf = config.upf.map(vireo_upf::start).transpose()?.map(Arc::new);
    if let Some(upf) = &upf {
        upf.publish(&metrics);
    }
    let control = ControlConfig {
        core: config.core,
        n2: config.n2,
        n4: config.n4,
        api: config.api,
        slices: config.slices,
        pools: config.pools,
        state: config.state,
        overload: config.overload,
        program: program(&config.log),
        udm: config.subscribers.udm,
        upf: upf.clone(),
        sbi: None,
    };
    Ok(Prepared { control, store, metrics, upf })
}

/// Environment variable of a worker process: its log level or directives.
const WORKER_LOG: &str = "VIREO_WORKER_LOG";
/// Environment variable of a worker process: log unmasked SUPIs.
const WORKER_REVEALS: &str = "VIREO_WORKER_REVEALS";
/// Environment variable of a worker process: log lines above the rate limit.
const WORKER_LOGS_ALL: &str = "VIREO_WORKER_LOGS_ALL";

/// Returns the program that starts worker processes, with the log settings of this process.
pub(crate) fn program(log: &LogConfig) -> Program {
    let mut program = Program::this([crate::cli::NF_WORKER]);
    tell_log(&mut program, log);
    program
}

/// Passes the log settings of this process to data worker processes, if configured.
pub(crate) fn log_of_data_workers(upf: Option<&mut UpfConfig>, log: &LogConfig) {
    if let Some(program) = upf.and_then(|upf| upf.processes.as_mut()) {
        tell_log(program, log);
    }
}

fn tell_log(program: &mut Program, log: &LogConfig) {
    program.env.push((WORKER_LOG.into(), log.level.clone().into()));
    if log.reveal_supi {
        program.env.push((WORKER_REVEALS.into(), "1".into()));
    }
    if !log.limit {
        program.env.push((WORKER_LOGS_ALL.into(), "1".into()));
    }
}

/// Runs this process as a worker of the core that started it.
pub(crate) fn worker() -> Result<(), Failure> {
    let kept = privileges::shed();
    log_as_told()?;
    ignore_hangup()?;
    kept.log();
    Ok(vireo_node::worker::run(set_log_level)?)
}

/// Runs this process as a data worker of the user plane that started it.
pub(crate) fn data_worker() -> Result<(), Failure> {
    let kept = privileges::shed();
    log_as_told()?;
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
fn ignore_hangup() -> std::io::Result<()> {
    // The handler outlives the runtime that registered it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(drop)
}

fn log_as_told() -> Result<(), Failure> {
    let level = std::env::var(WORKER_LOG).unwrap_or_else(|_| "info".into());
    let is_set = |name| std::env::var_os(name).is_some();
    logging::start(&LogConfig { level, reveal_supi: is_set(WORKER_REVEALS), limit: !is_set(WORKER_LOGS_ALL) })?;
    Ok(logging::report_to_parent()?)
}

/// Signals that end a process in order (SIGINT, SIGTERM), and the one that reloads the
/// configuration (SIGHUP).
pub(crate) struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the process, and logs it with `meaning`. Returns early with
    /// true if `has_failed` reports a failed component. Calls `reload` for each SIGHUP meanwhile.
    pub(crate) async fn unless(
        &mut self,
        meaning: &str,
        has_failed: impl Fn() -> bool,
        mut reload: impl FnMut(),
    ) -> bool {
        loop {
            tokio::select! {
                _ = self.term.recv() => {
                    tracing::info!(signal = "SIGTERM", "{meaning}");
                    return false;
                }
                _ = self.int.recv() => {
                    tracing::info!(signal = "SIGINT", "{meaning}");
                    return false;
                }
                _ = self.hangup.recv() => reload(),
                () = tokio::time::sleep(WATCH) => {
                    if has_failed() {
                        return true;
                    }
                }
            }
        }
    }
}
