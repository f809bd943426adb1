//! Interface of the balancer to a controller in its own process.

use std::io;
use std::os::fd::BorrowedFd;
use vireo_core::placement::cluster::{ClusterMap, DurableState};

/// Controller in the process of the only balancer. In a hot restart it moves with the balancer.
pub trait ResidentController: std::fmt::Debug + Send + Sync {
    /// Starts the controller, without a state or from a known one.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a resource.
    fn begin(&self, record: Option<DurableState>) -> io::Result<()>;

    /// Ends without informing the members, which try to reconnect; returns the last map.
    fn detach(&self) -> Option<ClusterMap>;

    /// Returns the listening socket.
    fn listener(&self) -> BorrowedFd<'_>;
}
