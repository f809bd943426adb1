//! Recent inputs and effects of a host, kept for a takeover.
//!
//! When a host dies, the new owner receives the unacknowledged inputs again, and repeats of sent
//! effects are dropped.

use crate::placement::balance::HostId;
use crate::schedule::estimate::ServiceTime;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vireo_types::{Duration, Instant};

/// How long an input is kept without an acknowledgement. Many inputs lead to no commit and are
/// never acknowledged. Much longer than failure detection takes.
const RETENTION: Duration = Duration::from_secs(5);
/// Maximum number of inputs kept; beyond it the oldest are dropped.
const MAX_INPUTS: usize = 1 << 20;

/// Share of an input in the load of its host: index of the pool that handles it, and its service
/// time.
pub type LoadShare = (usize, ServiceTime);

/// Inputs that a host was sent and has not acknowledged, by number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InflightInputs<I> {
    inputs: BTreeMap<u64, SentInput<I>>,
    /// Load shares of inputs that have left the queue, until `ended` drains them.
    #[serde(skip)]
    ended: Vec<LoadShare>,
}

/// Input that was sent to a host and is not acknowledged.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SentInput<I> {
    /// Time at which it was sent.
    at: Instant,
    input: I,
    /// A hot restart drops it: hosts report their load several times a second.
    #[serde(skip)]
    share: Option<LoadShare>,
}

impl<I> Default for InflightInputs<I> {
    fn default() -> Self {
        InflightInputs { inputs: BTreeMap::new(), ended: Vec::new() }
    }
}

impl<I> InflightInputs<I> {
    /// Adds an input that is sent to the host.
    pub fn add(&mut self, number: u64, input: I, share: Option<LoadShare>, now: Instant) {
        self.inputs.insert(number, SentInput { at: now, input, share });
        // Two at a time, so that the queue shrinks while there are inputs to drop.
        for _ in 0..2 {
            let over = self.inputs.len() > MAX_INPUTS;
            match self.inputs.first_entry() {
                Some(oldest) if over || now.since(oldest.get().at) > RETENTION => {
                    self.ended.extend(oldest.remove().share);
                }
                _ => break,
            }
        }
    }

    /// Removes an input that the host has acknowledged.
    pub fn acknowledge(&mut self, number: u64) {
        self.take_returned(number);
    }

    /// Removes and returns an input that the host has returned.
    pub fn take_returned(&mut self, number: u64) -> Option<I> {
        let sent = self.inputs.remove(&number)?;
        self.ended.extend(sent.share);
        Some(sent.input)
    }

    /// Returns an input that the host has not acknowledged.
    pub fn get(&self, number: u64) -> Option<&I> {
        self.inputs.get(&number).map(|sent| &sent.input)
    }

    /// Removes and returns the inputs for which `is_taken` returns true.
    pub fn take_where(&mut self, is_taken: impl Fn(&I) -> bool) -> Vec<I> {
        let taken: Vec<SentInput<I>> =
            self.inputs.extract_if(.., |_, sent| is_taken(&sent.input)).map(|(_, sent)| sent).collect();
        self.ended.extend(taken.iter().filter_map(|sent| sent.share));
        taken.into_iter().map(|sent| sent.input).collect()
    }

    /// Drains the load shares of inputs that have ended since the last call.
    pub fn take_ended_shares(&mut self) -> impl Iterator<Item = LoadShare> {
        self.ended.drain(..)
    }

    /// Returns the recent unacknowledged inputs in order of their numbers.
    pub fn into_unfinished(self, now: Instant) -> Vec<(u64, I)> {
        let recent = self.inputs.into_iter().filter(|(_, sent)| now.since(sent.at) <= RETENTION);
        recent.map(|(number, sent)| (number, sent.input)).collect()
    }
}

/// Keys of the effects that a host has sent recently.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecentEffects(VecDeque<(Instant, u64)>);

impl RecentEffects {
    /// Adds the key of a sent effect; 0 means no key.
    pub fn add(&mut self, key: u64, now: Instant) {
        if key != 0 {
            self.0.push_back((now, key));
        }
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > RETENTION) || self.0.len() > MAX_INPUTS {
            self.0.pop_front();
        }
    }
}

