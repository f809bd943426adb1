//! MMLite figures 2b and 8: hosts join and leave under load.

use super::{HOT_ONE, capped, lines, replicated_stateful, saturation, service_requests, split_unit, stateful};
use crate::context::{ExperimentContext, Findings, Metric, Variant};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use crate::steady::{Outcome, Steady, unix_us};
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::timeline::Bin;

pub(crate) const MIGRATION: Experiment = Experiment {
    name: "mmlite-fig2b",
    about: "What do UEs notice when all UEs of a busy host go to others?",
    paper: "MMLite, figure 2b",
    informative: None,
    run: Run::EitherRat(migration),
};

pub(crate) const SCALING: Experiment = Experiment {
    name: "mmlite-fig8",
    about: "What do UEs notice when hosts come and go with the load?",
    paper: "MMLite, figure 8",
    informative: None,
    run: Run::EitherRat(scaling),
};

/// Load of figure 2b, as a fraction of the hosts' saturation rate.
const LOAD: f64 = 0.8;
/// Times of figure 2b in seconds: one more host joins, the first host leaves, the load ends.
const JOINS_S: f64 = 3.0;
const LEAVES_S: f64 = 6.0;
const ENDS_S: f64 = 12.0;
/// Minimum and maximum number of active hosts in figure 8.
const LEAST: usize = 2;
const MOST: usize = 4;
/// Duration of the load's rise and fall in seconds, and of the rest at its lowest level that
/// follows.
const RAMP_S: f64 = 60.0;
const REST_S: f64 = 4.0;
const QUICK_RAMP_S: f64 = 8.0;
/// Peak rate as a fraction of the saturation rate of three hosts, and the ratio of peak to mean.
const PEAK: f64 = 0.9;
const PEAK_OVER_MEAN: f64 = 1.8;
/// Windows in seconds: before a change, for the reference latency, and after it, for latency that
/// counts as caused by it.
const USUAL_S: f64 = 2.0;
const SOON_S: f64 = 2.0;
/// Limits of the effect on a UE: ratio of the median latency to the reference, and the worst
/// latency in milliseconds.
const TIMES: f64 = 3.0;
const WORST_MS: f64 = 500.0;

/// Result of a load during which hosts join and leave.
#[derive(Debug)]
struct ScalingRun {
    outcome: Outcome,
    /// Changes of the number of active hosts: seconds on the timeline, new number.
    changes: Vec<(f64, usize)>,
    /// The same changes in seconds since all UEs were ready. The next load repeats them.
    led: Vec<(f64, usize)>,
}

const TOLD: [Metric<ScalingRun>; 5] = [
    ("median latency after a change over that before it, largest (ratio)", ScalingRun::spike),
    ("longest latency after a change (ms)", ScalingRun::worst_ms),
    ("lost UEs (UEs)", |changed| changed.outcome.result.lost as f64),
    ("failed procedures", |changed| changed.outcome.result.failed_procedures as f64),
    ("most hosts at work (hosts)", |changed| changed.hosts().max().unwrap_or(0) as f64),
];

impl ScalingRun {
    fn hosts(&self) -> impl Iterator<Item = usize> {
        self.changes.iter().map(|(_, hosts)| *hosts)
    }

    fn bins(&self) -> Vec<Bin> {
        self.outcome.bins("all").into_iter().filter(|bin| bin.done > 0).collect()
    }

    /// Returns the largest ratio over all changes: the largest median latency of an interval after
    /// the change, over the median of the intervals before it.
    fn spike(&self) -> f64 {
        let bins = self.bins();
        let of = |at: f64| {
            let before = bins.iter().filter(|bin| (at - USUAL_S..at - 0.1).contains(&bin.at_s));
            let mut before: Vec<f64> = before.map(|bin| bin.p50_ms).collect();
            before.sort_by(f64::total_cmp);
            let usual = before.get(before.len() / 2)?;
            let after = bins.iter().filter(|bin| (at..at + SOON_S).contains(&bin.at_s));
            Some(after.map(|bin| bin.p50_ms).fold(0.0, f64::max) / usual.max(1e-3))
        };
        self.changes.iter().filter_map(|(at, _)| of(*at)).fold(0.0, f64::max)
    }

    fn worst_ms(&self) -> f64 {
        let bins = self.bins();
        let soon = |at: f64| self.changes.iter().any(|(change, _)| (*change..change + SOON_S).contains(&at));
        bins.iter().filter(|bin| soon(bin.at_s)).map(|bin| bin.max_ms).fold(0.0, f64::max)
    }
}

