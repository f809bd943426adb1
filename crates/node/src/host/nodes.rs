//! The RAN nodes of this host's associations, and which UEs are connected by each.

use super::forward::ran_key;
use super::{Host, Parcel};
use crate::balancer::Command;
use crate::clock::clock;
use crate::metrics::{Failure, Procedure};
use crate::nf::outbox::Summary;
use crate::nf::plan;
use crate::nf::ran::Posted;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::SocketAddr;
use vireo_core::context;
use vireo_core::ran::{self, RanNode, Request, ResetItem};
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::{Key, Slot, Snapshot};
use vireo_types::AssocId;

/// One association.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) peer: SocketAddr,
    pub(super) record: Option<RanNode>,
    pub(super) ues: FxHashSet<Slot>,
}

/// UEs of a node that is gone who are told in one go, and how full queues may be before: all at once they would count as
/// overload, and UEs of other nodes be turned away.
const TOLD_AT_ONCE: usize = 64;
const CALM: f64 = 0.1;

/// All associations.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    here: FxHashMap<AssocId, Node>,
    /// UEs who are still to be told that their node is gone.
    gone: Vec<(AssocId, Vec<Slot>)>,
}

impl Nodes {
    pub(super) fn up(&mut self, assoc: AssocId, peer: SocketAddr) {
        tracing::info!(assoc = assoc.0, %peer, "a RAN node is connected");
        self.here.insert(assoc, Node { peer, record: None, ues: FxHashSet::default() });
    }

    /// Whether UEs are still to be told that their node is gone.
    pub(super) fn is_disconnecting(&self) -> bool {
        !self.gone.is_empty()
    }

    pub(super) fn is_set_up(&self, assoc: AssocId) -> bool {
        self.here.get(&assoc).is_some_and(|n| n.record.is_some())
    }

    /// How many nodes have NG set up.
    pub(super) fn set_up(&self) -> usize {
        self.here.values().filter(|n| n.record.is_some()).count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (AssocId, &Node)> {
        self.here.iter().map(|(a, n)| (*a, n))
    }

    pub(super) fn get(&self, assoc: AssocId) -> Option<&Node> {
        self.here.get(&assoc)
    }

    /// A UE has other associations than before: it has two of them while it is handed over.
    fn moved(&mut self, slot: Slot, old: [Option<AssocId>; 2], new: [Option<AssocId>; 2]) {
        if old == new {
            return;
        }
        for assoc in old.into_iter().flatten() {
            if let Some(node) = self.here.get_mut(&assoc) {
                node.ues.remove(&slot);
            }
        }
        for assoc in new.into_iter().flatten() {
            if let Some(node) = self.here.get_mut(&assoc) {
                node.ues.insert(slot);
            }
        }
    }

    fn ues(&self, assoc: AssocId) -> Vec<Slot> {
        self.here.get(&assoc).map(|n| n.ues.iter().copied().collect()).unwrap_or_default()
    }
}

impl Host {
    /// An association is gone or void: its UEs are idle.
    pub(super) fn association_lost(&mut self, assoc: AssocId, restarted: bool) {
        if restarted {
            // at once: the next messages of the same association may be of the same UEs
            self.disconnect_all(assoc);
            if let Some(node) = self.nodes.here.get_mut(&assoc) {
                node.record = None;
            }
        } else if let Some(node) = self.nodes.here.remove(&assoc) {
            let name = node.record.map(|r| r.name).unwrap_or_default();
            tracing::info!(assoc = assoc.0, peer = %node.peer, name, "a RAN node is gone");
            self.nodes.gone.push((assoc, node.ues.into_iter().collect()));
            self.post_nodes();
        }
    }

    /// Tells some of the UEs whose nodes are gone.
    pub(super) fn tell_disconnected(&mut self) {
        while let Some((assoc, mut ues)) = self.nodes.gone.pop() {
            // also what is on its way between an NF and a UPF comes back to a queue
            let queued = self.pools.iter().map(|nf| nf.queue.len()).max().unwrap_or(0);
            let waiting = queued + self.egress.len() + self.inputs.queue.len();
            let calm = CALM * f64::from(self.region.config().ring_cells);
            if self.is_held_up() || waiting as f64 > calm {
                return self.nodes.gone.push((assoc, ues));
            }
            for slot in ues.split_off(ues.len().saturating_sub(TOLD_AT_ONCE)) {
                // One that has gone meanwhile needs not be told.
                if self.region.ltmsi_of(slot).is_some() {
                    self.connection_lost(slot, assoc);
                }
            }
            if !ues.is_empty() {
                self.nodes.gone.push((assoc, ues));
            }
        }
    }

    fn connection_lost(&mut self, slot: Slot, assoc: AssocId) {
        self.deliver(slot, &Parcel::ConnectionLost { assoc }, NfKind::StateManagement);
    }

    /// A step has changed the connections of a UE.
    pub(super) fn moved(&mut self, slot: Slot, before: Option<Summary>, after: Option<Summary>) {
        let associations = |s: Option<Summary>| s.map(|s| s.associations()).unwrap_or_default();
        self.nodes.moved(slot, associations(before), associations(after));
        let (old, new) = (before.and_then(|s| s.connection), after.and_then(|s| s.connection));
        if old != new {
            if let Some((assoc, ran_id)) = old {
                self.region.unbind(slot, Key::Ran, ran_key(assoc, ran_id));
            }
            if let Some((assoc, ran_id)) = new {
                self.bind(slot, Key::Ran, ran_key(assoc, ran_id));
            }
        }
        for assoc in associations(after).into_iter().flatten() {
            // The association went while the step was under way.
            if self.nodes.get(assoc).is_none() {
                self.connection_lost(slot, assoc);
            }
        }
    }

