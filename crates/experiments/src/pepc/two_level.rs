//! Two-level user state: packet cost with few active users, memory of idle users.
//!
//! The PEPC talk calls this "two level user state storage". Packets of a few active users among
//! many attached ones are measured with the active users' entries stored together and without.

use super::idle::{self, Idle};
use super::{PAPER, SideWork, processors};
use crate::context::{Findings, each};
use crate::experiment::{Experiment, Plane, Run};
use crate::plot::{Axis, BarSeries, Bars};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_bench::upf::compute::{BATCH, Compute, Kind};
use vireo_config::Failure;
use vireo_datapath::{Limits, SharedTables, Tables};
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::Direction;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-two-level",
    about: "What do packets gain when active users lie together, and what do idle ones cost?",
    paper: PAPER,
    informative: None,
    run: Run::UserPlane(run),
};

/// Active users in percent of the attached users.
const ACTIVE: [u32; 4] = [1, 10, 50, 100];
/// Name suffix, and whether the tables use huge pages where the machine has them.
const PAGES: [(&str, bool); 2] = [("", true), (", ordinary pages", false)];
/// Interval of promotion and demotion in the product.
const TURN: Duration = Duration::from_millis(5);
/// Limit of the memory of an attached idle user in bytes: 10 million users take 4 GB.
const IDLE_OCTETS: f64 = 400.0;

/// Numbers of users and durations.
struct Size {
    attached: u32,
    hot: usize,
    idle: u32,
    span: Duration,
    /// Batches between two promotion turns in the warm-up.
    between: usize,
}

fn size(quick: bool) -> Size {
    match quick {
        true => Size { attached: 20_000, hot: 4_096, idle: 100_000, span: Duration::from_millis(20), between: 2 },
        false => {
            Size { attached: 1_000_000, hot: 131_072, idle: 10_000_000, span: Duration::from_millis(300), between: 16 }
        }
    }
}

/// Results for one fraction of active users: one-level tables before and after two-level tables,
/// and a table of the active users alone, which is the best case.
#[derive(Clone, Copy, Debug)]
struct Point {
    one: [SideWork; 2],
    two: SideWork,
    alone: SideWork,
    hot: usize,
}

impl Point {
    fn one(&self) -> f64 {
        f64::midpoint(self.one[0].rate(), self.one[1].rate())
    }
}

/// Results by kind of pages and fraction of active users.
type Sweep = [[Point; ACTIVE.len()]; PAGES.len()];

fn run(plane: &Plane) -> Result<Findings, Failure> {
    let size = size(plane.quick);
    let mut runs = vec![];
    for n in 1..=plane.runs {
        eprintln!("experiment: run {n} of {}", plane.runs);
        let [huge, ordinary] = PAGES.map(|(_, huge)| {
            rustix::thread::disable_transparent_huge_pages(!huge)?;
            sweep(plane, &size, n)
        });
        rustix::thread::disable_transparent_huge_pages(false)?;
        runs.push([huge?, ordinary?]);
    }
    eprintln!("experiment: {} idle users", size.idle);
    let idle = idle::measure(plane, size.idle, size.hot)?;
    findings(&runs, &size, idle)
}

fn sweep(plane: &Plane, size: &Size, seed: u32) -> Result<[Point; ACTIVE.len()], Failure> {
    let make = |sessions: u32, hot_users: usize| {
        let limits = Limits { records: sessions as usize, hot_users, ..Limits::default() };
        Compute::build(&plane.network, (sessions, Kind::Counted), limits).map(|(compute, _)| compute)
    };
    let (mut one, mut two) = (make(size.attached, 0)?, make(size.attached, size.hot)?);
    let points = ACTIVE.map(|percent| {
        let count = size.attached / 100 * percent;
        let active = if percent == 100 { vec![] } else { choose(size.attached, count, seed) };
        one.activate(active.clone());
        two.activate(active);
        let mut alone = make(count, 0)?;
        warm(&mut two, size.between)?;
        let measure = |compute: &mut Compute| {
            plane.interrupt.check()?;
            beside_turns(compute, size.span, processors(plane))
        };
        let before = measure(&mut one)?;
        let both = measure(&mut two)?;
        let after = measure(&mut one)?;
        let hot = two.tables().read(Tables::hot);
        Ok::<_, Failure>(Point { one: [before, after], two: both, alone: measure(&mut alone)?, hot })
    });
    let [a, b, c, d] = points;
    Ok([a?, b?, c?, d?])
}

/// Returns `count` random users out of `all`.
fn choose(all: u32, count: u32, seed: u32) -> Vec<u32> {
    let mut random = u64::from(seed);
    let mut users: Vec<u32> = (0..all).collect();
    for n in 0..count as usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = n + (((random >> 32) * (users.len() - n) as u64) >> 32) as usize;
        users.swap(n, other);
    }
    users.truncate(count as usize);
    users
}

