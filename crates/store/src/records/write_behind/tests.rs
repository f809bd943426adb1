use super::*;
use crate::records::MemoryRecords;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const LIFE: Duration = Duration::from_secs(600);
/// Timeout that exceeds the duration of a test on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with random delays and, by rates, refusals, failures and lost answers.
#[derive(Clone)]
struct Moody {
    store: MemoryRecords,
    seed: Arc<AtomicU64>,
    /// Refused changes per thousand.
    fails: u64,
    /// Failed changes per thousand, which may be retried.
    stumbles: u64,
    /// Changes per thousand that are applied, with a lost answer.
    loses: u64,
    /// True if all changes block.
    closed: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
}

impl Moody {
    fn new(seed: u64, fails: u64) -> Self {
        let store = MemoryRecords::new(LIFE);
        let seed = Arc::new(AtomicU64::new(seed));
        Moody { store, seed, fails, stumbles: 0, loses: 0, closed: Arc::default(), failed: Arc::default() }
    }

    /// Returns a SplitMix64 number, from a counter that all clones share.
    fn random(&self) -> u64 {
        let mut z = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl RecordStore for Moody {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.store.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        while self.closed.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(self.random() % 200));
        let one = |change: &(Name, Change<'_>)| {
            if self.random() % 1000 < self.fails {
                self.failed.fetch_add(1, Ordering::Relaxed);
                return Err(RecordError::NotARecord);
            }
            if self.random() % 1000 < self.stumbles {
                return Err(RecordError::Down("it was told to be".into()));
            }
            let done = self.store.clone().change(std::slice::from_ref(change)).remove(0);
            if self.random() % 1000 < self.loses {
                Err(RecordError::OutcomeUnknown("it is told to be".into()))
            } else {
                done
            }
        };
        changes.iter().map(one).collect()
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.store.list_ids(collection)
    }

    fn operations(&self) -> Operations {
        self.store.operations()
    }
}

fn name(id: u64) -> Name {
    Name { collection: "ue", id }
}

fn start(store: &Moody, config: WritersConfig) -> (Writers, WriteBehindRecords) {
    let writers = Writers::start(config, ways(store, 2)).unwrap();
    let records = writers.records(Box::new(store.clone()));
    (writers, records)
}

fn ways(store: &Moody, count: usize) -> Vec<Box<dyn RecordStore>> {
    (0..count).map(|_| Box::new(store.clone()) as Box<dyn RecordStore>).collect()
}

#[test]
fn writers_keep_the_contract() {
    // A conflict is reported by the next operation, so both handles are of one pool.
    let store = Moody::new(1, 0);
    let (writers, mut one) = start(&store, WritersConfig::default());
    let commit = |expected, octets| Change::Commit { expected, octets };
    let alone = |store: &mut WriteBehindRecords, change| store.change(&[(name(1), change)]).remove(0);
    let first = alone(&mut one, commit(0, b"a")).unwrap();
    let second = alone(&mut one, commit(first, b"b")).unwrap();
    assert_eq!(one.load(&[name(1)]).unwrap()[0].as_ref().unwrap().octets, b"b", "the barrier");
    let mut other = store.store.clone();
    other.change(&[(name(1), commit(second, b"c"))]).remove(0).unwrap();
    assert_eq!(alone(&mut one, commit(second, b"d")), Ok(second + 1), "nobody knows yet");
    assert_eq!(one.load(&[name(1)]), Err(RecordError::Conflict), "the next operation is told");
    assert_eq!(one.load(&[name(1)]).unwrap()[0].as_ref().unwrap().octets, b"c", "once");
    assert_eq!(alone(&mut one, Change::Remove { expected: second + 1 }), Ok(0));
    assert_eq!(one.load(&[name(1)]), Ok(vec![None]));
    assert_eq!(writers.finish(), []);
}

