//! Contexts in a database whose commits nobody waits for.

use super::tests::elsewhere;
use super::*;
use crate::nf::central::{CentralConfig, Claim};
use crate::state::RecordsConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vireo_core::config::StateWrite;
use vireo_store::records::{Change, LIFE, MemoryRecords, Name, Operations, RecordError, Records};
use vireo_store::region::RegionConfig;
use vireo_types::Ltmsi;

/// A place to which nothing is written as long as it is shut.
#[derive(Clone)]
pub(super) struct Gate(pub(super) MemoryRecords, pub(super) Arc<AtomicBool>);

impl Gate {
    pub(super) fn shut(&self, shut: bool) {
        self.1.store(shut, Ordering::SeqCst);
    }
}

impl Records for Gate {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<vireo_store::records::Found>>, RecordError> {
        self.0.load(names)
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        if self.1.load(Ordering::SeqCst) {
            return changes.iter().map(|_| Err(RecordError::Down("it is shut".into()))).collect();
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

/// A worker of an AMF, whose writers have a gate of their own before the database.
struct Nf {
    gate: Gate,
    worker: Worker,
    contexts: Contexts,
}

impl Nf {
    fn new(region: &Region, number: u8, records: &MemoryRecords) -> Self {
        let gate = Gate(records.clone(), Arc::default());
        let mut records = RecordsConfig::at("redis://127.0.0.1:1");
        records.write = StateWrite::NonBlocking;
        let config = CentralConfig { records, owner: 5, shared: false };
        let mut contexts = Contexts::new(Location::Region);
        contexts.place = Place::Central { central: Box::new(Central::over(config, &gate)), held: None };
        Nf { gate, worker: region.join(number).unwrap(), contexts }
    }

    fn load(&mut self, region: &Region, slot: Slot) -> Result<Found, StepError> {
        self.contexts.load(region, &mut self.worker, slot)
    }

    /// A step over a UE, by an input of this number.
    fn step(&mut self, region: &Region, slot: Slot, input: u64) -> Result<Found, StepError> {
        let found = self.load(region, slot)?;
        self.contexts.fresh(region, slot, found);
        let mut hand = self.contexts.take().expect("a context");
        hand.ue.connections += 1;
        self.contexts.commit_alone(&mut self.worker, hand, false, (input, None, 0), b"outbox")?;
        Ok(found)
    }

    /// The same until what is waited for is there.
    fn step_at_last(&mut self, region: &Region, slot: Slot, input: u64) -> Found {
        loop {
            match self.step(region, slot, input) {
                Ok(found) => return found,
                Err(error) => assert!(error.passes(), "{error}"),
            }
        }
    }

    /// All of a UE is written.
    fn written(&mut self, region: &Region, slot: Slot) {
        while let Err(error) = self.load(region, slot) {
            assert!(error.passes(), "{error}");
        }
    }

    fn config(&self) -> CentralConfig {
        let Place::Central { central, .. } = &self.contexts.place else { panic!("elsewhere") };
        central.config().clone()
    }

    /// The steps of a UE that the database has.
    fn in_database(&self, region: &Region, slot: Slot) -> Option<u32> {
        let id = elsewhere(region, slot).id;
        let (_, stored) = Central::over(self.config(), &self.gate.0).read(id).unwrap()?;
        Some(context::decode(&stored.context).unwrap().connections.into())
    }

    fn connections(&self) -> Option<u32> {
        self.contexts.current().map(|ue| ue.connections.into())
    }
}

/// Whichever worker takes a UE next, it reads what was committed last.
#[test]
fn who_loads_next_waits_for_what_is_being_written() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    one.gate.shut(true);
    assert!(matches!(one.step(&region, slot, 1), Ok(Found::Nothing)), "it goes on at once");
    assert_eq!(region.consumed_of(slot), 1, "what it wants done leaves");
    assert_eq!(records.clone().numbers("amf"), Ok(Vec::new()), "nothing is written yet");
    let error = one.load(&region, slot).expect_err("it has it in hand");
    assert!(error.passes(), "{error}");
    let opens = std::thread::spawn({
        let gate = one.gate.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.shut(false);
        }
    });
    let found = two.step_at_last(&region, slot, 2);
    assert!(matches!(found, Found::Context { consumed: 1, .. }), "{found:?}");
    opens.join().unwrap();
    let found = one.step_at_last(&region, slot, 3);
    assert!(matches!(found, Found::Context { consumed: 2, .. }), "{found:?}");
    let found = one.step_at_last(&region, slot, 4);
    assert!(matches!(found, Found::Context { consumed: 3, .. }), "{found:?}");
    one.written(&region, slot);
    two.load(&region, slot).unwrap();
    assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(4), Some(4)), "no step is missing");
    // Whoever is too slow is not waited for for ever: the region has what it has not written.
    one.gate.shut(true);
    one.step(&region, slot, 5).unwrap();
    two.load(&region, slot).unwrap();
    assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(5), Some(4)));
}

