//! Messages of the MME that equal those of pycrate (tests/reference).

use super::network::{Network, emm};
use crate::golden::eps as golden;
use vireo_core::amf::context::{
    Connection, DrxCycle, ExtendedDrx, PagingInfo, RadioCapability, RanContext, Reachability,
};
use vireo_core::amf::n2::{self, UeMessage};
use vireo_core::amf::s1;
use vireo_core::config::{CiotConfig, PowerSavingConfig, PowerSavingMode};
use vireo_core::step::Effect;
use vireo_core::subscription::Ambr;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Duration, Instant, Ltmsi, NrCgi, RanUeNgapId, Tac, Tai, Tmsi};
use vireo_wire::gtpu::is_g_pdu;
use vireo_wire::nas_eps::*;

const IDS: u32 = 0xa0b0_c0d0;
const NAS: [u8; 24] =
    *b"\x07\x41\x72\x0b\xf6\x99\xf9\x07\x80\x01\xc3\xde\xad\xbe\xef\x02\xe0\x60\x00\x04\x02\x01\xd0\x11";

fn tai() -> Tai {
    Tai { plmn: "99970".parse().expect("digits"), tac: Tac(7) }
}

fn connection() -> Connection {
    Connection {
        assoc: AssocId(7).with_dialect(Dialect::Eps),
        ran_id: RanUeNgapId(0),
        amf_id: AmfUeNgapId::new(Ltmsi::from_raw(IDS >> 4), 0),
        tai: tai(),
        cell: NrCgi { plmn: tai().plmn, cell: 1 },
        ran: RanContext::SetUp,
    }
}

#[test]
fn pages_and_changes_equal_those_of_pycrate() {
    let paging = PagingInfo {
        coding: Dialect::Eps,
        capability: vec![7; 30],
        drx: Some((Dialect::Eps, DrxCycle::Frames64)),
        extended_drx: Some(ExtendedDrx { cycle: 5, window: 3 }),
        power_saving: None,
        ..PagingInfo::default()
    };
    let reachability = Reachability { area: [tai()].into_iter().collect(), paging, ..Reachability::default() };
    let page = s1::paging((0xc3, Tmsi(0xdead_beef)), 0x2ef, &reachability, s1::Page::default());
    assert_eq!(hex::encode(page), hex::encode(golden("Paging-extended-drx")));
    let ambr = Ambr { uplink_bps: 2_000_000, downlink_bps: 30_000_000 };
    let change = s1::context_modification_request(&connection(), ambr);
    assert_eq!(hex::encode(change), hex::encode(golden("UEContextModificationRequest")));
    let rfsp = std::num::NonZeroU16::new(7).expect("a number");
    let change = s1::rfsp_modification_request(&connection(), rfsp);
    assert_eq!(hex::encode(change), hex::encode(golden("UEContextModificationRequest-rfsp")));
    let control = s1::location_reporting_control(&connection(), false);
    assert_eq!(hex::encode(control), hex::encode(golden("LocationReportingControl")));
    let qos = [9, 9];
    let modify = s1::session_modify_request(&connection(), 5, (ambr, Some(NAS.to_vec())), &qos);
    assert_eq!(hex::encode(modify), hex::encode(golden("E-RABModifyRequest")));
    let (_, modified) = s1::ue_message(&golden("E-RABModifyResponse")).expect("a message");
    let UeMessage::SessionModifyResponse { modified, failed } = modified else { panic!("{modified:?}") };
    assert_eq!((modified, failed.len()), (vec![(5, Vec::new())].into_iter().collect(), 0));
    let (_, refused) = s1::ue_message(&golden("E-RABModifyResponse-failed")).expect("a message");
    let UeMessage::SessionModifyResponse { modified, failed } = refused else { panic!("{refused:?}") };
    assert_eq!((modified.len(), failed.iter().map(|(ebi, _)| *ebi).collect::<Vec<_>>()), (0, vec![5]));
    let release = s1::session_release_command(&connection(), 5, (ambr, Some(NAS.to_vec())));
    assert_eq!(hex::encode(release), hex::encode(golden("E-RABReleaseCommand-ambr")));
}

