//! Changes of a subscriber's record while its UE is registered.

use crate::lab::nas::downlink;
use crate::lab::{Lab, SLICE};
use vireo_core::amf::context::Procedure;
use vireo_core::amf::engine::Event;
use vireo_core::smf::RanState;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::*;
use vireo_emulator::gnb;
use vireo_emulator::ue::{self, Event as UeEvent, MmState};
use vireo_types::*;
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage, NasConfigurationUpdateCommand, NasNssai};
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, ie};

/// Returns a connected UE with session 1.
fn connected() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab
}

/// Delivers the present record of the subscriber, as the host does.
fn changed(lab: &mut Lab) {
    let subscription = Some(lab.subscription.clone());
    lab.event(Event::SubscriberChanged { subscription, is_repeated: false });
    lab.settle();
}

fn removed(lab: &mut Lab) {
    lab.event(Event::SubscriberChanged { subscription: None, is_repeated: false });
    lab.settle();
}

fn sent(lab: &Lab, kind: NgapPduKind) -> usize {
    lab.sent.iter().filter(|pdu| NGAP_PDU::decode_borrowed(pdu).is_ok_and(|pdu| pdu.kind() == kind)).count()
}

fn pages(lab: &Lab) -> usize {
    lab.gnb_events.iter().filter(|e| matches!(e, gnb::Event::Paging(_))).count()
}

fn network(lab: &mut Lab) -> &mut DnnSubscription {
    &mut lab.subscription.slices[0].dnns[0]
}

fn count(lab: &Lab, fits: impl Fn(&Note) -> bool) -> usize {
    lab.notes.iter().filter(|note| fits(note)).count()
}

#[test]
fn removed_subscriber_is_deregistered() {
    for idle in [false, true] {
        let mut lab = connected();
        if idle {
            lab.idle();
        }
        removed(&mut lab);
        assert_eq!(pages(&lab) > 0, idle);
        let by_network = UeEvent::DeregisteredByNetwork { cause: Some(3), reregister: false };
        assert!(lab.events.contains(&by_network), "{:?}", lab.events);
        assert!(lab.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty() && c.connection.is_none()));
    }
}

#[test]
fn unreachable_removed_subscriber_ends() {
    let mut lab = connected();
    lab.idle();
    lab.answers_paging = false;
    removed(&mut lab);
    lab.wait(Duration::from_secs(20));
    assert!(lab.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty()));
}

#[test]
fn suspended_subscriber_is_barred_until_resumed() {
    let mut lab = connected();
    lab.subscription.suspended = true;
    changed(&mut lab);
    let by_network = UeEvent::DeregisteredByNetwork { cause: Some(7), reregister: false };
    assert!(lab.events.contains(&by_network), "{:?}", lab.events);
    let register = |lab: &mut Lab| {
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
    };
    register(&mut lab);
    let rejected = UeEvent::RegistrationRejected { cause: 7, retry_after_s: None };
    assert!(lab.events.contains(&rejected), "{:?}", lab.events);
    lab.subscription.suspended = false;
    register(&mut lab);
    assert_eq!(lab.ue.mm(), MmState::Registered);
}

#[test]
fn restriction_to_other_dialect_deregisters() {
    let mut lab = connected();
    lab.subscription.only = Some(Dialect::Eps);
    changed(&mut lab);
    let by_network = UeEvent::DeregisteredByNetwork { cause: Some(27), reregister: false };
    assert!(lab.events.contains(&by_network), "{:?}", lab.events);
}

#[test]
fn withdrawn_data_network_releases_session() {
    let mut lab = connected();
    network(&mut lab).dnn = "other".parse().expect("a DNN");
    changed(&mut lab);
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 1 }), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|c| c.is_registered() && c.sessions.is_empty()));
    assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceRelease), 1);
}

#[test]
fn changed_rate_modifies_session() {
    let mut lab = connected();
    let ambr = Ambr { uplink_bps: 7_000_000, downlink_bps: 9_000_000 };
    (network(&mut lab).ambr, network(&mut lab).five_qi) = (ambr, 6);
    changed(&mut lab);
    assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceModify), 1);
    assert!(lab.gnb_events.iter().any(|e| matches!(e, gnb::Event::QosModified { psi: 1, .. })));
    let context = lab.context().expect("a context");
    let session = &context.sessions[0];
    assert_eq!((session.terms.ambr, session.terms.five_qi, session.terms.change), (ambr, 6, None));
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::Modification, _))), 1);
    // The same record again, as after a takeover.
    let before = lab.sent.len();
    changed(&mut lab);
    assert_eq!(lab.sent.len(), before);
}

