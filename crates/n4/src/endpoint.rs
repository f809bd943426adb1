use super::{Config, Counters, Event, InProcess, N4, N4Snapshot, Sink, SubmitError, Submitted};
use crate::udp::{DatagramReceiver, DatagramSender};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use vireo_types::{Instant, Seid};
use vireo_wire::pfcp::Error;

/// Batches of datagrams taken by one [`Endpoint::poll`], so that timers are never starved.
const BATCHES: usize = 8;

/// [`N4`] with a UDP socket: a shell that the node's loop polls. It never blocks; a datagram that the socket does not
/// take is lost as if on the network, and repeated as such. Requests to a UPF of the same process do not go there.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    /// Where answers go.
    address: SocketAddr,
    direct: Option<Box<dyn InProcess>>,
    n4: N4,
    inbox: DatagramReceiver,
    outbox: DatagramSender,
    /// What the UPF of this process answered and is not looked at yet.
    answers: VecDeque<Vec<u8>>,
    /// Of [`Counters::unlisted`], those that were asked for.
    unlisted: u64,
}

struct N4Output<'a> {
    socket: &'a UdpSocket,
    address: SocketAddr,
    direct: Option<&'a dyn InProcess>,
    answers: &'a mut VecDeque<Vec<u8>>,
    outbox: &'a mut DatagramSender,
    events: &'a mut dyn FnMut(Event<'_>),
}

impl Sink for N4Output<'_> {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        match self.direct {
            Some(direct) if direct.address() == to => {
                direct.exchange(self.address, octets, &mut |answer| self.answers.push_back(answer));
            }
            _ => self.outbox.push(self.socket, to, octets),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        (self.events)(event);
    }
}

impl Endpoint {
    /// Opens the socket at `address`; its port is 8805 unless the peers know better. `direct` leads to the UPF of this
    /// process, if there is one and requests to it need not be on the network.
    pub fn bind(address: SocketAddr, config: Config, direct: Option<Box<dyn InProcess>>) -> io::Result<Self> {
        Endpoint::over(crate::udp::bind(address)?, N4::new(config), direct)
    }

    /// Goes on with the socket and the state of another process; no UPF of this one is known to it.
    pub fn resume(socket: UdpSocket, config: Config, carried: N4Snapshot) -> io::Result<Self> {
        Endpoint::over(socket, N4::resume(config, carried), None)
    }

    /// See [`N4::carry`].
    pub fn carry(&self) -> N4Snapshot {
        self.n4.carry()
    }

    fn over(socket: UdpSocket, n4: N4, direct: Option<Box<dyn InProcess>>) -> io::Result<Self> {
        let mut address = socket.local_addr()?;
        if address.ip().is_unspecified() {
            address.set_ip(n4.address());
        }
        let (inbox, outbox) = (DatagramReceiver::new(), DatagramSender::default());
        Ok(Endpoint { socket, address, direct, n4, inbox, outbox, answers: VecDeque::new(), unlisted: 0 })
    }

    /// Where this end can be reached.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The state without the socket.
    pub fn n4(&self) -> &N4 {
        &self.n4
    }

    /// As [`N4::set_allow`].
    pub fn set_allow(&mut self, allow: Vec<vireo_types::Network>) {
        self.n4.set_allow(allow);
    }

    /// See [`N4::take_ue`].
    pub fn take_ue(&mut self) -> Option<IpAddr> {
        self.n4.take_ue()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> Counters {
        self.n4.counters()
    }

    /// Datagrams of addresses that may not send any, since this was called last.
    pub fn take_unlisted(&mut self) -> u64 {
        let all = self.n4.counters().unlisted;
        all - std::mem::replace(&mut self.unlisted, all)
    }

    /// Datagrams that the socket did not take.
    pub fn unsent(&self) -> u64 {
        self.outbox.unsent()
    }

    /// Takes what has arrived, within bounds, and does what is due. Says when to come again at the latest; at once if
    /// there may be more datagrams.
    pub fn poll(&mut self, now: Instant, events: &mut dyn FnMut(Event<'_>)) -> io::Result<Option<Instant>> {
        let more = self.receive(now, events)?;
        let next = self.with(now, events, |n4, wire| n4.on_time(now, wire));
        self.flush();
        Ok(if more { Some(now) } else { next })
    }

    /// Takes what has arrived; says whether there may be more.
    fn receive(&mut self, now: Instant, events: &mut dyn FnMut(Event<'_>)) -> io::Result<bool> {
        for _ in 0..BATCHES {
            match self.inbox.receive(&self.socket) {
                Ok(count) => {
                    let (mut hands, inbox) = self.hands(events);
                    for (from, datagram) in inbox.datagrams(count) {
                        hands.act(now, |n4, wire| n4.on_datagram(now, from, datagram, wire));
                    }
                    if count < DatagramReceiver::BATCH {
                        return Ok(false);
                    }
                }
                // an ICMP error of an earlier datagram, or a signal
                Err(error) if transient(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends what [`Endpoint::submit`] left to be sent with others.
    pub fn flush(&mut self) {
        self.outbox.flush(&self.socket);
    }

    /// See [`N4::submit`]; what is sent leaves by [`Endpoint::flush`] at the latest.
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

    /// See [`N4::hold`].
    pub fn activate(&mut self, now: Instant, takes_over: bool, events: &mut dyn FnMut(Event<'_>)) {
        self.with(now, events, |n4, wire| n4.hold(now, takes_over, wire));
        self.flush();
    }

    /// See [`N4::let_go`].
    pub fn deactivate(&mut self, now: Instant) {
        self.n4.let_go(now);
    }

    /// See [`N4::refuse_report`].
    pub fn refuse_report(&mut self, now: Instant, upf: SocketAddr, report: &[u8], error: Error) {
        self.with(now, &mut |_| {}, |n4, wire| n4.refuse_report(now, upf, report, error, wire));
        self.flush();
    }

    /// See [`N4::release_all`].
    pub fn release_all(&mut self, now: Instant) {
        self.with(now, &mut |_| {}, |n4, wire| n4.release_all(now, wire));
        self.flush();
    }

    fn with<R>(
        &mut self,
        now: Instant,
        events: &mut dyn FnMut(Event<'_>),
        act: impl FnMut(&mut N4, &mut N4Output<'_>) -> R,
    ) -> R {
        self.hands(events).0.act(now, act)
    }

    /// What is acted with, and what has arrived.
    fn hands<'a>(&'a mut self, events: &'a mut dyn FnMut(Event<'_>)) -> (EndpointContext<'a>, &'a DatagramReceiver) {
        let Endpoint { socket, address, direct, n4, inbox, outbox, answers, .. } = self;
        let wire = N4Output { socket, address: *address, direct: direct.as_deref(), answers, outbox, events };
        (EndpointContext { n4, wire }, inbox)
    }
}

/// The state, and where what it wants goes.
struct EndpointContext<'a> {
    n4: &'a mut N4,
    wire: N4Output<'a>,
}

impl EndpointContext<'_> {
    /// Does something with the state, and then what the UPF of this process answered to that.
    fn act<R>(&mut self, now: Instant, mut act: impl FnMut(&mut N4, &mut N4Output<'_>) -> R) -> R {
        let result = act(self.n4, &mut self.wire);
        while let Some(answer) = self.wire.answers.pop_front() {
            let from = self.wire.direct.map_or(self.wire.address, |upf| upf.address());
            self.n4.on_datagram(now, from, &answer, &mut self.wire);
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
