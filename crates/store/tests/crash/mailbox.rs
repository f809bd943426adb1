//! Crash test of the complete event path of a host.
//!
//! A forwarder posts packets to UEs and notifies workers. The workers commit, change LTMSIs,
//! allocate numbers and notify the egress. They are killed or stopped. The test checks:
//!
//! - Each input is consumed once and in order.
//! - Every effect is sent, and repeats have the same contents.
//! - No UE loses an LTMSI or a number, and none has a duplicate.

use crate::process::{Deaths, Log, Random, hash, role, start};
use std::collections::HashMap;
use std::process::Child;
use std::thread::{JoinHandle, spawn, yield_now};
use std::time::{Duration, Instant};
use vireo_store::region::{
    Buffer, CommitRecord, DeadWorker, Packet, Posted, Receiver, Region, RegionConfig, Sender, Slot, Snapshot,
};
use vireo_store::region::{NumberTable, Worker};
use vireo_types::Ltmsi;

const UES: u32 = 40;
/// LTMSIs that the UEs share.
const LTMSIS: u32 = 100;
const NUMBERS: u32 = 48;
const WORKERS: u8 = 3;
/// Returns the input ring of a worker, and its ring to the egress.
const fn rings(worker: u8) -> (u16, u16) {
    (worker as u16, WORKERS as u16 + worker as u16)
}

/// A context: the identifiers of the UE, and bytes that prove its integrity.
#[derive(Clone, Copy, Debug)]
struct Context {
    ue: u64,
    ltmsi: Ltmsi,
    number: Option<u32>,
    sequence: u64,
    salt: u64,
}

impl Context {
    fn encode(&self, context: &mut Vec<u8>, outbox: &mut Vec<u8>) {
        let number = self.number.map_or(0, |number| u64::from(number) + 1);
        let words = [self.ue, self.ltmsi.get().into(), number, self.sequence, self.salt];
        context.clear();
        words.iter().for_each(|word| context.extend_from_slice(&word.to_le_bytes()));
        let mut random = Random(hash(context) | 1);
        let (rest, effects) = (random.below(700), random.below(200) + 1);
        (0..rest).for_each(|_| context.push(random.below(256) as u8));
        outbox.clear();
        (0..effects).for_each(|_| outbox.push(random.below(256) as u8));
    }

    fn decode(snapshot: &Snapshot) -> Self {
        let word = |n: usize| u64::from_le_bytes(snapshot.context[n * 8..][..8].try_into().unwrap());
        let number = (word(2) as u32).checked_sub(1);
        let ltmsi = Ltmsi::from_raw(word(1) as u32);
        let context = Context { ue: word(0), ltmsi, number, sequence: word(3), salt: word(4) };
        let (mut octets, mut outbox) = (Vec::new(), Vec::new());
        context.encode(&mut octets, &mut outbox);
        assert_eq!((&snapshot.context, &snapshot.outbox), (&octets, &outbox), "the record is whole");
        assert_eq!(snapshot.consumed, context.sequence);
        context
    }
}

struct Work {
    worker: Worker,
    region: Region,
    numbers: NumberTable,
    egress: Sender,
    random: Random,
    snapshot: Snapshot,
    context: Vec<u8>,
    outbox: Vec<u8>,
}

impl Work {
    /// Makes LTMSIs, aliases and numbers match the context.
    ///
    /// It completes the work of a dead worker, or the pending work of this one.
    fn repair(&self, slot: Slot, context: &Context) {
        for (table, number) in self.region.noted_numbers(slot).into_iter().flatten() {
            assert_eq!(table, 0, "there is one table");
            if context.number != Some(number) {
                self.numbers.free(number, slot);
            }
        }
        self.region.clear_notes(slot);
        assert!(self.region.rename(slot, context.ltmsi), "the LTMSI of the context leads here");
        for alias in self.region.aliases(slot) {
            assert!(self.region.drop_alias(slot, alias));
        }
    }

