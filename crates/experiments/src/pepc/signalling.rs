//! Throughput by ratio of packets to signalling events (PEPC talk, main figure).
//!
//! The ratio ranges from one event per 1,000 packets to one per 10. The subjects are:
//!
//! * a slice with its sides on two processors, and on one;
//! * a slice with other ways to share its state;
//! * a core whose state is split by function.

use super::processes::{self, SignallingResult};
use super::ran_signalling;
use super::split::{Carrier, Split};
use super::{BothSides, Load, PAPER, Packets, Signalling, Slice, median, processors, side_by_side, users};
use crate::context::{Findings, each};
use crate::experiment::{Experiment, Plane, Run};
use crate::plot::{Axis, Chart, MarkPosition};
use std::time::Duration;
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_datapath::Locking;
use vireo_emulator::Rats;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-signalling",
    about: "How fast do packets go beside signalling, in a slice and in a core whose state is split by function?",
    paper: PAPER,
    informative: None,
    run: Run::EitherRatUserPlane(run),
};

/// A measured configuration.
struct Subject {
    name: &'static str,
    about: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A slice: how its state is shared, and the number of events per change.
    Slice(Locking, u64),
    /// A slice whose sides share a processor.
    OneProcessor,
    /// The parts of a classical EPC.
    Split(Carrier),
}

const SLICE: usize = 0;
const BATCHES: usize = 1;
const ONE: usize = 2;
const SOCKETS: usize = 5;
const QUEUES: usize = 6;
const SUBJECTS: [Subject; 7] = [
    Subject {
        name: "slice",
        about: "State once, control side and data side on a processor each.",
        kind: Kind::Slice(Locking::Fine, 1),
    },
    Subject {
        name: "slice, batches",
        about: "The same; up to 32 events that are due reach the data side as one change.",
        kind: Kind::Slice(Locking::Fine, 32),
    },
    Subject {
        name: "slice, one processor",
        about: "The control side's events are carried out between the data side's batches, by the same thread.",
        kind: Kind::OneProcessor,
    },
    Subject {
        name: "shared-writer",
        about: "A lock for each direction of a user, for packets and for changes.",
        kind: Kind::Slice(Locking::SharedWriter, 1),
    },
    Subject { name: "coarse", about: "One lock around all users.", kind: Kind::Slice(Locking::Coarse, 1) },
    Subject {
        name: "split, sockets",
        about: "State split over parts like MME, S-GW and P-GW, which send each other requests and answers by UDP.",
        kind: Kind::Split(Carrier::Sockets),
    },
    Subject {
        name: "split, queues",
        about: "The same parts with queues in memory in place of UDP.",
        kind: Kind::Split(Carrier::Queues),
    },
];

/// Packets per event.
const RATIOS: [f64; 5] = [1000.0, 300.0, 100.0, 30.0, 10.0];
/// Indices in [`RATIOS`] of the marks: where the throughput of the talk's industrial EPC drops, and
/// the talk's last ratio.
const HUNDRED: usize = 2;
const TEN: usize = 4;
/// Events per second, with names.
const RATES: [(&str, f64); 2] = [("10K events/s", 1e4), ("100K events/s", 1e5)];
/// Least fraction of its rate that the data side must keep at the first of the [`RATES`], in memory
/// and as a process.
const KEPT: f64 = 0.98;
/// PFCP session modifications per second of the UPF process, with names. The last rate is as many
/// as the one N4 thread answers.
const PROCESS_RATES: [(&str, f64); 4] =
    [("1K events/s", 1e3), ("10K events/s", 1e4), ("50K events/s", 5e4), ("most events", f64::INFINITY)];
/// Index in [`PROCESS_RATES`] of the rate with a mark.
const MARKED: usize = 1;
const TALK: &str = "talk, summary: 3-7x better";
/// Least ratio of the slice's throughput to the split core's at 1:100.
const AHEAD: f64 = 3.0;

/// Turns without events. One turn at each of the [`RATES`] follows each but the last.
const TURNS: usize = 4;

/// One run of one subject.
#[derive(Clone, Debug)]
struct Sweep {
    /// Results without events, by turn.
    none: Vec<BothSides>,
    /// Results by rate and turn.
    rates: [Vec<BothSides>; RATES.len()],
    ratios: Vec<BothSides>,
}

impl Sweep {
    fn measure(mut measure: impl FnMut(Load) -> Result<BothSides, Failure>) -> Result<Self, Failure> {
        let (mut none, mut rates) = (vec![], [vec![], vec![]]);
        for turn in 0..TURNS {
            let alone = measure(Load::Rate(0.0))?;
            none.push(alone);
            if turn + 1 == TURNS {
                break;
            }
            for (seen, (_, events)) in rates.iter_mut().zip(RATES) {
                // Packet rate during the data side's working time, which excludes making packets.
                seen.push(measure(Load::Ratio(alone.together() / events))?);
            }
        }
        let ratios = RATIOS.iter().map(|packets| measure(Load::Ratio(*packets))).collect::<Result<_, _>>()?;
        Ok(Sweep { none, rates, ratios })
    }

