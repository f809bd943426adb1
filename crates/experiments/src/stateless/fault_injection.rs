//! UEs lost by killed network functions, by state mode.
//!
//! The experiment kills functions at random times (SIGKILL) while UEs register, establish sessions,
//! exchange packets, become idle, return and deregister. A UE that fails in one of these steps is
//! lost.

use super::{
    DELETE_CREATE, IMPLIED, LEAN, Mode, NON_BLOCKING, PIGGYBACK, PROCEDURAL, SHARED, SHARED_AMF_SMF, SHM, STATEFUL,
    Server, TRANSACTIONAL,
};
use crate::context::{ExperimentContext, Findings};
use crate::experiment::{Experiment, Run};
use crate::plot::{Axis, BarSeries, Bars};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::time::{Duration, Instant};
use vireo_bench::results::{Bound, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_lab::core::Core;
use vireo_lab::emulator::{self, EmulatorOptions, Load, PATIENT};
use vireo_lab::files::create;
use vireo_lab::options::{CoreOptions, UNSHED};
use vireo_lab::redis::Redis;
use vireo_lab::workers::Worker;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "stateless-kills",
    about: "Which way of keeping state loses UEs when AMF, SMF, UPF, or a worker of the AMF are killed?",
    paper: "",
    informative: None,
    run: Run::Core(run),
};

/// Number of UEs, and UEs that start per second.
const UES: u32 = 100;
const RATE: u32 = 50;
/// Approximate interval between kills.
const EVERY: Duration = Duration::from_millis(600);
/// Maximum number of kills. Afterwards the UEs complete their procedures.
const MOST: u32 = 4;
/// Time for which UEs stay idle.
const IDLE: Duration = Duration::from_millis(200);
/// Kind of the killed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KilledFunction {
    Worker,
    Smf,
    Upf,
    Amf,
}

impl KilledFunction {
    const ALL: [KilledFunction; 4] =
        [KilledFunction::Worker, KilledFunction::Smf, KilledFunction::Upf, KilledFunction::Amf];

    fn name(self) -> &'static str {
        match self {
            KilledFunction::Worker => "workers of the AMF",
            KilledFunction::Smf => "the SMF",
            KilledFunction::Upf => "the UPF",
            KilledFunction::Amf => "one of two AMFs",
        }
    }

    /// Returns the number of AMFs behind a balancer; 0 = one AMF that terminates N2.
    fn amfs(self) -> u8 {
        if self == KilledFunction::Amf { 2 } else { 0 }
    }

    /// Returns the maximum number of kills. An AMF is not restarted.
    fn most(self) -> u32 {
        if self == KilledFunction::Amf { 1 } else { MOST }
    }

    /// Kills a process of this kind. Returns false if there is none at the moment.
    fn kill(self, session: &ExperimentContext, core: &mut Core, rng: &mut StdRng) -> Result<bool, Failure> {
        match self {
            KilledFunction::Worker => match Worker::nf_workers(&core.process)?.choose(rng) {
                Some(worker) => Ok(worker.kill()?),
                None => Ok(false),
            },
            KilledFunction::Smf => core.kill_sba_process(&session.lab, "smf").map(|()| true),
            KilledFunction::Upf => core.kill_sba_process(&session.lab, "upf").map(|()| true),
            KilledFunction::Amf => core.kill_amf().map(|()| true),
        }
    }
}

/// Losses that a state mode allows.
struct ExpectedLoss {
    mode: &'static Mode,
    /// Kinds whose death loses no UE.
    keeps: &'static [KilledFunction],
    /// Kinds whose death may lose UEs.
    loses: &'static [KilledFunction],
}

const KEEPS_ALL: &[KilledFunction] = &KilledFunction::ALL;

