//! Configuration of the control plane, as plain data.
//!
//! The binary checks it when loading. Worker processes receive it in its binary encoding.

mod state;
#[cfg(any(test, feature = "testing"))]
mod testing;

pub use state::{
    StateAnswer, StateAxes, StateCarry, StateChange, StateFormat, StateLocation, StateMode, StatePersist, StatePreset,
    StateScope, StateWrite,
};

use crate::ids::address_pool::Range;
use crate::subscription::UpSecurity;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_types::{Dialect, Dnn, Duration, Guami, Instant, PduSessionType, Plmn, SessionAddress, Snssai, Tac};
use vireo_wire::pfcp::NodeId;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// Configuration of one AMF and SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreConfig {
    /// AMF Name (TS 38.413 9.3.3.21).
    pub name: String,
    /// PLMNs served, at least one. The first one is the PLMN of the GUAMI.
    pub plmns: Vec<Plmn>,
    /// Tracking areas served, in every PLMN.
    pub tacs: Vec<Tac>,
    pub amf_region: u8,
    pub amf_set: u16,
    pub amf_pointer: u8,
    /// Relative AMF Capacity (TS 38.413 9.3.1.32).
    pub relative_capacity: u8,
    /// Slices served, at least one.
    pub slices: Vec<SliceConfig>,
    pub dnns: Vec<DnnConfig>,
    pub security: SecurityConfig,
    pub timers: Timers,
    pub paging: PagingConfig,
    pub ciot: CiotConfig,
    /// UPFs. PDU sessions need at least one.
    pub upfs: Vec<UpfConfig>,
    /// IP address of the control plane's F-SEID (TS 29.244 8.2.37), until the N4 endpoint sets its
    /// own.
    pub n4_address: IpAddr,
    /// Node ID of the control plane, the same for all its N4 endpoints.
    pub n4_node: NodeName,
    pub ran: RanConfig,
    /// True for the AMF of SBA mode ([`crate::sba`]): a separate SMF holds the sessions.
    pub smf_is_remote: bool,
    pub eps: EpsConfig,
    pub information: NetworkInformation,
}

/// What the endpoint for eNBs changes, and emergency services of both dialects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpsConfig {
    /// True if the core serves eNBs, too, so that UEs may move between 4G and 5G.
    pub interworks: bool,
    /// True if no UE may use NR as secondary RAT (TS 23.401 4.3.2a).
    pub restricts_dcnr: bool,
    pub emergency: EmergencyNetworks,
}

/// Data networks of emergency services, for authenticated UEs (TS 23.501 5.16.4, TS 23.401 4.3.12).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmergencyNetworks {
    /// `None` = no emergency services in 5G.
    pub nr: Option<Dnn>,
    /// `None` = no emergency services in 4G.
    pub eps: Option<Dnn>,
}

/// Name and time zone of the network, which UEs display (TS 24.501 5.4.4, TS 24.301 5.4.5). By
/// default UEs get none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInformation {
    /// Full and short name; empty = none.
    pub full_name: String,
    pub short_name: String,
    /// Offset of local time from UTC in quarters of an hour, -79 to 79; `None` = no time.
    pub time_zone: Option<i8>,
}

/// Maximum number of MMEs in a pool: the IDs of balancers have 4 bits.
const MAX_MMES_OF_POOL: u8 = 16;

impl CoreConfig {
    /// Returns the GUAMI of the AMF.
    pub fn guami(&self) -> Guami {
        Guami { plmn: self.plmns[0], region: self.amf_region, set: self.amf_set, pointer: self.amf_pointer }
    }

    /// Returns the GUAMI that maps to the GUMMEI of an MME of the pool: each balancer is one, with
    /// an MME Code of its own (S1-Flex, TS 23.401 4.3.8.3).
    pub fn mme(&self, balancer: u8) -> Guami {
        Guami { pointer: self.amf_pointer.wrapping_add(balancer) & 0x3f, ..self.guami() }
    }

    /// Returns true if an MME of the pool has the MME Code that maps to this AMF Pointer.
    pub fn is_mme_of_pool(&self, pointer: u8) -> bool {
        pointer.wrapping_sub(self.amf_pointer) & 0x3f < MAX_MMES_OF_POOL
    }

