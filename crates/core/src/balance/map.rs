//! Which hosts keep a bucket's UEs: the circles of all slices as one table (DESIGN decision 7). The controller makes a map
//! for each epoch; balancers and hosts look things up in it and refuse older ones.

use super::HostId;
use super::ring::{Ring, WeightedHost};
use serde::{Deserialize, Serialize};
use vireo_types::Bucket;

/// How many buckets there are: an LTMSI has 12 bits for its bucket.
pub const BUCKETS: usize = 1 << 12;

/// The most replicas of a UE's state besides the primary.
pub const MOST_REPLICAS: usize = 3;

/// The epoch of a cluster's first map.
pub const FIRST_EPOCH: u64 = 1;

/// The hosts of a bucket: the primary, then its replicas, in the order in which they take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BucketPlacement {
    hosts: [Option<HostId>; 1 + MOST_REPLICAS],
    /// The replica that is to become the primary, or the first to take over from it.
    pub(super) coming: Option<HostId>,
}

impl BucketPlacement {
    /// The primary; `None` where there is no host at all.
    pub const fn owner(&self) -> Option<HostId> {
        self.hosts[0]
    }

    /// These hosts, the primary first; those beyond the most that there can be are left out.
    pub fn new(hosts: impl IntoIterator<Item = HostId>) -> Self {
        let mut owners = BucketPlacement::default();
        owners.hosts.iter_mut().zip(hosts).for_each(|(slot, host)| *slot = Some(host));
        owners
    }

    /// Those that keep copies, in the order in which they take over.
    pub fn replicas(&self) -> impl Iterator<Item = HostId> {
        self.hosts[1..].iter().copied().flatten()
    }

    /// All of them, the primary first.
    pub fn all(&self) -> impl Iterator<Item = HostId> {
        self.hosts.into_iter().flatten()
    }

    /// Those whose copy a commit is waited for that is acknowledged by one: the replica that takes over first, and the one
    /// that is to be in its place, or the primary's, in the next epoch (see [`BucketMap::prepare`]).
    pub fn first_replica(&self) -> impl Iterator<Item = HostId> {
        let first = self.hosts[1];
        first.into_iter().chain(self.coming.filter(|host| Some(*host) != first))
    }

    /// Whether a host is one that keeps copies.
    pub fn keeps_copies(&self, host: HostId) -> bool {
        self.hosts[1..].contains(&Some(host))
    }

    /// Whether a host is one of them.
    pub fn has(&self, host: HostId) -> bool {
        self.hosts.contains(&Some(host))
    }
}

/// A slice's part of the buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceBuckets {
    /// Its part, against others' 1.
    pub weight: f64,
    /// Hosts that keep replicas of its UEs, at most [`MOST_REPLICAS`].
    pub replicas: usize,
    /// The hosts that it may use.
    pub hosts: Vec<WeightedHost>,
}

/// The table of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketMap {
    pub(super) epoch: u64,
    pub(super) owners: Box<[BucketPlacement]>,
    pub(super) slices: Box<[u16]>,
}

impl BucketMap {
    /// The table of an epoch. Slice 0 is of UEs whose slice is not known yet. Which buckets a slice has depends on the slices
    /// and their weights alone: hosts that come and go move state, never identifiers.
    pub fn new(epoch: u64, parts: &[SliceBuckets]) -> Self {
        let slices = shared_out(parts);
        let rings: Vec<Ring> = (0_u64..).zip(parts).map(|(slice, part)| Ring::new(&part.hosts, slice)).collect();
        let owners = (0_u64..).zip(&slices).map(|(bucket, slice)| {
            let mut owners = BucketPlacement::default();
            let slice = usize::from(*slice);
            if let (Some(ring), Some(part)) = (rings.get(slice), parts.get(slice)) {
                let copies = 1 + part.replicas.min(MOST_REPLICAS);
                let slots = owners.hosts.iter_mut().take(copies);
                slots.zip(ring.owners(bucket)).for_each(|(slot, host)| *slot = Some(host));
            }
            owners
        });
        BucketMap { epoch, owners: owners.collect(), slices: slices.into() }
    }

    /// Whether it has all buckets: one that another process has sent may be anything.
    pub fn is_complete(&self) -> bool {
        self.owners.len() == BUCKETS && self.slices.len() == BUCKETS
    }

    /// The epoch of which it is the map.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The same of an epoch that is later by so much.
    pub fn later(self, by: u64) -> Self {
        BucketMap { epoch: self.epoch.saturating_add(by), ..self }
    }

    /// The hosts of a bucket.
    #[inline]
    pub fn owners(&self, bucket: Bucket) -> BucketPlacement {
        self.owners[usize::from(bucket.get()) % BUCKETS]
    }

    /// The slice that a bucket belongs to, by its position.
    #[inline]
    pub fn slice(&self, bucket: Bucket) -> usize {
        self.slices[usize::from(bucket.get()) % BUCKETS].into()
    }