/// Keys of the effects that dead hosts have sent, and of those that any host has sent since the
/// last death.
///
/// The next owner executes effects of a dead host again. If it then hands the UE off and the owner
/// after it dies, another replica may still have the effects as those of the first host, and
/// executes them once more. The host that has sent them is alive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EffectDedup {
    keys: FxHashSet<u64>,
    /// Hosts that have sent effects since the last death, by key.
    senders: FxHashMap<u64, HostId>,
    deadline: Instant,
}

impl EffectDedup {
    /// Adds the keys of a host that died.
    pub fn add(&mut self, emitted: RecentEffects, now: Instant) {
        self.keys.extend(emitted.0.into_iter().map(|(_, key)| key));
        self.deadline = now + RETENTION;
    }

    /// Handles an effect of a host; key 0 means no key. Returns true if another host has sent it.
    /// A host may send its own effect again, by another association.
    pub fn check_repeat(&mut self, key: u64, from: HostId, now: Instant) -> bool {
        if key == 0 || now > self.deadline {
            return false;
        }
        if self.keys.contains(&key) {
            return true;
        }
        match self.senders.get(&key) {
            Some(sender) => *sender != from,
            None => {
                if self.senders.len() < MAX_INPUTS {
                    self.senders.insert(key, from);
                }
                false
            }
        }
    }

    /// Drops all keys when the retention time is over.
    pub fn forget(&mut self, now: Instant) {
        if now > self.deadline && !(self.keys.is_empty() && self.senders.is_empty()) {
            (self.keys, self.senders) = Default::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_inputs_are_ordered_and_recent() {
        let (mut inputs, second) = (InflightInputs::default(), 1_000_000);
        inputs.add(1, (), Some((3, ServiceTime::new(7))), Instant(second));
        for number in [7, 3, 9] {
            inputs.add(number, (), Some((number as usize, ServiceTime::new(7))), Instant(6 * second));
        }
        inputs.acknowledge(7);
        inputs.acknowledge(8);
        inputs.add(10, (), None, Instant(6 * second));
        assert!(inputs.take_returned(10).is_some() && inputs.take_returned(10).is_none());
        assert_eq!(inputs.take_ended_shares().map(|(pool, _)| pool).collect::<Vec<_>>(), [7]);
        inputs.add(11, (), None, Instant(6 * second + 1));
        assert_eq!(
            inputs.take_ended_shares().map(|(pool, _)| pool).collect::<Vec<_>>(),
            [3],
            "of which no host has spoken"
        );
        let numbers: Vec<u64> = inputs.into_unfinished(Instant(7 * second)).into_iter().map(|(n, _)| n).collect();
        assert_eq!(numbers, [3, 9, 11]);
    }

    #[test]
    fn effects_of_dead_host_are_repeats_for_a_while() {
        let (mut emitted, mut repeats) = (RecentEffects::default(), EffectDedup::default());
        emitted.add(0, Instant(0));
        emitted.add(5, Instant(0));
        emitted.add(6, Instant(9_000_000));
        repeats.add(emitted, Instant(9_500_000));
        let (next, now) = (HostId(2), Instant(9_500_000));
        let are_repeats = [0, 5, 6].map(|key| repeats.check_repeat(key, next, now));
        assert_eq!(are_repeats, [false, false, true], "5 was long ago");
        repeats.forget(Instant(14_500_000));
        assert!(repeats.check_repeat(6, next, Instant(14_500_000)));
        assert!(!repeats.check_repeat(6, next, Instant(14_500_001)));
        repeats.forget(Instant(14_500_001));
        assert!(repeats.keys.is_empty() && repeats.senders.is_empty());
    }

    #[test]
    fn effect_sent_since_a_death_leaves_once() {
        let (mut repeats, [next, last]) = (EffectDedup::default(), [2, 3].map(HostId));
        assert!(!repeats.check_repeat(7, next, Instant(1)) && !repeats.check_repeat(7, last, Instant(1)));
        repeats.add(RecentEffects::default(), Instant(2));
        assert!(!repeats.check_repeat(7, next, Instant(3)), "the dead host had not sent it");
        assert!(!repeats.check_repeat(7, next, Instant(4)), "by another association");
        assert!(repeats.check_repeat(7, last, Instant(5)));
        assert!(![next, last].iter().any(|host| repeats.check_repeat(0, *host, Instant(5))), "it has no key");
    }
}
