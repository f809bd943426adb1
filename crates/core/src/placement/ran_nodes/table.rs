//! Table of RAN nodes: its state and lookups.

use super::contest::Contest;
use super::relay_budget::RelayBudget;
use crate::RanNodes;
use crate::amf::ran::admission::{self, Allow, Verdict};
use crate::amf::ran::{RanNode, area_lacks};
use crate::placement::replica::{EffectAssociations, SlotKey};
use crate::step::Effect;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_types::{AssocId, Dialect, Duration, Instant, RanNodeId, RanUeNgapId, Snssai, Tai};

/// Messages remembered per association: more than arrive in the moment in which it ends.
const MAX_RECENT: usize = 64;
/// Time after the loss of an association in which the RAN node may repeat these messages.
const REPEAT_WINDOW: Duration = Duration::from_secs(5);
/// Bits below the number of the balancer in the number of an input.
const BALANCER_BITS: u32 = 60;
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
    claimed: Option<RanNodeId>,
    /// Hashes of the UE messages received last, if the RAN node has other associations.
    recent: VecDeque<u64>,
    /// Number of unacknowledged AMF Configuration Updates sent by this association.
    pending_updates: u8,
    /// True if the connection to the balancer is lost, and the association is the only one of its
    /// RAN node.
    is_unreachable: bool,
}

impl AssociationEntry {
    fn new(peer: SocketAddr) -> Self {
        let (node, claimed, recent) = (None, None, VecDeque::new());
        AssociationEntry { peer, node, claimed, recent, pending_updates: 0, is_unreachable: false }
    }
}

/// A RAN node with a completed NG Setup.
#[derive(Debug)]
pub struct RanNodeEntry<U> {
    pub record: RanNode,
    /// Associations that are up, at least one, the oldest first; or one that is unreachable.
    associations: Vec<AssocId>,
    /// Peer address of the first association.
    pub peer: SocketAddr,
    pub ues: FxHashSet<U>,
    /// UEs whose last message came by another association than the first. Messages to them use that
    /// association (TS 23.501 5.21.1.3).
    by: FxHashMap<U, AssocId>,
    /// UEs for which the node is the target of a handover, by its RAN UE NGAP IDs.
    prepared: FxHashMap<RanUeNgapId, U>,
    relayed: RelayBudget,
    /// UEs whose connections a reset is ending, with the balancer's input. A balancer may give the
    /// same reset to a host again, for UEs of a dead host.
    resetting: FxHashMap<U, u64>,
    /// True if this host knows the NG Setup only from reports and not from the association itself.
    reported: bool,
    /// Hashes of UE messages from a lost association, and the end of the time for recognising
    /// repeats. A RAN node that does not know whether a message arrived repeats it by another
    /// association.
    repeats: FxHashSet<u64>,
    repeats_end: Option<Instant>,
}

impl<U: SlotKey> RanNodeEntry<U> {
    fn new(record: RanNode, associations: Vec<AssocId>, peer: SocketAddr) -> Self {
        let (ues, by, resetting) = (FxHashSet::default(), FxHashMap::default(), FxHashMap::default());
        RanNodeEntry {
            record,
            associations,
            peer,
            ues,
            by,
            prepared: FxHashMap::default(),
            relayed: RelayBudget::default(),
            resetting,
            reported: false,
            repeats: FxHashSet::default(),
            repeats_end: None,
        }
    }

    /// Returns the number of associations.
    pub fn associations(&self) -> usize {
        self.associations.len()
    }

    /// Returns the associations other than that of the NG Setup, which is `number`.
    pub(super) fn further(&self, number: AssocId) -> impl Iterator<Item = AssocId> {
        self.associations.iter().copied().filter(move |assoc| *assoc != number)
    }
}

/// A RAN node that was removed from the table.
#[derive(Debug)]
pub(super) struct RemovedNode<U> {
    pub(super) node: AssocId,
    pub(super) name: String,
    /// UEs that were connected by the node.
    pub(super) ues: Vec<U>,
    /// Associations of the node that are still up.
    pub(super) remaining: Vec<AssocId>,
}

