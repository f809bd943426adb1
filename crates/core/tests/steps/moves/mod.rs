//! Moves of a UE between 4G and 5G in idle state (TS 23.502 4.11.1.3), and by handover (4.11.1.2).
//!
//! The keys of the core are compared with a derivation in the test and with the codec crate.

mod handover;
mod phone;

use crate::lab::ENB;
use phone::{Phone, derived, protected_by_5g};
use vireo_core::amf::context::RadioCapability;
use vireo_core::amf::engine::Event;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::Subscription;
use vireo_types::{Dialect, Duration};
use vireo_wire::nas::{self, Nas5gsMessage, Nas5gsSecurityHeaderType};
use vireo_wire::nas_eps::*;
use vireo_wire::ngap;
use vireo_wire::pfcp::{self, Element};
use vireo_wire::s1ap::{S1apPduKind, ie};
use vireo_wire::security::NasCount;
use vireo_wire::security::nas_eps::{KAsme, derive_kenb};

/// Bit of EPS bearer 5.
const BEARER: u16 = 1 << 5;

fn succeeded(phone: &Phone, kind: Kind) -> usize {
    phone.lab.notes.iter().filter(|n| matches!(n, Note::Succeeded(k, _) if *k == kind)).count()
}

/// Returns the number of authentications, of which the first registration is one.
fn authentications(phone: &Phone) -> usize {
    phone.lab.effects.iter().filter(|e| matches!(e, Effect::Authenticate(_))).count()
}

/// Returns the QERs that the PFCP messages since `from` remove and create.
fn qers(phone: &Phone, from: usize) -> (usize, usize) {
    let of = |id: u16| {
        let messages = phone.lab.pfcp[from..].iter().map(|octets| pfcp::Message::new(octets).expect("a message"));
        messages.map(|m| m.ies().map_while(Result::ok).filter(|ie| ie.id == id).count()).sum()
    };
    (of(pfcp::RemoveQer::ID), of(pfcp::CreateQer::ID))
}

/// Returns the accept of an update.
fn update_accept(phone: &mut Phone) -> NasTrackingAreaUpdateAccept {
    match phone.received() {
        NasEpsMessage::Emm(_, NasEmmMessage::TrackingAreaUpdateAccept(accept)) => *accept,
        other => panic!("{other:?}"),
    }
}

#[test]
fn update_with_5g_keys_moves_session_to_4g() {
    let mut phone = Phone::new();
    let (before, pfcp) = (phone.context(), phone.lab.pfcp.len());
    phone.move_to_4g(BEARER, true);
    let security = phone.security();
    let old = before.security.as_ref().expect("keys");
    assert_eq!(security.kamf, phone.kasme, "KASME'");
    assert_eq!((security.key_set.dialect(), security.key_set.ie()), (Dialect::Eps, 8 | old.key_set.identifier()));
    assert!(phone.is_all_of(Dialect::Eps) && authentications(&phone) == 1);
    assert_eq!(qers(&phone, pfcp), (1, 1), "packets are not marked any more");

    let [setup] = &phone.pdus(S1apPduKind::Initiating_InitialContextSetup)[..] else { panic!("{:?}", phone.lab.notes) };
    let count = NasCount::new(old.uplink).expect("a COUNT");
    let kenb = derive_kenb(&KAsme::new(&phone.kasme), count);
    let key = setup.ie::<ie::SecurityKey>().expect("an IE").expect("a key");
    assert_eq!(key.0.as_octets(), kenb.as_octets());
    let accept = update_accept(&mut phone);
    assert_eq!(accept.eps_bearer_context_status.map(|status| status.value.to_vec()), Some(vec![0x20, 0]));
    let guti = accept.guti.expect("a new GUTI");
    assert_ne!(guti, phone.guti);
    phone.guti = guti;
    phone.set_up(&[5]);
    phone.uplink(&NasEpsMessage::new_emm(NasTrackingAreaUpdateComplete::new()));

    let after = phone.context();
    assert_eq!(phone.lab.notes.iter().filter(|n| matches!(n, Note::Failed(..))).count(), 0);
    assert_eq!((after.sessions[0].psi, after.sessions[0].id()), (3, 5));
    assert_eq!(after.sessions[0].address, before.sessions[0].address, "the address is kept");
    assert_eq!(after.sessions[0].downlink.map(|tunnel| tunnel.teid.0), Some(0x0102_0305));
    assert_eq!(after.ltmsi, before.ltmsi, "it is one entry");
    assert_eq!(succeeded(&phone, Kind::Mobility), 1);
}

