//! The SMF as a separate process (SBA mode).
//!
//! AMFs send requests over the SBI. SM contexts are in the process's memory, in shared memory, in a
//! database, or with the AMF. One thread owns contexts and N4 and processes events in order. SBI
//! and database have one more thread each.
//!
//! If the storage outlives the process, a new SMF takes over. UPFs do not notice the change (TS
//! 23.527 4.3). The new SMF repeats requests to UPFs and the AMF that may not have been sent, with
//! their original keys.

mod addresses;
pub mod probe;
mod recovery;
mod session;
mod sessions;
mod storage;
mod supi_seid;
mod wire;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rand::SeedableRng;
use rand::rngs::StdRng;
use recovery::{OpenedRecords, RecoveredState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sessions::{Action, Sessions, TransferName};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::SessionStorage;
use vireo_core::config::{CoreConfig, StateCarry};
use vireo_core::sba::N1N2TransferResult;
use vireo_fabric::identity::CertificateRole;
use vireo_ops::api::{self, ApiError, Counts, Status, StatusFilter, StatusSource, UpfStatus};
use vireo_ops::clock::clock;
use vireo_ops::config::{ApiConfig, N4Config, StateConfig};
use vireo_ops::database::{Database, DatabaseError, DatabaseJob, OperationResult};
use vireo_ops::metrics::{Fault, Metrics, StateFunction};
use vireo_ops::n4::{self, N4BindError, N4Identity, recovery_time_stamp};
use vireo_ops::reload::Reload;
use vireo_ops::sbi::{SbiConfig, SbiError};
use vireo_ops::state::DurableRecords;
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::{Client, Endpoint, IncomingRequest, Message, Outgoing, Reply};
use vireo_store::records::{Codec, RecordError, RecordStore, StoredRecord};
use vireo_subscribers::Store;
use vireo_types::{DeregistrationCause, Instant, Ltmsi, Seid, Supi};
use vireo_wire::pfcp::{Cause, Error};

/// Capacity of each queue: inputs, database jobs and their results.
const QUEUE_CAPACITY: usize = 65_536;
/// Inputs processed before other sources are polled.
const BATCH: usize = 256;
/// Recovery time stamp of an SMF without state of its own. It never changes, as such an SMF never
/// restarts in the sense of TS 23.527 4.3.
const NEVER: u32 = 1;
/// Maximum time for the shutdown of PFCP associations.
const DRAIN: Duration = Duration::from_secs(2);

/// Configuration of an SMF.
#[derive(Debug)]
pub struct SmfConfig {
    /// Configuration of the steps.
    pub core: CoreConfig,
    pub n4: N4Config,
    pub sbi: SbiConfig,
    /// Storage of the SM contexts.
    pub state: StateConfig,
    pub api: ApiConfig,
}

/// Reasons why an SMF does not start.
#[derive(Debug, thiserror::Error)]
pub enum SmfError {
    #[error(transparent)]
    N4(#[from] N4BindError),
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The operating system cannot start a thread, or refuses a descriptor.
    #[error("a thread cannot be started: {0}; see the limits on processes and memory")]
    Thread(#[from] io::Error),
    /// The SBI cannot be started.
    #[error(transparent)]
    Sbi(#[from] SbiError),
    /// The storage of SM contexts is unusable.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Input of the SMF thread.
#[derive(Debug)]
enum Input {
    /// A request of an AMF.
    Call(IncomingRequest),
    /// Result of a transfer.
    Transferred { of: TransferName, result: N1N2TransferResult },
    /// The AMF has acknowledged the end of a session, or cannot be notified.
    Notified { seid: Seid },
    /// Reloaded configuration.
    Reload(Box<Reload>),
    /// Result of fetching an SM context that an AMF holds.
    Fetched { ltmsi: Ltmsi, found: Result<Option<StoredRecord>, RecordError> },
}

/// Sender of inputs. Wakes the SMF thread.
#[derive(Clone, Debug)]
struct SmfSender {
    queue: Sender<Input>,
    bell: Arc<OwnedFd>,
}

impl SmfSender {
    fn ring(&self) {
        // A write fails only if the counter is at its maximum, which also wakes the thread.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Queues a request, or refuses it if the queue is full.
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

/// Status shared with the API.
#[derive(Debug)]
struct SmfStatus {
    started: std::time::Instant,
    sessions: AtomicUsize,
    /// Name, address and association state of each UPF.
    upfs: Mutex<Vec<(String, SocketAddr, bool)>>,
}

impl SmfStatus {
    fn upf(&self, upf: SocketAddr, up: bool) {
        let mut upfs = self.upfs.lock().unwrap_or_else(PoisonError::into_inner);
        upfs.iter_mut().filter(|(_, address, _)| *address == upf).for_each(|entry| entry.2 = up);
    }
}

impl StatusSource for SmfStatus {
    fn status(&self, _: &StatusFilter) -> Option<Status> {
        let upfs = self.upfs.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = |(name, node, associated): &(String, SocketAddr, bool)| UpfStatus {
            name: name.clone(),
            node: node.to_string(),
            associated: *associated,
            ..UpfStatus::default()
        };
        Some(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            counts: Counts { sessions: self.sessions.load(Ordering::Relaxed), ..Counts::default() },
            upfs: upfs.iter().map(entry).collect(),
            ..Status::default()
        })
    }

    /// Returns false: an SMF has no UEs to deregister.
    fn deregister(&self, _: Supi, _: bool, _: Option<DeregistrationCause>) -> Option<bool> {
        Some(false)
    }
}

/// A running SMF.
#[derive(Debug)]
pub struct Smf {
    endpoint: Endpoint,
    api: Option<api::Server>,
    stop: Arc<AtomicBool>,
    sender: SmfSender,
    thread: Option<JoinHandle<io::Result<()>>>,
    status: Arc<SmfStatus>,
}

impl Smf {
    /// Starts an SMF with a subscriber database.
    ///
    /// # Errors
    ///
    /// Returns an error if a part cannot be started. No part runs then.
    pub fn start(config: SmfConfig, store: Store, metrics: Arc<Metrics>) -> Result<Self, SmfError> {
        let SmfConfig { core, n4, sbi, state, api } = config;
        let now = clock();
        // The database wait is shorter than the total time that an AMF waits for a response.
        let timeout = (sbi.timeout * sbi.attempts * 2 / 3).into();
        let piggybacks = state.carry == StateCarry::Piggyback;
        let found = DurableRecords::from_state(&state).filter(|_| !piggybacks);
        let found = found.map(|keeping| recovery::open(&keeping, timeout, recovery_time_stamp(now))).transpose()?;
        let (storage_kind, stamp) = match &found {
            _ if piggybacks => (SessionStorage::Amf(timeout), NEVER),
            Some(OpenedRecords { storage_kind, before, .. }) => (*storage_kind, before.recovery),
            None => (SessionStorage::Memory, recovery_time_stamp(now)),
        };
        let identity = N4Identity { recovery: stamp, is_shared: storage_kind.is_persistent() };
        let n4 = n4::bind(&core, &n4, identity, None)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(io::Error::from)?);
        let (queue, inputs) = bounded(QUEUE_CAPACITY);
        let sender = SmfSender { queue, bell: Arc::clone(&bell) };
        let calls = sender.clone();
        let endpoint =
            Endpoint::start(sbi.endpoint(CertificateRole::Smf, sbi.smf).map_err(SbiError::from)?, move |call| {
                calls.call(call)
            });
        let endpoint = endpoint.map_err(SbiError::from)?;
        let upfs = core.upfs.iter().map(|upf| (upf.name.clone(), upf.n4, false)).collect();
        let (started, sessions) = (std::time::Instant::now(), AtomicUsize::new(0));
        let status = Arc::new(SmfStatus { started, sessions, upfs: Mutex::new(upfs) });
        let stop = Arc::new(AtomicBool::new(false));
        let mut sessions = Sessions::new(core, sbi.root(endpoint.address()), StdRng::from_os_rng(), storage_kind);
        let mut takes_over = piggybacks;
        let mut database = None;
        if let Some(OpenedRecords {
            records,
            before: RecoveredState { takes_over: over, sessions: left, .. },
            storage_kind,
        }) = found
        {
            tracing::info!(sessions = left.len(), "SM context records available");
            left.iter().for_each(|stored| sessions.restore(stored.ltmsi, &stored.session, now));
            takes_over = over;
            match storage_kind {
                SessionStorage::Database(storing) => {
                    database = Some(ToDatabase::start(records, storing.codec, &sender, (&metrics, &stop))?);
                }
                _ => sessions.use_shm_records(records, Arc::clone(&metrics), left),
            }
        }
        let run = SmfThread {
            sessions,
            database,
            takes_over,
            storage_kind,
            n4,
            inputs,
            sender: sender.clone(),
            client: endpoint.client(),
            amfs: sbi.amf.iter().map(|amf| sbi.root(*amf)).collect(),
            store,
            status: Arc::clone(&status),
            metrics: Arc::clone(&metrics),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("smf".into()).spawn(move || run.run());
        let thread = Some(thread?);
        // The API starts last, so that every client finds a working SMF.
        let source = Arc::<SmfStatus>::clone(&status);
        let api = api::Server::start(&api, source, metrics)?;
        Ok(Smf { endpoint, api, stop, sender, thread, status })
    }

    /// Returns the address of the SBI.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// Returns the TCP address of the status API, if it has one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api.as_ref().and_then(api::Server::address)
    }

    /// Applies the reloadable part of the configuration.
    pub fn reload(&self, reload: Reload) {
        // A thread that has ended is detected elsewhere.
        let _ = self.sender.queue.send(Input::Reload(Box::new(reload)));
        self.sender.ring();
    }

    /// Returns the number of SM contexts.
    pub fn sessions(&self) -> usize {
        self.status.sessions.load(Ordering::Relaxed)
    }

    /// Returns true if a part has ended unexpectedly.
    pub fn has_failed(&self) -> bool {
        self.endpoint.has_failed() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops in order. Releases the PFCP associations, unless another SMF takes over the stored
    /// sessions.
    ///
    /// # Errors
    ///
    /// Returns the error that ended the thread, if it ended earlier.
    pub fn stop(mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        self.sender.ring();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

/// Event of the N4 endpoint.
enum N4Event {
    Message { upf: SocketAddr, seid: Seid, request: bool, message: Vec<u8> },
    Timeout { seid: Seid },
    Up { upf: SocketAddr },
    Down { upf: SocketAddr, lost: bool },
}

/// Channels to and from the database thread.
struct ToDatabase {
    jobs: Sender<DatabaseJob>,
    done: Receiver<(Ltmsi, OperationResult)>,
}

impl ToDatabase {
    /// Starts the database thread, which wakes the SMF thread for each result.
    fn start(
        records: Box<dyn RecordStore>,
        codec: Codec,
        sender: &SmfSender,
        (metrics, stop): (&Arc<Metrics>, &Arc<AtomicBool>),
    ) -> io::Result<Self> {
        let (jobs, waiting) = bounded(QUEUE_CAPACITY);
        let (results, done) = bounded(QUEUE_CAPACITY);
        let (metrics, stop) = (Arc::clone(metrics), Arc::clone(stop));
        let (function, node) = (StateFunction::Smf, storage::NODE);
        let database = Database { records, codec, jobs: waiting, metrics, stop, function, node };
        let sender = sender.clone();
        let report = move |name, what| {
            // The send fails only when the SMF stops.
            let _ = results.send((storage::ltmsi(name), what));
            sender.ring();
        };
        let thread = std::thread::Builder::new().name("database".into());
        thread.spawn(move || database.run(report, clock))?;
        Ok(ToDatabase { jobs, done })
    }
}

/// State of the SMF thread.
struct SmfThread {
    sessions: Sessions,
    database: Option<ToDatabase>,
    /// True if this SMF takes over the PFCP associations of a previous one.
    takes_over: bool,
    storage_kind: SessionStorage,
    n4: vireo_n4::Endpoint,
    inputs: Receiver<Input>,
    sender: SmfSender,
    client: Client,
    /// Roots of the AMFs' URIs.
    amfs: Vec<String>,
    store: Store,
    status: Arc<SmfStatus>,
    metrics: Arc<Metrics>,
    stop: Arc<AtomicBool>,
}

impl SmfThread {
    fn run(mut self) -> io::Result<()> {
        let mut n4_due = Some(clock());
        if self.takes_over {
            let mut events = Vec::new();
            self.n4.deactivate(clock());
            self.n4.activate(clock(), true, &mut |event| events.extend(session_event(event)));
            events.into_iter().for_each(|event| self.on_n4_event(event));
        }
        while !self.stop.load(Ordering::SeqCst) {
            let more = self.take();
            let mut events = Vec::new();
            if let Some(due) = self.n4.poll(clock(), &mut |event| events.extend(session_event(event)))? {
                n4_due = Some(due);
            }
            self.metrics.faults(Fault::PfcpUnlisted, self.n4.take_unlisted());
            events.into_iter().for_each(|event| self.on_n4_event(event));
            self.sessions.on_time(clock());
            self.act();
            self.status.sessions.store(self.sessions.len(), Ordering::Relaxed);
            if !more {
                self.wait(n4_due)?;
            }
        }
        self.drain()
    }

    /// Processes database results and queued inputs. Returns true if more inputs may be queued.
    fn take(&mut self) -> bool {
        if let Some(database) = &self.database {
            for (ltmsi, done) in database.done.try_iter().take(BATCH) {
                self.sessions.on_database_result(ltmsi, done, clock());
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
                        found.map(|found| found.map(|subscriber| subscriber.served_subscription()))
                    };
                    self.sessions.call(call, now, &mut lookup);
                }
                Input::Transferred { of, result } => self.sessions.on_transfer_result(of, result, now),
                Input::Notified { seid } => self.sessions.on_notification_answer(seid, now),
                Input::Fetched { ltmsi, found } => {
                    self.sessions.on_database_result(ltmsi, OperationResult::Loaded(found), now)
                }
            }
        }
        true
    }

    fn on_n4_event(&mut self, event: N4Event) {
        let now = clock();
        match event {
            N4Event::Message { upf, seid, request, message } => {
                if !self.sessions.pfcp((upf, seid), &message, now) && request {
                    let error = Error { cause: Cause::SESSION_CONTEXT_NOT_FOUND, offending_ie: None };
                    self.n4.refuse_report(now, upf, &message, error);
                }
            }
            N4Event::Timeout { seid } => self.sessions.pfcp_timeout(seid, now),
            N4Event::Up { upf } => self.status.upf(upf, true),
            N4Event::Down { upf, lost } => {
                self.status.upf(upf, false);
                if lost {
                    self.sessions.on_upf_loss(upf, now);
                }
            }
        }
    }

    /// Executes the actions of the sessions, including those that result from them.
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
                        let sender = self.sender.clone();
                        let done = Box::new(move |result| {
                            let result = wire::transfer_result(result);
                            // The send fails only when the SMF stops. The SMF thread never blocks
                            // on the SBI, so this cannot deadlock.
                            let _ = sender.queue.send(Input::Transferred { of, result });
                            sender.ring();
                        });
                        let uri = format!("{}{}", self.amf_of(amf.as_deref()), wire::transfer_path(supi));
                        let others = self.other_amfs(&uri);
                        // By this key the AMF recognises a transfer that a previous SMF has sent.
                        let known = self.storage_kind.is_persistent();
                        let key = known.then(|| format!("{:016x}-{:x}", of.seid.0, of.number));
                        let lane = lane(of.seid);
                        self.client.send(Outgoing {
                            uri,
                            fallbacks: others,
                            message,
                            key,
                            lane,
                            withdrawn: None,
                            done,
                        });
                    }
                    Action::Notify { seid, uri, message } => {
                        let sender = self.sender.clone();
                        let done = Box::new(move |result| {
                            if let Err(error) = result {
                                tracing::warn!(%error, "AMF not informed of an ended SM context");
                            }
                            let _ = sender.queue.send(Input::Notified { seid });
                            sender.ring();
                        });
                        // The AMF of the callback URI may be dead.
                        let others = self.other_amfs(&uri);
                        let (key, lane, withdrawn) = (None, lane(seid), None);
                        self.client.send(Outgoing { uri, fallbacks: others, message, key, lane, withdrawn, done });
                    }
                    Action::Fetch { ltmsi, seid, of: (supi, number) } => {
                        let sender = self.sender.clone();
                        let done = Box::new(move |result| {
                            let _ =
                                sender.queue.send(Input::Fetched { ltmsi, found: wire::fetched_sm_context(result) });
                            sender.ring();
                        });
                        let uri = format!("{}{}", self.amf_of(None), wire::amf_stored_path(supi, number));
                        let (others, message) = (self.other_amfs(&uri), Message::default());
                        let (key, lane, withdrawn) = (None, lane(seid), None);
                        self.client.send(Outgoing { uri, fallbacks: others, message, key, lane, withdrawn, done });
                    }
                }
            }
        }
        self.n4.flush();
        if let (Some(database), Some(jobs)) = (&self.database, self.sessions.jobs()) {
            // Jobs without room wait for a result, which wakes this thread.
            while let Some(job) = jobs.pop_front() {
                if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = database.jobs.try_send(job) {
                    jobs.push_front(job);
                    break;
                }
            }
        }
    }

    /// Returns the root of the configured AMF of a URI; if it is none of them, the root of the
    /// first AMF.
    fn amf_of(&self, named: Option<&str>) -> &str {
        let own = |root: &&String| named.is_some_and(|uri| authority(uri) == authority(root));
        self.amfs.iter().find(own).or(self.amfs.first()).map_or("", String::as_str)
    }

    /// Returns the roots of the AMFs other than that of a URI, for retries.
    fn other_amfs(&self, uri: &str) -> Vec<String> {
        self.amfs.iter().filter(|root| authority(root) != authority(uri)).cloned().collect()
    }

    fn pfcp(&mut self, upf: SocketAddr, key: u64, seid: Seid, message: &[u8]) {
        let now = clock();
        let mut events = Vec::new();
        let submitted =
            self.n4.submit(now, upf, Some(key), seid, message, &mut |event| events.extend(session_event(event)));
        events.into_iter().for_each(|event| self.on_n4_event(event));
        if let Err(error) = submitted {
            tracing::debug!(%error, "a PFCP request was not sent");
            // The session handles a failed send like a missing response of the UPF.
            self.sessions.pfcp_timeout(seid, now);
        }
    }

    /// Waits for an input, a PFCP message or the next deadline.
    fn wait(&mut self, n4_due: Option<Instant>) -> io::Result<()> {
        let due = n4_due.into_iter().chain(self.sessions.next_due()).min();
        let wait = due.map_or(Duration::from_secs(1), |due| due.since(clock()).into()).min(Duration::from_secs(1));
        let wait = Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        let bell = Arc::clone(&self.sender.bell);
        let mut fds = [PollFd::new(&*bell, PollFlags::IN), PollFd::new(&self.n4, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Resetting the bell loses no wake-up, because the queue is polled afterwards.
        let _ = rustix::io::read(&*bell, &mut [0; 8]);
        Ok(())
    }

    /// Releases the PFCP associations. Waits at most [`DRAIN`].
    fn drain(mut self) -> io::Result<()> {
        if self.storage_kind.is_persistent() {
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

/// Returns host and port of a URI.
fn authority(uri: &str) -> Option<&str> {
    uri.split_once("://")?.1.split('/').next()
}

/// Returns the lane of a session: requests of one lane are sent in order.
fn lane(seid: Seid) -> u64 {
    seid.0
}

/// Converts an event of N4, if it concerns sessions.
fn session_event(event: vireo_n4::Event<'_>) -> Option<N4Event> {
    Some(match event {
        vireo_n4::Event::Deliver { upf, seid, request, message } => {
            N4Event::Message { upf, seid, request, message: message.to_vec() }
        }
        vireo_n4::Event::Timeout { seid, .. } => N4Event::Timeout { seid },
        // SBA mode serves no eNBs, and its UEs send nothing over NAS.
        vireo_n4::Event::UserData { .. } => return None,
        vireo_n4::Event::UpfUp { upf, .. } => {
            tracing::info!(%upf, "UPF associated");
            N4Event::Up { upf }
        }
        vireo_n4::Event::SetupFailed { upf, cause, .. } => {
            tracing::warn!(%upf, ?cause, "no association with a UPF; check its upf.control-planes");
            return None;
        }
        vireo_n4::Event::UpfDown { upf, sessions_kept } => {
            tracing::warn!(%upf, sessions_kept, "UPF down");
            N4Event::Down { upf, lost: !sessions_kept }
        }
        vireo_n4::Event::UpfRestarted { upf } => {
            tracing::warn!(%upf, "UPF restarted; establishing its sessions again");
            N4Event::Down { upf, lost: true }
        }
        vireo_n4::Event::UpfReleasing { upf, within } => {
            tracing::warn!(%upf, seconds = within.as_secs(), "UPF announces its release");
            return None;
        }
        vireo_n4::Event::GtpuPath { upf, peer, works } => {
            tracing::warn!(%upf, %peer, is_working = works, "GTP-U path between UPF and RAN node changed");
            return None;
        }
    })
}
