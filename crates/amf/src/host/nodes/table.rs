//! Table of RAN nodes, their associations and their connected UEs.
//!
//! The number of a RAN node is the association on which it was set up. The number stays when that
//! association is lost and others carry the node. It names one lifetime of the node; UE contexts
//! store it. Messages to the node use an association that is up.
//!
//! The table is plain data: it sends nothing.

use super::deferred_setups::Contests;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_core::amf::ran::RanNode;
use vireo_core::amf::ran::admission::{self, Allow, Verdict};
use vireo_core::placement::replica::EffectAssociations;
use vireo_core::step::Effect;
use vireo_store::region::Slot;
use vireo_types::{AssocId, Duration, GnbId, Instant};

/// Messages remembered per association: more than arrive in the moment in which it ends.
const MAX_RECENT: usize = 64;
/// Time after the loss of an association in which the RAN node may repeat these messages.
const REPEAT_WINDOW: Duration = Duration::from_secs(5);
/// Maximum number of associations remembered after the loss of their balancer.
const MAX_FORMER: usize = 1 << 16;

/// An association that is up.
#[derive(Debug)]
struct AssociationEntry {
    peer: SocketAddr,
    /// `None` before the NG Setup or the RAN Configuration Update that binds the association.
    node: Option<AssocId>,
    /// Identity that the association named while no such RAN node was known. Hosts of a cluster may
    /// receive a node's associations in another order than they came up.
    claimed: Option<GnbId>,
    /// Hashes of the UE messages received last, if the RAN node has other associations.
    recent: VecDeque<u64>,
    /// Number of unacknowledged AMF Configuration Updates sent by this association.
    pending_updates: u8,
}

/// A RAN node with a completed NG Setup.
#[derive(Debug)]
pub(in crate::host) struct Node {
    pub(in crate::host) record: RanNode,
    /// Associations that are up, at least one, the oldest first.
    associations: Vec<AssocId>,
    /// Peer address of the first association.
    pub(in crate::host) peer: SocketAddr,
    pub(in crate::host) ues: FxHashSet<Slot>,
    /// UEs whose last message came by another association than the first. Messages to them use that
    /// association (TS 23.501 5.21.1.3).
    by: FxHashMap<Slot, AssocId>,
    /// True if this host knows the NG Setup only from reports and not from the association itself.
    reported: bool,
    /// Hashes of UE messages from a lost association, and the end of the time for recognising
    /// repeats. A RAN node that does not know whether a message arrived repeats it by another
    /// association.
    repeats: FxHashSet<u64>,
    repeats_end: Option<Instant>,
}

impl Node {
    fn new(record: RanNode, associations: Vec<AssocId>, peer: SocketAddr) -> Self {
        let (ues, by) = (FxHashSet::default(), FxHashMap::default());
        Node { record, associations, peer, ues, by, reported: false, repeats: FxHashSet::default(), repeats_end: None }
    }

    /// Returns the number of associations.
    pub(in crate::host) fn associations(&self) -> usize {
        self.associations.len()
    }

    /// Returns the associations other than that of the NG Setup, which is `number`.
    pub(super) fn further(&self, number: AssocId) -> impl Iterator<Item = AssocId> {
        self.associations.iter().copied().filter(move |assoc| *assoc != number)
    }
}

/// A RAN node that was removed from the table.
#[derive(Debug)]
pub(super) struct RemovedNode {
    pub(super) node: AssocId,
    pub(super) name: String,
    /// UEs that were connected by the node.
    pub(super) ues: Vec<Slot>,
    /// Associations of the node that are still up.
    pub(super) remaining: Vec<AssocId>,
}

/// Consequence of the loss of an association.
#[derive(Debug)]
pub(super) enum AssociationLoss {
    /// The association was not bound to a RAN node.
    Nothing,
    /// The RAN node has this number of associations left.
    Fewer(usize),
    /// The association was the last one of its RAN node.
    Last(RemovedNode),
}

