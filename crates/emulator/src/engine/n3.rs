//! GTP-U sockets of the gNBs of one worker.

use crate::error::Error;
use crate::gnb::Tunnel;
use crate::ran::ForwardingEnd;
use crate::report::UserPlane;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use vireo_sctp::Endpoint;
use vireo_types::Teid;
use vireo_wire::gtpu::{self, MessageType, Packet, PduSession};

/// Maximum number of datagrams per readiness event of a socket, so that signalling is not delayed.
const BURST: usize = 64;

/// Time after which a source forwards no more packets.
const FORWARDS_US: u64 = 10_000_000;
/// Start of the half of the buffer that no datagram is received into.
pub(super) const SECOND_HALF: usize = 65_536;

/// Result of one datagram received on N3.
#[derive(Debug)]
pub(super) enum Received {
    /// User packet of a tunnel: its range of the buffer.
    Packet(Teid, std::ops::Range<usize>),
    /// End Marker of a tunnel.
    EndMarker(Teid),
    /// GTP-U Error Indication for this tunnel end of the core.
    ErrorIndication(Option<gtpu::ErrorIndication>),
    /// A datagram that does not parse.
    Bad,
}

/// Tunnels by which source nodes forward packets.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    /// By the TEID of the session at the source, with the address of the source.
    pub(super) by_teid: FxHashMap<Teid, (IpAddr, ForwardingEnd)>,
    /// Expiry of each, in ascending order.
    order: VecDeque<(u64, Teid)>,
}

impl Forwarding {
    pub(super) fn insert(&mut self, n3: IpAddr, end: ForwardingEnd, now_us: u64) {
        while let Some((_, teid)) = self.order.pop_front_if(|(until, _)| *until <= now_us) {
            self.by_teid.remove(&teid);
        }
        self.by_teid.insert(end.tunnel.downlink, (n3, end));
        self.order.push_back((now_us + FORWARDS_US, end.tunnel.downlink));
    }
}

/// N3 sockets of a worker's gNBs.
#[derive(Debug, Default)]
pub(super) struct N3 {
    sockets: Vec<(IpAddr, UdpSocket)>,
    /// Receive buffer of one datagram, and room for a stored packet.
    pub(super) buffer: Vec<u8>,
    frame: Vec<u8>,
    pub(super) counts: UserPlane,
    pub(super) forwarding: Forwarding,
}

impl N3 {
    /// Binds a socket for each address and registers it with the endpoint.
    pub(super) fn open(addresses: &[IpAddr], endpoint: &mut dyn Endpoint) -> Result<Self, Error> {
        let mut n3 = N3 { buffer: vec![0; 2 * SECOND_HALF], ..N3::default() };
        for address in addresses {
            if n3.sockets.iter().any(|(known, _)| known == address) {
                continue;
            }
            let what = || format!("binding the gNB's GTP-U socket to {address} port {}", gtpu::PORT);
            let socket = UdpSocket::bind((*address, gtpu::PORT)).map_err(Error::io(what()))?;
            socket.set_nonblocking(true).map_err(Error::io(what()))?;
            endpoint.watch(socket.as_raw_fd(), n3.sockets.len() as u64).map_err(Error::io(what()))?;
            n3.sockets.push((*address, socket));
        }
        Ok(n3)
    }

    /// Sends an uplink packet through a tunnel of the gNB at `from`. `write` appends the packet to
    /// the GTP-U header.
    pub(super) fn send(
        &mut self,
        from: IpAddr,
        tunnel: &Tunnel,
        write: impl FnOnce(&mut Vec<u8>) -> Option<()>,
    ) -> Option<()> {
        let (_, socket) = self.sockets.iter().find(|(address, _)| *address == from)?;
        self.frame.clear();
        let room = if tunnel.qfi.is_some() { gtpu::G_PDU_HEADER } else { gtpu::PLAIN_HEADER };
        self.frame.resize(room, 0);
        write(&mut self.frame)?;
        let length = self.frame.len() - room;
        match tunnel.qfi {
            Some(qfi) => {
                let header = gtpu::g_pdu_header(tunnel.uplink, PduSession::Uplink { qfi }, length)?;
                self.frame[..room].copy_from_slice(&header);
            }
            None => self.frame[..room].copy_from_slice(&gtpu::plain_g_pdu_header(tunnel.uplink, length)?),
        }
        // A full or refusing socket counts as packet loss; the echo's deadline detects it.
        if socket.send_to(&self.frame, SocketAddr::new(tunnel.upf, gtpu::PORT)).is_ok() {
            self.counts.up_packets += 1;
            self.counts.up_octets += length as u64;
        }
        Some(())
    }

