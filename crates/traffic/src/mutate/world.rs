//! Parameters of a campaign, and the state from which its messages are made.

use super::elements::Element;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use vireo_types::Teid;
use vireo_wire::pfcp::NodeId;

/// Maximum number of the attacker's sessions.
pub(super) const OWN: usize = 96;
/// Number of UE addresses for these sessions.
pub(super) const UES: u32 = 2_048;
/// Number of ended sessions, and of sent messages, that are kept for reuse.
pub(super) const PAST: usize = 64;

/// Parameters of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// PFCP address of the UPF.
    pub upf: SocketAddr,
    /// Address of the control plane with an association.
    pub attacker: SocketAddrV4,
    /// Addresses of the senders without an association.
    pub strangers: Vec<SocketAddrV4>,
    /// Control plane whose sessions are attacked.
    pub target: TargetControlPlane,
    /// N3 address of a RAN node.
    pub gnb: Ipv4Addr,
    /// First of the 2,048 UE addresses of the attacker's sessions.
    pub first_ue: Ipv4Addr,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of messages to send.
    pub count: u64,
}

/// Control plane whose sessions are attacked. In the worst case, the attacker knows all its
/// numbers.
#[derive(Clone, Debug)]
pub struct TargetControlPlane {
    /// Its address, which is also its Node ID.
    pub address: Ipv4Addr,
    /// Its Recovery Time Stamp.
    pub recovery: u32,
    /// SEIDs of the UPF for its sessions.
    pub seids: Vec<u64>,
    /// Uplink TEIDs of its sessions.
    pub teids: Vec<Teid>,
    /// UE address of its first session. Those of the others follow.
    pub first_ue: Ipv4Addr,
}

/// State from which messages are made.
#[derive(Debug)]
pub(super) struct World {
    pub(super) target: TargetControlPlane,
    pub(super) attacker: Ipv4Addr,
    pub(super) gnb: Ipv4Addr,
    pub(super) first_ue: Ipv4Addr,
    /// Recovery Time Stamp of the attacker.
    pub(super) recovery: u32,
    /// True while the attacker has an association.
    pub(super) associated: bool,
    /// SEIDs of the attacker's sessions.
    pub(super) own: Vec<u64>,
    /// SEIDs of the attacker's ended sessions.
    pub(super) ended: VecDeque<u64>,
    /// Messages that the attacker sent.
    pub(super) sent: VecDeque<Vec<u8>>,
    /// Elements of messages that the attacker sent.
    pub(super) elements: Vec<Element>,
    pub(super) rng: SmallRng,
}

impl World {
    pub(super) fn new(campaign: &Campaign) -> Self {
        World {
            target: campaign.target.clone(),
            attacker: *campaign.attacker.ip(),
            gnb: campaign.gnb,
            first_ue: campaign.first_ue,
            recovery: campaign.target.recovery,
            associated: false,
            own: Vec::new(),
            ended: VecDeque::new(),
            sent: VecDeque::new(),
            elements: Vec::new(),
            rng: SmallRng::seed_from_u64(campaign.seed),
        }
    }

    pub(super) fn node_id(&self) -> NodeId {
        NodeId::Ipv4(self.attacker)
    }

    /// Moves all sessions of the attacker to the ended ones.
    pub(super) fn forget(&mut self) {
        let own = std::mem::take(&mut self.own);
        own.into_iter().for_each(|seid| self.remember_ended(seid));
    }

    pub(super) fn remember_ended(&mut self, seid: u64) {
        if self.ended.len() >= PAST {
            self.ended.pop_front();
        }
        self.ended.push_back(seid);
    }
}
