//! Buffers of downlink packets that wait for their UE (TS 23.501 5.8.3).
//!
//! They are bounded for each session and in total. The sessions with the most octets give way to
//! the others.

use std::collections::{HashMap, VecDeque};
use vireo_types::{Duration, Instant};

/// Bounds of downlink buffering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Maximum packets of one session. Default 64.
    pub packets_per_session: usize,
    /// Maximum octets of all sessions. Default 32 MiB.
    pub octets: usize,
    /// Maximum time that packets of a session are buffered. They are then dropped, and the next
    /// packet is reported again. Default 60 s: longer than paging with all its repetitions.
    pub keep: Duration,
}

impl Default for BufferLimits {
    fn default() -> Self {
        BufferLimits { packets_per_session: 64, octets: 32 << 20, keep: Duration::from_secs(60) }
    }
}

/// Buffered packets of one session. It may be empty: its first packet found no room.
#[derive(Debug)]
struct BufferQueue {
    since: Instant,
    packets: VecDeque<Box<[u8]>>,
    /// Size of the packets in octets.
    octets: usize,
    slot: Option<Slot>,
}

/// Slot of a queue in [`Buffers::long`].
#[derive(Clone, Copy, Debug)]
struct Slot {
    class: usize,
    index: usize,
}

/// Number of size classes of queues: logarithms of their octets.
const CLASSES: usize = usize::BITS as usize;

/// Buffered packets by downlink entry.
///
/// If the octets of all sessions are used up, a packet displaces the last packet of a session that
/// has at least about twice as much. The first packet of a session displaces any packet of a
/// session with several. So a flood of some sessions takes the room of these sessions only.
#[derive(Debug)]
pub(crate) struct Buffers {
    limits: BufferLimits,
    queues: HashMap<u32, BufferQueue>,
    /// Entries whose queues have several packets, by size class.
    long: [Vec<u32>; CLASSES],
    /// Packet limit of single entries, where it is below the common limit.
    own: HashMap<u32, usize>,
    octets: usize,
}

/// Result of [`Buffers::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// False if a limit is reached.
    pub(crate) is_stored: bool,
    /// Packets of other sessions that were dropped for this one.
    pub(crate) evicted: u32,
}

impl Buffers {
    pub(crate) fn new(limits: BufferLimits) -> Self {
        let long = std::array::from_fn(|_| vec![]);
        Buffers { limits, queues: HashMap::new(), long, own: HashMap::new(), octets: 0 }
    }

    /// Buffers a copy of the packet, unless a limit is reached. Either way the entry expires after
    /// [`BufferLimits::keep`].
    pub(crate) fn push(&mut self, entry: u32, packet: &[u8], now: Instant) -> Pushed {
        let own = self.own.get(&entry).map_or(usize::MAX, |own| *own);
        let queue = self.queues.entry(entry).or_insert_with(|| BufferQueue::new(now));
        let mut pushed = Pushed { is_stored: false, evicted: 0 };
        if queue.packets.len() >= self.limits.packets_per_session.min(own) {
            return pushed;
        }
        let class = if queue.packets.is_empty() { 0 } else { class(queue.octets + packet.len()) };
        while self.octets + packet.len() > self.limits.octets {
            if !self.evict_above(class) {
                return pushed;
            }
            pushed.evicted += 1;
        }
        let queue = self.queues.entry(entry).or_insert_with(|| BufferQueue::new(now));
        queue.packets.push_back(packet.into());
        queue.octets += packet.len();
        self.octets += packet.len();
        self.classify(entry);
        Pushed { is_stored: true, ..pushed }
    }

    /// Drops the last packet of one of the longest queues, if its class is above `class`.
    fn evict_above(&mut self, class: usize) -> bool {
        let longest = self.long[class + 1..].iter().rev().find_map(|entries| entries.last().copied());
        let Some(entry) = longest else { return false };
        let Some(queue) = self.queues.get_mut(&entry) else { return false };
        let octets = queue.packets.pop_back().map_or(0, |packet| packet.len());
        queue.octets -= octets;
        self.octets -= octets;
        self.classify(entry);
        true
    }

    /// Enters a queue into the list of its size class.
    fn classify(&mut self, entry: u32) {
        let Some(queue) = self.queues.get_mut(&entry) else { return };
        let class = (queue.packets.len() > 1).then(|| class(queue.octets));
        if class == queue.slot.map(|slot| slot.class) {
            return;
        }
        let slot = class.map(|class| Slot { class, index: self.long[class].len() });
        let before = std::mem::replace(&mut queue.slot, slot);
        if let Some(class) = class {
            self.long[class].push(entry);
        }
        self.unlist(before);
    }

    /// Removes the entry of a queue from the lists.
    fn unlist(&mut self, slot: Option<Slot>) {
        let Some(Slot { class, index }) = slot else { return };
        self.long[class].swap_remove(index);
        if let Some(moved) = self.long[class].get(index).and_then(|entry| self.queues.get_mut(entry)) {
            moved.slot = Some(Slot { class, index });
        }
    }

    /// Sets the packet limit of an entry, within the common limit. `None` = the common limit.
    pub(crate) fn limit(&mut self, entry: u32, packets: Option<usize>) {
        match packets {
            Some(packets) => drop(self.own.insert(entry, packets)),
            None => drop(self.own.remove(&entry)),
        }
    }

    /// Removes the packets of an entry and returns them in arrival order.
    pub(crate) fn take(&mut self, entry: u32) -> VecDeque<Box<[u8]>> {
        let Some(queue) = self.queues.remove(&entry) else { return VecDeque::new() };
        self.octets -= queue.octets;
        self.unlist(queue.slot);
        queue.packets
    }

