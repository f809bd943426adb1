//! Repeated requests and collisions of procedures in 5G (TS 24.501 5.4.2.7, 5.4.4.6, 5.5.1.2.8,
//! 5.5.2.3.5, 5.6.1.8).

use crate::lab::nas::{CIPHERED, INTEGRITY, downlink, protected};
use crate::lab::{self, Lab, SLICE};
use vireo_core::amf::context::{NasSecurity, Procedure};
use vireo_core::amf::engine::Event;
use vireo_core::config::SliceConfig;
use vireo_core::smf::RanState;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::SliceSubscription;
use vireo_emulator::ue::{self, Event as UeEvent, MmState, UeOutput};
use vireo_types::{Duration, Snssai, Tmsi};
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};
use vireo_wire::pfcp::{self, Element};

/// 5GS registration types, with a follow-on request pending (TS 24.501 9.11.3.7).
const INITIAL: u8 = 0x09;
const MOBILITY: u8 = 0x0a;
const PERIODIC: u8 = 0x0b;

fn keys(lab: &Lab) -> NasSecurity {
    lab.context().and_then(|ue| ue.security).expect("keys")
}

fn succeeded(lab: &Lab, kind: Kind) -> usize {
    lab.notes.iter().filter(|note| matches!(note, Note::Succeeded(k, _) if *k == kind)).count()
}

fn vectors(lab: &Lab) -> usize {
    lab.effects.iter().filter(|effect| matches!(effect, Effect::Authenticate(_))).count()
}

/// Returns the number of downlink NAS messages of a type.
fn sent(lab: &Lab, kind: u8) -> usize {
    let keys = keys(lab);
    let is_it = |pdu: &&Vec<u8>| downlink(&keys, pdu).is_some_and(|nas| nas.get(..3) == Some(&[0x7e, 0, kind]));
    lab.sent.iter().filter(is_it).count()
}

fn guti(tmsi: Tmsi) -> Vec<u8> {
    [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat()
}

fn tmsi(lab: &Lab) -> Tmsi {
    lab.context().and_then(|ue| ue.identity.tmsi).expect("a 5G-TMSI")
}

/// Returns REGISTRATION REQUEST with the 5G-GUTI and the capability of the emulator's UE.
fn registration(kind: u8, tmsi: Tmsi) -> Vec<u8> {
    [&[0x7e, 0, 0x41, kind][..], &guti(tmsi), &[0x2e, 2, 0xf0, 0x70]].concat()
}

fn deregistration(tmsi: Tmsi) -> Vec<u8> {
    [&[0x7e, 0, 0x45, 0x01][..], &guti(tmsi)].concat()
}

fn service_request(tmsi: Tmsi) -> Vec<u8> {
    [&[0x7e, 0, 0x4c, 0x10, 0, 7, 0xf4, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat()
}

/// Sends a message of the UE on its connection, under the keys in use.
fn send(lab: &mut Lab, header: u8, plain: &[u8]) {
    let message = protected(&keys(lab), header, plain);
    lab.inject(&message);
}

/// Sends a message on the connection, of which the gNB need not have received a message.
fn send_plain(lab: &mut Lab, message: &[u8]) {
    let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
    lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, message));
    lab.settle();
}

fn connected() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab
}

fn idle() -> Lab {
    let mut lab = connected();
    lab.idle();
    lab
}

/// Returns the report of a packet for the first session.
fn report(lab: &Lab) -> Vec<u8> {
    let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
    lab::pfcp_report(seid, pfcp::ReportType::DLDR, |report| {
        report.group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
    })
}

/// Has the UPF report a packet, whose page the UE does not answer yet.
fn page(lab: &mut Lab) {
    lab.answers_paging = false;
    let (seid, report) = (lab.context().expect("a context").sessions[0].pfcp.cp_seid, report(lab));
    lab.event(Event::Pfcp { seid, message: &report });
    lab.settle();
    assert!(matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::Paging(_))));
}

