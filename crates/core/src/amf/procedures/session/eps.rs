//! PDN connections on the EMM side (TS 24.301 6.5).
//!
//! It selects slice and data network by the APN. An APN is a DNN.

use super::UlNasTransport;
use crate::amf::procedures::common::{user_data, user_plane};
use crate::smf::{self, Input, SmContext};
use crate::step::{Note, StepContext};
use vireo_types::{Dialect, Dnn};
use vireo_wire::nas_eps::*;

/// Sets up a PDN connection by the PDN CONNECTIVITY REQUEST of an attach. A request that cannot be
/// served is answered as the session part answers it.
pub fn connect(ctx: &mut StepContext<'_, '_>, esm: &[u8]) {
    let (dnn, psi, kind) = match NasEpsMessage::decode(esm) {
        Ok(NasEpsMessage::Esm(_, NasEsmMessage::PdnConnectivityRequest(request))) => {
            (requested_apn(&request), smf::session_identity(&request), request.request_type.request_type())
        }
        _ => (None, None, None),
    };
    let is_emergency = kind == Some(RequestTypeValue::Emergency);
    let own = |name: &Dnn| ctx.ue.sessions.iter().any(|session| session.is_live() && session.terms.dnn == *name);
    if is_emergency && ctx.env.config.emergency(Dialect::Eps).is_some_and(own) {
        // 6.5.1.6 a.
        return refuse(ctx, esm, EsmCause::MultiplePdnConnectionsForAGivenApnNotAllowed);
    }
    // Another session keeps an identity that the UE assigns twice.
    let is_free = |psi: &u8| ctx.ue.sessions.iter().all(|session| session.psi != *psi);
    let psi = psi.filter(is_free).unwrap_or_default();
    super::create(ctx, UlNasTransport { psi, initial: true, is_emergency, snssai: None, dnn, n1: esm });
}

/// Returns the APN of a PDN CONNECTIVITY REQUEST, if it has one.
fn requested_apn(request: &NasPdnConnectivityRequest) -> Option<Dnn> {
    request.access_point_name.as_ref()?.as_string()?.parse().ok()
}

/// Handles an ESM message of a registered UE.
pub fn uplink(ctx: &mut StepContext<'_, '_>, header: &NasEsmHeader, message: &NasEsmMessage, esm: &[u8]) {
    let pti = header.procedure_transaction_identity;
    match smf::check_header(header, message) {
        Ok(()) => {}
        Err(Some(cause)) => return reject(ctx, header, message, cause),
        Err(None) => return ctx.note(Note::fault("session-unknown")),
    }
    let bearer = match message {
        NasEsmMessage::PdnConnectivityRequest(_) => {
            let requested = |session: &&SmContext| session.is_live() && smf::is_requested_by(session, pti);
            match ctx.ue.sessions.iter().find(requested) {
                Some(session) => repeat(ctx, session.id(), smf::unanswered_request(session)),
                None => connect(ctx, esm),
            }
            return;
        }
        NasEsmMessage::PdnDisconnectRequest(request) => {
            let linked = request.linked_eps_bearer_identity.value & 0x0f;
            let mut remaining = ctx.ue.sessions.iter().filter(|session| session.remains());
            let is_last = remaining.next().is_some_and(|session| session.id() == linked) && remaining.next().is_none();
            if is_last && !ctx.ue.ciot().without_pdn {
                // The UE must detach to end its last PDN connection (6.5.2.4), unless it may be
                // without.
                return reject(ctx, header, message, EsmCause::LastPdnDisconnectionNotAllowed);
            }
            linked
        }
        NasEsmMessage::BearerResourceAllocationRequest(request) => request.linked_eps_bearer_identity.value & 0x0f,
        NasEsmMessage::BearerResourceModificationRequest(request) => {
            request.eps_bearer_identity_for_packet_filter.value & 0x0f
        }
        // The answer to an attach without PDN connection, in ATTACH COMPLETE.
        NasEsmMessage::EsmDummyMessage(_) if ctx.ue.ciot().without_pdn => return,
        _ => header.eps_bearer_identity,
    };
    match ctx.ue.sessions.iter().position(|session| session.id() == bearer && session.is_live()) {
        Some(at) => {
            user_plane::step(ctx, at, Input::N1(esm));
            user_data::on_uplink(ctx, message);
        }
        None => reject(ctx, header, message, EsmCause::InvalidEpsBearerIdentity),
    }
}

/// Rejects an ESM message that cannot be served (6.5, 7.3). An answer that names no bearer of the
/// UE is ignored (7.3.2 g).
fn reject(ctx: &mut StepContext<'_, '_>, header: &NasEsmHeader, message: &NasEsmMessage, cause: EsmCause) {
    let (ebi, pti) = (header.eps_bearer_identity, header.procedure_transaction_identity);
    let cause = NasEsmCause::from_cause(cause);
    match message {
        NasEsmMessage::PdnConnectivityRequest(_) => send(ctx, NasPdnConnectivityReject::new(cause), 0, pti),
        NasEsmMessage::PdnDisconnectRequest(_) => send(ctx, NasPdnDisconnectReject::new(cause), 0, pti),
        NasEsmMessage::BearerResourceAllocationRequest(_) => {
            send(ctx, NasBearerResourceAllocationReject::new(cause), 0, pti);
        }
        NasEsmMessage::BearerResourceModificationRequest(_) => {
            send(ctx, NasBearerResourceModificationReject::new(cause), 0, pti);
        }
        NasEsmMessage::EsmDataTransport(_) => send(ctx, NasEsmStatus::new(cause), ebi, pti),
        _ => ctx.note(Note::fault("session-unknown")),
    }
}

/// Handles ESM INFORMATION RESPONSE that the network does not wait for (7.3.1 e, 7.3.2 e).
pub fn on_unexpected_information(ctx: &mut StepContext<'_, '_>, header: &NasEsmHeader, message: &NasEsmMessage) {
    ctx.on_unexpected_message();
    if smf::check_header(header, message).is_ok() {
        let cause = NasEsmCause::from_cause(EsmCause::InvalidPtiValue);
        send(ctx, NasEsmStatus::new(cause), 0, header.procedure_transaction_identity);
    }
}

/// Answers a PDN CONNECTIVITY REQUEST that the UE repeats (T3482), as the first one: the answer was
/// lost, or is yet to come.
fn repeat(ctx: &mut StepContext<'_, '_>, ebi: u8, request: Option<Vec<u8>>) {
    if let Some(request) = request {
        user_plane::deliver_message(ctx, ebi, request);
    }
}

/// Refuses a PDN CONNECTIVITY REQUEST. The reject is delivered like that of the session part.
pub(super) fn refuse(ctx: &mut StepContext<'_, '_>, esm: &[u8], cause: EsmCause) {
    let pti = esm.get(1).copied().unwrap_or(0);
    let reject = NasPdnConnectivityReject::new(NasEsmCause::from_cause(cause));
    if let Ok(plain) = NasEpsMessage::new_esm(reject, 0, pti).encode() {
        user_plane::deliver_message(ctx, 0, plain);
    }
}

fn send(ctx: &mut StepContext<'_, '_>, message: impl Into<NasEsmMessage>, ebi: u8, pti: u8) {
    let plain = NasEpsMessage::new_esm(message, ebi, pti).encode().ok();
    if let Some(nas) = plain.and_then(|plain| ctx.protect(plain)) {
        ctx.send_encoded_nas(nas);
    }
}
