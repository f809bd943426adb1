//! Relocation of sessions to another UPF, for connected, moving and idle UEs.

use crate::lab::{Lab, upf};
use std::net::Ipv4Addr;
use vireo_core::amf::engine::Event;
use vireo_core::step::{Kind, Note};
use vireo_types::{Duration, Teid};

/// Returns a UE with a session at the first of two UPFs.
fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.config.upfs.push(upf(9));
    lab.register();
    lab.session(1);
    let at = lab.context().expect("a context").sessions[0].pfcp.upf;
    // UEs are distributed over UPFs by their LTMSIs.
    lab.config.upfs.sort_by_key(|upf| upf.n4 != at);
    lab
}

fn relocate(lab: &mut Lab, to: usize) {
    let upf = lab.config.upfs[to].n4;
    lab.event(Event::Relocate { upf });
    lab.settle();
}

fn moved(lab: &Lab) -> (usize, usize) {
    let count = |what: fn(&Note) -> bool| lab.notes.iter().filter(|note| what(note)).count();
    (
        count(|note| matches!(note, Note::Succeeded(Kind::Relocation, _))),
        count(|note| matches!(note, Note::Failed(Kind::Relocation, _))),
    )
}

/// Returns the address and TEID to which the UE's gNB sends uplink packets.
fn uplink(lab: &Lab) -> (std::net::IpAddr, Teid) {
    let tunnels = lab.gnbs[lab.at].tunnels(lab.ran.expect("a connection"));
    let [tunnel] = tunnels else { panic!("one tunnel: {tunnels:?}") };
    (tunnel.upf, tunnel.uplink)
}

#[test]
fn relocation_moves_tunnel_of_connected_ue() {
    let mut lab = lab();
    let there = lab.config.upfs[1].n4.ip();
    for (to, expected) in [(1, there), (0, lab.config.upfs[0].n4.ip())] {
        relocate(&mut lab, to);
        assert_eq!(uplink(&lab).0, expected);
        assert_eq!(lab.context().expect("a context").sessions[0].pfcp.upf.ip(), expected);
        lab.wait(Duration::from_secs(1));
    }
    assert_eq!(moved(&lab), (2, 0), "{:?}", lab.notes);
    assert!(lab.context().expect("a context").sessions[0].relocation.is_none());
}

#[test]
fn relocated_idle_ue_returns_at_target_upf() {
    let mut lab = lab();
    lab.idle();
    relocate(&mut lab, 1);
    lab.wait(Duration::from_secs(1));
    assert_eq!((moved(&lab), lab.ran), ((1, 0), None));
    lab.ue_does(|ue, _, out| ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request"));
    assert_eq!(uplink(&lab).0, lab.config.upfs[1].n4.ip());
}

#[test]
fn path_switch_repeats_unconfirmed_tunnel() {
    let mut lab = lab();
    lab.reachable = false;
    relocate(&mut lab, 1);
    lab.reachable = true;
    // The new gNB has received the tunnel from the old one, by Xn.
    let (old, ran) = (lab.at, lab.ran.expect("a connection"));
    let before = uplink(&lab);
    assert_eq!(before.0, lab.config.upfs[0].n4.ip());
    let capability = (0xf0, 0x70);
    let handed = lab.gnbs[old].handover_context(ran, capability).expect("a UE");
    lab.gnbs[old].forget(ran);
    let mut out = vireo_emulator::gnb::Outbox::default();
    lab.at = 1 - old;
    lab.ran = Some(lab.gnbs[lab.at].path_switch(handed, |_| true, &mut out).expect("a request"));
    assert_eq!(uplink(&lab), before);
    lab.bring_to_core(lab.at, &out);
    lab.settle();
    assert_eq!(uplink(&lab).0, lab.config.upfs[1].n4.ip());
    lab.wait(Duration::from_secs(1));
    assert_eq!(moved(&lab), (1, 0), "{:?}", lab.notes);
}

#[test]
fn busy_ue_or_unknown_target_stays() {
    let mut lab = lab();
    let nowhere = std::net::SocketAddr::from((Ipv4Addr::new(127, 0, 0, 99), 8805));
    lab.event(Event::Relocate { upf: nowhere });
    assert_eq!(moved(&lab), (0, 1));
    lab.idle();
    lab.answers_paging = false;
    lab.event(Event::Deregister { reregister: false, cause: None });
    lab.settle();
    relocate(&mut lab, 1);
    assert_eq!(moved(&lab), (0, 2), "it is being paged");
}
