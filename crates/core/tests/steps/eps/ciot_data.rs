//! Control plane CIoT EPS optimisation: packets of a UE over NAS (TS 24.301 5.6.1.4.2, 6.6.4).

use super::network::{EPCO, Network, TUNNEL, emm};
use super::{pdus, succeeded};
use crate::golden::eps as golden;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_core::amf::engine::Event;
use vireo_core::config::CiotConfig;
use vireo_core::smf::DOWNLINK_FAULT;
use vireo_core::step::{Effect, Kind, Note};
use vireo_types::{Duration, Teid, limits};
use vireo_wire::gtpu::{self, Packet, plain_g_pdu_header};
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{S1AP_PDU, S1APPDU, S1apPduKind, ie};

const PACKET: &[u8] = &[0x45, 0, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8];

/// Prefers control plane CIoT EPS optimisation, and supports it.
pub(super) fn prefers_control_plane(request: &mut NasAttachRequest) {
    request.ue_network_capability.set_cp_ciot(true);
    let kind = NasAdditionalUpdateType::from_fields(false, false, PreferredCiotBehavior::ControlPlane);
    request.additional_update_type = Some(kind);
}

/// Returns a network whose UE has attached with its packets over NAS.
fn attached() -> Network {
    let mut network = Network::new();
    network.config.ciot = CiotConfig { without_pdn: true, control_plane: true };
    let mut request = network.attach_request();
    prefers_control_plane(&mut request);
    network.initial_message(&request);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    network
}

fn data(packet: &[u8], assistance: Option<DownlinkDataExpected>) -> NasEsmDataTransport {
    let mut message = NasEsmDataTransport::new(NasUserDataContainer::new(packet.to_vec()));
    message.release_assistance_indication = assistance.map(NasReleaseAssistanceIndication::from_ddx);
    message
}

/// Sends CONTROL PLANE SERVICE REQUEST, with an ESM message if there is one.
fn control_plane_service(network: &mut Network, esm: Option<NasEsmDataTransport>) {
    control_plane_service_of(network, 0, esm);
}

/// As [`control_plane_service`], with this control plane service type (9.9.3.47).
fn control_plane_service_of(network: &mut Network, kind: u8, esm: Option<NasEsmDataTransport>) {
    let key_set = NasKeySetIdentifier::new(network.ue.key_set);
    let mut request = NasControlPlaneServiceRequest::new(NasControlPlaneServiceType::new(kind), key_set);
    let header = match esm {
        Some(esm) => {
            let esm = NasEpsMessage::new_esm(esm, network.ue.ebi, 0).encode().expect("it encodes");
            request.esm_message_container = Some(NasEsmMessageContainer::new(esm));
            NasEpsSecurityHeaderType::IntegrityProtectedAndPartiallyCipheredNasMessage
        }
        None => NasEpsSecurityHeaderType::IntegrityProtected,
    };
    network.protected(&NasEpsMessage::new_emm(request), header);
}

/// Returns the packets that the UPF got for the UE's tunnel, in order.
fn uplink(network: &Network) -> Vec<Vec<u8>> {
    let tunnel = network.context().and_then(|context| context.sessions[0].uplink).expect("a tunnel of the UPF");
    let packets = network.effects.iter().filter_map(|effect| match effect {
        Effect::Pfcp { upf, message, .. } if gtpu::is_g_pdu(message) => Some((*upf, Packet::parse(message))),
        _ => None,
    });
    let to = SocketAddr::new(tunnel.address, gtpu::PORT);
    packets
        .map(|(upf, packet)| {
            let packet = packet.expect("a G-PDU");
            assert_eq!((upf, packet.teid, packet.pdu_session), (to, tunnel.teid, None));
            packet.payload.to_vec()
        })
        .collect()
}

/// Has the UPF send a packet into the tunnel of the UE.
fn send_down(network: &mut Network, teid: Teid, packet: &[u8]) {
    let message = [&plain_g_pdu_header(teid, packet.len()).expect("it fits")[..], packet].concat();
    let seid = teid.session_at_control_plane().expect("a session");
    network.event(Event::Pfcp { seid, message: &message });
    network.settle();
}

/// Returns the packets that the UE has received.
fn downlink(network: &Network) -> Vec<Vec<u8>> {
    let packet = |(ebi, pti, message): &(u8, u8, NasEsmMessage)| match message {
        NasEsmMessage::EsmDataTransport(data) => {
            assert_eq!((*ebi, *pti), (network.ue.ebi, 0));
            Some(data.user_data_container.value.to_vec())
        }
        _ => None,
    };
    network.ue.received_esm.iter().filter_map(packet).collect()
}

