//! Bare forwarder: upper bound of the speed of the user-space drivers.
//!
//! Input and output of a driver with constant headers only: no tables, no verdicts, no session
//! counters.

use crate::drivers::frames::{FrameMemory, FrameVerdict, Frames};
use crate::drivers::next_hops::{Hop, Hops};
use crate::engine::counters::{DropReason, Stats};
use crate::engine::frame_layout::{self as layout, ETHERNET, ROOM};
use crate::engine::pipeline::HEADROOM;
use crate::engine::rule::Tunnel;
use crate::start_error::StartError;
use crate::sys::BATCH;
use std::net::IpAddr;
use vireo_types::Instant;
use vireo_wire::gtpu::{self, PduSession};

/// Configuration of a bare forwarder. Its packets have one length and one address family, IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bare {
    /// Tunnel of all packets from N6.
    pub tunnel: Tunnel,
    /// QoS flow of all packets from N6.
    pub qfi: u8,
    /// Next destination of all packets from N3.
    pub server: IpAddr,
    /// Length of the user packets in octets.
    pub octets: u16,
    /// If false, packets are received, counted as dropped by rule, and not sent.
    pub forward: bool,
}

/// Octets before a user packet on N3: IPv4, UDP and GTP-U.
const OUTER: usize = 20 + 8 + HEADROOM;

impl Bare {
    /// Returns the GTP-U header.
    pub(crate) fn header(&self) -> Option<[u8; HEADROOM]> {
        let flow = PduSession::Downlink { qfi: self.qfi, rqi: false };
        gtpu::g_pdu_header(self.tunnel.teid, flow, self.octets.into())
    }
}

/// A bare forwarder with prepared headers.
#[derive(Debug)]
pub(crate) struct BareFrames {
    is_forwarding: bool,
    uplink: Hop,
    downlink: Hop,
    /// Headers of a downlink frame before the user packet.
    header: [u8; ETHERNET + OUTER],
}

impl BareFrames {
    /// Resolves the next hops once.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel knows no neighbour on the way.
    pub(crate) fn new(bare: Bare, n3: &[IpAddr], hops: &mut Hops, now: Instant) -> Result<Self, StartError> {
        hops.begin();
        let mut hop = |to| hops.find(to, now).copied().ok_or(StartError::BareHop(to));
        let (uplink, downlink) = (hop(bare.server)?, hop(bare.tunnel.address)?);
        let source = n3.iter().find(|address| address.is_ipv4()).ok_or(StartError::NoN3)?;
        let end = ROOM + usize::from(bare.octets);
        let mut octets = vec![0; end];
        let datagram = ROOM - HEADROOM;
        let gtp = bare.header().ok_or(StartError::NoN3)?;
        octets[datagram..ROOM].copy_from_slice(&gtp);
        let ip = layout::write_udp(&mut octets, datagram..end, *source, bare.tunnel.address, 0);
        let mut header = [0; ETHERNET + OUTER];
        header[ETHERNET..].copy_from_slice(octets.get(ip..ROOM).filter(|h| h.len() == OUTER).ok_or(StartError::NoN3)?);
        layout::write_ethernet(&mut header, ETHERNET, &downlink.macs, false);
        Ok(BareFrames { is_forwarding: bare.forward, uplink, downlink, header })
    }

    #[inline]
    pub(crate) fn process(&self, frames: &mut impl Frames, fates: &mut [FrameVerdict; BATCH], stats: &mut Stats) {
        let count = frames.count().min(BATCH);
        if !self.is_forwarding {
            fates[..count].fill(FrameVerdict::Done);
            stats.drops[DropReason::Action as usize] += count as u64;
            return;
        }
        for (n, fate) in fates.iter_mut().enumerate().take(count) {
            *fate = self.forward(frames.frame(n));
        }
    }

    #[inline]
    fn forward(&self, frame: FrameMemory<'_>) -> FrameVerdict {
        let FrameMemory { octets, start, end } = frame;
        let packet = start + ETHERNET;
        let port = packet + 20 + 2;
        if octets.get(port..port + 2) == Some(&gtpu::PORT.to_be_bytes()) && end > packet + OUTER {
            let packet = packet + OUTER;
            let start = layout::write_ethernet(octets, packet, &self.uplink.macs, false);
            return FrameVerdict::Send { port: self.uplink.port, start, end, uplink: true, octets: end - packet };
        }
        let Some(begin) = packet.checked_sub(self.header.len()) else {
            return FrameVerdict::Done;
        };
        octets[begin..packet].copy_from_slice(&self.header);
        FrameVerdict::Send { port: self.downlink.port, start: begin, end, uplink: false, octets: end - packet }
    }
}
