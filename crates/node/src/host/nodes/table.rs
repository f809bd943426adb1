//! Which RAN nodes there are, by which associations each is reached, and which UEs are connected by it: plain data.
//!
//! A node is known by the association on which it has set NG up, also when that one is gone and others carry it: this
//! number names the node's life, and is what contexts have. What the node is sent goes by an association that is up.

use super::contest::Contests;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_core::ran::RanNode;
use vireo_core::ran::admission::{self, Allow, Verdict};
use vireo_core::step::Effect;
use vireo_fabric::message::EffectAssociations;
use vireo_store::region::Slot;
use vireo_types::{AssocId, Duration, GnbId, Instant};

/// Messages that are remembered of each association: more than come in the moment in which it ends.
const SAID: usize = 64;
/// How long after that the node may say them once more.
const REPEATED: Duration = Duration::from_secs(5);
/// Associations that are remembered when they are gone with their balancer.
const FORMER: usize = 1 << 16;

/// An association that is up.
#[derive(Debug)]
struct AssociationEntry {
    peer: SocketAddr,
    /// The node that it is of; `None` before NG Setup or the RAN Configuration Update that binds it.
    node: Option<AssocId>,
    /// The node that it has said to be of, of which nothing is known here: of several hosts one may hear of a node's
    /// associations in another order than they came up.
    claimed: Option<GnbId>,
    /// What UEs have said by it lately, as hashes, if the node has others.
    said: VecDeque<u64>,
    /// AMF Configuration Updates that were sent by it and are not acknowledged.
    asked: u8,
}

/// A node that has NG set up.
#[derive(Debug)]
pub(in crate::host) struct Node {
    pub(in crate::host) record: RanNode,
    /// Its associations that are up, at least one, the oldest first.
    associations: Vec<AssocId>,
    /// The peer of the first.
    pub(in crate::host) peer: SocketAddr,
    pub(in crate::host) ues: FxHashSet<Slot>,
    /// UEs that were heard last by another association than the first: what is sent to them goes there (TS 23.501
    /// 5.21.1.3).
    by: FxHashMap<Slot, AssocId>,
    /// That it has set NG up others have said; of the association on which it has, nothing was heard here.
    told: bool,
    /// What UEs have said by an association that is gone since: if the node does not know that it came here, it says it once
    /// more by another. Until when that is looked for.
    repeats: FxHashSet<u64>,
    until: Option<Instant>,
}

impl Node {
    fn new(record: RanNode, associations: Vec<AssocId>, peer: SocketAddr) -> Self {
        let (ues, by) = (FxHashSet::default(), FxHashMap::default());
        Node { record, associations, peer, ues, by, told: false, repeats: FxHashSet::default(), until: None }
    }

    /// How many associations it has.
    pub(in crate::host) fn associations(&self) -> usize {
        self.associations.len()
    }

    /// Those on which it has not set NG up.
    pub(super) fn further(&self, number: AssocId) -> impl Iterator<Item = AssocId> {
        self.associations.iter().copied().filter(move |assoc| *assoc != number)
    }
}

/// A node that is no more.
#[derive(Debug)]
pub(super) struct RemovedNode {
    /// Its number.
    pub(super) node: AssocId,
    pub(super) name: String,
    /// Who was connected by it.
    pub(super) ues: Vec<Slot>,
    /// Associations of it that are still up.
    pub(super) left: Vec<AssocId>,
}

/// What the end of an association means.
#[derive(Debug)]
pub(super) enum AssociationLoss {
    /// It was of no node.
    Nothing,
    /// Its node goes on with so many others.
    Fewer(usize),
    /// It was the last of its node.
    Last(RemovedNode),
}

/// All associations and nodes.
#[derive(Debug, Default)]
pub(in crate::host) struct Nodes {
    links: FxHashMap<AssocId, AssociationEntry>,
    here: FxHashMap<AssocId, Node>,
    /// Of associations that are gone with their balancers: the nodes, which others carry.
    former: FxHashMap<AssocId, AssocId>,
    /// UEs who are still to be told that their node is gone.
    pub(super) gone: Vec<(AssocId, Vec<Slot>)>,
    /// Which nodes may come from where; empty = any.
    allow: Vec<Allow>,
    /// NG Setups that wait.
    pub(in crate::host) contests: Contests,
}

