//! RAN nodes that an owner has to know before it goes on with a UE.
//!
//! A UE's context names the RAN node that it is connected by. Hosts learn of nodes from balancers, and of UEs from other hosts:
//! on other connections, so that a UE may come first. A context of an unknown node would become idle while the UE stays connected.
//!
//! 1. After each map a host asks all balancers of it to answer when they have sent all that they know ([`BucketOwner::asks_for_nodes`]).
//!    Until all have, the host does not say that it has what the map gives to it ([`BucketOwner::caught_up`]), and the controller
//!    gives it nothing more: a host that joins owns nothing before it knows the nodes.
//! 2. A UE of a node that is unknown when the UE comes is kept back ([`BucketOwner::keep_back`]), and inputs for its bucket wait,
//!    until all balancers have answered a question that was asked later ([`BucketOwner::introduced`]). What is unknown then is gone.
//!
//! The answer of a balancer is behind all that it sent before on that connection. Whoever sent the UE may go by a later map,
//! with balancers that this host does not know: the question is asked when this host has that map.

use super::owner::{BucketOwner, SlotKey};
use super::{ReplicaEntry, TakeoverSet};
use crate::balance::HostId;
use crate::balance::map::BucketMap;
use vireo_types::{Bucket, Ltmsi};

/// How a UE has come to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its last owner is dead.
    Dead,
    /// Its last owner has handed it over; see [`TakeoverSet::handed`].
    Handed(Option<HostId>),
}

/// A UE that is kept back.
#[derive(Debug)]
struct Kept {
    ltmsi: Ltmsi,
    shadow: ReplicaEntry,
    origin: Origin,
    /// The question that was asked since.
    question: Option<u64>,
}

/// What is asked and kept back.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Questions that not all balancers have answered, each with the epoch whose balancers were asked.
    asked: Vec<(u64, u64)>,
    /// The last epoch whose balancers have all answered.
    known: u64,
    kept: Vec<Kept>,
}

impl Nodes {
    /// The buckets of UEs that are kept back.
    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.kept.iter().map(|kept| kept.ltmsi.bucket())
    }
}

impl<S: SlotKey, P> BucketOwner<S, P> {
    /// Keeps a UE back whose RAN node is unknown. Inputs for its bucket wait.
    pub fn keep_back(&mut self, ltmsi: Ltmsi, shadow: ReplicaEntry, origin: Origin) {
        self.incoming_buckets.insert(ltmsi.bucket());
        self.nodes.kept.push(Kept { ltmsi, shadow, origin, question: None });
    }

    /// Returns the number of a question that all balancers of the map are to be asked, if one is: those that are not connected
    /// when they are. It is asked of what is in the map now, so the caller asks before it takes another.
    pub fn asks_for_nodes(&mut self) -> Option<u64> {
        let epoch = self.map.as_ref().map(BucketMap::epoch)?;
        let is_new = self.nodes.known < epoch && !self.nodes.asked.iter().any(|(_, of)| *of == epoch);
        let unasked = |kept: &Kept| kept.question.is_none() && kept.shadow.epoch <= epoch;
        if !is_new && !self.nodes.kept.iter().any(unasked) {
            return None;
        }
        let number = self.ask();
        self.nodes.asked.push((number, epoch));
        let kept = self.nodes.kept.iter_mut().filter(|kept| unasked(kept));
        kept.for_each(|kept| kept.question = Some(number));
        Some(number)
    }

    /// All balancers that were asked have answered. Returns the UEs to go on with, whether their nodes are known or not;
    /// `None` if this was no such question.
    pub fn introduced(&mut self, question: u64) -> Option<TakeoverSet> {
        let at = self.nodes.asked.iter().position(|(number, _)| *number == question)?;
        let (_, epoch) = self.nodes.asked.remove(at);
        self.nodes.known = self.nodes.known.max(epoch);
        let mut taken = TakeoverSet::default();
        for kept in self.nodes.kept.extract_if(.., |kept| kept.question == Some(question)) {
            let Kept { ltmsi, shadow, origin, .. } = kept;
            match origin {
                Origin::Dead => taken.ues.push((ltmsi, shadow)),
                Origin::Handed(from) => taken.handed.push((from, ltmsi, shadow)),
            }
        }
        let came = taken.ues.iter().map(|(ltmsi, _)| ltmsi).chain(taken.handed.iter().map(|(_, ltmsi, _)| ltmsi));
        for bucket in came.map(|ltmsi| ltmsi.bucket()) {
            if !self.nodes.buckets().any(|kept| kept == bucket) {
                self.incoming_buckets.remove(&bucket);
            }
        }
        Some(taken)
    }

    /// Returns true if all balancers of the map have sent all that they knew when this host took it.
    pub(super) fn knows_nodes(&self) -> bool {
        self.map.as_ref().is_some_and(|map| self.nodes.known >= map.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::super::reconcile::tests::{NOW, Said, World, copy, parts};
    use super::super::{Ack, InputDisposition, Mode, ReplicaStore, ReplicationConfig};
    use super::*;

    #[test]
    fn host_has_caught_up_when_it_knows_the_nodes() {
        let world = World::new();
        // It owns nothing by the first map that it has.
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
        // Its last owner goes by a map that this host has not.
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
