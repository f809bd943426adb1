//! A UPF whose sessions are in a database. Each PFCP transaction of a session loads its record, goes by it, and commits what came of
//! it before the answer leaves; meanwhile the transactions of other sessions go on. So does what packets and time make the UPF
//! report: the report leaves when the database has what the session is after it, so that no later life gives its number (UR-SEQN)
//! again. A UPF that dies and starts again has all its sessions, and its control planes see no other UPF.
//!
//! Packets write nothing there. What has been counted, and used of a quota, since a session's last transaction or report is lost
//! with the UPF: of traffic too little is reported then, never anything twice, and of a quota so much may be used again. Packets
//! that wait in buffers are lost too.
//!
//! Where control planes share the records of UEs with it (`state.scope`), a session is a part of its UE's record ([`shared`]): a
//! request says which, its answer takes along what the session is then, and the SMF commits that.
//! Where commits do not wait (`state.write = "non-blocking"`) what a transaction says leaves at once, and only the next transaction of the
//! session waits until its record is written. What was not, when the UPF dies, is lost: the control plane is told that there is no
//! such session, or that it is as it was before. What the UPF is to control planes is written first, all the same.
//!
//! In shared memory nobody else writes: there a transaction loads nothing, and what it commits is written at once. A session that there
//! is no room for is taken out again and refused, and a modification is refused before packets go by it. What has changed by itself is
//! tried again until there is room; meanwhile requests about the session go first.
//!
//! Here are the transactions and their order, without clock, thread or socket; `keeper` has these.

mod backend;
mod octets;
mod shared;

#[cfg(test)]
pub(super) use backend::in_memory;
pub(super) use backend::{OpenedStore, PersistenceBackend, begin};
pub(super) use octets::{element, elements, hexadecimal, list, optional};
pub(super) use shared::SharedRecordConfig;

use super::exchange::{Answered, Outgoing};
use super::session::Session;
use super::state::{DirtyState, Node, TablesAccess, Timestamps, Upf, Written};
use crate::database::{DatabaseError, DatabaseJob, DatabaseOperation, OperationResult, read_all};
use crate::metrics::Transaction;
use rustc_hash::{FxHashMap, FxHashSet};
use shared::PartLocations;
use std::collections::VecDeque;
use std::net::SocketAddr;
use tracing::{debug, error, warn};
use vireo_store::Version;
use vireo_store::records::{Change, Codec, Encoded, LIFE, Name, RecordBase, RecordError, RecordStore, StoredRecord};
use vireo_types::{Duration, Instant};
use vireo_wire::pfcp::{Cause, Message, MessageType};

/// Whose records these are: a session's under its SEID.
const COLLECTION: &str = "upf";
/// Where it is written what this UPF is to control planes.
const NODE: Name = Name { collection: "upf-node", id: 0 };
/// Requests about one session that wait, at the most.
const BEHIND: usize = 32;
/// Requests of all control planes that wait, at the most.
const REQUESTS: usize = if cfg!(test) { 1_024 } else { 65_536 };
/// How long a record is asked for that a request needs: less than a control plane goes on asking.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a life tries to begin while others write.
const ATTEMPTS: usize = 8;
/// Within so many seconds each record is committed again, so that it lives on.
const RENEWED: usize = LIFE.as_secs() as usize / 3;

fn name(seid: u64) -> Name {
    Name { collection: COLLECTION, id: seid }
}

/// What a transaction acts on, and where what it says goes.
pub(super) struct TransactionContext<'a, P: TablesAccess> {
    pub(super) upf: &'a mut Upf,
    pub(super) now: Timestamps,
    pub(super) plane: &'a mut P,
    pub(super) out: &'a mut Outgoing,
}

/// A request about a session.
#[derive(Debug)]
struct Request {
    from: SocketAddr,
    sequence: u32,
    datagram: Vec<u8>,
    kind: Transaction,
    until: Instant,
    /// The control plane commits what comes of it.
    shared: bool,
}

