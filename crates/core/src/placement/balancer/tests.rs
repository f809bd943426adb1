mod serving;

use super::*;
use crate::amf::n2;
use crate::config::CoreConfig;
use crate::golden::nr as golden;
use crate::placement::balance::BalancerId;
use crate::placement::balance::map::{BucketMap, SliceBuckets};
use crate::placement::balance::ring::WeightedHost;
use crate::placement::balance::steer::{Policy, Preference};
use crate::placement::message::{HostNotice, PeerEvent, RanOutput, ToBalancer, ToController};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use vireo_types::{Bucket, Duration, Ltmsi, Seid};

const ASSOC: AssocId = AssocId(5);
const BEAT: Duration = Duration::from_millis(50);

fn settings() -> Settings {
    Settings {
        balancer: BalancerId(0),
        tmsi_key: [7; 16],
        policy: Policy::SkewedCh,
        prefer: Preference::Spare,
        serve: Serve::Owner,
        core: CoreConfig::lab(),
        objectives: Vec::new(),
        stale: Duration::from_secs(1),
        misses: 4,
        endpoints: Vec::new(),
        has_other_balancers: true,
    }
}

/// Outputs of the machine, with messages to hosts as encoded.
#[derive(Default)]
struct Recorder {
    sent: Vec<(ConnectionId, Vec<u8>)>,
    /// Numbers of executed barriers, and keys of other executed messages.
    executed: Vec<u64>,
    reports: Vec<Vec<HostId>>,
    closed: Vec<CloseReason>,
    repeats: usize,
    full: BTreeSet<ConnectionId>,
}

impl Output for Recorder {
    fn has_room(&self, connection: ConnectionId) -> bool {
        !self.full.contains(&connection)
    }

    fn send(&mut self, connection: ConnectionId, message: &ToHost<'_>) {
        self.sent.push((connection, postcard::to_stdvec(message).expect("an encoding")));
    }

    fn send_controller(&mut self, message: &ToController) {
        if let ToController::SilentHosts(hosts) = message {
            self.reports.push(hosts.clone());
        }
    }

    fn close(&mut self, _: ConnectionId, reason: CloseReason) {
        self.closed.push(reason);
    }

    fn execute(&mut self, _: HostId, output: RanOutput) {
        self.executed.push(match output {
            RanOutput::Ngap { key, .. } | RanOutput::Pfcp { key, .. } => key,
            _ => 0,
        });
    }

    fn reach_barrier(&mut self, _: HostId, number: u64) {
        self.executed.push(number);
    }

    fn notify(&mut self, notice: Notice<'_>) {
        self.repeats += usize::from(matches!(notice, Notice::RepeatDropped));
    }
}

/// A balancer and the connections of its hosts: host N is on connection N.
struct Fixture {
    machine: BalancerMachine,
    output: Recorder,
    now: Instant,
}

impl Fixture {
    /// Creates a balancer with these connected hosts.
    fn new(hosts: &[u16]) -> Self {
        Fixture::with(settings(), hosts, 0)
    }

    /// Creates a balancer with these settings, whose UEs have replicas.
    fn with(settings: Settings, hosts: &[u16], replicas: usize) -> Self {
        let now = Instant(1_000_000_000);
        let machine = BalancerMachine::new(settings, now);
        let mut fixture = Fixture { machine, output: Recorder::default(), now };
        fixture.on(Input::Map(Box::new(replicated(1, hosts, replicas))));
        for host in hosts {
            fixture.connect(u64::from(*host), *host);
        }
        fixture.output.sent.clear();
        fixture
    }

    fn on(&mut self, input: Input<'_>) {
        self.machine.on(input, self.now, &mut self.output);
    }

    fn connect(&mut self, connection: u64, host: u16) {
        self.on(Input::Connected(ConnectionId(connection)));
        self.message(connection, ToBalancer::Hello(HostId(host)));
    }

    fn message(&mut self, connection: u64, message: ToBalancer<'_>) {
        self.on(Input::Message { connection: ConnectionId(connection), message });
    }

    fn disconnect(&mut self, connection: u64) {
        self.on(Input::Disconnected(ConnectionId(connection)));
    }

