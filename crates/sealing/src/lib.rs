//! Secrets at rest: sealing with AES-256-GCM, key files, and memory that core dumps leave out.
//!
//! A [`SealingKey`] seals octets for one place, which the associated data names: what was sealed for one record does not
//! open as another's. Sealed octets name the key that they need, so that a wrong key is told from damage.
//!
//! This crate does not know what the secrets are.

#![forbid(unsafe_code)]

mod file;
mod key;
mod slab;

pub use file::{KeyFileError, KeySource, create_key_file, write_key_file};
pub use key::{KeyId, OVERHEAD, OpenError, SealingKey};
pub use slab::{SecretSlab, Slot};