    /// Returns the PLMNs that are equivalent to a served one: the other ones, up to the 15 that the
    /// lists for UEs and RAN nodes have (TS 24.501 9.11.3.45, TS 24.301 9.9.2.8, TS 38.413
    /// 9.3.1.85, TS 36.413 9.2.1.22).
    pub fn equivalent_plmns(&self, serving: Plmn) -> impl Iterator<Item = Plmn> {
        self.plmns.iter().copied().filter(move |plmn| *plmn != serving).take(15)
    }

    /// Returns the data network of emergency services in a dialect; `None` if it has none. A
    /// separate SMF serves subscribed data networks alone.
    pub fn emergency(&self, dialect: Dialect) -> Option<&Dnn> {
        let EmergencyNetworks { nr, eps } = &self.eps.emergency;
        let network = if dialect == Dialect::Nr { nr } else { eps };
        network.as_ref().filter(|_| !self.smf_is_remote)
    }

    /// Returns true for a data network of emergency services, which needs no subscription.
    pub fn is_emergency(&self, dnn: &Dnn) -> bool {
        [Dialect::Nr, Dialect::Eps].into_iter().any(|dialect| self.emergency(dialect) == Some(dnn))
    }

    /// Returns the data network of that name, if it is allowed in the slice.
    pub fn dnn(&self, name: &Dnn, slice: Snssai) -> Option<&DnnConfig> {
        self.dnns.iter().find(|d| d.name == *name && (d.slices.is_empty() || d.slices.contains(&slice)))
    }

    /// Returns the configuration of a slice; `None` if the AMF does not serve it.
    fn slice(&self, snssai: Snssai) -> Option<&SliceConfig> {
        self.slices.iter().find(|slice| slice.snssai == snssai)
    }

    /// Returns true if the AMF serves the slice.
    pub fn serves_slice(&self, snssai: Snssai) -> bool {
        self.slice(snssai).is_some()
    }

    /// Returns the charging configuration of a slice; `None` for an unknown slice.
    pub fn charging(&self, snssai: Snssai) -> Option<Charging> {
        self.slice(snssai).map(|slice| slice.charging)
    }

    /// Returns the profile of a slice; the default profile for an unknown slice.
    pub fn profile(&self, snssai: Snssai) -> SliceProfile {
        self.slice(snssai).map(|slice| slice.profile).unwrap_or_default()
    }
}

/// PFCP Node ID (TS 29.244 8.2.38).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeName {
    Address(IpAddr),
    /// FQDN in the label encoding of PFCP.
    Domain(Vec<u8>),
}

impl NodeName {
    /// Returns the Node ID of a domain name; `None` if a label is empty or too long.
    pub fn domain(name: &str) -> Option<Self> {
        match NodeId::fqdn(name)? {
            NodeId::Fqdn(labels) => Some(NodeName::Domain(labels.to_vec())),
            NodeId::Ipv4(_) | NodeId::Ipv6(_) => None,
        }
    }

    /// Returns the Node ID for PFCP messages.
    pub fn id(&self) -> NodeId {
        match self {
            NodeName::Address(address) => NodeId::from(*address),
            NodeName::Domain(labels) => NodeId::Fqdn(labels[..].into()),
        }
    }
}

/// Kind of devices of a slice. It selects how state is stored and how packets are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SliceProfile {
    /// No assumptions about the devices.
    #[default]
    Full,
    /// IoT devices with one application: one PDU session per UE, with only the default QoS flow.
    ///
    /// The user plane neither polices nor counts traffic per session. With one session, the RAN's
    /// UE-AMBR equals the Session-AMBR (TS 23.501 5.7.2.6), and usage is counted per slice. If this
    /// is the UE's home slice, its NAS keys are derived again when its context is loaded, instead
    /// of stored.
    Iot,
}

/// Configuration of one slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceConfig {
    /// Name that the operator gave the slice.
    pub name: String,
    /// S-NSSAI by which UEs and the RAN know the slice.
    pub snssai: Snssai,
    pub profile: SliceProfile,
    /// Usage reporting and quota of its sessions.
    pub charging: Charging,
}

/// Usage reporting and volume quota of each session of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charging {
    /// Interval of usage reports from the UPF, in seconds; 0 = only when the session ends.
    pub every_s: u32,
    /// True if usage is reported when the session ends.
    pub counted: bool,
    /// Volume quota per session in octets, both directions together, across all UPFs of the
    /// session. `None` = no quota.
    pub quota: Option<u64>,
}

impl Charging {
    /// Returns true if UPFs measure the usage of the slice's sessions.
    pub fn is_on(&self) -> bool {
        self.counted || self.every_s > 0 || self.quota.is_some()
    }
}

