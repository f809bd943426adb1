//! Experiments with hosts behind a balancer, each in a separate namespace.

pub(super) mod host_failure;
pub(super) mod host_scaling;
pub(super) mod placement;
pub(super) mod recovery_time;
pub(super) mod simulator_validation;
pub(super) mod throughput;

use super::context::{ExperimentContext, Variant};
use super::steady::{Outcome, Steady, unix_us};
use super::variants;
use crate::analysis::saturation;
use std::time::Duration;
use vireo_config::Failure;
use vireo_lab::members::HostFault;
use vireo_lab::timeline::{EventImpact, around};

/// Number of hosts, as in the paper.
const HOSTS: usize = 3;
/// Fraction of a processor per host. Three hosts on one machine then have as much as three machines
/// of equal size would have.
const HOST_PART: f64 = 0.25;
/// Copies of each UE besides the owner's, as in the paper.
const REPLICAS: usize = 2;
/// UEs retransmit a request after 1 s and register again after 5 s.
const PATIENCE: [&str; 4] = ["--retry", "1s", "--reattach", "5s"];
/// Time for which a host is stopped or isolated, in seconds. By its end other hosts own its UEs.
const AWAY_S: f64 = 1.0;
/// Window after the fault, in seconds. The worst latency is that of the procedures due in it,
/// however late they complete.
const SOON_S: f64 = 2.0;

/// Start of the saturation search in procedures per second, seconds per step, and number of steps.
const FIRST_GUESS: f64 = 2000.0;
const SEARCH_S: f64 = 3.0;
const SEARCH_STEPS: u32 = 3;
/// A core with a greater median latency does not keep up.
const LONGEST: Duration = Duration::from_millis(200);
/// Rate used in place of the saturation rate by the short form, which does not search.
const QUICK_LIMIT: f64 = 200.0;

/// Replication mode: name, `[replication] mode` and `[replication] ack`. The mode selects the
/// copied commits, and `ack` what an effect waits for.
#[derive(Clone, Copy, Debug)]
struct ReplicationMode(&'static str, &'static str, &'static str);

const NO_COPIES: ReplicationMode = ReplicationMode("no copies", "none", "none");
const COLD_ONE: ReplicationMode = ReplicationMode("cold, ack one", "cold", "one");
const HOT_ONE: ReplicationMode = ReplicationMode("hot, ack one", "hot", "one");
const HOT_ALL: ReplicationMode = ReplicationMode("hot, ack all", "hot", "all");
/// All replication modes.
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
    /// Returns true if no UE is lost when one host fails.
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

/// Returns the stateful baseline: the contexts of a host are lost with it.
fn stateful() -> Variant {
    let about =
        "The stateful baseline: on each host one worker that does everything and keeps the contexts of its UEs.";
    Variant { about, hosts: HOSTS, ..variants::stateful(1) }
}

/// Returns the stateful core that loses nothing: the contexts of a host are copied to one other
/// host, as an active MME copies to its standby.
fn replicated_stateful() -> Variant {
    let base = variants::unified_shared(&[]);
    let replication = "\n[replication]\nmode = \"hot\"\nreplicas = 1\nack = \"one\"\n";
    Variant {
        name: "stateful, replicated",
        about: "On each host one worker that does everything; each commit of its contexts is copied to one other host.",
        hosts: HOSTS,
        tables: base.tables.clone() + replication,
        ..base
    }
}

/// Returns the variant with each host capped at [`HOST_PART`], as machines with fewer processors
/// than hosts need. The short form has no caps, because its hosts may be slow without them.
fn capped(session: &ExperimentContext, variant: Variant) -> Variant {
    Variant { host_part: (!session.quick).then_some(HOST_PART), ..variant }
}

/// Returns a load of service requests by UEs with the paper's timeouts ([`PATIENCE`]).
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

/// Returns the highest rate that a cluster keeps up with, for a load given by rate and seconds. The
/// short form does not search.
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

/// Splits a quantity with its unit in parentheses.
fn split_unit(what: &str) -> (&str, &str) {
    what.split_once(" (").map_or((what, ""), |(what, unit)| (what, unit.trim_end_matches(')')))
}

/// Returns the result of each configuration in each run, with the first two columns of a table row:
/// run and configuration name.
fn lines<'a, T>(variants: &'a [Variant], rounds: &'a [Vec<T>]) -> impl Iterator<Item = ([String; 2], &'a T)> {
    rounds.iter().enumerate().flat_map(move |(run, round)| {
        let head = move |variant: &Variant| [(run + 1).to_string(), variant.name.to_owned()];
        variants.iter().zip(round).map(move |(variant, came_to)| (head(variant), came_to))
    })
}

