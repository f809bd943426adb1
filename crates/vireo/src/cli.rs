//! Commands of the command line.
//!
//! Exit codes: 0 success, 1 failure (one sentence on standard error), 2 invalid command line (set
//! by clap).

use crate::optional;
use clap::{Parser, Subcommand};
use vireo_config::worker_process::{DATA_WORKER, NF_WORKER, SHARD};

/// Elastic 4G/5G mobile packet core
#[derive(Debug, Parser)]
#[command(name = "vireo", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a worker process (started by the core only)
    #[command(name = NF_WORKER, hide = true)]
    NfWorker,
    /// Run a data worker process (started by the user plane only)
    #[command(name = DATA_WORKER, hide = true)]
    DataWorker,
    /// Run a shard (started by the core only)
    #[command(name = SHARD, hide = true)]
    Shard,
    /// Run the whole core as one process tree
    Run(crate::run::Args),
    /// Run the cluster controller (membership, bucket map, scaling)
    Controller(crate::cluster_roles::Args),
    /// Run a cluster balancer (terminates N2, S1 and N4, selects hosts)
    Balancer(crate::cluster_roles::BalancerArgs),
    /// Run a cluster host (stores UE contexts, runs their procedures)
    Host(crate::cluster_roles::Args),
    /// Show cluster members; drain or cordon a host
    Cluster(crate::cluster_command::Args),
    /// Run an AMF that uses a separate SMF over the SBI
    Amf(crate::sba_roles::AmfArgs),
    /// Run an SMF that serves AMFs over the SBI and controls UPFs over N4
    Smf(crate::sba_roles::Args),
    /// Run a UPF for any control plane that speaks PFCP
    Upf(crate::upf::Args),
    /// Measure control plane and user plane on this machine
    Bench(optional::bench::Args),
    /// Run core, RAN and data network in namespaces and check every UE
    Demo(optional::demo::Args),
    /// Check, show or explain configurations
    Config(crate::config::Args),
    /// Run an experiment of a paper and write its results
    Experiment(optional::experiment::Args),
    /// Plan the number of user-plane modules for traffic and device density
    Plan(optional::plan::Args),
    /// Simulate a cluster: placement and latency of procedures, or faults
    Simulate(crate::simulate::Args),
    /// Create certificates for cluster and SBA processes
    Pki(crate::pki::Args),
    /// Run gNBs or eNBs, and UEs, against any core
    Emulate(Box<crate::emulate::Args>),
    /// Test any UPF (generate packets on N3, respond on N6, send mutated PFCP)
    Traffic(crate::traffic::Args),
    /// Run a TCP proxy that delays both directions by a fixed time
    Distance(crate::delay_proxy::Args),
    /// Show RAN nodes, UEs and sessions of a running core
    Status(crate::status::Args),
    /// Show the load of a running core (latency objectives, NFs, workers)
    Top(crate::top::Args),
    /// List slices of a running user plane, or migrate users between them
    Slice(crate::slice::Args),
    /// Create, list and revoke named tokens of the management API
    Token(crate::token::Args),
    /// Add, import, export, list, suspend and remove subscribers
    Subscriber(crate::subscriber::Args),
    /// Back up subscribers and configuration to a directory or a tar file
    Backup(crate::backup::BackupArgs),
    /// Restore subscribers, and a missing configuration, from a backup
    Restore(crate::backup::RestoreArgs),
}
