//! Waiting for several descriptors and for other threads.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Waits until any of its descriptors is readable (level-triggered `epoll`).
#[derive(Debug)]
pub struct Poller(OwnedFd);

/// Token of the stop signal.
pub(crate) const STOP: u64 = u64::MAX;

/// Maximum number of descriptors that one wait returns.
const READY: usize = 16;

impl Poller {
    /// Creates a poller without descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and has no other owner.
        Ok(Poller(unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))? as i32) }))
    }

    /// Adds a descriptor. The caller must keep it open while it uses the poller.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: both descriptors are open and `event` outlives the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) })?;
        Ok(())
    }

    /// Waits at most `timeout` (without limit if `None`). Calls `ready` with the token of each
    /// readable descriptor.
    pub fn wait(&self, timeout: Option<Duration>, mut ready: impl FnMut(u64)) -> io::Result<()> {
        // Rounded up, so that a deadline has passed when the wait for it ends.
        let timeout = timeout.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; READY];
        // SAFETY: `events` has room for the given number of entries.
        let result = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), READY as i32, timeout) };
        let count = match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        for event in &events[..count] {
            ready(event.u64);
        }
        Ok(())
    }
}

/// Wakes the thread that waits for it in a [`Poller`]. Clones share it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker without a waiting thread.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and has no other owner.
        let fd =
            unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))? as i32) };
        Ok(Waker(Arc::new(fd)))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: `one` has the eight octets that an eventfd reads. The call fails only when it is
        // readable already.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable until the next [`Waker::wake`].
    pub fn clear(&self) {
        let mut count = [0; 8];
        // SAFETY: `count` has the eight octets that an eventfd returns.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl From<OwnedFd> for Waker {
    /// Takes an eventfd that another process has created.
    fn from(fd: OwnedFd) -> Self {
        Waker(Arc::new(fd))
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waker_ends_wait_until_cleared() {
        let (poller, waker) = (Poller::new().expect("epoll"), Waker::new().expect("eventfd"));
        poller.add(waker.as_fd(), 7).expect("added");
        let wait = || {
            let mut tokens = vec![];
            poller.wait(Some(Duration::from_millis(1)), |token| tokens.push(token)).expect("waited");
            tokens
        };
        assert_eq!(wait(), []);
        waker.clone().wake();
        assert_eq!((wait(), wait()), (vec![7], vec![7]));
        waker.clear();
        assert_eq!(wait(), []);
    }
}
