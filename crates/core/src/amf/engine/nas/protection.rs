//! Table of the protection of uplink NAS messages (TS 24.501 4.4.4.3, 4.4.5).
//!
//! The receive path calls [`verdict`] for every message before it decodes the message and before it
//! uses up a NAS COUNT. A message that [`TABLE`] does not accept is discarded without an answer.
//! The table decides on protection only: a procedure still refuses a protected message that it does
//! not expect.

use crate::amf::context::{Procedure, RanContext, UeContext};
use crate::amf::procedures::common::security_setup::AwaitedResponse;

/// Security of the N1 NAS signalling connection (TS 24.501 4.4.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The network has no NAS security context of the UE.
    NoContext,
    /// The network has a security context, and the secure exchange of NAS messages is not
    /// established on this connection. The first message of the connection was verified under the
    /// context (`engine::is_authentic`).
    Context,
    /// The secure exchange of NAS messages is established on this connection.
    Established,
}

impl Exchange {
    /// All states.
    pub const ALL: [Exchange; 3] = [Exchange::NoContext, Exchange::Context, Exchange::Established];

    /// Returns the state of a UE's connection.
    pub fn from_context(ue: &UeContext) -> Self {
        match (&ue.security, ue.connection.map(|c| c.ran)) {
            (None, _) => Exchange::NoContext,
            (Some(_), Some(RanContext::None) | None) => Exchange::Context,
            // A RAN context is set up together with a ciphered message. A connection that is being
            // released accepts no message with less protection.
            (Some(_), Some(_)) => Exchange::Established,
        }
    }
}

/// Protection of a received message, as far as the network has verified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Security header type 0.
    Plain,
    /// Security header type 1. The MAC is wrong, or there is no security context to verify it
    /// under.
    Unverified,
    /// Security header type 1, verified under the context in use.
    Integrity,
    /// Security header type 2, verified under the context in use.
    Ciphered,
    /// Security header type 4, verified under the context of a Security Mode Command without a
    /// response so far.
    NewContext,
}

impl Protection {
    /// All protections. Header type 3 and ciphered messages that do not verify cannot be read, and
    /// have none.
    pub const ALL: [Protection; 5] = [
        Protection::Plain,
        Protection::Unverified,
        Protection::Integrity,
        Protection::Ciphered,
        Protection::NewContext,
    ];

    /// Returns true if the message is verified to come from the UE.
    pub fn is_verified(self) -> bool {
        !matches!(self, Protection::Plain | Protection::Unverified)
    }
}

/// Uplink 5GMM message, by its message type (TS 24.501 table 9.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    RegistrationRequest,
    RegistrationComplete,
    /// DEREGISTRATION REQUEST that the UE originates.
    DeregistrationRequest,
    /// DEREGISTRATION ACCEPT of the UE, to a request of the network.
    DeregistrationAccept,
    ServiceRequest,
    /// Not implemented by any procedure.
    ControlPlaneServiceRequest,
    /// NETWORK SLICE-SPECIFIC AUTHENTICATION COMPLETE and the relay messages, which no procedure
    /// implements.
    Unserved,
    ConfigurationUpdateComplete,
    AuthenticationResponse,
    AuthenticationFailure,
    IdentityResponse,
    SecurityModeComplete,
    SecurityModeReject,
    FiveGmmStatus,
    NotificationResponse,
    UlNasTransport,
    /// Message type that is not an uplink message.
    Unknown,
}

impl Message {
    /// All messages.
    pub const ALL: [Message; 17] = [
        Message::RegistrationRequest,
        Message::RegistrationComplete,
        Message::DeregistrationRequest,
        Message::DeregistrationAccept,
        Message::ServiceRequest,
        Message::ControlPlaneServiceRequest,
        Message::Unserved,
        Message::ConfigurationUpdateComplete,
        Message::AuthenticationResponse,
        Message::AuthenticationFailure,
        Message::IdentityResponse,
        Message::SecurityModeComplete,
        Message::SecurityModeReject,
        Message::FiveGmmStatus,
        Message::NotificationResponse,
        Message::UlNasTransport,
        Message::Unknown,
    ];

