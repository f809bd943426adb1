//! A worker process of a host: network functions without state. It takes a UE from the queue of one of its NFs, loads
//! the UE's context, runs the step, commits, and hands what is to be done to the host. It has no sockets, files or
//! locks; killed at any instruction it has changed nothing of a UE or one record (DESIGN decisions 3 and 4).

mod batch;
pub(crate) mod context_database;
mod contexts;
pub(crate) mod event_message;
pub(crate) mod ids;
pub(crate) mod outbox;
pub(crate) mod ran;
pub(crate) mod region_layout;

pub(crate) use contexts::OUTBOX;

use crate::clock::{self, clock};
use crate::metrics::Transaction;
use crate::privileges::{self, Profile};
use crate::supervisor::{self, EnlistError};
use context_database::{ContextDatabaseConfig, ContextDatabaseError, PendingSmfRequest};
use contexts::{CommitHandle, CommitPath, Contexts, LoadResult, LoadedContext, PendingCommit, StepError, StepOutcome};
use event_message::{EventMessage, RepeatKey};
use ids::IdAllocator;
use outbox::{Outbox, Summary};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use region_layout::RegionLayout;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vireo_core::Env;
use vireo_core::config::CoreConfig;
use vireo_core::context::UeContext;
use vireo_core::engine::{self, Event};
use vireo_core::n2;
use vireo_core::sba::{N1N2TransferResult, SmfResponse};
use vireo_core::schedule::deficit::Deficit;
use vireo_core::schedule::kind;
use vireo_core::step::{Effect, StepOutput};
use vireo_store::CommitError;
use vireo_store::region::{Bell, Packet, Region, Ring, Sender, Slot, Worker};
use vireo_types::{Dnn, Ltmsi};

/// How long an event is tried again that the database of contexts was not there for: longer than a Redis Cluster takes to elect a
/// master, shorter than a UE waits for an answer.
const DATABASE_BACK: Duration = Duration::from_secs(8);
/// After how long.
const AGAIN: Duration = Duration::from_millis(20);
/// How long a worker without work sleeps at most before it looks whether the host wants it to end.
const SLEEP: Duration = Duration::from_secs(1);

/// How often a worker leaves memory to others that it does not need.
const TRIM: Duration = Duration::from_secs(1);

/// Events that a worker serves before it looks again what shares its NFs have: well within the time in which the host
/// looks at the queues.
const SHARES_HOLD: u32 = 16;

/// Events of one UE that are carried out in a row when other UEs wait.
const IN_A_ROW: u64 = 16;

/// Items that the host is waked for once, as long as the worker has more to do.
const UNTOLD: u32 = 8;

/// What a worker is told at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerConfig {
    /// What decisions depend on.
    pub(crate) core: CoreConfig,
    /// NFs that a worker has at most.
    pub(crate) nfs: u8,
    /// The key of the 5G-TMSIs.
    pub(crate) tmsi_key: [u8; 16],
    /// The part of the pools of addresses that this host gives out, and how many parts there are.
    pub(crate) part: (u16, u16),
    /// Where contexts are.
    pub(crate) location: Location,
    /// What it logs from now on; `None`: what it was started with.
    pub(crate) log_level: Option<String>,
}

impl WorkerConfig {
    /// Tells workers that start from now on, and those that run.
    pub(crate) fn publish(&self, region: &Region) -> Result<(), String> {
        region.publish(region_layout::BULLETIN_CONFIG, &self.octets()?).map_err(|error| error.to_string())
    }

    /// As they are published.
    pub(crate) fn octets(&self) -> Result<Vec<u8>, String> {
        postcard::to_stdvec(self).map_err(|error| error.to_string())
    }

    /// What was published last, and its version.
    fn read(region: &Region) -> Option<(Self, u64)> {
        let mut octets = Vec::new();
        let version = region.read_published(region_layout::BULLETIN_CONFIG, &mut octets);
        Some((postcard::from_bytes(&octets).ok()?, version))
    }
}

/// How a worker process sets what it logs.
pub type SetLogLevel = fn(&str);