/// Callback during a load. Its argument is the time since all UEs are ready, in seconds. Returns
/// the number of active hosts.
type LoadHook<'a> = dyn FnMut(&mut vireo_lab::core::Core, f64) -> Result<usize, Failure> + 'a;

/// Runs a load on a core while `lead` adds and removes hosts, and records the changes.
fn watch(
    session: &ExperimentContext,
    variant: &Variant,
    load: &Steady,
    lead: &mut LoadHook<'_>,
) -> Result<ScalingRun, Failure> {
    let mut core = session.core(variant, load.subscribers(), &[])?;
    let mut seen: Vec<(u64, f64, usize)> = Vec::new();
    let mut hosts = variant.hosts;
    let outcome = session.steady(&mut core, load, &mut |core, since_s| {
        let now = lead(core, since_s)?;
        if now != std::mem::replace(&mut hosts, now) {
            seen.push((unix_us(), since_s, now));
        }
        Ok(())
    })?;
    core.stop()?;
    let began = outcome.result.steady_began_unix_us as f64;
    let changes = seen.iter().map(|(at, _, hosts)| ((*at as f64 - began) / 1e6, *hosts)).collect();
    let led = seen.iter().map(|(_, since_s, hosts)| (*since_s, *hosts)).collect();
    Ok(ScalingRun { outcome, changes, led })
}

fn migration(session: &ExperimentContext) -> Result<Findings, Failure> {
    let variants = [HOT_ONE.variant(), stateful(), replicated_stateful()];
    let variants = variants.map(|variant| capped(session, Variant { hosts: LEAST, ..variant }));
    let limit = saturation(session, &variants[0], &service_requests)?;
    let rounds = session.repeat("a host's UEs go to others", |_| {
        let one = |variant: &Variant| {
            session.interrupt.check()?;
            let (mut joined, mut left) = (false, false);
            let load = service_requests(session, limit * LOAD, ENDS_S);
            watch(session, variant, &load, &mut |core, since_s| {
                if !std::mem::replace(&mut joined, since_s >= JOINS_S) && joined {
                    core.add_host(&session.lab)?;
                }
                if !std::mem::replace(&mut left, since_s >= LEAVES_S) && left {
                    core.let_host_leave(0)?;
                }
                core.hosts_at_work()
            })
        };
        variants.iter().map(one).collect::<Result<Vec<ScalingRun>, Failure>>()
    })?;
    let note = format!(
        "Two hosts behind one balancer, each with a quarter of a processor (not in the short form), at {:.0} service requests/s, \
         {:.0}% of what they keep up with. A third joins after {JOINS_S} s, and the first leaves after {LEAVES_S} s: its UEs go to \
         the others. Those of the stateful baseline register anew when they find that nobody knows them; the replicated stateful \
         core hands them on, as ours does.",
        limit * LOAD,
        LOAD * 100.0
    );
    let load = OfferedLoad::new("service requests, open loop, 80% of saturation", [limit * LOAD], "1/s");
    findings(&variants, &rounds, (load, note), false)
}

/// Returns the configuration of figure 8, in which idle hosts wait until they are needed.
fn scaled() -> Variant {
    let ours = HOT_ONE.variant();
    let tables = format!(
        "{}\n[scaling]\nleast = {LEAST}\nmost = {MOST}\nidle = {}\nhigh = 0.7\nlow = 0.5\nlasts = \"1s\"\n",
        ours.tables,
        MOST - LEAST
    );
    let about = "Contexts in memory that workers share, each commit copied; hosts wait until they are needed.";
    Variant { name: "ours", about, tables, hosts: LEAST, idle: MOST - LEAST, ..ours }
}

