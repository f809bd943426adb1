//! Worker of the sockets driver: a thread of the UPF process, or a worker process.

use super::{Clock, EventSink, STOP, StatsHandle, position, send};
use crate::counters::{DropReason, Stats};
use crate::fast::{Batch, Classifier, PuntBatch, Reader, WorkerEnv};
use crate::frames::bare::Bare;
use crate::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::processes::{PuntChannel, PuntedPacket};
use crate::sys::poll::Poller;
use crate::sys::tun::Tun;
use crate::sys::udp::{BATCH, Receiver, Sender, Socket};
use crate::verdict::Event;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tracing::debug;
use vireo_types::Instant;
use vireo_wire::gtpu;

/// Environment of a worker thread, which locks the tables itself.
pub(crate) struct ThreadEnv {
    pub(crate) view: StatsHandle,
    pub(crate) reader: Reader,
    /// Number among the workers of slices, if any.
    pub(crate) number: Option<usize>,
    /// True if a single worker runs the fast path with non-atomic counters. That worker then waits
    /// while this one classifies.
    pub(crate) beside_one: bool,
}

impl WorkerEnv for ThreadEnv {
    #[inline]
    fn decide(&self, batch: &mut impl PuntBatch) {
        match self.beside_one {
            false => self.reader.decide(batch),
            true => self.reader.decide_alone(batch),
        }
    }

    fn flush(&self, stats: &mut Stats) {
        self.view.flush(self.number, stats);
    }

    #[inline]
    fn hold(&self, _: usize) {}
}

pub(crate) struct Worker {
    pub(crate) sockets: Arc<[Socket]>,
    pub(crate) tun: Tun,
    pub(crate) events: EventSink,
    pub(crate) clock: Clock,
    /// Longest received packet with its headers, in octets.
    pub(crate) slot: usize,
    /// If set, packets are forwarded without lookups.
    pub(crate) bare: Option<Bare>,
}

const TUN: u64 = u64::MAX - 1;

/// Slow-path output of a worker.
pub(crate) struct WorkerSlowPath<'a> {
    /// Socket that received the datagram to be answered.
    pub(crate) own: Option<&'a Socket>,
    pub(crate) sockets: &'a [Socket],
    pub(crate) events: &'a EventSink,
}

impl SlowPath for WorkerSlowPath<'_> {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        // The answer leaves from the address that received the request (TS 29.281 4.4.3.1).
        match self.own.filter(|own| own.local.is_ipv4() == to.is_ipv4()) {
            Some(own) => own.send_to(to, datagram).is_ok(),
            None => send(self.sockets, [None; 2], to, datagram),
        }
    }

    fn event(&mut self, event: Event) -> bool {
        (self.events)(event)
    }
}

impl Worker {
    /// Returns a poller for the sockets, the TUN device and the stop signal.
    pub(crate) fn poller(&self, stop: BorrowedFd<'_>) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(stop, STOP)?;
        poller.add(self.tun.as_fd(), TUN)?;
        for (token, socket) in (0..).zip(self.sockets.iter()) {
            poller.add(socket.as_fd(), token)?;
        }
        Ok(poller)
    }

    /// Runs until the stop signal. The waker stays readable, so that every worker sees it.
    pub(crate) fn run(&self, place: &impl WorkerEnv, poller: &Poller) -> io::Result<()> {
        let mut receiver = Receiver::new(self.slot);
        let mut buffer = vec![0; BATCH * self.slot];
        let mut senders: Vec<Sender> = self.sockets.iter().map(|_| Sender::new()).collect();
        let mut stats = Stats::default();
        let mut ready = Vec::with_capacity(2 + self.sockets.len());
        loop {
            ready.clear();
            poller.wait(None, |token| ready.push(token))?;
            for token in &ready {
                match *token {
                    STOP => return Ok(()),
                    TUN => self.downlink(place, &mut buffer, &mut senders, &mut stats),
                    n => self.uplink(place, &self.sockets[n as usize], &mut receiver, &mut stats),
                }
                place.hold(0);
            }
            place.flush(&mut stats);
        }
    }

