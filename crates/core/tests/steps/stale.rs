//! Connections of a RAN node that the UE context does not have.
//!
//! The RAN node releases them, and the UE reconnects.

use crate::lab::{ASSOC, Lab, uplink_nas};
use vireo_core::amf::engine::Event;
use vireo_core::step::{Effect, Note};
use vireo_emulator::gnb;
use vireo_emulator::ue;
use vireo_types::{AmfUeNgapId, AssocId, PduSessionType};
use vireo_wire::ngap::{Cause, CauseRadioNetwork, NGAP_PDU, NgapPduKind};

fn released(lab: &Lab) -> usize {
    lab.gnb_events.iter().filter(|event| matches!(event, gnb::Event::Released { .. })).count()
}

fn stale(lab: &Lab) -> Vec<&Effect> {
    lab.effects.iter().filter(|effect| matches!(effect, Effect::ReleaseStale { .. })).collect()
}

/// Returns a UE that is idle at the core and connected at its gNB.
fn split() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.event(Event::ConnectionLost { assoc: ASSOC });
    assert!(lab.context().is_some_and(|context| context.connection.is_none()) && lab.ran.is_some());
    lab
}

#[test]
fn uplink_nas_of_an_idle_context_is_released() {
    let mut lab = split();
    lab.ue_does(|ue, p, out| ue.establish(p, 2, PduSessionType::Ipv4, out).expect("a request"));
    assert_eq!((released(&lab), lab.ran), (1, None), "{:?}", lab.gnb_events);
    let error = |event: &gnb::Event| matches!(event, gnb::Event::ErrorIndication(_) | gnb::Event::Violation(_));
    assert!(!lab.gnb_events.iter().any(error), "{:?}", lab.gnb_events);
    assert!(lab.notes.contains(&Note::fault("unknown-local-ue-ngap-id")));
    // The completed release is not answered, and the UE is served.
    assert_eq!((lab.downlink_waits(), stale(&lab).len()), (0, 1));
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(lab.events.contains(&ue::Event::ServiceAccepted));
}

#[test]
fn release_request_of_idle_context_is_executed() {
    let mut lab = split();
    let cause = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
    lab.gnb_does(|gnb, ran, out| gnb.request_release(ran, cause, out).expect("a request"));
    assert_eq!((released(&lab), lab.ran), (1, None));
}

#[test]
fn stale_sender_releases_and_binding_stays() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    let before = lab.context();
    let connection = before.as_ref().and_then(|context| context.connection).expect("a connection");
    let nas = [0x7e, 0x00, 0x64, 0x6f];
    lab.take_from_gnb(1, &uplink_nas(connection.amf_id, connection.ran_id, &nas));
    let (amf_id, ran_id) = (connection.amf_id, connection.ran_id);
    let assoc = AssocId(ASSOC.0 + 1);
    assert_eq!(stale(&lab), [&Effect::ReleaseStale { assoc, amf_id, ran_id }], "the sender alone");
    assert_eq!(lab.context(), before);
    lab.settle();
    assert_eq!(released(&lab), 0, "the UE's own gNB hears nothing");
    lab.ue_does(|ue, p, out| ue.establish(p, 2, PduSessionType::Ipv4, out).expect("a request"));
    assert_eq!(lab.context().map(|context| context.sessions.len()), Some(2));
}

/// Two messages cross the release of their connection (TS 38.413 10.6). The core answers each, and
/// the gNB the second answer by ERROR INDICATION.
#[test]
fn second_stale_release_is_answered_by_error() {
    let mut lab = split();
    let ran = lab.ran.expect("a connection");
    let amf_id = lab.gnbs[0].amf_id(ran).and_then(AmfUeNgapId::from_raw).expect("a number");
    let late = uplink_nas(amf_id, ran, &[0x7e, 0x00, 0x64, 0x6f]);
    lab.take_from_gnb(0, &late);
    lab.take_from_gnb(0, &late);
    assert_eq!((stale(&lab).len(), lab.downlink_waits()), (2, 2));
    lab.settle();
    assert_eq!((released(&lab), lab.ran), (1, None));
    let is_violation = |event: &gnb::Event| matches!(event, gnb::Event::Violation(_));
    assert!(!lab.gnb_events.iter().any(is_violation), "{:?}", lab.gnb_events);
    let answer = lab.received.last().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind());
    assert_eq!(answer, Some(NgapPduKind::Initiating_ErrorIndication));
    assert!(lab.context().is_some_and(|context| context.is_registered() && context.connection.is_none()));
}

/// ERROR INDICATION and UE CONTEXT RELEASE COMPLETE about such a connection are the RAN node's
/// response to its release.
#[test]
fn answers_about_a_stale_connection_are_ignored() {
    let mut lab = split();
    let ran = lab.ran.expect("a connection");
    let amf_id = lab.gnbs[0].amf_id(ran).expect("a number");
    let cause = Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID);
    let report =
        gnb::ErrorReport { core_id: Some(amf_id), ran_id: Some(ran.0), cause: Some(cause), diagnostics: false };
    lab.gnb_does(|gnb, _, out| gnb.indicate_error(report, out).expect("a message"));
    assert!(stale(&lab).is_empty() && lab.downlink_waits() == 0);
}
