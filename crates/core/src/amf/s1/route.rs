//! Shallow view: the route and the kind of procedure of an S1AP message.

use super::from_message;
use crate::amf::n2::{EstablishmentCause, Fault, MME_CODE_ONLY, NasIdentity, Route, ShallowView};
use crate::schedule::kind::{NfKind, emm};
use vireo_types::{AmfUeNgapId, RanUeNgapId, Tmsi};
use vireo_wire::s1ap::*;

/// Returns route and kind of a message without decoding it further or copying.
///
/// # Errors
///
/// Returns a [`Fault`] if the octets are not an S1AP PDU, or if an identifier needed for the route
/// does not decode.
pub fn peek(octets: &[u8]) -> Result<ShallowView, Box<Fault>> {
    let pdu = S1AP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax())?;
    let pdu_kind = pdu.kind();
    if pdu_kind == S1apPduKind::Initiating_initialUEMessage {
        return initial(&pdu);
    }
    let route = match pdu_kind {
        // An unknown procedure is not about a UE: its criticality alone selects the answer
        // (10.3.4.1).
        S1apPduKind::Other { .. }
        | S1apPduKind::Initiating_S1Setup
        | S1apPduKind::Initiating_ENBConfigurationUpdate
        | S1apPduKind::Initiating_Reset
        | S1apPduKind::Successful_Reset
        | S1apPduKind::Initiating_eNBConfigurationTransfer
        | S1apPduKind::Successful_MMEConfigurationUpdate
        | S1apPduKind::Unsuccessful_MMEConfigurationUpdate => Route::Node,
        // From the new eNB: the MME UE S1AP ID is that of the old connection.
        S1apPduKind::Initiating_PathSwitchRequest => {
            let id = pdu.ie::<ie::SourceMME_UE_S1AP_ID>().and_then(Result::ok).ok_or_else(|| from_message(&pdu))?;
            Route::Ue(AmfUeNgapId::from_mme(id.0))
        }
        _ => match pdu.ie::<ie::MME_UE_S1AP_ID>() {
            None => Route::Node,
            Some(id) => Route::Ue(AmfUeNgapId::from_mme(id.map_err(|_| from_message(&pdu))?.0)),
        },
    };
    let ran_id = pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok).map(|id| RanUeNgapId(id.0));
    Ok(ShallowView { route, ran_id, kind: kind_of(&pdu, pdu_kind), establishment: None })
}

/// Returns true if the octets are PATH SWITCH REQUEST (TS 36.413 9.1.5.8).
pub fn is_path_switch(octets: &[u8]) -> bool {
    S1AP_PDU::decode_borrowed(octets).is_ok_and(|pdu| pdu.kind() == S1apPduKind::Initiating_PathSwitchRequest)
}

fn kind_of(pdu: &S1APPDU<'_>, kind: S1apPduKind) -> NfKind {
    match kind {
        S1apPduKind::Initiating_PathSwitchRequest
        | S1apPduKind::Initiating_HandoverPreparation
        | S1apPduKind::Successful_HandoverResourceAllocation
        | S1apPduKind::Unsuccessful_HandoverResourceAllocation
        | S1apPduKind::Initiating_HandoverNotification
        | S1apPduKind::Initiating_HandoverCancel
        | S1apPduKind::Initiating_eNBStatusTransfer => NfKind::Handover,
        // A ciphered message comes from a connected UE, whose messages are mostly about bearers.
        S1apPduKind::Initiating_uplinkNASTransport => {
            nas(pdu).and_then(|nas| NfKind::from_emm(&nas.0)).unwrap_or(NfKind::Session)
        }
        S1apPduKind::Successful_E_RABSetup
        | S1apPduKind::Successful_E_RABRelease
        | S1apPduKind::Successful_E_RABModify
        | S1apPduKind::Initiating_E_RABReleaseIndication
        | S1apPduKind::Initiating_E_RABModificationIndication => NfKind::Session,
        S1apPduKind::Successful_InitialContextSetup | S1apPduKind::Unsuccessful_InitialContextSetup => {
            NfKind::ServiceRequest
        }
        _ => NfKind::StateManagement,
    }
}

/// Returns the view of an INITIAL UE MESSAGE (TS 36.413 9.1.7.1).
fn initial(pdu: &S1APPDU<'_>) -> Result<ShallowView, Box<Fault>> {
    let ran_id = pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok).ok_or_else(|| from_message(pdu))?;
    let s_tmsi = pdu.ie::<ie::S_TMSI>().transpose().map_err(|_| from_message(pdu))?.map(|s| {
        let [code] = s.mmec.0;
        (MME_CODE_ONLY | u16::from(code >> 6), code & 0x3f, Tmsi(u32::from_be_bytes(s.m_tmsi.0)))
    });
    let nas = nas(pdu);
    let nas = nas.as_ref().map_or(&[][..], |nas| &nas.0);
    // No other message starts a connection; the registration NFs answer those that do.
    let kind = NfKind::from_emm(nas).filter(|k| *k != NfKind::StateManagement).unwrap_or(NfKind::Registration);
    let cause = pdu.ie::<ie::RRC_Establishment_Cause>().and_then(Result::ok);
    let establishment =
        cause.map_or(EstablishmentCause::Originating, priority_from_cause).min(priority_from_nas(emm::clear(nas)));
    let ran_id = RanUeNgapId(ran_id.0);
    let route = Route::Initial { ran_id, s_tmsi, nas_identity: NasIdentity::peek_emm(nas) };
    Ok(ShallowView { route, ran_id: Some(ran_id), kind, establishment: Some(establishment) })
}

fn nas<'p>(pdu: &'p S1APPDU<'_>) -> Option<NASPDU<'p>> {
    pdu.ie::<ie::NAS_PDU>().and_then(Result::ok)
}

fn priority_from_cause(cause: RRCEstablishmentCause) -> EstablishmentCause {
    match cause {
        RRCEstablishmentCause::emergency => EstablishmentCause::Emergency,
        RRCEstablishmentCause::highPriorityAccess => EstablishmentCause::Priority,
        RRCEstablishmentCause::mt_Access => EstablishmentCause::Terminating,
        _ => EstablishmentCause::Originating,
    }
}

/// Returns the priority class of a NAS message: EPS attach type (TS 24.301 9.9.3.11).
fn priority_from_nas(clear: Option<&[u8]>) -> EstablishmentCause {
    match clear {
        Some([emm::ATTACH_REQUEST, of, ..]) if of & 0x07 == 6 => EstablishmentCause::Emergency,
        _ => EstablishmentCause::Originating,
    }
}
