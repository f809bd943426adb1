//! PDU session procedures on the 5GMM side (TS 23.502 4.3.2 to 4.3.4).
//!
//! It selects slice and data network of a new session, and passes messages between UE or RAN and
//! the session logic, which makes the decisions.

pub mod nr;

use crate::amf::context::RanContext;
use crate::amf::n2::SessionItems;
use crate::amf::procedures::common::{smf_requests, user_plane};
use crate::config::SliceProfile;
use crate::sba::SmfUpdateRequest;
use crate::smf::{self, Create, Input, N2Sm};
use crate::step::{Kind, Note, StepContext};
use crate::subscription::{DnnSubscription, Subscription};
use std::net::SocketAddr;
use vireo_types::{Dnn, Snssai, limits};
use vireo_wire::nas::GmmCause;

/// Contents of UL NAS TRANSPORT with a 5GSM message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UlNasTransport<'a> {
    /// PDU session ID, 1 to 15.
    pub psi: u8,
    /// True if the request type is "initial request".
    pub initial: bool,
    /// Requested S-NSSAI, if any.
    pub snssai: Option<Snssai>,
    /// Requested DNN, if any.
    pub dnn: Option<Dnn>,
    pub n1: &'a [u8],
}

/// Handles a 5GSM message of the UE.
pub fn uplink(turn: &mut StepContext<'_, '_>, transport: UlNasTransport<'_>) {
    if turn.env.config.smf_is_remote {
        return uplink_to_smf(turn, transport);
    }
    let at = turn.ue.sessions.iter().position(|s| s.psi == transport.psi && s.is_live());
    match (at, transport.initial) {
        (Some(at), true) => {
            // 5.4.5.2.3 a 2: the UE has lost the session with this ID. Release it and create a new
            // one.
            user_plane::step(turn, at, Input::ReleaseLocally);
            create(turn, transport);
        }
        (None, true) => create(turn, transport),
        (Some(at), false) => user_plane::step(turn, at, Input::N1(transport.n1)),
        // 5.4.5.2.5 a 2: there is no session to route the message to.
        (None, false) => nr::send_back(turn, transport.psi, transport.n1, GmmCause::PayloadWasNotForwarded),
    }
}

/// As [`uplink`], for sessions of a separate SMF.
fn uplink_to_smf(turn: &mut StepContext<'_, '_>, transport: UlNasTransport<'_>) {
    if transport.initial {
        let forgotten = turn.ue.remote_sessions.sessions.iter().position(|s| s.psi == transport.psi && s.is_live());
        if let Some(at) = forgotten {
            smf_requests::end(turn, at);
        }
        create(turn, transport);
    } else if !smf_requests::update(turn, transport.psi, SmfUpdateRequest::N1(transport.n1.to_vec())) {
        nr::send_back(turn, transport.psi, transport.n1, GmmCause::PayloadWasNotForwarded);
    }
}

/// Selects the slice and data network of a new session: the requested ones, else the defaults (TS
/// 23.501 5.6.1).
fn choose<'s>(
    subscription: &'s Subscription,
    allowed: &[Snssai],
    snssai: Option<Snssai>,
    dnn: Option<&Dnn>,
) -> Result<(Snssai, &'s DnnSubscription), GmmCause> {
    let mut slices = subscription.slices.iter().filter(|s| allowed.contains(&s.snssai));
    let has = |s: &&crate::subscription::SliceSubscription| dnn.is_none_or(|d| s.dnns.iter().any(|n| n.dnn == *d));
    let slice = match snssai {
        Some(snssai) => slices.find(|s| s.snssai == snssai),
        None => slices.clone().find(has).or_else(|| slices.next()),
    };
    let slice = slice.ok_or(GmmCause::PayloadWasNotForwarded)?;
    let network = match dnn {
        Some(dnn) => slice.dnns.iter().find(|n| n.dnn == *dnn),
        None => slice.dnns.first(),
    };
    Ok((slice.snssai, network.ok_or(GmmCause::DnnNotSupportedOrNotSubscribedInTheSlice)?))
}

