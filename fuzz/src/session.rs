//! Fuzz target of the SMF's steps over one PDU session, driven by a script.

use super::input::Script;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_core::config::{
    Charging, CiotConfig, CoreConfig, DnnConfig, EpsConfig, KeyLifetime, NetworkInformation, NodeName, PagingConfig,
    PowerSavingConfig, PowerSavingMode, SecurityConfig, SliceConfig, SliceProfile, Timers, UpfConfig,
};
use vireo_core::smf::{self, Create, Input, N2Sm, Output};
use vireo_core::subscription::DnnSubscription;
use vireo_core::{Env, Identifiers};
use vireo_types::{
    Bucket, Dialect, Dnn, Duration, Instant, Ltmsi, PduSessionType, Seid, SessionAddress, Snssai, Tac, Tmsi,
};
use vireo_wire::pfcp;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// Slice in the golden messages.
pub const METERS: Snssai = Snssai { sst: 3, sd: Some(0xab) };

/// Returns the configuration of the lab's network with every algorithm.
pub fn config() -> CoreConfig {
    CoreConfig {
        ciot: CiotConfig::default(),
        eps: EpsConfig { interworks: true, ..EpsConfig::default() },
        information: NetworkInformation::default(),
        name: "vireo".into(),
        plmns: vec!["99970".parse().expect("a PLMN")],
        tacs: vec![Tac(1)],
        amf_region: 2,
        amf_set: 1,
        amf_pointer: 0,
        relative_capacity: 255,
        slices: vec![
            SliceConfig {
                name: "phones".into(),
                snssai: Snssai { sst: 1, sd: None },
                profile: SliceProfile::Full,
                charging: Charging { every_s: 60, counted: true, quota: Some(1 << 20) },
            },
            SliceConfig {
                name: "meters".into(),
                snssai: METERS,
                profile: SliceProfile::Iot,
                charging: Charging::default(),
            },
        ],
        dnns: vec![DnnConfig {
            name: "internet".parse().expect("a DNN"),
            slices: vec![],
            types: vec![PduSessionType::Ipv4v6, PduSessionType::Ipv4, PduSessionType::Ipv6],
            ipv4_pool: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
            ipv6_pool: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
            dns: vec![Ipv4Addr::new(8, 8, 8, 8).into()],
            p_cscf: vec![Ipv4Addr::new(192, 0, 2, 9).into()],
            mtu: 1400,
            static_pools: Default::default(),
            up_security: None,
        }],
        security: SecurityConfig {
            integrity: vec![IntegrityAlgorithm::NIA2, IntegrityAlgorithm::NIA1],
            ciphering: vec![CipheringAlgorithm::NEA0, CipheringAlgorithm::NEA2],
            key_lifetime: KeyLifetime::default(),
        },
        timers: Timers::default(),
        paging: PagingConfig {
            priority_levels: 8,
            power_saving: PowerSavingConfig {
                mode: Some(PowerSavingMode {
                    active_time: Duration::from_secs(60),
                    periodic_update: Duration::from_secs(7200),
                }),
                extended_drx: Some(Instant(0)),
            },
            ..PagingConfig::default()
        },
        upfs: vec![UpfConfig { name: "upf".into(), n4: upf(), dnns: vec![], n3_ipv6: false }],
        n4_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        n4_node: NodeName::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ran: Default::default(),
        smf_is_remote: false,
    }
}

/// Returns the address of the only UPF.
pub fn upf() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 7], 8805))
}

/// Deterministic identifiers that never run out.
#[derive(Debug, Default)]
pub struct Ids(u32);

impl Identifiers for Ids {
    fn tmsi(&mut self, ltmsi: Ltmsi) -> Option<Tmsi> {
        self.0 += 1;
        Some(Tmsi(ltmsi.get().rotate_left(4) ^ self.0))
    }

    fn rekey(&mut self, _: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        Some(Ltmsi::new(Bucket::new(7), 1235))
    }

    fn address(&mut self, _: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        let v4 = Some(Ipv4Addr::new(10, 45, 0, 2)).filter(|_| kind != PduSessionType::Ipv6);
        let v6 = Some(Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2, 0, 0, 0, 0)).filter(|_| kind != PduSessionType::Ipv4);
        Some(SessionAddress { ipv4: v4, ipv6_prefix: v6 })
    }
}

/// Runs a script: the first piece requests the session, each further step is an input to it.
pub fn steps(data: &[u8]) {
    sent(data);
}

