//! Consistent hashing with virtual nodes and weights.
//!
//! A key belongs to the host of the next point on the ring of 64-bit hashes, and its replicas to
//! the next *distinct* hosts. When a host leaves, only its keys move, each to the host that had its
//! first replica. If hosts share machines, the replicas go to the next hosts of other machines.

use super::HostId;
use super::machines::{MachineIndex, Machines};
use crate::hash::hash_pair;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Points of a host of weight 1, as in the artefact of MMLite.
pub const VIRTUAL_NODES: u32 = 160;

/// Maximum number of points per host, whatever its weight.
const MAX_POINTS: u32 = 64 * VIRTUAL_NODES;

/// Host on a ring, with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedHost {
    pub host: HostId,
    /// Share of keys relative to a host of weight 1. A host whose weight is not above zero has
    /// none.
    pub weight: f64,
    /// Machine that the host may share with others; `None`: it shares its machine with no host.
    pub machine: Option<MachineIndex>,
    /// False if the host gets no bucket besides those that it has.
    pub accepts: bool,
}

impl WeightedHost {
    /// Creates a host that accepts buckets and shares its machine with no other host.
    pub const fn new(host: HostId, weight: f64) -> Self {
        WeightedHost { host, weight, machine: None, accepts: true }
    }
}

/// Hash ring of hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ring {
    points: Vec<(u64, HostId)>,
    hosts: usize,
    /// Machines of the hosts with at least one point.
    machines: Machines,
}

impl Ring {
    /// Creates the ring of these hosts. Another `salt`, which is a slice, results in other
    /// neighbours.
    pub fn new(hosts: &[WeightedHost], salt: u64) -> Self {
        let mut points = Vec::new();
        let mut placed: Vec<WeightedHost> = Vec::new();
        for weighted in hosts {
            // A weight above the range counts as the maximum; NaN or a negative one counts as zero.
            let nodes = ((f64::from(VIRTUAL_NODES) * weighted.weight).round() as u32).min(MAX_POINTS);
            placed.extend((nodes > 0).then_some(*weighted));
            points.extend(points_of(weighted.host, salt, nodes).map(|(point, _)| (point, weighted.host)));
        }
        points.sort_unstable();
        Ring { points, hosts: placed.len(), machines: Machines::new(&placed) }
    }

    /// Returns the number of hosts with at least one point.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// Returns up to `count` hosts of a key: the owner, then the replicas in takeover order. The
    /// replicas are on other machines than the owner and each other. If there are too few machines,
    /// the skipped hosts follow, in ring order as well.
    pub fn copies(&self, key: u64, count: usize) -> Vec<HostId> {
        let count = count.min(self.hosts);
        if self.machines.are_all_distinct() {
            return self.owners(key).take(count).collect();
        }
        let distinct = count.min(self.hosts - self.machines.shared());
        let (mut apart, mut skipped): (Vec<HostId>, Vec<HostId>) = Default::default();
        for host in self.owners(key) {
            let is_shared = apart.iter().any(|other| self.machines.share(*other, host));
            if is_shared { &mut skipped } else { &mut apart }.push(host);
            // Beyond the number of machines, the ring would be searched completely for others.
            if apart.len() >= distinct && apart.len() + skipped.len() >= count {
                break;
            }
        }
        apart.into_iter().chain(skipped).take(count).collect()
    }

    /// Returns the hosts of a key in ring order, each once. The first one is the owner.
    pub fn owners(&self, key: u64) -> impl Iterator<Item = HostId> {
        let hash = hash_pair(key, 0);
        let start = self.points.partition_point(|(point, _)| *point < hash);
        let (before, from) = self.points.split_at(start);
        let mut seen: Vec<HostId> = Vec::new();
        from.iter().chain(before).filter_map(move |(_, host)| {
            let new = !seen.contains(host);
            if new {
                seen.push(*host);
            }
            new.then_some(*host)
        })
    }
}

