//! Steady load: timed arrivals, free UEs and the queue of waiting procedures.

use super::chaos::ChaosRun;
use super::slot::{ProcedureState, SlotState, UeSlot};
use super::worker::{Worker, thread_cpu_us};
use crate::load::{Arrivals, Rng};
use crate::mix::{Activity, RestState, SECOND_PSI, Steady, Stream, UePick};
use crate::options::BusyUes;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use vireo_types::Supi;

/// Maximum number of procedures of one group that wait for a free UE. Further ones fail at once.
const MAX_WAITING_PROCEDURES: usize = 1 << 20;
/// Maximum number of procedures that begin in one loop iteration, so that answers are not delayed.
const BURST: u32 = 64;
/// Time between the readiness of all workers and the first arrival.
const HEAD_START_US: u64 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Arriving,
    /// The UEs of this worker are ready; those of other workers are not.
    Ready,
    Running,
    /// The last procedures finish.
    Draining,
    /// Each UE runs one more procedure, without faults.
    Settling,
    /// The steady load has ended.
    Over,
}

/// One worker's part of a steady load.
pub(super) struct SteadyRun<'a> {
    load: &'a Steady,
    stage: Stage,
    /// For each group, the end of its UE numbers in the whole run.
    ends: Vec<u32>,
    /// Of each group; then those of the busy UEs of each group.
    pools: Vec<Pool>,
    busy: Option<BusyPools<'a>>,
    streams: Vec<NextArrival<'a>>,
    rng: Rng,
    origin_us: u64,
    /// Time from which no procedure is due.
    end_us: u64,
    cpu_us: u64,
    pub(super) chaos: Option<ChaosRun>,
    /// Arrivals since the last update of the shared counters.
    arrived: u64,
}

/// UEs that run more procedures than others.
struct BusyPools<'a> {
    ues: &'a BusyUes,
    /// True for groups with such UEs.
    groups: Vec<bool>,
}

/// Free UEs of one group and the procedures that wait for one.
#[derive(Default)]
struct Pool {
    free: VecDeque<u32>,
    waiting: VecDeque<(u64, Activity)>,
}

/// Next arrival of a stream. Every worker generates all arrivals and executes its share. The
/// pattern thus does not depend on the number of workers.
struct NextArrival<'a> {
    stream: &'a Stream,
    arrivals: Arrivals,
    number: u64,
    at_us: u64,
}

/// Next action of the steady load.
enum Job {
    Begin {
        owner: u32,
        activity: Activity,
        intended_us: u64,
    },
    /// No UE is free and the queue is full.
    Refuse {
        activity: Activity,
        intended_us: u64,
    },
}

