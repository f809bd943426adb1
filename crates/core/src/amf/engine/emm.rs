//! Uplink NAS messages of EPS: protection checks and dispatch (TS 24.301 4.4.4.3).

pub mod protection;

use super::authentication::{self, secure};
use super::nas::{AdmittedMessage, admit, on_configuration_update_complete, on_named, on_registration_complete, open};
use super::termination;
use crate::amf::context::Procedure;
use crate::amf::n2::NasIdentity;
use crate::amf::procedures::common::security_setup::eps;
use crate::amf::procedures::common::{areas, congestion, moves, user_data};
use crate::amf::procedures::registration::AttachContent;
use crate::amf::procedures::{deregistration, registration, service_request, session};
use crate::schedule::kind::emm::is_service_request;
use crate::step::{Kind, Note, StepContext};
use protection::{Message, TABLE};
use std::borrow::Cow;
use vireo_types::Dialect;
use vireo_wire::nas::GmmCause;
use vireo_wire::nas_eps::*;
use vireo_wire::security::nas_eps::compute_hash_mme;

/// Uplink message that passed the protection checks.
struct Received<'n> {
    message: NasEpsMessage,
    plain: Cow<'n, [u8]>,
    /// NAS COUNT, if the message verified under the UE's security context in use.
    verified: Option<u32>,
}

/// Handles the NAS message of an Initial UE Message.
pub(super) fn initial(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(ctx, nas, true) else { return };
    on_named(ctx, received.verified, NasIdentity::peek_emm(nas));
    begin(ctx, &received);
}

/// Handles the NAS message of an Initial UE Message of a UE that is rejected for congestion. Its
/// COUNT is used up like any other.
pub(super) fn on_rejected_for_congestion(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(ctx, nas, true) else { return };
    match &received.message {
        NasEpsMessage::Emm(_, NasEmmMessage::AttachRequest(_)) => {
            congestion::drop_pending_work(ctx);
            registration::reject_overloaded(ctx, Kind::Registration);
        }
        NasEpsMessage::Emm(_, NasEmmMessage::TrackingAreaUpdateRequest(_)) => {
            congestion::drop_pending_work(ctx);
            registration::reject_overloaded(ctx, Kind::Mobility);
        }
        NasEpsMessage::Emm(_, NasEmmMessage::ControlPlaneServiceRequest(request))
            if received.verified.is_some() && may_back_off(ctx, request) =>
        {
            congestion::drop_pending_work(ctx);
            service_request::reject_data(ctx);
        }
        NasEpsMessage::ServiceRequest(_)
        | NasEpsMessage::Emm(
            _,
            NasEmmMessage::ExtendedServiceRequest(_) | NasEmmMessage::ControlPlaneServiceRequest(_),
        ) => {
            congestion::drop_pending_work(ctx);
            service_request::reject(ctx, GmmCause::Congestion);
        }
        // A detaching UE frees resources.
        _ => begin(ctx, &received),
    }
}

/// Returns true for a request to send data, not caused by a page, of a UE that supports the control
/// plane data back-off timer.
fn may_back_off(ctx: &StepContext<'_, '_>, request: &NasControlPlaneServiceRequest) -> bool {
    /// Control plane service type of a UE that starts the procedure itself (9.9.3.47).
    const MOBILE_ORIGINATING: u8 = 0;
    let ciot = ctx.ue.reachability.paging.ciot;
    let container = request.esm_message_container.as_ref();
    let is_data = |plain: &[u8]| {
        matches!(NasEpsMessage::decode(plain), Ok(NasEpsMessage::Esm(_, NasEsmMessage::EsmDataTransport(_))))
    };
    ctx.ue.is_registered()
        && ciot.accepted.control_plane
        && ciot.data_back_off
        && request.control_plane_service_type.value & 0x07 == MOBILE_ORIGINATING
        && container.is_some_and(|container| is_data(&container.value))
}

