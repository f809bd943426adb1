//! Uplink NAS messages: protection checks and dispatch (TS 24.501 4.4.4.3).

pub mod protection;

use super::authentication::{self, secure};
use crate::amf::context::{NasSecurity, PARTIALLY_CIPHERED, Procedure, SecurityFault, UeContext};
use crate::amf::n2::NasIdentity;
use crate::amf::procedures::common::moves::{self, MoveRequest};
use crate::amf::procedures::common::security_setup::nr;
use crate::amf::procedures::common::{areas, congestion};
use crate::amf::procedures::handover::unconfirmed_keys;
use crate::amf::procedures::{configuration_update, deregistration, registration, service_request, session};
use crate::schedule::kind::emm::{CONTROL_PLANE_SERVICE_REQUEST, is_service_request};
use crate::step::{Kind, Note, StepContext};
use protection::{Exchange, Message, Protection, Rule, Situation, TABLE, Verdict, decide};
use std::borrow::Cow;
use vireo_types::Dialect;
use vireo_wire::nas::*;

/// Security header types of an uplink message (TS 24.501 table 9.3.1).
const INTEGRITY: u8 = 1;
const CIPHERED: u8 = 2;
const CIPHERED_NEW_CONTEXT: u8 = 4;

/// Uplink message that passed the protection checks.
struct ReceivedNas {
    message: Nas5gmmMessage,
    /// NAS COUNT, if the message verified under the UE's security context in use.
    verified: Option<u32>,
}

/// Returns true if an initial NAS message verifies under the keys of the context, and thus comes
/// from its UE. Another one comes from another UE or from a UE that has lost its keys. It is served
/// under a new LTMSI, so that naming a UE's 5G-GUTI cannot disturb that UE.
pub fn is_authentic(ue: &UeContext, nas: &[u8]) -> bool {
    let Some(security) = &ue.security else { return false };
    let is_at_target = || unconfirmed_keys(ue).is_some_and(|keys| is_protected_by(&keys, nas));
    is_protected_by(security, nas) || moves::read(security, nas).is_some() || is_at_target()
}

/// Returns true if the message verifies under these keys, in their dialect.
pub(super) fn is_protected_by(security: &NasSecurity, nas: &[u8]) -> bool {
    if security.dialect() == Dialect::Eps && is_service_request(nas) {
        return security.verify_service_request(nas).is_ok();
    }
    let header = header(security.dialect(), nas);
    let is_protected = matches!(header, Some(INTEGRITY | CIPHERED)) || is_partially_ciphered(nas);
    is_protected && security.verify(nas).is_ok()
}

/// Returns true for a CONTROL PLANE SERVICE REQUEST of EPS, whose container alone is ciphered (TS
/// 24.301 4.4.5). No other message may have its header type (table 9.3.1).
fn is_partially_ciphered(nas: &[u8]) -> bool {
    const HEADER: u8 = PARTIALLY_CIPHERED << 4 | 0x07;
    matches!(nas, [HEADER, _, _, _, _, _, 0x07, CONTROL_PLANE_SERVICE_REQUEST, ..])
}

/// Returns the security header type of a message of the dialect.
fn header(dialect: Dialect, nas: &[u8]) -> Option<u8> {
    match (dialect, nas) {
        (Dialect::Nr, [0x7e, header, ..]) => Some(*header),
        (Dialect::Eps, [first, ..]) if first & 0x0f == 0x07 => Some(first >> 4),
        _ => None,
    }
}

/// Handles the NAS message of an Initial UE Message.
pub(super) fn initial(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(ctx, nas, true) else { return };
    on_named(ctx, received.verified, NasIdentity::peek(nas));
    begin(ctx, received);
}

/// Handles the GUTI in a first message, if the message is verified.
pub(super) fn on_named(ctx: &mut StepContext<'_, '_>, verified: Option<u32>, identity: Option<NasIdentity>) {
    if let (Some(_), Some(tmsi)) = (verified, identity.and_then(|identity| identity.tmsi_of(ctx.env.config))) {
        registration::on_guti_used(ctx, tmsi);
    }
}

