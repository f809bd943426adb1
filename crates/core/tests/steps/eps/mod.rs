//! Procedures of EPS against an eNB and a UE: attach, service request, paging, update, detach.

mod abnormal;
mod areas;
mod ciot;
mod ciot_data;
mod collisions;
mod emergency;
mod en_dc;
mod enb;
mod erabs;
mod faults;
mod golden;
mod handover;
pub(crate) mod kdf;
mod lost_bearers;
mod network;
mod options;
pub(crate) mod pdus;
mod power_saving;
mod protection;
mod refusals;
mod security_mode;
mod services;
mod subscriber;
mod timers;
mod unprotected;

use network::{Network, TUNNEL};
use vireo_core::amf::context::Registration;
use vireo_core::step::{Effect, Kind, Note};
use vireo_types::{Dialect, Duration};
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{S1AP_PDU, S1APPDU, S1apPduKind};

fn succeeded(network: &Network, kind: Kind) -> usize {
    network.notes.iter().filter(|n| matches!(n, Note::Succeeded(k, _) if *k == kind)).count()
}

/// Returns the last PDU of a kind.
fn sent(network: &Network, kind: S1apPduKind) -> S1APPDU<'_> {
    let pdus = network.sent.iter().rev().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.into_iter().find(|pdu| pdu.kind() == kind).expect("a PDU")
}

/// Returns a GUTI of another MME.
fn foreign_guti() -> NasEpsMobileIdentity {
    NasEpsMobileIdentity::new(vec![0xf6, 0x99, 0xf9, 0x07, 0x02, 0x00, 0x43, 0xde, 0xad, 0xbe, 0xef])
}

/// Returns the EMM cause of the last message, an ATTACH REJECT, and PTI and ESM cause of its PDN
/// CONNECTIVITY REJECT.
fn attach_reject(network: &Network) -> (u8, Option<(u8, u8)>) {
    let NasEmmMessage::AttachReject(reject) = network.last() else {
        panic!("{:?} {:?}", network.last(), network.notes)
    };
    let esm = reject.esm_message_container.as_ref().map(|container| {
        match NasEpsMessage::decode(&container.value).expect("a message") {
            NasEpsMessage::Esm(header, NasEsmMessage::PdnConnectivityReject(esm)) => {
                (header.procedure_transaction_identity, esm.esm_cause.value)
            }
            other => panic!("{other:?}"),
        }
    });
    (reject.emm_cause.value, esm)
}

/// Returns a network with an attached UE.
fn attached() -> Network {
    let mut network = Network::new();
    network.attach();
    let attached = succeeded(&network, Kind::Registration) == 1;
    assert!(attached, "{:?} {:?}", network.ue.received, network.notes);
    network
}

/// The UE checks AUTN, the MACs of all messages, and the replayed capability.
#[test]
fn attach_sets_up_bearer_and_guti() {
    let network = attached();
    let context = network.context().expect("a context");
    assert_eq!((context.dialect(), context.registration), (Dialect::Eps, Registration::Registered));
    assert_eq!(
        context.identity.tmsi.map(|tmsi| tmsi.0.to_be_bytes().to_vec()),
        network.ue.guti.as_ref().map(|g| {
            assert_eq!(g.value[0], 0xf6);
            g.value[7..].to_vec()
        })
    );
    let [session] = &context.sessions[..] else { panic!("{:?}", context.sessions) };
    assert_eq!((session.id(), session.dialect, network.ue.ebi), (5, Dialect::Eps, 5));
    assert_eq!(session.address.ipv4.map(|address| address.octets()), network.ue.address);
    assert_eq!(network.tunnel(), Some(TUNNEL), "traffic to the UE goes to the eNB");
    assert_eq!(network.mme_id.map(|id| id >> 4), context.connection.map(|c| c.amf_id.mme() >> 4));
    assert!(network.kinds.contains(&S1apPduKind::Initiating_InitialContextSetup), "{:?}", network.kinds);
    assert_eq!(context.procedure, None);
    assert_eq!(succeeded(&network, Kind::Session), 1);
}

