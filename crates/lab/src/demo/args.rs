//! Options of `vireo demo`.

use super::cluster_event::Event;
use super::kill::Rate;
use super::seeds::Seeds;
use super::{report, sba};
use crate::members::HostFault;
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Emulate N UEs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(super) ues: u32,
    /// Spread the UEs over N gNBs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) gnbs: u32,
    /// Start R registrations per second
    #[arg(long, value_name = "R", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rate: u32,
    /// Select the radio access
    ///
    /// With "both" there are as many eNBs as gNBs.
    #[arg(long, value_enum, default_value_t = Rat::Nr)]
    pub(super) rat: Rat,
    /// Let N UEs move between NR and LTE, connected and idle, with --rat both
    ///
    /// They send packets meanwhile. [default: 50 or all in the scenario "full", else none]
    #[arg(long, value_name = "N")]
    #[arg(conflicts_with_all = ["cluster", "churn"])]
    pub(super) movers: Option<u32>,
    /// Prefer this NAS ciphering [default: nea2; with --pcap readable nea0]
    #[arg(long, value_enum)]
    pub(super) ciphering: Option<Ciphering>,
    /// Run this scenario in each UE (see `vireo emulate --list`)
    #[arg(long, value_name = "S", default_value = report::FULL)]
    pub(super) scenario: String,
    /// Run the scenario chaos with this seed, or with each of A..B
    ///
    /// Each seed has a core of its own. When the faults have ended, the core must have each UE with
    /// the registration, the identity and the sessions that the UE has.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["cluster", "churn"])]
    pub(super) seed: Option<Seeds>,
    /// Select the driver of user packets; all but sockets need root
    #[arg(long, value_enum, value_name = "D", default_value_t = Datapath::Sockets)]
    pub(super) datapath: Datapath,
    /// Kill worker processes at RATE while UEs are active, e.g. 5/s or 30/m
    #[arg(long, value_name = "R/s")]
    pub(super) kill_nf: Option<Rate>,
    /// Run the core as N shards, as `vireo run` does with pools.shards
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=16))]
    #[arg(conflicts_with_all = ["hosts", "cluster", "chain", "kill_nf"])]
    pub(super) shards: Option<u8>,
    /// Kill shards at up to RATE while UEs are active
    ///
    /// A shard is killed when every UE has its copies again.
    #[arg(long, value_name = "R/s", requires = "shards", conflicts_with = "churn")]
    pub(super) kill_shard: Option<Rate>,
    /// Kill data worker processes at RATE while UEs are active
    #[arg(long, value_name = "R/s")]
    pub(super) kill_data: Option<Rate>,
    /// Migrate users at RATE between slices, or UPFs with --upfs 2
    #[arg(long, value_name = "R/s")]
    pub(super) migrate: Option<Rate>,
    /// Spread sessions over N UPFs; the second one is its own process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(super) upfs: u8,
    /// Run AMF, SMF and UPF as separate processes over the SBI
    #[arg(long, value_enum, value_name = "CHAIN")]
    #[arg(conflicts_with_all = ["clusters", "kill_data", "migrate", "upfs"])]
    pub(super) chain: Option<Chain>,
    /// Keep state in this backend, with --chain [default: process memory]
    #[arg(long, value_enum, requires = "chain")]
    pub(super) state: Option<sba::StateBackend>,
    /// Load and commit at these points, with --state
    #[arg(long, value_enum, requires = "state", default_value_t = sba::PersistMode::Transaction)]
    pub(super) persist: sba::PersistMode,
    /// Share a UE's record among these functions, with --state
    ///
    /// One of the functions commits for all of them.
    #[arg(long, value_enum, requires = "state", default_value_t = sba::Scope::Function)]
    pub(super) scope: sba::Scope,
    /// Make database commits wait for this, with --state
    #[arg(long, value_enum, requires = "state", default_value_t = sba::WriteMode::Blocking)]
    pub(super) write: sba::WriteMode,
    /// Piggyback SM contexts on SMF responses and AMF requests, with --chain
    #[arg(long, requires = "chain")]
    pub(super) piggyback: bool,
    /// Accept the first N1N2 transfer as create response, with --chain
    #[arg(long, requires = "chain")]
    pub(super) implied: bool,
    /// Encode SBI messages in this format, with --chain
    #[arg(long, value_enum, requires = "chain", default_value_t = sba::Sbi::Json)]
    pub(super) sbi: sba::Sbi,
    /// Use mutual TLS between AMF and SMF, with --chain
    ///
    /// The demo creates the certificates.
    #[arg(long, requires = "chain")]
    pub(super) tls: bool,
    /// Kill this process in mid-run, with --state
    ///
    /// SMF and UPF restart at once. The AMF is one of two AMFs behind a balancer. The master is one
    /// of the Redis Cluster.
    #[arg(long, value_enum, requires = "state")]
    pub(super) kill: Option<sba::KillTarget>,
    /// Run a cluster of a balancer and N hosts
    #[arg(long, value_name = "N", group = "clusters", value_parser = clap::value_parser!(u16).range(1..=16))]
    #[arg(conflicts_with_all = ["kill_nf", "migrate", "upfs"])]
    pub(super) hosts: Option<u16>,
    /// Run a cluster through faults and changes, without losing a UE
    ///
    /// The cluster has etcd, a controller, two balancers and three hosts. Hosts are killed,
    /// stopped, isolated, added and drained, and a balancer and the controller are killed and
    /// restarted, while UEs are active. --rate is the rate of service requests.
    #[arg(long, group = "clusters", conflicts_with_all = ["kill_nf", "kill_data", "migrate", "upfs", "datapath", "scenario", "pcap"])]
    pub(super) cluster: bool,
    /// Run these events, in order, with --cluster [default: all, and adds]
    #[arg(long, value_enum, value_name = "EVENTS", value_delimiter = ',', requires = "cluster")]
    pub(super) events: Vec<Event>,
    /// Run a cluster under traffic while N hosts join and N are killed
    ///
    /// The cluster has a balancer and three hosts. Joins and kills alternate. With --shards, N
    /// shards are killed.
    #[arg(long, value_name = "N", group = "clusters", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    #[arg(conflicts_with_all = ["kill_nf", "kill_data", "migrate", "upfs", "datapath", "scenario", "pcap"])]
    pub(super) churn: Option<u16>,
    /// Run FILE, a `vireo` of another release, as the hosts that join, with --churn
    ///
    /// The cluster then has hosts of two builds, as in an upgrade host by host.
    #[arg(long, value_name = "FILE", requires = "churn")]
    pub(super) joining_program: Option<PathBuf>,
    /// Select the commits that hosts copy to each other
    #[arg(long, value_enum, default_value_t = Replication::Hot, requires = "clusters")]
    pub(super) replication: Replication,
    /// Select the hosts that serve procedures of known UEs [default: as the core]
    #[arg(long, value_enum, requires = "clusters")]
    pub(super) serve: Option<Serve>,
    /// Fail the host with the most UEs while UEs are active
    #[arg(long, value_enum, requires = "hosts")]
    pub(super) fail_host: Option<HostFault>,
    /// Fail TIME after the first registration [default: in mid-load]
    ///
    /// By default the host fails when all UEs have registered and resumed from idle.
    #[arg(long, value_name = "TIME", requires = "fail_host", value_parser = humantime::parse_duration)]
    pub(super) fail_after: Option<Duration>,
    /// Add a host TIME after the first registration
    #[arg(long, value_name = "TIME", requires = "hosts", value_parser = humantime::parse_duration)]
    pub(super) join_after: Option<Duration>,
    /// Remove the host with the most UEs TIME after the first registration
    #[arg(long, value_name = "TIME", requires = "hosts", value_parser = humantime::parse_duration)]
    pub(super) leave_after: Option<Duration>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Capture N2, N3 and N4 to a pcap file
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
    /// Write the core's log to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) core_log: Option<PathBuf>,
}

