//! Packets of a UPF beside S1AP: eNBs and UEs of 4G, a core, and a UPF, each a process.
//!
//! XDP handles the packets of `vireo upf` on one processor. The other one has everything else: the
//! emulator, the core, and the UPF's N4 thread. A service request with its release changes the
//! session of a UE twice by PFCP.

use super::median;
use super::processes::{FRAMES, SignallingResult, TURNS, watch};
use crate::context::{Findings, each};
use crate::experiment::Plane;
use crate::plot::{Axis, Chart};
use crate::steady::unix_us;
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_bench::upf::network::GNB;
use vireo_bench::upf::process::{Upf, xdp};
use vireo_client::Api;
use vireo_config::Failure;
use vireo_lab::core::API;
use vireo_lab::emulator::EmulatorResult;
use vireo_lab::files::{CONFIG, DATABASE, api, create};
use vireo_lab::netns::Netns;
use vireo_lab::options::{CoreOptions, FIRST_IMSI};
use vireo_lab::process::{Process, on_processors};
use vireo_lab::provision::prepare;
use vireo_lab::upf::N4;
use vireo_ops::api::Status;
use vireo_traffic::frame_loop::{Direction, FrameLoop};

/// Service requests per second.
const RATES: [u32; 4] = [250, 500, 1_000, 2_000];
/// Index in [`RATES`] of the rate with a mark.
const MARKED: usize = 2;
/// Least fraction of its rate that the data side must keep.
const KEPT: f64 = 0.98;
/// UEs of 4G. Each is connected for some milliseconds after a service request.
const UES: u32 = 2_000;
const QUICK_UES: u32 = 100;
/// Attaches per second before the load.
const ATTACHES: u32 = 1_000;
/// The load before and after packets are counted.
const AROUND: Duration = Duration::from_millis(700);
const START_WITHIN: Duration = Duration::from_secs(60);
const LAST_WORDS: usize = 15;
/// Addresses of core and eNBs on a link of their own.
const CORE: &str = "192.168.126.1";
const RAN: &str = "192.168.126.2";
/// Addresses of the UEs of 4G: a part of the UPF's pool that the other users do not have.
const UE_POOL: &str = "10.80.0.0/16";
const RESULT: &str = "/tmp/emulator-s1.json";

/// Result at one rate.
#[derive(Clone, Debug, Default)]
struct RateResult {
    signalling: SignallingResult,
    /// Service requests that were due, and those that completed.
    due: u64,
    completed: u64,
    /// What went wrong, as the emulator reports it.
    complaints: Vec<String>,
}

pub(super) fn run(plane: &Plane) -> Result<Findings, Failure> {
    let (span, users, ues) = match plane.quick {
        true => (Duration::from_millis(200), 1_000, QUICK_UES),
        false => (Duration::from_secs(1), super::users(plane), UES),
    };
    let rates = if plane.quick { &RATES[..1] } else { &RATES[..] };
    let places = super::processors(plane);
    let mut network = S1Network::build(plane, places.1, ues)?;
    let mut runs = vec![];
    for n in 1..=plane.runs {
        eprintln!("experiment: run {n} of {}", plane.runs);
        runs.push(measure(plane, &mut network, (users, ues), span, (rates, places))?);
    }
    network.stop()?;
    findings(&runs, rates, users)
}

/// Core and eNBs, joined by a link.
struct S1Network {
    ran: Netns,
    core: Process,
    api: Api,
}

impl S1Network {
    /// Starts a core without a UPF of its own in the namespace of the UPF.
    fn build(plane: &Plane, processor: usize, ues: u32) -> Result<Self, Failure> {
        let ran = Netns::new()?;
        plane.network.upf.enter()?;
        plane.network.upf.ip(&format!("link add s1 type veth peer name ran netns {}", ran.path()))?;
        for (netns, interface, address) in [(&plane.network.upf, "s1", CORE), (&ran, "ran", RAN)] {
            netns.ip(&format!("address add {address}/24 dev {interface}"))?;
            netns.ip(&format!("link set {interface} up"))?;
        }
        prepare(&CoreOptions { subscribers: ues.into(), ..CoreOptions::default() })?;
        std::fs::write(CONFIG, core_configuration())?;
        let mut command = Process::this_program();
        command.args(["run", "--config", CONFIG]);
        let log = create(Path::new("/tmp/core.log"))?;
        let start = || Process::start("core", &plane.network.upf, &mut command, Some(log));
        Ok(S1Network { ran, core: on_processors(&[processor], start)??, api: api(API)? })
    }

    fn status(&self) -> Option<Status> {
        serde_json::from_str(&self.api.fetch("/status").ok()?).ok()
    }

