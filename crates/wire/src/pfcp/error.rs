use super::value::Cause;

/// Reason to reject a message with a valid header, as the response contains it (TS 29.244 7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause:?}, offending IE {offending_ie:?}")]
pub struct Error {
    /// Cause IE of the response.
    pub cause: Cause,
    /// Offending IE of the response: the type of the faulty element.
    pub offending_ie: Option<u16>,
}

impl Error {
    /// Returns the error of a missing mandatory element (TS 29.244 7.6.6).
    pub const fn missing(ie: u16) -> Self {
        Error { cause: Cause::MANDATORY_IE_MISSING, offending_ie: Some(ie) }
    }

    /// Returns the error of a missing conditional element, which others require (TS 29.244 7.6.6).
    pub const fn conditional_missing(ie: u16) -> Self {
        Error { cause: Cause::CONDITIONAL_IE_MISSING, offending_ie: Some(ie) }
    }

    /// Returns the error of an element that is shorter than its content, or longer than its
    /// container (TS 29.244 7.6.7).
    pub const fn length(ie: u16) -> Self {
        Error { cause: Cause::INVALID_LENGTH, offending_ie: Some(ie) }
    }

    /// Returns the error of an element with an invalid value (TS 29.244 7.6.8).
    pub const fn incorrect(ie: u16) -> Self {
        Error { cause: Cause::MANDATORY_IE_INCORRECT, offending_ie: Some(ie) }
    }

    /// Returns the error of a message of an unexpected type.
    pub const fn wrong_type() -> Self {
        Error { cause: Cause::REQUEST_REJECTED, offending_ie: None }
    }
}

/// Reason why octets are not a PFCP message of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than a header; the receiver drops it silently (TS 29.244 7.6.3).
    #[error("{0} octets are shorter than a PFCP header")]
    Short(usize),
    /// The Message Length exceeds the received octets, or is shorter than the header; the receiver
    /// drops it silently.
    #[error("the message length of {declared} octets does not fit the {present} octets received")]
    Length {
        /// Message Length as received, without the first four octets.
        declared: usize,
        /// Octets after the first four.
        present: usize,
    },
    /// A version other than 1. The receiver answers with a Version Not Supported Response (TS
    /// 29.244 7.6.2), unless the message is one.
    #[error("PFCP version {version} is not served")]
    Version {
        /// Version in the header.
        version: u8,
        /// Message type of the header.
        kind: u8,
        /// Sequence number at the position of version 1.
        sequence: u32,
    },
}

/// The message exceeds the 16-bit length of PFCP. The buffer is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PFCP message of {0} octets exceeds 65,539; send fewer rules per message")]
pub struct TooLong(pub usize);
