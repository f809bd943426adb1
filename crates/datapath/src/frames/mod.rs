//! Ethernet frames in user space: common part of the frame drivers (AF_PACKET, AF_XDP).
//!
//! A worker passes a batch of frames to [`Engine::process`]. The engine classifies them by the
//! pipeline, writes the headers of sent frames in place, and returns a verdict for each frame. The
//! kernel handles the remaining packets:
//! - An uplink packet without a known next hop, for a UE, with options or on its last hop goes
//!   through the TUN device and is routed.
//! - A downlink packet without a known next hop to the RAN node, or above its MTU, goes through the
//!   UDP socket.
//!
//! The programs of [`steer`] decide which frames go to the driver and not to the kernel.

pub(crate) mod af_packet;
pub(crate) mod af_xdp;
pub(crate) mod bare;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod steer;

use crate::XdpMode;
use crate::counters::{DropReason, Stats};
use crate::fast::{Arrays, Classifier};
use crate::modules::Module;
use crate::next_hops::{Hop, Hops};
use crate::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::processes::PuntedPacket;
use crate::sockets::{EventSink, send};
use crate::sys::tun::Tun;
use crate::sys::udp::{BATCH, Socket};
use crate::verdict::Event;
use bare::BareFrames;
use layout::{FramePayload, outer};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use vireo_types::Instant;

/// Distribution of frames to the workers of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// By a hash of the outer addresses and ports of the frame. On N3, one worker handles all
    /// frames of a RAN node.
    #[default]
    Hash,
    /// By the receive queue of the interface.
    Queue,
}

/// Configuration of a frame driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramesConfig {
    /// Ethernet interfaces on N3 and N6. Frames leave only through these, by the kernel's routes.
    /// Packets routed elsewhere go through the sockets driver.
    pub interfaces: Vec<String>,
    /// Next hops of uplink packets, at most one of each family, as [`crate::XdpConfig::next_hops`].
    pub next_hops: Vec<IpAddr>,
    /// Kernel interface for frames.
    pub io: FrameIo,
    /// Modules with separate interfaces, N3 addresses, next hops and workers. Empty = no division.
    pub modules: Vec<Module>,
    /// If true, the network cards distribute packets to their queues by address ranges.
    pub nic_filters: bool,
}

/// Workers that read the same interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Range in the list of all interfaces.
    pub(crate) interfaces: std::ops::Range<usize>,
    /// N3 addresses, starting with the group's.
    pub(crate) n3: Vec<IpAddr>,
    pub(crate) next_hops: Vec<IpAddr>,
    pub(crate) workers: usize,
    /// Processors of the workers. Empty = any processor.
    pub(crate) cores: Vec<usize>,
}

impl FramesConfig {
    /// Returns the modules, or all interfaces with `workers` workers. The interfaces of modules are
    /// consecutive.
    pub(crate) fn groups(&self, n3: &[IpAddr], workers: usize) -> Vec<Group> {
        if self.modules.is_empty() {
            let (n3, next_hops, interfaces) = (n3.to_vec(), self.next_hops.clone(), 0..self.interfaces.len());
            return vec![Group { interfaces, n3, next_hops, workers: workers.max(1), cores: vec![] }];
        }
        let mut next = 0;
        let groups = self.modules.iter().map(|module| {
            let interfaces = next..next + module.interfaces.len();
            next = interfaces.end;
            let others = n3.iter().copied().filter(|address| *address != module.n3);
            Group {
                interfaces,
                n3: std::iter::once(module.n3).chain(others).collect(),
                next_hops: module.next_hops.clone(),
                workers: module.workers(),
                cores: module.cores.clone(),
            }
        });
        groups.collect()
    }
}

/// Kernel interface for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameIo {
    /// AF_PACKET rings.
    AfPacket(Fanout),
    /// AF_XDP, with the place of its program. It has one worker for each queue of the interfaces.
    AfXdp(XdpMode),
}

impl Default for FrameIo {
    fn default() -> Self {
        FrameIo::AfPacket(Fanout::default())
    }
}

/// Result of processing a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FrameVerdict {
    /// The frame's memory is free.
    #[default]
    Done,
    /// Send `start..end` through an interface of the driver.
    Send { port: usize, start: usize, end: usize, uplink: bool, octets: usize },
}

/// A batch of frames, at most [`BATCH`].
pub(crate) trait Frames {
    /// Returns the number of frames.
    fn count(&self) -> usize;
    /// Returns frame `n`: its memory, and begin and end of the frame in it. The frame begins at
    /// [`layout::ROOM`] or later.
    fn frame(&mut self, n: usize) -> (&mut [u8], usize, usize);
    /// Returns true if the sender left the transport checksum to hardware that the frame did not
    /// pass.
    fn lacks_checksum(&self, n: usize) -> bool;
}

/// Output for packets that leave through no interface of the driver.
pub(crate) trait KernelPath: SlowPath {
    /// Lets the kernel route a packet. Returns false if that failed.
    fn route(&mut self, packet: &[u8]) -> bool;
}

/// Output to the kernel by the TUN device and the UDP sockets.
pub(crate) struct Kernel {
    pub(crate) sockets: Arc<[Socket]>,
    /// N3 addresses of the worker, one of each family.
    pub(crate) own: [Option<IpAddr>; 2],
    pub(crate) tun: Tun,
    pub(crate) events: EventSink,
}

impl SlowPath for Kernel {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        send(&self.sockets, self.own, to, datagram)
    }

    fn event(&mut self, event: Event) -> bool {
        (self.events)(event)
    }
}

