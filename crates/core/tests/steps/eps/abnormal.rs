//! Collisions and lost connections in the common procedures, in service requests and in those of
//! bearers (TS 24.301 5.4, 5.6.1.7, 6.4, 6.5).

use super::network::{Network, assoc, emm};
use super::{TUNNEL, attached, foreign_guti, pdus, succeeded};
use vireo_core::amf::context::Procedure;
use vireo_core::amf::engine::Event;
use vireo_core::step::{Kind, Note};
use vireo_types::Duration;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::S1apPduKind;
use vireo_wire::security::nas_eps::KAsme;

/// Ends the UE's connection without an answer of the eNB.
fn lose_connection(network: &mut Network) {
    network.event(Event::ConnectionLost { assoc: assoc(0) });
    network.settle();
    network.mme_id = None;
}

/// Returns the number of messages of a kind to the eNB.
fn kinds(network: &Network, kind: S1apPduKind) -> usize {
    network.kinds.iter().filter(|sent| **sent == kind).count()
}

/// Returns a registered UE that has not received SECURITY MODE COMMAND of its update, under the
/// keys that it had before, and KASME of these.
fn renewing() -> (Network, [u8; 32]) {
    let mut network = attached();
    network.idle();
    network.change(|ue| ue.pending.authenticate = true);
    let (kasme, key_set) = (network.ue.kasme, network.ue.key_set);
    network.ue.remaining = Some(1);
    network.update(UpdateType::TaUpdating);
    assert_ne!(network.ue.kasme, kasme, "the UE has answered the challenge");
    let count = network.context().and_then(|c| c.security).expect("keys").uplink;
    let (eia, eea) = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2);
    let mut keys = NasSecurityContext::from_fresh_kasme(&KAsme::new(&kasme), eia, eea).expect("keys");
    for _ in 0..count {
        let used = emm(NasAttachComplete::new(NasEsmMessageContainer::new(vec![0; 3])));
        keys.protect(&used, NasEpsSecurityHeaderType::IntegrityProtected, Direction::Uplink).expect("it encodes");
    }
    network.ue.keys = Some(keys);
    network.ue.key_set = key_set;
    network.ue.remaining = None;
    (network, kasme)
}

fn kasme(network: &Network) -> Option<[u8; 32]> {
    network.context().and_then(|c| c.security).map(|keys| keys.kamf)
}

/// 5.4.3.7 c: the keys of SECURITY MODE COMMAND, which the UE has not received, are dropped.
#[test]
fn request_during_security_mode_replaces_it() {
    for request in ["update", "attach", "service request", "detach"] {
        let (mut network, before) = renewing();
        let commands = network.kinds.len();
        match request {
            "update" => network.update(UpdateType::PeriodicUpdating),
            "attach" => network.attach(),
            "service request" => network.service_request(),
            _ => network.detach(false),
        }
        let context = network.context().expect("a context");
        assert_eq!(kasme(&network), Some(before), "{request}");
        assert_eq!((context.is_registered(), &context.procedure), (request != "detach", &None), "{request}");
        assert!(network.kinds.len() > commands, "{request} has an answer");
        network.wait(Duration::from_secs(40));
        assert_eq!(kasme(&network), Some(before), "{request}: T3460 has ended");
    }
}

/// 5.4.3.7 a: the UE keeps the keys that it has.
#[test]
fn lost_connection_ends_security_mode() {
    let (mut network, before) = renewing();
    lose_connection(&mut network);
    let context = network.context().expect("a context");
    assert!(context.is_registered() && context.procedure.is_none() && context.sessions.len() == 1);
    assert_eq!(kasme(&network), Some(before));
    network.service_request();
    assert_eq!(network.tunnel(), Some(TUNNEL), "{:?}", network.notes);
}

