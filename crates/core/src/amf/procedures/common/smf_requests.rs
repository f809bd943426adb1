//! Requests of the AMF to a separate SMF, in SBA mode.
//!
//! Events of the UE become requests to the SMF, and N1N2 content of the SMF is forwarded to UE and
//! RAN. `engine::smf_events` handles the responses.

use super::user_plane::{self, HELD_LIMIT};
use crate::amf::context::{DeferredSessionMessage, RanContext, RemoteSession, RemoteStage};
use crate::sba::{N1N2Content, SessionNumber, SmfCreateRequest, SmfRequest, SmfUpdateRequest};
use crate::smf::{self, Input, N2Sm};
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::limits::SM_INFORMATION_OCTETS;
use vireo_types::{Dnn, Snssai, Supi};

/// Requests a new session from the SMF.
pub fn create(ctx: &mut StepContext<'_, '_>, supi: Supi, (psi, n1): (u8, &[u8]), (snssai, dnn): (Snssai, Dnn)) {
    let number = ctx.ue.next_session;
    ctx.ue.next_session = number.wrapping_add(1);
    let location = ctx.ue.connection.map(|c| (c.tai, c.cell));
    let (pei, since) = (ctx.ue.identity.pei, ctx.received_at());
    let create = SmfCreateRequest { supi, pei, psi, snssai, dnn: dnn.clone(), location, n1: n1.to_vec() };
    let stage = RemoteStage::Creating;
    let session = RemoteSession {
        psi,
        number,
        snssai,
        dnn,
        reference: None,
        early: Vec::new(),
        stage,
        up: false,
        unreached: None,
        piggyback: None,
        since,
    };
    ctx.ue.remote_sessions.sessions.push(session);
    ctx.effect(Effect::SmfRequest { number, request: SmfRequest::Create(Box::new(create)), sm_context: None });
}

/// Sends the SMF a request about a session. If the SM context is piggybacked, the request is queued
/// until the response to the previous one. Returns false if the queue is full.
pub fn send(ctx: &mut StepContext<'_, '_>, number: SessionNumber, request: SmfRequest) -> bool {
    let now = ctx.now();
    let piggyback = ctx.ue.remote_sessions.by_number(number).and_then(|session| session.piggyback.as_mut());
    let (request, sm_context) = match piggyback.map(|piggyback| piggyback.try_start(request.clone(), now)) {
        None => (request, None),
        Some(Ok((request, sm_context))) => (request, Some(sm_context)),
        Some(Err(waits)) => return waits,
    };
    ctx.effect(Effect::SmfRequest { number, request, sm_context });
    true
}

/// Sends the next queued request.
pub fn next(ctx: &mut StepContext<'_, '_>, number: SessionNumber) {
    let now = ctx.now();
    let piggyback = ctx.ue.remote_sessions.by_number(number).and_then(|session| session.piggyback.as_mut());
    if let Some((request, sm_context)) = piggyback.and_then(|piggyback| piggyback.next(now)) {
        ctx.effect(Effect::SmfRequest { number, request, sm_context: Some(sm_context) });
    }
}

/// Maximum number of updates that wait for a session's reference. RAN and UE respond to the first
/// transfer before they send others.
const MAX_EARLY_UPDATES: usize = 4;

/// Sends the SMF an update of a session, or queues it until the session has a reference. Returns
/// false if there is no such session, the queue is full, or the content is too large.
pub fn update(ctx: &mut StepContext<'_, '_>, psi: u8, update: SmfUpdateRequest) -> bool {
    if update.n1n2().is_some_and(|content| content.len() > SM_INFORMATION_OCTETS) {
        ctx.note(Note::fault("limit"));
        return false;
    }
    let Some(session) = ctx.ue.remote_sessions.by_psi(psi) else { return false };
    match (session.number, session.reference.clone()) {
        (number, Some(reference)) => return send(ctx, number, SmfRequest::Update { reference, update }),
        (_, None) if session.early.len() < MAX_EARLY_UPDATES => session.early.push(update),
        (_, None) => return false,
    }
    true
}

