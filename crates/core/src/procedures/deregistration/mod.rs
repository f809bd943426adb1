//! Deregistration by the UE and by the network (TS 24.501 5.5.2, TS 23.502 4.2.2.3).

pub mod nr;

use crate::context::{Registration, Retry};
use crate::n2::Cause;
use crate::procedures::common::user_plane;
use crate::session::Input;
use crate::step::{Effect, Kind, Note, StepContext};
use serde::{Deserialize, Serialize};
use vireo_types::{Duration, Instant};
use vireo_wire::nas::GmmCause;
use vireo_wire::ngap::CauseNas;

/// How long a deregistered UE's security context and 5G-GUTI are kept for its return.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// A deregistration by the network in progress: the request was sent (T3522).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregistering {
    retry: Retry,
    started: Instant,
    again: bool,
    cause: Option<u8>,
}

impl Deregistering {
    /// When something is due.
    pub fn deadline(&self) -> Instant {
        self.retry.deadline
    }
}

/// DEREGISTRATION REQUEST of the UE. A UE that switches off is not answered (5.5.2.2.2).
pub fn by_ue(turn: &mut StepContext<'_, '_>, switch_off: bool) {
    turn.note(Note::Started(Kind::Deregistration));
    let started = turn.received_at();
    if !switch_off {
        nr::send_accept(turn);
    }
    complete(turn);
    turn.release(Cause::nas(CauseNas::deregister));
    turn.note(Note::Succeeded(Kind::Deregistration, started));
}

/// DEREGISTRATION REQUEST without protection while a procedure runs. It is answered, as the UE may have given its
/// registration up; the procedure goes on, as another may have sent it.
pub fn unproved(turn: &mut StepContext<'_, '_>, switch_off: bool) {
    turn.note(Note::fault("nas-unproved-deregistration"));
    if !switch_off {
        nr::send_accept(turn);
    }
}

/// Deregistration by the network: the UE is told if it is connected, else it counts as gone at once.
pub fn by_network(turn: &mut StepContext<'_, '_>, again: bool, cause: Option<GmmCause>) -> Option<Deregistering> {
    turn.note(Note::Started(Kind::Deregistration));
    let started = turn.received_at();
    if turn.ue.connection.is_none() {
        complete(turn);
        turn.note(Note::Succeeded(Kind::Deregistration, started));
        return None;
    }
    let cause = cause.map(|c| c.as_u8());
    nr::send_request(turn, again, cause);
    let retry = Retry::start(turn.now(), turn.env.config.timers.t3522);
    Some(Deregistering { retry, started, again, cause })
}

/// DEREGISTRATION ACCEPT of the UE.
pub fn accepted(turn: &mut StepContext<'_, '_>, deregistering: Deregistering) {
    complete(turn);
    turn.release(Cause::nas(CauseNas::deregister));
    turn.note(Note::Succeeded(Kind::Deregistration, deregistering.started));
}

/// The deadline passed (5.5.2.3.5 a).
pub fn on_deadline(turn: &mut StepContext<'_, '_>, mut deregistering: Deregistering) -> Option<Deregistering> {
    let timers = turn.env.config.timers;
    if deregistering.retry.deadline > turn.now() {
        return Some(deregistering);
    }
    match deregistering.retry.next(turn.now(), timers.t3522, timers.retransmissions) {
        Some(again) => {
            deregistering.retry = again;
            nr::send_request(turn, deregistering.again, deregistering.cause);
            Some(deregistering)
        }
        None => {
            accepted(turn, deregistering);
            None
        }
    }
}

/// The UE is deregistered: its sessions end at the UPF, its keys and 5G-GUTI are kept for a while.
pub fn complete(turn: &mut StepContext<'_, '_>) {
    user_plane::step_all(turn, || Input::ReleaseLocally);
    turn.ue.registration = Registration::Deregistered;
    turn.ue.allowed.clear();
    turn.ue.expires = Some(turn.now() + KEPT_FOR);
}

/// Another context is the subscriber's now: this one ends without a word to the UE, and is forgotten once its sessions
/// are gone.
pub fn superseded(turn: &mut StepContext<'_, '_>) {
    complete(turn);
    turn.ue.security = None;
    for tmsi in [turn.ue.identity.tmsi.take(), turn.ue.identity.old_tmsi.take()].into_iter().flatten() {
        turn.effect(Effect::FreeTmsi(tmsi));
    }
    turn.release(Cause::nas(CauseNas::normal_release));
}