/// Returns the TEID to which the UPF forwards.
fn teid(network: &Network) -> Teid {
    let (address, teid) = network.tunnel().expect("a tunnel");
    assert_eq!(address, IpAddr::V4(Ipv4Addr::UNSPECIFIED), "the N4 endpoint sets its address");
    Teid(teid)
}

#[test]
fn attach_over_nas_needs_no_erab() {
    let network = attached();
    let accept = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => Some(accept),
        _ => None,
    });
    let accept = accept.expect("an accept");
    assert_eq!(accept.eps_network_feature_support.as_ref().map(|ie| ie.value.to_vec()), Some(vec![0x80, EPCO]));
    let NasEpsMessage::Esm(_, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(bearer)) =
        NasEpsMessage::decode(&accept.esm_message_container.value).expect("a message")
    else {
        panic!("{accept:?}")
    };
    assert!(bearer.control_plane_only_indication.is_some_and(|indication| indication.cpoi()));
    let context = network.context().expect("a context");
    assert!(context.sessions[0].is_established() && context.procedure.is_none());
    assert_eq!(Some(teid(&network)), context.sessions[0].pfcp.cp_seid.control_plane_teid());
    assert!(!network.kinds.contains(&S1apPduKind::Initiating_InitialContextSetup), "{:?}", network.kinds);
    assert!(network.mme_id.is_some(), "the eNB ends the connection");
}

/// Without the permission, or the preference of the UE, it gets bearers.
#[test]
fn control_plane_needs_ue_and_network() {
    for is_permitted in [false, true] {
        let mut network = Network::new();
        network.config.ciot.control_plane = is_permitted;
        let mut request = network.attach_request();
        request.ue_network_capability.set_cp_ciot(true);
        if !is_permitted {
            prefers_control_plane(&mut request);
        }
        network.initial_message(&request);
        assert_eq!(network.tunnel(), Some(TUNNEL));
        network.send_esm(data(PACKET, None), 5, 0);
        let Some((5, 0, NasEsmMessage::EsmStatus(status))) = network.ue.received_esm.last() else {
            panic!("{:?}", network.ue.received_esm)
        };
        assert_eq!(status.esm_cause.value, 97);
    }
}

#[test]
fn connected_ue_exchanges_packets() {
    let mut network = attached();
    network.send_esm(data(PACKET, None), network.ue.ebi, 0);
    network.send_esm(data(&PACKET[1..], None), network.ue.ebi, 0);
    assert_eq!(uplink(&network), [PACKET, &PACKET[1..]]);
    let teid = teid(&network);
    send_down(&mut network, teid, PACKET);
    send_down(&mut network, teid, &PACKET[2..]);
    assert_eq!(downlink(&network), [PACKET, &PACKET[2..]]);
}

#[test]
fn idle_ue_sends_packet_with_its_request() {
    let mut network = attached();
    network.idle();
    assert_eq!(network.tunnel(), None, "the UPF buffers");
    control_plane_service(&mut network, Some(data(PACKET, None)));
    assert!(matches!(network.last(), NasEmmMessage::ServiceAccept(_)), "{:?} {:?}", network.last(), network.notes);
    assert_eq!(uplink(&network), [PACKET]);
    assert_eq!(succeeded(&network, Kind::ServiceRequest), 1);
    let teid = teid(&network);
    send_down(&mut network, teid, PACKET);
    assert_eq!(downlink(&network), [PACKET]);
}

#[test]
fn packet_for_idle_ue_pages_it() {
    let mut network = attached();
    network.idle();
    network.downlink_data();
    assert_eq!(network.kinds.last(), Some(&S1apPduKind::Initiating_Paging));
    // What the UE sends ends the connection only if nothing is buffered for it.
    control_plane_service(&mut network, Some(data(PACKET, Some(DownlinkDataExpected::NoFurtherData))));
    assert_eq!(succeeded(&network, Kind::Paging), 1);
    let teid = teid(&network);
    send_down(&mut network, teid, PACKET);
    assert_eq!(downlink(&network), [PACKET]);
}