/// Returns the first points of a host, each with its number.
fn points_of(host: HostId, salt: u64, nodes: u32) -> impl Iterator<Item = (u64, u32)> {
    let own = hash_pair(salt, u64::from(host.0));
    (0..nodes).map(move |node| (hash_pair(own, u64::from(node)), node))
}

/// Returns numbers of points, within `range`, of a ring whose keys have these owners. `None` if no
/// such ring exists. A weight is a number of points divided by [`VIRTUAL_NODES`].
///
/// The search starts with the most points of each host. A point that gives a key to another host
/// than its owner cannot exist, nor can any later point of the same host. The result has as many
/// points as the owners permit: at most a few that no key distinguishes.
pub fn recover_points(
    owners: &[(u64, HostId)],
    salt: u64,
    range: RangeInclusive<u32>,
) -> Option<BTreeMap<HostId, u32>> {
    let mut counts: BTreeMap<HostId, u32> = owners.iter().map(|(_, owner)| (*owner, *range.end())).collect();
    let mut points: Vec<(u64, u32, HostId)> = Vec::new();
    for host in counts.keys() {
        points.extend(points_of(*host, salt, *range.end()).map(|(point, node)| (point, node, *host)));
    }
    points.sort_unstable();
    loop {
        let mut is_final = true;
        for (key, owner) in owners {
            let hash = hash_pair(*key, 0);
            let start = points.partition_point(|(point, ..)| *point < hash);
            let (before, from) = points.split_at(start);
            for (_, node, host) in from.iter().chain(before) {
                let count = counts.get_mut(host)?;
                if node >= count {
                    continue;
                }
                if host == owner {
                    break;
                }
                (*count, is_final) = (*node, false);
                if !range.contains(count) {
                    return None;
                }
            }
        }
        if is_final {
            return Some(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(hosts: impl IntoIterator<Item = u16>) -> Ring {
        let hosts: Vec<_> = hosts.into_iter().map(|n| WeightedHost::new(HostId(n), 1.0)).collect();
        Ring::new(&hosts, 7)
    }

    #[test]
    fn removed_host_keys_go_to_their_replicas() {
        let (all, without) = (ring(0..10), ring((0..10).filter(|n| *n != 3)));
        for key in 0..20_000 {
            let before: Vec<_> = all.owners(key).collect();
            assert_eq!(before.len(), 10, "each host once");
            let expected: Vec<_> = before.into_iter().filter(|host| host.0 != 3).collect();
            assert_eq!(without.owners(key).collect::<Vec<_>>(), expected, "key {key}");
        }
    }

    #[test]
    fn keys_are_shared_by_weight() {
        let hosts = [(0, 1.0), (1, 2.0), (2, 0.0), (3, 1.0), (4, f64::NAN), (5, -1.0)];
        let ring = Ring::new(&hosts.map(|(n, weight)| WeightedHost::new(HostId(n), weight)), 1);
        assert_eq!(ring.hosts(), 3);
        let mut counts = [0_u32; 6];
        for key in 0..40_000 {
            counts[ring.owners(key).next().expect("there are hosts").index()] += 1;
        }
        assert_eq!([counts[2], counts[4], counts[5]], [0; 3]);
        let near = |count: u32, of: u32| count.abs_diff(of) < of / 5;
        assert!(near(counts[0], 10_000) && near(counts[1], 20_000) && near(counts[3], 10_000), "{counts:?}");
    }

    #[test]
    fn points_are_recovered_from_owners() {
        for (case, points) in [[160; 4], [40, 640, 200, 100], [161, 83, 404, 160], [64, 72, 80, 88]].iter().enumerate()
        {
            let hosts: Vec<_> = (0..).zip(points).map(|(n, points)| (HostId(n), *points)).collect();
            let weighted = |points: &[(HostId, u32)]| {
                let weight = |points: u32| f64::from(points) / f64::from(VIRTUAL_NODES);
                points.iter().map(|(host, points)| WeightedHost::new(*host, weight(*points))).collect::<Vec<_>>()
            };
            let owners_by = |points: &[(HostId, u32)]| -> Vec<(u64, HostId)> {
                let ring = Ring::new(&weighted(points), 0);
                (0..2048).map(|key| (key, ring.owners(key).next().unwrap())).collect()
            };
            let mut owners = owners_by(&hosts);
            let recovered = recover_points(&owners, 0, 40..=640).expect("they exist");
            let recovered: Vec<_> = recovered.into_iter().collect();
            assert_eq!(owners_by(&recovered), owners, "case {case}");
            for ((_, own), (_, other)) in hosts.iter().zip(&recovered) {
                assert!((*own..own + 8).contains(other), "case {case}: {own} points, but {other}");
            }
            owners.iter_mut().step_by(50).for_each(|(_, owner)| *owner = HostId(3 - owner.0));
            assert_eq!(recover_points(&owners, 0, 40..=640), None, "no ring has these");
        }
        assert_eq!(recover_points(&[], 0, 40..=640), Some(BTreeMap::new()));
    }

    #[test]
    fn slices_have_neighbours_of_their_own() {
        let hosts: Vec<_> = (0..8).map(|n| WeightedHost::new(HostId(n), 1.0)).collect();
        let (one, other) = (Ring::new(&hosts, 1), Ring::new(&hosts, 2));
        let same = (0..8_000).filter(|key| one.owners(*key).next() == other.owners(*key).next()).count();
        assert!((600..1_500).contains(&same), "an eighth by chance, but {same}");
    }

    /// Hosts 0 to `hosts`, of which host n is on machine `n % machines`.
    fn on_machines(hosts: u16, machines: u16) -> Vec<WeightedHost> {
        let machine = |n| Some(MachineIndex(n % machines));
        (0..hosts).map(|n| WeightedHost { machine: machine(n), ..WeightedHost::new(HostId(n), 1.0) }).collect()
    }

    #[test]
    fn copies_are_on_distinct_machines() {
        let ring = Ring::new(&on_machines(9, 3), 7);
        let mut skips = 0;
        for key in 0..4_000 {
            let order: Vec<_> = ring.owners(key).collect();
            let copies = ring.copies(key, 3);
            assert_eq!(copies[0], order[0], "the owner of key {key} is the one without labels");
            let machines: std::collections::BTreeSet<u16> = copies.iter().map(|host| host.0 % 3).collect();
            assert_eq!((copies.len(), machines.len()), (3, 3), "{copies:?}");
            let next = |at: usize| order.iter().find(|host| copies[..at].iter().all(|own| own.0 % 3 != host.0 % 3));
            assert_eq!((Some(&copies[1]), Some(&copies[2])), (next(1), next(2)), "ring order, key {key}");
            skips += usize::from(copies[1] != order[1]);
        }
        assert!((800..1_300).contains(&skips), "two of eight other hosts share the machine, but {skips}");
    }

    #[test]
    fn too_few_machines_are_filled_in_ring_order() {
        let ring = Ring::new(&on_machines(6, 2), 7);
        for key in 0..2_000 {
            let (order, copies) = (ring.owners(key).collect::<Vec<_>>(), ring.copies(key, 4));
            let other = order.iter().find(|host| host.0 % 2 != order[0].0 % 2).copied();
            let rest: Vec<_> = order.iter().copied().filter(|host| *host != order[0] && Some(*host) != other).collect();
            assert_eq!((Some(copies[1]), &copies[2..]), (other, &rest[..2]), "key {key}");
        }
        assert_eq!(Ring::new(&on_machines(3, 1), 7).copies(5, 4).len(), 3, "one machine, and no more hosts");
    }

    #[test]
    fn empty_ring_has_no_owner() {
        assert_eq!(ring([]).owners(5).next(), None);
        assert_eq!(Ring::default().hosts(), 0);
    }
}
