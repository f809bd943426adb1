//! SECURITY MODE COMPLETE under new keys (TS 24.501 4.4.4.3, 5.4.2.4).
//!
//! Only a message that is protected by the new keys takes them into use (TS 33.501 6.7.2).

use crate::lab::Lab;
use crate::lab::nas::{CIPHERED, INTEGRITY, NEW_CONTEXT, protected, unverified};
use vireo_core::amf::context::Procedure;
use vireo_emulator::ue;

const SECURITY_MODE_COMPLETE: [u8; 3] = [0x7e, 0, 0x5e];

/// Returns a network that has sent SECURITY MODE COMMAND, which the UE has not received.
fn commanded() -> Lab {
    let (mut lab, mut out) = (Lab::new(), ue::UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject_until(&request, &mut 1);
    assert!(lab.sent.last().is_some_and(|pdu| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x5d])));
    lab
}

/// Sends a message, and asserts that it changes nothing.
fn assert_refused(lab: &mut Lab, nas: &[u8], what: &str) {
    let (before, sent) = (lab.context().expect("a context"), lab.sent.len());
    lab.inject(nas);
    let mut after = lab.context().expect("a context");
    after.sequence = before.sequence;
    assert_eq!((after, lab.sent.len()), (before, sent), "{what}");
}

#[test]
fn unprotected_complete_of_new_ue_is_refused() {
    let mut lab = commanded();
    for (what, nas) in [("plain", SECURITY_MODE_COMPLETE.to_vec()), ("any MAC", unverified(&SECURITY_MODE_COMPLETE))] {
        assert_refused(&mut lab, &nas, what);
    }
    assert!(lab.context().is_some_and(|ue| ue.security.is_none() && !ue.is_registered()));
    // The genuine UE continues.
    lab.reachable = true;
    lab.wait(vireo_types::Duration::from_secs(7));
    assert_eq!(lab.ue.mm(), ue::MmState::Registered);
}

/// Returns a registered UE that is authenticated again on its connection: SECURITY MODE COMMAND was
/// sent.
fn commanded_anew() -> Lab {
    let procedure = commanded().context().and_then(|ue| ue.procedure);
    let mut lab = Lab::new();
    // Another vector, and therefore other keys.
    lab.ue.inject(ue::Fault::KeySetInUse);
    lab.register();
    lab.change(|ue| ue.procedure = procedure);
    lab
}

#[test]
fn complete_under_old_keys_is_refused() {
    let mut lab = commanded_anew();
    let keys = |lab: &Lab| lab.context().and_then(|ue| ue.security).expect("keys");
    let old = keys(&lab);
    for header in [INTEGRITY, CIPHERED, NEW_CONTEXT] {
        let complete = protected(&keys(&lab), header, &SECURITY_MODE_COMPLETE);
        assert_refused(&mut lab, &complete, &format!("header type {header}"));
    }
    for (what, nas) in [("plain", SECURITY_MODE_COMPLETE.to_vec()), ("any MAC", unverified(&SECURITY_MODE_COMPLETE))] {
        assert_refused(&mut lab, &nas, what);
    }
    assert_eq!(keys(&lab).kamf, old.kamf);
}

/// Only SECURITY MODE COMPLETE has header type 4 (TS 24.501 table 9.3.1 note 2).
#[test]
fn other_message_under_new_keys_is_refused() {
    for mut lab in [commanded(), commanded_anew()] {
        let new = lab.context().and_then(|ue| ue.procedure);
        let Some(Procedure::Registration(mut registering)) = new else { panic!("a registration") };
        let pending = registering.securing().and_then(|s| s.pending()).expect("new keys").clone();
        let response = [&[0x7e, 0, 0x5c, 0, 1][..], &[0]].concat();
        assert_refused(&mut lab, &protected(&pending, NEW_CONTEXT, &response), "an Identity Response");
        assert_refused(&mut lab, &protected(&pending, CIPHERED, &SECURITY_MODE_COMPLETE), "header type 2");
        lab.reachable = false;
        lab.inject(&protected(&pending, NEW_CONTEXT, &SECURITY_MODE_COMPLETE));
        assert_eq!(lab.context().and_then(|ue| ue.security).map(|s| s.kamf), Some(pending.kamf));
    }
}

/// After the secure exchange of NAS messages is established, a UE discards unprotected messages.
/// The network therefore authenticates it again under the keys in use (TS 24.501 4.4.4.2).
#[test]
fn requests_on_secure_connection_are_protected() {
    let mut lab = Lab::new();
    lab.register();
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    lab.change(|ue| ue.subscription = None);
    let (p, mut out) = (lab.profile.clone(), ue::UeOutput::default());
    lab.ue.register(&p, ue::Registration::Mobility, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject(&request);
    assert_eq!(lab.ue.mm(), ue::MmState::Registered, "{:?} {:?}", lab.events, lab.notes);
    let fresh = lab.context().and_then(|ue| ue.security).expect("keys");
    assert_ne!(fresh.kamf, keys.kamf, "it is authenticated anew");
    lab.session(1);
}
