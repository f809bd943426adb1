//! Tests of hot restarts, with an in-memory RAN node, a host and a controller.
//!
//! The successors run in the same process.

use super::*;
use crate::balancer::fleet::tests::core;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant as Monotonic;
use vireo_cluster::{
    BalancerConfig, BalancerNode, ControllerClient, HeartbeatHandle, HeartbeatTargets, JoinReply, LocalMember,
};
use vireo_controller as controller;
use vireo_core::placement::cluster::Member;
use vireo_core::placement::message::{ToBalancer, ToHost, ToMember};
use vireo_fabric::Role;
use vireo_fabric::frame;
use vireo_fabric::identity::TlsConfig;
use vireo_fabric::stream::Stream;
use vireo_ops::config::{ApiConfig, N2Config, N4Config};
use vireo_sctp::memory::Network;
use vireo_sctp::{Config, Event};

const WITHIN: Duration = Duration::from_secs(20);
/// The failure timeout is four intervals, longer than any pause of a thread.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// Messages received by the host, and by the RAN node (`Node`).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Up(AssocId),
    Ngap(u64, Vec<u8>),
    Other,
    Node(Vec<u8>),
}

struct World {
    network: Network,
    n2: Config,
    config: BalancerConfig,
    balancer: BalancerNode,
    /// Controller, unless it is embedded in the balancer.
    _controller: Option<controller::ControllerHandle>,
    host: ControllerClient,
    way: Stream,
    turns: ProgressCounter,
    _pulse: HeartbeatHandle,
    node: Box<dyn Endpoint>,
    /// The RAN node's association: its own ID and the cluster's ID.
    assoc: (AssocId, AssocId),
    heard: Vec<Heard>,
    /// Epoch of the newest map that the host has received.
    epoch: u64,
    _directory: tempfile::TempDir,
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a TCP port")
}

fn n2(last: u8, port: u16) -> Config {
    Config { addresses: vec![Ipv4Addr::new(10, 0, 0, last).into()], port, listen: port != 0, ..Config::default() }
}

fn settings(controller: Option<SocketAddr>, path: &Path) -> BalancerConfig {
    let api = listener().local_addr().expect("an address");
    BalancerConfig {
        core: core(),
        slices: Vec::new(),
        n2: N2Config::default(),
        n4: N4Config { listen: (Ipv4Addr::LOCALHOST, 0).into(), direct: false, allow: Vec::new() },
        api: ApiConfig { listen: Some(api), ..ApiConfig::loopback(path.join("api.token")) },
        cluster: ClusterConfig {
            controllers: controller.into_iter().collect(),
            balancer: match controller {
                Some(_) => (Ipv4Addr::LOCALHOST, 0).into(),
                None => listener().local_addr().expect("an address"),
            },
            handover: Some(path.join("handover")),
            hosts: 1,
            heartbeat: HEARTBEAT,
            ..ClusterConfig::default()
        },
        upf: None,
    }
}

/// Returns a second configuration with the same values, as another process would read it.
fn copy(config: &BalancerConfig) -> BalancerConfig {
    BalancerConfig {
        core: core(),
        slices: Vec::new(),
        n2: config.n2.clone(),
        n4: config.n4.clone(),
        api: config.api.clone(),
        cluster: config.cluster.clone(),
        upf: None,
    }
}

impl World {
    /// Creates a world with a separate controller, or with one embedded in the only balancer.
    fn new(apart: bool) -> Self {
        let (directory, plain) = (tempfile::tempdir().expect("a directory"), Security::default());
        let taken = apart.then(listener);
        let address = taken.as_ref().map(|taken| taken.local_addr().expect("an address"));
        let config = settings(address, directory.path());
        let start = |taken| controller::ControllerHandle::start(taken, (&config.cluster, &plain), &[], false);
        let controller = taken.map(|taken| start(taken).expect("it starts"));
        let (network, server) = (Network::new(), n2(1, 38412));
        let endpoint = network.bind(&server).expect("it binds");
        let balancer =
            BalancerNode::start_on(endpoint, copy(&config), Arc::new(Metrics::new())).expect("the balancer starts");
        let me = LocalMember::Host((Ipv4Addr::LOCALHOST, 9).into());
        let (mut host, told) = ControllerClient::join(&config.cluster, &plain, me).expect("the host joins");
        let JoinReply::Host(welcome) = told else { panic!("a host's welcome") };
        host.ready();
        let turns = ProgressCounter::default();
        let member = Member::Host(welcome.host);
        let pulse = HeartbeatHandle::start(member, HEARTBEAT, &plain, vec![turns.clone()], None).expect("a thread");
        let (address, epoch) = find(&mut host, &turns);
        pulse.goes_to(HeartbeatTargets { controller: host.controller(), balancers: vec![address] });
        let mut way = Stream::connect(address, &plain, Role::Host, &[Role::Balancer]).expect("it connects");
        way.put(&ToBalancer::Host(welcome.host));
        let mut node = network.bind(&n2(2, 0)).expect("it binds");
        let own = node.connect((Ipv4Addr::new(10, 0, 0, 1), 38412).into()).expect("it connects");
        let assoc = (own, AssocId(0));
        let (n2, _pulse, _controller, _directory, heard) = (server, pulse, controller, directory, Vec::new());
        let mut world = World {
            network,
            n2,
            config,
            balancer,
            _controller,
            host,
            way,
            turns,
            _pulse,
            node,
            assoc,
            heard,
            epoch,
            _directory,
        };
        world.until(|heard| heard.iter().any(|heard| matches!(heard, Heard::Up(_))));
        let up = world.heard.drain(..).find_map(|heard| match heard {
            Heard::Up(assoc) => Some(assoc),
            _ => None,
        });
        world.assoc.1 = up.expect("it is up");
        world
    }

