//! Rebalancing of users between the data workers of a slice.
//!
//! All packets belong to users of one worker; the users of the other worker have none. The
//! experiment measures packet rate and packet time before and after automatic rebalancing, and
//! whether packets are lost.

use super::context::{ExperimentContext, Findings, each};
use super::migration::{API, BUSY, Driver, SLOT, SOCKETS, config, drivers, dropped, end_of, establish};
use super::scaleout::InterfaceMode;
use super::scaleout::network::{FIRST_UE, LENGTH, Network};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_client::slices;
use vireo_config::Failure;
use vireo_lab::files::api;
use vireo_lab::process::on_processors;
use vireo_lab::upf::Upf;
use vireo_traffic::frame_loop::{Direction, FrameLoop};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-rebalance",
    about: "What do packets gain where users leave a data worker that has them all, and is one lost?",
    paper: "A High Performance Packet Core for Next Generation Cellular Networks (PEPC), migrations",
    informative: None,
    run: Run::Core(run),
};

const SLICE: &str = "phones";
/// Limit of the time until users have moved. Rebalancing starts only after some uneven seconds.
const MOVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Least share of each of the two workers in a balanced state.
const EVEN: f64 = 0.4;

/// Results with one driver.
#[derive(Clone, Debug)]
struct RebalanceResult {
    driver: &'static str,
    /// Packets per second, before and after.
    rates: [f64; 2],
    /// Share of the packets that the second worker handled, before and after.
    shares: [f64; 2],
    /// Mean time of a packet in the loop in microseconds, before and after.
    times: [f64; 2],
    /// Time from the first packet to the balanced state in seconds.
    took: f64,
    /// Number of moved users.
    moved: u64,
    lost: u64,
    miscounted: u64,
    /// Packet rate over time: seconds, packets per second.
    course: Vec<(f64, f64)>,
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let users = if session.quick { 2_000 } else { 20_000 };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        return Err(Failure(
            "this needs two processors, with a data worker on each: run it where there are two".into(),
        ));
    }
    let runs = session.repeat("rebalancing", |_| {
        drivers(session).iter().map(|driver| measure(session, driver, users, processors)).collect()
    })?;
    findings(&runs, users, processors)
}

/// Returns the configuration of one slice with a worker on each of two processors.
fn slice_of(processors: usize) -> String {
    let other = 1 % processors.max(1);
    format!("[slice.{SLICE}]\nsnssai = {{ sst = 1 }}\ndata-workers = 2\ndata-cores = [0, {other}]\n")
}

/// Moves users to a worker of the slice.
fn migrate(users: Range<u32>, worker: u8) -> Result<(), Failure> {
    let [first, last] = [users.start, users.end - 1].map(|user| Ipv4Addr::from_bits(FIRST_UE.to_bits() + user));
    slices::move_users(&api(API)?, &format!("address={first}&last={last}&to={SLICE}&worker={worker}")).map(|_| ())
}

/// Returns the packets handled by each worker so far, and the number of users moved by rebalancing.
fn handled() -> Result<([u64; 2], u64), Failure> {
    let status = slices::list(&api(API)?)?;
    let workers = status.slices.first().map(|slice| slice.workers.as_slice()).unwrap_or_default();
    let of = |n: usize| workers.get(n).map_or(0, |worker| worker.uplink_packets + worker.downlink_packets);
    Ok(([of(0), of(1)], status.rebalanced))
}

/// Returns the packets per second, and the second worker's share of them.
fn watch(load: &FrameLoop, window: Duration) -> Result<(f64, f64), Failure> {
    let all = || load.counted().map(|counted| counted.uplink + counted.downlink);
    let (began, before, (workers, _)) = (Instant::now(), all()?, handled()?);
    while began.elapsed() < window {
        std::thread::sleep(SLOT);
    }
    let (rate, (after, _)) = ((all()? - before) as f64 / began.elapsed().as_secs_f64(), handled()?);
    let [first, second] = [0, 1].map(|n| (after[n] - workers[n]) as f64);
    match rate > 0.0 {
        true => Ok((rate, second / (first + second).max(1.0))),
        false => Err(Failure("no packet comes through".into())),
    }
}

fn measure(
    session: &ExperimentContext,
    driver: &Driver,
    users: u32,
    processors: usize,
) -> Result<RebalanceResult, Failure> {
    session.interrupt.check()?;
    let network = Network::build(&session.lab, InterfaceMode::Fanout, processors.min(2))?;
    let toml = config(&network, (driver, "rebalance = true\n"), users, &slice_of(processors));
    let mut upf = Upf::start(network.upf(), &[], &toml, &session.interrupt)?;
    let teids = establish(&network, &mut upf, 0..users)?;
    let half = users / 2;
    migrate(0..half, 0)?;
    migrate(half..users, 1)?;
    let packets = network.packets(0, FIRST_UE, teids);
    let mut load = network.outside(|| FrameLoop::load(&network.ends[0], packets))??;
    load.run(0, half)?;
    let no_room = dropped(&network)?;
    for direction in [Direction::Uplink, Direction::Downlink] {
        network.outside(|| on_processors(&[0], || load.inject(direction, 0, driver.flight)))???;
    }
    let began = Instant::now();
    // Rebalancing starts after two uneven seconds.
    let (before, share_before) = watch(&load, Duration::from_millis(800))?;
    let (mut course, mut took) = (vec![(began.elapsed().as_secs_f64(), before)], None);
    while took.is_none() {
        session.interrupt.check()?;
        let (rate, share) = watch(&load, Duration::from_millis(500))?;
        course.push((began.elapsed().as_secs_f64(), rate));
        took = (share > EVEN && share < 1.0 - EVEN).then(|| began.elapsed().as_secs_f64());
        if began.elapsed() > MOVE_TIMEOUT {
            return Err(Failure(format!(
                "{}: it is not even after {MOVE_TIMEOUT:?}: {share:.2} of the packets",
                driver.name
            )));
        }
    }
    let window = Duration::from_millis(if session.quick { 800 } else { 3000 });
    let (after, share_after) = watch(&load, window)?;
    course.push((began.elapsed().as_secs_f64(), after));
    let (_, moved) = handled()?;
    load.run(0, 0)?;
    let end = end_of(&load, &network, driver, no_room)?;
    let (lost, miscounted) = (end.lost, end.miscounted());
    drop(load);
    upf.stop()?;
    let time = |rate: f64| 2.0 * driver.flight as f64 / rate * 1e6;
    let (took, name) = (took.unwrap_or_default(), driver.name);
    eprintln!(
        "experiment: {name}: {before:.0}/s, then {after:.0}/s after {took:.1} s; {moved} users moved, {lost} lost"
    );
    Ok(RebalanceResult {
        driver: name,
        rates: [before, after],
        shares: [share_before, share_after],
        times: [time(before), time(after)],
        took,
        moved,
        lost,
        miscounted,
        course,
    })
}

