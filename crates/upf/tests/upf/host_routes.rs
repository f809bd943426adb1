//! Two UPFs of one machine with one pool, checked by the kernel's routes.
//!
//! A UE's packets arrive at the UPF that got its session last. When that UPF deletes the session,
//! they arrive at the other one again.

use crate::world::*;
use std::net::Ipv4Addr;
use vireo_datapath::StartError;
use vireo_upf::{UpfConfig, UpfError};
use vireo_wire::pfcp::*;

const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

fn second(config: UpfConfig) -> UpfConfig {
    UpfConfig { n4: (SECOND, PORT).into(), n3: vec![SECOND.into()], tun: "vireo1".into(), ..config }
}

/// Returns the devices to which the UE's packets of both families are routed.
fn devices(w: &World) -> [String; 2] {
    [format!("ip route get {UE}"), format!("ip -6 route get {PREFIX}")].map(|line| {
        let text = w.run("upf", &line);
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "dev").expect("a route");
        words[at + 1].to_owned()
    })
}

#[test]
fn packets_reach_upf_of_newest_session() {
    let mut w = World::new();
    w.run("upf", &format!("ip address add {SECOND}/24 dev n3"));
    let shared = UpfConfig { host_routes: true, ..config() };
    let _first = w.start(shared.clone()).expect("started");
    let _second = w.start(second(shared)).expect("the pool is the other's too");
    // the UE receives one router advertisement from each UPF
    let (_, teid) = w.active_session();
    assert_eq!(devices(&w), ["vireo0", "vireo0"]);
    w.ping(teid, 1);
    w.upf = SECOND;
    let (there, teid_there) = w.active_session();
    assert_eq!(devices(&w), ["vireo1", "vireo1"]);
    w.ping(teid_there, 2);
    // uplink packets through the first UPF still pass, and their replies arrive through the second
    w.upf = UPF;
    w.tunnel_up(teid, &echo(UE, HOST, 3));
    w.upf = SECOND;
    assert_eq!(w.tunnel_down()[20], 0, "an echo reply");
    let response: SessionDeletionResponse =
        w.request(|out, sequence| SessionDeletionRequest::default().emit(out, there, sequence));
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(devices(&w), ["vireo0", "vireo0"]);
    w.upf = UPF;
    w.ping(teid, 4);
}

#[test]
fn without_routes_of_its_own_a_pool_is_one_upf_s() {
    let w = World::new();
    w.run("upf", &format!("ip address add {SECOND}/24 dev n3"));
    let _first = w.start(config()).expect("started");
    let refused = w.start(second(config())).expect_err("the pool is the other's");
    assert!(matches!(refused, UpfError::Datapath(StartError::Route { .. })), "{refused}");
    let nat = UpfConfig { nat: true, host_routes: true, ..config() };
    let refused = w.start(second(nat)).expect_err("translation is of one");
    assert!(matches!(refused, UpfError::Datapath(StartError::HostRoutesNat)), "{refused}");
}