/// Handles the first message of a connection.
fn begin(ctx: &mut StepContext<'_, '_>, received: &Received<'_>) {
    match &received.message {
        NasEpsMessage::ServiceRequest(_) => serve(ctx, received.verified),
        NasEpsMessage::Emm(_, message) => match message {
            NasEmmMessage::AttachRequest(request) => attach(ctx, request, (&received.plain, received.verified)),
            NasEmmMessage::TrackingAreaUpdateRequest(request) => update(ctx, request, received.verified),
            NasEmmMessage::ExtendedServiceRequest(request) => {
                on_extended_service_request(ctx, request, received.verified)
            }
            NasEmmMessage::ControlPlaneServiceRequest(request) => serve_control_plane(ctx, request, received.verified),
            // An unknown UE counts as detached: it gets an answer, and nothing else changes.
            NasEmmMessage::DetachRequestUeOriginating(request) => {
                let switch_off = request.detach_type.is_switch_off();
                match received.verified.is_some() && is_imsi_detach(ctx, request) {
                    true => deregistration::from_other_services(ctx, switch_off),
                    false => deregistration::by_ue(ctx, switch_off),
                }
            }
            // TS 24.301 4.4.4.3 has no other initial message; 7.4 requires no state for it.
            _ => ctx.note(Note::fault("nas-initial-unexpected")),
        },
        _ => ctx.note(Note::fault("nas-initial-unexpected")),
    }
}

/// Returns true for a detach from non-EPS services alone, of a registered UE.
fn is_imsi_detach(ctx: &StepContext<'_, '_>, request: &NasDetachRequestUeOriginating) -> bool {
    ctx.ue.is_registered() && request.detach_type.ue_detach_kind() == UeDetachKind::ImsiDetach
}

/// Returns true if the message is ignored while the network detaches the UE (5.5.2.3.5 d to f). An
/// attach is progressed if the network has requested it.
fn is_late(ctx: &StepContext<'_, '_>, message: &NasEpsMessage) -> bool {
    let Some(Procedure::Deregistration(detaching)) = &ctx.ue.procedure else { return false };
    match message {
        NasEpsMessage::ServiceRequest(_)
        | NasEpsMessage::Emm(
            _,
            NasEmmMessage::ExtendedServiceRequest(_)
            | NasEmmMessage::ControlPlaneServiceRequest(_)
            | NasEmmMessage::TrackingAreaUpdateRequest(_),
        ) => true,
        NasEpsMessage::Emm(_, NasEmmMessage::AttachRequest(_)) => !detaching.requests_registration(),
        _ => false,
    }
}

/// Handles a NAS message on an existing connection.
pub(super) fn uplink(ctx: &mut StepContext<'_, '_>, nas: &[u8]) {
    let Some(received) = receive(ctx, nas, false) else { return };
    if is_late(ctx, &received.message) {
        return ctx.note(Note::fault("nas-during-detach"));
    }
    match received.message {
        NasEpsMessage::ServiceRequest(_) if ctx.ue.is_registered() => serve(ctx, received.verified),
        NasEpsMessage::Emm(_, message) => match message {
            NasEmmMessage::AttachRequest(request) => attach(ctx, &request, (&received.plain, received.verified)),
            NasEmmMessage::TrackingAreaUpdateRequest(request) => update(ctx, &request, received.verified),
            NasEmmMessage::ExtendedServiceRequest(request) => {
                on_extended_service_request(ctx, &request, received.verified)
            }
            NasEmmMessage::ControlPlaneServiceRequest(request) => serve_control_plane(ctx, &request, received.verified),
            NasEmmMessage::DetachRequestUeOriginating(request) => {
                let switch_off = request.detach_type.is_switch_off();
                if received.verified.is_some() && is_imsi_detach(ctx, &request) {
                    return deregistration::from_other_services(ctx, switch_off);
                }
                if received.verified.is_none() && ctx.ue.procedure.is_some() {
                    return deregistration::on_unprotected_request(ctx, switch_off);
                }
                ctx.ue.procedure = None;
                deregistration::by_ue(ctx, switch_off);
            }
            NasEmmMessage::DetachAccept(_) => match ctx.ue.procedure.take() {
                Some(Procedure::Deregistration(deregistering)) => deregistration::on_accept(ctx, deregistering),
                other => ctx.ue.procedure = other,
            },
            // TS 24.301 5.7: no state changes; only a counter.
            NasEmmMessage::EmmStatus(_) => ctx.note(Note::fault("emm-status-received")),
            NasEmmMessage::GutiReallocationComplete(_) => on_configuration_update_complete(ctx),
            NasEmmMessage::UplinkNasTransport(_) => ctx.note(Note::fault("nas-transport-sms")),
            NasEmmMessage::UplinkGenericNasTransport(_) => ctx.note(Note::fault("nas-transport-location")),
            message => registering(ctx, message),
        },
        NasEpsMessage::Esm(header, message) => esm(ctx, &header, message, &received.plain),
        _ => ctx.send_status_98(),
    }
}

