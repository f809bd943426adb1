//! PFCP transactions of a UPF whose sessions are stored in records.
//!
//! Each PFCP transaction of a session loads the record, executes the request, and commits the
//! result before the response leaves. Transactions of other sessions run meanwhile. Reports that
//! packets or timers trigger follow the same rule: a report leaves after the commit of its session.
//! So no later incarnation uses its number (UR-SEQN) again. A restarted UPF has all its sessions,
//! and its control planes see the same UPF.
//!
//! Packets write nothing to the store. Usage since a session's last transaction or report is lost
//! with the UPF. Too little traffic is then reported, never anything twice, and as much of a quota
//! may be used again. Buffered packets are lost too.
//!
//! If control planes share the records of UEs with the UPF (`state.scope`), a session is a part of
//! its UE's record ([`shared`]). The request names the part, the response carries the resulting
//! session, and the SMF commits it.
//!
//! With write-behind (`state.write = "non-blocking"`) responses leave at once, and only the next
//! transaction of the session waits for the write. Unwritten changes are lost with the UPF. The
//! control plane then finds that the session does not exist, or has its earlier state. The node's
//! record is always written first.
//!
//! In shared memory the UPF is the only writer: a transaction loads nothing, and its commit is
//! written at once. If there is no room, a new session is removed and rejected, and a modification
//! is rejected before packets use it. Changes without a request are retried until there is room;
//! meanwhile requests about the session come first.
//!
//! This Rust module contains the transactions and their order, without clock, thread or socket;
//! `backend` has these.

mod backend;
mod shared;

#[cfg(test)]
pub(crate) use backend::in_memory;
pub(crate) use backend::{OpenedStore, PersistenceBackend, begin};
pub(crate) use shared::SharedRecordConfig;

use crate::machine::exchange::{Answered, Outgoing};
use crate::machine::session::{FoundSession, Session};
use crate::machine::settings::Timestamps;
use crate::machine::tables_access::TablesAccess;
use crate::machine::{DirtyState, StoredNode, Upf, Written};
use rustc_hash::{FxHashMap, FxHashSet};
use shared::PartLocations;
use std::collections::VecDeque;
use std::net::SocketAddr;
use tracing::{debug, error, warn};
use vireo_ops::database::{DatabaseError, DatabaseJob, DatabaseOperation, OperationResult, read_all};
use vireo_ops::metrics::Transaction;
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Encoded, LIFE, Name, RecordBase, RecordError, RecordStore, StoredRecord};
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{Cause, Message, MessageType};

/// Collection of sessions; the ID is the SEID.
const COLLECTION: &str = "upf";
/// Record of the UPF's identity and associations.
const NODE: Name = Name { collection: "upf-node", id: 0 };
/// Maximum number of queued tasks for one session.
const MAX_QUEUED_TASKS: usize = 32;
/// Maximum number of unanswered requests of all control planes.
const REQUESTS: usize = if cfg!(test) { 1_024 } else { 65_536 };
/// Time limit to load the record for a request: less than a control plane retransmits.
const LOAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of attempts to start an incarnation while others write the record.
const ATTEMPTS: usize = 8;
/// Period in seconds in which each record is committed again, so that it does not expire.
const RENEWAL_INTERVAL_S: usize = LIFE.as_secs() as usize / 3;

fn name(seid: u64) -> Name {
    Name { collection: COLLECTION, id: seid }
}

/// The state that a transaction changes, and its output queue.
pub(crate) struct TransactionContext<'a, P: TablesAccess> {
    pub(crate) upf: &'a mut Upf,
    pub(crate) now: Timestamps,
    pub(crate) plane: &'a mut P,
    pub(crate) out: &'a mut Outgoing,
}

/// A request about a session.
#[derive(Debug)]
struct Request {
    from: SocketAddr,
    sequence: u32,
    datagram: Vec<u8>,
    kind: Transaction,
    deadline: Instant,
    /// True if the control plane commits the result.
    shared: bool,
}

/// A task that needs a transaction.
#[derive(Debug)]
enum Task {
    Request(Box<Request>),
    /// A change without a request; the tickets wait for its commit.
    Changed(Vec<u64>),
}

/// Parameters and value of a commit.
#[derive(Debug)]
struct Commit {
    kind: Transaction,
    /// `None`: the session has been removed.
    value: Option<Encoded>,
    /// Version that the commit replaces.
    expected: Version,
    answered: Option<Answered>,
    tickets: Vec<u64>,
}

