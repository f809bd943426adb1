//! Repeated requests and collisions of procedures (TS 24.301 5.4, 5.5.1.2.7, 5.5.2.3.5,
//! 5.5.3.2.7, 5.6.1.7).

use super::network::{Network, emm};
use super::{TUNNEL, attached, succeeded};
use vireo_core::amf::engine::Event;
use vireo_core::step::{Effect, Kind, Note};
use vireo_types::Duration;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::S1apPduKind;

/// Returns the number of vectors that the subscriber service was asked for.
fn vectors(network: &Network) -> usize {
    network.effects.iter().filter(|effect| matches!(effect, Effect::Authenticate(_))).count()
}

/// Returns an attach whose UE receives at most this many messages, and its request.
fn attaching(received: usize) -> (Network, NasAttachRequest) {
    let mut network = Network::new();
    network.ue.remaining = Some(received);
    let request = network.attach_request();
    network.initial_message(&request);
    (network, request)
}

/// Sends ATTACH REQUEST on the connection, plain unless the network has keys.
fn repeat_attach(network: &mut Network, request: &NasAttachRequest) {
    match network.context().is_some_and(|c| c.security.is_some()) {
        true => network.initial_message(request),
        false => network.uplink(emm(request.clone()).encode().expect("it encodes")),
    }
}

/// 5.5.1.2.7 e 2: an attach that was not answered goes on.
#[test]
fn same_attach_request_is_ignored() {
    for received in [0, 1] {
        let (mut network, request) = attaching(received);
        let (before, sent) = (network.context().expect("a context"), network.kinds.len());
        repeat_attach(&mut network, &request);
        let mut after = network.context().expect("a context");
        after.sequence = before.sequence;
        assert_eq!((after, network.kinds.len(), vectors(&network)), (before, sent, 1));
        network.ue.remaining = None;
        network.wait(Duration::from_secs(7));
        assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    }
}

/// 5.5.1.2.7 e 1: another request replaces the attach.
#[test]
fn other_attach_request_restarts_attach() {
    for received in [0, 1] {
        let (mut network, mut request) = attaching(received);
        request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::CombinedEpsImsiAttach);
        network.ue.remaining = None;
        repeat_attach(&mut network, &request);
        assert_eq!((vectors(&network), succeeded(&network, Kind::Registration)), (2, 1), "{:?}", network.notes);
        let NasEmmMessage::AttachAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
        assert!(accept.emm_cause.is_some(), "the combined attach is answered");
    }
}

/// 5.5.1.2.7 d 2: ATTACH ACCEPT is sent again, under the same GUTI.
#[test]
fn same_request_gets_accept_again() {
    let (mut network, request) = attaching(2);
    let accepted = network.context().expect("a context");
    network.now = network.now + Duration::from_secs(5);
    network.ue.remaining = None;
    network.ue.silent = true;
    repeat_attach(&mut network, &request);
    assert!(matches!(network.last(), NasEmmMessage::AttachAccept(_)), "{:?}", network.notes);
    let context = network.context().expect("a context");
    assert_eq!((context.identity, context.sessions.len(), vectors(&network)), (accepted.identity, 1, 1));
    // T3450 has restarted, and no retransmission was counted.
    let received = network.ue.received.len();
    network.wait(Duration::from_secs(29));
    assert_eq!(network.ue.received.len(), received + 4);
}

/// 5.5.1.2.7 d 1: the attach is aborted, and the new one is progressed.
#[test]
fn other_request_after_accept_restarts_attach() {
    let (mut network, mut request) = attaching(2);
    let first = network.context().expect("a context");
    request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::CombinedEpsImsiAttach);
    network.ue.remaining = None;
    repeat_attach(&mut network, &request);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    let context = network.context().expect("a context");
    assert_ne!(context.identity.tmsi, first.identity.tmsi);
    assert_eq!((context.sessions.len(), context.procedure), (1, None));
}

/// 5.5.1.2.7 g: the update is rejected with #10, and the GUTI of the attach is valid.
#[test]
fn update_before_complete_is_rejected() {
    let (mut network, _) = attaching(2);
    let accepted = network.context().expect("a context").identity;
    network.ue.remaining = None;
    network.ue.guti = Some(super::foreign_guti());
    network.update(UpdateType::TaUpdating);
    let NasEmmMessage::TrackingAreaUpdateReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, network.mme_id), (10, None));
    let context = network.context().expect("its keys are kept");
    assert!(!context.is_registered() && context.sessions.is_empty() && context.procedure.is_none());
    assert_eq!((context.identity.tmsi, context.identity.old_tmsi), (accepted.tmsi, None));
    assert_eq!(succeeded(&network, Kind::Registration), 0);
    network.attach();
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
}

/// 5.5.1.2.7 h.
#[test]
fn detach_before_complete_ends_attach() {
    let (mut network, _) = attaching(2);
    network.ue.remaining = None;
    network.ue.guti = Some(super::foreign_guti());
    network.detach(false);
    assert!(matches!(network.last(), NasEmmMessage::DetachAccept(_)), "{:?}", network.notes);
    let context = network.context().expect("its keys are kept");
    assert!(!context.is_registered() && context.sessions.is_empty() && context.procedure.is_none());
}

