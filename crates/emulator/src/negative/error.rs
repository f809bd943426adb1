//! Reasons why a case cannot be run, or its UE is not served.

use crate::dialect::Cause;
use crate::error::Error;
use crate::{ran, ue};
use std::time::Duration;
use vireo_types::PlmnError;
use vireo_wire::ngap;

/// Reason why a case ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    /// The UE does not accept the command.
    #[error(transparent)]
    Command(#[from] ue::CommandError),
    /// The node cannot send or process a message.
    #[error(transparent)]
    Node(#[from] ran::SendError),
    #[error(transparent)]
    Sctp(#[from] vireo_sctp::SendError),
    #[error(transparent)]
    Run(#[from] Error),
    /// A message of the case does not encode.
    #[error(transparent)]
    Encoding(#[from] ngap::Error),
    #[error(transparent)]
    Plmn(#[from] PlmnError),
    #[error("SETUP FAILURE {0:?}")]
    SetupFailed(Cause),
    /// The UE was not served in time.
    #[error("not served within {0:?}")]
    Timeout(Duration),
    /// The 5GMM or EMM cause of the rejection.
    #[error("registration rejected, cause #{0}")]
    RegistrationRejected(u8),
    #[error("authentication rejected")]
    AuthenticationRejected,
    #[error("PDU session rejected, {0}")]
    SessionRejected(ue::Cause),
    /// The network deviated from the specification.
    #[error(transparent)]
    Violation(ue::Violation),
    #[error("no connection")]
    NoConnection,
    /// The core has not assigned its UE ID.
    #[error("no UE ID of the core")]
    NoCoreId,
    /// The UE has sent no NAS message.
    #[error("the UE said nothing")]
    NoNas,
    /// The UE whose messages were forged is not served afterwards.
    #[error("the UE of the forged messages: {0}")]
    AfterForgery(Box<CaseError>),
    /// A correct SETUP fails after refused ones.
    #[error("a good SETUP after the refused ones: {0}")]
    AfterRefusal(Error),
}
