//! Inputs of balancers that are not to be executed again.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_types::{Duration, Instant, Ltmsi};

/// Time for which inputs are stored: longer than balancers redeliver them.
const RETENTION: Duration = Duration::from_secs(10);

/// Host that executed an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutedBy {
    /// By a dead owner, whose commit this host has.
    Owner,
    /// By this host, after a serving host had it, which may still propose its result.
    ThisHost,
    /// By a serving host, whose proposal this host has committed.
    ServingHost,
    /// By no host yet: this host has refused the proposal of a serving host.
    NoHost,
}

/// Numbers of inputs that may arrive again and are not to be executed again: commits of a dead
/// owner, committed proposals of serving hosts, and inputs that a serving host may still propose.
#[derive(Debug, Default)]
pub(super) struct CommittedInputs {
    numbers: FxHashMap<u64, ExecutedBy>,
    order: VecDeque<(Instant, u64)>,
    /// Inputs by UE, in both orders, that serving hosts and dead owners have executed.
    by_ue: FxHashMap<Ltmsi, VecDeque<u64>>,
    by_ue_order: VecDeque<(Instant, Ltmsi)>,
}

impl CommittedInputs {
    pub(super) fn add(&mut self, numbers: impl IntoIterator<Item = u64>, by: ExecutedBy, now: Instant) {
        for number in numbers {
            if self.numbers.insert(number, by).is_none() {
                self.order.push_back((now, number));
            }
        }
    }

    /// Records that the proposal of a serving host was committed.
    pub(super) fn add_served(&mut self, ltmsi: Ltmsi, number: u64, now: Instant) {
        self.add([number], ExecutedBy::ServingHost, now);
        self.note_ue(ltmsi, number, now);
    }

    /// Records an input whose result this host has taken over with the UE.
    pub(super) fn add_taken_over(&mut self, ltmsi: Ltmsi, number: u64, now: Instant) {
        if self.get(number).is_none() {
            self.note_ue(ltmsi, number, now);
        }
        self.add([number], ExecutedBy::Owner, now);
    }

    fn note_ue(&mut self, ltmsi: Ltmsi, number: u64, now: Instant) {
        self.by_ue.entry(ltmsi).or_default().push_back(number);
        self.by_ue_order.push_back((now, ltmsi));
    }

    /// Returns the inputs of a UE that serving hosts and dead owners have executed. The balancer
    /// may not know that yet, and then sends them to the owner, which may be a later one than this
    /// host.
    pub(super) fn by_ue(&self, ltmsi: Ltmsi) -> impl Iterator<Item = u64> {
        self.by_ue.get(&ltmsi).into_iter().flatten().copied()
    }

    /// Records that the proposal with this input was refused. It may arrive again.
    pub(super) fn add_refused(&mut self, number: u64, now: Instant) {
        if self.get(number).is_none() {
            self.add([number], ExecutedBy::NoHost, now);
        }
    }

    /// Returns true if an input is not to be executed again.
    pub(super) fn is_executed(&self, number: u64) -> bool {
        matches!(self.get(number), Some(ExecutedBy::Owner | ExecutedBy::ServingHost))
    }

    pub(super) fn get(&self, number: u64) -> Option<ExecutedBy> {
        self.numbers.get(&number).copied()
    }

    /// Drops inputs that are not redelivered any more.
    pub(super) fn forget(&mut self, now: Instant) {
        while let Some((_, number)) = self.order.pop_front_if(|(at, _)| now.since(*at) > RETENTION) {
            self.numbers.remove(&number);
        }
        while let Some((_, ltmsi)) = self.by_ue_order.pop_front_if(|(at, _)| now.since(*at) > RETENTION) {
            let Some(inputs) = self.by_ue.get_mut(&ltmsi) else { continue };
            inputs.pop_front();
            if inputs.is_empty() {
                self.by_ue.remove(&ltmsi);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_remembered_for_ten_seconds() {
        let mut inputs = CommittedInputs::default();
        inputs.add([1, 2], ExecutedBy::Owner, Instant(0));
        inputs.add([2, 3], ExecutedBy::ServingHost, Instant(5_000_000));
        inputs.forget(Instant(10_000_000));
        assert!([1, 2, 3].iter().all(|number| inputs.get(*number).is_some()));
        inputs.forget(Instant(10_000_001));
        assert_eq!([1, 2, 3].map(|number| inputs.get(number).is_some()), [false, false, true]);
    }

    #[test]
    fn input_of_refused_proposal_is_executed_once() {
        let mut inputs = CommittedInputs::default();
        inputs.add_refused(1, Instant(0));
        assert_eq!((inputs.get(1), inputs.is_executed(1)), (Some(ExecutedBy::NoHost), false));
        inputs.add([1], ExecutedBy::ThisHost, Instant(0));
        inputs.add_refused(1, Instant(0));
        assert_eq!((inputs.get(1), inputs.is_executed(1)), (Some(ExecutedBy::ThisHost), false));
        inputs.add([2], ExecutedBy::ServingHost, Instant(0));
        assert!(inputs.is_executed(2));
    }

    #[test]
    fn served_inputs_are_known_by_ue() {
        let [one, other] = [1, 2].map(Ltmsi::from_raw);
        let mut inputs = CommittedInputs::default();
        inputs.add_served(one, 10, Instant(0));
        inputs.add_served(one, 11, Instant(1));
        inputs.add([12], ExecutedBy::Owner, Instant(1));
        assert_eq!(inputs.by_ue(one).collect::<Vec<_>>(), [10, 11]);
        assert_eq!(inputs.by_ue(other).count(), 0);
        // Seed 478: the next owner adopted a proposal, and its UE migrated at once.
        inputs.add_taken_over(other, 13, Instant(1));
        inputs.add_taken_over(other, 13, Instant(1));
        assert_eq!((inputs.by_ue(other).collect::<Vec<_>>(), inputs.get(13)), (vec![13], Some(ExecutedBy::Owner)));
        inputs.forget(Instant(10_000_001));
        assert_eq!(inputs.by_ue(one).collect::<Vec<_>>(), [11]);
        inputs.forget(Instant(10_000_002));
        assert!(inputs.by_ue.is_empty() && inputs.by_ue_order.is_empty());
    }
}