/// Configuration of one data network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnConfig {
    pub name: Dnn,
    /// Slices that may use the data network; empty = all.
    pub slices: Vec<Snssai>,
    /// Allowed PDU session types, the preferred one first.
    pub types: Vec<PduSessionType>,
    /// IPv4 address pool: network and prefix length.
    pub ipv4_pool: Option<(Ipv4Addr, u8)>,
    /// IPv6 prefix pool: network and prefix length, at most 64.
    pub ipv6_pool: Option<(Ipv6Addr, u8)>,
    /// DNS servers sent to UEs in the protocol configuration options.
    pub dns: Vec<IpAddr>,
    /// P-CSCFs of an IMS, sent to UEs in the protocol configuration options.
    pub p_cscf: Vec<IpAddr>,
    /// Link MTU in bytes, sent in the protocol configuration options and in router advertisements.
    pub mtu: u16,
    /// Ends of the pools that are not allocated, but assigned by subscription.
    pub static_pools: StaticPools,
    /// UP security policy of subscribers without one; `None` = that of the RAN node.
    pub up_security: Option<UpSecurity>,
}

/// Static addresses of a data network. Each network has the last addresses of its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticPools {
    /// Network and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// Network and prefix length, at most 64.
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

impl StaticPools {
    /// Returns the static addresses of each kind.
    fn ranges(&self) -> [Option<Range>; 2] {
        let ipv4 = self.ipv4.map(|(network, length)| Range::ipv4_but_last(network, length));
        [ipv4, self.ipv6.map(|(network, length)| Range::ipv6_whole(network, length))]
    }
}

impl DnnConfig {
    /// Returns the address ranges of the IPv4 and of the IPv6 pool without the static addresses.
    pub fn address_ranges(&self) -> [Option<Range>; 2] {
        let [static_ipv4, static_ipv6] = self.static_pools.ranges();
        let ipv4 = self.ipv4_pool.map(|(network, length)| Range::ipv4(network, length).before(static_ipv4));
        [ipv4, self.ipv6_pool.map(|(network, length)| Range::ipv6(network, length).before(static_ipv6))]
    }

    /// Returns true if one of these addresses is a static one.
    pub fn has_static(&self, address: &SessionAddress) -> bool {
        let [ipv4, ipv6] = self.static_pools.ranges();
        let v4 = address.ipv4.and_then(|a| ipv4?.index_of_ipv4(a));
        v4.or(address.ipv6_prefix.and_then(|a| ipv6?.index_of_ipv6(a))).is_some()
    }

    /// Returns true if each of these addresses is a static one.
    pub fn may_be_static(&self, address: &SessionAddress) -> bool {
        let [ipv4, ipv6] = self.static_pools.ranges();
        // Gateway and network address of the pool are no addresses of UEs.
        let gateway = self.ipv4_pool.map(|(network, _)| u32::from(network).saturating_add(1));
        let v4 = |a| ipv4.is_some_and(|range| range.index_of_ipv4(a).is_some()) && gateway < Some(u32::from(a));
        let first = self.ipv6_pool.map(|(network, _)| network);
        let v6 = |a| ipv6.is_some_and(|range| range.index_of_ipv6(a).is_some()) && first < Some(a);
        address.ipv4.is_none_or(v4) && address.ipv6_prefix.is_none_or(v6)
    }
}

/// NAS security algorithms of the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityConfig {
    /// Integrity algorithms, the preferred one first. NIA0 is never selected outside an emergency
    /// (TS 33.501 5.5.2).
    #[serde(with = "identifiers")]
    pub integrity: Vec<IntegrityAlgorithm>,
    /// Ciphering algorithms, the preferred one first.
    #[serde(with = "identifiers")]
    pub ciphering: Vec<CipheringAlgorithm>,
    pub key_lifetime: KeyLifetime,
}

/// Use of the keys of one authentication. A UE is authenticated again at its first request, or
/// first message while connected, after one of the limits (TS 24.501 5.4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLifetime {
    /// Zero = no limit.
    pub time: Duration,
    /// NAS COUNT of either direction. The COUNTs wrap around at 2^24 (TS 24.501 4.4.3.5).
    pub nas_count: u32,
}

impl KeyLifetime {
    /// Greatest limit of the NAS COUNT. The messages of the authentication itself, and of UEs that
    /// cannot be authenticated at the time, need the rest.
    pub const NAS_COUNT: u32 = 16_000_000;
}

