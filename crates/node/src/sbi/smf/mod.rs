//! The SMF as a function of its own: SM contexts in memory, its own or shared, or in a database, asked by AMFs over the service-based
//! interface, above UPFs. One thread owns the contexts and N4 and does what comes, in order; the interface and the database have a thread
//! each beside it.
//!
//! Over a database, or in memory that outlives it, it goes on with what the SMF before has left: to UPFs it is the same (TS 23.527 4.3), and what was asked of
//! them and of the AMF and may not have left is asked again, under the names that it had.

mod addresses;
pub mod probe;
mod recovery;
mod session;
mod sessions;
mod supi_seid;
mod wire;

use super::{SbiConfig, SbiError};
use crate::api::{self, Counts, Status, StatusFilter, StatusSource, UpfStatus};
use crate::clock::clock;
use crate::config::{ApiConfig, N4Config, StateConfig};
use crate::control::{StartError, bind_n4, recovery};
use crate::database::{Database, DatabaseError, DatabaseJob, OperationResult};
use crate::metrics::{Fault, Metrics, StateFunction};
use crate::reload::Reload;
use crate::state::DurableRecords;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rand::SeedableRng;
use rand::rngs::StdRng;
use recovery::{OpenedRecords, RecoveredState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sessions::{Action, SessionStorage, Sessions, TransferName};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use vireo_core::config::{CoreConfig, StateCarry};
use vireo_core::sba::N1N2TransferResult;
use vireo_fabric::identity::CertificateRole;
use vireo_n4 as n4;
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::{Client, Endpoint, IncomingRequest, Message, Outgoing, Reply};
use vireo_store::records::{Codec, RecordError, RecordStore, StoredRecord};
use vireo_subscribers::Store;
use vireo_types::{Instant, Ltmsi, Seid, Supi};
use vireo_wire::pfcp::{Cause, Error};

/// What may wait for the thread.
const WAITING: usize = 65_536;
/// Taken in one go before other things are looked at.
const BATCH: usize = 256;
/// What UPFs know an SMF by that has no state to lose: it never starts anew (TS 23.527 4.3).
const NEVER: u32 = 1;
/// Time for what is on its way to UPFs when the SMF stops.
const DRAIN: Duration = Duration::from_secs(2);

/// What an SMF is started with.
#[derive(Debug)]
pub struct SmfConfig {
    /// What decisions depend on.
    pub core: CoreConfig,
    /// N4.
    pub n4: N4Config,
    /// The service-based interface.
    pub sbi: SbiConfig,
    /// Where SM contexts are.
    pub state: StateConfig,
    /// The status interface.
    pub api: ApiConfig,
}

/// Why an SMF does not start.
#[derive(Debug, thiserror::Error)]
pub enum SmfError {
    /// N4, a thread, the status interface.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The service-based interface.
    #[error(transparent)]
    Sbi(#[from] SbiError),
    /// The records of SM contexts.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// What comes to the thread.
#[derive(Debug)]
enum Input {
    /// An AMF asks.
    Call(IncomingRequest),
    /// What became of a transfer.
    Transferred { of: TransferName, result: N1N2TransferResult },
    /// The AMF knows that a session has ended, or cannot be told.
    Notified { seid: Seid },
    /// A configuration was read again.
    Reload(Box<Reload>),
    /// An SM context that was left with the AMF.
    Fetched { ltmsi: Ltmsi, found: Result<Option<StoredRecord>, RecordError> },
}

/// The way to the thread.
#[derive(Clone, Debug)]
struct SmfSender {
    queue: Sender<Input>,
    bell: Arc<OwnedFd>,
}

impl SmfSender {
    fn ring(&self) {
        // A counter that is full rings as well.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// A request; there may be no room for it.
    fn call(&self, call: IncomingRequest) {
        match self.queue.try_send(Input::Call(call)) {
            Ok(()) => self.ring(),
            Err(TrySendError::Full(Input::Call(call)) | TrySendError::Disconnected(Input::Call(call))) => {
                let problem = ProblemDetails::new(503, "NF_CONGESTION", "this SMF has too much to do");
                call.reply.send(Reply::problem(&problem));
            }
            Err(_) => {}
        }
    }
}

/// What is seen from outside.
#[derive(Debug)]
struct SmfStatus {
    started: std::time::Instant,
    sessions: AtomicUsize,
    /// UPFs and whether they are associated.
    upfs: Mutex<Vec<(String, SocketAddr, bool)>>,
}

impl SmfStatus {
    fn upf(&self, upf: SocketAddr, up: bool) {
        let mut upfs = self.upfs.lock().unwrap_or_else(PoisonError::into_inner);
        upfs.iter_mut().filter(|(_, address, _)| *address == upf).for_each(|entry| entry.2 = up);
    }
}

impl StatusSource for SmfStatus {
    fn status(&self, _: &StatusFilter) -> Status {
        let upfs = self.upfs.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = |(name, node, associated): &(String, SocketAddr, bool)| UpfStatus {
            name: name.clone(),
            node: node.to_string(),
            associated: *associated,
            ..UpfStatus::default()
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            counts: Counts { sessions: self.sessions.load(Ordering::Relaxed), ..Counts::default() },
            upfs: upfs.iter().map(entry).collect(),
            ..Status::default()
        }
    }

    /// It has no UEs.
    fn deregister(&self, _: Supi, _: bool) -> bool {
        false
    }
}

/// An SMF that runs.
#[derive(Debug)]
pub struct Smf {
    endpoint: Endpoint,
    api: Option<api::Server>,
    stop: Arc<AtomicBool>,
    door: SmfSender,
    thread: Option<JoinHandle<io::Result<()>>>,
    seen: Arc<SmfStatus>,
}

impl Smf {
    /// Starts an SMF over a subscriber database.
    ///
    /// # Errors
    ///
    /// [`SmfError`]; nothing of it runs then.
    pub fn start(config: SmfConfig, store: Store, metrics: Arc<Metrics>) -> Result<Self, SmfError> {
        let SmfConfig { core, n4, sbi, state, api } = config;
        let now = clock();
        // Of a database: what the SMF before has left, and how long who asks waits: less than it waits for an answer in all.
        let patience = (sbi.timeout * sbi.attempts * 2 / 3).into();
        let carries = state.carry == StateCarry::Piggyback;
        let found = DurableRecords::of(&state).filter(|_| !carries);
        let found = found.map(|keeping| recovery::open(&keeping, patience, recovery(now))).transpose()?;
        let (keeper, stamp) = match &found {
            _ if carries => (SessionStorage::Amf(patience), NEVER),
            Some(OpenedRecords { keeper, before, .. }) => (*keeper, before.recovery),
            None => (SessionStorage::Memory, recovery(now)),
        };
        let n4 = bind_n4(&core, &n4, None, (stamp, keeper.is_found_again()))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(|error| StartError::Thread(error.into()))?);
        let (queue, inputs) = bounded(WAITING);
        let door = SmfSender { queue, bell: Arc::clone(&bell) };
        let calls = door.clone();
        let endpoint =
            Endpoint::start(sbi.endpoint(CertificateRole::Smf, sbi.smf).map_err(SbiError::from)?, move |call| {
                calls.call(call)
            });
        let endpoint = endpoint.map_err(SbiError::from)?;
        let upfs = core.upfs.iter().map(|upf| (upf.name.clone(), upf.n4, false)).collect();
        let (started, sessions) = (std::time::Instant::now(), AtomicUsize::new(0));
        let seen = Arc::new(SmfStatus { started, sessions, upfs: Mutex::new(upfs) });
        let stop = Arc::new(AtomicBool::new(false));
        let mut sessions = Sessions::new(core, sbi.root(endpoint.address()), StdRng::from_os_rng(), keeper);
        let mut takes_over = carries;
        let mut database = None;
        if let Some(OpenedRecords {
            records,
            before: RecoveredState { takes_over: over, sessions: left, .. },
            keeper,
        }) = found
        {
            tracing::info!(sessions = left.len(), "the records of SM contexts are there");
            left.iter().for_each(|(ltmsi, session, _)| sessions.restore(*ltmsi, session, now));
            takes_over = over;
            match keeper {
                SessionStorage::Database(storing) => {
                    database = Some(ToDatabase::start(records, storing.codec, &door, (&metrics, &stop))?);
                }
                _ => sessions.keep_here(records, Arc::clone(&metrics), left),
            }
        }
        let run = SmfThread {
            sessions,
            database,
            takes_over,
            keeper,
            n4,
            inputs,
            door: door.clone(),
            client: endpoint.client(),
            amfs: sbi.amf.iter().map(|amf| sbi.root(*amf)).collect(),
            store,
            seen: Arc::clone(&seen),
            metrics: Arc::clone(&metrics),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("smf".into()).spawn(move || run.run());
        let thread = Some(thread.map_err(StartError::Thread)?);
        // Last: who sees it finds an SMF that works.
        let source = Arc::<SmfStatus>::clone(&seen);
        let api = api::Server::start(&api, source, metrics).map_err(StartError::Api)?;
        Ok(Smf { endpoint, api, stop, door, thread, seen })
    }

    /// Where it takes what AMFs ask.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// The address of the status interface, if there is one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Takes what can change while it runs.
    pub fn reload(&self, reload: Reload) {
        // A thread that is gone is reported by itself.
        let _ = self.door.queue.send(Input::Reload(Box::new(reload)));
        self.door.ring();
    }

    /// How many SM contexts it has.
    pub fn sessions(&self) -> usize {
        self.seen.sessions.load(Ordering::Relaxed)
    }

    /// Whether a part has ended that should not have.
    pub fn has_failed(&self) -> bool {
        self.endpoint.has_failed() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops in order: associations with UPFs are released, unless sessions are in a database and others go on with them.
    ///
    /// # Errors
    ///
    /// What the thread ended with, if it ended before.
    pub fn stop(mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        self.door.ring();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

/// What the N4 endpoint has said.
enum N4Event {
    Message { upf: SocketAddr, seid: Seid, request: bool, message: Vec<u8> },
    Timeout { seid: Seid },
    Up { upf: SocketAddr },
    Down { upf: SocketAddr, lost: bool },
}

/// The way to the thread of the database.
struct ToDatabase {
    jobs: Sender<DatabaseJob>,
    done: Receiver<(Ltmsi, OperationResult)>,
}

impl ToDatabase {
    /// Starts the thread, which wakes that of the SMF when it has an answer.
    fn start(
        records: Box<dyn RecordStore>,
        codec: Codec,
        door: &SmfSender,
        (metrics, stop): (&Arc<Metrics>, &Arc<AtomicBool>),
    ) -> Result<Self, StartError> {
        let (jobs, waiting) = bounded(WAITING);
        let (results, done) = bounded(WAITING);
        let (metrics, stop) = (Arc::clone(metrics), Arc::clone(stop));
        let (function, node) = (StateFunction::Smf, recovery::NODE);
        let database = Database { records, codec, jobs: waiting, metrics, stop, function, node };
        let door = door.clone();
        let say = move |name, what| {
            // The thread is gone when the SMF stops.
            let _ = results.send((recovery::ltmsi(name), what));
            door.ring();
        };
        let thread = std::thread::Builder::new().name("database".into());
        thread.spawn(move || database.run(say, clock)).map_err(StartError::Thread)?;
        Ok(ToDatabase { jobs, done })
    }
}

/// The thread.
struct SmfThread {
    sessions: Sessions,
    database: Option<ToDatabase>,
    /// An SMF was here before, whose associations with UPFs are this one's.
    takes_over: bool,
    keeper: SessionStorage,
    n4: n4::Endpoint,
    inputs: Receiver<Input>,
    door: SmfSender,
    client: Client,
    /// Roots of the AMFs' URIs.
    amfs: Vec<String>,
    store: Store,
    seen: Arc<SmfStatus>,
    metrics: Arc<Metrics>,
    stop: Arc<AtomicBool>,
}

impl SmfThread {
    fn run(mut self) -> io::Result<()> {
        let mut n4_due = Some(clock());
        if self.takes_over {
            let mut heard = Vec::new();
            self.n4.deactivate(clock());
            self.n4.activate(clock(), true, &mut |event| heard.extend(of(event)));
            heard.into_iter().for_each(|event| self.heard(event));
        }
        while !self.stop.load(Ordering::SeqCst) {
            let more = self.take();
            let mut heard = Vec::new();
            if let Some(due) = self.n4.poll(clock(), &mut |event| heard.extend(of(event)))? {
                n4_due = Some(due);
            }
            self.metrics.faults(Fault::PfcpUnlisted, self.n4.take_unlisted());
            heard.into_iter().for_each(|event| self.heard(event));
            self.sessions.on_time(clock());
            self.act();
            self.seen.sessions.store(self.sessions.len(), Ordering::Relaxed);
            if !more {
                self.wait(n4_due)?;
            }
        }
        self.drain()
    }

    /// Takes what the database has answered, and what AMFs ask and answer. Whether there may be more.
    fn take(&mut self) -> bool {
        if let Some(database) = &self.database {
            for (ltmsi, done) in database.done.try_iter().take(BATCH) {
                self.sessions.answered(ltmsi, done, clock());
            }
        }
        for _ in 0..BATCH {
            let Ok(input) = self.inputs.try_recv() else { return false };
            let now = clock();
            match input {
                Input::Reload(reload) => {
                    self.sessions.reload(&reload);
                    self.n4.set_allow(reload.n4_allow);
                }
                Input::Call(call) => {
                    let store = &mut self.store;
                    let mut lookup = |supi| {
                        let found = store.get(supi).map_err(|error| error.to_string());
                        found.map(|found| found.map(|subscriber| subscriber.subscription))
                    };
                    self.sessions.call(call, now, &mut lookup);
                }
                Input::Transferred { of, result } => self.sessions.transferred(of, result, now),
                Input::Notified { seid } => self.sessions.notified(seid, now),
                Input::Fetched { ltmsi, found } => self.sessions.answered(ltmsi, OperationResult::Loaded(found), now),
            }
        }
        true
    }

    fn heard(&mut self, event: N4Event) {
        let now = clock();
        match event {
            N4Event::Message { upf, seid, request, message } => {
                if !self.sessions.pfcp((upf, seid), &message, now) && request {
                    let error = Error { cause: Cause::SESSION_CONTEXT_NOT_FOUND, offending_ie: None };
                    self.n4.refuse_report(now, upf, &message, error);
                }
            }
            N4Event::Timeout { seid } => self.sessions.pfcp_timeout(seid, now),
            N4Event::Up { upf } => self.seen.upf(upf, true),
            N4Event::Down { upf, lost } => {
                self.seen.upf(upf, false);
                if lost {
                    self.sessions.upf_lost(upf, now);
                }
            }
        }
    }

    /// Carries out what is to be done, and what comes of that.
    fn act(&mut self) {
        loop {
            let actions = self.sessions.take_actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    Action::Reply(to, reply) => to.send(reply),
                    Action::Pfcp { upf, key, seid, message } => self.pfcp(upf, key, seid, &message),
                    Action::Transfer { of, supi, amf, message } => {
                        let door = self.door.clone();
                        let done = Box::new(move |result| {
                            let result = wire::transferred(result);
                            // The thread is gone when the SMF stops; it never waits for the interface.
                            let _ = door.queue.send(Input::Transferred { of, result });
                            door.ring();
                        });
                        let uri = format!("{}{}", self.amf_of(amf.as_deref()), wire::transfer_path(supi));
                        let others = self.others_than(&uri);
                        // By it the AMF knows one that the SMF before has asked for.
                        let known = self.keeper.is_found_again();
                        let key = known.then(|| format!("{:016x}-{:x}", of.seid.0, of.number));
                        let lane = lane(of.seid);
                        self.client.send(Outgoing { uri, others, message, key, lane, withdrawn: None, done });
                    }
                    Action::Notify { seid, uri, message } => {
                        let door = self.door.clone();
                        let done = Box::new(move |result| {
                            if let Err(error) = result {
                                tracing::warn!(%error, "the AMF does not hear that an SM context has ended");
                            }
                            let _ = door.queue.send(Input::Notified { seid });
                            door.ring();
                        });
                        // The AMF that has named it may be dead.
                        let others = self.others_than(&uri);
                        let (key, lane, withdrawn) = (None, lane(seid), None);
                        self.client.send(Outgoing { uri, others, message, key, lane, withdrawn, done });
                    }
                    Action::Fetch { ltmsi, seid, of: (supi, number) } => {
                        let door = self.door.clone();
                        let done = Box::new(move |result| {
                            let _ = door.queue.send(Input::Fetched { ltmsi, found: wire::left(result) });
                            door.ring();
                        });
                        let uri = format!("{}{}", self.amf_of(None), wire::left_path(supi, number));
                        let (others, message) = (self.others_than(&uri), Message::default());
                        let (key, lane, withdrawn) = (None, lane(seid), None);
                        self.client.send(Outgoing { uri, others, message, key, lane, withdrawn, done });
                    }
                }
            }
        }
        self.n4.flush();
        if let (Some(database), Some(jobs)) = (&self.database, self.sessions.jobs()) {
            // What there is no room for waits for answers, which wake this thread.
            while let Some(job) = jobs.pop_front() {
                if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = database.jobs.try_send(job) {
                    jobs.push_front(job);
                    break;
                }
            }
        }
    }

    /// The root of the AMF that has named a URI; of another one, if that is none of these.
    fn amf_of(&self, named: Option<&str>) -> &str {
        let own = |root: &&String| named.is_some_and(|uri| authority(uri) == authority(root));
        self.amfs.iter().find(own).or(self.amfs.first()).map_or("", String::as_str)
    }

    /// The roots of the AMFs that may be asked instead of the one of a URI.
    fn others_than(&self, uri: &str) -> Vec<String> {
        self.amfs.iter().filter(|root| authority(root) != authority(uri)).cloned().collect()
    }

    fn pfcp(&mut self, upf: SocketAddr, key: u64, seid: Seid, message: &[u8]) {
        let now = clock();
        let mut heard = Vec::new();
        let submitted = self.n4.submit(now, upf, Some(key), seid, message, &mut |event| heard.extend(of(event)));
        heard.into_iter().for_each(|event| self.heard(event));
        if let Err(error) = submitted {
            tracing::debug!(%error, "a PFCP request was not sent");
            // For the session it is as if the UPF had not answered.
            self.sessions.pfcp_timeout(seid, now);
        }
    }

    /// Waits for a request, a UPF or the time.
    fn wait(&mut self, n4_due: Option<Instant>) -> io::Result<()> {
        let due = n4_due.into_iter().chain(self.sessions.next_due()).min();
        let wait = due.map_or(Duration::from_secs(1), |due| due.since(clock()).into()).min(Duration::from_secs(1));
        let wait = Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        let bell = Arc::clone(&self.door.bell);
        let mut fds = [PollFd::new(&*bell, PollFlags::IN), PollFd::new(&self.n4, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Nothing is lost by it: the queue is looked at afterwards.
        let _ = rustix::io::read(&*bell, &mut [0; 8]);
        Ok(())
    }

    /// The end: the associations are released and that awaited, within bounds.
    fn drain(mut self) -> io::Result<()> {
        if self.keeper.is_found_again() {
            return Ok(());
        }
        let until = std::time::Instant::now() + DRAIN;
        self.n4.release_all(clock());
        while self.n4.n4().is_releasing() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            self.n4.poll(clock(), &mut |_| ())?;
        }
        Ok(())
    }
}

/// Host and port of a URI.
fn authority(uri: &str) -> Option<&str> {
    uri.split_once("://")?.1.split('/').next()
}

/// What the AMF is asked about one session goes in order.
fn lane(seid: Seid) -> u64 {
    seid.0
}

/// What of N4 concerns the sessions.
fn of(event: n4::Event<'_>) -> Option<N4Event> {
    Some(match event {
        n4::Event::Deliver { upf, seid, request, message } => {
            N4Event::Message { upf, seid, request, message: message.to_vec() }
        }
        n4::Event::Timeout { seid, .. } => N4Event::Timeout { seid },
        n4::Event::UpfUp { upf, .. } => {
            tracing::info!(%upf, "a UPF is associated");
            N4Event::Up { upf }
        }
        n4::Event::SetupFailed { upf, cause, .. } => {
            tracing::warn!(%upf, ?cause, "no association with a UPF: is it up, and does it allow this Node ID?");
            return None;
        }
        n4::Event::UpfDown { upf, sessions_kept } => {
            tracing::warn!(%upf, sessions_kept, "a UPF is down");
            N4Event::Down { upf, lost: !sessions_kept }
        }
        n4::Event::UpfRestarted { upf } => {
            tracing::warn!(%upf, "a UPF has restarted: its sessions are set up anew");
            N4Event::Down { upf, lost: true }
        }
        n4::Event::UpfReleasing { upf, within } => {
            tracing::warn!(%upf, seconds = within.as_secs(), "a UPF is about to leave");
            return None;
        }
        n4::Event::GtpuPath { upf, peer, works } => {
            tracing::warn!(%upf, %peer, works, "the GTP-U path of a UPF to a RAN node");
            return None;
        }
    })
}
