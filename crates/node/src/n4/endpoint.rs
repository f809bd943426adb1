use super::{Config, Counters, Event, N4, Sink, SubmitError, Submitted};
use crate::upf::Direct;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use vireo_types::{Instant, Seid};
use vireo_wire::pfcp::Error;

/// Datagrams taken by one [`Endpoint::poll`], so that timers are never starved.
const BATCH: usize = 256;

/// [`N4`] with a UDP socket: a shell that the node's loop polls. It never blocks; a datagram that the socket does not
/// take is lost as if on the network, and repeated as such. Requests to a UPF of the same process do not go there.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    /// Where answers go.
    address: SocketAddr,
    direct: Option<Direct>,
    n4: N4,
    buffer: Vec<u8>,
    /// What the UPF of this process answered and is not looked at yet.
    answers: VecDeque<Vec<u8>>,
    unsent: u64,
}

struct Wire<'a> {
    socket: &'a UdpSocket,
    address: SocketAddr,
    direct: Option<&'a Direct>,
    answers: &'a mut VecDeque<Vec<u8>>,
    unsent: &'a mut u64,
    events: &'a mut dyn FnMut(Event<'_>),
}

impl Sink for Wire<'_> {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        match self.direct {
            Some(direct) if direct.address() == to => {
                direct.hand(self.address, octets, |answer| self.answers.push_back(answer));
            }
            _ if self.socket.send_to(octets, to).is_err() => *self.unsent += 1,
            _ => {}
        }
    }

    fn event(&mut self, event: Event<'_>) {
        (self.events)(event);
    }
}

impl Endpoint {
    /// Opens the socket at `address`; its port is 8805 unless the peers know better. `direct` leads to the UPF of this
    /// process, if there is one and requests to it need not be on the network.
    pub fn bind(address: SocketAddr, config: Config, direct: Option<Direct>) -> io::Result<Self> {
        let socket = crate::udp::bind(address)?;
        let mut address = socket.local_addr()?;
        if address.ip().is_unspecified() {
            address.set_ip(config.address);
        }
        let (n4, buffer) = (N4::new(config), vec![0; usize::from(u16::MAX)]);
        Ok(Endpoint { socket, address, direct, n4, buffer, answers: VecDeque::new(), unsent: 0 })
    }

    /// Where this end can be reached.
    pub fn address(&self) -> SocketAddr {
        self.address
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
        let mut buffer = std::mem::take(&mut self.buffer);
        let polled = self.receive(now, &mut buffer, events);
        self.buffer = buffer;
        let more = polled?;
        let next = self.with(now, events, |n4, wire| n4.on_time(now, wire));
        Ok(if more { Some(now) } else { next })
    }

    /// Takes what has arrived; says whether there may be more.
    fn receive(&mut self, now: Instant, buffer: &mut [u8], events: &mut dyn FnMut(Event<'_>)) -> io::Result<bool> {
        for _ in 0..BATCH {
            match self.socket.recv_from(buffer) {
                Ok((length, from)) => {
                    self.with(now, events, |n4, wire| n4.on_datagram(now, from, &buffer[..length], wire))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // an ICMP error of an earlier datagram, or a signal
                Err(error) if transient(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
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
        self.with(now, events, |n4, wire| n4.submit(now, upf, key, seid, message, wire))
    }

    /// See [`N4::refuse_report`].
    pub fn refuse_report(&mut self, now: Instant, upf: SocketAddr, report: &[u8], error: Error) {
        self.with(now, &mut |_| {}, |n4, wire| n4.refuse_report(now, upf, report, error, wire));
    }

    /// See [`N4::release_all`].
    pub fn release_all(&mut self, now: Instant) {
        self.with(now, &mut |_| {}, |n4, wire| n4.release_all(now, wire));
    }

    /// Does something with the state, and then what the UPF of this process answered to that.
    fn with<R>(
        &mut self,
        now: Instant,
        events: &mut dyn FnMut(Event<'_>),
        mut act: impl FnMut(&mut N4, &mut Wire<'_>) -> R,
    ) -> R {
        let Endpoint { socket, address, direct, n4, answers, unsent, .. } = self;
        let mut wire = Wire { socket, address: *address, direct: direct.as_ref(), answers, unsent, events };
        let result = act(n4, &mut wire);
        while let Some(answer) = wire.answers.pop_front() {
            let from = direct.as_ref().map_or(*address, Direct::address);
            n4.on_datagram(now, from, &answer, &mut wire);
        }
        result
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
