use super::*;
use vireo_wire::pfcp::{Cause, MessageType};

/// Returns the downlink tunnel of the last session modification among the outputs: the TEID, or 0 =
/// buffer.
fn downlink_teid(out: &[Output]) -> Option<u32> {
    let pfcp = |o: &Output| if let Output::Pfcp { message, .. } = o { Some(message.clone()) } else { None };
    let octets = out.iter().filter_map(pfcp).next_back()?;
    let message = pfcp::Message::new(&octets).expect("a PFCP message");
    assert_eq!((message.message_type(), message.seid()), (MessageType::SESSION_MODIFICATION_REQUEST, UP_SEID));
    let far: pfcp::UpdateFar = message.need().expect("an Update FAR");
    let action = far.apply_action.expect("an action");
    match far.update_forwarding_parameters {
        Some(to) if action == pfcp::ApplyAction::FORW => to.outer_header_creation.and_then(|h| h.teid).map(|t| t.0),
        None if action == pfcp::ApplyAction::BUFF | pfcp::ApplyAction::NOCP => Some(0),
        other => panic!("{action:?} {other:?}"),
    }
}

#[test]
fn idle_session_buffers_and_reactivates() {
    let mut bench = Bench::active();
    assert_eq!(downlink_teid(&bench.step(Input::Deactivate)), Some(0));
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.sm().summary().state, SessionState::Inactive);
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    assert_eq!(downlink_teid(&bench.ran_up(0x777)), Some(0x777));
    assert_eq!(bench.modified(), [Output::Activated]);
    assert_eq!(bench.sm().summary().state, SessionState::Active);
}

#[test]
fn refused_activation_leaves_session_buffering() {
    let mut bench = Bench::inactive();
    bench.step(Input::Activate);
    assert_eq!(bench.step(Input::N2(N2Sm::SetupUnsuccessful, &[0, 0])), []);
    assert_eq!((bench.sm().summary().state, deadline(bench.sm())), (SessionState::Inactive, None));
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
}

/// The UPF reports one packet while it buffers. After a set-up that fails with its connection, it
/// must report the next one.
#[test]
fn interrupted_setup_reports_packets_again() {
    let mut bench = Bench::inactive();
    bench.step(Input::Activate);
    assert_eq!(downlink_teid(&bench.step(Input::Deactivate)), Some(0));
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.step(Input::Deactivate), [], "it is idle already");
}

#[test]
fn late_ran_is_heard_and_silent_ran_asked_again() {
    let mut bench = Bench::inactive();
    bench.step(Input::Activate);
    assert_eq!(bench.step(Input::Activate), [], "it is asked already");
    bench.wait(bench.config.timers.ran_response);
    assert_eq!(bench.step(Input::Deadline), []);
    assert_eq!(deadline(bench.sm()), None);
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    bench.wait(bench.config.timers.ran_response);
    bench.step(Input::Deadline);
    assert_eq!(downlink_teid(&bench.ran_up(0x9)), Some(9));
}

#[test]
fn response_without_tunnel_is_undone_at_ran() {
    let mut bench = Bench::inactive();
    bench.step(Input::Activate);
    assert_eq!(brief(&bench.step(Input::N2(N2Sm::SetupResponse, &[0xff]))), "ReleaseCommand");
    assert_eq!(bench.step(Input::Activate), [], "first the RAN has to drop it");
    assert_eq!(brief(&bench.step(Input::N2(N2Sm::ReleaseResponse, &[0]))), "SetupRequest");
}

#[test]
fn concurrent_requests_serialise_and_last_wins() {
    let mut bench = Bench::active();
    assert_eq!(downlink_teid(&bench.step(Input::Deactivate)), Some(0));
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    assert_eq!(bench.ran_up(0x300), [], "the buffering is not answered yet");
    bench.step(Input::Deactivate);
    bench.step(Input::Activate);
    assert_eq!(bench.ran_up(0x301), []);
    assert_eq!(downlink_teid(&bench.modified()), Some(0x301));
    assert_eq!(bench.modified(), [Output::Activated]);
}

#[test]
fn repeated_activation_takes_new_tunnel() {
    let mut bench = Bench::active();
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    assert_eq!(bench.ran_up(0x201), [Output::Activated], "the UPF forwards there already");
    bench.step(Input::Activate);
    assert_eq!(downlink_teid(&bench.ran_up(0x202)), Some(0x202));
}

#[test]
fn downlink_data_pages_and_is_acknowledged() {
    let mut bench = Bench::inactive();
    let report = report(&bench, pfcp::ReportType::DLDR, None);
    let out = bench.step(Input::Pfcp(&report));
    assert_eq!(brief(&out), "report-response downlinkdata");
    let [Output::Pfcp { message, .. }, _] = out.as_slice() else { panic!("{out:?}") };
    let response = pfcp::Message::new(message).expect("a PFCP message");
    assert_eq!((response.seid(), response.sequence()), (UP_SEID, 0x00ab_cdef));
    assert_eq!(response.need::<Cause>(), Ok(Cause::REQUEST_ACCEPTED));
    bench.step(Input::Activate);
    assert_eq!(brief(&bench.step(Input::Pfcp(&report))), "report-response", "it is on its way back");
}

