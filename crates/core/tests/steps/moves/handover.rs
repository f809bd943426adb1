//! Handovers of a connected UE between 4G and 5G (TS 23.502 4.11.1.2, TS 33.501 8.3, 8.4).
//!
//! Messages of the source are built from the codecs. Keys are derived from the clauses alone
//! (`eps::kdf`), except the MAC of the NAS container.

mod forwarding;
mod pdus;
mod unconfirmed;

use super::phone::{ENB_UE, Phone, derived};
use super::{BEARER, authentications, qers, succeeded, update_accept};
use crate::eps::kdf;
use crate::lab::{ASSOC, ENB};
use vireo_core::amf::context::{KeySet, NasSecurity, NextHopChain, UeContext};
use vireo_core::amf::engine::{Event, is_authentic};
use vireo_core::smf::RanState;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::{Ambr, Subscription};
use vireo_emulator::ue::security::SecurityContext as _;
use vireo_types::{AssocId, Dialect, Duration, RanUeNgapId};
use vireo_wire::nas::{self, Nas5gmmMessage, Nas5gsMessage, Nas5gsSecurityHeaderType};
use vireo_wire::nas_eps::*;
use vireo_wire::ngap::{self, NGAP_PDU, NGAPPDU, NgapPduKind};
use vireo_wire::s1ap::{self, S1AP_PDU, S1APPDU, S1apPduKind};
use vireo_wire::security::{NasCount, nas_5gs, nas_eps as eps};

/// COUNT of the key of the RAN node after a handover between the systems.
const NO_COUNT: u32 = u32::MAX;
/// eNB ID of the eNB, and gNB ID of the first gNB.
const ENB_ID: u32 = 0x12345;
const GNB_ID: u32 = 1;

/// Change of a UE's context.
type Change = fn(&mut UeContext);

/// Returns a connected UE of 5G with one session, and an eNB.
fn in_5g() -> Phone {
    let mut phone = Phone::new();
    phone.lab.set_up_enb(&pdus::s1_setup(ENB_ID));
    phone.lab.reachable = true;
    phone.lab.ue_does(|ue, _, out| ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request"));
    phone.lab.reachable = false;
    phone.lab.notes.clear();
    phone
}

/// Returns a connected UE of 4G with one bearer, which came by an idle move, and two gNBs.
fn in_4g() -> Phone {
    let mut phone = Phone::new();
    phone.move_to_4g(BEARER, true);
    phone.guti = update_accept(&mut phone).guti.expect("a new GUTI");
    phone.set_up(&[5]);
    phone.uplink(&NasEpsMessage::new_emm(NasTrackingAreaUpdateComplete::new()));
    phone.lab.notes.clear();
    phone.lab.sent.clear();
    phone
}

fn to_enb(phone: &Phone, kind: S1apPduKind) -> Option<S1APPDU<'_>> {
    let pdus = phone.lab.to_enb.iter().rev().map(|pdu| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.into_iter().find(|pdu| pdu.kind() == kind)
}

fn to_gnb(phone: &Phone, kind: NgapPduKind) -> Option<NGAPPDU<'_>> {
    let pdus = phone.lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.into_iter().find(|pdu| pdu.kind() == kind)
}

/// Sends HANDOVER REQUIRED of the gNB towards the eNB with this ID.
fn require_4g(phone: &mut Phone, enb: u32) {
    let connection = phone.context().connection.expect("a connection");
    phone.lab.take_from_gnb(0, &pdus::required_by_gnb(connection.amf_id, connection.ran_id, enb));
}

/// Sends HANDOVER REQUIRED of the eNB towards the gNB with this ID.
fn require_5g(phone: &mut Phone, gnb: u32) {
    phone.lab.take_from_enb(&pdus::required_by_enb(phone.mme_id(), ENB_UE, gnb));
}

