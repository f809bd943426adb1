//! Test with workers that commit to the same UEs and are killed.

use crate::process::{Deaths, Log, Random, hash, role, start};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use vireo_store::CommitError;
use vireo_store::region::{Buffer, CommitRecord, DeadWorker, Key, Region, RegionConfig, Snapshot, Worker};
use vireo_types::{Bucket, Ltmsi};

const UES: u16 = 64;
const WORKERS: u8 = 3;
const NUMBERS: u32 = 64;

fn ltmsi(n: u16) -> Ltmsi {
    Ltmsi::new(Bucket::new(n % 5), n)
}

/// Builds the commit record of a UE after `n` steps.
///
/// Each worker chooses the salt, so that two workers produce different bytes for the same step. The
/// length varies the size of the buffer.
fn content(ltmsi: Ltmsi, n: u64, salt: u64, to: &mut Vec<u8>) {
    to.clear();
    let mut random = Random((u64::from(ltmsi.get()) << 32 | n) ^ salt | 1 << 63);
    let length = 24 + random.below(1500);
    [u64::from(ltmsi.get()), n, salt].iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
    (24..length).for_each(|_| to.push(random.below(256) as u8));
}

/// Checks that the commit record is a committed one, and complete. Returns the number of its step.
fn check(ltmsi: Ltmsi, seen: &Snapshot, expected: &mut Vec<u8>) -> u64 {
    let salt = u64::from_le_bytes(seen.context[16..24].try_into().unwrap());
    content(ltmsi, seen.consumed, salt, expected);
    assert_eq!(&seen.context, expected, "the context of {ltmsi} at step {}", seen.consumed);
    let outbox = &expected[..expected.len() / 3 * (seen.consumed % 2) as usize];
    assert_eq!(seen.outbox, outbox, "the outbox of {ltmsi} at step {}", seen.consumed);
    assert_eq!(u64::from(seen.version()), seen.consumed, "each commit is one step");
    seen.consumed
}

/// Sends the effects of a commit record: logs the UE, the step and a fingerprint of the effects.
fn send(region: &Region, buffer: Buffer, seen: &mut Snapshot, log: &mut Log) {
    if region.read_outbox(buffer, seen) && !seen.sent {
        let slot = region.slot_of_buffer(buffer).expect("it was there just now");
        let ltmsi = region.ltmsi_of(slot).expect("UEs with effects stay");
        log.write(&[ltmsi.get().into(), seen.consumed, hash(&seen.outbox)]);
    }
}

