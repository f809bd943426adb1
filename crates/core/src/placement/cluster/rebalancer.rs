//! Rebalancer: weights of hosts by their load.
//!
//! A host of weight 1 has [`VIRTUAL_NODES`] points on the ring of buckets. Hosts whose load is
//! above the mean get fewer points, the others more. The decision is a pure function of load
//! reports:
//!
//! - Reports are smoothed. They count from the end of the last migration on, so that each decision
//!   sees the effect of the one before.
//! - Changes begin when the loads have differed by more than a dead band without interruption for
//!   the pause. They end at a lower spread, so that noise does not start them again.
//! - A change is damped, limited per step and in total, and a whole number of quanta. Points of a
//!   host are always the same ones, so that a small change moves few buckets.
//! - Some points have many buckets. Therefore the change is, of several sizes, the one after which
//!   the spread is the lowest if all buckets of a host have the same load. If it is not lower than
//!   before, nothing changes.
//! - A change that has not reduced the spread of the loads doubles the pauses and halves the gains
//!   until changes end, which is then at the dead band. A few buckets with much load would
//!   otherwise move back and forth.

use crate::placement::balance::HostId;
use crate::placement::balance::ring::VIRTUAL_NODES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use vireo_types::{Duration, Instant};

/// Number of points of a host of weight 1.
const ONE: u16 = VIRTUAL_NODES as u16;
/// Range of a host's points: weights of 1/4 to 4.
const POINTS: RangeInclusive<u16> = ONE / 4..=4 * ONE;
/// Number of points of which changed weights are multiples.
const QUANTUM: u16 = 2;
/// Candidates for the exponent of the ratio of mean load and load, the part of a deviation that a
/// step removes.
const GAINS: [f32; 4] = [0.15, 0.3, 0.5, 0.7];
/// Maximum factor of one step, and its reciprocal the minimum.
const MAX_STEP_FACTOR: f32 = 1.25;
/// Spread (highest minus lowest load) up to which no change begins.
const BEGIN: Threshold = Threshold { relative: 0.1, absolute: 0.05 };
/// Spread at which changes end.
const END: Threshold = Threshold { relative: 0.06, absolute: 0.03 };
/// Part of a new report in the smoothed load.
const SMOOTHING: f32 = 0.5;
/// Number of reports of each host that a decision needs.
const REPORTS: u32 = 2;
/// Age from which a load report is ignored.
const MAX_REPORT_AGE: Duration = Duration::from_secs(2);
/// Fraction of the spread at the last change above which that change has not helped.
const FUTILE_FRACTION: f32 = 0.9;
/// Maximum number of changes that have not helped that count: the pause is at most 16 times as
/// long, the gain as small.
const MAX_FUTILE_CHANGES: u32 = 4;

/// Spread up to which loads count as equal.
struct Threshold {
    /// Part of the mean load.
    relative: f32,
    /// CPU use. At low rates a message costs several times as much, so that the loads of nearly
    /// idle hosts are not comparable.
    absolute: f32,
}

impl Threshold {
    fn covers(&self, spread: f32, mean: f32) -> bool {
        spread <= self.absolute.max(self.relative * mean)
    }
}

/// Number of points of each host.
pub type Points = BTreeMap<HostId, u16>;

/// Change of the weights of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebalance {
    /// Mean load (CPU use, 0 to 1) of the hosts, and highest minus lowest load.
    pub mean: f32,
    pub spread: f32,
    /// New weight of each host.
    pub weights: Vec<(HostId, f32)>,
}

/// Load of a host since the last migration.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// CPU use, 0 to 1, smoothed.
    cpu: f32,
    reports: u32,
    at: Instant,
}

/// Loads that require a change.
struct Imbalance {
    loads: Vec<(HostId, f32)>,
    mean: f32,
    spread: f32,
}

/// State of the rebalancer.
#[derive(Clone, Debug)]
pub struct Rebalancer {
    /// Minimum time between the end of a migration and the next change.
    pause: Duration,
    points: Points,
    loads: BTreeMap<HostId, Load>,
    /// Start of the uninterrupted period in which loads differ.
    uneven_since: Option<Instant>,
    /// Spread relative to the mean at the last change, while changes have not ended.
    last_spread: Option<f32>,
    /// Number of changes that have not helped, while changes have not ended.
    futile: u32,
    /// Last change, until the caller reads it.
    done: Option<Rebalance>,
}

