//! The packet pool: message buffers of 2 KiB (many) and 80 KiB (few) in the region.
//!
//! The large packets are numbered after the small ones. The state of a packet is one word
//! {generation, state, owner}. A worker's list of free packets is a private hint.

use super::layout::{LARGE_PACKET, MOST_PACKETS, PACKET, PACKET_HEADER};
use super::mem::{Ordering, WORD, fence};
use super::{Region, Slot, Worker, halves, joined};

const P_STATE: usize = 0;
pub(super) const P_NEXT: usize = 1;
const P_SEQUENCE: usize = 2;
const P_LENGTH: usize = 3;
const P_SLOT: usize = 4;

const FREE: u32 = 0;
const OWNED: u32 = 1 << 8;
pub(super) const POSTED: u32 = 2 << 8;

/// Mask of a generation: the bits that fit into 40 bits beside the number.
const GENERATIONS: u32 = (1 << 20) - 1;

/// Capacity of a small packet in bytes.
pub const PACKET_OCTETS: usize = (PACKET - PACKET_HEADER) * WORD;
/// Capacity of a large packet, and so the maximum size of a message, in bytes.
pub const LARGE_PACKET_OCTETS: usize = (LARGE_PACKET - PACKET_HEADER) * WORD;

/// One use of a packet of the pool: its number and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    pub(super) number: u32,
    generation: u32,
}

impl Packet {
    /// Encodes the packet as a ring item of 40 bits.
    pub const fn to_item(self) -> u64 {
        (self.generation as u64) << 20 | self.number as u64
    }

    /// Decodes the packet of a ring item.
    pub const fn from_item(item: u64) -> Self {
        Packet { number: item as u32 & (MOST_PACKETS - 1), generation: (item >> 20) as u32 & GENERATIONS }
    }
}

impl Region {
    #[inline]
    pub(super) fn packet(&self, number: u32, word: usize) -> usize {
        match number.checked_sub(self.config.packets) {
            None => self.lay.packets + number as usize * PACKET + word,
            Some(large) => self.lay.large_packets + large as usize * LARGE_PACKET + word,
        }
    }

    /// Returns the number of packets of both sizes.
    #[inline]
    pub(super) fn packet_count(&self) -> u32 {
        self.config.packets + self.config.large_packets
    }

    pub(super) fn packet_now(&self, number: u32) -> Packet {
        let (generation, _) = halves(self.word(self.packet(number, P_STATE)).load(Ordering::Acquire));
        Packet { number, generation }
    }

    /// Returns true if this use of the packet is not over.
    pub(super) fn is_live(&self, packet: Packet) -> bool {
        let live = || halves(self.word(self.packet(packet.number, P_STATE)).load(Ordering::Acquire));
        packet.number < self.packet_count()
            && matches!(live(), (now, state) if now == packet.generation && state != FREE)
    }

    /// Marks the packet as posted to a mailbox by a worker.
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

    /// Appends the contents of a packet to `to` and returns its sequence number.
    ///
    /// Returns `None` if this use of the packet is over.
    pub fn read_packet(&self, packet: Packet, to: &mut Vec<u8>) -> Option<u64> {
        if !self.is_live(packet) {
            return None;
        }
        let get = |word: usize| self.word(self.packet(packet.number, word)).load(Ordering::Relaxed);
        let length = usize::try_from(get(P_LENGTH)).ok().filter(|length| *length <= self.room_of(packet))?;
        let sequence = get(P_SEQUENCE);
        self.mem.read(self.packet(packet.number, PACKET_HEADER), length, to);
        fence(Ordering::Acquire);
        self.is_live(packet).then_some(sequence)
    }

    fn room_of(&self, packet: Packet) -> usize {
        if packet.number < self.config.packets { PACKET_OCTETS } else { LARGE_PACKET_OCTETS }
    }

    /// Returns the number of packets in use.
    pub fn packets_used(&self) -> usize {
        let state = |n: u32| halves(self.word(self.packet(n, P_STATE)).load(Ordering::Relaxed)).1;
        (0..self.packet_count()).filter(|n| state(*n) != FREE).count()
    }

