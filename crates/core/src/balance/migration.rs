//! How buckets get other hosts while these work: who dies leaves its buckets to who has copies, and between hosts that live
//! a bucket goes in two steps, so that nobody ever owns UEs without their state.
//!
//! A map that is [prepared](BucketMap::prepare) gives copies to who is to have them, and names the host that is to become
//! the primary or its first replica: from then on each commit is waited for at that host too. When all owners have said
//! that their replicas are up to date in that very epoch ([`CatchUp`]), the map is [switched](BucketMap::switch): a bucket
//! with another primary keeps the old one as the first replica, which hands over (it ends what it has begun, lets the
//! effects go, and says so to the new one) and is dropped, if it is to be, by one more such round. Both are repeated until
//! neither changes anything. So many buckets at once get another primary as one may say: while a bucket is handed over, what
//! its UEs want waits, and a host that gave all away at once would keep all waiting.
//!
//! Buckets are dealt to slice 0 and the slices in turn. Those of one turn, one of each, are a *column*, and have the same
//! hosts for ever: a UE gets a number of its home slice within its column, and so is never torn apart by the numbers that it
//! was known by before.

use super::HostId;
use super::map::{BUCKETS, BucketMap, BucketPlacement, FIRST_EPOCH, MOST_REPLICAS, SliceBuckets};
use super::ring::Ring;
use std::collections::BTreeSet;
use vireo_types::Bucket;

/// The bucket of a slice in the column of another bucket, of so many slices with slice 0; `None` in the last column if that
/// is not whole.
pub fn in_column(bucket: Bucket, slice: usize, slices: usize) -> Option<Bucket> {
    let at = usize::from(bucket.get()) / slices * slices + slice;
    (slice < slices && at < BUCKETS).then(|| Bucket::new(at as u16))
}

impl BucketMap {
    /// The first map of a cluster whose hosts will come and go: [`BucketMap::next`], [`BucketMap::prepare`] and
    /// [`BucketMap::switch`] make the others. Slices have equal parts, and the hosts of the first.
    pub fn first(parts: &[SliceBuckets]) -> Self {
        let slices = (0..BUCKETS).map(|bucket| (bucket % parts.len().max(1)) as u16).collect();
        BucketMap { epoch: FIRST_EPOCH, owners: placed(parts).into(), slices }
    }

    /// The next epoch's map for the hosts that there are now, without a step further in what is being moved. A bucket of a
    /// host that is gone goes to the first of those that have a copy, and where copies are missing, the next hosts of the
    /// circle get one. No bucket goes to a host without a copy while there is one with it. Of a slice without copies nothing is
    /// left: its buckets go where the others of their columns go.
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

    /// Gives those buckets of slices without copies that are `bereft` to the primaries of their columns.
    fn co_locate_columns(&mut self, parts: &[SliceBuckets], bereft: impl Fn(usize) -> bool) {
        let Some((lead, most)) = parts.iter().map(|part| part.replicas).enumerate().rev().max_by_key(|(_, n)| *n)
        else {
            return;
        };
        if most == 0 {
            return;
        }
        for first in (0..BUCKETS).step_by(parts.len()) {
            let Some(primary) = self.owners.get(first + lead).and_then(BucketPlacement::owner) else { continue };
            let alone = (0..parts.len()).filter(|slice| parts[*slice].replicas == 0).map(|slice| first + slice);
            for bucket in alone.filter(|bucket| *bucket < BUCKETS && bereft(*bucket)) {
                self.owners[bucket] = BucketPlacement::new([primary]);
            }
        }
    }

    /// The next epoch's map by which those get copies that are to have buckets by `parts`, where a host that is to leave has
    /// no weight; `None` if all are there that can be. No primary changes by it.
    pub fn prepare(&self, parts: &[SliceBuckets]) -> Option<Self> {
        self.unless_same(self.with(parts, prepared))
    }

