//! Test bench: a supervisor, its events, and the behaviours of test workers.

use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use vireo_ops::supervisor::{self, ExitCause, Program, Supervisor, SupervisorConfig, WorkerEvent, join_region};
use vireo_store::region::{Region, RegionConfig, Worker};

const PART: &str = "VIREO_TEST_PART";
/// Longer than any wait on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// Behaviour of a test worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// Reports progress, and sleeps in between.
    Works,
    /// Reports progress after each 0.5 ms of work, without a pause.
    WorksHard,
    /// Runs an endless loop without progress.
    Spins,
    /// Sleeps, and ignores pending work.
    Sleeps,
    /// Exits with status 3 after it has joined, without releasing its resources.
    Exits,
    /// Leaves the region and exits.
    Leaves,
    /// Never joins the region.
    Absent,
    /// Acts as host of two workers, and prints their process IDs.
    Host,
}

const PARTS: [Part; 8] =
    [Part::Works, Part::WorksHard, Part::Spins, Part::Sleeps, Part::Exits, Part::Leaves, Part::Absent, Part::Host];

/// Serialises tests that measure time.
pub(crate) fn exclusive_machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arguments that start this binary as a worker or host.
pub(crate) const ARGS: [&str; 5] = ["--exact", "lab::part", "--ignored", "--test-threads=1", "--nocapture"];

/// Not a test: the entry point of this binary as a worker or host.
#[test]
#[ignore = "a part that other tests start"]
fn part() {
    let name = std::env::var(PART).expect("started by a test");
    let part = PARTS.into_iter().find(|p| format!("{p:?}") == name).expect("a part");
    match part {
        Part::Absent => std::thread::sleep(LONG),
        Part::Host => host(),
        // The test observes the exit.
        _ => play(part, join_region().unwrap_or_else(|_| std::process::exit(2))),
    }
}

fn play(part: Part, worker: Worker) {
    let begun = Instant::now();
    let mut beats = 0;
    while begun.elapsed() < LONG {
        match part {
            Part::Works => std::thread::sleep(Duration::from_millis(1)),
            Part::WorksHard => spin(Duration::from_micros(500)),
            Part::Spins => spin(LONG),
            Part::Sleeps => std::thread::sleep(LONG),
            Part::Exits => std::process::exit(3),
            Part::Leaves => return,
            Part::Absent | Part::Host => unreachable!("it has not joined"),
        }
        beats += 1;
        worker.beat(beats);
    }
}

fn spin(span: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < span {
        std::hint::spin_loop();
    }
}

fn host() {
    let lab = Lab::start(Part::Works, |_| {});
    let (one, two) = (lab.launch(1), lab.launch(2));
    println!("workers {one} {two}");
    std::thread::sleep(LONG);
}

/// Returns the environment variable that selects a behaviour.
pub(crate) fn env(part: Part) -> (&'static str, String) {
    (PART, format!("{part:?}"))
}

/// A region and its supervisor.
pub(crate) struct Lab {
    pub(crate) region: Region,
    pub(crate) supervisor: Supervisor,
    notices: mpsc::Receiver<WorkerEvent>,
    busy: Arc<[AtomicBool; 8]>,
}

impl Lab {
    pub(crate) fn start(part: Part, change: impl FnOnce(&mut SupervisorConfig)) -> Self {
        let region = Region::create(RegionConfig::new(64, 8, 32 << 20)).unwrap();
        let mut program = Program::this(ARGS);
        let (name, value) = env(part);
        program.env.push((name.into(), value.into()));
        let mut config = SupervisorConfig::new(program);
        change(&mut config);
        let busy: Arc<[AtomicBool; 8]> = Arc::default();
        let (notify, notices) = mpsc::sync_channel(64);
        let waiting = {
            let busy = busy.clone();
            move |worker: u8| busy[usize::from(worker)].load(Ordering::Relaxed)
        };
        // The receiver is gone when a test is over.
        let notify = move |notice| drop(notify.send(notice));
        let supervisor = supervisor::start(region.clone(), config, waiting, notify).unwrap();
        Lab { region, supervisor, notices, busy }
    }

    /// Sets whether a worker has work.
    pub(crate) fn busy(&self, worker: u8, busy: bool) {
        self.busy[usize::from(worker)].store(busy, Ordering::Relaxed);
    }

    pub(crate) fn notice(&self) -> WorkerEvent {
        self.notices.recv_timeout(LONG).expect("an event")
    }

    /// Returns true if no event arrives within `span`.
    pub(crate) fn is_quiet_for(&self, span: Duration) -> bool {
        self.notices.recv_timeout(span).map_err(|_| ()).inspect(|n| eprintln!("event {n:?}")).is_err()
    }

    /// Starts a worker, waits until it has joined, and returns its process ID.
    pub(crate) fn launch(&self, number: u8) -> u32 {
        self.supervisor.launch(number);
        match self.notice() {
            WorkerEvent::Up { worker, pid, .. } if worker == number => pid,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the exit of a worker, and frees its number. Returns the cause of the exit, and the
    /// time until it was detected. The worker's process must be reaped.
    pub(crate) fn down(&self, number: u8, process: u32) -> (ExitCause, Duration) {
        match self.notice() {
            WorkerEvent::Down { worker, pid, dead, cause, noticed } => {
                assert_eq!((worker, pid), (number, process));
                assert!(!exists(pid), "not reaped before its event");
                if let Some(dead) = dead {
                    assert_eq!(dead.number(), number);
                    self.region.reclaim(dead);
                }
                assert_eq!(self.region.pid_of(number), None);
                (cause, noticed)
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn exists(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap()
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Prints and returns the median and the maximum.
pub(crate) fn summary(what: &str, mut spans: Vec<Duration>) -> (Duration, Duration) {
    spans.sort();
    let (median, most) = (spans[spans.len() / 2], spans[spans.len() - 1]);
    println!("{what}: p50 {median:?}, max {most:?} of {}", spans.len());
    (median, most)
}