/// Sets the session's reference from the SMF and sends the queued updates.
pub fn set_reference(ctx: &mut StepContext<'_, '_>, number: SessionNumber, reference: &str) {
    let Some(session) = ctx.ue.remote_sessions.by_number(number) else { return };
    session.reference = Some(reference.to_owned());
    for update in std::mem::take(&mut session.early) {
        send(ctx, number, SmfRequest::Update { reference: reference.to_owned(), update });
    }
}

/// Requests the user plane of these sessions, one bit each. Returns the sessions for which a
/// request was sent.
pub fn activate(ctx: &mut StepContext<'_, '_>, sessions: u16) -> u16 {
    let now = ctx.now();
    let idle = |s: &&mut RemoteSession| s.stage == RemoteStage::Established && !s.up && sessions >> s.psi & 1 == 1;
    let mut requested = 0;
    for session in ctx.ue.remote_sessions.sessions.iter_mut().filter(idle) {
        session.since = now;
        requested |= 1 << session.psi;
    }
    for psi in (0..16).filter(|psi| requested >> psi & 1 == 1) {
        update(ctx, psi, SmfUpdateRequest::Activate);
    }
    requested
}

/// Applies an event to all sessions of a UE. Handover events are sent to the SMFs separately.
pub fn step_all(ctx: &mut StepContext<'_, '_>, input: &Input<'_>) {
    match input {
        Input::Deactivate => deactivate(ctx),
        Input::ReleaseLocally => (0..ctx.ue.remote_sessions.sessions.len()).for_each(|at| end(ctx, at)),
        Input::LostByUe => (0..ctx.ue.remote_sessions.sessions.len()).for_each(|at| end_at_ran(ctx, at)),
        Input::Unreachable => on_paging_failure(ctx),
        _ => {}
    }
}

/// Ends the sessions that the UE does not have. `status` has a bit for each session that it has.
pub fn drop_unknown(ctx: &mut StepContext<'_, '_>, status: u16) {
    for at in 0..ctx.ue.remote_sessions.sessions.len() {
        if status >> ctx.ue.remote_sessions.sessions[at].psi & 1 == 0 {
            end_at_ran(ctx, at);
        }
    }
}

/// Deactivates the user plane of all sessions: the UE has left the RAN.
fn deactivate(ctx: &mut StepContext<'_, '_>) {
    ctx.ue.remote_sessions.pending_accept = None;
    for at in 0..ctx.ue.remote_sessions.sessions.len() {
        let session = &mut ctx.ue.remote_sessions.sessions[at];
        match (session.stage, session.up) {
            // The UE left before the response and will request the session again.
            (RemoteStage::Creating | RemoteStage::Offered, false) => end(ctx, at),
            // Includes a session without a reference so far whose accept the UE may have received.
            (RemoteStage::Creating | RemoteStage::Offered | RemoteStage::Established, true) => deactivate_one(ctx, at),
            (RemoteStage::Established, false) | (RemoteStage::Ending, _) => {}
        }
    }
    // N2 content is void; N1 content waits until the UE returns.
    ctx.ue.remote_sessions.deferred.iter_mut().for_each(|held| held.n2 = None);
    ctx.ue.remote_sessions.deferred.retain(|held| held.n1.is_some());
    ctx.ue.pending.signalling |= !ctx.ue.remote_sessions.deferred.is_empty();
}

/// Deactivates a session that the RAN has released or did not set up.
pub fn deactivate_one(ctx: &mut StepContext<'_, '_>, at: usize) {
    let Some(session) = ctx.ue.remote_sessions.sessions.get_mut(at) else { return };
    // The accept may have reached the UE. If not, the UE requests the session again, and this one
    // is dropped.
    (session.stage, session.up) = (RemoteStage::Established, false);
    let psi = session.psi;
    update(ctx, psi, SmfUpdateRequest::Deactivate);
}

/// Ends a session without informing the UE. A session without a reference is released when the SMF
/// sends the reference.
pub fn end(ctx: &mut StepContext<'_, '_>, at: usize) {
    let Some(session) = ctx.ue.remote_sessions.sessions.get_mut(at).filter(|s| s.is_live()) else { return };
    (session.stage, session.up) = (RemoteStage::Ending, false);
    session.early.clear();
    let (psi, number) = (session.psi, session.number);
    if let Some(reference) = session.reference.clone() {
        send(ctx, number, SmfRequest::Release { reference });
    }
    ctx.ue.remote_sessions.deferred.retain(|held| held.psi != psi);
}