/// Consequence of the loss of an association.
#[derive(Debug)]
pub(super) enum AssociationLoss<U> {
    /// The association was not bound to a RAN node.
    Nothing,
    /// Number of the remaining associations of the RAN node.
    Fewer(usize),
    /// The association was the last one of its RAN node.
    Last(RemovedNode<U>),
}

/// All associations and RAN nodes.
#[derive(Debug)]
pub struct RanNodeTable<U> {
    links: FxHashMap<AssocId, AssociationEntry>,
    nodes: FxHashMap<AssocId, RanNodeEntry<U>>,
    /// RAN nodes of associations that were lost with their balancers. Other associations carry the
    /// nodes.
    former: FxHashMap<AssocId, AssocId>,
    /// Numbers of the balancers' inputs that have connected the UEs. A reset ends only the
    /// connections before it.
    connected_by: FxHashMap<U, u64>,
    /// Allowed source addresses of RAN nodes; empty = any.
    allow: Vec<Allow>,
    pub(super) contests: Vec<Contest>,
}

impl<U: SlotKey> RanNodeTable<U> {
    /// Creates an empty table with this allow list.
    pub fn new(allow: Vec<Allow>) -> Self {
        RanNodeTable { allow, ..RanNodeTable::default() }
    }

    /// Replaces the allow list.
    pub fn set_allow(&mut self, allow: Vec<Allow>) {
        self.allow = allow;
    }

    /// Returns the verdict on an NG Setup with this identity.
    pub(super) fn setup(&self, assoc: AssocId, id: RanNodeId) -> Verdict {
        let Some(link) = self.links.get(&assoc) else { return Verdict::Granted };
        // NG Setup ends the previous binding of the association in any case. An unreachable node
        // cannot be probed.
        let other = self.find_for(assoc, id).filter(|node| link.node != Some(*node) && self.is_reachable(*node));
        admission::setup(&self.allow, link.peer.ip(), id, self.addresses(other))
    }

    /// Returns true if the association may be bound to the RAN node.
    pub(super) fn binds(&self, assoc: AssocId, node: AssocId, id: RanNodeId) -> bool {
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

    /// Adds an association without a RAN node.
    pub(super) fn insert_association(&mut self, assoc: AssocId, peer: SocketAddr) {
        self.links.insert(assoc, AssociationEntry::new(peer));
    }

    /// Marks an association as unreachable if it is the only one of its RAN node. Returns the name
    /// of the node then.
    pub(super) fn set_unreachable(&mut self, assoc: AssocId) -> Option<&str> {
        let link = self.links.get_mut(&assoc)?;
        let node = self.nodes.get(&link.node?).filter(|node| node.associations == [assoc])?;
        link.is_unreachable = true;
        Some(&node.record.name)
    }

    /// Returns true if an association is unreachable.
    pub(super) fn is_unreachable(&self, assoc: AssocId) -> bool {
        self.links.get(&assoc).is_some_and(|link| link.is_unreachable)
    }

    /// Returns true if a RAN node is set up and an association of it is up.
    pub fn is_reachable(&self, node: AssocId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.associations.iter().any(|assoc| !self.is_unreachable(*assoc)))
    }

    /// Removes the unreachable association of a RAN node that has another one now. Returns true if
    /// there was one: the node is reachable again.
    fn drop_unreachable(&mut self, node: AssocId) -> bool {
        let lost = self.associations_of(node).into_iter().find(|assoc| self.is_unreachable(*assoc));
        let Some(lost) = lost.filter(|_| self.is_reachable(node)) else { return false };
        self.remember_node(lost);
        self.remove_association(lost, false);
        true
    }

    /// Returns the RAN node of an association.
    pub fn node_of(&self, assoc: AssocId) -> Option<AssocId> {
        self.links.get(&assoc)?.node
    }

