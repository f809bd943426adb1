//! Effect watermark: copy number up to which all effects have reached the balancers.
//!
//! A new owner re-executes the effects of the commits of the last seconds, and the balancers drop
//! those that they have already sent. Most of these effects left long before, and re-executing them
//! costs time when a takeover needs it most. An owner therefore periodically sends its balancers a
//! barrier. When they have answered, it sends the replicas the number of the last copy whose
//! effects have all left. Requests that the dead host itself had to answer (subscriber service) are
//! sent again regardless.

use super::owner::{BucketOwner, SlotKey};
use super::{Fenced, ReplicaStore};
use crate::placement::balance::HostId;
use rustc_hash::FxHashMap;
use vireo_types::Duration;

/// Interval between two barriers to the balancers.
pub const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Message to a replica: all effects of its copies up to a number have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkUpdate {
    pub to: HostId,
    /// Number of this message in the sequence of copies.
    pub number: u64,
    /// Number of the last copy whose effects have left.
    pub until: u64,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Returns the number of a barrier to send to the balancers, if one is needed. The caller calls
    /// this periodically, when all released effects have been sent.
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

    /// Handles that all present balancers have answered a barrier. Returns the messages to the
    /// replicas; none if not every present balancer received all effects (`whole` is false).
    pub fn left(&mut self, question: u64, whole: bool) -> Vec<WatermarkUpdate> {
        let Some((_, mut all)) = self.left.asked.take_if(|(asked, _)| *asked == question) else { return vec![] };
        all.retain(|(to, _)| whole && self.hosts().contains(to));
        let mut gone = Vec::new();
        for (to, until) in all {
            let number = self.number(to);
            // The update itself takes a copy number and must not cause the next barrier.
            self.left.told.insert(to, if until + 1 == number { number } else { until });
            gone.push(WatermarkUpdate { to, number, until });
        }
        gone
    }
}

impl ReplicaStore {
    /// Handles a watermark: all effects of a host's copies up to `until` have left.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
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
    use crate::amf::context::{self, UeContext};
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
