//! The configuration that decisions depend on. It is checked when it is loaded (by the binary); here it is data, which
//! worker processes get in its binary encoding.

mod state;

pub use state::{
    StateAnswer, StateAxes, StateCarry, StateChange, StateFormat, StateLocation, StateMode, StatePersist, StatePreset,
    StateScope, StateWrite,
};

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_types::{Dnn, Duration, Guami, PduSessionType, Plmn, Snssai, Tac};
use vireo_wire::pfcp::NodeId;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// The network as one AMF and SMF sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreConfig {
    /// AMF Name (TS 38.413 9.3.3.21).
    pub name: String,
    /// The PLMNs served, at least one; the first is the GUAMI's.
    pub plmns: Vec<Plmn>,
    /// The tracking areas served, in every PLMN.
    pub tacs: Vec<Tac>,
    /// AMF Region ID.
    pub amf_region: u8,
    /// AMF Set ID.
    pub amf_set: u16,
    /// AMF Pointer.
    pub amf_pointer: u8,
    /// Relative AMF Capacity (TS 38.413 9.3.1.32).
    pub relative_capacity: u8,
    /// The slices served, at least one.
    pub slices: Vec<SliceConfig>,
    /// The data networks served.
    pub dnns: Vec<DnnConfig>,
    /// NAS security.
    pub security: SecurityConfig,
    /// NAS timers.
    pub timers: Timers,
    /// The user plane functions; at least one for PDU sessions to be possible.
    pub upfs: Vec<UpfConfig>,
    /// The address of the control plane's F-SEID (TS 29.244 8.2.37), until the N4 endpoint writes its own.
    pub n4_address: IpAddr,
    /// The control plane's Node ID, the same for all its N4 endpoints.
    pub n4_node: NodeName,
    /// The addresses of the AMF's endpoints, if RAN nodes are to have an association with each (AMF Configuration Update,
    /// TS 38.413 8.7.3).
    pub n2_endpoints: Vec<IpAddr>,
    /// Whether the sessions are an SMF's elsewhere: this is the AMF of a service-based chain ([`crate::sba`]).
    pub smf_elsewhere: bool,
}

impl CoreConfig {
    /// The GUAMI of the AMF.
    pub fn guami(&self) -> Guami {
        Guami { plmn: self.plmns[0], region: self.amf_region, set: self.amf_set, pointer: self.amf_pointer }
    }

    /// The data network of that name if the slice may use it.
    pub fn dnn(&self, name: &Dnn, slice: Snssai) -> Option<&DnnConfig> {
        self.dnns.iter().find(|d| d.name == *name && (d.slices.is_empty() || d.slices.contains(&slice)))
    }

    /// What is counted of a slice's sessions.
    pub fn charging(&self, slice: Snssai) -> Option<Charging> {
        self.slices.iter().find(|s| s.snssai == slice).map(|s| s.charging)
    }

    /// What the devices of a slice are like.
    pub fn profile(&self, slice: Snssai) -> SliceProfile {
        self.slices.iter().find(|s| s.snssai == slice).map(|s| s.profile).unwrap_or_default()
    }
}

/// A Node ID of PFCP (TS 29.244 8.2.38).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeName {
    /// An address.
    Address(IpAddr),
    /// A domain name, in the labels of the wire.
    Domain(Vec<u8>),
}

impl NodeName {
    /// That of a domain name; `None` if a label of it is empty or too long.
    pub fn domain(name: &str) -> Option<Self> {
        match NodeId::fqdn(name)? {
            NodeId::Fqdn(labels) => Some(NodeName::Domain(labels.to_vec())),
            NodeId::Ipv4(_) | NodeId::Ipv6(_) => None,
        }
    }

    /// The Node ID.
    pub fn id(&self) -> NodeId {
        match self {
            NodeName::Address(address) => NodeId::from(*address),
            NodeName::Domain(labels) => NodeId::Fqdn(labels[..].into()),
        }
    }
}

