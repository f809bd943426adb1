//! Changes of a subscriber's record while its UE is attached, and GUTI reallocation.

use super::network::{IMSI, Network};
use crate::golden::eps as golden;
use std::num::NonZeroU16;
use vireo_core::amf::context::Procedure;
use vireo_core::amf::engine::Event;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::{Ambr, AuthenticationRequest, SubscriberIdentity};
use vireo_types::{Dialect, Duration, Pei, Tac};
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{EventType, S1AP_PDU, S1apPduKind, ie};

fn attached() -> Network {
    let mut network = Network::new();
    network.attach();
    network
}

/// Delivers the present record of the subscriber, as the host does.
pub(super) fn changed(network: &mut Network) {
    let subscription = Some(network.subscription.clone());
    network.event(Event::SubscriberChanged { subscription, is_repeated: false });
    network.settle();
}

fn kinds(network: &Network, kind: S1apPduKind) -> usize {
    network.kinds.iter().filter(|sent| **sent == kind).count()
}

fn succeeded(network: &Network, kind: Kind) -> usize {
    network.notes.iter().filter(|note| matches!(note, Note::Succeeded(of, _) if *of == kind)).count()
}

/// Returns the EMM cause of the last DETACH REQUEST.
fn detach_cause(network: &Network) -> Option<u8> {
    match network.last() {
        NasEmmMessage::DetachRequestUeTerminated(request) => request.emm_cause.as_ref().map(|cause| cause.value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn removed_subscriber_is_detached_with_cause() {
    let mut network = attached();
    network.event(Event::SubscriberChanged { subscription: None, is_repeated: false });
    network.settle();
    assert_eq!(detach_cause(&network), Some(EmmCause::EpsServicesAndNonEpsServicesNotAllowed.as_u8()));
}

#[test]
fn barred_subscriber_is_detached_with_cause() {
    for (suspended, cause) in [(true, 7), (false, 15)] {
        let mut network = attached();
        network.subscription.suspended = suspended;
        network.subscription.only = (!suspended).then_some(Dialect::Nr);
        changed(&mut network);
        assert_eq!(detach_cause(&network), Some(cause));
    }
}

/// All tracking areas of the network, and all but one.
#[test]
fn forbidden_area_detaches_with_cause() {
    for cause in [12, 15] {
        let mut network = attached();
        network.subscription.areas.forbidden = network.config.tacs.clone();
        network.config.tacs.extend((cause == 15).then_some(Tac(77)));
        changed(&mut network);
        assert_eq!(detach_cause(&network), Some(cause));
    }
}

#[test]
fn changed_qos_modifies_bearer() {
    let mut network = attached();
    let ambr = Ambr { uplink_bps: 10_000_000, downlink_bps: 30_000_000 };
    let terms = &mut network.subscription.slices[0].dnns[0];
    (terms.ambr, terms.five_qi, terms.arp_priority) = (ambr, 7, 2);
    changed(&mut network);
    let [.., NasEsmMessage::ModifyEpsBearerContextRequest(request)] = &network.ue.esm[..] else {
        panic!("{:?}", network.ue.esm)
    };
    assert_eq!(request.new_eps_qos.as_ref().map(|qos| qos.value.to_vec()), Some(vec![7]));
    let rates = request.apn_ambr.as_ref().map(|ambr| (ambr.downlink_kbps(), ambr.uplink_kbps()));
    assert_eq!(rates, Some((Some(30_000), Some(10_000))));
    let pdus = network.sent.iter().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let modify = pdus.into_iter().find(|pdu| pdu.kind() == S1apPduKind::Initiating_E_RABModify).expect("a request");
    let total = modify.ie::<ie::uEaggregateMaximumBitrate>().expect("an IE").expect("rates");
    assert_eq!(total.ue_aggregate_maximum_bit_rate_dl.0, 30_000_000, "the UE-AMBR follows the APN-AMBR");
    let item = modify.items::<ie::E_RABToBeModifiedListBearerModReq>().next().expect("an item").expect("an item");
    let qos = item.e_rab_level_qos_parameters;
    assert_eq!((item.e_rab_id.0, qos.qci.0, qos.allocation_retention_priority.priority_level.0), (5, 7, 2));
    assert_eq!(kinds(&network, S1apPduKind::Initiating_UEContextModification), 0);
    assert_eq!(succeeded(&network, Kind::Modification), 1);
    assert!(network.context().is_some_and(|c| c.sessions[0].terms.change.is_none()));
}

/// TS 36.413 9.2.1.39.
#[test]
fn enb_gets_profile_id_of_subscriber() {
    let mut network = Network::new();
    network.subscription.rfsp = NonZeroU16::new(256);
    network.attach();
    network.subscription.rfsp = NonZeroU16::new(7);
    changed(&mut network);
    let pdus = network.sent.iter().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let ids = pdus.filter_map(|pdu| Some((pdu.kind(), pdu.ie::<ie::SubscriberProfileIDforRFP>()?.expect("an ID").0)));
    let expected =
        [(S1apPduKind::Initiating_InitialContextSetup, 256), (S1apPduKind::Initiating_UEContextModification, 7)];
    assert_eq!(ids.collect::<Vec<_>>(), expected);
}

/// TS 36.413 9.2.3.38.
#[test]
fn enb_gets_masked_imeisv() {
    let mut network = attached();
    network.change(|ue| ue.identity.pei = Some(Pei(3_512_345_678_901_234)));
    network.idle();
    network.service_request();
    let pdus = network.sent.iter().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let masked = pdus.filter_map(|pdu| Some((pdu.kind(), pdu.ie::<ie::Masked_IMEISV>()?.expect("bits").0.value())));
    let expected = [(S1apPduKind::Initiating_InitialContextSetup, 0x3512_3456_78ff_ff34)];
    assert_eq!(masked.collect::<Vec<_>>(), expected);
}

/// TS 36.413 8.11.1.
#[test]
fn operator_requests_cell_from_enb() {
    let mut network = attached();
    network.event(Event::Locate);
    network.settle();
    let pdus = network.sent.iter().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let events = pdus.filter_map(|pdu| Some(pdu.ie::<ie::RequestType>()?.expect("a type").event_type));
    assert_eq!(events.collect::<Vec<_>>(), [EventType::direct]);
}

/// E-RAB MODIFY RESPONSE has the bearer in its list of failed ones (TS 36.413 8.2.2.2).
#[test]
fn refused_modification_leaves_bearer_unchanged() {
    let mut network = attached();
    network.refused_erab = Some(5);
    let ambr = |network: &Network| network.context().map(|c| c.sessions[0].terms.ambr);
    let (before, messages) = (ambr(&network), network.ue.esm.len());
    network.subscription.slices[0].dnns[0].ambr = Ambr { uplink_bps: 10_000_000, downlink_bps: 30_000_000 };
    changed(&mut network);
    assert_eq!(kinds(&network, S1apPduKind::Initiating_E_RABModify), 1);
    assert_eq!((ambr(&network), network.ue.esm.len()), (before, messages));
    assert!(network.notes.contains(&Note::Failed(Kind::Modification, 26)));
    // The eNB has the UE-AMBR of its request, and gets that of the former terms.
    let (_, last) = network.sent.last().expect("a message");
    let last = S1AP_PDU::decode_borrowed(last).expect("a PDU");
    assert_eq!(last.kind(), S1apPduKind::Initiating_UEContextModification);
    let total = last.ie::<ie::uEaggregateMaximumBitrate>().expect("an IE").expect("rates");
    let former = before.map(|ambr| ambr.downlink_bps.min(network.subscription.ambr.downlink_bps));
    assert_eq!(Some(total.ue_aggregate_maximum_bit_rate_dl.0), former);
}

#[test]
fn modification_equals_pycrates() {
    let mut network = attached();
    let terms = &mut network.subscription.slices[0].dnns[0];
    (terms.ambr, terms.five_qi) = (Ambr { uplink_bps: 10_000_000, downlink_bps: 30_000_000 }, 7);
    changed(&mut network);
    let request = network.ue.esm.last().expect("a message").clone();
    let octets = NasEpsMessage::new_esm(request, 5, 0).encode().expect("it encodes");
    assert_eq!(hex::encode(octets), hex::encode(golden("ModifyEPSBearerContextRequest")));
}

/// T3486 (TS 24.301 6.4.3.6 a).
#[test]
fn unanswered_modification_repeats_four_times() {
    let mut network = attached();
    network.ue.silent = true;
    network.subscription.slices[0].dnns[0].five_qi = 7;
    changed(&mut network);
    let is_request = |m: &&NasEsmMessage| matches!(m, NasEsmMessage::ModifyEpsBearerContextRequest(_));
    let requests = |network: &Network| network.ue.esm.iter().filter(is_request).count();
    network.wait(Duration::from_millis(39_900));
    assert_eq!(requests(&network), 5);
    network.wait(Duration::from_secs(30));
    assert_eq!(requests(&network), 5);
    assert!(network.notes.contains(&Note::Failed(Kind::Modification, 0)));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions[0].terms.change.is_none()));
}

#[test]
fn ue_without_bearer_rejects_its_modification() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.ue.silent = true;
    network.subscription.slices[0].dnns[1].five_qi = 7;
    changed(&mut network);
    let cause = NasEsmCause::from_cause(EsmCause::InvalidEpsBearerIdentity);
    network.send_esm(NasModifyEpsBearerContextReject::new(cause), 6, 0);
    assert!(network.notes.contains(&Note::Failed(Kind::Modification, 43)));
    assert_eq!(network.context().map(|c| c.sessions.len()), Some(1));
}

