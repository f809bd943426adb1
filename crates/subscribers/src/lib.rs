//! The home network: subscriber records in a database, and the authentication vectors made from them.
//!
//! [`Store`] is the database (SQLite; one file), [`format`] reads and writes records as CSV and JSON, [`Udm`] answers
//! authentication requests. This crate knows keys and sequence numbers and never prints them; it deliberately does not
//! know contexts, messages or associations, and for what it decides it reads no clock and draws no random number.
#![forbid(unsafe_code)]

pub mod format;
mod record;
mod store;
mod udm;

pub use record::{Key, KeyError, Subscriber, lab_subscription};
pub use store::{Changes, Filter, KEY_VARIABLE, NEXT_KEY_VARIABLE, OnExisting, Page, Store, StoreError, key_source};
pub use udm::{Answer, HomeNetworkKey, HomeNetworkKeyError, Profile, Udm, UdmConfig, UdmError, UdmLoad};
