//! Sealed contexts that survive their process, in a shared-memory file.
//!
//! One thread of one process uses the file.
//!
//! Each context has a *location*: its sealed bytes, which change seldom, and a word in clear. The
//! word is stored at once and at every commit. It belongs to a version of the bytes. If the
//! versions differ, the bytes are older than the word, and the context must not be continued. The
//! caller defines the meaning of the word; 0 = there is no context to continue.

use super::sealed::RecordsKey;
use super::shm::ShmError;
use crate::region::{Region, RegionConfig, RegionError};
use crate::{CommitError, ContextStore, ShmStore};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use vireo_sealing::OpenError;
use vireo_types::Ltmsi;

/// Average size in bytes of a context with its index entries, upper bound.
const OCTETS: usize = 2048;
/// Bytes of the fixed parts of a region, and of the words.
const FIXED: usize = 16 << 20;
/// The first shared word identifies the configuration ([`KeptContexts::open`]). The words of the
/// locations follow.
const MARK: u32 = 0;
/// Free bytes of the file system that new contexts leave for the growth of existing ones.
const GROWTH_RESERVE_BYTES: u64 = 32 << 20;
/// New contexts between two checks of the file system. They need less than
/// [`GROWTH_RESERVE_BYTES`].
const CHECK_INTERVAL: u32 = 128;

/// A file of contexts.
#[derive(Debug)]
pub struct ContextFile {
    store: ShmStore,
    key: RecordsKey,
    free: Vec<u32>,
    next: u32,
    /// New contexts until the next check of the file system.
    until_check: u32,
    has_room: bool,
    sealed: Vec<u8>,
}

/// A context found when the file was opened.
#[derive(Debug)]
pub struct OpenedContext {
    /// Number for [`ContextFile::put`], [`ContextFile::set`] and [`ContextFile::remove`].
    pub location: u32,
    /// The word beside it; not 0.
    pub word: u64,
    /// The opened (decrypted) bytes.
    pub octets: Vec<u8>,
}

/// Contents of a file when it was opened.
#[derive(Debug, Default)]
pub struct Opened {
    /// Contexts that can be continued.
    pub contexts: Vec<OpenedContext>,
    /// Reason that all contexts were dropped, if they were.
    pub dropped: Option<&'static str>,
    /// Contexts without a word: the process ended while it stored or removed them.
    pub unfinished: usize,
    /// Contexts sealed with another key.
    pub other_key: usize,
    /// Contexts that are not sealed, or were changed or moved since.
    pub damaged: usize,
}

impl ContextFile {
    /// Opens the file with room for `contexts` contexts, and returns its contents.
    ///
    /// `mark` (not 0) identifies the configuration. Contexts of another mark or of another layout
    /// version are dropped.
    ///
    /// # Errors
    ///
    /// Returns a [`ShmError`] if the file cannot be opened.
    pub fn open(path: &Path, contexts: u32, mark: u64, key: RecordsKey) -> Result<(Self, Opened), ShmError> {
        let mut opened = Opened::default();
        let sizes = RegionConfig {
            packets: 1,
            large_packets: 0,
            rings: 0,
            board: contexts + 1,
            published_values: 0,
            ..RegionConfig::new(contexts, 1, FIXED + contexts as usize * (OCTETS + size_of::<u64>()))
        };
        let region = match Region::open(path, sizes) {
            Err(RegionError::Layout(_)) => {
                opened.dropped = Some("the file is another release's");
                replace_file(path, sizes)?
            }
            Ok(region) if is_other(&region, sizes, mark) => {
                opened.dropped = Some("the configuration is another one");
                // A process that opens it in between finds the file locked.
                let found = replace_file(path, sizes);
                drop(region);
                found?
            }
            region => region.map_err(|error| ShmError::from_region(path, error))?,
        };
        region.shared_word(MARK).store(mark, Ordering::Release);
        // This process holds the lock of the file: the previous process is dead.
        if let Some(dead) = region.declare_dead_unlocked(0) {
            region.reclaim(dead);
        }
        let store = ShmStore::new(&region).map_err(|_| ShmError::Foreign(path.to_owned()))?;
        let mut file =
            ContextFile { store, key, free: Vec::new(), next: 0, until_check: 0, has_room: true, sealed: Vec::new() };
        file.index(&mut opened);
        Ok((file, opened))
    }

