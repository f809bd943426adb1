//! Namf_Communication (TS 29.518): what an SMF has for a UE and its RAN node; and what an SMF tells the AMF by the URIs that the
//! AMF has given it.

use super::common::{N2SmInfoType, ProblemDetails, RefToBinaryData, Snssai};
use serde::{Deserialize, Serialize};

/// Where UE contexts are (TS 29.518 6.1.3.1).
const UE_CONTEXTS: &str = "/namf-comm/v1/ue-contexts";
/// Below a UE context: messages for it (6.1.3.5).
const MESSAGES: &str = "n1-n2-messages";
/// Where an SMF gets an SM context back that it has left with the AMF: Vireo's own.
const LEFT: &str = "/vireo-sm-context/v1";
/// Where SMFs tell the end of SM contexts. The AMF chooses it (TS 29.502 6.1.5.2).
const STATUS: &str = "/namf-callback/v1/sm-contexts";

/// Where messages for a UE go.
pub fn message_transfer_uri(supi: &str) -> String {
    format!("{UE_CONTEXTS}/{supi}/{MESSAGES}")
}

/// Where the SMF tells that a session has ended.
pub fn status_callback_uri(supi: &str, number: u32) -> String {
    format!("{STATUS}/{supi}/{number}")
}

/// Where the SM context is that the SMF has left with the AMF, of the session that the AMF's number ends so ([`NUMBER_BITS`]).
pub fn held_sm_context_uri(supi: &str, number: u32) -> String {
    format!("{LEFT}/{supi}/{number}")
}

/// Bits of the AMF's numbers for sessions by which an SMF names one: no two that a UE has at a time are alike in them.
pub const NUMBER_BITS: u32 = 14;

/// What a path names that SMFs ask the AMF by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// An SM context of this SUPI which the SMF has left here, by the end of the AMF's number.
    Left(&'a str, u32),
    /// Messages for the UE of this SUPI.
    Messages(&'a str),
    /// The end of a session of this SUPI, by the AMF's number.
    Status(&'a str, u32),
}

/// Reads a path; `None` if it is none of these.
pub fn resource(path: &str) -> Option<Resource<'_>> {
    if let Some(rest) = path.strip_prefix(UE_CONTEXTS) {
        let (supi, what) = rest.strip_prefix('/')?.split_once('/')?;
        return (what == MESSAGES && !supi.is_empty()).then_some(Resource::Messages(supi));
    }
    if let Some(rest) = path.strip_prefix(LEFT) {
        let (supi, number) = rest.strip_prefix('/')?.split_once('/')?;
        return Some(Resource::Left(supi, number.parse().ok()?));
    }
    let (supi, number) = path.strip_prefix(STATUS)?.strip_prefix('/')?.split_once('/')?;
    Some(Resource::Status(supi, number.parse().ok()?))
}

/// N1N2MessageTransferReqData (6.1.6.2.18), as far as it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N1N2MessageTransferReqData {
    /// For the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_message_container: Option<N1MessageContainer>,
    /// For the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_info_container: Option<N2InfoContainer>,
    /// PDU session identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdu_session_id: Option<u8>,
    /// Where the SMF wants to hear that the UE does not answer to paging.
    #[serde(default, rename = "n1n2FailureTxfNotifURI", skip_serializing_if = "Option::is_none")]
    pub failure_uri: Option<String>,
    /// Vireo's own: the SM context has come into being, and the request that asked for it needs no answer. Others pass it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vireo_created: Option<CreatedSmContext>,
}

/// What the answer to CreateSMContext would say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedSmContext {
    /// The key of the request that is answered by it.
    pub key: String,
    /// The AMF's number for the session ([`crate::smf::SmContextCreateData::vireo_implied`]).
    pub number: u32,
    /// The SM context: the last part of its URI.
    pub sm_context_ref: String,
}

/// N1MessageContainer (6.1.6.2.17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N1MessageContainer {
    /// SM.
    pub n1_message_class: String,
    /// The message.
    pub n1_message_content: RefToBinaryData,
}

/// N2InfoContainer (6.1.6.2.15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N2InfoContainer {
    /// SM.
    pub n2_information_class: String,
    /// Of session management.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_info: Option<N2SmInformation>,
}

/// N2SmInformation (6.1.6.2.26).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N2SmInformation {
    /// PDU session identity.
    pub pdu_session_id: u8,
    /// The transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_info_content: Option<N2InfoContent>,
    /// The slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s_nssai: Option<Snssai>,
}

/// N2InfoContent (6.1.6.2.27).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N2InfoContent {
    /// Which transfer it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ngap_ie_type: Option<N2SmInfoType>,
    /// It.
    pub ngap_data: RefToBinaryData,
}

