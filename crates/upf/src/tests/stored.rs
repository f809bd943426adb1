//! Restarts of a UPF whose sessions are in a database.

use super::*;
use crate::persistence::{PersistentUpf, SharedRecordConfig, TransactionContext, WriterMode, load_previous};
use std::collections::BTreeMap;
use vireo_ops::database::{DatabaseJob, DatabaseOperation, OperationResult};
use vireo_ops::metrics::Transaction;
use vireo_store::records::{
    Change, Codec, Format, LIFE, MemoryRecords, Name, RecordError, RecordPart, RecordStore, UpdateMode,
};

mod compatibility;
mod full;
mod renewal;
mod shared;

/// Numbers of database operations by kind of transaction: loads, commits, removals.
type OperationCounts = BTreeMap<&'static str, [u32; 3]>;

struct World {
    records: Box<dyn RecordStore>,
    bench: Bench,
    stored: PersistentUpf,
    /// The UPF dies, once, after this number of database results, before it processes the next.
    fuse: Option<u32>,
    lives: u32,
    operations: OperationCounts,
    /// Set if the control plane shares the records.
    sharing: Option<SharedRecordConfig>,
    mode: WriterMode,
    codec: Codec,
    /// Error of all commits, if set.
    refusal: Option<RecordError>,
}

/// Starts an incarnation of the UPF.
fn life(
    records: &mut dyn RecordStore,
    (mode, codec, sharing): (WriterMode, Codec, Option<&SharedRecordConfig>),
    now: Timestamps,
) -> (Bench, PersistentUpf) {
    let mut bench = bench_of(vec![], Limits { restoring: true, ..Limits::default() });
    // Packets arrive before the sessions are restored.
    bench.uplink(Teid(0x100), &ipv4(UE, SERVER, 100));
    assert_eq!(bench.plane.n3, vec![], "no Error Indication, by which the RAN would let a session go");
    (bench.now, bench.upf.settings.started) = (now, now.ntp);
    let mut stored = PersistentUpf::new(mode, codec, sharing.cloned());
    let before = load_previous(records, codec, sharing, now.ntp).expect("it answers");
    let Bench { upf, plane, now, .. } = &mut bench;
    stored.begin(&mut TransactionContext { upf, now: *now, plane, out: &mut vec![] }, before);
    (bench, stored)
}

impl World {
    fn new() -> Self {
        World::over(WriterMode::Shared)
    }

    fn over(mode: WriterMode) -> Self {
        World::begin(mode, Codec::default(), None)
    }

    fn with_codec(codec: Codec) -> Self {
        World::begin(WriterMode::Shared, codec, None)
    }

    fn sharing(sharing: Option<SharedRecordConfig>) -> Self {
        World::begin(WriterMode::Shared, Codec::default(), sharing)
    }

    fn begin(mode: WriterMode, codec: Codec, sharing: Option<SharedRecordConfig>) -> Self {
        World::with_records(Box::new(MemoryRecords::new(LIFE)), mode, codec, sharing)
    }

    fn with_records(
        mut records: Box<dyn RecordStore>,
        mode: WriterMode,
        codec: Codec,
        sharing: Option<SharedRecordConfig>,
    ) -> Self {
        let now = Timestamps { instant: Instant(1_000_000), ntp: STARTED };
        let (bench, stored) = life(&mut *records, (mode, codec, sharing.as_ref()), now);
        let mut world = World {
            records,
            bench,
            stored,
            fuse: None,
            lives: 1,
            operations: OperationCounts::new(),
            sharing,
            mode,
            codec,
            refusal: None,
        };
        assert_eq!(world.work(), vec![]);
        world.associate();
        world.operations.clear();
        world
    }

    /// Kills the UPF, and starts it again one second later.
    fn restart(&mut self) {
        self.bench.advance(1);
        let sequence = self.bench.sequence;
        (self.bench, self.stored) =
            life(&mut *self.records, (self.mode, self.codec, self.sharing.as_ref()), self.bench.now);
        self.bench.sequence = sequence;
        self.lives += 1;
        let out = self.work();
        assert_eq!(out, vec![], "it says nothing by itself");
    }

