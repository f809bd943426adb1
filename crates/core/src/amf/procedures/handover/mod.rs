//! Xn and N2 handover within 5GS, X2 and S1 handover within EPS, N2 and S1 handover between them.
//!
//! Xn or X2 handover (TS 23.502 4.9.1.2, TS 23.401 5.5.1.1) is [`path_switch`]. N2 or S1 handover
//! (4.9.1.3, 5.5.1.2) is [`required`] to [`notified`]. A handover runs concurrently with the 5GMM
//! or EMM procedure. Until it is complete, the UE's connection is that of the source. The target's
//! connection is here, with another AMF-UE-NGAP-ID, so that messages of the two cannot be confused.
//!
//! A handover between 5GS and EPS (TS 23.502 4.11.1.2) is an N2 or S1 handover: source and target
//! have messages of their dialects. [`intersystem`] has what is different: keys and sessions are
//! mapped.
//!
//! [`modification`] is the modification of tunnels that the RAN indicates for dual connectivity. It
//! moves tunnels as a path switch does.

pub mod eps;
#[cfg(test)]
mod golden_intersystem;
#[cfg(test)]
mod golden_tests;
mod intersystem;
mod messages;
pub mod modification;
pub mod nr;
mod preparation;
mod sessions;
mod smf_updates;
mod source;
mod state;

pub use intersystem::{arrive_unconfirmed, drop_void_keys, unconfirmed_keys};
use messages::{PathSwitchAnswer, Request, RequestedSession};
use preparation::{new_target, refuse};
use sessions::{bits, has, is_any_updating, names_twice, position};
pub use smf_updates::{buffer, buffer_unconfirmed, on_completion, on_smf_answer};
pub use state::{Handover, N2Handover, SourceNode, SystemChange, XnHandover};

use crate::amf::context::{Connection, HandoverSmfStage, Procedure, RanContext, is_served};
use crate::amf::n2::{Cause, HandoverRequired, PathSwitch, SessionItems, UeInformation, UeMessage};
use crate::amf::procedures::common::{context_setup, user_plane};
use crate::smf::{self, HandoverRefusal, Input, N2Sm, RanState};
use crate::step::{Effect, Kind, Note, StepContext};
use state::Progress;
use vireo_types::limits::HANDOVER_CONTAINER_OCTETS;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, NrCgi, RanUeNgapId, Tai};
use vireo_wire::ngap::{CauseRadioNetwork as Radio, CauseTransport, decode_open_type};

/// Handles PATH SWITCH REQUEST of the new RAN node. The old one may not have responded to a session
/// set-up yet. If the request names that session, the old node had set it up, because otherwise the
/// UE could not take it along.
pub fn path_switch(ctx: &mut StepContext<'_, '_>, assoc: AssocId, request: &PathSwitch) {
    ctx.note(Note::Started(Kind::PathSwitch));
    let Some(old) = ctx.ue.connection else { return };
    let (tai, cell) = request.location.unwrap_or((old.tai, old.cell));
    let dialect = assoc.dialect();
    if let Some(cause) = why_not_switched(ctx, &old, tai, request) {
        ctx.note(Note::Failed(Kind::PathSwitch, 0));
        let pdu = path_switch_refusal(dialect, old.amf_id, request, cause);
        return ctx.effect(Effect::Ngap { assoc, pdu });
    }
    // The UE has moved: abort a prepared N2 handover or an earlier path switch.
    abort(ctx);
    let ran = match old.ran {
        RanContext::Rekeying { former, .. } => {
            RanContext::Rekeying { deadline: ctx.now() + ctx.env.config.timers.ran_response, former }
        }
        other => other,
    };
    ctx.ue.connection = Some(Connection { assoc, ran_id: request.ran_id, tai, cell, ran, ..old });
    let own = messages::algorithms(dialect, ctx.ue.security_capability);
    let own_nr = ctx.ue.security_capability.nr_algorithms();
    let own_eutra = messages::algorithms(Dialect::Eps, ctx.ue.security_capability);
    let is_wrong = request.capability.is_some_and(|c| c != own)
        || request.eutra_capability.is_some_and(|c| c != own_eutra)
        || request.nr_capability.is_some_and(|c| own_nr != Some(c));
    if is_wrong {
        ctx.note(Note::fault("security-capability-mismatch"));
    }
    // An eNB that has no NR capability of the UE learns it (TS 33.401 7.2.4.2.2, E.3.4.2).
    let mismatch = is_wrong || dialect == Dialect::Eps && request.nr_capability != own_nr;
    let switching = XnHandover {
        requested: bits(&request.switched),
        failed: bits(&request.failed),
        mismatch,
        started: ctx.received_at(),
    };
    ctx.ue.handover = Some(Handover::Switching(switching));
    let items = request.switched.iter().map(|item| (N2Sm::PathSwitchRequest, item));
    let failed = request.failed.iter().map(|item| (N2Sm::PathSwitchSetupFailed, item));
    for (kind, (psi, transfer)) in items.chain(failed) {
        if let Some(at) = position(ctx, *psi) {
            user_plane::step(ctx, at, Input::N2(kind, transfer));
        }
    }
    // The target has released the sessions that it does not name (TS 38.413 8.4.4.2, TS 36.413
    // 8.4.4.2).
    for at in (0..ctx.ue.sessions.len()).rev() {
        let sm = &ctx.ue.sessions[at];
        if has(switching.requested | switching.failed, sm.id()) {
            continue;
        }
        let input = match (sm.ran, dialect) {
            (RanState::Up, Dialect::Nr) => Input::Deactivate,
            // A connected UE has no bearer without an E-RAB (TS 23.401 5.5.1.1.2 step 6).
            (RanState::Up, Dialect::Eps) => Input::N2(N2Sm::PathSwitchSetupFailed, &[]),
            _ if sm.is_setting_up() => Input::N2(N2Sm::SetupUnsuccessful, &[]),
            _ => continue,
        };
        user_plane::step(ctx, at, input);
    }
    smf_updates::switch(ctx, request);
}

