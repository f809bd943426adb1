//! SCTP behind one interface: the kernel's where it has one, else usrsctp over raw IP (protocol 132) or over UDP
//! (RFC 6951), and an in-memory form for tests. See [`Endpoint`].
//!
//! An endpoint knows associations, streams and messages. It does not know NGAP or S1AP, nor who a peer is.

mod assocs;
mod config;
mod endpoint;
pub mod memory;
mod sys;
mod userspace;

pub use config::{BindError, Config, Driver, UDP_ENCAPSULATION_PORT};
pub use endpoint::{Endpoint, Event, SendError};
pub use sys::Waker;

/// Bytes of the largest message that is sent or received. A peer that sends a larger one loses its association.
pub const MAX_MESSAGE: usize = 65_535;

/// Makes an endpoint with the driver the configuration names or, if it names none, the best this machine has.
pub fn bind(config: &Config) -> Result<Box<dyn Endpoint>, BindError> {
    config.validate()?;
    match config.driver {
        Driver::Auto => userspace::Userspace::bind(config, "usrsctp over raw IP".into()),
        Driver::Kernel => Err(BindError::NoKernelSctp(std::io::Error::from_raw_os_error(libc::ENOSYS))),
        Driver::UserspaceIp => userspace::Userspace::bind(config, "usrsctp over raw IP (as configured)".into()),
        Driver::UserspaceUdp => userspace::Userspace::bind(config, "usrsctp over UDP (as configured)".into()),
    }
}