impl Rebalancer {
    /// Creates the rebalancer of a cluster without hosts.
    pub fn new(pause: Duration) -> Self {
        Rebalancer {
            pause,
            points: Points::new(),
            loads: BTreeMap::new(),
            uneven_since: None,
            last_spread: None,
            futile: 0,
            done: None,
        }
    }

    /// Returns the points of all hosts.
    pub fn points(&self) -> &Points {
        &self.points
    }

    /// Returns the weight of a host.
    pub fn weight(&self, host: HostId) -> f64 {
        f64::from(self.points.get(&host).copied().unwrap_or(ONE)) / f64::from(ONE)
    }

    /// Adopts the points of a previous controller.
    pub(super) fn adopt(&mut self, points: Points) {
        self.points = points.into_iter().map(|(host, points)| (host, clamp_points(points.into()))).collect();
    }

    /// Returns the range of points that hosts may have.
    pub(super) fn range() -> RangeInclusive<u32> {
        u32::from(*POINTS.start())..=u32::from(*POINTS.end())
    }

    /// Sets the hosts of the next map. New ones get the mean weight of the others: their share of
    /// the buckets is that of a cluster of equal hosts.
    pub fn set_hosts(&mut self, hosts: &BTreeSet<HostId>) {
        if self.points.len() == hosts.len() && self.points.keys().eq(hosts) {
            return;
        }
        self.points.retain(|host, _| hosts.contains(host));
        let sum: f32 = self.points.values().map(|points| f32::from(*points)).sum();
        let mean = if self.points.is_empty() { f32::from(ONE) } else { sum / self.points.len() as f32 };
        for host in hosts {
            self.points.entry(*host).or_insert_with(|| quantise(mean));
        }
        (self.last_spread, self.futile) = (None, 0);
        self.reset();
    }

    /// Stores the load report of a host.
    pub fn on_load_report(&mut self, host: HostId, cpu: f32, now: Instant) {
        // A host may send anything.
        if !cpu.is_finite() {
            return;
        }
        let cpu = cpu.clamp(0.0, 1.0);
        let load = self.loads.entry(host).or_insert(Load { cpu, reports: 0, at: now });
        *load = Load { cpu: load.cpu + SMOOTHING * (cpu - load.cpu), reports: load.reports + 1, at: now };
    }

    /// Removes all load reports: hosts join, leave or migrate buckets, and their load is not
    /// representative.
    pub fn reset(&mut self) {
        self.loads.clear();
        self.uneven_since = None;
    }

