//! Messages and answers of the negative cases in each dialect.

use super::error::CaseError;
use crate::dialect::{Node, Protocol, UeIds};
use crate::rat::Rat;
use vireo_wire::{ngap, s1ap};

/// What the cases send and expect in one dialect.
pub(super) struct Words {
    /// Initial message of a subscriber that does not exist (IMSI 999 70 9999999999).
    pub(super) registration: &'static [u8],
    /// Plain NAS messages that no procedure expects. They are AUTHENTICATION RESPONSE, SECURITY
    /// MODE COMPLETE, REGISTRATION or ATTACH COMPLETE, IDENTITY RESPONSE, a message of session
    /// management, CONFIGURATION UPDATE COMPLETE or TRACKING AREA UPDATE COMPLETE, and STATUS.
    pub(super) unasked: [&'static [u8]; 7],
    /// NAS message types of a refusal.
    pub(super) refusals: &'static [u8],
    /// Refusals, and IDENTITY REQUEST: it may answer an apparent registration with an unreadable
    /// identity.
    pub(super) garbage_refusals: &'static [u8],
    /// Plain requests that are not served, each with the type of its reject.
    pub(super) unserved: &'static [(&'static [u8], u8)],
    /// AUTHENTICATION REQUEST, and the refusal of a registration under overload.
    pub(super) half_open: &'static [u8],
    /// Payload protocol identifiers of other protocols.
    pub(super) foreign_ppids: [u32; 4],
    /// Elements without which SETUP REQUEST and INITIAL UE MESSAGE are refused.
    pub(super) setup_elements: [u16; 2],
    pub(super) initial_elements: [u16; 3],
    /// Name of the procedure RESET.
    pub(super) reset: &'static str,
    /// Place of the MAC's first octet and of the sequence number in a protected message.
    pub(super) mac: usize,
    pub(super) sequence: usize,
    /// First octets of a plain message of mobility management, before its type.
    pub(super) plain: &'static [u8],
}

static NR: Words = Words {
    registration: &[
        0x7e, 0, 0x41, 0x79, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0x99, 0x99, 0x99, 0x99, 0x99, 0x2e, 2, 0xf0,
        0x70,
    ],
    unasked: [
        &[0x7e, 0, 0x57, 0x2d, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x7e, 0, 0x5e],
        &[0x7e, 0, 0x43],
        &[0x7e, 0, 0x5c, 0, 1, 0],
        &[0x7e, 0, 0x67, 1, 0, 4, 0x2e, 1, 1, 0xc1],
        &[0x7e, 0, 0x55],
        &[0x7e, 0, 0x64, 0x6f],
    ],
    // 5GMM STATUS, REGISTRATION REJECT, SERVICE REJECT, DEREGISTRATION, AUTHENTICATION REJECT.
    refusals: &[0x64, 0x44, 0x4d, 0x47, 0x58],
    garbage_refusals: &[0x64, 0x44, 0x4d, 0x46, 0x58, 0x5b],
    // REGISTRATION REQUEST for emergency services, with the SUCI and the PEI, and SERVICE REQUEST
    // of an unknown UE.
    unserved: &[
        (
            &[
                0x7e, 0, 0x41, 0x7c, 0, 13, 1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0x99, 0x99, 0x99, 0x99, 0x99, 0x2e,
                2, 0xf0, 0x70,
            ],
            0x44,
        ),
        (&[0x7e, 0, 0x41, 0x7c, 0, 9, 0x35, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xf5, 0x2e, 2, 0xf0, 0x70], 0x44),
        (&[0x7e, 0, 0x4c, 0x10, 0, 7, 0xf4, 0, 0x40, 0xde, 0xad, 0xbe, 0xef], 0x4d),
    ],
    half_open: &[0x56, 0x44],
    foreign_ppids: [0, 18, 46, u32::MAX],
    setup_elements: [ngap::ID_GLOBAL_RANNODE_ID.0, ngap::ID_SUPPORTED_TALIST.0],
    initial_elements: [ngap::ID_RAN_UE_NGAP_ID.0, ngap::ID_NAS_PDU.0, ngap::ID_USER_LOCATION_INFORMATION.0],
    reset: "NGReset",
    mac: 2,
    sequence: 6,
    plain: &[0x7e, 0],
};

