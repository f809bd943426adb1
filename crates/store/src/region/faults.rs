//! Tests with a broken or compromised worker that writes arbitrary words.
//!
//! Whatever it writes, the host's functions return without a panic. A worker that replaces it
//! serves new UEs.

use super::mem::{AtomicU64, Ordering};
use super::{
    Buffer, CommitRecord, DeadWorker, Key, Packet, Region, RegionConfig, Ring, Slot, Snapshot, Worker, halves,
};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;
use vireo_types::{Instant, Ltmsi};

/// Timeout of one seed, long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(60);
const RINGS: std::ops::Range<u16> = 3..6;

/// SplitMix64 random number generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Returns a word that an attacker with knowledge of the layout might write.
    ///
    /// It is random, small, or close to `now`.
    fn word(&mut self, now: u64) -> u64 {
        match self.below(8) {
            0 => self.next(),
            1 => 0,
            2 => u64::MAX,
            3 => self.next() % 80,
            4 => now ^ 1 << self.below(64),
            5 => now.wrapping_add(1),
            6 => self.next() >> self.below(64),
            _ => super::joined((self.next() % 80) as u32, (self.next() % 80) as u32),
        }
    }
}

/// Writes `count` arbitrary words, most of them in used parts of the region.
fn damage(region: &Region, random: &mut Random, count: usize) {
    for _ in 0..count {
        let place = match random.below(4) {
            0 => random.below(region.lay.heap),
            1 => region.lay.slots + random.below(region.lay.slot_count * 16),
            2 => region.lay.heap + random.below(4 * 8192),
            _ => region.lay.rings + random.below(region.lay.board - region.lay.rings),
        };
        let word: &AtomicU64 = region.word(place);
        let value = random.word(word.load(Ordering::Relaxed));
        word.store(value, Ordering::Relaxed);
    }
}

fn region() -> Region {
    let mut config = RegionConfig::new(48, 4, 8 << 20);
    (config.packets, config.large_packets, config.rings, config.ring_cells) = (64, 2, 12, 16);
    (config.board, config.published_values, config.published_value_bytes, config.tables[0]) = (16, 1, 512, 64);
    Region::create(config).expect("a region")
}

/// State of a host.
struct Host {
    region: Region,
    own: Worker,
    snapshot: Snapshot,
}

impl Host {
    fn slot(&self, random: &mut Random) -> Slot {
        self.region.slot_at(random.below(self.region.slot_count() as usize) as u64).expect("one of them")
    }

    /// Executes one random operation of a host, and of a worker with it.
    fn act(&mut self, random: &mut Random) {
        let (slot, number) = (self.slot(random), random.below(80) as u32);
        let (ltmsi, region) = (Ltmsi::from_raw(number), self.region.clone());
        let buffer = Buffer { number: random.next() as u32 % 5000, generation: random.below(3) as u32 };
        match random.below(16) {
            0 => {
                if let Ok(slot) = self.own.insert(ltmsi) {
                    self.commit(slot, random);
                }
            }
            1 => self.commit(slot, random),
            2 if region.read(slot, &mut self.snapshot) => drop(self.own.remove(slot, &self.snapshot)),
            3 => {
                let item = random.next() & super::ring::ITEM;
                if let Some(buffer) = region.buffer_of(item) {
                    region.read_outbox(buffer, &mut self.snapshot);
                }
                region.read_record(buffer, &mut self.snapshot, true);
                let _ =
                    (region.place_of_buffer(buffer), region.slot_of_buffer(buffer), region.buffer_of(buffer.to_item()));
                self.own.sent(buffer);
            }
            4 => {
                let _ = (region.deadline_of(slot), region.pin_of(slot), region.consumed_of(slot));
                let _ = (region.slots_from(0, 100).count(), region.slots().count(), region.slots_used(100));
                let _ = (region.record_bytes(100), region.heap_use(), region.packets_used());
            }
            5 => {
                let octets = vec![7; random.below(3000)];
                if let Some(packet) = self.own.packet(1, &octets)
                    && region.post(&self.own, slot, packet, 1).is_err()
                {
                    self.own.free(packet);
                }
            }
            6 => {
                let packet = Packet::from_item(random.next());
                region.read_packet(packet, &mut Vec::new());
                self.own.free(packet);
            }
            7 => {
                for key in [Key::Ltmsi, Key::Tmsi, Key::Supi, Key::Ran] {
                    let _ = (region.bind_over(slot, key, number.into()), region.lookup(key, number.into()));
                    region.unbind(slot, key, number.into());
                }
            }
            8 => {
                let _ = (region.alias(slot, ltmsi), region.rename(slot, ltmsi), region.aliases(slot).count());
                let _ = (region.drop_alias(slot, ltmsi), region.ltmsi_of(slot), region.slot_of(ltmsi));
            }
            9 => {
                let numbers = region.numbers(0).expect("a table");
                let taken = numbers.take(slot);
                let _ = (numbers.reserve(number, slot), numbers.lend(number, slot), numbers.unlend(number));
                let _ = (numbers.owner(number), numbers.used(), taken.map(|taken| numbers.free(taken, slot)));
                region.clear_notes(slot);
            }
            10 => {
                let _ = region.publish(0, &[1; 100]);
                region.read_published(0, &mut Vec::new());
            }
            11 => {
                let ring = region.ring(random.below(12) as u16).expect("a ring");
                let _ = (ring.push(number.into()), ring.len(), ring.is_empty());
                if let Some(taken) = ring.take(&self.own) {
                    ring.acknowledge(&self.own, taken);
                }
            }
            12 => {
                let dead = DeadWorker { number: random.below(3) as u8 + 1 };
                region.take_over(slot, &dead, 0);
                let _ = (region.held_by(&dead).count(), region.last_of(&dead), region.unsent(&dead));
                while let Some(packet) = region.next(&self.own, slot) {
                    region.read_packet(packet, &mut Vec::new());
                    self.own.finish(slot);
                }
            }
            13 => self.own.trim(),
            14 => drop(self.own.abandon(slot)),
            _ => self.sweep(),
        }
    }

