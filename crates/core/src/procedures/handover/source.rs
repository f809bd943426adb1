//! The RAN node that a UE has left by an N2 handover (TS 23.502 4.9.1.3.3 step 14): it keeps the UE's resources, and
//! forwards what reaches it, until the UPFs send to the target; then it is told to release the UE, and watched until it
//! has.

use super::smf_updates;
use crate::context::Connection;
use crate::n2::{self, Cause};
use crate::ran::{self, ResetItem};
use crate::session::N4State;
use crate::step::{Effect, Note, StepContext};
use serde::{Deserialize, Serialize};
use vireo_types::Instant;
use vireo_wire::ngap::CauseRadioNetwork as Radio;

/// The node that the UE has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceNode {
    /// The connection that the UE had there.
    pub connection: Connection,
    /// It was told to release the UE.
    commanded: bool,
    deadline: Instant,
}

impl SourceNode {
    /// When it is not waited for any longer: for the UPFs, or for the node's answer.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The UE is at the target.
pub(super) fn start(turn: &mut StepContext<'_, '_>, connection: Connection) {
    // One from before has had its time.
    release(turn);
    let deadline = turn.now() + turn.env.config.timers.ran_response;
    turn.ue.source = Some(SourceNode { connection, commanded: false, deadline });
}

/// Releases the node as soon as the UPFs send to the target, as far as is known here, or have been waited for long enough.
pub(super) fn proceed(turn: &mut StepContext<'_, '_>) {
    let Some(source) = turn.ue.source else { return };
    let told = turn.ue.sessions.iter().all(|s| !s.is_live() || !matches!(s.n4, N4State::Telling { .. }));
    if told && !smf_updates::is_leaving(turn.ue) || source.deadline <= turn.now() {
        release(turn);
    }
}

/// Tells the node to release the UE, if it was not told yet.
pub(super) fn release(turn: &mut StepContext<'_, '_>) {
    let Some(source) = turn.ue.source.filter(|s| !s.commanded) else { return };
    answer(turn, |c| n2::context_release_command(c, Cause::radioNetwork(Radio::successful_handover)));
    let deadline = turn.now() + turn.env.config.timers.ran_response;
    turn.ue.source = Some(SourceNode { commanded: true, deadline, ..source });
}

/// Sends the node a message about the UE.
pub(super) fn answer(turn: &mut StepContext<'_, '_>, build: impl FnOnce(&Connection) -> Vec<u8>) {
    if let Some(SourceNode { connection, .. }) = turn.ue.source {
        turn.effect(Effect::Ngap { assoc: connection.assoc, pdu: build(&connection) });
    }
}

/// The node has nothing of the UE any more.
pub(super) fn released(turn: &mut StepContext<'_, '_>) {
    turn.ue.source = None;
}

/// The node did not answer: a reset of the connection makes both sides agree that it is gone (TS 38.413 8.7.4).
pub(super) fn on_deadline(turn: &mut StepContext<'_, '_>) {
    if turn.ue.source.is_some_and(|s| s.commanded && s.deadline <= turn.now()) {
        turn.note(Note::fault("release-timeout"));
        answer(turn, |c| {
            let item = ResetItem { amf_id: Some(c.amf_id), ran_id: Some(c.ran_id) };
            ran::ng_reset_part(Cause::radioNetwork(Radio::release_due_to_5gc_generated_reason), &[item])
        });
        released(turn);
    }
}