impl KernelPath for Kernel {
    fn route(&mut self, packet: &[u8]) -> bool {
        self.tun.write(packet).is_ok()
    }
}

/// Frame processing of one worker.
#[derive(Debug)]
pub(crate) struct Engine<E> {
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

pub(crate) fn of_family(addresses: &[IpAddr]) -> [Option<IpAddr>; 2] {
    [false, true].map(|v6| addresses.iter().copied().find(|address| address.is_ipv6() == v6))
}

impl<E: KernelPath> Engine<E> {
    pub(crate) fn new(exit: E, hops: Hops, n3: &[IpAddr], next_hops: &[IpAddr], bare: Option<BareFrames>) -> Self {
        Engine { exit, hops, sources: of_family(n3), next_hops: of_family(next_hops), n3: n3.to_vec(), id: 0, bare }
    }

    /// Returns the collected output and resets it.
    pub(crate) fn take_exit(&mut self) -> E
    where
        E: Default,
    {
        std::mem::take(&mut self.exit)
    }

    /// Sends a notification about a packet that has been sent.
    pub(crate) fn tell(&mut self, event: Event) {
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
        (now, stats): (Instant, &mut Stats),
    ) -> usize {
        let count = frames.count().min(BATCH);
        if let Some(bare) = &self.bare {
            bare.process(frames, fates, stats);
            return count;
        }
        let mut carried: [Option<FramePayload>; BATCH] = [const { None }; BATCH];
        // Entries lie in memory at random. Prefetching loads them while earlier frames are
        // classified.
        for (n, carried) in carried.iter_mut().enumerate().take(count).skip(from) {
            let (octets, start, end) = frames.frame(n);
            *carried = layout::read(&octets[..end], start);
            let Some(carried) = carried else { continue };
            match carried.gtp() {
                Some(datagram) => by.arrays().prefetch_datagram(&octets[datagram]),
                None => by.arrays().prefetch_address_of(&octets[carried.packet()]),
            }
        }
        let mut cold = 0_u32;
        for (n, carried) in carried.iter().enumerate().take(count).skip(from) {
            if let Some(carried) = carried
                && carried.gtp().is_none()
            {
                let (octets, _, _) = frames.frame(n);
                cold |= u32::from(!by.arrays().prefetch_record_of(&octets[carried.packet()])) << n;
            }
        }
        while cold != 0 {
            let n = cold.trailing_zeros() as usize;
            cold &= cold - 1;
            if let Some(carried) = &carried[n] {
                let (octets, _, _) = frames.frame(n);
                by.arrays().prefetch_cold_of(&octets[carried.packet()]);
            }
        }
        self.hops.begin();
        for (n, carried) in carried.iter().enumerate().take(count).skip(from) {
            match carried {
                None => {
                    stats.drop(DropReason::Malformed);
                    fates[n] = FrameVerdict::Done;
                }
                Some(carried) => match self.one(by, frames, (n, carried), now, stats) {
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
    pub(crate) fn hand_over(&self, frames: &mut impl Frames, n: usize, put: impl FnOnce(PuntedPacket, &[u8])) {
        let whole = !frames.lacks_checksum(n);
        let (octets, start, end) = frames.frame(n);
        let Some(carried) = layout::read(&octets[..end], start) else { return put(PuntedPacket::Truncated, &[]) };
        if let Some(datagram) = carried.gtp() {
            let local = carried.destination(octets);
            if self.n3.contains(&local) {
                let from = SocketAddr::new(carried.source(octets), carried.port(octets));
                return put(PuntedPacket::Uplink(from, local), &octets[datagram]);
            }
        }
        let packet = &mut octets[carried.packet()];
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
    fn one(
        &mut self,
        by: &impl Classifier,
        frames: &mut impl Frames,
        (n, carried): (usize, &FramePayload),
        now: Instant,
        stats: &mut Stats,
    ) -> Option<FrameVerdict> {
        let whole = !frames.lacks_checksum(n);
        let (octets, _, _) = frames.frame(n);
        if let Some(datagram) = carried.gtp() {
            let local = carried.destination(octets);
            if self.n3.contains(&local) {
                let from = SocketAddr::new(carried.source(octets), carried.port(octets));
                return self.uplink(by, octets, (from, local, datagram), now, stats);
            }
        }
        if !whole {
            layout::complete_checksum(&mut octets[carried.packet()]);
        }
        self.downlink(by, octets, carried.packet(), now, stats)
    }

    #[inline]
    fn uplink(
        &mut self,
        by: &impl Classifier,
        octets: &mut [u8],
        (from, local, datagram): (SocketAddr, IpAddr, std::ops::Range<usize>),
        now: Instant,
        stats: &mut Stats,
    ) -> Option<FrameVerdict> {
        let (begin, end) = (datagram.start, datagram.end);
        let datagram = &octets[begin..end];
        let packet = match pipeline::uplink(by, from, local, datagram, now, stats, &mut self.exit) {
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
                if !beyond || self.n3.contains(&to) || arrays.is_of_a_ue(to) {
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
        packet: std::ops::Range<usize>,
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
        let sent = match out.toward.v4() {
            Some(v4) => self.send(octets, datagram.clone(), v4.into(), out.octets, now),
            None => self.send(octets, datagram.clone(), out.toward.address(), out.octets, now),
        };
        if sent.is_some() {
            return sent;
        }
        match self.exit.answer(out.toward.socket(), &octets[datagram]) {
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
        datagram: std::ops::Range<usize>,
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
