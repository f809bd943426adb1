//! Events from a separate SMF in SBA mode.
//!
//! They are responses to requests, N1N2 transfers, and notifications that a session was released.

use crate::amf::context::{RanContext, RemoteStage};
use crate::amf::procedures::common::smf_requests;
use crate::amf::procedures::{handover, service_request, session};
use crate::sba::{
    HandoverStep, ImpliedCreateResponse, N1N2Content, N1N2Transfer, N1N2TransferResult, PiggybackedSmContext,
    SessionNumber, SmfRequest, SmfResponse, SmfUpdateRequest,
};
use crate::smf::N2Sm;
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::AmfUeNgapId;
use vireo_wire::nas::GmmCause;

/// Maximum number of consecutive retries of a request whose SM context was not the latest.
const REPEATS: u8 = 3;

/// Handles the result of a request to the SMF, with the SM context if it is piggybacked.
pub(super) fn on_answer(
    ctx: &mut StepContext<'_, '_>,
    number: SessionNumber,
    request: SmfRequest,
    (response, sm_context): (SmfResponse, Option<PiggybackedSmContext>),
) {
    let Some(session) = ctx.ue.remote_sessions.by_number(number) else {
        // The AMF has dropped the session, but the SMF has created it.
        if let (SmfRequest::Create(_), SmfResponse::Created(reference)) = (request, response) {
            ctx.effect(Effect::SmfRequest { number, request: SmfRequest::Release { reference }, sm_context });
        }
        return;
    };
    session.store_if_newer(sm_context);
    if let Some(piggyback) = &mut session.piggyback {
        piggyback.in_flight_since = None;
        piggyback.repeats = if response == SmfResponse::Stale { piggyback.repeats.saturating_add(1) } else { 0 };
        if (1..=REPEATS).contains(&piggyback.repeats) {
            // A later version of the SM context has arrived since, or the last response was lost
            // and the SMF accepts the version that exists.
            piggyback.queued.insert(0, request);
            return smf_requests::next(ctx, number);
        }
    }
    on_matched_response(ctx, number, request, response);
    smf_requests::next(ctx, number);
}

fn on_matched_response(
    ctx: &mut StepContext<'_, '_>,
    number: SessionNumber,
    request: SmfRequest,
    response: SmfResponse,
) {
    let Some(session) = ctx.ue.remote_sessions.by_number(number) else { return };
    let psi = session.psi;
    match (request, response) {
        (SmfRequest::Create(_), SmfResponse::Created(reference)) => on_created(ctx, number, reference),
        (SmfRequest::Create(create), response) => {
            let live = session.is_live();
            forget(ctx, number);
            if live {
                on_create_failure(ctx, psi, &create.n1, response);
            }
        }
        (SmfRequest::Update { update, .. }, response) => on_update_answer(ctx, (psi, number), &update, response),
        // A session that the SMF does not know, or does not respond for, is released as well.
        (SmfRequest::Release { .. }, _) => forget(ctx, number),
        (SmfRequest::Unreached { .. }, _) => {}
    }
}

/// The SMF has created a session with this reference.
fn on_created(ctx: &mut StepContext<'_, '_>, number: SessionNumber, reference: String) {
    let Some(session) = ctx.ue.remote_sessions.by_number(number) else { return };
    if session.reference.as_ref() == Some(&reference) {
        // An N1N2 transfer has already named the session.
        return;
    }
    match session.stage {
        RemoteStage::Creating | RemoteStage::Offered | RemoteStage::Established => {
            if session.stage == RemoteStage::Creating {
                session.stage = RemoteStage::Offered;
            }
            smf_requests::set_reference(ctx, number, &reference);
        }
        RemoteStage::Ending => {
            smf_requests::send(ctx, number, SmfRequest::Release { reference });
        }
    }
}

/// Handles a failed creation: forwards the SMF's reject, or returns the UE's message (TS 24.501
/// 5.4.5.3.1 h).
fn on_create_failure(ctx: &mut StepContext<'_, '_>, psi: u8, n1: &[u8], response: SmfResponse) {
    match response {
        SmfResponse::Refused { content, .. } if content.n1.is_some() => {
            smf_requests::forward_n1n2(ctx, psi, N1N2Content { n2: None, ..content })
        }
        _ => {
            ctx.note(Note::Failed(Kind::Session, 0));
            send_back(ctx, psi, n1);
        }
    }
}