fn work(mut worker: Worker) {
    let mut log = Log::inherited();
    let mut random = Random(std::process::id().into());
    let (mut seen, mut octets) = (Snapshot::default(), Vec::new());
    let mut unsent = VecDeque::new();
    let mut sent = Snapshot::default();
    loop {
        come_and_go(&mut worker, &mut random, &mut seen);
        let ltmsi = ltmsi(random.below(UES.into()) as u16);
        let slot = worker.region().slot_of(ltmsi).expect("it is there");
        assert!(worker.region().read(slot, &mut seen), "it is there");
        let n = check(ltmsi, &seen, &mut octets) + 1;
        content(ltmsi, n, random.below(u64::MAX), &mut octets);
        let outbox = &octets[..octets.len() / 3 * (n % 2) as usize];
        let record = CommitRecord { consumed: n, context: &octets, outbox, ..CommitRecord::default() };
        match worker.commit(slot, &seen, &record) {
            Ok(committed) => {
                // Effects are sent some commits later.
                unsent.push_back(committed.buffer);
                if unsent.len() > 5 {
                    let buffer = unsent.pop_front().unwrap();
                    send(worker.region(), buffer, &mut sent, &mut log);
                    worker.sent(buffer);
                }
            }
            Err(CommitError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the alias of a temporary UE.
fn alias(n: u16) -> Ltmsi {
    Ltmsi::from_raw(0x800_0000 | u32::from(n))
}

/// Returns the number in the context of a temporary UE.
fn number(seen: &Snapshot) -> u32 {
    u32::from_le_bytes(seen.context[..4].try_into().unwrap())
}

/// Inserts or removes a temporary UE of this worker, with its identifiers and its number.
fn come_and_go(worker: &mut Worker, random: &mut Random, seen: &mut Snapshot) {
    let n = UES + u16::from(worker.number()) * 16 + random.below(16) as u16;
    let slot = worker.insert(ltmsi(n)).expect("there is room");
    let region = worker.region().clone();
    let numbers = region.numbers(0).expect("there is one table");
    if region.read(slot, seen) {
        assert_eq!(region.lookup(Key::Supi, u64::from(n) << 40), Some(slot));
        assert_eq!(region.slot_of(alias(n)), Some(slot));
        assert_eq!(numbers.owner(number(seen)), Some(slot), "it has the number still");
        // A number that the worker allocated and committed, or was about to free.
        assert!(region.noted_numbers(slot).iter().flatten().all(|noted| *noted == (0, number(seen))));
        assert!(numbers.note(number(seen), slot), "from here on it is given back with the slot");
        worker.remove(slot, seen).expect("nobody else knows it");
        return;
    }
    region.alias(slot, alias(n)).expect("nobody else has it");
    region.bind(slot, Key::Supi, u64::from(n) << 40).expect("nobody else has it");
    region.bind(slot, Key::Tmsi, u64::from(n) << 8).expect("nobody else has it");
    let number = numbers.take(slot).expect("there are more than UEs");
    let context = [&number.to_le_bytes()[..], &[n as u8; 300]].concat();
    let _ =
        worker.commit(slot, seen, &CommitRecord { context: &context, ..CommitRecord::default() }).expect("as above");
    region.clear_notes(slot);
}

#[test]
#[ignore = "a worker of the tests here"]
fn worker() {
    if let Some(worker) = role() {
        work(worker);
    }
}

/// Checks that every UE is intact and not older than at the last check.
fn check_steps(region: &Region, steps: &mut [u64]) {
    let (mut seen, mut octets) = (Snapshot::default(), Vec::new());
    for n in 0..UES {
        let slot = region.slot_of(ltmsi(n)).filter(|slot| region.read(*slot, &mut seen));
        assert!(slot.is_some(), "UE {n} was lost");
        let now = check(ltmsi(n), &seen, &mut octets);
        assert!(now >= steps[usize::from(n)], "UE {n} went back");
        steps[usize::from(n)] = now;
    }
}

/// Checks that identifiers and numbers belong exactly to the present UEs. Rebuilt indexes must be
/// the same.
fn check_owners(region: &Region) {
    let (mut seen, mut owners) = (Snapshot::default(), HashMap::new());
    for slot in region.slots() {
        let ltmsi = region.ltmsi_of(slot).expect("it is somebody's");
        if !(0..UES).any(|n| self::ltmsi(n) == ltmsi) {
            assert!(region.read(slot, &mut seen));
            assert_eq!(owners.insert(number(&seen), slot), None, "two have number {}", number(&seen));
        }
    }
    let numbers = region.numbers(0).unwrap();
    (0..NUMBERS).for_each(|n| assert_eq!(numbers.owner(n), owners.get(&n).copied(), "number {n}"));
    for _ in 0..2 {
        for n in 0..UES + u16::from(WORKERS) * 16 {
            let slot = region.slot_of(ltmsi(n));
            assert_eq!(slot.is_some(), region.slots().any(|slot| region.ltmsi_of(slot) == Some(ltmsi(n))));
            let expected = slot.filter(|_| n >= UES);
            assert_eq!(region.lookup(Key::Supi, u64::from(n) << 40), expected);
            assert_eq!(region.lookup(Key::Tmsi, u64::from(n) << 8), expected);
            assert_eq!(region.slot_of(alias(n)), expected);
        }
        region.rebuild().unwrap();
    }
}

/// Recovers a dead worker.
fn take_over(region: &Region, dead: DeadWorker, log: &mut Log) {
    let mut seen = Snapshot::default();
    for buffer in region.unsent(&dead) {
        send(region, buffer, &mut seen, log);
        region.sent(buffer);
    }
    region.reclaim(dead);
}

/// Sent effects, according to the log.
#[derive(Default)]
struct Sent {
    /// Fingerprint of the sent effects by UE and step. Old entries are checked and removed.
    emitted: HashMap<(u64, u64), u64>,
    /// Steps of each UE whose effects are all checked, and those at the time of that check.
    past: Vec<u64>,
    settled: Vec<u64>,
    died: [bool; WORKERS as usize],
    repeats: usize,
}

impl Sent {
    /// Reads the log. Effects that are sent twice must be identical.
    fn read(&mut self, log: &mut Log) {
        for [ltmsi, n, hash] in log.read() {
            if let Some(before) = self.emitted.insert((ltmsi, n), hash) {
                assert_eq!(before, hash, "step {n} of {ltmsi:x} was sent twice, with different octets");
                self.repeats += 1;
            }
        }
    }

    /// Notes that a worker died and was recovered.
    ///
    /// When each worker has died since the last check, all effects of steps before that check are
    /// sent.
    fn after(&mut self, number: u8, steps: &[u64], log: &mut Log) {
        self.died[usize::from(number)] = true;
        if self.died == [true; WORKERS as usize] {
            self.read(log);
            self.settle(steps);
            self.died = Default::default();
        }
    }

    /// Checks that all due effects are sent. The current steps are due at the next check.
    fn settle(&mut self, steps: &[u64]) {
        self.past.resize(steps.len(), 0);
        self.settled.resize(steps.len(), 0);
        for (ue, (past, settled)) in (0..).zip(self.past.iter_mut().zip(&self.settled)) {
            let ltmsi = u64::from(ltmsi(ue).get());
            for n in (*past + 1..=*settled).filter(|n| n % 2 == 1) {
                assert!(self.emitted.remove(&(ltmsi, n)).is_some(), "the effects of step {n} of UE {ue} never left");
            }
            *past = *settled;
        }
        let past = |ltmsi: u64| (0..).zip(&self.past).find(|(ue, _)| u64::from(self::ltmsi(*ue).get()) == ltmsi);
        let late = self.emitted.keys().find(|(ltmsi, n)| past(*ltmsi).is_none_or(|(_, past)| n <= past));
        assert_eq!(late, None, "it left again long after");
        self.settled.copy_from_slice(steps);
    }
}

#[test]
fn killed_workers_leave_old_or_new() {
    let mut config = RegionConfig::new(u32::from(UES) + 64, WORKERS + 1, 64 << 20);
    config.tables[0] = NUMBERS;
    let region = Region::create(config).unwrap();
    let mut log = Log::create("commit");
    let mut random = Random(0x5eed);
    // All UEs are inserted at the start, each in a slot not used before: versions then equal steps.
    let (mut first, mut octets) = (region.join(WORKERS).unwrap(), Vec::new());
    for n in 0..UES {
        let slot = first.insert(ltmsi(n)).unwrap();
        content(ltmsi(n), 1, 0, &mut octets);
        let record = CommitRecord {
            consumed: 1,
            context: &octets,
            outbox: &octets[..octets.len() / 3],
            ..CommitRecord::default()
        };
        let buffer = first.commit(slot, &Snapshot::default(), &record).unwrap().buffer;
        send(&region, buffer, &mut Snapshot::default(), &mut log);
        first.sent(buffer);
    }
    drop(first);
    let (mut steps, mut sent) = (vec![1; usize::from(UES)], Sent::default());
    let mut workers: Vec<_> = (0..WORKERS).map(|n| start(&region, "commit::worker", n, &log)).collect();
    let mut deaths = Deaths::new(200, 20);
    while deaths.are_left() {
        std::thread::sleep(Duration::from_micros(random.below(8000)));
        let number = random.below(WORKERS.into()) as u8;
        let dead = deaths.die(&region, number, &mut workers[usize::from(number)]);
        check_steps(&region, &mut steps);
        if let Some(dead) = dead {
            take_over(&region, dead, &mut log);
            deaths.stays_dead();
            sent.after(number, &steps, &mut log);
        }
        workers[usize::from(number)] = start(&region, "commit::worker", number, &log);
    }
    for (number, child) in (0..).zip(workers) {
        if let Some(dead) = Deaths::last(&region, number, child) {
            take_over(&region, dead, &mut log);
        }
    }
    check_steps(&region, &mut steps);
    assert_eq!(region.heap_use().0, region.slots().count(), "a buffer in use is a UE's record");
    check_owners(&region);
    sent.read(&mut log);
    // Steps before this point, and steps until now.
    (0..2).for_each(|_| sent.settle(&steps));
    assert!(sent.emitted.is_empty(), "something left that was never done");
    let repeats = sent.repeats;
    let deaths_in_all = deaths.count() + u32::from(WORKERS);
    assert!(repeats <= deaths_in_all as usize, "{repeats} repeats: one for each death at most");
    let total: u64 = steps.iter().sum();
    assert!(total > u64::from(deaths_in_all), "they worked: {total} steps");
    println!("{deaths}, {total} steps, {repeats} sent twice");
}
