//! Authentication of a registered UE, which the network initiates (TS 24.501 5.4.1).

use crate::lab::nas::{INTEGRITY, protected};
use crate::lab::{self, Lab};
use vireo_core::amf::context::{Connection, NasSecurity, Procedure, RanContext, UeSecurityCapability};
use vireo_core::amf::n2;
use vireo_core::config::KeyLifetime;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::AuthenticationError;
use vireo_emulator::ue::{self, Event as UeEvent};
use vireo_emulator::usim::Usim;
use vireo_types::{AmfUeNgapId, Duration, NrCgi, PduSessionType, RanUeNgapId, Tac, Tai};
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};

/// Capability of the UE as a gNB encodes it in PATH SWITCH REQUEST.
pub(super) const CAPABILITY: (u8, u8) = (0xf0, 0x70);

pub(super) fn keys(lab: &Lab) -> NasSecurity {
    lab.context().and_then(|ue| ue.security).expect("keys")
}

fn count(lab: &Lab, fits: impl Fn(&Note) -> bool) -> usize {
    lab.notes.iter().filter(|note| fits(note)).count()
}

fn succeeded(lab: &Lab) -> usize {
    count(lab, |note| matches!(note, Note::Succeeded(Kind::Authentication, _)))
}

fn vectors(lab: &Lab) -> usize {
    lab.effects.iter().filter(|effect| matches!(effect, Effect::Authenticate(_))).count()
}

pub(super) fn sent(lab: &Lab, kind: NgapPduKind) -> usize {
    lab.sent.iter().filter(|pdu| NGAP_PDU::decode_borrowed(pdu).is_ok_and(|pdu| pdu.kind() == kind)).count()
}

fn authenticates(lab: &Lab) -> bool {
    matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::Authentication(_)))
}

fn serve(lab: &mut Lab) {
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
}

/// Returns an idle UE with session 1, whose keys have reached the end of their lifetime.
fn with_old_keys() -> Lab {
    let mut lab = Lab::new();
    lab.config.security.key_lifetime.time = Duration::from_secs(600);
    lab.register();
    lab.session(1);
    lab.idle();
    lab.wait(Duration::from_secs(601));
    lab
}

/// Returns a connected UE with session 1, whose next message uses up its keys.
pub(super) fn with_used_keys() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.config.security.key_lifetime.nas_count = keys(&lab).uplink + 1;
    lab
}

pub(super) fn establish(lab: &mut Lab) {
    lab.ue_does(|ue, p, out| ue.establish(p, 2, PduSessionType::Ipv4, out).expect("a request"));
}

/// The UE compares the KgNB of the set-up with its own.
#[test]
fn service_request_renews_old_keys() {
    let mut lab = with_old_keys();
    let (before, vectors_before) = (keys(&lab), vectors(&lab));
    serve(&mut lab);
    let after = keys(&lab);
    assert!(lab.events.contains(&UeEvent::ServiceAccepted), "{:?} {:?}", lab.events, lab.notes);
    assert_eq!((succeeded(&lab), vectors(&lab)), (1, vectors_before + 1));
    assert_ne!((after.kamf, after.key_set), (before.kamf, before.key_set));
    assert_eq!(after.agreed_at, lab.now);
    assert!(lab.context().is_some_and(|ue| ue.sessions[0].is_up() && ue.procedure.is_none()));
    // The new keys are not old.
    lab.idle();
    serve(&mut lab);
    assert_eq!(vectors(&lab), vectors_before + 1);
}

#[test]
fn registration_renews_old_keys() {
    let mut lab = with_old_keys();
    let (before, vectors_before) = (keys(&lab), vectors(&lab));
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    assert_eq!(vectors(&lab), vectors_before + 1);
    assert_ne!(keys(&lab).kamf, before.kamf);
    assert!(lab.context().is_some_and(|ue| ue.is_registered() && ue.sessions.len() == 1));
}

