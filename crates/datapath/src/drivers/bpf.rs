//! Common parts of the kernel programs: objects, and errors of loading and attaching.

use crate::start_error::StartError;
use std::io;

/// Bytes with the alignment that ELF requires.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// Returns the errno at the end of an error chain.
pub(crate) fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        cause = error.source();
    }
    None
}

pub(crate) fn refused(error: &(dyn std::error::Error + 'static)) -> StartError {
    match errno(error) {
        Some(libc::EPERM) => StartError::XdpPermission,
        Some(code) => StartError::Xdp(io::Error::from_raw_os_error(code).to_string()),
        None => StartError::Xdp(error.to_string()),
    }
}

pub(crate) fn not_attached(interface: &str, error: &(dyn std::error::Error + 'static)) -> StartError {
    match errno(error) {
        Some(libc::EOPNOTSUPP) => StartError::XdpNotNative(interface.to_owned()),
        Some(libc::EBUSY | libc::EEXIST) => StartError::XdpBusy(interface.to_owned()),
        _ => refused(error),
    }
}