/// What the devices of a slice are like, by which state and packet path are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SliceProfile {
    /// Anything.
    #[default]
    Full,
    /// Simple devices with one application: one PDU session each, with its default QoS flow alone. Nothing of a session is
    /// policed or counted by itself in the user plane: with one session the RAN's UE-AMBR is the Session-AMBR
    /// (TS 23.501 5.7.2.6), and usage is that of the slice. A UE whose home slice it is has its NAS keys derived again when
    /// its context is loaded, instead of stored.
    Iot,
}

/// A slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceConfig {
    /// The operator's name for it.
    pub name: String,
    /// What UEs and RAN know it by.
    pub snssai: Snssai,
    /// What its devices are like.
    pub profile: SliceProfile,
    /// What is counted of its sessions.
    pub charging: Charging,
}

/// What is counted of each session of a slice, and how much it may carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charging {
    /// How often UPFs report what it has carried, in seconds; 0 = when it ends.
    pub every_s: u32,
    /// Whether it is reported when it ends.
    pub counted: bool,
    /// Octets of both directions that it may carry in all, at whatever UPF it is.
    pub quota: Option<u64>,
}

impl Charging {
    /// Whether there is anything to be counted.
    pub fn is_on(&self) -> bool {
        self.counted || self.every_s > 0 || self.quota.is_some()
    }
}

/// A data network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnConfig {
    /// Its name.
    pub name: Dnn,
    /// The slices that reach it; empty = all.
    pub slices: Vec<Snssai>,
    /// The session types it allows, the preferred first.
    pub types: Vec<PduSessionType>,
    /// The pool of UE addresses: network and prefix length.
    pub ipv4_pool: Option<(Ipv4Addr, u8)>,
    /// The pool of UE prefixes: network and prefix length, 64 at the most.
    pub ipv6_pool: Option<(Ipv6Addr, u8)>,
    /// DNS servers told in the protocol configuration options.
    pub dns: Vec<IpAddr>,
    /// Link MTU told in the protocol configuration options and in router advertisements.
    pub mtu: u16,
}

/// NAS security of the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityConfig {
    /// Integrity algorithms, the preferred first. NIA0 is never chosen outside an emergency (TS 33.501 5.5.2).
    #[serde(with = "identifiers")]
    pub integrity: Vec<IntegrityAlgorithm>,
    /// Ciphering algorithms, the preferred first.
    #[serde(with = "identifiers")]
    pub ciphering: Vec<CipheringAlgorithm>,
}

/// Algorithms as the identifiers that TS 33.501 5.11.1 gives them.
mod identifiers {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, A: Copy + Into<u8>>(algorithms: &[A], s: S) -> Result<S::Ok, S::Error> {
        algorithms.iter().map(|a| (*a).into()).collect::<Vec<u8>>().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, A: TryFrom<u8>>(d: D) -> Result<Vec<A>, D::Error> {
        let identifiers = Vec::<u8>::deserialize(d)?;
        let unknown = |i: u8| Error::custom(format!("{i} is no security algorithm"));
        identifiers.into_iter().map(|i| A::try_from(i).map_err(|_| unknown(i))).collect()
    }
}

/// NAS timers (TS 24.501 clause 10) and their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// Periodic registration update, told to the UE. Zero = deactivated.
    pub t3512: Duration,
    /// Registration Accept.
    pub t3550: Duration,
    /// Authentication Request and Security Mode Command.
    pub t3560: Duration,
    /// Identity Request.
    pub t3570: Duration,
    /// Deregistration Request by the network.
    pub t3522: Duration,
    /// Paging (T3513).
    pub t3513: Duration,
    /// PDU Session Release Command (T3592).
    pub t3592: Duration,
    /// How often a message is sent again before its procedure is aborted (4 in TS 24.501).
    pub retransmissions: u8,
    /// How long a UE that is turned away for congestion stays away, in the mean (T3346, TS 24.501 5.3.9): each is told
    /// another value between half of it and one and a half times it, so that they do not all come back at once.
    pub t3346: Duration,
    /// How long a context waits for an answer of the RAN (context set-up and release).
    pub ran_response: Duration,
    /// How much longer than T3512 the mobile reachable timer is, and how long the implicit deregistration timer runs
    /// after it (TS 24.501 5.3.7: 4 minutes).
    pub implicit_deregistration: Duration,
}