/// Where a worker has contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Location {
    /// In the region.
    Region,
    /// In its own memory (a stateful core, for comparison).
    Worker,
    /// In a database.
    Central(ContextDatabaseConfig),
}

/// Why a worker does not run.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It was not started by a host, or the region does not take it.
    #[error(transparent)]
    Enlist(#[from] EnlistError),
    /// The host.
    #[error("the host has left no instructions in the state region: a worker is started by `vireo run` alone")]
    Instructions,
}

/// Runs this process as the worker that a host started it as, until the host wants it to end.
///
/// # Errors
///
/// When no host started it, or the host left no instructions.
pub fn run(set_log_level: SetLogLevel) -> Result<(), WorkerError> {
    let worker = supervisor::join_region()?;
    // For whoever looks at the machine's processes; nothing depends on it.
    if let Ok(name) = CString::new(format!("vireo-nf-{}", worker.number())) {
        let _ = rustix::thread::set_name(&name);
    }
    let region = worker.region().clone();
    let (instructions, version) = WorkerConfig::read(&region).ok_or(WorkerError::Instructions)?;
    clock::adopt(region.shared_word(region_layout::BOARD_CLOCK).load(Ordering::Acquire));
    let profile = match &instructions.location {
        Location::Region | Location::Worker => Profile::Region,
        Location::Central(_) => Profile::Database,
    };
    let mut nf = NfWorker::new(region, worker, (instructions, version), set_log_level);
    // Before the first octet of a peer is looked at.
    privileges::confine(profile);
    nf.run();
    Ok(())
}

/// What an event has come to.
enum EventOutcome {
    /// It is carried out, or void; whether a procedure ended by it.
    Ended(bool),
    /// A database is to have what it has left.
    Waits {
        /// That.
        pending: Box<PendingCommit>,
        /// Whether a procedure ended by it.
        ended: bool,
    },
}

/// A worker.
struct NfWorker {
    region: Region,
    worker: Worker,
    plan: RegionLayout,
    config: CoreConfig,
    /// The version of the instructions that this is of.
    instructed: u64,
    set_log_level: SetLogLevel,
    contexts: Contexts,
    queues: Vec<Ring>,
    committed: Sender,
    returned: Sender,
    bell: Bell,
    host: Bell,
    /// Items that the host was not waked for yet.
    untold: u32,
    deficit: Deficit,
    shares: Vec<f64>,
    ids: IdAllocator,
    ran: ran::RanNodeView,
    rng: StdRng,
    packet: Vec<u8>,
    outbox: Vec<u8>,
    /// How long the last event had waited, in microseconds.
    waited: u64,
    started: Instant,
    /// Since when the database of contexts was not there.
    database_down: Option<Instant>,
}

impl NfWorker {
    fn new(
        region: Region,
        worker: Worker,
        (instructions, instructed): (WorkerConfig, u64),
        set_log_level: SetLogLevel,
    ) -> Self {
        instructions.log_level.as_deref().into_iter().for_each(set_log_level);
        let plan = RegionLayout { nfs: instructions.nfs };
        let number = worker.number();
        let rng = StdRng::from_os_rng();
        NfWorker {
            plan,
            contexts: Contexts::new(instructions.location),
            queues: (0..plan.nfs).map(|nf| plan.queue(&region, number, nf)).collect(),
            committed: region.sender(plan.committed(number)).expect("the region has rings for all its workers"),
            returned: region.sender(plan.returned(number)).expect("the region has rings for all its workers"),
            bell: plan.bell(&region, number),
            host: plan.bell(&region, region_layout::HOST),
            untold: 0,
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
            started: Instant::now(),
            database_down: None,
            region,
            worker,
        }
    }

