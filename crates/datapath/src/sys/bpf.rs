//! Programs are taken off what they are attached to, whoever else has their links.

use super::check_size;
use aya::programs::links::FdLink;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use tracing::debug;

// `enum bpf_cmd` of linux/bpf.h, which libc does not have
const LINK_GET_FD_BY_ID: libc::c_long = 30;
const LINK_DETACH: libc::c_long = 34;

/// A link by which a program is attached. The program is off when this is dropped.
///
/// A link ends with the last of its descriptors. A child that some thread starts has copies of all of them until it runs its
/// own program, so that to close ours does not say when frames go to the kernel again.
#[derive(Debug)]
pub(crate) struct Attached(FdLink);

impl From<FdLink> for Attached {
    fn from(link: FdLink) -> Self {
        Attached(link)
    }
}

impl Attached {
    /// One more descriptor of the link.
    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        let info = self.0.info().map_err(io::Error::other)?;
        let fd = check_size(bpf(LINK_GET_FD_BY_ID, info.id()) as isize)?;
        // SAFETY: the kernel has just made it for us
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // the library does not give the descriptor that it has
        let taken = self.copy().and_then(|link| take_off(&link));
        // It asks for CAP_SYS_ADMIN, which a UPF may not have: then the link ends with its last copy.
        if let Err(error) = taken {
            debug!("a program stays attached until nobody has its link any more: {error}");
        }
    }
}

fn take_off(link: &OwnedFd) -> io::Result<()> {
    check_size(bpf(LINK_DETACH, link.as_raw_fd() as u32) as isize).map(|_| ())
}

/// One of the commands whose `union bpf_attr` begins with the number of a link; the rest of it is zeros.
fn bpf(command: libc::c_long, link: u32) -> libc::c_long {
    // SAFETY: the word outlives the call, which reads as much as its size says
    unsafe { libc::syscall(libc::SYS_bpf, command, &raw const link, size_of::<u32>()) }
}
