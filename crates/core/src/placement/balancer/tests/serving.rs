//! Serving hosts of procedures.

use super::*;
use crate::amf::n2::{Route, ShallowView};
use crate::ids::tmsi::TmsiCipher;
use crate::placement::message::PoolLoad;
use crate::placement::message::Receiver::{self, OwnerAfterServingHost, ServingHost};
use crate::schedule::kind::NfKind;
use vireo_types::{AmfUeNgapId, RanUeNgapId};

const SERVING_TIMEOUT: Duration = Duration::from_millis(50);

/// A balancer whose choices alternate between the owner of a UE and its only replica.
struct World {
    fixture: Fixture,
    ue: Ltmsi,
    owner: u64,
    replica: u64,
}

impl World {
    /// Creates three hosts. The next choice is the replica.
    fn new() -> Self {
        World::with(Settings { policy: Policy::RoundRobin, serve: Serve::Procedure, ..settings() })
    }

    /// Creates three hosts with these settings of the balancer.
    fn with(settings: Settings) -> Self {
        let fixture = Fixture::with(settings, &[1, 2, 3], 1);
        let ue = fixture.ue_of(1);
        let placement = fixture.machine.map().expect("a map").buckets.owners(ue.bucket());
        let hosts: Vec<u64> = placement.all().map(|host| host.0.into()).collect();
        World { fixture, ue, owner: hosts[0], replica: hosts[1] }
    }

    fn ngap(&mut self, route: Route, ran_id: u32) {
        let view =
            ShallowView { route, ran_id: Some(RanUeNgapId(ran_id)), kind: NfKind::ServiceRequest, establishment: None };
        self.fixture.on(Input::Event(PeerEvent::Ngap { assoc: ASSOC, view: Some(view), pdu: vec![1] }));
    }

    /// Passes a message on a connection of the UE.
    fn uplink(&mut self, ran_id: u32) {
        self.ngap(Route::Ue(AmfUeNgapId::new(self.ue, 0)), ran_id);
    }

    /// Passes the first message of a connection, which names the UE.
    fn first_message(&mut self, ran_id: u32) {
        let core = &self.fixture.machine.settings().core;
        let tmsi = TmsiCipher::new(&[7; 16]).seal(self.ue.bucket(), 5).expect("a 5G-TMSI");
        let s_tmsi = Some((core.amf_set, core.amf_pointer, tmsi));
        self.ngap(Route::Initial { ran_id: RanUeNgapId(ran_id), s_tmsi, nas_identity: None }, ran_id);
    }

    fn notice(&mut self, host: u64, notice: HostNotice) {
        self.fixture.message(host, ToBalancer::Notice(notice));
        self.fixture.on(Input::Poll);
    }

    /// Reports the service time of all procedures at a host with one processor.
    fn report_time(&mut self, host: u64, time: Duration) {
        let load = PoolLoad { backlog: 0.0, share: 1.0, time_us: time.0 as f32 };
        self.fixture.message(host, ToBalancer::Report { cpu: 0.5, pools: vec![load; NfKind::ALL.len()] });
    }

    fn wait(&mut self, time: Duration) {
        self.fixture.now = self.fixture.now + time;
        self.fixture.on(Input::Poll);
    }

    /// Passes a map in which the only replica of the UE is the owner.
    fn make_replica_owner(&mut self) {
        let weighted =
            [1, 2, 3].map(|host| WeightedHost::new(HostId(host), f64::from(u8::from(u64::from(host) != self.owner))));
        let slices = [SliceBuckets { weight: 1.0, replicas: 1, hosts: weighted.into() }];
        let second = ClusterMap { buckets: BucketMap::new(2, &slices), ..map(2, &[1, 2, 3]) };
        assert_eq!(second.buckets.owners(self.ue.bucket()).owner().map(|host| u64::from(host.0)), Some(self.replica));
        self.fixture.on(Input::Map(Box::new(second)));
        assert_eq!(self.take(), []);
    }

