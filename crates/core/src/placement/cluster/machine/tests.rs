use super::super::{ControllerSettings, DurableState, MachineLabel, Secrets};
use super::*;
use std::net::Ipv4Addr;

const BEAT: Duration = Duration::from_millis(50);
const SILENCE: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Recorder {
    sent: Vec<(u64, ToMember)>,
    closed: Vec<u64>,
    stored: Vec<DurableState>,
    evicted: Vec<Member>,
    violations: usize,
}

impl Output for Recorder {
    fn send(&mut self, connection: ConnectionId, message: &ToMember) {
        self.sent.push((connection.0, message.clone()));
    }

    fn close(&mut self, connection: ConnectionId) {
        self.closed.push(connection.0);
    }

    fn store(&mut self, state: DurableState) {
        self.stored.push(state);
    }

    fn notify(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Evicted { member, .. } => self.evicted.push(member),
            Notice::Violation { .. } => self.violations += 1,
            _ => {}
        }
    }
}

struct Fixture {
    machine: ControllerMachine,
    output: Recorder,
    now: Instant,
}

impl Fixture {
    /// Creates a controller that stores its maps, and listens for this time.
    fn new(discovery_time: Duration) -> Self {
        let settings = ControllerSettings {
            hosts: 1,
            max_hosts: 16,
            lossless: false,
            replicas: vec![0],
            migrates: true,
            max_migrating_buckets: 4096,
            scaling: None,
            rebalance_pause: None,
            silence: SILENCE,
            reconnect_timeout: Duration(4 * SILENCE.0),
            discovery_time,
            is_embedded: false,
        };
        let now = Instant(1_000_000_000);
        let controller = Controller::new(settings, Secrets { tmsi_key: [1; 16], recovery: 1 }, now);
        let settings = Settings {
            heartbeat: BEAT,
            misses: 4,
            report: BEAT,
            partitions: 16,
            reconnect_timeout: Duration(4 * SILENCE.0),
            objectives: Vec::new(),
            stores: true,
        };
        Fixture { machine: ControllerMachine::new(controller, settings, now), output: Recorder::default(), now }
    }

    /// Creates a controller whose first map is in effect, with a balancer on connection 1 and a
    /// host on connection 2.
    fn with_map() -> Self {
        let mut fixture = Fixture::new(Duration(0));
        fixture.join(1, balancer());
        fixture.join(2, host());
        (1..3).for_each(|connection| fixture.message(connection, ToController::Ready));
        fixture.on(Input::Advance);
        let epoch = fixture.stored_epoch();
        fixture.on(Input::Stored(epoch));
        fixture.output.sent.clear();
        fixture
    }

    fn on(&mut self, input: Input) {
        self.machine.on(input, self.now, &mut self.output);
    }

    fn message(&mut self, connection: u64, message: ToController) {
        let connection = ConnectionId(connection);
        self.on(Input::DataReceived(connection));
        self.on(Input::Message { connection, message });
    }

    fn join(&mut self, connection: u64, request: ToController) {
        self.on(Input::Connected(ConnectionId(connection)));
        self.message(connection, request);
    }

    /// Lets time pass, while these connections send heartbeats.
    fn wait(&mut self, time: Duration, beats: &[u64]) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + BEAT;
            beats.iter().for_each(|connection| self.message(*connection, ToController::Heartbeat));
            self.on(Input::Advance);
        }
    }

    fn stored_epoch(&self) -> u64 {
        self.output.stored.last().and_then(|state| Some(state.map.as_ref()?.epoch())).expect("a map")
    }

    /// Returns the connections to which a map was sent.
    fn maps(&self) -> Vec<u64> {
        let is_map = |(_, message): &&(u64, ToMember)| matches!(message, ToMember::Map(_));
        self.output.sent.iter().filter(is_map).map(|(connection, _)| *connection).collect()
    }
}

fn host() -> ToController {
    ToController::JoinHost { copies: (Ipv4Addr::LOCALHOST, 9).into(), past: None }
}

fn balancer() -> ToController {
    ToController::JoinBalancer { address: (Ipv4Addr::LOCALHOST, 10).into(), past: None }
}

#[test]
fn map_is_sent_once_it_is_stored() {
    let mut fixture = Fixture::new(Duration(0));
    fixture.join(1, balancer());
    fixture.join(2, host());
    assert!(matches!(fixture.output.sent[1], (2, ToMember::Welcome(_))));
    (1..3).for_each(|connection| fixture.message(connection, ToController::Ready));
    fixture.on(Input::Advance);
    fixture.on(Input::Advance);
    assert_eq!((fixture.output.stored.len(), fixture.maps()), (1, vec![]));
    let epoch = fixture.stored_epoch();
    fixture.on(Input::Stored(epoch));
    assert_eq!(fixture.maps(), [2, 1], "the host and the balancer");
}

#[test]
fn machine_of_host_is_stored_with_map() {
    let label = MachineLabel::try_from("rack1-a".to_owned()).expect("a label");
    let octets = postcard::to_stdvec(&ToController::Machine(label.clone())).expect("an encoding");
    let message: ToController = postcard::from_bytes(&octets).expect("the same message");
    let mut fixture = Fixture::new(Duration(0));
    fixture.join(1, balancer());
    fixture.join(2, host());
    fixture.message(2, message.clone());
    (1..3).for_each(|connection| fixture.message(connection, ToController::Ready));
    fixture.on(Input::Advance);
    assert_eq!(fixture.output.stored.last().expect("a state").machines, [(HostId(0), label)]);
    fixture.message(1, message);
    assert_eq!((fixture.output.violations, &fixture.output.closed[..]), (1, &[1][..]), "a balancer has no machine");
}