/// TS 23.527 5.3.2: the UPF buffers, and the RAN releases its part of the session (TS 23.502
/// 4.3.7).
#[test]
fn lost_tunnel_is_buffered_and_released() {
    let mut bench = Bench::active();
    let other = report(&bench, pfcp::ReportType::ERIR, Some(0x999));
    assert_eq!(brief(&bench.step(Input::Pfcp(&other))), "report-response");
    let this = report(&bench, pfcp::ReportType::ERIR, Some(0x201));
    let out = bench.step(Input::Pfcp(&this));
    assert_eq!(brief(&out), "report-response modification-request ReleaseCommand");
    assert_eq!(downlink_teid(&out), Some(0));
    assert_eq!(brief(&bench.step(Input::Pfcp(&this))), "report-response", "it is known");
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.step(Input::N2(N2Sm::ReleaseResponse, &[0])), []);
    assert_eq!(bench.sm().summary().state, SessionState::Inactive);
    let data = report(&bench, pfcp::ReportType::DLDR, None);
    assert_eq!(brief(&bench.step(Input::Pfcp(&data))), "report-response downlinkdata");
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    assert_eq!(downlink_teid(&bench.ran_up(0x202)), Some(0x202));
    assert_eq!(bench.modified(), [Output::Activated]);
}

/// A packet that arrives during the release at the RAN reactivates the user plane afterwards, or
/// pages a UE that has left.
#[test]
fn data_in_release_of_lost_tunnel_activates() {
    let lost = || {
        let mut bench = Bench::active();
        let this = report(&bench, pfcp::ReportType::ERIR, Some(0x201));
        bench.step(Input::Pfcp(&this));
        bench.modified();
        let data = report(&bench, pfcp::ReportType::DLDR, None);
        assert_eq!(brief(&bench.step(Input::Pfcp(&data))), "report-response");
        bench
    };
    let mut bench = lost();
    assert_eq!(brief(&bench.step(Input::N2(N2Sm::ReleaseResponse, &[0]))), "SetupRequest");
    let mut bench = lost();
    bench.wait(bench.config.timers.ran_response);
    assert_eq!(brief(&bench.step(Input::Deadline)), "SetupRequest", "the RAN is silent");
    let mut bench = lost();
    assert_eq!(brief(&bench.step(Input::Deactivate)), "downlinkdata");
    assert_eq!(bench.sm().ran, RanState::Idle);
}

/// A setup in progress is completed first: it results in another tunnel.
#[test]
fn lost_tunnel_leaves_running_set_up() {
    let mut bench = Bench::active();
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    let this = report(&bench, pfcp::ReportType::ERIR, Some(0x201));
    let out = bench.step(Input::Pfcp(&this));
    assert_eq!((brief(&out), downlink_teid(&out)), ("report-response modification-request".into(), Some(0)));
    assert_eq!(bench.modified(), []);
    assert_eq!(downlink_teid(&bench.ran_up(0x202)), Some(0x202));
    assert_eq!(bench.modified(), [Output::Activated]);
}

/// For an idle UE nothing is sent to the RAN, and a downlink packet causes paging.
#[test]
fn lost_tunnel_of_idle_ue_changes_nothing() {
    let mut bench = Bench::inactive();
    let late = report(&bench, pfcp::ReportType::ERIR, Some(0x201));
    assert_eq!(brief(&bench.step(Input::Pfcp(&late))), "report-response");
    let data = report(&bench, pfcp::ReportType::DLDR, None);
    assert_eq!(brief(&bench.step(Input::Pfcp(&data))), "report-response downlinkdata");
}

/// The UE has its new session even if the tunnel is lost before the UPF has answered.
#[test]
fn lost_tunnel_of_new_session_leaves_session() {
    let mut bench = Bench::new();
    bench.create(REQUEST);
    bench.established();
    bench.ran_up(0x201);
    let this = report(&bench, pfcp::ReportType::ERIR, Some(0x201));
    assert_eq!(brief(&bench.step(Input::Pfcp(&this))), "report-response ReleaseCommand");
    assert_eq!(downlink_teid(&bench.modified()), Some(0));
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.step(Input::N2(N2Sm::ReleaseResponse, &[0])), []);
    let data = report(&bench, pfcp::ReportType::DLDR, None);
    assert_eq!(brief(&bench.step(Input::Pfcp(&data))), "report-response downlinkdata");
    // A session that is being released causes no paging.
    let mut bench = Bench::active();
    bench.n1("2e0507d1");
    assert_eq!(brief(&bench.step(Input::Pfcp(&this))), "report-response");
}

