//! Migration of buckets: cluster maps that change hosts while UEs are served.
//!
//! The buckets of a dead host go to hosts with copies. Between live hosts a bucket moves in two
//! steps, so that no host ever owns UEs without their state:
//!
//! 1. A [prepared](BucketMap::prepare) map adds replicas for the future hosts and names the next
//!    owner or first replica. From then on each commit waits for that host too.
//! 2. When all owners have reported for that very epoch that their replicas are up to date
//!    ([`CatchUp`]), the map is [switched](BucketMap::switch). A bucket with a new owner keeps the
//!    old one as first replica. The old owner ends the procedures in progress, releases their
//!    effects and sends the handoff. One more such round removes it, if it must go.
//!
//! Both steps are repeated until neither changes anything. A setting limits how many buckets get a
//! new owner at once. During a handoff the inputs of its UEs wait, and a host that migrated
//! everything at once would delay all of them.
//!
//! Buckets are assigned to slice 0 and the other slices in turn. The buckets of one such turn, one
//! per slice, are a *column* and always have the same hosts. A UE gets an LTMSI of its home slice
//! within its column, so its former LTMSIs always lead to the same hosts.
//!
//! The first replica is on another machine than the owner, if any host is. When a bucket moves
//! within a machine, the old owner is the first replica for one epoch. Then each commit also waits
//! for a replica on another machine, which is the first one in the next epoch.

use super::HostId;
use super::machines::Machines;
use super::map::{BUCKETS, BucketMap, BucketPlacement, FIRST_EPOCH, MAX_PLACED_REPLICAS, SliceBuckets};
use super::ring::{Ring, WeightedHost, recover_points};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use vireo_types::Bucket;

/// Salt of the ring of all columns.
const RING: u64 = 0;

/// Returns the bucket of a slice in the column of another bucket. `slices` includes slice 0. `None`
/// in an incomplete last column.
pub fn in_column(bucket: Bucket, slice: usize, slices: usize) -> Option<Bucket> {
    let at = usize::from(bucket.get()) / slices * slices + slice;
    (slice < slices && at < BUCKETS).then(|| Bucket::new(at as u16))
}

impl BucketMap {
    /// Creates the first map of a cluster with changing hosts; [`BucketMap::next`],
    /// [`BucketMap::prepare`] and [`BucketMap::switch`] make the others. All slices have equal
    /// shares, and the hosts of the first slice.
    pub fn first(parts: &[SliceBuckets]) -> Self {
        let slices = (0..BUCKETS).map(|bucket| (bucket % parts.len().max(1)) as u16).collect();
        BucketMap { epoch: FIRST_EPOCH, owners: placed(parts).into(), slices }
    }

    /// Returns the next epoch's map for the current hosts, without advancing a migration. A bucket
    /// of a departed host goes to the first host with a copy, and missing replicas are added in
    /// ring order, those on other machines first. No bucket goes to a host without a copy while
    /// there is one with it. The UEs of slices without copies are lost; such a bucket goes to the
    /// owner of its column.
    pub fn next(&self, parts: &[SliceBuckets]) -> Self {
        let there: Vec<HostId> = hosts(parts).iter().map(|weighted| weighted.host).collect();
        let mut next = self.with(parts, |now, wanted, rules| {
            let stay = || now.all().filter(|host| there.contains(host));
            let missing = wanted.all().count().saturating_sub(stay().count());
            let is_apart = |host: &HostId| !stay().any(|own| rules.machines.share(own, *host));
            let join = wanted.all().filter(is_apart);
            // These share a machine with a host that stays.
            let others = wanted.all().filter(|host| !is_apart(host) && !stay().any(|own| own == *host));
            BucketPlacement::new(stay().chain(join.chain(others).take(missing)))
        });
        let bereft = |bucket: usize| self.owners[bucket].owner().is_none_or(|host| !there.contains(&host));
        next.co_locate_columns(parts, bereft);
        next
    }

    /// Assigns the `bereft` buckets of slices without copies to the owners of their columns.
    fn co_locate_columns(&mut self, parts: &[SliceBuckets], bereft: impl Fn(usize) -> bool) {
        let Some((lead, most)) = parts.iter().map(|part| part.replicas).enumerate().rev().max_by_key(|(_, n)| *n)
        else {
            return;
        };
        if most == 0 {
            return;
        }
        for first in (0..BUCKETS).step_by(parts.len()) {
            let Some(owner) = self.owners.get(first + lead).and_then(BucketPlacement::owner) else { continue };
            let alone = (0..parts.len()).filter(|slice| parts[*slice].replicas == 0).map(|slice| first + slice);
            for bucket in alone.filter(|bucket| *bucket < BUCKETS && bereft(*bucket)) {
                self.owners[bucket] = BucketPlacement::new([owner]);
            }
        }
    }

