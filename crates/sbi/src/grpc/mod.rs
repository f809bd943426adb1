//! gRPC encoding of the interface (`proto/vireo-sbi.proto`).
//!
//! Requests and responses are protocol buffers instead of JSON. This file encodes and decodes
//! messages; [`client`] and [`server`] send and receive them.

pub(crate) mod client;
mod codec;
mod convert;
mod messages;
pub(crate) mod server;

use crate::amf::{self, N1N2MessageTransferRspData, TransferCause};
use crate::message::{Body, Message, Model};
use crate::server::Reply;
use crate::smf::{self, Operation, SM_CONTEXTS, SmContextCreatedData, SmContextUpdatedData};
use convert::{Parts, amf_context, nothing_but, sm_context, with_amf_context};
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
    pub fn of(path: &str) -> Option<Self> {
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
pub fn request(path: &str, message: &Message) -> Result<(Method, Vec<u8>), String> {
    let reference = |operation| match smf::resource(path) {
        Some(smf::Resource::One(reference, of)) if of == operation => Ok(reference.to_owned()),
        _ => Err(format!("{path:?} is not where an SM context is asked for that")),
    };
    let release = |cause| {
        let sm_context_ref = reference(Operation::Release)?;
        let (sm_context, amf_context) = (sm_context(message), amf_context(message));
        let data = wire::SmContextReleaseData { sm_context_ref, cause, sm_context, amf_context };
        Ok((Method::ReleaseSmContext, data.encode_to_vec()))
    };
    let model = match &message.body {
        Body::Json(_) => return Err("what is in JSON already is not said in gRPC".into()),
        Body::Nothing => {
            let Some(amf::Resource::Left(supi, number)) = amf::resource(path) else { return release(None) };
            let data = wire::HeldSmContext { ue_context_id: supi.to_owned(), number };
            return Ok((Method::FetchSmContext, data.encode_to_vec()));
        }
        Body::Model(model) => &**model,
    };
    Ok(match model {
        Model::SmContextCreateData(data) => {
            if path != SM_CONTEXTS {
                return Err(format!("{path:?} is not where SM contexts are"));
            }
            (Method::CreateSmContext, wire::SmContextCreateData::of(data, message)?.encode_to_vec())
        }
        Model::SmContextUpdateData(data) => {
            let data = wire::SmContextUpdateData::of(reference(Operation::Modify)?, data, message)?;
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
                return Err(format!("{path:?} is not where messages for a UE are"));
            };
            let data = wire::N1N2MessageTransferReqData::of(supi.to_owned(), data, message)?;
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
        _ => return Err("what answers is no request".into()),
    })
}

/// Decodes a request. Returns the path of its resource and the message.
///
/// # Errors
///
/// Returns the problem as text, for the detail of a response.
pub fn asked(method: Method, octets: &[u8]) -> Result<(String, Message), String> {
    Ok(match method {
        Method::CreateSmContext => (SM_CONTEXTS.to_owned(), decode::<wire::SmContextCreateData>(octets)?.read()?),
        Method::UpdateSmContext => {
            let data = decode::<wire::SmContextUpdateData>(octets)?;
            (of_sm_context(&data.sm_context_ref, Operation::Modify)?, data.read()?)
        }
        Method::ReleaseSmContext => {
            let wire::SmContextReleaseData { sm_context_ref, cause, sm_context, amf_context } = decode(octets)?;
            let data = smf::SmContextReleaseData { cause };
            let message = with_amf_context(Parts::default().of(data, sm_context), amf_context);
            (of_sm_context(&sm_context_ref, Operation::Release)?, message)
        }
        Method::SmContextStatusNotify => {
            let wire::SmContextStatusNotification { path, resource_status, sm_context } = decode(octets)?;
            let data = smf::SmContextStatusNotification { status_info: smf::StatusInfo { resource_status } };
            (own_path(path)?, Parts::default().of(data, sm_context))
        }
        Method::N1N2MessageTransfer => {
            let data = decode::<wire::N1N2MessageTransferReqData>(octets)?;
            (amf::message_transfer_uri(name(&data.ue_context_id)?), data.read()?)
        }
        Method::N1N2TransferFailureNotify => {
            let data = decode::<wire::N1N2MsgTxfrFailureNotification>(octets)?;
            (own_path(data.path.clone())?, data.read())
        }
        Method::FetchSmContext => {
            let wire::HeldSmContext { ue_context_id, number } = decode(octets)?;
            (amf::held_sm_context_uri(name(&ue_context_id)?, number), Message::default())
        }
    })
}

fn decode<M: prost::Message + Default>(octets: &[u8]) -> Result<M, String> {
    M::decode(octets).map_err(|error| error.to_string())
}

/// Returns the path of an operation on an SM context.
fn of_sm_context(reference: &str, operation: Operation) -> Result<String, String> {
    Ok(operation.of(&format!("{SM_CONTEXTS}/{}", name(reference)?)))
}

/// Checks that a name can be one segment of a path.
fn name(name: &str) -> Result<&str, String> {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
    let good = (1..=NAME_OCTETS).contains(&name.len()) && name.bytes().all(plain);
    good.then_some(name).ok_or_else(|| "a name has letters, digits, and - . _ ~".into())
}

/// Checks the path of a callback URI that this endpoint has supplied.
fn own_path(path: String) -> Result<String, String> {
    let good = path.starts_with('/') && path.len() <= NAME_OCTETS && path.bytes().all(|octet| octet.is_ascii_graphic());
    good.then_some(path).ok_or_else(|| "a path begins with / and is at most 512 octets".into())
}

/// Encodes a successful response.
///
/// # Errors
///
/// Returns an error if the operation has no such response.
pub fn answer(method: Method, reply: &Reply) -> Result<Vec<u8>, String> {
    let message = &reply.message;
    Ok(match method {
        Method::CreateSmContext => {
            let data = if message.says_nothing() { SmContextCreatedData::default() } else { message.value()? };
            let location = reply.location.clone().ok_or("what was made has no name")?;
            wire::SmContextCreatedData::of(location, &data, message).encode_to_vec()
        }
        Method::UpdateSmContext | Method::ReleaseSmContext => {
            let data = if message.says_nothing() { SmContextUpdatedData::default() } else { message.value()? };
            wire::SmContextUpdatedData::of(&data, message)?.encode_to_vec()
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
/// Returns the problem as text.
pub fn answered(method: Method, octets: &[u8]) -> Result<Reply, String> {
    let of = |message: Message| Reply {
        status: if message == Message::default() { 204 } else { 200 },
        location: None,
        message,
    };
    Ok(match method {
        Method::CreateSmContext => {
            let data = decode::<wire::SmContextCreatedData>(octets)?;
            Reply { status: 201, location: Some(data.location.clone()), message: data.read()? }
        }
        Method::UpdateSmContext | Method::ReleaseSmContext => of(decode::<wire::SmContextUpdatedData>(octets)?.read()?),
        Method::N1N2MessageTransfer => {
            let data = decode::<wire::N1N2MessageTransferRspData>(octets)?;
            let (attempting, location) = (TransferCause::AttemptingToReachUe as i32, data.location.clone());
            let status = if data.cause == attempting { 202 } else { 200 };
            Reply { status, location, message: data.read() }
        }
        Method::SmContextStatusNotify | Method::N1N2TransferFailureNotify | Method::FetchSmContext => {
            of(nothing_but(decode::<wire::PiggybackedSmContext>(octets)?.sm_context))
        }
    })
}

/// Encodes an error response as gRPC status: code, message and details.
///
/// # Errors
///
/// Returns an error if the response cannot be encoded.
pub fn problem(reply: &Reply) -> Result<(Code, String, Vec<u8>), String> {
    let problem = wire::Problem::of(reply.status, &reply.message)?;
    let words = [problem.cause.as_deref(), problem.detail.as_deref()];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let code = code(reply.status);
    let details = vec![wire::Any { type_url: PROBLEM.into(), value: problem.encode_to_vec() }];
    let status = wire::Status { code: code.into(), message: words.clone(), details };
    Ok((code, words, status.encode_to_vec()))
}

/// Decodes a gRPC status as error response. Without known details, the result has only code and
/// message.
///
/// # Errors
///
/// Returns an error if the details are invalid.
pub fn problem_of(code: Code, words: &str, details: &[u8]) -> Result<Reply, String> {
    let wire::Status { details, .. } = decode(details)?;
    let Some(found) = details.into_iter().find(|detail| detail.type_url == PROBLEM) else {
        let cause = format!("{code:?}");
        return Ok(Reply::problem(&crate::common::ProblemDetails::new(status(code), &cause, words)));
    };
    let (status, message) = decode::<wire::Problem>(&found.value)?.read()?;
    Ok(Reply { status, location: None, message })
}

/// HTTP status codes and the equivalent gRPC codes. Each list entry is the first match in its
/// direction.
const CODES: [(u16, Code); 12] = [
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
];

fn code(status: u16) -> Code {
    CODES.into_iter().find(|(of, _)| *of == status).map_or(Code::Unknown, |(_, code)| code)
}

fn status(code: Code) -> u16 {
    CODES.into_iter().find(|(_, of)| *of == code).map_or(500, |(status, _)| status)
}