/// 5.4.2.7 a, 5.4.3.7 a, 5.4.4.6 a: a UE that is not attached leaves nothing.
#[test]
fn lost_connection_ends_common_procedure() {
    for (guti, received) in [(true, 0), (false, 0), (false, 1)] {
        let mut network = Network::new();
        network.ue.guti = guti.then(foreign_guti);
        network.ue.remaining = Some(received);
        network.attach();
        assert!(network.context().is_some_and(|c| c.procedure.is_some()));
        lose_connection(&mut network);
        assert_eq!(network.context(), None, "identity: {guti}, received: {received}");
    }
}

/// 5.4.4.6 c to e: an attach on the connection of an identification, and a detach.
#[test]
fn request_during_identification() {
    for other in [false, true] {
        let mut network = Network::new();
        network.ue.guti = Some(foreign_guti());
        network.ue.remaining = Some(0);
        let mut request = network.attach_request();
        network.initial_message(&request);
        let sent = network.kinds.len();
        if other {
            request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::CombinedEpsImsiAttach);
        }
        network.initial_message(&request);
        assert_eq!(network.kinds.len(), sent + usize::from(other), "the same request is not treated");
        // An identification goes on after a detach that may come from elsewhere (4.4.4.3).
        let kind = NasDetachType::from_ue_detach_kind(UeDetachKind::EpsDetach, false);
        let key_set = request.nas_key_set_identifier;
        let detach = emm(NasDetachRequestUeOriginating::new(kind, key_set, foreign_guti()));
        network.uplink(detach.encode().expect("it encodes"));
        assert!(network.context().is_some_and(|c| matches!(c.procedure, Some(Procedure::Registration(_)))));
        network.ue.remaining = None;
        network.wait(Duration::from_secs(7));
        assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    }
}

/// 5.4.2.7 c to e: AUTHENTICATION FAILURE of a UE that has been identified.
#[test]
fn authentication_failures_are_answered() {
    let fail = |network: &mut Network, cause: EmmCause| {
        let mut failure = NasAuthenticationFailure::new(NasEmmCause::from_cause(cause));
        if cause == EmmCause::SynchFailure {
            failure.set_authentication_failure_parameter(NasAuthenticationFailureParameter::new(vec![0; 14]));
        }
        network.uplink(emm(failure).encode().expect("it encodes"));
    };
    for cause in [EmmCause::MacFailure, EmmCause::NonEpsAuthenticationUnacceptable, EmmCause::SynchFailure] {
        let mut network = Network::new();
        network.ue.remaining = Some(0);
        network.attach();
        network.ue.remaining = None;
        // An AUTS that does not verify.
        fail(&mut network, cause);
        assert!(matches!(network.last(), NasEmmMessage::AuthenticationReject(_)), "{cause:?}: {:?}", network.notes);
        assert_eq!((network.mme_id, network.context()), (None, None), "{cause:?}");
    }
}

