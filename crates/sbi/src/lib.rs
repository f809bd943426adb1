//! Service-based interface between AMF and SMF (TS 23.501 clause 7, TS 29.500).
//!
//! The crate contains:
//!
//! - Typed models of the operations that SBA mode uses.
//! - Messages: JSON, multipart with binary N1 and N2 parts, or gRPC.
//! - An HTTP/2 endpoint, with or without TLS.
//!
//! The crate has no procedures. Its models are those of the wire; users convert them.
#![forbid(unsafe_code)]

pub mod amf;
mod body;
mod client;
pub mod common;
mod endpoint;
pub mod grpc;
pub mod message;
mod multipart;
mod reply;
mod server;
pub mod smf;
mod tls;

pub use client::{CancelHandle, CancelSignal, Client, ClientError, Done, Outgoing};
pub use endpoint::{Endpoint, EndpointError, Settings};
pub use grpc::Encoding;
pub use message::{BodyError, Message, MessageError, Part, PartContent};
pub use reply::Reply;
pub use server::{IncomingRequest, ReplyTo};
pub use tls::{Tls, TlsErrorText};
