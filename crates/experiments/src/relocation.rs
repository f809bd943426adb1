//! PEPC migrations of user state between two UPFs, 1,000 per second and more.
//!
//! Each is a relocation of a PDU session (`core::smf::relocate`): PFCP establishes the session at
//! the target with its addresses, the RAN gets the tunnel of the target, the source sends an End
//! Marker, and PFCP deletes the session at the source. Meanwhile each UE sends echoes. The
//! experiment measures relocations, lost and miscounted packets, and what a relocation costs.

use super::context::{ExperimentContext, Findings, each};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Configuration, Figure, OfferedLoad, Table};
use vireo_client::{Api, slices};
use vireo_config::Failure;
use vireo_lab::core::{API, Core};
use vireo_lab::emulator::{self, EmulatorOptions, Load};
use vireo_lab::files::{api, create};
use vireo_lab::options::{CoreOptions, UNSHED};
use vireo_lab::second_upf::{self, NAMES};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pepc-relocation",
    about: "What do a thousand moves of user state between two UPFs a second cost, and is a packet lost?",
    paper: "A High Performance Packet Core for Next Generation Cellular Networks (PEPC); the talk moves users between \
            slices of one core only",
    informative: None,
    run: Run::Core(run),
};

/// Ordered relocations per second. Above the mark, because a UE that is busy refuses.
const RATE: f64 = 1_150.0;
/// Least number of completed relocations per second.
const LEAST: f64 = 1_000.0;
/// Echoes of a UE in a row, and the pause after them.
const ECHOES: u32 = 2;
const PAUSE: Duration = Duration::from_secs(1);
/// Time between the first orders and the measurement: the source keeps a session 200 ms.
const LEAD: Duration = Duration::from_millis(700);
const SAMPLE: Duration = Duration::from_millis(250);
const GNBS: u32 = 2;

/// Size of a run.
#[derive(Clone, Copy, Debug)]
struct Scale {
    ues: u32,
    /// Rate of the UEs' registrations, in 1/s. It bounds the load before the measurement.
    registrations: u32,
    /// Time with relocations, in seconds.
    seconds: u32,
}

impl Scale {
    /// Returns how often a UE sends echoes, so that the first UE leaves after the last relocation.
    fn rounds(self) -> u32 {
        self.ues.div_ceil(self.registrations) + self.seconds + 6
    }
}

/// Results of a load with relocations or without.
#[derive(Clone, Debug, Default)]
struct Relocations {
    /// Completed relocations per second, by interval.
    rates: Vec<(f64, f64)>,
    /// Completed relocations per second over all intervals.
    rate: f64,
    /// Completed relocations, also outside of the measurement.
    completed: u64,
    /// Orders that the core did not carry out.
    refused: u64,
    /// Mean time from the order to the deletion at the source, in ms.
    time_ms: f64,
    echoes: u64,
    /// Echoes without an answer within a second. They were sent again, or the UE failed.
    lost: u64,
    /// Packets at the RAN that were damaged or for another UE.
    misdelivered: u64,
    /// Bytes that UPFs have counted too many or too few, in both directions.
    miscounted: u64,
    /// Median and 99th percentile of the time of an echo, in us.
    echo_us: [f64; 2],
    /// CPU time of core and second UPF, in seconds.
    cpu_s: f64,
    complaints: Vec<String>,
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let scale = match session.quick {
        true => Scale { ues: 600, registrations: 300, seconds: 4 },
        false => Scale { ues: 2_000, registrations: 400, seconds: 15 },
    };
    let runs = session.repeat("relocations", |_| {
        let [without, with] = [0.0, RATE].map(|rate| measure(session, scale, rate));
        let (without, with) = (without?, with?);
        let Relocations { rate, lost, miscounted, .. } = with;
        eprintln!("experiment: {rate:.0} relocations/s, {lost} packets lost, {miscounted} bytes miscounted");
        Ok((without, with))
    })?;
    findings(&runs, scale)
}