impl Default for KeyLifetime {
    fn default() -> Self {
        KeyLifetime { time: Duration(0), nas_count: KeyLifetime::NAS_COUNT }
    }
}

/// Serialization of algorithms as the identifiers of TS 33.501 5.11.1.
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

/// NAS timers (TS 24.501 clause 10) and related limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// Periodic registration update timer, sent to the UE. Zero = deactivated.
    pub t3512: Duration,
    /// Timer of Registration Accept and Configuration Update Command (T3555).
    pub t3550: Duration,
    /// Timer of Authentication Request and Security Mode Command.
    pub t3560: Duration,
    /// Timer of Identity Request.
    pub t3570: Duration,
    /// Timer of the network's Deregistration Request.
    pub t3522: Duration,
    /// Timer of paging (T3513).
    pub t3513: Duration,
    /// Timer of PDU Session Release Command (T3592) and Modification Command (T3591).
    pub t3592: Duration,
    /// Number of retransmissions before the procedure is aborted (4 in TS 24.501).
    pub retransmissions: u8,
    /// Mean back-off time of a UE rejected for congestion (T3346, TS 24.501 5.3.9). Each UE
    /// receives a value between 0.5 and 1.5 times it, so that rejected UEs do not return at the
    /// same time.
    pub t3346: Duration,
    /// Time after which a UE whose attach has failed tries again (T3402, TS 24.301 10.2).
    pub t3402: Duration,
    /// Time between service requests of an LTE UE that supports service gap control (T3447, TS
    /// 24.301 5.3.17). Zero = none.
    pub t3447: Duration,
    /// Time to wait for a RAN node's response to context set-up and release.
    pub ran_response: Duration,
    /// Time by which the mobile reachable timer exceeds T3512, and duration of the implicit
    /// deregistration timer that follows it (TS 24.501 5.3.7: 4 minutes).
    pub implicit_deregistration: Duration,
}

impl Timers {
    /// Returns the time after which a registration without Registration Complete is aborted: T3550
    /// with all retransmissions (TS 24.501 5.5.1.2.8).
    pub const fn registration_time_limit(&self) -> Duration {
        Duration(self.t3550.0.saturating_mul(1 + self.retransmissions as u64))
    }
}

impl Default for Timers {
    /// Returns the defaults of TS 24.501 tables 10.2.2 and 10.3.2.
    fn default() -> Self {
        Timers {
            t3512: Duration::from_secs(54 * 60),
            t3550: Duration::from_secs(6),
            t3560: Duration::from_secs(6),
            t3570: Duration::from_secs(6),
            t3522: Duration::from_secs(6),
            // TS 24.501 leaves the value to the network: a few paging cycles of 1.28 s (TS 38.304
            // 7.1).
            t3513: Duration::from_secs(3),
            t3592: Duration::from_secs(16),
            retransmissions: 4,
            t3346: Duration::from_secs(60),
            t3402: Duration::from_secs(12 * 60),
            t3447: Duration(0),
            ran_response: Duration::from_secs(10),
            implicit_deregistration: Duration::from_secs(240),
        }
    }
}

/// How idle UEs are paged, and when they listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagingConfig {
    /// True if the RAN node of the last connection pages first, and the registration area only if
    /// the UE does not answer (TS 23.501 5.4.3.1).
    pub last_node_first: bool,
    /// ARP priority levels from 1 to this one have a paging priority, 0 to 8 (TS 23.502 4.2.3.3).
    pub priority_levels: u8,
    pub power_saving: PowerSavingConfig,
}

impl Default for PagingConfig {
    fn default() -> Self {
        PagingConfig { last_node_first: true, priority_levels: 0, power_saving: PowerSavingConfig::default() }
    }
}

/// Power saving that UEs may request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerSavingConfig {
    /// Power saving mode (TS 24.301 5.3.11); `None` = refused.
    pub mode: Option<PowerSavingMode>,
    /// Start of a hyperframe with H-SFN 0, from which RAN nodes count. With it, extended DRX is
    /// accepted (TS 24.301 5.3.12, TS 24.501 5.3.16); `None` = refused.
    pub extended_drx: Option<Instant>,
}

