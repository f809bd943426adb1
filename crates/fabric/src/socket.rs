//! Non-blocking transport of a connection: TCP, or TLS over TCP.

use super::tls::TlsPeerError;
use rustls::Connection;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// First byte of the fabric's greeting; no TLS record starts with it.
const PLAIN: u8 = super::MAGIC[0];
/// TLS alert (RFC 8446 6.2): a fatal `handshake_failure`. It shows a peer without TLS what is
/// required.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// Maximum bytes of a record and of data that may arrive with it. With this much room no data
/// remains in TLS, for which the socket would not become readable.
const ROOM: usize = 24 << 10;

/// Socket with or without TLS.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsConnection>),
}

/// TLS connection over a TCP socket.
#[derive(Debug)]
pub(super) struct TlsConnection {
    connection: Connection,
    tcp: TcpStream,
    /// True if the first byte was received and may be TLS.
    begun: bool,
    /// Error that ends the connection once all data before it is consumed.
    over: Option<io::Error>,
}

impl Socket {
    /// Creates a socket that does not block, with or without TLS.
    pub(super) fn new(tcp: TcpStream, connection: Option<Connection>) -> Self {
        match connection {
            None => Socket::Plain(tcp),
            Some(connection) => Socket::Tls(Box::new(TlsConnection { connection, tcp, begun: false, over: None })),
        }
    }

    /// Returns true if another process can continue the connection: TLS state exists only in this
    /// process.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Socket::Plain(_))
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(secured) => &secured.tcp,
        }
    }

    /// Returns the TLS connection, if there is one.
    pub(super) fn connection(&self) -> Option<&Connection> {
        match self {
            Socket::Plain(_) => None,
            Socket::Tls(secured) => Some(&secured.connection),
        }
    }

    /// Returns true if the connection holds bytes that were not sent.
    pub(super) fn is_waiting(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(secured) => secured.connection.wants_write(),
        }
    }

    /// Returns true if the connection accepts data. A TLS connection does not before both peers are
    /// authenticated.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Socket::Plain(_) => true,
            Socket::Tls(secured) => !secured.connection.is_handshaking(),
        }
    }

    /// Returns true if an error is pending that the socket would not signal.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(secured) => secured.over.is_some(),
        }
    }

    /// Sends pending TLS data as far as the socket accepts it.
    pub(super) fn push(&mut self) -> io::Result<()> {
        match self {
            Socket::Plain(_) => Ok(()),
            Socket::Tls(secured) => secured.push(),
        }
    }
}

impl TlsConnection {
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

    /// Checks the first byte. Returns false at the end of the stream.
    fn begins(&mut self) -> io::Result<bool> {
        if !self.begun {
            let mut first = [0];
            if self.tcp.peek(&mut first)? == 0 {
                return Ok(false);
            }
            if first[0] == PLAIN {
                // Read, so that the peer does not receive a reset.
                let _ = self.tcp.read(&mut [0; 4096]);
                let _ = self.tcp.write(&ALERT);
                return Err(io::Error::other(TlsPeerError::Plain));
            }
            self.begun = true;
        }
        Ok(true)
    }

    /// Reads decrypted data.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let mut taken = 0;
        while taken < to.len() {
            match self.connection.reader().read(&mut to[taken..]) {
                Ok(octets) if octets > 0 => taken += octets,
                // No more data for the moment, or the end: the connection itself reports which.
                _ => break,
            }
        }
        taken
    }

    /// Receives one piece of TLS data. Returns false at the end of the stream.
    fn piece(&mut self) -> io::Result<bool> {
        if self.connection.read_tls(&mut self.tcp)? == 0 {
            return Ok(false);
        }
        let processed = self.connection.process_new_packets();
        // Sends answers, or the alert with the error.
        let pushed = self.push();
        processed.map_err(|error| io::Error::other(TlsPeerError::Tls(error)))?;
        pushed.map(|()| true)
    }
}

impl Read for TlsConnection {
    /// Reads as from a non-blocking socket, into a buffer of at least [`ROOM`] bytes.
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
                // The next read returns the end again.
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

impl Write for TlsConnection {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.push()?;
        // TLS holds one piece at a time, so that unsent data is bounded.
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
