//! Stores of UE contexts: encoded contexts by LTMSI, changed by compare-and-swap.
//!
//! A store does not interpret the bytes of a context. [`MemoryStore`] keeps them in the memory of
//! this process, [`ShmStore`] in a [`region::Region`] of shared memory. Every implementation passes
//! [`conformance::suite`]. Unsafe code exists only in `region/mem.rs`
//! and `region/in_place.rs`.
#![deny(unsafe_code)]
// Loom models use only a part of the crate.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
pub mod conformance;
mod memory;
#[cfg(not(loom))]
pub mod records;
pub mod region;
#[cfg(not(loom))]
mod shm;

pub use memory::MemoryStore;
#[cfg(not(loom))]
pub use shm::ShmStore;
use vireo_types::{Instant, Ltmsi};

/// Reason for a refused commit. The store is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The stored version differs from the expected one.
    #[error("the context has another version: another process has committed it")]
    Conflict,
    /// The state region has no free buffer or no free slot.
    #[error("the state region is full; give it more memory (state.bytes) or room for more UEs (state.ues)")]
    Full,
    /// The commit record, of this many bytes, exceeds the largest buffer.
    #[error("a record of {0} octets is larger than the largest buffer")]
    TooLarge(usize),
}

/// Version of a stored context. It grows with each commit; 0 means that no context is stored.
pub type Version = u32;

/// A stored context, borrowed from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    pub version: Version,
    /// Encoded context, opaque to the store.
    pub octets: &'a [u8],
    /// Time of the next timer event of the UE; `None` if none is set.
    pub deadline: Option<Instant>,
}

/// A store of UE contexts.
///
/// A commit is one compare-and-swap. It succeeds only on the version that was loaded. No effect is
/// sent before the commit has succeeded.
pub trait ContextStore {
    /// Returns the stored context of a UE, or `None` if there is none.
    fn load(&self, ltmsi: Ltmsi) -> Option<Stored<'_>>;

    /// Stores a context if the stored version is `expected` (0: no context is stored).
    ///
    /// Returns the new version.
    ///
    /// # Errors
    ///
    /// Returns an error if another version is stored or the store is full. The store is unchanged
    /// then.
    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        octets: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Version, CommitError>;

    /// Removes the context of a UE if its stored version is `expected`.
    ///
    /// # Errors
    ///
    /// Returns an error if another version is stored or the store is full. The store is unchanged
    /// then.
    fn remove(&mut self, ltmsi: Ltmsi, expected: Version) -> Result<(), CommitError>;

    /// Returns the number of stored contexts.
    fn len(&self) -> usize;

    /// Returns true if no context is stored.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `visit` with every stored context, in no particular order, until it returns false.
    fn each(&self, visit: &mut dyn FnMut(Ltmsi, Stored<'_>) -> bool);
}
