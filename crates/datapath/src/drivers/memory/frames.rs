//! Frame drivers without input and output: frames stay in memory.
//!
//! It serves to measure the cost of verdicts and headers, and to test the results for whole frames.

use crate::drivers::frames::{FrameMemory, FrameProcessor, FrameVerdict, Frames, KernelPath};
use crate::drivers::next_hops::{Hop, Hops};
use crate::engine::batch::Batch;
use crate::engine::classifier::Classifier;
use crate::engine::counters::Stats;
use crate::engine::event::Event;
use crate::engine::frame_layout as layout;
use crate::engine::pipeline::SlowPath;
use crate::engine::shared_tables::{Reader, SharedTables};
use crate::engine::tables::Tables;
use crate::sys::BATCH;
use std::net::{IpAddr, SocketAddr};
use vireo_types::Instant;

/// Memory of one frame in bytes.
const SLOT: usize = 2048;

/// Next hop of the packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Address of a RAN node or of a host in the data network.
    pub to: IpAddr,
    /// Index of the interface.
    pub port: usize,
    /// Destination and source of the frame.
    pub macs: [u8; 12],
}

/// Output through no interface.
#[derive(Debug, Default)]
pub struct SideOutput {
    /// Packets for the kernel to route.
    pub routed: Vec<Vec<u8>>,
    /// Datagrams for the kernel's sockets.
    pub answers: Vec<(SocketAddr, Vec<u8>)>,
    /// Notifications for the control side.
    pub events: Vec<Event>,
}

impl SlowPath for SideOutput {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        self.answers.push((to, datagram.to_vec()));
        true
    }

    fn event(&mut self, event: Event) -> bool {
        self.events.push(event);
        true
    }
}

impl KernelPath for SideOutput {
    fn route(&mut self, packet: &[u8]) -> bool {
        self.routed.push(packet.to_vec());
        true
    }
}

/// Frames of one batch, each in separate memory.
#[derive(Debug)]
struct FrameSlots {
    octets: Box<[u8]>,
    ends: [usize; BATCH],
    count: usize,
}

impl Frames for FrameSlots {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn frame(&mut self, n: usize) -> FrameMemory<'_> {
        let (start, end) = (layout::ROOM, self.ends[n]);
        FrameMemory { octets: &mut self.octets[n * SLOT..(n + 1) * SLOT], start, end }
    }

    #[inline]
    fn lacks_checksum(&self, _: usize) -> bool {
        false
    }
}

/// User plane with frames in memory.
#[derive(Debug)]
pub struct MemoryFrames {
    pub tables: SharedTables,
    /// Counters, without the packets that leave through interfaces: a driver counts these after
    /// sending.
    pub stats: Stats,
    reader: Reader,
    processor: FrameProcessor<SideOutput>,
    slots: FrameSlots,
    fates: [FrameVerdict; BATCH],
}

/// Frames in memory as a batch.
struct Work<'a> {
    processor: &'a mut FrameProcessor<SideOutput>,
    slots: &'a mut FrameSlots,
    fates: &'a mut [FrameVerdict; BATCH],
    stats: &'a mut Stats,
    now: Instant,
}

impl Batch for Work<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.slots.count
    }

    #[inline]
    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        self.processor.process(by, self.slots, from, self.fates, self.now, self.stats)
    }

    fn notify(&mut self, event: Event) {
        self.processor.notify(event);
    }
}

impl MemoryFrames {
    /// Creates a user plane with these tables and N3 addresses, as the only user of the tables.
    /// Frames leave by `hops`. All others are routed by a simulated kernel.
    pub fn new(mut tables: Tables, n3: &[IpAddr], hops: &[NextHop]) -> Self {
        tables.set_single_worker(true);
        MemoryFrames::sharing(SharedTables::new(tables), n3, hops)
    }

    /// Creates one of several workers of these tables.
    pub fn sharing(tables: SharedTables, n3: &[IpAddr], hops: &[NextHop]) -> Self {
        let known = |hop: &NextHop| (hop.to, Hop { port: hop.port, macs: hop.macs, mtu: 1500 });
        let hops = Hops::fixed(&hops.iter().map(known).collect::<Vec<_>>());
        MemoryFrames {
            reader: tables.reader(),
            tables,
            stats: Stats::default(),
            processor: FrameProcessor::new(SideOutput::default(), hops, n3, &[], None),
            slots: FrameSlots { octets: vec![0; BATCH * SLOT].into(), ends: [0; BATCH], count: 0 },
            fates: [FrameVerdict::Done; BATCH],
        }
    }

