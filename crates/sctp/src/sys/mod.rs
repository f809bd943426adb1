//! The system calls of this crate behind safe functions: waiting (`epoll`, `eventfd`) and datagrams in batches
//! (`recvmmsg`, `sendmmsg`). Nothing here knows SCTP.

mod address;
mod datagrams;
mod reactor;
pub(crate) mod socket;

pub(crate) use address::SockAddr;
pub(crate) use datagrams::{BATCH as DATAGRAMS, Received, RecvBatch, SendBatch};
pub use reactor::Waker;
pub(crate) use reactor::{Reactor, Ready};

use std::io;

/// The result of a call that returns -1 and sets `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
