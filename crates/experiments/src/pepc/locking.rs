//! Data-side throughput under signalling for three ways to share the users' state.
//!
//! The PEPC talk claims "up to 5X improvement over coarse grained locks".

use super::{BothSides, Load, PAPER, Slice, processors, side_by_side, users};
use crate::context::{Findings, each};
use crate::experiment::{Experiment, Plane, Run};
use crate::plot::{Axis, BarSeries, Bars};
use std::time::Duration;
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_datapath::Locking;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-locking",
    about: "How fast do packets go while users' state changes, with fine, coarse and shared-writer locks?",
    paper: PAPER,
    informative: None,
    run: Run::UserPlane(run),
};

/// One way to share the state.
struct Mode {
    name: &'static str,
    about: &'static str,
    locking: Locking,
}

const MODES: [Mode; 3] = [
    Mode {
        name: "fine",
        about: "Cut by writer: rules are read without a lock, under a sequence word, and counts written beside them.",
        locking: Locking::Fine,
    },
    Mode {
        name: "shared-writer",
        about: "A lock for each direction of a user, which packets take to write its counts and changes to write its rules.",
        locking: Locking::SharedWriter,
    },
    Mode {
        name: "coarse",
        about: "One lock around the state of all users, taken for each batch of 32 packets and each change.",
        locking: Locking::Coarse,
    },
];

/// Signalling loads: name and amount of events.
const LOADS: [(&str, Load); 5] = [
    ("no events", Load::Rate(0.0)),
    ("1K events/s", Load::Rate(1_000.0)),
    ("10K events/s", Load::Rate(10_000.0)),
    ("100K events/s", Load::Rate(100_000.0)),
    ("most events", Load::Most),
];
/// Index in [`LOADS`] of the paper's load.
const PAPERS: usize = 2;
/// Maximum ratio that the paper claims for fine-grained locks.
const FINE_OVER_COARSE: f64 = 5.0;
/// Least fraction of its rate that the data side must keep at 10K events/s.
const KEPT: f64 = 0.98;

/// One run of one mode: every load, and afterwards the first, without events, again.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    loads: [BothSides; LOADS.len()],
    last: BothSides,
}

impl Sweep {
    fn packets(&self, load: usize) -> f64 {
        self.loads[load].data.rate()
    }

    /// Returns the packet rate as a fraction of the rate without events, measured before and after.
    fn kept_rate(&self, load: usize) -> f64 {
        self.packets(load) / f64::midpoint(self.packets(0), self.last.data.rate())
    }
}

fn run(plane: &Plane) -> Result<Findings, Failure> {
    let span = Duration::from_millis(if plane.quick { 60 } else { 500 });
    let places = processors(plane);
    let mut runs = vec![];
    for n in 1..=plane.runs {
        eprintln!("experiment: run {n} of {}", plane.runs);
        let sweep = |mode: &Mode| {
            let Slice { mut data, mut control } = Slice::new(plane, mode.locking, 1)?;
            let mut measure = |load| {
                plane.interrupt.check()?;
                side_by_side(&mut data, &mut control, load, span, places)
            };
            let loads = LOADS.map(|(_, load)| measure(load));
            let last = measure(LOADS[0].1)?;
            let [none, thousand, ten, hundred, most] = loads;
            Ok::<_, Failure>(Sweep { loads: [none?, thousand?, ten?, hundred?, most?], last })
        };
        let [fine, writer, coarse] = &MODES;
        runs.push([sweep(fine)?, sweep(writer)?, sweep(coarse)?]);
    }
    findings(&runs, users(plane), places)
}