    /// Runs an action on the transactions. Returns the sent messages.
    fn with(&mut self, act: impl FnOnce(&mut PersistentUpf, &mut TransactionContext<'_, Memory>)) -> Outgoing {
        let mut out = vec![];
        let Bench { upf, plane, now, .. } = &mut self.bench;
        act(&mut self.stored, &mut TransactionContext { upf, now: *now, plane, out: &mut out });
        out
    }

    /// Executes all queued database jobs. Returns the sent messages.
    fn work(&mut self) -> Outgoing {
        let mut out = vec![];
        while let Some(job) = self.stored.jobs().pop_front() {
            let done = self.execute(&job);
            if let Some(fuse) = &mut self.fuse {
                *fuse = fuse.wrapping_sub(1);
                if *fuse == u32::MAX {
                    self.fuse = None;
                    self.restart();
                    return vec![];
                }
            }
            out.extend(self.with(|stored, on| stored.on_result(on, job.requester_name, done)));
        }
        out
    }

    fn execute(&mut self, job: &DatabaseJob) -> OperationResult {
        let counts = self.operations.entry(job.kind.label()).or_default();
        let records = &mut *self.records;
        if let Some(refusal) =
            self.refusal.clone().filter(|_| matches!(job.operation, DatabaseOperation::Commit { .. }))
        {
            return OperationResult::Changed(Err(refusal));
        }
        let mut change = |change| OperationResult::Changed(records.change(&[(job.name, change)]).remove(0));
        match &job.operation {
            DatabaseOperation::Load => {
                counts[0] += 1;
                OperationResult::Loaded(records.load(&[job.name]).map(|mut found| found.remove(0)))
            }
            DatabaseOperation::Commit { expected, octets } => {
                counts[1] += 1;
                change(Change::Commit { expected: *expected, octets })
            }
            DatabaseOperation::Put { known, value } => {
                counts[1] += 1;
                let parts = self.codec.parts(value);
                let first = self.codec.change(known, value, &parts, false);
                if first.removes() {
                    counts[2] += 1;
                    change(first);
                    return change(self.codec.change(known, value, &parts, true));
                }
                change(first)
            }
            DatabaseOperation::Parts { expected, parts, whole } => {
                counts[1] += 1;
                let parts: Vec<_> = parts.iter().map(|(name, octets)| RecordPart { name, octets }).collect();
                let (expected, parts) = (*expected, &parts[..]);
                change(if *whole { Change::Replace { expected, parts } } else { Change::Update { expected, parts } })
            }
            DatabaseOperation::Remove { expected } => {
                counts[2] += 1;
                change(Change::Remove { expected: *expected })
            }
        }
    }

    fn send(&mut self, octets: &[u8]) -> Outgoing {
        let from = self.bench.from;
        self.with(|stored, on| stored.receive(on, from, octets))
    }

    /// Sends a request repeatedly, as control planes do, until a response arrives. Returns the
    /// response.
    fn request_until_answered<T: Body>(&mut self, emit: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>) -> T {
        self.bench.sequence += 1;
        let mut octets = vec![];
        emit(&mut octets, self.bench.sequence).expect("short");
        self.with_part_name(&mut octets);
        for _ in 0..3 {
            let mut out = self.send(&octets);
            out.extend(self.work());
            if let [(_, answer)] = &out[..] {
                // A repeat, as if the response had been lost.
                let again = self.send(&octets);
                if self.sharing.is_none() {
                    assert_eq!(again, out, "the very same answer");
                }
                self.smf_takes(&again[0].1);
                return T::parse(&Message::new(answer).expect("sound")).expect("the answer to this request");
            }
            assert_eq!(out, vec![]);
        }
        panic!("no answer");
    }

    fn associate(&mut self) {
        let request = AssociationSetupRequest {
            node_id: node(),
            recovery_time_stamp: RecoveryTimeStamp(1_000),
            up_function_features: None,
            cp_function_features: None,
            session_retention: None,
        };
        let response: AssociationSetupResponse =
            self.request_until_answered(|out, sequence| request.emit(out, sequence));
        assert_eq!(response.recovery_time_stamp.0, STARTED);
    }

    fn establish(&mut self, request: &SessionEstablishmentRequest) -> (u64, Teid) {
        let response: SessionEstablishmentResponse =
            self.request_until_answered(|out, sequence| request.emit(out, 0, sequence));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
        established(&response)
    }

    fn modify(&mut self, seid: u64, request: &SessionModificationRequest) -> SessionModificationResponse {
        self.request_until_answered(|out, sequence| request.emit(out, seid, sequence))
    }

    fn delete(&mut self, seid: u64) -> SessionDeletionResponse {
        self.request_until_answered(|out, sequence| (SessionDeletionRequest {}).emit(out, seid, sequence))
    }

    /// Returns the reports of the datapath's events: those sent at once, and those sent after the
    /// commit.
    fn events(&mut self) -> [Outgoing; 2] {
        let events = std::mem::take(&mut self.bench.plane.events);
        let act = |stored: &mut PersistentUpf, on: &mut TransactionContext<'_, Memory>| {
            for event in events {
                stored.act(on, |upf, now, plane, out| upf.event(event, now, plane, out));
            }
        };
        [self.with(act), self.work()]
    }

