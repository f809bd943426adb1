//! `vireo bench`: performance measurements on this machine.
//!
//! Core and emulator are separate processes; the kernel counts their resource use. Every number is
//! measured several times. The table shows the median and the spread.

#![forbid(unsafe_code)]

mod balancer;
mod cluster;
mod control;
pub mod host;
pub mod results;
pub mod upf;

use clap::Subcommand;
use vireo_config::Failure;
use vireo_emulator::Rats;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Measure the control plane (CPU, sustained rate, latency, memory per UE)
    Control(control::Args),
    /// Measure the host (in memory and SCTP, service requests, idle, a million UEs)
    Host(host::Args),
    /// Measure the balancer (host selection by cluster size, CPU per message)
    Balancer(balancer::Args),
    /// Measure a cluster (cost of procedures by the role of the serving host)
    Cluster(cluster::Args),
    /// Measure the user plane (packet time, session set-up, memory per session)
    Upf(upf::Args),
}

/// Parses the radio access technology of a measurement.
pub fn rat(text: &str) -> Result<Rats, String> {
    match Rats::from_name(text) {
        Some(rats) if rats != Rats::Both => Ok(rats),
        _ => Err("choose one of nr, eps".into()),
    }
}

/// Runs `vireo bench`. `commit` is the Git commit of the binary.
pub fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    match &args.bench {
        Bench::Control(args) => control::run(args, commit),
        Bench::Host(args) => host::run(args, commit),
        Bench::Balancer(args) => balancer::run(args, commit),
        Bench::Cluster(args) => cluster::run(args, commit),
        Bench::Upf(args) => upf::run(args, commit),
    }
}
