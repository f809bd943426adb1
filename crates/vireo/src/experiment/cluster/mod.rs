//! Experiments with hosts behind a balancer, each in a namespace of its own.

pub(super) mod host_failure;
pub(super) mod host_scaling;
pub(super) mod recovery_time;
pub(super) mod simulator_validation;
pub(super) mod throughput;

use super::context::{ExperimentContext, Variant};
use super::steady::{Outcome, Steady, unix_us};
use super::variants;
use crate::cli::Failure;
use crate::lab::members::HostFault;
use std::time::Duration;
use vireo_simulator::analysis::saturation;
use vireo_simulator::analysis::timeline::{EventImpact, around};

/// As many as the paper has.
const HOSTS: usize = 3;
/// The part of a processor that each host has: three on one machine have as much as three machines of one size would.
const HOST_PART: f64 = 0.25;
/// Copies of each UE besides the owner's, as in the paper.
const REPLICAS: usize = 2;
/// UEs repeat a request after 1 s, and register anew after 5 s.
const PATIENCE: [&str; 4] = ["--retry", "1s", "--reattach", "5s"];
/// How long a host is stopped or cut off: its UEs are others' by then.
const AWAY_S: f64 = 1.0;
/// The worst latency is that of procedures that were due within so many seconds after the fault, however late they ended.
const SOON_S: f64 = 2.0;

/// Procedures per second that the search for the saturation begins with, and how long and how finely it searches.
const FIRST_GUESS: f64 = 2000.0;
const SEARCH_S: f64 = 3.0;
const SEARCH_STEPS: u32 = 3;
/// A core whose procedures take longer than this in the median does not keep up.
const LONGEST: Duration = Duration::from_millis(200);
/// The saturation in the short form, in which nobody searches for it.
const QUICK_LIMIT: f64 = 200.0;

/// Which commits hosts copy to others, and what waits for that: a name, `[replication] mode` and `ack`.
#[derive(Clone, Copy, Debug)]
struct ReplicationMode(&'static str, &'static str, &'static str);

const NO_COPIES: ReplicationMode = ReplicationMode("no copies", "none", "none");
const COLD_ONE: ReplicationMode = ReplicationMode("cold, ack one", "cold", "one");
const HOT_ONE: ReplicationMode = ReplicationMode("hot, ack one", "hot", "one");
const HOT_ALL: ReplicationMode = ReplicationMode("hot, ack all", "hot", "all");
/// All that there are.
const ALL_COPIES: [ReplicationMode; 7] = [
    NO_COPIES,
    ReplicationMode("cold, ack none", "cold", "none"),
    COLD_ONE,
    ReplicationMode("cold, ack all", "cold", "all"),
    ReplicationMode("hot, ack none", "hot", "none"),
    HOT_ONE,
    HOT_ALL,
];

impl ReplicationMode {
    /// Whether a host may fail and no UE be lost.
    fn is_safe(self) -> bool {
        self.1 == "hot" && self.2 != "none"
    }

    fn variant(self) -> Variant {
        let ReplicationMode(name, mode, ack) = self;
        let base = variants::decomposed(name, "NFs by slice and procedure on each host.", &[], 8, &[]);
        let replication = format!("\n[replication]\nmode = {mode:?}\nreplicas = {REPLICAS}\nack = {ack:?}\n");
        Variant { tables: base.tables.clone() + &replication, hosts: HOSTS, ..base }
    }
}

/// The stateful baseline: what a host knows is gone with it.
fn stateful() -> Variant {
    let about =
        "The stateful baseline: on each host one worker that does everything and keeps the contexts of its UEs.";
    Variant { about, hosts: HOSTS, ..variants::stateful(1) }
}

/// With its hosts capped, as they are where there are fewer processors than hosts. Not in the short form, whose hosts may be
/// slow by themselves.
fn capped(session: &ExperimentContext, variant: Variant) -> Variant {
    Variant { host_part: (!session.quick).then_some(HOST_PART), ..variant }
}

/// Service requests with UEs that are as patient as the paper's.
fn service_requests(session: &ExperimentContext, rate: f64, seconds: f64) -> Steady {
    Steady {
        kinds: vec![("service-request", 1.0)],
        rate,
        seconds,
        ues: if session.quick { 200 } else { 2000 },
        interval: Duration::from_millis(100),
        faults: Vec::new(),
        processors: Vec::new(),
        more: PATIENCE.map(str::to_owned).to_vec(),
        beside: None,
    }
}

/// The highest rate of a load, given by rate and seconds, that a cluster keeps up with; in the short form nobody searches.
fn saturation(
    session: &ExperimentContext,
    variant: &Variant,
    load: &dyn Fn(&ExperimentContext, f64, f64) -> Steady,
) -> Result<f64, Failure> {
    if session.quick {
        return Ok(QUICK_LIMIT);
    }
    let found = saturation::search(FIRST_GUESS, SEARCH_STEPS, |rate| {
        session.interrupt.check()?;
        let outcome = session.on_core(variant, &[], &load(session, rate, SEARCH_S))?;
        let kept_up = outcome.kept_up(LONGEST);
        eprintln!("experiment: {}: {rate:.0}/s: kept up: {kept_up}", variant.name);
        Ok::<_, Failure>(kept_up)
    })?;
    if found <= 0.0 {
        return Err(Failure(format!("the cluster ({}) keeps up with no load that was tried", variant.name)));
    }
    Ok(found)
}

/// What each configuration came to in each run, with both as a table begins its lines: the run, and the configuration's name.
fn lines<'a, T>(variants: &'a [Variant], rounds: &'a [Vec<T>]) -> impl Iterator<Item = ([String; 2], &'a T)> {
    rounds.iter().enumerate().flat_map(move |(run, round)| {
        let head = move |variant: &Variant| [(run + 1).to_string(), variant.name.to_owned()];
        variants.iter().zip(round).map(move |(variant, came_to)| (head(variant), came_to))
    })
}

