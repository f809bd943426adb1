//! Forbidden and service areas of a subscriber (TS 23.501 5.3.4.1.1).

use crate::lab::{self, Lab};
use std::num::NonZeroU16;
use vireo_core::amf::engine::Event;
use vireo_core::step::{Kind, Note};
use vireo_core::subscription::{AreaRestrictions, ServiceArea};
use vireo_emulator::gnb;
use vireo_emulator::ue::{Cause, Event as UeEvent, MmState, Registration, Service};
use vireo_types::{Duration, Tac};
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, NGAPPDU, NgapPduKind, ie};
use vireo_wire::pfcp::{self, Element};
use vireo_wire::security::CipheringAlgorithm;

fn forbidden(tacs: &[u32]) -> AreaRestrictions {
    AreaRestrictions { forbidden: tacs.iter().copied().map(Tac).collect(), service: None }
}

fn not_allowed(tac: u32) -> AreaRestrictions {
    AreaRestrictions { forbidden: Vec::new(), service: Some(ServiceArea::NotAllowed(vec![Tac(tac)])) }
}

/// Returns a network whose subscriber has these restrictions. NAS messages are not ciphered.
fn network(areas: AreaRestrictions) -> Lab {
    let mut lab = Lab::new();
    lab.config.security.ciphering = vec![CipheringAlgorithm::NEA0];
    lab.subscription.areas = areas;
    lab
}

/// Returns a connected UE with session 1, which is restricted nowhere.
fn connected() -> Lab {
    let mut lab = network(AreaRestrictions::default());
    lab.register();
    lab.session(1);
    lab
}

fn request(lab: &mut Lab, kind: Registration) {
    lab.ue_does(|ue, p, out| ue.register(p, kind, out).expect("a request"));
}

/// Gives the subscriber other restrictions, as the host does.
fn change(lab: &mut Lab, areas: AreaRestrictions) {
    lab.subscription.areas = areas;
    let subscription = Some(lab.subscription.clone());
    lab.event(Event::SubscriberChanged { subscription, is_repeated: false });
    lab.settle();
}

fn area(lab: &Lab) -> Vec<u32> {
    lab.context().expect("a context").reachability.area.iter().map(|tai| tai.tac.0).collect()
}

fn pages(lab: &Lab) -> usize {
    lab.gnb_events.iter().filter(|e| matches!(e, gnb::Event::Paging(_))).count()
}

fn is_connected(lab: &Lab) -> bool {
    lab.context().is_some_and(|context| context.connection.is_some())
}

fn serve(lab: &mut Lab, service: Service) {
    lab.ue_does(|ue, _, out| ue.service_request(service, out).expect("a request"));
}

fn service_rejected(cause: u8) -> UeEvent {
    UeEvent::ServiceRejected { cause, retry_after_s: None }
}

/// Returns the last NGAP PDU with a NAS message of a type, and the message.
fn downlink(lab: &Lab, kind: u8) -> (NGAPPDU<'_>, Nas5gmmMessage) {
    for octets in lab.sent.iter().rev() {
        let pdu = NGAP_PDU::decode_borrowed(octets).expect("a PDU");
        let Some(Ok(nas)) = pdu.ie::<ie::NAS_PDU>() else { continue };
        if let Some(plain) = nas.0.get(7..).filter(|plain| plain.get(2) == Some(&kind)) {
            let Ok(Nas5gsMessage::Gmm(_, message)) = Nas5gsMessage::decode(plain) else { panic!("a message") };
            return (pdu, message);
        }
    }
    panic!("no message of type {kind:#x}")
}

