//! Records in a shared-memory file that survives its process.
//!
//! An NF that dies finds its records when it is restarted. One process at a time uses the file. So
//! no other process commits, and a decoded record stays valid.

use super::{Change, Name, Operations, RecordError, RecordPart, RecordStore, StoredRecord};
use crate::region::{LARGEST_RECORD, Region, RegionConfig, RegionError};
use crate::{CommitError, ContextStore, ShmStore, Version};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vireo_types::{Instant, Ltmsi};

/// Average size in bytes of a record with its index entries, upper bound.
const OCTETS: usize = 2560;
/// Bytes of the fixed parts of a region.
const FIXED: usize = 16 << 20;
/// Maximum number of records: the range of LTMSIs, which number the slots.
const NAMES: u32 = 1 << 28;
/// Free bytes of the file system that new records leave for the growth of existing ones.
const GROWTH_RESERVE_BYTES: u64 = 32 << 20;
/// New records between two checks of the file system. They need less than
/// [`GROWTH_RESERVE_BYTES`].
const CHECK_INTERVAL: u32 = 128;

/// A store of records in a file. Clones are handles of the same store.
#[derive(Clone, Debug)]
pub struct ShmRecords {
    index: Arc<Mutex<ShmIndex>>,
    life: Duration,
    operations: Operations,
}

/// Index of the records by collection and number: the LTMSIs of their slots.
#[derive(Debug)]
struct ShmIndex {
    store: ShmStore,
    names: FxHashMap<Box<str>, FxHashMap<u64, Ltmsi>>,
    free: Vec<Ltmsi>,
    next: u32,
    /// New records until the next check of the file system.
    until_check: u32,
    has_room: bool,
}

/// Reason that a file of records cannot be opened. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The file cannot be created or opened, or its directory does not exist.
    #[error("the records in {} cannot be opened ({source}): name a directory that this user may write to", .path.display())]
    Io {
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The file system is on a disk. It would slow down each commit, and a machine failure would
    /// leave an inconsistent file.
    #[error("{} would not be in memory: name a directory of a memory file system, such as /dev/shm", .0.display())]
    NotInMemory(PathBuf),
    /// Another process uses the file.
    #[error("another process uses the records in {}; stop it first, or set another state.key", .0.display())]
    InUse(PathBuf),
    /// The file belongs to another user or is not a file of records.
    #[error("{} is not a file of records of this user; remove it, or choose another directory", .0.display())]
    Foreign(PathBuf),
    /// The file was written by another release.
    #[error("the records in {} are of another release; continue with that release, or remove the file and lose its records", .0.display())]
    Release(PathBuf),
    /// The file system has not enough room for the maximum size of the file.
    #[error(
        "the records in {} may need {} MiB, and {} MiB are free; enlarge the file system, or lower state.ues or upf.max-sessions",
        .path.display(), .needed >> 20, .free >> 20
    )]
    NoRoom {
        path: PathBuf,
        /// Size of the file in bytes.
        needed: u64,
        /// Free bytes of the file system.
        free: u64,
    },
    /// The number of records is out of range.
    #[error("the number of records is out of range: {0}")]
    Sizes(String),
}

impl ShmError {
    pub(super) fn from_region(path: &Path, error: RegionError) -> Self {
        let path = path.to_owned();
        match error {
            RegionError::Io(source) => ShmError::Io { path, source },
            RegionError::NotInMemory => ShmError::NotInMemory(path),
            RegionError::Locked => ShmError::InUse(path),
            RegionError::NotARegion => ShmError::Foreign(path),
            RegionError::Layout(_) => ShmError::Release(path),
            RegionError::NoRoom { needed, free } => ShmError::NoRoom { path, needed, free },
            error @ (RegionError::Config(_) | RegionError::TooSmall { .. }) => ShmError::Sizes(error.to_string()),
        }
    }
}

/// Header of a stored record. The contents, or those of the parts, follow.
#[derive(Debug, Serialize, Deserialize)]
struct RecordHeader<'a> {
    collection: &'a str,
    id: u64,
    version: Version,
    /// Names and lengths in bytes of the parts.
    #[serde(borrow)]
    parts: Vec<(&'a str, u32)>,
}

