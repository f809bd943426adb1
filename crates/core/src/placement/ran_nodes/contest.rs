//! NG Setup with the identity of a RAN node that is up elsewhere.
//!
//! The host probes the existing RAN node at once. If the node answers, the new NG Setup is refused.
//! If it does not answer in time, it is dead: its associations are aborted and the new NG Setup
//! takes effect.
//!
//! In a cluster the answering host decides. The other hosts receive the NG Setup when it has taken
//! effect.

use super::message::NodeStepInput;
use super::output::{NodeEvent, NodeOutput};
use super::table::RanNodeTable;
use crate::amf::ran;
use crate::amf::ran::admission::{Refusal, Verdict};
use crate::config::CoreConfig;
use crate::placement::message::RanOutput;
use crate::placement::replica::SlotKey;
use vireo_types::{AssocId, Duration, Instant, RanNodeId};

/// Time for the existing RAN node to answer a probe.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the probes. Several are sent because a heartbeat may be lost.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);

/// NG Setup that waits until the RAN node with its identity answers a probe. An association has at
/// most one.
#[derive(Debug)]
pub(super) struct Contest {
    /// The association that sent the NG Setup.
    assoc: AssocId,
    id: RanNodeId,
    pdu: Vec<u8>,
    /// The RAN node that has the identity.
    node: AssocId,
    /// Times of the next probe and of the decision.
    next: Instant,
    deadline: Instant,
}

impl<U: SlotKey> RanNodeTable<U> {
    /// Returns true if an NG Setup takes effect now. Otherwise it is refused or deferred.
    pub(super) fn admits_setup(
        &mut self,
        assoc: AssocId,
        id: RanNodeId,
        (pdu, now): (&[u8], Instant),
        out: &mut Vec<NodeOutput<U>>,
    ) -> bool {
        match self.setup(assoc, id) {
            Verdict::Granted => return true,
            Verdict::Refused(refusal) => self.refuse_setup(assoc, id, refusal, out),
            Verdict::Contested => self.contest(assoc, id, (pdu, now), out),
        }
        false
    }

    fn refuse_setup(&self, assoc: AssocId, id: RanNodeId, reason: Refusal, out: &mut Vec<NodeOutput<U>>) {
        out.push(NodeOutput::Event(NodeEvent::SetupRefused { assoc, peer: self.peer(assoc), id, reason }));
        let pdu = ran::setup_refused(assoc.dialect(), reason);
        out.push(NodeOutput::Send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu }));
    }

    fn contest(&mut self, assoc: AssocId, id: RanNodeId, (pdu, now): (&[u8], Instant), out: &mut Vec<NodeOutput<U>>) {
        let waits = self.contests.iter().any(|contest| contest.assoc == assoc);
        let Some(node) = self.find_for(assoc, id).filter(|_| !waits) else { return };
        out.push(NodeOutput::Event(NodeEvent::SetupDeferred { assoc, peer: self.peer(assoc), id }));
        let (next, deadline) = (now + PROBE_INTERVAL, now + ANSWER_TIMEOUT);
        self.contests.push(Contest { assoc, id, pdu: pdu.to_vec(), node, next, deadline });
        self.probe(node, out);
    }

    /// Probes all associations of a RAN node.
    fn probe(&self, node: AssocId, out: &mut Vec<NodeOutput<U>>) {
        let probes = self.associations_of(node).into_iter().map(|assoc| RanOutput::Probe { assoc });
        out.extend(probes.map(NodeOutput::Send));
    }

    /// Returns the time of the next probe or decision.
    pub fn contest_due(&self) -> Option<Instant> {
        self.contests.iter().map(|contest| contest.next.min(contest.deadline)).min()
    }

    /// Handles that the peer of an association has answered a probe. The NG Setups that contest the
    /// identity of its RAN node are refused.
    pub fn on_alive(&mut self, assoc: AssocId) -> Vec<NodeOutput<U>> {
        let mut out = Vec::new();
        let Some(node) = self.node_of(assoc) else { return out };
        let refused: Vec<Contest> = self.contests.extract_if(.., |contest| contest.node == node).collect();
        for contest in refused.iter().filter(|contest| self.is_up(contest.assoc)) {
            self.refuse_setup(contest.assoc, contest.id, Refusal::InUse, &mut out);
        }
        out
    }

    /// Applies NG Setups whose existing RAN node was removed or did not answer in time.
    pub fn settle_contests(&mut self, config: &CoreConfig, now: Instant) -> Vec<NodeOutput<U>> {
        let mut out = Vec::new();
        for mut contest in std::mem::take(&mut self.contests) {
            if !self.is_up(contest.assoc) {
                continue;
            }
            if self.is_reachable(contest.node) && now < contest.deadline {
                if now >= contest.next {
                    contest.next = now + PROBE_INTERVAL;
                    self.probe(contest.node, &mut out);
                }
                self.contests.push(contest);
                continue;
            }
            for silent in self.associations_of(contest.node) {
                out.push(NodeOutput::Event(NodeEvent::Silent { assoc: silent, peer: self.peer(silent) }));
                out.push(NodeOutput::Send(RanOutput::Abort { assoc: silent }));
                self.lose_association(silent, false, &mut out);
            }
            match self.find_for(contest.assoc, contest.id) {
                // Another NG Setup with this identity took effect first.
                Some(_) => self.refuse_setup(contest.assoc, contest.id, Refusal::InUse, &mut out),
                None => {
                    let input = NodeStepInput { config, now, answers: true, number: 0 };
                    self.node_message(contest.assoc, &contest.pdu, input, &mut out);
                }
            }
        }
        out
    }
}
