//! Emergency registration and emergency PDU sessions of authenticated UEs (TS 23.501 5.16.4).

use crate::lab::nas::{CIPHERED, downlink, protected};
use crate::lab::{Lab, SLICE};
use vireo_core::amf::context::Registration;
use vireo_core::amf::engine::Event;
use vireo_core::config::{DnnConfig, SliceConfig};
use vireo_core::step::{Kind, Note};
use vireo_emulator::ue::{self, Cause, Event as UeEvent};
use vireo_types::{Duration, Instant, PduSessionType, Snssai};
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage, NasRegistrationAccept};

const DNN: &str = "sos";

/// Returns a network that serves emergency calls.
fn serving() -> Lab {
    let mut lab = Lab::new();
    let served = lab.config.dnns[0].clone();
    lab.config.dnns.push(DnnConfig { name: DNN.parse().expect("a DNN"), ..served });
    lab.config.eps.emergency.nr = DNN.parse().ok();
    lab
}

fn register(lab: &mut Lab, registration: ue::Registration) {
    lab.ue_does(|ue, p, out| ue.register(p, registration, out).expect("a request"));
    assert_eq!(lab.ue.mm(), ue::MmState::Registered, "{:?} {:?}", lab.events, lab.notes);
}

fn registration(lab: &Lab) -> Registration {
    lab.context().expect("a context").registration
}

/// Returns the last REGISTRATION ACCEPT.
fn accept(lab: &Lab) -> NasRegistrationAccept {
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    let messages = lab.sent.iter().rev().filter_map(|pdu| Nas5gsMessage::decode(&downlink(&keys, pdu)?).ok());
    let mut accepts = messages.filter_map(|message| match message {
        Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(accept)) => Some(*accept),
        _ => None,
    });
    accepts.next().expect("an accept")
}

/// Returns data network, slice, 5QI and ARP priority level of the sessions.
fn sessions(lab: &Lab) -> Vec<(String, Snssai, u8, u8)> {
    let context = lab.context().expect("a context");
    let terms = context.sessions.iter().map(|session| &session.terms);
    terms.map(|terms| (terms.dnn.as_str().to_owned(), terms.snssai, terms.five_qi, terms.arp_priority)).collect()
}

/// Requests an emergency PDU session as a UE does that is registered for all services. The UE does
/// not receive the answer.
fn request_emergency(lab: &mut Lab, psi: u8) {
    // PDU SESSION ESTABLISHMENT REQUEST of IPv4, "initial emergency request".
    let request = [0x2e, psi, 1, 0xc1, 0xff, 0xff, 0x91];
    let plain = [&[0x7e, 0, 0x67, 1, 0, request.len() as u8][..], &request, &[0x12, psi, 0x83]].concat();
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    lab.reachable = false;
    lab.inject(&protected(&keys, CIPHERED, &plain));
}

/// The subscriber has no slice, and is suspended.
#[test]
fn emergency_registration_needs_no_subscription() {
    let mut lab = serving();
    (lab.subscription.slices, lab.subscription.suspended) = (Vec::new(), true);
    register(&mut lab, ue::Registration::Emergency);
    let accepted = accept(&lab);
    assert_eq!(accepted.fgs_registration_result.value.to_vec(), [0x21], "emergency registered");
    assert_eq!(accepted.fgs_network_feature_support.map(|ie| ie.value.to_vec()), Some(vec![0x0c, 0]));
    assert!(accepted.allowed_nssai.is_none());
    lab.session(1);
    assert_eq!(sessions(&lab), [(DNN.to_owned(), SLICE, 5, 1)]);
    // No second one.
    lab.ue_does(|ue, p, out| ue.establish(p, 2, PduSessionType::Ipv4, out).expect("a request"));
    assert!(lab.events.contains(&UeEvent::SessionRejected { psi: 2, cause: Cause::Mm(90) }), "{:?}", lab.events);
    // The end of the subscription changes nothing, and an update keeps the registration.
    lab.event(Event::SubscriberChanged { subscription: None, is_repeated: true });
    lab.settle();
    lab.idle();
    lab.change(|ue| ue.subscription = Some(std::sync::Arc::default()));
    register(&mut lab, ue::Registration::Mobility);
    assert_eq!((registration(&lab), sessions(&lab).len()), (Registration::Emergency, 1));
}

/// TS 24.501 5.3.6.
#[test]
fn emergency_registration_gets_no_mico_mode() {
    let limit = Duration::from_secs(3600);
    for registration in [ue::Registration::Fresh, ue::Registration::Emergency] {
        let mut lab = serving();
        let mode = vireo_core::config::PowerSavingMode { active_time: limit, periodic_update: limit };
        lab.config.paging.power_saving.mode = Some(mode);
        lab.ue.request_saving(ue::PowerSaving::Mode);
        register(&mut lab, registration);
        let is_granted = registration == ue::Registration::Fresh;
        assert_eq!(accept(&lab).mico_indication.is_some(), is_granted, "{registration:?}");
        assert_eq!(lab.events.contains(&UeEvent::PowerSavingRefused), !is_granted, "{registration:?}");
    }
}

fn save_power(lab: &mut Lab) {
    let limit = Duration::from_secs(3600);
    let mode = vireo_core::config::PowerSavingMode { active_time: limit, periodic_update: limit };
    lab.config.paging.power_saving.mode = Some(mode);
    lab.config.paging.power_saving.extended_drx = Some(Instant(0));
}

