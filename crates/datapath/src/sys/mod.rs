//! The system calls that the standard library has no words for, each behind a safe function.

pub(crate) mod netlink;
pub mod poll;
pub(crate) mod shared;
pub(crate) mod tun;
pub(crate) mod udp;

use std::io;

/// The result of a call that says -1 where it failed.
fn check(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The same for calls that give a size.
fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
