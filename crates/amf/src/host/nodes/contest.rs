//! NG Setup with the identity of a RAN node that is up elsewhere.
//!
//! The host probes the existing RAN node at once. If the node answers, the new NG Setup is refused.
//! If it does not answer in time, it is dead: its associations are aborted and the new NG Setup
//! takes effect.
//!
//! In a cluster the answering host decides. The other hosts receive the NG Setup when it has taken
//! effect.

use super::deferred_setups::Contest;
use crate::host::state::Host;
use vireo_core::amf::ran::admission::{self, Refusal, Verdict};
use vireo_core::amf::ran::{self, RanNode};
use vireo_core::placement::message::RanOutput;
use vireo_ops::metrics::{Failure, Procedure};
use vireo_types::{AssocId, Duration, GnbId, Instant};

/// Time for the existing RAN node to answer a probe.
const WITHIN: Duration = Duration::from_secs(2);
/// Interval of the probes. Several are sent because a heartbeat may be lost.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);

impl Host {
    /// Returns true if an NG Setup takes effect now. Otherwise it is refused or deferred.
    pub(super) fn admits_setup(&mut self, assoc: AssocId, record: &RanNode, pdu: &[u8], now: Instant) -> bool {
        match self.nodes.setup(assoc, record.id) {
            Verdict::Granted => return true,
            Verdict::Refused(refusal) => self.refuse_setup(assoc, record.id, refusal),
            Verdict::Contested => self.contest(assoc, record.id, pdu, now),
        }
        false
    }

    fn refuse_setup(&mut self, assoc: AssocId, id: GnbId, refusal: Refusal) {
        let (peer, metrics) = (self.nodes.peer(assoc), &self.statistics.step_metrics.metrics);
        metrics.n2_refused(refusal);
        metrics.procedures.failed(Procedure::NgSetup, Failure::Cause(0));
        tracing::warn!(%peer, assoc = assoc.0, gnb = ?id, reason = refusal.label(), "NG Setup refused");
        self.egress.send(RanOutput::Ngap {
            assoc,
            ue: None,
            key: 0,
            pdu: ran::setup_refused(assoc.dialect(), refusal),
        });
    }

    fn contest(&mut self, assoc: AssocId, id: GnbId, pdu: &[u8], now: Instant) {
        let waits = self.nodes.contests.0.iter().any(|contest| contest.assoc == assoc);
        let Some(node) = self.nodes.find(id).filter(|_| !waits) else { return };
        let peer = self.nodes.peer(assoc);
        tracing::warn!(%peer, assoc = assoc.0, gnb = ?id, "NG Setup waits: another association has this identity");
        let (next, deadline) = (now + PROBE_INTERVAL, now + WITHIN);
        self.nodes.contests.0.push(Contest { assoc, id, pdu: pdu.to_vec(), node, next, deadline });
        self.probe(node);
    }

    /// Probes all associations of a RAN node.
    fn probe(&mut self, node: AssocId) {
        for assoc in self.nodes.associations_of(node) {
            self.egress.send(RanOutput::Probe { assoc });
        }
    }

    /// Refuses the NG Setups that contest the identity of a RAN node that answered a probe.
    pub(in crate::host) fn node_lives(&mut self, assoc: AssocId) {
        let Some(node) = self.nodes.node_of(assoc) else { return };
        let refused: Vec<Contest> = self.nodes.contests.0.extract_if(.., |contest| contest.node == node).collect();
        for contest in refused {
            if self.nodes.is_up(contest.assoc) {
                self.refuse_setup(contest.assoc, contest.id, Refusal::InUse);
            }
        }
    }

    /// Applies NG Setups whose existing RAN node is gone or did not answer in time.
    pub(in crate::host) fn settle_contests(&mut self, now: Instant) {
        if self.nodes.contests.0.is_empty() {
            return;
        }
        for mut contest in std::mem::take(&mut self.nodes.contests.0) {
            if !self.nodes.is_up(contest.assoc) {
                continue;
            }
            if self.nodes.get(contest.node).is_some() && now < contest.deadline {
                if now >= contest.next {
                    contest.next = now + PROBE_INTERVAL;
                    self.probe(contest.node);
                }
                self.nodes.contests.0.push(contest);
                continue;
            }
            for silent in self.nodes.associations_of(contest.node) {
                let peer = self.nodes.peer(silent);
                tracing::warn!(%peer, assoc = silent.0, "association ended: its RAN node is silent and comes from elsewhere");
                self.egress.send(RanOutput::Abort { assoc: silent });
                self.association_lost(silent, false);
            }
            match self.nodes.find(contest.id) {
                // Another NG Setup with this identity took effect first.
                Some(_) => self.refuse_setup(contest.assoc, contest.id, Refusal::InUse),
                None => self.node_message(contest.assoc, &contest.pdu, true),
            }
        }
    }

    /// Returns true if a further association may be bound to the RAN node that it names. Answers
    /// the message with a refusal otherwise.
    pub(super) fn admits_binding(&mut self, assoc: AssocId, node: AssocId, answers: bool) -> bool {
        let Some(id) = self.nodes.get(node).map(|node| node.record.id) else { return false };
        if self.nodes.binds(assoc, node, id) {
            return true;
        }
        if answers {
            let (peer, reason) = (self.nodes.peer(assoc), Refusal::Binding);
            self.statistics.step_metrics.metrics.n2_refused(reason);
            tracing::warn!(%peer, assoc = assoc.0, gnb = ?id, reason = reason.label(), "further association refused");
            self.egress.send(RanOutput::Ngap { assoc, ue: None, key: 0, pdu: admission::binding_refused() });
        }
        false
    }
}
