//! Options and subscribers of the core of a lab.

use std::fs::File;
use std::net::Ipv4Addr;
use std::sync::Arc;
use vireo_ops::sbi::Encoding;

/// IMSI of the first lab subscriber; the others count up from it.
pub const FIRST_IMSI: &str = "999700000000001";
/// K of all lab subscribers.
pub const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
/// OPc of all lab subscribers.
pub(crate) const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
/// Networks of UE addresses, IPv4 and IPv6.
pub const UE_NETWORKS: [&str; 2] = ["10.45.0.0/16", "fd45::/48"];

/// Static addresses of UEs, the last half of their IPv4 network.
pub(crate) const STATIC_ADDRESSES: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 45, 128, 0), 17);
/// Distance of the framed route of a UE from its static address, as in the emulator's scenario.
pub(crate) const BEHIND_UE: u32 = 0x1_0000;
/// Networks behind UEs, which the data network routes to the core.
pub(crate) const BEHIND_UES: &str = "10.46.0.0/16";
/// Emulator scenarios whose subscribers have other records than the usual ones.
pub(crate) const RECORDS: [(&str, SubscriberRecords); 4] = [
    ("static-address", SubscriberRecords::StaticAddresses),
    ("framed-routes", SubscriberRecords::FramedRoutes),
    ("forbidden-area", SubscriberRecords::ForbiddenArea),
    ("non-allowed-area", SubscriberRecords::NonAllowedArea),
];

/// Configuration that disables load shedding. Many unoptimised processes may be congested for a
/// moment, and detection of dead hosts is slower. Shedding UEs, with a wait of one minute, would be
/// correct then, but is not under test.
pub const UNSHED: &str = "[overload]\nwait = \"10s\"\nstart = 1.0\nregistrations = 1.0\nothers = 1.0\n";

/// Home network key pair: the published examples of TS 33.501 C.4, which protect nothing.
#[derive(Debug)]
pub struct HnKey {
    pub id: u8,
    /// ECIES profile, `A` or `B`.
    pub profile: char,
    /// Emulator scenario whose UEs use the key.
    pub scenario: &'static str,
    pub(crate) private: &'static str,
    /// Public key of the UEs.
    pub public: &'static str,
}

/// One key pair per profile.
pub const HN_KEYS: [HnKey; 2] = [
    HnKey {
        id: 1,
        profile: 'A',
        scenario: "profile-a",
        private: "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d",
        public: "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650",
    },
    HnKey {
        id: 2,
        profile: 'B',
        scenario: "profile-b",
        private: "f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda",
        public: "0272da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd1",
    },
];

/// Upper bounds of the processor time of a core that is one process tree, in processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CpuShare {
    /// Of all its processes together.
    Whole(f64),
    /// Of the process that receives and sends, and of all its workers together. Neither takes
    /// processor time of the other.
    Apart { host: f64, workers: f64 },
}

/// Slice table of labs that configure no other.
const SLICES: &str = "[slice.default]\nsnssai = { sst = 1 }\n";

/// Returns the tables of an endpoint for eNBs, and of what their UEs may use.
pub fn s1_table(address: Ipv4Addr) -> String {
    let ciot = "[core.ciot]\nattach-without-pdn = true\ncontrol-plane-data = true\n\n";
    format!("[s1]\naddresses = [\"{address}\"]\n\n{ciot}")
}

/// Configuration that differs between labs.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Number of subscribers to provision.
    pub subscribers: u64,
    /// NAS ciphering algorithms, the preferred one first.
    pub ciphering: Vec<String>,
    /// Slice tables of the configuration.
    pub slices: String,
    /// Further tables of the configuration.
    pub tables: String,
    /// Further keys of `[upf]`.
    pub upf: String,
    /// Further keys of `[cluster]`.
    pub cluster: String,
    /// IPv4 pool of UE addresses. The data network has return routes only to [`UE_NETWORKS`].
    pub ipv4_pool: &'static str,
    /// Processors of the core; empty means all.
    pub processors: Vec<usize>,
    pub records: SubscriberRecords,
    /// Number of hosts behind a balancer; 0 means the whole core as one process.
    pub hosts: usize,
    /// Number of shards of a core that is one process tree; 0 means the default.
    pub shards: u8,
    /// Further hosts that join and wait. The hosts of such a cluster leave when they are not
    /// needed.
    pub idle: usize,
    /// Program of hosts that join a running cluster, if it is not this one's.
    pub joining_program: Option<Arc<File>>,
    /// Upper bound of each host's share of a processor.
    pub host_part: Option<f64>,
    /// Upper bounds of a core without hosts.
    pub share: Option<CpuShare>,
    /// Number of balancers, each in its own namespace with a controller and etcd, as an operator
    /// runs a cluster. The core's namespace then holds a separate user-plane process. 0 means one
    /// balancer in the core's namespace, which is also the controller.
    pub balancers: u8,
    /// Runs AMF, SMF and UPF as separate processes over SBI and N4 (SBA mode).
    pub sba: bool,
    /// Number of AMFs behind a balancer in SBA mode; 0 means one AMF that terminates N2.
    pub amfs: u8,
    /// Database of the UPF, if different from that of the others.
    pub database_of_upf: Option<String>,
    pub sbi: SbiOptions,
}

/// Records of the subscribers of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriberRecords {
    /// All have SST 1 and the data network `internet`.
    Equal,
    /// Those from number `from` on have another slice.
    OtherSlice { from: u64, sst: u8 },
    /// Each has its own address in [`STATIC_ADDRESSES`].
    StaticAddresses,
    /// As [`SubscriberRecords::StaticAddresses`], with the address [`BEHIND_UE`] after it as framed
    /// route.
    FramedRoutes,
    /// The tracking area of the lab is a forbidden area.
    ForbiddenArea,
    /// The tracking area of the lab is a non-allowed area.
    NonAllowedArea,
}

/// Options of the SBI.
#[derive(Clone, Copy, Debug, Default)]
pub struct SbiOptions {
    pub encoding: Encoding,
    /// Uses TLS, with certificates created by the lab.
    pub secured: bool,
}

impl CoreOptions {
    /// Returns true if the core has an endpoint for eNBs.
    pub(crate) fn has_s1(&self) -> bool {
        self.tables.contains("[s1]\n")
    }
}

impl Default for CoreOptions {
    fn default() -> Self {
        CoreOptions {
            subscribers: 1,
            ciphering: vec!["NEA2".into()],
            slices: SLICES.into(),
            tables: String::new(),
            upf: String::new(),
            cluster: String::new(),
            ipv4_pool: UE_NETWORKS[0],
            processors: Vec::new(),
            records: SubscriberRecords::Equal,
            hosts: 0,
            shards: 0,
            idle: 0,
            joining_program: None,
            host_part: None,
            share: None,
            balancers: 0,
            sba: false,
            amfs: 0,
            database_of_upf: None,
            sbi: SbiOptions::default(),
        }
    }
}
