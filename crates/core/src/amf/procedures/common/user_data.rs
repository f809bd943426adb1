//! User data over NAS (TS 24.301 6.6.4, TS 23.401 5.3.4B).
//!
//! The session part converts between ESM DATA TRANSPORT and G-PDUs. Here the network sends packets
//! to the UE, and ends the connection when the UE expects no more.

use crate::amf::n2::Cause;
use crate::smf::{self, N4State, RanState, SmContext};
use crate::step::{Note, StepContext};
use vireo_types::Seid;
use vireo_types::limits::USER_DATA_OCTETS;
use vireo_wire::nas_eps::*;
use vireo_wire::ngap::CauseNas;

/// Returns the release assistance indication of an ESM message of the UE (9.9.4.25).
fn release_assistance(message: &NasEsmMessage) -> Option<DownlinkDataExpected> {
    match message {
        NasEsmMessage::EsmDataTransport(data) => data.release_assistance_indication.as_ref()?.ddx(),
        _ => None,
    }
}

/// Returns true if the UE neither sends nor expects anything after the message.
pub fn ends_connection(message: &NasEsmMessage) -> bool {
    release_assistance(message) == Some(DownlinkDataExpected::NoFurtherData)
}

/// Handles what an ESM message of the UE says of the packets that follow. Work of the network keeps
/// the connection, and so do packets that the UPF may be about to send.
pub fn on_uplink(ctx: &mut StepContext<'_, '_>, message: &NasEsmMessage) {
    if matches!(message, NasEsmMessage::EsmDataTransport(data) if data.user_data_container.value.len() > USER_DATA_OCTETS)
    {
        ctx.note(Note::fault("limit"));
    }
    if !ctx.ue.is_served_by_nas() {
        return;
    }
    match release_assistance(message) {
        Some(DownlinkDataExpected::NoFurtherData) if !has_pending(ctx) => {
            ctx.release(Cause::nas(CauseNas::normal_release));
        }
        Some(DownlinkDataExpected::SingleDlThenNone) => ctx.ue.reachability.paging.ciot.ends_after_downlink = true,
        _ => {}
    }
}

/// Returns true if the network has something to send.
fn has_pending(ctx: &StepContext<'_, '_>) -> bool {
    let pending = &ctx.ue.pending;
    let is_activating = |session: &SmContext| session.ran == RanState::Up && session.n4 != N4State::Synced;
    pending.is_due() || ctx.ue.procedure.is_some() || ctx.ue.sessions.iter().any(is_activating)
}

/// Sends the packet in a G-PDU to the UE, as ESM DATA TRANSPORT. A packet for a UE that was
/// released meanwhile is lost, as one in transit to an eNB.
pub fn downlink(ctx: &mut StepContext<'_, '_>, tunnel: Seid, g_pdu: &[u8]) {
    let session = ctx.ue.sessions.iter().find(|session| session.index == tunnel.session() && session.is_live());
    let packet = session.and_then(|session| Some((session.id(), smf::downlink_packet(session, g_pdu)?)));
    let can_send = ctx.ue.connection.is_some() && !ctx.is_being_released();
    let Some((ebi, packet)) = packet.filter(|_| can_send) else { return ctx.note(Note::fault(smf::DOWNLINK_FAULT)) };
    let message = NasEsmDataTransport::new(NasUserDataContainer::new(packet.to_vec()));
    let plain = NasEpsMessage::new_esm(message, ebi, 0).encode().ok();
    if let Some(nas) = plain.and_then(|plain| ctx.protect(plain)) {
        ctx.send_encoded_nas(nas);
    }
    if std::mem::take(&mut ctx.ue.reachability.paging.ciot.ends_after_downlink) && ctx.ue.is_served_by_nas() {
        ctx.release(Cause::nas(CauseNas::normal_release));
    }
}
