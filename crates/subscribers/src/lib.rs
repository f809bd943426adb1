//! Home network: subscriber records in a database, and authentication vectors.
//!
//! [`Store`] is the database (SQLite or PostgreSQL). [`format`] reads and writes records as CSV and
//! JSON. [`Udm`] answers authentication requests. The crate handles keys and sequence numbers and
//! never prints them. By design it has no contexts, messages or associations. Its decisions use no
//! clock and no random numbers of their own.
#![forbid(unsafe_code)]

pub mod format;
mod msisdn;
mod record;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod udm;

pub use msisdn::{Msisdn, MsisdnError};
pub use record::{Key, KeyError, Subscriber, lab_subscription};
pub use store::{
    BackupError, BackupHeader, Changes, Filter, KEY_VARIABLE, NEXT_KEY_VARIABLE, OnExisting, Page, RecordFault, SCHEMA,
    SqnClaim, Store, StoreError, check_location, is_shared_location, key_source, restore, shown_location,
};
pub use udm::{Answer, HomeNetworkKey, HomeNetworkKeyError, Profile, Udm, UdmConfig, UdmError, UdmLoad, UdmOutput};