    fn commit(&mut self, slot: Slot, random: &mut Random) {
        let octets = vec![3; random.below(700)];
        self.region.read(slot, &mut self.snapshot);
        let record = CommitRecord { context: &octets, outbox: &octets[..octets.len() / 3], ..CommitRecord::default() };
        if let Ok(done) = self.own.commit(slot, &self.snapshot, &CommitRecord { deadline: Some(Instant(7)), ..record })
        {
            self.own.sent(done.buffer);
        }
    }

    /// Evicts the slots that are broken.
    fn sweep(&mut self) {
        for number in 0..self.region.slot_count() {
            let slot = self.region.slot_at(number).expect("one of them");
            if self.region.is_broken(slot) {
                self.own.evict(slot);
                assert!(halves(self.region.current(slot.0)).1 == 0 || self.is_being_damaged());
            }
        }
    }

    fn is_being_damaged(&self) -> bool {
        self.region.shared_word(0).load(Ordering::Relaxed) == 1
    }

    /// Simulates the death of a worker: recovers what it held and starts a replacement.
    fn replace(&mut self, number: u8) {
        let Some(dead) = self.region.declare_dead_reaped(number, 7) else { panic!("it is one of the region's") };
        for ring in RINGS.filter_map(|ring| self.region.ring(ring)) {
            let begun = ring.requeue(&dead, &self.own);
            let waiting = std::iter::from_fn(|| ring.take(&self.own)).take(ring.room());
            begun.into_iter().chain(waiting).for_each(|taken| _ = ring.acknowledge(&self.own, taken));
        }
        for slot in self.region.held_by(&dead).collect::<Vec<_>>() {
            self.region.take_over(slot, &dead, 0);
            while self.region.next(&self.own, slot).is_some() {
                self.own.finish(slot);
            }
        }
        self.region.reclaim(dead);
        self.region.restore(number, RINGS);
    }
}

