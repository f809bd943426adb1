//! Uplink NAS messages: which may be acted on, and what they are for (TS 24.501 4.4.4.3).

use crate::config::CoreConfig;
use crate::context::{Procedure, SecurityFault, UeContext};
use crate::procedures::common::congestion;
use crate::procedures::{deregistration, registration, service_request, session};
use crate::schedule::kind::{self, DEREGISTRATION_REQUEST_BY_UE, REGISTRATION_REQUEST, SERVICE_REQUEST};
use crate::turn::{Note, Turn};
use vireo_types::Tmsi;
use vireo_wire::nas::*;

/// Security header types of an uplink message (TS 24.501 table 9.3.1).
const INTEGRITY: u8 = 1;
const CIPHERED: u8 = 2;
const CIPHERED_NEW_CONTEXT: u8 = 4;

/// Types of identity (9.11.3.4).
const GUTI: u8 = 2;
const S_TMSI: u8 = 4;

/// Messages that are acted on without protection although the UE has keys (4.4.4.3): Registration Request, Authentication
/// Response and Failure, Identity Response, Security Mode Reject. A Deregistration Request is not among them here: on a
/// connection whose UE has keys it must prove itself.
const UNPROTECTED: [u8; 5] = [0x41, 0x57, 0x59, 0x5c, 0x5f];

/// A message as it is acted on.
struct Received {
    message: Nas5gmmMessage,
    /// It came under the UE's security context in use, with this COUNT.
    verified: Option<u32>,
}

/// Whether an initial NAS message is of the UE that the context is: it verifies under the context's keys. One that
/// does not is another's, or of a UE that has lost its keys: it is served under a number of its own, so that nobody
/// can disturb a UE by naming its 5G-GUTI.
pub fn is_authentic(ue: &UeContext, nas: &[u8]) -> bool {
    let protected = matches!(nas, [0x7e, INTEGRITY | CIPHERED, ..]);
    protected && ue.security.as_ref().is_some_and(|security| security.verify(nas).is_ok())
}

/// The 5G-TMSI that an initial NAS message names its UE by, if this AMF gave it: for RAN nodes that do not say the
/// 5G-S-TMSI themselves (a UE that registers with its 5G-GUTI). The message is not decoded.
pub fn named_tmsi(nas: &[u8], config: &CoreConfig) -> Option<Tmsi> {
    // Registration, service and UE's deregistration requests alike: an octet of types, then the identity with a length of
    // two octets (TS 24.501 8.2.6, 8.2.16, 8.2.12).
    let (identity, length) = match kind::clear(nas)? {
        [REGISTRATION_REQUEST | SERVICE_REQUEST | DEREGISTRATION_REQUEST_BY_UE, _, high, low, rest @ ..] => {
            (rest, usize::from(u16::from_be_bytes([*high, *low])))
        }
        _ => return None,
    };
    // Figures 9.11.3.4.1 (5G-GUTI) and 9.11.3.4.5 (5G-S-TMSI): AMF Set ID 10 | AMF Pointer 6, then 5G-TMSI.
    let tail = match identity.get(..length)? {
        [kind, a, b, c, region, tail @ ..] if kind & 0x07 == GUTI && tail.len() == 6 => {
            if [*a, *b, *c] != config.guami().plmn.nas() || *region != config.amf_region {
                return None;
            }
            tail
        }
        [kind, tail @ ..] if kind & 0x07 == S_TMSI && tail.len() == 6 => tail,
        _ => return None,
    };
    let amf = u16::from_be_bytes([tail[0], tail[1]]);
    let ours = config.amf_set << 6 | u16::from(config.amf_pointer & 0x3f);
    (amf == ours).then(|| Tmsi(u32::from_be_bytes([tail[2], tail[3], tail[4], tail[5]])))
}

/// The NAS message of an Initial UE Message.
pub(super) fn initial(turn: &mut Turn<'_, '_>, nas: &[u8]) {
    if let Some(received) = receive(turn, nas) {
        begin(turn, received);
    }
}

/// The NAS message of an Initial UE Message of a UE that is turned away. It uses up its COUNT like any other.
pub(super) fn congested(turn: &mut Turn<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(turn, nas) else { return };
    match received.message {
        Nas5gmmMessage::RegistrationRequest(_) => {
            congestion::give_up_what_waits(turn);
            registration::turn_away(turn);
        }
        Nas5gmmMessage::ServiceRequest(_) => {
            congestion::give_up_what_waits(turn);
            service_request::reject(turn, GmmCause::Congestion);
        }
        // A UE that leaves makes room.
        _ => begin(turn, received),
    }
}

