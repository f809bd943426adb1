//! What was given to a host and what it has had sent, lately: when it dies, who takes over is given the one again, and
//! repeats of the other are dropped (DESIGN decision 4).

use crate::schedule::estimate::ServiceTime;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vireo_types::{Duration, Instant};

/// How long an input is kept of which no host says that it is carried out: many are by no commit, and are never spoken of.
/// By far longer than it takes to find out that a host is dead.
const KEPT: Duration = Duration::from_secs(5);
/// Inputs that are kept at most; then the oldest go.
const MOST: usize = 1 << 20;

/// As what an input counts among what its host has under way: the pool that deals with it, and how long that takes.
pub type LoadShare = (usize, ServiceTime);

/// The inputs that a host was given and has not said to be done with, by their numbers.
#[derive(Debug)]
pub struct InflightInputs<I> {
    inputs: BTreeMap<u64, (Instant, I, Option<LoadShare>)>,
    /// Those that are under way no longer.
    ended: Vec<LoadShare>,
}

impl<I> Default for InflightInputs<I> {
    fn default() -> Self {
        InflightInputs { inputs: BTreeMap::new(), ended: Vec::new() }
    }
}

impl<I> InflightInputs<I> {
    /// The host is given an input.
    pub fn add(&mut self, number: u64, input: I, counted: Option<LoadShare>, now: Instant) {
        self.inputs.insert(number, (now, input, counted));
        // Two at a time: it shrinks as long as there is something to let go.
        for _ in 0..2 {
            let over = self.inputs.len() > MOST;
            match self.inputs.first_entry() {
                Some(oldest) if over || now.since(oldest.get().0) > KEPT => {
                    let (.., counted) = oldest.remove();
                    self.ended.extend(counted);
                }
                _ => break,
            }
        }
    }

    /// It is done with one.
    pub fn acknowledge(&mut self, number: u64) {
        self.returned(number);
    }

    /// It has given one back.
    pub fn returned(&mut self, number: u64) -> Option<I> {
        let (_, input, counted) = self.inputs.remove(&number)?;
        self.ended.extend(counted);
        Some(input)
    }

    /// What has ended since this was asked last.
    pub fn ended(&mut self) -> impl Iterator<Item = LoadShare> {
        self.ended.drain(..)
    }

    /// All that it has not, in their order, with when they were given.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Instant, &I)> {
        self.inputs.iter().map(|(number, (at, input, _))| (*number, *at, input))
    }

    /// Those that are not, in their order.
    pub fn into_unfinished(self, now: Instant) -> Vec<(u64, I)> {
        let late = |at: Instant| now.since(at) > KEPT;
        let recent = self.inputs.into_iter().filter(|(_, (at, ..))| !late(*at));
        recent.map(|(number, (_, input, _))| (number, input)).collect()
    }
}

/// The names of the effects that a host has had sent lately.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecentEffects(VecDeque<(Instant, u64)>);

impl RecentEffects {
    /// It has had an effect of this name sent; 0 is none.
    pub fn add(&mut self, key: u64, now: Instant) {
        if key != 0 {
            self.0.push_back((now, key));
        }
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > KEPT) || self.0.len() > MOST {
            self.0.pop_front();
        }
    }
}

/// The names of what dead hosts have had sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EffectDedup {
    keys: FxHashSet<u64>,
    until: Instant,
}

impl EffectDedup {
    /// A host is dead.
    pub fn add(&mut self, emitted: RecentEffects, now: Instant) {
        self.keys.extend(emitted.0.into_iter().map(|(_, key)| key));
        self.until = now + KEPT;
    }

    /// Whether this was sent.
    pub fn has(&self, key: u64) -> bool {
        !self.keys.is_empty() && self.keys.contains(&key)
    }

    /// Time passes.
    pub fn forget(&mut self, now: Instant) {
        if now > self.until && !self.keys.is_empty() {
            self.keys = FxHashSet::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_given_again_in_its_order_unless_it_is_old() {
        let (mut flying, second) = (InflightInputs::default(), 1_000_000);
        flying.add(1, (), Some((3, ServiceTime::new(7))), Instant(second));
        for number in [7, 3, 9] {
            flying.add(number, (), Some((number as usize, ServiceTime::new(7))), Instant(6 * second));
        }
        flying.acknowledge(7);
        flying.acknowledge(8);
        flying.add(10, (), None, Instant(6 * second));
        assert!(flying.returned(10).is_some() && flying.returned(10).is_none());
        assert_eq!(flying.ended().map(|(pool, _)| pool).collect::<Vec<_>>(), [7]);
        flying.add(11, (), None, Instant(6 * second + 1));
        assert_eq!(flying.ended().map(|(pool, _)| pool).collect::<Vec<_>>(), [3], "of which no host has spoken");
        let numbers: Vec<u64> = flying.into_unfinished(Instant(7 * second)).into_iter().map(|(n, _)| n).collect();
        assert_eq!(numbers, [3, 9, 11]);
    }

    #[test]
    fn what_a_dead_host_has_sent_is_a_repeat_for_a_while() {
        let (mut emitted, mut repeats) = (RecentEffects::default(), EffectDedup::default());
        emitted.add(0, Instant(0));
        emitted.add(5, Instant(0));
        emitted.add(6, Instant(9_000_000));
        repeats.add(emitted, Instant(9_500_000));
        assert_eq!([0, 5, 6].map(|key| repeats.has(key)), [false, false, true], "5 was long ago");
        repeats.forget(Instant(14_500_000));
        assert!(repeats.has(6));
        repeats.forget(Instant(14_500_001));
        assert!(!repeats.has(6));
    }
}
