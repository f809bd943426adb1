//! Fabric messages of fixed values.

use serde::Deserialize;
use std::borrow::Cow;
use std::net::SocketAddr;
use vireo_core::amf::n2::{EstablishmentCause, Route, ShallowView};
use vireo_core::amf::ran::{RanNode, SupportedArea};
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, DurableState, MachineLabel, Member, RejoinInfo, Secrets};
use vireo_core::placement::message::*;
use vireo_core::placement::replica::{Claim, Proposal, ReplicaUpdate};
use vireo_core::schedule::kind::NfKind;
use vireo_types::*;

/// An encoded message.
pub(super) struct Message {
    pub(super) name: String,
    pub(super) octets: Vec<u8>,
    /// Returns true if octets decode to the value of this message.
    decodes: Decodes,
}

type Decodes = Box<dyn Fn(&[u8]) -> bool>;

/// Adds the messages of one type, each variant at least once and in their order.
macro_rules! messages {
    ($all:ident: $kind:ident, $messages:expr) => {
        let messages = $messages;
        let mut next = 0;
        for (n, message) in messages.iter().enumerate() {
            let octets = postcard::to_stdvec(message).expect("an encoding");
            assert!(octets[0] <= next, "{}: a variant before {message:?} has no fixture", stringify!($kind));
            next = next.max(octets[0] + 1);
            let decodes = Box::new(move |octets: &[u8]| decodes(octets, $messages.get(n)));
            $all.push(Message { name: format!("{}.{n}", stringify!($kind)), octets, decodes });
        }
    };
}

fn decodes<'a, T: Deserialize<'a> + PartialEq>(octets: &'a [u8], expected: Option<&T>) -> bool {
    postcard::take_from_bytes::<T>(octets).is_ok_and(|(found, rest)| Some(&found) == expected && rest.is_empty())
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], 8805))
}

fn map() -> Box<ClusterMap> {
    // A map of two buckets: all 4,096 would fill the fixture.
    let owners = r#"[{"hosts":[3,null,null,null],"coming":null},{"hosts":[3,4,null,null],"coming":4}]"#;
    let buckets = format!(r#"{{"epoch":7,"owners":{owners},"slices":[0,1]}}"#);
    Box::new(ClusterMap {
        hosts: vec![(HostId(3), address(3)), (HostId(4), "[2001:db8::4]:7771".parse().expect("an address"))],
        buckets: serde_json::from_str::<BucketMap>(&buckets).expect("a map"),
        balancers: vec![(BalancerId(2), address(2))],
        joined: 5,
        lost: vec![1],
        leaving: vec![HostId(4)],
    })
}

fn dnn() -> Dnn {
    "internet".parse().expect("a DNN")
}

fn session_address() -> SessionAddress {
    SessionAddress { ipv4: Some([10, 45, 0, 1].into()), ipv6_prefix: Some("2001:db8:45::".parse().expect("a prefix")) }
}

fn association() -> AssociationOwner {
    let plmn: Plmn = "99970".parse().expect("a PLMN");
    let slices = vec![Snssai { sst: 1, sd: Some(0x0a_0b0c) }, Snssai { sst: 2, sd: None }];
    let areas = [SupportedArea { tai: Tai { plmn, tac: Tac(7) }, slices }].into();
    let record = RanNode { id: GnbId { plmn, id: 7, bits: 24 }.into(), name: "gnb".into(), areas };
    AssociationOwner { assoc: AssocId(2), node: AssocId(1), record }
}

fn claim() -> Claim {
    Claim { supi: Supi::from_digits("999700000000001").expect("an IMSI"), ue: Ltmsi::from_raw(5), at: Instant(9) }
}

fn to_host() -> Vec<ToHost<'static>> {
    let (assoc, upf, seid, pdu) = (AssocId(1), address(8), Seid(0x0004_d4d2_0000_0001), b"pdu".to_vec());
    let s_tmsi = Some((1, 2, Tmsi(0xc0de_1234)));
    let nas_identity = r#"{"region":[153,249,7,2],"amf":66,"tmsi":3235778100}"#;
    let nas_identity = Some(serde_json::from_str(nas_identity).expect("an identity"));
    let initial = ShallowView {
        ran_id: Some(RanUeNgapId(7)),
        route: Route::Initial { ran_id: RanUeNgapId(4711), s_tmsi, nas_identity },
        kind: NfKind::ServiceRequest,
        establishment: Some(EstablishmentCause::Originating),
    };
    let of_ue = ShallowView {
        ran_id: Some(RanUeNgapId(7)),
        route: Route::Ue(AmfUeNgapId::new(Ltmsi::from_raw(5), 4)),
        kind: NfKind::Session,
        establishment: None,
    };
    let for_serving_host = |receiver| {
        let event = PeerEvent::Ngap { assoc, view: Some(of_ue), pdu: pdu.clone() };
        ToHost::Event(Cow::Owned(Envelope { number: 14, answers: true, bucket: None, receiver, event }))
    };
    let envelope = |number, bucket, event| {
        ToHost::Event(Cow::Owned(Envelope { number, answers: number != 10, bucket, receiver: Receiver::Owner, event }))
    };
    let ngap = |number, bucket, view| envelope(number, bucket, PeerEvent::Ngap { assoc, view, pdu: pdu.clone() });
    let event = |event| envelope(0, None, event);
    vec![
        ToHost::Refused("no".into()),
        ToHost::Heartbeat,
        ToHost::Map(map()),
        event(PeerEvent::Up { assoc, peer: address(9) }),
        event(PeerEvent::Down { assoc, restarted: true }),
        event(PeerEvent::Alive { assoc }),
        ngap(9, Some(Bucket::new(77)), Some(initial)),
        ngap(10, None, Some(of_ue)),
        ngap(11, None, None),
        for_serving_host(Receiver::ServingHost),
        for_serving_host(Receiver::OwnerAfterServingHost),
        envelope(12, None, PeerEvent::Pfcp { upf, seid, request: false, message: b"message".to_vec() }),
        envelope(13, None, PeerEvent::PfcpTimeout { seid }),
        event(PeerEvent::Upf { upf, up: true }),
        event(PeerEvent::UpfLost { upf }),
        event(PeerEvent::Undelivered { assoc, ue: Ltmsi::from_raw(5), pdu: pdu.clone() }),
        ToHost::Notice(BalancerNotice::Claimed(claim())),
        ToHost::Notice(BalancerNotice::AddressReturned { dnn: dnn(), address: session_address() }),
        ToHost::Notice(BalancerNotice::RanNode(Box::new(association()))),
        ToHost::Notice(BalancerNotice::Endpoints(vec![address(1).ip()])),
        ToHost::BarrierReply { number: 4 },
        ToHost::SentCount { count: 300 },
    ]
}