/// Encodes the refusal of a path switch with all its sessions.
pub fn path_switch_refusal(dialect: Dialect, amf_id: AmfUeNgapId, request: &PathSwitch, cause: Radio) -> Vec<u8> {
    let requested = request.switched.iter().chain(&request.failed);
    let requested = requested.map(|(psi, _)| (*psi, not_switched(dialect))).collect();
    messages::path_switch_failure(dialect, (amf_id, request.ran_id), requested, &Cause::radioNetwork(cause))
}

/// Returns the cause if a path switch is refused: nothing of it is processed then.
fn why_not_switched(ctx: &StepContext<'_, '_>, old: &Connection, tai: Tai, request: &PathSwitch) -> Option<Radio> {
    let requested = bits(&request.switched);
    let is_switchable = |s: &smf::SmContext| (s.is_up() || s.is_setting_up()) && has(requested, s.id());
    // An eNB cannot learn that its key and the NH are of different NAS keys (TS 36.413 9.1.5.9).
    let lacks_hop = old.assoc.dialect() == Dialect::Eps && matches!(old.ran, RanContext::Rekeying { former: None, .. });
    if !old.ran.is_set_up() || lacks_hop {
        Some(Radio::interaction_with_other_procedure)
    } else if !is_served(ctx.env.config, tai) || is_forbidden(ctx, tai) {
        Some(Radio::ho_target_not_allowed)
    } else if names_twice(&request.switched) {
        Some(Radio::multiple_PDU_session_ID_instances)
    } else if !ctx.ue.sessions.iter().any(is_switchable) && !smf_updates::is_any_up(ctx, requested) {
        Some(Radio::unknown_PDU_session_ID)
    } else {
        None
    }
}

/// Returns true if the tracking area is a forbidden area of the UE (TS 23.501 5.3.4.1.1).
fn is_forbidden(ctx: &StepContext<'_, '_>, tai: Tai) -> bool {
    ctx.ue.areas().is_some_and(|areas| areas.is_forbidden(tai.tac))
}

fn not_switched(dialect: Dialect) -> Vec<u8> {
    messages::refusal(dialect, HandoverRefusal::PathSwitch)
}

/// Continues a handover once UPFs and separate SMFs have responded. It answers a path switch, sends
/// the request to a target and the command to a source, and releases the source node.
pub fn proceed(ctx: &mut StepContext<'_, '_>) {
    switched(ctx);
    modification::proceed(ctx);
    smfs_have_answered(ctx);
    source::proceed(ctx);
}

