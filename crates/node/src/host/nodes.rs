//! The RAN nodes of this host's associations, and which UEs are connected by each.

use super::{Host, clock};
use crate::balancer::Command;
use crate::metrics::{Failure, Procedure};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::SocketAddr;
use vireo_core::RanNodes;
use vireo_core::context;
use vireo_core::engine::Event;
use vireo_core::ran::{self, RanNode, Request, ResetItem};
use vireo_types::{AssocId, GnbId, Ltmsi, Tai};

/// One association.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) peer: SocketAddr,
    pub(super) record: Option<RanNode>,
    pub(super) ues: FxHashSet<Ltmsi>,
}

/// All associations.
#[derive(Debug, Default)]
pub(super) struct Nodes(FxHashMap<AssocId, Node>);

impl RanNodes for Nodes {
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId> {
        let serves = |r: &RanNode| r.areas.iter().any(|a| areas.contains(&a.tai));
        self.iter().filter(|(_, n)| n.record.as_ref().is_some_and(serves)).map(|(assoc, _)| assoc).collect()
    }

    fn find(&self, id: GnbId) -> Option<AssocId> {
        self.iter().find(|(_, n)| n.record.as_ref().is_some_and(|r| r.id == id)).map(|(assoc, _)| assoc)
    }
}

impl Nodes {
    pub(super) fn up(&mut self, assoc: AssocId, peer: SocketAddr) {
        tracing::info!(assoc = assoc.0, %peer, "a RAN node is connected");
        self.0.insert(assoc, Node { peer, record: None, ues: FxHashSet::default() });
    }

    pub(super) fn is_set_up(&self, assoc: AssocId) -> bool {
        self.0.get(&assoc).is_some_and(|n| n.record.is_some())
    }

    /// How many nodes have NG set up.
    pub(super) fn set_up(&self) -> usize {
        self.0.values().filter(|n| n.record.is_some()).count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (AssocId, &Node)> {
        self.0.iter().map(|(a, n)| (*a, n))
    }

    pub(super) fn get(&self, assoc: AssocId) -> Option<&Node> {
        self.0.get(&assoc)
    }

    /// A UE went from one number and some associations to another: it has two of them while it is handed over.
    pub(super) fn moved(&mut self, from: Ltmsi, old: [Option<AssocId>; 2], to: Ltmsi, new: [Option<AssocId>; 2]) {
        if (from, old) == (to, new) {
            return;
        }
        for assoc in old.into_iter().flatten() {
            if let Some(node) = self.0.get_mut(&assoc) {
                node.ues.remove(&from);
            }
        }
        for assoc in new.into_iter().flatten() {
            if let Some(node) = self.0.get_mut(&assoc) {
                node.ues.insert(to);
            }
        }
    }

    fn ues(&self, assoc: AssocId) -> Vec<Ltmsi> {
        self.0.get(&assoc).map(|n| n.ues.iter().copied().collect()).unwrap_or_default()
    }
}

impl Host {
    /// An association is gone or void: its UEs are idle.
    pub(super) fn association_lost(&mut self, assoc: AssocId, restarted: bool) {
        self.disconnect_all(assoc);
        if restarted {
            if let Some(node) = self.nodes.0.get_mut(&assoc) {
                node.record = None;
            }
        } else if let Some(node) = self.nodes.0.remove(&assoc) {
            let name = node.record.map(|r| r.name).unwrap_or_default();
            tracing::info!(assoc = assoc.0, peer = %node.peer, name, "a RAN node is gone");
        }
    }

    fn disconnect_all(&mut self, assoc: AssocId) {
        for ltmsi in self.nodes.ues(assoc) {
            self.event(ltmsi, Event::ConnectionLost { assoc });
        }
    }

    /// A message that is not about one UE.
    pub(super) fn node_message(&mut self, assoc: AssocId, pdu: &[u8]) {
        let now = clock();
        let Some(node) = self.nodes.0.get_mut(&assoc) else { return };
        let known = node.record.as_ref().map(|r| r.id);
        let outcome = ran::step(&mut node.record, pdu, &self.config);
        if let Some(fault) = outcome.fault {
            self.account.fault(fault, now, format_args!("gNB on association {}", assoc.0));
            if fault.starts_with("ng-setup") {
                self.account.metrics.procedures.failed(Procedure::NgSetup, Failure::Cause(0));
            }
        }
        if let Some(request) = outcome.request {
            self.request(assoc, known.is_some(), request);
        }
        if let Some(pdu) = outcome.answer {
            self.egress.send(Command::Ngap { assoc, ue: None, pdu });
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
                    if let Some(ltmsi) = self.connection_of(assoc, item) {
                        self.event(ltmsi, Event::ConnectionLost { assoc });
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
    fn connection_of(&self, assoc: AssocId, item: ResetItem) -> Option<Ltmsi> {
        use vireo_store::ContextStore;
        let fits = |ltmsi: Ltmsi| {
            let ue = self.store.load(ltmsi).and_then(|stored| context::decode(stored.octets).ok());
            let Some(ue) = ue else { return false };
            let serving = ue.connection.map(|c| (c.assoc, c.amf_id, Some(c.ran_id)));
            let target = ue.handover.as_ref().and_then(|h| h.target()).map(|m| (m.assoc, m.amf_id, m.ran_id));
            serving.into_iter().chain(target).any(|(of, amf_id, ran_id)| {
                of == assoc
                    && item.amf_id.is_none_or(|id| id == amf_id)
                    && item.ran_id.is_none_or(|id| Some(id) == ran_id)
            })
        };
        match item {
            ResetItem { amf_id: Some(id), .. } => Some(self.directory.resolve(id.ltmsi())).filter(|l| fits(*l)),
            ResetItem { ran_id: Some(_), .. } => self.nodes.ues(assoc).into_iter().find(|l| fits(*l)),
            ResetItem { .. } => None,
        }
    }
}
