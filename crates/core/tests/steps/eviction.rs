//! Eviction of UEs: messages to the UE and its gNB, and the remaining state.

use crate::lab::{ASSOC, Lab};
use vireo_core::amf::context::Procedure;
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::{self, UeMessage};
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::{Env, Identifiers};
use vireo_emulator::ue::{self, Event as UeEvent};
use vireo_types::*;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};

fn is_turned_away(event: &UeEvent) -> bool {
    matches!(event, UeEvent::RegistrationRejected { cause: 22, retry_after_s: Some(30..=62) })
}

/// Returns a UE that was sent an Authentication Request and has not responded.
fn half_open() -> Lab {
    let mut lab = Lab::new();
    let (mut out, p) = (ue::UeOutput::default(), lab.profile.clone());
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let nas = out.messages().next().expect("a message").to_vec();
    lab.inject_until(&nas, &mut 0);
    let context = lab.context().expect("a context");
    assert!(matches!(context.procedure, Some(Procedure::Registration(_))) && context.identity.supi.is_none());
    lab.reachable = true;
    lab
}

#[test]
fn half_open_ue_is_evicted_at_once() {
    let mut lab = half_open();
    lab.event(Event::Evicted);
    assert!(lab.context().is_none(), "it does not wait for the RAN");
    assert!(lab.effects.contains(&Effect::DeleteContext));
    assert!(lab.notes.contains(&Note::Failed(Kind::Registration, 22)), "{:?}", lab.notes);
    assert!(!lab.notes.iter().any(|note| matches!(note, Note::Started(Kind::Release))), "{:?}", lab.notes);
    lab.settle();
    assert!(lab.events.iter().any(is_turned_away), "{:?}", lab.events);
    assert!(lab.ran.is_none(), "the gNB has released it");
    // The response to the release is about no UE, and is not answered.
    let complete = lab.received.last().expect("UE CONTEXT RELEASE COMPLETE");
    assert!(matches!(n2::ue_message(complete), Ok((_, UeMessage::ReleaseComplete { .. }))));
    assert!(engine::unknown_ue(vireo_types::Dialect::Nr, complete).is_none());
}

#[test]
fn rejected_ue_is_evicted_before_the_ran_answers() {
    let mut lab = half_open();
    lab.subscriber_error = Some(vireo_core::subscription::AuthenticationError::UnknownSubscriber);
    lab.forget_ue();
    lab.forget_connection();
    lab.reachable = false;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Fresh, out).expect("a request"));
    let context = lab.context().expect("it waits for the RAN");
    assert!(context.procedure.is_none() && context.connection.is_some());
    let sent = lab.sent.len();
    lab.event(Event::Evicted);
    assert!(lab.context().is_none());
    assert_eq!(lab.sent.len(), sent, "the RAN was told before");
}

#[test]
fn authenticated_ue_is_not_evicted() {
    let mut lab = half_open();
    lab.reachable = false;
    // The Authentication Request is sent again and answered; what follows is lost.
    let (mut out, p) = (ue::UeOutput::default(), lab.profile.clone());
    lab.forget_ue();
    lab.forget_connection();
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let nas = out.messages().next().expect("a message").to_vec();
    lab.reachable = true;
    lab.inject_until(&nas, &mut 1);
    let before = lab.context().expect("a context");
    assert!(before.identity.supi.is_some() && !before.is_registered());
    let sent = lab.sent.len();
    lab.event(Event::Evicted);
    assert_eq!((lab.context(), lab.sent.len()), (Some(before), sent));
    lab.reachable = true;
    lab.wait(Duration::from_secs(7));
    assert!(lab.context().is_some_and(|context| context.is_registered()));
    lab.event(Event::Evicted);
    assert!(lab.context().is_some_and(|context| context.is_registered()));
}

/// Allocator that must not be called.
struct Nothing;

impl Identifiers for Nothing {
    fn tmsi(&mut self, _: Ltmsi) -> Option<Tmsi> {
        panic!("nothing is taken for a UE that is turned away")
    }

    fn rekey(&mut self, _: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        panic!("nothing is taken for a UE that is turned away")
    }

    fn address(&mut self, _: &Dnn, _: PduSessionType) -> Option<SessionAddress> {
        panic!("nothing is taken for a UE that is turned away")
    }
}

#[test]
fn ue_without_context_is_answered() {
    let lab = half_open();
    let (now, config) = (lab.now, lab.config.clone());
    let mut initials = lab.received.iter().filter_map(|pdu| match n2::ue_message(pdu) {
        Ok((_, UeMessage::Initial(message))) => Some(message),
        _ => None,
    });
    let first = initials.next_back().expect("INITIAL UE MESSAGE");
    let mut known = Lab::new();
    known.register();
    known.idle();
    let mut out = ue::UeOutput::default();
    known.ue.service_request(ue::Service::Data, &mut out).expect("a request");
    let service = out.messages().next().expect("a message").to_vec();
    use NgapPduKind::{Initiating_DownlinkNASTransport as Nas, Initiating_UEContextRelease as Released};
    let cases = [
        (first.nas.clone(), vec![Nas, Released], true),
        (service, vec![Nas, Released], false),
        (vec![0x7e, 0, 0x41, 0xff], vec![Nas, Released], false),
        (vec![0x7e], vec![Released], false),
    ];
    for (octets, expected, rejects) in cases {
        let message = n2::InitialUeMessage { nas: octets.clone(), ..first.clone() };
        let (mut random, mut ids) = (|octets: &mut [u8]| octets.fill(0x5a), Nothing);
        let mut env = Env { now, arrived: now, config: &config, random: &mut random, ids: &mut ids, ran: &() };
        let ltmsi = Ltmsi::new(Bucket::new(9), 77);
        let outcome = engine::turn_away(ltmsi, ASSOC, message, &mut env);
        let pdus = outcome.effects.iter().map(|effect| match effect {
            Effect::Ngap { assoc: ASSOC, pdu } => NGAP_PDU::decode(pdu).expect("a PDU"),
            other => panic!("{other:?} needs a context"),
        });
        let kinds: Vec<NgapPduKind> = pdus.map(|pdu| pdu.kind()).collect();
        assert_eq!(kinds, expected, "{octets:02x?}");
        assert_eq!(outcome.notes.contains(&Note::Failed(Kind::Registration, 22)), rejects, "{:?}", outcome.notes);
        assert!(!outcome.notes.contains(&Note::Started(Kind::Release)), "nobody awaits its end");
    }
}