/// Returns the service area list in the last REGISTRATION ACCEPT.
fn list_of_accept(lab: &Lab) -> Option<Vec<u8>> {
    match downlink(lab, 0x42).1 {
        Nas5gmmMessage::RegistrationAccept(accept) => accept.service_area_list.map(|list| list.value.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Returns the last CONFIGURATION UPDATE COMMAND and its PDU.
fn update(lab: &Lab) -> (NGAPPDU<'_>, Box<NasConfigurationUpdateCommand>) {
    match downlink(lab, 0x54) {
        (pdu, Nas5gmmMessage::ConfigurationUpdateCommand(command)) => (pdu, command),
        other => panic!("{other:?}"),
    }
}

/// Has the UPF report a packet for session 1.
fn downlink_packet(lab: &mut Lab) {
    let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
    let octets = lab::pfcp_report(seid, pfcp::ReportType::DLDR, |report| {
        report.group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
    });
    lab.event(Event::Pfcp { seid, message: &octets });
    lab.settle();
}

/// TS 24.501 A.2: #15 if another tracking area of the network may serve the UE, else #12.
#[test]
fn forbidden_area_rejects_by_cause() {
    for (tacs, cause) in [(&[1][..], 15), (&[1, 2], 12)] {
        let mut lab = network(forbidden(tacs));
        request(&mut lab, Registration::Fresh);
        let rejected = UeEvent::RegistrationRejected { cause, retry_after_s: None };
        assert!(lab.events.contains(&rejected), "{:?}", lab.events);
    }
    let mut lab = network(forbidden(&[2]));
    lab.register();
    assert_eq!((area(&lab), list_of_accept(&lab)), (vec![1], None));
}

/// A UE comes to a forbidden area while it is idle.
#[test]
fn forbidden_area_rejects_service_and_update() {
    let mut lab = network(forbidden(&[2]));
    lab.register();
    lab.session(1);
    lab.idle();
    lab.at = 1;
    serve(&mut lab, Service::Data);
    assert!(lab.events.contains(&service_rejected(15)), "{:?}", lab.events);
    request(&mut lab, Registration::Mobility);
    let rejected = UeEvent::RegistrationRejected { cause: 15, retry_after_s: None };
    assert!(lab.events.contains(&rejected), "{:?}", lab.events);
    // It keeps its registration and its session (5.5.1.3.5).
    assert!(lab.context().is_some_and(|context| context.is_registered() && context.sessions.len() == 1));
}

#[test]
fn registration_area_has_one_restriction() {
    let mut lab = network(not_allowed(2));
    lab.register();
    assert_eq!(area(&lab), [1]);
    // TS 24.501 9.11.3.49: non-allowed area, one tracking area of a PLMN.
    assert_eq!(list_of_accept(&lab), Some(vec![0x80, 0x99, 0xf9, 0x07, 0, 0, 2]));
    lab.session(1);
    let mut lab = network(AreaRestrictions { service: Some(ServiceArea::Allowed(vec![Tac(2)])), ..forbidden(&[]) });
    lab.register();
    assert_eq!(area(&lab), [1]);
    assert_eq!(list_of_accept(&lab), Some(vec![0x00, 0x99, 0xf9, 0x07, 0, 0, 2]));
}

#[test]
fn non_allowed_area_serves_registration_alone() {
    let mut lab = network(not_allowed(1));
    lab.register();
    lab.ue_does(|ue, p, out| ue.establish(p, 1, vireo_types::PduSessionType::Ipv4, out).expect("a request"));
    let returned = UeEvent::SessionRejected { psi: 1, cause: Cause::Mm(28) };
    assert!(lab.events.contains(&returned), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|context| context.sessions.is_empty()));
    lab.idle();
    for service in [Service::Signalling, Service::Data] {
        serve(&mut lab, service);
        assert_eq!(lab.events.iter().filter(|event| **event == service_rejected(28)).count(), 1, "{:?}", lab.events);
        lab.events.clear();
        assert!(!is_connected(&lab));
    }
    request(&mut lab, Registration::Periodic);
    assert!(lab.events.contains(&UeEvent::Registered { guti: true }), "{:?}", lab.events);
}

/// TS 24.501 5.5.1.3.4: the UE learns why its session has no user plane.
#[test]
fn update_in_non_allowed_area_names_cause() {
    let mut lab = network(not_allowed(2));
    lab.register();
    lab.session(1);
    lab.idle();
    lab.at = 1;
    request(&mut lab, Registration::Mobility);
    let Nas5gmmMessage::RegistrationAccept(accept) = downlink(&lab, 0x42).1 else { panic!("{:?}", lab.notes) };
    let result = accept.pdu_session_reactivation_result.map(|result| result.value.to_vec());
    let causes = accept.pdu_session_reactivation_result_error_cause.map(|causes| causes.value.to_vec());
    assert_eq!((result, causes), (Some(vec![0x02, 0]), Some(vec![1, 28])));
}

/// The UE gets its service area, and the gNB the restrictions; then its user plane ends. After the
/// end of the restriction it is paged, and served again.
#[test]
fn changed_service_area_acts_on_ue() {
    let mut lab = connected();
    change(&mut lab, not_allowed(1));
    let (pdu, command) = update(&lab);
    assert_eq!(command.service_area_list.map(|list| list.value.to_vec()), Some(vec![0x80, 0x99, 0xf9, 0x07, 0, 0, 1]));
    let restrictions = pdu.ie::<ie::MobilityRestrictionList>().expect("a list").expect("a list");
    let service = restrictions.service_area_information.expect("a service area").0;
    assert_eq!(service[0].not_allowed_tacs.as_ref().map(|tacs| tacs.0[0].0), Some([0, 0, 1]));
    assert_eq!((area(&lab), is_connected(&lab)), (vec![1], false));
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.sessions.len() == 1);
    // No packet pages it.
    downlink_packet(&mut lab);
    assert_eq!(pages(&lab), 0);
    serve(&mut lab, Service::Data);
    assert!(lab.events.contains(&service_rejected(28)), "{:?}", lab.events);
    lab.events.clear();
    change(&mut lab, AreaRestrictions::default());
    assert_eq!(pages(&lab), 1);
    let (pdu, command) = update(&lab);
    assert_eq!(command.service_area_list.map(|list| list.value.to_vec()), Some(vec![0x60, 0x99, 0xf9, 0x07]));
    let restrictions = pdu.ie::<ie::MobilityRestrictionList>().expect("a list").expect("a list");
    assert_eq!((restrictions.service_area_information, restrictions.forbidden_area_information), (None, None));
    assert!(lab.events.contains(&UeEvent::ConfigurationUpdated), "{:?}", lab.events);
    lab.idle();
    downlink_packet(&mut lab);
    assert_eq!(pages(&lab), 2);
    assert!(lab.context().is_some_and(|context| context.sessions[0].is_up()));
}

/// The accept of a connected UE has the service area; its gNB gets the restrictions afterwards.
#[test]
fn update_leaves_restrictions_to_command() {
    let mut lab = connected();
    lab.subscription.areas = forbidden(&[2]);
    lab.change(|context| {
        let subscription = context.subscription.as_mut().map(std::sync::Arc::make_mut);
        subscription.expect("a subscription").areas = forbidden(&[2]);
        context.pending.areas = true;
    });
    request(&mut lab, Registration::Mobility);
    assert_eq!(area(&lab), [1]);
    let (pdu, _) = update(&lab);
    let restrictions = pdu.ie::<ie::MobilityRestrictionList>().expect("a list").expect("a list");
    assert!(restrictions.forbidden_area_information.is_some());
    assert!(lab.context().is_some_and(|context| !context.pending.areas));
}

/// An unreachable UE gets its service area on its next connection; no further page is sent.
#[test]
fn silent_ue_gets_service_area_later() {
    let mut lab = connected();
    lab.idle();
    lab.answers_paging = false;
    change(&mut lab, not_allowed(2));
    lab.wait(Duration::from_secs(60));
    let sent = pages(&lab);
    assert!((1..=10).contains(&sent), "{sent} pages");
    lab.wait(Duration::from_secs(60));
    assert_eq!(pages(&lab), sent);
    serve(&mut lab, Service::Data);
    assert!(lab.events.contains(&UeEvent::ConfigurationUpdated), "{:?}", lab.events);
    assert!(update(&lab).1.service_area_list.is_some() && is_connected(&lab));
}

#[test]
fn newly_forbidden_area_deregisters_ue() {
    for (idle, tacs, cause) in [(false, &[1][..], 15), (false, &[1, 2], 12), (true, &[1], 15)] {
        let mut lab = connected();
        if idle {
            lab.idle();
        }
        change(&mut lab, forbidden(tacs));
        let by_network = UeEvent::DeregisteredByNetwork { cause: Some(cause), reregister: false };
        assert!(lab.events.contains(&by_network), "{:?}", lab.events);
        assert!(lab.context().is_some_and(|context| !context.is_registered() && context.sessions.is_empty()));
    }
    // An idle UE that has come to another tracking area may register there.
    let mut lab = connected();
    lab.idle();
    lab.at = 1;
    lab.answers_paging = false;
    change(&mut lab, forbidden(&[1]));
    serve(&mut lab, Service::Paged);
    let by_network = UeEvent::DeregisteredByNetwork { cause: None, reregister: true };
    assert!(lab.events.contains(&by_network), "{:?}", lab.events);
}

#[test]
fn forbidden_area_is_no_target_of_handover() {
    let mut lab = network(forbidden(&[2]));
    lab.register();
    lab.session(1);
    let setup = lab.sent.iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let setup = setup.into_iter().find(|pdu| pdu.kind() == NgapPduKind::Initiating_InitialContextSetup);
    let setup = setup.expect("a set-up");
    let list = setup.ie::<ie::MobilityRestrictionList>().expect("a list").expect("a list");
    let item = &list.forbidden_area_information.expect("forbidden areas").0[0];
    assert_eq!(item.forbidden_tacs.0.iter().map(|tac| tac.0).collect::<Vec<_>>(), [[0, 0, 2]]);
    lab.n2(2);
    let failed = |kind| lab.notes.iter().filter(|note| matches!(note, Note::Failed(k, _) if *k == kind)).count();
    assert_eq!((failed(Kind::Handover), failed(Kind::PathSwitch)), (1, 0));
    assert!(lab.gnb_events.iter().any(|event| matches!(event, gnb::Event::HandoverRefused { .. })));
    lab.xn((0xf0, 0x70), |_| true);
    let failed = lab.notes.iter().filter(|note| matches!(note, Note::Failed(Kind::PathSwitch, _))).count();
    assert_eq!(failed, 1);
}

/// A gNB that is setting up the context gets a changed RFSP Index with the next NAS message.
#[test]
fn rfsp_index_follows_set_up() {
    let mut lab = connected();
    lab.idle();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    serve(&mut lab, Service::Data);
    lab.subscription.rfsp = NonZeroU16::new(7);
    change(&mut lab, AreaRestrictions::default());
    lab.slow = None;
    for (n, pdu) in std::mem::take(&mut lab.late) {
        lab.take_from_gnb(n, &pdu);
    }
    lab.settle();
    let index = update(&lab).0.ie::<ie::IndexToRFSP>().map(|index| index.expect("an index").0);
    assert_eq!(index, Some(7));
    assert_eq!(lab.ue.mm(), MmState::Registered);
}
