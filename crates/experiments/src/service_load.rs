//! Service requests in a closed loop: rate and latency.

use super::context::{ExperimentContext, Findings, Variant};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, Chart};
use std::time::Duration;
use vireo_bench::results::{Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::emulator::{EmulatorOptions, EmulatorRun, Load};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "service-load",
    about: "How many service requests can the core serve, and how long does each take as the load grows?",
    paper: "",
    informative: Some("It finds out what one configuration does on this machine; there is nothing that it must reach."),
    run: Run::EitherRat(run),
};

/// UEs in progress at once.
const WINDOWS: [u32; 6] = [1, 4, 16, 64, 128, 256];

struct Point {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let windows: Vec<u32> = if session.quick { vec![4, 64] } else { WINDOWS.to_vec() };
    let variant = Variant {
        name: "default",
        about: "The core as it comes.",
        slices: "[slice.default]\nsnssai = { sst = 1 }\n".into(),
        tables: String::new(),
        cluster: "",
        hosts: 0,
        idle: 0,
        host_part: None,
        share: None,
    };
    let rounds = session.repeat("service requests", |_| {
        windows.iter().map(|window| measure(session, &variant, *window)).collect::<Result<Vec<Point>, _>>()
    })?;
    let mut table = Table::new(&["run", "window", "service_requests_per_s", "p50_ms", "p99_ms", "core_cpu_us"]);
    for (run, points) in rounds.iter().enumerate() {
        for (window, p) in windows.iter().zip(points) {
            table.row([(run + 1) as f64, f64::from(*window), p.rate, p.p50_ms, p.p99_ms, p.cpu_us]);
        }
    }
    let median = |place: usize, value: fn(&Point) -> f64| {
        Measured::each(&rounds, |points| value(&points[place])).map_or(f64::NAN, |m| m.median)
    };
    let line = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        (0..windows.len()).map(|place| (median(place, |p| p.rate), median(place, value))).collect()
    };
    let chart = Chart::new(
        "Service requests in a closed loop",
        Axis::linear("service requests per second"),
        Axis::log("latency (ms)"),
    )
    .line("p50", line(|p| p.p50_ms))
    .line("p99", line(|p| p.p99_ms));
    let best = |points: &Vec<Point>| points.iter().map(|p| p.rate).fold(0.0, f64::max);
    let cpu = |points: &Vec<Point>| points.last().map_or(f64::NAN, |p| p.cpu_us);
    let measured = |value: Option<Measured>| value.ok_or_else(|| Failure("nothing was measured".into()));
    Ok(Findings {
        load: OfferedLoad::new(
            "service requests in a closed loop, UEs in progress at once",
            windows.iter().copied().map(f64::from),
            "UEs",
        ),
        configurations: vec![variant.configuration()],
        figures: vec![
            Figure::new("service requests at saturation", "1/s", measured(Measured::each(&rounds, best))?),
            Figure::new("core CPU per service request and release", "us", measured(Measured::each(&rounds, cpu))?),
        ],
        plots: vec![("latency", chart.svg()?)],
        tables: vec![("points", table)],
        notes: vec![
            "Each service request is followed by the release of the UE context, whose cost is in the CPU.".into(),
        ],
        broken: None,
    })
}

/// Measures service requests with `window` UEs in progress.
fn measure(session: &ExperimentContext, variant: &Variant, window: u32) -> Result<Point, Failure> {
    let ues = window.max(16);
    let requests = if session.quick { 1_000 } else { 20_000 };
    let mut core = session.core(variant, ues, &[])?;
    let rounds = requests / ues;
    let options = EmulatorOptions {
        ues,
        load: Load::Window(window),
        scenario: "idle-service".into(),
        idle: Duration::from_millis(1),
        limit: Duration::from_secs(120),
        more: vec!["--rounds".into(), rounds.to_string()],
        ..EmulatorOptions::default()
    };
    let EmulatorRun { result, core_cpu, .. } = session.emulate(&mut core, &options)?;
    core.stop()?;
    if result.succeeded != u64::from(ues) {
        return Err(Failure(format!(
            "{} of {ues} UEs succeeded: {}",
            result.succeeded,
            result.complaints().join(", ")
        )));
    }
    let latency = result.latency("service_request");
    Ok(Point {
        rate: result.service_requests as f64 / result.seconds,
        p50_ms: latency.p50 as f64 / 1e3,
        p99_ms: latency.p99 as f64 / 1e3,
        cpu_us: core_cpu.as_secs_f64() * 1e6 / result.service_requests.max(1) as f64,
    })
}
