//! Worker process of a host: runs NFs without state of their own.
//!
//! A worker takes a UE from the queue of one of its NFs and loads the UE's context. It runs the
//! step, commits, and passes the effects to the host. It has no sockets, files or locks. A worker
//! killed at any instruction has changed nothing of a UE, or exactly one record.

mod batch;
mod config;
pub(crate) mod context_database;
mod contexts;
pub(crate) mod event_message;
mod host_rings;
pub(crate) mod ids;
mod inline;
pub(crate) mod outbox;
pub(crate) mod ran;
pub(crate) mod region_layout;
mod smf_requests;

pub(crate) use config::{Location, WorkerConfig, WorkerConfigError};
pub(crate) use contexts::OUTBOX;
pub(crate) use inline::{InlineWorker, StepRecord};

use context_database::ContextDatabaseError;
use contexts::{CommitHandle, CommitTerms, Contexts, LoadResult, PendingCommit, StepError, StepOutcome};
use event_message::{EventMessage, ReceivedEvent, RepeatKey};
use host_rings::HostRings;
use ids::IdAllocator;
use inline::Results;
use outbox::{Outbox, Summary};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use region_layout::RegionLayout;
use smf_requests::{commit_path, implied_create_key, is_refusal, record_for_takeover, stored_transfer_result};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vireo_core::Env;
use vireo_core::amf::access;
use vireo_core::amf::context::UeContext;
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::UeMessage;
use vireo_core::config::CoreConfig;
use vireo_core::sba::SmfResponse;
use vireo_core::schedule::deficit::Deficit;
use vireo_core::schedule::kind;
use vireo_core::step::{Effect, StepOutput, idempotency_key};
use vireo_ops::clock::{self, clock};
use vireo_ops::metrics::Transaction;
use vireo_ops::privileges::{self, Profile};
use vireo_ops::supervisor::{self, WorkerInitError};
use vireo_store::CommitError;
use vireo_store::region::{Bell, Packet, Region, Ring, Slot, Worker};
use vireo_types::{AssocId, Dnn, Ltmsi, RanUeNgapId};
use vireo_wire::gtpu;

/// Time for which an event is retried while the database of contexts is down. A Redis Cluster
/// elects a master in less; a UE waits longer for an answer.
const DATABASE_RETRY_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval of these retries.
const DATABASE_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum sleep of a worker without work before it checks whether the host stops it.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Interval at which a worker releases unneeded memory to other workers.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// Number of events between two reads of the NF shares: much less than the host's polling interval
/// of the queues.
const SHARES_READ_INTERVAL_EVENTS: u32 = 16;

/// Number of consecutive events of one UE while other UEs wait.
const MAX_CONSECUTIVE_EVENTS: u64 = 16;

/// Function that sets the log level of a worker process.
pub type SetLogLevel = fn(&str);

/// Error that prevents a worker from running.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No host started the process, or the region refuses it.
    #[error(transparent)]
    Init(#[from] WorkerInitError),
    /// The region has no worker configuration.
    #[error("the host has left no instructions in the state region: a worker is started by `vireo run` alone")]
    Instructions,
}

/// Runs this process as a worker until the host stops it.
///
/// # Errors
///
/// Returns an error if no host started the process, or the region has no worker configuration.
pub fn run(set_log_level: SetLogLevel) -> Result<(), WorkerError> {
    let worker = supervisor::join_region()?;
    // Helps to identify the process in a process list; nothing depends on it.
    if let Ok(name) = CString::new(format!("vireo-nf-{}", worker.number())) {
        let _ = rustix::thread::set_name(&name);
    }
    let region = worker.region().clone();
    let (instructions, version) = WorkerConfig::read(&region).ok_or(WorkerError::Instructions)?;
    clock::adopt(region.shared_word(region_layout::BOARD_CLOCK).load(Ordering::Acquire));
    let profile = match &instructions.location {
        Location::Region | Location::Worker => Profile::Region,
        Location::Database(_) => Profile::Database,
    };
    let plan = RegionLayout { nfs: instructions.nfs };
    let rings = HostRings::new(&region, plan, worker.number());
    let mut nf = NfWorker::new(region, worker, (instructions, version), set_log_level, Results::Rings(Box::new(rings)));
    // Before the first octet of a peer is read.
    privileges::confine(profile);
    nf.run();
    Ok(())
}