fn create(turn: &mut StepContext<'_, '_>, transport: UlNasTransport<'_>) {
    turn.note(Note::Started(Kind::Session));
    let refuse = |turn: &mut StepContext<'_, '_>, cause: GmmCause| {
        turn.note(Note::Failed(Kind::Session, cause.as_u8()));
        nr::send_back(turn, transport.psi, transport.n1, cause);
    };
    let (Some(supi), Some(subscription)) = (turn.ue.identity.supi, turn.ue.subscription.take()) else {
        return refuse(turn, GmmCause::PayloadWasNotForwarded);
    };
    let chosen = choose(&subscription, &turn.ue.allowed, transport.snssai, transport.dnn.as_ref());
    // A UE with a session in an IoT slice has only that session.
    let is_simple = |slice: Snssai| turn.env.config.profile(slice) == SliceProfile::Iot;
    let here = turn.ue.sessions.iter().filter(|session| session.is_live()).map(|session| session.terms.snssai);
    let remote =
        turn.ue.remote_sessions.sessions.iter().filter(|session| session.is_live()).map(|session| session.snssai);
    let is_second =
        here.chain(remote).any(|other| is_simple(other) || chosen.as_ref().is_ok_and(|new| is_simple(new.0)));
    let count = turn.ue.sessions.len() + turn.ue.remote_sessions.sessions.len();
    let limit = is_second || count >= limits::SESSIONS_PER_UE;
    match chosen {
        Err(cause) => refuse(turn, cause),
        Ok(_) if limit => refuse(turn, GmmCause::MaximumNumberOfPduSessionsReached),
        Ok((snssai, network)) if turn.env.config.dnn(&network.dnn, snssai).is_none() => {
            refuse(turn, GmmCause::DnnNotSupportedOrNotSubscribedInTheSlice);
        }
        Ok((snssai, network)) if turn.env.config.smf_is_remote => {
            let dnn = network.dnn.clone();
            smf_requests::create(turn, supi, (transport.psi, transport.n1), (snssai, dnn));
        }
        Ok((snssai, network)) => {
            // Unused index, which becomes the session part of the SEID (DESIGN decision 7).
            let used = |i: u8| turn.ue.sessions.iter().any(|s| s.index == i);
            let index = (0..=u8::MAX).find(|i| !used(*i)).unwrap_or(u8::MAX);
            let request = Create {
                supi,
                ltmsi: turn.ue.ltmsi,
                index,
                psi: transport.psi,
                n1: transport.n1,
                snssai,
                dnn: &network.dnn,
                subscription: network,
            };
            let (sm, outputs) = smf::create(&request, turn.env);
            turn.ue.sessions.extend(sm);
            user_plane::deliver(turn, transport.psi, index, outputs);
        }
    }
    turn.ue.subscription = Some(subscription);
}

/// Handles NGAP transfers of the RAN for sessions.
pub fn transfers(turn: &mut StepContext<'_, '_>, kind: N2Sm, items: SessionItems) {
    for (psi, transfer) in items {
        if turn.env.config.smf_is_remote {
            if !smf_requests::update(turn, psi, SmfUpdateRequest::N2(kind, transfer)) {
                turn.note(Note::fault("session-unknown"));
            }
            continue;
        }
        match turn.ue.sessions.iter().position(|s| s.psi == psi && s.is_live()) {
            Some(at) => user_plane::step(turn, at, Input::N2(kind, &transfer)),
            None => turn.note(Note::fault("session-unknown")),
        }
    }
}

/// Starts the relocation of the UE's sessions to another UPF, requested by the operator. It fails
/// if the UE is in a procedure or handover; the operator can request it again.
pub fn relocate(turn: &mut StepContext<'_, '_>, upf: SocketAddr) {
    let settled = turn.ue.connection.is_none_or(|connection| connection.ran == RanContext::SetUp);
    let busy = turn.ue.procedure.is_some() || turn.ue.handover.is_some() || !turn.ue.is_registered() || !settled;
    for at in (0..turn.ue.sessions.len()).rev() {
        let session = &turn.ue.sessions[at];
        if !session.is_live() || session.pfcp.upf == upf {
            continue;
        }
        let can = turn.env.config.upfs.iter().any(|to| to.n4 == upf && to.reaches(&session.terms.dnn));
        let (index, old) = (session.index, session.pfcp.cp_seid);
        turn.note(Note::Started(Kind::Relocation));
        if busy || !can {
            turn.note(Note::Failed(Kind::Relocation, 0));
            continue;
        }
        let fresh = |generation: u32| smf::seid(turn.ue.ltmsi, index, generation);
        let generation = u32::from_be_bytes(turn.env.random());
        let seid = Some(fresh(generation)).filter(|new| *new != old).unwrap_or_else(|| fresh(!generation));
        user_plane::step(turn, at, Input::Relocate(upf, seid));
    }
}
