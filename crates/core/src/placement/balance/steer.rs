//! Selection of the serving host of a procedure: MMLite (Algorithm 1) and the policies that it is
//! compared with.

use super::HostId;
use super::load_table::{HostLoad, LoadTable};
use super::maglev::Maglev;
use super::map::{BUCKETS, BucketPlacement};
use crate::schedule::estimate::ServiceTime;
use vireo_types::{Bucket, Duration, Instant};

/// Policy of host selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Among the hosts with the UE's state, one that meets the objective, by [`Preference`]. A host
    /// with little load thus receives less and can be removed. If none meets the objective, the
    /// least loaded one.
    #[default]
    SkewedCh,
    /// The owner, whatever its load.
    ConsistentHash,
    /// Each host in turn, with or without the state.
    RoundRobin,
    /// The host with the lowest CPU use, with or without the state.
    LeastLoaded,
    /// The host by the table of the Maglev paper.
    Maglev,
    /// A fixed range of buckets per host.
    StaticRange,
}

impl Policy {
    /// All policies, in configuration order.
    pub const ALL: [Policy; 6] = [
        Policy::SkewedCh,
        Policy::ConsistentHash,
        Policy::RoundRobin,
        Policy::LeastLoaded,
        Policy::Maglev,
        Policy::StaticRange,
    ];

    /// Returns the name in the configuration (`steering.inter`).
    pub const fn name(self) -> &'static str {
        match self {
            Policy::SkewedCh => "skewed-ch",
            Policy::ConsistentHash => "consistent-hash",
            Policy::RoundRobin => "round-robin",
            Policy::LeastLoaded => "least-loaded",
            Policy::Maglev => "maglev",
            Policy::StaticRange => "static-range",
        }
    }

    /// Returns the policy with a configuration name.
    pub fn from_name(name: &str) -> Option<Self> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Preference of [`Policy::SkewedCh`] among the hosts that meet the objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The most loaded host if one host less would suffice, so that one can be drained, and only
    /// while it is far from the objective. Else the host that would complete the procedure first.
    /// Uneven load has no benefit if no host can be removed. Filling hosts up to the objective
    /// makes half of the following procedures late.
    #[default]
    Spare,
    /// Always the most loaded host, as MMLite specifies.
    MostLoaded,
}

impl Preference {
    /// All preferences, the default first.
    pub const ALL: [Preference; 2] = [Preference::Spare, Preference::MostLoaded];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Preference::Spare => "spare",
            Preference::MostLoaded => "most-loaded",
        }
    }

    /// Returns the preference with a configuration name.
    pub fn from_name(name: &str) -> Option<Self> {
        Preference::ALL.into_iter().find(|prefer| prefer.name() == name)
    }
}

/// Maximum CPU use of the remaining hosts if one is to be removed.
pub const SPARE_CPU: f64 = 0.7;
/// Divisor of the objective: limit for the most loaded host where one could be removed.
const SPARE_SLO: u64 = 2;

/// Fraction of the objective: hosts whose work in progress differs by less count as equal.
const EQUAL_WORK_FRACTION: f64 = 1.0 / 16.0;

/// Hosts in use, with their Maglev table.
#[derive(Clone, Debug, Default)]
pub struct HostSet {
    hosts: Vec<HostId>,
    maglev: Maglev,
    prefer: Preference,
}

impl HostSet {
    /// Creates the set of these hosts.
    pub fn new(hosts: Vec<HostId>) -> Self {
        HostSet { maglev: Maglev::new(&hosts), hosts, prefer: Preference::default() }
    }

    /// Returns the same hosts with another preference.
    #[must_use]
    pub fn with(mut self, prefer: Preference) -> Self {
        self.prefer = prefer;
        self
    }

    /// Returns the preference of [`Policy::SkewedCh`].
    pub fn prefer(&self) -> Preference {
        self.prefer
    }

    /// Returns the hosts of the set.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }
}

