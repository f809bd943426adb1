//! Record that names the core which keeps its contexts in a database.
//!
//! One core at a time holds the contexts of a key. It commits the record again every
//! [`RENEWAL_INTERVAL`]. A starting core takes the record over from a holder that has exited or is
//! dead:
//!
//! - On the same machine it looks up the process.
//! - A holder on another machine is dead after [`DEAD_AFTER`] without a commit.
//!
//! A core that finds the record held by a live core exits. A holder that was wrongly declared dead
//! cannot harm UEs: each of their records names its owner.

use super::error::KeepError;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde::{Deserialize, Serialize};
use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vireo_cluster::{HostSender, Input};
use vireo_store::Version;
use vireo_store::records::{Change, Name, RecordError, RecordStore};

/// Name of the holder record.
const NAME: Name = Name { collection: "core", id: 0 };
/// Interval of the holder's commits.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Time without a commit after which a holder on another machine is dead.
pub(super) const DEAD_AFTER: Duration = Duration::from_secs(4);
/// Interval of the checks of a holder that may be dead.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Identity of a process. A process id alone may have been reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    /// Boot id of the machine.
    boot: String,
    /// PID namespace, as `/proc/self/ns/pid` names it.
    namespace: String,
    id: u32,
    /// Start time in clock ticks since the boot of the machine.
    started: u64,
}

impl Process {
    fn current() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned();
        let id = std::process::id();
        Some(Process { boot, namespace, id, started: started(id)? })
    }

    /// Returns true if the process runs; `None` if that cannot be observed from here.
    fn is_alive(&self, own: Option<&Process>) -> Option<bool> {
        own.filter(|own| own.boot == self.boot && own.namespace == self.namespace)?;
        match started(self.id) {
            Some(started) => Some(started == self.started),
            None if may_run(self.id) => None,
            None => Some(false),
        }
    }
}

/// Returns true if a process with this id may exist and be hidden from this user.
fn may_run(id: u32) -> bool {
    let pid = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    let hides = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::PERM);
    pid.is_some_and(hides)
}

/// Returns the start time of a process that has not ended.
fn started(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The preceding process name may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    // The first of these fields is the third of the line; the start time is the 22nd.
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// Content of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    owner: u64,
    /// `None`: the process has exited.
    process: Option<Process>,
    /// Hash of the configuration and layout of the contexts.
    pub(super) mark: u64,
    /// Incarnation of the database that has lost no commits ([`RecordStore::incarnation`]); empty:
    /// none.
    pub(super) incarnation: String,
}

/// The record while this core holds it.
pub(super) struct HolderRecord {
    records: Box<dyn RecordStore>,
    version: Version,
    /// Content of the record.
    pub(super) holder: Holder,
}

fn load(records: &mut dyn RecordStore) -> Result<Option<(Version, Holder)>, KeepError> {
    let Some(found) = records.load(&[NAME])?.pop().flatten() else { return Ok(None) };
    let holder = serde_json::from_slice(&found.octets).map_err(|_| KeepError::Unreadable)?;
    Ok(Some((found.version, holder)))
}

/// Checks that an existing record can be read.
pub(super) fn check_readable(records: &mut dyn RecordStore) -> Result<(), KeepError> {
    load(records).map(drop)
}