    /// Sends a received packet on by the forwarding tunnel of the node at `from`, in the QoS flow
    /// of the session. Returns true if it was sent.
    pub(super) fn forward(&mut self, from: IpAddr, end: &ForwardingEnd, range: std::ops::Range<usize>) -> bool {
        let Some((_, socket)) = self.sockets.iter().find(|(address, _)| *address == from) else { return false };
        let length = range.len();
        self.frame.clear();
        match end.tunnel.qfi {
            Some(qfi) => {
                let flow = PduSession::Downlink { qfi, rqi: false };
                self.frame.extend(gtpu::g_pdu_header(end.teid, flow, length).into_iter().flatten());
            }
            None => self.frame.extend(gtpu::plain_g_pdu_header(end.teid, length).into_iter().flatten()),
        }
        self.frame.extend_from_slice(&self.buffer[range]);
        socket.send_to(&self.frame, SocketAddr::new(end.to, gtpu::PORT)).is_ok()
    }

    /// Sends an End Marker by the forwarding tunnel of the node at `from`.
    pub(super) fn forward_end_marker(&self, from: IpAddr, end: &ForwardingEnd) {
        let mut octets = [0; gtpu::SIGNALLING_OCTETS];
        let socket = self.sockets.iter().find(|(address, _)| *address == from);
        if let (Some((_, socket)), Ok(marker)) = (socket, gtpu::end_marker(&mut octets, end.teid)) {
            // A lost End Marker delays packets at the target.
            let _ = socket.send_to(marker, SocketAddr::new(end.to, gtpu::PORT));
        }
    }

    /// Sends an Error Indication to the UPF at `to`: the gNB at `from` has no tunnel with that
    /// TEID.
    pub(super) fn indicate_error(&self, (from, teid): (IpAddr, Teid), to: IpAddr) {
        let mut octets = [0; gtpu::SIGNALLING_OCTETS];
        let socket = self.sockets.iter().find(|(address, _)| *address == from);
        if let (Some((_, socket)), Ok(message)) = (socket, gtpu::error_indication_message(&mut octets, 0, teid, from)) {
            let _ = socket.send_to(message, SocketAddr::new(to, gtpu::PORT));
        }
    }

    /// Receives the next datagram of a socket. Answers path management messages.
    pub(super) fn receive(&mut self, token: u64) -> Option<Received> {
        for _ in 0..BURST {
            let (_, socket) = self.sockets.get(token as usize)?;
            let (length, from) = match socket.recv_from(&mut self.buffer[..SECOND_HALF]) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // An ICMP error for an earlier packet.
                Err(_) => continue,
            };
            let Ok(packet) = Packet::parse(&self.buffer[..length]) else { return Some(Received::Bad) };
            match packet.kind {
                MessageType::GPdu => {
                    self.counts.down_packets += 1;
                    self.counts.down_octets += packet.payload.len() as u64;
                    let start = packet.payload.as_ptr() as usize - self.buffer.as_ptr() as usize;
                    return Some(Received::Packet(packet.teid, start..start + packet.payload.len()));
                }
                MessageType::EchoRequest => {
                    let mut answer = [0; gtpu::SIGNALLING_OCTETS];
                    if let Ok(answer) = gtpu::echo_response(&mut answer, packet.sequence.unwrap_or(0)) {
                        let _ = socket.send_to(answer, from);
                    }
                }
                MessageType::ErrorIndication => {
                    return Some(Received::ErrorIndication(gtpu::error_indication(packet.payload)));
                }
                MessageType::EndMarker => return Some(Received::EndMarker(packet.teid)),
                _ => {}
            }
        }
        None
    }
}