/// Procedure that starts and needs a host.
#[derive(Clone, Copy, Debug)]
pub struct SteeringRequest {
    pub bucket: Bucket,
    /// Hosts that have the UE's state, by the map.
    pub owners: BucketPlacement,
    /// Index of the pool of its slice and kind.
    pub pool: usize,
    /// Service time `T_t` of its kind.
    pub time: ServiceTime,
    /// Latency objective of its slice and kind.
    pub slo: Duration,
    /// Number that grows with each selection.
    pub turn: u64,
}

/// Result of host selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSelection {
    /// Serving host, to which the UE is pinned until the procedure ends.
    pub host: HostId,
    /// Estimated completion time there; `None` without a recent report of the host.
    pub estimate: Option<Duration>,
    /// True if no eligible host meets the objective; this is reported to the controller.
    pub violation: bool,
}

/// Selects the serving host of a procedure; `None` without hosts.
#[inline]
pub fn select_host(
    policy: Policy,
    request: &SteeringRequest,
    fleet: &HostSet,
    loads: &LoadTable,
    now: Instant,
) -> Option<HostSelection> {
    let load = |host| loads.load(host, request.pool, request.time, now);
    let host = match policy {
        Policy::SkewedCh => {
            let filled_to = match fleet.prefer {
                Preference::MostLoaded => Some(request.slo),
                Preference::Spare => loads.can_remove_host(SPARE_CPU).then_some(Duration(request.slo.0 / SPARE_SLO)),
            };
            return skewed(request, filled_to, load);
        }
        Policy::ConsistentHash => request.owners.owner()?,
        Policy::RoundRobin => fleet.hosts[request.turn.checked_rem(fleet.hosts.len() as u64)? as usize],
        Policy::LeastLoaded => {
            // A host without a recent report counts as busy.
            let cpu = |host: HostId| load(host).map_or(f64::INFINITY, |load| load.cpu);
            fleet.hosts.iter().copied().min_by(|a, b| cpu(*a).total_cmp(&cpu(*b)))?
        }
        Policy::Maglev => fleet.maglev.host(request.bucket.get().into())?,
        Policy::StaticRange => {
            let at = usize::from(request.bucket.get()) * fleet.hosts.len() / BUCKETS;
            *fleet.hosts.get(at)?
        }
    };
    let estimate = load(host).map(|load| load.completion(request.time));
    Some(HostSelection { host, estimate, violation: estimate.is_some_and(|estimate| estimate > request.slo) })
}

/// Divisor of the objective: limit up to which [`select_serving_host`] does not look further.
const SERVING_SLO: u64 = 4;

/// Selects the host that serves a procedure of a known UE, among the owner and replicas in
/// [`SteeringRequest::owners`]; `None` without hosts.
///
/// [`Preference::Spare`] prefers the owner, because a replica costs more: the first of the owner
/// and the replicas that completes all its work and the procedure within a quarter of the
/// objective, because each message of the procedure waits. The work of all pools counts, since
/// procedures that only the owner serves need room there. If no host does, the first one within the
/// objective serves, else the owner: the higher cost of a replica would add to the overload, and
/// inputs that wait there are recalled and run twice. [`Preference::MostLoaded`] is Algorithm 1.
///
/// [`Policy::LeastLoaded`] selects by the work in progress, which the balancer knows: the CPU use
/// is as old as the last report, and all procedures since would go to one host.
pub fn select_serving_host(
    policy: Policy,
    request: &SteeringRequest,
    fleet: &HostSet,
    loads: &LoadTable,
    now: Instant,
) -> Option<HostSelection> {
    select_among(policy, fleet.prefer, request, |host| loads.load(host, request.pool, request.time, now))
}