    /// Frees a packet of a dead worker that is in no mailbox.
    ///
    /// Other workers may run meanwhile. A packet that belongs to a live worker, or was freed and
    /// allocated again, has another state by then.
    pub(super) fn reclaim_packet(&self, worker: u8, number: u32) {
        let word = self.word(self.packet(number, P_STATE));
        let now = word.load(Ordering::Acquire);
        let (generation, state) = halves(now);
        let packet = Packet { number, generation };
        let slot = self.word(self.packet(number, P_SLOT)).load(Ordering::Acquire) as u32;
        // A state that workers never write has no owner: such a packet is lost as well.
        let known = matches!(state & !0xff, FREE | OWNED | POSTED) && (state & 0xff) < u32::from(self.config.workers);
        let lost = !known
            || state == OWNED | u32::from(worker)
            || state == POSTED | u32::from(worker) && !self.is_posted(Slot(slot), packet);
        if lost {
            let free = joined(generation.wrapping_add(1) & GENERATIONS, FREE);
            let _ = word.compare_exchange(now, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

impl Worker {
    /// Allocates a packet with these bytes; `None` if no packet that is large enough is free.
    ///
    /// The packet belongs to the worker until it is posted. If the worker dies before, the packet
    /// is reclaimed with it.
    pub fn packet(&mut self, sequence: u64, octets: &[u8]) -> Option<Packet> {
        let packet = match octets.len() {
            length if length <= PACKET_OCTETS => self.free_one()?,
            length if length <= LARGE_PACKET_OCTETS => self.large_one()?,
            _ => return None,
        };
        fence(Ordering::Release);
        let region = &self.region;
        let put =
            |word: usize, value: u64| region.word(region.packet(packet.number, word)).store(value, Ordering::Relaxed);
        put(P_SEQUENCE, sequence);
        put(P_LENGTH, octets.len() as u64);
        region.mem.write(region.packet(packet.number, PACKET_HEADER), octets);
        Some(packet)
    }

    /// Allocates a small packet.
    ///
    /// Packets are mostly freed by other processes, so the position of free ones is unknown. The
    /// search window is as small as the packets in use allow. So the same packets are reused while
    /// they are in the processor's cache.
    fn free_one(&mut self) -> Option<Packet> {
        let count = self.region.config.packets;
        let mut missed = 0;
        loop {
            let number = self.spare.pop().or_else(|| self.packets.next(count, &mut missed))?;
            if let Some(packet) = self.claim(number) {
                return Some(packet);
            }
        }
    }

    /// Allocates a large packet by a search over all of them: they are few and seldom needed.
    fn large_one(&mut self) -> Option<Packet> {
        let region = &self.region;
        (region.config.packets..region.packet_count()).find_map(|number| self.claim(number))
    }

    /// Allocates a packet to the worker if it is free.
    fn claim(&self, number: u32) -> Option<Packet> {
        let word = self.region.word(self.region.packet(number, P_STATE));
        let now = word.load(Ordering::Relaxed);
        let (generation, state) = halves(now);
        let mine = joined(generation, OWNED | u32::from(self.number));
        let done = state == FREE && word.compare_exchange(now, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        done.then_some(Packet { number, generation })
    }

    /// Frees a packet. Returns false if it was free already.
    pub fn free(&mut self, packet: Packet) -> bool {
        let freed = packet.number < self.region.packet_count() && self.region.free_packet(packet);
        if freed && packet.number < self.region.config.packets && self.spare.len() < 64 {
            self.spare.push(packet.number);
        }
        freed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LARGE_PACKET_OCTETS, PACKET_OCTETS};
    use crate::region::{Posted, Region, RegionConfig};
    use vireo_types::Ltmsi;

    #[test]
    fn packets_are_reused_before_new_ones() {
        let config = RegionConfig { packets: 2048, ..RegionConfig::new(4, 2, 32 << 20) };
        let region = Region::create(config).unwrap();
        let mut worker = region.join(1).unwrap();
        let most = |worker: &mut super::Worker| {
            let mut used = std::collections::BTreeSet::new();
            for n in 0..20_000 {
                let packet = worker.packet(n, b"x").unwrap();
                used.insert(packet.number);
                assert!(region.free_packet(packet), "freed by another worker, as a rule");
            }
            used.len()
        };
        assert_eq!(most(&mut worker), 256);
        let all: Vec<_> = std::iter::from_fn(|| worker.packet(1, b"y")).collect();
        assert_eq!((all.len(), region.packets_used()), (2048, 2048), "each is found, however few are left");
        assert!(all.into_iter().all(|packet| region.free_packet(packet)));
        most(&mut worker);
        assert_eq!(most(&mut worker), 256, "it has shrunk again");
    }

    #[test]
    fn large_messages_have_packets_of_their_own() {
        let config = RegionConfig { packets: 4, large_packets: 2, ..RegionConfig::new(4, 2, 32 << 20) };
        let region = Region::create(config).unwrap();
        let mut worker = region.join(0).unwrap();
        let slot = worker.insert(Ltmsi::from_raw(1)).unwrap();
        let octets: Vec<u8> = (0..LARGE_PACKET_OCTETS as u32).map(|n| (n / 251) as u8).collect();
        assert!(octets.len() > vireo_types::limits::NGAP_PDU_OCTETS + 1024, "with what accompanies a message");
        assert_eq!(worker.packet(1, &[&octets[..], &[0]].concat()), None);
        let sizes = [PACKET_OCTETS + 1, octets.len(), 0, PACKET_OCTETS];
        let packets = sizes.map(|size| worker.packet(size as u64, &octets[..size]).unwrap());
        assert_eq!(worker.packet(9, &octets), None, "there are but two");
        assert_eq!(region.post(&worker, slot, packets[0], 0), Ok(Posted::Holder));
        for packet in &packets[1..] {
            assert_eq!(region.post(&worker, slot, *packet, 0), Ok(Posted::Queued));
        }
        let mut next = region.next(&worker, slot);
        for size in sizes {
            let mut seen = Vec::new();
            assert_eq!(region.read_packet(next.unwrap(), &mut seen), Some(size as u64));
            assert_eq!(seen, octets[..size]);
            next = worker.finish(slot);
        }
        assert_eq!((next, region.packets_used()), (None, 0));
        let mut other = region.join(1).unwrap();
        assert!((0..2).all(|_| other.packet(1, &octets).is_some()), "they are free again");
        assert_eq!(region.packets_used(), 2);
        drop(other);
        assert_eq!(region.packets_used(), 0, "it took them along");
    }
}
