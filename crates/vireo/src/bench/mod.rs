//! `vireo bench`: numbers of this machine. Core and emulator are separate processes, and what they use is what the
//! kernel counts. Every number is measured several times; the table shows the median and the spread.

mod control;

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
}

/// Does what `vireo bench` was asked.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.bench {
        Bench::Control(args) => control::run(args),
    }
}