/// Runs a script. Returns the PFCP messages of the session.
pub fn sent(data: &[u8]) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let (config, subscription) = (config(), DnnSubscription::default());
    let (mut ids, mut script) = (Ids::default(), Script(data));
    let mut random = |octets: &mut [u8]| octets.fill(0x11);
    let mut now = Instant(1_000_000);
    let _ = script.byte();
    let request = Create {
        supi: "999700000000001".parse().expect("a SUPI"),
        ltmsi: Ltmsi::new(Bucket::new(7), 1234),
        index: 3,
        psi: 5,
        dialect: Dialect::Nr,
        n1: script.piece(),
        snssai: Snssai { sst: 1, sd: None },
        dnn: &config.dnns[0].name,
        subscription: &subscription,
    };
    let mut env = Env { now, arrived: now, config: &config, random: &mut random, ids: &mut ids, ran: &() };
    let (sm, mut out) = smf::create(&request, &mut env);
    let Some(mut sm) = sm else { return sent };
    pfcp_of(&out, &mut sent);
    for _ in 0..64 {
        if script.is_done() || out.iter().any(|o| matches!(o, Output::Released)) {
            break;
        }
        let (step, piece) = (script.byte(), script.piece());
        let answer = answer(&out, piece, sm.pfcp.cp_seid);
        let input = match step % 16 {
            0 => Input::N1(piece),
            1 => Input::N2(N2Sm::SetupResponse, piece),
            2 => Input::N2(N2Sm::SetupUnsuccessful, piece),
            3 => Input::N2(N2Sm::ReleaseResponse, piece),
            4 => Input::Activate,
            5 => Input::Deactivate,
            6 => Input::Release(piece.first().copied().unwrap_or(36)),
            7 => Input::ReleaseLocally,
            8 => Input::Pfcp(piece),
            9 => Input::PfcpTimeout,
            10 => Input::UpfLost,
            11 => {
                now = now + Duration::from_secs(piece.first().copied().unwrap_or(1).into());
                Input::Deadline
            }
            14 => Input::N2(N2Sm::Notify, piece),
            15 => Input::N2(N2Sm::ModifyIndication, piece),
            _ => Input::Pfcp(&answer),
        };
        let env = Env { now, arrived: now, config: &config, random: &mut random, ids: &mut ids, ran: &() };
        out = smf::step(&mut sm, input, &env);
        pfcp_of(&out, &mut sent);
        let _ = smf::deadline(&sm);
    }
    sent
}

fn pfcp_of(out: &[Output], sent: &mut Vec<Vec<u8>>) {
    sent.extend(out.iter().filter_map(|o| match o {
        Output::Pfcp { message, .. } => Some(message.clone()),
        _ => None,
    }));
}

/// Returns an answer to the last PFCP request with the octets as its IEs. If there are none, an
/// establishment gets a full answer.
pub fn answer(out: &[Output], piece: &[u8], seid: Seid) -> Vec<u8> {
    let request = out.iter().rev().find_map(|o| match o {
        Output::Pfcp { message, .. } => Some(message),
        _ => None,
    });
    request.map_or_else(Vec::new, |request| pfcp_answer(request, piece, seid))
}

/// Returns a UPF's answer to a PFCP request, with the control plane's SEID. It has a cause, an
/// F-SEID and a tunnel for the first PDR, then the unchanged octets.
pub fn pfcp_answer(request: &[u8], piece: &[u8], seid: Seid) -> Vec<u8> {
    let Ok(message) = pfcp::Message::new(request) else { return Vec::new() };
    let header = message.header();
    let mut ies = vec![0, 19, 0, 1, 1]; // Cause: request accepted
    if message.message_type() == pfcp::MessageType::SESSION_ESTABLISHMENT_REQUEST {
        ies.extend([0, 60, 0, 5, 0, 127, 0, 0, 7]); // Node ID
        ies.extend([0, 57, 0, 13, 2, 1, 2, 3, 4, 5, 6, 7, 8, 127, 0, 0, 7]); // UP F-SEID
        ies.extend([0, 8, 0, 19, 0, 56, 0, 2, 0, 1, 0, 21, 0, 9, 1, 0, 0, 1, 1, 127, 0, 0, 7]); // Created PDR 1
    }
    ies.extend(piece);
    let length = u16::try_from(12 + ies.len()).unwrap_or(u16::MAX);
    let mut out = vec![0x21, request[1].wrapping_add(1)];
    out.extend(length.to_be_bytes());
    out.extend(seid.0.to_be_bytes());
    out.extend(&header.sequence.to_be_bytes()[1..]);
    out.push(0);
    out.extend(ies);
    out
}
