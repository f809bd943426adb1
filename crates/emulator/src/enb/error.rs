//! Reasons for which an eNB does not process or send a message.

use crate::ran::Mismatch;
use vireo_wire::s1ap::Error;

/// Reason for which a message could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The UE has no S1 connection, or the MME has not answered on it yet.
    #[error("the UE has no S1 connection that could carry it")]
    NoConnection,
    /// The PDU does not encode.
    #[error("the S1AP PDU does not encode: {0}")]
    Encoding(#[from] Error),
}

/// Protocol violation of the MME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Violation {
    /// A PDU does not decode, or lacks a mandatory IE.
    #[error("an S1AP PDU of the MME does not decode")]
    Undecodable,
    /// A procedure that an MME does not start or that the state does not allow.
    #[error("procedure {0} of the MME is not expected")]
    Unexpected(u8),
    /// eNB-UE-S1AP-ID of no UE, or with another MME-UE-S1AP-ID than before.
    #[error("the MME used UE S1AP IDs that do not belong together")]
    UnknownUe,
}

/// Reason for which a PDU was not processed.
pub(super) enum Fault {
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
