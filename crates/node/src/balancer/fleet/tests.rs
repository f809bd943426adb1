use super::*;
use crate::controller;
use crate::fabric::message::ToBalancer;
use std::net::Ipv4Addr;
use std::time::{Duration as Span, Instant as Monotonic};
use vireo_core::config::{NodeName, SecurityConfig, Timers};

const WITHIN: Span = Span::from_secs(20);

fn core() -> CoreConfig {
    CoreConfig {
        name: "vireo".into(),
        plmns: Vec::new(),
        tacs: Vec::new(),
        amf_region: 2,
        amf_set: 1,
        amf_pointer: 0,
        relative_capacity: 255,
        slices: Vec::new(),
        dnns: Vec::new(),
        security: SecurityConfig { integrity: Vec::new(), ciphering: Vec::new() },
        timers: Timers::default(),
        upfs: Vec::new(),
        n4_address: Ipv4Addr::LOCALHOST.into(),
        n4_node: NodeName::Address(Ipv4Addr::LOCALHOST.into()),
        n2_endpoints: Vec::new(),
        smf_elsewhere: false,
    }
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a TCP port")
}

/// A controller, balancers, and what a host says to each of them.
struct World {
    controller: controller::Running,
    fleets: Vec<Fleet>,
    host: Caller,
    ways: Vec<Stream>,
}

impl World {
    fn new(balancers: usize) -> Self {
        let taken = listener();
        let controllers = vec![taken.local_addr().expect("an address")];
        let config = ClusterConfig { controllers, hosts: 1, ..ClusterConfig::default() };
        let plain = Security::default();
        let controller = controller::Running::start(taken, (&config, &plain), &[], false).expect("a controller");
        let metrics = Arc::new(Metrics::new());
        let fleet =
            |_| Fleet::join(listener(), (&config, &plain, &[]), &core(), &[], Arc::clone(&metrics)).expect("it joins");
        let mut fleets: Vec<Fleet> = (0..balancers).map(fleet).collect();
        let (mut host, told) =
            Caller::join(&config, &plain, Me::Host((Ipv4Addr::LOCALHOST, 9).into())).expect("the host joins");
        let Told::Host(welcome) = told else { panic!("a host's welcome") };
        host.ready();
        let way = |fleet: &Fleet| {
            let to = fleet.listener.local_addr().expect("an address");
            let mut stream = Stream::connect(to, &plain, Role::Host, &[Role::Balancer]).expect("it connects");
            stream.put(&ToBalancer::Host(welcome.host));
            stream
        };
        let ways = fleets.iter().map(way).collect();
        fleets.iter_mut().for_each(Fleet::pump);
        let mut world = World { controller, fleets, host, ways };
        let serves = |fleet: &Fleet| {
            fleet.serving.len() == 1 && fleet.map.as_ref().is_some_and(|map| map.balancers.len() == balancers)
        };
        world.run(true, |world| world.fleets.iter().all(serves));
        world
    }

    /// Lets time pass until something is so; the host says that it is there, or nothing.
    fn run(&mut self, beats: bool, mut is_so: impl FnMut(&World) -> bool) {
        let until = Monotonic::now() + WITHIN;
        while !is_so(self) {
            assert!(Monotonic::now() < until, "not within {WITHIN:?}");
            if beats {
                self.host.turn(Monotonic::now(), &mut |_| ()).expect("it is a member");
                for way in &mut self.ways {
                    way.put(&ToBalancer::Beat);
                    way.flush().expect("there is a balancer");
                }
            }
            self.fleets.iter_mut().for_each(Fleet::pump);
            std::thread::sleep(Span::from_millis(10));
        }
    }

    fn wait(&mut self, beats: bool, span: Span) {
        let until = Monotonic::now() + span;
        self.run(beats, |_| Monotonic::now() >= until);
    }
}

#[test]
fn who_hears_neither_hosts_nor_the_controller_is_cut_off_unless_it_is_alone() {
    let mut world = World::new(2);
    world.wait(true, Span::from_millis(400));
    assert!(world.fleets.iter().all(|fleet| !fleet.is_cut_off()));
    // The controller is gone, and its machine says so.
    world.controller.stop();
    world.wait(true, Span::from_millis(400));
    assert!(world.fleets.iter().all(|fleet| !fleet.is_cut_off()), "hosts are heard");
    world.wait(false, Span::from_millis(400));
    assert!(world.fleets.iter().all(|fleet| !fleet.is_cut_off()), "the way to the controller's machine is sound");
    // From here on nothing comes from there either.
    let mute = listener();
    let nowhere = mute.local_addr().expect("an address");
    world.fleets.iter_mut().for_each(|fleet| fleet.caller.look_at(nowhere));
    world.run(false, |world| world.fleets.iter().all(Fleet::is_cut_off));
    world.run(true, |world| world.fleets.iter().all(|fleet| !fleet.is_cut_off()));

    let mut alone = World::new(1);
    alone.controller.stop();
    alone.fleets[0].caller.look_at(nowhere);
    alone.wait(false, Span::from_millis(1000));
    assert!(!alone.fleets[0].is_cut_off(), "there is no other to go to");
}