impl Commit {
    fn new(kind: Transaction, answered: Option<Answered>, tickets: Vec<u64>) -> Self {
        Commit { kind, value: None, expected: 0, answered, tickets }
    }
}

/// Operation in progress at the database.
#[derive(Debug)]
enum Running {
    Loading(Task),
    Committing(Commit),
    /// The commit found another version. The load shows whether it is this commit, whose
    /// confirmation was lost.
    Checking(Commit),
}

/// The transactions of a record, in order.
#[derive(Debug, Default)]
struct Lane {
    running: Option<Running>,
    /// The loaded record, if it is shared.
    record: StoredRecord,
    behind: VecDeque<Task>,
}

/// A request with the loaded record of its session.
struct LoadedRequest<'a> {
    name: Name,
    known: RecordBase,
    request: &'a Request,
}

/// Messages that leave when the remaining commits are done.
#[derive(Debug)]
struct CommitGroup {
    remaining: usize,
    out: Outgoing,
    request: Option<(SocketAddr, u32)>,
}

/// All transactions in progress.
#[derive(Debug, Default)]
pub(crate) struct PersistentUpf {
    lanes: FxHashMap<Name, Lane>,
    jobs: VecDeque<DatabaseJob>,
    tickets: FxHashMap<u64, CommitGroup>,
    next_ticket: u64,
    /// Requests in progress; repeats of them are dropped.
    requests: FxHashSet<(SocketAddr, u32)>,
    /// Sequence numbers of the UPF's requests that wait for a commit.
    held_back: FxHashSet<u32>,
    /// All sessions with records of their own, in the order of their last renewal.
    renewals: VecDeque<u64>,
    /// Sessions that are parts of their UEs' records.
    locations: PartLocations,
    /// With a sole writer: the versions of all sessions' records.
    versions: Option<FxHashMap<u64, Version>>,
    /// True with write-behind: responses do not wait for commits.
    writes_behind: bool,
    /// Encoding of sessions with records of their own.
    codec: Codec,
    /// True if the last new session was rejected for lack of room, which was logged.
    full: bool,
    /// Commits that found no room and must be retried.
    stalled: Vec<Name>,
}

/// Coordination of writes to the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriterMode {
    /// Another program may write to the records.
    #[default]
    Shared,
    /// The same, and responses do not wait for commits (write-behind).
    WriteBehind,
    /// The UPF is the only writer.
    Sole,
}

/// Stored state that a starting UPF finds.
#[derive(Debug)]
pub(crate) struct PreviousState {
    node: StoredNode,
    sessions: Vec<Written>,
    /// Sessions that are parts of their UEs' records.
    locations: PartLocations,
    /// Versions of the sessions' records.
    versions: Vec<(u64, Version)>,
}

/// Loads the stored state, and starts the next incarnation. Returns `None` if there was no UPF
/// before.
///
/// # Errors
///
/// Returns an error if the database does not respond, or if a record has another format.
pub(crate) fn load_previous(
    records: &mut dyn RecordStore,
    codec: Codec,
    sharing: Option<&SharedRecordConfig>,
    ntp: u32,
) -> Result<Option<PreviousState>, DatabaseError> {
    let Some(node) = records.load(&[NODE])?.pop().flatten() else { return Ok(None) };
    let node = begin_life(records, node)?;
    let (mut sessions, mut versions) = (Vec::new(), Vec::new());
    read_all(records, COLLECTION, |seid, found| {
        let found = Session::decode_stored(codec, found, ntp).ok_or(DatabaseError::UnknownFormat)?;
        let FoundSession { session, answered, known } = found;
        sessions.push((seid, session, answered));
        versions.push((seid, known.version));
        Ok(())
    })?;
    let mut locations = PartLocations::new(sharing.cloned());
    if sharing.is_some() {
        read_all(records, vireo_ops::shared_record::COLLECTION, |id, found| {
            sessions.extend(locations.load_sessions(id, &found, ntp));
            Ok(())
        })?;
    }
    Ok(Some(PreviousState { node, sessions, locations, versions }))
}