/// What RAN nodes are asked for, or may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanConfig {
    /// Addresses of the AMF's endpoints if RAN nodes are to have an association with each of them
    /// (AMF Configuration Update, TS 38.413 8.7.3). Empty otherwise.
    pub n2_endpoints: Vec<IpAddr>,
    /// True if gNBs get no assistance for RRC_INACTIVE (TS 23.501 5.3.3.2.5).
    pub forbids_rrc_inactive: bool,
    /// True if RAN nodes are to report each other cell of a UE (TS 38.413 8.12.1, TS 36.413
    /// 8.11.1).
    pub requests_location: bool,
}

/// Limits of power saving mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerSavingMode {
    /// Longest active time (T3324) that a UE is granted.
    pub active_time: Duration,
    /// Longest periodic update timer (T3412 extended value) that a UE is granted.
    pub periodic_update: Duration,
}

/// CIoT EPS optimisations that UEs may use (TS 24.301 5.3.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CiotConfig {
    /// EMM-REGISTERED without PDN connection.
    pub without_pdn: bool,
    /// Control plane CIoT EPS optimisation.
    pub control_plane: bool,
}

/// Configuration of one UPF that the SMF may select.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfConfig {
    /// Name that the operator gave the UPF.
    pub name: String,
    /// Address of its PFCP endpoint.
    pub n4: SocketAddr,
    /// Data networks that the UPF reaches; empty = all.
    pub dnns: Vec<Dnn>,
    /// True if N3 of the UPF has IPv6: RAN nodes then use IPv6 there.
    pub n3_ipv6: bool,
}

impl UpfConfig {
    /// Returns true if the UPF can serve sessions of the data network.
    pub fn reaches(&self, dnn: &Dnn) -> bool {
        self.dnns.is_empty() || self.dnns.contains(dnn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::UpProtection;

    /// Workers decode the configuration that the parent process encodes.
    #[test]
    fn configuration_binary_roundtrip_is_exact() {
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
                p_cscf: vec![IpAddr::from([9, 9, 9, 8])],
                mtu: 1400,
                static_pools: StaticPools {
                    ipv4: Some((Ipv4Addr::new(10, 45, 128, 0), 17)),
                    ipv6: Some(("2001:db8:45:8000::".parse().expect("an address"), 49)),
                },
                up_security: Some(UpSecurity {
                    integrity: UpProtection::Preferred,
                    confidentiality: UpProtection::Required,
                }),
            }],
            security: SecurityConfig {
                integrity: vec![IntegrityAlgorithm::NIA2, IntegrityAlgorithm::NIA1, IntegrityAlgorithm::NIA3],
                ciphering: vec![CipheringAlgorithm::NEA0, CipheringAlgorithm::NEA2],
                key_lifetime: KeyLifetime { time: Duration(u64::MAX), nas_count: 7 },
            },
            timers: Timers { t3512: Duration(0), ..Timers::default() },
            paging: PagingConfig {
                last_node_first: false,
                priority_levels: 8,
                power_saving: PowerSavingConfig {
                    mode: Some(PowerSavingMode { active_time: Duration(1), periodic_update: Duration(u64::MAX) }),
                    extended_drx: Some(Instant(7)),
                },
            },
            ciot: CiotConfig { without_pdn: true, control_plane: true },
            upfs: vec![UpfConfig {
                name: "edge".into(),
                n4: "[::1]:8805".parse().expect("an address"),
                dnns: vec!["ims".parse().expect("a DNN")],
                n3_ipv6: true,
            }],
            n4_address: IpAddr::from([127, 0, 0, 1]),
            n4_node: NodeName::domain("smf.example.org").expect("a name"),
            ran: RanConfig {
                n2_endpoints: vec![IpAddr::from([127, 0, 0, 2]), "2001:db8::2".parse().expect("an address")],
                forbids_rrc_inactive: true,
                requests_location: true,
            },
            smf_is_remote: true,
            eps: EpsConfig {
                interworks: true,
                restricts_dcnr: true,
                emergency: EmergencyNetworks { nr: "sos".parse().ok(), eps: "sos".parse().ok() },
            },
            information: NetworkInformation { full_name: "Vireo".into(), short_name: "V".into(), time_zone: Some(-79) },
        };
        let octets = postcard::to_allocvec(&config).expect("it encodes");
        assert_eq!(postcard::from_bytes(&octets), Ok(config));
        let unknown = postcard::to_allocvec(&(vec![2u8], vec![9u8])).expect("it encodes");
        assert!(postcard::from_bytes::<SecurityConfig>(&unknown).is_err());
    }
}