/// Outcome of an event.
enum EventOutcome {
    /// The event was processed or skipped. True if a procedure ended by it.
    Ended(bool),
    /// The UE belongs to another host, which must process the event.
    LeftToOwner,
    /// The result must be stored in the database.
    Waits {
        /// The result to store.
        pending: Box<PendingCommit>,
        /// True if a procedure ended by the event.
        ended: bool,
    },
}

/// Times of a worker, read once per turn.
#[derive(Debug)]
struct TurnTimes {
    started: Instant,
    now: Instant,
    trimmed: Instant,
    /// Number of events until the shares are read again.
    until_look: u32,
    /// CPU time that each step takes in addition.
    added_step: Duration,
}

impl TurnTimes {
    fn new(added_step: Duration) -> Self {
        let now = Instant::now();
        TurnTimes { started: now, now, trimmed: now, until_look: 0, added_step }
    }

    /// Uses the CPU time that a step takes in addition (`pools.added-step-time`).
    fn use_added_time(&self) {
        if !self.added_step.is_zero() {
            let end = thread_cpu_time() + self.added_step;
            while thread_cpu_time() < end {
                std::hint::spin_loop();
            }
        }
    }
}

fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// State of a worker: of a worker process, or of a host that runs the steps itself.
struct NfWorker {
    region: Region,
    worker: Worker,
    plan: RegionLayout,
    config: CoreConfig,
    /// Version of the published configuration in use.
    instructed: u64,
    set_log_level: SetLogLevel,
    contexts: Contexts,
    queues: Vec<Ring>,
    results: Results,
    bell: Bell,
    deficit: Deficit,
    shares: Vec<f64>,
    ids: IdAllocator,
    ran: ran::RanNodeView,
    rng: StdRng,
    packet: Vec<u8>,
    outbox: Vec<u8>,
    /// Queueing time of the last event in microseconds.
    waited: u64,
    pace: TurnTimes,
    /// Time since which the database of contexts is down.
    database_down: Option<Instant>,
}

impl NfWorker {
    fn new(
        region: Region,
        worker: Worker,
        (instructions, instructed): (WorkerConfig, u64),
        set_log_level: SetLogLevel,
        results: Results,
    ) -> Self {
        instructions.log_level.as_deref().into_iter().for_each(set_log_level);
        let plan = RegionLayout { nfs: instructions.nfs };
        let number = worker.number();
        let rng = StdRng::from_os_rng();
        NfWorker {
            plan,
            contexts: Contexts::new(instructions.location),
            queues: (0..plan.nfs).map(|nf| plan.queue(&region, number, nf)).collect(),
            results,
            bell: plan.bell(&region, number),
            deficit: Deficit::default(),
            shares: vec![0.0; usize::from(plan.nfs)],
            ids: IdAllocator::new(
                region.clone(),
                &instructions.core,
                (&instructions.tmsi_key, instructions.part),
                StdRng::from_os_rng(),
            ),
            ran: ran::RanNodeView::new(region.clone()),
            config: instructions.core,
            instructed,
            set_log_level,
            rng,
            packet: Vec::new(),
            outbox: Vec::new(),
            waited: 0,
            pace: TurnTimes::new(Duration::from_micros(instructions.added_step_us)),
            database_down: None,
            region,
            worker,
        }
    }

    fn run(&mut self) {
        loop {
            if self.run_once() {
                continue;
            }
            if self.region.shared_word(region_layout::BOARD_STOP).load(Ordering::Acquire) != 0 {
                return;
            }
            self.results.wake();
            let queues = &self.queues;
            self.bell.wait(MAX_SLEEP, || queues.iter().any(|queue| !queue.is_empty()).then_some(()));
            self.wakes_up();
        }
    }

    /// Reads the clock and the shares again after a time without work.
    fn wakes_up(&mut self) {
        self.pace.now = Instant::now();
        self.pace.until_look = 0;
    }

