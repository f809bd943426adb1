//! Packet loss and interruption when a data worker is killed under load.
//!
//! Data workers are processes, or threads, in which case the whole user plane restarts. The
//! experiment also compares the packet rate of processes with that of threads.

use super::context::{ExperimentContext, Findings, each};
use super::migration::{API, Driver, SLOT, WINDOW, config, drivers, establish, sessions};
use super::scaleout::InterfaceMode;
use super::scaleout::network::{FIRST_UE, Network};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::files::api;
use vireo_lab::process::on_processors;
use vireo_lab::upf::Upf;
use vireo_lab::workers::Worker;
use vireo_ops::api::{Status, UpfStatus};
use vireo_traffic::frame_loop::{Direction, FrameLoop, Teids};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-takeover",
    about: "What does a data worker's death cost its users, and what do processes cost that it costs so little?",
    paper: "A High Performance Packet Core for Next Generation Cellular Networks (PEPC); the talk shows no failures",
    informative: None,
    run: Run::Core(run),
};

/// Packets per burst, in the full and in the short form: 80,000 packets per second, and 20,000,
/// which a debug build can handle.
const BURST: u32 = 16;
const SHORT_BURST: u32 = 4;
const EVERY: Duration = Duration::from_micros(200);
/// Time of the load before and after a kill.
const AROUND: Duration = Duration::from_millis(60);
/// Time without a packet after which the remaining packets count as lost.
const QUIET: Duration = Duration::from_millis(50);
/// Maximum number of packets that a data worker holds.
const BATCH: f64 = 32.0;
/// Where data workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Threads,
    Processes,
}

impl Placement {
    fn keys(self) -> &'static str {
        match self {
            Placement::Threads => "placement = \"threads\"\n",
            Placement::Processes => "placement = \"processes\"\n",
        }
    }
}

/// Effect of one kill.
#[derive(Clone, Copy, Debug, Default)]
struct KillResult {
    /// Packets sent and not received.
    lost: f64,
    /// Longest time between two received packets, in ms.
    pause_ms: f64,
}

impl KillResult {
    fn lost_packets(&self) -> f64 {
        self.lost
    }

    fn pause(&self) -> f64 {
        self.pause_ms
    }
}

/// Results of one run with one driver.
struct TakeoverResult {
    driver: &'static str,
    /// Kills of data workers.
    killed: Vec<KillResult>,
    /// Kills of the whole user plane with thread workers, until all sessions are restored.
    restarted: Vec<KillResult>,
    /// Result without a kill.
    calm: KillResult,
    /// Ratio of the packet rates of processes and threads.
    rate: f64,
    /// Takeovers and sessions that the user plane reports at the end.
    after: UpfStatus,
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let (users, kills, restarts) = if session.quick { (2_000, 4, 1) } else { (20_000, 30, 3) };
    let runs = session.repeat("deaths", |_| {
        drivers(session).iter().map(|driver| measure(session, driver, users, (kills, restarts))).collect()
    })?;
    findings(&runs, users, burst(session))
}

