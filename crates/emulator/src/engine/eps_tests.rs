//! Whole runs of eNBs and LTE UEs: threads, SCTP in memory and GTP-U over loopback.

#[path = "../../tests/support/mod.rs"]
mod support;

use crate::mix::{Activity, Steady};
use crate::options::Load;
use crate::rat::Rats;
use crate::scenario::Scenario;
use crate::test_mme::Behaviour;
use crate::test_mme::lab::{CORE, MmeLab};
use crate::{Error, Options, Procedure, Report};
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Duration;
use vireo_wire::nas_eps::EmmCause;

fn options(scenario: &str) -> Options {
    let scenario = Scenario::find_for(Rats::Eps, scenario).expect("is listed");
    let mut options = Options::lab((CORE, 38412).into(), scenario);
    (options.rats, options.timeout) = (Rats::Eps, Duration::from_secs(5));
    options
}

#[track_caller]
fn check(lab: &MmeLab, report: &Report, ues: u64) {
    assert_eq!(lab.mme.lock().expect("no panic").faults, Vec::<String>::new());
    assert!(report.is_success(), "{report}");
    assert_eq!((report.succeeded, report.failed), (ues, 0));
}

#[test]
fn ues_stay_attached_until_stopped() {
    let lab = MmeLab::new(Behaviour::default());
    let mut options = options("attach");
    (options.gnbs, options.ues, options.threads) = (3, 100, 2);
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 100);
    assert_eq!((report.registered, report.sessions), (100, 100));
    assert_eq!(lab.mme.lock().expect("no panic").attached, 100);
    assert_eq!(report.latency(Procedure::Registration).expect("happened").count, 100);
    assert_eq!(report.latency(Procedure::RegistrationAndSession).expect("happened").count, 100);
    assert_eq!(serde_json::to_value(&report).expect("serialises")["rat"], "eps");
}

#[test]
fn scenarios_without_traffic_run_to_end() {
    // The scripted MME neither relays configuration nor refuses a resynchronisation.
    let needs_core = |scenario: &&Scenario| ["configuration", "resync-refused"].contains(&scenario.name);
    for scenario in Scenario::all_for(Rats::Eps)
        .filter(|scenario| !scenario.steps().is_empty() && !scenario.has_traffic() && !needs_core(scenario))
    {
        let detach = scenario.name == "network-detach";
        let lab = MmeLab::new(Behaviour { detach, ..Behaviour::default() });
        let mut options = options(scenario.name);
        (options.ues, options.gnbs, options.rounds) = (5, 2, 3);
        let report = lab.run(&options).expect("the core is there");
        check(&lab, &report, 5);
    }
}

#[test]
fn full_scenario_forwards_around_idle() {
    let upf = Ipv4Addr::new(127, 46, 2, 1);
    let lab = MmeLab::new(Behaviour { upf, ..Behaviour::default() });
    let mut options = options("full");
    (options.gnbs, options.ues) = (2, 10);
    options.n3 = vec![Ipv4Addr::new(127, 46, 2, 2).into()];
    options.echoes.v4 = Some(Ipv4Addr::new(10, 46, 0, 1));
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 10);
    let counts = report.user_plane;
    assert_eq!((counts.echoes, counts.echoes_answered, counts.bad_packets), (60, 60, 0));
    assert_eq!((report.service_requests, report.deregistered), (10, 10));
}

#[test]
fn mobility_brings_user_plane_along() {
    let upf = Ipv4Addr::new(127, 46, 3, 1);
    let lab = MmeLab::new(Behaviour { upf, ..Behaviour::default() });
    let mut options = options("mobility");
    (options.gnbs, options.ues) = (2, 4);
    options.n3 = vec![Ipv4Addr::new(127, 46, 3, 2).into(), Ipv4Addr::new(127, 46, 3, 3).into()];
    options.echoes.v4 = Some(Ipv4Addr::new(10, 46, 0, 1));
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 4);
    assert_eq!(report.user_plane.echoes_answered, 4 * 3 * 3);
}

#[test]
fn paged_ue_comes_back() {
    let upf = Ipv4Addr::new(127, 46, 4, 1);
    let lab = MmeLab::new(Behaviour { upf, page: true, ..Behaviour::default() });
    let mut options = options("paging");
    options.ues = 3;
    options.n3 = vec![Ipv4Addr::new(127, 46, 4, 2).into()];
    options.echoes.v4 = Some(Ipv4Addr::new(10, 46, 0, 1));
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 3);
    assert_eq!(report.latency(Procedure::Paging).expect("happened").count, 6);
}

#[test]
fn steady_load_keeps_its_rate() {
    let lab = MmeLab::new(Behaviour::default());
    let mut options = options("session");
    let kinds = [(Activity::ServiceRequest, 0.6), (Activity::PeriodicUpdate, 0.2), (Activity::Session, 0.2)];
    let load = Steady::weighted(&kinds, 200.0, crate::load::Pattern::Constant, Duration::ZERO);
    (options.steady, options.ues) = (Some(load), 40);
    options.duration = Some(Duration::from_millis(500));
    let report = lab.run(&options).expect("the core is there");
    assert!(report.is_success(), "{report}");
    assert_eq!((report.steady.procedures, report.steady.completed), (100, 100));
}

#[test]
fn both_dialects_share_a_run() {
    let lab = MmeLab::new(Behaviour::default());
    let network = Mutex::new(support::Network::new(support::Behaviour::default()));
    let mut options = options("idle-service");
    options.scenario = Scenario::find_for(Rats::Both, "idle-service").expect("is listed");
    (options.rats, options.gnbs, options.ues, options.rounds) = (Rats::Both, 2, 20, 3);
    let report = lab.run_beside(&options, &|pdu| network.lock().expect("no panic").receive(pdu));
    check(&lab, &report.expect("the cores are there"), 20);
    let network = network.lock().expect("no panic");
    assert_eq!(network.faults, Vec::<String>::new());
    assert_eq!((lab.mme.lock().expect("no panic").attached, network.registered), (10, 10));
}

#[test]
fn refused_ues_and_enbs_fail_the_run() {
    let lab = MmeLab::new(Behaviour { reject: Some((EmmCause::PlmnNotAllowed, None)), ..Behaviour::default() });
    let report = lab.run(&options("attach")).expect("the core is there");
    assert_eq!(report.failures.keys().collect::<Vec<_>>(), ["registration rejected: EMM cause #11"]);
    let lab = MmeLab::new(Behaviour { refuse_setup: true, ..Behaviour::default() });
    assert!(matches!(lab.run(&options("attach")), Err(Error::S1Setup { enb: 0, .. })));
}

#[test]
fn options_beyond_eps_are_refused() {
    let refused = |change: &dyn Fn(&mut Options)| {
        let mut options = options("attach");
        change(&mut options);
        matches!(MmeLab::new(Behaviour::default()).run(&options), Err(Error::Options(_)))
    };
    assert!(refused(&|o| o.scenario = Scenario::find("profile-a").expect("is listed")));
    assert!(refused(&|o| o.mme = Vec::new()));
    assert!(refused(&|o| o.tac = vireo_types::Tac(0x1_0000)));
    assert!(refused(&|o| (o.ues, o.load) = (100_000, Load::Window(1))));
}