/// Returns the MME UE S1AP ID in HANDOVER REQUEST to the eNB.
fn requested_mme_id(phone: &Phone) -> u32 {
    let request = to_enb(phone, S1apPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    request.ie::<s1ap::ie::MME_UE_S1AP_ID>().expect("an IE").expect("an ID").0
}

fn failed(phone: &Phone) -> usize {
    phone.lab.notes.iter().filter(|n| matches!(n, Note::Failed(Kind::Handover, _))).count()
}

/// Asserts that the UE is where it was, with the same keys and sessions.
fn is_unharmed(phone: &Phone, before: &UeContext) {
    let after = phone.context();
    assert!(!after.is_in_handover() && after.source.is_none(), "{after:?}");
    assert_eq!(after.connection.map(|c| (c.assoc, c.ran_id)), before.connection.map(|c| (c.assoc, c.ran_id)));
    let keys = |context: &UeContext| context.security.as_ref().map(|s| (s.key_set, s.kamf, s.uplink));
    assert_eq!(keys(&after), keys(before));
    assert_eq!(after.sessions, before.sessions);
    assert_eq!(after.security_capability, before.security_capability);
}

fn capability_5g(pdu: &NGAPPDU<'_>) -> [u8; 2] {
    let capability = pdu.ie::<ngap::ie::UESecurityCapabilities>().expect("an IE").expect("capabilities");
    [
        capability.nr_encryption_algorithms.0.as_octets()[0],
        capability.nr_integrity_protection_algorithms.0.as_octets()[0],
    ]
}

/// TS 23.502 4.11.1.2.1.
#[test]
fn handover_to_4g_moves_session_and_keys() {
    let mut phone = in_5g();
    phone.lab.change(|ue| ue.radio_capability = vec![1, 2, 3]);
    let (before, pfcp) = (phone.context(), phone.lab.pfcp.len());
    let old = before.security.clone().expect("keys");
    require_4g(&mut phone, ENB_ID);

    // Keys of TS 33.501 8.3.2, A.14.2.
    let kasme = kdf::derive(&old.kamf, 0x74, &old.downlink.to_be_bytes());
    assert_eq!(kasme, derived(&old.kamf, 0x74, old.downlink));
    let chain = kdf::next_hop(&kasme, &kdf::next_hop(&kasme, &kdf::kenb(&kasme, NO_COUNT)));
    let request = to_enb(&phone, S1apPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    assert_eq!(request.check().expect("it decodes"), vec![]);
    let context = request.ie::<s1ap::ie::SecurityContext>().expect("an IE").expect("a context");
    assert_eq!((context.next_hop_chaining_count, context.next_hop_parameter.0.as_octets()), (2, &chain[..]));
    let kind = request.ie::<s1ap::ie::HandoverType>().map(|kind| kind.expect("a type"));
    assert_eq!(kind, Some(s1ap::HandoverType::fivegs_to_eps));
    let capability = request.ie::<s1ap::ie::UESecurityCapabilities>().expect("an IE").expect("capabilities");
    assert_eq!(capability.encryption_algorithms.0.as_octets()[0], 0xc0, "EEA1 and EEA2");
    let erabs: Vec<_> =
        request.items::<s1ap::ie::E_RABToBeSetupListHOReq>().map(|item| item.expect("an item")).collect();
    assert_eq!(erabs.len(), 1);
    assert_eq!((erabs[0].e_rab_id.0, erabs[0].gtp_teid.0), (5, [0, 0, 1, 0]), "the tunnel end of the UPF stays");
    assert_eq!(erabs[0].ie_extensions, None, "packets can be forwarded");
    assert_eq!(phone.context().security.map(|s| s.downlink), Some(old.downlink + 1), "the COUNT is used up");

    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    let command = to_gnb(&phone, NgapPduKind::Successful_HandoverPreparation).expect("a command");
    assert_eq!(command.check().expect("it decodes"), vec![]);
    let kind = command.ie::<ngap::ie::HandoverType>().map(|kind| kind.expect("a type"));
    assert_eq!(kind, Some(ngap::HandoverType::fivegs_to_eps));
    let nas = command.ie::<ngap::ie::NASSecurityParametersFromNGRAN>().expect("an IE").expect("octets");
    assert_eq!(nas.0.as_slice(), [old.downlink as u8], "TS 24.501 9.11.2.7");
    let container = command.ie::<ngap::ie::TargetToSource_TransparentContainer>().expect("an IE").expect("octets");
    assert_eq!(container.0.as_slice(), [4, 5]);
    let along = command.ie::<ngap::ie::PDUSessionResourceHandoverList>().expect("an IE").expect("a list");
    assert_eq!(along.0.iter().map(|item| item.pdu_session_id.0).collect::<Vec<_>>(), [3]);
    let now = phone.context();
    assert_eq!(now.session_dialect(), Dialect::Nr, "the UE is not there yet");
    assert_eq!((now.sessions[0].downlink, qers(&phone, pfcp)), (before.sessions[0].downlink, (0, 0)));

    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    let after = phone.context();
    let keys = after.security.clone().expect("keys");
    assert_eq!((keys.kamf, keys.key_set.ie()), (kasme, 8 | old.key_set.identifier()));
    assert_eq!((keys.uplink, keys.downlink), (old.uplink, old.downlink + 1), "the COUNTs go on");
    assert!(phone.is_all_of(Dialect::Eps));
    let stored = (&after.radio_capability[..], after.reachability.paging.coding);
    assert_eq!(stored, (&[1, 2, 3][..], Dialect::Nr), "a gNB gets it again");
    assert_eq!(after.connection.map(|c| (c.assoc, c.ran_id)), Some((ENB, RanUeNgapId(ENB_UE))));
    assert_eq!((after.sessions[0].ran, after.sessions[0].address), (RanState::Up, before.sessions[0].address));
    assert_eq!(after.sessions[0].downlink.map(|tunnel| tunnel.teid.0), Some(0x0102_0305));
    assert_eq!(phone.lab.pfcp.len() - pfcp, 1, "one request has rules and tunnel");
    assert_eq!((qers(&phone, pfcp), succeeded(&phone, Kind::Handover)), ((1, 1), 1));
    let release = to_gnb(&phone, NgapPduKind::Initiating_UEContextRelease).expect("a release");
    let cause = release.ie::<ngap::ie::Cause>().map(|cause| cause.expect("a cause"));
    assert_eq!(cause, Some(ngap::Cause::radioNetwork(ngap::CauseRadioNetwork::successful_handover)));
    let source = before.connection.expect("a connection");
    phone.lab.take_from_gnb(0, &pdus::released_by_gnb(source.amf_id, source.ran_id));
    assert_eq!(phone.context().source, None);

    // The UE updates its tracking area under the mapped keys.
    let count = |count| NasCount::new(count).expect("a COUNT");
    let kamf = nas_5gs::KAmf::new(&old.kamf);
    let (eia, eea) = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2);
    let mapped =
        NasSecurityContext::from_mapped_kasme_handover(&kamf, count(old.uplink), count(old.downlink), eia, eea);
    phone.eps = Some(mapped.expect("keys"));
    let update = phone.update_request(BEARER, false);
    phone.uplink_with(&update, NasEpsSecurityHeaderType::IntegrityProtected);
    let accept = update_accept(&mut phone);
    assert_eq!(accept.eps_bearer_context_status.map(|status| status.value.to_vec()), Some(vec![0x20, 0]));
    phone.uplink(&NasEpsMessage::new_emm(NasTrackingAreaUpdateComplete::new()));
    assert_eq!((succeeded(&phone, Kind::Mobility), failed(&phone)), (1, 0));
    assert!(phone.context().connection.is_some_and(|c| c.assoc == ENB), "it stays connected");
}

/// TS 23.502 4.11.1.2.2.
#[test]
fn handover_to_5g_moves_session_and_keys() {
    let mut phone = in_4g();
    let (before, pfcp) = (phone.context(), phone.lab.pfcp.len());
    let old = before.security.clone().expect("keys");
    let setup = to_enb(&phone, S1apPduKind::Initiating_InitialContextSetup).expect("a set-up");
    let kenb: [u8; 32] = {
        let key = setup.ie::<s1ap::ie::SecurityKey>().expect("an IE").expect("a key");
        key.0.as_octets().try_into().expect("32 octets")
    };
    require_5g(&mut phone, GNB_ID);

    // Keys of TS 33.501 8.4.2, A.15.2, A.9.
    let nh = kdf::next_hop(&old.kamf, &kdf::next_hop(&old.kamf, &kenb));
    let kamf = kdf::derive(&old.kamf, 0x76, &nh);
    let request = to_gnb(&phone, NgapPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    assert_eq!(request.check().expect("it decodes"), vec![]);
    let context = request.ie::<ngap::ie::SecurityContext>().expect("an IE").expect("a context");
    let key = kdf::kgnb(&kamf, NO_COUNT);
    assert_eq!((context.next_hop_chaining_count.0, context.next_hop_nh.0.as_octets()), (0, &key[..]));
    assert!(matches!(request.ie::<ngap::ie::NewSecurityContextInd>(), Some(Ok(_))));
    let kind = request.ie::<ngap::ie::HandoverType>().map(|kind| kind.expect("a type"));
    assert_eq!(kind, Some(ngap::HandoverType::eps_to_5gs));
    // TS 24.501 9.11.2.9: NEA2 and NIA2, NCC 2, a mapped context with the eKSI.
    let nas = request.ie::<ngap::ie::NASC>().expect("an IE").expect("octets").0.to_vec();
    let protected = [0x22, 2 << 4 | 8 | old.key_set.identifier(), 0, 0];
    let int = nas_5gs::KNasInt::new(&kdf::knas_int(&kamf, 2));
    let mac = nas_5gs::nas_container_mac(&int, &protected, vireo_wire::security::IntegrityAlgorithm::NIA2);
    assert_eq!(nas, [&mac.to_be_bytes()[..], &protected].concat());
    let list = request.ie::<ngap::ie::PDUSessionResourceSetupListHOReq>().expect("an IE").expect("a list");
    assert_eq!(list.0.iter().map(|item| item.pdu_session_id.0).collect::<Vec<_>>(), [3]);
    let transfer: ngap::PDUSessionResourceSetupRequestTransfer =
        ngap::decode_open_type(&list.0[0].handover_request_transfer).expect("a transfer");
    let ids: Vec<_> = transfer.protocol_ies.0.iter().map(|ie| ie.id.0).collect();
    assert!(!ids.contains(&ngap::ID_DATA_FORWARDING_NOT_POSSIBLE.0), "{ids:?}");
    assert_eq!(capability_5g(&request), [0xc0, 0xc0], "as the UE has named them in 5G");
    let amf_id = request.ie::<ngap::ie::AMF_UE_NGAP_ID>().expect("an IE").expect("an ID").0;

    phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf_id, &[3]));
    let command = to_enb(&phone, S1apPduKind::Successful_HandoverPreparation).expect("a command");
    assert_eq!(command.check().expect("it decodes"), vec![]);
    let kind = command.ie::<s1ap::ie::HandoverType>().map(|kind| kind.expect("a type"));
    assert_eq!(kind, Some(s1ap::HandoverType::eps_to_5gs));
    assert!(command.ie::<s1ap::ie::E_RABtoReleaseListHOCmd>().is_none());
    assert_eq!(phone.context().session_dialect(), Dialect::Eps, "the UE is not there yet");

    phone.lab.take_from_gnb(0, &pdus::notified_by_gnb(amf_id));
    let after = phone.context();
    let keys = after.security.clone().expect("keys");
    assert_eq!((keys.kamf, keys.key_set.ie()), (kamf, 8 | old.key_set.identifier()));
    assert_eq!((keys.uplink, keys.downlink), (0, 1), "the container is the first message");
    assert!(phone.is_all_of(Dialect::Nr));
    assert_eq!(after.connection.map(|c| (c.assoc, c.ran_id)), Some((ASSOC, RanUeNgapId(pdus::GNB_UE))));
    assert_eq!((after.sessions[0].ran, after.sessions[0].address), (RanState::Up, before.sessions[0].address));
    assert_eq!(after.sessions[0].downlink.map(|tunnel| tunnel.teid.0), Some(0x0102_0303));
    assert_eq!((phone.lab.pfcp.len() - pfcp, qers(&phone, pfcp)), (1, (1, 1)));
    let release = to_enb(&phone, S1apPduKind::Initiating_UEContextRelease).expect("a release");
    let cause = release.ie::<s1ap::ie::Cause>().map(|cause| cause.expect("a cause"));
    assert_eq!(cause, Some(s1ap::Cause::radioNetwork(s1ap::CauseRadioNetwork::successful_handover)));

    // The UE registers under the mapped keys.
    let (nia, nea) = (nas::IntegrityAlgorithm::NIA2, nas::CipheringAlgorithm::NEA2);
    let (kasme, nh) = (eps::KAsme::new(&old.kamf), eps::Nh::new(&nh));
    phone.nr = nas::NasSecurityContext::from_mapped_kamf_handover(&kasme, &nh, nia, nea).ok();
    let request = phone.mobility_request(1 << 3);
    phone.uplink_5g(&request, Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered);
    let accept = phone.nas_5g();
    assert_eq!(accept[6], 1, "the container has used the first downlink COUNT");
    let verified = phone.nr.as_mut().expect("keys").unprotect(&accept, nas::Direction::Downlink).expect("a right MAC");
    let Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(accept)) = verified.message else {
        panic!("an accept")
    };
    assert_eq!(accept.pdu_session_status.map(|status| status.value.to_vec()), Some(vec![8, 0]));
    let complete = Nas5gsMessage::new_5gmm(nas::NasRegistrationComplete::new());
    phone.uplink_5g(&complete, Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered);
    assert_eq!((succeeded(&phone, Kind::Mobility), succeeded(&phone, Kind::Handover), failed(&phone)), (1, 1, 0));

    // The next handover within 5GS goes on in the chain of the temporary KgNB (TS 33.501 8.4.2).
    let first = kdf::derive(&kamf, 0x6f, &key);
    let mut keys = phone.security();
    let hop = keys.advance().expect("a chain");
    assert_eq!((hop.ncc, hop.nh), (2, kdf::derive(&kamf, 0x6f, &first)));
}

