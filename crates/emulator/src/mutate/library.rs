//! PDUs by kind, as input of mutations or for the wrong time.

use super::dice::pick;
use super::{ngap, s1ap};
use crate::dialect::{Node, Protocol, UeIds};
use crate::load::Rng;
use crate::ran::{ConnectionId, Outbox};
use crate::rat::Rat;
use vireo_types::Guti;
use vireo_wire::{ngap as ng, s1ap as s1};

/// Maximum number of stored PDUs of a kind.
const EACH: usize = 4;
/// First octets of a PATH SWITCH REQUEST: initiating message and procedure code.
const PATH_SWITCHES: [[u8; 2]; 2] = [[0, 25], [0, 3]];

/// UE-associated PDUs of one protocol by direction and procedure code. They come from the
/// associations, in both directions, and from builders.
#[derive(Debug)]
pub(super) struct Library {
    protocol: &'static Protocol,
    ue: Vec<([u8; 2], Vec<Vec<u8>>)>,
}

impl Library {
    /// Creates a library with a PDU of each kind that emulated nodes do not send by themselves.
    pub(super) fn new(node: &Node, target: &Node) -> Self {
        let mut library = Library { protocol: Protocol::by_rat(node.rat()), ue: Vec::new() };
        let rare = match (node, target) {
            (Node::Gnb(gnb), Node::Gnb(target)) => ngap::rare(gnb, target),
            (Node::Enb(enb), _) => s1ap::rare(enb),
            _ => Vec::new(),
        };
        rare.iter().for_each(|octets| library.keep(octets));
        library
    }

    /// Stores a UE-associated PDU if there are few of its kind.
    pub(super) fn keep(&mut self, octets: &[u8]) {
        let [choice, code, ..] = *octets else { return };
        if !self.protocol.names_ue(octets) {
            return;
        }
        match self.ue.iter_mut().find(|(known, _)| *known == [choice, code]) {
            Some((_, kept)) if kept.len() < EACH => kept.push(octets.to_vec()),
            Some(_) => {}
            None => self.ue.push(([choice, code], vec![octets.to_vec()])),
        }
    }

    /// Returns a PDU of a random kind; all kinds have the same probability.
    pub(super) fn any(&self, rng: &mut Rng) -> &[u8] {
        match self.ue.as_slice() {
            [] => &[],
            kinds => {
                let (_, kept) = pick(rng, kinds);
                pick::<Vec<u8>>(rng, kept)
            }
        }
    }

    /// Returns a PDU of a random kind for this UE.
    pub(super) fn about(&self, ids: UeIds, rng: &mut Rng) -> Option<Vec<u8>> {
        self.protocol.retarget(self.any(rng), Some(ids.core), Some(ids.ran))
    }

    /// As `about`, without kinds that the core accepts from any RAN node: PATH SWITCH REQUEST (TS
    /// 38.413 8.4.4, TS 36.413 8.4.4).
    pub(super) fn about_foreign(&self, ids: UeIds, rng: &mut Rng) -> Option<Vec<u8>> {
        let octets = self.any(rng);
        let switches = PATH_SWITCHES[usize::from(self.protocol.rat == Rat::Eps)];
        if octets.starts_with(&switches) {
            return None;
        }
        self.protocol.retarget(octets, Some(ids.core), Some(ids.ran))
    }
}

/// Returns an UPLINK NAS TRANSPORT with these identifiers.
pub(crate) fn uplink_nas(node: &Node, ids: UeIds, nas: &[u8]) -> Option<Vec<u8>> {
    match node {
        Node::Gnb(gnb) => ngap::uplink_nas(gnb, ids, nas),
        Node::Enb(enb) => s1ap::uplink_nas(enb, ids, nas),
    }
}

/// Returns an INITIAL UE MESSAGE with this RAN-UE-NGAP-ID or eNB-UE-S1AP-ID.
pub(crate) fn initial_ue(node: &Node, ran: u32, nas: &[u8], guti: Option<Guti>) -> Option<Vec<u8>> {
    let mut out = Outbox::default();
    match node.twin() {
        Node::Gnb(mut gnb) => gnb.initial_ue(0, nas, guti, ng::RRCEstablishmentCause::mo_Signalling, &mut out).ok()?,
        Node::Enb(mut enb) => enb.initial_ue(0, nas, guti, s1::RRCEstablishmentCause::mo_Signalling, &mut out).ok()?,
    };
    let octets = out.pdus().next()?.1.to_vec();
    Protocol::by_rat(node.rat()).retarget(&octets, None, Some(ran))
}

/// Returns a non-UE-associated message. It is SETUP, CONFIGURATION UPDATE, RESET of a connection,
/// an answer to one of these, or a message that only the core sends.
pub(super) fn node_message(node: &Node, ids: UeIds, rng: &mut Rng) -> Option<Vec<u8>> {
    let mut twin = node.twin();
    let mut out = Outbox::default();
    match (rng.below(9), node) {
        (0 | 1, _) => twin.set_up(2, &mut out).ok()?,
        (2..=4, _) => twin.update_configuration(&mut out).ok()?,
        (kind, Node::Gnb(_)) => return ngap::node_message(ids, kind - 5),
        (kind, Node::Enb(_)) => return s1ap::node_message(ids, kind - 5),
    }
    let (_, octets) = out.pdus().next()?;
    Some(octets.to_vec())
}

/// Returns the identifiers of the node's connection.
pub(super) fn ids_of(node: &Node, id: ConnectionId) -> Option<UeIds> {
    Some(UeIds { core: node.core_id(id)?, ran: id.0 })
}
