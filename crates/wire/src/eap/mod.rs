//! EAP-AKA' (RFC 9048), as primary authentication of 5G uses it (TS 33.501 6.1.3.1, annex F).
//!
//! [`Packet`] reads EAP packets (RFC 3748) with the attributes of EAP-AKA (RFC 4187), and the
//! functions beside it write those of both ends. [`TransformedKeys`] and [`SessionKeys`] derive the
//! keys. Identity requests, notifications, pseudonyms, fast re-authentication and the types EAP-AKA
//! and EAP-SIM are absent. So is `AT_BIDDING`, which only EAP-AKA has (RFC 9048 4).

mod keys;
mod packet;
mod write;

pub use keys::{SessionKeys, TransformedKeys};
pub use packet::{AkaPrime, Attributes, Body, Code, Packet, ParseError, Subtype, has_mac};
pub use write::{
    Challenge, authentication_reject, challenge, client_error, failure, response, success, synchronization_failure,
};

/// Key derivation function of TS 33.402, the only one of EAP-AKA' (RFC 9048 3.3).
pub const KDF: u16 = 1;

/// Type of EAP-AKA' (RFC 9048 3).
const AKA_PRIME: u8 = 50;

/// Attribute types (RFC 4187 11, RFC 9048 8.2).
mod attribute {
    pub(super) const RAND: u8 = 1;
    pub(super) const AUTN: u8 = 2;
    pub(super) const RES: u8 = 3;
    pub(super) const AUTS: u8 = 4;
    pub(super) const MAC: u8 = 11;
    pub(super) const CLIENT_ERROR_CODE: u8 = 22;
    pub(super) const KDF_INPUT: u8 = 23;
    pub(super) const KDF: u8 = 24;
    /// Lowest type that a receiver without knowledge of it skips (RFC 4187 8.1).
    pub(super) const SKIPPABLE: u8 = 128;
}
