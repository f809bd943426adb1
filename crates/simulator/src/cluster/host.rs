//! Simulated host: cores, each with one NF of each pool.
//!
//! A core serves its NFs by weighted deficit round robin. Commits of proposals precede the NFs: the
//! host thread executes them, and they wait in no queue of an NF.

use super::balancer::Message;
use super::cap::{Cap, Meter};
use super::clock::Nanos;
use std::collections::{HashMap, VecDeque};
use vireo_core::placement::balance::load_table::{MovingAverage, PoolReport};
use vireo_core::schedule::deficit::Deficit;
use vireo_core::schedule::dispatch::NfLoad;
use vireo_core::schedule::shares::{NfDemand, shares};
use vireo_types::{Bucket, Duration};

/// Work of a host for a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) message: Message,
    /// Number of the balancer's input.
    pub(super) input: u64,
    /// Bucket of the UE.
    pub(super) bucket: Bucket,
    pub(super) pool: usize,
    pub(super) part: Part,
    pub(super) work: Nanos,
    /// Host that runs the step.
    pub(super) host: u16,
}

/// Part of a message's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Step and commit of the owner.
    Owner,
    /// Step of a serving host.
    ServingHost,
    /// Commit of a proposal by the owner.
    Commit,
    /// Refusal of a proposal by the owner.
    Refusal,
}

impl Part {
    /// Returns true for the work of an NF.
    fn is_step(self) -> bool {
        matches!(self, Part::Owner | Part::ServingHost)
    }
}

/// One core with its NFs.
#[derive(Debug, Default)]
struct Core {
    queues: Vec<VecDeque<Job>>,
    /// Proposals to commit or refuse.
    proposals: VecDeque<Job>,
    deficit: Deficit,
    running: Option<Job>,
    averages: Vec<MovingAverage>,
}

impl Core {
    /// Returns the number of a pool's messages that wait or run.
    fn queue(&self, pool: usize) -> usize {
        let runs = self.running.is_some_and(|job| job.part.is_step() && job.pool == pool);
        self.queues[pool].len() + usize::from(runs)
    }

    fn is_idle(&self) -> bool {
        self.running.is_none() && self.proposals.is_empty() && self.queues.iter().all(VecDeque::is_empty)
    }

    /// Returns the pools that have work, as bits.
    fn active(&self) -> u64 {
        (0..self.queues.len()).filter(|pool| self.queue(*pool) > 0).fold(0, |bits, pool| bits | 1 << pool)
    }
}

/// CPU shares of a core's NFs, by the set of NFs with work. Objectives are constant, so each set is
/// computed once.
#[derive(Debug)]
pub(super) struct Shares {
    slos: Vec<Option<Duration>>,
    known: HashMap<u64, Box<[f64]>>,
}

impl Shares {
    /// Creates the shares of pools with these objectives; `None` means that the pool does not
    /// exist.
    pub(super) fn new(slos: Vec<Option<Duration>>) -> Self {
        Shares { slos, known: HashMap::new() }
    }

    fn for_active(&mut self, active: u64) -> &[f64] {
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

/// One host with its cores.
#[derive(Debug)]
pub(super) struct Host {
    cores: Vec<Core>,
    /// Busy time of the cores since the last sample, and in total.
    worked: Nanos,
    pub(super) worked_in_all: Nanos,
    /// Number of times that an idle core received work.
    pub(super) woken: u64,
    cpu: MovingAverage,
    /// CPU limit of a cgroup, and the processors that it grants.
    meter: Option<Meter>,
    part: f64,
}

impl Host {
    /// Creates a host with this number of cores and pools. `cap` is a cgroup limit with the offset
    /// of its periods as a part of one.
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

    /// Returns the completion time of work that a core begins at `now`.
    pub(super) fn ends(&mut self, now: Nanos, work: Nanos) -> Nanos {
        self.meter.as_mut().map_or(now + work, |meter| meter.ends(now, work))
    }

    /// Returns the number of processors that it may use.
    pub(super) fn part(&self) -> f64 {
        self.part
    }

    /// Returns the NFs of a pool from the forwarder's view, with the shares that they would have
    /// with this procedure.
    pub(super) fn loads(&self, pool: usize, shares: &mut Shares) -> Vec<NfLoad> {
        let load = |(id, core): (u64, &Core)| NfLoad {
            queue: core.queue(pool) as u32,
            share: shares.for_active(core.active() | 1 << pool)[pool],
            id,
        };
        (0..).zip(&self.cores).map(load).collect()
    }

    /// Appends a message to an NF. Returns true if its core was idle.
    pub(super) fn enqueue(&mut self, core: usize, job: Job) -> bool {
        let core = &mut self.cores[core];
        let wakes = core.is_idle();
        core.queues[job.pool].push_back(job);
        self.woken += u64::from(wakes);
        wakes
    }

    /// Appends a proposal to the core that has the fewest. Returns the core, and true if it was
    /// idle.
    pub(super) fn enqueue_proposal(&mut self, job: Job) -> (usize, bool) {
        let load = |core: &Core| core.proposals.len() + usize::from(core.running.is_some());
        let least = (0..self.cores.len()).min_by_key(|core| load(&self.cores[*core])).unwrap_or_default();
        let core = &mut self.cores[least];
        let wakes = core.is_idle();
        core.proposals.push_back(job);
        self.woken += u64::from(wakes);
        (least, wakes)
    }

    /// Returns the next work of a free core.
    pub(super) fn next(&mut self, core: usize, shares: &mut Shares) -> Option<Job> {
        let core = &mut self.cores[core];
        if core.running.is_some() {
            return None;
        }
        if let Some(proposal) = core.proposals.pop_front() {
            core.running = Some(proposal);
            return core.running;
        }
        let of = shares.for_active(core.active());
        let queues = &core.queues;
        let pool = core.deficit.next(of, |pool| !queues[pool].is_empty())?;
        core.running = core.queues[pool].pop_front();
        core.running
    }

    /// Completes the work of a core, and returns it.
    pub(super) fn done(&mut self, core: usize, took: Nanos) -> Option<Job> {
        let core = &mut self.cores[core];
        let job = core.running.take()?;
        if job.part.is_step() {
            core.deficit.ran(job.pool, took);
        }
        self.worked += took;
        self.worked_in_all += took;
        Some(job)
    }

    /// Adds the queues and the CPU time since the last sample to the averages.
    pub(super) fn sample(&mut self, since: Nanos) {
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

    /// Returns its load report: CPU and pools.
    pub(super) fn report(&self, shares: &mut Shares) -> (f64, Vec<PoolReport>) {
        let pools = self.cores.first().map_or(0, |core| core.queues.len());
        let of = |pool: usize| {
            let mut report = PoolReport { backlog: f64::INFINITY, share: 0.0 };
            for core in &self.cores {
                let share = shares.for_active(core.active() | 1 << pool)[pool];
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
