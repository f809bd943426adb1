//! Protocol configuration options of PDN connections, in the usual IE and in the extended one.

use super::network::Network;
use super::succeeded;
use crate::golden::eps as golden;
use std::net::{IpAddr, Ipv4Addr};
use vireo_core::step::Kind;
use vireo_wire::nas_eps::*;

/// Requests for DNS servers and for the MTU of IPv4.
const REQUEST: [u8; 7] = [0x80, 0, 0x0d, 0, 0, 0x10, 0];
/// Their answer, with one server.
const ANSWER: [u8; 13] = [0x80, 0, 0x0d, 4, 8, 8, 8, 8, 0, 0x10, 2, 0x05, 0x78];

/// Protocol configuration options in the usual IE, and in the extended one.
type Options = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Returns a network whose data network has DNS servers.
fn network(servers: u8) -> Network {
    let mut network = Network::new();
    network.config.dnns[0].dns = (0..servers).map(|n| IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8 + n))).collect();
    network
}

/// Returns a request for an IPv4 connection to the default APN.
fn connectivity(is_extended: bool) -> NasPdnConnectivityRequest {
    let request = NasPdnConnectivityRequest::new(
        NasRequestType::from_request_type(RequestTypeValue::Initial),
        NasPdnType::from_pdn_type(PdnType::Ipv4),
    );
    match is_extended {
        true => request.with_extended_protocol_configuration_options(extended()),
        false => request.with_protocol_configuration_options(usual()),
    }
}

fn usual() -> NasProtocolConfigurationOptions {
    NasProtocolConfigurationOptions::new(REQUEST.to_vec())
}

fn extended() -> NasExtendedProtocolConfigurationOptions {
    NasExtendedProtocolConfigurationOptions::new(REQUEST.to_vec())
}

/// Has a UE that supports the extended IE attach.
fn attach(network: &mut Network, connect: NasPdnConnectivityRequest) {
    let mut request = network.attach_request();
    request.ue_network_capability.set_epco(true);
    let esm = NasEpsMessage::new_esm(connect, 0, 1).encode().expect("it encodes");
    request.esm_message_container = NasEsmMessageContainer::new(esm);
    network.initial_message(&request);
    assert_eq!(succeeded(network, Kind::Registration), 1, "{:?}", network.notes);
}

/// Returns the ATTACH ACCEPT.
fn accept(network: &Network) -> &NasAttachAccept {
    let accept = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => Some(accept),
        _ => None,
    });
    accept.expect("an accept")
}

/// Returns the default bearer of the attach.
fn attached_bearer(network: &Network) -> NasActivateDefaultEpsBearerContextRequest {
    match NasEpsMessage::decode(&accept(network).esm_message_container.value).expect("a message") {
        NasEpsMessage::Esm(_, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(bearer)) => *bearer,
        other => panic!("{other:?}"),
    }
}

fn options(bearer: &NasActivateDefaultEpsBearerContextRequest) -> Options {
    let usual = bearer.protocol_configuration_options.as_ref().map(|options| options.value.to_vec());
    let extended = bearer.extended_protocol_configuration_options.as_ref().map(|options| options.value.to_vec());
    (usual, extended)
}

/// Returns the answer in the IE.
fn answer(is_extended: bool) -> Options {
    match is_extended {
        true => (None, Some(ANSWER.to_vec())),
        false => (Some(ANSWER.to_vec()), None),
    }
}

/// In an attach, and in a further PDN connection (TS 24.301 6.6.1.1).
#[test]
fn answer_has_ie_of_request() {
    for is_extended in [false, true] {
        let mut network = network(1);
        attach(&mut network, connectivity(is_extended));
        let support = accept(&network).eps_network_feature_support.as_ref();
        assert!(support.is_some_and(NasEpsNetworkFeatureSupport::epco));
        assert_eq!(options(&attached_bearer(&network)), answer(is_extended));
        network.send_esm(connectivity(!is_extended), 0, 2);
        let Some((6, 2, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(bearer))) =
            network.ue.received_esm.last()
        else {
            panic!("{:?}", network.ue.received_esm)
        };
        assert_eq!(options(bearer), answer(!is_extended));
        assert_eq!(succeeded(&network, Kind::Session), 2);
    }
}

#[test]
fn extended_options_equal_those_of_pycrate() {
    let mut network = network(1);
    attach(&mut network, connectivity(true));
    let mut bearer = attached_bearer(&network);
    // The golden has another address and no rates.
    bearer.pdn_address = NasPdnAddress::from_ipv4([10, 46, 0, 2]);
    (bearer.apn_ambr, bearer.extended_apn_ambr) = (None, None);
    let octets = NasEpsMessage::new_esm(bearer, 5, 1).encode().expect("it encodes");
    let golden = golden("ActivateDefaultEPSBearerContextRequest-extended-options");
    assert_eq!(hex::encode(octets), hex::encode(golden));
}

/// Options of ESM INFORMATION RESPONSE replace those of the request, whatever IE these had
/// (6.6.1.2.4).
#[test]
fn esm_information_replaces_options() {
    for is_extended in [false, true] {
        let mut network = network(1);
        let mut information = NasEsmInformationResponse::new();
        match is_extended {
            true => information.set_extended_protocol_configuration_options(extended()),
            false => information.set_protocol_configuration_options(usual()),
        };
        network.ue.information = Some(information);
        let mut connect = connectivity(!is_extended);
        connect.set_esm_information_transfer_flag(NasEsmInformationTransferFlag::from_required(true));
        attach(&mut network, connect);
        assert_eq!(options(&attached_bearer(&network)), answer(is_extended));
    }
}

/// The usual IE has room for 251 octets (TS 24.008 10.5.6.3).
#[test]
fn long_answer_needs_extended_ie() {
    const SERVERS: u8 = 40;
    for is_extended in [false, true] {
        let mut network = network(SERVERS);
        attach(&mut network, connectivity(is_extended));
        let (usual, extended) = options(&attached_bearer(&network));
        assert_eq!(usual, None);
        let octets = 1 + usize::from(SERVERS) * 7 + 5;
        assert_eq!(extended.map(|options| options.len()), is_extended.then_some(octets));
    }
}
