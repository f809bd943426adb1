//! The SM contexts of an SMF: requests of AMFs, messages of UPFs and time go in, answers and requests come out. Each is a
//! transaction over one SM context, and those of one go one after the other.
//!
//! SM contexts are in this process's memory, or in a database: then each transaction loads the SM context, and what it wants to
//! leave does so when the commit is answered; meanwhile those of other SM contexts go on. Here is only what leads to them, which
//! an SMF makes again from the records when it starts ([`Sessions::restore`]). Or they are in shared memory ([`here`]). With [`StatePersist::Procedure`] an SM context stays
//! here as long as a procedure is under way, and is committed when it rests. With [`StateCarry::Piggyback`] the AMF has them
//! ([`carried`]); or they are parts of records of UEs that it shares with the AMF ([`shared`]). It knows no sockets; one thread owns it.
//!
//! [`StateCarry::Piggyback`]: vireo_core::config::StateCarry::Piggyback

mod create;
mod implied;
mod piggyback;
mod shared;
mod shm;

use super::addresses::Addresses;
use super::recovery::{self, StorageConfig};
use super::session::{self, Outcome, OutgoingMessage, Session, SmEvent, TransactionEnv};
use super::wire;
use crate::database::{DatabaseJob, DatabaseOperation, OperationResult};
use crate::metrics::Transaction;
use crate::reload::Reload;
use rand::RngCore;
use rand::rngs::StdRng;
use rustc_hash::FxHashMap;
use shared::AmfCommitRequest;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use vireo_core::config::{CoreConfig, StatePersist};
use vireo_core::sba::N1N2TransferResult;
use vireo_core::subscription::Subscription;
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::smf::{self, Operation, Resource};
use vireo_sbi::{IncomingRequest, Message, Reply, ReplyTo};
use vireo_store::Version;
use vireo_store::records::{Codec, Format, LIFE, RecordBase, RecordError, StoredRecord};
use vireo_types::{Duration, Instant, Ltmsi, Seid, Supi};
use vireo_wire::pfcp::{self, MessageType};

/// SM contexts at the most.
const CONTEXTS: usize = 4_000_000;
/// Transactions of one SM context that wait, at the most.
const BEHIND: usize = 32;
/// A record is committed again after so long, so that it lives on.
const RENEWED: Duration = Duration::from_secs(LIFE.as_secs() / 3);

/// What is to be done.
#[derive(Debug)]
pub(super) enum Action {
    /// An AMF is answered.
    Reply(ReplyTo, Reply),
    /// A UPF is told something. `key` names a request.
    Pfcp { upf: SocketAddr, key: u64, seid: Seid, message: Vec<u8> },
    /// The AMF is to transfer something; what comes of it goes to [`Sessions::transferred`]. `amf` is the URI that the AMF has given
    /// which asked for the session.
    Transfer { of: TransferName, supi: Supi, amf: Option<String>, message: Message },
    /// The AMF is told that the SM context has ended; then [`Sessions::notified`].
    Notify { seid: Seid, uri: String, message: Message },
    /// The AMF is asked for an SM context that was left with it, of this subscriber and of that number there; the answer goes to
    /// [`Sessions::answered`].
    Fetch { ltmsi: Ltmsi, seid: Seid, of: (Supi, u32) },
}

/// Where SM contexts are kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionStorage {
    Memory,
    Database(StorageConfig),
    /// In records that this thread commits to by itself ([`Sessions::keep_here`]).
    Here,
    /// They travel; how long who asks waits at the most.
    Amf(Duration),
}

impl SessionStorage {
    /// Whether another SMF goes on with them.
    pub(super) fn is_found_again(self) -> bool {
        !matches!(self, SessionStorage::Memory)
    }
}

/// A message for the AMF to transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferName {
    pub(super) seid: Seid,
    pub(super) number: u32,
    /// It is for a downlink packet.
    pub(super) calls: bool,
}

/// What a subscriber may do; an error is that nobody can say.
pub(super) type Lookup<'a> = &'a mut dyn FnMut(Supi) -> Result<Option<Subscription>, String>;

