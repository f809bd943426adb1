//! The home network: subscriber records in a database, and the authentication vectors made from them.
//!
//! [`Store`] is the database (SQLite; one file), [`format`] reads and writes records as CSV and JSON. This crate knows
//! keys and sequence numbers and never prints them; it deliberately does not know contexts, messages or associations.
#![forbid(unsafe_code)]

pub mod format;
mod record;
mod store;

pub use record::{Key, KeyError, Subscriber, lab_subscription};
pub use store::{Filter, OnExisting, Page, Store, StoreError};