/// Returns a registration whose UE receives this number of messages, and its request.
fn registering(mut received: u32) -> (Lab, Vec<u8>) {
    let (mut lab, mut out) = (Lab::new(), UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject_until(&request, &mut received);
    lab.reachable = false;
    (lab, request)
}

/// 5.5.1.2.8 e 2: a registration that was not answered goes on.
#[test]
fn same_request_continues_registration() {
    for received in [0, 1] {
        let (mut lab, request) = registering(received);
        let (before, messages) = (lab.context().expect("a context"), lab.sent.len());
        send_plain(&mut lab, &request);
        let mut after = lab.context().expect("a context");
        after.sequence = before.sequence;
        assert_eq!((after, lab.sent.len(), vectors(&lab)), (before, messages, 1), "{received}");
        lab.reachable = true;
        lab.wait(Duration::from_secs(7));
        assert_eq!(lab.ue.mm(), MmState::Registered, "{received}: {:?}", lab.notes);
    }
}

/// 5.5.1.2.8 e 1: another request, here with other bits of the type, replaces the registration.
#[test]
fn other_request_restarts_registration() {
    for received in [0, 1] {
        let (mut lab, mut request) = registering(received);
        request[3] ^= 0x08;
        lab.reachable = true;
        send_plain(&mut lab, &request);
        assert_eq!((vectors(&lab), lab.ue.mm()), (2, MmState::Registered), "{received}: {:?}", lab.notes);
    }
}

/// 5.5.1.3.8: the accept again, under the same 5G-GUTI. T3550 restarts; nothing is counted.
#[test]
fn same_request_gets_5g_accept_again() {
    let mut lab = connected();
    lab.reachable = false;
    let request = registration(MOBILITY, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    let (first, accepts) = (lab.context().expect("a context").identity, sent(&lab, 0x42));
    lab.wait(Duration::from_secs(5));
    send(&mut lab, CIPHERED, &request);
    assert_eq!((sent(&lab, 0x42), lab.context().map(|ue| ue.identity)), (accepts + 1, Some(first)));
    lab.wait(Duration::from_millis(29_900));
    assert_eq!(sent(&lab, 0x42), accepts + 1 + 4);
    // Another request replaces it.
    let request = registration(PERIODIC, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    assert_ne!(lab.context().map(|ue| ue.identity), Some(first));
}

/// 5.5.1.2.8 f: a request under the new 5G-GUTI counts as REGISTRATION COMPLETE, which was lost.
#[test]
fn request_names_guti_of_lost_complete() {
    let mut lab = connected();
    lab.reachable = false;
    let first = tmsi(&lab);
    send(&mut lab, CIPHERED, &registration(MOBILITY, first));
    let second = tmsi(&lab);
    assert_ne!(first, second);
    send(&mut lab, CIPHERED, &registration(PERIODIC, second));
    assert!(lab.effects.contains(&Effect::FreeTmsi(first)), "{:?}", lab.notes);
    let identity = lab.context().expect("a context").identity;
    assert!(identity.old_tmsi == Some(second) && identity.tmsi != Some(second), "the UE may still have it");
}

/// 5.5.1.2.8 g, 5.5.1.3.8.
#[test]
fn deregistration_before_complete_ends_both() {
    let mut lab = connected();
    lab.reachable = false;
    let request = registration(MOBILITY, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    let request = deregistration(tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    assert_eq!(sent(&lab, 0x46), 1, "DEREGISTRATION ACCEPT");
    let context = lab.context().expect("its keys are kept");
    assert!(!context.is_registered() && context.sessions.is_empty() && context.procedure.is_none());
}

/// A connected UE has lost its session. The gNB would refuse another one with its ID (TS 38.413
/// 8.2.1.4).
#[test]
fn lost_sessions_are_released_at_gnb() {
    const NO_SESSION: [u8; 4] = [0x50, 2, 0, 0];
    for (kind, status) in [(INITIAL, &[][..]), (MOBILITY, &NO_SESSION)] {
        let mut lab = connected();
        let request = [&registration(kind, tmsi(&lab))[..], status].concat();
        lab.reachable = false;
        send(&mut lab, CIPHERED, &request);
        let kinds = lab.sent.iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind());
        let releases = kinds.filter(|kind| *kind == NgapPduKind::Initiating_PDUSessionResourceRelease);
        assert_eq!((releases.count(), lab.context().expect("a context").sessions.len()), (1, 0));
    }
}

/// 5.4.2.7 c: the keys of SECURITY MODE COMMAND, which the UE has not received, are dropped.
#[test]
fn request_during_security_mode_replaces_it() {
    for request in ["registration", "service request", "deregistration"] {
        let mut lab = idle();
        lab.change(|ue| ue.pending.authenticate = true);
        let before = keys(&lab);
        let (p, mut out) = (lab.profile.clone(), UeOutput::default());
        lab.ue.register(&p, ue::Registration::Mobility, &mut out).expect("a request");
        let update = out.messages().next().expect("a message").to_vec();
        lab.inject_until(&update, &mut 1);
        assert!(lab.sent.last().is_some_and(|pdu| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x5d])));
        lab.reachable = false;
        let own = tmsi(&lab);
        let plain = match request {
            "registration" => registration(PERIODIC, own),
            "service request" => service_request(own),
            _ => deregistration(own),
        };
        send(&mut lab, INTEGRITY, &plain);
        let context = lab.context().expect("a context");
        assert_eq!(keys(&lab).kamf, before.kamf, "{request}");
        assert_eq!(context.is_registered(), request != "deregistration", "{request}");
        let follows = match (request, &context.procedure) {
            ("registration", Some(Procedure::Registration(registering))) => !registering.is_securing(),
            ("service request", Some(Procedure::ServiceRequest(_))) => true,
            (_, procedure) => procedure.is_none() && request == "deregistration",
        };
        assert!(follows, "{request}: {:?}", context.procedure);
    }
}

/// 5.5.2.3.5: an initial registration aborts the deregistration by the network.
#[test]
fn registration_aborts_network_deregistration() {
    let mut lab = connected();
    lab.reachable = false;
    lab.event(Event::Deregister { reregister: false, cause: None });
    lab.settle();
    let request = registration(INITIAL, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.sessions.iter().all(|session| !session.is_live()));
    assert!(matches!(context.procedure, Some(Procedure::Registration(_))), "{:?}", lab.notes);
}

#[test]
fn deregistration_answers_5g_page() {
    let mut lab = idle();
    page(&mut lab);
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert_eq!(succeeded(&lab, Kind::Paging), 1);
    assert!(lab.context().is_some_and(|ue| !ue.is_registered() && ue.procedure.is_none() && ue.sessions.is_empty()));
}

#[test]
fn operator_deregisters_paged_ue() {
    let mut lab = idle();
    page(&mut lab);
    lab.event(Event::Deregister { reregister: true, cause: None });
    lab.settle();
    assert!(matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::Paging(_))), "one page serves both");
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Paged, out).expect("a request"));
    let by_network = UeEvent::DeregisteredByNetwork { cause: None, reregister: true };
    assert!(lab.events.contains(&by_network), "{:?} {:?}", lab.events, lab.notes);
    assert!(lab.context().is_some_and(|ue| !ue.is_registered()));
}

