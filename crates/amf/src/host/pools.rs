//! NF pools: NFs of a host by pool, and the selection of an NF.
//!
//! The selection is Algorithm 2 of MMLite. An NF is one queue of a worker process. It is active (in
//! a pool) or idle (started, and ready to be put into a pool).

use crate::worker::region_layout::{self, RegionLayout};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use vireo_core::schedule::dispatch::{self, NfLoad};
use vireo_core::schedule::estimate::ServiceTime;
use vireo_core::schedule::kind::NfKind;
use vireo_core::schedule::shares::{NfDemand, ShareLimits, shares};
use vireo_ops::config::{NF_KINDS, PoolKey, PoolsConfig, SliceRuntime, WorkerModel};
use vireo_store::region::{Region, Ring};
use vireo_types::Duration;

/// Pool of NFs: slice (0 = not known yet, else 1 + its position) and kind of procedure; no kind for
/// unified NFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolId {
    pub(crate) slice: usize,
    pub(crate) kind: Option<NfKind>,
}

/// Worker number and index of an NF in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NfId {
    pub(crate) worker: u8,
    pub(crate) nf: u8,
}

/// State of an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NfState {
    /// The worker process is starting.
    Starting {
        /// True if the NF joins its pool at once.
        active: bool,
    },
    Idle,
    Active,
}

/// One NF of a host.
#[derive(Debug)]
pub(crate) struct Nf {
    pub(crate) id: NfId,
    pub(crate) pool_id: PoolId,
    pub(crate) state: NfState,
    pub(crate) queue: Ring,
    /// Number of items in its queue at the last poll.
    waiting: u32,
    /// Queueing time of its current event in microseconds; 0 if no item waits.
    waited: u64,
    /// `C_i` at the last computation.
    pub(crate) share: f64,
    /// Violations: those that raise its priority, those since the last query, and all.
    violations: u32,
    recent: u32,
    pub(crate) violated: u64,
    /// Counters of the worker at the last measurement: busy nanoseconds, procedures.
    measured: (u64, u64),
    /// Busy nanoseconds at the last computation of the weights, and true if they grew since the one
    /// before.
    worked: u64,
    recently_busy: bool,
}

/// Initial value of `T_t` in nanoseconds: a procedure of a few messages.
const FIRST_GUESS: u64 = 40_000;

fn nf_of_pin(pin: u64) -> Option<NfId> {
    let id = pin.checked_sub(1)?;
    Some(NfId { worker: u8::try_from(id >> 8).ok()?, nf: id as u8 })
}

/// Result of the NF selection for a procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NfChoice {
    pub(crate) id: NfId,
    /// Index in the list of NFs.
    pub(crate) at: usize,
    /// True if the procedure would miss its latency objective.
    pub(crate) violation: bool,
}

/// All NFs of a host.
#[derive(Debug)]
pub(crate) struct Pools {
    config: PoolsConfig,
    slices: Vec<SliceRuntime>,
    plan: RegionLayout,
    nfs: Vec<Nf>,
    /// Active NFs by pool, and NFs by id. Both are rebuilt whenever an NF changes.
    active: FxHashMap<PoolId, SmallVec<[usize; 4]>>,
    positions: Vec<Option<usize>>,
    /// Estimated service time `T_t` (MMLite) of each pool.
    times: FxHashMap<PoolId, ServiceTime>,
    round_robin: u64,
}

impl Pools {
    pub(crate) fn new(config: PoolsConfig, slices: Vec<SliceRuntime>, plan: RegionLayout) -> Self {
        let mut pools = Pools {
            config,
            slices,
            plan,
            nfs: Vec::new(),
            active: FxHashMap::default(),
            positions: Vec::new(),
            times: FxHashMap::default(),
            round_robin: 0,
        };
        pools.times = pools.pool_ids().into_iter().map(|p| (p, ServiceTime::new(FIRST_GUESS))).collect();
        pools
    }

