use super::emit::{G_PDU_HEADER, PLAIN_HEADER};
use super::{MessageType, PduSession};
use vireo_types::Teid;

/// Maximum number of extension headers in a message: more than any interface uses.
pub const EXTENSION_HEADERS: usize = 8;

/// Octet of [`MessageType::GPdu`].
const G_PDU: u8 = MessageType::GPdu.octet();

/// PDU Session Container (TS 29.281 5.2.1-3).
pub(super) const PDU_SESSION_CONTAINER: u8 = 0x85;

/// Reason why a datagram is not GTP-U, or must not be processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The datagram ends before its header, or before the end that the Length field gives.
    #[error("the datagram is shorter than its header says")]
    Truncated,
    /// Version is not 1, or Protocol Type is GTP' (TS 29.281 5.1).
    #[error("not version 1 of GTP")]
    Version,
    /// An extension header has length zero, or exceeds the message (TS 29.281 5.2.1).
    #[error("an extension header has a wrong length")]
    ExtensionHeader,
    /// More than [`EXTENSION_HEADERS`] extension headers.
    #[error("too many extension headers")]
    TooManyExtensionHeaders,
    /// A PDU Session Container that TS 38.415 5.5.2 does not allow.
    #[error("the PDU Session Container is malformed")]
    PduSessionContainer,
    /// The extension header type requires comprehension and is unknown. The receiver must answer
    /// with a Supported Extension Headers Notification (TS 29.281 5.2.1).
    #[error("extension header type {0:#04x} is not supported and its comprehension is required")]
    Unsupported(u8),
}

/// A validated view of one GTP-U message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub kind: MessageType,
    /// TEID at the receiver.
    pub teid: Teid,
    /// Sequence Number, if the S flag is set.
    pub sequence: Option<u16>,
    /// PDU Session Container, if present.
    pub pdu_session: Option<PduSession>,
    /// The T-PDU of a G-PDU, or the IEs of a signalling message.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses the most common datagram on N3: a G-PDU with a PDU Session Container of minimum
    /// length and no other optional field. Returns `None` for all others, valid or not;
    /// [`Packet::parse`] parses them.
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

    /// Validates and parses a datagram. Octets beyond the Length field are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is malformed, or has an unknown extension header that
    /// requires comprehension.
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
        // E, S, PN: any of them adds all three fields, each valid only with its own flag
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
                // bits 8 and 7 (TS 29.281 figure 5.2.1-2): 1x requires comprehension at the
                // receiving endpoint
                unknown if unknown & 0x80 != 0 => return Err(ParseError::Unsupported(unknown)),
                _ => {}
            }
            next = header[octets - 1];
            self.payload = rest;
        }
        if next == 0 { Ok(()) } else { Err(ParseError::TooManyExtensionHeaders) }
    }
}

/// Parses the frame of TS 38.415 5.5.2.1 or 5.5.2.2 up to the QFI. The rest is measurement data
/// that Vireo does not use, and later releases may extend it.
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