/// T3510 of the UE expires before it has received the challenge: it registers again. What it sends
/// late on the former connection changes nothing (5.5.1.2.7 c).
#[test]
fn t3510_expiry_restarts_registration() {
    let mut lab = idle();
    lab.change(|ue| ue.pending.authenticate = true);
    lab.reachable = false;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    let former = lab.context().and_then(|ue| ue.connection).expect("a connection");
    lab.wait(Duration::from_secs(15));
    lab.forget_connection();
    lab.ue.connection_released();
    lab.reachable = true;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    assert_eq!((lab.ue.mm(), succeeded(&lab, Kind::Mobility)), (MmState::Registered, 1), "{:?}", lab.notes);
    let before = lab.context().expect("a context");
    let answer = [&[0x7e, 0, 0x57, 0x2d, 16][..], &[7; 16]].concat();
    lab.take_from_gnb(0, &lab::uplink_nas(former.amf_id, former.ran_id, &answer));
    let mut after = lab.context().expect("a context");
    after.sequence = before.sequence;
    assert_eq!(after, before);
    assert!(lab.context().is_some_and(|ue| ue.sessions.len() == 1));
}

/// T3510 expires while REGISTRATION ACCEPT is on its way: the UE registers again under its former
/// 5G-GUTI.
#[test]
fn accept_crossing_t3510_is_replaced() {
    let mut lab = idle();
    let first = tmsi(&lab);
    lab.reachable = false;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    let lost = tmsi(&lab);
    assert_ne!(lost, first);
    lab.forget_connection();
    lab.ue.connection_released();
    lab.reachable = true;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    assert_eq!(lab.ue.mm(), MmState::Registered, "{:?}", lab.notes);
    let identity = lab.context().expect("a context").identity;
    assert_eq!((identity.tmsi, identity.old_tmsi), (lab.ue.guti().map(|guti| guti.tmsi), None));
    for former in [first, lost] {
        assert!(lab.effects.contains(&Effect::FreeTmsi(former)), "{former:?}");
    }
}