impl Timers {
    /// After how long a registration that is never completed is given up: T3550 with all its repetitions (TS 24.501 5.5.1.2.8).
    pub const fn registration_given_up(&self) -> Duration {
        Duration(self.t3550.0.saturating_mul(1 + self.retransmissions as u64))
    }
}

impl Default for Timers {
    /// TS 24.501 tables 10.2.2 and 10.3.2.
    fn default() -> Self {
        Timers {
            t3512: Duration::from_secs(54 * 60),
            t3550: Duration::from_secs(6),
            t3560: Duration::from_secs(6),
            t3570: Duration::from_secs(6),
            t3522: Duration::from_secs(6),
            // The specification leaves it to the network: a few paging cycles of 1.28 s (TS 38.304 7.1).
            t3513: Duration::from_secs(3),
            t3592: Duration::from_secs(16),
            retransmissions: 4,
            t3346: Duration::from_secs(60),
            ran_response: Duration::from_secs(10),
            implicit_deregistration: Duration::from_secs(240),
        }
    }
}

/// A user plane function that the SMF part may choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfConfig {
    /// The operator's name for it.
    pub name: String,
    /// Where its PFCP endpoint is.
    pub n4: SocketAddr,
    /// The data networks it reaches; empty = all.
    pub dnns: Vec<Dnn>,
}

impl UpfConfig {
    /// Whether sessions of a data network can be there.
    pub fn reaches(&self, dnn: &Dnn) -> bool {
        self.dnns.is_empty() || self.dnns.contains(dnn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the parent process hands to its workers is what they read.
    #[test]
    fn a_configuration_survives_its_binary_encoding() {
        let config = CoreConfig {
            name: "amf".into(),
            plmns: vec!["99970".parse().expect("a PLMN"), "310410".parse().expect("a PLMN")],
            tacs: vec![Tac(1), Tac(0xff_fffe)],
            amf_region: 1,
            amf_set: 1023,
            amf_pointer: 63,
            relative_capacity: 255,
            slices: vec![SliceConfig {
                name: "s".into(),
                snssai: Snssai { sst: 1, sd: Some(0x0a_0b0c) },
                profile: SliceProfile::Iot,
                charging: Charging { every_s: 9, counted: true, quota: Some(u64::MAX) },
            }],
            dnns: vec![DnnConfig {
                name: "internet".parse().expect("a DNN"),
                slices: vec![Snssai { sst: 1, sd: None }],
                types: vec![PduSessionType::Ipv4, PduSessionType::Ipv6, PduSessionType::Ipv4v6],
                ipv4_pool: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
                ipv6_pool: Some(("2001:db8:45::".parse().expect("an address"), 48)),
                dns: vec![IpAddr::from([9, 9, 9, 9]), "2001:db8::53".parse().expect("an address")],
                mtu: 1400,
            }],
            security: SecurityConfig {
                integrity: vec![IntegrityAlgorithm::NIA2, IntegrityAlgorithm::NIA1, IntegrityAlgorithm::NIA3],
                ciphering: vec![CipheringAlgorithm::NEA0, CipheringAlgorithm::NEA2],
            },
            timers: Timers { t3512: Duration(0), ..Timers::default() },
            upfs: vec![UpfConfig {
                name: "edge".into(),
                n4: "[::1]:8805".parse().expect("an address"),
                dnns: vec!["ims".parse().expect("a DNN")],
            }],
            n4_address: IpAddr::from([127, 0, 0, 1]),
            n4_node: NodeName::domain("smf.example.org").expect("a name"),
            n2_endpoints: vec![IpAddr::from([127, 0, 0, 2]), "2001:db8::2".parse().expect("an address")],
            smf_elsewhere: true,
        };
        let octets = postcard::to_allocvec(&config).expect("it encodes");
        assert_eq!(postcard::from_bytes(&octets), Ok(config));
        let unknown = postcard::to_allocvec(&(vec![2u8], vec![9u8])).expect("it encodes");
        assert!(postcard::from_bytes::<SecurityConfig>(&unknown).is_err());
    }
}