/// What the failure of a host came to.
#[derive(Debug)]
struct HostFailureRun {
    outcome: Outcome,
    /// When it failed, in seconds of the timeline.
    at_s: f64,
    around: EventImpact,
}

impl HostFailureRun {
    fn lost(&self) -> f64 {
        self.outcome.result.lost as f64
    }

    fn failed(&self) -> f64 {
        self.outcome.result.failed_procedures as f64
    }

    /// UEs lost, of 100.
    fn lost_share(&self) -> f64 {
        self.lost() * 100.0 / self.outcome.result.ues.max(1) as f64
    }

    /// The worst latency of each piece of the timeline, by the seconds since the fault.
    fn worst_over_time(&self) -> Vec<(f64, f64)> {
        let bins = self.outcome.bins("all");
        bins.iter().filter(|bin| bin.done > 0).map(|bin| (bin.at_s - self.at_s, bin.max_ms)).collect()
    }
}

/// A load on a cluster in which the host with the most UEs fails after `before_s`.
fn host_fails(
    session: &ExperimentContext,
    variant: &Variant,
    load: &Steady,
    fate: HostFault,
    before_s: f64,
) -> Result<HostFailureRun, Failure> {
    let mut core = session.core(variant, load.subscribers(), &[])?;
    let (mut failed, mut away) = (None, None);
    let outcome = session.steady(&mut core, load, &mut |core, since_s| {
        if failed.is_none() && since_s >= before_s {
            let host = core.busiest_host()?;
            failed = Some(unix_us());
            core.fail_host(host, fate)?;
            away = Some(host);
        }
        match away.take_if(|_| since_s >= before_s + AWAY_S) {
            Some(host) => core.recover_host(host),
            None => Ok(()),
        }
    })?;
    core.stop()?;
    let Some(at_us) = failed else { return Err(Failure("the load was over before the host could fail".into())) };
    let at_s = (at_us as f64 - outcome.result.steady_began_unix_us as f64) / 1e6;
    let around = effect(&outcome, at_s);
    Ok(HostFailureRun { outcome, at_s, around })
}

/// What the fault did: to procedures that were due soon after it, and how long it lasted.
fn effect(outcome: &Outcome, at_s: f64) -> EventImpact {
    let bins = outcome.bins("all");
    let until = bins.last().map_or(0.0, |bin| bin.at_s);
    EventImpact { recovered_s: around(&bins, at_s, until - at_s).recovered_s, ..around(&bins, at_s, SOON_S) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::experiment::steady::tests::outcome;
    use crate::lab::core::{CoreOptions, config};
    use vireo_node::cluster::{Ack, Mode};
    use vireo_node::config::StateLocation;
    use vireo_simulator::faults::Kind;

    /// A failure at 1 s after which the worst took so long, and so many were lost.
    pub(super) fn failed(worst_ms: f64, lost: u64) -> HostFailureRun {
        let mut outcome = outcome(&[("service_request", 2)], Kind::Kill);
        outcome.result.lost = lost;
        outcome.timeline[11].1.max_ms = worst_ms;
        let around = effect(&outcome, 1.0);
        HostFailureRun { outcome, at_s: 1.0, around }
    }

    fn read(variant: &Variant) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let options = CoreOptions {
            slices: variant.slices.clone(),
            tables: variant.tables.clone(),
            hosts: variant.hosts,
            ..CoreOptions::default()
        };
        std::fs::write(&path, config(&options)).unwrap();
        Config::load(Some(&path)).unwrap_or_else(|e| panic!("{}: {e}", variant.name))
    }

    #[test]
    fn every_way_to_copy_is_accepted_and_means_what_it_says() {
        let of = |copies: ReplicationMode| read(&copies.variant()).cluster.replication;
        let hot = of(HOT_ONE);
        assert_eq!((hot.mode, hot.ack, hot.replicas), (Mode::Hot, Ack::One, REPLICAS));
        assert_eq!((of(NO_COPIES).mode, of(COLD_ONE).mode, of(HOT_ALL).ack), (Mode::None, Mode::Cold, Ack::All));
        assert!(ALL_COPIES.iter().all(|copies| of(*copies).replicas == REPLICAS));
        assert_eq!(ALL_COPIES.iter().filter(|copies| copies.is_safe()).count(), 2);
        let baseline = read(&stateful());
        assert_eq!((baseline.cluster.hosts, baseline.state.location), (3, StateLocation::Memory));
    }

    #[test]
    fn the_effect_is_that_of_the_fault() {
        let failed = failed(80.0, 0);
        assert_eq!((failed.around.usual_ms, failed.around.worst_ms), (2.0, 80.0));
        assert!((failed.around.recovered_s - 0.2).abs() < 1e-6, "{:?}", failed.around);
        assert!(failed.worst_over_time().iter().any(|(at, ms)| (at - 0.1).abs() < 1e-6 && *ms == 80.0));
    }
}
