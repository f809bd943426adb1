//! RAN nodes as far as hosts that join later need them, and NG Setup in a cluster.
//!
//! One host decides on an NG Setup. The balancer sends the request to the other hosts only when the
//! first host accepts it, before the NG Setup Response leaves. Hosts that join later receive it,
//! too.

use super::output::Output;
use crate::amf::access;
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::message::{AssociationOwner, BalancerNotice, Envelope, PeerEvent, ToHost};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use vireo_types::{AssocId, Dialect, limits};

/// NG SETUP RESPONSE and S1 SETUP RESPONSE (TS 38.413 9.4.7, TS 36.413 9.3.6).
const fn setup_response(dialect: Dialect) -> [u8; 2] {
    match dialect {
        Dialect::Nr => [0x20, 21],
        Dialect::Eps => [0x20, 17],
    }
}

/// NG SETUP FAILURE and S1 SETUP FAILURE.
const fn setup_failure(dialect: Dialect) -> [u8; 2] {
    match dialect {
        Dialect::Nr => [0x40, 21],
        Dialect::Eps => [0x40, 17],
    }
}

/// Maximum of NG Setup Request and RAN Configuration Updates stored per RAN node.
const MESSAGES_PER_NODE: usize = 32;
/// Maximum of their octets: the NG Setup Request and three updates of the largest size.
const OCTETS_PER_NODE: usize = 4 * limits::NGAP_PDU_OCTETS;

/// State of a RAN node that hosts need when they join.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownRanNode {
    peer: SocketAddr,
    /// The NG Setup Request and the RAN Configuration Updates since.
    messages: VecDeque<Vec<u8>>,
    /// Set if the node has done NG Setup on another association: the owner of this association.
    owner: Option<AssociationOwner>,
}

fn is_over_limit(messages: &VecDeque<Vec<u8>>) -> bool {
    messages.len() > MESSAGES_PER_NODE || messages.iter().map(Vec::len).sum::<usize>() > OCTETS_PER_NODE
}

/// NG Setup that a host decides on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingSetup {
    pub(super) host: HostId,
    /// The NG Setup Request.
    pub(super) envelope: Envelope,
}

/// RAN nodes and unanswered NG Setups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RanState {
    nodes: BTreeMap<AssocId, KnownRanNode>,
    setups: BTreeMap<AssocId, PendingSetup>,
}

impl RanState {
    /// Stores the state that hosts need when they join later, from an event to all hosts.
    pub(super) fn on_event(&mut self, event: &PeerEvent) {
        match event {
            PeerEvent::Up { assoc, peer } => {
                let node = KnownRanNode { peer: *peer, messages: VecDeque::new(), owner: None };
                self.nodes.insert(*assoc, node);
            }
            PeerEvent::Down { assoc, restarted: true } => {
                self.setups.remove(assoc);
                if let Some(node) = self.nodes.get_mut(assoc) {
                    node.messages.clear();
                    node.owner = None;
                }
            }
            PeerEvent::Down { assoc, .. } => self.remove(*assoc),
            PeerEvent::Ngap { assoc, pdu, .. } if event.is_configuration_update() => {
                let Some(node) = self.nodes.get_mut(assoc) else { return };
                node.messages.push_back(pdu.clone());
                // Each update replaces the values it contains; the NG Setup at index 0 stays.
                while is_over_limit(&node.messages) && node.messages.remove(1).is_some() {}
            }
            _ => {}
        }
    }

    /// Stores an NG Setup Request that a host decides on.
    pub(super) fn on_setup_sent(&mut self, host: HostId, envelope: Envelope) {
        if let PeerEvent::Ngap { assoc, .. } = envelope.event {
            self.setups.insert(assoc, PendingSetup { host, envelope });
        }
    }

    /// Handles a host's message that does not concern a UE. Returns the NG Setup that it accepts.
    pub(super) fn on_node_message(&mut self, assoc: AssocId, pdu: &[u8]) -> Option<PendingSetup> {
        if pdu.starts_with(&setup_failure(assoc.dialect())) {
            self.setups.remove(&assoc);
        }
        if !pdu.starts_with(&setup_response(assoc.dialect())) {
            return None;
        }
        let setup = self.setups.remove(&assoc)?;
        let node = self.nodes.get_mut(&assoc)?;
        let PeerEvent::Ngap { pdu, .. } = &setup.envelope.event else { return None };
        (node.messages, node.owner) = (VecDeque::from([pdu.clone()]), None);
        Some(setup)
    }

    /// Removes an association that has ended or is about to end.
    pub(super) fn remove(&mut self, assoc: AssocId) {
        self.nodes.remove(&assoc);
        self.setups.remove(&assoc);
    }

    /// Stores the RAN node of an additional association. A host that joins later may not receive
    /// that node's NG Setup.
    pub(super) fn set_owner(&mut self, owner: AssociationOwner) {
        if let Some(node) = self.nodes.get_mut(&owner.assoc) {
            node.owner = Some(owner);
        }
    }

    /// Removes and returns the NG Setups of removed hosts.
    pub(super) fn take_setups(&mut self, is_removed: impl Fn(HostId) -> bool) -> Vec<Envelope> {
        let removed = self.setups.extract_if(.., |_, setup| is_removed(setup.host));
        removed.map(|(_, setup)| setup.envelope).collect()
    }

    /// Sends all associations and their RAN nodes to a host that joins.
    pub(super) fn send_all(&self, connection: ConnectionId, output: &mut dyn Output) {
        for (assoc, node) in &self.nodes {
            let event = |event| ToHost::Event(Cow::Owned(Envelope { answers: false, ..Envelope::new(event) }));
            output.send(connection, &event(PeerEvent::Up { assoc: *assoc, peer: node.peer }));
            if let Some(owner) = &node.owner {
                output.send(connection, &ToHost::Notice(BalancerNotice::RanNode(Box::new(owner.clone()))));
            }
            for pdu in &node.messages {
                let ngap =
                    PeerEvent::Ngap { assoc: *assoc, view: access::peek(assoc.dialect(), pdu).ok(), pdu: pdu.clone() };
                output.send(connection, &event(ngap));
            }
        }
    }

    /// Returns the peer of an association, and true if the association belongs to a RAN node.
    pub(super) fn node(&self, assoc: AssocId) -> Option<(SocketAddr, bool)> {
        let node = self.nodes.get(&assoc)?;
        Some((node.peer, node.owner.is_some() || !node.messages.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer may have hundreds of associations.
    #[test]
    fn updates_take_bounded_memory() {
        let assoc = AssocId(1);
        let mut state = RanState::default();
        state.on_event(&PeerEvent::Up { assoc, peer: SocketAddr::from(([192, 0, 2, 9], 38412)) });
        let update = |state: &mut RanState, number: u8, octets| {
            let pdu = [vec![0, 35, number], vec![0; octets - 3]].concat();
            state.on_event(&PeerEvent::Ngap { assoc, view: None, pdu });
            state.nodes[&assoc].messages.iter().map(|pdu| pdu[2]).collect::<Vec<_>>()
        };
        for number in 0..100 {
            update(&mut state, number, limits::NGAP_PDU_OCTETS);
        }
        assert_eq!(update(&mut state, 100, 3), [0, 98, 99, 100]);
        for number in 101..200 {
            update(&mut state, number, 3);
        }
        let stored = update(&mut state, 200, 3);
        assert_eq!((stored.len(), stored[0], stored[1], stored[31]), (MESSAGES_PER_NODE, 0, 170, 200));
    }
}
