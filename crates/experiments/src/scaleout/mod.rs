//! Figures 9 and 10 of the public-cloud paper: throughput by number of modules.
//!
//! Each module has separate interfaces, or queues of a shared interface. Every module has one
//! processor, which also runs the module's load in the kernel. [`fanout`] measures modules behind
//! PACKET_FANOUT, with the generator apart.

mod fanout;
mod measure;
mod modules;
pub(super) mod network;

use super::context::{ExperimentContext, Findings};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use fanout::FanoutPoint;
use measure::{Rates, measure};
pub(super) use modules::InterfaceMode;
use modules::{MOST, PAPER, counted};
use network::Network;
use vireo_bench::results::{Bound, Configuration, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cloud-scaleout",
    about: "How does the user plane's throughput grow with modules, by separate interfaces and by fanout?",
    paper: "Scaling Telecom Core Network Functions in Public Cloud Infrastructure, figures 9 and 10",
    informative: Some("Growth has a mark only with two processors or more."),
    run: Run::Core(run),
};

/// Number of users, as in the paper.
const USERS: u32 = 250_000;
const QUICK_USERS: u32 = 2_000;
/// Least fraction of exactly linear growth that counts as linear.
const LINEAR: f64 = 0.9;

/// Returns the measured numbers of modules for a machine with `processors` processors. The second
/// value is true if the number exceeds half of the processors.
fn steps(processors: usize) -> Vec<(usize, bool)> {
    let half = (processors / 2).max(1);
    let mut steps: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= half).collect();
    if processors >= 2 && half < 2 {
        steps.push(2);
    }
    steps.into_iter().filter(|modules| *modules <= MOST).map(|modules| (modules, modules > half)).collect()
}

/// Result with one number of modules.
struct Point {
    mode: InterfaceMode,
    modules: usize,
    oversubscribed: bool,
    rates: Vec<Rates>,
}

impl Point {
    /// Returns the packets per second and direction of all modules.
    fn total(&self) -> f64 {
        self.rates.iter().map(Rates::each_way).sum()
    }
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let users = if session.quick { QUICK_USERS } else { USERS };
    let mut configurations = vec![];
    let mut by_fanout: Vec<Vec<FanoutPoint>> = vec![];
    let rounds = session.repeat("scale-out", |_| {
        let mut points = vec![];
        configurations.clear();
        for mode in InterfaceMode::ALL {
            for (modules, oversubscribed) in steps(processors) {
                session.interrupt.check()?;
                let network = Network::build(&session.lab, mode, modules)?;
                let rates = measure(session, &network, processors, users)?;
                let point = Point { mode, modules, oversubscribed, rates };
                let (name, modules, total) = (mode.name(), counted(modules), point.total());
                eprintln!("experiment: {name}, {modules}: {total:.0} packets/s each way");
                let name = format!("{name}, {modules}");
                let about = mode.about().into();
                configurations.push(Configuration { name, about, toml: network.config(users) });
                points.push(point);
            }
        }
        let points_of_fanout = fanout::measure(session, users)?;
        configurations.extend((1..=points_of_fanout.len()).map(fanout::configuration));
        by_fanout.push(points_of_fanout);
        Ok(points)
    })?;
    Ok(Findings {
        load: OfferedLoad::new(
            "128-byte packets in a closed loop, both directions, users",
            [f64::from(users)],
            "users",
        ),
        figures: figures(&rounds).into_iter().chain(fanout::figures(&by_fanout)?).collect(),
        plots: vec![("throughput", chart(&rounds).svg()?)],
        tables: vec![("modules", table(&rounds))],
        notes: notes(processors, users).into_iter().chain(fanout::notes()).collect(),
        configurations,
        broken: None,
    })
}

/// Returns the values of `value` for the same point of each round.
fn each(rounds: &[Vec<Point>], place: usize, value: impl Fn(&[Point], &Point) -> f64) -> Option<Measured> {
    Measured::each(rounds, |points| points.get(place).map_or(f64::NAN, |point| value(points, point)))
}

/// Returns the rate of a single module of this mode in the same round.
fn single(points: &[Point], mode: InterfaceMode) -> f64 {
    points.iter().find(|point| point.mode == mode && point.modules == 1).map_or(f64::NAN, Point::total)
}

fn figures(rounds: &[Vec<Point>]) -> Vec<Figure> {
    let mut figures = vec![];
    for (place, point) in rounds.first().into_iter().flatten().enumerate() {
        let Point { mode, modules, oversubscribed, .. } = *point;
        let aside = if oversubscribed { " (oversubscribed)" } else { "" };
        let named = |what: &str| format!("{}, {}{aside}, {what}", mode.name(), counted(modules));
        let paper = |value: f64| (Bound::About(value), mode.source());
        if let Some(ours) = each(rounds, place, |_, point| point.total()) {
            let (value, source) = paper(PAPER * modules as f64);
            figures.push(Figure::new(named("packets each way"), "1/s", ours).paper(value, source));
        }
        if modules == 1 {
            continue;
        }
        let linear = |points: &[Point], point: &Point| point.total() / (modules as f64 * single(points, mode));
        if let Some(ours) = each(rounds, place, linear) {
            let (value, source) = paper(1.0);
            let figure = Figure::new(named("of what one module does, times their number"), "ratio", ours);
            let figure = figure.paper(value, source);
            figures.push(if oversubscribed { figure } else { figure.mark(Bound::AtLeast(LINEAR)) });
        }
    }
    figures.extend(InterfaceMode::ALL.into_iter().filter_map(|mode| {
        let ours = Measured::each(rounds, |points| modelled(points, mode))?;
        let named = format!("{}, {} (model), packets each way", mode.name(), counted(MOST));
        Some(Figure::new(named, "1/s", ours).paper(Bound::About(PAPER * MOST as f64), mode.source()))
    }));
    figures
}

