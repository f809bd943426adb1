//! Crash tests: a worker dies before each of its writes, and so does its successor.
//!
//! After each crash, the result must be the same as without one. (The loom models and the tests in
//! `tests/crash` cover interactions of several processes.)

use super::crash_points::run_until_crash;
use super::{
    CommitRecord, DeadWorker, Key, Packet, Posted, Receiver, Region, RegionConfig, Sender, Slot, Snapshot, Worker,
};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use vireo_types::Ltmsi;

const NUMBERS: u32 = 6;

/// Requests of an input.
const PLAIN: u8 = 0;
const REKEY: u8 = 1;
const TAKE: u8 = 2;
const GIVE: u8 = 3;
const LEAVE: u8 = 4;
/// All requests, in an order in which each has an effect.
const INPUTS: [u8; 8] = [PLAIN, REKEY, TAKE, REKEY, GIVE, TAKE, REKEY, PLAIN];

fn ltmsi(n: u32) -> Ltmsi {
    Ltmsi::from_raw(n)
}

/// A context of 3 bytes: its LTMSI, 1 + its number, and whether it is to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Context {
    ltmsi: u8,
    number: Option<u8>,
    leaves: bool,
}

impl Context {
    fn octets(self) -> [u8; 3] {
        [self.ltmsi, self.number.map_or(0, |n| n + 1), self.leaves.into()]
    }

    fn from_snapshot(seen: &Snapshot) -> Self {
        let [ltmsi, number, leaves] = seen.context[..] else { panic!("it is whole: {:?}", seen.context) };
        Context { ltmsi, number: number.checked_sub(1), leaves: leaves != 0 }
    }
}

/// A worker that may crash: dropping it has no effect.
struct Mortal {
    worker: ManuallyDrop<Worker>,
    egress: Sender,
}

impl Mortal {
    fn new(region: &Region, number: u8) -> Self {
        let egress = region.sender(4 + u16::from(number)).unwrap();
        Mortal { worker: ManuallyDrop::new(region.join(number).unwrap()), egress }
    }

    /// Processes all waiting events.
    fn serve(&mut self) {
        let region = self.worker.region().clone();
        let ring = region.ring(self.worker.number().into()).unwrap();
        while let Some(taken) = ring.take(&self.worker) {
            let slot = region.slot_at(taken.item).unwrap();
            let mut next = region.next(&self.worker, slot);
            while let Some(packet) = next {
                self.step(&region, slot, packet);
                next = self.worker.finish(slot);
            }
            assert!(ring.acknowledge(&self.worker, taken));
        }
    }

    fn step(&mut self, region: &Region, slot: Slot, packet: Packet) {
        let (mut input, mut seen) = (Vec::new(), Snapshot::default());
        let sequence = region.read_packet(packet, &mut input).unwrap();
        if !region.read(slot, &mut seen) {
            // The previous worker died after it had removed the commit record and before the rest.
            assert_eq!(input, [LEAVE]);
            self.worker.abandon(slot);
            return;
        }
        let mut context = Context::from_snapshot(&seen);
        self.repair(region, slot, context);
        let mut buffer = seen.buffer().unwrap();
        if sequence > seen.consumed {
            assert_eq!(sequence, seen.consumed + 1);
            let numbers = region.numbers(0).unwrap();
            match input[..] {
                [REKEY] => {
                    context.ltmsi = (context.ltmsi + 1) % 4;
                    region.alias(slot, ltmsi(context.ltmsi.into())).unwrap();
                }
                [TAKE] => context.number = Some(numbers.take(slot).unwrap() as u8),
                [GIVE] => assert!(numbers.note(context.number.take().unwrap().into(), slot)),
                [LEAVE] => context.leaves = true,
                _ => {}
            }
            let outbox = [sequence as u8, self.worker.number()];
            let record = CommitRecord {
                consumed: sequence,
                context: &context.octets(),
                outbox: &outbox,
                ..CommitRecord::default()
            };
            buffer = self.worker.commit(slot, &seen, &record).unwrap().buffer;
        }
        self.egress.push(buffer.to_item()).unwrap();
        self.repair(region, slot, context);
        if context.leaves {
            if let Some(number) = context.number {
                assert!(region.numbers(0).unwrap().note(number.into(), slot), "it is given back with the slot");
            }
            assert!(region.read(slot, &mut seen));
            self.worker.remove(slot, &seen).unwrap();
        }
    }