    /// Returns the packets per second without events.
    fn rate_alone(&self) -> f64 {
        median(self.none.iter().map(BothSides::together))
    }

    /// Returns the fraction of the rate without events. Each turn is compared with the turns before
    /// and after it.
    fn kept_rate(&self, rate: usize) -> f64 {
        let around = self.none.windows(2).map(|pair| f64::midpoint(pair[0].together(), pair[1].together()));
        median(self.rates[rate].iter().zip(around).map(|(with, without)| with.together() / without))
    }

    fn at(&self, ratio: usize) -> f64 {
        self.ratios[ratio].together()
    }
}

type Sweeps = [Sweep; SUBJECTS.len()];

fn run(plane: &Plane) -> Result<Findings, Failure> {
    if plane.rats != Rats::Nr {
        return ran_signalling::run(plane);
    }
    let span = Duration::from_millis(if plane.quick { 30 } else { 250 });
    let places = processors(plane);
    let (mut runs, mut apart) = (vec![], vec![]);
    for n in 1..=plane.runs {
        eprintln!("experiment: run {n} of {}", plane.runs);
        let sessions = if plane.quick { 1_000 } else { users(plane) };
        let [a, b, c, d] = PROCESS_RATES.map(|(_, rate)| processes::measure(plane, sessions, rate, 2 * span, places));
        apart.push([a?, b?, c?, d?]);
        let [a, b, c, d, e, f, g] = SUBJECTS.map(|subject| sweep(plane, &subject, span, places));
        runs.push([a?, b?, c?, d?, e?, f?, g?]);
    }
    findings(&runs, &apart, users(plane), places)
}

fn sweep(plane: &Plane, subject: &Subject, span: Duration, places: (usize, usize)) -> Result<Sweep, Failure> {
    fn measure(
        plane: &Plane,
        data: &mut impl Packets,
        control: &mut (impl Signalling + Send),
        span: Duration,
        places: (usize, usize),
    ) -> Result<Sweep, Failure> {
        Sweep::measure(|load| {
            plane.interrupt.check()?;
            side_by_side(data, control, load, span, places)
        })
    }
    match subject.kind {
        Kind::Slice(locking, together) => {
            let Slice { mut data, mut control } = Slice::new(plane, locking, together)?;
            measure(plane, &mut data, &mut control, span, places)
        }
        Kind::OneProcessor => {
            measure(plane, &mut Slice::new(plane, Locking::Fine, 1)?, &mut super::NoSignalling, span, places)
        }
        Kind::Split(carrier) => {
            let Split { mut gateways, mut mme } = Split::new(&plane.network, users(plane), carrier)?;
            measure(plane, &mut gateways, &mut mme, span, places)
        }
    }
}

/// Results of the UPF process by rate.
type Processes = [SignallingResult; PROCESS_RATES.len()];

