//! Value of slice customisation for simple devices (`profile = "iot"`).
//!
//! The PEPC talk claims "up to 38% improvement" for smart meters. This experiment measures packets
//! in user space and in the XDP program. It also measures the memory of the user plane's state and
//! the size of a UE's commit record.

use super::{PAPER, processors, users};
use crate::context::{Findings, each};
use crate::experiment::{Experiment, Plane, Run};
use crate::plot::{Axis, BarSeries, Bars};
use std::time::Duration;
use vireo_bench::host::messages::octets_of_records;
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_bench::upf::compute::{Compute, Kind};
use vireo_bench::upf::kernel::{self, Cost, Spans};
use vireo_bench::upf::process::{self, Upf};
use vireo_config::Failure;
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::{Direction, FrameLoop};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-iot",
    about: "How much faster do packets of simple devices go in a slice that is made for them?",
    paper: PAPER,
    informative: Some("The paper states the largest gain that it saw; no limit was set before the run."),
    run: Run::UserPlane(run),
};

/// Maximum ratio claimed by the paper.
const PAPERS: f64 = 1.38;

/// Profiles of a slice.
const PROFILES: [(&str, Kind); 2] = [("full", Kind::Full), ("iot", Kind::Lean)];

/// Measured data sides.
const PATHS: [&str; 3] = ["user space", "user space, one worker", "XDP"];

/// Returns the configuration of a slice with a profile.
fn slice(profile: &str) -> String {
    slice_tables(3, profile)
}

fn slice_tables(sst: u8, profile: &str) -> String {
    format!("[slice.meters]\nsnssai = {{ sst = {sst} }}\nprofile = \"{profile}\"\n")
}

/// One run: ns per packet by path and profile, bytes per session by profile, and bytes of a UE's
/// commit record by profile.
#[derive(Clone, Copy, Debug, Default)]
struct ProfileResult {
    packets: [[Cost; PROFILES.len()]; PATHS.len()],
    octets: [f64; PROFILES.len()],
    records: [f64; PROFILES.len()],
}

impl ProfileResult {
    /// Returns the ratio of the packet rates of the two profiles, in one direction or in both
    /// alternately.
    fn gain(&self, path: usize, of: Part) -> f64 {
        let [full, iot] = self.packets[path];
        of(full) / of(iot)
    }
}

fn both(cost: Cost) -> f64 {
    f64::midpoint(cost.uplink, cost.downlink)
}

/// Extracts the time of a packet: one direction, or the mean of both.
type Part = fn(Cost) -> f64;

const WAYS: [(&str, Part); 3] =
    [("uplink", |cost| cost.uplink), ("downlink", |cost| cost.downlink), ("both directions", both)];

fn run(plane: &Plane) -> Result<Findings, Failure> {
    let mut runs = vec![];
    for n in 1..=plane.runs {
        eprintln!("experiment: run {n} of {}", plane.runs);
        let mut seen = ProfileResult::default();
        for (path, several) in [(0, true), (1, false)] {
            seen.packets[path] = in_memory(plane, several)?;
        }
        for (place, (profile, _)) in PROFILES.iter().enumerate() {
            (seen.packets[2][place], seen.octets[place]) = in_kernel(plane, profile)?;
            plane.interrupt.check()?;
            // Slice of the lab's subscribers, which has a different S-NSSAI.
            seen.records[place] = octets_of_records(&slice_tables(1, profile), if plane.quick { 100 } else { 2_000 })?;
        }
        let gains = [0, 1, 2].map(|path| seen.gain(path, both));
        let ProfileResult { octets, records, .. } = seen;
        eprintln!(
            "experiment: {gains:.2?} times the packets, {octets:.0?} octets a session, {records:.0?} a UE's record"
        );
        runs.push(seen);
    }
    findings(&runs, users(plane))
}

/// Measures the profiles alternately, so that both see the same state of the machine.
fn in_memory(plane: &Plane, several: bool) -> Result<[Cost; PROFILES.len()], Failure> {
    const TURNS: u32 = 4;
    let span = Duration::from_millis(if plane.quick { 30 } else { 200 });
    let (data, _) = processors(plane);
    let mut computes = vec![];
    for (_, kind) in PROFILES {
        let mut compute = Compute::with_kind(&plane.network, users(plane), kind)?;
        compute.one_of_several(several);
        computes.push(compute);
    }
    let mut sums = [Cost::default(); PROFILES.len()];
    for turn in 0..=TURNS {
        plane.interrupt.check()?;
        for (compute, sum) in computes.iter_mut().zip(&mut sums) {
            let mut of = |direction| on_processors(&[data], || compute.nanoseconds(direction, span))?;
            let (up, down) = (of(Direction::Uplink)?, of(Direction::Downlink)?);
            // The first turn has cold caches and does not count.
            if turn > 0 {
                sum.uplink += up / f64::from(TURNS);
                sum.downlink += down / f64::from(TURNS);
            }
        }
    }
    Ok(sums)
}

