//! Identifiers, limits and times that all crates of Vireo share.
//!
//! Plain data and decisions about it: no I/O, no clock. Each type names its 3GPP source and its
//! unit. This crate defines the bit layout of the identifiers that Vireo assigns itself (the LTMSI
//! and the identifiers derived from it).
#![forbid(unsafe_code)]

mod addresses;
mod deregistration;
mod device_limit;
mod displacement;
mod identity;
mod keys;
pub mod limits;
mod network;
mod ran_node;
mod time;

pub use addresses::{Network, NetworkError, is_inside, is_unicast};
pub use deregistration::{DeregistrationCause, DeregistrationCauseError};
pub use device_limit::DeviceLimit;
pub use displacement::{machine_address, to_displace};
pub use identity::{Guami, Guti, Pei, Supi, SupiError, Tmsi};
pub use keys::{AmfUeNgapId, AssocId, Bucket, Dialect, Ltmsi, RanUeNgapId, Seid, SessionIndex, Teid};
pub use network::{Dnn, DnnError, NrCgi, PduSessionType, Plmn, PlmnError, SessionAddress, Snssai, Tac, Tai};
pub use ran_node::{EnbId, EnbKind, GnbId, RanNodeId};
pub use time::{Duration, Instant};
