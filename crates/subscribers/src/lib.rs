//! Home network: subscriber records in a database, and authentication vectors.
//!
//! [`Store`] is the database (SQLite; one file). [`format`] reads and writes records as CSV and
//! JSON. [`Udm`] answers authentication requests. The crate handles keys and sequence numbers and
//! never prints them. By design it has no contexts, messages or associations. Its decisions use no
//! clock and no random numbers of their own.
#![forbid(unsafe_code)]

pub mod format;
mod record;
mod store;
mod udm;

pub use record::{Key, KeyError, Subscriber, lab_subscription};
pub use store::{
    Changes, Filter, KEY_VARIABLE, NEXT_KEY_VARIABLE, OnExisting, Page, RecordFault, Store, StoreError, key_source,
};
pub use udm::{Answer, HomeNetworkKey, HomeNetworkKeyError, Profile, Udm, UdmConfig, UdmError, UdmLoad};
