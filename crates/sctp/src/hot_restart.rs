//! What another process needs to go on with an endpoint: its socket, and what its driver knows of that.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use vireo_types::AssocId;

/// An endpoint as another process can go on with it. The socket is the same for both: one of them at a time may use it.
#[derive(Debug)]
pub struct EndpointHandoff {
    /// The socket with all associations.
    pub socket: OwnedFd,
    /// What is known of them.
    pub known: AssociationTable,
}

/// What an endpoint knows of its associations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationTable {
    pub(crate) associations: Vec<Association>,
    /// Those that have ended without their owner having been told.
    pub(crate) ended: Vec<AssocId>,
}

/// One association that is up, or on its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Association {
    pub(crate) id: AssocId,
    /// The kernel's number of it.
    pub(crate) raw: i32,
    pub(crate) outbound_streams: u16,
    pub(crate) closing: bool,
    /// Bytes that were queued when the kernel was last asked, and since.
    pub(crate) queued: u64,
    /// Whether its owner waits for room.
    pub(crate) blocked: bool,
    /// The parts so far of a message that comes in several.
    pub(crate) partial: Vec<u8>,
}

/// Why an endpoint is not handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    /// The driver keeps associations where no other process can have them.
    #[error(
        "SCTP associations are handed over by the kernel's SCTP alone, and this endpoint has them in its own process \
         (usrsctp): load the kernel's (`modprobe sctp`) and set n2.driver to \"kernel\""
    )]
    InProcess,
    /// It has sockets of single associations, as a client has.
    #[error("only an endpoint with a port of its own is handed over")]
    Client,
    /// The system.
    #[error("the SCTP socket is not to be shared: {0}")]
    System(#[from] io::Error),
}
