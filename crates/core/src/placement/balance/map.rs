//! Bucket map: owner and replicas of every bucket in one epoch.
//!
//! It combines the rings of all slices into one table. The controller makes a map per epoch.
//! Balancers and hosts look up placements in it and refuse older maps.

use super::HostId;
use super::ring::{Ring, WeightedHost};
use serde::{Deserialize, Serialize};
use vireo_types::Bucket;

/// Number of buckets: 12 bits of an LTMSI.
pub const BUCKETS: usize = 1 << 12;

/// Maximum number of replicas of a bucket: two may be configured, and a migration adds one.
pub const MAX_PLACED_REPLICAS: usize = 3;

/// Epoch of a cluster's first map.
pub const FIRST_EPOCH: u64 = 1;

/// Hosts of a bucket: the owner, then the replicas in takeover order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BucketPlacement {
    hosts: [Option<HostId>; 1 + MAX_PLACED_REPLICAS],
    /// Replica that is about to become the owner or the first replica.
    pub(super) coming: Option<HostId>,
}

impl BucketPlacement {
    /// Returns the owner; `None` if there is no host at all.
    pub const fn owner(&self) -> Option<HostId> {
        self.hosts[0]
    }

    /// Creates a placement of these hosts, the owner first. Hosts beyond the maximum are dropped.
    pub fn new(hosts: impl IntoIterator<Item = HostId>) -> Self {
        let mut owners = BucketPlacement::default();
        owners.hosts.iter_mut().zip(hosts).for_each(|(slot, host)| *slot = Some(host));
        owners
    }

    /// Returns the replicas in takeover order.
    pub fn replicas(&self) -> impl Iterator<Item = HostId> {
        self.hosts[1..].iter().copied().flatten()
    }

    /// Returns all hosts, the owner first.
    pub fn all(&self) -> impl Iterator<Item = HostId> {
        self.hosts.into_iter().flatten()
    }

    /// Returns the replicas whose acknowledgement `ack = one` waits for. These are the first
    /// replica, and the host that becomes first replica or owner in the next epoch (see
    /// [`BucketMap::prepare`]).
    pub fn first_replica(&self) -> impl Iterator<Item = HostId> {
        let first = self.hosts[1];
        first.into_iter().chain(self.coming.filter(|host| Some(*host) != first))
    }

    /// Returns true if a host is a replica.
    pub fn keeps_copies(&self, host: HostId) -> bool {
        self.hosts[1..].contains(&Some(host))
    }

    /// Returns true if a host is the owner or a replica.
    pub fn has(&self, host: HostId) -> bool {
        self.hosts.contains(&Some(host))
    }
}

/// Buckets of one slice: share, replicas and hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceBuckets {
    /// Share of the buckets, relative to a slice of weight 1.
    pub weight: f64,
    /// Number of replicas of its UEs, at most [`MAX_PLACED_REPLICAS`].
    pub replicas: usize,
    /// Hosts that the slice may use.
    pub hosts: Vec<WeightedHost>,
}

/// Placement of all buckets in one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketMap {
    pub(super) epoch: u64,
    pub(super) owners: Box<[BucketPlacement]>,
    pub(super) slices: Box<[u16]>,
}

impl BucketMap {
    /// Creates the map of an epoch. Slice 0 is for UEs whose slice is not known yet. The buckets of
    /// a slice depend on the slices and their weights alone: joining and leaving hosts move state,
    /// never identifiers.
    pub fn new(epoch: u64, parts: &[SliceBuckets]) -> Self {
        let slices = shared_out(parts);
        let rings: Vec<Ring> = (0_u64..).zip(parts).map(|(slice, part)| Ring::new(&part.hosts, slice)).collect();
        let owners = (0_u64..).zip(&slices).map(|(bucket, slice)| {
            let mut owners = BucketPlacement::default();
            let slice = usize::from(*slice);
            if let (Some(ring), Some(part)) = (rings.get(slice), parts.get(slice)) {
                let copies = 1 + part.replicas.min(MAX_PLACED_REPLICAS);
                let slots = owners.hosts.iter_mut().take(copies);
                slots.zip(ring.copies(bucket, copies)).for_each(|(slot, host)| *slot = Some(host));
            }
            owners
        });
        BucketMap { epoch, owners: owners.collect(), slices: slices.into() }
    }

    /// Returns true if the map has all buckets. A map from another process may be invalid.
    pub fn is_complete(&self) -> bool {
        self.owners.len() == BUCKETS && self.slices.len() == BUCKETS
    }

    /// Returns the epoch of the map.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the same map with an epoch that is higher by `by`.
    pub fn advance_epoch(self, by: u64) -> Self {
        BucketMap { epoch: self.epoch.saturating_add(by), ..self }
    }

    /// Returns the placement of a bucket.
    #[inline]
    pub fn owners(&self, bucket: Bucket) -> BucketPlacement {
        self.owners[usize::from(bucket.get()) % BUCKETS]
    }

    /// Returns the index of a bucket's slice.
    #[inline]
    pub fn slice(&self, bucket: Bucket) -> usize {
        self.slices[usize::from(bucket.get()) % BUCKETS].into()
    }

    /// Returns the placements of all buckets that a host owns.
    pub fn buckets_owned_by(&self, host: HostId) -> impl Iterator<Item = BucketPlacement> {
        self.owners.iter().copied().filter(move |owners| owners.owner() == Some(host))
    }

    /// Returns the buckets of a slice.
    pub fn buckets(&self, slice: usize) -> impl Iterator<Item = Bucket> {
        let of = (0_u16..).zip(&self.slices).filter(move |(_, own)| usize::from(**own) == slice);
        of.map(|(bucket, _)| Bucket::new(bucket))
    }
}

/// Returns the slice of each bucket, by weight and interleaved, so that consecutive buckets belong
/// to different slices.
fn shared_out(parts: &[SliceBuckets]) -> Vec<u16> {
    let weight = |part: &SliceBuckets| if part.weight > 0.0 { part.weight } else { 0.0 };
    let mut credit = vec![0.0; parts.len()];
    let total: f64 = parts.iter().map(weight).sum();
    (0..BUCKETS)
        .map(|_| {
            parts.iter().zip(&mut credit).for_each(|(part, credit)| *credit += weight(part));
            // The slice with the highest credit is next.
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
        let hosts = hosts.iter().map(|n| WeightedHost::new(HostId(*n), 1.0)).collect();
        SliceBuckets { weight, replicas, hosts }
    }

    #[test]
    fn slices_get_buckets_by_weight() {
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
    fn first_replica_owns_buckets_of_removed_host() {
        let hosts: Vec<u16> = (0..6).collect();
        let (all, without) =
            (BucketMap::new(1, &[part(1.0, 2, &hosts)]), BucketMap::new(2, &[part(1.0, 2, &hosts[1..])]));
        let mut moved = 0;
        let buckets = (0..BUCKETS as u16).map(Bucket::new);
        let pairs = buckets.map(|bucket| (bucket, (all.owners(bucket), without.owners(bucket))));
        for (bucket, (old, new)) in pairs.filter(|(_, (old, new))| old != new) {
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
