//! What of commits has left for sure: a host's balancers have it, whatever becomes of the host.
//!
//! Who takes over does once more what commits of the last seconds wanted done, and the balancers drop what they have sent. By far
//! the most of that left long before, and to do it again is work of which there is enough then. So from time to time an owner asks
//! its balancers to say when they have done all that it has said; by their answer it tells those who keep copies up to which of
//! these all has left. What was not answered by the host itself (the subscriber service) is asked again nevertheless.

use super::owner::{BucketOwner, SlotKey};
use super::{Fenced, ReplicaStore};
use crate::balance::HostId;
use rustc_hash::FxHashMap;
use vireo_types::Duration;

/// How often the balancers are asked.
pub const ASKED_EVERY: Duration = Duration::from_millis(100);

/// What hosts that keep copies were told, and will be when the balancers answer.
#[derive(Debug, Default)]
pub(super) struct EffectWatermark {
    /// The question, and up to which copy of each host all had been let go when it was asked.
    asked: Option<(u64, Vec<(HostId, u64)>)>,
    told: FxHashMap<HostId, u64>,
}

/// What a host is told: all that its copies up to a number want done has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkUpdate {
    /// The host.
    pub to: HostId,
    /// The number of this word, as that of a copy.
    pub number: u64,
    /// That of the copy.
    pub until: u64,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// The number of the question that is to be asked, if one is: whether balancers have done all that was said. To be asked now and
    /// then, when all was said that was let go.
    pub fn request_watermark(&mut self) -> Option<u64> {
        if self.left.asked.is_some() {
            return None;
        }
        let hosts = self.hosts().iter().map(|host| (*host, self.last_number(*host)));
        let mut until: FxHashMap<HostId, u64> = hosts.collect();
        for (host, number) in self.awaiting.iter().flat_map(|pending| &pending.sent) {
            if let Some(until) = until.get_mut(host) {
                *until = (*until).min(number - 1);
            }
        }
        until.retain(|host, until| *until > self.left.told.get(host).copied().unwrap_or_default());
        if until.is_empty() {
            return None;
        }
        let mut until: Vec<(HostId, u64)> = until.into_iter().collect();
        until.sort_unstable();
        let number = self.ask();
        self.left.asked = Some((number, until));
        Some(number)
    }

    /// The balancers that there are have done all that was said before a question: what hosts are told by that. Nothing if not all
    /// was said to one that is there (`whole`).
    pub fn left(&mut self, question: u64, whole: bool) -> Vec<WatermarkUpdate> {
        let Some((_, mut all)) = self.left.asked.take_if(|(asked, _)| *asked == question) else { return vec![] };
        all.retain(|(to, _)| whole && self.hosts().contains(to));
        let mut gone = Vec::new();
        for (to, until) in all {
            let number = self.number(to);
            // That this was said is no news.
            self.left.told.insert(to, if until + 1 == number { number } else { until });
            gone.push(WatermarkUpdate { to, number, until });
        }
        gone
    }
}

impl ReplicaStore {
    /// All that a host's copies up to a number want done has left.
    ///
    /// # Errors
    ///
    /// When the sender is in the map no longer.
    pub fn left(&mut self, (from, epoch): (HostId, u64), number: u64, until: u64) -> Result<(), Fenced> {
        self.check(from, epoch)?;
        if !self.is_repeat(from, number) {
            let left = self.left.entry(from).or_default();
            *left = until.max(*left);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::reconcile::tests::{NOW, Said, World, copy, parts};
    use super::super::{Commit, UnsentOutbox};
    use super::*;
    use crate::context::{self, UeContext};
    use vireo_types::Ltmsi;

    #[test]
    fn what_has_left_by_the_word_of_the_balancers_is_told_up_to_the_first_commit_that_waits() {
        let world = World::new();
        let (mut primary, mut said) = (world.next_owner(), Said::default());
        let to = world.hosts[2];
        assert_eq!(primary.request_watermark(), None, "nothing was said");
        let ltmsi = Ltmsi::new(world.bucket, 1);
        let context = context::encode(&UeContext::new(ltmsi), Vec::new()).unwrap();
        let commit =
            Commit { slot: 7, ltmsi, before: None, input: 9, context: &context, outbox: b"o", ways: [None; 2] };
        (0..3).for_each(|_| assert_eq!(primary.on_commit((&commit, false), &said, (), &mut |_, _| ()), None));
        assert_eq!(primary.request_watermark(), None, "all of it waits");
        said.0.insert(to, 2);
        while primary.next_released(&said).is_some() {}
        let question = primary.request_watermark().expect("two have left");
        assert_eq!(primary.request_watermark(), None, "it is asked");
        said.0.insert(to, 3);
        assert_eq!(primary.next_released(&said), Some(()), "too late for the question");
        assert_eq!(primary.left(question + 1, true), []);
        assert_eq!(primary.left(question, true), [WatermarkUpdate { to, number: 4, until: 2 }]);
        let question = primary.request_watermark().expect("one more has");
        assert_eq!(primary.left(question, false), [], "a balancer was lost");
        let question = primary.request_watermark().expect("it is asked again");
        assert_eq!(primary.left(question, true), [WatermarkUpdate { to, number: 5, until: 4 }]);
        assert_eq!(primary.request_watermark(), None, "nothing was said since but that");
    }

    #[test]
    fn what_has_left_is_not_done_again_but_for_what_the_dead_host_was_to_answer_itself() {
        let world = World::new();
        let [dead, _, last] = world.hosts;
        let (ue, mut keeper) = (Ltmsi::new(world.bucket, 1), world.keeper());
        for (number, outbox) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
            keeper.apply((dead, 1), &copy(number, ue, number as u32, outbox), NOW).unwrap();
        }
        keeper.left((dead, 1), 4, 2).unwrap();
        keeper.left((dead, 1), 4, 3).unwrap();
        let next = world.maps[1].next(&parts(&[last]));
        let taken = keeper.adopt(&next, &[last]);
        let undone: Vec<(&[u8], bool)> =
            taken.ues[0].1.unsent_outboxes(NOW).map(|UnsentOutbox { outbox, sent, .. }| (outbox, sent)).collect();
        assert_eq!(undone, [(&b"one"[..], true), (b"two", true), (b"three", false)]);
        assert!(keeper.left((dead, 1), 5, 3).is_err(), "it is in the map no longer");
    }
}
