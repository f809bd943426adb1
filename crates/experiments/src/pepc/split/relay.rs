//! Packet path of the S-GW-like part of the split core.
//!
//! Packets go from the eNB's tunnel to the P-GW's and back, with another lookup and another header.
//! A bearer is one cache line in an array indexed by TEID. One thread owns the array, without locks
//! and atomic operations.

use std::net::Ipv4Addr;
use vireo_bench::upf::compute::{BATCH, Node};
use vireo_datapath::{MemoryFrames, Volume};
use vireo_types::Teid;
use vireo_wire::gtpu;

/// Address of the S-GW-like part on S1-U.
pub(super) const S1: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 10);
/// Address of the S-GW-like part on S5.
pub(super) const S5: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 11);

/// Offsets in a frame with an outer IPv4 header without options.
const TYPE: usize = 12;
const IP: usize = 14;
const UDP: usize = IP + 20;
const GTP: usize = UDP + 8;
const TEID: usize = GTP + 4;
const END: usize = GTP + 8;

/// The remote endpoint of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TunnelEnd {
    pub(super) teid: u32,
    pub(super) address: u32,
}

/// Tunnels and counts of a bearer.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Bearer {
    /// TEID of the part's endpoints, the same on S1 and S5; 0 = no bearer.
    pub(super) own: u32,
    pub(super) enb: TunnelEnd,
    pub(super) pgw: TunnelEnd,
    uplink: Volume,
    downlink: Volume,
}

impl Bearer {
    pub(super) fn new(own: u32, enb: TunnelEnd, pgw: TunnelEnd) -> Self {
        Bearer { own, enb, pgw, ..Bearer::default() }
    }
}

/// The bearers, and a count of packets without bearer.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) bearers: Vec<Bearer>,
    pub(super) unknown: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Relay {
    /// Reads all TEIDs of the batch first and touches their bearers, so that the memory accesses
    /// overlap.
    #[inline]
    fn relay(
        &mut self,
        way: Direction,
        frames: &mut MemoryFrames,
        frame: impl Fn(&mut MemoryFrames, usize) -> Option<&mut [u8]>,
    ) {
        let mut teids = [0; BATCH];
        for (n, place) in teids.iter_mut().enumerate() {
            *place = frame(frames, n).and_then(|octets| teid(octets)).unwrap_or(0);
        }
        let known = teids.map(|teid| {
            teid != 0 && self.bearers.get(Teid(teid).index() as usize).is_some_and(|bearer| bearer.own == teid)
        });
        for (n, (teid, known)) in teids.into_iter().zip(known).enumerate() {
            let bearer = self.bearers.get_mut(Teid(teid).index() as usize).filter(|_| known);
            match (frame(frames, n), bearer) {
                (Some(octets), Some(bearer)) => rewrite(octets, bearer, way),
                (Some(_), None) => self.unknown += 1,
                (None, _) => {}
            }
        }
    }
}

impl Node for Relay {
    fn uplink(&mut self, frames: &mut MemoryFrames) {
        self.relay(Direction::Up, frames, MemoryFrames::put);
    }

    fn downlink(&mut self, frames: &mut MemoryFrames) {
        self.relay(Direction::Down, frames, MemoryFrames::output_mut);
    }
}

/// Returns the TEID of a G-PDU for this node.
#[inline]
fn teid(frame: &[u8]) -> Option<u32> {
    let head: &[u8; END] = frame.first_chunk()?;
    let right = head[TYPE..IP] == [8, 0]
        && head[IP] == 0x45
        && head[IP + 9] == 17
        && head[UDP + 2..UDP + 4] == gtpu::PORT.to_be_bytes()
        && head[GTP] & 0xf0 == 0x30
        && head[GTP + 1] == 0xff;
    right.then(|| u32::from_be_bytes([head[TEID], head[TEID + 1], head[TEID + 2], head[TEID + 3]]))
}

/// Rewrites a packet for the next hop (addresses, TEID, full hop limit) and counts it.
#[inline]
fn rewrite(frame: &mut [u8], bearer: &mut Bearer, way: Direction) {
    let (own, far, volume) = match way {
        Direction::Up => (S5, bearer.pgw, &mut bearer.uplink),
        Direction::Down => (S1, bearer.enb, &mut bearer.downlink),
    };
    volume.packets += 1;
    volume.octets += (frame.len() - END) as u64;
    let Some(head) = frame.first_chunk_mut::<END>() else { return };
    head[..TYPE].fill(2);
    head[IP + 8] = 64;
    head[IP + 10..IP + 12].fill(0);
    head[IP + 12..IP + 16].copy_from_slice(&own.octets());
    head[IP + 16..UDP].copy_from_slice(&far.address.to_be_bytes());
    let words = head[IP..UDP].as_chunks::<2>().0;
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    head[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    // The UDP checksum may be zero (TS 29.281).
    head[UDP + 6..GTP].fill(0);
    head[TEID..END].copy_from_slice(&far.teid.to_be_bytes());
}
