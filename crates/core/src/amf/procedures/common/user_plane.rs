//! Delivery of the output of session steps to UE, RAN, UPF and counters.

use super::{context_setup, smf_requests};
use crate::amf::access;
use crate::amf::context::{Connection, DeferredSessionMessage, UeContext};
use crate::amf::n2::{Cause, SessionSetup};
use crate::smf::{self, Input, N2Sm, Output};
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::{Dialect, SessionIndex, limits};
use vireo_wire::nas::*;
use vireo_wire::ngap::CauseTransport;

/// Runs a step of the session at index `at` and delivers its output. The session may be removed.
pub fn step(ctx: &mut StepContext<'_, '_>, at: usize, input: Input<'_>) {
    let Some(sm) = ctx.ue.sessions.get_mut(at) else { return };
    let (psi, index) = (sm.id(), sm.index);
    let outputs = smf::step(sm, input, ctx.env);
    deliver(ctx, psi, index, outputs);
}

/// Runs a step of every session.
pub fn step_all(ctx: &mut StepContext<'_, '_>, input: impl Fn() -> Input<'static>) {
    // In reverse order, so that a removed session does not shift the remaining ones.
    for at in (0..ctx.ue.sessions.len()).rev() {
        step(ctx, at, input());
    }
    smf_requests::step_all(ctx, &input());
}

/// Returns the idle bearers among these sessions that the eNB gets only with another UE context: it
/// has one, and E-RAB SETUP REQUEST needs a NAS message (TS 36.413 9.1.3.1). There is none for a
/// bearer that the UE has.
pub fn bearers_of_next_context(ue: &UeContext, wanted: impl Fn(u8) -> bool) -> u16 {
    let has_context = |c: &Connection| c.assoc.dialect() == Dialect::Eps && !c.ran.is_none();
    if !ue.connection.as_ref().is_some_and(has_context) {
        return 0;
    }
    let is_idle = |s: &&smf::SmContext| s.is_live() && s.ran == smf::RanState::Idle && !s.is_over_nas();
    let idle = ue.sessions.iter().filter(is_idle).map(smf::SmContext::id);
    idle.filter(|ebi| wanted(*ebi)).fold(0, |bits, ebi| bits | 1 << ebi)
}

/// Activates the user plane of those of these sessions that have none: a RAN node refuses a second
/// set-up (TS 38.413 8.2.1.4). Returns their set-up items for the RAN. Bearers that the eNB cannot
/// set up stay pending.
pub fn activate(ctx: &mut StepContext<'_, '_>, wanted: impl Fn(u8) -> bool) -> Vec<SessionSetup> {
    let later = bearers_of_next_context(ctx.ue, &wanted);
    ctx.ue.pending.sessions |= later;
    let mut items = Vec::new();
    for at in 0..ctx.ue.sessions.len() {
        let sm = &mut ctx.ue.sessions[at];
        if !sm.is_live() || sm.is_up() || !wanted(sm.id()) || later >> sm.id() & 1 == 1 {
            continue;
        }
        let (psi, index, snssai) = (sm.id(), sm.index, sm.terms.snssai);
        let mut rest = Vec::new();
        for output in smf::step(sm, Input::Activate, ctx.env) {
            match output {
                Output::N2(N2Sm::SetupRequest, transfer) => {
                    items.push(SessionSetup { psi, snssai, nas: None, transfer })
                }
                other => rest.push(other),
            }
        }
        deliver(ctx, psi, index, rest);
    }
    items
}

/// Runs a step of the session at index `at` and delivers its output, except the NGAP transfer. That
/// is returned for a message of the caller.
pub fn run(ctx: &mut StepContext<'_, '_>, at: usize, input: Input<'_>) -> Option<Vec<u8>> {
    let sm = ctx.ue.sessions.get_mut(at)?;
    let (psi, index) = (sm.id(), sm.index);
    let mut transfer = None;
    let mut rest = Vec::new();
    for output in smf::step(sm, input, ctx.env) {
        match output {
            Output::N2(_, octets) => transfer = Some(octets),
            other => rest.push(other),
        }
    }
    deliver(ctx, psi, index, rest);
    transfer
}

