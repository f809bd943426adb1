//! Messages that are accepted in each state with each protection.
//!
//! Every cell of the table of a dialect is tested through the engine. [`nr`] has the 5GMM messages,
//! `eps::protection` those of EPS.

mod nr;

use crate::lab::nas::{CIPHERED, INTEGRITY, NEW_CONTEXT, discriminator, protected, protected_at, service_request};
use std::fmt::Debug;
use vireo_core::amf::context::{Connection, NasSecurity, Procedure, RanContext, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::amf::engine::protection::{Exchange, Protection, Rule, Situation, Verdict, decide};
use vireo_core::amf::n2::InitialUeMessage;
use vireo_core::amf::procedures::common::security_setup::AwaitedResponse;
use vireo_core::step::{Effect, StepOutput};
use vireo_types::Dialect;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};
use vireo_wire::s1ap::{S1AP_PDU, S1apPduKind};

/// Requirements for a message, independent of the code. Each state has the protections in the order
/// of [`Protection::ALL`]: plain, unverified, integrity protected, ciphered, under the new context.
///
/// `+` accepted, `.` refused, `-` impossible; accepted only as first message `f`, or while an
/// identity `i`, a challenge `c` or new keys `s` are awaited.
pub(crate) type Row<M> = (M, [&'static str; 3]);

const SITUATIONS: [(char, Situation); 5] = [
    (' ', Situation { first: false, awaited: AwaitedResponse::Nothing }),
    ('f', Situation { first: true, awaited: AwaitedResponse::Nothing }),
    ('i', Situation { first: false, awaited: AwaitedResponse::Identity }),
    ('c', Situation { first: false, awaited: AwaitedResponse::Challenge }),
    ('s', Situation { first: false, awaited: AwaitedResponse::SecurityMode }),
];

/// COUNT of the last message of a UE with keys.
const LAST_COUNT: u32 = 9;

/// Network of a dialect that receives the messages.
pub(crate) trait Walked {
    /// Message types of the table.
    type Message: Copy + PartialEq + Debug + 'static;
    const TABLE: &'static [Rule<Self::Message>];

    /// Returns plain messages of this type.
    fn samples(message: Self::Message) -> Vec<Vec<u8>>;
    /// Returns the type of a plain message.
    fn read(plain: &[u8]) -> Option<Self::Message>;
    /// Encodes the transport of a NAS message to the core.
    fn uplink(connection: &Connection, nas: &[u8]) -> Vec<u8>;
    /// Runs one step of a context without storing the result.
    fn try_step(&mut self, ue: &mut UeContext, event: Event<'_>) -> StepOutput;
}

/// Contexts that receive the messages.
pub(crate) struct Contexts {
    /// First message of a connection, whose NAS message is replaced.
    pub(crate) initial: InitialUeMessage,
    pub(crate) new: UeContext,
    pub(crate) registered: UeContext,
    /// Registrations that wait for an identity, for the response to a challenge, and for new keys.
    pub(crate) waiting: [(AwaitedResponse, Procedure); 3],
}

impl Contexts {
    fn context(&self, state: Exchange, situation: Situation) -> UeContext {
        let mut ue = if state == Exchange::NoContext { self.new.clone() } else { self.registered.clone() };
        if let Some(security) = &mut ue.security {
            security.uplink = LAST_COUNT + 1;
        }
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
}

/// Returns true if the engine acts on a message. Asserts that a refused message changes nothing of
/// the UE, except that it is connected.
fn is_accepted<W: Walked>(network: &mut W, contexts: &Contexts, before: &UeContext, nas: &[u8], first: bool) -> bool {
    let mut ue = before.clone();
    let assoc = contexts.new.connection.expect("a connection").assoc;
    let outcome = match before.connection.filter(|_| !first) {
        Some(connection) => {
            let pdu = W::uplink(&connection, nas);
            network.try_step(&mut ue, Event::Ngap { assoc, amf_id: connection.amf_id, pdu: &pdu })
        }
        None => {
            let message = InitialUeMessage { nas: nas.to_vec(), ..contexts.initial.clone() };
            network.try_step(&mut ue, Event::Initial { assoc, message })
        }
    };
    let count = |ue: &UeContext| ue.security.as_ref().map(|s| (s.kamf, s.uplink));
    let acts = answers(&outcome) || ue.procedure != before.procedure || count(&ue) != count(before);
    if !acts && first {
        (ue.connection, ue.connections) = (before.connection, before.connections);
        assert_eq!(&ue, before);
    } else if !acts {
        assert_eq!((&ue, outcome.effects), (before, Vec::new()));
    }
    acts
}

/// Returns true if the UE or the subscriber service is sent a message.
fn answers(outcome: &StepOutput) -> bool {
    outcome.effects.iter().any(|effect| match effect {
        Effect::Authenticate(_) => true,
        Effect::Ngap { assoc, pdu } if assoc.dialect() == Dialect::Eps => {
            let kind = S1AP_PDU::decode(pdu).expect("a PDU").kind();
            matches!(kind, S1apPduKind::Initiating_downlinkNASTransport | S1apPduKind::Initiating_InitialContextSetup)
        }
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

fn is_service_request(plain: &[u8]) -> bool {
    plain.first() == Some(&0xc7)
}

/// Returns the message as received with this protection, if a UE in that context can send it so.
fn received(ue: &UeContext, keys: &NasSecurity, protection: Protection, plain: &[u8]) -> Vec<u8> {
    match protection {
        // Its header is its protection.
        Protection::Integrity if is_service_request(plain) => service_request(keys, keys.uplink),
        Protection::Plain => plain.to_vec(),
        Protection::Unverified if is_service_request(plain) => plain.to_vec(),
        Protection::Unverified => crate::lab::nas::unverified(plain),
        Protection::Integrity => protected(keys, INTEGRITY, plain),
        Protection::Ciphered => protected(keys, CIPHERED, plain),
        Protection::NewContext => protected(pending(ue).as_ref().unwrap_or(keys), NEW_CONTEXT, plain),
    }
}

/// Returns forms of a message that are never accepted: those with a header type that no uplink
/// message has, and ciphered messages with a COUNT that was used.
fn refused(keys: &NasSecurity, plain: &[u8]) -> Vec<Vec<u8>> {
    let headers = [3, PARTIALLY_CIPHERED, 6, 7, 8, 9, 10, 11].into_iter();
    let unknown = headers.filter(|header| *header != PARTIALLY_CIPHERED || partially_ciphered(keys, plain).is_none());
    let unknown = unknown.map(|header| with_header(keys, plain, header));
    let replayed = protected_at(keys, LAST_COUNT, CIPHERED, plain);
    unknown.chain([replayed]).collect()
}

/// Returns a message with a correct MAC, and this header type.
fn with_header(keys: &NasSecurity, plain: &[u8], header: u8) -> Vec<u8> {
    let right = protected(keys, INTEGRITY, plain);
    let discriminator = discriminator(keys.dialect(), header);
    [&discriminator, &right[discriminator.len()..]].concat()
}

/// Header type 5 of EPS (TS 24.301 table 9.3.1).
const PARTIALLY_CIPHERED: u8 = 5;

/// Returns the message with header type 5, if it is the one that may have it: CONTROL PLANE SERVICE
/// REQUEST. It is as protected as with header type 1.
fn partially_ciphered(keys: &NasSecurity, plain: &[u8]) -> Option<Vec<u8>> {
    let may_have_it = keys.dialect() == Dialect::Eps && plain.starts_with(&[0x07, 0x4d]);
    may_have_it.then(|| with_header(keys, plain, PARTIALLY_CIPHERED))
}

/// Returns the message with the COUNT of the last one: it counts as unverified.
fn replayed(keys: &NasSecurity, plain: &[u8]) -> Vec<u8> {
    match is_service_request(plain) {
        true => service_request(keys, LAST_COUNT),
        false => protected_at(keys, LAST_COUNT, INTEGRITY, plain),
    }
}

/// Sends every message in every state with every protection. Returns the number of cells and of the
/// accepted ones among them.
pub(crate) fn walk<W: Walked>(network: &mut W, contexts: &Contexts, rows: &[Row<W::Message>]) -> (usize, usize) {
    let (mut cells, mut accepted) = (0, 0);
    let dialect = contexts.new.dialect();
    // Arbitrary keys if the network has none.
    let (nia, nea) = (2.try_into().expect("an algorithm"), 2.try_into().expect("an algorithm"));
    let key_set = vireo_core::amf::context::KeySet::new(dialect, 0);
    let mut other = NasSecurity::agreed(key_set, [7; 32], nia, nea);
    other.uplink = LAST_COUNT + 1;
    for (message, states) in rows {
        for plain in W::samples(*message) {
            assert_eq!(W::read(&plain), Some(*message));
            for (state, wanted) in Exchange::ALL.into_iter().zip(states) {
                for (letter, situation) in SITUATIONS {
                    // The secure exchange is not established before the first message.
                    if situation.first && state == Exchange::Established {
                        continue;
                    }
                    let ue = contexts.context(state, situation);
                    let keys = ue.security.as_ref().unwrap_or(&other);
                    let cell = format!("{message:?}, {plain:02x?}, {state:?}, {situation:?}");
                    for (protection, wanted) in Protection::ALL.into_iter().zip(wanted.chars()) {
                        let accepts = wanted == '+' || wanted == letter;
                        if wanted == '-' {
                            continue;
                        }
                        let nas = received(&ue, keys, protection, &plain);
                        let acts = is_accepted(network, contexts, &ue, &nas, situation.first);
                        assert_eq!(acts, accepts, "{cell}, {protection:?}");
                        // Without keys the engine does not reach the state in which these are
                        // awaited, so that the table is checked directly.
                        let verdict = decide(W::TABLE, *message, (state, protection), situation);
                        assert_eq!(verdict == Verdict::Accepted, accepts, "the table: {cell}, {protection:?}");
                        (cells, accepted) = (cells + 1, accepted + usize::from(accepts));
                        if let (Protection::Integrity, Some(nas)) = (protection, partially_ciphered(keys, &plain)) {
                            let acts = is_accepted(network, contexts, &ue, &nas, situation.first);
                            assert_eq!(acts, accepts, "partially ciphered: {cell}");
                        }
                        if protection == Protection::Unverified {
                            let acts = is_accepted(network, contexts, &ue, &replayed(keys, &plain), situation.first);
                            assert_eq!(acts, accepts, "replayed: {cell}");
                        }
                    }
                    for nas in refused(keys, &plain) {
                        let acts = is_accepted(network, contexts, &ue, &nas, situation.first);
                        assert!(!acts, "header type or COUNT: {cell}, {nas:02x?}");
                    }
                }
            }
        }
    }
    (cells, accepted)
}

/// Asserts that rows and table have all messages, and that each rule names its clause.
pub(crate) fn assert_complete<M: Copy + PartialEq + Debug>(all: &[M], rows: &[Row<M>], table: &[Rule<M>]) {
    for (message, (named, _)) in all.iter().zip(rows) {
        assert_eq!(message, named);
        assert!(table.iter().any(|rule| rule.messages.contains(message)), "{message:?}");
    }
    assert_eq!(all.len(), rows.len());
    for rule in table {
        assert!(!rule.clause.is_empty() && !rule.messages.is_empty() && !rule.states.is_empty());
        // A rule that accepts no protection documents what the clause would allow.
        assert!(!rule.allowed.is_empty() || rule.stricter.is_some(), "{rule:?}");
    }
}
