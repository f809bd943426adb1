//! Tests of UE records that AMF and SMF share.
//!
//! The test is the AMF, which sends its part with each request.

use super::*;
use vireo_core::amf::context::{self, UeContext};
use vireo_ops::sbi::translate;
use vireo_ops::shared_record::{self, AmfPartHeader, DelegatedCommit, UpfPartHeader};
use vireo_ops::ue_record::{UeRecord, stored_part};

/// Number of the UE record.
const RECORD: u64 = 77;

/// State of the AMF.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amf {
    owner: u64,
    /// Step number of the AMF's newest part.
    step: u64,
    /// Number of SMF operations after which the AMF commits by itself.
    commits_in: Option<u32>,
    /// Step number of the UPF's newest part; `None` = the UPF has no part.
    upf: Option<u64>,
}

fn part(owner: u64, step: u64) -> Vec<u8> {
    let context = context::encode(&UeContext::new(Ltmsi::from_raw(5)), Vec::new()).unwrap();
    UeRecord { owner, step, context, ..UeRecord::default() }.encode().unwrap()
}

fn up_part(seid: u64, step: u64) -> Vec<u8> {
    postcard::to_stdvec(&(UpfPartHeader { seid, step }, "what the UPF has")).unwrap()
}

impl World {
    /// Returns a world with a registered UE, whose record the AMF has created.
    pub(super) fn shared(format: Format) -> Self {
        World::shared_in(StateScope::AmfSmf, format)
    }

    /// Returns a world whose UPF shares the record, too.
    pub(super) fn shared_by_all(format: Format) -> Self {
        World::shared_in(StateScope::All, format)
    }

    pub(super) fn scope(&self) -> StateScope {
        if let SessionStorage::Database(storing) = self.storage_kind { storing.scope } else { StateScope::Function }
    }

    fn shared_in(scope: StateScope, format: Format) -> Self {
        let (persist, codec) = (StatePersist::Transaction, Codec { format, update_mode: UpdateMode::Update });
        let storing = StorageConfig { persist, codec, scope, octets: format, timeout: PATIENCE };
        let mut world = World::over(Some(Memory::new()), SessionStorage::Database(storing));
        world.amf = Some(Amf { owner: 1, step: 0, commits_in: None, upf: scope.includes_upf().then_some(0) });
        world.amf_commits();
        world
    }

    fn record(&mut self) -> Option<StoredRecord> {
        self.records.as_mut()?.load(&[shared_record::name(RECORD)]).unwrap().remove(0)
    }

    /// Returns the header of the AMF's part in the record.
    fn head(&mut self) -> AmfPartHeader {
        let format = self.codec().format;
        AmfPartHeader::from_record(format, &self.record().unwrap()).unwrap()
    }

    /// Commits a step of the AMF.
    fn amf_commits(&mut self) {
        let Some(amf) = &mut self.amf else { return };
        amf.step += 1;
        let part = part(amf.owner, amf.step);
        let octets = stored_part(self.codec().format, &part).unwrap();
        let expected = self.record().map_or(0, |found| found.version);
        let parts = [vireo_store::records::RecordPart { name: shared_record::AMF, octets: &octets }];
        let change = Change::Update { expected, parts: &parts };
        self.records.as_mut().unwrap().change(&[(shared_record::name(RECORD), change)]).remove(0).unwrap();
    }

    /// Commits a step of the AMF if it is due before the SMF's next operation.
    pub(super) fn interferes(&mut self) {
        let Some(Amf { commits_in: Some(left), .. }) = &mut self.amf else { return };
        *left = left.wrapping_sub(1);
        if *left == u32::MAX {
            self.amf.as_mut().unwrap().commits_in = None;
            self.amf_commits();
        }
    }

    /// Adds the AMF's part with its next step to a request.
    pub(super) fn with_part(&mut self, message: Message) -> Message {
        let asks = message.parts.iter().any(|part| part.content == PartContent::AmfContext);
        let Some(amf) = self.amf.as_mut().filter(|_| !asks) else { return message };
        amf.step += 1;
        let travels = DelegatedCommit { record: RECORD, part: Some(part(amf.owner, amf.step)) };
        translate::with_delegated_commit(message, Some(&travels))
    }

