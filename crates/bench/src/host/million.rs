//! Measurement of one host with a million registered UEs, each with a session.

use super::sctp::{Bench, PerUe};
use serde::Serialize;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_lab::emulator::{self, EmulatorOptions, Latency, Load};
use vireo_lab::options::CoreOptions;
use vireo_lab::workers::holdings;

const UES: u32 = 1_000_000;
/// Capacity for UEs and addresses.
const ROOM: u32 = 1 << 20;
const POOL: &str = "10.32.0.0/11";
/// Service requests per second after all UEs are registered, for [`LASTS`].
const RATE: u32 = 1000;
const LASTS: &str = "20s";
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Results of the measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Million {
    pub(super) ues: u32,
    /// Number of registered UEs as reported by the core.
    pub(super) registered: usize,
    /// Time from the first UE to the last, in seconds.
    pub(super) seconds: f64,
    pub(super) registrations_per_s: f64,
    /// CPU time of the core per UE, in microseconds, including the release to idle.
    pub(super) cpu_us_per_ue: f64,
    /// Memory of the core per UE, in bytes, less the memory of the core without UEs.
    pub(super) octets_per_ue: f64,
    /// The part of `octets_per_ue` in the shared region.
    pub(super) shared_octets_per_ue: f64,
    /// Private memory of the core's own process per UE, including UPF and subscriber service.
    pub(super) parent_octets_per_ue: f64,
    /// Latency of service requests by random UEs, at 1,000 per second.
    pub(super) service_request_us: Latency,
}

/// Registers all UEs, then runs service requests of random UEs.
pub(super) fn run(bench: &Bench) -> Result<Million, Failure> {
    eprintln!("bench: a million subscribers are provisioned");
    let options = CoreOptions {
        subscribers: UES.into(),
        ipv4_pool: POOL,
        tables: format!("[state]\nues = {ROOM}\n"),
        upf: format!("max-sessions = {ROOM}\n"),
        ..CoreOptions::default()
    };
    let mut core = bench.core(&options)?;
    let before = holdings(&core.process)?;
    let cpu = core.process.cpu()?;
    let emulator = bench.with_rat(EmulatorOptions {
        gnbs: 2,
        ues: UES,
        load: Load::Rate(RATE),
        limit: Duration::from_secs(3600),
        more: ["--load", "service-request", "--duration", LASTS, "--retry", "never"].map(str::to_owned).to_vec(),
        ..EmulatorOptions::default()
    });
    let began = Instant::now();
    let mut looked = began;
    let mut reached = None;
    let emulated = emulator::run_with(&bench.lab, &mut core, &emulator, &bench.interrupt, &mut |core| {
        if reached.is_some() || looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        looked = Instant::now();
        let registered = core.registered()?;
        eprintln!("bench: {registered} UEs are registered after {:.0} s", began.elapsed().as_secs_f64());
        if registered >= UES as usize {
            reached = Some((registered, holdings(&core.process)?, core.process.cpu()?));
        }
        Ok(())
    })?;
    core.stop()?;
    let result = emulated.result;
    let Some((registered, held, used)) = reached else {
        return Err(Failure(format!("not all of a million UEs were registered: {}", result.complaints().join(", "))));
    };
    let per_ue = PerUe::between(&before, &held, UES.into());
    Ok(Million {
        ues: UES,
        registered,
        seconds: result.seconds,
        registrations_per_s: result.ues_per_second(),
        cpu_us_per_ue: used.saturating_sub(cpu).as_secs_f64() * 1e6 / f64::from(UES),
        octets_per_ue: per_ue.all(),
        shared_octets_per_ue: per_ue.shared,
        parent_octets_per_ue: per_ue.parent,
        service_request_us: result.latency("service_request"),
    })
}