/// Handles messages of an attach or tracking area update, and of the authentication of a registered
/// UE.
fn registering(ctx: &mut StepContext<'_, '_>, message: NasEmmMessage) {
    match message {
        NasEmmMessage::AttachComplete(m) => {
            // It has the answer to the default bearer (8.2.2).
            let plain = &m.esm_message_container.value;
            if on_registration_complete(ctx)
                && let Ok(NasEpsMessage::Esm(header, message)) = NasEpsMessage::decode(plain)
            {
                esm(ctx, &header, message, plain);
            }
        }
        NasEmmMessage::TrackingAreaUpdateComplete(_) => {
            on_registration_complete(ctx);
        }
        NasEmmMessage::IdentityResponse(m) => secure(ctx, |s, t| s.on_identity(t, eps::identity(&m))),
        NasEmmMessage::AuthenticationResponse(m) => secure(ctx, |s, t| s.on_response(t, eps::response(&m))),
        NasEmmMessage::AuthenticationFailure(m) => secure(ctx, |s, t| s.on_failure(t, eps::failure(&m))),
        NasEmmMessage::SecurityModeComplete(m) => {
            let (pei, container) = eps::complete(&m);
            secure(ctx, |s, t| s.on_security_mode_complete(t, pei, container));
        }
        NasEmmMessage::SecurityModeReject(_) => secure(ctx, |s, _| s.on_security_mode_reject()),
        _ => ctx.send_status_98(),
    }
}

fn esm(ctx: &mut StepContext<'_, '_>, header: &NasEsmHeader, message: NasEsmMessage, plain: &[u8]) {
    if let NasEsmMessage::EsmInformationResponse(response) = &message {
        let pti = header.procedure_transaction_identity;
        let is_valid = header.eps_bearer_identity == 0;
        match ctx.ue.procedure.take() {
            Some(Procedure::Registration(attach))
                if is_valid && registration::eps::awaits_information(&attach, pti) =>
            {
                let next = registration::eps::on_information_response(*attach, response);
                ctx.ue.procedure = Some(Procedure::registration(next));
            }
            other => {
                ctx.ue.procedure = other;
                session::eps::on_unexpected_information(ctx, header, &message);
            }
        }
    } else if ctx.ue.is_registered() {
        session::eps::uplink(ctx, header, &message, plain);
        if denies_bearer(&message) {
            registration::eps::end_without_bearer(ctx);
            termination::detach_without_bearer(ctx);
        }
    } else {
        ctx.send_status_98();
    }
}

/// Returns true for messages of a UE that may not have the bearer (6.4.1.4, 6.4.3.4, 6.7).
fn denies_bearer(message: &NasEsmMessage) -> bool {
    matches!(
        message,
        NasEsmMessage::ActivateDefaultEpsBearerContextReject(_)
            | NasEsmMessage::ModifyEpsBearerContextReject(_)
            | NasEsmMessage::EsmStatus(_)
    )
}