static EPS: Words = Words {
    registration: &[
        0x07, 0x41, 0x71, 8, 0x99, 0x99, 0x07, 0x99, 0x99, 0x99, 0x99, 0x99, 2, 0xf0, 0x70, 0, 4, 0x02, 1, 0xd0, 0x11,
    ],
    unasked: [
        &[0x07, 0x53, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x07, 0x5e],
        &[0x07, 0x43, 0, 3, 0x52, 0, 0xc2],
        &[0x07, 0x56, 1, 0],
        &[0x02, 1, 0xd0, 0x11],
        &[0x07, 0x4a],
        &[0x07, 0x60, 0x6f],
    ],
    // EMM STATUS, ATTACH REJECT, SERVICE REJECT, DETACH REQUEST, AUTHENTICATION REJECT, TRACKING
    // AREA UPDATE REJECT.
    refusals: &[0x60, 0x44, 0x4e, 0x45, 0x54, 0x4b],
    garbage_refusals: &[0x60, 0x44, 0x4e, 0x46, 0x54, 0x4b, 0x55],
    // ATTACH REQUEST for emergency services, with the IMSI and the IMEI; CONTROL PLANE SERVICE
    // REQUEST; EXTENDED SERVICE REQUEST; attach, update and service request that are cut short.
    unserved: &[
        (
            &[
                0x07, 0x41, 0x76, 8, 0x99, 0x99, 0x07, 0x99, 0x99, 0x99, 0x99, 0x99, 2, 0xf0, 0x70, 0, 4, 0x02, 1,
                0xd0, 0x14,
            ],
            0x44,
        ),
        (
            &[
                0x07, 0x41, 0x76, 8, 0x3b, 0x94, 0x10, 0x32, 0x54, 0x76, 0x98, 0x10, 2, 0xf0, 0x70, 0, 4, 0x02, 1,
                0xd0, 0x14,
            ],
            0x44,
        ),
        (&[0x07, 0x4d, 0x70], 0x4e),
        (&[0x07, 0x4c, 0x70, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef], 0x4e),
        (&[0x07, 0x41], 0x44),
        (&[0x07, 0x48, 0x70], 0x4b),
        (&[0x07, 0x4c, 0x70], 0x4e),
    ],
    half_open: &[0x52, 0x44],
    foreign_ppids: [0, 60, 46, u32::MAX],
    setup_elements: [s1ap::ID_GLOBAL_ENB_ID.0, s1ap::ID_SUPPORTED_TAS.0],
    initial_elements: [s1ap::ID_E_NB_UE_S1_AP_ID.0, s1ap::ID_NAS_PDU.0, s1ap::ID_TAI.0],
    reset: "Reset",
    mac: 1,
    sequence: 5,
    plain: &[0x07],
};

impl Words {
    pub(super) fn by_rat(rat: Rat) -> &'static Words {
        match rat {
            Rat::Nr => &NR,
            Rat::Eps => &EPS,
        }
    }
}

/// Returns UPLINK NAS TRANSPORT of a node with these UE IDs and 5GMM or EMM STATUS.
pub(super) fn uplink(node: &Node, ids: UeIds) -> Vec<u8> {
    let [.., status] = Words::by_rat(node.rat()).unasked;
    crate::mutate::uplink_nas(node, ids, status).unwrap_or_default()
}

/// Returns answers to requests that the core never sent: UE CONTEXT RELEASE COMPLETE and INITIAL
/// CONTEXT SETUP RESPONSE.
pub(super) fn unasked_outcomes(rat: Rat) -> Result<[Vec<u8>; 2], CaseError> {
    let ids = [UeIds { core: 0xff_ffff_fff1, ran: 1 }, UeIds { core: 0xff_ffff_fff2, ran: 2 }];
    let pdus = match rat {
        Rat::Nr => ng_outcomes()?,
        Rat::Eps => s1_outcomes()?,
    };
    let [complete, response] = pdus;
    let named = |pdu: &[u8], ids: UeIds| Protocol::by_rat(rat).retarget(pdu, Some(ids.core), Some(ids.ran));
    let missing = CaseError::NoNas;
    Ok([named(&complete, ids[0]).ok_or(missing)?, named(&response, ids[1]).ok_or(CaseError::NoNas)?])
}

fn ng_outcomes() -> Result<[Vec<u8>; 2], ngap::Error> {
    use ngap::build_ngap;
    let complete = build_ngap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        AMF_UE_NGAP_ID(1u64),
        RAN_UE_NGAP_ID(1u32),
    );
    let response = build_ngap!(
        SuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupResponse,
        AMF_UE_NGAP_ID(1u64),
        RAN_UE_NGAP_ID(1u32),
    );
    Ok([complete?.encode()?, response?.encode()?])
}

fn s1_outcomes() -> Result<[Vec<u8>; 2], s1ap::Error> {
    use s1ap::*;
    use s1ap::{build_s1ap, build_s1ap_ie};
    let address = TransportLayerAddress([10, 0, 0, 9].into());
    let item = ERABSetupItemCtxtSURes::new(ERABID(5), address, GTPTEID([0, 0, 0, 1]), None);
    let list = ERABSetupListCtxtSURes(vec![build_s1ap_ie!(IGNORE E_RABSetupItemCtxtSURes(item))?]);
    let complete = build_s1ap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        MME_UE_S1AP_ID(1u32),
        eNB_UE_S1AP_ID(1u32),
    );
    let response = build_s1ap!(
        SuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupResponse,
        MME_UE_S1AP_ID(1u32),
        eNB_UE_S1AP_ID(1u32),
        E_RABSetupListCtxtSURes(list),
    );
    Ok([complete?.encode()?, response?.encode()?])
}
