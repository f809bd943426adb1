//! The kernel driver: one-to-many sockets (RFC 6458 clause 3) with multi-homing.
//!
//! The addresses of both sides are paths. This module handles no packets and no timers. The kernel
//! does checksums, retransmissions and heartbeats.

mod associations;
mod endpoint;
mod ffi;
mod socket;

pub(crate) use endpoint::Kernel;

/// Returns an error if the kernel has no SCTP.
pub(crate) fn available() -> std::io::Result<()> {
    socket::available()
}
