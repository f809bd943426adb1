//! Table 2 of the public-cloud paper: breakdown of a packet's time by driver.

use super::context::{Findings, each};
use crate::capacity::PacketTime;
use crate::experiment::{Experiment, Plane, Run};
use crate::plot::{Axis, BarSeries, Bars};
use std::time::Duration;
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_bench::upf::breakdown::{PacketTimeParts, TestBed};
use vireo_bench::upf::compute::Compute;
use vireo_bench::upf::drivers::DRIVERS;
use vireo_config::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cloud-breakdown",
    about: "Where does the time of a packet go: receiving, sending, or the user plane between them?",
    paper: "Scaling Telecom Core Network Functions in Public Cloud Infrastructure, table 2",
    informative: None,
    run: Run::UserPlane(run),
};

/// The XDP program, for which receiving and sending are one part.
const XDP: &str = "xdp";
/// Receive and send times in the paper, in nanoseconds, and their source.
const RECEIVE: f64 = 1554.0;
const SEND: f64 = 1594.0;
const TABLE: &str = "table 2";
/// Limit of a packet's time between input and output, in nanoseconds.
const COMPUTE: f64 = 35.0;

/// One run of one driver: uplink, downlink.
type DirectionParts = [PacketTimeParts; 2];

fn run(plane: &Plane) -> Result<Findings, Failure> {
    let sessions = if plane.quick { 2_500 } else { 250_000 };
    let span = Duration::from_millis(if plane.quick { 80 } else { 600 });
    let (processor, beside) = plane.processors();
    let (network, interrupt) = (&plane.network, &plane.interrupt);
    let bed = TestBed { network, processor, beside: &beside, sessions, span, interrupt };
    let mut compute = Compute::new(&plane.network, sessions)?;
    let mut drivers: Vec<(&'static str, Vec<DirectionParts>)> = vec![];
    for driver in &DRIVERS {
        let mut runs = vec![];
        for n in 1..=plane.runs {
            eprintln!("experiment: {}, run {n} of {}", driver.name, plane.runs);
            runs.push(bed.driver(driver, &mut compute)?);
        }
        drivers.push((driver.name, runs));
    }
    let mut runs = vec![];
    for n in 1..=plane.runs {
        eprintln!("experiment: {XDP}, run {n} of {}", plane.runs);
        runs.push(bed.xdp()?);
    }
    drivers.push((XDP, runs));
    findings(&drivers, sessions)
}

/// Reported part of a packet's time: name, extractor and value of the paper.
type Part = (&'static str, fn(&PacketTimeParts) -> f64, f64);

const PARTS: [Part; 6] = [
    ("T_rx", |parts| parts.receive, RECEIVE),
    ("T_tx", |parts| parts.send, SEND),
    ("T_n", |parts| parts.network(), PacketTime::PAPER.network),
    ("T_c", |parts| parts.compute, PacketTime::PAPER.compute),
    ("other", |parts| parts.other, PacketTime::PAPER.other),
    ("T_p", |parts| parts.total(), PacketTime::PAPER.network + PacketTime::PAPER.compute + PacketTime::PAPER.other),
];

/// Returns true if the driver reports this part separately.
fn has_figure(driver: &str, part: &str) -> bool {
    driver != XDP || !matches!(part, "T_rx" | "T_tx" | "other")
}

fn findings(drivers: &[(&'static str, Vec<DirectionParts>)], sessions: u32) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let mut table = Table::new(&["driver", "run", "direction", "receive_ns", "send_ns", "compute_ns", "other_ns"]);
    for (driver, runs) in drivers {
        for (part, of, paper) in PARTS.into_iter().filter(|(part, ..)| has_figure(driver, part)) {
            let name = format!("{driver}, {part}");
            let mean = each(runs, |[uplink, downlink]| of(&uplink.mean(*downlink)))?;
            let mut figure = Figure::new(name, "ns", mean).paper(Bound::About(paper), TABLE);
            if part == "T_p" {
                figure = figure.mark(Bound::Below(paper));
            }
            figures.push(figure);
            for (way, name) in ["uplink", "downlink"].into_iter().enumerate() {
                let figure = Figure::new(format!("{driver}, {name}, {part}"), "ns", each(runs, |run| of(&run[way]))?);
                // The mark applies to each direction of the user-space engine.
                let judged = part == "T_c" && *driver != XDP;
                figures.push(if judged { figure.mark(Bound::AtMost(COMPUTE)) } else { figure });
            }
        }
        for (n, run) in runs.iter().enumerate() {
            for (way, parts) in ["uplink", "downlink"].into_iter().zip(run) {
                let numbers = [parts.receive, parts.send, parts.compute, parts.other].map(|ns| ns.to_string());
                let row = [(*driver).to_owned(), (n + 1).to_string(), way.to_owned()].into_iter().chain(numbers);
                table.row(row);
            }
        }
    }
    let told = || PARTS.into_iter().filter(|(part, ..)| matches!(*part, "T_n" | "T_c" | "T_p"));
    let series = told().map(|(part, of, paper)| {
        let value = |(_, runs): &(&str, Vec<DirectionParts>)| each(runs, |[up, down]| of(&up.mean(*down))).map(Some);
        let values = drivers.iter().map(value).collect::<Result<_, _>>()?;
        Ok(BarSeries { name: part.into(), values, paper: vec![Some(paper); drivers.len()] })
    });
    let bars = Bars {
        title: format!("Time of a packet of 128 octets, {sessions} sessions"),
        groups: drivers.iter().map(|(driver, _)| (*driver).into()).collect(),
        y: Axis::log("ns"),
        series: series.collect::<Result<_, Failure>>()?,
    };
    let configuration = |(driver, _): &(&str, Vec<DirectionParts>)| Configuration {
        name: (*driver).into(),
        about: "The user plane by this driver with one worker.".into(),
        toml: format!("[datapath]\ndriver = \"{driver}\"\nworkers = 1\n"),
    };
    Ok(Findings {
        load: OfferedLoad::new("128-byte packets back to back on one processor", [f64::from(sessions)], "sessions"),
        configurations: drivers.iter().map(configuration).collect(),
        figures,
        plots: vec![("times", bars.svg()?)],
        tables: vec![("times", table)],
        notes: vec![
            "Packets are made on the one processor that handles them, never more than fit on the way, and in turns: made, \
             handled, made (SCHED_BATCH), so that batches are alike in all that is subtracted. T_rx: what receiving \
             adds to making them; T_tx: what a bare forwarder by the same driver adds to receiving, to the far end of a \
             virtual link; T_c: the engine on frames in memory, by itself; other: what the user plane adds to the bare \
             forwarder beyond T_c. So the kernel's part of receiving and sending is in T_n, which is more than the time \
             of the paper's system calls. XDP cannot be split: T_n is what a program that only moves headers adds to \
             making packets, T_c what ours adds to that."
                .into(),
            "The figures without a direction are the mean of both; vireo plan --measured reads them.".into(),
        ],
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_beside_the_papers() {
        let parts =
            |by: f64| PacketTimeParts { receive: 500.0 * by, send: 700.0 * by, compute: 30.0, other: 20.0 * by };
        let kernel = PacketTimeParts { receive: 0.0, send: 150.0, compute: 90.0, other: 0.0 };
        let drivers = [("af-xdp", vec![[parts(1.0), parts(3.0)]]), (XDP, vec![[kernel, kernel]])];
        let found = findings(&drivers, 250_000).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name);
        let total = figure("af-xdp, T_p").unwrap();
        assert!(total.met == Some(true) && (total.ours.median - (2.0 * 1220.0 + 30.0)).abs() < 1e-9, "{total:?}");
        assert_eq!(total.paper.as_ref().unwrap().value.number(), 3694.0);
        assert_eq!(figure("af-xdp, downlink, T_rx").unwrap().ours.median, 1500.0);
        assert!(figure("af-xdp, downlink, T_c").unwrap().mark.is_some());
        assert!(figure("xdp, T_rx").is_none() && figure("xdp, uplink, T_c").unwrap().mark.is_none());
        assert_eq!((found.plots.len(), found.configurations.len()), (1, 2));
    }
}
