//! Entry point of the `vireo` command.
//!
//! Parses the command line and calls the module of the command. The commands live in their own
//! modules.

mod backup;
mod cli;
mod cluster_command;
mod cluster_roles;
mod commit;
mod config;
mod configuration;
mod delay_proxy;
mod emulate;
mod logging;
mod numbers;
mod optional;
mod pki;
#[cfg(feature = "experiment")]
mod plan;
mod reload;
mod run;
mod sba_roles;
mod service_manager;
mod shards;
mod simulate;
mod slice;
mod status;
mod subscriber;
mod token;
mod top;
mod traffic;
mod upf;

use clap::Parser;
use commit::COMMIT;
use std::process::ExitCode;
use std::time::Duration;

/// Allocator of every `vireo` process. Each procedure allocates and frees hundreds of small values;
/// session values stay, in millions. Transparent huge pages (`thp:always`) are off: in alternating
/// runs on one machine they made steps one fifth slower, and session set-up no faster.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Time limit for sending the last spans at the end of the process.
const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::NfWorker => run::worker(),
        cli::Command::DataWorker => run::data_worker(),
        cli::Command::Shard => shards::shard(),
        cli::Command::Run(args) => run::run(&args),
        cli::Command::Controller(args) => cluster_roles::controller(&args),
        cli::Command::Balancer(args) => cluster_roles::balancer(&args),
        cli::Command::Host(args) => cluster_roles::host(&args),
        cli::Command::Cluster(args) => cluster_command::run(&args),
        cli::Command::Amf(args) => sba_roles::amf(&args),
        cli::Command::Smf(args) => sba_roles::smf(&args),
        cli::Command::Upf(args) => upf::run(&args),
        cli::Command::Emulate(args) => emulate::run(&args),
        cli::Command::Bench(args) => optional::bench::run(&args, COMMIT),
        cli::Command::Experiment(args) => optional::experiment::run(&args, COMMIT),
        cli::Command::Plan(args) => optional::plan::run(&args),
        cli::Command::Simulate(args) => simulate::run(&args),
        cli::Command::Demo(args) => optional::demo::run(&args),
        cli::Command::Pki(args) => pki::run(&args),
        cli::Command::Status(args) => status::run(&args),
        cli::Command::Distance(args) => delay_proxy::run(&args),
        cli::Command::Traffic(args) => traffic::run(&args),
        cli::Command::Top(args) => top::run(&args),
        cli::Command::Config(args) => config::run(&args),
        cli::Command::Slice(args) => slice::run(&args),
        cli::Command::Token(args) => token::run(&args),
        cli::Command::Subscriber(args) => subscriber::run(args),
        cli::Command::Backup(args) => backup::backup(&args),
        cli::Command::Restore(args) => backup::restore(&args),
    };
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logging::last_words(&format!("vireo: {failure}"));
            ExitCode::FAILURE
        }
    };
    vireo_ops::traces::finish(FINAL_EXPORT_TIMEOUT);
    logging::finish();
    code
}