fn send_back(ctx: &mut StepContext<'_, '_>, psi: u8, n1: &[u8]) {
    if ctx.ue.connection.is_some() {
        session::nr::send_back(ctx, psi, n1, GmmCause::PayloadWasNotForwarded);
    }
}

/// Response of an SMF to an update.
struct UpdateResponse {
    /// Content for UE and RAN.
    content: N1N2Content,
    done: bool,
    /// True if the SMF does not have the SM context.
    unknown: bool,
}

fn on_update_answer(
    ctx: &mut StepContext<'_, '_>,
    (psi, number): (u8, SessionNumber),
    update: &SmfUpdateRequest,
    response: SmfResponse,
) {
    let (content, done, unknown) = match response {
        SmfResponse::Done(content) => (content, true, false),
        SmfResponse::Refused { content, unknown } => (content, false, unknown),
        // A create response does not answer an update.
        SmfResponse::Created(_) | SmfResponse::Stale | SmfResponse::Silence => (N1N2Content::default(), false, false),
    };
    if !done {
        ctx.note(Note::fault(if unknown { "smf-unknown-session" } else { "smf-refuses" }));
    }
    match update {
        SmfUpdateRequest::Activate => return on_activation_answer(ctx, (psi, number), content, unknown),
        SmfUpdateRequest::Switch(..) => {
            return on_path_switch_answer(ctx, (psi, number), update, UpdateResponse { content, done, unknown });
        }
        SmfUpdateRequest::Handover(target, step) => {
            let response = UpdateResponse { content, done, unknown };
            return on_handover_response(ctx, (psi, number), update, (*target, step), response);
        }
        SmfUpdateRequest::N2(N2Sm::SetupResponse, _) if done => on_user_plane_up(ctx, number),
        SmfUpdateRequest::N2(N2Sm::SetupUnsuccessful, _) => {
            if let Some(session) = ctx.ue.remote_sessions.by_number(number) {
                session.up = false;
            }
        }
        // The SMF still has the session at the old RAN node, and the new one does not have it.
        SmfUpdateRequest::N2(N2Sm::PathSwitchSetupFailed, _) if !done && !unknown => handover::buffer(ctx, psi),
        SmfUpdateRequest::N1(n1) if !done && content.n1.is_none() => send_back(ctx, psi, n1),
        SmfUpdateRequest::N1(_) | SmfUpdateRequest::N2(..) | SmfUpdateRequest::Deactivate => {}
    }
    if unknown {
        return forget(ctx, number);
    }
    // A session that has ended since gets no messages.
    if ctx.ue.remote_sessions.by_number(number).is_some_and(|s| s.is_live()) {
        smf_requests::forward_n1n2(ctx, psi, content);
    }
}

/// Handles the response for a session whose user plane is being activated.
fn on_activation_answer(
    ctx: &mut StepContext<'_, '_>,
    (psi, number): (u8, SessionNumber),
    content: N1N2Content,
    unknown: bool,
) {
    let N1N2Content { n1, n2 } = content;
    let request = n2.filter(|(kind, _)| *kind == N2Sm::SetupRequest).map(|(_, transfer)| transfer);
    if unknown {
        forget(ctx, number);
    } else if let Some(session) = ctx.ue.remote_sessions.by_number(number) {
        session.up = request.is_some() && session.is_live();
    }
    let n2 = match service_request::on_smf_answer(ctx, psi, request.clone()) {
        true => None,
        false => request.map(|transfer| (N2Sm::SetupRequest, transfer)),
    };
    if ctx.ue.remote_sessions.by_number(number).is_some_and(|s| s.is_live()) {
        smf_requests::forward_n1n2(ctx, psi, N1N2Content { n1, n2 });
    }
}

