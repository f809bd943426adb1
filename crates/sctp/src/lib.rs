//! SCTP endpoints behind one interface, with several drivers.
//!
//! The kernel's SCTP is used where it exists, else usrsctp over raw IP (protocol 132) or over UDP
//! (RFC 6951). An in-memory driver serves tests. See [`Endpoint`].
//!
//! An endpoint handles associations, streams and messages. It interprets neither NGAP nor S1AP, and
//! does not identify peers.

mod assocs;
mod config;
mod endpoint;
mod hot_restart;
mod kernel;
pub mod memory;
mod pair;
mod sys;
mod userspace;

pub use config::{BindError, Config, Driver, UDP_ENCAPSULATION_PORT};
pub use endpoint::{Endpoint, Event, MAX_MESSAGE, SendError};
pub use hot_restart::{AssociationTable, EndpointSnapshot, HandoffError};
pub use pair::pair;
pub use sys::Waker;

/// Creates an endpoint with the configured driver, or, with [`Driver::Auto`], the best available
/// one.
pub fn bind(config: &Config) -> Result<Box<dyn Endpoint>, BindError> {
    config.validate()?;
    match config.driver {
        Driver::Auto => match kernel::available() {
            Ok(()) => kernel::Kernel::bind(config, "the kernel's SCTP (the kernel has it)".into()),
            Err(error) => {
                let config = Config { driver: Driver::UserspaceIp, ..config.clone() };
                let reason = format!("usrsctp over raw IP (this kernel has no SCTP: {error})");
                userspace::Userspace::bind(&config, reason)
            }
        },
        Driver::Kernel => {
            kernel::available().map_err(BindError::NoKernelSctp)?;
            kernel::Kernel::bind(config, "the kernel's SCTP (as configured)".into())
        }
        Driver::UserspaceIp => {
            if std::path::Path::new("/proc/net/sctp").exists() {
                tracing::warn!(
                    "SCTP of the kernel also answers packets and aborts associations of usrsctp over raw IP"
                );
            }
            userspace::Userspace::bind(config, "usrsctp over raw IP (as configured)".into())
        }
        Driver::UserspaceUdp => userspace::Userspace::bind(config, "usrsctp over UDP (as configured)".into()),
    }
}

/// Creates an endpoint from the state that another process handed off ([`Endpoint::snapshot`]).
///
/// The endpoint does not use the socket before the first poll.
pub fn adopt(config: &Config, handover: EndpointSnapshot) -> Result<Box<dyn Endpoint>, BindError> {
    config.validate()?;
    match config.driver {
        Driver::Auto | Driver::Kernel => {
            kernel::Kernel::adopt(config, handover, "the kernel's SCTP (taken over from another process)".into())
        }
        Driver::UserspaceIp | Driver::UserspaceUdp => Err(BindError::Invalid {
            key: "driver",
            value: "usrsctp".into(),
            allowed: "what is taken over is the kernel's: \"kernel\" or \"auto\"",
        }),
    }
}
