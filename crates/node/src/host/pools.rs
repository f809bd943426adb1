//! The pools: which NFs there are, what each is for, and which of them a procedure goes to (seed 1, Algorithm 2). An NF
//! is one queue of a worker process; it is active (in a pool) or idle (started, ready to be put into one).

use crate::config::{NF_KINDS, PoolKey, PoolsConfig, SliceRuntime};
use crate::worker::region_layout::{self, RegionLayout};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use vireo_core::schedule::dispatch::{self, NfLoad};
use vireo_core::schedule::estimate::ServiceTime;
use vireo_core::schedule::kind::NfKind;
use vireo_core::schedule::shares::{NfDemand, shares};
use vireo_store::region::{Region, Ring};
use vireo_types::Duration;

/// What an NF is for: a slice (0 = not known yet, else 1 + its position) and a kind of procedure; everything, if unified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Purpose {
    pub(crate) slice: usize,
    pub(crate) kind: Option<NfKind>,
}

/// Where an NF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NfId {
    pub(crate) worker: u8,
    pub(crate) nf: u8,
}

/// How an NF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its process is being started; what it shall be then.
    Starting {
        /// Whether it goes into its pool at once.
        active: bool,
    },
    /// Ready.
    Idle,
    /// In its pool.
    Active,
}

/// An NF.
#[derive(Debug)]
pub(crate) struct Nf {
    pub(crate) place: NfId,
    pub(crate) purpose: Purpose,
    pub(crate) state: State,
    pub(crate) queue: Ring,
    /// Items in its queue, as last looked at.
    waiting: u32,
    /// How long what it does now has waited, in microseconds; 0 if nothing waits.
    waited: u64,
    /// `C_i`, as last computed.
    pub(crate) share: f64,
    /// Violations that raise its priority, since they were asked for last, and ever.
    violations: u32,
    recent: u32,
    pub(crate) violated: u64,
    /// What its worker had counted when it was looked at last: nanoseconds, procedures.
    seen: (u64, u64),
    /// Nanoseconds that it had worked when weights were computed last, and whether it had since the time before.
    worked: u64,
    lately: bool,
}

/// What `T_t` is taken for before anything was measured, in nanoseconds: a procedure of a few messages.
const FIRST_GUESS: u64 = 40_000;

/// One more than the place of an NF, as a record's pin.
pub(crate) fn pin(worker: u8, nf: u8) -> u64 {
    1 + (u64::from(worker) << 8 | u64::from(nf))
}

fn pinned(pin: u64) -> Option<NfId> {
    let place = pin.checked_sub(1)?;
    Some(NfId { worker: u8::try_from(place >> 8).ok()?, nf: place as u8 })
}

/// Where a procedure goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NfChoice {
    pub(crate) place: NfId,
    /// Its position among the NFs.
    pub(crate) at: usize,
    /// Whether it would be later than its objective.
    pub(crate) violation: bool,
}

/// All NFs of a host.
#[derive(Debug)]
pub(crate) struct Pools {
    config: PoolsConfig,
    slices: Vec<SliceRuntime>,
    plan: RegionLayout,
    nfs: Vec<Nf>,
    /// The active ones of each purpose, and the NF of each place: made anew whenever an NF changes.
    active: FxHashMap<Purpose, SmallVec<[usize; 4]>>,
    places: Vec<Option<usize>>,
    /// `T_t` of each purpose.
    times: FxHashMap<Purpose, ServiceTime>,
    turn: u64,
}

impl Pools {
    pub(crate) fn new(config: PoolsConfig, slices: Vec<SliceRuntime>, plan: RegionLayout) -> Self {
        let mut pools = Pools {
            config,
            slices,
            plan,
            nfs: Vec::new(),
            active: FxHashMap::default(),
            places: Vec::new(),
            times: FxHashMap::default(),
            turn: 0,
        };
        pools.times = pools.purposes().into_iter().map(|p| (p, ServiceTime::new(FIRST_GUESS))).collect();
        pools
    }

