//! Nsmf_PDUSession (TS 29.502): operations of the AMF on SM contexts.

use super::common::{
    Guami, N2SmInfoType, NgRanTargetId, PlmnId, ProblemDetails, RefToBinaryData, Snssai, UserLocation,
};
use serde::{Deserialize, Serialize};

/// Path of SM contexts (TS 29.502 6.1.3.2).
pub const SM_CONTEXTS: &str = "/nsmf-pdusession/v1/sm-contexts";

/// Operation on one SM context (TS 29.502 6.1.3.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Update SM Context.
    Modify,
    /// Release SM Context.
    Release,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Operation::Modify => "modify",
            Operation::Release => "release",
        }
    }

    /// Returns the URI of the operation on an SM context.
    pub fn uri(self, reference: &str) -> String {
        format!("{reference}/{}", self.word())
    }
}

/// Resource that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The collection of SM contexts: create one.
    All,
    /// An SM context reference and an operation on it.
    One(&'a str, Operation),
}

/// Parses a path; `None` if it does not belong to this service.
pub fn resource(path: &str) -> Option<Resource<'_>> {
    let rest = path.strip_prefix(SM_CONTEXTS)?;
    if rest.is_empty() {
        return Some(Resource::All);
    }
    let (reference, word) = rest.strip_prefix('/')?.split_once('/')?;
    let operation = [Operation::Modify, Operation::Release].into_iter().find(|operation| operation.word() == word)?;
    (!reference.is_empty()).then_some(Resource::One(reference, operation))
}

/// SmContextCreateData (TS 29.502 6.1.6.2.2), without unused members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextCreateData {
    /// Digits of the IMSI after `imsi-`.
    pub supi: String,
    /// Digits of the IMEISV after `imeisv-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pei: Option<String>,
    pub pdu_session_id: u8,
    pub dnn: String,
    pub s_nssai: Snssai,
    /// NF instance ID of the AMF.
    pub serving_nf_id: String,
    /// GUAMI of the AMF.
    pub guami: Guami,
    /// Network of the AMF.
    pub serving_network: PlmnId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_type: Option<String>,
    /// 5GSM message of the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    pub an_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rat_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ue_location: Option<UserLocation>,
    /// Callback URI for the release of the SM context.
    pub sm_context_status_uri: String,
    /// Vireo extension, ignored by other SMFs: the AMF stores the SM context for the SMF
    /// ([`crate::PartContent::SmContext`]). The value is the AMF's session number, which no other
    /// session of the UE has had for a long time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vireo_piggyback: Option<u32>,
    /// Vireo extension: the first N1N2MessageTransfer of the session may announce the SM context
    /// ([`crate::amf::CreatedSmContext`]), and then replaces the response. The value is the AMF's
    /// session number. An SMF without this extension sends a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vireo_implied: Option<u32>,
}

/// SmContextCreatedData (TS 29.502 6.1.6.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextCreatedData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdu_session_id: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s_nssai: Option<Snssai>,
}

/// SmContextCreateError and SmContextUpdateError (TS 29.502 6.1.6.2.24, 6.1.6.2.25): a problem with
/// content for UE and RAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextError {
    pub error: ProblemDetails,
    /// N1 message for the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// N2 information for the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info: Option<RefToBinaryData>,
    /// Type of the N2 information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info_type: Option<N2SmInfoType>,
}

/// UpCnxState (TS 29.502 6.1.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UpCnxState {
    /// The user plane is active.
    Activated = 1,
    /// The user plane is inactive.
    Deactivated,
    /// The user plane is being activated.
    Activating,
    /// The UE is in a non-allowed area, where only emergency and priority services have a user
    /// plane.
    Suspended,
}

impl UpCnxState {
    /// All values, in the order of their gRPC numbers.
    pub(crate) const ALL: [Self; 4] = [Self::Activated, Self::Deactivated, Self::Activating, Self::Suspended];
}

/// HoState (TS 29.502 6.1.6.3.12): stage of an N2 handover (TS 29.502 5.2.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HoState {
    /// No handover, or one without this session.
    None = 1,
    /// The target needs the session's parameters.
    Preparing,
    /// The target has responded.
    Prepared,
    /// The UE has arrived at the target.
    Completed,
    /// The UE stays at the source.
    Cancelled,
    /// Any other value, also of later releases of the specification.
    #[serde(other)]
    Other = 0,
}

impl HoState {
    /// Values with a gRPC number, in the order of the numbers.
    pub(crate) const ALL: [Self; 5] = [Self::None, Self::Preparing, Self::Prepared, Self::Completed, Self::Cancelled];
}

/// SmContextUpdateData (TS 29.502 6.1.6.2.4), without unused members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextUpdateData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ue_location: Option<UserLocation>,
    /// Requested state of the user plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_cnx_state: Option<UpCnxState>,
    /// Path switch after an Xn handover: the RAN end of N3 has changed (TS 29.502 5.2.2.3.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_be_switched: Option<bool>,
    /// The target of an Xn handover has not set up the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_to_be_switched: Option<bool>,
    /// Stage of an N2 handover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ho_state: Option<HoState>,
    /// Target of an N2 handover that is being prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_id: Option<NgRanTargetId>,
    /// 5GSM message of the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// NGAP transfer IE of the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info: Option<RefToBinaryData>,
    /// Type of the transfer IE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info_type: Option<N2SmInfoType>,
}

