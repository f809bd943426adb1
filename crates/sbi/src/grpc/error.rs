//! Errors of the conversion between messages and gRPC.

use crate::message::BodyError;

/// Reason why a message has no form in gRPC, or octets are no message. The text is the detail of a
/// problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrpcError {
    /// The octets are not protocol buffers of the operation's type.
    #[error(transparent)]
    Octets(#[from] prost::DecodeError),
    /// The body of a message is not of the operation's type.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A mandatory member is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number exceeds 255.
    #[error("{0} is 0 to 255")]
    NotAnOctet(&'static str),
    /// A member has an unknown value.
    #[error("{name} {number} is not known")]
    UnknownNumber { name: &'static str, number: i32 },
    /// The body refers to a part that the message does not have.
    #[error("there is no part {0:?}")]
    NoPart(String),
    /// The HTTP status of a problem is below 400 or above 599.
    #[error("status {0} is that of no problem")]
    Status(u32),
    /// A name cannot be one segment of a path.
    #[error("a name has letters, digits, and - . _ ~")]
    Name,
    /// The path of a callback is malformed.
    #[error("a path begins with / and is at most 512 octets")]
    Path,
    /// The path does not match the body.
    #[error("{path:?} is not where {expected}")]
    OtherResource { path: String, expected: &'static str },
    /// The body is already encoded as JSON.
    #[error("bug: a JSON body has no form in gRPC")]
    Json,
    /// The body belongs to responses.
    #[error("the message is a response, not a request")]
    NotARequest,
    /// The response to a creation has no location.
    #[error("the created resource has no name")]
    NoLocation,
}