    /// Runs all parts until a condition on the received messages holds.
    fn until(&mut self, is_so: impl Fn(&[Heard]) -> bool) {
        let until = Monotonic::now() + WITHIN;
        while !is_so(&self.heard) {
            assert!(Monotonic::now() < until, "not within {WITHIN:?}: {:?}", self.heard);
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn turn(&mut self) {
        self.turns.turn();
        let epoch = &mut self.epoch;
        let news = &mut |message| {
            if let ToMember::Map(map) = message {
                *epoch = map.epoch().max(*epoch);
            }
        };
        self.host.poll(Monotonic::now(), news).expect("it is a member");
        self.way.flush().expect("the way to the balancer is open");
        self.way.fill().expect("the way to the balancer is open");
        while let Some(octets) = self.way.frame().expect("frames") {
            self.heard.extend(match frame::decode(octets).expect("a message") {
                ToHost::Up { assoc, .. } => Some(Heard::Up(assoc)),
                ToHost::Ngap { number, pdu, .. } => Some(Heard::Ngap(number, pdu.to_vec())),
                ToHost::Down { .. } | ToHost::Refused(_) => Some(Heard::Other),
                _ => None,
            });
        }
        let heard = &mut self.heard;
        let polled = self.node.poll(Some(Duration::ZERO), &mut |event| match event {
            Event::Message { data, .. } => heard.push(Heard::Node(data.to_vec())),
            Event::Down { .. } | Event::Restarted { .. } => heard.push(Heard::Other),
            _ => {}
        });
        polled.expect("it is polled");
    }

    /// Sends a message of the RAN node to the host. Returns its input number.
    fn says(&mut self, what: u8) -> u64 {
        self.node.send(self.assoc.0, 0, super::super::PPID_NGAP, &[what]).expect("it is up");
        self.hears(what)
    }

    fn hears(&mut self, what: u8) -> u64 {
        let number = |heard: &Heard| match heard {
            Heard::Ngap(number, pdu) if *pdu == [what] => Some(*number),
            _ => None,
        };
        self.until(|heard| heard.iter().any(|heard| number(heard).is_some()));
        self.heard.drain(..).find_map(|heard| number(&heard)).expect("it was heard")
    }

    /// Sends a message of the host to the RAN node.
    fn answers(&mut self, what: u8) {
        let pdu = &[what][..];
        self.way.put(&ToBalancer::Ngap { assoc: self.assoc.1, ue: None, key: 0, pdu });
        self.until(|heard| heard.contains(&Heard::Node(vec![what])));
        self.heard.clear();
    }

    /// Waits until the host is connected to a controller.
    fn has_controller(&mut self) {
        let until = Monotonic::now() + WITHIN;
        while self.host.controller().is_none() {
            assert!(Monotonic::now() < until, "there is no controller");
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn path(&self) -> &Path {
        self.config.cluster.handover.as_deref().expect("a path")
    }

    /// Runs a hot restart of the balancer.
    fn follow(&mut self) {
        let (network, n2) = (self.network.clone(), self.n2.clone());
        let by = |handover| network.adopt(&n2, handover);
        let config = copy(&self.config);
        let next = BalancerNode::take_over_by(by, config, Arc::new(Metrics::new())).expect("it takes over");
        let before = std::mem::replace(&mut self.balancer, next);
        let until = Monotonic::now() + WITHIN;
        while !before.is_followed() {
            assert!(Monotonic::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Requests a hot restart.
    fn ask(&self) -> HotRestartChannel {
        let socket = UnixStream::connect(self.path()).expect("it is there");
        let mut line = HotRestartChannel::new(socket, WITHIN, ProgressCounter::default()).expect("a line");
        line.send(&SuccessorMessage::TakeOver { words: WORDS }).expect("room");
        line
    }

    /// Requests a hot restart and receives sockets and snapshot.
    fn asked(&self) -> (HotRestartChannel, Vec<OwnedFd>) {
        let mut line = self.ask();
        let PredecessorMessage::State { sockets } = line.receive().expect("an answer") else {
            panic!("it is to hand over")
        };
        let sockets = line.take_sockets(sockets as usize).expect("sockets");
        let _: BalancerSnapshot = line.receive().expect("a snapshot");
        (line, sockets)
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
fn find(host: &mut ControllerClient, turns: &ProgressCounter) -> (SocketAddr, u64) {
    let (mut found, until) = (None, Monotonic::now() + WITHIN);
    while found.is_none() {
        assert!(Monotonic::now() < until, "there is no map");
        turns.turn();
        let news = &mut |message| {
            if let ToMember::Map(map) = message {
                found = map.balancers.first().map(|(_, address)| (*address, map.epoch()));
            }
        };
        host.poll(Monotonic::now(), news).expect("it is a member");
        std::thread::sleep(Duration::from_millis(1));
    }
    found.expect("it was found")
}

fn others_go_on(mut world: World) {
    let (first, epoch) = (world.says(1), world.epoch);
    world.answers(11);
    // Sent by the first balancer and returned to its successor.
    let unfinished = world.says(2);
    let mut last = unfinished;
    for round in 0..3 {
        // Sent during the hot restart.
        world.node.send(world.assoc.0, 0, super::super::PPID_NGAP, &[100 + round]).expect("it is up");
        world.follow();
        let number = world.hears(100 + round);
        assert!(number > last && last >= first, "numbers go on");
        last = number;
        world.answers(20 + round);
    }
    world.way.put(&ToBalancer::Back { number: unfinished });
    assert_eq!(world.hears(2), unfinished, "what was given is known");
    assert!(world.health().ends_with("ok\n"));
    assert!(!world.heard.contains(&Heard::Other) && !world.balancer.has_failed());
    world.has_controller();
    assert_eq!(world.epoch, epoch, "nobody has gone, and nobody has come");
}

#[test]
fn others_go_on_in_a_balancers_place_and_nobody_notices() {
    others_go_on(World::new(true));
}

#[test]
fn others_go_on_in_the_place_of_the_only_balancer_and_its_controller() {
    others_go_on(World::new(false));
}

#[test]
fn a_balancer_goes_on_when_who_takes_over_dies_or_is_silent() {
    goes_on_alone(World::new(true));
}

#[test]
fn the_only_balancer_and_its_controller_go_on_when_who_takes_over_dies_or_is_silent() {
    goes_on_alone(World::new(false));
}

fn goes_on_alone(mut world: World) {
    let epoch = world.epoch;
    assert!(matches!(HotRestartListener::open(world.path(), None, None), Err(HotRestartError::InUse(_))));
    let file = world.path().with_extension("file");
    std::fs::write(&file, "somebody's").expect("a file");
    assert!(matches!(HotRestartListener::open(&file, None, None), Err(HotRestartError::Path { .. })));
    assert!(file.exists(), "what is no socket stays");
    let goes_on = |world: &mut World, n: u8| {
        world.says(n);
        world.answers(n + 100);
        assert!(!world.balancer.is_followed() && !world.balancer.has_failed());
    };
    // A successor with an incompatible snapshot format.
    let mut line = HotRestartChannel::new(
        UnixStream::connect(world.path()).expect("it is there"),
        WITHIN,
        ProgressCounter::default(),
    );
    let line = line.as_mut().expect("a line");
    line.send(&SuccessorMessage::TakeOver { words: (WORDS.0 + 1, WORDS.1) }).expect("room");
    assert!(
        matches!(line.receive().expect("an answer"), PredecessorMessage::Refused(why) if why.contains("too far apart"))
    );
    goes_on(&mut world, 1);
    // A successor that dies before it is ready, and one that dies after `Commit`.
    drop(world.asked());
    goes_on(&mut world, 2);
    let (mut line, sockets) = world.asked();
    line.send(&SuccessorMessage::Ready).expect("room");
    assert!(matches!(line.receive().expect("an answer"), PredecessorMessage::Commit));
    drop((line, sockets));
    goes_on(&mut world, 3);
    // A successor that never becomes ready: its messages arrive too late.
    let (mut line, sockets) = world.asked();
    goes_on(&mut world, 4);
    assert!(matches!(line.receive().expect("an answer"), PredecessorMessage::Refused(_)));
    drop((line, sockets));
    world.has_controller();
    world.follow();
    goes_on(&mut world, 5);
    world.has_controller();
    assert!(!world.heard.contains(&Heard::Other) && world.epoch == epoch);
}

#[test]
fn who_is_silent_when_it_has_all_is_ended_first() {
    let mut process = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
    let pid = Pid::from_child(&process);
    let by = pidfd_open(pid, PidfdFlags::empty()).expect("it is there");
    end(pid, &by).expect("it is ours");
    assert!(!process.wait().expect("it has ended").success());
}

#[test]
fn what_would_end_with_its_process_is_not_handed_over() {
    let path = tempfile::tempdir().expect("a directory");
    let nowhere = Some((Ipv4Addr::LOCALHOST, 9).into());
    let refused = |config: BalancerConfig| {
        let (endpoint, _) = vireo_sctp::memory::pair();
        match BalancerNode::start_on(endpoint, config, Arc::new(Metrics::new())) {
            Err(crate::control::StartError::Handover(why)) => why,
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
    assert!(error.to_string().contains("no balancer hands over at"), "{error}");
    let mut unsaid = settings(nowhere, path.path());
    unsaid.cluster.handover = None;
    let error = BalancerNode::take_over(unsaid, Arc::new(Metrics::new())).expect_err("it is not said where");
    assert!(error.to_string().contains("set it"), "{error}");
}
