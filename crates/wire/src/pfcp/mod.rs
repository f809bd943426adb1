//! PFCP (TS 29.244, Release 17): the protocol between control plane and user plane (N4, Sxa, Sxb).
//!
//! Two steps, as in all of Vireo's own codecs. A [`Message`] is a checked view of received octets: the header is read,
//! the length is right, and [`Ies`] walks the elements where they lie, without copies or allocations. A [`Body`] is the
//! owned value of one message, and an [`Element`] that of one information element; they hold only what the
//! specification allows, and `emit` and `parse` are each other's inverse. [`Builder`] writes element by element into
//! the caller's buffer where no whole value is at hand.
//!
//! **Contract.** No input makes a function here panic, and what is allocated is in proportion to the octets read.
//! An [`Error`] is what the response must say: a cause and the offending element. Known elements that are unsound
//! refuse the message; unknown ones, and octets that a later release appended, are skipped.
//!
//! **What it does not know**: sequence numbers, retransmission, associations (the N4 endpoint's), and what rules mean
//! (the UPF's). Elements of Ethernet, ATSSS, TSN, MBS and PFD management are skipped like unknown ones.
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

pub use build::{Builder, set_f_seid_address, set_seid, set_sequence};
pub use error::{Error, HeaderError, TooLong};
pub use header::{Header, Message, MessageType};
pub use ie::{Element, Ie, Ies, List};
pub use message::*;
pub use rule::*;
pub use value::*;
pub use walk::walk;

/// The UDP port of PFCP (TS 29.244 6.1).
pub const PORT: u16 = 8805;
