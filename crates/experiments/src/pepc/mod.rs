//! Common part of the PEPC experiments: data side and control side.
//!
//! The data side decides on packets in memory on one processor. The control side changes the users'
//! state on another processor, or on the same.

mod events;
mod idle;
pub(super) mod iot;
pub(super) mod locking;
mod processes;
mod ran_signalling;
pub(super) mod signalling;
mod split;
pub(super) mod two_level;

use crate::experiment::Plane;
use events::Control;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_bench::results::Measured;
use vireo_bench::upf::compute::{BATCH, Compute};
use vireo_config::Failure;
use vireo_datapath::Locking;
use vireo_lab::process::on_processors;
use vireo_traffic::frame_loop::Direction;

/// Number of users, as in the paper.
const USERS: u32 = 250_000;
const QUICK_USERS: u32 = 10_000;
/// Maximum number of users that attach and later detach.
const VISITORS: u32 = 4_096;
/// With a ratio load, the data side waits if more events than this are outstanding.
const AHEAD: u64 = 256;
/// Timeout of the data side's wait for events.
const LONGEST: Duration = Duration::from_secs(20);

pub(super) const PAPER: &str = "A High Performance Packet Core for Next Generation Cellular Networks (PEPC)";

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Measured::from_runs(values.collect()).map_or(f64::NAN, |all| all.median)
}

/// Returns the number of users of an experiment.
pub(super) fn users(plane: &Plane) -> u32 {
    if plane.quick { QUICK_USERS } else { USERS }
}

/// Amount of signalling events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// Events per second; 0 = none.
    Rate(f64),
    /// One event per this number of packets.
    Ratio(f64),
    /// Continuous events.
    Most,
}

/// A side that carries out signalling events.
pub(super) trait Signalling {
    /// Continues events in progress and starts new ones, up to `due` in progress in all.
    fn work(&mut self, due: u64) -> Result<WorkResult, Failure>;
}

/// A side that decides on packets. Its [`Signalling`] is the signalling that runs on the same
/// processor.
pub(super) trait Packets: Signalling {
    /// Decides on a batch. Returns the time taken.
    fn batch(&mut self, direction: Direction) -> Result<Duration, Failure>;
}

/// Result of one call to [`Signalling::work`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkResult {
    /// Number of completed events.
    pub(super) ended: u64,
    /// True if there was any work.
    pub(super) busy: bool,
}

/// Null object without signalling.
pub(super) struct NoSignalling;

impl Signalling for NoSignalling {
    fn work(&mut self, _: u64) -> Result<WorkResult, Failure> {
        Ok(WorkResult::default())
    }
}

impl Signalling for Compute {
    fn work(&mut self, _: u64) -> Result<WorkResult, Failure> {
        Ok(WorkResult::default())
    }
}

impl Packets for Compute {
    fn batch(&mut self, direction: Direction) -> Result<Duration, Failure> {
        Compute::batch(self, direction)
    }
}

/// A slice: users, and both sides that work on their state.
struct Slice {
    data: Compute,
    control: Control,
}

impl Slice {
    /// Returns a slice whose control side applies up to `together` events per change.
    fn new(plane: &Plane, locking: Locking, together: u64) -> Result<Self, Failure> {
        let (data, users) = Compute::with(&plane.network, self::users(plane), VISITORS, locking)?;
        let control = Control::new(data.tables().clone(), users, together);
        Ok(Slice { data, control })
    }
}

impl Signalling for Slice {
    fn work(&mut self, due: u64) -> Result<WorkResult, Failure> {
        self.control.work(due)
    }
}

/// Runs both sides alternately on one processor.
impl Packets for Slice {
    fn batch(&mut self, direction: Direction) -> Result<Duration, Failure> {
        self.data.batch(direction)
    }
}

/// Work of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SideWork {
    /// Number of packets or events.
    pub(super) count: u64,
    /// Time of the work, including waiting for locks.
    pub(super) spent: Duration,
    /// Elapsed time of the measurement.
    pub(super) passed: Duration,
}

impl SideWork {
    /// Returns the count per second of working time.
    pub(super) fn rate(&self) -> f64 {
        self.count as f64 / self.spent.as_secs_f64()
    }

    /// Returns the count per second of elapsed time.
    pub(super) fn achieved(&self) -> f64 {
        self.count as f64 / self.passed.as_secs_f64()
    }

    /// Returns the nanoseconds per packet or event.
    pub(super) fn nanoseconds(&self) -> f64 {
        self.spent.as_nanos() as f64 / (self.count.max(1)) as f64
    }
}