#[test]
fn queue_is_bounded_and_drained_at_end() {
    let store = Moody::new(2, 0);
    store.closed.store(true, Ordering::Relaxed);
    let config = WritersConfig { waiting: 8, octets: 1000, timeout: PATIENCE };
    let (writers, mut records) = start(&store, config);
    let octets = [7; 100];
    let commit = |id| (name(id), Change::Commit { expected: 0, octets: &octets });
    assert!(records.change(&(0..8).map(commit).collect::<Vec<_>>()).iter().all(Result::is_ok));
    // The ninth change waits for room. Waiting alone cannot prove it, so the test checks the bound.
    let (mut more, seen) = (writers.records(Box::new(store.clone())), Arc::new(AtomicBool::new(false)));
    let handing = std::thread::spawn({
        let seen = seen.clone();
        move || {
            let done = more.change(&[(name(8), Change::Commit { expected: 0, octets: &[7; 100] })]).remove(0);
            seen.store(true, Ordering::SeqCst);
            done
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!seen.load(Ordering::SeqCst) && writers.waiting() == 8, "it waits");
    store.closed.store(false, Ordering::Relaxed);
    assert_eq!(handing.join().unwrap(), Ok(1));
    // A change larger than the limit is queued alone.
    assert_eq!(records.change(&[(name(9), Change::Commit { expected: 0, octets: &[1; 5000] })]).remove(0), Ok(1));
    assert_eq!(writers.finish(), []);
    assert!(store.store.clone().load(&(0..10).map(name).collect::<Vec<_>>()).unwrap().iter().all(Option::is_some));
    let late = records.change(&[commit(10)]).remove(0);
    assert!(matches!(late, Err(RecordError::Down(_))), "{late:?}");
}

#[test]
fn unreported_errors_are_bounded() {
    let store = Moody::new(3, 1000);
    let config = WritersConfig { waiting: 4, octets: 1000, timeout: PATIENCE };
    let (writers, mut records) = start(&store, config);
    let results: Vec<_> = (0..100)
        .map(|id| {
            let done = records.change(&[(name(id), Change::Commit { expected: 0, octets: b"x" })]).remove(0);
            while writers.waiting() > 0 {
                std::thread::yield_now();
            }
            done
        })
        .collect();
    let handed_over = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(handed_over, 4, "those behind them are told at once");
    assert_eq!(writers.finish().len(), 4, "who has not asked is told at the end");
}

/// Tests the barrier and the order of changes with random operations of several threads.
///
/// The threads commit their own records and load some; some commits fail. A load returns the last
/// committed contents. If it reports a failure, the contents before it are stored.
fn stress(seed: u64) {
    let store = Moody { stumbles: 10, ..Moody::new(seed, 20) };
    let config = WritersConfig { waiting: 16, octets: 4096, timeout: PATIENCE };
    let writers = Writers::start(config, ways(&store, 3)).unwrap();
    let told: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (records, store) = (writers.records(Box::new(store.clone())), &store);
                scope.spawn(move || work(records, store, thread * 100))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // Changes that fail while the pool ends are not retried.
    let refused = |(_, error): &&(Name, RecordError)| !error.is_retryable();
    let at_last = writers.finish().iter().filter(refused).count() as u64;
    assert_eq!(told + at_last, store.failed.load(Ordering::Relaxed), "each failure is told once");
}

fn work(mut records: WriteBehindRecords, store: &Moody, base: u64) -> u64 {
    let (mut versions, mut told) = ([0 as Version; 8], 0);
    for _ in 0..400 {
        let random = store.random();
        let index = (random % 8) as usize;
        let (name, expected) = (name(base + index as u64), versions[index]);
        if random >> 32 & 3 == 0 {
            match records.load(&[name]) {
                Ok(found) => {
                    let found = found.into_iter().flatten().next().unwrap_or_default();
                    assert_eq!(found.version, versions[index], "the barrier");
                    assert!(found.version == 0 || found.octets == found.version.to_be_bytes(), "in order");
                }
                Err(error) => {
                    assert!(matches!(error, RecordError::NotARecord), "{error}");
                    told += 1;
                    let found = records.load(&[name]).unwrap().remove(0).unwrap_or_default();
                    assert!(found.version < versions[index], "what failed is not there");
                    versions[index] = found.version;
                }
            }
            continue;
        }
        let octets = (expected + 1).to_be_bytes();
        match records.change(&[(name, Change::Commit { expected, octets: &octets })]).remove(0) {
            Ok(version) => versions[index] = version,
            Err(error) => {
                assert!(matches!(error, RecordError::NotARecord), "{error}");
                told += 1;
                versions[index] = records.load(&[name]).unwrap().remove(0).unwrap_or_default().version;
            }
        }
    }
    told
}

#[test]
fn barrier_and_order_hold_under_any_schedule() {
    (0..8).for_each(stress);
}

/// Tests a store that fails for a while: it has all changes in the end.
///
/// Meanwhile callers wait at most the timeout.
#[test]
fn failed_change_is_retried_later() {
    let store = Moody::new(4, 0);
    store.closed.store(true, Ordering::Relaxed);
    let config = WritersConfig { waiting: 2, octets: 1000, timeout: Duration::from_millis(50) };
    let (writers, mut records) = start(&store, config);
    let commit = |id, expected| (name(id), Change::Commit { expected, octets: b"x" });
    assert_eq!(records.change(&[commit(1, 0), commit(1, 1)]), [Ok(1), Ok(2)]);
    assert!(records.change(&[commit(2, 0)])[0].as_ref().is_err_and(RecordError::is_retryable), "there is no room");
    assert!(records.load(&[name(1)]).is_err_and(|error| error.is_retryable()), "the barrier is shut");
    store.closed.store(false, Ordering::Relaxed);
    assert_eq!(writers.finish(), []);
    assert_eq!(store.store.clone().load(&[name(1)]).unwrap()[0].as_ref().map(|found| found.version), Some(2));
}

/// Tests lost answers and failures: each commit is still applied once, in order.
#[test]
fn retried_change_is_applied_once() {
    let store = Moody { stumbles: 200, loses: 200, ..Moody::new(5, 0) };
    let config = WritersConfig { waiting: 64, octets: 4096, timeout: PATIENCE };
    let (writers, mut records) = start(&store, config);
    for version in 0..12 {
        for id in 0..4 {
            assert_eq!(
                records.change(&[(name(id), Change::Commit { expected: version, octets: &[version as u8] })]),
                [Ok(version + 1)]
            );
        }
    }
    let found = records.load(&(0..4).map(name).collect::<Vec<_>>()).unwrap();
    assert!(found.iter().flatten().all(|found| found.version == 12 && found.octets == [11]), "{found:?}");
    assert_eq!(writers.finish(), []);
}
