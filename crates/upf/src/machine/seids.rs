//! SEIDs of the UPF: 32 random bits above a counter.
//!
//! The counter makes SEIDs unique and distributes sessions over modules in turn. The random bits
//! prevent other control planes from guessing a SEID.

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// Generator of SEIDs.
#[derive(Debug)]
pub(crate) struct Seids {
    /// The lower half of the next SEID. It is never 0, so that no SEID is 0.
    next: u32,
    random: StdRng,
}

impl Seids {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Seids { next: 1, random: StdRng::from_seed(seed) }
    }

    /// Returns random bits for other numbers.
    pub(crate) fn random(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// Continues the counter after that of this SEID.
    pub(crate) fn continue_after(&mut self, seid: u64) {
        self.next = (seid as u32).wrapping_add(1).max(1);
    }

    /// Returns an unused SEID.
    pub(crate) fn draw(&mut self, is_taken: impl Fn(u64) -> bool) -> u64 {
        loop {
            let seid = u64::from(self.random.next_u32()) << 32 | u64::from(self.next);
            self.next = self.next.wrapping_add(1).max(1);
            if !is_taken(seid) {
                return seid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn seids_differ_and_their_upper_half_is_random() {
        let mut seids = Seids::new([7; 32]);
        let drawn: Vec<u64> = (0..1000).map(|_| seids.draw(|_| false)).collect();
        assert!(drawn.iter().zip(1..).all(|(seid, n)| *seid as u32 == n), "the lower half counts");
        let upper: HashSet<u64> = drawn.iter().map(|seid| seid >> 32).collect();
        // Each bit is set in half of them.
        let ones = |bit: u32| drawn.iter().filter(|seid| **seid >> bit & 1 == 1).count();
        assert!(upper.len() > 990 && (32..64).all(|bit| (400..600).contains(&ones(bit))));
        let other = Seids::new([8; 32]).draw(|_| false);
        assert_ne!((other >> 32, other as u32), (drawn[0] >> 32, 2));
        seids.continue_after(u64::MAX);
        assert_eq!(seids.draw(|_| false) as u32, 1, "none is 0");
        let taken = Seids::new([9; 32]).draw(|_| false);
        assert_ne!(Seids::new([9; 32]).draw(|seid| seid == taken), taken);
    }
}
