//! Writers that count confirmed commits during failures, and a check of them.

use crate::servers::until;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use vireo_store::records::{Change, Name, RecordError, RecordStore};

fn name(id: u64) -> Name {
    Name { collection: "ue", id }
}

/// Results of the writers.
#[derive(Default)]
pub(crate) struct WriteLog {
    commits: AtomicU32,
    failed: AtomicU32,
    /// Longest time in milliseconds between two commits of a record: the failover time.
    worst_ms: AtomicU32,
}

/// Commits a record repeatedly and returns its last confirmed count. Loads resolve unknown
/// outcomes.
fn write(store: &mut dyn RecordStore, id: u64, stop: &AtomicBool, log: &WriteLog) -> u32 {
    let (mut version, mut count) = there(store, id);
    let mut last = Instant::now();
    loop {
        let octets = (count + 1).to_be_bytes();
        match store.change(&[(name(id), Change::Commit { expected: version, octets: &octets })]).remove(0) {
            Ok(next) => {
                (version, count) = (next, count + 1);
                log.commits.fetch_add(1, Ordering::Relaxed);
                log.worst_ms.fetch_max(last.elapsed().as_millis() as u32, Ordering::Relaxed);
                last = Instant::now();
                // The last commit of a writer is a confirmed one.
                if stop.load(Ordering::Relaxed) {
                    return count;
                }
            }
            // A conflict can only be with an own commit that a server has applied late.
            Err(RecordError::OutcomeUnknown(_) | RecordError::Conflict) => {
                log.failed.fetch_add(1, Ordering::Relaxed);
                let found = there(store, id);
                assert!((count..=count + 1).contains(&found.1), "record {id} has {found:?}, {count} are confirmed");
                (version, count) = found;
            }
            Err(RecordError::Down(_)) => {
                log.failed.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("record {id}: {error}"),
        }
    }
}

/// Returns the version of a record and its count, as soon as a load succeeds.
pub(crate) fn there(store: &mut dyn RecordStore, id: u64) -> (u32, u32) {
    let mut found = store.load(&[name(id)]);
    until("the record can be loaded", || {
        if found.is_err() {
            found = store.load(&[name(id)]);
        }
        found.is_ok()
    });
    found.unwrap().remove(0).map_or((0, 0), |found| (found.version, counted(&found.octets)))
}

fn counted(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets.try_into().expect("what was committed"))
}

/// Has each store write its own record while `fail` causes failures, and returns the confirmed
/// counts.
pub(crate) fn write_through(stores: Vec<Box<dyn RecordStore>>, log: &WriteLog, mut fail: impl FnMut()) -> Vec<u32> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let mut writers = Vec::new();
        for (mut store, id) in stores.into_iter().zip(0..) {
            writers.push(scope.spawn(move || write(&mut *store, id, stop, log)));
        }
        let commits = |more: u32| {
            let wanted = log.commits.load(Ordering::Relaxed) + more;
            until("commits go on", || log.commits.load(Ordering::Relaxed) >= wanted);
        };
        commits(1000);
        fail();
        commits(1000);
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

/// Checks that all confirmed commits are stored.
pub(crate) fn check(store: &mut dyn RecordStore, counts: &[u32]) {
    for (id, count) in (0..).zip(counts) {
        assert_eq!(there(store, id).1, *count, "record {id}");
    }
}

pub(crate) fn report(counts: &[u32], log: &WriteLog) {
    let all: u32 = counts.iter().sum();
    let (failed, worst) = (log.failed.load(Ordering::Relaxed), log.worst_ms.load(Ordering::Relaxed));
    println!("{all} commits confirmed and there; {failed} failed cleanly; the longest wait was {worst} ms");
    assert!(all >= 2000, "{all}");
}