/// Delivers the output of a session step.
pub fn deliver(ctx: &mut StepContext<'_, '_>, psi: u8, index: SessionIndex, outputs: Vec<Output>) {
    let mut n1 = None;
    let mut n2 = None;
    for output in outputs {
        match output {
            Output::N1(message) => {
                count_reject(ctx, &message);
                // One N2 message accompanies at most one N1 message: send the earlier N1 message
                // separately.
                if let Some(earlier) = n1.replace(message) {
                    pass_on(ctx, DeferredSessionMessage { psi, n1: Some(earlier), n2: None });
                }
            }
            Output::N2(kind, transfer) => n2 = Some((kind, transfer)),
            Output::Pfcp { upf, message } => ctx.effect(Effect::Pfcp { upf, session: index, message }),
            Output::FreeAddress(dnn, address) => ctx.effect(Effect::FreeAddress(*dnn, address)),
            Output::Released => ctx.ue.sessions.retain(|s| s.index != index),
            Output::Established => finished(ctx, index, Kind::Session),
            Output::Activated => finished(ctx, index, Kind::Activation),
            // The engine pages an idle UE, and activates the user plane of a connected one.
            Output::DownlinkData => ctx.ue.pending.sessions |= 1 << psi,
            Output::UsageReported { uplink, downlink } => ctx.note(Note::UsageReported { uplink, downlink }),
            Output::QosFlowsNotified { fulfilled, not_fulfilled } => {
                ctx.note(Note::QosFlowsNotified { fulfilled, not_fulfilled });
            }
            Output::Relocated(since) => ctx.note(Note::Succeeded(Kind::Relocation, since)),
            Output::NotRelocated => ctx.note(Note::Failed(Kind::Relocation, 0)),
            Output::Modified(since) => ctx.note(Note::Succeeded(Kind::Modification, since)),
            Output::NotModified(cause) => ctx.note(Note::Failed(Kind::Modification, cause)),
            // The session repeats it after a handover.
            Output::ReleaseConnection => {
                let cause = Cause::transport(CauseTransport::transport_resource_unavailable);
                ctx.postponed_release = Some(cause);
            }
        }
    }
    pass_on(ctx, DeferredSessionMessage { psi, n1, n2 });
}

/// Counts a 5GSM or ESM reject by its cause (TS 24.501 8.3.3, 8.3.13, 9.11.4.2; TS 24.301 8.3.19,
/// 8.3.21). Returns the kind of procedure that it ends.
pub fn count_reject(ctx: &mut StepContext<'_, '_>, n1: &[u8]) -> Option<Kind> {
    const ESTABLISHMENT_REJECT: u8 = 0xc3;
    const RELEASE_REJECT: u8 = 0xd2;
    const CONNECTIVITY_REJECT: u8 = 0xd1;
    const DISCONNECT_REJECT: u8 = 0xd3;
    let (kind, cause) = match n1 {
        [0x2e, _, _, ESTABLISHMENT_REJECT, cause, ..] => (Kind::Session, *cause),
        [0x2e, _, _, RELEASE_REJECT, cause, ..] => (Kind::SessionRelease, *cause),
        [0x02, _, CONNECTIVITY_REJECT, cause, ..] => (Kind::Session, *cause),
        [0x02, _, DISCONNECT_REJECT, cause, ..] => (Kind::SessionRelease, *cause),
        _ => return None,
    };
    ctx.note(Note::Failed(kind, cause));
    Some(kind)
}

/// Maximum number of deferred messages of a UE: three per session. A handover takes seconds.
pub(super) const HELD_LIMIT: usize = 3 * limits::SESSIONS_PER_UE;

/// Sends the output of a session, or defers it.
fn pass_on(ctx: &mut StepContext<'_, '_>, message: DeferredSessionMessage) {
    if !ctx.ue.defers_session_messages() || message.n1.is_none() && message.n2.is_none() {
        return send(ctx, message);
    }
    if ctx.ue.deferred.len() < HELD_LIMIT {
        ctx.ue.deferred.push(message);
    } else {
        ctx.note(Note::fault("handover-held-too-much"));
    }
}

