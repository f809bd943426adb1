//! Turns of the N4 thread: what control planes ask for the users of one slice does not wait behind all that they ask for
//! those of another. Requests wait in a lane for each slice, in their order, and the lanes take turns; what is of no
//! session goes first. A lane is bounded: what a flooded one has no room for is lost as if on the network, and comes again.

use super::state::Upf;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Requests that wait for one slice at the most: some tenths of a second of work, less than a control plane waits before
/// it repeats a request.
const LANE: usize = 4096;
/// And their octets.
const LANE_OCTETS: usize = 16 << 20;

/// A datagram that waits, and where it came from.
type QueuedDatagram = (SocketAddr, Vec<u8>);

/// Requests that wait, in their order.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<QueuedDatagram>,
    octets: usize,
}

impl Lane {
    fn pop(&mut self) -> Option<QueuedDatagram> {
        let first = self.waiting.pop_front()?;
        self.octets -= first.1.len();
        Some(first)
    }
}

/// The lanes: that of no session, and one for each slice.
#[derive(Debug, Default)]
pub(super) struct SliceQueues {
    lanes: Vec<Lane>,
    /// Of the slices, whose turn it is.
    next: usize,
    waiting: usize,
}

impl SliceQueues {
    /// Has a datagram wait; `false` if there is no room for it.
    pub(super) fn push(&mut self, upf: &Upf, from: SocketAddr, datagram: &[u8]) -> bool {
        let lane = upf.slice_of(datagram).map_or(0, |slice| slice + 1);
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        let lane = &mut self.lanes[lane];
        let room = lane.waiting.len() < LANE && lane.octets + datagram.len() <= LANE_OCTETS;
        if room {
            lane.waiting.push_back((from, datagram.to_vec()));
            lane.octets += datagram.len();
            self.waiting += 1;
        }
        room
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<QueuedDatagram> {
        let (first, slices) = self.lanes.split_first_mut()?;
        let mut found = first.pop();
        for _ in 0..slices.len() {
            if found.is_some() {
                break;
            }
            self.next = (self.next + 1) % slices.len();
            found = slices[self.next].pop();
        }
        self.waiting -= usize::from(found.is_some());
        found
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}
