//! RAN nodes that an owner must know before it continues a UE.
//!
//! The context of a UE names the RAN node that the UE is connected by. Hosts learn RAN nodes from
//! balancers and UEs from other hosts. The connections differ, so a UE may arrive first. A context
//! with an unknown RAN node would become idle while the UE stays connected.
//!
//! 1. After each cluster map a host sends all balancers of the map a barrier
//!    ([`BucketOwner::asks_for_nodes`]). A balancer answers it when it has sent all that it knows.
//!    Until all have answered, the host does not report that it has caught up
//!    ([`BucketOwner::caught_up`]), and the controller assigns it no further buckets. A joining
//!    host owns nothing before it knows the RAN nodes.
//! 2. A UE that arrives before its RAN node is known is held back ([`BucketOwner::keep_back`]), and
//!    inputs for its bucket wait. It is released when all balancers have answered a later barrier
//!    ([`BucketOwner::introduced`]). A RAN node that is unknown then does not exist.
//!
//! The answer of a balancer arrives after all that it sent before on that connection. The sender of
//! the UE may use a later map with balancers that this host does not know. The barrier is therefore
//! sent when this host has that map.

use super::owner::{BucketOwner, SlotKey};
use super::owner_state::{HeldBackUe, Origin};
use super::{ReplicaEntry, TakeoverSet};
use crate::placement::balance::map::BucketMap;
use vireo_types::Ltmsi;

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Holds back a UE whose RAN node is unknown. Inputs for its bucket wait.
    pub fn keep_back(&mut self, ltmsi: Ltmsi, shadow: ReplicaEntry, origin: Origin) {
        self.incoming_buckets.insert(ltmsi.bucket());
        self.nodes.held_back.push(HeldBackUe { ltmsi, shadow, origin, question: None });
    }

    /// Returns the number of a barrier to send to all balancers of the map, if one is needed.
    /// Balancers that are not connected receive it when they connect. The barrier refers to the
    /// current map, so the caller sends it before it adopts another map.
    pub fn asks_for_nodes(&mut self) -> Option<u64> {
        let epoch = self.map.as_ref().map(BucketMap::epoch)?;
        let is_new = self.nodes.known < epoch && !self.nodes.asked.iter().any(|(_, of)| *of == epoch);
        let unasked = |ue: &HeldBackUe| ue.question.is_none() && ue.shadow.epoch <= epoch;
        if !is_new && !self.nodes.held_back.iter().any(unasked) {
            return None;
        }
        let number = self.ask();
        self.nodes.asked.push((number, epoch));
        let held_back = self.nodes.held_back.iter_mut().filter(|ue| unasked(ue));
        held_back.for_each(|ue| ue.question = Some(number));
        Some(number)
    }

    /// Handles that all balancers have answered a barrier. Returns the UEs to continue, whether
    /// their RAN nodes are known or not; `None` if the barrier is not one of these.
    pub fn introduced(&mut self, question: u64) -> Option<TakeoverSet> {
        let at = self.nodes.asked.iter().position(|(number, _)| *number == question)?;
        let (_, epoch) = self.nodes.asked.remove(at);
        self.nodes.known = self.nodes.known.max(epoch);
        let mut taken = TakeoverSet::default();
        for ue in self.nodes.held_back.extract_if(.., |ue| ue.question == Some(question)) {
            let HeldBackUe { ltmsi, shadow, origin, .. } = ue;
            match origin {
                Origin::Dead => taken.ues.push((ltmsi, shadow)),
                Origin::Handed(from) => taken.handed.push((from, ltmsi, shadow)),
            }
        }
        let came = taken.ues.iter().map(|(ltmsi, _)| ltmsi).chain(taken.handed.iter().map(|(_, ltmsi, _)| ltmsi));
        for bucket in came.map(|ltmsi| ltmsi.bucket()) {
            if !self.nodes.buckets().any(|held_back| held_back == bucket) {
                self.incoming_buckets.remove(&bucket);
            }
        }
        Some(taken)
    }

    /// Returns true if all balancers of the map have sent all that they knew when this host adopted
    /// the map.
    pub(super) fn knows_nodes(&self) -> bool {
        self.map.as_ref().is_some_and(|map| self.nodes.known >= map.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::super::reconcile::tests::{NOW, Said, World, copy, parts};
    use super::super::{Ack, InputDisposition, Mode, ReplicaStore, ReplicationConfig};
    use super::*;
    use crate::placement::balance::HostId;
    use vireo_types::Bucket;

    #[test]
    fn host_has_caught_up_when_it_knows_the_nodes() {
        let world = World::new();
        // The host owns nothing by its first map.
        let own = HostId(9);
        let replication = ReplicationConfig { mode: Mode::Hot, replicas: 2, ack: Ack::One };
        let mut primary: BucketOwner<u32, ()> = BucketOwner::new(own, replication, vec![2]);
        assert_eq!(primary.asks_for_nodes(), None, "there is no map");
        let mut question = None;
        for map in &world.maps {
            primary.adopt(map.clone(), world.hosts.iter().copied().chain([own]).collect());
            primary.entered(Default::default());
            primary.rescan();
            question = primary.asks_for_nodes();
            assert!(question.is_some() && primary.asks_for_nodes().is_none(), "once for each map");
            assert!(primary.caught_up(&Said::default()).is_empty());
        }
        assert!(primary.introduced(question.unwrap() - 1).is_some(), "that was by the map before");
        assert!(primary.caught_up(&Said::default()).is_empty());
        assert!(primary.introduced(question.unwrap()).is_some());
        assert_eq!(primary.introduced(question.unwrap()).map(|_| ()), None, "once");
        assert!(primary.has_released_effects(&Said::default()));
        assert_eq!(primary.caught_up(&Said::default()).to_vec(), [own]);
    }

    #[test]
    fn ue_of_unknown_node_waits_with_its_bucket() {
        let world = World::new();
        let [dead, next, _] = world.hosts;
        let mut primary = world.next_owner();
        let ue = Ltmsi::new(world.bucket, 3);
        let shadow = |epoch| {
            let mut keeper = ReplicaStore::new(next);
            keeper.apply((dead, epoch), &copy(1, ue, 1, b""), NOW).unwrap();
            keeper.ues.remove(&world.bucket).unwrap().remove(&ue).unwrap()
        };
        let [first, other] = [7, 9].map(|bucket| Ltmsi::new(Bucket::new(bucket), 5));
        primary.keep_back(first, shadow(1), Origin::Handed(None));
        let before = primary.asks_for_nodes().expect("a question");
        primary.keep_back(ue, shadow(2), Origin::Dead);
        // The previous owner of this UE uses a map that this host does not have.
        primary.keep_back(other, shadow(3), Origin::Handed(Some(dead)));
        let later = primary.asks_for_nodes().expect("another question");
        assert!(primary.asks_for_nodes().is_none() && later > before);
        assert_eq!(primary.introduced(before).unwrap().handed[0].1, first, "the others came after that question");
        let waits = |primary: &mut BucketOwner<u32, ()>, bucket| {
            primary.classify_input(Some(bucket), false, true, true) == InputDisposition::HoldBack
        };
        assert!(waits(&mut primary, world.bucket) && primary.caught_up(&Said::default()).is_empty());
        let taken = primary.introduced(later).unwrap();
        assert_eq!((taken.ues[0].0, taken.ues.len(), taken.handed.len()), (ue, 1, 0));
        assert!(!waits(&mut primary, world.bucket) && waits(&mut primary, other.bucket()));
        primary.entered(Default::default());
        assert!(waits(&mut primary, other.bucket()));
        primary.adopt(world.maps[1].next(&parts(&[next])), vec![next]);
        let last = primary.asks_for_nodes().expect("of the map, and of the UE");
        assert_eq!(primary.introduced(last).unwrap().handed[0].0, Some(dead));
        assert!(primary.coming().is_empty());
    }
}
