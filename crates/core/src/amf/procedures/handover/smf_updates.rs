//! SMF updates of a handover in SBA mode, and HANDOVER COMMAND that waits.
//!
//! Each SMF is sent a request. When all have responded, their transfers go into one NGAP message
//! (TS 23.502 4.9.1.2.2 step 7, 4.9.1.3.2 steps 7 and 11).

use super::abort;
use super::sessions::has;
use super::state::N2Handover;
use crate::amf::context::{HandoverSmfStage, HandoverSmfState, RemoteSession, RemoteStage, UeContext};
use crate::amf::n2::{Cause, HandoverRequired, PathSwitch, SessionItems};
use crate::amf::procedures::common::smf_requests;
use crate::sba::{HandoverStep, SessionNumber, SmfUpdateRequest};
use crate::smf::N2Sm;
use crate::step::StepContext;
use vireo_types::{AmfUeNgapId, NrCgi, RanNodeId, Tai};
use vireo_wire::ngap::{CauseRadioNetwork as Radio, encode_open_type};

/// Returns true if the RAN has one of these sessions, one bit each, or was asked to set it up.
pub(super) fn is_any_up(ctx: &StepContext<'_, '_>, requested: u16) -> bool {
    ctx.ue.remote_sessions.sessions.iter().any(|s| s.is_live() && s.up && has(requested, s.psi))
}

/// Returns a filter for the first occurrence of each session in a list of the RAN, so that its SMF
/// is sent one request.
fn new_sessions() -> impl FnMut(u8) -> bool {
    let mut named = 0_u16;
    move |psi| {
        let is_new = psi < 16 && !has(named, psi);
        named |= u16::from(is_new) << (psi & 15);
        is_new
    }
}

/// Requests the SMFs to switch the sessions that the new RAN node set up, and informs them of those
/// that it did not.
pub(super) fn switch(ctx: &mut StepContext<'_, '_>, request: &PathSwitch) {
    let Some(location) = ctx.ue.connection.map(|c| (c.tai, c.cell)) else { return };
    drop_unconfirmed(ctx.ue);
    let mut waiting = Vec::new();
    let mut is_new = new_sessions();
    for (psi, transfer) in request.switched.iter().filter(|(psi, _)| is_new(*psi)) {
        let session = ctx.ue.remote_sessions.by_psi(*psi).filter(|s| s.up || s.stage != RemoteStage::Creating);
        let Some(number) = session.map(|s| s.number) else { continue };
        if smf_requests::update(ctx, *psi, SmfUpdateRequest::Switch(transfer.clone(), location)) {
            waiting.push((number, transfer.clone()));
        } else {
            // The queue for such requests is full: the RAN releases the session.
            buffer(ctx, *psi);
        }
    }
    for (psi, transfer) in request.failed.iter().filter(|(psi, _)| is_new(*psi)) {
        let Some(session) = ctx.ue.remote_sessions.by_psi(*psi) else { continue };
        session.up = false;
        if !smf_requests::update(ctx, *psi, SmfUpdateRequest::N2(N2Sm::PathSwitchSetupFailed, transfer.clone())) {
            buffer(ctx, *psi);
        }
    }
    // The new RAN node has released the sessions that it does not name (TS 38.413 8.4.4.2).
    let is_named = |psi| request.switched.iter().chain(&request.failed).any(|(named, _)| *named == psi);
    for at in 0..ctx.ue.remote_sessions.sessions.len() {
        let RemoteSession { psi, up, stage, .. } = ctx.ue.remote_sessions.sessions[at];
        if up && stage != RemoteStage::Ending && !is_named(psi) {
            smf_requests::deactivate_one(ctx, at);
        }
    }
    if !waiting.is_empty() {
        ctx.ue.remote_sessions.handover = Some(Box::new(HandoverSmfState { waiting, ..HandoverSmfState::default() }));
    }
}

/// Requests the SMFs to prepare the sessions of an N2 handover. Returns the sessions of the
/// requests, one bit each.
pub(super) fn prepare(
    ctx: &mut StepContext<'_, '_>,
    request: &HandoverRequired,
    target_id: AmfUeNgapId,
    (target, tai): (RanNodeId, Tai),
) -> u16 {
    drop_unconfirmed(ctx.ue);
    // A separate SMF serves gNBs only.
    let RanNodeId::Gnb(gnb) = target else { return 0 };
    let target = (gnb, tai);
    let (mut waiting, mut requested) = (Vec::new(), 0);
    let mut is_new = new_sessions();
    for (psi, transfer) in request.sessions.iter().filter(|(psi, _)| is_new(*psi)) {
        let Some(number) = ctx.ue.remote_sessions.by_psi(*psi).filter(|s| s.up).map(|s| s.number) else { continue };
        let update =
            SmfUpdateRequest::Handover(target_id, HandoverStep::Prepare { target, transfer: transfer.clone() });
        let mark = update.handover_key();
        if smf_requests::update(ctx, *psi, update) {
            waiting.push((number, mark));
            requested |= 1 << psi;
        }
    }
    if requested != 0 {
        let cause = encode_open_type(&request.cause).map(|octets| octets.to_vec()).unwrap_or_default();
        let stage = HandoverSmfStage::Preparing { cause, container: request.container.clone() };
        ctx.ue.remote_sessions.handover =
            Some(Box::new(HandoverSmfState { stage, waiting, ..HandoverSmfState::default() }));
    }
    requested
}

