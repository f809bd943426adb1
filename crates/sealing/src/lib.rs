//! Secrets at rest: sealing, key files, and memory excluded from core dumps.
//!
//! A [`SealingKey`] seals bytes with AES-256-GCM for one place, which the associated data names.
//! Bytes that were sealed for one record do not open as another record. Sealed bytes contain the
//! identity of their key, so that an error distinguishes a wrong key from damage.
//!
//! This crate does not interpret the secrets.

#![forbid(unsafe_code)]

mod file;
mod key;
mod slab;

pub use file::{KeyFileError, KeySource, create_key_file, write_key_file};
pub use key::{KeyId, OVERHEAD, OpenError, SealingKey};
pub use slab::{SecretSlab, Slot};