    /// Makes numbers, LTMSI and aliases match the context.
    fn repair(&mut self, region: &Region, slot: Slot, context: Context) {
        for (_, number) in region.noted_numbers(slot).into_iter().flatten() {
            if context.number.map(u32::from) != Some(number) {
                region.numbers(0).unwrap().free(number, slot);
            }
        }
        region.clear_notes(slot);
        assert!(region.rename(slot, ltmsi(context.ltmsi.into())));
        for alias in region.aliases(slot) {
            assert!(region.drop_alias(slot, alias));
        }
    }
}

/// The host, with one UE.
struct Host {
    region: Region,
    worker: Worker,
    slot: Slot,
    egress: [Receiver; 4],
    sent: HashMap<u64, Vec<u8>>,
    snapshot: Snapshot,
}

fn region() -> Region {
    let mut config = RegionConfig::new(2, 4, 2 << 20);
    (config.packets, config.large_packets, config.rings, config.ring_cells) = (16, 0, 8, 16);
    (config.board, config.published_values, config.tables[0]) = (0, 0, NUMBERS);
    Region::create(config).unwrap()
}

impl Host {
    /// Creates the host with the UE, and queues the inputs at worker 1.
    fn new(inputs: &[u8]) -> Self {
        let region = region();
        let mut worker = region.join(0).unwrap();
        let slot = worker.insert(ltmsi(0)).unwrap();
        let record = CommitRecord { context: &Context::default().octets(), ..CommitRecord::default() };
        let _ = worker.commit(slot, &Snapshot::default(), &record).unwrap();
        region.bind(slot, Key::Supi, 7).unwrap();
        for (sequence, input) in (1..).zip(inputs) {
            let packet = worker.packet(sequence, &[*input]).unwrap();
            let posted = region.post(&worker, slot, packet, 1).unwrap();
            assert_eq!(posted == Posted::Holder, sequence == 1);
        }
        region.ring(1).unwrap().push(slot.number().into()).unwrap();
        let egress = [0, 1, 2, 3].map(|number| region.receiver(4 + number).unwrap());
        Host { region, worker, slot, egress, sent: HashMap::new(), snapshot: Snapshot::default() }
    }

    fn send(&mut self, buffer: super::Buffer) {
        if self.region.read_outbox(buffer, &mut self.snapshot) && !self.snapshot.sent {
            let before = self.sent.insert(self.snapshot.consumed, self.snapshot.outbox.clone());
            assert_eq!(before, None, "nothing leaves twice as long as the host lives");
        }
        self.worker.sent(buffer);
    }

    fn drain(&mut self) {
        for number in 0..self.egress.len() {
            while let Some(item) = self.egress[number].take() {
                self.region.buffer_of(item).into_iter().for_each(|buffer| self.send(buffer));
            }
        }
    }

    /// Takes over the work of a dead worker and assigns it to another.
    fn take_over(&mut self, dead: u8, heir: u8) {
        let dead = DeadWorker { number: dead };
        self.drain();
        self.region.last_of(&dead).into_iter().for_each(|last| self.send(last));
        let ring = self.region.ring(dead.number.into()).unwrap();
        let mut items = ring.requeue(&dead, &self.worker);
        items.extend(std::iter::from_fn(|| ring.take(&self.worker)));
        for taken in items {
            if self.region.take_over(self.region.slot_at(taken.item).unwrap(), &dead, heir) {
                self.region.ring(heir.into()).unwrap().push(taken.item).unwrap();
            }
            assert!(ring.acknowledge(&self.worker, taken));
        }
        self.region.reclaim(dead);
    }

