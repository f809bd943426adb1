//! Values shared by many messages.
//!
//! They are stated independently of tests/reference/ngap_values.py and nas_values.py.

use vireo_wire::ngap::aper::Bits;
use vireo_wire::ngap::helpers::{global_gnb_id, guami, nr_cgi, plmn, s_nssai, tai};
use vireo_wire::ngap::*;

pub(crate) const AMF_ID: u64 = 0x0a_bc12_3007;
pub(crate) const RAN_ID: u32 = 0x00c0_ffee;
pub(crate) const TAC_1: [u8; 3] = [0, 0, 1];

pub(crate) fn octets(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("hexadecimal digits")
}

pub(crate) fn amf_id() -> AMFUENGAPID {
    AMFUENGAPID(AMF_ID)
}

pub(crate) fn ran_id() -> RANUENGAPID {
    RANUENGAPID(RAN_ID)
}

pub(crate) fn network() -> PLMNIdentity {
    plmn("999", "70").expect("a PLMN")
}

pub(crate) fn gnb() -> GlobalRANNodeID {
    GlobalRANNodeID::globalGNB_ID(global_gnb_id(network(), 0x102, 24).expect("a gNB ID"))
}

pub(crate) fn area() -> TAI {
    tai(network(), TAC_1)
}

pub(crate) fn location() -> UserLocationInformation<'static> {
    let cell = nr_cgi(network(), 0x102, 24, 3).expect("a cell");
    let time = TimeStamp([0xe5, 0xa1, 0xb2, 0xc3]);
    UserLocationInformation::userLocationInformationNR(UserLocationInformationNR::new(cell, area(), Some(time), None))
}

pub(crate) fn recommended_cells() -> RecommendedCellsForPaging {
    let cell = |time| {
        let cell = nr_cgi(network(), 0x102, 24, 3).expect("a cell");
        RecommendedCellItem::new(NGRANCGI::nR_CGI(cell), time, None)
    };
    RecommendedCellsForPaging::new(RecommendedCellList(vec![cell(Some(7)), cell(None)]), None)
}

pub(crate) fn our_guami() -> GUAMI {
    guami(network(), 2, 1, 3).expect("a GUAMI")
}

pub(crate) fn s_tmsi() -> FiveGSTMSI {
    let (set, pointer) = (Bits::new(1, 10).expect("10 bits"), Bits::new(3, 6).expect("6 bits"));
    FiveGSTMSI::new(AMFSetID(set), AMFPointer(pointer), FiveGTMSI([0xde, 0xad, 0xbe, 0xef]), None)
}

pub(crate) fn phones() -> SNSSAI {
    s_nssai(1, None)
}

pub(crate) fn meters() -> SNSSAI {
    s_nssai(3, Some([0, 0, 0xab]))
}

pub(crate) fn slices() -> SliceSupportList {
    SliceSupportList(vec![SliceSupportItem::new(phones(), None), SliceSupportItem::new(meters(), None)])
}

pub(crate) fn allowed() -> AllowedNSSAI {
    AllowedNSSAI(vec![AllowedNSSAIItem::new(phones(), None), AllowedNSSAIItem::new(meters(), None)])
}

pub(crate) fn nas() -> NASPDU<'static> {
    NASPDU(octets("7e005c000d0199f907f0ff00000000000010").into())
}

pub(crate) fn algorithms() -> UESecurityCapabilities<'static> {
    UESecurityCapabilities::new(
        NRencryptionAlgorithms([0xe0, 0].into()),
        NRintegrityProtectionAlgorithms([0x60, 0].into()),
        EUTRAencryptionAlgorithms([0xe0, 0].into()),
        EUTRAintegrityProtectionAlgorithms([0x60, 0].into()),
        None,
    )
}

pub(crate) fn ue_ambr() -> UEAggregateMaximumBitRate {
    UEAggregateMaximumBitRate::new(BitRate(2_000_000_000), BitRate(1_000_000_000), None)
}

/// Returns a GTP tunnel at 127.0.0.`last`.
pub(crate) fn tunnel(last: u8, teid: u32) -> UPTransportLayerInformation<'static> {
    let address = TransportLayerAddress([127, 0, 0, last].into());
    UPTransportLayerInformation::gTPTunnel(GTPTunnel::new(address, GTPTEID(teid.to_be_bytes()), None))
}
