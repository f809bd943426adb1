//! Reasons for which a RAN node does not process or send a message.

use super::Mismatch;
use vireo_wire::ngap::Error;

/// Reason for which a message could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The UE has no NG or S1 connection, or the core has not answered on it yet.
    #[error("the UE has no connection to the core that could carry it")]
    NoConnection,
    /// The PDU does not encode.
    #[error("the PDU does not encode: {0}")]
    Encoding(#[from] Error),
}

/// Protocol violation of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Violation {
    /// A PDU does not decode, or lacks a mandatory IE.
    #[error("a PDU of the core does not decode")]
    Undecodable,
    /// A procedure that the core does not start or that the state does not allow.
    #[error("procedure {0} of the core is not expected")]
    Unexpected(u8),
    /// Node's UE ID of no UE, or with another UE ID of the core than before.
    #[error("the core used UE IDs that do not belong together")]
    UnknownUe,
}

/// Reason for which a PDU was not processed.
pub(crate) enum Fault {
    Peer(Violation),
    Own(SendError),
    /// The PDU concerns an ended connection that the UE had abandoned.
    Late,
}

impl From<Mismatch> for Fault {
    fn from(mismatch: Mismatch) -> Self {
        match mismatch {
            Mismatch::Unknown => Fault::Peer(Violation::UnknownUe),
            Mismatch::Late => Fault::Late,
        }
    }
}

impl From<Error> for Fault {
    fn from(_: Error) -> Self {
        Fault::Peer(Violation::Undecodable)
    }
}

impl From<SendError> for Fault {
    fn from(error: SendError) -> Self {
        Fault::Own(error)
    }
}