fn switched(ctx: &mut StepContext<'_, '_>) {
    let Some(Handover::Switching(switching)) = ctx.ue.handover else { return };
    if is_any_updating(ctx, switching.requested) || smf_updates::is_waiting(ctx.ue) {
        return;
    }
    let requested = |psi: u8| has(switching.requested, psi);
    ctx.ue.handover = None;
    if ctx.is_being_released() {
        // The RAN node has no UE context for the answer any more.
        return ctx.note(Note::Failed(Kind::PathSwitch, 0));
    }
    let now = ctx.now();
    let up = ctx.ue.sessions.iter_mut().filter(|s| requested(s.id()) && s.is_up());
    let mut switched: Vec<_> = up.map(|s| (s.id(), smf::path_switch_answer(s, now).1)).collect();
    let mut refused = smf_updates::end_wait(ctx.ue, &mut switched);
    let named = (switching.requested | switching.failed) & !bits(&switched);
    let mut released = |psi| refused.iter().position(|(p, _)| *p == psi).map(|at| refused.swap_remove(at).1);
    let named = (0..16).filter(|psi| has(named, *psi));
    let Some(connection) = ctx.ue.connection else { return };
    let dialect = connection.assoc.dialect();
    let released = named.map(|psi| (psi, released(psi).unwrap_or_else(|| not_switched(dialect)))).collect();
    // The source may have handed the UE over under its former key or the renewed one. A gNB takes
    // the renewed one into use (TS 33.501 6.9.2.3.2), an eNB is requested to do so afterwards.
    let (security, ran) = (ctx.ue.security.as_mut(), connection.ran);
    let next_hop = match ran {
        RanContext::Rekeying { former: Some(former), .. } => Some(former),
        RanContext::Rekeying { former: None, .. } => security.map(|security| security.renewed_hop()),
        _ => security.and_then(|security| security.advance()),
    };
    let is_renewed = matches!(ran, RanContext::Rekeying { former: None, .. });
    let (false, Some(next_hop)) = (switched.is_empty(), next_hop) else {
        ctx.note(Note::Failed(Kind::PathSwitch, 0));
        let (ids, cause) = ((connection.amf_id, connection.ran_id), Cause::transport(not_switched_cause()));
        ctx.send(|_| messages::path_switch_failure(dialect, ids, released, &cause));
        return ctx.release(Cause::radioNetwork(Radio::release_due_to_5gc_generated_reason));
    };
    let nr_algorithms = ctx.ue.security_capability.nr_algorithms();
    let answer = PathSwitchAnswer {
        capability: switching.mismatch.then_some(ctx.ue.security_capability),
        next_hop,
        is_renewed,
        switched,
        released,
        ambr: ctx.ue.ambr(),
        allowed: &ctx.ue.allowed,
        nr_algorithms: nr_algorithms.filter(|_| switching.mismatch),
        information: UeInformation::from_context(ctx.ue, ctx.env.config, (dialect, connection.tai.plmn)),
    };
    let pdu = messages::path_switch_acknowledge(&connection, answer);
    ctx.send(|_| pdu);
    if is_renewed && let Some(connection) = &mut ctx.ue.connection {
        connection.ran = RanContext::SetUp;
    } else if ran.is_rekeying() {
        context_setup::send_key(ctx, None);
    }
    ctx.note(Note::Succeeded(Kind::PathSwitch, switching.started));
}

/// Returns the cause of sessions whose UPF was not updated.
fn not_switched_cause() -> CauseTransport {
    CauseTransport::transport_resource_unavailable
}

/// Handles E-RAB RELEASE INDICATION: the eNB has released these E-RABs (TS 23.401 5.4.4.2).
pub fn released_by_ran(ctx: &mut StepContext<'_, '_>, released: &SessionItems) {
    for (ebi, _) in released {
        match position(ctx, *ebi) {
            // As for an E-RAB that the target of a handover has not set up.
            Some(at) => user_plane::step(ctx, at, Input::N2(N2Sm::PathSwitchSetupFailed, &[])),
            None => ctx.note(Note::fault("session-unknown")),
        }
    }
}

