use super::*;

/// PDU Session Release Request and Complete of PSI 5, PTI 7; Complete for the network's own command
/// (PTI 0).
const RELEASE: &str = "2e0507d1";
const COMPLETE: &str = "2e0507d4";
const COMPLETE_OF_NETWORK: &str = "2e0500d4";

#[test]
fn ue_release_completes_in_either_order() {
    for upf_first in [true, false] {
        let mut bench = Bench::active();
        assert_eq!(brief(&bench.n1(RELEASE)), "release/7#36 ReleaseCommand deletion-request");
        assert_eq!(bench.sm().summary().state, SessionState::Releasing);
        assert_eq!(bench.step(Input::N2(N2Sm::ReleaseResponse, &[0])), []);
        if upf_first {
            assert_eq!(bench.deleted(), []);
            assert_eq!(brief(&bench.n1(COMPLETE)), "free released");
        } else {
            assert_eq!(bench.n1(COMPLETE), []);
            assert_eq!(brief(&bench.deleted()), "free released");
        }
        assert_eq!(bench.sm, None);
    }
}

#[test]
fn network_release_with_cause_spares_idle_ran() {
    let mut bench = Bench::active();
    assert_eq!(brief(&bench.step(Input::Release(39))), "release/0#39 ReleaseCommand deletion-request");
    assert_eq!(bench.step(Input::Release(36)), [], "one release is enough");
    bench.deleted();
    assert_eq!(brief(&bench.n1(COMPLETE_OF_NETWORK)), "free released");
    assert_eq!(brief(&Bench::inactive().step(Input::Release(39))), "release/0#39 deletion-request");
}

#[test]
fn deregistered_ue_session_ends_silently() {
    for mut bench in [Bench::active(), Bench::inactive()] {
        assert_eq!(brief(&bench.step(Input::ReleaseLocally)), "deletion-request");
        assert_eq!(bench.step(Input::ReleaseLocally), []);
        assert_eq!(brief(&bench.deleted()), "free released");
    }
    // While the command is unanswered, and when the UPF has answered already.
    let mut bench = Bench::active();
    bench.n1(RELEASE);
    bench.deleted();
    assert_eq!(brief(&bench.step(Input::ReleaseLocally)), "free released");
}

#[test]
fn release_command_repeats_until_given_up() {
    let mut bench = Bench::active();
    bench.n1(RELEASE);
    bench.deleted();
    let t3592 = bench.config.timers.t3592;
    for _ in 0..4 {
        assert_eq!(deadline(bench.sm()), Some(bench.now + t3592));
        assert_eq!(bench.step(Input::Deadline), [], "not yet due");
        bench.wait(t3592);
        assert_eq!(brief(&bench.step(Input::Deadline)), "release/7#36");
    }
    bench.wait(t3592);
    assert_eq!(brief(&bench.step(Input::Deadline)), "free released");
}

#[test]
fn repeated_release_request_repeats_command() {
    let mut bench = Bench::active();
    bench.n1(RELEASE);
    assert_eq!(brief(&bench.n1(RELEASE)), "release/7#36");
    // Both sides release at once: the network's release continues (TS 24.501 6.4.3.6).
    let mut bench = Bench::active();
    bench.step(Input::Release(26));
    assert_eq!(bench.n1(RELEASE), []);
}

#[test]
fn silent_upf_does_not_delay_release() {
    let mut bench = Bench::active();
    bench.n1(RELEASE);
    assert_eq!(bench.step(Input::PfcpTimeout), []);
    assert_eq!(brief(&bench.n1(COMPLETE)), "free released");
}

#[test]
fn release_waits_for_outstanding_pfcp_request() {
    // Establishment: the session cannot be deleted before the UPF has sent its SEID.
    let mut bench = Bench::new();
    bench.create(REQUEST);
    assert_eq!(brief(&bench.step(Input::Release(38))), "reject/1#38");
    assert_eq!(brief(&bench.established()), "deletion-request");
    assert_eq!(brief(&bench.deleted()), "free released");
    // Modification that is outstanding.
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    assert_eq!(bench.step(Input::ReleaseLocally), []);
    assert_eq!(brief(&bench.modified()), "deletion-request");
    assert_eq!(brief(&bench.deleted()), "free released");
    // Modification that the UPF does not answer.
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    bench.n1(RELEASE);
    assert_eq!(brief(&bench.step(Input::PfcpTimeout)), "deletion-request");
}

#[test]
fn released_session_ignores_messages() {
    let mut bench = Bench::active();
    bench.n1(RELEASE);
    assert_eq!(bench.step(Input::Activate), []);
    assert_eq!(bench.ran_up(0x202), []);
    assert_eq!(bench.step(Input::Deactivate), []);
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.n1("2e0508c9"), [], "a modification while the release goes on");
}

