//! Procedures against the emulator's UE and gNB.
//!
//! Success, lost messages, and misbehaviour of the UE or an attacker.

use crate::lab::{self, ASSOC, Lab, SLICE};
use std::collections::BTreeSet;
use vireo_core::amf::context::{Procedure, Registration, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::placement::replica::{Claim, ClaimResolution, Claims};
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::{AuthenticationError, SubscriberIdentity};
use vireo_emulator::ue::{self, Event as UeEvent, Fault, MmState};
use vireo_types::*;
use vireo_wire::ngap::{Cause, CauseRadioNetwork, NgapPduKind};

fn succeeded(lab: &Lab, kind: Kind) -> usize {
    lab.notes.iter().filter(|n| matches!(n, Note::Succeeded(k, _) if *k == kind)).count()
}

fn failed(lab: &Lab, kind: Kind) -> Option<u8> {
    lab.notes.iter().find_map(|n| if let Note::Failed(k, cause) = n { (*k == kind).then_some(*cause) } else { None })
}

fn fault(lab: &Lab, word: &'static str) -> bool {
    lab.notes.contains(&Note::fault(word))
}

/// Waiting time in queues is part of the procedure's latency.
#[test]
fn procedure_time_starts_at_first_message() {
    let mut lab = Lab::new();
    lab.waits_us = 700;
    lab.register();
    lab.session(1);
    let came = Instant(lab.now.0 - 700);
    for kind in [Kind::Registration, Kind::Session] {
        assert!(lab.notes.contains(&Note::Succeeded(kind, came)), "{:?}", lab.notes);
    }
}

#[test]
fn registration_moves_ue_to_home_slice() {
    let mut lab = Lab::new();
    lab.register();
    let context = lab.context().expect("a context");
    assert_eq!((context.registration, context.allowed.as_slice()), (Registration::Registered, &[SLICE][..]));
    assert_eq!(context.ltmsi.bucket().get(), 2, "a number of its home slice");
    let connection = context.connection.expect("it is connected");
    assert_eq!(connection.amf_id.ltmsi().bucket().get(), 1, "the NG connection keeps the number it began with");
    assert!(context.identity.pei.is_some() && context.identity.old_tmsi.is_none() && context.procedure.is_none());
    assert_eq!(context.identity.tmsi, lab.ue.guti().map(|g| g.tmsi));
    assert_eq!(succeeded(&lab, Kind::Registration), 1);
    assert!(lab.events.contains(&UeEvent::Secured { ciphering: 2, integrity: 2 }), "{:?}", lab.events);
    let supi = lab.ue.usim().supi();
    assert!(lab.effects.contains(&Effect::BindSupi(supi)));
}

#[test]
fn algorithms_follow_preference_and_capability() {
    let mut lab = Lab::new();
    (lab.profile.ciphering, lab.profile.integrity) = (0x80, 0x40);
    lab.register();
    assert!(lab.events.contains(&UeEvent::Secured { ciphering: 0, integrity: 1 }), "{:?}", lab.events);

    let mut lab = Lab::new();
    lab.profile.integrity = 0x80;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
    assert_eq!(failed(&lab, Kind::Registration), Some(23), "NIA0 alone is refused");
    assert_eq!(lab.ue.mm(), MmState::Deregistered);
}

#[test]
fn session_lives_through_idle() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(5);
    assert_eq!(succeeded(&lab, Kind::Session), 1);
    lab.idle();
    let context = lab.context().expect("it is kept");
    assert!(context.connection.is_none() && context.is_registered() && context.sessions.len() == 1);
    assert_eq!(succeeded(&lab, Kind::Release), 1);

    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::ServiceAccepted));
    assert_eq!((succeeded(&lab, Kind::ServiceRequest), succeeded(&lab, Kind::Activation)), (1, 1), "{:?}", lab.notes);

    lab.ue_does(|ue, _, out| ue.release(5, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 5 }));
    assert!(lab.context().expect("it is kept").sessions.is_empty());
    let freed = lab.effects.iter().filter(|e| matches!(e, Effect::FreeAddress(..))).count();
    assert_eq!(freed, 1, "its address goes back");
}

