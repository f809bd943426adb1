//! Shared-memory file of kept contexts.

use crate::host::builder::HostConfig;
use crate::host::error::HostError;
use rustc_hash::FxHasher;
use std::collections::VecDeque;
use std::hash::Hasher;
use vireo_core::amf::context::{self, StoredCounts};
use vireo_core::config::CoreConfig;
use vireo_ops::config::{KeepConfig, KeepFile};
use vireo_store::CommitError;
use vireo_store::records::{ContextFile, Opened, ShmError};
use vireo_store::region::{Region, Slot, Snapshot};
use vireo_types::{Duration, Instant};

/// Maximum delay until a changed context is stored.
const MAX_STORE_DELAY: Duration = Duration::from_millis(50);
/// Maximum number of contexts stored per call.
const AT_ONCE: usize = 256;
/// Maximum time to wait for the file while a killed process that owns it has not quite ended.
const OPEN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
/// Version of the file's layout: grows with every change of the meaning of its words.
const FORM: u64 = 1;

/// File of a host's kept contexts.
#[derive(Debug)]
pub(in crate::host) struct Keep {
    pub(super) file: ContextFile,
    /// Indexed by slot number.
    entries: Vec<Entry>,
    /// Slots whose contexts must be stored again, in the order of their changes.
    changed: VecDeque<(Instant, Slot)>,
    /// True if the lack of room was logged.
    is_full: bool,
    snapshot: Snapshot,
}

/// What the file has of the UE of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Location of the context in the file.
    location: Option<u32>,
    /// Version of the stored perpetual part.
    version: u32,
    /// True if the slot is in [`Keep::changed`].
    is_changed: bool,
    is_registered: bool,
}

/// Returns a hash of the configuration that kept contexts depend on. Their identifiers have another
/// meaning with another configuration.
pub(in crate::host) fn configuration_hash(core: &CoreConfig) -> u64 {
    let slices: Vec<_> = core.slices.iter().map(|slice| slice.snssai).collect();
    let dnns: Vec<_> = core.dnns.iter().map(|dnn| (&dnn.name, dnn.address_ranges())).collect();
    let amf = (&core.plmns, core.amf_region, core.amf_set, core.amf_pointer);
    let mut hasher = FxHasher::default();
    hasher.write(format!("{amf:?} {slices:?} {dnns:?}").as_bytes());
    hasher.write_u64(FORM);
    hasher.finish().max(1)
}

impl Keep {
    /// Opens the file of a host and reads its contexts, if contexts are kept in a file. Hosts of a
    /// cluster have replicas instead.
    ///
    /// # Errors
    ///
    /// Returns an error as [`Keep::open`] does.
    pub(in crate::host) fn open_for_host(
        config: &HostConfig,
        is_member: bool,
    ) -> Result<Option<(Self, Opened)>, HostError> {
        match &config.state.keep {
            Some(KeepConfig::File(kept)) if !is_member => Keep::open(kept, config.state.ues, &config.core),
            _ => Ok(None),
        }
    }

