//! UDP driver: sockets on N3 and a TUN device on N6.
//!
//! Its worker is a thread of the UPF process, or a worker process.

mod batches;
mod slow_path;
mod sockets;

pub(crate) use slow_path::WorkerSlowPath;
pub(crate) use sockets::{bind, send};

use crate::drivers::bare::Bare;
use crate::engine::batch::WorkerEnv;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::event::EventSink;
use crate::engine::pipeline::HEADROOM;
use crate::sys::BATCH;
use crate::sys::clock::Clock;
use crate::sys::poll::{Poller, STOP};
use crate::sys::tun::Tun;
use crate::sys::udp::{Receiver, Sender, Socket};
use batches::{Downlink, Uplink};
use sockets::position;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tracing::debug;
use vireo_wire::gtpu;

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
    pub(crate) fn run(&self, env: &impl WorkerEnv, poller: &Poller) -> io::Result<()> {
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
                    TUN => self.downlink(env, &mut buffer, &mut senders, &mut stats),
                    n => self.uplink(env, &self.sockets[n as usize], &mut receiver, &mut stats),
                }
                env.announce_packets(0);
            }
            env.flush(&mut stats);
        }
    }

    /// Processes one batch from N3 to N6.
    fn uplink(&self, env: &impl WorkerEnv, socket: &Socket, receiver: &mut Receiver, stats: &mut Stats) {
        env.announce_packets(BATCH);
        let count = match receiver.receive(socket) {
            Ok(count) => count,
            Err(error) => return debug!("receiving on {}: {error}", socket.local),
        };
        env.announce_packets(count);
        let mut forward: [Option<&[u8]>; BATCH] = [None; BATCH];
        let output = WorkerSlowPath { own: Some(socket), sockets: &self.sockets, events: &self.events };
        let (now, local) = (self.clock.now(), socket.local);
        let mut batch = Uplink { receiver, local, forward: &mut forward[..count], tun: &self.tun, output, now, stats };
        match &self.bare {
            None => env.decide(&mut batch),
            Some(Bare { forward: false, .. }) => batch.stats.drops[DropReason::Action as usize] += count as u64,
            Some(_) => {
                for (n, forward) in batch.forward.iter_mut().enumerate() {
                    *forward = batch.receiver.datagram(n).1.and_then(|datagram| datagram.get(HEADROOM..));
                }
            }
        }
        batch.send();
    }

    /// Processes one batch from N6 to N3.
    fn downlink(&self, env: &impl WorkerEnv, buffer: &mut [u8], senders: &mut [Sender], stats: &mut Stats) {
        let mut ends = [0; BATCH];
        let mut count = 0;
        env.announce_packets(BATCH);
        for (slot, end) in buffer.chunks_exact_mut(self.slot).zip(&mut ends) {
            match self.tun.read(&mut slot[HEADROOM..]) {
                Ok(length) => *end = HEADROOM + length,
                // The queue is empty or the device is down.
                Err(_) => break,
            }
            count += 1;
        }
        env.announce_packets(count);
        if let Some(bare) = &self.bare {
            return self.bare_downlink(bare, (buffer, &ends[..count]), senders, stats);
        }
        let output = WorkerSlowPath { own: None, sockets: &self.sockets, events: &self.events };
        let (ends, slot, now) = (&ends[..count], self.slot, self.clock.now());
        env.decide(&mut Downlink { buffer, slot, ends, senders, output, now, stats });
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
        let (Some(header), Some(socket), true) = (bare.header(), position(&self.sockets, to), bare.forward) else {
            stats.drops[DropReason::Action as usize] += ends.len() as u64;
            return;
        };
        for (n, end) in ends.iter().enumerate() {
            let base = n * self.slot;
            buffer[base..base + HEADROOM].copy_from_slice(&header);
            senders[socket].queue(to, base, base + end, end - HEADROOM);
        }
        let refused = senders[socket].flush(&self.sockets[socket], buffer, |octets| stats.downlink.add(octets));
        stats.drops[DropReason::N3Send as usize] += refused;
    }
}
