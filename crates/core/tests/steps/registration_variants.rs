//! Variants of registration: types that are not served, and repeated authentication failures.

use crate::lab::{self, Lab};
use vireo_core::amf::context::{Procedure, RanContext};
use vireo_core::amf::engine::Event;
use vireo_core::step::{Kind, Note};
use vireo_emulator::ue::{self, UeOutput};
use vireo_types::{DeregistrationCause, Duration};

/// Returns REGISTRATION REQUEST of this type octet with an identity.
fn request(kind: u8, identity: &[u8]) -> Vec<u8> {
    [&[0x7e, 0, 0x41, kind, 0, identity.len() as u8][..], identity, &[0x2e, 2, 0xf0, 0x70]].concat()
}

/// SUCI of 999700000000001 with the null scheme.
const SUCI: [u8; 13] = [0x01, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10];
/// IMEISV.
const PEI: [u8; 9] = [0x35, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xf5];

/// Returns true if REGISTRATION REJECT with the cause was sent.
fn is_rejected(lab: &Lab, cause: u8) -> bool {
    lab.sent.iter().any(|pdu| pdu.windows(4).any(|octets| octets == [0x7e, 0, 0x44, cause]))
}

/// TS 24.501 5.5.1.2.5: #111 leaves the SIM valid, #5 is for a UE without one.
#[test]
fn emergency_registration_is_rejected_by_cause() {
    for (identity, cause) in [(&SUCI[..], 111), (&PEI[..], 5)] {
        let mut lab = Lab::new();
        lab.reachable = false;
        lab.inject(&request(0x74, identity));
        assert!(is_rejected(&lab, cause), "{cause}: {:?}", lab.notes);
    }
}

/// SNPN onboarding and disaster roaming: #111 leaves the SIM valid. An unused type is an initial
/// registration (TS 24.501 9.11.3.7).
#[test]
fn unserved_registration_type_leaves_sim_valid() {
    for kind in [0x75, 0x76, 0x77] {
        let mut lab = Lab::new();
        lab.reachable = false;
        lab.inject(&request(kind, &SUCI));
        assert!(is_rejected(&lab, 111), "{kind:#x}: {:?}", lab.notes);
    }
    let mut lab = Lab::new();
    lab.reachable = false;
    lab.inject(&request(0x70, &SUCI));
    let is_challenge = |pdu: &Vec<u8>| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x56]);
    assert!(lab.sent.iter().any(is_challenge), "{:?}", lab.notes);
}

/// TS 24.501 5.4.1.3.7 e, f: the third failure of a run ends it.
#[test]
fn repeated_failures_end_authentication() {
    let (mut lab, mut out) = (Lab::new(), UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject_until(&request, &mut 0);
    let connection = lab.context().and_then(|c| c.connection).expect("a connection");
    let fail = |lab: &mut Lab, failure: &[u8]| {
        lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, failure));
    };
    for _ in 0..2 {
        fail(&mut lab, &[0x7e, 0, 0x59, 71]);
        assert!(lab.context().is_some(), "another challenge");
    }
    let synchronisation = [&[0x7e, 0, 0x59, 21, 0x30, 14][..], &[7; 14]].concat();
    fail(&mut lab, &synchronisation);
    let rejects = lab.sent.iter().filter(|pdu| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x58]));
    assert_eq!(rejects.count(), 1, "AUTHENTICATION REJECT");
    let reason = lab.notes.iter().find_map(|note| match note {
        Note::Refused(request) => Some(request.reason.to_string()),
        _ => None,
    });
    assert_eq!(reason.as_deref(), Some("repeated synchronisation failures"));
}

#[test]
fn refused_set_up_has_text_of_offer() {
    let lab = Lab::new();
    let offered = vireo_core::amf::ran::offered(lab::ASSOC, &lab.received[0]);
    assert_eq!(offered.as_deref(), Some("gNB 99970-1, PLMN 99970 TAC 1 slices 1"));
    assert_eq!(vireo_core::amf::ran::offered(lab::ASSOC, &[0x40]), None);
}

