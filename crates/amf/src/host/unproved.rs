//! Waiting events of UEs that RAN nodes without a connection of the UE have caused.
//!
//! Any RAN node can name a UE: by its AMF-UE-NGAP-ID, or by its S-TMSI in a first message. Such
//! events wait in the mailbox of the UE until a step verifies them. One RAN node holds a small part
//! of the mailbox, so that a flood drops neither the first message of the UE by another RAN node
//! nor the UE's messages on its connection. The table is plain data.

use super::origin::Origin;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Maximum number of waiting unproved events of a UE: of one RAN node, of one peer address, and in
/// all. The mailbox has room for 64 events.
const MAX_PER_NODE: usize = 4;
const MAX_PER_ADDRESS: usize = 16;
const MAX_IN_ALL: usize = 48;
/// Number of tracked UEs at which those without waiting events are removed.
const SWEEP_AT: usize = 1024;

/// Unproved events of one UE.
#[derive(Debug, Default)]
struct Events {
    /// Number of events that were posted to the UE while it was tracked.
    posted: u64,
    /// Position among these and origin of each unproved event, the oldest first.
    unproved: Vec<(u64, Origin)>,
}

/// Unproved events of the UEs that have waiting events. `U` identifies a UE.
#[derive(Debug)]
pub(super) struct UnprovedEvents<U> {
    ues: FxHashMap<U, Events>,
    /// Number of tracked UEs at the next sweep.
    sweep_at: usize,
}

impl<U> Default for UnprovedEvents<U> {
    fn default() -> Self {
        UnprovedEvents { ues: FxHashMap::default(), sweep_at: SWEEP_AT }
    }
}

impl<U: Copy + Eq + Hash> UnprovedEvents<U> {
    /// Returns true if an unproved event of a RAN node may be posted to a UE, and counts it then.
    /// `waiting` returns the number of events that wait for a UE.
    pub(super) fn admit(&mut self, ue: U, origin: Origin, waiting: impl Fn(U) -> u64) -> bool {
        let count = waiting(ue);
        if count == 0 {
            // The usual case: the event is processed at once.
            return true;
        }
        if self.ues.len() >= self.sweep_at {
            self.ues.retain(|ue, _| waiting(*ue) > 0);
            self.sweep_at = (self.ues.len() * 2).max(SWEEP_AT);
        }
        let Events { posted, unproved } = self.ues.entry(ue).or_default();
        // A mailbox is a queue: the last events wait.
        let processed = posted.saturating_sub(count);
        unproved.retain(|(position, _)| *position > processed);
        let of = |is_same: &dyn Fn(&Origin) -> bool| unproved.iter().filter(|(_, other)| is_same(other)).count();
        let admits = count < MAX_IN_ALL as u64
            && of(&|other| other.node == origin.node) < MAX_PER_NODE
            && of(&|other| other.address == origin.address) < MAX_PER_ADDRESS;
        if admits {
            unproved.push((*posted + 1, origin));
        }
        admits
    }

    /// Records that an event was posted to a UE.
    pub(super) fn on_posted(&mut self, ue: U) {
        if !self.ues.is_empty()
            && let Some(events) = self.ues.get_mut(&ue)
        {
            events.posted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use vireo_types::AssocId;

    fn origin(node: u32, address: u8) -> Origin {
        Origin::new(AssocId(node), Some(Ipv4Addr::new(10, 0, 0, address).into()))
    }

    /// A UE with events that wait.
    struct Ue {
        events: UnprovedEvents<u32>,
        waiting: u64,
    }

    impl Ue {
        /// Posts an event of another kind.
        fn post(&mut self) {
            self.events.on_posted(1);
            self.waiting += 1;
        }

        /// Posts unproved events. Returns the number of those that are admitted.
        fn flood(&mut self, origin: Origin, count: usize) -> usize {
            let mut admitted = 0;
            for _ in 0..count {
                if self.events.admit(1, origin, |_| self.waiting) {
                    self.post();
                    admitted += 1;
                }
            }
            admitted
        }
    }

    #[test]
    fn node_holds_few_events_of_ue() {
        let mut ue = Ue { events: UnprovedEvents::default(), waiting: 1 };
        assert_eq!(ue.flood(origin(1, 1), 100), MAX_PER_NODE);
        assert_eq!(ue.flood(origin(2, 2), 1), 1, "the UE itself, at another RAN node");
        // Processed in order: the first event, and two of the flood.
        ue.waiting -= 3;
        assert_eq!(ue.flood(origin(1, 1), 100), 2);
        ue.waiting = 0;
        assert_eq!(ue.flood(origin(1, 1), 1), 1);
        // An event that found no other waiting does not count.
        (0..10).for_each(|_| ue.post());
        assert_eq!(ue.flood(origin(1, 1), 100), MAX_PER_NODE);
    }

    #[test]
    fn address_holds_part_of_mailbox() {
        let mut ue = Ue { events: UnprovedEvents::default(), waiting: 1 };
        let admitted: usize = (1..100).map(|node| ue.flood(origin(node, 1), 100)).sum();
        assert_eq!(admitted, MAX_PER_ADDRESS);
        assert_eq!(ue.flood(origin(200, 2), 1), 1);
        let admitted: usize = (300..400).map(|node| ue.flood(origin(node, node as u8), 100)).sum();
        assert_eq!((admitted, ue.waiting), (MAX_IN_ALL - MAX_PER_ADDRESS - 2, MAX_IN_ALL as u64));
    }

    #[test]
    fn ues_without_waiting_events_are_removed() {
        let mut events: UnprovedEvents<u32> = UnprovedEvents::default();
        let waits = |ue: u32| u64::from(ue >= 10_000);
        (0..2000).for_each(|ue| assert!(events.admit(ue, origin(1, 1), waits)));
        assert!(events.ues.is_empty());
        // These wait until the next one.
        for ue in 10_000..20_000 {
            assert!(events.admit(ue, origin(1, 1), |other| u64::from(other == ue)));
        }
        assert!(events.ues.len() <= SWEEP_AT, "{}", events.ues.len());
    }
}