fn pools() -> Vec<PoolLoad> {
    vec![PoolLoad { backlog: 1.0, share: 0.5, time_us: 100.0 }]
}

fn to_balancer() -> Vec<ToBalancer<'static>> {
    let (assoc, upf, ue, message) = (AssocId(1), address(8), Some(Ltmsi::from_raw(5)), b"message".to_vec());
    let output = |output| ToBalancer::Output(Cow::Owned(output));
    vec![
        ToBalancer::Hello(HostId(3)),
        ToBalancer::Map(map()),
        ToBalancer::Heartbeat,
        output(RanOutput::Ngap { assoc, ue, key: 77, pdu: b"pdu".to_vec() }),
        output(RanOutput::Pfcp {
            upf,
            key: 3,
            seid: Some(Seid(5)),
            served_by: Some(HostId(2)),
            message: message.clone(),
        }),
        output(RanOutput::RefuseReport { upf, message }),
        output(RanOutput::Abort { assoc }),
        output(RanOutput::Probe { assoc }),
        ToBalancer::Notice(HostNotice::Done { number: 9 }),
        ToBalancer::Notice(HostNotice::ReturnInput { number: 9 }),
        ToBalancer::Notice(HostNotice::ReturnServedInput { number: 9 }),
        ToBalancer::Notice(HostNotice::Claim(claim())),
        ToBalancer::Notice(HostNotice::ReturnAddress { to: HostId(2), dnn: dnn(), address: session_address() }),
        ToBalancer::Notice(HostNotice::RanNode(Box::new(association()))),
        ToBalancer::Report { cpu: 0.5, pools: pools() },
        ToBalancer::Barrier { number: 4 },
        ToBalancer::HeartbeatOnly(HostId(3)),
    ]
}

fn to_replica() -> Vec<ToReplica<'static>> {
    let copy = |perpetual| {
        ToReplica::Copy(ReplicaUpdate {
            number: 1,
            ltmsi: Ltmsi::from_raw(5),
            before: Some(Ltmsi::from_raw(6)),
            input: 9,
            layout: 5,
            perpetual_version: 1,
            ephemeral_version: 2,
            perpetual,
            ephemeral: b"ephemeral",
            outbox: b"outbox",
            associations: [Some((AssocId(1), AssocId(2))), None],
        })
    };
    vec![
        ToReplica::Hello { host: HostId(3), epoch: 7 },
        copy(Some(b"perpetual")),
        copy(None),
        ToReplica::BucketHandoff { number: 2, epoch: 7 },
        ToReplica::AddressAuditRequest { number: 3, epoch: 7 },
        ToReplica::AddressAuditReply { number: 4, epoch: 7, table: 1, numbers: vec![1, 70_000], last: true },
        ToReplica::ReconcileRequest { number: 5, buckets: [0, 4095].map(Bucket::new).into() },
        ToReplica::ReconcileRemove { number: 6, ues: vec![Ltmsi::from_raw(5)] },
        ToReplica::EffectWatermark { number: 7, watermark: 4 },
        ToReplica::ProposalAnswer { number: 8, ltmsi: Ltmsi::from_raw(5), input: 9, is_committed: true },
    ]
}

