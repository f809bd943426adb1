//! The UDM with its AUSF, ARPF and SIDF parts, as one in-process service (TS 33.501 6.1.3.2).

mod cache;
mod database;
mod refusals;
mod sidf;
mod sqn;
#[cfg(test)]
mod tests;
mod vector;

use crate::store::{Store, StoreError};
use cache::{Cache, Miss};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use database::Lookup;
use refusals::Refusals;
pub use sidf::{HomeNetworkKey, HomeNetworkKeyError, Profile};
use sqn::SqnClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use vireo_core::subscription::{AuthenticationError, AuthenticationInfo, AuthenticationRequest, SubscriberIdentity};
use vireo_types::{Instant, Plmn, Supi};
use vireo_wire::security::nas_5gs::SuciError;

/// The answer to an authentication request.
pub type Answer = Result<AuthenticationInfo, AuthenticationError>;

/// What a [`Udm`] is told at start.
#[derive(Debug)]
pub struct UdmConfig {
    /// Records kept in memory; about 150 octets each.
    pub cache_records: usize,
    /// Whether the cache is filled from the database at start, in the background.
    pub preload: bool,
    /// Threads that de-conceal SUCIs; one at least.
    pub deconceal_threads: usize,
    /// Requests that may wait, for de-concealment and for the database each; more are refused as unavailable.
    pub queue: usize,
    /// IND of the sequence numbers, 0 to 31: the host's slot.
    pub ind: u8,
    /// Private keys of the home network.
    pub home_network_keys: Vec<HomeNetworkKey>,
}

impl Default for UdmConfig {
    /// A million records, half the processors for de-concealment, no home network key.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        UdmConfig {
            cache_records: 1_000_000,
            preload: true,
            deconceal_threads: (processors / 2).max(1),
            queue: 16_384,
            ind: 0,
            home_network_keys: Vec::new(),
        }
    }
}

/// How busy a [`Udm`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdmLoad {
    /// Records in the cache.
    pub cached: usize,
    /// Requests that wait for de-concealment.
    pub deconceal_waiting: usize,
    /// Requests that wait for the database.
    pub database_waiting: usize,
}

