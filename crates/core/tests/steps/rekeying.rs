//! Renewal of the key of a gNB that crosses a handover (TS 33.501 6.9.2.3.2, 6.9.4.4, 6.9.5.1).

use crate::authentication::{CAPABILITY, establish, keys, sent, with_used_keys};
use crate::lab::Lab;
use vireo_core::amf::context::RanContext;
use vireo_core::config::KeyLifetime;
use vireo_core::step::{Kind, Note};
use vireo_emulator::ue;
use vireo_types::Duration;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, *};

/// Returns a connected UE with new NAS keys, whose gNB has not answered that it has taken the key
/// into use that follows.
fn rekeying() -> Lab {
    let mut lab = with_used_keys();
    lab.slow = Some(NgapPduKind::Successful_UEContextModification);
    establish(&mut lab);
    (lab.slow, lab.config.security.key_lifetime) = (None, KeyLifetime::default());
    assert!(ran(&lab).is_rekeying(), "{:?}", lab.notes);
    lab
}

/// Returns a connected UE that is commanded to take new NAS keys into use. The command is lost, or
/// its answer is withheld.
fn commanded(is_lost: bool) -> Lab {
    let mut lab = with_used_keys();
    lab.slow = Some(NgapPduKind::Initiating_UplinkNASTransport);
    establish(&mut lab);
    // The request, and then the answer to the challenge.
    deliver(&mut lab);
    lab.reachable = !is_lost;
    deliver(&mut lab);
    lab.reachable = true;
    (lab.slow, lab.config.security.key_lifetime) = (None, KeyLifetime::default());
    lab
}

/// Delivers the messages that were withheld from the core.
fn deliver(lab: &mut Lab) {
    for (n, pdu) in std::mem::take(&mut lab.late) {
        lab.take_from_gnb(n, &pdu);
    }
    lab.settle();
}

fn ran(lab: &Lab) -> RanContext {
    lab.context().and_then(|ue| ue.connection).expect("a connection").ran
}

/// Returns NCC of the last PATH SWITCH REQUEST ACKNOWLEDGE, and true if it has the New Security
/// Context Indicator.
fn last_switch(lab: &Lab) -> (u8, bool) {
    let mut pdus = lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let answer = pdus.find(|pdu| pdu.kind() == NgapPduKind::Successful_PathSwitchRequest).expect("an answer");
    let context = answer.ie::<ie::SecurityContext>().expect("an IE").expect("a security context");
    (context.next_hop_chaining_count.0, answer.ie::<ie::NewSecurityContextInd>().is_some())
}

/// Has gNB 0 answer UE CONTEXT MODIFICATION REQUEST with a failure.
fn fail(lab: &mut Lab, cause: CauseRadioNetwork) {
    let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
    let failure = build_ngap!(
        UnsuccessfulOutcome,
        UEContextModification,
        UEContextModificationFailure,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        Cause(Cause::radioNetwork(cause)),
    );
    lab.take_from_gnb(0, &failure.and_then(|pdu| pdu.encode()).expect("it encodes"));
    lab.settle();
}

/// 6.9.2.3.2. The UE compares the key with its own. The response of the source arrives after the
/// request of the target, because the two come by different associations.
#[test]
fn path_switch_during_renewal_has_new_key() {
    let mut lab = rekeying();
    lab.upf_answers = false;
    lab.xn(CAPABILITY, |_| true);
    deliver(&mut lab);
    assert!(ran(&lab).is_rekeying());
    lab.upf_catches_up();
    assert_eq!((last_switch(&lab), ran(&lab)), ((0, true), RanContext::SetUp), "{:?}", lab.notes);
    // The chain begins at this key.
    lab.xn(CAPABILITY, |_| true);
    assert_eq!(last_switch(&lab), (2, false));
    assert_eq!(sent(&lab, NgapPduKind::Initiating_UEContextModification), 1);
    assert_eq!(lab.ue.active_sessions().count(), 2);
    assert!(!lab.notes.iter().any(|note| matches!(note, Note::Failed(Kind::PathSwitch, _))));
}

/// SECURITY MODE COMPLETE arrives while the UPF switches the path.
#[test]
fn new_keys_during_path_switch_reach_target() {
    let mut lab = commanded(false);
    let before = keys(&lab);
    lab.upf_answers = false;
    lab.xn(CAPABILITY, |_| true);
    deliver(&mut lab);
    assert_ne!(keys(&lab).kamf, before.kamf, "{:?}", lab.notes);
    assert!(ran(&lab).is_rekeying());
    lab.upf_catches_up();
    assert_eq!((last_switch(&lab), ran(&lab)), ((0, true), RanContext::SetUp));
    assert_eq!(sent(&lab, NgapPduKind::Initiating_UEContextModification), 0);
}

/// The NH is of the keys in use until SECURITY MODE COMPLETE. The target then gets the key that
/// follows from the new ones.
#[test]
fn path_switch_before_new_keys_has_former() {
    let mut lab = commanded(true);
    let before = keys(&lab);
    lab.xn(CAPABILITY, |_| true);
    assert_eq!((last_switch(&lab), keys(&lab).kamf), ((2, false), before.kamf), "{:?}", lab.notes);
    // T3560.
    lab.wait(Duration::from_secs(7));
    assert_ne!(keys(&lab).kamf, before.kamf, "{:?}", lab.notes);
    assert_eq!(sent(&lab, NgapPduKind::Initiating_UEContextModification), 1);
    assert_eq!(ran(&lab), RanContext::SetUp);
    lab.xn(CAPABILITY, |_| true);
    assert_eq!(last_switch(&lab), (2, false));
}

/// TS 38.413 8.3.4.3: the source refuses the key because it hands the UE over.
#[test]
fn failure_for_xn_handover_awaits_target() {
    for arrives in [true, false] {
        let mut lab = rekeying();
        fail(&mut lab, CauseRadioNetwork::xn_handover_triggered);
        assert!(ran(&lab).is_rekeying(), "{:?}", lab.notes);
        if arrives {
            lab.xn(CAPABILITY, |_| true);
            assert_eq!((last_switch(&lab), ran(&lab)), ((0, true), RanContext::SetUp));
            continue;
        }
        lab.wait(Duration::from_secs(11));
        assert!(lab.context().is_some_and(|ue| ue.is_registered() && ue.connection.is_none()));
    }
}

#[test]
fn n2_handover_during_renewal_is_refused() {
    let mut lab = rekeying();
    lab.n2(2);
    assert_eq!(sent(&lab, NgapPduKind::Unsuccessful_HandoverPreparation), 1);
    assert!(ran(&lab).is_rekeying());
    deliver(&mut lab);
    assert_eq!(ran(&lab), RanContext::SetUp);
}

/// 6.9.5.1: one key at a time. The UE continues under its newest keys.
#[test]
fn second_renewal_during_first_releases_ue() {
    let mut lab = rekeying();
    let before = keys(&lab);
    lab.change(|ue| ue.pending.authenticate = true);
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    assert_ne!(keys(&lab).kamf, before.kamf, "{:?}", lab.notes);
    assert_eq!(sent(&lab, NgapPduKind::Initiating_UEContextModification), 1);
    assert!(lab.context().is_some_and(|ue| ue.is_registered() && ue.connection.is_none()));
}
