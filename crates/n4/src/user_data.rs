//! GTP-U socket of the control plane, for user data that are sent over NAS.
//!
//! The control plane has the end of a tunnel of each such session (S11-U, N4-u of TS 29.244 5.3).
//! Its TEID names the session, and G-PDUs leave as the session has built them.

use crate::udp::{self, DatagramReceiver, DatagramSender};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use vireo_types::Seid;
use vireo_wire::gtpu::{self, MessageType, Packet, SIGNALLING_OCTETS};

/// A GTP-U socket. It never blocks. A datagram that a socket has no room for is lost, as on the
/// network.
#[derive(Debug)]
pub(crate) struct UserDataSocket {
    socket: UdpSocket,
    inbox: DatagramReceiver,
    outbox: DatagramSender,
}

impl UserDataSocket {
    /// Opens the socket. The successor of a hot restart opens it beside its predecessor.
    pub(crate) fn bind(address: IpAddr) -> io::Result<Self> {
        let socket = udp::bind_shared(SocketAddr::new(address, gtpu::PORT))?;
        Ok(UserDataSocket { socket, inbox: DatagramReceiver::new(), outbox: DatagramSender::default() })
    }

    /// Queues a G-PDU.
    pub(crate) fn push(&mut self, to: SocketAddr, g_pdu: &[u8]) {
        self.outbox.push(&self.socket, to, g_pdu);
    }

    /// Sends queued datagrams.
    pub(crate) fn flush(&mut self) {
        self.outbox.flush(&self.socket);
    }

    /// Receives up to one batch and passes on G-PDUs with the session of their TEID. Returns true
    /// if more may be waiting. `is_ue` returns true for the address of a UE, whose datagrams are
    /// ignored.
    pub(crate) fn receive(
        &mut self,
        is_ue: impl Fn(IpAddr) -> bool,
        mut deliver: impl FnMut(SocketAddr, Seid, &[u8]),
    ) -> io::Result<bool> {
        let UserDataSocket { socket, inbox, outbox } = self;
        let count = inbox.receive(socket)?;
        for (from, datagram) in inbox.datagrams(count).filter(|(from, _)| !is_ue(from.ip().to_canonical())) {
            let Ok(packet) = Packet::parse(datagram) else { continue };
            match (packet.kind, packet.teid.session_at_control_plane()) {
                (MessageType::GPdu, Some(seid)) => deliver(from, seid, datagram),
                (MessageType::EchoRequest, _) => {
                    let mut buffer = [0; SIGNALLING_OCTETS];
                    if let Ok(answer) = gtpu::echo_response(&mut buffer, packet.sequence.unwrap_or_default()) {
                        outbox.push(socket, from, answer);
                    }
                }
                _ => {}
            }
        }
        Ok(count == DatagramReceiver::BATCH)
    }
}

impl AsRawFd for UserDataSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