/// 5.5.3.2.7 d: TRACKING AREA UPDATE ACCEPT is sent again.
#[test]
fn same_update_request_gets_accept_again() {
    let mut network = attached();
    network.ue.silent = true;
    network.update(UpdateType::TaUpdating);
    let first = network.context().expect("a context").identity;
    let received = network.ue.received.len();
    network.update(UpdateType::TaUpdating);
    assert_eq!(network.ue.received.len(), received + 1);
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(_)));
    assert_eq!(network.context().map(|c| c.identity), Some(first));
    network.update(UpdateType::PeriodicUpdating);
    assert_ne!(network.context().map(|c| c.identity), Some(first), "another request");
}

/// 5.4.1.6: a UE that uses its new GUTI has accepted it. The complete message is lost, and then the
/// accept of the next update.
#[test]
fn new_guti_in_use_counts_as_accepted() {
    let mut network = attached();
    network.ue.silent = true;
    network.update(UpdateType::TaUpdating);
    let NasEmmMessage::TrackingAreaUpdateAccept(accept) = network.last().clone() else { panic!("{:?}", network.notes) };
    let first = network.context().expect("a context").identity;
    (network.ue.guti, network.mme_id) = (accept.guti, None);
    network.update(UpdateType::PeriodicUpdating);
    let second = network.context().expect("a context").identity;
    assert!(network.effects.contains(&Effect::FreeTmsi(first.old_tmsi.expect("the previous one"))));
    assert_eq!(second.old_tmsi, first.tmsi, "the UE may still have it");
    assert_ne!(second.tmsi, first.tmsi);
}

/// 5.5.2.3.5 e, f: the detach goes on.
#[test]
fn request_during_network_detach_is_ignored() {
    let mut network = attached();
    network.ue.remaining = Some(0);
    network.event(Event::Deregister { reregister: false, cause: None });
    network.settle();
    let procedure = network.context().and_then(|c| c.procedure);
    let sent = network.kinds.len();
    network.update(UpdateType::TaUpdating);
    network.service_request();
    assert_eq!(network.kinds.len(), sent);
    assert_eq!(network.context().and_then(|c| c.procedure), procedure);
    let faults = network.notes.iter().filter(|note| **note == Note::fault("nas-during-detach")).count();
    assert_eq!(faults, 2);
}

/// 5.5.2.3.5 c: both sides detach, and each request is answered.
#[test]
fn detach_of_both_sides_ends_once() {
    for switch_off in [false, true] {
        let mut network = attached();
        network.ue.remaining = Some(0);
        network.event(Event::Deregister { reregister: true, cause: None });
        network.settle();
        network.ue.remaining = None;
        let received = network.ue.received.len();
        network.detach(switch_off);
        assert_eq!(network.ue.received.len(), received + usize::from(!switch_off));
        assert!(network.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty()));
        assert_eq!(network.mme_id, None);
    }
}

/// 5.5.2.3.5 d: a UE that is not to attach again is detached first.
#[test]
fn attach_during_final_detach_is_ignored() {
    let mut network = attached();
    network.ue.remaining = Some(0);
    network.event(Event::Deregister { reregister: false, cause: None });
    network.settle();
    let (procedure, sent) = (network.context().and_then(|c| c.procedure), network.kinds.len());
    network.attach();
    assert_eq!((network.context().and_then(|c| c.procedure), network.kinds.len()), (procedure, sent));
    assert!(network.notes.contains(&Note::fault("nas-during-detach")));
    network.wait(Duration::from_secs(31));
    assert_eq!(network.mme_id, None);
    network.ue.remaining = None;
    network.attach();
    assert_eq!(succeeded(&network, Kind::Registration), 2, "{:?}", network.notes);
}

/// 5.5.2.3.5 d: a UE that is to attach again does so.
#[test]
fn attach_during_network_detach_is_progressed() {
    let mut network = attached();
    network.ue.remaining = Some(0);
    network.event(Event::Deregister { reregister: true, cause: None });
    network.settle();
    network.ue.remaining = None;
    network.attach();
    assert_eq!(succeeded(&network, Kind::Registration), 2, "{:?}", network.notes);
    assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
}

#[test]
fn paged_ue_may_update_attach_or_detach() {
    for answer in ["update", "attach", "detach"] {
        let mut network = attached();
        network.idle();
        network.downlink_data();
        assert_eq!(network.kinds.last(), Some(&S1apPduKind::Initiating_Paging));
        match answer {
            "update" => network.update(UpdateType::TaUpdating),
            "attach" => network.attach(),
            _ => network.detach(false),
        }
        assert_eq!(succeeded(&network, Kind::Paging), 1, "{answer}: {:?}", network.notes);
        let context = network.context().expect("a context");
        assert_eq!((context.is_registered(), context.procedure), (answer != "detach", None), "{answer}");
        // The bearer of the packet is back.
        assert_eq!(network.tunnel(), (answer != "detach").then_some(TUNNEL), "{answer}");
    }
}

/// 5.5.2.2.3: the UE stays attached for EPS services.
#[test]
fn imsi_detach_keeps_bearers() {
    let mut network = attached();
    for connected in [true, false] {
        if !connected {
            network.idle();
        }
        network.detach_from(UeDetachKind::ImsiDetach);
        assert!(matches!(network.last(), NasEmmMessage::DetachAccept(_)), "{:?}", network.last());
        assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
        assert_eq!(network.mme_id.is_some(), connected);
    }
}