    /// Returns the next epoch's map, which adds replicas at the hosts that must have buckets by
    /// `parts`. A host that drains has weight zero there. `None` if all possible replicas exist. No
    /// owner changes.
    pub fn prepare(&self, parts: &[SliceBuckets]) -> Option<Self> {
        self.unless_same(self.with(parts, prepared))
    }

    /// Returns the next epoch's map, which moves buckets to their targets by `parts`, as far as
    /// copies exist. The caller waits until every owner has reported for the current epoch. At most
    /// `at_once` buckets, but at least one column, get another owner. `None` if no bucket moves.
    pub fn switch(&self, parts: &[SliceBuckets], at_once: usize) -> Option<Self> {
        let mut next = self.with(parts, switched);
        let (slices, mut switched) = (parts.len().max(1), 0);
        // A column moves as a whole.
        for (column, before) in next.owners.chunks_mut(slices).zip(self.owners.chunks(slices)) {
            let others = column.iter().zip(before).filter(|(new, old)| new.owner() != old.owner()).count();
            if others > 0 && switched > 0 && switched + others > at_once {
                column.copy_from_slice(before);
            } else {
                switched += others;
            }
        }
        self.unless_same(next)
    }

    fn unless_same(&self, next: Self) -> Option<Self> {
        (next.owners != self.owners).then_some(next)
    }

    /// Returns the next epoch's map. `change` receives each bucket's current and wanted placement,
    /// and the rules for the bucket.
    fn with(
        &self,
        parts: &[SliceBuckets],
        change: impl Fn(BucketPlacement, BucketPlacement, Rules<'_>) -> BucketPlacement,
    ) -> Self {
        let machines = Machines::new(hosts(parts));
        let slices = parts.len().max(1);
        let reorders = |now: &BucketPlacement| replica_apart(*now, &machines).is_some();
        let reorders: Vec<bool> = match machines.are_all_distinct() {
            true => vec![false; BUCKETS.div_ceil(slices)],
            false => self.owners.chunks(slices).map(|column| column.iter().any(reorders)).collect(),
        };
        let copied = |bucket: usize| parts.get(bucket % slices).is_some_and(|part| part.replicas > 0);
        let all = self.owners.iter().zip(self.target_placements(parts)).enumerate();
        let mut last = None;
        let owners = all.map(|(bucket, (now, wanted))| {
            let of = (*now, wanted, copied(bucket), reorders[bucket / slices]);
            // Most buckets are in place, and those of a column are mostly equal.
            match last {
                _ if *now == wanted => wanted,
                Some((same, next)) if same == of => next,
                _ => {
                    let rules = Rules { copied: of.2, reorders: of.3, machines: &machines };
                    let mut next = change(of.0, of.1, rules);
                    next.coming = next.coming.or_else(|| replica_apart(next, &machines));
                    last = Some((of, next));
                    next
                }
            }
        });
        BucketMap { epoch: self.epoch + 1, owners: owners.collect(), slices: self.slices.clone() }
    }

    /// Returns the wanted placement of each bucket: that of the ring, but a host that accepts no
    /// bucket gets none besides those that it has.
    fn target_placements(&self, parts: &[SliceBuckets]) -> Vec<BucketPlacement> {
        let mut wanted = placed(parts);
        let closed: Vec<HostId> = hosts(parts).iter().filter(|known| !known.accepts).map(|known| known.host).collect();
        if closed.is_empty() {
            return wanted;
        }
        let weight = |known: &WeightedHost| if known.accepts { known.weight } else { 0.0 };
        let open = |part: &SliceBuckets| SliceBuckets {
            hosts: part.hosts.iter().map(|known| WeightedHost { weight: weight(known), ..*known }).collect(),
            ..part.clone()
        };
        let open = placed(&parts.iter().map(open).collect::<Vec<_>>());
        for ((wanted, open), now) in wanted.iter_mut().zip(open).zip(&self.owners) {
            let gains = |host: &HostId| closed.contains(host) && !now.has(*host);
            if wanted.all().any(|host| gains(&host)) {
                let rest: Vec<HostId> = wanted.all().filter(|host| !gains(host)).collect();
                let others = open.all().filter(|host| !rest.contains(host));
                *wanted = BucketPlacement::new(rest.iter().copied().chain(others).take(wanted.all().count()));
            }
        }
        wanted
    }

    /// Returns true if a host is the owner or a replica of any bucket.
    pub fn has(&self, host: HostId) -> bool {
        self.owners.iter().any(|owners| owners.has(host))
    }

    /// Returns the hosts' numbers of points on the ring by which this map has placed the columns of
    /// `slices` slices, within `range`. `None` while a migration is in progress, since such a map
    /// follows no ring.
    pub fn ring_points(&self, slices: usize, range: RangeInclusive<u32>) -> Option<BTreeMap<HostId, u32>> {
        let columns = (0_u64..).zip(self.owners.iter().step_by(slices.max(1)));
        let owners: Option<Vec<_>> = columns.map(|(column, owners)| Some((column, owners.owner()?))).collect();
        recover_points(&owners?, RING, range)
    }

    /// Returns each owner paired with itself and with each of its replicas, every pair once.
    pub fn replication_pairs(&self) -> BTreeSet<(HostId, HostId)> {
        pairs(self.owners.iter().copied())
    }

    /// Returns the same pairs for one owner.
    pub fn replication_pairs_of(&self, host: HostId) -> BTreeSet<(HostId, HostId)> {
        pairs(self.buckets_owned_by(host))
    }
}

/// Pending reports of an epoch. An owner reports that a replica has all required copies; a host
/// reports of itself that it has all its UEs and knows all RAN nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatchUp {
    epoch: u64,
    waiting: BTreeSet<(HostId, HostId)>,
}