impl Nodes {
    /// No nodes, of which these may come.
    pub(in crate::host) fn set_allow(&mut self, allow: Vec<Allow>) {
        self.allow = allow;
    }

    /// No nodes, of which these may come.
    pub(in crate::host) fn new(allow: Vec<Allow>) -> Self {
        Nodes { allow, ..Nodes::default() }
    }

    /// What becomes of an NG Setup with this identity.
    pub(super) fn setup(&self, assoc: AssocId, id: GnbId) -> Verdict {
        let Some(link) = self.links.get(&assoc) else { return Verdict::Granted };
        // What the association itself is of ends by NG Setup in any case.
        let other = self.find(id).filter(|node| link.node != Some(*node));
        admission::setup(&self.allow, link.peer.ip(), id, self.addresses(other))
    }

    /// Whether an association may become one of a node.
    pub(super) fn binds(&self, assoc: AssocId, node: AssocId, id: GnbId) -> bool {
        let peer = self.links.get(&assoc).map(|link| link.peer.ip());
        peer.is_some_and(|peer| admission::binds(&self.allow, peer, id, self.addresses(Some(node))))
    }

    /// The associations of a node that are up.
    pub(super) fn associations_of(&self, node: AssocId) -> Vec<AssocId> {
        self.here.get(&node).map_or_else(Vec::new, |node| node.associations.clone())
    }

    /// The addresses of a node's associations.
    fn addresses(&self, node: Option<AssocId>) -> impl Iterator<Item = IpAddr> {
        let associations = node.and_then(|node| self.here.get(&node)).map_or(&[][..], |node| &node.associations);
        associations.iter().filter_map(|assoc| Some(self.links.get(assoc)?.peer.ip()))
    }

    /// An association came up.
    pub(in crate::host) fn up(&mut self, assoc: AssocId, peer: SocketAddr) {
        tracing::info!(assoc = assoc.0, %peer, "a RAN node is connected");
        self.links.insert(assoc, AssociationEntry { peer, node: None, claimed: None, said: VecDeque::new(), asked: 0 });
    }

    /// Whether UEs are still to be told that their node is gone.
    pub(in crate::host) fn is_disconnecting(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The node of an association.
    pub(in crate::host) fn of(&self, assoc: AssocId) -> Option<AssocId> {
        self.links.get(&assoc)?.node
    }

    /// The address of an association's peer, for the log; unspecified if the association is gone.
    pub(in crate::host) fn peer(&self, assoc: AssocId) -> SocketAddr {
        self.links.get(&assoc).map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |link| link.peer)
    }

    /// An AMF Configuration Update goes by an association.
    pub(super) fn asked(&mut self, assoc: AssocId) {
        if let Some(link) = self.links.get_mut(&assoc) {
            link.asked = link.asked.saturating_add(1);
        }
    }

    /// One is answered. Returns false if none was sent.
    pub(super) fn answered(&mut self, assoc: AssocId) -> bool {
        let asked = self.links.get_mut(&assoc).map(|link| &mut link.asked).filter(|asked| **asked > 0);
        asked.map(|asked| *asked -= 1).is_some()
    }

    /// Whether there is such an association.
    pub(super) fn is_up(&self, assoc: AssocId) -> bool {
        self.links.contains_key(&assoc)
    }

    /// The node that has this identity.
    pub(super) fn find(&self, id: GnbId) -> Option<AssocId> {
        self.here.iter().find(|(_, node)| node.record.id == id).map(|(number, _)| *number)
    }

    /// How many nodes have NG set up.
    pub(in crate::host) fn set_up(&self) -> usize {
        self.here.len()
    }

    /// The nodes by their numbers.
    pub(in crate::host) fn iter(&self) -> impl Iterator<Item = (AssocId, &Node)> {
        self.here.iter().map(|(number, node)| (*number, node))
    }

    pub(in crate::host) fn get(&self, node: AssocId) -> Option<&Node> {
        self.here.get(&node)
    }

