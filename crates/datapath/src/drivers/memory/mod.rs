//! User plane without a network, for tests and the simulator: packets in, packets out.
//!
//! Packets take the same path as in a driver: first without the lock of the tables, unless the
//! tables use [`crate::Locking::Coarse`].

pub(crate) mod frames;

use crate::engine::batch::{Batch, finish};
use crate::engine::classifier::Classifier;
use crate::engine::counters::Stats;
use crate::engine::datagram::Datagram;
use crate::engine::event::Event;
use crate::engine::locking::Locking;
use crate::engine::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::engine::read_section::ReadSection;
use crate::engine::tables::{Released, Tables};
use std::net::{IpAddr, SocketAddr};
use vireo_types::Instant;

/// Tables with packet lists in place of interfaces.
#[derive(Debug)]
pub struct Memory {
    pub tables: Tables,
    /// Counters of all packets.
    pub stats: Stats,
    /// Packets sent to the data network.
    pub n6: Vec<Vec<u8>>,
    /// Datagrams sent to the RAN, with their destination.
    pub n3: Vec<(SocketAddr, Vec<u8>)>,
    /// Notifications for the control side.
    pub events: Vec<Event>,
    /// Own address on N3.
    pub local: IpAddr,
}

struct CaptureIo<'a> {
    n3: &'a mut Vec<(SocketAddr, Vec<u8>)>,
    events: &'a mut Vec<Event>,
}

impl SlowPath for CaptureIo<'_> {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        self.n3.push((to, datagram.to_vec()));
        true
    }

    fn event(&mut self, event: Event) -> bool {
        self.events.push(event);
        true
    }
}

impl Memory {
    /// Creates a user plane with these tables at the address `local`.
    pub fn new(mut tables: Tables, local: IpAddr) -> Self {
        tables.settle();
        Memory { tables, stats: Stats::default(), n6: vec![], n3: vec![], events: vec![], local }
    }

    /// Changes the tables. Sends the packets that the change releases on N3.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        let mut released = Released::default();
        let result = change(&mut self.tables, &mut released);
        self.tables.release_held(&mut released);
        self.n3.append(&mut released.datagrams);
        let Memory { tables, stats, n6, n3, events, .. } = self;
        for held in released.take_uplinks() {
            let lists = CaptureIo { n3, events };
            let mut uplink = Uplink { datagram: held.received(), now: held.since(), stats, n6, lists };
            finish(tables, &mut uplink, 0, None);
        }
        tables.settle();
        result
    }

    /// Processes a datagram from N3.
    pub fn receive_n3(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) {
        let Memory { tables, stats, n6, n3, events, local } = self;
        let lists = CaptureIo { n3, events };
        let datagram = Datagram { from, local: *local, octets: datagram };
        decide(tables, &mut Uplink { datagram, now, stats, n6, lists });
    }

    /// Processes a packet from N6.
    pub fn receive_n6(&mut self, packet: &[u8], now: Instant) {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(packet);
        let Memory { tables, stats, n3, events, .. } = self;
        decide(tables, &mut Downlink { buffer, now, stats, lists: CaptureIo { n3, events } });
    }
}

/// Does the same as [`crate::engine::shared_tables::Reader`] without a concurrent writer.
fn decide(tables: &Tables, batch: &mut impl Batch) {
    let (mut done, mut pending) = (0, None);
    if tables.arrays().locking != Locking::Coarse {
        let section = ReadSection::without_writers(tables.arrays());
        done = batch.decide(&section, 0);
        pending = section.pending.get();
    }
    finish(tables, batch, done, pending);
}

/// Batch of one datagram from N3.
struct Uplink<'a> {
    datagram: Datagram<'a>,
    now: Instant,
    stats: &'a mut Stats,
    n6: &'a mut Vec<Vec<u8>>,
    lists: CaptureIo<'a>,
}

impl Batch for Uplink<'_> {
    fn count(&self) -> usize {
        1
    }

    fn decide(&mut self, by: &impl Classifier, _: usize) -> usize {
        let Uplink { datagram, now, stats, n6, lists } = self;
        match pipeline::uplink(by, *datagram, *now, stats, lists) {
            PacketAction::Punt => return 0,
            PacketAction::Done => {}
            PacketAction::Send(packet) => {
                stats.uplink.add(packet.len());
                n6.push(packet.to_vec());
            }
        }
        1
    }

    fn notify(&mut self, event: Event) {
        self.lists.event(event);
    }
}

/// Batch of one packet from N6.
struct Downlink<'a> {
    buffer: Vec<u8>,
    now: Instant,
    stats: &'a mut Stats,
    lists: CaptureIo<'a>,
}

impl Batch for Downlink<'_> {
    fn count(&self) -> usize {
        1
    }

    fn decide(&mut self, by: &impl Classifier, _: usize) -> usize {
        let Downlink { buffer, now, stats, lists } = self;
        let end = buffer.len();
        match pipeline::downlink(by, buffer, end, *now, stats, lists) {
            PacketAction::Punt => return 0,
            PacketAction::Done => {}
            PacketAction::Send(out) => {
                stats.downlink.add(out.octets);
                lists.n3.push((out.target.socket(), buffer[out.start..out.end].to_vec()));
            }
        }
        1
    }

    fn notify(&mut self, event: Event) {
        self.lists.event(event);
    }
}
