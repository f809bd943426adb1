//! What a peer of the fabric may send: a greeting, then frames.

use serde::Serialize;
use std::net::SocketAddr;
use vireo_core::balance::HostId;
use vireo_core::n2;
use vireo_node::fabric::frame::decode;
use vireo_node::fabric::message::{Copy, PoolLoad, ToBalancer, ToHost, ToPrimary, ToReplica, Welcome};
use vireo_node::fabric::{GREETING, Greeting, Inbox, Outbox, Role};
use vireo_types::{AssocId, Dnn, Ltmsi, Seid, SessionAddress};

/// Takes octets as one connection.
pub fn connection(octets: &[u8]) {
    let mut inbox = Inbox::default();
    let mut source = octets;
    while inbox.fill(&mut source).is_ok_and(|read| read > 0) {}
    let Some(greeting) = inbox.raw::<GREETING>() else { return };
    if let Ok(greeting) = Greeting::decode(&greeting) {
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
        for role in [Role::Balancer, Role::Host, Role::Peer] {
            let _ = greeting.agree(role);
        }
    }
    while let Ok(Some(frame)) = inbox.frame() {
        again(frame, |octets| decode::<ToHost<'_>>(octets).ok().map(|message| written(&message)));
        again(frame, |octets| decode::<ToBalancer<'_>>(octets).ok().map(|message| written(&message)));
        again(frame, |octets| decode::<ToReplica<'_>>(octets).ok().map(|message| written(&message)));
        again(frame, |octets| decode::<ToPrimary>(octets).ok().map(|message| written(&message)));
    }
}

/// A message that is read is written as one that is read the same. By its octets: a load may be no number, which equals
/// nothing.
fn again(frame: &[u8], rewritten: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let Some(first) = rewritten(frame) else { return };
    let (mut inbox, mut source) = (Inbox::default(), &first[..]);
    while inbox.fill(&mut source).is_ok_and(|read| read > 0) {}
    let Ok(Some(frame)) = inbox.frame() else { panic!("what was written is no frame") };
    assert_eq!(rewritten(frame), Some(first));
}

fn written(message: &impl Serialize) -> Vec<u8> {
    let (mut outbox, mut octets) = (Outbox::default(), Vec::new());
    outbox.put(message).expect("what was read is no longer than a frame");
    outbox.drain(&mut octets).expect("memory takes all");
    octets
}

/// Connections of each role.
pub fn seeds() -> Vec<Vec<u8>> {
    let upf = SocketAddr::from(([127, 0, 0, 8], 8805));
    let pdu = super::seeds::ngap().into_iter().next().unwrap_or_default();
    let view = n2::view(&pdu).ok();
    let welcome = Welcome { host: HostId(1), tmsi_key: [7; 16], part: (1, 16), heartbeat: (50, 4), report: 200 };
    let dnn: Dnn = "internet".parse().expect("a DNN");
    let address = SessionAddress { ipv4: Some([10, 45, 0, 1].into()), ipv6_prefix: None };
    let to_host = [
        ToHost::Welcome(welcome),
        ToHost::Up { assoc: AssocId(1), peer: upf },
        ToHost::Ngap { number: 9, assoc: AssocId(1), answers: true, bucket: None, view, pdu: &pdu },
        ToHost::Pfcp { number: 10, upf, seid: Seid(5), request: false, message: b"message" },
        ToHost::Refused("no".into()),
        ToHost::Synced { number: 4 },
        ToHost::Returned { dnn: dnn.clone(), address },
        ToHost::Left,
    ];
    let to_balancer = [
        ToBalancer::Join { copies: upf },
        ToBalancer::Ready,
        ToBalancer::Ngap { assoc: AssocId(1), ue: Some(Ltmsi::from_raw(5)), key: 77, pdu: &pdu },
        ToBalancer::Pfcp { upf, key: 3, seid: Some(Seid(5)), message: b"message" },
        ToBalancer::Done { number: 9 },
        ToBalancer::Report { cpu: 0.5, pools: vec![PoolLoad { backlog: 1.0, share: 0.5, time_us: 100.0 }; 3] },
        ToBalancer::CaughtUp { epoch: 3, host: HostId(2) },
        ToBalancer::Sync { number: 4 },
        ToBalancer::Back { number: 9 },
        ToBalancer::Return { to: HostId(2), dnn, address },
        ToBalancer::Leave,
    ];
    let copy = Copy {
        number: 1,
        ltmsi: Ltmsi::from_raw(5),
        before: Some(Ltmsi::from_raw(6)),
        input: 9,
        perpetual_version: 1,
        ephemeral_version: 2,
        perpetual: Some(b"perpetual"),
        ephemeral: b"ephemeral",
        outbox: b"outbox",
    };
    let to_replica = [
        ToReplica::From { host: HostId(1), epoch: 2 },
        ToReplica::Copy(copy),
        ToReplica::Yours { number: 2, epoch: 3 },
    ];
    let to_primary = [ToPrimary::Kept { number: 1 }, ToPrimary::Fenced { epoch: 3 }];
    vec![
        connection_of(Role::Balancer, to_host.iter().map(written)),
        connection_of(Role::Host, to_balancer.iter().map(written)),
        connection_of(Role::Peer, to_replica.iter().map(written)),
        connection_of(Role::Peer, to_primary.iter().map(written)),
        connection_of(Role::Host, [vec![0xff; 8]].into_iter()),
    ]
}

fn connection_of(role: Role, frames: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut octets = Greeting::of(role).encode().to_vec();
    frames.for_each(|frame| octets.extend(frame));
    octets
}
