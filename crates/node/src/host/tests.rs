//! The host with real steps, a real subscriber service and messages in memory.

use vireo_core::config::{CoreConfig, DnnConfig, SecurityConfig, SliceConfig, Timers, UpfConfig};
use vireo_types::{PduSessionType, Snssai, Tac};
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// The lab network.
pub(crate) fn lab() -> CoreConfig {
    CoreConfig {
        name: "vireo".into(),
        plmns: vec!["99970".parse().expect("a PLMN")],
        tacs: vec![Tac(1)],
        amf_region: 2,
        amf_set: 1,
        amf_pointer: 0,
        relative_capacity: 255,
        slices: vec![SliceConfig { name: "phones".into(), snssai: Snssai { sst: 1, sd: None } }],
        dnns: vec![DnnConfig {
            name: "internet".parse().expect("a DNN"),
            slices: Vec::new(),
            types: vec![PduSessionType::Ipv4],
            ipv4_pool: Some(([10, 45, 0, 0].into(), 16)),
            ipv6_pool: None,
            dns: Vec::new(),
            mtu: 1400,
        }],
        security: SecurityConfig {
            integrity: vec![IntegrityAlgorithm::NIA2],
            ciphering: vec![CipheringAlgorithm::NEA2],
        },
        timers: Timers::default(),
        upfs: vec![UpfConfig { n4: ([127, 0, 0, 8], 8805).into(), dnns: Vec::new() }],
        n4_address: [127, 0, 0, 1].into(),
    }
}