/// Alternates packets and promotion turns until the previous users are demoted and no more are
/// promoted.
fn warm(compute: &mut Compute, between: usize) -> Result<(), Failure> {
    for _ in 0..3_000 {
        for _ in 0..between {
            compute.batch(Direction::Downlink)?;
        }
        compute.tables().maintain_hot_table();
    }
    Ok(())
}

/// Decides on packets for about `span` on one processor, while another processor promotes and
/// demotes users as in the product.
fn beside_turns(compute: &mut Compute, span: Duration, (data, control): (usize, usize)) -> Result<SideWork, Failure> {
    let (tables, stop): (SharedTables, _) = (compute.tables().clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            on_processors(&[control], || {
                while !stop.load(Relaxed) {
                    tables.maintain_hot_table();
                    std::thread::sleep(TURN);
                }
            })
        });
        let packets = on_processors(&[data], || {
            forward(compute, span / 10)?;
            forward(compute, span)
        });
        stop.store(true, Relaxed);
        beside.join().map_err(|_| Failure("the turns ended by themselves".into()))??;
        packets?
    })
}

/// Decides on batches of both directions alternately.
fn forward(compute: &mut Compute, span: Duration) -> Result<SideWork, Failure> {
    let (began, mut worked) = (Instant::now(), SideWork::default());
    while began.elapsed() < span {
        for direction in [Direction::Uplink, Direction::Downlink].repeat(32) {
            worked.spent += compute.batch(direction)?;
            worked.count += BATCH as u64;
        }
    }
    worked.passed = began.elapsed();
    Ok(worked)
}

fn findings(runs: &[Sweep], size: &Size, idle: Idle) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let columns = ["run", "pages", "active_percent", "level", "packets_per_s", "ns_per_packet", "hot_users"];
    let mut table = Table::new(&columns);
    for (pages, (kind, _)) in PAGES.iter().enumerate() {
        for (place, percent) in ACTIVE.iter().enumerate() {
            let of = |what: &str| format!("{percent}% active{kind}, {what}");
            let value = |of: &dyn Fn(&Point) -> f64| each(runs, |run| of(&run[pages][place]));
            figures.push(Figure::new(of("one level, packets"), "1/s", value(&Point::one)?));
            figures.push(Figure::new(of("two levels, packets"), "1/s", value(&|point| point.two.rate())?));
            figures.push(Figure::new(of("two levels over one"), "ratio", value(&|p| p.two.rate() / p.one())?));
            figures.push(Figure::new(
                of("nobody else attached, over one"),
                "ratio",
                value(&|p| p.alone.rate() / p.one())?,
            ));
            figures.push(Figure::new(of("users that are hot"), "", value(&|point| point.hot as f64)?));
        }
        for (n, run) in runs.iter().enumerate() {
            for (point, percent) in run[pages].iter().zip(ACTIVE) {
                let Point { one: [before, after], two, alone, hot } = point;
                let rows = [("one", before), ("two", two), ("one", after), ("one, nobody else", alone)];
                for (level, worked) in rows {
                    table.row([
                        (n + 1).to_string(),
                        kind.trim_start_matches(", ").to_owned(),
                        percent.to_string(),
                        level.to_owned(),
                        worked.rate().to_string(),
                        worked.nanoseconds().to_string(),
                        hot.to_string(),
                    ]);
                }
            }
        }
    }
    let single = |value: f64| each(&[value], |value| *value);
    let gigabytes = idle.octets * f64::from(size.idle) / 1e9;
    figures.extend([
        Figure::new("data side of an idle user", "octets", single(idle.octets)?).mark(Bound::AtMost(IDLE_OCTETS)),
        Figure::new(format!("data side of {} idle users", size.idle), "GB", single(gigabytes)?),
        Figure::new("idle users installed", "1/s", single(idle.rate)?),
        Figure::new("first packets of idle users that were lost", "", single(idle.lost.into())?)
            .mark(Bound::AtMost(0.0)),
    ]);
    let broken = (idle.lost > 0).then(|| "first packets of idle users were lost".to_owned());
    Ok(Findings {
        load: OfferedLoad::new("128-byte packets back to back, attached users", [f64::from(size.attached)], "users"),
        configurations: configurations(size.hot),
        figures,
        plots: vec![("packets", plot(runs, size)?)],
        tables: vec![("points", table)],
        notes: notes(size, runs)?,
        broken,
    })
}

