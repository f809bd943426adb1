use super::*;
use crate::subscription::Ambr;

/// PDU Session Modification Complete, and Command Reject with cause #43 and #26, of PSI 5 without
/// PTI.
const COMPLETE: &str = "2e0500cc";
const REJECT_UNKNOWN: &str = "2e0500cd2b";
const REJECT: &str = "2e0500cd1a";

fn subscribed(mbps: u64, five_qi: u8) -> DnnSubscription {
    let ambr = Ambr { uplink_bps: mbps * 1_000_000, downlink_bps: 2 * mbps * 1_000_000 };
    DnnSubscription { ambr, five_qi, arp_priority: 3, ..DnnSubscription::default() }
}

/// Returns the octets of a message as pycrate encodes it, in hexadecimal digits.
fn golden(name: &str) -> String {
    hex::encode(crate::golden::nr(name))
}

/// Has the subscription of the session changed, with a connected UE.
fn change(bench: &mut Bench, to: &DnnSubscription) -> (String, String) {
    let first = brief(&bench.step(Input::ChangeTerms(to)));
    (first, brief(&bench.step(Input::Connected)))
}

#[test]
fn changed_terms_reach_upf_ran_and_ue() {
    for upf_first in [true, false] {
        let mut bench = Bench::active();
        let to = subscribed(5, 7);
        let out = bench.step(Input::ChangeTerms(&to));
        let [Output::Pfcp { message, .. }] = &out[..] else { panic!("{out:?}") };
        let message = pfcp::Message::new(message).expect("a message");
        let update = message.ies().map_while(Result::ok).find(|ie| ie.id == <pfcp::UpdateQer as pfcp::Element>::ID);
        let update: pfcp::UpdateQer = update.expect("a QER").read().expect("it decodes");
        assert_eq!(update.qer_id, pfcp::QerId(1));
        assert_eq!(update.mbr, Some(pfcp::Mbr { uplink_kbps: 5_000, downlink_kbps: 10_000 }));
        let out = bench.step(Input::Connected);
        assert_eq!(brief(&out), "command/0 ModifyRequest");
        let [(5, 0, Nas5gsmMessage::PduSessionModificationCommand(command))] = &nas(&out)[..] else { panic!() };
        let ambr = command.session_ambr.as_ref().expect("a rate");
        assert_eq!((ambr.downlink_kbps(), ambr.uplink_kbps()), (Some(10_000), Some(5_000)));
        // Modify (3), all parameters replaced, 5QI 7, EPS bearer identity 8.
        let flow = command.authorized_qos_flow_descriptions.as_ref().map(|flow| flow.value.to_vec());
        let alone = vec![1, 0x60, 0x41, 1, 1, 7];
        let mapped = vec![1, 0x60, 0x42, 1, 1, 7, 7, 1, 0x80];
        assert_eq!(flow, Some(if bench.config.eps.interworks { mapped } else { alone }));
        let (Some(Output::N1(n1)), Some(Output::N2(_, transfer))) = (out.first(), out.get(1)) else {
            panic!("{out:?}")
        };
        if !bench.config.eps.interworks {
            assert_eq!(hex::encode(n1), golden("PDUSessionModificationCommand"));
        }
        assert!(golden("PDUSessionResourceModifyRequest").contains(&hex::encode(transfer)));
        let transfer: PDUSessionResourceModifyRequestTransfer<'_> = decode_open_type(transfer).expect("a transfer");
        let rate = transfer.ie::<ie::PDUSessionAggregateMaximumBitRate>().expect("an IE").expect("a rate");
        assert_eq!(rate.pdu_session_aggregate_maximum_bit_rate_dl.0, 10_000_000);
        let flows = transfer.ie::<ie::QosFlowAddOrModifyRequestList>().expect("an IE").expect("flows");
        assert_eq!(flows.0[0].qos_flow_identifier.0, 1);
        let [first, second] = match upf_first {
            true => [bench.modified(), bench.n1(COMPLETE)],
            false => [bench.n1(COMPLETE), bench.modified()],
        };
        assert_eq!((brief(&first), second), (String::new(), vec![Output::Modified(bench.now)]));
        assert_eq!(bench.sm().terms.change, None);
        assert_eq!((bench.sm().terms.ambr, bench.sm().terms.five_qi), (to.ambr, 7));
        assert_eq!(brief(&bench.n1(COMPLETE)), "status/0#47", "there is no procedure");
    }
}

