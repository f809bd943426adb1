//! The shallow view: where a message goes.

use super::Fault;
use vireo_types::{AmfUeNgapId, RanUeNgapId, Tmsi};
use vireo_wire::ngap::*;

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the record of the RAN node: not about one UE.
    Node,
    /// To the UE of an AMF-UE-NGAP-ID, which may be of nobody.
    Ue(AmfUeNgapId),
    /// The first message of an NG connection.
    Initial {
        /// The RAN node's number for the UE.
        ran_id: RanUeNgapId,
        /// The 5G-TMSI, if the UE named itself by a 5G-S-TMSI of this AMF Set and Pointer.
        s_tmsi: Option<(u16, u8, Tmsi)>,
    },
}

/// Where the message of `octets` goes; it is not decoded further.
///
/// # Errors
///
/// A [`Fault`] when the octets are no NGAP PDU or an identifier that routes it does not decode.
pub fn route(octets: &[u8]) -> Result<Route, Box<Fault>> {
    let pdu = NGAP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax())?;
    match pdu.kind() {
        NgapPduKind::Initiating_InitialUEMessage => {
            let ran_id = pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).ok_or_else(|| Fault::of_message(&pdu))?;
            let s_tmsi = pdu.ie::<ie::FiveG_S_TMSI>().transpose().map_err(|_| Fault::of_message(&pdu))?.map(|s| {
                let set = u16::try_from(s.amf_set_id.0.value()).unwrap_or(u16::MAX);
                let pointer = u8::try_from(s.amf_pointer.0.value()).unwrap_or(u8::MAX);
                (set, pointer, Tmsi(u32::from_be_bytes(s.five_g_tmsi.0)))
            });
            Ok(Route::Initial { ran_id: RanUeNgapId(ran_id.0), s_tmsi })
        }
        // What the specification does not have says nothing of UEs: its criticality alone decides (10.3.4.1).
        NgapPduKind::Other { .. }
        | NgapPduKind::Initiating_NGSetup
        | NgapPduKind::Initiating_RANConfigurationUpdate
        | NgapPduKind::Initiating_NGReset
        | NgapPduKind::Successful_NGReset => Ok(Route::Node),
        // From a node that the UE has come to: the AMF's number is the one that the node before had.
        NgapPduKind::Initiating_PathSwitchRequest => {
            let id =
                pdu.ie::<ie::SourceAMF_UE_NGAP_ID>().and_then(Result::ok).ok_or_else(|| Fault::of_message(&pdu))?;
            AmfUeNgapId::from_raw(id.0).map(Route::Ue).ok_or_else(|| Fault::of_message(&pdu))
        }
        _ => match pdu.ie::<ie::AMF_UE_NGAP_ID>() {
            None => Ok(Route::Node),
            Some(id) => {
                let id = id.map_err(|_| Fault::of_message(&pdu))?.0;
                AmfUeNgapId::from_raw(id).map(Route::Ue).ok_or_else(|| Fault::of_message(&pdu))
            }
        },
    }
}
