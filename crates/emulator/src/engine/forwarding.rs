//! Packets of UEs that are moving: the source forwards them, and the target delivers them in order.
//!
//! A packet that arrives at the source after the UE has left goes by the tunnel of HANDOVER
//! COMMAND, until the End Marker of the UPF passes through it. The target delivers forwarded
//! packets first, and packets of the new path after the End Marker (TS 38.300 9.2.3.2.3, TS 36.300
//! 10.1.2.3).

use super::n3::SECOND_HALF;
use super::slot::Arrival;
use super::timers::Kind;
use super::worker::Worker;
use crate::ran::{ForwardingEnd, forwarded_beside};
use vireo_types::Teid;

/// Time for which a target waits for forwarded packets.
const WAITS_US: u64 = 100_000;
/// Maximum number of packets of the new path that wait.
const PACKETS: usize = 256;

impl Worker<'_> {
    /// Forwards packets of a UE that leaves its node.
    pub(super) fn forward(&mut self, owner: u32, ends: &[ForwardingEnd]) {
        if self.options.has_traffic() {
            let n3 = self.links[usize::from(self.slots[owner as usize].link)].node.n3();
            ends.iter().for_each(|end| self.n3.forwarding.insert(n3, *end, self.now_us));
        }
    }

    /// Has the target of the UE's handover wait for the forwarded packets of a session. The UE is
    /// at the target.
    pub(super) fn await_forwarded(&mut self, owner: u32, ends: &[ForwardingEnd]) {
        let slot = &mut self.slots[owner as usize];
        let link = &self.links[usize::from(slot.link)];
        let tunnels = slot.ran.map_or(&[][..], |ran| link.node.tunnels(ran));
        // Moving UEs have one session.
        let (true, [tunnel]) = (self.options.has_traffic() && !ends.is_empty(), tunnels) else { return };
        let number = slot.sequence;
        slot.moving.arrival = Some(Box::new(Arrival { teid: tunnel.downlink, packets: Vec::new(), number }));
        self.timers.set(self.now_us + WAITS_US, owner, number, Kind::Forwarded);
    }

    /// Forwards a packet that has arrived at a node that the UE has left. Returns false if that
    /// node does not forward it.
    pub(super) fn forward_packet(&mut self, teid: Teid, range: &std::ops::Range<usize>) -> bool {
        let Some((n3, end)) = self.n3.forwarding.by_teid.get(&teid).copied() else { return false };
        let is_sent = self.n3.forward(n3, &end, range.clone());
        self.n3.counts.moves.forwarded += u64::from(is_sent);
        is_sent
    }

    /// Stores a packet of the new path while forwarded packets may arrive. Returns true if it
    /// waits.
    pub(super) fn waits_for_forwarded(&mut self, owner: u32, teid: Teid, range: &std::ops::Range<usize>) -> bool {
        let Some(arrival) = &mut self.slots[owner as usize].moving.arrival else { return false };
        if arrival.teid != teid || arrival.packets.len() >= PACKETS {
            return false;
        }
        arrival.packets.push(self.n3.buffer[range.clone()].to_vec());
        true
    }

    /// Handles an End Marker: the source passes it on, and the target delivers the packets of the
    /// new path.
    pub(super) fn on_end_marker(&mut self, teid: Teid) {
        if let Some((n3, end)) = self.n3.forwarding.by_teid.remove(&teid) {
            self.n3.forward_end_marker(n3, &end);
        } else if let Some(beside) = forwarded_beside(teid) {
            let (owner, _) = crate::gnb::downlink_owner(beside);
            let arrival = self.slots.get_mut(owner as usize).map(|slot| &mut slot.moving.arrival);
            if let Some(arrival) = arrival.and_then(|arrival| arrival.take_if(|arrival| arrival.teid == beside)) {
                self.n3.counts.moves.end_markers += 1;
                self.deliver_arrived(*arrival);
            }
        }
    }

    /// Delivers the packets of the new path without an End Marker, which may be lost.
    pub(super) fn on_forwarded_due(&mut self, owner: u32, number: u32) {
        let arrival = &mut self.slots[owner as usize].moving.arrival;
        if let Some(arrival) = arrival.take_if(|arrival| arrival.number == number) {
            self.deliver_arrived(*arrival);
        }
    }

    fn deliver_arrived(&mut self, arrival: Arrival) {
        for packet in arrival.packets {
            // The first half of the buffer may have a packet that was just received.
            let range = SECOND_HALF..SECOND_HALF + packet.len();
            self.n3.buffer[range.clone()].copy_from_slice(&packet);
            self.on_packet(arrival.teid, range);
        }
    }
}
