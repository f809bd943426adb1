//! What a gNB learns of a UE in Initial Context Setup and handovers: mobility restrictions, and the
//! assistance for RRC_INACTIVE.

use crate::lab::Lab;
use crate::lab::nas::downlink;
use std::num::NonZeroU16;
use vireo_core::amf::engine::Event;
use vireo_emulator::ue::Service;
use vireo_types::{Dialect, Plmn};
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage, NasRegistrationAccept};
use vireo_wire::ngap::*;

fn home() -> Plmn {
    "99970".parse().expect("a PLMN")
}

/// Returns a registered UE with a session, connected by gNB 0.
fn connected(change: impl FnOnce(&mut Lab)) -> Lab {
    let mut lab = Lab::new();
    change(&mut lab);
    lab.register();
    lab.session(1);
    lab
}

/// Returns the last PDU of a kind to a gNB.
fn sent(lab: &Lab, kind: NgapPduKind) -> NGAPPDU<'_> {
    let pdus = lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.into_iter().find(|pdu| pdu.kind() == kind).expect("a PDU")
}

/// Returns the equivalent PLMNs of the Mobility Restriction List, and true if EPC is forbidden.
fn restrictions(pdu: &NGAPPDU<'_>) -> Option<(Vec<[u8; 3]>, bool)> {
    let list = pdu.ie::<ie::MobilityRestrictionList>()?.expect("a list");
    assert_eq!(list.serving_plmn.0, home().ngap());
    let equivalent = list.equivalent_plmns.map_or(Vec::new(), |plmns| plmns.0.iter().map(|plmn| plmn.0).collect());
    let is_epc_forbidden = list.ie_extensions.is_some_and(|all| all.0.iter().any(|extension| extension.id.0 == 161));
    Some((equivalent, is_epc_forbidden))
}

/// Checks the assistance for RRC_INACTIVE against the context.
fn assert_assists(lab: &Lab, pdu: &NGAPPDU<'_>) {
    let assistance = pdu.ie::<ie::CoreNetworkAssistanceInformationForInactive>().expect("an IE").expect("a value");
    let UEIdentityIndexValue::indexLength10(index) = assistance.ue_identity_index_value else { panic!("10 bits") };
    let context = lab.context().expect("a context");
    let tmsi = context.identity.tmsi.expect("a 5G-TMSI").0;
    assert_eq!(index.value(), u64::from(tmsi % 1024), "5G-S-TMSI mod 1024");
    let areas = assistance.tai_list_for_inactive.0;
    assert_eq!(areas.iter().map(|item| item.tai.tac.0[2]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(assistance.mico_mode_indication, None);
}

/// Returns the REGISTRATION ACCEPT of the UE.
fn accept(lab: &Lab) -> NasRegistrationAccept {
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    let accepted = lab.sent.iter().find_map(|pdu| match Nas5gsMessage::decode(&downlink(&keys, pdu)?) {
        Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(accept))) => Some(*accept),
        _ => None,
    });
    accepted.expect("an accept")
}

/// GPRS timer 3 does not encode the default of T3512, 54 minutes. An octet of 0 would be a period
/// of 0 for the gNB, and without one the UE would use the period that it has stored (TS 24.501
/// 5.5.1.3.4).
#[test]
fn ue_and_node_learn_same_t3512() {
    let lab = connected(|_| {});
    let timer = accept(&lab).t3512_value.expect("a T3512");
    assert_eq!(timer.to_seconds(), Some(50 * 60));
    let setup = sent(&lab, NgapPduKind::Initiating_InitialContextSetup);
    let assistance = setup.ie::<ie::CoreNetworkAssistanceInformationForInactive>().expect("an IE").expect("a value");
    let octets = assistance.periodic_registration_update_timer.0.value();
    assert_eq!(timer.value, [octets as u8]);
}

/// REGISTRATION ACCEPT has the PLMNs that the Mobility Restriction List of the gNB has (TS 24.501
/// 5.5.1.2.4, 5.5.1.3.4).
#[test]
fn ue_learns_equivalent_plmns() {
    for others in [&[][..], &["00101", "26280"]] {
        let mut lab = Lab::new();
        lab.config.plmns.extend(others.iter().map(|plmn| plmn.parse::<vireo_types::Plmn>().expect("digits")));
        lab.register();
        let list = accept(&lab).equivalent_plmns;
        let golden = Nas5gsMessage::decode(&crate::golden::nr("RegistrationAccept-equivalent-plmns"));
        let Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(golden))) = golden else {
            panic!("{golden:?}")
        };
        assert_eq!(list, golden.equivalent_plmns.filter(|_| !others.is_empty()));
        let sets_up = |pdu: &NGAPPDU<'_>| pdu.kind() == NgapPduKind::Initiating_InitialContextSetup;
        let pdus = lab.sent.iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
        let setup = pdus.into_iter().find(sets_up).expect("a set-up");
        let of_node = setup.ie::<ie::MobilityRestrictionList>().and_then(|list| list.expect("a list").equivalent_plmns);
        let of_node: Option<Vec<u8>> = of_node.map(|plmns| plmns.0.iter().flat_map(|plmn| plmn.0).collect());
        assert_eq!(of_node, list.map(|list| list.value.to_vec()));
    }
}

