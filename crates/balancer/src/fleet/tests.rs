use super::*;
use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::time::{Duration as Span, Instant as Monotonic};
use vireo_controller as controller;
use vireo_core::placement::balance::map::SliceBuckets;
use vireo_core::placement::balance::ring::WeightedHost;
use vireo_core::placement::cluster::Member as Joined;
use vireo_core::placement::message::{BalancerNotice, HostNotice, RanOutput, ToBalancer, ToHost};
use vireo_core::placement::replica::Claim;
use vireo_fabric::Role;
use vireo_fabric::frame::decode;
use vireo_fabric::stream::Stream;
use vireo_types::{Ltmsi, Supi};

const WITHIN: Span = Span::from_secs(20);

/// Returns the number of connected hosts of the map.
fn connected(fleet: &Fleet) -> usize {
    fleet.machine.connected_hosts().count()
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a TCP port")
}

/// A controller, balancers, and a host's connections to each of them.
struct World {
    controller: controller::ControllerHandle,
    fleets: Vec<Fleet>,
    host: ControllerClient,
    host_streams: Vec<Stream>,
    /// Heartbeat thread of the host, if it runs, and the progress counter that it watches.
    heartbeats: Option<HeartbeatHandle>,
    progress: ProgressCounter,
    number: HostId,
    heartbeat: Span,
}

impl World {
    fn new(balancers: usize) -> Self {
        World::beating(balancers, ClusterConfig::default().heartbeat)
    }

    fn beating(balancers: usize, heartbeat: Span) -> Self {
        let controller_listener = listener();
        let controllers = vec![controller_listener.local_addr().expect("an address").into()];
        let config = ClusterConfig { controllers, hosts: 1, heartbeat, ..ClusterConfig::default() };
        let plain = Security::default();
        let metrics = Arc::new(Metrics::new());
        let controller =
            controller::ControllerHandle::start(controller_listener, (&config, &plain), &[], false, &metrics)
                .expect("a controller");
        let core = CoreConfig::lab();
        let fleet_config = FleetConfig { cluster: &config, security: &plain, endpoints: &[], core: &core, slices: &[] };
        let fleet = |_| Fleet::join(listener(), fleet_config, Arc::clone(&metrics)).expect("it joins");
        let mut fleets: Vec<Fleet> = (0..balancers).map(fleet).collect();
        let (mut host, reply) =
            ControllerClient::join(&config, &plain, LocalMember::Host((Ipv4Addr::LOCALHOST, 9).into()))
                .expect("the host joins");
        let JoinReply::Host(welcome) = reply else { panic!("a host's welcome") };
        host.report_ready();
        let host_stream = |fleet: &Fleet| {
            let to = fleet.io.listener.local_addr().expect("an address");
            let mut stream = Stream::connect(to, &plain, Role::Host, &[Role::Balancer]).expect("it connects");
            stream.put(&ToBalancer::Hello(welcome.host));
            stream
        };
        let host_streams = fleets.iter().map(host_stream).collect();
        fleets.iter_mut().for_each(Fleet::pump);
        let (heartbeats, progress, number) = (None, ProgressCounter::default(), welcome.host);
        let mut world = World { controller, fleets, host, host_streams, heartbeats, progress, number, heartbeat };
        let is_set_up = |fleet: &Fleet| {
            connected(fleet) == 1 && fleet.machine.map().is_some_and(|map| map.balancers.len() == balancers)
        };
        world.run(true, |world| world.fleets.iter().all(is_set_up));
        world
    }

    /// Runs until a condition holds, with or without heartbeats of the host.
    fn run(&mut self, beats: bool, mut condition: impl FnMut(&World) -> bool) {
        let deadline = Monotonic::now() + WITHIN;
        while !condition(self) {
            assert!(Monotonic::now() < deadline, "not within {WITHIN:?}");
            match beats {
                true => self.beat(),
                false => self.heartbeats = None,
            }
            self.fleets.iter_mut().for_each(Fleet::pump);
            std::thread::sleep(Span::from_millis(10));
        }
    }

    /// Advances the host's progress counter and runs its heartbeats.
    fn beat(&mut self) {
        self.progress.tick();
        self.host.poll(Monotonic::now(), &mut |_| ()).expect("it is a member");
        self.host_streams.iter_mut().for_each(|host_stream| host_stream.flush().expect("there is a balancer"));
        let start = || {
            let watched = vec![self.progress.clone()];
            HeartbeatHandle::start(Joined::Host(self.number), self.heartbeat, &Security::default(), watched, None)
        };
        let heartbeats = match self.heartbeats.take() {
            Some(heartbeats) => heartbeats,
            None => start().expect("a thread"),
        };
        let balancers = self.fleets.iter().map(|fleet| fleet.io.listener.local_addr().expect("an address"));
        heartbeats.set_targets(HeartbeatTargets { controller: self.host.controller(), balancers: balancers.collect() });
        self.heartbeats = Some(heartbeats);
    }

