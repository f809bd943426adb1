//! What must hold, judged by all that leaves the cluster and by what UEs and gNBs say of it.

use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use vireo_core::balance::HostId;
use vireo_core::balance::map::BucketMap;
use vireo_emulator::{gnb, ue};
use vireo_types::Bucket;
use vireo_wire::ngap::{NGAP_PDU, ie};

/// What broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A downlink NAS COUNT has left with two contents under one key.
    #[error("the downlink NAS COUNT {0} was used twice")]
    Count(u32),
    /// The next hop was given away twice.
    #[error("a next hop (NH) was given away twice")]
    NextHop,
    /// An uplink NAS COUNT that was taken counts as not taken.
    #[error("the uplink NAS COUNT went back to {0}: a replay would be accepted")]
    Replay(u32),
    /// A step has left with another content than it had before.
    #[error("a step has left twice, with two contents: two hosts have carried it out")]
    Twice,
    /// Two hosts have spoken for one UE in turn.
    #[error("{0:?} was heard after the next owner of its UE")]
    TwoOwners(HostId),
    /// A copy builds on a part that its receiver never had.
    #[error("a copy builds on none")]
    Baseless,
    /// The network does not know a registered UE any more.
    #[error("UE {0} is registered, and the network does not know it")]
    Lost(usize),
    /// A UE gets no answer although nothing has failed for long.
    #[error("UE {0} has had no procedure come to its end since the last fault: it is stuck")]
    Stuck(usize),
    /// The core has no connection of a UE that is connected, although no association was lost.
    #[error("UE {0} is connected at its gNB, and idle at the core")]
    Disconnected(usize),
    /// A UE was told what the specifications do not allow.
    #[error("UE {0}: {1}")]
    Ue(usize, ue::Violation),
    /// A gNB was.
    #[error("gNB {0}: {1}")]
    Gnb(usize, gnb::Violation),
}

/// What is known of a step's security, with what leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// A hash of KAMF.
    pub(super) key: u64,
    pub(super) uplink: u32,
    /// The next one.
    pub(super) downlink: u32,
    /// A hash of the NH that the step has given away.
    pub(super) next_hop: Option<u64>,
}

/// All that has left.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) broken: Option<Violation>,
    /// What has left under each name.
    names: HashMap<u64, u64>,
    /// Under each key and downlink COUNT.
    counts: HashMap<(u64, u32), u64>,
    hops: HashMap<u64, u64>,
    /// The newest COUNTs of each key that have left.
    newest: HashMap<u64, (u32, u32)>,
    /// Who has spoken last for each bucket, and who had before.
    speakers: HashMap<Bucket, HostId>,
    before: BTreeSet<(Bucket, HostId)>,
}

pub(super) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Oracle {
    /// Something broke.
    pub(super) fn record_violation(&mut self, broken: Violation) {
        self.broken.get_or_insert(broken);
    }

    /// The balancer sends what a step wants sent, under its name.
    pub(super) fn on_effect(&mut self, name: u64, pdu: &[u8], counts: Option<Counts>) {
        let content = hash(pdu);
        if name != 0 && *self.names.entry(name).or_insert(content) != content {
            self.record_violation(Violation::Twice);
        }
        let Some(Counts { key, uplink, downlink, next_hop }) = counts else { return };
        if let Some(sequence) = protected(pdu) {
            // The COUNT of this sequence number before the next one.
            let before = downlink.wrapping_sub(1);
            let count = before.wrapping_sub(u32::from((before as u8).wrapping_sub(sequence)));
            if *self.counts.entry((key, count)).or_insert(content) != content {
                self.record_violation(Violation::Count(count));
            }
        }
        // Of the step, whichever of its effects this is.
        let step = name >> 4;
        if let Some(hop) = next_hop
            && *self.hops.entry(hash((key, hop))).or_insert(step) != step
        {
            self.record_violation(Violation::NextHop);
        }
        let newest = self.newest.entry(key).or_insert((uplink, downlink));
        let (up, down) = *newest;
        *newest = (up.max(uplink), down.max(downlink));
        if uplink < up {
            self.record_violation(Violation::Replay(uplink));
        }
        if downlink < down {
            self.record_violation(Violation::Count(downlink));
        }
    }

    /// The balancer has taken something from a host for a bucket's UE. Who has been followed by another one may not, unless a
    /// map has made it the owner since.
    pub(super) fn on_host_output(&mut self, host: HostId, bucket: Bucket) {
        if let Some(last) = self.speakers.insert(bucket, host).filter(|last| *last != host) {
            self.before.insert((bucket, last));
        }
        if self.before.contains(&(bucket, host)) {
            self.record_violation(Violation::TwoOwners(host));
        }
    }

    /// The balancer goes by a new map.
    pub(super) fn goes_by(&mut self, map: &BucketMap) {
        self.before.retain(|(bucket, host)| map.owners(*bucket).owner() != Some(*host));
    }
}

/// The sequence number of the protected NAS message that an NGAP PDU carries beside what it is about.
fn protected(pdu: &[u8]) -> Option<u8> {
    let pdu = NGAP_PDU::decode_borrowed(pdu).ok()?;
    let nas = pdu.ie::<ie::NAS_PDU>()?.ok()?;
    let nas: &[u8] = &nas.0;
    (nas.len() > 7 && nas[0] == 0x7e && nas[1] & 0xf != 0).then(|| nas[6])
}
