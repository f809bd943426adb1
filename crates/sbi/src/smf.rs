//! Nsmf_PDUSession (TS 29.502): the operations between AMF and SMF on SM contexts.

use super::common::{
    Guami, N2SmInfoType, NgRanTargetId, PlmnId, ProblemDetails, RefToBinaryData, Snssai, UserLocation,
};
use serde::{Deserialize, Serialize};

/// Where SM contexts are (TS 29.502 6.1.3.2).
pub const SM_CONTEXTS: &str = "/nsmf-pdusession/v1/sm-contexts";

/// What is asked of one SM context (6.1.3.3.4).
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

    /// The path below an SM context's own.
    pub fn of(self, reference: &str) -> String {
        format!("{reference}/{}", self.word())
    }
}

/// What a path of this service names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// All SM contexts: one is to be created.
    All,
    /// This one.
    One(&'a str, Operation),
}

/// Reads a path; `None` if it is none of this service.
pub fn resource(path: &str) -> Option<Resource<'_>> {
    let rest = path.strip_prefix(SM_CONTEXTS)?;
    if rest.is_empty() {
        return Some(Resource::All);
    }
    let (reference, word) = rest.strip_prefix('/')?.split_once('/')?;
    let operation = [Operation::Modify, Operation::Release].into_iter().find(|operation| operation.word() == word)?;
    (!reference.is_empty()).then_some(Resource::One(reference, operation))
}

/// SmContextCreateData (6.1.6.2.2), as far as it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextCreateData {
    /// `imsi-` and digits.
    pub supi: String,
    /// `imeisv-` and digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pei: Option<String>,
    /// PDU session identity.
    pub pdu_session_id: u8,
    /// The data network.
    pub dnn: String,
    /// The slice.
    pub s_nssai: Snssai,
    /// The AMF's instance.
    pub serving_nf_id: String,
    /// The AMF.
    pub guami: Guami,
    /// Its network.
    pub serving_network: PlmnId,
    /// INITIAL_REQUEST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_type: Option<String>,
    /// The UE's 5GSM message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// 3GPP_ACCESS.
    pub an_type: String,
    /// NR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rat_type: Option<String>,
    /// Where the UE is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ue_location: Option<UserLocation>,
    /// Where the AMF hears of the SM context's end.
    pub sm_context_status_uri: String,
    /// Of an AMF that keeps the SM context for the SMF ([`crate::PartContent::SmContext`]), which is Vireo's own: its number for
    /// the session, which no other session of the UE has had for a long time. Others pass it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vireo_carried: Option<u32>,
    /// Of an AMF to which the first N1N2MessageTransfer of the session may say that the SM context was created
    /// ([`crate::amf::CreatedSmContext`]), so that this request needs no answer of its own: its number for the session. Vireo's own;
    /// an SMF that does not know it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vireo_implied: Option<u32>,
}

/// SmContextCreatedData (6.1.6.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextCreatedData {
    /// PDU session identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdu_session_id: Option<u8>,
    /// The slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s_nssai: Option<Snssai>,
}

/// SmContextCreateError, SmContextUpdateError (6.1.6.2.24, 6.1.6.2.25): what is wrong, with what UE and RAN are to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextError {
    /// What is wrong.
    pub error: ProblemDetails,
    /// For the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// For the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info: Option<RefToBinaryData>,
    /// What that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info_type: Option<N2SmInfoType>,
}

/// UpCnxState (6.1.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UpCnxState {
    /// The user plane is there.
    Activated = 1,
    /// It is not.
    Deactivated,
    /// It is being set up.
    Activating,
    /// The UE is in an area where only emergencies and the like have one.
    Suspended,
}

impl UpCnxState {
    /// All, in the order of their numbers in gRPC.
    pub(crate) const ALL: [Self; 4] = [Self::Activated, Self::Deactivated, Self::Activating, Self::Suspended];
}

/// HoState (6.1.6.3.12): how far a handover by N2 is (5.2.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HoState {
    /// There is none, or it does not take the session along.
    None = 1,
    /// The target is to be told what it needs.
    Preparing,
    /// The target has answered.
    Prepared,
    /// The UE is there.
    Completed,
    /// It stays where it is.
    Cancelled,
    /// Anything else that the specification has, or is to have.
    #[serde(other)]
    Other = 0,
}

impl HoState {
    /// Those that gRPC has numbers for, in their order.
    pub(crate) const ALL: [Self; 5] = [Self::None, Self::Preparing, Self::Prepared, Self::Completed, Self::Cancelled];
}

/// SmContextUpdateData (6.1.6.2.4), as far as it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextUpdateData {
    /// Where the UE is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ue_location: Option<UserLocation>,
    /// The user plane is to be set up or let go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_cnx_state: Option<UpCnxState>,
    /// By an Xn handover the RAN's end of N3 has become another one (5.2.2.3.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_be_switched: Option<bool>,
    /// The RAN node that the UE has come to by it has not set the session up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_to_be_switched: Option<bool>,
    /// How far a handover by N2 is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ho_state: Option<HoState>,
    /// Of one that is being prepared: where the UE is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_id: Option<NgRanTargetId>,
    /// The UE's 5GSM message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// The RAN's transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info: Option<RefToBinaryData>,
    /// What that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info_type: Option<N2SmInfoType>,
}

/// SmContextUpdatedData (6.1.6.2.5), as far as it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextUpdatedData {
    /// How the user plane is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_cnx_state: Option<UpCnxState>,
    /// How far a handover by N2 is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ho_state: Option<HoState>,
    /// For the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_sm_msg: Option<RefToBinaryData>,
    /// For the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info: Option<RefToBinaryData>,
    /// What that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_sm_info_type: Option<N2SmInfoType>,
}

/// SmContextReleaseData (6.1.6.2.6), as far as it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextReleaseData {
    /// Why (Cause, 6.1.6.3.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// SmContextStatusNotification (6.1.6.2.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SmContextStatusNotification {
    /// What there is to tell.
    pub status_info: StatusInfo,
}

/// StatusInfo (6.1.6.2.9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusInfo {
    /// RELEASED, or another word.
    pub resource_status: String,
}

/// The SM context is not there any more (ResourceStatus, 6.1.6.3.5).
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

    /// The enumeration may grow (TS 29.501 5.3.10), and what is said beside it is to be read.
    #[test]
    fn a_state_of_a_handover_that_is_not_known_is_another_one() {
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
        assert_eq!(update.target_id, Some(NgRanTargetId::of(target, tai)));
        assert_eq!(serde_json::to_string(&update).unwrap(), text);
        // What another release or vendor adds is passed over.
        let updated = serde_json::from_str::<SmContextUpdatedData>(r#"{"cause":"X","hoState":"NONE"}"#).unwrap();
        assert_eq!(updated.ho_state, Some(HoState::None));
        let notification: SmContextStatusNotification =
            serde_json::from_str(r#"{"statusInfo":{"resourceStatus":"RELEASED","cause":"REL_DUE_TO_HO"}}"#).unwrap();
        assert_eq!(notification.status_info.resource_status, RELEASED);
    }
}