    fn wait(&mut self, beats: bool, span: Span) {
        let deadline = Monotonic::now() + span;
        self.run(beats, |_| Monotonic::now() >= deadline);
    }
}

#[test]
fn silent_balancer_is_isolated_unless_only_one() {
    let mut world = World::new(2);
    world.wait(true, Span::from_millis(400));
    assert!(world.fleets.iter().all(|fleet| !fleet.machine.is_isolated()));
    // The controller has ended, and its machine refuses connections.
    world.controller.stop();
    world.wait(true, Span::from_millis(400));
    assert!(world.fleets.iter().all(|fleet| !fleet.machine.is_isolated()), "hosts are heard");
    world.wait(false, Span::from_millis(400));
    assert!(
        world.fleets.iter().all(|fleet| !fleet.machine.is_isolated()),
        "the way to the controller's machine is sound"
    );
    // From here on the controller's address does not respond.
    let mute = listener();
    let silent_address = mute.local_addr().expect("an address");
    world.fleets.iter_mut().for_each(|fleet| fleet.io.controller.set_address(silent_address));
    world.run(false, |world| world.fleets.iter().all(|fleet| fleet.machine.is_isolated()));
    world.run(true, |world| world.fleets.iter().all(|fleet| !fleet.machine.is_isolated()));

    let mut single = World::new(1);
    single.controller.stop();
    single.fleets[0].io.controller.set_address(silent_address);
    single.wait(false, Span::from_millis(1000));
    assert!(!single.fleets[0].machine.is_isolated(), "there is no other to go to");
}

/// The data connection of a busy host is full. Its heartbeats use another connection, and continue
/// as long as its threads progress.
#[test]
fn busy_host_is_heard_and_hung_host_is_silent() {
    // The failure timeout is one second, so that a pause of a thread does not count as silence.
    let mut world = World::beating(1, Span::from_millis(250));
    let pdu = vec![0; 32 << 10];
    for _ in 0..256 {
        // More than the connection buffers while the balancer does not read.
        let ngap = RanOutput::Ngap { assoc: AssocId(1), ue: None, key: 0, pdu: pdu.clone() };
        world.host_streams[0].put(&ToBalancer::Output(Cow::Owned(ngap)));
    }
    let (began, unsent) = (Monotonic::now(), world.host_streams[0].unsent());
    while began.elapsed() < Span::from_millis(1600) {
        world.progress.tick();
        world.fleets[0].pump();
        std::thread::sleep(Span::from_millis(5));
    }
    let fleet = &world.fleets[0];
    assert_eq!(world.host_streams[0].unsent(), unsent, "the host itself has said nothing");
    assert_eq!(fleet.machine.silent_hosts(), [], "the balancer receives heartbeats");
    assert!(fleet.machine.map().is_some_and(|map| map.has_host(world.number)), "nobody takes it for dead");

    // The host's thread hangs.
    let deadline = Monotonic::now() + WITHIN;
    while world.fleets[0].machine.silent_hosts().is_empty() && connected(&world.fleets[0]) == 1 {
        assert!(Monotonic::now() < deadline, "not within {WITHIN:?}");
        world.fleets[0].pump();
        std::thread::sleep(Span::from_millis(5));
    }
}

/// A claim may concern a context that moves to a host which joins later.
#[test]
fn joining_host_receives_recent_claims() {
    // A long heartbeat: no member is declared dead during the test.
    let mut world = World::beating(1, Span::from_secs(1));
    let supi = Supi::from_digits("999700000000001").expect("an IMSI");
    let ue = Ltmsi::from_raw(7);
    let claim = Claim { supi, ue, at: clock() };
    world.host_streams[0].put(&ToBalancer::Notice(HostNotice::Claim(claim)));
    world.run(true, |world| world.fleets[0].machine.claims().by_supi(supi) == Some(ue));
    let controllers = world.host.controller().map(Into::into).into_iter().collect();
    let config = ClusterConfig { controllers, hosts: 1, heartbeat: world.heartbeat, ..ClusterConfig::default() };
    let plain = Security::default();
    let me = LocalMember::Host((Ipv4Addr::LOCALHOST, 10).into());
    let (mut second, reply) = ControllerClient::join(&config, &plain, me).expect("the host joins");
    let JoinReply::Host(welcome) = reply else { panic!("a host's welcome") };
    second.report_ready();
    let to = world.fleets[0].io.listener.local_addr().expect("an address");
    let mut host_stream = Stream::connect(to, &plain, Role::Host, &[Role::Balancer]).expect("it connects");
    host_stream.put(&ToBalancer::Hello(welcome.host));
    let (deadline, claimed) = (Monotonic::now() + WITHIN, ToHost::Notice(BalancerNotice::Claimed(claim)));
    let mut receives_claim = || {
        host_stream.flush()?;
        host_stream.fill()?;
        while let Some(octets) = host_stream.frame()? {
            if decode::<ToHost<'_>>(octets)? == claimed {
                return Ok::<bool, FrameError>(true);
            }
        }
        Ok(false)
    };
    while !receives_claim().expect("the balancer is there") {
        assert!(Monotonic::now() < deadline, "not within {WITHIN:?}");
        world.beat();
        second.poll(Monotonic::now(), &mut |_| ()).expect("it is a member");
        world.fleets[0].pump();
        std::thread::sleep(Span::from_millis(10));
    }
}