/// The gNB keeps the former QoS, and so do UE and UPF.
#[test]
fn refused_modification_leaves_session_unchanged() {
    // There and back; the class alone needs no UPF.
    for (class, to_upf) in [(9, 2), (6, 0)] {
        let mut lab = connected();
        lab.gnbs[0].refuse_modification(true);
        let terms = |lab: &Lab| lab.context().map(|c| c.sessions[0].terms.clone()).expect("a session");
        let (before, messages) = (terms(&lab), lab.pfcp.len());
        match class {
            9 => network(&mut lab).ambr = Ambr { uplink_bps: 7_000_000, downlink_bps: 9_000_000 },
            other => network(&mut lab).five_qi = other,
        }
        changed(&mut lab);
        assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceModify), 1);
        assert_eq!((terms(&lab), lab.pfcp.len() - messages), (before.clone(), to_upf));
        assert_eq!(count(&lab, |note| matches!(note, Note::Failed(Kind::Modification, 26))), 1);
        assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::Modification, _))), 0, "no COMPLETE");
        // The next set-up has the former terms, too.
        lab.idle();
        lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
        assert_eq!((terms(&lab), sent(&lab, NgapPduKind::Initiating_PDUSessionResourceModify)), (before, 1));
    }
}

#[test]
fn idle_ue_is_modified_when_it_connects() {
    let mut lab = connected();
    lab.idle();
    network(&mut lab).ambr = Ambr { uplink_bps: 7_000_000, downlink_bps: 9_000_000 };
    let content = lab.pfcp.len();
    changed(&mut lab);
    assert_eq!((pages(&lab), lab.pfcp.len() - content), (0, 1), "the UPF alone");
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let context = lab.context().expect("a context");
    assert!(context.sessions[0].terms.change.is_none() && context.sessions[0].ran == RanState::Up);
    assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceModify), 1);
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::Modification, _))), 1);
}

#[test]
fn change_during_procedure_is_sent_after_it() {
    let mut lab = connected();
    lab.idle();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(matches!(lab.context().and_then(|c| c.procedure), Some(Procedure::ServiceRequest(_))));
    network(&mut lab).ambr = Ambr { uplink_bps: 7_000_000, downlink_bps: 9_000_000 };
    changed(&mut lab);
    assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceModify), 0);
    lab.slow = None;
    for (n, pdu) in std::mem::take(&mut lab.late) {
        lab.take_from_gnb(n, &pdu);
    }
    lab.settle();
    assert_eq!(sent(&lab, NgapPduKind::Initiating_PDUSessionResourceModify), 1);
    assert!(lab.context().is_some_and(|c| c.sessions[0].terms.change.is_none()));
}

#[test]
fn changed_ue_ambr_reaches_gnb() {
    let mut lab = connected();
    lab.subscription.ambr = Ambr { uplink_bps: 1_000_000, downlink_bps: 2_000_000 };
    changed(&mut lab);
    let last = lab.sent.last().expect("a message");
    let pdu = NGAP_PDU::decode_borrowed(last).expect("a PDU");
    assert_eq!(pdu.kind(), NgapPduKind::Initiating_UEContextModification);
    let ambr = pdu.ie::<ie::UEAggregateMaximumBitRate>().expect("an IE").expect("rates");
    assert_eq!(
        (ambr.ue_aggregate_maximum_bit_rate_dl.0, ambr.ue_aggregate_maximum_bit_rate_ul.0),
        (2_000_000, 1_000_000)
    );
}

/// Returns the last CONFIGURATION UPDATE COMMAND.
fn configuration_update(lab: &Lab) -> NasConfigurationUpdateCommand {
    let security = lab.context().and_then(|ue| ue.security).expect("keys");
    let plain = lab.sent.iter().rev().filter_map(|pdu| downlink(&security, pdu));
    let command = plain.filter_map(|nas| match Nas5gsMessage::decode(&nas) {
        Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::ConfigurationUpdateCommand(command))) => Some(*command),
        _ => None,
    });
    command.into_iter().next().expect("a command")
}