    /// Returns the peer address of an association for the log; unspecified if the association does
    /// not exist.
    pub fn peer(&self, assoc: AssocId) -> SocketAddr {
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
    pub fn is_up(&self, assoc: AssocId) -> bool {
        self.links.contains_key(&assoc)
    }

    /// Returns the RAN node with this identity.
    pub fn find(&self, id: RanNodeId) -> Option<AssocId> {
        self.nodes.iter().find(|(_, node)| node.record.id == id).map(|(number, _)| *number)
    }

    /// Returns the RAN node that has this identity where the association may use it.
    pub(super) fn find_for(&self, assoc: AssocId, id: RanNodeId) -> Option<AssocId> {
        let is_same =
            |(number, node): &(&AssocId, &RanNodeEntry<U>)| node.record.id == id && shares_identity(**number, assoc);
        self.nodes.iter().find(is_same).map(|(number, _)| *number)
    }

    /// Returns the number of RAN nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the RAN nodes with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (AssocId, &RanNodeEntry<U>)> {
        self.nodes.iter().map(|(number, node)| (*number, node))
    }

    pub fn get(&self, node: AssocId) -> Option<&RanNodeEntry<U>> {
        self.nodes.get(&node)
    }

    /// Returns the association for a message to a RAN node, about `ue` if it is set. Returns `None`
    /// if the node does not exist.
    pub fn association_to(&self, node: AssocId, ue: Option<U>) -> Option<AssocId> {
        let node = self.nodes.get(&node)?;
        ue.and_then(|ue| node.by.get(&ue)).or(node.associations.first()).copied()
    }

    /// Returns the budget of messages of others to a RAN node.
    pub(super) fn relay_budget(&mut self, node: AssocId) -> Option<&mut RelayBudget> {
        self.nodes.get_mut(&node).map(|node| &mut node.relayed)
    }

    /// Records the association of a UE's last message. Later messages to the UE use it.
    pub fn set_last_association(&mut self, node: AssocId, by: AssocId, ue: U) {
        let Some(node) = self.nodes.get_mut(&node) else { return };
        if node.associations.first() != Some(&by) {
            node.by.insert(ue, by);
        } else if !node.by.is_empty() {
            node.by.remove(&ue);
        }
    }

