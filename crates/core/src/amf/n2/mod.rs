//! NGAP: received messages as plain values, and encoding of sent messages.
//!
//! [`peek`] returns the [`ShallowView`] for the balancer: the identifiers that route a message and
//! the kind of procedure. [`ue_message`] decodes a message for a step. A faulty message becomes a
//! [`Fault`] with the answer of TS 38.413 clause 10.

mod fault;
mod ingress;
mod nas_identity;
mod route;
mod send;

pub(crate) use fault::has_fault_to_reject;
pub use fault::{Fault, FaultDiagnostics, error_indication};
pub use ingress::{
    ErabModification, HandoverRequired, InitialUeMessage, PathSwitch, SessionItems, UeMessage, ue_ids, ue_message,
};
pub use nas_identity::NasIdentity;
pub use route::{EstablishmentCause, MME_CODE_ONLY, Route, ShallowView, is_own_code, peek, route};
pub use send::{
    ContextSetup, SessionSetup, context_modification_request, context_release_command, context_setup_request,
    downlink_nas_transport, session_modify_request, session_release_command, session_setup_request,
    stale_release_command,
};
pub(crate) use send::{ambr_to, capability_to, encode};

use vireo_types::{EnbId, EnbKind, GnbId, NrCgi, Plmn, Snssai, Tac, Tai};
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

pub(crate) fn snssai_of(snssai: &ngap::SNSSAI) -> Snssai {
    Snssai { sst: snssai.sst.0[0], sd: snssai.sd.as_ref().map(|sd| u32::from_be_bytes([0, sd.0[0], sd.0[1], sd.0[2]])) }
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

/// Returns the gNB ID of a Global RAN Node ID; `None` for other kinds of RAN node.
pub(crate) fn gnb_of(id: &ngap::GlobalRANNodeID) -> Option<GnbId> {
    match id {
        ngap::GlobalRANNodeID::globalGNB_ID(gnb) => match &gnb.gnb_id {
            ngap::GNBID::gNB_ID(bits) => Some(GnbId {
                plmn: Plmn::from_ngap(gnb.plmn_identity.0),
                id: u32::try_from(bits.value()).ok()?,
                bits: u8::try_from(bits.len()).ok()?,
            }),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the eNB ID in a Target eNB ID (TS 38.413 9.3.1.8); `None` for other kinds of eNB ID.
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
