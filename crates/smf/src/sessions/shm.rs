//! SM contexts in shared memory of this process (`state.location = "shm"`).
//!
//! The records are in shared memory that outlives the process (`state.database`). The thread that
//! runs a transaction commits it before its effects. No other process commits there, so the decoded
//! SM contexts are always current, and no transaction loads anything.
//!
//! A commit fails if there is no room. The transaction then has no effect. A request gets an error
//! response. A transaction without a request is retried, before all later ones of the SM context. A
//! transaction whose SM context would become too large is not retried; a waiting request gets an
//! error response.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use vireo_ops::database::RENEWAL_INTERVAL;
use vireo_ops::database::renew;
use vireo_ops::metrics::{Metrics, StateFunction, StateOperation};
use vireo_store::records::{Change, Encoded, Name, RecordStore};

/// Delay before a failed commit is retried.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Delay before the next deadline of an SM context whose due transaction is too large.
const OVERSIZE_DELAY: Duration = Duration::from_secs(10);

/// Storage of SM contexts, and the decoded SM contexts.
pub(super) struct ShmSessions {
    records: Box<dyn RecordStore>,
    metrics: Arc<Metrics>,
    sessions: FxHashMap<Ltmsi, (Box<Session>, Version)>,
    /// Transactions whose commit failed, and later ones of the same SM contexts.
    behind: BTreeMap<Ltmsi, VecDeque<Task>>,
    /// Time of the next retry.
    retry_at: Option<Instant>,
    /// True if the last commit failed for lack of room, which is logged once.
    full: bool,
    /// Record of the PFCP recovery time stamp, and the time of its next renewal.
    node: Name,
    renewal: Option<Instant>,
}

impl std::fmt::Debug for ShmSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmSessions")
            .field("sessions", &self.sessions)
            .field("behind", &self.behind)
            .finish_non_exhaustive()
    }
}

impl ShmSessions {
    fn new(records: Box<dyn RecordStore>, metrics: Arc<Metrics>) -> Self {
        let (sessions, behind) = (FxHashMap::default(), BTreeMap::new());
        ShmSessions {
            records,
            metrics,
            sessions,
            behind,
            retry_at: None,
            full: false,
            node: storage::NODE,
            renewal: None,
        }
    }

    pub(super) fn take(&mut self, ltmsi: Ltmsi) -> (Option<Box<Session>>, RecordBase) {
        let mut known = RecordBase::default();
        let session = self.sessions.remove(&ltmsi).map(|(session, version)| {
            known.version = version;
            session
        });
        (session, known)
    }

    pub(super) fn insert(&mut self, ltmsi: Ltmsi, session: Box<Session>, version: Version) {
        self.sessions.insert(ltmsi, (session, version));
    }

    /// Commits the result of a transaction over a version. Returns the new version.
    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        (session, kind): (Option<&Session>, Transaction),
    ) -> Result<Version, RecordError> {
        let begun = std::time::Instant::now();
        let octets = match session.map(|session| Codec::default().encode(&RecordBase::default(), session)).transpose() {
            Ok(Some(Encoded::Whole(octets))) => Some(octets),
            Ok(None) => None,
            Ok(Some(Encoded::Parts(_))) | Err(_) => {
                tracing::error!("bug: SM context does not encode");
                return Err(RecordError::NotARecord);
            }
        };
        let (operation, change) = match &octets {
            Some(octets) => (StateOperation::Write, Change::Commit { expected, octets }),
            None => (StateOperation::Remove, Change::Remove { expected }),
        };
        let result = self.records.change(&[(storage::name(ltmsi), change)]).remove(0);
        self.metrics.state_operation(StateFunction::Smf, kind, operation, begun.elapsed());
        match &result {
            Err(RecordError::Full) if std::mem::replace(&mut self.full, true) => {}
            Err(error) => {
                tracing::warn!(%error, "transaction not committed; see state.database, state.ues")
            }
            Ok(_) => self.full = false,
        }
        result
    }

    /// Loads the last committed SM context.
    fn load(&mut self, ltmsi: Ltmsi) -> Option<(Box<Session>, Version)> {
        let found = self.records.load(&[storage::name(ltmsi)]).ok()?.pop().flatten()?;
        Session::decode_stored(Codec::default(), found).map(|(session, known)| (session, known.version))
    }
}

