//! The whole way: a forwarder posts packets to UEs and tells workers; they commit and let effects leave, and are killed
//! or stopped. Each input is consumed once and in order, and nothing leaves twice with different octets.

use crate::process::{Log, Random, hash, kill, kills, role, start, stop_and_kill};
use std::collections::HashMap;
use std::process::Child;
use std::time::{Duration, Instant};
use vireo_store::region::{Buffer, Packet, Posted, Record, Region, RegionConfig, Slot, Snapshot, Worker};
use vireo_types::{Bucket, Ltmsi};

const UES: u16 = 40;
const WORKERS: u8 = 3;

fn ltmsi(n: u16) -> Ltmsi {
    Ltmsi::new(Bucket::new(n), 1)
}

fn send(region: &Region, buffer: Buffer, seen: &mut Snapshot, log: &mut Log) {
    if region.read_outbox(buffer, seen) && !seen.sent {
        log.write(&[u64::from(seen.context[0]), seen.consumed, hash(&seen.outbox)]);
    }
    region.sent(buffer);
}

/// One step. An input that was consumed before only lets what is left in the outbox leave.
fn step(worker: &mut Worker, slot: Slot, packet: Packet, random: &mut Random, log: &mut Log) {
    let (mut seen, mut input) = (Snapshot::default(), Vec::new());
    let sequence = worker.region().read_packet(packet, &mut input).expect("it is in flight");
    assert!(worker.region().read(slot, &mut seen), "the UE is there");
    let buffer = if sequence <= seen.consumed {
        assert_eq!(sequence, seen.consumed, "only the last input is carried out again");
        seen.buffer().expect("it has a record")
    } else {
        assert_eq!(sequence, seen.consumed + 1, "no input is lost, none overtakes another");
        assert_eq!(input, [seen.context[0]], "it is this UE's");
        let outbox: Vec<u8> = (0..random.below(200) + 1).map(|_| random.below(256) as u8).collect();
        let context = vec![seen.context[0]; 1 + random.below(700) as usize];
        let record = Record { consumed: sequence, context: &context, outbox: &outbox, ..Record::default() };
        worker.commit(slot, &seen, &record).expect("nobody else holds the UE").buffer
    };
    send(worker.region(), buffer, &mut seen, log);
}

fn work(mut worker: Worker) {
    let mut log = Log::inherited();
    let mut random = Random(std::process::id().into());
    let region = worker.region().clone();
    let ring = region.ring(worker.number().into()).unwrap();
    loop {
        let Some(taken) = ring.bell().wait(Duration::from_millis(100), || ring.take(&worker)) else { continue };
        let slot = region.slot_of(Ltmsi::from_raw(taken.item as u32)).expect("the UE is there");
        let mut next = region.next(&worker, slot);
        while let Some(packet) = next {
            step(&mut worker, slot, packet, &mut random, &mut log);
            next = worker.finish(slot);
        }
        ring.acknowledge(&worker, taken);
    }
}

#[test]
#[ignore = "a worker of the tests here"]
fn worker() {
    if let Some(worker) = role() {
        work(worker);
    }
}

struct Forwarder {
    worker: Worker,
    region: Region,
    slots: Vec<Slot>,
    sequence: Vec<u64>,
    random: Random,
    log: Log,
}

impl Forwarder {
    fn new(config: RegionConfig) -> Self {
        let region = Region::create(config).unwrap();
        let mut worker = region.join(WORKERS).unwrap();
        let mut insert = |n: u16| {
            let slot = worker.insert(ltmsi(n)).unwrap();
            let record = Record { context: &[n as u8], ..Record::default() };
            let _ = worker.commit(slot, &Snapshot::default(), &record).unwrap();
            slot
        };
        let slots = (0..UES).map(&mut insert).collect();
        let sequence = vec![0; usize::from(UES)];
        Forwarder { worker, region, slots, sequence, random: Random(0x5eed), log: Log::create("mailbox") }
    }

    fn tell(&self, ue: usize, number: u8) {
        let ring = self.region.ring(number.into()).unwrap();
        while ring.push(ltmsi(ue as u16).get().into()).is_err() {
            std::thread::yield_now();
        }
        ring.bell().ring();
    }

