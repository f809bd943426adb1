//! A UPF whose sessions are parts of their UEs' records.
//!
//! The test acts as the SMF, which commits the parts in responses.

use super::*;
use vireo_ops::shared_record::{self, UpfPartHeader};
use vireo_store::records::{Format, StoredRecord};

/// The UE's record, and the number of the part.
const RECORD: u64 = 77;
const NUMBER: u32 = 5;

impl World {
    fn shared(format: Format) -> Self {
        let mut world = World::sharing(Some(SharedRecordConfig { own: "10-0-0-1".into(), format }));
        let parts = [RecordPart { name: shared_record::AMF, octets: b"\"\"" }];
        world
            .records
            .change(&[(shared_record::name(RECORD), Change::Update { expected: 0, parts: &parts })])
            .remove(0)
            .unwrap();
        world.operations.clear();
        world
    }

    pub(crate) fn with_part_name(&self, request: &mut Vec<u8>) {
        let about = Message::new(request).expect("sound").message_type();
        let sessions = [
            MessageType::SESSION_ESTABLISHMENT_REQUEST,
            MessageType::SESSION_MODIFICATION_REQUEST,
            MessageType::SESSION_DELETION_REQUEST,
        ];
        if self.sharing.is_some() && sessions.contains(&about) {
            shared_record::with_part_name(request, (RECORD, NUMBER));
        }
    }

    fn record(&mut self) -> StoredRecord {
        self.records.load(&[shared_record::name(RECORD)]).expect("it answers").remove(0).expect("a record")
    }

    /// Commits the part in a response, as the SMF.
    pub(crate) fn smf_takes(&mut self, answer: &[u8]) {
        let Some(sharing) = self.sharing.clone() else { return assert_eq!(shared_record::part(answer), None) };
        let Some(part) = shared_record::part(answer) else { return };
        let (found, name) = (self.record(), shared_record::upf_part_name(NUMBER));
        let before = found
            .part(&name)
            .and_then(|kept| UpfPartHeader::decode(&shared_record::decode_octets(sharing.format, kept)?));
        let kept = shared_record::encode_octets(sharing.format, part.to_vec());
        let others: Vec<_> = found.parts.iter().filter(|(of, _)| *of != name).collect();
        let others: Vec<_> = others.iter().map(|(name, octets)| RecordPart { name, octets }).collect();
        let own = [RecordPart { name: &name, octets: &kept }];
        let expected = found.version;
        let change = match UpfPartHeader::decode(part) {
            None => Change::Replace { expected, parts: &others },
            Some(head) if head.follows(before) => Change::Update { expected, parts: &own },
            Some(_) => return,
        };
        self.records.change(&[(shared_record::name(RECORD), change)]).remove(0).expect("nobody else commits");
    }

    fn parts(&mut self) -> usize {
        self.record().parts.iter().filter(|(name, _)| shared_record::up_of(name).is_some()).count()
    }
}

/// n-1 writes are saved for a chain of n functions (stateless paper, section 3): the UPF reads and
/// does not write.
#[test]
fn control_plane_commits_part_of_upf() {
    for format in [Format::Binary, Format::Json] {
        let mut world = World::shared(format);
        let (seid, teid) = world.establish(&request());
        world.modify(seid, &forward(RAN_TEID));
        world.passes(teid);
        assert_eq!((world.parts(), world.written()), (1, 0));
        world.restart();
        world.passes(teid);
        world.delete(seid);
        assert_eq!((world.parts(), world.written(), world.record().parts.len()), (0, 0, 1));
        let kinds = [Transaction::PfcpEstablishment, Transaction::PfcpModification, Transaction::PfcpDeletion];
        for kind in kinds {
            assert_eq!(world.operations[kind.label()], [1, 0, 0]);
        }
        world.restart();
        assert_eq!(world.bench.upf.sessions(), 0);
    }
}

/// After a crash at any point, each request gets one response, and the session exists.
#[test]
fn killed_upf_has_committed_parts() {
    let mut lives = 0;
    for fuse in 0..3 {
        let mut world = World::shared(Format::Binary);
        world.fuse = Some(fuse);
        let (seid, teid) = world.establish(&request());
        world.modify(seid, &forward(RAN_TEID));
        world.passes(teid);
        let known = [Cause::REQUEST_ACCEPTED, Cause::SESSION_CONTEXT_NOT_FOUND];
        assert!(known.contains(&world.delete(seid).cause));
        assert_eq!((world.bench.upf.sessions(), world.parts()), (0, 0));
        lives += world.lives;
    }
    assert_eq!(lives, 3 * 2);
}

/// The UPF dies after its response and before the SMF's commit. The next incarnation finds the
/// session when it reads the records again, or when a request names it.
#[test]
fn late_commit_is_found_later() {
    for asked in [false, true] {
        let mut world = World::shared(Format::Binary);
        let mut octets = vec![];
        request().emit(&mut octets, 0, 99).expect("short");
        world.with_part_name(&mut octets);
        assert_eq!(world.send(&octets), vec![]);
        let out = world.work();
        world.restart();
        assert_eq!(world.bench.upf.sessions(), 0);
        world.smf_takes(&out[0].1);
        let (seid, teid) =
            established(&SessionEstablishmentResponse::parse(&Message::new(&out[0].1).unwrap()).unwrap());
        if !asked {
            let found = OperationResult::Loaded(Ok(Some(world.record())));
            world.with(|stored, on| stored.on_result(on, shared_record::name(RECORD), found));
            assert_eq!(world.bench.upf.sessions(), 1);
        }
        assert_eq!(world.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
        world.passes(teid);
        // A removed session is not restored by a read that started before.
        let found = OperationResult::Loaded(Ok(Some(world.record())));
        world.delete(seid);
        world.with(|stored, on| stored.on_result(on, shared_record::name(RECORD), found));
        assert_eq!(world.bench.upf.sessions(), 0);
    }
}

/// The UPF commits changes by packets and restarted control planes itself, beside the parts of
/// others.
#[test]
fn upf_commits_changes_without_request() {
    let mut world = World::shared(Format::Json);
    world.establish(&request());
    assert_eq!(world.parts(), 1);
    let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(2_000) };
    let _: HeartbeatResponse = world.request_until_answered(|out, sequence| heartbeat.emit(out, sequence));
    assert_eq!((world.bench.upf.sessions(), world.parts(), world.record().parts.len()), (0, 0, 1));
    world.restart();
    assert_eq!(world.bench.upf.sessions(), 0);
}

/// Without a shared record in the request a session has its own record. Parts of another UPF are
/// ignored.
#[test]
fn unshared_session_has_own_record() {
    let mut world = World::shared(Format::Binary);
    let sharing = world.sharing.take();
    let (seid, _) = world.establish(&request());
    assert_eq!((world.written(), world.parts()), (1, 0));
    world.delete(seid);
    world.sharing = sharing;
    world.establish(&request());
    world.sharing.as_mut().unwrap().own = "10-0-0-2".into();
    world.restart();
    assert_eq!((world.bench.upf.sessions(), world.parts()), (0, 1));
}
