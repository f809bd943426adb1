//! Fuzz targets of the fabric and of the controller state.
//!
//! A peer of the fabric sends a greeting, then frames.

use serde::Serialize;
use std::borrow::Cow;
use std::net::SocketAddr;
use vireo_core::amf::context::LAYOUT_VERSION;
use vireo_core::amf::n2;
use vireo_core::amf::ran::RanNode;
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::balance::{BalancerId, HostId};
use vireo_core::placement::cluster::{ClusterMap, DurableState, MachineLabel, Member, RejoinInfo, Secrets};
use vireo_core::placement::message::{
    AssociationOwner, BalancerAssignment, BalancerNotice, Envelope, HostNotice, PeerEvent, PoolLoad, RanOutput,
    Receiver, ToBalancer, ToController, ToHost, ToMember, ToOwner, ToReplica, Welcome,
};
use vireo_core::placement::replica::{Claim, Proposal, ReplicaUpdate};
use vireo_fabric::frame::decode;
use vireo_fabric::{FrameReader, FrameWriter, GREETING, Greeting, Role};
use vireo_types::{AssocId, Bucket, Dnn, GnbId, Instant, Ltmsi, Seid, SessionAddress, Supi};

/// Decodes octets as one connection.
pub fn connection(octets: &[u8]) {
    let mut inbox = FrameReader::default();
    let mut source = octets;
    while inbox.fill(&mut source).is_ok_and(|read| read > 0) {}
    let Some(greeting) = inbox.raw::<GREETING>() else { return };
    if let Ok(greeting) = Greeting::decode(&greeting) {
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
        for role in [Role::Balancer, Role::Host, Role::Peer, Role::Controller] {
            let _ = greeting.agree(&[role]);
        }
    }
    while let Ok(Some(frame)) = inbox.frame() {
        check_round_trip(frame, |octets| decode::<ToHost<'_>>(octets).ok().map(|message| written(&message)));
        check_round_trip(frame, |octets| decode::<ToBalancer<'_>>(octets).ok().map(|message| written(&message)));
        check_round_trip(frame, |octets| decode::<ToReplica<'_>>(octets).ok().map(|message| written(&message)));
        check_round_trip(frame, |octets| decode::<ToOwner>(octets).ok().map(|message| written(&message)));
        check_round_trip(frame, |octets| decode::<ToController>(octets).ok().map(|message| written(&message)));
        check_round_trip(frame, |octets| decode::<ToMember>(octets).ok().map(|message| written(&message)));
    }
}

/// Checks that a decoded message survives encoding and decoding. It compares octets, since a load
/// may be NaN, which equals nothing.
fn check_round_trip(frame: &[u8], rewritten: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let Some(first) = rewritten(frame) else { return };
    let (mut inbox, mut source) = (FrameReader::default(), &first[..]);
    while inbox.fill(&mut source).is_ok_and(|read| read > 0) {}
    let Ok(Some(frame)) = inbox.frame() else { panic!("what was written is no frame") };
    assert_eq!(rewritten(frame), Some(first));
}

fn written(message: &impl Serialize) -> Vec<u8> {
    let (mut outbox, mut octets) = (FrameWriter::default(), Vec::new());
    outbox.put(message).expect("what was read is no longer than a frame");
    outbox.drain(&mut octets).expect("memory takes all");
    octets
}

/// Returns connections of each role.
pub fn seeds() -> Vec<Vec<u8>> {
    let upf = SocketAddr::from(([127, 0, 0, 8], 8805));
    let pdu = super::seeds::ngap().into_iter().next().unwrap_or_default();
    let view = n2::peek(&pdu).ok();
    let map = Box::new(ClusterMap {
        hosts: vec![(HostId(1), upf)],
        buckets: BucketMap::new(1, &[]),
        balancers: vec![(BalancerId(2), upf)],
        joined: 2,
        lost: vec![1],
        leaving: vec![HostId(1)],
    });
    let dnn: Dnn = "internet".parse().expect("a DNN");
    let address = SessionAddress { ipv4: Some([10, 45, 0, 1].into()), ipv6_prefix: None };
    let supi = Supi::from_digits("999700000000001").expect("an IMSI");
    let id = GnbId { plmn: "99970".parse().expect("a PLMN"), id: 7, bits: 24 };
    let record = RanNode { id: id.into(), name: "gnb".into(), areas: [].into() };
    let of = AssociationOwner { assoc: AssocId(2), node: AssocId(1), record };
    let claim = Claim { supi, ue: Ltmsi::from_raw(5), at: Instant(9) };
    let event = |number, event| ToHost::Event(Cow::Owned(Envelope { number, ..Envelope::new(event) }));
    let served = PeerEvent::Ngap { assoc: AssocId(1), view, pdu: pdu.clone() };
    let served = Envelope { number: 11, receiver: Receiver::ServingHost, ..Envelope::new(served) };
    let effect = |output| ToBalancer::Output(Cow::Owned(output));
    let to_host = [
        ToHost::Map(map.clone()),
        event(0, PeerEvent::Up { assoc: AssocId(1), peer: upf }),
        event(9, PeerEvent::Ngap { assoc: AssocId(1), view, pdu: pdu.clone() }),
        ToHost::Event(Cow::Owned(served)),
        event(10, PeerEvent::Pfcp { upf, seid: Seid(5), request: false, message: b"message".to_vec() }),
        ToHost::Refused("no".into()),
        ToHost::BarrierReply { number: 4 },
        ToHost::Notice(BalancerNotice::Claimed(claim)),
        ToHost::Notice(BalancerNotice::AddressReturned { dnn: dnn.clone(), address }),
        ToHost::Notice(BalancerNotice::RanNode(Box::new(of.clone()))),
    ];
    let to_balancer = [
        ToBalancer::Hello(HostId(1)),
        ToBalancer::Map(map),
        effect(RanOutput::Ngap { assoc: AssocId(1), ue: Some(Ltmsi::from_raw(5)), key: 77, pdu }),
        effect(RanOutput::Pfcp {
            upf,
            key: 3,
            seid: Some(Seid(5)),
            served_by: Some(HostId(2)),
            message: b"message".to_vec(),
        }),
        ToBalancer::Notice(HostNotice::Done { number: 9 }),
        ToBalancer::Report { cpu: 0.5, pools: vec![PoolLoad { backlog: 1.0, share: 0.5, time_us: 100.0 }; 3] },
        ToBalancer::Barrier { number: 4 },
        ToBalancer::Notice(HostNotice::Claim(claim)),
        ToBalancer::Notice(HostNotice::ReturnInput { number: 9 }),
        ToBalancer::Notice(HostNotice::ReturnServedInput { number: 9 }),
        ToBalancer::Notice(HostNotice::ReturnAddress { to: HostId(2), dnn, address }),
        ToBalancer::Notice(HostNotice::RanNode(Box::new(of))),
        ToBalancer::HeartbeatOnly(HostId(1)),
    ];
    let copy = ReplicaUpdate {
        number: 1,
        ltmsi: Ltmsi::from_raw(5),
        before: Some(Ltmsi::from_raw(6)),
        input: 9,
        layout: LAYOUT_VERSION,
        perpetual_version: 1,
        ephemeral_version: 2,
        perpetual: Some(b"perpetual"),
        ephemeral: b"ephemeral",
        outbox: b"outbox",
        associations: [Some((AssocId(1), AssocId(2))), None],
    };
    let to_replica = [
        ToReplica::Hello { host: HostId(1), epoch: 2 },
        ToReplica::Copy(copy),
        ToReplica::BucketHandoff { number: 2, epoch: 3 },
        ToReplica::AddressAuditRequest { number: 3, epoch: 3 },
        ToReplica::AddressAuditReply { number: 4, epoch: 3, table: 1, numbers: vec![1, 70_000], last: true },
        ToReplica::ReconcileRequest { number: 5, buckets: [0, 4095].map(Bucket::new).into() },
        ToReplica::ReconcileRemove { number: 6, ues: vec![Ltmsi::from_raw(5)] },
        ToReplica::EffectWatermark { number: 7, watermark: 4 },
        ToReplica::ProposalAnswer { number: 8, ltmsi: Ltmsi::from_raw(5), input: 9, is_committed: false },
    ];
    let others = ToOwner::ReconcileReply { number: 5, ues: vec![Ltmsi::from_raw(5), Ltmsi::from_raw(0x0fff_ffff)] };
    let to_primary =
        [ToOwner::CopyAck { number: 1 }, ToOwner::Fenced { epoch: 3 }, others, ToOwner::Proposal(Box::new(proposal()))];
    vec![
        connection_of(Role::Balancer, to_host.iter().map(written)),
        connection_of(Role::Host, to_balancer.iter().map(written)),
        connection_of(Role::Peer, to_replica.iter().map(written)),
        connection_of(Role::Peer, to_primary.iter().map(written)),
        connection_of(Role::Host, [vec![0xff; 8]].into_iter()),
        connection_of(Role::Host, to_controller().iter().map(written)),
        connection_of(Role::Controller, to_member().iter().map(written)),
    ]
}

fn proposal() -> Proposal {
    Proposal {
        epoch: 3,
        ltmsi: Ltmsi::from_raw(5),
        input: 9,
        base: 4,
        layout: LAYOUT_VERSION,
        perpetual_version: 2,
        perpetual: Some(b"perpetual".to_vec()),
        ephemeral: b"ephemeral".to_vec(),
        outbox: b"outbox".to_vec(),
        associations: [Some((AssocId(1), AssocId(2))), None],
        deadline: Some(Instant(9)),
        is_in_progress: true,
    }
}

fn machine() -> MachineLabel {
    MachineLabel::try_from("rack1-a".to_owned()).expect("a label")
}

fn to_controller() -> [ToController; 12] {
    let address = SocketAddr::from(([127, 0, 0, 1], 7771));
    let record = DurableState::new(Secrets { tmsi_key: [7; 16], recovery: 9 }, None);
    [
        ToController::JoinHost { copies: address, past: None },
        ToController::JoinHost {
            copies: address,
            past: Some(Box::new(RejoinInfo { id: HostId(1), record: record.clone() })),
        },
        ToController::JoinBalancer { address, past: Some(Box::new(RejoinInfo { id: BalancerId(1), record })) },
        ToController::Ready,
        ToController::SilentHosts(vec![HostId(1)]),
        ToController::CaughtUp { epoch: 3, host: HostId(2) },
        ToController::Leave,
        ToController::UnreachablePeers(vec![HostId(3)]),
        ToController::PoolPartitions { epoch: 3, parts: vec![0, 255] },
        ToController::HeartbeatOnly(Member::Balancer(BalancerId(1))),
        ToController::Violations(3),
        ToController::Machine(machine()),
    ]
}

fn to_member() -> [ToMember; 4] {
    let (tmsi_key, heartbeat, recovery) = ([7; 16], (50, 4), 9);
    let welcome = Welcome { host: HostId(1), tmsi_key, part: (1, 16), heartbeat, report: 200, recovery };
    [
        ToMember::Welcome(welcome),
        ToMember::Assignment(BalancerAssignment { balancer: BalancerId(1), tmsi_key, recovery, heartbeat }),
        ToMember::Refused("no".into()),
        ToMember::LeaveGranted,
    ]
}

fn connection_of(role: Role, frames: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut octets = Greeting::new(role).encode().to_vec();
    frames.for_each(|frame| octets.extend(frame));
    octets
}

/// Decodes octets as the controller state in etcd.
pub fn record(octets: &[u8]) {
    if let Ok(record) = vireo_controller::decode_state(octets) {
        let _ = vireo_controller::encode_state(&record);
    }
}

/// Returns a stored controller state.
pub fn record_seeds() -> Vec<Vec<u8>> {
    let state = DurableState::new(Secrets { tmsi_key: [7; 16], recovery: 9 }, None);
    let with_points = DurableState { points: vec![(HostId(1), 120), (HostId(2), 200)], ..state.clone() };
    let with_machines = DurableState { machines: vec![(HostId(1), machine())], ..with_points.clone() };
    let states = [state, with_points, with_machines];
    states.map(|state| vireo_controller::encode_state(&state).expect("a state has an encoding")).into()
}