    /// Returns `octets` octets of memory for the next frame of the batch. Returns `None` if the
    /// batch is full or the frame too long. A batch begins with the first frame after
    /// [`MemoryFrames::process`].
    #[inline]
    pub fn next(&mut self, octets: usize) -> Option<&mut [u8]> {
        let n = self.slots.count;
        if n == BATCH || octets > SLOT - layout::ROOM {
            return None;
        }
        self.slots.count += 1;
        self.slots.ends[n] = layout::ROOM + octets;
        let start = n * SLOT + layout::ROOM;
        self.slots.octets.get_mut(start..start + octets)
    }

    /// Returns frame `n` of the batch in preparation.
    #[inline]
    pub fn put(&mut self, n: usize) -> Option<&mut [u8]> {
        let end = *self.slots.ends[..self.slots.count].get(n)?;
        self.slots.octets.get_mut(n * SLOT..)?.get_mut(layout::ROOM..end)
    }

    /// Classifies the batch. Returns the number of frames that leave through interfaces.
    pub fn process(&mut self, now: Instant) -> usize {
        self.fates = [FrameVerdict::Done; BATCH];
        let MemoryFrames { reader, processor, slots, fates, stats, .. } = self;
        reader.decide(&mut Work { processor, slots, fates, stats, now });
        self.slots.count = 0;
        self.fates.iter().filter(|fate| **fate != FrameVerdict::Done).count()
    }

    /// Returns the interface and the octets of frame `n` of the last batch, if it leaves through an
    /// interface.
    pub fn output(&self, n: usize) -> Option<(usize, &[u8])> {
        match *self.fates.get(n)? {
            FrameVerdict::Done => None,
            FrameVerdict::Send { port, start, end, .. } => {
                Some((port, self.slots.octets.get(n * SLOT..)?.get(start..end)?))
            }
        }
    }

    /// Returns the octets of frame `n` of the last batch for modification, if it leaves through an
    /// interface.
    #[inline]
    pub fn output_mut(&mut self, n: usize) -> Option<&mut [u8]> {
        match *self.fates.get(n)? {
            FrameVerdict::Done => None,
            FrameVerdict::Send { start, end, .. } => self.slots.octets.get_mut(n * SLOT..)?.get_mut(start..end),
        }
    }

