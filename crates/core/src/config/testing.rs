//! Configuration for tests.

use super::*;

impl CoreConfig {
    /// Returns a configuration with one PLMN, tracking area, slice and IPv4 data network, without
    /// UPFs.
    pub fn lab() -> Self {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        CoreConfig {
            name: "vireo".into(),
            plmns: vec!["99970".parse().expect("a PLMN")],
            tacs: vec![Tac(1)],
            amf_region: 2,
            amf_set: 1,
            amf_pointer: 0,
            relative_capacity: 255,
            slices: vec![SliceConfig {
                name: "phones".into(),
                snssai: Snssai { sst: 1, sd: None },
                profile: SliceProfile::Full,
                charging: Charging::default(),
            }],
            dnns: vec![DnnConfig {
                name: "internet".parse().expect("a DNN"),
                slices: Vec::new(),
                types: vec![PduSessionType::Ipv4],
                ipv4_pool: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
                ipv6_pool: None,
                dns: Vec::new(),
                p_cscf: Vec::new(),
                mtu: 1400,
                static_pools: StaticPools::default(),
                up_security: None,
            }],
            security: SecurityConfig {
                integrity: vec![IntegrityAlgorithm::NIA2, IntegrityAlgorithm::NIA1],
                ciphering: vec![CipheringAlgorithm::NEA2, CipheringAlgorithm::NEA0],
                key_lifetime: KeyLifetime::default(),
            },
            timers: Timers::default(),
            paging: PagingConfig::default(),
            ciot: CiotConfig::default(),
            upfs: Vec::new(),
            n4_address: loopback,
            n4_node: NodeName::Address(loopback),
            ran: RanConfig::default(),
            smf_is_remote: false,
            eps: EpsConfig::default(),
            information: NetworkInformation::default(),
        }
    }
}
