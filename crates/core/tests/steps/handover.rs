//! Xn and N2 handover against the emulator's UE and two gNBs.
//!
//! Success; loss of a session, the target or the UE; cancellation.

use crate::lab::{self, ASSOC, Lab};
use std::net::{IpAddr, Ipv4Addr};
use vireo_core::amf::context::{NextHop, NextHopChain, UeContext};
use vireo_core::amf::engine::Event;
use vireo_core::smf::RanState;
use vireo_core::step::{Kind, Note};
use vireo_emulator::gnb::{self, Outbox};
use vireo_emulator::ue;
use vireo_types::*;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, *};
use vireo_wire::pfcp;

const TARGET: AssocId = AssocId(ASSOC.0 + 1);

/// Returns a connected UE with these sessions at gNB 0.
fn connected(sessions: &[u8]) -> Lab {
    let mut lab = Lab::new();
    lab.register();
    for psi in sessions {
        lab.session(*psi);
    }
    lab
}

fn count(lab: &Lab, f: fn(&Note) -> bool) -> usize {
    lab.notes.iter().filter(|n| f(n)).count()
}

/// Returns how many handovers and path switches succeeded and failed.
fn outcomes(lab: &Lab) -> (usize, usize) {
    (
        count(lab, |n| matches!(n, Note::Succeeded(Kind::Handover | Kind::PathSwitch, _))),
        count(lab, |n| matches!(n, Note::Failed(Kind::Handover | Kind::PathSwitch, _))),
    )
}

fn kinds(lab: &Lab) -> Vec<NgapPduKind> {
    lab.sent.iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind()).collect()
}

fn sends(lab: &Lab, kind: NgapPduKind) -> bool {
    kinds(lab).contains(&kind)
}

/// Asserts that the UE is at gNB `n`, that its sessions' downlink goes there, and that the old path
/// was ended.
fn is_at(lab: &Lab, n: usize, sessions: &[u8]) {
    let context = lab.context().expect("a context");
    let connection = context.connection.expect("it is connected");
    assert_eq!((connection.assoc, Some(connection.ran_id)), (AssocId(ASSOC.0 + n as u32), lab.ran));
    assert_eq!(connection.tai.tac, Tac(1 + n as u32));
    assert!(context.handover.is_none());
    let up: Vec<_> = context.sessions.iter().filter(|s| s.ran == RanState::Up).map(|s| s.psi).collect();
    assert_eq!(up, sessions);
    let n3 = IpAddr::from(Ipv4Addr::new(127, 0, 0, 2 + n as u8));
    for session in &context.sessions {
        let tunnels = lab.gnbs[n].tunnels(connection.ran_id);
        let own = tunnels.iter().find(|t| t.psi == session.psi).expect("a tunnel");
        assert_eq!(session.downlink.map(|t| (t.address, t.teid)), Some((n3, own.downlink)));
        assert_eq!(Some(own.uplink), session.uplink.map(|t| t.teid));
    }
}

fn end_markers(lab: &Lab) -> usize {
    // PFCPSMReq-Flags (type 49, length 1) with SNDEM.
    lab.pfcp.iter().filter(|m| m.windows(5).any(|w| w == [0, 49, 0, 1, 2])).count()
}

/// Returns the {NH, NCC} that was sent to the RAN last.
fn next_hop(context: &UeContext) -> Option<NextHop> {
    match context.security.as_ref()?.next_hop? {
        NextHopChain::KGnb(_) => None,
        NextHopChain::At(last) => Some(last),
    }
}

const ALL: (u8, u8) = (0xf0, 0x70);

#[test]
fn xn_handover_works_in_both_directions() {
    let mut lab = connected(&[1, 2]);
    let before = lab.context().and_then(|c| c.connection).expect("it is connected").amf_id;
    for (n, ncc) in [(1, 2), (0, 3), (1, 4)] {
        lab.xn(ALL, |_| true);
        is_at(&lab, n, &[1, 2]);
        let context = lab.context().expect("a context");
        assert_eq!(context.connection.map(|c| c.amf_id), Some(before), "the AMF's number stays");
        assert_eq!(next_hop(&context).map(|n| n.ncc), Some(ncc));
    }
    assert_eq!((outcomes(&lab), end_markers(&lab)), ((3, 0), 6));
    // The UE is served at its new gNB.
    lab.ue_does(|ue, _, out| ue.release(2, out).expect("a request"));
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    is_at(&lab, 1, &[1]);
}

