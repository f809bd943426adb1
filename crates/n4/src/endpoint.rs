use super::{Config, Counters, Event, InProcess, N4, N4Snapshot, Sink, SubmitError, SubmitResult};
use crate::udp::{DatagramReceiver, DatagramSender};
use crate::user_data::UserDataSocket;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use vireo_types::{Instant, Seid};
use vireo_wire::gtpu;
use vireo_wire::pfcp::Error;

/// Maximum number of batches per [`Endpoint::poll`], so that timers are never starved.
const BATCHES: usize = 8;

/// [`N4`] with a UDP socket, polled by the node's loop.
///
/// It never blocks. A datagram that the socket refuses is lost as on the network, and its request
/// is repeated. Requests to a UPF of the same process bypass the socket.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    /// The local address, for responses.
    address: SocketAddr,
    direct: Option<Box<dyn InProcess>>,
    n4: N4,
    /// Socket for user data over NAS, if they are served.
    user_data: Option<UserDataSocket>,
    inbox: DatagramReceiver,
    outbox: DatagramSender,
    /// Responses of the UPF of this process that are not processed yet.
    answers: VecDeque<Vec<u8>>,
    /// Part of [`Counters::unlisted`] that [`Endpoint::take_unlisted`] has returned.
    unlisted: u64,
}

struct N4Output<'a> {
    socket: &'a UdpSocket,
    address: SocketAddr,
    direct: Option<&'a dyn InProcess>,
    /// True if another endpoint may send a request of this one again, after a takeover.
    is_shared: bool,
    answers: &'a mut VecDeque<Vec<u8>>,
    outbox: &'a mut DatagramSender,
    events: &'a mut dyn FnMut(Event<'_>),
}

impl Sink for N4Output<'_> {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        match self.direct {
            Some(direct) if direct.address() == to => {
                let (answers, is_shared) = (&mut *self.answers, self.is_shared);
                direct.exchange(self.address, octets, is_shared, &mut |answer| answers.push_back(answer));
            }
            _ => self.outbox.push(self.socket, to, octets),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        (self.events)(event);
    }
}

impl Endpoint {
    /// Opens the socket at `address`, with port 8805 unless the peers are configured otherwise.
    /// `direct` gives access to the UPF of this process, if requests to it may bypass the network.
    pub fn bind(address: SocketAddr, config: Config, direct: Option<Box<dyn InProcess>>) -> io::Result<Self> {
        Endpoint::over(crate::udp::bind(address)?, N4::new(config), direct)
    }

    /// Resumes an endpoint with the socket and the snapshot of another process, without a UPF of
    /// this process.
    pub fn resume(socket: UdpSocket, config: Config, snapshot: N4Snapshot) -> io::Result<Self> {
        Endpoint::over(socket, N4::resume(config, snapshot), None)
    }

    /// See [`N4::snapshot`].
    pub fn snapshot(&self) -> N4Snapshot {
        self.n4.snapshot()
    }

    fn over(socket: UdpSocket, mut n4: N4, direct: Option<Box<dyn InProcess>>) -> io::Result<Self> {
        let mut address = socket.local_addr()?;
        if address.ip().is_unspecified() {
            address.set_ip(n4.address());
        }
        if let Some(direct) = direct.as_ref().filter(|_| !n4.config.shared) {
            n4.set_lossless(direct.address());
        }
        let user_data = n4.has_user_data().then(|| UserDataSocket::bind(address.ip())).transpose()?;
        let (inbox, outbox) = (DatagramReceiver::new(), DatagramSender::default());
        Ok(Endpoint { socket, address, direct, n4, user_data, inbox, outbox, answers: VecDeque::new(), unlisted: 0 })
    }

    /// Returns the local address of the endpoint.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the state without the socket.
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

    /// Returns the counters since the start.
    pub fn counters(&self) -> Counters {
        self.n4.counters()
    }

    /// Returns the number of datagrams from addresses that are not permitted, since the last call.
    pub fn take_unlisted(&mut self) -> u64 {
        let all = self.n4.counters().unlisted;
        all - std::mem::replace(&mut self.unlisted, all)
    }

    /// Returns the number of datagrams that the socket refused.
    pub fn unsent(&self) -> u64 {
        self.outbox.unsent()
    }

