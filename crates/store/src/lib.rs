//! Where UE contexts are kept, behind one interface: octets under an LTMSI, changed by compare-and-swap.
//!
//! A store knows nothing of what the octets mean. [`Memory`] keeps them in this process; every further form passes
//! [`conformance::suite`].
#![forbid(unsafe_code)]

pub mod conformance;
mod memory;

pub use memory::Memory;
use vireo_types::{Instant, Ltmsi};

/// What a commit found instead of the version it expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the context was committed by somebody else in the meantime")]
pub struct Conflict;

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
    /// [`Conflict`] if another version is there; nothing has changed then.
    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        octets: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Version, Conflict>;

    /// Takes a context of that version out.
    ///
    /// # Errors
    ///
    /// [`Conflict`] if another version is there; nothing has changed then.
    fn remove(&mut self, ltmsi: Ltmsi, expected: Version) -> Result<(), Conflict>;

    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every context, in no order.
    fn each(&self, visit: &mut dyn FnMut(Ltmsi, Stored<'_>) -> bool);
}
