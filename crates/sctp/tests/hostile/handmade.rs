//! A minimal SCTP client over a raw socket.
//!
//! It verifies the driver independently, and can violate every rule of the protocol.

use crate::sys::RawSocket;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use vireo_sctp::{Endpoint, Event};
use vireo_types::AssocId;

pub(crate) const INIT: u8 = 1;
pub(crate) const INIT_ACK: u8 = 2;
pub(crate) const SACK: u8 = 3;
pub(crate) const ABORT: u8 = 6;
pub(crate) const COOKIE_ECHO: u8 = 10;
pub(crate) const COOKIE_ACK: u8 = 11;

/// Builds a chunk with its padding.
pub(crate) fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut chunk = vec![kind, flags];
    chunk.extend(length.to_be_bytes());
    chunk.extend(value);
    chunk.resize(chunk.len().next_multiple_of(4), 0);
    chunk
}

/// Builds a DATA chunk; `flags` are E (1), B (2), U (4) and I (8).
pub(crate) fn data(flags: u8, tsn: u32, stream: u16, ssn: u16, ppid: u32, payload: &[u8]) -> Vec<u8> {
    let mut value = tsn.to_be_bytes().to_vec();
    value.extend(stream.to_be_bytes());
    value.extend(ssn.to_be_bytes());
    value.extend(ppid.to_be_bytes());
    value.extend(payload);
    chunk(0, flags, &value)
}

/// Writes the correct checksum into a packet.
pub(crate) fn seal(packet: &mut [u8]) {
    if packet.len() >= 12 {
        packet[8..12].fill(0);
        let sum = crc32c::crc32c(packet);
        packet[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

pub(crate) struct Client {
    socket: RawSocket,
    to: Ipv4Addr,
    port: u16,
    server_port: u16,
    /// Verification tag of the server.
    pub(crate) tag: u32,
    /// The next TSN to send.
    pub(crate) tsn: u32,
}

const OUR_TAG: u32 = 0x0102_0304;
const FIRST_TSN: u32 = 100;

impl Client {
    pub(crate) fn new(at: Ipv4Addr, port: u16, to: Ipv4Addr, server_port: u16) -> Self {
        Self { socket: RawSocket::new(at), to, port, server_port, tag: 0, tsn: FIRST_TSN }
    }

    pub(crate) fn packet(&self, chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut packet = self.port.to_be_bytes().to_vec();
        packet.extend(self.server_port.to_be_bytes());
        packet.extend(self.tag.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(chunks.concat());
        seal(&mut packet);
        packet
    }

    pub(crate) fn send(&self, chunks: &[Vec<u8>]) {
        self.socket.send(self.to, &self.packet(chunks));
    }

    pub(crate) fn send_raw(&self, packet: &[u8]) {
        self.socket.send(self.to, packet);
    }

    /// Polls the server until a packet arrives that begins with a chunk of this type.
    pub(crate) fn wait_for(&self, kind: u8, server: &mut Server) -> Vec<u8> {
        let start = Instant::now();
        loop {
            server.poll();
            while let Some(packet) = self.socket.receive() {
                let ports = [self.server_port.to_be_bytes(), self.port.to_be_bytes()].concat();
                if packet.get(..4) == Some(&ports) && packet.get(12) == Some(&kind) {
                    let mut copy = packet.clone();
                    seal(&mut copy);
                    assert_eq!(copy, packet, "the server's checksum");
                    return packet;
                }
            }
            assert!(start.elapsed() < Duration::from_secs(5), "no chunk of kind {kind}");
        }
    }

    pub(crate) fn init(&self) -> Vec<u8> {
        let mut value = OUR_TAG.to_be_bytes().to_vec();
        value.extend(200_000_u32.to_be_bytes());
        value.extend([0, 16, 0, 16]);
        value.extend(FIRST_TSN.to_be_bytes());
        chunk(INIT, 0, &value)
    }

    /// Sets up an association: INIT, INIT ACK, COOKIE ECHO, COOKIE ACK.
    pub(crate) fn associate(&mut self, server: &mut Server) {
        self.tag = 0;
        self.tsn = FIRST_TSN;
        self.send(&[self.init()]);
        let answer = self.wait_for(INIT_ACK, server);
        assert_eq!(answer[4..8], OUR_TAG.to_be_bytes());
        self.tag = u32::from_be_bytes(answer[16..20].try_into().expect("a tag"));
        // Parameters follow the fixed part; the state cookie is number 7.
        let mut at = 12 + 20;
        while u16::from_be_bytes([answer[at], answer[at + 1]]) != 7 {
            at += usize::from(u16::from_be_bytes([answer[at + 2], answer[at + 3]])).next_multiple_of(4);
        }
        let length = usize::from(u16::from_be_bytes([answer[at + 2], answer[at + 3]]));
        self.send(&[chunk(COOKIE_ECHO, 0, &answer[at + 4..at + length])]);
        self.wait_for(COOKIE_ACK, server);
    }
}

/// The endpoint under attack, with a record of its events.
pub(crate) struct Server {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) ups: usize,
    /// The association that came up last.
    pub(crate) last: Option<AssocId>,
    pub(crate) downs: Vec<&'static str>,
    pub(crate) messages: Vec<(u16, u32, Vec<u8>)>,
}

impl Server {
    pub(crate) fn new(endpoint: Box<dyn Endpoint>) -> Self {
        Self { endpoint, ups: 0, last: None, downs: Vec::new(), messages: Vec::new() }
    }

    pub(crate) fn poll(&mut self) {
        let Self { endpoint, ups, last, downs, messages } = self;
        let polled = endpoint.poll(Some(Duration::from_millis(1)), &mut |event| match event {
            Event::Up { assoc, .. } => {
                *ups += 1;
                *last = Some(assoc);
            }
            Event::Down { reason, .. } => downs.push(reason),
            Event::Message { stream, ppid, data, .. } => messages.push((stream, ppid, data.to_vec())),
            _ => {}
        });
        polled.expect("poll");
    }

    pub(crate) fn poll_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < Duration::from_secs(5), "never happened: {what}");
            self.poll();
        }
    }
}
