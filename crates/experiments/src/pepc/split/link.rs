//! Message links between the parts of the split core.
//!
//! A link is UDP over loopback, as between separate network functions, or a pair of queues in
//! memory, which is the least possible cost.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use vireo_config::Failure;
use vireo_datapath::{UDP_BATCH, UdpReceiver, UdpSender};

/// Longest message in octets.
const LONGEST: usize = 512;
/// Capacity in messages: more than the events in progress.
const ROOM: usize = 1024;

/// Transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pepc) enum Carrier {
    /// UDP, with many datagrams per system call.
    Sockets,
    /// Queues in memory.
    Queues,
}

/// A message in a queue.
pub(super) struct Entry {
    octets: [u8; LONGEST],
    length: usize,
}

/// One end of a link.
pub(super) struct LinkEnd {
    pub(super) out: LinkSender,
    pub(super) inbox: LinkReceiver,
}

/// Sending half of a link end.
pub(super) enum LinkSender {
    Socket {
        socket: Arc<UdpSocket>,
        to: SocketAddr,
        sender: Box<UdpSender>,
        octets: Vec<u8>,
        /// Number of messages sent, shared with the other end.
        sent: Arc<AtomicU64>,
    },
    Queue(SyncSender<Entry>),
}

/// Receiving half of a link end.
pub(super) enum LinkReceiver {
    Socket {
        socket: Arc<UdpSocket>,
        receiver: Box<UdpReceiver>,
        /// Number of messages that the other end has sent. It avoids system calls without result.
        sent: Arc<AtomicU64>,
        received: u64,
    },
    Queue(Receiver<Entry>),
}

/// Returns the two ends of a new link.
pub(super) fn link(carrier: Carrier) -> Result<(LinkEnd, LinkEnd), Failure> {
    match carrier {
        Carrier::Queues => {
            let ((there, here), (back, home)) = (sync_channel(ROOM), sync_channel(ROOM));
            let one = LinkEnd { out: LinkSender::Queue(there), inbox: LinkReceiver::Queue(home) };
            Ok((one, LinkEnd { out: LinkSender::Queue(back), inbox: LinkReceiver::Queue(here) }))
        }
        Carrier::Sockets => {
            let bind = || -> Result<_, Failure> {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                socket.set_nonblocking(true)?;
                Ok((Arc::new(socket), Arc::new(AtomicU64::new(0))))
            };
            let (one, other) = (bind()?, bind()?);
            let door = |own: &(Arc<UdpSocket>, Arc<AtomicU64>), far: &(Arc<UdpSocket>, Arc<AtomicU64>)| {
                let out = LinkSender::Socket {
                    socket: Arc::clone(&own.0),
                    to: far.0.local_addr()?,
                    sender: Box::new(UdpSender::new()),
                    octets: vec![],
                    sent: Arc::clone(&own.1),
                };
                let receiver = Box::new(UdpReceiver::new(LONGEST));
                let inbox = LinkReceiver::Socket {
                    socket: Arc::clone(&own.0),
                    receiver,
                    sent: Arc::clone(&far.1),
                    received: 0,
                };
                Ok::<_, Failure>(LinkEnd { out, inbox })
            };
            Ok((door(&one, &other)?, door(&other, &one)?))
        }
    }
}

impl LinkSender {
    /// Sends a message, at [`LinkSender::flush`] at the latest.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        match self {
            LinkSender::Queue(queue) => {
                let mut entry = Entry { octets: [0; LONGEST], length: message.len() };
                let room =
                    entry.octets.get_mut(..message.len()).ok_or_else(|| Failure("a message is too long".into()))?;
                room.copy_from_slice(message);
                queue.try_send(entry).map_err(|_| Failure("a queue of messages between the parts is full".into()))
            }
            LinkSender::Socket { to, sender, octets, .. } => {
                let start = octets.len();
                octets.extend_from_slice(message);
                sender.queue(*to, start, octets.len(), message.len());
                if sender.len() == UDP_BATCH { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Sends all waiting messages.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if let LinkSender::Socket { socket, sender, octets, sent, .. } = self
            && !sender.is_empty()
        {
            let mut messages = 0;
            if sender.flush(socket, octets, |_| messages += 1) > 0 {
                return Err(Failure(
                    "a message between the parts cannot be sent: is the loopback interface up?".into(),
                ));
            }
            octets.clear();
            sent.fetch_add(messages, Relaxed);
        }
        Ok(())
    }
}

impl LinkReceiver {
    /// Passes received messages to `each`, at most one batch. Returns true if there were any.
    pub(super) fn take(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<bool, Failure> {
        let mut count = 0;
        match self {
            LinkReceiver::Queue(queue) => {
                while count < UDP_BATCH
                    && let Ok(Entry { octets, length }) = queue.try_recv()
                {
                    each(&octets[..length])?;
                    count += 1;
                }
            }
            LinkReceiver::Socket { socket, receiver, sent, received } => {
                if sent.load(Relaxed) == *received {
                    return Ok(false);
                }
                count = receiver.receive(socket)?;
                for n in 0..count {
                    let (_, octets) = receiver.datagram(n);
                    each(octets.ok_or_else(|| Failure("a message is too long".into()))?)?;
                }
                *received += count as u64;
            }
        }
        Ok(count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_by_either_carrier() {
        for carrier in [Carrier::Queues, Carrier::Sockets] {
            let (mut one, mut other) = link(carrier).unwrap();
            assert!(!other.inbox.take(|_| panic!("nothing was sent")).unwrap());
            for n in 0..40 {
                one.out.send(&[n; 200]).unwrap();
            }
            one.out.flush().unwrap();
            let mut got = vec![];
            let mut each = |octets: &[u8]| {
                got.push((octets[0], octets.len()));
                Ok(())
            };
            while other.inbox.take(&mut each).unwrap() {}
            assert_eq!(got, (0..40).map(|n| (n, 200)).collect::<Vec<_>>(), "{carrier:?}");
            other.out.send(b"back").unwrap();
            other.out.flush().unwrap();
            let mut back = vec![];
            let mut each = |octets: &[u8]| {
                back.extend_from_slice(octets);
                Ok(())
            };
            assert!(one.inbox.take(&mut each).unwrap());
            assert_eq!(back, b"back");
        }
    }
}
