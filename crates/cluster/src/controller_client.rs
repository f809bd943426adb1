//! Connection of a member to the controller.
//!
//! The member never waits for the controller. If the controller is lost, the client searches for
//! another one, and the member continues with its last map.

use crate::config::ClusterConfig;
use crate::error::LinkError;
use crate::server_address::Candidates;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, DurableState, MachineLabel, RejoinInfo, Secrets};
use vireo_core::placement::message::{BalancerAssignment, ToController, ToMember, Welcome};
use vireo_fabric::frame::{self, FrameError};
use vireo_fabric::stream::{self, Stream};
use vireo_fabric::{Role, Security};

/// Maximum time of the first search for a controller.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of connection attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Fabric version since which controllers know machine labels.
const MACHINE_SINCE: u16 = 12;
/// Fabric version from which on controllers receive lists of cordoned hosts.
const CORDONED_SINCE: u16 = 12;
/// Polling interval of the join.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Factor on the silence after which a member is declared dead: maximum silence of a controller.
pub const CONTROLLER_SILENCE_FACTOR: u32 = 5;

/// Role and address of the member that uses this client.
#[derive(Clone, Copy, Debug)]
pub enum LocalMember {
    /// Host, with the address at which it receives copies of other hosts.
    Host(SocketAddr),
    /// Balancer, with the address at which it accepts hosts.
    Balancer(SocketAddr),
}

/// Reply to a join request.
#[derive(Debug)]
pub enum JoinReply {
    Host(Welcome),
    Balancer(BalancerAssignment),
}

/// Client of the controller, connected or searching.
#[derive(Debug)]
pub struct ControllerClient {
    me: LocalMember,
    /// Machine of a host, if it has a label.
    machine: Option<MachineLabel>,
    security: Security,
    candidates: Candidates,
    stream: Option<Stream>,
    /// True if the controller has accepted the join on this connection.
    joined: bool,
    /// Host or balancer ID, once assigned.
    number: Option<u16>,
    /// State received from the controller.
    record: Option<DurableState>,
    /// True if the member is ready for the map.
    ready: bool,
    /// Completed replicas of the last epoch, and whether the host wants to leave: repeated to the
    /// next controller.
    caught_up: BTreeSet<(u64, HostId)>,
    is_leaving: bool,
    /// Last report of pool partitions, for the same reason.
    parts: Option<(u64, Vec<u16>)>,
    /// Hosts that the controller has cordoned, for the same reason; of balancers only.
    cordoned: Vec<HostId>,
    heartbeat: Duration,
    timeout: Duration,
    last_heard: Instant,
    retry_at: Instant,
    /// True if the connection was replaced since the last query.
    fresh: bool,
    /// Error of the last connection.
    cause: Option<FrameError>,
    /// Time of the last sign of life of a controller or its machine.
    last_answer: Instant,
}

/// State that another process needs to continue as the same balancer.
#[derive(Debug, Serialize, Deserialize)]
pub struct ControllerClientSnapshot {
    /// Address at which it accepts hosts, as known to others.
    address: SocketAddr,
    number: Option<u16>,
    record: Option<DurableState>,
    ready: bool,
    /// Heartbeat interval in milliseconds.
    heartbeat: u32,
    timeout_ms: u32,
    /// Connection, if there is one, with the controller's address.
    pub stream: Option<(SocketAddr, stream::StreamSnapshot)>,
}

impl ControllerClient {
    /// Returns the state for a process that continues as the same balancer; `None` for a host. The
    /// new process reconnects if the connection has not joined, or if its controller ends with this
    /// process (`separate_controller` is false).
    pub fn snapshot(&self, separate_controller: bool) -> Option<ControllerClientSnapshot> {
        let LocalMember::Balancer(address) = self.me else { return None };
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        let stream = self.stream.as_ref().filter(|_| self.joined && separate_controller).map(Stream::snapshot);
        let stream = match stream {
            // A new connection would look like a second balancer, and this one would count as dead.
            Some(None) => return None,
            Some(stream) => self.controller().zip(stream),
            None => None,
        };
        let (number, record, ready) = (self.number, self.record.clone(), self.ready);
        let (heartbeat, timeout_ms) = (millis(self.heartbeat), millis(self.timeout));
        Some(ControllerClientSnapshot { address, number, record, ready, heartbeat, timeout_ms, stream })
    }