#[test]
fn location_reports_of_pycrate_are_read() {
    let read = |name| s1::ue_message(&golden(name)).expect("a message").1;
    let cell = NrCgi { plmn: tai().plmn, cell: 0x000_abc01 };
    assert_eq!(read("LocationReport"), UeMessage::Location(Some((tai(), cell))));
    assert_eq!(read("LocationReportingFailureIndication"), UeMessage::LocationReportingFailure);
}

#[test]
fn radio_capability_of_pycrate_is_read() {
    let read = s1::ue_message(&golden("UECapabilityInfoIndication-paging"));
    let Ok((_, UeMessage::RadioCapability { own, other })) = read else { panic!("{read:?}") };
    assert_eq!((own.whole, own.paging, other), (vec![0xa5; 32], vec![7; 30], RadioCapability::default()));
    let read = s1::ue_message(&golden("UECapabilityInfoIndication-formats"));
    let Ok((_, UeMessage::RadioCapability { own, other })) = read else { panic!("{read:?}") };
    assert_eq!((own.whole, own.paging), (vec![0xa5; 32], vec![0; 30]));
    // Both capabilities for paging, in the coding of NGAP.
    let of_5g = crate::golden::nr("UERadioCapabilityInfoIndication-formats");
    let read = n2::ue_message(&of_5g);
    let Ok((_, UeMessage::RadioCapability { own: of_gnb, other: of_eutra })) = read else { panic!("{read:?}") };
    assert_eq!((other.whole, other.paging), (of_gnb.whole, of_gnb.paging));
    assert_eq!(of_eutra, RadioCapability { whole: vec![0xa5; 32], paging: vec![0; 30] });
}

