//! Who decides, in the UPF's process, on what a worker's process does not decide alone.

use super::{Came, Desk};
use crate::counters::{DropReason, Stats};
use crate::fast::{Batch, Decide, finish};
use crate::pipeline::{self, HEADROOM, Said, Unusual};
use crate::sockets::{Clock, EventSink, Rare, STOP, View, send};
use crate::sys::poll::Poller;
use crate::sys::tun::Tun;
use crate::sys::udp::{BATCH, Socket};
use crate::verdict::Event;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use vireo_types::Instant;

/// The clerk of one worker.
pub(crate) struct Clerk {
    pub(crate) desk: Arc<Desk>,
    pub(crate) view: View,
    pub(crate) sockets: Arc<[Socket]>,
    /// The worker's addresses on N3, one of each family; none = the first.
    pub(crate) own: [Option<IpAddr>; 2],
    pub(crate) tun: Tun,
    pub(crate) events: EventSink,
    pub(crate) clock: Clock,
    /// Of the worker.
    pub(crate) number: usize,
}

impl Clerk {
    /// What it waits for, and its stop.
    pub(crate) fn poller(&self, stop: BorrowedFd<'_>) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(stop, STOP)?;
        poller.add(self.desk.bell().as_fd(), 0)?;
        Ok(poller)
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(&self, poller: &Poller) -> io::Result<()> {
        let mut buffers: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![]).collect();
        let mut stats = Stats::default();
        loop {
            let mut stop = false;
            poller.wait(None, |token| stop |= token == STOP)?;
            if stop {
                return Ok(());
            }
            self.desk.bell().clear();
            let Some((count, owed)) = self.desk.posted() else { continue };
            let came = buffers.iter_mut().take(count).enumerate();
            let came: Vec<Came> = came.map(|(n, buffer)| self.desk.take(n, HEADROOM, buffer)).collect();
            let (clerk, now, stats) = (self, self.clock.now(), &mut stats);
            let mut handed = Handed { clerk, came: &came, buffers: &mut buffers, now, stats };
            self.view.look(|tables| finish(tables, &mut handed, 0, owed));
            self.desk.done();
            self.view.flush(Some(self.number), stats);
        }
    }

    fn rare(&self, local: Option<IpAddr>) -> Rare<'_> {
        let own = local.and_then(|local| self.sockets.iter().find(|socket| socket.local == local));
        Rare { own, sockets: &self.sockets, events: &self.events }
    }
}

/// What lay on the desk.
struct Handed<'a> {
    clerk: &'a Clerk,
    came: &'a [Came],
    /// Each packet behind the room for its tunnel's header.
    buffers: &'a mut [Vec<u8>],
    now: Instant,
    stats: &'a mut Stats,
}

impl Batch for Handed<'_> {
    fn count(&self) -> usize {
        self.came.len()
    }

    fn decide(&mut self, by: &impl Decide, from: usize) -> usize {
        let Handed { clerk, came, buffers, now, stats } = self;
        for (n, (came, buffer)) in came.iter().zip(buffers.iter_mut()).enumerate().skip(from) {
            match *came {
                Came::Cut => stats.drop(DropReason::Malformed),
                Came::Uplink(peer, local) => {
                    let (datagram, mut rare) = (&buffer[HEADROOM..], clerk.rare(Some(local)));
                    match pipeline::uplink(by, peer, local, datagram, *now, stats, &mut rare) {
                        Said::Leaves(packet) => match clerk.tun.write(packet) {
                            Ok(()) => stats.uplink.add(packet.len()),
                            Err(_) => stats.drop(DropReason::N6Send),
                        },
                        Said::Done => {}
                        Said::Ask => return n,
                    }
                }
                Came::Downlink => {
                    let end = buffer.len();
                    match pipeline::downlink(by, buffer, end, *now, stats, &mut clerk.rare(None)) {
                        Said::Leaves(out) => {
                            match send(&clerk.sockets, clerk.own, out.toward.socket(), &buffer[out.start..out.end]) {
                                true => stats.downlink.add(out.octets),
                                false => stats.drop(DropReason::N3Send),
                            }
                        }
                        Said::Done => {}
                        Said::Ask => return n,
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