/// Checks that a replacement worker serves a UE that arrives after the damage.
fn serves(host: &mut Host) {
    let region = Region::attach(host.region.share().expect("shared")).expect("what it begins with was put right");
    let mut worker = region.join(1).expect("its place is free");
    let new = (100..500).find_map(|n| {
        let slot = host.own.insert(Ltmsi::from_raw(n)).ok()?;
        (region.ltmsi_of(slot) == Some(Ltmsi::from_raw(n)) && !region.read(slot, &mut host.snapshot)).then_some(slot)
    });
    let slot = new.expect("there is room for a UE");
    let packet = host.own.packet(9, b"hello").expect("there is room for a message");
    host.region.post(&host.own, slot, packet, 1).expect("posted");
    let ring: Ring = host.region.ring(RINGS.start).expect("a ring");
    ring.push(slot.number().into()).expect("there is room in an empty ring");
    let taken = ring.take(&worker).expect("an item");
    let mut octets = Vec::new();
    let packet = region.next(&worker, slot).expect("a message");
    assert_eq!(
        (region.read_packet(packet, &mut octets), &octets[..], taken.item),
        (Some(9), &b"hello"[..], slot.number().into())
    );
    assert!(!region.read(slot, &mut host.snapshot));
    let record = CommitRecord { context: b"context", outbox: b"effects", ..CommitRecord::default() };
    let done = worker.commit(slot, &host.snapshot, &record).expect("committed");
    assert_eq!(worker.finish(slot), None);
    assert!(ring.acknowledge(&worker, taken));
    let (mut sender, mut receiver) = (region.sender(4).expect("a ring"), host.region.receiver(4).expect("a ring"));
    sender.push(done.buffer.to_item()).expect("there is room");
    let buffer = receiver.take().and_then(|item| host.region.buffer_of(item)).expect("a record");
    assert!(host.region.read_outbox(buffer, &mut host.snapshot) && host.snapshot.outbox == b"effects");
}

/// Runs rounds of damage and of a host's operations, optionally beside a thread that keeps writing.
///
/// Returns true if the region counted a fault: damage of words that no function reads is not
/// noticed.
fn storm(seed: u64, rounds: usize, beside: bool) -> bool {
    let region = region();
    let own = region.join(0).expect("a place");
    let mut random = Random(seed);
    let mut host = Host { own, snapshot: Snapshot::default(), region };
    for _ in 0..300 {
        let slot = host.slot(&mut random);
        if let Ok(slot) = host.own.insert(Ltmsi::from_raw(random.below(80) as u32)) {
            host.commit(slot, &mut random);
        }
        let _ =
            (host.region.alias(slot, Ltmsi::from_raw(random.below(80) as u32)), host.region.bind(slot, Key::Ran, 7));
        if let Some(packet) = host.own.packet(1, b"a message")
            && host.region.post(&host.own, slot, packet, 1).is_err()
        {
            host.own.free(packet);
        }
    }
    // This walks the mailboxes to their ends.
    host.replace(1);
    assert_eq!(host.region.faults(), 0, "nothing is at fault as long as nobody does damage");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if beside {
            host.region.shared_word(0).store(1, Ordering::Relaxed);
            let (region, over) = (host.region.clone(), &over);
            scope.spawn(move || {
                let mut random = Random(seed ^ 0xabcd);
                while !over.load(Ordering::Relaxed) {
                    damage(&region, &mut random, 1);
                    region.shared_word(0).store(1, Ordering::Relaxed);
                }
            });
        }
        let mut receiver = host.region.receiver(4).expect("a ring");
        for _ in 0..rounds {
            damage(&host.region, &mut random, 8);
            (0..8).for_each(|_| host.act(&mut random));
            for _ in 0..20 {
                receiver.take();
            }
            let _ = receiver.is_empty();
            if random.below(16) == 0 {
                host.replace(1);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    host.region.shared_word(0).store(0, Ordering::Relaxed);
    host.sweep();
    host.replace(1);
    serves(&mut host);
    host.region.faults() > 0
}

fn storms(seeds: std::ops::Range<u64>, rounds: usize, beside: bool) {
    let (mut all, mut noticed) = (0, 0);
    for seed in seeds {
        let (done, came) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let noticed = storm(seed, rounds, beside);
            let _ = done.send(());
            noticed
        });
        let damaged = match came.recv_timeout(LONG) {
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("seed {seed}: a function does not come back"),
            _ => thread.join().unwrap_or_else(|_| panic!("seed {seed}: a function has panicked")),
        };
        (all, noticed) = (all + 1, noticed + u64::from(damaged));
    }
    assert!(noticed * 10 >= all * 9, "damage was noticed with {noticed} of {all} seeds");
}

#[test]
fn random_words_do_not_end_the_host() {
    storms(0..60, 60, false);
}

#[test]
fn random_words_beside_do_not_end_the_host() {
    storms(100..112, 60, true);
}

#[test]
#[ignore = "a campaign: minutes"]
fn random_words_campaign() {
    storms(1000..6000, 100, false);
    storms(10_000..10_500, 100, true);
}