/// What leads to an SM context.
#[derive(Debug)]
struct Entry {
    seid: Seid,
    supi: Supi,
    psi: u8,
    upf: SocketAddr,
    /// It has not ended.
    lives: bool,
    /// When something is due for it.
    due: Option<Instant>,
    /// The record of the UE that it is in, if it has none of its own.
    record: Option<u64>,
    /// Of one that was found, or may be asked for again later: the key of the request that has made it.
    made_by: Option<Box<str>>,
    /// The AMF has taken transfers up to this one.
    taken: Option<u32>,
    /// Of one that travels: the version that the AMF was given last, as far as is known here.
    given: Version,
}

/// A transaction.
#[derive(Debug)]
struct Task {
    turn: SmEvent,
    kind: Transaction,
    /// The key of who asks, and the way to answer.
    key: Option<String>,
    reply: Option<ReplyTo>,
    /// Until when it may wait for the database; `None`: until that answers.
    until: Option<Instant>,
    /// Of a UE whose record is shared: which one it is, and what of the AMF is to be committed.
    brought: Option<AmfCommitRequest>,
}

/// What of a transaction the database is asked.
#[derive(Debug)]
enum Running {
    Loading(Task),
    Committing(Box<Commit>),
    /// Another version was there: is it this one, whose answer was lost?
    Checking(Box<Commit>),
}

#[derive(Debug)]
struct Commit {
    task: Task,
    outcome: Outcome,
}

/// The transactions of an SM context, in order.
#[derive(Debug, Default)]
struct TransactionQueue {
    running: Option<Running>,
    /// The record of the UE, as it was loaded.
    record: Option<StoredRecord>,
    behind: VecDeque<Task>,
}

/// Where SM contexts are.
#[derive(Debug)]
enum SessionBackend {
    Memory(FxHashMap<Ltmsi, Box<Session>>),
    Database(Box<DatabaseBackend>),
    Here(Box<shm::ShmSessions>),
}

/// What is under way with a database.
#[derive(Debug)]
struct DatabaseBackend {
    lanes: FxHashMap<Ltmsi, TransactionQueue>,
    jobs: VecDeque<DatabaseJob>,
    patience: Duration,
    persist: StatePersist,
    codec: Codec,
    /// They are in records of UEs that others have parts of; these are kept as that.
    shares: Option<Format>,
    /// There is no database: the AMF has them.
    carries: bool,
    /// SM contexts that do not rest, with what the database has of them, where that is not each transaction's; of those that travel
    /// the version is their own.
    kept: FxHashMap<Ltmsi, (Box<Session>, RecordBase)>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Sessions {
    means: TransactionEnv,
    place: SessionBackend,
    index: FxHashMap<Ltmsi, Entry>,
    by_ue: FxHashMap<(Supi, u8), Ltmsi>,
    due: BTreeSet<(Instant, Ltmsi)>,
    /// Who waits for the UPF.
    waiting: FxHashMap<Ltmsi, ReplyTo>,
    /// Whose answer waits for what becomes of a transfer, or is that transfer, and what it is by itself.
    held: FxHashMap<Ltmsi, (ReplyTo, Reply)>,
    next: u32,
    lives: usize,
    actions: Vec<Action>,
}

impl Sessions {
    /// None yet.
    pub(super) fn new(config: CoreConfig, root: String, mut rng: StdRng, keeper: SessionStorage) -> Self {
        // Not those of the SMF that was here before.
        let next = rng.next_u32();
        let stored = |persist, codec, patience, (shares, carries)| {
            let (lanes, jobs, kept) = (FxHashMap::default(), VecDeque::new(), FxHashMap::default());
            SessionBackend::Database(Box::new(DatabaseBackend {
                lanes,
                jobs,
                patience,
                persist,
                codec,
                shares,
                carries,
                kept,
            }))
        };
        let (place, carries) = match keeper {
            SessionStorage::Memory | SessionStorage::Here => (SessionBackend::Memory(FxHashMap::default()), false),
            SessionStorage::Database(StorageConfig { persist, codec, scope, octets, patience }) => {
                (stored(persist, codec, patience, (scope.is_shared().then_some(octets), false)), false)
            }
            SessionStorage::Amf(patience) => {
                (stored(StatePersist::Procedure, Codec::default(), patience, (None, true)), true)
            }
        };
        let addresses = Addresses::new(&config);
        let with_upf = matches!(keeper, SessionStorage::Database(StorageConfig { scope, .. }) if scope.is_of_all());
        Sessions {
            means: TransactionEnv { config, root, addresses, rng, stored: keeper.is_found_again(), carries, with_upf },
            place,
            index: FxHashMap::default(),
            by_ue: FxHashMap::default(),
            due: BTreeSet::new(),
            waiting: FxHashMap::default(),
            held: FxHashMap::default(),
            next,
            lives: 0,
            actions: Vec::new(),
        }
    }

