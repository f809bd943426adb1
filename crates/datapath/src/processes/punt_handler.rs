//! Punt handler: classifies the punted packets of a worker process in the UPF process.

use super::{PuntChannel, PuntedPacket};
use crate::counters::{DropReason, Stats};
use crate::fast::{Batch, Classifier, finish};
use crate::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::sockets::{Clock, EventSink, STOP, StatsHandle, WorkerSlowPath, send};
use crate::sys::poll::Poller;
use crate::sys::tun::Tun;
use crate::sys::udp::{BATCH, Socket};
use crate::verdict::Event;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use vireo_types::Instant;

/// Punt handler of one worker.
pub(crate) struct PuntHandler {
    pub(crate) channel: Arc<PuntChannel>,
    pub(crate) view: StatsHandle,
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
            let Some((count, owed)) = self.channel.posted() else { continue };
            let came = buffers.iter_mut().take(count).enumerate();
            let came: Vec<PuntedPacket> = came.map(|(n, buffer)| self.channel.take(n, HEADROOM, buffer)).collect();
            let (clerk, now, stats) = (self, self.clock.now(), &mut stats);
            let mut handed = PuntedBatch { clerk, came: &came, buffers: &mut buffers, now, stats };
            self.view.look(|tables| finish(tables, &mut handed, 0, owed));
            self.channel.done();
            self.view.flush(Some(self.number), stats);
        }
    }

    fn rare(&self, local: Option<IpAddr>) -> WorkerSlowPath<'_> {
        let own = local.and_then(|local| self.sockets.iter().find(|socket| socket.local == local));
        WorkerSlowPath { own, sockets: &self.sockets, events: &self.events }
    }
}

/// Batch of punted packets.
struct PuntedBatch<'a> {
    clerk: &'a PuntHandler,
    came: &'a [PuntedPacket],
    /// Each packet follows the free room for its tunnel header.
    buffers: &'a mut [Vec<u8>],
    now: Instant,
    stats: &'a mut Stats,
}

impl Batch for PuntedBatch<'_> {
    fn count(&self) -> usize {
        self.came.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let PuntedBatch { clerk, came, buffers, now, stats } = self;
        for (n, (came, buffer)) in came.iter().zip(buffers.iter_mut()).enumerate().skip(from) {
            match *came {
                PuntedPacket::Truncated => stats.drop(DropReason::Malformed),
                PuntedPacket::Uplink(peer, local) => {
                    let (datagram, mut rare) = (&buffer[HEADROOM..], clerk.rare(Some(local)));
                    match pipeline::uplink(by, peer, local, datagram, *now, stats, &mut rare) {
                        PacketAction::Send(packet) => match clerk.tun.write(packet) {
                            Ok(()) => stats.uplink.add(packet.len()),
                            Err(_) => stats.drop(DropReason::N6Send),
                        },
                        PacketAction::Done => {}
                        PacketAction::Punt => return n,
                    }
                }
                PuntedPacket::Downlink => {
                    let end = buffer.len();
                    match pipeline::downlink(by, buffer, end, *now, stats, &mut clerk.rare(None)) {
                        PacketAction::Send(out) => {
                            match send(&clerk.sockets, clerk.own, out.toward.socket(), &buffer[out.start..out.end]) {
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
        self.came.len()
    }

    fn tell(&mut self, event: Event) {
        self.clerk.rare(None).event(event);
    }
}
