//! The SM contexts of an SMF and the transactions on them.
//!
//! Requests of AMFs, messages of UPFs and deadlines are inputs; responses and requests are outputs.
//! Each input is a transaction on one SM context, whose transactions run in sequence. The type uses
//! no sockets and is owned by one thread. SM contexts are stored in one of these places:
//!
//! - The memory of the process.
//! - A database. Each transaction loads the SM context, and its effects are executed after the
//!   commit. This type has only an index, restored from the records at start
//!   ([`Sessions::restore`]). With [`StatePersist::Procedure`], an SM context stays in memory
//!   during a procedure and is committed at its end.
//! - Parts of UE records that the SMF shares with the AMF ([`shared`]).
//! - Shared memory ([`shm`]).
//! - The AMF, with [`StateCarry::Piggyback`] ([`piggyback`]).
//!
//! [`StateCarry::Piggyback`]: vireo_core::config::StateCarry::Piggyback

mod create;
mod implied;
mod piggyback;
mod shared;
mod shm;

use super::addresses::Addresses;
use super::session::{self, Outcome, OutgoingMessage, RecoveredSession, Session, SmEvent, TransactionEnv};
use super::storage::{self, SessionStorage, StorageConfig};
use super::wire;
use rand::RngCore;
use rand::rngs::StdRng;
use rustc_hash::FxHashMap;
use shared::AmfCommitRequest;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use vireo_core::config::{CoreConfig, StatePersist};
use vireo_core::sba::N1N2TransferResult;
use vireo_core::subscription::Subscription;
use vireo_ops::database::{DatabaseJob, DatabaseOperation, OperationResult};
use vireo_ops::metrics::Transaction;
use vireo_ops::reload::Reload;
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::smf::{self, Operation, Resource};
use vireo_sbi::{IncomingRequest, Message, Reply, ReplyTo};
use vireo_store::Version;
use vireo_store::records::{Codec, Format, LIFE, RecordBase, RecordError, StoredRecord};
use vireo_types::{Duration, Instant, Ltmsi, Seid, Supi};
use vireo_wire::pfcp::{self, MessageType};

/// Maximum of SM contexts.
const MAX_CONTEXTS: usize = 4_000_000;
/// Maximum of queued transactions of one SM context.
const MAX_QUEUED_TRANSACTIONS: usize = 32;
/// Interval after which an unchanged record is committed again, so that it does not expire.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(LIFE.as_secs() / 3);

/// Output of [`Sessions`].
#[derive(Debug)]
pub(super) enum Action {
    /// Answer a request of an AMF.
    Reply(ReplyTo, Reply),
    /// Send a PFCP message. `key` identifies a request.
    Pfcp { upf: SocketAddr, key: u64, seid: Seid, message: Vec<u8> },
    /// Ask the AMF for an N1N2 transfer. Its result goes to [`Sessions::on_transfer_result`]. `amf`
    /// is the callback URI of the AMF that created the session.
    Transfer { of: TransferName, supi: Supi, amf: Option<String>, message: Message },
    /// Notify the AMF that the SM context has ended, then call
    /// [`Sessions::on_notification_answer`].
    Notify { seid: Seid, uri: String, message: Message },
    /// Fetch an SM context that the AMF stores, by subscriber and number. The result goes to
    /// [`Sessions::on_database_result`].
    Fetch { ltmsi: Ltmsi, seid: Seid, of: (Supi, u32) },
}

/// Identity of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferName {
    pub(super) seid: Seid,
    pub(super) number: u32,
    /// True if a downlink packet caused it.
    pub(super) calls: bool,
}

/// Lookup of a subscription. An error means that the database does not answer.
pub(super) type Lookup<'a> = &'a mut dyn FnMut(Supi) -> Result<Option<Subscription>, String>;

/// Index entry of an SM context.
#[derive(Debug)]
struct Entry {
    seid: Seid,
    supi: Supi,
    psi: u8,
    upf: SocketAddr,
    /// False once the session has ended.
    lives: bool,
    /// Time of the next deadline.
    due: Option<Instant>,
    /// Number of the UE record that contains it; `None` = it has its own record.
    record: Option<u64>,
    /// Key of the create request, for one that was recovered or may be requested again.
    made_by: Option<Box<str>>,
    /// Number of the last transfer that the AMF has answered.
    last_transfer: Option<u32>,
    /// Piggyback: last version sent to the AMF, as far as this SMF knows.
    sent_version: Version,
}

