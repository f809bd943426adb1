//! RAN nodes and the peer addresses by which they count.

use super::ran_table::Nodes;
use std::net::IpAddr;
use vireo_types::{AssocId, machine_address};

/// A RAN node and its peer address as [`machine_address`], if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) node: AssocId,
    pub(super) address: Option<IpAddr>,
}

impl Origin {
    pub(super) fn new(node: AssocId, peer: Option<IpAddr>) -> Self {
        Origin { node, address: peer.map(machine_address) }
    }
}

/// Returns a RAN node and the address by which its machine counts.
pub(super) fn origin(nodes: &Nodes, node: AssocId) -> Origin {
    Origin::new(node, nodes.get(node).map(|node| node.peer.ip()))
}
