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

use super::HostId;
use super::map::{BUCKETS, BucketMap, BucketPlacement, FIRST_EPOCH, MOST_REPLICAS, SliceBuckets};
use super::ring::{Ring, recover_points};
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
    /// ring order. No bucket goes to a host without a copy while there is one with it. The UEs of
    /// slices without copies are lost; such a bucket goes to the owner of its column.
    pub fn next(&self, parts: &[SliceBuckets]) -> Self {
        let there: Vec<HostId> = hosts(parts).iter().map(|weighted| weighted.host).collect();
        let mut next = self.with(parts, |now, wanted, _| {
            let stay = || now.all().filter(|host| there.contains(host));
            let missing = wanted.all().count().saturating_sub(stay().count());
            let join = wanted.all().filter(|host| !stay().any(|own| own == *host));
            BucketPlacement::new(stay().chain(join.take(missing)))
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
    /// and whether the slice has replicas.
    fn with(
        &self,
        parts: &[SliceBuckets],
        change: impl Fn(BucketPlacement, BucketPlacement, bool) -> BucketPlacement,
    ) -> Self {
        let copied = |bucket: usize| parts.get(bucket % parts.len().max(1)).is_some_and(|part| part.replicas > 0);
        let all = self.owners.iter().zip(placed(parts)).enumerate();
        let mut last = None;
        let owners = all.map(|(bucket, (now, wanted))| {
            let of = (*now, wanted, copied(bucket));
            // Most buckets are in place, and those of a column are mostly equal.
            match last {
                _ if *now == wanted => wanted,
                Some((same, next)) if same == of => next,
                _ => {
                    let next = change(of.0, of.1, of.2);
                    last = Some((of, next));
                    next
                }
            }
        });
        BucketMap { epoch: self.epoch + 1, owners: owners.collect(), slices: self.slices.clone() }
    }

    /// Returns true if a host is the owner or a replica of any bucket.
    pub fn has(&self, host: HostId) -> bool {
        self.owners.iter().any(|owners| owners.has(host))
    }

    /// Returns the hosts' numbers of points on the ring by which this map has placed the columns of
    /// so many slices, within `range`. `None` while a migration is in progress, since such a map
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

fn hosts(parts: &[SliceBuckets]) -> &[super::ring::WeightedHost] {
    parts.first().map_or(&[], |part| &part.hosts)
}

/// Returns the placement of each bucket by the ring.
fn placed(parts: &[SliceBuckets]) -> Vec<BucketPlacement> {
    let ring = Ring::new(hosts(parts), RING);
    let slices = parts.len().max(1);
    // No more than there are hosts: the ring would be searched completely for others.
    let most = 1 + parts.iter().map(|part| part.replicas.min(MOST_REPLICAS)).max().unwrap_or(0);
    let most = most.min(ring.hosts());
    let columns =
        (0..BUCKETS.div_ceil(slices) as u64).map(|column| BucketPlacement::new(ring.owners(column).take(most)));
    let of = |column: BucketPlacement| {
        parts.iter().map(move |part| match 1 + part.replicas.min(MOST_REPLICAS) {
            copies if copies < most => BucketPlacement::new(column.all().take(copies)),
            _ => column,
        })
    };
    let mut all: Vec<BucketPlacement> = columns.flat_map(of).collect();
    all.resize(BUCKETS, BucketPlacement::default());
    all
}

/// Returns the placement of a bucket after a switch.
fn target(now: BucketPlacement, wanted: BucketPlacement, copied: bool) -> BucketPlacement {
    let Some(from) = now.owner() else { return wanted };
    // Without a wanted host nothing moves.
    let Some(to) = wanted.owner() else { return now };
    if from == to {
        // In ring order: where the slices of a column have different numbers of replicas, the first
        // is the same.
        return wanted;
    }
    let missing = wanted.all().filter(|host| !now.has(*host));
    // The old owner has all commits: it stays until others do.
    let old = copied.then_some(from);
    let stay = now.all().filter(|host| ![from, to].contains(host) && wanted.has(*host));
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

fn prepared(now: BucketPlacement, wanted: BucketPlacement, copied: bool) -> BucketPlacement {
    let Some(from) = now.owner() else { return wanted };
    let Some(to) = wanted.owner() else { return now };
    // The next owner comes first, further replicas after the switch.
    let of = if from == to { usize::MAX } else { 1 };
    let missing: Vec<HostId> = wanted.all().take(of).filter(|host| !now.has(*host)).collect();
    let stay = now.all().take(1 + MOST_REPLICAS - missing.len());
    let mut next = BucketPlacement::new(stay.chain(missing.iter().copied()));
    next.coming = coming(next, target(next, wanted, copied));
    next
}

fn switched(now: BucketPlacement, wanted: BucketPlacement, copied: bool) -> BucketPlacement {
    let next = target(now, wanted, copied);
    let there = next.owner().is_none_or(|host| now.has(host)) && next.all().nth(1).is_none_or(|host| now.has(host));
    let waited_for = coming(now, next).is_none_or(|host| now.coming == Some(host));
    if now.owner().is_none() || there && waited_for { next } else { now }
}

#[cfg(test)]
mod tests {
    use super::super::ring::WeightedHost;
    use super::*;

    fn part(weight: f64, replicas: usize, hosts: &[u16]) -> SliceBuckets {
        let hosts = hosts.iter().map(|n| WeightedHost { host: HostId(*n), weight: 1.0 }).collect();
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
        assert_eq!(in_column(Bucket::new(4095), 0, 3), Some(Bucket::new(4095)));
        assert_eq!(in_column(Bucket::new(4095), 1, 3), None, "the last column has one bucket of three");
    }
}