/// A transaction.
#[derive(Debug)]
struct Task {
    turn: SmEvent,
    kind: Transaction,
    /// Idempotency key and reply channel of the request.
    key: Option<String>,
    reply: Option<ReplyTo>,
    /// Deadline for the database; `None` = none.
    deadline: Option<Instant>,
    /// Shared record: its number, and the AMF part to commit.
    brought: Option<AmfCommitRequest>,
}

/// A request of an AMF without its content.
#[derive(Debug)]
struct RequestHead {
    /// Idempotency key of the request.
    key: Option<String>,
    reply: ReplyTo,
    /// Shared record: its number, and the AMF part to commit.
    brought: Option<AmfCommitRequest>,
}

/// Database operation in progress for a transaction.
#[derive(Debug)]
enum Running {
    Loading(Task),
    Committing(Box<Commit>),
    /// The commit met another version. The load shows whether that is this commit, whose answer was
    /// lost.
    Checking(Box<Commit>),
}

#[derive(Debug)]
struct Commit {
    task: Task,
    outcome: Outcome,
}

/// Transactions of an SM context, in order.
#[derive(Debug, Default)]
struct TransactionQueue {
    running: Option<Running>,
    /// The UE record as loaded.
    record: Option<StoredRecord>,
    behind: VecDeque<Task>,
}

/// Place of the SM contexts.
#[derive(Debug)]
enum SessionBackend {
    Memory(FxHashMap<Ltmsi, Box<Session>>),
    Database(Box<DatabaseBackend>),
    Shm(Box<shm::ShmSessions>),
}

/// State of database storage.
#[derive(Debug)]
struct DatabaseBackend {
    lanes: FxHashMap<Ltmsi, TransactionQueue>,
    jobs: VecDeque<DatabaseJob>,
    timeout: Duration,
    persist: StatePersist,
    codec: Codec,
    /// Format of UPF parts; only if UE records are shared.
    shares: Option<Format>,
    /// True if the AMF stores the SM contexts instead of a database.
    piggybacks: bool,
    /// SM contexts in memory, with the base of their next commit. Only with one commit per
    /// procedure, or with piggyback, whose version is their own.
    in_memory: FxHashMap<Ltmsi, (Box<Session>, RecordBase)>,
}

/// The SM contexts of an SMF.
#[derive(Debug)]
pub(super) struct Sessions {
    env: TransactionEnv,
    backend: SessionBackend,
    index: FxHashMap<Ltmsi, Entry>,
    by_ue: FxHashMap<(Supi, u8), Ltmsi>,
    due: BTreeSet<(Instant, Ltmsi)>,
    /// Requests that wait for the UPF.
    waiting: FxHashMap<Ltmsi, ReplyTo>,
    /// Requests that wait for the result of a transfer, with their response.
    held_replies: FxHashMap<Ltmsi, (ReplyTo, Reply)>,
    next: u32,
    lives: usize,
    actions: Vec<Action>,
}

impl Sessions {
    /// Creates an SMF without SM contexts.
    pub(super) fn new(config: CoreConfig, root: String, mut rng: StdRng, storage_kind: SessionStorage) -> Self {
        // A random start avoids the numbers of a previous SMF.
        let next = rng.next_u32();
        let stored = |persist, codec, timeout, (shares, piggybacks)| {
            let (lanes, jobs, in_memory) = (FxHashMap::default(), VecDeque::new(), FxHashMap::default());
            SessionBackend::Database(Box::new(DatabaseBackend {
                lanes,
                jobs,
                timeout,
                persist,
                codec,
                shares,
                piggybacks,
                in_memory,
            }))
        };
        let (backend, piggybacks) = match storage_kind {
            SessionStorage::Memory | SessionStorage::Shm => (SessionBackend::Memory(FxHashMap::default()), false),
            SessionStorage::Database(StorageConfig { persist, codec, scope, octets, timeout }) => {
                (stored(persist, codec, timeout, (scope.is_shared().then_some(octets), false)), false)
            }
            SessionStorage::Amf(timeout) => {
                (stored(StatePersist::Procedure, Codec::default(), timeout, (None, true)), true)
            }
        };
        let addresses = Addresses::new(&config);
        let with_upf =
            matches!(storage_kind, SessionStorage::Database(StorageConfig { scope, .. }) if scope.includes_upf());
        Sessions {
            env: TransactionEnv {
                config,
                root,
                addresses,
                rng,
                stored: storage_kind.is_persistent(),
                piggybacks,
                with_upf,
            },
            backend,
            index: FxHashMap::default(),
            by_ue: FxHashMap::default(),
            due: BTreeSet::new(),
            waiting: FxHashMap::default(),
            held_replies: FxHashMap::default(),
            next,
            lives: 0,
            actions: Vec::new(),
        }
    }