    /// Returns the message type of a plain 5GMM message. Returns `None` if the octets are something
    /// else.
    pub fn from_octets(plain: &[u8]) -> Option<Self> {
        let [0x7e, 0, kind, ..] = plain else { return None };
        Some(match kind {
            0x41 => Message::RegistrationRequest,
            0x43 => Message::RegistrationComplete,
            0x45 => Message::DeregistrationRequest,
            0x48 => Message::DeregistrationAccept,
            0x4c => Message::ServiceRequest,
            0x4f => Message::ControlPlaneServiceRequest,
            0x51 | 0x69 | 0x6c => Message::Unserved,
            0x55 => Message::ConfigurationUpdateComplete,
            0x57 => Message::AuthenticationResponse,
            0x59 => Message::AuthenticationFailure,
            0x5c => Message::IdentityResponse,
            0x5e => Message::SecurityModeComplete,
            0x5f => Message::SecurityModeReject,
            0x64 => Message::FiveGmmStatus,
            0x66 => Message::NotificationResponse,
            0x67 => Message::UlNasTransport,
            _ => Message::Unknown,
        })
    }
}

/// Condition for accepting a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// The message is the first one of its connection.
    First,
    /// The network waits for this response.
    Awaits(AwaitedResponse),
}

/// State of the connection that a [`Condition`] refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The message is the first one of its connection.
    pub first: bool,
    /// Response that the network waits for.
    pub awaited: AwaitedResponse,
}

impl Situation {
    /// Returns the situation of a UE's connection.
    pub fn from_context(ue: &UeContext, first: bool) -> Self {
        let awaited = ue.procedure.as_ref().map_or(AwaitedResponse::Nothing, Procedure::awaited);
        Situation { first, awaited }
    }

    fn fulfils(self, condition: Condition) -> bool {
        match condition {
            Condition::Always => true,
            Condition::First => self.first,
            Condition::Awaits(awaited) => self.awaited == awaited,
        }
    }
}

/// One rule of a table, for messages of type `M`.
#[derive(Clone, Copy, Debug)]
pub struct Rule<M: 'static = Message> {
    /// Messages that the rule applies to.
    pub messages: &'static [M],
    /// States that the rule applies to.
    pub states: &'static [Exchange],
    /// Accepted protections. Empty if the rule only documents that none is accepted.
    pub allowed: &'static [Protection],
    pub condition: Condition,
    /// Clause, of TS 24.501 unless another specification is named.
    pub clause: &'static str,
    /// Deviation to the stricter side of the clause, with the reason.
    pub stricter: Option<&'static str>,
}

impl<M> Rule<M> {
    /// Returns the rule of an answer to the network that needs no protection while it is awaited.
    pub const fn awaited(
        messages: &'static [M],
        awaited: AwaitedResponse,
        clause: &'static str,
        stricter: Option<&'static str>,
    ) -> Self {
        let condition = Condition::Awaits(awaited);
        Rule { messages, states: &[NoContext, Context], allowed: WITHOUT_VERIFIED_MAC, condition, clause, stricter }
    }

    /// Returns the rule of a message type that is not known: the answer to it needs no protection
    /// before there is a security context.
    pub const fn unknown(messages: &'static [M]) -> Self {
        Rule {
            messages,
            states: &[NoContext],
            allowed: WITHOUT_VERIFIED_MAC,
            condition: Condition::Always,
            clause: "7.4",
            stricter: None,
        }
    }
}

/// Decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// Its protection is sufficient, but the network does not wait for it.
    NotExpected,
    /// It requires another protection.
    Unprotected,
}

use Exchange::{Context, Established, NoContext};
use Message as M;
use Protection::{Ciphered, Integrity, NewContext, Plain, Unverified};

/// All messages but SECURITY MODE COMPLETE.
const PROTECTED: &[Message] = &[
    M::RegistrationRequest,
    M::RegistrationComplete,
    M::DeregistrationRequest,
    M::DeregistrationAccept,
    M::ServiceRequest,
    M::ControlPlaneServiceRequest,
    M::Unserved,
    M::ConfigurationUpdateComplete,
    M::AuthenticationResponse,
    M::AuthenticationFailure,
    M::IdentityResponse,
    M::SecurityModeReject,
    M::FiveGmmStatus,
    M::NotificationResponse,
    M::UlNasTransport,
    M::Unknown,
];

/// Messages that TS 24.501 4.4.4.3 allows before the secure exchange is established.
const EARLY: &[Message] = &[
    M::RegistrationRequest,
    M::IdentityResponse,
    M::AuthenticationResponse,
    M::AuthenticationFailure,
    M::SecurityModeReject,
    M::DeregistrationRequest,
    M::DeregistrationAccept,
    M::ServiceRequest,
];