    /// The next epoch's map by which buckets are where they are to be by `parts`, as far as copies are there: only when
    /// every owner has said so of this epoch. At most `at_once` of them get another primary by it, but one column at the
    /// least. `None` if all are where they are to be.
    pub fn switch(&self, parts: &[SliceBuckets], at_once: usize) -> Option<Self> {
        let mut next = self.with(parts, switched);
        let (slices, mut switched) = (parts.len().max(1), 0);
        // Columns stay together.
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

    /// The next epoch's map, each bucket's hosts from those of now, those by the circle, and whether there are replicas.
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
            // Most are where they are to be, and those of a column are mostly alike.
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

    /// Whether a host keeps anything.
    pub fn has(&self, host: HostId) -> bool {
        self.owners.iter().any(|owners| owners.has(host))
    }

    /// Each primary with itself, and with each host that keeps copies for it; each pair once.
    pub fn replication_pairs(&self) -> BTreeSet<(HostId, HostId)> {
        pairs(self.owners.iter().copied())
    }

    /// The same of one primary.
    pub fn pairs_of(&self, host: HostId) -> BTreeSet<(HostId, HostId)> {
        pairs(self.buckets_owned_by(host))
    }
}

/// Who has not said yet that a replica has all copies that an epoch wants it to have, or of itself that it has all UEs and
/// knows all RAN nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatchUp {
    epoch: u64,
    waiting: BTreeSet<(HostId, HostId)>,
}

impl CatchUp {
    /// Everybody, of this map of these hosts. A host that owns nothing yet says of itself that it knows the RAN nodes: nothing
    /// is switched to it before.
    pub fn of(map: &BucketMap, hosts: impl IntoIterator<Item = HostId>) -> Self {
        let mut waiting = map.replication_pairs();
        waiting.extend(hosts.into_iter().map(|host| (host, host)));
        CatchUp { epoch: map.epoch(), waiting }
    }

    /// An owner has said of an epoch that a replica has all of its copies, or a host of itself that it has all that was handed over
    /// to it and knows the RAN nodes.
    pub fn acknowledge(&mut self, owner: HostId, epoch: u64, replica: HostId) {
        if epoch == self.epoch {
            self.waiting.remove(&(owner, replica));
        }
    }

