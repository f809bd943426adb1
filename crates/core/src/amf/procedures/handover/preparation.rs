//! Start and refusal of an N2 or S1 handover.

use super::messages;
use super::state::{N2Handover, Progress};
use crate::amf::n2::Cause;
use crate::step::{Kind, Note, StepContext};
use vireo_types::{AssocId, Tai};
use vireo_wire::ngap::CauseRadioNetwork as Radio;

/// Returns the state of a handover whose target has no request yet.
pub(super) fn new_target(ctx: &mut StepContext<'_, '_>, assoc: AssocId, tai: Tai) -> N2Handover {
    N2Handover {
        assoc,
        amf_id: ctx.next_amf_id(assoc),
        ran_id: None,
        tai,
        requested: 0,
        progress: Progress::Preparing,
        started: ctx.received_at(),
        deadline: ctx.now() + ctx.env.config.timers.ran_response,
    }
}

/// Refuses the handover: the UE stays at the source. A request that crosses UE CONTEXT RELEASE
/// COMMAND is not answered: the source has no UE context any more.
pub(super) fn refuse(ctx: &mut StepContext<'_, '_>, cause: Radio) {
    ctx.note(Note::Failed(Kind::Handover, 0));
    if ctx.is_being_released() {
        return;
    }
    ctx.send(|c| messages::preparation_failure(c, Cause::radioNetwork(cause)));
}