impl CatchUp {
    /// Creates the pending reports of a map. A host that owns nothing yet reports that it knows the
    /// RAN nodes: no bucket is switched to it before.
    pub fn new(map: &BucketMap, hosts: impl IntoIterator<Item = HostId>) -> Self {
        let mut waiting = map.replication_pairs();
        waiting.extend(hosts.into_iter().map(|host| (host, host)));
        CatchUp { epoch: map.epoch(), waiting }
    }

    /// Handles a report for an epoch. An owner reports that a replica has all its copies; a host
    /// reports of itself that it has all handoffs and knows the RAN nodes.
    pub fn acknowledge(&mut self, owner: HostId, epoch: u64, replica: HostId) {
        if epoch == self.epoch {
            self.waiting.remove(&(owner, replica));
        }
    }

    /// Returns true if all reports arrived: the prepared placement may be switched.
    pub fn is_complete(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn pairs(all: impl Iterator<Item = BucketPlacement>) -> BTreeSet<(HostId, HostId)> {
    let mut pairs = BTreeSet::new();
    // Most buckets have the hosts of a recent one.
    let mut last = [BucketPlacement::default(); 4];
    for owners in all {
        if let Some(owner) = owners.owner().filter(|_| !last.contains(&owners)) {
            pairs.extend(owners.all().map(|host| (owner, host)));
            last.rotate_right(1);
            last[0] = owners;
        }
    }
    pairs
}

fn hosts(parts: &[SliceBuckets]) -> &[WeightedHost] {
    parts.first().map_or(&[], |part| &part.hosts)
}

/// Returns the placement of each bucket by the ring.
fn placed(parts: &[SliceBuckets]) -> Vec<BucketPlacement> {
    let ring = Ring::new(hosts(parts), RING);
    let slices = parts.len().max(1);
    // No more than there are hosts: the ring would be searched completely for others.
    let most = 1 + parts.iter().map(|part| part.replicas.min(MAX_PLACED_REPLICAS)).max().unwrap_or(0);
    let most = most.min(ring.hosts());
    let columns = (0..BUCKETS.div_ceil(slices) as u64).map(|column| BucketPlacement::new(ring.copies(column, most)));
    let of = |column: BucketPlacement| {
        parts.iter().map(move |part| match 1 + part.replicas.min(MAX_PLACED_REPLICAS) {
            copies if copies < most => BucketPlacement::new(column.all().take(copies)),
            _ => column,
        })
    };
    let mut all: Vec<BucketPlacement> = columns.flat_map(of).collect();
    all.resize(BUCKETS, BucketPlacement::default());
    all
}

/// Rules for the change of a bucket.
#[derive(Clone, Copy)]
struct Rules<'a> {
    /// True if the slice has replicas.
    copied: bool,
    /// True if a bucket of the column first gets a first replica on another machine. The others
    /// wait, because a column has one owner.
    reorders: bool,
    machines: &'a Machines,
}

/// Returns the replica that becomes the first one because it is on another machine than the owner,
/// if the first one is not. `None` if the first one is, or none.
fn replica_apart(now: BucketPlacement, machines: &Machines) -> Option<HostId> {
    let (owner, first) = (now.owner()?, now.replicas().next()?);
    let is_apart = |host: &HostId| !machines.share(owner, *host);
    if is_apart(&first) { None } else { now.replicas().find(is_apart) }
}

/// Returns the placement of a bucket after a switch.
fn target(now: BucketPlacement, wanted: BucketPlacement, rules: Rules<'_>) -> BucketPlacement {
    let Some(from) = now.owner() else { return wanted };
    // Without a wanted host nothing moves.
    let Some(to) = wanted.owner() else { return now };
    let Rules { copied, reorders, machines } = rules;
    if reorders {
        // Before anything else: until then the failure of a machine may lose commits.
        let Some(apart) = replica_apart(now, machines) else { return now };
        let others = now.replicas().filter(|host| *host != apart);
        return BucketPlacement::new([from, apart].into_iter().chain(others));
    }
    if from == to {
        // In ring order: where the slices of a column have different numbers of replicas, the first
        // is the same.
        return wanted;
    }
    let missing = wanted.all().filter(|host| !now.has(*host));
    // The old owner has all commits: it stays until others do.
    let old = copied.then_some(from);
    // So does the first replica on another machine, if one machine has both owners.
    let apart = now.replicas().find(|host| copied && machines.share(from, to) && !machines.share(to, *host));
    let stays = |host: &HostId| ![from, to].contains(host) && Some(*host) != apart && wanted.has(*host);
    let stay = apart.into_iter().chain(now.all().filter(stays));
    let missing = missing.filter(|host| *host != to);
    BucketPlacement::new([to].into_iter().chain(old).chain(stay).chain(missing))
}

/// Returns the host that a change puts into first or second position, if commits must wait for it
/// first.
fn coming(now: BucketPlacement, target: BucketPlacement) -> Option<HostId> {
    let place = if now.owner() == target.owner() { 1 } else { 0 };
    let host = target.all().nth(place)?;
    (now.all().nth(1) != Some(host)).then_some(host)
}

fn prepared(now: BucketPlacement, wanted: BucketPlacement, rules: Rules<'_>) -> BucketPlacement {
    let Some(from) = now.owner() else { return wanted };
    let Some(to) = wanted.owner() else { return now };
    if rules.reorders {
        let mut next = now;
        next.coming = replica_apart(now, rules.machines).or(now.coming);
        return next;
    }
    // The next owner comes first, further replicas after the switch.
    let of = if from == to { usize::MAX } else { 1 };
    let mut missing: Vec<HostId> = wanted.all().take(of).filter(|host| !now.has(*host)).collect();
    // The owner and the first replica have all commits. Of the others, wanted ones leave only for
    // the host that the switch needs.
    let mut others: Vec<HostId> = now.all().skip(2).collect();
    let needed = wanted.all().nth(usize::from(from == to)).filter(|host| missing.first() == Some(host));
    let room = (MAX_PLACED_REPLICAS - 1).saturating_sub(others.iter().filter(|host| wanted.has(**host)).count());
    missing.truncate(room.max(needed.iter().count()));
    others.sort_by_key(|host| !wanted.has(*host));
    others.truncate(MAX_PLACED_REPLICAS - 1 - missing.len());
    let stay = now.all().enumerate().filter(|(n, host)| *n < 2 || others.contains(host)).map(|(_, host)| host);
    let mut next = BucketPlacement::new(stay.chain(missing.iter().copied()));
    next.coming = coming(next, target(next, wanted, rules));
    next
}

fn switched(now: BucketPlacement, wanted: BucketPlacement, rules: Rules<'_>) -> BucketPlacement {
    let next = target(now, wanted, rules);
    let there = next.owner().is_none_or(|host| now.has(host)) && next.all().nth(1).is_none_or(|host| now.has(host));
    let waited_for = coming(now, next).is_none_or(|host| now.coming == Some(host));
    if now.owner().is_none() || there && waited_for { next } else { now }
}

#[cfg(test)]
mod tests {
    use super::super::machines::MachineIndex;
    use super::super::ring::WeightedHost;
    use super::*;