/// A worker dies with commits that are not written: the region has what they were, and whoever goes on is told of nothing else. What
/// is written late changes nothing.
#[test]
fn what_a_dead_worker_has_not_written_is_gone_on_from() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let [slot, other] = [7, 8].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    one.step(&region, slot, 1).unwrap();
    one.step_at_last(&region, slot, 2);
    one.written(&region, slot);
    one.gate.shut(true);
    one.step(&region, slot, 3).unwrap();
    one.step(&region, other, 1).unwrap();
    let Nf { gate, worker, contexts } = one;
    drop(worker);
    let found = two.load(&region, slot).unwrap();
    assert!(matches!(found, Found::Context { consumed: 3, unsent: Some(_) }), "{found:?}");
    let Some(hand) = two.contexts.loaded.as_deref() else { panic!("a context") };
    assert_eq!((hand.ue.connections, hand.ue.sequence), (3, 0), "nothing is lost, and no name or COUNT skipped");
    let wanted: Vec<&[u8]> = hand.stored.course.wanted.iter().map(|wanted| &wanted.outbox[..]).collect();
    assert_eq!(wanted, [b"outbox"], "the last one, as the region knows what was done");
    // One that was never written.
    let found = two.load(&region, other).unwrap();
    assert!(matches!(found, Found::Context { consumed: 1, .. }), "{found:?}");
    two.step(&region, other, 2).unwrap();
    // The last words of the dead come before what goes on, and after it.
    let found = two.load(&region, slot).unwrap();
    assert!(matches!(found, Found::Context { consumed: 3, .. }), "{found:?}");
    let hand = two.contexts.take().unwrap();
    gate.shut(false);
    drop(contexts);
    let late = two.contexts.commit_alone(&mut two.worker, hand, false, (4, None, 0), b"outbox").unwrap_err();
    assert!(late.passes(), "{late}");
    two.step_at_last(&region, slot, 4);
    for (slot, steps) in [(slot, 4), (other, 2)] {
        two.written(&region, slot);
        assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(steps), Some(steps)));
    }
}

