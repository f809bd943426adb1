//! The user plane without a network: packets in, packets out. For tests and for the simulator.

use crate::counters::Stats;
use crate::pipeline::{self, HEADROOM, Unusual};
use crate::tables::{Released, Tables};
use crate::verdict::Event;
use std::net::{IpAddr, SocketAddr};
use vireo_types::Instant;

/// Tables with lists for interfaces.
#[derive(Debug)]
pub struct Memory {
    /// The rules.
    pub tables: Tables,
    /// What was counted.
    pub stats: Stats,
    /// Sent to the data network.
    pub n6: Vec<Vec<u8>>,
    /// Sent to the RAN.
    pub n3: Vec<(SocketAddr, Vec<u8>)>,
    /// Told to the owner of the sessions.
    pub events: Vec<Event>,
    /// Our address on N3.
    pub local: IpAddr,
}

struct Lists<'a> {
    n3: &'a mut Vec<(SocketAddr, Vec<u8>)>,
    events: &'a mut Vec<Event>,
}

impl Unusual for Lists<'_> {
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
    /// A user plane of these tables, at this address.
    pub fn new(tables: Tables, local: IpAddr) -> Self {
        Memory { tables, stats: Stats::default(), n6: vec![], n3: vec![], events: vec![], local }
    }

    /// Changes the tables; what the change lets go is sent on N3.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Tables, &mut Released) -> R) -> R {
        let mut released = Released::default();
        let result = change(&mut self.tables, &mut released);
        self.n3.append(&mut released.datagrams);
        self.tables.settle();
        result
    }

    /// A datagram comes from N3.
    pub fn receive_n3(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) {
        let Memory { tables, stats, n6, n3, events, local } = self;
        let mut lists = Lists { n3, events };
        if let Some(packet) = pipeline::uplink(tables, from, *local, datagram, now, stats, &mut lists) {
            stats.uplink.add(packet.len());
            n6.push(packet.to_vec());
        }
    }

    /// A packet comes from N6.
    pub fn receive_n6(&mut self, packet: &[u8], now: Instant) {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(packet);
        let end = buffer.len();
        let Memory { tables, stats, n3, events, .. } = self;
        let mut lists = Lists { n3, events };
        if let Some(out) = pipeline::downlink(tables, &mut buffer, end, now, stats, &mut lists) {
            stats.downlink.add(out.octets);
            self.n3.push((out.to, buffer[out.start..out.end].to_vec()));
        }
    }
}
