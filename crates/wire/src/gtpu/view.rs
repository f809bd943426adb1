use super::emit::{G_PDU_HEADER, PLAIN_HEADER};
use super::{MessageType, PduSession};
use vireo_types::Teid;

/// Extension headers that are read in one message before it is refused: more than any interface uses.
pub const EXTENSION_HEADERS: usize = 8;

/// Of [`MessageType::GPdu`].
const G_PDU: u8 = MessageType::GPdu.octet();

/// PDU Session Container (TS 29.281 5.2.1-3).
pub(super) const PDU_SESSION_CONTAINER: u8 = 0x85;

/// Why a datagram is not GTP-U, or not GTP-U that may be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It ends before the header does, or before the Length field says.
    #[error("the datagram is shorter than its header says")]
    Truncated,
    /// Version is not 1, or Protocol Type is GTP' (TS 29.281 5.1).
    #[error("not version 1 of GTP")]
    Version,
    /// An extension header of no length or past the end (TS 29.281 5.2.1).
    #[error("an extension header has a wrong length")]
    ExtensionHeader,
    /// More than [`EXTENSION_HEADERS`] extension headers.
    #[error("too many extension headers")]
    TooManyExtensionHeaders,
    /// A PDU Session Container that TS 38.415 5.5.2 does not allow.
    #[error("the PDU Session Container is malformed")]
    PduSessionContainer,
    /// An extension header of this type must be understood and is not: the peer is to be told by a Supported
    /// Extension Headers Notification (TS 29.281 5.2.1).
    #[error("extension header type {0:#04x} is not supported and its comprehension is required")]
    Unsupported(u8),
}

/// A checked view of one GTP-U message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it is.
    pub kind: MessageType,
    /// The tunnel at the receiver.
    pub teid: Teid,
    /// Sequence Number, where the S flag is set.
    pub sequence: Option<u16>,
    /// The PDU Session Container, where there is one.
    pub pdu_session: Option<PduSession>,
    /// The T-PDU of a G-PDU, the IEs of a signalling message.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads what nearly every datagram on N3 is: a G-PDU with a PDU Session Container as short as it may be and no other
    /// optional field. `None` = it is something else, sound or not: [`Packet::parse`] reads all.
    #[inline]
    pub fn usual(data: &'a [u8]) -> Option<Self> {
        let header: &[u8; G_PDU_HEADER] = data.first_chunk()?;
        let [flags, kind, length_high, length_low, a, b, c, d, _, _, _, next, units, first, second, last] = *header;
        if (flags, kind, next, units, last) != (0b0011_0100, G_PDU, PDU_SESSION_CONTAINER, 1, 0) {
            return None;
        }
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        Some(Packet {
            kind: MessageType::GPdu,
            teid: Teid(u32::from_be_bytes([a, b, c, d])),
            sequence: None,
            pdu_session: Some(pdu_session(&[first, second]).ok()?),
            payload: data.get(G_PDU_HEADER..PLAIN_HEADER + length)?,
        })
    }

    /// Checks and reads a datagram. Octets after the end that the Length field tells are ignored.
    #[inline]
    pub fn parse(data: &'a [u8]) -> Result<Self, ParseError> {
        let Some((header, rest)) = data.split_first_chunk::<8>() else {
            return Err(ParseError::Truncated);
        };
        let [flags, kind, length_high, length_low, teid @ ..] = *header;
        if flags >> 4 != 0b0011 {
            return Err(ParseError::Version);
        }
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        let rest = rest.get(..length).ok_or(ParseError::Truncated)?;
        let mut packet = Packet {
            kind: MessageType::from_octet(kind),
            teid: Teid(u32::from_be_bytes(teid)),
            sequence: None,
            pdu_session: None,
            payload: rest,
        };
        // E, S, PN: one of them brings all three fields, each valid only with its own flag
        if flags & 0b0111 != 0 {
            let Some((optional, rest)) = rest.split_first_chunk::<4>() else {
                return Err(ParseError::Truncated);
            };
            let [sequence @ .., _n_pdu, next] = *optional;
            packet.sequence = (flags & 0b0010 != 0).then(|| u16::from_be_bytes(sequence));
            packet.payload = rest;
            if flags & 0b0100 != 0 {
                packet.read_extension_headers(next)?;
            }
        }
        Ok(packet)
    }

    #[inline]
    fn read_extension_headers(&mut self, mut next: u8) -> Result<(), ParseError> {
        for _ in 0..EXTENSION_HEADERS {
            if next == 0 {
                return Ok(());
            }
            let octets = match self.payload.first() {
                None => return Err(ParseError::Truncated),
                Some(units) => usize::from(*units) * 4,
            };
            if octets == 0 {
                return Err(ParseError::ExtensionHeader);
            }
            let (header, rest) = self.payload.split_at_checked(octets).ok_or(ParseError::ExtensionHeader)?;
            match next {
                PDU_SESSION_CONTAINER => self.pdu_session = Some(pdu_session(&header[1..octets - 1])?),
                // bits 8 and 7 (TS 29.281 figure 5.2.1-2): 1x asks comprehension of the receiving endpoint
                unknown if unknown & 0x80 != 0 => return Err(ParseError::Unsupported(unknown)),
                _ => {}
            }
            next = header[octets - 1];
            self.payload = rest;
        }
        if next == 0 { Ok(()) } else { Err(ParseError::TooManyExtensionHeaders) }
    }
}

/// Reads the frame of TS 38.415 5.5.2.1 or 5.5.2.2 as far as the QFI; what follows is measurement that Vireo does not
/// use, and may grow in later releases.
#[inline]
fn pdu_session(content: &[u8]) -> Result<PduSession, ParseError> {
    let [first, second, ..] = *content else {
        return Err(ParseError::PduSessionContainer);
    };
    let qfi = second & 0x3f;
    match first >> 4 {
        0 => Ok(PduSession::Downlink { qfi, rqi: second & 0x40 != 0 }),
        1 => Ok(PduSession::Uplink { qfi }),
        _ => Err(ParseError::PduSessionContainer),
    }
}