/// 5.4.1.3.7 f: the AUTS of the second failure resynchronises, too.
#[test]
fn second_synchronisation_failure_is_served() {
    let (mut lab, mut out) = (Lab::new(), UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.inject(ue::Fault::SynchFailure);
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject_until(&request, &mut 1);
    assert_eq!(vectors(&lab), 2);
    // T3560 repeats the second challenge.
    lab.ue.inject(ue::Fault::SynchFailure);
    lab.reachable = true;
    lab.wait(Duration::from_secs(7));
    assert_eq!((vectors(&lab), lab.ue.mm()), (3, MmState::Registered), "{:?}", lab.notes);
    let failures = lab.events.iter().filter(|event| matches!(event, UeEvent::AuthenticationFailed { cause: 21 }));
    assert_eq!(failures.count(), 2);
}

/// Returns a connected UE that has not received its allowed NSSAI in CONFIGURATION UPDATE
/// COMMAND.
fn updating() -> Lab {
    let mut lab = Lab::new();
    let second = Snssai { sst: 2, sd: None };
    let slice = lab.config.slices[0].clone();
    lab.config.slices.push(SliceConfig { snssai: second, ..slice });
    let dnns = lab.subscription.slices[0].dnns.clone();
    lab.subscription.slices.push(SliceSubscription { snssai: second, default: true, dnns });
    lab.register();
    lab.change(|ue| ue.allowed = [SLICE, second].into_iter().collect());
    lab.session(1);
    lab.subscription.slices.pop();
    lab.reachable = false;
    let subscription = Some(lab.subscription.clone());
    lab.event(Event::SubscriberChanged { subscription, is_repeated: true });
    lab.settle();
    assert!(matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::ConfigurationUpdate(_))));
    lab
}

/// 5.4.4.6: registration and deregistration end the update; the accept has the allowed NSSAI, and
/// the configured NSSAI follows.
#[test]
fn request_during_configuration_update_ends_it() {
    for registers in [true, false] {
        let mut lab = updating();
        let own = tmsi(&lab);
        let request = if registers { registration(MOBILITY, own) } else { deregistration(own) };
        send(&mut lab, CIPHERED, &request);
        let context = lab.context().expect("a context");
        assert!(lab.notes.contains(&Note::Failed(Kind::ConfigurationUpdate, 0)));
        assert_eq!((context.is_registered(), context.pending.allowed), (registers, registers));
        assert_eq!(matches!(context.procedure, Some(Procedure::Registration(_))), registers);
    }
}

/// The UE of 5GMM-CONNECTED mode requests the user plane of a session (5.6.1.1). The update
/// follows.
#[test]
fn service_request_precedes_configuration_update() {
    let mut lab = updating();
    let commands = sent(&lab, 0x54);
    let request = service_request(tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    assert_eq!((sent(&lab, 0x4e), sent(&lab, 0x54)), (1, commands + 1), "SERVICE ACCEPT and the command");
    assert_eq!(succeeded(&lab, Kind::ServiceRequest), 1);
    assert!(matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::ConfigurationUpdate(_))));
}

/// 5.6.1.8: a registration ends a service request whose context the gNB has not set up yet.
#[test]
fn registration_replaces_service_request() {
    let mut lab = idle();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::ServiceRequest(_))));
    (lab.slow, lab.reachable) = (None, false);
    let request = registration(MOBILITY, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    for (n, pdu) in std::mem::take(&mut lab.late) {
        lab.take_from_gnb(n, &pdu);
    }
    let context = lab.context().expect("a context");
    assert!(matches!(context.procedure, Some(Procedure::Registration(_))), "{:?}", lab.notes);
    assert!(context.is_registered() && context.sessions[0].ran == RanState::Up);
}

