//! Services that the core does not have, faulty requests, and what the network tells UE and eNB.

use super::network::{EPCO, Network};
use super::{attached, pdus};
use vireo_core::step::Note;
use vireo_core::subscription::Ambr;
use vireo_types::Duration;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{CauseRadioNetwork, RecommendedCellItem, S1AP_PDU, S1APPDU, S1apPduKind, decode_open_type, ie};

/// CONTROL PLANE SERVICE REQUEST, mobile originating.
const CONTROL_PLANE: [u8; 3] = [0x07, 0x4d, 0x00];

/// The accepts of attach and update have no CIoT EPS optimisation, and the request for it is
/// rejected with #97. The UE stays registered.
#[test]
fn control_plane_service_is_rejected() {
    let mut network = attached();
    let support = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => accept.eps_network_feature_support.clone(),
        _ => None,
    });
    assert_eq!(support.map(|support| support.value.to_vec()), Some(vec![0, EPCO]));
    network.idle();
    let request = NasEpsMessage::decode(&CONTROL_PLANE).expect("a message");
    network.protected(&request, NasEpsSecurityHeaderType::IntegrityProtected);
    let NasEmmMessage::ServiceReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, network.mme_id), (97, None));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
    network.service_request();
    assert_eq!(network.tunnel(), Some(super::TUNNEL));
    // A UE without a context here is not identified (5.6.1.5).
    network.idle();
    network.uplink(CONTROL_PLANE.to_vec());
    assert!(matches!(network.last(), NasEmmMessage::ServiceReject(reject) if reject.emm_cause.value == 9));
}

#[test]
fn esm_data_transport_is_answered_by_status() {
    let mut network = attached();
    for (ebi, cause) in [(5, 97), (9, 43)] {
        let data = NasEsmDataTransport::new(NasUserDataContainer::new(vec![1, 2, 3]));
        network.send_esm(data, ebi, 0);
        let Some((to, 0, NasEsmMessage::EsmStatus(status))) = network.ue.received_esm.last() else {
            panic!("{:?}", network.ue.received_esm)
        };
        assert_eq!((*to, status.esm_cause.value), (ebi, cause));
    }
    assert!(network.context().is_some_and(|c| c.sessions.len() == 1));
}

#[test]
fn attach_without_pdn_connection_is_rejected() {
    let mut network = Network::new();
    let mut request = network.attach_request();
    let dummy = NasEpsMessage::new_esm(NasEsmDummyMessage::new(), 0, 0).encode().expect("it encodes");
    request.esm_message_container = NasEsmMessageContainer::new(dummy.clone());
    network.initial_message(&request);
    let NasEmmMessage::AttachReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    let esm = reject.esm_message_container.as_ref().map(|esm| esm.value.to_vec());
    assert_eq!((reject.emm_cause.value, esm), (19, Some(dummy)));
    assert_eq!(network.mme_id, None);
    assert!(network.context().is_none_or(|c| !c.is_registered() && c.sessions.is_empty()));
}

#[test]
fn emergency_connection_is_rejected() {
    let mut network = attached();
    for (kind, cause) in [(RequestTypeValue::Emergency, 31), (RequestTypeValue::EmergencyHandover, 54)] {
        let request = NasPdnConnectivityRequest::new(
            NasRequestType::from_request_type(kind),
            NasPdnType::from_pdn_type(PdnType::Ipv4),
        );
        network.send_esm(request, 0, 7);
        let Some((0, 7, NasEsmMessage::PdnConnectivityReject(reject))) = network.ue.received_esm.last() else {
            panic!("{:?}", network.ue.received_esm)
        };
        assert_eq!(reject.esm_cause.value, cause);
    }
}

