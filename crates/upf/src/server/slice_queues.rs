//! Request queues of the N4 thread, one for each slice.
//!
//! Requests for the users of one slice do not wait behind those for another. A queue is FIFO, and
//! the queues are served round robin; requests that concern no session come first. Queues are
//! bounded. A request that finds its queue full is dropped, and the control plane retransmits it.

use crate::machine::Upf;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of requests in a queue: some tenths of a second of work. That is less than the
/// retransmission time of a control plane.
const LANE: usize = 4096;
/// Maximum size of the requests in a queue, in bytes.
const LANE_OCTETS: usize = 16 << 20;

/// A queued datagram and its source.
type QueuedDatagram = (SocketAddr, Vec<u8>);

/// The FIFO queue of one slice.
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

/// The queues: the first for requests that concern no session, then one for each slice.
#[derive(Debug, Default)]
pub(crate) struct SliceQueues {
    lanes: Vec<Lane>,
    /// Index of the slice that was served last.
    next: usize,
    waiting: usize,
}

impl SliceQueues {
    /// Queues a datagram. Returns false if its queue is full.
    pub(crate) fn push(&mut self, upf: &Upf, from: SocketAddr, datagram: &[u8]) -> bool {
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

    /// Removes the next datagram, or returns `None` if all queues are empty.
    pub(crate) fn pop(&mut self) -> Option<QueuedDatagram> {
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

    /// Returns true if all queues are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}
