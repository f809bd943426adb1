//! Write-behind of commits: the next load of a UE waits for the write.
//!
//! Until the write, the region has the context too. Commits in flight of a dead worker's writers
//! are not lost with it.

use super::{ContextDatabase, ContextDatabaseError, DatabaseRef, RecordsHandle, content_ahead};
use crate::worker::outbox::Outbox;
use std::time::Duration;
use vireo_ops::clock::clock;
use vireo_ops::ue_record::UeRecord;
use vireo_store::Version;
use vireo_store::records::{RecordError, RecordStore, Writers, WritersConfig};
use vireo_store::region::{Region, Snapshot, Worker};

/// Number of writer threads of a worker, and the limits of their commits in flight.
const THREADS: usize = 2;
const WRITERS: WritersConfig = WritersConfig { waiting: 4096, octets: 16 << 20, timeout: Duration::from_millis(300) };
/// Maximum wait for another worker's writers. After that the UE continues from the region.
const BARRIER_TIMEOUT: Duration = Duration::from_millis(300);
/// Interval of the checks meanwhile.
const BARRIER_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Identity of a worker process in the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writer(pub(super) u64);

impl Writer {
    /// Returns the identity of this process.
    pub(in crate::worker) fn this_process(worker: &Worker) -> Self {
        Writer(u64::from(worker.number()) << 32 | u64::from(std::process::id()))
    }

    fn is_there(self, region: &Region) -> bool {
        region.is_joined((self.0 >> 32) as u8, self.0 as u32)
    }
}

/// Starts writers and returns a handle that passes commits to them.
pub(super) fn behind(
    records: Box<dyn RecordStore>,
    mut open: impl FnMut() -> RecordsHandle,
    writers: &mut Option<Writers>,
) -> RecordsHandle {
    // All handles lead to the same database: if one opens, others do.
    let ways: Result<Vec<_>, _> = (0..THREADS).map(|_| open()).collect();
    let failed = |error: std::io::Error| RecordError::Down(format!("a writer cannot be started: {error}"));
    let started = Writers::start(WRITERS, ways?).map_err(failed)?;
    let records = started.records(records);
    *writers = Some(started);
    Ok(Box::new(records))
}

/// State from which a UE continues.
pub(in crate::worker) struct LatestUe {
    /// Version of its record.
    pub(in crate::worker) version: Version,
    /// Content of the record.
    pub(in crate::worker) stored: UeRecord,
    /// True if the database has an earlier state.
    pub(in crate::worker) ahead: bool,
}

/// Returns the region's content besides the outbox while the write is pending; `None` if it is too
/// long.
pub(in crate::worker) fn pending_content(stored: &mut UeRecord, elsewhere: DatabaseRef) -> Option<Vec<u8>> {
    let outboxes = std::mem::take(&mut stored.recovery.outboxes);
    let octets = content_ahead(stored, elsewhere);
    stored.recovery.outboxes = outboxes;
    octets
}

impl ContextDatabase {
    /// Loads a UE whose last processed input is known. With write-behind, waits for the worker of
    /// that commit, unless it is dead.
    pub(in crate::worker) fn read_after(
        &mut self,
        elsewhere: DatabaseRef,
        consumed: u64,
        (region, own): (&Region, Writer),
    ) -> Result<Option<(Version, UeRecord)>, ContextDatabaseError> {
        let DatabaseRef { id, base, writer } = elsewhere;
        if self.writers.is_none() {
            return self.read(id);
        }
        let began = std::time::Instant::now();
        loop {
            let found = match self.read(id) {
                // The writers of this worker report a refused commit once: the region has its
                // content.
                Err(ContextDatabaseError::Database(RecordError::Conflict | RecordError::NotARecord)) => {
                    self.read(id)?
                }
                found => found?,
            };
            let owner = self.config.owner;
            let is_written = |stored: &UeRecord| {
                stored.owner != owner || (if stored.consumed == 0 { base } else { stored.consumed }) >= consumed
            };
            // The writers of this worker have no pending commit of the UE.
            let is_waited_for = writer != own && writer.is_there(region) && began.elapsed() < BARRIER_TIMEOUT;
            if found.as_ref().is_some_and(|(_, stored)| is_written(stored)) || !is_waited_for {
                return Ok(found);
            }
            std::thread::sleep(BARRIER_POLL_INTERVAL);
        }
    }

    /// Returns the state from which a UE continues: the later one of database and region. The
    /// region's state is valid even if another worker's writers stored something else in its place.
    pub(in crate::worker) fn latest(
        &self,
        found: Option<(Version, UeRecord)>,
        here: &Snapshot,
    ) -> Result<Option<LatestUe>, ContextDatabaseError> {
        let later = DatabaseRef::part(&here.context).map(UeRecord::decode).transpose()?;
        let (version, stored, mut later) = match (found, later) {
            (Some((version, stored)), Some(later)) => (version, stored, later),
            // The first commit was not written. A later commit implies an earlier record: its
            // removal is final.
            (None, Some(later)) if self.writes_behind() && later.step == 1 => (0, UeRecord::default(), later),
            (found, _) => return Ok(found.map(|(version, stored)| LatestUe { version, stored, ahead: false })),
        };
        if !self.writes_behind() {
            let ahead = later.step > stored.step;
            return Ok(Some(LatestUe { version, stored: if ahead { later } else { stored }, ahead }));
        }
        if later.step < stored.step || later.step == stored.step && later.context == stored.context {
            return Ok(Some(LatestUe { version, stored, ahead: false }));
        }
        // The outbox is stored beside the content, and the content of the record is known.
        later.known = stored.known;
        let mut outboxes = stored.recovery.outboxes;
        if later.step == stored.step {
            outboxes.pop();
        }
        later.recovery.outboxes = outboxes;
        let at = Outbox::decode(&here.outbox).map_or_else(clock, |outbox| outbox.at);
        later.recovery.add_outbox(at, &here.outbox, self.config.shared);
        Ok(Some(LatestUe { version, stored: later, ahead: true }))
    }

    /// Waits until the pending commits of a UE are written.
    pub(in crate::worker) fn settle(&mut self, id: u64) -> Result<(), ContextDatabaseError> {
        match self.read(id) {
            // Writers of a dead worker wrote after its death was detected.
            Err(ContextDatabaseError::Database(RecordError::Conflict)) => {
                Err(RecordError::Down("something was written late".into()).into())
            }
            done => done.map(|_| ()),
        }
    }

    /// Returns true if steps do not wait for their commits.
    pub(in crate::worker) fn writes_behind(&self) -> bool {
        self.writers.is_some()
    }
}