    /// Returns the number of stored sessions.
    fn written(&mut self) -> usize {
        self.records.list_ids("upf").expect("it answers").len()
    }

    /// Checks that packets of a session pass in both directions.
    fn passes(&mut self, teid: Teid) {
        self.bench.uplink(teid, &ipv4(UE, SERVER, 100));
        assert_eq!(std::mem::take(&mut self.bench.plane.n6).len(), 1, "by {teid:?} in life {}", self.lives);
        let packet = ipv4(SERVER, UE, 60);
        self.bench.plane.receive_n6(&packet, self.bench.now.instant);
        assert_eq!(self.bench.tunnelled(), vec![(RAN_TEID, packet)]);
    }
}

/// 4n messages to the database for a chain of n functions (stateless paper): at the UPF a read and
/// a write for each transaction. The last transaction removes the record.
#[test]
fn transaction_costs_one_read_and_one_write() {
    let mut world = World::new();
    let (seid, _) = world.establish(&request());
    world.modify(seid, &forward(RAN_TEID));
    assert_eq!(world.written(), 1);
    world.delete(seid);
    let expected = [
        (Transaction::PfcpEstablishment, [1, 1, 0]),
        (Transaction::PfcpModification, [1, 1, 0]),
        (Transaction::PfcpDeletion, [1, 0, 1]),
    ];
    assert_eq!(world.operations, expected.into_iter().map(|(kind, counts)| (kind.label(), counts)).collect());
    assert_eq!(world.written(), 0);
    // Rejected requests change nothing and are not written; nor are messages that concern no
    // session.
    world.operations.clear();
    assert_eq!(world.modify(seid, &buffer()).cause, Cause::SESSION_CONTEXT_NOT_FOUND);
    let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1_000) };
    let mut octets = vec![];
    heartbeat.emit(&mut octets, 77).expect("short");
    assert_eq!(world.send(&octets).len(), 1);
    assert_eq!(world.operations, OperationCounts::from([(Transaction::PfcpModification.label(), [1, 0, 0])]));
}

/// The same in every format. The mode delete-create removes an existing record first.
#[test]
fn transaction_costs_the_same_in_every_format() {
    for codec in codecs() {
        let mut world = World::with_codec(codec);
        let (seid, _) = world.establish(&request());
        world.modify(seid, &forward(RAN_TEID));
        world.delete(seid);
        let taken_out = u32::from(codec.update_mode == UpdateMode::DeleteCreate);
        let expected = [
            (Transaction::PfcpEstablishment, [1, 1, 0]),
            (Transaction::PfcpModification, [1, 1, taken_out]),
            (Transaction::PfcpDeletion, [1, 0, 1]),
        ];
        let expected: OperationCounts = expected.into_iter().map(|(kind, counts)| (kind.label(), counts)).collect();
        assert_eq!(world.operations, expected, "{codec:?}");
        assert_eq!(world.written(), 0);
    }
}

/// All formats and update modes of records.
fn codecs() -> impl Iterator<Item = Codec> {
    let formats = [Format::Binary, Format::Json, Format::Protobuf];
    let update_modes = [UpdateMode::Replace, UpdateMode::Update, UpdateMode::DeleteCreate];
    formats.into_iter().flat_map(move |format| update_modes.map(|update_mode| Codec { format, update_mode }))
}