/// Handles HANDOVER REQUIRED of the source.
pub fn on_required(ctx: &mut StepContext<'_, '_>, request: &HandoverRequired) {
    ctx.note(Note::Started(Kind::Handover));
    let is_set_up = ctx.ue.connection.is_some_and(|c| c.ran == RanContext::SetUp);
    // The target would get a key of keys that are being replaced (TS 33.501 6.9.5.1).
    let is_rekeying = ctx.ue.procedure.as_ref().is_some_and(Procedure::is_securing);
    let ready = is_set_up && !is_rekeying && !ctx.ue.is_in_handover();
    // The response to a service request must be sent where the UE is.
    if !ready || ctx.ue.remote_sessions.pending_accept.is_some() {
        return refuse(ctx, Radio::interaction_with_other_procedure);
    }
    if is_too_large(ctx, &request.container) {
        return refuse(ctx, Radio::unspecified);
    }
    let target = request.target.filter(|(_, tai)| is_served(ctx.env.config, *tai));
    let found = target.and_then(|(id, tai)| ctx.env.ran.find(id).map(|assoc| (assoc, id, tai)));
    let Some((assoc, id, tai)) = found else {
        return refuse(ctx, Radio::unknown_targetID);
    };
    if is_forbidden(ctx, tai) {
        return refuse(ctx, Radio::ho_target_not_allowed);
    }
    if assoc.dialect() != ctx.ue.dialect() {
        return intersystem::on_required(ctx, request, (assoc, tai));
    }
    let mut items = Vec::new();
    for (psi, transfer) in &messages::required_sessions(assoc.dialect(), ctx.ue, request) {
        let Some(at) = position(ctx, *psi) else { continue };
        let snssai = ctx.ue.sessions[at].terms.snssai;
        if let Some(transfer) = user_plane::run(ctx, at, Input::MoveRequired(assoc.dialect(), transfer)) {
            let forwards = sessions::can_forward(ctx, at);
            items.push(RequestedSession { psi: *psi, snssai, transfer, forwards });
        }
    }
    let mut moving = new_target(ctx, assoc, tai);
    moving.requested = smf_updates::prepare(ctx, request, moving.amf_id, (id, tai));
    if moving.requested == 0 {
        let (cause, container) = (request.cause.clone(), &request.container[..]);
        return request_target(ctx, moving, cause, items, container);
    }
    ctx.ue.handover = Some(Handover::Moving(moving));
}

/// Returns true if a container is too large to be stored while separate SMFs respond.
fn is_too_large(ctx: &mut StepContext<'_, '_>, container: &[u8]) -> bool {
    let is = container.len() > HANDOVER_CONTAINER_OCTETS && !ctx.ue.remote_sessions.sessions.is_empty();
    if is {
        ctx.note(Note::fault("limit"));
    }
    is
}

/// Sends HANDOVER REQUEST to the target, if there are sessions to hand over.
fn request_target(
    ctx: &mut StepContext<'_, '_>,
    moving: N2Handover,
    cause: Cause,
    sessions: Vec<RequestedSession>,
    container: &[u8],
) {
    let next_hop = ctx.ue.security.as_mut().and_then(|s| s.advance());
    let (false, Some(next_hop)) = (sessions.is_empty(), next_hop) else {
        ctx.ue.handover = None;
        user_plane::step_all(ctx, || Input::NoForwarding);
        smf_updates::cancel(ctx, &moving);
        return refuse(ctx, Radio::unspecified);
    };
    let requested = sessions.iter().fold(0, |bits, session| bits | 1 << session.psi);
    let deadline = ctx.now() + ctx.env.config.timers.ran_response;
    let request = Request {
        guami: ctx.env.config.guami(),
        cause,
        ambr: ctx.ue.ambr(),
        capability: ctx.ue.security_capability,
        next_hop,
        sessions,
        allowed: &ctx.ue.allowed,
        container,
        nr_algorithms: ctx.ue.security_capability.nr_algorithms(),
        information: UeInformation::from_context(ctx.ue, ctx.env.config, (moving.assoc.dialect(), moving.tai.plmn)),
        mapped: None,
    };
    let pdu = messages::handover_request(moving.assoc, moving.amf_id, request);
    ctx.effect(Effect::Ngap { assoc: moving.assoc, pdu });
    ctx.ue.handover = Some(Handover::Moving(N2Handover { requested, deadline, ..moving }));
}

