//! Placement on three real hosts with skewed UEs.
//!
//! All busy UEs belong to one host. Variants whose UEs are bound to their owner are compared with a
//! choice for each procedure.

use super::{HOSTS, QUICK_LIMIT, REPLICAS, service_requests};
use crate::analysis::saturation;
use crate::context::{ExperimentContext, Findings, Variant, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars};
use crate::steady::{Outcome, Steady, unix_us};
use crate::variants;
use std::path::Path;
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_core::placement::balancer::TracedChoice;
use vireo_lab::core::{Core, ServedProcedures};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "placement-real",
    about: "Are procedures in time on three real hosts, of which one owns all busy UEs, if each procedure has its host?",
    paper: "MMLite, figures 10 and 11 (simulated there)",
    informative: None,
    run: Run::EitherRat(run),
};

/// Loads, as fractions of the highest rate at which owner-bound hosts serve equally busy UEs in
/// time.
const LOADS: [f64; 2] = [0.5, 0.8];
/// Indices of the loads.
const LOW: usize = 0;
const HIGH: usize = 1;
/// So many UEs that a busy one is idle most of the time: requests of one UE wait for each other.
const UES: u32 = 4_000;
/// Fraction of the UEs that are busy, and their share of all procedures. Their owner then has
/// 68% of the procedures: at load 0.5 that is 102% of what one host serves in time among equally
/// busy ones, and 92% of what it serves at all; at load 0.8 163%.
const BUSY_UES: f64 = 0.1;
const BUSY_SHARE: f64 = 0.52;
/// Latency objective of a service request in milliseconds. A host that has used its quota waits up
/// to 12 ms.
const OBJECTIVE_MS: u32 = 50;
/// Fraction of a processor per host. Balancer and emulator have the rest of two.
const HOST_PART: f64 = 0.4;
/// CPU time in microseconds that each step takes in addition. A service request with its release
/// has four to five steps, and then takes about as long as in the artefact of the paper: 1.3 ms and
/// 1 ms. Without it, wake-ups are most of what a procedure costs, and each host wakes up for each
/// copy, whoever serves.
const ADDED_STEP_US: u32 = 450;
/// Duration of a load and of its first part, which does not count, in seconds. The controller moves
/// buckets at most every 2 s.
const SECONDS: f64 = 18.0;
const SETTLE_S: f64 = 8.0;
const SEARCH_S: f64 = 8.0;
const SEARCH_SETTLE_S: f64 = 4.0;
const RATE_STEPS: u32 = 5;
const FIRST_GUESS: f64 = 350.0;
const QUICK_SECONDS: f64 = 2.0;
const QUICK_SETTLE_S: f64 = 1.0;
/// Marks: late procedures in percent, and their ratio to those of the best bound variant.
const LATE: f64 = 1.0;
const OF_BOUND: f64 = 0.5;
/// Marks in percent of all procedures: least share of owners and of replicas at the high load, and
/// limit of the share of replicas at the low load.
const SERVES: f64 = 20.0;
const SERVES_AT_LOW: f64 = 1.0;
/// Mark: least share of choices that follow the rule, in percent.
const BY_RULE: f64 = 95.0;

/// Time in seconds for the last 1% of the registrations.
const REGISTERED_WITHIN_S: f64 = 2.0;

/// Files in the lab's own `/tmp`.
const BUSY_FILE: &str = "/tmp/busy-ues";
const CHOICES_FILE: &str = "/tmp/choices";

/// Way to place UEs and procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// UEs are served by their owner, whatever its load.
    Bound,
    /// The same, and the controller moves buckets by load.
    Rebalanced,
    /// Each procedure has its host.
    PerProcedure,
}

/// A variant with its way to place.
type Line = (Placement, Variant);

