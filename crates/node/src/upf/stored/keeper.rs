//! The thread of the database beside that of N4, and the way there and back.

use super::{Before, COLLECTION, NODE, On, Stored};
use crate::database::{BATCH, Database, DatabaseError, Done, Job};
use crate::metrics::{Metrics, StateFunction};
use crate::state::RecordsConfig;
use crate::upf::state::Plane;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vireo_datapath::Clock;
use vireo_datapath::poll::Waker;
use vireo_store::records::{Codec, Name, Records};

/// What may wait for the database, and for the N4 thread.
const WAITING: usize = 65_536;

/// The database as it is found.
pub(in crate::upf) struct Begun {
    records: Box<dyn Records>,
    before: Option<Before>,
}

/// Looks what the database has of the UPF at this address: several UPFs may share one.
///
/// # Errors
///
/// When it does not answer, or has something else.
pub(in crate::upf) fn begin(of: &RecordsConfig, n4: IpAddr, ntp: u32) -> Result<Begun, DatabaseError> {
    let own: String = n4.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let mut records = of.clone();
    records.key = format!("{}-{COLLECTION}-{own}", of.key);
    let mut records = records.open()?;
    let before = super::look(&mut *records, ntp)?;
    Ok(Begun { records, before })
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
        let Begun { records, before } = begun;
        let (jobs, waiting) = bounded(WAITING);
        let (results, done) = bounded(WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let function = StateFunction::Upf;
        let (codec, node, ended) = (Codec::default(), NODE, Arc::clone(&stop));
        let database = Database { records, codec, jobs: waiting, metrics, stop: ended, function, node };
        let say = move |name, done| {
            // The thread is gone when the UPF stops.
            let _ = results.send((name, done));
            wake.wake();
        };
        std::thread::Builder::new().name("upf-database".to_owned()).spawn(move || database.run(say, || clock.now()))?;
        let mut keeper = Keeper { stored: Stored::default(), jobs, done, stop };
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
