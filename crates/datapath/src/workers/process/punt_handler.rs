//! Punt handler: classifies the punted packets of a worker process in the UPF process.

use super::punt_channel::PuntChannel;
use crate::drivers::udp::{WorkerSlowPath, send};
use crate::engine::batch::{Batch, PuntedPacket, finish};
use crate::engine::classifier::Classifier;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::datagram::Datagram;
use crate::engine::event::{Event, EventSink};
use crate::engine::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::engine::shared_tables::SharedTables;
use crate::engine::worker_load::WorkerCounters;
use crate::sys::BATCH;
use crate::sys::clock::Clock;
use crate::sys::poll::{Poller, STOP};
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use vireo_types::Instant;

/// Punt handler of one worker.
pub(crate) struct PuntHandler {
    pub(crate) channel: Arc<PuntChannel>,
    pub(crate) tables: SharedTables,
    pub(crate) counters: WorkerCounters,
    pub(crate) sockets: Arc<[Socket]>,
    /// N3 addresses of the worker, one of each family. `None` = the first.
    pub(crate) own: [Option<IpAddr>; 2],
    pub(crate) tun: Tun,
    pub(crate) events: EventSink,
    pub(crate) clock: Clock,
    /// Number of the worker.
    pub(crate) number: usize,
}

impl PuntHandler {
    /// Returns a poller for the channel and the stop signal.
    pub(crate) fn poller(&self, stop: BorrowedFd<'_>) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(stop, STOP)?;
        poller.add(self.channel.bell().as_fd(), 0)?;
        Ok(poller)
    }

    /// Runs until the stop signal.
    pub(crate) fn run(&self, poller: &Poller) -> io::Result<()> {
        let mut buffers: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![]).collect();
        let mut stats = Stats::default();
        loop {
            let mut stop = false;
            poller.wait(None, |token| stop |= token == STOP)?;
            if stop {
                return Ok(());
            }
            self.channel.bell().clear();
            let Some((count, pending)) = self.channel.take_posted() else { continue };
            let packets = buffers.iter_mut().take(count).enumerate();
            let packets: Vec<PuntedPacket> =
                packets.map(|(n, buffer)| self.channel.take(n, HEADROOM, buffer)).collect();
            let (handler, now, stats) = (self, self.clock.now(), &mut stats);
            let mut batch = PuntedBatch { handler, packets: &packets, buffers: &mut buffers, now, stats };
            self.tables.read(|tables| finish(tables, &mut batch, 0, pending));
            self.channel.done();
            self.counters.flush(Some(self.number), stats);
        }
    }

    fn slow_path(&self, local: Option<IpAddr>) -> WorkerSlowPath<'_> {
        let own = local.and_then(|local| self.sockets.iter().find(|socket| socket.local == local));
        WorkerSlowPath { own, sockets: &self.sockets, events: &self.events }
    }
}

/// Batch of punted packets.
struct PuntedBatch<'a> {
    handler: &'a PuntHandler,
    packets: &'a [PuntedPacket],
    /// Each packet follows the free room for its tunnel header.
    buffers: &'a mut [Vec<u8>],
    now: Instant,
    stats: &'a mut Stats,
}

impl Batch for PuntedBatch<'_> {
    fn count(&self) -> usize {
        self.packets.len()
    }

    fn decide(&mut self, by: &impl Classifier, first: usize) -> usize {
        let PuntedBatch { handler, packets, buffers, now, stats } = self;
        for (n, (packet, buffer)) in packets.iter().zip(buffers.iter_mut()).enumerate().skip(first) {
            match *packet {
                PuntedPacket::Truncated => stats.drop(DropReason::Malformed),
                PuntedPacket::Uplink(from, local) => {
                    let datagram = Datagram { from, local, octets: &buffer[HEADROOM..] };
                    match pipeline::uplink(by, datagram, *now, stats, &mut handler.slow_path(Some(local))) {
                        PacketAction::Send(packet) => match handler.tun.write(packet) {
                            Ok(()) => stats.uplink.add(packet.len()),
                            Err(_) => stats.drop(DropReason::N6Send),
                        },
                        PacketAction::Done => {}
                        PacketAction::Punt => return n,
                    }
                }
                PuntedPacket::Downlink => {
                    let end = buffer.len();
                    match pipeline::downlink(by, buffer, end, *now, stats, &mut handler.slow_path(None)) {
                        PacketAction::Send(out) => {
                            match send(&handler.sockets, handler.own, out.target.socket(), &buffer[out.start..out.end])
                            {
                                true => stats.downlink.add(out.octets),
                                false => stats.drop(DropReason::N3Send),
                            }
                        }
                        PacketAction::Done => {}
                        PacketAction::Punt => return n,
                    }
                }
            }
        }
        self.packets.len()
    }

    fn notify(&mut self, event: Event) {
        self.handler.slow_path(None).event(event);
    }
}