    /// Changes the weights of these hosts, which are all of the map, if their loads differ for long
    /// enough. Returns true if any weight changes. `owners` returns the owner of each bucket by the
    /// points of hosts. No host loses its last bucket.
    pub fn rebalance(
        &mut self,
        hosts: &BTreeSet<HostId>,
        now: Instant,
        owners: impl Fn(&Points) -> Vec<HostId>,
    ) -> bool {
        let Some(Imbalance { loads, mean, spread }) = self.due(hosts, now) else { return false };
        let before = owners(&self.points);
        let candidates = GAINS.iter().filter_map(|gain| {
            let mut next = self.next_points(&loads, mean, gain / (1 << self.futile) as f32);
            let bare: Vec<HostId> = without_buckets(&before, &owners(&next)).collect();
            next.extend(bare.iter().map(|host| (*host, self.points[host])));
            let after = owners(&next);
            let is_valid = next != self.points && without_buckets(&before, &after).next().is_none();
            is_valid.then(|| (predicted_spread(&loads, &before, &after), next))
        });
        let best = candidates.min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, next)) = best.filter(|(predicted, _)| *predicted < spread) else { return false };
        self.points = next;
        let weights = hosts.iter().map(|host| (*host, self.weight(*host) as f32)).collect();
        self.done = Some(Rebalance { mean, spread, weights });
        true
    }

    /// Returns the loads of the hosts if they require a change now. A host without recent reports
    /// prevents it.
    fn due(&mut self, hosts: &BTreeSet<HostId>, now: Instant) -> Option<Imbalance> {
        let recent = |load: &&Load| load.reports >= REPORTS && now.since(load.at) < MAX_REPORT_AGE;
        let load = |host: &HostId| Some((*host, self.loads.get(host).filter(recent)?.cpu));
        let loads: Option<Vec<(HostId, f32)>> = hosts.iter().map(load).collect();
        let Some(loads) = loads.filter(|loads| loads.len() > 1) else {
            self.uneven_since = None;
            return None;
        };
        let mean = loads.iter().map(|(_, cpu)| cpu).sum::<f32>() / loads.len() as f32;
        let spread = spread(loads.iter().map(|(_, cpu)| *cpu));
        let threshold = if self.last_spread.is_some() { END } else { BEGIN };
        if threshold.covers(spread, mean) {
            self.end();
            return None;
        }
        let since = *self.uneven_since.get_or_insert(now);
        if now.since(since).0 < self.pause.0 << self.futile {
            return None;
        }
        let relative = spread / mean;
        let has_helped = self.last_spread.is_none_or(|last| relative < FUTILE_FRACTION * last);
        if (!has_helped || self.futile > 0) && BEGIN.covers(spread, mean) {
            self.end();
            return None;
        }
        self.futile = (self.futile + u32::from(!has_helped)).min(MAX_FUTILE_CHANGES);
        (self.uneven_since, self.last_spread) = (None, Some(relative));
        Some(Imbalance { loads, mean, spread })
    }

    /// Ends the changes: the loads differ little.
    fn end(&mut self) {
        (self.uneven_since, self.last_spread, self.futile) = (None, None, 0);
    }

    /// Returns the points of hosts with these loads after one step.
    fn next_points(&self, loads: &[(HostId, f32)], mean: f32, gain: f32) -> Points {
        let points = |host: &HostId| f32::from(self.points.get(host).copied().unwrap_or(ONE));
        let step = |(host, cpu): &(HostId, f32)| {
            let factor = (mean / cpu).powf(gain).clamp(MAX_STEP_FACTOR.recip(), MAX_STEP_FACTOR);
            (*host, points(host) * factor)
        };
        let wanted: Vec<(HostId, f32)> = loads.iter().map(step).collect();
        // The sum stays: only ratios matter, and a drift would move buckets and end at a limit.
        let sum: f32 = loads.iter().map(|(host, _)| points(host)).sum();
        let scale = sum / wanted.iter().map(|(_, wanted)| wanted).sum::<f32>();
        let is_small = |host: &HostId, wanted: f32| (wanted - points(host)).abs() < f32::from(QUANTUM) / 2.0;
        let changed = wanted.iter().map(|(host, wanted)| (host, wanted * scale));
        let changed = changed.filter(|(host, wanted)| !is_small(host, *wanted));
        let mut next = self.points.clone();
        next.extend(changed.map(|(host, wanted)| (*host, quantise(wanted))));
        next
    }

    /// Returns and clears the last change.
    pub(super) fn take_done(&mut self) -> Option<Rebalance> {
        self.done.take()
    }
}

/// Returns the hosts that own buckets before and none after.
fn without_buckets(before: &[HostId], after: &[HostId]) -> impl Iterator<Item = HostId> {
    let after: BTreeSet<HostId> = after.iter().copied().collect();
    let before: BTreeSet<HostId> = before.iter().copied().collect();
    before.into_iter().filter(move |host| !after.contains(host))
}

/// Returns the spread of the loads after buckets have moved. The load of a moved bucket may come
/// from its UEs, or from the speed of its owner: the prediction lies between the two.
fn predicted_spread(loads: &[(HostId, f32)], before: &[HostId], after: &[HostId]) -> f32 {
    let index = |host: HostId| loads.iter().position(|(known, _)| *known == host);
    let mut counts = vec![0_u16; loads.len()];
    before.iter().filter_map(|host| index(*host)).for_each(|host| counts[host] += 1);
    let each: Vec<f32> = loads.iter().zip(counts).map(|((_, cpu), count)| cpu / f32::from(count.max(1))).collect();
    let mut sums = vec![0.0; loads.len()];
    for (from, to) in before.iter().zip(after) {
        let (Some(from), Some(to)) = (index(*from), index(*to)) else { continue };
        sums[to] += (each[from] * each[to]).sqrt();
    }
    spread(sums)
}