/// Sends the target's response to the SMFs of the requested sessions. Returns true if an SMF
/// response is pending.
pub(super) fn send_target_response(
    ctx: &mut StepContext<'_, '_>,
    moving: &N2Handover,
    (admitted, failed): (&SessionItems, &SessionItems),
    container: &[u8],
) -> bool {
    let mut waiting = Vec::new();
    let mut is_new = new_sessions();
    let admitted = admitted.iter().map(|item| (N2Sm::HandoverRequestAcknowledge, item));
    let failed = failed.iter().map(|item| (N2Sm::HandoverAllocationUnsuccessful, item));
    for (kind, (psi, transfer)) in
        admitted.chain(failed).filter(|(_, (psi, _))| is_new(*psi) && has(moving.requested, *psi))
    {
        let Some(number) = ctx.ue.remote_sessions.by_psi(*psi).map(|s| s.number) else { continue };
        let update = SmfUpdateRequest::Handover(moving.amf_id, HandoverStep::Prepared(kind, transfer.clone()));
        let mark = update.handover_key();
        if smf_requests::update(ctx, *psi, update) {
            waiting.push((number, mark));
        }
    }
    let waits = !waiting.is_empty();
    if waits {
        let stage = HandoverSmfStage::Prepared { container: container.to_vec() };
        ctx.ue.remote_sessions.handover =
            Some(Box::new(HandoverSmfState { stage, waiting, ..HandoverSmfState::default() }));
    }
    waits
}

/// Waits to send HANDOVER COMMAND with this container, as [`send_target_response`] does: UPFs have
/// to respond.
pub(super) fn await_command(ue: &mut UeContext, container: Vec<u8>) {
    let stage = HandoverSmfStage::Prepared { container };
    let awaited = || Box::new(HandoverSmfState { stage, ..HandoverSmfState::default() });
    ue.remote_sessions.handover.get_or_insert_with(awaited);
}

/// Informs the SMFs of all sessions of the source that the UE is at the target; the target has
/// those that were handed over. The source node waits for the responses, because it forwards
/// packets in transit. Returns a session whose SMF cannot be informed because its request queue is
/// full, if there is one.
pub(super) fn complete(ctx: &mut StepContext<'_, '_>, moving: &N2Handover, location: (Tai, NrCgi)) -> Option<u8> {
    let (mut waiting, mut accepted, mut unreported) = (Vec::new(), Vec::new(), None);
    // Includes a session that the target is about to be requested to set up.
    let is_held = |ue: &UeContext, psi| {
        let mut accepted = ue.remote_sessions.pending_accept.iter().flat_map(|accept| &accept.items);
        accepted.any(|(held, _)| *held == psi) || ue.remote_sessions.deferred.iter().any(|held| held.sets_up(psi))
    };
    for at in 0..ctx.ue.remote_sessions.sessions.len() {
        let RemoteSession { psi, number, up, stage, .. } = ctx.ue.remote_sessions.sessions[at];
        if !up || stage == RemoteStage::Ending {
            continue;
        }
        if has(moving.requested, psi) || is_held(ctx.ue, psi) {
            accepted.push((psi, number, Vec::new()));
        }
        let update = SmfUpdateRequest::Handover(moving.amf_id, HandoverStep::Complete(location));
        let mark = update.handover_key();
        match smf_requests::update(ctx, psi, update) {
            true => waiting.push((number, mark)),
            false => unreported = Some(psi),
        }
    }
    if !waiting.is_empty() {
        let stage = HandoverSmfStage::Completed;
        ctx.ue.remote_sessions.handover =
            Some(Box::new(HandoverSmfState { stage, waiting, accepted, failed: Vec::new() }));
    }
    unreported
}

/// Informs the SMFs of a handover that the UE stays at the source.
pub(super) fn cancel(ctx: &mut StepContext<'_, '_>, moving: &N2Handover) {
    cancel_some(ctx, moving, moving.requested);
}

/// As [`cancel`], for some sessions, one bit each. The UE may be handed over without them.
pub(super) fn cancel_some(ctx: &mut StepContext<'_, '_>, moving: &N2Handover, sessions: u16) {
    for psi in (0..16).filter(|psi| has(sessions, *psi)) {
        smf_requests::update(ctx, psi, SmfUpdateRequest::Handover(moving.amf_id, HandoverStep::Cancel));
    }
}

