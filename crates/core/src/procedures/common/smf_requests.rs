//! Sessions that an SMF elsewhere has, on the AMF's side: what happens to the UE becomes a question to the SMF, and what the
//! SMF has for UE and RAN is carried to them. What the answers come to is in `engine::smf_events`.

use super::user_plane::{self, DeferredSessionMessage, HELD_LIMIT};
use crate::context::RanContext;
use crate::sba::{
    N1N2Content, RemoteSession, RemoteStage, SessionNumber, SmfCreateRequest, SmfRequest, SmfUpdateRequest,
};
use crate::session::{Input, N2Sm};
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::limits::SM_INFORMATION_OCTETS;
use vireo_types::{Dnn, Snssai, Supi};

/// Asks for a new session.
pub fn create(turn: &mut StepContext<'_, '_>, supi: Supi, (psi, n1): (u8, &[u8]), (snssai, dnn): (Snssai, Dnn)) {
    let number = turn.ue.next_session;
    turn.ue.next_session = number.wrapping_add(1);
    let location = turn.ue.connection.map(|c| (c.tai, c.cell));
    let (pei, since) = (turn.ue.identity.pei, turn.received_at());
    let create = SmfCreateRequest { supi, pei, psi, snssai, dnn: dnn.clone(), location, n1: n1.to_vec() };
    let stage = RemoteStage::Creating;
    let session = RemoteSession {
        psi,
        number,
        snssai,
        dnn,
        reference: None,
        early: Vec::new(),
        stage,
        up: false,
        unreached: None,
        carriage: None,
        since,
    };
    turn.ue.chain.sessions.push(session);
    turn.effect(Effect::SmfRequest { number, ask: SmfRequest::Create(Box::new(create)), carried: None });
}

/// Asks the SMF about a session; of one whose SM context travels, as soon as the question before is answered. Whether there is
/// room to wait for that.
pub fn ask(turn: &mut StepContext<'_, '_>, number: SessionNumber, ask: SmfRequest) -> bool {
    let now = turn.now();
    let carriage = turn.ue.chain.by_number(number).and_then(|session| session.carriage.as_mut());
    let (ask, carried) = match carriage.map(|carriage| carriage.try_start(ask.clone(), now)) {
        None => (ask, None),
        Some(Ok((ask, carried))) => (ask, Some(carried)),
        Some(Err(waits)) => return waits,
    };
    turn.effect(Effect::SmfRequest { number, ask, carried });
    true
}

/// Asks what has waited for the answer to another question.
pub fn next(turn: &mut StepContext<'_, '_>, number: SessionNumber) {
    let now = turn.now();
    let carriage = turn.ue.chain.by_number(number).and_then(|session| session.carriage.as_mut());
    if let Some((ask, carried)) = carriage.and_then(|carriage| carriage.next(now)) {
        turn.effect(Effect::SmfRequest { number, ask, carried: Some(carried) });
    }
}

/// What may wait for a session's name: the RAN and the UE answer what they are told first.
const EARLY: usize = 4;

/// Tells the SMF what has happened to a session, now or when the SMF has named it. Whether there is such a session, and room.
pub fn update(turn: &mut StepContext<'_, '_>, psi: u8, update: SmfUpdateRequest) -> bool {
    if update.n1n2().is_some_and(|said| said.len() > SM_INFORMATION_OCTETS) {
        turn.note(Note::fault("limit"));
        return false;
    }
    let Some(session) = turn.ue.chain.by_psi(psi) else { return false };
    match (session.number, session.reference.clone()) {
        (number, Some(reference)) => return ask(turn, number, SmfRequest::Update { reference, update }),
        (_, None) if session.early.len() < EARLY => session.early.push(update),
        (_, None) => return false,
    }
    true
}

/// The SMF has named a session: it is told what has happened meanwhile.
pub fn named(turn: &mut StepContext<'_, '_>, number: SessionNumber, reference: &str) {
    let Some(session) = turn.ue.chain.by_number(number) else { return };
    session.reference = Some(reference.to_owned());
    for update in std::mem::take(&mut session.early) {
        ask(turn, number, SmfRequest::Update { reference: reference.to_owned(), update });
    }
}

/// Wants the user plane of these sessions back, a bit each; which of them the SMF was asked for.
pub fn activate(turn: &mut StepContext<'_, '_>, wanted: u16) -> u16 {
    let now = turn.now();
    let idle = |s: &&mut RemoteSession| s.stage == RemoteStage::Established && !s.up && wanted >> s.psi & 1 == 1;
    let mut asked = 0;
    for session in turn.ue.chain.sessions.iter_mut().filter(idle) {
        session.since = now;
        asked |= 1 << session.psi;
    }
    for psi in (0..16).filter(|psi| asked >> psi & 1 == 1) {
        update(turn, psi, SmfUpdateRequest::Activate);
    }
    asked
}

/// What happens to all sessions of a UE. What a handover comes to, their SMFs are told by itself.
pub fn step_all(turn: &mut StepContext<'_, '_>, input: &Input<'_>) {
    match input {
        Input::Deactivate => deactivate(turn),
        Input::ReleaseLocally => (0..turn.ue.chain.sessions.len()).for_each(|at| end(turn, at)),
        Input::Unreachable => unreached(turn),
        _ => {}
    }
}

/// Ends the sessions that the UE says it does not have, a bit each of those that it has.
pub fn drop_unknown(turn: &mut StepContext<'_, '_>, status: u16) {
    for at in 0..turn.ue.chain.sessions.len() {
        if status >> turn.ue.chain.sessions[at].psi & 1 == 0 {
            end(turn, at);
        }
    }
}