/// Measures packets through the XDP program, and the bytes per session as the slope between half of
/// the users and all.
fn in_kernel(plane: &Plane, profile: &str) -> Result<(Cost, f64), Failure> {
    plane.interrupt.check()?;
    let (data, _) = processors(plane);
    let (_, others) = plane.processors();
    let users = users(plane);
    let config = format!("{}\n{}", process::xdp(&plane.network), slice(profile));
    let mut upf = Upf::start(&plane.network, &others, users, &config, &plane.interrupt)?;
    let limited = profile == "full";
    let establish = |upf: &mut Upf, first, last| {
        on_processors(&[data], || upf.establish_as(first..last, limited, false, 0))?.and_then(|_| upf.memory())
    };
    let half = establish(&mut upf, 0, users / 2)?;
    let all = establish(&mut upf, users / 2, users)?;
    let teids = upf.teids.take().ok_or_else(|| Failure("the UPF has no sessions".into()))?;
    let packets = plane.network.packets(teids);
    let mut load = plane.network.outside(|| FrameLoop::load(&plane.network.ours, packets))??;
    let (warm_up, window) = if plane.quick { (30, 100) } else { (150, 1_000) };
    let spans = Spans { warm_up: Duration::from_millis(warm_up), window: Duration::from_millis(window) };
    let cost = kernel::both(&plane.network, &mut load, (0, users), data, spans)?;
    drop(load);
    upf.stop()?;
    Ok((cost, all.saturating_sub(half) as f64 / f64::from(users - users / 2)))
}

fn findings(runs: &[ProfileResult], users: u32) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let mut table = Table::new(&["run", "path", "profile", "uplink_ns", "downlink_ns"]);
    for (path, name) in PATHS.iter().enumerate() {
        for (way, of) in WAYS {
            let figure = Figure::new(
                format!("{name}, {way}, packets with iot over full"),
                "ratio",
                each(runs, |run: &ProfileResult| run.gain(path, of))?,
            );
            let papers = way == WAYS[2].0;
            figures.push(if papers { figure.paper(Bound::AtMost(PAPERS), "talk: up to 38%") } else { figure });
            for (place, (profile, _)) in PROFILES.iter().enumerate() {
                let cost = each(runs, |run: &ProfileResult| of(run.packets[path][place]))?;
                figures.push(Figure::new(format!("{name}, {way}, {profile}"), "ns", cost));
            }
        }
        for (n, run) in runs.iter().enumerate() {
            for ((profile, _), cost) in PROFILES.iter().zip(run.packets[path]) {
                let cells = [(n + 1).to_string(), (*name).to_owned(), (*profile).to_owned()];
                table.row(cells.into_iter().chain([cost.uplink.to_string(), cost.downlink.to_string()]));
            }
        }
    }
    for (place, (profile, _)) in PROFILES.iter().enumerate() {
        let octets = each(runs, |run: &ProfileResult| run.octets[place])?;
        figures.push(Figure::new(
            format!("{profile}, octets a session in the user plane, control and data"),
            "B",
            octets,
        ));
        let records = each(runs, |run: &ProfileResult| run.records[place])?;
        figures.push(Figure::new(format!("{profile}, octets of a UE's record in the state region"), "B", records));
    }
    let series = PROFILES.iter().enumerate().map(|(place, (profile, _))| {
        let value = |path: usize| each(runs, |run: &ProfileResult| both(run.packets[path][place])).map(Some);
        let values = (0..PATHS.len()).map(value).collect::<Result<_, _>>()?;
        // The talk's gain applies to the customised slice, over the full one on the same path.
        let paper = |path: usize| match place {
            0 => Ok(None),
            _ => each(runs, |run: &ProfileResult| both(run.packets[path][0])).map(|cost| Some(cost.median / PAPERS)),
        };
        let paper = (0..PATHS.len()).map(paper).collect::<Result<_, _>>()?;
        Ok(BarSeries { name: (*profile).into(), values, paper })
    });
    let bars = Bars {
        title: format!("A packet's time by the profile of its slice, {users} users"),
        groups: PATHS.iter().map(|path| (*path).into()).collect(),
        y: Axis::linear("ns a packet, both directions in turn"),
        series: series.collect::<Result<_, Failure>>()?,
    };
    let configuration =
        |profile: &str, about: &str| Configuration { name: profile.into(), about: about.into(), toml: slice(profile) };
    Ok(Findings {
        load: OfferedLoad::new("128-byte packets back to back of random users", [f64::from(users)], "users"),
        configurations: vec![
            configuration("full", "What the core asks for any session: a rate, the QoS flow that is looked at, counts."),
            configuration("iot", "Simple devices: none of that; the RAN holds the rate, and the slice counts."),
        ],
        figures,
        plots: vec![("packets", bars.svg()?)],
        tables: vec![("runs", table)],
        notes: vec![
            "User space: packets of 128 octets of random users in memory, in batches of 32, by a worker that is one of several, \
             as those of slices are, and by one that is alone. XDP: frames that go round through the program in the kernel \
             and the load's at the far ends, whose time is in the figure. In memory the profiles take turns."
                .into(),
            "A UE's record is its context with what its last step has left, in the buffer of the state region that it takes \
             up: idle UEs of the whole core, with a session each. Beside it each UE has a slot and its places in the indexes."
                .into(),
            "The paper's gain is the most that it saw.".into(),
        ],
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_compares_packets_per_time() {
        let cost = |uplink, downlink| Cost { uplink, downlink };
        let of = [cost(30.0, 50.0), cost(20.0, 40.0)];
        let runs = [ProfileResult {
            packets: [of, of, [cost(300.0, 300.0); 2]],
            octets: [900.0, 800.0],
            records: [384.0, 320.0],
        }; 3];
        let found = findings(&runs, 250_000).unwrap();
        let figure = |name: &str| found.figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(figure("user space, uplink, packets with iot over full").ours.median, 1.5);
        let both = figure("user space, both directions, packets with iot over full");
        assert!((both.ours.median - 80.0 / 60.0).abs() < 1e-9 && both.paper.is_some());
        assert_eq!(figure("XDP, both directions, packets with iot over full").ours.median, 1.0);
        assert_eq!(figure("iot, octets a session in the user plane, control and data").ours.median, 800.0);
        assert_eq!(figure("iot, octets of a UE's record in the state region").ours.median, 320.0);
        assert!(found.configurations[1].toml.contains("profile = \"iot\""));
    }
}
