//! PFCP (TS 29.244, Release 17), the protocol of N4, Sxa and Sxb.
//!
//! Like all codecs of Vireo it has two steps. A [`Message`] is a validated view of received octets:
//! its header is parsed and its length is correct. [`Ies`] iterates over the elements in place,
//! without copies or allocations. A [`Body`] is the owned value of one message, and an [`Element`]
//! that of one information element. They can represent only values that the specification allows,
//! and `emit` and `parse` are inverse. [`Builder`] encodes single elements into the caller's
//! buffer.
//!
//! **Contract.** No input causes a panic, and allocations are proportional to the octets read. An
//! [`Error`] has the cause and the offending element for the response. A malformed known element
//! invalidates the message. Unknown elements, and octets that a later release appended, are
//! skipped.
//!
//! **Not included**: sequence numbers, retransmission and associations (N4 endpoint), and the
//! meaning of rules (UPF). Elements of Ethernet, ATSSS, TSN, MBS and PFD management are skipped
//! like unknown ones.
//!
//! ```
//! use vireo_wire::pfcp::{HeartbeatRequest, Message, RecoveryTimeStamp, set_sequence};
//!
//! let request = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(3_900_000_000) };
//! let mut octets = Vec::new();
//! request.emit(&mut octets, 7)?;
//! set_sequence(&mut octets, 8);
//! let message = Message::new(&octets)?;
//! assert_eq!((message.sequence(), HeartbeatRequest::parse(&message)), (8, Ok(request)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod error;
mod header;
mod ie;
mod message;
mod rule;
mod value;
mod walk;

pub use build::{Builder, set_f_seid_address, set_seid, set_sequence, set_tunnel_address};
pub use error::{Error, HeaderError, TooLong};
pub use header::{Header, Message, MessageType};
pub use ie::{Element, Ie, Ies, List};
pub use message::*;
pub use rule::*;
pub use value::*;
pub use walk::walk;

/// The UDP port of PFCP (TS 29.244 6.1).
pub const PORT: u16 = 8805;
