//! Barriers that every balancer of the map must answer, connected or not.

use std::collections::{BTreeMap, BTreeSet};
use vireo_core::placement::balance::BalancerId;

/// Barriers by number, each with the balancers that have not answered.
#[derive(Debug, Default)]
pub(super) struct Introductions(BTreeMap<u64, BTreeSet<BalancerId>>);

impl Introductions {
    /// Adds a barrier to these balancers.
    pub(super) fn add(&mut self, number: u64, balancers: impl IntoIterator<Item = BalancerId>) {
        self.0.insert(number, balancers.into_iter().collect());
    }

    /// Returns the barriers that a balancer has not answered: they are sent again on each
    /// connection.
    pub(super) fn unanswered_by(&self, balancer: BalancerId) -> impl Iterator<Item = u64> {
        self.0.iter().filter(move |(_, waits)| waits.contains(&balancer)).map(|(number, _)| *number)
    }

    /// Records the answer of a balancer.
    pub(super) fn on_answer(&mut self, balancer: BalancerId, number: u64) {
        self.0.get_mut(&number).into_iter().for_each(|waits| _ = waits.remove(&balancer));
    }

    /// Removes a balancer that is not in the map.
    pub(super) fn remove(&mut self, balancer: BalancerId) {
        self.0.values_mut().for_each(|waits| _ = waits.remove(&balancer));
    }

    /// Removes and returns a barrier that all balancers have answered.
    pub(super) fn take_answered(&mut self) -> Option<u64> {
        let number = self.0.iter().find(|(_, waits)| waits.is_empty()).map(|(number, _)| *number)?;
        self.0.remove(&number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barrier_waits_for_every_balancer_of_map() {
        let (mut introductions, [one, two]) = (Introductions::default(), [BalancerId(1), BalancerId(2)]);
        introductions.add(7, [one, two]);
        introductions.add(8, [one]);
        introductions.on_answer(one, 7);
        assert_eq!(
            (introductions.unanswered_by(one).collect(), introductions.unanswered_by(two).collect()),
            (vec![8], vec![7])
        );
        assert_eq!(introductions.take_answered(), None);
        introductions.on_answer(one, 8);
        assert_eq!(
            (introductions.take_answered(), introductions.take_answered()),
            (Some(8), None),
            "the later one waits for nobody"
        );
        introductions.remove(two);
        assert_eq!((introductions.take_answered(), introductions.take_answered()), (Some(7), None));
        introductions.add(9, []);
        assert_eq!(introductions.take_answered(), Some(9));
    }
}