    fn part(weight: f64, replicas: usize, hosts: &[u16]) -> SliceBuckets {
        let hosts = hosts.iter().map(|n| WeightedHost::new(HostId(*n), 1.0)).collect();
        SliceBuckets { weight, replicas, hosts }
    }

    fn buckets() -> impl Iterator<Item = Bucket> {
        (0..Bucket::COUNT).map(Bucket::new)
    }

    #[test]
    fn joined_host_gets_copies_before_buckets() {
        let before = BucketMap::first(&[part(1.0, 1, &[0, 1, 2])]);
        // Host 3 has joined since.
        let after = before.next(&[part(1.0, 1, &[0, 2, 3])]);
        assert_eq!((after.epoch(), after.is_complete()), (2, true));
        let mut copies_of_the_new = 0;
        for bucket in (0..Bucket::COUNT).map(Bucket::new) {
            let (old, new) = (before.owners(bucket), after.owners(bucket));
            let first = old.all().find(|host| *host != HostId(1));
            assert_eq!(new.owner(), first, "whoever is first of those that have the state");
            assert_eq!(new.all().count(), 2, "and a copy again");
            assert!(!new.has(HostId(1)) && new.owner() != Some(HostId(3)));
            copies_of_the_new += usize::from(new.has(HostId(3)));
        }
        assert!(copies_of_the_new > 0);
        let last = after.next(&[part(1.0, 1, &[2])]);
        let alone = |b| last.owners(Bucket::new(b)).all().eq([HostId(2)]);
        assert!((0..Bucket::COUNT).all(alone));
    }