    /// Gives the UE another LTMSI or a number, or frees its number.
    fn change(&mut self, slot: Slot, context: &mut Context) {
        let ltmsi = Ltmsi::from_raw(self.random.below(LTMSIS.into()) as u32);
        if self.random.below(3) == 0 && self.region.alias(slot, ltmsi).is_ok() {
            context.ltmsi = ltmsi;
        }
        if self.random.below(3) == 0 {
            context.number = match context.number {
                None => self.numbers.take(slot),
                Some(number) => {
                    assert!(self.numbers.note(number, slot));
                    None
                }
            };
        }
    }

    /// Runs one step. For an input that was consumed already, it only sends the remaining effects.
    fn step(&mut self, slot: Slot, packet: Packet) {
        let mut input = Vec::new();
        let sequence = self.region.read_packet(packet, &mut input).expect("it is in flight");
        assert!(self.region.read(slot, &mut self.snapshot), "the UE is there");
        let mut context = Context::decode(&self.snapshot);
        self.repair(slot, &context);
        let buffer = if sequence <= context.sequence {
            assert_eq!(sequence, context.sequence, "only the last input is carried out again");
            self.snapshot.buffer().expect("it has a record")
        } else {
            assert_eq!(sequence, context.sequence + 1, "no input is lost, none overtakes another");
            assert_eq!(input[0], context.ue as u8, "it is this UE's");
            self.change(slot, &mut context);
            (context.sequence, context.salt) = (sequence, self.random.below(u64::MAX));
            context.encode(&mut self.context, &mut self.outbox);
            let (octets, outbox) = (&self.context, &self.outbox);
            let record = CommitRecord { consumed: sequence, context: octets, outbox, ..CommitRecord::default() };
            self.worker.commit(slot, &self.snapshot, &record).expect("nobody else holds the UE").buffer
        };
        while self.egress.push(buffer.to_item()).is_err() {
            yield_now();
        }
        self.repair(slot, &context);
    }

    fn run(mut self) {
        let ring = self.region.ring(rings(self.worker.number()).0).unwrap();
        let bell = ring.bell();
        loop {
            let taken = bell.wait(Duration::from_millis(100), || ring.take(&self.worker));
            let Some(taken) = taken else { continue };
            let slot = self.region.slot_at(taken.item).expect("there is such a slot");
            let mut next = self.region.next(&self.worker, slot);
            while let Some(packet) = next {
                self.step(slot, packet);
                next = self.worker.finish(slot);
            }
            assert!(ring.acknowledge(&self.worker, taken));
        }
    }
}

#[test]
#[ignore = "a worker of the tests here"]
fn worker() {
    if let Some(worker) = role() {
        let region = worker.region().clone();
        let egress = region.sender(rings(worker.number()).1).unwrap();
        let (numbers, random) = (region.numbers(0).unwrap(), Random(std::process::id().into()));
        let (snapshot, context, outbox) = (Snapshot::default(), Vec::new(), Vec::new());
        Work { worker, region, numbers, egress, random, snapshot, context, outbox }.run();
    }
}

/// The host: forwarder and egress.
struct Host {
    worker: Worker,
    region: Region,
    slots: Vec<Slot>,
    /// For each UE: inputs posted, and inputs consumed at the last check.
    posted: Vec<u64>,
    consumed: Vec<u64>,
    egress: Vec<Receiver>,
    random: Random,
    sent: HashMap<(Slot, u64), u64>,
    repeats: u32,
    snapshot: Snapshot,
}

impl Host {
    fn new() -> Self {
        let mut config = RegionConfig::new(UES, WORKERS + 1, 48 << 20);
        (config.packets, config.large_packets, config.ring_cells, config.tables[0]) = (512, 4, 256, NUMBERS);
        let region = Region::create(config).unwrap();
        let mut worker = region.join(WORKERS).unwrap();
        let mut insert = |n: u32| {
            let slot = worker.insert(Ltmsi::from_raw(n)).unwrap();
            let context = Context { ue: n.into(), ltmsi: Ltmsi::from_raw(n), number: None, sequence: 0, salt: 0 };
            let (mut octets, mut outbox) = (Vec::new(), Vec::new());
            context.encode(&mut octets, &mut outbox);
            let record = CommitRecord { context: &octets, outbox: &outbox, ..CommitRecord::default() };
            let buffer = worker.commit(slot, &Snapshot::default(), &record).unwrap().buffer;
            worker.sent(buffer);
            slot
        };
        Host {
            slots: (0..UES).map(&mut insert).collect(),
            posted: vec![0; UES as usize],
            consumed: vec![0; UES as usize],
            egress: (0..WORKERS).map(|n| region.receiver(rings(n).1).unwrap()).collect(),
            random: Random(0x5eed),
            sent: HashMap::new(),
            repeats: 0,
            snapshot: Snapshot::default(),
            worker,
            region,
        }
    }