    /// Returns the state received from the controller, with the current map.
    pub fn record(&self) -> Option<&DurableState> {
        self.record.as_ref()
    }

    /// Continues as the balancer of another process, on its connection if it had one.
    pub fn resume(
        config: &ClusterConfig,
        security: &Security,
        snapshot: ControllerClientSnapshot,
        socket: Option<TcpStream>,
    ) -> std::io::Result<Self> {
        let mut candidates = Candidates::new(config.controllers());
        let mut stream = None;
        if let (Some((controller, snapshot)), Some(socket)) = (snapshot.stream, socket) {
            candidates.select(controller);
            stream = Some(Stream::resume(socket, security, &[Role::Controller], snapshot)?);
        }
        let (now, millis) = (Instant::now(), |millis: u32| Duration::from_millis(millis.into()));
        Ok(ControllerClient {
            me: LocalMember::Balancer(snapshot.address),
            machine: None,
            security: security.clone(),
            candidates,
            joined: stream.is_some(),
            fresh: stream.is_some(),
            stream,
            number: snapshot.number,
            record: snapshot.record,
            ready: snapshot.ready,
            caught_up: BTreeSet::new(),
            is_leaving: false,
            parts: None,
            cordoned: Vec::new(),
            heartbeat: millis(snapshot.heartbeat),
            timeout: millis(snapshot.timeout_ms),
            last_heard: now,
            retry_at: now,
            cause: None,
            last_answer: now,
        })
    }

    /// Finds a controller and joins its cluster.
    pub fn join(
        config: &ClusterConfig,
        security: &Security,
        mut me: LocalMember,
    ) -> Result<(Self, JoinReply), LinkError> {
        let candidates = Candidates::new(config.controllers());
        let own = own_address(candidates.first(), &me);
        if let LocalMember::Host(address) | LocalMember::Balancer(address) = &mut me
            && address.ip().is_unspecified()
            && let Some(own) = own
        {
            address.set_ip(own);
        }
        let now = Instant::now();
        let machine = config.machine.clone().filter(|_| matches!(me, LocalMember::Host(_)));
        let mut client = ControllerClient {
            me,
            machine,
            security: security.clone(),
            candidates,
            stream: None,
            joined: false,
            number: None,
            record: None,
            ready: false,
            caught_up: BTreeSet::new(),
            is_leaving: false,
            parts: None,
            cordoned: Vec::new(),
            heartbeat: config.heartbeat,
            timeout: config.heartbeat * config.misses * CONTROLLER_SILENCE_FACTOR,
            last_heard: now,
            retry_at: now,
            fresh: false,
            cause: None,
            last_answer: now,
        };
        let deadline = now + SEARCH_TIMEOUT;
        loop {
            let mut reply = None;
            client.poll(Instant::now(), &mut |message| match message {
                ToMember::Welcome(welcome) => reply = Some(JoinReply::Host(welcome)),
                ToMember::Assignment(assignment) => reply = Some(JoinReply::Balancer(assignment)),
                _ => {}
            })?;
            if let Some(reply) = reply {
                return Ok((client, reply));
            }
            client.check_acceptable()?;
            if Instant::now() > deadline {
                let address = client.candidates.configured().to_owned();
                let cause = client.cause.take().unwrap_or(FrameError::Io(std::io::ErrorKind::TimedOut.into()));
                return Err(LinkError::NoController { address, cause });
            }
            std::thread::sleep(JOIN_POLL_INTERVAL);
        }
    }

    /// Checks that a controller may still accept this member. Returns an error only after all have
    /// refused it for good.
    fn check_acceptable(&mut self) -> Result<(), LinkError> {
        let Some(address) = self.candidates.exhausted() else { return Ok(()) };
        let Some(cause) = self.cause.take_if(|cause| cause.is_permanent()) else { return Ok(()) };
        Err(LinkError::Incompatible { address, cause })
    }