fn plot(runs: &[Sweep], size: &Size) -> Result<String, Failure> {
    type Of = fn(&Point) -> f64;
    let rows: [(&str, usize, Of); 4] = [
        ("one level", 0, Point::one),
        ("two levels", 0, |point| point.two.rate()),
        ("one level, ordinary pages", 1, Point::one),
        ("two levels, ordinary pages", 1, |point| point.two.rate()),
    ];
    let series = rows.into_iter().map(|(name, pages, of)| {
        let value = |place: usize| each(runs, |run| of(&run[pages][place]) / 1e6).map(Some);
        let values = (0..ACTIVE.len()).map(value).collect::<Result<_, _>>()?;
        Ok(BarSeries { name: name.into(), values, paper: vec![None; ACTIVE.len()] })
    });
    let bars = Bars {
        title: format!("Packets with {} attached users", size.attached),
        groups: ACTIVE.iter().map(|percent| format!("{percent}% active")).collect(),
        y: Axis::linear("million packets per second"),
        series: series.collect::<Result<_, Failure>>()?,
    };
    Ok(bars.svg()?)
}

fn configurations(hot: usize) -> Vec<Configuration> {
    let one = ("one level", "Every user's records stay where they are.", "[datapath]\nhot-users = 0\n".to_owned());
    let about = "Downlink records of users with packets lie together, found by their addresses.";
    let two = ("two levels", about, format!("[datapath]\nhot-users = {hot}\n"));
    [one, two].map(|(name, about, toml)| Configuration { name: name.into(), about: about.into(), toml }).into()
}

/// States where two levels are faster in every run and where they are slower.
fn verdict(runs: &[Sweep]) -> Result<String, Failure> {
    let (mut helps, mut costs) = (vec![], vec![]);
    for (pages, (kind, _)) in PAGES.iter().enumerate() {
        for (place, percent) in ACTIVE.iter().enumerate() {
            let ratio = each(runs, |run| run[pages][place].two.rate() / run[pages][place].one())?;
            let case = format!("{percent}% active{kind} ({:+.0}%)", (ratio.median - 1.0) * 100.0);
            if ratio.min > 1.0 {
                helps.push(case);
            } else if ratio.max < 1.0 {
                costs.push(case);
            }
        }
    }
    let list = |cases: Vec<String>| if cases.is_empty() { "nowhere".to_owned() } else { cases.join(", ") };
    Ok(format!("Two levels are faster in all runs: {}. They are slower in all runs: {}.", list(helps), list(costs)))
}

fn notes(size: &Size, runs: &[Sweep]) -> Result<Vec<String>, Failure> {
    Ok(vec![
        verdict(runs)?,
        "The talk says that two levels improve look-ups and gives no figure of it.".to_owned(),
        "Packets of 128 octets of users at random lie in memory, batches of 32 of each direction in turn, on one processor; \
         users move between the levels on another. Uplink packets are the same in both: a TEID is an index."
            .to_owned(),
        "Nobody else attached: the same packets with tables of the active users alone, which is what a hot level can be worth \
         at the most."
            .to_owned(),
        format!(
            "Idle users: {} with a tunnel of N3, an address, rates, buffering with a report, and the words of slices; resident \
             memory before and after. Of them 1000 get a packet, which must be told, kept, and sent when the user is back.",
            size.idle
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_levels_use_single_level_runs_around() {
        let second = Duration::from_secs(1);
        let worked = |count| SideWork { count, spent: second, passed: second };
        let point = Point { one: [worked(90), worked(110)], two: worked(120), alone: worked(130), hot: 7 };
        let idle = Idle { octets: 200.0, rate: 1.0, lost: 0 };
        let found = findings(&[[[point; 4]; 2]], &size(false), idle).unwrap();
        let of = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(of("1% active, two levels over one").ours.median, 1.2);
        assert_eq!(of("100% active, ordinary pages, nobody else attached, over one").ours.median, 1.3);
        assert_eq!(of("data side of 10000000 idle users").ours.median, 2.0);
        assert!(found.notes[0].contains("faster in all runs: 1% active (+20%)"), "{}", found.notes[0]);
        assert!(found.notes[0].contains("slower in all runs: nowhere"), "{}", found.notes[0]);
        assert!(of("data side of an idle user").met == Some(true) && found.broken.is_none());
        let bad = findings(&[[[point; 4]; 2]], &size(true), Idle { octets: 401.0, lost: 1, ..idle }).unwrap();
        assert!(bad.broken.is_some() && bad.figures.iter().filter(|figure| figure.met == Some(false)).count() == 2);
    }

    #[test]
    fn active_users_are_different_ones() {
        let mut users = choose(1_000, 100, 3);
        users.sort_unstable();
        users.dedup();
        assert!(users.len() == 100 && users[99] < 1_000 && users[99] > 500);
    }
}