    /// Rebuilds the indexes after a change of an NF.
    fn index(&mut self) {
        self.active.clear();
        self.positions.clear();
        for (at, nf) in self.nfs.iter().enumerate() {
            let id = self.number(nf.id);
            if self.positions.len() <= id {
                self.positions.resize(id + 1, None);
            }
            self.positions[id] = Some(at);
            if nf.state == NfState::Active {
                self.active.entry(nf.pool_id).or_default().push(at);
            }
        }
    }

    fn number(&self, id: NfId) -> usize {
        usize::from(id.worker) * usize::from(self.plan.nfs) + usize::from(id.nf)
    }

    /// Returns the NF with this id.
    pub(crate) fn nf(&self, id: NfId) -> Option<&Nf> {
        self.nfs.get(self.positions.get(self.number(id)).copied()??)
    }

    /// Returns all pools that the configuration requires.
    pub(crate) fn pool_ids(&self) -> Vec<PoolId> {
        pool_ids(self.config.key, self.slices.len())
    }

    pub(crate) fn pool_id(&self, slice: usize, kind: NfKind) -> PoolId {
        match (self.config.key, slice) {
            (PoolKey::Wildcard, _) => PoolId { slice: 0, kind: None },
            (_, 0) if kind == NfKind::StateManagement => PoolId { slice, kind: Some(kind) },
            (_, 0) => PoolId { slice, kind: Some(NfKind::Registration) },
            _ => PoolId { slice, kind: Some(kind) },
        }
    }

    /// Returns the NFs of the first workers. Active and idle NFs are in different workers, so that
    /// no worker's death takes both.
    pub(crate) fn first_workers(&self) -> Vec<Vec<(PoolId, bool)>> {
        let (each, pool_ids) = (usize::from(self.config.nfs_per_worker.max(1)), self.pool_ids());
        if self.config.worker_model == WorkerModel::Inline {
            return vec![pool_ids.into_iter().map(|pool_id| (pool_id, true)).collect()];
        }
        let actives = match self.config.key {
            PoolKey::SliceProcedure => 1,
            PoolKey::Wildcard if self.config.workers > 0 => usize::from(self.config.workers),
            PoolKey::Wildcard => self.processors(),
        };
        let chunks_of = |count: usize, active: bool| -> Vec<Vec<(PoolId, bool)>> {
            let nfs: Vec<_> = pool_ids.iter().flat_map(|p| std::iter::repeat_n((*p, active), count)).collect();
            // Unified NFs exist to use several processors: each has its own worker.
            let each = if self.config.key == PoolKey::Wildcard { 1 } else { each };
            nfs.chunks(each).map(<[_]>::to_vec).collect()
        };
        let mut workers = chunks_of(actives, true);
        workers.extend(chunks_of(usize::from(self.config.idle), false));
        workers
    }

    pub(crate) fn slice(&self, slice: usize) -> Option<&SliceRuntime> {
        self.slices.get(slice.checked_sub(1)?)
    }

    /// Returns the slices.
    pub(crate) fn slices(&self) -> &[SliceRuntime] {
        &self.slices
    }