/// The chaining counter has 3 bits and wraps after 7; the NH chain does not (TS 33.501 6.9.2.1.1).
#[test]
fn connection_survives_chaining_counter_wrap() {
    let mut lab = connected(&[1]);
    for hop in 2..20 {
        lab.xn(ALL, |_| true);
        let next_hop = lab.context().as_ref().and_then(next_hop);
        assert_eq!(next_hop.map(|n| n.ncc), Some(hop & 7), "hop {hop}, whose key the UE has compared with its own");
    }
    assert_eq!(outcomes(&lab), (18, 0));
}

/// Messages of different associations are not ordered: a message that the UE sent before it moved
/// may arrive after the path switch.
#[test]
fn uplink_before_path_switch_is_processed() {
    let mut lab = connected(&[1, 2]);
    let (source, connection) = (lab.at, lab.context().and_then(|c| c.connection).expect("it is connected"));
    let mut out = ue::UeOutput::default();
    lab.ue.release(2, &mut out).expect("a request");
    lab.upf_answers = false;
    lab.xn(ALL, |_| true);
    for nas in out.messages() {
        let late = lab::uplink_nas(connection.amf_id, connection.ran_id, nas);
        lab.take_from_gnb(source, &late);
    }
    lab.upf_catches_up();
    assert_eq!(outcomes(&lab), (1, 0));
    assert_eq!(count(&lab, |note| matches!(note, Note::Fault(_))), 0, "{:?}", lab.notes);
    is_at(&lab, 1, &[1]);
    assert_eq!(lab.context().expect("a context").sessions.len(), 1, "the session is released");
}

/// The UE may be handed over as soon as the gNB has set up its context or session. The path switch
/// may overtake the gNB's response.
#[test]
fn path_switch_before_source_answer_is_served() {
    let late = |lab: &mut Lab| {
        lab.slow = None;
        for (n, pdu) in std::mem::take(&mut lab.late) {
            lab.take_from_gnb(n, &pdu);
        }
        lab.settle();
    };
    for upf_answers in [true, false] {
        let mut lab = connected(&[1, 2]);
        lab.idle();
        lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
        lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
        assert_eq!(lab.late.len(), 1);
        lab.upf_answers = upf_answers;
        lab.xn(ALL, |_| true);
        late(&mut lab);
        lab.upf_catches_up();
        is_at(&lab, 1, &[1, 2]);
        assert_eq!((outcomes(&lab), end_markers(&lab)), ((1, 0), 0), "there was no path to the source");
        assert_eq!(count(&lab, |n| matches!(n, Note::Succeeded(Kind::ServiceRequest, _))), 1);
        assert_eq!(count(&lab, |n| matches!(n, Note::Failed(..))), 0, "{:?}", lab.notes);

        // Repeats this for a further session at the current gNB, and for one that is not handed
        // over.
        for psi in [3, 4] {
            lab.slow = Some(NgapPduKind::Successful_PDUSessionResourceSetup);
            lab.ue_does(|ue, p, out| ue.establish(p, psi, PduSessionType::Ipv4, out).expect("a request"));
            assert_eq!(lab.late.len(), 1);
            lab.upf_answers = upf_answers;
            lab.xn(ALL, |_| true);
            late(&mut lab);
            lab.upf_catches_up();
        }
        is_at(&lab, 1, &[1, 2, 3, 4]);
        assert_eq!(outcomes(&lab), (3, 0));
    }
}

#[test]
fn path_switch_answer_waits_for_upf() {
    let mut lab = connected(&[1]);
    lab.upf_answers = false;
    lab.xn(ALL, |_| true);
    assert!(!sends(&lab, NgapPduKind::Successful_PathSwitchRequest));
    let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
    // The UPF never responds: the session is ended, and with it the path switch.
    lab.upf_answers = true;
    lab.event(Event::PfcpTimeout { seid });
    lab.settle();
    assert!(sends(&lab, NgapPduKind::Unsuccessful_PathSwitchRequest));
    assert_eq!(outcomes(&lab), (0, 1));
    assert!(lab.context().is_some_and(|c| c.connection.is_none() && c.is_registered() && c.handover.is_none()));
}