/// The user plane that the page is for is set up already (5.6.2.2.1).
#[test]
fn packet_during_service_request_needs_no_page() {
    let mut lab = idle();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let report = report(&lab);
    let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
    lab.event(Event::Pfcp { seid, message: &report });
    lab.settle();
    lab.slow = None;
    for (n, pdu) in std::mem::take(&mut lab.late) {
        lab.take_from_gnb(n, &pdu);
    }
    lab.settle();
    assert_eq!(lab.notes.iter().filter(|note| **note == Note::Started(Kind::Paging)).count(), 0);
    assert!(lab.context().is_some_and(|ue| ue.sessions[0].ran == RanState::Up && ue.procedure.is_none()));
}

/// 5.5.1.3.8: an initial registration replaces an update that is not complete, and ends its
/// sessions.
#[test]
fn initial_registration_replaces_update() {
    let mut lab = connected();
    lab.reachable = false;
    let request = registration(MOBILITY, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    let request = registration(INITIAL, tmsi(&lab));
    send(&mut lab, CIPHERED, &request);
    let context = lab.context().expect("a context");
    let Some(Procedure::Registration(registering)) = context.procedure else { panic!("{:?}", lab.notes) };
    assert!(registering.kind().is_initial() && context.sessions.iter().all(|session| !session.is_live()));
}

/// 5.4.1.3.7 a, 5.4.2.7 a: the UE is idle, under the keys that it had.
#[test]
fn lost_connection_ends_authentication() {
    for received in [0, 1] {
        let mut lab = idle();
        lab.change(|ue| ue.pending.authenticate = true);
        let (before, mut left) = (keys(&lab), received);
        let mut out = UeOutput::default();
        lab.ue.service_request(ue::Service::Data, &mut out).expect("a request");
        let request = out.messages().next().expect("a message").to_vec();
        lab.inject_until(&request, &mut left);
        assert!(matches!(lab.context().and_then(|ue| ue.procedure), Some(Procedure::Authentication(_))));
        lab.event(Event::ConnectionLost { assoc: lab::ASSOC });
        let context = lab.context().expect("a context");
        assert!(context.is_registered() && context.procedure.is_none() && context.connection.is_none());
        assert_eq!((keys(&lab).kamf, context.sessions.len()), (before.kamf, 1), "{received}");
        assert!(lab.notes.contains(&Note::Failed(Kind::Authentication, 0)));
    }
}

/// A deregistration from non-3GPP access is answered, and that by 3GPP access stays (TS 24.501
/// 5.5.2.2.3).
#[test]
fn deregistration_of_other_access_is_answered() {
    for switch_off in [0, 8] {
        let mut lab = connected();
        lab.reachable = false;
        let mut request = deregistration(tmsi(&lab));
        request[3] = 0x02 | switch_off;
        send(&mut lab, CIPHERED, &request);
        let context = lab.context().expect("a context");
        assert!(context.is_registered() && context.connection.is_some() && context.sessions.len() == 1);
        assert_eq!(sent(&lab, 0x46), usize::from(switch_off == 0), "DEREGISTRATION ACCEPT");
    }
}

/// TS 24.501 5.6.1.5, 7.4.
#[test]
fn service_request_without_registration_rejected() {
    for registers in [false, true] {
        let mut lab = connected();
        lab.reachable = false;
        let tmsi = tmsi(&lab);
        if registers {
            send(&mut lab, CIPHERED, &registration(INITIAL, tmsi));
        }
        lab.change(|ue| ue.registration = vireo_core::amf::context::Registration::Deregistered);
        send(&mut lab, CIPHERED, &service_request(tmsi));
        let answers = (sent(&lab, 0x4d), sent(&lab, 0x64));
        assert_eq!(answers, (usize::from(!registers), usize::from(registers)), "{:?}", lab.notes);
        assert_eq!(lab.context().is_some_and(|ue| ue.procedure.is_some()), registers);
    }
}
