//! Protection of servers with host names from UEs.

use crate::Config;
use crate::access::{ENTRIES, single};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Maximum time for which a start or reload waits for the addresses of host names.
const RESOLUTION_TIMEOUT: Duration = Duration::from_secs(3);

impl Config {
    /// Protects the present addresses of the controllers and of etcd that have host names from UEs.
    /// It waits for the resolver of the system, at most [`RESOLUTION_TIMEOUT`]. Names without an
    /// address are logged.
    pub fn protect_named_servers(&mut self) {
        let servers = self.cluster.controllers.iter().chain(&self.cluster.etcd);
        let names: Vec<_> = servers.filter(|server| server.address().is_none()).cloned().collect();
        let Some(upf) = self.upf.as_mut().filter(|_| !names.is_empty()) else { return };
        let (found, results) = mpsc::sync_channel(names.len());
        for name in names {
            let found = found.clone();
            // The resolver may take longer. Without a thread the name counts as one without an
            // address.
            let resolve = move || drop(found.send((name.to_string(), name.resolve())));
            let _ = std::thread::Builder::new().name("resolver".into()).spawn(resolve);
        }
        drop(found);
        let deadline = Instant::now() + RESOLUTION_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match results.recv_timeout(left) {
                Ok((_, Ok(addresses))) => {
                    let elsewhere = addresses.iter().map(SocketAddr::ip).filter(|address| !address.is_loopback());
                    upf.access.protected.extend(elsewhere.take(ENTRIES).map(single));
                }
                Ok((name, Err(error))) => {
                    tracing::warn!(name, %error, "server not protected from UEs: its name has no address; see upf.protect");
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    tracing::warn!("servers not protected from UEs: the resolver does not answer; see upf.protect");
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        parse(text, Env::prefixed("VIREO_TESTS_HAVE_NONE__")).and_then(|file| crate::check::config(&file))
    }

    #[test]
    fn named_servers_are_protected() {
        // A name that the machine itself resolves. Its loopback addresses need no rule.
        let own = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
        let mut config = load("cluster.controller = ['localhost:7770', 'no-such-host.invalid:7770']").unwrap();
        let before = config.upf.as_ref().unwrap().access.protected.len();
        config.protect_named_servers();
        assert_eq!(config.upf.as_ref().unwrap().access.protected.len(), before);
        let Ok(found) = std::net::ToSocketAddrs::to_socket_addrs(&(own.trim(), 7770)) else { return };
        let found: Vec<_> = found.map(|address| address.ip()).filter(|ip| !ip.is_loopback()).collect();
        let mut config = load(&format!("cluster.controller = '{}:7770'", own.trim())).unwrap();
        config.protect_named_servers();
        let upf = config.upf.unwrap();
        assert!(
            found.iter().all(|address| upf.access.protected.iter().any(|network| network.contains(*address))),
            "{found:?}"
        );
    }
}
