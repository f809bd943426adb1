//! Where a worker has the contexts of its UEs: in the region (the design), or, to compare that with, in its own memory (a
//! stateful core, which loses them with the process) or in a database.

use super::Location;
use super::central::{Asked, Central, CentralError, Course, Elsewhere, Stored};
use super::outbox::{self, Outbox};
use crate::clock::clock;
use crate::metrics::StateOperation;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};
use vireo_core::chain::Transferred;
use vireo_core::config::StatePersist;
use vireo_core::context::{self, Parts, UeContext};
use vireo_core::replica;
use vireo_core::turn::Effect;
use vireo_store::region::{Buffer, Packet, Record, Region, Slot, Snapshot, Worker};
use vireo_store::{CommitError, Version};

/// The mark of a packet that is an outbox, in its sequence number beside the slot's.
pub(crate) const OUTBOX: u64 = 1 << 63;
/// How long a stateful worker waits for room for an outbox: less than after which it would be taken for stuck.
const ROOM_WITHIN: Duration = Duration::from_millis(300);

/// What there is of a UE.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// Nothing yet.
    Nothing,
    /// Its context.
    Context {
        /// The last input carried out.
        consumed: u64,
        /// The record whose effects have not left.
        unsent: Option<Buffer>,
    },
    /// Its context has gone; the host is about to take the slot back.
    Tombstone {
        /// The last input carried out.
        consumed: u64,
        /// The record whose effects have not left.
        unsent: Option<Buffer>,
    },
}

/// Where contexts are.
#[derive(Debug, Default)]
enum Place {
    /// In the region.
    #[default]
    Region,
    /// In this worker's memory.
    Private(FxHashMap<Slot, Box<Hand>>),
    /// In a database; with those that a procedure is under way over, where that keeps them here.
    Central { central: Box<Central>, held: Option<FxHashMap<Slot, Box<Hand>>> },
}

/// Why a step is void.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The region.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The database.
    #[error(transparent)]
    Central(#[from] CentralError),
}

impl StepError {
    /// Whether the same may succeed later.
    pub(super) fn passes(&self) -> bool {
        matches!(self, StepError::Central(CentralError::Database(error)) if error.passes())
    }
}

/// A commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    /// The record, for the egress.
    Committed(Buffer),
    /// A packet with the outbox.
    Private(Packet),
}

/// UEs whose contexts a worker keeps decoded; what is not kept is read from the region.
const KEPT: usize = 1024;

/// A UE's context in a worker's hands. It stays where it is while it is worked on, kept and found again.
#[derive(Debug)]
pub(super) struct Hand {
    slot: Slot,
    pub(super) ue: UeContext,
    /// Whether there was none.
    pub(super) fresh: bool,
    /// What the next record is made from.
    parts: Option<Parts>,
    /// What was committed last, if that was done here.
    record: Option<Snapshot>,
    /// The last input carried out.
    consumed: u64,
    /// Of one in a database.
    stored: InDatabase,
}

/// What is known of a context in a database.
#[derive(Debug, Default)]
struct InDatabase {
    /// Its record; `None` before the first commit.
    elsewhere: Option<Elsewhere>,
    version: Version,
    course: Course,
}

impl Hand {
    fn new(slot: Slot, ue: UeContext, fresh: bool, consumed: u64) -> Box<Self> {
        Box::new(Hand { slot, ue, fresh, parts: None, record: None, consumed, stored: InDatabase::default() })
    }

    /// The SMF has answered a question; whether that is so for the first time.
    pub(super) fn is_answered(&mut self, key: u64) -> bool {
        self.stored.course.is_answered(key)
    }

    /// What became of a transfer that was taken before.
    pub(super) fn result_of(&self, key: u64) -> Option<Transferred> {
        self.stored.course.result_of(key)
    }

    /// A transfer was taken.
    pub(super) fn takes(&mut self, key: u64, result: Transferred) {
        self.stored.course.takes(key, result);
    }

    /// The SMF is asked.
    pub(super) fn asks(&mut self, asked: Asked) {
        self.stored.course.asks(asked);
    }
}