#[test]
fn several_sessions_come_back_together() {
    let mut lab = Lab::new();
    lab.register();
    for psi in 1..=4 {
        lab.session(psi);
    }
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert_eq!(succeeded(&lab, Kind::Activation), 4);
    let seids: std::collections::HashSet<_> =
        lab.context().expect("it is kept").sessions.iter().map(|s| s.pfcp.cp_seid).collect();
    assert_eq!(seids.len(), 4);
}

#[test]
fn verified_guti_skips_authentication() {
    let mut lab = Lab::new();
    lab.register();
    let first = lab.ue.guti();
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::Deregistered) && lab.context().is_some_and(|c| !c.is_registered()));
    lab.effects.clear();
    lab.register();
    assert!(!lab.effects.iter().any(|e| matches!(e, Effect::Authenticate(_))), "its keys are known");
    assert_ne!(lab.ue.guti(), first, "a new 5G-GUTI each time");
    assert!(lab.old_contexts.is_empty(), "it is the same context");
}

#[test]
fn unknown_guti_requests_suci() {
    let mut lab = Lab::new();
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::UnknownGuti, out).expect("a request"));
    assert_eq!(lab.ue.mm(), MmState::Registered);
    let new_requests =
        lab.effects.iter().find_map(|e| if let Effect::Authenticate(r) = e { Some(&r.identity) } else { None });
    assert!(matches!(new_requests, Some(SubscriberIdentity::Suci(_))));
}

#[test]
fn known_guti_with_bad_mac_leaves_context() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    let before = lab.context().expect("it is kept");
    // Forged Service Request with this UE's 5G-S-TMSI: a genuine one with one bit changed.
    let mut out = ue::UeOutput::default();
    lab.ue.service_request(ue::Service::Data, &mut out).expect("a request");
    let mut forged = out.messages().next().expect("a message").to_vec();
    forged[3] ^= 1;
    lab.inject(&forged);
    assert!(fault(&lab, "nas-bad-mac"));
    assert_eq!(lab.old_contexts, [before], "the UE's own context is as it was");
    assert!(lab.context().is_none(), "the stranger's is forgotten once it is released");
    assert_eq!(failed(&lab, Kind::ServiceRequest), Some(9));
}

#[test]
fn usim_ahead_is_resynchronised() {
    let mut lab = Lab::new();
    lab.ue.inject(Fault::SynchFailure);
    lab.register();
    assert!(lab.events.contains(&UeEvent::AuthenticationFailed { cause: 21 }));
}

#[test]
fn mac_failure_and_wrong_answers_are_refused() {
    for (fault, wants) in [(Fault::MacFailure, 20), (Fault::WrongResponse, 0)] {
        let mut lab = Lab::new();
        lab.ue.inject(fault);
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
        assert!(lab.events.contains(&UeEvent::AuthenticationRejected), "{fault:?}: {:?}", lab.events);
        if wants != 0 {
            assert!(lab.events.contains(&UeEvent::AuthenticationFailed { cause: wants }));
        }
        assert!(lab.context().is_none(), "nothing is left of it");
    }
}

#[test]
fn ngksi_in_use_gets_another() {
    let mut lab = Lab::new();
    lab.ue.inject(Fault::KeySetInUse);
    lab.register();
    assert!(lab.events.contains(&UeEvent::AuthenticationFailed { cause: 71 }));
}

#[test]
fn authentication_error_maps_to_cause() {
    let cases = [
        (AuthenticationError::UnknownSubscriber, 3),
        // Deviation from TS 24.501 5.5.1.2.5: an operator's mistake locks no SIM.
        (AuthenticationError::BadSuci, 9),
        (AuthenticationError::UnknownHomeKey, 9),
        (AuthenticationError::Unavailable, 22),
    ];
    for (error, cause) in cases {
        let mut lab = Lab::new();
        lab.subscriber_error = Some(error);
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
        let rejected = |e: &UeEvent| matches!(e, UeEvent::RegistrationRejected { cause: c, .. } if *c == cause);
        assert!(lab.events.iter().any(rejected), "{error}: {:?}", lab.events);
        let waits = |e: &UeEvent| matches!(e, UeEvent::RegistrationRejected { retry_after_s: Some(_), .. });
        assert_eq!(lab.events.iter().any(waits), cause == 22, "congestion tells when to come back");
        assert!(lab.context().is_none());
    }
}

