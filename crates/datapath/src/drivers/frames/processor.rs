//! Frame processing of one worker.

use super::batch::{FrameMemory, FrameVerdict, Frames};
use super::kernel_path::KernelPath;
use crate::drivers::bare::BareFrames;
use crate::drivers::next_hops::{Hop, Hops};
use crate::engine::arrays::Arrays;
use crate::engine::batch::PuntedPacket;
use crate::engine::classifier::Classifier;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::datagram::Datagram;
use crate::engine::event::Event;
use crate::engine::frame_layout::{self as layout, FramePayload, outer};
use crate::engine::pipeline::{self, HEADROOM, PacketAction};
use crate::network::by_family;
use crate::sys::BATCH;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use vireo_types::Instant;

/// Frame processing of one worker.
#[derive(Debug)]
pub(crate) struct FrameProcessor<E> {
    /// Output for packets that are left to the kernel.
    exit: E,
    hops: Hops,
    /// Source address of tunnels for each family.
    sources: [Option<IpAddr>; 2],
    next_hops: [Option<IpAddr>; 2],
    n3: Vec<IpAddr>,
    id: u16,
    /// If set, frames are forwarded without lookups.
    bare: Option<BareFrames>,
}

/// A datagram in the memory of a frame.
struct ReceivedDatagram {
    from: SocketAddr,
    local: IpAddr,
    /// Octets of the datagram in that memory.
    range: Range<usize>,
}

impl<E: KernelPath> FrameProcessor<E> {
    pub(crate) fn new(exit: E, hops: Hops, n3: &[IpAddr], next_hops: &[IpAddr], bare: Option<BareFrames>) -> Self {
        FrameProcessor {
            exit,
            hops,
            sources: by_family(n3),
            next_hops: by_family(next_hops),
            n3: n3.to_vec(),
            id: 0,
            bare,
        }
    }

    /// Returns the collected output and resets it.
    pub(crate) fn take_exit(&mut self) -> E
    where
        E: Default,
    {
        std::mem::take(&mut self.exit)
    }

    /// Sends a notification about a packet that has been sent.
    pub(crate) fn notify(&mut self, event: Event) {
        // A lost notification is repeated after the next multiple of the watch granularity.
        let _ = self.exit.event(event);
    }

    /// Classifies the frames of a batch from `from` on. Returns the number of classified frames of
    /// the batch.
    #[inline]
    pub(crate) fn process(
        &mut self,
        by: &impl Classifier,
        frames: &mut impl Frames,
        from: usize,
        fates: &mut [FrameVerdict; BATCH],
        now: Instant,
        stats: &mut Stats,
    ) -> usize {
        let count = frames.count().min(BATCH);
        if let Some(bare) = &self.bare {
            bare.process(frames, fates, stats);
            return count;
        }
        let mut payloads: [Option<FramePayload>; BATCH] = [const { None }; BATCH];
        // Entries lie in memory at random. Prefetching loads them while earlier frames are
        // classified.
        for (n, payload) in payloads.iter_mut().enumerate().take(count).skip(from) {
            let FrameMemory { octets, start, end } = frames.frame(n);
            *payload = layout::read(&octets[..end], start);
            let Some(payload) = payload else { continue };
            match payload.gtp() {
                Some(datagram) => by.arrays().prefetch_datagram(&octets[datagram]),
                None => by.arrays().prefetch_address_of(&octets[payload.packet()]),
            }
        }
        let mut cold = 0_u32;
        for (n, payload) in payloads.iter().enumerate().take(count).skip(from) {
            if let Some(payload) = payload
                && payload.gtp().is_none()
            {
                let octets = frames.frame(n).octets;
                cold |= u32::from(!by.arrays().prefetch_entry_of(&octets[payload.packet()])) << n;
            }
        }
        while cold != 0 {
            let n = cold.trailing_zeros() as usize;
            cold &= cold - 1;
            if let Some(payload) = &payloads[n] {
                let octets = frames.frame(n).octets;
                by.arrays().prefetch_cold_of(&octets[payload.packet()]);
            }
        }
        self.hops.begin();
        for (n, payload) in payloads.iter().enumerate().take(count).skip(from) {
            match payload {
                None => {
                    stats.drop(DropReason::Malformed);
                    fates[n] = FrameVerdict::Done;
                }
                Some(payload) => match self.classify_one(by, frames, (n, payload), now, stats) {
                    Some(fate) => fates[n] = fate,
                    None => return n,
                },
            }
            if by.ends() {
                return n + 1;
            }
        }
        count
    }

    /// Writes a punted frame as the datagram or packet in it, as the kernel would have received it.
    pub(crate) fn punt(&self, frames: &mut impl Frames, n: usize, put: impl FnOnce(PuntedPacket, &[u8])) {
        let whole = !frames.lacks_checksum(n);
        let FrameMemory { octets, start, end } = frames.frame(n);
        let Some(payload) = layout::read(&octets[..end], start) else { return put(PuntedPacket::Truncated, &[]) };
        if let Some(datagram) = payload.gtp() {
            let local = payload.destination(octets);
            if self.n3.contains(&local) {
                let from = SocketAddr::new(payload.source(octets), payload.port(octets));
                return put(PuntedPacket::Uplink(from, local), &octets[datagram]);
            }
        }
        let packet = &mut octets[payload.packet()];
        if layout::routed(packet).is_none() {
            return put(PuntedPacket::Truncated, &[]);
        }
        if !whole {
            layout::complete_checksum(packet);
        }
        layout::take_hop(packet);
        put(PuntedPacket::Downlink, packet);
    }