/// Result of a host failure.
#[derive(Debug)]
struct HostFailureRun {
    outcome: Outcome,
    /// Time of the failure, in seconds on the timeline.
    at_s: f64,
    around: EventImpact,
}

impl HostFailureRun {
    fn lost_ues(&self) -> f64 {
        self.outcome.result.lost as f64
    }

    fn failed(&self) -> f64 {
        self.outcome.result.failed_procedures as f64
    }

    /// Returns the lost UEs in percent.
    fn lost_share(&self) -> f64 {
        self.lost_ues() * 100.0 / self.outcome.result.ues.max(1) as f64
    }

    /// Returns the worst latency of each timeline interval, by seconds since the fault.
    fn worst_over_time(&self) -> Vec<(f64, f64)> {
        let bins = self.outcome.bins("all");
        bins.iter().filter(|bin| bin.done > 0).map(|bin| (bin.at_s - self.at_s, bin.max_ms)).collect()
    }
}

/// Runs a load on a cluster. After `before_s` the host with the most UEs fails.
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

/// Returns the effect of the fault: on the procedures due soon after it, and its duration.
fn effect(outcome: &Outcome, at_s: f64) -> EventImpact {
    let bins = outcome.bins("all");
    let until = bins.last().map_or(0.0, |bin| bin.at_s);
    EventImpact { recovered_s: around(&bins, at_s, until - at_s).recovered_s, ..around(&bins, at_s, SOON_S) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Kind;
    use crate::steady::tests::outcome;
    use vireo_config::Config;
    use vireo_core::placement::replica::{Ack, Mode};
    use vireo_lab::options::CoreOptions;
    use vireo_lab::provision::config;
    use vireo_ops::config::StateLocation;

    /// Returns a failure at 1 s with the given worst latency and number of lost UEs.
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
    fn every_replication_mode_is_accepted() {
        let of = |copies: ReplicationMode| read(&copies.variant()).cluster.replication;
        let hot = of(HOT_ONE);
        assert_eq!((hot.mode, hot.ack, hot.replicas), (Mode::Hot, Ack::One, REPLICAS));
        assert_eq!((of(NO_COPIES).mode, of(COLD_ONE).mode, of(HOT_ALL).ack), (Mode::None, Mode::Cold, Ack::All));
        assert!(ALL_COPIES.iter().all(|copies| of(*copies).replicas == REPLICAS));
        assert_eq!(ALL_COPIES.iter().filter(|copies| copies.is_safe()).count(), 2);
        let standby = read(&replicated_stateful());
        assert_eq!((standby.cluster.replication.mode, standby.cluster.replication.replicas), (Mode::Hot, 1));
        let baseline = read(&stateful());
        assert_eq!((baseline.cluster.hosts, baseline.state.location), (3, StateLocation::Memory));
    }

    #[test]
    fn failure_effect_is_measured_at_fault() {
        let failed = failed(80.0, 0);
        assert_eq!((failed.around.usual_ms, failed.around.worst_ms), (2.0, 80.0));
        assert!((failed.around.recovered_s - 0.2).abs() < 1e-6, "{:?}", failed.around);
        assert!(failed.worst_over_time().iter().any(|(at, ms)| (at - 0.1).abs() < 1e-6 && *ms == 80.0));
    }
}