fn report(bench: &Bench, kind: pfcp::ReportType, error: Option<u32>) -> Vec<u8> {
    use pfcp::Element;
    let mut octets = Vec::new();
    let seid = Some(bench.sm().pfcp.cp_seid.0);
    let mut message = pfcp::Builder::new(&mut octets, MessageType::SESSION_REPORT_REQUEST, seid, 0x00ab_cdef);
    message.put(&kind);
    if let Some(teid) = error {
        message.group(pfcp::ErrorIndicationReport::ID, |report| {
            report.put(&pfcp::FTeid::new(Teid(teid), Ipv4Addr::new(10, 3, 0, 2).into()));
        });
    }
    message.finish().expect("a short message");
    octets
}

#[test]
fn restarted_upf_gets_session_again() {
    // Idle UE: only the UPF receives a message.
    let mut bench = Bench::inactive();
    assert_eq!(brief(&bench.step(Input::UpfLost)), "establishment-request");
    assert_eq!(bench.established(), []);
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest");
    // A UE that reconnects meanwhile waits for the new tunnel.
    let mut bench = Bench::inactive();
    bench.step(Input::UpfLost);
    assert_eq!(bench.step(Input::Activate), []);
    assert_eq!(brief(&bench.established()), "SetupRequest");
    // With user plane: the RAN must learn the new tunnel, in either order of the answers.
    for upf_first in [true, false] {
        let mut bench = Bench::active();
        assert_eq!(brief(&bench.step(Input::UpfLost)), "ReleaseCommand establishment-request");
        if upf_first {
            assert_eq!(bench.established(), []);
            assert_eq!(brief(&bench.step(Input::N2(N2Sm::ReleaseResponse, &[0]))), "SetupRequest");
        } else {
            assert_eq!(bench.step(Input::N2(N2Sm::ReleaseResponse, &[0])), []);
            assert_eq!(brief(&bench.established()), "SetupRequest");
        }
        assert_eq!(downlink_teid(&bench.ran_up(0x205)), Some(0x205));
        assert_eq!(bench.modified(), [Output::Activated]);
    }
    // A RAN that does not answer the release receives the setup regardless.
    let mut bench = Bench::active();
    bench.step(Input::UpfLost);
    bench.established();
    bench.wait(bench.config.timers.ran_response);
    assert_eq!(brief(&bench.step(Input::Deadline)), "SetupRequest");
}

#[test]
fn lost_upf_ends_session() {
    let mut bench = Bench::active();
    bench.step(Input::UpfLost);
    assert_eq!(brief(&bench.step(Input::PfcpTimeout)), "release/0#39");
    assert_eq!(brief(&bench.n1("2e0500d4")), "free released");
    // During the release and before the UE has its answer.
    let mut bench = Bench::active();
    bench.n1("2e0507d1");
    assert_eq!(bench.step(Input::UpfLost), []);
    assert_eq!(brief(&bench.n1("2e0507d4")), "free released");
    let mut bench = Bench::new();
    bench.create(REQUEST);
    assert_eq!(brief(&bench.step(Input::UpfLost)), "establishment-request");
    bench.established();
    assert_eq!(brief(&bench.step(Input::UpfLost)), "release/0#39 ReleaseCommand");
}

#[test]
fn disobedient_upf_is_asked_again_or_left() {
    let kind = MessageType::SESSION_MODIFICATION_RESPONSE;
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    let out = bench.upf(kind, Cause::SESSION_CONTEXT_NOT_FOUND);
    assert_eq!(brief(&out), "establishment-request", "it has forgotten the session");
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    assert_eq!(brief(&bench.upf(kind, Cause::RULE_FAILURE)), "release/0#38 deletion-request");
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    assert_eq!(brief(&bench.step(Input::PfcpTimeout)), "release/0#39 deletion-request");
}

#[test]
fn foreign_messages_are_ignored() {
    let mut bench = Bench::active();
    bench.step(Input::Deactivate);
    let before = bench.sm().clone();
    let mut of_another = bench.upf_message(MessageType::SESSION_MODIFICATION_RESPONSE, Cause::REQUEST_ACCEPTED);
    pfcp::set_seid(&mut of_another, bench.sm().pfcp.cp_seid.0 ^ 1);
    assert_eq!(bench.step(Input::Pfcp(&of_another)), []);
    assert_eq!(bench.established(), []);
    assert_eq!(bench.deleted(), []);
    for octets in [&b""[..], b"\x21\x35\x00\x0c", &[0xff; 40]] {
        assert_eq!(bench.step(Input::Pfcp(octets)), []);
    }
    assert_eq!(*bench.sm(), before);
    assert_eq!(bench.modified(), []);
    assert_eq!(bench.step(Input::PfcpTimeout), [], "nothing is outstanding");
    assert_eq!(bench.step(Input::N2(N2Sm::ReleaseResponse, &[0])), []);
}
