//! SCTP behind one interface: the kernel's where it has one, else usrsctp over raw IP (protocol 132) or over UDP
//! (RFC 6951), and an in-memory form for tests. See [`Endpoint`].
//!
//! An endpoint knows associations, streams and messages. It does not know NGAP or S1AP, nor who a peer is.

mod assocs;
mod config;
mod endpoint;
mod hot_restart;
mod kernel;
pub mod memory;
mod sys;
mod userspace;

pub use config::{BindError, Config, Driver, UDP_ENCAPSULATION_PORT};
pub use endpoint::{Endpoint, Event, SendError};
pub use hot_restart::{AssociationTable, EndpointHandoff, HandoffError};
pub use sys::Waker;

/// Bytes of the largest message that is sent or received. A peer that sends a larger one loses its association.
pub const MAX_MESSAGE: usize = 65_535;

/// Makes an endpoint with the driver the configuration names or, if it names none, the best this machine has.
pub fn bind(config: &Config) -> Result<Box<dyn Endpoint>, BindError> {
    config.validate()?;
    match config.driver {
        Driver::Auto => match kernel::available() {
            Ok(()) => kernel::Kernel::bind(config, "the kernel's SCTP (the kernel has it)".into()),
            Err(error) => {
                let config = Config { driver: Driver::UserspaceIp, ..config.clone() };
                let why = format!("usrsctp over raw IP (this kernel has no SCTP: {error})");
                userspace::Userspace::bind(&config, why)
            }
        },
        Driver::Kernel => {
            kernel::available().map_err(BindError::NoKernelSctp)?;
            kernel::Kernel::bind(config, "the kernel's SCTP (as configured)".into())
        }
        Driver::UserspaceIp => {
            if std::path::Path::new("/proc/net/sctp").exists() {
                tracing::warn!("this kernel answers SCTP packets too, and aborts what usrsctp over raw IP sets up");
            }
            userspace::Userspace::bind(config, "usrsctp over raw IP (as configured)".into())
        }
        Driver::UserspaceUdp => userspace::Userspace::bind(config, "usrsctp over UDP (as configured)".into()),
    }
}

/// Goes on with what another process has handed over ([`Endpoint::hand_over`]). Nothing is done with it before the first poll.
pub fn adopt(config: &Config, handover: EndpointHandoff) -> Result<Box<dyn Endpoint>, BindError> {
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