    /// Sends the effects of a commit record.
    fn send(&mut self, buffer: Buffer) {
        if self.region.read_outbox(buffer, &mut self.snapshot) && !self.snapshot.sent {
            let (slot, sequence) = (self.region.slot_of_buffer(buffer).unwrap(), self.snapshot.consumed);
            let fingerprint = hash(&self.snapshot.outbox);
            if let Some(before) = self.sent.insert((slot, sequence), fingerprint) {
                assert_eq!(before, fingerprint, "effects of step {sequence} left twice, with different octets");
                self.repeats += 1;
            }
        }
        self.worker.sent(buffer);
    }

    fn drain(&mut self) {
        for worker in 0..usize::from(WORKERS) {
            while let Some(item) = self.egress[worker].take() {
                if let Some(buffer) = self.region.buffer_of(item) {
                    self.send(buffer);
                }
            }
        }
    }

    fn notify(&mut self, slot: Slot, number: u8) {
        let ring = self.region.ring(rings(number).0).unwrap();
        while ring.push(slot.number().into()).is_err() {
            self.drain();
            yield_now();
        }
        ring.bell().ring();
    }

    fn forward(&mut self) {
        let ue = self.random.below(UES.into()) as usize;
        // A fraction of the packets is large.
        let mut octets = [ue as u8; 3000];
        octets[1..].fill(self.random.below(256) as u8);
        let length = if self.random.below(100) == 0 { 3000 } else { 50 };
        let Some(packet) = self.worker.packet(self.posted[ue] + 1, &octets[..length]) else { return };
        let number = self.random.below(WORKERS.into()) as u8;
        match self.region.post(&self.worker, self.slots[ue], packet, number) {
            Ok(posted) => {
                self.posted[ue] += 1;
                if posted == Posted::Holder {
                    self.notify(self.slots[ue], number);
                }
            }
            Err(_) => assert!(self.worker.free(packet)),
        }
    }

    fn forward_for(&mut self, microseconds: u64) {
        let until = Instant::now() + Duration::from_micros(microseconds);
        while Instant::now() < until {
            self.forward();
            self.drain();
        }
    }

    /// Recovers a dead worker: sends its effects and assigns its UEs to another worker.
    ///
    /// The rest is reclaimed gradually while the other workers run.
    fn take_over(&mut self, dead: DeadWorker) -> JoinHandle<()> {
        self.drain();
        if let Some(last) = self.region.last_of(&dead) {
            self.send(last);
        }
        assert_eq!(self.region.unsent(&dead), [], "there was no other");
        let ring = self.region.ring(rings(dead.number()).0).unwrap();
        let mut items = ring.requeue(&dead, &self.worker);
        items.extend(std::iter::from_fn(|| ring.take(&self.worker)));
        for taken in items {
            let slot = self.region.slot_at(taken.item).unwrap();
            let other = (dead.number() + 1 + self.random.below(u64::from(WORKERS) - 1) as u8) % WORKERS;
            if self.region.take_over(slot, &dead, other) {
                self.notify(slot, other);
            }
            assert!(ring.acknowledge(&self.worker, taken));
        }
        assert_eq!(self.region.held_by(&dead).count(), 0, "all that it held was in its ring");
        let mut reclaim = self.region.reclaim_begin(dead);
        spawn(move || while !reclaim.advance(8) {})
    }