/// Continues an N2 handover once all its SMFs have responded, and UPFs that forward packets.
fn smfs_have_answered(ctx: &mut StepContext<'_, '_>) {
    if smf_updates::is_waiting(ctx.ue) {
        return;
    }
    let moving = ctx.ue.handover.as_ref().and_then(Handover::target).copied();
    match (smf_updates::stage(ctx.ue), moving) {
        (Some(HandoverSmfStage::Preparing { cause, container }), Some(moving)) => {
            let unknown = || Cause::radioNetwork(Radio::unspecified);
            let cause = decode_open_type::<Cause>(&cause).unwrap_or_else(|_| unknown());
            let mut items = Vec::new();
            // Sessions that their SMFs refuse stay with the source. An SMF without a response may
            // have prepared its session: cancel it.
            let lost = smf_updates::end_wait(ctx.ue, &mut items);
            smf_updates::cancel_some(ctx, &moving, moving.requested & !bits(&items) & !bits(&lost));
            let with_slice = |(psi, transfer)| {
                let snssai = ctx.ue.remote_sessions.by_psi(psi)?.snssai;
                Some(RequestedSession { psi, snssai, transfer, forwards: true })
            };
            let items = items.into_iter().filter_map(with_slice).collect();
            request_target(ctx, moving, cause, items, &container);
        }
        (Some(HandoverSmfStage::Prepared { container }), Some(moving)) if !sessions::await_forwarding(ctx.ue) => {
            let mut commands = sessions::commands(ctx.ue, &moving);
            if intersystem::is_overtaken(ctx) {
                return fail(ctx, Radio::interaction_with_other_procedure);
            }
            let lost = smf_updates::end_wait(ctx.ue, &mut commands);
            command(ctx, moving, (commands, lost), &container);
        }
        (Some(HandoverSmfStage::Completed), _) => ctx.ue.remote_sessions.handover = None,
        _ => {}
    }
}

/// Returns the N2 handover, if it is at that stage and no SMF response is pending.
fn n2_handover(ctx: &mut StepContext<'_, '_>, commanded: bool) -> Option<N2Handover> {
    let moving = ctx.ue.handover.as_ref().and_then(Handover::target).copied();
    let moving = moving.filter(|m| m.is_commanded() == commanded && ctx.ue.remote_sessions.handover.is_none());
    if moving.is_none() {
        ctx.note(Note::fault("handover-out-of-place"));
    }
    moving
}

/// Stores the state of the N2 handover in progress.
fn store(ctx: &mut StepContext<'_, '_>, moving: N2Handover) {
    if let Some(target) = ctx.ue.handover.as_mut().and_then(Handover::target_mut) {
        *target = moving;
    }
}

/// Handles HANDOVER REQUEST ACKNOWLEDGE of the target, with admitted and failed sessions. The
/// source is sent HANDOVER COMMAND, after separate SMFs have responded, and UPFs that forward its
/// packets.
pub fn acknowledged(
    ctx: &mut StepContext<'_, '_>,
    ran_id: RanUeNgapId,
    (admitted, failed): (&SessionItems, &SessionItems),
    container: Vec<u8>,
) {
    let Some(mut moving) = n2_handover(ctx, false) else { return };
    moving.ran_id = Some(ran_id);
    store(ctx, moving);
    if is_too_large(ctx, &container) {
        return fail(ctx, Radio::ho_failure_in_target_5GC_ngran_node_or_target_system);
    }
    if intersystem::is_overtaken(ctx) {
        return fail(ctx, Radio::interaction_with_other_procedure);
    }
    let target = moving.assoc.dialect();
    for (psi, transfer) in admitted.iter().filter(|(psi, _)| *psi < 16 && has(moving.requested, *psi)) {
        let Some(at) = intersystem::position(ctx, *psi, target) else { continue };
        user_plane::step(ctx, at, Input::MovePrepared(target, transfer));
    }
    if container.len() > HANDOVER_CONTAINER_OCTETS {
        // It is not stored while a UPF responds.
        user_plane::step_all(ctx, || Input::NoForwarding);
    }
    let waits = smf_updates::send_target_response(ctx, &moving, (admitted, failed), &container);
    if waits || sessions::await_forwarding(ctx.ue) {
        moving.deadline = ctx.now() + ctx.env.config.timers.ran_response;
        store(ctx, moving);
        smf_updates::await_command(ctx.ue, container);
    } else {
        command(ctx, moving, (sessions::commands(ctx.ue, &moving), Vec::new()), &container);
    }
}

