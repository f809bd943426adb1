//! Messages of RAN nodes: which RAN node and UE a message is for, and messages about RAN nodes.

use super::output::{NodeEvent, NodeOutput};
use super::table::{RanNodeTable, RemovedNode};
use crate::amf::n2::{Route, ShallowView};
use crate::amf::ran::{self, RanNode, RanStepRequest};
use crate::config::CoreConfig;
use crate::placement::host::{NamedUe, named_ue};
use crate::placement::message::{AssociationOwner, RanOutput};
use crate::placement::replica::SlotKey;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Instant, RanNodeId, RanUeNgapId, Tmsi};

/// Addressee of an NGAP message. `node` is the RAN node that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageTarget {
    /// None: the message arrived before by an association that is lost.
    Repeat,
    /// The RAN node. On an association without a RAN node every message is about the RAN node, and
    /// faulty there if it is about a UE.
    RanNode,
    /// The UE of an NG connection.
    Connected { node: AssocId, amf_id: AmfUeNgapId },
    /// The UE of a new NG connection, which may name a 5G-TMSI of this AMF.
    Initial { node: AssocId, ran_id: RanUeNgapId, tmsi: Option<Tmsi> },
}

/// What a message about a RAN node is processed with.
#[derive(Clone, Copy, Debug)]
pub struct NodeStepInput<'a> {
    pub config: &'a CoreConfig,
    pub now: Instant,
    /// True if this host answers: in a cluster every host processes the message, one answers.
    pub answers: bool,
    /// Balancer's number of the input; 0 = none.
    pub number: u64,
}

impl<U: SlotKey> RanNodeTable<U> {
    /// Returns the addressee of a message that arrived by an association at `now`.
    pub fn target(
        &mut self,
        assoc: AssocId,
        (view, pdu): (&ShallowView, &[u8]),
        config: &CoreConfig,
        now: Instant,
    ) -> MessageTarget {
        let Some(node) = self.node_of(assoc).filter(|_| view.route != Route::Node) else {
            return MessageTarget::RanNode;
        };
        if self.check_repeat(node, assoc, pdu, now) {
            return MessageTarget::Repeat;
        }
        match named_ue(view, config) {
            NamedUe::Connected(amf_id) => MessageTarget::Connected { node, amf_id },
            NamedUe::Initial { ran_id, tmsi } => MessageTarget::Initial { node, ran_id, tmsi },
            NamedUe::RanNode => MessageTarget::RanNode,
        }
    }

    /// Processes a message about the RAN node of an association.
    pub fn on_message(&mut self, assoc: AssocId, pdu: &[u8], input: NodeStepInput<'_>) -> Vec<NodeOutput<U>> {
        let mut out = Vec::new();
        self.node_message(assoc, pdu, input, &mut out);
        out
    }