/// In update mode a modification writes only what it has changed.
#[test]
fn update_writes_only_changed_parts() {
    let codec = Codec { format: Format::Json, update_mode: UpdateMode::Update };
    let mut world = World::with_codec(codec);
    let (seid, _) = world.establish(&request());
    let mut octets = vec![];
    forward(RAN_TEID).emit(&mut octets, seid, 99).expect("short");
    world.send(&octets);
    let load = world.stored.jobs().pop_front().expect("a load");
    let done = world.execute(&load);
    world.with(|stored, on| stored.on_result(on, load.requester_name, done));
    let jobs = world.stored.jobs().make_contiguous();
    let [DatabaseJob { operation: DatabaseOperation::Put { value, .. }, .. }] = jobs else { panic!("{jobs:?}") };
    let mut names: Vec<_> = codec.parts(value).iter().map(|part| part.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["answered", "fars"]);
}

/// In JSON, an operator sees the rules and the PFCP elements by name.
#[test]
fn json_record_is_readable() {
    let mut world = World::with_codec(Codec { format: Format::Json, update_mode: UpdateMode::Update });
    let (seid, teid) = world.establish(&request());
    world.modify(seid, &forward(RAN_TEID));
    let found = world.records.load(&[Name { collection: "upf", id: seid }]).expect("it answers").remove(0);
    let found = found.expect("a record");
    let part = |name: &str| String::from_utf8(found.part(name).expect(name).to_vec()).expect("text");
    for (name, says) in [
        ("cp", "FSeid"),
        ("cp", "192.0.2.5"),
        ("node", "NodeId"),
        ("pdrs", "\"precedence\":255"),
        ("pdrs", "10.45.0.2"),
        ("pdrs", &format!("\"teid\":{}", teid.0)),
        ("fars", "ApplyAction"),
        ("fars", "192.0.2.9"),
        ("qers", "GateStatus"),
        ("answered", "192.0.2.5:8805"),
    ] {
        assert!(part(name).contains(says), "{says} is not in {name}: {}", part(name));
    }
    let all: usize = found.parts.iter().map(|(_, octets)| octets.len()).sum();
    assert!(all < 4096, "{all} octets");
}

/// Records are binary until the configuration changes. Existing records are then read, and written
/// in the new format.
#[test]
fn binary_record_is_read_in_every_format() {
    for codec in codecs() {
        let mut world = World::new();
        let (seid, teid) = world.establish(&request());
        world.codec = codec;
        world.restart();
        assert_eq!(world.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED, "{codec:?}");
        let found = world.records.load(&[Name { collection: "upf", id: seid }]).expect("it answers").remove(0);
        let whole = codec.update_mode == UpdateMode::Replace && codec.format != Format::Json;
        assert_eq!(found.expect("a record").parts.is_empty(), whole, "{codec:?}");
        world.restart();
        world.passes(teid);
        assert_eq!(world.delete(seid).cause, Cause::REQUEST_ACCEPTED);
    }
}

/// In shared memory, without other writers, a transaction is one write.
#[test]
fn transaction_in_shared_memory_costs_one_write() {
    let mut world = World::over(WriterMode::Sole);
    let (seid, _) = world.establish(&request());
    world.modify(seid, &forward(RAN_TEID));
    world.restart();
    world.modify(seid, &buffer());
    world.delete(seid);
    let expected = [
        (Transaction::PfcpEstablishment, [0, 1, 0]),
        (Transaction::PfcpModification, [0, 2, 0]),
        (Transaction::PfcpDeletion, [0, 0, 1]),
    ];
    assert_eq!(world.operations, expected.into_iter().map(|(kind, counts)| (kind.label(), counts)).collect());
    assert_eq!(world.written(), 0);
}

