//! The service-based interface between AMF and SMF (TS 23.501 clause 7, TS 29.500): typed models of the operations that a
//! service-based chain uses, the messages that carry them (JSON, and multipart with the binary N1 and N2 parts), and an endpoint
//! that speaks HTTP/2, in the clear or in TLS. The same may be said in gRPC.
//!
//! What the operations are for is not known here: the models are the wire's, and who uses them translates.
#![forbid(unsafe_code)]

pub mod amf;
mod client;
pub mod common;
mod endpoint;
pub mod grpc;
pub mod message;
mod multipart;
mod server;
pub mod smf;
mod tls;

pub use client::{CancelHandle, CancelSignal, Client, ClientError, Done, Outgoing};
pub use endpoint::{Endpoint, EndpointError, Settings};
pub use grpc::Encoding;
pub use message::{Message, MessageError, Part, PartContent};
pub use server::{IncomingRequest, Reply, ReplyTo};
pub use tls::{Tls, TlsErrorText};