    /// Cluster whose hosts have all or some commits of each bucket.
    #[derive(Clone)]
    struct World {
        map: BucketMap,
        parts: Vec<SliceBuckets>,
        /// Per bucket, the hosts that have all released commits.
        whole: BTreeMap<Bucket, BTreeSet<HostId>>,
    }

    impl World {
        fn new(parts: Vec<SliceBuckets>) -> Self {
            let map = BucketMap::first(&parts);
            let whole = buckets().map(|bucket| (bucket, map.owners(bucket).all().collect())).collect();
            World { map, parts, whole }
        }

        /// Starts an epoch. Commits released from here on are certain to be only at the owner and
        /// at the hosts that it waits for.
        fn adopt(&mut self, next: BucketMap, dead: Option<HostId>) {
            assert_eq!(next.epoch(), self.map.epoch() + 1);
            for bucket in buckets() {
                let (old, new) = (self.map.owners(bucket), next.owners(bucket));
                let whole = self.whole.get_mut(&bucket).unwrap();
                let owner = new.owner().expect("no bucket is without an owner");
                assert!(whole.contains(&owner), "{bucket:?} goes from {old:?} to {new:?}, who has not all of it");
                whole.retain(|host| new.has(*host) && Some(*host) != dead);
                // A host that hands off is the first replica, if there is one.
                let stays = new.all().count() == 1 || new.first_replica().next() == old.owner();
                assert!(old.owner() == Some(owner) || dead.is_some() || stays);
                let waits: Vec<_> = new.first_replica().collect();
                whole.retain(|host| *host == owner || waits.contains(host));
            }
            self.map = next;
        }

        /// Brings all replicas up to date.
        fn catch_up(&mut self) {
            let hosts: BTreeSet<HostId> =
                self.parts.iter().flat_map(|part| &part.hosts).map(|host| host.host).collect();
            let mut catch_up = CatchUp::new(&self.map, hosts.iter().copied());
            let themselves = hosts.into_iter().map(|host| (host, host));
            for (owner, replica) in self.map.replication_pairs().into_iter().chain(themselves).collect::<BTreeSet<_>>()
            {
                assert!(!catch_up.is_complete());
                catch_up.acknowledge(owner, self.map.epoch() - 1, replica);
                assert!(!catch_up.is_complete(), "of an epoch before");
                catch_up.acknowledge(owner, self.map.epoch(), replica);
                if catch_up.is_complete() {
                    break;
                }
            }
            for bucket in buckets() {
                let owners = self.map.owners(bucket);
                // Later commits are there too, at the hosts that the owner waits for.
                let sure = owners.owner().into_iter().chain(owners.first_replica());
                self.whole.insert(bucket, sure.collect());
            }
        }

