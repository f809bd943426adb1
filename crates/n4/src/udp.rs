//! UDP sockets that control planes speak over, many datagrams to a system call.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use vireo_datapath::Volume;
use vireo_datapath::udp::{BATCH, Receiver, Sender};

/// Room for the requests of a burst: a gNB with thousands of sessions that goes away makes one PFCP request for each at
/// once, and what the default buffer does not take comes again only after T1.
const BURST_OCTETS: usize = 8 << 20;
/// The longest datagram there is.
const DATAGRAM: usize = 65_536;

/// Opens a socket that does not block and whose buffer takes a burst. The system may give less room
/// (`net.core.rmem_max`): what is lost then is repeated.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    if let Err(error) = socket2::SockRef::from(&socket).set_recv_buffer_size(BURST_OCTETS) {
        tracing::debug!(%error, "the receive buffer of {address} stays as it is");
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What comes in.
#[derive(Debug)]
pub struct DatagramReceiver(Receiver);

impl Default for DatagramReceiver {
    fn default() -> Self {
        DatagramReceiver::new()
    }
}

impl DatagramReceiver {
    /// Room for datagrams of any length; the system gives the memory as it is used.
    pub fn new() -> Self {
        DatagramReceiver(Receiver::new(DATAGRAM))
    }

    /// Receives what is there, at most [`DatagramReceiver::BATCH`] datagrams, and tells how many; 0 if there are none.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.0.receive(socket)
    }

    /// Datagrams that one call receives at the most: if it was so many there may be more.
    pub const BATCH: usize = BATCH;

    /// Those received last, with where they came from.
    pub fn datagrams(&self, count: usize) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        (0..count).filter_map(|n| match self.0.datagram(n) {
            (from, Some(datagram)) => Some((from, datagram)),
            (_, None) => None,
        })
    }
}

/// What goes out: it leaves when there is a batch of it, and by [`DatagramSender::flush`].
#[derive(Debug, Default)]
pub struct DatagramSender {
    sender: Sender,
    octets: Vec<u8>,
    unsent: u64,
}

impl DatagramSender {
    /// Queues a datagram.
    pub fn push(&mut self, socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(datagram);
        self.sender.queue(to, start, self.octets.len(), datagram.len());
        if self.sender.len() == BATCH {
            self.flush(socket);
        }
    }

    /// Sends what is queued. A datagram that the socket does not take is lost as if on the network.
    pub fn flush(&mut self, socket: &UdpSocket) {
        if !self.sender.is_empty() {
            self.unsent += self.sender.flush(socket, &self.octets, &mut Volume::default());
            self.octets.clear();
        }
    }

    /// Datagrams that the socket did not take.
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
        for n in 0..=BATCH as u8 {
            outbox.push(&ours, to, &vec![n; usize::from(n) + 1]);
        }
        let mut inbox = DatagramReceiver::new();
        assert_eq!(inbox.receive(&peer).expect("received"), BATCH, "the last one waits");
        let from = ours.local_addr().expect("bound");
        for (n, got) in inbox.datagrams(BATCH).enumerate() {
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
