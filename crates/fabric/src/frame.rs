//! Frames: a length and a message, several in one read or write.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use vireo_core::postcard_writer;

/// Octets of a message at most: the largest is the whole context of a UE with what it wants done.
pub const MOST: usize = 1 << 20;
/// Octets that are read in one go.
const READ: usize = 64 << 10;
const LENGTH: usize = 4;

/// What ends a connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A length beyond what there can be.
    #[error("a frame of {0} octets, of at most {MOST}")]
    Length(usize),
    /// Octets that are no message of the version.
    #[error("a message that does not decode")]
    Message,
    /// The peer is not one to talk to.
    #[error(transparent)]
    Greeting(#[from] super::GreetingError),
    /// The peer does not show that it is a member.
    #[error(transparent)]
    Insecure(super::TlsPeerError),
    /// The connection.
    #[error("{0}")]
    Io(io::Error),
    /// The peer has closed it.
    #[error("it was closed")]
    Closed,
    /// The peer said why it does not talk to this one.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        error.downcast().map_or_else(FrameError::Io, FrameError::Insecure)
    }
}

impl FrameError {
    /// Whether it is the same as long as the members' configurations are.
    pub fn stays(&self) -> bool {
        matches!(self, FrameError::Greeting(_) | FrameError::Insecure(_))
    }

    /// Whether the other end's machine has said that nobody is there any more: the way to it is sound.
    pub fn is_an_answer(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset};
        match self {
            FrameError::Closed => true,
            FrameError::Io(error) => matches!(error.kind(), ConnectionRefused | ConnectionReset),
            _ => false,
        }
    }
}

/// What has been received and not been taken.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Room, of which `from..end` is taken.
    octets: Vec<u8>,
    from: usize,
    end: usize,
}

impl FrameReader {
    /// Reads what is there, at most one piece; how many octets. As much is kept as one frame and one piece.
    ///
    /// # Errors
    ///
    /// [`FrameError::Closed`] at the end, and what the source says; that there is nothing now is no error.
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

    /// What has been received and not been taken, octet for octet.
    pub fn rest(&self) -> &[u8] {
        &self.octets[self.from..self.end]
    }

    /// One that has received this.
    pub fn with(octets: Vec<u8>) -> Self {
        FrameReader { end: octets.len(), octets, from: 0 }
    }

    /// Whether the last piece took all the room that there was: there may be more.
    pub fn is_full(&self) -> bool {
        self.end == self.octets.len()
    }

    /// The next octets as they are, for what is no frame; `None` until they are there.
    pub fn raw<const N: usize>(&mut self) -> Option<[u8; N]> {
        let octets = *self.octets[self.from..self.end].first_chunk::<N>()?;
        self.from += N;
        Some(octets)
    }

    /// The next octet, if it is there; it is not taken.
    pub fn first(&self) -> Option<u8> {
        self.octets[self.from..self.end].first().copied()
    }

    /// The next whole frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Length`].
    pub fn frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some((length, rest)) = self.octets[self.from..self.end].split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MOST {
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

/// The message of a frame.
///
/// # Errors
///
/// When it is none, or something follows it.
pub fn decode<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Message),
    }
}

/// What is to be sent and was not.
#[derive(Debug, Default)]
pub struct FrameWriter {
    octets: Vec<u8>,
    from: usize,
}

impl FrameWriter {
    /// One that has room for so many octets before it takes more memory.
    pub fn with_room(octets: usize) -> Self {
        FrameWriter { octets: Vec::with_capacity(octets), from: 0 }
    }

    /// Adds octets as they are.
    pub fn raw(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Adds a frame; how many octets it has. What has no encoding, or is too long, is not added.
    pub fn put(&mut self, message: &impl Serialize) -> Option<usize> {
        let start = self.octets.len();
        self.octets.extend_from_slice(&[0; LENGTH]);
        // A message always encodes: its strings and sequences have known lengths.
        if postcard_writer::to_vec(message, &mut self.octets).is_err() {
            self.octets.truncate(start);
            return None;
        }
        let length = self.octets.len() - start - LENGTH;
        if length > MOST {
            tracing::error!(octets = length, "a message for the fabric is too long and was not sent: please report it");
            self.octets.truncate(start);
            return None;
        }
        self.octets[start..start + LENGTH].copy_from_slice(&(length as u32).to_be_bytes());
        Some(length + LENGTH)
    }

    /// What is to be sent, octet for octet.
    pub fn rest(&self) -> &[u8] {
        &self.octets[self.from..]
    }

    /// Octets that wait.
    pub fn len(&self) -> usize {
        self.octets.len() - self.from
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what the sink takes.
    ///
    /// # Errors
    ///
    /// What the sink says; that it takes nothing now is no error.
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
        } else if self.from > MOST {
            self.octets.drain(..self.from);
            self.from = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out one octet at a time.
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
    fn frames_arrive_whole_and_in_order_however_they_are_cut() {
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
    fn a_length_beyond_the_bound_and_octets_that_are_too_many_are_refused() {
        let mut inbox = FrameReader::default();
        inbox.fill(&mut &[0x7f, 0xff, 0xff, 0xff, 1][..]).unwrap();
        assert!(matches!(inbox.frame(), Err(FrameError::Length(0x7fff_ffff))));
        assert!(matches!(decode::<u8>(&[1, 2]), Err(FrameError::Message)));
        assert!(matches!(decode::<Vec<u8>>(&[9, 1]), Err(FrameError::Message)));
        assert!(matches!(inbox.fill(&mut &[][..]), Err(FrameError::Closed)));
        assert!(FrameWriter::default().put(&vec![0_u8; MOST + 1]).is_none());
    }
}
