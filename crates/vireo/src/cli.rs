//! The commands and what they have in common. Exit codes: 0 done, 1 failed (one sentence on standard error), 2 the
//! command line is wrong (clap's).

use clap::{Parser, Subcommand};
use std::fmt;

/// An elastic 4G/5G mobile packet core.
#[derive(Debug, Parser)]
#[command(name = "vireo", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command of worker processes.
pub(crate) const NF_WORKER: &str = "nf-worker";
/// The command of data workers' processes.
pub(crate) const DATA_WORKER: &str = "data-worker";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A worker process of a core: started by it alone
    #[command(name = NF_WORKER, hide = true)]
    NfWorker,
    /// A data worker of a user plane: started by it alone
    #[command(name = DATA_WORKER, hide = true)]
    DataWorker,
    /// Run the whole core as one process
    Run(crate::run::Args),
    /// Run the controller of a cluster: it says who is in it, and which host has which UEs
    Controller(crate::cluster_roles::Args),
    /// Run a balancer of a cluster: it holds the RAN's associations and N4, hosts behind it run the procedures
    Balancer(crate::cluster_roles::BalancerArgs),
    /// Run a host of a cluster: it keeps UEs and runs their procedures
    Host(crate::cluster_roles::Args),
    /// Ask a cluster's controller, or a balancer, who is in it
    Cluster(crate::cluster_command::Args),
    /// Run an AMF whose sessions are an SMF's, which it asks over the service-based interface
    Amf(crate::sba_roles::AmfArgs),
    /// Run an SMF alone, for an AMF above and UPFs below
    Smf(crate::sba_roles::Args),
    /// Run a user plane alone, under any control plane that speaks PFCP
    Upf(crate::upf::Args),
    /// Measure this machine
    Bench(crate::bench::Args),
    /// Run core, RAN and data network in namespaces: register, session, traffic, leave
    Demo(crate::demo::Args),
    /// Check, show or explain configurations
    Config(crate::config::Args),
    /// Repeat an experiment of a paper and write its results
    Experiment(crate::experiment::Args),
    /// Plan how many modules of user plane a market and a density of devices need
    Plan(crate::plan::Args),
    /// Simulate a cluster: which hosts and NFs procedures go to, and how late they are
    Simulate(crate::simulate::Args),
    /// Make certificates for the processes of a cluster and of a service-based chain
    Pki(crate::pki::Args),
    /// Run gNBs and UEs against any 5G core
    Emulate(Box<crate::emulate::Args>),
    /// Put user packets on any UPF: generate them on N3, send them back on N6
    Traffic(crate::traffic::Args),
    /// Make a server far away: a proxy that holds what goes either way for a time
    Distance(crate::delay_proxy::Args),
    /// Show gNBs, UEs and sessions of a running core
    Status(crate::status::Args),
    /// Show how loaded a running core is: latency objectives, network functions, workers
    Top(crate::top::Args),
    /// List the slices of a running user plane, and move users between them
    Slice(crate::slice::Args),
    /// Add, import, export, list and remove subscribers
    Subscriber(crate::subscriber::Args),
}

/// Why a command failed: one sentence for a person, with the remedy.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(error.to_string())
    }
}
