//! Scenarios of single cases: what UEs and gNBs request, and the answer of the core.

use super::{VIREO, refused, scenario_succeeds, scenario_succeeds_with};
use std::process::Command;

/// Requests that are served, repeated or refused (TS 24.501 6.4.1, 5.4.5.2; TS 24.301 6.5.1).
#[test]
fn session_requests_get_their_answers() {
    let served = ["always-on", "static-address", "repeated-request", "replaced-session", "ipv4v6"];
    let served = served.iter().chain(&["framed-routes", "colliding-request"]);
    let refused = ["unknown-dnn", "unknown-slice", "ssc-modes", "session-types", "refused-change"];
    for scenario in served.chain(&refused) {
        scenario_succeeds("nr", scenario);
    }
    for scenario in ["static-address", "repeated-request", "unknown-dnn", "session-types"] {
        scenario_succeeds("eps", scenario);
    }
}

/// Forbidden and non-allowed areas (TS 23.501 5.3.4.1.1).
#[test]
fn areas_of_subscribers_are_enforced() {
    for scenario in ["forbidden-area", "non-allowed-area"] {
        scenario_succeeds("nr", scenario);
    }
}

/// The gNBs compare the policy of each set-up and handover with the configured one (TS 33.501
/// 6.6.1).
#[test]
fn up_security_stays_over_handovers() {
    let policies = ["required", "preferred", "not-needed"];
    let scenarios = ["up-required", "up-preferred", "up-not-needed"];
    for (scenario, policy) in scenarios.iter().zip(policies).chain([(&"up-impossible", "required")]) {
        scenario_succeeds_with("nr", scenario, &[("VIREO_DNN__INTERNET__UP_INTEGRITY", policy)]);
    }
}

/// 64 KiB through SCTP, a step, the stored context and back.
#[test]
fn large_radio_capability_returns() {
    for rat in ["nr", "eps"] {
        scenario_succeeds(rat, "radio-capability");
    }
}

#[test]
fn nodes_report_location() {
    for rat in ["nr", "eps"] {
        scenario_succeeds_with(rat, "location-reports", &[("VIREO_CORE__LOCATION_REPORTS", "true")]);
    }
}

#[test]
fn registrations_of_5g_run_to_their_end() {
    let registrations = ["foreign-guti", "follow-on", "resync", "resync-refused"];
    for scenario in registrations.iter().chain(&["service", "reset", "handover", "restoration"]) {
        scenario_succeeds("nr", scenario);
    }
}

/// EAP-AKA' (TS 24.501 5.4.1.2): the UEs accept no 5G AKA. Workers of the core die amid it.
#[test]
fn eap_authenticates_ues() {
    let method = ("VIREO_SUBSCRIBERS__AUTHENTICATION_METHOD", "eap-aka-prime");
    for scenario in ["eap-aka-prime", "eap-failures", "eap-out-of-sync"] {
        scenario_succeeds_with("nr", scenario, &[method]);
    }
    let runs: [&[&str]; 2] = [&["--scenario", "eap-aka-prime", "--kill-nf", "5/s"], &["--chain", "sba"]];
    for arguments in runs {
        let line = ["demo", "--ues", "40", "--rate", "20"];
        let output = Command::new(VIREO).args(line).args(arguments).envs([method]).output().unwrap();
        if refused(&output.stderr) {
            return;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// All cases of one dialect: a RAN node and a UE that each break one rule, beside others that are
/// served.
#[test]
fn misbehaving_nodes_get_their_answers() {
    for rat in ["nr", "eps"] {
        // Each case has subscribers of its own.
        let line = ["demo", "--ues", "100", "--rat", rat, "--scenario", "bad-input"];
        let output = Command::new(VIREO).args(line).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(refused(&output.stderr) || output.status.success(), "{rat}: {text}{errors}");
    }
}

#[test]
fn emulate_lists_sixty_scenarios() {
    let output = Command::new(VIREO).args(["emulate", "--list"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.lines().count() >= 60, "{text}");
}