fn variant(name: &'static str, about: &'static str, steering: &str, cluster: &'static str) -> Variant {
    // One thread per host: the CPU time of a procedure then depends least on the rate.
    let base = variants::inline(name, about, &[("service-request", OBJECTIVE_MS)]);
    let replication = format!("\n[replication]\nmode = \"hot\"\nreplicas = {REPLICAS}\n\n[steering]\n{steering}");
    let added = format!("[pools]\nadded-step-time = \"{ADDED_STEP_US}us\"\n");
    let tables = base.tables.replacen("[pools]\n", &added, 1) + &replication;
    Variant { tables, cluster, hosts: HOSTS, ..base }
}

/// Returns the bound variant of the core's own policy.
fn owner_bound() -> Variant {
    let about = "A new UE goes to a host by skewed consistent hashing, and its owner serves it from then on.";
    variant("owner-bound", about, "serve = \"owner\"\n", "")
}

/// Returns the variant in which each procedure has its host, by this policy and preference.
fn per_procedure(name: &'static str, about: &'static str, policy: &str, prefer: &str) -> Line {
    let steering =
        format!("serve = \"procedure\"\ninter = {policy:?}\nprefer = {prefer:?}\ntrace-choices = {CHOICES_FILE:?}\n");
    (Placement::PerProcedure, variant(name, about, &steering, ""))
}

fn all_variants() -> Vec<Line> {
    let bound = |name, policy| {
        let about = "A new UE goes to a host by this policy, and its owner serves it from then on.";
        (Placement::Bound, variant(name, about, &format!("serve = \"owner\"\ninter = {policy:?}\n"), ""))
    };
    let spare = "The first of owner and replicas with all its work within a quarter of the objective serves, else the first \
         within it, else the owner.";
    let rebalance = "As owner-bound, and the controller moves buckets to hosts that are less busy.";
    vec![
        bound("round robin", "round-robin"),
        bound("consistent hashing", "consistent-hash"),
        bound("Maglev", "maglev"),
        (Placement::Bound, owner_bound()),
        (
            Placement::Rebalanced,
            variant("weighted buckets", rebalance, "serve = \"owner\"\n", "rebalance = \"load\"\n"),
        ),
        per_procedure("per procedure", spare, "skewed-ch", "spare"),
        per_procedure(
            "per procedure, most loaded",
            "Algorithm 1 of the paper: the most loaded host that keeps the objective serves.",
            "skewed-ch",
            "most-loaded",
        ),
        per_procedure("per procedure, round robin", "Owner and replicas serve in turn.", "round-robin", "spare"),
        per_procedure(
            "per procedure, least loaded",
            "The host with the lowest CPU use serves.",
            "least-loaded",
            "spare",
        ),
    ]
}

/// Index of the variant with marks in [`all_variants`], and in the short form.
const OURS: usize = 5;
const QUICK: [usize; 3] = [3, 4, OURS];

/// Result of one load on one variant.
#[derive(Clone, Debug, Default, PartialEq)]
struct Observed {
    /// Service requests per second that completed.
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Service requests that missed the objective or failed, in percent.
    late: f64,
    /// CPU use of each host, in percent of its cap.
    cpu: Vec<f64>,
    /// Procedures that replicas served, in percent; 0 without procedures.
    by_replicas: f64,
    /// Choices of the balancer, and those that follow the rule on the loads of that time.
    choices: usize,
    by_rule: usize,
}

impl Observed {
    /// Returns the difference between the most and the least busy host, in percent of the cap.
    fn cpu_spread(&self) -> f64 {
        let most = self.cpu.iter().copied().fold(0.0, f64::max);
        most - self.cpu.iter().copied().fold(most, f64::min)
    }

    fn rule_share(&self) -> f64 {
        self.by_rule as f64 * 100.0 / self.choices.max(1) as f64
    }
}

/// Returns service requests by UEs of the experiment.
fn requests(session: &ExperimentContext, rate: f64, seconds: f64) -> Steady {
    let load = service_requests(session, rate, seconds);
    Steady { ues: if session.quick { load.ues } else { UES }, ..load }
}

