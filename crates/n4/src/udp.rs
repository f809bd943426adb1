//! UDP sockets of control planes, with batched system calls.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use vireo_datapath::{UDP_BATCH, UdpReceiver, UdpSender};

/// Receive buffer in bytes for a burst of requests. A failing gNB with thousands of sessions causes
/// one PFCP request for each at once. Requests beyond the default buffer would be repeated only
/// after T1.
const BURST_OCTETS: usize = 8 << 20;
/// Maximum size of a datagram in bytes.
const DATAGRAM: usize = 65_536;

/// Opens a non-blocking socket with a large receive buffer. The system may limit the buffer
/// (`net.core.rmem_max`); peers repeat requests that do not fit.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    if let Err(error) = socket2::SockRef::from(&socket).set_recv_buffer_size(BURST_OCTETS) {
        tracing::debug!(%error, "the receive buffer of {address} stays as it is");
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Opens a non-blocking socket at an address at which another process may have one, too.
pub fn bind_shared(address: SocketAddr) -> io::Result<UdpSocket> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking().cloexec(), None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Receiver of datagrams in batches.
#[derive(Debug)]
pub struct DatagramReceiver(UdpReceiver);

impl Default for DatagramReceiver {
    fn default() -> Self {
        DatagramReceiver::new()
    }
}

impl DatagramReceiver {
    /// Creates a receiver for datagrams of any length. The system allocates its memory on use.
    pub fn new() -> Self {
        DatagramReceiver(UdpReceiver::new(DATAGRAM))
    }

    /// Receives up to [`DatagramReceiver::BATCH`] datagrams and returns their number; 0 if there
    /// are none.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.0.receive(socket)
    }

    /// Maximum number of datagrams per call. A full batch means that more may be waiting.
    pub const BATCH: usize = UDP_BATCH;

    /// Returns the last `count` received datagrams with their sources.
    pub fn datagrams(&self, count: usize) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        (0..count).filter_map(|n| match self.0.datagram(n) {
            (from, Some(datagram)) => Some((from, datagram)),
            (_, None) => None,
        })
    }
}

/// Sender of datagrams in batches. A batch leaves when it is full, or by [`DatagramSender::flush`].
#[derive(Debug, Default)]
pub struct DatagramSender {
    sender: UdpSender,
    octets: Vec<u8>,
    unsent: u64,
}

impl DatagramSender {
    /// Queues a datagram.
    pub fn push(&mut self, socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(datagram);
        self.sender.queue(to, start, self.octets.len(), datagram.len());
        if self.sender.len() == UDP_BATCH {
            self.flush(socket);
        }
    }

    /// Sends the queued datagrams. A datagram that the socket refuses is lost as on the network.
    pub fn flush(&mut self, socket: &UdpSocket) {
        if !self.sender.is_empty() {
            self.unsent += self.sender.flush(socket, &self.octets, |_| {});
            self.octets.clear();
        }
    }

    /// Returns the number of datagrams that the socket refused.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_leave_in_batches_and_in_order() {
        let local = "127.0.0.1:0".parse().expect("an address");
        let (ours, peer) = (bind(local).expect("bound"), bind(local).expect("bound"));
        let to = peer.local_addr().expect("bound");
        let mut outbox = DatagramSender::default();
        for n in 0..=UDP_BATCH as u8 {
            outbox.push(&ours, to, &vec![n; usize::from(n) + 1]);
        }
        let mut inbox = DatagramReceiver::new();
        assert_eq!(inbox.receive(&peer).expect("received"), UDP_BATCH, "the last one waits");
        let from = ours.local_addr().expect("bound");
        for (n, got) in inbox.datagrams(UDP_BATCH).enumerate() {
            assert_eq!(got, (from, &vec![n as u8; n + 1][..]));
        }
        assert_eq!(inbox.receive(&peer).expect("nothing"), 0);
        outbox.flush(&ours);
        outbox.flush(&ours);
        assert_eq!((inbox.receive(&peer).expect("received"), outbox.unsent()), (1, 0));
        outbox.push(&ours, "192.0.2.1:9".parse().expect("an address"), b"no way there from the loopback");
        outbox.flush(&ours);
        assert_eq!(outbox.unsent(), 1);
    }
}