/// After a crash at any point, each request gets one response. The session keeps its SEID and
/// tunnel, and no session is left over.
#[test]
fn killed_upf_restores_its_sessions() {
    let mut lives = 0;
    // A sole writer loads nothing.
    let sole = (0..4).map(|fuse| (WriterMode::Sole, Codec::default(), fuse));
    let shared = codecs().flat_map(|codec| (0..9).map(move |fuse| (WriterMode::Shared, codec, fuse)));
    for (mode, codec, fuse) in shared.chain(sole) {
        let mut world = World::begin(mode, codec, None);
        world.fuse = Some(fuse);
        let (seid, teid) = world.establish(&request());
        assert_eq!((world.bench.upf.sessions(), world.written()), (1, 1));
        let response = world.modify(seid, &forward(RAN_TEID));
        assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
        world.passes(teid);
        world.restart();
        world.passes(teid);
        let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1_000) };
        let answer: HeartbeatResponse = world.request_until_answered(|out, sequence| heartbeat.emit(out, sequence));
        assert_eq!(answer.recovery_time_stamp.0, STARTED, "no control plane sees that it has started again");
        // Another session gets another SEID and another tunnel.
        let mut other = request();
        other.cp_f_seid.seid += 1;
        other.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None);
        let (second, other_teid) = world.establish(&other);
        assert!(second != seid && other_teid != teid);
        let (cause, known) = (world.delete(seid).cause, [Cause::REQUEST_ACCEPTED, Cause::SESSION_CONTEXT_NOT_FOUND]);
        // The response to a deletion is removed with the session: a repeat to the next incarnation
        // finds none.
        assert!(known.contains(&cause), "{cause:?}");
        assert_eq!(world.delete(second).cause, Cause::REQUEST_ACCEPTED);
        assert_eq!((world.bench.upf.sessions(), world.written()), (0, 0));
        assert!(world.bench.plane.tables.is_empty());
        lives += world.lives;
    }
    assert_eq!(lives, (9 * 9 + 4) * 3, "each was killed once more than by the test itself");
}

/// A repeat while the database processes the first request is dropped.
#[test]
fn nothing_leaves_before_it_is_committed() {
    let mut world = World::new();
    let mut octets = vec![];
    request().emit(&mut octets, 0, 99).expect("short");
    assert_eq!(world.send(&octets), vec![], "it is loaded");
    assert_eq!(world.send(&octets), vec![]);
    let job = world.stored.jobs().pop_front().expect("a load");
    let done = world.execute(&job);
    assert_eq!(world.with(|stored, on| stored.on_result(on, job.requester_name, done)), vec![], "it is committed");
    assert_eq!((world.bench.upf.sessions(), world.written()), (1, 0));
    assert_eq!(world.send(&octets), vec![]);
    assert_eq!(world.stored.jobs().len(), 1);
    assert_eq!(world.work().len(), 1);
    assert_eq!((world.bench.upf.sessions(), world.written()), (1, 1));
}

/// With write-behind the response precedes the write, and the next transaction waits for it. A
/// crash in between loses only unwritten changes. The control plane finds no such session, or
/// continues with its earlier state.
#[test]
fn write_behind_loses_only_unwritten_answers() {
    let mut world = World::over(WriterMode::WriteBehind);
    let (first, teid) = world.establish(&request());
    world.modify(first, &forward(RAN_TEID));
    assert_eq!((world.work(), world.written()), (vec![], 1));
    let mut octets = vec![];
    buffer().emit(&mut octets, first, 98).expect("short");
    assert_eq!(world.send(&octets), vec![], "it is loaded, as ever");
    let load = world.stored.jobs().pop_front().expect("a load");
    let done = world.execute(&load);
    assert_eq!(world.with(|stored, on| stored.on_result(on, load.name, done)).len(), 1, "the answer");
    let jobs = world.stored.jobs().make_contiguous();
    assert!(
        matches!(jobs, [DatabaseJob { operation: DatabaseOperation::Commit { .. }, .. }]),
        "its commit is under mode: {jobs:?}"
    );
    assert_eq!(world.send(&octets).len(), 1, "the very same answer");
    let mut next = vec![];
    forward(RAN_TEID).emit(&mut next, first, 99).expect("short");
    assert_eq!((world.send(&next), world.stored.jobs().len()), (vec![], 1), "the barrier");
    // The UPF is killed: unwritten changes are undone.
    world.stored.jobs().clear();
    world.restart();
    world.passes(teid);
    let mut other = request();
    other.cp_f_seid.seid += 1;
    other.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None);
    let mut octets = vec![];
    other.emit(&mut octets, 0, 100).expect("short");
    assert_eq!(world.send(&octets), vec![]);
    let load = world.stored.jobs().pop_front().expect("a load");
    let done = world.execute(&load);
    let out = world.with(|stored, on| stored.on_result(on, load.name, done));
    let response = SessionEstablishmentResponse::parse(&Message::new(&out[0].1).expect("sound")).expect("an answer");
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
    world.stored.jobs().clear();
    world.restart();
    let second = established(&response).0;
    assert_eq!(world.modify(second, &forward(RAN_TEID)).cause, Cause::SESSION_CONTEXT_NOT_FOUND);
    world.passes(teid);
    assert_eq!(world.delete(first).cause, Cause::REQUEST_ACCEPTED);
    world.work();
    assert_eq!((world.bench.upf.sessions(), world.written()), (0, 0));
}

