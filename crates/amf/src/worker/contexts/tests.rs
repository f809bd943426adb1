//! Tests of worker takeover with contexts in a database.

mod group;
mod shared;

use super::*;
use crate::worker::context_database::{BucketClaim, ContextDatabaseConfig};
use std::process::{Child, Command, Stdio};
use vireo_ops::state::RecordsConfig;
use vireo_store::records::{LIFE, MemoryRecords, RecordStore};
use vireo_store::region::RegionConfig;
use vireo_types::Ltmsi;

/// A Redis server for one test.
struct Server(Child, tempfile::TempDir);

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).stdout(Stdio::null());
        let server = Server(command.spawn().expect("redis-server is installed (make setup)"), directory);
        let config = server.config();
        while crate::worker::context_database::check(&config).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        server
    }

    fn config(&self) -> ContextDatabaseConfig {
        let socket = self.1.path().join("socket");
        let records = RecordsConfig::for_redis(&format!("redis+unix://{}", socket.display()));
        ContextDatabaseConfig { records, owner: 5, shared: false }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a step over the loaded context, or over a new one.
fn step(contexts: &mut Contexts, region: &Region, worker: &mut Worker, slot: Slot, input: u64) -> LoadResult {
    let found = contexts.load(region, worker, slot).unwrap();
    contexts.fresh(region, slot, found);
    let mut loaded = contexts.take().expect("a context");
    loaded.ue.connections += 1;
    contexts.commit_alone(worker, loaded, false, CommitTerms::from_input(input), b"outbox").unwrap();
    found
}

/// Returns the record reference of a slot's UE.
pub(super) fn database_ref(region: &Region, slot: Slot) -> DatabaseRef {
    let mut seen = Snapshot::default();
    assert!(region.read(slot, &mut seen));
    DatabaseRef::decode(&seen.context).expect("the region has no context")
}

#[test]
fn waiting_ues_are_prefetched_once() {
    let server = Server::start();
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, mut one, mut two) = (region.join(0).unwrap(), region.join(1).unwrap(), region.join(2).unwrap());
    let [first_ue, second_ue, new_ue] = [7, 8, 9].map(|ltmsi| host.insert(Ltmsi::from_raw(ltmsi)).unwrap());
    let contexts = || Contexts::new(Location::Database(server.config()));
    let (mut first, mut second) = (contexts(), contexts());
    step(&mut first, &region, &mut one, first_ue, 1);
    step(&mut first, &region, &mut one, second_ue, 2);
    second.prefetch(&region, [first_ue, new_ue, second_ue].into_iter());
    step(&mut first, &region, &mut one, first_ue, 3);
    // From here on no read succeeds.
    drop(server);
    let found = second.load(&region, &mut two, second_ue).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 2, .. }), "{found:?}");
    assert_eq!(second.current().map(|ue| ue.connections), Some(1));
    assert_eq!(second.operations().count(), 1, "it is told as a read of this UE");
    let stale = second.load(&region, &mut two, first_ue);
    assert!(
        stale.as_ref().is_err_and(StepError::is_retryable),
        "what was read before its last step is no use: {stale:?}"
    );
    assert!(second.load(&region, &mut two, second_ue).is_err(), "it is good for one load");
}

