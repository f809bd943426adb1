//! Shallow view: the route and the kind of procedure of an NGAP message.

use super::{Fault, NasIdentity};
use crate::config::CoreConfig;
use crate::schedule::kind::{self, NfKind};
use serde::{Deserialize, Serialize};
use vireo_types::{AmfUeNgapId, RanUeNgapId, Tmsi};
use vireo_wire::ngap::*;

/// Destination of an NGAP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Route {
    /// Not about one UE: the state of the RAN node.
    Node,
    /// The UE of an AMF-UE-NGAP-ID, which may be unknown.
    Ue(AmfUeNgapId),
    /// First message of an NG connection.
    Initial {
        ran_id: RanUeNgapId,
        /// AMF Set ID, AMF Pointer and 5G-TMSI, if the message has a 5G-S-TMSI. An S-TMSI of EPS
        /// is mapped, with [`MME_CODE_ONLY`].
        s_tmsi: Option<(u16, u8, Tmsi)>,
        /// Temporary identity in the NAS message, if any.
        nas_identity: Option<NasIdentity>,
    },
}

/// Mark of an AMF Set ID of which only the lower 2 bits are known: those in the MME Code of an
/// S-TMSI (TS 23.003 2.10.2.1.2).
pub const MME_CODE_ONLY: u16 = 0x8000;

/// Returns true if AMF Set ID and AMF Pointer of a 5G-S-TMSI are those of this configuration, or
/// those of a mapped S-TMSI are of an MME of its pool.
pub fn is_own_code(config: &CoreConfig, set: u16, pointer: u8) -> bool {
    if set & MME_CODE_ONLY == 0 {
        return (set, pointer) == (config.amf_set, config.amf_pointer);
    }
    set & 3 == config.amf_set & 3 && config.is_mme_of_pool(pointer)
}

/// Priority class of a UE's access, as far as overload control distinguishes them (RRC
/// Establishment Cause, TS 38.413 9.3.1.111). The most urgent is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EstablishmentCause {
    /// Emergency access, which is never rejected.
    Emergency,
    /// Priority access: by the UE's own priority, multimedia priority service, mission critical
    /// services.
    Priority,
    /// The UE responds to paging.
    Terminating,
    /// Access on the UE's own initiative.
    Originating,
}

/// What [`peek`] reads from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShallowView {
    pub route: Route,
    /// RAN-UE-NGAP-ID of the connection. For a path switch it is that of the new connection.
    pub ran_id: Option<RanUeNgapId>,
    /// Kind of procedure that the message starts. A procedure in progress stays at its NF.
    pub kind: NfKind,
    /// Set for the first message of an NG connection.
    pub establishment: Option<EstablishmentCause>,
}

/// Returns the route of a message without decoding it further.
///
/// # Errors
///
/// As [`peek`].
pub fn route(octets: &[u8]) -> Result<Route, Box<Fault>> {
    peek(octets).map(|view| view.route)
}

/// Returns route and kind of a message without decoding it further or copying.
///
/// # Errors
///
/// Returns a [`Fault`] if the octets are not an NGAP PDU, or if an identifier needed for the route
/// does not decode.
pub fn peek(octets: &[u8]) -> Result<ShallowView, Box<Fault>> {
    let pdu = NGAP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax())?;
    let pdu_kind = pdu.kind();
    if pdu_kind == NgapPduKind::Initiating_InitialUEMessage {
        return initial(&pdu);
    }
    let route = match pdu_kind {
        // An unknown procedure is not about a UE: its criticality alone selects the answer
        // (10.3.4.1).
        NgapPduKind::Other { .. }
        | NgapPduKind::Initiating_NGSetup
        | NgapPduKind::Initiating_RANConfigurationUpdate
        | NgapPduKind::Initiating_NGReset
        | NgapPduKind::Successful_NGReset => Route::Node,
        // From the new RAN node: the AMF-UE-NGAP-ID is that of the old connection.
        NgapPduKind::Initiating_PathSwitchRequest => {
            let id =
                pdu.ie::<ie::SourceAMF_UE_NGAP_ID>().and_then(Result::ok).ok_or_else(|| Fault::from_message(&pdu))?;
            AmfUeNgapId::from_raw(id.0).map(Route::Ue).ok_or_else(|| Fault::from_message(&pdu))?
        }
        _ => match pdu.ie::<ie::AMF_UE_NGAP_ID>() {
            None => Route::Node,
            Some(id) => {
                let id = id.map_err(|_| Fault::from_message(&pdu))?.0;
                AmfUeNgapId::from_raw(id).map(Route::Ue).ok_or_else(|| Fault::from_message(&pdu))?
            }
        },
    };
    let ran_id = pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).map(|id| RanUeNgapId(id.0));
    Ok(ShallowView { route, ran_id, kind: kind_of(&pdu, pdu_kind), establishment: None })
}

