//! Buffers of downlink packets that wait for their UE (TS 23.501 5.8.3).
//!
//! They are bounded for each session and in total.

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

#[derive(Debug)]
struct BufferQueue {
    since: Instant,
    packets: VecDeque<Box<[u8]>>,
}

/// Buffered packets by downlink entry.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    limits: BufferLimits,
    queues: HashMap<u32, BufferQueue>,
    /// Packet limit of single entries, where it is below the common limit.
    own: HashMap<u32, usize>,
    octets: usize,
}

impl Buffers {
    pub(crate) fn new(limits: BufferLimits) -> Self {
        Buffers { limits, ..Buffers::default() }
    }

    /// Buffers a copy of the packet. Returns false if a limit is reached.
    pub(crate) fn push(&mut self, entry: u32, packet: &[u8], now: Instant) -> bool {
        if self.octets + packet.len() > self.limits.octets {
            return false;
        }
        let queue = self.queues.entry(entry).or_insert_with(|| BufferQueue { since: now, packets: VecDeque::new() });
        let own = self.own.get(&entry).map_or(usize::MAX, |own| *own);
        if queue.packets.len() >= self.limits.packets_per_session.min(own) {
            return false;
        }
        queue.packets.push_back(packet.into());
        self.octets += packet.len();
        true
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
        let packets = self.queues.remove(&entry).map(|queue| queue.packets).unwrap_or_default();
        self.octets -= packets.iter().map(|p| p.len()).sum::<usize>();
        packets
    }

    /// Removes the packets for which `keep` returns false. The others stay in their order.
    pub(crate) fn retain(&mut self, entry: u32, mut keep: impl FnMut(&[u8]) -> bool) {
        let Some(queue) = self.queues.get_mut(&entry) else { return };
        let octets = &mut self.octets;
        queue.packets.retain(|packet| {
            let keep = keep(packet);
            if !keep {
                *octets -= packet.len();
            }
            keep
        });
        if queue.packets.is_empty() {
            self.queues.remove(&entry);
        }
    }

    /// Drops the queues that are too old. Calls `expired` with each entry and its number of dropped
    /// packets.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(u32, usize)) {
        let keep = self.limits.keep;
        let octets = &mut self.octets;
        self.queues.retain(|entry, queue| {
            let keep = now.since(queue.since) < keep;
            if !keep {
                *octets -= queue.packets.iter().map(|p| p.len()).sum::<usize>();
                expired(*entry, queue.packets.len());
            }
            keep
        });
    }

    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_hold_and_order_is_kept() {
        let limits = BufferLimits { packets_per_session: 2, octets: 10, keep: Duration::from_secs(1) };
        let mut buffers = Buffers::new(limits);
        assert!(buffers.push(1, &[1; 3], Instant(0)) && buffers.push(1, &[2; 3], Instant(0)));
        assert!(!buffers.push(1, &[3; 3], Instant(0)), "the session's limit");
        assert!(buffers.push(2, &[4; 4], Instant(500_000)));
        assert!(!buffers.push(2, &[5; 1], Instant(0)), "the limit of all");
        let firsts: Vec<u8> = buffers.take(1).iter().map(|p| p[0]).collect();
        assert_eq!((firsts, buffers.octets()), (vec![1, 2], 4));
        let mut lost = vec![];
        buffers.expire(Instant(1_400_000), |entry, packets| lost.push((entry, packets)));
        assert_eq!(lost, vec![]);
        buffers.expire(Instant(1_500_000), |entry, packets| lost.push((entry, packets)));
        assert_eq!((lost, buffers.octets()), (vec![(2, 1)], 0));
    }
}
