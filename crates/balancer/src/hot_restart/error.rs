//! Errors of a hot restart.

use std::io;
use std::path::PathBuf;

/// Reasons why a hot restart fails. The running balancer continues.
#[derive(Debug, thiserror::Error)]
pub enum HotRestartError {
    /// `cluster.handover` is not configured.
    #[error("cluster.handover is empty; set it for this balancer and for the running one")]
    NoPath,
    /// No balancer listens at the path.
    #[error("no running balancer at {path}: {error}; check cluster.handover, or start without --take-over")]
    NoBalancer { path: PathBuf, error: io::Error },
    /// Another balancer listens at the path.
    #[error("another balancer runs at {0}; replace it with --take-over, or change cluster.handover")]
    InUse(PathBuf),
    /// The socket file cannot be created.
    #[error("cluster.handover: the socket {path} cannot be created: {error}")]
    Path { path: PathBuf, error: io::Error },
    /// The SCTP driver cannot transfer its state.
    #[error("cluster.handover: {0}")]
    Sctp(#[from] vireo_sctp::HandoffError),
    /// The process has an embedded UPF, which would end with it.
    #[error(
        "cluster.handover: the embedded UPF would end with the process: set upf.enabled = false, and run `vireo upf`"
    )]
    Upf,
    /// Only one of the two processes has an embedded controller.
    #[error("cluster.controller is empty for one of the two balancers only; use the value of the running one")]
    Controller,
    /// A connection uses TLS and cannot be transferred.
    #[error("connections with TLS cannot be passed to another process; remove cluster.tls or restart the balancer")]
    Tls,
    /// The snapshot is too large.
    #[error("{0}")]
    Large(String),
    /// The running balancer refuses; the reason is its text.
    #[error("the running balancer refuses the hot restart and continues: {0}")]
    Refused(String),
    /// The other process has exited, is silent, or sends invalid messages.
    #[error("the other process does not follow the protocol of a hot restart: {0}")]
    Channel(#[from] io::Error),
}
