//! RAN nodes and claims that an owner must know before it continues a UE.
//!
//! The context of a UE names the RAN node that the UE is connected by. Hosts learn RAN nodes and
//! claims from balancers and UEs from other hosts. The connections differ, so a UE may arrive
//! first. A context with an unknown RAN node would become idle while the UE stays connected. A
//! context whose claim is unknown would be superseded by an earlier claim.
//!
//! 1. After each cluster map a host sends all balancers of the map a barrier
//!    ([`BucketOwner::request_nodes`]). A balancer answers it when it has sent all that it knows.
//!    Until all have answered, the host does not report that it has caught up
//!    ([`BucketOwner::caught_up`]), and the controller assigns it no further buckets. A joining
//!    host owns nothing before it knows the RAN nodes.
//! 2. A UE that arrives before its RAN node is known is held back ([`BucketOwner::hold_back`]), and
//!    inputs for its bucket wait. It is released when all balancers have answered a later barrier
//!    ([`BucketOwner::on_nodes_known`]). A RAN node that is unknown then does not exist.
//! 3. A UE that a known claim supersedes is held back in the same way. Its previous owner hands it
//!    off only after a barrier, so the balancers have received its claim by then.
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
    /// Holds back a UE whose RAN node or claim may be unknown. Inputs for its bucket wait.
    pub fn hold_back(&mut self, ltmsi: Ltmsi, entry: ReplicaEntry, origin: Origin) {
        self.incoming_buckets.insert(ltmsi.bucket());
        self.nodes.held_back.push(HeldBackUe { ltmsi, entry, origin, barrier: None });
    }

    /// Returns the number of a barrier to send to all balancers of the map, if one is needed.
    /// Balancers that are not connected receive it when they connect. The barrier refers to the
    /// current map, so the caller sends it before it adopts another map.
    pub fn request_nodes(&mut self) -> Option<u64> {
        let epoch = self.map.as_ref().map(BucketMap::epoch)?;
        let is_new = self.nodes.known < epoch && !self.nodes.pending.iter().any(|(_, of)| *of == epoch);
        let lacks_barrier = |ue: &HeldBackUe| ue.barrier.is_none() && ue.entry.epoch <= epoch;
        if !is_new && !self.nodes.held_back.iter().any(lacks_barrier) {
            return None;
        }
        let number = self.next_barrier();
        self.nodes.pending.push((number, epoch));
        let held_back = self.nodes.held_back.iter_mut().filter(|ue| lacks_barrier(ue));
        held_back.for_each(|ue| ue.barrier = Some(number));
        Some(number)
    }

    /// Handles that all balancers have answered a barrier. Returns the UEs to continue, whether
    /// their RAN nodes and claims are known or not; `None` if the barrier is not one of these.
    pub fn on_nodes_known(&mut self, barrier: u64) -> Option<TakeoverSet> {
        let at = self.nodes.pending.iter().position(|(number, _)| *number == barrier)?;
        let (_, epoch) = self.nodes.pending.remove(at);
        self.nodes.known = self.nodes.known.max(epoch);
        let mut takeover = TakeoverSet::default();
        for ue in self.nodes.held_back.extract_if(.., |ue| ue.barrier == Some(barrier)) {
            let HeldBackUe { ltmsi, entry, origin, .. } = ue;
            match origin {
                Origin::Dead => takeover.ues.push((ltmsi, entry)),
                Origin::Handed(from) => takeover.handed.push((from, ltmsi, entry)),
            }
        }
        let arrived =
            takeover.ues.iter().map(|(ltmsi, _)| ltmsi).chain(takeover.handed.iter().map(|(_, ltmsi, _)| ltmsi));
        for bucket in arrived.map(|ltmsi| ltmsi.bucket()) {
            if !self.nodes.buckets().any(|held_back| held_back == bucket) {
                self.incoming_buckets.remove(&bucket);
            }
        }
        Some(takeover)
    }

    /// Returns true if all balancers of the map have sent all that they knew when this host adopted
    /// the map.
    pub(super) fn knows_nodes(&self) -> bool {
        self.map.as_ref().is_some_and(|map| self.nodes.known >= map.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::super::reconcile::tests::{Acks, NOW, World, copy, parts};
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
        let mut owner: BucketOwner<u32, ()> = BucketOwner::new(own, replication, vec![2]);
        assert_eq!(owner.request_nodes(), None, "there is no map");
        let mut barrier = None;
        for map in &world.maps {
            owner.adopt(map.clone(), world.hosts.iter().copied().chain([own]).collect());
            owner.set_awaited(Default::default());
            owner.rescan();
            barrier = owner.request_nodes();
            assert!(barrier.is_some() && owner.request_nodes().is_none(), "once for each map");
            assert!(owner.caught_up(&Acks::default()).is_empty());
        }
        assert!(owner.on_nodes_known(barrier.unwrap() - 1).is_some(), "that was by the map before");
        assert!(owner.caught_up(&Acks::default()).is_empty());
        assert!(owner.on_nodes_known(barrier.unwrap()).is_some());
        assert_eq!(owner.on_nodes_known(barrier.unwrap()).map(|_| ()), None, "once");
        assert!(owner.has_released_effects(&Acks::default()));
        assert_eq!(owner.caught_up(&Acks::default()).to_vec(), [own]);
    }

    #[test]
    fn ue_of_unknown_node_waits_with_its_bucket() {
        let world = World::new();
        let [dead, next, _] = world.hosts;
        let mut owner = world.next_owner();
        let ue = Ltmsi::new(world.bucket, 3);
        let entry = |epoch| {
            let mut store = ReplicaStore::new(next);
            store.apply((dead, epoch), &copy(1, ue, 1, b""), NOW).unwrap();
            store.ues.remove(&world.bucket).unwrap().remove(&ue).unwrap()
        };
        let [first, other] = [7, 9].map(|bucket| Ltmsi::new(Bucket::new(bucket), 5));
        owner.hold_back(first, entry(1), Origin::Handed(None));
        let before = owner.request_nodes().expect("a question");
        owner.hold_back(ue, entry(2), Origin::Dead);
        // The previous owner of this UE uses a map that this host does not have.
        owner.hold_back(other, entry(3), Origin::Handed(Some(dead)));
        let later = owner.request_nodes().expect("another question");
        assert!(owner.request_nodes().is_none() && later > before);
        assert_eq!(owner.on_nodes_known(before).unwrap().handed[0].1, first, "the others came after that question");
        let waits = |owner: &mut BucketOwner<u32, ()>, bucket| {
            owner.classify_input(Some(bucket), false, true, true) == InputDisposition::HoldBack
        };
        assert!(waits(&mut owner, world.bucket) && owner.caught_up(&Acks::default()).is_empty());
        let takeover = owner.on_nodes_known(later).unwrap();
        assert_eq!((takeover.ues[0].0, takeover.ues.len(), takeover.handed.len()), (ue, 1, 0));
        assert!(!waits(&mut owner, world.bucket) && waits(&mut owner, other.bucket()));
        owner.set_awaited(Default::default());
        assert!(waits(&mut owner, other.bucket()));
        owner.adopt(world.maps[1].next(&parts(&[next])), vec![next]);
        let last = owner.request_nodes().expect("of the map, and of the UE");
        assert_eq!(owner.on_nodes_known(last).unwrap().handed[0].0, Some(dead));
        assert!(owner.incoming().is_empty());
    }
}
