//! GTP-U (TS 29.281) without copies or allocation.
//!
//! Parsing has two steps. [`Packet::parse`] validates the whole header with its chain of extension
//! headers and returns a view into the datagram. The IEs of a signalling message are then parsed
//! from its payload ([`error_indication`], [`recovery`]).
//!
//! Encoding writes a header in front of the packet: as an array ([`g_pdu_header`]), or into the
//! headroom ([`prepend_g_pdu`]). Signalling messages fit into [`SIGNALLING_OCTETS`].
//!
//! The parser knows the PDU Session Container (TS 38.415) of N3 and N9, and handles other extension
//! headers by their comprehension bits. This Rust module has no tunnels, sockets or TEID
//! assignment. No input causes a panic.

mod emit;
mod ie;
mod view;

#[cfg(test)]
mod tests;

pub use emit::{
    EmitError, G_PDU_HEADER, PLAIN_HEADER, SIGNALLING_OCTETS, echo_request, echo_response, end_marker,
    error_indication_message, extension_headers_notification, g_pdu_header, plain_g_pdu_header, prepend_g_pdu,
};
pub use ie::{ErrorIndication, error_indication, recovery, supported_extension_headers};
pub use view::{EXTENSION_HEADERS, Packet, ParseError};

use vireo_types::Teid;

/// The UDP port of GTP-U (TS 29.281 4.4.2.3).
pub const PORT: u16 = 2152;

/// Message types (TS 29.281 table 6.1-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// 1: tests whether the path is alive.
    EchoRequest,
    /// 2: response to an Echo Request.
    EchoResponse,
    /// 26: a G-PDU arrived for a TEID that the sender does not have.
    ErrorIndication,
    /// 31: the extension headers that the sender supports.
    SupportedExtensionHeadersNotification,
    /// 254: the last packet of a tunnel after a path switch.
    EndMarker,
    /// 255: a user's packet.
    GPdu,
    /// Any other type, by its octet.
    Other(u8),
}

impl MessageType {
    /// Returns the type that an octet encodes.
    pub const fn from_octet(octet: u8) -> Self {
        match octet {
            1 => MessageType::EchoRequest,
            2 => MessageType::EchoResponse,
            26 => MessageType::ErrorIndication,
            31 => MessageType::SupportedExtensionHeadersNotification,
            254 => MessageType::EndMarker,
            255 => MessageType::GPdu,
            other => MessageType::Other(other),
        }
    }

    /// Returns the encoding of the type.
    pub const fn octet(self) -> u8 {
        match self {
            MessageType::EchoRequest => 1,
            MessageType::EchoResponse => 2,
            MessageType::ErrorIndication => 26,
            MessageType::SupportedExtensionHeadersNotification => 31,
            MessageType::EndMarker => 254,
            MessageType::GPdu => 255,
            MessageType::Other(other) => other,
        }
    }
}

/// The used part of a PDU Session Container (TS 38.415 5.5.2): the QoS flow and, downlink,
/// reflective QoS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduSession {
    /// DL PDU SESSION INFORMATION (PDU Type 0), sent by the UPF.
    Downlink {
        /// QoS Flow Identifier, 6 bits.
        qfi: u8,
        /// Reflective QoS Indicator (RQI).
        rqi: bool,
    },
    /// UL PDU SESSION INFORMATION (PDU Type 1), sent by the RAN.
    Uplink {
        /// QoS Flow Identifier, 6 bits.
        qfi: u8,
    },
}

impl PduSession {
    /// Returns the QoS Flow Identifier of either direction.
    pub const fn qfi(self) -> u8 {
        match self {
            PduSession::Downlink { qfi, .. } | PduSession::Uplink { qfi } => qfi,
        }
    }
}

/// Parses a datagram with all functions, for fuzzing: a valid one is parsed to its last IE.
pub fn walk(data: &[u8]) {
    if let Ok(packet) = Packet::parse(data) {
        let _ = error_indication(packet.payload);
        let _ = recovery(packet.payload);
        let _ = supported_extension_headers(packet.payload).map(Iterator::count);
    }
}

/// Returns true for a G-PDU, and false for any PFCP message: the bit that GTP-U sets as protocol
/// type is spare in PFCP (TS 29.281 5.1, TS 29.244 7.2.2.1).
pub fn is_g_pdu(message: &[u8]) -> bool {
    matches!(message, [flags, kind, ..] if flags >> 4 == 0b0011 && *kind == MessageType::GPdu.octet())
}

/// TEID of messages that concern a path instead of a tunnel (TS 29.281 5.1).
pub const NO_TEID: Teid = Teid(0);
