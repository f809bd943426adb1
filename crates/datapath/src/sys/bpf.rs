//! BPF links that detach their program when dropped, even if other processes hold copies.

use super::check_size;
use aya::programs::links::FdLink;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use tracing::debug;

// `enum bpf_cmd` of linux/bpf.h, missing in libc.
const LINK_GET_FD_BY_ID: libc::c_long = 30;
const LINK_DETACH: libc::c_long = 34;

/// Link that attaches a program. Dropping it detaches the program.
///
/// A link ends with the last of its descriptors. A child process has copies of all descriptors
/// until it executes its program. Closing our descriptor therefore does not determine when the
/// kernel gets all frames again.
#[derive(Debug)]
pub(crate) struct AttachedProgram(FdLink);

impl From<FdLink> for AttachedProgram {
    fn from(link: FdLink) -> Self {
        AttachedProgram(link)
    }
}

impl AttachedProgram {
    /// Returns one more descriptor of the link.
    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        let info = self.0.info().map_err(io::Error::other)?;
        let fd = check_size(bpf(LINK_GET_FD_BY_ID, info.id()) as isize)?;
        // SAFETY: the kernel has just created the descriptor for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

impl Drop for AttachedProgram {
    fn drop(&mut self) {
        // The library does not expose the descriptor of the link.
        let taken = self.copy().and_then(|link| take_off(&link));
        // Detaching needs CAP_SYS_ADMIN, which a UPF may lack: then the link ends with its last
        // copy.
        if let Err(error) = taken {
            debug!(%error, "BPF program not detached: the last process with its link detaches it");
        }
    }
}

fn take_off(link: &OwnedFd) -> io::Result<()> {
    check_size(bpf(LINK_DETACH, link.as_raw_fd() as u32) as isize).map(|_| ())
}

/// Executes a command whose `union bpf_attr` begins with a link number. The kernel zeroes the rest
/// of the attribute.
fn bpf(command: libc::c_long, link: u32) -> libc::c_long {
    // SAFETY: the word outlives the call, which reads no more than the given size.
    unsafe { libc::syscall(libc::SYS_bpf, command, &raw const link, size_of::<u32>()) }
}
