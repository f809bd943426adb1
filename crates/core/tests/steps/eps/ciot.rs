//! EMM-REGISTERED without PDN connection (TS 24.301 5.5.1.2.2, 5.3.15).

use super::network::{EPCO, Network, TUNNEL};
use super::succeeded;
use vireo_core::amf::engine::Event;
use vireo_core::config::CiotConfig;
use vireo_core::step::{Effect, Kind};
use vireo_types::Duration;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::S1apPduKind;

fn network() -> Network {
    let mut network = Network::new();
    network.config.ciot = CiotConfig { without_pdn: true, ..CiotConfig::default() };
    network
}

/// Returns a network whose UE has attached without PDN connection.
fn attached(stays_connected: bool) -> Network {
    let mut network = network();
    let mut request = network.attach_request_without_pdn();
    if stays_connected {
        let kind = NasAdditionalUpdateType::from_fields(false, true, PreferredCiotBehavior::NoPreference);
        request.additional_update_type = Some(kind);
    }
    network.initial_message(&request);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    network
}

fn accept(network: &Network) -> &NasAttachAccept {
    let accept = network.ue.received.iter().rev().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => Some(accept),
        _ => None,
    });
    accept.expect("an accept")
}

fn is_registered(network: &Network) -> bool {
    network.context().is_some_and(|context| context.is_registered() && context.procedure.is_none())
}

#[test]
fn attach_without_pdn_connection_is_accepted() {
    let network = attached(false);
    let accept = accept(&network);
    assert_eq!(accept.esm_message_container.value.to_vec(), [0x02, 0x00, 0xdc]);
    assert_eq!(accept.eps_network_feature_support.as_ref().map(|ie| ie.value.to_vec()), Some(vec![0x40, EPCO]));
    assert!(is_registered(&network) && network.context().is_some_and(|context| context.sessions.is_empty()));
    assert_eq!(network.mme_id, None, "the UE has nothing more to send");
    assert!(!network.kinds.contains(&S1apPduKind::Initiating_InitialContextSetup), "{:?}", network.kinds);
    assert!(!network.effects.iter().any(|effect| matches!(effect, Effect::Pfcp { .. })));
}

/// The bit is for UEs that set theirs, and the configuration permits it.
#[test]
fn feature_needs_ue_and_network() {
    for (is_permitted, is_supported) in [(false, true), (true, false)] {
        let mut network = network();
        network.config.ciot.without_pdn = is_permitted;
        let mut request = network.attach_request();
        request.ue_network_capability.set_erw_opdn(is_supported);
        network.initial_message(&request);
        let support = accept(&network).eps_network_feature_support.clone();
        assert_eq!(support.map(|ie| ie.value.to_vec()), Some(vec![0, EPCO]));
        network.disconnect(2, 5);
        let Some((0, 2, NasEsmMessage::PdnDisconnectReject(reject))) = network.ue.received_esm.last() else {
            panic!("{:?}", network.ue.received_esm)
        };
        assert_eq!(reject.esm_cause.value, 49);
    }
}

#[test]
fn connection_without_pdn_gets_one_later() {
    let mut network = attached(true);
    assert!(network.mme_id.is_some(), "signalling active flag");
    network.connect(2, None);
    assert_eq!(network.tunnel(), Some(TUNNEL), "{:?} {:?}", network.kinds, network.notes);
    assert_eq!(network.kinds.iter().filter(|kind| **kind == S1apPduKind::Initiating_InitialContextSetup).count(), 1);
    assert_eq!(succeeded(&network, Kind::Session), 1);
}

#[test]
fn idle_ue_without_pdn_sets_one_up() {
    let mut network = attached(false);
    network.service_request();
    assert!(matches!(network.last(), NasEmmMessage::ServiceAccept(_)), "{:?}", network.last());
    assert!(network.mme_id.is_some() && is_registered(&network));
    assert_eq!(succeeded(&network, Kind::ServiceRequest), 1);
    network.connect(2, None);
    assert_eq!(network.tunnel(), Some(TUNNEL));
    // The eNB has the key of the service request (TS 33.401 A.3): later messages do not change it.
    network.idle();
    network.service_request();
    assert_eq!(network.tunnel(), Some(TUNNEL));
}

#[test]
fn update_without_pdn_keeps_ue_registered() {
    let mut network = attached(false);
    network.update_with(UpdateType::PeriodicUpdating, |request| {
        request.eps_bearer_context_status = Some(NasEpsBearerContextStatus::new(vec![0, 0]));
    });
    let NasEmmMessage::TrackingAreaUpdateAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(accept.eps_network_feature_support.as_ref().map(|ie| ie.value.to_vec()), Some(vec![0x40, EPCO]));
    assert_eq!(accept.eps_bearer_context_status.as_ref().map(|ie| ie.value.to_vec()), Some(vec![0, 0]));
    assert!(is_registered(&network) && network.mme_id.is_none());
    // The UE does not support it any more, and has to attach.
    network.update_with(UpdateType::TaUpdating, |request| {
        request.ue_network_capability = Some(NasUeNetworkCapability::new(super::network::CAPABILITY.to_vec()));
    });
    let NasEmmMessage::TrackingAreaUpdateReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(reject.emm_cause.value, 40);
}

#[test]
fn last_pdn_connection_may_end() {
    let mut network = network();
    let mut request = network.attach_request();
    request.ue_network_capability.set_erw_opdn(true);
    network.initial_message(&request);
    network.disconnect(2, 5);
    assert!(is_registered(&network) && network.context().is_some_and(|context| context.sessions.is_empty()));
    network.connect(3, None);
    assert_eq!(network.tunnel(), Some(TUNNEL), "{:?}", network.kinds);
    // The eNB ends it, too.
    let ids = (network.mme_id.expect("a connection"), network.enb_id);
    network.take_from_enb(&super::pdus::released(ids, network.ue.ebi));
    assert!(is_registered(&network), "{:?}", network.notes);
}

/// The network reaches an idle UE without PDN connection, and one that has only signalling.
#[test]
fn ue_without_pdn_is_detached_by_network() {
    for is_connected in [false, true] {
        let mut network = attached(is_connected);
        network.event(Event::Deregister { reregister: false, cause: None });
        network.settle();
        if !is_connected {
            assert_eq!(network.kinds.last(), Some(&S1apPduKind::Initiating_Paging));
            network.service_request();
        }
        assert!(matches!(network.last(), NasEmmMessage::DetachRequestUeTerminated(_)), "{:?}", network.last());
    }
    let mut network = attached(false);
    network.wait(Duration::from_secs(54 * 60 + 481));
    assert!(network.context().is_some_and(|context| !context.is_registered()), "implicitly");
}

/// An update before ATTACH COMPLETE confirms the attach, and is served on the same connection.
#[test]
fn update_ends_incomplete_attach_without_pdn() {
    let mut network = network();
    network.ue.silent = true;
    let request = network.attach_request_without_pdn();
    network.initial_message(&request);
    network.ue.guti = accept(&network).guti.clone();
    network.ue.silent = false;
    network.update(UpdateType::TaUpdating);
    let NasEmmMessage::TrackingAreaUpdateReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(reject.emm_cause.value, 10);
    assert!(!is_registered(&network));
}