/// A faulty request gets its reject (5.5.1.2.7 b, 5.5.3.2.7 b, 5.6.1.7 b). Other messages of a UE
/// without keys get no EMM STATUS, which it would discard (4.4.4.2).
#[test]
fn faulty_request_gets_its_reject() {
    let cut_short: [&[u8]; 5] =
        [&[0x07, 0x41], &[0x07, 0x48, 0x70], &[0x07, 0x4c, 0x00], &[0x07, 0x45, 0x79], &[0x07, 0x56]];
    for message in cut_short {
        let mut network = Network::new();
        network.uplink(message.to_vec());
        let cause = match network.ue.received.last() {
            Some(NasEmmMessage::AttachReject(reject)) => Some((0x41, reject.emm_cause.value)),
            Some(NasEmmMessage::TrackingAreaUpdateReject(reject)) => Some((0x48, reject.emm_cause.value)),
            Some(NasEmmMessage::ServiceReject(reject)) => Some((0x4c, reject.emm_cause.value)),
            Some(other) => panic!("{message:02x?}: {other:?}"),
            None => None,
        };
        let rejected = matches!(message[1], 0x41 | 0x48 | 0x4c);
        assert_eq!(cause, rejected.then_some((message[1], 96)), "{message:02x?} {:?}", network.notes);
        assert_eq!(network.mme_id, None, "the connection is released");
    }
}

/// T3402 is sent if it differs from the default of the UE (10.2).
#[test]
fn accepts_have_configured_timers() {
    for (minutes, expected) in [(12, None), (30, Some(0x3e))] {
        let mut network = Network::new();
        network.config.timers.t3402 = Duration::from_secs(minutes * 60);
        network.attach();
        let accepts = |network: &Network| {
            let t3402 = |message: &NasEmmMessage| match message {
                NasEmmMessage::AttachAccept(accept) => Some(accept.t3402_value.map(|ie| ie.value)),
                NasEmmMessage::TrackingAreaUpdateAccept(accept) => Some(accept.t3402_value.map(|ie| ie.value)),
                _ => None,
            };
            network.ue.received.iter().filter_map(t3402).collect::<Vec<_>>()
        };
        network.update(UpdateType::TaUpdating);
        assert_eq!(accepts(&network), [expected; 2], "{minutes} min");
    }
}

fn sent(network: &Network, kind: S1apPduKind) -> Option<S1APPDU<'_>> {
    let pdus = network.sent.iter().rev().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.into_iter().find(|pdu| pdu.kind() == kind)
}

fn ambr(pdu: &S1APPDU<'_>) -> Option<(u64, u64)> {
    let ambr = pdu.ie::<ie::uEaggregateMaximumBitrate>()?.expect("rates");
    Some((ambr.ue_aggregate_maximum_bit_rate_dl.0, ambr.ue_aggregate_maximum_bit_rate_ul.0))
}

/// Returns a network with an attached UE: its UE-AMBR is 50 and 9 Mbit/s, and its two APN-AMBRs are
/// 30 and 5, and 30 and 2 Mbit/s (downlink and uplink).
fn with_rates() -> Network {
    let mut network = Network::new();
    let rates = |downlink_bps, uplink_bps| Ambr { uplink_bps, downlink_bps };
    network.subscription.ambr = rates(50_000_000, 9_000_000);
    network.subscription.slices[0].dnns[0].ambr = rates(30_000_000, 5_000_000);
    network.subscribe("ims");
    network.subscription.slices[0].dnns[1].ambr = rates(30_000_000, 2_000_000);
    network.attach();
    network
}

/// The UE-AMBR is the sum of the APN-AMBRs, up to the subscribed one (TS 23.401 4.7.3).
#[test]
fn ue_ambr_follows_bearers() {
    let mut network = with_rates();
    let setup = sent(&network, S1apPduKind::Initiating_InitialContextSetup).expect("a set-up");
    assert_eq!(ambr(&setup), Some((30_000_000, 5_000_000)));
    network.connect(2, Some("ims"));
    let setup = sent(&network, S1apPduKind::Initiating_E_RABSetup).expect("a set-up");
    assert_eq!(ambr(&setup), Some((50_000_000, 7_000_000)));
    let bearer = network.context().and_then(|c| c.sessions.get(1).map(|s| s.id())).expect("a bearer");
    // The UE ends the first connection.
    network.disconnect(3, 5);
    let release = sent(&network, S1apPduKind::Initiating_E_RABRelease).expect("a release");
    assert_eq!(ambr(&release), Some((30_000_000, 2_000_000)));
    network.connect(4, Some("internet"));
    // The eNB releases a bearer: it is told the rest.
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    assert!(sent(&network, S1apPduKind::Initiating_UEContextModification).is_none());
    network.take_from_enb(&pdus::released(ids, bearer));
    let change = sent(&network, S1apPduKind::Initiating_UEContextModification).expect("a change");
    assert_eq!(ambr(&change), Some((30_000_000, 5_000_000)));
    // The UE stays connected if the eNB does not apply it.
    network.take_from_enb(&pdus::modification_failure(ids, CauseRadioNetwork::unspecified));
    assert!(network.notes.contains(&Note::fault("context-modification-failure")));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.connection.is_some()));
}