/// Handles ATTACH REQUEST, whose plain octets are `plain`.
fn attach(ctx: &mut StepContext<'_, '_>, message: &NasAttachRequest, (plain, verified): (&[u8], Option<u32>)) {
    let (request, esm) = registration::eps::read_attach(message);
    if registration::repeats(ctx, &request, &esm) {
        return;
    }
    restart(ctx);
    registration::eps::set_attach_paging(ctx, message);
    let hash = verified.is_none().then(|| compute_hash_mme(plain));
    let next = registration::begin_attach(ctx, request, AttachContent { esm, hash });
    ctx.ue.procedure = next.map(Procedure::registration);
}

fn update(ctx: &mut StepContext<'_, '_>, message: &NasTrackingAreaUpdateRequest, verified: Option<u32>) {
    let request = registration::eps::read_update(message);
    if registration::repeats(ctx, &request, &[]) {
        return;
    }
    if verified.is_some() {
        registration::eps::end_incomplete(ctx);
    }
    restart(ctx);
    let is_known = verified.is_some() && ctx.ue.is_registered();
    if verified.is_some() && !is_known {
        // The UE was detached since (5.5.3.2.5), or has not completed its attach (5.5.1.2.7 g).
        ctx.note(Note::Started(Kind::Mobility));
        registration::reject(ctx, Kind::Mobility, GmmCause::ImplicitlyDeregistered);
        return;
    }
    if is_known {
        registration::eps::set_update_paging(ctx, message);
    }
    let next = registration::begin(ctx, request, is_known);
    ctx.ue.procedure = next.map(Procedure::registration);
}

/// Ends the procedure in progress, which another request replaces (5.5.1.2.7 d to f).
fn restart(ctx: &mut StepContext<'_, '_>) {
    ctx.ue.procedure = None;
    ctx.ue.deferred.clear();
}

fn serve(ctx: &mut StepContext<'_, '_>, verified: Option<u32>) {
    serve_request(ctx, service_request::eps::request(), verified);
}

fn serve_request(ctx: &mut StepContext<'_, '_>, request: service_request::Request, verified: Option<u32>) {
    match verified {
        Some(_) if ctx.ue.is_registered() => authentication::serve(ctx, request),
        // 5.6.1.5: "implicitly detached" if the UE is verified, "identity cannot be derived"
        // otherwise.
        Some(_) => service_request::reject(ctx, GmmCause::ImplicitlyDeregistered),
        None => service_request::reject(ctx, GmmCause::UeIdentityCannotBeDerivedByTheNetwork),
    }
}

/// Handles EXTENDED SERVICE REQUEST: for packet services it is a service request, for CS fallback
/// it is rejected with #18 (5.6.1.5).
fn on_extended_service_request(
    ctx: &mut StepContext<'_, '_>,
    message: &NasExtendedServiceRequest,
    verified: Option<u32>,
) {
    let is_packet = message.service_type.service_type_raw() >= 8;
    if is_packet || verified.is_none() || !ctx.ue.is_registered() {
        return serve_request(ctx, service_request::eps::read_extended(message), verified);
    }
    service_request::reject_service(ctx, EmmCause::CsDomainNotAvailable);
}

