use crate::counters::Volume;
use crate::rate::{Policer, Rate};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use vireo_types::{Instant, SessionAddress, Teid};

/// The far end of a tunnel: the outer header to create (TS 29.244 8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// The TEID the RAN node gave.
    pub teid: Teid,
    /// The RAN node's address.
    pub address: IpAddr,
}

/// Every QoS flow: for [`UplinkRule::flows`].
pub const ALL_FLOWS: u64 = u64::MAX;

/// What holds for the packets that come in by one TEID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UplinkRule {
    /// The session, as its owner knows it (the UPF's SEID).
    pub session: u64,
    /// The addresses the UE may send from.
    pub ue: SessionAddress,
    /// The QoS flows allowed, a bit each; [`ALL_FLOWS`] also lets packets without a flow pass.
    pub flows: u64,
    /// Whether the gate is open (QER).
    pub gate_open: bool,
    /// Forward (FAR action FORW) or drop.
    pub forward: bool,
    /// Maximum bit rate of the IP packets.
    pub mbr: Rate,
}

/// What becomes of a downlink packet (FAR Apply Action, TS 29.244 8.2.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// DROP.
    Drop,
    /// FORW, through [`DownlinkRule::tunnel`].
    Forward,
    /// BUFF.
    Buffer {
        /// NOCP: report the first packet.
        notify: bool,
    },
}

/// What holds for the packets that go to one UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownlinkRule {
    /// The session, as its owner knows it (the UPF's SEID).
    pub session: u64,
    /// The PDR, for reports.
    pub pdr: u16,
    /// The QoS flow to mark packets with; `None` = no PDU Session Container.
    pub qfi: Option<u8>,
    /// Whether the UE is told to use reflective QoS (TS 38.415 5.5.3.4).
    pub rqi: bool,
    /// Whether the gate is open (QER).
    pub gate_open: bool,
    /// Forward, buffer or drop.
    pub action: Action,
    /// The tunnel to the RAN, while there is one.
    pub tunnel: Option<Tunnel>,
    /// Maximum bit rate of the IP packets.
    pub mbr: Rate,
}

/// A rule with the state its packets leave behind. The rule changes under the writer's lock; the state is atomic, so
/// that any number of workers share it under the readers'.
#[derive(Debug)]
pub(crate) struct Record<R> {
    pub(crate) rule: R,
    policer: Policer,
    packets: AtomicU64,
    octets: AtomicU64,
    reported: AtomicU8,
}

/// Downlink data was reported.
pub(crate) const DATA: u8 = 1;
/// An error of the tunnel was reported.
pub(crate) const TUNNEL_ERROR: u8 = 2;

impl<R> Record<R> {
    pub(crate) fn new(rule: R) -> Self {
        Record {
            rule,
            policer: Policer::default(),
            packets: AtomicU64::new(0),
            octets: AtomicU64::new(0),
            reported: AtomicU8::new(0),
        }
    }

    pub(crate) fn conforms(&self, mbr: Rate, octets: usize, now: Instant) -> bool {
        self.policer.allow(mbr, octets, now)
    }

    pub(crate) fn count(&self, octets: usize) {
        self.packets.fetch_add(1, Relaxed);
        self.octets.fetch_add(octets as u64, Relaxed);
    }

    pub(crate) fn volume(&self) -> Volume {
        Volume { packets: self.packets.load(Relaxed), octets: self.octets.load(Relaxed) }
    }

    /// Marks `what` as reported; `false` if it was already.
    pub(crate) fn report_once(&self, what: u8) -> bool {
        self.reported.fetch_or(what, Relaxed) & what == 0
    }

    pub(crate) fn report_again(&self, what: u8) {
        self.reported.fetch_and(!what, Relaxed);
    }
}

/// Records by index, of which there are at most `limit`. Room for all is reserved at the start (the kernel backs it
/// with memory as it is used), so that growing never moves a million records while packets wait.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// How often the index was given out, 1 to 255 and again: never 0, so that no TEID is 0.
    generation: u8,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Slab { slots: Vec::with_capacity(limit), free: VecDeque::new(), limit }
    }

    /// Takes an index, the one that was free longest, with its next generation.
    pub(crate) fn insert(&mut self, value: T) -> Option<(u32, u8)> {
        if let Some(index) = self.free.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.generation = slot.generation.checked_add(1).unwrap_or(1);
            slot.value = Some(value);
            return Some((index, slot.generation));
        }
        if self.slots.len() >= self.limit {
            return None;
        }
        self.slots.push(Slot { generation: 1, value: Some(value) });
        Some((self.slots.len() as u32 - 1, 1))
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.value.take()?;
        self.free.push_back(index);
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// All indexes are below this.
    pub(crate) fn indexes(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_reused_late_and_with_the_next_generation() {
        let mut slab = Slab::new(2);
        assert_eq!((slab.insert('a'), slab.insert('b'), slab.insert('c')), (Some((0, 1)), Some((1, 1)), None));
        slab.remove(1);
        slab.remove(0);
        assert_eq!((slab.remove(0), slab.len()), (None, 0));
        assert_eq!((slab.insert('d'), slab.insert('e')), (Some((1, 2)), Some((0, 2))));
        for _ in 0..300 {
            slab.remove(0);
            assert!(slab.insert('f').is_some_and(|(index, generation)| index == 0 && generation != 0));
        }
    }

    #[test]
    fn records_stay_within_two_cache_lines() {
        assert!(size_of::<Slot<Record<UplinkRule>>>() <= 128, "{}", size_of::<Slot<Record<UplinkRule>>>());
        assert!(size_of::<Slot<Record<DownlinkRule>>>() <= 128, "{}", size_of::<Slot<Record<DownlinkRule>>>());
    }
}