/// TS 33.501 8.4.2: a UE that has named no algorithms of 5G has those that every UE has.
#[test]
fn unknown_5g_capability_is_default_set() {
    let mut phone = in_4g();
    phone.lab.change(|ue| {
        ue.security_capability = vireo_core::amf::context::UeSecurityCapability::from_eps(&[0xf0, 0x70]);
    });
    require_5g(&mut phone, GNB_ID);
    let request = to_gnb(&phone, NgapPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    assert_eq!(capability_5g(&request), [0xc0, 0xc0], "NEA1, NEA2, NIA1 and NIA2");
}

#[test]
fn unserved_handover_to_4g_is_refused_with_cause() {
    use ngap::CauseRadioNetwork as Cause;
    let only = |ue: &mut UeContext| {
        let subscription = ue.subscription.as_deref().cloned().expect("a subscription");
        ue.subscription = Some(std::sync::Arc::new(Subscription { only: Some(Dialect::Nr), ..subscription }));
    };
    let cases: [(u32, Change, Cause); 4] = [
        (ENB_ID + 1, |_| {}, Cause::unknown_targetID),
        (ENB_ID, only, Cause::ho_target_not_allowed),
        // The UE has 11 bearers, and none for this session.
        (ENB_ID, |ue| ue.sessions[0].index = 11, Cause::ho_target_not_allowed),
        (
            ENB_ID,
            |ue| ue.security_capability = vireo_core::amf::context::UeSecurityCapability::new(&[0xe0, 0x60]),
            Cause::encryption_and_or_integrity_protection_algorithms_not_supported,
        ),
    ];
    for (target, change, reason) in cases {
        let mut phone = in_5g();
        phone.lab.change(change);
        let before = phone.context();
        require_4g(&mut phone, target);
        let failure = to_gnb(&phone, NgapPduKind::Unsuccessful_HandoverPreparation).expect("a failure");
        let cause = failure.ie::<ngap::ie::Cause>().map(|cause| cause.expect("a cause"));
        assert_eq!((cause, failed(&phone)), (Some(ngap::Cause::radioNetwork(reason)), 1));
        assert!(to_enb(&phone, S1apPduKind::Initiating_HandoverResourceAllocation).is_none());
        is_unharmed(&phone, &before);
    }
}

#[test]
fn unserved_handover_to_5g_is_refused_with_cause() {
    use s1ap::CauseRadioNetwork as Cause;
    let only = |ue: &mut UeContext| {
        let subscription = ue.subscription.as_deref().cloned().expect("a subscription");
        ue.subscription = Some(std::sync::Arc::new(Subscription { only: Some(Dialect::Eps), ..subscription }));
    };
    let cases: [(u32, Change, Cause); 3] = [
        (GNB_ID + 77, |_| {}, Cause::unknown_targetID),
        (GNB_ID, only, Cause::ho_target_not_allowed),
        // The UE has assigned no PDU session identity.
        (GNB_ID, |ue| ue.sessions[0].psi = 0, Cause::ho_target_not_allowed),
    ];
    for (target, change, reason) in cases {
        let mut phone = in_4g();
        phone.lab.change(change);
        let before = phone.context();
        require_5g(&mut phone, target);
        let failure = to_enb(&phone, S1apPduKind::Unsuccessful_HandoverPreparation).expect("a failure");
        let cause = failure.ie::<s1ap::ie::Cause>().map(|cause| cause.expect("a cause"));
        assert_eq!((cause, failed(&phone)), (Some(s1ap::Cause::radioNetwork(reason)), 1));
        assert!(to_gnb(&phone, NgapPduKind::Initiating_HandoverResourceAllocation).is_none());
        is_unharmed(&phone, &before);
    }
}

#[test]
fn handover_during_procedure_is_refused() {
    let mut phone = in_5g();
    begin_update(&mut phone);
    let before = phone.context();
    require_4g(&mut phone, ENB_ID);
    let failure = to_gnb(&phone, NgapPduKind::Unsuccessful_HandoverPreparation).expect("a failure");
    let cause = failure.ie::<ngap::ie::Cause>().map(|cause| cause.expect("a cause"));
    let reason = ngap::CauseRadioNetwork::interaction_with_other_procedure;
    assert_eq!(cause, Some(ngap::Cause::radioNetwork(reason)));
    assert_eq!(phone.context().security.map(|s| s.kamf), before.security.map(|s| s.kamf));
}

/// Begins a periodic update, which the UE does not complete.
fn begin_update(phone: &mut Phone) {
    let periodic = vireo_emulator::ue::Registration::Periodic;
    phone.lab.ue_does(|ue, p, out| ue.register(p, periodic, out).expect("a request"));
    assert!(phone.context().procedure.is_some(), "{:?}", phone.lab.notes);
}

/// The keys of the target would not be those of the UE.
#[test]
fn procedure_during_preparation_ends_it() {
    let changes: [fn(&mut Phone); 2] = [begin_update, |phone| {
        phone.lab.change(|ue| {
            let keys = ue.security.as_mut().expect("keys");
            keys.key_set = KeySet::new(Dialect::Nr, keys.key_set.identifier() ^ 1);
        });
    }];
    for change in changes {
        let mut phone = in_5g();
        require_4g(&mut phone, ENB_ID);
        let mme = requested_mme_id(&phone);
        change(&mut phone);
        phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
        let failure = to_gnb(&phone, NgapPduKind::Unsuccessful_HandoverPreparation).expect("a failure");
        let cause = failure.ie::<ngap::ie::Cause>().map(|cause| cause.expect("a cause"));
        let reason = ngap::CauseRadioNetwork::interaction_with_other_procedure;
        assert_eq!(cause, Some(ngap::Cause::radioNetwork(reason)));
        assert!(to_enb(&phone, S1apPduKind::Initiating_UEContextRelease).is_some());
        assert!(phone.context().handover.is_none() && phone.is_all_of(Dialect::Nr));
    }
}

/// The end of a preparation before the UE has moved.
#[test]
fn failed_preparation_leaves_5g_ue_unharmed() {
    type End = fn(&mut Phone, u32);
    let none = ngap::CauseRadioNetwork::ho_failure_in_target_5GC_ngran_node_or_target_system;
    let resources = ngap::CauseRadioNetwork::no_radio_resources_available_in_target_cell;
    let cases: [(End, Option<ngap::CauseRadioNetwork>); 5] = [
        (|phone, mme| phone.lab.take_from_enb(&pdus::refused_by_enb(mme)), Some(resources)),
        // No requested E-RAB is admitted.
        (|phone, mme| phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[9])), Some(none)),
        (|phone, _| phone.lab.event(Event::ConnectionLost { assoc: ENB }), Some(none)),
        (|phone, _| phone.lab.wait(Duration::from_secs(30)), Some(none)),
        (cancel_by_gnb, None),
    ];
    for (number, (end, reason)) in cases.into_iter().enumerate() {
        let mut phone = in_5g();
        let before = phone.context();
        require_4g(&mut phone, ENB_ID);
        let mme = requested_mme_id(&phone);
        end(&mut phone, mme);
        let failure = to_gnb(&phone, NgapPduKind::Unsuccessful_HandoverPreparation);
        let cause = failure.and_then(|pdu| pdu.ie::<ngap::ie::Cause>()).map(|cause| cause.expect("a cause"));
        assert_eq!(cause, reason.map(ngap::Cause::radioNetwork), "case {number}");
        assert_eq!(failed(&phone), 1, "case {number}");
        is_unharmed(&phone, &before);
        // The target is told, unless it has ended the handover itself.
        let release = to_enb(&phone, S1apPduKind::Initiating_UEContextRelease);
        assert_eq!(release.is_some(), number != 0, "case {number}");
        // The handover can be tried again, under another KASME.
        phone.lab.notes.clear();
        require_4g(&mut phone, ENB_ID);
        let mme = requested_mme_id(&phone);
        phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
        phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
        let count = before.security.as_ref().expect("keys").downlink + 1;
        let kamf = before.security.as_ref().expect("keys").kamf;
        assert_eq!(phone.security().kamf, kdf::derive(&kamf, 0x74, &count.to_be_bytes()), "case {number}");
    }
}