/// Why a [`Udm`] does not start.
#[derive(Debug, thiserror::Error)]
pub enum UdmError {
    /// The database refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No thread could be made.
    #[error("the subscriber service gets no thread from the system: {0}")]
    Thread(#[from] std::io::Error),
}

/// Answers authentication requests: at once when the subscriber's record is in memory and its identity is in clear
/// ([`Udm::try_now`]), else later, from threads of its own ([`Udm::submit`]). De-concealment has its own threads and
/// its own bounded queue, so that a storm of first registrations holds up nobody else (DESIGN decision 10).
///
/// Sequence numbers come from the time (`sqn.rs` says how), and an AUTS changes a stored offset. Changes that another
/// process makes in the database act within about a second. It reads no clock: the time and RAND of a vector come with
/// the request.
#[derive(Debug)]
pub struct Udm {
    shared: Arc<Shared>,
    deconceal: Option<Sender<Job>>,
    database: Option<Sender<Lookup>>,
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

/// What the threads of a [`Udm`] have in common.
struct Shared {
    cache: Cache,
    clock: SqnClock,
    keys: Vec<HomeNetworkKey>,
    refusals: Refusals,
    answer: Box<dyn Fn(u64, Answer) + Send + Sync>,
    /// Nobody waits for an answer any more.
    stopping: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("cache", &self.cache).field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Udm {
    /// Starts the service on a database. `answer` is called with the token and the answer of each submitted request,
    /// on a thread of the service: it must not block for long.
    pub fn start(
        mut store: Store,
        config: UdmConfig,
        now: Instant,
        answer: impl Fn(u64, Answer) + Send + Sync + 'static,
    ) -> Result<Self, UdmError> {
        let clock = SqnClock::new(config.ind, store.sqn_reservation(config.ind)?);
        let shared = Arc::new(Shared {
            cache: Cache::new(config.cache_records),
            clock,
            keys: config.home_network_keys,
            refusals: Refusals::default(),
            answer: Box::new(answer),
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

    /// The answer, if it takes no waiting: a SUPI or a null-scheme SUCI whose record is in memory, or a SUCI that
    /// cannot be read. Else `None`, and the request is for [`Udm::submit`]. `rand` must be random and used once.
    pub fn try_now(&self, request: &AuthenticationRequest, now: Instant, rand: [u8; 16]) -> Option<Answer> {
        let supi = match self.shared.in_clear(&request.identity, now) {
            Ok(supi) => supi?,
            Err(error) => return Some(Err(error)),
        };
        if request.resync.is_some() {
            return None;
        }
        self.shared.vector(supi, request.serving_network, now, rand).ok()
    }

    /// Hands a request over; its answer comes with `token`. An error is the answer itself, and nothing else follows:
    /// the SUCI cannot be read, or too much is waiting.
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
                taken(self.database.as_ref().map(|queue| queue.try_send(lookup).is_ok()))
            }
            None => {
                let job = Job { token, request, now, rand };
                taken(self.deconceal.as_ref().map(|queue| queue.try_send(job).is_ok()))
            }
        }
    }

    /// Forgets what was read of the database: changes that others have made there count from now on.
    pub fn forget_records(&self) {
        self.shared.cache.clear();
    }

    /// How busy it is.
    pub fn load(&self) -> UdmLoad {
        UdmLoad {
            cached: self.shared.cache.len(),
            deconceal_waiting: self.deconceal.as_ref().map_or(0, Sender::len),
            database_waiting: self.database.as_ref().map_or(0, Sender::len),
        }
    }
}

impl Drop for Udm {
    /// Ends the threads and leaves the sequence numbers in order; what waits gets no answer.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.deconceal = None;
        for thread in self.pool.drain(..) {
            // A thread that panicked has reported it itself
            let _ = thread.join();
        }
        self.database = None;
        if let Some(thread) = self.database_thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The vector of a subscriber whose record is in memory; a [`Miss`] is for the database thread.
    fn vector(&self, supi: Supi, plmn: Plmn, now: Instant, rand: [u8; 16]) -> Result<Answer, Miss> {
        let material = self.cache.next(supi, now, &self.clock)?;
        let info = material.credentials.vector(supi, material.sqn, rand, plmn, material.subscription);
        Ok(info.ok_or(AuthenticationError::Unavailable))
    }

    /// The SUPI of an identity that does not conceal it.
    fn in_clear(&self, identity: &SubscriberIdentity, now: Instant) -> Result<Option<Supi>, AuthenticationError> {
        match identity {
            SubscriberIdentity::Supi(supi) => Ok(Some(*supi)),
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

fn taken(sent: Option<bool>) -> Result<(), AuthenticationError> {
    if sent == Some(true) { Ok(()) } else { Err(AuthenticationError::Unavailable) }
}

/// The life of a de-concealing thread.
fn deconceal_all(shared: &Shared, jobs: &Receiver<Job>, database: &Sender<Lookup>) {
    for Job { token, request, now, rand } in jobs {
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let SubscriberIdentity::Suci(octets) = &request.identity else { continue };
        let supi = match sidf::deconceal(octets, &shared.keys) {
            Ok(supi) => supi,
            Err(reason) => {
                shared.refusals.report(octets, reason, now);
                (shared.answer)(token, Err(refusal(reason)));
                continue;
            }
        };
        if request.resync.is_none()
            && let Ok(answer) = shared.vector(supi, request.serving_network, now, rand)
        {
            (shared.answer)(token, answer);
            continue;
        }
        let lookup = Lookup::new(token, supi, &request, now, rand);
        if let Err(TrySendError::Full(lookup) | TrySendError::Disconnected(lookup)) = database.try_send(lookup) {
            (shared.answer)(lookup.token, Err(AuthenticationError::Unavailable));
        }
    }
}
