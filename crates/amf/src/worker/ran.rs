//! RAN nodes as seen by workers: a published value of the host.

use super::region_layout::BULLETIN_RAN;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use vireo_core::RanNodes;
use vireo_core::amf::ran::{RanNode, SupportedArea, area_lacks, slices_in};
use vireo_core::config::CoreConfig;
use vireo_core::placement::ran_nodes::each_node_once;
use vireo_store::region::Region;
use vireo_types::{AssocId, Dialect, RanNodeId, Snssai, Tac, Tai};

/// A RAN node with a completed NG Setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedNode {
    pub(crate) assoc: AssocId,
    pub(crate) id: RanNodeId,
    pub(crate) areas: Vec<SupportedArea>,
}

/// Encodes the list that workers read.
#[derive(Debug, Default)]
pub(crate) struct NodeListEncoder {
    /// Nodes of the last list. Those that have not changed are not encoded again: each of them may
    /// have thousands of tracking areas.
    nodes: BTreeMap<AssocId, EncodedNode>,
}

#[derive(Debug)]
struct EncodedNode {
    id: RanNodeId,
    /// All tracking areas of the node.
    areas: Arc<[SupportedArea]>,
    octets: Vec<u8>,
}

impl NodeListEncoder {
    /// Encodes the nodes in at most `room` bytes. If not all fit, those with the longest lists of
    /// tracking areas are omitted: a node with a long list takes no room of others. Returns also
    /// the number of omitted nodes.
    pub(crate) fn encode<'n>(
        &mut self,
        nodes: impl Iterator<Item = (AssocId, &'n RanNode)>,
        config: &CoreConfig,
        room: usize,
    ) -> Result<(Vec<u8>, usize), postcard::Error> {
        /// Most octets of the number of nodes.
        const COUNT: usize = 5;
        let mut former = std::mem::take(&mut self.nodes);
        for (assoc, record) in nodes {
            let is_same = |node: &EncodedNode| node.id == record.id && Arc::ptr_eq(&node.areas, &record.areas);
            let node = match former.remove(&assoc).filter(is_same) {
                Some(node) => node,
                None => EncodedNode {
                    id: record.id,
                    areas: record.areas.clone(),
                    octets: postcard::to_stdvec(&published(assoc, record, config))?,
                },
            };
            self.nodes.insert(assoc, node);
        }
        let mut parts: Vec<&[u8]> = self.nodes.values().map(|node| &node.octets[..]).collect();
        let mut used = COUNT + parts.iter().map(|part| part.len()).sum::<usize>();
        if used > room {
            parts.sort_by_key(|part| part.len());
            while let Some(longest) = parts.pop_if(|_| used > room) {
                used -= longest.len();
            }
        }
        let mut octets = postcard::to_stdvec(&parts.len())?;
        parts.iter().for_each(|part| octets.extend_from_slice(part));
        Ok((octets, self.nodes.len() - parts.len()))
    }
}

/// Returns what workers need of a node: the tracking areas and slices that the core serves. A node
/// may name thousands of others (TS 38.413 9.2.6.1).
fn published(assoc: AssocId, record: &RanNode, config: &CoreConfig) -> PublishedNode {
    let tacs: FxHashSet<Tac> = config.tacs.iter().copied().collect();
    let mut seen = FxHashSet::default();
    // The first item of a tracking area applies.
    let mut is_served = |tai: Tai| config.plmns.contains(&tai.plmn) && tacs.contains(&tai.tac) && seen.insert(tai);
    let served = record.areas.iter().filter(|area| is_served(area.tai));
    let areas = served.map(|area| SupportedArea { tai: area.tai, slices: served_slices(&area.slices, config) });
    PublishedNode { assoc, id: record.id, areas: areas.collect() }
}

