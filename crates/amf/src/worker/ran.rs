//! RAN nodes as seen by workers: a published value of the host.

use super::region_layout::BULLETIN_RAN;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use vireo_core::RanNodes;
use vireo_core::amf::ran::{SupportedArea, slices_in};
use vireo_core::placement::ran_nodes::each_node_once;
use vireo_store::region::Region;
use vireo_types::{AssocId, Dialect, RanNodeId, Snssai, Tai};

/// A RAN node with a completed NG Setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedNode {
    pub(crate) assoc: AssocId,
    pub(crate) id: RanNodeId,
    pub(crate) areas: Vec<SupportedArea>,
}

/// A worker's cached view of the published list.
#[derive(Debug)]
pub(crate) struct RanNodeView {
    region: Region,
    published: RefCell<(u64, Vec<PublishedNode>, Vec<u8>)>,
}

impl RanNodeView {
    pub(crate) fn new(region: Region) -> Self {
        RanNodeView { region, published: RefCell::default() }
    }

    fn with<T>(&self, read: impl FnOnce(&[PublishedNode]) -> T) -> T {
        let mut seen = self.published.borrow_mut();
        let (version, nodes, octets) = &mut *seen;
        if self.region.published_version(BULLETIN_RAN) != *version {
            octets.clear();
            *version = self.region.read_published(BULLETIN_RAN, octets);
            match postcard::from_bytes(octets) {
                Ok(posted) => *nodes = posted,
                Err(error) => tracing::error!(%error, "bug: list of RAN nodes does not decode"),
            }
        }
        read(nodes)
    }
}

impl RanNodes for RanNodeView {
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId> {
        let serves = |node: &&PublishedNode| node.areas.iter().any(|area| areas.contains(&area.tai));
        self.with(|nodes| each_node_once(nodes.iter().filter(serves).map(|node| (node.assoc, node.id)).collect()))
    }

    fn find(&self, id: RanNodeId) -> Option<AssocId> {
        self.with(|nodes| nodes.iter().find(|node| node.id == id).map(|node| node.assoc))
    }

    fn slices(&self, node: AssocId, tai: Tai) -> Option<Vec<Snssai>> {
        self.with(|nodes| {
            let node = nodes.iter().find(|other| other.assoc == node)?;
            slices_in(&node.areas, tai).map(<[Snssai]>::to_vec)
        })
    }

    fn misses(&self, tai: Tai, slices: &[Snssai]) -> bool {
        let misses = |node: &PublishedNode| {
            let supported = slices_in(&node.areas, tai).filter(|_| node.assoc.dialect() == Dialect::Nr);
            supported.is_some_and(|supported| slices.iter().any(|snssai| !supported.contains(snssai)))
        };
        self.with(|nodes| nodes.iter().any(misses))
    }

    fn is_ng_enb(&self, node: AssocId) -> bool {
        let is_it = |other: &PublishedNode| other.assoc == node && matches!(other.id, RanNodeId::NgEnb(_));
        self.with(|nodes| nodes.iter().any(is_it))
    }
}
