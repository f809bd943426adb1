//! A UPF whose sessions are in shared memory without free space.

use super::*;
use crate::persistence::in_memory;
use vireo_store::records::ShmRecords;

/// Collection that occupies the space.
const OTHER: &str = "other";

struct FullStore {
    _directory: tempfile::TempDir,
    records: ShmRecords,
    fillers: u64,
}

impl FullStore {
    fn new() -> (FullStore, World) {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let records = ShmRecords::open(&directory.path().join("upf"), 500, LIFE).expect("records");
        let mut world = World::with_records(Box::new(records.clone()), WriterMode::Sole, Codec::default(), None);
        let store = FullStore { _directory: directory, records, fillers: 0 };
        store.attach_to(&mut world);
        (store, world)
    }

    /// Gives the UPF the capacity check.
    fn attach_to(&self, world: &mut World) {
        let settings = &mut world.bench.upf.settings;
        (settings.room, settings.record_octets) = (Some(in_memory(self.records.clone())), Some(60_000));
    }

    /// Occupies the space, except for slightly larger records.
    fn fill(&mut self) {
        let mut commit = |octets: &[u8]| {
            let name = Name { collection: OTHER, id: self.fillers };
            let done = self.records.change(&[(name, Change::Commit { expected: 0, octets })]).remove(0);
            self.fillers += u64::from(done.is_ok());
            done.is_ok()
        };
        while commit(&[7; 60 << 10]) {}
    }

    fn make_room(&mut self) {
        let name = Name { collection: OTHER, id: 0 };
        assert_eq!(self.records.change(&[(name, Change::Remove { expected: 1 })]), [Ok(0)]);
    }
}

/// Rules that enlarge a session's record beyond any existing buffer.
fn more_rules() -> SessionModificationRequest {
    let further = (3..23).map(|id| downlink_pdr(id, Some(UE), None));
    let mut request = SessionModificationRequest { create_pdrs: further.collect(), ..Default::default() };
    request.update_fars.extend(buffer().update_fars);
    request
}

/// A change without room is rejected at once, and packets follow the previous rules; other changes
/// succeed.
#[test]
fn change_without_room_is_refused() {
    let (mut store, mut world) = FullStore::new();
    let (seid, teid) = world.establish(&request());
    world.modify(seid, &forward(RAN_TEID));
    store.fill();
    for _ in 0..2 {
        assert_eq!(world.modify(seid, &more_rules()).cause, Cause::NO_RESOURCES);
        world.passes(teid);
    }
    assert_eq!(world.modify(seid, &buffer()).cause, Cause::REQUEST_ACCEPTED, "a record of the same size");
    assert_eq!(world.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    world.restart();
    store.attach_to(&mut world);
    world.passes(teid);
    assert_eq!(world.modify(seid, &more_rules()).cause, Cause::NO_RESOURCES);
    store.make_room();
    assert_eq!(world.modify(seid, &more_rules()).cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(world.delete(seid).cause, Cause::REQUEST_ACCEPTED);
}

/// While a report waits for room, requests about its session are answered. The report leaves when
/// there is room.
#[test]
fn session_without_room_delays_no_other() {
    let (_store, mut world) = FullStore::new();
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
    for deleted in [false, true] {
        let (seid, teid) = world.establish(&request);
        world.modify(seid, &forward(RAN_TEID));
        world.refusal = Some(RecordError::Full);
        (0..3).for_each(|_| world.bench.uplink(teid, &ipv4(UE, SERVER, 100)));
        assert_eq!(world.events(), [vec![], vec![]], "first there must be room");
        let tried = world.with(|stored, on| stored.retry_stalled(on));
        assert_eq!((tried, world.work()), (vec![], vec![]));
        world.refusal = None;
        let (sequence, mut octets) = (700 + u32::from(deleted), vec![]);
        match deleted {
            true => (SessionDeletionRequest {}).emit(&mut octets, seid, sequence).expect("short"),
            false => buffer().emit(&mut octets, seid, sequence).expect("short"),
        }
        assert_eq!(world.send(&octets), vec![], "it is carried out and not told yet");
        let out = world.work();
        let kinds: Vec<_> = out.iter().map(|(_, it)| Message::new(it).expect("sound").message_type()).collect();
        let answer = match deleted {
            true => MessageType::SESSION_DELETION_RESPONSE,
            false => MessageType::SESSION_MODIFICATION_RESPONSE,
        };
        assert_eq!(kinds, [answer, MessageType::SESSION_REPORT_REQUEST]);
        world.bench.plane.n6.clear();
        if !deleted {
            assert_eq!(world.delete(seid).cause, Cause::REQUEST_ACCEPTED);
        }
    }
    assert_eq!(world.written(), 0);
}