/// Acts on the first message of a connection.
fn begin(turn: &mut Turn<'_, '_>, received: Received) {
    let verified = received.verified;
    match received.message {
        Nas5gmmMessage::RegistrationRequest(request) => registration(turn, &request, verified),
        Nas5gmmMessage::ServiceRequest(request) => match verified {
            Some(count) if turn.ue.is_registered() => serve(turn, &request, count),
            // 5.6.1.5: implicitly deregistered if it is the UE, unknown if that is not sure.
            Some(_) => service_request::reject(turn, GmmCause::ImplicitlyDeregistered),
            None => service_request::reject(turn, GmmCause::UeIdentityCannotBeDerivedByTheNetwork),
        },
        Nas5gmmMessage::DeregistrationRequestUeOriginating(request) => {
            // A UE that is not known is as good as deregistered: it is answered, and nothing else changes.
            deregistration::by_ue(turn, request.de_registration_type.switch_off());
        }
        // 4.4.4.3 foresees no other initial message; TS 24.501 7.4 wants no state for it.
        _ => turn.note(Note::fault("nas-initial-unexpected")),
    }
}

/// A NAS message on a connection that is there.
pub(super) fn uplink(turn: &mut Turn<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(turn, nas) else { return };
    match received.message {
        Nas5gmmMessage::RegistrationRequest(request) => registration(turn, &request, received.verified),
        Nas5gmmMessage::ServiceRequest(request) => {
            if let (Some(count), true) = (received.verified, turn.ue.is_registered()) {
                serve(turn, &request, count);
            }
        }
        Nas5gmmMessage::DeregistrationRequestUeOriginating(request) => {
            turn.ue.procedure = None;
            deregistration::by_ue(turn, request.de_registration_type.switch_off());
        }
        Nas5gmmMessage::DeregistrationAcceptUeTerminated(_) => match turn.ue.procedure.take() {
            Some(Procedure::Deregistration(deregistering)) => deregistration::accepted(turn, deregistering),
            other => turn.ue.procedure = other,
        },
        Nas5gmmMessage::UlNasTransport(transport) => ul_transport(turn, &transport),
        Nas5gmmMessage::FiveGmmStatus(status) => {
            // 5.4.6: no state changes; what the UE did not like is counted.
            let _ = status.fgmm_cause;
            turn.note(Note::fault("5gmm-status-received"));
        }
        Nas5gmmMessage::ConfigurationUpdateComplete(_) | Nas5gmmMessage::NotificationResponse(_) => {}
        message => registering(turn, message),
    }
}

/// Messages of the sub-procedures of registration.
fn registering(turn: &mut Turn<'_, '_>, message: Nas5gmmMessage) {
    let procedure = match turn.ue.procedure.take() {
        Some(Procedure::Registration(procedure)) => *procedure,
        other => {
            turn.ue.procedure = other;
            match message {
                // One that comes again is one whose first copy was acted on.
                Nas5gmmMessage::RegistrationComplete(_) => {}
                Nas5gmmMessage::IdentityResponse(_)
                | Nas5gmmMessage::AuthenticationResponse(_)
                | Nas5gmmMessage::AuthenticationFailure(_)
                | Nas5gmmMessage::SecurityModeReject(_) => turn.not_foreseen(),
                _ => turn.out_of_place(),
            }
            return;
        }
    };
    let next = match message {
        Nas5gmmMessage::RegistrationComplete(_) => registration::complete(turn, procedure),
        Nas5gmmMessage::IdentityResponse(m) => registration::secure(turn, procedure, |s, t| s.on_identity(t, &m)),
        Nas5gmmMessage::AuthenticationResponse(m) => registration::secure(turn, procedure, |s, t| s.on_response(t, &m)),
        Nas5gmmMessage::AuthenticationFailure(m) => registration::secure(turn, procedure, |s, t| s.on_failure(t, &m)),
        Nas5gmmMessage::SecurityModeComplete(m) => {
            registration::secure(turn, procedure, |s, t| s.on_security_mode_complete(t, &m))
        }
        Nas5gmmMessage::SecurityModeReject(_) => {
            registration::secure(turn, procedure, |s, _| s.on_security_mode_reject())
        }
        _ => {
            turn.out_of_place();
            Some(procedure)
        }
    };
    turn.ue.procedure = next.map(Procedure::registration);
}

fn registration(turn: &mut Turn<'_, '_>, message: &NasRegistrationRequest, verified: Option<u32>) {
    // What is not clear text is inside a container, ciphered with the message's COUNT (4.4.6).
    let inner = match (verified, &message.nas_message_container) {
        (Some(count), Some(container)) => contained(turn, &container.value, count),
        _ => None,
    };
    let request = match inner {
        Some(Nas5gmmMessage::RegistrationRequest(inner)) => registration::nr::read(&inner),
        _ => registration::nr::read(message),
    };
    // 5.5.1.2.8 d to f: a new request ends the one that runs.
    turn.ue.procedure = None;
    // A service that waits for an SMF with it: the accept would go with the keys of before.
    turn.ue.chain.accept = None;
    let next = registration::begin(turn, request, verified.is_some());
    turn.ue.procedure = next.map(Procedure::registration);
}

fn serve(turn: &mut Turn<'_, '_>, message: &NasServiceRequest, count: u32) {
    let inner = message.nas_message_container.as_ref().and_then(|c| contained(turn, &c.value, count));
    let request = match inner {
        Some(Nas5gmmMessage::ServiceRequest(inner)) => service_request::nr::read(&inner),
        _ => service_request::nr::read(message),
    };
    let serving = service_request::begin(turn, request);
    turn.ue.procedure = serving.map(Procedure::ServiceRequest);
}