/// Returns a UE that the network deregisters, and which has not received the request.
fn deregistering() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.reachable = false;
    lab.event(Event::Deregister { reregister: false, cause: None });
    lab.settle();
    lab
}

fn deregisters(lab: &Lab) -> bool {
    matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::Deregistration(_)))
}

/// TS 24.501 5.5.2.3.5.
#[test]
fn update_and_service_leave_deregistration() {
    for kind in [ue::Registration::Mobility, ue::Registration::Periodic] {
        let mut lab = deregistering();
        lab.ue_does(|ue, p, out| ue.register(p, kind, out).expect("a request"));
        assert!(deregisters(&lab), "{kind:?}: {:?}", lab.notes);
    }
    let mut lab = deregistering();
    let security = lab.context().and_then(|ue| ue.security).expect("keys");
    // SERVICE REQUEST for data, with the 5G-S-TMSI.
    let plain = [&[0x7e, 0, 0x4c, 0x10, 0, 7, 0xf4][..], &[0, 0x40, 1, 2, 3, 4]].concat();
    lab.inject(&lab::nas::protected(&security, lab::nas::CIPHERED, &plain));
    assert!(deregisters(&lab), "{:?}", lab.notes);
    assert!(lab.notes.contains(&Note::fault("nas-during-deregistration")));
    // T3522 expires four times more.
    lab.wait(Duration::from_secs(31));
    assert!(lab.context().is_some_and(|ue| !ue.is_registered() && ue.sessions.is_empty()));
}

fn deregister_with(lab: &mut Lab, cause: u8) {
    let cause = DeregistrationCause::try_from(cause).ok();
    assert!(cause.is_some());
    lab.event(Event::Deregister { reregister: false, cause });
    lab.settle();
}

/// #8 is of 4G: the UE of 5G gets #7.
#[test]
fn operator_deregisters_with_cause() {
    for (cause, expected, idle) in [(11, 11, false), (27, 27, true), (8, 7, true)] {
        let mut lab = Lab::new();
        lab.register();
        lab.session(1);
        if idle {
            lab.idle();
        }
        deregister_with(&mut lab, cause);
        let by_network = ue::Event::DeregisteredByNetwork { cause: Some(expected), reregister: false };
        assert!(lab.events.contains(&by_network), "{cause}: {:?}", lab.events);
        assert!(lab.context().is_some_and(|ue| !ue.is_registered() && ue.connection.is_none()));
    }
}

/// TS 24.501 5.5.2.3.5 a. The gNB does not answer, either.
#[test]
fn silent_ue_is_deregistered_and_released() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.reachable = false;
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    let before = lab.sent.len();
    deregister_with(&mut lab, 7);
    let is_request = |pdu: &&Vec<u8>| {
        let nas = lab::nas::downlink(&keys, pdu);
        nas.is_some_and(|nas| nas[..3] == [0x7e, 0, 0x47] && nas.ends_with(&[0x58, 7]))
    };
    lab.wait(Duration::from_millis(29_900));
    assert_eq!(lab.sent[before..].iter().filter(is_request).count(), 5);
    assert!(lab.context().is_some_and(|ue| ue.is_registered()));
    lab.wait(Duration::from_millis(200));
    let released = lab.context().expect("its keys are kept");
    assert!(!released.is_registered() && released.sessions.is_empty());
    assert!(released.connection.is_some_and(|c| matches!(c.ran, RanContext::Releasing { .. })));
    assert_eq!(lab.sent[before..].iter().filter(is_request).count(), 5);
    // The reset of the connection, which the gNB does not answer, ends it.
    lab.wait(Duration::from_secs(11));
    assert!(lab.context().is_none_or(|ue| ue.connection.is_none()));
    assert!(lab.notes.iter().any(|note| matches!(note, Note::Succeeded(Kind::Deregistration, _))));
}

#[test]
fn deregistration_of_both_sides_ends_once() {
    let mut lab = deregistering();
    lab.reachable = true;
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert!(lab.context().is_some_and(|ue| !ue.is_registered() && ue.procedure.is_none()));
}
