//! 5GMM messages of security procedures, NAS transport and status (TS 24.501 8.2).
//!
//! The procedures are identification, authentication and security mode control.

use crate::case::{Case, nas_case};
use crate::nas_mobility::{capability, meters, ngksi, null_suci, plmn, registration};
use crate::nas_session::{establishment, rejection};
use vireo_wire::nas::*;

const RAND: [u8; 16] = 0x23553cbe9637a89d218ae64dae47bf35_u128.to_be_bytes();
const AUTN: [u8; 16] = 0x55f328b4357780004a9ffac354dfafb3_u128.to_be_bytes();
const RES: [u8; 16] = 0x5cc9527f4d21c43bee83a15443acf1c4_u128.to_be_bytes();
const AUTS: [u8; 14] = [0x5e, 0xf4, 0x04, 0x17, 0xef, 0x4c, 0xb9, 0xac, 0x9e, 0x76, 0x64, 0x0b, 0x82, 0x0d];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = authentication();
    cases.extend(identity());
    cases.extend(security_mode());
    cases.extend(transport());
    cases
}

fn authentication() -> Vec<Case> {
    vec![
        nas_case!(
            "AuthenticationRequest",
            Gmm::AuthenticationRequest,
            Nas5gsMessage::new_5gmm(
                NasAuthenticationRequest::new(ngksi(3), NasAbba::new(vec![0, 0]))
                    .with_authentication_parameter_rand(NasAuthenticationParameterRand::from_rand(RAND))
                    .with_authentication_parameter_autn(NasAuthenticationParameterAutn::from_autn(AUTN))
            ),
            |request| {
                assert_eq!(request.ngksi.key_set_identifier(), KeySetIdentifier::Native(3));
                assert_eq!(request.abba.abba(), [0, 0]);
                let rand = request.authentication_parameter_rand.as_ref().and_then(|r| r.rand());
                let autn = request.authentication_parameter_autn.as_ref().and_then(|a| a.autn());
                assert_eq!((rand, autn), (Some(&RAND), Some(&AUTN)));
            }
        ),
        nas_case!(
            "AuthenticationResponse",
            Gmm::AuthenticationResponse,
            Nas5gsMessage::new_5gmm(
                NasAuthenticationResponse::new()
                    .with_authentication_response_parameter(NasAuthenticationResponseParameter::from_res_star(RES))
            ),
            |response| {
                let parameter = response.authentication_response_parameter.as_ref();
                assert_eq!(parameter.and_then(|p| p.res_star()), Some(&RES));
            }
        ),
        nas_case!(
            "AuthenticationFailure-synch",
            Gmm::AuthenticationFailure,
            Nas5gsMessage::new_5gmm(
                NasAuthenticationFailure::new(NasFGmmCause::from_cause(GmmCause::SynchFailure))
                    .with_authentication_failure_parameter(NasAuthenticationFailureParameter::from_auts(AUTS))
            ),
            |failure| {
                assert_eq!(failure.fgmm_cause.cause(), Some(GmmCause::SynchFailure));
                let parameter = failure.authentication_failure_parameter.as_ref();
                assert_eq!(parameter.and_then(|p| p.auts()), Some(&AUTS));
            }
        ),
        nas_case!(
            "AuthenticationFailure-MAC",
            Gmm::AuthenticationFailure,
            Nas5gsMessage::new_5gmm(NasAuthenticationFailure::new(NasFGmmCause::from_cause(GmmCause::MacFailure))),
            |failure| {
                assert_eq!(failure.fgmm_cause.cause(), Some(GmmCause::MacFailure));
                assert!(failure.authentication_failure_parameter.is_none());
            }
        ),
        nas_case!(
            "AuthenticationReject",
            Gmm::AuthenticationReject,
            Nas5gsMessage::new_5gmm(NasAuthenticationReject::new()),
            |reject| { assert!(reject.eap_message.is_none()) }
        ),
    ]
}

fn identity() -> Vec<Case> {
    vec![
        nas_case!(
            "IdentityRequest",
            Gmm::IdentityRequest,
            Nas5gsMessage::new_5gmm(NasIdentityRequest::new(
                NasFGsIdentityType::from_identity_type(MobileIdentityType::Suci).expect("a type")
            )),
            |request| { assert_eq!(request.identity_type.identity_type(), Some(MobileIdentityType::Suci)) }
        ),
        nas_case!(
            "IdentityResponse-SUCI",
            Gmm::IdentityResponse,
            Nas5gsMessage::new_5gmm(NasIdentityResponse::new(null_suci())),
            |response| {
                let Some(Suci::Imsi(suci)) = response.mobile_identity.as_suci() else { panic!("a SUCI") };
                assert_eq!((suci.plmn(), suci.msin()), (plmn(), Some("0000000001")));
            }
        ),
        nas_case!(
            "IdentityResponse-none",
            Gmm::IdentityResponse,
            Nas5gsMessage::new_5gmm(NasIdentityResponse::new(NasFGsMobileIdentity::from_no_identity())),
            |response| {
                assert_eq!(response.mobile_identity.identity_type(), Some(MobileIdentityType::NoIdentity));
            }
        ),
    ]
}