fn ul_transport(turn: &mut Turn<'_, '_>, message: &NasUlNasTransport) {
    if !turn.ue.is_registered() {
        return turn.out_of_place();
    }
    match session::nr::read(message) {
        Some(transport) => session::uplink(turn, transport),
        // SMS, LPP and the like: nobody here to take them; 5.4.5.2.5 has the network discard them.
        None => turn.note(Note::fault("nas-transport-unserved")),
    }
}

/// The message inside a NAS message container of an initial message.
fn contained(turn: &Turn<'_, '_>, octets: &[u8], count: u32) -> Option<Nas5gmmMessage> {
    let mut plain = octets.to_vec();
    turn.ue.security.as_ref()?.cipher_uplink(count, &mut plain);
    match Nas5gsMessage::decode(&plain).ok()? {
        Nas5gsMessage::Gmm(_, message) => Some(message),
        _ => None,
    }
}

/// The plain message of received octets, if it may be acted on.
fn receive(turn: &mut Turn<'_, '_>, nas: &[u8]) -> Option<Received> {
    match nas {
        [0x7e, 0, ..] => plain(turn, nas),
        [0x7e, INTEGRITY | CIPHERED, ..] if turn.ue.security.is_some() => {
            let security = turn.ue.security.as_mut()?;
            match security.unprotect(nas) {
                Ok(inner) => {
                    let count = security.uplink - 1;
                    decode(turn, &inner).map(|message| Received { message, verified: Some(count) })
                }
                Err(fault) => unverified(turn, nas, fault),
            }
        }
        [0x7e, INTEGRITY | CIPHERED, ..] => unverified(turn, nas, SecurityFault::BadMac),
        [0x7e, CIPHERED_NEW_CONTEXT, ..] => new_context(turn, nas),
        _ => {
            turn.note(Note::fault("nas-header"));
            None
        }
    }
}

/// A message under the security context that a Security Mode Command has offered.
fn new_context(turn: &mut Turn<'_, '_>, nas: &[u8]) -> Option<Received> {
    let plain = match &mut turn.ue.procedure {
        Some(Procedure::Registration(r)) => r.securing().and_then(|s| s.pending()).map(|s| s.unprotect(nas)),
        _ => None,
    };
    match plain {
        Some(Ok(plain)) => decode(turn, &plain).map(|message| Received { message, verified: None }),
        Some(Err(_)) | None => {
            turn.note(Note::fault("nas-bad-mac"));
            None
        }
    }
}

/// A protected message that does not verify: only what 4.4.4.3 lists is acted on, as if it were plain.
fn unverified(turn: &mut Turn<'_, '_>, nas: &[u8], fault: SecurityFault) -> Option<Received> {
    turn.note(Note::fault(match fault {
        SecurityFault::Truncated => "nas-truncated",
        SecurityFault::BadMac => "nas-bad-mac",
        SecurityFault::Exhausted => "nas-count-exhausted",
    }));
    // Ciphered with keys that are not known here, it says nothing; and on a connection whose UE has keys, an
    // unverified message is nobody's.
    if nas.get(1) != Some(&INTEGRITY) || turn.ue.security.is_some() {
        return None;
    }
    plain(turn, nas.get(7..)?)
}

fn plain(turn: &mut Turn<'_, '_>, nas: &[u8]) -> Option<Received> {
    // What must be protected is discarded unread, so that a UE with keys can be made to answer nothing without them.
    if turn.ue.security.is_some() && !nas.get(2).is_some_and(|kind| UNPROTECTED.contains(kind)) {
        turn.note(Note::fault("nas-unprotected"));
        return None;
    }
    decode(turn, nas).map(|message| Received { message, verified: None })
}

/// Decodes a plain message; one that is at fault gets the answer of TS 24.501 clause 7.
fn decode(turn: &mut Turn<'_, '_>, plain: &[u8]) -> Option<Nas5gmmMessage> {
    let received = Nas5gsMessage::decode(plain);
    let message = match &received {
        Ok(Nas5gsMessage::Gmm(_, message)) if message.unknown_ies().is_empty() => match received {
            Ok(Nas5gsMessage::Gmm(_, message)) => return Some(message),
            _ => return None,
        },
        Ok(Nas5gsMessage::Gmm(_, message)) => Some(message.clone()),
        Ok(_) => {
            // 5GSM outside a transport, or protection inside protection: no such message (4.2).
            turn.note(Note::fault("nas-not-5gmm"));
            return None;
        }
        Err(_) => None,
    };
    match Nas5gsMessage::answer_to(plain, &received, Direction::Uplink) {
        Some(answer) => {
            turn.note(Note::fault("nas-malformed"));
            if let Nas5gsMessage::Gmm(_, answer) = answer {
                turn.send_nas(answer);
            }
            None
        }
        None => {
            if message.is_none() {
                turn.note(Note::fault("nas-malformed"));
            }
            message
        }
    }
}