fn scaling(session: &ExperimentContext) -> Result<Findings, Failure> {
    let limit = saturation(session, &capped(session, HOT_ONE.variant()), &service_requests)?;
    let variants = [scaled(), stateful(), replicated_stateful()];
    let variants = variants.map(|variant| capped(session, Variant { hosts: LEAST, ..variant }));
    let ramp = if session.quick { QUICK_RAMP_S } else { RAMP_S };
    let mut load = service_requests(session, limit * PEAK / PEAK_OVER_MEAN, ramp + REST_S);
    // The rest after the first period is the low start of the next one.
    load.more.extend(["--pattern".into(), format!("T2:peak={PEAK_OVER_MEAN},period={ramp}")]);
    let rounds = session.repeat("load comes and goes", |_| {
        let ours = watch(session, &variants[0], &load, &mut |core, _| core.hosts_at_work())?;
        eprintln!("experiment: hosts at work: {:?}", ours.led);
        // The baselines add and remove hosts at the same times. A removed host of the first one
        // loses the contexts of its UEs.
        let follow = |variant: &Variant| {
            let (mut due, mut added) = (ours.led.iter(), Vec::new());
            let mut next = due.next();
            watch(session, variant, &load, &mut |core, since_s| {
                if let Some((_, wanted)) = next.filter(|(at, _)| since_s >= *at) {
                    next = due.next();
                    for _ in LEAST + added.len()..*wanted {
                        added.push(core.add_host(&session.lab)?);
                    }
                    while LEAST + added.len() > *wanted
                        && let Some(host) = added.pop()
                    {
                        core.let_host_leave(host)?;
                    }
                }
                core.hosts_at_work()
            })
        };
        let (loses, keeps) = (follow(&variants[1])?, follow(&variants[2])?);
        Ok(vec![ours, loses, keeps])
    })?;
    let note = format!(
        "Up to {MOST} hosts behind one balancer, each with a quarter of a processor (not in the short form), which work as the \
         controller decides by what they report: T2 up to {:.0} service requests/s, {:.0}% of what three keep up with, within \
         {ramp:.0} s. The stateful cores get and lose hosts when ours did: what a host that leaves has known of UEs is lost, or \
         handed on by the replicated one.",
        limit * PEAK,
        PEAK * 100.0
    );
    let scales = rounds.iter().all(|round| round[0].hosts().max().unwrap_or(0) > LEAST);
    let load = OfferedLoad::new("service requests, open loop, peak of a ramp", [limit * PEAK], "1/s");
    let mut found = findings(&variants, &rounds, (load, note), true)?;
    if !scales && !session.quick {
        found.broken = Some("the load did not make the cluster larger".into());
    }
    Ok(found)
}

fn findings(
    variants: &[Variant],
    rounds: &[Vec<ScalingRun>],
    (load, note): (OfferedLoad, String),
    scales: bool,
) -> Result<Findings, Failure> {
    let at = |variant: usize, value: fn(&ScalingRun) -> f64| {
        Measured::each(rounds, |round| value(&round[variant])).ok_or_else(|| Failure("nothing was measured".into()))
    };
    let (paper, source) = match scales {
        true => (Bound::AtLeast(50.0), "figure 8, stateful: about 50 to 100 times stateless"),
        false => (Bound::About(50.0), "figure 2b, stateful: almost 50 times"),
    };
    let mut figures = Vec::new();
    for (what, value) in TOLD {
        let (what, unit) = split_unit(what);
        let figure = Figure::new(what, unit, at(0, value)?).baseline(variants[1].name, Some(at(1, value)?));
        figures.push(match unit {
            "ratio" => figure.paper(paper, source).mark(Bound::AtMost(TIMES)),
            "ms" => figure.mark(Bound::AtMost(WORST_MS)),
            "hosts" if scales => figure,
            "hosts" => continue,
            _ => figure.mark(Bound::AtMost(0.0)),
        });
    }
    for (other, variant) in variants.iter().enumerate().skip(2) {
        for (what, value) in TOLD.into_iter().filter(|(what, _)| !what.ends_with("(hosts)")) {
            let (what, unit) = split_unit(what);
            figures.push(Figure::new(format!("{what}, {}", variant.name), unit, at(other, value)?));
        }
    }
    if scales {
        let at_the_end = |changed: &ScalingRun| changed.hosts().last().unwrap_or(LEAST) as f64;
        figures.push(
            Figure::new("hosts at work in the end", "hosts", at(0, at_the_end)?).mark(Bound::AtMost(LEAST as f64)),
        );
    }
    let mut chart = Chart::new(
        "Latency while hosts come and go",
        Axis::linear("seconds"),
        Axis::log("median latency of 100 ms (ms)"),
    );
    let first = rounds.first().ok_or_else(|| Failure("nothing was measured".into()))?;
    for (variant, changed) in variants.iter().zip(first) {
        chart = chart.line(variant.name, changed.bins().iter().map(|bin| (bin.at_s, bin.p50_ms.max(1e-2))).collect());
    }
    // The paper's latency of the stateful core at a change, over ours without one.
    let mut medians: Vec<f64> = first[0].bins().iter().map(|bin| bin.p50_ms).collect();
    medians.sort_by(f64::total_cmp);
    if let Some(usual) = medians.get(medians.len() / 2) {
        let at = MarkPosition::Y(usual * paper.number());
        chart = chart.mark(format!("paper, stateful: {:.0} times", paper.number()), at);
    }
    for (change, hosts) in &first[0].changes {
        chart = chart.mark(format!("{hosts} hosts"), MarkPosition::X(*change));
    }
    let lost: u64 = rounds.iter().map(|round| round[0].outcome.result.lost).sum();
    Ok(Findings {
        load,
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("latency", chart.svg()?)],
        tables: vec![("timeline", timeline(variants, rounds)), ("changes", changes(variants, rounds))],
        notes: vec![note],
        broken: (lost > 0).then(|| format!("{lost} UEs were lost although hosts came and went in good order")),
    })
}

