//! Slot map of a Redis Cluster: which node serves which slot.

use redis::Value;

/// Number of hash slots of a cluster.
const SLOTS: u16 = 16384;

/// A range of slots of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    /// Master of the slots, as `HOST:PORT`.
    master: String,
    /// Number of working replicas.
    replicas: u16,
}

/// The slot map as one node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    ranges: Vec<Range>,
    /// All nodes that the answer names.
    pub(super) nodes: Vec<String>,
}

impl SlotMap {
    /// Parses the answer of a node to CLUSTER SLOTS; `None` if it is invalid.
    pub(super) fn parse(answer: &Value, asked: &str) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut map = SlotMap::default();
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [first, last, master, replicas @ ..] = &range[..] else { return None };
            let (Value::Int(first), Value::Int(last)) = (first, last) else { return None };
            let master = node(master, asked)?;
            let slot = |n: &i64| u16::try_from(*n).ok().filter(|n| *n < SLOTS);
            let (first, last) = (slot(first)?, slot(last)?);
            let replicas: Vec<_> = replicas.iter().filter_map(|replica| node(replica, asked)).collect();
            map.ranges.push(Range { first, last, master: master.clone(), replicas: replicas.len() as u16 });
            map.nodes.extend(std::iter::once(master).chain(replicas));
        }
        map.ranges.sort_by_key(|range| range.first);
        map.nodes.sort_unstable();
        map.nodes.dedup();
        Some(map)
    }

    /// Returns the master of a key's slot, and its number of replicas.
    pub(super) fn master(&self, key: &str) -> Option<(&str, u16)> {
        let slot = slot(key);
        let after = self.ranges.partition_point(|range| range.first <= slot);
        let range = self.ranges.get(after.checked_sub(1)?).filter(|range| slot <= range.last)?;
        Some((&range.master, range.replicas))
    }

    /// Returns each master once.
    pub(super) fn masters(&self) -> impl Iterator<Item = &str> {
        let is_master = |node: &&String| self.ranges.iter().any(|range| range.master == **node);
        self.nodes.iter().filter(is_master).map(String::as_str)
    }

    /// Returns true if the node is a master with fewer than `replicas` replicas.
    pub(super) fn lacks_replicas(&self, node: &str, replicas: u16) -> bool {
        self.ranges.iter().any(|range| range.master == node && range.replicas < replicas)
    }

    /// Returns the number of replicas of a master.
    pub(super) fn replicas(&self, master: &str) -> u16 {
        self.ranges.iter().find(|range| range.master == master).map_or(0, |range| range.replicas)
    }
}

/// Returns `HOST:PORT` of a node in the answer.
fn node(node: &Value, asked: &str) -> Option<String> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), ..] = &node[..] else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    // An empty name means the host of the asked node.
    let host = if host.is_empty() { asked.rsplit_once(':').map_or(asked, |(host, _)| host) } else { host };
    Some(format!("{host}:{port}"))
}

/// Returns the slot of a key: CRC16 (XMODEM) of the text between its first braces, if it is not
/// empty.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let octets = tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes();
    let mut crc = 0u16;
    for octet in octets {
        crc ^= u16::from(*octet) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_slot_matches_specification() {
        // The check value of CRC16 XMODEM is 0x31c3.
        assert_eq!(slot("123456789"), 0x31c3, "below 16384");
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        assert_eq!(slot("foo{}{bar}"), 8363, "an empty tag is none");
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
    }

    #[test]
    fn map_says_whose_key_is() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: &str, port| Value::Array(vec![text(host), Value::Int(port), text("id")]);
        let range =
            |first, last, nodes: &[Value]| Value::Array([&[Value::Int(first), Value::Int(last)][..], nodes].concat());
        let upper = range(8192, 16383, &[node("b", 2)]);
        let lower = range(0, 8190, &[node("", 1), node("c", 3)]);
        let map = SlotMap::parse(&Value::Array(vec![upper, lower]), "a:7000").unwrap();
        assert_eq!(map.nodes, ["a:1", "b:2", "c:3"]);
        assert_eq!((map.replicas("a:1"), map.replicas("b:2")), (1, 0));
        assert_eq!(map.master("123456789"), Some(("b:2", 0)), "slot 12739");
        let of = |slot_of: &str| map.master(slot_of).map(|(master, _)| master.to_owned());
        for key in (0..100).map(|n: u32| n.to_string()) {
            let expected = if slot(&key) < 8191 { Some("a:1") } else { Some("b:2") };
            assert_eq!(of(&key).as_deref(), expected.filter(|_| slot(&key) != 8191));
        }
        assert_eq!(SlotMap::parse(&Value::Int(1), "a:7000"), None);
        assert_eq!(SlotMap::parse(&Value::Array(vec![range(0, 16384, &[node("a", 1)])]), "a:1"), None, "no such slot");
    }
}