    /// Passes a PFCP message about a UE.
    fn pfcp(&mut self, ue: Ltmsi) {
        let (upf, seid) = ((Ipv4Addr::LOCALHOST, 8805).into(), Seid::new(ue, 1, 1));
        self.on(Input::Event(PeerEvent::Pfcp { upf, seid, request: true, message: vec![1] }));
    }

    /// Takes the inputs sent since the last call: connection, number, and true if the host answers.
    fn take_inputs(&mut self) -> Vec<(u64, u64, bool)> {
        let input = |(connection, octets): (ConnectionId, Vec<u8>)| {
            let ToHost::Event(envelope) = postcard::from_bytes(&octets).expect("a message") else { return None };
            let is_message = matches!(envelope.event, PeerEvent::Ngap { .. } | PeerEvent::Pfcp { .. });
            is_message.then_some((connection.0, envelope.number, envelope.answers))
        };
        std::mem::take(&mut self.output.sent).into_iter().filter_map(input).collect()
    }

    /// Returns a UE of a host's bucket.
    fn ue_of(&self, host: u16) -> Ltmsi {
        let map = &self.machine.map().expect("a map").buckets;
        let mut buckets = (0..Bucket::COUNT).map(Bucket::new);
        let bucket = buckets.find(|bucket| map.owners(*bucket).owner() == Some(HostId(host))).expect("a bucket");
        Ltmsi::new(bucket, 1)
    }
}

/// Returns the map of an epoch with these hosts.
fn map(epoch: u64, hosts: &[u16]) -> ClusterMap {
    replicated(epoch, hosts, 0)
}

/// Returns the map of an epoch with these hosts, whose UEs have replicas.
fn replicated(epoch: u64, hosts: &[u16], replicas: usize) -> ClusterMap {
    let weighted = hosts.iter().map(|host| WeightedHost::new(HostId(*host), 1.0));
    let part = [SliceBuckets { weight: 1.0, replicas, hosts: weighted.collect() }];
    let address = (Ipv4Addr::LOCALHOST, 9).into();
    ClusterMap {
        hosts: hosts.iter().map(|host| (HostId(*host), address)).collect(),
        buckets: BucketMap::new(epoch, &part),
        balancers: vec![(BalancerId(0), address)],
        joined: 9,
        lost: Vec::new(),
        leaving: Vec::new(),
    }
}

fn ng_setup() -> PeerEvent {
    let pdu = golden("NGSetupRequest");
    PeerEvent::Ngap { assoc: ASSOC, view: n2::peek(&pdu).ok(), pdu }
}

#[test]
fn input_of_lost_host_goes_to_next_owner() {
    let mut fixture = Fixture::new(&[1, 2]);
    let ue = fixture.ue_of(1);
    fixture.pfcp(ue);
    let sent = fixture.take_inputs();
    assert_eq!((sent.len(), sent[0].0), (1, 1));
    fixture.disconnect(1);
    assert_eq!(fixture.output.reports, [vec![HostId(1)]]);
    // Its buckets have no owner until the next map.
    fixture.pfcp(ue);
    assert_eq!(fixture.take_inputs(), []);
    fixture.connect(7, 1);
    fixture.on(Input::Map(Box::new(map(2, &[2]))));
    let again = fixture.take_inputs();
    assert_eq!(again, [(2, sent[0].1, true), (2, sent[0].1 + 1, true)]);
    assert!(!fixture.machine.is_congested());
}

#[test]
fn completed_input_is_not_redelivered() {
    let mut fixture = Fixture::new(&[1, 2]);
    fixture.pfcp(fixture.ue_of(1));
    let number = fixture.take_inputs()[0].1;
    fixture.message(1, ToBalancer::Notice(HostNotice::Done { number }));
    fixture.on(Input::Map(Box::new(map(2, &[2]))));
    assert_eq!(fixture.take_inputs(), []);
}