impl HolderRecord {
    /// Acquires the record for an owner. Mark and incarnation stay as found.
    ///
    /// # Errors
    ///
    /// Returns [`KeepError::InUse`] if another core holds the record.
    pub(super) fn acquire(mut records: Box<dyn RecordStore>, owner: u64) -> Result<Self, KeepError> {
        let own = Process::current();
        let mut since = Instant::now();
        let mut last_version = None;
        loop {
            let found = load(&mut *records)?;
            let holder = found.as_ref().map(|(_, holder)| holder);
            let is_alive = match holder.and_then(|holder| holder.process.as_ref()) {
                Some(process) => process.is_alive(own.as_ref()),
                None => Some(false),
            };
            let version = found.as_ref().map_or(0, |(version, _)| *version);
            if last_version.replace(version).is_some_and(|last_version| last_version != version) {
                if is_alive != Some(false) {
                    return Err(KeepError::InUse);
                }
                since = Instant::now();
            }
            match is_alive {
                Some(false) => {}
                None if since.elapsed() >= DEAD_AFTER => {}
                Some(true) if since.elapsed() >= DEAD_AFTER => return Err(KeepError::InUse),
                _ => {
                    std::thread::sleep(CHECK_INTERVAL);
                    continue;
                }
            }
            let (mark, incarnation) = match found {
                Some((_, holder)) => (holder.mark, holder.incarnation),
                None => (0, String::new()),
            };
            let holder = Holder { owner, process: own.clone(), mark, incarnation };
            let mut record = HolderRecord { records, version, holder };
            match record.commit() {
                Ok(()) => return Ok(record),
                // Another core was first, or the reply to an earlier attempt was lost.
                Err(RecordError::Conflict) if since.elapsed() < 2 * DEAD_AFTER => records = record.records,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Commits the content over the version that was seen last.
    pub(super) fn commit(&mut self) -> Result<(), RecordError> {
        let octets = serde_json::to_vec(&self.holder).map_err(|_| RecordError::NotARecord)?;
        let change = Change::Commit { expected: self.version, octets: &octets };
        match self.records.change(&[(NAME, change)]).remove(0) {
            Ok(version) => {
                self.version = version;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Records that the core has exited.
    pub(super) fn release(mut self) {
        self.holder.process = None;
        if let Err(error) = self.commit() {
            tracing::debug!(%error, "the end of this core is not in the database");
        }
    }

    /// Returns the current incarnation of the database.
    pub(super) fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        self.records.incarnation()
    }

    /// Renews the record by another commit.
    fn renew(&mut self) -> RenewalResult {
        match self.commit() {
            Ok(()) => RenewalResult::Renewed,
            Err(RecordError::Conflict) => match load(&mut *self.records) {
                // The reply to an earlier commit was lost.
                Ok(Some((version, holder))) if holder.owner == self.holder.owner => {
                    self.version = version;
                    RenewalResult::Renewed
                }
                Ok(found) => match self.incarnation() {
                    Ok(Some(now)) if now == self.holder.incarnation => match found {
                        Some(_) => RenewalResult::Superseded,
                        None => {
                            // The record was removed, for example by FLUSHALL: it is created again.
                            self.version = 0;
                            RenewalResult::Unreachable
                        }
                    },
                    Ok(_) => RenewalResult::CommitsLost,
                    Err(_) => RenewalResult::Unreachable,
                },
                Err(_) => RenewalResult::Unreachable,
            },
            Err(_) => RenewalResult::Unreachable,
        }
    }
}

/// Result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewalResult {
    Renewed,
    /// The database does not work.
    Unreachable,
    /// The database has lost commits.
    CommitsLost,
    /// Another core holds the record.
    Superseded,
}

/// The thread that renews the record.
#[derive(Debug)]
pub(in crate::host) struct Renewal {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<Option<HolderRecord>>,
}

impl Renewal {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses the thread.
    pub(super) fn start(record: HolderRecord, input_sender: HostSender) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let thread =
            std::thread::Builder::new().name("keep".into()).spawn(move || renew(record, &stopped, &input_sender))?;
        Ok(Renewal { stop, thread })
    }

    /// Ends the thread, and records that the core has exited.
    pub(in crate::host) fn end(self) {
        drop(self.stop);
        if let Ok(Some(record)) = self.thread.join() {
            record.release();
        }
    }
}

fn renew(mut record: HolderRecord, stopped: &Receiver<()>, input_sender: &HostSender) -> Option<HolderRecord> {
    while stopped.recv_timeout(RENEWAL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        match record.renew() {
            RenewalResult::Renewed | RenewalResult::Unreachable => {}
            RenewalResult::CommitsLost => {
                tracing::warn!("database of contexts lost commits; contexts not kept for the next start");
                return None;
            }
            RenewalResult::Superseded => {
                tracing::error!("another core has taken the kept contexts; exiting");
                // The host may have exited by itself.
                let _ = input_sender.send_urgent(Input::Stop);
                return None;
            }
        }
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::records::{LIFE, MemoryRecords};

    fn store(records: &MemoryRecords) -> Box<dyn RecordStore> {
        Box::new(records.clone())
    }

    /// Makes the record name a holder on another machine, or a dead process of this machine.
    fn set_process(record: &mut HolderRecord, is_dead: bool) {
        let process = record.holder.process.as_mut().unwrap();
        if is_dead {
            process.started -= 1;
        } else {
            process.boot.push('x');
        }
        record.commit().unwrap();
    }

    #[test]
    fn record_of_a_live_core_is_refused() {
        let records = MemoryRecords::new(LIFE);
        let mut first = HolderRecord::acquire(store(&records), 1).unwrap();
        set_process(&mut first, false);
        // Like the renewal thread, with a shorter interval.
        let (stop, stopped) = bounded::<()>(0);
        let renewing = std::thread::spawn(move || {
            while stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                assert_eq!(first.renew(), RenewalResult::Renewed);
            }
        });
        assert!(matches!(HolderRecord::acquire(store(&records), 2), Err(KeepError::InUse)));
        drop(stop);
        renewing.join().unwrap();
    }

    #[test]
    fn record_of_dead_core_is_acquired_with_content() {
        let records = MemoryRecords::new(LIFE);
        let mut first = HolderRecord::acquire(store(&records), 1).unwrap();
        first.holder.incarnation = "memory".into();
        first.holder.mark = 7;
        set_process(&mut first, true);
        let began = Instant::now();
        let second = HolderRecord::acquire(store(&records), 2).unwrap();
        assert!(began.elapsed() < DEAD_AFTER, "it is seen to be dead");
        assert_eq!((second.holder.mark, second.holder.incarnation.as_str()), (7, "memory"));
        assert_eq!(first.renew(), RenewalResult::Superseded, "the core before ends");
        let version = second.version;
        records.clone().change(&[(NAME, Change::Remove { expected: version })]).remove(0).unwrap();
        let mut second = second;
        assert_eq!(
            [second.renew(), second.renew()],
            [RenewalResult::Unreachable, RenewalResult::Renewed],
            "it was removed by hand"
        );
        first.holder.incarnation = "before the database was started anew".into();
        assert_eq!(first.renew(), RenewalResult::CommitsLost);
    }

    #[test]
    fn record_of_exited_core_is_free() {
        let records = MemoryRecords::new(LIFE);
        let mut first = HolderRecord::acquire(store(&records), 1).unwrap();
        first.holder.process = None;
        first.commit().unwrap();
        assert!(HolderRecord::acquire(store(&records), 2).is_ok());
        records.clone().change(&[(NAME, Change::Commit { expected: 3, octets: b"x" })]).remove(0).unwrap();
        assert!(matches!(HolderRecord::acquire(store(&records), 3), Err(KeepError::Unreadable)));
    }
}
