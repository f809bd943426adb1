//! Access control of the UPF: reachable addresses and accepted G-PDUs.
//!
//! Covers the corresponding keys of `[upf]` and `[dnn]`.

use crate::file::File;
use crate::problems::Problems;
use crate::values::Prefix;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_core::subscription::UpProtection;
use vireo_datapath::{Access, Network};
use vireo_types::PduSessionType;
use vireo_upf::UpfConfig;

/// Upper bound of entries in a list.
pub(super) const ENTRIES: usize = 256;
/// Loopback networks.
const LOOPBACK: [Network; 2] = [
    Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), length: 8 },
    Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), length: 128 },
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Dnn {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv4_pool: Option<Prefix<Ipv4Addr>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv6_pool: Option<Prefix<Ipv6Addr>>,
    /// Last part of the pool, for subscribers with a static address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) static_ipv4: Option<Prefix<Ipv4Addr>>,
    /// Last part of the pool, for subscribers with a static prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) static_ipv6: Option<Prefix<Ipv6Addr>>,
    /// Empty means all types that the pools allow.
    pub(super) types: Vec<PduSessionType>,
    pub(super) dns: Vec<IpAddr>,
    pub(super) p_cscf: Vec<IpAddr>,
    pub(super) mtu: u16,
    pub(super) slices: Vec<String>,
    pub(super) ue_to_ue: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) up_integrity: Option<UpProtection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) up_confidentiality: Option<UpProtection>,
}

impl Default for Dnn {
    fn default() -> Self {
        Dnn {
            ipv4_pool: None,
            ipv6_pool: None,
            static_ipv4: None,
            static_ipv6: None,
            types: Vec::new(),
            dns: Vec::new(),
            p_cscf: Vec::new(),
            mtu: 1400,
            slices: Vec::new(),
            ue_to_ue: true,
            up_integrity: None,
            up_confidentiality: None,
        }
    }
}

/// Sets the access rules in the configuration of the UPF.
pub(super) fn complete(file: &File, ran_interfaces: &[IpAddr], upf: &mut UpfConfig, problems: &mut Problems) {
    let protected = networks("upf.protect", &file.upf.protect, problems);
    let reachable = networks("upf.reachable", &file.upf.reachable, problems);
    let ran = networks("upf.n3-allow", &file.upf.n3_allow, problems);
    let tunnel_ends = networks("upf.tunnel-ends", &file.upf.tunnel_ends, problems);
    let of_interfaces = ran_interfaces.iter().chain(&upf.n3).copied();
    let core: Vec<IpAddr> = of_interfaces.chain(addresses(file)).collect();
    for network in &reachable {
        if let Some(address) = core.iter().find(|address| network.contains(**address)) {
            problems.add("upf.reachable", format_args!("{address} is an address of the core, which no UE may reach"));
        }
        let twice = protected.iter().any(|other| other.contains(network.address) || network.contains(other.address));
        problems.check(!twice, "upf.reachable", "an address that is not in upf.protect is allowed");
    }
    // The UPF protects the addresses of its own machine without a rule.
    let elsewhere: Vec<IpAddr> =
        core.into_iter().filter(|address| !address.is_loopback() && !address.is_unspecified()).collect();
    let protected = protected.into_iter().chain(elsewhere.iter().copied().map(single)).collect();
    // N3 of another UPF may have its address of N4, and tunnels lead there.
    let is_upf = |address: &IpAddr| file.external_upf.iter().any(|upf| upf.n4.ip() == *address);
    let mut core: Vec<Network> = elsewhere.into_iter().filter(|address| !is_upf(address)).map(single).collect();
    if !upf.has_n3_on_loopback() {
        core.extend(LOOPBACK);
    }
    upf.access = Access { protected, reachable, ran, tunnel_ends, core };
    upf.own_peer_only = file.upf.bind_peers;
    let dnns = file.dnns();
    for pool in &mut upf.pools {
        pool.isolated = dnns.get(pool.dnn.as_str()).is_some_and(|dnn| !dnn.ue_to_ue);
    }
}

/// Returns the core's addresses on all machines, except N2, S1 and N3.
fn addresses(file: &File) -> Vec<IpAddr> {
    let File { n2, n4, upf, external_upf, sbi, cluster, api, .. } = file;
    let mut all: Vec<SocketAddr> = vec![n4.listen, upf.n4, sbi.smf, cluster.balancer, cluster.listen];
    all.extend(external_upf.iter().map(|upf| upf.n4));
    all.extend(sbi.amf.all().into_iter().chain(sbi.listen).chain(api.listen.0));
    // Not host names: see `Config::protect_named_servers`.
    let servers = cluster.controller.all().into_iter().chain(cluster.etcd.iter().cloned());
    all.extend(servers.filter_map(|server| server.address()));
    n2.endpoints.iter().copied().chain(all.into_iter().map(|address| address.ip())).collect()
}

/// Returns the network of one address.
pub(super) fn single(address: IpAddr) -> Network {
    Network { address, length: if address.is_ipv4() { 32 } else { 128 } }
}

fn networks(key: &str, texts: &[String], problems: &mut Problems) -> Vec<Network> {
    let networks: Vec<Network> = texts.iter().filter_map(|text| network(text)).collect();
    let what =
        "addresses and networks like \"192.0.2.1\" and \"2001:db8:1::/48\" are allowed, no bits after the prefix";
    problems.check(networks.len() == texts.len(), key, what);
    let prefixes = networks.iter().filter(|network| network.length < if network.address.is_ipv4() { 32 } else { 128 });
    problems.check(
        prefixes.count() <= Access::PREFIXES && networks.len() <= ENTRIES,
        key,
        format_args!("up to {} networks and {ENTRIES} entries in all are allowed", Access::PREFIXES),
    );
    networks
}