/// Returns the load of a rate with busy UEs.
fn skewed(session: &ExperimentContext, rate: f64) -> Steady {
    let (seconds, settle_s) = if session.quick { (QUICK_SECONDS, QUICK_SETTLE_S) } else { (SECONDS, SETTLE_S) };
    let mut load = requests(session, rate, seconds);
    let busy = [
        ["--busy-ues".to_owned(), BUSY_FILE.to_owned()],
        ["--busy-share".to_owned(), BUSY_SHARE.to_string()],
        ["--settle".to_owned(), format!("{}ms", (settle_s * 1e3) as u64)],
    ];
    load.more.extend(busy.into_iter().flatten());
    load
}

/// Chooses the busy UEs among those of one host, when all are registered.
fn choose_busy_ues(core: &Core, ues: u32) -> Result<(), Failure> {
    let by_host = core.subscribers_by_host()?;
    let most = by_host.into_iter().max_by_key(Vec::len).unwrap_or_default();
    let count = (f64::from(ues) * BUSY_UES).ceil() as usize;
    if most.len() < count {
        return Err(Failure(format!(
            "the host with the most UEs has {}, and {count} busy ones are needed",
            most.len()
        )));
    }
    // The emulator must not read a part of the list.
    let part = format!("{BUSY_FILE}.part");
    std::fs::write(&part, most[..count].join("\n"))?;
    Ok(std::fs::rename(part, BUSY_FILE)?)
}

/// Readings of the hosts during a load.
#[derive(Default)]
pub(super) struct Readings {
    /// Unix time in microseconds, and CPU time of each host in seconds.
    cpu: Vec<(u64, Vec<f64>)>,
    /// Procedures served since the start of the core, at the beginning of the load and now.
    served: Option<(ServedProcedures, ServedProcedures)>,
}

impl Readings {
    pub(super) fn read(&mut self, core: &Core) -> Result<(), Failure> {
        let now = unix_us();
        self.cpu.push((now, core.cpu_by_host()?.iter().map(std::time::Duration::as_secs_f64).collect()));
        // Metrics cost a capped host CPU time that its procedures then wait for: none during the
        // load.
        if self.served.is_none() { self.read_served(core) } else { Ok(()) }
    }

    /// Reads what was served during the load, after its end.
    pub(super) fn read_served(&mut self, core: &Core) -> Result<(), Failure> {
        let served: ServedProcedures = core.procedures_served()?.into_iter().flatten().sum();
        let first = self.served.map_or(served, |(first, _)| first);
        self.served = Some((first, served));
        Ok(())
    }

    /// Returns the CPU use of each host in percent of `cap`, between two times.
    pub(super) fn cpu_between(&self, from: u64, until: u64, cap: f64) -> Vec<f64> {
        let mut within = self.cpu.iter().filter(|(at, _)| (from..=until).contains(at));
        let (Some((first, before)), Some((last, after))) = (within.next(), within.next_back()) else { return vec![] };
        let seconds = (last - first) as f64 / 1e6;
        before.iter().zip(after).map(|(before, after)| (after - before) / seconds * 100.0 / cap).collect()
    }

    /// Returns the procedures of the load that replicas served, in percent.
    pub(super) fn by_replicas(&self) -> f64 {
        let Some((before, after)) = self.served else { return 0.0 };
        let (owner, replica) = (after.by_owner - before.by_owner, after.by_replica - before.by_replica);
        replica as f64 * 100.0 / (owner + replica).max(1) as f64
    }
}

/// Runs a load on a variant.
fn measure(session: &ExperimentContext, variant: &Variant, rate: f64) -> Result<Observed, Failure> {
    session.interrupt.check()?;
    let load = skewed(session, rate);
    for file in [BUSY_FILE, CHOICES_FILE] {
        // A list of an earlier core has other owners.
        let _ = std::fs::remove_file(file);
    }
    let mut core = session.core(variant, load.subscribers(), &[])?;
    let (mut readings, mut has_chosen) = (Readings::default(), false);
    let outcome = session.steady(&mut core, &load, &mut |core, since_s| {
        if !has_chosen {
            // A UE that does not register must not stop the load.
            has_chosen = core.registered()? >= load.ues as usize || since_s >= REGISTERED_WITHIN_S;
            return if has_chosen { choose_busy_ues(core, load.ues) } else { Ok(()) };
        }
        readings.read(core)
    })?;
    readings.read_served(&core)?;
    core.stop()?;
    let seen = observed(&outcome, &readings, variant.host_part.unwrap_or(1.0), &read_choices()?);
    eprintln!("experiment: {}, {rate:.0}/s: {seen:?}", variant.name);
    Ok(seen)
}