/// A worker dies between handing a commit over and the region's: the event is carried out again, by another one, which has to say
/// something else. What it has said counts, even if the dead one's is written first.
#[test]
fn what_has_left_counts_and_not_what_a_dead_worker_writes_at_last() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    one.step(&region, slot, 1).unwrap();
    one.written(&region, slot);
    [&one, &two].into_iter().for_each(|nf| nf.gate.shut(true));
    let Place::Central { central, .. } = &mut one.contexts.place else { panic!("elsewhere") };
    let id = one.contexts.loaded.as_deref().and_then(|hand| hand.stored.elsewhere).expect("a record").id;
    let (version, mut stored) = central.read(id).unwrap().expect("written");
    let mut ue = context::decode(&stored.context).unwrap();
    ue.connections = 77;
    (stored.step, stored.consumed, stored.context) = (2, 2, context::encode(&ue, Vec::new()).unwrap());
    central.commit((id, version), stored).unwrap();
    drop(one.worker);
    let found = two.step(&region, slot, 2).unwrap();
    assert!(matches!(found, Found::Context { consumed: 1, .. }), "{found:?}");
    one.gate.shut(false);
    drop(one.contexts);
    assert_eq!(two.in_database(&region, slot), Some(77));
    two.gate.shut(false);
    let found = two.step_at_last(&region, slot, 3);
    assert!(matches!(found, Found::Context { consumed: 2, .. }), "{found:?}");
    two.written(&region, slot);
    assert_eq!((two.connections(), two.in_database(&region, slot)), (Some(3), Some(3)));
}

/// The region goes with its host, and another one goes on from the database: what is lost is what writers had in hand. Such a UE is
/// as it was before, under names and COUNTs that nobody has used; one of which nothing was written is not there.
#[test]
fn another_host_goes_on_from_what_was_written_and_nothing_else_is_lost() {
    let region = Region::create(RegionConfig::new(4, 2, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let mut nf = Nf::new(&region, 1, &records);
    let slots = [7, 8, 9].map(|number| host.insert(Ltmsi::from_raw(number)).unwrap());
    for input in [1, 2] {
        for slot in &slots[..2] {
            nf.step_at_last(&region, *slot, input);
        }
    }
    nf.step_at_last(&region, slots[0], 3);
    slots[..2].iter().for_each(|slot| nf.written(&region, *slot));
    nf.gate.shut(true);
    nf.step(&region, slots[1], 3).unwrap();
    nf.step(&region, slots[2], 1).unwrap();
    let mut config = nf.config();
    config.owner = 6;
    let mut claim = Claim::new(&config);
    claim.go(&mut records.clone(), |_| true).unwrap();
    let mut there = Vec::new();
    for claimed in &claim.claimed {
        let (_, stored) = Central::over(config.clone(), &records).read(claimed.id).unwrap().expect("a record");
        let ue = context::decode(&stored.context).unwrap();
        there.push((ue.ltmsi.get(), u32::from(ue.connections), ue.sequence));
    }
    there.sort_unstable();
    assert_eq!(there, [(7, 3, replica::SKIPPED_STEPS), (8, 2, replica::SKIPPED_STEPS)]);
    // The one before is only slow: what it writes now is refused, and what it goes on with is void.
    nf.gate.shut(false);
    let woken = nf.load(&region, slots[1]);
    assert!(matches!(woken, Err(StepError::Central(CentralError::Foreign))), "{woken:?}");
    assert_eq!(
        Central::over(config.clone(), &records).read(claim.claimed[0].id).unwrap().expect("a record").1.owner,
        6
    );
}

/// What the region has of a UE is not made a record again that is nowhere any more.
#[test]
fn a_record_that_is_gone_does_not_come_back_from_the_region() {
    let region = Region::create(RegionConfig::new(4, 3, 32 << 20)).unwrap();
    let (mut host, records) = (region.join(0).unwrap(), MemoryRecords::new(LIFE));
    let [mut one, mut two] = [1, 2].map(|number| Nf::new(&region, number, &records));
    let slot = host.insert(Ltmsi::from_raw(7)).unwrap();
    one.step(&region, slot, 1).unwrap();
    one.written(&region, slot);
    one.gate.shut(true);
    one.step(&region, slot, 2).unwrap();
    drop(one.worker);
    let id = elsewhere(&region, slot).id;
    let removal = (Name { collection: "amf", id }, Change::Remove { expected: 1 });
    records.clone().change(&[removal]).remove(0).unwrap();
    let lost = two.load(&region, slot);
    assert!(matches!(lost, Err(StepError::Central(CentralError::Lost))), "{lost:?}");
}
