//! Records of UEs in a place that several processes share: a database, or for comparison the memory of one process. Octets
//! under a name, whole or in parts, changed by compare-and-swap, each with a life that begins anew with every commit.
//!
//! Unlike a [`crate::ContextStore`], which is memory, such a place may be down, slow or full. An operation that fails has changed
//! nothing, but for [`RecordError::OutcomeUnknown`]: there nobody knows. A commit that was carried out and whose answer was lost is found
//! by loading the record: it has the version that was to be.

mod backoff;
mod codec;
mod format;
mod kept;
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
pub use format::{Format, FormatError, Parts, UpdateMode};
pub use kept::{KeptContext, KeptContexts, Opened};
pub use memory::MemoryRecords;
#[cfg(feature = "mongodb")]
pub use mongo::{MongoConfig, MongoRecords};
pub use redis::{ClusterConfig, LinkConfig, RedisCluster, RedisConnection, RedisRecords};
pub use sealed::{RecordsKey, Sealed};
pub use shm::{ShmError, ShmRecords};
pub use tls::{DatabaseTls, DatabaseTlsError};
pub use url::{StoreUrl, open};
pub use write_behind::{WriteBehindRecords, Writers, WritersConfig};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its version: it grows with each commit.
    pub version: Version,
    /// What it holds, if it was committed as a whole.
    pub octets: Vec<u8>,
    /// The parts that it was put together of, in no order. A record is a whole or in parts, never both.
    pub parts: Vec<(String, Vec<u8>)>,
}

impl StoredRecord {
    /// What a part holds, if it is there.
    pub fn part(&self, name: &str) -> Option<&[u8]> {
        self.parts.iter().find(|(of, _)| of == name).map(|(_, octets)| &octets[..])
    }
}

/// A part of a record: a function changes those that a step has changed. Names beginning with an underscore are the places' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPart<'a> {
    /// Its name, the same in all records of a collection.
    pub name: &'a str,
    /// What it holds.
    pub octets: &'a [u8],
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
    /// Nothing so large can be kept there, however much room there is.
    #[error("a record of {octets} octets cannot be kept where one has {most} at the most")]
    TooLarge {
        /// What it has.
        octets: usize,
        /// What one may have.
        most: usize,
    },
    /// It cannot be reached, or does not work; it is not asked again for a moment.
    #[error("the database of records is not there: {0}")]
    Down(String),
    /// It has not answered in time: whether it has done what was asked is not known.
    #[error("the database of records has not answered: {0}")]
    OutcomeUnknown(String),
    /// What it has is no record.
    #[error("the database of records has something else than a record: is it another program's too?")]
    NotARecord,
    /// The record is sealed with another key.
    #[error("the records are sealed with another key: give all functions the same state.key-file")]
    OtherKey,
    /// The record is in clear, and only sealed ones are accepted.
    #[error("the database has records in clear: remove them, or set state.encrypt = false")]
    NotSealed,
}

impl RecordError {
    /// Whether the same may succeed later, with nothing changed here.
    pub fn is_retryable(&self) -> bool {
        matches!(self, RecordError::Full | RecordError::Down(_) | RecordError::OutcomeUnknown(_))
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

impl Operations {
    /// Counts a question of these changes.
    fn changed(&mut self, changes: &[(Name, Change<'_>)]) {
        let removals = changes.iter().filter(|(_, change)| change.removes()).count() as u64;
        self.removals += removals;
        self.writes += changes.len() as u64 - removals;
    }

    /// Adds what was asked between two counts.
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
    /// Puts a record as a whole where version `expected` is (0: where none is).
    Commit {
        /// That.
        expected: Version,
        /// What it holds.
        octets: &'a [u8],
    },
    /// Puts a record in parts where version `expected` is (0: where none is), in the place of all that was there.
    Replace {
        /// That.
        expected: Version,
        /// What it holds.
        parts: &'a [RecordPart<'a>],
    },
    /// Puts parts into the record of version `expected` (0: into a new one), and leaves its others as they are.
    Update {
        /// That.
        expected: Version,
        /// What has changed.
        parts: &'a [RecordPart<'a>],
    },
    /// Puts a record in parts where none is, as the version after `before`: the second half of *delete and create*, by which the
    /// versions of a record go on.
    Create {
        /// The version that was taken out.
        before: Version,
        /// What it holds.
        parts: &'a [RecordPart<'a>],
    },
    /// Takes a record of that version out.
    Remove {
        /// That.
        expected: Version,
    },
}

impl<'a> Change<'a> {
    /// The version that has to be there (0: none).
    pub fn expected(&self) -> Version {
        match self {
            Change::Commit { expected, .. } | Change::Replace { expected, .. } | Change::Update { expected, .. } => {
                *expected
            }
            Change::Create { .. } => 0,
            Change::Remove { expected } => *expected,
        }
    }

    /// The version that there is afterwards (0: none).
    pub fn result(&self) -> Version {
        match self {
            Change::Commit { .. } | Change::Replace { .. } | Change::Update { .. } => next_version(self.expected()),
            Change::Create { before, .. } => next_version(*before),
            Change::Remove { .. } => 0,
        }
    }

    /// The same change with other content.
    fn with<'b>(&self, octets: &'b [u8], parts: &'b [RecordPart<'b>]) -> Change<'b> {
        match *self {
            Change::Commit { expected, .. } => Change::Commit { expected, octets },
            Change::Replace { expected, .. } => Change::Replace { expected, parts },
            Change::Update { expected, .. } => Change::Update { expected, parts },
            Change::Create { before, .. } => Change::Create { before, parts },
            Change::Remove { expected } => Change::Remove { expected },
        }
    }

    /// Whether it takes the record out.
    pub fn removes(&self) -> bool {
        matches!(self, Change::Remove { .. })
    }

    /// Whether all that was there goes.
    fn is_whole(&self) -> bool {
        !matches!(self, Change::Update { .. })
    }

    /// The octets of a record that is a whole.
    fn octets(&self) -> Option<&'a [u8]> {
        match self {
            Change::Commit { octets, .. } => Some(octets),
            _ => None,
        }
    }

    /// The parts.
    fn parts(&self) -> &'a [RecordPart<'a>] {
        match self {
            Change::Replace { parts, .. } | Change::Update { parts, .. } | Change::Create { parts, .. } => parts,
            Change::Commit { .. } | Change::Remove { .. } => &[],
        }
    }
}

/// A place of records. It is one thread's; others have their own way to the same place.
pub trait RecordStore: Send {
    /// The records of these names, in their order.
    ///
    /// # Errors
    ///
    /// [`RecordError`], of all of them.
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError>;

    /// Changes these records, in one go where the place can; what becomes of each. Each is one compare-and-swap, and they do not
    /// depend on each other. The version of a record that was taken out is 0.
    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>>;

    /// The numbers of all records of a collection, each once: for who begins, and looks what there is. What is put in or taken
    /// out meanwhile may be among them or not.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: then nothing is known.
    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError>;

    /// Names the incarnation of the place. As long as it is the same, the place has lost no commit that it answered: a
    /// record is as it was committed last, or it is gone. `None`: the place does not tell.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: then nothing is known.
    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        Ok(None)
    }

    /// What was asked of it.
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

/// The version after this one; never 0, which is none.
fn next_version(version: Version) -> Version {
    version.wrapping_add(1).max(1)
}

/// How long a record that nobody commits any more is kept, unless told otherwise: longer than a UE that is not heard of is.
pub const LIFE: Duration = Duration::from_secs(24 * 3600);