#[test]
fn inputs_wait_in_order_for_room() {
    let mut fixture = Fixture::new(&[1, 2]);
    let [one, two] = [1, 2].map(|host| fixture.ue_of(host));
    fixture.output.full.insert(ConnectionId(1));
    fixture.pfcp(one);
    fixture.pfcp(two);
    assert!(fixture.machine.is_congested() && fixture.take_inputs().is_empty());
    fixture.output.full.clear();
    fixture.on(Input::Poll);
    let sent: Vec<u64> = fixture.take_inputs().into_iter().map(|(connection, ..)| connection).collect();
    assert_eq!((sent, fixture.machine.is_congested()), (vec![1, 2], false));
}

#[test]
fn removed_host_is_fenced_except_for_barriers() {
    let mut fixture = Fixture::new(&[1, 2]);
    let ngap = |key| ToBalancer::Output(Cow::Owned(RanOutput::Ngap { assoc: ASSOC, ue: None, key, pdu: Vec::new() }));
    fixture.message(1, ngap(11));
    fixture.on(Input::Map(Box::new(map(2, &[2]))));
    fixture.message(1, ngap(12));
    fixture.message(1, ToBalancer::Barrier { number: 3 });
    assert_eq!(fixture.output.executed, [11, 3]);
    fixture.output.sent.clear();
    fixture.on(Input::BarrierReached { host: HostId(1), number: 3 });
    let reply = postcard::to_stdvec(&ToHost::BarrierReply { number: 3 }).expect("an encoding");
    assert_eq!(fixture.output.sent, [(ConnectionId(1), reply)]);
    // The next owner executes the last step again.
    fixture.message(2, ngap(11));
    fixture.message(2, ngap(13));
    assert_eq!((&fixture.output.executed[2..], fixture.output.repeats), (&[13][..], 1));
}

/// Regression test for seed 1685 of the fault campaign with both technologies. Host 1 dies before
/// an effect has left, and host 2 sends it. It hands the UE off to host 3, which dies too. Host 4
/// still has the effect as one of host 1, and sends it again.
#[test]
fn effect_of_a_dead_host_leaves_once() {
    let mut fixture = Fixture::new(&[1, 2, 3, 4]);
    let ngap = |key| ToBalancer::Output(Cow::Owned(RanOutput::Ngap { assoc: ASSOC, ue: None, key, pdu: Vec::new() }));
    fixture.on(Input::Map(Box::new(map(2, &[2, 3, 4]))));
    fixture.message(2, ngap(11));
    fixture.on(Input::Map(Box::new(map(3, &[2, 4]))));
    fixture.message(4, ngap(11));
    fixture.message(4, ngap(12));
    assert_eq!((&fixture.output.executed[..], fixture.output.repeats), (&[11, 12][..], 1));
    // A successor process knows it too.
    let snapshot = fixture.machine.snapshot(fixture.now);
    fixture.machine = BalancerMachine::resume(settings(), snapshot, fixture.now);
    fixture.message(4, ngap(11));
    assert_eq!((fixture.output.executed.len(), fixture.output.repeats), (2, 2));
}

#[test]
fn second_connection_of_host_is_refused() {
    let mut fixture = Fixture::new(&[1, 2]);
    fixture.connect(3, 1);
    assert_eq!(fixture.machine.host_of(ConnectionId(3)), None);
    fixture.disconnect(1);
    fixture.connect(4, 1);
    assert_eq!(fixture.machine.connected_hosts().collect::<Vec<_>>(), [HostId(2)]);
}

#[test]
fn unidentified_peer_sends_no_effects() {
    let mut fixture = Fixture::new(&[1]);
    fixture.connect(3, 3);
    fixture.message(3, ToBalancer::Notice(HostNotice::Done { number: 1 }));
    fixture.connect(4, 3);
    fixture.message(4, ToBalancer::Map(Box::new(map(1, &[3]))));
    fixture.on(Input::Connected(ConnectionId(5)));
    fixture.now = fixture.now + Duration::from_secs(6);
    fixture.on(Input::Tick { controller_silent: false });
    assert_eq!(fixture.output.closed, [CloseReason::Message, CloseReason::OldMap(1), CloseReason::NoHost]);
    assert!(fixture.output.executed.is_empty());
}