/// Returns true if the octets are PATH SWITCH REQUEST (TS 38.413 9.2.3.8).
pub fn is_path_switch(octets: &[u8]) -> bool {
    NGAP_PDU::decode_borrowed(octets).is_ok_and(|pdu| pdu.kind() == NgapPduKind::Initiating_PathSwitchRequest)
}

fn kind_of(pdu: &NGAPPDU<'_>, kind: NgapPduKind) -> NfKind {
    match kind {
        NgapPduKind::Initiating_PathSwitchRequest
        | NgapPduKind::Initiating_HandoverPreparation
        | NgapPduKind::Successful_HandoverResourceAllocation
        | NgapPduKind::Unsuccessful_HandoverResourceAllocation
        | NgapPduKind::Initiating_HandoverNotification
        | NgapPduKind::Initiating_HandoverCancel
        | NgapPduKind::Initiating_UplinkRANStatusTransfer => NfKind::Handover,
        // A ciphered message comes from a connected UE, whose messages are mostly about sessions.
        NgapPduKind::Initiating_UplinkNASTransport => {
            nas(pdu).and_then(|nas| NfKind::from_nas(&nas.0)).unwrap_or(NfKind::Session)
        }
        NgapPduKind::Successful_PDUSessionResourceSetup
        | NgapPduKind::Successful_PDUSessionResourceRelease
        | NgapPduKind::Successful_PDUSessionResourceModify
        | NgapPduKind::Initiating_PDUSessionResourceNotify
        | NgapPduKind::Initiating_PDUSessionResourceModifyIndication => NfKind::Session,
        NgapPduKind::Successful_InitialContextSetup | NgapPduKind::Unsuccessful_InitialContextSetup => {
            NfKind::ServiceRequest
        }
        _ => NfKind::StateManagement,
    }
}

/// Returns the view of an INITIAL UE MESSAGE (TS 38.413 9.2.5.1).
fn initial(pdu: &NGAPPDU<'_>) -> Result<ShallowView, Box<Fault>> {
    let ran_id = pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).ok_or_else(|| Fault::from_message(pdu))?;
    let s_tmsi = pdu.ie::<ie::FiveG_S_TMSI>().transpose().map_err(|_| Fault::from_message(pdu))?.map(|s| {
        let set = u16::try_from(s.amf_set_id.0.value()).unwrap_or(u16::MAX);
        let pointer = u8::try_from(s.amf_pointer.0.value()).unwrap_or(u8::MAX);
        (set, pointer, Tmsi(u32::from_be_bytes(s.five_g_tmsi.0)))
    });
    let nas = nas(pdu);
    let nas = nas.as_ref().map_or(&[][..], |nas| &nas.0);
    let clear = kind::clear(nas);
    let kind = NfKind::from_nas(nas);
    // No other message starts a connection; the registration NFs answer those that do.
    let kind = kind.filter(|k| *k != NfKind::StateManagement).unwrap_or(NfKind::Registration);
    let cause = pdu.ie::<ie::RRCEstablishmentCause>().and_then(Result::ok);
    let establishment =
        cause.map_or(EstablishmentCause::Originating, priority_from_cause).min(priority_from_nas(clear));
    let ran_id = RanUeNgapId(ran_id.0);
    let route = Route::Initial { ran_id, s_tmsi, nas_identity: NasIdentity::peek(nas) };
    Ok(ShallowView { route, ran_id: Some(ran_id), kind, establishment: Some(establishment) })
}

fn nas<'p>(pdu: &'p NGAPPDU<'_>) -> Option<NASPDU<'p>> {
    pdu.ie::<ie::NAS_PDU>().and_then(Result::ok)
}

fn priority_from_cause(cause: RRCEstablishmentCause) -> EstablishmentCause {
    match cause {
        RRCEstablishmentCause::emergency => EstablishmentCause::Emergency,
        RRCEstablishmentCause::highPriorityAccess
        | RRCEstablishmentCause::mps_PriorityAccess
        | RRCEstablishmentCause::mcs_PriorityAccess => EstablishmentCause::Priority,
        RRCEstablishmentCause::mt_Access => EstablishmentCause::Terminating,
        _ => EstablishmentCause::Originating,
    }
}

/// Returns the priority class of a NAS message: 5GS registration type (TS 24.501 9.11.3.7) and
/// service type (9.11.3.50).
fn priority_from_nas(clear: Option<&[u8]>) -> EstablishmentCause {
    match clear {
        Some([kind::REGISTRATION_REQUEST, of, ..]) if of & 0x07 == 4 => EstablishmentCause::Emergency,
        Some([kind::SERVICE_REQUEST, of, ..]) => match of >> 4 {
            3 | 4 => EstablishmentCause::Emergency,
            5 => EstablishmentCause::Priority,
            2 => EstablishmentCause::Terminating,
            _ => EstablishmentCause::Originating,
        },
        _ => EstablishmentCause::Originating,
    }
}
