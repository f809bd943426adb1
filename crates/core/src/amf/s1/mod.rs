//! S1AP: received messages as plain values, and encoding of sent messages.
//!
//! It is the counterpart of [`crate::amf::n2`] for eNBs (TS 36.413), and yields the same values:
//! an E-RAB takes the place of a PDU session, and the MME UE S1AP ID that of the AMF UE NGAP ID.
//! Causes are those of NGAP, converted at this boundary.

mod cause;
mod fault;
#[cfg(test)]
pub(crate) mod golden_tests;
mod ingress;
mod restrictions;
mod route;
mod send;

pub use cause::{cause_of, cause_to};
pub use fault::error_indication;
pub(crate) use ingress::is_for_enb;
pub use ingress::{ue_ids, ue_message, usage_report};
pub use route::{is_path_switch, peek};
pub use send::{
    Page, accept_transport, context_modification_request, context_release_command, context_setup_request,
    downlink_nas_transport, handover_failure, key_renewal_request, location_reporting_control, paging,
    rfsp_modification_request, session_modify_request, session_release_command, session_setup_request,
    stale_release_command,
};

pub(crate) use fault::{from_message, has_fault_to_reject, unknown_procedure, wrong_direction};
pub(crate) use restrictions::handover_restrictions;
pub(crate) use send::{
    ambr_to, capability_to, encode, erab_qos, extension, masked_imeisv, nr_capability, served_gummei, transport_address,
};

use vireo_types::{EnbId, EnbKind, GnbId, NrCgi, Plmn, RanNodeId, Tac, Tai};
use vireo_wire::s1ap;

/// Converts a TAI from S1AP.
pub(crate) fn tai_of(tai: &s1ap::TAI) -> Tai {
    Tai { plmn: plmn_of(&tai.plmn_identity), tac: tac_of(&tai.tac) }
}

pub(crate) fn tac_of(tac: &s1ap::TAC) -> Tac {
    Tac(u16::from_be_bytes(tac.0).into())
}

/// Converts a TAI to S1AP; `None` if its TAC has more than 16 bits.
pub(crate) fn tai_to(tai: Tai) -> Option<s1ap::TAI> {
    Some(s1ap::helpers::tai(plmn_to(tai.plmn), tai.tac.eps()?))
}

/// Converts a PLMN Identity from S1AP, which orders the digits as NGAP does (TS 36.413 9.2.3.8).
pub(crate) fn plmn_of(plmn: &s1ap::PLMNidentity) -> Plmn {
    Plmn::from_ngap(plmn.0.0)
}

pub(crate) fn plmn_to(plmn: Plmn) -> s1ap::PLMNidentity {
    s1ap::PLMNidentity(s1ap::TBCDSTRING(plmn.ngap()))
}

pub(crate) fn cell_of(cell: &s1ap::EUTRANCGI) -> NrCgi {
    NrCgi { plmn: plmn_of(&cell.plmn_identity), cell: cell.cell_id.0.value() }
}

/// Returns the identity of a Global eNB ID; `None` for a kind of eNB ID that this build does not
/// know.
pub(crate) fn enb_of(id: &s1ap::GlobalENBID) -> Option<EnbId> {
    let (kind, bits) = match &id.enb_id {
        s1ap::ENBID::macroENB_ID(bits) => (EnbKind::Macro, bits),
        s1ap::ENBID::homeENB_ID(bits) => (EnbKind::Home, bits),
        s1ap::ENBID::short_macroENB_ID(bits) => (EnbKind::ShortMacro, bits),
        s1ap::ENBID::long_macroENB_ID(bits) => (EnbKind::LongMacro, bits),
        _ => return None,
    };
    Some(EnbId { plmn: plmn_of(&id.plmn_identity), kind, id: u32::try_from(bits.value()).ok()? })
}

/// Returns the identity in a Target NG-RAN Node ID (TS 36.413 9.2.1.6).
pub(crate) fn ng_ran_node_of(id: &s1ap::GlobalRANNODEID) -> Option<RanNodeId> {
    match id {
        s1ap::GlobalRANNODEID::gNB(gnb) => {
            let s1ap::GNBIdentity::gNB_ID(id) = &gnb.global_gnb_id.gnb_id else { return None };
            let plmn = plmn_of(&gnb.global_gnb_id.plmn_identity);
            let (id, bits) = (u32::try_from(id.0.value()).ok()?, u8::try_from(id.0.len()).ok()?);
            Some(GnbId { plmn, id, bits }.into())
        }
        s1ap::GlobalRANNODEID::ng_eNB(enb) => enb_of(&enb.global_ng_enb_id).map(RanNodeId::NgEnb),
        _ => None,
    }
}

/// Converts a TAI of 5GS from S1AP.
pub(crate) fn five_gs_tai_of(tai: &s1ap::FiveGSTAI) -> Tai {
    let [a, b, c] = tai.five_gs_tac.0;
    Tai { plmn: plmn_of(&tai.plmn_identity), tac: Tac(u32::from_be_bytes([0, a, b, c])) }
}