    /// Classifies a frame. Returns `None` without side effects if it is punted to the tables.
    #[inline]
    fn classify_one(
        &mut self,
        by: &impl Classifier,
        frames: &mut impl Frames,
        (n, payload): (usize, &FramePayload),
        now: Instant,
        stats: &mut Stats,
    ) -> Option<FrameVerdict> {
        let whole = !frames.lacks_checksum(n);
        let octets = frames.frame(n).octets;
        if let Some(range) = payload.gtp() {
            let local = payload.destination(octets);
            if self.n3.contains(&local) {
                let from = SocketAddr::new(payload.source(octets), payload.port(octets));
                return self.uplink(by, octets, ReceivedDatagram { from, local, range }, now, stats);
            }
        }
        if !whole {
            layout::complete_checksum(&mut octets[payload.packet()]);
        }
        self.downlink(by, octets, payload.packet(), now, stats)
    }

    #[inline]
    fn uplink(
        &mut self,
        by: &impl Classifier,
        octets: &mut [u8],
        received: ReceivedDatagram,
        now: Instant,
        stats: &mut Stats,
    ) -> Option<FrameVerdict> {
        let ReceivedDatagram { from, local, range } = received;
        let begin = range.start;
        let datagram = Datagram { from, local, octets: &octets[range] };
        let packet = match pipeline::uplink(by, datagram, now, stats, &mut self.exit) {
            PacketAction::Send(packet) => packet,
            PacketAction::Done => return Some(FrameVerdict::Done),
            PacketAction::Punt => return None,
        };
        let length = packet.len();
        // `packet` is a part of the datagram.
        let at = begin + (packet.as_ptr() as usize).wrapping_sub(octets[begin..].as_ptr() as usize);
        let hop = match layout::routed(packet) {
            Some(to) => self.onward(by.arrays(), to, now),
            None => None,
        };
        Some(match hop.filter(|hop| length <= hop.mtu) {
            Some(hop) => {
                layout::take_hop(&mut octets[at..at + length]);
                let v6 = octets[at] >> 4 == 6;
                let start = layout::write_ethernet(octets, at, &hop.macs, v6);
                FrameVerdict::Send { port: hop.port, start, end: at + length, uplink: true, octets: length }
            }
            None => {
                match self.exit.route(&octets[at..at + length]) {
                    true => stats.uplink.add(length),
                    false => stats.drop(DropReason::N6Send),
                }
                FrameVerdict::Done
            }
        })
    }

    /// Returns the next hop of an uplink packet: the configured one for addresses beyond it,
    /// otherwise that of the routes.
    #[inline]
    fn onward(&mut self, arrays: &Arrays, to: IpAddr, now: Instant) -> Option<&Hop> {
        let next = match self.next_hops[usize::from(to.is_ipv6())] {
            None => to,
            Some(next) => {
                let beyond = match to {
                    IpAddr::V4(v4) => !matches!(v4.octets()[0], 0 | 127 | 224..),
                    // Addresses in 2000::/3 and fc00::/7.
                    IpAddr::V6(v6) => matches!(v6.octets()[0], 0x20..=0x3f | 0xfc | 0xfd),
                };
                if !beyond || self.n3.contains(&to) || arrays.is_in_pools(to) {
                    return None;
                }
                next
            }
        };
        self.hops.find(next, now)
    }

    #[inline]
    fn downlink(
        &mut self,
        by: &impl Classifier,
        octets: &mut [u8],
        packet: Range<usize>,
        now: Instant,
        stats: &mut Stats,
    ) -> Option<FrameVerdict> {
        let at = packet.start;
        if layout::routed(&octets[packet.clone()]).is_none() {
            // The steering program leaves these to the kernel.
            stats.drop(DropReason::InnerMalformed);
            return Some(FrameVerdict::Done);
        }
        // The locked tables may buffer the packet, so it gets its final form first. On the fast
        // path it keeps its received form until it has a verdict, because it may be punted.
        let first = by.tables().is_some();
        if first {
            layout::take_hop(&mut octets[packet.clone()]);
        }
        let base = at - HEADROOM;
        let buffer = &mut octets[base..];
        let out = match pipeline::downlink(by, buffer, packet.end - base, now, stats, &mut self.exit) {
            PacketAction::Send(out) => out,
            PacketAction::Done => return Some(FrameVerdict::Done),
            PacketAction::Punt => return None,
        };
        if !first {
            layout::take_hop(&mut octets[packet]);
        }
        let datagram = base + out.start..base + out.end;
        // One call for each address family, so that the compiler specializes both.
        let sent = match out.target.v4() {
            Some(v4) => self.send(octets, datagram.clone(), v4.into(), out.octets, now),
            None => self.send(octets, datagram.clone(), out.target.address(), out.octets, now),
        };
        if sent.is_some() {
            return sent;
        }
        match self.exit.answer(out.target.socket(), &octets[datagram]) {
            true => stats.downlink.add(out.octets),
            false => stats.drop(DropReason::N3Send),
        }
        Some(FrameVerdict::Done)
    }

    /// Writes the headers before a datagram to this address, if a frame can carry it.
    #[inline(always)]
    fn send(
        &mut self,
        octets: &mut [u8],
        datagram: Range<usize>,
        to: IpAddr,
        user: usize,
        now: Instant,
    ) -> Option<FrameVerdict> {
        let v6 = to.is_ipv6();
        let from = self.sources[usize::from(v6)]?;
        let total = datagram.len() + outer(v6);
        let hop = self.hops.find(to, now).filter(|hop| total <= hop.mtu)?;
        // The identification distinguishes fragments on the way.
        self.id = self.id.wrapping_add(1);
        let end = datagram.end;
        let start = layout::write_udp(octets, datagram, from, to, self.id);
        let start = layout::write_ethernet(octets, start, &hop.macs, v6);
        Some(FrameVerdict::Send { port: hop.port, start, end, uplink: false, octets: user })
    }
}