/// The key of the gNB follows (TS 33.501 6.9.4.4), and so does the NH of a later handover. The UE
/// compares both with its own.
#[test]
fn used_up_count_renews_keys_of_connection() {
    let mut lab = with_used_keys();
    let before = keys(&lab);
    establish(&mut lab);
    lab.config.security.key_lifetime = KeyLifetime::default();
    let after = keys(&lab);
    assert_ne!((after.kamf, after.key_set), (before.kamf, before.key_set), "{:?}", lab.notes);
    assert_eq!((succeeded(&lab), sent(&lab, NgapPduKind::Initiating_UEContextModification)), (1, 1));
    let context = lab.context().expect("a context");
    assert!(context.procedure.is_none() && context.connection.is_some_and(|c| c.ran == RanContext::SetUp));
    assert_eq!(lab.ue.active_sessions().count(), 2);
    lab.xn(CAPABILITY, |_| true);
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::PathSwitch, _))), 1);
    lab.idle();
    serve(&mut lab);
    assert_eq!(succeeded(&lab), 1);
}

/// TS 24.501 5.4.1.3.7 b: T3560 expires, and the connection ends.
#[test]
fn unanswered_authentication_keeps_keys() {
    let mut lab = with_old_keys();
    let before = keys(&lab);
    lab.reachable = false;
    serve(&mut lab);
    assert!(authenticates(&lab), "{:?}", lab.notes);
    lab.wait(Duration::from_secs(41));
    let challenges = lab.sent.iter().filter(|pdu| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x56]));
    assert_eq!(challenges.count(), 1 + 5, "the first one is of the registration");
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.connection.is_none() && context.sessions.len() == 1);
    assert_eq!(keys(&lab).kamf, before.kamf);
    assert!(lab.notes.contains(&Note::Failed(Kind::Authentication, 0)));
    // The UE is authenticated by its next request.
    lab.forget_connection();
    lab.ue.connection_released();
    lab.reachable = true;
    serve(&mut lab);
    assert!(succeeded(&lab) == 1 && keys(&lab).kamf != before.kamf, "{:?}", lab.notes);
}

/// TS 24.501 5.4.2.5.
#[test]
fn rejected_security_mode_keeps_keys() {
    let mut lab = with_old_keys();
    let before = keys(&lab);
    let mut out = ue::UeOutput::default();
    lab.ue.service_request(ue::Service::Data, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    // The challenge reaches the UE, SECURITY MODE COMMAND does not.
    lab.inject_until(&request, &mut 1);
    assert!(lab.sent.last().is_some_and(|pdu| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x5d])));
    let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
    let reject = lab::uplink_nas(connection.amf_id, connection.ran_id, &[0x7e, 0, 0x5f, 24]);
    lab.take_from_gnb(0, &reject);
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.procedure.is_none(), "{:?}", lab.notes);
    assert!(context.connection.is_some_and(|c| matches!(c.ran, RanContext::Releasing { .. })));
    assert_eq!(keys(&lab).kamf, before.kamf);
}

/// TS 24.501 5.4.1.3.7 c: the identity is requested before AUTHENTICATION REJECT.
#[test]
fn renewal_with_other_key_ends_registration() {
    let mut lab = with_old_keys();
    lab.home_keys.k = [7; 16];
    serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::AuthenticationRejected), "{:?}", lab.events);
    let failures = lab.events.iter().filter(|event| matches!(event, UeEvent::AuthenticationFailed { cause: 20 }));
    assert_eq!(failures.count(), 2);
    assert!(lab.context().is_none_or(|ue| !ue.is_registered() && ue.sessions.is_empty() && ue.security.is_none()));
}

/// IDENTITY RESPONSE with a SUCI of the null scheme, and one without identity.
const IDENTITY_RESPONSES: [&[u8]; 2] =
    [&[0x7e, 0, 0x5c, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10], &[0x7e, 0, 0x5c, 0, 1, 0]];

