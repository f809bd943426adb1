//! The wait of all drivers: one `epoll` with an `eventfd` in it.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of descriptors reported by one wait; the next wait reports the others.
const BATCH: usize = 64;

/// Wakes the thread that polls an [`Endpoint`](crate::Endpoint). Clones share one `eventfd`.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker for a thread that waits for its descriptor, without an endpoint.
    ///
    /// The waiting thread must call [`Waker::clear`].
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked and owned at once.
        let event = unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Waker(Arc::new(event)))
    }

    /// Wraps the descriptor of another process's or endpoint's waker.
    pub(crate) fn adopt(event: OwnedFd) -> Self {
        Waker(Arc::new(event))
    }

    /// Duplicates the descriptor for another process or endpoint.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Ends the current wait, or the next one.
    ///
    /// Several calls before a wait count as one. Any thread may call it; it never blocks.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the descriptor is open as long as `self` is, and the buffer is eight readable
        // bytes. The only failure is a full counter (EAGAIN), which means that a wake is pending
        // already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Clears pending wake-ups.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: the descriptor is open and non-blocking, and the buffer is eight writable bytes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A readable descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A descriptor of the driver, by the number of [`Reactor::add`].
    Own(u32),
    /// A descriptor of the owner, by its token.
    Watched(u64),
}

/// The descriptors that one endpoint waits for.
#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: OwnedFd,
    waker: Waker,
    /// The owner's tokens. `epoll` stores their index, so that they cannot equal the driver's
    /// numbers.
    tokens: Vec<u64>,
    ready: Vec<Ready>,
}

const WAKER: u64 = u64::MAX;
const WATCHED: u64 = 1 << 32;

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        Reactor::with(Waker::new()?)
    }

    /// Creates a reactor with an existing waker.
    pub(crate) fn with(waker: Waker) -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked and owned at once.
        let epoll = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let reactor = Self { epoll, waker, tokens: Vec::new(), ready: Vec::with_capacity(BATCH) };
        reactor.register(reactor.waker.0.as_raw_fd(), WAKER)?;
        Ok(reactor)
    }

    /// Adds a descriptor of the driver.
    pub(crate) fn add(&self, fd: RawFd, number: u32) -> io::Result<()> {
        self.register(fd, u64::from(number))
    }

    /// Adds a descriptor of the owner.
    pub(crate) fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        let index = self.tokens.iter().position(|known| *known == token).unwrap_or(self.tokens.len());
        self.register(fd, WATCHED | index as u64)?;
        if index == self.tokens.len() {
            self.tokens.push(token);
        }
        Ok(())
    }

    /// Returns the descriptor of `epoll`, which is readable while one of the reactor's is.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn register(&self, fd: RawFd, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
        // SAFETY: both descriptors are open and the event outlives the call.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(())
    }

    /// Waits and clears the waker. Returns true if there was a wake-up.
    ///
    /// [`Reactor::take_ready`] then returns the readable descriptors.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let count = match self.wait_raw(timeout, &mut events) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        self.ready.clear();
        let mut woken = false;
        for event in &events[..count] {
            let data = event.u64;
            match data {
                WAKER => {
                    self.waker.clear();
                    woken = true;
                }
                data if data & WATCHED != 0 => {
                    self.ready.extend(self.tokens.get(data as u32 as usize).map(|token| Ready::Watched(*token)));
                }
                data => self.ready.push(Ready::Own(data as u32)),
            }
        }
        Ok(woken)
    }

    /// Returns the readable descriptors of the last wait. [`Reactor::put_back`] returns the list
    /// for reuse.
    pub(crate) fn take_ready(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn put_back(&mut self, ready: Vec<Ready>) {
        self.ready = ready;
    }

    /// Uses `epoll_pwait2` for its resolution; before Linux 5.11, milliseconds, rounded up.
    fn wait_raw(&self, timeout: Option<Duration>, events: &mut [libc::epoll_event; BATCH]) -> io::Result<usize> {
        let spec = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let spec_ptr = spec.as_ref().map_or(std::ptr::null(), |spec| spec as *const libc::timespec);
        // SAFETY: the buffer holds BATCH events, the timeout is null or outlives the call, no
        // signal mask is passed.
        let count = unsafe {
            let nothing: *const libc::sigset_t = std::ptr::null();
            let (epoll, buffer) = (self.epoll.as_raw_fd(), events.as_mut_ptr());
            libc::syscall(libc::SYS_epoll_pwait2, epoll, buffer, BATCH, spec_ptr, nothing, 8_usize)
        };
        if count >= 0 {
            return Ok(count as usize);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOSYS) {
            return Err(error);
        }
        let millis = timeout.map_or(-1, |timeout| timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32);
        // SAFETY: the buffer holds BATCH events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, millis) };
        Ok(check(count)? as usize)
    }
}