/// 5.4.1.6 a, c to f: GUTI reallocation, its connection and other requests.
#[test]
fn request_during_guti_reallocation() {
    for request in ["update", "attach", "detach", "cs fallback", "lost connection"] {
        let mut network = attached();
        network.idle();
        network.ue.silent = true;
        network.downlink_data();
        network.service_request();
        assert!(matches!(network.last(), NasEmmMessage::GutiReallocationCommand(_)), "{:?}", network.last());
        let identity = network.context().expect("a context").identity;
        let both = [identity.tmsi, identity.old_tmsi];
        assert!(both.iter().all(Option::is_some));
        network.ue.silent = false;
        match request {
            "update" => network.update(UpdateType::TaUpdating),
            "attach" => network.attach(),
            "detach" => network.detach(false),
            "cs fallback" => {
                let octets = [0x07, 0x4c, 0x00, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef];
                let extended = NasEpsMessage::decode(&octets).expect("a message");
                network.protected(&extended, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
            }
            _ => lose_connection(&mut network),
        }
        let context = network.context().expect("a context");
        let now = [context.identity.tmsi, context.identity.old_tmsi];
        match request {
            // The accept has another GUTI.
            "update" | "attach" => assert!(!both.contains(&now[0]) && now[1].is_none(), "{request}"),
            _ => assert_eq!(now, both, "{request}: either may be used"),
        }
        assert_eq!(context.is_registered(), request != "detach", "{request}");
        let goes_on = matches!(context.procedure, Some(Procedure::ConfigurationUpdate(_)));
        assert_eq!(goes_on, request == "cs fallback", "{request}: {:?}", context.procedure);
    }
}

/// Returns a network whose eNB has not answered the service request of its UE.
fn serving() -> Network {
    let mut network = attached();
    network.idle();
    network.enb_answers = false;
    network.service_request();
    assert!(network.context().is_some_and(|c| matches!(c.procedure, Some(Procedure::ServiceRequest(_)))));
    network
}

/// 5.6.1.7 a: the UE is idle.
#[test]
fn lost_connection_ends_service_request() {
    let mut network = serving();
    lose_connection(&mut network);
    let context = network.context().expect("a context");
    assert!(context.is_registered() && context.connection.is_none() && context.procedure.is_none());
    assert!(network.notes.contains(&Note::Failed(Kind::ServiceRequest, 0)));
}

/// 5.6.1.7 c to e: the service request ends with the other procedure. A second one is served on the
/// connection.
#[test]
fn request_during_service_request() {
    for request in ["service request", "attach", "update", "detach"] {
        let mut network = serving();
        let set_ups = kinds(&network, S1apPduKind::Initiating_InitialContextSetup);
        match request {
            "service request" => network.service_request(),
            "attach" => network.attach(),
            "update" => network.update(UpdateType::TaUpdating),
            _ => network.detach(false),
        }
        let context = network.context().expect("a context");
        let again = kinds(&network, S1apPduKind::Initiating_InitialContextSetup) - set_ups;
        assert_eq!(again, 0, "{request}: the eNB has the first request");
        assert_eq!(context.is_registered(), request != "detach", "{request}");
        let serves = matches!(context.procedure, Some(Procedure::ServiceRequest(_)));
        assert_eq!(serves, request == "service request", "{request}: {:?}", context.procedure);
    }
}

/// 5.6.1.4.1: EXTENDED SERVICE REQUEST for packet services has the bearers that the UE has.
#[test]
fn extended_service_request_reconciles_bearers() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    let extended = |network: &mut Network, status: u16| {
        network.idle();
        let [low, high] = status.to_le_bytes();
        let octets = [0x07, 0x4c, 0x08, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef, 0x57, 2, low, high];
        let request = NasEpsMessage::decode(&octets).expect("a message");
        network.protected(&request, NasEpsSecurityHeaderType::IntegrityProtected);
    };
    extended(&mut network, 1 << 5 | 1 << 6);
    assert_eq!(network.context().map(|c| c.sessions.len()), Some(2));
    extended(&mut network, 1 << 6);
    let ids = network.context().map(|c| c.sessions.iter().map(|session| session.id()).collect::<Vec<_>>());
    assert_eq!((ids, network.mme_id.is_some()), (Some(vec![6]), true));
    extended(&mut network, 0);
    let NasEmmMessage::ServiceReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, network.mme_id), (40, None));
}

/// An eNB refuses a second set-up of an E-RAB (TS 36.413 8.2.1.3), and with it the NAS message.
#[test]
fn request_of_connected_ue_sets_up_no_bearer() {
    let mut network = attached();
    network.update_with(UpdateType::TaUpdating, |request| {
        request.eps_update_type = NasEpsUpdateType::from_update_type(UpdateType::TaUpdating).with_active(true);
    });
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(_)), "{:?}", network.notes);
    network.service_request();
    assert_eq!(kinds(&network, S1apPduKind::Initiating_E_RABSetup), 0);
    assert!(network.context().is_some_and(|c| c.procedure.is_none() && c.connection.is_some()));
    assert_eq!(network.tunnel(), Some(TUNNEL));
}

