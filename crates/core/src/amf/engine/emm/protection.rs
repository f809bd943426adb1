//! Table of the protection of uplink EMM and ESM messages (TS 24.301 4.4.4.3, 4.4.5).
//!
//! It is used as that of 5GMM ([`crate::amf::engine::protection`]), with the same states and
//! protections.

use crate::amf::engine::protection::{Condition, Exchange, Protection, Rule, WITHOUT_VERIFIED_MAC};
use crate::amf::procedures::common::security_setup::AwaitedResponse;
use crate::schedule::kind::emm;

/// Uplink message of EPS NAS, by its message type (TS 24.301 table 9.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    AttachRequest,
    AttachComplete,
    /// DETACH REQUEST that the UE originates.
    DetachRequest,
    /// DETACH ACCEPT of the UE, to a request of the network.
    DetachAccept,
    UpdateRequest,
    UpdateComplete,
    /// SERVICE REQUEST, whose header has a short MAC.
    ServiceRequest,
    ExtendedServiceRequest,
    ControlPlaneServiceRequest,
    GutiReallocationComplete,
    AuthenticationResponse,
    AuthenticationFailure,
    IdentityResponse,
    SecurityModeComplete,
    SecurityModeReject,
    EmmStatus,
    /// UPLINK NAS TRANSPORT and UPLINK GENERIC NAS TRANSPORT.
    Transport,
    /// ESM message outside an EMM message.
    Esm,
    /// Message type that is not an uplink message.
    Unknown,
}

impl Message {
    /// All messages.
    pub const ALL: [Message; 19] = [
        Message::AttachRequest,
        Message::AttachComplete,
        Message::DetachRequest,
        Message::DetachAccept,
        Message::UpdateRequest,
        Message::UpdateComplete,
        Message::ServiceRequest,
        Message::ExtendedServiceRequest,
        Message::ControlPlaneServiceRequest,
        Message::GutiReallocationComplete,
        Message::AuthenticationResponse,
        Message::AuthenticationFailure,
        Message::IdentityResponse,
        Message::SecurityModeComplete,
        Message::SecurityModeReject,
        Message::EmmStatus,
        Message::Transport,
        Message::Esm,
        Message::Unknown,
    ];

    /// Returns the message type of a plain message, or of a SERVICE REQUEST. Returns `None` if the
    /// octets are something else.
    pub fn from_octets(plain: &[u8]) -> Option<Self> {
        if emm::is_service_request(plain) {
            return Some(Message::ServiceRequest);
        }
        let kind = match plain {
            [0x07, kind, ..] => kind,
            [first, _, _, ..] if first & 0x0f == 2 => return Some(Message::Esm),
            _ => return None,
        };
        Some(match kind {
            0x41 => Message::AttachRequest,
            0x43 => Message::AttachComplete,
            0x45 => Message::DetachRequest,
            0x46 => Message::DetachAccept,
            0x48 => Message::UpdateRequest,
            0x4a => Message::UpdateComplete,
            0x4c => Message::ExtendedServiceRequest,
            0x4d => Message::ControlPlaneServiceRequest,
            0x51 => Message::GutiReallocationComplete,
            0x53 => Message::AuthenticationResponse,
            0x56 => Message::IdentityResponse,
            0x5c => Message::AuthenticationFailure,
            0x5e => Message::SecurityModeComplete,
            0x5f => Message::SecurityModeReject,
            0x60 => Message::EmmStatus,
            0x63 | 0x69 => Message::Transport,
            _ => Message::Unknown,
        })
    }
}

use Exchange::{Context, Established, NoContext};
use Message as M;
use Protection::{Ciphered, Integrity, NewContext};

/// All messages but SECURITY MODE COMPLETE and SERVICE REQUEST.
const PROTECTED: &[Message] = &[
    M::AttachRequest,
    M::AttachComplete,
    M::DetachRequest,
    M::DetachAccept,
    M::UpdateRequest,
    M::UpdateComplete,
    M::ExtendedServiceRequest,
    M::ControlPlaneServiceRequest,
    M::GutiReallocationComplete,
    M::AuthenticationResponse,
    M::AuthenticationFailure,
    M::IdentityResponse,
    M::SecurityModeReject,
    M::EmmStatus,
    M::Transport,
    M::Esm,
    M::Unknown,
];