    /// Processes one batch from N3 to N6.
    fn uplink(&self, place: &impl WorkerEnv, socket: &Socket, receiver: &mut Receiver, stats: &mut Stats) {
        place.hold(BATCH);
        let count = match receiver.receive(socket) {
            Ok(count) => count,
            Err(error) => return debug!("receiving on {}: {error}", socket.local),
        };
        place.hold(count);
        let mut forward: [Option<&[u8]>; BATCH] = [None; BATCH];
        let rare = WorkerSlowPath { own: Some(socket), sockets: &self.sockets, events: &self.events };
        let (now, local) = (self.clock.now(), socket.local);
        let mut batch = Uplink { receiver, local, forward: &mut forward[..count], tun: &self.tun, rare, now, stats };
        match &self.bare {
            None => place.decide(&mut batch),
            Some(Bare { forward: false, .. }) => batch.stats.drops[DropReason::Action as usize] += count as u64,
            Some(_) => {
                for (n, forward) in batch.forward.iter_mut().enumerate() {
                    *forward = batch.receiver.datagram(n).1.and_then(|datagram| datagram.get(HEADROOM..));
                }
            }
        }
        batch.leave();
    }

    /// Processes one batch from N6 to N3.
    fn downlink(&self, place: &impl WorkerEnv, buffer: &mut [u8], senders: &mut [Sender], stats: &mut Stats) {
        let mut ends = [0; BATCH];
        let mut count = 0;
        place.hold(BATCH);
        for (slot, end) in buffer.chunks_exact_mut(self.slot).zip(&mut ends) {
            match self.tun.read(&mut slot[HEADROOM..]) {
                Ok(length) => *end = HEADROOM + length,
                // The queue is empty or the device is down.
                Err(_) => break,
            }
            count += 1;
        }
        place.hold(count);
        if let Some(bare) = &self.bare {
            return self.bare_downlink(bare, (buffer, &ends[..count]), senders, stats);
        }
        let rare = WorkerSlowPath { own: None, sockets: &self.sockets, events: &self.events };
        let (ends, slot, now) = (&ends[..count], self.slot, self.clock.now());
        place.decide(&mut Downlink { buffer, slot, ends, senders, rare, now, stats });
    }

    /// Forwards a batch with a fixed header for each packet.
    fn bare_downlink(
        &self,
        bare: &Bare,
        (buffer, ends): (&mut [u8], &[usize]),
        senders: &mut [Sender],
        stats: &mut Stats,
    ) {
        let to = SocketAddr::new(bare.tunnel.address, gtpu::PORT);
        let (Some(header), Some(place), true) = (bare.header(), position(&self.sockets, to), bare.forward) else {
            stats.drops[DropReason::Action as usize] += ends.len() as u64;
            return;
        };
        for (n, end) in ends.iter().enumerate() {
            let base = n * self.slot;
            buffer[base..base + HEADROOM].copy_from_slice(&header);
            senders[place].queue(to, base, base + end, end - HEADROOM);
        }
        let refused = senders[place].flush(&self.sockets[place], buffer, &mut stats.downlink);
        stats.drops[DropReason::N3Send as usize] += refused;
    }
}

/// Batch of datagrams from N3.
struct Uplink<'a, 'r> {
    receiver: &'r Receiver,
    local: IpAddr,
    /// Packets to be sent.
    forward: &'a mut [Option<&'r [u8]>],
    tun: &'a Tun,
    rare: WorkerSlowPath<'a>,
    now: Instant,
    stats: &'a mut Stats,
}

impl Uplink<'_, '_> {
    /// Sends the packets to be forwarded.
    fn leave(&mut self) {
        for packet in self.forward.iter_mut().filter_map(Option::take) {
            match self.tun.write(packet) {
                Ok(()) => self.stats.uplink.add(packet.len()),
                Err(_) => self.stats.drop(DropReason::N6Send),
            }
        }
    }
}

