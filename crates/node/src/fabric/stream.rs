//! One connection of the fabric: greetings, then frames both ways, without waiting.

use super::frame::{FrameError, Inbox, Outbox};
use super::{GREETING, Greeting, Role};
use rustix::event::epoll;
use serde::Serialize;
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    inbox: Inbox,
    outbox: Outbox,
    /// Who it may be; `None` once it has greeted.
    expected: Option<&'static [Role]>,
    /// Who it is.
    role: Option<Role>,
    /// Whether something came since this was last asked.
    heard: bool,
    /// Whether it is waited for room in it.
    waits: bool,
}

impl Stream {
    /// A connection that was made, this side of it having a role and expecting one of some others.
    pub(crate) fn new(socket: TcpStream, own: Role, expected: &'static [Role]) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Frames are gathered here; what is written is to leave.
        socket.set_nodelay(true)?;
        let mut outbox = Outbox::default();
        outbox.raw(&Greeting::of(own).encode());
        Ok(Stream {
            socket,
            inbox: Inbox::default(),
            outbox,
            expected: Some(expected),
            role: None,
            heard: true,
            waits: false,
        })
    }

    /// A connection that is being made: what is put into it leaves when it is there.
    pub(crate) fn connect(address: SocketAddr, own: Role, expected: &'static [Role]) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Stream::new(socket.into(), own, expected)
    }

    /// Who the other end is, once it has greeted.
    pub(crate) fn role(&self) -> Option<Role> {
        self.role
    }

    /// The other end.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Puts a message into what is to be sent; how many octets.
    pub(crate) fn put(&mut self, message: &impl Serialize) -> usize {
        self.outbox.put(message).unwrap_or(0)
    }

    /// The same for a message that is encoded already.
    pub(crate) fn encoded(&mut self, message: &[u8]) {
        self.outbox.encoded(message);
    }

    /// Octets that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Sends what the connection takes.
    pub(crate) fn flush(&mut self) -> Result<(), FrameError> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        Ok(self.outbox.drain(&mut self.socket)?)
    }

    /// Sends what the connection takes; who waits for this one by a token is told of room in it while something is left.
    pub(crate) fn flush_at(&mut self, epoll: &OwnedFd, token: u64) -> Result<(), FrameError> {
        self.flush()?;
        let waits = self.unsent() > 0;
        if waits != self.waits {
            let flags = if waits { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(epoll, self.fd(), epoll::EventData::new_u64(token), flags).map_err(std::io::Error::from)?;
            self.waits = waits;
        }
        Ok(())
    }

    /// Reads a piece, if there is one; how many octets.
    pub(crate) fn fill(&mut self) -> Result<usize, FrameError> {
        let read = self.inbox.fill(&mut self.socket)?;
        self.heard |= read > 0;
        Ok(read)
    }

    /// The next frame.
    pub(crate) fn frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if let Some(expected) = self.expected {
            let Some(octets) = self.inbox.raw::<GREETING>() else { return Ok(None) };
            // One version is all there is so far: nothing depends on which it is.
            let greeting = Greeting::decode(&octets)?;
            greeting.agree(expected)?;
            (self.expected, self.role) = (None, Some(greeting.role));
        }
        self.inbox.frame()
    }

    /// Whether something came since this was last asked.
    pub(crate) fn was_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }
}
