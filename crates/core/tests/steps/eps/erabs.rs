//! Messages of an eNB about the E-RABs and capabilities of a UE.

use super::network::{Network, TUNNEL};
use super::pdus::{self, ADDRESS, TEID};
use super::{attached, succeeded};
use std::net::IpAddr;
use vireo_core::step::{Kind, Note};
use vireo_types::Dialect;
use vireo_types::limits::UE_CAPABILITY_OCTETS;
use vireo_wire::nas_eps::{NasEmmMessage, NasEsmMessage};
use vireo_wire::s1ap::{S1AP_PDU, S1APPDU, S1apPduKind as Pdu, ie};

const SECONDARY: (IpAddr, u32) =
    (IpAddr::V4(std::net::Ipv4Addr::new(ADDRESS[0], ADDRESS[1], ADDRESS[2], ADDRESS[3])), u32::from_be_bytes(TEID));

fn ids(network: &Network) -> (u32, u32) {
    (network.mme_id.expect("a connection"), network.enb_id)
}

fn sent(network: &Network, kind: Pdu) -> Option<S1APPDU<'_>> {
    let pdus = network.sent.iter().rev().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.into_iter().find(|pdu| pdu.kind() == kind)
}

#[test]
fn released_last_bearer_detaches_ue() {
    let mut network = attached();
    let ids = ids(&network);
    network.take_from_enb(&pdus::released(ids, 5));
    assert!(
        matches!(network.ue.esm[..], [NasEsmMessage::DeactivateEpsBearerContextRequest(_)]),
        "{:?}",
        network.ue.esm
    );
    assert!(matches!(network.last(), NasEmmMessage::DetachRequestUeTerminated(_)), "{:?}", network.last());
}

#[test]
fn released_unknown_bearer_changes_nothing() {
    let mut network = attached();
    let (ids, before) = (ids(&network), network.context());
    network.take_from_enb(&pdus::released(ids, 9));
    assert_eq!(network.context(), before);
    assert!(network.notes.contains(&Note::fault("session-unknown")));
}

#[test]
fn modification_moves_tunnel_and_is_confirmed() {
    let mut network = attached();
    let ids = ids(&network);
    network.upf_answers = false;
    network.take_from_enb(&pdus::modified(ids, &[5, 9]));
    assert!(sent(&network, Pdu::Successful_E_RABModificationIndication).is_none(), "the UPF has not answered");
    network.upf_catches_up();
    assert_eq!(network.tunnel(), Some(SECONDARY));
    let confirm = sent(&network, Pdu::Successful_E_RABModificationIndication).expect("a confirmation");
    let modified = confirm.items::<ie::E_RABModifyListBearerModConf>().map(|i| i.expect("an item").e_rab_id.0);
    assert_eq!(modified.collect::<Vec<_>>(), [5]);
    let failed = confirm.items::<ie::E_RABFailedToModifyListBearerModConf>().map(|i| i.expect("an item").e_rab_id.0);
    assert_eq!(failed.collect::<Vec<_>>(), [9]);
    let context = network.context().expect("a context");
    assert!(context.handover.is_none() && context.connection.is_some());
    assert_eq!(succeeded(&network, Kind::PathSwitch), 0);
}

#[test]
fn incomplete_modification_releases_ue() {
    for erabs in [&[9][..], &[5, 5]] {
        let mut network = attached();
        let ids = ids(&network);
        network.take_from_enb(&pdus::modified(ids, erabs));
        assert!(sent(&network, Pdu::Initiating_UEContextRelease).is_some(), "{erabs:?}");
        assert!(network.context().is_some_and(|c| c.connection.is_none() && c.is_registered()));
    }
}

#[test]
fn secondary_rat_usage_is_counted() {
    let mut network = attached();
    let ids = ids(&network);
    network.take_from_enb(&pdus::usage(ids, 1000, 2_000_000));
    assert!(network.notes.contains(&Note::SecondaryRatUsage { uplink: 1000, downlink: 2_000_000 }));
    assert_eq!(network.tunnel(), Some(TUNNEL));
}

/// The messages of an eNB that may have the list of SECONDARY RAT DATA USAGE REPORT.
#[test]
fn usage_in_other_messages_is_counted() {
    type Message = fn((u32, u32)) -> Vec<u8>;
    let report = Note::SecondaryRatUsage { uplink: 5, downlink: 6 };
    let messages: [Message; 6] = [
        |ids| pdus::released(ids, 9),
        |ids| pdus::modified(ids, &[5]),
        pdus::modify_response,
        pdus::release_response,
        pdus::release_request,
        pdus::release_complete,
    ];
    for (n, message) in messages.into_iter().enumerate() {
        let mut network = attached();
        let ids = ids(&network);
        if n == 5 {
            network.enb_releases = false;
            network.take_from_enb(&pdus::release_request(ids));
        }
        network.take_from_enb(&pdus::with_usage(&message(ids), 5, 6));
        assert_eq!(network.notes.iter().filter(|note| **note == report).count(), 1, "message {n}");
        // A message about a connection that the UE does not have counts nothing.
        network.notes.clear();
        network.take_from_enb(&pdus::with_usage(&message((ids.0 ^ 1, ids.1)), 5, 6));
        assert!(!network.notes.contains(&report), "message {n}");
    }
}

/// The eNB has that of NR, too, which a gNB gets after a move.
#[test]
fn radio_capability_is_stored_for_each_system() {
    let mut network = attached();
    let (mme, enb) = ids(&network);
    let report = pdus::capability_of_both((mme, enb), &[0xca; 100], &[0xcb; UE_CAPABILITY_OCTETS]);
    network.take_from_enb(&report);
    let context = network.context().expect("a context");
    assert_eq!((context.radio_capability.len(), context.reachability.paging.coding), (100, Dialect::Eps));
    assert_eq!(context.reachability.paging.other.whole, vec![0xcb; UE_CAPABILITY_OCTETS]);
    // A later report without that of NR leaves it.
    network.take_from_enb(&pdus::capability((mme, enb), 7));
    let paging = network.context().map(|c| (c.radio_capability.len(), c.reachability.paging.other.whole.len()));
    assert_eq!(paging, Some((7, UE_CAPABILITY_OCTETS)));
}

#[test]
fn radio_capability_returns_with_next_context() {
    let mut network = attached();
    let known = ids(&network);
    network.take_from_enb(&pdus::capability(known, UE_CAPABILITY_OCTETS));
    network.idle();
    network.service_request();
    let capability = |network: &Network| {
        let setup = sent(network, Pdu::Initiating_InitialContextSetup).expect("a set-up");
        setup.ie::<ie::UERadioCapability>().map(|c| c.expect("octets").0.len())
    };
    assert_eq!(capability(&network), Some(UE_CAPABILITY_OCTETS));
    // A capability that cannot be stored whole is not stored.
    let known = ids(&network);
    network.take_from_enb(&pdus::capability(known, UE_CAPABILITY_OCTETS + 1));
    assert!(network.notes.contains(&Note::fault("limit")));
    network.idle();
    network.service_request();
    assert_eq!(capability(&network), None);
}