    pub(super) fn node_message(
        &mut self,
        assoc: AssocId,
        pdu: &[u8],
        input: NodeStepInput<'_>,
        out: &mut Vec<NodeOutput<U>>,
    ) {
        let NodeStepInput { config, now, answers, .. } = input;
        if !self.is_up(assoc) {
            return;
        }
        let bound = self.node_of(assoc);
        // The first message of a further association names its RAN node.
        let dialect = assoc.dialect();
        let named = if bound.is_none() && dialect == Dialect::Nr { ran::claimed_node(pdu) } else { None };
        let node = bound.or_else(|| self.find(named?));
        if let (Some(id), None) = (named, node) {
            self.claim(assoc, id);
        }
        let before = node.and_then(|node| self.get(node)).map(|node| node.record.clone());
        let mut record = before.clone();
        let outcome = ran::step_of(assoc, &mut record, pdu, config);
        if let Some(label) = outcome.fault {
            let is_setup = label.starts_with("ng-setup") || label.starts_with("s1-setup");
            let offered = is_setup.then(|| ran::offered(assoc, pdu)).flatten();
            out.push(NodeOutput::Event(NodeEvent::Fault { peer: self.peer(assoc), label, offered }));
        }
        let begins = outcome.request == Some(RanStepRequest::Erase);
        let setup = record.as_ref().filter(|_| begins && answers);
        if setup.is_some_and(|record| !self.admits_setup(assoc, record.id, (pdu, now), out)) {
            return;
        }
        let further = node.filter(|_| bound.is_none() && !begins && outcome.fault.is_none());
        if further.is_some_and(|node| !self.admits_binding(assoc, node, answers, out)) {
            return;
        }
        if let (Some(node), Some(record), false) = (node, &record, begins) {
            let mut is_changed = before.as_ref() != Some(record);
            if bound.is_none() && outcome.fault.is_none() {
                out.push(NodeOutput::Event(NodeEvent::Bound { assoc, name: record.name.clone() }));
                is_changed |= self.bind(assoc, node);
            }
            if is_changed {
                self.record(node, record.clone());
                out.push(NodeOutput::Changed);
            }
            if bound.is_none() || before.as_ref() != Some(record) {
                self.report_node(node, out);
            }
        }
        match outcome.request {
            // In a cluster one host has sent the update.
            Some(RanStepRequest::Updated { failed }) if answers => self.updated(assoc, failed, out),
            Some(request) => self.request(assoc, (record, request), input, out),
            None => {}
        }
        if let Some(pdu) = outcome.answer.filter(|_| answers) {
            out.push(NodeOutput::Send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu }));
        }
        // An eNB has one association with each MME.
        if begins && answers && dialect == Dialect::Nr && !config.ran.n2_endpoints.is_empty() {
            self.send_update(assoc, ran::add_associations(&config.ran.n2_endpoints), out);
        }
        if begins && bound.is_none() {
            out.push(NodeOutput::Begun { assoc });
        }
    }

    /// Sends an AMF Configuration Update by an association.
    pub(super) fn send_update(&mut self, assoc: AssocId, pdu: Vec<u8>, out: &mut Vec<NodeOutput<U>>) {
        self.count_update(assoc);
        out.push(NodeOutput::Send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu }));
    }

    /// Processes the acknowledgement of an AMF Configuration Update.
    fn updated(&mut self, assoc: AssocId, failed: usize, out: &mut Vec<NodeOutput<U>>) {
        let peer = self.peer(assoc);
        out.push(NodeOutput::Event(match self.acknowledge_update(assoc) {
            true => NodeEvent::Updated { assoc, peer, failed },
            false => NodeEvent::UnsolicitedUpdate { peer },
        }));
    }

    fn request(
        &mut self,
        assoc: AssocId,
        (record, request): (Option<RanNode>, RanStepRequest),
        input: NodeStepInput<'_>,
        out: &mut Vec<NodeOutput<U>>,
    ) {
        let NodeStepInput { now, answers, number, .. } = input;
        let node = self.node_of(assoc).unwrap_or(assoc);
        match request {
            RanStepRequest::Erase => record.into_iter().for_each(|record| self.set_up(assoc, record, answers, out)),
            RanStepRequest::Reset(items) => {
                out.push(NodeOutput::Event(NodeEvent::Reset));
                out.push(match items.is_empty() {
                    true => NodeOutput::Disconnect { node, ues: self.begin_reset(node, number), at_once: true },
                    false => NodeOutput::Reset { node, items, input: number },
                });
            }
            RanStepRequest::Relay { target, pdu } => self.relay(assoc, (target, pdu), (answers, now), out),
            RanStepRequest::ResetAcknowledged | RanStepRequest::Updated { .. } => {}
        }
    }

    /// Applies an NG Setup. If the RAN node was set up before, it has restarted without noticing
    /// the loss of its older associations. The host that answers aborts them.
    fn set_up(&mut self, assoc: AssocId, record: RanNode, answers: bool, out: &mut Vec<NodeOutput<U>>) {
        let (peer, name, id) = (self.peer(assoc), record.name.clone(), record.id);
        out.push(NodeOutput::Event(NodeEvent::SetUp { assoc, peer, name, id }));
        for RemovedNode { node, ues, remaining, .. } in self.begin(assoc, record) {
            out.push(NodeOutput::Ended { node });
            out.push(NodeOutput::Disconnect { node, ues, at_once: node == assoc });
            for old in remaining.into_iter().filter(|_| answers) {
                out.push(NodeOutput::Event(NodeEvent::Replaced { assoc: old, peer }));
                out.push(NodeOutput::Send(RanOutput::Abort { assoc: old }));
            }
        }
        out.push(NodeOutput::Changed);
        self.report_node(assoc, out);
    }

    /// Reports the RAN node of its further associations to their balancers.
    fn report_node(&self, node: AssocId, out: &mut Vec<NodeOutput<U>>) {
        let Some(known) = self.get(node) else { return };
        let owner = |assoc| Box::new(AssociationOwner { assoc, node, record: known.record.clone() });
        out.extend(known.further(node).map(|assoc| NodeOutput::Report(owner(assoc))));
    }

    /// Binds an association to the RAN node that its balancer reports. The association may have
    /// been bound before this host joined.
    pub fn on_report(&mut self, owner: AssociationOwner) -> Vec<NodeOutput<U>> {
        let AssociationOwner { assoc, node, record } = owner;
        let mut out = Vec::new();
        if self.bind_reported(assoc, node, record) {
            out.push(NodeOutput::Changed);
            self.report_node(node, &mut out);
        }
        out
    }

    /// Returns true if an additional association may be bound to the RAN node that it names.
    /// Answers the message with a refusal otherwise.
    fn admits_binding(&self, assoc: AssocId, node: AssocId, answers: bool, out: &mut Vec<NodeOutput<U>>) -> bool {
        let Some(id) = self.get(node).map(|node| node.record.id) else { return false };
        if self.binds(assoc, node, id) {
            return true;
        }
        if answers {
            self.refuse_binding(assoc, id, out);
        }
        false
    }

    fn refuse_binding(&self, assoc: AssocId, id: RanNodeId, out: &mut Vec<NodeOutput<U>>) {
        let (peer, reason) = (self.peer(assoc), ran::admission::Refusal::Binding);
        out.push(NodeOutput::Event(NodeEvent::BindingRefused { assoc, peer, id, reason }));
        let pdu = ran::admission::binding_refused();
        out.push(NodeOutput::Send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu }));
    }
}