/// The UE says what follows (release assistance indication, 9.9.4.25).
#[test]
fn release_assistance_ends_connection() {
    let mut network = attached();
    network.idle();
    let before = network.effects.len();
    control_plane_service(&mut network, Some(data(PACKET, Some(DownlinkDataExpected::NoFurtherData))));
    assert_eq!((uplink(&network).len(), network.mme_id), (1, None), "{:?}", network.kinds);
    let is_pfcp = |effect: &&Effect| matches!(effect, Effect::Pfcp { message, .. } if !gtpu::is_g_pdu(message));
    assert_eq!(network.effects[before..].iter().filter(is_pfcp).count(), 0, "the UPF keeps buffering");
    control_plane_service(&mut network, Some(data(PACKET, Some(DownlinkDataExpected::SingleDlThenNone))));
    let teid = teid(&network);
    assert!(network.mme_id.is_some());
    send_down(&mut network, teid, PACKET);
    assert_eq!((downlink(&network).len(), network.mme_id), (1, None));
    // A connected UE, too.
    control_plane_service(&mut network, None);
    network.send_esm(data(PACKET, Some(DownlinkDataExpected::NoFurtherData)), network.ue.ebi, 0);
    assert_eq!((uplink(&network).len(), network.mme_id), (3, None));
}

#[test]
fn undeliverable_packets_are_counted() {
    let mut network = attached();
    let own = teid(&network);
    let faults = |network: &Network| network.notes.iter().filter(|note| **note == Note::fault(DOWNLINK_FAULT)).count();
    send_down(&mut network, Teid(own.0 + 1), PACKET);
    send_down(&mut network, own, &[7; limits::USER_DATA_OCTETS + 1]);
    send_down(&mut network, own, &[]);
    network.idle();
    send_down(&mut network, own, PACKET);
    assert_eq!((faults(&network), downlink(&network).len()), (4, 0));
    control_plane_service(&mut network, Some(data(&[7; limits::USER_DATA_OCTETS + 1], None)));
    assert!(network.notes.contains(&Note::fault("limit")));
    network.send_esm(data(&[7; limits::USER_DATA_OCTETS], None), network.ue.ebi, 0);
    assert_eq!(uplink(&network).iter().map(Vec::len).collect::<Vec<_>>(), [limits::USER_DATA_OCTETS]);
    send_down(&mut network, own, &[7; limits::USER_DATA_OCTETS]);
    assert_eq!(downlink(&network).len(), 1);
}

#[test]
fn plain_service_request_is_accepted_over_nas() {
    let mut network = attached();
    network.idle();
    network.service_request();
    assert!(matches!(network.last(), NasEmmMessage::ServiceAccept(_)), "{:?}", network.last());
    teid(&network);
}

#[test]
fn update_keeps_packets_over_nas() {
    let mut network = attached();
    network.idle();
    network.update(UpdateType::PeriodicUpdating);
    assert!(network.mme_id.is_none() && network.tunnel().is_none());
    // The active flag, and a UE that does not prefer it any more: its bearer stays as it is.
    network.update_with(UpdateType::TaUpdating, |request| {
        request.eps_update_type = NasEpsUpdateType::new(0x08);
        request.ue_network_capability = Some(NasUeNetworkCapability::new(super::network::CAPABILITY.to_vec()));
    });
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(_)), "{:?}", network.notes);
    let teid = teid(&network);
    send_down(&mut network, teid, PACKET);
    assert_eq!(downlink(&network), [PACKET]);
    assert!(!network.kinds.contains(&S1apPduKind::Initiating_InitialContextSetup));
}

#[test]
fn bearer_over_nas_ends_and_returns() {
    let mut network = attached();
    network.disconnect(2, network.ue.ebi);
    let last = |network: &Network| network.ue.received_esm.last().map(|(_, pti, message)| (*pti, message.clone()));
    assert!(matches!(last(&network), Some((2, NasEsmMessage::PdnDisconnectReject(_)))), "{:?}", last(&network));
    network.subscribe("ims");
    network.connect(3, Some("ims"));
    assert!(network.context().is_some_and(|c| c.sessions.len() == 2 && c.sessions[1].is_established()));
    network.disconnect(4, 6);
    assert!(network.context().is_some_and(|c| c.sessions.len() == 1), "{:?}", network.notes);
    let erab =
        |kind: &S1apPduKind| matches!(kind, S1apPduKind::Initiating_E_RABSetup | S1apPduKind::Initiating_E_RABRelease);
    assert!(!network.kinds.iter().any(erab), "{:?}", network.kinds);
}

/// A UPF that has restarted gets the session and its tunnel again.
#[test]
fn restarted_upf_forwards_over_nas_again() {
    let mut network = attached();
    let upf = network.config.upfs[0].n4;
    network.event(Event::UpfLost { upf });
    network.settle();
    let teid = teid(&network);
    send_down(&mut network, teid, PACKET);
    assert_eq!(downlink(&network), [PACKET]);
}