/// Work of both sides in the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BothSides {
    pub(super) data: SideWork,
    pub(super) control: SideWork,
}

impl BothSides {
    /// Returns the packet rate of a core that receives packets and events in the measured ratio.
    /// The busier of the two processors limits it.
    pub(super) fn together(&self) -> f64 {
        self.data.count as f64 / self.data.spent.max(self.control.spent).as_secs_f64()
    }
}

/// Returns the processors of the data side and of the control side. They are the same on a machine
/// with one.
pub(super) fn processors(plane: &Plane) -> (usize, usize) {
    let (data, others) = plane.processors();
    (data, others.first().copied().unwrap_or(data))
}

/// Runs both sides for about `span`. The data side decides on batches of both directions
/// alternately.
pub(super) fn side_by_side(
    data: &mut impl Packets,
    control: &mut (impl Signalling + Send),
    load: Load,
    span: Duration,
    places: (usize, usize),
) -> Result<BothSides, Failure> {
    let between = SharedCounters { load, alone: places.0 == places.1, ..SharedCounters::default() };
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| on_processors(&[places.1], || between.signal(control)));
        let packets = on_processors(&[places.0], || {
            // The first tenth has cold caches and does not count.
            between.forward(data, span / 10)?;
            between.forward(data, span)
        });
        between.stop.store(true, Relaxed);
        beside.join().map_err(|_| Failure("the control side ended by itself".into()))???;
        packets?
    })
}

/// Counters that both sides share during a measurement.
struct SharedCounters {
    load: Load,
    /// True if both sides share the only processor.
    alone: bool,
    stop: AtomicBool,
    /// Number of packets so far.
    packets: AtomicU64,
    /// Number of completed events.
    ended: AtomicU64,
    /// Working time of the control side in nanoseconds.
    spent: AtomicU64,
    began: Instant,
}

impl Default for SharedCounters {
    fn default() -> Self {
        SharedCounters {
            load: Load::Most,
            alone: false,
            stop: AtomicBool::new(false),
            packets: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            began: Instant::now(),
        }
    }
}

impl SharedCounters {
    /// Returns the number of events that may be in progress.
    fn due(&self) -> u64 {
        let due = match self.load {
            Load::Most => u64::MAX,
            Load::Rate(rate) => (self.began.elapsed().as_secs_f64() * rate) as u64,
            Load::Ratio(packets) => (self.packets.load(Relaxed) as f64 / packets) as u64,
        };
        due.saturating_sub(self.ended.load(Relaxed))
    }

    fn pause(&self) {
        if self.alone {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Works on events. Returns the time taken, if there was anything to do.
    fn work(&self, who: &mut impl Signalling) -> Result<Option<Duration>, Failure> {
        let (due, now) = (self.due(), Instant::now());
        let done = who.work(due)?;
        self.ended.fetch_add(done.ended, Relaxed);
        Ok(done.busy.then(|| now.elapsed()))
    }

    /// Runs the control side until `stop` is set.
    fn signal(&self, control: &mut impl Signalling) -> Result<(), Failure> {
        while !self.stop.load(Relaxed) {
            match self.work(control)? {
                Some(spent) => self.spent.fetch_add(spent.as_nanos() as u64, Relaxed),
                None => {
                    self.pause();
                    continue;
                }
            };
        }
        Ok(())
    }

    /// Runs the data side for about `span`.
    fn forward(&self, data: &mut impl Packets, span: Duration) -> Result<BothSides, Failure> {
        let (began, mut worked) = (Instant::now(), SideWork::default());
        let (ended, spent) = (self.ended.load(Relaxed), self.spent.load(Relaxed));
        while began.elapsed() < span {
            for _ in 0..32 {
                for direction in [Direction::Uplink, Direction::Downlink] {
                    worked.spent += data.batch(direction)?;
                    worked.count += BATCH as u64;
                    self.packets.fetch_add(BATCH as u64, Relaxed);
                    worked.spent += self.work(data)?.unwrap_or_default();
                }
            }
            while matches!(self.load, Load::Ratio(_)) && self.due() > AHEAD {
                worked.spent += self.work(data)?.unwrap_or_default();
                self.pause();
                if began.elapsed() > span + LONGEST {
                    return Err(Failure(
                        "the events of signalling do not end: a message between the parts is lost".into(),
                    ));
                }
            }
        }
        worked.passed = began.elapsed();
        let spent = Duration::from_nanos(self.spent.load(Relaxed) - spent);
        let control = SideWork { count: self.ended.load(Relaxed) - ended, spent, passed: worked.passed };
        Ok(BothSides { data: worked, control })
    }
}
