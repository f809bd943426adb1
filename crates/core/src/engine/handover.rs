//! Which of a UE's two connections a message is of while it is handed over, and the messages that only handovers have.

use crate::context::Connection;
use crate::n2::{Cause, Fault, UeMessage};
use crate::procedures::handover;
use crate::step::{Note, StepContext};
use vireo_types::{AmfUeNgapId, AssocId, RanUeNgapId};
use vireo_wire::ngap::CauseRadioNetwork;

/// Acts on a message that is of the target of a handover, or of a node that the UE has come to. Gives back what is not.
pub(super) fn on_other_connection(
    turn: &mut StepContext<'_, '_>,
    assoc: AssocId,
    amf_id: AmfUeNgapId,
    ran_id: Option<RanUeNgapId>,
    message: UeMessage,
) -> Result<Option<UeMessage>, Box<Fault>> {
    if let UeMessage::PathSwitch(request) = &message {
        if turn.ue.connection.is_none_or(|c| c.amf_id != amf_id) {
            let cause = Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID);
            let ran_id = ran_id.map(|id| id.0);
            return Err(Fault::logical("unknown-local-ue-ngap-id", cause, Some(amf_id.get()), ran_id));
        }
        // Associations keep no order among each other: that the node before has set the UE's context up, which it must have
        // done before the UE could leave it, may be heard later.
        super::context_is_set_up(turn);
        handover::path_switch(turn, assoc, request);
        return Ok(None);
    }
    let consistent = |known: Option<RanUeNgapId>| {
        if known.is_some() && ran_id.is_some() && known != ran_id {
            let cause = Cause::radioNetwork(CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID);
            let ran_id = ran_id.map(|id| id.0);
            return Err(Fault::logical("inconsistent-remote-ue-ngap-id", cause, Some(amf_id.get()), ran_id));
        }
        Ok(())
    };
    if let Some(source) = turn.ue.source.map(|s| s.connection).filter(|c| c.assoc == assoc && c.amf_id == amf_id) {
        consistent(Some(source.ran_id))?;
        match message {
            // It was on its way when the UE left.
            UeMessage::UplinkNas { nas, .. } => super::nas::uplink(turn, &nas),
            message => handover::of_source(turn, &message),
        }
        return Ok(None);
    }
    // Associations keep no order among each other: what the node that a UE has left by Xn sent before may come after the
    // path switch. Its number of the UE is not known any more; what it says is proved by the UE, or concerns a session.
    let left = matches!(turn.ue.handover, Some(handover::Handover::Switching(_)))
        && turn.ue.connection.is_some_and(|c| c.amf_id == amf_id && c.assoc != assoc);
    if left {
        match message {
            UeMessage::UplinkNas { nas, .. } => super::nas::uplink(turn, &nas),
            UeMessage::SessionReleaseResponse { .. } => super::ue_message(turn, message),
            // The path switch said what of it came along.
            UeMessage::ContextSetupResponse { .. } | UeMessage::SessionSetupResponse { .. } => {}
            message => return Ok(Some(message)),
        }
        return Ok(None);
    }
    let target = turn.ue.handover.as_ref().and_then(handover::Handover::target);
    let Some(target) = target.filter(|m| m.assoc == assoc && m.amf_id == amf_id) else { return Ok(Some(message)) };
    consistent(target.ran_id)?;
    match message {
        UeMessage::HandoverAcknowledge { admitted, failed, container } => {
            if let Some(ran_id) = ran_id {
                handover::acknowledged(turn, ran_id, (&admitted, &failed), container);
            }
        }
        UeMessage::HandoverFailure { cause } => handover::refused(turn, cause),
        UeMessage::HandoverNotify { location } => handover::notified(turn, location),
        // It gives up: because of itself, or because it does not know the UE (any more).
        UeMessage::ReleaseRequest { .. } | UeMessage::Error(_) => handover::target_lost(turn),
        UeMessage::ReleaseComplete | UeMessage::NonDelivery | UeMessage::Report => {}
        _ => turn.note(Note::fault("handover-out-of-place")),
    }
    Ok(None)
}

/// The node uses its number for the UE for another UE: nothing it has is this one's any more.
pub(super) fn ran_id_reused(turn: &mut StepContext<'_, '_>, assoc: AssocId, ran_id: RanUeNgapId) {
    if turn.ue.source.is_some_and(|s| (s.connection.assoc, s.connection.ran_id) == (assoc, ran_id)) {
        handover::source_lost(turn);
    }
    let target = turn.ue.handover.as_ref().and_then(handover::Handover::target);
    if target.is_some_and(|m| (m.assoc, m.ran_id) == (assoc, Some(ran_id))) {
        handover::on_target_id_reused(turn);
    }
}

/// The connection of an association that is gone, or of a partial reset, may be the target's, or the source's.
pub(super) fn on_connection_lost(turn: &mut StepContext<'_, '_>, assoc: AssocId) {
    if turn.ue.source.is_some_and(|s| s.connection.assoc == assoc) {
        handover::source_lost(turn);
    }
    let of_target = turn.ue.handover.as_ref().and_then(handover::Handover::target).is_some_and(|m| m.assoc == assoc);
    let serving = |c: &Connection| c.assoc == assoc;
    if of_target && !turn.ue.connection.as_ref().is_some_and(serving) {
        handover::target_lost(turn);
    }
}
