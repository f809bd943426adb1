//! Configuration files and subscribers of the core of a lab.

use crate::addresses::{CORE, has_ipv6};
use crate::core::sba;
use crate::etcd;
use crate::fabric::{self, FABRIC_PORT, NodeRole};
use crate::files::{API_TOKEN, CONFIG, DATABASE, RECORDS, UPF_CONFIG};
use crate::options::{
    BEHIND_UE, BEHIND_UES, CoreOptions, FIRST_IMSI, HN_KEYS, K, OPC, STATIC_ADDRESSES, SubscriberRecords, UE_NETWORKS,
};
use std::fs;
use std::net::Ipv4Addr;
use vireo_config::Failure;
use vireo_subscribers::{OnExisting, Store, Subscriber, key_source};
use vireo_types::{Network, Supi, Tac};

/// Tracking area of the lab.
const TAC: Tac = Tac(1);

/// Creates the subscribers and [`CONFIG`].
pub fn prepare(options: &CoreOptions) -> Result<(), Failure> {
    provision(options)?;
    // No process has used the directory before.
    if fs::exists(RECORDS)? {
        fs::remove_dir_all(RECORDS)?;
    }
    fs::create_dir(RECORDS)?;
    if options.balancers > 0 {
        let pools = format!("ipv4-pool = {:?}\n{}", UE_NETWORKS[0], ipv6_pool());
        let (n4, peers) = (upf_n4(), control_planes());
        let upf = format!("[upf]\nn4 = {n4:?}\nn3 = [\"{CORE}\"]\ncontrol-planes = {peers}\n");
        fs::write(UPF_CONFIG, format!("{upf}\n[dnn.internet]\n{pools}\n"))?;
    }
    if options.sbi.secured {
        sba::certify()?;
    }
    Ok(fs::write(CONFIG, config(options))?)
}

fn provision(options: &CoreOptions) -> Result<(), Failure> {
    let all = subscribers(options)?;
    Store::open(DATABASE, key_source(DATABASE, None))?.import(&all, OnExisting::Replace, &mut |_| ())?;
    Ok(())
}

/// Returns the subscribers of a lab.
pub(crate) fn subscribers(options: &CoreOptions) -> Result<Vec<Subscriber>, Failure> {
    let first: Supi = FIRST_IMSI.parse()?;
    let one = Subscriber::new(first, K.parse()?, OPC.parse()?);
    let subscriber = |n: u64| {
        let mut subscriber = Subscriber { supi: first.offset(n)?, ..one.clone() };
        let slices = subscriber.subscription.slices.iter_mut();
        match options.records {
            SubscriberRecords::OtherSlice { from, sst } if n >= from => {
                slices.for_each(|slice| slice.snssai.sst = sst);
            }
            records @ (SubscriberRecords::StaticAddresses | SubscriberRecords::FramedRoutes) => {
                let address = Ipv4Addr::from(u32::from(STATIC_ADDRESSES.0) + 1 + n as u32);
                let behind = Ipv4Addr::from(u32::from(address) + BEHIND_UE);
                let route: Network = format!("{behind}/32").parse()?;
                let routes = if records == SubscriberRecords::FramedRoutes { vec![route] } else { Vec::new() };
                slices.flat_map(|slice| &mut slice.dnns).for_each(|dnn| {
                    (dnn.static_ipv4, dnn.framed_routes) = (Some(address), routes.clone());
                });
            }
            SubscriberRecords::ForbiddenArea => subscriber.subscription.areas.forbidden = vec![TAC],
            SubscriberRecords::NonAllowedArea => {
                let area = serde_json::json!({ "not_allowed": [TAC] });
                subscriber.subscription.areas.service = serde_json::from_value(area)?;
            }
            SubscriberRecords::Equal | SubscriberRecords::OtherSlice { .. } => {}
        }
        Ok(subscriber)
    };
    (0..options.subscribers).map(subscriber).collect()
}

