//! Selection of the UE's connection that a message belongs to during a handover.
//!
//! It also handles the messages that only handovers have.

use super::nas::is_protected_by;
use super::termination;
use crate::amf::access;
use crate::amf::context::Connection;
use crate::amf::n2::{Cause, Fault, UeMessage};
use crate::amf::procedures::handover;
use crate::step::{Note, StepContext};
use vireo_types::{AmfUeNgapId, AssocId, Dialect, RanUeNgapId};
use vireo_wire::ngap::CauseRadioNetwork;

/// Label of the fault of PATH SWITCH REQUEST for a connection that the UE does not have.
pub const UNKNOWN_PATH_SWITCH: &str = "path-switch-unknown-ue";

/// Returns PATH SWITCH REQUEST FAILURE for a request of which nothing is processed; `None` if the
/// octets are another message.
///
/// # Errors
///
/// Returns the [`Fault`] of a request that does not decode.
pub fn refuse_path_switch(dialect: Dialect, amf_id: AmfUeNgapId, octets: &[u8]) -> Result<Option<Vec<u8>>, Box<Fault>> {
    let UeMessage::PathSwitch(request) = access::ue_message(dialect, octets)?.1 else { return Ok(None) };
    Ok(Some(handover::path_switch_refusal(dialect, amf_id, &request, CauseRadioNetwork::unspecified)))
}

/// Handles a message of a handover target, or of the source node that the UE has left. Returns the
/// message if it belongs to the UE's connection.
///
/// # Errors
///
/// Returns the [`Fault`] of a message that names no connection of the UE (TS 38.413 10.6).
pub(super) fn on_other_connection(
    ctx: &mut StepContext<'_, '_>,
    assoc: AssocId,
    amf_id: AmfUeNgapId,
    ran_id: Option<RanUeNgapId>,
    message: UeMessage,
) -> Result<Option<UeMessage>, Box<Fault>> {
    let raw = (Some(access::core_id(assoc.dialect(), amf_id)), ran_id.map(|id| id.0));
    if let UeMessage::PathSwitch(request) = &message {
        // The identifiers of the dialects are not distinct.
        if ctx.ue.connection.is_none_or(|c| c.amf_id != amf_id || c.assoc.dialect() != assoc.dialect()) {
            let cause = Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID);
            return Err(Fault::logical(UNKNOWN_PATH_SWITCH, cause, raw.0, raw.1));
        }
        // Messages of different associations are not ordered. The source must have set up the UE
        // context before the UE could leave, but its response may arrive later.
        super::context_is_set_up(ctx);
        handover::path_switch(ctx, assoc, request);
        return Ok(None);
    }
    let consistent = |known: Option<RanUeNgapId>| {
        if known.is_some() && ran_id.is_some() && known != ran_id {
            let cause = Cause::radioNetwork(CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID);
            return Err(Fault::logical("inconsistent-remote-ue-ngap-id", cause, raw.0, raw.1));
        }
        Ok(())
    };
    if let Some(source) = ctx.ue.source.map(|s| s.connection).filter(|c| c.assoc == assoc && c.amf_id == amf_id) {
        consistent(Some(source.ran_id))?;
        match message {
            // Sent before the UE left, under keys that it has left behind.
            UeMessage::UplinkNas { .. } if assoc.dialect() != ctx.ue.dialect() => {}
            // Sent before the UE left.
            UeMessage::UplinkNas { nas, .. } => super::uplink_nas(ctx, &nas),
            message => handover::on_source_message(ctx, &message),
        }
        return Ok(None);
    }
    // Messages of different associations are not ordered: one that the source of an Xn handover
    // sent earlier may arrive after the path switch. The context does not have its RAN-UE-NGAP-ID.
    // NAS messages are verified under the UE's keys; the others concern a session.
    let has_left_source =
        ctx.ue.is_switching_path() && ctx.ue.connection.is_some_and(|c| c.amf_id == amf_id && c.assoc != assoc);
    if has_left_source {
        match message {
            UeMessage::UplinkNas { nas, .. } => super::uplink_nas(ctx, &nas),
            UeMessage::SessionReleaseResponse { .. } => super::ue_message(ctx, message),
            // The Path Switch Request named the sessions that the target has.
            UeMessage::ContextSetupResponse { .. } | UeMessage::SessionSetupResponse { .. } => {}
            // The target gets a renewed key with the answer to its request.
            UeMessage::ContextModificationResponse | UeMessage::ContextModificationFailure { .. } => {}
            message => return Ok(Some(message)),
        }
        return Ok(None);
    }
    let target = ctx.ue.handover.as_ref().and_then(handover::Handover::target);
    let Some(target) = target.filter(|m| m.assoc == assoc && m.amf_id == amf_id) else { return Ok(Some(message)) };
    consistent(target.ran_id)?;
    match message {
        UeMessage::HandoverAcknowledge { admitted, failed, container } => {
            if let Some(ran_id) = ran_id {
                handover::acknowledged(ctx, ran_id, (&admitted, &failed), container);
            }
        }
        UeMessage::HandoverFailure { cause } => handover::refused(ctx, cause),
        UeMessage::HandoverNotify { location } => {
            // A procedure of the system that the UE has left ends with its keys.
            if ctx
                .ue
                .handover
                .as_ref()
                .is_some_and(|h| h.changes_system() && h.target().is_some_and(|t| t.is_commanded()))
            {
                termination::abort_procedure(ctx);
            }
            // HANDOVER REQUEST to an eNB had the UE-AMBR with bearers that it has not admitted.
            let before = ctx.ue.ambr_in(assoc.dialect());
            handover::notified(ctx, location);
            if ctx.ue.dialect() == assoc.dialect() {
                super::change_ambr(ctx, before);
            }
        }
        // The target aborts: for its own reasons, or because it does not know the UE.
        UeMessage::ReleaseRequest { .. } | UeMessage::Error(_) => handover::target_lost(ctx),
        UeMessage::ReleaseComplete { .. } | UeMessage::NonDelivery | UeMessage::Report => {}
        _ => ctx.note(Note::fault("handover-out-of-place")),
    }
    Ok(None)
}

