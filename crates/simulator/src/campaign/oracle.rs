//! Oracle of the campaign's invariants.
//!
//! It judges all output of the cluster and the reports of UEs and gNBs.

mod inputs;
mod sent;

use inputs::Inputs;
use sent::SentEffects;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::step::step_key;
use vireo_emulator::{enb, gnb, ue};
use vireo_types::{Bucket, Dialect};
use vireo_wire::{ngap, s1ap};

/// Violation of the protocol of a RAN node by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeViolation {
    #[error("gNB {0}: {1}")]
    Gnb(usize, gnb::Violation),
    #[error("eNB {0}: {1}")]
    Enb(usize, enb::Violation),
}

impl NodeViolation {
    /// Returns true if the core used UE identifiers that do not belong together.
    pub(super) fn is_unknown_ue(self) -> bool {
        matches!(
            self,
            NodeViolation::Gnb(_, gnb::Violation::UnknownUe) | NodeViolation::Enb(_, enb::Violation::UnknownUe)
        )
    }
}

/// Violated invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A downlink NAS COUNT was sent with two contents under one key.
    #[error("the downlink NAS COUNT {0} was used twice")]
    Count(u32),
    /// The core used a next hop twice.
    #[error("a next hop (NH) was given away twice")]
    NextHop,
    /// The core treats an accepted uplink NAS COUNT as not accepted.
    #[error("the uplink NAS COUNT went back to {0}: a replay would be accepted")]
    Replay(u32),
    /// A step was sent twice with different content.
    #[error("a step has left twice, with two contents: two hosts have carried it out")]
    Twice,
    /// Two hosts acted for one UE alternately.
    #[error("{0:?} was heard after the next owner of its UE")]
    TwoOwners(HostId),
    /// A copy is based on a version that its receiver never had.
    #[error("a copy builds on none")]
    Baseless,
    /// The network has lost a registered UE.
    #[error("UE {0} is registered, and the network does not know it")]
    Lost(usize),
    /// A UE has no answer although no fault occurred for a long time.
    #[error("UE {0} has had no procedure come to its end since the last fault: it is stuck")]
    Stuck(usize),
    /// The core has no connection for a connected UE, although no association was lost.
    #[error("UE {0} is connected at its gNB, and idle at the core")]
    Disconnected(usize),
    /// A UE received a message that the specifications do not allow.
    #[error("UE {0}: {1}")]
    Ue(usize, ue::Violation),
    /// A RAN node received a message that the specifications do not allow.
    #[error(transparent)]
    Node(NodeViolation),
    /// Two steps of an input have lasting results.
    #[error("input {0:#x} was executed twice")]
    ExecutedTwice(u64),
    /// An input is reported done that was not executed.
    #[error("input {0:#x} is done, and no host has executed it")]
    NotExecuted(u64),
    /// A proposal is committed on a state that it was not made from.
    #[error("the proposal for input {0:#x} was committed on another state than its base")]
    OtherBase(u64),
    /// A host commits a step of another host's UE.
    #[error("{0:?} has committed a step of a UE that it does not own")]
    NotOwner(HostId),
    /// An effect leaves although a possible next owner lacks its commit.
    #[error("an effect has left before {0:?} had its commit")]
    NoCopy(HostId),
    /// An input waits for a serving host although its owner could execute it.
    #[error("input {0:#x} has waited for a serving host for too long")]
    Late(u64),
    /// An effect was sent again although a balancer of the map has sent it.
    #[error("an effect has left twice: {0:#x}")]
    Repeated(u64),
    /// No balancer executes an effect of one that has ended.
    #[error("an effect is lost with its balancer: {0:#x}")]
    EffectLost(u64),
    /// A host has an identifier of no UE.
    #[error("{0:?} keeps a 5G-TMSI that no UE has")]
    Identifier(HostId),
}

/// Security state of a step, attached to its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Hash of K_AMF, which identifies the NAS security context.
    pub(super) key: u64,
    pub(super) uplink: u32,
    pub(super) downlink: u32,
    /// Hash of the NH that the step has sent.
    pub(super) next_hop: Option<u64>,
}

/// Output of the cluster so far.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) violation: Option<Violation>,
    /// Hash of the content by effect name, and the balancer that has sent it last.
    names: HashMap<u64, (u64, BalancerId)>,
    /// Hash of the content by key and downlink COUNT.
    counts: HashMap<(u64, u32), u64>,
    hops: HashMap<u64, u64>,
    /// Newest COUNTs of each key that a balancer has sent, with the step. Effects by different
    /// balancers overtake each other.
    newest: HashMap<(u64, BalancerId), (u64, u32, u32)>,
    /// Last host that acted for each bucket by a balancer, and its predecessors.
    last_output: HashMap<(Bucket, BalancerId), HostId>,
    before: BTreeSet<(Bucket, BalancerId, HostId)>,
    inputs: Inputs,
    sent: SentEffects,
}

