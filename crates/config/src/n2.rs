//! `[n2]`: endpoints for RAN nodes, and admission of RAN nodes.

use crate::problems::{Problems, addresses};
use crate::s1::{self, S1};
use crate::values::{DurationText, LocalAddress};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use vireo_core::amf::ran::admission::Allow as Entry;
use vireo_ops::config::N2Config;
use vireo_sctp::Driver;
use vireo_types::Plmn;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct N2 {
    driver: SctpDriver,
    addresses: Vec<LocalAddress>,
    port: u16,
    udp_port: u16,
    udp_peer_port: u16,
    /// Empty: the core announces no endpoints, and RAN nodes keep only their initial association.
    pub(super) endpoints: Vec<IpAddr>,
    pub(super) rrc_inactive: bool,
    max_associations_per_address: u32,
    setup_within: DurationText,
    /// Name of the data network of emergency PDU sessions; empty = there are none.
    pub(super) emergency_dnn: String,
    /// Empty means any RAN node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) allow: Vec<Allow>,
}

impl Default for N2 {
    fn default() -> Self {
        let n2 = N2Config::default();
        N2 {
            driver: SctpDriver::Auto,
            addresses: n2.addresses.into_iter().map(LocalAddress::Fixed).collect(),
            port: n2.port,
            udp_port: n2.udp_port,
            udp_peer_port: n2.udp_peer_port,
            endpoints: Vec::new(),
            rrc_inactive: true,
            max_associations_per_address: n2.associations_per_address,
            setup_within: DurationText(n2.setup_within.into()),
            emergency_dnn: String::new(),
            allow: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SctpDriver {
    Auto,
    Kernel,
    UserspaceIp,
    UserspaceUdp,
}

/// Admits RAN nodes from a range of addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Allow {
    addresses: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plmn: Option<Plmn>,
    /// First and last admitted node ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_ids: Option<[u32; 2]>,
}

pub(super) fn n2(n2: &N2, s1: &S1, problems: &mut Problems) -> N2Config {
    let addresses = addresses("n2.addresses", &n2.addresses, problems);
    for (key, port) in [("n2.port", n2.port), ("n2.udp-port", n2.udp_port), ("n2.udp-peer-port", n2.udp_peer_port)] {
        problems.check(port != 0, key, "1 to 65535 is allowed");
    }
    let driver = match n2.driver {
        SctpDriver::Auto => Driver::Auto,
        SctpDriver::Kernel => Driver::Kernel,
        SctpDriver::UserspaceIp => Driver::UserspaceIp,
        SctpDriver::UserspaceUdp => Driver::UserspaceUdp,
    };
    let (most, within) = (n2.max_associations_per_address, std::time::Duration::from(n2.setup_within.0));
    problems.check((1..=4096).contains(&most), "n2.max-associations-per-address", "1 to 4096 is allowed");
    problems.check((1..=3600).contains(&within.as_secs()), "n2.setup-within", "\"1s\" to \"1h\" is allowed");
    N2Config {
        driver,
        addresses,
        port: n2.port,
        udp_port: n2.udp_port,
        udp_peer_port: n2.udp_peer_port,
        s1: s1::s1(s1, n2.udp_port, problems),
        allow: allow(&n2.allow, problems),
        associations_per_address: most,
        setup_within: within,
    }
}

/// Returns the admission list of RAN nodes.
pub(super) fn allow(list: &[Allow], problems: &mut Problems) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (n, entry) in list.iter().enumerate() {
        let key = |name| format!("n2.allow.{n}.{name}");
        match entry.addresses.parse() {
            Ok(network) => {
                let ids = entry.node_ids.map(|[first, last]| (first, last));
                entries.push(Entry { network, plmn: entry.plmn, ids });
            }
            Err(what) => problems.add(key("addresses"), format_args!("{what}")),
        }
        if entry.node_ids.is_some_and(|[first, last]| first > last) {
            problems.add(key("node-ids"), "the first is greater than the last; write [first, last]");
        }
    }
    entries
}
