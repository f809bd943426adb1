//! The interface every driver has.

use crate::hot_restart::{EndpointHandoff, HandoffError};
use crate::sys::Waker;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;
use vireo_types::AssocId;

/// What an endpoint tells its owner.
#[derive(Debug)]
pub enum Event<'a> {
    /// An association came up. `peer` is its address and SCTP port.
    Up { assoc: AssocId, peer: SocketAddr, outbound_streams: u16 },
    /// The peer restarted the association (RFC 9260 5.2.4): what was in flight is lost, the identifier stays.
    Restarted { assoc: AssocId },
    /// The association is gone, by shutdown, abort, loss or a connect that failed. It comes exactly once for every
    /// identifier that [`Endpoint::connect`] or [`Event::Up`] gave, whichever side ended it, and is the last of it.
    Down { assoc: AssocId, reason: &'static str },
    /// A message that was given to [`Endpoint::send`] and that the peer has not acknowledged: the association ends, and
    /// [`Event::Down`] follows. The peer may have it all the same. Nothing is told of messages that take more than one
    /// packet, and by the kernel's driver, whose socket of the association is closed by then.
    Unacknowledged { assoc: AssocId, stream: u16, ppid: u32, data: &'a [u8] },
    /// One whole user message.
    Message { assoc: AssocId, stream: u16, ppid: u32, data: &'a [u8] },
    /// After [`SendError::Full`]: the association takes messages again.
    Writable { assoc: AssocId },
    /// The peer has answered a heartbeat of [`Endpoint::probe`], once for all of them that were not answered.
    Alive { assoc: AssocId },
    /// A descriptor given to [`Endpoint::watch`] is readable.
    Readable { token: u64 },
}

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full; [`Event::Writable`] follows.
    #[error("the association's send buffer is full")]
    Full,
    /// There is no such association any more, it is not up yet, or it is being shut down.
    #[error("the association is gone")]
    Gone,
    /// The driver refused it: a message that is empty or larger than [`crate::MAX_MESSAGE`], for one.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An SCTP endpoint that one thread owns: it listens, connects, and is polled for events. No call but [`poll`]
/// blocks, and no call allocates for each message once it runs.
///
/// What is sent may stay in the endpoint until the next [`poll`], which sends it before it waits; the owner polls as
/// long as it has associations, for retransmissions, heartbeats and shutdowns need it too. Dropping an endpoint aborts
/// what is left.
///
/// [`poll`]: Endpoint::poll
pub trait Endpoint: Send {
    /// Waits at most `timeout` (for ever if `None`) and gives every event that is there to `sink`, in order. Returns
    /// how many there were. A wake by [`Endpoint::waker`] ends the wait.
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize>;

    /// Queues one user message; ordered within its stream. `stream` is reduced modulo the streams the peer allows
    /// (stream 0 stays stream 0).
    fn send(&mut self, assoc: AssocId, stream: u16, ppid: u32, data: &[u8]) -> Result<(), SendError>;

    /// Starts an association; [`Event::Up`] or [`Event::Down`] follows. An endpoint without a port of its own (port 0)
    /// uses a fresh one for each association, so it may have several with one peer; one with a port may not.
    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId>;

    /// Ends an association gracefully: what was queued is delivered first, then [`Event::Down`] comes.
    fn shutdown(&mut self, assoc: AssocId);

    /// Ends an association at once; [`Event::Down`] comes with the next poll.
    fn abort(&mut self, assoc: AssocId);

    /// Sends a heartbeat at once (RFC 9260 8.3); [`Event::Alive`] follows if the peer answers, nothing if it does not. A
    /// heartbeat may be lost: the owner repeats it as often as it likes.
    fn probe(&mut self, assoc: AssocId);

    /// Lets [`Endpoint::poll`] report another descriptor of the same thread (level-triggered, readable).
    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()>;

    /// A handle with which another thread ends the wait of [`Endpoint::poll`].
    fn waker(&self) -> Waker;

    /// The driver and why it was chosen, for the log.
    fn driver(&self) -> &str;

    /// Returns true if packets of peers are parsed by this process, on the thread that polls.
    fn parses_packets(&self) -> bool {
        false
    }

    /// The SCTP port this endpoint is bound to, 0 if each association has one of its own.
    fn port(&self) -> u16;

    /// What another process needs to go on with this endpoint. It may do so once this one is not polled any more and ends by
    /// [`Endpoint::let_go`]; if it does not, this one goes on as if nothing had been.
    ///
    /// # Errors
    ///
    /// When associations are where no other process can have them.
    fn hand_over(&self) -> Result<EndpointHandoff, HandoffError> {
        Err(HandoffError::InProcess)
    }

    /// Ends this endpoint and none of its associations: another process has them.
    fn let_go(self: Box<Self>);
}