/// TS 24.501 4.4.4.3 b, d: neither AUTHENTICATION FAILURE nor IDENTITY RESPONSE needs protection
/// before the secure exchange is established. The gNB of a UE can send both in its place.
#[test]
fn other_identity_changes_no_context() {
    for is_update in [false, true] {
        for (name, response, error) in [
            ("another subscriber", IDENTITY_RESPONSES[0], None),
            ("unknown subscriber", IDENTITY_RESPONSES[0], Some(AuthenticationError::UnknownSubscriber)),
            ("altered SUCI", IDENTITY_RESPONSES[0], Some(AuthenticationError::BadSuci)),
            ("no SUCI", IDENTITY_RESPONSES[1], None),
        ] {
            let mut lab = with_old_keys();
            let before = lab.context().expect("a context");
            let (p, mut out) = (lab.profile.clone(), ue::UeOutput::default());
            match is_update {
                true => lab.ue.register(&p, ue::Registration::Periodic, &mut out).expect("a request"),
                false => lab.ue.service_request(ue::Service::Data, &mut out).expect("a request"),
            }
            lab.inject_until(out.messages().next().expect("a message"), &mut 0);
            // The network gets a vector of the attacker's subscription.
            let (vectors_before, own) = (vectors(&lab), lab.ue.usim().supi());
            lab.ue = ue::Ue::new(Usim::new("999700000000002".parse().expect("a SUPI"), lab.home_keys));
            lab.subscriber_error = error;
            let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
            for nas in [&[0x7e, 0, 0x59, 20][..], response] {
                lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, nas));
            }
            let case = format!("{name}, update {is_update}: {:?}", lab.notes);
            let after = lab.context().expect("a context");
            assert_eq!((after.identity.supi, after.identity.tmsi), (Some(own), before.identity.tmsi), "{case}");
            assert!(after.is_registered() && after.sessions == before.sessions, "{case}");
            assert_eq!(after.security.map(|keys| keys.kamf), before.security.map(|keys| keys.kamf), "{case}");
            let is_released = |ran| matches!(ran, RanContext::Releasing { .. });
            assert!(after.procedure.is_none() && after.connection.is_some_and(|c| is_released(c.ran)), "{case}");
            assert_eq!(vectors(&lab), vectors_before + usize::from(name != "no SUCI"), "{case}");
            assert!(lab.notes.contains(&Note::fault("identity-of-other-subscriber")), "{case}");
        }
    }
}

#[test]
fn missing_vector_leaves_keys_in_use() {
    let mut lab = with_old_keys();
    let before = keys(&lab);
    lab.subscriber_error = Some(AuthenticationError::Unavailable);
    serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::ServiceAccepted), "{:?} {:?}", lab.events, lab.notes);
    assert_eq!(keys(&lab).kamf, before.kamf);
    assert!(lab.notes.contains(&Note::Failed(Kind::Authentication, 0)));
}

#[test]
fn unknown_subscriber_is_deregistered() {
    let mut lab = with_old_keys();
    lab.subscriber_error = Some(AuthenticationError::UnknownSubscriber);
    serve(&mut lab);
    let by_network = UeEvent::DeregisteredByNetwork { cause: Some(3), reregister: false };
    assert!(lab.events.contains(&by_network), "{:?} {:?}", lab.events, lab.notes);
    assert!(lab.context().is_some_and(|ue| !ue.is_registered() && ue.connection.is_none()));
}

/// TS 33.501 6.9.5.1: the keys of the target would be replaced.
#[test]
fn handover_during_renewal_is_refused() {
    let mut lab = with_used_keys();
    lab.reachable = false;
    establish(&mut lab);
    assert!(authenticates(&lab), "{:?}", lab.notes);
    lab.n2(2);
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 1);
    assert!(authenticates(&lab));
}