#[test]
fn equal_terms_change_nothing() {
    let mut bench = Bench::active();
    assert_eq!(change(&mut bench, &DnnSubscription::default()), (String::new(), String::new()));
}

/// A default flow is non-GBR (TS 23.501 5.7.2.7): the session keeps its 5QI.
#[test]
fn change_to_gbr_flow_keeps_5qi() {
    let mut bench = Bench::active();
    let to = DnnSubscription { five_qi: 1, ..DnnSubscription::default() };
    assert_eq!(change(&mut bench, &to), (String::new(), String::new()));
    change(&mut bench, &subscribed(5, 82));
    assert_eq!((bench.sm().terms.five_qi, bench.sm().terms.ambr.uplink_bps), (9, 5_000_000));
}

#[test]
fn class_alone_needs_no_upf() {
    let mut bench = Bench::active();
    let to = DnnSubscription { five_qi: 6, ..DnnSubscription::default() };
    assert_eq!(change(&mut bench, &to), (String::new(), "command/0 ModifyRequest".into()));
    assert_eq!(bench.n1(COMPLETE), [Output::Modified(bench.now)]);
}

#[test]
fn modification_command_repeats_four_times() {
    let mut bench = Bench::active();
    change(&mut bench, &subscribed(5, 9));
    bench.modified();
    let t3591 = bench.config.timers.t3592;
    for _ in 0..4 {
        assert_eq!(deadline(bench.sm()), Some(bench.now + t3591));
        assert_eq!(bench.step(Input::Deadline), [], "not yet due");
        bench.wait(t3591);
        assert_eq!(brief(&bench.step(Input::Deadline)), "command/0");
    }
    bench.wait(t3591);
    assert_eq!(bench.step(Input::Deadline), [Output::NotModified(0)]);
    assert_eq!((bench.sm().terms.change, bench.sm().is_up()), (None, true), "the session keeps the new terms");
}

#[test]
fn idle_session_is_modified_on_connection() {
    let mut bench = Bench::inactive();
    assert_eq!(brief(&bench.step(Input::ChangeTerms(&subscribed(5, 9)))), "modification-request");
    assert_eq!(bench.modified(), []);
    assert_eq!(brief(&bench.step(Input::Activate)), "SetupRequest", "the RAN gets the new terms");
    assert_eq!(bench.step(Input::Connected), [], "the set-up comes first");
    bench.ran_up(0x202);
    bench.modified();
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0 ModifyRequest");
    // A connection that ends before the answer, and the next one.
    bench.step(Input::Deactivate);
    assert_eq!(deadline(bench.sm()), None);
    bench.modified();
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0");
    assert_eq!(bench.n1(COMPLETE), [Output::Modified(bench.now)]);
}

#[test]
fn rejected_modification_keeps_session() {
    let mut bench = Bench::active();
    change(&mut bench, &subscribed(5, 9));
    bench.modified();
    assert_eq!(bench.n1(REJECT), [Output::NotModified(26)]);
    assert!(bench.sm().is_up() && bench.sm().terms.change.is_none());
    // #43: the UE does not have the session.
    change(&mut bench, &subscribed(6, 9));
    bench.modified();
    assert_eq!(brief(&bench.n1(REJECT_UNKNOWN)), "notmodified(43) ReleaseCommand deletion-request");
}

/// Returns the rate of the last PFCP request among the outputs, in kbit/s upwards.
fn rate(out: &[Output]) -> Option<u64> {
    let mut requests = out.iter().filter_map(|output| match output {
        Output::Pfcp { message, .. } => Some(pfcp::Message::new(message).expect("a message")),
        _ => None,
    });
    let qer =
        requests.next_back()?.ies().map_while(Result::ok).find(|ie| ie.id == <pfcp::UpdateQer as pfcp::Element>::ID);
    let qer: pfcp::UpdateQer = qer?.read().expect("it decodes");
    qer.mbr.map(|mbr| mbr.uplink_kbps)
}

