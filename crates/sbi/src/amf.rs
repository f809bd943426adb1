//! Namf_Communication (TS 29.518), and callbacks of the SMF to the AMF.
//!
//! Namf_Communication transfers N1 and N2 messages of the SMF to a UE and its RAN node. The URIs of
//! callbacks are chosen by the AMF.

use super::common::{N2SmInfoType, ProblemDetails, RefToBinaryData, Snssai};
use serde::{Deserialize, Serialize};

/// Path of UE contexts (TS 29.518 6.1.3.1).
const UE_CONTEXTS: &str = "/namf-comm/v1/ue-contexts";
/// Messages for a UE, below its UE context (TS 29.518 6.1.3.5).
const MESSAGES: &str = "n1-n2-messages";
/// Path of the SM contexts that the AMF stores for the SMF. Specific to Vireo.
const HELD_SM_CONTEXTS: &str = "/vireo-sm-context/v1";
/// Path for notifications of released SM contexts. The AMF chooses it (TS 29.502 6.1.5.2).
const STATUS: &str = "/namf-callback/v1/sm-contexts";

/// Returns the path of N1N2 transfers to a UE.
pub fn message_transfer_uri(supi: &str) -> String {
    format!("{UE_CONTEXTS}/{supi}/{MESSAGES}")
}

/// Returns the callback path for the release of a session.
pub fn status_callback_uri(supi: &str, number: u32) -> String {
    format!("{STATUS}/{supi}/{number}")
}

/// Returns the path of an SM context that the AMF stores. `number` is the low [`NUMBER_BITS`] of
/// the AMF's session number.
pub fn held_sm_context_uri(supi: &str, number: u32) -> String {
    format!("{HELD_SM_CONTEXTS}/{supi}/{number}")
}

/// Bits of the AMF's session numbers that identify a session. They differ for all sessions that a
/// UE has at a time.
pub const NUMBER_BITS: u32 = 14;

/// Resource of an AMF that a request of an SMF addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A stored SM context: SUPI, and the low bits of the AMF's session number.
    HeldSmContext(&'a str, u32),
    /// Messages to the UE with this SUPI.
    Messages(&'a str),
    /// Notification of a released session: SUPI, and the AMF's session number.
    Status(&'a str, u32),
}

/// Parses a path; `None` if it matches no resource.
pub fn resource(path: &str) -> Option<Resource<'_>> {
    if let Some(rest) = path.strip_prefix(UE_CONTEXTS) {
        let (supi, collection) = rest.strip_prefix('/')?.split_once('/')?;
        return (collection == MESSAGES && !supi.is_empty()).then_some(Resource::Messages(supi));
    }
    if let Some(rest) = path.strip_prefix(HELD_SM_CONTEXTS) {
        let (supi, number) = rest.strip_prefix('/')?.split_once('/')?;
        return Some(Resource::HeldSmContext(supi, number.parse().ok()?));
    }
    let (supi, number) = path.strip_prefix(STATUS)?.strip_prefix('/')?.split_once('/')?;
    Some(Resource::Status(supi, number.parse().ok()?))
}

/// N1N2MessageTransferReqData (TS 29.518 6.1.6.2.18), without unused members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N1N2MessageTransferReqData {
    /// N1 message for the UE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1_message_container: Option<N1MessageContainer>,
    /// N2 information for the RAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_info_container: Option<N2InfoContainer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdu_session_id: Option<u8>,
    /// Callback URI for a UE that does not respond to paging.
    #[serde(default, rename = "n1n2FailureTxfNotifURI", skip_serializing_if = "Option::is_none")]
    pub failure_uri: Option<String>,
    /// Vireo extension: announces a created SM context, and so replaces the create response. Other
    /// AMFs ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vireo_created: Option<CreatedSmContext>,
}

/// Content of an implied CreateSMContext response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedSmContext {
    /// Idempotency key of the create request.
    pub key: String,
    /// The AMF's session number ([`crate::smf::SmContextCreateData::vireo_implied`]).
    pub number: u32,
    /// SM context reference: the last segment of its URI.
    pub sm_context_ref: String,
}

/// N1MessageContainer (TS 29.518 6.1.6.2.17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N1MessageContainer {
    pub n1_message_class: String,
    pub n1_message_content: RefToBinaryData,
}

/// N2InfoContainer (TS 29.518 6.1.6.2.15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N2InfoContainer {
    pub n2_information_class: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_info: Option<N2SmInformation>,
}

/// N2SmInformation (TS 29.518 6.1.6.2.26).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N2SmInformation {
    pub pdu_session_id: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n2_info_content: Option<N2InfoContent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s_nssai: Option<Snssai>,
}

/// N2InfoContent (TS 29.518 6.1.6.2.27).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N2InfoContent {
    /// Type of the transfer IE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ngap_ie_type: Option<N2SmInfoType>,
    /// Reference to the part with the transfer IE.
    pub ngap_data: RefToBinaryData,
}

/// Class of session management messages (N1MessageClass, N2InformationClass).
pub const SM: &str = "SM";

/// N1N2MessageTransferRspData (TS 29.518 6.1.6.2.19).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2MessageTransferRspData {
    pub cause: TransferCause,
}

/// N1N2MessageTransferCause (TS 29.518 6.1.6.3.6), without unused values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TransferCause {
    /// The AMF pages the UE.
    AttemptingToReachUe = 1,
    /// The AMF has sent the messages.
    #[serde(rename = "N1_N2_TRANSFER_INITIATED")]
    Initiated,
    /// The UE does not respond to paging.
    UeNotResponding,
    /// Any other value of the specification.
    #[serde(other)]
    Other = 0,
}

impl TransferCause {
    /// Values with a gRPC number, in the order of the numbers.
    pub(crate) const ALL: [Self; 3] = [Self::AttemptingToReachUe, Self::Initiated, Self::UeNotResponding];
}

/// N1N2MessageTransferError (TS 29.518 6.1.6.2.30).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2MessageTransferError {
    pub error: ProblemDetails,
}

/// N1N2MsgTxfrFailureNotification (TS 29.518 6.1.6.2.29).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct N1N2MsgTxfrFailureNotification {
    /// Reason of the failure.
    pub cause: TransferCause,
    /// Location of the message, from the response to its transfer.
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
        assert_eq!(resource(&held_sm_context_uri(supi, 7)), Some(Resource::HeldSmContext(supi, 7)));
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
