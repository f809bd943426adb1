//! Messages that pycrate has encoded (tests/reference): read as plain values, and built again.

use super::*;
use crate::amf::context::{Connection, RadioCapability, RanContext, Reachability, UeSecurityCapability};
use crate::amf::n2::{
    AcceptTransport, Cause, ContextSetup, ErabModification, HandoverRequired, MobilityRestrictions, PathSwitch,
    SessionItems, SessionSetup, UeInformation, UeMessage,
};
use crate::golden::eps as golden;
use crate::smf::{ErabAdmission, ErabForwarding, ErabTunnel};
use crate::subscription::{Ambr, AreaRestrictions, ServiceArea};
use vireo_types::{AmfUeNgapId, AssocId, RanUeNgapId};
use vireo_wire::ngap::{CauseNas, CauseRadioNetwork as Radio};

/// K_eNB and NH of the goldens.
pub(crate) const KEY: [u8; 32] = *b"\xc1\x81\x66\xe1\x3c\xfd\xe1\xde\xa8\x42\xc7\x08\xf6\xe0\xb3\x37\
                                    \x2b\x68\x96\x66\x4d\xf4\xe8\x65\xc0\xc7\x8b\xd2\x70\x85\x20\x05";
const NAS: [u8; 24] =
    *b"\x07\x41\x72\x0b\xf6\x99\xf9\x07\x80\x01\xc3\xde\xad\xbe\xef\x02\xe0\x60\x00\x04\x02\x01\xd0\x11";
/// QCI and ARP priority level of the goldens, and the S-GW end of S1-U.
pub(crate) const REQUESTED: [u8; 10] = [9, 9, 0, 0, 1, 1, 127, 0, 0, 7];

/// Returns the connection whose UE the goldens are about.
pub(crate) fn connection() -> Connection {
    let (tai, cell) = location();
    let amf_id = AmfUeNgapId::from_mme(0xa0b0_c0d0);
    Connection { assoc: AssocId(0), ran_id: RanUeNgapId(0), amf_id, tai, cell, ran: RanContext::SetUp }
}

/// Returns the capability with EEA0 to EEA3 and EIA1 to EIA3.
pub(crate) fn capability() -> UeSecurityCapability {
    UeSecurityCapability::from_eps(&[0xf0, 0x70])
}

/// 5G-EA0 to 3 and 8, 5G-IA1 to 3 and 15, as an eNB has them for EN-DC.
pub(crate) const NR_ALGORITHMS: Option<(u16, u16)> = Some((0xe100, 0xe002));

fn information(restrictions: MobilityRestrictions) -> UeInformation {
    UeInformation { restrictions: Some(restrictions), ..UeInformation::default() }
}

/// Returns the information about a UE that may not use EN-DC.
pub(crate) fn without_en_dc() -> UeInformation {
    let none = MobilityRestrictions::none(connection().tai.plmn);
    information(MobilityRestrictions { is_nr_restricted: true, ..none })
}

/// Returns the information about a UE with each kind of restriction. Service areas and tracking
/// areas of more than 16 bits are of 5G alone.
pub(crate) fn restricted() -> UeInformation {
    let service = Some(ServiceArea::NotAllowed(vec![Tac(9)]));
    information(MobilityRestrictions {
        serving: connection().tai.plmn,
        equivalent: vec!["00101".parse().expect("a PLMN")],
        is_other_core_forbidden: true,
        is_nr_restricted: true,
        areas: AreaRestrictions { forbidden: vec![Tac(2), Tac(0xffff), Tac(0x01_0000)], service },
    })
}

pub(crate) const AMBR: Ambr = Ambr { uplink_bps: 1_000_000_000, downlink_bps: 2_000_000_000 };

fn location() -> (Tai, NrCgi) {
    let plmn = "99970".parse().expect("a PLMN");
    (Tai { plmn, tac: Tac(7) }, NrCgi { plmn, cell: 0x000a_bc01 })
}