/// The tested modes. A stateful one shows that lost UEs are detected.
static PROMISES: &[ExpectedLoss] = &[
    ExpectedLoss {
        mode: &STATEFUL,
        keeps: &[],
        loses: &[KilledFunction::Worker, KilledFunction::Smf, KilledFunction::Upf],
    },
    ExpectedLoss { mode: &TRANSACTIONAL, keeps: KEEPS_ALL, loses: &[] },
    ExpectedLoss {
        mode: &PROCEDURAL,
        keeps: &[KilledFunction::Upf],
        loses: &[KilledFunction::Worker, KilledFunction::Smf, KilledFunction::Amf],
    },
    ExpectedLoss { mode: &SHARED, keeps: KEEPS_ALL, loses: &[] },
    ExpectedLoss { mode: &SHARED_AMF_SMF, keeps: KEEPS_ALL, loses: &[] },
    ExpectedLoss {
        mode: &NON_BLOCKING,
        keeps: &[KilledFunction::Worker, KilledFunction::Smf],
        loses: &[KilledFunction::Upf, KilledFunction::Amf],
    },
    ExpectedLoss {
        mode: &DELETE_CREATE,
        keeps: &[KilledFunction::Worker, KilledFunction::Amf],
        loses: &[KilledFunction::Smf, KilledFunction::Upf],
    },
    ExpectedLoss { mode: &PIGGYBACK, keeps: KEEPS_ALL, loses: &[] },
    ExpectedLoss { mode: &LEAN, keeps: KEEPS_ALL, loses: &[] },
    ExpectedLoss { mode: &IMPLIED, keeps: KEEPS_ALL, loses: &[] },
    ExpectedLoss { mode: &SHM, keeps: &[KilledFunction::Worker, KilledFunction::Smf, KilledFunction::Upf], loses: &[] },
];

/// Fate of the UEs of a mode under kills.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    lost: u64,
    kills: u32,
    /// Time from the first UE's start to the last one's end.
    seconds: f64,
}

/// UEs that a mode has lost in each run when processes of one kind were killed.
struct LostUes {
    mode: &'static str,
    victim: KilledFunction,
    ues: Measured,
}