    fn forward(&mut self) {
        let ue = self.random.below(UES.into()) as usize;
        let Some(packet) = self.worker.packet(self.sequence[ue] + 1, &[ue as u8]) else { return };
        let number = self.random.below(WORKERS.into()) as u8;
        match self.region.post(&self.worker, self.slots[ue], packet, number) {
            Ok(posted) => {
                self.sequence[ue] += 1;
                if posted == Posted::Holder {
                    self.tell(ue, number);
                }
            }
            Err(_) => assert!(self.worker.free(packet)),
        }
    }

    /// What a host does about a dead worker: its effects leave, its UEs go to another, what it held is freed.
    fn take_over(&mut self, number: u8) {
        let Ok(dead) = self.region.bury(number) else { return };
        let mut seen = Snapshot::default();
        for buffer in self.region.unsent(&dead) {
            send(&self.region, buffer, &mut seen, &mut self.log);
        }
        let ring = self.region.ring(number.into()).unwrap();
        // What waits for it is told to others below: its UEs are those it holds.
        let waiting = std::iter::from_fn(|| ring.take(&self.worker));
        for taken in ring.requeue(&dead, &self.worker).into_iter().chain(waiting) {
            assert!(ring.acknowledge(&self.worker, taken));
        }
        let held: Vec<Slot> = self.region.held_by(&dead).collect();
        for slot in held {
            let other = (number + 1 + self.random.below(u64::from(WORKERS) - 1) as u8) % WORKERS;
            assert!(self.region.take_over(slot, &dead, other));
            let ue = self.slots.iter().position(|s| *s == slot).unwrap();
            self.tell(ue, other);
        }
        self.region.reclaim(dead);
    }

    fn consumed(&self, ue: usize) -> u64 {
        let mut seen = Snapshot::default();
        assert!(self.region.read(self.slots[ue], &mut seen));
        seen.consumed
    }

    /// Every input is consumed in the end, and every effect left, with one content.
    fn finish(self, workers: Vec<Child>) -> (u64, usize) {
        let end = Instant::now() + Duration::from_secs(30);
        while (0..self.slots.len()).any(|ue| self.consumed(ue) != self.sequence[ue]) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The last ones finish what they have.
        std::thread::sleep(Duration::from_millis(50));
        for (number, mut child) in (0..).zip(workers) {
            kill(&mut child);
            let dead = self.region.bury(number).unwrap();
            assert_eq!(self.region.held_by(&dead).count(), 0, "nobody holds a UE that nothing waits for");
            self.region.reclaim(dead);
        }
        for ue in 0..self.slots.len() {
            assert_eq!(self.consumed(ue), self.sequence[ue], "all inputs of UE {ue} were consumed");
        }
        assert_eq!(self.region.packets_used(), 0, "no packet is left behind");
        assert_eq!(self.region.heap_use().0, self.slots.len(), "a buffer in use is a UE's record");
        let (mut sent, mut repeats) = (HashMap::new(), 0);
        for [ue, sequence, hash] in self.log.finish() {
            if let Some(before) = sent.insert((ue, sequence), hash) {
                assert_eq!(before, hash, "effect {sequence} of UE {ue} left twice, with different octets");
                repeats += 1;
            }
        }
        let all: u64 = self.sequence.iter().sum();
        assert_eq!(sent.len() as u64, all, "every effect left");
        (all, repeats)
    }
}

#[test]
fn inputs_survive_their_workers() {
    let mut config = RegionConfig::new(UES.into(), WORKERS + 1, 32 << 20);
    (config.packets, config.ring_cells) = (512, 256);
    let mut host = Forwarder::new(config);
    let mut workers: Vec<_> = (0..WORKERS).map(|n| start(&host.region, "mailbox::worker", n, &host.log)).collect();
    let kills = kills(200);
    for n in 0..kills {
        let until = Instant::now() + Duration::from_micros(host.random.below(8000));
        while Instant::now() < until {
            host.forward();
        }
        let number = host.random.below(WORKERS.into()) as u8;
        let child = &mut workers[usize::from(number)];
        if n % 10 == 0 {
            stop_and_kill(&host.region, number, child)
        } else {
            kill(child)
        }
        host.take_over(number);
        workers[usize::from(number)] = start(&host.region, "mailbox::worker", number, &host.log);
    }
    let (inputs, repeats) = host.finish(workers);
    assert!(repeats <= kills as usize, "{repeats} repeats: one for each death at most");
    println!("{kills} kills, {inputs} inputs, {repeats} sent twice");
}
