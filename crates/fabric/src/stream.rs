//! One connection of the fabric: greetings, then frames both ways, without waiting.

use super::frame::{FrameError, FrameReader, FrameWriter};
use super::socket::Socket;
use super::{GREETING, Greeting, GreetingError, Role, Security, TLS};
use rustix::event::epoll;
use rustls::Connection;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Type};
use std::io::Error;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    peer: Option<SocketAddr>,
    security: Security,
    inbox: FrameReader,
    outbox: FrameWriter,
    /// Who it may be; `None` once it has greeted.
    expected: Option<&'static [Role]>,
    /// Who it is.
    role: Option<Role>,
    /// Whether something came since this was last asked.
    heard: bool,
    /// Whether it is waited for room in it.
    waits: bool,
    /// Whether there is something to read, where it is said when there is; else it is looked each time.
    readable: Option<bool>,
}

/// What another process needs to go on with a connection, beside its socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamSnapshot {
    role: Option<Role>,
    #[serde(with = "serde_bytes")]
    inbox: Vec<u8>,
    #[serde(with = "serde_bytes")]
    outbox: Vec<u8>,
}

impl Stream {
    /// What another process needs to go on with it: `None` with TLS, whose keys are nobody else's.
    pub fn carry(&self) -> Option<StreamSnapshot> {
        let (inbox, outbox) = (self.inbox.rest().to_vec(), self.outbox.rest().to_vec());
        self.socket.is_plain().then_some(StreamSnapshot { role: self.role, inbox, outbox })
    }

    /// Goes on with a connection of another process, which was plain. Who has not greeted yet is one of `expected`.
    pub fn resume(
        socket: TcpStream,
        security: &Security,
        expected: &'static [Role],
        carried: StreamSnapshot,
    ) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let mut outbox = FrameWriter::default();
        outbox.raw(&carried.outbox);
        Ok(Stream {
            peer: socket.peer_addr().ok(),
            socket: Socket::new(socket, None),
            security: security.clone(),
            inbox: FrameReader::with(carried.inbox),
            outbox,
            expected: carried.role.is_none().then_some(expected),
            role: carried.role,
            heard: true,
            waits: false,
            readable: None,
        })
    }

    /// A connection that was taken, this side of it having a role and expecting one of some others.
    pub fn accepted(
        socket: TcpStream,
        security: &Security,
        own: Role,
        expected: &'static [Role],
    ) -> std::io::Result<Self> {
        let peer = socket.peer_addr().ok();
        let tls = security.accepting(expected).map_err(Error::other)?;
        Stream::new(socket, peer, (security, tls), (own, expected))
    }

    /// A connection that is being made: what is put into it leaves when it is there.
    pub fn connect(
        address: SocketAddr,
        security: &Security,
        own: Role,
        expected: &'static [Role],
    ) -> std::io::Result<Self> {
        let tls = security.connecting(expected).map_err(Error::other)?;
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Stream::new(socket.into(), Some(address), (security, tls), (own, expected))
    }

    fn new(
        socket: TcpStream,
        peer: Option<SocketAddr>,
        (security, tls): (&Security, Option<Connection>),
        (own, expected): (Role, &'static [Role]),
    ) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Frames are gathered here; what is written is to leave.
        socket.set_nodelay(true)?;
        let mut outbox = FrameWriter::default();
        outbox.raw(&Greeting::of(own).encode());
        Ok(Stream {
            socket: Socket::new(socket, tls),
            peer,
            security: security.clone(),
            inbox: FrameReader::default(),
            outbox,
            expected: Some(expected),
            role: None,
            heard: true,
            waits: false,
            readable: None,
        })
    }

    /// Who the other end is, once it has greeted.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// The other end.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.tcp().as_fd()
    }

    /// Puts a message into what is to be sent; how many octets.
    pub fn put(&mut self, message: &impl Serialize) -> usize {
        self.outbox.put(message).unwrap_or(0)
    }

    /// The same for messages that are frames already.
    pub fn frames(&mut self, frames: &FrameWriter) {
        self.outbox.raw(frames.rest());
    }

    /// Octets that wait to be sent: about as many, where they are encrypted.
    pub fn unsent(&self) -> usize {
        self.outbox.len() + usize::from(self.socket.is_waiting())
    }

    /// Whether something would be sent if there were room.
    pub fn wants_room(&self) -> bool {
        self.socket.is_waiting() || self.socket.is_open() && !self.outbox.is_empty()
    }

    /// Sends what the connection takes.
    pub fn flush(&mut self) -> Result<(), FrameError> {
        self.socket.push()?;
        if self.outbox.is_empty() {
            return Ok(());
        }
        Ok(self.outbox.drain(&mut self.socket)?)
    }

    /// Sends what the connection takes; who waits for this one by a token is told of room in it while something is left.
    pub fn flush_at(&mut self, epoll: &OwnedFd, token: u64) -> Result<(), FrameError> {
        self.flush()?;
        let waits = self.wants_room();
        if waits != self.waits {
            let flags = if waits { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(epoll, self.fd(), epoll::EventData::new_u64(token), flags).map_err(Error::from)?;
            self.waits = waits;
        }
        Ok(())
    }

    /// Whether there is something to read (or an end to see). Who says so once says so each time: in between nothing is read.
    pub fn tell_readable(&mut self, readable: bool) {
        self.readable = Some(readable);
    }

    /// Reads a piece, if there is one; how many octets.
    pub fn fill(&mut self) -> Result<usize, FrameError> {
        if self.readable == Some(false) {
            return Ok(0);
        }
        let filled = self.inbox.fill(&mut self.socket);
        if self.readable.is_some() {
            // Less than there was room for is all.
            self.readable = Some(self.inbox.is_full() || self.socket.is_over());
        }
        if let Err(error @ FrameError::Insecure(_)) = &filled {
            self.security.refuses(self.peer, error);
        }
        let read = filled?;
        self.heard |= read > 0;
        Ok(read)
    }

    /// The next frame.
    pub fn frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if let Some(expected) = self.expected {
            match self.greeted(expected) {
                Ok(None) => return Ok(None),
                Ok(role) => (self.expected, self.role) = (None, role),
                Err(error) => {
                    // So that the other end sees whom it speaks to, too.
                    let _ = self.flush();
                    let error = error.into();
                    self.security.refuses(self.peer, &error);
                    return Err(error);
                }
            }
        }
        self.inbox.frame()
    }

    /// Who greets, once somebody has.
    fn greeted(&mut self, expected: &[Role]) -> Result<Option<Role>, GreetingError> {
        if self.inbox.first().is_some_and(|first| TLS.contains(&first)) {
            return Err(GreetingError::Tls);
        }
        let Some(octets) = self.inbox.raw::<GREETING>() else { return Ok(None) };
        // One version is all there is so far: nothing depends on which it is.
        let greeting = Greeting::decode(&octets)?;
        greeting.agree(expected)?;
        if !self.security.may_be(self.socket.connection(), greeting.role) {
            return Err(GreetingError::Certificate(greeting.role));
        }
        Ok(Some(greeting.role))
    }

    /// Whether something came since this was last asked.
    pub fn was_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }
}

#[cfg(test)]
mod tests;