    /// Runs once: connects, receives and sends. Passes messages of the controller to `on_message`;
    /// none needs an answer.
    pub fn poll(&mut self, now: Instant, on_message: &mut dyn FnMut(ToMember)) -> Result<(), LinkError> {
        if self.stream.is_none() && now >= self.retry_at {
            self.connect(now);
        }
        match self.exchange(now, on_message) {
            Ok(()) => Ok(()),
            Err(LinkError::Lost(cause)) => {
                self.disconnect(now, cause);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn connect(&mut self, now: Instant) {
        self.retry_at = now + RETRY_INTERVAL;
        let address = match self.candidates.address() {
            Ok(address) => address,
            Err(error) => return self.disconnect(now, error.into()),
        };
        let role = match self.me {
            LocalMember::Host(_) => Role::Host,
            LocalMember::Balancer(_) => Role::Balancer,
        };
        let mut stream = match Stream::connect(address, &self.security, role, &[Role::Controller]) {
            Ok(stream) => stream,
            Err(error) => return self.disconnect(now, error.into()),
        };
        let record = self.record.as_ref();
        let past = self.number.zip(record).map(|(number, record)| (number, record.clone()));
        let join = match self.me {
            LocalMember::Host(copies) => {
                let past = past.map(|(number, record)| Box::new(RejoinInfo { id: HostId(number), record }));
                ToController::JoinHost { copies, past }
            }
            LocalMember::Balancer(address) => {
                let past = past.map(|(number, record)| Box::new(RejoinInfo { id: BalancerId(number as u8), record }));
                ToController::JoinBalancer { address, past }
            }
        };
        stream.put(&join);
        (self.stream, self.joined, self.fresh) = (Some(stream), false, true);
        self.last_heard = now;
    }

    /// Closes the connection; the next address is tried soon.
    fn disconnect(&mut self, now: Instant, cause: FrameError) {
        if self.joined {
            tracing::warn!(reason = %cause, "controller lost; searching for another one");
        }
        if cause.is_connection_refused() {
            self.last_answer = now;
        }
        (self.stream, self.joined, self.cause) = (None, false, Some(cause));
        self.candidates.advance();
        self.retry_at = self.retry_at.max(now + RETRY_INTERVAL / 4);
    }

    fn exchange(&mut self, now: Instant, on_message: &mut dyn FnMut(ToMember)) -> Result<(), LinkError> {
        if self.stream.is_none() {
            return Ok(());
        }
        while self.receive(on_message)? {}
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.flush()?;
        if stream.take_received() {
            self.last_heard = now;
            // Data before the greeting is not from a controller.
            self.last_answer = if self.joined { now } else { self.last_answer };
        } else if now.duration_since(self.last_heard) > self.timeout {
            let silent = format!("it has said nothing for {:?}", self.timeout);
            return Err(FrameError::Refused(silent).into());
        }
        Ok(())
    }

    /// Receives messages of the controller. Returns true if there was data.
    fn receive(&mut self, on_message: &mut dyn FnMut(ToMember)) -> Result<bool, LinkError> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(false) };
            let Some(octets) = stream.frame()? else { return Ok(stream.fill()? > 0) };
            let message: ToMember = frame::decode(octets).map_err(LinkError::Lost)?;
            match &message {
                ToMember::Heartbeat => continue,
                ToMember::Refused(cause) => return Err(LinkError::Refused(cause.clone())),
                ToMember::Welcome(welcome) => {
                    let secrets = Secrets { tmsi_key: welcome.tmsi_key, recovery: welcome.recovery };
                    self.welcome(welcome.host.0, secrets, welcome.heartbeat)?;
                }
                ToMember::Assignment(assignment) => {
                    let secrets = Secrets { tmsi_key: assignment.tmsi_key, recovery: assignment.recovery };
                    self.welcome(assignment.balancer.0.into(), secrets, assignment.heartbeat)?;
                }
                ToMember::Cordoned(hosts) => self.cordoned.clone_from(hosts),
                ToMember::Map(_) | ToMember::LeaveGranted => {}
            }
            on_message(message);
        }
    }