#[test]
fn idle_bearer_is_modified_on_connection() {
    let mut network = attached();
    network.idle();
    network.subscription.slices[0].dnns[0].five_qi = 7;
    changed(&mut network);
    assert_eq!(kinds(&network, S1apPduKind::Initiating_Paging), 0);
    network.service_request();
    assert_eq!(kinds(&network, S1apPduKind::Initiating_E_RABModify), 1);
    assert_eq!(succeeded(&network, Kind::Modification), 1);
}

/// Without its last bearer, a UE attaches again (TS 23.401 5.4.4.1).
#[test]
fn withdrawn_data_network_ends_its_bearer() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.subscription.slices[0].dnns.pop();
    changed(&mut network);
    assert_eq!(network.context().map(|c| (c.sessions.len(), c.is_registered())), Some((1, true)));
    network.subscription.slices[0].dnns[0].dnn = "other".parse().expect("an APN");
    changed(&mut network);
    let NasEmmMessage::DetachRequestUeTerminated(request) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(request.detach_type.network_detach_kind(), NetworkDetachKind::ReattachRequired);
}

#[test]
fn changed_record_authenticates_next_update() {
    let mut network = attached();
    changed(&mut network);
    network.idle();
    network.effects.clear();
    network.update(UpdateType::TaUpdating);
    let supi = IMSI.parse().expect("an IMSI");
    let own = |effect: &Effect| match effect {
        Effect::Authenticate(AuthenticationRequest { identity, .. }) => *identity == SubscriberIdentity::Imsi(supi),
        _ => false,
    };
    assert!(network.effects.iter().any(own), "{:?}", network.effects);
    assert!(network.context().is_some_and(|c| c.is_registered() && !c.pending.authenticate));
}

