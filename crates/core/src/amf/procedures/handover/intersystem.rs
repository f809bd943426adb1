//! Handover between 5GS and EPS: sessions and keys of the other system (TS 23.502 4.11.1.2, TS
//! 33.501 8.3, 8.4).
//!
//! Sessions that have an identity in the other system are handed over, with keys that are mapped
//! when the target is requested. Nothing else changes before the UE is at the target, so that it
//! stays at the source unharmed if the handover fails. The source forwards packets through the UPF.

use super::messages::{self, MappedCommand, MappedRequest, Request, RequestedSession};
use super::preparation::{new_target, refuse};
use super::sessions::can_forward;
use super::state::{Handover, N2Handover, SystemChange};
use crate::amf::context::{HandoverKeys, NasSecurity, UeContext, UeSecurityCapability};
use crate::amf::n2::{HandoverRequired, SessionItems, UeInformation};
use crate::amf::procedures::common::{moves, security_setup, session_conversion, user_plane};
use crate::smf::{HandoverRefusal, Input};
use crate::step::{Effect, StepContext};
use vireo_types::{AssocId, Dialect, Tai};
use vireo_wire::ngap::CauseRadioNetwork as Radio;

/// Returns the index of the live session that has this identity in a dialect.
pub(super) fn position(ctx: &StepContext<'_, '_>, id: u8, dialect: Dialect) -> Option<usize> {
    ctx.ue.sessions.iter().position(|s| s.id_in(dialect) == id && s.is_live())
}

/// Handles HANDOVER REQUIRED to a RAN node of the other system.
pub(super) fn on_required(ctx: &mut StepContext<'_, '_>, request: &HandoverRequired, (assoc, tai): (AssocId, Tai)) {
    let to = assoc.dialect();
    // A procedure in progress may replace the keys or the sessions.
    if ctx.ue.procedure.is_some() {
        return refuse(ctx, Radio::interaction_with_other_procedure);
    }
    if moves::not_allowed(ctx.ue, to).is_some() {
        return refuse(ctx, Radio::ho_target_not_allowed);
    }
    let sessions = requested_sessions(ctx, request, to);
    if sessions.is_empty() {
        user_plane::step_all(ctx, || Input::NoForwarding);
        // TS 23.502 4.11.1.2: no session can be in the other system.
        return refuse(ctx, Radio::ho_target_not_allowed);
    }
    let capability = capability(ctx, to);
    let HandoverKeys { mapped: keys, next_hop, container } = match map(ctx, to, capability) {
        Ok(keys) => keys,
        Err(cause) => {
            user_plane::step_all(ctx, || Input::NoForwarding);
            return refuse(ctx, cause);
        }
    };
    let requested = sessions.iter().fold(0, |bits, session| bits | 1 << session.psi);
    let target = N2Handover { requested, ..new_target(ctx, assoc, tai) };
    let request = Request {
        guami: ctx.env.config.guami(),
        cause: request.cause.clone(),
        ambr: ctx.ue.ambr_in(to),
        capability,
        next_hop,
        sessions,
        allowed: &ctx.ue.allowed,
        container: &request.container,
        nr_algorithms: ctx.ue.security_capability.nr_algorithms(),
        // The registration area is that of the other system.
        information: UeInformation {
            inactive: None,
            ..UeInformation::from_context(ctx.ue, ctx.env.config, (to, tai.plmn))
        },
        mapped: Some(MappedRequest { container }),
    };
    let pdu = messages::handover_request(assoc, target.amf_id, request);
    ctx.effect(Effect::Ngap { assoc, pdu });
    ctx.ue.handover = Some(Handover::ChangingSystem(Box::new(SystemChange { target, keys })));
}

/// Returns the sessions for the target: those that the source has and that can be in the other
/// system.
fn requested_sessions(ctx: &mut StepContext<'_, '_>, request: &HandoverRequired, to: Dialect) -> Vec<RequestedSession> {
    let mut sessions = Vec::new();
    let source = ctx.ue.dialect();
    for (id, required) in messages::required_sessions(source, ctx.ue, request) {
        let Some(at) = position(ctx, id, source) else { continue };
        let session = &ctx.ue.sessions[at];
        let (psi, snssai) = (session.id_in(to), session.terms.snssai);
        let is_new = sessions.iter().all(|other: &RequestedSession| other.psi != psi);
        if !is_new || !session_conversion::can_move(session, to) {
            continue;
        }
        if let Some(transfer) = user_plane::run(ctx, at, Input::MoveRequired(to, &required)) {
            let forwards = can_forward(ctx, at);
            sessions.push(RequestedSession { psi, snssai, transfer, forwards });
        }
    }
    sessions
}

/// Returns the UE security capability for the target. A UE from EPS whose 5G capability is unknown
/// counts as one with the algorithms that every UE has (TS 33.501 8.4.2).
fn capability(ctx: &StepContext<'_, '_>, to: Dialect) -> UeSecurityCapability {
    match to {
        Dialect::Nr => ctx.ue.security_capability.or_5g_of(UeSecurityCapability::new(&[0xe0, 0x60])),
        Dialect::Eps => ctx.ue.security_capability,
    }
}

