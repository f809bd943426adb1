//! One non-blocking connection of the fabric: greetings, then frames in both directions.

use super::frame::{FrameError, FrameReader, FrameWriter};
use super::socket::Socket;
use super::{GREETING, Greeting, GreetingError, OLDEST, Role, Security, TLS};
use rustix::event::epoll;
use rustls::Connection;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Type};
use std::io::Error;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Connection of the fabric with its buffers.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    peer: Option<SocketAddr>,
    security: Security,
    inbox: FrameReader,
    outbox: FrameWriter,
    /// Permitted roles of the peer; `None` once it has greeted.
    expected: Option<&'static [Role]>,
    /// Role of the peer.
    role: Option<Role>,
    /// Version that both sides use. It is the oldest one until the peer has greeted, and in a
    /// process that continues the connection of another one.
    version: u16,
    /// True if data was received since the last query.
    received: bool,
    /// True if epoll waits for room in the socket.
    waits: bool,
    /// Readability, if the caller reports it; `None`: each call reads.
    readable: Option<bool>,
}

/// Returns the connection that makes room for another one, of those whose peer has not greeted: so
/// many of one machine, which need no certificate, keep no member away. `streams` begins with the
/// oldest.
pub fn to_displace<'s, K: Copy>(streams: impl Iterator<Item = (K, &'s Stream)>) -> Option<K> {
    let strangers = streams.filter(|(_, stream)| stream.role.is_none());
    vireo_types::to_displace(strangers.map(|(key, stream)| (key, stream.peer.map(|peer| peer.ip()))))
}

/// State that another process needs, beside the socket, to continue a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamSnapshot {
    role: Option<Role>,
    #[serde(with = "serde_bytes")]
    inbox: Vec<u8>,
    #[serde(with = "serde_bytes")]
    outbox: Vec<u8>,
}

impl Stream {
    /// Returns the state for another process; `None` with TLS, whose keys cannot be passed on.
    pub fn snapshot(&self) -> Option<StreamSnapshot> {
        let (inbox, outbox) = (self.inbox.unconsumed().to_vec(), self.outbox.unsent().to_vec());
        self.socket.is_plain().then_some(StreamSnapshot { role: self.role, inbox, outbox })
    }