/// A transaction.
#[derive(Debug)]
enum Task {
    Request(Box<Request>),
    /// Something has changed by itself; these wait until it is committed.
    Changed(Vec<u64>),
}

/// What is committed.
#[derive(Debug)]
struct Commit {
    kind: Transaction,
    /// `None`: it has gone.
    value: Option<Encoded>,
    /// The version that it is put in place of.
    expected: Version,
    answered: Option<Answered>,
    tickets: Vec<u64>,
}

impl Commit {
    fn of(kind: Transaction, answered: Option<Answered>, tickets: Vec<u64>) -> Self {
        Commit { kind, value: None, expected: 0, answered, tickets }
    }
}

/// What of a transaction the database is asked.
#[derive(Debug)]
enum Running {
    Loading(Task),
    Committing(Commit),
    /// Another version was there: is it this one, whose answer was lost?
    Checking(Commit),
}

/// The transactions of a record, in order.
#[derive(Debug, Default)]
struct Lane {
    running: Option<Running>,
    /// Of a record that is shared: what was loaded.
    record: StoredRecord,
    behind: VecDeque<Task>,
}

/// What leaves when so many commits are done.
#[derive(Debug)]
struct CommitGroup {
    left: usize,
    out: Outgoing,
    request: Option<(SocketAddr, u32)>,
}

/// The transactions that are under way.
#[derive(Debug, Default)]
pub(super) struct PersistentUpf {
    lanes: FxHashMap<Name, Lane>,
    jobs: VecDeque<DatabaseJob>,
    tickets: FxHashMap<u64, CommitGroup>,
    next_ticket: u64,
    /// Requests that are being carried out: one that comes again meanwhile has its answer coming.
    requests: FxHashSet<(SocketAddr, u32)>,
    /// Numbers of our own requests that have to wait.
    held: FxHashSet<u32>,
    /// All sessions, the one that was committed again longest ago in front.
    renewals: VecDeque<u64>,
    /// Sessions that are parts of their UEs' records.
    places: PartLocations,
    /// Where nobody else writes: the versions of all sessions' records.
    versions: Option<FxHashMap<u64, Version>>,
    /// What is said about sessions does not wait for what is committed.
    hastes: bool,
    /// How sessions are kept that are records of their own.
    codec: Codec,
    /// There was no room for the last session, which was said.
    full: bool,
    /// Commits that there was no room for: they are tried again.
    stalled: Vec<Name>,
}

/// How records are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WriterMode {
    /// Somebody else may write to them.
    #[default]
    Shared,
    /// The same, and what is said about sessions does not wait.
    Behind,
    /// Nobody else writes to them.
    Sole,
}

/// What a UPF finds that starts.
#[derive(Debug)]
pub(super) struct PreviousState {
    node: Node,
    sessions: Vec<Written>,
    /// Those of them that are parts of their UEs' records.
    places: PartLocations,
    /// Of the sessions' records.
    versions: Vec<(u64, Version)>,
}

/// Looks what there is; `None`: there was no UPF before.
///
/// # Errors
///
/// When the database does not answer, or has something else.
pub(super) fn look(
    records: &mut dyn RecordStore,
    codec: Codec,
    sharing: Option<&SharedRecordConfig>,
    ntp: u32,
) -> Result<Option<PreviousState>, DatabaseError> {
    let Some(node) = records.load(&[NODE])?.pop().flatten() else { return Ok(None) };
    let node = begin_life(records, node)?;
    let (mut sessions, mut versions) = (Vec::new(), Vec::new());
    read_all(records, COLLECTION, |seid, found| {
        let (session, answered, known) = Session::found(codec, found, ntp).ok_or(DatabaseError::Stranger)?;
        sessions.push((seid, session, answered));
        versions.push((seid, known.version));
        Ok(())
    })?;
    let mut places = PartLocations::new(sharing.cloned());
    if sharing.is_some() {
        read_all(records, crate::shared_record::COLLECTION, |id, found| {
            sessions.extend(places.found(id, &found, ntp));
            Ok(())
        })?;
    }
    Ok(Some(PreviousState { node, sessions, places, versions }))
}