/// Returns the request of another session.
fn another_request(n: u8) -> SessionEstablishmentRequest {
    let mut other = request();
    other.cp_f_seid.seid += u64::from(n);
    other.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 2 + n)), None);
    other
}

/// The RAN, or the UE of a session that was announced but not stored, may still use its tunnel. No
/// later incarnation assigns the tunnel to another session.
#[test]
fn unwritten_tunnel_is_not_reassigned() {
    let mut world = World::over(WriterMode::WriteBehind);
    let (_, mut written) = world.establish(&request());
    world.work();
    let mut told = vec![written];
    for life in 1..4 {
        // Answered, and killed before the write.
        let mut octets = vec![];
        another_request(1).emit(&mut octets, 0, 500 + life).expect("short");
        assert_eq!(world.send(&octets), vec![]);
        let load = world.stored.jobs().pop_front().expect("a load");
        let done = world.execute(&load);
        let out = world.with(|stored, on| stored.on_result(on, load.name, done));
        let answer = SessionEstablishmentResponse::parse(&Message::new(&out[0].1).expect("sound")).expect("an answer");
        let lost = established(&answer).1;
        assert!(!told.contains(&lost), "{lost:?} of {told:?}");
        told.push(lost);
        world.stored.jobs().clear();
        world.restart();
        // The session of another UE is stored, and one of them is deleted.
        let (seid, next) = world.establish(&another_request(10 + life as u8));
        assert!(!told.contains(&next), "{next:?} of {told:?}");
        world.work();
        if life == 2 {
            assert_eq!(world.delete(seid).cause, Cause::REQUEST_ACCEPTED);
            world.work();
        }
        told.push(next);
        written = next;
    }
    assert!(world.bench.upf.sessions() >= 2, "{written:?}");
}

/// A session without room is not created, and each repeat of its request is rejected; existing
/// sessions continue.
#[test]
fn session_without_room_is_refused() {
    for refusal in [RecordError::Full, RecordError::TooLarge { octets: 70_000, most: 65_480 }] {
        let mut world = World::over(WriterMode::Sole);
        world.refusal = Some(refusal);
        let response: SessionEstablishmentResponse =
            world.request_until_answered(|out, sequence| request().emit(out, 0, sequence));
        assert_eq!((response.cause, response.up_f_seid), (Cause::NO_RESOURCES, None));
        assert_eq!((world.bench.upf.sessions(), world.written()), (0, 0));
        assert!(world.bench.plane.tables.is_empty());
        let stats = world.bench.upf.stats;
        assert_eq!((stats.no_room, stats.rejected), (1, 1), "{stats:?}");
        world.refusal = None;
        // The UE's address is free.
        let (seid, teid) = world.establish(&request());
        world.modify(seid, &forward(RAN_TEID));
        world.passes(teid);
        world.restart();
        world.passes(teid);
    }
}

/// Rules that could not be stored are rejected before they take effect.
#[test]
fn oversized_session_is_refused() {
    let mut world = World::over(WriterMode::Sole);
    world.bench.upf.settings.record_octets = Some(700);
    let further = || (3..23).map(|id| downlink_pdr(id, Some(UE), None));
    let mut large = request();
    large.create_pdrs.extend(further());
    let response: SessionEstablishmentResponse =
        world.request_until_answered(|out, sequence| large.emit(out, 0, sequence));
    assert_eq!((response.cause, world.bench.upf.sessions()), (Cause::NO_RESOURCES, 0));
    let (seid, teid) = world.establish(&request());
    world.modify(seid, &forward(RAN_TEID));
    let mut larger = SessionModificationRequest::default();
    larger.create_pdrs.extend(further());
    assert_eq!(world.modify(seid, &larger).cause, Cause::NO_RESOURCES);
    world.passes(teid);
    world.restart();
    world.passes(teid);
    assert_eq!(world.modify(seid, &larger).cause, Cause::REQUEST_ACCEPTED, "where it can be kept");
}