    /// Adds the UPF's part to its response, if it shares the record.
    pub(super) fn upf_has(&mut self, request: &[u8], kind: pfcp::MessageType, answer: &mut Vec<u8>) {
        let place = shared_record::part_name(request);
        let Some(step) = self.amf.as_mut().and_then(|amf| amf.upf.as_mut()) else { return assert_eq!(place, None) };
        assert_eq!(place.map(|(record, _)| record), Some(RECORD));
        *step += 1;
        let gone = kind == pfcp::MessageType::SESSION_DELETION_RESPONSE;
        let part = if gone { Vec::new() } else { up_part(99, *step) };
        assert!(shared_record::with_part(answer, &part));
    }

    /// Returns the header of the UPF's part in the record.
    fn up_head(&mut self) -> Option<UpfPartHeader> {
        let (format, parts) = (self.codec().format, self.record().unwrap().parts);
        let (_, kept) = parts.iter().find(|(name, _)| shared_record::up_of(name).is_some())?;
        UpfPartHeader::decode(&shared_record::decode_octets(format, kept).unwrap())
    }

    /// Returns the SM contexts in the record.
    pub(super) fn shared_sessions(&mut self) -> Vec<Session> {
        let format = self.codec().format;
        let parts = self.record().map_or(Vec::new(), |found| found.parts);
        let all = parts.iter().filter(|(name, _)| shared_record::sm_of(name).is_some());
        all.map(|(_, octets)| *Session::from_part(format, octets).unwrap()).collect()
    }
}

/// n network functions write 2n times for a transaction that each of them loads and commits. With a
/// shared record they write n-1 times less (stateless paper, section 3): the SMF's write also
/// commits the AMF's part.
#[test]
fn one_write_commits_what_all_have() {
    for world in [World::shared(Format::Json), World::shared_by_all(Format::Json)] {
        one_write_commits(world);
    }
}

fn one_write_commits(mut world: World) {
    let count = |world: &World| {
        let now = world.records.as_ref().unwrap().operations();
        (now.reads, now.writes, now.removals)
    };
    let mut before = count(&world);
    let mut costs = |world: &mut World, expected: (u64, u64)| {
        let after = count(world);
        assert_eq!((after.0 - before.0, after.1 - before.1, after.2), (expected.0, expected.1, 0));
        let head = world.head();
        let amf = world.amf.unwrap();
        assert_eq!(head.step, amf.step, "what the AMF has asked with is there");
        if let (Some(step), false) = (amf.upf, world.shared_sessions().is_empty()) {
            assert_eq!(world.up_head(), Some(UpfPartHeader { seid: 99, step }), "and what the UPF has answered with");
        }
        before = count(world);
    };
    let path = world.create();
    // The create request with the AMF's part, and the UPF's response.
    costs(&mut world, (2, 2));
    world.ran_up(&path);
    costs(&mut world, (2, 2));
    world.state(&path, UpCnxState::Deactivated);
    costs(&mut world, (2, 2));
    world.call(&format!("{path}/release"), Message::new(smf::SmContextReleaseData::default()));
    costs(&mut world, (2, 2));
    // A request that changes only the AMF's part.
    world.call(SM_CONTEXTS, create_message(&SmContextCreateData { pdu_session_id: 6, ..data() }));
    assert_eq!(world.last().status, 403);
    costs(&mut world, (1, 1));
    assert!(world.is_empty() && world.up_head().is_none(), "the AMF's part is all that is left");
}

/// Whenever the AMF commits by itself, its part never becomes older, and no SMF state is lost.
#[test]
fn concurrent_amf_commit_stays() {
    for (start, format) in [
        (World::shared as fn(Format) -> World, Format::Binary),
        (World::shared, Format::Json),
        (World::shared_by_all, Format::Binary),
    ] {
        let mut times = 0;
        for commits_in in 0.. {
            let mut world = start(format);
            world.amf.as_mut().unwrap().commits_in = Some(commits_in);
            whole_life(&mut world);
            let amf = world.amf.unwrap();
            assert_eq!(world.head(), AmfPartHeader { owner: amf.owner, step: amf.step, removed: false });
            if amf.commits_in.is_some() {
                break;
            }
            times += 1;
        }
        assert!(times > 20, "{times} operations to come before");
    }
}