fn proposal() -> Proposal {
    Proposal {
        epoch: 7,
        ltmsi: Ltmsi::from_raw(5),
        input: 9,
        base: 4,
        layout: 5,
        perpetual_version: 2,
        perpetual: Some(b"perpetual".to_vec()),
        ephemeral: b"ephemeral".to_vec(),
        outbox: b"outbox".to_vec(),
        associations: [Some((AssocId(1), AssocId(2))), None],
        deadline: Some(Instant(9)),
        is_in_progress: true,
    }
}

fn to_owner() -> Vec<ToOwner> {
    vec![
        ToOwner::CopyAck { number: 1 },
        ToOwner::Fenced { epoch: 7 },
        ToOwner::ReconcileReply { number: 5, ues: vec![Ltmsi::from_raw(5), Ltmsi::from_raw(0x0fff_ffff)] },
        ToOwner::Proposal(Box::new(proposal())),
    ]
}

fn durable_state() -> DurableState {
    DurableState::new(Secrets { tmsi_key: [7; 16], recovery: 9 }, Some(*map()))
}

fn to_controller() -> Vec<ToController> {
    let past = Some(Box::new(RejoinInfo { id: HostId(3), record: durable_state() }));
    let balancer_past = Some(Box::new(RejoinInfo { id: BalancerId(2), record: durable_state() }));
    vec![
        ToController::JoinHost { copies: address(3), past: None },
        ToController::JoinHost { copies: address(3), past },
        ToController::JoinBalancer { address: address(2), past: balancer_past },
        ToController::Ready,
        ToController::Heartbeat,
        ToController::SilentHosts(vec![HostId(3)]),
        ToController::Report { cpu: 0.5, rate: 300.0, pools: pools() },
        ToController::CaughtUp { epoch: 7, host: HostId(4) },
        ToController::Leave,
        ToController::UnreachablePeers(vec![HostId(4)]),
        ToController::PoolPartitions { epoch: 7, parts: vec![0, 255] },
        ToController::HeartbeatOnly(Member::Host(HostId(3))),
        ToController::HeartbeatOnly(Member::Balancer(BalancerId(2))),
        ToController::Violations(3),
        ToController::Machine(MachineLabel::try_from("rack1-a".to_owned()).expect("a label")),
        ToController::Cordoned(vec![HostId(3)]),
    ]
}

fn to_member() -> Vec<ToMember> {
    let (tmsi_key, heartbeat, recovery) = ([7; 16], (50, 4), 9);
    let welcome = Welcome { host: HostId(3), tmsi_key, part: (1, 16), heartbeat, report: 200, recovery };
    vec![
        ToMember::Welcome(welcome),
        ToMember::Assignment(BalancerAssignment { balancer: BalancerId(2), tmsi_key, recovery, heartbeat }),
        ToMember::Refused("no".into()),
        ToMember::Heartbeat,
        ToMember::Map(map()),
        ToMember::LeaveGranted,
        ToMember::Cordoned(vec![HostId(3), HostId(4)]),
    ]
}

/// Returns each message of the fabric, and the controller state.
pub(super) fn all() -> Vec<Message> {
    let mut all = Vec::new();
    messages!(all: ToHost, to_host());
    messages!(all: ToBalancer, to_balancer());
    messages!(all: ToReplica, to_replica());
    messages!(all: ToOwner, to_owner());
    messages!(all: ToController, to_controller());
    messages!(all: ToMember, to_member());
    let octets = postcard::to_stdvec(&durable_state()).expect("an encoding");
    let decodes = Box::new(|octets: &[u8]| decodes(octets, Some(&durable_state())));
    all.push(Message { name: "DurableState".into(), octets, decodes });
    all
}

/// A release may add variants, and never changes the encoding of one.
#[test]
fn message_of_earlier_release_is_read() {
    let all = all();
    for release in super::RELEASES {
        for (name, octets) in super::lines(release, "messages.txt") {
            let octets = hex::decode(octets).expect("digits");
            let message = all.iter().find(|message| message.name == name).expect(&name);
            assert!((message.decodes)(&octets), "{name}: another value, or unreadable");
            assert_eq!(message.octets, octets, "{name}: the release before does not read it");
        }
    }
}