impl PuntBatch for Uplink<'_, '_> {
    fn hand_over(&mut self, from: usize, desk: &PuntChannel) {
        self.leave();
        for n in from..self.forward.len() {
            match self.receiver.datagram(n) {
                (from_peer, Some(datagram)) => {
                    desk.put(n - from, PuntedPacket::Uplink(from_peer, self.local), datagram)
                }
                (_, None) => desk.put(n - from, PuntedPacket::Truncated, &[]),
            }
        }
    }
}

impl Batch for Uplink<'_, '_> {
    fn count(&self) -> usize {
        self.forward.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let Uplink { receiver, local, forward, rare, now, stats, .. } = self;
        // Entries lie in memory at random. Prefetching loads them while earlier packets are
        // classified.
        for n in from..forward.len() {
            if let (_, Some(datagram)) = receiver.datagram(n) {
                by.arrays().prefetch_datagram(datagram);
            }
        }
        for (n, forward) in forward.iter_mut().enumerate().skip(from) {
            match receiver.datagram(n) {
                (from, Some(datagram)) => match pipeline::uplink(by, from, *local, datagram, *now, stats, rare) {
                    PacketAction::Send(packet) => *forward = Some(packet),
                    PacketAction::Done => {}
                    PacketAction::Punt => return n,
                },
                (_, None) => stats.drop(DropReason::Malformed),
            }
            if by.ends() {
                return n + 1;
            }
        }
        forward.len()
    }

    fn tell(&mut self, event: Event) {
        self.rare.event(event);
    }
}

/// Batch of packets from N6, each in a slot of the buffer.
struct Downlink<'a> {
    buffer: &'a mut [u8],
    slot: usize,
    ends: &'a [usize],
    senders: &'a mut [Sender],
    rare: WorkerSlowPath<'a>,
    now: Instant,
    stats: &'a mut Stats,
}

impl Batch for Downlink<'_> {
    fn count(&self) -> usize {
        self.ends.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let done = self.queue(by, from);
        // Datagrams of a later change must follow these.
        for (sender, socket) in self.senders.iter_mut().zip(self.rare.sockets) {
            let refused = sender.flush(socket, self.buffer, &mut self.stats.downlink);
            self.stats.drops[DropReason::N3Send as usize] += refused;
        }
        done
    }

    fn tell(&mut self, event: Event) {
        self.rare.event(event);
    }
}

impl PuntBatch for Downlink<'_> {
    fn hand_over(&mut self, from: usize, desk: &PuntChannel) {
        let packets = self.buffer.chunks_exact(self.slot).zip(self.ends).skip(from);
        packets.enumerate().for_each(|(n, (slot, end))| desk.put(n, PuntedPacket::Downlink, &slot[HEADROOM..*end]));
    }
}

impl Downlink<'_> {
    fn queue(&mut self, by: &impl Classifier, from: usize) -> usize {
        let Downlink { buffer, slot, ends, senders, rare, now, stats } = self;
        let packets = || buffer.chunks_exact(*slot).zip(*ends).skip(from);
        packets().for_each(|(slot, end)| by.arrays().prefetch_address_of(&slot[HEADROOM..*end]));
        let cold = |packet: &(&[u8], &usize)| !by.arrays().prefetch_record_of(&packet.0[HEADROOM..*packet.1]);
        packets().filter(cold).for_each(|(slot, end)| by.arrays().prefetch_cold_of(&slot[HEADROOM..*end]));
        for (n, end) in ends.iter().enumerate().skip(from) {
            let base = n * *slot;
            match pipeline::downlink(by, &mut buffer[base..base + *slot], *end, *now, stats, rare) {
                PacketAction::Send(out) => {
                    let to = out.toward.socket();
                    match position(rare.sockets, to) {
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
