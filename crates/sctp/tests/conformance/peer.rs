//! An endpoint with a record of its events, and functions that poll endpoints.

use crate::doomed::Doomed;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Endpoint, EndpointSnapshot, Event, SendError};
use vireo_types::AssocId;

/// Timeout of all operations that are not a timeout themselves.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) assoc: AssocId,
    pub(crate) stream: u16,
    pub(crate) ppid: u32,
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Peer {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) up: BTreeMap<AssocId, (SocketAddr, u16)>,
    /// All `Up` events in order, including those of ended associations.
    pub(crate) ups: Vec<AssocId>,
    pub(crate) down: BTreeMap<AssocId, &'static str>,
    pub(crate) restarted: Vec<AssocId>,
    pub(crate) writable: Vec<AssocId>,
    pub(crate) alive: Vec<AssocId>,
    pub(crate) readable: Vec<u64>,
    pub(crate) messages: Vec<Message>,
    pub(crate) unacknowledged: Vec<Message>,
    /// True to echo each message on arrival.
    pub(crate) echo: bool,
}

impl Peer {
    pub(crate) fn new(endpoint: Box<dyn Endpoint>) -> Self {
        Self {
            endpoint,
            up: BTreeMap::new(),
            ups: Vec::new(),
            down: BTreeMap::new(),
            restarted: Vec::new(),
            writable: Vec::new(),
            alive: Vec::new(),
            readable: Vec::new(),
            messages: Vec::new(),
            unacknowledged: Vec::new(),
            echo: false,
        }
    }

    pub(crate) fn poll(&mut self, timeout: Duration) {
        let before = self.messages.len();
        let Self { endpoint, up, ups, down, restarted, writable, alive, readable, messages, unacknowledged, .. } = self;
        let mut count = 0;
        let reported = endpoint.poll(Some(timeout), &mut |event| {
            count += 1;
            match event {
                Event::Up { assoc, peer, outbound_streams } => {
                    assert!(up.insert(assoc, (peer, outbound_streams)).is_none(), "two Ups of {assoc:?}");
                    assert!(!down.contains_key(&assoc), "{assoc:?} came back from the dead");
                    ups.push(assoc);
                }
                Event::Down { assoc, reason } => {
                    up.remove(&assoc);
                    assert!(down.insert(assoc, reason).is_none(), "two Downs of {assoc:?}");
                }
                Event::Restarted { assoc } => {
                    assert!(up.contains_key(&assoc), "a restart of {assoc:?}, which is not up");
                    restarted.push(assoc);
                }
                Event::Message { assoc, stream, ppid, data } => {
                    assert!(up.contains_key(&assoc), "a message of {assoc:?}, which is not up");
                    messages.push(Message { assoc, stream, ppid, data: data.to_vec() });
                }
                Event::Unacknowledged { assoc, stream, ppid, data } => {
                    assert!(!down.contains_key(&assoc), "a message of {assoc:?}, which is down");
                    unacknowledged.push(Message { assoc, stream, ppid, data: data.to_vec() });
                }
                Event::Writable { assoc } => writable.push(assoc),
                Event::Alive { assoc } => {
                    assert!(up.contains_key(&assoc), "a sign of life of {assoc:?}, which is not up");
                    alive.push(assoc);
                }
                Event::Readable { token } => readable.push(token),
            }
        });
        assert_eq!(reported.expect("poll"), count, "poll must return the number of events it gave");
        if self.echo {
            for message in self.messages.drain(before..).collect::<Vec<_>>() {
                let Message { assoc, stream, ppid, data } = message;
                match self.endpoint.send(assoc, stream, ppid, &data) {
                    Ok(()) | Err(SendError::NoAssociation) => {}
                    Err(error) => panic!("echo: {error}"),
                }
            }
        }
    }

    /// Returns the only association.
    pub(crate) fn only(&self) -> AssocId {
        assert_eq!(self.up.len(), 1, "exactly one association");
        *self.up.keys().next().expect("one")
    }
}

