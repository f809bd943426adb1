//! Fuzz targets of the SBI: media types, bodies and paths of a peer.

use serde_json::Value;
use vireo_sbi::amf::{self, N1N2MessageTransferReqData, N1N2MessageTransferRspData, N1N2MsgTxfrFailureNotification};
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::grpc::{self, Code, GrpcStatus, Method};
use vireo_sbi::message::{Model, TypedBody};
use vireo_sbi::smf::{
    self, Operation, SM_CONTEXTS, SmContextCreateData, SmContextError, SmContextReleaseData,
    SmContextStatusNotification, SmContextUpdateData, SmContextUpdatedData,
};
use vireo_sbi::{Message, PartContent, Reply};

/// Decodes the first line as a path and as a media type, the rest as a body.
pub fn message(octets: &[u8]) {
    let at = octets.iter().position(|octet| *octet == b'\n').unwrap_or(octets.len());
    let Ok(line) = std::str::from_utf8(&octets[..at]) else { return };
    let _ = (amf::resource(line), smf::resource(line));
    let Ok(message) = Message::decode(Some(line), octets.get(at + 1..).unwrap_or_default()) else { return };
    let (media_type, body) = message.encode("application/json");
    if media_type.is_some() {
        assert_eq!(Message::decode(media_type.as_deref(), &body), Ok(message.clone()), "a message changes");
    }
    check_round_trip::<SmContextCreateData>(&message);
    check_round_trip::<SmContextUpdateData>(&message);
    check_round_trip::<SmContextUpdatedData>(&message);
    check_round_trip::<SmContextError>(&message);
    check_round_trip::<SmContextStatusNotification>(&message);
    check_round_trip::<N1N2MessageTransferReqData>(&message);
    check_round_trip::<N1N2MessageTransferRspData>(&message);
    check_round_trip::<ProblemDetails>(&message);
}

/// Decodes an SM context that an AMF sends (piggyback).
pub fn sm_context(octets: &[u8]) {
    vireo_smf::probe::take(super::session::config(), octets);
}

/// Returns an SM context as an SMF sends it and as an AMF has committed it.
pub fn sm_context_seeds() -> Vec<Vec<u8>> {
    use vireo_smf::probe;
    vec![probe::piggybacked_sm_context(super::session::config()), probe::delegated_commit()]
}

/// Checks that encoding and decoding again yields the same message.
fn check_round_trip<T: TypedBody + PartialEq + std::fmt::Debug>(message: &Message) {
    if let Ok(value) = message.value::<T>() {
        let (media_type, body) = Message::new(value.clone()).encode("application/json");
        let message = Message::decode(media_type.as_deref(), &body).expect("what was written");
        assert_eq!(message.value::<T>().ok(), Some(value), "a model changes");
    }
}

/// Decodes the first octet as an operation and its outcome, the rest as a gRPC message.
pub fn in_grpc(octets: &[u8]) {
    is_grpc(octets);
}

/// Returns true if the octets are a gRPC message.
pub fn is_grpc(octets: &[u8]) -> bool {
    let [kind, octets @ ..] = octets else { return false };
    let (kind, methods) = (usize::from(*kind), Method::ALL.len());
    let method = Method::ALL[kind % methods];
    match kind / methods % KINDS {
        ASKED => {
            let Ok((path, message)) = grpc::decode_request(method, octets) else { return false };
            let (again, written) = grpc::encode_request(&path, &message).expect("what was read can be said");
            assert_eq!(
                (again, grpc::decode_request(method, &written)),
                (method, Ok((path, message))),
                "a request changes"
            );
        }
        ANSWERED => {
            let Ok(reply) = grpc::decode_response(method, octets) else { return false };
            let written = grpc::encode_response(method, &reply).expect("what was read can be said");
            assert_eq!(grpc::decode_response(method, &written), Ok(reply), "an answer changes");
        }
        _ => {
            let Ok(reply) = grpc::decode_problem(Code::Unknown, "words", octets) else { return false };
            let GrpcStatus { code, message, details } =
                grpc::encode_problem(&reply).expect("what was read can be said");
            assert_eq!(grpc::decode_problem(code, &message, &details), Ok(reply), "a problem changes");
        }
    }
    true
}

/// Kinds of an operation's messages: request, response, error.
const KINDS: usize = 3;
const ASKED: usize = 0;
const ANSWERED: usize = 1;
const REFUSED: usize = 2;