/// The UE has got no activation request (TS 36.413 8.2.1.2), and the eNB the UE-AMBR with the
/// refused bearer.
#[test]
fn refused_erab_rejects_connection() {
    let mut network = with_rates();
    network.refused_erab = Some(6);
    network.connect(2, Some("ims"));
    let setup = sent(&network, S1apPduKind::Initiating_E_RABSetup).expect("a set-up");
    assert_eq!(ambr(&setup), Some((50_000_000, 7_000_000)));
    let change = sent(&network, S1apPduKind::Initiating_UEContextModification).expect("a change");
    assert_eq!(ambr(&change), Some((30_000_000, 5_000_000)));
    let [(0, 2, NasEsmMessage::PdnConnectivityReject(reject))] = &network.ue.received_esm[..] else {
        panic!("{:?}", network.ue.received_esm)
    };
    assert_eq!(reject.esm_cause.value, 26);
    assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
}

/// Returns the numbers of the eNBs with a page, and the priority of the last page.
fn pages(network: &Network) -> (Vec<usize>, Option<u8>) {
    let (mut nodes, mut priority) = (Vec::new(), None);
    for (n, pdu) in &network.sent {
        let pdu = S1AP_PDU::decode_borrowed(pdu).expect("a PDU");
        if pdu.kind() == S1apPduKind::Initiating_Paging {
            nodes.push(*n);
            priority = pdu.ie::<ie::PagingPriority>().map(|ie| ie.expect("a priority") as u8 + 1);
        }
    }
    (nodes, priority)
}

/// TS 23.401 5.3.4.3: the other eNB of the tracking area list pages after T3413.
#[test]
fn last_enb_pages_first() {
    let mut network = attached();
    network.set_up_enb(1);
    network.idle();
    network.downlink_data();
    assert_eq!(pages(&network).0, [0]);
    network.wait(Duration::from_millis(3100));
    assert_eq!(pages(&network).0, [0, 0, 1]);
}

/// An eNB and a cell that the eNB of the last connection has recommended (TS 36.413 8.3.3.2,
/// 8.5.2). They are those of the last connection alone.
#[test]
fn recommended_enb_and_cell_are_paged() {
    let mut network = attached();
    network.set_up_enb(1);
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.enb_releases = false;
    network.take_from_enb(&pdus::release_request(ids));
    network.mme_id = None;
    network.take_from(0, &pdus::release_complete_with_recommended(ids, 0x12346));
    network.downlink_data();
    assert_eq!(pages(&network).0, [0, 1], "the last one, and the recommended one");
    let page = sent(&network, S1apPduKind::Initiating_Paging).expect("a page");
    let assistance = page.ie::<ie::AssistanceDataForPaging>().expect("an IE").expect("a value");
    let cells = assistance.assistance_data_for_recommended_cells.expect("cells").recommended_cells_for_paging;
    let cell: RecommendedCellItem = decode_open_type(&cells.recommended_cell_list.0[0].value).expect("a cell");
    assert_eq!(cell.time_stayed_in_cell, Some(9));
    let attempts = assistance.paging_attempt_information.expect("attempts");
    assert_eq!((attempts.paging_attempt_count.0, attempts.intended_number_of_paging_attempts.0), (1, 5));
    network.enb_releases = true;
    network.service_request();
    network.idle();
    assert!(network.context().is_some_and(|c| c.reachability.recommended.is_empty()));
}

/// TS 36.413 9.2.1.78.
#[test]
fn page_has_priority_of_bearer() {
    for (levels, expected) in [(5, None), (6, Some(6))] {
        let mut network = Network::new();
        network.config.paging.priority_levels = levels;
        network.subscription.slices[0].dnns[0].arp_priority = 6;
        network.attach();
        network.idle();
        network.downlink_data();
        assert_eq!(pages(&network), (vec![0], expected));
    }
}