#[test]
fn stale_autn_resynchronises_home_network() {
    let mut network = Network::new();
    network.ue.sqn = 0x10_0000;
    network.attach();
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    let requests = network.ue.received.iter().filter(|m| matches!(m, NasEmmMessage::AuthenticationRequest(_)));
    assert_eq!(requests.count(), 2);
}

#[test]
fn service_request_brings_bearer_back() {
    let mut network = attached();
    network.idle();
    assert_eq!(network.tunnel(), None);
    network.service_request();
    assert_eq!(network.tunnel(), Some(TUNNEL), "{:?}", network.notes);
    assert_eq!(succeeded(&network, Kind::ServiceRequest), 1);
    assert_eq!(network.context().and_then(|c| c.procedure), None);
}

#[test]
fn downlink_data_pages_idle_ue() {
    let mut network = attached();
    network.idle();
    network.downlink_data();
    assert_eq!(network.kinds.last(), Some(&S1apPduKind::Initiating_Paging), "{:?}", network.notes);
    network.service_request();
    assert_eq!(network.tunnel(), Some(TUNNEL));
    assert_eq!(succeeded(&network, Kind::Paging), 1);
}

#[test]
fn forged_service_request_is_rejected() {
    let mut network = attached();
    network.idle();
    network.uplink(vec![0xc7, 0x00, 0xde, 0xad]);
    assert!(matches!(network.last(), NasEmmMessage::ServiceReject(reject) if reject.emm_cause.value == 9));
    assert_eq!(network.mme_id, None, "the connection is released");
}

#[test]
fn periodic_update_keeps_ue_attached() {
    let mut network = attached();
    network.idle();
    network.now = network.now + Duration::from_secs(60);
    network.update(UpdateType::PeriodicUpdating);
    assert!(matches!(network.last(), NasEmmMessage::TrackingAreaUpdateAccept(_)), "{:?}", network.notes);
    let context = network.context().expect("a context");
    assert!(context.is_registered() && context.procedure.is_none(), "{:?}", network.notes);
    assert_eq!(succeeded(&network, Kind::Mobility), 1);
}

#[test]
fn second_attach_with_guti_needs_no_vector() {
    let mut network = attached();
    network.detach(false);
    assert!(matches!(network.last(), NasEmmMessage::DetachAccept(_)), "{:?}", network.notes);
    network.effects.clear();
    network.attach();
    assert_eq!(succeeded(&network, Kind::Registration), 2, "{:?}", network.notes);
    assert!(!network.effects.iter().any(|e| matches!(e, Effect::Authenticate(_))), "its keys are known");
}

#[test]
fn detach_removes_bearer_and_address() {
    let mut network = attached();
    network.detach(false);
    assert!(matches!(network.last(), NasEmmMessage::DetachAccept(_)), "{:?}", network.notes);
    assert_eq!(network.mme_id, None, "the connection is released");
    let context = network.context().expect("its keys are kept");
    assert!(!context.is_registered() && context.sessions.is_empty());
    assert!(network.effects.iter().any(|e| matches!(e, Effect::FreeAddress(..))));

    let mut network = attached();
    network.detach(true);
    assert!(!matches!(network.last(), NasEmmMessage::DetachAccept(_)), "switched off: no answer");
    assert!(network.context().is_none_or(|context| context.sessions.is_empty()));
}

#[test]
fn unknown_guti_is_asked_for_imsi() {
    let mut network = attached();
    network.idle();
    network.change(|ue| ue.security = None);
    network.ue.keys = None;
    network.attach();
    assert!(network.ue.received.iter().any(|m| matches!(m, NasEmmMessage::IdentityRequest(_))));
    assert_eq!(succeeded(&network, Kind::Registration), 2, "{:?}", network.notes);
}