/// Finds out where the UE is after a handover to the other system without HANDOVER NOTIFY: at the
/// target if its first message there verifies under the keys of the target, at the source if one
/// verifies under those of the source.
pub(super) fn on_first_message(ctx: &mut StepContext<'_, '_>, dialect: Dialect, nas: &[u8]) {
    let Some(keys) = handover::unconfirmed_keys(ctx.ue) else { return };
    if keys.dialect() == dialect && is_protected_by(&keys, nas) {
        ctx.note(Note::fault("handover-unconfirmed"));
        handover::arrive_unconfirmed(ctx, keys);
    } else if ctx.ue.security.as_ref().is_some_and(|own| own.dialect() == dialect && is_protected_by(own, nas)) {
        ctx.ue.handover = None;
    }
}

/// Handles a RAN-UE-NGAP-ID that the RAN node has reused for another UE: the node has no state of
/// this UE.
pub(super) fn on_ran_id_reuse(ctx: &mut StepContext<'_, '_>, assoc: AssocId, ran_id: RanUeNgapId) {
    if ctx.ue.source.is_some_and(|s| (s.connection.assoc, s.connection.ran_id) == (assoc, ran_id)) {
        handover::source_lost(ctx);
    }
    let target = ctx.ue.handover.as_ref().and_then(handover::Handover::target);
    if target.is_some_and(|m| (m.assoc, m.ran_id) == (assoc, Some(ran_id))) {
        handover::on_target_id_reused(ctx);
    }
}

/// Handles the loss of an association, or a partial reset, for the connections of the handover
/// target and source.
pub(super) fn on_connection_lost(ctx: &mut StepContext<'_, '_>, assoc: AssocId) {
    if ctx.ue.source.is_some_and(|s| s.connection.assoc == assoc) {
        handover::source_lost(ctx);
    }
    let of_target = ctx.ue.handover.as_ref().and_then(handover::Handover::target).is_some_and(|m| m.assoc == assoc);
    let serving = |c: &Connection| c.assoc == assoc;
    if of_target && !ctx.ue.connection.as_ref().is_some_and(serving) {
        handover::target_lost(ctx);
    }
}
