//! gRPC encoding of the interface (`proto/vireo-sbi.proto`).
//!
//! Requests and responses are protocol buffers instead of JSON. This file encodes and decodes
//! messages; [`client`] and [`server`] send and receive them.

pub(crate) mod client;
mod codec;
mod convert;
mod error;
mod messages;
pub(crate) mod server;

use crate::amf::{self, N1N2MessageTransferRspData, TransferCause};
use crate::message::{Body, Message, Model};
use crate::reply::Reply;
use crate::smf::{self, Operation, SM_CONTEXTS, SmContextCreatedData, SmContextUpdatedData};
use convert::{Parts, amf_context, nothing_but, sm_context, with_amf_context};
pub use error::GrpcError;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use messages as wire;
use prost::Message as _;
pub use tonic::Code;

/// Encoding of the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// JSON and multipart bodies, as specified by 3GPP.
    #[default]
    Json,
    /// gRPC. Specific to Vireo.
    Grpc,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the specifications")]
pub enum Method {
    CreateSmContext,
    UpdateSmContext,
    ReleaseSmContext,
    SmContextStatusNotify,
    N1N2MessageTransfer,
    N1N2TransferFailureNotify,
    FetchSmContext,
}

/// Maximum length of a name or path in a request, in bytes.
const NAME_OCTETS: usize = 512;
/// Type URL of the problem in a status's details.
const PROBLEM: &str = "type.googleapis.com/vireo.sbi.v1.Problem";

impl Method {
    /// All operations.
    pub const ALL: [Method; 7] = [
        Method::CreateSmContext,
        Method::UpdateSmContext,
        Method::ReleaseSmContext,
        Method::SmContextStatusNotify,
        Method::N1N2MessageTransfer,
        Method::N1N2TransferFailureNotify,
        Method::FetchSmContext,
    ];

    /// Returns the path of the operation.
    pub fn path(self) -> &'static str {
        match self {
            Method::CreateSmContext => "/vireo.sbi.v1.PduSession/CreateSmContext",
            Method::UpdateSmContext => "/vireo.sbi.v1.PduSession/UpdateSmContext",
            Method::ReleaseSmContext => "/vireo.sbi.v1.PduSession/ReleaseSmContext",
            Method::SmContextStatusNotify => "/vireo.sbi.v1.Callback/SmContextStatusNotify",
            Method::N1N2MessageTransfer => "/vireo.sbi.v1.Communication/N1N2MessageTransfer",
            Method::N1N2TransferFailureNotify => "/vireo.sbi.v1.Callback/N1N2TransferFailureNotify",
            Method::FetchSmContext => "/vireo.sbi.v1.Callback/FetchSmContext",
        }
    }

    /// Returns the operation of a path.
    pub fn from_path(path: &str) -> Option<Self> {
        Method::ALL.into_iter().find(|method| method.path() == path)
    }
}

/// Returns true if the content type is gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let rest = media_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Encodes a request for the resource of a path.
///
/// # Errors
///
/// Returns an error if no operation can express the request.
pub fn encode_request(path: &str, message: &Message) -> Result<(Method, Vec<u8>), GrpcError> {
    let other_resource = |expected| GrpcError::OtherResource { path: path.to_owned(), expected };
    let reference = |operation| match smf::resource(path) {
        Some(smf::Resource::One(reference, of)) if of == operation => Ok(reference.to_owned()),
        _ => Err(other_resource("an SM context is asked for that")),
    };
    let release = |cause| {
        let sm_context_ref = reference(Operation::Release)?;
        let (sm_context, amf_context) = (sm_context(message), amf_context(message));
        let data = wire::SmContextReleaseData { sm_context_ref, cause, sm_context, amf_context };
        Ok((Method::ReleaseSmContext, data.encode_to_vec()))
    };
    let model = match &message.body {
        Body::Json(_) => return Err(GrpcError::Json),
        Body::Nothing => {
            let Some(amf::Resource::HeldSmContext(supi, number)) = amf::resource(path) else { return release(None) };
            let data = wire::HeldSmContext { ue_context_id: supi.to_owned(), number };
            return Ok((Method::FetchSmContext, data.encode_to_vec()));
        }
        Body::Model(model) => &**model,
    };
    Ok(match model {
        Model::SmContextCreateData(data) => {
            if path != SM_CONTEXTS {
                return Err(other_resource("SM contexts are"));
            }
            (Method::CreateSmContext, wire::SmContextCreateData::from_message(data, message)?.encode_to_vec())
        }
        Model::SmContextUpdateData(data) => {
            let data = wire::SmContextUpdateData::from_message(reference(Operation::Modify)?, data, message)?;
            (Method::UpdateSmContext, data.encode_to_vec())
        }
        Model::SmContextReleaseData(data) => return release(data.cause.clone()),
        Model::SmContextStatusNotification(data) => {
            let resource_status = data.status_info.resource_status.clone();
            let (path, sm_context) = (path.to_owned(), sm_context(message));
            let data = wire::SmContextStatusNotification { path, resource_status, sm_context };
            (Method::SmContextStatusNotify, data.encode_to_vec())
        }
        Model::N1N2MessageTransferReqData(data) => {
            let Some(amf::Resource::Messages(supi)) = amf::resource(path) else {
                return Err(other_resource("messages for a UE are"));
            };
            let data = wire::N1N2MessageTransferReqData::from_message(supi.to_owned(), data, message)?;
            (Method::N1N2MessageTransfer, data.encode_to_vec())
        }
        Model::N1N2MsgTxfrFailureNotification(data) => {
            let data = wire::N1N2MsgTxfrFailureNotification {
                path: path.to_owned(),
                cause: data.cause as i32,
                n1n2_msg_data_uri: data.n1n2_msg_data_uri.clone(),
                sm_context: sm_context(message),
                amf_context: amf_context(message),
            };
            (Method::N1N2TransferFailureNotify, data.encode_to_vec())
        }
        _ => return Err(GrpcError::NotARequest),
    })
}

