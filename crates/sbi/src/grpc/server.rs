//! Being asked in gRPC.

use super::Method;
use super::codec::Octets;
use crate::common::ProblemDetails;
use crate::message::BODY_OCTETS;
use crate::server::{Reply, RequestInfo, Server};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Request, Response};
use std::pin::Pin;
use std::sync::Arc;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

/// Octets of what a status has for programs at the most: they go in a header.
const DETAILS_OCTETS: usize = 32 * 1024;
/// Octets of the headers that a peer takes then: in base64, with what is beside it.
pub(crate) const HEADERS_OCTETS: u32 = 64 * 1024;

/// Serves one request.
pub(crate) async fn serve(server: Arc<Server>, request: Request<Incoming>) -> Response<tonic::body::Body> {
    let Some(method) = Method::of(request.uri().path()) else {
        return Status::unimplemented("this function has no such operation").into_http();
    };
    let info = RequestInfo::of(request.headers());
    let mut grpc = Grpc::new(Octets).max_decoding_message_size(BODY_OCTETS);
    grpc.unary(Operation { server, method, info: Some(info) }, request).await
}

/// What answers who asks in gRPC where it is not spoken.
pub(crate) fn refusal() -> Response<tonic::body::Body> {
    Status::unimplemented("this function is asked in JSON: sbi.encoding is the same at all functions").into_http()
}

/// An operation that is asked for.
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
            let asked = super::asked(method, request.get_ref()).map_err(|why| ProblemDetails::unreadable(&why));
            let reply = match asked {
                Ok((path, message)) => server.hand(path, message, info).await,
                Err(problem) => Err(problem),
            };
            answer(method, &reply.unwrap_or_else(|problem| Arc::new(Reply::problem(&problem))))
        })
    }
}

fn answer(method: Method, reply: &Reply) -> Result<tonic::Response<Vec<u8>>, Status> {
    // What cannot be said is a fault of this function's own.
    let unsaid = |why: String| Status::internal(format!("the answer cannot be said: {why}"));
    if reply.is_success() {
        return super::answer(method, reply).map(tonic::Response::new).map_err(unsaid);
    }
    let (code, words, details) = super::problem(reply).map_err(unsaid)?;
    if details.len() > DETAILS_OCTETS {
        return Err(Status::new(Code::Internal, "the answer is too long"));
    }
    Err(Status::with_details(code, words, details.into()))
}
