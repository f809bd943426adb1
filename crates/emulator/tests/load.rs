//! Steady loads against the scripted network, over SCTP in memory.

mod support;

use std::time::Duration;
use support::Behaviour;
use support::lab::{CORE, Lab};
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::{Activity, Mix, Steady};
use vireo_emulator::scenario::Scenario;
use vireo_emulator::{Load, Options, Procedure, Report, Retry};

fn options(kinds: &[(Activity, f64)], rate: f64) -> Options {
    let mut options = Options::lab((CORE, 38412).into(), Scenario::find("session").expect("is listed"));
    options.steady = Some(Steady::weighted(kinds, rate, Pattern::Constant, Duration::from_millis(2)));
    (options.ues, options.gnbs, options.load) = (60, 2, Load::Rate(1000.0));
    options.duration = Some(Duration::from_millis(1000));
    options.timeout = Duration::from_secs(5);
    options.timeline = Some(Duration::from_millis(100));
    options
}

fn check(lab: &Lab, report: &Report, procedures: u64) {
    assert_eq!(lab.network.lock().expect("no panic").faults, Vec::<String>::new());
    assert!(report.is_success(), "{report}");
    let steady = &report.steady;
    assert_eq!((steady.procedures, steady.completed), (procedures, procedures), "{report}");
    assert_eq!((steady.lost, steady.failed_procedures, steady.retries), (0, 0, 0));
}

#[test]
fn registered_ues_serve_arrivals_of_mixed_load() {
    let lab = Lab::new(Behaviour::default());
    let kinds = [
        (Activity::ServiceRequest, 0.5),
        (Activity::Session, 0.2),
        (Activity::Registration, 0.2),
        (Activity::RegistrationSession, 0.1),
    ];
    let mut options = options(&kinds, 400.0);
    options.threads = 2;
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 400);
    let count = |procedure| report.latency(procedure).map_or(0, |latency| latency.count);
    let services = count(Procedure::ServiceRequest);
    assert!((160..=240).contains(&services), "{report}");
    let timed: u64 = report.timeline.iter().filter(|row| row.procedure.is_none()).map(|row| row.count).sum();
    assert_eq!(timed, 400, "{:?}", report.timeline);
    let registrations = count(Procedure::Registration) - report.succeeded_at_first();
    // The completed procedures match the requested ones.
    let sessions = count(Procedure::SessionRelease);
    assert_eq!(services + sessions + registrations, 400, "{report}");
    // Each interval has one row for all procedures, and every procedure is in one of them.
    let all: Vec<_> = report.timeline.iter().filter(|row| row.procedure.is_none()).collect();
    assert_eq!(all.len(), 10, "{:?}", report.timeline);
    assert!(all.iter().all(|row| row.failures == 0 && row.count == 40 && row.p50_us <= row.max_us));
    let json = serde_json::to_value(&report).expect("serialises");
    assert_eq!((json["procedures"].as_u64(), json["lost"].as_u64()), (Some(400), Some(0)));
    assert!(json["latency_us"]["service_request"]["p99"].is_number());
    assert!(json["service_us"]["service_request"]["p99"].is_number());
}

trait AtFirst {
    fn succeeded_at_first(&self) -> u64;
}

impl AtFirst for Report {
    /// Returns the number of registrations before the load: all UEs except those that rest switched
    /// off (30% of 60).
    fn succeeded_at_first(&self) -> u64 {
        42
    }
}

#[test]
fn warmup_is_in_timeline_only() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options(&[(Activity::ServiceRequest, 1.0)], 200.0);
    options.settle = Duration::from_millis(250);
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 200);
    assert_eq!(report.latency(Procedure::ServiceRequest).map(|latency| latency.count), Some(150), "{report}");
    assert_eq!(report.latency(Procedure::Registration).map(|latency| latency.count), Some(60), "{report}");
    let timed: u64 = report.timeline.iter().filter(|row| row.procedure.is_none()).map(|row| row.count).sum();
    assert_eq!(timed, 200, "{:?}", report.timeline);
}