#[test]
fn unaccepted_session_is_released() {
    let mut lab = connected(&[1, 2]);
    lab.xn(ALL, |psi| psi == 2);
    assert_eq!(outcomes(&lab), (1, 0));
    assert!(lab.events.contains(&ue::Event::SessionReleased { psi: 1 }), "{:?}", lab.events);
    is_at(&lab, 1, &[2]);
}

#[test]
fn path_switch_without_known_session_is_refused() {
    let mut lab = connected(&[1]);
    let before = lab.context();
    let ran = lab.ran.expect("a connection");
    let mut handed = lab.gnbs[0].handover_context(ran, ALL).expect("a UE");
    handed.tunnels[0].psi = 9;
    let mut out = Outbox::default();
    lab.gnbs[1].path_switch(handed.clone(), |_| true, &mut out).expect("a request");
    handed.core_id += 1;
    lab.gnbs[1].path_switch(handed, |_| true, &mut out).expect("a request");
    lab.bring_to_core(1, &out);
    lab.settle();
    assert!(sends(&lab, NgapPduKind::Unsuccessful_PathSwitchRequest));
    let released = |event: &vireo_emulator::gnb::Event| matches!(event, vireo_emulator::gnb::Event::Released { .. });
    assert_eq!(lab.gnb_events.iter().filter(|event| released(event)).count(), 1, "the one that has asked for nothing");
    let after = lab.context().map(|mut c| {
        c.sequence = before.as_ref().map_or(0, |b| b.sequence);
        c
    });
    assert_eq!(after, before, "and nothing changed");
}

/// The last of two tunnels would be that of the UE.
#[test]
fn path_switch_naming_session_twice_is_refused() {
    let mut lab = connected(&[1]);
    let before = lab.context();
    let mut handed = lab.gnbs[0].handover_context(lab.ran.expect("a connection"), ALL).expect("a UE");
    let first = handed.tunnels[0];
    handed.tunnels.push(first);
    let mut out = Outbox::default();
    lab.gnbs[1].path_switch(handed, |_| true, &mut out).expect("a request");
    lab.bring_to_core(1, &out);
    lab.settle();
    assert!(sends(&lab, NgapPduKind::Unsuccessful_PathSwitchRequest));
    let after = lab.context().map(|mut c| {
        c.sequence = before.as_ref().map_or(0, |b| b.sequence);
        c
    });
    assert_eq!(after, before, "and nothing changed");
}

#[test]
fn other_security_capabilities_are_put_right() {
    let mut lab = connected(&[1]);
    lab.xn((0x80, 0x70), |_| true);
    assert!(lab.notes.contains(&Note::fault("security-capability-mismatch")));
    let answer = lab.sent.iter().rev().find_map(|pdu| {
        let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
        (pdu.kind() == NgapPduKind::Successful_PathSwitchRequest)
            .then(|| pdu.ie::<vireo_wire::ngap::ie::UESecurityCapabilities>().is_some_and(|c| c.is_ok()))
    });
    assert_eq!(answer, Some(true));

    // The algorithms of E-UTRA, which an ng-eNB uses.
    let mut lab = connected(&[1]);
    let mut handed = lab.gnbs[0].handover_context(lab.ran.expect("a connection"), ALL).expect("a UE");
    handed.eutra_capability = (0x40, 0x40);
    let mut out = Outbox::default();
    lab.gnbs[1].path_switch(handed, |_| true, &mut out).expect("a request");
    lab.bring_to_core(1, &out);
    assert!(lab.notes.contains(&Note::fault("security-capability-mismatch")), "{:?}", lab.notes);
}

#[test]
fn n2_handover_works_in_both_directions() {
    let mut lab = connected(&[1, 2]);
    let first = lab.context().and_then(|c| c.connection).expect("it is connected").amf_id;
    lab.n2(2);
    is_at(&lab, 1, &[1, 2]);
    assert_ne!(lab.context().and_then(|c| c.connection).map(|c| c.amf_id), Some(first), "a number of its own");
    assert_eq!(lab.gnbs[0].connected(), 0, "the source has let it go");
    let transfers = lab.gnb_events.iter().filter(|e| matches!(e, gnb::Event::StatusTransfer { .. })).count();
    lab.n2(1);
    is_at(&lab, 0, &[1, 2]);
    assert_eq!((outcomes(&lab), end_markers(&lab), transfers), ((2, 0), 4, 1));
    assert_eq!(lab.context().as_ref().and_then(next_hop).map(|n| n.ncc), Some(3));
    lab.ue_does(|ue, p, out| ue.deregister(p, false, out).expect("a request"));
    assert!(lab.context().is_some_and(|c| !c.is_registered() && c.connection.is_none()));
}

