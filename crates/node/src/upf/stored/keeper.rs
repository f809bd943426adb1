//! The thread of the database beside that of N4, and the way there and back.

use super::{Before, COLLECTION, NODE, On, Sharing, Stored};
use crate::database::{BATCH, Database, DatabaseError, Done, Job, read_all};
use crate::metrics::{Metrics, StateFunction};
use crate::shared::COLLECTION as COLLECTION_OF_ALL;
use crate::state::RecordsConfig;
use crate::upf::state::Plane;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_datapath::Clock;
use vireo_datapath::poll::Waker;
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Found, Name, Operations, RecordError, Records};

/// After how long a UPF that has taken the place of another looks again what control planes have committed of the one before.
const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(50)];
/// How often it looks meanwhile whether it ends.
const STEP: Duration = Duration::from_millis(100);
/// What may wait for the database, and for the N4 thread.
const WAITING: usize = 65_536;

/// The database as it is found.
pub(in crate::upf) struct Begun {
    records: Box<dyn Records>,
    before: Option<Before>,
    /// Where records are shared with control planes: with whom, and where.
    shared: Option<(Sharing, RecordsConfig)>,
}

/// Looks what the database has of the UPF at this address: several UPFs may share one.
///
/// # Errors
///
/// When it does not answer, or has something else.
pub(in crate::upf) fn begin(of: &RecordsConfig, n4: IpAddr, ntp: u32) -> Result<Begun, DatabaseError> {
    let own: String = n4.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let mut alone = of.clone();
    alone.key = format!("{}-{COLLECTION}-{own}", of.key);
    let mut records = alone.open()?;
    let sharing = of.scope.is_of_all().then(|| Sharing { own, format: of.of_octets() });
    if sharing.is_some() {
        records = Box::new(Both { alone: records, shared: of.open()? });
    }
    let before = super::look(&mut *records, sharing.as_ref(), ntp)?;
    Ok(Begun { records, before, shared: sharing.map(|sharing| (sharing, of.clone())) })
}

/// Records of two places: the UPF's own, and those of UEs that it shares.
struct Both {
    alone: Box<dyn Records>,
    shared: Box<dyn Records>,
}

impl Both {
    fn of(&mut self, is_shared: bool) -> &mut dyn Records {
        if is_shared { &mut *self.shared } else { &mut *self.alone }
    }
}

fn is_shared(name: Name) -> bool {
    name.collection == COLLECTION_OF_ALL
}

impl Records for Both {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<Found>>, RecordError> {
        let mut all: Vec<Option<Found>> = names.iter().map(|_| None).collect();
        for side in [false, true] {
            let at: Vec<usize> = (0..names.len()).filter(|at| is_shared(names[*at]) == side).collect();
            let wanted: Vec<Name> = at.iter().map(|at| names[*at]).collect();
            if !wanted.is_empty() {
                let found = self.of(side).load(&wanted)?;
                at.into_iter().zip(found).for_each(|(at, found)| all[at] = found);
            }
        }
        Ok(all)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        // Each has its answer: this one is nobody's.
        let mut all: Vec<_> = changes.iter().map(|_| Err(RecordError::Conflict)).collect();
        for side in [false, true] {
            let at: Vec<usize> = (0..changes.len()).filter(|at| is_shared(changes[*at].0) == side).collect();
            let wanted: Vec<(Name, Change<'_>)> = at.iter().map(|at| changes[*at]).collect();
            if !wanted.is_empty() {
                let done = self.of(side).change(&wanted);
                at.into_iter().zip(done).for_each(|(at, done)| all[at] = done);
            }
        }
        all
    }

    fn numbers(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.of(collection == COLLECTION_OF_ALL).numbers(collection)
    }

    fn operations(&self) -> Operations {
        let (alone, shared) = (self.alone.operations(), self.shared.operations());
        Operations {
            reads: alone.reads + shared.reads,
            writes: alone.writes + shared.writes,
            removals: alone.removals + shared.removals,
            round_trips: alone.round_trips + shared.round_trips,
        }
    }
}

/// Looks at the shared records once more when what was on its way to them is there.
fn look_again(of: &RecordsConfig, stop: &AtomicBool, mut say: impl FnMut(Name, Done)) {
    for after in AGAIN {
        let end = Instant::now() + after;
        while Instant::now() < end {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(STEP);
        }
        let mut records = match of.open() {
            Ok(records) => records,
            Err(_) => continue,
        };
        let looked = read_all(&mut *records, COLLECTION_OF_ALL, |id, found| {
            say(Name { collection: COLLECTION_OF_ALL, id }, Done::Loaded(Ok(Some(found))));
            Ok(())
        });
        if let Err(error) = looked {
            tracing::warn!(%error, "the records of UEs are looked at later");
        }
    }
}

/// The transactions that are under way, with the way to the database.
#[derive(Debug)]
pub(in crate::upf) struct Keeper {
    pub(in crate::upf) stored: Stored,
    jobs: Sender<Job>,
    done: Receiver<(Name, Done)>,
    stop: Arc<AtomicBool>,
}

impl Keeper {
    /// Starts the thread, which wakes that of N4, and lets the UPF go on with what was found.
    pub(in crate::upf) fn start<P: Plane>(
        begun: Begun,
        metrics: Arc<Metrics>,
        (wake, clock): (Waker, Clock),
        on: &mut On<'_, P>,
    ) -> io::Result<Self> {
        let Begun { records, before, shared } = begun;
        let (jobs, waiting) = bounded(WAITING);
        let (results, done) = bounded(WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let function = StateFunction::Upf;
        let (codec, node, ended) = (Codec::default(), NODE, Arc::clone(&stop));
        let database = Database { records, codec, jobs: waiting, metrics, stop: ended, function, node };
        let goes_on = before.is_some();
        let say = move |name, done| {
            // The thread is gone when the UPF stops.
            let _ = results.send((name, done));
            wake.wake();
        };
        let sharing = shared.as_ref().map(|(sharing, _)| sharing.clone());
        if let Some((_, of)) = shared.filter(|_| goes_on) {
            let (say, stop) = (say.clone(), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name("upf-late".to_owned());
            thread.spawn(move || look_again(&of, &stop, say))?;
        }
        std::thread::Builder::new().name("upf-database".to_owned()).spawn(move || database.run(say, || clock.now()))?;
        let mut keeper = Keeper { stored: Stored::new(sharing), jobs, done, stop };
        keeper.stored.begin(on, before);
        Ok(keeper)
    }

    /// Takes what the database has answered, some at a time, and asks what is to be asked. Whether there is more.
    pub(in crate::upf) fn turn<P: Plane>(&mut self, on: &mut On<'_, P>) -> bool {
        for (name, done) in self.done.try_iter().take(BATCH) {
            self.stored.answered(on, name, done);
        }
        self.ask();
        !self.done.is_empty()
    }

    /// Asks what there is room for; the rest waits for answers, which wake the thread.
    pub(in crate::upf) fn ask(&mut self) {
        let jobs = self.stored.jobs();
        while let Some(job) = jobs.pop_front() {
            if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = self.jobs.try_send(job) {
                jobs.push_front(job);
                return;
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