fn findings(runs: &[Vec<RebalanceResult>], users: u32, processors: usize) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let mut table = Table::new(&["run", "driver", "second", "packets_per_s"]);
    let axis = Axis::linear("seconds since the first packet");
    let mut chart =
        Chart::new("Packets while users move by themselves", axis, Axis::linear("million packets per second"));
    for place in 0..runs.first().map_or(0, Vec::len) {
        let driver = runs.first().map_or("", |run| run[place].driver);
        let named = |what: &str| format!("{driver}, {what}");
        let of = |value: fn(&RebalanceResult) -> f64| each(runs, move |run: &Vec<RebalanceResult>| value(&run[place]));
        figures.extend([
            Figure::new(named("packets after, of those before"), "ratio", of(|seen| seen.rates[1] / seen.rates[0])?),
            Figure::new(named("packets after"), "1/s", of(|seen| seen.rates[1])?)
                .baseline("before", Some(of(|seen| seen.rates[0])?)),
            Figure::new(named("time of a packet in the loop, after"), "us", of(|seen| seen.times[1])?)
                .baseline("before", Some(of(|seen| seen.times[0])?)),
            Figure::new(named("packets of the second worker, of all, before"), "ratio", of(|seen| seen.shares[0])?),
            Figure::new(named("packets of the second worker, of all, after"), "ratio", of(|seen| seen.shares[1])?)
                .mark(Bound::AtLeast(EVEN)),
            Figure::new(named("users moved"), "", of(|seen| seen.moved as f64)?),
            Figure::new(named("time until it was even"), "s", of(|seen| seen.took)?),
            Figure::new(named("packets lost"), "", of(|seen| seen.lost as f64)?).mark(Bound::AtMost(0.0)),
            Figure::new(named("packets miscounted"), "", of(|seen| seen.miscounted as f64)?).mark(Bound::AtMost(0.0)),
        ]);
        for (run, seen) in runs.iter().enumerate() {
            for (second, rate) in &seen[place].course {
                table.row([(run + 1).to_string(), driver.into(), second.to_string(), rate.to_string()]);
            }
        }
        if let Some(first) = runs.first() {
            chart = chart.line(driver, first[place].course.iter().map(|(at, rate)| (*at, rate / 1e6)).collect());
        }
    }
    let wrong = |seen: &RebalanceResult| seen.lost > 0 || seen.miscounted > 0;
    let broken = runs.iter().flatten().any(wrong).then(|| "packets were lost or miscounted".to_owned());
    Ok(Findings {
        load: OfferedLoad::new(
            "128-byte packets in a closed loop, by sockets and by AF_PACKET",
            [SOCKETS, BUSY].map(|driver| 2.0 * driver.flight as f64),
            "frames in flight",
        ),
        configurations: vec![Configuration {
            name: "rebalance".into(),
            about: "A slice with two workers, on a processor each; users move when one has more packets for seconds."
                .into(),
            toml: format!("{}[datapath]\nrebalance = true\n", slice_of(processors)),
        }],
        figures,
        plots: vec![("rates", chart.svg()?)],
        tables: vec![("course", table)],
        notes: vec![format!(
            "{users} users, half of them each worker's; {LENGTH}-byte packets of the first half alone, of random ones in both \
             directions at once, in a closed loop with {} frames on the way by sockets and {} by AF_PACKET, on {processors} \
             processors, which the load needs too. Frames that are missing at the end are lost, those excepted that the \
             kernel had no room for; what records have counted is held against what the far ends counted. With the sockets \
             driver the packets of a user go to its worker by programs of the kernel before and after it has moved.",
            2 * SOCKETS.flight,
            2 * BUSY.flight
        )],
        broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packet_breaks_experiment() {
        let seen = |lost| RebalanceResult {
            driver: "sockets",
            rates: [1e5, 1.5e5],
            shares: [0.0, 0.5],
            times: [20.0, 13.0],
            took: 4.0,
            moved: 500,
            lost,
            miscounted: 0,
            course: vec![(1.0, 1e5), (4.0, 1.5e5)],
        };
        let good = findings(&[vec![seen(0), seen(0)]], 100, 2).unwrap();
        assert!(good.broken.is_none() && good.figures.iter().all(|figure| figure.met != Some(false)));
        assert_eq!(good.figures[0].ours.median, 1.5);
        assert!(findings(&[vec![seen(0), seen(1)]], 100, 2).unwrap().broken.is_some());
    }
}
