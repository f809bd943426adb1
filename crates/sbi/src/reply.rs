//! Responses, and the HTTP bodies of requests and responses.

use crate::common::ProblemDetails;
use crate::message::{Message, Model};
use bytes::Bytes;
use http_body_util::{Either, Full};

/// Body of requests and responses: complete JSON, or gRPC with trailers.
pub(crate) type HttpBody = Either<Full<Bytes>, tonic::body::Body>;

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// URI of the created resource.
    pub location: Option<String>,
    pub message: Message,
}

impl Reply {
    /// Creates a response without content (204).
    pub fn done() -> Self {
        Reply { status: 204, ..Reply::default() }
    }

    /// Creates a response with a status and a body.
    pub fn new(status: u16, value: impl Into<Model>) -> Self {
        Reply { status, location: None, message: Message::new(value) }
    }

    /// Creates an error response.
    pub fn problem(problem: &ProblemDetails) -> Self {
        Reply::new(problem.status.unwrap_or(500), problem)
    }

    /// Returns true if the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