#[test]
fn early_join_is_answered_later() {
    let listens = Duration::from_millis(600);
    let mut fixture = Fixture::new(listens);
    fixture.join(1, host());
    fixture.on(Input::Advance);
    assert!(fixture.output.sent.is_empty());
    fixture.now = fixture.now + listens;
    fixture.on(Input::Advance);
    assert!(matches!(fixture.output.sent[0], (1, ToMember::Welcome(_))));
}

#[test]
fn silent_member_is_evicted_and_refused() {
    let mut fixture = Fixture::with_map();
    fixture.join(3, host());
    fixture.message(3, ToController::Ready);
    fixture.wait(Duration(8 * SILENCE.0), &[1, 3]);
    assert_eq!((fixture.output.evicted.len(), &fixture.output.closed[..]), (1, &[2][..]));
    assert!(fixture.output.sent.iter().any(|(to, message)| *to == 2 && matches!(message, ToMember::Refused(_))));
}

#[test]
fn heartbeat_connection_keeps_member_alive() {
    let mut fixture = Fixture::with_map();
    let member = *fixture.machine.members.iter().find(|(_, connection)| connection.0 == 2).expect("the host").0;
    fixture.on(Input::Connected(ConnectionId(4)));
    fixture.message(4, ToController::HeartbeatOnly(member));
    fixture.wait(Duration(8 * SILENCE.0), &[1, 4]);
    assert!(fixture.output.evicted.is_empty());
    fixture.wait(Duration(2 * SILENCE.0), &[1]);
    assert_eq!(fixture.output.evicted, [member]);
}

#[test]
fn later_connection_replaces_earlier_one() {
    let mut fixture = Fixture::with_map();
    let (id, map) = (HostId(0), fixture.machine.controller().map().cloned());
    let record = DurableState::new(fixture.machine.controller().secrets(), map);
    let past = Some(Box::new(super::super::RejoinInfo { id, record }));
    fixture.join(5, ToController::JoinHost { copies: (Ipv4Addr::LOCALHOST, 9).into(), past });
    assert_eq!(fixture.output.closed, [2]);
    fixture.on(Input::Disconnected(ConnectionId(2)));
    fixture.on(Input::Advance);
    assert!(fixture.output.evicted.is_empty() && fixture.machine.member_count() == 2);
}

#[test]
fn message_of_wrong_member_ends_connection() {
    let mut fixture = Fixture::with_map();
    fixture.message(2, ToController::SilentHosts(Vec::new()));
    fixture.on(Input::Connected(ConnectionId(6)));
    fixture.message(6, ToController::Ready);
    assert_eq!((fixture.output.violations, &fixture.output.closed[..]), (2, &[2, 6][..]));
    assert_eq!(fixture.machine.member_count(), 1);
}

#[test]
fn drained_host_is_released() {
    let mut fixture = Fixture::with_map();
    fixture.join(3, host());
    fixture.message(3, ToController::Ready);
    // The host is in no map yet: it has no buckets.
    fixture.on(Input::Advance);
    let epoch = fixture.stored_epoch();
    fixture.on(Input::Stored(epoch));
    for (owner, replica) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        fixture.machine.controller.on_caught_up(HostId(owner), epoch, HostId(replica));
    }
    fixture.on(Input::Drain(HostId(1)));
    for _ in 0..8 {
        fixture.on(Input::Advance);
        let epoch = fixture.stored_epoch();
        fixture.on(Input::Stored(epoch));
        for (owner, replica) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
            fixture.machine.controller.on_caught_up(HostId(owner), epoch, HostId(replica));
        }
    }
    assert!(fixture.output.sent.contains(&(3, ToMember::LeaveGranted)));
    assert!(fixture.output.closed.is_empty(), "the host closes its connection");
}

#[test]
fn ended_host_need_not_reconnect() {
    let mut fixture = Fixture::with_map();
    fixture.join(3, host());
    fixture.message(3, ToController::Ready);
    fixture.on(Input::Advance);
    let epoch = fixture.stored_epoch();
    fixture.on(Input::Stored(epoch));
    // The controller was suspended: it waits for members whose connections have ended.
    fixture.now = fixture.now + Duration(4 * SILENCE.0);
    for (host, connection) in [(0, 2), (1, 3)] {
        fixture.on(Input::Disconnected(ConnectionId(connection)));
        let known = |fixture: &Fixture| fixture.machine.controller().is_ready(Member::Host(HostId(host)));
        assert_eq!(known(&fixture), Some(true));
        fixture.on(Input::HostEnded(HostId(host)));
        assert_eq!(known(&fixture), None);
    }
    assert!(fixture.output.evicted.is_empty());
}

#[test]
fn pool_beyond_objective_is_late() {
    let pool = |backlog, share| PoolLoad { backlog, share, time_us: 100.0 };
    let objectives = [100_000.0; 2];
    assert!(!is_late(&[pool(1e9, 0.0), pool(3.0, 0.5)], &objectives), "a pool without NFs has no work");
    assert!(is_late(&[pool(0.0, 1.0), pool(1_000.0, 0.5)], &objectives));
}