/// Packets do not trigger writes: the loss is too little usage. Report numbers continue through all
/// incarnations.
#[test]
fn reports_continue_after_restart() {
    [WriterMode::Shared, WriterMode::Sole].into_iter().for_each(check_reports_after_restart);
}

fn check_reports_after_restart(mode: WriterMode) {
    let mut world = World::over(mode);
    let urr = CreateUrr {
        urr_id: UrrId(3),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: ReportingTriggers::VOLTH,
        volume_threshold: Some(VolumeThreshold { total: Some(300), ..VolumeThreshold::default() }),
        ..CreateUrr::default()
    };
    let mut request = request();
    request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(urr.urr_id));
    request.create_urrs.push(urr);
    let (seid, teid) = world.establish(&request);
    world.modify(seid, &forward(RAN_TEID));
    let usage = |report: &UsageReport| (report.ur_seqn.0, report.volume.and_then(|volume| volume.total));
    let reported = |world: &mut World| {
        let [at_once, later] = world.events();
        assert_eq!(at_once, vec![], "first the database has it");
        let (_, report) = super::reports::the_report(&later);
        let reports: Vec<_> = report.usage_reports.iter().map(usage).collect();
        reports[0]
    };
    (0..3).for_each(|_| world.bench.uplink(teid, &ipv4(UE, SERVER, 100)));
    assert_eq!(reported(&mut world), (0, Some(300)));
    // 200 octets are unreported when the UPF dies.
    (0..2).for_each(|_| world.bench.uplink(teid, &ipv4(UE, SERVER, 100)));
    world.restart();
    (0..3).for_each(|_| world.bench.uplink(teid, &ipv4(UE, SERVER, 100)));
    assert_eq!(reported(&mut world), (1, Some(300)), "the next number, and nothing twice");
    // A transaction stores the usage it has read.
    (0..2).for_each(|_| world.bench.uplink(teid, &ipv4(UE, SERVER, 100)));
    world.modify(seid, &buffer());
    world.restart();
    let last = world.delete(seid);
    assert_eq!(last.usage_reports.iter().map(|report| usage(&report.0)).collect::<Vec<_>>(), [(2, Some(200))]);
}

/// Requests of another control plane are refused at once and do not delay those of the owner.
#[test]
fn foreign_requests_do_not_delay_the_owner() {
    let mut world = World::new();
    let (seid, teid) = world.establish(&request());
    let other = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 66), PORT));
    let own = std::mem::replace(&mut world.bench.from, other);
    let setup = AssociationSetupRequest {
        node_id: NodeId::from(other.ip()),
        recovery_time_stamp: RecoveryTimeStamp(7),
        up_function_features: None,
        cp_function_features: None,
        session_retention: None,
    };
    let _: AssociationSetupResponse = world.request_until_answered(|out, sequence| setup.emit(out, sequence));
    for sequence in 500..600 {
        let mut octets = vec![];
        forward(Teid(7)).emit(&mut octets, seid, sequence).expect("short");
        let answer = world.send(&octets);
        let cause = Message::new(&answer[0].1).expect("sound").need();
        assert_eq!((answer[0].0, cause), (other, Ok(Cause::SESSION_CONTEXT_NOT_FOUND)), "before any work");
    }
    // An unknown SEID is looked up in the database; the number of these requests is bounded.
    for sequence in 0..2_000 {
        let mut octets = vec![];
        forward(Teid(7)).emit(&mut octets, u64::from(sequence) << 32, 1_000 + sequence).expect("short");
        world.send(&octets);
    }
    assert!(world.stored.jobs().len() <= 1_024);
    world.work();
    world.bench.from = own;
    assert_eq!(world.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    world.passes(teid);
}