    /// Returns the output through no interface since the last call.
    pub fn take_side_output(&mut self) -> SideOutput {
        self.processor.take_exit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limits::Limits;
    use crate::engine::rule::{ALL_FLOWS, Action, DownlinkRule, Tunnel, UplinkRule};
    use crate::engine::tables::Released;
    use crate::network::Pool;
    use crate::{DropReason, Rate};
    use std::net::Ipv4Addr;
    use vireo_types::{SessionAddress, Teid};
    use vireo_wire::gtpu::{self, PduSession};

    const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
    const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn ue(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 45, 0, 2).to_bits() + n)
    }

    fn upf(sessions: u32) -> (MemoryFrames, Vec<Teid>) {
        let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() };
        let mut tables = Tables::new(vec![pool], Limits { records: sessions as usize, ..Limits::default() });
        let mut teids = vec![];
        for n in 0..sessions {
            let ue = SessionAddress { ipv4: Some(ue(n)), ipv6_prefix: None };
            let mbr = Rate::UNLIMITED;
            let rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr };
            teids.push(tables.add_uplink(None, rule).expect("room"));
            let id = tables.add_downlink(ue, n.into()).expect("room");
            let rule = DownlinkRule {
                session: n.into(),
                pdr: 1,
                qfi: Some(9),
                rqi: false,
                gate_open: true,
                action: Action::Forward,
                tunnel: Some(Tunnel { teid: Teid(1000 + n), address: GNB.into() }),
                mbr,
            };
            tables.set_downlink(id, rule, false, &mut Released::default());
        }
        let hop = |to: Ipv4Addr, port| NextHop { to: to.into(), port, macs: MACS };
        (MemoryFrames::new(tables, &[UPF.into()], &[hop(GNB, 0), hop(SERVER, 1)]), teids)
    }

    fn packet(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0, 0, 64, 59, 0, 0];
        packet.extend([from.octets(), to.octets()].concat());
        packet.extend([1, 2, 3, 4]);
        crate::engine::frame_layout::complete_header(&mut packet);
        packet
    }

    fn frame(packet: &[u8]) -> Vec<u8> {
        [&[7; 12][..], &[8, 0], packet].concat()
    }

    fn in_tunnel(teid: Teid, packet: &[u8]) -> Vec<u8> {
        let gtp = gtpu::g_pdu_header(teid, PduSession::Uplink { qfi: 9 }, packet.len()).expect("short");
        let mut octets = vec![0; layout::ROOM];
        octets.extend([&gtp[..], packet].concat());
        let end = octets.len();
        let start = layout::write_udp(&mut octets, layout::ROOM..end, GNB.into(), UPF.into(), 7);
        frame(&octets[start..])
    }

    fn put(upf: &mut MemoryFrames, frame: &[u8]) {
        upf.next(frame.len()).expect("room").copy_from_slice(frame);
    }

    /// Returns the packet with a decremented hop limit.
    fn after_a_hop(mut packet: Vec<u8>) -> Vec<u8> {
        layout::take_hop(&mut packet);
        packet
    }

    #[test]
    fn batch_of_both_directions_leaves_by_interfaces() {
        let (mut upf, teids) = upf(32);
        for (n, teid) in (0..32).zip(&teids) {
            let frame = match n % 2 {
                0 => in_tunnel(*teid, &packet(ue(n), SERVER)),
                _ => frame(&packet(SERVER, ue(n))),
            };
            put(&mut upf, &frame);
        }
        assert!(upf.next(60).is_none(), "the batch is full");
        assert_eq!(upf.put(1), Some(&mut frame(&packet(SERVER, ue(1)))[..]));
        assert_eq!(upf.process(Instant(1)), 32);
        for n in 0..32 {
            let (port, octets) = upf.output(n as usize).expect("it leaves");
            assert_eq!(octets[..12], MACS);
            let octets = octets.to_vec();
            assert_eq!(upf.output_mut(n as usize).as_deref(), Some(&octets[..]));
            if n % 2 == 0 {
                assert_eq!((port, &octets[14..]), (1, &after_a_hop(packet(ue(n), SERVER))[..]));
                continue;
            }
            assert_eq!((port, &octets[26..34]), (0, &[UPF.octets(), GNB.octets()].concat()[..]));
            let datagram = gtpu::Packet::parse(&octets[14 + 28..]).expect("a G-PDU");
            assert_eq!(datagram.teid, Teid(1000 + n));
            assert_eq!(datagram.payload, after_a_hop(packet(SERVER, ue(n))));
        }
        let counted = teids.iter().map(|teid| upf.tables.read(|tables| tables.uplink_volume(*teid).packets));
        assert_eq!(counted.collect::<Vec<_>>(), (0..32).map(|n| 1 - n % 2).collect::<Vec<_>>());
    }

    #[test]
    fn packets_without_next_hop_go_to_kernel() {
        let (mut upf, teids) = upf(2);
        let beyond = Ipv4Addr::new(203, 0, 113, 1);
        put(&mut upf, &in_tunnel(teids[0], &packet(ue(0), beyond)));
        put(&mut upf, &in_tunnel(teids[1], &packet(ue(0), SERVER)));
        put(&mut upf, &in_tunnel(Teid(0xdead), &packet(ue(0), SERVER)));
        put(&mut upf, &[0; 20]);
        assert_eq!(upf.process(Instant(1_000_000_000)), 0);
        let SideOutput { routed, answers, events } = upf.take_side_output();
        assert_eq!(routed, [packet(ue(0), beyond)]);
        let answered = answers.iter().map(|(to, octets)| (to.ip(), gtpu::Packet::parse(octets).map(|p| p.kind)));
        let expected = (IpAddr::from(GNB), Ok(gtpu::MessageType::ErrorIndication));
        assert_eq!((answered.collect::<Vec<_>>(), events.len()), (vec![expected], 0));
        let dropped = [DropReason::Spoofed, DropReason::UnknownTeid, DropReason::Malformed];
        assert_eq!(dropped.map(|reason| upf.stats.dropped(reason)), [1, 1, 1]);
        assert!(upf.output(0).is_none() && upf.take_side_output().routed.is_empty());
    }
}