fn security_mode() -> Vec<Case> {
    vec![
        nas_case!(
            "SecurityModeCommand",
            Gmm::SecurityModeCommand,
            Nas5gsMessage::new_5gmm(
                NasSecurityModeCommand::new(
                    NasSecurityAlgorithms::from_algorithms(CipheringAlgorithm::NEA2, IntegrityAlgorithm::NIA1),
                    ngksi(3),
                    capability()
                )
                .with_imeisv_request(NasImeisvRequest::from_requested(true))
                .with_additional_5g_security_information(NasAdditional5gSecurityInformation::from_flags(true, false))
            ),
            |command| {
                let algorithms = &command.selected_nas_security_algorithms;
                assert_eq!(algorithms.ciphering(), Some(CipheringAlgorithm::NEA2));
                assert_eq!(algorithms.integrity(), Some(IntegrityAlgorithm::NIA1));
                assert_eq!(command.ngksi.key_set_identifier(), KeySetIdentifier::Native(3));
                let replayed = &command.replayed_ue_security_capabilities;
                assert_eq!((replayed.ea_byte(), replayed.ia_byte()), (0xf0, 0x70));
                assert!(command.imeisv_request.as_ref().is_some_and(|r| r.is_requested()));
                assert!(command.additional_5g_security_information.as_ref().is_some_and(|i| i.rinmr()));
            }
        ),
        nas_case!(
            "SecurityModeComplete",
            Gmm::SecurityModeComplete,
            Nas5gsMessage::new_5gmm(
                NasSecurityModeComplete::new()
                    .with_imeisv(NasFGsMobileIdentity::from_imeisv("4370816125816151").expect("an IMEISV"))
                    .with_nas_message_container(
                        NasMessageContainer::from_nas_message(&registration(null_suci())).expect("a container")
                    )
            ),
            |complete| {
                let imeisv = complete.imeisv.as_ref().and_then(|id| id.as_imeisv()).expect("an IMEISV");
                assert_eq!((imeisv.tac(), imeisv.snr(), imeisv.svn()), ("43708161", "258161", "51"));
                let inner = complete.nas_message_container.as_ref().expect("a container");
                assert_eq!(inner.decode_as_nas_message().expect("a message"), registration(null_suci()));
            }
        ),
        nas_case!(
            "SecurityModeReject",
            Gmm::SecurityModeReject,
            Nas5gsMessage::new_5gmm(NasSecurityModeReject::new(NasFGmmCause::from_cause(
                GmmCause::UeSecurityCapabilitiesMismatch
            ))),
            |reject| {
                assert_eq!(reject.fgmm_cause.cause(), Some(GmmCause::UeSecurityCapabilitiesMismatch));
            }
        ),
        nas_case!(
            "Status",
            Gmm::FiveGmmStatus,
            Nas5gsMessage::new_5gmm(NasFGmmStatus::new(NasFGmmCause::from_cause(
                GmmCause::MessageTypeNonExistentOrNotImplemented
            ))),
            |status| {
                assert_eq!(status.fgmm_cause.cause(), Some(GmmCause::MessageTypeNonExistentOrNotImplemented));
            }
        ),
    ]
}

fn n1_sm() -> NasPayloadContainerType {
    NasPayloadContainerType::from_kind(PayloadContainerKind::N1SmInformation)
}

fn transport() -> Vec<Case> {
    vec![
        nas_case!(
            "ULNASTransport",
            Gmm::UlNasTransport,
            Nas5gsMessage::new_5gmm(
                NasUlNasTransport::new(
                    n1_sm(),
                    NasPayloadContainer::from_n1_sm_message(&establishment()).expect("a container")
                )
                .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(5))
                .with_request_type(NasRequestType::from_request_type(RequestTypeValue::InitialRequest))
                .with_s_nssai(meters())
                .with_dnn(NasDnn::from_string("internet").expect("a DNN"))
            ),
            |transport| {
                assert_eq!(transport.payload_container_type.kind(), Some(PayloadContainerKind::N1SmInformation));
                let inner = transport.payload_container.decode_as_n1_sm_message().expect("a 5GSM message");
                assert_eq!(inner, establishment());
                assert_eq!(transport.pdu_session_id.as_ref().map(|id| id.pdu_session_id()), Some(5));
                assert!(transport.request_type.as_ref().is_some_and(|r| r.is_initial()));
                let slice = transport.s_nssai.as_ref().and_then(|s| s.parse()).expect("an S-NSSAI");
                assert_eq!((slice.sst, slice.sd), (3, Some([0, 0, 0xab])));
                assert_eq!(transport.dnn.as_ref().and_then(|d| d.as_string()).as_deref(), Some("internet"));
            }
        ),
        nas_case!(
            "DLNASTransport",
            Gmm::DlNasTransport,
            Nas5gsMessage::new_5gmm(
                NasDlNasTransport::new(
                    n1_sm(),
                    NasPayloadContainer::from_n1_sm_message(&rejection()).expect("a container")
                )
                .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(5))
                .with_fgmm_cause(NasFGmmCause::from_cause(GmmCause::PayloadWasNotForwarded))
            ),
            |transport| {
                let inner = transport.payload_container.decode_as_n1_sm_message().expect("a 5GSM message");
                assert_eq!(inner, rejection());
                assert_eq!(transport.pdu_session_id.as_ref().map(|id| id.pdu_session_id()), Some(5));
                let cause = transport.fgmm_cause.as_ref().and_then(|c| c.cause());
                assert_eq!(cause, Some(GmmCause::PayloadWasNotForwarded));
            }
        ),
    ]
}