/// Parses an address or a network.
fn network(text: &str) -> Option<Network> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(single(address));
    }
    let v4 = text.parse::<Prefix<Ipv4Addr>>().ok().map(|Prefix(address, length)| (address.into(), length));
    let v6 = || text.parse::<Prefix<Ipv6Addr>>().ok().map(|Prefix(address, length)| (address.into(), length));
    v4.or_else(v6).map(|(address, length)| Network { address, length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;
    use crate::{Config, check};
    use figment::providers::Env;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        parse(text, Env::prefixed("VIREO_TESTS_HAVE_NONE__")).and_then(|file| check::config(&file))
    }

    fn upf(text: &str) -> UpfConfig {
        load(text).expect(text).upf.expect("a UPF")
    }

    fn protects(upf: &UpfConfig, address: &str) -> bool {
        let address = address.parse().expect("an address");
        upf.access.protected.iter().any(|network| network.contains(address))
    }

    #[test]
    fn addresses_of_core_elsewhere_are_protected() {
        let upf = upf(r#"
            n2.addresses = ["198.51.100.1"]
            n4.listen = "198.51.100.2:8805"
            upf.n3 = ["198.51.100.3", "2001:db8:3::3"]
            upf.protect = ["192.168.0.0/16", "2001:db8:66::/48", "203.0.113.9"]
            api.listen = "198.51.100.4:9090"
            cluster.controller = "198.51.100.5:7000"
            external-upf = [{ name = "edge", n4 = "198.51.100.9:8805" }]
            "#);
        let core = ["198.51.100.1", "198.51.100.2", "198.51.100.3", "2001:db8:3::3", "198.51.100.4", "198.51.100.5"];
        for address in core.into_iter().chain(["192.168.7.7", "2001:db8:66:1::1", "203.0.113.9"]) {
            assert!(protects(&upf, address), "{address}");
        }
        let is_core = |address: &str| {
            let address = address.parse().expect("an address");
            upf.access.core.iter().any(|network| network.contains(address))
        };
        let mut internal = core.into_iter().chain(["127.0.0.1", "::1"]);
        assert!(internal.all(is_core), "no tunnel leads there: {:?}", upf.access.core);
        assert!(protects(&upf, "198.51.100.9") && !is_core("198.51.100.9"), "tunnels may lead to another UPF");
        assert!(!protects(&upf, "198.51.100.6") && !upf.own_peer_only);
        assert!(upf.access.ran.is_empty() && upf.pools.iter().all(|pool| !pool.isolated));
        let local = load("upf.n3 = [\"127.0.0.8\"]").expect("it is right").upf.expect("a UPF");
        assert!(local.access.core.is_empty(), "RAN nodes are on loopback: {:?}", local.access.core);
    }

    #[test]
    fn sources_of_g_pdus_and_isolation_are_passed_on() {
        let upf = upf(r#"
            upf.n3-allow = ["10.200.0.0/16", "2001:db8:7::1"]
            upf.reachable = ["10.45.0.1"]
            upf.tunnel-ends = ["10.200.0.0/16"]
            upf.bind-peers = true
            dnn.internet = { ipv4-pool = "10.45.0.0/16" }
            dnn.plant = { ipv4-pool = "10.46.0.0/16", ue-to-ue = false }
            "#);
        let network = |address: &str, length| Network { address: address.parse().expect("an address"), length };
        assert_eq!(upf.access.ran, [network("10.200.0.0", 16), network("2001:db8:7::1", 128)]);
        assert_eq!(upf.access.tunnel_ends, [network("10.200.0.0", 16)]);
        assert_eq!((&upf.access.reachable[..], upf.own_peer_only), (&[network("10.45.0.1", 32)][..], true));
        let isolated = upf.pools.iter().map(|pool| (pool.dnn.as_str().to_owned(), pool.isolated));
        assert_eq!(isolated.collect::<Vec<_>>(), [("internet".to_owned(), false), ("plant".to_owned(), true)]);
    }

    #[test]
    fn wrong_lists_of_addresses_are_refused() {
        let many: Vec<String> = (0..21).map(|n| format!("\"10.{n}.0.0/16\"")).collect();
        let entries: Vec<String> = (0..257).map(|n| format!("\"10.0.{}.{}\"", n / 200, n % 200)).collect();
        let cases = [
            ("upf.protect = [\"10.1.2.3/16\"]".to_owned(), "upf.protect"),
            ("upf.protect = [\"gnb.example\"]".to_owned(), "upf.protect"),
            (format!("upf.protect = [{}]", many.join(",")), "up to 20 networks"),
            (format!("upf.n3-allow = [{}]", entries.join(",")), "256 entries"),
            ("upf.n3-allow = [\"10.0.0.0/33\"]".to_owned(), "upf.n3-allow"),
            ("upf.tunnel-ends = [\"10.0.0.1/8\"]".to_owned(), "upf.tunnel-ends"),
            ("upf.reachable = [\"127.0.0.1\"]".to_owned(), "an address of the core"),
            ("upf.protect = [\"10.9.0.0/16\"]\nupf.reachable = [\"10.9.0.1\"]".to_owned(), "upf.reachable"),
        ];
        for (text, expected) in cases {
            let problems = load(&text).expect_err(&text).join("\n");
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