    /// Reads the contexts and removes those that cannot be continued.
    fn index(&mut self, opened: &mut Opened) {
        let (mut used, mut void) = (Vec::with_capacity(self.store.len()), Vec::new());
        let (region, key) = (self.store.region(), &self.key);
        let locations = locations(region);
        self.store.each(&mut |at, stored| {
            let location = at.get();
            let word = if location < locations { word_of(region, location) } else { 0 };
            let found = match word {
                0 => {
                    opened.unfinished += 1;
                    None
                }
                _ => match key.open(&associated_data(location), stored.octets) {
                    Ok(octets) => Some(octets),
                    Err(OpenError::OtherKey { .. }) => {
                        opened.other_key += 1;
                        None
                    }
                    Err(OpenError::NotSealed | OpenError::Damaged) => {
                        opened.damaged += 1;
                        None
                    }
                },
            };
            match found {
                Some(octets) => {
                    used.push(location);
                    opened.contexts.push(OpenedContext { location, word, octets });
                }
                None => void.push((at, stored.version)),
            }
            true
        });
        for (at, version) in void {
            if at.get() < locations {
                set_word(self.store.region(), at.get(), 0);
            }
            // The context has that version: no other thread commits.
            let _ = self.store.remove(at, version);
        }
        used.sort_unstable();
        for location in used {
            self.free.extend(self.next..location);
            self.next = location + 1;
        }
    }

    /// Returns the number of contexts.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns true if there are no contexts.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Allocates a location for a context; `None`: the file, or its file system, is full.
    pub fn allocate(&mut self) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        if let Some(location) = self.free.pop() {
            return Some(location);
        }
        let location = self.next;
        (location < locations(self.store.region())).then(|| {
            self.next += 1;
            location
        })
    }

    /// Stores the word of a location.
    ///
    /// However the process ends afterwards, the next process reads this word or a later one.
    #[inline]
    pub fn set(&self, location: u32, word: u64) {
        set_word(self.store.region(), location, word);
    }

    /// Stores the bytes of a location, sealed. The caller must set the word afterwards.
    ///
    /// # Errors
    ///
    /// Returns a [`CommitError`] if there is no room; the location is empty then.
    pub fn put(&mut self, location: u32, octets: &[u8]) -> Result<(), CommitError> {
        self.sealed.clear();
        self.key.seal_into(&associated_data(location), octets, &mut self.sealed);
        let at = Ltmsi::from_raw(location);
        let before = self.store.load(at).map_or(0, |stored| stored.version);
        let stored = self.store.commit(at, before, &self.sealed, None).map(drop);
        if stored.is_err() {
            self.empty(location);
        }
        stored
    }

    /// Removes a context and frees its location.
    pub fn remove(&mut self, location: u32) {
        self.empty(location);
        self.free.push(location);
    }

    fn empty(&mut self, location: u32) {
        self.set(location, 0);
        let at = Ltmsi::from_raw(location);
        if let Some(version) = self.store.load(at).map(|stored| stored.version) {
            // The context has that version: no other thread commits.
            let _ = self.store.remove(at, version);
        }
    }

    /// Returns true if the file system has room for further contexts.
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
}

/// Returns the associated data of sealing: the location.
fn associated_data(location: u32) -> [u8; 8] {
    let [a, b, c, d] = location.to_be_bytes();
    [b'k', b'e', b'p', b't', a, b, c, d]
}

fn locations(region: &Region) -> u32 {
    region.config().ues.min(region.config().board.saturating_sub(1))
}

/// Reads the word of a location. Acquire: the bytes that it belongs to are visible too.
fn word_of(region: &Region, location: u32) -> u64 {
    region.shared_word(location + 1).load(Ordering::Acquire)
}

fn set_word(region: &Region, location: u32, word: u64) {
    region.shared_word(location + 1).store(word, Ordering::Release);
}

/// Returns true if an existing region has other sizes or another mark. A new region has no mark
/// yet.
fn is_other(region: &Region, sizes: RegionConfig, mark: u64) -> bool {
    let found = region.config().board.checked_sub(1).map(|_| region.shared_word(MARK).load(Ordering::Acquire));
    *region.config() != sizes || found.is_none_or(|found| found != 0 && found != mark)
}

