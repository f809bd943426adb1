//! UDM with AUSF, ARPF and SIDF, as one in-process service (TS 33.501 6.1.3.2).

mod cache;
mod database;
mod refusals;
mod sidf;
mod sqn;
#[cfg(test)]
mod tests;
mod vector;

use crate::store::{Changes, Store, StoreError};
use cache::{Cache, Miss};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use database::{Lookup, Query};
use refusals::Refusals;
pub use sidf::{HomeNetworkKey, HomeNetworkKeyError, Profile};
use sqn::SqnClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use vector::Scheme;
use vireo_core::subscription::{
    AuthenticationError, AuthenticationMethod, AuthenticationRequest, AuthenticationVector, SubscriberIdentity,
    Subscription,
};
use vireo_types::{Dialect, Instant, Plmn, Supi};
use vireo_wire::security::nas_5gs::SuciError;

/// Answer to an authentication request.
pub type Answer = Result<AuthenticationVector, AuthenticationError>;

/// Output of a [`Udm`], on one of its threads.
#[derive(Debug)]
pub enum UdmOutput {
    /// Answer to a submitted authentication request.
    Answer { token: u64, answer: Answer },
    /// Answer to [`Udm::read`].
    Record {
        supi: Supi,
        /// As given to [`Udm::read`].
        is_repeated: bool,
        /// Present subscription; `None` if there is no such subscriber. An error if the database
        /// did not answer.
        subscription: Result<Option<Subscription>, AuthenticationError>,
    },
    /// Another process has changed subscribers. Their present records are read from here on.
    Changed(Changes),
}

/// Configuration of a [`Udm`].
#[derive(Debug)]
pub struct UdmConfig {
    /// Maximum of cached records; about 150 bytes each.
    pub cache_records: usize,
    /// If true, the cache is filled from the database in the background after the start.
    pub preload: bool,
    /// Threads that de-conceal SUCIs, at least one.
    pub deconceal_threads: usize,
    /// Maximum of queued requests, for de-concealment and for the database each. Further ones are
    /// refused as unavailable.
    pub queue: usize,
    /// IND of the sequence numbers, 0 to 31: the host's slot.
    pub ind: u8,
    /// Private keys of the home network.
    pub home_network_keys: Vec<HomeNetworkKey>,
    /// Method of 5G for subscribers whose record names none.
    pub authentication_method: AuthenticationMethod,
}

impl Default for UdmConfig {
    /// Returns a configuration with a million records, half the CPUs for de-concealment, and no
    /// home network key.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        UdmConfig {
            cache_records: 1_000_000,
            preload: true,
            deconceal_threads: (processors / 2).max(1),
            queue: 16_384,
            ind: 0,
            home_network_keys: Vec::new(),
            authentication_method: AuthenticationMethod::default(),
        }
    }
}

/// Load of a [`Udm`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdmLoad {
    /// Records in the cache.
    pub cached: usize,
    /// Requests that wait for de-concealment.
    pub deconceal_waiting: usize,
    /// Requests that wait for the database.
    pub database_waiting: usize,
}

/// Reasons why a [`Udm`] does not start.
#[derive(Debug, thiserror::Error)]
pub enum UdmError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread cannot be started.
    #[error("the subscriber service gets no thread from the system: {0}")]
    Thread(#[from] std::io::Error),
}

/// Service that answers authentication requests.
///
/// It answers at once if the record is cached and the identity is not concealed ([`Udm::try_now`]);
/// else later, from its own threads ([`Udm::submit`]). De-concealment has its own threads and
/// bounded queue, so that a storm of initial registrations delays no other requests.
///
/// Sequence numbers derive from the time (see `sqn.rs`), and an AUTS changes a stored offset.
/// Changes that another process makes in the database take effect within about a second. The
/// service reads no clock: time and RAND of a vector are part of the request.
#[derive(Debug)]
pub struct Udm {
    shared: Arc<Shared>,
    deconceal: Option<Sender<Job>>,
    database: Option<Sender<Query>>,
    pool: Vec<JoinHandle<()>>,
    database_thread: Option<JoinHandle<()>>,
}