pub(crate) const WITHOUT_VERIFIED_MAC: &[Protection] = &[Plain, Unverified];

/// The rules. A message is accepted if any rule accepts it.
pub const TABLE: &[Rule] = &[
    Rule {
        messages: PROTECTED,
        states: &[Established],
        allowed: &[Ciphered],
        condition: Condition::Always,
        clause: "4.4.4.3, 4.4.5",
        stricter: None,
    },
    Rule {
        messages: EARLY,
        states: &[Context],
        allowed: &[Integrity, Ciphered],
        condition: Condition::Always,
        clause: "4.4.4.3, 4.4.5",
        stricter: None,
    },
    Rule {
        messages: &[M::SecurityModeComplete],
        states: &[NoContext, Context, Established],
        allowed: &[NewContext],
        condition: Condition::Awaits(AwaitedResponse::SecurityMode),
        clause: "4.4.4.3, 5.4.2.3, 5.4.2.4; TS 33.501 6.7.2",
        stricter: None,
    },
    Rule {
        messages: &[M::RegistrationRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::Always,
        clause: "4.4.4.3 a",
        stricter: None,
    },
    Rule {
        messages: &[M::RegistrationRequest, M::ServiceRequest],
        states: &[Context],
        allowed: &[],
        condition: Condition::Always,
        clause: "4.4.4.3 a, h",
        stricter: Some(
            "the first message of a connection that does not verify gets a context of its own, so that naming a UE's \
             5G-GUTI changes nothing of that UE; the UE of this connection has proved its keys by the first message",
        ),
    },
    Rule::awaited(&[M::IdentityResponse], AwaitedResponse::Identity, "4.4.4.3 b", None),
    Rule::awaited(
        &[M::AuthenticationResponse],
        AwaitedResponse::Challenge,
        "4.4.4.3 c",
        Some("only while an Authentication Request is not answered"),
    ),
    Rule::awaited(
        &[M::AuthenticationFailure],
        AwaitedResponse::Challenge,
        "4.4.4.3 d",
        Some("only while an Authentication Request is not answered"),
    ),
    Rule::awaited(
        &[M::SecurityModeReject],
        AwaitedResponse::SecurityMode,
        "4.4.4.3 e, 5.4.2.5",
        Some("only while a Security Mode Command is not answered"),
    ),
    Rule {
        messages: &[M::DeregistrationRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::Always,
        clause: "4.4.4.3 f",
        stricter: Some("it is answered, and a registration that runs goes on, so that nobody else can end it"),
    },
    Rule {
        messages: &[M::DeregistrationRequest],
        states: &[Context],
        allowed: &[],
        condition: Condition::Always,
        clause: "4.4.4.3 f",
        stricter: Some("a UE with keys is deregistered only by its own message; the clause allows to ignore others"),
    },
    Rule {
        messages: &[M::DeregistrationAccept],
        states: &[NoContext, Context],
        allowed: &[],
        condition: Condition::Always,
        clause: "4.4.4.3 g",
        stricter: Some("the network deregisters only UEs with keys, and these protect their answer"),
    },
    Rule {
        messages: &[M::ServiceRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::First,
        clause: "4.4.4.3 h, 5.6.1.5",
        stricter: Some("it is rejected with #9"),
    },
    Rule {
        messages: &[M::ControlPlaneServiceRequest],
        states: &[NoContext, Context],
        allowed: &[],
        condition: Condition::Always,
        clause: "4.4.4.3 i",
        stricter: Some("no procedure serves it"),
    },
    Rule::unknown(&[M::Unknown]),
];

/// Returns the decision of [`TABLE`] about a message.
pub fn verdict(message: Message, state: Exchange, protection: Protection, situation: Situation) -> Verdict {
    decide(TABLE, message, (state, protection), situation)
}

/// Returns the decision of a table about a message.
pub fn decide<M: PartialEq>(
    table: &[Rule<M>],
    message: M,
    (state, protection): (Exchange, Protection),
    situation: Situation,
) -> Verdict {
    let of = |rule: &&Rule<M>| {
        rule.states.contains(&state) && rule.allowed.contains(&protection) && rule.messages.contains(&message)
    };
    let mut verdict = Verdict::Unprotected;
    for rule in table.iter().filter(of) {
        if situation.fulfils(rule.condition) {
            return Verdict::Accepted;
        }
        verdict = Verdict::NotExpected;
    }
    verdict
}