#[test]
fn any_worker_continues_from_database_content() {
    let server = Server::start();
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, mut one, mut two) = (region.join(0).unwrap(), region.join(1).unwrap(), region.join(2).unwrap());
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    let contexts = || Contexts::new(Location::Database(server.config()));
    let (mut first, mut second) = (contexts(), contexts());
    use StateOperation::{Read, Write};
    let asked = |contexts: &mut Contexts| contexts.operations().map(|(operation, _)| operation).collect::<Vec<_>>();
    assert!(matches!(step(&mut first, &region, &mut one, slot, 1), LoadResult::Nothing));
    assert_eq!(asked(&mut first), [Write], "there was nothing to read");
    assert!(matches!(step(&mut second, &region, &mut two, slot, 2), LoadResult::Context { consumed: 1, .. }));
    assert_eq!(asked(&mut second), [Read, Write], "a read and a write for each transaction");
    let (mut seen, id) = (Snapshot::default(), database_ref(&region, slot).id);

    // The first worker dies after it has written to the database, before the region.
    let mut database = ContextDatabase::new(server.config());
    let (version, mut stored) = database.read(id).unwrap().expect("stored");
    assert_eq!((stored.consumed, context::decode(&stored.context).unwrap().connections), (2, 2));
    (stored.consumed, stored.recovery.outboxes[0].outbox) = (3, b"not done".to_vec());
    database.commit((id, version), stored).unwrap();
    let found = second.load(&region, &mut two, slot).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 3, unsent: Some(_) }), "{found:?}");
    let buffer = second.take_recovered().expect("a record whose effects are to leave");
    assert!(region.read_outbox(buffer, &mut seen) && seen.outbox == b"not done", "it is the region's now");

    // The UE is removed, and the worker dies at the same place: the host frees the slot.
    let gone = UeRecord { owner: 5, consumed: 4, ..UeRecord::default() };
    database.commit((id, version + 1), gone).unwrap();
    let found = second.load(&region, &mut two, slot).unwrap();
    assert!(matches!(found, LoadResult::Tombstone { consumed: 4, .. }), "{found:?}");
    crate::worker::context_database::clear(&server.config()).unwrap();
    assert_eq!(database.read(id).unwrap(), None);

    // The record of another UE is lost: this is an error, and its step is void.
    let other = host.insert(Ltmsi::from_raw(8)).unwrap();
    step(&mut first, &region, &mut one, other, 1);
    assert!(database.read(database_ref(&region, other).id).unwrap().is_some());
    crate::worker::context_database::clear(&server.config()).unwrap();
    let lost = second.load(&region, &mut two, other).unwrap_err();
    assert!(lost.to_string().contains("has lost a UE") && second.current().is_none());
}

#[test]
fn without_a_database_a_step_is_void() {
    let nowhere =
        ContextDatabaseConfig { records: RecordsConfig::for_redis("redis://127.0.0.1:1"), owner: 5, shared: false };
    assert!(crate::worker::context_database::check(&nowhere).unwrap_err().to_string().contains("state.database"));
    let region = Region::create(RegionConfig::new(4, 2, 32 << 20)).unwrap();
    let (mut host, mut worker) = (region.join(0).unwrap(), region.join(1).unwrap());
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    let mut contexts = Contexts::new(Location::Database(nowhere));
    let found = contexts.load(&region, &mut worker, slot).unwrap();
    contexts.fresh(&region, slot, found);
    let loaded = contexts.take().unwrap();
    assert!(contexts.commit_alone(&mut worker, loaded, false, CommitTerms::from_input(1), b"outbox").is_err());
    assert!(!region.read(slot, &mut Snapshot::default()), "nothing has happened");
}

/// Runs a step of a procedure: its last one, or one after which it continues.
fn step_of(
    contexts: &mut Contexts,
    (region, worker): (&Region, &mut Worker),
    slot: Slot,
    (input, pin): (u64, u64),
) -> LoadResult {
    let found = contexts.load(region, worker, slot).unwrap();
    contexts.fresh(region, slot, found);
    let mut loaded = contexts.take().expect("a context");
    loaded.ue.connections += 1;
    let left = Outbox {
        at: vireo_types::Instant(1),
        ltmsi: loaded.ue.ltmsi,
        key: vireo_core::step::idempotency_key(loaded.ue.ltmsi, input as u32),
        input: 0,
        deadline: None,
        before: None,
        after: Some(crate::worker::outbox::Summary::new(&loaded.ue)),
        settled: Vec::new(),
        seids: Vec::new(),
        effects: Vec::new(),
        notes: Vec::new(),
    };
    let octets = left.encode(Vec::new()).unwrap();
    contexts
        .commit_alone(worker, loaded, false, CommitTerms { consumed: input, deadline: None, pin }, &octets)
        .unwrap();
    found
}