/// The context of the UE's 5G-GUTI is lost: an update is rejected like a service request (TS 24.501
/// 5.5.1.3.5), because some UEs cipher their response to an Identity Request.
#[test]
fn update_of_unknown_guti_is_rejected() {
    for kind in [ue::Registration::Mobility, ue::Registration::Periodic] {
        let mut lab = Lab::new();
        lab.register();
        lab.idle();
        lab.change(|ue| ue.identity.tmsi = Some(Tmsi(1)));
        lab.ue_does(|ue, p, out| ue.register(p, kind, out).expect("a request"));
        let rejected = UeEvent::RegistrationRejected { cause: 9, retry_after_s: None };
        assert!(lab.events.contains(&rejected), "{:?}", lab.events);
        assert_eq!(failed(&lab, Kind::Mobility), Some(9));
        assert!(lab.context().is_none(), "nothing is kept of it");
        lab.register();
    }
}

/// A 5G-GUTI mapped from a 4G-GUTI does not indicate a loss in this network: the UE is sent an
/// Identity Request.
#[test]
fn update_from_eps_is_asked_for_suci() {
    let (guti, capability) = ([0xf2, 0x99, 0xf9, 7, 2, 0, 0x40, 1, 2, 3, 4], [0x2e, 2, 0xf0, 0x70]);
    let request = [&[0x7e, 0, 0x41, 0x7a, 0, 11][..], &guti, &capability].concat();
    // EPS NAS message container, and UE status "EMM-REGISTERED".
    let from_eps: [&[u8]; 2] = [&[0x70, 0, 1, 0x48], &[0x2b, 1, 1]];
    for (more, new_requests) in [(&[][..], false), (from_eps[0], true), (from_eps[1], true), (&[0x2b, 1, 2], false)] {
        let mut lab = Lab::new();
        lab.reachable = false;
        lab.inject(&[&request[..], more].concat());
        let identity_request = |pdu: &Vec<u8>| pdu.windows(4).any(|octets| octets == [0x7e, 0, 0x5b, 1]);
        assert_eq!(lab.sent.iter().any(identity_request), new_requests, "{more:02x?} {:?}", lab.notes);
    }
}

/// Responses to an Identity Request without SUCI.
#[test]
fn non_suci_identity_is_rejected_without_locking() {
    let no_identity = [0x7e, 0, 0x5c, 0, 1, 0];
    let s_tmsi = [&[0x7e, 0, 0x5c, 0, 7, 0xf4][..], &[0, 0x40, 1, 2, 3, 4]].concat();
    for response in [&no_identity[..], &s_tmsi] {
        let (mut lab, mut out) = (Lab::new(), ue::UeOutput::default());
        let p = lab.profile.clone();
        lab.ue.register(&p, ue::Registration::UnknownGuti, &mut out).expect("a request");
        let request = out.messages().next().expect("a message").to_vec();
        lab.inject_until(&request, &mut 0);
        let connection = lab.context().and_then(|c| c.connection).expect("a connection");
        lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, response));
        assert_eq!(failed(&lab, Kind::Registration), Some(9), "{:?}", lab.notes);
        assert!(fault(&lab, "identity-not-suci"));
    }
}

#[test]
fn undecipherable_suci_is_counted() {
    for (error, word) in [
        (AuthenticationError::BadSuci, "suci-not-deconcealed"),
        (AuthenticationError::UnknownHomeKey, "suci-key-unknown"),
    ] {
        let mut lab = Lab::new();
        lab.subscriber_error = Some(error);
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
        assert!(fault(&lab, word), "{:?}", lab.notes);
    }
}