fn observed(outcome: &Outcome, readings: &Readings, cap: f64, choices: &[TracedChoice]) -> Observed {
    let result = &outcome.result;
    let latency = result.latency("service_request");
    let until = result.steady_began_unix_us + (result.steady_seconds * 1e6) as u64;
    // The first half is not measured: buckets move, and NFs start.
    let from = result.steady_began_unix_us + (result.steady_seconds * 5e5) as u64;
    let (late, all) = (latency.over_50ms + result.failed_procedures, latency.count + result.failed_procedures);
    Observed {
        rate: result.completed as f64 / result.steady_seconds.max(1e-6),
        p50_ms: latency.p50 as f64 / 1e3,
        p99_ms: latency.p99 as f64 / 1e3,
        late: late as f64 * 100.0 / all.max(1) as f64,
        cpu: readings.cpu_between(from, until, cap),
        by_replicas: readings.by_replicas(),
        choices: choices.len(),
        by_rule: choices.iter().filter(|choice| choice.by_rule() == Some(choice.chosen)).count(),
    }
}

/// Returns the choices that the balancer has written; none if it makes none.
fn read_choices() -> Result<Vec<TracedChoice>, Failure> {
    if !Path::new(CHOICES_FILE).exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(CHOICES_FILE)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let all = all_variants();
    let chosen: Vec<Line> = if session.quick { QUICK.map(|at| all[at].clone()).to_vec() } else { all };
    let variants: Vec<Line> = chosen.into_iter().map(|(way, variant)| (way, capped(session, variant))).collect();
    let [low, high] = LOADS;
    let highest = highest_rate(session)?;
    let rates = [low, high].map(|load| (load * highest).round());
    let rounds = session.repeat("placement on real hosts", |_| {
        let of = |(_, variant): &Line| rates.iter().map(|rate| measure(session, variant, *rate)).collect();
        variants.iter().map(of).collect::<Result<Vec<Vec<Observed>>, Failure>>()
    })?;
    findings(&variants, rates, &rounds)
}

/// Returns the variant with each host capped. The short form has no caps, because its hosts may be
/// slow without them.
fn capped(session: &ExperimentContext, variant: Variant) -> Variant {
    Variant { host_part: (!session.quick).then_some(HOST_PART), ..variant }
}

/// Returns the highest rate at which owner-bound hosts with equally busy UEs are in time. The short
/// form does not search.
fn highest_rate(session: &ExperimentContext) -> Result<f64, Failure> {
    if session.quick {
        return Ok(QUICK_LIMIT);
    }
    let variant = capped(session, owner_bound());
    let found = saturation::search(FIRST_GUESS, RATE_STEPS, |rate| {
        session.interrupt.check()?;
        let mut steady = requests(session, rate, SEARCH_S);
        steady.more.extend(["--settle".to_owned(), format!("{}ms", (SEARCH_SETTLE_S * 1e3) as u64)]);
        let mut core = session.core(&variant, steady.subscribers(), &[])?;
        let outcome = session.steady(&mut core, &steady, &mut |_, _| Ok(()))?;
        core.stop()?;
        let late = observed(&outcome, &Readings::default(), HOST_PART, &[]).late;
        eprintln!("experiment: {}: {rate:.0}/s: {late:.2}% late", variant.name);
        Ok::<_, Failure>(late <= LATE)
    })?;
    if found <= 0.0 {
        return Err(Failure(format!("hosts ({}) are late at each rate that was tried", variant.name)));
    }
    Ok(found)
}

/// Index order: run, variant, load.
type Rounds<'a> = &'a [Vec<Vec<Observed>>];

