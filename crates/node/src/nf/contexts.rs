//! Where a worker has the contexts of its UEs: in the region (the design), or, to compare that with, in its own memory (a
//! stateful core, which loses them with the process) or in a database.

use super::Location;
use super::central::{Central, CentralError, ELSEWHERE, Stored};
use super::outbox::{self, Outbox};
use crate::metrics::StateOperation;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};
use vireo_core::config::StatePersist;
use vireo_core::context::{self, Parts, UeContext};
use vireo_core::turn::Effect;
use vireo_store::CommitError;
use vireo_store::region::{Buffer, Packet, Record, Region, Slot, Snapshot, Worker};

/// The mark of a packet that is an outbox, in its sequence number beside the slot's.
pub(crate) const OUTBOX: u64 = 1 << 63;

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

/// A commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    /// The record, for the egress.
    Committed(Buffer),
    /// A packet with the outbox.
    Private(Packet),
}

/// Steps that a dead worker may have done beyond what is stored, and COUNTs that it may have used (DESIGN decision 5): what it has
/// had sent has their names.
const SKIPPED_STEPS: u64 = 1 << 12;
const SKIPPED_COUNTS: u32 = 32;

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
}

impl Hand {
    fn new(slot: Slot, ue: UeContext, fresh: bool, consumed: u64) -> Box<Self> {
        Box::new(Hand { slot, ue, fresh, parts: None, record: None, consumed })
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

impl Contexts {
    pub(super) fn new(location: Location) -> Self {
        let kept = std::iter::repeat_with(|| None).take(KEPT).collect();
        let place = match location {
            Location::Region => Place::Region,
            Location::Worker => Place::Private(FxHashMap::default()),
            Location::Central(config) => {
                let held = (config.persist == StatePersist::Procedure).then(FxHashMap::default);
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
            && !self.snapshot.context.is_empty()
        {
            let (consumed, holds) = (self.snapshot.consumed, held.is_some());
            let hand = held.as_mut().and_then(|held| held.remove(&slot));
            if let Some(hand) = hand.filter(|hand| hand.consumed == consumed) {
                self.loaded = Some(hand);
                let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
                return Ok(Found::Context { consumed, unsent });
            }
            let began = Instant::now();
            let stored = central.read(slot);
            self.asked.push((StateOperation::Read, began.elapsed()));
            return match stored? {
                Some(stored) => self.stored(region, worker, slot, stored),
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
    fn stored(&mut self, region: &Region, worker: &mut Worker, slot: Slot, stored: Stored) -> Result<Found, StepError> {
        let Stored { consumed, deadline, pin, outbox, context } = stored;
        let here = if context.is_empty() { &[][..] } else { ELSEWHERE };
        if consumed > self.snapshot.consumed {
            let record = Record { consumed, deadline, pin, context: here, outbox: &outbox };
            self.found = Some(worker.commit(slot, &self.snapshot, &record)?.buffer);
            region.read(slot, &mut self.snapshot);
        }
        let unsent = self.snapshot.buffer().filter(|_| !self.snapshot.sent);
        if context.is_empty() {
            return Ok(Found::Tombstone { consumed, unsent });
        }
        if consumed < self.snapshot.consumed {
            // A procedure was under way, and who carried it out has died: what it sent had these names and COUNTs.
            let consumed = self.snapshot.consumed;
            self.decoded(slot, consumed, Some(&context));
            if let Some(hand) = &mut self.loaded {
                hand.ue.sequence += SKIPPED_STEPS;
                let security = hand.ue.security.as_mut();
                security.into_iter().for_each(|s| s.downlink = s.downlink.saturating_add(SKIPPED_COUNTS));
            }
            return Ok(Found::Context { consumed, unsent });
        }
        self.decoded(slot, consumed, Some(&context));
        Ok(Found::Context { consumed, unsent })
    }

    /// A UE whose first procedure was under way when who carried it out has died: the host takes the slot back, and the UE
    /// begins anew.
    fn lost(&mut self, region: &Region, worker: &mut Worker, slot: Slot) -> Result<Found, StepError> {
        let consumed = self.snapshot.consumed;
        let last = Outbox::decode(&self.snapshot.outbox).ok_or(CentralError::Lost)?;
        let forget = Outbox {
            key: outbox::key(last.ltmsi, ((last.key >> 4) as u32).wrapping_add(SKIPPED_STEPS as u32)),
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
            let packet = worker.packet(OUTBOX | slot, outbox).ok_or(CommitError::Full)?;
            if !forgets {
                (hand.fresh, hand.consumed) = (false, consumed);
                self.keep(hand);
            }
            return Ok(Done::Private(packet));
        }
        if let Place::Central { held: Some(held), .. } = &mut self.place
            && pin != 0
            && !forgets
        {
            // It goes on.
            let record = Record { consumed, deadline, pin, context: ELSEWHERE, outbox };
            let committed = worker.commit(hand.slot, &self.snapshot, &record)?;
            (hand.fresh, hand.consumed) = (false, consumed);
            held.insert(hand.slot, hand);
            return Ok(Done::Committed(committed.buffer));
        }
        if let Place::Central { central, .. } = &mut self.place {
            let (slot, mut stored) = (hand.slot, Stored { consumed, deadline, pin, ..Stored::default() });
            if !forgets {
                stored.context = context::encode(&hand.ue, Vec::new()).map_err(|_| CommitError::TooLarge(0))?;
            }
            stored.outbox.extend_from_slice(outbox);
            let began = Instant::now();
            let written = central.write(slot, &stored);
            self.asked.push((StateOperation::Write, began.elapsed()));
            written?;
            let here = if forgets { &[][..] } else { ELSEWHERE };
            let record = Record { consumed, deadline, pin, context: here, outbox };
            let committed = worker.commit(slot, &self.snapshot, &record)?;
            if forgets {
                let began = Instant::now();
                let forgotten = central.forget(slot);
                self.asked.push((StateOperation::Remove, began.elapsed()));
                forgotten?;
            }
            return Ok(Done::Committed(committed.buffer));
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
    use crate::nf::central::CentralConfig;
    use std::process::{Child, Command, Stdio};
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
            let persist = StatePersist::Transaction;
            CentralConfig { database: format!("redis+unix://{}", socket.display()), key: "test".into(), persist }
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
        let mut seen = Snapshot::default();
        assert!(region.read(slot, &mut seen) && seen.context == ELSEWHERE, "the region has no context");

        // The first one dies after it has written to the database, and before the region knows.
        let mut central = Central::new(server.config());
        let mut stored = central.read(slot).unwrap().expect("stored");
        assert_eq!((stored.consumed, context::decode(&stored.context).unwrap().connections), (2, 2));
        (stored.consumed, stored.outbox) = (3, b"not done".to_vec());
        central.write(slot, &stored).unwrap();
        let found = second.load(&region, &mut two, slot).unwrap();
        assert!(matches!(found, Found::Context { consumed: 3, unsent: Some(_) }), "{found:?}");
        let buffer = second.found().expect("a record whose effects are to leave");
        assert!(region.read_outbox(buffer, &mut seen) && seen.outbox == b"not done", "it is the region's now");

        // It ends, and dies at the same place: the slot is the host's to free.
        stored = Stored { consumed: 4, ..Stored::default() };
        central.write(slot, &stored).unwrap();
        let found = second.load(&region, &mut two, slot).unwrap();
        assert!(matches!(found, Found::Tombstone { consumed: 4, .. }), "{found:?}");
        crate::nf::central::clear(&server.config()).unwrap();
        assert_eq!(central.read(slot).unwrap(), None);

        // Another UE's, and it is lost: that is said, and nothing is done in its name.
        let other = host.insert(Ltmsi::from_raw(8)).unwrap();
        step(&mut first, &region, &mut one, other, 1);
        central.forget(other).unwrap();
        let lost = second.load(&region, &mut two, other).unwrap_err();
        assert!(lost.to_string().contains("has lost a UE") && second.current().is_none());
    }

    #[test]
    fn without_a_database_a_step_is_void() {
        let nowhere = CentralConfig {
            database: "redis://127.0.0.1:1".into(),
            key: "test".into(),
            persist: StatePersist::Transaction,
        };
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
        let config = CentralConfig { persist: StatePersist::Procedure, ..server.config() };
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
        assert_eq!((ue.connections, ue.sequence >= SKIPPED_STEPS), (3, true));
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
}
