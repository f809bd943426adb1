//! Where UE contexts are kept, behind one interface: octets under an LTMSI, changed by compare-and-swap.
//!
//! A store knows nothing of what the octets mean. [`MemoryStore`] keeps them in this process, [`ShmStore`] in a [`region::Region`]
//! of shared memory; every form passes [`conformance::suite`]. Unsafe code is only in `region/mem.rs`.
#![deny(unsafe_code)]
// A model is of less than the whole.
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

/// Why nothing was committed; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Another version is there.
    #[error("the context was committed by somebody else in the meantime")]
    Conflict,
    /// There is no room.
    #[error("the state region is full; give it more memory (state.bytes) or room for more UEs (state.ues)")]
    Full,
    /// Nothing so large can be kept.
    #[error("a record of {0} octets is larger than the largest buffer")]
    TooLarge(usize),
}

/// The version of a stored context: it grows with each commit. 0 = there is none.
pub type Version = u32;

/// A stored context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Its version.
    pub version: Version,
    /// Its octets.
    pub octets: &'a [u8],
    /// When something is due for it.
    pub deadline: Option<Instant>,
}

/// A store of contexts. A commit is one compare-and-swap (DESIGN decision 3): it succeeds only on the version that was
/// loaded, and nothing is sent before it has.
pub trait ContextStore {
    /// The context of a UE.
    fn load(&self, ltmsi: Ltmsi) -> Option<Stored<'_>>;

    /// Puts a context where version `expected` is (0: where none is).
    ///
    /// # Errors
    ///
    /// If another version is there, or there is no room; nothing has changed then.
    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        octets: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Version, CommitError>;

    /// Takes a context of that version out.
    ///
    /// # Errors
    ///
    /// If another version is there, or there is no room; nothing has changed then.
    fn remove(&mut self, ltmsi: Ltmsi, expected: Version) -> Result<(), CommitError>;

    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every context, in no order.
    fn each(&self, visit: &mut dyn FnMut(Ltmsi, Stored<'_>) -> bool);
}