/// Returns request, response and error of each operation.
pub fn grpc_seeds() -> Vec<Vec<u8>> {
    fn model<T: TypedBody>(json: &Value) -> Model {
        Message::from_json(json.to_string().into_bytes()).value::<T>().expect("a model").into()
    }
    let [create, update, transfer, error] = bodies_with_parts();
    let [status, cause, problem] = bodies_without_parts();
    let failure = serde_json::json!({ "cause": "UE_NOT_RESPONDING", "n1n2MsgDataUri": "http://127.0.0.18:7777/x" });
    let context = format!("{SM_CONTEXTS}/0123456789abcdef");
    let supi = "imsi-999700000000001";
    let asked = [
        (SM_CONTEXTS.to_owned(), model::<SmContextCreateData>(&create)),
        (Operation::Modify.uri(&context), model::<SmContextUpdateData>(&update)),
        (Operation::Release.uri(&context), model::<SmContextReleaseData>(&serde_json::json!({ "cause": "x" }))),
        (amf::status_callback_uri(supi, 7), model::<SmContextStatusNotification>(&status)),
        (amf::message_transfer_uri(supi), model::<N1N2MessageTransferReqData>(&transfer)),
        ("/nsmf-callback/v1/unreached/0".to_owned(), model::<N1N2MsgTxfrFailureNotification>(&failure)),
    ];
    let asked = asked.map(|(path, model)| (path, parts(Message::new(model))));
    let asked = asked.into_iter().chain([(amf::held_sm_context_uri(supi, 7), Message::default())]);
    let place = |method: Method| Method::ALL.iter().position(|of| *of == method).unwrap_or_default();
    let seed = |kind: usize, method: Method, octets: Vec<u8>| {
        [vec![(kind * Method::ALL.len() + place(method)) as u8], octets].concat()
    };
    let asked = asked.map(|(path, message)| {
        let (method, octets) = grpc::encode_request(&path, &message).expect("a request");
        seed(ASKED, method, octets)
    });
    let answers = [
        (Method::CreateSmContext, model::<smf::SmContextCreatedData>(&serde_json::json!({ "pduSessionId": 5 }))),
        (Method::UpdateSmContext, model::<SmContextUpdatedData>(&update)),
        (Method::ReleaseSmContext, model::<SmContextUpdatedData>(&update)),
        (Method::N1N2MessageTransfer, model::<N1N2MessageTransferRspData>(&cause)),
        (Method::FetchSmContext, model::<N1N2MessageTransferRspData>(&cause)),
    ];
    let location = || Some("http://127.0.0.19:7777/x".to_owned());
    let answers = answers.map(|(method, model)| {
        let reply = Reply { status: 200, location: location(), message: parts(Message::new(model)) };
        seed(ANSWERED, method, grpc::encode_response(method, &reply).expect("an answer"))
    });
    let refused = [model::<SmContextError>(&error), model::<ProblemDetails>(&problem)].map(|model| {
        let reply = Reply { status: 403, location: None, message: parts(Message::new(model)) };
        seed(REFUSED, Method::UpdateSmContext, grpc::encode_problem(&reply).expect("a problem").details)
    });
    asked.chain(answers).chain(refused).collect()
}

/// Adds the binary parts that the model refers to, and an SM context.
fn parts(message: Message) -> Message {
    let n1 = vec![0x2e, 5, 1, 0xc1, 0xff, 0xff, 0x91];
    let message = message.with("n1", PartContent::Nas, n1).with("n2", PartContent::Ngap, vec![0, 1, 2, 3]);
    let message = message.with("sm-context", PartContent::SmContext, vec![0, 0, 0, 1, 2, 3]);
    message.with("amf-context", PartContent::AmfContext, vec![4, 5, 6])
}

/// Returns JSON values that refer to parts: a creation, an update, a transfer, an error.
fn bodies_with_parts() -> [Value; 4] {
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
    [create, update, transfer, error]
}

/// Returns JSON values without parts: a notification, the result of a transfer, a problem.
fn bodies_without_parts() -> [Value; 3] {
    [
        serde_json::json!({ "statusInfo": { "resourceStatus": "RELEASED" } }),
        serde_json::json!({ "cause": "ATTEMPTING_TO_REACH_UE" }),
        serde_json::json!({ "status": 404, "cause": "CONTEXT_NOT_FOUND" }),
    ]
}

/// Returns requests and responses of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let json = |value: &Value| Message::from_json(value.to_string().into_bytes());
    let seed = |message: Message| {
        let (media_type, body) = message.encode("application/json");
        [media_type.unwrap_or_default().into_bytes(), b"\n".to_vec(), body].concat()
    };
    let with_parts = bodies_with_parts();
    with_parts.iter().map(|value| parts(json(value))).chain(bodies_without_parts().iter().map(json)).map(seed).collect()
}
