//! Whole runs with threads, SCTP in memory and GTP-U over loopback.
//!
//! The peer is the scripted network.

mod support;

use std::net::Ipv4Addr;
use std::time::Duration;
use support::Behaviour;
use support::lab::{CORE, Lab};
use support::upf::Upf;
use vireo_emulator::scenario::Scenario;
use vireo_emulator::traffic::{ECHO_PORT, Kind};
use vireo_emulator::usim::Concealment;
use vireo_emulator::{Error, Load, Options, Phase, Procedure, Report, Retry};
use vireo_wire::nas::GmmCause;
use vireo_wire::security::nas_5gs::HomeNetworkPrivateKey;

fn options(scenario: &str) -> Options {
    let scenario = Scenario::find(scenario).expect("is listed");
    let mut options = Options::lab((CORE, 38412).into(), scenario);
    options.timeout = Duration::from_secs(5);
    options
}

fn check(lab: &Lab, report: &Report, ues: u64) {
    assert_eq!(lab.network.lock().expect("no panic").faults, Vec::<String>::new());
    assert!(report.is_success(), "{report}");
    assert_eq!((report.succeeded, report.failed), (ues, 0));
}

#[test]
fn ues_stay_registered_until_stopped() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options("session");
    (options.gnbs, options.ues, options.threads) = (3, 200, 2);
    let mut settled = None;
    let report = lab.run_watched(&options, &mut |progress| {
        if progress.phase == Phase::Settled {
            settled = Some((progress.done, progress.sessions));
        }
    });
    let report = report.expect("the core is there");
    check(&lab, &report, 200);
    assert_eq!(settled, Some((200, 200)));
    assert_eq!((report.registered, report.sessions), (200, 200));
    assert_eq!(lab.network.lock().expect("no panic").registered, 200);
    for procedure in [Procedure::Registration, Procedure::Session, Procedure::RegistrationAndSession] {
        let latency = report.latency(procedure).expect("happened");
        assert_eq!(latency.count, 200);
        assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max && latency.p50 > 0);
    }
    let json = serde_json::to_value(&report).expect("serialises");
    assert_eq!(json["latency_us"]["registration"]["count"], 200);
}

#[test]
fn full_scenario_forwards_around_idle() {
    let upf = Ipv4Addr::new(127, 45, 1, 1);
    let mut lab = Lab::new(Behaviour { upf, ..Behaviour::default() });
    lab.upf = Some((upf, Upf::Answers));
    let mut options = options("full");
    (options.gnbs, options.ues) = (2, 20);
    options.n3 = vec![Ipv4Addr::new(127, 45, 1, 2).into()];
    options.echoes.v4 = Some(Ipv4Addr::new(10, 46, 0, 1));
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 20);
    let counts = report.user_plane;
    assert_eq!((counts.echoes, counts.echoes_answered, counts.bad_packets), (120, 120, 0));
    // A busy machine may cause an echo to be sent twice.
    assert!(counts.up_packets >= 120 && counts.down_packets >= 120);
    // IPv4, ICMP and 56 octets of payload.
    assert_eq!((counts.up_octets, counts.down_octets), (counts.up_packets * 84, counts.down_packets * 84));
    assert_eq!((report.service_requests, report.deregistered), (20, 20));
}

#[test]
fn every_session_type_at_once_and_udp() {
    let upf = Ipv4Addr::new(127, 45, 2, 1);
    let mut lab = Lab::new(Behaviour { upf, ipv6: true, ..Behaviour::default() });
    lab.upf = Some((upf, Upf::Loses));
    let mut options = options("multi-session");
    options.ues = 3;
    options.n3 = vec![Ipv4Addr::new(127, 45, 2, 2).into()];
    options.echoes.v4 = Some(Ipv4Addr::new(10, 46, 0, 1));
    options.echoes.v6 = Some("fd46::1".parse().expect("an address"));
    options.echoes.answer_timeout = Duration::from_millis(50);
    // One packet in three is lost; three losses of the same echo in a row are very unlikely.
    options.echoes.tries = 20;
    options.echoes.kind = Kind::Udp(ECHO_PORT);
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 3);
    // 4 flows (two of the dual-stack session), then 3 without the released IPv6 session.
    assert_eq!(report.user_plane.echoes_answered, 3 * 3 * (4 + 3));
    assert!(report.user_plane.up_packets > report.user_plane.down_packets);
}