    /// Checks that each input was consumed once and nothing leaked.
    fn check(&mut self, inputs: &[u8]) {
        self.drain();
        let (region, slot) = (self.region.clone(), self.slot);
        let leaves = inputs.contains(&LEAVE);
        let sequences: Vec<u64> = (1..=inputs.len() as u64).collect();
        let mut sent: Vec<u64> = self.sent.keys().copied().collect();
        sent.sort_unstable();
        assert_eq!(sent, sequences, "the effects of each input left");
        assert_eq!(region.packets_used(), 0, "no packet is left behind");
        assert!(region.is_idle(slot.0), "nobody holds the UE");
        assert_eq!(region.read(slot, &mut self.snapshot), !leaves);
        let records = usize::from(!leaves);
        let number = (!leaves).then(|| Context::from_snapshot(&self.snapshot).number).flatten();
        // Buffers that the host and its last worker keep for reuse hold no commit records.
        for number in 1..4 {
            region.reclaim(DeadWorker { number });
        }
        assert_eq!(region.heap_use().0 - self.spare_buffers(), records, "a buffer in use is the UE's record");
        assert_eq!(region.noted_numbers(slot), [None, None]);
        let numbers = region.numbers(0).unwrap();
        for n in 0..NUMBERS {
            assert_eq!(numbers.owner(n), (number == Some(n as u8)).then_some(slot), "number {n}");
        }
        let rekeys = inputs.iter().filter(|input| **input == REKEY).count() as u32;
        for n in 0..4 {
            let expected = (!leaves && n == rekeys % 4).then_some(slot);
            assert_eq!(region.slot_of(ltmsi(n)), expected, "LTMSI {n}");
        }
        assert_eq!(region.aliases(slot).count(), 0);
        assert_eq!(region.lookup(Key::Supi, 7), (!leaves).then_some(slot));
        region.rebuild().unwrap();
        assert_eq!(region.slot_of(ltmsi(rekeys % 4)), (!leaves).then_some(slot));
    }

    /// Returns the number of buffers that the host's own worker keeps for reuse.
    fn spare_buffers(&self) -> usize {
        let current = self.region.slots().map(|slot| super::halves(self.region.current(slot.0)).1).collect::<Vec<_>>();
        self.region.owned_by(0).filter(|buffer| !current.contains(buffer)).count()
    }
}

/// Runs workers 1 and 2, which crash after `first` and `second` writes, and worker 3 to the end.
///
/// Returns for each of the first two whether it survived.
fn run(inputs: &[u8], first: u32, second: u32) -> [bool; 2] {
    let mut host = Host::new(inputs);
    let mut worker = Mortal::new(&host.region, 1);
    let one = run_until_crash(first, || worker.serve());
    let mut two = true;
    if !one {
        let mut worker = Mortal::new(&host.region, 2);
        host.take_over(1, 2);
        two = run_until_crash(second, || worker.serve());
        if !two {
            let mut worker = Mortal::new(&host.region, 3);
            host.take_over(2, 3);
            worker.serve();
        }
    }
    host.check(inputs);
    [one, two]
}