    /// Serves the NF whose turn it is. Returns false if no UE waits.
    fn run_once(&mut self) -> bool {
        let now = self.pace.now;
        self.bump_heartbeat(now);
        if self.pace.until_look == 0 {
            if now.duration_since(self.pace.trimmed) > TRIM_INTERVAL {
                self.pace.trimmed = now;
                self.worker.trim();
            }
            self.read_shares();
            self.apply_instructions();
            self.pace.until_look = SHARES_READ_INTERVAL_EVENTS;
        }
        let queues = &self.queues;
        let Some(nf) = self.deficit.next(&self.shares, |nf| !queues[nf].is_empty()) else { return false };
        let procedures = self.serve(nf);
        self.pace.until_look = self.pace.until_look.saturating_sub(procedures.0.max(1) as u32);
        self.pace.now = Instant::now();
        let nanos = self.pace.now.duration_since(now).as_nanos() as u64;
        self.deficit.ran(nf, nanos);
        self.account(nf, nanos, procedures);
        true
    }

    /// Stores the heartbeat of the worker.
    fn bump_heartbeat(&self, now: Instant) {
        self.worker.beat(now.duration_since(self.pace.started).as_micros() as u64 + 1);
    }

    /// Applies a reloaded configuration. Its other parts never change.
    fn apply_instructions(&mut self) {
        if self.region.published_version(region_layout::BULLETIN_CONFIG) == self.instructed {
            return;
        }
        if let Some((instructions, version)) = WorkerConfig::read(&self.region) {
            (self.config, self.instructed) = (instructions.core, version);
            instructions.log_level.as_deref().into_iter().for_each(self.set_log_level);
            for dnn in &self.config.dnns {
                tracing::debug!(dnn = dnn.name.as_str(), dns = ?dnn.dns, mtu = dnn.mtu, "DNS servers and MTU of new sessions");
            }
        }
    }

    /// Reads the CPU shares of the NFs.
    fn read_shares(&mut self) {
        let number = self.worker.number();
        for (nf, share) in self.shares.iter_mut().enumerate() {
            let word = self.region.shared_word(self.plan.nf_word(number, nf as u8, region_layout::NF_SHARE));
            *share = f64::from_bits(word.load(Ordering::Relaxed));
        }
    }

