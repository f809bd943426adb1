//! Cost of a UE event on its way through the region, in one thread.
//!
//! Usage: `cargo run --release -p vireo-store --example event_cost [UES] [EVENTS]`. The context has
//! 800 bytes, the message 100, the outbox 300.
//!
//! The first measurement covers the whole way, one event after the other. The second covers each
//! step separately, over 32 events at a time. The values are processor time of the thread, except
//! between threads.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;
use vireo_store::region::{
    Buffer, CommitRecord, Packet, Posted, Receiver, Region, RegionConfig, Ring, Sender, Slot, Snapshot,
};
use vireo_store::region::{InFlightItem, Worker};
use vireo_types::Ltmsi;

const CONTEXT: usize = 800;
const MESSAGE: usize = 100;
const OUTBOX: usize = 300;
const BATCH: usize = 32;

/// Returns the processor time of this thread in nanoseconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The forwarder and the worker of a host, in one thread.
struct Bench {
    region: Region,
    host: Worker,
    worker: Worker,
    ring: Ring,
    sender: Sender,
    receiver: Receiver,
    slots: Vec<Slot>,
    sequence: u64,
    at: u32,
    message: [u8; MESSAGE],
    outbox: [u8; OUTBOX],
    input: Vec<u8>,
    snapshot: Snapshot,
    effects: Snapshot,
}

impl Bench {
    fn new(ues: u32) -> Self {
        let config = RegionConfig::new(ues, 2, ues as usize * 4096 + (96 << 20));
        let region = Region::create(config).expect("the machine has the memory");
        let (mut host, worker) = (region.join(0).expect("it is free"), region.join(1).expect("it is free"));
        let record = CommitRecord { context: &[7; CONTEXT], ..CommitRecord::default() };
        let slots = (0..ues).map(|n| {
            let slot = host.insert(Ltmsi::from_raw(n.wrapping_mul(2_654_435_761))).expect("there is room");
            let _ = host.commit(slot, &Snapshot::default(), &record).expect("nobody else is there");
            slot
        });
        Bench {
            slots: slots.collect(),
            ring: region.ring(1).expect("there are four"),
            sender: region.sender(0).expect("there are four"),
            receiver: region.receiver(0).expect("there are four"),
            region,
            host,
            worker,
            sequence: 0,
            at: 1,
            message: [1; MESSAGE],
            outbox: [2; OUTBOX],
            input: Vec::new(),
            snapshot: Snapshot::default(),
            effects: Snapshot::default(),
        }
    }

    /// Returns the slot of the next UE, in an order that caches cannot predict.
    fn slot(&mut self) -> Slot {
        self.at = self.at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.slots[((u64::from(self.at) * self.slots.len() as u64) >> 32) as usize]
    }

    fn packet(&mut self) -> Packet {
        self.sequence += 1;
        self.host.packet(self.sequence, &self.message).expect("there is room")
    }

    fn post(&mut self, slot: Slot, packet: Packet) -> Posted {
        self.region.post(&self.host, slot, packet, 1).expect("there is room")
    }

    fn load(&mut self, slot: Slot, packet: Packet) -> u64 {
        self.input.clear();
        let sequence = self.region.read_packet(packet, &mut self.input).expect("it is in flight");
        assert!(self.region.read(slot, &mut self.snapshot));
        assert_eq!((self.input.len(), self.snapshot.context.len()), (MESSAGE, CONTEXT));
        sequence
    }

    fn commit(&mut self, slot: Slot, sequence: u64) -> Buffer {
        self.snapshot.context[0] = sequence as u8;
        let record = CommitRecord {
            consumed: sequence,
            context: &self.snapshot.context,
            outbox: &self.outbox,
            ..CommitRecord::default()
        };
        self.worker.commit(slot, &self.snapshot, &record).expect("nobody else has the UE").buffer
    }

    fn emit(&mut self, item: u64) {
        let buffer = self.region.buffer_of(item).expect("it was not sent");
        assert!(self.region.read_outbox(buffer, &mut self.effects));
        assert_eq!(self.effects.outbox.len(), OUTBOX);
        self.host.sent(buffer);
    }

    fn done(&mut self, taken: InFlightItem, slot: Slot) {
        assert_eq!(self.worker.finish(slot), None);
        assert!(self.ring.acknowledge(&self.worker, taken));
    }

    fn event(&mut self) {
        let slot = self.slot();
        let packet = self.packet();
        assert_eq!(self.post(slot, packet), Posted::Holder);
        self.ring.push(slot.number().into()).expect("there is room");
        let taken = self.ring.take(&self.worker).expect("it was just pushed");
        let packet = self.region.next(&self.worker, slot).expect("it was just posted");
        let sequence = self.load(slot, packet);
        let buffer = self.commit(slot, sequence);
        self.sender.push(buffer.to_item()).expect("there is room");
        let item = self.receiver.take().expect("it was just pushed");
        self.emit(item);
        self.done(taken, slot);
    }

