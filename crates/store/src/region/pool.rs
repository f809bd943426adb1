//! The packet pool: buffers of one size for messages on their way to a UE. The state of a packet is one word
//! {generation, state, owner}; a worker's list of free packets is a private hint.

use super::layout::{PACKET, PACKET_HEADER};
use super::mem::{Ordering, WORD, fence};
use super::{Region, Slot, Worker, halves, joined};
use std::collections::HashSet;

const P_STATE: usize = 0;
pub(super) const P_NEXT: usize = 1;
const P_SEQUENCE: usize = 2;
const P_LENGTH: usize = 3;
const P_SLOT: usize = 4;

const FREE: u32 = 0;
const OWNED: u32 = 1 << 8;
pub(super) const POSTED: u32 = 2 << 8;

/// Bits of a generation: what fits into a ring's item beside the number.
const GENERATIONS: u32 = (1 << 20) - 1;
/// Packets of a pool at most.
pub(super) const MOST: u32 = 1 << 20;

/// Octets of a packet at most.
pub const PACKET_OCTETS: usize = (PACKET - PACKET_HEADER) * WORD;

/// One use of a packet of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    pub(super) number: u32,
    generation: u32,
}

impl Packet {
    /// As an item of a ring: 40 bits.
    pub const fn to_item(self) -> u64 {
        (self.generation as u64) << 20 | self.number as u64
    }

    /// Of the item.
    pub const fn from_item(item: u64) -> Self {
        Packet { number: item as u32 & (MOST - 1), generation: (item >> 20) as u32 & GENERATIONS }
    }
}

impl Region {
    pub(super) fn packet(&self, number: u32, word: usize) -> usize {
        self.lay.packets + number as usize * PACKET + word
    }

    pub(super) fn packet_now(&self, number: u32) -> Packet {
        let (generation, _) = halves(self.word(self.packet(number, P_STATE)).load(Ordering::Acquire));
        Packet { number, generation }
    }

    /// Whether this use of the packet is not over.
    pub(super) fn is_live(&self, packet: Packet) -> bool {
        let live = || halves(self.word(self.packet(packet.number, P_STATE)).load(Ordering::Acquire));
        packet.number < self.config.packets
            && matches!(live(), (now, state) if now == packet.generation && state != FREE)
    }

    /// Marks the packet as a mailbox's, posted by a worker.
    pub(super) fn set_posted(&self, packet: Packet, slot: Slot, worker: u8) {
        self.word(self.packet(packet.number, P_SLOT)).store(u64::from(slot.0), Ordering::Relaxed);
        let state = joined(packet.generation, POSTED | u32::from(worker));
        self.word(self.packet(packet.number, P_STATE)).store(state, Ordering::Release);
    }

    pub(super) fn free_packet(&self, packet: Packet) -> bool {
        let word = self.word(self.packet(packet.number, P_STATE));
        let now = word.load(Ordering::Acquire);
        let (generation, state) = halves(now);
        let next = joined(generation.wrapping_add(1) & GENERATIONS, FREE);
        let live = generation == packet.generation && state != FREE;
        live && word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// What a packet holds is appended to `to`: its sequence number, or `None` if its use is over.
    pub fn read_packet(&self, packet: Packet, to: &mut Vec<u8>) -> Option<u64> {
        if !self.is_live(packet) {
            return None;
        }
        let get = |word: usize| self.word(self.packet(packet.number, word)).load(Ordering::Relaxed);
        let length = usize::try_from(get(P_LENGTH)).ok().filter(|length| *length <= PACKET_OCTETS)?;
        let sequence = get(P_SEQUENCE);
        self.mem.read(self.packet(packet.number, PACKET_HEADER), length, to);
        fence(Ordering::Acquire);
        self.is_live(packet).then_some(sequence)
    }

    /// Packets in use.
    pub fn packets_used(&self) -> usize {
        let state = |n: u32| halves(self.word(self.packet(n, P_STATE)).load(Ordering::Relaxed)).1;
        (0..self.config.packets).filter(|n| state(*n) != FREE).count()
    }

    /// The packets of a dead worker that are in no ring and in no mailbox become free. Returns how many.
    pub(super) fn reclaim_packets(&self, worker: u8) -> usize {
        // Rings before mailboxes: that is the way packets go.
        let queued: HashSet<u64> = (0..self.config.rings)
            .filter_map(|n| self.ring(n))
            .flat_map(|ring| ring.items().collect::<Vec<_>>())
            .collect();
        let lost = |number: &u32| {
            let (_, state) = halves(self.word(self.packet(*number, P_STATE)).load(Ordering::Acquire));
            let packet = self.packet_now(*number);
            let theirs = state == OWNED | u32::from(worker) || state == POSTED | u32::from(worker);
            let slot = self.word(self.packet(*number, P_SLOT)).load(Ordering::Acquire) as u32;
            theirs
                && !queued.contains(&packet.to_item())
                && !(state & POSTED != 0 && self.is_posted(Slot(slot), packet))
        };
        (0..self.config.packets).filter(lost).filter(|number| self.free_packet(self.packet_now(*number))).count()
    }
}

impl Worker {
    /// A packet with these octets; `None` if none is free, or they are too many. It is the worker's until it is in a ring
    /// or a mailbox.
    pub fn packet(&mut self, sequence: u64, octets: &[u8]) -> Option<Packet> {
        if octets.len() > PACKET_OCTETS {
            return None;
        }
        let packet = self.free_one()?;
        fence(Ordering::Release);
        let region = &self.region;
        let put =
            |word: usize, value: u64| region.word(region.packet(packet.number, word)).store(value, Ordering::Relaxed);
        put(P_SEQUENCE, sequence);
        put(P_LENGTH, octets.len() as u64);
        region.mem.write(region.packet(packet.number, PACKET_HEADER), octets);
        Some(packet)
    }

    fn free_one(&mut self) -> Option<Packet> {
        let count = self.region.config.packets;
        for _ in 0..count {
            let number = self.spare.pop().unwrap_or_else(|| {
                self.packet_cursor = (self.packet_cursor + 1) % count;
                self.packet_cursor
            });
            let word = self.region.word(self.region.packet(number, P_STATE));
            let now = word.load(Ordering::Relaxed);
            let (generation, state) = halves(now);
            let mine = joined(generation, OWNED | u32::from(self.number));
            if state == FREE && word.compare_exchange(now, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(Packet { number, generation });
            }
        }
        None
    }

    /// A packet is done with. False if it was before.
    pub fn free(&mut self, packet: Packet) -> bool {
        let freed = packet.number < self.region.config.packets && self.region.free_packet(packet);
        if freed && self.spare.len() < 64 {
            self.spare.push(packet.number);
        }
        freed
    }
}