impl ShmRecords {
    /// Opens a file, or creates it with room for `records` records. Each commit starts a lifetime
    /// of `life`.
    ///
    /// # Errors
    ///
    /// Returns a [`ShmError`] if the file cannot be opened.
    pub fn open(path: &Path, records: u32, life: Duration) -> Result<Self, ShmError> {
        let sizes = RegionConfig {
            packets: 1,
            large_packets: 0,
            rings: 0,
            board: 1,
            published_values: 0,
            ..RegionConfig::new(records, 1, FIXED + records as usize * OCTETS)
        };
        let region = Region::open(path, sizes).map_err(|error| ShmError::from_region(path, error))?;
        // This process holds the lock of the file: the previous process is dead.
        if let Some(dead) = region.declare_dead_unlocked(0) {
            region.reclaim(dead);
        }
        let store = ShmStore::new(&region).map_err(|_| ShmError::Foreign(path.to_owned()))?;
        let names = FxHashMap::default();
        let mut index = ShmIndex { store, names, free: Vec::new(), next: 0, until_check: 0, has_room: true };
        if !index.index(instant(now())) {
            return Err(ShmError::Release(path.to_owned()));
        }
        Ok(ShmRecords { index: Arc::new(Mutex::new(index)), life, operations: Operations::default() })
    }