fn measure(
    session: &ExperimentContext,
    driver: &Driver,
    users: u32,
    (kills, restarts): (u32, u32),
) -> Result<TakeoverResult, Failure> {
    session.interrupt.check()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let network = Network::build(&session.lab, InterfaceMode::Fanout, processors.min(2))?;
    let start = |placement: Placement, teids: Option<&Teids>| {
        let toml = config(&network, (driver, placement.keys()), users, "");
        let mut upf = Upf::start(network.upf(), &[], &toml, &session.interrupt)?;
        // After a restart of the UPF the control plane chooses the F-TEIDs, which RAN nodes know
        // (TS 23.527 4.3).
        let teids = sessions(&network, &mut upf, (0..users, teids), WINDOW)?;
        Ok::<_, Failure>((upf, teids))
    };
    let (mut upf, teids) = start(Placement::Processes, None)?;
    let packets = network.packets(0, FIRST_UE, teids.clone());
    let load = network.outside(|| FrameLoop::load(&network.ends[0], packets))??;
    let under_load =
        |kill: &mut dyn FnMut() -> Result<(), Failure>| under_load(&network, &load, (users, burst(session)), kill);
    let calm = under_load(&mut || Ok(()))?;
    let mut killed = vec![];
    for _ in 0..kills {
        session.interrupt.check()?;
        let worker = worker(&upf)?;
        killed.push(under_load(&mut || Ok(worker.kill().map(|_| ())?))?);
    }
    let status: Status = serde_json::from_str(&api(API)?.fetch("/status")?)?;
    let after = status.upfs.into_iter().next().ok_or_else(|| Failure("there is no UPF".into()))?;
    upf.stop()?;
    let mut restarted = vec![];
    upf = start(Placement::Threads, Some(&teids))?.0;
    for _ in 0..restarts {
        session.interrupt.check()?;
        let mut alive = Some(upf);
        let mut next = None;
        restarted.push(under_load(&mut || {
            if let Some(upf) = alive.take() {
                let pid = Pid::from_raw(upf.process.pid().cast_signed());
                kill_process(pid.ok_or_else(|| Failure("the UPF has no process".into()))?, Signal::KILL)?;
            }
            next = Some(start(Placement::Threads, Some(&teids))?.0);
            Ok(())
        })?);
        upf = next.ok_or_else(|| Failure("the UPF was not started".into()))?;
    }
    upf.stop()?;
    drop(load);
    let rate = rate(session, &network, driver, users)?;
    eprintln!("experiment: {}: {:.3} of the rate; {}", driver.name, rate, kill_notes(&killed, &restarted));
    Ok(TakeoverResult { driver: driver.name, killed, restarted, calm, rate, after })
}

fn burst(session: &ExperimentContext) -> u32 {
    if session.quick { SHORT_BURST } else { BURST }
}

fn kill_notes(killed: &[KillResult], restarted: &[KillResult]) -> String {
    let most = |deaths: &[KillResult], of: fn(&KillResult) -> f64| deaths.iter().map(of).fold(0.0, f64::max);
    let worst = |deaths| (most(deaths, |one: &KillResult| one.lost), most(deaths, |one: &KillResult| one.pause_ms));
    let ((lost, pause), (all, long)) = (worst(killed), worst(restarted));
    format!("at most {lost} packets and {pause:.1} ms a death, {all} packets and {long:.0} ms a restart")
}