    /// Takes what of a configuration that was read again is about sessions.
    pub(super) fn reload(&mut self, reload: &Reload) {
        reload.update_dnns(&mut self.means.config);
    }

    /// An SM context of the SMF that was here before. What that may not have said is said again.
    pub(super) fn restore(&mut self, ltmsi: Ltmsi, session: &Session, now: Instant) {
        self.means.addresses.are_taken(&session.sm.dnn, &session.sm.address);
        for leave in session.again(&self.means.root, now) {
            self.leave(ltmsi, session, leave);
        }
        self.enter(ltmsi, session, session.made_by().map(Into::into));
        // Looked at soon: by and by, not all at one time.
        let renewed = now + Duration(u64::from(self.means.rng.next_u32()) % RENEWED.0);
        let due = vireo_core::session::deadline(&session.sm).map_or(renewed, |due| due.min(renewed));
        self.schedule(ltmsi, Some(due));
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lives
    }

    /// What is to be done, in order.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// What the database is to be asked next; the answer goes to [`Sessions::answered`].
    pub(super) fn jobs(&mut self) -> Option<&mut VecDeque<DatabaseJob>> {
        match &mut self.place {
            SessionBackend::Memory(_) | SessionBackend::Here(_) => None,
            SessionBackend::Database(stored) => Some(&mut stored.jobs),
        }
    }

    /// When [`Sessions::on_time`] is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.due_here()).min()
    }