#[test]
fn busy_core_does_not_slow_arrivals_down() {
    // 4 UEs that are busy for 50 ms each serve 80 procedures per second; 200 are due.
    let lab = Lab::new(Behaviour::default());
    let mut options = options(&[(Activity::ServiceRequest, 1.0)], 200.0);
    options.ues = 4;
    if let Some(steady) = &mut options.steady {
        steady.groups[0].dwell = Duration::from_millis(50);
    }
    options.timeout = Duration::from_secs(30);
    let report = lab.run(&options).expect("the core is there");
    check(&lab, &report, 200);
    let latency = |of: &std::collections::BTreeMap<Procedure, vireo_emulator::Latency>| {
        of.get(&Procedure::ServiceRequest).expect("happened").clone()
    };
    let (intended, service) = (latency(&report.latency_us), latency(&report.service_us));
    assert!(report.steady.unserved > 100, "{report}");
    // The last one waits for (200 - 80) / 80 s.
    assert!(intended.max >= 1_000_000 && service.p50 < intended.p50 / 2, "{report}");
}

/// Runs the load and calls `at` at every progress report with the number of due procedures.
fn run_with(lab: &Lab, options: &Options, mut at: impl FnMut(&mut support::Network, u64)) -> Report {
    let report = lab.run_watched(options, &mut |progress| {
        at(&mut lab.network.lock().expect("no panic"), progress.procedures);
    });
    report.expect("the core is there")
}

#[test]
fn unanswered_request_is_repeated() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options(&[(Activity::ServiceRequest, 1.0)], 100.0);
    options.duration = Some(Duration::from_millis(1500));
    options.retry = Retry::After { retry: Duration::from_millis(300), reattach: Duration::from_secs(20) };
    let mut silent = false;
    let report = run_with(&lab, &options, |network, due| {
        if due >= 40 && !silent {
            (silent, network.behaviour.deaf) = (true, 40);
        }
    });
    let steady = &report.steady;
    assert!(steady.retries >= 5, "{report}");
    assert_eq!((steady.procedures, steady.completed), (150, 150), "{report}");
    assert_eq!((steady.lost, steady.failed_procedures), (0, 0), "{report}");
    // The repeated requests were served late.
    assert!(steady.in_time > 50 && steady.in_time < 150, "{report}");
    // The UEs repeated the lost requests.
    let latency = report.latency(Procedure::ServiceRequest).expect("happened");
    assert_eq!(latency.count, 150);
    assert!(latency.max >= 300_000, "{report}");
}

#[test]
fn congested_ue_backs_off_and_retries() {
    let lab = Lab::new(Behaviour { congested: 10, ..Behaviour::default() });
    let report = lab.run(&options(&[(Activity::ServiceRequest, 1.0)], 50.0)).expect("the core is there");
    let steady = &report.steady;
    assert_eq!(report.back_offs, 10, "{report}");
    assert_eq!((steady.completed, steady.failed_procedures, steady.lost), (50, 0, 0), "{report}");
    let latency = report.latency(Procedure::ServiceRequest).expect("happened");
    assert!(latency.max >= 2_000_000 && latency.p50 < 2_000_000, "{report}");
}

#[test]
fn ue_unknown_to_network_counts_as_lost() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options(&[(Activity::ServiceRequest, 1.0)], 100.0);
    options.retry = Retry::After { retry: Duration::from_millis(1000), reattach: Duration::from_millis(2000) };
    options.timeout = Duration::from_secs(20);
    let mut forgotten = false;
    let report = run_with(&lab, &options, |network, due| {
        if due >= 30 && !forgotten {
            forgotten = true;
            network.forget_all();
        }
    });
    let steady = &report.steady;
    assert!(steady.lost > 5 && steady.lost <= 60, "{report}");
    assert_eq!(steady.failed_procedures, steady.lost, "{report}");
    assert_eq!(steady.procedures, steady.completed + steady.failed_procedures, "{report}");
    assert!(!report.is_success());
    // The outage lasts from the due time until the UE has service again.
    let latency = report.latency(Procedure::ServiceRequest).expect("happened");
    assert!(latency.max >= 1_800_000, "{report}");
    assert_eq!(latency.count, steady.procedures);
    let failures: u64 = report.timeline.iter().filter(|row| row.procedure.is_none()).map(|row| row.failures).sum();
    assert_eq!(failures, steady.failed_procedures);
}

