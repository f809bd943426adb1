//! What the octets of a connection go over: TCP as it is, or TLS in it. Nothing here waits.

use super::tls::TlsPeerError;
use rustls::Connection;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The first octet of the fabric's greeting, with which no TLS record begins.
const PLAIN: u8 = super::MAGIC[0];
/// An alert of TLS (RFC 8446 6.2): a fatal `handshake_failure`. Who speaks without TLS sees by it what is wanted.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// Octets of a record and what can come with it at most: with so much room nothing is left in TLS, of which no socket would
/// tell.
const ROOM: usize = 24 << 10;

/// Either.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<Secured>),
}

/// A connection with TLS.
#[derive(Debug)]
pub(super) struct Secured {
    connection: Connection,
    tcp: TcpStream,
    /// Something came that may be TLS.
    begun: bool,
    /// What ends it, once all that came before is taken.
    over: Option<io::Error>,
}

impl Socket {
    /// A connection that does not block, with TLS or without.
    pub(super) fn new(tcp: TcpStream, connection: Option<Connection>) -> Self {
        match connection {
            None => Socket::Plain(tcp),
            Some(connection) => Socket::Tls(Box::new(Secured { connection, tcp, begun: false, over: None })),
        }
    }

    /// Whether another process can go on with it: TLS is in this one.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Socket::Plain(_))
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(secured) => &secured.tcp,
        }
    }

    /// TLS, if it has it.
    pub(super) fn connection(&self) -> Option<&Connection> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(secured) => Some(&secured.connection),
        }
    }

    /// Whether octets are in it that the other end was not sent.
    pub(super) fn is_waiting(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(secured) => secured.connection.wants_write(),
        }
    }

    /// Whether it takes something as soon as the other end does: not before each side knows who the other is.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Socket::Plain(_) => true,
            Socket::Tls(secured) => !secured.connection.is_handshaking(),
        }
    }

    /// Whether something is in it that the other end of its socket would not tell of: why it is over.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(secured) => secured.over.is_some(),
        }
    }

    /// What is in it leaves, as far as there is room.
    pub(super) fn push(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(_) => Ok(()),
            Socket::Tls(secured) => secured.push(),
        }
    }
}

impl Secured {
    fn push(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.tcp) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks at the first octet that comes. Whether there is one.
    fn begins(&mut self) -> io::Result<bool> {
        if !self.begun {
            let mut first = [0];
            if self.tcp.peek(&mut first)? == 0 {
                return Ok(false);
            }
            if first[0] == PLAIN {
                // Taken, so that it is not a reset that the other end gets.
                let _ = self.tcp.read(&mut [0; 4096]);
                let _ = self.tcp.write(&ALERT);
                return Err(io::Error::other(TlsPeerError::Plain));
            }
            self.begun = true;
        }
        Ok(true)
    }

    /// What TLS has ready.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let mut taken = 0;
        while taken < to.len() {
            match self.connection.reader().read(&mut to[taken..]) {
                Ok(octets) if octets > 0 => taken += octets,
                // Nothing more now, or for ever: the connection itself says which.
                _ => break,
            }
        }
        taken
    }

    /// Takes a piece of what came. Whether there was one; false at the end.
    fn piece(&mut self) -> io::Result<bool> {
        if self.connection.read_tls(&mut self.tcp)? == 0 {
            return Ok(false);
        }
        let processed = self.connection.process_new_packets();
        // Answers, or the alert that says what is wrong.
        let pushed = self.push();
        processed.map_err(|error| io::Error::other(TlsPeerError::Tls(error)))?;
        pushed.map(|()| true)
    }
}

impl Read for Secured {
    /// As of a socket that does not block; into room for [`ROOM`] octets at least.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.over.take() {
            return Err(error);
        }
        if !self.begins()? {
            return Ok(0);
        }
        let mut read = 0;
        loop {
            read += self.take(&mut to[read..]);
            if read > 0 && to.len() - read < ROOM {
                return Ok(read);
            }
            match self.piece() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The end is there the next time, too.
                Ok(false) => return Ok(read),
                Err(error) if read == 0 => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(read),
                Err(error) => {
                    self.over = Some(error);
                    return Ok(read);
                }
            }
        }
    }
}

impl Write for Secured {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.push()?;
        // One piece at a time is in it, so that what is not sent is bounded.
        if self.connection.is_handshaking() || self.connection.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = self.connection.writer().write(octets)?;
        self.push()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}

impl Read for Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => tcp.read(to),
            Socket::Tls(secured) => secured.read(to),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(tcp) => tcp.write(octets),
            Socket::Tls(secured) => secured.write(octets),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}