/// Returns a network that has changed the QoS of its UE's second bearer, which the UE has not
/// answered.
fn modifying() -> Network {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.ue.silent = true;
    network.subscription.slices[0].dnns[1].five_qi = 7;
    let subscription = Some(network.subscription.clone());
    network.event(Event::SubscriberChanged { subscription, is_repeated: false });
    network.settle();
    assert!(matches!(network.ue.esm.last(), Some(NasEsmMessage::ModifyEpsBearerContextRequest(_))));
    network
}

/// 6.4.3.6 b: the disconnect of the UE goes on.
#[test]
fn disconnect_ends_modification() {
    let mut network = modifying();
    network.disconnect(8, 6);
    assert!(matches!(network.ue.esm.last(), Some(NasEsmMessage::DeactivateEpsBearerContextRequest(_))));
    assert_eq!(network.context().map(|c| c.sessions.len()), Some(1), "{:?}", network.notes);
}

/// 6.4.3.6 c: the modification of the network goes on. ESM STATUS #97 ends it (6.7).
#[test]
fn resource_request_leaves_modification() {
    let mut network = modifying();
    let flows = NasTrafficFlowAggregateDescription::new(vec![0]);
    let bearer = NasLinkedEpsBearerIdentity::new(6);
    let messages = network.ue.esm.len();
    network.send_esm(NasBearerResourceModificationRequest::new(bearer, flows), 0, 9);
    assert_eq!(network.ue.esm.len(), messages, "no answer");
    assert!(network.context().is_some_and(|c| c.sessions[1].terms.change.is_some()));
    network.send_esm(NasEsmStatus::new(NasEsmCause::new(97)), 6, 0);
    assert!(network.notes.contains(&Note::Failed(Kind::Modification, 97)), "{:?}", network.notes);
    assert!(network.context().is_some_and(|c| c.sessions.len() == 2 && c.sessions[1].terms.change.is_none()));
}

/// 6.4.4.5 b: a disconnect of the UE during the deactivation of the same bearer.
#[test]
fn disconnect_during_deactivation_ends_once() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.ue.remaining = Some(0);
    network.subscription.slices[0].dnns.pop();
    let subscription = Some(network.subscription.clone());
    network.event(Event::SubscriberChanged { subscription, is_repeated: false });
    network.settle();
    network.disconnect(8, 6);
    network.ue.remaining = None;
    network.wait(Duration::from_secs(9));
    assert_eq!(network.context().map(|c| c.sessions.len()), Some(1), "{:?}", network.notes);
}

/// 5.4.3.5: the procedure ends, and the keys of the command are dropped.
#[test]
fn rejected_security_mode_keeps_former_keys() {
    let reject = |network: &mut Network| {
        let cause = NasEmmCause::from_cause(EmmCause::SecurityModeRejectedUnspecified);
        network.uplink(emm(NasSecurityModeReject::new(cause)).encode().expect("it encodes"));
    };
    let mut network = Network::new();
    network.ue.remaining = Some(1);
    network.attach();
    reject(&mut network);
    assert_eq!((network.mme_id, network.context()), (None, None), "nothing of the UE is kept");
    assert!(network.notes.contains(&Note::Failed(Kind::Registration, 0)), "{:?}", network.notes);
    let (mut network, before) = renewing();
    reject(&mut network);
    assert_eq!((network.mme_id, kasme(&network)), (None, Some(before)));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.procedure.is_none()));
}

/// The UE ends its last connection while another one is being released (6.5.2.4).
#[test]
fn second_disconnect_leaves_last_bearer() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.ue.remaining = Some(0);
    network.disconnect(3, 6);
    network.ue.remaining = None;
    network.disconnect(4, 5);
    let Some((0, 4, NasEsmMessage::PdnDisconnectReject(reject))) = network.ue.received_esm.last() else {
        panic!("{:?}", network.ue.received_esm)
    };
    assert_eq!(reject.esm_cause.value, 49);
    assert!(network.context().is_some_and(|c| c.sessions.iter().filter(|s| s.remains()).count() == 1));
}