/// Polls all peers in turn until `done`; fails with `what` after `limit`.
pub(crate) fn run(peers: &mut [&mut Peer], what: &str, limit: Duration, mut done: impl FnMut(&[&mut Peer]) -> bool) {
    let start = Instant::now();
    while !done(peers) {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        for peer in peers.iter_mut() {
            peer.poll(Duration::from_millis(1));
        }
    }
}

/// Polls all peers for a time.
pub(crate) fn idle(peers: &mut [&mut Peer], time: Duration) {
    let start = Instant::now();
    run(peers, "time passing", time + LIMIT, |_| start.elapsed() >= time);
}

/// Returns an associated pair: a server on `port` of the first address, a client on the second.
pub(crate) fn connected(world: &dyn World, port: u16, change: impl Fn(&mut Config)) -> (Peer, Peer) {
    let mut config = server_config(world, port);
    change(&mut config);
    let mut server = Peer::new(world.bind(&config));
    let mut config = client_config(world);
    change(&mut config);
    let mut client = Peer::new(world.bind(&config));
    connect(&mut server, &mut client, world.address(1), port);
    (server, client)
}

pub(crate) fn connect(server: &mut Peer, client: &mut Peer, to: IpAddr, port: u16) -> AssocId {
    let assoc = client.endpoint.connect(SocketAddr::new(to, port)).expect("connect");
    let before = server.ups.len();
    run(&mut [server, client], "an association", LIMIT, |peers| {
        assert!(!peers[1].down.contains_key(&assoc), "connect failed: {}", peers[1].down[&assoc]);
        peers[0].ups.len() > before && peers[1].up.contains_key(&assoc)
    });
    assoc
}

pub(crate) fn server_config(world: &dyn World, port: u16) -> Config {
    Config { addresses: vec![world.address(1)], port, listen: true, ..world.config() }
}

pub(crate) fn client_config(world: &dyn World) -> Config {
    Config { addresses: vec![world.address(2)], ..world.config() }
}

/// A driver under test, with addresses of its own.
pub(crate) trait World {
    /// Returns the configuration of the driver.
    fn config(&self) -> Config;
    fn bind(&self, config: &Config) -> Box<dyn Endpoint>;
    /// Returns the `n`th address, `n` from 1.
    fn address(&self, n: u8) -> IpAddr;
    /// Returns an address without a peer.
    fn silent_address(&self) -> IpAddr;
    /// Starts a client at the `n`th address, connecting from `port` to `to`, that can be killed.
    fn doomed(&self, n: u8, port: u16, to: SocketAddr) -> Box<dyn Doomed + '_>;
    /// Returns true if the driver reports unacknowledged messages.
    fn gives_back(&self) -> bool {
        true
    }
    /// Returns true if the driver can hand off endpoints.
    fn hands_over(&self) -> bool {
        true
    }
    /// Continues an endpoint that was handed off; `config` is that of its binding.
    fn adopt(&self, config: &Config, handover: EndpointSnapshot) -> Box<dyn Endpoint>;
    /// Waits until associations with a silent peer must have ended.
    fn time_out(&self) {}
    /// Sends bytes that are not SCTP to a server. Returns false if the driver has no network.
    fn garbage(&self, _to: SocketAddr, _bytes: &[u8]) -> bool {
        false
    }
}

/// Sets timeouts that recover quickly from a lost packet, but tolerate seconds of machine load.
pub(crate) fn brisk(config: Config) -> Config {
    Config {
        heartbeat: Duration::from_secs(1),
        retries: 10,
        init_retries: 10,
        rto_initial: Duration::from_millis(200),
        rto_min: Duration::from_millis(50),
        rto_max: Duration::from_secs(1),
        ..config
    }
}

/// Sets timeouts that end an association with a silent peer within 2 s.
pub(crate) fn short(config: Config) -> Config {
    Config {
        heartbeat: Duration::from_millis(200),
        retries: 2,
        init_retries: 2,
        rto_initial: Duration::from_millis(100),
        rto_max: Duration::from_millis(200),
        ..config
    }
}