/// Maps the keys. The error is the cause of the refusal.
fn map(ctx: &mut StepContext<'_, '_>, to: Dialect, capability: UeSecurityCapability) -> Result<HandoverKeys, Radio> {
    let algorithms = security_setup::algorithms(ctx.env.config, to, capability);
    let cause = Radio::encryption_and_or_integrity_protection_algorithms_not_supported;
    let (integrity, ciphering) = algorithms.ok_or(cause)?;
    let security = ctx.ue.security.as_mut().filter(|security| security.dialect() != to);
    let keys = security.and_then(|security| match to {
        Dialect::Nr => security.handed_to_5g(integrity, ciphering),
        Dialect::Eps => security.handed_to_eps(integrity, ciphering),
    });
    keys.ok_or(Radio::unspecified)
}

/// Returns true if a procedure has begun since the preparation of a handover to the other system,
/// or has replaced the keys (TS 33.501 6.9.5). The UE stays at the source then.
pub(super) fn is_overtaken(ctx: &StepContext<'_, '_>) -> bool {
    let Some(Handover::ChangingSystem(change)) = &ctx.ue.handover else { return false };
    let is_source = |security: &NasSecurity| security.key_set.mapped() == change.keys.key_set;
    ctx.ue.procedure.is_some() || !ctx.ue.security.as_ref().is_some_and(is_source)
}

/// Sends HANDOVER COMMAND to the source. `commands` has the sessions that are handed over, by their
/// identities at the target.
pub(super) fn command(ctx: &mut StepContext<'_, '_>, to: Dialect, commands: SessionItems, container: &[u8]) {
    let Some(Handover::ChangingSystem(change)) = &ctx.ue.handover else { return };
    let mapped = MappedCommand { container: change.keys.n1_to_s1_container() };
    let (mut along, mut lost) = (SessionItems::new(), SessionItems::new());
    for session in ctx.ue.sessions.iter().filter(|s| s.is_up()) {
        match commands.iter().find(|(id, _)| *id == session.id_in(to)) {
            Some((_, transfer)) => along.push((session.id(), transfer.clone())),
            None => lost.push((session.id(), messages::refusal(session.dialect, HandoverRefusal::Preparation))),
        }
    }
    ctx.send(|c| messages::handover_command(c, (along, lost), container, Some(mapped)));
}

/// Takes keys and sessions of the other system into use: the UE is at the target.
pub(super) fn arrive(ctx: &mut StepContext<'_, '_>, keys: NasSecurity) {
    take_into_use(ctx, keys);
    session_conversion::convert_admitted(ctx);
}

/// Takes the keys of [`unconfirmed_keys`] into use: a message has verified under them. The sessions
/// follow as in an idle move, because the target has released its resources.
pub fn arrive_unconfirmed(ctx: &mut StepContext<'_, '_>, keys: NasSecurity) {
    ctx.ue.handover = None;
    take_into_use(ctx, keys);
    session_conversion::convert(ctx);
}

fn take_into_use(ctx: &mut StepContext<'_, '_>, keys: NasSecurity) {
    ctx.ue.security_capability = capability(ctx, keys.dialect());
    ctx.ue.security = Some(with_counts(keys, ctx.ue.security.as_ref()));
    // They are messages of the source's system.
    ctx.ue.deferred.clear();
}

/// Continues the COUNTs of the source's keys in EPS (TS 33.501 8.6.1), also with what was sent
/// since the mapping.
fn with_counts(mut keys: NasSecurity, source: Option<&NasSecurity>) -> NasSecurity {
    let Some(source) = source else { return keys };
    if keys.dialect() == Dialect::Eps {
        (keys.uplink, keys.downlink) = (source.uplink, source.downlink);
    }
    (keys.derives_keys, keys.agreed_at) = (source.derives_keys, source.agreed_at);
    keys
}

/// Returns the keys that the UE has if it has arrived at the target of a handover whose HANDOVER
/// NOTIFY is missing: the target was lost, or its reset has overtaken the message.
pub fn unconfirmed_keys(ue: &UeContext) -> Option<NasSecurity> {
    match &ue.handover {
        Some(Handover::Unconfirmed(keys)) => Some(with_counts(NasSecurity::clone(keys), ue.security.as_ref())),
        _ => None,
    }
}

/// Drops such keys of a UE that is not registered any more, or has other keys since.
pub fn drop_void_keys(ue: &mut UeContext) {
    let source = ue.security.as_ref().filter(|_| ue.is_registered()).map(|security| security.key_set.mapped());
    let is_void =
        |handover: &mut Handover| matches!(handover, Handover::Unconfirmed(keys) if source != Some(keys.key_set));
    ue.handover.take_if(is_void);
}
