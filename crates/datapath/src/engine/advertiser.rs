//! Schedule of router advertisements to IPv6 UEs.

use crate::engine::ndp::Link;
use crate::network::Pool;

/// Calls of [`RouterAdvertiser::begin_call`] per round over all UEs: 6 hours at 1 call/s.
const ROUND: u64 = 6 * 3600;

/// Schedule that spreads advertisements to all UEs evenly over a round.
#[derive(Debug)]
pub(crate) struct RouterAdvertiser {
    /// Contents of the advertisements of each pool.
    links: Vec<Link>,
    /// Index of the entry that is next in the round.
    next: u32,
    /// Elapsed part of the interval until that entry, in units of one entry and call.
    credit: u64,
}

impl RouterAdvertiser {
    pub(crate) fn new(pools: &[Pool]) -> Self {
        let links = pools.iter().map(|pool| Link::new(pool.mtu, &pool.dns)).collect();
        RouterAdvertiser { links, next: 0, credit: 0 }
    }

    /// Returns the link parameters of a pool, by its position.
    pub(crate) fn link(&self, pool: usize) -> Option<&Link> {
        self.links.get(pool)
    }

    /// Advances the schedule by one call, over `entries` entries.
    pub(crate) fn begin_call(&mut self, entries: u32) {
        self.credit += u64::from(entries);
    }

    /// Returns the next of `entries` entries that is due in this call.
    pub(crate) fn next_due(&mut self, entries: u32) -> Option<u32> {
        self.credit = self.credit.checked_sub(ROUND)?;
        let index = self.next;
        self.next = if index + 1 < entries { index + 1 } else { 0 };
        Some(index)
    }
}