/// Decodes a request. Returns the path of its resource and the message.
///
/// # Errors
///
/// Returns a [`GrpcError`], whose text is the detail of a response.
pub fn decode_request(method: Method, octets: &[u8]) -> Result<(String, Message), GrpcError> {
    Ok(match method {
        Method::CreateSmContext => {
            (SM_CONTEXTS.to_owned(), decode::<wire::SmContextCreateData>(octets)?.into_message()?)
        }
        Method::UpdateSmContext => {
            let data = decode::<wire::SmContextUpdateData>(octets)?;
            (sm_context_path(&data.sm_context_ref, Operation::Modify)?, data.into_message()?)
        }
        Method::ReleaseSmContext => {
            let wire::SmContextReleaseData { sm_context_ref, cause, sm_context, amf_context } = decode(octets)?;
            let data = smf::SmContextReleaseData { cause };
            let message = with_amf_context(Parts::default().into_message(data, sm_context), amf_context);
            (sm_context_path(&sm_context_ref, Operation::Release)?, message)
        }
        Method::SmContextStatusNotify => {
            let wire::SmContextStatusNotification { path, resource_status, sm_context } = decode(octets)?;
            let data = smf::SmContextStatusNotification { status_info: smf::StatusInfo { resource_status } };
            (own_path(path)?, Parts::default().into_message(data, sm_context))
        }
        Method::N1N2MessageTransfer => {
            let data = decode::<wire::N1N2MessageTransferReqData>(octets)?;
            (amf::message_transfer_uri(name(&data.ue_context_id)?), data.into_message()?)
        }
        Method::N1N2TransferFailureNotify => {
            let data = decode::<wire::N1N2MsgTxfrFailureNotification>(octets)?;
            (own_path(data.path.clone())?, data.into_message())
        }
        Method::FetchSmContext => {
            let wire::HeldSmContext { ue_context_id, number } = decode(octets)?;
            (amf::held_sm_context_uri(name(&ue_context_id)?, number), Message::default())
        }
    })
}

fn decode<M: prost::Message + Default>(octets: &[u8]) -> Result<M, GrpcError> {
    Ok(M::decode(octets)?)
}

/// Returns the path of an operation on an SM context.
fn sm_context_path(reference: &str, operation: Operation) -> Result<String, GrpcError> {
    Ok(operation.uri(&format!("{SM_CONTEXTS}/{}", name(reference)?)))
}

/// Checks that a name can be one segment of a path.
fn name(name: &str) -> Result<&str, GrpcError> {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
    let good = (1..=NAME_OCTETS).contains(&name.len()) && name.bytes().all(plain);
    good.then_some(name).ok_or(GrpcError::Name)
}

/// Checks the path of a callback URI that this endpoint has supplied.
fn own_path(path: String) -> Result<String, GrpcError> {
    let good = path.starts_with('/') && path.len() <= NAME_OCTETS && path.bytes().all(|octet| octet.is_ascii_graphic());
    good.then_some(path).ok_or(GrpcError::Path)
}

