//! Outgoing packets of the library: translated to wire ports, and bundled.
//!
//! The library creates a packet for each message and one for each SACK. Packets to the same peer
//! that are sent together are bundled into one, as RFC 9260 6.10 allows. A packet costs the kernels
//! of both ends far more than a chunk costs this process. Bundling delays nothing: it covers the
//! packets that are present when the endpoint sends.

use super::checksum;
use super::shared::{Route, Routes};
use crate::assocs::FastMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Chunk types (RFC 9260 3.2) that may be bundled after other chunks.
const DATA: u8 = 0;
const SACK: u8 = 3;
/// Chunk type with the verification tag that the peer must use.
const INIT: u8 = 1;
/// Chunk type whose contents the peer returns.
const HEARTBEAT: u8 = 4;
/// Bytes of the common header, and of a chunk header.
const HEADER: usize = 12;
const CHUNK_HEADER: usize = 4;

/// Outgoing packets, in the order in which they were opened.
#[derive(Debug)]
pub(super) struct Packets {
    list: Vec<Outgoing>,
    bytes: Vec<u8>,
    /// The last packet of each association (by its virtual ports), if chunks may still be added to
    /// it.
    open: FastMap<u32, usize>,
    /// Maximum bytes of a packet, including the common header.
    room: usize,
    /// True if there is more than acknowledgements.
    urgent: bool,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) transport: u8,
    pub(super) to: SocketAddr,
    pub(super) source: Option<IpAddr>,
    start: usize,
    length: usize,
    room: usize,
}

/// Contents of a packet of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketContents {
    /// An optional SACK of `sack` bytes (0: none), followed only by DATA.
    Bundles { sack: usize },
    /// Any other contents, which must not be bundled.
    Alone,
}

impl Packets {
    /// Creates an empty list. `room` is the path MTU without IP and UDP headers.
    pub(super) fn new(room: usize) -> Self {
        Self { list: Vec::new(), bytes: Vec::new(), open: FastMap::default(), room, urgent: false }
    }

    /// Adds a packet of the library. A packet to an unknown peer is dropped.
    pub(super) fn push(&mut self, routes: &mut Routes, packet: &[u8], wire_ports: &[u16]) {
        let Some(&[a, b, c, d]) = packet.first_chunk() else { return };
        let (own, virtual_peer) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let key = (u32::from(own) << 16) | u32::from(virtual_peer);
        let shape = shape(packet);
        self.urgent |= !matches!(shape, PacketContents::Bundles { sack } if HEADER + sack == packet.len());
        if let PacketContents::Bundles { sack } = shape
            && let Some(index) = self.open.get(&key)
            && self.bundle(*index, packet, sack)
        {
            return;
        }
        let Some(Route { peer, transport, source }) = routes.find(virtual_peer) else { return };
        if let Some(&[INIT, _, _, _, t, a, g, s]) = packet.get(HEADER..).and_then(|chunk| chunk.first_chunk()) {
            routes.peers.propose_tag(virtual_peer, u32::from_be_bytes([t, a, g, s]));
        }
        if shape == PacketContents::Alone
            && routes.peers.is_probed(virtual_peer)
            && let Some(heartbeat) = chunk(packet, HEARTBEAT)
        {
            routes.peers.on_heartbeat_sent(virtual_peer, heartbeat);
        }
        let room = if shape == PacketContents::Alone { packet.len() } else { self.room.max(packet.len()) };
        let (start, length) = (self.bytes.len(), packet.len());
        self.bytes.extend_from_slice(packet);
        self.bytes.resize(start + room, 0);
        let header = &mut self.bytes[start..];
        header[..2].copy_from_slice(&wire_ports[usize::from(own)].to_be_bytes());
        header[2..4].copy_from_slice(&peer.port.to_be_bytes());
        self.list.push(Outgoing { transport, to: peer.address, source, start, length, room });
        if shape == PacketContents::Alone {
            self.open.remove(&key);
        } else {
            self.open.insert(key, self.list.len() - 1);
        }
    }

