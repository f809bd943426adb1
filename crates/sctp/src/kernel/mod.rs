//! The kernel's SCTP: one-to-many sockets (RFC 6458 clause 3), with the addresses of both sides as paths.
//!
//! It knows no packets and no timers; the kernel does. Checksums, retransmissions and heartbeats are its own.

mod associations;
mod endpoint;
mod ffi;
mod socket;

pub(crate) use endpoint::Kernel;

/// Whether the kernel has SCTP, and why not.
pub(crate) fn available() -> std::io::Result<()> {
    socket::available()
}
