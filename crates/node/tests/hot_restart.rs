//! Tests of hot restarts, with an in-memory RAN node, a host and a controller.
//!
//! The successors run in the same process.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant as Monotonic};
use vireo_api::Management;
use vireo_balancer::hot_restart::protocol::{BalancerSnapshot, FORMAT, PredecessorMessage, SuccessorMessage};
use vireo_balancer::hot_restart::{HotRestartChannel, HotRestartError, HotRestartListener};
use vireo_balancer::{PPID_NGAP, PPID_S1AP};
use vireo_cluster::{
    ClusterConfig, ControllerClient, HeartbeatHandle, HeartbeatTargets, JoinReply, LocalMember, ProgressCounter,
};
use vireo_controller::ControllerHandle;
use vireo_core::config::CoreConfig;
use vireo_core::placement::cluster::Member;
use vireo_core::placement::message::{HostNotice, PeerEvent, RanOutput, ToBalancer, ToHost, ToMember};
use vireo_fabric::identity::TlsConfig;
use vireo_fabric::stream::Stream;
use vireo_fabric::{Role, Security, frame};
use vireo_node::cluster::{BalancerConfig, BalancerNode};
use vireo_node::control::StartError;
use vireo_ops::config::{ApiConfig, N2Config, N4Config, S1Config};
use vireo_ops::metrics::Metrics;
use vireo_sctp::memory::Network;
use vireo_sctp::{Config, Endpoint, Event, HandoffError};
use vireo_types::{AssocId, Dialect};

const WITHIN: Duration = Duration::from_secs(20);
/// The failure timeout is four intervals, longer than any pause of a thread.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// Messages received by the host, and by the RAN node (`Node`).
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReceivedMessage {
    Up(AssocId),
    Ngap(u64, Vec<u8>),
    Other,
    Node(Vec<u8>),
}

struct World {
    network: Network,
    config: BalancerConfig,
    balancer: BalancerNode,
    /// Controller, unless it is embedded in the balancer.
    _controller: Option<ControllerHandle>,
    host: ControllerClient,
    host_stream: Stream,
    progress: ProgressCounter,
    _heartbeats: HeartbeatHandle,
    node: Box<dyn Endpoint>,
    /// The RAN node's association: its own ID and the cluster's ID.
    assoc: (AssocId, AssocId),
    received: Vec<ReceivedMessage>,
    /// Epoch of the newest map that the host has received.
    epoch: u64,
    _directory: tempfile::TempDir,
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a TCP port")
}

/// Returns the configuration of an endpoint of N2 or S1.
fn ran(last: u8, port: u16) -> Config {
    Config { addresses: vec![Ipv4Addr::new(10, 0, 0, last).into()], port, listen: port != 0, ..Config::default() }
}

fn settings(controller: Option<SocketAddr>, path: &Path) -> BalancerConfig {
    let api = listener().local_addr().expect("an address");
    BalancerConfig {
        core: CoreConfig::lab(),
        slices: Vec::new(),
        n2: N2Config::default(),
        n4: N4Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), direct: false, allow: Vec::new() },
        api: ApiConfig { listen: Some(api), ..ApiConfig::loopback(path.join("api.token")) },
        cluster: ClusterConfig {
            controllers: controller.into_iter().map(Into::into).collect(),
            balancer: match controller {
                Some(_) => (Ipv4Addr::LOCALHOST, 0).into(),
                None => listener().local_addr().expect("an address"),
            },
            hot_restart_socket: Some(path.join("hot-restart")),
            hosts: 1,
            heartbeat: HEARTBEAT,
            ..ClusterConfig::default()
        },
        upf: None,
        management: Management::default(),
    }
}

/// Returns a second configuration with the same values, as another process would read it.
fn copy(config: &BalancerConfig) -> BalancerConfig {
    BalancerConfig {
        core: CoreConfig::lab(),
        slices: Vec::new(),
        n2: config.n2.clone(),
        n4: config.n4.clone(),
        api: config.api.clone(),
        cluster: config.cluster.clone(),
        upf: None,
        management: Management::default(),
    }
}