/// Sends HANDOVER COMMAND to the source, with the transfers of sessions that are handed over, and
/// of some that are not.
fn command(
    ctx: &mut StepContext<'_, '_>,
    mut moving: N2Handover,
    (commands, refused): (SessionItems, SessionItems),
    container: &[u8],
) {
    if commands.is_empty() {
        return fail(ctx, Radio::ho_failure_in_target_5GC_ngran_node_or_target_system);
    }
    let goes_along = bits(&commands);
    if ctx.ue.handover.as_ref().is_some_and(Handover::changes_system) {
        intersystem::command(ctx, moving.assoc.dialect(), commands, container);
    } else {
        command_within(ctx, &moving, (commands, refused), container);
    }
    (moving.progress, moving.requested) = (Progress::Commanded, goes_along);
    moving.deadline = ctx.now() + ctx.env.config.timers.ran_response;
    store(ctx, moving);
}

/// Sends HANDOVER COMMAND of a handover within one system.
fn command_within(
    ctx: &mut StepContext<'_, '_>,
    moving: &N2Handover,
    (commands, mut refused): (SessionItems, SessionItems),
    container: &[u8],
) {
    let goes_along = bits(&commands);
    // An SMF without a response may have prepared its session.
    smf_updates::cancel_some(ctx, moving, moving.requested & !goes_along & !bits(&refused));
    let dialect = moving.assoc.dialect();
    let mut reason = |psi| refused.iter().position(|(p, _)| *p == psi).map(|at| refused.swap_remove(at).1);
    let lost = (0..16).filter(|psi| has(moving.requested & !goes_along, *psi));
    let lost =
        lost.map(|psi| (psi, reason(psi).unwrap_or_else(|| messages::refusal(dialect, HandoverRefusal::Preparation))));
    let lost = lost.collect();
    ctx.send(|c| messages::handover_command(c, (commands, lost), container, None));
}

/// Handles HANDOVER FAILURE of the target.
pub fn refused(ctx: &mut StepContext<'_, '_>, cause: Cause) {
    let Some(moving) = n2_handover(ctx, false) else { return };
    ctx.ue.handover = None;
    ctx.note(Note::Failed(Kind::Handover, 0));
    user_plane::step_all(ctx, || Input::HandoverCancelled);
    smf_updates::cancel(ctx, &moving);
    ctx.send(|c| messages::preparation_failure(c, cause));
}

/// Handles HANDOVER NOTIFY: the UE is at the target.
pub fn notified(ctx: &mut StepContext<'_, '_>, location: Option<(Tai, NrCgi)>) {
    let Some(moving) = n2_handover(ctx, true) else { return };
    let handover = ctx.ue.handover.take();
    let (Some(old), Some(ran_id)) = (ctx.ue.connection, moving.ran_id) else { return };
    let (tai, cell) = location.unwrap_or((moving.tai, old.cell));
    ctx.ue.connection =
        Some(Connection { assoc: moving.assoc, ran_id, amf_id: moving.amf_id, tai, cell, ran: RanContext::SetUp });
    match handover {
        Some(Handover::ChangingSystem(change)) => intersystem::arrive(ctx, change.keys),
        _ => user_plane::step_all(ctx, || Input::HandoverComplete),
    }
    let untold = smf_updates::complete(ctx, &moving, (tai, cell));
    source::start(ctx, old);
    ctx.note(Note::Succeeded(Kind::Handover, moving.started));
    if let Some(psi) = untold {
        smf_updates::buffer_unconfirmed(ctx, psi);
    }
}

/// Handles HANDOVER CANCEL of the source.
pub fn cancelled(ctx: &mut StepContext<'_, '_>) {
    abort(ctx);
    // The source knows that the UE has not left.
    ctx.ue.handover = None;
    ctx.send(messages::cancel_acknowledge);
}

/// Handles a message of the source node that the UE has left, except NAS messages. It may have
/// crossed a message to that node.
pub fn on_source_message(ctx: &mut StepContext<'_, '_>, message: &UeMessage) {
    match message {
        UeMessage::ReleaseComplete { .. } | UeMessage::Error(_) => source::on_release(ctx),
        UeMessage::ReleaseRequest { .. } => source::release(ctx),
        UeMessage::HandoverCancel { .. } => source::answer(ctx, messages::cancel_acknowledge),
        // The RAN status transfer is too late, and other messages are about sessions at the target.
        _ => {}
    }
}