fn cancel_by_gnb(phone: &mut Phone, _: u32) {
    let connection = phone.context().connection.expect("a connection");
    phone.lab.take_from_gnb(0, &pdus::cancelled_by_gnb(connection.amf_id, connection.ran_id));
    assert!(to_gnb(phone, NgapPduKind::Successful_HandoverCancel).is_some());
}

/// The end of a preparation before the UE has moved.
#[test]
fn failed_preparation_leaves_4g_ue_unharmed() {
    type End = fn(&mut Phone, u64);
    let none = s1ap::CauseRadioNetwork::ho_failure_in_target_EPC_eNB_or_target_system;
    let resources = s1ap::CauseRadioNetwork::no_radio_resources_available_in_target_cell;
    let cancel: End = |phone, _| {
        phone.lab.take_from_enb(&pdus::cancelled_by_enb(phone.mme_id(), ENB_UE));
        assert!(to_enb(phone, S1apPduKind::Successful_HandoverCancel).is_some());
    };
    let cases: [(End, Option<s1ap::CauseRadioNetwork>); 5] = [
        (|phone, amf| phone.lab.take_from_gnb(0, &pdus::refused_by_gnb(amf)), Some(resources)),
        (|phone, amf| phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf, &[9])), Some(none)),
        (|phone, _| phone.lab.event(Event::ConnectionLost { assoc: ASSOC }), Some(none)),
        (|phone, _| phone.lab.wait(Duration::from_secs(30)), Some(none)),
        (cancel, None),
    ];
    for (number, (end, reason)) in cases.into_iter().enumerate() {
        let mut phone = in_4g();
        let before = phone.context();
        require_5g(&mut phone, GNB_ID);
        let amf = requested_amf_id(&phone);
        end(&mut phone, amf);
        let failure = to_enb(&phone, S1apPduKind::Unsuccessful_HandoverPreparation);
        let cause = failure.and_then(|pdu| pdu.ie::<s1ap::ie::Cause>()).map(|cause| cause.expect("a cause"));
        assert_eq!((cause, failed(&phone)), (reason.map(s1ap::Cause::radioNetwork), 1), "case {number}");
        is_unharmed(&phone, &before);
        let release = to_gnb(&phone, NgapPduKind::Initiating_UEContextRelease);
        assert_eq!(release.is_some(), number != 0, "case {number}");
    }
}