fn refuse(bench: &mut Bench) -> Vec<Output> {
    bench.step(Input::N2(N2Sm::ModifyUnsuccessful, &[]))
}

#[test]
fn refusal_of_ran_restores_former_terms() {
    let mut bench = Bench::active();
    let before = bench.sm().terms.clone();
    change(&mut bench, &subscribed(5, 7));
    let out = refuse(&mut bench);
    assert_eq!(brief(&out), "notmodified(26)", "the UPF has another request");
    let out = bench.modified();
    assert_eq!((brief(&out).as_str(), rate(&out)), ("modification-request", Some(before.ambr.uplink_bps / 1000)));
    assert_eq!(bench.modified(), []);
    assert_eq!((&bench.sm().terms, bench.sm().is_up()), (&before, true));
    // The UE has not received the command.
    assert_eq!(deadline(bench.sm()), None);
    // The next change is another one.
    change(&mut bench, &subscribed(6, 9));
    bench.modified();
    bench.step(Input::N2(N2Sm::ModifyResponse, &[]));
    assert_eq!(bench.n1(COMPLETE), [Output::Modified(bench.now)]);
}

/// The RAN node has delivered a retransmission, which has no request beside it.
#[test]
fn late_refusal_of_ran_tells_the_ue() {
    let mut bench = Bench::active();
    let before = bench.sm().terms.clone();
    change(&mut bench, &subscribed(5, 7));
    bench.modified();
    bench.wait(bench.config.timers.t3592);
    assert_eq!(brief(&bench.step(Input::Deadline)), "command/0");
    let out = refuse(&mut bench);
    assert_eq!((brief(&out).as_str(), rate(&out)), ("modification-request", Some(before.ambr.uplink_bps / 1000)));
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0 ModifyRequest", "the former terms");
    assert_eq!(bench.modified(), []);
    assert_eq!(refuse(&mut bench), [], "it applies them already");
    assert_eq!(bench.n1(COMPLETE), [Output::NotModified(26)]);
    assert_eq!(bench.sm().terms, before);
}

#[test]
fn refusal_without_known_terms_releases_session() {
    let mut bench = Bench::active();
    change(&mut bench, &subscribed(5, 9));
    bench.modified();
    change(&mut bench, &subscribed(6, 9));
    bench.modified();
    // It accepts the first change, and refuses the second one.
    bench.step(Input::N2(N2Sm::ModifyResponse, &[]));
    bench.n1(COMPLETE);
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0 ModifyRequest");
    assert_eq!(brief(&refuse(&mut bench)), "notmodified(26) release/0#39 ReleaseCommand deletion-request");
}

#[test]
fn refusal_before_later_change_is_void() {
    let mut bench = Bench::active();
    change(&mut bench, &subscribed(5, 9));
    bench.modified();
    change(&mut bench, &subscribed(6, 9));
    bench.modified();
    assert_eq!(refuse(&mut bench), []);
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0 ModifyRequest");
    assert_eq!(bench.n1(COMPLETE), [Output::Modified(bench.now)]);
    assert_eq!(bench.sm().terms.ambr, subscribed(6, 9).ambr);
}

#[test]
fn second_change_waits_for_first_answer() {
    let mut bench = Bench::active();
    change(&mut bench, &subscribed(5, 9));
    assert_eq!(change(&mut bench, &subscribed(6, 9)), (String::new(), String::new()));
    assert_eq!(brief(&bench.modified()), "modification-request", "the later rate");
    assert_eq!(bench.n1(COMPLETE), []);
    assert_eq!(brief(&bench.step(Input::Connected)), "command/0 ModifyRequest");
    bench.modified();
    assert_eq!(bench.n1(COMPLETE), [Output::Modified(bench.now)]);
}

#[test]
fn release_ends_modification() {
    let mut bench = Bench::active();
    change(&mut bench, &subscribed(5, 9));
    bench.step(Input::Release(36));
    assert_eq!(bench.sm().terms.change, None);
    assert_eq!(brief(&bench.n1(COMPLETE)), "status/0#47");
}