    /// Checks that every UE is intact and not older than at the last check.
    fn check_contexts(&mut self) {
        for ue in 0..self.slots.len() {
            assert!(self.region.read(self.slots[ue], &mut self.snapshot), "UE {ue} was lost");
            let context = Context::decode(&self.snapshot);
            assert_eq!(context.ue, ue as u64);
            assert!(context.sequence >= self.consumed[ue], "UE {ue} went back");
            assert!(context.sequence <= self.posted[ue], "UE {ue} has got what nobody sent");
            self.consumed[ue] = context.sequence;
        }
    }

    /// Checks that every input is consumed in the end, and everything matches the contexts.
    fn finish(mut self, workers: Vec<Child>) -> (u64, u32) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.consumed != self.posted && Instant::now() < end {
            self.drain();
            self.check_contexts();
        }
        // The workers complete their current work.
        while !self.slots.iter().all(|slot| self.region.is_idle_and_empty(*slot)) && Instant::now() < end {
            yield_now();
        }
        self.drain();
        for (number, child) in (0..).zip(workers) {
            // The worker that was started last may not have joined yet.
            let Some(dead) = Deaths::last(&self.region, number, child) else { continue };
            assert_eq!(self.region.held_by(&dead).count(), 0, "nobody holds a UE that nothing waits for");
            self.take_over(dead).join().unwrap();
        }
        self.check_contexts();
        assert_eq!(self.consumed, self.posted, "all inputs were consumed");
        assert_eq!(self.region.packets_used(), 0, "no packet is left behind");
        assert_eq!(self.region.heap_use().0, self.slots.len(), "a buffer in use is a UE's record");
        self.check_owners();
        self.region.rebuild().unwrap();
        self.check_owners();
        let all: u64 = self.posted.iter().sum();
        assert_eq!(self.sent.len() as u64, all, "every effect left");
        (all, self.repeats)
    }

    /// Checks that LTMSIs and numbers belong to the UEs whose contexts contain them.
    fn check_owners(&mut self) {
        let (mut ltmsis, mut owners) = (HashMap::new(), HashMap::new());
        for slot in &self.slots {
            assert!(self.region.read(*slot, &mut self.snapshot));
            let context = Context::decode(&self.snapshot);
            assert_eq!(self.region.ltmsi_of(*slot), Some(context.ltmsi));
            assert_eq!(self.region.aliases(*slot).count(), 0);
            assert_eq!(self.region.noted_numbers(*slot), [None, None]);
            assert_eq!(ltmsis.insert(context.ltmsi, *slot), None, "two UEs have one LTMSI");
            context.number.into_iter().for_each(|n| assert_eq!(owners.insert(n, *slot), None, "two have number {n}"));
        }
        let numbers = self.region.numbers(0).unwrap();
        (0..NUMBERS).for_each(|n| assert_eq!(numbers.owner(n), owners.get(&n).copied(), "number {n}"));
        let found = |n: u32| self.region.slot_of(Ltmsi::from_raw(n));
        (0..LTMSIS).for_each(|n| assert_eq!(found(n), ltmsis.get(&Ltmsi::from_raw(n)).copied(), "LTMSI {n}"));
    }
}

#[test]
fn inputs_survive_their_workers() {
    let mut host = Host::new();
    // This test does not evaluate the workers' log.
    let log = Log::create("mailbox");
    let mut workers: Vec<_> = (0..WORKERS).map(|n| start(&host.region, "mailbox::worker", n, &log)).collect();
    let mut deaths = Deaths::new(200, 20);
    while deaths.are_left() {
        let life = host.random.below(8000);
        host.forward_for(life);
        let number = host.random.below(WORKERS.into()) as u8;
        let dead = deaths.die(&host.region, number, &mut workers[usize::from(number)]);
        host.check_contexts();
        if let Some(dead) = dead {
            let reclaim = host.take_over(dead);
            host.forward_for(300);
            reclaim.join().unwrap();
            deaths.stays_dead();
        }
        workers[usize::from(number)] = start(&host.region, "mailbox::worker", number, &log);
    }
    let (inputs, repeats) = host.finish(workers);
    println!("{deaths}, {inputs} inputs, {repeats} sent twice");
}