    /// Returns the maximum number of records.
    pub fn room(&self) -> u32 {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).store.region().config().ues
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).store.len()
    }

    /// Returns true if the next change of an existing record has room, with `octets` bytes
    /// including its name.
    pub fn has_room(&self, octets: usize) -> bool {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).store.has_room(octets)
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ShmIndex {
    /// Indexes the stored records and removes expired ones. Returns true if all of them decode.
    fn index(&mut self, now: Instant) -> bool {
        let mut used = Vec::with_capacity(self.store.len());
        let (mut over, mut strange) = (Vec::new(), false);
        let names = &mut self.names;
        self.store.each(&mut |ltmsi, stored| {
            match head(stored.octets) {
                Some(_) if stored.deadline.is_some_and(|end| end <= now) => over.push((ltmsi, stored.version)),
                Some((head, _)) => {
                    names.entry(head.collection.into()).or_default().insert(head.id, ltmsi);
                    used.push(ltmsi.get());
                }
                None => strange = true,
            }
            !strange
        });
        for (ltmsi, version) in over {
            // The record has that version: no other process commits.
            let _ = self.store.remove(ltmsi, version);
        }
        used.sort_unstable();
        for number in used {
            self.free.extend((self.next..number).map(Ltmsi::from_raw));
            self.next = number + 1;
        }
        !strange
    }

    fn locate(&self, name: Name) -> Option<Ltmsi> {
        self.names.get(name.collection)?.get(&name.id).copied()
    }

    /// Returns the version of a record that has not expired, and that of its slot.
    fn versions(&self, name: Name, now: Instant) -> Option<(Version, Version)> {
        let stored =
            self.store.load(self.locate(name)?).filter(|stored| stored.deadline.is_none_or(|end| end > now))?;
        head(stored.octets).map(|(head, _)| (head.version, stored.version))
    }

    /// Returns a record that has not expired.
    fn record(&self, name: Name, now: Instant) -> Option<StoredRecord> {
        let stored =
            self.store.load(self.locate(name)?).filter(|stored| stored.deadline.is_none_or(|end| end > now))?;
        let (head, mut octets) = head(stored.octets)?;
        let mut found = StoredRecord { version: head.version, ..StoredRecord::default() };
        for (part, length) in head.parts {
            let (this, rest) = octets.split_at_checked(length as usize)?;
            found.parts.push((part.to_owned(), this.to_vec()));
            octets = rest;
        }
        found.octets = octets.to_vec();
        Some(found)
    }

    fn change(
        &mut self,
        name: Name,
        change: &Change<'_>,
        (now, end): (Instant, Instant),
    ) -> Result<Version, RecordError> {
        let there = self.versions(name, now);
        let (version, slot_version) = there.unwrap_or_default();
        if version != change.expected() || (change.removes() && version == 0) {
            return Err(RecordError::Conflict);
        }
        if change.removes() {
            self.remove_record(name);
            return Ok(0);
        }
        if there.is_none() {
            // The record has expired.
            self.remove_record(name);
        }
        let found = if change.is_whole() { None } else { self.record(name, now) };
        let index = found.iter().flat_map(|found| &found.parts).map(|(name, octets)| RecordPart { name, octets });
        let index = index.filter(|part| change.parts().iter().all(|new| new.name != part.name));
        let parts: Vec<RecordPart<'_>> = index.chain(change.parts().iter().copied()).collect();
        let octets = written(name, change.result(), change.octets().unwrap_or_default(), &parts)?;
        let ltmsi = match self.locate(name) {
            Some(ltmsi) => ltmsi,
            // Existing records can be changed even if there is no room for new ones.
            None if self.store.len() >= self.store.region().config().ues as usize || !self.has_room() => {
                return Err(RecordError::Full);
            }
            None => self.free.pop().or_else(|| self.fresh()).ok_or(RecordError::Full)?,
        };
        match self.store.commit(ltmsi, slot_version, &octets, Some(end)) {
            Ok(_) => {
                if slot_version == 0 {
                    match self.names.get_mut(name.collection) {
                        Some(names) => names.insert(name.id, ltmsi),
                        None => self.names.entry(name.collection.into()).or_default().insert(name.id, ltmsi),
                    };
                }
                Ok(change.result())
            }
            Err(error) => {
                if slot_version == 0 {
                    self.free.push(ltmsi);
                }
                // No other process commits, so a conflict means a damaged file.
                Err(match error {
                    CommitError::Conflict => RecordError::NotARecord,
                    CommitError::Full => RecordError::Full,
                    CommitError::TooLarge(octets) => too_large(octets),
                })
            }
        }
    }

    /// Returns true if the file system has room for further records.
    fn has_room(&mut self) -> bool {
        if self.until_check == 0 || !self.has_room {
            self.until_check = CHECK_INTERVAL;
            self.has_room = match self.store.region().free_around() {
                Ok(free) => free.is_none_or(|free| free >= GROWTH_RESERVE_BYTES),
                // The file system answered when the region was created.
                Err(_) => true,
            };
        }
        self.until_check -= 1;
        self.has_room
    }

    fn fresh(&mut self) -> Option<Ltmsi> {
        let ltmsi = (self.next < NAMES).then(|| Ltmsi::from_raw(self.next))?;
        self.next += 1;
        Some(ltmsi)
    }

    fn remove_record(&mut self, name: Name) {
        let Some(ltmsi) = self.names.get_mut(name.collection).and_then(|names| names.remove(&name.id)) else { return };
        if let Some(version) = self.store.load(ltmsi).map(|stored| stored.version) {
            // The record has that version: no other process commits.
            let _ = self.store.remove(ltmsi, version);
        }
        self.free.push(ltmsi);
    }
}

fn head(octets: &[u8]) -> Option<(RecordHeader<'_>, &[u8])> {
    postcard::take_from_bytes(octets).ok()
}

fn too_large(octets: usize) -> RecordError {
    RecordError::TooLarge { octets, most: LARGEST_RECORD }
}

fn written(name: Name, version: Version, whole: &[u8], parts: &[RecordPart<'_>]) -> Result<Vec<u8>, RecordError> {
    let size: usize = parts.iter().map(|part| part.name.len() + part.octets.len() + 10).sum();
    let lengths = parts.iter().map(|part| Ok((part.name, u32::try_from(part.octets.len())?)));
    let lengths = lengths.collect::<Result<_, std::num::TryFromIntError>>().map_err(|_| too_large(size))?;
    let head = RecordHeader { collection: name.collection, id: name.id, version, parts: lengths };
    let octets = Vec::with_capacity(64 + size + whole.len());
    let mut octets = postcard::to_extend(&head, octets).map_err(|_| RecordError::NotARecord)?;
    parts.iter().for_each(|part| octets.extend_from_slice(part.octets));
    octets.extend_from_slice(whole);
    Ok(octets)
}

/// Returns the time since the machine started, by which lifetimes are measured.
///
/// It continues when processes end, and it restarts together with the memory. A wall clock may be
/// set, which would expire all records.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn instant(time: Duration) -> Instant {
    Instant(u64::try_from(time.as_micros()).unwrap_or(u64::MAX - 1))
}