fn findings(runs: &[[Sweep; MODES.len()]], users: u32, (data, control): (usize, usize)) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let columns = ["run", "locking", "events", "packets_per_s", "events_per_s", "ns_per_packet", "ns_per_event"];
    let mut table = Table::new(&columns);
    for (place, mode) in MODES.iter().enumerate() {
        for (load, (name, _)) in LOADS.iter().enumerate() {
            let named = |what: &str| format!("{}, {name}, {what}", mode.name);
            figures.push(Figure::new(named("packets"), "1/s", each(runs, |run| run[place].packets(load))?));
            if load == 0 {
                continue;
            }
            let kept =
                Figure::new(named("of the packets without events"), "ratio", each(runs, |r| r[place].kept_rate(load))?);
            let judged = mode.locking == Locking::Fine && load == PAPERS;
            figures.push(if judged { kept.mark(Bound::AtLeast(KEPT)) } else { kept });
            let achieved = |run: &[Sweep; 3]| run[place].loads[load].control.achieved();
            figures.push(Figure::new(named("events"), "1/s", each(runs, achieved)?));
        }
        for (n, run) in runs.iter().enumerate() {
            let rows = run[place].loads.iter().zip(LOADS).map(|(sides, (name, _))| (name, sides));
            for (name, BothSides { data, control }) in rows.chain([("none, again", &run[place].last)]) {
                table.row([
                    (n + 1).to_string(),
                    mode.name.to_owned(),
                    name.to_owned(),
                    data.rate().to_string(),
                    control.achieved().to_string(),
                    data.nanoseconds().to_string(),
                    control.nanoseconds().to_string(),
                ]);
            }
        }
    }
    for (load, (name, _)) in LOADS.iter().enumerate() {
        for (place, mode) in MODES.iter().enumerate().skip(1) {
            let ratio = each(runs, |run| run[0].packets(load) / run[place].packets(load))?;
            let figure = Figure::new(format!("fine over {}, {name}", mode.name), "ratio", ratio);
            let coarse = mode.locking == Locking::Coarse;
            figures.push(if coarse { figure.paper(Bound::AtMost(FINE_OVER_COARSE), "talk: up to 5x") } else { figure });
        }
    }
    let series = MODES.iter().enumerate().map(|(place, mode)| {
        let value = |load| each(runs, |run| run[place].packets(load) / 1e6).map(Some);
        let values = (0..LOADS.len()).map(value).collect::<Result<_, _>>()?;
        // The talk's ratio applies to fine locks, over the coarse lock at the same load.
        let coarse = MODES.iter().position(|mode| mode.locking == Locking::Coarse);
        let paper = |load| match (place, coarse) {
            (0, Some(coarse)) => {
                each(runs, |run| run[coarse].packets(load) / 1e6).map(|rate| Some(rate.median * FINE_OVER_COARSE))
            }
            _ => Ok(None),
        };
        let paper = (0..LOADS.len()).map(paper).collect::<Result<_, _>>()?;
        Ok(BarSeries { name: mode.name.into(), values, paper })
    });
    let bars = Bars {
        title: format!("Packets beside signalling, {users} users"),
        groups: LOADS.iter().map(|(name, _)| (*name).into()).collect(),
        y: Axis::linear("million packets per second"),
        series: series.collect::<Result<_, Failure>>()?,
    };
    let mut notes = vec![
        "Packets of 128 octets of random users lie in memory; a packet's time is that of finding its user, deciding, counting \
         and writing its headers, and waiting for locks, in batches of 32, on one processor. On another one events come: every \
         other one is a handover (a new tunnel, and an End Marker for the old one), the others are users that attach and leave."
            .to_owned(),
        "Most events: one after the other, as fast as the way of locking lets them.".to_owned(),
    ];
    if data == control {
        notes.push("Both sides share the only processor: they wait for it and not for each other.".into());
    }
    let rates = LOADS.iter().filter_map(|(_, load)| match load {
        Load::Rate(rate) => Some(*rate),
        _ => None,
    });
    let configuration = |mode: &Mode| Configuration {
        name: mode.name.into(),
        about: mode.about.into(),
        toml: format!("[datapath]\nlocking = \"{}\"\n", mode.name),
    };
    Ok(Findings {
        load: OfferedLoad::new(
            "packets back to back beside events; the last load has as many as possible",
            rates,
            "1/s",
        ),
        configurations: MODES.iter().map(configuration).collect(),
        figures,
        plots: vec![("packets", bars.svg()?)],
        tables: vec![("sweeps", table)],
        notes,
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pepc::SideWork;

    #[test]
    fn locking_rate_uses_quiet_and_coarse_runs() {
        let second = Duration::from_secs(1);
        let worked = |count| SideWork { count, spent: second / 2, passed: second };
        let sides = |packets| BothSides { data: worked(packets), control: worked(77) };
        let sweep = |before, during, after| Sweep {
            loads: [before, during, during, during, during].map(sides),
            last: sides(after),
        };
        let runs = [[sweep(1_000, 990, 1_010), sweep(900, 800, 900), sweep(500, 100, 500)]];
        let found = findings(&runs, 250_000, (0, 1)).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(figure("fine, no events, packets").ours.median, 2_000.0);
        let kept = figure("fine, 10K events/s, of the packets without events");
        assert!(
            kept.met == Some(true) && kept.mark.is_some() && (kept.ours.median - 990.0 / 1_005.0).abs() < 1e-9,
            "{kept:?}"
        );
        assert!(figure("coarse, 10K events/s, of the packets without events").mark.is_none());
        let over = figure("fine over coarse, most events");
        assert_eq!((over.ours.median, over.paper.as_ref().unwrap().value.number()), (9.9, 5.0));
        assert_eq!(figure("coarse, most events, events").ours.median, 77.0);
        assert_eq!((found.plots.len(), found.configurations.len()), (1, 3));
        let lost = findings(&[[sweep(1_000, 970, 1_000); 3]], 1, (0, 0)).unwrap();
        assert!(lost.figures.iter().any(|figure| figure.met == Some(false)) && lost.notes.len() == 3);
    }
}