/// Checks the flag `dd` (proc_pid_smaps(5)) of the region's mapping.
#[test]
fn region_mapping_is_left_out_of_core_dumps() {
    let region = Region::create(RegionConfig::new(16, 2, 32 << 20)).expect("a region");
    // Another test of this process may have mapped a region that it has not marked yet.
    let mut found = Vec::new();
    for _ in 0..100 {
        found = region_flags();
        if !found.is_empty() && found.iter().all(|flags| flags.split_whitespace().any(|flag| flag == "dd")) {
            return drop(region);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{found:?}");
}

/// Returns the flags of the regions that this process has mapped.
fn region_flags() -> Vec<String> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("read");
    let mappings: Vec<&str> = smaps.split("VmFlags:").collect();
    let of_region = mappings.windows(2).filter(|pair| pair[0].contains("memfd:vireo"));
    of_region.filter_map(|pair| pair[1].lines().next()).map(str::to_owned).collect()
}

#[test]
fn worker_dies_before_each_write() {
    for inputs in [&INPUTS[..], &[LEAVE], &[TAKE, REKEY, LEAVE]] {
        let deaths = (0..).take_while(|n| !run(inputs, *n, u32::MAX)[0]).count();
        assert!(deaths > 20 * inputs.len(), "{deaths} writes of {inputs:?}");
    }
}

#[test]
fn its_heir_dies_too() {
    for inputs in [[REKEY], [TAKE], [LEAVE]] {
        let mut deaths = 0;
        for first in (0..).take_while(|n| !run(&inputs, *n, u32::MAX)[0]) {
            deaths += (0..).take_while(|second| !run(&inputs, first, *second)[1]).count();
        }
        assert!(deaths > 500, "{deaths} of the second for {inputs:?}");
    }
}

/// Inserts a UE with an alias, a SUPI and a number, and removes it again.
fn come_and_go(worker: &mut Worker) {
    let region = worker.region().clone();
    let (numbers, mut seen) = (region.numbers(0).unwrap(), Snapshot::default());
    let slot = worker.insert(ltmsi(5)).unwrap();
    region.alias(slot, ltmsi(6)).unwrap();
    region.bind(slot, Key::Supi, 8).unwrap();
    region.bind(slot, Key::Tmsi, 9).unwrap();
    let context = Context { ltmsi: 5, number: Some(numbers.take(slot).unwrap() as u8), leaves: false };
    assert!(!region.read(slot, &mut seen));
    let _ =
        worker.commit(slot, &seen, &CommitRecord { context: &context.octets(), ..CommitRecord::default() }).unwrap();
    region.clear_notes(slot);
    assert!(region.read(slot, &mut seen));
    assert!(numbers.note(context.number.unwrap().into(), slot));
    worker.remove(slot, &seen).unwrap();
    let slot = worker.insert(ltmsi(6)).unwrap();
    assert!(worker.abandon(slot));
}

#[test]
fn ue_is_there_or_not() {
    let (mut died, mut there) = (0, 0);
    loop {
        let region = region();
        let mut worker = ManuallyDrop::new(region.join(1).unwrap());
        let lived = run_until_crash(died, || come_and_go(&mut worker));
        region.reclaim(DeadWorker { number: 1 });
        let (slot, mut seen) = (region.slot_of(ltmsi(5)), Snapshot::default());
        assert_eq!(slot.is_some_and(|slot| region.read(slot, &mut seen)), slot.is_some(), "no slot without a record");
        assert_eq!(region.slots().count(), usize::from(slot.is_some()));
        assert_eq!([region.slot_of(ltmsi(6)), region.lookup(Key::Supi, 8), region.lookup(Key::Tmsi, 9)], [slot; 3]);
        let number = slot.map(|_| Context::from_snapshot(&seen).number.unwrap());
        let numbers = region.numbers(0).unwrap();
        (0..NUMBERS).for_each(|n| assert_eq!(numbers.owner(n), slot.filter(|_| number == Some(n as u8))));
        assert_eq!(region.heap_use().0, usize::from(slot.is_some()));
        // The next insertion finds the region in its expected state.
        let mut next = region.join(1).unwrap();
        match slot {
            Some(slot) => {
                region.numbers(0).unwrap().note(number.unwrap().into(), slot);
                next.remove(slot, &seen).unwrap();
            }
            None => come_and_go(&mut next),
        }
        drop(next);
        assert_eq!((region.heap_use().0, region.slots().count(), region.slot_of(ltmsi(6))), (0, 0, None));
        assert!((0..NUMBERS).all(|n| numbers.owner(n).is_none()));
        there += u32::from(slot.is_some());
        if lived {
            break;
        }
        died += 1;
    }
    assert!(died > 60 && there > 2, "{died} deaths, {there} times it was there");
}

#[test]
fn another_workers_buffer_is_given_back() {
    let mut died = 0;
    loop {
        let region = region();
        let mut owner = region.join(2).unwrap();
        let mut worker = ManuallyDrop::new(region.join(1).unwrap());
        let slot = owner.insert(ltmsi(1)).unwrap();
        let (mut seen, mut expected) = (Snapshot::default(), Snapshot::default());
        let _ = owner.commit(slot, &seen, &CommitRecord { context: &[1], ..CommitRecord::default() }).unwrap();
        assert!(region.read(slot, &mut seen));
        let lived = run_until_crash(died, || {
            let _ = worker.commit(slot, &seen, &CommitRecord { context: &[2], ..CommitRecord::default() }).unwrap();
        });
        region.reclaim(DeadWorker { number: 1 });
        assert!(region.read(slot, &mut expected) && (expected.context == [1] || expected.context == [2]));
        let (mut seen, next) = (expected, if lived { 4 } else { 3 });
        for n in 3..=next {
            let _ = owner.commit(slot, &seen, &CommitRecord { context: &[n], ..CommitRecord::default() }).unwrap();
            assert!(region.read(slot, &mut seen) && seen.context == [n]);
        }
        drop(owner);
        assert_eq!(region.heap_use().0, 1, "after death {died} the record alone is in use");
        if lived {
            break;
        }
        died += 1;
    }
    assert!(died > 10, "{died}");
}

/// Tests that no worker keeps memory for all UEs when they move between live workers.
#[test]
fn memory_does_not_grow_with_moves() {
    let mut config = RegionConfig::new(2000, 4, 64 << 20);
    (config.packets, config.large_packets, config.board, config.published_values) = (16, 0, 0, 0);
    let region = Region::create(config).unwrap();
    let (mut host, mut seen) = (region.join(0).unwrap(), Snapshot::default());
    let mut workers = [1, 2, 3].map(|n| region.join(n).unwrap());
    let slots: Vec<Slot> = (0..2000).map(|n| host.insert(ltmsi(n)).unwrap()).collect();
    let mut used = Vec::new();
    for round in 0..12_usize {
        let worker = &mut workers[round % 3];
        for (n, slot) in slots.iter().enumerate() {
            region.read(*slot, &mut seen);
            let context = vec![1; 300 + (n + round) % 400];
            let committed =
                worker.commit(*slot, &seen, &CommitRecord { context: &context, ..CommitRecord::default() }).unwrap();
            host.sent(committed.buffer);
        }
        workers.iter_mut().for_each(Worker::trim);
        assert_eq!(region.heap_use().0, 2000);
        used.push(region.heap_use().1);
    }
    // the commit records of the previous round are freed only when their successors are committed
    assert!(used[11] <= used[1] * 5 / 4, "{used:?}");
}

#[test]
fn memory_does_not_grow_with_deaths() {
    let mut config = RegionConfig::new(300, 3, 64 << 20);
    (config.packets, config.large_packets, config.board, config.published_values) = (16, 0, 0, 0);
    let region = Region::create(config).unwrap();
    let (mut host, mut seen, mut random) = (region.join(0).unwrap(), Snapshot::default(), 1_u32);
    let slots: Vec<Slot> = (0..300).map(|n| host.insert(ltmsi(n)).unwrap()).collect();
    let mut after = Vec::new();
    for round in 0..600_u32 {
        let mut worker = ManuallyDrop::new(region.join(1 + (round % 2) as u8).unwrap());
        for _ in 0..100 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (slot, length) = (slots[(random >> 16) as usize % slots.len()], (random >> 8) as usize % 3000);
            region.read(slot, &mut seen);
            let context = vec![1; length];
            let outbox = [2; 90];
            let record = CommitRecord {
                context: &context,
                outbox: &outbox[..(random >> 30) as usize * 30],
                ..CommitRecord::default()
            };
            let committed = worker.commit(slot, &seen, &record).unwrap();
            // The effects of the last commit record are sent after the worker is dead.
            host.sent(committed.buffer);
        }
        region.reclaim(DeadWorker { number: 1 + (round % 2) as u8 });
        assert_eq!(region.heap_use().0 - region.owned_by(0).count(), region.slots().count());
        after.push(region.heap_use().1);
    }
    let (early, late) = (after[after.len() / 4], after[after.len() - 1]);
    assert!(late <= early * 3 / 2, "{early} octets after a quarter of the deaths, {late} in the end");
}
