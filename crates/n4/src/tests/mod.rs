//! N4 endpoint with virtual time and a list of datagrams as network.

mod association;
mod hot_restart;
mod session;
mod shell;
mod takeover;
mod unassociated;
mod user_data;

use super::*;
use std::net::{IpAddr, Ipv4Addr};
use vireo_types::{Bucket, Duration, Ltmsi};
use vireo_wire::pfcp::*;

const CP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const UPF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), PORT);
const SECOND: Duration = Duration::from_secs(1);
const STARTED: RecoveryTimeStamp = RecoveryTimeStamp(3_900_000_000);

/// An event with its message owned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnedEvent {
    Delivered { seid: Seid, request: bool, message: Vec<u8> },
    Timeout(Seid, Option<u64>),
    Up,
    Failed(Option<Cause>),
    Down { sessions_kept: bool },
    Restarted,
    Releasing(Duration),
    Path(IpAddr, bool),
}

#[derive(Default)]
struct Net {
    sent: Vec<(SocketAddr, Vec<u8>)>,
    events: Vec<OwnedEvent>,
}

impl Sink for Net {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        self.sent.push((to, octets.to_vec()));
    }

    fn event(&mut self, event: Event<'_>) {
        self.events.push(match event {
            Event::Deliver { seid, request, message, .. } => {
                OwnedEvent::Delivered { seid, request, message: message.to_vec() }
            }
            Event::Timeout { seid, key, .. } => OwnedEvent::Timeout(seid, key),
            Event::UpfUp { .. } => OwnedEvent::Up,
            Event::SetupFailed { cause, .. } => OwnedEvent::Failed(cause),
            Event::UpfDown { sessions_kept, .. } => OwnedEvent::Down { sessions_kept },
            Event::UpfRestarted { .. } => OwnedEvent::Restarted,
            Event::UpfReleasing { within, .. } => OwnedEvent::Releasing(within),
            Event::GtpuPath { peer, works, .. } => OwnedEvent::Path(peer, works),
            // The state machine has no GTP-U socket.
            Event::UserData { .. } => panic!("{event:?}"),
        });
    }
}

/// An endpoint with a clock and a network.
struct Bench {
    n4: N4,
    now: Instant,
    net: Net,
    upf_started: RecoveryTimeStamp,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(CP, vec![UPF], RecoveryTimeStamp(1), 100);
        change(&mut config);
        Bench { n4: N4::new(config), now: Instant(1_000_000), net: Net::default(), upf_started: STARTED }
    }

    /// Creates an endpoint with an association.
    fn associated() -> Self {
        Self::associated_with(|_| {})
    }

    fn associated_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut bench = Bench::new(change);
        bench.tick();
        bench.answer_setup();
        assert_eq!(bench.take_events(), [OwnedEvent::Up]);
        bench
    }

    fn tick(&mut self) -> Option<Instant> {
        self.n4.on_time(self.now, &mut self.net)
    }

    /// Advances the time and runs all due actions.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(next) = self.tick().filter(|next| *next <= end) {
            assert!(next > self.now, "the endpoint wants to be called again at once");
            self.now = next;
        }
        self.now = end;
    }

    fn receive(&mut self, octets: &[u8]) {
        self.receive_from(UPF, octets);
    }

    fn receive_from(&mut self, from: SocketAddr, octets: &[u8]) {
        self.n4.on_datagram(self.now, from, octets, &mut self.net);
    }

    fn submit(&mut self, key: Option<u64>, seid: Seid, message: &[u8]) -> Result<SubmitResult, SubmitError> {
        self.n4.submit(self.now, UPF, key, seid, message, &mut self.net)
    }

    /// Returns the datagrams sent since the last call.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.net.sent.drain(..).map(|(_, octets)| octets).collect()
    }

    /// Returns the only datagram sent since the last call.
    fn sent_one(&mut self) -> Vec<u8> {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "one datagram");
        sent.remove(0)
    }

    /// Returns the types of the messages sent since the last call.
    fn sent_kinds(&mut self) -> Vec<MessageType> {
        self.sent().iter().map(|octets| view(octets).message_type()).collect()
    }

    fn take_events(&mut self) -> Vec<OwnedEvent> {
        std::mem::take(&mut self.net.events)
    }

    /// Answers the setup request that was just sent.
    fn answer_setup(&mut self) {
        let request = self.sent_one();
        assert_eq!(view(&request).message_type(), MessageType::ASSOCIATION_SETUP_REQUEST);
        let response = setup_response(Cause::REQUEST_ACCEPTED, self.upf_started, view(&request).sequence());
        self.receive(&response);
    }

    /// Answers the heartbeat that was just sent.
    fn answer_heartbeat(&mut self) {
        let request = self.sent_one();
        assert_eq!(view(&request).message_type(), MessageType::HEARTBEAT_REQUEST);
        self.receive(&heartbeat_response(self.upf_started, view(&request).sequence()));
    }
}

fn view(octets: &[u8]) -> Message<'_> {
    Message::new(octets).expect("a sound message")
}

fn seid(n: u32) -> Seid {
    Seid::new(Ltmsi::new(Bucket::new(7), 8), 1, n)
}

fn node(body: &impl Body, sequence: u32) -> Vec<u8> {
    encode(Vec::new(), sequence, body).expect("fits")
}

fn upf_node_id() -> NodeId {
    UPF.ip().into()
}

fn setup_response(cause: Cause, recovery_time_stamp: RecoveryTimeStamp, sequence: u32) -> Vec<u8> {
    let node_id = upf_node_id();
    let up_function_features = Some(UpFunctionFeatures::FTUP);
    let response = AssociationSetupResponse {
        node_id,
        cause,
        recovery_time_stamp,
        up_function_features,
        cp_function_features: None,
        flags: None,
    };
    node(&response, sequence)
}

fn heartbeat_response(recovery_time_stamp: RecoveryTimeStamp, sequence: u32) -> Vec<u8> {
    node(&HeartbeatResponse { recovery_time_stamp }, sequence)
}

/// A session's request as the SMF encodes it: without a sequence number.
fn deletion() -> Vec<u8> {
    let mut octets = Vec::new();
    SessionDeletionRequest::default().emit(&mut octets, 77, 0).expect("fits");
    octets
}

fn deletion_response(cause: Cause, seid: u64, sequence: u32) -> Vec<u8> {
    let mut octets = Vec::new();
    SessionDeletionResponse::new(cause).emit(&mut octets, seid, sequence).expect("fits");
    octets
}

fn report(seid: u64, sequence: u32) -> Vec<u8> {
    let body = SessionReportRequest {
        report_type: ReportType::DLDR,
        downlink_data: Some(DownlinkDataReport::default()),
        ..SessionReportRequest::default()
    };
    let mut octets = Vec::new();
    body.emit(&mut octets, seid, sequence).expect("fits");
    octets
}

fn report_response(sequence: u32) -> Vec<u8> {
    let mut octets = Vec::new();
    SessionReportResponse::new(Cause::REQUEST_ACCEPTED).emit(&mut octets, 77, sequence).expect("fits");
    octets
}
