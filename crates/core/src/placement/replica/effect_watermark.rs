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
pub const WATERMARK_INTERVAL: Duration = Duration::from_millis(100);

/// Message to a replica: all effects of its copies up to a number have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkUpdate {
    pub to: HostId,
    /// Number of this message in the sequence of copies.
    pub number: u64,
    /// Number of the last copy whose effects have left.
    pub watermark: u64,
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Returns the number of a barrier to send to the balancers, if one is needed. The caller calls
    /// this periodically, when all released effects have been sent.
    pub fn request_watermark(&mut self) -> Option<u64> {
        if self.watermark.pending.is_some() {
            return None;
        }
        let hosts = self.hosts().iter().map(|host| (*host, self.last_number(*host)));
        let mut watermarks: FxHashMap<HostId, u64> = hosts.collect();
        for (host, number) in self.awaiting.iter().flat_map(|pending| &pending.sent) {
            if let Some(watermark) = watermarks.get_mut(host) {
                *watermark = (*watermark).min(number - 1);
            }
        }
        watermarks.retain(|host, watermark| *watermark > self.watermark.sent.get(host).copied().unwrap_or_default());
        if watermarks.is_empty() {
            return None;
        }
        let mut watermarks: Vec<(HostId, u64)> = watermarks.into_iter().collect();
        watermarks.sort_unstable();
        let number = self.next_barrier();
        self.watermark.pending = Some((number, watermarks));
        Some(number)
    }

    /// Handles that all present balancers have answered a barrier. Returns the messages to the
    /// replicas; none if not every present balancer received all effects (`whole` is false).
    pub fn on_watermark_barrier(&mut self, barrier: u64, whole: bool) -> Vec<WatermarkUpdate> {
        let Some((_, mut all)) = self.watermark.pending.take_if(|(pending, _)| *pending == barrier) else {
            return vec![];
        };
        all.retain(|(to, _)| whole && self.hosts().contains(to));
        let mut updates = Vec::new();
        for (to, watermark) in all {
            let number = self.number(to);
            // The update itself takes a copy number and must not cause the next barrier.
            self.watermark.sent.insert(to, if watermark + 1 == number { number } else { watermark });
            updates.push(WatermarkUpdate { to, number, watermark });
        }
        updates
    }
}

impl ReplicaStore {
    /// Handles a watermark: all effects of a host's copies up to `watermark` have left.
    ///
    /// # Errors
    ///
    /// Returns an error if the sender is not in the cluster map.
    pub fn on_watermark(&mut self, (from, epoch): (HostId, u64), number: u64, watermark: u64) -> Result<(), Fenced> {
        self.check(from, epoch)?;
        if !self.check_repeat(from, number) {
            let last = self.watermarks.entry(from).or_default();
            *last = watermark.max(*last);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::reconcile::tests::{Acks, NOW, World, copy, parts};
    use super::super::{Commit, UnsentOutbox};
    use super::*;
    use crate::amf::context::{self, UeContext};
    use vireo_types::Ltmsi;

    #[test]
    fn watermark_stops_at_first_waiting_commit() {
        let world = World::new();
        let (mut owner, mut acks) = (world.next_owner(), Acks::default());
        let to = world.hosts[2];
        assert_eq!(owner.request_watermark(), None, "nothing was said");
        let ltmsi = Ltmsi::new(world.bucket, 1);
        let context = context::encode(&UeContext::new(ltmsi), Vec::new()).unwrap();
        let commit = Commit {
            slot: 7,
            ltmsi,
            before: None,
            input: 9,
            context: &context,
            outbox: b"o",
            associations: [None; 2],
            proposer: None,
        };
        (0..3).for_each(|_| assert_eq!(owner.on_commit((&commit, false), &acks, (), &mut |_, _| ()), None));
        assert_eq!(owner.request_watermark(), None, "all of it waits");
        acks.0.insert(to, 2);
        while owner.next_released(&acks).is_some() {}
        let barrier = owner.request_watermark().expect("two have left");
        assert_eq!(owner.request_watermark(), None, "it is asked");
        acks.0.insert(to, 3);
        assert_eq!(owner.next_released(&acks), Some(()), "too late for the question");
        assert_eq!(owner.on_watermark_barrier(barrier + 1, true), []);
        assert_eq!(owner.on_watermark_barrier(barrier, true), [WatermarkUpdate { to, number: 4, watermark: 2 }]);
        let barrier = owner.request_watermark().expect("one more has");
        assert_eq!(owner.on_watermark_barrier(barrier, false), [], "a balancer was lost");
        let barrier = owner.request_watermark().expect("it is asked again");
        assert_eq!(owner.on_watermark_barrier(barrier, true), [WatermarkUpdate { to, number: 5, watermark: 4 }]);
        assert_eq!(owner.request_watermark(), None, "nothing was said since but that");
    }

    #[test]
    fn outboxes_below_watermark_count_as_sent() {
        let world = World::new();
        let [dead, _, last] = world.hosts;
        let (ue, mut store) = (Ltmsi::new(world.bucket, 1), world.second_replica());
        for (number, outbox) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
            store.apply((dead, 1), &copy(number, ue, number as u32, outbox), NOW).unwrap();
        }
        store.on_watermark((dead, 1), 4, 2).unwrap();
        store.on_watermark((dead, 1), 4, 3).unwrap();
        let next = world.maps[1].next(&parts(&[last]));
        let takeover = store.adopt(&next, &[last]);
        let unsent: Vec<(&[u8], bool)> =
            takeover.ues[0].1.unsent_outboxes(NOW).map(|UnsentOutbox { outbox, sent, .. }| (outbox, sent)).collect();
        assert_eq!(unsent, [(&b"one"[..], true), (b"two", true), (b"three", false)]);
        assert!(store.on_watermark((dead, 1), 5, 3).is_err(), "it is in the map no longer");
    }
}
