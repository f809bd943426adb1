//! SM contexts whose records this process has for itself, in memory that outlives it (`state.location = "shm"` and a
//! `state.database` of shared memory). The thread that carries a transaction out commits it, before anything leaves. Nobody else commits
//! there, so what was decoded last holds, and no transaction loads anything.
//!
//! A commit fails where there is no room, and then the transaction is void: who asks for it is told so, and what nobody asks for is
//! tried again, before all that comes later for the SM context. One that would make an SM context larger than can be kept is void for
//! good: then who waits for what comes of it is told.

use super::*;
use crate::database::RENEWED as NODE_RENEWED;
use crate::database::renew;
use crate::metrics::{Metrics, StateFunction, StateOperation};
use std::collections::BTreeMap;
use std::sync::Arc;
use vireo_store::records::{Change, Encoded, Name, RecordStore};

/// After so long what was not committed is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// After so long an SM context is looked at again of which something due was void for good.
const LATER: Duration = Duration::from_secs(10);

/// Where SM contexts are, and what was decoded of them.
pub(super) struct ShmSessions {
    records: Box<dyn RecordStore>,
    metrics: Arc<Metrics>,
    sessions: FxHashMap<Ltmsi, (Box<Session>, Version)>,
    /// What could not be committed, and what has come for the same SM contexts since.
    behind: BTreeMap<Ltmsi, VecDeque<Task>>,
    /// When that is tried again.
    again: Option<Instant>,
    /// There was no room for the last that was to be committed, which was said.
    full: bool,
    /// Where it is written what the SMF is to UPFs, and when it is written again.
    node: Name,
    renewal: Option<Instant>,
}

impl std::fmt::Debug for ShmSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Here").field("sessions", &self.sessions).field("behind", &self.behind).finish_non_exhaustive()
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
            again: None,
            full: false,
            node: recovery::NODE,
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

    pub(super) fn keep(&mut self, ltmsi: Ltmsi, session: Box<Session>, version: Version) {
        self.sessions.insert(ltmsi, (session, version));
    }

    /// Commits what a transaction has come to in the place of that version; the one that there is then.
    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        (session, kind): (Option<&Session>, Transaction),
    ) -> Result<Version, RecordError> {
        let begun = std::time::Instant::now();
        let octets = match session.map(|session| Codec::default().encode(session)).transpose() {
            Ok(Some(Encoded::Whole(octets))) => Some(octets),
            Ok(None) => None,
            Ok(Some(Encoded::Parts(_))) | Err(_) => {
                tracing::error!("an SM context cannot be stored: please report it");
                return Err(RecordError::NotARecord);
            }
        };
        let (operation, change) = match &octets {
            Some(octets) => (StateOperation::Write, Change::Commit { expected, octets }),
            None => (StateOperation::Remove, Change::Remove { expected }),
        };
        let result = self.records.change(&[(recovery::name(ltmsi), change)]).remove(0);
        self.metrics.state_operation(StateFunction::Smf, kind, operation, begun.elapsed());
        match &result {
            Err(RecordError::Full) if std::mem::replace(&mut self.full, true) => {}
            Err(error) => {
                tracing::warn!(%error, "a transaction was not committed: it is void (see state.database, state.ues)")
            }
            Ok(_) => self.full = false,
        }
        result
    }

    /// The SM context as it was committed last.
    fn load(&mut self, ltmsi: Ltmsi) -> Option<(Box<Session>, Version)> {
        let found = self.records.load(&[recovery::name(ltmsi)]).ok()?.pop().flatten()?;
        Session::found(Codec::default(), found).map(|(session, known)| (session, known.version))
    }
}

impl Sessions {
    /// From now on SM contexts are in these records, which nobody else has; these are there.
    pub(in super::super) fn keep_here(
        &mut self,
        records: Box<dyn RecordStore>,
        metrics: Arc<Metrics>,
        there: Vec<(Ltmsi, Box<Session>, Version)>,
    ) {
        let mut here = ShmSessions::new(records, metrics);
        here.sessions.extend(there.into_iter().map(|(ltmsi, session, version)| (ltmsi, (session, version))));
        self.place = SessionBackend::Here(Box::new(here));
    }

    /// A transaction was carried out: it is committed and leaves.
    pub(super) fn commit_here(
        &mut self,
        ltmsi: Ltmsi,
        task: Task,
        outcome: Outcome,
        mut known: RecordBase,
        now: Instant,
    ) {
        let SessionBackend::Here(here) = &mut self.place else { return };
        if outcome.changed && (outcome.session.is_some() || known.version != 0) {
            match here.commit(ltmsi, known.version, (outcome.session.as_deref(), task.kind)) {
                Ok(version) => known.version = version,
                Err(error) => {
                    let before = here.load(ltmsi);
                    here.sessions.extend(before.map(|before| (ltmsi, before)));
                    if task.reply.is_none() && error.is_retryable() {
                        return self.try_later(ltmsi, task, now);
                    }
                    if task.reply.is_none() {
                        self.answer(ltmsi, wire::not_stored(&error, false));
                        if self.index.get(&ltmsi).is_some_and(|entry| entry.due.is_none()) {
                            self.schedule(ltmsi, Some(now + LATER));
                        }
                    }
                    return self.void(ltmsi, task, outcome, &error, now);
                }
            }
        }
        self.done(ltmsi, task, outcome, Some(known), now);
    }

    /// It is tried again, before what comes for that SM context meanwhile.
    fn try_later(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        let SessionBackend::Here(here) = &mut self.place else { return };
        here.behind.entry(ltmsi).or_default().push_front(task);
        here.again.get_or_insert(now + AGAIN);
    }

    /// Whether a transaction has to wait for another one that could not be committed; then it does, or is refused.
    pub(super) fn waits_here(&mut self, ltmsi: Ltmsi, task: Task) -> Option<Task> {
        let SessionBackend::Here(here) = &mut self.place else { return Some(task) };
        let Some(behind) = here.behind.get_mut(&ltmsi) else { return Some(task) };
        match task.reply {
            Some(reply) => {
                let answer = wire::not_stored(&RecordError::Full, matches!(task.turn, SmEvent::Create(_)));
                self.actions.push(Action::Reply(reply, answer));
            }
            None if behind.len() < BEHIND => behind.push_back(task),
            None => tracing::error!("too much waits for an SM context: its records have no room"),
        }
        None
    }

    /// What could not be committed is tried again when it is time, and what the SMF is to UPFs written again.
    pub(super) fn on_time_here(&mut self, now: Instant) {
        let SessionBackend::Here(here) = &mut self.place else { return };
        if *here.renewal.get_or_insert(now + NODE_RENEWED.into()) <= now {
            here.renewal = Some(now + NODE_RENEWED.into());
            renew(&mut *here.records, here.node);
        }
        if here.again.take_if(|again| *again <= now).is_none() {
            return;
        }
        for (ltmsi, behind) in std::mem::take(&mut here.behind) {
            for task in behind {
                self.begin_or_wait(ltmsi, task, now);
            }
        }
    }

    /// When [`Sessions::on_time_here`] has something to do.
    pub(super) fn due_here(&self) -> Option<Instant> {
        match &self.place {
            SessionBackend::Here(here) => here.again.into_iter().chain(here.renewal).min(),
            _ => None,
        }
    }
}
