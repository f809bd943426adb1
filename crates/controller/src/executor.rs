//! Executor of scaling decisions: a program that starts hosts, or a StatefulSet of Kubernetes.

use super::kubernetes::{KubernetesError, ScaleClient};
use super::provisioner::{HostProvisioner, ProgramLauncher};
use super::stateful_set::{HostCounts, StatefulSetScaler};
use std::io;
use std::time::Instant;
use vireo_cluster::ScalingConfig;
use vireo_core::placement::cluster::Controller;

/// Changes the number of hosts.
#[derive(Debug)]
pub(super) enum ScalingExecutor {
    /// Hosts that have left end by themselves.
    Program(HostProvisioner),
    StatefulSet(StatefulSetScaler),
}

/// Checks that the configuration is complete in this process, and that it may read the files.
///
/// # Errors
///
/// Returns an error that names the key.
pub fn check_scaling(scaling: Option<&ScalingConfig>) -> Result<(), KubernetesError> {
    let stateful_set = scaling.and_then(|scaling| scaling.stateful_set.as_ref());
    stateful_set.map_or(Ok(()), |config| ScaleClient::new(config)?.check_files())
}

impl ScalingExecutor {
    /// Starts the configured executor; `None`: hosts are started externally.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is incomplete, or a resource is refused.
    pub(super) fn start(scaling: &ScalingConfig) -> io::Result<Option<Self>> {
        if let Some(config) = &scaling.stateful_set {
            return Ok(Some(ScalingExecutor::StatefulSet(StatefulSetScaler::start(config)?)));
        }
        let program = || Box::new(ProgramLauncher::new(scaling.start.clone()));
        let has_program = !scaling.start.is_empty();
        Ok(has_program.then(|| ScalingExecutor::Program(HostProvisioner::new(program()))))
    }

    /// Brings the number of hosts to that of the controller.
    pub(super) fn execute(&mut self, controller: &Controller) {
        let (all, missing) = controller.missing_hosts();
        match self {
            ScalingExecutor::Program(provisioner) => provisioner.request_missing((all, missing), Instant::now()),
            ScalingExecutor::StatefulSet(scaler) => {
                scaler.scale(HostCounts { needed: all, surplus: surplus(controller, all) });
            }
        }
    }
}

/// Returns how many hosts have joined beyond `all`. While buckets migrate or hosts drain it is 0,
/// since a host that leaves may come back.
fn surplus(controller: &Controller, all: usize) -> usize {
    let map = controller.map().filter(|map| controller.is_settled() && map.leaving.is_empty());
    map.map_or(0, |map| (map.hosts.len() + controller.idle()).saturating_sub(all))
}

#[cfg(test)]
mod tests {
    use super::surplus;
    use std::net::SocketAddr;
    use vireo_core::placement::cluster::{Controller, ControllerSettings, Member, Scaling, Secrets};
    use vireo_types::{Duration, Instant};

    #[test]
    fn idle_hosts_beyond_needed_are_surplus() {
        let scaling = Scaling { least: 1, most: 2, idle: 1, high: 0.7, low: 0.4, lasts: Duration::from_secs(1) };
        let settings = ControllerSettings {
            hosts: 1,
            max_hosts: 8,
            lossless: false,
            replicas: vec![0],
            migrates: true,
            max_migrating_buckets: 4096,
            scaling: Some(scaling),
            rebalance_pause: None,
            silence: Duration::from_secs(1),
            reconnect_timeout: Duration::from_secs(1),
            discovery_time: Duration::from_millis(1),
            is_embedded: false,
        };
        let at = |millis: u64| Instant(10_000_000 + millis * 1000);
        let mut controller = Controller::new(settings, Secrets { tmsi_key: [7; 16], recovery: 1 }, at(0));
        let now = at(100);
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let hosts = [1, 2, 3].map(|port| {
            let host = controller.join_host(address(port), None, now).unwrap();
            controller.on_ready(Member::Host(host), now);
            host
        });
        let balancer = controller.join_balancer(address(9), None, now).unwrap();
        controller.on_ready(Member::Balancer(balancer), now);
        controller.check_liveness(at(200));
        let epoch = controller.pending_state().and_then(|state| state.map).unwrap().epoch();
        assert!(controller.on_stored(epoch));
        assert_eq!((controller.missing_hosts(), controller.idle()), ((2, 0), 2));
        assert_eq!(surplus(&controller, 2), 0, "the host that serves has not reported yet");
        hosts.iter().for_each(|host| controller.on_caught_up(*host, epoch, *host));
        controller.check_liveness(at(300));
        assert_eq!((surplus(&controller, 2), surplus(&controller, 3)), (1, 0));
        // The serving host drains; afterwards none is left over.
        let serving = controller.map().unwrap().hosts[0].0;
        assert!(controller.drain(serving));
        controller.check_liveness(at(400));
        assert_eq!(surplus(&controller, 2), 0);
    }
}