/// Encodes a successful response.
///
/// # Errors
///
/// Returns an error if the operation has no such response.
pub fn encode_response(method: Method, reply: &Reply) -> Result<Vec<u8>, GrpcError> {
    let message = &reply.message;
    Ok(match method {
        Method::CreateSmContext => {
            let data = if message.is_body_empty() { SmContextCreatedData::default() } else { message.value()? };
            let location = reply.location.clone().ok_or(GrpcError::NoLocation)?;
            wire::SmContextCreatedData::from_message(location, &data, message).encode_to_vec()
        }
        Method::UpdateSmContext | Method::ReleaseSmContext => {
            let data = if message.is_body_empty() { SmContextUpdatedData::default() } else { message.value()? };
            wire::SmContextUpdatedData::from_message(&data, message)?.encode_to_vec()
        }
        Method::N1N2MessageTransfer => {
            let N1N2MessageTransferRspData { cause } = message.value()?;
            let (location, sm_context) = (reply.location.clone(), sm_context(message));
            wire::N1N2MessageTransferRspData { cause: cause as i32, location, sm_context }.encode_to_vec()
        }
        Method::SmContextStatusNotify | Method::N1N2TransferFailureNotify | Method::FetchSmContext => {
            wire::PiggybackedSmContext { sm_context: sm_context(message) }.encode_to_vec()
        }
    })
}

/// Decodes a successful response.
///
/// # Errors
///
/// Returns a [`GrpcError`] if the octets are no response of the operation.
pub fn decode_response(method: Method, octets: &[u8]) -> Result<Reply, GrpcError> {
    let of = |message: Message| Reply {
        status: if message == Message::default() { 204 } else { 200 },
        location: None,
        message,
    };
    Ok(match method {
        Method::CreateSmContext => {
            let data = decode::<wire::SmContextCreatedData>(octets)?;
            Reply { status: 201, location: Some(data.location.clone()), message: data.into_message()? }
        }
        Method::UpdateSmContext | Method::ReleaseSmContext => {
            of(decode::<wire::SmContextUpdatedData>(octets)?.into_message()?)
        }
        Method::N1N2MessageTransfer => {
            let data = decode::<wire::N1N2MessageTransferRspData>(octets)?;
            let (attempting, location) = (TransferCause::AttemptingToReachUe as i32, data.location.clone());
            let status = if data.cause == attempting { 202 } else { 200 };
            Reply { status, location, message: data.into_message() }
        }
        Method::SmContextStatusNotify | Method::N1N2TransferFailureNotify | Method::FetchSmContext => {
            of(nothing_but(decode::<wire::PiggybackedSmContext>(octets)?.sm_context))
        }
    })
}

/// gRPC status of an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    pub code: Code,
    /// Cause and detail of the problem, for peers that do not decode `details`.
    pub message: String,
    /// Encoded `google.rpc.Status` with the problem.
    pub details: Vec<u8>,
}

/// Encodes an error response as gRPC status.
///
/// # Errors
///
/// Returns an error if the response cannot be encoded.
pub fn encode_problem(reply: &Reply) -> Result<GrpcStatus, GrpcError> {
    let problem = wire::Problem::from_message(reply.status, &reply.message)?;
    let words = [problem.cause.as_deref(), problem.detail.as_deref()];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let code = code(reply.status);
    let details = vec![wire::Any { type_url: PROBLEM.into(), value: problem.encode_to_vec() }];
    let status = wire::Status { code: code.into(), message: words.clone(), details };
    Ok(GrpcStatus { code, message: words, details: status.encode_to_vec() })
}

/// Decodes a gRPC status as error response. Without known details, the result has only code and
/// message.
///
/// # Errors
///
/// Returns an error if the details are invalid.
pub fn decode_problem(code: Code, words: &str, details: &[u8]) -> Result<Reply, GrpcError> {
    let wire::Status { details, .. } = decode(details)?;
    let Some(found) = details.into_iter().find(|detail| detail.type_url == PROBLEM) else {
        let cause = format!("{code:?}");
        return Ok(Reply::problem(&crate::common::ProblemDetails::new(status(code), &cause, words)));
    };
    let (status, message) = decode::<wire::Problem>(&found.value)?.into_message()?;
    Ok(Reply { status, location: None, message })
}

/// HTTP status codes and the equivalent gRPC codes. Each list entry is the first match in its
/// direction.
const CODES: [(u16, Code); 13] = [
    (400, Code::InvalidArgument),
    (401, Code::Unauthenticated),
    (403, Code::PermissionDenied),
    (404, Code::NotFound),
    (409, Code::Aborted),
    (412, Code::FailedPrecondition),
    (413, Code::OutOfRange),
    (429, Code::ResourceExhausted),
    (500, Code::Internal),
    (501, Code::Unimplemented),
    (503, Code::Unavailable),
    (504, Code::DeadlineExceeded),
    (408, Code::DeadlineExceeded),
];

fn code(status: u16) -> Code {
    CODES.into_iter().find(|(of, _)| *of == status).map_or(Code::Unknown, |(_, code)| code)
}

fn status(code: Code) -> u16 {
    CODES.into_iter().find(|(_, of)| *of == code).map_or(500, |(status, _)| status)
}