    /// The hosts of each bucket of which this one is the primary.
    pub fn buckets_owned_by(&self, host: HostId) -> impl Iterator<Item = BucketPlacement> {
        self.owners.iter().copied().filter(move |owners| owners.owner() == Some(host))
    }

    /// The buckets of a slice.
    pub fn buckets(&self, slice: usize) -> impl Iterator<Item = Bucket> {
        let of = (0_u16..).zip(&self.slices).filter(move |(_, own)| usize::from(**own) == slice);
        of.map(|(bucket, _)| Bucket::new(bucket))
    }

    /// What changes from this map to a later one: buckets whose hosts, or their order, are others then.
    pub fn changes<'a>(
        &'a self,
        later: &'a BucketMap,
    ) -> impl Iterator<Item = (Bucket, BucketPlacement, BucketPlacement)> + 'a {
        let pairs = self.owners.iter().zip(&later.owners);
        let changed = (0_u16..).zip(pairs).filter(|(_, (old, new))| old != new);
        changed.map(|(bucket, (old, new))| (Bucket::new(bucket), *old, *new))
    }
}

/// The slice of each bucket: by weight, and spread, so that a range of buckets is of no one slice.
fn shared_out(parts: &[SliceBuckets]) -> Vec<u16> {
    let weight = |part: &SliceBuckets| if part.weight > 0.0 { part.weight } else { 0.0 };
    let mut credit = vec![0.0; parts.len()];
    let total: f64 = parts.iter().map(weight).sum();
    (0..BUCKETS)
        .map(|_| {
            parts.iter().zip(&mut credit).for_each(|(part, credit)| *credit += weight(part));
            // whoever is owed most is next
            let next = (0..parts.len()).max_by(|a, b| credit[*a].total_cmp(&credit[*b]).then(b.cmp(a)))?;
            credit[next] -= total;
            u16::try_from(next).ok()
        })
        .map(Option::unwrap_or_default)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(weight: f64, replicas: usize, hosts: &[u16]) -> SliceBuckets {
        let hosts = hosts.iter().map(|n| WeightedHost { host: HostId(*n), weight: 1.0 }).collect();
        SliceBuckets { weight, replicas, hosts }
    }

    #[test]
    fn buckets_are_shared_out_by_weight_whatever_the_hosts() {
        let map = BucketMap::new(1, &[part(1.0, 2, &[0, 1, 2]), part(2.0, 1, &[0, 1]), part(1.0, 0, &[2])]);
        let counts = [0, 1, 2].map(|slice| map.buckets(slice).count());
        assert_eq!(counts, [1024, 2048, 1024]);
        let later = BucketMap::new(2, &[part(1.0, 2, &[5]), part(2.0, 1, &[6]), part(1.0, 0, &[7])]);
        assert_eq!(map.slices, later.slices);
        assert_eq!(later.epoch(), 2);
        for bucket in map.buckets(1) {
            assert_eq!((map.slice(bucket), map.owners(bucket).all().count()), (1, 2));
            assert!(!map.owners(bucket).has(HostId(2)), "a host that the slice may not use");
        }
    }

    #[test]
    fn when_a_host_goes_its_first_replica_is_the_primary() {
        let hosts: Vec<u16> = (0..6).collect();
        let (all, without) =
            (BucketMap::new(1, &[part(1.0, 2, &hosts)]), BucketMap::new(2, &[part(1.0, 2, &hosts[1..])]));
        let mut moved = 0;
        for (bucket, old, new) in all.changes(&without) {
            assert!(old.has(HostId(0)), "{bucket:?} has nothing to do with the host that went");
            let expected: Vec<_> = old.all().filter(|host| host.0 != 0).collect();
            assert_eq!(new.all().take(2).collect::<Vec<_>>(), expected, "{bucket:?}");
            assert_eq!(new.all().count(), 3, "{bucket:?} has two replicas again");
            moved += 1;
        }
        let had = (0..BUCKETS as u16).filter(|n| all.owners(Bucket::new(*n)).has(HostId(0))).count();
        assert_eq!(moved, had);
    }

    #[test]
    fn fewer_hosts_than_copies_are_each_named_once() {
        let map = BucketMap::new(1, &[part(1.0, 3, &[4, 9])]);
        for n in 0..BUCKETS as u16 {
            let owners: Vec<_> = map.owners(Bucket::new(n)).all().collect();
            assert_eq!(owners.len(), 2);
            assert_ne!(owners[0], owners[1]);
        }
        let none = BucketMap::new(1, &[part(1.0, 3, &[])]);
        assert_eq!(none.owners(Bucket::new(0)).owner(), None);
        assert_eq!(BucketMap::new(1, &[]).owners(Bucket::new(77)), BucketPlacement::default());
    }
}