    /// Opens the file of a configuration and reads its contexts.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened and the configuration requires it.
    fn open(config: &KeepFile, ues: u32, core: &CoreConfig) -> Result<Option<(Self, Opened)>, HostError> {
        let deadline = std::time::Instant::now() + OPEN_TIMEOUT;
        let opened = loop {
            match ContextFile::open(&config.path, ues, configuration_hash(core), config.key.clone()) {
                Err(ShmError::InUse(_)) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                opened => break opened,
            }
        };
        match opened {
            Ok((file, opened)) => Ok(Some((Keep::new(file), opened))),
            Err(error) if config.is_wanted => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "contexts not kept for the next start; see state.keep");
                Ok(None)
            }
        }
    }

    fn new(file: ContextFile) -> Self {
        Keep { file, entries: Vec::new(), changed: VecDeque::new(), is_full: false, snapshot: Snapshot::default() }
    }

    fn entry(&mut self, slot: Slot) -> &mut Entry {
        let at = slot.number() as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, Entry::default());
        }
        &mut self.entries[at]
    }

    /// Stores the COUNTs of a commit before its effects are sent.
    #[inline]
    pub(in crate::host) fn on_commit(&mut self, slot: Slot, is_registered: bool, context: &[u8], now: Instant) {
        let counts = if is_registered { StoredCounts::from_encoded(context) } else { None };
        let entry = self.entry(slot);
        entry.is_registered = counts.is_some();
        let Some(counts) = counts else {
            if let Some(location) = entry.location.take() {
                self.file.remove(location);
            }
            return;
        };
        let entry = *entry;
        if let Some(location) = entry.location {
            self.file.set(location, counts.to_word());
        }
        if entry.location.is_none() || entry.version != counts.version {
            self.note_change(slot, now);
        }
    }

    fn note_change(&mut self, slot: Slot, now: Instant) {
        if !std::mem::replace(&mut self.entry(slot).is_changed, true) {
            self.changed.push_back((now, slot));
        }
    }

    /// Stores changed contexts: all if the host is idle, else those older than [`MAX_STORE_DELAY`].
    /// Returns true if more contexts are due.
    pub(in crate::host) fn store(&mut self, region: &Region, is_idle: bool, now: Instant) -> bool {
        for _ in 0..AT_ONCE {
            match self.changed.front() {
                Some((at, _)) if is_idle || now.since(*at) >= MAX_STORE_DELAY => {}
                _ => return false,
            }
            if let Some((_, slot)) = self.changed.pop_front() {
                self.store_one(region, slot);
            }
        }
        !self.changed.is_empty()
    }

    fn store_one(&mut self, region: &Region, slot: Slot) {
        let entry = self.entry(slot);
        entry.is_changed = false;
        let Entry { location, is_registered, .. } = *entry;
        if !is_registered || !region.read(slot, &mut self.snapshot) {
            return;
        }
        let Some(counts) = StoredCounts::from_encoded(&self.snapshot.context) else { return };
        let Some(location) = location.or_else(|| self.file.allocate()) else { return self.full() };
        let stored = match self.file.put(location, &self.snapshot.context) {
            // It does not fit with its radio capabilities: a RAN node asks the UE for them again.
            Err(CommitError::TooLarge(octets)) => match context::without_radio_capability(&self.snapshot.context) {
                Ok(smaller) => self.file.put(location, &smaller),
                Err(_) => Err(CommitError::TooLarge(octets)),
            },
            stored => stored,
        };
        match stored {
            Ok(()) => {
                self.file.set(location, counts.to_word());
                *self.entry(slot) =
                    Entry { location: Some(location), version: counts.version, is_changed: false, is_registered: true };
            }
            Err(error) => {
                self.file.remove(location);
                self.entry(slot).location = None;
                tracing::debug!(%error, slot = slot.number(), "a context is not kept");
                self.full();
            }
        }
    }

    fn full(&mut self) {
        if !std::mem::replace(&mut self.is_full, true) {
            let kept = self.file.len();
            tracing::warn!(count = kept, "no room for more kept contexts; further UEs register again after a restart");
        }
    }

    /// Assigns a stored context to a slot.
    pub(super) fn adopt(&mut self, slot: Slot, location: u32, version: u32, now: Instant) {
        *self.entry(slot) = Entry { location: Some(location), version, is_changed: false, is_registered: true };
        self.note_change(slot, now);
    }
}