    /// Continues a connection of another process without TLS. A peer that has not greeted must have
    /// one of the `expected` roles.
    pub fn resume(
        socket: TcpStream,
        security: &Security,
        expected: &'static [Role],
        snapshot: StreamSnapshot,
    ) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        let mut outbox = FrameWriter::default();
        outbox.raw(&snapshot.outbox);
        Ok(Stream {
            peer: socket.peer_addr().ok(),
            socket: Socket::new(socket, None),
            security: security.clone(),
            inbox: FrameReader::with_received(snapshot.inbox),
            outbox,
            expected: snapshot.role.is_none().then_some(expected),
            role: snapshot.role,
            version: OLDEST,
            received: true,
            waits: false,
            readable: None,
        })
    }

    /// Wraps an accepted connection; `own` is the role of this side, `expected` the permitted roles
    /// of the peer.
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

    /// Starts a connection: messages are sent once it is established.
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
        // Frames are buffered here; written data must leave immediately.
        socket.set_nodelay(true)?;
        let mut outbox = FrameWriter::default();
        outbox.raw(&Greeting::new(own).encode());
        Ok(Stream {
            socket: Socket::new(socket, tls),
            peer,
            security: security.clone(),
            inbox: FrameReader::default(),
            outbox,
            expected: Some(expected),
            role: None,
            version: OLDEST,
            received: true,
            waits: false,
            readable: None,
        })
    }

    /// Returns the role of the peer, once it has greeted.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// Returns the version whose messages the peer decodes.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.tcp().as_fd()
    }

    /// Appends a message to the output and returns its length in bytes.
    pub fn put(&mut self, message: &impl Serialize) -> usize {
        self.outbox.put(message).unwrap_or(0)
    }

    /// Appends messages that are already frames.
    pub fn frames(&mut self, frames: &FrameWriter) {
        self.outbox.raw(frames.unsent());
    }

    /// Returns the number of unsent bytes, approximately with TLS.
    pub fn unsent(&self) -> usize {
        self.outbox.len() + usize::from(self.socket.is_waiting())
    }

    /// Returns true if data would be sent if the socket had room.
    pub fn has_unwritten(&self) -> bool {
        self.socket.is_waiting() || self.socket.is_open() && !self.outbox.is_empty()
    }

    /// Sends as much as the socket accepts.
    pub fn flush(&mut self) -> Result<(), FrameError> {
        self.socket.push()?;
        if self.outbox.is_empty() {
            return Ok(());
        }
        Ok(self.outbox.drain(&mut self.socket)?)
    }

    /// Sends as much as the socket accepts. While data remains, the epoll registration with this
    /// token also waits for room.
    pub fn flush_at(&mut self, epoll: &OwnedFd, token: u64) -> Result<(), FrameError> {
        self.flush()?;
        let waits = self.has_unwritten();
        if waits != self.waits {
            let flags = if waits { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(epoll, self.fd(), epoll::EventData::new_u64(token), flags).map_err(Error::from)?;
            self.waits = waits;
        }
        Ok(())
    }

    /// Reports whether the socket is readable (data or end). A caller that reports it once must
    /// always do so: reads are skipped otherwise.
    pub fn set_readable(&mut self, readable: bool) {
        self.readable = Some(readable);
    }

    /// Reads once, if data may be there; returns the number of bytes.
    pub fn fill(&mut self) -> Result<usize, FrameError> {
        if self.readable == Some(false) {
            return Ok(0);
        }
        let filled = self.inbox.fill(&mut self.socket);
        if self.readable.is_some() {
            // A read that does not fill the buffer has returned all data.
            self.readable = Some(self.inbox.is_full() || self.socket.is_over());
        }
        if let Err(error @ FrameError::Insecure(_)) = &filled {
            self.security.refuses(self.peer, error);
        }
        let read = filled?;
        self.received |= read > 0;
        Ok(read)
    }

    /// Returns the next frame.
    pub fn frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if self.receive_greeting()? { self.inbox.frame() } else { Ok(None) }
    }

    /// Takes all received data behind the greeting, so that its messages can be handled while this
    /// stream sends. The caller returns it with [`Stream::return_frames`] before the next read.
    pub fn take_frames(&mut self) -> Result<Option<FrameReader>, FrameError> {
        Ok(self.receive_greeting()?.then(|| std::mem::take(&mut self.inbox)))
    }

    /// Returns the data of [`Stream::take_frames`], of which frames may be consumed.
    pub fn return_frames(&mut self, frames: FrameReader) {
        self.inbox = frames;
    }

    /// Returns true if the peer has greeted.
    fn receive_greeting(&mut self) -> Result<bool, FrameError> {
        let Some(expected) = self.expected else { return Ok(true) };
        match self.read_greeting(expected) {
            Ok(None) => return Ok(false),
            Ok(Some((role, version))) => (self.expected, self.role, self.version) = (None, Some(role), version),
            Err(error) => {
                // The peer must receive this greeting too, to see the roles.
                let _ = self.flush();
                let error = error.into();
                self.security.refuses(self.peer, &error);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Returns the role of the peer and the common version, once its greeting is complete.
    fn read_greeting(&mut self, expected: &[Role]) -> Result<Option<(Role, u16)>, GreetingError> {
        if self.inbox.first().is_some_and(|first| TLS.contains(&first)) {
            return Err(GreetingError::Tls);
        }
        let Some(octets) = self.inbox.raw::<GREETING>() else { return Ok(None) };
        let greeting = Greeting::decode(&octets)?;
        let version = greeting.agree(expected)?;
        if !self.security.may_be(self.socket.connection(), greeting.role) {
            return Err(GreetingError::Certificate(greeting.role));
        }
        Ok(Some((greeting.role, version)))
    }

    /// Returns true if data was received since the last call.
    pub fn take_received(&mut self) -> bool {
        std::mem::take(&mut self.received)
    }
}

#[cfg(test)]
mod tests;