/// Handles the response for a session in a path switch.
fn on_path_switch_answer(
    ctx: &mut StepContext<'_, '_>,
    (psi, number): (u8, SessionNumber),
    update: &SmfUpdateRequest,
    UpdateResponse { content: N1N2Content { n1, n2 }, done, unknown }: UpdateResponse,
) {
    let is_answer = |kind| matches!(kind, N2Sm::PathSwitchAcknowledge | N2Sm::PathSwitchUnsuccessful);
    let (response, n2) = match n2 {
        Some((kind, octets)) if is_answer(kind) => (Some((kind, octets)), None),
        other => (None, other),
    };
    // A refusing SMF's transfer is no acknowledgement.
    let response = response.filter(|(kind, _)| done || *kind != N2Sm::PathSwitchAcknowledge);
    let is_switched = matches!(response, Some((N2Sm::PathSwitchAcknowledge, _)));
    let is_silent = response.is_none();
    let response = match response {
        Some((N2Sm::PathSwitchAcknowledge, transfer)) => Ok(transfer),
        other => Err(other.map(|(_, transfer)| transfer)),
    };
    if handover::on_smf_answer(ctx, (psi, number), update, response)
        && let Some(session) = ctx.ue.remote_sessions.by_number(number)
    {
        let (is_new, is_live) = (session.stage == RemoteStage::Offered, session.is_live());
        session.up = is_switched;
        if is_switched && is_new {
            on_user_plane_up(ctx, number);
        } else if is_silent && is_live && !unknown {
            // The state of the UPF is unknown: have it buffer.
            handover::buffer(ctx, psi);
        }
    }
    if unknown {
        return forget(ctx, number);
    }
    if ctx.ue.remote_sessions.by_number(number).is_some_and(|s| s.is_live()) {
        smf_requests::forward_n1n2(ctx, psi, N1N2Content { n1, n2 });
    }
}

/// Handles the response for a session in an N2 handover.
fn on_handover_response(
    ctx: &mut StepContext<'_, '_>,
    (psi, number): (u8, SessionNumber),
    update: &SmfUpdateRequest,
    (target, step): (AmfUeNgapId, &HandoverStep),
    UpdateResponse { content: N1N2Content { n1, n2 }, done, unknown }: UpdateResponse,
) {
    let expected = match step {
        HandoverStep::Prepare { .. } => Some(N2Sm::SetupRequest),
        HandoverStep::Prepared(..) => Some(N2Sm::HandoverCommand),
        HandoverStep::Complete(_) | HandoverStep::Cancel => None,
    };
    // The expected transfer goes into a handover message; other content is forwarded separately.
    let (response, n2) = match n2 {
        Some((kind, transfer)) if Some(kind) == expected => (if done { Ok(transfer) } else { Err(None) }, None),
        Some((N2Sm::HandoverPreparationUnsuccessful, transfer)) => (Err(Some(transfer)), None),
        other => (Err(None), other),
    };
    let is_waited_for = handover::on_smf_answer(ctx, (psi, number), update, response) || ctx.ue.is_in_handover();
    // If the UE has left the target since, the SMF has been informed of it.
    let is_there = ctx.ue.connection.is_some_and(|c| c.amf_id == target);
    let completes = matches!(step, HandoverStep::Complete(_)) && is_there && is_waited_for;
    if unknown {
        return forget(ctx, number);
    }
    if ctx.ue.remote_sessions.by_number(number).is_none_or(|s| !s.is_live()) {
        return;
    }
    match (completes, done) {
        (true, true) => handover::on_completion(ctx, number),
        (true, false) => handover::buffer_unconfirmed(ctx, psi),
        (false, _) => {}
    }
    smf_requests::forward_n1n2(ctx, psi, N1N2Content { n1, n2 });
}

/// Marks the user plane of a session as set up: RAN and UPF know each other's tunnels.
fn on_user_plane_up(ctx: &mut StepContext<'_, '_>, number: SessionNumber) {
    let Some(session) = ctx.ue.remote_sessions.by_number(number) else { return };
    let (kind, since) = match session.stage {
        RemoteStage::Offered => (Kind::Session, session.since),
        RemoteStage::Established => (Kind::Activation, session.since),
        RemoteStage::Creating | RemoteStage::Ending => return,
    };
    session.stage = RemoteStage::Established;
    ctx.note(Note::Succeeded(kind, since));
}

