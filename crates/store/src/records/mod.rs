//! Record stores: UE records that several processes share.
//!
//! The records are in a database or in shared memory. A record is a byte string under a name, whole
//! or in parts. It is changed by compare-and-swap. Each commit restarts the lifetime of the record.
//!
//! Unlike a [`crate::ContextStore`], which is memory, such a store may be down, slow or full. A
//! failed operation has changed nothing, except with [`RecordError::OutcomeUnknown`]: the change
//! may have been applied. The caller finds out by loading the record and comparing its version with
//! the intended one.

mod backoff;
mod codec;
mod context_file;
mod format;
mod memory;
#[cfg(feature = "mongodb")]
mod mongo;
pub mod redis;
mod sealed;
mod shm;
mod tls;
mod url;
mod write_behind;

pub use codec::{Codec, CodecError, Encoded, RecordBase};
pub use context_file::{ContextFile, Opened, OpenedContext};
pub use format::{Format, FormatError, Parts, UpdateMode};
pub use memory::MemoryRecords;
#[cfg(feature = "mongodb")]
pub use mongo::{MongoConfig, MongoRecords};
pub use redis::{LinkConfig, RedisCluster, RedisClusterConfig, RedisConnection, RedisRecords};
pub use sealed::{RecordsKey, Sealed};
pub use shm::{ShmError, ShmRecords};
pub use tls::{DatabaseTls, DatabaseTlsError};
pub use url::{StoreUrl, open};
pub use write_behind::{WriteBehindRecords, Writers, WritersConfig};

use crate::Version;
use std::time::Duration;

/// Name of a record: a collection, and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Collection: `amf`, `smf`, or `ue` where the NFs share one.
    pub collection: &'static str,
    /// Number in the collection, such as the number of a UE.
    pub id: u64,
}

/// A record as loaded from a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRecord {
    /// Version, which grows with each commit.
    pub version: Version,
    /// Contents of a record that was committed as a whole; empty for a record in parts.
    pub octets: Vec<u8>,
    /// Names and contents of the parts, in no particular order.
    ///
    /// A record is either whole or in parts, never both.
    pub parts: Vec<(String, Vec<u8>)>,
}

impl StoredRecord {
    /// Returns the contents of a part, if the record has it.
    pub fn part(&self, name: &str) -> Option<&[u8]> {
        self.parts.iter().find(|(of, _)| of == name).map(|(_, octets)| &octets[..])
    }
}

/// A part of a record. An NF writes the parts that a step has changed.
///
/// Names that begin with an underscore are reserved for the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPart<'a> {
    /// Name of the part, the same in all records of a collection.
    pub name: &'a str,
    /// Encoded contents, opaque to the store.
    pub octets: &'a [u8],
}

/// Reason that an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The stored version differs from the expected one.
    #[error("the record has another version: another process has committed it")]
    Conflict,
    /// The store is full.
    #[error("the database of records is full; give it more memory, or remove other data")]
    Full,
    /// The record exceeds the maximum size of the store, however much space is free.
    #[error("a record has {octets} bytes; at most {most} are allowed")]
    TooLarge {
        /// Size of the record in bytes.
        octets: usize,
        /// Maximum size in bytes.
        most: usize,
    },
    /// The store is unreachable or does not work. It is not asked again until the back-off has
    /// passed.
    #[error("the database of records is not there: {0}")]
    Down(String),
    /// The store did not answer in time. The change may have been applied.
    #[error("the database of records has not answered: {0}")]
    OutcomeUnknown(String),
    /// The key holds something else than a record.
    #[error("the database of records has a value that is no record; give other programs another database or state.key")]
    NotARecord,
    /// The record is sealed with another key.
    #[error("the records are sealed with another key: give all functions the same state.key-file")]
    OtherKey,
    /// The record is in clear, and only sealed records are accepted.
    #[error("the database has records in clear: remove them, or set state.encrypt = false")]
    NotSealed,
}

impl RecordError {
    /// Returns true if the same operation may succeed later without a change of configuration.
    pub fn is_retryable(&self) -> bool {
        matches!(self, RecordError::Full | RecordError::Down(_) | RecordError::OutcomeUnknown(_))
    }
}

/// Counters of the operations of a store since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Records requested by loads.
    pub reads: u64,
    /// Commits requested, of any kind.
    pub writes: u64,
    /// Removals requested, not included in `writes`.
    pub removals: u64,
    /// Requests sent to the store; one request may carry several operations.
    pub round_trips: u64,
}

