//! `vireo bench`: numbers of this machine. Core and emulator are separate processes, and what they use is what the
//! kernel counts. Every number is measured several times; the table shows the median and the spread.

mod balancer;
mod control;
pub(crate) mod host;
pub(crate) mod upf;

use crate::cli::Failure;
use clap::Subcommand;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The control plane: CPU per registration and session, sustained rate, latency, memory per UE
    Control(control::Args),
    /// The host: the same for messages in memory and with SCTP, service requests, ways to run NFs, idle, a million UEs
    Host(host::Args),
    /// The balancer: what it costs to choose a host, by the cluster's size, and what a message costs besides SCTP
    Balancer(balancer::Args),
    /// The user plane: time per packet against what the kernel can do at best, session set-up, memory per session
    Upf(upf::Args),
}

/// Does what `vireo bench` was asked.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.bench {
        Bench::Control(args) => control::run(args),
        Bench::Host(args) => host::run(args),
        Bench::Balancer(args) => balancer::run(args),
        Bench::Upf(args) => upf::run(args),
    }
}