#[test]
fn load_survives_lost_associations() {
    let lab = Lab::new(Behaviour::default());
    let kinds = [(Activity::ServiceRequest, 0.5), (Activity::Session, 0.5)];
    let mut options = options(&kinds, 100.0);
    options.duration = Some(Duration::from_millis(1500));
    options.retry = Retry::After { retry: Duration::from_millis(300), reattach: Duration::from_secs(20) };
    let mut lost = false;
    let report = run_with(&lab, &options, |_, due| {
        if due >= 40 && !lost {
            lost = true;
            lab.assocs.lock().expect("no panic").iter().for_each(|assoc| lab.sctp.fail(*assoc));
        }
    });
    assert!(lost && lab.assocs.lock().expect("no panic").len() == 4);
    let steady = &report.steady;
    // gNBs reconnect after 200 ms; the network still knows its UEs.
    assert_eq!((steady.procedures, steady.completed, steady.lost), (150, 150, 0), "{report}");
    assert!(steady.retries > 0, "{report}");
}

#[test]
fn built_in_devices_run() {
    let lab = Lab::new(Behaviour::default());
    let mut options = options(&[], 0.0);
    let mix: Mix = "[[profile]]\nname = \"meter\"\nprocedures.service-request = { every = \"1s\" }\ndwell = \"1ms\"\n\
                    [[profile]]\nname = \"phone\"\nprocedures.session = { rate = 1.0 }\ndwell = \"1ms\"\n"
        .parse()
        .expect("a mix");
    options.steady = Some(mix.steady(options.ues, None, None));
    let report = lab.run(&options).expect("the core is there");
    assert!(report.is_success(), "{report}");
    // 30 meters, each once per second.
    let count = |procedure| report.latency(procedure).map_or(0, |latency| latency.count);
    let sessions = count(Procedure::SessionRelease);
    assert_eq!(count(Procedure::ServiceRequest), 30 + sessions, "{report}");
    assert!((10..60).contains(&sessions), "{report}");
}

#[test]
fn impossible_load_is_refused() {
    let lab = Lab::new(Behaviour::default());
    let refused = |options: &Options, why: &str| lab.run(options).is_err_and(|error| error.to_string().contains(why));
    let mut open_end = options(&[(Activity::ServiceRequest, 1.0)], 10.0);
    open_end.duration = None;
    assert!(refused(&open_end, "--duration"));
    let mut still = options(&[(Activity::XnHandover, 1.0)], 10.0);
    still.gnbs = 1;
    assert!(refused(&still, "--gnbs 2"));
    assert!(refused(&options(&[], 10.0), "no procedures"));
}

#[test]
fn ues_continue_on_remaining_association() {
    let lab = Lab::new(Behaviour::default());
    let kinds = [(Activity::ServiceRequest, 0.5), (Activity::Session, 0.5)];
    let mut options = options(&kinds, 400.0);
    (options.tnl_associations, options.drop_association) = (2, Some(Duration::from_millis(90)));
    options.retry = Retry::After { retry: Duration::from_millis(50), reattach: Duration::from_secs(5) };
    let report = lab.run(&options).expect("the core is there");
    assert_eq!(lab.network.lock().expect("no panic").faults, Vec::<String>::new());
    assert!(report.is_success(), "{report}");
    assert!(report.associations_lost >= 4, "{report}");
    assert_eq!((report.steady.completed, report.steady.lost), (400, 0), "{report}");
}
