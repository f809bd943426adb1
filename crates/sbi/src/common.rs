//! Common data types of the services (TS 29.571).

use serde::{Deserialize, Serialize};
use std::fmt;
use vireo_types::{GnbId, Guami as CoreGuami, NrCgi, Plmn, Snssai as CoreSnssai, Tai as CoreTai};

/// ProblemDetails (TS 29.571 5.2.4.1, RFC 9457).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemDetails {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl ProblemDetails {
    /// Creates a problem with a status and an application error.
    pub fn new(status: u16, cause: &str, detail: &str) -> Self {
        let detail = (!detail.is_empty()).then(|| detail.to_owned());
        ProblemDetails { status: Some(status), cause: Some(cause.to_owned()), detail }
    }

    /// Creates a problem for a request that cannot be parsed (TS 29.500 table 5.2.7.2-1).
    pub fn unreadable(detail: &(impl fmt::Display + ?Sized)) -> Self {
        Self::new(400, "INVALID_MSG_FORMAT", &detail.to_string())
    }

    /// Creates a problem for an invalid attribute (TS 29.500 table 5.2.7.2-1).
    pub fn incorrect(detail: &str) -> Self {
        Self::new(400, "MANDATORY_IE_INCORRECT", detail)
    }
}

/// RefToBinaryData (TS 29.571 5.2.4.9): reference to a binary part by its Content-ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefToBinaryData {
    /// Content-ID of the part.
    pub content_id: String,
}

/// PlmnId (TS 29.571 5.4.4.3). Also used as PlmnIdNid, without `nid`: stand-alone networks are not
/// supported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlmnId {
    pub mcc: String,
    /// Two or three digits.
    pub mnc: String,
}

impl From<Plmn> for PlmnId {
    fn from(plmn: Plmn) -> Self {
        PlmnId { mcc: plmn.mcc(), mnc: plmn.mnc() }
    }
}

/// Snssai (TS 29.571 5.4.4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snssai {
    pub sst: u8,
    /// Slice Differentiator: six hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<String>,
}

impl From<CoreSnssai> for Snssai {
    fn from(slice: CoreSnssai) -> Self {
        Snssai { sst: slice.sst, sd: slice.sd.map(|sd| format!("{sd:06x}")) }
    }
}

impl Snssai {
    /// Converts to the core's type; `None` if the Slice Differentiator is invalid.
    pub fn slice(&self) -> Option<CoreSnssai> {
        let Some(sd) = &self.sd else { return Some(CoreSnssai::new(self.sst, None)) };
        Some(CoreSnssai::new(self.sst, Some(CoreSnssai::sd_from_hex(sd)?)))
    }
}

/// Guami (TS 29.571 5.4.4.17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guami {
    pub plmn_id: PlmnId,
    /// AMF Region ID, Set ID and Pointer: six hexadecimal digits.
    pub amf_id: String,
}

impl From<CoreGuami> for Guami {
    fn from(guami: CoreGuami) -> Self {
        let number =
            u32::from(guami.region) << 16 | u32::from(guami.set & 0x3ff) << 6 | u32::from(guami.pointer & 0x3f);
        Guami { plmn_id: guami.plmn.into(), amf_id: format!("{number:06x}") }
    }
}

/// UserLocation (TS 29.571 5.4.4.7), for NR only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserLocation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nr_location: Option<NrLocation>,
}

/// NrLocation (TS 29.571 5.4.4.9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NrLocation {
    pub tai: Tai,
    /// NR cell global identity.
    pub ncgi: Ncgi,
}

/// Tai (TS 29.571 5.4.4.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tai {
    pub plmn_id: PlmnId,
    pub tac: String,
}

/// Ncgi (TS 29.571 5.4.4.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ncgi {
    pub plmn_id: PlmnId,
    pub nr_cell_id: String,
}

impl From<CoreTai> for Tai {
    fn from(tai: CoreTai) -> Self {
        Tai { plmn_id: tai.plmn.into(), tac: format!("{:06x}", tai.tac.0) }
    }
}

impl UserLocation {
    /// Creates the location for a tracking area and cell.
    pub fn new(tai: CoreTai, cell: NrCgi) -> Self {
        let ncgi = Ncgi { plmn_id: cell.plmn.into(), nr_cell_id: format!("{:09x}", cell.cell) };
        UserLocation { nr_location: Some(NrLocation { tai: tai.into(), ncgi }) }
    }
}

/// NgRanTargetId (TS 29.571 5.4.4.49): target RAN node of a handover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NgRanTargetId {
    pub ran_node_id: GlobalRanNodeId,
    pub tai: Tai,
}

/// GlobalRanNodeId (TS 29.571 5.4.4.28), for gNBs only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GlobalRanNodeId {
    pub plmn_id: PlmnId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub g_nb_id: Option<GNbId>,
}

