//! Records of UEs in a place that several processes share: a database, or for comparison the memory of one process. Octets
//! under a name, changed by compare-and-swap, each with a life that begins anew with every commit.
//!
//! Unlike a [`crate::ContextStore`], which is memory, such a place may be down, slow or full. An operation that fails has changed
//! nothing, but for [`RecordError::Silent`]: there nobody knows. A commit that was carried out and whose answer was lost is found
//! by loading the record: it has the version that was to be.

mod memory;
pub mod redis;

pub use memory::MemoryRecords;
pub use redis::{Link, LinkConfig, RedisRecords};

use crate::Version;
use std::time::Duration;

/// What a record is called: a collection, and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Whose records these are: `amf`, `smf`, or `ue` where functions share one.
    pub collection: &'static str,
    /// Whose record it is.
    pub id: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its version: it grows with each commit.
    pub version: Version,
    /// What it holds.
    pub octets: Vec<u8>,
}

/// Why an operation was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Another version is there.
    #[error("the record was committed by somebody else in the meantime")]
    Conflict,
    /// There is no room.
    #[error("the database of records is full: give it more memory, or let it keep less")]
    Full,
    /// It cannot be reached, or does not work; it is not asked again for a moment.
    #[error("the database of records is not there: {0}")]
    Down(String),
    /// It has not answered in time: whether it has done what was asked is not known.
    #[error("the database of records has not answered: {0}")]
    Silent(String),
    /// What it has is no record.
    #[error("the database of records has something else than a record: is it another program's too?")]
    Stranger,
}

impl RecordError {
    /// Whether the same may succeed later, with nothing changed here.
    pub fn passes(&self) -> bool {
        matches!(self, RecordError::Full | RecordError::Down(_) | RecordError::Silent(_))
    }
}

/// What was asked of a store since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Records asked for.
    pub reads: u64,
    /// Commits.
    pub writes: u64,
    /// Records taken out.
    pub removals: u64,
    /// Questions and answers, of which one may be of several operations.
    pub round_trips: u64,
}

/// A change of a record.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Puts a record where version `expected` is (0: where none is).
    Commit {
        /// That.
        expected: Version,
        /// What it holds.
        octets: &'a [u8],
    },
    /// Takes a record of that version out.
    Remove {
        /// That.
        expected: Version,
    },
}

/// A place of records. It is one thread's; others have their own way to the same place.
pub trait Records: Send {
    /// The records of these names, in their order.
    ///
    /// # Errors
    ///
    /// [`RecordError`], of all of them.
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<Found>>, RecordError>;

    /// Changes these records, in one go where the place can; what becomes of each. Each is one compare-and-swap, and they do not
    /// depend on each other. The version of a record that was taken out is 0.
    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>>;

    /// What was asked of it.
    fn operations(&self) -> Operations;
}

/// The version after this one; never 0, which is none.
fn next_version(version: Version) -> Version {
    version.wrapping_add(1).max(1)
}

/// How long a record that nobody commits any more is kept, unless told otherwise: longer than a UE that is not heard of is.
pub const LIFE: Duration = Duration::from_secs(24 * 3600);