/// The class of session management's messages (N1MessageClass, N2InformationClass).
pub const SM: &str = "SM";

/// N1N2MessageTransferRspData (6.1.6.2.19).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2MessageTransferRspData {
    /// What becomes of it.
    pub cause: TransferCause,
}

/// N1N2MessageTransferCause (6.1.6.3.6), as far as it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TransferCause {
    /// The UE is being paged.
    AttemptingToReachUe = 1,
    /// It is on its way.
    #[serde(rename = "N1_N2_TRANSFER_INITIATED")]
    Initiated,
    /// The UE does not answer.
    UeNotResponding,
    /// Anything else that the specification has.
    #[serde(other)]
    Other = 0,
}

impl TransferCause {
    /// Those that gRPC has numbers for, in their order.
    pub(crate) const ALL: [Self; 3] = [Self::AttemptingToReachUe, Self::Initiated, Self::UeNotResponding];
}

/// N1N2MessageTransferError (6.1.6.2.30).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2MessageTransferError {
    /// What is wrong.
    pub error: ProblemDetails,
}

/// N1N2MsgTxfrFailureNotification (6.1.6.2.29).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N1N2MsgTxfrFailureNotification {
    /// Why.
    pub cause: TransferCause,
    /// The message, by the Location of the answer to its transfer.
    pub n1n2_msg_data_uri: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_they_are_about() {
        let supi = "imsi-999700000000001";
        assert_eq!(resource(&message_transfer_uri(supi)), Some(Resource::Messages(supi)));
        assert_eq!(resource(&status_callback_uri(supi, 7)), Some(Resource::Status(supi, 7)));
        assert_eq!(resource(&held_sm_context_uri(supi, 7)), Some(Resource::Left(supi, 7)));
        assert_eq!(resource(&format!("{}/x", held_sm_context_uri(supi, 7))), None);
        for wrong in ["/namf-comm/v1/ue-contexts", "/namf-comm/v1/ue-contexts//n1-n2-messages", "/", ""] {
            assert_eq!(resource(wrong), None, "{wrong}");
        }
        for wrong in ["imsi-1/x", "imsi-1/4294967296", "imsi-1/-1", "imsi-1"] {
            assert_eq!(resource(&format!("{STATUS}/{wrong}")), None, "{wrong}");
        }
    }

    #[test]
    fn members_have_the_names_of_ts_29_518() {
        let part = |id: &str| RefToBinaryData { content_id: id.into() };
        let content = N2InfoContent { ngap_ie_type: Some(N2SmInfoType::PduResSetupReq), ngap_data: part("n2") };
        let request = N1N2MessageTransferReqData {
            n1_message_container: Some(N1MessageContainer {
                n1_message_class: SM.into(),
                n1_message_content: part("n1"),
            }),
            n2_info_container: Some(N2InfoContainer {
                n2_information_class: SM.into(),
                sm_info: Some(N2SmInformation { pdu_session_id: 1, n2_info_content: Some(content), s_nssai: None }),
            }),
            pdu_session_id: Some(1),
            failure_uri: Some("http://a/b".into()),
            vireo_created: Some(CreatedSmContext { key: "k".into(), number: 7, sm_context_ref: "x".into() }),
        };
        let text = serde_json::to_string(&request).unwrap();
        let expected = concat!(
            r#"{"n1MessageContainer":{"n1MessageClass":"SM","n1MessageContent":{"contentId":"n1"}},"#,
            r#""n2InfoContainer":{"n2InformationClass":"SM","smInfo":{"pduSessionId":1,"#,
            r#""n2InfoContent":{"ngapIeType":"PDU_RES_SETUP_REQ","ngapData":{"contentId":"n2"}}}},"#,
            r#""pduSessionId":1,"n1n2FailureTxfNotifURI":"http://a/b","#,
            r#""vireoCreated":{"key":"k","number":7,"smContextRef":"x"}}"#
        );
        assert_eq!(text, expected);
        let failed = N1N2MsgTxfrFailureNotification {
            cause: TransferCause::UeNotResponding,
            n1n2_msg_data_uri: "http://a/c".into(),
        };
        let text = r#"{"cause":"UE_NOT_RESPONDING","n1n2MsgDataUri":"http://a/c"}"#;
        assert_eq!(serde_json::to_string(&failed).unwrap(), text);
        let answer = |text: &str| serde_json::from_str::<N1N2MessageTransferRspData>(text).unwrap().cause;
        assert_eq!(answer(r#"{"cause":"N1_N2_TRANSFER_INITIATED"}"#), TransferCause::Initiated);
        assert_eq!(answer(r#"{"cause":"WAITING_FOR_ASYNCHRONOUS_TRANSFER"}"#), TransferCause::Other);
    }
}