/// The UE is gone from the RAN.
fn deactivate(turn: &mut StepContext<'_, '_>) {
    turn.ue.chain.pending_accept = None;
    for at in 0..turn.ue.chain.sessions.len() {
        let session = &mut turn.ue.chain.sessions[at];
        match (session.stage, session.up) {
            // It left before its answer: it will ask again.
            (RemoteStage::Creating | RemoteStage::Offered, false) => end(turn, at),
            // Also of a session whose name comes after the accept that the UE has, maybe.
            (RemoteStage::Creating | RemoteStage::Offered | RemoteStage::Established, true) => deactivate_one(turn, at),
            (RemoteStage::Established, false) | (RemoteStage::Ending, _) => {}
        }
    }
    // What is for the RAN is void; what is for the UE waits for its return.
    turn.ue.chain.deferred.iter_mut().for_each(|held| held.n2 = None);
    turn.ue.chain.deferred.retain(|held| held.n1.is_some());
    turn.ue.wanted.signalling |= !turn.ue.chain.deferred.is_empty();
}

/// The RAN has a session no more that it had, or was asked to set up.
pub fn deactivate_one(turn: &mut StepContext<'_, '_>, at: usize) {
    let Some(session) = turn.ue.chain.sessions.get_mut(at) else { return };
    // The accept may have reached the UE; if not, it asks again and this one is dropped.
    (session.stage, session.up) = (RemoteStage::Established, false);
    let psi = session.psi;
    update(turn, psi, SmfUpdateRequest::Deactivate);
}

/// Ends a session without a word to the UE. One that the SMF has not named yet is released when it has.
pub fn end(turn: &mut StepContext<'_, '_>, at: usize) {
    let Some(session) = turn.ue.chain.sessions.get_mut(at).filter(|s| s.is_live()) else { return };
    (session.stage, session.up) = (RemoteStage::Ending, false);
    session.early.clear();
    let (psi, number) = (session.psi, session.number);
    if let Some(reference) = session.reference.clone() {
        ask(turn, number, SmfRequest::Release { reference });
    }
    turn.ue.chain.deferred.retain(|held| held.psi != psi);
}

/// The UE does not answer to paging: what waits for it is given up, and the SMFs that want to know are told.
fn unreached(turn: &mut StepContext<'_, '_>) {
    turn.ue.chain.deferred.clear();
    let Some(supi) = turn.ue.identity.supi else { return };
    for at in 0..turn.ue.chain.sessions.len() {
        let session = &mut turn.ue.chain.sessions[at];
        if let (number, Some((uri, transfer))) = (session.number, session.unreached.take()) {
            ask(turn, number, SmfRequest::Unreached { uri, supi, transfer });
        }
    }
}

/// Carries what the SMF says to UE and RAN, now or as soon as they can take it: the UE when it is back from idle, the RAN
/// when it has a context of the UE, both when the UE is not on its way from one RAN node to another.
pub fn forward_n1n2(turn: &mut StepContext<'_, '_>, psi: u8, told: N1N2Content) {
    let N1N2Content { n1, n2 } = told;
    if n1.is_none() && n2.is_none() {
        return;
    }
    if let Some(n1) = &n1
        && user_plane::count_reject(turn, n1) == Some(Kind::Session)
        && let Some(session) = turn.ue.chain.by_psi(psi)
    {
        // What the SMF says of it after this is no second failure.
        session.stage = RemoteStage::Ending;
    }
    if let (Some(session), Some((kind, _))) = (turn.ue.chain.by_psi(psi), &n2) {
        match kind {
            N2Sm::SetupRequest => session.up = true,
            N2Sm::ReleaseCommand => session.up = false,
            _ => {}
        }
    }
    match turn.ue.connection.map(|c| c.ran) {
        Some(RanContext::SetUp) if turn.ue.is_between_nodes() => wait(turn, DeferredSessionMessage { psi, n1, n2 }),
        Some(RanContext::SetUp) => user_plane::send(turn, DeferredSessionMessage { psi, n1, n2 }),
        Some(RanContext::None | RanContext::Secured) if n2.is_none() => {
            user_plane::send(turn, DeferredSessionMessage { psi, n1, n2 })
        }
        Some(RanContext::None | RanContext::Secured | RanContext::SettingUp { .. }) => {
            wait(turn, DeferredSessionMessage { psi, n1, n2 })
        }
        Some(RanContext::Releasing { .. }) | None => {
            turn.ue.wanted.signalling |= n1.is_some();
            if n1.is_some() {
                wait(turn, DeferredSessionMessage { psi, n1, n2: None });
            }
        }
    }
}

fn wait(turn: &mut StepContext<'_, '_>, held: DeferredSessionMessage) {
    if turn.ue.chain.deferred.len() < HELD_LIMIT {
        turn.ue.chain.deferred.push(held);
    } else {
        turn.note(Note::fault("session-held-too-much"));
    }
}

/// Sends what has waited as soon as the RAN has a context of the UE.
pub fn send_waiting(turn: &mut StepContext<'_, '_>) {
    let is_there = turn.ue.connection.is_some_and(|c| c.ran == RanContext::SetUp) && !turn.ue.is_between_nodes();
    if turn.ue.chain.deferred.is_empty() || !is_there {
        return;
    }
    for held in std::mem::take(&mut turn.ue.chain.deferred) {
        user_plane::send(turn, held);
    }
}