#[test]
fn lost_and_damaged_traffic_fails_the_run() {
    for (last, mode, what) in
        [(3, Upf::Silent, "an echo was not answered"), (4, Upf::Damages, "an echo was not answered")]
    {
        let upf = Ipv4Addr::new(127, 45, last, 1);
        let mut lab = Lab::new(Behaviour { upf, ..Behaviour::default() });
        lab.upf = Some((upf, mode));
        let mut options = options("traffic");
        options.n3 = vec![Ipv4Addr::new(127, 45, last, 2).into()];
        options.echoes.v4 = Some(Ipv4Addr::new(10, 46, 0, 1));
        options.echoes.answer_timeout = Duration::from_millis(100);
        let report = lab.run(&options).expect("the core is there");
        assert!(!report.is_success());
        assert_eq!(report.failures.get(what), Some(&1), "{report}");
        assert_eq!(report.user_plane.bad_packets > 0, mode == Upf::Damages);
    }
}

#[test]
fn concealed_suci_is_used_once() {
    let private = HomeNetworkPrivateKey::profile_a(&[0x42; 32]);
    let key = private.public_key();
    let lab = Lab::new(Behaviour { private: Some(private), ..Behaviour::default() });
    let mut options = options("deregister");
    (options.ues, options.rounds) = (20, 2);
    options.profile.concealment = Concealment::Ecies { key_id: 1, key };
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 20);
    assert_eq!(report.registered, 60);
}

#[test]
fn loops_and_failures_run_to_end() {
    for (scenario, rounds, registered) in
        [("idle-service", 5, 10), ("deregister", 3, 40), ("guti", 1, 40), ("sessions", 4, 10), ("auth-failures", 1, 30)]
    {
        let lab = Lab::new(Behaviour::default());
        let mut options = options(scenario);
        (options.ues, options.rounds) = (10, rounds);
        let report = lab.run(&options).expect("the core is there");
        check(&lab, &report, 10);
        assert_eq!(report.registered, registered, "{scenario}");
    }
}

#[test]
fn open_loop_keeps_its_rate() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options("register");
    (options.ues, options.load) = (100, Load::Rate(500.0));
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 100);
    // The last of 100 UEs starts at 198 ms.
    assert!((0.19..0.5).contains(&report.seconds), "{}", report.seconds);
    let lab = Lab::new(Behaviour::default());
    options.duration = Some(Duration::from_millis(100));
    let report = lab.run(&options).expect("the core is there");
    assert!((40..=60).contains(&report.started), "{}", report.started);
    assert!(report.is_success());
}

#[test]
fn refused_ue_fails_and_congested_one_comes_back() {
    let lab = Lab::new(Behaviour { reject: Some((GmmCause::PlmnNotAllowed, None)), ..Behaviour::default() });
    let report = lab.run(&options("register")).expect("the core is there");
    assert!(!report.is_success());
    assert_eq!(report.failures.keys().collect::<Vec<_>>(), ["registration rejected: 5GMM cause #11"]);
    let reject = Some((GmmCause::Congestion, Some(2)));
    let lab = Lab::new(Behaviour { reject, rejections: 1, ..Behaviour::default() });
    let report = lab.run(&options("register")).expect("the core is there");
    assert_eq!((report.back_offs, report.succeeded), (1, 1), "{report}");
    assert!(report.latency(Procedure::Registration).expect("happened").max >= 2_000_000);
}

#[test]
fn back_off_beyond_timeout_fails_without_retries() {
    // The core rejects every registration, so that waiting would not end.
    let reject = Some((GmmCause::Congestion, Some(30)));
    let lab = Lab::new(Behaviour { reject, ..Behaviour::default() });
    let mut options = options("register");
    (options.retry, options.timeout) = (Retry::Never, Duration::from_secs(5));
    let report = lab.run(&options).expect("the core is there");
    assert_eq!((report.back_offs, report.succeeded), (0, 0), "{report}");
    assert_eq!(report.failures.keys().collect::<Vec<_>>(), ["registration rejected: 5GMM cause #22"]);
    assert!(report.seconds < 5.0, "{report}");
}