    /// The association by which a node is sent something, about a UE if it is about one. `None`: there is no such node
    /// any more.
    pub(in crate::host) fn way(&self, node: AssocId, ue: Option<Slot>) -> Option<AssocId> {
        let node = self.here.get(&node)?;
        ue.and_then(|ue| node.by.get(&ue)).or(node.associations.first()).copied()
    }

    /// A UE was heard by an association of a node: what goes to it takes that one from now on.
    pub(in crate::host) fn heard(&mut self, node: AssocId, by: AssocId, ue: Slot) {
        let Some(node) = self.here.get_mut(&node) else { return };
        if node.associations.first() != Some(&by) {
            node.by.insert(ue, by);
        } else if !node.by.is_empty() {
            node.by.remove(&ue);
        }
    }

    /// Whether a node says about a UE, octet for octet, what it has said by an association that is gone since.
    pub(in crate::host) fn is_repeat(&mut self, node: AssocId, by: AssocId, pdu: &[u8], now: Instant) -> bool {
        let Some(node) = self.here.get_mut(&node) else { return false };
        if node.associations.len() < 2 && node.repeats.is_empty() {
            return false;
        }
        let mut hasher = FxHasher::default();
        hasher.write(pdu);
        let hash = hasher.finish();
        if !node.repeats.is_empty() {
            let until = *node.until.get_or_insert(now + REPEATED);
            if now > until {
                node.repeats = FxHashSet::default();
            } else if node.repeats.remove(&hash) {
                return true;
            }
        }
        if let Some(link) = self.links.get_mut(&by) {
            if link.said.len() == SAID {
                link.said.pop_front();
            }
            link.said.push_back(hash);
        }
        false
    }

    /// What goes to a UE takes this association of a node, if it still is one of it.
    pub(in crate::host) fn goes_by(&mut self, node: AssocId, by: AssocId, ue: Slot) {
        if self.of(by) == Some(node) {
            self.heard(node, by, ue);
        }
    }

    /// By which associations what is for RAN nodes goes, about a UE.
    pub(in crate::host) fn ways(&self, ue: Slot, effects: &[Effect]) -> EffectAssociations {
        let mut ways = EffectAssociations::default();
        for effect in effects {
            let Effect::Ngap { assoc: node, .. } = effect else { continue };
            let room = ways.iter_mut().find(|way| way.is_none_or(|(of, _)| of == *node));
            if let (Some(room), Some(by)) = (room, self.way(*node, Some(ue))) {
                *room = Some((*node, by));
            }
        }
        ways
    }

    /// What a node has said of itself has changed.
    pub(super) fn record(&mut self, node: AssocId, record: RanNode) {
        if let Some(node) = self.here.get_mut(&node) {
            node.record = record;
        }
    }

    /// An association has said that it is of a node that is not known: it is bound when that one is.
    pub(super) fn claim(&mut self, assoc: AssocId, id: GnbId) {
        if let Some(link) = self.links.get_mut(&assoc) {
            link.claimed = Some(id);
        }
    }

    /// A further association is one of this node's.
    pub(super) fn bind(&mut self, assoc: AssocId, number: AssocId) {
        let (Some(link), Some(node)) = (self.links.get_mut(&assoc), self.here.get_mut(&number)) else { return };
        link.node = Some(number);
        if !node.associations.contains(&assoc) {
            node.associations.push(assoc);
        }
    }

    /// Others know which node an association is of. Whether there was none of that number here.
    pub(super) fn told(&mut self, assoc: AssocId, number: AssocId, record: RanNode) -> bool {
        let Some(link) = self.links.get(&assoc).filter(|link| link.node.is_none()) else { return false };
        let new = !self.here.contains_key(&number);
        if new {
            if self.find(record.id).is_some() {
                // It has another life here: the association itself says what it is of.
                return false;
            }
            let node = Node { told: true, ..Node::new(record, Vec::new(), link.peer) };
            self.here.insert(number, node);
        }
        self.bind(assoc, number);
        new
    }

