//! Batches of datagrams from N3 and of packets from N6.

use super::slow_path::WorkerSlowPath;
use super::sockets::position;
use crate::engine::batch::{Batch, PuntBatch, PuntSink, PuntedPacket};
use crate::engine::classifier::Classifier;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::datagram::Datagram;
use crate::engine::event::Event;
use crate::engine::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::sys::tun::Tun;
use crate::sys::udp::{Receiver, Sender};
use std::net::IpAddr;
use vireo_types::Instant;

/// Batch of datagrams from N3.
pub(super) struct Uplink<'a, 'r> {
    pub(super) receiver: &'r Receiver,
    pub(super) local: IpAddr,
    /// Packets to be sent.
    pub(super) forward: &'a mut [Option<&'r [u8]>],
    pub(super) tun: &'a Tun,
    pub(super) output: WorkerSlowPath<'a>,
    pub(super) now: Instant,
    pub(super) stats: &'a mut Stats,
}

impl Uplink<'_, '_> {
    /// Sends the packets to be forwarded.
    pub(super) fn send(&mut self) {
        for packet in self.forward.iter_mut().filter_map(Option::take) {
            match self.tun.write(packet) {
                Ok(()) => self.stats.uplink.add(packet.len()),
                Err(_) => self.stats.drop(DropReason::N6Send),
            }
        }
    }
}

impl PuntBatch for Uplink<'_, '_> {
    fn punt(&mut self, from: usize, channel: &impl PuntSink) {
        self.send();
        for n in from..self.forward.len() {
            match self.receiver.datagram(n) {
                (from_peer, Some(datagram)) => {
                    channel.put(n - from, PuntedPacket::Uplink(from_peer, self.local), datagram)
                }
                (_, None) => channel.put(n - from, PuntedPacket::Truncated, &[]),
            }
        }
    }
}

impl Batch for Uplink<'_, '_> {
    fn count(&self) -> usize {
        self.forward.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let Uplink { receiver, local, forward, output, now, stats, .. } = self;
        // Entries lie in memory at random. Prefetching loads them while earlier packets are
        // classified.
        for n in from..forward.len() {
            if let (_, Some(datagram)) = receiver.datagram(n) {
                by.arrays().prefetch_datagram(datagram);
            }
        }
        for (n, forward) in forward.iter_mut().enumerate().skip(from) {
            match receiver.datagram(n) {
                (from, Some(octets)) => {
                    match pipeline::uplink(by, Datagram { from, local: *local, octets }, *now, stats, output) {
                        PacketAction::Send(packet) => *forward = Some(packet),
                        PacketAction::Done => {}
                        PacketAction::Punt => return n,
                    }
                }
                (_, None) => stats.drop(DropReason::Malformed),
            }
            if by.ends() {
                return n + 1;
            }
        }
        forward.len()
    }

    fn notify(&mut self, event: Event) {
        self.output.event(event);
    }
}

/// Batch of packets from N6, each in a slot of the buffer.
pub(super) struct Downlink<'a> {
    pub(super) buffer: &'a mut [u8],
    pub(super) slot: usize,
    pub(super) ends: &'a [usize],
    pub(super) senders: &'a mut [Sender],
    pub(super) output: WorkerSlowPath<'a>,
    pub(super) now: Instant,
    pub(super) stats: &'a mut Stats,
}

impl Batch for Downlink<'_> {
    fn count(&self) -> usize {
        self.ends.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let done = self.queue(by, from);
        // Datagrams of a later change must follow these.
        for (sender, socket) in self.senders.iter_mut().zip(self.output.sockets) {
            let refused = sender.flush(socket, self.buffer, |octets| self.stats.downlink.add(octets));
            self.stats.drops[DropReason::N3Send as usize] += refused;
        }
        done
    }

    fn notify(&mut self, event: Event) {
        self.output.event(event);
    }
}

impl PuntBatch for Downlink<'_> {
    fn punt(&mut self, from: usize, channel: &impl PuntSink) {
        let packets = self.buffer.chunks_exact(self.slot).zip(self.ends).skip(from);
        packets.enumerate().for_each(|(n, (slot, end))| channel.put(n, PuntedPacket::Downlink, &slot[HEADROOM..*end]));
    }
}

impl Downlink<'_> {
    fn queue(&mut self, by: &impl Classifier, from: usize) -> usize {
        let Downlink { buffer, slot, ends, senders, output, now, stats } = self;
        let packets = || buffer.chunks_exact(*slot).zip(*ends).skip(from);
        packets().for_each(|(slot, end)| by.arrays().prefetch_address_of(&slot[HEADROOM..*end]));
        let cold = |packet: &(&[u8], &usize)| !by.arrays().prefetch_entry_of(&packet.0[HEADROOM..*packet.1]);
        packets().filter(cold).for_each(|(slot, end)| by.arrays().prefetch_cold_of(&slot[HEADROOM..*end]));
        for (n, end) in ends.iter().enumerate().skip(from) {
            let base = n * *slot;
            match pipeline::downlink(by, &mut buffer[base..base + *slot], *end, *now, stats, output) {
                PacketAction::Send(out) => {
                    let to = out.target.socket();
                    match position(output.sockets, to) {
                        Some(n) => senders[n].queue(to, base + out.start, base + out.end, out.octets),
                        None => stats.drop(DropReason::N3Send),
                    }
                }
                PacketAction::Done => {}
                PacketAction::Punt => return n,
            }
            if by.ends() {
                return n + 1;
            }
        }
        ends.len()
    }
}