    /// Adds the work of an NF to the words that the host reads.
    fn account(&self, nf: usize, nanos: u64, (events, procedures): (u64, u64)) {
        let add = |word: u32, more: u64| {
            // Only this worker writes the word.
            let word = self.region.shared_word(self.plan.nf_word(self.worker.number(), nf as u8, word));
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(region_layout::NF_BUSY, nanos);
        add(region_layout::NF_EVENTS, events);
        add(region_layout::NF_PROCEDURES, procedures);
        let word = self.plan.nf_word(self.worker.number(), nf as u8, region_layout::NF_WAITED);
        // The last event of a queue says nothing about later ones.
        let waited = if self.queues[nf].is_empty() { 0 } else { self.waited };
        self.region.shared_word(word).store(waited, Ordering::Relaxed);
    }

    /// Takes UEs from an NF's queue, one or a batch, and processes their events. Returns the
    /// numbers of events and of ended procedures.
    fn serve(&mut self, nf: usize) -> (u64, u64) {
        self.publish_serving(region_layout::SERVING);
        let together = self.contexts.serves_groups() && !self.is_to_serve_alone();
        let done = if together { self.serve_batch(nf) } else { self.serve_one(nf) };
        self.publish_serving(0);
        done
    }

    /// Returns true if a worker recently died with a batch. UEs are then served one by one, to
    /// identify one that crashes workers.
    fn is_to_serve_alone(&self) -> bool {
        let until = self.region.shared_word(region_layout::BOARD_ALONE).load(Ordering::Relaxed);
        until != 0 && clock().0 < until
    }

    /// Publishes the UE in progress.
    fn publish_serving(&self, serving: u64) {
        let word = self.plan.nf_word(self.worker.number(), 0, region_layout::NF_SERVING);
        self.region.shared_word(word).store(serving, Ordering::Relaxed);
    }

    fn serve_one(&mut self, nf: usize) -> (u64, u64) {
        let Some(taken) = self.queues[nf].take(&self.worker) else { return (0, 0) };
        let Some(slot) = self.region.slot_at(taken.item as u32) else {
            self.queues[nf].acknowledge(&self.worker, taken);
            return (0, 0);
        };
        self.publish_serving(region_layout::serving(slot));
        let (mut events, mut procedures) = (0, 0);
        let mut next = self.first(slot);
        while let Some(packet) = next {
            events += 1;
            procedures += u64::from(self.event(nf, slot, packet));
            next = self.worker.finish(slot);
            // A UE with endless events does not block others: it continues behind them.
            if next.is_some() && events % MAX_CONSECUTIVE_EVENTS == 0 {
                self.bump_heartbeat(Instant::now());
                if self.queues[nf].push(taken.item).is_ok() {
                    break;
                }
            }
        }
        self.queues[nf].acknowledge(&self.worker, taken);
        (events, procedures)
    }

    /// Returns the first event of a UE from the queue.
    fn first(&mut self, slot: Slot) -> Option<Packet> {
        let first = self.region.next(&self.worker, slot);
        if first.is_some() && self.is_poisoned(slot) {
            tracing::error!("bug: event crashes every worker that runs it; skipping it");
            return self.worker.finish(slot);
        }
        first
    }

    /// Returns true, once, if the UE's oldest event must be skipped.
    fn is_poisoned(&self, slot: Slot) -> bool {
        let mine = u64::from(slot.number()) + 1;
        region_layout::poison_words().any(|word| {
            let word = self.region.shared_word(word);
            word.load(Ordering::Relaxed) == mine && word.swap(0, Ordering::AcqRel) == mine
        })
    }

    /// Processes an event of a UE. Returns true if a procedure ended by it.
    fn event(&mut self, nf: usize, slot: Slot, packet: Packet) -> bool {
        let mut octets = std::mem::take(&mut self.packet);
        octets.clear();
        let ended = match self.region.read_packet(packet, &mut octets) {
            Some(sequence) => self.carry_out(nf, slot, sequence, &octets),
            None => false,
        };
        self.packet = octets;
        ended
    }

    fn carry_out(&mut self, nf: usize, slot: Slot, sequence: u64, octets: &[u8]) -> bool {
        loop {
            let Some(ReceivedEvent { arrived, input, event: message }) = EventMessage::decode(octets) else {
                tracing::error!("bug: event does not decode; skipping it");
                return false;
            };
            let transaction = message.transaction();
            let begun = self.begin((nf, slot), (sequence, input), (arrived, message), octets);
            let ended = begun.and_then(|begun| match begun {
                EventOutcome::Ended(ended) => Ok(ended),
                EventOutcome::LeftToOwner => {
                    self.return_to_host(sequence, octets);
                    Ok(false)
                }
                EventOutcome::Waits { pending, ended } => {
                    match self.store(vec![*pending]).and_then(|mut done| done.pop()) {
                        Some(done) => {
                            self.pass_effects(slot, done?);
                            Ok(ended)
                        }
                        None => Ok(false),
                    }
                }
            });
            self.count_operations(|_| transaction);
            match ended {
                Err(error) if error.is_retryable() && self.waits_for_database() => {
                    tracing::debug!(%error, "an event waits for the database");
                    self.results.wake();
                    std::thread::sleep(DATABASE_RETRY_INTERVAL);
                    self.bump_heartbeat(Instant::now());
                }
                Err(error) => return log_failed_event(&error),
                Ok(ended) => {
                    self.database_down = None;
                    return ended;
                }
            }
        }
    }

    /// Counts the database operations since the last call. `transaction` returns the transaction of
    /// the operation at an index.
    fn count_operations(&mut self, transaction: impl Fn(usize) -> Transaction) {
        for (place, (operation, took)) in self.contexts.operations().enumerate() {
            let [count, micros] = region_layout::state_words(transaction(place), operation);
            self.region.shared_word(count).fetch_add(1, Ordering::Relaxed);
            self.region.shared_word(micros).fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// Returns true if an event is retried while the database is down: no peer would send it again.
    fn waits_for_database(&mut self) -> bool {
        self.database_down.get_or_insert_with(Instant::now).elapsed() < DATABASE_RETRY_TIMEOUT
    }

    /// Loads the context of an event's UE and runs the step.
    fn begin(
        &mut self,
        (nf, slot): (usize, Slot),
        (sequence, input): (u64, u64),
        (arrived, message): (vireo_types::Instant, EventMessage<'_>),
        octets: &[u8],
    ) -> Result<EventOutcome, StepError> {
        let found = match self.contexts.load(&self.region, &mut self.worker, slot) {
            Ok(found) => found,
            Err(error) => {
                if matches!(error, StepError::Database(ContextDatabaseError::Foreign))
                    && matches!(message, EventMessage::Event { event: Event::Transfer(_), .. })
                {
                    // The SMF looks up the present AMF of the UE.
                    self.return_to_host(sequence, octets);
                }
                return Err(error);
            }
        };
        if let Some(buffer) = self.contexts.take_recovered() {
            self.push(true, buffer.to_item());
        }
        if let LoadResult::Context { consumed, unsent } | LoadResult::Tombstone { consumed, unsent } = found
            && sequence <= consumed
        {
            // A dead worker processed the event. The host receives the record again and drops
            // repeats.
            if let Some(buffer) = unsent {
                self.push(true, buffer.to_item());
            }
            return Ok(EventOutcome::Ended(false));
        }
        let Some(event) = self.admit(&message, slot, found) else {
            self.return_to_host(sequence, octets);
            return Ok(EventOutcome::Ended(false));
        };
        let repeat_key = message.repeat_key();
        self.waited = clock().since(message.queued_at(arrived)).0;
        let event = event.or_else(|| message.into_event());
        let Some(event) = event else { return Ok(EventOutcome::Ended(false)) };
        let answered = matches!(&event, Event::Smf { response: SmfResponse::Created(_) | SmfResponse::Done(_), .. });
        let numbers = (sequence, input);
        let stepped =
            catch_unwind(AssertUnwindSafe(|| self.step((nf, slot), numbers, (event, arrived), (repeat_key, answered))));
        match stepped {
            Ok(result) => result,
            Err(_) => {
                // The panic was logged with its location. Nothing was committed, and no other UE is
                // affected.
                tracing::error!("bug: step panicked; skipping its event");
                match self.region.is_guest(slot) {
                    true => Ok(EventOutcome::LeftToOwner),
                    false => Ok(EventOutcome::Ended(false)),
                }
            }
        }
    }

    /// Checks that an event belongs to the UE of the slot. Returns the decoded first message of a
    /// connection. Returns `None` if the host has to handle the event.
    fn admit(&mut self, message: &EventMessage<'_>, slot: Slot, found: LoadResult) -> Option<Option<Event<'static>>> {
        let initial = |assoc: AssocId, pdu: &[u8]| match access::ue_message(assoc.dialect(), pdu) {
            Ok((_, UeMessage::Initial(message))) => Some(message),
            _ => None,
        };
        match (message, found) {
            (EventMessage::Initial { assoc, created, pdu }, LoadResult::Nothing | LoadResult::Context { .. }) => {
                let message = initial(*assoc, pdu)?;
                if created.is_none() && !engine::is_authentic(self.contexts.current()?, &message.nas) {
                    return None;
                }
                if self.region.is_guest(slot) && has_connection(self.contexts.current()?, *assoc, message.ran_id) {
                    // The owner ends the former connection with this number first.
                    return None;
                }
                self.contexts.fresh(&self.region, slot, found)?;
                Some(Some(Event::Initial { assoc: *assoc, message }))
            }
            (EventMessage::Congested { assoc, pdu }, LoadResult::Nothing | LoadResult::Context { .. }) => {
                let message = initial(*assoc, pdu)?;
                // Naming a UE is not enough to get it rejected.
                if self.contexts.current().is_some_and(|ue| !engine::is_authentic(ue, &message.nas)) {
                    return None;
                }
                self.contexts.fresh(&self.region, slot, found)?;
                Some(Some(Event::Congested { assoc: *assoc, message }))
            }
            (EventMessage::UpfRequest { upf, seid, message }, LoadResult::Context { .. }) => {
                // A UPF reports on its own sessions: only for these it knows the SEID
                // legitimately. It sends packets from its end of their tunnels.
                let mut sessions = self.contexts.current()?.sessions.iter();
                let has = match gtpu::is_g_pdu(message) {
                    true => sessions.any(|session| session.uplink.is_some_and(|end| end.address == upf.ip())),
                    false => sessions.any(|session| session.is_at(*upf, *seid)),
                };
                has.then_some(None)
            }
            (_, LoadResult::Context { .. }) => Some(None),
            (_, LoadResult::Nothing | LoadResult::Tombstone { .. }) => None,
        }
    }

    /// Runs and commits the step, and passes its effects to the host unless the database comes
    /// first.
    fn step(
        &mut self,
        (nf, slot): (usize, Slot),
        (sequence, input): (u64, u64),
        (mut event, arrived): (Event<'_>, vireo_types::Instant),
        (repeat_key, answered): (RepeatKey, bool),
    ) -> Result<EventOutcome, StepError> {
        let now = clock();
        let Some(mut loaded) = self.contexts.take() else { return Ok(EventOutcome::Ended(false)) };
        let repeat_key = if self.contexts.are_shared() { repeat_key } else { RepeatKey::No };
        if let RepeatKey::Answer(key) = repeat_key
            && !loaded.complete_request(key)
        {
            // A new owner repeated the request and has processed the response.
            self.contexts.put_back(loaded);
            return Ok(EventOutcome::Ended(false));
        }
        let implied = implied_create_key(&mut event, &loaded, self.contexts.are_shared());
        let before = (!loaded.fresh).then(|| Summary::new(&loaded.ue));
        let ue = &mut loaded.ue;
        let mut old_references = references(ue);
        old_references.push(ue.ltmsi);
        self.ids.free_uncommitted_numbers(slot, |dnn, number, v6| has_address(&self.ids, ue, dnn, number, v6));
        if loaded.fresh && self.ids.shares() {
            // Steps are identified by this number and the LTMSI, which another UE may have had
            // before.
            ue.sequence = u64::from(self.rng.next_u32() >> 4);
        }
        ue.sequence += 1;
        let rng = &mut self.rng;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let mut ids = self.ids.for_step(slot);
        let mut env = Env {
            now,
            arrived: arrived.min(now),
            config: &self.config,
            random: &mut random,
            ids: &mut ids,
            ran: &self.ran,
        };
        let outcome = match stored_transfer_result(&loaded, repeat_key) {
            Some(outcome) => outcome,
            None => engine::step(&mut loaded.ue, event, &mut env),
        };
        self.pace.use_added_time();
        let may_propose = !ids.needs_owner() && outcome.effects.iter().all(Effect::may_be_proposed);
        if self.region.is_guest(slot) && !may_propose {
            return Ok(EventOutcome::LeftToOwner);
        }
        let is_refused = implied.is_some() && outcome.effects.iter().any(is_refusal);
        // The response is still to come and will complete the input.
        let input = if is_refused { 0 } else { input };
        if let (Some(key), false) = (implied, is_refused) {
            loaded.complete_request(key);
        }
        let ue = &loaded.ue;
        let runs = kind::procedure_in_progress(ue).is_some();
        let mut outbox = new_outbox(ue, (now, input), before, &old_references, outcome);
        let deadline = outbox.deadline;
        // A commit record stores the deadline beside its outbox.
        outbox.deadline = deadline.filter(|_| self.contexts.are_private());
        if self.contexts.are_shared() {
            record_for_takeover(&mut loaded, &outbox, repeat_key);
        }
        if self.contexts.are_shared_with_smf() {
            loaded.set_path(commit_path(&outbox.effects, answered));
        }
        let octets = outbox.encode(std::mem::take(&mut self.outbox));
        let mut octets = octets.ok_or(CommitError::TooLarge(0))?;
        // A procedure in progress is pinned to its NF: its later messages are routed there
        // directly.
        let pin = if runs { region_layout::nf_pin(self.worker.number(), nf as u8) } else { 0 };
        let forgets = outbox.forgets();
        let done = self.contexts.commit(
            &mut self.worker,
            loaded,
            forgets,
            CommitTerms { consumed: sequence, deadline, pin },
            &octets,
        );
        octets.clear();
        self.outbox = octets;
        // The procedure ended with this step, or consists of it.
        let ended = !runs;
        match done? {
            StepOutcome::Pending(pending) => Ok(EventOutcome::Waits { pending, ended }),
            StepOutcome::Done(done) => {
                match (done, self.results.on_thread()) {
                    (CommitHandle::Committed(buffer), Some(kept)) => {
                        self.region.clear_notes(slot);
                        let record = Some(StepRecord { outbox, deadline });
                        kept.committed.push((buffer, record));
                    }
                    _ => self.pass_effects(slot, done),
                }
                Ok(EventOutcome::Ended(ended))
            }
        }
    }

    /// Stores results in the database. Returns `None` after a panic; the outcome is determined when
    /// the events are processed again.
    fn store(&mut self, pending: Vec<PendingCommit>) -> Option<Vec<Result<CommitHandle, StepError>>> {
        let stored = catch_unwind(AssertUnwindSafe(|| self.contexts.store(&mut self.worker, pending)));
        // The panic was logged with its location.
        stored.inspect_err(|_| tracing::error!("bug: commit panicked")).ok()
    }

    /// Passes the effects of a committed step to the host.
    fn pass_effects(&mut self, slot: Slot, done: CommitHandle) {
        self.region.clear_notes(slot);
        match done {
            CommitHandle::Committed(buffer) => self.push(true, buffer.to_item()),
            CommitHandle::Private(packet) => self.push(false, packet.to_item()),
        }
    }

    /// Passes an item to the host. Waits while the ring is full.
    fn push(&mut self, committed: bool, item: u64) {
        while !self.results.try_push(&self.region, committed, item) {
            std::thread::yield_now();
            // Only the host is stuck, not this worker.
            self.worker.beat(self.pace.started.elapsed().as_micros() as u64 + 1);
        }
    }

    /// Returns an event to the host that belongs to another UE. Posts a copy: the packet itself is
    /// freed when the event is finished.
    fn return_to_host(&mut self, sequence: u64, octets: &[u8]) {
        match self.worker.packet(sequence, octets) {
            Some(copy) => self.push(false, copy.to_item()),
            None => tracing::warn!("no free packet buffer, event lost; raise state.packets"),
        }
    }
}

/// Returns true if a UE has a connection with this RAN UE NGAP ID.
fn has_connection(ue: &UeContext, node: AssocId, ran_id: RanUeNgapId) -> bool {
    ue.connection.as_ref().is_some_and(|connection| (connection.assoc, connection.ran_id) == (node, ran_id))
}

/// Logs that an event failed. Returns false: no procedure ended by it.
fn log_failed_event(error: &StepError) -> bool {
    tracing::error!(%error, "event not executed");
    false
}

/// Builds the outbox of a step.
fn new_outbox(
    ue: &UeContext,
    (now, input): (vireo_types::Instant, u64),
    before: Option<Summary>,
    old_references: &[Ltmsi],
    outcome: StepOutput,
) -> Outbox {
    let forgets = outcome.effects.contains(&Effect::DeleteContext);
    let references = references(ue);
    let seid = |effect: &Effect| match effect {
        // Nothing answers a packet.
        Effect::Pfcp { message, .. } if gtpu::is_g_pdu(message) => Some(None),
        Effect::Pfcp { session, upf, .. } => {
            Some(ue.sessions.iter().find(|s| s.index == *session).map(|s| s.seid_at(*upf)))
        }
        _ => None,
    };
    Outbox {
        at: now,
        ltmsi: ue.ltmsi,
        key: idempotency_key(ue.ltmsi, ue.sequence as u32),
        input,
        before,
        after: (!forgets).then(|| Summary::new(ue)),
        settled: old_references.iter().filter(|old| !references.contains(old) && **old != ue.ltmsi).copied().collect(),
        seids: outcome.effects.iter().filter_map(seid).collect(),
        effects: outcome.effects,
        notes: outcome.notes,
        deadline: ue.deadline(),
    }
}

/// Returns true if a session of the UE has a number of a data network's table.
fn has_address(ids: &IdAllocator, ue: &UeContext, dnn: &Dnn, number: u32, ipv6: bool) -> bool {
    ue.sessions.iter().any(|s| s.terms.dnn == *dnn && ids.has_number(dnn, number, ipv6, &s.address))
}

/// Returns the LTMSIs other than its own by which peers still address a context.
pub(crate) fn references(ue: &UeContext) -> Vec<Ltmsi> {
    let connections = ue.amf_ids().map(|id| id.ltmsi());
    let sessions = ue.sessions.iter().flat_map(|s| s.seids()).map(|seid| seid.ltmsi());
    connections.chain(sessions).filter(|l| *l != ue.ltmsi).collect()
}

#[cfg(test)]
pub(crate) mod tests;