    /// Whether all have: what the epoch has prepared may be switched.
    pub fn is_complete(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn pairs(all: impl Iterator<Item = BucketPlacement>) -> BTreeSet<(HostId, HostId)> {
    let mut pairs = BTreeSet::new();
    // Most buckets have the hosts of one of a few before.
    let mut last = [BucketPlacement::default(); 4];
    for owners in all {
        if let Some(primary) = owners.owner().filter(|_| !last.contains(&owners)) {
            pairs.extend(owners.all().map(|host| (primary, host)));
            last.rotate_right(1);
            last[0] = owners;
        }
    }
    pairs
}

fn hosts(parts: &[SliceBuckets]) -> &[super::ring::WeightedHost] {
    parts.first().map_or(&[], |part| &part.hosts)
}

/// The hosts of each bucket by the circle.
fn placed(parts: &[SliceBuckets]) -> Vec<BucketPlacement> {
    let ring = Ring::new(hosts(parts), 0);
    let slices = parts.len().max(1);
    // No more than there are: the circle would be gone round for others.
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

/// The hosts of a bucket once it may be switched.
fn target(now: BucketPlacement, wanted: BucketPlacement, copied: bool) -> BucketPlacement {
    let Some(from) = now.owner() else { return wanted };
    // Where nobody is to have it, nothing is moved.
    let Some(to) = wanted.owner() else { return now };
    if from == to {
        // In the circle's order: where the slices of a column have different numbers of copies, the first is the same.
        return wanted;
    }
    let missing = wanted.all().filter(|host| !now.has(*host));
    // The old primary has all: it stays until others do.
    let old = copied.then_some(from);
    let stay = now.all().filter(|host| ![from, to].contains(host) && wanted.has(*host));
    let missing = missing.filter(|host| *host != to);
    BucketPlacement::new([to].into_iter().chain(old).chain(stay).chain(missing))
}

/// Which host comes into the first or second place by a change, whose first replica is waited for before.
fn coming(now: BucketPlacement, target: BucketPlacement) -> Option<HostId> {
    let place = if now.owner() == target.owner() { 1 } else { 0 };
    let host = target.all().nth(place)?;
    (now.all().nth(1) != Some(host)).then_some(host)
}

fn prepared(now: BucketPlacement, wanted: BucketPlacement, copied: bool) -> BucketPlacement {
    let Some(from) = now.owner() else { return wanted };
    let Some(to) = wanted.owner() else { return now };
    // Who is to be the primary comes first, the others when it is.
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
    use std::collections::BTreeMap;

    fn part(weight: f64, replicas: usize, hosts: &[u16]) -> SliceBuckets {
        let hosts = hosts.iter().map(|n| WeightedHost { host: HostId(*n), weight: 1.0 }).collect();
        SliceBuckets { weight, replicas, hosts }
    }

    fn buckets() -> impl Iterator<Item = Bucket> {
        (0..Bucket::COUNT).map(Bucket::new)
    }

    #[test]
    fn a_host_that_goes_leaves_its_buckets_to_who_has_copies_and_a_new_host_gets_copies_only() {
        let before = BucketMap::first(&[part(1.0, 1, &[0, 1, 2])]);
        // host 3 has joined since
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

    /// A cluster whose hosts have, of each bucket, all commits or some.
    struct World {
        map: BucketMap,
        parts: Vec<SliceBuckets>,
        /// Who has all that was ever released of a bucket.
        whole: BTreeMap<Bucket, BTreeSet<HostId>>,
    }

    impl World {
        fn new(parts: Vec<SliceBuckets>) -> Self {
            let map = BucketMap::first(&parts);
            let whole = buckets().map(|bucket| (bucket, map.owners(bucket).all().collect())).collect();
            World { map, parts, whole }
        }

        /// A new epoch: what is released from now on is at the primary and at whom it waits for, and nowhere else for sure.
        fn adopt(&mut self, next: BucketMap, dead: Option<HostId>) {
            assert_eq!(next.epoch(), self.map.epoch() + 1);
            for bucket in buckets() {
                let (old, new) = (self.map.owners(bucket), next.owners(bucket));
                let whole = self.whole.get_mut(&bucket).unwrap();
                let primary = new.owner().expect("no bucket is without an owner");
                assert!(whole.contains(&primary), "{bucket:?} goes from {old:?} to {new:?}, who has not all of it");
                whole.retain(|host| new.has(*host) && Some(*host) != dead);
                // one that hands over is the first replica, if there is one
                let stays = new.all().count() == 1 || new.first_replica().next() == old.owner();
                assert!(old.owner() == Some(primary) || dead.is_some() || stays);
                let waits: Vec<_> = new.first_replica().collect();
                whole.retain(|host| *host == primary || waits.contains(host));
            }
            self.map = next;
        }

        /// All replicas are up to date.
        fn catch_up(&mut self) {
            let hosts: BTreeSet<HostId> =
                self.parts.iter().flat_map(|part| &part.hosts).map(|host| host.host).collect();
            let mut catch_up = CatchUp::of(&self.map, hosts.iter().copied());
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
                // What goes on being released is there as well at whom it waits for.
                let sure = owners.owner().into_iter().chain(owners.first_replica());
                self.whole.insert(bucket, sure.collect());
            }
        }

        /// Moves until all is where it is to be; in how many epochs.
        fn settle(&mut self) -> u64 {
            self.settle_by(BUCKETS)
        }

        /// The same with so many buckets at once.
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
    fn a_host_that_joins_gets_its_part_and_one_that_drains_gives_all_away() {
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
    fn no_more_buckets_than_may_go_at_once_and_columns_whole() {
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
    fn who_dies_in_the_middle_of_a_move_leaves_its_buckets_to_who_has_all_of_them() {
        // After each number of steps of a move, each of the hosts.
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

    /// A slice whose UEs are copied nowhere has one host at a time, that of its columns: a UE gets its number there.
    #[test]
    fn a_slice_without_copies_goes_where_its_columns_go_whoever_dies_and_when() {
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