    /// Adds the chunks of a packet to an open one. Returns false if they do not fit or belong
    /// elsewhere.
    ///
    /// A SACK replaces the previous one, which it supersedes, at the front, where control chunks
    /// must be.
    fn bundle(&mut self, index: usize, packet: &[u8], sack: usize) -> bool {
        let Some(open) = self.list.get_mut(index) else { return false };
        let Some(slot) = self.bytes.get_mut(open.start..open.start + open.room) else { return false };
        let same_tag = slot.get(4..8) == packet.get(4..8);
        let old = match shape(&slot[..open.length]) {
            PacketContents::Bundles { sack: old } if sack > 0 => old,
            PacketContents::Bundles { .. } => 0,
            PacketContents::Alone => return false,
        };
        let length = open.length - old + packet.len() - HEADER;
        if !same_tag || length > open.room {
            return false;
        }
        if sack > 0 {
            slot.copy_within(HEADER + old..open.length, HEADER + sack);
            slot[HEADER..HEADER + sack].copy_from_slice(&packet[HEADER..HEADER + sack]);
        }
        let data = &packet[HEADER + sack..];
        slot[length - data.len()..length].copy_from_slice(data);
        open.length = length;
        true
    }

    /// Writes the checksums. Until [`Packets::clear`] no packet may be added.
    pub(super) fn seal(&mut self) {
        for outgoing in &self.list {
            if let Some(packet) = self.bytes.get_mut(outgoing.range()) {
                checksum::write(packet);
            }
        }
        self.open.clear();
    }

    /// Returns the packets in order, grouped by transport.
    pub(super) fn by_transport(&self) -> impl Iterator<Item = &[Outgoing]> {
        self.list.chunk_by(|a, b| a.transport == b.transport)
    }

    pub(super) fn bytes(&self, outgoing: &Outgoing) -> &[u8] {
        &self.bytes[outgoing.range()]
    }

    /// Returns true if there are only acknowledgements.
    pub(super) fn are_sacks(&self) -> bool {
        !self.urgent
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.open.clear();
        self.urgent = false;
        // A burst must not occupy its memory permanently.
        self.bytes.shrink_to(1 << 20);
    }
}

impl Outgoing {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.length
    }
}