/// A request that waits for de-concealment.
struct Job {
    token: u64,
    request: AuthenticationRequest,
    now: Instant,
    rand: [u8; 16],
}

/// State that the threads of a [`Udm`] share.
struct Shared {
    cache: Cache,
    clock: SqnClock,
    keys: Vec<HomeNetworkKey>,
    method: AuthenticationMethod,
    refusals: Refusals,
    output: Box<dyn Fn(UdmOutput) + Send + Sync>,
    /// True if no request waits for an answer, because the service stops.
    stopping: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("cache", &self.cache).field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Udm {
    /// Starts the service on a database. It calls `output` with the answer to each submitted
    /// request, and with the changes by other processes, on one of its threads. `output` must not
    /// block for long.
    pub fn start(
        mut store: Store,
        config: UdmConfig,
        now: Instant,
        output: impl Fn(UdmOutput) + Send + Sync + 'static,
    ) -> Result<Self, UdmError> {
        let clock = SqnClock::new(config.ind, store.sqn_reservation(config.ind)?);
        let shared = Arc::new(Shared {
            cache: Cache::new(config.cache_records),
            clock,
            keys: config.home_network_keys,
            method: config.authentication_method,
            refusals: Refusals::default(),
            output: Box::new(output),
            stopping: AtomicBool::new(false),
        });
        let (database, lookups) = bounded(config.queue.max(1));
        let preload = if config.preload { config.cache_records } else { 0 };
        let database_thread = database::start(store, Arc::clone(&shared), lookups, now, preload)?;
        let (deconceal, jobs) = bounded(config.queue.max(1));
        let mut udm = Udm {
            shared,
            deconceal: Some(deconceal),
            database: Some(database.clone()),
            pool: Vec::new(),
            database_thread: Some(database_thread),
        };
        for n in 0..config.deconceal_threads.max(1) {
            let (shared, jobs, database) = (Arc::clone(&udm.shared), jobs.clone(), database.clone());
            let thread = std::thread::Builder::new().name(format!("udm-sidf-{n}"));
            udm.pool.push(thread.spawn(move || deconceal_all(&shared, &jobs, &database))?);
        }
        Ok(udm)
    }

    /// Returns the answer if that needs no wait: for a SUPI or null-scheme SUCI whose record is
    /// cached, or an invalid SUCI. `None` = use [`Udm::submit`]. `rand` must be random and used
    /// once.
    pub fn try_now(&self, request: &AuthenticationRequest, now: Instant, rand: [u8; 16]) -> Option<Answer> {
        let supi = match self.shared.in_clear(&request.identity, now) {
            Ok(supi) => supi?,
            Err(error) => return Some(Err(error)),
        };
        if request.resync.is_some() {
            return None;
        }
        let subscriber = (supi, request.identity.dialect());
        self.shared.vector(subscriber, request.serving_network, now, rand).ok()
    }

    /// Returns true if the identity of a request must be de-concealed.
    pub fn is_concealed(request: &AuthenticationRequest) -> bool {
        matches!(&request.identity, SubscriberIdentity::Suci(octets) if matches!(sidf::in_clear(octets), Ok(None)))
    }

    /// Returns the number of requests that wait for de-concealment.
    pub fn deconceal_waiting(&self) -> usize {
        self.deconceal.as_ref().map_or(0, Sender::len)
    }

    /// Submits a request, whose answer is sent with `token`. An error is the answer itself, and no
    /// other follows: the SUCI is invalid, or the queue is full.
    pub fn submit(
        &self,
        token: u64,
        request: AuthenticationRequest,
        now: Instant,
        rand: [u8; 16],
    ) -> Result<(), AuthenticationError> {
        match self.shared.in_clear(&request.identity, now)? {
            Some(supi) => {
                let lookup = Lookup::new(token, supi, &request, now, rand);
                queued(self.database.as_ref().map(|queue| queue.try_send(Query::Vector(lookup)).is_ok()))
            }
            None => {
                let job = Job { token, request, now, rand };
                queued(self.deconceal.as_ref().map(|queue| queue.try_send(job).is_ok()))
            }
        }
    }

    /// Reads the present subscription of a subscriber. The answer is a [`UdmOutput::Record`].
    ///
    /// # Errors
    ///
    /// Returns an error if the queue is full; no answer follows.
    pub fn read(&self, supi: Supi, is_repeated: bool) -> Result<(), AuthenticationError> {
        queued(self.database.as_ref().map(|queue| queue.try_send(Query::Record { supi, is_repeated }).is_ok()))
    }

    /// Clears the cache, so that changes in the database take effect at once.
    pub fn forget_records(&self) {
        self.shared.cache.clear();
    }

    /// Returns the load of the service.
    pub fn load(&self) -> UdmLoad {
        UdmLoad {
            cached: self.shared.cache.len(),
            deconceal_waiting: self.deconceal_waiting(),
            database_waiting: self.database.as_ref().map_or(0, Sender::len),
        }
    }
}

impl Drop for Udm {
    /// Stops the threads and stores the state of the sequence numbers. Queued requests get no
    /// answer.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.deconceal = None;
        for thread in self.pool.drain(..) {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
        self.database = None;
        if let Some(thread) = self.database_thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn answer(&self, token: u64, answer: Answer) {
        (self.output)(UdmOutput::Answer { token, answer });
    }

    /// Computes the vector of a subscriber whose record is cached. The database thread handles a
    /// [`Miss`].
    fn vector(
        &self,
        (supi, dialect): (Supi, Dialect),
        plmn: Plmn,
        now: Instant,
        rand: [u8; 16],
    ) -> Result<Answer, Miss> {
        let material = self.cache.next(supi, now, &self.clock)?;
        let scheme = match (dialect, material.method.unwrap_or(self.method)) {
            (Dialect::Eps, _) => Scheme::EpsAka,
            (Dialect::Nr, AuthenticationMethod::FiveGAka) => Scheme::FiveGAka,
            (Dialect::Nr, AuthenticationMethod::EapAkaPrime) => Scheme::EapAkaPrime,
        };
        let vector = material.credentials.vector((supi, scheme), material.sqn, rand, plmn, material.subscription);
        Ok(vector.ok_or(AuthenticationError::Unavailable))
    }

    /// Returns the SUPI of an identity that is not concealed.
    fn in_clear(&self, identity: &SubscriberIdentity, now: Instant) -> Result<Option<Supi>, AuthenticationError> {
        match identity {
            SubscriberIdentity::Supi(supi) | SubscriberIdentity::Imsi(supi) => Ok(Some(*supi)),
            SubscriberIdentity::Suci(octets) => sidf::in_clear(octets).map_err(|malformed| {
                self.refusals.report(octets, malformed, now);
                AuthenticationError::BadSuci
            }),
        }
    }
}

fn refusal(reason: SuciError) -> AuthenticationError {
    match reason {
        SuciError::MissingKey => AuthenticationError::UnknownHomeKey,
        _ => AuthenticationError::BadSuci,
    }
}

fn queued(sent: Option<bool>) -> Result<(), AuthenticationError> {
    if sent == Some(true) { Ok(()) } else { Err(AuthenticationError::Unavailable) }
}

/// Runs a de-concealment thread.
fn deconceal_all(shared: &Shared, jobs: &Receiver<Job>, database: &Sender<Query>) {
    for Job { token, request, now, rand } in jobs {
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let SubscriberIdentity::Suci(octets) = &request.identity else { continue };
        let supi = match sidf::deconceal(octets, &shared.keys) {
            Ok(supi) => supi,
            Err(reason) => {
                shared.refusals.report(octets, reason, now);
                shared.answer(token, Err(refusal(reason)));
                continue;
            }
        };
        if request.resync.is_none()
            && let Ok(answer) = shared.vector((supi, request.identity.dialect()), request.serving_network, now, rand)
        {
            shared.answer(token, answer);
            continue;
        }
        let lookup = Lookup::new(token, supi, &request, now, rand);
        let sent = database.try_send(Query::Vector(lookup));
        if let Err(TrySendError::Full(query) | TrySendError::Disconnected(query)) = sent
            && let Query::Vector(lookup) = query
        {
            shared.answer(lookup.token, Err(AuthenticationError::Unavailable));
        }
    }
}
