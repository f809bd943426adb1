//! GTP-U sockets of the gNBs of one worker.

use crate::error::Error;
use crate::gnb::Tunnel;
use crate::report::UserPlane;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use vireo_sctp::Endpoint;
use vireo_types::Teid;
use vireo_wire::gtpu::{self, MessageType, Packet, PduSession};

/// Maximum number of datagrams per readiness event of a socket, so that signalling is not delayed.
const BURST: usize = 64;

/// Result of one datagram received on N3.
#[derive(Debug)]
pub(super) enum Received {
    /// User packet of a tunnel: its range of the buffer.
    Packet(Teid, std::ops::Range<usize>),
    /// GTP-U Error Indication for this tunnel end of the core.
    ErrorIndication(Option<gtpu::ErrorIndication>),
    /// A datagram that does not parse.
    Bad,
}

/// N3 sockets of a worker's gNBs.
#[derive(Debug, Default)]
pub(super) struct N3 {
    sockets: Vec<(IpAddr, UdpSocket)>,
    /// Receive buffer of one datagram.
    pub(super) buffer: Vec<u8>,
    frame: Vec<u8>,
    pub(super) counts: UserPlane,
}

impl N3 {
    /// Binds a socket for each address and registers it with the endpoint.
    pub(super) fn open(addresses: &[IpAddr], endpoint: &mut dyn Endpoint) -> Result<Self, Error> {
        let mut n3 = N3 { buffer: vec![0; 65_536], ..N3::default() };
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
            let (length, from) = match socket.recv_from(&mut self.buffer) {
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
                _ => {}
            }
        }
        None
    }
}