/// A USIM with another K or OPc detects a wrong MAC, or responds with a wrong RES*.
#[test]
fn wrong_key_is_an_authentication_failure() {
    for fault in [Fault::MacFailure, Fault::WrongResponse] {
        let mut lab = Lab::new();
        lab.ue.inject(fault);
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
        assert!(lab.notes.contains(&Note::NotAuthenticated(Kind::Registration)), "{:?}", lab.notes);
        assert_eq!(failed(&lab, Kind::Registration), None, "it is counted once");
    }
}

#[test]
fn no_common_slice_is_no_registration() {
    let mut lab = Lab::new();
    lab.subscription.slices[0].snssai = Snssai { sst: 9, sd: None };
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
    assert_eq!(failed(&lab, Kind::Registration), Some(62));
    assert!(lab.context().is_none());
}

#[test]
fn requests_repeat_four_times_until_given_up() {
    // `lost_after`: number of downlink messages that the UE receives before the loss.
    for lost_after in 0..3 {
        let mut lab = Lab::new();
        lab.reachable = lost_after > 0;
        let mut left = lost_after;
        let mut out = ue::UeOutput::default();
        let p = lab.profile.clone();
        lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
        let nas = out.messages().next().expect("a message").to_vec();
        // Runs the exchange until the UE receives nothing.
        lab.inject_until(&nas, &mut left);
        let sent = lab.sent.len();
        lab.reachable = false;
        lab.wait(Duration::from_secs(29));
        // A RAN node that does not respond to the context set-up is released after ten seconds, and
        // reset after ten more.
        let repeats = if lost_after == 2 { 3 } else { 4 };
        assert_eq!(lab.sent.len() - sent, repeats, "case {lost_after}: one each six seconds");
        lab.wait(Duration::from_secs(20));
        match lost_after {
            // Registration Accept: the UE counts as registered, with both 5G-GUTIs.
            2 => assert!(lab.context().is_some_and(|c| c.is_registered() && c.procedure.is_none())),
            _ => assert!(lab.context().is_none(), "case {lost_after}: given up and forgotten"),
        }
    }
}

/// T3560 expires before the response arrives, and the UE responds twice. The network uses the first
/// response (TS 24.501 5.4.2.4), and the UE its KgNB (TS 33.501 6.8.1.2.2).
#[test]
fn repeated_security_mode_complete_keeps_key() {
    let mut lab = Lab::new();
    let (p, mut out) = (lab.profile.clone(), ue::UeOutput::default());
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    // The UE has responded to the Authentication Request.
    lab.inject_until(&request, &mut 1);
    (lab.reachable, lab.slow) = (true, Some(NgapPduKind::Initiating_UplinkNASTransport));
    lab.wait(Duration::from_secs(13));
    let late = std::mem::take(&mut lab.late);
    assert_eq!(late.len(), 2, "{:?}", lab.events);
    lab.slow = None;
    for (n, complete) in late {
        lab.take_from_gnb(n, &complete);
        lab.settle();
    }
    assert!(lab.context().is_some_and(|c| c.is_registered() && c.procedure.is_none()));
    lab.session(5);
    lab.xn((0xf0, 0x70), |_| true);
    assert_eq!(succeeded(&lab, Kind::PathSwitch), 1, "the UE has compared the key of that one, too");
}

#[test]
fn identity_request_is_repeated() {
    let mut lab = Lab::new();
    lab.reachable = false;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::UnknownGuti, out).expect("a request"));
    let sent = lab.sent.len();
    lab.wait(Duration::from_secs(29));
    assert_eq!(lab.sent.len() - sent, 4);
    lab.wait(Duration::from_secs(30));
    assert!(lab.context().is_none());
}