    /// A node has set NG up on an association: a life of it begins. Gives what ends by that: an earlier life of the node,
    /// and what the association was of before.
    pub(super) fn begin(&mut self, assoc: AssocId, record: RanNode) -> Vec<RemovedNode> {
        let Some(link) = self.links.get(&assoc) else { return Vec::new() };
        let (peer, before) = (link.peer, link.node);
        if let Some(node) = self.here.get_mut(&assoc).filter(|node| node.told) {
            // It is the life that others have told of.
            (node.record, node.told, node.peer) = (record, false, peer);
            node.associations.insert(0, assoc);
            if let Some(link) = self.links.get_mut(&assoc) {
                link.node = Some(assoc);
            }
            return Vec::new();
        }
        let same = |(number, node): &(&AssocId, &Node)| {
            **number == assoc || Some(**number) == before || node.record.id == record.id
        };
        let earlier: Vec<AssocId> = self.here.iter().filter(same).map(|(number, _)| *number).collect();
        let mut ended = Vec::new();
        for number in earlier {
            let Some(node) = self.here.remove(&number) else { continue };
            let left: Vec<AssocId> = node.associations.iter().copied().filter(|old| *old != assoc).collect();
            // They end: nothing more is heard by them.
            self.links.retain(|assoc, _| !left.contains(assoc));
            ended.push(RemovedNode { node: number, name: node.record.name, ues: node.ues.into_iter().collect(), left });
        }
        if let Some(link) = self.links.get_mut(&assoc) {
            link.node = Some(assoc);
        }
        let claims = |(of, link): (&AssocId, &AssociationEntry)| {
            (link.node.is_none() && link.claimed == Some(record.id)).then_some(*of)
        };
        let claimed: Vec<AssocId> = self.links.iter().filter_map(claims).collect();
        let id = record.id;
        self.here.insert(assoc, Node::new(record, vec![assoc], peer));
        for further in claimed {
            if self.binds(further, assoc, id) {
                self.bind(further, assoc);
            }
        }
        ended
    }

    /// The balancer of an association is gone: the node that others carry, if it was of one.
    pub(super) fn carried_by_another(&mut self, assoc: AssocId) -> Option<AssocId> {
        let node = self.of(assoc)?;
        if self.former.len() >= FORMER {
            self.former.clear();
        }
        self.former.insert(assoc, node);
        Some(node)
    }

    /// Another association of the node of one that ends or is gone with its balancer, for what goes to a UE.
    pub(super) fn instead_of(&self, gone: AssocId, ue: Option<Slot>) -> Option<AssocId> {
        let number = self.of(gone).or_else(|| self.former.get(&gone).copied())?;
        let by = self.way(number, ue).filter(|by| *by != gone);
        by.or_else(|| self.here.get(&number)?.associations.iter().copied().find(|assoc| *assoc != gone))
    }

    /// An association is gone, or void if its peer has restarted it.
    pub(super) fn lost(&mut self, assoc: AssocId, restarted: bool) -> AssociationLoss {
        let lost = match restarted {
            true => self.links.get_mut(&assoc).and_then(|link| {
                link.claimed = None;
                Some((link.node.take()?, std::mem::take(&mut link.said)))
            }),
            false => self.links.remove(&assoc).and_then(|link| Some((link.node?, link.said))),
        };
        let Some((number, said)) = lost else { return AssociationLoss::Nothing };
        let Some(node) = self.here.get_mut(&number) else { return AssociationLoss::Nothing };
        (node.repeats, node.until) = (said.into_iter().collect(), None);
        node.associations.retain(|of| *of != assoc);
        node.by.retain(|_, by| *by != assoc);
        if let Some(peer) = node.associations.first().and_then(|first| self.links.get(first)).map(|link| link.peer) {
            node.peer = peer;
            return AssociationLoss::Fewer(node.associations.len());
        }
        let Some(node) = self.here.remove(&number) else { return AssociationLoss::Nothing };
        let ues = node.ues.into_iter().collect();
        AssociationLoss::Last(RemovedNode { node: number, name: node.record.name, ues, left: Vec::new() })
    }