/// Returns the tunnel end of the eNB.
fn tunnel() -> Vec<u8> {
    ErabTunnel::encode([0, 0, 0, 0x75], &[127, 0, 0, 9])
}

fn session(nas: Option<Vec<u8>>) -> SessionSetup {
    let snssai = vireo_types::Snssai { sst: 1, sd: None };
    SessionSetup { psi: 5, snssai, transfer: REQUESTED.to_vec(), nas }
}

#[track_caller]
fn assert_read(name: &str, expected: UeMessage) {
    let (ran_id, message) = ue_message(&golden(name)).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
    assert_eq!(message, expected, "{name}");
    let has_none = name == "HandoverFailure";
    assert_eq!(ran_id, (!has_none).then_some(RanUeNgapId(0)), "{name}");
}

#[test]
fn handover_goldens_are_read() {
    let plmn = "99970".parse().expect("a PLMN");
    let peer = EnbId { plmn, kind: EnbKind::Macro, id: 0xabd };
    let required = HandoverRequired {
        cause: Cause::radioNetwork(Radio::handover_desirable_for_radio_reason),
        target: Some((peer.into(), location().0)),
        sessions: SessionItems::new(),
        is_direct: true,
        container: vec![0, 0, 0, 7, 0, 0, 0, 0, 0],
    };
    assert_read("HandoverRequired", UeMessage::HandoverRequired(required));
    let downlink = ErabTunnel::encode([8, 0, 0, 0x75], &[127, 0, 0, 9]);
    let forwarding = ErabForwarding { downlink, uplink: Vec::new() };
    let admission = ErabAdmission { tunnel: tunnel(), forwarding }.encode();
    let (admitted, failed, container) = (vec![(5, admission)], SessionItems::new(), vec![0; 4]);
    assert_read("HandoverRequestAcknowledge", UeMessage::HandoverAcknowledge { admitted, failed, container });
    let cause = Cause::radioNetwork(Radio::no_radio_resources_available_in_target_cell);
    assert_read("HandoverFailure", UeMessage::HandoverFailure { cause });
    assert_read("HandoverNotify", UeMessage::HandoverNotify { location: Some(location()) });
    let cause = Cause::radioNetwork(Radio::handover_cancelled);
    assert_read("HandoverCancel", UeMessage::HandoverCancel { cause });
    let switch = PathSwitch {
        ran_id: RanUeNgapId(0),
        location: Some(location()),
        capability: Some((0xe0, 0xe0)),
        eutra_capability: None,
        nr_capability: None,
        switched: vec![(5, tunnel())],
        failed: SessionItems::new(),
    };
    assert_read("PathSwitchRequest", UeMessage::PathSwitch(switch.clone()));
    let dual = PathSwitch { nr_capability: NR_ALGORITHMS, ..switch };
    assert_read("PathSwitchRequest-en-dc", UeMessage::PathSwitch(dual));
}

#[test]
fn erab_goldens_are_read() {
    let none = SessionItems::new;
    let set_up = vec![(5, tunnel())];
    let response = UeMessage::ContextSetupResponse { set_up: set_up.clone(), failed: none() };
    assert_read("InitialContextSetupResponse", response);
    assert_read("E-RABSetupResponse", UeMessage::SessionSetupResponse { set_up: set_up.clone(), failed: none() });
    let released = vec![(5, Vec::new())];
    assert_read("E-RABReleaseResponse", UeMessage::SessionReleaseResponse { released: released.clone() });
    assert_read("E-RABReleaseIndication", UeMessage::SessionReleaseIndication { released });
    let modification = ErabModification { modified: set_up, unmodified: 0 };
    assert_read("E-RABModificationIndication", UeMessage::ErabModification(modification));
    let usage = UeMessage::SecondaryRatUsage { uplink: 1000, downlink: 2_000_000 };
    assert_read("SecondaryRATDataUsageReport", usage);
    assert_read("NASNonDeliveryIndication", UeMessage::NonDelivery);
    let own = RadioCapability { whole: vec![0xa5; 32], paging: Vec::new() };
    let capability = UeMessage::RadioCapability { own, other: RadioCapability::default() };
    assert_read("UECapabilityInfoIndication", capability);
    let cause = Cause::radioNetwork(Radio::user_inactivity);
    assert_read("UEContextReleaseRequest", UeMessage::ReleaseRequest { cause });
    let released = UeMessage::ReleaseComplete { recommended: Vec::new() };
    assert_read("UEContextReleaseComplete", released);
}

