//! SM contexts in memory that outlives the SMF, which has it for itself.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vireo_store::records::Operations;

impl World {
    /// In shared memory.
    pub(super) fn here() -> Self {
        World::over(Some(Memory::new()), Keeper::Here)
    }

    /// The SMF that begins has the records, in which these are.
    pub(super) fn have(&mut self, there: Vec<(Ltmsi, Box<Session>, Version)>) {
        if let (Keeper::Here, Some(records)) = (self.keeper, &self.records) {
            self.smf.keep_here(Box::new(records.clone()), Arc::clone(&memory::METRICS), there);
        }
    }

    fn is_full(&mut self, full: &Arc<AtomicBool>) {
        let records = Full(self.records.clone().expect("records"), Arc::clone(full));
        self.smf.keep_here(Box::new(records), Arc::clone(&memory::METRICS), Vec::new());
    }
}

/// Records that have no room while this is so.
struct Full(Memory, Arc<AtomicBool>);

impl Records for Full {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<Found>>, RecordError> {
        self.0.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        if self.1.load(Ordering::Relaxed) {
            return changes.iter().map(|_| Err(RecordError::Full)).collect();
        }
        self.0.change(changes)
    }

    fn numbers(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.0.numbers(collection)
    }

    fn operations(&self) -> Operations {
        self.0.operations()
    }
}

/// Nothing is read: nobody else writes.
#[test]
fn a_transaction_costs_one_write() {
    let mut world = World::here();
    let count = |world: &World| {
        let now = world.records.as_ref().unwrap().operations();
        (now.reads, now.writes, now.removals)
    };
    let path = world.active();
    assert_eq!(count(&world), (0, 4, 0));
    world.state(&path, UpCnxState::Deactivated);
    assert_eq!(count(&world), (0, 6, 0));
    world.call(&format!("{path}/release"), Message::of(smf::SmContextReleaseData::default()));
    assert_eq!(count(&world), (0, 7, 1));
    assert!(world.is_empty());
}

/// Who asks is told, and nothing has happened; what the UPF has answered is taken when there is room, before what comes later.
#[test]
fn what_has_no_room_is_void_and_nothing_that_was_said_is_lost() {
    let (mut world, full) = (World::here(), Arc::new(AtomicBool::new(true)));
    world.is_full(&full);
    world.call(SM_CONTEXTS, create_message(&data()));
    assert_eq!(world.last().status, 500);
    assert!(world.is_empty() && world.pfcp.is_empty(), "nothing has left");
    full.store(false, Ordering::Relaxed);
    // The only address is free.
    let path = world.create();
    let before = world.session();
    full.store(true, Ordering::Relaxed);
    let transfers = world.transfers.len();
    world.ran_up(&path);
    assert_eq!((world.last().status, world.pfcp.len()), (500, 0));
    assert_eq!(world.session(), before);
    // The RAN is not heard of in time, which nobody asks for, and then the AMF asks.
    let due = world.smf.next_due().expect("the RAN is waited for");
    world.now = due.max(world.now + Duration::from_secs(31));
    world.smf.on_time(world.now);
    world.ran_up(&path);
    assert_eq!((world.last().status, world.transfers.len()), (500, transfers), "first what came first");
    let again = world.smf.next_due().expect("it is tried again");
    assert!(again <= world.now + Duration::from_secs(1));
    full.store(false, Ordering::Relaxed);
    world.now = again;
    world.smf.on_time(again);
    world.act();
    assert_eq!(world.transfers.len(), transfers + 1, "the UE is told that the session ends");
    assert_ne!(world.session(), before);
}