/// Handles the loss of the source node's association, or the reuse of its RAN-UE-NGAP-ID.
pub fn source_lost(ctx: &mut StepContext<'_, '_>) {
    source::on_release(ctx);
}

/// Forwards UPLINK RAN STATUS TRANSFER or eNB STATUS TRANSFER of the source to the target, once:
/// the source sends it when the status does not change any more (TS 38.413 8.4.6.2, TS 36.413
/// 8.4.6.2).
pub fn status_transfer(ctx: &mut StepContext<'_, '_>, container: &[u8]) {
    match &mut ctx.ue.handover {
        Some(Handover::Moving(moving)) if moving.progress == Progress::Commanded => {
            let N2Handover { assoc, amf_id, ran_id: Some(ran_id), .. } = *moving else { return };
            moving.progress = Progress::StatusRelayed;
            let pdu = messages::status_transfer(assoc, amf_id, ran_id, container);
            ctx.effect(Effect::Ngap { assoc, pdu });
        }
        _ => ctx.note(Note::fault("handover-out-of-place")),
    }
}

/// Handles the deadline of an N2 handover: the target did not respond, or the UE did not arrive.
/// The source knows where the UE is: it keeps the UE or releases it (TNGRELOCoverall).
pub fn on_deadline(ctx: &mut StepContext<'_, '_>) {
    source::on_deadline(ctx);
    let due = ctx.ue.handover.as_ref().and_then(Handover::deadline).is_some_and(|d| d <= ctx.now());
    if due {
        ctx.note(Note::fault("handover-timeout"));
        fail(ctx, Radio::ho_failure_in_target_5GC_ngran_node_or_target_system);
    }
}

/// Fails the handover at the target. The source is informed if it waits for a response.
pub fn fail(ctx: &mut StepContext<'_, '_>, cause: Radio) {
    if ctx.ue.handover.as_ref().and_then(Handover::target).is_some_and(|m| !m.is_commanded()) {
        ctx.send(|c| messages::preparation_failure(c, Cause::radioNetwork(cause)));
    }
    abort(ctx);
}

/// Handles the reuse of the target's RAN-UE-NGAP-ID: the target has dropped this UE.
pub fn on_target_id_reused(ctx: &mut StepContext<'_, '_>) {
    if let Some(target) = ctx.ue.handover.as_mut().and_then(Handover::target_mut) {
        target.ran_id = None;
    }
    target_lost(ctx);
}

/// Handles the loss of the target's association, and of the resources prepared there.
pub fn target_lost(ctx: &mut StepContext<'_, '_>) {
    fail(ctx, Radio::ho_failure_in_target_5GC_ngran_node_or_target_system);
}

/// Aborts a handover and releases the resources prepared at the target. A UE that was commanded to
/// the other system may have arrived: the keys that it then has remain.
pub fn abort(ctx: &mut StepContext<'_, '_>) {
    let handover = ctx.ue.remote_sessions.handover.take();
    let aborted = ctx.ue.handover.take();
    match &aborted {
        None => return,
        Some(Handover::Unconfirmed(_)) => {
            ctx.ue.handover = aborted;
            return;
        }
        Some(Handover::Switching(_)) => ctx.note(Note::Failed(Kind::PathSwitch, 0)),
        Some(Handover::Modifying(_)) => ctx.note(Note::fault("tunnel-modification-aborted")),
        Some(Handover::Moving(_) | Handover::ChangingSystem(_)) => ctx.note(Note::Failed(Kind::Handover, 0)),
    }
    let Some(moving) = aborted.as_ref().and_then(Handover::target) else { return };
    user_plane::step_all(ctx, || Input::HandoverCancelled);
    smf_updates::cancel(ctx, moving);
    if handover.is_some_and(|handover| matches!(handover.stage, HandoverSmfStage::Preparing { .. })) {
        // No request was sent to the target.
        return;
    }
    let cause = Cause::radioNetwork(Radio::handover_cancelled);
    let pdu = messages::release_target(moving.assoc, moving.amf_id, moving.ran_id, cause);
    ctx.effect(Effect::Ngap { assoc: moving.assoc, pdu });
    ctx.ue.handover = aborted.and_then(Handover::unconfirmed);
}