/// GNbId (TS 29.571 5.4.4.29).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GNbId {
    /// Length of the gNB ID in bits, 22 to 32.
    pub bit_length: u8,
    /// gNB ID in hexadecimal digits, with leading zeros up to the bit length.
    #[serde(rename = "gNBValue")]
    pub g_n_b_value: String,
}

impl NgRanTargetId {
    /// Creates the target for a gNB and one of its tracking areas.
    pub fn new(gnb: GnbId, tai: CoreTai) -> Self {
        let digits = usize::from(gnb.bits).div_ceil(4);
        let id = GNbId { bit_length: gnb.bits, g_n_b_value: format!("{:0digits$x}", gnb.id) };
        NgRanTargetId { ran_node_id: GlobalRanNodeId { plmn_id: gnb.plmn.into(), g_nb_id: Some(id) }, tai: tai.into() }
    }
}

/// Type of the NGAP transfer IE in an N2 part.
///
/// It combines N2SmInfoType (TS 29.502 6.1.6.3.6) and NgapIeType (TS 29.518 6.1.6.3.5), which have
/// the same values for transfers to the RAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names are those of TS 38.413's IEs")]
pub enum N2SmInfoType {
    PduResSetupReq = 1,
    PduResSetupRsp,
    PduResSetupFail,
    PduResRelCmd,
    PduResRelRsp,
    PduResModReq,
    PduResModRsp,
    PduResModFail,
    PathSwitchReq,
    PathSwitchSetupFail,
    PathSwitchReqAck,
    PathSwitchReqFail,
    HandoverRequired,
    HandoverCmd,
    HandoverPrepFail,
    HandoverReqAck,
    HandoverResAllocFail,
    PduResNty,
    PduResNtyRel,
    PduResModInd,
    PduResModCfm,
}

impl N2SmInfoType {
    /// All values, in the order of their gRPC numbers.
    pub(crate) const ALL: [Self; 21] = [
        Self::PduResSetupReq,
        Self::PduResSetupRsp,
        Self::PduResSetupFail,
        Self::PduResRelCmd,
        Self::PduResRelRsp,
        Self::PduResModReq,
        Self::PduResModRsp,
        Self::PduResModFail,
        Self::PathSwitchReq,
        Self::PathSwitchSetupFail,
        Self::PathSwitchReqAck,
        Self::PathSwitchReqFail,
        Self::HandoverRequired,
        Self::HandoverCmd,
        Self::HandoverPrepFail,
        Self::HandoverReqAck,
        Self::HandoverResAllocFail,
        Self::PduResNty,
        Self::PduResNtyRel,
        Self::PduResModInd,
        Self::PduResModCfm,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_in_the_digits_of_ts_29_571() {
        let plmn: Plmn = "99970".parse().unwrap();
        let guami = CoreGuami { plmn, region: 2, set: 1, pointer: 0 };
        assert_eq!(Guami::from(guami).amf_id, "020040");
        let slice = CoreSnssai { sst: 1, sd: Some(0x0a_0b0c) };
        let wire = Snssai::from(slice);
        assert_eq!((wire.sd.as_deref(), wire.slice()), (Some("0a0b0c"), Some(slice)));
        for sd in ["", "0a0b0", "0a0b0c0", "+a0b0c", "0a0b0g"] {
            assert_eq!(Snssai { sst: 1, sd: Some(sd.into()) }.slice(), None, "{sd}");
        }
        let location = UserLocation::new(CoreTai { plmn, tac: vireo_types::Tac(1) }, NrCgi { plmn, cell: 0x10 });
        let text = serde_json::to_string(&location).unwrap();
        let plmn = r#"{"mcc":"999","mnc":"70"}"#;
        let expected = format!(
            r#"{{"nrLocation":{{"tai":{{"plmnId":{plmn},"tac":"000001"}},"ncgi":{{"plmnId":{plmn},"nrCellId":"000000010"}}}}}}"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn types_of_n2_parts_have_the_words_of_ts_29_502() {
        let word = |kind| serde_json::to_string(&kind).unwrap();
        assert_eq!(word(N2SmInfoType::PduResSetupReq), r#""PDU_RES_SETUP_REQ""#);
        assert_eq!(word(N2SmInfoType::PduResRelCmd), r#""PDU_RES_REL_CMD""#);
        assert_eq!(word(N2SmInfoType::PduResSetupFail), r#""PDU_RES_SETUP_FAIL""#);
        assert_eq!(word(N2SmInfoType::HandoverReqAck), r#""HANDOVER_REQ_ACK""#);
        assert_eq!(word(N2SmInfoType::PduResNtyRel), r#""PDU_RES_NTY_REL""#);
    }
}