/// UEs that move between NR and LTE by default.
const MOVERS: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Rat {
    /// Use NR (5G)
    Nr,
    /// Use LTE (4G)
    Eps,
    /// Use NR for half of the UEs, and LTE for the others
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Ciphering {
    /// Use no ciphering
    Nea0,
    /// Use SNOW 3G
    Nea1,
    /// Use AES
    Nea2,
    /// Use ZUC
    Nea3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Datapath {
    /// Use UDP sockets and a TUN device
    Sockets,
    /// Use an XDP program in the kernel
    Xdp,
    /// Use AF_PACKET rings
    AfPacket,
    /// Use AF_XDP
    AfXdp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Chain {
    /// Use HTTP/2 between AMF and SMF (TS 29.502, TS 29.518), PFCP to the UPF
    Sba,
}

/// Selects the commits that are copied to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Replication {
    /// Copy no commits
    None,
    /// Copy commits that end a procedure
    Cold,
    /// Copy every commit
    Hot,
}

/// Selects the hosts that serve procedures of known UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Serve {
    /// Use the owner of the UE or a replica, chosen for each procedure
    Procedure,
    /// Use the owner of the UE
    Owner,
}

/// Returns the name of a value on the command line.
pub(super) fn text(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

impl Args {
    /// Returns the number of UEs that move between NR and LTE.
    pub(super) fn movers(&self) -> u32 {
        let is_default = self.rat == Rat::Both && self.scenario == report::FULL;
        self.movers.unwrap_or(if is_default { MOVERS } else { 0 }).min(self.ues)
    }

    /// Returns the number of AMFs behind a balancer; 0 means one AMF that terminates N2.
    pub(super) fn amfs(&self) -> u8 {
        self.kill.map_or(0, sba::KillTarget::amfs)
    }

    /// Returns true if UEs may wait longer for the SBA database than an overloaded core makes them
    /// wait.
    pub(super) fn is_slow(&self) -> bool {
        let dies = self.kill_nf.is_some() && self.state.is_some_and(|state| state != sba::StateBackend::Shm);
        dies || self.state == Some(sba::StateBackend::Mongodb) || self.kill == Some(sba::KillTarget::Master)
    }

    /// Returns true if UEs are spread over several hosts or AMFs.
    pub(super) fn has_several(&self) -> bool {
        self.hosts.is_some() || self.amfs() > 0
    }
}