    /// Applies the reloadable part of the configuration.
    pub(super) fn reload(&mut self, reload: &Reload) {
        reload.update_dnns(&mut self.env.config);
    }

    /// Adds an SM context of a previous SMF and repeats its pending messages.
    pub(super) fn restore(&mut self, ltmsi: Ltmsi, session: &Session, now: Instant) {
        self.env.addresses.mark_in_use(&session.sm.terms.dnn, &session.sm.address);
        for leave in session.pending_messages(&self.env.root, now) {
            self.emit(ltmsi, session, leave);
        }
        self.enter(ltmsi, session, session.made_by().map(Into::into));
        // A random time spreads the renewal of all records.
        let renewed = now + Duration(u64::from(self.env.rng.next_u32()) % RENEWAL_INTERVAL.0);
        let due = vireo_core::smf::deadline(&session.sm).map_or(renewed, |due| due.min(renewed));
        self.schedule(ltmsi, Some(due));
    }

    /// Returns the number of SM contexts.
    pub(super) fn len(&self) -> usize {
        self.lives
    }

    /// Takes the pending actions, in order.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns the queue of database jobs. Their results go to [`Sessions::on_database_result`].
    pub(super) fn jobs(&mut self) -> Option<&mut VecDeque<DatabaseJob>> {
        match &mut self.backend {
            SessionBackend::Memory(_) | SessionBackend::Shm(_) => None,
            SessionBackend::Database(stored) => Some(&mut stored.jobs),
        }
    }