    /// A UE has other connections than before: it has two of them while it is handed over.
    pub(in crate::host) fn moved(&mut self, slot: Slot, old: [Option<AssocId>; 2], new: [Option<AssocId>; 2]) {
        if old == new {
            return;
        }
        for number in old.into_iter().flatten() {
            if let Some(node) = self.here.get_mut(&number) {
                node.ues.remove(&slot);
                if !new.contains(&Some(number)) {
                    node.by.remove(&slot);
                }
            }
        }
        for number in new.into_iter().flatten() {
            if let Some(node) = self.here.get_mut(&number) {
                node.ues.insert(slot);
            }
        }
    }

    /// The UEs that are connected by a node.
    pub(super) fn ues(&self, node: AssocId) -> Vec<Slot> {
        self.here.get(&node).map(|n| n.ues.iter().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::region::{Region, RegionConfig};
    use vireo_types::Ltmsi;

    fn record(id: u32) -> RanNode {
        let id = GnbId { plmn: "99970".parse().expect("a PLMN"), id, bits: 24 };
        RanNode { id, name: format!("gnb-{}", id.id), areas: Vec::new() }
    }

    fn slots() -> [Slot; 2] {
        let region = Region::create(RegionConfig::new(4, 2, 32 << 20)).expect("a region");
        let mut host = region.join(0).expect("a place");
        [1, 2].map(|ltmsi| host.insert(Ltmsi::from_raw(ltmsi)).expect("room"))
    }

    /// gNB 7 with NG set up on association 1, two UEs connected.
    fn nodes(ues: &[Slot]) -> Nodes {
        let mut nodes = Nodes::default();
        for assoc in 1..=4 {
            nodes.up(AssocId(assoc), SocketAddr::from(([10, 0, 0, assoc as u8], 38412)));
        }
        assert!(nodes.begin(AssocId(1), record(7)).is_empty());
        for ue in ues {
            nodes.moved(*ue, [None; 2], [Some(AssocId(1)), None]);
        }
        nodes
    }

    #[test]
    fn what_a_node_says_again_by_another_association_is_known_for_a_while() {
        let mut nodes = nodes(&[]);
        let (node, now) = (AssocId(1), Instant(9_000_000));
        assert!(!nodes.is_repeat(node, AssocId(1), b"before", now), "the node has one association");
        nodes.bind(AssocId(2), node);
        nodes.bind(AssocId(3), node);
        for pdu in [b"first", b"other"] {
            assert!(!nodes.is_repeat(node, AssocId(1), pdu, now));
            assert!(!nodes.is_repeat(node, AssocId(1), pdu, now), "the association is up");
        }
        assert!(!nodes.is_repeat(node, AssocId(2), b"second", now));
        assert!(matches!(nodes.lost(AssocId(1), false), AssociationLoss::Fewer(2)));
        assert!(nodes.is_repeat(node, AssocId(2), b"first", now));
        assert!(!nodes.is_repeat(node, AssocId(2), b"first", now), "once");
        assert!(!nodes.is_repeat(node, AssocId(2), b"second", now), "that was heard by one that is up");
        let late = now + Duration::from_secs(6);
        assert!(!nodes.is_repeat(node, AssocId(2), b"other", late), "that is too long ago");
        assert!(matches!(nodes.lost(AssocId(2), true), AssociationLoss::Fewer(1)));
        assert!(nodes.is_repeat(node, AssocId(3), b"second", late));
    }

    #[test]
    fn a_node_lives_as_long_as_one_of_its_associations() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        assert_eq!(nodes.of(AssocId(2)), None);
        let number = nodes.find(record(7).id).expect("it has set NG up");
        nodes.bind(AssocId(2), number);
        nodes.heard(number, AssocId(2), ues[0]);
        let ways = |nodes: &Nodes| ues.map(|ue| nodes.way(number, Some(ue)));
        assert_eq!(ways(&nodes), [Some(AssocId(2)), Some(AssocId(1))], "by the one that it was heard by");
        let instead = |nodes: &Nodes, gone| ues.map(|ue| nodes.instead_of(AssocId(gone), Some(ue)));
        assert_eq!(instead(&nodes, 1), [Some(AssocId(2)); 2], "the one that ends is up still");
        assert_eq!(nodes.carried_by_another(AssocId(1)), Some(number));
        assert!(matches!(nodes.lost(AssocId(1), false), AssociationLoss::Fewer(1)));
        assert_eq!(instead(&nodes, 1), [Some(AssocId(2)); 2]);
        assert_eq!(instead(&nodes, 2), [None; 2], "there is no other");
        assert_eq!(instead(&nodes, 4), [None; 2], "nobody knows whose it was");
        assert_eq!((nodes.of(AssocId(2)), nodes.set_up()), (Some(AssocId(1)), 1), "it keeps its number");
        assert_eq!(ways(&nodes), [Some(AssocId(2)); 2]);
        assert_eq!(nodes.ues(number).len(), 2);
        assert_eq!(nodes.get(number).map(|node| node.peer.to_string()), Some("10.0.0.2:38412".into()));
        let AssociationLoss::Last(gone) = nodes.lost(AssocId(2), false) else { panic!("that was the last") };
        assert_eq!((gone.node, gone.ues.len(), gone.left.len()), (AssocId(1), 2, 0));
        assert_eq!((nodes.way(number, None), nodes.set_up()), (None, 0));
        assert!(matches!(nodes.lost(AssocId(2), false), AssociationLoss::Nothing));
    }

    #[test]
    fn a_ue_goes_back_to_the_first_association_when_it_is_heard_there_or_the_other_ends() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        nodes.bind(AssocId(2), AssocId(1));
        nodes.heard(AssocId(1), AssocId(2), ues[0]);
        nodes.heard(AssocId(1), AssocId(1), ues[0]);
        assert_eq!(nodes.way(AssocId(1), Some(ues[0])), Some(AssocId(1)));
        nodes.heard(AssocId(1), AssocId(2), ues[1]);
        assert!(matches!(nodes.lost(AssocId(2), true), AssociationLoss::Fewer(1)));
        assert_eq!((nodes.way(AssocId(1), Some(ues[1])), nodes.of(AssocId(2))), (Some(AssocId(1)), None));
        // It is up again, and may be bound again.
        nodes.bind(AssocId(2), AssocId(1));
        assert_eq!(nodes.of(AssocId(2)), Some(AssocId(1)));
    }