/// The UE then sets up a connection under its new NAS keys.
#[test]
fn refused_key_of_gnb_releases_ue() {
    for answers in [true, false] {
        let mut lab = with_used_keys();
        lab.slow = Some(NgapPduKind::Successful_UEContextModification);
        establish(&mut lab);
        lab.config.security.key_lifetime = KeyLifetime::default();
        let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
        assert!(connection.ran.is_rekeying(), "{:?}", lab.notes);
        match answers {
            true => {
                use vireo_wire::ngap::*;
                let failure = build_ngap!(
                    UnsuccessfulOutcome,
                    UEContextModification,
                    UEContextModificationFailure,
                    AMF_UE_NGAP_ID(connection.amf_id.get()),
                    RAN_UE_NGAP_ID(connection.ran_id.0),
                    Cause(Cause::radioNetwork(CauseRadioNetwork::unspecified)),
                );
                lab.take_from_gnb(0, &failure.and_then(|pdu| pdu.encode()).expect("it encodes"));
                lab.settle();
            }
            false => lab.wait(Duration::from_secs(11)),
        }
        let context = lab.context().expect("a context");
        assert!(context.is_registered() && context.connection.is_none(), "{:?}", lab.notes);
        lab.slow = None;
        serve(&mut lab);
        assert!(lab.events.contains(&UeEvent::ServiceAccepted), "{:?}", lab.events);
    }
}

/// Returns SERVICE REQUEST of the UE with these further IEs.
fn service_request(lab: &Lab, rest: &[u8]) -> Vec<u8> {
    let tmsi = lab.context().and_then(|ue| ue.identity.tmsi).expect("a 5G-TMSI");
    let plain = [&[0x7e, 0, 0x4c, 0x10, 0, 7, 0xf4, 0, 0x40][..], &tmsi.0.to_be_bytes(), rest].concat();
    protected(&keys(lab), INTEGRITY, &plain)
}

/// Sends SERVICE REQUEST on the connection, of which the gNB has received no message.
fn send(lab: &mut Lab, rest: &[u8]) {
    let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
    let request = service_request(lab, rest);
    lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, &request));
    lab.settle();
}

/// TS 24.501 5.6.1.8 c.
#[test]
fn repeated_service_request_waits_for_renewal() {
    let mut lab = with_old_keys();
    lab.reachable = false;
    let request = service_request(&lab, &[]);
    lab.inject(&request);
    assert!(authenticates(&lab), "{:?}", lab.notes);
    let before = vectors(&lab);
    send(&mut lab, &[]);
    assert_eq!(vectors(&lab), before);
    assert!(lab.notes.contains(&Note::fault("nas-request-repeated")));
    // Another request, with uplink data of session 1, replaces it.
    send(&mut lab, &[0x40, 2, 2, 0]);
    assert!(vectors(&lab) == before + 1 && authenticates(&lab), "{:?}", lab.notes);
}

/// UE CONTEXT MODIFICATION REQUEST of pycrate.
#[test]
fn key_for_gnb_equals_golden() {
    let key = hex::decode("c18166e13cfde1dea842c708f6e0b3372b6896664df4e865c0c78bd270852005").expect("digits");
    let plmn = "99970".parse().expect("a PLMN");
    let connection = Connection {
        assoc: lab::ASSOC,
        ran_id: RanUeNgapId(0x00c0_ffee),
        amf_id: AmfUeNgapId::from_raw(0x0a_bc12_3007).expect("40 bits"),
        tai: Tai { plmn, tac: Tac(1) },
        cell: NrCgi { plmn, cell: 1 },
        ran: RanContext::SetUp,
    };
    let capability = UeSecurityCapability::new(&[0x70, 0x30, 0x70, 0x30]);
    let request = n2::key_renewal_request(&connection, key.try_into().expect("32 octets"), capability);
    assert_eq!(request, crate::golden::nr("UEContextModificationRequest-key"));
}