pub(super) fn send(ctx: &mut StepContext<'_, '_>, DeferredSessionMessage { psi, n1, n2 }: DeferredSessionMessage) {
    match (n1, n2) {
        (n1, Some((kind, transfer))) => send_n2(ctx, psi, kind, transfer, n1),
        (Some(n1), None) => send_n1(ctx, psi, n1),
        (None, None) => {}
    }
}

/// Sends the deferred messages once the UE is at a RAN node.
pub fn send_deferred(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.defers_session_messages() {
        return;
    }
    for message in std::mem::take(&mut ctx.ue.deferred) {
        send(ctx, message);
    }
}

/// Drops the deferred messages of a UE that is at neither RAN node. Its session sends N1 messages
/// again when the UE is back, and the RAN request is created again then.
pub fn drop_deferred(ctx: &mut StepContext<'_, '_>) {
    ctx.ue.pending.signalling |= std::mem::take(&mut ctx.ue.deferred).iter().any(|held| held.n1.is_some());
}

fn finished(ctx: &mut StepContext<'_, '_>, index: SessionIndex, kind: Kind) {
    if let Some(since) = ctx.ue.sessions.iter().find(|s| s.index == index).map(|s| s.since) {
        ctx.note(Note::Succeeded(kind, since));
    }
}

/// Activates the user plane of those of these sessions that have none.
pub fn restore(ctx: &mut StepContext<'_, '_>, sessions: u16) {
    let idle = |s: &smf::SmContext| s.ran == smf::RanState::Idle && sessions >> s.id() & 1 == 1;
    let bits = ctx.ue.sessions.iter().filter(|s| idle(s)).fold(0u16, |bits, s| bits | 1 << s.id());
    let items = activate(ctx, |psi| bits >> psi & 1 == 1);
    smf_requests::activate(ctx, sessions);
    context_setup::set_up(ctx, None, items);
}

/// Delivers a message to the UE that no session has sent.
pub fn deliver_message(ctx: &mut StepContext<'_, '_>, psi: u8, n1: Vec<u8>) {
    count_reject(ctx, &n1);
    pass_on(ctx, DeferredSessionMessage { psi, n1: Some(n1), n2: None });
}

/// Encodes a 5GSM message as protected DL NAS TRANSPORT (TS 24.501 5.4.5.3). An ESM message is a
/// NAS message of its own (TS 24.301 9.1).
fn transport(ctx: &mut StepContext<'_, '_>, psi: u8, message: Vec<u8>) -> Option<Vec<u8>> {
    if ctx.ue.dialect() == Dialect::Eps {
        return ctx.protect(message);
    }
    let transport = NasDlNasTransport::new(
        NasPayloadContainerType::from_kind(PayloadContainerKind::N1SmInformation),
        NasPayloadContainer::new(message),
    )
    .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(psi));
    ctx.nas(transport.into())
}

/// Sends a 5GSM message to the UE. An idle UE is paged, and its session then sends the message
/// again.
fn send_n1(ctx: &mut StepContext<'_, '_>, psi: u8, message: Vec<u8>) {
    if ctx.ue.connection.is_none() {
        ctx.ue.pending.signalling = true;
        return;
    }
    if let Some(nas) = transport(ctx, psi, message) {
        ctx.send_encoded_nas(nas);
    }
}

