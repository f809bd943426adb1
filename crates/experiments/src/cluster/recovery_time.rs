//! MMLite figure 2d: time until UEs are served again after a host dies, by load.

use super::{HOT_ONE, HostFailureRun, capped, host_fails, lines, service_requests, split_unit};
use crate::context::{ExperimentContext, Findings, Metric, Variant};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::members::HostFault;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mmlite-fig2d",
    about: "How long do UEs take to be served again when the host that keeps them dies?",
    paper: "MMLite, figure 2d",
    informative: None,
    run: Run::EitherRat(run),
};

/// Loads as fractions of the saturation rate. The last one leaves no capacity for UEs that register
/// again.
const LOADS: [f64; 4] = [0.25, 0.5, 0.75, 0.95];
const BEFORE_S: f64 = 2.0;
/// Time after the failure in seconds, long enough for all UEs to be served again.
const AFTER_S: f64 = 12.0;
/// Recovery time of the stateful MME in the paper, in milliseconds. The paper's text says "seconds,
/// and even minutes".
const PAPER_MS: f64 = 1000.0;

/// Figures reported per case.
const TOLD: [Metric<HostFailureRun>; 4] = [
    ("longest until served again (ms)", |failed| failed.around.worst_ms),
    ("time until latency is as before (s)", |failed| failed.around.recovered_s),
    ("UEs that had to register anew (%)", HostFailureRun::lost_share),
    ("failed procedures", HostFailureRun::failed),
];

fn variants() -> [Variant; 3] {
    [HOT_ONE.variant(), super::stateful(), super::replicated_stateful()]
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let variants = variants().map(|variant| capped(session, variant));
    let limit = super::saturation(session, &variants[0], &service_requests)?;
    let loads: Vec<f64> = if session.quick { vec![0.5] } else { LOADS.to_vec() };
    let (before, after) = if session.quick { (1.0, 2.0) } else { (BEFORE_S, AFTER_S) };
    // Index order: run, variant, load.
    let rounds = session.repeat("a host dies", |_| {
        let one = |variant: &Variant, load: f64| {
            session.interrupt.check()?;
            let steady = service_requests(session, limit * load, before + after);
            let failed = host_fails(session, variant, &steady, HostFault::Kill, before)?;
            let (worst, lost) = (failed.around.worst_ms, failed.lost_ues());
            eprintln!("experiment: {:.0}% load, {}: at worst {worst:.0} ms, {lost} lost", load * 100.0, variant.name);
            Ok(failed)
        };
        let line = |variant: &Variant| loads.iter().map(|load| one(variant, *load)).collect();
        variants.iter().map(line).collect::<Result<Vec<Vec<HostFailureRun>>, Failure>>()
    })?;
    findings(&variants, limit, &loads, &rounds)
}

