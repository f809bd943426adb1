//! Errors of the connections of a cluster member.

use std::net::SocketAddr;
use vireo_fabric::frame::FrameError;

/// Reason why a member cannot join or is not in its cluster.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No controller answers at any configured address.
    #[error(
        "there is no controller at {address}: {why}; start `vireo controller` (or `vireo balancer`, where cluster.controller \
         is not set), and check cluster.controller and cluster.balancer"
    )]
    NoController {
        /// Configured endpoints of controllers.
        address: String,
        /// Error of the last attempt.
        why: FrameError,
    },
    /// The controller will refuse this member until the configuration changes.
    #[error("the controller at {address} is not to be talked to: {why}")]
    Incompatible {
        /// Address of the controller.
        address: SocketAddr,
        /// Error of the last attempt.
        why: FrameError,
    },
    /// The connection was lost.
    #[error("the connection is lost: {0}")]
    Lost(#[from] FrameError),
    /// The controller refuses or has evicted the member.
    #[error("the controller has sent it away: {0}")]
    Refused(String),
    /// The cluster has removed the member.
    #[error("the cluster has gone on without it since epoch {0}: others have what it had; start it anew")]
    Fenced(u64),
    /// Error of the operating system.
    #[error("the connections cannot be heard: {0}")]
    System(std::io::Error),
}