fn requested_amf_id(phone: &Phone) -> u64 {
    let request = to_gnb(phone, NgapPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    request.ie::<ngap::ie::AMF_UE_NGAP_ID>().expect("an IE").expect("an ID").0
}

/// The source knows that the UE has not left, and continues.
#[test]
fn missing_arrival_leaves_ue_at_source() {
    let mut phone = in_5g();
    let before = phone.context();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.wait(Duration::from_secs(30));
    is_unharmed(&phone, &before);
    assert!(to_enb(&phone, S1apPduKind::Initiating_UEContextRelease).is_some(), "the target is released");
    // It is too late now.
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    assert!(phone.is_all_of(Dialect::Nr));
}

/// Returns the keys that the UE has in EPS after the handover that was required last.
fn handed_to_4g(old: &NasSecurity) -> NasSecurityContext {
    let count = |count| NasCount::new(count).expect("a COUNT");
    let kamf = nas_5gs::KAmf::new(&old.kamf);
    let (eia, eea) = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2);
    let (uplink, downlink) = (count(old.uplink), count(old.downlink));
    NasSecurityContext::from_mapped_kasme_handover(&kamf, uplink, downlink, eia, eea).expect("keys")
}

/// A reset by the target overtakes HANDOVER NOTIFY: the first message of the UE proves that it has
/// arrived.
#[test]
fn first_message_proves_arrival_in_4g() {
    let mut phone = in_5g();
    let before = phone.context();
    let old = before.security.clone().expect("keys");
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.event(Event::ConnectionLost { assoc: ENB });
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    is_unharmed(&phone, &before);
    phone.eps = Some(handed_to_4g(&old));
    let update = phone.update_request(BEARER, true);
    let header = NasEpsSecurityHeaderType::IntegrityProtected;
    let nas = phone.eps.as_mut().expect("keys").protect(&update, header, Direction::Uplink).expect("it encodes");
    let mut forged = nas.clone();
    forged[4] ^= 1;
    assert!(!is_authentic(&phone.context(), &forged) && is_authentic(&phone.context(), &nas));
    phone.initial(nas.clone());
    let after = phone.context();
    assert_eq!(after.security.as_ref().map(|s| s.kamf), Some(derived(&old.kamf, 0x74, old.downlink)));
    assert!(phone.is_all_of(Dialect::Eps) && after.handover.is_none(), "{after:?}");
    assert_eq!(after.sessions[0].address, before.sessions[0].address);
    let accept = update_accept(&mut phone);
    assert_eq!(accept.eps_bearer_context_status.map(|status| status.value.to_vec()), Some(vec![0x20, 0]));
    phone.set_up(&[5]);
    phone.uplink(&NasEpsMessage::new_emm(NasTrackingAreaUpdateComplete::new()));
    assert_eq!(succeeded(&phone, Kind::Mobility), 1);
    assert!(!is_authentic(&phone.context(), &nas), "a replay");
}

