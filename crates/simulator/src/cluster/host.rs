//! A host: cores, each with one NF of each pool, that it serves by weighted deficit round robin.

use super::cap::{Cap, Meter};
use super::clock::Nanos;
use std::collections::{HashMap, VecDeque};
use vireo_core::balance::load_table::{MovingAverage, PoolReport};
use vireo_core::schedule::deficit::Deficit;
use vireo_core::schedule::dispatch::NfLoad;
use vireo_core::schedule::shares::{NfDemand, shares};
use vireo_types::Duration;

/// The number of a procedure that runs.
pub(super) type Number = u32;

/// A core.
#[derive(Debug, Default)]
struct Core {
    queues: Vec<VecDeque<Number>>,
    deficit: Deficit,
    /// The procedure that it is at, and of which pool.
    running: Option<(Number, usize)>,
    averages: Vec<MovingAverage>,
}

impl Core {
    /// Procedures of a pool that wait or run.
    fn queue(&self, pool: usize) -> usize {
        self.queues[pool].len() + usize::from(self.running.is_some_and(|(_, own)| own == pool))
    }

    /// The pools that have work, as bits.
    fn active(&self) -> u64 {
        (0..self.queues.len()).filter(|pool| self.queue(*pool) > 0).fold(0, |bits, pool| bits | 1 << pool)
    }
}

/// Shares of a core's NFs by which of them have work: objectives do not change, so that each is worked out once.
#[derive(Debug)]
pub(super) struct Shares {
    slos: Vec<Option<Duration>>,
    known: HashMap<u64, Box<[f64]>>,
}

impl Shares {
    /// Of pools with these objectives; a pool without one is not there.
    pub(super) fn new(slos: Vec<Option<Duration>>) -> Self {
        Shares { slos, known: HashMap::new() }
    }

    fn of(&mut self, active: u64) -> &[f64] {
        let slos = &self.slos;
        self.known.entry(active).or_insert_with(|| {
            let claim = |(pool, slo): (usize, &Option<Duration>)| NfDemand {
                slo: slo.unwrap_or_default(),
                violations: 0,
                active: slo.is_some() && active >> pool & 1 == 1,
                slice: 0,
            };
            shares(&slos.iter().enumerate().map(claim).collect::<Vec<_>>(), &[]).into()
        })
    }
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    cores: Vec<Core>,
    /// How long cores have worked since the last look, and in all.
    worked: Nanos,
    pub(super) worked_in_all: Nanos,
    /// How often a core without work got some.
    pub(super) woken: u64,
    cpu: MovingAverage,
    /// What a cgroup leaves it, and the processors that this is.
    meter: Option<Meter>,
    part: f64,
}

impl Host {
    /// So many cores and pools, with what a cgroup leaves of the cores, whose periods begin at this part of one.
    pub(super) fn new(cores: usize, pools: usize, cap: Option<(Cap, f64)>) -> Self {
        let core = || Core {
            queues: vec![VecDeque::new(); pools],
            averages: vec![MovingAverage::default(); pools],
            ..Core::default()
        };
        let part = cap.map_or(cores as f64, |(cap, _)| cap.part.min(cores as f64));
        Host {
            cores: (0..cores).map(|_| core()).collect(),
            worked: 0,
            worked_in_all: 0,
            woken: 0,
            cpu: MovingAverage::default(),
            meter: cap.map(|(cap, begins)| Meter::new(cap, begins)),
            part,
        }
    }

    /// When work of so long that a core begins now is done.
    pub(super) fn ends(&mut self, now: Nanos, work: Nanos) -> Nanos {
        self.meter.as_mut().map_or(now + work, |meter| meter.ends(now, work))
    }

    /// The processors that it may use.
    pub(super) fn part(&self) -> f64 {
        self.part
    }

    /// The NFs of a pool as the forwarder sees them: their shares are those that they would have with this procedure.
    pub(super) fn loads(&self, pool: usize, shares: &mut Shares) -> Vec<NfLoad> {
        let load = |(id, core): (u64, &Core)| NfLoad {
            queue: core.queue(pool) as u32,
            share: shares.of(core.active() | 1 << pool)[pool],
            id,
        };
        (0..).zip(&self.cores).map(load).collect()
    }

    /// A message of a procedure comes to an NF; whether its core had nothing to do.
    pub(super) fn enqueue(&mut self, core: usize, pool: usize, number: Number) -> bool {
        let core = &mut self.cores[core];
        let wakes = core.running.is_none() && core.queues.iter().all(VecDeque::is_empty);
        core.queues[pool].push_back(number);
        self.woken += u64::from(wakes);
        wakes
    }

    /// What a core that is free does next.
    pub(super) fn next(&mut self, core: usize, shares: &mut Shares) -> Option<Number> {
        let core = &mut self.cores[core];
        if core.running.is_some() {
            return None;
        }
        let of = shares.of(core.active());
        let queues = &core.queues;
        let pool = core.deficit.next(of, |pool| !queues[pool].is_empty())?;
        let number = core.queues[pool].pop_front()?;
        core.running = Some((number, pool));
        Some(number)
    }

    /// A core has done what it was at, for so long; gives what that was.
    pub(super) fn done(&mut self, core: usize, took: Nanos) -> Option<Number> {
        let core = &mut self.cores[core];
        let (number, pool) = core.running.take()?;
        core.deficit.ran(pool, took);
        self.worked += took;
        self.worked_in_all += took;
        Some(number)
    }

    /// Takes the queues and the CPU of the time since the last look into the averages.
    pub(super) fn look(&mut self, since: Nanos) {
        for core in &mut self.cores {
            for pool in 0..core.queues.len() {
                let queue = core.queue(pool) as f64;
                core.averages[pool].take(queue);
            }
        }
        let room = (since as f64 * self.part).max(1.0);
        self.cpu.take(self.worked as f64 / room);
        self.worked = 0;
    }

    /// What it reports: CPU and pools.
    pub(super) fn report(&self, shares: &mut Shares) -> (f64, Vec<PoolReport>) {
        let pools = self.cores.first().map_or(0, |core| core.queues.len());
        let of = |pool: usize| {
            let mut report = PoolReport { backlog: f64::INFINITY, share: 0.0 };
            for core in &self.cores {
                let share = shares.of(core.active() | 1 << pool)[pool];
                if share > 0.0 {
                    report.backlog = report.backlog.min(core.averages[pool].get() / share);
                    report.share += share;
                }
            }
            report
        };
        (self.cpu.get(), (0..pools).map(of).collect())
    }
}