/// Ends a session that the UE does not have. The RAN releases it, too: it would refuse another
/// session with this ID (TS 38.413 8.2.1.4).
pub fn end_at_ran(ctx: &mut StepContext<'_, '_>, at: usize) {
    let session = ctx.ue.remote_sessions.sessions.get(at).filter(|s| s.is_live() && s.up).map(|s| s.psi);
    if let Some((psi, transfer)) = session.zip(smf::release_command_transfer()) {
        let n2 = Some((N2Sm::ReleaseCommand, transfer));
        user_plane::send(ctx, DeferredSessionMessage { psi, n1: None, n2 });
    }
    end(ctx, at);
}

/// Handles a UE that did not respond to paging: drops its pending messages and notifies the SMFs
/// that requested it.
fn on_paging_failure(ctx: &mut StepContext<'_, '_>) {
    ctx.ue.remote_sessions.deferred.clear();
    let Some(supi) = ctx.ue.identity.supi else { return };
    for at in 0..ctx.ue.remote_sessions.sessions.len() {
        let session = &mut ctx.ue.remote_sessions.sessions[at];
        if let (number, Some((uri, transfer))) = (session.number, session.unreached.take()) {
            send(ctx, number, SmfRequest::Unreached { uri, supi, transfer });
        }
    }
}

/// Forwards N1N2 content to UE and RAN, or defers it. N1 content waits until an idle UE returns, N2
/// content until the RAN has a UE context. Both wait while the UE moves from one RAN node to
/// another.
pub fn forward_n1n2(ctx: &mut StepContext<'_, '_>, psi: u8, content: N1N2Content) {
    let N1N2Content { n1, n2 } = content;
    if n1.is_none() && n2.is_none() {
        return;
    }
    if let Some(n1) = &n1
        && user_plane::count_reject(ctx, n1) == Some(Kind::Session)
        && let Some(session) = ctx.ue.remote_sessions.by_psi(psi)
    {
        // The release notification of the SMF that follows is not a second failure.
        session.stage = RemoteStage::Ending;
    }
    if let (Some(session), Some((kind, _))) = (ctx.ue.remote_sessions.by_psi(psi), &n2) {
        match kind {
            N2Sm::SetupRequest => session.up = true,
            N2Sm::ReleaseCommand => session.up = false,
            _ => {}
        }
    }
    match ctx.ue.connection.map(|c| c.ran) {
        Some(RanContext::SetUp) if ctx.ue.is_between_nodes() => wait(ctx, DeferredSessionMessage { psi, n1, n2 }),
        Some(RanContext::SetUp) => user_plane::send(ctx, DeferredSessionMessage { psi, n1, n2 }),
        Some(RanContext::None | RanContext::Secured) if n2.is_none() => {
            user_plane::send(ctx, DeferredSessionMessage { psi, n1, n2 })
        }
        Some(RanContext::None | RanContext::Secured | RanContext::SettingUp { .. } | RanContext::Rekeying { .. }) => {
            wait(ctx, DeferredSessionMessage { psi, n1, n2 })
        }
        Some(RanContext::Releasing { .. }) | None => {
            ctx.ue.pending.signalling |= n1.is_some();
            if n1.is_some() {
                wait(ctx, DeferredSessionMessage { psi, n1, n2: None });
            }
        }
    }
}

fn wait(ctx: &mut StepContext<'_, '_>, held: DeferredSessionMessage) {
    if ctx.ue.remote_sessions.deferred.len() < HELD_LIMIT {
        ctx.ue.remote_sessions.deferred.push(held);
    } else {
        ctx.note(Note::fault("session-held-too-much"));
    }
}

/// Sends deferred messages once the RAN has a UE context.
pub fn send_waiting(ctx: &mut StepContext<'_, '_>) {
    let is_there = ctx.ue.connection.is_some_and(|c| c.ran == RanContext::SetUp) && !ctx.ue.is_between_nodes();
    if ctx.ue.remote_sessions.deferred.is_empty() || !is_there {
        return;
    }
    for held in std::mem::take(&mut ctx.ue.remote_sessions.deferred) {
        user_plane::send(ctx, held);
    }
}