fn timeline(variants: &[Variant], rounds: &[Vec<ScalingRun>]) -> Table {
    let mut table = Table::new(&["run", "configuration", "at_s", "done", "failed", "p50_ms", "p99_ms", "max_ms"]);
    for (head, changed) in lines(variants, rounds) {
        for bin in changed.outcome.bins("all") {
            let numbers = [bin.at_s, bin.done as f64, bin.failed as f64, bin.p50_ms, bin.p99_ms, bin.max_ms];
            table.row(head.iter().cloned().chain(numbers.iter().map(ToString::to_string)));
        }
    }
    table
}

fn changes(variants: &[Variant], rounds: &[Vec<ScalingRun>]) -> Table {
    let mut table = Table::new(&["run", "configuration", "at_s", "hosts"]);
    for (head, changed) in lines(variants, rounds) {
        for (at_s, hosts) in &changed.changes {
            table.row(head.iter().cloned().chain([at_s.to_string(), hosts.to_string()]));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Kind;
    use crate::steady::tests::outcome;
    use vireo_config::Config;
    use vireo_lab::options::CoreOptions;
    use vireo_lab::provision::config;

    fn changed(ms: f64, lost: u64) -> ScalingRun {
        let mut outcome = outcome(&[("service_request", 2)], Kind::Kill);
        outcome.result.lost = lost;
        let bin = &mut outcome.timeline[12].1;
        (bin.p50_ms, bin.max_ms) = (ms, ms * 2.0);
        ScalingRun { outcome, changes: vec![(1.0, 3), (1.8, 2)], led: Vec::new() }
    }

    #[test]
    fn host_change_is_judged_by_later_bins() {
        let (ours, baseline) = (changed(4.0, 0), changed(200.0, 30));
        assert!((ours.spike() - 2.0).abs() < 1e-6 && (ours.worst_ms() - 8.0).abs() < 1e-6, "{ours:?}");
        let variants = [scaled(), stateful(), replicated_stateful()];
        let found = findings(
            &variants,
            &[vec![ours, baseline, changed(3.0, 0)]],
            (OfferedLoad::default(), String::new()),
            true,
        )
        .unwrap();
        assert!(
            found.broken.is_none() && found.figures.iter().all(|figure| figure.met != Some(false)),
            "{:?}",
            found.figures
        );
        assert_eq!(found.figures[0].baseline.as_ref().map(|b| b.value.median), Some(100.0));
        let found = findings(
            &variants,
            &[vec![changed(9.0, 1), changed(1.0, 0), changed(1.0, 0)]],
            (OfferedLoad::default(), String::new()),
            false,
        );
        let found = found.unwrap();
        assert!(found.broken.is_some() && found.figures[0].met == Some(false));
        assert!(found.figures.iter().all(|figure| figure.unit != "hosts"));
    }

    #[test]
    fn idle_hosts_are_configured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let variant = scaled();
        let options = CoreOptions {
            slices: variant.slices.clone(),
            tables: variant.tables.clone(),
            hosts: variant.hosts,
            idle: variant.idle,
            ..CoreOptions::default()
        };
        std::fs::write(&path, config(&options)).unwrap();
        let config = Config::load(Some(&path)).unwrap();
        let scaling = config.cluster.scaling.unwrap().hosts;
        assert_eq!((scaling.least, scaling.most, scaling.idle, config.cluster.hosts), (2, 4, 2, 2));
    }
}
