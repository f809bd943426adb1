//! E-RABs that an eNB loses or does not set up, while the UE keeps its bearers or ends them.

use super::network::{Network, TUNNEL};
use super::{attached, pdus, succeeded};
use crate::lab::pfcp_report;
use vireo_core::amf::engine::Event;
use vireo_core::smf::RanState;
use vireo_core::step::Kind;
use vireo_types::Duration;
use vireo_wire::nas_eps::{NasEmmMessage, NasEsmMessage, UpdateType};
use vireo_wire::pfcp::{self, Element};
use vireo_wire::s1ap::{Cause, CauseTransport, S1AP_PDU, S1apPduKind as Pdu, ie};

/// Returns a network whose UE has two PDN connections.
fn with_two() -> Network {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
    network
}

/// Returns the EPS bearer identities with the state at the eNB.
fn sessions(network: &Network) -> Vec<(u8, RanState)> {
    let context = network.context().expect("a context");
    context.sessions.iter().filter(|s| s.is_live()).map(|s| (s.id(), s.ran)).collect()
}

/// Reports that the eNB of the first session has answered a packet with an Error Indication.
fn lose_tunnel(network: &mut Network) {
    let session = network.context().expect("a context").sessions[0].clone();
    let tunnel = session.downlink.expect("a tunnel");
    let report = pfcp_report(session.pfcp.cp_seid, pfcp::ReportType::ERIR, |report| {
        report.group(pfcp::ErrorIndicationReport::ID, |error| {
            error.put(&pfcp::FTeid::new(tunnel.teid, tunnel.address));
        });
    });
    network.event(Event::Pfcp { seid: session.pfcp.cp_seid, message: &report });
    network.settle();
}

fn count(network: &Network, kind: Pdu) -> usize {
    network.kinds.iter().filter(|sent| **sent == kind).count()
}

/// The UE would end a bearer whose radio bearer is released. It becomes idle, and the next packet
/// pages it (TS 23.401 5.3.4.3).
#[test]
fn lost_tunnel_releases_ue_with_bearers() {
    let mut network = with_two();
    lose_tunnel(&mut network);
    assert_eq!((network.mme_id, count(&network, Pdu::Initiating_E_RABRelease)), (None, 0));
    let release = S1AP_PDU::decode_borrowed(&network.sent.last().expect("a PDU").1).expect("a PDU");
    let cause = release.ie::<ie::Cause>().map(|cause| cause.expect("a cause"));
    assert_eq!(cause, Some(Cause::transport(CauseTransport::transport_resource_unavailable)));
    assert_eq!(sessions(&network), [(5, RanState::Idle), (6, RanState::Idle)]);
    assert_eq!(count(&network, Pdu::Initiating_Paging), 0, "the packet was lost");
    network.downlink_data();
    assert_eq!(count(&network, Pdu::Initiating_Paging), 1);
    network.service_request();
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
    assert_eq!((network.tunnel(), succeeded(&network, Kind::Paging)), (Some(TUNNEL), 1));
    assert_eq!(count(&network, Pdu::Initiating_E_RABSetup), 1, "that of the second connection");
}

/// The eNB gets all bearers with the UE context. E-RAB SETUP REQUEST has a NAS message (TS 36.413
/// 9.1.3.1), and none is due for a bearer that the UE has.
#[test]
fn update_after_page_sets_up_all_bearers() {
    let mut network = with_two();
    network.idle();
    network.downlink_data();
    assert_eq!(count(&network, Pdu::Initiating_Paging), 1);
    network.update(UpdateType::TaUpdating);
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(_)), "{:?}", network.notes);
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
    assert_eq!(count(&network, Pdu::Initiating_E_RABSetup), 1, "that of the second connection");
}

/// A bearer that the eNB lacks, while it has another one.
#[test]
fn packet_of_bearer_without_erab_renews_context() {
    let mut network = with_two();
    let contexts = count(&network, Pdu::Initiating_InitialContextSetup);
    network.change(|ue| (ue.sessions[0].ran, ue.sessions[0].downlink) = (RanState::Idle, None));
    network.downlink_data();
    assert_eq!((network.mme_id, count(&network, Pdu::Initiating_UEContextRelease)), (None, 1));
    assert_eq!(count(&network, Pdu::Initiating_Paging), 1);
    network.service_request();
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
    assert_eq!(network.tunnel(), Some(TUNNEL));
    assert_eq!(count(&network, Pdu::Initiating_InitialContextSetup), contexts + 1);
    assert_eq!(count(&network, Pdu::Initiating_E_RABSetup), 1, "that of the second connection");
}