impl World {
    /// Creates a world with a separate controller, or with one embedded in the only balancer. Its
    /// RAN node has the dialect; only with EPS the balancer has an endpoint of S1.
    fn new(separate_controller: bool, dialect: Dialect) -> Self {
        let (directory, plain) = (tempfile::tempdir().expect("a directory"), Security::default());
        let controller_listener = separate_controller.then(listener);
        let address = controller_listener
            .as_ref()
            .map(|controller_listener| controller_listener.local_addr().expect("an address"));
        let mut config = settings(address, directory.path());
        if dialect == Dialect::Eps {
            config.n2.s1 = S1Config { addresses: ran(1, 36412).addresses, ..S1Config::default() };
        }
        let metrics = Arc::new(Metrics::new());
        let start = |controller_listener| {
            ControllerHandle::start(controller_listener, (&config.cluster, &plain), &[], false, &metrics)
        };
        let controller = controller_listener.map(|controller_listener| start(controller_listener).expect("it starts"));
        let network = Network::new();
        let mut endpoint = network.bind(&ran(1, 38412)).expect("it binds");
        let port = match dialect {
            Dialect::Nr => 38412,
            Dialect::Eps => {
                let s1 = network.bind(&ran(1, 36412)).expect("it binds");
                endpoint = vireo_sctp::pair(endpoint, s1).expect("a pair");
                36412
            }
        };
        let balancer =
            BalancerNode::start_on(endpoint, copy(&config), Arc::new(Metrics::new())).expect("the balancer starts");
        let me = LocalMember::Host((Ipv4Addr::LOCALHOST, 9).into());
        let (mut host, reply) = ControllerClient::join(&config.cluster, &plain, me).expect("the host joins");
        let JoinReply::Host(welcome) = reply else { panic!("a host's welcome") };
        host.report_ready();
        let progress = ProgressCounter::default();
        let member = Member::Host(welcome.host);
        let heartbeats =
            HeartbeatHandle::start(member, HEARTBEAT, &plain, vec![progress.clone()], None).expect("a thread");
        let (address, epoch) = first_map(&mut host, &progress);
        heartbeats.set_targets(HeartbeatTargets { controller: host.controller(), balancers: vec![address] });
        let mut host_stream = Stream::connect(address, &plain, Role::Host, &[Role::Balancer]).expect("it connects");
        host_stream.put(&ToBalancer::Hello(welcome.host));
        let mut node = network.bind(&ran(2, 0)).expect("it binds");
        let own = node.connect((Ipv4Addr::new(10, 0, 0, 1), port).into()).expect("it connects");
        let assoc = (own, AssocId(0));
        let (_heartbeats, _controller, _directory, received) = (heartbeats, controller, directory, Vec::new());
        let mut world = World {
            network,
            config,
            balancer,
            _controller,
            host,
            host_stream,
            progress,
            _heartbeats,
            node,
            assoc,
            received,
            epoch,
            _directory,
        };
        world.wait_until(|received| received.iter().any(|received| matches!(received, ReceivedMessage::Up(_))));
        let up = world.received.drain(..).find_map(|received| match received {
            ReceivedMessage::Up(assoc) => Some(assoc),
            _ => None,
        });
        world.assoc.1 = up.expect("it is up");
        world
    }

