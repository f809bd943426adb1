//! `vireo traffic`: user packets for any UPF.
//!
//! `generate` emulates the RAN and, on request, the control plane. `respond` returns every packet
//! on N6. `mutate` emulates a hostile control plane.

mod generate;
mod mutate;
mod options;
mod respond;

use clap::Subcommand;
use vireo_config::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    traffic: Traffic,
}

#[derive(Debug, Subcommand)]
enum Traffic {
    /// Send uplink packets of many users from emulated gNBs and count replies
    Generate(Box<generate::Args>),
    /// Return the packets of `generate` from N6
    Respond(respond::Args),
    /// Send mutated PFCP to a UPF and check another control plane's sessions
    Mutate(Box<mutate::Args>),
}

/// Runs `vireo traffic`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.traffic {
        Traffic::Generate(args) => generate::run(args),
        Traffic::Respond(args) => respond::run(args),
        Traffic::Mutate(args) => mutate::run(args),
    }
}
