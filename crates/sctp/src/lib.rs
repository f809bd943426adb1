//! SCTP behind one interface: the kernel's where it has one, else usrsctp over raw IP (protocol 132) or over UDP
//! (RFC 6951), and an in-memory form for tests. See [`Endpoint`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;
use vireo_types::AssocId;

/// What an endpoint tells its owner.
#[derive(Debug)]
pub enum Event<'a> {
    /// An association came up.
    Up { assoc: AssocId, peer: SocketAddr, outbound_streams: u16 },
    /// The peer restarted the association (RFC 9260 5.2.4): what was in flight is lost, the identifier stays.
    Restarted { assoc: AssocId },
    /// The association is gone, by shutdown, abort, loss or a connect that failed.
    Down { assoc: AssocId, reason: &'static str },
    /// One whole user message.
    Message { assoc: AssocId, stream: u16, ppid: u32, data: &'a [u8] },
    /// After [`SendError::Full`]: the association takes messages again.
    Writable { assoc: AssocId },
    /// A descriptor given to [`Endpoint::watch`] is readable.
    Readable { token: u64 },
}

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full; [`Event::Writable`] follows.
    #[error("the association's send buffer is full")]
    Full,
    /// There is no such association any more.
    #[error("the association is gone")]
    Gone,
    /// The driver refused it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An SCTP endpoint that one thread owns: it listens, connects, and is polled for events. No call but [`poll`]
/// blocks, and no call allocates for each message once it runs.
///
/// [`poll`]: Endpoint::poll
pub trait Endpoint: Send {
    /// Waits at most `timeout` (for ever if `None`) and gives every event that is there to `sink`, in order. Returns
    /// how many there were. A wake by [`Endpoint::waker`] ends the wait.
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize>;

    /// Queues one user message; ordered within its stream. `stream` is reduced modulo the streams the peer allows
    /// (stream 0 stays stream 0).
    fn send(&mut self, assoc: AssocId, stream: u16, ppid: u32, data: &[u8]) -> Result<(), SendError>;

    /// Starts an association; [`Event::Up`] or [`Event::Down`] follows.
    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId>;

    /// Ends an association gracefully: what was queued is delivered first.
    fn shutdown(&mut self, assoc: AssocId);

    /// Ends an association at once.
    fn abort(&mut self, assoc: AssocId);

    /// Lets [`Endpoint::poll`] report another descriptor of the same thread (level-triggered, readable).
    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()>;

    /// A handle with which another thread ends the wait of [`Endpoint::poll`].
    fn waker(&self) -> Waker;

    /// The driver and why it was chosen, for the log.
    fn driver(&self) -> &str;
}

/// Wakes the thread that polls an [`Endpoint`]; clones share it.
#[derive(Clone, Debug)]
pub struct Waker(std::sync::Arc<std::os::fd::OwnedFd>);

/// Which driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// The kernel's if it has SCTP, else usrsctp over raw IP.
    #[default]
    Auto,
    /// The kernel's.
    Kernel,
    /// usrsctp over raw IP, protocol 132.
    UserspaceIp,
    /// usrsctp over UDP (RFC 6951).
    UserspaceUdp,
}
