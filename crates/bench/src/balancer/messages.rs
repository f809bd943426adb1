//! CPU cost of a message for a cluster's balancer, without SCTP.
//!
//! The real balancer and the emulator run in this process, joined by SCTP associations in memory.
//! The hosts are processes behind the fabric. The kernel counts the CPU time of the balancer's
//! thread.

use crate::host::cpu::{CpuBreakdown, EMULATOR};
use crate::host::messages::{CORE, find, options};
use crate::host::variants::UNSHED;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vireo_config::Config;
use vireo_config::Failure;
use vireo_config::roles;
use vireo_emulator::run_with;
use vireo_lab::core::API;
use vireo_lab::files::CONFIG;
use vireo_lab::files::api;
use vireo_lab::options::CoreOptions;
use vireo_lab::process::Process;
use vireo_lab::provision::prepare;
use vireo_lab::{Interrupt, Lab};
use vireo_node::cluster::BalancerNode;
use vireo_ops::api::Status;
use vireo_ops::metrics::Metrics;
use vireo_sctp::memory::Network;

/// Number of hosts of the cluster.
pub(super) const HOSTS: usize = 3;
const UP_WITHIN: Duration = Duration::from_secs(30);

/// Returns the CPU time of the balancer's thread per NGAP message, in microseconds, while `ues` UEs
/// register.
pub(super) fn cost(lab: &Lab, ues: u32, interrupt: &Interrupt) -> Result<f64, Failure> {
    let warm_up = ues / 10;
    let subscribers = u64::from(warm_up + ues);
    let tables = format!("{UNSHED}\n[cluster]\nhosts = {HOSTS}\n[log]\nlevel = \"error\"\n");
    prepare(&CoreOptions { subscribers, tables, ..CoreOptions::default() })?;
    let mut config = Config::load(Some(Path::new(CONFIG)))?;
    let metrics = Arc::new(Metrics::new());
    let upf = config.upf.take().map(vireo_upf::start).transpose()?.map(Arc::new);
    let (network, at): (_, SocketAddr) = (Network::new(), CORE.parse()?);
    let listen =
        vireo_sctp::Config { addresses: vec![at.ip()], port: at.port(), listen: true, ..vireo_sctp::Config::default() };
    let balancer =
        BalancerNode::start_on(network.bind(&listen)?, roles::balancer(config, upf.clone()), Arc::clone(&metrics))?;
    let host = |_| {
        let mut command = Process::this_program();
        command.args(["host", "--config", CONFIG]).env("VIREO_API__LISTEN", "127.0.0.1:0");
        Process::start("host", &lab.core, &mut command, None)
    };
    let mut hosts = (0..HOSTS).map(host).collect::<Result<Vec<_>, _>>()?;
    await_hosts(interrupt)?;
    register(&network, 0, warm_up)?;
    let (spent, messages) = (balancer_us()?, messages_of(&metrics));
    register(&network, warm_up, ues)?;
    let (spent, messages) = (balancer_us()? - spent, messages_of(&metrics) - messages);
    for host in &mut hosts {
        let status = host.terminate()?;
        if !status.success() {
            return Err(Failure(format!("a host did not end in good order: {status}")));
        }
    }
    balancer.stop().map_err(|error| Failure(format!("the balancer in this process failed: {error}")))?;
    Ok(spent / messages)
}

/// Waits until the balancer serves RAN nodes.
fn await_hosts(interrupt: &Interrupt) -> Result<(), Failure> {
    let until = Instant::now() + UP_WITHIN;
    let hosts = || -> Result<usize, Failure> {
        let status: Status = serde_json::from_str(&api(API)?.fetch("/status?limit=0")?)?;
        Ok(status.hosts.len())
    };
    while !hosts().is_ok_and(|hosts| hosts == HOSTS) {
        interrupt.check()?;
        if Instant::now() > until {
            return Err(Failure(format!("the hosts are not there after {UP_WITHIN:?}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Registers `ues` UEs, starting with subscriber `first`, on the emulator's threads.
fn register(network: &Network, first: u32, ues: u32) -> Result<(), Failure> {
    let options = options(find("register")?, first, ues)?;
    let open = |_| Ok(network.bind(&vireo_sctp::Config::default())?);
    let emulator = std::thread::Builder::new().name(EMULATOR.into());
    let report = std::thread::scope(|scope| {
        let run = emulator.spawn_scoped(scope, || run_with(&options, &open, &mut |_| ()))?;
        let panicked = |_| Failure("a thread of the measurement panicked".into());
        Ok::<_, Failure>(run.join().map_err(panicked)??)
    })?;
    if report.is_success() {
        return Ok(());
    }
    let complaints: Vec<_> = report.failures.iter().chain(&report.violations).collect();
    Err(Failure(format!("{} of {ues} UEs registered: {complaints:?}", report.succeeded)))
}

/// Returns the CPU time of the balancer's thread so far, in microseconds.
fn balancer_us() -> Result<f64, Failure> {
    Ok(CpuBreakdown::read(&[])?.balancer)
}

/// Returns the number of NGAP messages so far, in both directions.
fn messages_of(metrics: &Metrics) -> f64 {
    let text = metrics.render();
    let of = |direction: &str| {
        let name = format!("vireo_ngap_messages_total{{direction={direction:?}}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok()).unwrap_or_default()
    };
    of("in") + of("out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::metrics::Flow;

    #[test]
    fn messages_of_both_directions_are_counted() {
        let metrics = Metrics::new();
        metrics.messages(Flow::NgapIn, 5);
        metrics.messages(Flow::NgapOut, 4);
        assert_eq!(messages_of(&metrics), 9.0);
    }
}