/// Returns the node of the next incarnation, after its record has been written.
fn begin_life(records: &mut dyn RecordStore, mut found: StoredRecord) -> Result<StoredNode, DatabaseError> {
    for _ in 0..ATTEMPTS {
        let node = StoredNode::decode(&found.octets).ok_or(DatabaseError::UnknownFormat)?.after_restart();
        let octets = node.encode().ok_or(DatabaseError::UnknownFormat)?;
        let change = Change::Commit { expected: found.version, octets: &octets };
        match records.change(&[(NODE, change)]).remove(0) {
            Ok(_) => return Ok(node),
            // The previous incarnation has just written the record, or the confirmation was lost:
            // this incarnation then skips a number.
            Err(RecordError::Conflict | RecordError::OutcomeUnknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
        found = records.load(&[NODE])?.pop().flatten().ok_or(DatabaseError::UnknownFormat)?;
    }
    Err(RecordError::Conflict.into())
}

impl PersistentUpf {
    /// Creates an instance without transactions. With `sharing`, control planes may commit the
    /// results of their requests.
    pub(crate) fn new(mode: WriterMode, codec: Codec, sharing: Option<SharedRecordConfig>) -> Self {
        let locations = PartLocations::new(sharing);
        let versions = (mode == WriterMode::Sole).then(FxHashMap::default);
        let writes_behind = mode == WriterMode::WriteBehind;
        PersistentUpf { locations, versions, writes_behind, codec, ..PersistentUpf::default() }
    }

    /// Starts a new UPF, or restores the state of the previous one.
    pub(crate) fn begin<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, before: Option<PreviousState>) {
        on.upf.note_changes();
        let ntp = on.now.ntp;
        if let Some(PreviousState { node, sessions, locations, versions }) = before {
            self.versions.iter_mut().for_each(|known| known.extend(versions.iter().copied()));
            // Sessions in shared records are renewed by the control planes.
            let own = sessions.iter().map(|(seid, ..)| *seid).filter(|seid| !locations.contains(*seid));
            self.renewals.extend(own);
            self.locations = locations;
            on.upf.resume(node, sessions, on.now, on.plane);
            self.commit_changes(on, None, Outgoing::new());
        } else {
            on.upf.begin(on.plane);
            self.begin_or_wait(on, NODE, Task::Changed(Vec::new()));
        }
        self.locations.begin(ntp);
        on.plane.change(|tables, _| tables.end_restoration());
    }

    /// Processes a datagram from N4.
    pub(crate) fn receive<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        from: SocketAddr,
        datagram: &[u8],
    ) {
        let read = |message: Message<'_>| Some((kind(message.message_type())?, message.seid(), message.sequence()));
        let asked = Message::new(datagram).ok().and_then(read).filter(|_| on.upf.is_known(from));
        // A request that will be refused for its sender must not delay the owner's requests.
        let asked = asked.filter(|(kind, seid, _)| {
            *kind == Transaction::PfcpEstablishment || !on.upf.is_session_of_others(from, *seid)
        });
        let Some((kind, seid, sequence)) = asked else {
            return self.act(on, |upf, now, plane, out| upf.receive(from, datagram, now, plane, out));
        };
        if self.requests.contains(&(from, sequence)) {
            return;
        }
        let location = self.locations.assigned_by(datagram);
        if on.upf.has_answered(from, sequence, datagram, on.now) {
            let mut out = Outgoing::new();
            on.upf.receive(from, datagram, on.now, on.plane, &mut out);
            if location.is_some() {
                self.locations.attach(on.upf, (from, sequence), seid, &mut out);
            }
            return on.out.append(&mut out);
        }
        if self.requests.len() >= REQUESTS {
            return on.upf.refuse(from, datagram, Cause::CONGESTION, on.out);
        }
        let seid = if kind == Transaction::PfcpEstablishment { self.reserve(on) } else { seid };
        let name = name(seid);
        if let Some(location) = location {
            self.locations.set_location(seid, location, kind == Transaction::PfcpEstablishment);
        }
        let deadline = on.now.instant + LOAD_TIMEOUT;
        self.requests.insert((from, sequence));
        let (datagram, shared) = (datagram.to_vec(), location.is_some());
        let request = Request { from, sequence, datagram, kind, deadline, shared };
        let waits = self.lanes.contains_key(&name) && !self.defer_stalled(name);
        if let Some(versions) = self.versions.as_ref().filter(|_| !waits) {
            let version = versions.get(&name.id).copied().unwrap_or(0);
            return self.carry_out(on, name, RecordBase::at(version), &request);
        }
        self.begin_or_wait(on, name, Task::Request(Box::new(request)));
    }

    /// Returns a SEID that no known record has.
    fn reserve<P: TablesAccess>(&self, on: &mut TransactionContext<'_, P>) -> u64 {
        loop {
            let seid = on.upf.reserve();
            if self.versions.as_ref().is_none_or(|versions| !versions.contains_key(&seid)) {
                return seid;
            }
        }
    }

    /// Runs an action without a request. Its messages leave when its changes are committed.
    pub(crate) fn act<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        act: impl FnOnce(&mut Upf, Timestamps, &mut P, &mut Outgoing),
    ) {
        let mut out = Outgoing::new();
        act(on.upf, on.now, on.plane, &mut out);
        self.commit_changes(on, None, out);
    }

    /// Retransmits unanswered requests ([`Upf::tick`]), except those that wait for a commit.
    pub(crate) fn tick<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        let mut out = Outgoing::new();
        on.upf.tick(on.now, &mut out);
        out.retain(|(_, datagram)| own_request(datagram).is_none_or(|sequence| !self.held_back.contains(&sequence)));
        on.out.append(&mut out);
    }

    /// Commits a share of the records again. Must be called once a second.
    pub(crate) fn renew<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        for _ in 0..self.renewals.len().div_ceil(RENEWAL_INTERVAL_S) {
            let Some(seid) = self.renewals.pop_front() else { break };
            if on.upf.sessions.contains_key(&seid) {
                self.renewals.push_back(seid);
                self.begin_or_wait(on, name(seid), Task::Changed(Vec::new()));
            }
        }
    }

    /// Retries the commits that found no room. Must be called once a second.
    pub(crate) fn retry_stalled<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        let stalled = std::mem::take(&mut self.stalled);
        if !stalled.is_empty() {
            warn!(commits = stalled.len(), "the records of sessions have no room: see state.database");
        }
        for name in stalled {
            if let Some(Running::Committing(commit)) = self.lanes.get_mut(&name).and_then(|lane| lane.running.take()) {
                self.commit(on, name, RecordBase::at(commit.expected), commit);
            }
        }
    }

    /// Moves a commit that found no room behind a request about the same record. The request may
    /// free room, and is answered in any case. Returns true if there was such a commit.
    fn defer_stalled(&mut self, name: Name) -> bool {
        let Some(at) = self.stalled.iter().position(|other| *other == name) else { return false };
        self.stalled.swap_remove(at);
        if let Some(lane) = self.lanes.get_mut(&name)
            && let Some(Running::Committing(commit)) = lane.running.take()
        {
            lane.behind.push_front(Task::Changed(commit.tickets));
        }
        true
    }

    /// Returns the queue of database jobs.
    pub(crate) fn jobs(&mut self) -> &mut VecDeque<DatabaseJob> {
        &mut self.jobs
    }

    fn begin_or_wait<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, name: Name, task: Task) {
        let Some(lane) = self.lanes.get_mut(&name) else { return self.load(name, task) };
        match task {
            Task::Changed(more) => {
                // A queued commit that has not started includes this change.
                if let Some(Task::Changed(tickets)) = lane.behind.back_mut() {
                    tickets.extend(more);
                } else if let (Some(Running::Loading(Task::Changed(tickets))), true) =
                    (&mut lane.running, lane.behind.is_empty())
                {
                    tickets.extend(more);
                } else {
                    lane.behind.push_back(Task::Changed(more));
                }
            }
            Task::Request(request) if lane.behind.len() >= MAX_QUEUED_TASKS => {
                debug!("too many requests wait for a session; see the latency of state.database");
                self.refuse(on, &request, Cause::CONGESTION);
            }
            request => lane.behind.push_back(request),
        }
    }

    fn load(&mut self, name: Name, task: Task) {
        let (kind, deadline) = match &task {
            Task::Request(request) => (request.kind, Some(request.deadline)),
            Task::Changed(_) => (Transaction::Other, None),
        };
        self.jobs.push_back(DatabaseJob {
            name: self.locations.record(name),
            requester_name: name,
            operation: DatabaseOperation::Load,
            kind,
            deadline,
        });
        self.lanes.entry(name).or_default().running = Some(Running::Loading(task));
    }

    /// Handles a result of the database.
    pub(crate) fn on_result<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        done: OperationResult,
    ) {
        if let (vireo_ops::shared_record::COLLECTION, OperationResult::Loaded(Ok(Some(found)))) =
            (name.collection, &done)
        {
            return self.late(on, name.id, found);
        }
        let Some(running) = self.lanes.get_mut(&name).and_then(|lane| lane.running.take()) else { return };
        match (running, done) {
            (Running::Loading(task), OperationResult::Loaded(Ok(found))) => self.on_loaded(on, name, task, found),
            (Running::Committing(commit), OperationResult::Changed(Ok(version))) => {
                self.full &= commit.kind != Transaction::PfcpEstablishment;
                if let Some(versions) = self.versions.as_mut().filter(|_| name.collection == COLLECTION) {
                    match version {
                        0 => versions.remove(&name.id),
                        _ => versions.insert(name.id, version),
                    };
                }
                self.finish_commit(on, name, commit);
            }
            (Running::Committing(commit), OperationResult::Changed(Err(RecordError::Conflict))) => {
                let (operation, kind) = (DatabaseOperation::Load, commit.kind);
                self.jobs.push_back(DatabaseJob {
                    name: self.locations.record(name),
                    requester_name: name,
                    operation,
                    kind,
                    deadline: None,
                });
                self.lanes.entry(name).or_default().running = Some(Running::Checking(commit));
            }
            (Running::Committing(commit), OperationResult::Changed(Err(error)))
                if self.versions.is_some() && commit.kind == Transaction::PfcpEstablishment =>
            {
                self.take_back(on, name, commit, &error);
            }
            (Running::Committing(commit), OperationResult::Changed(Err(error)))
                if self.versions.is_some() && error.is_retryable() =>
            {
                self.lanes.entry(name).or_default().running = Some(Running::Committing(commit));
                self.stalled.push(name);
            }
            (Running::Checking(commit), OperationResult::Loaded(Ok(found))) => {
                self.on_reloaded(on, name, commit, found)
            }
            (Running::Loading(task), OperationResult::Loaded(Err(error)) | OperationResult::Changed(Err(error))) => {
                warn!(%error, "transaction not executed");
                self.abandon(on, name, task);
            }
            (Running::Committing(commit) | Running::Checking(commit), done) => {
                error!(?done, "bug: change not committed; no response sent");
                commit.tickets.iter().for_each(|ticket| drop(self.take_ticket(*ticket)));
                self.next(name);
            }
            (running, done) => error!(?running, ?done, "bug: response to another request"),
        }
    }

    fn on_loaded<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        task: Task,
        found: Option<StoredRecord>,
    ) {
        let mut known = RecordBase::at(found.as_ref().map_or(0, |found| found.version));
        let found = self.part_of(name, found);
        let new = matches!(&task, Task::Request(request) if request.kind == Transaction::PfcpEstablishment);
        if new && found.is_some() {
            // The record belongs to an incarnation whose clock was ahead: another SEID is used.
            let other = self::name(on.upf.reserve());
            self.locations.move_to(name.id, other.id);
            self.load(other, task);
            return self.next(name);
        }
        let mut answered = None;
        if let Some(found) = found.filter(|_| name.collection == COLLECTION) {
            let Some(FoundSession { session, answered: before, known: loaded }) = self.decoded(name, found, on.now.ntp)
            else {
                error!("record is no session of this release; check state.key");
                return self.abandon(on, name, task);
            };
            (known, answered) = (loaded, before.clone());
            // The session here may be later than the one that a control plane has committed.
            let holds = self.locations.contains(name.id) && on.upf.sessions.contains_key(&name.id);
            if let (Task::Request(_), false) = (&task, holds) {
                on.upf.adopt((name.id, session, before), on.now, on.plane);
            }
        }
        match task {
            Task::Changed(tickets) => {
                self.commit(on, name, known, Commit::new(Transaction::Other, answered, tickets));
            }
            Task::Request(request) => self.carry_out(on, name, known, &request),
        }
    }

    /// Decodes the session of a found record.
    fn decoded(&self, name: Name, found: StoredRecord, ntp: u32) -> Option<FoundSession> {
        // A part is binary in any format.
        let codec = if self.locations.contains(name.id) { Codec::default() } else { self.codec };
        Session::decode_stored(codec, found, ntp)
    }

    /// Executes a request based on the loaded record.
    fn carry_out<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        known: RecordBase,
        request: &Request,
    ) {
        let Request { from, kind, datagram, .. } = request;
        if *kind == Transaction::PfcpEstablishment {
            on.upf.set_next_seid(name.id);
            if !self.locations.contains(name.id) {
                self.renewals.push_back(name.id);
            }
        }
        let mut out = Outgoing::new();
        on.upf.receive(*from, datagram, on.now, on.plane, &mut out);
        self.commit_changes(on, Some(LoadedRequest { name, known, request }), out);
        self.forget_if_removed(on.upf, name);
    }

    /// Commits all changes; the messages leave afterwards. The session of the request comes first,
    /// because its record is loaded.
    fn commit_changes<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        own: Option<LoadedRequest<'_>>,
        mut out: Outgoing,
    ) {
        let DirtyState { mut sessions, node } = on.upf.take_changed();
        sessions.sort_unstable();
        sessions.dedup();
        let mut names: Vec<Name> = sessions.into_iter().map(name).collect();
        names.extend(node.then_some(NODE));
        let request = own.as_ref().map(|own| (own.request.from, own.request.sequence));
        if let Some(LoadedRequest { name: own, request: Request { from, sequence, shared: true, .. }, .. }) = &own {
            // The response carries the session of its request, and the receiver commits that.
            if names.contains(own) && self.locations.attach(on.upf, (*from, *sequence), own.id, &mut out) {
                names.retain(|name| name != own);
            }
        }
        let waits = !names.is_empty() && (node || !self.writes_behind);
        let tickets = if waits {
            vec![self.ticket(names.len(), out, request)]
        } else {
            on.out.append(&mut out);
            self.answers(request);
            Vec::new()
        };
        for changed in &names {
            match &own {
                Some(LoadedRequest { name, known, request }) if name == changed => {
                    let answered = on.upf.stored_response(request.from, request.sequence);
                    let commit = Commit::new(request.kind, answered, tickets.clone());
                    self.commit(on, *name, known.clone(), commit);
                }
                _ => self.begin_or_wait(on, *changed, Task::Changed(tickets.clone())),
            }
        }
        if let Some(own) = own.filter(|own| !names.contains(&own.name)) {
            self.next(own.name);
        }
    }

    /// Queues a commit of the present state.
    fn commit<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        known: RecordBase,
        mut commit: Commit,
    ) {
        let placed = name.collection == COLLECTION && self.locations.contains(name.id);
        let (version, answered) = (known.version, commit.answered.as_ref());
        let most = on.upf.settings.record_octets;
        let value = match name.collection {
            COLLECTION if placed => {
                on.upf.sessions.get(&name.id).map(|session| session.octets(answered).map(Encoded::Whole))
            }
            COLLECTION => {
                let session = on.upf.sessions.get(&name.id);
                session.map(|session| session.encode((self.codec, &known), answered, most).ok())
            }
            _ => Some(on.upf.encode_node().map(Encoded::Whole)),
        };
        commit.value = match value {
            Some(None) => {
                error!("bug: session does not encode");
                return self.finish_commit(on, name, commit);
            }
            // The session came and went between two transactions, or never existed. Or the UE's
            // record is gone with all its parts.
            _ if version == 0 && (placed || value.is_none()) => return self.finish_commit(on, name, commit),
            value => value.flatten(),
        };
        commit.expected = version;
        let operation = match &commit.value {
            value if placed => self.part(name, version, value.as_ref().map(whole)),
            Some(Encoded::Whole(octets)) => DatabaseOperation::Commit { expected: version, octets: octets.clone() },
            Some(value) => DatabaseOperation::Put { known, value: value.clone() },
            None => DatabaseOperation::Remove { expected: version },
        };
        let (record, kind) = (self.locations.record(name), commit.kind);
        let job = DatabaseJob { name: record, requester_name: name, operation, kind, deadline: None };
        match self.versions.is_some() && commit.kind == Transaction::PfcpModification {
            // No other commit takes the room that was found for the modification.
            true => self.jobs.push_front(job),
            false => self.jobs.push_back(job),
        }
        self.lanes.entry(name).or_default().running = Some(Running::Committing(commit));
    }

    /// Removes a new session that cannot be stored, and rejects its request.
    fn take_back<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        commit: Commit,
        error: &RecordError,
    ) {
        if !std::mem::replace(&mut self.full, true) {
            warn!(%error, "sessions are refused: the records have no room for more (see state.database, upf.max-sessions)");
        }
        for ticket in &commit.tickets {
            if let Some(CommitGroup { out, request: Some(request), .. }) = self.tickets.get_mut(ticket) {
                on.upf.take_back(name.id, *request, on.plane, out);
            }
        }
        // The session was never stored.
        on.upf.take_changed();
        self.finish_commit(on, name, commit);
    }

    /// Handles the load after a refused commit.
    fn on_reloaded<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        commit: Commit,
        found: Option<StoredRecord>,
    ) {
        let mut known = RecordBase::at(found.as_ref().map_or(0, |found| found.version));
        let found = self.part_of(name, found);
        let own = name.collection == COLLECTION && !self.locations.contains(name.id);
        let decoded = found.clone().filter(|_| own).and_then(|found| self.decoded(name, found, on.now.ntp));
        // A store that converted the record meanwhile may have reordered its fields.
        let there = decoded.and_then(|FoundSession { session, answered, known: loaded }| {
            known = loaded;
            session.encode((self.codec, &known), answered.as_ref(), None).ok()
        });
        let there = there.or_else(|| found.map(|found| Encoded::Whole(found.octets)));
        if there == commit.value {
            return self.finish_commit(on, name, commit);
        }
        if own {
            warn!("session record changed by another writer; writing it again");
        }
        self.commit(on, name, known, commit);
    }

    fn finish_commit<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, name: Name, commit: Commit) {
        for ticket in commit.tickets {
            let Some(waits) = self.tickets.get_mut(&ticket) else { continue };
            waits.remaining -= 1;
            if waits.remaining == 0
                && let Some(mut out) = self.take_ticket(ticket)
            {
                on.out.append(&mut out);
            }
        }
        self.forget_if_removed(on.upf, name);
        self.next(name);
    }

    /// Starts the next transaction of a record.
    fn next(&mut self, name: Name) {
        let Some(lane) = self.lanes.get_mut(&name) else { return };
        match lane.behind.pop_front() {
            Some(task) => self.load(name, task),
            None => drop(self.lanes.remove(&name)),
        }
    }

    fn abandon<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, name: Name, task: Task) {
        match task {
            Task::Request(request) => {
                self.refuse(on, &request, Cause::SYSTEM_FAILURE);
                self.forget_if_removed(on.upf, name);
            }
            Task::Changed(tickets) => tickets.iter().for_each(|ticket| drop(self.take_ticket(*ticket))),
        }
        self.next(name);
    }

    fn refuse<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, request: &Request, cause: Cause) {
        self.answers(Some((request.from, request.sequence)));
        on.upf.refuse(request.from, &request.datagram, cause, on.out);
    }

    fn ticket(&mut self, remaining: usize, out: Outgoing, request: Option<(SocketAddr, u32)>) -> u64 {
        self.held_back.extend(out.iter().filter_map(|(_, datagram)| own_request(datagram)));
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, CommitGroup { remaining, out, request });
        self.next_ticket
    }

    /// Removes a ticket and returns its messages.
    fn take_ticket(&mut self, ticket: u64) -> Option<Outgoing> {
        let CommitGroup { out, request, .. } = self.tickets.remove(&ticket)?;
        for sequence in out.iter().filter_map(|(_, datagram)| own_request(datagram)) {
            self.held_back.remove(&sequence);
        }
        self.answers(request);
        Some(out)
    }

    /// Removes an answered request from those in progress.
    fn answers(&mut self, request: Option<(SocketAddr, u32)>) {
        if let Some(request) = request {
            self.requests.remove(&request);
        }
    }
}

/// Returns the octets of a value without parts.
fn whole(value: &Encoded) -> &[u8] {
    match value {
        Encoded::Whole(octets) => octets,
        Encoded::Parts(_) => &[],
    }
}

/// Returns the kind of transaction that a request about a session needs.
fn kind(message: MessageType) -> Option<Transaction> {
    match message {
        MessageType::SESSION_ESTABLISHMENT_REQUEST => Some(Transaction::PfcpEstablishment),
        MessageType::SESSION_MODIFICATION_REQUEST => Some(Transaction::PfcpModification),
        MessageType::SESSION_DELETION_REQUEST => Some(Transaction::PfcpDeletion),
        _ => None,
    }
}

/// Returns the sequence number of a request of the UPF.
fn own_request(datagram: &[u8]) -> Option<u32> {
    Message::new(datagram).ok().filter(|message| message.message_type().is_request()).map(|message| message.sequence())
}
