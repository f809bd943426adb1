use super::TooLong;
use super::header::{FLAG_SEID, MessageType};
use super::ie::{self, Element};
use super::rule::{UpdateFar, UpdateForwardingParameters};
use super::value::{FSeid, OuterHeaderCreation};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

const VERSION_1: u8 = 1 << 5;
/// Number of octets that the Message Length excludes.
const UNCOUNTED: usize = 4;

/// Encoder of one message at the end of a buffer, element by element. It allocates only to grow the
/// buffer.
#[derive(Debug)]
pub struct Builder<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> Builder<'b> {
    /// Starts a message. `seid` is the receiver's SEID in session-related messages (0 while
    /// unknown), and `None` in node-related ones. Only the low 24 bits of `sequence` are used.
    pub fn new(out: &'b mut Vec<u8>, kind: MessageType, seid: Option<u64>, sequence: u32) -> Self {
        let start = out.len();
        let flags = VERSION_1 | if seid.is_some() { FLAG_SEID } else { 0 };
        out.extend_from_slice(&[flags, kind.0, 0, 0]);
        if let Some(seid) = seid {
            out.extend_from_slice(&seid.to_be_bytes());
        }
        out.extend_from_slice(&(sequence << 8).to_be_bytes());
        Builder { out, start }
    }

    /// Appends an element.
    pub fn put<T: Element>(&mut self, element: &T) -> &mut Self {
        ie::put(self.out, element);
        self
    }

    /// Appends an element of any type with this content. The content of a vendor's element starts
    /// with the Enterprise ID.
    pub fn put_raw(&mut self, id: u16, content: &[u8]) -> &mut Self {
        let at = ie::open(self.out, id);
        self.out.extend_from_slice(content);
        ie::close(self.out, at);
        self
    }

    /// Appends a grouped element with the members that `members` appends.
    pub fn group(&mut self, id: u16, members: impl FnOnce(&mut Builder<'_>)) -> &mut Self {
        let at = ie::open(self.out, id);
        members(&mut Builder { out: self.out, start: self.start });
        ie::close(self.out, at);
        self
    }

    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Sets the length of the message.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is too long, and removes it from the buffer.
    pub fn finish(self) -> Result<(), TooLong> {
        let total = self.out.len() - self.start;
        let Ok(length) = u16::try_from(total - UNCOUNTED) else {
            self.out.truncate(self.start);
            return Err(TooLong(total));
        };
        self.out[self.start + 2..self.start + UNCOUNTED].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// Overwrites the sequence number (24 bits) of an encoded message. Returns false if the octets are
/// shorter than a header.
pub fn set_sequence(message: &mut [u8], sequence: u32) -> bool {
    let at = match message.first() {
        Some(flags) if flags & FLAG_SEID != 0 => 12,
        Some(_) => 4,
        None => return false,
    };
    let [_, a, b, c] = sequence.to_be_bytes();
    message.get_mut(at..at + 3).is_some_and(|field| {
        field.copy_from_slice(&[a, b, c]);
        true
    })
}

/// Overwrites the SEID of an encoded message. Returns false if it has none.
pub fn set_seid(message: &mut [u8], seid: u64) -> bool {
    let has_one = message.first().is_some_and(|flags| flags & FLAG_SEID != 0);
    let field = if has_one { message.get_mut(4..12) } else { None };
    field.is_some_and(|field| {
        field.copy_from_slice(&seid.to_be_bytes());
        true
    })
}

/// Sets the only address of the first F-SEID in an encoded message. The sender receives the peer's
/// messages about the session there. Returns false if there is no F-SEID, or a preceding element is
/// malformed.
pub fn set_f_seid_address(message: &mut Vec<u8>, address: IpAddr) -> bool {
    let Some(place) = element_of(message, FSeid::ID) else { return false };
    let Ok(before) = FSeid::decode(&message[place.clone()]) else { return false };
    let after = FSeid::new(before.seid, address);
    if after == before {
        return true;
    }
    let mut content = Vec::new();
    after.encode(&mut content);
    let Ok(length) = u16::try_from(message.len() - place.len() + content.len() - UNCOUNTED) else { return false };
    message[2..UNCOUNTED].copy_from_slice(&length.to_be_bytes());
    message[place.start - 2..place.start].copy_from_slice(&(content.len() as u16).to_be_bytes());
    message.splice(place, content);
    true
}

/// Sets the address of the tunnel in the first Update FAR of an encoded message, if it is 0.0.0.0:
/// the tunnel then ends at the control plane, and its author may not know which endpoint sends the
/// message. Returns true if it was set.
pub fn set_tunnel_address(message: &mut [u8], address: Ipv4Addr) -> bool {
    let tunnel = element_of(message, UpdateFar::ID)
        .and_then(|far| element_in(message, far, UpdateForwardingParameters::ID))
        .and_then(|parameters| element_in(message, parameters, OuterHeaderCreation::ID));
    // Description, TEID and IPv4 address (TS 29.244 8.2.56).
    match tunnel.and_then(|tunnel| message.get_mut(tunnel)) {
        Some([1, 0, _, _, _, _, ip @ ..]) if *ip == [0; 4] => {
            ip.copy_from_slice(&address.octets());
            true
        }
        _ => false,
    }
}

/// Returns the position of the content of a message's first element of this type.
fn element_of(message: &[u8], wanted: u16) -> Option<Range<usize>> {
    let start = if message.first()? & FLAG_SEID != 0 { 16 } else { 8 };
    element_in(message, start..message.len(), wanted)
}

/// Returns the position of the content of the first element of this type in a part of a message.
fn element_in(message: &[u8], part: Range<usize>, wanted: u16) -> Option<Range<usize>> {
    let mut at = part.start;
    loop {
        let (&[t1, t2, l1, l2], rest) = message.get(at..part.end)?.split_first_chunk()?;
        let (id, length) = (u16::from_be_bytes([t1, t2]), usize::from(u16::from_be_bytes([l1, l2])));
        rest.get(..length)?;
        if id == wanted {
            return Some(at + 4..at + 4 + length);
        }
        at += 4 + length;
    }
}
