//! Paging (TS 23.502 4.2.3.3, TS 24.501 5.6.2): an idle UE is called in its whole registration area until it answers by
//! a service request or a registration, or T3513 has expired too often.
//!
//! It does not know what the UE is wanted for: that is in the context ([`crate::context::Wanted`]), and the engine sees
//! to it once the UE is there.

pub mod nr;

use crate::context::Retry;
use crate::procedures::common::user_plane;
use crate::session::Input;
use crate::step::{Effect, Kind, Note, StepContext};
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// A paging in progress (T3513).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paging {
    retry: Retry,
    started: Instant,
}

impl Paging {
    /// When something is due.
    pub fn deadline(&self) -> Instant {
        self.retry.deadline
    }
}

/// Pages the UE; `None` if it cannot be called, and is told of as unreachable then.
pub fn begin(turn: &mut StepContext<'_, '_>) -> Option<Paging> {
    turn.note(Note::Started(Kind::Paging));
    if turn.ue.unreachable || turn.ue.identity.tmsi.is_none() {
        on_no_response(turn);
        return None;
    }
    page(turn);
    let retry = Retry::start(turn.now(), turn.env.config.timers.t3513);
    Some(Paging { retry, started: turn.received_at() })
}

/// One page in every cell of the registration area. A UE that did not complete the change of its 5G-GUTI may listen to
/// either 5G-TMSI (TS 24.501 5.5.1.2.8 c).
fn page(turn: &mut StepContext<'_, '_>) {
    let (ue, env) = (&turn.ue, &turn.env);
    let tmsis = [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten();
    let pdus: Vec<_> = tmsis.map(|tmsi| nr::paging(env.config.guami(), tmsi, &ue.area)).collect();
    for assoc in env.ran.serving(&ue.area) {
        for pdu in &pdus {
            turn.out.effects.push(Effect::Ngap { assoc, pdu: pdu.clone() });
        }
    }
}

/// The UE is back.
pub fn answered(turn: &mut StepContext<'_, '_>, paging: Paging) {
    turn.note(Note::Succeeded(Kind::Paging, paging.started));
}

/// The deadline passed: `None` when the UE is given up.
pub fn on_deadline(turn: &mut StepContext<'_, '_>, paging: Paging) -> Option<Paging> {
    let timers = turn.env.config.timers;
    if paging.retry.deadline > turn.now() {
        return Some(paging);
    }
    match paging.retry.next(turn.now(), timers.t3513, timers.retransmissions) {
        Some(retry) => {
            page(turn);
            Some(Paging { retry, ..paging })
        }
        None => {
            on_no_response(turn);
            None
        }
    }
}

/// The sessions are told; a deregistration that was wanted stays wanted, and the engine does it without the UE.
fn on_no_response(turn: &mut StepContext<'_, '_>) {
    turn.note(Note::Failed(Kind::Paging, 0));
    user_plane::step_all(turn, || Input::Unreachable);
    let wanted = &mut turn.ue.wanted;
    (wanted.sessions, wanted.signalling) = (0, false);
}
