//! A host's view of the RAN nodes and their associations, as `amf::host` has it.
//!
//! The number of a RAN node is the association on which it set up NG. The number stays when that
//! association is lost and others carry the node.

use super::oracle;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use vireo_core::RanNodes;
use vireo_core::amf::ran::{self, RanNode, RanStepRequest};
use vireo_core::config::CoreConfig;
use vireo_core::placement::message::AssociationOwner;
use vireo_core::placement::replica::EffectAssociations;
use vireo_core::step::Effect;
use vireo_types::{AssocId, GnbId, Ltmsi, Tai};

/// Messages remembered per association.
const MAX_RECENT: usize = 64;

/// An association that is up.
#[derive(Debug)]
struct Association {
    assoc: AssocId,
    node: Option<AssocId>,
    /// Identity that the association named while no such RAN node was known.
    claimed: Option<GnbId>,
    /// Hashes of the UE messages received last.
    recent: VecDeque<u64>,
}

#[derive(Debug)]
struct Node {
    number: AssocId,
    record: RanNode,
    /// Associations that are up, the oldest first.
    associations: Vec<AssocId>,
    /// Association of each UE's last message, if it is not the first one.
    by: BTreeMap<Ltmsi, AssocId>,
    /// True if the NG Setup is only known from reports.
    is_reported: bool,
    /// Hashes of UE messages from a lost association, which the RAN node may repeat.
    repeats: BTreeSet<u64>,
}

impl Node {
    fn new(number: AssocId, record: RanNode, associations: Vec<AssocId>) -> Self {
        let (by, repeats) = (BTreeMap::new(), BTreeSet::new());
        Node { number, record, associations, by, is_reported: false, repeats }
    }
}

/// Consequences of a message of a RAN node.
#[derive(Debug, Default)]
pub(super) struct NodeStep {
    pub(super) answer: Option<Rc<[u8]>>,
    /// RAN nodes that are gone: an earlier lifetime of the node.
    pub(super) ended: Vec<AssocId>,
    /// Associations of these nodes, which end.
    pub(super) aborted: Vec<AssocId>,
    /// Further associations of the node, for their balancers.
    pub(super) reports: Vec<AssociationOwner>,
}

/// All associations and RAN nodes, as far as a host knows.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    associations: Vec<Association>,
    nodes: Vec<Node>,
    /// RAN nodes of associations that were lost with their balancers.
    former: BTreeMap<AssocId, AssocId>,
}

impl Nodes {
    /// Adds an association.
    pub(super) fn up(&mut self, assoc: AssocId) {
        if !self.is_up(assoc) {
            self.associations.push(Association { assoc, node: None, claimed: None, recent: VecDeque::new() });
        }
    }

    fn association(&self, assoc: AssocId) -> Option<&Association> {
        self.associations.iter().find(|known| known.assoc == assoc)
    }

    fn association_mut(&mut self, assoc: AssocId) -> Option<&mut Association> {
        self.associations.iter_mut().find(|known| known.assoc == assoc)
    }