/// A slice that is added is in the configured NSSAI, and the UE may request it.
#[test]
fn added_slice_updates_configured_nssai() {
    let mut lab = Lab::new();
    let second = Snssai { sst: 2, sd: None };
    let slice = lab.config.slices[0].clone();
    lab.config.slices.push(vireo_core::config::SliceConfig { snssai: second, ..slice });
    lab.register();
    let dnns = lab.subscription.slices[0].dnns.clone();
    lab.subscription.slices.push(SliceSubscription { snssai: second, default: false, dnns });
    changed(&mut lab);
    let command = configuration_update(&lab);
    let listed = |slices: Option<NasNssai>| slices.map(|slices| slices.value.to_vec());
    assert_eq!(listed(command.allowed_nssai), Some(vec![1, 1]));
    assert_eq!(listed(command.configured_nssai), Some(vec![1, 1, 1, 2]));
    changed(&mut lab);
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::ConfigurationUpdate, _))), 1, "once");
}

/// A slice that is not the home slice leaves the allowed NSSAI.
#[test]
fn withdrawn_slice_updates_allowed_nssai() {
    let mut lab = Lab::new();
    let second = Snssai { sst: 2, sd: None };
    let slice = lab.config.slices[0].clone();
    lab.config.slices.push(vireo_core::config::SliceConfig { snssai: second, ..slice });
    let dnns = lab.subscription.slices[0].dnns.clone();
    lab.subscription.slices.push(SliceSubscription { snssai: second, default: true, dnns });
    lab.register();
    lab.change(|ue| ue.allowed = [SLICE, second].into_iter().collect());
    lab.subscription.slices.pop();
    changed(&mut lab);
    assert!(lab.events.contains(&UeEvent::ConfigurationUpdated), "{:?}", lab.events);
    let context = lab.context().expect("a context");
    assert_eq!((&context.allowed[..], context.procedure), (&[SLICE][..], None));
    let command = configuration_update(&lab);
    let listed = |slices: Option<NasNssai>| slices.map(|slices| slices.value);
    let (allowed, configured) = (listed(command.allowed_nssai), listed(command.configured_nssai));
    assert!(allowed.is_some() && allowed == configured, "{allowed:?} {configured:?}");
    assert!(command.network_slicing_indication.is_some_and(|indication| indication.nssci()));
    // The gNB learns the allowed NSSAI, too (TS 38.413 8.6.2.2).
    let pdus = lab.sent.iter().filter_map(|pdu| NGAP_PDU::decode_borrowed(pdu).ok()?.ie::<ie::AllowedNSSAI>()?.ok());
    assert_eq!(pdus.map(|allowed| allowed.0.len()).collect::<Vec<_>>(), [1, 1], "context and update");
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::ConfigurationUpdate, _))), 1);
}

/// Without its home slice, the UE registers again.
#[test]
fn withdrawn_home_slice_needs_registration() {
    let mut lab = connected();
    lab.subscription.slices[0].snssai = Snssai { sst: 2, sd: None };
    changed(&mut lab);
    let by_network = UeEvent::DeregisteredByNetwork { cause: None, reregister: true };
    assert!(lab.events.contains(&by_network), "{:?}", lab.events);
}

#[test]
fn changed_record_authenticates_next_request() {
    let mut lab = connected();
    let vectors = |lab: &Lab| lab.effects.iter().filter(|e| matches!(e, Effect::Authenticate(_))).count();
    changed(&mut lab);
    lab.idle();
    let before = vectors(&lab);
    let update = |lab: &mut Lab| {
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
        assert_eq!(lab.ue.mm(), MmState::Registered, "{:?}", lab.events);
    };
    update(&mut lab);
    assert_eq!(vectors(&lab), before + 1);
    assert!(lab.context().is_some_and(|c| c.sessions.len() == 1 && !c.pending.authenticate));
    lab.idle();
    update(&mut lab);
    assert_eq!(vectors(&lab), before + 1, "once");
}

#[test]
fn changed_record_authenticates_service() {
    let mut lab = connected();
    changed(&mut lab);
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::Authentication, _))), 1);
    assert!(lab.context().is_some_and(|c| c.sessions[0].ran == RanState::Up && !c.pending.authenticate));
}

/// The UE has the K of the former record.
#[test]
fn ue_with_former_key_ends() {
    let mut lab = connected();
    changed(&mut lab);
    lab.idle();
    lab.home_keys.k = [7; 16];
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::AuthenticationRejected), "{:?}", lab.events);
    assert!(lab.context().is_none_or(|c| !c.is_registered() && c.sessions.is_empty()));
}
