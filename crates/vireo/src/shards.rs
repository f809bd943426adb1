//! `vireo run` with `pools.shards` above 1, and the hidden command of a shard.

use crate::logging;
use crate::reload::{self, Function, Reloader};
use crate::run::{Health, Signals, configure_management, ignore_hangup, reload_upf};
use std::path::Path;
use std::sync::Arc;
use vireo_config::roles::{self, serve_this_core};
use vireo_config::worker_process::{log_of_data_workers, shard_program};
use vireo_config::{Config, Failure, Source};
use vireo_node::shards::{ConfigText, ShardMember, ShardedCore, ShardsConfig};
use vireo_ops::api::ApiSocket;
use vireo_ops::metrics::Metrics;
use vireo_ops::privileges;

/// Runs a core with several shards until a signal ends the process or a part fails.
pub(crate) fn run(path: Option<&Path>, mut config: Config, source: Source) -> Result<(), Failure> {
    let mut reloader = Reloader::new(path, &config, Function::Core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    config.state.check_tls()?;
    // The shards open the database. A wrong one is reported before anything starts.
    drop(config.subscribers.open()?);
    config.read_home_network_keys()?;
    let metrics = Arc::new(Metrics::new());
    log_of_data_workers(config.upf.as_mut(), &config.log);
    serve_this_core(&mut config)?;
    let upf = config.upf.take().map(vireo_upf::start).transpose()?.map(Arc::new);
    if let Some(upf) = &upf {
        upf.publish(&metrics);
    }
    let shards = ShardsConfig {
        count: config.shards,
        program: shard_program(),
        cores: config.pools.cores.clone(),
        stopped_after: config.pools.stopped_after,
        config: text(source),
    };
    let count = shards.count;
    let mut settings = roles::balancer(config, upf.clone());
    configure_management(&mut settings.management, &reloader, &signals);
    let slices = settings.management.slices.clone();
    let core = ShardedCore::start(settings, shards, metrics)?;
    tracing::info!(sctp = core.driver(), api = ?core.api(), shards = count, "core started");
    let has_failed = || core.has_failed() || upf.as_ref().is_some_and(|upf| upf.has_failed());
    let progress = || {
        let upf = upf.as_ref().map(|upf| upf.progress());
        std::iter::once(core.progress()).chain(upf).collect()
    };
    let reload = || {
        let Some((mut config, source)) = reloader.read_source() else { return false };
        let reload = reload::reloadable(&config);
        slices.reload(&reload);
        core.reload(&reload, &text(source));
        reload_upf(&mut config, upf.as_deref())
    };
    let failed = runtime.block_on(signals.unless("the core stops", Health { has_failed, progress }, reload));
    let stopped = core.stop();
    drop(upf);
    stopped.map_err(|e| Failure(format!("the N2 endpoint has failed: {e}; see the log")))?;
    if failed { Err(Failure("a part of the core has ended by itself; see the log".into())) } else { Ok(()) }
}

fn text(source: Source) -> ConfigText {
    ConfigText { name: source.name, text: source.text }
}

/// Parses a configuration that the parent has read.
fn parse(config: &ConfigText) -> Result<Config, Failure> {
    Ok(Config::from_source(&Source { name: config.name.clone(), text: config.text.clone() })?)
}

/// Runs this process as a shard of the core that started it.
pub(crate) fn shard() -> Result<(), Failure> {
    let kept = privileges::drop_all_but_nice();
    let mut member = ShardMember::begin()?;
    let result = serve(&mut member, &kept);
    if let Err(Failure(reason)) = &result {
        member.fail(reason);
    }
    result
}

fn serve(member: &mut ShardMember, kept: &privileges::RetainedPrivileges) -> Result<(), Failure> {
    let mut config = parse(member.config())?;
    // Standard error is the pipe of the parent to the file.
    config.log.file = None;
    logging::start(&config.log)?;
    logging::report_to_parent()?;
    config.start_traces("shard")?;
    ignore_hangup()?;
    kept.log();
    (config.api.listen, config.api.socket) = (None, ApiSocket::Off);
    config.read_home_network_keys()?;
    let store = config.subscribers.open()?;
    let shard = member.start(roles::host(config, None), store, Arc::new(Metrics::new()))?;
    // After all threads and files exist that are needed from the start.
    privileges::confine(privileges::Profile::Shard);
    let number = member.number();
    tracing::info!(shard = number, host = shard.host(), "shard started");
    let reload = |config: &ConfigText| {
        // The parent has parsed and logged it.
        let config = parse(config).inspect_err(|error| tracing::error!("the configuration is wrong: {error}")).ok()?;
        if let Err(error) = logging::set_level(&config.log.level) {
            tracing::error!("log.level: {error}; it stays as it is");
        }
        tracing::info!(shard = number, "the shard has applied the configuration");
        Some(reload::reloadable(&config))
    };
    member.serve(&shard, reload)?;
    Err(Failure("the shard was removed from its cluster; see the log".into()))
}