/// Returns the packets per second and direction of [`MOST`] modules, if each module beyond the
/// measured ones adds as much as the last measured one did, and no more than a single one.
fn modelled(points: &[Point], mode: InterfaceMode) -> f64 {
    let last = points.iter().filter(|point| point.mode == mode).max_by_key(|point| point.modules);
    let Some(last) = last else { return f64::NAN };
    let one = single(points, mode);
    let further = match last.modules {
        1 => one,
        modules => ((last.total() - one) / (modules - 1) as f64).clamp(0.0, one),
    };
    last.total() + further * (MOST - last.modules) as f64
}

fn chart(rounds: &[Vec<Point>]) -> Chart {
    let title = "Throughput by modules";
    let chart = Chart::new(title, Axis::linear("modules"), Axis::linear("million packets per second each way"));
    let places: Vec<(InterfaceMode, usize)> =
        rounds.first().into_iter().flatten().map(|p| (p.mode, p.modules)).collect();
    let most = MOST as f64;
    let mut chart = InterfaceMode::ALL.into_iter().fold(chart, |chart, mode| {
        let of_mode = places.iter().enumerate().filter(|(_, (other, _))| *other == mode);
        let points = of_mode.filter_map(|(place, (_, modules))| {
            each(rounds, place, |_, point| point.total()).map(|total| (*modules as f64, total.median / 1e6))
        });
        let points: Vec<(f64, f64)> = points.collect();
        let model = Measured::each(rounds, |points| modelled(points, mode)).map(|ours| (most, ours.median / 1e6));
        let beyond: Vec<(f64, f64)> = points.last().copied().into_iter().chain(model).collect();
        chart.line(mode.name(), points).line(format!("{}, model", mode.name()), beyond)
    });
    chart = chart.line("paper", vec![(1.0, PAPER / 1e6), (most, PAPER * most / 1e6)]);
    if let Some(one) = each(rounds, 0, |points, point| single(points, point.mode)) {
        chart = chart.line("linear", vec![(1.0, one.median / 1e6), (most, one.median * most / 1e6)]);
    }
    chart
}

fn table(rounds: &[Vec<Point>]) -> Table {
    let mut table = Table::new(&["run", "mode", "modules", "module", "uplink_pps", "downlink_pps"]);
    for (run, points) in rounds.iter().enumerate() {
        for point in points {
            for (module, Rates { uplink, downlink }) in point.rates.iter().enumerate() {
                table.row([
                    (run + 1).to_string(),
                    point.mode.name().to_owned(),
                    point.modules.to_string(),
                    module.to_string(),
                    uplink.to_string(),
                    downlink.to_string(),
                ]);
            }
        }
    }
    table
}

fn notes(processors: usize, users: u32) -> Vec<String> {
    let mut notes = vec![
        format!(
            "{users} users, 128-byte packets of random sessions in both directions at once, between veth interfaces; the \
             driver is XDP, and the load (the far ends' programs) runs on the modules' processors too."
        ),
        "The paper's module has two cores and two network cards, and its load runs on other machines.".to_owned(),
        format!(
            "Model: each module up to {MOST} adds as much as the last measured one did, and no more than a single one. It \
             contains no limit of memory or links."
        ),
    ];
    if processors < 4 {
        notes.push(format!(
            "This machine has {processors} processors: up to half of them is one module, so what linear growth is held \
             against is not measured here. Two modules take all processors (oversubscribed) and have no mark."
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_counts_follow_processors() {
        assert_eq!(steps(1), [(1, false)]);
        assert_eq!(steps(2), [(1, false), (2, true)]);
        assert_eq!(steps(4), [(1, false), (2, false)]);
        assert_eq!(steps(64).last(), Some(&(8, false)));
    }

    #[test]
    fn growth_uses_one_module_of_same_run() {
        let point = |mode, modules, oversubscribed, pps: f64| Point {
            mode,
            modules,
            oversubscribed,
            rates: vec![Rates { uplink: pps, downlink: pps }; modules],
        };
        let round = |one: f64, two: f64, over: bool| {
            let of = |mode| vec![point(mode, 1, false, one), point(mode, 2, over, two)];
            InterfaceMode::ALL.into_iter().flat_map(of).collect::<Vec<_>>()
        };
        let figures = figures(&[round(1e6, 0.95e6, false), round(2e6, 1.7e6, false)]);
        let linear = figures.iter().find(|figure| figure.unit == "ratio").unwrap();
        assert_eq!((linear.ours.runs.clone(), linear.met), (vec![0.95, 0.85], Some(false)));
        let model = figures.iter().find(|figure| figure.name == "fanout, 8 modules (model), packets each way");
        // Of the first run 0.95 + 0.95 + 6 * 0.95, of the second 3.4 + 6 * 1.4 million.
        assert_eq!(model.map(|figure| figure.ours.runs.len()), Some(2));
        assert!((model.unwrap().ours.runs[1] - 11.8e6).abs() < 1.0, "{model:?}");
        let total = &figures[1];
        assert_eq!((total.ours.median, total.paper.as_ref().unwrap().value), (2.65e6, Bound::About(500_000.0)));
        let over = super::figures(&[round(1e6, 0.5e6, true)]);
        let linear = over.iter().find(|figure| figure.unit == "ratio").unwrap();
        assert!(linear.mark.is_none() && linear.met.is_none() && linear.name.contains("oversubscribed"));
        let svg = chart(&[round(1e6, 0.95e6, false)]).svg().unwrap();
        assert!(svg.contains("separate interfaces") && svg.contains("paper") && svg.contains("linear"));
    }
}