fn served_slices(slices: &[Snssai], config: &CoreConfig) -> Vec<Snssai> {
    let slices: FxHashSet<Snssai> = slices.iter().copied().collect();
    config.slices.iter().map(|slice| slice.snssai).filter(|snssai| slices.contains(snssai)).collect()
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
        self.with(|nodes| {
            let nodes = nodes.iter().filter(|node| node.assoc.dialect() == Dialect::Nr);
            area_lacks(nodes.filter_map(|node| slices_in(&node.areas, tai)), slices)
        })
    }

    fn is_ng_enb(&self, node: AssocId) -> bool {
        let is_it = |other: &PublishedNode| other.assoc == node && matches!(other.id, RanNodeId::NgEnb(_));
        self.with(|nodes| nodes.iter().any(is_it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::GnbId;

    const OTHER: Snssai = Snssai { sst: 200, sd: Some(7) };

    fn tai(config: &CoreConfig, tac: u32) -> Tai {
        Tai { plmn: config.plmns[0], tac: Tac(tac) }
    }

    fn record(config: &CoreConfig, id: u32, areas: Vec<SupportedArea>) -> RanNode {
        let id = GnbId { plmn: config.plmns[0], id, bits: 24 }.into();
        RanNode { id, name: String::new(), areas: areas.into() }
    }

    #[test]
    fn unserved_areas_and_slices_are_omitted() {
        let config = CoreConfig { tacs: vec![Tac(1), Tac(2)], ..CoreConfig::lab() };
        let own = config.slices[0].snssai;
        let slices = vec![OTHER, own, own];
        let area = |tac| SupportedArea { tai: tai(&config, tac), slices: slices.clone() };
        let none = SupportedArea { tai: tai(&config, 2), slices: vec![OTHER] };
        let node = record(&config, 1, [vec![none, area(1), area(1)], (3..3000).map(area).collect()].concat());
        let areas = published(AssocId(1), &node, &config).areas;
        assert_eq!(areas.len(), 2);
        assert_eq!(slices_in(&areas, tai(&config, 1)), Some(&[own][..]));
        assert_eq!(slices_in(&areas, tai(&config, 2)), Some(&[][..]));
        assert_eq!(slices_in(&areas, tai(&config, 3)), None);
    }

    #[test]
    fn long_lists_take_no_room_of_others() {
        let config = CoreConfig { tacs: (0..3000).map(Tac).collect(), ..CoreConfig::lab() };
        let slices = vec![config.slices[0].snssai];
        let node = |assoc: u32, areas: u32| {
            let areas = (0..areas).map(|tac| SupportedArea { tai: tai(&config, tac), slices: slices.clone() });
            (AssocId(assoc), record(&config, assoc, areas.collect()))
        };
        let mut records: Vec<_> = (0..40).map(|n| node(n, if n % 2 == 0 { 3000 } else { 2 })).collect();
        let mut encoder = NodeListEncoder::default();
        let mut encode = |records: &[(AssocId, RanNode)], room| {
            let nodes = records.iter().map(|(assoc, record)| (*assoc, record));
            let (octets, omitted) = encoder.encode(nodes, &config, room).expect("it encodes");
            let read: Vec<PublishedNode> = postcard::from_bytes(&octets).expect("it decodes");
            assert!(octets.len() <= room && read.len() == records.len() - omitted, "{room}: {omitted}");
            (read, octets.len())
        };
        let (read, all) = encode(&records, usize::MAX);
        let expected: Vec<_> = records.iter().map(|(assoc, record)| published(*assoc, record, &config)).collect();
        assert_eq!(read, expected);
        for room in [all - 1, all / 2, 2000] {
            let (read, _) = encode(&records, room);
            assert!(read.len() < 40, "{room}");
            assert_eq!(read.iter().filter(|node| node.areas.len() == 2).count(), 20, "{room}");
        }
        // Other areas, another node at an association, one node less.
        records[1].1 = node(1, 3).1;
        records[3].1 = node(77, 2).1;
        records.pop();
        let (read, _) = encode(&records, usize::MAX);
        let expected: Vec<_> = records.iter().map(|(assoc, record)| published(*assoc, record, &config)).collect();
        assert_eq!(read, expected);
    }
}