#[test]
fn lost_registration_complete_keeps_both_gutis() {
    let mut lab = Lab::new();
    lab.register();
    let first = lab.context().and_then(|c| c.identity.tmsi);
    // The UE registers again on the same connection and never receives the accept.
    lab.reachable = false;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    let context = lab.context().expect("it is kept");
    assert_eq!((context.identity.old_tmsi, context.identity.tmsi != first), (first, true));
    lab.wait(Duration::from_secs(60));
    let context = lab.context().expect("it is kept");
    assert!(context.is_registered() && context.procedure.is_none());
    assert_eq!(context.identity.old_tmsi, first, "the UE may know either");
}

/// The UE leaves before it completes its registration, and completes another one in another
/// context. The network aborts the first one after the last expiry of T3550, or at the loss of its
/// connection, both of which are later. The completed context stays the subscriber's (TS 24.501
/// 5.5.1.2.8).
#[test]
fn uncompleted_registration_claims_from_start() {
    for by_timer in [true, false] {
        let mut lab = Lab::new();
        let (supi, elsewhere) = (lab.ue.usim().supi(), Ltmsi::new(Bucket::new(4000), 1));
        let (mut out, p) = (ue::UeOutput::default(), lab.profile.clone());
        lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
        let nas = out.messages().next().expect("a message").to_vec();
        let began = lab.now;
        // The UE authenticates and never receives the accept.
        lab.inject_until(&nas, &mut 2);
        let binds = |lab: &Lab| -> Vec<_> { lab.effects.iter().filter_map(|e| e.claims_subscriber(lab.now)).collect() };
        assert_eq!(binds(&lab), []);
        let timers = lab.config.timers;
        let mut claims = Claims::new(Duration(timers.t3550.0 * (1 + u64::from(timers.retransmissions))));
        let mut alone = Claims::default();
        lab.now = lab.now + Duration::from_secs(2);
        let completed = claims.bind(supi, elsewhere, lab.now, lab.now);
        if by_timer {
            lab.wait(Duration::from_secs(40));
        } else {
            lab.event(Event::ConnectionLost { assoc: ASSOC });
        }
        assert_eq!(binds(&lab), [(supi, began)]);
        let ended = lab.context().expect("it is kept");
        assert!(ended.is_registered() && ended.procedure.is_none());
        let again = |claims: &mut Claims| claims.repeat_for_takeover((supi, ended.ltmsi), |_| false, began, lab.now);
        // Claims of other subscribers in the meantime.
        claims.bind("999700000000009".parse().expect("a SUPI"), Ltmsi::new(Bucket::new(4000), 2), lab.now, lab.now);
        assert_eq!(again(&mut claims), Err(ClaimResolution::Superseded));
        assert!(
            !claims.on_remote_claim(Claim { supi, ue: ended.ltmsi, at: began }, lab.now),
            "nor by another host's word"
        );
        assert_eq!(claims.by_supi(supi), Some(completed.ue));
        // Without the second registration, this context would be the subscriber's.
        let claim = again(&mut alone).expect("nobody else has");
        assert_eq!((claim.ue, claim.at), (ended.ltmsi, began));
    }
}

#[test]
fn network_deregistration_completes() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.event(Event::Deregister { reregister: true, cause: None });
    lab.settle();
    assert!(lab.events.contains(&UeEvent::DeregisteredByNetwork { cause: None, reregister: true }));
    let context = lab.context().expect("its keys are kept for a while");
    assert!(!context.is_registered() && context.sessions.is_empty() && context.connection.is_none());
    lab.wait(Duration::from_secs(700));
    assert!(lab.context().is_none(), "and then it is forgotten");
}

#[test]
fn deregistration_without_answer_completes() {
    let mut lab = Lab::new();
    lab.register();
    lab.reachable = false;
    lab.event(Event::Deregister { reregister: false, cause: None });
    assert!(matches!(lab.context().and_then(|c| c.procedure), Some(Procedure::Deregistration(_))));
    let sent = lab.sent.len();
    lab.wait(Duration::from_secs(29));
    assert_eq!(lab.sent.len() - sent, 4, "T3522, four times");
    lab.wait(Duration::from_secs(2));
    assert!(lab.context().is_some_and(|c| !c.is_registered()));
}