        /// Migrates until nothing changes; returns the number of epochs.
        fn settle(&mut self) -> u64 {
            self.settle_by(BUCKETS)
        }

        /// The same with a limit of buckets at once.
        fn settle_by(&mut self, at_once: usize) -> u64 {
            let first = self.map.epoch();
            while let Some(next) = self.step(at_once) {
                self.adopt(next, None);
                self.catch_up();
                assert!(self.map.epoch() < first + 100, "it comes to an end");
            }
            for (bucket, wanted) in buckets().zip(placed(&self.parts)) {
                let owners = self.map.owners(bucket);
                assert_eq!(owners.owner(), wanted.owner());
                assert_eq!(owners.all().collect::<BTreeSet<_>>(), wanted.all().collect());
            }
            self.map.epoch() - first
        }

        fn step(&self, at_once: usize) -> Option<BucketMap> {
            self.map.prepare(&self.parts).or_else(|| self.map.switch(&self.parts, at_once))
        }
    }

    #[test]
    fn joined_host_gets_share_drained_host_has_none() {
        for replicas in 0..3 {
            let mut world = World::new(vec![part(1.0, replicas, &[0, 1, 2]); 3]);
            assert_eq!(world.settle(), 0, "nothing is to be done");
            world.parts = vec![part(1.0, replicas, &[0, 1, 2, 3]); 3];
            let next = world.map.next(&world.parts);
            assert_eq!(next.owners, world.map.owners, "by itself who joins changes nothing");
            world.adopt(next, None);
            world.catch_up();
            assert!(world.settle() <= 4);
            let mine = buckets().filter(|b| world.map.owners(*b).owner() == Some(HostId(3))).count();
            assert!((700..1400).contains(&mine), "{mine} of 4096 buckets are the fourth host's");

            world.parts.iter_mut().for_each(|part| part.hosts[1].weight = 0.0);
            assert!(world.settle() <= 4);
            assert!(!world.map.has(HostId(1)) && world.map.has(HostId(3)));
            world.parts.iter_mut().for_each(|part| part.hosts.iter_mut().for_each(|host| host.weight = 0.0));
            assert_eq!(world.step(BUCKETS), None, "there is nobody to go to");
        }
    }

    #[test]
    fn switch_moves_whole_columns_up_to_limit() {
        let mut world = World::new(vec![part(1.0, 1, &[0, 1, 2]); 3]);
        world.parts = vec![part(1.0, 1, &[0, 1, 2, 3]); 3];
        let (mut steps, mut epochs) = (Vec::new(), 0);
        while let Some(next) = world.step(300) {
            let gone = |b: &Bucket| world.map.owners(*b).owner() != next.owners(*b).owner();
            steps.extend(Some(buckets().filter(gone).count()).filter(|count| *count > 0));
            for (bucket, home) in buckets().filter_map(|b| Some((b, in_column(b, 1, 3)?))) {
                assert_eq!(gone(&bucket), gone(&home), "a column is torn apart");
            }
            world.adopt(next, None);
            world.catch_up();
            epochs += 1;
            assert!(epochs < 100, "it comes to an end");
        }
        assert!(steps.len() > 2 && steps.iter().all(|count| *count <= 300), "{steps:?}");
        assert!((700..1400).contains(&steps.iter().sum::<usize>()), "{steps:?}");
        world.parts.iter_mut().for_each(|part| part.hosts[1].weight = 0.0);
        let prepared = world.map.prepare(&world.parts).expect("others get copies first");
        world.adopt(prepared, None);
        world.catch_up();
        let next = world.map.switch(&world.parts, 1).expect("a column at a time is the least");
        assert_eq!(buckets().filter(|b| world.map.owners(*b).owner() != next.owners(*b).owner()).count(), 3);
        world.settle_by(512);
        assert!(!world.map.has(HostId(1)));
    }

