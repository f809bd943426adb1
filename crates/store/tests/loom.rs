//! Loom models of concurrent region operations, in every order of the memory model.
//!
//! `scripts/test` runs them with `--cfg loom`; otherwise this file is empty. (Loom treats SeqCst as
//! AcqRel; these proofs need no more.)
#![cfg(loom)]

use loom::thread;
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vireo_store::CommitError;
use vireo_store::region::{CommitRecord, Posted, Region, RegionConfig, Slot, Snapshot, Worker};
use vireo_types::{Bucket, Ltmsi};

fn region() -> Region {
    let config = RegionConfig {
        packets: 2,
        large_packets: 0,
        rings: 1,
        ring_cells: 2,
        board: 0,
        published_values: 1,
        published_value_bytes: 16,
        tables: std::array::from_fn(|table| if table == 0 { 2 } else { 0 }),
        ..RegionConfig::new(1, 3, 8192)
    };
    Region::model(config).unwrap()
}

/// Joins a worker. A test passes it to `forget`, which simulates a kill.
fn worker(region: &Region, number: u8) -> Worker {
    region.join(number).unwrap()
}

/// Runs a model in every order with at most this many preemptions.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn each_item_is_taken_once() {
    check(3, || {
        let region = region();
        let (one, two) = (worker(&region, 0), worker(&region, 1));
        let ring = region.ring(0).unwrap();
        ring.push(1).unwrap();
        let other = thread::spawn({
            let ring = ring.clone();
            move || {
                ring.push(2).unwrap();
                let taken = ring.take(&one).map(|taken| taken.item);
                forget(one);
                taken
            }
        });
        let mine = ring.take(&two).expect("one was there before").item;
        let theirs = other.join().unwrap();
        let dead = region.model_death(0);
        let back: Vec<u64> = ring.requeue(&dead, &two).iter().map(|taken| taken.item).collect();
        assert_eq!(back, Vec::from_iter(theirs), "what was in flight comes back");
        let rest = ring.take(&two).map(|taken| taken.item);
        let mut all: Vec<u64> = [Some(mine), theirs, rest].into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2], "each once");
        assert!(ring.push(3).is_err(), "what is in flight has its place still");
        forget(two);
    });
}

#[test]
fn full_ring_goes_round() {
    check(3, || {
        let region = region();
        let one = worker(&region, 0);
        let ring = region.ring(0).unwrap();
        (1..=2).for_each(|item| ring.push(item).unwrap());
        let producer = thread::spawn({
            let ring = ring.clone();
            move || ring.push(3).is_ok()
        });
        let first = ring.take(&one).unwrap();
        assert!(first.item == 1 && ring.acknowledge(&one, first));
        let pushed = producer.join().unwrap();
        assert_eq!(ring.take(&one).map(|taken| taken.item), Some(2), "in order");
        assert_eq!(ring.take(&one).map(|taken| taken.item), pushed.then_some(3));
        forget(one);
    });
}