fn forget(ctx: &mut StepContext<'_, '_>, number: SessionNumber) {
    ctx.ue.remote_sessions.sessions.retain(|s| s.number != number);
}

/// Handles an N1N2 transfer (Namf_Communication_N1N2MessageTransfer).
pub(super) fn transfer(ctx: &mut StepContext<'_, '_>, transfer: N1N2Transfer) {
    let token = transfer.token;
    let (result, sm_context) = match transfer.requested_session {
        Some(session) => requested_sm_context(ctx, session),
        None => (on_transfer(ctx, transfer), None),
    };
    ctx.effect(Effect::N1N2TransferReply { token, result, sm_context });
}

/// Returns the stored SM context of the session whose masked number is `number`. The session may
/// not have a reference yet.
fn requested_sm_context(
    ctx: &StepContext<'_, '_>,
    (number, mask): (SessionNumber, SessionNumber),
) -> (N1N2TransferResult, Option<PiggybackedSmContext>) {
    let session = ctx.ue.remote_sessions.sessions.iter().find(|session| session.number & mask == number);
    match session.and_then(|session| session.piggyback.as_ref()) {
        Some(piggyback) => (N1N2TransferResult::Initiated, Some(piggyback.latest.clone())),
        None => (N1N2TransferResult::Unknown, None),
    }
}

fn on_transfer(ctx: &mut StepContext<'_, '_>, transfer: N1N2Transfer) -> N1N2TransferResult {
    let N1N2Transfer { token, psi, content, unreached, sm_context, created: implied, .. } = transfer;
    let registered = ctx.ue.is_registered();
    let data = content.n1.is_none() && matches!(content.n2, Some((N2Sm::SetupRequest, _)));
    let releases = content.n1.is_none() && matches!(content.n2, Some((N2Sm::ReleaseCommand, _)));
    let accepting = ctx.ue.remote_sessions.pending_accept.as_ref().is_some_and(|accept| accept.waiting >> psi & 1 == 1);
    let session = ctx.ue.remote_sessions.by_psi(psi).filter(|_| registered);
    // The SMF then sends its create response after all, and the AMF releases that session. It is a
    // session that the UE does not have, or an earlier one with the same ID.
    let session = session.filter(|session| implied.as_ref().is_none_or(|created| session.matches_response(created)));
    let Some(session) = session else { return N1N2TransferResult::Unknown };
    let (number, up) = (session.number, session.up);
    session.store_if_newer(sm_context);
    if let Some(ImpliedCreateResponse { reference, .. }) = implied {
        on_created(ctx, number, reference);
    }
    let connected = ctx.ue.connection.is_some_and(|c| !matches!(c.ran, RanContext::Releasing { .. }));
    if connected && data && accepting {
        // The request to the SMF for this session is in flight.
        return N1N2TransferResult::Attempting;
    }
    if connected && data && up {
        // The UE has reconnected: the RAN node has the tunnel or is being sent it.
        return N1N2TransferResult::Initiated;
    }
    if releases && !(connected && up) {
        return N1N2TransferResult::Idle;
    }
    if connected {
        smf_requests::forward_n1n2(ctx, psi, content);
        return N1N2TransferResult::Initiated;
    }
    if ctx.ue.reachability.unreachable {
        return N1N2TransferResult::Unreachable;
    }
    if let Some(session) = ctx.ue.remote_sessions.by_number(number) {
        session.unreached = unreached.map(|uri| (uri, token));
    }
    if data {
        ctx.ue.pending.sessions |= 1 << psi;
    } else {
        smf_requests::forward_n1n2(ctx, psi, content);
    }
    N1N2TransferResult::Attempting
}

/// Handles Nsmf_PDUSession_SMContextStatusNotify: the SMF has released the session.
pub(super) fn on_release(ctx: &mut StepContext<'_, '_>, number: SessionNumber) {
    let Some(session) = ctx.ue.remote_sessions.by_number(number) else { return };
    if matches!(session.stage, RemoteStage::Creating | RemoteStage::Offered) {
        ctx.note(Note::Failed(Kind::Session, 0));
    }
    forget(ctx, number);
}