#[test]
fn silent_ue_is_implicitly_deregistered() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    lab.wait(Duration::from_secs(54 * 60 + 239));
    assert!(lab.context().is_some_and(|c| c.is_registered() && !c.reachability.unreachable));
    lab.wait(Duration::from_secs(2));
    assert!(
        lab.context().is_some_and(|c| c.is_registered() && c.reachability.unreachable),
        "the mobile reachable timer"
    );
    lab.wait(Duration::from_secs(240));
    assert!(lab.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty()));
    lab.wait(Duration::from_secs(601));
    assert!(lab.context().is_none());
}

#[test]
fn switch_off_gets_no_answer() {
    let mut lab = Lab::new();
    lab.register();
    let sent = lab.sent.len();
    lab.ue_does(|ue, p, out| ue.deregister(p, true, out).expect("a request"));
    assert_eq!(lab.sent.len() - sent, 1, "only the release of the connection");
    assert!(lab.context().is_some_and(|c| !c.is_registered() && c.connection.is_none()));
}

#[test]
fn lost_connection_leaves_ue_idle() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.event(Event::ConnectionLost { assoc: AssocId(99) });
    assert!(lab.context().is_some_and(|c| c.connection.is_some()), "another association's loss");
    lab.event(Event::ConnectionLost { assoc: ASSOC });
    let context = lab.context().expect("it is kept");
    assert!(context.connection.is_none() && context.is_registered() && context.sessions.len() == 1);
}

#[test]
fn new_connection_ends_previous() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    let first = lab.context().and_then(|c| c.connection).expect("it is connected");
    lab.ue.connection_released();
    lab.forget_connection();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let second = lab.context().and_then(|c| c.connection).expect("it is connected");
    assert!(second.amf_id != first.amf_id && second.ran_id != first.ran_id);
    assert_eq!(succeeded(&lab, Kind::ServiceRequest), 1);
}

/// Neither the LTMSI nor an earlier AMF-UE-NGAP-ID reveals the current one.
#[test]
fn amf_ue_ngap_id_is_random_from_first_use() {
    let generation = |lab: &Lab| {
        let connection = lab.context().and_then(|ue| ue.connection);
        connection.expect("it is connected").amf_id.generation()
    };
    let (mut firsts, mut steps) = (BTreeSet::new(), BTreeSet::new());
    for random in 1..=40 {
        let mut lab = Lab::new();
        lab.random = random;
        lab.register();
        lab.session(1);
        let first = generation(&lab);
        lab.random = random + 100;
        lab.idle();
        lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
        let second = generation(&lab);
        lab.n2(2);
        let third = generation(&lab);
        assert!(first != second && second != third && first != third, "{first} {second} {third}");
        firsts.insert(first);
        steps.extend([second.wrapping_sub(first) & 0xfff, third.wrapping_sub(second) & 0xfff]);
    }
    assert!(firsts.len() > 35 && steps.len() > 20, "{firsts:?} {steps:?}");
}

#[test]
fn wrong_ue_identifiers_get_an_error_indication() {
    let mut lab = Lab::new();
    lab.register();
    let connection = lab.context().and_then(|c| c.connection).expect("it is connected");
    let nas = [0x7e, 0x00, 0x64, 0x6f];
    let before = lab.context();
    let amf_id = AmfUeNgapId::new(connection.amf_id.ltmsi(), connection.amf_id.generation() + 1);
    lab.take_from_gnb(0, &lab::uplink_nas(amf_id, connection.ran_id, &nas));
    assert!(fault(&lab, "unknown-local-ue-ngap-id"));
    lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, RanUeNgapId(connection.ran_id.0 + 1), &nas));
    assert!(fault(&lab, "inconsistent-remote-ue-ngap-id"));
    assert_eq!(lab.context(), before, "nothing changed");
    lab.settle();
    let indications = lab.gnb_events.iter().filter(|e| matches!(e, vireo_emulator::gnb::Event::ErrorIndication(_)));
    assert_eq!(indications.count(), 2);
}