    /// Forgets the association of a UE's last message.
    pub fn forget_last_association(&mut self, node: AssocId, ue: U) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.by.remove(&ue);
        }
    }

    /// Records a message. Returns true if it equals, octet for octet, one received by a lost
    /// association of the node.
    pub(super) fn check_repeat(&mut self, node: AssocId, by: AssocId, pdu: &[u8], now: Instant) -> bool {
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
    pub fn restore_association(&mut self, node: AssocId, by: AssocId, ue: U) {
        if self.node_of(by) == Some(node) {
            self.set_last_association(node, by, ue);
        }
    }

    /// Returns the association for a message about a UE to a RAN node. `paths` has the associations
    /// that were selected at the commit; they have priority. Returns `None` if the node does not
    /// exist: its UEs are idle.
    pub fn effect_association(&self, paths: EffectAssociations, node: AssocId, ue: Option<U>) -> Option<AssocId> {
        let by = paths.into_iter().flatten().find(|(of, _)| *of == node).map(|(_, by)| by);
        by.filter(|by| self.node_of(*by) == Some(node)).or_else(|| self.association_to(node, ue))
    }

    /// Returns the associations that the effects of a UE use, one per RAN node.
    pub fn effect_associations(&self, ue: U, effects: &[Effect]) -> EffectAssociations {
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
    pub(super) fn claim(&mut self, assoc: AssocId, id: RanNodeId) {
        if let Some(link) = self.links.get_mut(&assoc) {
            link.claimed = Some(id);
        }
    }

    /// Binds a further association to a RAN node. Returns true if the node is reachable again.
    pub(super) fn bind(&mut self, assoc: AssocId, number: AssocId) -> bool {
        let (Some(link), Some(node)) = (self.links.get_mut(&assoc), self.nodes.get_mut(&number)) else { return false };
        link.node = Some(number);
        if !node.associations.contains(&assoc) {
            node.associations.push(assoc);
        }
        self.drop_unreachable(number)
    }

    /// Binds the associations that have named a RAN node which was not known until now.
    fn bind_claimed(&mut self, number: AssocId, id: RanNodeId) {
        let claims = |(of, link): (&AssocId, &AssociationEntry)| {
            (link.node.is_none() && link.claimed == Some(id)).then_some(*of)
        };
        let mut claimed: Vec<AssocId> = self.links.iter().filter_map(claims).collect();
        claimed.sort_unstable();
        for further in claimed {
            if self.binds(further, number, id) {
                self.bind(further, number);
            }
        }
    }

    /// Binds an association as reported by a balancer. Returns true if the report created the RAN
    /// node, or the node is reachable again. The node's other associations may have named it before
    /// the report arrived: balancers send to a joining host on different connections.
    pub(super) fn bind_reported(&mut self, assoc: AssocId, number: AssocId, record: RanNode) -> bool {
        let Some(link) = self.links.get(&assoc).filter(|link| link.node.is_none()) else { return false };
        let is_new = !self.nodes.contains_key(&number);
        let id = record.id;
        if is_new {
            if self.find(id).is_some() {
                // The node has another lifetime here. The association itself must name its node.
                return false;
            }
            let node = RanNodeEntry { reported: true, ..RanNodeEntry::new(record, Vec::new(), link.peer) };
            self.nodes.insert(number, node);
        }
        let is_changed = self.bind(assoc, number) || is_new;
        if is_new {
            self.bind_claimed(number, id);
        }
        is_changed
    }

    /// Starts a lifetime of a RAN node after NG Setup on an association. Returns the removed nodes:
    /// an earlier lifetime of the node, and the previous node of the association.
    pub(super) fn begin(&mut self, assoc: AssocId, record: RanNode) -> Vec<RemovedNode<U>> {
        let Some(link) = self.links.get(&assoc) else { return Vec::new() };
        let (peer, before) = (link.peer, link.node);
        if let Some(node) = self.nodes.get_mut(&assoc).filter(|node| node.reported) {
            // This is the lifetime that balancers have reported.
            (node.record, node.reported, node.peer) = (record, false, peer);
            node.associations.insert(0, assoc);
            if let Some(link) = self.links.get_mut(&assoc) {
                link.node = Some(assoc);
            }
            self.drop_unreachable(assoc);
            return Vec::new();
        }
        let same = |(number, node): &(&AssocId, &RanNodeEntry<U>)| {
            let is_same = node.record.id == record.id && shares_identity(**number, assoc);
            **number == assoc || Some(**number) == before || is_same
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
        let id = record.id;
        self.nodes.insert(assoc, RanNodeEntry::new(record, vec![assoc], peer));
        self.bind_claimed(assoc, id);
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
    pub fn alternative_to(&self, lost: AssocId, ue: Option<U>) -> Option<AssocId> {
        let number = self.node_of(lost).or_else(|| self.former.get(&lost).copied())?;
        let by = self.association_to(number, ue).filter(|by| *by != lost);
        by.or_else(|| self.nodes.get(&number)?.associations.iter().copied().find(|assoc| *assoc != lost))
    }

    /// Returns true if an association is one of a RAN node, or was one until the connection to its
    /// balancer was lost.
    pub fn knows_association(&self, node: AssocId, by: AssocId) -> bool {
        self.node_of(by) == Some(node) || self.former.get(&by) == Some(&node)
    }

    /// Removes an association, or voids its binding if the peer restarted it.
    pub(super) fn remove_association(&mut self, assoc: AssocId, restarted: bool) -> AssociationLoss<U> {
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
    pub fn update_connections(&mut self, slot: U, old: [Option<AssocId>; 2], new: [Option<AssocId>; 2]) {
        if old == new {
            return;
        }
        if new == [None; 2] {
            self.connected_by.remove(&slot);
        }
        for number in old.into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.ues.remove(&slot);
                node.resetting.remove(&slot);
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

    /// Updates the connection that a RAN node prepares for a UE as the target of a handover.
    pub fn set_prepared(&mut self, ue: U, old: Option<(AssocId, RanUeNgapId)>, new: Option<(AssocId, RanUeNgapId)>) {
        if old == new {
            return;
        }
        if let Some((node, ran_id)) = old
            && let Some(node) = self.nodes.get_mut(&node)
            && node.prepared.get(&ran_id) == Some(&ue)
        {
            node.prepared.remove(&ran_id);
        }
        if let Some((node, ran_id)) = new
            && let Some(node) = self.nodes.get_mut(&node)
        {
            node.prepared.insert(ran_id, ue);
        }
    }

    /// Returns the UE for which a RAN node has prepared a connection under this RAN UE NGAP ID.
    pub fn prepared(&self, node: AssocId, ran_id: RanUeNgapId) -> Option<U> {
        self.nodes.get(&node)?.prepared.get(&ran_id).copied()
    }

    /// Records the balancer's input that has connected a UE.
    pub fn on_connected(&mut self, ue: U, input: u64) {
        self.connected_by.insert(ue, input);
    }

    /// Begins the reset of a RAN node. Returns the UEs that are connected by the node, except those
    /// that this input already resets, and those that a later input of the same balancer has
    /// connected. A serving host may execute such an input before this host receives the present
    /// one, and a repeat of the present one comes after it.
    pub(super) fn begin_reset(&mut self, node: AssocId, input: u64) -> Vec<U> {
        let mut ues = self.ues(node);
        ues.retain(|ue| {
            let is_after = self.connected_by.get(ue).is_some_and(|by| is_same_or_later(*by, input) && *by != input);
            !is_after && self.begin_reset_of(node, input, *ue)
        });
        ues
    }

    /// Begins the reset of a UE's connection. Returns false if the balancer's input already resets
    /// it.
    pub fn begin_reset_of(&mut self, node: AssocId, input: u64, ue: U) -> bool {
        let Some(node) = self.nodes.get_mut(&node) else { return false };
        let is_new = !node.resetting.get(&ue).is_some_and(|by| is_same_or_later(*by, input));
        if is_new {
            node.resetting.insert(ue, input);
        }
        is_new
    }

    /// Returns the UEs that are connected by a RAN node.
    pub fn ues(&self, node: AssocId) -> Vec<U> {
        self.nodes.get(&node).map(|n| n.ues.iter().copied().collect()).unwrap_or_default()
    }
}

/// Returns true if a balancer sent the input `number` when it sent `input`, or later.
fn is_same_or_later(number: u64, input: u64) -> bool {
    number >> BALANCER_BITS == input >> BALANCER_BITS && number >= input && input != 0
}

/// Returns true if two associations of one identity are of one RAN node. For each MME an eNB is a
/// node of its own: a balancer is an MME.
fn shares_identity(one: AssocId, other: AssocId) -> bool {
    one.dialect() == Dialect::Nr || one.balancer() == other.balancer()
}

/// Returns one number of each RAN node, sorted. An eNB has one at each MME of the pool.
pub fn each_node_once(mut nodes: Vec<(AssocId, RanNodeId)>) -> Vec<AssocId> {
    nodes.sort_unstable();
    let mut enbs = FxHashSet::default();
    nodes.retain(|(number, id)| number.dialect() == Dialect::Nr || enbs.insert(*id));
    nodes.into_iter().map(|(number, _)| number).collect()
}

impl<U> Default for RanNodeTable<U> {
    fn default() -> Self {
        let (links, nodes, former) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        let connected_by = FxHashMap::default();
        RanNodeTable { links, nodes, former, connected_by, allow: Vec::new(), contests: Vec::new() }
    }
}

impl<U: SlotKey> RanNodes for RanNodeTable<U> {
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId> {
        let serves = |node: &RanNodeEntry<U>| node.record.areas.iter().any(|area| areas.contains(&area.tai));
        let nodes = self.iter().filter(|(number, node)| serves(node) && self.is_reachable(*number));
        each_node_once(nodes.map(|(number, node)| (number, node.record.id)).collect())
    }

    fn find(&self, id: RanNodeId) -> Option<AssocId> {
        RanNodeTable::find(self, id).filter(|node| self.is_reachable(*node))
    }

    fn slices(&self, node: AssocId, tai: Tai) -> Option<Vec<Snssai>> {
        self.get(node)?.record.slices(tai).map(<[Snssai]>::to_vec)
    }

    fn misses(&self, tai: Tai, slices: &[Snssai]) -> bool {
        let nodes = self.iter().filter(|(number, _)| number.dialect() == Dialect::Nr);
        area_lacks(nodes.filter_map(|(_, node)| node.record.slices(tai)), slices)
    }

    fn is_ng_enb(&self, node: AssocId) -> bool {
        self.get(node).is_some_and(|node| matches!(node.record.id, RanNodeId::NgEnb(_)))
    }
}
