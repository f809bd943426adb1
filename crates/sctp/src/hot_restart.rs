//! Handoff of an endpoint to another process: its socket and the driver's state.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use vireo_types::AssocId;

/// An endpoint in a form that another process can continue.
///
/// Both processes have the same socket. Only one of them may use it at a time.
#[derive(Debug)]
pub struct EndpointSnapshot {
    /// Socket with all associations of the endpoint.
    pub socket: OwnedFd,
    /// State of these associations.
    pub known: AssociationTable,
    /// Endpoint of S1, if the owner polls it together with this one of N2.
    pub s1: Option<Box<EndpointSnapshot>>,
}

impl EndpointSnapshot {
    /// Returns the handoff of one endpoint.
    pub fn new(socket: OwnedFd, known: AssociationTable) -> Self {
        EndpointSnapshot { socket, known, s1: None }
    }
}

/// The driver's state of all associations of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationTable {
    pub(crate) associations: Vec<Association>,
    /// Ended associations whose [`crate::Event::Down`] is not reported yet.
    pub(crate) ended: Vec<AssocId>,
}

/// State of one association that is up or closing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Association {
    pub(crate) id: AssocId,
    /// Identifier of the association in the kernel.
    pub(crate) raw: i32,
    pub(crate) outbound_streams: u16,
    pub(crate) closing: bool,
    /// Bytes queued at the last kernel query, plus bytes sent since.
    pub(crate) queued: u64,
    /// True if the owner waits for room in the send buffer.
    pub(crate) blocked: bool,
    /// Received parts of an incomplete message.
    pub(crate) partial: Vec<u8>,
}

/// Reason that an endpoint cannot be handed off.
#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    /// The driver keeps associations inside this process.
    #[error(
        "SCTP associations are handed over by the kernel's SCTP alone, and this endpoint has them in its own process \
         (usrsctp): load the kernel's (`modprobe sctp`) and set n2.driver to \"kernel\""
    )]
    InProcess,
    /// The endpoint has one socket per association, as a client has.
    #[error("only an endpoint with a port of its own is handed over")]
    Client,
    /// Only one of the two processes listens on S1.
    #[error("s1.addresses: one of the two balancers has an endpoint for eNBs, the other has none; set both alike")]
    Pair,
    /// The operating system returned an error.
    #[error("the SCTP socket is not to be shared: {0}")]
    System(#[from] io::Error),
}