/// All associations and RAN nodes.
#[derive(Debug, Default)]
pub(in crate::host) struct Nodes {
    links: FxHashMap<AssocId, AssociationEntry>,
    nodes: FxHashMap<AssocId, Node>,
    /// RAN nodes of associations that were lost with their balancers. Other associations carry the
    /// nodes.
    former: FxHashMap<AssocId, AssocId>,
    /// UEs whose RAN node is gone and that are not notified yet.
    pub(super) disconnected: Vec<(AssocId, Vec<Slot>)>,
    /// Allowed source addresses of RAN nodes; empty = any.
    allow: Vec<Allow>,
    pub(in crate::host) contests: Contests,
}

impl Nodes {
    /// Replaces the allow list.
    pub(in crate::host) fn set_allow(&mut self, allow: Vec<Allow>) {
        self.allow = allow;
    }

    /// Creates an empty table with this allow list.
    pub(in crate::host) fn new(allow: Vec<Allow>) -> Self {
        Nodes { allow, ..Nodes::default() }
    }

    /// Returns the verdict on an NG Setup with this identity.
    pub(super) fn setup(&self, assoc: AssocId, id: GnbId) -> Verdict {
        let Some(link) = self.links.get(&assoc) else { return Verdict::Granted };
        // NG Setup ends the previous binding of the association in any case.
        let other = self.find(id).filter(|node| link.node != Some(*node));
        admission::setup(&self.allow, link.peer.ip(), id, self.addresses(other))
    }

    /// Returns true if the association may be bound to the RAN node.
    pub(super) fn binds(&self, assoc: AssocId, node: AssocId, id: GnbId) -> bool {
        let peer = self.links.get(&assoc).map(|link| link.peer.ip());
        peer.is_some_and(|peer| admission::binds(&self.allow, peer, id, self.addresses(Some(node))))
    }

    /// Returns the associations of a RAN node that are up.
    pub(super) fn associations_of(&self, node: AssocId) -> Vec<AssocId> {
        self.nodes.get(&node).map_or_else(Vec::new, |node| node.associations.clone())
    }

    /// Returns the peer addresses of a RAN node's associations.
    fn addresses(&self, node: Option<AssocId>) -> impl Iterator<Item = IpAddr> {
        let associations = node.and_then(|node| self.nodes.get(&node)).map_or(&[][..], |node| &node.associations);
        associations.iter().filter_map(|assoc| Some(self.links.get(assoc)?.peer.ip()))
    }

    /// Adds an association.
    pub(in crate::host) fn up(&mut self, assoc: AssocId, peer: SocketAddr) {
        tracing::info!(assoc = assoc.0, %peer, "a RAN node is connected");
        self.links.insert(
            assoc,
            AssociationEntry { peer, node: None, claimed: None, recent: VecDeque::new(), pending_updates: 0 },
        );
    }

    /// Returns true if UEs wait for the notification that their RAN node is gone.
    pub(in crate::host) fn is_disconnecting(&self) -> bool {
        !self.disconnected.is_empty()
    }

    /// Returns the RAN node of an association.
    pub(in crate::host) fn node_of(&self, assoc: AssocId) -> Option<AssocId> {
        self.links.get(&assoc)?.node
    }

    /// Returns the peer address of an association for the log; unspecified if the association is
    /// gone.
    pub(in crate::host) fn peer(&self, assoc: AssocId) -> SocketAddr {
        self.links.get(&assoc).map_or((Ipv4Addr::UNSPECIFIED, 0).into(), |link| link.peer)
    }

    /// Counts an AMF Configuration Update that is sent by an association.
    pub(super) fn count_update(&mut self, assoc: AssocId) {
        if let Some(link) = self.links.get_mut(&assoc) {
            link.pending_updates = link.pending_updates.saturating_add(1);
        }
    }

    /// Counts an acknowledgement. Returns false if no update was outstanding.
    pub(super) fn acknowledge_update(&mut self, assoc: AssocId) -> bool {
        let pending_updates = self
            .links
            .get_mut(&assoc)
            .map(|link| &mut link.pending_updates)
            .filter(|pending_updates| **pending_updates > 0);
        pending_updates.map(|pending_updates| *pending_updates -= 1).is_some()
    }

