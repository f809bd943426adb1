//! UPF report of a lost RAN tunnel (TS 23.527 5.3.2, TS 23.502 4.3.7).

use crate::lab::{Lab, pfcp_report};
use crate::sba::{idle as idle_with_smf, stages, transferred, with_session};
use vireo_core::amf::context::RemoteStage;
use vireo_core::amf::engine::Event;
use vireo_core::sba::N1N2TransferResult;
use vireo_core::smf::{Input, N2Sm, RanState, SmContext};
use vireo_emulator::gnb;
use vireo_emulator::ue::{self, Event as UeEvent};
use vireo_types::*;
use vireo_wire::ngap::{Cause, CauseRadioNetwork, NgapPduKind};
use vireo_wire::pfcp::{self, Element, ReportType};

/// Encodes the report of an Error Indication for this tunnel of the session.
fn error_indication(sm: &SmContext, teid: Teid) -> Vec<u8> {
    let address = sm.downlink.map_or([127, 0, 0, 2].into(), |tunnel| tunnel.address);
    pfcp_report(sm.pfcp.cp_seid, ReportType::ERIR, |report| {
        report.group(pfcp::ErrorIndicationReport::ID, |error| {
            error.put(&pfcp::FTeid::new(teid, address));
        });
    })
}

fn packet(sm: &SmContext) -> Vec<u8> {
    pfcp_report(sm.pfcp.cp_seid, ReportType::DLDR, |report| {
        report.group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
    })
}

fn session(lab: &Lab) -> SmContext {
    lab.context().expect("a context").sessions.remove(0)
}

fn reported(lab: &mut Lab, message: &[u8]) {
    let seid = session(lab).pfcp.cp_seid;
    lab.event(Event::Pfcp { seid, message });
}

/// Returns the number of tunnels that the UE's gNB has for it.
fn tunnels(lab: &Lab) -> usize {
    lab.ran.map_or(0, |ran| lab.gnbs[lab.at].tunnels(ran).len())
}

fn pages(lab: &Lab) -> usize {
    lab.gnb_events.iter().filter(|event| matches!(event, gnb::Event::Paging(_))).count()
}

fn with_one() -> (Lab, Teid) {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    let teid = session(&lab).downlink.expect("a tunnel").teid;
    (lab, teid)
}

#[test]
fn lost_tunnel_connected_is_released_by_n2() {
    let (mut lab, teid) = with_one();
    let report = error_indication(&session(&lab), teid);
    reported(&mut lab, &report);
    assert_eq!(tunnels(&lab), 1, "the gNB has not heard of it");
    lab.settle();
    let sm = session(&lab);
    assert_eq!((tunnels(&lab), sm.ran, sm.downlink), (0, RanState::Idle, None));
    assert!(lab.ran.is_some() && pages(&lab) == 0, "the UE stays connected");
    let data = packet(&sm);
    reported(&mut lab, &data);
    lab.settle();
    let sm = session(&lab);
    assert_eq!((tunnels(&lab), sm.ran, pages(&lab)), (1, RanState::Up, 0));
    assert!(sm.downlink.is_some(), "the UPF forwards");
}

#[test]
fn lost_tunnel_idle_says_nothing_until_data() {
    let (mut lab, teid) = with_one();
    lab.idle();
    let (before, report) = (lab.sent.len(), error_indication(&session(&lab), teid));
    reported(&mut lab, &report);
    lab.wait(Duration::from_secs(60));
    assert_eq!((lab.sent.len(), session(&lab).ran), (before, RanState::Idle), "nothing goes to the RAN");
    let data = packet(&session(&lab));
    reported(&mut lab, &data);
    lab.settle();
    assert!(pages(&lab) > 0 && session(&lab).downlink.is_some(), "it is paged, and has its packet");
}

/// The UE goes idle during the release by the RAN, and a packet has arrived in the meantime.
#[test]
fn lost_tunnel_with_data_pages_released_ue() {
    let (mut lab, teid) = with_one();
    let (report, data) = (error_indication(&session(&lab), teid), packet(&session(&lab)));
    lab.reachable = false;
    reported(&mut lab, &report);
    reported(&mut lab, &data);
    lab.settle();
    lab.reachable = true;
    assert_eq!(session(&lab).ran, RanState::Releasing { then_setup: true });
    let inactive = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
    lab.gnb_does(|gnb, ran, out| gnb.request_release(ran, inactive, out).expect("a request"));
    assert!(pages(&lab) > 0 && session(&lab).downlink.is_some(), "it is paged, and has its packet");
}