/// As [`first_message_proves_arrival_in_4g`], after the loss of the source.
#[test]
fn first_message_proves_arrival_in_5g() {
    let mut phone = in_4g();
    let before = phone.context();
    let old = before.security.clone().expect("keys");
    require_5g(&mut phone, GNB_ID);
    let amf_id = requested_amf_id(&phone);
    phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf_id, &[3]));
    let nh = phone.security().next_hop;
    let Some(NextHopChain::At(hop)) = nh else { panic!("{nh:?}") };
    phone.lab.event(Event::ConnectionLost { assoc: ENB });
    phone.lab.take_from_gnb(0, &pdus::notified_by_gnb(amf_id));
    assert_eq!((phone.context().connection, phone.context().session_dialect()), (None, Dialect::Eps));
    let (nia, nea) = (nas::IntegrityAlgorithm::NIA2, nas::CipheringAlgorithm::NEA2);
    let (kasme, nh) = (eps::KAsme::new(&old.kamf), eps::Nh::new(&hop.nh));
    phone.nr = nas::NasSecurityContext::from_mapped_kamf_handover(&kasme, &nh, nia, nea).ok();
    let request = phone.mobility_request(1 << 3);
    let header = Nas5gsSecurityHeaderType::IntegrityProtected;
    let octets = phone.nr.as_mut().expect("keys").protect(&request, header, nas::Direction::Uplink);
    let octets = octets.expect("it encodes");
    assert!(is_authentic(&phone.context(), &octets));
    phone.initial_5g(&octets);
    let after = phone.context();
    assert_eq!(after.security.as_ref().map(|s| s.kamf), Some(kdf::derive(&old.kamf, 0x76, &hop.nh)));
    assert!(phone.is_all_of(Dialect::Nr) && after.handover.is_none(), "{after:?}");
    assert_eq!(after.sessions[0].address, before.sessions[0].address);
    assert_eq!(authentications(&phone), 1);
}

