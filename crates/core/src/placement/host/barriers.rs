//! Barriers of a host: what balancers sent before their answers has arrived.

use crate::placement::balance::BalancerId;
use crate::placement::replica::REEXECUTION_WINDOW;
use std::collections::{BTreeMap, BTreeSet};
use vireo_types::Instant;

/// Barriers by number, each with the balancers that have not answered.
type PendingBarriers = BTreeMap<u64, BTreeSet<BalancerId>>;

/// Answer of all balancers to a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierReply {
    pub number: u64,
    /// True if no message to or from balancers was lost within [`REEXECUTION_WINDOW`]. A lost
    /// message may be an effect that replicas know, as long as they store effects.
    pub is_whole: bool,
}

/// Barriers that balancers have not answered.
#[derive(Debug, Default)]
pub struct Barriers {
    /// Barriers to the balancers that were connected. They complete in order.
    connected: PendingBarriers,
    /// Barriers to all balancers of the map. One without a connection gets them when it connects.
    introductions: PendingBarriers,
    /// Time of the last message that was or may have been lost because a balancer was unavailable.
    broken_at: Option<Instant>,
}

impl Barriers {
    /// Adds a barrier to the balancers that are connected.
    pub fn add(&mut self, number: u64, connected: impl IntoIterator<Item = BalancerId>) {
        self.connected.insert(number, connected.into_iter().collect());
    }

    /// Adds a barrier to all balancers of the map.
    pub fn introduce(&mut self, number: u64, balancers: impl IntoIterator<Item = BalancerId>) {
        self.introductions.insert(number, balancers.into_iter().collect());
    }

    /// Returns the introductions that a balancer has not answered: they are sent again on each
    /// connection.
    pub fn unanswered_by(&self, balancer: BalancerId) -> impl Iterator<Item = u64> {
        self.introductions.iter().filter(move |(_, waits)| waits.contains(&balancer)).map(|(number, _)| *number)
    }

    /// Records the answer of a balancer.
    pub fn on_answer(&mut self, balancer: BalancerId, number: u64) {
        for waits in [&mut self.connected, &mut self.introductions] {
            waits.get_mut(&number).into_iter().for_each(|waits| _ = waits.remove(&balancer));
        }
    }

    /// Handles the end of a balancer's connection: it answers no barrier of this connection.
    pub fn on_disconnect(&mut self, balancer: BalancerId, now: Instant) {
        self.on_undelivered(now);
        self.connected.values_mut().for_each(|waits| _ = waits.remove(&balancer));
    }

    /// Removes a balancer that is not in the map.
    pub fn remove(&mut self, balancer: BalancerId, now: Instant) {
        self.on_disconnect(balancer, now);
        self.introductions.values_mut().for_each(|waits| _ = waits.remove(&balancer));
    }

    /// Records that a message was or may have been lost.
    pub fn on_undelivered(&mut self, now: Instant) {
        self.broken_at = Some(now);
    }

    /// Removes and returns a barrier that all balancers have answered.
    pub fn take_answered(&mut self, now: Instant) -> Option<BarrierReply> {
        if let Some(first) = self.connected.first_entry().filter(|first| first.get().is_empty()) {
            let is_whole = self.broken_at.is_none_or(|broken| now.since(broken) > REEXECUTION_WINDOW);
            return Some(BarrierReply { number: first.remove_entry().0, is_whole });
        }
        let mut answered = self.introductions.extract_if(.., |_, waits| waits.is_empty());
        answered.next().map(|(number, _)| BarrierReply { number, is_whole: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BALANCERS: [BalancerId; 2] = [BalancerId(1), BalancerId(2)];
    const NOW: Instant = Instant(1_000_000);

    fn whole(number: u64) -> Option<BarrierReply> {
        Some(BarrierReply { number, is_whole: true })
    }

    fn unsafe_to_execute_again(number: u64) -> Option<BarrierReply> {
        Some(BarrierReply { number, is_whole: false })
    }

    #[test]
    fn introduction_waits_for_every_balancer_of_map() {
        let (mut barriers, [one, two]) = (Barriers::default(), BALANCERS);
        barriers.introduce(7, [one, two]);
        barriers.introduce(8, [one]);
        barriers.on_answer(one, 7);
        assert_eq!((barriers.unanswered_by(one).collect(), barriers.unanswered_by(two).collect()), (vec![8], vec![7]));
        barriers.on_disconnect(two, NOW);
        assert_eq!(barriers.take_answered(NOW), None, "it will connect again");
        barriers.on_answer(one, 8);
        assert_eq!(barriers.take_answered(NOW), unsafe_to_execute_again(8), "the later one waits for nobody");
        assert_eq!(barriers.take_answered(NOW), None);
        barriers.remove(two, NOW);
        assert_eq!(barriers.take_answered(NOW), unsafe_to_execute_again(7));
        assert_eq!(barriers.take_answered(NOW), None);
        barriers.introduce(9, []);
        assert_eq!(barriers.take_answered(NOW), unsafe_to_execute_again(9));
    }

    #[test]
    fn barriers_complete_in_order() {
        let (mut barriers, [one, two]) = (Barriers::default(), BALANCERS);
        barriers.add(3, [one, two]);
        barriers.add(4, [one]);
        [3, 4].into_iter().for_each(|number| barriers.on_answer(one, number));
        assert_eq!(barriers.take_answered(NOW), None);
        barriers.on_answer(two, 3);
        assert_eq!((barriers.take_answered(NOW), barriers.take_answered(NOW)), (whole(3), whole(4)));
    }

    #[test]
    fn lost_message_leaves_no_barrier_whole() {
        let (mut barriers, [one, two]) = (Barriers::default(), BALANCERS);
        barriers.add(3, [one]);
        barriers.on_disconnect(one, NOW);
        assert_eq!(barriers.take_answered(NOW), unsafe_to_execute_again(3));
        let last = Instant(NOW.0 + REEXECUTION_WINDOW.as_micros());
        barriers.add(4, [two]);
        barriers.on_answer(two, 4);
        assert_eq!(barriers.take_answered(last), unsafe_to_execute_again(4));
        barriers.add(5, []);
        assert_eq!(barriers.take_answered(Instant(last.0 + 1)), whole(5));
    }
}
