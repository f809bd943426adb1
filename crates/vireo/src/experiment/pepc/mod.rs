//! What the experiments of the PEPC paper share: a data side that decides on packets in memory on one processor, and a
//! control side that changes the users' state on another.

pub(super) mod locking;

use super::Plane;
use crate::bench::upf::compute::{self, BATCH, Compute, User};
use crate::cli::Failure;
use crate::lab::process::on_processors;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_datapath::{Locking, SharedTables};
use vireo_traffic::circuit::Direction;

/// Users, as the paper's.
const USERS: u32 = 250_000;
const QUICK_USERS: u32 = 10_000;
/// Users that attach and leave again, at most so many at a time.
const VISITORS: u32 = 4_096;

pub(super) const PAPER: &str = "A High Performance Packet Core for Next Generation Cellular Networks (PEPC)";

/// How many users an experiment has.
pub(super) fn users(plane: &Plane) -> u32 {
    if plane.quick { QUICK_USERS } else { USERS }
}

/// How many signalling events come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// So many a second, 0 = none.
    Rate(f64),
    /// One after the other.
    Most,
}

/// A slice: users, and both sides that work on their state.
pub(super) struct Slice {
    pub(super) data: Compute,
    pub(super) control: Control,
}

impl Slice {
    pub(super) fn new(plane: &Plane, locking: Locking) -> Result<Self, Failure> {
        let (data, users) = Compute::with(&plane.network, self::users(plane), VISITORS, locking)?;
        let control = Control {
            tables: data.tables().clone(),
            next: users.len() as u32,
            users,
            visitors: VecDeque::new(),
            random: 1,
            moves: 0,
            markers: 0,
        };
        Ok(Slice { data, control })
    }
}

/// The control side: it changes the users' state through the interface of its owner. An event is a state insert or update:
/// every other one a handover of a user (another tunnel, the old one is ended), of the others one a new user (both
/// records), the next one the end of the oldest of these.
pub(super) struct Control {
    tables: SharedTables,
    users: Vec<User>,
    visitors: VecDeque<User>,
    /// The next visitor.
    next: u32,
    random: u64,
    moves: u32,
    /// End Markers sent.
    markers: u64,
}

impl Control {
    /// Carries out one event.
    pub(super) fn event(&mut self) -> Result<(), Failure> {
        self.moves = self.moves.wrapping_add(1);
        if self.moves.is_multiple_of(2) {
            self.handover();
            return Ok(());
        }
        let attach = self.moves % 4 == 1 && self.visitors.len() < VISITORS as usize;
        match self.visitors.pop_front().filter(|_| !attach) {
            Some(user) => self.tables.change(
                |tables, released| {
                    tables.pause(&[user.teid], [user.downlink]);
                    tables.remove_uplink(user.teid);
                    tables.remove_downlink(user.downlink, released);
                },
                |_| (),
            ),
            None => {
                let first = self.users.len() as u32;
                let session = self.next;
                self.next = if session + 1 < first + VISITORS { session + 1 } else { first };
                let user = self.tables.change(|tables, released| compute::add(tables, session, released), |_| ())?;
                self.visitors.push_back(user);
            }
        }
        Ok(())
    }

    fn handover(&mut self) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = ((self.random >> 32) * self.users.len() as u64) >> 32;
        let Some(User { session, downlink, .. }) = self.users.get(number as usize).copied() else { return };
        let rule = compute::downlink_rule(session, self.moves);
        let markers = &mut self.markers;
        self.tables.change(
            |tables, released| tables.set_downlink(downlink, rule, true, released),
            |released| *markers += released.datagrams.len() as u64,
        );
    }

    /// Carries out events as they come, until it is told to stop.
    fn run(&mut self, load: Load, stop: &AtomicBool) -> Result<Worked, Failure> {
        let (began, mut worked) = (Instant::now(), Worked::default());
        while !stop.load(Relaxed) {
            let due = match load {
                Load::Most => u64::MAX,
                Load::Rate(rate) => (began.elapsed().as_secs_f64() * rate) as u64,
            };
            if worked.count >= due {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            self.event()?;
            worked.spent += now.elapsed();
            worked.count += 1;
        }
        worked.passed = began.elapsed();
        Ok(worked)
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

/// The processors of the data side and of the control side; the same where there is one.
pub(super) fn processors(plane: &Plane) -> (usize, usize) {
    let (data, others) = plane.processors();
    (data, others.first().copied().unwrap_or(data))
}

/// Has both sides work for about so long. The data side decides on batches of both directions in turn.
pub(super) fn side_by_side(
    slice: &mut Slice,
    load: Load,
    span: Duration,
    (data, control): (usize, usize),
) -> Result<Sides, Failure> {
    let stop = AtomicBool::new(false);
    let Slice { data: compute, control: events } = slice;
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| on_processors(&[control], || events.run(load, &stop)));
        let packets = on_processors(&[data], || {
            // the first tenth finds caches cold
            forward(compute, span / 10)?;
            forward(compute, span)
        });
        stop.store(true, Relaxed);
        let control = beside.join().map_err(|_| Failure("the control side ended by itself".into()))??;
        Ok(Sides { data: packets??, control: control? })
    })
}

fn forward(compute: &mut Compute, span: Duration) -> Result<Worked, Failure> {
    let (began, mut worked) = (Instant::now(), Worked::default());
    while began.elapsed() < span {
        for _ in 0..32 {
            for direction in [Direction::Uplink, Direction::Downlink] {
                worked.spent += compute.batch(direction)?;
                worked.count += BATCH as u64;
            }
        }
    }
    worked.passed = began.elapsed();
    Ok(worked)
}