/// Handles the NAS message of an Initial UE Message of a UE that is rejected for congestion. Its
/// COUNT is used up like any other.
pub(super) fn on_rejected_for_congestion(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(ctx, nas, true) else { return };
    match received.message {
        Nas5gmmMessage::RegistrationRequest(_) => {
            congestion::drop_pending_work(ctx);
            registration::reject_overloaded(ctx, Kind::Registration);
        }
        Nas5gmmMessage::ServiceRequest(_) => {
            congestion::drop_pending_work(ctx);
            service_request::reject(ctx, GmmCause::Congestion);
        }
        // A deregistering UE frees resources.
        _ => begin(ctx, received),
    }
}

/// Handles the first message of a connection.
fn begin(ctx: &mut StepContext<'_, '_>, received: ReceivedNas) {
    let verified = received.verified;
    match received.message {
        Nas5gmmMessage::RegistrationRequest(request) => registration(ctx, &request, verified),
        Nas5gmmMessage::ServiceRequest(request) => match verified {
            Some(count) if ctx.ue.is_registered() => serve(ctx, &request, count),
            // TS 24.501 5.6.1.5: "implicitly deregistered" if the UE is verified, "identity cannot
            // be derived" otherwise.
            Some(_) => service_request::reject(ctx, GmmCause::ImplicitlyDeregistered),
            None => service_request::reject(ctx, GmmCause::UeIdentityCannotBeDerivedByTheNetwork),
        },
        Nas5gmmMessage::DeregistrationRequestUeOriginating(request) => {
            let kind = request.de_registration_type;
            if concerns_other_access(&kind) {
                return deregistration::from_other_services(ctx, kind.switch_off());
            }
            // An unknown UE counts as deregistered: it gets an answer, and nothing else changes.
            deregistration::by_ue(ctx, kind.switch_off());
        }
        // TS 24.501 4.4.4.3 has no other initial message; 7.4 requires no state for it.
        _ => ctx.note(Note::fault("nas-initial-unexpected")),
    }
}

/// Returns true if a deregistration concerns non-3GPP access alone (9.11.3.20), by which no UE is
/// registered.
fn concerns_other_access(kind: &NasDeRegistrationType) -> bool {
    kind.deregistration_access_type() == Some(DeregistrationAccessType::Non3GppAccess)
}

/// Handles a NAS message on an existing connection.
pub(super) fn uplink(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(ctx, nas, false) else { return };
    let deregisters = matches!(ctx.ue.procedure, Some(Procedure::Deregistration(_)));
    let is_update = |request: &NasRegistrationRequest| registration::nr::read(request).kind.is_update();
    match received.message {
        // 5.5.2.3.5: the deregistration by the network continues. An initial registration and a
        // deregistration of the UE end it.
        Nas5gmmMessage::ServiceRequest(_) if deregisters => ctx.note(Note::fault("nas-during-deregistration")),
        Nas5gmmMessage::RegistrationRequest(request) if deregisters && is_update(&request) => {
            ctx.note(Note::fault("nas-during-deregistration"));
        }
        Nas5gmmMessage::RegistrationRequest(request) => registration(ctx, &request, received.verified),
        Nas5gmmMessage::ServiceRequest(request) => match received.verified {
            Some(count) if ctx.ue.is_registered() => serve(ctx, &request, count),
            // 5.6.1.5; a registration in progress continues.
            _ if ctx.ue.procedure.is_none() => service_request::reject(ctx, GmmCause::ImplicitlyDeregistered),
            _ => ctx.send_status_98(),
        },
        Nas5gmmMessage::DeregistrationRequestUeOriginating(request) => {
            let switch_off = request.de_registration_type.switch_off();
            if concerns_other_access(&request.de_registration_type) {
                return deregistration::from_other_services(ctx, switch_off);
            }
            if received.verified.is_none() && ctx.ue.procedure.is_some() {
                return deregistration::on_unprotected_request(ctx, switch_off);
            }
            authentication::end_procedure(ctx);
            deregistration::by_ue(ctx, switch_off);
        }
        Nas5gmmMessage::DeregistrationAcceptUeTerminated(_) => match ctx.ue.procedure.take() {
            Some(Procedure::Deregistration(deregistering)) => deregistration::on_accept(ctx, deregistering),
            other => ctx.ue.procedure = other,
        },
        Nas5gmmMessage::UlNasTransport(transport) => ul_transport(ctx, &transport),
        Nas5gmmMessage::FiveGmmStatus(status) => {
            // TS 24.501 5.4.6: no state changes; only a counter.
            let _ = status.fgmm_cause;
            ctx.note(Note::fault("5gmm-status-received"));
        }
        Nas5gmmMessage::ConfigurationUpdateComplete(_) => on_configuration_update_complete(ctx),
        Nas5gmmMessage::NotificationResponse(_) => {}
        message => registering(ctx, message),
    }
}