/// Reports of two incarnations have different sequence numbers, so that none counts as an answered
/// repeat.
#[test]
fn requests_of_two_lives_are_told_apart() {
    let mut world = World::new();
    world.establish(&request());
    let sequence = |world: &mut World| {
        world.bench.plane.receive_n6(&ipv4(SERVER, UE, 40), world.bench.now.instant);
        let [at_once, later] = world.events();
        assert_eq!(later, vec![], "nothing of the session has changed");
        super::reports::the_report(&at_once).0
    };
    let first = sequence(&mut world);
    world.restart();
    assert!(sequence(&mut world).abs_diff(first) > 1_000);
}

#[test]
fn database_failure_is_cause_without_effect() {
    codecs().for_each(check_database_failure);
}

fn check_database_failure(codec: Codec) {
    let mut world = World::with_codec(codec);
    let (seid, _) = world.establish(&request());
    let mut octets = vec![];
    forward(RAN_TEID).emit(&mut octets, seid, 99).expect("short");
    assert_eq!(world.send(&octets), vec![]);
    let job = world.stored.jobs().pop_front().expect("a load");
    assert!(job.deadline.is_some(), "it is not waited for without end");
    let down = OperationResult::Loaded(Err(RecordError::Down("gone".into())));
    let out = world.with(|stored, on| stored.on_result(on, job.requester_name, down));
    let message = Message::new(&out[0].1).expect("sound");
    let response = SessionModificationResponse::parse(&message).expect("an answer");
    assert_eq!((message.seid(), response.cause), (CP_SEID, Cause::SYSTEM_FAILURE));
    // A repeat is executed.
    let mut out = world.send(&octets);
    out.extend(world.work());
    let message = Message::new(&out[0].1).expect("sound");
    let response = SessionModificationResponse::parse(&message).expect("an answer");
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
    // A commit whose confirmation was lost is recognised as done.
    let mut octets = vec![];
    buffer().emit(&mut octets, seid, 100).expect("short");
    world.send(&octets);
    let load = world.stored.jobs().pop_front().expect("a load");
    let done = world.execute(&load);
    world.with(|stored, on| stored.on_result(on, load.requester_name, done));
    let commit = world.stored.jobs().pop_front().expect("a commit");
    assert_eq!(commit.deadline, None, "what was done is committed however long that takes");
    world.execute(&commit);
    let again = world.execute(&commit);
    assert!(matches!(again, OperationResult::Changed(Err(RecordError::Conflict))));
    assert_eq!(world.with(|stored, on| stored.on_result(on, commit.requester_name, again)), vec![]);
    assert_eq!(world.work().len(), 1);
}

/// An unreadable record of another writer is overwritten: the record is not a whole with additional
/// parts.
#[test]
fn unreadable_record_is_overwritten() {
    let mut world = World::with_codec(Codec { format: Format::Json, update_mode: UpdateMode::Update });
    let (seid, teid) = world.establish(&request());
    let mut octets = vec![];
    forward(RAN_TEID).emit(&mut octets, seid, 99).expect("short");
    assert_eq!(world.send(&octets), vec![]);
    let load = world.stored.jobs().pop_front().expect("a load");
    let done = world.execute(&load);
    world.with(|stored, on| stored.on_result(on, load.requester_name, done));
    let name = Name { collection: "upf", id: seid };
    let found = |world: &mut World| world.records.load(&[name]).expect("it answers")[0].clone().expect("it is there");
    let expected = found(&mut world).version;
    let strange = Change::Commit { expected, octets: b"strange" };
    assert!(world.records.change(&[(name, strange)])[0].is_ok());
    assert_eq!(world.work().len(), 1, "the answer");
    let there = found(&mut world);
    assert!(there.octets.is_empty() && !there.parts.is_empty(), "{there:?}");
    world.restart();
    world.passes(teid);
}

/// Sessions that end without a transaction are removed too.
#[test]
fn session_of_restarted_peer_is_not_restored() {
    let mut world = World::new();
    world.establish(&request());
    let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(2_000) };
    let _: HeartbeatResponse = world.request_until_answered(|out, sequence| heartbeat.emit(out, sequence));
    assert_eq!((world.bench.upf.sessions(), world.written()), (0, 0));
    world.restart();
    assert_eq!((world.bench.upf.sessions(), world.bench.upf.associations()), (0, 0));
    world.bench.uplink(Teid(0x100), &ipv4(UE, SERVER, 100));
    assert_eq!(world.bench.plane.n3.len(), 1, "of what is not there in the end the RAN is told");
}