fn findings(
    runs: &[Sweeps],
    apart: &[Processes],
    users: u32,
    (data, control): (usize, usize),
) -> Result<Findings, Failure> {
    let mut figures = vec![];
    for (place, subject) in SUBJECTS.iter().enumerate() {
        let named = |what: &str| format!("{}, {what}", subject.name);
        let of = |value: &dyn Fn(&Sweep) -> f64| each(runs, |run| value(&run[place]));
        figures.push(Figure::new(named("no events, packets"), "1/s", of(&Sweep::rate_alone)?));
        for (rate, (name, _)) in RATES.iter().enumerate() {
            let kept = Figure::new(named(&format!("{name}, of those")), "ratio", of(&|sweep| sweep.kept_rate(rate))?);
            figures.push(if (place, rate) == (SLICE, 0) { kept.mark(Bound::AtLeast(KEPT)) } else { kept });
        }
        for (ratio, packets) in RATIOS.iter().enumerate() {
            let figure = Figure::new(named(&format!("1:{packets}, packets")), "1/s", of(&|sweep| sweep.at(ratio))?);
            figures.push(match (place, ratio) {
                (SLICE, TEN) => figure.paper(Bound::About(6e6), "talk: ~6 Mpps for 1:10"),
                (SOCKETS, TEN) => figure.paper(Bound::About(1e5), "talk: Industrial#1, 0.1 Mpps for more than 1:100"),
                _ => figure,
            });
        }
        let control = |sides: &BothSides| sides.control.nanoseconds();
        // On one processor the control side's time cannot be measured separately.
        if runs.iter().all(|run| control(&run[place].ratios[HUNDRED]) > 0.0) {
            let times = of(&|s| control(&s.ratios[HUNDRED]))?;
            figures.push(Figure::new(named("1:100, control side's time of an event"), "ns", times));
        }
    }
    for other in SLICE + 1..SUBJECTS.len() {
        for (ratio, packets) in RATIOS.iter().enumerate() {
            let over = each(runs, |run| run[SLICE].at(ratio) / run[other].at(ratio))?;
            let figure = Figure::new(format!("slice over {}, 1:{packets}", SUBJECTS[other].name), "ratio", over);
            figures.push(match (other, ratio) {
                (SOCKETS, HUNDRED) => figure.paper(Bound::AtLeast(3.0), TALK).mark(Bound::AtLeast(AHEAD)),
                (QUEUES, HUNDRED) => figure.paper(Bound::AtLeast(3.0), TALK),
                _ => figure,
            });
        }
    }
    let over = each(runs, |run| run[ONE].at(HUNDRED) / run[SOCKETS].at(HUNDRED))?;
    for (ratio, packets) in RATIOS.iter().enumerate().skip(HUNDRED) {
        let ratio = each(runs, |run| run[BATCHES].at(ratio) / run[SLICE].at(ratio))?;
        figures.push(Figure::new(format!("slice, batches over slice, 1:{packets}"), "ratio", ratio));
    }
    figures.push(Figure::new("slice, one processor over split, sockets, 1:100", "ratio", over));
    figures.extend(process_figures(apart)?);
    let lines = SUBJECTS.iter().enumerate().map(|(place, subject)| {
        let point = |n: usize| each(runs, |run| run[place].at(n) / 1e6).map(|rate| (1.0 / RATIOS[n], rate.median));
        Ok((subject.name, (0..RATIOS.len()).map(point).collect::<Result<Vec<_>, Failure>>()?))
    });
    let mut chart = Chart::new(
        format!("Packets beside signalling, {users} users"),
        Axis::log("signalling events for a packet"),
        Axis::linear("million packets per second"),
    )
    .mark("talk, PEPC: ~6 Mpps at 1:10", MarkPosition::Point(1.0 / RATIOS[TEN], 6.0))
    .mark("talk, Industrial#1: 0.1 Mpps beyond 1:100", MarkPosition::Point(1.0 / RATIOS[HUNDRED], 0.1));
    for line in lines.collect::<Result<Vec<_>, Failure>>()? {
        chart = chart.line(line.0, line.1);
    }
    Ok(Findings {
        load: OfferedLoad::new(
            "packets back to back beside events, and one event for 1,000 to 10 packets",
            RATES.map(|(_, events)| events),
            "1/s",
        ),
        configurations: SUBJECTS.iter().map(configuration).chain([in_processes()]).collect(),
        figures,
        plots: vec![("packets", chart.svg()?)],
        tables: vec![("sweeps", table(runs))],
        notes: notes(data == control),
        broken: None,
    })
}

/// Returns the figures of the UPF process.
fn process_figures(apart: &[Processes]) -> Result<Vec<Figure>, Failure> {
    let alone = each(apart, |seen| median(seen.iter().map(SignallingResult::rate_alone)))?;
    let mut figures = vec![Figure::new("processes, no events, packets", "1/s", alone)];
    for (place, (name, _)) in PROCESS_RATES.iter().enumerate() {
        let kept = each(apart, |seen| seen[place].kept_rate())?;
        let kept = Figure::new(format!("processes, {name}, of those"), "ratio", kept);
        figures.push(if place == MARKED { kept.mark(Bound::AtLeast(KEPT)) } else { kept });
        let events = each(apart, |seen| seen[place].events)?;
        figures.push(Figure::new(format!("processes, {name}, events"), "1/s", events));
    }
    Ok(figures)
}

fn configuration(subject: &Subject) -> Configuration {
    let toml = match subject.kind {
        Kind::Slice(Locking::Coarse, _) => "[datapath]\nlocking = \"coarse\"\n",
        Kind::Slice(Locking::SharedWriter, _) => "[datapath]\nlocking = \"shared-writer\"\n",
        Kind::Slice(Locking::Fine, _) | Kind::OneProcessor => "[datapath]\nlocking = \"fine\"\n",
        Kind::Split(_) => "",
    };
    Configuration { name: subject.name.into(), about: subject.about.into(), toml: toml.into() }
}

fn in_processes() -> Configuration {
    Configuration {
        name: "processes".into(),
        about: "vireo upf alone: packets by XDP on one processor, handovers through N4 on another one.".into(),
        toml: "[datapath]\ndriver = \"xdp\"\n".into(),
    }
}