impl<'a> SteadyRun<'a> {
    pub(super) fn new(load: &'a Steady, (ues, busy): (u32, Option<&'a BusyUes>), seed: u64) -> Self {
        let groups = load.groups.len();
        let ends = load.sizes(ues).into_iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        let stream = |(index, stream): (usize, &'a Stream)| NextArrival {
            stream,
            arrivals: Arrivals::new(&stream.pattern, stream.rate, seed.wrapping_add(index as u64)),
            number: 0,
            at_us: 0,
        };
        SteadyRun {
            load,
            stage: Stage::Arriving,
            ends: ends.collect(),
            pools: std::iter::repeat_with(Pool::default).take(2 * groups).collect(),
            busy: busy.map(|ues| BusyPools { ues, groups: vec![false; groups] }),
            streams: load.streams.iter().enumerate().map(stream).collect(),
            rng: Rng::new(seed ^ 0x5354_4541_4459),
            origin_us: 0,
            end_us: u64::MAX,
            cpu_us: 0,
            chaos: None,
            arrived: 0,
        }
    }

    /// Returns the group of UE number `index` of the whole run.
    pub(super) fn group_of(&self, index: u32) -> u8 {
        // There are at most 200 groups.
        self.ends.partition_point(|end| *end <= index).min(self.load.groups.len() - 1) as u8
    }

    /// Returns the load with these faults.
    pub(super) fn with_faults(self, chaos: Option<ChaosRun>) -> Self {
        SteadyRun { chaos, ..self }
    }

    pub(super) fn home(&self, group: u8) -> RestState {
        self.load.groups[usize::from(group)].home
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns true while procedures are due or finish on their own.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Draining | Stage::Settling)
    }

    /// Returns true while procedures are due.
    pub(super) fn is_loaded(&self) -> bool {
        self.stage == Stage::Running
    }

    /// Marks a UE as free.
    fn put(&mut self, owner: u32, group: u8, is_busy: bool) {
        let pool = self.pool_of(group, is_busy);
        self.pools[pool].free.push_back(owner);
    }

    fn pool_of(&self, group: u8, is_busy: bool) -> usize {
        usize::from(group) + if is_busy { self.load.groups.len() } else { 0 }
    }

    /// Returns the pool whose UE executes an arrival of a group.
    fn choose_pool(&mut self, group: u8) -> usize {
        let share = self.busy.as_ref().filter(|busy| busy.groups[usize::from(group)]).map(|busy| busy.ues.share);
        let is_busy = share.is_some_and(|share| self.rng.unit() < share);
        self.pool_of(group, is_busy)
    }

    /// Marks a free UE as one of the busy ones.
    fn mark_busy(&mut self, owner: u32, group: u8) {
        if let Some(busy) = &mut self.busy {
            busy.groups[usize::from(group)] = true;
        }
        self.pools[usize::from(group)].free.retain(|free| *free != owner);
        self.put(owner, group, true);
    }

    /// Returns the next job that is due, if any. Waiting procedures come first.
    fn job(&mut self, now_us: u64, worker: (u64, u64), unserved: &mut u64) -> Option<Job> {
        for pool in &mut self.pools {
            if !pool.waiting.is_empty()
                && let Some(owner) = pool.free.pop_front()
                && let Some((intended_us, activity)) = pool.waiting.pop_front()
            {
                return Some(Job::Begin { owner, activity, intended_us });
            }
        }
        if self.stage != Stage::Running {
            return None;
        }
        loop {
            // Includes arrivals that this worker reaches late.
            let now_us = now_us.min(self.end_us.saturating_sub(1));
            let index = (0..self.streams.len()).find(|index| self.streams[*index].at_us <= now_us)?;
            let due = &mut self.streams[index];
            let intended_us = due.at_us;
            let choice = due.stream.choose(&mut self.rng);
            due.advance(self.origin_us, worker);
            let (pick, activity) = (due.stream.pick, choice.activity);
            self.arrived += 1;
            let pool = self.choose_pool(choice.group);
            let pool = &mut self.pools[pool];
            if pick == UePick::Any && pool.free.len() > 1 {
                let any = self.rng.below(pool.free.len());
                pool.free.swap(0, any);
            }
            if let Some(owner) = pool.free.pop_front() {
                return Some(Job::Begin { owner, activity, intended_us });
            }
            *unserved += 1;
            if pool.waiting.len() >= MAX_WAITING_PROCEDURES {
                return Some(Job::Refuse { activity, intended_us });
            }
            pool.waiting.push_back((intended_us, activity));
        }
    }

    /// Returns true if no procedure that is due before the end remains.
    fn is_exhausted(&self) -> bool {
        self.streams.iter().all(|due| due.at_us >= self.end_us)
    }

    /// Returns the time of the next job, seen from `now_us`.
    fn next_us(&self, now_us: u64) -> Option<u64> {
        match self.stage {
            // The load begins for all workers at the same time, regardless of this worker's
            // polling.
            Stage::Ready => return Some(now_us + HEAD_START_US / 4),
            Stage::Arriving if self.busy.is_some() => return Some(now_us + HEAD_START_US),
            Stage::Running => {}
            _ => return None,
        }
        // One more check at the end changes the stage.
        self.streams.iter().map(|due| due.at_us).chain([self.end_us]).min()
    }
}

impl NextArrival<'_> {
    /// Advances to the next arrival of worker `(number, workers)`.
    fn advance(&mut self, origin_us: u64, (number, workers): (u64, u64)) {
        loop {
            let at_us = self.arrivals.next_s() * 1e6;
            let mine = self.number % workers == number;
            self.number += 1;
            if mine || !at_us.is_finite() {
                // The cast saturates for times beyond the range of the clock.
                self.at_us = origin_us.saturating_add(at_us as u64);
                return;
            }
        }
    }
}