/// Releases the UE from the RAN and has its packets buffered; the UE reconnects afterwards. It is
/// unknown whether packets of the session reach the target of the N2 handover.
pub fn buffer_unconfirmed(ctx: &mut StepContext<'_, '_>, psi: u8) {
    buffer(ctx, psi);
    abort(ctx);
    ctx.release(Cause::radioNetwork(Radio::release_due_to_5gc_generated_reason));
}

/// Ends the wait for SMF responses of a completed handover, because the UE moves again. Sessions
/// that were not handed over are marked as inactive.
fn drop_unconfirmed(ue: &mut UeContext) {
    let handover = ue.remote_sessions.handover.take_if(|handover| handover.stage == HandoverSmfStage::Completed);
    let Some(HandoverSmfState { waiting, accepted, .. }) = handover.map(|handover| *handover) else { return };
    for (number, _) in waiting {
        let goes_along = accepted.iter().any(|(_, accepted, _)| *accepted == number);
        if let Some(session) = ue.remote_sessions.by_number(number).filter(|_| !goes_along) {
            session.up = false;
        }
    }
}

/// Handles the SMF's confirmation that the UE is at the target: a session that was not handed over
/// is inactive.
pub fn on_completion(ctx: &mut StepContext<'_, '_>, number: SessionNumber) {
    let handover =
        ctx.ue.remote_sessions.handover.as_ref().filter(|handover| handover.stage == HandoverSmfStage::Completed);
    let stays_behind =
        handover.is_some_and(|handover| handover.accepted.iter().all(|(_, accepted, _)| *accepted != number));
    if let Some(session) = ctx.ue.remote_sessions.by_number(number).filter(|_| stays_behind) {
        session.up = false;
    }
}

/// Returns the stage that waits for SMF responses, if any.
pub(super) fn stage(ue: &UeContext) -> Option<HandoverSmfStage> {
    ue.remote_sessions.handover.as_ref().map(|handover| handover.stage.clone())
}

/// Returns true if the source node of a completed handover waits for an SMF.
pub(super) fn is_leaving(ue: &UeContext) -> bool {
    is_waiting(ue) && stage(ue) == Some(HandoverSmfStage::Completed)
}

/// Has the SMF buffer packets of a session whose tunnel the RAN does not have.
pub fn buffer(ctx: &mut StepContext<'_, '_>, psi: u8) {
    let Some(at) = ctx.ue.remote_sessions.sessions.iter().position(|s| s.psi == psi && s.is_live()) else { return };
    match &mut ctx.ue.remote_sessions.sessions[at] {
        session if session.stage == RemoteStage::Creating => session.up = false,
        _ => smf_requests::deactivate_one(ctx, at),
    }
}

/// Returns true if an SMF response of the handover is pending. A session that has ended since does
/// not count.
pub(super) fn is_waiting(ue: &UeContext) -> bool {
    let lives = |number| ue.remote_sessions.sessions.iter().any(|s| s.number == number && s.is_live());
    ue.remote_sessions
        .handover
        .as_ref()
        .is_some_and(|handover| handover.waiting.iter().any(|(number, _)| lives(*number)))
}

/// Ends the wait for SMFs. Adds the transfers of handed-over sessions to `switched`, and returns
/// those of the others.
pub(super) fn end_wait(ue: &mut UeContext, switched: &mut Vec<(u8, Vec<u8>)>) -> Vec<(u8, Vec<u8>)> {
    let HandoverSmfState { accepted, failed, .. } =
        ue.remote_sessions.handover.take().map(|handover| *handover).unwrap_or_default();
    // In the meantime the RAN may have been told to release a session, and another one may have its
    // PDU session ID.
    let goes_along = |number| ue.remote_sessions.sessions.iter().any(|s| s.number == number && s.is_live() && s.up);
    let there = accepted.into_iter().filter(|(_, number, _)| goes_along(*number));
    switched.extend(there.map(|(psi, _, transfer)| (psi, transfer)));
    failed
}

/// Handles an SMF response of the handover: `result` has the transfer of a session that is handed
/// over, or of one that is not. Returns true if the response was awaited.
pub fn on_smf_answer(
    ctx: &mut StepContext<'_, '_>,
    (psi, number): (u8, SessionNumber),
    requested: &SmfUpdateRequest,
    result: Result<Vec<u8>, Option<Vec<u8>>>,
) -> bool {
    let Some(handover) = &mut ctx.ue.remote_sessions.handover else { return false };
    let mark = requested.handover_key();
    let at = handover.waiting.iter().position(|(waits, requested)| *waits == number && *requested == mark);
    let Some(at) = at else { return false };
    handover.waiting.remove(at);
    match result {
        Ok(transfer) => handover.accepted.push((psi, number, transfer)),
        Err(transfer) => handover.failed.extend(transfer.map(|transfer| (psi, transfer))),
    }
    true
}