fn table(runs: &[Sweeps]) -> Table {
    let mut table = Table::new(&["run", "core", "load", "packets_per_s", "packets", "events", "data_ns", "control_ns"]);
    for (n, run) in runs.iter().enumerate() {
        for (sweep, subject) in run.iter().zip(&SUBJECTS) {
            let none = sweep.none.iter().map(|sides| ("none".to_owned(), sides));
            let rates = RATES.iter().zip(&sweep.rates);
            let rates = rates.flat_map(|((name, _), turns)| turns.iter().map(|sides| ((*name).to_owned(), sides)));
            let ratios = RATIOS.iter().map(|packets| format!("1:{packets}")).zip(&sweep.ratios);
            for (load, sides) in none.chain(rates).chain(ratios) {
                let BothSides { data, control } = sides;
                table.row([
                    (n + 1).to_string(),
                    subject.name.to_owned(),
                    load,
                    sides.together().to_string(),
                    data.count.to_string(),
                    control.count.to_string(),
                    data.spent.as_nanos().to_string(),
                    control.spent.as_nanos().to_string(),
                ]);
            }
        }
    }
    table
}

fn notes(alone: bool) -> Vec<String> {
    let mut notes = vec![
        "Packets of 128 octets of random users lie in memory and are decided on in batches of 32, both directions by turns; \
         what receiving and sending costs is not in it. An event is a state insert or update: every other one a handover (a \
         new tunnel, and an End Marker for the old one), the others users that attach and leave."
            .to_owned(),
        "Packets and events come in the ratio: neither side goes on without the other. The rate is that of the processor \
         that has more to do, by its time in packets, events, messages and waiting for locks; making packets is not in it. \
         Events a second are those of a second of that time."
            .to_owned(),
        "The split core's costs by construction are a second look-up and header for each packet, and messages that are written, \
         carried and read: the gateways carry out theirs on the processor of packets, where GTP-C ends beside GTP-U. Messages by \
         UDP are what parts that are programs of their own have; queues in memory are the least that messages can cost."
            .to_owned(),
        "Processes: packets of random users go round in the kernel between XDP and programs at the far ends of links, so \
         receiving and sending is in their rate; an event is a PFCP session modification, with an End Marker, by a control plane \
         in another process, beside the UPF's N4 thread on the processor that has no packets."
            .to_owned(),
        "Most events: as many as the N4 thread answers while the control plane shares its processor. PEPC has a control \
         thread for each slice; one thread serves all slices here."
            .to_owned(),
    ];
    if alone {
        notes.push("Both sides share the only processor: they wait for it and not for each other.".into());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pepc::SideWork;

    #[test]
    fn rate_of_busier_side_uses_split_core() {
        let worked = |count, ms| SideWork { count, spent: Duration::from_millis(ms), passed: Duration::from_secs(1) };
        let sides = |packets, data, control| BothSides { data: worked(packets, data), control: worked(100, control) };
        assert_eq!((sides(1000, 500, 250).together(), sides(1000, 250, 500).together()), (2000.0, 2000.0));
        let sweep = |rate, loaded| Sweep {
            none: [rate - 10, rate + 10, rate - 10, rate + 10].map(|packets| sides(packets, 1000, 0)).to_vec(),
            rates: [rate * 99 / 100, rate].map(|packets| vec![sides(packets, 1000, 500); 3]),
            ratios: vec![sides(loaded, 1000, 900); 5],
        };
        let mut run = std::array::from_fn(|_| sweep(1000, 900));
        run[SOCKETS] = sweep(600, 250);
        run[QUEUES] = sweep(600, 310);
        let apart = |events| SignallingResult { rates: vec![100.0, 99.0, 100.0], events };
        let found = findings(&[run], &[[1e3, 1e4, 5e4, 9e4].map(apart)], 250_000, (0, 1)).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        let kept = figure("slice, 10K events/s, of those");
        assert!(kept.met == Some(true) && kept.mark.is_some() && (kept.ours.median - 0.99).abs() < 1e-9, "{kept:?}");
        let over = figure("slice over split, sockets, 1:100");
        assert_eq!((over.met, over.mark.is_some(), over.ours.median), (Some(true), true, 3.6));
        assert!(figure("slice over split, queues, 1:100").mark.is_none());
        assert_eq!(figure("slice, one processor over split, sockets, 1:100").ours.median, 3.6);
        let kept = figure("processes, 10K events/s, of those");
        assert!(kept.met == Some(true) && figure("processes, 50K events/s, of those").mark.is_none(), "{kept:?}");
        assert_eq!((found.plots.len(), found.configurations.len(), found.notes.len()), (1, 8, 5));
    }
}