    fn welcome(&mut self, number: u16, secrets: Secrets, heartbeat: (u32, u32)) -> Result<(), LinkError> {
        if self.number.is_some_and(|own| own != number) {
            return Err(LinkError::Refused(format!("the controller calls it {number}, which is not its number")));
        }
        if self.record.is_some() {
            tracing::info!("controller found");
        }
        self.number = Some(number);
        self.record.get_or_insert(DurableState::new(secrets, None));
        self.heartbeat = Duration::from_millis(heartbeat.0.max(1).into());
        self.timeout = self.heartbeat * heartbeat.1.max(1) * CONTROLLER_SILENCE_FACTOR;
        self.joined = true;
        self.report_machine();
        if self.ready {
            self.put(&ToController::Ready);
        }
        for (epoch, host) in self.caught_up.clone() {
            self.put(&ToController::CaughtUp { epoch, host });
        }
        if let Some((epoch, parts)) = self.parts.clone() {
            self.put(&ToController::PoolPartitions { epoch, parts });
        }
        if self.is_leaving {
            self.put(&ToController::Leave);
        }
        // A controller that cordons no host has not sent any list.
        if !self.cordoned.is_empty() && self.stream.as_ref().is_some_and(|stream| stream.version() >= CORDONED_SINCE) {
            let hosts = self.cordoned.clone();
            self.put(&ToController::Cordoned(hosts));
        }
        Ok(())
    }

    /// Reports the machine of the host, if it has a label.
    fn report_machine(&mut self) {
        let (Some(machine), Some(stream)) = (&self.machine, &self.stream) else { return };
        if stream.version() < MACHINE_SINCE {
            tracing::warn!(%machine, "controller ignores cluster.machine; upgrade the controller");
            return;
        }
        let message = ToController::Machine(machine.clone());
        self.put(&message);
    }

    /// Reports that the member is ready for the map; heartbeats are expected from here on.
    pub fn report_ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            self.put(&ToController::Ready);
        }
    }

    /// Reports that another host has all copies of this host's UEs that an epoch requires.
    pub fn caught_up(&mut self, epoch: u64, host: HostId) {
        self.caught_up.retain(|(known, _)| *known >= epoch);
        self.caught_up.insert((epoch, host));
        self.put(&ToController::CaughtUp { epoch, host });
    }

    /// Reports the pool partitions of departed hosts that the host's UEs use.
    pub fn parts(&mut self, epoch: u64, parts: Vec<u16>) {
        self.parts = Some((epoch, parts.clone()));
        self.put(&ToController::PoolPartitions { epoch, parts });
    }

    /// Reports that the host wants to leave.
    pub fn request_leave(&mut self) {
        self.is_leaving = true;
        self.put(&ToController::Leave);
    }

    /// Returns the controller that this member has joined on the current connection.
    pub fn controller(&self) -> Option<SocketAddr> {
        self.joined.then(|| self.candidates.current()).flatten()
    }

    /// Stores the member's current map.
    pub fn set_map(&mut self, map: &ClusterMap) {
        if let Some(record) = &mut self.record {
            record.map = Some(map.clone());
        }
    }

    /// Sends a message if the connection has joined.
    pub fn put(&mut self, message: &ToController) {
        if let Some(stream) = self.stream.as_mut().filter(|_| self.joined) {
            stream.put(message);
        }
    }

    /// Returns the socket, which becomes readable when the controller has sent something.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(Stream::fd)
    }

    /// Reports whether the socket is readable.
    pub fn set_readable(&mut self, readable: bool) {
        self.stream.iter_mut().for_each(|stream| stream.set_readable(readable));
    }

    /// Returns true if data would be sent if the socket had room.
    pub fn has_unwritten(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::has_unwritten)
    }

    /// Returns true if the connection was replaced since the last call.
    pub fn take_reconnected(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Returns true if no sign of life of a controller or its machine has arrived for `span`, not
    /// even a refused connection.
    pub fn is_silent(&self, now: Instant, span: Duration) -> bool {
        // Without a connection, attempts are made only at intervals.
        let retry_interval = if self.joined { Duration::ZERO } else { RETRY_INTERVAL * 2 };
        now.duration_since(self.last_answer) >= span + retry_interval
    }

    /// Replaces the addresses of controllers, for tests of a member without one.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_address(&mut self, address: SocketAddr) {
        self.candidates.replace(address);
    }

    /// Returns the heartbeat interval.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }
}

/// Returns this machine's address on the route to the controller: the address for other members if
/// a member listens on all.
fn own_address(controller: Option<SocketAddr>, me: &LocalMember) -> Option<std::net::IpAddr> {
    let any: SocketAddr = match me {
        LocalMember::Host(address) | LocalMember::Balancer(address) if address.is_ipv4() => {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        }
        _ => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Connecting a UDP socket sends nothing: it only selects the route.
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(controller?).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