/// The eNB does not answer, and a packet arrives meanwhile.
#[test]
fn packet_pages_ue_after_its_release() {
    let mut network = with_two();
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.enb_releases = false;
    lose_tunnel(&mut network);
    network.downlink_data();
    let releasing = RanState::Releasing { then_setup: true };
    assert_eq!(sessions(&network), [(5, releasing), (6, RanState::Up)]);
    assert_eq!(count(&network, Pdu::Initiating_Paging), 0);
    network.enb_releases = true;
    network.complete_release(0, ids);
    assert_eq!((count(&network, Pdu::Initiating_Paging), count(&network, Pdu::Initiating_UEContextRelease)), (1, 1));
    network.service_request();
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
}

/// A handover replaces the tunnel. If it is cancelled, the source releases the UE afterwards.
#[test]
fn lost_tunnel_in_handover_waits() {
    let mut network = with_two();
    network.set_up_enb(1);
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.take_from_enb(&pdus::required(ids, 0x12346, true));
    let target = network.sent.iter().rev().find(|(enb, _)| *enb == 1).expect("a request").1.clone();
    let request = S1AP_PDU::decode_borrowed(&target).expect("a PDU");
    let mme = request.ie::<ie::MME_UE_S1AP_ID>().expect("an IE").expect("an ID").0;
    network.take_from(1, &pdus::acknowledge(mme, &[5, 6]));
    lose_tunnel(&mut network);
    assert_eq!(count(&network, Pdu::Initiating_UEContextRelease), 0);
    network.take_from_enb(&pdus::cancel(ids));
    network.wait(network.config.timers.ran_response);
    assert_eq!((network.mme_id, sessions(&network)), (None, vec![(5, RanState::Idle), (6, RanState::Idle)]));
    network.service_request();
    assert_eq!(network.tunnel(), Some(TUNNEL));
}

/// The tunnels of a UPF that has restarted differ: the UE comes back for them.
#[test]
fn restarted_upf_pages_released_ue() {
    let mut network = with_two();
    let upf = network.context().expect("a context").sessions[0].pfcp.upf;
    network.event(Event::UpfLost { upf });
    network.settle();
    assert_eq!((network.mme_id, count(&network, Pdu::Initiating_E_RABRelease)), (None, 0));
    assert!(count(&network, Pdu::Initiating_Paging) > 0);
    network.service_request();
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
    assert_eq!(network.tunnel(), Some(TUNNEL));
}

/// UE and network end a bearer that a service request does not bring back (TS 24.301 5.6.1.4.1).
#[test]
fn bearer_without_erab_ends() {
    let mut network = with_two();
    network.idle();
    network.refused_erab = Some(6);
    network.service_request();
    assert_eq!(sessions(&network), [(5, RanState::Up)]);
    assert!(!matches!(network.ue.esm.last(), Some(NasEsmMessage::DeactivateEpsBearerContextRequest(_))));
    assert!(network.context().is_some_and(|c| c.is_registered()));
    network.refused_erab = None;
    network.connect(3, Some("ims"));
    assert_eq!(sessions(&network), [(5, RanState::Up), (6, RanState::Up)]);
}

/// The UE has not confirmed the bearer before it becomes idle: the network does not keep it.
#[test]
fn unconfirmed_bearer_ends_with_connection() {
    let mut network = attached();
    network.subscribe("ims");
    network.ue.remaining = Some(0);
    network.connect(2, Some("ims"));
    network.idle();
    assert_eq!(sessions(&network), [(5, RanState::Idle)]);
    network.ue.remaining = None;
    network.service_request();
    assert_eq!(sessions(&network), [(5, RanState::Up)]);
    network.wait(Duration::from_secs(60));
    assert!(network.context().is_some_and(|c| c.sessions.len() == 1));
}