/// Returns the value of the first chunk of a type in a packet.
pub(super) fn chunk(packet: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = packet.get(HEADER..)?;
    while let Some(&[kind, _, high, low]) = rest.first_chunk::<CHUNK_HEADER>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let value = rest.get(CHUNK_HEADER..length)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Classifies a packet of the library by its chunks.
fn shape(packet: &[u8]) -> PacketContents {
    let (mut at, mut sack) = (HEADER, 0);
    while let Some(&[kind, _, high, low]) = packet.get(at..).and_then(|rest| rest.first_chunk::<CHUNK_HEADER>()) {
        let length = usize::from(u16::from_be_bytes([high, low])).next_multiple_of(4);
        match kind {
            SACK if at == HEADER => sack = length,
            DATA => {}
            _ => return PacketContents::Alone,
        }
        if length < CHUNK_HEADER || at + length > packet.len() {
            return PacketContents::Alone;
        }
        at += length;
    }
    if at == packet.len() && at > HEADER { PacketContents::Bundles { sack } } else { PacketContents::Alone }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userspace::peers::Peer;

    const WIRE: u16 = 38412;

    fn chunk(kind: u8, mark: u8, size: usize) -> Vec<u8> {
        let length = CHUNK_HEADER + size;
        let mut chunk = vec![kind, 0, (length >> 8) as u8, length as u8];
        chunk.resize(length.next_multiple_of(4), mark);
        chunk
    }

    fn packet(peer: u16, tag: u8, chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut packet = vec![0x10, 0, (peer >> 8) as u8, peer as u8, tag, tag, tag, tag, 0, 0, 0, 0];
        packet.extend(chunks.concat());
        packet
    }

    fn setup() -> (Routes, u16, Vec<u16>) {
        let mut routes = Routes::new(1);
        let address = "192.0.2.9:0".parse().expect("an address");
        let port = routes.peers.enter(Peer { address, port: 9000, local: 0 }).expect("a port");
        let mut wire_ports = vec![0; 1 << 16];
        wire_ports[0x1000] = WIRE;
        (routes, port, wire_ports)
    }

    /// Returns the chunks of each outgoing packet, after a check of its header and checksum.
    fn leaving(packets: &mut Packets) -> Vec<Vec<u8>> {
        packets.seal();
        let all: Vec<&Outgoing> = packets.by_transport().flatten().collect();
        all.iter()
            .map(|outgoing| {
                let packet = packets.bytes(outgoing);
                assert!(checksum::is_right(packet));
                assert_eq!(packet[..4], [(WIRE >> 8) as u8, WIRE as u8, (9000 >> 8) as u8, (9000 & 0xff) as u8]);
                packet[HEADER..].to_vec()
            })
            .collect()
    }

    #[test]
    fn messages_share_packet_with_latest_sack() {
        let (mut routes, peer, ports) = setup();
        let mut packets = Packets::new(1480);
        let (first, second) = (chunk(SACK, 1, 12), chunk(SACK, 2, 20));
        packets.push(&mut routes, &packet(peer, 5, std::slice::from_ref(&second)), &ports);
        assert!(packets.are_sacks());
        for chunks in [vec![first.clone()], vec![chunk(DATA, 3, 50)], vec![second.clone()], vec![chunk(DATA, 4, 7)]] {
            packets.push(&mut routes, &packet(peer, 5, &chunks), &ports);
        }
        let both = vec![first, chunk(DATA, 5, 9)];
        packets.push(&mut routes, &packet(peer, 5, &both), &ports);
        assert!(!packets.are_sacks());
        let want = [chunk(SACK, 1, 12), chunk(DATA, 3, 50), chunk(DATA, 4, 7), chunk(DATA, 5, 9)].concat();
        assert_eq!(leaving(&mut packets), [want]);
    }

    #[test]
    fn full_packet_is_followed_by_another() {
        let (mut routes, peer, ports) = setup();
        let mut packets = Packets::new(300);
        for mark in 0..20 {
            packets.push(&mut routes, &packet(peer, 5, &[chunk(DATA, mark, 60)]), &ports);
        }
        let left = leaving(&mut packets);
        assert!(left.iter().all(|chunks| chunks.len() + HEADER <= 300), "{left:?}");
        assert_eq!(left.len(), 5);
        assert_eq!(left.concat(), (0..20).flat_map(|mark| chunk(DATA, mark, 60)).collect::<Vec<u8>>());
    }

    #[test]
    fn other_chunks_are_not_bundled() {
        let (mut routes, peer, ports) = setup();
        let mut packets = Packets::new(1480);
        let (data, heartbeat) = (chunk(DATA, 1, 8), chunk(4, 2, 40));
        packets.push(&mut routes, &packet(peer, 5, std::slice::from_ref(&data)), &ports);
        packets.push(&mut routes, &packet(peer, 5, std::slice::from_ref(&heartbeat)), &ports);
        packets.push(&mut routes, &packet(peer, 5, std::slice::from_ref(&data)), &ports);
        packets.push(&mut routes, &packet(peer, 6, std::slice::from_ref(&data)), &ports);
        packets.push(&mut routes, &packet(peer ^ 1, 5, std::slice::from_ref(&data)), &ports);
        assert_eq!(leaving(&mut packets), [data.clone(), heartbeat, data.clone(), data]);
    }

    #[test]
    fn chunk_is_found_after_others() {
        let whole = packet(1, 1, &[chunk(SACK, 1, 12), chunk(5, 2, 7), chunk(HEARTBEAT, 3, 40)]);
        assert_eq!(super::chunk(&whole, 5), Some(&[2; 7][..]));
        assert_eq!(super::chunk(&whole, HEARTBEAT), Some(&[3; 40][..]));
        assert_eq!(super::chunk(&whole, DATA), None);
        for length in 0..whole.len() {
            assert_eq!(super::chunk(&whole[..length], HEARTBEAT), None, "{length}");
        }
        assert_eq!(super::chunk(&packet(1, 1, &[vec![DATA, 0, 0, 3]]), HEARTBEAT), None, "a length below a header's");
    }

    #[test]
    fn broken_packets_are_not_bundled() {
        assert_eq!(shape(&packet(1, 1, &[])), PacketContents::Alone);
        assert_eq!(shape(&[0; 3]), PacketContents::Alone);
        let whole = packet(1, 1, &[chunk(SACK, 1, 12), chunk(DATA, 1, 50)]);
        assert_eq!(shape(&whole), PacketContents::Bundles { sack: 16 });
        for length in 0..whole.len() {
            let bundles = length == HEADER + 16;
            assert_eq!(shape(&whole[..length]) == PacketContents::Bundles { sack: 16 }, bundles, "{length}");
        }
        let zero = packet(1, 1, &[vec![DATA, 0, 0, 0]]);
        assert_eq!(shape(&zero), PacketContents::Alone);
    }
}