impl Operations {
    /// Counts a request with these changes.
    fn changed(&mut self, changes: &[(Name, Change<'_>)]) {
        let removals = changes.iter().filter(|(_, change)| change.removes()).count() as u64;
        self.removals += removals;
        self.writes += changes.len() as u64 - removals;
    }

    /// Adds the difference of two counts.
    fn add(&mut self, before: Operations, after: Operations) {
        self.reads += after.reads - before.reads;
        self.writes += after.writes - before.writes;
        self.removals += after.removals - before.removals;
        self.round_trips += after.round_trips - before.round_trips;
    }
}

/// A change of a record.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Stores a whole record if the stored version is `expected` (0: there is no record).
    Commit {
        expected: Version,
        /// Complete new contents, opaque to the store.
        octets: &'a [u8],
    },
    /// Stores a record in parts if the stored version is `expected` (0: there is no record).
    ///
    /// Everything that the record had is replaced.
    Replace {
        expected: Version,
        /// All parts of the new record.
        parts: &'a [RecordPart<'a>],
    },
    /// Stores parts in the record of version `expected` (0: in a new one) and keeps its other
    /// parts.
    Update {
        expected: Version,
        /// The parts that differ from those of version `expected`.
        parts: &'a [RecordPart<'a>],
    },
    /// Creates a record in parts where there is none, as the version after `before`.
    ///
    /// It is the second half of *delete and create*: the versions of the record continue.
    Create {
        /// Version of the removed record.
        before: Version,
        /// All parts of the new record.
        parts: &'a [RecordPart<'a>],
    },
    /// Removes the record if its version is `expected`.
    Remove {
        /// Version that must be stored; 0 matches no record.
        expected: Version,
    },
}

impl<'a> Change<'a> {
    /// Returns the version that must be stored (0: none).
    pub fn expected(&self) -> Version {
        match self {
            Change::Commit { expected, .. } | Change::Replace { expected, .. } | Change::Update { expected, .. } => {
                *expected
            }
            Change::Create { .. } => 0,
            Change::Remove { expected } => *expected,
        }
    }

    /// Returns the version that is stored afterwards (0: none).
    pub fn result(&self) -> Version {
        match self {
            Change::Commit { .. } | Change::Replace { .. } | Change::Update { .. } => next_version(self.expected()),
            Change::Create { before, .. } => next_version(*before),
            Change::Remove { .. } => 0,
        }
    }

    /// Returns the same change with other contents.
    fn with<'b>(&self, octets: &'b [u8], parts: &'b [RecordPart<'b>]) -> Change<'b> {
        match *self {
            Change::Commit { expected, .. } => Change::Commit { expected, octets },
            Change::Replace { expected, .. } => Change::Replace { expected, parts },
            Change::Update { expected, .. } => Change::Update { expected, parts },
            Change::Create { before, .. } => Change::Create { before, parts },
            Change::Remove { expected } => Change::Remove { expected },
        }
    }

    /// Returns true if the change removes the record.
    pub fn removes(&self) -> bool {
        matches!(self, Change::Remove { .. })
    }

    /// Returns true if the change replaces or removes everything that the record had.
    fn is_whole(&self) -> bool {
        !matches!(self, Change::Update { .. })
    }

    /// Returns the contents of a change that stores a whole record.
    fn octets(&self) -> Option<&'a [u8]> {
        match self {
            Change::Commit { octets, .. } => Some(octets),
            _ => None,
        }
    }

    /// Returns the parts of the change; empty for whole records and removals.
    fn parts(&self) -> &'a [RecordPart<'a>] {
        match self {
            Change::Replace { parts, .. } | Change::Update { parts, .. } | Change::Create { parts, .. } => parts,
            Change::Commit { .. } | Change::Remove { .. } => &[],
        }
    }
}

/// Handle of a record store.
///
/// A handle belongs to one thread. Other threads and processes have their own handles of the same
/// store.
pub trait RecordStore: Send {
    /// Returns the records of these names, in their order.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`] for the load as a whole.
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError>;

    /// Applies these changes, in one request if the store can, and returns the result of each.
    ///
    /// Each change is a compare-and-swap of its own, independent of the others. The version after a
    /// removal is 0.
    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>>;

    /// Returns the numbers of all records of a collection, each once.
    ///
    /// It serves an NF that starts and lists the existing records. Records that are added or
    /// removed meanwhile may be included or not.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`] if the list could not be completed.
    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError>;

    /// Returns the identity of the store's incarnation; `None` if the store has none.
    ///
    /// While it stays the same, the store has lost no acknowledged commit. A record is then in its
    /// last committed state, or it is removed.
    ///
    /// # Errors
    ///
    /// Returns a [`RecordError`] if the store does not answer.
    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        Ok(None)
    }

    /// Returns the operation counters of this handle.
    fn operations(&self) -> Operations;
}

impl<R: RecordStore + ?Sized> RecordStore for Box<R> {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        (**self).load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        (**self).change(changes)
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        (**self).list_ids(collection)
    }

    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        (**self).incarnation()
    }

    fn operations(&self) -> Operations {
        (**self).operations()
    }
}

/// Returns the version after this one; never 0, which means no record.
fn next_version(version: Version) -> Version {
    version.wrapping_add(1).max(1)
}

/// Default lifetime of a record without commits. It is longer than that of an unreachable UE.
pub const LIFE: Duration = Duration::from_secs(24 * 3600);