    #[test]
    fn dead_host_in_migration_loses_no_bucket() {
        // Each host fails after each number of migration steps.
        for (steps, dead) in (1..3).flat_map(|steps| (0..4).map(move |dead| (steps, dead))) {
            let mut world = World::new(vec![part(1.0, 1, &[0, 1, 2]); 2]);
            world.parts = vec![part(1.0, 1, &[0, 1, 2, 3]); 2];
            for _ in 0..steps {
                let next = world.step(BUCKETS);
                world.adopt(next.expect("a join takes two epochs"), None);
                world.catch_up();
            }
            world.parts.iter_mut().for_each(|part| part.hosts.retain(|weighted| weighted.host.0 != dead));
            let next = world.map.next(&world.parts);
            world.adopt(next, Some(HostId(dead)));
            world.catch_up();
            world.settle();
        }
    }

    /// Hosts of a slice, each with its machine.
    fn part_on(replicas: usize, hosts: &[(u16, u16)]) -> SliceBuckets {
        let host = |(n, machine): &(u16, u16)| WeightedHost {
            machine: Some(MachineIndex(*machine)),
            ..WeightedHost::new(HostId(*n), 1.0)
        };
        SliceBuckets { weight: 1.0, replicas, hosts: hosts.iter().map(host).collect() }
    }

    /// Hosts that join and leave, on shared machines.
    const LABELLED: [[&[(u16, u16)]; 2]; 3] = [
        [&[(0, 0), (1, 1), (2, 2)], &[(0, 0), (1, 1), (2, 2), (3, 0)]],
        [&[(0, 0), (1, 0), (2, 1), (3, 2)], &[(0, 0), (1, 0), (2, 1), (3, 2), (4, 1), (5, 0)]],
        [&[(0, 0), (1, 0), (2, 0)], &[(0, 0), (1, 0), (2, 0), (3, 1)]],
    ];

    #[test]
    fn labels_leave_owners_and_part_replicas() {
        for (replicas, hosts) in (1..=3).flat_map(|replicas| LABELLED.map(|[_, hosts]| (replicas, hosts))) {
            let ids: Vec<u16> = hosts.iter().map(|(host, _)| *host).collect();
            let plain = BucketMap::first(&vec![part(1.0, replicas, &ids); 2]);
            let map = BucketMap::first(&vec![part_on(replicas, hosts); 2]);
            let machine = |host: HostId| hosts.iter().find(|(own, _)| *own == host.0).unwrap().1;
            let machines: BTreeSet<u16> = hosts.iter().map(|(_, machine)| *machine).collect();
            for bucket in buckets() {
                let owners = map.owners(bucket);
                assert_eq!(owners.owner(), plain.owners(bucket).owner());
                assert_eq!(owners.all().count(), (1 + replicas).min(hosts.len()));
                let used: BTreeSet<u16> = owners.all().map(machine).collect();
                assert_eq!(used.len(), machines.len().min(owners.all().count()), "{bucket:?}: {owners:?}");
            }
            assert_eq!(map.ring_points(2, 40..=640), plain.ring_points(2, 40..=640));
        }
    }

    /// Lets all hosts of each machine fail at once, and returns one of the resulting clusters.
    fn fail_machines(world: &World) -> World {
        let failed = (0..3).filter_map(|machine| {
            let mut failed = world.clone();
            let is_there = |host: &WeightedHost| host.machine != Some(MachineIndex(machine));
            let dead = world.parts[0].hosts.iter().find(|host| !is_there(host))?.host;
            failed.parts.iter_mut().for_each(|part| part.hosts.retain(is_there));
            let next = failed.map.next(&failed.parts);
            failed.adopt(next, Some(dead));
            Some(failed)
        });
        failed.reduce(|_, last| last).expect("a machine")
    }

    /// A machine fails in each step of a migration, before and after the hosts have caught up.
    #[test]
    fn dead_machine_in_migration_loses_no_bucket() {
        for ([before, after], replicas) in LABELLED.into_iter().flat_map(|hosts| [1, 2].map(|n| (hosts, n))) {
            let mut world = World::new(vec![part_on(replicas, before); 2]);
            world.parts = vec![part_on(replicas, after); 2];
            // Without a second machine the state is lost until another one has copies.
            let is_safe = before.iter().any(|(_, machine)| *machine > 0);
            let (mut epochs, mut failed) = (0, None);
            while let Some(next) = world.step(BUCKETS) {
                world.adopt(next, None);
                failed = is_safe.then(|| fail_machines(&world)).or(failed);
                world.catch_up();
                failed = is_safe.then(|| fail_machines(&world)).or(failed);
                epochs += 1;
                assert!(epochs < 20, "it comes to an end");
            }
            assert!(epochs >= 2, "{epochs} epochs");
            for mut failed in failed.into_iter().chain([fail_machines(&world)]) {
                failed.catch_up();
                failed.settle();
            }
        }
    }