#[test]
fn accepts_and_rejects_equal_those_of_pycrate() {
    let mut network = Network::new();
    let mode = PowerSavingMode { active_time: Duration::from_secs(60), periodic_update: Duration::from_secs(7200) };
    network.config.paging.power_saving = PowerSavingConfig { mode: Some(mode), extended_drx: Some(Instant(0)) };
    network.config.timers.t3402 = Duration::from_secs(30 * 60);
    let saving = (
        Some(NasGprsTimer2::new(vec![5])),
        Some(NasT3412ExtendedValue::new(vec![0x0c])),
        Some(NasExtendedDrxParameters::new(vec![0x35])),
    );
    let mut request = network.attach_request();
    let (t3324, t3412, drx) = saving.clone();
    (request.t3324_value, request.t3412_extended_value, request.extended_drx_parameters) = (t3324, t3412, drx);
    network.initial_message(&request);
    network.update_with(UpdateType::TaUpdating, |request| {
        (request.t3324_value, request.t3412_extended_value, request.extended_drx_parameters) = saving;
    });
    // The GUTI and the bearer are those of the goldens.
    let guti = NasEpsMobileIdentity::new(hex::decode("f699f9078001c3deadbeef").expect("digits"));
    let mut checked = 0;
    for message in network.ue.received {
        let (name, message): (_, NasEmmMessage) = match message {
            NasEmmMessage::AttachAccept(mut accept) => {
                let sound = golden("AttachAccept-power-saving");
                let Ok(NasEpsMessage::Emm(_, NasEmmMessage::AttachAccept(other))) = NasEpsMessage::decode(&sound)
                else {
                    panic!("{sound:02x?}")
                };
                (accept.guti, accept.esm_message_container) = (Some(guti.clone()), other.esm_message_container);
                ("AttachAccept-power-saving", NasEmmMessage::AttachAccept(accept))
            }
            NasEmmMessage::TrackingAreaUpdateAccept(mut accept) => {
                accept.guti = Some(guti.clone());
                ("TrackingAreaUpdateAccept-power-saving", NasEmmMessage::TrackingAreaUpdateAccept(accept))
            }
            _ => continue,
        };
        let octets = NasEpsMessage::new_emm(message).encode().expect("it encodes");
        assert_eq!(hex::encode(octets), hex::encode(golden(name)), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 2);
    let reject = NasServiceReject::new(NasEmmCause::new(97));
    assert_eq!(emm(reject).encode().ok(), Some(golden("ServiceReject-unserved")));
    let dummy = NasEpsMessage::new_esm(NasEsmDummyMessage::new(), 0, 0).encode().expect("it encodes");
    let reject =
        NasAttachReject::new(NasEmmCause::new(19)).with_esm_message_container(NasEsmMessageContainer::new(dummy));
    assert_eq!(emm(reject).encode().ok(), Some(golden("AttachReject-dummy")));
}

/// T3447 goes to UEs that support service gap control, also if an update repeats no capability.
#[test]
fn service_gap_accepts_equal_those_of_pycrate() {
    for (seconds, is_supported) in [(18_600, true), (18_600, false), (0, true)] {
        let mut network = Network::new();
        network.config.timers.t3447 = Duration::from_secs(seconds);
        let mut request = network.attach_request();
        request.ue_network_capability.set_sgc(is_supported);
        network.initial_message(&request);
        network.update(UpdateType::TaUpdating);
        let guti = NasEpsMobileIdentity::new(hex::decode("f699f9078001c3deadbeef").expect("digits"));
        let mut checked = Vec::new();
        for message in network.ue.received {
            match message {
                NasEmmMessage::AttachAccept(accept) if seconds > 0 && is_supported => {
                    let name = "AttachAccept-service-gap";
                    assert_eq!(hex::encode(with_golden_parts(*accept, name)), hex::encode(golden(name)));
                    checked.push(true);
                }
                NasEmmMessage::TrackingAreaUpdateAccept(mut accept) if seconds > 0 && is_supported => {
                    (accept.guti, accept.eps_bearer_context_status) = (Some(guti.clone()), None);
                    let octets = emm(*accept).encode().expect("it encodes");
                    assert_eq!(hex::encode(octets), hex::encode(golden("TrackingAreaUpdateAccept-service-gap")));
                    checked.push(true);
                }
                NasEmmMessage::AttachAccept(accept) => checked.push(accept.t3447_value.is_some()),
                NasEmmMessage::TrackingAreaUpdateAccept(accept) => checked.push(accept.t3447_value.is_some()),
                _ => {}
            }
        }
        assert_eq!(checked, [seconds > 0 && is_supported; 2], "{seconds} s");
    }
}

/// After attach and update in another place, not after a periodic update.
#[test]
fn network_information_equals_pycrate() {
    let mut network = Network::new();
    network.now = Instant(1_795_964_645_000_000);
    let information = &mut network.config.information;
    (information.full_name, information.short_name) = ("Vireo Net".into(), "Vireo".into());
    information.time_zone = Some(8);
    network.attach();
    network.update(UpdateType::TaUpdating);
    network.update(UpdateType::PeriodicUpdating);
    let information = |message: &NasEmmMessage| match message {
        NasEmmMessage::EmmInformation(information) => Some(emm(*information.clone()).encode().expect("it encodes")),
        _ => None,
    };
    let sent: Vec<_> = network.ue.received.iter().filter_map(information).map(hex::encode).collect();
    let expected = hex::encode(golden("EmmInformation"));
    assert_eq!(sent, [expected.clone(), expected]);
}

/// Replaces the parts of an ATTACH ACCEPT that the goldens have chosen.
fn with_golden_parts(mut accept: NasAttachAccept, name: &str) -> Vec<u8> {
    let Ok(NasEpsMessage::Emm(_, NasEmmMessage::AttachAccept(golden))) = NasEpsMessage::decode(&golden(name)) else {
        panic!("{name}")
    };
    let indication = |accept: &NasAttachAccept| match NasEpsMessage::decode(&accept.esm_message_container.value) {
        Ok(NasEpsMessage::Esm(_, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(request))) => {
            request.control_plane_only_indication
        }
        Ok(NasEpsMessage::Esm(_, NasEsmMessage::EsmDummyMessage(_))) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(indication(&accept), indication(&golden), "{name}");
    (accept.guti, accept.esm_message_container) = (golden.guti, golden.esm_message_container);
    emm(accept).encode().expect("it encodes")
}

/// The core serves the requests as pycrate encodes them, and its answers equal those of pycrate.
#[test]
fn ciot_messages_equal_those_of_pycrate() {
    for kind in ["without-pdn", "over-nas"] {
        let mut network = Network::new();
        network.config.ciot = CiotConfig { without_pdn: true, control_plane: true };
        network.uplink(golden(&format!("UE-AttachRequest-{kind}")));
        let accept = network.ue.received.iter().find_map(|message| match message {
            NasEmmMessage::AttachAccept(accept) => Some(accept.clone()),
            _ => None,
        });
        let name = format!("AttachAccept-{kind}");
        assert_eq!(hex::encode(with_golden_parts(*accept.expect("an accept"), &name)), hex::encode(golden(&name)));
    }
    let mut network = Network::new();
    network.config.ciot = CiotConfig { control_plane: true, ..CiotConfig::default() };
    network.uplink(golden("UE-AttachRequest-over-nas"));
    network.idle();
    let request = NasEpsMessage::decode(&golden("UE-ControlPlaneServiceRequest")).expect("a message");
    let header = NasEpsSecurityHeaderType::IntegrityProtectedAndPartiallyCipheredNasMessage;
    network.protected(&request, header);
    let is_packet = |effect: &&Effect| matches!(effect, Effect::Pfcp { message, .. } if is_g_pdu(message) && message.ends_with(&[0x45, 0, 0, 4]));
    assert_eq!(network.effects.iter().filter(is_packet).count(), 1);
    assert_eq!(network.mme_id, None, "its release assistance indication is read");
    assert_eq!(emm(network.last().clone()).encode().ok(), Some(golden("ServiceAccept")));
    let mut request = match request {
        NasEpsMessage::Emm(_, NasEmmMessage::ControlPlaneServiceRequest(request)) => request,
        other => panic!("{other:?}"),
    };
    request.esm_message_container = None;
    request.eps_bearer_context_status = Some(NasEpsBearerContextStatus::new(vec![0x20, 0]));
    network.protected(&emm(*request), NasEpsSecurityHeaderType::IntegrityProtected);
    assert_eq!(emm(network.last().clone()).encode().ok(), Some(golden("ServiceAccept-status")));
    let data = golden("UE-ESMDataTransport-last");
    network.protected(
        &NasEpsMessage::decode(&data).expect("a message"),
        NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered,
    );
    assert_eq!(network.effects.iter().filter(is_packet).count(), 2);
}

/// Accepts of a network with three PLMNs.
#[test]
fn accepts_with_plmns_equal_those_of_pycrate() {
    let mut network = Network::new();
    network.config.plmns.extend(["00101", "26280"].map(|plmn| plmn.parse::<vireo_types::Plmn>().expect("digits")));
    network.attach();
    network.update(UpdateType::TaUpdating);
    let (guti, mut checked) = (hex::decode("f699f9078001c3deadbeef").expect("digits"), 0);
    for message in std::mem::take(&mut network.ue.received) {
        let (name, octets) = match message {
            NasEmmMessage::AttachAccept(accept) => {
                let name = "AttachAccept-equivalent-plmns";
                (name, with_golden_parts(*accept, name))
            }
            NasEmmMessage::TrackingAreaUpdateAccept(mut accept) => {
                accept.guti = Some(NasEpsMobileIdentity::new(guti.clone()));
                ("TrackingAreaUpdateAccept-equivalent-plmns", emm(*accept).encode().expect("it encodes"))
            }
            _ => continue,
        };
        assert_eq!(hex::encode(octets), hex::encode(golden(name)), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 2);
}
