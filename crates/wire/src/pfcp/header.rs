use super::ie::{Element, Ies};
use super::{Error, HeaderError};

/// Message types (TS 29.244 table 7.3-1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType(pub u8);

macro_rules! message_types {
    ($($(#[$m:meta])* $name:ident = $value:literal $text:literal;)*) => {
        impl MessageType {
            $($(#[$m])* #[doc = $text] pub const $name: MessageType = MessageType($value);)*

            /// Returns the name in the specification, if the type is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

message_types! {
    HEARTBEAT_REQUEST = 1 "Heartbeat Request";
    HEARTBEAT_RESPONSE = 2 "Heartbeat Response";
    PFD_MANAGEMENT_REQUEST = 3 "PFD Management Request";
    PFD_MANAGEMENT_RESPONSE = 4 "PFD Management Response";
    ASSOCIATION_SETUP_REQUEST = 5 "Association Setup Request";
    ASSOCIATION_SETUP_RESPONSE = 6 "Association Setup Response";
    ASSOCIATION_UPDATE_REQUEST = 7 "Association Update Request";
    ASSOCIATION_UPDATE_RESPONSE = 8 "Association Update Response";
    ASSOCIATION_RELEASE_REQUEST = 9 "Association Release Request";
    ASSOCIATION_RELEASE_RESPONSE = 10 "Association Release Response";
    VERSION_NOT_SUPPORTED_RESPONSE = 11 "Version Not Supported Response";
    NODE_REPORT_REQUEST = 12 "Node Report Request";
    NODE_REPORT_RESPONSE = 13 "Node Report Response";
    SESSION_SET_DELETION_REQUEST = 14 "Session Set Deletion Request";
    SESSION_SET_DELETION_RESPONSE = 15 "Session Set Deletion Response";
    SESSION_SET_MODIFICATION_REQUEST = 16 "Session Set Modification Request";
    SESSION_SET_MODIFICATION_RESPONSE = 17 "Session Set Modification Response";
    SESSION_ESTABLISHMENT_REQUEST = 50 "Session Establishment Request";
    SESSION_ESTABLISHMENT_RESPONSE = 51 "Session Establishment Response";
    SESSION_MODIFICATION_REQUEST = 52 "Session Modification Request";
    SESSION_MODIFICATION_RESPONSE = 53 "Session Modification Response";
    SESSION_DELETION_REQUEST = 54 "Session Deletion Request";
    SESSION_DELETION_RESPONSE = 55 "Session Deletion Response";
    SESSION_REPORT_REQUEST = 56 "Session Report Request";
    SESSION_REPORT_RESPONSE = 57 "Session Report Response";
}

impl MessageType {
    /// Returns true for a request, which expects a response. Unknown types are not requests.
    pub const fn is_request(self) -> bool {
        matches!(self.0, 1 | 3 | 5 | 7 | 9 | 12 | 14 | 16 | 50 | 52 | 54 | 56)
    }

    /// Returns true for a response.
    pub const fn is_response(self) -> bool {
        matches!(self.0, 2 | 4 | 6 | 8 | 10 | 11 | 13 | 15 | 17 | 51 | 53 | 55 | 57)
    }

    /// Returns true for a session-related message, whose header has a SEID (TS 29.244 7.2.2.4).
    pub const fn is_session(self) -> bool {
        matches!(self.0, 50..=99)
    }

    /// Returns the type of the response to this request.
    pub const fn response(self) -> Option<MessageType> {
        if self.is_request() { Some(MessageType(self.0 + 1)) } else { None }
    }
}

impl std::fmt::Debug for MessageType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "message type {}", self.0),
        }
    }
}

/// The header of a PFCP message (TS 29.244 7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: MessageType,
    /// The receiver's SEID; `None` in node-related messages, 0 if the sender does not know it.
    pub seid: Option<u64>,
    /// Sequence number, 24 bits.
    pub sequence: u32,
    /// Message Priority, if present; 0 is the highest.
    pub priority: Option<u8>,
}

const VERSION: u8 = 1;
const FLAG_FOLLOW_ON: u8 = 0x04;
const FLAG_PRIORITY: u8 = 0x02;
pub(super) const FLAG_SEID: u8 = 0x01;

/// A received message with a validated header. Elements are parsed in place.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    header: Header,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Validates the first message of a datagram. Octets behind it are ignored, including further
    /// messages. These are allowed only if both ends announce BUNDL (TS 29.244 7.2.2.1), which
    /// Vireo does not.
    ///
    /// # Errors
    ///
    /// Returns an error if the header is malformed or the length does not fit.
    pub fn new(datagram: &'a [u8]) -> Result<Self, HeaderError> {
        let short = HeaderError::Short(datagram.len());
        let (&[flags, kind, l1, l2], rest) = datagram.split_first_chunk().ok_or(short)?;
        let version = flags >> 5;
        let (seid, after) = if flags & FLAG_SEID == 0 {
            (None, rest)
        } else {
            let (seid, after) = rest.split_first_chunk().ok_or(short)?;
            (Some(u64::from_be_bytes(*seid)), after)
        };
        let (&[s1, s2, s3, last], _) = after.split_first_chunk().ok_or(short)?;
        let sequence = u32::from_be_bytes([0, s1, s2, s3]);
        if version != VERSION {
            return Err(HeaderError::Version { version, kind, sequence });
        }
        let declared = usize::from(u16::from_be_bytes([l1, l2]));
        let head = rest.len() - after.len() + 4;
        let body = rest.get(head..declared).ok_or(HeaderError::Length { declared, present: rest.len() })?;
        let priority = (flags & FLAG_PRIORITY != 0).then_some(last >> 4);
        Ok(Message { header: Header { kind: MessageType(kind), seid, sequence, priority }, body })
    }

    /// Returns the header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the type of the message.
    pub const fn message_type(&self) -> MessageType {
        self.header.kind
    }

    /// Returns the receiver's SEID, or 0 if the header has none.
    pub fn seid(&self) -> u64 {
        self.header.seid.unwrap_or(0)
    }

    /// Returns the sequence number, 24 bits.
    pub const fn sequence(&self) -> u32 {
        self.header.sequence
    }

    /// Returns an iterator over the elements.
    pub fn ies(&self) -> Ies<'a> {
        Ies::new(self.body)
    }

    /// Returns the first element of type `T`, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the element is malformed.
    pub fn get<T: Element>(&self) -> Result<Option<T>, Error> {
        for ie in self.ies() {
            let ie = ie?;
            if ie.id == T::ID {
                return ie.read().map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the first element of type `T`.
    ///
    /// # Errors
    ///
    /// Returns an error if the element is missing or malformed.
    pub fn need<T: Element>(&self) -> Result<T, Error> {
        self.get()?.ok_or(Error::missing(T::ID))
    }

    /// Returns true if the header announces another message in the same datagram.
    pub const fn follow_on(datagram: &[u8]) -> bool {
        !datagram.is_empty() && datagram[0] & FLAG_FOLLOW_ON != 0
    }
}