/// The UE has left the gNB unnoticed and connects at another one: the set-up in progress allocates
/// a tunnel there.
#[test]
fn lost_tunnel_waits_for_service_request() {
    let (mut lab, teid) = with_one();
    let (report, before) = (error_indication(&session(&lab), teid), session(&lab).downlink);
    lab.forget_connection();
    lab.at = 1;
    lab.ue.connection_released();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let late = std::mem::take(&mut lab.late);
    assert_eq!((late.len(), session(&lab).ran), (1, RanState::SettingUp));
    let sent = lab.sent.len();
    reported(&mut lab, &report);
    lab.settle();
    assert_eq!((lab.sent.len(), session(&lab).ran), (sent, RanState::SettingUp), "nothing goes to the RAN");
    lab.slow = None;
    late.into_iter().for_each(|(n, pdu)| lab.take_from_gnb(n, &pdu));
    lab.settle();
    let sm = session(&lab);
    assert_eq!((sm.ran, tunnels(&lab)), (RanState::Up, 1));
    assert!(sm.downlink.is_some() && sm.downlink != before);
    // A late report of the old gNB is about no tunnel in use.
    reported(&mut lab, &report);
    lab.settle();
    assert_eq!((session(&lab).ran, tunnels(&lab)), (RanState::Up, 1));
}

/// A tunnel of the source that is lost during a handover is replaced by the target's, or released
/// if the handover fails.
#[test]
fn lost_tunnel_in_handover_is_replaced() {
    for arrives in [true, false] {
        let (mut lab, teid) = with_one();
        lab.arrives = false;
        lab.n2(2);
        assert!(session(&lab).handover.target.is_some(), "the target is ready");
        let report = error_indication(&session(&lab), teid);
        reported(&mut lab, &report);
        lab.settle();
        assert_eq!((session(&lab).ran, session(&lab).downlink), (RanState::Up, None), "it waits for the handover");
        if arrives {
            lab.arrive();
            let sm = session(&lab);
            assert!(sm.ran == RanState::Up && sm.downlink.is_some_and(|tunnel| tunnel.teid != teid));
        } else {
            lab.gnb_does(|gnb, ran, out| gnb.cancel_handover(ran, out).expect("a message"));
            assert_eq!((session(&lab).ran, tunnels(&lab)), (RanState::Idle, 0));
        }
    }
}

/// In SBA mode the SMF does not know whether the UE is connected.
#[test]
fn lost_tunnel_of_smf_elsewhere_is_released() {
    let (mut lab, mut smf) = with_session();
    let (name, report) = (smf.sessions[0].0.clone(), {
        let sm = &smf.sessions[0].1;
        error_indication(sm, sm.downlink.expect("a tunnel").teid)
    });
    let (content, _) = smf.update(&lab, &name, Input::Pfcp(&report)).expect("a session");
    assert!(matches!((&content.n1, &content.n2), (None, Some((N2Sm::ReleaseCommand, _)))), "{content:?}");
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    assert_eq!(transferred(&lab), Some(N1N2TransferResult::Initiated));
    lab.settle();
    smf.serve(&mut lab);
    assert_eq!((tunnels(&lab), smf.sessions[0].1.ran), (0, RanState::Idle));
    assert_eq!((stages(&lab), pages(&lab)), (vec![(RemoteStage::Established, false)], 0));
    let (content, _) = smf.update(&lab, &name, Input::Activate).expect("a session");
    let transfer = smf.transfer(5, content);
    lab.event(Event::Transfer(transfer));
    lab.settle();
    smf.serve(&mut lab);
    assert_eq!((tunnels(&lab), smf.sessions[0].1.ran), (1, RanState::Up));
}

/// For an idle UE no such message goes to the RAN, and the UE is not paged. The SMF learns this
/// from the result of the transfer.
#[test]
fn lost_tunnel_of_idle_ue_is_said_to_smf() {
    let release = |lab: &mut Lab, smf: &mut crate::sba::Smf| {
        let content = vireo_core::sba::N1N2Content { n1: None, n2: Some((N2Sm::ReleaseCommand, vec![0])) };
        let (before, transfer) = (lab.sent.len(), smf.transfer(5, content));
        lab.event(Event::Transfer(transfer));
        lab.settle();
        assert_eq!((transferred(lab), lab.sent.len(), pages(lab)), (Some(N1N2TransferResult::Idle), before, 0));
        assert!(lab.context().is_some_and(|c| c.pending.sessions == 0 && c.procedure.is_none()));
    };
    let (mut lab, mut smf) = idle_with_smf();
    release(&mut lab, &mut smf);
    // The same applies to a connected UE without user plane.
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Signalling, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.events.contains(&UeEvent::ServiceAccepted) && tunnels(&lab) == 0);
    release(&mut lab, &mut smf);
}
