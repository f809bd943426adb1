//! 5GMM messages that are accepted in each state with each protection (TS 24.501 4.4.4.3, 4.4.5).

use super::{Contexts, Row, Walked, assert_complete, walk};
use crate::lab::nas::unverified;
use crate::lab::{self, Lab, RecordedEvent};
use vireo_core::amf::context::{Connection, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::amf::engine::protection::{Message, Rule, TABLE};
use vireo_core::amf::procedures::common::security_setup::AwaitedResponse;
use vireo_core::step::StepOutput;
use vireo_emulator::ue;
use vireo_wire::nas::Nas5gsMessage;

/// Requirements of TS 24.501 4.4.4.3 and 4.4.5, independent of the code. Each state has the
/// protections in the order of [`Protection::ALL`]: plain, unverified, integrity protected,
/// ciphered, under the new context.
///
/// `+` accepted, `.` refused, `-` impossible; accepted only as first message `f`, or while an
/// identity `i`, a challenge `c` or new keys `s` are awaited.
const WANTED: [Row<Message>; 17] = [
    //                                     no context  context  established
    (Message::RegistrationRequest, ["++-..", "..++.", "...+."]),
    (Message::RegistrationComplete, ["..-..", ".....", "...+."]),
    (Message::DeregistrationRequest, ["++-..", "..++.", "...+."]),
    (Message::DeregistrationAccept, ["..-..", "..++.", "...+."]),
    (Message::ServiceRequest, ["ff-..", "..++.", "...+."]),
    (Message::ControlPlaneServiceRequest, ["..-..", ".....", "...+."]),
    (Message::Unserved, ["..-..", ".....", "...+."]),
    (Message::ConfigurationUpdateComplete, ["..-..", ".....", "...+."]),
    (Message::AuthenticationResponse, ["cc-..", "cc++.", "...+."]),
    (Message::AuthenticationFailure, ["cc-..", "cc++.", "...+."]),
    (Message::IdentityResponse, ["ii-..", "ii++.", "...+."]),
    (Message::SecurityModeComplete, ["..-.s", "....s", "....s"]),
    (Message::SecurityModeReject, ["ss-..", "ss++.", "...+."]),
    (Message::FiveGmmStatus, ["..-..", ".....", "...+."]),
    (Message::NotificationResponse, ["..-..", ".....", "...+."]),
    (Message::UlNasTransport, ["..-..", ".....", "...+."]),
    (Message::Unknown, ["++-..", ".....", "...+."]),
];

fn octets(message: Message) -> Vec<u8> {
    let rest: &[u8] = match message {
        // Without follow-on request: it differs from that of the registration in progress.
        Message::RegistrationRequest => {
            &[0x41, 0x71, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10, 0x2e, 2, 0xf0, 0x70]
        }
        Message::RegistrationComplete => &[0x43],
        Message::DeregistrationRequest => &[0x45, 0x01, 0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40, 1, 2, 3, 4],
        Message::DeregistrationAccept => &[0x48],
        Message::ServiceRequest => &[0x4c, 0x10, 0, 7, 0xf4, 0, 0x40, 1, 2, 3, 4],
        Message::ControlPlaneServiceRequest => &[0x4f, 0x10],
        Message::Unserved => &[0x51],
        Message::ConfigurationUpdateComplete => &[0x55],
        Message::AuthenticationResponse => &[0x57, 0x2d, 16, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7],
        Message::AuthenticationFailure => &[0x59, 20],
        Message::IdentityResponse => &[0x5c, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10],
        Message::SecurityModeComplete => &[0x5e],
        Message::SecurityModeReject => &[0x5f, 24],
        Message::FiveGmmStatus => &[0x64, 0x6f],
        Message::NotificationResponse => &[0x66],
        Message::UlNasTransport => &[0x67, 1, 0, 4, 0x2e, 1, 1, 0xc1],
        Message::Unknown => &[0x3f],
    };
    [&[0x7e, 0], rest].concat()
}

/// Returns the context of a UE that registers and receives at most this many messages.
fn registering(kind: ue::Registration, mut received: u32) -> (Lab, UeContext) {
    let (mut lab, mut out) = (Lab::new(), ue::UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.register(&p, kind, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    lab.inject_until(&request, &mut received);
    let context = lab.context().expect("a context");
    (lab, context)
}

/// The 5G network that receives the messages.
struct Nr(Lab);

impl Walked for Nr {
    type Message = Message;
    const TABLE: &'static [Rule<Message>] = TABLE;

    fn samples(message: Message) -> Vec<Vec<u8>> {
        let plain = octets(message);
        let sound = Nas5gsMessage::decode(&plain).is_ok();
        assert!(sound || matches!(message, Message::Unknown | Message::Unserved), "{message:?}");
        vec![plain]
    }

    fn read(plain: &[u8]) -> Option<Message> {
        Message::from_octets(plain)
    }

    fn uplink(connection: &Connection, nas: &[u8]) -> Vec<u8> {
        lab::uplink_nas(connection.amf_id, connection.ran_id, nas)
    }

    fn try_step(&mut self, ue: &mut UeContext, event: Event<'_>) -> StepOutput {
        self.0.try_step(ue, event)
    }
}

fn contexts() -> (Nr, Contexts) {
    let (lab, challenged) = registering(ue::Registration::Fresh, 0);
    let (_, new_requests) = registering(ue::Registration::UnknownGuti, 0);
    let (_, commanded) = registering(ue::Registration::Fresh, 1);
    let procedure = |ue: &UeContext| ue.procedure.clone().expect("a registration");
    let waiting = [
        (AwaitedResponse::Identity, procedure(&new_requests)),
        (AwaitedResponse::Challenge, procedure(&challenged)),
        (AwaitedResponse::SecurityMode, procedure(&commanded)),
    ];
    let mut other = Lab::new();
    other.ue.inject(ue::Fault::KeySetInUse);
    other.register();
    let initial = lab.history.iter().find_map(|(_, happened)| match happened {
        RecordedEvent::Initial { message, .. } => Some(message.clone()),
        _ => None,
    });
    let (initial, registered) = (initial.expect("a first message"), other.context().expect("a context"));
    (Nr(lab), Contexts { initial, new: challenged, registered, waiting })
}

#[test]
fn whole_table_through_engine() {
    let (mut lab, contexts) = contexts();
    let (cells, accepted) = walk(&mut lab, &contexts, &WANTED);
    assert_eq!(cells, 17 * (4 * 5 + 5 * 5 + 5 * 4));
    assert!(accepted > 150, "{accepted} of {cells}");
}

#[test]
fn table_names_every_message_and_clause() {
    assert_complete(&Message::ALL, &WANTED, TABLE);
}

/// The header type is not under the MAC (TS 24.501 4.4.3.3): an altered one must not use up the
/// UE's COUNT.
#[test]
fn changed_header_type_uses_no_count() {
    let mut lab = Lab::new();
    lab.register();
    let mut out = ue::UeOutput::default();
    let p = lab.profile.clone();
    lab.ue.establish(&p, 1, vireo_types::PduSessionType::Ipv4, &mut out).expect("a request");
    let request = out.messages().next().expect("a message").to_vec();
    for header in [0, 1, 3, 4, 5, 15] {
        let mut changed = request.clone();
        changed[1] = header;
        lab.inject(&changed);
        assert!(lab.context().is_some_and(|ue| ue.sessions.is_empty()), "header type {header}");
    }
    lab.inject(&request);
    assert!(lab.ue.active_sessions().any(|psi| psi == 1), "{:?} {:?}", lab.events, lab.notes);
}

/// Unprotected messages cannot end a registration before the UE has keys, except those that its
/// state awaits.
#[test]
fn plain_messages_end_no_registration() {
    let (mut lab, begun) = registering(ue::Registration::Fresh, 0);
    let harmless = [Message::SecurityModeReject, Message::IdentityResponse, Message::DeregistrationRequest];
    for message in harmless.into_iter().chain([Message::SecurityModeComplete, Message::RegistrationComplete]) {
        for nas in [octets(message), unverified(&octets(message))] {
            let connection = begun.connection.expect("a connection");
            lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, &nas));
            lab.settle();
            let after = lab.context().expect("a context");
            assert_eq!((&after.procedure, after.connection), (&begun.procedure, begun.connection), "{message:?}");
        }
    }
    lab.reachable = true;
    lab.wait(vireo_types::Duration::from_secs(7));
    assert_eq!(lab.ue.mm(), ue::MmState::Registered);
}

/// A UE whose keys the network has lost protects its SUCI under them: the message is processed (TS
/// 24.501 4.4.4.3 b).
#[test]
fn unverified_identity_response_is_processed() {
    let (mut lab, new_requests) = registering(ue::Registration::UnknownGuti, 0);
    let sent = lab.sent.len();
    let connection = new_requests.connection.expect("a connection");
    let response = unverified(&octets(Message::IdentityResponse));
    lab.take_from_gnb(0, &lab::uplink_nas(connection.amf_id, connection.ran_id, &response));
    lab.settle();
    let challenged = |pdu: &Vec<u8>| pdu.windows(3).any(|octets| octets == [0x7e, 0, 0x56]);
    assert!(lab.sent[sent..].iter().any(challenged), "{:?}", lab.notes);
}

/// A plain Registration Request on a connection with established secure exchange is not the UE's
/// (TS 24.501 4.4.4.3).
#[test]
fn plain_registration_if_secured_is_discarded() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    let (before, sent) = (lab.context().expect("a context"), lab.sent.len());
    for nas in [octets(Message::RegistrationRequest), unverified(&octets(Message::RegistrationRequest))] {
        lab.inject(&nas);
        let after = lab.context().map(|ue| UeContext { sequence: before.sequence, ..ue });
        assert_eq!((after.as_ref(), lab.sent.len()), (Some(&before), sent));
    }
    lab.session(2);
}