    #[test]
    fn effects_go_by_the_association_of_each_node_that_the_ue_was_heard_by() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        nodes.bind(AssocId(2), AssocId(1));
        nodes.begin(AssocId(3), record(8));
        nodes.heard(AssocId(1), AssocId(2), ues[0]);
        let to = |node| Effect::Ngap { assoc: AssocId(node), pdu: Vec::new() };
        let effects = [to(1), Effect::Forget, to(3), to(1), to(9)];
        let ways = [Some((AssocId(1), AssocId(2))), Some((AssocId(3), AssocId(3)))];
        assert_eq!(nodes.ways(ues[0], &effects), ways);
        assert_eq!(nodes.ways(ues[1], &effects[..2]), [Some((AssocId(1), AssocId(1))), None]);
        // Who goes on with the UE elsewhere keeps to it, if it is up there.
        nodes.goes_by(AssocId(1), AssocId(2), ues[1]);
        nodes.goes_by(AssocId(1), AssocId(4), ues[0]);
        assert_eq!(ues.map(|ue| nodes.way(AssocId(1), Some(ue))), [Some(AssocId(2)); 2]);
    }

    #[test]
    fn a_claimed_association_from_elsewhere_is_not_bound() {
        let mut nodes = nodes(&[]);
        nodes.up(AssocId(5), SocketAddr::from(([10, 0, 0, 3], 9)));
        nodes.claim(AssocId(2), record(8).id);
        nodes.claim(AssocId(5), record(8).id);
        nodes.begin(AssocId(3), record(8));
        assert_eq!([2, 3, 5].map(|assoc| nodes.of(AssocId(assoc))), [None, Some(AssocId(3)), Some(AssocId(3))]);
    }

    #[test]
    fn an_identity_that_is_up_elsewhere_is_contested() {
        let mut nodes = nodes(&[]);
        let verdicts = |nodes: &Nodes| [1, 2].map(|assoc| nodes.setup(AssocId(assoc), record(7).id));
        assert_eq!(verdicts(&nodes), [Verdict::Granted, Verdict::Contested], "NG Setup again begins a life of its own");
        nodes.bind(AssocId(2), AssocId(1));
        assert_eq!(verdicts(&nodes), [Verdict::Granted; 2]);
        assert_eq!(nodes.setup(AssocId(3), record(8).id), Verdict::Granted);
        assert!(!nodes.binds(AssocId(3), AssocId(1), record(7).id));
    }

    #[test]
    fn an_association_may_be_heard_of_before_its_node() {
        let mut nodes = nodes(&[]);
        nodes.allow = vec![Allow { network: "10.0.0.0/24".parse().expect("a network"), plmn: None, ids: None }];
        nodes.claim(AssocId(2), record(8).id);
        nodes.claim(AssocId(4), record(9).id);
        assert_eq!(nodes.of(AssocId(2)), None);
        nodes.begin(AssocId(3), record(8));
        assert_eq!([2, 3, 4].map(|assoc| nodes.of(AssocId(assoc))), [Some(AssocId(3)), Some(AssocId(3)), None]);
        assert_eq!(nodes.get(AssocId(3)).map(Node::associations), Some(2));
        // A void association has said nothing.
        assert!(matches!(nodes.lost(AssocId(4), true), AssociationLoss::Nothing));
        nodes.begin(AssocId(1), record(9));
        assert_eq!(nodes.of(AssocId(4)), None);
    }

    #[test]
    fn a_node_may_be_known_by_others_alone() {
        let ues = slots();
        let mut nodes = nodes(&[]);
        // Its first association is gone, or is not known yet.
        assert!(nodes.told(AssocId(2), AssocId(9), record(8)));
        assert!(!nodes.told(AssocId(3), AssocId(9), record(8)));
        assert!(!nodes.told(AssocId(5), AssocId(9), record(8)), "it is not up");
        assert_eq!([2, 3].map(|assoc| nodes.of(AssocId(assoc))), [Some(AssocId(9)); 2]);
        nodes.moved(ues[0], [None; 2], [Some(AssocId(9)), None]);
        assert_eq!(nodes.way(AssocId(9), Some(ues[0])), Some(AssocId(2)));
        nodes.up(AssocId(9), SocketAddr::from(([10, 0, 0, 9], 38412)));
        assert!(nodes.begin(AssocId(9), record(8)).is_empty(), "the same life: nothing ends");
        assert_eq!((nodes.ues(AssocId(9)).len(), nodes.of(AssocId(9))), (1, Some(AssocId(9))));
        assert_eq!(nodes.begin(AssocId(9), record(8)).len(), 1, "now it has set NG up again");
        // Another life than the one that is here.
        assert!(!nodes.told(AssocId(4), AssocId(6), record(7)));
        assert_eq!((nodes.of(AssocId(4)), nodes.find(record(7).id)), (None, Some(AssocId(1))));
    }

    #[test]
    fn ng_setup_ends_every_earlier_life_of_the_node() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        nodes.bind(AssocId(2), AssocId(1));
        let ended = nodes.begin(AssocId(3), record(7));
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].node, ended[0].ues.len()), (AssocId(1), 2));
        assert_eq!(ended[0].left, [AssocId(1), AssocId(2)]);
        assert_eq!([1, 2, 3].map(|assoc| nodes.of(AssocId(assoc))), [None, None, Some(AssocId(3))]);
        // On a further association: of the old life this one alone is left.
        nodes.bind(AssocId(4), AssocId(3));
        let ended = nodes.begin(AssocId(4), record(7));
        assert_eq!((ended[0].node, ended[0].left.as_slice()), (AssocId(3), &[AssocId(3)][..]));
        // Again on the same one: the number stays, the UEs do not.
        nodes.moved(ues[0], [None; 2], [Some(AssocId(4)), None]);
        let ended = nodes.begin(AssocId(4), record(8));
        assert_eq!((ended[0].node, ended[0].ues.len(), ended[0].left.len()), (AssocId(4), 1, 0));
        assert!(nodes.ues(AssocId(4)).is_empty());
        assert_eq!((nodes.find(record(7).id), nodes.find(record(8).id)), (None, Some(AssocId(4))));
    }
}
