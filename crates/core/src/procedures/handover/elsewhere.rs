//! Sessions that an SMF elsewhere has, in a handover: each SMF is asked, and when all have answered, what they have for the RAN goes
//! into one message (TS 23.502 4.9.1.2.2 step 7).

use super::has;
use crate::chain::{Crossing, RemoteSession, RemoteStage, SessionNumber, Update};
use crate::context::UeContext;
use crate::n2::PathSwitch;
use crate::procedures::common::remote;
use crate::session::N2Sm;
use crate::turn::Turn;

/// Whether the RAN has one of these sessions, a bit each, or was asked to set it up.
pub(super) fn is_any_up(turn: &Turn<'_, '_>, asked: u16) -> bool {
    turn.ue.chain.sessions.iter().any(|s| s.is_live() && s.up && has(asked, s.psi))
}

/// Asks the SMFs to switch what the RAN node that the UE has come to has set up, and tells them what it has not.
pub(super) fn switch(turn: &mut Turn<'_, '_>, request: &PathSwitch) {
    let Some(location) = turn.ue.connection.map(|c| (c.tai, c.cell)) else { return };
    let mut waiting = Vec::new();
    // However often the RAN names a session, its SMF is asked once.
    let mut named = 0_u16;
    let mut is_new = |psi: u8| {
        let is_new = psi < 16 && !has(named, psi);
        named |= u16::from(is_new) << (psi & 15);
        is_new
    };
    for (psi, transfer) in request.switched.iter().filter(|(psi, _)| is_new(*psi)) {
        let session = turn.ue.chain.of_psi(*psi).filter(|s| s.up || s.stage != RemoteStage::Creating);
        let Some(number) = session.map(|s| s.number) else { continue };
        if remote::update(turn, *psi, Update::Switch(transfer.clone(), location)) {
            waiting.push((number, transfer.clone()));
        } else {
            // There is no room for one more question of that kind: the RAN lets it go.
            buffer(turn, *psi);
        }
    }
    for (psi, transfer) in request.failed.iter().filter(|(psi, _)| is_new(*psi)) {
        let Some(session) = turn.ue.chain.of_psi(*psi) else { continue };
        session.up = false;
        if !remote::update(turn, *psi, Update::N2(N2Sm::PathSwitchSetupFailed, transfer.clone())) {
            buffer(turn, *psi);
        }
    }
    // What it does not name, it has released (TS 38.413 8.4.4.2).
    let is_named = |psi| request.switched.iter().chain(&request.failed).any(|(named, _)| *named == psi);
    for at in 0..turn.ue.chain.sessions.len() {
        let RemoteSession { psi, up, stage, .. } = turn.ue.chain.sessions[at];
        if up && stage != RemoteStage::Ending && !is_named(psi) {
            remote::deactivate_one(turn, at);
        }
    }
    if !waiting.is_empty() {
        turn.ue.chain.crossing = Some(Box::new(Crossing { waiting, ..Crossing::default() }));
    }
}

/// A session whose tunnel the RAN does not have: its SMF is to have packets buffered.
pub fn buffer(turn: &mut Turn<'_, '_>, psi: u8) {
    let Some(at) = turn.ue.chain.sessions.iter().position(|s| s.psi == psi && s.is_live()) else { return };
    match &mut turn.ue.chain.sessions[at] {
        session if session.stage == RemoteStage::Creating => session.up = false,
        _ => remote::deactivate_one(turn, at),
    }
}

/// Whether an SMF that is asked because of the handover has not answered. One whose session has ended meanwhile is not waited for.
pub(super) fn is_waiting(ue: &UeContext) -> bool {
    let lives = |number| ue.chain.sessions.iter().any(|s| s.number == number && s.is_live());
    ue.chain.crossing.as_ref().is_some_and(|crossing| crossing.waiting.iter().any(|(number, _)| lives(*number)))
}

/// What the SMFs have for the RAN: of sessions that go along, added to those that are here; and, given back, of those that do not.
pub(super) fn settled(ue: &mut UeContext, switched: &mut Vec<(u8, Vec<u8>)>) -> Vec<(u8, Vec<u8>)> {
    let Crossing { taken, lost, .. } = ue.chain.crossing.take().map(|crossing| *crossing).unwrap_or_default();
    // Meanwhile the RAN may have been told to let go of one, and another one may have its identity.
    let goes_along = |number| ue.chain.sessions.iter().any(|s| s.number == number && s.is_live() && s.up);
    let there = taken.into_iter().filter(|(_, number, _)| goes_along(*number));
    switched.extend(there.map(|(psi, _, transfer)| (psi, transfer)));
    lost
}

/// The SMF has answered for a session that the RAN wants switched by this transfer, with what the RAN is told of it. Whether that
/// was waited for.
pub fn smf_answered(
    turn: &mut Turn<'_, '_>,
    (psi, number): (u8, SessionNumber),
    asked: &[u8],
    told: Option<(N2Sm, Vec<u8>)>,
) -> bool {
    let Some(crossing) = &mut turn.ue.chain.crossing else { return false };
    let at = crossing.waiting.iter().position(|(waits, transfer)| *waits == number && transfer == asked);
    let Some(at) = at else { return false };
    crossing.waiting.remove(at);
    match told {
        Some((N2Sm::PathSwitchAcknowledge, transfer)) => crossing.taken.push((psi, number, transfer)),
        Some((_, transfer)) => crossing.lost.push((psi, transfer)),
        None => {}
    }
    true
}