#[test]
fn published_value_is_read_whole() {
    check(3, || {
        let region = region();
        region.publish(0, &[1; 16]).unwrap();
        let reader = thread::spawn({
            let region = region.clone();
            move || {
                let mut seen = Vec::new();
                let version = region.read_published(0, &mut seen);
                assert_eq!(seen, [version as u8; 16]);
            }
        });
        region.publish(0, &[2; 16]).unwrap();
        region.publish(0, &[3; 16]).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn pipe_keeps_order() {
    check(3, || {
        let region = region();
        let mut receiver = region.receiver(0).unwrap();
        let mut sender = region.sender(0).unwrap();
        sender.push(1).unwrap();
        let producer = thread::spawn(move || {
            let all = [2, 3].map(|item| sender.push(item).is_ok());
            assert!(all[0], "there is room for two");
            all[1]
        });
        let mut seen: Vec<u64> = std::iter::from_fn(|| receiver.take()).collect();
        let third = producer.join().unwrap();
        seen.extend(std::iter::from_fn(|| receiver.take()));
        assert_eq!(seen, if third { vec![1, 2, 3] } else { vec![1, 2] });
    });
}

#[test]
fn number_belongs_to_one_slot() {
    check(3, || {
        let region = region();
        let numbers = region.numbers(0).unwrap();
        let slots = [0_u32, 1].map(|n| region.slot_at(n).unwrap());
        let first = numbers.take(slots[0]).unwrap();
        let other = thread::spawn({
            let numbers = numbers.clone();
            move || numbers.take(slots[1])
        });
        assert!(numbers.free(first, slots[0]));
        let mine = numbers.take(slots[0]);
        let theirs = other.join().unwrap();
        // A search that runs while one number is freed and another allocated may find none: it sees
        // the first before and the second after.
        for (slot, number) in slots.into_iter().zip([mine, theirs]).filter(|(_, number)| number.is_some()) {
            assert_eq!(number.and_then(|number| numbers.owner(number)), Some(slot), "each is one's");
            assert!(region.noted_numbers(slot).contains(&number.map(|number| (0, number))), "it is noted");
        }
        let owners = [0, 1].into_iter().filter(|number| numbers.owner(*number).is_some()).count();
        assert_eq!(owners, [mine, theirs].into_iter().flatten().count(), "nothing else is taken");
        assert_eq!(numbers.used() as usize, owners);
    });
}

#[test]
fn ue_gets_alias_during_rename() {
    check(2, || {
        let region = region();
        let mut one = worker(&region, 0);
        let [old, new, next] = [0, 1, 2].map(Ltmsi::from_raw);
        let slot = one.insert(old).unwrap();
        region.alias(slot, new).unwrap();
        let other = thread::spawn({
            let region = region.clone();
            move || region.alias(slot, next).unwrap()
        });
        assert!(region.rename(slot, new) && region.drop_alias(slot, old));
        other.join().unwrap();
        assert_eq!(region.ltmsi_of(slot), Some(new));
        assert_eq!(region.aliases(slot).collect::<Vec<_>>(), [next]);
        assert_eq!([old, new, next].map(|ltmsi| region.slot_of(ltmsi)), [None, Some(slot), Some(slot)]);
        // All alias words are available.
        [3, 4].into_iter().for_each(|n| region.alias(slot, Ltmsi::from_raw(n)).unwrap());
        assert!(region.rename(slot, next) && region.rename(slot, new));
        forget(one);
    });
}

#[test]
fn filled_slot_stays_with_its_filler() {
    check(3, || {
        let region = region();
        let (mut one, mut two) = (worker(&region, 0), worker(&region, 1));
        let slot = one.insert(Ltmsi::from_raw(0)).unwrap();
        commit(&mut one, slot, 1).unwrap();
        let other = thread::spawn(move || {
            let (region, mut seen) = (two.region().clone(), Snapshot::default());
            // If it finds no commit record and an LTMSI, it fills the slot.
            let fills = !region.read(slot, &mut seen) && region.ltmsi_of(slot).is_some();
            let filled =
                fills && two.commit(slot, &seen, &CommitRecord { context: &[2], ..CommitRecord::default() }).is_ok();
            forget(two);
            filled
        });
        let mut seen = Snapshot::default();
        region.read(slot, &mut seen);
        one.remove(slot, &seen).unwrap();
        assert!(!other.join().unwrap(), "it was being emptied");
        assert_eq!(region.slots().count(), 0);
        forget(one);
    });
}

fn commit(worker: &mut Worker, slot: Slot, octet: u8) -> Result<(), CommitError> {
    let mut seen = Snapshot::default();
    worker.region().read(slot, &mut seen);
    let record = CommitRecord { consumed: u64::from(octet), context: &[octet; 16], ..CommitRecord::default() };
    worker.commit(slot, &seen, &record).map(|_| ())
}

fn is_whole(region: &Region, slot: Slot) -> u8 {
    let mut seen = Snapshot::default();
    assert!(region.read(slot, &mut seen));
    let octet = seen.consumed as u8;
    assert_eq!(seen.context, [octet; 16], "a record is read whole");
    octet
}

#[test]
fn reader_sees_one_record() {
    check(1, || {
        let region = region();
        let mut one = worker(&region, 0);
        let slot = one.insert(Ltmsi::new(Bucket::new(0), 0)).unwrap();
        commit(&mut one, slot, 1).unwrap();
        let reader = thread::spawn({
            let region = region.clone();
            move || is_whole(&region, slot)
        });
        // The second commit writes into the buffer that the first one freed.
        commit(&mut one, slot, 2).unwrap();
        commit(&mut one, slot, 3).unwrap();
        forget(one);
        reader.join().unwrap();
        assert_eq!(is_whole(&region, slot), 3);
        assert_eq!(region.buffers_unused_by(0), 1, "one buffer is the record, the other is kept");
    });
}

#[test]
fn one_of_two_commits_wins() {
    check(3, || {
        let region = region();
        let (mut one, mut two) = (worker(&region, 0), worker(&region, 1));
        let slot = one.insert(Ltmsi::new(Bucket::new(0), 0)).unwrap();
        commit(&mut one, slot, 1).unwrap();
        let mut seen = Snapshot::default();
        region.read(slot, &mut seen);
        let theirs = seen.clone();
        let other = thread::spawn(move || {
            let record = CommitRecord { consumed: 2, context: &[2; 16], ..CommitRecord::default() };
            let done = one.commit(slot, &theirs, &record).is_ok();
            forget(one);
            done
        });
        let record = CommitRecord { consumed: 3, context: &[3; 16], ..CommitRecord::default() };
        let mine = two.commit(slot, &seen, &record).is_ok();
        let theirs = other.join().unwrap();
        assert!(mine != theirs, "one wins");
        assert_eq!(is_whole(&region, slot), if mine { 3 } else { 2 });
        forget(two);
    });
}

#[test]
fn one_packet_of_a_ue_is_in_flight() {
    check(3, || {
        let region = region();
        let slot = {
            let mut one = worker(&region, 2);
            let slot = one.insert(Ltmsi::new(Bucket::new(0), 0)).unwrap();
            forget(one);
            slot
        };
        let (busy, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let run = move |mut worker: Worker, busy: Arc<AtomicUsize>, done: Arc<AtomicUsize>| {
            let packet = worker.packet(1, &[]).unwrap();
            let posted = worker.region().post(&worker, slot, packet, worker.number()).unwrap();
            if posted == Posted::Holder {
                let mut next = worker.region().next(&worker, slot);
                while next.is_some() {
                    assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "nobody else works on the UE");
                    done.fetch_add(1, Ordering::SeqCst);
                    busy.fetch_sub(1, Ordering::SeqCst);
                    next = worker.finish(slot);
                }
            }
            forget(worker);
        };
        let (one, two) = (worker(&region, 0), worker(&region, 1));
        let other = thread::spawn({
            let (busy, done) = (busy.clone(), done.clone());
            move || run(one, busy, done)
        });
        run(two, busy.clone(), done.clone());
        other.join().unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 2, "both are done");
        assert_eq!(region.packets_used(), 0);
    });
}

#[test]
fn ue_of_dead_holder_continues() {
    check(3, || {
        let region = region();
        let mut one = worker(&region, 0);
        let slot = one.insert(Ltmsi::new(Bucket::new(0), 0)).unwrap();
        let first = one.packet(1, &[]).unwrap();
        assert_eq!(region.post(&one, slot, first, 0), Ok(Posted::Holder));
        assert_eq!(region.next(&one, slot), Some(first));
        forget(one);
        let dead = region.model_death(0);
        let mut two = worker(&region, 1);
        let mut three = worker(&region, 2);
        // Another packet arrives during the takeover of the UE.
        let poster = thread::spawn(move || {
            let packet = two.packet(2, &[]).unwrap();
            assert_eq!(two.region().post(&two, slot, packet, 1), Ok(Posted::Queued), "it has a holder, dead or not");
            forget(two);
            packet
        });
        assert!(region.take_over(slot, &dead, 2) && !region.take_over(slot, &dead, 2), "once");
        assert_eq!(region.next(&three, slot), Some(first), "what was in flight comes first");
        let second = poster.join().unwrap();
        assert_eq!(three.finish(slot), Some(second));
        assert_eq!(three.finish(slot), None);
        assert_eq!(region.packets_used(), 0);
        forget(three);
    });
}

#[test]
fn dead_workers_buffer_is_free_once() {
    check(2, || {
        let region = region();
        let (mut one, mut two, mut three) = (worker(&region, 0), worker(&region, 1), worker(&region, 2));
        let slot = one.insert(Ltmsi::new(Bucket::new(0), 0)).unwrap();
        let other = three.insert(Ltmsi::new(Bucket::new(1), 0)).unwrap();
        commit(&mut one, slot, 1).unwrap();
        forget(one);
        // The commit record of the dead worker is superseded, and so freed, while the worker is
        // reclaimed and its chunk gets another owner.
        let living = thread::spawn(move || {
            commit(&mut two, slot, 2).unwrap();
            two
        });
        region.reclaim(region.model_death(0));
        commit(&mut three, other, 3).unwrap();
        commit(&mut three, other, 4).unwrap();
        let two = living.join().unwrap();
        commit(&mut three, other, 5).unwrap();
        commit(&mut three, slot, 6).unwrap();
        assert_eq!((is_whole(&region, slot), is_whole(&region, other)), (6, 5));
        drop(two);
        drop(three);
        assert_eq!(region.heap_use().0, 2, "the two records, and nothing was lost");
    });
}

#[test]
fn slot_of_dead_worker_is_filled_or_free() {
    check(3, || {
        let region = region();
        let (mut one, two) = (worker(&region, 0), worker(&region, 1));
        let slot = one.insert(Ltmsi::new(Bucket::new(0), 0)).unwrap();
        forget(one);
        let living = thread::spawn(move || {
            let mut two = two;
            let packet = two.packet(1, &[]).unwrap();
            let region = two.region().clone();
            if region.slot_of(Ltmsi::new(Bucket::new(0), 0)).is_none() {
                two.free(packet);
                return (two, false);
            }
            let posted = region.post(&two, slot, packet, 1).unwrap();
            let mut done = false;
            if posted == Posted::Holder && region.next(&two, slot) == Some(packet) {
                // The UE may have been removed since the lookup.
                done = region.ltmsi_of(slot).is_some();
                if done {
                    commit(&mut two, slot, 1).unwrap();
                }
                assert_eq!(two.finish(slot), None);
            }
            (two, done)
        });
        region.reclaim(region.model_death(0));
        let (two, filled) = living.join().unwrap();
        assert_eq!(region.slots().count(), usize::from(filled));
        let found = region.slot_of(Ltmsi::new(Bucket::new(0), 0));
        assert_eq!(found, filled.then_some(slot), "who has a record is found");
        assert_eq!(region.packets_used(), 0);
        drop(two);
    });
}