/// What the UPF was to control planes, as of its next life; that is written before anything is said in it.
fn begin_life(records: &mut dyn RecordStore, mut found: StoredRecord) -> Result<Node, DatabaseError> {
    for _ in 0..ATTEMPTS {
        let node = Node::decode(&found.octets).ok_or(DatabaseError::Stranger)?.after_restart();
        let octets = node.encode().ok_or(DatabaseError::Stranger)?;
        let change = Change::Commit { expected: found.version, octets: &octets };
        match records.change(&[(NODE, change)]).remove(0) {
            Ok(_) => return Ok(node),
            // The life before has written it a moment ago, or the answer was lost: then this life is not the next but that after it.
            Err(RecordError::Conflict | RecordError::OutcomeUnknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
        found = records.load(&[NODE])?.pop().flatten().ok_or(DatabaseError::Stranger)?;
    }
    Err(RecordError::Conflict.into())
}

impl PersistentUpf {
    /// Nothing is under way. With `sharing` control planes may commit what comes of their requests.
    pub(super) fn new(way: WriterMode, codec: Codec, sharing: Option<SharedRecordConfig>) -> Self {
        let (versions, hastes) = ((way == WriterMode::Sole).then(FxHashMap::default), way == WriterMode::Behind);
        PersistentUpf { places: PartLocations::new(sharing), versions, hastes, codec, ..PersistentUpf::default() }
    }

    /// A UPF begins, or goes on with what the one before has left.
    pub(super) fn begin<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, before: Option<PreviousState>) {
        on.upf.note_changes();
        let ntp = on.now.ntp;
        if let Some(PreviousState { node, sessions, places, versions }) = before {
            self.versions.iter_mut().for_each(|known| known.extend(versions.iter().copied()));
            // Those of others are committed again by these.
            let own = sessions.iter().map(|(seid, ..)| *seid).filter(|seid| !places.has(*seid));
            self.renewals.extend(own);
            self.places = places;
            on.upf.go_on(node, sessions, on.now, on.plane);
            self.leave(on, None, Outgoing::new());
        } else {
            on.upf.begin(on.plane);
            self.begin_or_wait(on, NODE, Task::Changed(Vec::new()));
        }
        self.places.begin(ntp);
        on.plane.change(|tables, _| tables.restored());
    }

    /// A datagram came on N4.
    pub(super) fn receive<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        from: SocketAddr,
        datagram: &[u8],
    ) {
        let read = |message: Message<'_>| Some((kind(message.message_type())?, message.seid(), message.sequence()));
        let asked = Message::new(datagram).ok().and_then(read).filter(|_| on.upf.is_known(from));
        // What is refused for its sender alone takes no place before the owner's requests.
        let asked = asked.filter(|(kind, seid, _)| {
            *kind == Transaction::PfcpEstablishment || !on.upf.is_session_of_others(from, *seid)
        });
        let Some((kind, seid, sequence)) = asked else {
            return self.act(on, |upf, now, plane, out| upf.receive(from, datagram, now, plane, out));
        };
        if self.requests.contains(&(from, sequence)) {
            return;
        }
        let place = self.places.of(datagram);
        if on.upf.has_answered(from, sequence, datagram, on.now) {
            let mut out = Outgoing::new();
            on.upf.receive(from, datagram, on.now, on.plane, &mut out);
            if place.is_some() {
                self.places.attach(on.upf, (from, sequence), seid, &mut out);
            }
            return on.out.append(&mut out);
        }
        if self.requests.len() >= REQUESTS {
            return on.upf.refuse(from, datagram, Cause::CONGESTION, on.out);
        }
        let seid = if kind == Transaction::PfcpEstablishment { self.reserve(on) } else { seid };
        let name = name(seid);
        if let Some(place) = place {
            self.places.enter(seid, place, kind == Transaction::PfcpEstablishment);
        }
        let until = on.now.instant + PATIENCE;
        self.requests.insert((from, sequence));
        let (datagram, shared) = (datagram.to_vec(), place.is_some());
        let request = Request { from, sequence, datagram, kind, until, shared };
        let waits = self.lanes.contains_key(&name) && !self.gives_way(name);
        if let Some(versions) = self.versions.as_ref().filter(|_| !waits) {
            let version = versions.get(&name.id).copied().unwrap_or(0);
            return self.carry_out(on, name, RecordBase::at(version), &request);
        }
        self.begin_or_wait(on, name, Task::Request(Box::new(request)));
    }

    /// A SEID that no record has, as far as is known.
    fn reserve<P: TablesAccess>(&self, on: &mut TransactionContext<'_, P>) -> u64 {
        loop {
            let seid = on.upf.reserve();
            if self.versions.as_ref().is_none_or(|versions| !versions.contains_key(&seid)) {
                return seid;
            }
        }
    }

    /// Something is done besides requests about sessions: what it says leaves when what it changes is committed.
    pub(super) fn act<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        act: impl FnOnce(&mut Upf, Timestamps, &mut P, &mut Outgoing),
    ) {
        let mut out = Outgoing::new();
        act(on.upf, on.now, on.plane, &mut out);
        self.leave(on, None, out);
    }

    /// Sends again what is unanswered ([`Upf::tick`]), but for what has to wait for its commit.
    pub(super) fn tick<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        let mut out = Outgoing::new();
        on.upf.tick(on.now, &mut out);
        out.retain(|(_, datagram)| own_request(datagram).is_none_or(|sequence| !self.held.contains(&sequence)));
        on.out.append(&mut out);
    }

    /// To be called once a second: some records are committed again.
    pub(super) fn renew<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
        for _ in 0..self.renewals.len().div_ceil(RENEWED) {
            let Some(seid) = self.renewals.pop_front() else { break };
            if on.upf.sessions.contains_key(&seid) {
                self.renewals.push_back(seid);
                self.begin_or_wait(on, name(seid), Task::Changed(Vec::new()));
            }
        }
    }

    /// To be called once a second: what there was no room for is tried again.
    pub(super) fn try_again<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>) {
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

    /// Has what there is no room for wait behind a request: that may make room, and is answered in any case. Whether it was so.
    fn gives_way(&mut self, name: Name) -> bool {
        let Some(at) = self.stalled.iter().position(|other| *other == name) else { return false };
        self.stalled.swap_remove(at);
        if let Some(lane) = self.lanes.get_mut(&name)
            && let Some(Running::Committing(commit)) = lane.running.take()
        {
            lane.behind.push_front(Task::Changed(commit.tickets));
        }
        true
    }

    /// What the database is to be asked.
    pub(super) fn jobs(&mut self) -> &mut VecDeque<DatabaseJob> {
        &mut self.jobs
    }

    fn begin_or_wait<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, name: Name, task: Task) {
        let Some(lane) = self.lanes.get_mut(&name) else { return self.load(name, task) };
        match task {
            Task::Changed(more) => {
                // A commit that has not begun has this change with it.
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
            Task::Request(request) if lane.behind.len() >= BEHIND => {
                debug!("too many requests wait for a session; see the latency of state.database");
                self.refuse(on, &request, Cause::CONGESTION);
            }
            request => lane.behind.push_back(request),
        }
    }

    fn load(&mut self, name: Name, task: Task) {
        let (kind, until) = match &task {
            Task::Request(request) => (request.kind, Some(request.until)),
            Task::Changed(_) => (Transaction::Other, None),
        };
        self.jobs.push_back(DatabaseJob {
            name: self.places.record(name),
            of: name,
            what: DatabaseOperation::Load,
            kind,
            until,
        });
        self.lanes.entry(name).or_default().running = Some(Running::Loading(task));
    }

    /// The database has answered.
    pub(super) fn answered<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        done: OperationResult,
    ) {
        if let (crate::shared_record::COLLECTION, OperationResult::Loaded(Ok(Some(found)))) = (name.collection, &done) {
            return self.late(on, name.id, found);
        }
        let Some(running) = self.lanes.get_mut(&name).and_then(|lane| lane.running.take()) else { return };
        match (running, done) {
            (Running::Loading(task), OperationResult::Loaded(Ok(found))) => self.loaded(on, name, task, found),
            (Running::Committing(commit), OperationResult::Changed(Ok(version))) => {
                self.full &= commit.kind != Transaction::PfcpEstablishment;
                if let Some(versions) = self.versions.as_mut().filter(|_| name.collection == COLLECTION) {
                    match version {
                        0 => versions.remove(&name.id),
                        _ => versions.insert(name.id, version),
                    };
                }
                self.done(on, name, commit);
            }
            (Running::Committing(commit), OperationResult::Changed(Err(RecordError::Conflict))) => {
                let (what, kind) = (DatabaseOperation::Load, commit.kind);
                self.jobs.push_back(DatabaseJob { name: self.places.record(name), of: name, what, kind, until: None });
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
            (Running::Checking(commit), OperationResult::Loaded(Ok(found))) => self.checked(on, name, commit, found),
            (Running::Loading(task), OperationResult::Loaded(Err(error)) | OperationResult::Changed(Err(error))) => {
                warn!(%error, "a transaction was not carried out");
                self.give_up(on, name, task);
            }
            (Running::Committing(commit) | Running::Checking(commit), done) => {
                error!(?done, "what has changed cannot be committed: nobody is told of it");
                commit.tickets.iter().for_each(|ticket| drop(self.take_ticket(*ticket)));
                self.next(name);
            }
            (running, done) => error!(?running, ?done, "an answer to another question: please report it"),
        }
    }

    fn loaded<P: TablesAccess>(
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
            // Of a life whose clock was ahead: another number is taken.
            let other = self::name(on.upf.reserve());
            self.places.move_to(name.id, other.id);
            self.load(other, task);
            return self.next(name);
        }
        let mut answered = None;
        if let Some(found) = found.filter(|_| name.collection == COLLECTION) {
            let Some((session, before, loaded)) = self.decoded(name, found, on.now.ntp) else {
                error!("a record is no session of this release: is state.key another program's too?");
                return self.give_up(on, name, task);
            };
            (known, answered) = (loaded, before.clone());
            // What is here may be later than what a control plane has committed.
            let holds = self.places.has(name.id) && on.upf.sessions.contains_key(&name.id);
            if let (Task::Request(_), false) = (&task, holds) {
                on.upf.adopt((name.id, session, before), on.now, on.plane);
            }
        }
        match task {
            Task::Changed(tickets) => {
                self.commit(on, name, known, Commit::of(Transaction::Other, answered, tickets));
            }
            Task::Request(request) => self.carry_out(on, name, known, &request),
        }
    }

    /// The session of what was found of it.
    fn decoded(
        &self,
        name: Name,
        found: StoredRecord,
        ntp: u32,
    ) -> Option<(Box<Session>, Option<Answered>, RecordBase)> {
        // A part is octets in any format.
        let codec = if self.places.has(name.id) { Codec::default() } else { self.codec };
        Session::found(codec, found, ntp)
    }

    /// Carries a request out over what was loaded.
    fn carry_out<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        known: RecordBase,
        request: &Request,
    ) {
        let Request { from, kind, datagram, .. } = request;
        if *kind == Transaction::PfcpEstablishment {
            on.upf.give(name.id);
            if !self.places.has(name.id) {
                self.renewals.push_back(name.id);
            }
        }
        let mut out = Outgoing::new();
        on.upf.receive(*from, datagram, on.now, on.plane, &mut out);
        self.leave(on, Some((name, known, request)), out);
        self.look_whether_gone(on.upf, name);
    }

    /// What was said leaves when what has changed is committed: first of all the session of the request, whose record was loaded.
    fn leave<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        own: Option<(Name, RecordBase, &Request)>,
        mut out: Outgoing,
    ) {
        let DirtyState { mut sessions, node } = on.upf.take_changed();
        sessions.sort_unstable();
        sessions.dedup();
        let mut names: Vec<Name> = sessions.into_iter().map(name).collect();
        names.extend(node.then_some(NODE));
        let request = own.as_ref().map(|(_, _, request)| (request.from, request.sequence));
        if let Some((own, _, Request { from, sequence, shared: true, .. })) = &own {
            // Of its own session the answer takes all along, and whoever gets it commits that.
            if names.contains(own) && self.places.attach(on.upf, (*from, *sequence), own.id, &mut out) {
                names.retain(|name| name != own);
            }
        }
        let waits = !names.is_empty() && (node || !self.hastes);
        let tickets = if waits {
            vec![self.ticket(names.len(), out, request)]
        } else {
            on.out.append(&mut out);
            self.answers(request);
            Vec::new()
        };
        for changed in &names {
            match &own {
                Some((name, known, request)) if name == changed => {
                    let answered = on.upf.answered(request.from, request.sequence);
                    let commit = Commit::of(request.kind, answered, tickets.clone());
                    self.commit(on, *name, known.clone(), commit);
                }
                _ => self.begin_or_wait(on, *changed, Task::Changed(tickets.clone())),
            }
        }
        if let Some((name, ..)) = own.filter(|(name, ..)| !names.contains(name)) {
            self.next(name);
        }
    }

    /// Asks for a commit of what there is now.
    fn commit<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        known: RecordBase,
        mut commit: Commit,
    ) {
        let placed = name.collection == COLLECTION && self.places.has(name.id);
        let (version, answered) = (known.version, commit.answered.as_ref());
        let most = on.upf.settings.record_octets;
        let value = match name.collection {
            COLLECTION if placed => {
                on.upf.sessions.get(&name.id).map(|session| session.octets(answered).map(Encoded::Whole))
            }
            COLLECTION => {
                let session = on.upf.sessions.get(&name.id);
                session.map(|session| session.encode(self.codec, answered, most).ok())
            }
            _ => Some(on.upf.encode_node().map(Encoded::Whole)),
        };
        commit.value = match value {
            Some(None) => {
                error!("a session cannot be stored: please report it");
                return self.done(on, name, commit);
            }
            // It came and went between two looks, or was never there; or the UE is gone, and all that was of it.
            _ if version == 0 && (placed || value.is_none()) => return self.done(on, name, commit),
            value => value.flatten(),
        };
        commit.expected = version;
        let what = match &commit.value {
            value if placed => self.part(name, version, value.as_ref().map(whole)),
            Some(Encoded::Whole(octets)) => DatabaseOperation::Commit { expected: version, octets: octets.clone() },
            Some(value) => DatabaseOperation::Put { known, value: value.clone() },
            None => DatabaseOperation::Remove { expected: version },
        };
        let job = DatabaseJob { name: self.places.record(name), of: name, what, kind: commit.kind, until: None };
        match self.versions.is_some() && commit.kind == Transaction::PfcpModification {
            // Nobody takes the room that it was found to have.
            true => self.jobs.push_front(job),
            false => self.jobs.push_back(job),
        }
        self.lanes.entry(name).or_default().running = Some(Running::Committing(commit));
    }

    /// A session that was to come into being cannot be kept: it is gone again, and who asks for it is told.
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
        // It was not written.
        on.upf.take_changed();
        self.done(on, name, commit);
    }

    /// What a commit was refused for is known.
    fn checked<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        name: Name,
        commit: Commit,
        found: Option<StoredRecord>,
    ) {
        let mut known = RecordBase::at(found.as_ref().map_or(0, |found| found.version));
        let found = self.part_of(name, found);
        let own = name.collection == COLLECTION && !self.places.has(name.id);
        let decoded = found.clone().filter(|_| own).and_then(|found| self.decoded(name, found, on.now.ntp));
        // What a place has kept as something else in between may have its fields in another order.
        let there = decoded.and_then(|(session, answered, loaded)| {
            known = loaded;
            session.encode(self.codec, answered.as_ref(), None).ok()
        });
        let there = there.or_else(|| found.map(|found| Encoded::Whole(found.octets)));
        if there == commit.value {
            return self.done(on, name, commit);
        }
        if own {
            warn!("a session's record was written by somebody else: what its packets go by is written again");
        }
        self.commit(on, name, known, commit);
    }

    fn done<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, name: Name, commit: Commit) {
        for ticket in commit.tickets {
            let Some(waits) = self.tickets.get_mut(&ticket) else { continue };
            waits.left -= 1;
            if waits.left == 0
                && let Some(mut out) = self.take_ticket(ticket)
            {
                on.out.append(&mut out);
            }
        }
        self.look_whether_gone(on.upf, name);
        self.next(name);
    }

    /// The next transaction of a record.
    fn next(&mut self, name: Name) {
        let Some(lane) = self.lanes.get_mut(&name) else { return };
        match lane.behind.pop_front() {
            Some(task) => self.load(name, task),
            None => drop(self.lanes.remove(&name)),
        }
    }

    fn give_up<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, name: Name, task: Task) {
        match task {
            Task::Request(request) => {
                self.refuse(on, &request, Cause::SYSTEM_FAILURE);
                self.look_whether_gone(on.upf, name);
            }
            Task::Changed(tickets) => tickets.iter().for_each(|ticket| drop(self.take_ticket(*ticket))),
        }
        self.next(name);
    }

    fn refuse<P: TablesAccess>(&mut self, on: &mut TransactionContext<'_, P>, request: &Request, cause: Cause) {
        self.answers(Some((request.from, request.sequence)));
        on.upf.refuse(request.from, &request.datagram, cause, on.out);
    }

    fn ticket(&mut self, left: usize, out: Outgoing, request: Option<(SocketAddr, u32)>) -> u64 {
        self.held.extend(out.iter().filter_map(|(_, datagram)| own_request(datagram)));
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, CommitGroup { left, out, request });
        self.next_ticket
    }

    /// What waits no more.
    fn take_ticket(&mut self, ticket: u64) -> Option<Outgoing> {
        let CommitGroup { out, request, .. } = self.tickets.remove(&ticket)?;
        for sequence in out.iter().filter_map(|(_, datagram)| own_request(datagram)) {
            self.held.remove(&sequence);
        }
        self.answers(request);
        Some(out)
    }

    /// A request has its answer.
    fn answers(&mut self, request: Option<(SocketAddr, u32)>) {
        if let Some(request) = request {
            self.requests.remove(&request);
        }
    }
}

/// The octets of what is a whole.
fn whole(value: &Encoded) -> &[u8] {
    match value {
        Encoded::Whole(octets) => octets,
        Encoded::Parts(_) => &[],
    }
}

/// What a request about a session is.
fn kind(message: MessageType) -> Option<Transaction> {
    match message {
        MessageType::SESSION_ESTABLISHMENT_REQUEST => Some(Transaction::PfcpEstablishment),
        MessageType::SESSION_MODIFICATION_REQUEST => Some(Transaction::PfcpModification),
        MessageType::SESSION_DELETION_REQUEST => Some(Transaction::PfcpDeletion),
        _ => None,
    }
}

/// The number of a request of our own.
fn own_request(datagram: &[u8]) -> Option<u32> {
    Message::new(datagram).ok().filter(|message| message.message_type().is_request()).map(|message| message.sequence())
}