#[test]
fn balancer_without_contact_is_isolated() {
    let mut fixture = Fixture::new(&[1, 2]);
    let mut second = map(2, &[1, 2]);
    second.balancers = [0, 1].map(|id| (BalancerId(id), second.hosts[0].1)).into();
    fixture.on(Input::Map(Box::new(second)));
    // The next map may lack this balancer: hosts end their connections when they have it.
    fixture.disconnect(1);
    for (host, is_silent, is_isolated) in [(None, true, false), (Some(2), false, false), (None, true, true)] {
        host.into_iter().for_each(|host| fixture.disconnect(host));
        fixture.on(Input::Tick { controller_silent: is_silent });
        assert_eq!(fixture.machine.is_isolated(), is_isolated);
    }
}

#[test]
fn silent_host_is_reported_until_heartbeat() {
    let mut fixture = Fixture::new(&[1, 2]);
    for (beats, host) in [(11, 1), (12, 2)] {
        fixture.on(Input::Connected(ConnectionId(beats)));
        fixture.message(beats, ToBalancer::HeartbeatOnly(HostId(host)));
    }
    let tick = |fixture: &mut Fixture, beats: bool| {
        fixture.now = fixture.now + BEAT;
        fixture.on(Input::DataReceived(ConnectionId(12)));
        if beats {
            fixture.on(Input::DataReceived(ConnectionId(11)));
        }
        fixture.on(Input::Tick { controller_silent: false });
    };
    (0..5).for_each(|_| tick(&mut fixture, false));
    assert_eq!(fixture.output.reports, [vec![HostId(1)]]);
    tick(&mut fixture, true);
    tick(&mut fixture, true);
    assert_eq!(fixture.output.reports[1..], [vec![]], "and an empty report once");
}

#[test]
fn ng_setup_counts_when_accepted() {
    let mut fixture = Fixture::new(&[1, 2]);
    let peer = (Ipv4Addr::LOCALHOST, 38412).into();
    fixture.on(Input::Event(PeerEvent::Up { assoc: ASSOC, peer }));
    fixture.on(Input::Event(ng_setup()));
    assert_eq!(fixture.take_inputs().len(), 1, "one host decides");
    fixture.on(Input::NodeMessage { assoc: ASSOC, pdu: &golden("NGSetupFailure") });
    assert_eq!(fixture.machine.association(ASSOC), Some((peer, false)));
    fixture.on(Input::Event(ng_setup()));
    let number = fixture.take_inputs()[0].1;
    let accept = golden("NGSetupResponse");
    fixture.on(Input::NodeMessage { assoc: ASSOC, pdu: &accept });
    assert_eq!(fixture.take_inputs(), [(2, number, false)]);
    assert_eq!(fixture.machine.association(ASSOC), Some((peer, true)));
    fixture.on(Input::NodeMessage { assoc: ASSOC, pdu: &accept });
    assert_eq!(fixture.take_inputs(), [], "a response without a request");

    // The deciding host is removed.
    fixture.on(Input::Event(ng_setup()));
    let number = fixture.take_inputs()[0].1;
    fixture.on(Input::Map(Box::new(map(2, &[2]))));
    assert_eq!(fixture.take_inputs(), [(2, number, true)]);
    fixture.on(Input::Abort(ASSOC));
    assert_eq!(fixture.machine.association(ASSOC), None);
}

#[test]
fn snapshot_keeps_inputs_and_hosts() {
    let mut fixture = Fixture::new(&[1, 2]);
    fixture.pfcp(fixture.ue_of(1));
    let number = fixture.take_inputs()[0].1;
    fixture.connect(3, 1);
    let octets = postcard::to_stdvec(&fixture.machine.snapshot(fixture.now)).expect("an encoding");
    let snapshot: Snapshot = postcard::from_bytes(&octets).expect("a snapshot");
    let connections: Vec<u64> = snapshot.connections().map(|connection| connection.0).collect();
    assert_eq!(connections, [1, 2], "a refused peer closes its connection itself");
    fixture.machine = BalancerMachine::resume(settings(), snapshot, fixture.now);
    fixture.message(1, ToBalancer::Notice(HostNotice::ReturnInput { number }));
    fixture.on(Input::Poll);
    fixture.pfcp(fixture.ue_of(2));
    assert_eq!(fixture.take_inputs(), [(1, number, true), (2, number + 1, true)]);
}