#[test]
fn changed_record_authenticates_service() {
    let mut network = attached();
    changed(&mut network);
    network.idle();
    let before = network.ue.kasme;
    network.service_request();
    assert_eq!(succeeded(&network, Kind::Authentication), 1, "{:?}", network.notes);
    assert_ne!(network.ue.kasme, before);
    assert!(network.tunnel().is_some() && network.context().is_some_and(|c| !c.pending.authenticate));
}

#[test]
fn paged_ue_gets_another_guti() {
    let mut network = attached();
    network.idle();
    let before = network.ue.guti.clone();
    network.downlink_data();
    network.service_request();
    let context = network.context().expect("a context");
    assert_eq!((context.procedure, context.identity.old_tmsi), (None, None));
    assert_ne!(network.ue.guti, before);
    assert_eq!(succeeded(&network, Kind::ConfigurationUpdate), 1);
    // The next request is not an answer to a page.
    network.idle();
    network.service_request();
    assert_eq!(succeeded(&network, Kind::ConfigurationUpdate), 1);
}

/// T3450 (TS 24.301 5.4.1.6 a).
#[test]
fn unconfirmed_guti_leaves_both_valid() {
    let mut network = attached();
    network.idle();
    network.ue.silent = true;
    let before = network.context().and_then(|c| c.identity.tmsi);
    network.downlink_data();
    network.service_request();
    assert!(matches!(network.context().and_then(|c| c.procedure), Some(Procedure::ConfigurationUpdate(_))));
    network.wait(Duration::from_secs(60));
    let is_command = |m: &&NasEmmMessage| matches!(m, NasEmmMessage::GutiReallocationCommand(_));
    assert_eq!(network.ue.received.iter().filter(is_command).count(), 5);
    let context = network.context().expect("a context");
    assert!(context.procedure.is_none() && context.is_registered());
    assert_eq!(context.identity.old_tmsi, before);
    assert!(network.notes.contains(&Note::Failed(Kind::ConfigurationUpdate, 0)));
    // The UE uses the former one.
    network.idle();
    network.service_request();
    assert!(network.context().is_some_and(|c| c.connection.is_some()));
    // The next page does not tell which one the UE has: it gets the same again.
    let unconfirmed = network.context().and_then(|c| c.identity.tmsi);
    network.idle();
    network.downlink_data();
    network.service_request();
    let identity = network.context().expect("a context").identity;
    assert_eq!((identity.tmsi, identity.old_tmsi), (unconfirmed, before));
    // A UE that answers has it.
    network.idle();
    network.ue.silent = false;
    network.downlink_data();
    network.service_request();
    let identity = network.context().expect("a context").identity;
    assert_eq!((identity.tmsi, identity.old_tmsi), (unconfirmed, None));
}