/// Requests of a replaced AMF fail, before and after the next AMF has claimed the UE.
#[test]
fn fenced_amf_changes_nothing() {
    let mut world = World::shared(Format::Binary);
    let path = world.active();
    let before = world.session();
    let old = *world.amf.as_ref().unwrap();
    // The next AMF claims the record between the SMF's load and its commit.
    for operations in [0, 1] {
        let next = Amf { owner: old.owner + 1 + u64::from(operations), step: world.head().step, ..old };
        let message = Message::new(&SmContextUpdateData {
            up_cnx_state: Some(UpCnxState::Deactivated),
            ..SmContextUpdateData::default()
        });
        let message = world.with_part(message);
        world.amf = Some(Amf { commits_in: Some(operations), ..next });
        world.call(&format!("{path}/modify"), message);
        assert_eq!(world.last().status, 409, "{:?}", world.last());
        assert_eq!((world.session(), world.head().owner), (before.clone(), next.owner));
    }
    // The next AMF continues.
    assert_eq!(world.state(&path, UpCnxState::Deactivated).up_cnx_state, Some(UpCnxState::Deactivated));
    let head = world.head();
    assert_eq!(head.step, world.amf.unwrap().step);
}

/// If the record is missing, or the number is another record's, the AMF gets an error and commits
/// its part itself.
#[test]
fn refused_amf_part_is_reported() {
    let mut world = World::shared(Format::Json);
    // The second one has the header of a part and no content.
    let head = postcard::to_stdvec(&AmfPartHeader { owner: 1, step: 9, removed: false }).unwrap();
    for broken in [vec![1], DelegatedCommit { record: RECORD, part: Some(head) }.encode()] {
        world.call(SM_CONTEXTS, Message::default().with("x", PartContent::AmfContext, broken));
        assert_eq!(world.last().status, 400);
    }
    let mut world = World::shared(Format::Binary);
    let elsewhere = DelegatedCommit { record: RECORD + 1, part: Some(part(1, 9)) };
    world.call(SM_CONTEXTS, translate::with_delegated_commit(create_message(&data()), Some(&elsewhere)));
    assert_eq!(world.last().status, 404, "there is no such UE");
    assert!(world.is_empty());
    // Without a shared record, the SM context has its own record.
    world.amf = None;
    world.create();
    assert_eq!(world.records.as_mut().unwrap().list_ids("smf").unwrap().len(), 1);
    assert_eq!(world.session().record(), None);
}

/// A part that the UPF has committed itself meanwhile (for a report) is newer than that of its
/// response, and stays.
#[test]
fn earlier_upf_part_never_replaces_later() {
    let mut world = World::shared_by_all(Format::Json);
    let path = world.active();
    world.upf_answers = false;
    world.state(&path, UpCnxState::Deactivated);
    let name = shared_record::upf_part_name(wire::seid_of(path.rsplit('/').next().unwrap()).unwrap().ltmsi().get());
    let put = |world: &mut World, seid, step| {
        let octets = shared_record::encode_octets(Format::Json, up_part(seid, step));
        let parts = [vireo_store::records::RecordPart { name: &name, octets: &octets }];
        let change = Change::Update { expected: world.record().unwrap().version, parts: &parts };
        world.records.as_mut().unwrap().change(&[(shared_record::name(RECORD), change)]).remove(0).unwrap();
    };
    put(&mut world, 99, 50);
    world.upf();
    assert_eq!(world.up_head(), Some(UpfPartHeader { seid: 99, step: 50 }));
    assert_eq!(world.session().sm.n4, N4State::Synced, "the answer counts all the same");
    // A session that was set up again has no newer part.
    put(&mut world, 7, 60);
    world.state(&path, UpCnxState::Activating);
    world.ran_up(&path);
    world.upf();
    assert_eq!(world.up_head().map(|head| head.seid), Some(99));
}

/// The record of a deleted UE is removed with its last session.
#[test]
fn record_is_removed_with_last_session() {
    let mut world = World::shared(Format::Json);
    let path = world.active();
    let step = world.amf.unwrap().step + 1;
    let gone = UeRecord { owner: 1, step, removed: true, ..UeRecord::default() }.encode().unwrap();
    let travels = DelegatedCommit { record: RECORD, part: Some(gone) };
    let release = Message::new(smf::SmContextReleaseData::default());
    world.call(&format!("{path}/release"), translate::with_delegated_commit(release, Some(&travels)));
    assert_eq!((world.last().status, world.record().is_none()), (204, true));
    assert!(world.is_empty());
}