/// Numbers of resumed and dropped contexts of a file.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) resumed: usize,
    pub(super) sessions: usize,
    /// Changed after they were stored.
    pub(super) older: usize,
    /// Of another layout, or damaged.
    pub(super) unreadable: usize,
    /// Of UEs that are not registered, or without room for them.
    pub(super) void: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_core::amf::context::{EncodedContext, NasSecurity, Registration, UeContext};
    use vireo_store::records::OpenedContext;
    use vireo_store::region::{RegionConfig, Worker};
    use vireo_types::Ltmsi;
    use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

    /// Commits of a host, and its file.
    struct Bench {
        _directory: tempfile::TempDir,
        config: KeepFile,
        region: Region,
        worker: Worker,
        ue: UeContext,
        octets: Vec<u8>,
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir_in("/dev/shm").unwrap();
            let key = postcard::from_bytes(&[1; 32]).unwrap();
            let large = RegionConfig { large_records: true, ..RegionConfig::new(4, 2, 32 << 20) };
            let region = Region::create(large).unwrap();
            let mut ue = UeContext::new(Ltmsi::from_raw(9));
            ue.registration = Registration::Registered;
            ue.security = Some(NasSecurity::fresh(1, [7; 32], IntegrityAlgorithm::NIA2, CipheringAlgorithm::NEA2));
            Bench {
                config: KeepFile { path: directory.path().join("kept"), key, is_wanted: true },
                _directory: directory,
                worker: region.join(1).unwrap(),
                region,
                ue,
                octets: Vec::new(),
            }
        }

        fn open(&self) -> (Keep, Opened) {
            let file = ContextFile::open(&self.config.path, 4, 1, self.config.key.clone()).unwrap();
            (Keep::new(file.0), file.1)
        }

        /// Commits the current state of the UE.
        fn commit(&mut self, keep: &mut Keep, slot: Slot, at: u64) {
            let before = std::mem::take(&mut self.octets);
            context::encode_after(&self.ue, &before, &mut self.octets).unwrap();
            let mut seen = Snapshot::default();
            self.region.read(slot, &mut seen);
            let record = vireo_store::region::CommitRecord { context: &self.octets, ..Default::default() };
            let _ = self.worker.commit(slot, &seen, &record).unwrap();
            keep.on_commit(slot, self.ue.is_registered(), &self.octets, Instant(at));
        }

        fn counts(&mut self, counts: (u32, u32)) {
            let security = self.ue.security.as_mut().unwrap();
            (security.uplink, security.downlink) = counts;
        }
    }

    /// Returns the COUNTs that the next process resumes with; `None` for older contexts.
    fn next(bench: &Bench) -> Vec<Option<(u32, u32)>> {
        let (keep, opened) = bench.open();
        drop(keep);
        let counts = |found: &OpenedContext| {
            StoredCounts::from_word(found.word, EncodedContext::new(&found.octets).unwrap().versions.perpetual)
        };
        opened.contexts.iter().map(counts).collect()
    }

    #[test]
    fn counts_are_kept_at_each_commit() {
        let mut bench = Bench::new();
        let (mut keep, _) = bench.open();
        let slot = bench.worker.insert(bench.ue.ltmsi).unwrap();
        bench.counts((1, 2));
        bench.commit(&mut keep, slot, 0);
        assert!(!keep.store(&bench.region, true, Instant(0)));
        for count in 3..10 {
            bench.counts((count, 2 * count));
            bench.commit(&mut keep, slot, 0);
            assert!(keep.changed.is_empty(), "nothing but the COUNTs has changed");
        }
        drop(keep);
        assert_eq!(next(&bench), [Some((9, 18))]);
    }

    #[test]
    fn large_context_fits_without_capability() {
        let mut bench = Bench::new();
        let (mut keep, _) = bench.open();
        let slot = bench.worker.insert(bench.ue.ltmsi).unwrap();
        bench.counts((1, 2));
        bench.ue.radio_capability = vec![7; vireo_types::limits::UE_CAPABILITY_OCTETS];
        bench.commit(&mut keep, slot, 0);
        assert!(!keep.store(&bench.region, true, Instant(0)));
        drop(keep);
        assert_eq!(next(&bench), [Some((1, 2))]);
        let (_, opened) = bench.open();
        let found = context::decode(&opened.contexts[0].octets).unwrap();
        assert!(found.is_registered() && found.radio_capability.is_empty());
    }

    #[test]
    fn changed_context_is_stored_when_idle_or_due() {
        let mut bench = Bench::new();
        let (mut keep, _) = bench.open();
        let slot = bench.worker.insert(bench.ue.ltmsi).unwrap();
        bench.commit(&mut keep, slot, 0);
        assert!(!keep.store(&bench.region, false, Instant(0)) && keep.file.is_empty(), "a busy host waits");
        keep.store(&bench.region, false, Instant(MAX_STORE_DELAY.0));
        assert_eq!(keep.file.len(), 1);
        // A new key restarts its COUNTs: the older context is useless.
        bench.ue.security.as_mut().unwrap().kamf = [8; 32];
        bench.counts((0, 1));
        bench.commit(&mut keep, slot, 0);
        drop(keep);
        assert_eq!(next(&bench), [None]);
    }

    #[test]
    fn deregistered_ue_is_removed_from_file() {
        let mut bench = Bench::new();
        let (mut keep, _) = bench.open();
        let slot = bench.worker.insert(bench.ue.ltmsi).unwrap();
        bench.commit(&mut keep, slot, 0);
        keep.store(&bench.region, true, Instant(0));
        bench.ue.registration = Registration::Deregistered;
        bench.commit(&mut keep, slot, 0);
        assert!(keep.file.is_empty());
        // The context was due for storage when the UE deregistered.
        bench.ue.registration = Registration::Registered;
        bench.commit(&mut keep, slot, 0);
        bench.ue.registration = Registration::Deregistered;
        bench.commit(&mut keep, slot, 0);
        keep.store(&bench.region, true, Instant(0));
        drop(keep);
        assert_eq!(next(&bench), []);
    }
}