/// The gNB has reported the capability of both systems; each node gets that of its own.
#[test]
fn each_system_gets_its_radio_capability() {
    let mut phone = Phone::new();
    phone.lab.change(|ue| {
        ue.radio_capability = vec![5; 9];
        ue.reachability.paging.other = RadioCapability { whole: vec![4; 9], paging: vec![3; 9] };
    });
    phone.move_to_4g(BEARER, true);
    let [setup] = &phone.pdus(S1apPduKind::Initiating_InitialContextSetup)[..] else { panic!("{:?}", phone.lab.notes) };
    let capability = setup.ie::<ie::UERadioCapability>().map(|ie| ie.expect("octets").0.into_vec());
    assert_eq!(capability, Some(vec![4; 9]));
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.set_up(&[5]);
    phone.complete_and_release();
    let _ = phone.move_to_5g(1 << 3);
    let sent = phone.lab.sent.iter().rev().map(|pdu| ngap::NGAP_PDU::decode(pdu).expect("a PDU"));
    let setup = sent.into_iter().find(|pdu| pdu.kind() == ngap::NgapPduKind::Initiating_InitialContextSetup);
    let setup = setup.expect("a set-up");
    let capability = setup.ie::<ngap::ie::UERadioCapability>().map(|ie| ie.expect("octets").0.into_vec());
    assert_eq!(capability, Some(vec![5; 9]));
}