    /// Receives a bounded number of datagrams and runs all due actions. Returns when it must be
    /// called again: at once if more datagrams may be waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn poll(&mut self, now: Instant, events: &mut dyn FnMut(Event<'_>)) -> io::Result<Option<Instant>> {
        let more = self.receive(now, events)? | self.receive_user_data(events)?;
        let next = self.with(now, events, |n4, wire| n4.on_time(now, wire));
        self.flush();
        Ok(if more { Some(now) } else { next })
    }

    /// Receives a bounded number of datagrams; does nothing else that is due. Returns true if more
    /// may be waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn receive(&mut self, now: Instant, events: &mut dyn FnMut(Event<'_>)) -> io::Result<bool> {
        for _ in 0..BATCHES {
            match self.inbox.receive(&self.socket) {
                Ok(count) => {
                    let (mut split, inbox) = self.split(events);
                    for (from, datagram) in inbox.datagrams(count) {
                        split.act(now, |n4, wire| n4.on_datagram(now, from, datagram, wire));
                    }
                    if count < DatagramReceiver::BATCH {
                        return Ok(false);
                    }
                }
                // ICMP error of an earlier datagram, or a signal
                Err(error) if transient(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives one batch of user data. Returns true if more may be waiting.
    fn receive_user_data(&mut self, events: &mut dyn FnMut(Event<'_>)) -> io::Result<bool> {
        let Endpoint { user_data: Some(user_data), n4, .. } = self else { return Ok(false) };
        let is_ue = |address| n4.ue_pools().iter().any(|pool| pool.contains(address));
        let deliver = |from, seid, message: &[u8]| events(Event::UserData { from, seid, message });
        match user_data.receive(is_ue, deliver) {
            Err(error) if transient(error.kind()) => Ok(true),
            result => result,
        }
    }

    /// Returns the descriptors of the sockets that [`Endpoint::poll`] reads.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(self.as_raw_fd()).chain(self.user_data.as_ref().map(AsRawFd::as_raw_fd))
    }

    /// Sends the datagrams that are queued for a batch.
    pub fn flush(&mut self) {
        self.outbox.flush(&self.socket);
        if let Some(user_data) = &mut self.user_data {
            user_data.flush();
        }
    }

    /// See [`N4::submit`]; messages leave by [`Endpoint::flush`] at the latest. A G-PDU goes to the
    /// UPF's end of a tunnel, without an answer.
    pub fn submit(
        &mut self,
        now: Instant,
        upf: SocketAddr,
        key: Option<u64>,
        seid: Seid,
        message: &[u8],
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<SubmitResult, SubmitError> {
        if gtpu::is_g_pdu(message) {
            if let Some(user_data) = &mut self.user_data {
                user_data.push(upf, message);
            }
            return Ok(SubmitResult::Sent);
        }
        self.with(now, events, |n4, wire| n4.submit(now, upf, key, seid, message, wire))
    }

    /// See [`N4::activate`].
    pub fn activate(&mut self, now: Instant, takes_over: bool, events: &mut dyn FnMut(Event<'_>)) {
        self.with(now, events, |n4, wire| n4.activate(now, takes_over, wire));
        self.flush();
    }

    /// See [`N4::deactivate`].
    pub fn deactivate(&mut self, now: Instant) {
        self.n4.deactivate(now);
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
        self.split(events).0.act(now, act)
    }

    /// Splits the endpoint into the state with its output, and the received datagrams.
    fn split<'a>(&'a mut self, events: &'a mut dyn FnMut(Event<'_>)) -> (EndpointContext<'a>, &'a DatagramReceiver) {
        let Endpoint { socket, address, direct, n4, inbox, outbox, answers, .. } = self;
        let (address, direct, is_shared) = (*address, direct.as_deref(), n4.config.shared);
        let wire = N4Output { socket, address, direct, is_shared, answers, outbox, events };
        (EndpointContext { n4, wire }, inbox)
    }
}

/// The state and its output.
struct EndpointContext<'a> {
    n4: &'a mut N4,
    wire: N4Output<'a>,
}

impl EndpointContext<'_> {
    /// Runs an action on the state, and then processes the responses of the UPF of this process.
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
