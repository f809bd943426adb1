//! Errors of the connections of a cluster member.

use std::net::SocketAddr;
use vireo_fabric::frame::FrameError;

/// Reason why a member cannot join or is not in its cluster.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No controller answers at any configured address.
    #[error(
        "no controller at {address}: {cause}; start `vireo controller` (without cluster.controller: `vireo balancer`), \
         and check cluster.controller and cluster.balancer"
    )]
    NoController {
        /// Configured endpoints of controllers.
        address: String,
        /// Error of the last attempt.
        cause: FrameError,
    },
    /// The controller will refuse this member until the configuration changes.
    #[error("controller {address} is not compatible: {cause}")]
    Incompatible {
        /// Address of the controller.
        address: SocketAddr,
        /// Error of the last attempt.
        cause: FrameError,
    },
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Lost(#[from] FrameError),
    /// The controller refuses or has evicted the member.
    #[error("refused by the controller: {0}")]
    Refused(String),
    /// The cluster has removed the member.
    #[error("the cluster map lacks this member since epoch {0}, and other members have taken over; restart it")]
    Fenced(u64),
    /// Error of the operating system.
    #[error("connections cannot be polled: {0}")]
    System(std::io::Error),
}