fn findings(
    variants: &[Variant],
    limit: f64,
    loads: &[f64],
    rounds: &[Vec<Vec<HostFailureRun>>],
) -> Result<Findings, Failure> {
    let at = |variant: usize, load: usize, value: fn(&HostFailureRun) -> f64| {
        Measured::each(rounds, |round| value(&round[variant][load]))
            .ok_or_else(|| Failure("nothing was measured".into()))
    };
    let mut figures = Vec::new();
    for (place, load) in loads.iter().enumerate() {
        for (what, value) in TOLD {
            let (what, unit) = split_unit(what);
            let name = format!("{what}, {:.0}% load", load * 100.0);
            let figure = Figure::new(name, unit, at(0, place, value)?);
            let figure = figure.baseline(variants[1].name, Some(at(1, place, value)?));
            figures.push(match what {
                "longest until served again" => {
                    figure.paper(Bound::AtLeast(PAPER_MS), "figure 2d, stateful").mark(Bound::AtMost(500.0))
                }
                "UEs that had to register anew" => figure.mark(Bound::AtMost(0.0)),
                _ => figure,
            });
        }
        for (other, variant) in variants.iter().enumerate().skip(2) {
            for (what, value) in TOLD {
                let (what, unit) = split_unit(what);
                let name = format!("{what}, {:.0}% load, {}", load * 100.0, variant.name);
                figures.push(Figure::new(name, unit, at(other, place, value)?));
            }
        }
    }
    let mut chart = Chart::new(
        "Longest time until UEs are served again after a host's death",
        Axis::linear("service requests per second"),
        Axis::log("time (ms)"),
    );
    for (place, variant) in variants.iter().enumerate() {
        let point = |load: usize| Ok::<_, Failure>((limit * loads[load], at(place, load, TOLD[0].1)?.median));
        chart = chart.line(variant.name, (0..loads.len()).map(point).collect::<Result<_, _>>()?);
    }
    let lost: f64 = rounds.iter().flat_map(|round| &round[0]).map(HostFailureRun::lost_ues).sum();
    Ok(Findings {
        load: OfferedLoad::new("service requests, open loop", loads.iter().map(|part| limit * part), "1/s"),
        configurations: variants.iter().map(Variant::configuration).collect(),
        figures,
        plots: vec![("again", chart.mark("paper, stateful: seconds and more", MarkPosition::Y(PAPER_MS)).svg()?)],
        tables: vec![("cases", table(variants, limit, loads, rounds))],
        notes: vec![format!(
            "Three hosts behind one balancer, each with a quarter of a processor (not in the short form), share all processors \
             with the emulator; the load is a part of {limit:.0} service \
             requests/s, T1, open loop, and the host with the most UEs is killed. Time counts from when a UE's request was due \
             until it is served, by a new registration if need be. Every UE repeats a request after 1 s and registers anew after \
             5 s; hosts that do not know a UE say so at once, so that the stateful baseline is kinder than the paper's, whose \
             UEs wait. The replicated stateful core loses no UE: what it lacks against ours is the decomposition alone."
        )],
        broken: (lost > 0.0).then(|| format!("{lost} UEs were lost although there were copies of them")),
    })
}

fn table(variants: &[Variant], limit: f64, loads: &[f64], rounds: &[Vec<Vec<HostFailureRun>>]) -> Table {
    let mut table = Table::new(&[
        "run",
        "configuration",
        "requests_per_s",
        "completed",
        "failed",
        "lost",
        "retries",
        "usual_ms",
        "worst_ms",
        "recovered_s",
    ]);
    for (head, line) in lines(variants, rounds) {
        for (load, failed) in loads.iter().zip(line) {
            let r = &failed.outcome.result;
            let counts = [r.completed, r.failed_procedures, r.lost, r.retries].map(|n| n as f64);
            let a = failed.around;
            let numbers = [&[limit * load][..], &counts, &[a.usual_ms, a.worst_ms, a.recovered_s]].concat();
            table.row(head.iter().cloned().chain(numbers.iter().map(ToString::to_string)));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::failed;

    #[test]
    fn lost_ue_breaks_ours_and_not_baseline() {
        let variants = variants();
        let round = |lost| {
            let standby = vec![failed(50.0, 0), failed(95.0, 0)];
            vec![vec![failed(40.0, 0), failed(90.0, lost)], vec![failed(900.0, 30), failed(6000.0, 60)], standby]
        };
        let found = findings(&variants, 1000.0, &[0.5, 0.9], &[round(0)]).unwrap();
        assert!(
            found.broken.is_none() && found.figures.iter().all(|figure| figure.met != Some(false)),
            "{:?}",
            found.figures
        );
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        let longest = figure("longest until served again, 90% load");
        assert_eq!((longest.ours.median, longest.unit.as_str()), (90.0, "ms"));
        assert_eq!(longest.baseline.as_ref().map(|b| b.value.median), Some(6000.0));
        assert_eq!(figure("UEs that had to register anew, 50% load").baseline.as_ref().unwrap().value.median, 30.0);
        assert_eq!(figure("longest until served again, 90% load, stateful, replicated").ours.median, 95.0);
        let found = findings(&variants, 1000.0, &[0.5, 0.9], &[round(2)]).unwrap();
        assert!(found.broken.is_some_and(|what| what.contains("2 UEs")));
    }
}