/// The keys of a target that the UE has not reached end with the next message at the source.
#[test]
fn message_at_source_ends_unconfirmed_handover() {
    let mut phone = in_5g();
    let old = phone.security();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.event(Event::ConnectionLost { assoc: ENB });
    let connection = phone.context().connection.expect("a connection");
    phone.lab.take_from_gnb(0, &pdus::released_by_gnb(connection.amf_id, connection.ran_id));
    let update = phone.update_request(BEARER, true);
    let header = NasEpsSecurityHeaderType::IntegrityProtected;
    let nas = handed_to_4g(&old).protect(&update, header, Direction::Uplink).expect("it encodes");
    assert!(is_authentic(&phone.context(), &nas));
    (phone.lab.reachable, phone.lab.ran) = (true, None);
    phone.lab.ue.connection_released();
    phone.lab.ue_does(|ue, _, out| ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request"));
    assert!(!is_authentic(&phone.context(), &nas) && phone.context().handover.is_none());
}

#[test]
fn session_without_other_identity_ends_at_move() {
    let mut phone = in_5g();
    phone.lab.reachable = true;
    phone.lab.session(4);
    phone.lab.reachable = false;
    phone.lab.change(|ue| ue.sessions[1].index = 11);
    require_4g(&mut phone, ENB_ID);
    let request = to_enb(&phone, S1apPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    assert_eq!(request.items::<s1ap::ie::E_RABToBeSetupListHOReq>().count(), 1);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    let command = to_gnb(&phone, NgapPduKind::Successful_HandoverPreparation).expect("a command");
    let lost = command.ie::<ngap::ie::PDUSessionResourceToReleaseListHOCmd>().expect("an IE").expect("a list");
    assert_eq!(lost.0.iter().map(|item| item.pdu_session_id.0).collect::<Vec<_>>(), [4]);
    assert_eq!(phone.sessions(), [(3, 3), (4, 4)], "the source has it until the UE leaves");
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    assert_eq!(phone.sessions(), [(3, 5)]);
    assert!(phone.lab.effects.iter().any(|e| matches!(e, Effect::FreeAddress(..))));
}

/// A session that is idle at the gNB has no E-RAB at the eNB, and its UE has no bearer for it.
#[test]
fn idle_session_ends_at_handover_to_4g() {
    let mut phone = in_5g();
    phone.lab.reachable = true;
    phone.lab.session(4);
    phone.lab.reachable = false;
    phone.lab.change(|ue| (ue.sessions[1].ran, ue.sessions[1].downlink) = (RanState::Idle, None));
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    assert_eq!(phone.sessions(), [(3, 5)]);
    assert!(phone.pdus(S1apPduKind::Initiating_E_RABSetup).is_empty());
}

/// A gNB gets the subscribed UE-AMBR, and an eNB at most the sum of the APN-AMBRs (TS 23.501
/// 5.7.1.8, TS 23.401 4.7.3).
#[test]
fn target_gets_ambr_of_its_system() {
    const APN: Ambr = Ambr { uplink_bps: 2_000_000, downlink_bps: 3_000_000 };
    let limit = |phone: &mut Phone| phone.lab.change(|ue| ue.sessions[0].terms.ambr = APN);
    let mut phone = in_5g();
    limit(&mut phone);
    require_4g(&mut phone, ENB_ID);
    let request = to_enb(&phone, S1apPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    let ambr = request.ie::<s1ap::ie::uEaggregateMaximumBitrate>().expect("an IE").expect("rates");
    assert_eq!(ambr.ue_aggregate_maximum_bit_rate_dl.0, APN.downlink_bps);
    let mut phone = in_4g();
    limit(&mut phone);
    require_5g(&mut phone, GNB_ID);
    let request = to_gnb(&phone, NgapPduKind::Initiating_HandoverResourceAllocation).expect("a request");
    let ambr = request.ie::<ngap::ie::UEAggregateMaximumBitRate>().expect("an IE").expect("rates");
    let subscribed = phone.context().subscription.expect("a subscription").ambr;
    assert_eq!(ambr.ue_aggregate_maximum_bit_rate_dl.0, subscribed.downlink_bps);
}

/// Messages of the source that cross HANDOVER NOTIFY, and those of another RAN node.
#[test]
fn late_message_of_source_changes_nothing() {
    let mut phone = in_5g();
    let source = phone.context().connection.expect("a connection");
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    let other = AssocId(ASSOC.0 + 1);
    let stolen = pdus::notified_by_gnb(source.amf_id.get());
    phone.lab.event(Event::Ngap { assoc: other, amf_id: source.amf_id, pdu: &stolen });
    assert!(phone.is_all_of(Dialect::Nr), "only the target can say so");
    phone.lab.upf_answers = false;
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    let before = phone.context();
    let status = [0x7e, 0, 0x64, 0x16];
    for pdu in [
        crate::lab::uplink_nas(source.amf_id, source.ran_id, &status),
        pdus::cancelled_by_gnb(source.amf_id, source.ran_id),
    ] {
        phone.lab.take_from_gnb(0, &pdu);
    }
    let after = phone.context();
    assert_eq!((&after.security, &after.sessions), (&before.security, &before.sessions));
    assert_eq!(after.connection, before.connection);
    phone.lab.upf_catches_up();
    assert!(to_gnb(&phone, NgapPduKind::Initiating_UEContextRelease).is_some());
}

/// The UE has left before it completed a periodic update, which it repeats in the other system.
#[test]
fn procedure_of_source_ends_at_arrival() {
    let mut phone = in_5g();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    begin_update(&mut phone);
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    let context = phone.context();
    assert!(context.procedure.is_none() && context.is_registered());
    assert!(phone.is_all_of(Dialect::Eps));
    // Its uplink COUNT goes on after that of the update.
    assert_eq!(context.security.map(|s| s.uplink), Some(phone.lab.ue.security().expect("keys").uplink_count()));
}

/// E-RAB MODIFICATION INDICATION of the source during the preparation: the handover goes on.
#[test]
fn modification_leaves_handover_to_5g() {
    let mut phone = in_4g();
    require_5g(&mut phone, GNB_ID);
    let amf = requested_amf_id(&phone);
    phone.lab.take_from_enb(&crate::eps::pdus::modified((phone.mme_id(), ENB_UE), &[5]));
    assert!(to_enb(&phone, S1apPduKind::Successful_E_RABModificationIndication).is_none());
    phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf, &[3]));
    assert!(to_enb(&phone, S1apPduKind::Successful_HandoverPreparation).is_some());
    phone.lab.take_from_gnb(0, &pdus::notified_by_gnb(amf));
    assert!(phone.is_all_of(Dialect::Nr));
    assert_eq!((succeeded(&phone, Kind::Handover), failed(&phone)), (1, 0));
}

/// The UPF has not answered the first conversion when the UE, which has returned, goes to another
/// eNB.
#[test]
fn path_switch_before_conversion_succeeds() {
    let mut phone = in_4g();
    phone.lab.upf_answers = false;
    require_5g(&mut phone, GNB_ID);
    let amf = requested_amf_id(&phone);
    phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf, &[3]));
    phone.lab.take_from_gnb(0, &pdus::notified_by_gnb(amf));
    phone.lab.set_up_enb(&pdus::s1_setup(ENB_ID));
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    phone.lab.take_from_enb(&pdus::switched_by_enb(mme));
    assert!(to_enb(&phone, S1apPduKind::Successful_PathSwitchRequest).is_none(), "it waits for the UPF");
    phone.lab.upf_catches_up();
    assert!(to_enb(&phone, S1apPduKind::Successful_PathSwitchRequest).is_some());
    assert_eq!((succeeded(&phone, Kind::PathSwitch), succeeded(&phone, Kind::Handover)), (1, 2));
    let session = &phone.context().sessions[0];
    assert_eq!((session.ran, session.downlink.map(|tunnel| tunnel.teid.0)), (RanState::Up, Some(0x0909_0909)));
}

/// A UE moves back before the UPF has answered.
#[test]
fn return_before_upf_answer_converts_twice() {
    let mut phone = in_5g();
    phone.lab.upf_answers = false;
    let pfcp = phone.lab.pfcp.len();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    require_5g(&mut phone, GNB_ID);
    let amf = requested_amf_id(&phone);
    phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf, &[3]));
    phone.lab.take_from_gnb(0, &pdus::notified_by_gnb(amf));
    phone.lab.upf_catches_up();
    assert!(phone.is_all_of(Dialect::Nr));
    assert_eq!(qers(&phone, pfcp), (2, 2), "of EPS, then of 5G");
    assert_eq!(phone.context().sessions[0].downlink.map(|tunnel| tunnel.teid.0), Some(0x0102_0303));
    assert_eq!((succeeded(&phone, Kind::Handover), failed(&phone)), (2, 0));
}
