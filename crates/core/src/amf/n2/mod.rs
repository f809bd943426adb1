//! NGAP: received messages as plain values, and encoding of sent messages.
//!
//! [`peek`] returns the [`ShallowView`] for the balancer: the identifiers that route a message and
//! the kind of procedure. [`ue_message`] decodes a message for a step. A faulty message becomes a
//! [`Fault`] with the answer of TS 38.413 clause 10.

mod extended_drx;
mod fault;
mod information;
mod ingress;
mod nas_identity;
mod route;
mod send;

pub(crate) use extended_drx::{eutra_extended_drx, nr_extended_drx};
pub(crate) use fault::has_fault_to_reject;
pub use fault::{Fault, FaultDiagnostics, error_indication};
pub use information::{InactiveAssistance, MobilityRestrictions, UeInformation};
pub(crate) use information::{masked_imeisv, paging_capability, paging_drx};
pub(crate) use ingress::is_for_ran;
pub use ingress::{
    ErabModification, HandoverRequired, InitialUeMessage, PathSwitch, SessionItems, UeMessage, ue_ids, ue_message,
};
pub use nas_identity::NasIdentity;
pub use route::{EstablishmentCause, MME_CODE_ONLY, Route, ShallowView, is_own_code, is_path_switch, peek, route};
pub use send::{
    AcceptTransport, ContextSetup, SessionSetup, allowed_nssai, context_modification_request, context_release_command,
    context_setup_request, downlink_nas_transport, downlink_nas_with_information, handover_failure,
    key_renewal_request, location_reporting_control, rfsp_modification_request, session_modify_request,
    session_release_command, session_setup_request, stale_release_command,
};
pub(crate) use send::{ambr_to, capability_to, encode};

use vireo_types::{EnbId, EnbKind, GnbId, NrCgi, Plmn, RanNodeId, Snssai, Tac, Tai};
use vireo_wire::ngap;

/// Cause of a release or failure (TS 38.413 9.3.1.2).
pub use vireo_wire::ngap::Cause;

/// Converts a TAI from NGAP.
pub(crate) fn tai_of(tai: &ngap::TAI) -> Tai {
    Tai { plmn: Plmn::from_ngap(tai.plmn_identity.0), tac: tac_of(&tai.tac) }
}

pub(crate) fn tac_of(tac: &ngap::TAC) -> Tac {
    let [a, b, c] = tac.0;
    Tac(u32::from_be_bytes([0, a, b, c]))
}

pub(crate) fn tac_octets(tac: Tac) -> [u8; 3] {
    let [_, a, b, c] = tac.0.to_be_bytes();
    [a, b, c]
}

pub(crate) fn cell_of(cell: &ngap::NRCGI) -> NrCgi {
    NrCgi { plmn: Plmn::from_ngap(cell.plmn_identity.0), cell: cell.nr_cell_identity.0.value() }
}

/// Converts an E-UTRA cell, whose identity has 28 bits.
pub(crate) fn eutra_cell_of(cell: &ngap::EUTRACGI) -> NrCgi {
    NrCgi { plmn: Plmn::from_ngap(cell.plmn_identity.0), cell: cell.eutra_cell_identity.0.value() }
}

pub(crate) fn snssai_of(snssai: &ngap::SNSSAI) -> Snssai {
    Snssai::from_octets(snssai.sst.0[0], snssai.sd.as_ref().map(|sd| sd.0))
}

pub(crate) fn snssai_to(snssai: Snssai) -> ngap::SNSSAI {
    ngap::helpers::s_nssai(snssai.sst, snssai.sd.map(sd_octets))
}

pub(crate) fn sd_octets(sd: u32) -> [u8; 3] {
    let [_, a, b, c] = sd.to_be_bytes();
    [a, b, c]
}

pub(crate) fn plmn_to(plmn: Plmn) -> ngap::PLMNIdentity {
    ngap::PLMNIdentity(plmn.ngap())
}

/// Returns the identity of a Global RAN Node ID (9.3.1.5).
///
/// # Errors
///
/// Returns the kind of a node that is not served: the label of the fault.
pub(crate) fn ran_node_of(id: &ngap::GlobalRANNodeID) -> Result<RanNodeId, &'static str> {
    match id {
        ngap::GlobalRANNodeID::globalGNB_ID(gnb) => match &gnb.gnb_id {
            ngap::GNBID::gNB_ID(bits) => gnb_of(Plmn::from_ngap(gnb.plmn_identity.0), bits.value(), bits.len()),
            ngap::GNBID::choice_Extensions(_) => None,
        }
        .map(RanNodeId::Gnb)
        .ok_or("unknown-gnb-id"),
        ngap::GlobalRANNodeID::globalNgENB_ID(enb) => ng_enb_of(enb).map(RanNodeId::NgEnb).ok_or("unknown-ng-enb-id"),
        ngap::GlobalRANNodeID::globalN3IWF_ID(_) => Err("n3iwf"),
        ngap::GlobalRANNodeID::choice_Extensions(field) => Err(match field.id {
            ngap::ID_GLOBAL_TNGF_ID => "tngf",
            ngap::ID_GLOBAL_TWIF_ID => "twif",
            ngap::ID_GLOBAL_W_AGF_ID => "w-agf",
            _ => "unknown-kind",
        }),
    }
}

fn gnb_of(plmn: Plmn, id: u64, bits: usize) -> Option<GnbId> {
    let bits = u8::try_from(bits).ok().filter(|bits| (22..=32).contains(bits))?;
    Some(GnbId { plmn, id: u32::try_from(id).ok()?, bits })
}

/// Returns the eNB ID in a Global ng-eNB ID (TS 38.413 9.3.1.8), which also names the eNB in a
/// Target eNB ID; `None` for other kinds of eNB ID.
pub(crate) fn ng_enb_of(id: &ngap::GlobalNgENBID) -> Option<EnbId> {
    let (kind, bits) = match &id.ng_enb_id {
        ngap::NgENBID::macroNgENB_ID(bits) => (EnbKind::Macro, bits),
        ngap::NgENBID::shortMacroNgENB_ID(bits) => (EnbKind::ShortMacro, bits),
        ngap::NgENBID::longMacroNgENB_ID(bits) => (EnbKind::LongMacro, bits),
        ngap::NgENBID::choice_Extensions(_) => return None,
    };
    Some(EnbId { plmn: Plmn::from_ngap(id.plmn_identity.0), kind, id: u32::try_from(bits.value()).ok()? })
}

/// Converts an EPS TAI from NGAP.
pub(crate) fn eps_tai_of(tai: &ngap::EPSTAI) -> Tai {
    Tai { plmn: Plmn::from_ngap(tai.plmn_identity.0), tac: Tac(u16::from_be_bytes(tai.eps_tac.0).into()) }
}