    /// Returns the nanoseconds of each step for each event.
    fn steps(&mut self, rounds: usize) -> [(&'static str, f64); 10] {
        const NAMES: [&str; 10] = [
            "packet",
            "post",
            "push",
            "take",
            "next",
            "load",
            "commit",
            "egress",
            "outbox, sent",
            "finish, acknowledge",
        ];
        let mut nanoseconds = [0.0; 10];
        for _ in 0..rounds {
            let mut slots: Vec<Slot> = (0..BATCH).map(|_| self.slot()).collect();
            slots.sort_unstable_by_key(|slot| slot.number());
            slots.dedup();
            let mut packets: Vec<Packet> = Vec::with_capacity(BATCH);
            let mut taken: Vec<InFlightItem> = Vec::with_capacity(BATCH);
            let mut items = Vec::with_capacity(BATCH);
            let mut step = 0;
            let mut time = |this: &mut Self, work: &mut dyn FnMut(&mut Self, usize, Slot)| {
                let start = now();
                for (n, slot) in slots.iter().enumerate() {
                    work(this, n, *slot);
                }
                nanoseconds[step] += (now() - start) / slots.len() as f64;
                step += 1;
            };
            time(self, &mut |this, _, _| packets.push(this.packet()));
            time(self, &mut |this, n, slot| assert_eq!(this.post(slot, packets[n]), Posted::Holder));
            time(self, &mut |this, _, slot| this.ring.push(slot.number().into()).expect("there is room"));
            time(self, &mut |this, _, _| taken.push(this.ring.take(&this.worker).expect("it was pushed")));
            time(self, &mut |this, n, slot| assert_eq!(this.region.next(&this.worker, slot), Some(packets[n])));
            time(self, &mut |this, n, slot| assert_ne!(this.load(slot, packets[n]), 0));
            let mut sequence = self.sequence;
            time(self, &mut |this, _, slot| {
                assert!(this.region.read(slot, &mut this.snapshot));
                sequence += 1;
                items.push(this.commit(slot, sequence).to_item());
            });
            time(self, &mut |this, n, _| {
                this.sender.push(items[n]).expect("there is room");
                assert_eq!(this.receiver.take(), Some(items[n]));
            });
            time(self, &mut |this, n, _| this.emit(items[n]));
            time(self, &mut |this, n, slot| this.done(taken[n], slot));
        }
        let each = nanoseconds.map(|sum| sum / rounds as f64);
        std::array::from_fn(|n| (NAMES[n], each[n]))
    }
}

/// Returns the nanoseconds of an item through a ring: many users or one at each end, each within
/// one thread and between two.
fn rings(region: &Region, worker: &Worker, items: u64) -> [f64; 4] {
    let many = region.ring(2).expect("there are four");
    let (sender, receiver) = (region.sender(3), region.receiver(3));
    let (mut sender, mut receiver) = (sender.expect("there are four"), receiver.expect("there are four"));
    let each = |start: Instant| start.elapsed().as_nanos() as f64 / items as f64;
    let take = || many.take(worker).map(|taken| assert!(many.acknowledge(worker, taken)));
    let start = Instant::now();
    (0..items).for_each(|item| assert!(many.push(item).is_ok() && take().is_some()));
    let alone = each(start);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..items).for_each(|item| while many.push(item).is_err() {}));
        (0..items).for_each(|_| while take().is_none() {});
    });
    let between = each(start);
    let start = Instant::now();
    (0..items).for_each(|item| assert!(sender.push(item).is_ok() && receiver.take() == Some(item)));
    let pipe_alone = each(start);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..items).for_each(|item| while sender.push(item).is_err() {}));
        (0..items).for_each(|item| {
            let taken = std::iter::repeat_with(|| receiver.take()).flatten().next();
            assert_eq!(taken, Some(item));
        });
    });
    [alone, between, pipe_alone, each(start)]
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u32>().expect("a number"));
    let ues = arguments.next().unwrap_or(10_000);
    let events = arguments.next().unwrap_or(2_000_000);
    let mut bench = Bench::new(ues);
    (0..events / 10).for_each(|_| bench.event());
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = now();
        (0..events / 5).for_each(|_| bench.event());
        best = best.min((now() - start) / f64::from(events / 5));
    }
    println!("{ues} UEs, the whole way of an event: {best:.0} ns (the best of five)");
    for (step, nanoseconds) in bench.steps(events as usize / BATCH / 10) {
        println!("  {step:<20} {nanoseconds:6.1} ns");
    }
    let [alone, between, pipe_alone, pipe_between] = rings(&bench.region, &bench.worker, events.into());
    println!("an item through a ring, in one thread and from thread to thread:");
    println!("  of many producers and consumers  {alone:6.1} ns  {between:6.1} ns");
    println!("  of one producer and one consumer {pipe_alone:6.1} ns  {pipe_between:6.1} ns");
    let start = now();
    drop(bench.worker);
    println!("what a worker with all these records held is found in {:.1} ms", (now() - start) / 1e6);
}