/// A host that the next map lacks may be alive and have much to read before that map. Its
/// connection stays open until then; otherwise the host would take the balancer for dead.
#[test]
fn evicted_host_receives_map_before_disconnect() {
    // A long heartbeat: no member is declared dead during the test.
    let mut world = World::beating(1, Span::from_secs(1));
    let number = world.number;
    let World { fleets, host_streams, .. } = &mut world;
    let (fleet, host_stream) = (&mut fleets[0], &mut host_streams[0]);
    let is_host = |id: &ConnectionId| fleet.machine.host_of(*id) == Some(number);
    let connection = fleet.io.streams.keys().copied().find(is_host).expect("its connection");
    // More than the connection buffers while the host reads nothing, as if it were isolated.
    let before = ToHost::Notice(BalancerNotice::Endpoints(vec![Ipv4Addr::LOCALHOST.into(); 100_000]));
    let stream = fleet.io.streams.get_mut(&connection).expect("its connection");
    for _ in 0..16 {
        stream.put(&before);
    }
    fleet.flush();
    assert!(fleet.io.streams[&connection].unsent() > 0, "it waits for the host");
    // The host has also sent a message that is still unread.
    host_stream.put(&ToBalancer::Notice(HostNotice::Done { number: 1 }));
    host_stream.flush().expect("there is a balancer");

    let mut next = fleet.machine.map().cloned().expect("a map");
    let new_owner = HostId(number.0 + 1);
    let part = SliceBuckets { weight: 1.0, replicas: 0, hosts: vec![WeightedHost::new(new_owner, 1.0)] };
    next.hosts = vec![(new_owner, (Ipv4Addr::LOCALHOST, 9).into())];
    next.buckets = next.buckets.next(&[part]);
    let epoch = next.epoch();
    fleet.on(balancer::Input::Map(Box::new(next)));
    assert_eq!(connected(fleet), 0, "nothing is given to it any more");

    let deadline = Monotonic::now() + WITHIN;
    let mut receive = |fleet: &mut Fleet, is_expected: &dyn Fn(ToHost<'_>) -> bool| loop {
        assert!(Monotonic::now() < deadline, "not within {WITHIN:?}");
        fleet.pump();
        while let Some(command) = fleet.next_command() {
            // The balancer executes the barrier after all preceding commands.
            if let HostCommand::Barrier { host, number } = command {
                fleet.on_barrier(host, number);
            }
        }
        host_stream.put(&ToBalancer::Notice(HostNotice::Done { number: 2 }));
        host_stream.flush()?;
        host_stream.fill()?;
        while let Some(octets) = host_stream.frame()? {
            if is_expected(decode(octets)?) {
                host_stream.put(&ToBalancer::Barrier { number: 7 });
                return Ok::<(), FrameError>(());
            }
        }
    };
    let is_evicting_map =
        |message: ToHost<'_>| matches!(message, ToHost::Map(map) if map.epoch() == epoch && !map.has_host(number));
    receive(fleet, &is_evicting_map).expect("the connection is there until then");
    // A host that leaves has sent a barrier and waits for the reply.
    receive(fleet, &|message| message == ToHost::BarrierReply { number: 7 }).expect("and as long as it likes");
    fleet.on_barrier(number, 6);
    receive(fleet, &|message| message == ToHost::BarrierReply { number: 6 }).expect("of what it had asked before, too");
    host_streams.clear();
    while fleet.io.streams.contains_key(&connection) {
        assert!(Monotonic::now() < deadline, "not within {WITHIN:?}");
        fleet.pump();
    }
}

/// Connections that never greet need no certificate.
#[test]
fn silent_connections_keep_no_host_away() {
    let mut world = World::new(1);
    let to = world.fleets[0].io.listener.local_addr().expect("an address");
    let mut silent = Vec::new();
    for _ in 0..2 * UNIDENTIFIED {
        silent.push(std::net::TcpStream::connect(to).expect("it connects"));
        world.fleets[0].pump();
    }
    let mut host = Stream::connect(to, &Security::default(), Role::Host, &[Role::Balancer]).expect("it connects");
    let known = |fleet: &Fleet| fleet.io.streams.values().filter(|stream| stream.role().is_some()).count();
    let deadline = Monotonic::now() + WITHIN;
    while known(&world.fleets[0]) < 2 {
        assert!(Monotonic::now() < deadline, "no greeting");
        host.flush().expect("it stays");
        world.fleets[0].pump();
    }
    assert_eq!((connected(&world.fleets[0]), silent.len()), (1, 2 * UNIDENTIFIED));
}
