use super::value::Cause;

/// Why a message that had a sound header is refused: what the response to it says (TS 29.244 7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause:?}, offending IE {offending_ie:?}")]
pub struct Error {
    /// The Cause IE of the response.
    pub cause: Cause,
    /// The Offending IE of the response: the type of the element at fault.
    pub offending_ie: Option<u16>,
}

impl Error {
    /// A mandatory element is not there (TS 29.244 7.6.6).
    pub const fn missing(ie: u16) -> Self {
        Error { cause: Cause::MANDATORY_IE_MISSING, offending_ie: Some(ie) }
    }

    /// An element that the others require is not there (TS 29.244 7.6.6).
    pub const fn conditional_missing(ie: u16) -> Self {
        Error { cause: Cause::CONDITIONAL_IE_MISSING, offending_ie: Some(ie) }
    }

    /// An element is shorter than its content, or longer than what holds it (TS 29.244 7.6.7).
    pub const fn length(ie: u16) -> Self {
        Error { cause: Cause::INVALID_LENGTH, offending_ie: Some(ie) }
    }

    /// An element has a value that it cannot have (TS 29.244 7.6.8).
    pub const fn incorrect(ie: u16) -> Self {
        Error { cause: Cause::MANDATORY_IE_INCORRECT, offending_ie: Some(ie) }
    }

    /// The message is of another type than the caller reads.
    pub const fn wrong_type() -> Self {
        Error { cause: Cause::REQUEST_REJECTED, offending_ie: None }
    }
}

/// Why octets are no PFCP message that could be answered by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than a header: dropped in silence (TS 29.244 7.6.3).
    #[error("{0} octets are shorter than a PFCP header")]
    Short(usize),
    /// The Message Length says more octets than there are, or fewer than the header: dropped in silence.
    #[error("the message length of {said} octets does not fit the {present} octets received")]
    Length {
        /// Message Length as received, without the first four octets.
        said: usize,
        /// Octets after the first four.
        present: usize,
    },
    /// Another version than 1: answered by a Version Not Supported Response (TS 29.244 7.6.2), unless it is one.
    #[error("PFCP version {version} is not served")]
    Version {
        /// The version of the header.
        version: u8,
        /// Message type of the header.
        kind: u8,
        /// Sequence number at the place where version 1 has it.
        sequence: u32,
    },
}

/// What was built does not fit a PFCP message, whose length has 16 bits. The buffer is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PFCP message of {0} octets exceeds 65,539; send fewer rules per message")]
pub struct TooLong(pub usize);
