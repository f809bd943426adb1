//! Table of uplink messages and protections (TS 24.501 4.4.4.3, 4.4.5).
//!
//! Every cell is tested through the engine.

use crate::lab::nas::{CIPHERED, INTEGRITY, NEW_CONTEXT, protected, unverified};
use crate::lab::{self, ASSOC, Lab, RecordedEvent};
use vireo_core::amf::context::{NasSecurity, Procedure, RanContext, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::amf::engine::protection::{Exchange, Message, Protection, Situation, TABLE, Verdict, verdict};
use vireo_core::amf::n2::InitialUeMessage;
use vireo_core::amf::procedures::common::security_setup::Awaited;
use vireo_core::step::{Effect, StepOutput};
use vireo_emulator::ue;
use vireo_wire::nas::Nas5gsMessage;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};

/// Requirements of TS 24.501 4.4.4.3 and 4.4.5, independent of the code. Each state has the
/// protections in the order of [`Protection::ALL`]: plain, unverified, integrity protected,
/// ciphered, under the new context.
///
/// `+` accepted, `.` refused, `-` impossible; accepted only as first message `f`, or while an
/// identity `i`, a challenge `c` or new keys `s` are awaited.
const WANTED: [(Message, [&str; 3]); 17] = [
    //                                     no context  context  established
    (Message::RegistrationRequest, ["++-..", "..++.", "...+."]),
    (Message::RegistrationComplete, ["..-..", ".....", "...+."]),
    (Message::DeregistrationRequest, ["++-..", "..++.", "...+."]),
    (Message::DeregistrationAccept, ["..-..", "..++.", "...+."]),
    (Message::ServiceRequest, [".f-..", "..++.", "...+."]),
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

const SITUATIONS: [(char, Situation); 5] = [
    (' ', Situation { first: false, awaited: Awaited::Nothing }),
    ('f', Situation { first: true, awaited: Awaited::Nothing }),
    ('i', Situation { first: false, awaited: Awaited::Identity }),
    ('c', Situation { first: false, awaited: Awaited::Challenge }),
    ('s', Situation { first: false, awaited: Awaited::SecurityMode }),
];

fn octets(message: Message) -> Vec<u8> {
    let rest: &[u8] = match message {
        Message::RegistrationRequest => {
            &[0x41, 0x79, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10, 0x2e, 2, 0xf0, 0x70]
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

/// Contexts that receive the messages, with their network.
struct Walk {
    lab: Lab,
    /// First message of a connection, whose NAS message is replaced.
    initial: InitialUeMessage,
    new: UeContext,
    registered: UeContext,
    /// Registrations that wait for an identity, for the response to a challenge, and for new keys.
    waiting: [(Awaited, Procedure); 3],
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

impl Walk {
    fn new() -> Self {
        let (lab, challenged) = registering(ue::Registration::Fresh, 0);
        let (_, new_requests) = registering(ue::Registration::UnknownGuti, 0);
        let (_, commanded) = registering(ue::Registration::Fresh, 1);
        let procedure = |ue: &UeContext| ue.procedure.clone().expect("a registration");
        let waiting = [
            (Awaited::Identity, procedure(&new_requests)),
            (Awaited::Challenge, procedure(&challenged)),
            (Awaited::SecurityMode, procedure(&commanded)),
        ];
        let mut other = Lab::new();
        other.ue.inject(ue::Fault::KeySetInUse);
        other.register();
        let initial = lab.history.iter().find_map(|(_, happened)| match happened {
            RecordedEvent::Initial { message, .. } => Some(message.clone()),
            _ => None,
        });
        let (initial, registered) = (initial.expect("a first message"), other.context().expect("a context"));
        Walk { lab, initial, new: challenged, registered, waiting }
    }

    fn context(&self, state: Exchange, situation: Situation) -> UeContext {
        let mut ue = if state == Exchange::NoContext { self.new.clone() } else { self.registered.clone() };
        if situation.first {
            ue.connection = None;
        } else if let (Exchange::Context, Some(connection)) = (state, &mut ue.connection) {
            connection.ran = RanContext::None;
        }
        let waiting = self.waiting.iter().find(|(awaited, _)| *awaited == situation.awaited);
        ue.procedure = waiting.map(|(_, procedure)| procedure.clone());
        assert_eq!(Exchange::from_context(&ue), state);
        assert_eq!(Situation::from_context(&ue, situation.first), situation);
        ue
    }

    /// Returns true if the engine acts on a message. Asserts that a refused message changes
    /// nothing.
    fn is_accepted(&mut self, before: &UeContext, nas: &[u8], first: bool) -> bool {
        let mut ue = before.clone();
        let outcome = match before.connection.filter(|_| !first) {
            Some(connection) => {
                let pdu = lab::uplink_nas(connection.amf_id, connection.ran_id, nas);
                let event = Event::Ngap { assoc: ASSOC, amf_id: connection.amf_id, pdu: &pdu };
                self.lab.try_step(&mut ue, event)
            }
            None => {
                let message = InitialUeMessage { nas: nas.to_vec(), ..self.initial.clone() };
                self.lab.try_step(&mut ue, Event::Initial { assoc: ASSOC, message })
            }
        };
        let count = |ue: &UeContext| ue.security.as_ref().map(|s| (s.kamf, s.uplink));
        let acts = answers(&outcome) || ue.procedure != before.procedure || count(&ue) != count(before);
        if !acts && first {
            assert_eq!((ue.registration, ue.sessions.len()), (before.registration, before.sessions.len()));
        } else if !acts {
            assert_eq!((&ue, outcome.effects), (before, Vec::new()));
        }
        acts
    }
}

/// Returns true if the UE or the subscriber service is sent a message.
fn answers(outcome: &StepOutput) -> bool {
    outcome.effects.iter().any(|effect| match effect {
        Effect::Authenticate(_) => true,
        Effect::Ngap { pdu, .. } => {
            let kind = NGAP_PDU::decode(pdu).expect("a PDU").kind();
            matches!(kind, NgapPduKind::Initiating_DownlinkNASTransport | NgapPduKind::Initiating_InitialContextSetup)
        }
        _ => false,
    })
}

fn pending(ue: &UeContext) -> Option<NasSecurity> {
    match ue.procedure.clone() {
        Some(Procedure::Registration(mut registering)) => registering.securing()?.pending().cloned(),
        _ => None,
    }
}

/// Returns the message as received with this protection, if a UE in that context can send it so.
fn received(ue: &UeContext, protection: Protection, plain: &[u8]) -> Vec<u8> {
    // Arbitrary keys if the network has none.
    let other = NasSecurity::fresh(0, [7; 32], 2.try_into().expect("NIA2"), 2.try_into().expect("NEA2"));
    let keys = ue.security.as_ref().unwrap_or(&other);
    match protection {
        Protection::Plain => plain.to_vec(),
        Protection::Unverified => unverified(plain),
        Protection::Integrity => protected(keys, INTEGRITY, plain),
        Protection::Ciphered => protected(keys, CIPHERED, plain),
        Protection::NewContext => protected(pending(ue).as_ref().unwrap_or(keys), NEW_CONTEXT, plain),
    }
}

#[test]
fn whole_table_through_engine() {
    let mut walk = Walk::new();
    let (mut cells, mut accepted) = (0, 0);
    for (message, states) in WANTED {
        let plain = octets(message);
        assert_eq!(Message::from_octets(&plain), Some(message));
        let sound = Nas5gsMessage::decode(&plain).is_ok();
        assert!(sound || matches!(message, Message::Unknown | Message::Unserved), "{message:?}");
        for (state, wanted) in Exchange::ALL.into_iter().zip(states) {
            let wanted = Protection::ALL.into_iter().zip(wanted.chars());
            for ((protection, wanted), (letter, situation)) in wanted.flat_map(|w| SITUATIONS.map(|s| (w, s))) {
                // The secure exchange is not established before the first message of a connection.
                if wanted == '-' || situation.first && state == Exchange::Established {
                    continue;
                }
                let ue = walk.context(state, situation);
                let nas = received(&ue, protection, &plain);
                let accepts = wanted == '+' || wanted == letter;
                let cell = format!("{message:?}, {state:?}, {protection:?}, {situation:?}");
                assert_eq!(walk.is_accepted(&ue, &nas, situation.first), accepts, "{cell}");
                // Without keys the engine does not reach the state in which these are awaited, so
                // that the table is checked directly.
                let said = verdict(message, state, protection, situation);
                assert_eq!(said == Verdict::Accepted, accepts, "the table: {cell}");
                (cells, accepted) = (cells + 1, accepted + usize::from(accepts));
            }
        }
    }
    assert_eq!(cells, 17 * (4 * 5 + 5 * 5 + 5 * 4));
    assert!(accepted > 150, "{accepted} of {cells}");
}

#[test]
fn table_names_every_message_and_clause() {
    for (message, (named, _)) in Message::ALL.into_iter().zip(WANTED) {
        assert_eq!(message, named);
        assert!(TABLE.iter().any(|rule| rule.messages.contains(&message)), "{message:?}");
    }
    for rule in TABLE {
        assert!(!rule.clause.is_empty() && !rule.messages.is_empty() && !rule.states.is_empty());
        // A rule that accepts no protection documents what the clause would allow.
        assert!(!rule.allowed.is_empty() || rule.stricter.is_some(), "{rule:?}");
    }
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