    fn run(&mut self) {
        let (mut now, mut trimmed) = (self.started, self.started);
        let mut until_look = 0;
        loop {
            self.bump_heartbeat(now);
            if until_look == 0 {
                if now.duration_since(trimmed) > TRIM {
                    trimmed = now;
                    self.worker.trim();
                }
                self.look_at_shares();
                self.look_at_instructions();
                until_look = SHARES_HOLD;
            }
            let queues = &self.queues;
            match self.deficit.next(&self.shares, |nf| !queues[nf].is_empty()) {
                Some(nf) => {
                    let began = now;
                    let procedures = self.serve(nf);
                    until_look = until_look.saturating_sub(procedures.0.max(1) as u32);
                    now = Instant::now();
                    let nanos = now.duration_since(began).as_nanos() as u64;
                    self.deficit.ran(nf, nanos);
                    self.account(nf, nanos, procedures);
                }
                None => {
                    if self.region.shared_word(region_layout::BOARD_STOP).load(Ordering::Acquire) != 0 {
                        return;
                    }
                    self.tell();
                    let queues = &self.queues;
                    self.bell.wait(SLEEP, || queues.iter().any(|queue| !queue.is_empty()).then_some(()));
                    now = Instant::now();
                    until_look = 0;
                }
            }
        }
    }

    /// Says that it is alive.
    fn bump_heartbeat(&self, now: Instant) {
        self.worker.beat(now.duration_since(self.started).as_micros() as u64 + 1);
    }

    /// Takes a configuration that was read again. What else there is in the instructions never changes.
    fn look_at_instructions(&mut self) {
        if self.region.published_version(region_layout::BULLETIN_CONFIG) == self.instructed {
            return;
        }
        if let Some((instructions, version)) = WorkerConfig::read(&self.region) {
            (self.config, self.instructed) = (instructions.core, version);
            instructions.log_level.as_deref().into_iter().for_each(self.set_log_level);
            for dnn in &self.config.dnns {
                tracing::debug!(dnn = dnn.name.as_str(), dns = ?dnn.dns, mtu = dnn.mtu, "sessions are told this from now on");
            }
        }
    }

    /// What part of a core each NF has by now.
    fn look_at_shares(&mut self) {
        let number = self.worker.number();
        for (nf, share) in self.shares.iter_mut().enumerate() {
            let word = self.region.shared_word(self.plan.nf_word(number, nf as u8, region_layout::NF_SHARE));
            *share = f64::from_bits(word.load(Ordering::Relaxed));
        }
    }