/// Replaces a file by a new one.
fn replace_file(path: &Path, sizes: RegionConfig) -> Result<Region, ShmError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(ShmError::Io { path: path.to_owned(), source });
        }
        _ => {}
    }
    Region::open(path, sizes).map_err(|error| ShmError::from_region(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use vireo_sealing::SealingKey;

    const SECRET: &[u8] = b"K_AMF, which nobody reads in the file";

    fn new_directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("kept");
        (directory, path)
    }

    fn open(path: &Path, mark: u64, key: u8) -> (ContextFile, Opened) {
        ContextFile::open(path, 1000, mark, SealingKey::new([key; 32]).into()).unwrap()
    }

    /// Stores contexts with these words and returns their locations.
    fn store(file: &mut ContextFile, words: &[u64]) -> Vec<u32> {
        let put = |word: &u64| {
            let location = file.allocate().unwrap();
            file.put(location, &[SECRET, &word.to_be_bytes()].concat()).unwrap();
            file.set(location, *word);
            location
        };
        words.iter().map(put).collect()
    }

    fn words(opened: &Opened) -> Vec<u64> {
        let mut words: Vec<u64> = opened.contexts.iter().map(|context| context.word).collect();
        words.sort_unstable();
        words
    }

    #[test]
    fn contexts_are_there_for_next_process_sealed() {
        let (_directory, path) = new_directory();
        let (mut file, opened) = open(&path, 7, 1);
        assert!(opened.contexts.is_empty() && opened.dropped.is_none());
        let locations = store(&mut file, &[11, 12, 13]);
        // The word changes at each commit, the bytes do not.
        file.set(locations[0], 21);
        file.remove(locations[1]);
        assert!(matches!(ContextFile::open(&path, 1000, 7, SealingKey::new([1; 32]).into()), Err(ShmError::InUse(_))));
        let octets = fs::read(&path).unwrap();
        assert!(!octets.windows(8).any(|octets| octets == &SECRET[..8]), "nothing of it is in clear");
        // A process that is killed writes nothing.
        drop(file);
        let (mut file, opened) = open(&path, 7, 1);
        assert_eq!((words(&opened), opened.unfinished), (vec![13, 21], 0));
        let first = opened.contexts.iter().find(|context| context.word == 21).unwrap();
        assert_eq!(first.octets, [SECRET, &11_u64.to_be_bytes()].concat(), "as they were put");
        let more = store(&mut file, &[31, 32]);
        assert!(
            more.iter().all(|location| ![locations[0], locations[2]].contains(location)),
            "locations are not given twice"
        );
    }

    #[test]
    fn damaged_contexts_are_dropped_and_counted() {
        let (_directory, path) = new_directory();
        let (mut file, _) = open(&path, 7, 1);
        let locations = store(&mut file, &[11, 12, 13, 14]);
        // The process ended between storing bytes and word.
        file.set(locations[0], 0);
        // Bytes of one location in another.
        let foreign = file.store.load(Ltmsi::from_raw(locations[1])).unwrap().octets.to_vec();
        let version = file.store.load(Ltmsi::from_raw(locations[2])).unwrap().version;
        file.store.commit(Ltmsi::from_raw(locations[2]), version, &foreign, None).unwrap();
        let version = file.store.load(Ltmsi::from_raw(locations[3])).unwrap().version;
        file.store.commit(Ltmsi::from_raw(locations[3]), version, b"in clear", None).unwrap();
        drop(file);
        let (file, opened) = open(&path, 7, 1);
        assert_eq!((words(&opened), opened.unfinished, opened.damaged), (vec![12], 1, 2));
        assert_eq!(file.len(), 1, "it is not there any more");
        drop(file);
        let (file, opened) = open(&path, 7, 2);
        assert_eq!((words(&opened), opened.other_key, file.len()), (vec![], 1, 0));
    }

    #[test]
    fn other_layouts_and_configurations_begin_anew() {
        let (_directory, path) = new_directory();
        let (mut file, _) = open(&path, 7, 1);
        store(&mut file, &[11]);
        drop(file);
        let (mut file, opened) = open(&path, 8, 1);
        assert_eq!((words(&opened), opened.dropped), (vec![], Some("the configuration is another one")));
        store(&mut file, &[12]);
        drop(file);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&99_u64.to_ne_bytes(), 8).unwrap();
        let (mut file, opened) = open(&path, 8, 1);
        assert_eq!((words(&opened), opened.dropped), (vec![], Some("the file is another release's")));
        store(&mut file, &[13]);
        drop(file);
        assert_eq!(words(&open(&path, 8, 1).1), [13]);
        fs::write(&path, [7; 8192]).unwrap();
        let refused = ContextFile::open(&path, 1000, 8, SealingKey::new([1; 32]).into());
        assert!(matches!(refused, Err(ShmError::Foreign(_))), "it is no file of contexts, and not removed");
    }

    #[test]
    fn full_file_still_updates_contexts() {
        let (_directory, path) = new_directory();
        let (mut file, _) = ContextFile::open(&path, 2, 7, SealingKey::new([1; 32]).into()).unwrap();
        let locations = store(&mut file, &[11, 12]);
        assert_eq!(file.allocate(), None);
        file.put(locations[0], &[1; 3000]).unwrap();
        file.remove(locations[1]);
        assert_eq!(file.allocate(), Some(locations[1]));
    }
}