/// Returns the highest minus the lowest load.
fn spread(loads: impl IntoIterator<Item = f32> + Clone) -> f32 {
    let most = loads.clone().into_iter().fold(0.0, f32::max);
    most - loads.into_iter().fold(f32::MAX, f32::min)
}

/// Returns the nearest permitted number of points.
fn quantise(points: f32) -> u16 {
    let quantum = f32::from(QUANTUM);
    clamp_points((points / quantum).round() * quantum)
}

fn clamp_points(points: f32) -> u16 {
    points.clamp((*POINTS.start()).into(), (*POINTS.end()).into()) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash_pair;
    use crate::placement::balance::map::{BUCKETS, BucketMap, SliceBuckets};
    use crate::placement::balance::ring::WeightedHost;

    const PAUSE: Duration = Duration::from_secs(2);
    const REPORT: Duration = Duration::from_millis(200);

    /// Hosts whose load is that of their buckets. Migrations take no time.
    struct World {
        rebalancer: Rebalancer,
        hosts: BTreeSet<HostId>,
        /// Load of each bucket, on a host of capacity 1.
        loads: Vec<f32>,
        /// Capacity of each host.
        capacities: Vec<f32>,
        /// Relative noise of reports.
        noise: f32,
        now: Instant,
        /// Times of changes, with the spread that remains relative to the mean.
        changes: Vec<(Instant, f32)>,
    }

    fn placed(points: &Points) -> BucketMap {
        let weight = |points: u16| f64::from(points) / f64::from(ONE);
        let hosts = points.iter().map(|(host, points)| WeightedHost::new(*host, weight(*points)));
        BucketMap::first(&[SliceBuckets { weight: 1.0, replicas: 1, hosts: hosts.collect() }])
    }

    fn owners(points: &Points) -> Vec<HostId> {
        let map = placed(points);
        (0..BUCKETS as u16).map(|n| map.owners(vireo_types::Bucket::new(n)).owner().unwrap()).collect()
    }

    /// Returns a random value from 0 to 1.
    fn random(seed: u64, n: u64) -> f32 {
        (hash_pair(seed, n) % 1_000_001) as f32 / 1e6
    }

    impl World {
        /// Creates hosts of which each uses half of its CPU in the mean.
        fn new(count: u16, load: impl Fn(usize, HostId) -> f32) -> Self {
            let mut rebalancer = Rebalancer::new(PAUSE);
            let hosts: BTreeSet<HostId> = (0..count).map(HostId).collect();
            rebalancer.set_hosts(&hosts);
            let map = placed(rebalancer.points());
            let owners = (0..BUCKETS as u16).map(|n| map.owners(vireo_types::Bucket::new(n)).owner().unwrap());
            let loads: Vec<f32> = owners.enumerate().map(|(bucket, owner)| load(bucket, owner)).collect();
            let scale = 0.5 * f32::from(count) / loads.iter().sum::<f32>();
            let loads = loads.into_iter().map(|load| load * scale).collect();
            let capacities = vec![1.0; count.into()];
            World { rebalancer, hosts, loads, capacities, noise: 0.0, now: Instant(1_000_000), changes: Vec::new() }
        }

        fn cpu(&self) -> Vec<f32> {
            let map = placed(self.rebalancer.points());
            let mut cpu = vec![0.0; self.hosts.len()];
            for (n, load) in (0..).zip(&self.loads) {
                cpu[map.owners(vireo_types::Bucket::new(n)).owner().unwrap().index()] += load;
            }
            cpu.iter().zip(&self.capacities).map(|(load, capacity)| (load / capacity).min(1.0)).collect()
        }

        fn spread(&self) -> f32 {
            let cpu = self.cpu();
            let mean = cpu.iter().sum::<f32>() / cpu.len() as f32;
            (cpu.iter().copied().fold(0.0, f32::max) - cpu.iter().copied().fold(1.0, f32::min)) / mean
        }

        fn run(&mut self, seconds: u64) {
            let mut cpu = self.cpu();
            for _ in 0..seconds * 1_000_000 / REPORT.0 {
                self.now = self.now + REPORT;
                for (host, cpu) in self.hosts.iter().zip(&cpu) {
                    let noise = self.noise * (2.0 * random(u64::from(host.0), self.now.0) - 1.0);
                    self.rebalancer.on_load_report(*host, cpu * (1.0 + noise), self.now);
                }
                let before = self.rebalancer.points().clone();
                if self.rebalancer.rebalance(&self.hosts, self.now, owners) {
                    self.check_change(&before);
                    // The migration.
                    self.rebalancer.reset();
                    cpu = self.cpu();
                    self.changes.push((self.now, self.spread()));
                }
            }
        }

        /// Checks that each host has buckets, and that few change their owner.
        fn check_change(&self, before: &Points) {
            assert_eq!(owners(self.rebalancer.points()).into_iter().collect::<BTreeSet<_>>(), self.hosts);
            let (old, new) = (placed(before), placed(self.rebalancer.points()));
            assert!(new.is_complete());
            let buckets = || (0..BUCKETS as u16).map(vireo_types::Bucket::new);
            let moved = buckets().filter(|b| old.owners(*b).owner() != new.owners(*b).owner()).count();
            assert!((1..BUCKETS / 4).contains(&moved), "{moved} buckets move");
        }

        fn assert_paused(&self) {
            let is_paused = |pair: &[(Instant, f32)]| pair[1].0.since(pair[0].0) >= PAUSE;
            assert!(self.changes.windows(2).all(is_paused), "{:?}", self.changes);
        }
    }

    #[test]
    fn skewed_load_converges_without_oscillation() {
        // UEs of the first hosts' buckets send more, those of all buckets equally often, or a few
        // buckets have most UEs (Pareto distribution).
        let heavy = |host: HostId, factor: f32| if host.0 == 0 { factor } else { 1.0 };
        let pareto = |bucket: usize| (1.0 - 0.999 * random(7, bucket as u64)).powf(-0.5);
        let worlds = [
            World::new(3, |_, host| heavy(host, 2.0)),
            World::new(3, |_, host| heavy(host, 5.0)),
            World::new(2, |_, host| heavy(host, 0.3)),
            World::new(8, |_, host| 1.0 + f32::from(host.0 % 3)),
            World::new(5, |bucket, host| pareto(bucket) * heavy(host, 1.5)),
        ];
        for (n, mut world) in worlds.into_iter().enumerate() {
            world.noise = 0.03;
            let first = world.spread();
            world.run(60);
            let changes = world.changes.len();
            assert!(first > 0.3 && world.spread() < 0.1, "case {n}: {:?}", world.changes);
            assert!((1..=12).contains(&changes), "case {n}: {:?}", world.changes);
            // The spread falls from change to change: no host is overcorrected.
            let falls = |pair: &[(Instant, f32)]| pair[1].1 < pair[0].1 + 0.06;
            assert!(world.changes.windows(2).all(falls), "case {n}: {:?}", world.changes);
            world.assert_paused();
            world.run(300);
            assert_eq!(world.changes.len(), changes, "case {n}: it has come to rest");
        }
    }

    #[test]
    fn small_host_gets_few_buckets() {
        let mut world = World::new(3, |_, _| 1.0);
        world.capacities[1] = 0.5;
        world.run(60);
        assert!(world.spread() < 0.1, "{:?}", world.changes);
        let weight = |host| world.rebalancer.weight(HostId(host));
        assert!(weight(1) < 0.7 * weight(0) && weight(1) < 0.7 * weight(2), "{:?}", world.rebalancer.points());
    }

    #[test]
    fn equal_or_low_load_changes_nothing() {
        let mut world = World::new(4, |_, _| 1.0);
        let cpu = |cpu: [f32; 4]| cpu;
        for loads in
            [cpu([0.5; 4]), cpu([0.5, 0.53, 0.5, 0.52]), cpu([0.01, 0.04, 0.01, 0.02]), cpu([0.0; 4]), cpu([1.0; 4])]
        {
            for n in 0..600 {
                world.now = world.now + REPORT;
                for (host, cpu) in world.hosts.clone().into_iter().zip(loads) {
                    // Every second report is 10% higher, of one host after the other.
                    let noise = if n % 8 == u64::from(host.0) * 2 { 1.1 } else { 1.0 };
                    world.rebalancer.on_load_report(host, cpu * noise, world.now);
                }
                assert!(!world.rebalancer.rebalance(&world.hosts, world.now, owners), "{loads:?}");
            }
        }
        assert!(world.rebalancer.points().values().all(|points| *points == ONE));
    }

    #[test]
    fn short_or_unknown_difference_changes_nothing() {
        let mut world = World::new(3, |_, _| 1.0);
        let hosts = world.hosts.clone();
        for n in 0..200 {
            world.now = world.now + REPORT;
            // The loads differ for 1 s of 4 s; later one host does not report, or sends no number.
            let peak = if n % 20 < 5 || n > 100 { 0.9 } else { 0.5 };
            for (host, cpu) in hosts.iter().zip([peak, 0.5, if n > 150 { f32::NAN } else { 0.5 }]) {
                if n <= 100 || host.0 != 2 || cpu.is_nan() {
                    world.rebalancer.on_load_report(*host, cpu, world.now);
                }
            }
            if n == 100 {
                world.rebalancer.reset();
            }
            assert!(!world.rebalancer.rebalance(&hosts, world.now, owners), "report {n}");
        }
    }

    /// One bucket has half of the load of a host and may move to and fro.
    #[test]
    fn indivisible_load_moves_ever_less_often() {
        let mut world = World::new(3, |bucket, _| if bucket == 77 { 700.0 } else { 1.0 });
        world.run(600);
        let late = world.changes.iter().filter(|(at, _)| at.0 > 300_000_000).count();
        assert!(late <= 10, "{:?}", world.changes);
        world.assert_paused();
    }

    #[test]
    fn hosts_keep_buckets_with_any_load() {
        for seed in 0..40 {
            let count = 2 + (hash_pair(seed, 0) % 12) as u16;
            let mut world = World::new(count, |bucket, _| random(seed, bucket as u64).powi(6));
            for turn in 0..20 {
                for host in world.hosts.clone() {
                    let cpu = random(seed, turn * 100 + u64::from(host.0) + 7);
                    for n in 0..12 {
                        world.rebalancer.on_load_report(
                            host,
                            if cpu < 0.2 { 0.0 } else { cpu },
                            world.now + Duration(REPORT.0 * n),
                        );
                    }
                }
                let before = world.rebalancer.points().clone();
                assert!(!world.rebalancer.rebalance(&world.hosts, world.now, owners), "seed {seed}: within the pause");
                world.now = world.now + Duration::from_secs(2);
                if world.rebalancer.rebalance(&world.hosts, world.now, owners) {
                    world.check_change(&before);
                    let drift: f32 = world.rebalancer.points().values().map(|points| f32::from(*points)).sum();
                    assert!((drift / f32::from(count * ONE) - 1.0).abs() < 0.2, "seed {seed}: the sum stays");
                }
                world.rebalancer.reset();
            }
        }
    }

    #[test]
    fn last_bucket_of_host_stays() {
        let mut world = World::new(2, |_, _| 1.0);
        let hosts = world.hosts.clone();
        let lower = |points: &Points| {
            let rest = HostId(u16::from(points[&HostId(0)] < ONE));
            [vec![HostId(1); BUCKETS - 1], vec![rest]].concat()
        };
        for now in (0..60).map(|n| Instant(n * REPORT.0)) {
            [0.9, 0.5].iter().zip(0..).for_each(|(cpu, host)| world.rebalancer.on_load_report(HostId(host), *cpu, now));
            world.rebalancer.rebalance(&hosts, now, lower);
            assert!(world.rebalancer.points()[&HostId(0)] >= ONE);
        }
    }

    #[test]
    fn joined_host_gets_mean_weight() {
        let mut rebalancer = Rebalancer::new(PAUSE);
        rebalancer.adopt([(0, 80), (1, 120), (2, 9)].map(|(host, points)| (HostId(host), points)).into());
        assert_eq!(rebalancer.points()[&HostId(2)], *POINTS.start());
        rebalancer.set_hosts(&[0, 1, 5].map(HostId).into());
        assert_eq!(
            *rebalancer.points(),
            [(0, 80), (1, 120), (5, 100)].map(|(host, points)| (HostId(host), points)).into()
        );
        assert!((rebalancer.weight(HostId(0)) - 0.5).abs() < 1e-9);
    }
}
