//! The identifiers, limits and times that every other crate of Vireo speaks in.
//!
//! Plain data: no I/O, no clock, no allocation beyond a [`Dnn`]'s text. Each type names its source in the
//! 3GPP specifications and its unit; the bit layout of the identifiers that Vireo chooses itself (LTMSI and what is
//! derived from it) is DESIGN decision 7.
#![forbid(unsafe_code)]

mod addresses;
mod identity;
mod keys;
pub mod limits;
mod network;
mod time;

pub use addresses::{Network, is_inside};
pub use identity::{Guami, Guti, Pei, Supi, SupiError, Tmsi};
pub use keys::{AmfUeNgapId, AssocId, Bucket, Ltmsi, RanUeNgapId, Seid, SessionIndex, Teid};
pub use network::{Dnn, DnnError, GnbId, NrCgi, PduSessionType, Plmn, PlmnError, SessionAddress, Snssai, Tac, Tai};
pub use time::{Duration, Instant};