    /// Takes the inputs sent since the last call, with their hosts.
    fn take(&mut self) -> Vec<(u64, u64, Receiver)> {
        let input = |(connection, octets): (ConnectionId, Vec<u8>)| match postcard::from_bytes(&octets) {
            Ok(ToHost::Event(envelope)) => Some((connection.0, envelope.number, envelope.receiver)),
            _ => None,
        };
        std::mem::take(&mut self.fixture.output.sent).into_iter().filter_map(input).collect()
    }

    /// Takes the only input sent since the last call, which a host receives. Returns its number.
    fn take_one(&mut self, host: u64, receiver: Receiver) -> u64 {
        let sent = self.take();
        let [(to, number, by)] = sent[..] else { panic!("{sent:?}") };
        assert_eq!((to, by), (host, receiver));
        number
    }
}

#[test]
fn choice_holds_until_50_ms_after_procedure() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    for _ in 0..3 {
        world.uplink(1);
        let number = world.take_one(replica, ServingHost);
        world.notice(owner, HostNotice::Done { number });
        world.wait(Duration(SERVING_TIMEOUT.0 - 1));
    }
    assert!(world.fixture.machine.due().is_some());
    world.wait(SERVING_TIMEOUT);
    world.uplink(1);
    world.take_one(owner, Receiver::Owner);
    // Another connection is another procedure.
    world.uplink(2);
    world.take_one(replica, ServingHost);
}

#[test]
fn cordoned_host_gets_no_unknown_ue() {
    for policy in Policy::ALL {
        let mut world = World::with(Settings { policy, ..settings() });
        (1..=3).for_each(|host| world.report_time(host, Duration::from_millis(1)));
        world.fixture.on(Input::Cordoned(vec![HostId(2)]));
        let mut hosts = [0; 4];
        for ran_id in 0..100 {
            world.ngap(Route::Initial { ran_id: RanUeNgapId(ran_id), s_tmsi: None, nas_identity: None }, ran_id);
            world.take().into_iter().for_each(|(host, ..)| hosts[host as usize] += 1);
        }
        assert_eq!((hosts[2], hosts[1] + hosts[3]), (0, 100), "{policy:?}");
    }
}

/// An owner that waits for its processors reports longer service times than its replica.
#[test]
fn slow_owner_leaves_replica_its_own_times() {
    let settings = Settings { serve: Serve::Procedure, ..settings() };
    let slow = settings.objective(0, NfKind::ServiceRequest);
    let mut world = World::with(settings);
    let (owner, replica) = (world.owner, world.replica);
    world.report_time(replica, Duration(slow.0 / 100));
    // The latest report is that of the owner.
    world.report_time(owner, slow);
    world.uplink(1);
    world.take_one(owner, Receiver::Owner);
    for connection in 2..10 {
        world.uplink(connection);
        world.take_one(replica, ServingHost);
    }
}

#[test]
fn late_inputs_go_to_owner_in_order() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    world.uplink(1);
    world.wait(Duration(SERVING_TIMEOUT.0 - 1));
    world.uplink(1);
    let numbers: Vec<u64> = world.take().into_iter().map(|(_, number, _)| number).collect();
    world.wait(Duration(1));
    let expected = [0, 1].map(|n| (owner, numbers[n], OwnerAfterServingHost));
    assert_eq!(world.take(), expected);
    world.uplink(1);
    world.take_one(owner, Receiver::Owner);
    // The replica is late with its answer.
    world.notice(replica, HostNotice::ReturnServedInput { number: numbers[0] });
    assert_eq!(world.take(), []);
}

#[test]
fn returned_input_takes_later_ones_with_it() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    (0..3).for_each(|_| world.uplink(1));
    let numbers: Vec<u64> = world.take().into_iter().map(|(_, number, _)| number).collect();
    world.notice(owner, HostNotice::Done { number: numbers[0] });
    world.notice(replica, HostNotice::ReturnServedInput { number: numbers[1] });
    assert_eq!(world.take(), [1, 2].map(|n| (owner, numbers[n], OwnerAfterServingHost)));
    world.notice(replica, HostNotice::ReturnServedInput { number: numbers[2] });
    assert_eq!(world.take(), []);
}

