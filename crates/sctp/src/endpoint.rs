//! The interface of all drivers.

use crate::hot_restart::{EndpointSnapshot, HandoffError};
use crate::sys::Waker;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;
use vireo_types::AssocId;

/// Maximum bytes of a message that is sent or received. A peer that exceeds it loses its
/// association.
///
/// It is above the largest NGAP or S1AP PDU: 64 KiB of UE radio capability and other IEs.
pub const MAX_MESSAGE: usize = 80 * 1024;

/// An event that an endpoint reports to its owner.
#[derive(Debug)]
pub enum Event<'a> {
    /// An association came up. `peer` is its address and SCTP port.
    Up { assoc: AssocId, peer: SocketAddr, outbound_streams: u16 },
    /// The peer restarted the association (RFC 9260 5.2.4). Messages in flight are lost; the
    /// identifier stays.
    Restarted { assoc: AssocId },
    /// The association ended, by shutdown, abort, loss or a failed connect.
    ///
    /// It is reported exactly once for every identifier from [`Endpoint::connect`] or
    /// [`Event::Up`], whichever side ended the association. It is the last event of the
    /// association.
    Down { assoc: AssocId, reason: &'static str },
    /// A message passed to [`Endpoint::send`] that the peer has not acknowledged.
    ///
    /// The association ends, and [`Event::Down`] follows. The peer may still have received the
    /// message. The event is not reported for messages that take more than one packet. The kernel
    /// driver never reports it, because the socket of the association is closed by then.
    Unacknowledged { assoc: AssocId, stream: u16, ppid: u32, data: &'a [u8] },
    /// A complete user message.
    Message { assoc: AssocId, stream: u16, ppid: u32, data: &'a [u8] },
    /// After [`SendError::Full`]: the association accepts messages again.
    Writable { assoc: AssocId },
    /// The peer answered a heartbeat of [`Endpoint::probe`]. One event covers all unanswered
    /// probes.
    Alive { assoc: AssocId },
    /// A descriptor passed to [`Endpoint::watch`] is readable. In one poll of an endpoint it
    /// precedes the messages.
    Readable { token: u64 },
}

impl Event<'_> {
    /// Returns the association of the event.
    pub(crate) fn assoc_mut(&mut self) -> Option<&mut AssocId> {
        match self {
            Event::Up { assoc, .. }
            | Event::Restarted { assoc }
            | Event::Down { assoc, .. }
            | Event::Unacknowledged { assoc, .. }
            | Event::Message { assoc, .. }
            | Event::Writable { assoc }
            | Event::Alive { assoc } => Some(assoc),
            Event::Readable { .. } => None,
        }
    }
}

/// Reason that a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full; [`Event::Writable`] follows.
    #[error("the association's send buffer is full")]
    Full,
    /// The association does not exist, is not up yet, or is being shut down.
    #[error("the association is gone")]
    NoAssociation,
    /// The driver refused the message, for example because it is empty or larger than
    /// [`crate::MAX_MESSAGE`].
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An SCTP endpoint that one thread owns: it listens, connects, and is polled for events.
///
/// Only [`poll`] blocks. In steady state, no call allocates per message.
///
/// Sent messages may stay in the endpoint until the next [`poll`], which sends them before it
/// waits. The owner must poll while it has associations: retransmissions, heartbeats and shutdowns
/// need it too. Dropping an endpoint aborts its associations.
///
/// [`poll`]: Endpoint::poll
pub trait Endpoint: Send {
    /// Waits at most `timeout` (forever if `None`) and passes all pending events to `sink`, in
    /// order.
    ///
    /// Returns the number of events. A wake-up by [`Endpoint::waker`] ends the wait.
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize>;

    /// Sends what an earlier call has left for the next [`Endpoint::poll`].
    fn send_pending(&mut self) {}

    /// Queues one user message, ordered within its stream.
    ///
    /// `stream` is reduced modulo the streams that the peer allows (stream 0 stays stream 0).
    fn send(&mut self, assoc: AssocId, stream: u16, ppid: u32, data: &[u8]) -> Result<(), SendError>;

    /// Starts an association; [`Event::Up`] or [`Event::Down`] follows.
    ///
    /// An endpoint without a fixed port (port 0) uses a fresh one for each association, so it may
    /// have several with one peer. An endpoint with a port may not.
    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId>;

    /// Shuts an association down: queued messages are delivered first, then [`Event::Down`]
    /// follows.
    fn shutdown(&mut self, assoc: AssocId);

    /// Aborts an association; [`Event::Down`] follows with the next poll.
    fn abort(&mut self, assoc: AssocId);

    /// Sends a heartbeat at once (RFC 9260 8.3). [`Event::Alive`] follows if the peer answers.
    ///
    /// A heartbeat may be lost: the owner may repeat it as needed.
    fn probe(&mut self, assoc: AssocId);

    /// Makes [`Endpoint::poll`] report another descriptor of the same thread (level-triggered,
    /// readable).
    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()>;

    /// Returns a handle with which another thread ends the wait of [`Endpoint::poll`].
    fn waker(&self) -> Waker;

    /// Returns a descriptor that is readable while [`Endpoint::poll`] has something to receive.
    fn descriptor(&self) -> RawFd;

    /// Returns the longest time after which [`Endpoint::poll`] is due although
    /// [`Endpoint::descriptor`] is not readable; `None` = never.
    fn poll_within(&self) -> Option<Duration> {
        None
    }

    /// Returns the driver and the reason for its choice, for the log.
    fn driver(&self) -> &str;

    /// Returns true if this process parses packets of peers, on the polling thread.
    fn parses_packets(&self) -> bool {
        false
    }

    /// Returns the bound SCTP port, 0 if each association has a port of its own.
    fn port(&self) -> u16;

    /// Returns the state that another process needs to continue this endpoint.
    ///
    /// The other process may continue when this endpoint is not polled further and ends by
    /// [`Endpoint::detach`]. If it does not, this endpoint continues unaffected.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver keeps associations inside this process.
    fn snapshot(&self) -> Result<EndpointSnapshot, HandoffError> {
        Err(HandoffError::InProcess)
    }

    /// Drops this endpoint without ending its associations, which another process continues.
    fn detach(self: Box<Self>);
}