    /// An NF has come, gone or changed.
    fn index(&mut self) {
        self.active.clear();
        self.places.clear();
        for (at, nf) in self.nfs.iter().enumerate() {
            let place = self.number(nf.place);
            if self.places.len() <= place {
                self.places.resize(place + 1, None);
            }
            self.places[place] = Some(at);
            if nf.state == State::Active {
                self.active.entry(nf.purpose).or_default().push(at);
            }
        }
    }

    fn number(&self, place: NfId) -> usize {
        usize::from(place.worker) * usize::from(self.plan.nfs) + usize::from(place.nf)
    }

    /// The NF of a place.
    pub(crate) fn at(&self, place: NfId) -> Option<&Nf> {
        self.nfs.get(self.places.get(self.number(place)).copied()??)
    }

    /// What there are NFs for.
    pub(crate) fn purposes(&self) -> Vec<Purpose> {
        if self.config.key == PoolKey::Wildcard {
            return vec![Purpose { slice: 0, kind: None }];
        }
        // Of a UE whose slice is not known there are first messages, and the rest.
        let first = [NfKind::Registration, NfKind::StateManagement].map(|kind| Purpose { slice: 0, kind: Some(kind) });
        let slices = (1..=self.slices.len())
            .flat_map(|slice| NfKind::ALL.iter().map(move |kind| Purpose { slice, kind: Some(*kind) }));
        first.into_iter().chain(slices).collect()
    }

    pub(crate) fn purpose(&self, slice: usize, kind: NfKind) -> Purpose {
        match (self.config.key, slice) {
            (PoolKey::Wildcard, _) => Purpose { slice: 0, kind: None },
            (_, 0) if kind == NfKind::StateManagement => Purpose { slice, kind: Some(kind) },
            (_, 0) => Purpose { slice, kind: Some(NfKind::Registration) },
            _ => Purpose { slice, kind: Some(kind) },
        }
    }

    /// The NFs that a host starts with, by worker: the active ones together, the idle ones in workers of their own, so
    /// that no worker's death takes both.
    pub(crate) fn first_crew(&self) -> Vec<Vec<(Purpose, bool)>> {
        let (each, purposes) = (usize::from(self.config.nfs_per_worker.max(1)), self.purposes());
        let actives = match self.config.key {
            PoolKey::SliceProcedure => 1,
            PoolKey::Wildcard if self.config.workers > 0 => usize::from(self.config.workers),
            PoolKey::Wildcard => self.processors(),
        };
        let crew = |count: usize, active: bool| -> Vec<Vec<(Purpose, bool)>> {
            let nfs: Vec<_> = purposes.iter().flat_map(|p| std::iter::repeat_n((*p, active), count)).collect();
            // Unified NFs are there to use several processors: each has a worker of its own.
            let each = if self.config.key == PoolKey::Wildcard { 1 } else { each };
            nfs.chunks(each).map(<[_]>::to_vec).collect()
        };
        let mut workers = crew(actives, true);
        workers.extend(crew(usize::from(self.config.idle), false));
        workers
    }

    pub(crate) fn slice(&self, slice: usize) -> Option<&SliceRuntime> {
        self.slices.get(slice.checked_sub(1)?)
    }

    /// The slices.
    pub(crate) fn slices(&self) -> &[SliceRuntime] {
        &self.slices
    }