/// Returns the configuration file of a core.
pub fn config(options: &CoreOptions) -> String {
    let ciphering: Vec<String> = options.ciphering.iter().map(|c| format!("{c:?}")).collect();
    let apart = options.balancers > 0;
    let (n2, balancer) = match apart {
        true => (fabric::n2(0), NodeRole::Balancer(0).address()),
        false => (CORE, fabric::CORE),
    };
    let mut text = format!(
        r#"[core]
plmns = ["99970"]
tacs = [1]
security = {{ ciphering = [{}] }}

{}
[dnn.internet]
ipv4-pool = "{}"
{}{}

[n2]
addresses = ["{n2}"]

{}
[api]
socket = "off"
token-file = "{API_TOKEN}"

[subscribers]
database = "{DATABASE}"
"#,
        ciphering.join(", "),
        options.slices,
        options.ipv4_pool,
        static_pool(options),
        ipv6_pool(),
        match apart {
            true => format!(
                "[upf]\nenabled = false\n\n[n4]\nlisten = \"{balancer}:8805\"\n\n[[external-upf]]\nname = \"upf\"\nn4 = {:?}\n",
                upf_n4()
            ),
            false => format!("[upf]\nn3 = [\"{CORE}\"]\n{}{}\n", framed_routes(options), options.upf),
        },
    );
    for key in &HN_KEYS {
        text.push_str(&format!(
            "\n[[subscribers.home-network-key]]\nid = {}\nprofile = \"{}\"\nprivate = \"{}\"\n",
            key.id, key.profile, key.private
        ));
    }
    if options.hosts > 0 {
        let hosts = options.hosts;
        // The lab switch is private to the lab.
        text.push_str(&format!(
            "\n[cluster]\nbalancer = \"{balancer}:{FABRIC_PORT}\"\nhosts = {hosts}\ninsecure = true\n{}",
            options.cluster
        ));
        if cfg!(debug_assertions) {
            // Many unoptimised processes are slow; slowness must not count as death.
            text.push_str("misses = 20\n");
        }
        if apart {
            let controller = NodeRole::Controller.address();
            text.push_str(&format!("controller = \"{controller}:{FABRIC_PORT}\"\netcd = [\"{}\"]\n", etcd::ADDRESS));
        }
    }
    if options.shards > 0 {
        text.push('\n');
        text.push_str(&format!("[pools]\nworker-model = \"inline\"\nshards = {}\n", options.shards));
        if cfg!(debug_assertions) {
            // As for a cluster.
            text.push_str("[cluster]\nmisses = 20\n");
        }
    }
    if options.amfs > 0 {
        text.push('\n');
        text.push_str(&sba::tables(options.amfs));
    }
    text.push('\n');
    text.push_str(&options.tables);
    text
}

/// Returns the N4 address of a separate user-plane process.
fn upf_n4() -> String {
    format!("{}:8805", fabric::CORE)
}

/// Returns the configured control planes: the balancers, which are one control plane with the Node
/// ID of `n4.node-id = "auto"`.
fn control_planes() -> String {
    let all: Vec<_> = (0..8).map(|port| NodeRole::Balancer(port).address().to_string()).collect();
    format!("[{{ node-id = \"set1.smfset.5gc.mnc070.mcc999.3gppnetwork.org\", addresses = {all:?} }}]")
}

fn ipv6_pool() -> String {
    if has_ipv6() { format!("ipv6-pool = {:?}", UE_NETWORKS[1]) } else { String::new() }
}

/// Returns the networks behind UEs.
fn framed_routes(options: &CoreOptions) -> String {
    let is_needed = options.records == SubscriberRecords::FramedRoutes;
    if is_needed { format!("framed-routes = [{BEHIND_UES:?}]\n") } else { String::new() }
}

fn static_pool(options: &CoreOptions) -> String {
    let (first, bits) = STATIC_ADDRESSES;
    let is_needed = matches!(options.records, SubscriberRecords::StaticAddresses | SubscriberRecords::FramedRoutes);
    if is_needed { format!("static-ipv4 = \"{first}/{bits}\"\n") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;

    #[test]
    fn lab_configuration_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let options = CoreOptions {
            slices: "[slice.meters]\nsnssai = { sst = 3 }\n".into(),
            tables: "[log]\nlevel = \"warn\"\n".into(),
            hosts: 2,
            ..CoreOptions::default()
        };
        fs::write(&path, config(&options)).unwrap();
        let config = Config::load(Some(&path)).unwrap();
        assert_eq!(config.n2.addresses, [std::net::IpAddr::from(CORE)]);
        assert_eq!(config.subscribers.database, DATABASE);
        assert_eq!((config.cluster.hosts, config.cluster.balancer.ip()), (2, fabric::CORE.into()));
        fs::write(&path, super::config(&CoreOptions { balancers: 2, ..options.clone() })).unwrap();
        let apart = Config::load(Some(&path)).unwrap();
        assert!(apart.upf.is_none() && apart.core.upfs.len() == 1);
        assert_eq!(apart.cluster.balancer.ip(), NodeRole::Balancer(0).address());
        assert_eq!(apart.cluster.etcd, [etcd::ADDRESS.into()]);
        assert_eq!(apart.cluster.controllers[0].address().unwrap().ip(), NodeRole::Controller.address());
        assert_eq!((config.core.slices[0].snssai.sst, config.log.level.as_str()), (3, "warn"));
        let mut wrong = options.clone();
        wrong.ciphering = vec!["NEA9".into()];
        fs::write(&path, super::config(&wrong)).unwrap();
        assert!(Config::load(Some(&path)).is_err());
    }
}
