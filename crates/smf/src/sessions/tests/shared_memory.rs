//! Tests of SM contexts in shared memory that outlives the SMF.

use super::*;
use std::sync::Arc;
use std::sync::Mutex;
use vireo_store::records::Operations;

impl World {
    /// Returns a world with shared memory.
    pub(super) fn here() -> Self {
        World::over(Some(Memory::new()), SessionStorage::Shm)
    }

    /// Passes the records and their SM contexts to a new SMF.
    pub(super) fn have(&mut self, there: Vec<RecoveredSession>) {
        if let (SessionStorage::Shm, Some(records)) = (self.storage_kind, &self.records) {
            self.smf.use_shm_records(Box::new(records.clone()), Arc::clone(&memory::METRICS), there);
        }
    }

    fn refuses(&mut self, error: &Refusal) {
        let records = Refusing(self.records.clone().expect("records"), Arc::clone(error));
        self.smf.use_shm_records(Box::new(records), Arc::clone(&memory::METRICS), Vec::new());
    }
}

/// Error with which changes are refused, if any.
type Refusal = Arc<Mutex<Option<RecordError>>>;

/// Records that refuse changes while the error is set.
struct Refusing(Memory, Refusal);

impl RecordStore for Refusing {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.0.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        if let Some(error) = &*self.1.lock().unwrap() {
            return changes.iter().map(|_| Err(error.clone())).collect();
        }
        self.0.change(changes)
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.0.list_ids(collection)
    }

    fn operations(&self) -> Operations {
        self.0.operations()
    }
}

/// Nothing is read, because no other process writes.
#[test]
fn transaction_costs_one_write() {
    let mut world = World::here();
    let count = |world: &World| {
        let now = world.records.as_ref().unwrap().operations();
        (now.reads, now.writes, now.removals)
    };
    let path = world.active();
    assert_eq!(count(&world), (0, 4, 0));
    world.state(&path, UpCnxState::Deactivated);
    assert_eq!(count(&world), (0, 6, 0));
    world.call(&format!("{path}/release"), Message::new(smf::SmContextReleaseData::default()));
    assert_eq!(count(&world), (0, 7, 1));
    assert!(world.is_empty());
}

/// A request gets an error and has no effect. A UPF's response is processed when there is room,
/// before later events.
#[test]
fn change_without_room_loses_no_answer() {
    let (mut world, full) = (World::here(), Refusal::default());
    let is_full = |is: bool| *full.lock().unwrap() = is.then_some(RecordError::Full);
    is_full(true);
    world.refuses(&full);
    world.call(SM_CONTEXTS, create_message(&data()));
    assert_eq!(cause(&world), (500, "INSUFFICIENT_RESOURCES_SLICE_DNN".to_owned()));
    assert!(world.is_empty() && world.pfcp.is_empty(), "nothing has left");
    is_full(false);
    // The only address is free.
    let path = world.create();
    let before = world.session();
    is_full(true);
    let transfers = world.transfers.len();
    world.ran_up(&path);
    assert_eq!((cause(&world), world.pfcp.len()), ((500, "INSUFFICIENT_RESOURCES".to_owned()), 0));
    assert_eq!(world.session(), before);
    // The RAN's response is overdue, an event without a request. Then the AMF sends a request.
    let due = world.smf.next_due().expect("the RAN is waited for");
    world.now = due.max(world.now + Duration::from_secs(31));
    world.smf.on_time(world.now);
    world.ran_up(&path);
    assert_eq!((world.last().status, world.transfers.len()), (500, transfers), "first what came first");
    let again = world.smf.next_due().expect("it is tried again");
    assert!(again <= world.now + Duration::from_secs(1));
    is_full(false);
    world.now = again;
    world.smf.on_time(again);
    world.act();
    assert_eq!(world.transfers.len(), transfers + 1, "the UE is told that the session ends");
    assert_ne!(world.session(), before);
}

/// A transaction that is too large is not retried. The waiting request gets an error, and the SM
/// context is unchanged.
#[test]
fn oversized_change_is_void() {
    let (mut world, refusal) = (World::here(), Refusal::default());
    world.refuses(&refusal);
    let path = world.create();
    let before = world.session();
    *refusal.lock().unwrap() = Some(RecordError::TooLarge { octets: 70_000, most: 65_480 });
    world.ran_up(&path);
    assert_eq!((cause(&world), world.pfcp.len()), ((500, "INSUFFICIENT_RESOURCES".to_owned()), 0));
    // No request waits for the deadline.
    let due = world.smf.next_due().expect("the RAN is waited for");
    world.now = due.max(world.now + Duration::from_secs(31));
    world.smf.on_time(world.now);
    world.act();
    assert_eq!(world.session(), before);
    let again = world.smf.next_due().expect("it is looked at again");
    assert!(again >= world.now + Duration::from_secs(5), "and not all the time");
    *refusal.lock().unwrap() = None;
    world.now = again;
    world.smf.on_time(again);
    world.act();
    assert_ne!(world.session(), before, "what was due is done");
}

/// Returns status and cause of the last response.
fn cause(world: &World) -> (u16, String) {
    let reply = world.last();
    let problem: vireo_sbi::common::ProblemDetails = reply.message.value().expect("a problem");
    (reply.status, problem.cause.expect("a cause"))
}
