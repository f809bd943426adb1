//! What a peer of the service-based interface may send: a media type and a body; and the paths that it may name.

use serde::Serialize;
use serde::de::DeserializeOwned;
use vireo_sbi::amf::{self, N1N2MessageTransferReqData, N1N2MessageTransferRspData};
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::smf::{
    self, SmContextCreateData, SmContextError, SmContextStatusNotification, SmContextUpdateData, SmContextUpdatedData,
};
use vireo_sbi::{Content, Message};

/// The first line as a path and as a media type, the rest as a body.
pub fn message(octets: &[u8]) {
    let at = octets.iter().position(|octet| *octet == b'\n').unwrap_or(octets.len());
    let Ok(line) = std::str::from_utf8(&octets[..at]) else { return };
    let _ = (amf::resource(line), smf::resource(line));
    let Ok(message) = Message::decode(Some(line), octets.get(at + 1..).unwrap_or_default()) else { return };
    let (media_type, body) = message.encode("application/json");
    if !message.json.is_empty() || !message.parts.is_empty() {
        assert_eq!(Message::decode(media_type.as_deref(), &body), Ok(message.clone()), "a message changes");
    }
    again::<SmContextCreateData>(&message);
    again::<SmContextUpdateData>(&message);
    again::<SmContextUpdatedData>(&message);
    again::<SmContextError>(&message);
    again::<SmContextStatusNotification>(&message);
    again::<N1N2MessageTransferReqData>(&message);
    again::<N1N2MessageTransferRspData>(&message);
    again::<ProblemDetails>(&message);
}

/// An SM context that an AMF brings along.
pub fn sm_context(octets: &[u8]) {
    vireo_node::sbi::smf::probe::take(super::session::config(), octets);
}

/// One that an SMF has given away.
pub fn sm_context_seeds() -> Vec<Vec<u8>> {
    vec![vireo_node::sbi::smf::probe::given(super::session::config())]
}

/// What is read and written is read as the same again.
fn again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &Message) {
    if let Ok(value) = message.value::<T>() {
        assert_eq!(Message::of(&value).value::<T>().ok(), Some(value), "a model changes");
    }
}

/// Requests and answers of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let part = |id: &str| serde_json::json!({ "contentId": id });
    let slice = serde_json::json!({ "sst": 1, "sd": "0a0b0c" });
    let plmn = serde_json::json!({ "mcc": "999", "mnc": "70" });
    let create = serde_json::json!({
        "supi": "imsi-999700000000001", "pei": "imeisv-3569380356438091", "pduSessionId": 5, "dnn": "internet",
        "sNssai": slice, "servingNfId": "00000000-0000-8000-8000-000000000000",
        "guami": { "plmnId": plmn, "amfId": "020040" }, "servingNetwork": plmn, "requestType": "INITIAL_REQUEST",
        "n1SmMsg": part("n1"), "anType": "3GPP_ACCESS", "ratType": "NR",
        "ueLocation": { "nrLocation": {
            "tai": { "plmnId": plmn, "tac": "000001" }, "ncgi": { "plmnId": plmn, "nrCellId": "000000010" },
        } },
        "smContextStatusUri": "http://127.0.0.18:7777/namf-callback/v1/sm-contexts/imsi-999700000000001/0",
    });
    let update = serde_json::json!({
        "upCnxState": "ACTIVATING", "n1SmMsg": part("n1"), "n2SmInfo": part("n2"), "n2SmInfoType": "PDU_RES_SETUP_RSP",
    });
    let transfer = serde_json::json!({
        "n1MessageContainer": { "n1MessageClass": "SM", "n1MessageContent": part("n1") },
        "n2InfoContainer": { "n2InformationClass": "SM", "smInfo": {
            "pduSessionId": 5, "sNssai": slice,
            "n2InfoContent": { "ngapIeType": "PDU_RES_SETUP_REQ", "ngapData": part("n2") },
        } },
        "pduSessionId": 5, "n1n2FailureTxfNotifURI": "http://127.0.0.19:7777/nsmf-callback/v1/unreached/0",
    });
    let error =
        serde_json::json!({ "error": { "status": 403, "cause": "DNN_DENIED", "detail": "x" }, "n1SmMsg": part("n1") });
    let n1 = vec![0x2e, 5, 1, 0xc1, 0xff, 0xff, 0x91];
    let with_parts = [create, update, transfer, error].into_iter().map(|json| {
        Message::of(&json).with("n1", Content::Nas, n1.clone()).with("n2", Content::Ngap, vec![0, 1, 2, 3])
    });
    let alone = [
        serde_json::json!({ "statusInfo": { "resourceStatus": "RELEASED" } }),
        serde_json::json!({ "cause": "ATTEMPTING_TO_REACH_UE" }),
        serde_json::json!({ "status": 404, "cause": "CONTEXT_NOT_FOUND" }),
    ];
    let seed = |message: Message| {
        let (media_type, body) = message.encode("application/json");
        [media_type.unwrap_or_default().into_bytes(), b"\n".to_vec(), body].concat()
    };
    with_parts.chain(alone.iter().map(Message::of)).map(seed).collect()
}