/// Handles the answer of the UE to a configuration update. A repeat, or that to a command without
/// procedure, changes nothing.
pub(super) fn on_configuration_update_complete(ctx: &mut StepContext<'_, '_>) {
    match ctx.ue.procedure.take() {
        Some(Procedure::ConfigurationUpdate(updating)) => configuration_update::complete(ctx, updating),
        other => ctx.ue.procedure = other,
    }
}

/// Handles the completion of a registration, attach or update by the UE. Returns false for a
/// repeat, which changes nothing: the first copy was processed.
pub(super) fn on_registration_complete(ctx: &mut StepContext<'_, '_>) -> bool {
    match ctx.ue.procedure.take() {
        Some(Procedure::Registration(procedure)) => {
            ctx.ue.procedure = registration::complete(ctx, *procedure).map(Procedure::registration);
            true
        }
        other => {
            ctx.ue.procedure = other;
            false
        }
    }
}

/// Handles messages of a registration, and of the authentication of a registered UE.
fn registering(ctx: &mut StepContext<'_, '_>, message: Nas5gmmMessage) {
    match message {
        Nas5gmmMessage::RegistrationComplete(_) => {
            on_registration_complete(ctx);
        }
        Nas5gmmMessage::IdentityResponse(m) => secure(ctx, |s, t| s.on_identity(t, nr::identity(&m))),
        Nas5gmmMessage::AuthenticationResponse(m) => secure(ctx, |s, t| match nr::eap_message(&m) {
            Some(packet) => s.on_eap_response(t, packet),
            None => s.on_response(t, nr::response(&m)),
        }),
        Nas5gmmMessage::AuthenticationFailure(m) => secure(ctx, |s, t| s.on_failure(t, nr::failure(&m))),
        Nas5gmmMessage::SecurityModeComplete(m) => {
            let (pei, container) = nr::complete(&m);
            secure(ctx, |s, t| s.on_security_mode_complete(t, pei, container));
        }
        Nas5gmmMessage::SecurityModeReject(_) => secure(ctx, |s, _| s.on_security_mode_reject()),
        _ => ctx.send_status_98(),
    }
}

fn registration(ctx: &mut StepContext<'_, '_>, message: &NasRegistrationRequest, verified: Option<u32>) {
    // Non-cleartext IEs are in a container, ciphered with the message's COUNT (TS 24.501 4.4.6).
    // The core has no key for those of a UE from EPS, which repeats them under its new keys.
    let is_own = ctx.ue.session_dialect() == Dialect::Nr;
    let inner = match (verified, &message.nas_message_container) {
        (Some(count), Some(container)) if is_own => decode_container(ctx, &container.value, count),
        _ => None,
    };
    let message = match &inner {
        Some(Nas5gmmMessage::RegistrationRequest(inner)) => inner,
        _ => message,
    };
    let mut request = registration::nr::read(message);
    registration::nr::reconcile_bearers(ctx.ue, message, &mut request);
    if registration::repeats(ctx, &request, &[]) {
        return;
    }
    // A request on a connection, as the first one of a connection (5.5.1.2.8 d, f).
    on_named(ctx, verified, NasIdentity::from_mobile_identity(&message.fgs_mobile_identity.value));
    // TS 24.501 5.5.1.2.8 d to f: another request ends the procedure in progress.
    authentication::end_procedure(ctx);
    // Drops a service accept that waits for an SMF: it would be sent under the old keys.
    ctx.ue.remote_sessions.pending_accept = None;
    if verified.is_some() && is_own {
        registration::nr::set_paging(ctx, message);
    }
    let next = registration::begin(ctx, request, verified.is_some());
    ctx.ue.procedure = next.map(Procedure::registration);
}

