//! What the experiments of the PEPC paper share: a data side that decides on packets in memory on one processor, and a
//! control side that changes the users' state on another, or on the same.

mod events;
mod idle;
pub(super) mod iot;
pub(super) mod locking;
mod processes;
pub(super) mod signalling;
mod split;
pub(super) mod two_level;

use super::Plane;
use crate::bench::upf::compute::{BATCH, Compute};
use crate::cli::Failure;
use crate::lab::process::on_processors;
use events::Control;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_datapath::Locking;
use vireo_simulator::results::Measured;
use vireo_traffic::frame_loop::Direction;

/// Users, as the paper's.
const USERS: u32 = 250_000;
const QUICK_USERS: u32 = 10_000;
/// Users that attach and leave again, at most so many at a time.
const VISITORS: u32 = 4_096;
/// Events by which packets may be ahead of signalling where both come in a ratio.
const AHEAD: u64 = 256;
/// How long events may take that packets wait for.
const LONGEST: Duration = Duration::from_secs(20);

pub(super) const PAPER: &str = "A High Performance Packet Core for Next Generation Cellular Networks (PEPC)";

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Measured::of(values.collect()).map_or(f64::NAN, |all| all.median)
}

/// How many users an experiment has.
pub(super) fn users(plane: &Plane) -> u32 {
    if plane.quick { QUICK_USERS } else { USERS }
}

/// How many signalling events come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// So many a second, 0 = none.
    Rate(f64),
    /// One for so many packets.
    Ratio(f64),
    /// One after the other.
    Most,
}

/// Whoever carries out signalling events.
pub(super) trait Signalling {
    /// Goes on with events: with what is under way, and with new ones, of which `due` may be under way in all.
    fn work(&mut self, due: u64) -> Result<Done, Failure>;
}

/// Whoever decides on packets. What signalling its processor has is [`Signalling`]'s.
pub(super) trait Packets: Signalling {
    /// Decides on a batch; gives how long that took.
    fn batch(&mut self, direction: Direction) -> Result<Duration, Failure>;
}

/// What somebody has done when it looked for signalling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Events that have ended.
    pub(super) ended: u64,
    /// Whether there was anything at all.
    pub(super) busy: bool,
}

/// Whoever has no part in signalling.
pub(super) struct NoSignalling;

impl Signalling for NoSignalling {
    fn work(&mut self, _: u64) -> Result<Done, Failure> {
        Ok(Done::default())
    }
}

impl Signalling for Compute {
    fn work(&mut self, _: u64) -> Result<Done, Failure> {
        Ok(Done::default())
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
    /// One whose control side changes the state for so many events in one go.
    fn new(plane: &Plane, locking: Locking, together: u64) -> Result<Self, Failure> {
        let (data, users) = Compute::with(&plane.network, self::users(plane), VISITORS, locking)?;
        let control = Control::new(data.tables().clone(), users, together);
        Ok(Slice { data, control })
    }
}

impl Signalling for Slice {
    fn work(&mut self, due: u64) -> Result<Done, Failure> {
        self.control.work(due)
    }
}

/// Both sides on one processor, by turns.
impl Packets for Slice {
    fn batch(&mut self, direction: Direction) -> Result<Duration, Failure> {
        self.data.batch(direction)
    }
}

/// What one side has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Worked {
    /// Packets or events.
    pub(super) count: u64,
    /// Time in them, what was waited for included.
    pub(super) spent: Duration,
    /// Time in all.
    pub(super) passed: Duration,
}

impl Worked {
    /// So many a second of the time that it took.
    pub(super) fn rate(&self) -> f64 {
        self.count as f64 / self.spent.as_secs_f64()
    }

    /// So many a second.
    pub(super) fn achieved(&self) -> f64 {
        self.count as f64 / self.passed.as_secs_f64()
    }

    /// Nanoseconds of each.
    pub(super) fn nanoseconds(&self) -> f64 {
        self.spent.as_nanos() as f64 / (self.count.max(1)) as f64
    }
}

/// What both sides have done at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sides {
    pub(super) data: Worked,
    pub(super) control: Worked,
}

impl Sides {
    /// Packets a second of the processor that has more to do, so that both kinds of work are done: what a core reaches that
    /// is given packets and events in the ratio of these.
    pub(super) fn together(&self) -> f64 {
        self.data.count as f64 / self.data.spent.max(self.control.spent).as_secs_f64()
    }
}

/// The processors of the data side and of the control side; the same where there is one.
pub(super) fn processors(plane: &Plane) -> (usize, usize) {
    let (data, others) = plane.processors();
    (data, others.first().copied().unwrap_or(data))
}

/// Has both sides work for about so long. The data side decides on batches of both directions in turn.
pub(super) fn side_by_side(
    data: &mut impl Packets,
    control: &mut (impl Signalling + Send),
    load: Load,
    span: Duration,
    places: (usize, usize),
) -> Result<Sides, Failure> {
    let between = SharedCounters { load, alone: places.0 == places.1, ..SharedCounters::default() };
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| on_processors(&[places.1], || between.signal(control)));
        let packets = on_processors(&[places.0], || {
            // the first tenth finds caches cold
            between.forward(data, span / 10)?;
            between.forward(data, span)
        });
        between.stop.store(true, Relaxed);
        beside.join().map_err(|_| Failure("the control side ended by itself".into()))???;
        packets?
    })
}

/// What both sides know of each other while they are measured.
struct SharedCounters {
    load: Load,
    /// They share the only processor.
    alone: bool,
    stop: AtomicBool,
    /// Packets so far.
    packets: AtomicU64,
    /// Events that have ended.
    ended: AtomicU64,
    /// Nanoseconds of the control side's work.
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
    /// Events that may be under way.
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

    /// Works on events; gives how long that took, if there was anything to do.
    fn work(&self, who: &mut impl Signalling) -> Result<Option<Duration>, Failure> {
        let (due, now) = (self.due(), Instant::now());
        let done = who.work(due)?;
        self.ended.fetch_add(done.ended, Relaxed);
        Ok(done.busy.then(|| now.elapsed()))
    }

    /// The control side, until it is told to stop.
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

    /// The data side for about so long.
    fn forward(&self, data: &mut impl Packets, span: Duration) -> Result<Sides, Failure> {
        let (began, mut worked) = (Instant::now(), Worked::default());
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
        let control = Worked { count: self.ended.load(Relaxed) - ended, spent, passed: worked.passed };
        Ok(Sides { data: worked, control })
    }
}