#[test]
fn replays_and_plain_messages_are_discarded() {
    let mut lab = Lab::new();
    lab.register();
    let mut out = ue::UeOutput::default();
    let p = lab.profile.clone();
    lab.ue.establish(&p, 1, PduSessionType::Ipv4, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject(&request);
    assert_eq!(lab.context().expect("it is kept").sessions.len(), 1);
    let before = lab.context();
    lab.inject(&request);
    assert!(fault(&lab, "nas-bad-mac"), "the COUNT was used");
    // Plain UL NAS TRANSPORT and plain DEREGISTRATION REQUEST of a UE that has keys.
    lab.inject(&[0x7e, 0x00, 0x67, 0x01, 0x00, 0x06, 0x2e, 0x05, 0x01, 0xc1, 0xff, 0xff, 0x12, 0x05, 0x81]);
    lab.inject(&[0x7e, 0x00, 0x45, 0x09, 0x00, 0x01, 0x00]);
    assert!(fault(&lab, "nas-unprotected"));
    let after = lab.context().map(|mut c| {
        c.sequence = before.as_ref().map_or(0, |b| b.sequence);
        c
    });
    assert_eq!(after, before, "and nothing changed");
}

#[test]
fn superseded_context_releases_resources() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    lab.effects.clear();
    lab.event(Event::Superseded);
    lab.settle();
    assert!(lab.context().is_none());
    let freed = |f: fn(&Effect) -> bool| lab.effects.iter().filter(|e| f(e)).count();
    assert_eq!(freed(|e| matches!(e, Effect::FreeTmsi(_))), 1);
    assert_eq!(freed(|e| matches!(e, Effect::FreeAddress(..))), 1);
    assert!(lab.effects.contains(&Effect::DeleteContext));
}

#[test]
fn exhausted_address_pool_rejects_session_only() {
    let mut lab = Lab::new();
    lab.register();
    lab.ids.address_pool_empty = true;
    lab.ue_does(|ue, p, out| ue.establish(p, 1, PduSessionType::Ipv4, out).expect("a request"));
    assert!(lab.events.iter().any(|e| matches!(e, UeEvent::SessionRejected { psi: 1, .. })), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|c| c.is_registered() && c.sessions.is_empty()));
    assert_eq!(failed(&lab, Kind::Session), Some(26), "insufficient resources");
    lab.ids.address_pool_empty = false;
    lab.session(2);
}

#[test]
fn unknown_dnn_is_rejected_with_cause() {
    let mut lab = Lab::new();
    lab.register();
    lab.profile.dnn = "nowhere".parse().expect("a DNN");
    lab.ue_does(|ue, p, out| ue.establish(p, 1, PduSessionType::Ipv4, out).expect("a request"));
    assert!(lab.events.iter().any(|e| matches!(e, UeEvent::SessionRejected { psi: 1, .. })), "{:?}", lab.events);
    assert_eq!(failed(&lab, Kind::Session), Some(91));
}

#[test]
fn congestion_rejects_new_ue() {
    let mut lab = Lab::new();
    lab.congested = true;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
    let content = |e: &UeEvent| matches!(e, UeEvent::RegistrationRejected { cause: 22, retry_after_s: Some(_) });
    assert!(lab.events.iter().any(content), "{:?}", lab.events);
    assert!(lab.context().is_none());
}

#[test]
fn congestion_backs_off_known_ue() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    lab.congested = true;
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let content = |e: &UeEvent| matches!(e, UeEvent::ServiceRejected { cause: 22, retry_after_s: Some(30..=62) });
    assert!(lab.events.iter().any(content), "{:?}", lab.events);
    assert_eq!(failed(&lab, Kind::ServiceRequest), Some(22));
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.connection.is_none() && context.sessions.len() == 1);
    assert!(context.reachability.expires.is_some(), "the mobile reachable timer runs");
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    let content = |e: &UeEvent| matches!(e, UeEvent::RegistrationRejected { cause: 22, retry_after_s: Some(30..=62) });
    assert!(lab.events.iter().any(content), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|c| c.is_registered() && c.connection.is_none()));
    assert!(!fault(&lab, "nas-bad-mac"), "its messages were its own");
}