#[test]
fn handover_to_unusable_target_fails() {
    let mut lab = connected(&[1]);
    lab.n2(77);
    assert!(sends(&lab, NgapPduKind::Unsuccessful_HandoverPreparation));
    is_at(&lab, 0, &[1]);
    lab.gnbs[1].refuse_handover(true);
    lab.n2(2);
    let refused = lab.gnb_events.iter().filter(|e| matches!(e, gnb::Event::HandoverRefused { .. })).count();
    assert_eq!((refused, outcomes(&lab)), (2, (0, 2)));
    is_at(&lab, 0, &[1]);
    // The next handover works.
    lab.gnbs[1].refuse_handover(false);
    lab.n2(2);
    is_at(&lab, 1, &[1]);
}

#[test]
fn cancelled_handover_leaves_ue_at_source() {
    let mut lab = connected(&[1]);
    lab.arrives = false;
    lab.n2(2);
    assert_eq!(lab.gnbs[1].connected(), 1, "the target is prepared");
    lab.gnb_does(|gnb, ran, out| gnb.cancel_handover(ran, out).expect("a request"));
    assert!(lab.gnb_events.iter().any(|e| matches!(e, gnb::Event::HandoverCancelled { .. })));
    assert_eq!((lab.gnbs[1].connected(), outcomes(&lab)), (0, (0, 1)));
    is_at(&lab, 0, &[1]);
}

#[test]
fn missing_ue_is_awaited_ten_seconds() {
    let mut lab = connected(&[1]);
    lab.arrives = false;
    lab.n2(2);
    lab.wait(Duration::from_secs(9));
    assert!(lab.context().is_some_and(|c| c.handover.is_some()));
    lab.wait(Duration::from_secs(2));
    assert_eq!((lab.gnbs[1].connected(), outcomes(&lab)), (0, (0, 1)));
    is_at(&lab, 0, &[1]);
}

#[test]
fn silent_target_is_given_up() {
    let mut lab = connected(&[1]);
    lab.reachable = false;
    lab.n2(2);
    lab.wait(Duration::from_secs(11));
    assert!(sends(&lab, NgapPduKind::Unsuccessful_HandoverPreparation));
    assert!(lab.context().is_some_and(|c| c.handover.is_none() && c.connection.is_some_and(|c| c.assoc == ASSOC)));
}

#[test]
fn association_loss_at_either_side_ends_handover() {
    for lost in [ASSOC, TARGET] {
        let mut lab = connected(&[1]);
        lab.arrives = false;
        lab.n2(2);
        lab.event(Event::ConnectionLost { assoc: lost });
        lab.settle();
        let context = lab.context().expect("a context");
        assert!(context.handover.is_none() && context.sessions[0].handover.target.is_none() && context.is_registered());
        assert_eq!(context.connection.is_some(), lost == TARGET);
        assert_eq!(outcomes(&lab), (0, 1));
    }
    // The source releases the UE that it has commanded to the target.
    let mut lab = connected(&[1]);
    lab.arrives = false;
    lab.n2(2);
    let cause = Cause::radioNetwork(CauseRadioNetwork::tngrelocoverall_expiry);
    lab.gnb_does(|gnb, ran, out| gnb.request_release(ran, cause, out).expect("a request"));
    assert!(lab.context().is_some_and(|c| c.handover.is_none() && c.connection.is_none()));
    assert_eq!(lab.gnbs[1].connected(), 0);
}

#[test]
fn activation_without_old_path_has_no_end_marker() {
    let lab = connected(&[1]);
    assert_eq!(end_markers(&lab), 0);
    assert!(lab.pfcp.iter().all(|m| pfcp::Message::new(m).is_ok()));
}

/// Returns a UE after an N2 handover without a response of the UPF: the source still has it.
fn waiting_for_the_upf() -> Lab {
    let mut lab = connected(&[1]);
    lab.arrives = false;
    lab.n2(2);
    lab.upf_answers = false;
    lab.arrive();
    assert!(lab.context().is_some_and(|c| c.source.is_some() && c.connection.is_some_and(|c| c.assoc == TARGET)));
    assert_eq!((lab.gnbs[0].connected(), outcomes(&lab)), (1, (1, 0)));
    lab
}