    /// Returns true if the association is up.
    pub(super) fn is_up(&self, assoc: AssocId) -> bool {
        self.links.contains_key(&assoc)
    }

    /// Returns the RAN node with this identity.
    pub(super) fn find(&self, id: GnbId) -> Option<AssocId> {
        self.nodes.iter().find(|(_, node)| node.record.id == id).map(|(number, _)| *number)
    }

    /// Returns the number of RAN nodes.
    pub(in crate::host) fn set_up(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the RAN nodes with their numbers.
    pub(in crate::host) fn iter(&self) -> impl Iterator<Item = (AssocId, &Node)> {
        self.nodes.iter().map(|(number, node)| (*number, node))
    }

    pub(in crate::host) fn get(&self, node: AssocId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    /// Returns the association for a message to a RAN node, about `ue` if it is set. Returns `None`
    /// if the node is gone.
    pub(in crate::host) fn association_to(&self, node: AssocId, ue: Option<Slot>) -> Option<AssocId> {
        let node = self.nodes.get(&node)?;
        ue.and_then(|ue| node.by.get(&ue)).or(node.associations.first()).copied()
    }

    /// Records the association of a UE's last message. Later messages to the UE use it.
    pub(in crate::host) fn set_last_association(&mut self, node: AssocId, by: AssocId, ue: Slot) {
        let Some(node) = self.nodes.get_mut(&node) else { return };
        if node.associations.first() != Some(&by) {
            node.by.insert(ue, by);
        } else if !node.by.is_empty() {
            node.by.remove(&ue);
        }
    }

    /// Forgets the association of a UE's last message.
    pub(in crate::host) fn forget_last_association(&mut self, node: AssocId, ue: Slot) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.by.remove(&ue);
        }
    }

    /// Returns true if a message equals, octet for octet, one received by a lost association of the
    /// node.
    pub(in crate::host) fn is_repeat(&mut self, node: AssocId, by: AssocId, pdu: &[u8], now: Instant) -> bool {
        let Some(node) = self.nodes.get_mut(&node) else { return false };
        if node.associations.len() < 2 && node.repeats.is_empty() {
            return false;
        }
        let mut hasher = FxHasher::default();
        hasher.write(pdu);
        let hash = hasher.finish();
        if !node.repeats.is_empty() {
            let repeats_end = *node.repeats_end.get_or_insert(now + REPEAT_WINDOW);
            if now > repeats_end {
                node.repeats = FxHashSet::default();
            } else if node.repeats.remove(&hash) {
                return true;
            }
        }
        if let Some(link) = self.links.get_mut(&by) {
            if link.recent.len() == MAX_RECENT {
                link.recent.pop_front();
            }
            link.recent.push_back(hash);
        }
        false
    }

    /// Selects the association for messages to a UE, if it still belongs to the RAN node.
    pub(in crate::host) fn restore_association(&mut self, node: AssocId, by: AssocId, ue: Slot) {
        if self.node_of(by) == Some(node) {
            self.set_last_association(node, by, ue);
        }
    }

    /// Returns the associations that the effects of a UE use, one per RAN node.
    pub(in crate::host) fn effect_associations(&self, ue: Slot, effects: &[Effect]) -> EffectAssociations {
        let mut ways = EffectAssociations::default();
        for effect in effects {
            let Effect::Ngap { assoc: node, .. } = effect else { continue };
            let room = ways.iter_mut().find(|way| way.is_none_or(|(of, _)| of == *node));
            if let (Some(room), Some(by)) = (room, self.association_to(*node, Some(ue))) {
                *room = Some((*node, by));
            }
        }
        ways
    }