fn send_n2(ctx: &mut StepContext<'_, '_>, psi: u8, kind: N2Sm, transfer: Vec<u8>, n1: Option<Vec<u8>>) {
    if ctx.ue.connection.is_none() {
        ctx.ue.pending.signalling |= n1.is_some();
        return;
    }
    if ctx.is_being_released() {
        // The RAN node has released the UE. Session timers send N1 messages again, or the UE
        // requests them.
        return;
    }
    let nas = n1.and_then(|n1| transport(ctx, psi, n1));
    match kind {
        N2Sm::SetupRequest => {
            let here = ctx.ue.session(psi).map(|s| s.terms.snssai);
            let Some(snssai) = here.or_else(|| ctx.ue.remote_sessions.by_psi(psi).map(|s| s.snssai)) else { return };
            let session = SessionSetup { psi, snssai, nas, transfer };
            // An eNB gets the first bearer with the UE context (TS 36.413 9.1.4.1).
            if ctx.ue.connection.is_some_and(|c| c.ran.is_none() && c.assoc.dialect() == Dialect::Eps) {
                return context_setup::set_up(ctx, None, vec![session]);
            }
            let ambr = ctx.ue.ambr();
            ctx.send(|c| access::session_setup_request(c, ambr, session));
        }
        // The RAN node has nothing to release.
        N2Sm::ReleaseCommand if ctx.ue.connection.is_some_and(|c| c.ran.is_none()) => {
            nas.into_iter().for_each(|nas| ctx.send_encoded_nas(nas));
        }
        N2Sm::ReleaseCommand => {
            let ambr = ctx.ue.ambr();
            ctx.send(|c| access::session_release_command(c, psi, (ambr, nas), transfer));
        }
        // A RAN node that is releasing the UE, or has not set it up, has nothing to modify.
        N2Sm::ModifyRequest if ctx.ue.connection.is_some_and(|c| !c.ran.is_set_up()) => {
            nas.into_iter().for_each(|nas| ctx.send_encoded_nas(nas));
        }
        N2Sm::ModifyRequest => {
            let ambr = ctx.ue.ambr();
            ctx.send(|c| access::session_modify_request(c, psi, (ambr, nas), transfer));
        }
        // Transfers that only the RAN sends, or that only handover messages carry.
        N2Sm::SetupResponse
        | N2Sm::SetupUnsuccessful
        | N2Sm::ReleaseResponse
        | N2Sm::ModifyResponse
        | N2Sm::ModifyUnsuccessful
        | N2Sm::PathSwitchRequest
        | N2Sm::PathSwitchSetupFailed
        | N2Sm::HandoverRequired
        | N2Sm::HandoverRequestAcknowledge
        | N2Sm::HandoverCommand
        | N2Sm::PathSwitchAcknowledge
        | N2Sm::PathSwitchUnsuccessful
        | N2Sm::HandoverPreparationUnsuccessful
        | N2Sm::HandoverAllocationUnsuccessful
        | N2Sm::Notify
        | N2Sm::NotifyReleased
        | N2Sm::ModifyIndication
        | N2Sm::ModifyConfirm => {
            ctx.note(Note::fault("session-n2-direction"));
        }
    }
}

/// Ends the sessions that the UE does not have (PDU session status IE: bit n is session n, TS
/// 24.501 5.5.1.3.4).
pub fn drop_unknown(ctx: &mut StepContext<'_, '_>, status: u16) {
    for at in (0..ctx.ue.sessions.len()).rev() {
        if status >> ctx.ue.sessions[at].id() & 1 == 0 {
            step(ctx, at, Input::LostByUe);
        }
    }
    smf_requests::drop_unknown(ctx, status);
}

/// Returns the sessions whose user plane is up, one bit each.
pub fn active(ue: &UeContext) -> u16 {
    let remote = ue.remote_sessions.sessions.iter().filter(|session| session.is_live() && session.up);
    let remote = remote.fold(0, |bits, session| bits | 1 << session.psi);
    ue.sessions.iter().filter(|session| session.is_up()).fold(remote, |bits, session| bits | 1 << session.id())
}

/// Returns the PDU session status IE. A session whose release the UE does not know yet is not PDU
/// SESSION INACTIVE (TS 24.501 9.11.3.44).
pub fn status(ue: &UeContext) -> u16 {
    let there = |s: &&smf::SmContext| s.is_established() || matches!(s.stage, smf::Stage::Releasing { .. });
    ue.sessions.iter().filter(there).fold(ue.remote_sessions.status(), |bits, s| bits | 1 << s.id())
}

/// Returns the octets of a session bitmap in IE order: sessions 0 to 7, then 8 to 15 (TS 24.501
/// 9.11.3.44).
pub fn bitmap_octets(bits: u16) -> Vec<u8> {
    bits.to_le_bytes().to_vec()
}

/// Returns the session bitmap of an IE's octets.
pub fn bitmap(octets: &[u8]) -> u16 {
    match octets {
        [low, high, ..] => u16::from_le_bytes([*low, *high]),
        [low] => u16::from(*low),
        [] => 0,
    }
}
