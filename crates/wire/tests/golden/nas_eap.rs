//! EAP-AKA' in NAS messages (TS 24.501 5.4.1.2), with the keys of the lab subscriber.
//!
//! Packets and keys are also computed by tests/reference/eap_values.py.

use crate::case::{Case, nas_case, security as computed};
use crate::nas_mobility::{capability, ngksi};
use crate::security::{NETWORK, SQN, card, rand};
use vireo_wire::eap::{self, Attributes, Body, Challenge, Code, Packet, SessionKeys, Subtype, TransformedKeys};
use vireo_wire::nas::*;
use vireo_wire::security::milenage::{Amf, AuthenticationVector, Sqn};
use vireo_wire::security::nas_5gs::{Supi, derive_kamf, derive_kseaf};

const IDENTIFIER: u8 = 0x23;
const AUTS: [u8; 14] = [0x5e, 0xf4, 0x04, 0x17, 0xef, 0x4c, 0xb9, 0xac, 0x9e, 0x76, 0x64, 0x0b, 0x82, 0x0d];

fn vector() -> AuthenticationVector {
    card().authentication_vector(&rand(), &Sqn::try_from(SQN).expect("48 bits"), &Amf::new(&[0x80, 0]))
}

fn transformed() -> TransformedKeys {
    let vector = vector();
    TransformedKeys::derive(vector.ck(), vector.ik(), NETWORK, vector.autn()).expect("a name")
}

fn keys() -> SessionKeys {
    SessionKeys::derive(&transformed(), b"999700000000001")
}

fn message(packet: impl Into<Vec<u8>>) -> NasEapMessage {
    NasEapMessage::new(packet.into())
}

fn challenge() -> Vec<u8> {
    let (vector, rand) = (vector(), rand());
    let network_name = NETWORK.try_into().expect("32 octets");
    let values = Challenge { rand: rand.as_octets(), autn: vector.autn().as_octets(), network_name };
    eap::challenge(IDENTIFIER, &values, keys().k_aut())
}

fn answer(packet: Vec<u8>) -> Nas5gsMessage {
    Nas5gsMessage::new_5gmm(NasAuthenticationResponse::new().with_eap_message(message(packet)))
}

/// Returns the subtype and the attributes of a message of EAP-AKA'.
fn read(message: &NasEapMessage, code: Code) -> (Option<Subtype>, Attributes<'_>) {
    let packet = Packet::parse(&message.value).expect("an EAP packet");
    assert_eq!((packet.code, packet.identifier), (code, IDENTIFIER));
    let Body::AkaPrime(message) = packet.body else { panic!("another method: {:?}", packet.body) };
    (message.subtype, message.attributes().expect("attributes"))
}

fn read_answer(response: &NasAuthenticationResponse) -> (Option<Subtype>, Attributes<'_>) {
    assert!(response.authentication_response_parameter.is_none());
    read(response.eap_message.as_ref().expect("an EAP message"), Code::Response)
}

/// Asserts that `AT_MAC` of a message is right.
fn assert_mac(message: &NasEapMessage, attributes: &Attributes<'_>) {
    assert!(eap::has_mac(&message.value, attributes.mac_at.expect("AT_MAC"), keys().k_aut()));
}

fn assert_result(message: Option<&NasEapMessage>, code: Code) {
    let packet = Packet::parse(&message.expect("an EAP message").value).expect("an EAP packet");
    assert_eq!(packet, Packet { code, identifier: IDENTIFIER, body: Body::None });
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = requests();
    cases.extend(answers());
    cases
}

