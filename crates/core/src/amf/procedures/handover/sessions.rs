//! Sets of a UE's sessions, one bit each, and their data for HANDOVER COMMAND.

use super::state::N2Handover;
use crate::amf::context::UeContext;
use crate::amf::n2::SessionItems;
use crate::smf::{self, N4State, SmContext};
use crate::step::StepContext;

/// Returns true if a list has two items of one session or E-RAB.
pub(super) fn names_twice(items: &SessionItems) -> bool {
    items.iter().enumerate().any(|(at, (id, _))| items[..at].iter().any(|(other, _)| other == id))
}

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

/// Returns true if packets of the session at this index can be forwarded to the target.
pub(super) fn can_forward(ctx: &StepContext<'_, '_>, at: usize) -> bool {
    ctx.ue.sessions.get(at).is_some_and(SmContext::can_forward)
}

/// Returns true if a UPF has yet to allocate a tunnel for forwarded packets.
pub(super) fn await_forwarding(ue: &UeContext) -> bool {
    ue.sessions.iter().any(SmContext::awaits_forwarding)
}

/// Returns the data for HANDOVER COMMAND of the sessions that the target has admitted, by their
/// identities there.
pub(super) fn commands(ue: &UeContext, moving: &N2Handover) -> SessionItems {
    let target = moving.assoc.dialect();
    let admitted = ue.sessions.iter().filter(|s| s.is_live() && has(moving.requested, s.id_in(target)));
    admitted.filter_map(|s| Some((s.id_in(target), smf::handover_command(s)?))).collect()
}