#[test]
fn node_learns_how_ue_may_be_inactive() {
    let mut lab = connected(|_| {});
    let setup = sent(&lab, NgapPduKind::Initiating_InitialContextSetup);
    assert_assists(&lab, &setup);
    assert_eq!(restrictions(&setup), None, "there are none");
    lab.n2(2);
    assert_assists(&lab, &sent(&lab, NgapPduKind::Initiating_HandoverResourceAllocation));
    lab.xn((0xf0, 0x70), |_| true);
    assert_assists(&lab, &sent(&lab, NgapPduKind::Successful_PathSwitchRequest));
}

#[test]
fn restrictions_reach_source_and_target() {
    let other: Plmn = "00101".parse().expect("a PLMN");
    let mut lab = connected(|lab| {
        lab.config.plmns.push(other);
        lab.subscription.only = Some(Dialect::Nr);
    });
    let expected = Some((vec![other.ngap()], true));
    assert_eq!(restrictions(&sent(&lab, NgapPduKind::Initiating_InitialContextSetup)), expected);
    lab.n2(2);
    assert_eq!(restrictions(&sent(&lab, NgapPduKind::Initiating_HandoverResourceAllocation)), expected);
}

/// `n2.rrc-inactive`.
#[test]
fn forbidden_rrc_inactive_has_no_assistance() {
    let lab = connected(|lab| lab.config.ran.forbids_rrc_inactive = true);
    let setup = sent(&lab, NgapPduKind::Initiating_InitialContextSetup);
    assert!(setup.ie::<ie::CoreNetworkAssistanceInformationForInactive>().is_none());
}

/// `core.location-reports`: each node that has the context of the UE is asked once.
#[test]
fn nodes_are_asked_for_location() {
    let mut lab = connected(|lab| lab.config.ran.requests_location = true);
    let asked = |lab: &Lab| {
        let pdus = lab.sent.iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
        pdus.filter(|pdu| pdu.kind() == NgapPduKind::Initiating_LocationReportingControl).count()
    };
    assert_eq!(asked(&lab), 1);
    lab.session(2);
    assert_eq!(asked(&lab), 1);
    lab.n2(2);
    assert_eq!(asked(&lab), 2);
    lab.xn((0xf0, 0x70), |_| true);
    assert_eq!(asked(&lab), 3);
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(Service::Data, out).expect("a request"));
    assert_eq!(asked(&lab), 4);
}

/// TS 38.413 8.12.1: the operator asks where the UE is. An idle UE is not paged for it.
#[test]
fn operator_requests_cell_from_gnb() {
    let mut lab = connected(|_| {});
    let cell = |lab: &Lab| lab.context().and_then(|ue| ue.connection).expect("a connection").cell.cell;
    let own = cell(&lab);
    lab.change(|ue| ue.connection.as_mut().expect("a connection").cell.cell = own ^ 1);
    lab.event(Event::Locate);
    lab.settle();
    assert_eq!(cell(&lab), own, "LOCATION REPORT");
    let control = sent(&lab, NgapPduKind::Initiating_LocationReportingControl);
    let kind = control.ie::<ie::LocationReportingRequestType>().expect("an IE").expect("a type");
    assert_eq!((kind.event_type, kind.report_area), (EventType::direct, ReportArea::cell));
    lab.idle();
    let before = lab.sent.len();
    lab.event(Event::Locate);
    assert_eq!(lab.sent.len(), before);
}

fn rfsp(pdu: &NGAPPDU<'_>) -> Option<u64> {
    pdu.ie::<ie::IndexToRFSP>().map(|index| index.expect("an index").0)
}

/// TS 23.501 5.3.4.3. A changed index reaches the gNB of a connected UE.
#[test]
fn gnb_gets_rfsp_index_of_subscriber() {
    let mut lab = connected(|lab| lab.subscription.rfsp = NonZeroU16::new(256));
    assert_eq!(rfsp(&sent(&lab, NgapPduKind::Initiating_InitialContextSetup)), Some(256));
    let before = lab.sent.len();
    lab.subscription.rfsp = NonZeroU16::new(7);
    let subscription = Some(lab.subscription.clone());
    lab.event(Event::SubscriberChanged { subscription: subscription.clone(), is_repeated: false });
    lab.settle();
    assert_eq!(rfsp(&sent(&lab, NgapPduKind::Initiating_UEContextModification)), Some(7));
    assert_eq!(lab.sent.len() - before, 1);
    lab.event(Event::SubscriberChanged { subscription, is_repeated: true });
    assert_eq!(lab.sent.len() - before, 1, "it has not changed");
}

/// TS 38.413 9.3.1.54: without the last 4 digits of the serial number.
#[test]
fn node_learns_masked_imeisv() {
    let mut lab = connected(|_| {});
    let digits = lab.ue.usim().imeisv();
    let digits = std::str::from_utf8(&digits).expect("digits");
    let masked = u64::from_str_radix(&format!("{}ffff{}", &digits[..10], &digits[14..]), 16).expect("64 bits");
    lab.n2(2);
    for kind in [NgapPduKind::Initiating_InitialContextSetup, NgapPduKind::Initiating_HandoverResourceAllocation] {
        let imeisv = sent(&lab, kind).ie::<ie::MaskedIMEISV>().expect("an IE").expect("a value");
        assert_eq!(imeisv.0.value(), masked);
    }
}