#[test]
fn source_release_waits_for_upf_switch() {
    let mut lab = waiting_for_the_upf();
    lab.upf_catches_up();
    is_at(&lab, 1, &[1]);
    assert!(lab.context().is_some_and(|c| c.source.is_none()));
    assert_eq!(lab.gnbs[0].connected(), 0);
    // The source is released after the time limit, too.
    let mut lab = waiting_for_the_upf();
    lab.wait(Duration::from_secs(9));
    assert_eq!(lab.gnbs[0].connected(), 1);
    lab.wait(Duration::from_secs(2));
    assert_eq!(lab.gnbs[0].connected(), 0);
    assert!(lab.context().is_some_and(|c| c.source.is_none()));
}

#[test]
fn silent_source_is_reset() {
    let mut lab = waiting_for_the_upf();
    lab.reachable = false;
    lab.upf_catches_up();
    assert!(lab.context().is_some_and(|c| c.source.is_some()));
    lab.wait(Duration::from_secs(11));
    assert!(sends(&lab, NgapPduKind::Initiating_NGReset) && lab.notes.contains(&Note::fault("release-timeout")));
    is_at(&lab, 1, &[1]);
    // A source without an association is not waited for.
    let mut lab = waiting_for_the_upf();
    lab.event(Event::ConnectionLost { assoc: ASSOC });
    lab.upf_catches_up();
    assert!(!sends(&lab, NgapPduKind::Initiating_UEContextRelease));
    is_at(&lab, 1, &[1]);
}

#[test]
fn source_message_after_handover_is_ignored() {
    let mut lab = waiting_for_the_upf();
    let source = lab.context().and_then(|c| c.source).expect("a source").connection;
    let (amf_id, ran_id) = (source.amf_id, source.ran_id);
    let counts = DRBStatusUL12::new(COUNTValueForPDCPSN12::new(1, 0, None), None, None);
    let bearer = DRBsSubjectToStatusTransferItem::new(
        DRBID(1),
        DRBStatusUL::dRBStatusUL12(counts),
        DRBStatusDL::dRBStatusDL12(DRBStatusDL12::new(COUNTValueForPDCPSN12::new(1, 0, None), None)),
        None,
    );
    let status = RANStatusTransferTransparentContainer::new(DRBsSubjectToStatusTransferList(vec![bearer]), None);
    let late = build_ngap!(
        InitiatingMessage,
        UplinkRANStatusTransfer,
        UplinkRANStatusTransfer,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        RANStatusTransfer_TransparentContainer(status),
    );
    let (sent, notes) = (lab.sent.len(), lab.notes.len());
    lab.take_from_gnb(0, &late.and_then(|pdu| pdu.encode()).expect("it encodes"));
    assert_eq!((lab.sent.len(), lab.notes.len()), (sent, notes));
    // A late cancellation is answered and has no effect.
    let cancel = build_ngap!(
        InitiatingMessage,
        HandoverCancel,
        HandoverCancel,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
    );
    lab.take_from_gnb(0, &cancel.and_then(|pdu| pdu.encode()).expect("it encodes"));
    assert_eq!(kinds(&lab).last(), Some(&NgapPduKind::Successful_HandoverCancel));
    // The RAN-UE-NGAP-ID of another UE does not match the source's.
    let wrong = lab::uplink_nas(amf_id, RanUeNgapId(ran_id.0 + 1), &[0x7e, 0, 0x64, 0x16]);
    lab.take_from_gnb(0, &wrong);
    assert_eq!(kinds(&lab).last(), Some(&NgapPduKind::Initiating_ErrorIndication));
    lab.upf_catches_up();
    is_at(&lab, 1, &[1]);
}