pub(super) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Oracle {
    /// Records a violation.
    pub(super) fn record_violation(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Returns true if a balancer has executed an effect.
    fn is_executed(&self, name: u64) -> bool {
        self.names.contains_key(&name)
    }

    /// Checks an effect that a balancer executes, by its name. An effect of a balancer that has
    /// ended may be sent again by another one: the RAN node recognises it.
    pub(super) fn on_effect(
        &mut self,
        (name, by): (u64, BalancerId),
        (dialect, pdu): (Dialect, &[u8]),
        counts: Option<Counts>,
    ) {
        let content = hash(pdu);
        self.on_effect_void(name);
        if name != 0
            && let Some((before, sent_by)) = self.names.insert(name, (content, by))
        {
            if before != content {
                self.record_violation(Violation::Twice);
            }
            if !self.is_repeatable(name, [sent_by, by]) {
                self.record_violation(Violation::Repeated(name));
            }
            return;
        }
        let Some(Counts { key, uplink, downlink, next_hop }) = counts else { return };
        if let Some(sequence) = protected(dialect, pdu) {
            // The COUNT of this sequence number before the next one.
            let before = downlink.wrapping_sub(1);
            let count = before.wrapping_sub(u32::from((before as u8).wrapping_sub(sequence)));
            if *self.counts.entry((key, count)).or_insert(content) != content {
                self.record_violation(Violation::Count(count));
            }
        }
        // Number of the step, common to all its effects.
        let step = step_key(name);
        if let Some(hop) = next_hop
            && *self.hops.entry(hash((key, hop))).or_insert(step) != step
        {
            self.record_violation(Violation::NextHop);
        }
        let newest = self.newest.entry((key, by)).or_insert((step, uplink, downlink));
        let (newest_step, up, down) = *newest;
        if step < newest_step && self.is_repeatable(name, [by, by]) {
            // The balancer to which it was sent first has ended meanwhile.
            return;
        }
        let newest = self.newest.entry((key, by)).or_default();
        *newest = (step.max(newest_step), up.max(uplink), down.max(downlink));
        if uplink < up {
            self.record_violation(Violation::Replay(uplink));
        }
        if downlink < down {
            self.record_violation(Violation::Count(downlink));
        }
    }

    /// Checks the output of a host for a bucket's UE. A host with a successor must not produce
    /// output, unless a map has made it the owner again, or a balancer to which it was sent before
    /// has ended.
    pub(super) fn on_host_output(&mut self, host: HostId, bucket: Bucket, (name, by): (u64, BalancerId)) {
        if self.is_repeatable(name, [by, by]) {
            return;
        }
        if let Some(last) = self.last_output.insert((bucket, by), host).filter(|last| *last != host) {
            self.before.insert((bucket, by, last));
        }
        if self.before.contains(&(bucket, by, host)) {
            self.record_violation(Violation::TwoOwners(host));
        }
    }

    /// Handles a balancer's adoption of a new map.
    pub(super) fn on_map(&mut self, by: BalancerId, map: &BucketMap) {
        self.before.retain(|(bucket, of, host)| *of != by || map.owners(*bucket).owner() != Some(*host));
    }
}

/// Returns the sequence number of the protected NAS message in a PDU that also has other content.
fn protected(dialect: Dialect, pdu: &[u8]) -> Option<u8> {
    match dialect {
        Dialect::Nr => {
            let pdu = ngap::NGAP_PDU::decode_borrowed(pdu).ok()?;
            let nas = pdu.ie::<ngap::ie::NAS_PDU>()?.ok()?;
            let nas: &[u8] = &nas.0;
            (nas.len() > 7 && nas[0] == 0x7e && nas[1] & 0xf != 0).then(|| nas[6])
        }
        Dialect::Eps => {
            let pdu = s1ap::S1AP_PDU::decode_borrowed(pdu).ok()?;
            let sequence = |nas: &[u8]| (nas.len() > 6 && nas[0] & 0xf == 7 && nas[0] >> 4 != 0).then(|| nas[5]);
            match pdu.ie::<s1ap::ie::NAS_PDU>() {
                Some(nas) => sequence(&nas.ok()?.0),
                // The answer to an attach or a tracking area update is in a bearer of the context.
                None => pdu
                    .items::<s1ap::ie::E_RABToBeSetupListCtxtSUReq>()
                    .find_map(|item| item.ok()?.nas_pdu.and_then(|nas| sequence(&nas.0))),
            }
        }
    }
}