/// Selects like [`select_serving_host`] on these loads.
pub fn select_among(
    policy: Policy,
    prefer: Preference,
    request: &SteeringRequest,
    load: impl Fn(HostId) -> Option<HostLoad>,
) -> Option<HostSelection> {
    let estimate = |host: &HostId| load(*host).map(|load| load.completion(request.time));
    let count = request.owners.all().count() as u64;
    let host = match (policy, prefer) {
        (Policy::SkewedCh, Preference::MostLoaded) => return skewed(request, Some(request.slo), load),
        (Policy::SkewedCh, Preference::Spare) => {
            let first_within = |limit: Duration| {
                let meets =
                    |host: &HostId| load(*host).is_none_or(|load| load.completion_after_all(request.time) <= limit);
                request.owners.all().find(meets)
            };
            let quickly = first_within(Duration(request.slo.0 / SERVING_SLO));
            quickly.or_else(|| first_within(request.slo)).or(request.owners.owner())?
        }
        (Policy::RoundRobin, _) => request.owners.all().nth(request.turn.checked_rem(count)? as usize)?,
        (Policy::LeastLoaded, _) => {
            let work = |host: HostId| load(host).map_or(f64::INFINITY, |load| load.work);
            request.owners.all().min_by(|a, b| work(*a).total_cmp(&work(*b)))?
        }
        (Policy::ConsistentHash | Policy::Maglev | Policy::StaticRange, _) => request.owners.owner()?,
    };
    let estimate = estimate(&host);
    Some(HostSelection { host, estimate, violation: estimate.is_some_and(|estimate| estimate > request.slo) })
}