impl Stream {
    fn choose(&self, rng: &mut Rng) -> crate::mix::WeightedActivity {
        let whole: f64 = self.choices.iter().map(|choice| choice.weight).sum();
        let mut at = if self.choices.len() > 1 { rng.unit() * whole } else { 0.0 };
        let chosen = self.choices.iter().find(|choice| {
            at -= choice.weight;
            at <= 0.0 && choice.weight > 0.0
        });
        // Rounding may leave a remainder; then the last possible choice applies.
        let last = self.choices.iter().rfind(|choice| choice.weight > 0.0).unwrap_or(&self.choices[0]);
        *chosen.unwrap_or(last)
    }
}

impl Worker<'_> {
    /// Advances the steady load. Returns the time at which the next procedure is due.
    pub(super) fn drive(&mut self) -> Option<u64> {
        self.change_stage();
        let worker = (u64::from(self.share.number), u64::from(self.share.threads));
        for _ in 0..BURST {
            let run = self.steady.as_mut()?;
            let Some(job) = run.job(self.now_us, worker, &mut self.stats.report.steady.unserved) else { break };
            match job {
                Job::Begin { owner, activity, intended_us } => self.begin(owner, activity, intended_us),
                Job::Refuse { activity, intended_us } => {
                    self.stats.report.steady.never_begun += 1;
                    self.stats.fail_procedure(activity.procedure(), intended_us);
                }
            }
        }
        let run = self.steady.as_mut()?;
        let arrived = std::mem::take(&mut run.arrived);
        if arrived > 0 {
            self.stats.report.steady.procedures += arrived;
            self.counters.procedures.fetch_add(arrived, Ordering::Relaxed);
        }
        run.next_us(self.now_us)
    }

    fn change_stage(&mut self) {
        let (stopped, now_us) = (self.counters.stop.load(Ordering::Relaxed), self.now_us);
        let all_there = self.active == 0 && self.slots.len() as u32 >= self.share.ues;
        let duration_us = self.options.duration.map_or(0, |duration| duration.as_micros() as u64);
        let timeout_us = self.options.timeout.as_micros() as u64;
        let is_arriving = self.steady.as_ref().is_some_and(|run| run.stage == Stage::Arriving);
        if is_arriving && all_there && !self.mark_busy_ues() {
            return;
        }
        let Some(run) = &mut self.steady else { return };
        match run.stage {
            Stage::Arriving if all_there => {
                run.stage = Stage::Ready;
                let ready = self.counters.ready.fetch_add(1, Ordering::AcqRel) + 1;
                if ready == u64::from(self.share.threads) {
                    self.counters.steady_us.store(now_us + HEAD_START_US, Ordering::Release);
                }
            }
            Stage::Ready if self.counters.steady_us.load(Ordering::Acquire) != 0 => {
                run.stage = Stage::Running;
                run.origin_us = self.counters.steady_us.load(Ordering::Acquire);
                run.end_us = run.origin_us + duration_us;
                run.cpu_us = thread_cpu_us();
                let worker = (u64::from(self.share.number), u64::from(self.share.threads));
                run.streams.iter_mut().for_each(|due| due.advance(run.origin_us, worker));
                if let Some(timeline) = &mut self.stats.timeline {
                    timeline.begin(run.origin_us);
                }
                let settled_us = run.origin_us + self.options.settle.as_micros() as u64;
                self.stats.settling_us = (run.origin_us, settled_us);
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
                let steady = &mut self.stats.report.steady;
                steady.steady_began_unix_us = (unix + run.origin_us).saturating_sub(now_us);
                steady.steady_seconds = duration_us as f64 / 1e6;
            }
            Stage::Running if stopped || now_us >= run.end_us && run.is_exhausted() => {
                run.stage = Stage::Draining;
                run.end_us = run.end_us.min(now_us);
                let lasted = now_us.saturating_sub(run.origin_us).min(duration_us);
                self.stats.report.steady.steady_seconds = lasted as f64 / 1e6;
            }
            Stage::Draining => {
                let idle = self.active == 0 && run.pools.iter().all(|pool| pool.waiting.is_empty());
                if idle || now_us >= run.end_us + timeout_us {
                    self.end_steady();
                    if self.has_chaos() {
                        self.begin_settling();
                    }
                }
            }
            Stage::Settling if self.active == 0 || now_us >= run.end_us + timeout_us => {
                run.stage = Stage::Over;
                self.record_ues();
            }
            _ => {}
        }
    }

    /// Marks the busy UEs of the load. Returns false while their list does not exist.
    fn mark_busy_ues(&mut self) -> bool {
        let Some(run) = &mut self.steady else { return true };
        let Some(busy) = &run.busy else { return true };
        let Ok(text) = std::fs::read_to_string(&busy.ues.file) else { return false };
        let listed: HashSet<Supi> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        for (owner, slot) in (0..).zip(&mut self.slots) {
            if listed.contains(&slot.ue.usim().supi()) && slot.life == SlotState::Free {
                slot.is_busy = true;
                run.mark_busy(owner, slot.group);
            }
        }
        true
    }

    /// Returns true while each UE runs its last procedure, which is not one of the load.
    fn is_settling(&self) -> bool {
        self.steady.as_ref().is_some_and(|run| run.stage == Stage::Settling)
    }

    fn begin_settling(&mut self) {
        let Some(run) = &mut self.steady else { return };
        (run.stage, run.end_us) = (Stage::Settling, self.now_us);
        self.settle_ues();
    }

    /// Counts every unfinished procedure as failed.
    fn end_steady(&mut self) {
        let Some(run) = &mut self.steady else { return };
        run.stage = Stage::Over;
        self.stats.report.steady.steady_cpu_us = thread_cpu_us().saturating_sub(run.cpu_us);
        let waiting: Vec<_> = run.pools.iter_mut().flat_map(|pool| pool.waiting.drain(..)).collect();
        for (intended_us, activity) in waiting {
            self.stats.report.steady.never_begun += 1;
            self.stats.fail_procedure(activity.procedure(), intended_us);
        }
        let unfinished = |slot: &UeSlot| slot.life == SlotState::Running && slot.fate == ProcedureState::Ok;
        let unfinished: Vec<_> = self.slots.iter().filter(|slot| unfinished(slot)).collect();
        for slot in unfinished {
            if slot.activity.is_some() && slot.served {
                // The UE is returning to its rest state.
                self.stats.report.steady.completed += 1;
            } else if let Some(activity) = slot.activity {
                self.stats.fail_procedure(activity.procedure(), slot.times.born_us);
                self.stats.reason(format!("{activity} not done at the end of the run"));
            }
        }
        // Answers may follow until the loop ends: they belong to no procedure any more.
        for slot in self.slots.iter_mut().filter(|slot| slot.life == SlotState::Running) {
            (slot.life, slot.activity) = (SlotState::Free, None);
        }
        self.active = 0;
    }

    fn begin(&mut self, owner: u32, activity: Activity, intended_us: u64) {
        let Some(run) = &self.steady else { return };
        let slot = &mut self.slots[owner as usize];
        slot.life = SlotState::Running;
        slot.fate = ProcedureState::Ok;
        slot.script = activity.script(run.home(slot.group));
        slot.activity = Some(activity);
        if activity == Activity::Session {
            // Removes the second session of a failed procedure.
            slot.ue.forget_session(SECOND_PSI);
        }
        (slot.step, slot.attempts, slot.flags) = (0, 0, 0);
        (slot.served, slot.fresh) = (false, false);
        (slot.times.born_us, slot.times.sent_us) = (intended_us, self.now_us);
        self.active += 1;
        self.advance(owner, Some(intended_us));
    }

    /// Handles the end of a UE's script: the UE is in its rest state.
    pub(super) fn on_script_end(&mut self, owner: u32) {
        let slot = &mut self.slots[owner as usize];
        slot.life = SlotState::Free;
        slot.sequence = slot.sequence.wrapping_add(1);
        let (activity, fate, times) = (slot.activity.take(), slot.fate, slot.whole(self.now_us));
        let (group, is_busy) = (slot.group, slot.is_busy);
        self.active -= 1;
        match (activity, fate) {
            (Some(_), ProcedureState::Ok) if self.is_settling() => {}
            (Some(_), ProcedureState::Ok) => self.stats.report.steady.completed += 1,
            // The outage lasts from the intended service until service is available again.
            (Some(activity), ProcedureState::Lost) => {
                self.stats.record(activity.procedure(), times);
                self.stats.plot(activity.procedure(), times);
            }
            (Some(_), ProcedureState::Failed) => {}
            (None, _) => {
                self.stats.report.succeeded += 1;
                self.stats.add_lifetime(times.intended_us, self.now_us);
                self.counters.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(run) = &mut self.steady {
            run.put(owner, group, is_busy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Pattern;
    use std::time::Duration;

    fn run(threads: u64, number: u64, load: &Steady) -> Vec<u64> {
        let mut run = SteadyRun::new(load, (10, None), 3);
        run.stage = Stage::Running;
        run.origin_us = 1000;
        run.streams.iter_mut().for_each(|due| due.advance(1000, (number, threads)));
        let mut times = Vec::new();
        let mut unserved = 0;
        while run.next_us(0).is_some_and(|at| at < 2_000_000) {
            let now = run.next_us(0).expect("is running");
            run.put(1, 0, false);
            match run.job(now, (number, threads), &mut unserved) {
                Some(Job::Begin { intended_us, .. }) => times.push(intended_us),
                _ => panic!("a UE is free"),
            }
        }
        times
    }

    #[test]
    fn workers_share_one_pattern() {
        let kinds = [(Activity::ServiceRequest, 1.0)];
        let load = Steady::weighted(&kinds, 500.0, "T4:every=0.1".parse().expect("a pattern"), Duration::ZERO);
        let whole = run(1, 0, &load);
        let mut parts: Vec<u64> = (0..3).flat_map(|number| run(3, number, &load)).collect();
        parts.sort_unstable();
        assert!(whole.len() > 700, "{}", whole.len());
        assert_eq!(whole, parts);
    }

    #[test]
    fn arrival_without_ue_keeps_intended_time() {
        let load = Steady::weighted(&[(Activity::ServiceRequest, 1.0)], 1000.0, Pattern::Constant, Duration::ZERO);
        let mut run = SteadyRun::new(&load, (10, None), 3);
        run.stage = Stage::Running;
        run.streams.iter_mut().for_each(|due| due.advance(0, (0, 1)));
        let mut unserved = 0;
        assert!(run.job(2_500, (0, 1), &mut unserved).is_none());
        assert_eq!((unserved, run.arrived, run.next_us(2_500)), (3, 3, Some(3_000)));
        run.put(7, 0, false);
        let Some(Job::Begin { owner, intended_us, .. }) = run.job(2_600, (0, 1), &mut unserved) else {
            panic!("one waits")
        };
        assert_eq!((owner, intended_us, unserved), (7, 0, 3));
        run.stage = Stage::Draining;
        run.put(8, 0, false);
        assert!(matches!(run.job(9_000, (0, 1), &mut unserved), Some(Job::Begin { intended_us: 1000, .. })));
        run.put(9, 0, false);
        run.put(9, 0, false);
        assert!(matches!(run.job(9_000, (0, 1), &mut unserved), Some(Job::Begin { intended_us: 2000, .. })));
        // No procedure is due at this time.
        assert!(run.job(9_000, (0, 1), &mut unserved).is_none());
    }

    #[test]
    fn kinds_come_by_their_weights() {
        let kinds = [(Activity::ServiceRequest, 0.7), (Activity::XnHandover, 0.3), (Activity::Session, 0.0)];
        let load = Steady::weighted(&kinds, 1.0, Pattern::Constant, Duration::ZERO);
        let mut rng = Rng::new(1);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            let choice = load.streams[0].choose(&mut rng);
            counts[kinds.iter().position(|(kind, _)| *kind == choice.activity).expect("is one of them")] += 1;
        }
        assert!((6_800..7_200).contains(&counts[0]) && counts[2] == 0, "{counts:?}");
        let run = SteadyRun::new(&load, (10, None), 1);
        assert_eq!((0..10).map(|ue| run.group_of(ue)).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn busy_ues_run_their_share() {
        let load = Steady::weighted(&[(Activity::ServiceRequest, 1.0)], 1000.0, Pattern::Constant, Duration::ZERO);
        let busy = BusyUes { file: "/nowhere".into(), share: 0.8 };
        let mut run = SteadyRun::new(&load, (10, Some(&busy)), 3);
        (0..10).for_each(|owner| run.put(owner, 0, false));
        run.mark_busy(4, 0);
        run.stage = Stage::Running;
        run.streams.iter_mut().for_each(|due| due.advance(0, (0, 1)));
        let mut unserved = 0;
        let mut by_busy = 0;
        for n in 0..1000 {
            let Some(Job::Begin { owner, .. }) = run.job(n * 1000, (0, 1), &mut unserved) else {
                panic!("a UE is free")
            };
            by_busy += u32::from(owner == 4);
            run.put(owner, 0, owner == 4);
        }
        assert!((740..860).contains(&by_busy) && unserved == 0, "{by_busy}");
    }
}
