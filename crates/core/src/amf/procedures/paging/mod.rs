//! Paging (TS 23.502 4.2.3.3, TS 24.501 5.6.2).
//!
//! An idle UE is paged in its whole registration area. Paging ends with a service request or
//! registration of the UE, or after the last expiry of T3513. The purpose of paging is in the
//! context ([`crate::amf::context::PendingWork`]), and the engine executes it once the UE is
//! connected.

pub mod nr;
mod state;

pub use state::Paging;

use crate::amf::context::Retry;
use crate::amf::procedures::common::user_plane;
use crate::smf::Input;
use crate::step::{Effect, Kind, Note, StepContext};

/// Pages the UE. Returns `None` if it cannot be paged; it is then handled as unreachable.
pub fn begin(turn: &mut StepContext<'_, '_>) -> Option<Paging> {
    turn.note(Note::Started(Kind::Paging));
    if turn.ue.reachability.unreachable || turn.ue.identity.tmsi.is_none() {
        on_no_response(turn);
        return None;
    }
    page(turn);
    let retry = Retry::start(turn.now(), turn.env.config.timers.t3513);
    Some(Paging { retry, started: turn.received_at() })
}

/// Sends one page in every cell of the registration area. A UE that did not complete the change of
/// its 5G-GUTI may listen to either 5G-TMSI (TS 24.501 5.5.1.2.8 c).
fn page(turn: &mut StepContext<'_, '_>) {
    let (ue, env) = (&turn.ue, &turn.env);
    let tmsis = [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten();
    let pdus: Vec<_> = tmsis.map(|tmsi| nr::paging(env.config.guami(), tmsi, &ue.reachability.area)).collect();
    for assoc in env.ran.serving(&ue.reachability.area) {
        for pdu in &pdus {
            turn.out.effects.push(Effect::Ngap { assoc, pdu: pdu.clone() });
        }
    }
}

/// Handles the response of the UE.
pub fn answered(turn: &mut StepContext<'_, '_>, paging: Paging) {
    turn.note(Note::Succeeded(Kind::Paging, paging.started));
}

/// Handles the expiry of the deadline. Returns `None` if the UE did not respond to the last page.
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

/// Notifies the sessions and drops the pending work. A pending deregistration is kept, and the
/// engine executes it without the UE.
fn on_no_response(turn: &mut StepContext<'_, '_>) {
    turn.note(Note::Failed(Kind::Paging, 0));
    user_plane::step_all(turn, || Input::Unreachable);
    let wanted = &mut turn.ue.pending;
    (wanted.sessions, wanted.signalling) = (0, false);
}
