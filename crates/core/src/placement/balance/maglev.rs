//! Maglev hashing ("Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, 3.4).
//!
//! Hosts fill a table with a prime number of entries in turns, each by its own permutation. The
//! shares are equal to within one entry. When a host leaves, a few keys of other hosts move too.

use super::HostId;
use crate::hash::hash_pair;

/// Entries of the paper's small table. A prime, so that the steps of a permutation visit every
/// entry.
pub const ENTRIES: usize = 65_537;

/// Lookup table from hash to host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maglev {
    entries: Box<[HostId]>,
}

impl Maglev {
    /// Builds the table of these hosts.
    pub fn new(hosts: &[HostId]) -> Self {
        Maglev { entries: populate(hosts, ENTRIES) }
    }

    /// Returns the host of a key.
    #[inline]
    pub fn host(&self, key: u64) -> Option<HostId> {
        let at = (hash_pair(key, 0) as usize).checked_rem(self.entries.len())?;
        Some(self.entries[at])
    }
}

/// Implements "populate" of the paper.
fn populate(hosts: &[HostId], entries: usize) -> Box<[HostId]> {
    if hosts.is_empty() || entries < 2 {
        return Box::default();
    }
    let size = entries as u64;
    let mut turns: Vec<(HostId, u64, u64)> = hosts
        .iter()
        .map(|host| {
            let offset = hash_pair(u64::from(host.0), 1) % size;
            (*host, offset, hash_pair(u64::from(host.0), 2) % (size - 1) + 1)
        })
        .collect();
    let mut table = vec![None; entries];
    let mut left = entries;
    while left > 0 {
        for (host, next, skip) in &mut turns {
            while table[*next as usize].is_some() {
                *next = (*next + *skip) % size;
            }
            table[*next as usize] = Some(*host);
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    table.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(numbers: impl IntoIterator<Item = u16>) -> Vec<HostId> {
        numbers.into_iter().map(HostId).collect()
    }

    #[test]
    fn entries_are_even_to_within_one() {
        for count in [1, 3, 7, 100] {
            let table = Maglev::new(&hosts(0..count)).entries;
            assert_eq!(table.len(), ENTRIES);
            let mut counts = vec![0_usize; count.into()];
            table.iter().for_each(|host| counts[host.index()] += 1);
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{count} hosts");
        }
    }

    #[test]
    fn removed_host_moves_few_keys_of_others() {
        let (all, without) = (Maglev::new(&hosts(0..10)), Maglev::new(&hosts(1..10)));
        let others = (0..50_000).filter(|key| all.host(*key) != Some(HostId(0)));
        let (moved, total) = others
            .fold((0, 0), |(moved, total), key| (moved + u32::from(all.host(key) != without.host(key)), total + 1));
        assert!(moved * 10 < total, "{moved} of {total} keys of other hosts moved");
        assert!(moved > 0, "it is not consistent hashing");
    }

    #[test]
    fn no_hosts_no_entry() {
        assert_eq!(Maglev::new(&[]).host(3), None);
    }
}