/// A worker's contexts, one of them loaded.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    place: Place,
    /// By slot; valid only as long as the region has the same record.
    kept: Vec<Option<Box<Hand>>>,
    loaded: Option<Box<Hand>>,
    /// What was read from the region last.
    snapshot: Snapshot,
    /// A record that became the region's because of what a database had.
    found: Option<Buffer>,
    /// What the database was asked, and how long each took.
    asked: Vec<(StateOperation, Duration)>,
    buffer: Vec<u8>,
}

/// A packet for what a step wants done. When all are under way, the egress makes room within a moment: the step has changed a context
/// that is nowhere else, so it cannot be given up lightly.
fn private_packet(worker: &mut Worker, sequence: u64, outbox: &[u8]) -> Result<Packet, CommitError> {
    let since = Instant::now();
    loop {
        match worker.packet(sequence, outbox) {
            Some(packet) => return Ok(packet),
            None if since.elapsed() > ROOM_WITHIN => return Err(CommitError::Full),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

impl Contexts {
    pub(super) fn new(location: Location) -> Self {
        let kept = std::iter::repeat_with(|| None).take(KEPT).collect();
        let place = match location {
            Location::Region => Place::Region,
            Location::Worker => Place::Private(FxHashMap::default()),
            Location::Central(config) => {
                let held = (config.records.persist == StatePersist::Procedure).then(FxHashMap::default);
                Place::Central { central: Box::new(Central::new(config)), held }
            }
        };
        Contexts { place, kept, ..Contexts::default() }
    }

    /// Loads what there is of a UE.
    pub(super) fn load(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<Found, StepError> {
        if let Some(hand) = self.loaded.take() {
            // Nothing was done with it.
            self.keep(hand);
        }
        let here = match &mut self.place {
            Place::Private(private) => private.remove(&slot),
            Place::Region => self.kept[place(slot)]
                .take_if(|hand| hand.slot == slot)
                .filter(|hand| hand.record.as_ref().is_some_and(|record| region.is_current(slot, record))),
            Place::Central { .. } => None,
        };
        if let Some(hand) = here {
            // This worker committed it and handed it over.
            let found = Found::Context { consumed: hand.consumed, unsent: None };
            self.loaded = Some(hand);
            return Ok(found);
        }
        if matches!(self.place, Place::Private(_)) || !region.read(slot, &mut self.snapshot) {
            return Ok(Found::Nothing);
        }
        if let Place::Central { central, held } = &mut self.place
            && let Some(elsewhere) = Elsewhere::of(&self.snapshot.context)
        {
            let (consumed, holds) = (self.snapshot.consumed, held.is_some());
            let hand = held.as_mut().and_then(|held| held.remove(&slot));
            if let Some(hand) = hand.filter(|hand| hand.consumed == consumed) {
                self.loaded = Some(hand);
                let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
                return Ok(Found::Context { consumed, unsent });
            }
            let began = Instant::now();
            let stored = central.read(elsewhere.id);
            let owner = central.config().owner;
            self.asked.push((StateOperation::Read, began.elapsed()));
            return match stored? {
                Some((_, stored)) if stored.owner != owner => Err(CentralError::Foreign.into()),
                Some((version, stored)) => self.stored(region, worker, slot, (elsewhere, version, stored)),
                None if holds => self.lost(region, worker, slot),
                None => Err(CentralError::Lost.into()),
            };
        }
        let (consumed, unsent) = (self.snapshot.consumed, self.snapshot.buffer().filter(|_| !self.snapshot.sent));
        if self.snapshot.context.is_empty() {
            return Ok(Found::Tombstone { consumed, unsent });
        }
        self.decoded(slot, consumed, None);
        Ok(Found::Context { consumed, unsent })
    }

    fn decoded(&mut self, slot: Slot, consumed: u64, octets: Option<&[u8]>) {
        match context::decode(octets.unwrap_or(&self.snapshot.context)) {
            Ok(ue) => self.loaded = Some(Hand::new(slot, ue, false, consumed)),
            Err(error) => tracing::error!(%error, "a stored context does not decode: its UE is left alone"),
        }
    }

    /// A UE as the database has it. Where that is ahead of the region, a worker has died in between, and what it wanted done
    /// becomes the region's.
    fn stored(
        &mut self,
        region: &Region,
        worker: &mut Worker,
        slot: Slot,
        (elsewhere, version, stored): (Elsewhere, Version, Stored),
    ) -> Result<Found, StepError> {
        let octets = elsewhere.octets();
        let here = if stored.context.is_empty() { &[][..] } else { &octets };
        // All was carried out that was before another host left it, and nothing since.
        let consumed = if stored.consumed == 0 { elsewhere.base } else { stored.consumed };
        if consumed > self.snapshot.consumed {
            let (deadline, pin, outbox) = (stored.deadline, stored.pin, stored.outbox());
            let record = Record { consumed, deadline, pin, context: here, outbox };
            self.found = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
            region.read(slot, &mut self.snapshot);
        }
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        let Stored { context, course, .. } = stored;
        if context.is_empty() {
            return Ok(Found::Tombstone { consumed, unsent });
        }
        let lost = consumed < self.snapshot.consumed;
        let consumed = consumed.max(self.snapshot.consumed);
        self.decoded(slot, consumed, Some(&context));
        if let Some(hand) = &mut self.loaded {
            hand.stored = InDatabase { elsewhere: Some(elsewhere), version, course };
            if lost {
                // A procedure was under way, and who carried it out has died: what it sent had these names and COUNTs.
                replica::skip(&mut hand.ue);
            }
        }
        Ok(Found::Context { consumed, unsent })
    }

    /// A UE whose first procedure was under way when who carried it out has died: the host takes the slot back, and the UE
    /// begins anew.
    fn lost(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<Found, StepError> {
        let consumed = self.snapshot.consumed;
        let last = Outbox::decode(&self.snapshot.outbox).ok_or(CentralError::Lost)?;
        let forget = Outbox {
            key: outbox::key(last.ltmsi, ((last.key >> 4) as u32).wrapping_add(replica::SKIPPED_STEPS as u32)),
            input: 0,
            before: last.after,
            after: None,
            settled: Vec::new(),
            seids: Vec::new(),
            effects: vec![Effect::Forget],
            notes: Vec::new(),
            ..last
        };
        let octets = forget.encode(Vec::new()).ok_or(CentralError::Lost)?;
        let record = Record { consumed, deadline: None, pin: 0, context: &[], outbox: &octets };
        self.found = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
        region.read(slot, &mut self.snapshot);
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        Ok(Found::Tombstone { consumed, unsent })
    }

    /// A record that the last [`Contexts::load`] has committed for a worker that died: its effects are to leave.
    pub(super) fn found(&mut self) -> Option<Buffer> {
        self.found.take()
    }

    /// What the database was asked since this was asked last.
    pub(super) fn asked(&mut self) -> impl Iterator<Item = (StateOperation, Duration)> {
        self.asked.drain(..)
    }

    /// Whether another host may go on with them from a database: then what is asked and taken is known there, too.
    pub(super) fn are_shared(&self) -> bool {
        matches!(&self.place, Place::Central { central, .. } if central.config().shared)
    }

    /// Nothing was done with what was taken.
    pub(super) fn put_back(&mut self, hand: Box<Hand>) {
        self.loaded = Some(hand);
    }

    /// Whether they are in this worker's memory alone.
    pub(super) fn are_private(&self) -> bool {
        matches!(self.place, Place::Private(_))
    }

    /// The context that is loaded.
    pub(super) fn current(&self) -> Option<&UeContext> {
        self.loaded.as_ref().map(|hand| &hand.ue)
    }

    /// Makes a context where there is none.
    pub(super) fn fresh(&mut self, region: &Region, slot: Slot, found: Found) -> Option<()> {
        if matches!(found, Found::Nothing) {
            self.loaded = Some(Hand::new(slot, UeContext::new(region.ltmsi_of(slot)?), true, 0));
        }
        Some(())
    }

    /// Takes the context that is loaded, for a step over it. One that does not come back by [`Contexts::commit`] is as it
    /// was stored; a stateful worker has lost it.
    pub(super) fn take(&mut self) -> Option<Box<Hand>> {
        let mut hand = self.loaded.take()?;
        // What the perpetual part was, before the step changes it.
        if hand.parts.is_none() && matches!(self.place, Place::Region) {
            let parts = if hand.fresh { Parts::new(&hand.ue) } else { Parts::of(&hand.ue, &self.snapshot.context) };
            hand.parts = parts.ok();
        }
        Some(hand)
    }

    /// Makes what a step did true: from now on it happened. The UE is kept at hand.
    pub(super) fn commit(
        &mut self,
        worker: &mut Worker,
        mut hand: Box<Hand>,
        forgets: bool,
        (consumed, deadline, pin): (u64, Option<vireo_types::Instant>, u64),
        outbox: &[u8],
    ) -> Result<Done, StepError> {
        if matches!(self.place, Place::Private(_)) {
            let slot = u64::from(hand.slot.number());
            let packet = private_packet(worker, OUTBOX | slot, outbox)?;
            if !forgets {
                (hand.fresh, hand.consumed) = (false, consumed);
                self.keep(hand);
            }
            return Ok(Done::Private(packet));
        }
        if matches!(self.place, Place::Central { .. }) {
            return self.commit_elsewhere(worker, hand, forgets, (consumed, deadline, pin), outbox);
        }
        self.buffer.clear();
        let before = hand.record.as_ref().unwrap_or(&self.snapshot);
        if !forgets {
            let encoded = match &mut hand.parts {
                Some(parts) => parts.encode(&hand.ue, &mut self.buffer).map(|_| ()),
                None => context::encode_after(&hand.ue, &before.context, &mut self.buffer),
            };
            encoded.map_err(|_| CommitError::TooLarge(self.buffer.len()))?;
        }
        let record = Record { consumed, deadline, pin, context: &self.buffer, outbox };
        let committed = worker.commit(hand.slot, before, &record)?;
        if !forgets && hand.parts.is_some() {
            hand.record = Some(committed.seen(consumed));
            (hand.fresh, hand.consumed) = (false, consumed);
            self.keep(hand);
        }
        Ok(Done::Committed(committed.buffer))
    }

    /// The same of a context in a database: there, and then in the region; of one that is kept here while a procedure is under
    /// way, in the region alone.
    fn commit_elsewhere(
        &mut self,
        worker: &mut Worker,
        mut hand: Box<Hand>,
        forgets: bool,
        (consumed, deadline, pin): (u64, Option<vireo_types::Instant>, u64),
        outbox: &[u8],
    ) -> Result<Done, StepError> {
        let Place::Central { central, held } = &mut self.place else { return Err(CommitError::Conflict.into()) };
        let (owner, shared) = (central.config().owner, central.config().shared);
        let (slot, ltmsi) = (hand.slot, hand.ue.ltmsi);
        let InDatabase { elsewhere, version, course } = &mut hand.stored;
        let elsewhere = *elsewhere.get_or_insert_with(|| Elsewhere::fresh(ltmsi, owner, consumed));
        let octets = elsewhere.octets();
        course.wants(clock(), outbox, shared);
        if let Some(held) = held.as_mut().filter(|_| pin != 0 && !forgets) {
            // It goes on.
            let record = Record { consumed, deadline, pin, context: &octets, outbox };
            let committed = worker.commit(slot, &self.snapshot, &record)?;
            (hand.fresh, hand.consumed) = (false, consumed);
            held.insert(slot, hand);
            return Ok(Done::Committed(committed.buffer));
        }
        let (version, course) = (*version, std::mem::take(course));
        let mut stored = Stored { owner, consumed, deadline, pin, course, context: Vec::new() };
        if !forgets {
            stored.context = context::encode(&hand.ue, Vec::new()).map_err(|_| CommitError::TooLarge(0))?;
        }
        let began = Instant::now();
        let there = central.commit((elsewhere.id, version), stored);
        self.asked.push((StateOperation::Write, began.elapsed()));
        let there = there?;
        let here = if there.context.is_empty() { &[][..] } else { &octets };
        let (deadline, pin, outbox) = (there.deadline, there.pin, there.outbox());
        let record = Record { consumed, deadline, pin, context: here, outbox };
        let committed = worker.commit(slot, &self.snapshot, &record)?;
        Ok(Done::Committed(committed.buffer))
    }

    fn keep(&mut self, hand: Box<Hand>) {
        if hand.fresh {
            return;
        }
        let slot = hand.slot;
        match &mut self.place {
            Place::Private(private) => drop(private.insert(slot, hand)),
            Place::Region if hand.record.is_some() => self.kept[place(slot)] = Some(hand),
            Place::Central { held: Some(held), .. } => drop(held.insert(slot, hand)),
            Place::Region | Place::Central { .. } => {}
        }
    }
}

fn place(slot: Slot) -> usize {
    slot.number() as usize % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nf::central::{CentralConfig, Claim};
    use crate::state::RecordsConfig;
    use std::process::{Child, Command, Stdio};
    use vireo_store::records::{LIFE, MemoryRecords, Records};
    use vireo_store::region::RegionConfig;
    use vireo_types::Ltmsi;

    /// A Redis of the test's own.
    struct Server(Child, tempfile::TempDir);

    impl Server {
        fn start() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("socket");
            let mut command = Command::new("redis-server");
            command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).stdout(Stdio::null());
            let server = Server(command.spawn().expect("redis-server is installed (make setup)"), directory);
            let config = server.config();
            while crate::nf::central::check(&config).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            server
        }

        fn config(&self) -> CentralConfig {
            let socket = self.1.path().join("socket");
            let records = RecordsConfig::at(&format!("redis+unix://{}", socket.display()));
            CentralConfig { records, owner: 5, shared: false }
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A step over what is loaded, or over a new context.
    fn step(contexts: &mut Contexts, region: &Region, worker: &mut Worker, slot: Slot, input: u64) -> Found {
        let found = contexts.load(region, worker, slot).unwrap();
        contexts.fresh(region, slot, found);
        let mut hand = contexts.take().expect("a context");
        hand.ue.connections += 1;
        contexts.commit(worker, hand, false, (input, None, 0), b"outbox").unwrap();
        found
    }

    /// Where the record of a slot's UE is.
    fn elsewhere(region: &Region, slot: Slot) -> Elsewhere {
        let mut seen = Snapshot::default();
        assert!(region.read(slot, &mut seen));
        Elsewhere::of(&seen.context).expect("the region has no context")
    }

    #[test]
    fn any_worker_goes_on_from_what_the_database_has() {
        let server = Server::start();
        let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
        let (mut host, mut one, mut two) = (region.join(0).unwrap(), region.join(1).unwrap(), region.join(2).unwrap());
        let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
        let contexts = || Contexts::new(Location::Central(server.config()));
        let (mut first, mut second) = (contexts(), contexts());
        use StateOperation::{Read, Write};
        let asked = |contexts: &mut Contexts| contexts.asked().map(|(operation, _)| operation).collect::<Vec<_>>();
        assert!(matches!(step(&mut first, &region, &mut one, slot, 1), Found::Nothing));
        assert_eq!(asked(&mut first), [Write], "there was nothing to read");
        assert!(matches!(step(&mut second, &region, &mut two, slot, 2), Found::Context { consumed: 1, .. }));
        assert_eq!(asked(&mut second), [Read, Write], "a read and a write for each transaction");
        let (mut seen, id) = (Snapshot::default(), elsewhere(&region, slot).id);

        // The first one dies after it has written to the database, and before the region knows.
        let mut central = Central::new(server.config());
        let (version, mut stored) = central.read(id).unwrap().expect("stored");
        assert_eq!((stored.consumed, context::decode(&stored.context).unwrap().connections), (2, 2));
        (stored.consumed, stored.course.wanted[0].outbox) = (3, b"not done".to_vec());
        central.commit((id, version), stored).unwrap();
        let found = second.load(&region, &mut two, slot).unwrap();
        assert!(matches!(found, Found::Context { consumed: 3, unsent: Some(_) }), "{found:?}");
        let buffer = second.found().expect("a record whose effects are to leave");
        assert!(region.read_outbox(buffer, &mut seen) && seen.outbox == b"not done", "it is the region's now");

        // It ends, and dies at the same place: the slot is the host's to free.
        let gone = Stored { owner: 5, consumed: 4, ..Stored::default() };
        central.commit((id, version + 1), gone).unwrap();
        let found = second.load(&region, &mut two, slot).unwrap();
        assert!(matches!(found, Found::Tombstone { consumed: 4, .. }), "{found:?}");
        crate::nf::central::clear(&server.config()).unwrap();
        assert_eq!(central.read(id).unwrap(), None);

        // Another UE's, and it is lost: that is said, and nothing is done in its name.
        let other = host.insert(Ltmsi::from_raw(8)).unwrap();
        step(&mut first, &region, &mut one, other, 1);
        assert!(central.read(elsewhere(&region, other).id).unwrap().is_some());
        crate::nf::central::clear(&server.config()).unwrap();
        let lost = second.load(&region, &mut two, other).unwrap_err();
        assert!(lost.to_string().contains("has lost a UE") && second.current().is_none());
    }

    #[test]
    fn without_a_database_a_step_is_void() {
        let nowhere = CentralConfig { records: RecordsConfig::at("redis://127.0.0.1:1"), owner: 5, shared: false };
        assert!(crate::nf::central::check(&nowhere).unwrap_err().to_string().contains("state.database"));
        let region = Region::create(RegionConfig::new(4, 2, 32 << 20)).unwrap();
        let (mut host, mut worker) = (region.join(0).unwrap(), region.join(1).unwrap());
        let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
        let mut contexts = Contexts::new(Location::Central(nowhere));
        let found = contexts.load(&region, &mut worker, slot).unwrap();
        contexts.fresh(&region, slot, found);
        let hand = contexts.take().unwrap();
        assert!(contexts.commit(&mut worker, hand, false, (1, None, 0), b"outbox").is_err());
        assert!(!region.read(slot, &mut Snapshot::default()), "nothing has happened");
    }

    /// A step of a procedure: its last one, or one after which it goes on.
    fn step_of(
        contexts: &mut Contexts,
        (region, worker): (&Region, &mut Worker),
        slot: Slot,
        (input, pin): (u64, u64),
    ) -> Found {
        let found = contexts.load(region, worker, slot).unwrap();
        contexts.fresh(region, slot, found);
        let mut hand = contexts.take().expect("a context");
        hand.ue.connections += 1;
        let left = Outbox {
            at: vireo_types::Instant(1),
            ltmsi: hand.ue.ltmsi,
            key: outbox::key(hand.ue.ltmsi, input as u32),
            input: 0,
            deadline: None,
            before: None,
            after: Some(crate::nf::outbox::Summary::of(&hand.ue)),
            settled: Vec::new(),
            seids: Vec::new(),
            effects: Vec::new(),
            notes: Vec::new(),
        };
        let octets = left.encode(Vec::new()).unwrap();
        contexts.commit(worker, hand, false, (input, None, pin), &octets).unwrap();
        found
    }

    #[test]
    fn a_procedure_reads_once_and_writes_once_and_is_lost_with_its_worker() {
        use StateOperation::{Read, Write};
        let server = Server::start();
        let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
        let (mut host, mut one, mut two) = (region.join(0).unwrap(), region.join(1).unwrap(), region.join(2).unwrap());
        let mut config = server.config();
        config.records.persist = StatePersist::Procedure;
        let contexts = || Contexts::new(Location::Central(config.clone()));
        let (mut first, mut second) = (contexts(), contexts());
        let asked = |contexts: &mut Contexts| contexts.asked().map(|(operation, _)| operation).collect::<Vec<_>>();
        let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
        for (input, pin) in [(1, 5), (2, 5), (3, 0)] {
            step_of(&mut first, (&region, &mut one), slot, (input, pin));
        }
        assert_eq!(asked(&mut first), [Write], "a first procedure has nothing to read");
        for (input, pin) in [(4, 5), (5, 5)] {
            step_of(&mut first, (&region, &mut one), slot, (input, pin));
        }
        assert_eq!(asked(&mut first), [Read]);
        // The worker dies: the UE is as it was, but for the names and COUNTs that it may have used.
        let found = second.load(&region, &mut two, slot).unwrap();
        assert!(matches!(found, Found::Context { consumed: 5, .. }), "{found:?}");
        let ue = second.current().unwrap();
        assert_eq!((ue.connections, ue.sequence >= replica::SKIPPED_STEPS), (3, true));
        step_of(&mut second, (&region, &mut two), slot, (6, 0));
        // What one worker holds and another has gone on from is not believed.
        let found = first.load(&region, &mut one, slot).unwrap();
        assert!(matches!(found, Found::Context { consumed: 6, .. }), "{found:?}");
        assert_eq!(first.current().map(|ue| ue.connections), Some(4));

        // One whose first procedure was under way: the slot is the host's to free.
        let other = host.insert(Ltmsi::from_raw(8)).unwrap();
        step_of(&mut first, (&region, &mut one), other, (1, 5));
        let found = second.load(&region, &mut two, other).unwrap();
        assert!(matches!(found, Found::Tombstone { consumed: 1, .. }), "{found:?}");
        let mut seen = Snapshot::default();
        assert!(region.read_outbox(second.found().expect("it is to be told"), &mut seen));
        let outbox = Outbox::decode(&seen.outbox).unwrap();
        assert!(outbox.forgets() && outbox.before.is_some(), "{outbox:?}");
    }

    /// Two AMFs over one database, each with a region and a worker.
    struct Amf {
        region: Region,
        host: Worker,
        worker: Worker,
        contexts: Contexts,
    }

    impl Amf {
        fn new(owner: u64, records: &MemoryRecords) -> Self {
            let region = Region::create(RegionConfig::new(4, 2, 32 << 20)).unwrap();
            let (host, worker) = (region.join(0).unwrap(), region.join(1).unwrap());
            let mut contexts = Contexts::new(Location::Region);
            let central = Box::new(Central::over(config(owner), records));
            contexts.place = Place::Central { central, held: None };
            Amf { region, host, worker, contexts }
        }

        /// A step over a UE, by an input of this number.
        fn step(&mut self, slot: Slot, input: u64, outbox: &[u8]) -> Result<Done, StepError> {
            let found = self.contexts.load(&self.region, &mut self.worker, slot)?;
            self.contexts.fresh(&self.region, slot, found);
            let mut hand = self.contexts.take().expect("a context");
            hand.ue.connections += 1;
            self.contexts.commit(&mut self.worker, hand, false, (input, None, 0), outbox)
        }

        /// Enters what another one has left, as the host does.
        fn enter(&mut self, id: u64, base: u64) -> Slot {
            let slot = self.host.insert(Ltmsi::from_raw(7)).unwrap();
            let mut seen = Snapshot::default();
            self.region.read(slot, &mut seen);
            let octets = Elsewhere { id, base }.octets();
            let record = Record { consumed: base, context: &octets, ..Record::default() };
            let _ = self.host.commit(slot, &seen, &record).unwrap();
            slot
        }
    }

    fn config(owner: u64) -> CentralConfig {
        CentralConfig { records: RecordsConfig::at("redis://127.0.0.1:1"), owner, shared: true }
    }

    /// An AMF is killed before a commit, after it, and is only stopped: another one goes on with what was committed, what that wanted
    /// done is known to it, and the one that wakes does nothing.
    #[test]
    fn another_amf_goes_on_and_the_one_that_wakes_does_nothing() {
        use StateOperation::{Read, Write};
        let records = MemoryRecords::new(LIFE);
        let (mut first, mut second) = (Amf::new(1, &records), Amf::new(2, &records));
        let slot = first.host.insert(Ltmsi::from_raw(7)).unwrap();
        first.step(slot, 1, b"one").unwrap();
        first.step(slot, 2, b"two").unwrap();
        let asked: Vec<_> = first.contexts.asked().map(|(operation, _)| operation).collect();
        assert_eq!(
            asked,
            [Write, Read, Write],
            "a read and a write for each transaction, and nothing to read at first"
        );
        let id = elsewhere(&first.region, slot).id;
        // Stopped before the commit of a third step.
        first.contexts.load(&first.region, &mut first.worker, slot).unwrap();
        let mut hand = first.contexts.take().unwrap();
        hand.ue.connections += 1;

        let taker = config(2);
        let mut claim = Claim::new(&taker);
        claim.go(&mut records.clone(), |_| true).unwrap();
        let [claimed] = &claim.claimed[..] else { panic!("{:?}", claim.claimed) };
        let wanted: Vec<&[u8]> = claimed.stored.course.wanted.iter().map(|wanted| &wanted.outbox[..]).collect();
        assert_eq!(wanted, [b"one", b"two"], "neither may have left");
        let slot_there = second.enter(id, 40);
        let found = second.contexts.load(&second.region, &mut second.worker, slot_there).unwrap();
        assert!(matches!(found, Found::Context { consumed: 40, .. }), "{found:?}");
        assert_eq!(second.contexts.current().map(|ue| ue.connections), Some(2));

        // The first one wakes: its step is void, and so is what it begins.
        let woken = first.contexts.commit(&mut first.worker, hand, false, (3, None, 0), b"three");
        assert!(matches!(woken, Err(StepError::Central(CentralError::Foreign))), "{woken:?}");
        assert_eq!(first.region.consumed_of(slot), 2, "nothing has happened there");
        let begun = first.step(slot, 4, b"four");
        assert!(matches!(begun, Err(StepError::Central(CentralError::Foreign))), "{begun:?}");

        // The second one goes on, and its own worker dies between its two commits.
        second.step(slot_there, 41, b"three").unwrap();
        let central = &mut Central::over(config(2), &records);
        let (version, mut stored) = central.read(id).unwrap().unwrap();
        assert_eq!((stored.consumed, context::decode(&stored.context).unwrap().connections), (41, 3));
        stored.consumed = 42;
        central.commit((id, version), stored).unwrap();
        let found = second.contexts.load(&second.region, &mut second.worker, slot_there).unwrap();
        assert!(matches!(found, Found::Context { consumed: 42, unsent: Some(_) }), "{found:?}");
        assert!(second.contexts.found().is_some());
    }

    /// A worker dies between the first commit of a new UE and the region's: who is given the event again finds it done.
    #[test]
    fn a_first_step_that_is_done_again_is_the_one_that_was_committed() {
        let records = MemoryRecords::new(LIFE);
        let mut amf = Amf::new(1, &records);
        let slot = amf.host.insert(Ltmsi::from_raw(7)).unwrap();
        let elsewhere = Elsewhere::fresh(Ltmsi::from_raw(7), 1, 9);
        let context = context::encode(&UeContext::new(Ltmsi::from_raw(7)), Vec::new()).unwrap();
        let mut stored = Stored { owner: 1, consumed: 9, context, ..Stored::default() };
        stored.course.wants(clock(), b"first", true);
        Central::over(config(1), &records).commit((elsewhere.id, 0), stored).unwrap();
        let Done::Committed(buffer) = amf.step(slot, 9, b"again").unwrap() else { panic!("it is the region's") };
        let mut seen = Snapshot::default();
        assert!(amf.region.read_outbox(buffer, &mut seen) && seen.outbox == b"first", "what was committed leaves");
        assert_eq!(records.clone().numbers("amf").unwrap().len(), 1);
    }
}