    /// Removes the packets for which `keep` returns false. The others stay in their order.
    pub(crate) fn retain(&mut self, entry: u32, mut keep: impl FnMut(&[u8]) -> bool) {
        let Some(queue) = self.queues.get_mut(&entry) else { return };
        queue.packets.retain(|packet| keep(packet));
        let octets = queue.packets.iter().map(|packet| packet.len()).sum();
        self.octets -= queue.octets - octets;
        queue.octets = octets;
        match queue.packets.is_empty() {
            true => drop(self.take(entry)),
            false => self.classify(entry),
        }
    }

    /// Drops the queues that are too old. Calls `expired` with each entry and its number of dropped
    /// packets.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(u32, usize)) {
        let is_old = |queue: &BufferQueue| now.since(queue.since) >= self.limits.keep;
        let old: Vec<u32> = self.queues.iter().filter(|(_, queue)| is_old(queue)).map(|(entry, _)| *entry).collect();
        for entry in old {
            expired(entry, self.take(entry).len());
        }
    }

    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

impl BufferQueue {
    fn new(since: Instant) -> Self {
        BufferQueue { since, packets: VecDeque::new(), octets: 0, slot: None }
    }
}

/// Returns the size class of a queue.
fn class(octets: usize) -> usize {
    octets.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_stored(buffers: &mut Buffers, entry: u32, packet: &[u8], now: u64) -> bool {
        buffers.push(entry, packet, Instant(now)) == Pushed { is_stored: true, evicted: 0 }
    }

    #[test]
    fn both_limits_hold_and_order_is_kept() {
        let limits = BufferLimits { packets_per_session: 2, octets: 10, keep: Duration::from_secs(1) };
        let mut buffers = Buffers::new(limits);
        assert!(is_stored(&mut buffers, 1, &[1; 3], 0) && is_stored(&mut buffers, 1, &[2; 3], 0));
        assert!(!is_stored(&mut buffers, 1, &[3; 3], 0), "the session's limit");
        assert!(is_stored(&mut buffers, 2, &[4; 4], 500_000));
        assert!(!is_stored(&mut buffers, 2, &[5; 1], 0), "the limit of all");
        let firsts: Vec<u8> = buffers.take(1).iter().map(|p| p[0]).collect();
        assert_eq!((firsts, buffers.octets()), (vec![1, 2], 4));
        let mut lost = vec![];
        buffers.expire(Instant(1_400_000), |entry, packets| lost.push((entry, packets)));
        assert_eq!(lost, vec![]);
        buffers.expire(Instant(1_500_000), |entry, packets| lost.push((entry, packets)));
        assert_eq!((lost, buffers.octets()), (vec![(2, 1)], 0));
    }

    #[test]
    fn first_packets_find_room_in_full_buffers() {
        let limits = BufferLimits { packets_per_session: 64, octets: 64_000, keep: Duration::from_secs(1) };
        let mut buffers = Buffers::new(limits);
        // One session fills the buffers.
        assert!((0..64).all(|n| is_stored(&mut buffers, 0, &[n; 1000], 0)));
        let evicting = Pushed { is_stored: true, evicted: 1 };
        assert!((1..64).all(|entry| buffers.push(entry, &[9; 1000], Instant(0)) == evicting));
        assert_eq!(buffers.octets(), 64_000);
        // Each has one: no session gives up its only packet.
        let refused = Pushed { is_stored: false, evicted: 0 };
        assert!((0..65).all(|entry| buffers.push(entry, &[8; 1000], Instant(0)) == refused));
        let first: Vec<u8> = buffers.take(0).iter().map(|packet| packet[0]).collect();
        assert_eq!(first, vec![0], "the first one stays");
        let mut lost = vec![];
        buffers.expire(Instant(1_000_000), |entry, packets| lost.push((entry, packets)));
        lost.sort_unstable();
        assert_eq!((lost.len(), lost[0], lost[63]), (64, (1, 1), (64, 0)), "one found no room");
        assert!(buffers.queues.is_empty() && buffers.long.iter().all(Vec::is_empty));
    }

    #[test]
    fn longest_queue_gives_way() {
        let limits = BufferLimits { packets_per_session: 64, octets: 10_000, keep: Duration::from_secs(1) };
        let mut buffers = Buffers::new(limits);
        let lengths = |buffers: &Buffers| [0, 1, 2].map(|entry| buffers.queues[&entry].packets.len());
        for (entry, packets) in [(0, 10), (1, 30), (2, 60)] {
            assert!((0..packets).all(|_| is_stored(&mut buffers, entry, &[0; 100], 0)));
        }
        assert_eq!(buffers.push(0, &[0; 150], Instant(0)), Pushed { is_stored: true, evicted: 2 });
        assert_eq!(lengths(&buffers), [11, 30, 58]);
        assert!(!buffers.push(2, &[0; 100], Instant(0)).is_stored, "it has the most");
        assert!(!buffers.push(1, &[0; 1200], Instant(0)).is_stored, "it would have the most");
        buffers.retain(2, |_| false);
        assert_eq!((buffers.octets(), buffers.queues.len()), (4_150, 2));
        buffers.retain(1, |packet| packet.len() > 100);
        assert_eq!((buffers.octets(), buffers.queues.len()), (1_150, 1));
        assert_eq!(buffers.take(0).len(), 11);
        assert!(buffers.octets() == 0 && buffers.long.iter().all(Vec::is_empty));
    }
}
