use super::ie::{EXTENSION_HEADER_TYPE_LIST, GSN_ADDRESS, RECOVERY, TEID_DATA_I};
use super::view::PDU_SESSION_CONTAINER;
use super::{MessageType, PduSession};
use std::net::IpAddr;
use vireo_types::Teid;

/// Size in octets of a G-PDU header with a PDU Session Container, as on N3.
pub const G_PDU_HEADER: usize = 16;
/// Size in octets of a header without optional fields.
pub const PLAIN_HEADER: usize = 8;
/// Sufficient buffer size in octets for any signalling message of this file.
pub const SIGNALLING_OCTETS: usize = 40;

const VERSION_1: u8 = 0b0011_0000;
const E: u8 = 0b0000_0100;
const S: u8 = 0b0000_0010;

/// Reason why a message was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The headroom before the payload, or the buffer, is too small.
    #[error("no room for the GTP-U header")]
    Room,
    /// The payload exceeds the range of the Length field.
    #[error("the packet is too long for GTP-U")]
    TooLong,
}

/// Returns the header of a G-PDU with a PDU Session Container, for a T-PDU of `payload` octets.
/// Returns `None` if that exceeds the range of the Length field. The QFI is truncated to 6 bits.
#[inline]
pub fn g_pdu_header(teid: Teid, session: PduSession, payload: usize) -> Option<[u8; G_PDU_HEADER]> {
    let length = u16::try_from(payload + G_PDU_HEADER - PLAIN_HEADER).ok()?;
    let (pdu_type, flow) = match session {
        PduSession::Downlink { qfi, rqi } => (0x00, u8::from(rqi) << 6 | qfi & 0x3f),
        PduSession::Uplink { qfi } => (0x10, qfi & 0x3f),
    };
    // one word: reading octets together right after writing them one by one stalls the processor
    let word = |octets: [u8; 2]| u64::from(u16::from_be_bytes(octets));
    let fixed = word([VERSION_1 | E, MessageType::GPdu.octet()]) << 48;
    let first = fixed | u64::from(length) << 32 | u64::from(teid.0);
    let second = word([0, PDU_SESSION_CONTAINER]) << 32 | word([1, pdu_type]) << 16 | word([flow, 0]);
    Some((u128::from(first) << 64 | u128::from(second)).to_be_bytes())
}

/// Returns the header of a G-PDU without optional fields (S1-U, or forwarding without a QoS flow).
#[inline]
pub fn plain_g_pdu_header(teid: Teid, payload: usize) -> Option<[u8; PLAIN_HEADER]> {
    let length = u16::try_from(payload).ok()?;
    Some(plain(VERSION_1, MessageType::GPdu, length, teid))
}

/// Writes the header of a G-PDU right before the T-PDU `buffer[start..end]`, and returns the new
/// start.
#[inline]
pub fn prepend_g_pdu(
    buffer: &mut [u8],
    start: usize,
    end: usize,
    teid: Teid,
    session: Option<PduSession>,
) -> Result<usize, EmitError> {
    let payload = end.checked_sub(start).ok_or(EmitError::Room)?;
    match session {
        Some(session) => prepend(buffer, start, &g_pdu_header(teid, session, payload).ok_or(EmitError::TooLong)?),
        None => prepend(buffer, start, &plain_g_pdu_header(teid, payload).ok_or(EmitError::TooLong)?),
    }
}

#[inline]
fn prepend(buffer: &mut [u8], start: usize, header: &[u8]) -> Result<usize, EmitError> {
    let at = start.checked_sub(header.len()).ok_or(EmitError::Room)?;
    buffer.get_mut(at..start).ok_or(EmitError::Room)?.copy_from_slice(header);
    Ok(at)
}

#[inline]
fn plain(flags: u8, kind: MessageType, length: u16, teid: Teid) -> [u8; PLAIN_HEADER] {
    let [high, low] = length.to_be_bytes();
    let [a, b, c, d] = teid.0.to_be_bytes();
    [flags, kind.octet(), high, low, a, b, c, d]
}

/// Encodes a message: the optional fields if there is a Sequence Number, then the IEs.
fn message<'b>(
    buffer: &'b mut [u8],
    kind: MessageType,
    teid: Teid,
    sequence: Option<u16>,
    elements: &[&[u8]],
) -> Result<&'b [u8], EmitError> {
    let length = elements.iter().map(|e| e.len()).sum::<usize>() + if sequence.is_some() { 4 } else { 0 };
    let out = buffer.get_mut(..PLAIN_HEADER + length).ok_or(EmitError::Room)?;
    let flags = VERSION_1 | if sequence.is_some() { S } else { 0 };
    let length = u16::try_from(length).map_err(|_| EmitError::TooLong)?;
    out[..PLAIN_HEADER].copy_from_slice(&plain(flags, kind, length, teid));
    let mut at = PLAIN_HEADER;
    if let Some([high, low]) = sequence.map(u16::to_be_bytes) {
        out[at..at + 4].copy_from_slice(&[high, low, 0, 0]);
        at += 4;
    }
    for element in elements {
        out[at..at + element.len()].copy_from_slice(element);
        at += element.len();
    }
    Ok(out)
}

/// Encodes an Echo Request (TS 29.281 7.2.1). A buffer of [`SIGNALLING_OCTETS`] suffices, as for
/// all signalling.
pub fn echo_request(buffer: &mut [u8], sequence: u16) -> Result<&[u8], EmitError> {
    message(buffer, MessageType::EchoRequest, super::NO_TEID, Some(sequence), &[])
}

/// Encodes the Echo Response (TS 29.281 7.2.2) to the request with that sequence number. Its
/// Recovery is always 0 (8.2).
pub fn echo_response(buffer: &mut [u8], sequence: u16) -> Result<&[u8], EmitError> {
    message(buffer, MessageType::EchoResponse, super::NO_TEID, Some(sequence), &[&[RECOVERY, 0]])
}

/// Encodes an Error Indication (TS 29.281 7.3.1): a G-PDU for `teid` arrived at the address
/// `local`, which has no such tunnel.
pub fn error_indication_message(
    buffer: &mut [u8],
    sequence: u16,
    teid: Teid,
    local: IpAddr,
) -> Result<&[u8], EmitError> {
    let teid = teid.0.to_be_bytes();
    let (address, octets): ([u8; 16], usize) = match local {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            ([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 16),
    };
    let elements: [&[u8]; 4] = [&[TEID_DATA_I], &teid, &[GSN_ADDRESS, 0, octets as u8], &address[..octets]];
    message(buffer, MessageType::ErrorIndication, super::NO_TEID, Some(sequence), &elements)
}

/// Encodes an End Marker (TS 29.281 7.3.2), the last packet in this tunnel.
pub fn end_marker(buffer: &mut [u8], teid: Teid) -> Result<&[u8], EmitError> {
    message(buffer, MessageType::EndMarker, teid, None, &[])
}

/// Encodes a Supported Extension Headers Notification (TS 29.281 7.2.3). It lists what Vireo
/// supports: the PDU Session Container.
pub fn extension_headers_notification(buffer: &mut [u8], sequence: u16) -> Result<&[u8], EmitError> {
    let list = [EXTENSION_HEADER_TYPE_LIST, 1, PDU_SESSION_CONTAINER];
    message(buffer, MessageType::SupportedExtensionHeadersNotification, super::NO_TEID, Some(sequence), &[&list])
}