fn serve(ctx: &mut StepContext<'_, '_>, message: &NasServiceRequest, count: u32) {
    let inner = message.nas_message_container.as_ref().and_then(|c| decode_container(ctx, &c.value, count));
    let request = match inner {
        Some(Nas5gmmMessage::ServiceRequest(inner)) => service_request::nr::read(&inner),
        _ => service_request::nr::read(message),
    };
    if areas::is_in_non_allowed_area(ctx.ue) && !service_request::nr::is_permitted_in_non_allowed_area(message) {
        // 5.6.1.5: the UE registers again, and gets its service area.
        authentication::end_procedure(ctx);
        return service_request::reject(ctx, GmmCause::RestrictedServiceArea);
    }
    authentication::serve(ctx, request);
}

fn ul_transport(ctx: &mut StepContext<'_, '_>, message: &NasUlNasTransport) {
    if !ctx.ue.is_registered() {
        return ctx.send_status_98();
    }
    match session::nr::read(message) {
        Some(transport) if areas::is_in_non_allowed_area(ctx.ue) && transport.is_service_of_ue() => {
            session::refuse_in_non_allowed_area(ctx, &transport);
        }
        Some(transport) => session::uplink(ctx, transport),
        None => session::nr::discard(ctx, message),
    }
}

/// Decodes the message in the NAS message container of an initial message.
fn decode_container(ctx: &StepContext<'_, '_>, octets: &[u8], count: u32) -> Option<Nas5gmmMessage> {
    let mut plain = octets.to_vec();
    ctx.ue.security.as_ref()?.cipher_uplink(count, &mut plain);
    match Nas5gsMessage::decode(&plain).ok()? {
        Nas5gsMessage::Gmm(_, message) => Some(message),
        _ => None,
    }
}

/// Returns the received message if [`protection::TABLE`] accepts it. Only then is its NAS COUNT
/// used up. The header type is not under the MAC: a copy with another header type must not block
/// the UE's own message.
fn receive(ctx: &mut StepContext<'_, '_>, nas: &[u8], first: bool) -> Option<ReceivedNas> {
    let opened = open(ctx, Dialect::Nr, nas)?;
    let message = Message::from_octets(&opened.plain);
    let AdmittedMessage { plain, verified, answers } = admit(ctx, opened, first, (message, TABLE))?;
    decode(ctx, &plain, answers).map(|message| ReceivedNas { message, verified })
}

/// Plain message that the table of its dialect accepts.
pub(super) struct AdmittedMessage<'n> {
    pub(super) plain: Cow<'n, [u8]>,
    /// NAS COUNT, if the message verified under the UE's security context in use.
    pub(super) verified: Option<u32>,
    /// True if a fault of the message may be answered.
    pub(super) answers: bool,
}

/// Checks an opened message against the table of its dialect, and uses up its NAS COUNT. `message`
/// is `None` if the octets are no message of the dialect.
pub(super) fn admit<'n, M: PartialEq>(
    ctx: &mut StepContext<'_, '_>,
    opened: OpenedMessage<'n>,
    first: bool,
    (message, table): (Option<M>, &[Rule<M>]),
) -> Option<AdmittedMessage<'n>> {
    let state = Exchange::from_context(ctx.ue);
    let Some(message) = message else {
        // Truncated, 5GSM outside a transport, or nested protection: not a valid message (TS 24.501
        // 4.2, 7.2.1).
        ctx.note(Note::fault("nas-not-5gmm"));
        return None;
    };
    match decide(table, message, (state, opened.protection), Situation::from_context(ctx.ue, first)) {
        Verdict::Accepted => {}
        Verdict::NotExpected => {
            ctx.note(Note::fault("nas-out-of-place"));
            return None;
        }
        Verdict::Unprotected => {
            ctx.note(Note::fault("nas-unprotected"));
            return None;
        }
    }
    let verified = match (opened.protection, opened.count) {
        (Protection::NewContext, Some(count)) => {
            pending(ctx)?.use_up(count);
            None
        }
        (_, Some(count)) => {
            ctx.ue.security.as_mut()?.use_up(count);
            Some(count)
        }
        (_, None) => None,
    };
    // An unverified faulty message gets no answer under the UE's keys: the answer would establish
    // the secure exchange.
    let answers = opened.protection.is_verified() || state == Exchange::NoContext;
    Some(AdmittedMessage { plain: opened.plain, verified, answers })
}

/// Received message without its protection.
pub(super) struct OpenedMessage<'n> {
    pub(super) protection: Protection,
    /// NAS COUNT under which it was verified.
    pub(super) count: Option<u32>,
    pub(super) plain: Cow<'n, [u8]>,
}

