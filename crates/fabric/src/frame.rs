//! Frames: length and message, several per read or write.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use vireo_core::postcard_writer;

/// Maximum length of a message in bytes: the largest one is the whole context of a UE with its
/// effects.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Number of bytes requested per read.
const READ: usize = 64 << 10;
const LENGTH: usize = 4;

/// Error that ends a connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Frame length above the maximum.
    #[error("frame of {0} bytes; {MAX_FRAME_BYTES} are allowed")]
    Length(usize),
    /// Content that is not a message of this version.
    #[error("a message that does not decode")]
    Message,
    /// The greeting refuses the peer.
    #[error(transparent)]
    Greeting(#[from] super::GreetingError),
    /// The peer has not proved that it is a member.
    #[error(transparent)]
    Insecure(super::TlsPeerError),
    /// Error of the socket.
    #[error("{0}")]
    Io(io::Error),
    /// The peer closed the connection.
    #[error("it was closed")]
    Closed,
    /// The peer refuses this member; contains its reason.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        error.downcast().map_or_else(FrameError::Io, FrameError::Insecure)
    }
}

impl FrameError {
    /// Returns true if the error lasts as long as the configurations of the members do not change.
    pub fn is_permanent(&self) -> bool {
        matches!(self, FrameError::Greeting(_) | FrameError::Insecure(_))
    }

    /// Returns true if the peer's machine answered that no process is there: the path to it works.
    pub fn is_connection_refused(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset};
        match self {
            FrameError::Closed => true,
            FrameError::Io(error) => matches!(error.kind(), ConnectionRefused | ConnectionReset),
            _ => false,
        }
    }
}

/// Input buffer of a connection: received and not yet consumed bytes.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Buffer; `from..end` is in use.
    octets: Vec<u8>,
    from: usize,
    end: usize,
}

impl FrameReader {
    /// Reads once from the source and returns the number of bytes. Stores at most one frame and one
    /// read.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Closed`] at the end of the stream, and errors of the source. A source
    /// without data is no error.
    pub fn fill(&mut self, source: &mut impl Read) -> Result<usize, FrameError> {
        if self.octets.len() - self.end < READ {
            self.octets.copy_within(self.from..self.end, 0);
            (self.from, self.end) = (0, self.end - self.from);
            if self.octets.len() - self.end < READ {
                self.octets.resize(self.end + READ, 0);
            }
        }
        loop {
            return match source.read(&mut self.octets[self.end..]) {
                Ok(0) => Err(FrameError::Closed),
                Ok(octets) => {
                    self.end += octets;
                    Ok(octets)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Returns all received and not yet consumed bytes.
    pub fn unconsumed(&self) -> &[u8] {
        &self.octets[self.from..self.end]
    }

    /// Creates a reader that has received these bytes.
    pub fn with_received(octets: Vec<u8>) -> Self {
        FrameReader { end: octets.len(), octets, from: 0 }
    }

    /// Returns true if the last read filled the buffer: there may be more data.
    pub fn is_full(&self) -> bool {
        self.end == self.octets.len()
    }

    /// Consumes the next bytes, which are not a frame; `None` until they are complete.
    pub fn raw<const N: usize>(&mut self) -> Option<[u8; N]> {
        let octets = *self.octets[self.from..self.end].first_chunk::<N>()?;
        self.from += N;
        Some(octets)
    }

    /// Returns the next byte without consuming it.
    pub fn first(&self) -> Option<u8> {
        self.octets[self.from..self.end].first().copied()
    }

    /// Returns the next complete frame.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Length`] if the length exceeds the maximum.
    pub fn frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some((length, rest)) = self.octets[self.from..self.end].split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::Length(length));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let at = self.from + LENGTH;
        self.from = at + length;
        Ok(Some(&self.octets[at..at + length]))
    }
}

/// Decodes the message of a frame.
///
/// # Errors
///
/// Returns an error if the content is not exactly one message.
pub fn decode<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Message),
    }
}

/// Output buffer of a connection: bytes to send.
#[derive(Debug, Default)]
pub struct FrameWriter {
    octets: Vec<u8>,
    from: usize,
}

impl FrameWriter {
    /// Creates a writer with an initial capacity in bytes.
    pub fn with_capacity(octets: usize) -> Self {
        FrameWriter { octets: Vec::with_capacity(octets), from: 0 }
    }

    /// Appends bytes that are not a frame.
    pub fn raw(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Appends a frame and returns its length in bytes. A message that cannot be encoded or is too
    /// long is dropped.
    pub fn put(&mut self, message: &impl Serialize) -> Option<usize> {
        let start = self.octets.len();
        self.octets.extend_from_slice(&[0; LENGTH]);
        // Messages always encode: their strings and sequences have known lengths.
        if postcard_writer::to_vec(message, &mut self.octets).is_err() {
            self.octets.truncate(start);
            return None;
        }
        let length = self.octets.len() - start - LENGTH;
        if length > MAX_FRAME_BYTES {
            tracing::error!(octets = length, "bug: fabric message too long; not sent");
            self.octets.truncate(start);
            return None;
        }
        self.octets[start..start + LENGTH].copy_from_slice(&(length as u32).to_be_bytes());
        Some(length + LENGTH)
    }

    /// Returns all bytes that wait to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.octets[self.from..]
    }

    /// Returns the number of bytes that wait.
    pub fn len(&self) -> usize {
        self.octets.len() - self.from
    }

    /// Returns true if no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes as much as the sink accepts.
    ///
    /// # Errors
    ///
    /// Returns errors of the sink. A sink without room is no error.
    pub fn drain(&mut self, sink: &mut impl Write) -> io::Result<()> {
        while self.from < self.octets.len() {
            match sink.write(&self.octets[self.from..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.from += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.from == self.octets.len() {
            self.octets.clear();
            self.from = 0;
        } else if self.from > MAX_FRAME_BYTES {
            self.octets.drain(..self.from);
            self.from = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reader that returns one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Err(io::ErrorKind::WouldBlock.into()) };
            to[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn split_frames_arrive_whole_and_in_order() {
        let mut outbox = FrameWriter::default();
        let messages: Vec<Vec<u8>> = [0, 1, 5, 70_000].map(|length| vec![length as u8; length]).into();
        messages.iter().for_each(|message| assert!(outbox.put(message).is_some()));
        let mut wire = Vec::new();
        outbox.drain(&mut wire).unwrap();
        assert!(outbox.is_empty());
        let (mut slow, mut inbox, mut seen) = (Slow(&wire), FrameReader::default(), Vec::new());
        loop {
            let read = inbox.fill(&mut slow).unwrap();
            while let Some(frame) = inbox.frame().unwrap() {
                seen.push(decode::<Vec<u8>>(frame).unwrap());
            }
            if read == 0 {
                break;
            }
        }
        assert_eq!(seen, messages);
    }

    #[test]
    fn oversized_frame_is_refused() {
        let mut inbox = FrameReader::default();
        inbox.fill(&mut &[0x7f, 0xff, 0xff, 0xff, 1][..]).unwrap();
        assert!(matches!(inbox.frame(), Err(FrameError::Length(0x7fff_ffff))));
        assert!(matches!(decode::<u8>(&[1, 2]), Err(FrameError::Message)));
        assert!(matches!(decode::<Vec<u8>>(&[9, 1]), Err(FrameError::Message)));
        assert!(matches!(inbox.fill(&mut &[][..]), Err(FrameError::Closed)));
        assert!(FrameWriter::default().put(&vec![0_u8; MAX_FRAME_BYTES + 1]).is_none());
    }
}
