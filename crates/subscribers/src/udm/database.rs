//! Database thread of the UDM.
//!
//! It looks up records that are not cached, in batches, executes resynchronisations and
//! reservations of sequence numbers, and detects changes by other processes.

use super::cache::Miss;
use super::{Answer, Shared, UdmOutput, sqn};
use crate::record::Subscriber;
use crate::store::{Changes, Filter, Page, Store, StoreError};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Watch};
use vireo_core::subscription::{AuthenticationError, AuthenticationRequest, DnnSubscription, Resync, Subscription};
use vireo_types::{Dialect, Instant, Plmn, Supi};

/// Interval of the check for changes by other processes.
const CHANGE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum of requests in one batch.
const BATCH: usize = 256;
/// Records in one step of the preload: about 10 ms, for which a request may have to wait.
const PRELOAD: u32 = 500;
/// Maximum of different subscriptions that subscribers share in memory.
const INTERNED: usize = 64;

/// A request whose SUPI is known.
pub(super) struct Lookup {
    pub(super) token: u64,
    supi: Supi,
    dialect: Dialect,
    plmn: Plmn,
    resync: Option<Resync>,
    now: Instant,
    rand: [u8; 16],
}

impl Lookup {
    pub(super) fn new(token: u64, supi: Supi, request: &AuthenticationRequest, now: Instant, rand: [u8; 16]) -> Self {
        let (dialect, plmn) = (request.identity.dialect(), request.serving_network);
        Lookup { token, supi, dialect, plmn, resync: request.resync, now, rand }
    }
}

/// Request to the database thread.
pub(super) enum Query {
    /// Request for a vector.
    Vector(Lookup),
    /// Request for the subscription of a record.
    Record { supi: Supi, is_repeated: bool },
}

impl Query {
    fn supi(&self) -> Supi {
        match self {
            Query::Vector(lookup) => lookup.supi,
            Query::Record { supi, .. } => *supi,
        }
    }
}

/// Makes the first reservation, then starts the thread.
pub(super) fn start(
    store: Store,
    shared: Arc<Shared>,
    queries: Receiver<Query>,
    now: Instant,
    preload: usize,
) -> Result<JoinHandle<()>, super::UdmError> {
    let mut database = Database { store, shared, interned: Vec::new(), reflected: (0, 0), trouble: None };
    database.store.mark_in_use()?;
    database.reserve(sqn::ticks(now))?;
    database.reflected = (database.store.data_version()?, database.store.last_change()?);
    let thread = std::thread::Builder::new().name("udm-database".into());
    Ok(thread.spawn(move || database.run(&queries, preload))?)
}

struct Database {
    store: Store,
    shared: Arc<Shared>,
    interned: Vec<Arc<Subscription>>,
    /// Data version and last change number that the cache reflects.
    reflected: (i64, i64),
    /// Last logged error, which is not logged again.
    trouble: Option<String>,
}