    /// Changes settings of the slices. The set of slices stays the same.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut [SliceRuntime])) {
        change(&mut self.slices);
    }

    /// Returns the latency objective of a pool. That of slice 0 is the strictest of all slices.
    pub(crate) fn slo(&self, pool_id: PoolId) -> Duration {
        let of = |slice: &SliceRuntime| match pool_id.kind {
            Some(kind) => slice.slo[kind as usize % NF_KINDS],
            None => slice.slo.iter().copied().min().unwrap_or(SliceRuntime::SLO),
        };
        match self.slice(pool_id.slice) {
            Some(slice) => of(slice),
            None => self.slices.iter().map(of).min().unwrap_or(SliceRuntime::SLO),
        }
    }

    /// Adds the NFs of a worker that is starting.
    pub(crate) fn add_worker(&mut self, region: &Region, worker: u8, pool_ids: &[(PoolId, bool)]) {
        for (n, (pool_id, active)) in pool_ids.iter().enumerate() {
            let id = NfId { worker, nf: n as u8 };
            let word = |word| region.shared_word(self.plan.nf_word(worker, id.nf, word)).load(Ordering::Relaxed);
            self.nfs.push(Nf {
                id,
                pool_id: *pool_id,
                state: NfState::Starting { active: *active },
                queue: self.plan.queue(region, worker, id.nf),
                waiting: 0,
                waited: 0,
                share: 1.0,
                violations: 0,
                recent: 0,
                violated: 0,
                measured: (word(region_layout::NF_BUSY), word(region_layout::NF_PROCEDURES)),
                worked: word(region_layout::NF_BUSY),
                recently_busy: false,
            });
        }
        self.index();
        self.publish_shares(region);
    }

    /// Resets the shared words of a dead worker: the UE in progress and its queueing time.
    pub(crate) fn forget_worker(&self, region: &Region, worker: u8) {
        region.shared_word(self.plan.nf_word(worker, 0, region_layout::NF_SERVING)).store(0, Ordering::Relaxed);
        for nf in 0..self.plan.nfs {
            region.shared_word(self.plan.nf_word(worker, nf, region_layout::NF_WAITED)).store(0, Ordering::Relaxed);
        }
    }

    /// Makes the NFs of a started worker active or idle.
    pub(crate) fn on_worker_started(&mut self, worker: u8) {
        for nf in self.nfs.iter_mut().filter(|nf| nf.id.worker == worker) {
            if let NfState::Starting { active } = nf.state {
                nf.state = if active { NfState::Active } else { NfState::Idle };
            }
        }
        self.index();
    }

    /// Removes the NFs of a worker. Returns their pools; true for active ones.
    pub(crate) fn remove_worker(&mut self, worker: u8) -> Vec<(PoolId, bool)> {
        let gone = self.nfs.extract_if(.., |nf| nf.id.worker == worker);
        let gone = gone
            .map(|nf| (nf.pool_id, matches!(nf.state, NfState::Active | NfState::Starting { active: true })))
            .collect();
        self.index();
        gone
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Nf> {
        self.nfs.iter()
    }

    /// Puts an idle NF into its pool. Returns its id, or `None` if no NF is idle.
    pub(crate) fn activate(&mut self, pool_id: PoolId) -> Option<NfId> {
        let nf = self.nfs.iter_mut().find(|nf| nf.pool_id == pool_id && nf.state == NfState::Idle)?;
        nf.state = NfState::Active;
        nf.violations = 0;
        let id = nf.id;
        self.index();
        Some(id)
    }

    /// Puts an idle NF into each empty pool, also one planned as idle: the planned active NF may
    /// have died during its start.
    pub(crate) fn fill(&mut self) {
        for pool_id in self.pool_ids() {
            if !self.active.contains_key(&pool_id) {
                self.activate(pool_id);
            }
        }
    }

    /// Removes an NF from its pool. Returns false if it is the only one.
    pub(crate) fn retire(&mut self, at: usize) -> bool {
        let pool_id = self.nfs[at].pool_id;
        let others = self.nfs.iter().filter(|nf| nf.pool_id == pool_id && nf.state == NfState::Active).count();
        if others < 2 || self.nfs[at].state != NfState::Active {
            return false;
        }
        self.nfs[at].state = NfState::Idle;
        self.index();
        true
    }

    /// Returns a worker that can be switched off: all its NFs are idle, and each of their pools has
    /// enough other idle NFs (MMLite, section 5.3).
    pub(crate) fn unneeded_worker(&self) -> Option<u8> {
        let spare = usize::from(self.config.idle);
        let is_unneeded = |worker: u8| {
            let others = |pool_id| {
                let of = |nf: &&Nf| nf.pool_id == pool_id && nf.state == NfState::Idle && nf.id.worker != worker;
                self.nfs.iter().filter(of).count()
            };
            self.nfs
                .iter()
                .filter(|nf| nf.id.worker == worker)
                .all(|nf| nf.state == NfState::Idle && nf.queue.is_empty() && others(nf.pool_id) >= spare)
        };
        self.nfs.iter().map(|nf| nf.id.worker).find(|worker| is_unneeded(*worker))
    }

    /// Returns the number of active NFs of a pool, and of idle or starting ones.
    pub(crate) fn count(&self, pool_id: PoolId) -> (usize, usize) {
        let of = self.nfs.iter().filter(|nf| nf.pool_id == pool_id);
        let active = of.clone().filter(|nf| nf.state == NfState::Active).count();
        (active, of.count() - active)
    }

    /// Reads the queues, computes the CPU share of each NF and publishes it to the workers. Active
    /// NFs with work share a core. An NF without work gets the share that it would have beside
    /// them.
    pub(crate) fn update_shares(&mut self, region: &Region) {
        for nf in &mut self.nfs {
            nf.waiting = nf.queue.len() as u32;
            let word = self.plan.nf_word(nf.id.worker, nf.id.nf, region_layout::NF_WAITED);
            // Without a queue the last value means nothing: its worker may have died during that
            // event.
            nf.waited = if nf.waiting == 0 { 0 } else { region.shared_word(word).load(Ordering::Relaxed) };
        }
        let shares = self.shares(|nf| nf.waiting > 0);
        for (nf, share) in self.nfs.iter_mut().zip(shares) {
            nf.share = share;
        }
        self.publish_shares(region);
    }

    /// Returns the share of its core that each NF has beside the active ones.
    fn shares(&self, active: impl Fn(&Nf) -> bool) -> Vec<f64> {
        let of = |slice: &SliceRuntime| ShareLimits { lower: slice.guarantee, upper: slice.limit };
        let limits: Vec<ShareLimits> =
            std::iter::once(ShareLimits::default()).chain(self.slices.iter().map(of)).collect();
        let least = self.slices.iter().flat_map(|s| s.slo).min().unwrap_or(SliceRuntime::SLO);
        let mut cores: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        (0..self.nfs.len()).for_each(|at| cores.entry(self.core(at)).or_default().push(at));
        let mut all = vec![0.0; self.nfs.len()];
        for together in cores.values() {
            let claim = |at: &usize| {
                let nf = &self.nfs[*at];
                let (slo, slice) = (self.slo(nf.pool_id), nf.pool_id.slice);
                NfDemand { slo, violations: nf.violations, active: active(nf), slice }
            };
            let claims: Vec<NfDemand> = together.iter().map(claim).collect();
            let total: f64 = claims.iter().filter(|c| c.active).map(|c| c.priority(least)).sum();
            for ((at, claim), share) in together.iter().zip(&claims).zip(shares(&claims, &limits)) {
                let mine = claim.priority(least);
                let ShareLimits { lower, upper } = limits[claim.slice];
                all[*at] = if claim.active { share } else { (mine / (total + mine)).clamp(lower.min(upper), upper) };
            }
        }
        all
    }

    /// Returns the number of processors that NFs run on.
    pub(crate) fn processors(&self) -> usize {
        match self.config.cores.len() {
            _ if self.config.worker_model == WorkerModel::Inline => 1,
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        }
    }

    /// Returns the core of an NF's worker. An unpinned worker counts as alone on a core.
    fn core(&self, at: usize) -> usize {
        let worker = usize::from(self.nfs[at].id.worker);
        match self.config.cores.as_slice() {
            [] => worker,
            cores => cores[worker.saturating_sub(1) % cores.len()],
        }
    }

    /// Returns true if this number of workers suffices for the first ones and spare ones.
    pub(crate) fn fits_in_workers(&self, workers: u8) -> bool {
        const SPARE: usize = 8;
        self.first_workers().len() + SPARE <= usize::from(workers.saturating_sub(1))
    }

    /// Publishes the shares of the NFs to the workers.
    fn publish_shares(&self, region: &Region) {
        for nf in &self.nfs {
            let word = self.plan.nf_word(nf.id.worker, nf.id.nf, region_layout::NF_SHARE);
            region.shared_word(word).store(nf.share.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the total share of each worker's NFs that have worked since the last call. Current
    /// queues are ignored: a weight lasts long, and queues fill and empty many times meanwhile.
    pub(crate) fn weights(&mut self, region: &Region) -> SmallVec<[(u8, f64); 16]> {
        for nf in &mut self.nfs {
            let word = self.plan.nf_word(nf.id.worker, nf.id.nf, region_layout::NF_BUSY);
            let now = region.shared_word(word).load(Ordering::Relaxed);
            nf.recently_busy = std::mem::replace(&mut nf.worked, now) != now || nf.waiting > 0;
        }
        let shares = self.shares(|nf| nf.recently_busy);
        let mut weights: SmallVec<[(u8, f64); 16]> = SmallVec::new();
        for (nf, share) in self.nfs.iter().zip(shares).filter(|(nf, _)| nf.recently_busy) {
            match weights.iter_mut().find(|(worker, _)| *worker == nf.id.worker) {
                Some((_, sum)) => *sum += share,
                None => weights.push((nf.id.worker, share)),
            }
        }
        weights
    }

    /// Reads the measurements of the workers and updates `T_t`.
    pub(crate) fn measure(&mut self, region: &Region) {
        for nf in &mut self.nfs {
            let word =
                |word| region.shared_word(self.plan.nf_word(nf.id.worker, nf.id.nf, word)).load(Ordering::Relaxed);
            let now = (word(region_layout::NF_BUSY), word(region_layout::NF_PROCEDURES));
            let (busy, procedures) = (now.0.wrapping_sub(nf.measured.0), now.1.wrapping_sub(nf.measured.1));
            if procedures < 4 {
                continue;
            }
            nf.measured = now;
            if let Some(time) = self.times.get_mut(&nf.pool_id) {
                time.add_measurement(busy / procedures);
            }
        }
    }

    /// Returns `T_t` of a pool.
    pub(crate) fn time(&self, pool_id: PoolId) -> ServiceTime {
        self.times.get(&pool_id).copied().unwrap_or(ServiceTime::new(FIRST_GUESS))
    }

    /// Sets `T_t` of every pool to the calibration of this machine.
    pub(crate) fn calibrate(&mut self, nanos: impl Fn(PoolId) -> u64) {
        for (pool_id, time) in &mut self.times {
            *time = ServiceTime::new(nanos(*pool_id));
        }
    }

    /// Returns the NF of a pin if it is active.
    pub(crate) fn by_pin(&self, pin: u64) -> Option<NfChoice> {
        let id = nf_of_pin(pin)?;
        let at = self.positions.get(self.number(id)).copied()??;
        (self.nfs[at].state == NfState::Active).then_some(NfChoice { id, at, violation: false })
    }

    /// Selects the NF for a procedure. `key` identifies the UE.
    pub(crate) fn choose(&mut self, slice: usize, kind: NfKind, key: u64) -> Option<NfChoice> {
        let pool_id = self.pool_id(slice, kind);
        let of = self.active.get(&pool_id)?;
        let pool: SmallVec<[NfLoad; 8]> = of
            .iter()
            .map(|at| {
                let nf = &self.nfs[*at];
                NfLoad {
                    queue: nf.queue.len() as u32,
                    share: nf.share,
                    id: region_layout::nf_pin(nf.id.worker, nf.id.nf),
                }
            })
            .collect();
        let policy = if slice == 0 && self.config.key == PoolKey::SliceProcedure {
            dispatch::Policy::ShortestQueue
        } else {
            self.config.intra
        };
        self.round_robin += 1;
        let choice = dispatch::select_nf(policy, &pool, self.time(pool_id), self.slo(pool_id), self.round_robin, key)?;
        let at = of[choice.nf];
        Some(NfChoice { id: self.nfs[at].id, at, violation: choice.violation })
    }

    /// Counts a procedure of an NF that will miss its objective.
    pub(crate) fn record_violation(&mut self, at: usize) {
        if let Some(nf) = self.nfs.get_mut(at) {
            nf.violations = nf.violations.saturating_add(1);
            nf.recent = nf.recent.saturating_add(1);
            nf.violated += 1;
        }
    }

    /// Returns and resets the recent violations of each active NF.
    pub(crate) fn take_violations(&mut self) -> Vec<(usize, u32)> {
        let active = self.nfs.iter_mut().enumerate().filter(|(_, nf)| nf.state == NfState::Active);
        let taken = active.map(|(at, nf)| {
            if nf.recent == 0 {
                // A raised priority decays.
                nf.violations -= nf.violations.min(nf.violations / 8 + 1);
            }
            (at, std::mem::take(&mut nf.recent))
        });
        taken.filter(|(_, recent)| *recent > 0).collect()
    }

    /// Returns the longest queueing time of all current events at the last poll.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration(self.nfs.iter().map(|nf| nf.waited).max().unwrap_or(0))
    }
}

/// Returns the pools of a host with this number of slices.
fn pool_ids(key: PoolKey, slices: usize) -> Vec<PoolId> {
    if key == PoolKey::Wildcard {
        return vec![PoolId { slice: 0, kind: None }];
    }
    // UEs of unknown slice only need NFs for first messages and for the rest.
    let first = [NfKind::Registration, NfKind::StateManagement].map(|kind| PoolId { slice: 0, kind: Some(kind) });
    let slices = (1..=slices).flat_map(|slice| NfKind::ALL.iter().map(move |kind| PoolId { slice, kind: Some(*kind) }));
    first.into_iter().chain(slices).collect()
}

/// Returns the maximum number of NFs in one worker of a host with this number of slices.
pub(crate) fn nfs_per_worker(config: &PoolsConfig, slices: usize) -> u8 {
    match config.worker_model {
        WorkerModel::Processes => config.nfs_per_worker.max(1),
        WorkerModel::Inline => u8::try_from(pool_ids(config.key, slices).len()).unwrap_or(u8::MAX),
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
        let pool_ids = [(PoolId { slice: 0, kind: None }, true)];
        pools.add_worker(&region, 1, &pool_ids);
        pools.on_worker_started(1);
        let waited = region.shared_word(plan.nf_word(1, 0, region_layout::NF_WAITED));
        waited.store(5_000_000, Ordering::Relaxed);
        pools.update_shares(&region);
        assert_eq!(pools.longest_wait(), Duration(0), "an empty queue has no wait, whatever the last event waited");
        pools.nfs[0].queue.push(1).expect("room");
        pools.update_shares(&region);
        assert_eq!(pools.longest_wait(), Duration(5_000_000));
        // The worker dies during the event; its successor has done nothing yet.
        let lost = pools.remove_worker(1);
        pools.add_worker(&region, 1, &lost);
        pools.forget_worker(&region, 1);
        pools.update_shares(&region);
        assert_eq!(pools.longest_wait(), Duration(0));
    }

    #[test]
    fn worker_with_spare_idle_nfs_is_unneeded() {
        let plan = RegionLayout { nfs: 2 };
        let (rings, board) = plan.sizes(4);
        let region = Region::create(RegionConfig { rings, board, ..RegionConfig::new(4, 5, 32 << 20) }).expect("room");
        let mut pools = Pools::new(PoolsConfig { idle: 1, ..PoolsConfig::default() }, Vec::new(), plan);
        let [one, other] =
            [NfKind::Registration, NfKind::StateManagement].map(|kind| PoolId { slice: 0, kind: Some(kind) });
        pools.add_worker(&region, 1, &[(one, true), (other, true)]);
        pools.add_worker(&region, 2, &[(one, false), (other, false)]);
        (1..=2).for_each(|worker| pools.on_worker_started(worker));
        assert_eq!(pools.unneeded_worker(), None, "one idle NF of each kind is needed");
        pools.add_worker(&region, 3, &[(one, false)]);
        assert_eq!(pools.unneeded_worker(), None, "it is starting");
        pools.on_worker_started(3);
        assert_eq!(pools.unneeded_worker(), Some(3));
        let active = pools.activate(one).expect("an idle NF");
        assert_eq!((active.worker, pools.unneeded_worker()), (2, None));
        pools.remove_worker(2);
        pools.add_worker(&region, 2, &[(other, false)]);
        pools.on_worker_started(2);
        assert_eq!(pools.unneeded_worker(), None, "each is the only idle one");
    }
}