fn requests() -> Vec<Case> {
    vec![
        nas_case!(
            "AuthenticationRequest-EAP",
            Gmm::AuthenticationRequest,
            Nas5gsMessage::new_5gmm(
                NasAuthenticationRequest::new(ngksi(3), NasAbba::new(vec![0, 0]))
                    .with_eap_message(message(challenge()))
            ),
            |request| {
                assert!(request.authentication_parameter_rand.is_none());
                let message = request.eap_message.as_ref().expect("an EAP message");
                let (subtype, attributes) = read(message, Code::Request);
                assert_eq!(subtype, Some(Subtype::Challenge));
                assert_eq!(attributes.rand, Some(rand().as_octets()));
                assert_eq!(attributes.autn, Some(vector().autn().as_octets()));
                assert_eq!((attributes.network_name, attributes.kdf), (Some(NETWORK), Some(eap::KDF)));
                assert_mac(message, &attributes);
            }
        ),
        nas_case!(
            "AuthenticationReject-EAP",
            Gmm::AuthenticationReject,
            Nas5gsMessage::new_5gmm(NasAuthenticationReject::new().with_eap_message(message(eap::failure(IDENTIFIER)))),
            |reject| { assert_result(reject.eap_message.as_ref(), Code::Failure) }
        ),
        nas_case!(
            "SecurityModeCommand-EAP",
            Gmm::SecurityModeCommand,
            Nas5gsMessage::new_5gmm(
                NasSecurityModeCommand::new(
                    NasSecurityAlgorithms::from_algorithms(CipheringAlgorithm::NEA2, IntegrityAlgorithm::NIA1),
                    ngksi(3),
                    capability()
                )
                .with_eap_message(message(eap::success(IDENTIFIER)))
                .with_abba(NasAbba::new(vec![0, 0]))
            ),
            |command| {
                assert_result(command.eap_message.as_ref(), Code::Success);
                assert_eq!(command.abba.as_ref().map(|abba| abba.abba()), Some(&[0, 0][..]));
            }
        ),
    ]
}

fn answers() -> Vec<Case> {
    vec![
        nas_case!(
            "AuthenticationResponse-EAP-response",
            Gmm::AuthenticationResponse,
            answer(eap::response(IDENTIFIER, vector().xres().as_octets(), keys().k_aut())),
            |response| {
                let (subtype, attributes) = read_answer(response);
                assert_eq!(subtype, Some(Subtype::Challenge));
                assert_eq!(attributes.res, Some(&vector().xres().as_octets()[..]));
                assert_mac(response.eap_message.as_ref().expect("an EAP message"), &attributes);
            }
        ),
        nas_case!(
            "AuthenticationResponse-EAP-synchronization",
            Gmm::AuthenticationResponse,
            answer(eap::synchronization_failure(IDENTIFIER, &AUTS)),
            |response| {
                let (subtype, attributes) = read_answer(response);
                assert_eq!(subtype, Some(Subtype::SynchronizationFailure));
                assert_eq!((attributes.auts, attributes.kdf), (Some(&AUTS), Some(eap::KDF)));
            }
        ),
        nas_case!(
            "AuthenticationResponse-EAP-reject",
            Gmm::AuthenticationResponse,
            answer(eap::authentication_reject(IDENTIFIER)),
            |response| {
                let expected = (Some(Subtype::AuthenticationReject), Attributes::default());
                assert_eq!(read_answer(response), expected);
            }
        ),
        nas_case!(
            "AuthenticationResponse-EAP-error",
            Gmm::AuthenticationResponse,
            answer(eap::client_error(IDENTIFIER, 0)),
            |response| {
                let (subtype, attributes) = read_answer(response);
                assert_eq!((subtype, attributes.client_error), (Some(Subtype::ClientError), Some(0)));
            }
        ),
    ]
}

#[test]
fn eap_key_chain_equals_openssl() {
    let (wanted, transformed, keys) = (computed(), transformed(), keys());
    assert_eq!([&transformed.ck()[..], transformed.ik()].concat(), wanted["eap_transformed"]);
    assert_eq!(keys.k_aut()[..], wanted["eap_k_aut"]);
    assert_eq!(keys.kausf().as_octets()[..], wanted["eap_kausf"]);
    let kseaf = derive_kseaf(keys.kausf(), NETWORK).expect("a name");
    assert_eq!(kseaf.as_octets()[..], wanted["eap_kseaf"]);
    let supi = Supi::parse("imsi-999700000000001").expect("a SUPI");
    let kamf = derive_kamf(&kseaf, &supi, &[0, 0]).expect("an ABBA");
    assert_eq!(kamf.as_octets()[..], wanted["eap_kamf"]);
}
