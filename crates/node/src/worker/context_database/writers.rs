//! Commits that nobody waits for: they are handed to writers, and whoever loads the context next waits until they are written. Until
//! then the region has the context, too: what the writers of a worker had in hand that has died is not lost with it.

use super::{ContextDatabase, ContextDatabaseError, DatabaseRef, RecordsHandle, UeRecord};
use crate::clock::clock;
use crate::worker::outbox::Outbox;
use std::time::Duration;
use vireo_store::Version;
use vireo_store::records::{RecordError, RecordStore, Writers, WritersConfig};
use vireo_store::region::{Region, Snapshot, Worker};

/// Threads of a worker that write, where its steps do not wait for that, and what they may have in hand, in all.
const THREADS: usize = 2;
const WRITERS: WritersConfig = WritersConfig { waiting: 4096, octets: 16 << 20, patience: Duration::from_millis(300) };
/// How long another worker's writers are waited for. After that the UE goes on from what the region has.
const BARRIER: Duration = Duration::from_millis(300);
/// How long in between.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// A worker's process, as the region knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writer(pub(super) u64);

impl Writer {
    /// This one.
    pub(in crate::worker) fn own(worker: &Worker) -> Self {
        Writer(u64::from(worker.number()) << 32 | u64::from(std::process::id()))
    }

    fn is_there(self, region: &Region) -> bool {
        region.is_joined((self.0 >> 32) as u8, self.0 as u32)
    }
}

/// A way by which commits are handed to writers, which are started.
pub(super) fn behind(
    records: Box<dyn RecordStore>,
    mut open: impl FnMut() -> RecordsHandle,
    writers: &mut Option<Writers>,
) -> RecordsHandle {
    // All ways are to the same place: if there is one, there are others.
    let ways: Result<Vec<_>, _> = (0..THREADS).map(|_| open()).collect();
    let failed = |error: std::io::Error| RecordError::Down(format!("a writer cannot be started: {error}"));
    let started = Writers::start(WRITERS, ways?).map_err(failed)?;
    let records = started.records(records);
    *writers = Some(started);
    Ok(Box::new(records))
}

/// What a UE goes on from.
pub(in crate::worker) struct LatestUe {
    /// The version of its record.
    pub(in crate::worker) version: Version,
    /// What it is.
    pub(in crate::worker) stored: UeRecord,
    /// The database has an earlier one.
    pub(in crate::worker) ahead: bool,
}

impl UeRecord {
    /// What the region has of it besides what is wanted done, as long as writers may have it in hand; `None`: it is too long for that.
    pub(in crate::worker) fn behind(&mut self, elsewhere: DatabaseRef) -> Option<Vec<u8>> {
        let wanted = std::mem::take(&mut self.course.wanted);
        let octets = self.ahead(elsewhere);
        self.course.wanted = wanted;
        octets
    }
}

impl ContextDatabase {
    /// The same of a UE of which this input was carried out last. Where commits do not wait, whoever has carried it out may have it in
    /// hand still, and is waited for, unless it has died.
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
                // The writers of this worker say once that something was refused: the region has it.
                Err(ContextDatabaseError::Database(RecordError::Conflict | RecordError::NotARecord)) => {
                    self.read(id)?
                }
                found => found?,
            };
            let owner = self.config.owner;
            let is_written = |stored: &UeRecord| {
                stored.owner != owner || (if stored.consumed == 0 { base } else { stored.consumed }) >= consumed
            };
            // Its own writers have nothing of it in hand any more.
            let is_waited_for = writer != own && writer.is_there(region) && began.elapsed() < BARRIER;
            if found.as_ref().is_some_and(|(_, stored)| is_written(stored)) || !is_waited_for {
                return Ok(found);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// What a UE goes on from: what the database has, or the region, where that is later. What the region has happened, whoever's
    /// writers the database had something else from in its place.
    pub(in crate::worker) fn latest(
        &self,
        found: Option<(Version, UeRecord)>,
        here: &Snapshot,
    ) -> Result<Option<LatestUe>, ContextDatabaseError> {
        let later = DatabaseRef::part(&here.context).map(UeRecord::decode).transpose()?;
        let (version, stored, mut later) = match (found, later) {
            (Some((version, stored)), Some(later)) => (version, stored, later),
            // Its first step was not written. A later one's record was: it is gone, and does not come back.
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
        // What is wanted done is beside it, and what there is in the record is known.
        later.known = stored.known;
        let mut wanted = stored.course.wanted;
        if later.step == stored.step {
            wanted.pop();
        }
        later.course.wanted = wanted;
        let at = Outbox::decode(&here.outbox).map_or_else(clock, |outbox| outbox.at);
        later.course.wants(at, &here.outbox, self.config.shared);
        Ok(Some(LatestUe { version, stored: later, ahead: true }))
    }

    /// Waits until what was handed over for a UE is written.
    pub(in crate::worker) fn settle(&mut self, id: u64) -> Result<(), ContextDatabaseError> {
        match self.read(id) {
            // Writers of a worker that has died were slower than it was known to be dead.
            Err(ContextDatabaseError::Database(RecordError::Conflict)) => {
                Err(RecordError::Down("something was written late".into()).into())
            }
            done => done.map(|_| ()),
        }
    }

    /// Whether steps do not wait for what they commit.
    pub(in crate::worker) fn writes_behind(&self) -> bool {
        self.writers.is_some()
    }
}