impl Database {
    fn run(mut self, queries: &Receiver<Query>, preload: usize) {
        let mut preload = (preload > 0).then_some((None, preload));
        let mut next_watch = Watch::now() + CHANGE_POLL_INTERVAL;
        let mut batch = Vec::with_capacity(BATCH);
        while !self.shared.stopping.load(Ordering::Relaxed) {
            let wait = match preload {
                Some(_) => Duration::ZERO,
                None => next_watch.saturating_duration_since(Watch::now()),
            };
            match queries.recv_timeout(wait) {
                Ok(query) => {
                    batch.push(query);
                    batch.extend(queries.try_iter().take(BATCH - 1));
                    self.serve(&mut batch);
                }
                Err(RecvTimeoutError::Timeout) => preload = preload.and_then(|p| self.preload(p)),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Watch::now() >= next_watch {
                next_watch = Watch::now() + CHANGE_POLL_INTERVAL;
                let outcome = self.watch();
                self.report(outcome);
            }
        }
        let rest = self.shared.clock.close();
        let outcome = self.store.release_sqn(self.shared.clock.ind(), rest.start, rest.end);
        self.report(outcome);
    }

    /// Answers a batch, with one query for all records that are not cached.
    fn serve(&mut self, batch: &mut Vec<Query>) {
        let missing: Vec<Supi> =
            batch.iter().map(Query::supi).filter(|s| self.shared.cache.peek(*s).is_none()).collect();
        let records = if missing.is_empty() { Ok(Vec::new()) } else { self.read(&missing) };
        let records: HashMap<Supi, Subscriber> = match records {
            Ok(records) => records.into_iter().map(|r| (r.supi, r)).collect(),
            Err(error) => {
                self.report(Err(error));
                for query in batch.drain(..) {
                    self.refuse(&query);
                }
                return;
            }
        };
        for query in batch.drain(..) {
            if let Some(record) = records.get(&query.supi()) {
                self.keep(record);
            }
            let lookup = match query {
                Query::Vector(lookup) => lookup,
                Query::Record { supi, is_repeated } => {
                    let subscription = Ok(self.shared.cache.subscription(supi));
                    (self.shared.output)(UdmOutput::Record { supi, is_repeated, subscription });
                    continue;
                }
            };
            let answer = match self.answer(&lookup) {
                Ok(answer) => {
                    self.report(Ok(()));
                    answer
                }
                Err(error) => {
                    self.report(Err(error));
                    Err(AuthenticationError::Unavailable)
                }
            };
            self.shared.answer(lookup.token, answer);
        }
    }

    /// Answers a request for which the database has no answer.
    fn refuse(&self, query: &Query) {
        let unavailable = AuthenticationError::Unavailable;
        match query {
            Query::Vector(lookup) => self.shared.answer(lookup.token, Err(unavailable)),
            Query::Record { supi, is_repeated } => {
                let record =
                    UdmOutput::Record { supi: *supi, is_repeated: *is_repeated, subscription: Err(unavailable) };
                (self.shared.output)(record);
            }
        }
    }

    fn read(&mut self, supis: &[Supi]) -> Result<Vec<Subscriber>, StoreError> {
        let mut bad = |error| tracing::warn!(%error, "subscriber record not readable; skipping it");
        self.store.get_many(supis, &mut bad)
    }

    /// Answers a request whose record has been loaded, if it exists.
    fn answer(&mut self, lookup: &Lookup) -> Result<Answer, StoreError> {
        if let Some(resync) = &lookup.resync
            && let Err(refused) = self.resynchronise(lookup, resync)?
        {
            return Ok(Err(refused));
        }
        for _ in 0..2 {
            match self.shared.vector((lookup.supi, lookup.dialect), lookup.plmn, lookup.now, lookup.rand) {
                Ok(answer) => return Ok(answer),
                Err(Miss::Reservation(tick)) => self.reserve(tick)?,
                Err(Miss::Absent) => {
                    self.shared.refusals.log_unknown(lookup.supi, lookup.now);
                    return Ok(Err(AuthenticationError::UnknownSubscriber));
                }
                Err(Miss::Offset) => {
                    tracing::warn!(supi = lookup.supi.as_u64(), "the stored SQN offset is out of range: set it to 0");
                    return Ok(Err(AuthenticationError::Unavailable));
                }
            }
        }
        Ok(Err(AuthenticationError::Unavailable))
    }

    /// Evaluates SQNMS of an AUTS (TS 33.102 6.3.5). A new offset is on disk before it is used for
    /// a vector.
    fn resynchronise(
        &mut self,
        lookup: &Lookup,
        resync: &Resync,
    ) -> Result<Result<(), AuthenticationError>, StoreError> {
        let shared = Arc::clone(&self.shared);
        let Some((credentials, offset)) = shared.cache.peek(lookup.supi) else {
            shared.refusals.log_unknown(lookup.supi, lookup.now);
            return Ok(Err(AuthenticationError::UnknownSubscriber));
        };
        let Some(sqn_ms) = credentials.sqn_ms(resync) else {
            return Ok(Err(AuthenticationError::BadAuts));
        };
        let tick = match shared.cache.tick(lookup.supi, lookup.now, &shared.clock) {
            Err(Miss::Reservation(tick)) => {
                self.reserve(tick)?;
                shared.cache.tick(lookup.supi, lookup.now, &shared.clock)
            }
            tick => tick,
        };
        let Some(new) = tick.ok().and_then(|tick| sqn::resynchronised(offset, tick, sqn_ms)) else {
            return Ok(Err(AuthenticationError::BadAuts));
        };
        if new != offset {
            self.store.set_sqn_offset(lookup.supi, new)?;
            shared.cache.set_offset(lookup.supi, new);
            tracing::info!(supi = lookup.supi.as_u64(), "sequence number resynchronised");
        }
        Ok(Ok(()))
    }

    /// Extends the reservation of sequence numbers if necessary.
    fn reserve(&mut self, at_least: u64) -> Result<(), StoreError> {
        if let Some(wanted) = self.shared.clock.next_reservation(at_least) {
            let claim = self.store.reserve_sqn(self.shared.clock.ind(), wanted)?;
            self.shared.clock.on_reserved(claim);
        }
        Ok(())
    }

    /// Removes records from the cache that another process has changed, and extends the
    /// reservation.
    fn watch(&mut self) -> Result<(), StoreError> {
        self.reserve(0)?;
        let version = self.store.data_version()?;
        if version == self.reflected.0 {
            return Ok(());
        }
        let (changes, last) = self.store.changes_since(self.reflected.1)?;
        match &changes {
            Changes::These(supis) => supis.iter().for_each(|supi| self.shared.cache.remove(*supi)),
            Changes::Many => self.shared.cache.clear(),
        }
        self.reflected = (version, last);
        if changes != Changes::These(Vec::new()) {
            (self.shared.output)(UdmOutput::Changed(changes));
        }
        Ok(())
    }

    /// Reads one page of records into the cache. Returns the position of the next page.
    fn preload(&mut self, (after, room): (Option<Supi>, usize)) -> Option<(Option<Supi>, usize)> {
        match self.store.list(&Filter::default(), Page { after, limit: PRELOAD }) {
            Ok(page) => {
                page.iter().take(room).for_each(|record| self.keep(record));
                let room = room.saturating_sub(page.len());
                (page.len() == PRELOAD as usize && room > 0).then(|| (page.last().map(|r| r.supi), room))
            }
            Err(error) => {
                self.report(Err(error));
                None
            }
        }
    }

    fn keep(&mut self, record: &Subscriber) {
        let served = record.served_subscription();
        // Static addresses are those of one subscriber.
        let is_shared = !served.slices.iter().flat_map(|slice| &slice.dnns).any(DnnSubscription::has_addressing);
        let known = self.interned.iter().find(|s| is_shared && ***s == served).cloned();
        let subscription = known.unwrap_or_else(|| {
            let new = Arc::new(served);
            if !is_shared {
                return new;
            }
            if self.interned.len() == INTERNED {
                self.interned.remove(0);
            }
            self.interned.push(Arc::clone(&new));
            new
        });
        if let Err(error) = self.shared.cache.insert(record, subscription) {
            let (path, cause) = (self.store.path().to_owned(), format!("no memory for its keys: {error}"));
            self.report(Err(StoreError::Failed { path, cause }));
        }
    }

    /// Logs database errors when they begin, change and end.
    fn report(&mut self, outcome: Result<(), StoreError>) {
        match outcome {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    tracing::info!("the subscriber database answers again");
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.trouble.as_ref() != Some(&text) {
                    tracing::error!("{text}");
                    self.trouble = Some(text);
                }
            }
        }
    }
}
