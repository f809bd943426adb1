//! System calls of this crate behind safe functions.
//!
//! They cover waiting (`epoll`, `eventfd`) and batches of datagrams (`recvmmsg`, `sendmmsg`).
//! Nothing here depends on SCTP.

mod address;
mod datagrams;
mod reactor;
pub(crate) mod socket;

pub(crate) use address::SockAddr;
pub(crate) use datagrams::{BATCH as DATAGRAMS, Received, RecvBatch, SendBatch};
pub use reactor::Waker;
pub(crate) use reactor::{Reactor, Ready};

use std::io;

/// Converts the result of a call that returns -1 and sets `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
