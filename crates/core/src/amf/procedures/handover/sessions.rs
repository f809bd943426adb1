//! Sets of a UE's sessions, one bit each.

use crate::smf::{N4State, SmContext};
use crate::step::StepContext;

/// Returns the sessions of a list.
pub(super) fn bits<'a>(items: impl IntoIterator<Item = &'a (u8, Vec<u8>)>) -> u16 {
    // PDU session IDs are octets in NGAP; 5GSM uses 1 to 15.
    items.into_iter().filter(|(psi, _)| *psi < 16).fold(0, |bits, (psi, _)| bits | 1 << psi)
}

pub(super) fn has(bits: u16, psi: u8) -> bool {
    bits >> psi & 1 == 1
}

/// Returns the index of a live session.
pub(super) fn position(ctx: &StepContext<'_, '_>, psi: u8) -> Option<usize> {
    ctx.ue.sessions.iter().position(|s| s.id() == psi && s.is_live())
}

/// Returns true if a UPF has not responded to an update of one of these sessions.
pub(super) fn is_any_updating(ctx: &StepContext<'_, '_>, sessions: u16) -> bool {
    let updates = |s: &SmContext| matches!(s.n4, N4State::Updating { .. } | N4State::Converting);
    let waits = |s: &SmContext| has(sessions, s.id()) && s.is_live() && updates(s);
    ctx.ue.sessions.iter().any(waits)
}