/// Runs the load with this many relocations per second.
fn measure(session: &ExperimentContext, scale: Scale, rate: f64) -> Result<Relocations, Failure> {
    session.interrupt.check()?;
    let Scale { ues, registrations, .. } = scale;
    let mut second = second_upf::start(&session.lab)?;
    let options = core_options(ues);
    let log = session.log.as_ref().map_or_else(|| create(Path::new("/tmp/core.log")), |log| Ok(log.try_clone()?))?;
    let mut core = Core::start(&session.lab, &options, log, &session.interrupt)?;
    core.wait_for_upfs(&session.interrupt)?;
    let before = second.cpu()?;
    let emulation = EmulatorOptions {
        gnbs: GNBS,
        ues,
        load: Load::Rate(registrations),
        scenario: "pauses".into(),
        idle: PAUSE,
        limit: Duration::from_secs(180 + u64::from(scale.rounds())),
        more: ["--echoes", &ECHOES.to_string(), "--rounds", &scale.rounds().to_string()].map(str::to_owned).to_vec(),
        ..EmulatorOptions::default()
    };
    let mut relocator = Relocator::new(rate, scale)?;
    let emulated = emulator::run_with(&session.lab, &mut core, &emulation, &session.interrupt, &mut |core| {
        second.exit_status()?.map_or(Ok(()), |status| Err(Failure(format!("the second UPF ended with {status}"))))?;
        relocator.work(core)
    })?;
    let cpu = emulated.core_cpu + second.cpu()?.saturating_sub(before);
    let counted = core.session_bytes()?;
    let completed = core.completed_relocations()?;
    let time_ms = mean_time(&relocator.api.fetch("/metrics")?) * 1e3;
    core.stop()?;
    second_upf::stop(second)?;
    let result = emulated.result;
    let plane = result.user_plane;
    let echo = result.latency("echo");
    Ok(Relocations {
        rate: relocator.rate(),
        rates: relocator.rates,
        completed,
        refused: relocator.ordered.saturating_sub(completed),
        time_ms,
        echoes: plane.echoes,
        lost: plane.resent + plane.echoes_lost + plane.echoes.saturating_sub(plane.echoes_answered + plane.echoes_lost),
        misdelivered: plane.bad_packets,
        miscounted: counted[0].abs_diff(plane.up_octets) + counted[1].abs_diff(plane.down_octets),
        echo_us: [echo.p50 as f64, echo.p99 as f64],
        cpu_s: cpu.as_secs_f64(),
        complaints: result.complaints(),
    })
}

fn core_options(ues: u32) -> CoreOptions {
    let options = second_upf::core_options();
    CoreOptions { subscribers: ues.into(), tables: format!("{}{UNSHED}", options.tables), ..options }
}