#[test]
fn congestion_admits_deregistration() {
    let mut lab = Lab::new();
    lab.register();
    lab.idle();
    lab.congested = true;
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::Deregistered), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|c| !c.is_registered()));
}

/// Another context of the subscriber was claimed a moment ago, and this one migrates to another
/// host during a registration. It is the newer one if the registration succeeds.
#[test]
fn older_claim_does_not_supersede_registration() {
    let mut lab = Lab::new();
    let mut claims = Claims::default();
    let (supi, other) = (lab.ue.usim().supi(), Ltmsi::new(Bucket::new(4000), 1));
    let enters = |claims: &Claims, ue: &UeContext| claims.resolve(ue, |claimed| claimed == ue.ltmsi, || None);
    let (mut out, p) = (ue::UeOutput::default(), lab.profile.clone());
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let nas = out.messages().next().expect("a message").to_vec();
    // The UE is authenticated and does not receive the next message.
    lab.inject_until(&nas, &mut 1);
    let begun = lab.context().expect("a context");
    assert!(matches!(begun.procedure, Some(Procedure::Registration(_))), "{:?}", begun.procedure);
    assert_eq!(begun.identity.supi, Some(supi));
    assert!(claims.on_remote_claim(Claim { supi, ue: other, at: lab.now }, lab.now));
    assert_eq!(enters(&claims, &begun), ClaimResolution::Registering);
    // The network retransmits, and the UE receives it.
    lab.reachable = true;
    lab.wait(Duration::from_secs(7));
    let ended = lab.context().expect("it is kept");
    assert!(ended.procedure.is_none() && lab.effects.contains(&Effect::BindSupi(supi)), "{:?}", lab.events);
    assert_eq!(enters(&claims, &ended), ClaimResolution::Superseded, "had it claimed, it would be known");
    claims.bind(supi, ended.ltmsi, lab.now, lab.now);
    assert_eq!(enters(&claims, &ended), ClaimResolution::Valid);
}

/// A UE that deregisters while its connection is being released is deregistered. Its RAN node,
/// which has no UE context there, is sent nothing else.
#[test]
fn releasing_connection_carries_no_message() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let mut out = ue::UeOutput::default();
    let p = lab.profile.clone();
    // The release command is in transit to the gNB when the UE deregisters.
    lab.reachable = false;
    let cause = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
    lab.gnb_does(|gnb, ran, out| gnb.request_release(ran, cause, out).expect("a request"));
    let sent = lab.sent.len();
    lab.ue.deregister(&p, false, &mut out).expect("a request");
    let nas = out.messages().next().expect("a message").to_vec();
    lab.inject(&nas);
    assert_eq!(lab.sent.len(), sent, "neither an accept nor a second release");
    assert!(lab.context().is_none_or(|c| !c.is_registered()));
}

/// Messages that UEs may send without protection may be replayed: they are not answered.
#[test]
fn unprotected_replay_is_not_answered() {
    let mut lab = Lab::new();
    lab.register();
    let plain = [&[0x7e, 0, 0x57, 0x2d, 0x10][..], &[7; 16]].concat();
    let sent = lab.sent.len();
    lab.inject(&plain);
    assert_eq!(lab.sent.len(), sent);
    assert!(fault(&lab, "nas-unprotected") && lab.ue.mm() == MmState::Registered);
}

/// CONFIGURATION UPDATE COMMAND without acknowledgement (TS 24.501 5.4.4), after the registration.
#[test]
fn registered_ue_learns_network_name() {
    for (name, expected) in [("Vireo", 1), ("", 0)] {
        let mut lab = Lab::new();
        lab.config.information.full_name = name.into();
        lab.register();
        let updates = lab.events.iter().filter(|event| matches!(event, ue::Event::ConfigurationUpdated)).count();
        assert_eq!(updates, expected, "{:?}", lab.events);
        lab.session(1);
    }
}