impl RecordStore for ShmRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.operations.reads += names.len() as u64;
        self.operations.round_trips += 1;
        let now = instant(now());
        // Every section under the lock leaves the index consistent, so poisoning is harmless.
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(names.iter().map(|name| index.record(*name, now)).collect())
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.operations.round_trips += 1;
        self.operations.changed(changes);
        let now = now();
        let times = (instant(now), instant(now + self.life));
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        changes.iter().map(|(name, change)| index.change(*name, change, times)).collect()
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.operations.round_trips += 1;
        let now = instant(now());
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let names = index.names.get(collection).into_iter().flatten();
        let lives = |ltmsi: Ltmsi| index.store.load(ltmsi).is_some_and(|it| it.deadline.is_none_or(|end| end > now));
        Ok(names.filter(|(_, ltmsi)| lives(**ltmsi)).map(|(id, _)| *id).collect())
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    fn new_directory() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("records");
        (directory, path)
    }

    #[test]
    fn shared_memory_keeps_the_contract() {
        let (_directory, path) = new_directory();
        let store = ShmRecords::open(&path, 5000, LIFE).unwrap();
        let (mut one, mut other) = (store.clone(), store);
        crate::conformance::records(&mut one, &mut other);
        crate::conformance::values(&mut one, &crate::conformance::FORMATS);
    }

    #[test]
    fn record_expires_without_commits() {
        let (_directory, path) = new_directory();
        let life = Duration::from_millis(100);
        crate::conformance::expiry_suite(&mut ShmRecords::open(&path, 100, life).unwrap(), life);
    }

    #[test]
    fn records_outlive_their_process() {
        let (_directory, path) = new_directory();
        let name = |id| Name { collection: "smf", id };
        let whole = |expected| Change::Commit { expected, octets: b"whole" };
        let parts = [RecordPart { name: "a", octets: b"1" }, RecordPart { name: "b", octets: b"" }];
        let mut store = ShmRecords::open(&path, 100, LIFE).unwrap();
        for (id, change) in [(1, whole(0)), (2, whole(0)), (3, Change::Replace { expected: 0, parts: &parts })] {
            assert_eq!(store.change(&[(name(id), change)]), [Ok(1)]);
        }
        assert_eq!(store.change(&[(name(1), Change::Remove { expected: 1 }), (name(2), whole(1))]), [Ok(0), Ok(2)]);
        let refused = ShmRecords::open(&path, 100, LIFE).err();
        assert!(matches!(refused, Some(ShmError::InUse(_))), "somebody has them: {refused:?}");
        let before = store.load(&[name(1), name(2), name(3)]).unwrap();
        drop(store);
        let mut store = ShmRecords::open(&path, 100, LIFE).unwrap();
        assert_eq!(store.load(&[name(1), name(2), name(3)]).unwrap(), before);
        assert_eq!(store.change(&[(name(2), whole(2)), (name(4), whole(0))]), [Ok(3), Ok(1)], "versions go on");
        let mut numbers = store.list_ids("smf").unwrap();
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3, 4]);
    }

    #[test]
    fn full_store_loses_nothing() {
        let (_directory, path) = new_directory();
        let mut store = ShmRecords::open(&path, 10, LIFE).unwrap();
        let name = |id| Name { collection: "smf", id };
        let commit = |store: &mut ShmRecords, id| {
            store.change(&[(name(id), Change::Commit { expected: 0, octets: &[1; 100] })]).remove(0)
        };
        let taken = (0..100_000).take_while(|id| commit(&mut store, *id).is_ok()).count() as u64;
        assert_eq!(taken, 10);
        assert_eq!(commit(&mut store, taken), Err(RecordError::Full));
        assert_eq!(store.change(&[(name(0), Change::Remove { expected: 1 })]), [Ok(0)]);
        assert_eq!(commit(&mut store, taken), Ok(1), "there is room again");
        assert_eq!(store.list_ids("smf").unwrap().len() as u64, taken);
    }

    /// Tests [`ShmRecords::has_room`]: it predicts the next commit, whatever the buffer sizes.
    #[test]
    fn whether_a_change_has_room_is_known_before() {
        let (_directory, path) = new_directory();
        let mut store = ShmRecords::open(&path, 500, LIFE).unwrap();
        let name = |id| Name { collection: "smf", id };
        let commit = |store: &mut ShmRecords, id, expected, octets: &[u8]| {
            store.change(&[(name(id), Change::Commit { expected, octets })]).remove(0)
        };
        assert_eq!(commit(&mut store, 0, 0, &[1; 100]), Ok(1));
        let filled = (1..).take_while(|id| commit(&mut store, *id, 0, &[2; 60 << 10]).is_ok()).count() as u64;
        assert!((200..500).contains(&filled), "it is the octets that have come to an end: {filled}");
        let mut version = 1;
        for size in [100, 150, 200, 400, 1000, 60_000, 100, 65_000, 70_000] {
            let (said, done) = (store.has_room(size + 16), commit(&mut store, 0, version, &vec![3; size]));
            assert_eq!(done.is_ok(), said, "{size} octets: {done:?}");
            version = done.unwrap_or(version);
        }
        assert!(version > 1 && !store.has_room(1000), "{version}");
        assert_eq!(store.change(&[(name(1), Change::Remove { expected: 1 })]), [Ok(0)]);
        assert!(store.has_room(60_000) && commit(&mut store, 0, version, &[4; 59_000]).is_ok(), "there is room again");
    }

    /// Tests a record that is too large.
    ///
    /// A retry would fail too, so the error must not be retryable. The stored record stays.
    #[test]
    fn oversized_record_is_refused() {
        let (_directory, path) = new_directory();
        let mut store = ShmRecords::open(&path, 10, LIFE).unwrap();
        let mut commit = |id, expected, octets: &[u8]| {
            store.change(&[(Name { collection: "smf", id }, Change::Commit { expected, octets })]).remove(0)
        };
        assert_eq!(commit(1, 0, &[1; 60 << 10]), Ok(1));
        // An existing record, and more new ones than there is room for.
        for (id, expected) in std::iter::once((1, 1)).chain((2..32).map(|id| (id, 0))) {
            let refused = commit(id, expected, &[2; 70 << 10]).unwrap_err();
            assert!(matches!(refused, RecordError::TooLarge { octets: 71_680.., .. }), "{refused:?}");
            assert!(refused.to_string().contains(&LARGEST_RECORD.to_string()), "{refused}");
            assert!(!refused.is_retryable(), "{refused}");
        }
        let parts =
            [RecordPart { name: "a", octets: &[3; 40 << 10] }, RecordPart { name: "b", octets: &[4; 40 << 10] }];
        let change = Change::Replace { expected: 1, parts: &parts };
        let refused = store.change(&[(Name { collection: "smf", id: 1 }, change)]).remove(0);
        assert!(matches!(refused, Err(RecordError::TooLarge { .. })), "{refused:?}");
        assert_eq!(
            store.load(&[Name { collection: "smf", id: 1 }]).unwrap()[0].as_ref().unwrap().octets,
            [1; 60 << 10]
        );
    }

    /// Environment variable that names a small memory file system, in a mount namespace of the
    /// test.
    const SMALL: &str = "VIREO_TEST_SMALL";

    /// Tests a full file system: a growing record is refused.
    ///
    /// Touching memory without room in the file system would end the process.
    #[test]
    fn full_file_system_is_reported() {
        let Ok(directory) = std::env::var(SMALL) else {
            let directory = tempfile::tempdir().unwrap();
            let script = "mount -t tmpfs -o size=40m none \"$1\" || exit 77; shift; exec \"$@\"";
            let mut command = std::process::Command::new("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(directory.path());
            command.arg(std::env::current_exe().unwrap()).env(SMALL, directory.path());
            let name = "records::shm::tests::full_file_system_is_reported";
            let output = command.args(["--exact", name, "--nocapture"]).output();
            let Some(output) = output.ok().filter(|output| output.status.code() != Some(77)) else {
                return eprintln!("skipped: no file system can be mounted here");
            };
            let said = String::from_utf8_lossy(&output.stdout);
            let is_refused = output.status.code() == Some(1) && said.is_empty();
            if is_refused {
                return eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
            }
            return assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        };
        let directory = Path::new(&directory);
        let path = directory.join("records");
        let mut store = ShmRecords::open(&path, 100, LIFE).unwrap();
        let name = |id| Name { collection: "smf", id };
        let commit = |store: &mut ShmRecords, id, expected, octets: &[u8]| {
            store.change(&[(name(id), Change::Commit { expected, octets })]).remove(0)
        };
        assert_eq!(commit(&mut store, 1, 0, &[1; 100]), Ok(1));
        fill(&directory.join("other"));
        // Each commit needs a buffer of a size that was not used before.
        let mut version = 1;
        let sizes = (9..16).map(|power| vec![power as u8; 1 << power]);
        let refused = sizes.filter(|octets| match commit(&mut store, 1, version, octets) {
            Ok(next) => {
                version = next;
                false
            }
            Err(error) => {
                assert_eq!(error, RecordError::Full);
                true
            }
        });
        assert!(refused.count() > 0, "it has no room for all of them");
        assert_eq!(store.load(&[name(1)]).unwrap()[0].as_ref().unwrap().version, version);
        std::fs::remove_file(directory.join("other")).unwrap();
        assert_eq!(commit(&mut store, 1, version, &[2; 60_000]), Ok(version + 1), "there is room again");
        drop(store);
        // Without free space, an existing file can be opened, but no new one is created.
        fill(&directory.join("other"));
        let store = ShmRecords::open(&path, 100, LIFE).unwrap();
        assert_eq!(store.len(), 1);
        let refused = ShmRecords::open(&directory.join("more"), 100, LIFE).err();
        assert!(matches!(refused, Some(ShmError::NoRoom { .. })), "{refused:?}");
    }

    /// Creates a file that uses all free space.
    fn fill(path: &Path) {
        use std::io::Write;
        let mut file = std::fs::File::create(path).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    #[test]
    fn expired_record_is_not_found() {
        let (_directory, path) = new_directory();
        let name = |id| Name { collection: "smf", id };
        let commit = Change::Commit { expected: 0, octets: b"x" };
        let mut store = ShmRecords::open(&path, 10, Duration::ZERO).unwrap();
        assert_eq!(store.change(&[(name(1), commit)]), [Ok(1)]);
        drop(store);
        let mut store = ShmRecords::open(&path, 10, LIFE).unwrap();
        assert!(store.is_empty(), "its room is free");
        assert_eq!(store.change(&[(name(1), commit), (name(2), commit)]), [Ok(1), Ok(1)]);
    }

    #[test]
    fn foreign_file_is_left_alone() {
        let (_directory, path) = new_directory();
        let mut store = ShmRecords::open(&path, 10, LIFE).unwrap();
        store.index.lock().unwrap().store.commit(Ltmsi::from_raw(7), 0, &[0xff; 20], None).unwrap();
        let name = Name { collection: "smf", id: 1 };
        assert_eq!(store.change(&[(name, Change::Commit { expected: 0, octets: b"x" })]), [Ok(1)]);
        drop(store);
        assert!(matches!(ShmRecords::open(&path, 10, LIFE), Err(ShmError::Release(_))));
        let other = path.with_file_name("other");
        std::fs::write(&other, [7; 8192]).unwrap();
        assert!(matches!(ShmRecords::open(&other, 10, LIFE), Err(ShmError::Foreign(_))));
        let nowhere = ShmRecords::open(&path.with_file_name("none").join("x"), 10, LIFE).err().unwrap();
        assert!(nowhere.to_string().contains("name a directory"), "{nowhere}");
    }
}