#[test]
fn procedure_reads_and_writes_once() {
    use StateOperation::{Read, Write};
    let server = Server::start();
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, mut one, mut two) = (region.join(0).unwrap(), region.join(1).unwrap(), region.join(2).unwrap());
    let mut config = server.config();
    config.records.persist = StatePersist::Procedure;
    let contexts = || Contexts::new(Location::Database(config.clone()));
    let (mut first, mut second) = (contexts(), contexts());
    let asked = |contexts: &mut Contexts| contexts.operations().map(|(operation, _)| operation).collect::<Vec<_>>();
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    for (input, pin) in [(1, 5), (2, 5), (3, 0)] {
        step_of(&mut first, (&region, &mut one), slot, (input, pin));
    }
    assert_eq!(asked(&mut first), [Write], "a first procedure has nothing to read");
    for (input, pin) in [(4, 5), (5, 5)] {
        step_of(&mut first, (&region, &mut one), slot, (input, pin));
    }
    assert_eq!(asked(&mut first), [Read]);
    // The worker dies: the UE has its previous state, with later identifiers and COUNTs.
    let found = second.load(&region, &mut two, slot).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 5, .. }), "{found:?}");
    let ue = second.current().unwrap();
    assert_eq!((ue.connections, ue.sequence >= replica::SKIPPED_STEPS), (3, true));
    step_of(&mut second, (&region, &mut two), slot, (6, 0));
    // A context that one worker holds is invalid after a step of another worker.
    let found = first.load(&region, &mut one, slot).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 6, .. }), "{found:?}");
    assert_eq!(first.current().map(|ue| ue.connections), Some(4));

    // A UE during its first procedure: the host frees the slot.
    let other = host.insert(Ltmsi::from_raw(8)).unwrap();
    step_of(&mut first, (&region, &mut one), other, (1, 5));
    let found = second.load(&region, &mut two, other).unwrap();
    assert!(matches!(found, LoadResult::Tombstone { consumed: 1, .. }), "{found:?}");
    let mut seen = Snapshot::default();
    assert!(region.read_outbox(second.take_recovered().expect("it is to be told"), &mut seen));
    let outbox = Outbox::decode(&seen.outbox).unwrap();
    assert!(outbox.forgets() && outbox.before.is_some(), "{outbox:?}");
}

/// One of two AMFs over one database, each with a region and a worker.
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
        let database = Box::new(ContextDatabase::over(config(owner), records));
        contexts.location = ContextLocation::Database { database, in_procedure: None };
        Amf { region, host, worker, contexts }
    }

    /// Runs a step over a UE by an input with this number.
    fn step(&mut self, slot: Slot, input: u64, outbox: &[u8]) -> Result<CommitHandle, StepError> {
        let found = self.contexts.load(&self.region, &mut self.worker, slot)?;
        self.contexts.fresh(&self.region, slot, found);
        let mut loaded = self.contexts.take().expect("a context");
        loaded.ue.connections += 1;
        self.contexts.commit_alone(&mut self.worker, loaded, false, CommitTerms::from_input(input), outbox)
    }

    /// Enters a record that another AMF has left, as the host does.
    fn enter(&mut self, id: u64, base: u64) -> Slot {
        let slot = self.host.insert(Ltmsi::from_raw(7)).unwrap();
        let mut seen = Snapshot::default();
        self.region.read(slot, &mut seen);
        let octets = DatabaseRef { id, base, ..DatabaseRef::default() }.octets();
        let record = CommitRecord { consumed: base, context: &octets, ..CommitRecord::default() };
        let _ = self.host.commit(slot, &seen, &record).unwrap();
        slot
    }
}

fn config(owner: u64) -> ContextDatabaseConfig {
    ContextDatabaseConfig { records: RecordsConfig::for_redis("redis://127.0.0.1:1"), owner, shared: true }
}