    #[test]
    fn new_label_moves_replicas_but_no_owner() {
        let mut world = World::new(vec![part(1.0, 1, &[0, 1, 2, 3]); 2]);
        let before = world.map.clone();
        world.parts = vec![part_on(1, &[(0, 0), (1, 0), (2, 1), (3, 2)]); 2];
        let epochs = world.settle();
        assert!((2..=4).contains(&epochs), "{epochs} epochs");
        for bucket in buckets() {
            let owners = world.map.owners(bucket);
            assert_eq!(owners.owner(), before.owners(bucket).owner());
            assert!(!(owners.has(HostId(0)) && owners.has(HostId(1))), "{bucket:?}: {owners:?}");
        }
    }

    /// A slice without copies has one host at a time, that of its columns, where its UEs get their
    /// LTMSI.
    #[test]
    fn slice_without_copies_follows_its_columns() {
        let parts =
            |hosts: &[u16]| -> Vec<SliceBuckets> { [2, 0, 1].map(|replicas| part(1.0, replicas, hosts)).into() };
        let together = |map: &BucketMap| {
            for bucket in buckets() {
                let Some(alone) = in_column(bucket, 1, 3) else { continue };
                assert_eq!(map.owners(bucket).owner(), map.owners(alone).owner(), "{bucket:?} and {alone:?}");
            }
        };
        let step = |map: &BucketMap, parts: &[SliceBuckets]| {
            map.prepare(parts).or_else(|| map.switch(parts, 512)).inspect(together)
        };
        for (steps, dead) in (0..5).flat_map(|steps| (0..4).map(move |dead| (steps, dead))) {
            let mut map = BucketMap::first(&parts(&[0, 1, 2]));
            let all = parts(&[0, 1, 2, 3]);
            map = map.next(&all);
            for _ in 0..steps {
                map = step(&map, &all).unwrap_or(map);
            }
            let rest: Vec<u16> = (0..4).filter(|host| *host != dead).collect();
            for hosts in [&rest[..], &rest[1..]] {
                let parts = parts(hosts);
                map = map.next(&parts);
                together(&map);
                while let Some(next) = step(&map, &parts) {
                    map = next;
                }
                assert!(map.buckets(1).all(|bucket| map.owners(bucket).all().count() == 1));
            }
        }
    }

    #[test]
    fn columns_stay_together() {
        let mut world = World::new([2, 1, 2].map(|replicas| part(1.0, replicas, &[0, 1, 2, 3])).into());
        let together = |map: &BucketMap| {
            for bucket in buckets() {
                let Some(home) = in_column(bucket, 1, 3) else { continue };
                assert_eq!((map.slice(bucket), map.slice(home)), (usize::from(bucket.get() % 3), 1));
                assert_eq!(map.owners(bucket).owner(), map.owners(home).owner(), "{bucket:?} and {home:?}");
            }
        };
        together(&world.map);
        world.parts = [2, 1, 2].map(|replicas| part(1.0, replicas, &[0, 2, 3])).into();
        let next = world.map.next(&world.parts);
        world.adopt(next, Some(HostId(1)));
        together(&world.map);
        world.catch_up();
        world.settle();
        together(&world.map);
        // Hosts that join move columns within machines, and others join meanwhile.
        let slices = |hosts: &[(u16, u16)]| -> Vec<SliceBuckets> { [2, 1, 3].map(|n| part_on(n, hosts)).into() };
        let hosts = [(0, 0), (2, 1), (3, 2), (4, 0), (5, 1), (6, 2)];
        for steps in 0..6 {
            let mut world = World::new(slices(&hosts[..3]));
            for (joined, steps) in [(4, steps), (5, steps), (6, 100)] {
                world.parts = slices(&hosts[..joined]);
                for _ in 0..steps {
                    let Some(next) = world.step(512) else { break };
                    world.adopt(next, None);
                    together(&world.map);
                    world.catch_up();
                }
            }
            world.settle();
        }
        assert_eq!(in_column(Bucket::new(4095), 0, 3), Some(Bucket::new(4095)));
        assert_eq!(in_column(Bucket::new(4095), 1, 3), None, "the last column has one bucket of three");
    }
}