/// A UE without its last bearer attaches again (TS 23.401 5.4.4.1). It rejects the bearer in ATTACH
/// COMPLETE, or does not have it any more.
#[test]
fn denied_last_bearer_detaches_ue() {
    let mut attaching = Network::new();
    attaching.ue.silent = true;
    attaching.attach();
    let cause = NasEsmCause::from_cause(EsmCause::InsufficientResources);
    let reject = NasEpsMessage::new_esm(NasActivateDefaultEpsBearerContextReject::new(cause), 5, 0);
    let container = NasEsmMessageContainer::new(reject.encode().expect("it encodes"));
    let complete = emm(NasAttachComplete::new(container));
    attaching.protected(&complete, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
    let mut without = attached();
    let cause = NasEsmCause::from_cause(EsmCause::InvalidEpsBearerIdentity);
    without.send_esm(NasEsmStatus::new(cause), 5, 0);
    for network in [attaching, without] {
        let NasEmmMessage::DetachRequestUeTerminated(request) = network.last() else { panic!("{:?}", network.last()) };
        assert_eq!(request.detach_type.network_detach_kind(), NetworkDetachKind::ReattachRequired);
        assert_eq!(kinds(&network, S1apPduKind::Initiating_E_RABRelease), 1);
        assert!(network.context().is_some_and(|c| c.sessions.is_empty()), "{:?}", network.notes);
    }
    // It rejects the bearer without ATTACH COMPLETE.
    let mut network = Network::new();
    network.ue.silent = true;
    network.attach();
    network.send_esm(NasActivateDefaultEpsBearerContextReject::new(cause), 5, 0);
    assert_eq!(network.mme_id, None, "the connection is released");
    assert!(network.context().is_some_and(|c| !c.is_registered() && c.procedure.is_none() && c.sessions.is_empty()));
    // It has another bearer.
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.send_esm(NasEsmStatus::new(cause), 6, 0);
    assert!(network.context().is_some_and(|c| c.sessions.len() == 1 && c.procedure.is_none()));
}

/// TS 36.413 8.6.2.4: the messages with a timer are repeated when it expires.
#[test]
fn undelivered_message_is_repeated_by_its_timer() {
    let mut network = attached();
    network.ue.remaining = Some(0);
    network.event(Event::Deregister { reregister: true, cause: None });
    network.settle();
    let before = network.context().expect("a context");
    network.take_from_enb(&pdus::not_delivered((network.mme_id.expect("a connection"), network.enb_id)));
    let mut after = network.context().expect("a context");
    after.sequence = before.sequence;
    assert_eq!(after, before);
    network.ue.remaining = None;
    network.wait(Duration::from_secs(7));
    assert!(matches!(network.last(), NasEmmMessage::DetachRequestUeTerminated(_)));
}

/// TS 36.413 8.3.1.3: INITIAL CONTEXT SETUP FAILURE of an attach and of a service request.
#[test]
fn context_setup_failure_releases_ue() {
    for attaches in [true, false] {
        let mut network = if attaches { Network::new() } else { attached() };
        if !attaches {
            network.idle();
        }
        network.enb_answers = false;
        match attaches {
            true => network.attach(),
            false => network.service_request(),
        }
        let ids = (network.mme_id.expect("a connection"), network.enb_id);
        network.take_from_enb(&pdus::context_setup_failure(ids));
        assert!(network.notes.contains(&Note::fault("context-setup-failure")));
        assert_eq!(network.mme_id, None, "the connection is released");
        let context = network.context().expect("a context");
        assert_eq!((context.connection, context.procedure), (None, None));
    }
}

/// TS 36.413 8.3.3, 8.7.1: an eNB that does not answer UE CONTEXT RELEASE COMMAND.
#[test]
fn unanswered_release_resets_connection() {
    let mut network = attached();
    network.enb_releases = false;
    network.take_from_enb(&pdus::release_request((network.mme_id.expect("a connection"), network.enb_id)));
    network.wait(Duration::from_secs(30));
    assert_eq!(network.kinds.last(), Some(&S1apPduKind::Initiating_Reset));
    assert!(network.context().is_some_and(|c| c.connection.is_none() && c.is_registered()));
}