/// Returns the mean time of a relocation in seconds, from the metrics of the core; 0 without any.
fn mean_time(metrics: &str) -> f64 {
    let of = |kind: &str| -> f64 {
        let name = format!("vireo_procedure_duration_seconds_{kind}{{procedure=\"relocation\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok()).unwrap_or(0.0)
    };
    of("sum") / of("count").max(1.0)
}

/// Orders relocations at a fixed rate, of all UEs in turn and back again.
struct Relocator {
    api: Api,
    rate: f64,
    scale: Scale,
    /// SUPIs, each with the index in [`NAMES`] of its next UPF.
    users: Vec<(String, usize)>,
    next: usize,
    ordered: u64,
    began: Option<Instant>,
    /// Time and completed relocations of the last sample.
    sampled: Option<(Instant, u64)>,
    rates: Vec<(f64, f64)>,
    /// First and last sample of the measurement.
    measured: Option<[(Instant, u64); 2]>,
}

impl Relocator {
    fn new(rate: f64, scale: Scale) -> Result<Self, Failure> {
        Ok(Relocator {
            api: api(API)?,
            rate,
            scale,
            users: vec![],
            next: 0,
            ordered: 0,
            began: None,
            sampled: None,
            rates: vec![],
            measured: None,
        })
    }

    /// Orders the relocations that are due, once all UEs have a session.
    fn work(&mut self, core: &Core) -> Result<(), Failure> {
        if self.rate <= 0.0 {
            return Ok(());
        }
        let Some(began) = self.began else {
            if core.registered()? >= self.scale.ues as usize {
                self.find(core)?;
            }
            return Ok(());
        };
        let end = began + Duration::from_secs(self.scale.seconds.into());
        if Instant::now() > end {
            return Ok(());
        }
        while (self.ordered as f64) < began.elapsed().as_secs_f64() * self.rate && Instant::now() < end {
            let (supi, next) = &mut self.users[self.next];
            self.next = (self.next + 1) % self.scale.ues as usize;
            if !slices::relocate(&self.api, supi, NAMES[*next])? {
                return Err(Failure(format!("the core does not know {supi}")));
            }
            *next = 1 - *next;
            self.ordered += 1;
        }
        self.sample(core, began)
    }

    /// Finds the UEs and their UPFs. Begins if each UE has a session.
    fn find(&mut self, core: &Core) -> Result<(), Failure> {
        let mut users = vec![];
        loop {
            let page = core.ues(users.len())?.ues;
            let known = page.iter().filter_map(|ue| Some((ue.supi.clone(), ue.sessions.first()?.upf == NAMES[0])));
            let before = users.len();
            users.extend(known.map(|(supi, first)| (supi, usize::from(first))));
            if users.len() == before || page.is_empty() {
                break;
            }
        }
        if users.len() == self.scale.ues as usize {
            (self.users, self.began) = (users, Some(Instant::now()));
        }
        Ok(())
    }

    /// Samples the number of completed relocations.
    fn sample(&mut self, core: &Core, began: Instant) -> Result<(), Failure> {
        let due = self.sampled.map_or(began + LEAD, |(at, _)| at + SAMPLE);
        if Instant::now() < due {
            return Ok(());
        }
        let now = (Instant::now(), core.completed_relocations()?);
        if let Some((at, completed)) = self.sampled.replace(now) {
            let rate = (now.1 - completed) as f64 / (now.0 - at).as_secs_f64();
            self.rates.push(((now.0 - began).as_secs_f64(), rate));
        }
        self.measured = Some([self.measured.map_or(now, |[first, _]| first), now]);
        Ok(())
    }

    /// Returns the completed relocations per second over the measurement.
    fn rate(&self) -> f64 {
        let Some([first, last]) = self.measured.filter(|[first, last]| last.0 > first.0) else { return 0.0 };
        (last.1 - first.1) as f64 / (last.0 - first.0).as_secs_f64()
    }
}

/// Results of one run, without relocations and with them.
type Pair = (Relocations, Relocations);

fn findings(runs: &[Pair], scale: Scale) -> Result<Findings, Failure> {
    let with = |of: fn(&Relocations) -> f64| each(runs, move |run: &Pair| of(&run.1));
    let without = |of: fn(&Relocations) -> f64| each(runs, move |run: &Pair| of(&run.0)).map(Some);
    let both = |of: fn(&Relocations) -> u64| each(runs, move |run: &Pair| (of(&run.0) + of(&run.1)) as f64);
    let cost = |run: &Pair| (run.1.cpu_s - run.0.cpu_s) * 1e6 / (run.1.completed.max(1) as f64);
    let none = Bound::AtMost(0.0);
    let figures = vec![
        Figure::new("relocations", "1/s", with(|seen| seen.rate)?).mark(Bound::AtLeast(LEAST)),
        Figure::new("packets lost", "", both(|seen| seen.lost)?).mark(none),
        Figure::new("packets misdelivered", "", both(|seen| seen.misdelivered)?).mark(none),
        Figure::new("bytes miscounted", "bytes", both(|seen| seen.miscounted)?).mark(none),
        Figure::new("orders refused", "", with(|seen| seen.refused as f64)?),
        Figure::new("time of a relocation", "ms", with(|seen| seen.time_ms)?),
        Figure::new("CPU time of a relocation", "us", each(runs, cost)?),
        Figure::new("echoes", "", with(|seen| seen.echoes as f64)?),
        Figure::new("echo, median", "us", with(|seen| seen.echo_us[0])?)
            .baseline("without", without(|seen| seen.echo_us[0])?),
        Figure::new("echo, p99", "us", with(|seen| seen.echo_us[1])?)
            .baseline("without", without(|seen| seen.echo_us[1])?),
    ];
    let mut table = Table::new(&["run", "second", "relocations_per_s"]);
    for (run, (_, seen)) in runs.iter().enumerate() {
        for (second, rate) in &seen.rates {
            table.row([(run + 1).to_string(), second.to_string(), rate.to_string()]);
        }
    }
    let chart = Chart::new(
        "Relocations between two UPFs",
        Axis::linear("seconds since the first order"),
        Axis::linear("completed relocations per second").within(0.0, RATE * 1.3),
    );
    let chart = runs
        .iter()
        .enumerate()
        .fold(chart, |chart, (run, (_, seen))| chart.line(format!("run {}", run + 1), seen.rates.clone()));
    let Scale { ues, registrations, seconds } = scale;
    Ok(Findings {
        load: OfferedLoad::new("relocations ordered beside echoes of all UEs", [RATE], "1/s"),
        configurations: vec![Configuration {
            name: "two UPFs".into(),
            about: "The UPF of the core's process, and vireo upf; both have host routes for their UEs.".into(),
            toml: format!("{}\n[upf]\n{}{}", core_options(ues).slices, core_options(ues).upf, core_options(ues).tables),
        }],
        figures,
        plots: vec![("relocations", chart.svg()?)],
        tables: vec![("relocations", table)],
        notes: vec![
            format!(
                "{ues} UEs, registered at {registrations}/s, send {ECHOES} echoes in a row and then none for {} ms. For \
                 {seconds} s `POST /sessions/move` orders relocations of all UEs in turn. Each makes four PFCP exchanges \
                 with two UPFs and one NGAP procedure. The core counts it when the source has deleted the session.",
                PAUSE.as_millis()
            ),
            "An echo is lost if it has no answer within one second. Bytes are those of the usage reports of both UPFs, \
             against what the UEs have sent and received."
                .into(),
            "The time of a relocation includes the 200 ms for which the source keeps the session for packets in transit. \
             Its CPU time is that of all processes of the core and of the second UPF, without that of the same load \
             without relocations. It includes the orders by HTTP."
                .into(),
        ],
        broken: broken(runs),
    })
}

/// Returns what is wrong on any machine.
fn broken(runs: &[Pair]) -> Option<String> {
    let each = || runs.iter().flat_map(|(without, with)| [without, with]);
    if let Some(complaint) = each().find_map(|seen| seen.complaints.first()) {
        return Some(complaint.clone());
    }
    let wrong = each().find(|seen| seen.misdelivered + seen.miscounted + seen.lost > 0)?;
    let Relocations { lost, misdelivered, miscounted, .. } = wrong;
    Some(format!("{lost} packets were lost, {misdelivered} misdelivered, and {miscounted} bytes miscounted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(lost: u64, miscounted: u64) -> Pair {
        let without = Relocations { echoes: 100, cpu_s: 2.0, ..Relocations::default() };
        let with = Relocations { rate: 1100.0, completed: 10_000, cpu_s: 4.5, lost, miscounted, ..without.clone() };
        let with = Relocations { rates: vec![(1.0, 1000.0), (1.25, 1200.0)], ..with };
        (without, with)
    }

    #[test]
    fn lost_packet_or_count_breaks_experiment() {
        let scale = Scale { ues: 100, registrations: 50, seconds: 2 };
        let of = |runs: &[Pair]| findings(runs, scale).unwrap();
        let good = of(&[pair(0, 0), pair(0, 0)]);
        assert!(good.broken.is_none() && good.figures.iter().all(|figure| figure.met != Some(false)));
        let cpu = good.figures.iter().find(|figure| figure.name == "CPU time of a relocation").unwrap();
        assert_eq!(cpu.ours.median, 250.0);
        assert!(of(&[pair(0, 0), pair(1, 0)]).broken.unwrap().contains("1 packets were lost"));
        assert!(of(&[pair(0, 128)]).broken.unwrap().contains("128 bytes miscounted"));
    }

    #[test]
    fn ues_stay_until_relocations_end() {
        let scale = Scale { ues: 2_000, registrations: 400, seconds: 15 };
        assert!(PAUSE * scale.rounds() > Duration::from_secs(2_000 / 400 + 15 + 5));
    }

    #[test]
    fn relocation_time_is_read_from_metrics() {
        let text = "vireo_procedure_duration_seconds_sum{procedure=\"relocation\"} 0.5\n\
                    vireo_procedure_duration_seconds_count{procedure=\"relocation\"} 2\n";
        assert_eq!((mean_time(text), mean_time("")), (0.25, 0.0));
    }
}