#[test]
fn message_in_wrong_state_gets_clause_7_answer() {
    let cases = [
        (RELEASE, "release/7#36 ReleaseCommand deletion-request"),
        ("2e0500d1", "status/0#81"),
        ("2e0500c9", "status/0#81"),
        ("2e0500c1ffff91", "status/0#81"),
        ("2e0509c1ffff91", "status/9#98"),
        (COMPLETE, "status/7#47"),
        ("2e0500cc", "status/0#47"),
        ("2e0500cd1f", "status/0#47"),
        ("2e0507c6000401020004", "status/7#98"),
        // Inner identity of another session.
        ("2e0607d1", "status/7#43"),
        ("2e0607d65f", ""),
        // Messages of the network's direction, and an unknown one.
        ("2e0507c31a", "status/7#97"),
        ("2e0507d324", "status/7#97"),
        ("2e0507ff", "status/7#97"),
        // Missing mandatory IEs.
        ("2e0507d6", "status/7#96"),
        ("2e0500cd", "status/0#96"),
        // Too short, reserved PTI, another protocol.
        ("2e0507", ""),
        ("2e05ffd1", ""),
        ("7e0041", ""),
        ("", ""),
    ];
    for (octets, expected) in cases {
        assert_eq!(brief(&Bench::active().n1(octets)), expected, "{octets}");
    }
    // A reserved identity is answered under that identity.
    assert_eq!(Bench::active().n1("2e1007d1"), [Output::N1(vec![0x2e, 0x10, 0x07, 0xd2, 0x2b])]);
}

#[test]
fn ue_modification_is_rejected_with_cause() {
    let cases = [
        // Nothing; a valid rule; a rule with a reserved operation; one that exceeds the IE.
        ("2e0508c9", "modification-reject/8#32"),
        ("2e0508c97a000902000621320101ff02", "modification-reject/8#37"),
        ("2e0508c97a0009020006e1320101ff02", "modification-reject/8#84"),
        ("2e0508c97a000902000f21320101ff02", "modification-reject/8#84"),
        // Flow description with a 5QI.
        ("2e0508c9790006022041010101", "modification-reject/8#37"),
    ];
    for (octets, expected) in cases {
        assert_eq!(brief(&Bench::active().n1(octets)), expected, "{octets}");
    }
    let mut bench = Bench::new();
    bench.create(REQUEST);
    assert_eq!(brief(&bench.n1("2e0508c9")), "status/8#98");
    assert_eq!(brief(&bench.n1(RELEASE)), "status/7#98");
}

/// TS 24.501 6.4.2.1, 6.4.2.3: what a UE of EPS indicates after its first move, under its PTI.
#[test]
fn indications_of_ue_are_confirmed() {
    let mut bench = Bench::active();
    // 5GSM capability; always-on requested and no integrity protection of user data; DNS server
    // requested.
    for (octets, expected) in [
        ("2e0508c9280100", "2e0508cb"),
        ("2e0508c9b1130000", "2e0508cb81"),
        ("2e0508c97b000480000d00", "2e0508cb7b000880000d0408080808"),
    ] {
        assert_eq!(bench.n1(octets), [Output::N1(hex::decode(expected).expect("hex"))], "{octets}");
        // T3581: the same answer; PDU SESSION MODIFICATION COMPLETE.
        assert_eq!(bench.n1(octets).len(), 1);
        assert_eq!(bench.n1("2e0508cc"), []);
    }
    assert_eq!((bench.sm().always_on, bench.sm().integrity_rate), (true, 0));
    // A rule beside it is refused, and changes nothing.
    assert_eq!(brief(&bench.n1("2e0508c913ffff7a000902000621320101ff02")), "modification-reject/8#37");
    assert_eq!(bench.sm().integrity_rate, 0);
    // The command is rejected: the session stays, unless the UE does not have it (#43).
    assert_eq!(bench.n1("2e0508cd1a"), []);
    assert_eq!(brief(&bench.n1("2e0508cd2b")), "ReleaseCommand deletion-request");
}

/// The UE aborts its own procedure (TS 24.501 6.3.2.5).
#[test]
fn modification_by_network_precedes_request() {
    let mut bench = Bench::active();
    let to = DnnSubscription { five_qi: 6, ..DnnSubscription::default() };
    bench.step(Input::ChangeTerms(&to));
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0 ModifyRequest");
    assert_eq!(bench.n1("2e0508c9280100"), []);
    assert_eq!(bench.n1("2e0500cc"), [Output::Modified(bench.now)]);
    assert_eq!(brief(&bench.n1("2e0508c9280100")), "command/8");
}

#[test]
fn status_ends_its_procedure() {
    // Status for the release command: the UE has no such session.
    for cause in ["2b", "2f", "51", "60", "61"] {
        let mut bench = Bench::active();
        bench.n1(RELEASE);
        bench.deleted();
        assert_eq!(brief(&bench.n1(&format!("2e0507d6{cause}"))), "free released", "{cause}");
    }
    // Status for another transaction, or with a cause that does not concern the session.
    for status in ["2e0508d62f", "2e0507d65f", "2e0507d66f"] {
        let mut bench = Bench::active();
        bench.n1(RELEASE);
        assert_eq!(bench.n1(status), [], "{status}");
        assert!(deadline(bench.sm()).is_some());
    }
    // Status for no particular message.
    assert_eq!(brief(&Bench::active().n1("2e0500d62b")), "ReleaseCommand deletion-request");
    assert_eq!(brief(&Bench::inactive().n1("2e0500d62b")), "deletion-request");
    assert_eq!(Bench::active().n1("2e0501d660"), []);
    // Status for the accept, which the UE could not decode.
    let mut bench = Bench::new();
    bench.create(REQUEST);
    bench.established();
    assert_eq!(brief(&bench.n1("2e0501d660")), "release/0#111 ReleaseCommand deletion-request");
}