#[test]
fn congested_network_backs_off_data_over_nas() {
    let mut network = attached();
    network.idle();
    network.congested = true;
    control_plane_service(&mut network, Some(data(PACKET, None)));
    let NasEmmMessage::ServiceReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert!(reject.emm_cause.value == 22 && reject.t3346_value.is_some());
    assert!(uplink(&network).is_empty() && network.mme_id.is_none());
}

/// Without a UE context the eNB reports the radio capability, and gets it with the next accept.
#[test]
fn enb_gets_radio_capability_with_accept() {
    let mut network = attached();
    let known = |network: &Network| {
        let pdus = network.sent.iter().rev().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
        let is_nas = |pdu: &S1APPDU<'_>| pdu.kind() == S1apPduKind::Initiating_downlinkNASTransport;
        let accept = pdus.into_iter().find(is_nas).expect("a NAS message");
        accept.ie::<ie::UERadioCapability>().map(|capability| capability.expect("octets").0.len())
    };
    assert_eq!(known(&network), None, "the eNB asks the UE");
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.take_from_enb(&pdus::capability(ids, 100));
    network.idle();
    control_plane_service(&mut network, None);
    assert!(matches!(network.last(), NasEmmMessage::ServiceAccept(_)));
    assert_eq!(known(&network), Some(100));
    let teid = teid(&network);
    send_down(&mut network, teid, PACKET);
    assert_eq!((known(&network), downlink(&network).len()), (None, 1), "the eNB has it");
    network.idle();
    network.update(UpdateType::PeriodicUpdating);
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(_)));
    assert_eq!(known(&network), Some(100));
}

/// A UE that supports T3448 may send other requests while it runs. A page is answered with T3346 as
/// before, and so is a request without data.
#[test]
fn supporting_ue_backs_off_data_alone() {
    let mut network = Network::new();
    network.config.ciot.control_plane = true;
    network.config.timers.t3346 = Duration::from_secs(2);
    let mut request = network.attach_request();
    prefers_control_plane(&mut request);
    request.ue_network_capability.set_cp_backoff(true);
    network.initial_message(&request);
    network.idle();
    network.congested = true;
    let rejected = |network: &Network| {
        assert!(uplink(network).is_empty() && network.mme_id.is_none());
        emm(network.last().clone()).encode().expect("it encodes")
    };
    control_plane_service(&mut network, Some(data(PACKET, None)));
    assert_eq!(rejected(&network), golden("ServiceReject-data-back-off"));
    for (kind, esm) in [(1, Some(data(PACKET, None))), (0, None)] {
        control_plane_service_of(&mut network, kind, esm);
        assert_eq!(rejected(&network), [0x07, 0x4e, 22, 0x5f, 1, 1], "T3346");
    }
    network.congested = false;
    control_plane_service(&mut network, Some(data(PACKET, None)));
    assert_eq!(uplink(&network), [PACKET]);
}

/// The header type for partial ciphering is for this message only, and its MAC covers the
/// container.
#[test]
fn forged_control_plane_service_changes_nothing() {
    let mut network = attached();
    network.idle();
    let mut request =
        NasControlPlaneServiceRequest::new(NasControlPlaneServiceType::new(0), NasKeySetIdentifier::new(0));
    request.esm_message_container = Some(NasEsmMessageContainer::new(vec![0x52, 0, 0xeb, 1, 7]));
    let message = NasEpsMessage::new_emm(request);
    let header = NasEpsSecurityHeaderType::IntegrityProtectedAndPartiallyCipheredNasMessage;
    let nas = network.ue.keys.as_mut().expect("keys").protect(&message, header, Direction::Uplink);
    let nas = nas.expect("it encodes");
    for at in [2, nas.len() - 1] {
        let mut forged = nas.clone();
        forged[at] ^= 1;
        network.uplink(forged);
        assert!(matches!(network.last(), NasEmmMessage::ServiceReject(reject) if reject.emm_cause.value == 9));
        network.restore();
    }
    // Another message with this header type is not read.
    let mut other = nas.clone();
    other[7] = 0x4c;
    network.uplink(other);
    assert!(network.notes.contains(&Note::fault("nas-header")), "{:?}", network.notes);
    network.restore();
    assert!(network.context().is_some_and(|c| c.is_registered() && c.connection.is_none()));
    network.wait(Duration::from_secs(1));
    control_plane_service(&mut network, Some(data(PACKET, None)));
    assert_eq!(uplink(&network), [PACKET]);
}