    /// Lets the workers see which RAN nodes there are.
    fn post_nodes(&self) {
        let of = |(assoc, node): (AssocId, &Node)| {
            let record = node.record.as_ref()?;
            Some(Posted { assoc, id: record.id, areas: record.areas.iter().map(|a| a.tai).collect() })
        };
        let nodes: Vec<Posted> = self.nodes.iter().filter_map(of).collect();
        let posted = postcard::to_stdvec(&nodes).map_err(|e| e.to_string());
        let posted =
            posted.and_then(|octets| self.region.publish(plan::BULLETIN_RAN, &octets).map_err(|e| e.to_string()));
        if let Err(error) = posted {
            tracing::error!(
                error,
                nodes = nodes.len(),
                "the workers do not learn of all RAN nodes: too many for paging"
            );
        }
    }

    fn disconnect_all(&mut self, assoc: AssocId) {
        for slot in self.nodes.ues(assoc) {
            self.connection_lost(slot, assoc);
        }
    }

    /// A message that is not about one UE. Of several hosts each keeps the record, and one answers.
    pub(super) fn node_message(&mut self, assoc: AssocId, pdu: &[u8], answers: bool) {
        let now = clock();
        let Some(node) = self.nodes.here.get_mut(&assoc) else { return };
        let known = node.record.as_ref().map(|r| r.id);
        let before = node.record.clone();
        let outcome = ran::step(&mut node.record, pdu, &self.config);
        if before != node.record {
            self.post_nodes();
        }
        if let Some(fault) = outcome.fault {
            self.account.fault(fault, now, format_args!("gNB on association {}", assoc.0));
            if fault.starts_with("ng-setup") {
                self.account.metrics.procedures.failed(Procedure::NgSetup, Failure::Cause(0));
            }
        }
        if let Some(request) = outcome.request {
            self.request(assoc, known.is_some(), request);
        }
        if let Some(pdu) = outcome.answer.filter(|_| answers) {
            self.egress.send(Command::Ngap { assoc, ue: None, key: 0, pdu });
        }
        if known.is_none() && self.nodes.is_set_up(assoc) {
            self.tell_new_node(assoc);
        }
    }

    fn request(&mut self, assoc: AssocId, was_set_up: bool, request: Request) {
        let now = clock();
        let procedures = |p| {
            self.account.metrics.procedures.started(p);
            self.account.metrics.procedures.succeeded(p, clock().since(now));
        };
        match request {
            Request::Erase => {
                procedures(Procedure::NgSetup);
                if was_set_up {
                    self.disconnect_all(assoc);
                }
                self.replace_earlier(assoc);
            }
            Request::Reset(items) if items.is_empty() => {
                procedures(Procedure::NgReset);
                self.disconnect_all(assoc);
            }
            Request::Reset(items) => {
                procedures(Procedure::NgReset);
                for item in items {
                    if let Some(slot) = self.connection_of(assoc, item) {
                        self.connection_lost(slot, assoc);
                    }
                }
            }
            Request::ResetAcknowledged => {}
        }
    }

    /// The same node on an older association has restarted without that one noticing: it ends.
    fn replace_earlier(&mut self, assoc: AssocId) {
        let Some(id) = self.nodes.get(assoc).and_then(|n| n.record.as_ref()).map(|r| r.id) else { return };
        let name = self.nodes.get(assoc).and_then(|n| n.record.as_ref()).map(|r| r.name.clone()).unwrap_or_default();
        tracing::info!(assoc = assoc.0, name, gnb = ?id, "NG is set up");
        let same = |(a, n): &(AssocId, &Node)| *a != assoc && n.record.as_ref().is_some_and(|r| r.id == id);
        let earlier: Vec<_> = self.nodes.iter().filter(same).map(|(a, _)| a).collect();
        for old in earlier {
            tracing::warn!(assoc = old.0, "the same RAN node has set NG up on another association: this one ends");
            self.association_lost(old, false);
            self.egress.send(Command::Abort { assoc: old });
        }
    }

    /// The UE of a connection that a partial reset names, by either number.
    fn connection_of(&self, assoc: AssocId, item: ResetItem) -> Option<Slot> {
        let slot = match item {
            ResetItem { amf_id: Some(id), .. } => self.region.slot_of(id.ltmsi())?,
            ResetItem { ran_id: Some(id), .. } => {
                let target = || self.nodes.ues(assoc).into_iter().find(|slot| self.fits(*slot, assoc, item));
                self.region.lookup(Key::Ran, ran_key(assoc, id)).or_else(target)?
            }
            ResetItem { .. } => return None,
        };
        self.fits(slot, assoc, item).then_some(slot)
    }

    /// Whether a UE has a connection of these numbers.
    fn fits(&self, slot: Slot, assoc: AssocId, item: ResetItem) -> bool {
        let mut record = Snapshot::default();
        self.region.read(slot, &mut record);
        let Ok(ue) = context::decode(&record.context) else { return false };
        let serving = ue.connection.map(|c| (c.assoc, c.amf_id, Some(c.ran_id)));
        let target = ue.handover.as_ref().and_then(|h| h.target()).map(|m| (m.assoc, m.amf_id, m.ran_id));
        serving.into_iter().chain(target).any(|(of, amf_id, ran_id)| {
            of == assoc && item.amf_id.is_none_or(|id| id == amf_id) && item.ran_id.is_none_or(|id| Some(id) == ran_id)
        })
    }
}