/// Waits for the data worker, which may have been killed a moment ago.
fn worker(upf: &Upf) -> Result<Worker, Failure> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match Worker::data_workers(&upf.process)?.pop() {
            Some(worker) => return Ok(worker),
            None if Instant::now() > deadline => return Err(Failure("no data worker comes after the last one".into())),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Sends uplink packets of users steadily while `kill` runs. Returns the loss from then on.
fn under_load(
    network: &Network<'_>,
    load: &FrameLoop,
    (users, burst): (u32, u32),
    kill: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<KillResult, Failure> {
    let (stop, watch) = (AtomicBool::new(false), AtomicBool::new(false));
    let last = std::thread::available_parallelism().map_or(1, usize::from).min(2) - 1;
    let send = || network.outside(|| on_processors(&[last], || steadily(load, (users, burst), &stop, &watch)))??;
    std::thread::scope(|scope| {
        let sender = scope.spawn(send);
        std::thread::sleep(AROUND);
        watch.store(true, Relaxed);
        let killed = kill();
        std::thread::sleep(AROUND);
        stop.store(true, Relaxed);
        let seen = sender.join().map_err(|_| Failure("the thread that sends has failed".into()))?;
        killed.and(seen)
    })
}

/// Sends until stopped and polls for received packets. Pauses count from the start of polling.
fn steadily(
    load: &FrameLoop,
    (users, burst): (u32, u32),
    stop: &AtomicBool,
    watch: &AtomicBool,
) -> Result<KillResult, Failure> {
    let mut source = load.source(Direction::Uplink, users)?;
    let before = load.counted()?.ended;
    let (mut sent, mut came) = (0_u64, before);
    let mut last = Instant::now();
    let mut due = last;
    let mut longest = Duration::ZERO;
    let mut look = |last: &mut Instant, came: &mut u64| {
        let (count, now) = (load.counted()?.ended, Instant::now());
        if count != *came {
            if watch.load(Relaxed) {
                longest = longest.max(now - *last);
            }
            (*came, *last) = (count, now);
        }
        Ok::<_, Failure>(now)
    };
    while !stop.load(Relaxed) {
        source.send(burst)?;
        sent += u64::from(burst);
        due += EVERY;
        while look(&mut last, &mut came)? < due {}
    }
    while look(&mut last, &mut came)? - last < QUIET {
        std::thread::yield_now();
    }
    let lost = sent.saturating_sub(came - before);
    Ok(KillResult { lost: lost as f64, pause_ms: longest.as_secs_f64() * 1e3 })
}

/// Returns the ratio of the packet rates of processes and threads. Threads are measured before and
/// after.
fn rate(session: &ExperimentContext, network: &Network<'_>, driver: &Driver, users: u32) -> Result<f64, Failure> {
    let window = Duration::from_millis(if session.quick { 300 } else { 2000 });
    let one = |placement: Placement| {
        session.interrupt.check()?;
        let toml = config(network, (driver, placement.keys()), users, "");
        let mut upf = Upf::start(network.upf(), &[], &toml, &session.interrupt)?;
        let packets = network.packets(0, FIRST_UE, establish(network, &mut upf, 0..users)?);
        let mut load = network.outside(|| FrameLoop::load(&network.ends[0], packets))??;
        load.run(0, users)?;
        for direction in [Direction::Uplink, Direction::Downlink] {
            network.outside(|| on_processors(&[0], || load.inject(direction, 0, driver.flight)))???;
        }
        std::thread::sleep(window / 4);
        let all = || load.counted().map(|counted| counted.uplink + counted.downlink);
        let (began, before) = (Instant::now(), all()?);
        while began.elapsed() < window {
            std::thread::sleep(SLOT);
        }
        let rate = (all()? - before) as f64 / began.elapsed().as_secs_f64();
        load.run(0, 0)?;
        drop(load);
        upf.stop()?;
        match rate > 0.0 {
            true => Ok(rate),
            false => Err(Failure(format!("no packet comes through the driver {}", driver.name))),
        }
    };
    let [before, processes, after] = [one(Placement::Threads)?, one(Placement::Processes)?, one(Placement::Threads)?];
    Ok(processes / f64::midpoint(before, after))
}

/// Returns a quantile over the results of kills.
fn quantile(deaths: &[KillResult], of: fn(&KillResult) -> f64, q: f64) -> f64 {
    let mut all: Vec<f64> = deaths.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    let last = all.len().saturating_sub(1) as f64;
    all.get((q * last).ceil() as usize).copied().unwrap_or(f64::NAN)
}

fn findings(runs: &[Vec<TakeoverResult>], users: u32, burst: u32) -> Result<Findings, Failure> {
    let mut figures = vec![];
    let mut table = Table::new(&["run", "driver", "what", "number", "lost", "pause_ms"]);
    let axis = Axis::linear("part of the deaths");
    let mut chart = Chart::new("The longest time without a packet", axis, Axis::log("ms"));
    let mut broken = None;
    for place in 0..runs.first().map_or(0, Vec::len) {
        let driver = runs.first().map_or("", |run| run[place].driver);
        let all = |of: fn(&TakeoverResult) -> &Vec<KillResult>| {
            runs.iter().flat_map(|run| of(&run[place]).clone()).collect::<Vec<_>>()
        };
        let (killed, restarted) = (all(|seen| &seen.killed), all(|seen| &seen.restarted));
        let count = killed.len();
        let of = |value: fn(&KillResult) -> f64, q: f64| each(runs, move |run| quantile(&run[place].killed, value, q));
        let again = |value: fn(&KillResult) -> f64| each(runs, move |run| quantile(&run[place].restarted, value, 0.5));
        let named = |what: &str| format!("{driver}, {what}");
        figures.extend([
            Figure::new(
                named(&format!("packets lost by a worker's death, most of {count}")),
                "",
                of(KillResult::lost_packets, 1.0)?,
            )
            .mark(Bound::AtMost(BATCH))
            .baseline("whole user plane started anew", Some(again(KillResult::lost_packets)?)),
            Figure::new(named("packets lost by a worker's death, median"), "", of(KillResult::lost_packets, 0.5)?),
            Figure::new(named(&format!("time without packets, longest of {count}")), "ms", of(KillResult::pause, 1.0)?)
                .baseline("whole user plane started anew", Some(again(KillResult::pause)?)),
            Figure::new(named("time without packets, median"), "ms", of(KillResult::pause, 0.5)?)
                .baseline("nobody killed", Some(each(runs, |run| run[place].calm.pause_ms)?)),
            Figure::new(named("packets a second by processes, of those by threads"), "ratio", {
                each(runs, |run| run[place].rate)?
            }),
        ]);
        let curve = |deaths: &[KillResult]| -> Vec<(f64, f64)> {
            (0..=20)
                .map(|n| f64::from(n) / 20.0)
                .map(|q| (q, quantile(deaths, KillResult::pause, q).max(1e-3)))
                .collect()
        };
        chart = chart.line(named("a worker killed"), curve(&killed)).line(named("all started anew"), curve(&restarted));
        for (run, seen) in runs.iter().enumerate() {
            let seen = &seen[place];
            let kinds = [("killed", &seen.killed), ("started anew", &seen.restarted), ("calm", &vec![seen.calm])];
            for (what, deaths) in kinds {
                for (n, death) in deaths.iter().enumerate() {
                    let [n, lost, pause] = [(n + 1).to_string(), death.lost.to_string(), death.pause_ms.to_string()];
                    table.row([(run + 1).to_string(), driver.into(), what.into(), n, lost, pause]);
                }
            }
            let (takeovers, sessions) = (seen.after.takeovers, seen.after.sessions);
            if takeovers < seen.killed.len() as u64 || sessions != u64::from(users) {
                let killed = seen.killed.len();
                broken = Some(format!(
                    "{driver}: {killed} killed, {takeovers} taken over from, {sessions} of {users} sessions"
                ));
            }
        }
    }
    let configuration = |placement: Placement, about: &str| Configuration {
        name: format!("{placement:?}").to_lowercase(),
        about: about.into(),
        toml: format!("[datapath]\n{}", placement.keys()),
    };
    Ok(Findings {
        load: OfferedLoad::new("128-byte packets uplink, open loop", [f64::from(burst) / EVERY.as_secs_f64()], "1/s"),
        configurations: vec![
            configuration(Placement::Processes, "One data worker, a process of its own; another one is ready."),
            configuration(Placement::Threads, "One data worker, a thread: what kills it kills the user plane."),
        ],
        figures,
        plots: vec![("pauses", chart.svg()?)],
        tables: vec![("deaths", table)],
        notes: vec![format!(
            "{users} users; {burst} packets of random ones are sent uplink every {} us, and looked for at the far end of N6 all \
             the time. A death is SIGKILL to the data worker, or to the user plane with threads, which is then started \
             again and gets all sessions from its control plane anew, as fast as it takes them: until then packets are lost. \
             A packet is lost if it never comes. Rates are of closed loops in both directions, each with processes against \
             those with threads before and after.",
            EVERY.as_micros()
        )],
        broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(lost: f64, pause_ms: f64) -> KillResult {
        KillResult { lost, pause_ms }
    }

    fn result(worst: f64, takeovers: u64) -> TakeoverResult {
        TakeoverResult {
            driver: "sockets",
            killed: vec![death(3.0, 1.0), death(worst, 4.0), death(0.0, 0.5)],
            restarted: vec![death(9e3, 700.0)],
            calm: death(0.0, 0.2),
            rate: 0.9,
            after: UpfStatus { takeovers, sessions: 100, ..UpfStatus::default() },
        }
    }

    #[test]
    fn deaths_have_worst_and_median() {
        let found = findings(&[vec![result(20.0, 3), result(20.0, 3)]], 100, 4).unwrap();
        assert!(found.broken.is_none());
        let value = |n: usize| found.figures[n].ours.median;
        assert_eq!((value(0), value(1), value(2), value(3), value(4)), (20.0, 3.0, 4.0, 1.0, 0.9));
        assert!(found.figures[0].met == Some(true));
        let found = findings(&[vec![result(40.0, 3), result(20.0, 2)]], 100, 4).unwrap();
        assert!(found.figures[0].met == Some(false), "more than a batch");
        assert!(found.broken.unwrap().contains("3 killed, 2 taken over from"));
    }
}