/// Verifies and deciphers a message as far as possible. Returns `None` if it cannot be read.
pub(super) fn open<'n>(ctx: &mut StepContext<'_, '_>, dialect: Dialect, nas: &'n [u8]) -> Option<OpenedMessage<'n>> {
    let is_own = |security: &&NasSecurity| security.dialect() == dialect;
    let other = ctx.ue.security.as_ref().filter(|security| !is_own(security));
    if let Some(MoveRequest { count, plain }) = other.and_then(|security| moves::read(security, nas)) {
        let protection = Protection::Integrity;
        return Some(OpenedMessage { protection, count: Some(count), plain: Cow::Borrowed(plain) });
    }
    let security = ctx.ue.security.as_ref().filter(is_own);
    let (protection, opened) = match header(dialect, nas) {
        Some(0) => {
            return Some(OpenedMessage { protection: Protection::Plain, count: None, plain: Cow::Borrowed(nas) });
        }
        Some(INTEGRITY) => (Protection::Integrity, security.map(|s| s.open(nas))),
        Some(CIPHERED) => (Protection::Ciphered, security.map(|s| s.open(nas))),
        Some(CIPHERED_NEW_CONTEXT) => (Protection::NewContext, pending(ctx).map(|s| s.open(nas))),
        Some(_) if dialect == Dialect::Eps && is_partially_ciphered(nas) => {
            (Protection::Integrity, security.map(|s| s.open(nas)))
        }
        Some(_) if dialect == Dialect::Eps && is_service_request(nas) => {
            let verified = security.map(|s| s.verify_service_request(nas));
            (Protection::Integrity, verified.map(|count| count.map(|count| (count, nas.to_vec()))))
        }
        _ => {
            ctx.note(Note::fault("nas-header"));
            return None;
        }
    };
    let fault = match opened {
        Some(Ok((count, plain))) => {
            return Some(OpenedMessage { protection, count: Some(count), plain: Cow::Owned(plain) });
        }
        Some(Err(fault)) => fault,
        None => SecurityFault::BadMac,
    };
    ctx.note(Note::fault(match fault {
        SecurityFault::Truncated => "nas-truncated",
        SecurityFault::BadMac => "nas-bad-mac",
        SecurityFault::Exhausted => "nas-count-exhausted",
    }));
    // Without its keys, a ciphered message cannot be read.
    let plain = match dialect {
        Dialect::Eps if is_service_request(nas) => Some(nas),
        Dialect::Nr => nas.get(7..),
        Dialect::Eps => nas.get(6..),
    };
    let plain = Cow::Borrowed(plain.filter(|_| protection == Protection::Integrity)?);
    Some(OpenedMessage { protection: Protection::Unverified, count: None, plain })
}

/// Returns the security context of the Security Mode Command in progress.
fn pending<'t>(ctx: &'t mut StepContext<'_, '_>) -> Option<&'t mut NasSecurity> {
    ctx.ue.procedure.as_mut()?.securing()?.pending()
}

/// Decodes a plain message. A faulty message gets the answer of TS 24.501 clause 7 if `answers` is
/// true.
fn decode(ctx: &mut StepContext<'_, '_>, plain: &[u8], answers: bool) -> Option<Nas5gmmMessage> {
    let received = Nas5gsMessage::decode(plain);
    let message = match &received {
        Ok(Nas5gsMessage::Gmm(_, message)) if message.unknown_ies().is_empty() => match received {
            Ok(Nas5gsMessage::Gmm(_, message)) => return Some(message),
            _ => return None,
        },
        Ok(Nas5gsMessage::Gmm(_, message)) => Some(message.clone()),
        Ok(_) => {
            // 5GSM outside a transport, or nested protection: not a valid message (TS 24.501 4.2).
            ctx.note(Note::fault("nas-not-5gmm"));
            return None;
        }
        Err(_) => None,
    };
    match Nas5gsMessage::answer_to(plain, &received, Direction::Uplink) {
        Some(answer) => {
            ctx.note(Note::fault("nas-malformed"));
            if let Nas5gsMessage::Gmm(_, answer) = answer
                && answers
            {
                ctx.send_nas(answer);
            }
            None
        }
        None => {
            if message.is_none() {
                ctx.note(Note::fault("nas-malformed"));
            }
            message
        }
    }
}