#[test]
fn silent_core_ends_run() {
    let lab = Lab::new(Behaviour { mute: true, ..Behaviour::default() });
    let mut options = options("register");
    (options.ues, options.timeout) = (5, Duration::from_secs(1));
    let report = lab.run(&options).expect("NG SETUP is answered");
    assert_eq!(report.failures.get("registration not done within 1s"), Some(&5), "{report}");
    let lab = Lab::new(Behaviour::default());
    options.core = vec![(Ipv4Addr::new(10, 0, 0, 9), 38412).into()];
    assert!(matches!(lab.run(&options), Err(Error::NgSetup { .. })));
}

#[test]
fn invalid_options_are_refused() {
    let lab = Lab::new(Behaviour::default());
    let refused = |change: fn(&mut Options)| {
        let mut options = options("traffic");
        options.echoes.v4 = Some(Ipv4Addr::LOCALHOST);
        change(&mut options);
        matches!(lab.run(&options), Err(Error::Options(_)))
    };
    assert!(refused(|o| o.ues = 0));
    assert!(refused(|o| o.gnbs = 0));
    assert!(refused(|o| o.core.clear()));
    assert!(refused(|o| o.n3.clear()));
    assert!(refused(|o| o.echoes.v4 = None));
    assert!(refused(|o| o.subscribers = vireo_emulator::Subscribers::List([].into())));
}

#[test]
fn paged_ue_returns_early() {
    let lab = Lab::new(Behaviour { page: true, ..Behaviour::default() });
    let mut options = options("idle-service");
    (options.ues, options.rounds, options.idle) = (5, 2, Duration::from_secs(60));
    options.timeout = Duration::from_secs(20);
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 5);
    assert_eq!(report.service_requests, 10);
    assert!(report.seconds < 20.0);
}

#[test]
fn misbehaviour_is_judged_by_answers() {
    for (scenario, right) in [
        ("bad-ppid", true),
        ("bad-nas-mac", true),
        ("bad-replay", true),
        ("bad-truncated", true),
        ("bad-random", true),
        ("ng-reset", true),
        // The scripted network ignores criticality and foreign networks, and implements no other
        // AMF checks.
        ("bad-procedure", false),
        ("bad-setup", false),
    ] {
        let lab = Lab::new(Behaviour::default());
        let report = lab.run(&options(scenario)).expect("the core is there");
        assert_eq!(report.is_success(), right, "{report}");
        assert!(report.cases[0].sent > 0 && report.cases[0].association_kept, "{report}");
        assert!(report.cases[0].witness_us.is_some(), "{report}");
    }
    let lab = Lab::new(Behaviour { mute: true, ..Behaviour::default() });
    let mut options = options("bad-truncated");
    options.timeout = Duration::from_secs(1);
    let report = lab.run(&options).expect("NG SETUP is answered");
    assert!(!report.is_success());
    let case = &report.cases[0];
    assert!(case.witness_us.is_none() && case.faults.len() == 2, "{report}");
}

#[test]
fn lost_association_fails_its_ues_and_reconnects() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options("register");
    (options.ues, options.load, options.timeout) = (100, Load::Rate(100.0), Duration::from_secs(2));
    let mut lost = false;
    let report = lab.run_watched(&options, &mut |progress| {
        if progress.registered > 20 && !lost {
            lost = true;
            lab.sctp.fail(lab.assocs.lock().expect("no panic")[0]);
        }
    });
    let report = report.expect("the core is there");
    assert!(lost);
    assert_eq!(lab.assocs.lock().expect("no panic").len(), 2);
    // Failed UEs are those that started without an association and those in progress at its loss.
    assert!(report.succeeded + report.failed == 100 && report.succeeded >= 50 && report.failed > 0, "{report}");
}