fn findings(variants: &[Line], rates: [f64; 2], rounds: Rounds<'_>) -> Result<Findings, Failure> {
    let ours = variants.iter().position(|(_, variant)| variant.name == "per procedure");
    let ours = ours.ok_or_else(|| Failure("bug: no variant is per procedure".into()))?;
    let mut figures = marked(variants, ours, rounds)?;
    for (load, part) in LOADS.iter().enumerate() {
        for (place, (way, variant)) in variants.iter().enumerate() {
            let of = |value: fn(&Observed) -> f64| each(rounds, |round| value(&round[place][load]));
            let named = |what: &str| format!("{what}, {}, load {part}", variant.name);
            figures.extend([
                Figure::new(named("late procedures"), "%", of(|seen| seen.late)?),
                Figure::new(named("service request p50"), "ms", of(|seen| seen.p50_ms)?),
                Figure::new(named("service request p99"), "ms", of(|seen| seen.p99_ms)?),
                Figure::new(named("CPU, most busy less least busy host"), "%", of(Observed::cpu_spread)?),
            ]);
            if *way == Placement::PerProcedure {
                figures.push(Figure::new(named("served by replicas"), "%", of(|seen| seen.by_replicas)?));
            }
        }
    }
    let broken = broken(variants, rounds);
    Ok(Findings {
        load: OfferedLoad::new("service requests, T1, open loop, UEs skewed", rates, "1/s"),
        configurations: variants.iter().map(|(_, variant)| variant.configuration()).collect(),
        figures,
        plots: plots(variants, rounds)?,
        tables: vec![("loads", table(variants, rates, rounds))],
        notes: notes(variants, rates),
        broken,
    })
}

/// Returns the figures of the choice for each procedure that have marks.
fn marked(variants: &[Line], ours: usize, rounds: Rounds<'_>) -> Result<Vec<Figure>, Failure> {
    let at = |load: usize, value: &dyn Fn(&Observed) -> f64| each(rounds, |round| value(&round[ours][load]));
    let late_bound = |round: &Vec<Vec<Observed>>| {
        let bound = variants.iter().zip(round).filter(|((way, _), _)| *way == Placement::Bound);
        bound.map(|(_, seen)| seen[HIGH].late).fold(f64::INFINITY, f64::min)
    };
    let ratio = each(rounds, |round| round[ours][HIGH].late / late_bound(round).max(1e-3))?;
    let [low, high] = LOADS;
    let by_rule = each(rounds, |round| {
        let per_procedure = variants.iter().zip(round).filter(|((way, _), _)| *way == Placement::PerProcedure);
        let shares = per_procedure.flat_map(|(_, seen)| seen).map(Observed::rule_share);
        shares.fold(100.0, f64::min)
    })?;
    let named = |what: &str, part: f64| format!("per procedure: {what}, load {part}");
    Ok(vec![
        Figure::new(named("late procedures", high), "%", at(HIGH, &|seen| seen.late)?)
            .mark(Bound::AtMost(LATE))
            .baseline("best bound", Some(each(rounds, late_bound)?)),
        Figure::new(named("late procedures, of those of the best bound variant", high), "ratio", ratio)
            .mark(Bound::AtMost(OF_BOUND)),
        Figure::new(named("served by owners", high), "%", at(HIGH, &|seen| 100.0 - seen.by_replicas)?)
            .mark(Bound::AtLeast(SERVES)),
        Figure::new(named("served by replicas", high), "%", at(HIGH, &|seen| seen.by_replicas)?)
            .mark(Bound::AtLeast(SERVES)),
        Figure::new(named("served by replicas", low), "%", at(LOW, &|seen| seen.by_replicas)?)
            .mark(Bound::Below(SERVES_AT_LOW)),
        Figure::new("choices that follow the configured rule, worst variant", "%", by_rule)
            .mark(Bound::AtLeast(BY_RULE)),
    ])
}