    /// What an NF has done, for the host to see.
    fn account(&self, nf: usize, nanos: u64, (events, procedures): (u64, u64)) {
        let add = |word: u32, more: u64| {
            // This worker alone writes it.
            let word = self.region.shared_word(self.plan.nf_word(self.worker.number(), nf as u8, word));
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(region_layout::NF_BUSY, nanos);
        add(region_layout::NF_EVENTS, events);
        add(region_layout::NF_PROCEDURES, procedures);
        let word = self.plan.nf_word(self.worker.number(), nf as u8, region_layout::NF_WAITED);
        // The last of a queue says nothing of what will come into it.
        let waited = if self.queues[nf].is_empty() { 0 } else { self.waited };
        self.region.shared_word(word).store(waited, Ordering::Relaxed);
    }

    /// Takes a UE from an NF's queue, or several, and does all that waits for them. Returns how many events and ended procedures
    /// that were.
    fn serve(&mut self, nf: usize) -> (u64, u64) {
        self.publish_serving(region_layout::SERVING);
        let together = self.contexts.serves_groups() && !self.is_to_serve_alone();
        let done = if together { self.serve_batch(nf) } else { self.serve_one(nf) };
        self.publish_serving(0);
        done
    }

    /// Whether a worker has died with several UEs in hand of late: if one of them was it, it is found out so.
    fn is_to_serve_alone(&self) -> bool {
        let until = self.region.shared_word(region_layout::BOARD_ALONE).load(Ordering::Relaxed);
        until != 0 && clock().0 < until
    }

    /// Says what it is serving.
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
            // A UE that is sent events without end holds up no others: it goes on behind them.
            if next.is_some() && events % IN_A_ROW == 0 {
                self.bump_heartbeat(Instant::now());
                if self.queues[nf].push(taken.item).is_ok() {
                    break;
                }
            }
        }
        self.queues[nf].acknowledge(&self.worker, taken);
        (events, procedures)
    }

    /// The first event of a UE that was taken.
    fn first(&mut self, slot: Slot) -> Option<Packet> {
        let first = self.region.next(&self.worker, slot);
        if first.is_some() && self.is_poisoned(slot) {
            tracing::error!("an event has ended worker after worker: it is passed over; please report it");
            return self.worker.finish(slot);
        }
        first
    }

    /// Whether the UE's oldest event is to be passed over; said once.
    fn is_poisoned(&self, slot: Slot) -> bool {
        let mine = u64::from(slot.number()) + 1;
        region_layout::poison_words().any(|word| {
            let word = self.region.shared_word(word);
            word.load(Ordering::Relaxed) == mine && word.swap(0, Ordering::AcqRel) == mine
        })
    }

    /// One event of a UE. Whether a procedure ended by it.
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
            let Some((arrived, input, parcel)) = EventMessage::decode(octets) else {
                tracing::error!("an event does not decode: it is passed over; please report it");
                return false;
            };
            let transaction = parcel.transaction();
            let begun = self.begin((nf, slot), (sequence, input), (arrived, parcel), octets);
            let ended = begun.and_then(|begun| match begun {
                EventOutcome::Ended(ended) => Ok(ended),
                EventOutcome::Waits { pending, ended } => {
                    match self.store(vec![*pending]).and_then(|mut done| done.pop()) {
                        Some(done) => {
                            self.committed(slot, done?);
                            Ok(ended)
                        }
                        None => Ok(false),
                    }
                }
            });
            self.count_asked(|_| transaction);
            match ended {
                Err(error) if error.passes() && self.waits_for_database() => {
                    tracing::debug!(%error, "an event waits for the database");
                    self.tell();
                    std::thread::sleep(AGAIN);
                    self.bump_heartbeat(Instant::now());
                }
                Err(error) => return not_carried_out(&error),
                Ok(ended) => {
                    self.database_down = None;
                    return ended;
                }
            }
        }
    }

    /// Counts what the database was asked since this was called last: the question of this place among them was for that transaction.
    fn count_asked(&mut self, transaction: impl Fn(usize) -> Transaction) {
        for (place, (operation, took)) in self.contexts.asked().enumerate() {
            let [count, micros] = region_layout::state_words(transaction(place), operation);
            self.region.shared_word(count).fetch_add(1, Ordering::Relaxed);
            self.region.shared_word(micros).fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// Whether an event is tried again that the database was not there for: for a while, as nobody sends it once more.
    fn waits_for_database(&mut self) -> bool {
        self.database_down.get_or_insert_with(Instant::now).elapsed() < DATABASE_BACK
    }

    /// Loads what there is of the UE of an event and carries it out.
    fn begin(
        &mut self,
        (nf, slot): (usize, Slot),
        (sequence, input): (u64, u64),
        (arrived, parcel): (vireo_types::Instant, EventMessage<'_>),
        octets: &[u8],
    ) -> Result<EventOutcome, StepError> {
        let found = match self.contexts.load(&self.region, &mut self.worker, slot) {
            Ok(found) => found,
            Err(error) => {
                if matches!(error, StepError::Central(ContextDatabaseError::Foreign))
                    && matches!(parcel, EventMessage::Transfer { .. })
                {
                    // The SMF asks who has the UE now.
                    self.give_back(sequence, octets);
                }
                return Err(error);
            }
        };
        if let Some(buffer) = self.contexts.found() {
            self.hand_over(buffer.to_item());
        }
        if let LoadResult::Context { consumed, unsent } | LoadResult::Tombstone { consumed, unsent } = found
            && sequence <= consumed
        {
            // Somebody who died carried it out: what is to be sent is offered again, and repeats are dropped there.
            if let Some(buffer) = unsent {
                self.hand_over(buffer.to_item());
            }
            return Ok(EventOutcome::Ended(false));
        }
        let Some(event) = self.admit(&parcel, slot, found) else {
            self.give_back(sequence, octets);
            return Ok(EventOutcome::Ended(false));
        };
        let again = parcel.again();
        let answered =
            matches!(&parcel, EventMessage::Smf { answer: SmfResponse::Created(_) | SmfResponse::Done(_), .. });
        let event = event.or_else(|| parcel.into_event());
        let Some(event) = event else { return Ok(EventOutcome::Ended(false)) };
        let numbers = (sequence, input);
        let stepped =
            catch_unwind(AssertUnwindSafe(|| self.step((nf, slot), numbers, (event, arrived), (again, answered))));
        match stepped {
            Ok(result) => result,
            Err(_) => {
                // The panic has told its place; nothing was committed, and no other UE is touched.
                tracing::error!("a step has panicked: its event is passed over; please report it");
                Ok(EventOutcome::Ended(false))
            }
        }
    }

    /// Whether an event is for the UE of the slot; with it the first message of a connection, read. `None`: the host
    /// has to deal with it.
    fn admit(&mut self, parcel: &EventMessage<'_>, slot: Slot, found: LoadResult) -> Option<Option<Event<'static>>> {
        let initial = |pdu: &[u8]| match n2::ue_message(pdu) {
            Ok((_, n2::UeMessage::Initial(message))) => Some(message),
            _ => None,
        };
        match (parcel, found) {
            (EventMessage::Initial { assoc, named, pdu }, LoadResult::Nothing | LoadResult::Context { .. }) => {
                let message = initial(pdu)?;
                if *named && !engine::is_authentic(self.contexts.current()?, &message.nas) {
                    return None;
                }
                self.contexts.fresh(&self.region, slot, found)?;
                Some(Some(Event::Initial { assoc: *assoc, message }))
            }
            (EventMessage::Congested { assoc, pdu }, LoadResult::Nothing | LoadResult::Context { .. }) => {
                let message = initial(pdu)?;
                // Nobody turns a UE away by naming it.
                if self.contexts.current().is_some_and(|ue| !engine::is_authentic(ue, &message.nas)) {
                    return None;
                }
                self.contexts.fresh(&self.region, slot, found)?;
                Some(Some(Event::Congested { assoc: *assoc, message }))
            }
            (EventMessage::Pfcp { upf, seid, request: true, .. }, LoadResult::Context { .. }) => {
                // A UPF reports of sessions that it has: it knows the SEIDs of no others by right.
                let has = self.contexts.current()?.sessions.iter().any(|session| session.is_at(*upf, *seid));
                has.then_some(None)
            }
            (_, LoadResult::Context { .. }) => Some(None),
            (_, LoadResult::Nothing | LoadResult::Tombstone { .. }) => None,
        }
    }

    /// Decides, commits, and hands over what is to be done, if no database is to have it first.
    fn step(
        &mut self,
        (nf, slot): (usize, Slot),
        (sequence, input): (u64, u64),
        (mut event, arrived): (Event<'_>, vireo_types::Instant),
        (again, answered): (RepeatKey, bool),
    ) -> Result<EventOutcome, StepError> {
        let now = clock();
        self.waited = now.since(arrived).0;
        let Some(mut hand) = self.contexts.take() else { return Ok(EventOutcome::Ended(false)) };
        let again = if self.contexts.are_shared() { again } else { RepeatKey::No };
        if let RepeatKey::Answer(key) = again
            && !hand.is_answered(key)
        {
            // It was asked once more by who took over, and had the answer.
            self.contexts.put_back(hand);
            return Ok(EventOutcome::Ended(false));
        }
        let implied = implied(&mut event, &hand, self.contexts.are_shared());
        let before = (!hand.fresh).then(|| Summary::of(&hand.ue));
        let ue = &mut hand.ue;
        let mut old_references = references(ue);
        old_references.push(ue.ltmsi);
        self.ids.settle_taken(slot, |dnn, number, v6| has_address(&self.ids, ue, dnn, number, v6));
        if hand.fresh && self.ids.shares() {
            // Its steps are named by it and the LTMSI, which was another UE's before.
            ue.sequence = u64::from(self.rng.next_u32() >> 4);
        }
        ue.sequence += 1;
        let rng = &mut self.rng;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let mut ids = self.ids.of(slot);
        let mut env = Env {
            now,
            arrived: arrived.min(now),
            config: &self.config,
            random: &mut random,
            ids: &mut ids,
            ran: &self.ran,
        };
        let outcome = match taken_before(&hand, again) {
            Some(outcome) => outcome,
            None => engine::step(&mut hand.ue, event, &mut env),
        };
        let is_refused = implied.is_some() && outcome.effects.iter().any(is_refusal);
        // Then its answer is still to come, and the input is carried out by that.
        let input = if is_refused { 0 } else { input };
        if let (Some(key), false) = (implied, is_refused) {
            hand.is_answered(key);
        }
        let ue = &hand.ue;
        let runs = kind::procedure_in_progress(ue).is_some();
        let mut outbox = leave(ue, (now, input), before, &old_references, outcome);
        let deadline = outbox.deadline;
        // A record has it beside its outbox.
        outbox.deadline = deadline.filter(|_| self.contexts.are_private());
        if self.contexts.are_shared() {
            remember(&mut hand, &outbox, again);
        }
        if self.contexts.are_of_smf() {
            hand.goes(way(&outbox.effects, answered));
        }
        let octets = outbox.encode(std::mem::take(&mut self.outbox));
        let mut octets = octets.ok_or(CommitError::TooLarge(0))?;
        // A running procedure stays with its NF: later messages of it come straight here.
        let pin = if runs { crate::host::pin(self.worker.number(), nf as u8) } else { 0 };
        let forgets = outbox.forgets();
        let done = self.contexts.commit(&mut self.worker, hand, forgets, (sequence, deadline, pin), &octets);
        octets.clear();
        self.outbox = octets;
        // Ended now, or done in one step.
        let ended = !runs;
        match done? {
            StepOutcome::Pending(pending) => Ok(EventOutcome::Waits { pending, ended }),
            StepOutcome::Done(done) => {
                self.committed(slot, done);
                Ok(EventOutcome::Ended(ended))
            }
        }
    }

    /// What steps have left that a database is to have becomes true; `None`: that has panicked, and what has become of it is found
    /// out when their events are carried out again.
    fn store(&mut self, pending: Vec<PendingCommit>) -> Option<Vec<Result<CommitHandle, StepError>>> {
        let stored = catch_unwind(AssertUnwindSafe(|| self.contexts.store(&mut self.worker, pending)));
        // The panic has told its place.
        stored.inspect_err(|_| tracing::error!("a commit has panicked; please report it")).ok()
    }

    /// What a step has left is true: its effects leave.
    fn committed(&mut self, slot: Slot, done: CommitHandle) {
        self.region.clear_taken(slot);
        match done {
            CommitHandle::Committed(buffer) => self.hand_over(buffer.to_item()),
            CommitHandle::Private(packet) => self.push(false, packet.to_item()),
        }
    }

    fn hand_over(&mut self, item: u64) {
        self.push(true, item);
    }

    /// Puts an item into a ring to the host, which always empties it.
    fn push(&mut self, committed: bool, item: u64) {
        let ring = if committed { &mut self.committed } else { &mut self.returned };
        while ring.push(item).is_err() {
            self.host.ring();
            std::thread::yield_now();
            // It is the host that does not get on.
            self.worker.beat(self.started.elapsed().as_micros() as u64 + 1);
        }
        self.untold += 1;
        if self.untold >= UNTOLD {
            self.tell();
        }
    }

    /// Wakes the host for what it has been given.
    fn tell(&mut self) {
        if std::mem::take(&mut self.untold) > 0 {
            self.host.ring();
        }
    }

    /// Hands an event back that is not for the UE it was posted to. A copy: the packet itself is freed when it is
    /// finished.
    fn give_back(&mut self, sequence: u64, octets: &[u8]) {
        match self.worker.packet(sequence, octets) {
            Some(copy) => self.push(false, copy.to_item()),
            None => tracing::warn!("no packet is free: an event is lost; make state.packets larger"),
        }
    }
}

/// Says that an event has come to nothing: no procedure ended by it.
fn not_carried_out(error: &StepError) -> bool {
    tracing::error!(%error, "an event was not carried out");
    false
}

/// The question that a transfer says to answer, by its key. Only one of this UE that is open is answered by it.
fn implied(event: &mut Event<'_>, hand: &LoadedContext, are_shared: bool) -> Option<u64> {
    let Event::Transfer(transfer) = event else { return None };
    let created = transfer.created.as_mut()?;
    let (asker, ue) = (outbox::asker(created.key), &hand.ue);
    let is_ours = || asker == ue.ltmsi || references(ue).contains(&asker);
    created.open &= if are_shared { hand.has_asked(created.key) } else { is_ours() };
    Some(created.key)
}

fn is_refusal(effect: &Effect) -> bool {
    matches!(effect, Effect::N1N2TransferReply { result: N1N2TransferResult::Unknown, .. })
}

/// The answer to a transfer that was taken before: it is not carried out again.
fn taken_before(hand: &LoadedContext, again: RepeatKey) -> Option<StepOutput> {
    let RepeatKey::Transfer(key, token) = again else { return None };
    let result = hand.result_of(key)?;
    Some(StepOutput { effects: vec![Effect::N1N2TransferReply { token, result, carried: None }], notes: Vec::new() })
}

/// How what a step has left becomes true: one that asks the SMF and does nothing else has that commit it, and what follows from
/// a good answer alone, which nobody is told of, needs no commit of its own.
fn way(effects: &[Effect], answered: bool) -> CommitPath {
    match effects {
        [Effect::SmfRequest { .. }] => CommitPath::BySmf,
        [] if answered => CommitPath::Deferred,
        _ => CommitPath::Committed,
    }
}

/// Notes in a UE's record what it asks and what it has taken, for who may go on with it.
fn remember(hand: &mut LoadedContext, outbox: &Outbox, again: RepeatKey) {
    for (n, effect) in outbox.effects.iter().enumerate() {
        match (effect, again) {
            (Effect::SmfRequest { number, ask, carried }, _) => {
                let (ask, carried) = (ask.clone(), carried.clone());
                hand.asks(PendingSmfRequest { key: outbox.key_of(n), number: *number, ask, carried });
            }
            // What takes an SM context back is asked for it again.
            (Effect::N1N2TransferReply { token, result, carried: None }, RepeatKey::Transfer(key, of))
                if *token == of && *result != N1N2TransferResult::Unknown && hand.result_of(key).is_none() =>
            {
                hand.takes(key, *result);
            }
            _ => {}
        }
    }
}

/// What a step leaves for the host.
fn leave(
    ue: &UeContext,
    (now, input): (vireo_types::Instant, u64),
    before: Option<Summary>,
    old_references: &[Ltmsi],
    outcome: StepOutput,
) -> Outbox {
    let forgets = outcome.effects.contains(&Effect::Forget);
    let references = references(ue);
    let seid = |effect: &Effect| match effect {
        Effect::Pfcp { session, upf, .. } => {
            Some(ue.sessions.iter().find(|s| s.index == *session).map(|s| s.seid_at(*upf)))
        }
        _ => None,
    };
    Outbox {
        at: now,
        ltmsi: ue.ltmsi,
        key: outbox::key(ue.ltmsi, ue.sequence as u32),
        input,
        before,
        after: (!forgets).then(|| Summary::of(ue)),
        settled: old_references.iter().filter(|old| !references.contains(old) && **old != ue.ltmsi).copied().collect(),
        seids: outcome.effects.iter().filter_map(seid).collect(),
        effects: outcome.effects,
        notes: outcome.notes,
        deadline: ue.deadline(),
    }
}

/// Whether a session of the UE has a number of a data network's table.
fn has_address(ids: &IdAllocator, ue: &UeContext, dnn: &Dnn, number: u32, ipv6: bool) -> bool {
    ue.sessions.iter().any(|s| s.dnn == *dnn && ids.is_of(dnn, number, ipv6, &s.address))
}

/// The numbers other than its own that a context is still reached by.
pub(crate) fn references(ue: &UeContext) -> Vec<Ltmsi> {
    let connections = ue.amf_ids().map(|id| id.ltmsi());
    let sessions = ue.sessions.iter().flat_map(|s| s.seids()).map(|seid| seid.ltmsi());
    connections.chain(sessions).filter(|l| *l != ue.ltmsi).collect()
}

#[cfg(test)]
pub(crate) mod tests;