    /// What an AMF asks.
    pub(super) fn call(&mut self, call: IncomingRequest, now: Instant, subscription: Lookup<'_>) {
        let IncomingRequest { path, message, key, repeated, reply } = call;
        let brought = match self.brought(&message) {
            Ok(brought) => brought,
            Err(problem) => return self.actions.push(Action::Reply(reply, Reply::problem(&problem))),
        };
        if let Some(seid) = wire::unreached(&path) {
            return match self.find(seid, &message, now) {
                Ok(Some(ltmsi)) => {
                    self.ask(ltmsi, SmEvent::Unreached, Transaction::Transfer, (key, reply, brought), now);
                }
                Ok(None) => self.actions.push(Action::Reply(reply, Reply::done())),
                Err(answer) => self.actions.push(Action::Reply(reply, answer)),
            };
        }
        match smf::resource(&path) {
            Some(Resource::All) => {
                if let Err((reply, answer)) = self.create(&message, (key, repeated, reply, brought), now, subscription)
                {
                    self.actions.push(Action::Reply(reply, answer));
                }
            }
            Some(Resource::One(reference, operation)) => {
                let asked = match operation {
                    Operation::Modify => wire::update(&message).map(SmEvent::Update),
                    Operation::Release => Ok(SmEvent::Release),
                };
                let seid = wire::seid_of(reference);
                let found = match (seid, &asked) {
                    (Some(seid), Ok(_)) => self.find(seid, &message, now),
                    (Some(seid), Err(_)) => Ok(self.of(seid)),
                    (None, _) => Ok(None),
                };
                let answer = match (found, asked) {
                    (Ok(Some(ltmsi)), Ok(turn)) => {
                        let kind = match operation {
                            Operation::Modify => Transaction::UpdateSmContext,
                            Operation::Release => Transaction::ReleaseSmContext,
                        };
                        return self.ask(ltmsi, turn, kind, (key, reply, brought), now);
                    }
                    (Err(answer), _) => answer,
                    (Ok(None), _) => wire::unknown(),
                    (Ok(Some(_)), Err(problem)) => Reply::problem(&problem),
                };
                self.actions.push(Action::Reply(reply, answer));
            }
            None => {
                let what = "this SMF has SM contexts, and the callbacks that it has named";
                let problem = ProblemDetails::new(404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", what);
                self.actions.push(Action::Reply(reply, Reply::problem(&problem)));
            }
        }
    }

    fn of(&self, seid: Seid) -> Option<Ltmsi> {
        let ltmsi = seid.ltmsi();
        self.index.get(&ltmsi).filter(|entry| entry.seid == seid).map(|_| ltmsi)
    }

    /// A message of a UPF for a session; whether there is such a one at that UPF.
    pub(super) fn pfcp(&mut self, (upf, seid): (SocketAddr, Seid), message: &[u8], now: Instant) -> bool {
        let Some(ltmsi) = self.of(seid).or_else(|| self.led(seid, message)) else { return false };
        if self.index.get(&ltmsi).is_some_and(|entry| entry.seid == seid && entry.upf != upf) {
            return false;
        }
        let kind = match pfcp::Message::new(message).map(|message| message.message_type()) {
            Ok(MessageType::SESSION_ESTABLISHMENT_RESPONSE) => Transaction::PfcpEstablishment,
            Ok(MessageType::SESSION_MODIFICATION_RESPONSE) => Transaction::PfcpModification,
            Ok(MessageType::SESSION_DELETION_RESPONSE) => Transaction::PfcpDeletion,
            _ => Transaction::Other,
        };
        self.enqueue(ltmsi, SmEvent::Pfcp(upf, message.to_vec()), kind, now);
        true
    }

    /// A UPF did not answer.
    pub(super) fn pfcp_timeout(&mut self, seid: Seid, now: Instant) {
        if let Some(ltmsi) = self.of(seid) {
            self.enqueue(ltmsi, SmEvent::PfcpTimeout, Transaction::Other, now);
        }
    }

    /// A UPF has lost its sessions.
    pub(super) fn upf_lost(&mut self, upf: SocketAddr, now: Instant) {
        let there: Vec<_> = self.index.iter().filter(|(_, entry)| entry.upf == upf).map(|(ltmsi, _)| *ltmsi).collect();
        for ltmsi in there {
            self.enqueue(ltmsi, SmEvent::UpfLost, Transaction::Other, now);
        }
    }

    /// What became of a transfer.
    pub(super) fn transferred(&mut self, of: TransferName, result: N1N2TransferResult, now: Instant) {
        let TransferName { seid, number, calls } = of;
        let Some(ltmsi) = self.of(seid) else { return };
        if let Some(entry) = self.index.get_mut(&ltmsi) {
            entry.taken = Some(number);
        }
        self.is_said(ltmsi);
        // Nothing changes by it, but that it needs not be said again: that is stored with the next transaction.
        if calls || !matches!(result, N1N2TransferResult::Initiated | N1N2TransferResult::Attempting) {
            self.enqueue(ltmsi, SmEvent::Transferred(result), Transaction::Transfer, now);
        }
    }

    /// The AMF knows that a session has ended, or cannot be told.
    pub(super) fn notified(&mut self, seid: Seid, now: Instant) {
        if let Some(ltmsi) = self.of(seid) {
            self.enqueue(ltmsi, SmEvent::Notified, Transaction::Other, now);
        }
    }

    /// What is due by now.
    pub(super) fn on_time(&mut self, now: Instant) {
        while let Some((at, ltmsi)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, ltmsi));
            if let Some(entry) = self.index.get_mut(&ltmsi) {
                entry.due = None;
            }
            self.enqueue(ltmsi, SmEvent::Deadline, Transaction::Other, now);
        }
        self.on_time_here(now);
    }

    /// A transaction that somebody waits for.
    fn ask(
        &mut self,
        ltmsi: Ltmsi,
        turn: SmEvent,
        kind: Transaction,
        (key, reply, brought): (Option<String>, ReplyTo, Option<AmfCommitRequest>),
        now: Instant,
    ) {
        let until = if let SessionBackend::Database(stored) = &self.place { Some(now + stored.patience) } else { None };
        self.begin_or_wait(ltmsi, Task { turn, kind, key, reply: Some(reply), until, brought }, now);
    }

    /// One that nobody waits for.
    fn enqueue(&mut self, ltmsi: Ltmsi, turn: SmEvent, kind: Transaction, now: Instant) {
        self.begin_or_wait(ltmsi, Task { turn, kind, key: None, reply: None, until: None, brought: None }, now);
    }

    fn begin_or_wait(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        if let SessionBackend::Database(stored) = &mut self.place
            && let Some(lane) = stored.lanes.get_mut(&ltmsi)
        {
            if lane.behind.len() < BEHIND {
                return lane.behind.push_back(task);
            }
            tracing::warn!("too much waits for an SM context: is the database of records too slow?");
            let problem = ProblemDetails::new(503, "NF_CONGESTION", "too much waits for this SM context");
            return self.actions.extend(task.reply.map(|reply| Action::Reply(reply, Reply::problem(&problem))));
        }
        if let Some(task) = self.waits_here(ltmsi, task) {
            self.begin(ltmsi, task, now);
        }
    }

    fn begin(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        let shared = self.record_of(ltmsi, &task).is_some();
        match &mut self.place {
            SessionBackend::Memory(sessions) => {
                let session = sessions.remove(&ltmsi);
                self.carry_out(ltmsi, task, session, RecordBase::default(), now);
            }
            SessionBackend::Here(here) => {
                let (session, known) = here.take(ltmsi);
                self.carry_out(ltmsi, task, session, known, now);
            }
            SessionBackend::Database(stored) => match (stored.kept.remove(&ltmsi), &task.turn) {
                (Some((session, known)), _) => self.carry_out(ltmsi, task, Some(session), known, now),
                (None, SmEvent::Create(_)) if !shared => self.carry_out(ltmsi, task, None, RecordBase::default(), now),
                (None, _) if stored.carries => self.fetch(ltmsi, task, now),
                (None, _) => self.put(ltmsi, DatabaseOperation::Load, Running::Loading(task)),
            },
        }
    }

    /// Asks the database.
    fn put(&mut self, ltmsi: Ltmsi, what: DatabaseOperation, running: Running) {
        let task = match &running {
            Running::Loading(task) => task,
            Running::Committing(commit) | Running::Checking(commit) => &commit.task,
        };
        let of = recovery::name(ltmsi);
        let name = self.record_of(ltmsi, task).map_or(of, crate::shared_record::name);
        let SessionBackend::Database(stored) = &mut self.place else { return };
        // Whether a commit was carried out is found out however long it takes, and one of more than a transaction is not given up.
        let patient = matches!(running, Running::Checking(_)) || stored.persist == StatePersist::Procedure;
        let until = if patient && !matches!(what, DatabaseOperation::Load) { None } else { task.until };
        stored.jobs.push_back(DatabaseJob { name, of, what, kind: task.kind, until });
        stored.lanes.entry(ltmsi).or_default().running = Some(running);
    }

    fn carry_out(
        &mut self,
        ltmsi: Ltmsi,
        task: Task,
        mut session: Option<Box<Session>>,
        known: RecordBase,
        now: Instant,
    ) {
        if let (Some(session), Some(number)) = (&mut session, self.index.get(&ltmsi).and_then(|entry| entry.taken)) {
            session.taken(number);
        }
        let outcome = session::carry_out(session, &task.turn, (ltmsi, task.key.as_deref()), now, &mut self.means);
        let goes_on = outcome.session.as_ref().is_some_and(|session| !session.rests());
        if let Some(there) = self.loaded_record(ltmsi) {
            return self.commit_part(ltmsi, task, outcome, there, now);
        }
        let codec = match &self.place {
            SessionBackend::Memory(_) => return self.done(ltmsi, task, outcome, None, now),
            SessionBackend::Here(_) => return self.commit_here(ltmsi, task, outcome, known, now),
            SessionBackend::Database(stored) if stored.carries => {
                let mut known = known;
                known.version = known.version.saturating_add(outcome.changed.into());
                return self.done(ltmsi, task, outcome, Some(known), now);
            }
            SessionBackend::Database(stored) if stored.persist == StatePersist::Procedure && goes_on => {
                return self.done(ltmsi, task, outcome, Some(known), now);
            }
            // Nothing is to be stored, or to be taken out.
            SessionBackend::Database(_) if !outcome.changed || outcome.session.is_none() && known.version == 0 => {
                return self.done(ltmsi, task, outcome, None, now);
            }
            SessionBackend::Database(stored) => stored.codec,
        };
        let what = match outcome.session.as_ref().map(|session| codec.encode(session)) {
            Some(Ok(value)) => DatabaseOperation::Put { known, value },
            None => DatabaseOperation::Remove { expected: known.version },
            Some(Err(error)) => {
                tracing::error!(%error, "an SM context cannot be stored: please report it");
                return self.give_up(ltmsi, task, Some(outcome), now);
            }
        };
        self.put(ltmsi, what, Running::Committing(Box::new(Commit { task, outcome })));
    }

    /// The database has answered.
    pub(super) fn answered(&mut self, ltmsi: Ltmsi, done: OperationResult, now: Instant) {
        let SessionBackend::Database(stored) = &mut self.place else { return };
        let Some(running) = stored.lanes.get_mut(&ltmsi).and_then(|lane| lane.running.take()) else { return };
        match (running, done) {
            (Running::Loading(task), OperationResult::Loaded(Ok(found))) => self.loaded(ltmsi, task, found, now),
            (Running::Loading(task), OperationResult::Loaded(Err(error))) => {
                tracing::warn!(%error, "a transaction was not carried out");
                self.give_up(ltmsi, task, None, now);
            }
            (Running::Committing(commit), OperationResult::Changed(Ok(_))) => {
                let Commit { task, outcome, .. } = *commit;
                self.done(ltmsi, task, outcome, None, now);
            }
            (Running::Committing(commit), OperationResult::Changed(Err(RecordError::Conflict))) => {
                self.put(ltmsi, DatabaseOperation::Load, Running::Checking(commit));
            }
            (
                Running::Committing(commit) | Running::Checking(commit),
                OperationResult::Changed(Err(error)) | OperationResult::Loaded(Err(error)),
            ) => {
                tracing::warn!(%error, "a transaction was not committed: it is void");
                let Commit { task, outcome, .. } = *commit;
                self.void(ltmsi, task, outcome, &error, now);
            }
            (Running::Checking(commit), OperationResult::Loaded(Ok(found))) => self.checked(ltmsi, *commit, found, now),
            (running, done) => tracing::error!(?running, ?done, "an answer to another question: please report it"),
        }
    }

    fn loaded(&mut self, ltmsi: Ltmsi, task: Task, found: Option<StoredRecord>, now: Instant) {
        if self.record_of(ltmsi, &task).is_some() {
            return self.loaded_part(ltmsi, task, found, now);
        }
        let Some(found) = found else {
            if let SmEvent::Create(_) = task.turn {
                return self.carry_out(ltmsi, task, None, RecordBase::default(), now);
            }
            // Somebody has taken it out: the AMF hears that there is none.
            self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::unknown())));
            self.forget(ltmsi);
            return self.next(ltmsi, now);
        };
        match self.decoded(found) {
            Some((session, known)) if self.carries() => self.fetched(ltmsi, task, session, known, now),
            Some((session, known)) => self.carry_out(ltmsi, task, Some(session), known, now),
            None => {
                tracing::error!("a record is no SM context of this release: is state.key another program's too?");
                self.give_up(ltmsi, task, None, now);
            }
        }
    }

    /// The SM context of a record.
    fn decoded(&self, found: StoredRecord) -> Option<(Box<Session>, RecordBase)> {
        let SessionBackend::Database(stored) = &self.place else { return None };
        Session::found(stored.codec, found)
    }

    /// What a commit was refused for is known.
    fn checked(&mut self, ltmsi: Ltmsi, commit: Commit, found: Option<StoredRecord>, now: Instant) {
        if self.record_of(ltmsi, &commit.task).is_some() {
            return self.checked_part(ltmsi, commit, found, now);
        }
        let Commit { task, mut outcome } = commit;
        let is_this = match (&found, &outcome.session) {
            (Some(found), Some(session)) => self.decoded(found.clone()).is_some_and(|(there, _)| there == *session),
            (None, None) => true,
            _ => false,
        };
        if is_this {
            return self.done(ltmsi, task, outcome, None, now);
        }
        // Somebody else's: the step is void, and done again over what is there.
        if let SmEvent::Create(_) = task.turn {
            // The number is somebody else's; another one is taken.
            self.give_back(&mut outcome);
            self.next(ltmsi, now);
            return match self.free_number() {
                Some(number) => self.begin_or_wait(number, task, now),
                None => self.give_up(ltmsi, task, None, now),
            };
        }
        self.loaded(ltmsi, task, found, now);
    }

    /// Addresses that an SM context was given that does not come into being.
    fn give_back(&mut self, outcome: &mut Outcome) {
        if let Some(session) = outcome.session.take() {
            self.means.addresses.give_back(&session.sm.dnn, &session.sm.address);
        }
    }

    /// The database has not answered in time, and has done nothing.
    fn give_up(&mut self, ltmsi: Ltmsi, task: Task, outcome: Option<Outcome>, now: Instant) {
        if let (SmEvent::Create(_), Some(mut outcome)) = (&task.turn, outcome) {
            self.give_back(&mut outcome);
        }
        self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::no_database())));
        self.next(ltmsi, now);
    }

    /// A transaction was not committed.
    fn void(&mut self, ltmsi: Ltmsi, mut task: Task, outcome: Outcome, error: &RecordError, now: Instant) {
        let answer = wire::not_stored(error, matches!(task.turn, SmEvent::Create(_)));
        self.actions.extend(task.reply.take().map(|reply| Action::Reply(reply, answer)));
        self.give_up(ltmsi, task, Some(outcome), now);
    }

    /// A transaction is committed, or is to be later with those that follow it, over this version: what it wants leaves.
    fn done(&mut self, ltmsi: Ltmsi, task: Task, mut outcome: Outcome, later: Option<RecordBase>, now: Instant) {
        let given = later.as_ref().map(|known| known.version);
        let given = given.filter(|version| self.give(ltmsi, &mut outcome, *version, task.reply.is_some()));
        let Outcome { session, changed, leaves, own, earlier, answer, after_transfer } = outcome;
        if let Some(earlier) = earlier {
            self.answer(ltmsi, earlier);
        }
        match (own, task.reply) {
            (Some(own), Some(reply)) => self.actions.push(Action::Reply(reply, own)),
            (_, None) => {}
            (None, Some(reply)) => drop(self.waiting.insert(ltmsi, reply)),
        }
        if let Some(session) = &session {
            if !self.index.contains_key(&ltmsi) {
                let made_by =
                    session.made_by().filter(|_| session.record.is_some() || session.is_implied() && !session.carried);
                self.enter(ltmsi, session, made_by.map(Into::into));
            }
            for leave in leaves {
                self.leave(ltmsi, session, leave);
            }
        } else {
            self.leave_last(ltmsi, leaves);
        }
        if let Some(answer) = answer {
            self.answer(ltmsi, answer);
        }
        if let Some(created) = after_transfer {
            self.hold(ltmsi, created);
        }
        match session {
            None => self.forget(ltmsi),
            Some(session) => {
                if changed {
                    self.note(ltmsi, &session, now);
                }
                if let (Some(version), Some(entry)) = (given, self.index.get_mut(&ltmsi)) {
                    entry.given = version;
                }
                let later = later.filter(|known| !self.carries() || self.stays(ltmsi, &session, known.version));
                match (&mut self.place, later) {
                    (SessionBackend::Memory(sessions), _) => drop(sessions.insert(ltmsi, session)),
                    (SessionBackend::Here(here), later) => {
                        here.keep(ltmsi, session, later.map_or(0, |known| known.version))
                    }
                    (SessionBackend::Database(stored), Some(known)) => {
                        drop(stored.kept.insert(ltmsi, (session, known)))
                    }
                    (SessionBackend::Database(_), None) => {}
                }
            }
        }
        self.next(ltmsi, now);
    }

    fn answer(&mut self, ltmsi: Ltmsi, answer: Reply) {
        self.actions.extend(self.waiting.remove(&ltmsi).map(|reply| Action::Reply(reply, answer)));
    }

    fn leave(&mut self, ltmsi: Ltmsi, session: &Session, leave: OutgoingMessage) {
        self.leave_as(ltmsi, (session.sm.cp_seid, session.supi), Some(session.status_uri()), leave);
    }

    /// What an SM context has left that is gone.
    fn leave_last(&mut self, ltmsi: Ltmsi, leaves: Vec<OutgoingMessage>) {
        let Some(of) = self.index.get(&ltmsi).map(|entry| (entry.seid, entry.supi)) else { return };
        leaves.into_iter().for_each(|leave| self.leave_as(ltmsi, of, None, leave));
    }

    fn leave_as(&mut self, ltmsi: Ltmsi, (seid, supi): (Seid, Supi), amf: Option<&str>, leave: OutgoingMessage) {
        debug_assert_eq!(seid.ltmsi(), ltmsi);
        self.actions.push(match leave {
            OutgoingMessage::Pfcp { upf, key, message } => Action::Pfcp { upf, key, seid, message },
            OutgoingMessage::Transfer { number, calls, message } => {
                let of = TransferName { seid, number, calls };
                Action::Transfer { of, supi, amf: amf.map(str::to_owned), message }
            }
            OutgoingMessage::Notify { uri, message } => Action::Notify { seid, uri, message },
            OutgoingMessage::Free(dnn, address) => return self.means.addresses.give_back(&dnn, &address),
        });
    }

    /// What leads to an SM context that is there from now on.
    fn enter(&mut self, ltmsi: Ltmsi, session: &Session, made_by: Option<Box<str>>) {
        let Session { sm, supi, .. } = session;
        let (seid, psi, upf, lives) = (sm.cp_seid, sm.psi, sm.upf, !session.has_ended());
        let (supi, record) = (*supi, session.record);
        let entry = Entry { seid, supi, psi, upf, lives, due: None, record, made_by, taken: None, given: 0 };
        self.index.insert(ltmsi, entry);
        self.lives += usize::from(lives);
        if lives {
            self.by_ue.insert((supi, psi), ltmsi);
        }
    }

    /// Notes how an SM context is, and when something is due.
    fn note(&mut self, ltmsi: Ltmsi, session: &Session, now: Instant) {
        let Some(entry) = self.index.get_mut(&ltmsi) else { return };
        entry.upf = session.sm.upf;
        if entry.lives && session.has_ended() {
            entry.lives = false;
            self.lives -= 1;
            let ue = (entry.supi, entry.psi);
            if self.by_ue.get(&ue) == Some(&ltmsi) {
                self.by_ue.remove(&ue);
            }
        }
        let renewed = match &self.place {
            SessionBackend::Memory(_) => None,
            SessionBackend::Database(stored) if stored.carries => None,
            SessionBackend::Database(_) | SessionBackend::Here(_) => Some(now + RENEWED),
        };
        let due = vireo_core::session::deadline(&session.sm).into_iter().chain(renewed).min();
        self.schedule(ltmsi, due);
    }

    fn schedule(&mut self, ltmsi: Ltmsi, due: Option<Instant>) {
        let Some(entry) = self.index.get_mut(&ltmsi) else { return };
        if due != entry.due {
            if let Some(at) = entry.due.take() {
                self.due.remove(&(at, ltmsi));
            }
            self.due.extend(due.map(|at| (at, ltmsi)));
            entry.due = due;
        }
    }

    /// Nothing leads to it any more.
    fn forget(&mut self, ltmsi: Ltmsi) {
        // Nobody answers any more who it is that waits for it.
        self.answer(ltmsi, wire::unknown());
        self.is_said(ltmsi);
        let Some(entry) = self.index.remove(&ltmsi) else { return };
        self.lives -= usize::from(entry.lives);
        if let Some(at) = entry.due {
            self.due.remove(&(at, ltmsi));
        }
        let ue = (entry.supi, entry.psi);
        if self.by_ue.get(&ue) == Some(&ltmsi) {
            self.by_ue.remove(&ue);
        }
    }

    /// The next transaction of an SM context.
    fn next(&mut self, ltmsi: Ltmsi, now: Instant) {
        let SessionBackend::Database(stored) = &mut self.place else { return };
        let Some(lane) = stored.lanes.get_mut(&ltmsi) else { return };
        match lane.behind.pop_front() {
            Some(task) => self.begin(ltmsi, task, now),
            None => drop(stored.lanes.remove(&ltmsi)),
        }
    }
}

#[cfg(test)]
mod tests;