/// Messages that TS 24.301 4.4.4.3 allows before the secure exchange is established, and initial
/// messages.
const EARLY: &[Message] = &[
    M::AttachRequest,
    M::UpdateRequest,
    M::ExtendedServiceRequest,
    M::ControlPlaneServiceRequest,
    M::IdentityResponse,
    M::AuthenticationResponse,
    M::AuthenticationFailure,
    M::SecurityModeReject,
    M::DetachRequest,
    M::DetachAccept,
];

/// The rules. A message is accepted if any rule accepts it.
pub const TABLE: &[Rule<Message>] = &[
    Rule {
        messages: PROTECTED,
        states: &[Established],
        allowed: &[Ciphered],
        condition: Condition::Always,
        clause: "4.4.4.3, 4.4.5",
        stricter: None,
    },
    Rule {
        messages: &[M::AttachRequest, M::UpdateRequest],
        states: &[Established],
        allowed: &[Integrity],
        condition: Condition::Always,
        clause: "4.4.5: these are never ciphered",
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
        messages: &[M::ServiceRequest],
        states: &[Context, Established],
        allowed: &[Integrity],
        condition: Condition::Always,
        clause: "4.4.4.3, 5.6.1",
        stricter: None,
    },
    Rule {
        messages: &[M::SecurityModeComplete],
        states: &[NoContext, Context, Established],
        allowed: &[NewContext],
        condition: Condition::Awaits(AwaitedResponse::SecurityMode),
        clause: "4.4.4.3, 5.4.3.3, 5.4.3.4; TS 33.401 7.2.4.4",
        stricter: None,
    },
    Rule {
        messages: &[M::AttachRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::Always,
        clause: "4.4.4.3",
        stricter: None,
    },
    Rule {
        messages: &[M::UpdateRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::First,
        clause: "4.4.4.3, 5.5.3.2.5",
        stricter: Some("it is rejected: the UE has to attach"),
    },
    Rule {
        messages: &[M::AttachRequest, M::UpdateRequest, M::ServiceRequest],
        states: &[Context],
        allowed: &[],
        condition: Condition::Always,
        clause: "4.4.4.3",
        stricter: Some(
            "the first message of a connection that does not verify gets a context of its own, so that naming a UE's \
             GUTI changes nothing of that UE; the UE of this connection has proved its keys by the first message",
        ),
    },
    Rule::awaited(&[M::IdentityResponse], AwaitedResponse::Identity, "4.4.4.3", None),
    Rule::awaited(
        &[M::AuthenticationResponse, M::AuthenticationFailure],
        AwaitedResponse::Challenge,
        "4.4.4.3",
        Some("only while an Authentication Request is not answered"),
    ),
    Rule::awaited(
        &[M::SecurityModeReject],
        AwaitedResponse::SecurityMode,
        "4.4.4.3, 5.4.3.5",
        Some("only while a Security Mode Command is not answered"),
    ),
    Rule {
        messages: &[M::DetachRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::Always,
        clause: "4.4.4.3",
        stricter: Some("it is answered, and an attach that runs goes on, so that nobody else can end it"),
    },
    Rule {
        messages: &[M::DetachRequest, M::DetachAccept],
        states: &[Context],
        allowed: &[],
        condition: Condition::Always,
        clause: "4.4.4.3",
        stricter: Some("a UE with keys is detached only by its own message; the clause allows to ignore others"),
    },
    Rule {
        messages: &[M::ServiceRequest, M::ExtendedServiceRequest, M::ControlPlaneServiceRequest],
        states: &[NoContext],
        allowed: WITHOUT_VERIFIED_MAC,
        condition: Condition::First,
        clause: "4.4.4.3, 5.6.1.5",
        stricter: Some("it is rejected with #9"),
    },
    Rule {
        messages: &[M::Unknown],
        states: &[NoContext],
        allowed: &[],
        condition: Condition::Always,
        clause: "7.4",
        stricter: Some("it is not answered: the UE discards an EMM STATUS without protection (4.4.4.2)"),
    },
];