/// Handles CONTROL PLANE SERVICE REQUEST, with the ESM message in it. A UE may send it only if an
/// accept had control plane CIoT EPS optimisation (5.6.1.1).
fn serve_control_plane(ctx: &mut StepContext<'_, '_>, message: &NasControlPlaneServiceRequest, verified: Option<u32>) {
    if verified.is_none() || !ctx.ue.is_registered() {
        return serve(ctx, verified);
    }
    if let Some(cause) = areas::forbidden_area_cause(ctx.ue, ctx.env.config) {
        return service_request::reject_in_forbidden_area(ctx, cause);
    }
    if !ctx.ue.ciot().control_plane {
        ctx.note(Note::fault("nas-not-served"));
        return service_request::reject_service(ctx, EmmCause::MessageTypeNonExistentOrNotImplemented);
    }
    let container = message.esm_message_container.as_ref().map(|container| &container.value[..]);
    let received = container.map(NasEpsMessage::decode);
    let ends = matches!(&received, Some(Ok(NasEpsMessage::Esm(_, message))) if user_data::ends_connection(message));
    let request = service_request::eps::read_control_plane(message, ends);
    ctx.ue.procedure = service_request::begin(ctx, request).map(Procedure::ServiceRequest);
    match (received, container) {
        (Some(Ok(NasEpsMessage::Esm(header, message))), Some(plain)) => esm(ctx, &header, message, plain),
        (Some(_), _) => ctx.note(Note::fault("nas-malformed")),
        (None, _) => {}
    }
}

/// Returns the received message if [`protection::TABLE`] accepts it. Only then is its NAS COUNT
/// used up.
fn receive<'n>(ctx: &mut StepContext<'_, '_>, nas: &'n [u8], first: bool) -> Option<Received<'n>> {
    let opened = open(ctx, Dialect::Eps, nas)?;
    let message = Message::from_octets(&opened.plain);
    let AdmittedMessage { plain, verified, answers } = admit(ctx, opened, first, (message, TABLE))?;
    let message = decode(ctx, &plain, answers)?;
    if verified.is_some()
        && let Err(cause) = moves::arrive_in_eps(ctx)
    {
        ctx.note(Note::Started(Kind::Mobility));
        registration::reject(ctx, Kind::Mobility, cause);
        return None;
    }
    Some(Received { message, plain, verified })
}

/// Answers a faulty EMM message: a request with its reject (5.5.1.2.7 b, 5.5.3.2.7 b, 5.6.1.7 b),
/// and others with EMM STATUS. A UE processes the reject without protection, and discards an EMM
/// STATUS without protection (4.4.4.2), which is therefore not sent.
fn refuse(ctx: &mut StepContext<'_, '_>, plain: &[u8], status: &NasEmmStatus) {
    let cause = status.emm_cause;
    match Message::from_octets(plain) {
        Some(Message::AttachRequest) => ctx.send_emm(NasAttachReject::new(cause)),
        Some(Message::UpdateRequest) => ctx.send_emm(NasTrackingAreaUpdateReject::new(cause)),
        Some(Message::ExtendedServiceRequest | Message::ControlPlaneServiceRequest) => {
            ctx.send_emm(NasServiceReject::new(cause));
        }
        _ if ctx.has_keys() => ctx.send_emm(status.clone()),
        _ => {}
    }
}

/// Decodes a plain message, or a SERVICE REQUEST. A faulty message gets the answer of TS 24.301
/// clause 7 if `answers` is true.
fn decode(ctx: &mut StepContext<'_, '_>, plain: &[u8], answers: bool) -> Option<NasEpsMessage> {
    let received = NasEpsMessage::decode_with_direction(plain, Direction::Uplink);
    if is_service_request(plain) {
        if received.is_err() {
            ctx.note(Note::fault("nas-malformed"));
        }
        return received.ok();
    }
    if let Some(answer) = NasEpsMessage::answer_to(plain, &received, Direction::Uplink) {
        ctx.note(Note::fault("nas-malformed"));
        match answer {
            NasEpsMessage::Emm(_, NasEmmMessage::EmmStatus(status)) if answers => refuse(ctx, plain, &status),
            NasEpsMessage::Esm(..) if answers => {
                if let Some(nas) = answer.encode().ok().and_then(|plain| ctx.protect(plain)) {
                    ctx.send_encoded_nas(nas);
                }
            }
            _ => {}
        }
        return None;
    }
    match received {
        Ok(message @ (NasEpsMessage::Emm(..) | NasEpsMessage::Esm(..))) => Some(message),
        _ => {
            ctx.note(Note::fault("nas-malformed"));
            None
        }
    }
}