fn run(session: &ExperimentContext) -> Result<Findings, Failure> {
    let promises = if session.quick { &PROMISES[..2] } else { PROMISES };
    let each = |promise: &'static ExpectedLoss| {
        let keeps = promise.keeps.iter().map(move |victim| (promise.mode, *victim, true));
        keeps.chain(promise.loses.iter().map(move |victim| (promise.mode, *victim, false)))
    };
    let cases: Vec<(&'static Mode, KilledFunction, bool)> = promises.iter().flat_map(each).collect();
    let rounds = session.repeat("every mode, every function", |run| {
        let one = |(place, (mode, victim, _)): (usize, &(&'static Mode, KilledFunction, bool))| {
            session.interrupt.check()?;
            let seed = session.seed.wrapping_mul(1_000_003) + u64::from(run) * 1000 + place as u64;
            outcome(session, mode, *victim, seed)
        };
        cases.iter().enumerate().map(one).collect::<Result<Vec<_>, Failure>>()
    })?;
    let (mut figures, mut all_lost) = (Vec::new(), Vec::new());
    let mut table = Table::new(&["run", "mode", "killed", "kills", "lost", "seconds"]);
    for (place, (mode, victim, keeps)) in cases.iter().enumerate() {
        let lost = Measured::each(&rounds, |round| round[place].lost as f64);
        let lost = lost.ok_or_else(|| Failure("nothing was measured".into()))?;
        all_lost.push(LostUes { mode: mode.name, victim: *victim, ues: lost.clone() });
        let figure = Figure::new(format!("{}, {} killed: UEs lost", mode.name, victim.name()), "", lost);
        figures.push(match (keeps, mode.name == STATEFUL.name) {
            (true, _) => figure.mark(Bound::AtMost(0.0)),
            // Losses must be detected.
            (false, true) => figure.mark(Bound::AtLeast(1.0)),
            (false, false) => figure,
        });
        for (run, round) in rounds.iter().enumerate() {
            let Outcome { lost, kills, seconds } = round[place];
            let cells = [run.to_string(), mode.name.into(), victim.name().into(), kills.to_string(), lost.to_string()];
            table.row(cells.into_iter().chain([format!("{seconds:.2}")]));
        }
    }
    let kills: u32 = rounds.iter().flatten().map(|outcome| outcome.kills).sum();
    Ok(Findings {
        load: OfferedLoad::new("UEs that start per second, 100 in all", [f64::from(RATE)], "1/s"),
        configurations: promises.iter().map(|promise| promise.mode.configuration()).collect(),
        figures,
        plots: vec![("lost", plot(&all_lost)?)],
        tables: vec![("kills", table)],
        notes: vec![
            format!(
                "{UES} UEs, {RATE} starting in a second, register, establish a session, send echoes, become idle, come back, and \
                 deregister; meanwhile somebody is killed (SIGKILL) about every {} ms, {MOST} times at the most, at moments that the seed \
                 decides: {kills} kills in all. SMF and UPF are started again at once; an AMF is one of two behind a balancer, and the \
                 other one goes on. Lost is a UE that has not done one of its steps, an echo sent for 10 s among them.",
                EVERY.as_millis()
            ),
            "Without a mark: what that mode does not promise. Nothing is said then of how much may be lost.".into(),
        ],
        broken: None,
    })
}

/// Plots the lost UEs by killed function and mode.
fn plot(lost: &[LostUes]) -> Result<String, Failure> {
    let series = lost.chunk_by(|one, next| one.mode == next.mode).map(|of_mode| BarSeries {
        name: of_mode[0].mode.into(),
        values: KilledFunction::ALL
            .map(|victim| of_mode.iter().find(|lost| lost.victim == victim).map(|lost| lost.ues.clone()))
            .to_vec(),
        paper: Vec::new(),
    });
    let bars = Bars {
        title: format!("UEs of {UES} that are lost when functions are killed"),
        groups: KilledFunction::ALL.map(|victim| victim.name().into()).to_vec(),
        y: Axis::linear("UEs lost"),
        series: series.collect(),
    };
    Ok(bars.svg()?)
}

fn outcome(session: &ExperimentContext, mode: &Mode, victim: KilledFunction, seed: u64) -> Result<Outcome, Failure> {
    let _database = (mode.database == Some(Server::Redis)).then(|| Redis::start(&session.lab, &[])).transpose()?;
    let options = CoreOptions {
        subscribers: UES.into(),
        tables: format!("{}\n{UNSHED}", mode.tables),
        sba: true,
        amfs: victim.amfs(),
        ..CoreOptions::default()
    };
    let log = match &session.log {
        Some(log) => log.try_clone()?,
        None => create(Path::new("/tmp/core.log"))?,
    };
    let mut core = Core::start(&session.lab, &options, log, &session.interrupt)?;
    core.wait_for_upfs(&session.interrupt)?;
    let mut rng = StdRng::seed_from_u64(seed);
    // A random time within the procedures, and not before the first UE starts.
    let mut moment = |earliest: Duration| earliest + EVERY.mul_f64(rng.random_range(0.0..1.0));
    let (mut due, mut kills) = (Instant::now() + moment(EVERY / 2), 0);
    let mut chosen = StdRng::seed_from_u64(seed ^ u64::MAX);
    let mut meanwhile = |core: &mut Core| {
        if kills < victim.most() && Instant::now() >= due && victim.kill(session, core, &mut chosen)? {
            kills += 1;
            due = Instant::now() + moment(EVERY / 2);
        }
        Ok(())
    };
    let options = EmulatorOptions {
        ues: UES,
        load: Load::Rate(RATE),
        scenario: "full".into(),
        idle: IDLE,
        limit: Duration::from_secs(120),
        more: PATIENT.map(str::to_owned).to_vec(),
        ..EmulatorOptions::default()
    };
    let emulated = emulator::run_with(&session.lab, &mut core, &options, &session.interrupt, &mut meanwhile)?;
    let (result, lost) = (&emulated.result, u64::from(UES).saturating_sub(emulated.result.succeeded));
    if lost > 0 {
        let (killed, reason) = (victim.name(), result.complaints().join(", "));
        eprintln!("experiment: {}, {killed} killed: {lost} UEs lost: {reason}", mode.name);
    }
    core.stop()?;
    if kills == 0 {
        return Err(Failure(format!("{}: nobody was killed", mode.name)));
    }
    Ok(Outcome { lost, kills, seconds: result.seconds })
}
