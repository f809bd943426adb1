use super::{Config, Counters, Event, N4, Sink, SubmitError, Submitted};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use vireo_types::{Instant, Seid};
use vireo_wire::pfcp::Error;

/// Datagrams taken by one [`Endpoint::poll`], so that timers are never starved.
const BATCH: usize = 256;

/// [`N4`] with a UDP socket: a shell that the node's loop polls. It never blocks; a datagram that the socket does not
/// take is lost as if on the network, and repeated as such.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    n4: N4,
    buffer: Vec<u8>,
    unsent: u64,
}

struct Wire<'a> {
    socket: &'a UdpSocket,
    unsent: &'a mut u64,
    events: &'a mut dyn FnMut(Event<'_>),
}

impl Sink for Wire<'_> {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        if self.socket.send_to(octets, to).is_err() {
            *self.unsent += 1;
        }
    }

    fn event(&mut self, event: Event<'_>) {
        (self.events)(event);
    }
}

impl Endpoint {
    /// Opens the socket at `address`; its port is 8805 unless the peers know better.
    pub fn bind(address: SocketAddr, config: Config) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        crate::burst_buffer(&socket);
        socket.set_nonblocking(true)?;
        Ok(Endpoint { socket, n4: N4::new(config), buffer: vec![0; usize::from(u16::MAX)], unsent: 0 })
    }

    /// The address of the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The state without the socket.
    pub fn n4(&self) -> &N4 {
        &self.n4
    }

    /// What was counted since the start.
    pub fn counters(&self) -> Counters {
        self.n4.counters()
    }

    /// Datagrams that the socket did not take.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Takes what has arrived (at most 256 datagrams) and does what is due. Says when to come again at the latest; at
    /// once if there may be more datagrams.
    pub fn poll(&mut self, now: Instant, events: &mut dyn FnMut(Event<'_>)) -> io::Result<Option<Instant>> {
        let mut wire = Wire { socket: &self.socket, unsent: &mut self.unsent, events };
        let mut more = true;
        for _ in 0..BATCH {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((length, from)) => self.n4.on_datagram(now, from, &self.buffer[..length], &mut wire),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    more = false;
                    break;
                }
                // an ICMP error of an earlier datagram, or a signal
                Err(error) if transient(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        let next = self.n4.on_time(now, &mut wire);
        Ok(if more { Some(now) } else { next })
    }

    /// See [`N4::submit`].
    pub fn submit(
        &mut self,
        now: Instant,
        upf: SocketAddr,
        key: Option<u64>,
        seid: Seid,
        message: &[u8],
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<Submitted, SubmitError> {
        let mut wire = Wire { socket: &self.socket, unsent: &mut self.unsent, events };
        self.n4.submit(now, upf, key, seid, message, &mut wire)
    }

    /// See [`N4::refuse_report`].
    pub fn refuse_report(&mut self, now: Instant, upf: SocketAddr, report: &[u8], error: Error) {
        let mut wire = Wire { socket: &self.socket, unsent: &mut self.unsent, events: &mut |_| {} };
        self.n4.refuse_report(now, upf, report, error, &mut wire);
    }

    /// See [`N4::release_all`].
    pub fn release_all(&mut self, now: Instant) {
        let mut wire = Wire { socket: &self.socket, unsent: &mut self.unsent, events: &mut |_| {} };
        self.n4.release_all(now, &mut wire);
    }
}

fn transient(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable};
    matches!(kind, ConnectionRefused | HostUnreachable | Interrupted | NetworkUnreachable)
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Endpoint {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
