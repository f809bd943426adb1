//! Batches of packets, and the environment of the workers that classify them.

use crate::engine::classifier::Classifier;
use crate::engine::counters::Stats;
use crate::engine::event::{Event, PendingNotification};
use crate::engine::tables::Tables;
use std::net::{IpAddr, SocketAddr};

/// A batch of packets.
pub(crate) trait Batch {
    /// Returns the number of packets.
    fn count(&self) -> usize;
    /// Classifies packets from the index `from` on and sends their output. Returns the number of
    /// packets classified from the start of the batch. It is less than all if [`Classifier::ends`]
    /// is true or a packet has no verdict.
    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize;
    /// Notifies the control side.
    fn notify(&mut self, event: Event);
}

/// A batch whose remaining packets can be punted to another process.
pub(crate) trait PuntBatch: Batch {
    /// Sends the output of classified packets, and passes the packets from `from` on to `channel`,
    /// numbered from 0.
    fn punt(&mut self, from: usize, channel: &impl PuntSink);
}

/// Environment of a worker: a thread of the process with the tables, or a worker process.
pub(crate) trait WorkerEnv {
    /// Classifies a batch.
    fn decide(&self, batch: &mut impl PuntBatch);
    /// Adds the counts of the worker, after each round.
    fn flush(&self, stats: &mut Stats);
    /// Announces the maximum number of packets that the worker has received and not released.
    fn announce_packets(&self, packets: usize);
}

/// Classifies the rest of a batch by the locked tables.
pub(crate) fn finish(tables: &Tables, batch: &mut impl Batch, done: usize, pending: Option<PendingNotification>) {
    if let Some(pending) = pending {
        tables.notify_pending(pending, &mut |event| batch.notify(event));
    }
    if done < batch.count() {
        batch.decide(tables, done);
    }
}

/// Kind of a punted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntedPacket {
    /// A datagram from N3, with its source and our destination address.
    Uplink(SocketAddr, IpAddr),
    /// A packet from N6.
    Downlink,
    /// A packet that was too long for its receiver.
    Truncated,
}

/// Receiver of punted packets.
pub(crate) trait PuntSink {
    /// Stores packet `n` of the punted ones.
    fn put(&self, n: usize, packet: PuntedPacket, octets: &[u8]);
}