#[test]
fn first_message_follows_other_connections() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    world.uplink(1);
    let first = world.take_one(replica, ServingHost);
    world.first_message(2);
    let number = world.take_one(replica, ServingHost);
    world.notice(owner, HostNotice::Done { number });
    // The input of a third connection is at the owner.
    world.uplink(3);
    world.take_one(owner, Receiver::Owner);
    world.first_message(4);
    let sent = world.take();
    let receivers: Vec<(u64, Receiver)> = sent.iter().map(|(host, _, receiver)| (*host, *receiver)).collect();
    assert_eq!(receivers, [(owner, OwnerAfterServingHost), (owner, Receiver::Owner)]);
    assert_eq!(sent[0].1, first, "the replica has not done it");
}

#[test]
fn lost_owner_has_no_serving_host() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    world.fixture.disconnect(owner);
    world.uplink(1);
    assert_eq!(world.take(), []);
    let others = [1, 2, 3].into_iter().filter(|host| u64::from(*host) != owner);
    let next = replicated(2, &others.collect::<Vec<u16>>(), 1);
    let heir = next.buckets.owners(world.ue.bucket()).owner().expect("an owner");
    assert_eq!(u64::from(heir.0), replica);
    world.fixture.on(Input::Map(Box::new(next)));
    world.take_one(replica, Receiver::Owner);
}

#[test]
fn changed_choice_recalls_earlier_inputs() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    world.uplink(1);
    let first = world.take_one(replica, ServingHost);
    // The host of the procedure is no replica any more.
    world.fixture.on(Input::Map(Box::new(map(2, &[1, 2, 3]))));
    assert_eq!(world.take(), []);
    world.uplink(1);
    let sent = world.take();
    assert_eq!(sent, [(owner, first, OwnerAfterServingHost), (owner, first + 1, Receiver::Owner)]);
}

#[test]
fn next_owner_gets_served_inputs_first() {
    let mut world = World::new();
    let replica = world.replica;
    world.uplink(1);
    let first = world.take_one(replica, ServingHost);
    world.make_replica_owner();
    // It returns the input, which the next one must not pass.
    world.uplink(1);
    let sent = world.take();
    assert_eq!(sent, [(replica, first, OwnerAfterServingHost), (replica, first + 1, Receiver::Owner)]);
}

#[test]
fn first_message_follows_changed_role() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    world.uplink(1);
    let first = world.take_one(replica, ServingHost);
    world.make_replica_owner();
    // The replica returns what it had to serve: the first message of another connection waits.
    world.first_message(2);
    let sent = world.take();
    assert_eq!(sent, [(replica, first, OwnerAfterServingHost), (replica, first + 1, Receiver::Owner)]);
    // The earlier owner, now a replica, still has an input as the owner.
    let mut world = World::new();
    world.uplink(1);
    world.take_one(replica, ServingHost);
    world.uplink(2);
    world.take_one(owner, Receiver::Owner);
    world.make_replica_owner();
    world.first_message(3);
    let receivers: Vec<(u64, Receiver)> =
        world.take().into_iter().map(|(host, _, receiver)| (host, receiver)).collect();
    assert_eq!(receivers, [(replica, OwnerAfterServingHost), (replica, Receiver::Owner)]);
}

#[test]
fn next_process_gives_served_inputs_to_owner() {
    let mut world = World::new();
    let (owner, replica) = (world.owner, world.replica);
    world.uplink(1);
    let number = world.take_one(replica, ServingHost);
    let snapshot = world.fixture.machine.snapshot(world.fixture.now);
    let settings = world.fixture.machine.settings().clone();
    world.fixture.machine = BalancerMachine::resume(settings, snapshot, world.fixture.now);
    world.fixture.on(Input::Poll);
    assert_eq!(world.take_one(owner, OwnerAfterServingHost), number);
}