    /// Runs all parts until a condition on the received messages holds.
    fn wait_until(&mut self, condition: impl Fn(&[ReceivedMessage]) -> bool) {
        let deadline = Monotonic::now() + WITHIN;
        while !condition(&self.received) {
            assert!(Monotonic::now() < deadline, "not within {WITHIN:?}: {:?}", self.received);
            self.run_once();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn run_once(&mut self) {
        self.progress.tick();
        let epoch = &mut self.epoch;
        let on_message = &mut |message| {
            if let ToMember::Map(map) = message {
                *epoch = map.epoch().max(*epoch);
            }
        };
        self.host.poll(Monotonic::now(), on_message).expect("it is a member");
        self.host_stream.flush().expect("the way to the balancer is open");
        self.host_stream.fill().expect("the way to the balancer is open");
        while let Some(octets) = self.host_stream.frame().expect("frames") {
            self.received.extend(match frame::decode(octets).expect("a message") {
                ToHost::Event(envelope) => match &envelope.event {
                    PeerEvent::Up { assoc, .. } => Some(ReceivedMessage::Up(*assoc)),
                    PeerEvent::Ngap { pdu, .. } => Some(ReceivedMessage::Ngap(envelope.number, pdu.clone())),
                    PeerEvent::Down { .. } => Some(ReceivedMessage::Other),
                    _ => None,
                },
                ToHost::Refused(_) => Some(ReceivedMessage::Other),
                _ => None,
            });
        }
        let received = &mut self.received;
        let polled = self.node.poll(Some(Duration::ZERO), &mut |event| match event {
            Event::Message { data, .. } => received.push(ReceivedMessage::Node(data.to_vec())),
            Event::Down { .. } | Event::Restarted { .. } => received.push(ReceivedMessage::Other),
            _ => {}
        });
        polled.expect("it is polled");
    }

    fn ppid(&self) -> u32 {
        match self.assoc.1.dialect() {
            Dialect::Nr => PPID_NGAP,
            Dialect::Eps => PPID_S1AP,
        }
    }

    /// Sends a message of the RAN node to the host. Returns its input number.
    fn send_uplink(&mut self, value: u8) -> u64 {
        self.node.send(self.assoc.0, 0, self.ppid(), &[value]).expect("it is up");
        self.receive_uplink(value)
    }

    fn receive_uplink(&mut self, value: u8) -> u64 {
        let number = |received: &ReceivedMessage| match received {
            ReceivedMessage::Ngap(number, pdu) if *pdu == [value] => Some(*number),
            _ => None,
        };
        self.wait_until(|received| received.iter().any(|received| number(received).is_some()));
        self.received.drain(..).find_map(|received| number(&received)).expect("it was heard")
    }

    /// Sends a message of the host to the RAN node.
    fn send_downlink(&mut self, value: u8) {
        let ngap = RanOutput::Ngap { assoc: self.assoc.1, ue: None, key: 0, pdu: vec![value] };
        self.host_stream.put(&ToBalancer::Output(Cow::Owned(ngap)));
        self.wait_until(|received| received.contains(&ReceivedMessage::Node(vec![value])));
        self.received.clear();
    }

    /// Waits until the host is connected to a controller.
    fn wait_for_controller(&mut self) {
        let deadline = Monotonic::now() + WITHIN;
        while self.host.controller().is_none() {
            assert!(Monotonic::now() < deadline, "there is no controller");
            self.run_once();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn path(&self) -> &Path {
        self.config.cluster.hot_restart_socket.as_deref().expect("a path")
    }

    /// Runs a hot restart of the balancer.
    fn hot_restart(&mut self) {
        let network = self.network.clone();
        let by = |config: &Config, handover| network.adopt(&ran(1, config.port), handover);
        let config = copy(&self.config);
        let next = BalancerNode::take_over_by(by, config, Arc::new(Metrics::new())).expect("it takes over");
        let before = std::mem::replace(&mut self.balancer, next);
        let deadline = Monotonic::now() + WITHIN;
        while !before.has_successor() {
            assert!(Monotonic::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Requests a hot restart.
    fn request_hot_restart(&self) -> HotRestartChannel {
        let socket = UnixStream::connect(self.path()).expect("it is there");
        let mut channel = HotRestartChannel::new(socket, WITHIN, ProgressCounter::default()).expect("a line");
        channel.send(&SuccessorMessage::TakeOver { format: FORMAT }).expect("room");
        channel
    }

    /// Requests a hot restart and receives sockets and snapshot.
    fn receive_snapshot(&self) -> (HotRestartChannel, Vec<OwnedFd>) {
        let mut channel = self.request_hot_restart();
        let PredecessorMessage::State { sockets } = channel.receive().expect("an answer") else {
            panic!("it is to hand over")
        };
        let sockets = channel.receive_sockets(sockets as usize).expect("sockets");
        let _: BalancerSnapshot = channel.receive().expect("a snapshot");
        (channel, sockets)
    }

    fn health(&self) -> String {
        let mut stream = TcpStream::connect(self.config.api.listen.expect("an address")).expect("it listens");
        stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

/// Returns the balancer's address for hosts and the epoch, both of the first map.
fn first_map(host: &mut ControllerClient, progress: &ProgressCounter) -> (SocketAddr, u64) {
    let (mut found, deadline) = (None, Monotonic::now() + WITHIN);
    while found.is_none() {
        assert!(Monotonic::now() < deadline, "there is no map");
        progress.tick();
        let on_message = &mut |message| {
            if let ToMember::Map(map) = message {
                found = map.balancers.first().map(|(_, address)| (*address, map.epoch()));
            }
        };
        host.poll(Monotonic::now(), on_message).expect("it is a member");
        std::thread::sleep(Duration::from_millis(1));
    }
    found.expect("it was found")
}

fn hot_restart_continues(mut world: World) {
    let (first, epoch) = (world.send_uplink(1), world.epoch);
    world.send_downlink(11);
    // Sent by the first balancer and returned to its successor.
    let unfinished = world.send_uplink(2);
    let mut last = unfinished;
    for round in 0..3 {
        // Sent during the hot restart.
        world.node.send(world.assoc.0, 0, world.ppid(), &[100 + round]).expect("it is up");
        world.hot_restart();
        let number = world.receive_uplink(100 + round);
        assert!(number > last && last >= first, "numbers go on");
        last = number;
        world.send_downlink(20 + round);
    }
    world.host_stream.put(&ToBalancer::Notice(HostNotice::ReturnInput { number: unfinished }));
    assert_eq!(world.receive_uplink(2), unfinished, "what was given is known");
    assert!(world.health().ends_with("ok\n"));
    assert!(!world.received.contains(&ReceivedMessage::Other) && !world.balancer.has_failed());
    world.wait_for_controller();
    assert_eq!(world.epoch, epoch, "nobody has gone, and nobody has come");
}

#[test]
fn hot_restart_is_invisible_to_peers() {
    hot_restart_continues(World::new(true, Dialect::Nr));
}

#[test]
fn hot_restart_of_only_balancer_is_invisible() {
    hot_restart_continues(World::new(false, Dialect::Nr));
}

#[test]
fn hot_restart_is_invisible_to_enbs() {
    hot_restart_continues(World::new(true, Dialect::Eps));
}

#[test]
fn successor_with_other_endpoints_is_refused() {
    let mut world = World::new(true, Dialect::Eps);
    let network = world.network.clone();
    let by = |config: &Config, handover| network.adopt(&ran(1, config.port), handover);
    let mut config = copy(&world.config);
    config.n2.s1.addresses.clear();
    match BalancerNode::take_over_by(by, config, Arc::new(Metrics::new())) {
        Err(StartError::Handover(HotRestartError::Sctp(HandoffError::Pair))) => {}
        other => panic!("{other:?}"),
    }
    world.send_uplink(1);
    world.send_downlink(2);
}

#[test]
fn balancer_continues_after_failed_hot_restart() {
    failed_restart_continues(World::new(true, Dialect::Nr));
}

#[test]
fn only_balancer_continues_after_failed_restart() {
    failed_restart_continues(World::new(false, Dialect::Nr));
}

fn failed_restart_continues(mut world: World) {
    let epoch = world.epoch;
    assert!(matches!(HotRestartListener::open(world.path(), None, None), Err(HotRestartError::InUse(_))));
    let file = world.path().with_extension("file");
    std::fs::write(&file, "somebody's").expect("a file");
    assert!(matches!(HotRestartListener::open(&file, None, None), Err(HotRestartError::Path { .. })));
    assert!(file.exists(), "what is no socket stays");
    let check_serving = |world: &mut World, n: u8| {
        world.send_uplink(n);
        world.send_downlink(n + 100);
        assert!(!world.balancer.has_successor() && !world.balancer.has_failed());
    };
    // A successor with an incompatible snapshot format.
    let mut channel = HotRestartChannel::new(
        UnixStream::connect(world.path()).expect("it is there"),
        WITHIN,
        ProgressCounter::default(),
    );
    let channel = channel.as_mut().expect("a line");
    channel.send(&SuccessorMessage::TakeOver { format: (FORMAT.0 + 1, FORMAT.1) }).expect("room");
    assert!(
        matches!(channel.receive().expect("an answer"), PredecessorMessage::Refused(why) if why.contains("too far apart"))
    );
    check_serving(&mut world, 1);
    // A successor that dies before it is ready, and one that dies after `Commit`.
    drop(world.receive_snapshot());
    check_serving(&mut world, 2);
    let (mut channel, sockets) = world.receive_snapshot();
    channel.send(&SuccessorMessage::Ready).expect("room");
    assert!(matches!(channel.receive().expect("an answer"), PredecessorMessage::Commit));
    drop((channel, sockets));
    check_serving(&mut world, 3);
    // A successor that never becomes ready: its messages arrive too late.
    let (mut channel, sockets) = world.receive_snapshot();
    check_serving(&mut world, 4);
    assert!(matches!(channel.receive().expect("an answer"), PredecessorMessage::Refused(_)));
    drop((channel, sockets));
    world.wait_for_controller();
    world.hot_restart();
    check_serving(&mut world, 5);
    world.wait_for_controller();
    assert!(!world.received.contains(&ReceivedMessage::Other) && world.epoch == epoch);
}

#[test]
fn hot_restart_with_tls_or_no_path_is_refused() {
    let path = tempfile::tempdir().expect("a directory");
    let nowhere = Some((Ipv4Addr::LOCALHOST, 9).into());
    let refused = |config: BalancerConfig| {
        let (endpoint, _) = vireo_sctp::memory::pair();
        match BalancerNode::start_on(endpoint, config, Arc::new(Metrics::new())) {
            Err(StartError::Handover(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let mut secured = settings(nowhere, path.path());
    let none = PathBuf::new;
    let (certificate, key, authorities) = (none(), none(), none());
    secured.cluster.tls = Some(TlsConfig { certificate, key, authorities, name: "vireo".into() });
    assert!(matches!(refused(secured), HotRestartError::Tls));
    let absent = settings(nowhere, path.path());
    let error = BalancerNode::take_over(absent, Arc::new(Metrics::new())).expect_err("nobody is there");
    assert!(error.to_string().contains("no running balancer at"), "{error}");
    let mut unconfigured = settings(nowhere, path.path());
    unconfigured.cluster.hot_restart_socket = None;
    let error = BalancerNode::take_over(unconfigured, Arc::new(Metrics::new())).expect_err("it is not said where");
    assert!(error.to_string().contains("set it"), "{error}");
}