#[test]
fn move_of_connected_ue_releases_old_node() {
    let mut phone = Phone::new();
    phone.lab.reachable = true;
    phone.lab.ue_does(|ue, _, out| ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request"));
    phone.lab.reachable = false;
    let sent = phone.lab.sent.len();
    phone.move_to_4g(BEARER, true);
    let kind = |pdu: &Vec<u8>| vireo_wire::ngap::NGAP_PDU::decode(pdu).expect("a PDU").kind();
    let released = phone.lab.sent[sent..].iter().map(kind).collect::<Vec<_>>();
    assert_eq!(released, [vireo_wire::ngap::NgapPduKind::Initiating_UEContextRelease]);
    phone.set_up(&[5]);
    assert!(phone.is_all_of(Dialect::Eps));
    assert_eq!(phone.context().connection.map(|c| c.assoc), Some(ENB));
}

#[test]
fn move_back_takes_mapped_5g_keys_into_use() {
    let mut phone = Phone::new();
    let address = phone.context().sessions[0].address;
    phone.move_to_4g(BEARER, false);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.complete_and_release();
    let (eps, pfcp) = (phone.security(), phone.lab.pfcp.len());
    let accept = phone.move_to_5g(1 << 3);
    let nr = phone.security();
    assert_eq!(nr.kamf, derived(&eps.kamf, 0x75, eps.uplink), "KAMF'");
    assert_eq!((nr.key_set.dialect(), nr.key_set.ie()), (Dialect::Nr, 8 | eps.key_set.identifier()));
    assert!(phone.is_all_of(Dialect::Nr) && authentications(&phone) == 1);
    assert_eq!(qers(&phone, pfcp), (1, 1), "packets are marked again");
    assert_eq!(accept.pdu_session_status.map(|status| status.value.to_vec()), Some(vec![8, 0]));
    let complete = Nas5gsMessage::new_5gmm(nas::NasRegistrationComplete::new());
    phone.uplink_5g(&complete, Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered);
    let after = phone.context();
    assert_eq!((after.procedure, after.sessions[0].id(), after.sessions[0].address), (None, 3, address));
}

#[test]
fn connection_of_4g_moves_with_its_identity() {
    let mut phone = Phone::new();
    phone.move_to_4g(BEARER, true);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.set_up(&[5]);
    phone.connect(Some(6));
    let NasEpsMessage::Esm(header, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(bearer)) = phone.received()
    else {
        panic!("{:?}", phone.lab.notes)
    };
    assert_eq!(header.eps_bearer_identity, 6);
    let options = bearer.protocol_configuration_options.expect("options");
    let options = nas::NasExtendedProtocolConfigurationOptions::new(options.value.to_vec());
    let options = options.pco(nas::PcoDirection::Downlink).expect("they decode");
    let of = |id: u16| options.entry(id).map(|entry| entry.contents.clone()).unwrap_or_default();
    assert_eq!(of(0x1b), [1, 0x99, 0xf9, 0x07], "S-NSSAI and PLMN");
    assert_eq!(of(0x1c), [1, 0, 6, 0x31, 0x31, 1, 1, 0xff, 1], "the default rule");
    assert_eq!(of(0x1d).len(), 6, "the Session-AMBR");
    assert_eq!(of(0x1f), [1, 0x20, 0x42, 1, 1, 9, 7, 1, 6 << 4], "5QI and bearer of the default flow");
    phone.confirm(6);
    phone.connect(None);
    phone.confirm(7);
    assert_eq!(phone.sessions(), [(3, 5), (6, 6), (0, 7)]);
    phone.complete_and_release();
    phone.move_to_5g(1 << 3 | 1 << 6);
    assert_eq!(phone.sessions(), [(3, 3), (6, 6)]);
}

/// TS 24.501 5.5.1.3.4, TS 23.502 4.11.1.3.3: the UE has one of two bearers.
#[test]
fn bearer_status_is_reconciled_in_5g() {
    let mut phone = Phone::new();
    phone.move_to_4g(BEARER, true);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.set_up(&[5]);
    phone.connect(Some(6));
    phone.confirm(6);
    phone.complete_and_release();
    phone.change = |request| {
        let status = nas::NasEpsBearerContextStatus::new(BEARER.to_le_bytes().to_vec());
        request.with_eps_bearer_context_status(status)
    };
    let accept = phone.move_to_5g(1 << 3 | 1 << 6);
    assert_eq!(phone.sessions(), [(3, 3)]);
    let bearers = accept.eps_bearer_context_status.map(|status| status.value.to_vec());
    let sessions = accept.pdu_session_status.map(|status| status.value.to_vec());
    assert_eq!((bearers, sessions), (Some(vec![0x20, 0]), Some(vec![8, 0])));
}

/// TS 24.501 5.5.1.3.4: the slice of a PDN connection is allowed, also if the UE requests another.
#[test]
fn slice_of_moved_session_is_allowed() {
    const OTHER: vireo_types::Snssai = vireo_types::Snssai { sst: 3, sd: None };
    let mut phone = Phone::new();
    let first = phone.lab.config.slices[0].clone();
    phone.lab.config.slices.push(vireo_core::config::SliceConfig { name: "other".into(), snssai: OTHER, ..first });
    phone.lab.change(|ue| {
        let subscription = ue.subscription.as_mut().map(std::sync::Arc::make_mut).expect("a subscription");
        let slice = vireo_core::subscription::SliceSubscription { snssai: OTHER, default: false, dnns: Vec::new() };
        subscription.slices.push(slice);
    });
    let node = phone.lab.nodes.0[0].1.as_mut().expect("a node");
    let mut areas = node.areas.to_vec();
    areas.iter_mut().for_each(|area| area.slices.push(OTHER));
    node.areas = areas.into();
    phone.move_to_4g(BEARER, false);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.complete_and_release();
    phone.change = |request| request.with_requested_nssai(nas::NasNssai::new(vec![1, 3]));
    let accept = phone.move_to_5g(1 << 3);
    assert_eq!(accept.allowed_nssai.map(|nssai| nssai.value.to_vec()), Some(vec![1, 3, 1, 1]));
    assert_eq!(phone.sessions(), [(3, 3)]);
}

#[test]
fn session_without_bearer_at_ue_ends() {
    let mut phone = Phone::new();
    phone.move_to_4g(0, false);
    let NasEpsMessage::Emm(_, NasEmmMessage::TrackingAreaUpdateReject(reject)) = received_before_release(&mut phone)
    else {
        panic!("{:?}", phone.lab.notes)
    };
    assert_eq!(reject.emm_cause.value, 40);
    let context = phone.context();
    assert!(!context.is_registered() && context.sessions.is_empty());
    assert!(phone.lab.effects.iter().any(|e| matches!(e, Effect::FreeAddress(..))));
}

/// Returns the NAS message before the release of the connection.
fn received_before_release(phone: &mut Phone) -> NasEpsMessage {
    phone.lab.to_enb.pop();
    phone.received()
}

#[test]
fn forged_update_leaves_5g_ue_unharmed() {
    let mut phone = Phone::new();
    let before = phone.context();
    let plain = phone.update_request(BEARER, true).encode().expect("it encodes");
    let mut forged = protected_by_5g(&phone.security(), &plain);
    forged[2] ^= 1;
    let other = NasEpsMessage::new_emm(NasDetachRequestUeOriginating::new(
        NasDetachType::from_ue_detach_kind(UeDetachKind::EpsDetach, true),
        NasKeySetIdentifier::new(0),
        phone.guti.clone(),
    ));
    let detach = other.encode().expect("it encodes");
    for nas in [forged, plain, protected_by_5g(&phone.security(), &detach), detach] {
        let mut context = before.clone();
        assert!(!vireo_core::amf::engine::is_authentic(&context, &nas), "it gets a context of its own");
        // Even if it reached the UE's context, it would change nothing of its keys and sessions.
        let message = vireo_core::amf::n2::InitialUeMessage {
            ran_id: vireo_types::RanUeNgapId(1),
            nas,
            tai: before.reachability.area[0],
            cell: vireo_types::NrCgi { plmn: before.reachability.area[0].plmn, cell: 1 },
        };
        phone.lab.try_step(&mut context, Event::Initial { assoc: ENB, message });
        assert_eq!((&context.security, &context.sessions), (&before.security, &before.sessions));
        assert!(context.is_registered());
    }
}

#[test]
fn replayed_update_is_not_authentic() {
    let mut phone = Phone::new();
    let plain = phone.update_request(BEARER, false).encode().expect("it encodes");
    let recorded = protected_by_5g(&phone.security(), &plain);
    assert!(vireo_core::amf::engine::is_authentic(&phone.context(), &recorded));
    phone.move_to_4g(BEARER, false);
    assert!(!vireo_core::amf::engine::is_authentic(&phone.context(), &recorded));
}

#[test]
fn forged_registration_leaves_4g_ue_unharmed() {
    let mut phone = Phone::new();
    phone.move_to_4g(BEARER, false);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.complete_and_release();
    let before = phone.context();
    let recorded = phone.registration_request(1 << 3).encode().expect("it encodes");
    let mut forged = recorded.clone();
    *forged.last_mut().expect("octets") ^= 1;
    assert!(!vireo_core::amf::engine::is_authentic(&before, &forged));
    assert!(vireo_core::amf::engine::is_authentic(&before, &recorded));
    // A UE that does not answer keeps its keys of EPS.
    phone.initial_5g(&recorded);
    assert!(!vireo_core::amf::engine::is_authentic(&phone.context(), &recorded), "a replay");
    for nas in [&[0x7e, 0, 0x45, 0x01, 0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40, 1, 2, 3, 4][..], &[0x7e, 0, 0x5e]] {
        phone.uplink_nas_5g(nas);
        assert!(phone.context().procedure.is_some(), "it is discarded");
    }
    phone.lab.wait(Duration::from_secs(60));
    let after = phone.context();
    assert!(after.is_registered() && after.connection.is_none() && after.procedure.is_none());
    assert_eq!(after.security.as_ref().map(|s| s.kamf), before.security.as_ref().map(|s| s.kamf));
    assert_eq!(after.sessions, before.sessions);
}

#[test]
fn ue_paged_in_5g_answers_in_4g() {
    let mut phone = Phone::new();
    let session = phone.context().sessions[0].clone();
    let report = crate::lab::pfcp_report(session.pfcp.cp_seid, pfcp::ReportType::DLDR, |report| {
        report.group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
    });
    phone.lab.event(Event::Pfcp { seid: session.pfcp.cp_seid, message: &report });
    assert_eq!(phone.context().pending.sessions, 1 << 3);
    phone.move_to_4g(BEARER, false);
    assert_eq!(succeeded(&phone, Kind::Paging), 1);
    let [setup] = &phone.pdus(S1apPduKind::Initiating_InitialContextSetup)[..] else { panic!("{:?}", phone.lab.notes) };
    assert_eq!(setup.items::<ie::E_RABToBeSetupListCtxtSUReq>().count(), 1, "its bearer is set up");
    assert_eq!(phone.context().pending.sessions, 0);
}

#[test]
fn restricted_subscriber_stays_in_its_dialect() {
    let only = |phone: &mut Phone, dialect| {
        phone.lab.change(|ue| {
            let subscription = ue.subscription.as_deref().cloned().expect("a subscription");
            ue.subscription = Some(std::sync::Arc::new(Subscription { only: Some(dialect), ..subscription }));
        });
    };
    let mut phone = Phone::new();
    only(&mut phone, Dialect::Nr);
    let before = phone.context();
    phone.move_to_4g(BEARER, true);
    let pdu = phone.pdus(S1apPduKind::Initiating_downlinkNASTransport).pop().expect("a reject");
    let reject = pdu.ie::<ie::NAS_PDU>().expect("an IE").expect("octets").0.to_vec();
    assert_eq!(reject, [0x07, 0x4b, 15], "no suitable cells in this tracking area");
    let after = phone.context();
    assert_eq!(
        (after.security.as_ref().map(|s| s.kamf), &after.sessions),
        (before.security.as_ref().map(|s| s.kamf), &before.sessions)
    );
    assert!(after.is_registered());

    let mut phone = Phone::new();
    phone.move_to_4g(BEARER, false);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.complete_and_release();
    only(&mut phone, Dialect::Eps);
    let (before, sent) = (phone.context(), phone.lab.sent.len());
    let request = phone.registration_request(1 << 3).encode().expect("it encodes");
    phone.initial_5g(&request);
    let reject = vireo_wire::ngap::NGAP_PDU::decode(&phone.lab.sent[sent]).expect("a PDU");
    let nas = reject.ie::<vireo_wire::ngap::ie::NAS_PDU>().expect("an IE").expect("octets").0.to_vec();
    assert_eq!(nas, [0x7e, 0, 0x44, 27], "N1 mode not allowed");
    assert_eq!(phone.context().sessions, before.sessions);
}
