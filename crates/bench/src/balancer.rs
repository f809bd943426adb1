//! `vireo bench balancer`: CPU cost of host selection and of NGAP messages.
//!
//! Measures the time to choose a host for a procedure, by the cluster's size, and the balancer's
//! CPU time per message without SCTP.

mod messages;

use crate::results::{Bound, Figure, Machine, Measured, OfferedLoad, Summary};
use std::hint::black_box;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant as Clock;
use vireo_config::Failure;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::load_table::{LoadTable, PoolReport};
use vireo_core::placement::balance::map::{BUCKETS, BucketMap, SliceBuckets};
use vireo_core::placement::balance::ring::WeightedHost;
use vireo_core::placement::balance::steer::{HostSet, Policy, SteeringRequest, select_host};
use vireo_core::schedule::estimate::ServiceTime;
use vireo_core::schedule::kind::NfKind;
use vireo_lab::files::create;
use vireo_lab::options::UE_NETWORKS;
use vireo_lab::{Interrupt, Lab};
use vireo_types::{Bucket, Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the short form: a functional check without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Repeat every measurement N times [default: 5; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: Option<u32>,
    /// Write the figures as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const SLICES: usize = 4;
const SIZES: [u16; 3] = [3, 100, 1000];
/// Limit of the time of one decision at the largest cluster size, in nanoseconds.
const MAX_DECISION_NS: f64 = 200.0;
/// Limit of the CPU time of one message without SCTP, in microseconds.
const MAX_MESSAGE_US: f64 = 3.0;

/// Balancer of a cluster with the buckets to choose hosts for.
struct Cluster {
    map: BucketMap,
    fleet: HostSet,
    board: LoadTable,
    /// Random order, so that the processor's caches do not help.
    buckets: Vec<Bucket>,
}

impl Cluster {
    fn new(hosts: u16) -> Self {
        let ids: Vec<HostId> = (0..hosts).map(HostId).collect();
        let weighted: Vec<WeightedHost> = ids.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
        let part = || SliceBuckets { weight: 1.0, replicas: 2, hosts: weighted.clone() };
        let map = BucketMap::new(1, &(0..SLICES).map(|_| part()).collect::<Vec<_>>());
        let pools = SLICES * NfKind::ALL.len();
        let mut board = LoadTable::new(pools, Duration::from_secs(3600));
        for host in &ids {
            let busy = f64::from(host.0 % 50) / 50.0;
            board.report(*host, busy, &vec![PoolReport { backlog: busy * 9.0, share: 0.5 }; pools], Instant(0));
        }
        let buckets = (0..BUCKETS).map(|n| Bucket::new((n * 1_549 % BUCKETS) as u16)).collect();
        Cluster { map, fleet: HostSet::new(ids), board, buckets }
    }

    /// Returns the time of one decision in nanoseconds, including recording the chosen host and the
    /// end of the procedure.
    fn nanos(&mut self, decisions: u64) -> f64 {
        let (time, slo) = (ServiceTime::new(27_000), Duration::from_millis(10));
        let start = Clock::now();
        for turn in 0..decisions {
            let bucket = self.buckets[turn as usize % BUCKETS];
            let pool = self.map.slice(bucket) * NfKind::ALL.len() + (turn % 3) as usize;
            let request = SteeringRequest { bucket, owners: self.map.owners(bucket), pool, time, slo, turn };
            let choice = black_box(select_host(Policy::SkewedCh, &request, &self.fleet, &self.board, Instant(turn)));
            if let Some(choice) = choice {
                self.board.on_sent(choice.host, pool, time);
                self.board.on_ended(choice.host, pool, time);
            }
        }
        start.elapsed().as_nanos() as f64 / decisions as f64
    }
}

/// Runs `vireo bench balancer`.
pub(crate) fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    let mut json = args.json.as_deref().map(create).transpose()?;
    let lab = Lab::build(&UE_NETWORKS)?;
    let interrupt = Interrupt::listen()?;
    let runs = args.runs.unwrap_or(if args.quick { 1 } else { 5 });
    let decisions = if args.quick { 20_000 } else { 5_000_000 };
    let mut figures = Vec::new();
    for hosts in SIZES {
        let mut cluster = Cluster::new(hosts);
        cluster.nanos(decisions / 10);
        let mut nanos = Vec::new();
        for _ in 0..runs {
            interrupt.check()?;
            nanos.push(cluster.nanos(decisions));
        }
        let measured = Measured::from_runs(nanos).ok_or_else(|| Failure("nothing was measured".into()))?;
        let figure = Figure::new(format!("steering decision, {hosts} hosts"), "ns", measured);
        let largest = SIZES.iter().all(|size| *size <= hosts);
        figures.push(if largest { figure.mark(Bound::AtMost(MAX_DECISION_NS)) } else { figure });
    }
    let ues = if args.quick { 300 } else { 10_000 };
    let costs = (0..runs).map(|_| messages::cost(&lab, ues, &interrupt)).collect::<Result<Vec<_>, _>>()?;
    let measured = Measured::from_runs(costs).ok_or_else(|| Failure("nothing was measured".into()))?;
    let name = format!("CPU of an NGAP message besides SCTP, {} hosts", messages::HOSTS);
    figures.push(Figure::new(name, "us", measured).mark(Bound::AtMost(MAX_MESSAGE_US)));
    let mut summary = Summary {
        experiment: "bench balancer".into(),
        about: "what it costs to choose a host for a procedure, and what a message costs".into(),
        paper: String::new(),
        commit: Some(commit.to_owned()),
        machine: Machine::read(),
        load: Some(OfferedLoad::new(
            "one decision, and one message of these UEs, after the other",
            [f64::from(ues)],
            "UEs",
        )),
        quick: args.quick,
        runs,
        configurations: vec![],
        figures,
        met: None,
        informative: None,
        notes: vec![
            format!(
                "Skewed consistent hashing, a primary and 2 replicas, {SLICES} slices; with what is kept of a procedure that \
                 begins and of one that ends."
            ),
            format!(
                "A message: {ues} UEs register at {} hosts, each a process behind the fabric, with SCTP associations in memory; \
                 the kernel's count of the balancer's thread, for each message that the RAN sends or gets.",
                messages::HOSTS
            ),
        ],
    };
    summary.judge(None);
    print!("{summary}");
    if let Some(file) = &mut json {
        file.write_all(&serde_json::to_vec_pretty(&summary)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_finds_a_host_of_the_bucket() {
        let mut cluster = Cluster::new(100);
        assert!(cluster.nanos(10_000) > 0.0);
        let (time, slo) = (ServiceTime::new(27_000), Duration::from_millis(10));
        for bucket in cluster.buckets.iter().copied() {
            let owners = cluster.map.owners(bucket);
            let request = SteeringRequest { bucket, owners, pool: 0, time, slo, turn: 0 };
            let choice = select_host(Policy::SkewedCh, &request, &cluster.fleet, &cluster.board, Instant(0));
            assert!(choice.is_some_and(|choice| owners.has(choice.host) && choice.estimate.is_some()));
        }
    }
}