/// Selects by Algorithm 1 among owner and replicas: the most loaded host that completes the
/// procedure within `filled_to`, else the one with the least work. Among hosts with about the same
/// work the one with the lowest CPU use wins. Permanently active UEs then do not keep their owner
/// busier than the others.
fn skewed(
    request: &SteeringRequest,
    filled_to: Option<Duration>,
    load: impl Fn(HostId) -> Option<HostLoad>,
) -> Option<HostSelection> {
    let mut viable: Option<(HostId, HostLoad, Duration)> = None;
    let mut least: Option<(HostId, HostLoad, Duration)> = None;
    let alike = (request.slo.0 as f64 * 1000.0 * EQUAL_WORK_FRACTION).max(1.0);
    let work = |load: &HostLoad| (load.work / alike).floor();
    for host in request.owners.all() {
        let Some(load) = load(host) else { continue };
        let estimate = load.completion(request.time);
        // Among equal hosts the first in ring order wins, so that the selection is stable.
        let fits = filled_to.is_some_and(|most| estimate <= most);
        if fits && viable.is_none_or(|(_, best, _)| load.cpu > best.cpu) {
            viable = Some((host, load, estimate));
        }
        if least.is_none_or(|(_, best, _)| (work(&load), load.cpu) < (work(&best), best.cpu)) {
            least = Some((host, load, estimate));
        }
    }
    match viable.or(least) {
        Some((host, _, estimate)) => {
            Some(HostSelection { host, estimate: Some(estimate), violation: estimate > request.slo })
        }
        // No host has reported yet.
        None => Some(HostSelection { host: request.owners.owner()?, estimate: None, violation: false }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load_table::{Estimate, PoolReport};
    use super::super::map::{BucketMap, SliceBuckets};
    use super::super::ring::WeightedHost;
    use super::*;

    const NOW: Instant = Instant(1_000_000);

    struct World {
        map: BucketMap,
        fleet: HostSet,
        loads: LoadTable,
    }

    impl World {
        fn prefer(mut self, prefer: Preference) -> Self {
            self.fleet = self.fleet.with(prefer);
            self
        }

        /// Creates three hosts that have all state, with these CPU uses and backlogs.
        fn new(reports: [(f64, f64); 3]) -> Self {
            let ids = [0, 1, 2].map(HostId);
            let hosts = ids.map(|host| WeightedHost::new(host, 1.0)).into();
            let map = BucketMap::new(1, &[SliceBuckets { weight: 1.0, replicas: 2, hosts }]);
            let mut loads = LoadTable::new(1, Duration::from_millis(600)).with(Estimate::Corrected);
            for (host, (cpu, backlog)) in ids.into_iter().zip(reports) {
                loads.report(host, cpu, &[PoolReport { backlog, share: 1.0 }], NOW);
            }
            World { map, fleet: HostSet::new(ids.into()), loads }
        }

        fn select_host(&self, policy: Policy, bucket: u16, turn: u64) -> HostSelection {
            let bucket = Bucket::new(bucket);
            let (owners, time) = (self.map.owners(bucket), ServiceTime::new(1_000_000));
            let request = SteeringRequest { bucket, owners, pool: 0, time, slo: Duration::from_millis(10), turn };
            select_host(policy, &request, &self.fleet, &self.loads, NOW).expect("there are hosts")
        }
    }

    #[test]
    fn most_loaded_host_within_slo_is_selected() {
        let world = World::new([(0.5, 1.0), (0.9, 12.0), (0.7, 9.0)]).prefer(Preference::MostLoaded);
        for bucket in 0..200 {
            let choice = world.select_host(Policy::SkewedCh, bucket, 0);
            assert_eq!((choice.host.0, choice.violation), (2, false), "host 1 is busier, but would take 13 ms");
            assert_eq!(choice.estimate, Some(Duration::from_millis(10)));
        }
    }

    #[test]
    fn idle_host_is_avoided_if_removable() {
        let host = |loads| World::new(loads).select_host(Policy::SkewedCh, 7, 0).host.0;
        assert_eq!(host([(0.5, 1.0), (0.9, 3.0), (0.7, 2.0)]), 0, "no host can be spared: the first to finish");
        assert_eq!(host([(0.2, 1.0), (0.6, 3.0), (0.5, 2.0)]), 1, "one can: the most loaded");
        assert_eq!(host([(0.2, 1.0), (0.6, 6.0), (0.5, 2.0)]), 2, "but not where it would take 7 of 10 ms");
        assert_eq!(host([(0.2, 7.0), (0.6, 6.0), (0.5, 8.0)]), 1, "none that is far from the objective");
        for prefer in Preference::ALL {
            assert_eq!(Preference::from_name(prefer.name()), Some(prefer));
        }
    }

    #[test]
    fn slo_violation_selects_least_backlog() {
        let world = World::new([(0.9, 40.0), (0.9, 30.0), (0.1, 50.0)]);
        let choice = world.select_host(Policy::SkewedCh, 5, 0);
        assert_eq!((choice.host.0, choice.violation), (1, true));
        assert_eq!(choice.estimate, Some(Duration::from_millis(31)));
    }

    #[test]
    fn silent_hosts_are_skipped_if_others_report() {
        let mut world = World::new([(0.5, 1.0), (0.9, 1.0), (0.7, 0.5)]);
        world.loads.forget(HostId(1));
        assert_eq!(world.select_host(Policy::SkewedCh, 5, 0).host, HostId(2));
        [0, 2].into_iter().for_each(|host| world.loads.forget(HostId(host)));
        let choice = world.select_host(Policy::SkewedCh, 5, 0);
        assert_eq!(Some(choice.host), world.map.owners(Bucket::new(5)).owner());
        assert_eq!((choice.estimate, choice.violation), (None, false));
    }

    #[test]
    fn other_policies_choose_their_own_way() {
        let world = World::new([(0.5, 1.0), (0.2, 40.0), (0.7, 1.0)]);
        assert_eq!(world.select_host(Policy::LeastLoaded, 5, 0).host, HostId(1));
        assert!(world.select_host(Policy::LeastLoaded, 5, 0).violation);
        let turns = [0, 1, 2, 3].map(|turn| world.select_host(Policy::RoundRobin, 5, turn).host.0);
        assert_eq!(turns, [0, 1, 2, 0]);
        let ranges = [0, 1365, 1366, 2731, 4095].map(|bucket| world.select_host(Policy::StaticRange, bucket, 0).host.0);
        assert_eq!(ranges, [0, 0, 1, 2, 2]);
        for bucket in 0..100 {
            let primary = world.map.owners(Bucket::new(bucket)).owner();
            assert_eq!(Some(world.select_host(Policy::ConsistentHash, bucket, 0).host), primary);
            let maglev = Maglev::new(world.fleet.hosts()).host(bucket.into());
            assert_eq!(Some(world.select_host(Policy::Maglev, bucket, 0).host), maglev);
        }
    }

    /// Owner 0 and replicas 1 and 2 with these numbers of procedures of 1 ms in progress, in the
    /// pool of the request and in another one.
    fn serving(policy: Policy, prefer: Preference, in_progress: [[u32; 2]; 3]) -> HostSelection {
        let ids = [0, 1, 2].map(HostId);
        let time = ServiceTime::new(1_000_000);
        let mut loads = LoadTable::new(2, Duration::from_millis(600));
        for (host, counts) in ids.into_iter().zip(in_progress) {
            loads.report(host, 0.9 - 0.1 * f64::from(host.0), &[PoolReport { backlog: 0.0, share: 1.0 }; 2], NOW);
            for (pool, count) in counts.into_iter().enumerate() {
                (0..count).for_each(|_| loads.on_sent(host, pool, time));
            }
        }
        let (owners, slo) = (BucketPlacement::new(ids), Duration::from_millis(40));
        let request = SteeringRequest { bucket: Bucket::new(1), owners, pool: 0, time, slo, turn: 4 };
        let fleet = HostSet::new(ids.into()).with(prefer);
        select_serving_host(policy, &request, &fleet, &loads, NOW).expect("there are hosts")
    }

    #[test]
    fn owner_serves_within_quarter_of_objective() {
        let host = |in_progress| serving(Policy::SkewedCh, Preference::Spare, in_progress).host.0;
        assert_eq!(host([[9, 0], [0, 0], [0, 0]]), 0, "10 of 40 ms");
        assert_eq!(host([[10, 0], [9, 0], [0, 0]]), 1, "the first replica");
        assert_eq!(host([[10, 0], [10, 0], [9, 0]]), 2, "another replica");
        assert_eq!(host([[12, 0], [11, 0], [13, 0]]), 0, "within the objective");
        assert_eq!(host([[41, 0], [12, 0], [11, 0]]), 1, "the first within the objective");
        assert_eq!(host([[43, 0], [42, 0], [41, 0]]), 0, "no host has room");
    }

    #[test]
    fn work_of_other_pools_moves_procedures() {
        let choice = serving(Policy::SkewedCh, Preference::Spare, [[0, 10], [0, 0], [0, 0]]);
        assert_eq!((choice.host.0, choice.violation), (1, false));
        let choice = serving(Policy::SkewedCh, Preference::Spare, [[40, 0], [40, 5], [40, 9]]);
        assert_eq!((choice.host.0, choice.violation), (0, true));
    }

    #[test]
    fn serving_policies_choose_hosts_with_state() {
        let in_progress = [[5, 0], [3, 0], [4, 0]];
        let host = |policy| serving(policy, Preference::Spare, in_progress).host.0;
        assert_eq!(host(Policy::LeastLoaded), 1, "by work, not by CPU use");
        assert_eq!(host(Policy::RoundRobin), 1, "turn 4 of three hosts");
        for policy in [Policy::ConsistentHash, Policy::Maglev, Policy::StaticRange] {
            assert_eq!(host(policy), 0, "{policy:?}: the owner");
        }
        let most = serving(Policy::SkewedCh, Preference::MostLoaded, [[40, 0], [39, 0], [0, 0]]);
        assert_eq!(most.host.0, 1, "the highest CPU use that meets the objective");
    }

    #[test]
    fn without_hosts_there_is_no_choice() {
        let world = World::new([(0.5, 1.0); 3]);
        let (time, slo) = (ServiceTime::new(1), Duration(1));
        let request =
            SteeringRequest { bucket: Bucket::new(1), owners: BucketPlacement::default(), pool: 0, time, slo, turn: 0 };
        for policy in Policy::ALL {
            assert_eq!(select_host(policy, &request, &HostSet::default(), &world.loads, NOW), None, "{policy:?}");
            assert_eq!(Policy::from_name(policy.name()), Some(policy));
        }
    }
}