    /// Waits until the status of the core fulfils a condition.
    fn wait(&mut self, plane: &Plane, not: &str, is_so: impl Fn(&Status) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        while !self.status().is_some_and(|status| is_so(&status)) {
            plane.interrupt.check()?;
            if let Some(status) = self.core.exit_status()? {
                let words = self.core.last_words(LAST_WORDS);
                return Err(Failure(format!("the core ended ({status}); it says:\n{words}")));
            }
            if Instant::now() > deadline {
                return Err(Failure(format!("{not} after {START_WITHIN:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts the emulator: attaches, then service requests at this rate for this time.
    fn emulate(&self, ues: u32, rate: u32, time: Duration, processor: usize) -> Result<Process, Failure> {
        let mut command = Process::this_program();
        command.args(["emulate", "--rat", "eps", "--core", CORE, "--n2", RAN, "--n3", RAN, "--imsi", FIRST_IMSI]);
        command.args(["--gnbs", "2", "--load", "service-request=1", "--json", RESULT, "--settle", "100ms"]);
        let numbers = [("--ues", ues), ("--rate", rate), ("--register-rate", ATTACHES)];
        for (name, value) in numbers {
            command.args([name, &value.to_string()]);
        }
        command.args(["--duration", &format!("{}ms", time.as_millis())]);
        let _ = std::fs::remove_file(RESULT);
        let log = create(Path::new("/tmp/emulator-s1.log"))?;
        let start = || Process::start("emulator", &self.ran, &mut command, Some(log));
        Ok(on_processors(&[processor], start)??)
    }

    fn stop(mut self) -> Result<(), Failure> {
        let status = self.core.terminate()?;
        if status.success() { Ok(()) } else { Err(Failure(format!("the core ended with {status}"))) }
    }
}

fn core_configuration() -> String {
    format!(
        "[core]\nplmns = [\"99970\"]\ntacs = [1]\n[slice.default]\nsnssai = {{ sst = 1 }}\n[dnn.internet]\nipv4-pool = \
         \"{UE_POOL}\"\n[n2]\naddresses = [\"{CORE}\"]\n[s1]\naddresses = [\"{CORE}\"]\n[upf]\nenabled = false\n[n4]\nlisten = \
         \"127.0.0.10:8805\"\n[[external-upf]]\nname = \"upf\"\nn4 = \"{N4}\"\n[api]\nlisten = \"{}\"\nsocket = \"off\"\n\
         [subscribers]\ndatabase = \"{DATABASE}\"\n[log]\nlevel = \"warn\"\n",
        API.trim_start_matches("http://"),
    )
}

/// Counts packets alternately without signalling and beside it, at each rate.
fn measure(
    plane: &Plane,
    network: &mut S1Network,
    (users, ues): (u32, u32),
    span: Duration,
    (rates, (data, control)): (&[u32], (usize, usize)),
) -> Result<Vec<RateResult>, Failure> {
    // Each UE attaches again while its last session exists.
    let mut upf = Upf::start(&plane.network, &[control], users + 2 * ues, &xdp(&plane.network), &plane.interrupt)?;
    upf.establish(0..users, false)?;
    let teids = upf.teids.take().ok_or_else(|| Failure("the UPF has no sessions".into()))?;
    upf.workers_on(data)?;
    upf.signalling_on(control)?;
    network.wait(plane, "the UPF is not associated", |status| status.upfs.iter().any(|upf| upf.associated))?;
    let packets = plane.network.packets(teids);
    let mut load = plane.network.outside(|| FrameLoop::load(&plane.network.ours, packets))??;
    load.run(0, users)?;
    plane.network.outside(|| on_processors(&[data], || load.inject(Direction::Downlink, 0, FRAMES)))???;
    std::thread::sleep(span / 2);
    let mut all = vec![];
    for rate in rates {
        let mut beside = RateResult::default();
        let mut events = vec![];
        for turn in 0..2 * TURNS - 1 {
            plane.interrupt.check()?;
            if turn % 2 == 0 {
                beside.signalling.rates.push(watch(&load, span)?);
                continue;
            }
            let mut emulator = network.emulate(ues, *rate, span + 2 * AROUND, control)?;
            // From the second turn on, the core knows the UEs before they attach.
            std::thread::sleep(Duration::from_secs_f64(f64::from(ues) / f64::from(ATTACHES)) + AROUND);
            network.wait(plane, "the UEs are not attached", |status| status.counts.registered >= ues as usize)?;
            let began = unix_us();
            beside.signalling.rates.push(watch(&load, span)?);
            let ended = unix_us();
            let result = result(plane, &mut emulator)?;
            let from = result.steady_began_unix_us;
            let to = from + (result.steady_seconds * 1e6) as u64;
            if result.procedures == 0 || began < from || ended > to {
                return Err(Failure("packets were counted before or after the signalling: the machine is busy".into()));
            }
            events.push(result.completed as f64 / result.steady_seconds);
            beside.due += result.procedures;
            beside.completed += result.completed;
            beside.complaints.extend(result.complaints());
        }
        beside.signalling.events = median(events.into_iter());
        all.push(beside);
    }
    load.run(0, 0)?;
    drop(load);
    upf.stop()?;
    Ok(all)
}

/// Waits for the end of the emulator and returns its result.
fn result(plane: &Plane, emulator: &mut Process) -> Result<EmulatorResult, Failure> {
    let deadline = Instant::now() + START_WITHIN;
    while emulator.exit_status()?.is_none() {
        plane.interrupt.check()?;
        if Instant::now() > deadline {
            return Err(Failure(format!("the emulator is not done after {START_WITHIN:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(RESULT)
        .map_err(|error| Failure(format!("the emulator has no result ({error}) {}", emulator.last_words(10))))?;
    Ok(serde_json::from_str(&text)?)
}

fn findings(runs: &[Vec<RateResult>], rates: &[u32], users: u32) -> Result<Findings, Failure> {
    let alone = each(runs, |run| median(run.iter().map(|beside| beside.signalling.rate_alone())))?;
    let mut figures = vec![Figure::new("no signalling, packets", "1/s", alone)];
    let mut line = vec![];
    for (place, rate) in rates.iter().enumerate() {
        let kept = each(runs, |run| run[place].signalling.kept_rate())?;
        line.push((f64::from(*rate), kept.median));
        let figure = Figure::new(format!("{rate} service requests/s, packets, of those"), "ratio", kept);
        figures.push(if place == MARKED.min(rates.len() - 1) { figure.mark(Bound::AtLeast(KEPT)) } else { figure });
        let served = each(runs, |run| run[place].signalling.events)?;
        figures.push(Figure::new(format!("{rate} service requests/s, completed"), "1/s", served));
    }
    let mut table = Table::new(&["run", "service_requests_per_s", "turn", "packets_per_s", "due", "completed"]);
    for (n, run) in runs.iter().enumerate() {
        for (rate, beside) in rates.iter().zip(run) {
            for (turn, packets) in beside.signalling.rates.iter().enumerate() {
                let signalling = if turn % 2 == 0 { 0 } else { *rate };
                let RateResult { due, completed, .. } = beside;
                table.row([n + 1, signalling as usize, turn, *packets as usize, *due as usize, *completed as usize]);
            }
        }
    }
    let chart = Chart::new(
        format!("Packets of {users} users beside S1AP"),
        Axis::linear("service requests with release per second"),
        Axis::linear("packet rate, of that without signalling"),
    )
    .line("vireo", line);
    let mut complaints: Vec<String> = runs.iter().flatten().flat_map(|of| of.complaints.iter().cloned()).collect();
    complaints.sort_unstable();
    complaints.dedup();
    let complaints = complaints.into_iter().map(|what| format!("Went wrong: {what}."));
    Ok(Findings {
        load: OfferedLoad::new(
            "service requests with release by eNBs, open loop, beside packets in a closed loop",
            rates.iter().copied().map(f64::from),
            "1/s",
        ),
        configurations: vec![Configuration {
            name: "processes".into(),
            about: "vireo upf with XDP on one processor; core, eNBs and the UPF's N4 thread on another one.".into(),
            toml: core_configuration(),
        }],
        figures,
        plots: vec![("packets", chart.svg()?)],
        tables: vec![("turns", table)],
        notes: vec![
            format!(
                "Packets of {users} users go round in the kernel between XDP and programs at the far ends of links; their \
                 sessions are another control plane's, and do not change. The eNBs of {RAN} send S1AP over SCTP from user \
                 space. A service request and its release are two changes of a session by PFCP. Emulator, core and N4 \
                 thread share one processor, which bounds the rate of signalling."
            ),
            format!("The RAN node of the packets is {GNB}."),
        ]
        .into_iter()
        .chain(complaints)
        .collect(),
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;

    #[test]
    fn configuration_of_core_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        std::fs::write(&path, core_configuration()).unwrap();
        let config = Config::load(Some(&path)).unwrap();
        assert!(config.upf.is_none() && config.core.upfs.len() == 1);
    }

    #[test]
    fn rate_with_mark_has_figures() {
        let beside = |kept: f64| RateResult {
            signalling: SignallingResult { rates: vec![100.0, kept, 100.0], events: 10.0 },
            due: 10,
            completed: 10,
            complaints: vec![],
        };
        let runs = [vec![beside(100.0), beside(100.0), beside(97.0), beside(90.0)]];
        let found = findings(&runs, &RATES, 1_000).unwrap();
        let marked: Vec<_> = found.figures.iter().filter(|figure| figure.mark.is_some()).collect();
        assert_eq!((marked.len(), marked[0].met, found.figures.len()), (1, Some(false), 9));
        assert_eq!(found.tables[0].0, "turns");
    }
}