    /// Replaces the stored configuration of a RAN node.
    pub(super) fn record(&mut self, node: AssocId, record: RanNode) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.record = record;
        }
    }

    /// Records the identity that an association named. It is bound when a RAN node with that
    /// identity is set up.
    pub(super) fn claim(&mut self, assoc: AssocId, id: GnbId) {
        if let Some(link) = self.links.get_mut(&assoc) {
            link.claimed = Some(id);
        }
    }

    /// Binds a further association to a RAN node.
    pub(super) fn bind(&mut self, assoc: AssocId, number: AssocId) {
        let (Some(link), Some(node)) = (self.links.get_mut(&assoc), self.nodes.get_mut(&number)) else { return };
        link.node = Some(number);
        if !node.associations.contains(&assoc) {
            node.associations.push(assoc);
        }
    }

    /// Binds an association as reported by a balancer. Returns true if the report created the RAN
    /// node.
    pub(super) fn bind_reported(&mut self, assoc: AssocId, number: AssocId, record: RanNode) -> bool {
        let Some(link) = self.links.get(&assoc).filter(|link| link.node.is_none()) else { return false };
        let new = !self.nodes.contains_key(&number);
        if new {
            if self.find(record.id).is_some() {
                // The node has another lifetime here. The association itself must name its node.
                return false;
            }
            let node = Node { reported: true, ..Node::new(record, Vec::new(), link.peer) };
            self.nodes.insert(number, node);
        }
        self.bind(assoc, number);
        new
    }

    /// Starts a lifetime of a RAN node after NG Setup on an association. Returns the removed nodes:
    /// an earlier lifetime of the node, and the previous node of the association.
    pub(super) fn begin(&mut self, assoc: AssocId, record: RanNode) -> Vec<RemovedNode> {
        let Some(link) = self.links.get(&assoc) else { return Vec::new() };
        let (peer, before) = (link.peer, link.node);
        if let Some(node) = self.nodes.get_mut(&assoc).filter(|node| node.reported) {
            // This is the lifetime that balancers have reported.
            (node.record, node.reported, node.peer) = (record, false, peer);
            node.associations.insert(0, assoc);
            if let Some(link) = self.links.get_mut(&assoc) {
                link.node = Some(assoc);
            }
            return Vec::new();
        }
        let same = |(number, node): &(&AssocId, &Node)| {
            **number == assoc || Some(**number) == before || node.record.id == record.id
        };
        let earlier: Vec<AssocId> = self.nodes.iter().filter(same).map(|(number, _)| *number).collect();
        let mut ended = Vec::new();
        for number in earlier {
            let Some(node) = self.nodes.remove(&number) else { continue };
            let remaining: Vec<AssocId> = node.associations.iter().copied().filter(|old| *old != assoc).collect();
            // These associations end: nothing more is received by them.
            self.links.retain(|assoc, _| !remaining.contains(assoc));
            ended.push(RemovedNode {
                node: number,
                name: node.record.name,
                ues: node.ues.into_iter().collect(),
                remaining,
            });
        }
        if let Some(link) = self.links.get_mut(&assoc) {
            link.node = Some(assoc);
        }
        let claims = |(of, link): (&AssocId, &AssociationEntry)| {
            (link.node.is_none() && link.claimed == Some(record.id)).then_some(*of)
        };
        let claimed: Vec<AssocId> = self.links.iter().filter_map(claims).collect();
        let id = record.id;
        self.nodes.insert(assoc, Node::new(record, vec![assoc], peer));
        for further in claimed {
            if self.binds(further, assoc, id) {
                self.bind(further, assoc);
            }
        }
        ended
    }

    /// Remembers the RAN node of an association that is lost with its balancer, and returns the
    /// node.
    pub(super) fn remember_node(&mut self, assoc: AssocId) -> Option<AssocId> {
        let node = self.node_of(assoc)?;
        if self.former.len() >= MAX_FORMER {
            self.former.clear();
        }
        self.former.insert(assoc, node);
        Some(node)
    }

    /// Returns another association of the same RAN node for a message to a UE, after the loss of
    /// `lost`.
    pub(super) fn alternative_to(&self, lost: AssocId, ue: Option<Slot>) -> Option<AssocId> {
        let number = self.node_of(lost).or_else(|| self.former.get(&lost).copied())?;
        let by = self.association_to(number, ue).filter(|by| *by != lost);
        by.or_else(|| self.nodes.get(&number)?.associations.iter().copied().find(|assoc| *assoc != lost))
    }

    /// Removes an association, or voids its binding if the peer restarted it.
    pub(super) fn remove_association(&mut self, assoc: AssocId, restarted: bool) -> AssociationLoss {
        let lost = match restarted {
            true => self.links.get_mut(&assoc).and_then(|link| {
                link.claimed = None;
                Some((link.node.take()?, std::mem::take(&mut link.recent)))
            }),
            false => self.links.remove(&assoc).and_then(|link| Some((link.node?, link.recent))),
        };
        let Some((number, recent)) = lost else { return AssociationLoss::Nothing };
        let Some(node) = self.nodes.get_mut(&number) else { return AssociationLoss::Nothing };
        (node.repeats, node.repeats_end) = (recent.into_iter().collect(), None);
        node.associations.retain(|of| *of != assoc);
        node.by.retain(|_, by| *by != assoc);
        if let Some(peer) = node.associations.first().and_then(|first| self.links.get(first)).map(|link| link.peer) {
            node.peer = peer;
            return AssociationLoss::Fewer(node.associations.len());
        }
        let Some(node) = self.nodes.remove(&number) else { return AssociationLoss::Nothing };
        let ues = node.ues.into_iter().collect();
        AssociationLoss::Last(RemovedNode { node: number, name: node.record.name, ues, remaining: Vec::new() })
    }

    /// Updates the UEs of RAN nodes. A UE has two connections during a handover.
    pub(in crate::host) fn moved(&mut self, slot: Slot, old: [Option<AssocId>; 2], new: [Option<AssocId>; 2]) {
        if old == new {
            return;
        }
        for number in old.into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.ues.remove(&slot);
                if !new.contains(&Some(number)) {
                    node.by.remove(&slot);
                }
            }
        }
        for number in new.into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.ues.insert(slot);
            }
        }
    }

    /// Returns the UEs that are connected by a RAN node.
    pub(super) fn ues(&self, node: AssocId) -> Vec<Slot> {
        self.nodes.get(&node).map(|n| n.ues.iter().copied().collect()).unwrap_or_default()
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

    /// gNB 7, set up on association 1, with connected UEs.
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
    fn repeat_by_another_association_is_recognised() {
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
        assert!(matches!(nodes.remove_association(AssocId(1), false), AssociationLoss::Fewer(2)));
        assert!(nodes.is_repeat(node, AssocId(2), b"first", now));
        assert!(!nodes.is_repeat(node, AssocId(2), b"first", now), "once");
        assert!(!nodes.is_repeat(node, AssocId(2), b"second", now), "that was heard by one that is up");
        let late = now + Duration::from_secs(6);
        assert!(!nodes.is_repeat(node, AssocId(2), b"other", late), "that is too long ago");
        assert!(matches!(nodes.remove_association(AssocId(2), true), AssociationLoss::Fewer(1)));
        assert!(nodes.is_repeat(node, AssocId(3), b"second", late));
    }

    #[test]
    fn node_stays_until_last_association_is_lost() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        assert_eq!(nodes.node_of(AssocId(2)), None);
        let number = nodes.find(record(7).id).expect("it has set NG up");
        nodes.bind(AssocId(2), number);
        nodes.set_last_association(number, AssocId(2), ues[0]);
        let associations = |nodes: &Nodes| ues.map(|ue| nodes.association_to(number, Some(ue)));
        assert_eq!(associations(&nodes), [Some(AssocId(2)), Some(AssocId(1))], "by the one that it was heard by");
        let alternatives = |nodes: &Nodes, gone| ues.map(|ue| nodes.alternative_to(AssocId(gone), Some(ue)));
        assert_eq!(alternatives(&nodes, 1), [Some(AssocId(2)); 2], "the one that ends is up still");
        assert_eq!(nodes.remember_node(AssocId(1)), Some(number));
        assert!(matches!(nodes.remove_association(AssocId(1), false), AssociationLoss::Fewer(1)));
        assert_eq!(alternatives(&nodes, 1), [Some(AssocId(2)); 2]);
        assert_eq!(alternatives(&nodes, 2), [None; 2], "there is no other");
        assert_eq!(alternatives(&nodes, 4), [None; 2], "nobody knows whose it was");
        assert_eq!((nodes.node_of(AssocId(2)), nodes.set_up()), (Some(AssocId(1)), 1), "it keeps its number");
        assert_eq!(associations(&nodes), [Some(AssocId(2)); 2]);
        assert_eq!(nodes.ues(number).len(), 2);
        assert_eq!(nodes.get(number).map(|node| node.peer.to_string()), Some("10.0.0.2:38412".into()));
        let AssociationLoss::Last(gone) = nodes.remove_association(AssocId(2), false) else {
            panic!("that was the last")
        };
        assert_eq!((gone.node, gone.ues.len(), gone.remaining.len()), (AssocId(1), 2, 0));
        assert_eq!((nodes.association_to(number, None), nodes.set_up()), (None, 0));
        assert!(matches!(nodes.remove_association(AssocId(2), false), AssociationLoss::Nothing));
    }

    #[test]
    fn ue_returns_to_first_association() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        nodes.bind(AssocId(2), AssocId(1));
        nodes.set_last_association(AssocId(1), AssocId(2), ues[0]);
        nodes.set_last_association(AssocId(1), AssocId(1), ues[0]);
        assert_eq!(nodes.association_to(AssocId(1), Some(ues[0])), Some(AssocId(1)));
        nodes.set_last_association(AssocId(1), AssocId(2), ues[1]);
        assert!(matches!(nodes.remove_association(AssocId(2), true), AssociationLoss::Fewer(1)));
        assert_eq!(
            (nodes.association_to(AssocId(1), Some(ues[1])), nodes.node_of(AssocId(2))),
            (Some(AssocId(1)), None)
        );
        // The association is up again and may be bound again.
        nodes.bind(AssocId(2), AssocId(1));
        assert_eq!(nodes.node_of(AssocId(2)), Some(AssocId(1)));
    }

    #[test]
    fn effects_use_last_association_of_each_node() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        nodes.bind(AssocId(2), AssocId(1));
        nodes.begin(AssocId(3), record(8));
        nodes.set_last_association(AssocId(1), AssocId(2), ues[0]);
        let to = |node| Effect::Ngap { assoc: AssocId(node), pdu: Vec::new() };
        let effects = [to(1), Effect::Forget, to(3), to(1), to(9)];
        let ways = [Some((AssocId(1), AssocId(2))), Some((AssocId(3), AssocId(3)))];
        assert_eq!(nodes.effect_associations(ues[0], &effects), ways);
        assert_eq!(nodes.effect_associations(ues[1], &effects[..2]), [Some((AssocId(1), AssocId(1))), None]);
        // A host that takes the UE over uses the same association if it is up there.
        nodes.restore_association(AssocId(1), AssocId(2), ues[1]);
        nodes.restore_association(AssocId(1), AssocId(4), ues[0]);
        assert_eq!(ues.map(|ue| nodes.association_to(AssocId(1), Some(ue))), [Some(AssocId(2)); 2]);
    }

    #[test]
    fn claim_from_other_address_is_not_bound() {
        let mut nodes = nodes(&[]);
        nodes.up(AssocId(5), SocketAddr::from(([10, 0, 0, 3], 9)));
        nodes.claim(AssocId(2), record(8).id);
        nodes.claim(AssocId(5), record(8).id);
        nodes.begin(AssocId(3), record(8));
        assert_eq!([2, 3, 5].map(|assoc| nodes.node_of(AssocId(assoc))), [None, Some(AssocId(3)), Some(AssocId(3))]);
    }

    #[test]
    fn identity_at_other_address_is_contested() {
        let mut nodes = nodes(&[]);
        let verdicts = |nodes: &Nodes| [1, 2].map(|assoc| nodes.setup(AssocId(assoc), record(7).id));
        assert_eq!(verdicts(&nodes), [Verdict::Granted, Verdict::Contested], "NG Setup again begins a life of its own");
        nodes.bind(AssocId(2), AssocId(1));
        assert_eq!(verdicts(&nodes), [Verdict::Granted; 2]);
        assert_eq!(nodes.setup(AssocId(3), record(8).id), Verdict::Granted);
        assert!(!nodes.binds(AssocId(3), AssocId(1), record(7).id));
    }

    #[test]
    fn association_may_precede_its_node() {
        let mut nodes = nodes(&[]);
        nodes.allow = vec![Allow { network: "10.0.0.0/24".parse().expect("a network"), plmn: None, ids: None }];
        nodes.claim(AssocId(2), record(8).id);
        nodes.claim(AssocId(4), record(9).id);
        assert_eq!(nodes.node_of(AssocId(2)), None);
        nodes.begin(AssocId(3), record(8));
        assert_eq!([2, 3, 4].map(|assoc| nodes.node_of(AssocId(assoc))), [Some(AssocId(3)), Some(AssocId(3)), None]);
        assert_eq!(nodes.get(AssocId(3)).map(Node::associations), Some(2));
        // A void association has claimed nothing.
        assert!(matches!(nodes.remove_association(AssocId(4), true), AssociationLoss::Nothing));
        nodes.begin(AssocId(1), record(9));
        assert_eq!(nodes.node_of(AssocId(4)), None);
    }

    #[test]
    fn reported_node_keeps_lifetime_at_ng_setup() {
        let ues = slots();
        let mut nodes = nodes(&[]);
        // The first association of the node is lost, or not known yet.
        assert!(nodes.bind_reported(AssocId(2), AssocId(9), record(8)));
        assert!(!nodes.bind_reported(AssocId(3), AssocId(9), record(8)));
        assert!(!nodes.bind_reported(AssocId(5), AssocId(9), record(8)), "it is not up");
        assert_eq!([2, 3].map(|assoc| nodes.node_of(AssocId(assoc))), [Some(AssocId(9)); 2]);
        nodes.moved(ues[0], [None; 2], [Some(AssocId(9)), None]);
        assert_eq!(nodes.association_to(AssocId(9), Some(ues[0])), Some(AssocId(2)));
        nodes.up(AssocId(9), SocketAddr::from(([10, 0, 0, 9], 38412)));
        assert!(nodes.begin(AssocId(9), record(8)).is_empty(), "the same life: nothing ends");
        assert_eq!((nodes.ues(AssocId(9)).len(), nodes.node_of(AssocId(9))), (1, Some(AssocId(9))));
        assert_eq!(nodes.begin(AssocId(9), record(8)).len(), 1, "now it has set NG up again");
        // This lifetime differs from the known one.
        assert!(!nodes.bind_reported(AssocId(4), AssocId(6), record(7)));
        assert_eq!((nodes.node_of(AssocId(4)), nodes.find(record(7).id)), (None, Some(AssocId(1))));
    }

    #[test]
    fn ng_setup_ends_every_earlier_life_of_the_node() {
        let ues = slots();
        let mut nodes = nodes(&ues);
        nodes.bind(AssocId(2), AssocId(1));
        let ended = nodes.begin(AssocId(3), record(7));
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].node, ended[0].ues.len()), (AssocId(1), 2));
        assert_eq!(ended[0].remaining, [AssocId(1), AssocId(2)]);
        assert_eq!([1, 2, 3].map(|assoc| nodes.node_of(AssocId(assoc))), [None, None, Some(AssocId(3))]);
        // NG Setup on a further association: only the old first association is left.
        nodes.bind(AssocId(4), AssocId(3));
        let ended = nodes.begin(AssocId(4), record(7));
        assert_eq!((ended[0].node, ended[0].remaining.as_slice()), (AssocId(3), &[AssocId(3)][..]));
        // NG Setup again on the same association: the number stays, the UEs do not.
        nodes.moved(ues[0], [None; 2], [Some(AssocId(4)), None]);
        let ended = nodes.begin(AssocId(4), record(8));
        assert_eq!((ended[0].node, ended[0].ues.len(), ended[0].remaining.len()), (AssocId(4), 1, 0));
        assert!(nodes.ues(AssocId(4)).is_empty());
        assert_eq!((nodes.find(record(7).id), nodes.find(record(8).id)), (None, Some(AssocId(4))));
    }
}