    /// Changes what the slices are served by; not which there are.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut [SliceRuntime])) {
        change(&mut self.slices);
    }

    /// The latency objective of a purpose: slice 0's is the strictest of all, its UEs may be of any slice.
    pub(crate) fn slo(&self, purpose: Purpose) -> Duration {
        let of = |slice: &SliceRuntime| match purpose.kind {
            Some(kind) => slice.slo[kind as usize % NF_KINDS],
            None => slice.slo.iter().copied().min().unwrap_or(SliceRuntime::SLO),
        };
        match self.slice(purpose.slice) {
            Some(slice) => of(slice),
            None => self.slices.iter().map(of).min().unwrap_or(SliceRuntime::SLO),
        }
    }

    /// Enters the NFs of a worker that is being started.
    pub(crate) fn enter(&mut self, region: &Region, worker: u8, purposes: &[(Purpose, bool)]) {
        for (n, (purpose, active)) in purposes.iter().enumerate() {
            let place = NfId { worker, nf: n as u8 };
            let word = |word| region.shared_word(self.plan.nf_word(worker, place.nf, word)).load(Ordering::Relaxed);
            self.nfs.push(Nf {
                place,
                purpose: *purpose,
                state: State::Starting { active: *active },
                queue: self.plan.queue(region, worker, place.nf),
                waiting: 0,
                waited: 0,
                share: 1.0,
                violations: 0,
                recent: 0,
                violated: 0,
                seen: (word(region_layout::NF_BUSY), word(region_layout::NF_PROCEDURES)),
                worked: word(region_layout::NF_BUSY),
                lately: false,
            });
        }
        self.index();
        self.tell(region);
    }

    /// Resets what a worker of this number has left on the board: what it was serving, and how long that had waited.
    pub(crate) fn forget_worker(&self, region: &Region, worker: u8) {
        region.shared_word(self.plan.nf_word(worker, 0, region_layout::NF_SERVING)).store(0, Ordering::Relaxed);
        for nf in 0..self.plan.nfs {
            region.shared_word(self.plan.nf_word(worker, nf, region_layout::NF_WAITED)).store(0, Ordering::Relaxed);
        }
    }

    /// A worker is there: its NFs are ready.
    pub(crate) fn up(&mut self, worker: u8) {
        for nf in self.nfs.iter_mut().filter(|nf| nf.place.worker == worker) {
            if let State::Starting { active } = nf.state {
                nf.state = if active { State::Active } else { State::Idle };
            }
        }
        self.index();
    }

    /// A worker is gone: its NFs are nowhere; what they were for.
    pub(crate) fn down(&mut self, worker: u8) -> Vec<(Purpose, bool)> {
        let gone = self.nfs.extract_if(.., |nf| nf.place.worker == worker);
        let gone =
            gone.map(|nf| (nf.purpose, matches!(nf.state, State::Active | State::Starting { active: true }))).collect();
        self.index();
        gone
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Nf> {
        self.nfs.iter()
    }

    /// Puts an idle NF into its pool. Where it is; `None` if there is none.
    pub(crate) fn activate(&mut self, purpose: Purpose) -> Option<NfId> {
        let nf = self.nfs.iter_mut().find(|nf| nf.purpose == purpose && nf.state == State::Idle)?;
        nf.state = State::Active;
        nf.violations = 0;
        let place = nf.place;
        self.index();
        Some(place)
    }

    /// Puts an idle NF into each pool that has none, whatever was planned for it: its worker may have died before it was
    /// there.
    pub(crate) fn fill(&mut self) {
        for purpose in self.purposes() {
            if !self.active.contains_key(&purpose) {
                self.activate(purpose);
            }
        }
    }

    /// Takes an NF out of its pool, if another one is in it.
    pub(crate) fn retire(&mut self, at: usize) -> bool {
        let purpose = self.nfs[at].purpose;
        let others = self.nfs.iter().filter(|nf| nf.purpose == purpose && nf.state == State::Active).count();
        if others < 2 || self.nfs[at].state != State::Active {
            return false;
        }
        self.nfs[at].state = State::Idle;
        self.index();
        true
    }

    /// How many NFs of a purpose are active and how many are idle or coming.
    pub(crate) fn count(&self, purpose: Purpose) -> (usize, usize) {
        let of = self.nfs.iter().filter(|nf| nf.purpose == purpose);
        let active = of.clone().filter(|nf| nf.state == State::Active).count();
        (active, of.count() - active)
    }

    /// Looks at the queues, computes what part of its core each NF has, and tells the workers. Only active NFs with work
    /// count; one without has what it would have beside them.
    pub(crate) fn look(&mut self, region: &Region) {
        for nf in &mut self.nfs {
            nf.waiting = nf.queue.len() as u32;
            let word = self.plan.nf_word(nf.place.worker, nf.place.nf, region_layout::NF_WAITED);
            // Where nothing waits, what was last is no measure: its worker may have died over it.
            nf.waited = if nf.waiting == 0 { 0 } else { region.shared_word(word).load(Ordering::Relaxed) };
        }
        let shares = self.shares(|nf| nf.waiting > 0);
        for (nf, share) in self.nfs.iter_mut().zip(shares) {
            nf.share = share;
        }
        self.tell(region);
    }

    /// What part of its core each NF has beside the active ones.
    fn shares(&self, active: impl Fn(&Nf) -> bool) -> Vec<f64> {
        let limits: Vec<f64> = std::iter::once(1.0).chain(self.slices.iter().map(|slice| slice.limit)).collect();
        let least = self.slices.iter().flat_map(|s| s.slo).min().unwrap_or(SliceRuntime::SLO);
        let mut cores: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        (0..self.nfs.len()).for_each(|at| cores.entry(self.core(at)).or_default().push(at));
        let mut all = vec![0.0; self.nfs.len()];
        for together in cores.values() {
            let claim = |at: &usize| {
                let nf = &self.nfs[*at];
                let (slo, slice) = (self.slo(nf.purpose), nf.purpose.slice);
                NfDemand { slo, violations: nf.violations, active: active(nf), slice }
            };
            let claims: Vec<NfDemand> = together.iter().map(claim).collect();
            let total: f64 = claims.iter().filter(|c| c.active).map(|c| c.priority(least)).sum();
            for ((at, claim), share) in together.iter().zip(&claims).zip(shares(&claims, &limits)) {
                let mine = claim.priority(least);
                all[*at] = if claim.active { share } else { (mine / (total + mine)).min(limits[claim.slice]) };
            }
        }
        all
    }

    /// Processors that NFs run on.
    pub(crate) fn processors(&self) -> usize {
        match self.config.cores.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        }
    }

    /// Which core an NF's worker runs on; workers that are not pinned count as alone on one.
    fn core(&self, at: usize) -> usize {
        let worker = usize::from(self.nfs[at].place.worker);
        match self.config.cores.as_slice() {
            [] => worker,
            cores => cores[worker.saturating_sub(1) % cores.len()],
        }
    }

    /// Whether there are numbers for so many workers, and some to replace those that die.
    pub(crate) fn fits(&self, workers: u8) -> bool {
        const SPARE: usize = 8;
        self.first_crew().len() + SPARE <= usize::from(workers.saturating_sub(1))
    }

    /// Tells the workers the shares of their NFs.
    fn tell(&self, region: &Region) {
        for nf in &self.nfs {
            let word = self.plan.nf_word(nf.place.worker, nf.place.nf, region_layout::NF_SHARE);
            region.shared_word(word).store(nf.share.to_bits(), Ordering::Relaxed);
        }
    }

    /// What part of its core each worker's NFs have together that have worked since this was asked last. Not what waits
    /// at the moment: the kernel is told for a long time, in which queues fill and empty many times.
    pub(crate) fn weights(&mut self, region: &Region) -> SmallVec<[(u8, f64); 16]> {
        for nf in &mut self.nfs {
            let word = self.plan.nf_word(nf.place.worker, nf.place.nf, region_layout::NF_BUSY);
            let now = region.shared_word(word).load(Ordering::Relaxed);
            nf.lately = std::mem::replace(&mut nf.worked, now) != now || nf.waiting > 0;
        }
        let shares = self.shares(|nf| nf.lately);
        let mut weights: SmallVec<[(u8, f64); 16]> = SmallVec::new();
        for (nf, share) in self.nfs.iter().zip(shares).filter(|(nf, _)| nf.lately) {
            match weights.iter_mut().find(|(worker, _)| *worker == nf.place.worker) {
                Some((_, sum)) => *sum += share,
                None => weights.push((nf.place.worker, share)),
            }
        }
        weights
    }

    /// Takes the workers' measurements over: `T_t` follows what procedures have cost.
    pub(crate) fn measure(&mut self, region: &Region) {
        for nf in &mut self.nfs {
            let word = |word| {
                region.shared_word(self.plan.nf_word(nf.place.worker, nf.place.nf, word)).load(Ordering::Relaxed)
            };
            let now = (word(region_layout::NF_BUSY), word(region_layout::NF_PROCEDURES));
            let (busy, procedures) = (now.0.wrapping_sub(nf.seen.0), now.1.wrapping_sub(nf.seen.1));
            if procedures < 4 {
                continue;
            }
            nf.seen = now;
            if let Some(time) = self.times.get_mut(&nf.purpose) {
                time.measured(busy / procedures);
            }
        }
    }

    /// `T_t` of a purpose.
    pub(crate) fn time(&self, purpose: Purpose) -> ServiceTime {
        self.times.get(&purpose).copied().unwrap_or(ServiceTime::new(FIRST_GUESS))
    }

    /// Sets `T_t` of every purpose to what this machine was calibrated to.
    pub(crate) fn calibrate(&mut self, nanos: impl Fn(Purpose) -> u64) {
        for (purpose, time) in &mut self.times {
            *time = ServiceTime::new(nanos(*purpose));
        }
    }

    /// The NF of a pin, if it is still in a pool.
    pub(crate) fn by_pin(&self, pin: u64) -> Option<NfChoice> {
        let place = pinned(pin)?;
        let at = self.places.get(self.number(place)).copied()??;
        (self.nfs[at].state == State::Active).then_some(NfChoice { place, at, violation: false })
    }

    /// The NF for a procedure of this kind. `key` is one of the UE.
    pub(crate) fn choose(&mut self, slice: usize, kind: NfKind, key: u64) -> Option<NfChoice> {
        let purpose = self.purpose(slice, kind);
        let of = self.active.get(&purpose)?;
        let pool: SmallVec<[NfLoad; 8]> = of
            .iter()
            .map(|at| {
                let nf = &self.nfs[*at];
                NfLoad { queue: nf.queue.len() as u32, share: nf.share, id: pin(nf.place.worker, nf.place.nf) }
            })
            .collect();
        let policy = if slice == 0 && self.config.key == PoolKey::SliceProcedure {
            dispatch::Policy::ShortestQueue
        } else {
            self.config.intra
        };
        self.turn += 1;
        let choice = dispatch::select_nf(policy, &pool, self.time(purpose), self.slo(purpose), self.turn, key)?;
        let at = of[choice.nf];
        Some(NfChoice { place: self.nfs[at].place, at, violation: choice.violation })
    }

    /// A procedure that was sent there is late.
    pub(crate) fn record_violation(&mut self, at: usize) {
        if let Some(nf) = self.nfs.get_mut(at) {
            nf.violations = nf.violations.saturating_add(1);
            nf.recent = nf.recent.saturating_add(1);
            nf.violated += 1;
        }
    }

    /// The violations of each active NF since they were asked for last.
    pub(crate) fn take_violations(&mut self) -> Vec<(usize, u32)> {
        let active = self.nfs.iter_mut().enumerate().filter(|(_, nf)| nf.state == State::Active);
        let taken = active.map(|(at, nf)| {
            if nf.recent == 0 {
                // What helped is not needed for ever.
                nf.violations -= nf.violations.min(nf.violations / 8 + 1);
            }
            (at, std::mem::take(&mut nf.recent))
        });
        taken.filter(|(_, recent)| *recent > 0).collect()
    }

    /// How long what the latest NF does now has waited, as last looked at.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration(self.nfs.iter().map(|nf| nf.waited).max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::region::RegionConfig;

    #[test]
    fn wait_of_a_dead_worker_is_reset() {
        let plan = RegionLayout { nfs: 1 };
        let (rings, board) = plan.sizes(2);
        let region = Region::create(RegionConfig { rings, board, ..RegionConfig::new(4, 3, 32 << 20) }).expect("room");
        let mut pools = Pools::new(PoolsConfig::default(), Vec::new(), plan);
        let purposes = [(Purpose { slice: 0, kind: None }, true)];
        pools.enter(&region, 1, &purposes);
        pools.up(1);
        let waited = region.shared_word(plan.nf_word(1, 0, region_layout::NF_WAITED));
        waited.store(5_000_000, Ordering::Relaxed);
        pools.look(&region);
        assert_eq!(pools.longest_wait(), Duration(0), "an empty queue has no wait, whatever the last event waited");
        pools.nfs[0].queue.push(1).expect("room");
        pools.look(&region);
        assert_eq!(pools.longest_wait(), Duration(5_000_000));
        // The worker dies over it; its successor has done nothing yet.
        let lost = pools.down(1);
        pools.enter(&region, 1, &lost);
        pools.forget_worker(&region, 1);
        pools.look(&region);
        assert_eq!(pools.longest_wait(), Duration(0));
    }
}