#[test]
fn messages_to_enb_equal_goldens() {
    let connection = connection();
    assert_eq!(downlink_nas_transport(&connection, NAS.to_vec()), golden("DownlinkNASTransport"));
    let setup = |ambr, nr_algorithms, information| ContextSetup {
        guami: vireo_types::Guami { plmn: connection.tai.plmn, region: 0, set: 0, pointer: 0 },
        allowed: &[],
        capability: capability(),
        kgnb: KEY,
        ambr,
        radio_capability: &[],
        nr_algorithms,
        information,
        paging_capability: None,
        sessions: vec![session(None)],
        nas: Some(NAS.to_vec()),
    };
    let request = context_setup_request(&connection, setup(AMBR, None, UeInformation::default()));
    assert_eq!(request, golden("InitialContextSetupRequest"));
    let fast = Ambr { downlink_bps: 100_000_000_000, uplink_bps: 20_000_000_000 };
    let request = context_setup_request(&connection, setup(fast, NR_ALGORITHMS, without_en_dc()));
    assert_eq!(request, golden("InitialContextSetupRequest-en-dc"));
    let request = context_setup_request(&connection, setup(AMBR, None, restricted()));
    assert_eq!(request, golden("InitialContextSetupRequest-restricted"));
    let accept = |information: &UeInformation, nr_algorithms, radio_capability: &[u8]| {
        let content = AcceptTransport { information, nr_algorithms, radio_capability, allowed: &[] };
        accept_transport(&connection, NAS.to_vec(), content)
    };
    assert_eq!(accept(&without_en_dc(), NR_ALGORITHMS, &[]), golden("DownlinkNASTransport-en-dc"));
    let none = UeInformation::default();
    assert_eq!(accept(&none, None, &[0xa5; 32]), golden("DownlinkNASTransport-capability"));
    let restricted = UeInformation { rfsp: std::num::NonZeroU16::new(256), ..restricted() };
    assert_eq!(accept(&restricted, None, &[]), golden("DownlinkNASTransport-restricted"));
    let faster = Ambr { downlink_bps: 10_000_000_001, ..AMBR };
    let change = context_modification_request(&connection, faster);
    assert_eq!(change, golden("UEContextModificationRequest-en-dc"));
    let no_rate = Ambr { uplink_bps: 0, downlink_bps: 0 };
    let release = session_release_command(&connection, 5, (no_rate, Some(NAS.to_vec())));
    assert_eq!(release, golden("E-RABReleaseCommand"));
    let inactive = Cause::radioNetwork(Radio::user_inactivity);
    assert_eq!(context_release_command(&connection, &inactive), golden("UEContextReleaseCommand"));
    let detached = context_release_command(&connection, &Cause::nas(CauseNas::deregister));
    assert_ne!(detached, golden("UEContextReleaseCommand"), "the cause counts");
    let reachability = Reachability { area: [connection.tai].into_iter().collect(), ..Reachability::default() };
    let page = paging((0xc3, vireo_types::Tmsi(0xdead_beef)), 0x2ef, &reachability, Page::default());
    assert_eq!(page, golden("Paging"));
    let with_priority = Page { priority: Some(8), ..Page::default() };
    let page = paging((0xc3, vireo_types::Tmsi(0xdead_beef)), 0x2ef, &reachability, with_priority);
    assert_eq!(page, golden("Paging-priority"));
    let change = key_renewal_request(&connection, KEY, capability());
    assert_eq!(change, golden("UEContextModificationRequest-key"));
}