    fn get(&self, number: AssocId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == number)
    }

    fn get_mut(&mut self, number: AssocId) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.number == number)
    }

    pub(super) fn is_up(&self, assoc: AssocId) -> bool {
        self.association(assoc).is_some()
    }

    /// Returns true if the RAN node has set up NG, as far as this host has received.
    pub(super) fn has(&self, node: AssocId) -> bool {
        self.get(node).is_some()
    }

    /// Returns the RAN node of an association.
    pub(super) fn node_of(&self, assoc: AssocId) -> Option<AssocId> {
        self.association(assoc)?.node
    }

    /// Returns the RAN node with this identity.
    fn node_with(&self, id: GnbId) -> Option<AssocId> {
        self.nodes.iter().find(|node| node.record.id == id).map(|node| node.number)
    }

    /// Handles a RAN node's message about itself on an association that is up.
    pub(super) fn on_message(&mut self, assoc: AssocId, pdu: &[u8], config: &CoreConfig) -> NodeStep {
        let bound = self.node_of(assoc);
        // The first message of a further association names its RAN node.
        let named = if bound.is_none() { ran::named(pdu) } else { None };
        let number = bound.or_else(|| self.node_with(named?));
        if number.is_none()
            && let Some(known) = self.association_mut(assoc)
        {
            known.claimed = named.or(known.claimed);
        }
        let before = number.and_then(|number| self.get(number)).map(|node| node.record.clone());
        let mut record = before.clone();
        let outcome = ran::step(&mut record, pdu, config);
        let mut step = NodeStep { answer: outcome.answer.map(Into::into), ..NodeStep::default() };
        match (record, number) {
            (Some(record), _) if outcome.request == Some(RanStepRequest::Erase) => {
                self.begin(assoc, record, &mut step);
            }
            (Some(record), Some(number)) if outcome.fault.is_none() => {
                self.bind(assoc, number);
                let is_changed = before.as_ref() != Some(&record);
                self.get_mut(number).into_iter().for_each(|node| node.record = record.clone());
                if bound.is_none() || is_changed {
                    step.reports = self.reports(number);
                }
            }
            _ => {}
        }
        step
    }

    /// Starts a lifetime of a RAN node after NG Setup on an association.
    fn begin(&mut self, assoc: AssocId, record: RanNode, step: &mut NodeStep) {
        if let Some(node) = self.get_mut(assoc) {
            node.record = record;
            if std::mem::take(&mut node.is_reported) {
                node.associations.insert(0, assoc);
            }
        } else {
            for node in self.nodes.extract_if(.., |node| node.record.id == record.id) {
                step.ended.push(node.number);
                step.aborted.extend(node.associations.into_iter().filter(|of| *of != assoc));
            }
            self.associations.retain(|known| !step.aborted.contains(&known.assoc));
            let id = record.id;
            self.nodes.push(Node::new(assoc, record, vec![assoc]));
            let claims = |known: &&Association| known.node.is_none() && known.claimed == Some(id);
            let claimed: Vec<AssocId> = self.associations.iter().filter(claims).map(|known| known.assoc).collect();
            claimed.into_iter().for_each(|further| self.bind(further, assoc));
        }
        self.association_mut(assoc).into_iter().for_each(|known| known.node = Some(assoc));
        step.reports = self.reports(assoc);
    }

    /// Binds an association to a RAN node.
    fn bind(&mut self, assoc: AssocId, number: AssocId) {
        let Some(node) = self.nodes.iter_mut().find(|node| node.number == number) else { return };
        if let Some(known) = self.associations.iter_mut().find(|known| known.assoc == assoc) {
            known.node = Some(number);
            if !node.associations.contains(&assoc) {
                node.associations.push(assoc);
            }
        }
    }

    /// Binds an association as a balancer reports it.
    pub(super) fn bind_reported(&mut self, owner: &AssociationOwner) {
        let AssociationOwner { assoc, node: number, record } = owner;
        if self.association(*assoc).is_none_or(|known| known.node.is_some()) {
            return;
        }
        if !self.has(*number) {
            if self.node_with(record.id).is_some() {
                return;
            }
            let node = Node::new(*number, record.clone(), Vec::new());
            self.nodes.push(Node { is_reported: true, ..node });
        }
        self.bind(*assoc, *number);
    }

    fn reports(&self, number: AssocId) -> Vec<AssociationOwner> {
        let Some(node) = self.get(number) else { return Vec::new() };
        let further = node.associations.iter().filter(|assoc| **assoc != number);
        further.map(|assoc| AssociationOwner { assoc: *assoc, node: number, record: node.record.clone() }).collect()
    }

    /// Removes an association. Returns its RAN node if that has no other one: its UEs become idle.
    pub(super) fn remove(&mut self, assoc: AssocId) -> Option<AssocId> {
        let at = self.associations.iter().position(|known| known.assoc == assoc)?;
        let Association { node, recent, .. } = self.associations.remove(at);
        let number = node?;
        self.former.insert(assoc, number);
        let node = self.get_mut(number)?;
        node.repeats = recent.into_iter().collect();
        node.associations.retain(|of| *of != assoc);
        node.by.retain(|_, by| *by != assoc);
        if !node.associations.is_empty() {
            return None;
        }
        self.nodes.retain(|node| node.number != number);
        Some(number)
    }

    /// Returns the association for a message to a RAN node, about `ue` if it is set.
    pub(super) fn association_to(&self, number: AssocId, ue: Option<Ltmsi>) -> Option<AssocId> {
        let node = self.get(number)?;
        ue.and_then(|ue| node.by.get(&ue)).or(node.associations.first()).copied()
    }

    /// Returns another association of the same RAN node for a message to a UE, after the loss of
    /// one.
    pub(super) fn alternative_to(&self, lost: AssocId, ue: Option<Ltmsi>) -> Option<AssocId> {
        let number = self.node_of(lost).or_else(|| self.former.get(&lost).copied())?;
        let by = self.association_to(number, ue).filter(|by| *by != lost);
        by.or_else(|| self.get(number)?.associations.iter().copied().find(|assoc| *assoc != lost))
    }

    /// Records the association of a UE's last message. Later messages to the UE use it.
    pub(super) fn set_last_association(&mut self, number: AssocId, by: AssocId, ue: Ltmsi) {
        if self.node_of(by) == Some(number)
            && let Some(node) = self.get_mut(number)
        {
            if node.associations.first() == Some(&by) {
                node.by.remove(&ue);
            } else {
                node.by.insert(ue, by);
            }
        }
    }

    /// Handles that a UE has another LTMSI.
    pub(super) fn rename(&mut self, before: Ltmsi, after: Ltmsi) {
        for node in &mut self.nodes {
            if let Some(by) = node.by.remove(&before) {
                node.by.insert(after, by);
            }
        }
    }

    /// Returns the associations that the effects of a UE use, one per RAN node.
    pub(super) fn effect_associations(&self, ue: Ltmsi, effects: &[Effect]) -> EffectAssociations {
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

    /// Returns the association for a message about a UE; that of the commit has priority. `None`:
    /// the RAN node is gone, and has lost its UEs.
    pub(super) fn select(&self, paths: EffectAssociations, node: AssocId, ue: Ltmsi) -> Option<AssocId> {
        let by = paths.into_iter().flatten().find(|(of, _)| *of == node).map(|(_, by)| by);
        by.filter(|by| self.node_of(*by) == Some(node)).or_else(|| self.association_to(node, Some(ue)))
    }

    /// Returns true if a message equals one received by a lost association of the node.
    pub(super) fn is_repeat(&mut self, number: AssocId, by: AssocId, pdu: &[u8]) -> bool {
        let Some(node) = self.get_mut(number) else { return false };
        let hash = oracle::hash(pdu);
        if node.repeats.remove(&hash) {
            return true;
        }
        if let Some(known) = self.association_mut(by) {
            if known.recent.len() == MAX_RECENT {
                known.recent.pop_front();
            }
            known.recent.push_back(hash);
        }
        false
    }
}

impl RanNodes for Nodes {
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId> {
        let serves = |node: &&Node| node.record.areas.iter().any(|area| areas.contains(&area.tai));
        self.nodes.iter().filter(serves).map(|node| node.number).collect()
    }

    fn find(&self, id: GnbId) -> Option<AssocId> {
        self.node_with(id)
    }
}
