//! PFCP peers: `[n4]`, `[upf] control-planes` and `[upf.associations]`.

use crate::file::{File, Upf};
use crate::problems::{Problems, is_domain};
use crate::values::DurationText;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use vireo_core::config::NodeName;
use vireo_ops::config::N4Config;
use vireo_types::{Duration, Network};
use vireo_upf::{AssociationConfig, ControlPlane as Peer};
use vireo_wire::pfcp::NodeId;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct N4 {
    pub(super) listen: SocketAddr,
    pub(super) node_id: String,
    pub(super) direct: bool,
    pub(super) allow: Vec<String>,
}

impl Default for N4 {
    fn default() -> Self {
        let N4Config { listen, direct, .. } = N4Config::default();
        N4 { listen, node_id: "auto".to_owned(), direct, allow: Vec::new() }
    }
}

/// Entry of `[upf] control-planes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an address, a network, or { node-id = NAME, addresses = [...] } is allowed")]
pub(super) enum ControlPlane {
    Network(String),
    Node(Node),
}

/// Control plane identified by its Node ID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Node {
    node_id: String,
    addresses: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Associations {
    /// 0 means no heartbeats.
    heartbeat_interval: DurationText,
    heartbeat_attempts: u8,
    keep_sessions: DurationText,
    max: usize,
    max_per_address: usize,
}

impl Default for Associations {
    fn default() -> Self {
        let AssociationConfig { heartbeat_interval, heartbeat_attempts, keep_sessions, max, max_per_address, .. } =
            AssociationConfig::default();
        Associations {
            heartbeat_interval: DurationText(heartbeat_interval.unwrap_or_default().into()),
            heartbeat_attempts,
            keep_sessions: DurationText(keep_sessions.into()),
            max,
            max_per_address,
        }
    }
}

/// Returns the control plane's endpoint, with the UPFs of the file.
pub(super) fn n4(file: &File, problems: &mut Problems) -> N4Config {
    let N4 { listen, direct, allow, .. } = &file.n4;
    let allow = networks("n4.allow", allow, problems);
    let own = file.upf.enabled.then_some(file.upf.n4);
    let upfs = own.into_iter().chain(file.external_upf.iter().map(|upf| upf.n4));
    for upf in upfs.filter(|_| !allow.is_empty()) {
        let is_in = allow.iter().any(|network| network.contains(upf.ip()));
        problems.check(is_in, "n4.allow", format_args!("the UPF at {upf} is not in it: add its address"));
    }
    N4Config { listen: *listen, direct: *direct, allow }
}

/// Returns the UPF's rules for PFCP associations.
pub(super) fn associations(file: &Upf, problems: &mut Problems) -> AssociationConfig {
    let Associations { heartbeat_interval, heartbeat_attempts, keep_sessions, max, max_per_address } =
        file.associations;
    let key = |name: &str| format!("upf.associations.{name}");
    let interval = heartbeat_interval.0;
    let allowed = interval == Duration(0) || (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&interval);
    problems.check(allowed, &key("heartbeat-interval"), "1s to 1h is allowed, and \"0s\" for none");
    problems.check((1..=10).contains(&heartbeat_attempts), &key("heartbeat-attempts"), "1 to 10 is allowed");
    let longest = Duration::from_secs(30 * 24 * 3600);
    problems.check(keep_sessions.0 <= longest, &key("keep-sessions"), "0s to 30days is allowed");
    problems.check((1..=4096).contains(&max), &key("max"), "1 to 4096 is allowed");
    problems.check(
        (1..=max).contains(&max_per_address),
        &key("max-per-address"),
        "1 to upf.associations.max is allowed",
    );
    AssociationConfig {
        control_planes: file.control_planes.iter().enumerate().map(|(n, entry)| peer(n, entry, problems)).collect(),
        heartbeat_interval: (interval != Duration(0)).then(|| interval.into()),
        heartbeat_attempts,
        keep_sessions: keep_sessions.0.into(),
        max,
        max_per_address,
    }
}

fn peer(n: usize, entry: &ControlPlane, problems: &mut Problems) -> Peer {
    let key = format!("upf.control-planes.{n}");
    let Node { node_id, addresses } = match entry {
        ControlPlane::Network(text) => {
            return Peer { node_id: None, networks: networks(&key, std::slice::from_ref(text), problems) };
        }
        ControlPlane::Node(node) => node,
    };
    let id = self::node_id(node_id);
    problems.check(id.is_some(), &format!("{key}.node-id"), "an address or a domain name is allowed");
    let key = format!("{key}.addresses");
    problems.check(!addresses.is_empty(), &key, "give the addresses that it sends from");
    Peer { node_id: id, networks: networks(&key, addresses, problems) }
}

/// Parses a Node ID.
fn node_id(text: &str) -> Option<NodeId> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(NodeId::from(address)),
        Err(_) => Some(text).filter(|name| is_domain(name)).and_then(NodeName::domain).map(|name| name.id()),
    }
}

fn networks(key: &str, texts: &[String], problems: &mut Problems) -> Vec<Network> {
    let read = |text: &String| text.parse().map_err(|what| problems.add(key, what)).ok();
    texts.iter().filter_map(read).collect()
}
