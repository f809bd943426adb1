//! Reload of the configuration of a running process on SIGHUP.
//!
//! Applies the keys that are reloadable, logs the keys that need a restart, and does not end the
//! process.

use crate::configuration::{ConfigurationFile, ReloadRequest};
use crate::logging;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::Sender;
use vireo_api::ConfigurationControl;
use vireo_config::{Config, ConfigError, Source, Written};
use vireo_ops::reload::Reload;

/// Role of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Core,
    Balancer,
    Controller,
    Host,
    Amf,
    Smf,
    Upf,
}

/// Reloadable keys, each with the roles that apply it. `*` matches any name.
const LIVE: [(&str, &[Function]); 12] = {
    use Function::{Amf, Balancer, Controller, Core, Host, Smf, Upf};
    [
        ("log.level", &[Core, Balancer, Controller, Host, Amf, Smf, Upf]),
        ("n2.allow", &[Core, Balancer, Host, Amf]),
        ("n4.allow", &[Core, Balancer, Smf]),
        ("upf.control-planes", &[Core, Balancer, Upf]),
        ("upf.n3-allow", &[Core, Balancer, Upf]),
        ("upf.protect", &[Core, Balancer, Upf]),
        ("upf.reachable", &[Core, Balancer, Upf]),
        ("upf.tunnel-ends", &[Core, Balancer, Upf]),
        ("slice.*.slo", &[Core, Host, Amf]),
        ("dnn.*.dns", &[Core, Host, Smf]),
        ("dnn.*.p-cscf", &[Core, Host, Smf]),
        ("dnn.*.mtu", &[Core, Host, Smf]),
    ]
};

/// Returns true if the role applies changes of the key, or of the table that contains it, at run
/// time.
pub(crate) fn is_live(function: Function, key: &str) -> bool {
    let fits = |pattern: &str| {
        let mut parts = key.split('.');
        pattern.split('.').all(|of| parts.next().is_some_and(|part| of == "*" || of == part))
    };
    LIVE.iter().any(|(pattern, functions)| functions.contains(&function) && fits(pattern))
}

/// Values of the configuration in force, by key.
#[derive(Clone, Debug)]
pub(crate) struct InForce(Arc<Mutex<Written>>);

impl InForce {
    pub(crate) fn new(config: &Config) -> Self {
        InForce(Arc::new(Mutex::new(config.written.clone())))
    }

    /// Returns the values.
    pub(crate) fn written(&self) -> Written {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reloads the configuration of a running process.
#[derive(Debug)]
pub(crate) struct Reloader {
    path: Option<PathBuf>,
    function: Function,
    written: InForce,
}

impl Reloader {
    /// Creates a reloader for a role that runs with `config`, read from `path`.
    pub(crate) fn new(path: Option<&Path>, config: &Config, function: Function) -> Self {
        Reloader { path: path.map(Path::to_path_buf), function, written: InForce::new(config) }
    }

    /// Returns the configuration file for the API, if the process has one.
    pub(crate) fn file(&self, requests: Sender<ReloadRequest>) -> Option<Arc<dyn ConfigurationControl>> {
        ConfigurationFile::open(self.path.as_deref(), self.function, self.written.clone(), requests)
    }

    /// Returns the configuration of the file, or `None` if the file is invalid. Logs the applied
    /// keys and the keys that need a restart.
    pub(crate) fn read(&mut self) -> Option<Config> {
        self.read_source().map(|(config, _)| config)
    }

    /// The same, with the text of the file.
    pub(crate) fn read_source(&mut self) -> Option<(Config, Source)> {
        let load = |source: Source| Ok::<_, ConfigError>((Config::from_source(&source)?, source));
        let (config, source) = match Source::read(self.path.as_deref()).and_then(load) {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::error!("reload: nothing is changed, because the configuration is wrong: {error}");
                return None;
            }
        };
        let changed = self.written.written().changed_keys(&config.written);
        let (live, later): (Vec<_>, Vec<_>) = changed.into_iter().partition(|key| is_live(self.function, key));
        if let Err(error) = logging::set_level(&config.log.level) {
            tracing::error!("log.level: {error}; it stays as it is");
        }
        tracing::info!(changed = live.join(", "), "reload: the configuration was read again");
        if !later.is_empty() {
            tracing::warn!(keys = later.join(", "), "these keys have changed and need a restart");
        }
        // Each reload logs the keys that need a restart until the process restarts.
        self.written.lock().adopt(&live, &config.written);
        Some((config, source))
    }
}

/// Returns the reloadable part of a configuration.
pub(crate) fn reloadable(config: &Config) -> Reload {
    Reload {
        n2_allow: config.n2.allow.clone(),
        n4_allow: config.n4.allow.clone(),
        slices: config.slices.clone(),
        dnns: config.core.dnns.clone(),
        log_level: config.log.level.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_where_the_function_takes_them() {
        for (function, key, live) in [
            (Function::Core, "log.level", true),
            (Function::Controller, "log.level", true),
            (Function::Core, "log.reveal-supi", false),
            (Function::Core, "dnn.internet.dns", true),
            (Function::Core, "dnn.internet.ipv4-pool", false),
            (Function::Upf, "dnn.internet.dns", false),
            (Function::Host, "slice.default.slo.paging", true),
            (Function::Controller, "slice.default.slo.paging", false),
            (Function::Balancer, "n2.allow", true),
            (Function::Core, "n2.port", false),
            (Function::Upf, "upf.n3-allow", true),
            (Function::Core, "upf.n3", false),
            (Function::Core, "n2", false),
        ] {
            assert_eq!(is_live(function, key), live, "{function:?} {key}");
        }
    }
}