/// Returns the violation of an invariant: a balancer that chooses for each procedure follows its
/// rule.
fn broken(variants: &[Line], rounds: Rounds<'_>) -> Option<String> {
    let lines = rounds.iter().flat_map(|round| variants.iter().zip(round));
    let per_procedure = lines.filter(|((way, _), _)| *way == Placement::PerProcedure);
    let mut wrong = per_procedure.filter(|(_, seen)| seen.iter().any(|seen| seen.rule_share() < BY_RULE));
    wrong.next().map(|((_, variant), _)| format!("{}: the balancer does not follow the rule", variant.name))
}

fn plots(variants: &[Line], rounds: Rounds<'_>) -> Result<Vec<(&'static str, String)>, Failure> {
    let bars = |title: &str, axis: Axis, value: fn(&Observed) -> f64| -> Result<String, Failure> {
        let series = |(load, part): (usize, &f64)| -> Result<BarSeries, Failure> {
            let of = |place: usize| each(rounds, |round| value(&round[place][load])).map(Some);
            let values: Vec<Option<Measured>> = (0..variants.len()).map(of).collect::<Result<_, _>>()?;
            Ok(BarSeries { name: format!("load {part}"), paper: vec![None; values.len()], values })
        };
        let bars = Bars {
            title: title.into(),
            groups: variants.iter().map(|(_, variant)| variant.name.into()).collect(),
            y: axis,
            series: LOADS.iter().enumerate().map(series).collect::<Result<_, _>>()?,
        };
        Ok(bars.svg()?)
    };
    Ok(vec![
        ("late", bars("Late procedures, skewed UEs", Axis::linear("late procedures (%)"), |seen| seen.late)?),
        ("p99", bars("Latency, skewed UEs", Axis::linear("service request, p99 (ms)"), |seen| seen.p99_ms)?),
        ("cpu", bars("CPU of hosts, skewed UEs", Axis::linear("most less least busy host (%)"), Observed::cpu_spread)?),
    ])
}

fn table(variants: &[Line], rates: [f64; 2], rounds: Rounds<'_>) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "asked_per_s",
        "done_per_s",
        "late_percent",
        "p50_ms",
        "p99_ms",
        "cpu_of_hosts_percent",
        "served_by_replicas_percent",
        "choices",
        "choices_by_rule",
    ]);
    for (run, round) in rounds.iter().enumerate() {
        for ((_, variant), line) in variants.iter().zip(round) {
            for (rate, seen) in rates.into_iter().zip(line) {
                let numbers = [rate, seen.rate, seen.late, seen.p50_ms, seen.p99_ms];
                let cpu: Vec<String> = seen.cpu.iter().map(|cpu| format!("{cpu:.1}")).collect();
                let last = [seen.by_replicas.to_string(), seen.choices.to_string(), seen.by_rule.to_string()];
                let head = [(run + 1).to_string(), variant.name.to_owned()];
                let numbers = numbers.map(|number| number.to_string());
                table.row(head.into_iter().chain(numbers).chain([cpu.join("/")]).chain(last));
            }
        }
    }
    table
}