    /// Returns the time of the next call of [`Sessions::on_time`].
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.next_shm_timer()).min()
    }

    /// Handles a request of an AMF.
    pub(super) fn call(&mut self, call: IncomingRequest, now: Instant, subscription: Lookup<'_>) {
        let IncomingRequest { path, message, key, repeated, reply } = call;
        let brought = match self.brought(&message) {
            Ok(brought) => brought,
            Err(problem) => return self.actions.push(Action::Reply(reply, Reply::problem(&problem))),
        };
        if let Some(seid) = wire::unreached(&path) {
            return match self.find(seid, &message, now) {
                Ok(Some(ltmsi)) => {
                    let request = RequestHead { key, reply, brought };
                    self.enqueue_request(ltmsi, SmEvent::Unreached, Transaction::Transfer, request, now);
                }
                Ok(None) => self.actions.push(Action::Reply(reply, Reply::done())),
                Err(answer) => self.actions.push(Action::Reply(reply, answer)),
            };
        }
        match smf::resource(&path) {
            Some(Resource::All) => {
                let request = RequestHead { key, reply, brought };
                if let Err((reply, answer)) = self.create(&message, repeated, request, now, subscription) {
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
                    (Some(seid), Err(_)) => Ok(self.ltmsi_of(seid)),
                    (None, _) => Ok(None),
                };
                let answer = match (found, asked) {
                    (Ok(Some(ltmsi)), Ok(turn)) => {
                        let kind = match operation {
                            Operation::Modify => Transaction::UpdateSmContext,
                            Operation::Release => Transaction::ReleaseSmContext,
                        };
                        return self.enqueue_request(ltmsi, turn, kind, RequestHead { key, reply, brought }, now);
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

    fn ltmsi_of(&self, seid: Seid) -> Option<Ltmsi> {
        let ltmsi = seid.ltmsi();
        self.index.get(&ltmsi).filter(|entry| entry.seid == seid).map(|_| ltmsi)
    }

    /// Handles a PFCP message. Returns true if the session exists at that UPF.
    pub(super) fn pfcp(&mut self, (upf, seid): (SocketAddr, Seid), message: &[u8], now: Instant) -> bool {
        let Some(ltmsi) = self.ltmsi_of(seid).or_else(|| self.ltmsi_of_unknown(seid, message)) else { return false };
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

    /// Handles a missing response of a UPF.
    pub(super) fn pfcp_timeout(&mut self, seid: Seid, now: Instant) {
        if let Some(ltmsi) = self.ltmsi_of(seid) {
            self.enqueue(ltmsi, SmEvent::PfcpTimeout, Transaction::Other, now);
        }
    }

    /// Handles a UPF that has lost its sessions.
    pub(super) fn on_upf_loss(&mut self, upf: SocketAddr, now: Instant) {
        let there: Vec<_> = self.index.iter().filter(|(_, entry)| entry.upf == upf).map(|(ltmsi, _)| *ltmsi).collect();
        for ltmsi in there {
            self.enqueue(ltmsi, SmEvent::UpfLost, Transaction::Other, now);
        }
    }

    /// Handles the result of a transfer.
    pub(super) fn on_transfer_result(&mut self, of: TransferName, result: N1N2TransferResult, now: Instant) {
        let TransferName { seid, number, calls } = of;
        let Some(ltmsi) = self.ltmsi_of(seid) else { return };
        if let Some(entry) = self.index.get_mut(&ltmsi) {
            entry.last_transfer = Some(number);
        }
        self.release_reply(ltmsi);
        // A success changes nothing but the pending messages, which are stored with the next
        // transaction.
        if calls || !matches!(result, N1N2TransferResult::Initiated | N1N2TransferResult::Attempting) {
            self.enqueue(ltmsi, SmEvent::Transferred(result), Transaction::Transfer, now);
        }
    }

    /// Handles the AMF's acknowledgement of a session's end, or a failed notification.
    pub(super) fn on_notification_answer(&mut self, seid: Seid, now: Instant) {
        if let Some(ltmsi) = self.ltmsi_of(seid) {
            self.enqueue(ltmsi, SmEvent::Notified, Transaction::Other, now);
        }
    }

    /// Handles expired deadlines.
    pub(super) fn on_time(&mut self, now: Instant) {
        while let Some((at, ltmsi)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, ltmsi));
            if let Some(entry) = self.index.get_mut(&ltmsi) {
                entry.due = None;
            }
            self.enqueue(ltmsi, SmEvent::Deadline, Transaction::Other, now);
        }
        self.on_shm_timer(now);
    }

    /// Enqueues a transaction of a request.
    fn enqueue_request(&mut self, ltmsi: Ltmsi, turn: SmEvent, kind: Transaction, request: RequestHead, now: Instant) {
        let RequestHead { key, reply, brought } = request;
        let deadline =
            if let SessionBackend::Database(stored) = &self.backend { Some(now + stored.timeout) } else { None };
        self.begin_or_wait(ltmsi, Task { turn, kind, key, reply: Some(reply), deadline, brought }, now);
    }

    /// Enqueues a transaction without a request.
    fn enqueue(&mut self, ltmsi: Ltmsi, turn: SmEvent, kind: Transaction, now: Instant) {
        self.begin_or_wait(ltmsi, Task { turn, kind, key: None, reply: None, deadline: None, brought: None }, now);
    }

    fn begin_or_wait(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        if let SessionBackend::Database(stored) = &mut self.backend
            && let Some(lane) = stored.lanes.get_mut(&ltmsi)
        {
            if lane.behind.len() < MAX_QUEUED_TRANSACTIONS {
                return lane.behind.push_back(task);
            }
            tracing::warn!("too many requests wait for an SM context; check the latency of state.database");
            let problem = ProblemDetails::new(503, "NF_CONGESTION", "too much waits for this SM context");
            return self.actions.extend(task.reply.map(|reply| Action::Reply(reply, Reply::problem(&problem))));
        }
        if let Some(task) = self.queue_behind_retry(ltmsi, task) {
            self.begin(ltmsi, task, now);
        }
    }

    fn begin(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        let shared = self.record_of(ltmsi, &task).is_some();
        match &mut self.backend {
            SessionBackend::Memory(sessions) => {
                let session = sessions.remove(&ltmsi);
                self.carry_out(ltmsi, task, session, RecordBase::default(), now);
            }
            SessionBackend::Shm(here) => {
                let (session, known) = here.take(ltmsi);
                self.carry_out(ltmsi, task, session, known, now);
            }
            SessionBackend::Database(stored) => match (stored.in_memory.remove(&ltmsi), &task.turn) {
                (Some((session, known)), _) => self.carry_out(ltmsi, task, Some(session), known, now),
                (None, SmEvent::Create(_)) if !shared => self.carry_out(ltmsi, task, None, RecordBase::default(), now),
                (None, _) if stored.piggybacks => self.fetch(ltmsi, task, now),
                (None, _) => self.put(ltmsi, DatabaseOperation::Load, Running::Loading(task)),
            },
        }
    }

    /// Enqueues a database job.
    fn put(&mut self, ltmsi: Ltmsi, operation: DatabaseOperation, running: Running) {
        let task = match &running {
            Running::Loading(task) => task,
            Running::Committing(commit) | Running::Checking(commit) => &commit.task,
        };
        let of = storage::name(ltmsi);
        let name = self.record_of(ltmsi, task).map_or(of, vireo_ops::shared_record::name);
        let SessionBackend::Database(stored) = &mut self.backend else { return };
        // Without a deadline: the result of a commit must be known, and the commit of a whole
        // procedure is not abandoned.
        let patient = matches!(running, Running::Checking(_)) || stored.persist == StatePersist::Procedure;
        let deadline = if patient && !matches!(operation, DatabaseOperation::Load) { None } else { task.deadline };
        stored.jobs.push_back(DatabaseJob { name, requester_name: of, operation, kind: task.kind, deadline });
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
        if let (Some(session), Some(number)) =
            (&mut session, self.index.get(&ltmsi).and_then(|entry| entry.last_transfer))
        {
            session.acknowledge_transfers(number);
        }
        let outcome = session::carry_out(session, &task.turn, (ltmsi, task.key.as_deref()), now, &mut self.env);
        let goes_on = outcome.session.as_ref().is_some_and(|session| !session.rests());
        if let Some(there) = self.loaded_record(ltmsi) {
            return self.commit_part(ltmsi, task, outcome, there, now);
        }
        let codec = match &self.backend {
            SessionBackend::Memory(_) => return self.complete(ltmsi, task, outcome, None, now),
            SessionBackend::Shm(_) => return self.commit_to_shm(ltmsi, task, outcome, known, now),
            SessionBackend::Database(stored) if stored.piggybacks => {
                let mut known = known;
                known.version = known.version.saturating_add(outcome.changed.into());
                return self.complete(ltmsi, task, outcome, Some(known), now);
            }
            SessionBackend::Database(stored) if stored.persist == StatePersist::Procedure && goes_on => {
                return self.complete(ltmsi, task, outcome, Some(known), now);
            }
            // There is nothing to store or to remove.
            SessionBackend::Database(_) if !outcome.changed || outcome.session.is_none() && known.version == 0 => {
                return self.complete(ltmsi, task, outcome, None, now);
            }
            SessionBackend::Database(stored) => stored.codec,
        };
        let operation = match outcome.session.as_ref().map(|session| codec.encode(&known, session)) {
            Some(Ok(value)) => DatabaseOperation::Put { known, value },
            None => DatabaseOperation::Remove { expected: known.version },
            Some(Err(error)) => {
                tracing::error!(%error, "bug: SM context does not encode");
                return self.abandon(ltmsi, task, Some(outcome), now);
            }
        };
        self.put(ltmsi, operation, Running::Committing(Box::new(Commit { task, outcome })));
    }

    /// Handles the result of a database job.
    pub(super) fn on_database_result(&mut self, ltmsi: Ltmsi, done: OperationResult, now: Instant) {
        let SessionBackend::Database(stored) = &mut self.backend else { return };
        let Some(running) = stored.lanes.get_mut(&ltmsi).and_then(|lane| lane.running.take()) else { return };
        match (running, done) {
            (Running::Loading(task), OperationResult::Loaded(Ok(found))) => self.on_loaded(ltmsi, task, found, now),
            (Running::Loading(task), OperationResult::Loaded(Err(error))) => {
                tracing::warn!(%error, "transaction not executed");
                self.abandon(ltmsi, task, None, now);
            }
            (Running::Committing(commit), OperationResult::Changed(Ok(_))) => {
                let Commit { task, outcome, .. } = *commit;
                self.complete(ltmsi, task, outcome, None, now);
            }
            (Running::Committing(commit), OperationResult::Changed(Err(RecordError::Conflict))) => {
                self.put(ltmsi, DatabaseOperation::Load, Running::Checking(commit));
            }
            (
                Running::Committing(commit) | Running::Checking(commit),
                OperationResult::Changed(Err(error)) | OperationResult::Loaded(Err(error)),
            ) => {
                tracing::warn!(%error, "transaction not committed");
                let Commit { task, outcome, .. } = *commit;
                self.void(ltmsi, task, outcome, &error, now);
            }
            (Running::Checking(commit), OperationResult::Loaded(Ok(found))) => {
                self.on_conflict_loaded(ltmsi, *commit, found, now)
            }
            (running, done) => tracing::error!(?running, ?done, "bug: response to another request"),
        }
    }

    fn on_loaded(&mut self, ltmsi: Ltmsi, task: Task, found: Option<StoredRecord>, now: Instant) {
        if self.record_of(ltmsi, &task).is_some() {
            return self.loaded_part(ltmsi, task, found, now);
        }
        let Some(found) = found else {
            if let SmEvent::Create(_) = task.turn {
                return self.carry_out(ltmsi, task, None, RecordBase::default(), now);
            }
            // The record was removed meanwhile.
            self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::unknown())));
            self.forget(ltmsi);
            return self.next(ltmsi, now);
        };
        match self.decoded(found) {
            Some((session, known)) if self.piggybacks() => self.on_fetched(ltmsi, task, session, known, now),
            Some((session, known)) => self.carry_out(ltmsi, task, Some(session), known, now),
            None => {
                tracing::error!("record is no SM context of this release; check state.key");
                self.abandon(ltmsi, task, None, now);
            }
        }
    }

    /// Decodes the SM context of a record.
    fn decoded(&self, found: StoredRecord) -> Option<(Box<Session>, RecordBase)> {
        let SessionBackend::Database(stored) = &self.backend else { return None };
        Session::decode_stored(stored.codec, found)
    }

    /// Handles the record loaded after a commit conflict.
    fn on_conflict_loaded(&mut self, ltmsi: Ltmsi, commit: Commit, found: Option<StoredRecord>, now: Instant) {
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
            return self.complete(ltmsi, task, outcome, None, now);
        }
        // Another commit is stored: this transaction runs again on it.
        if let SmEvent::Create(_) = task.turn {
            // Another SM context has the number: use the next free one.
            self.release(&mut outcome);
            self.next(ltmsi, now);
            return match self.free_number() {
                Some(number) => self.begin_or_wait(number, task, now),
                None => self.abandon(ltmsi, task, None, now),
            };
        }
        self.on_loaded(ltmsi, task, found, now);
    }

    /// Frees the addresses of an SM context that is not created.
    fn release(&mut self, outcome: &mut Outcome) {
        if let Some(session) = outcome.session.take() {
            self.env.addresses.release(&session.sm.terms.dnn, &session.sm.address);
        }
    }

    /// Abandons a transaction without effect because the database has not answered.
    fn abandon(&mut self, ltmsi: Ltmsi, task: Task, outcome: Option<Outcome>, now: Instant) {
        if let (SmEvent::Create(_), Some(mut outcome)) = (&task.turn, outcome) {
            self.release(&mut outcome);
        }
        self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::no_database())));
        self.next(ltmsi, now);
    }

    /// Abandons a transaction whose commit was refused.
    fn void(&mut self, ltmsi: Ltmsi, mut task: Task, outcome: Outcome, error: &RecordError, now: Instant) {
        let answer = wire::not_stored(error, matches!(task.turn, SmEvent::Create(_)));
        self.actions.extend(task.reply.take().map(|reply| Action::Reply(reply, answer)));
        self.abandon(ltmsi, task, Some(outcome), now);
    }

    /// Completes a transaction: executes its effects. `later` = base of the later commit, if it is
    /// not committed yet.
    fn complete(&mut self, ltmsi: Ltmsi, task: Task, mut outcome: Outcome, later: Option<RecordBase>, now: Instant) {
        let given = later.as_ref().map(|known| known.version);
        let given = given.filter(|version| self.add_piggyback(ltmsi, &mut outcome, *version, task.reply.is_some()));
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
                let made_by = session
                    .made_by()
                    .filter(|_| session.record().is_some() || session.is_implied() && !session.is_piggybacked());
                self.enter(ltmsi, session, made_by.map(Into::into));
            }
            for leave in leaves {
                self.emit(ltmsi, session, leave);
            }
        } else {
            self.emit_last(ltmsi, leaves);
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
                    self.update_index(ltmsi, &session, now);
                }
                if let (Some(version), Some(entry)) = (given, self.index.get_mut(&ltmsi)) {
                    entry.sent_version = version;
                }
                let later = later
                    .filter(|known| !self.piggybacks() || self.must_stay_in_memory(ltmsi, &session, known.version));
                match (&mut self.backend, later) {
                    (SessionBackend::Memory(sessions), _) => drop(sessions.insert(ltmsi, session)),
                    (SessionBackend::Shm(here), later) => {
                        here.insert(ltmsi, session, later.map_or(0, |known| known.version))
                    }
                    (SessionBackend::Database(stored), Some(known)) => {
                        drop(stored.in_memory.insert(ltmsi, (session, known)))
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

    fn emit(&mut self, ltmsi: Ltmsi, session: &Session, leave: OutgoingMessage) {
        self.emit_as(ltmsi, (session.sm.pfcp.cp_seid, session.supi), Some(session.status_uri()), leave);
    }

    /// Executes the effects of a removed SM context.
    fn emit_last(&mut self, ltmsi: Ltmsi, leaves: Vec<OutgoingMessage>) {
        let Some(of) = self.index.get(&ltmsi).map(|entry| (entry.seid, entry.supi)) else { return };
        leaves.into_iter().for_each(|leave| self.emit_as(ltmsi, of, None, leave));
    }

    fn emit_as(&mut self, ltmsi: Ltmsi, (seid, supi): (Seid, Supi), amf: Option<&str>, leave: OutgoingMessage) {
        debug_assert_eq!(seid.ltmsi(), ltmsi);
        self.actions.push(match leave {
            OutgoingMessage::Pfcp { upf, key, message } => Action::Pfcp { upf, key, seid, message },
            OutgoingMessage::Transfer { number, calls, message } => {
                let of = TransferName { seid, number, calls };
                Action::Transfer { of, supi, amf: amf.map(str::to_owned), message }
            }
            OutgoingMessage::Notify { uri, message } => Action::Notify { seid, uri, message },
            OutgoingMessage::Free(dnn, address) => return self.env.addresses.release(&dnn, &address),
        });
    }

    /// Adds an SM context to the index.
    fn enter(&mut self, ltmsi: Ltmsi, session: &Session, made_by: Option<Box<str>>) {
        let Session { sm, supi, .. } = session;
        let (seid, psi, upf, lives) = (sm.pfcp.cp_seid, sm.psi, sm.pfcp.upf, !session.has_ended());
        let (supi, record) = (*supi, session.record());
        let entry =
            Entry { seid, supi, psi, upf, lives, due: None, record, made_by, last_transfer: None, sent_version: 0 };
        self.index.insert(ltmsi, entry);
        self.lives += usize::from(lives);
        if lives {
            self.by_ue.insert((supi, psi), ltmsi);
        }
    }

    /// Updates index and deadline of an SM context.
    fn update_index(&mut self, ltmsi: Ltmsi, session: &Session, now: Instant) {
        let Some(entry) = self.index.get_mut(&ltmsi) else { return };
        entry.upf = session.sm.pfcp.upf;
        if entry.lives && session.has_ended() {
            entry.lives = false;
            self.lives -= 1;
            let ue = (entry.supi, entry.psi);
            if self.by_ue.get(&ue) == Some(&ltmsi) {
                self.by_ue.remove(&ue);
            }
        }
        let renewed = match &self.backend {
            SessionBackend::Memory(_) => None,
            SessionBackend::Database(stored) if stored.piggybacks => None,
            SessionBackend::Database(_) | SessionBackend::Shm(_) => Some(now + RENEWAL_INTERVAL),
        };
        let due = vireo_core::smf::deadline(&session.sm).into_iter().chain(renewed).min();
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

    /// Removes an SM context from the index.
    fn forget(&mut self, ltmsi: Ltmsi) {
        // No later transaction can answer a request that waits for it.
        self.answer(ltmsi, wire::unknown());
        self.release_reply(ltmsi);
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

    /// Starts the next queued transaction of an SM context.
    fn next(&mut self, ltmsi: Ltmsi, now: Instant) {
        let SessionBackend::Database(stored) = &mut self.backend else { return };
        let Some(lane) = stored.lanes.get_mut(&ltmsi) else { return };
        match lane.behind.pop_front() {
            Some(task) => self.begin(ltmsi, task, now),
            None => drop(stored.lanes.remove(&ltmsi)),
        }
    }
}

#[cfg(test)]
mod tests;
