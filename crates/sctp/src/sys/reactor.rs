//! One `epoll` with an `eventfd` in it: what every driver waits on.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Descriptors reported by one wait; those beyond come with the next.
const BATCH: usize = 64;

/// Wakes the thread that polls an [`Endpoint`](crate::Endpoint); clones share it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// For a thread that waits for something else than an endpoint, by its descriptor; whoever waits clears it.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked and owned at once.
        let event = unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Waker(Arc::new(event)))
    }

    /// One that another process, or another endpoint, has made.
    pub(crate) fn adopt(event: OwnedFd) -> Self {
        Waker(Arc::new(event))
    }

    /// The same for another process, or another endpoint.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Ends the wait that is under way, or the next one. Several wakes before a wait count as one. Any thread may
    /// call it; it never blocks.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the descriptor is open as long as `self` is, and the buffer is eight readable bytes. The only
        // failure is a full counter (EAGAIN), which means that a wake is pending already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes the wakes that were.
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

/// What became readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The driver's own descriptor, by the number it was added with.
    Own(u32),
    /// A descriptor of the owner, by its token.
    Watched(u64),
}

/// The waiting of one endpoint.
#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: OwnedFd,
    waker: Waker,
    /// The owner's tokens: `epoll` carries their index, so that they cannot be taken for the driver's own numbers.
    tokens: Vec<u64>,
    ready: Vec<Ready>,
}

const WAKER: u64 = u64::MAX;
const WATCHED: u64 = 1 << 32;

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        Reactor::with(Waker::new()?)
    }

    /// One that is waked by a waker that there is.
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

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn register(&self, fd: RawFd, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
        // SAFETY: both descriptors are open and the event outlives the call.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(())
    }

    /// Waits, clears the waker, and returns what is readable ([`Reactor::take_ready`]) and whether there was a wake.
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

    /// What the last wait found, in a list to give back for reuse by [`Reactor::put_back`].
    pub(crate) fn take_ready(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn put_back(&mut self, ready: Vec<Ready>) {
        self.ready = ready;
    }

    /// `epoll_pwait2` for its resolution; milliseconds, rounded up, where the kernel is older than 5.11.
    fn wait_raw(&self, timeout: Option<Duration>, events: &mut [libc::epoll_event; BATCH]) -> io::Result<usize> {
        let spec = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let spec_ptr = spec.as_ref().map_or(std::ptr::null(), |spec| spec as *const libc::timespec);
        // SAFETY: the buffer holds BATCH events, the timeout is null or outlives the call, no signal mask is passed.
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
