//! The kernel driver's [`Endpoint`].

use super::associations::{Associations, MAIN, Phase};
use super::ffi;
use super::socket::Socket;
use crate::config::{BindError, Config};
use crate::endpoint::{Endpoint, Event, SendError};
use crate::hot_restart::{EndpointSnapshot, HandoffError};
use crate::sys::{DATAGRAMS, Reactor, Ready, RecvBatch, Waker};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use vireo_types::AssocId;

/// Batches read from one socket before the next socket is read.
const BATCHES: usize = 4;
/// Interval at which associations with a full buffer or an open probe are checked.
const TICK: Duration = Duration::from_millis(5);

/// An endpoint over the kernel's SCTP.
#[derive(Debug)]
pub(crate) struct Kernel {
    reactor: Reactor,
    received: RecvBatch,
    associations: Associations,
    next_socket: u32,
    driver: String,
    /// True if the socket is still another process's, until the first poll. Dropping then ends
    /// nothing.
    borrowed: bool,
}

impl Kernel {
    fn new(config: &Config, driver: String) -> Result<Self, BindError> {
        Ok(Self {
            reactor: Reactor::new().map_err(BindError::system("making an epoll instance"))?,
            received: RecvBatch::new(),
            associations: Associations::new(config),
            next_socket: MAIN + 1,
            driver,
            borrowed: false,
        })
    }

    pub(crate) fn bind(config: &Config, driver: String) -> Result<Box<dyn Endpoint>, BindError> {
        let mut this = Kernel::new(config, driver)?;
        if config.port == 0 {
            // Reports errors at bind time that would otherwise occur with the first association.
            Socket::open(config, 0)?;
        } else {
            this.add_socket(Socket::open(config, config.port)?)?;
        }
        Ok(Box::new(this))
    }

    /// Creates an endpoint with the socket of another process.
    pub(crate) fn adopt(
        config: &Config,
        handover: EndpointSnapshot,
        driver: String,
    ) -> Result<Box<dyn Endpoint>, BindError> {
        let mut this = Kernel::new(config, driver)?;
        let socket = Socket::adopt(handover.socket);
        let port = socket.port().map_err(BindError::system("looking at the SCTP socket that is taken over"))?;
        if port != config.port {
            let allowed = "the port of the socket that is taken over, which stays where it is";
            return Err(BindError::Invalid { key: "port", value: config.port.to_string(), allowed });
        }
        this.add_socket(socket)?;
        this.associations.adopt(handover.known);
        this.borrowed = true;
        Ok(Box::new(this))
    }

    /// Installs the socket with the endpoint's own port.
    fn add_socket(&mut self, socket: Socket) -> Result<(), BindError> {
        self.reactor.add(socket.fd(), MAIN).map_err(BindError::system("watching a socket"))?;
        self.associations.sockets.insert(MAIN, socket);
        Ok(())
    }

    /// Reads a socket and returns the number of events.
    fn receive(&mut self, number: u32, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut events = 0;
        for _ in 0..BATCHES {
            let Some(socket) = self.associations.sockets.get(&number) else { break };
            // An error of one association does not affect the socket; an event reports it.
            let count = self.received.receive(socket.fd()).unwrap_or(0);
            for slot in 0..count {
                let flags = self.received.flags(slot);
                let info: Option<ffi::RcvInfo> = self.received.ancillary(slot, libc::IPPROTO_SCTP, ffi::SCTP_RCVINFO);
                let Some(received) = self.received.get(slot) else { continue };
                let event = if flags & ffi::MSG_NOTIFICATION != 0 {
                    self.associations.on_notification(number, received.data, received.from, sink)
                } else if let Some(info) = info {
                    let whole = flags & libc::MSG_EOR != 0;
                    self.associations.message(number, &info, received.data, whole, sink)
                } else {
                    false
                };
                events += usize::from(event);
            }
            if count < DATAGRAMS {
                break;
            }
        }
        events
    }

    /// Waits once and handles the ready descriptors. Returns the number of events, and whether
    /// woken.
    fn poll_once(&mut self, wait: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<(usize, bool)> {
        let woken = self.reactor.wait(wait)?;
        let ready = self.reactor.take_ready();
        let mut count = 0;
        // The watched descriptors first, as `Event::Readable` promises.
        for item in &ready {
            if let Ready::Watched(token) = *item {
                sink(Event::Readable { token });
                count += 1;
            }
        }
        for item in &ready {
            if let Ready::Own(number) = *item {
                count += self.receive(number, sink);
            }
        }
        self.reactor.put_back(ready);
        count += self.associations.report_ended(sink);
        count += self.associations.report_alive(sink);
        Ok((count + self.associations.unblock(sink), woken))
    }
}

impl Endpoint for Kernel {
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        self.borrowed = false;
        loop {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let wait = match self.poll_within() {
                Some(within) => Some(rest.map_or(within, |rest| rest.min(within))),
                None => rest,
            };
            let (count, woken) = self.poll_once(wait, sink)?;
            if count > 0 || woken || rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(count);
            }
        }
    }

    fn send(&mut self, id: AssocId, wanted: u16, ppid: u32, data: &[u8]) -> Result<(), SendError> {
        if data.is_empty() || data.len() > crate::MAX_MESSAGE {
            return Err(SendError::Io(io::ErrorKind::InvalidInput.into()));
        }
        self.associations.send(id, wanted, ppid, data)
    }

    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId> {
        if self.associations.is_full() {
            return Err(io::Error::other("the endpoint has all the associations it may have"));
        }
        let number = if self.associations.config.port == 0 {
            let socket = Socket::open(&self.associations.config, 0).map_err(io::Error::other)?;
            let number = self.next_socket;
            self.next_socket = self.next_socket.checked_add(1).unwrap_or(MAIN + 1);
            self.reactor.add(socket.fd(), number)?;
            self.associations.sockets.insert(number, socket);
            number
        } else {
            MAIN
        };
        let Some(socket) = self.associations.sockets.get(&number) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let connected = socket.connect(peer);
        if connected.is_err() && number != MAIN {
            self.associations.sockets.remove(&number);
        }
        Ok(self.associations.insert(number, connected?, Phase::Connecting(Instant::now())))
    }

    fn shutdown(&mut self, id: AssocId) {
        self.associations.shutdown(id);
    }

    fn abort(&mut self, id: AssocId) {
        self.associations.end(id, "aborted by this side");
    }

    fn probe(&mut self, id: AssocId) {
        self.associations.probe(id);
    }

    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.reactor.watch(fd, token)
    }

    fn waker(&self) -> Waker {
        self.reactor.waker()
    }

    fn descriptor(&self) -> RawFd {
        self.reactor.fd()
    }

    fn poll_within(&self) -> Option<Duration> {
        match (self.associations.has_ended(), self.associations.has_watched()) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => Some(TICK),
            (false, false) => None,
        }
    }

    fn driver(&self) -> &str {
        &self.driver
    }

    fn port(&self) -> u16 {
        self.associations.config.port
    }

    fn snapshot(&self) -> Result<EndpointSnapshot, HandoffError> {
        let sockets = &self.associations.sockets;
        let main = sockets.get(&MAIN).filter(|_| sockets.len() == 1).ok_or(HandoffError::Client)?;
        Ok(EndpointSnapshot::new(main.share()?, self.associations.table()))
    }

    fn detach(mut self: Box<Self>) {
        self.borrowed = true;
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for socket in self.associations.sockets.values().filter(|_| !self.borrowed) {
            socket.abort_on_close();
        }
    }
}
