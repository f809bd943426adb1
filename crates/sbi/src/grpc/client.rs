//! gRPC requests on an existing connection.

use super::codec::Octets;
use super::error::GrpcError;
use crate::client::{ClientError, ConnectionError, Http2Connection};
use crate::message::{BODY_OCTETS, Message};
use crate::reply::Reply;
use crate::server::REQUEST_INFO;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::client::{Grpc, GrpcService};
use tonic::{Code, Status};

/// Reasons why a gRPC request has no response.
#[derive(Debug)]
enum Failed {
    /// The connection broke.
    Broken(ConnectionError),
    /// The response is not gRPC; its HTTP status.
    Foreign(u16),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Broken(cause) => cause.fmt(f),
            Failed::Foreign(status) => write!(f, "its answer, of HTTP status {status}, is not in gRPC"),
        }
    }
}

impl Error for Failed {}

/// Adapter of the connection for tonic.
struct Channel {
    wire: Http2Connection,
    agent: HeaderValue,
}

impl GrpcService<tonic::body::Body> for Channel {
    type ResponseBody = Incoming;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Failed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        // HTTP/2 flow control queues requests that the peer cannot accept yet.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        request.headers_mut().insert(USER_AGENT, self.agent.clone());
        let mut wire = self.wire.clone();
        Box::pin(async move {
            let response = wire.send(request.map(Either::Right)).await.map_err(Failed::Broken)?;
            match super::is_grpc(response.headers()) {
                true => Ok(response),
                false => Err(Failed::Foreign(response.status().as_u16())),
            }
        })
    }
}

/// Sends a request once.
pub(crate) async fn send(
    wire: Http2Connection,
    agent: &str,
    uri: &Uri,
    message: &Message,
    info: &str,
) -> Result<Reply, ClientError> {
    let (method, octets) =
        super::encode_request(uri.path(), message).map_err(|error| ClientError::NotEncodable(error.to_string()))?;
    let bad = || ClientError::Address(uri.to_string());
    let agent = HeaderValue::from_str(agent).map_err(|_| bad())?;
    let mut request = tonic::Request::new(octets);
    request.metadata_mut().insert(REQUEST_INFO, info.parse().map_err(|_| bad())?);
    let mut origin = uri.clone().into_parts();
    origin.path_and_query = Some(PathAndQuery::from_static("/"));
    let origin = Uri::from_parts(origin).map_err(|_| bad())?;
    let mut client = Grpc::with_origin(Channel { wire, agent }, origin).max_decoding_message_size(BODY_OCTETS);
    match client.unary(request, PathAndQuery::from_static(method.path()), Octets).await {
        Ok(answer) => super::decode_response(method, answer.get_ref()).map_err(unreadable),
        Err(status) => refused(&status),
    }
}

fn unreadable(error: GrpcError) -> ClientError {
    ClientError::Unreadable(error.to_string())
}

/// Converts a gRPC error status.
fn refused(status: &Status) -> Result<Reply, ClientError> {
    let source = status.source();
    match source.and_then(|source| source.downcast_ref()) {
        Some(Failed::Broken(cause)) => Err(ClientError::Silent(cause.to_string())),
        Some(failed @ Failed::Foreign(_)) => Err(ClientError::Encoding(failed.to_string())),
        // The connection broke during the response.
        None if source.is_some() => Err(ClientError::Silent(status.message().to_owned())),
        None if status.code() == Code::Unimplemented && status.details().is_empty() => {
            Err(ClientError::Encoding(status.message().to_owned()))
        }
        None => super::decode_problem(status.code(), status.message(), status.details()).map_err(unreadable),
    }
}