impl Sessions {
    /// Sets the records, which no other process uses, and the SM contexts in them.
    pub(crate) fn use_shm_records(
        &mut self,
        records: Box<dyn RecordStore>,
        metrics: Arc<Metrics>,
        stored: Vec<RecoveredSession>,
    ) {
        let mut here = ShmSessions::new(records, metrics);
        let entry = |RecoveredSession { ltmsi, session, version }| (ltmsi, (session, version));
        here.sessions.extend(stored.into_iter().map(entry));
        self.backend = SessionBackend::Shm(Box::new(here));
    }

    /// Commits a transaction and executes its effects.
    pub(super) fn commit_to_shm(
        &mut self,
        ltmsi: Ltmsi,
        task: Task,
        outcome: Outcome,
        mut known: RecordBase,
        now: Instant,
    ) {
        let SessionBackend::Shm(here) = &mut self.backend else { return };
        if outcome.changed && (outcome.session.is_some() || known.version != 0) {
            match here.commit(ltmsi, known.version, (outcome.session.as_deref(), task.kind)) {
                Ok(version) => known.version = version,
                Err(error) => {
                    let before = here.load(ltmsi);
                    here.sessions.extend(before.map(|before| (ltmsi, before)));
                    if task.reply.is_none() && error.is_retryable() {
                        return self.queue_retry(ltmsi, task, now);
                    }
                    if task.reply.is_none() {
                        self.answer(ltmsi, wire::not_stored(&error, false));
                        if self.index.get(&ltmsi).is_some_and(|entry| entry.due.is_none()) {
                            self.schedule(ltmsi, Some(now + OVERSIZE_DELAY));
                        }
                    }
                    return self.void(ltmsi, task, outcome, &error, now);
                }
            }
        }
        self.complete(ltmsi, task, outcome, Some(known), now);
    }

    /// Queues a failed transaction for a retry, before later ones of the SM context.
    fn queue_retry(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        let SessionBackend::Shm(here) = &mut self.backend else { return };
        here.behind.entry(ltmsi).or_default().push_front(task);
        here.retry_at.get_or_insert(now + RETRY_DELAY);
    }

    /// Queues or rejects a transaction if an earlier one of the SM context waits for a retry; else
    /// returns it.
    pub(super) fn queue_behind_retry(&mut self, ltmsi: Ltmsi, task: Task) -> Option<Task> {
        let SessionBackend::Shm(here) = &mut self.backend else { return Some(task) };
        let Some(behind) = here.behind.get_mut(&ltmsi) else { return Some(task) };
        match task.reply {
            Some(reply) => {
                let answer = wire::not_stored(&RecordError::Full, matches!(task.turn, SmEvent::Create(_)));
                self.actions.push(Action::Reply(reply, answer));
            }
            None if behind.len() < MAX_QUEUED_TRANSACTIONS => behind.push_back(task),
            None => tracing::error!("too many requests wait for an SM context: no room for records"),
        }
        None
    }

    /// Retries failed commits that are due, and renews the PFCP recovery time stamp.
    pub(super) fn on_shm_timer(&mut self, now: Instant) {
        let SessionBackend::Shm(here) = &mut self.backend else { return };
        if *here.renewal.get_or_insert(now + RENEWAL_INTERVAL.into()) <= now {
            here.renewal = Some(now + RENEWAL_INTERVAL.into());
            renew(&mut *here.records, here.node);
        }
        if here.retry_at.take_if(|retry_at| *retry_at <= now).is_none() {
            return;
        }
        for (ltmsi, behind) in std::mem::take(&mut here.behind) {
            for task in behind {
                self.begin_or_wait(ltmsi, task, now);
            }
        }
    }

    /// Returns the time of the next [`Sessions::on_shm_timer`].
    pub(super) fn next_shm_timer(&self) -> Option<Instant> {
        match &self.backend {
            SessionBackend::Shm(here) => here.retry_at.into_iter().chain(here.renewal).min(),
            _ => None,
        }
    }
}