/// SmContextUpdatedData (TS 29.502 6.1.6.2.5), without unused members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextUpdatedData {
    /// State of the user plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_cnx_state: Option<UpCnxState>,
    /// Stage of an N2 handover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ho_state: Option<HoState>,
    /// N1 message for the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// N2 information for the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info: Option<RefToBinaryData>,
    /// Type of the N2 information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info_type: Option<N2SmInfoType>,
}

/// SmContextReleaseData (TS 29.502 6.1.6.2.6), without unused members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextReleaseData {
    /// Reason of the release (Cause, TS 29.502 6.1.6.3.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// SmContextStatusNotification (TS 29.502 6.1.6.2.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextStatusNotification {
    pub status_info: StatusInfo,
}

/// StatusInfo (TS 29.502 6.1.6.2.9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusInfo {
    /// [`RELEASED`] or another ResourceStatus.
    pub resource_status: String,
}

/// Status of a released SM context (ResourceStatus, TS 29.502 6.1.6.3.5).
pub const RELEASED: &str = "RELEASED";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_they_are_about() {
        assert_eq!(resource("/nsmf-pdusession/v1/sm-contexts"), Some(Resource::All));
        assert_eq!(resource("/nsmf-pdusession/v1/sm-contexts/a1/modify"), Some(Resource::One("a1", Operation::Modify)));
        assert_eq!(
            resource("/nsmf-pdusession/v1/sm-contexts/a1/release"),
            Some(Resource::One("a1", Operation::Release))
        );
        for wrong in ["", "/", "/a1", "/a1/", "//modify", "/a1/retrieve", "x", "/a1/b/modify"] {
            let path = format!("{SM_CONTEXTS}{wrong}");
            assert!(wrong.is_empty() || resource(&path).is_none(), "{path}");
        }
    }

    /// The enumeration is extensible (TS 29.501 5.3.10), and other members must still be parsed.
    #[test]
    fn unknown_handover_state_is_other() {
        let text = r#"{"upCnxState":"ACTIVATED","hoState":"SOME_OTHER_STATE"}"#;
        let told: SmContextUpdatedData = serde_json::from_str(text).unwrap();
        assert_eq!((told.up_cnx_state, told.ho_state), (Some(UpCnxState::Activated), Some(HoState::Other)));
    }

    #[test]
    fn members_have_the_names_of_ts_29_502() {
        let part = |id: &str| Some(RefToBinaryData { content_id: id.into() });
        let update = SmContextUpdateData {
            up_cnx_state: Some(UpCnxState::Activating),
            n1_sm_msg: part("n1"),
            n2_sm_info: part("n2"),
            n2_sm_info_type: Some(N2SmInfoType::PduResSetupRsp),
            ..SmContextUpdateData::default()
        };
        let text = r#"{"upCnxState":"ACTIVATING","n1SmMsg":{"contentId":"n1"},"n2SmInfo":{"contentId":"n2"},"n2SmInfoType":"PDU_RES_SETUP_RSP"}"#;
        assert_eq!(serde_json::to_string(&update).unwrap(), text);
        assert_eq!(serde_json::from_str::<SmContextUpdateData>(text).unwrap(), update);
        let text = r#"{"toBeSwitched":true,"n2SmInfo":{"contentId":"n2"},"n2SmInfoType":"PATH_SWITCH_REQ"}"#;
        let update: SmContextUpdateData = serde_json::from_str(text).unwrap();
        assert_eq!((update.to_be_switched, update.failed_to_be_switched), (Some(true), None));
        assert_eq!(serde_json::to_string(&update).unwrap(), text);
        let plmn = r#"{"mcc":"999","mnc":"70"}"#;
        let text = format!(
            r#"{{"hoState":"PREPARING","targetId":{{"ranNodeId":{{"plmnId":{plmn},"gNbId":{{"bitLength":22,"gNBValue":"00000a"}}}},"tai":{{"plmnId":{plmn},"tac":"000001"}}}}}}"#
        );
        let update: SmContextUpdateData = serde_json::from_str(&text).unwrap();
        let plmn: vireo_types::Plmn = "99970".parse().unwrap();
        let target = vireo_types::GnbId { plmn, id: 10, bits: 22 };
        let tai = vireo_types::Tai { plmn, tac: vireo_types::Tac(1) };
        assert_eq!(update.target_id, Some(NgRanTargetId::new(target, tai)));
        assert_eq!(serde_json::to_string(&update).unwrap(), text);
        // Members of other releases or vendors are ignored.
        let updated = serde_json::from_str::<SmContextUpdatedData>(r#"{"cause":"X","hoState":"NONE"}"#).unwrap();
        assert_eq!(updated.ho_state, Some(HoState::None));
        let notification: SmContextStatusNotification =
            serde_json::from_str(r#"{"statusInfo":{"resourceStatus":"RELEASED","cause":"REL_DUE_TO_HO"}}"#).unwrap();
        assert_eq!(notification.status_info.resource_status, RELEASED);
    }
}