#[test]
fn session_message_in_handover_goes_to_target() {
    let upf = |lab: &Lab| lab.context().expect("a context").sessions[0].pfcp.upf;
    let on_its_way = || {
        let mut lab = connected(&[1]);
        lab.arrives = false;
        lab.n2(2);
        let sent = lab.sent.len();
        let upf = upf(&lab);
        // The UPF allocates another tunnel for the session: the RAN must release and set it up
        // again.
        lab.event(Event::UpfLost { upf });
        lab.settle();
        assert_eq!(lab.sent.len(), sent, "nobody is told yet");
        assert_eq!(lab.context().map(|c| c.deferred.len()), Some(1));
        lab
    };
    let mut lab = on_its_way();
    lab.arrive();
    is_at(&lab, 1, &[1]);
    assert!(sends(&lab, NgapPduKind::Initiating_PDUSessionResourceRelease));
    // The UE does not move: the message goes to the source.
    let mut lab = on_its_way();
    lab.gnb_does(|gnb, ran, out| gnb.cancel_handover(ran, out).expect("a request"));
    is_at(&lab, 0, &[1]);
    // The UE is lost: the message is dropped.
    let mut lab = on_its_way();
    lab.event(Event::ConnectionLost { assoc: ASSOC });
    lab.settle();
    assert!(lab.context().is_some_and(|c| c.deferred.is_empty() && c.connection.is_none() && c.is_registered()));
    // A deregistration by the operator waits until the UE is at a RAN node.
    let mut lab = on_its_way();
    lab.event(Event::Deregister { reregister: false, cause: None });
    assert!(lab.context().is_some_and(|c| c.is_registered()));
    lab.arrive();
    assert!(lab.events.iter().any(|e| matches!(e, ue::Event::DeregisteredByNetwork { .. })), "{:?}", lab.events);
}

#[test]
fn reused_ran_ue_id_ends_older_connection() {
    let mut lab = connected(&[1]);
    let ran_id = lab.context().and_then(|c| c.connection).expect("a connection").ran_id;
    lab.event(Event::RanIdReused { assoc: ASSOC, ran_id: RanUeNgapId(ran_id.0 + 1) });
    lab.event(Event::RanIdReused { assoc: TARGET, ran_id });
    is_at(&lab, 0, &[1]);
    let sent = lab.sent.len();
    lab.event(Event::RanIdReused { assoc: ASSOC, ran_id });
    let context = lab.context().expect("a context");
    assert!(context.connection.is_none() && context.is_registered() && context.sessions[0].ran == RanState::Idle);
    assert_eq!(lab.sent.len(), sent, "the gNB would take it for the new connection");
    // The same UE reconnects with its old RAN-UE-NGAP-ID: the new connection is not released.
    let mut lab = connected(&[1]);
    let pdu =
        lab.received.iter().rev().find(|pdu| {
            NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind() == NgapPduKind::Initiating_InitialUEMessage
        });
    let pdu = pdu.expect("its first message").clone();
    let sent = lab.sent.len();
    lab.change(|ue| ue.security = None);
    lab.change(|ue| ue.connection.iter_mut().for_each(|c| c.tai.tac = Tac(2)));
    lab.as_known(0, &pdu);
    let released = kinds(&lab)[sent..].contains(&NgapPduKind::Initiating_UEContextRelease);
    assert!(!released && lab.sent.len() > sent);
    // The target of a handover drops the UE: the source is informed.
    let mut lab = connected(&[1]);
    lab.arrives = false;
    lab.n2(2);
    let ran_id = lab.context().and_then(|c| c.handover?.target()?.ran_id).expect("a number");
    lab.event(Event::RanIdReused { assoc: TARGET, ran_id });
    assert!(lab.context().is_some_and(|c| c.handover.is_none() && c.connection.is_some()));
    assert_eq!(outcomes(&lab), (0, 1));
}

/// A host may execute a recalled input again (docs/internals/cluster.md, migration), and a gNB may
/// repeat its message: the target applies no status twice.
#[test]
fn repeated_status_transfer_is_relayed_once() {
    let mut lab = connected(&[1]);
    lab.arrives = false;
    lab.n2(2);
    let is_status = |pdu: &&Vec<u8>| {
        NGAP_PDU::decode_borrowed(pdu).is_ok_and(|pdu| pdu.kind() == NgapPduKind::Initiating_UplinkRANStatusTransfer)
    };
    let status = lab.received.iter().find(is_status).cloned().expect("a status transfer");
    let relayed = |lab: &Lab| {
        kinds(lab).into_iter().filter(|kind| *kind == NgapPduKind::Initiating_DownlinkRANStatusTransfer).count()
    };
    assert_eq!(relayed(&lab), 1);
    lab.take_from_gnb(0, &status);
    assert_eq!(relayed(&lab), 1);
    assert!(lab.notes.contains(&Note::fault("handover-out-of-place")));
    lab.arrive();
    is_at(&lab, 1, &[1]);
    // The status of the next handover is another one.
    lab.arrives = true;
    lab.n2(1);
    assert_eq!((relayed(&lab), outcomes(&lab)), (2, (2, 0)));
}
