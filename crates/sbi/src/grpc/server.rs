//! gRPC requests of peers.

use super::codec::Octets;
use super::{GrpcError, GrpcStatus, Method};
use crate::body::{self, BodyMemory};
use crate::common::ProblemDetails;
use crate::message::BODY_OCTETS;
use crate::reply::Reply;
use crate::server::{RequestInfo, Server};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use std::pin::Pin;
use std::sync::Arc;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

/// Maximum size of a status's details in bytes. They are sent in a header.
const DETAILS_OCTETS: usize = 32 * 1024;
/// Maximum size of headers that a client accepts, in bytes: the details in base64, and other
/// headers.
pub(crate) const HEADERS_OCTETS: u32 = 64 * 1024;

/// Octets before a message: compression flag and length.
const PREFIX_OCTETS: usize = 5;

/// Serves one request of the connection with the memory `bodies`.
pub(crate) async fn serve(
    server: Arc<Server>,
    request: Request<Incoming>,
    bodies: BodyMemory,
) -> Response<tonic::body::Body> {
    let Some(method) = Method::from_path(request.uri().path()) else {
        return Status::unimplemented("this function has no such operation").into_http();
    };
    let info = RequestInfo::from_headers(request.headers());
    let (head, body) = request.into_parts();
    let received = body::receive(body, PREFIX_OCTETS + BODY_OCTETS, server.body_timeout, bodies).await;
    let (body, _reservation) = match received {
        Ok(received) => received,
        Err(error) => return problem(&Reply::problem(&error.problem())).into_http(),
    };
    let request = Request::from_parts(head, Full::new(body));
    let mut grpc = Grpc::new(Octets).max_decoding_message_size(BODY_OCTETS);
    grpc.unary(Operation { server, method, info: Some(info) }, request).await
}

/// Returns the response to a gRPC request if this endpoint uses JSON.
pub(crate) fn refusal() -> Response<tonic::body::Body> {
    Status::unimplemented("this function is asked in JSON: sbi.encoding is the same at all functions").into_http()
}

/// A requested operation.
struct Operation {
    server: Arc<Server>,
    method: Method,
    info: Option<RequestInfo>,
}

impl UnaryService<Bytes> for Operation {
    type Response = Vec<u8>;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Vec<u8>>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let (server, method, info) = (Arc::clone(&self.server), self.method, self.info.take().unwrap_or_default());
        Box::pin(async move {
            let asked =
                super::decode_request(method, request.get_ref()).map_err(|cause| ProblemDetails::unreadable(&cause));
            let reply = match asked {
                Ok((path, message)) => server.dispatch(path, message, info).await,
                Err(problem) => Err(problem),
            };
            answer(method, &reply.unwrap_or_else(|problem| Arc::new(Reply::problem(&problem))))
        })
    }
}

fn answer(method: Method, reply: &Reply) -> Result<tonic::Response<Vec<u8>>, Status> {
    match reply.is_success() {
        true => super::encode_response(method, reply).map(tonic::Response::new).map_err(|cause| not_encodable(&cause)),
        false => Err(problem(reply)),
    }
}

/// Returns the status of an error response.
fn problem(reply: &Reply) -> Status {
    match super::encode_problem(reply) {
        Ok(GrpcStatus { details, .. }) if details.len() > DETAILS_OCTETS => {
            Status::new(Code::Internal, "the answer is too long")
        }
        Ok(GrpcStatus { code, message, details }) => Status::with_details(code, message, details.into()),
        Err(cause) => not_encodable(&cause),
    }
}

/// Returns the status if a response cannot be encoded, which is an error of this process.
fn not_encodable(cause: &GrpcError) -> Status {
    Status::internal(format!("the answer cannot be said: {cause}"))
}
