use super::ie::{Element, Ies};
use super::{Error, HeaderError};

/// Message types (TS 29.244 table 7.3-1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType(pub u8);

macro_rules! message_types {
    ($($(#[$m:meta])* $name:ident = $value:literal $text:literal;)*) => {
        impl MessageType {
            $($(#[$m])* #[doc = $text] pub const $name: MessageType = MessageType($value);)*

            /// The name of the specification, if it is known here.
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
    /// Whether it is a request, which expects a response. Unknown types are none.
    pub const fn is_request(self) -> bool {
        matches!(self.0, 1 | 3 | 5 | 7 | 9 | 12 | 14 | 16 | 50 | 52 | 54 | 56)
    }

    /// Whether it answers a request.
    pub const fn is_response(self) -> bool {
        matches!(self.0, 2 | 4 | 6 | 8 | 10 | 11 | 13 | 15 | 17 | 51 | 53 | 55 | 57)
    }

    /// Whether it is about one session and its header so has a SEID (TS 29.244 7.2.2.4).
    pub const fn is_session(self) -> bool {
        matches!(self.0, 50..=99)
    }

    /// The response that answers this request.
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
    /// What message it is.
    pub kind: MessageType,
    /// The receiver's SEID; `None` in messages between nodes, 0 where the sender does not know it.
    pub seid: Option<u64>,
    /// Sequence number, 24 bits.
    pub sequence: u32,
    /// Message Priority (0 the highest), if the sender gave one.
    pub priority: Option<u8>,
}

const VERSION: u8 = 1;
const FLAG_FOLLOW_ON: u8 = 0x04;
const FLAG_PRIORITY: u8 = 0x02;
pub(super) const FLAG_SEID: u8 = 0x01;

/// A received message whose header is checked; the elements are read where they lie.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    header: Header,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first message of a datagram. Octets behind it, such as messages that follow on (TS 29.244 7.2.2.1, only
    /// after both ends announced BUNDL, which Vireo does not), are ignored.
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
        let said = usize::from(u16::from_be_bytes([l1, l2]));
        let head = rest.len() - after.len() + 4;
        let body = rest.get(head..said).ok_or(HeaderError::Length { said, present: rest.len() })?;
        let priority = (flags & FLAG_PRIORITY != 0).then_some(last >> 4);
        Ok(Message { header: Header { kind: MessageType(kind), seid, sequence, priority }, body })
    }

    /// The header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What message it is.
    pub const fn message_type(&self) -> MessageType {
        self.header.kind
    }

    /// The receiver's SEID, 0 where the header has none.
    pub fn seid(&self) -> u64 {
        self.header.seid.unwrap_or(0)
    }

    /// Sequence number, 24 bits.
    pub const fn sequence(&self) -> u32 {
        self.header.sequence
    }

    /// The elements.
    pub fn ies(&self) -> Ies<'a> {
        Ies::new(self.body)
    }

    /// The first element of type `T`, if there is one.
    pub fn get<T: Element>(&self) -> Result<Option<T>, Error> {
        for ie in self.ies() {
            let ie = ie?;
            if ie.id == T::ID {
                return ie.read().map(Some);
            }
        }
        Ok(None)
    }

    /// The first element of type `T`, which must be there.
    pub fn need<T: Element>(&self) -> Result<T, Error> {
        self.get()?.ok_or(Error::missing(T::ID))
    }

    /// Whether the sender says that another message follows in the same datagram.
    pub const fn follow_on(datagram: &[u8]) -> bool {
        !datagram.is_empty() && datagram[0] & FLAG_FOLLOW_ON != 0
    }
}