/// MICO mode and extended DRX end with an emergency session, and an update restores neither (TS
/// 24.501 5.3.6, 5.3.16).
#[test]
fn emergency_session_ends_power_saving() {
    let mut lab = serving();
    save_power(&mut lab);
    let update = |lab: &Lab, kind: u8| {
        let tmsi = lab.context().and_then(|ue| ue.identity.tmsi).expect("a 5G-TMSI");
        let guti = [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat();
        // Requested extended DRX parameters of 81.92 s, MICO indication, T3324 of 10 s.
        let saving = [0xb0, 0x6e, 1, 0x35, 0x6a, 1, 0x05];
        let plain = [&[0x7e, 0, 0x41, kind][..], &guti, &[0x2e, 2, 0xf0, 0x70], &saving].concat();
        protected(&lab.context().and_then(|ue| ue.security).expect("keys"), CIPHERED, &plain)
    };
    let granted = |lab: &Lab| {
        let accept = accept(lab);
        (accept.mico_indication.is_some(), accept.negotiated_extended_drx_parameters.is_some())
    };
    lab.register();
    let request = update(&lab, 0x0a);
    lab.inject(&request);
    assert_eq!(granted(&lab), (true, true));
    request_emergency(&mut lab, 2);
    let context = lab.context().expect("a context");
    assert!(context.reachability.paging.power_saving.is_none());
    // A periodic update, which repeats no request that waits for its complete message.
    let request = update(&lab, 0x0b);
    lab.inject(&request);
    assert_eq!(granted(&lab), (false, false), "{:?}", lab.notes);
}

/// The mobile reachable timer is T3512, and no other timer follows (TS 24.501 5.3.7).
#[test]
fn silent_emergency_registration_ends() {
    let mut lab = serving();
    register(&mut lab, ue::Registration::Emergency);
    lab.idle();
    lab.wait(Duration::from_secs(54 * 60 - 1));
    assert!(lab.context().is_some_and(|ue| ue.is_registered()));
    lab.wait(Duration::from_secs(2));
    assert!(lab.context().is_some_and(|ue| !ue.is_registered()));
}

/// A UE that has registered for emergency services has no other session.
#[test]
fn emergency_registration_has_no_other_session() {
    let mut lab = serving();
    register(&mut lab, ue::Registration::Emergency);
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    let request = [0x2e, 1, 1, 0xc1, 0xff, 0xff, 0x91];
    let plain = [&[0x7e, 0, 0x67, 1, 0, request.len() as u8][..], &request, &[0x12, 1, 0x81]].concat();
    lab.reachable = false;
    lab.inject(&protected(&keys, CIPHERED, &plain));
    assert!(lab.notes.contains(&Note::Failed(Kind::Session, 90)), "{:?}", lab.notes);
    assert_eq!(sessions(&lab), []);
    // A registration for all services ends that for emergency services.
    lab.reachable = true;
    lab.forget_ue();
    lab.idle();
    register(&mut lab, ue::Registration::Fresh);
    assert_eq!(registration(&lab), Registration::Registered);
}

/// The slice of emergency services need not be allowed, and the session stays at an update.
#[test]
fn registered_ue_gets_emergency_session() {
    let mut lab = serving();
    let own = Snssai { sst: 9, sd: None };
    let slice = lab.config.slices[0].clone();
    lab.config.slices.push(SliceConfig { snssai: own, ..slice });
    lab.config.dnns[1].slices = vec![own];
    lab.register();
    let accepted = accept(&lab);
    assert_eq!(accepted.fgs_registration_result.value.to_vec(), [0x01]);
    lab.session(1);
    request_emergency(&mut lab, 2);
    let [_, emergency] = &sessions(&lab)[..] else { panic!("{:?}", lab.notes) };
    assert_eq!(*emergency, (DNN.to_owned(), own, 5, 1));
    request_emergency(&mut lab, 3);
    assert!(lab.notes.contains(&Note::Failed(Kind::Session, 90)), "one at a time: {:?}", lab.notes);
    let tmsi = lab.context().and_then(|ue| ue.identity.tmsi).expect("a 5G-TMSI");
    let guti = [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat();
    let update = [&[0x7e, 0, 0x41, 0x0a][..], &guti, &[0x2e, 2, 0xf0, 0x70]].concat();
    let keys = lab.context().and_then(|ue| ue.security).expect("keys");
    lab.inject(&protected(&keys, CIPHERED, &update));
    assert_eq!(sessions(&lab).len(), 2, "{:?}", lab.notes);
}

#[test]
fn unconfigured_emergency_session_is_refused() {
    let mut lab = Lab::new();
    lab.register();
    assert_eq!(accept(&lab).fgs_network_feature_support.map(|ie| ie.value.to_vec()), Some(vec![0, 0]));
    request_emergency(&mut lab, 1);
    assert!(lab.notes.contains(&Note::Failed(Kind::Session, 90)), "{:?}", lab.notes);
}

/// UEs without a subscriber identity are refused: #5.
#[test]
fn emergency_registration_with_pei_is_rejected() {
    let mut lab = serving();
    lab.reachable = false;
    lab.inject(&[&[0x7e, 0, 0x41, 0x74, 0, 9, 0x35][..], &[0x55; 7], &[0xf5, 0x2e, 2, 0xf0, 0x70]].concat());
    assert!(lab.sent.iter().any(|pdu| pdu.windows(4).any(|octets| octets == [0x7e, 0, 0x44, 5])), "{:?}", lab.notes);
}