fn notes(variants: &[Line], [low, high]: [f64; 2]) -> Vec<String> {
    let capped = variants.iter().all(|(_, variant)| variant.host_part == Some(HOST_PART));
    let capped = if capped { format!(", each with {HOST_PART} of a processor (cpu.max)") } else { String::new() };
    let owner = BUSY_SHARE + (1.0 - BUSY_SHARE) / HOSTS as f64;
    vec![
        format!(
            "{HOSTS} hosts{capped} behind one balancer, {REPLICAS} replicas, service requests with the releases that follow. \
             {low:.0}/s and {high:.0}/s are {:.0}% and {:.0}% of the highest rate at which owner-bound hosts have {LATE:.0}% \
             late if all UEs are equally busy. \
             {:.0}% of the UEs, all of one host, run {:.0}% of the procedures, so that {:.0}% of all are that host's.",
            LOADS[LOW] * 100.0,
            LOADS[HIGH] * 100.0,
            BUSY_UES * 100.0,
            BUSY_SHARE * 100.0,
            owner * 100.0
        ),
        format!(
            "Late is a request that takes more than {OBJECTIVE_MS} ms, or fails. The first half of each load is not \
             counted, in which the controller moves buckets and NFs start."
        ),
        "Busy UEs are chosen after all have registered, so that every policy has them at one host. The best bound \
         variant does not include weighted buckets, which end lasting skew within seconds and are set beside it."
            .into(),
        "The balancer records each choice with the loads of the candidates; steer::select_among decides again on \
         these."
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;
    use vireo_core::placement::balance::steer::{Policy, Preference};
    use vireo_core::placement::balancer::Serve;
    use vireo_core::placement::replica::{Ack, Mode};
    use vireo_lab::options::CoreOptions;
    use vireo_lab::provision::config;

    fn read(variant: &Variant) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let options = CoreOptions {
            slices: variant.slices.clone(),
            tables: variant.tables.clone(),
            cluster: variant.cluster.into(),
            hosts: variant.hosts,
            ..CoreOptions::default()
        };
        std::fs::write(&path, config(&options)).unwrap();
        Config::load(Some(&path)).unwrap_or_else(|e| panic!("{}: {e}", variant.name))
    }

    #[test]
    fn every_variant_configuration_is_accepted() {
        for (way, variant) in all_variants() {
            let cluster = read(&variant).cluster;
            assert_eq!(cluster.serve == Serve::Procedure, way == Placement::PerProcedure, "{}", variant.name);
            assert_eq!(format!("{:?}", cluster.rebalance) == "Load", way == Placement::Rebalanced, "{}", variant.name);
            let copies = cluster.replication;
            assert_eq!((copies.mode, copies.ack, copies.replicas), (Mode::Hot, Ack::One, REPLICAS));
        }
        let most_loaded = read(&all_variants()[OURS + 1].1).cluster;
        assert_eq!((most_loaded.inter, most_loaded.prefer), (Policy::SkewedCh, Preference::MostLoaded));
        assert_eq!(all_variants()[OURS].1.name, "per procedure");
    }

    #[test]
    fn marks_compare_with_best_bound_variant() {
        let variants: Vec<Line> = QUICK.map(|at| all_variants()[at].clone()).to_vec();
        let seen = |late: f64, by_replicas: f64| Observed {
            late,
            by_replicas,
            cpu: vec![90.0, 70.0, 75.0],
            choices: 100,
            by_rule: 98,
            p99_ms: 30.0,
            ..Observed::default()
        };
        let round = vec![
            vec![seen(0.1, 0.0), seen(12.0, 0.0)],
            vec![seen(0.1, 0.0), seen(0.4, 0.0)],
            vec![seen(0.1, 0.2), seen(0.5, 30.0)],
        ];
        let found = findings(&variants, [500.0, 800.0], std::slice::from_ref(&round)).unwrap();
        assert!(found.broken.is_none() && found.figures.iter().all(|figure| figure.met != Some(false)));
        let ratio = found.figures.iter().find(|figure| figure.unit == "ratio").unwrap();
        assert!((ratio.ours.median - 0.5 / 12.0).abs() < 1e-9, "{ratio:?}");
        assert!(found.figures.iter().any(|figure| figure.name.starts_with("CPU") && figure.ours.median == 20.0));
        let mut wrong = round;
        wrong[2][HIGH].by_rule = 90;
        assert!(findings(&variants, [500.0, 800.0], &[wrong]).unwrap().broken.is_some());
    }

    #[test]
    fn readings_cover_measured_part() {
        let served = |by_owner, by_replica| ServedProcedures { by_owner, by_replica };
        let readings = Readings {
            cpu: vec![(1_000_000, vec![9.0]), (2_000_000, vec![10.0]), (4_000_000, vec![10.5])],
            served: Some((served(10, 90), served(40, 100))),
        };
        assert_eq!(readings.cpu_between(1_500_000, 5_000_000, 0.25), [100.0]);
        assert_eq!((readings.by_replicas(), Readings::default().by_replicas()), (25.0, 0.0));
        assert!(readings.cpu_between(0, 1, 1.0).is_empty());
    }
}