/// An AMF is killed before a commit or after it, or only stopped. Another one continues from the
/// last commit and knows its outbox. The stopped one does nothing when it wakes up.
#[test]
fn next_amf_continues_and_fenced_amf_stops() {
    use StateOperation::{Read, Write};
    let records = MemoryRecords::new(LIFE);
    let (mut first, mut second) = (Amf::new(1, &records), Amf::new(2, &records));
    let slot = first.host.insert(Ltmsi::from_raw(7)).unwrap();
    first.step(slot, 1, b"one").unwrap();
    first.step(slot, 2, b"two").unwrap();
    let asked: Vec<_> = first.contexts.operations().map(|(operation, _)| operation).collect();
    assert_eq!(asked, [Write, Read, Write], "a read and a write for each transaction, and nothing to read at first");
    let id = database_ref(&first.region, slot).id;
    // The first AMF is stopped before the commit of a third step.
    first.contexts.load(&first.region, &mut first.worker, slot).unwrap();
    let mut loaded = first.contexts.take().unwrap();
    loaded.ue.connections += 1;

    let taker = config(2);
    let mut claim = BucketClaim::new(&taker);
    claim.run(&mut records.clone(), |_| true).unwrap();
    let [claimed] = &claim.claimed[..] else { panic!("{:?}", claim.claimed) };
    let wanted: Vec<&[u8]> = claimed.stored.recovery.outboxes.iter().map(|wanted| &wanted.outbox[..]).collect();
    assert_eq!(wanted, [b"one", b"two"], "neither may have left");
    let slot_there = second.enter(id, 40);
    let found = second.contexts.load(&second.region, &mut second.worker, slot_there).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 40, .. }), "{found:?}");
    assert_eq!(second.contexts.current().map(|ue| ue.connections), Some(2));

    // The first AMF wakes up: its step is void, and so is the next one.
    let woken = first.contexts.commit_alone(&mut first.worker, loaded, false, CommitTerms::from_input(3), b"three");
    assert!(matches!(woken, Err(StepError::Database(ContextDatabaseError::Foreign))), "{woken:?}");
    assert_eq!(first.region.consumed_of(slot), 2, "nothing has happened there");
    let begun = first.step(slot, 4, b"four");
    assert!(matches!(begun, Err(StepError::Database(ContextDatabaseError::Foreign))), "{begun:?}");

    // The second AMF continues, and its worker dies between its two commits.
    second.step(slot_there, 41, b"three").unwrap();
    let database = &mut ContextDatabase::over(config(2), &records);
    let (version, mut stored) = database.read(id).unwrap().unwrap();
    assert_eq!((stored.consumed, context::decode(&stored.context).unwrap().connections), (41, 3));
    stored.consumed = 42;
    database.commit((id, version), stored).unwrap();
    let found = second.contexts.load(&second.region, &mut second.worker, slot_there).unwrap();
    assert!(matches!(found, LoadResult::Context { consumed: 42, unsent: Some(_) }), "{found:?}");
    assert!(second.contexts.take_recovered().is_some());
}

/// A worker dies between the first commit of a new UE and the region's. The next worker finds the
/// event processed.
#[test]
fn repeated_first_step_finds_its_commit() {
    let records = MemoryRecords::new(LIFE);
    let mut amf = Amf::new(1, &records);
    let slot = amf.host.insert(Ltmsi::from_raw(7)).unwrap();
    let reference = DatabaseRef::fresh(Ltmsi::from_raw(7), 1, 9);
    let context = context::encode(&UeContext::new(Ltmsi::from_raw(7)), Vec::new()).unwrap();
    let mut stored = UeRecord { owner: 1, consumed: 9, context, ..UeRecord::default() };
    stored.recovery.add_outbox(clock(), b"first", true);
    ContextDatabase::over(config(1), &records).commit((reference.id, 0), stored).unwrap();
    let CommitHandle::Committed(buffer) = amf.step(slot, 9, b"again").unwrap() else { panic!("it is the region's") };
    let mut seen = Snapshot::default();
    assert!(amf.region.read_outbox(buffer, &mut seen) && seen.outbox == b"first", "what was committed leaves");
    assert_eq!(records.clone().list_ids("amf").unwrap().len(), 1);
}

/// A step sends the radio capability to a RAN node, or another one in a handover container.
#[test]
fn largest_radio_capability_has_room() {
    use vireo_types::limits::{NGAP_PDU_OCTETS, UE_CAPABILITY_OCTETS};
    let config = RegionConfig { large_records: true, ..RegionConfig::new(4, 1, 64 << 20) };
    let region = Region::create(config).unwrap();
    let mut worker = region.join(0).unwrap();
    let slot = worker.insert(Ltmsi::from_raw(9)).unwrap();
    let mut contexts = Contexts::new(Location::Region);
    for input in 1..4 {
        let found = contexts.load(&region, &mut worker, slot).unwrap();
        contexts.fresh(&region, slot, found);
        let mut loaded = contexts.take().expect("a context");
        if input > 1 {
            assert_eq!(loaded.ue.radio_capability, vec![7; UE_CAPABILITY_OCTETS]);
            assert_eq!(loaded.ue.reachability.paging.other.whole, vec![9; UE_CAPABILITY_OCTETS]);
        }
        loaded.ue.radio_capability = vec![7; UE_CAPABILITY_OCTETS];
        loaded.ue.reachability.paging.other.whole = vec![9; UE_CAPABILITY_OCTETS];
        let outbox = vec![3; NGAP_PDU_OCTETS + 1024];
        contexts.commit_alone(&mut worker, loaded, false, CommitTerms::from_input(input), &outbox).unwrap();
    }
}
