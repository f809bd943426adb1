//! Reasons for which a run fails.

use std::io;
use std::net::SocketAddr;

/// Reason for which a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option is invalid.
    #[error("{0}")]
    Options(String),
    /// A socket operation failed.
    #[error("{operation}: {source}")]
    Io { operation: String, source: io::Error },
    /// The SCTP endpoint could not be created.
    #[error("SCTP: {0}")]
    Sctp(Box<dyn std::error::Error + Send + Sync>),
    /// The core did not accept a gNB.
    #[error("the core at {core} did not take gNB {gnb}: {why}")]
    NgSetup {
        core: SocketAddr,
        /// Number of the gNB, from 0.
        gnb: u32,
        why: String,
    },
    /// The core did not accept an eNB.
    #[error("the core at {core} did not take eNB {enb}: {why}")]
    S1Setup {
        core: SocketAddr,
        /// Number of the eNB, from 0.
        enb: u32,
        why: String,
    },
    /// The run was stopped before it began.
    #[error("stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let operation = operation.into();
        move |source| Error::Io { operation, source }
    }
}
