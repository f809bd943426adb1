//! 5GMM registration, deregistration and service request messages (TS 24.501 8.2).

use crate::case::{Case, nas_case};
use crate::values::octets;
use vireo_wire::nas::*;

pub(crate) fn plmn() -> Plmn {
    Plmn::new("999", "70").expect("a PLMN")
}

pub(crate) fn guti() -> Guti {
    Guti::new(plmn(), 2, 1, 3, 0xdead_beef).expect("a 5G-GUTI")
}

pub(crate) fn ngksi(value: u8) -> NasKeySetIdentifier {
    let id = if value == 7 { KeySetIdentifier::NoKey } else { KeySetIdentifier::Native(value) };
    NasKeySetIdentifier::from_key_set_identifier(id).expect("a key set identifier")
}

pub(crate) fn null_suci() -> NasFGsMobileIdentity {
    let suci = ImsiSuci::null(plmn(), RoutingIndicator::default(), "0000000001").expect("a SUCI");
    NasFGsMobileIdentity::from_suci(&Suci::Imsi(suci)).expect("a mobile identity")
}

fn concealed(scheme: ProtectionScheme, key: u8, output: &str) -> NasFGsMobileIdentity {
    let suci = ImsiSuci::concealed(plmn(), RoutingIndicator::default(), scheme, key, octets(output)).expect("a SUCI");
    NasFGsMobileIdentity::from_suci(&Suci::Imsi(suci)).expect("a mobile identity")
}

const OUTPUT_A: &str = "b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457dcb02352410cddd9e730ef3fa87";
const OUTPUT_B: &str = "039aab8376597021e855679a9778ea0b67396e68c66df32c0f41e9acca2da9b9d146a33fc2716ac7dae96aa30a4d";

pub(crate) fn capability() -> NasUeSecurityCapability {
    NasUeSecurityCapability::from_capabilities(0xf0, 0x70)
}

pub(crate) fn nssai() -> NasNssai {
    NasNssai::from_snssais(&[NasSNssai::from_sst_sd(1, None), meters()]).expect("an NSSAI")
}

pub(crate) fn meters() -> NasSNssai {
    NasSNssai::from_sst_sd(3, Some([0, 0, 0xab]))
}

fn slices(nssai: &NasNssai) -> Vec<(u8, Option<[u8; 3]>)> {
    nssai.parse_all().iter().map(|s| (s.sst, s.sd)).collect()
}

/// Returns the initial registration with a null-scheme SUCI, which other messages contain.
pub(crate) fn registration(identity: NasFGsMobileIdentity) -> Nas5gsMessage {
    let kind = NasFGsRegistrationType::from_registration_type(RegistrationType::InitialRegistration);
    let request = NasRegistrationRequest::new(kind.with_follow_on_request(true), ngksi(7), identity);
    Nas5gsMessage::new_5gmm(request.with_ue_security_capability(capability()))
}

fn check_registration(request: &NasRegistrationRequest) {
    let kind = &request.fgs_registration_type;
    assert_eq!(kind.registration_type(), Some(RegistrationType::InitialRegistration));
    assert!(kind.follow_on_request() && request.ngksi.no_key_available());
    let capability = request.ue_security_capability.as_ref().expect("a capability");
    assert_eq!((capability.ea_byte(), capability.ia_byte()), (0xf0, 0x70));
}

fn check_concealed(request: &NasRegistrationRequest, scheme: u8, key: u8, output: &str) {
    check_registration(request);
    let Some(Suci::Imsi(suci)) = request.fgs_mobile_identity.as_suci() else { panic!("a SUCI of an IMSI") };
    assert_eq!((suci.plmn(), suci.msin()), (plmn(), None));
    assert_eq!((suci.protection_scheme().identifier(), suci.home_network_public_key_identifier()), (scheme, key));
    assert_eq!(suci.concealed_output(), Some(&octets(output)[..]));
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = requests();
    cases.extend(accepts());
    cases.extend(rejects_and_updates());
    cases.extend(service());
    cases.extend(deregistration());
    cases
}

fn requests() -> Vec<Case> {
    vec![
        nas_case!("RegistrationRequest-null", Gmm::RegistrationRequest, registration(null_suci()), |request| {
            check_registration(request);
            let Some(Suci::Imsi(suci)) = request.fgs_mobile_identity.as_suci() else { panic!("a SUCI of an IMSI") };
            assert_eq!((suci.plmn(), suci.msin()), (plmn(), Some("0000000001")));
            assert_eq!((suci.routing_indicator().as_str(), suci.protection_scheme().identifier()), ("0", 0));
        }),
        nas_case!(
            "RegistrationRequest-A",
            Gmm::RegistrationRequest,
            registration(concealed(ProtectionScheme::PROFILE_A, 27, OUTPUT_A)),
            |request| { check_concealed(request, 1, 27, OUTPUT_A) }
        ),
        nas_case!(
            "RegistrationRequest-B",
            Gmm::RegistrationRequest,
            registration(concealed(ProtectionScheme::PROFILE_B, 28, OUTPUT_B)),
            |request| { check_concealed(request, 2, 28, OUTPUT_B) }
        ),
        nas_case!(
            "RegistrationRequest-GUTI",
            Gmm::RegistrationRequest,
            {
                let kind = RegistrationType::MobilityRegistrationUpdating;
                let kind = NasFGsRegistrationType::from_registration_type(kind);
                let tai = NasFGsTrackingAreaIdentity::from_plmn_tac(&plmn(), 1).expect("a TAI");
                let status = NasPduSessionStatus::from_sessions(&[5, 9]).expect("sessions");
                let data = NasUplinkDataStatus::from_sessions(&[5]).expect("sessions");
                let request = NasRegistrationRequest::new(kind, ngksi(3), NasFGsMobileIdentity::from_guti(guti()));
                Nas5gsMessage::new_5gmm(
                    request
                        .with_ue_security_capability(capability())
                        .with_requested_nssai(nssai())
                        .with_last_visited_registered_tai(tai)
                        .with_uplink_data_status(data)
                        .with_pdu_session_status(status),
                )
            },
            |request| {
                let kind = request.fgs_registration_type.registration_type();
                assert_eq!(kind, Some(RegistrationType::MobilityRegistrationUpdating));
                assert_eq!(request.ngksi.key_set_identifier(), KeySetIdentifier::Native(3));
                assert_eq!(request.fgs_mobile_identity.as_guti(), Some(guti()));
                assert_eq!(
                    request.requested_nssai.as_ref().map(slices),
                    Some(vec![(1, None), (3, Some([0, 0, 0xab]))])
                );
                let tai = request.last_visited_registered_tai.as_ref().and_then(|t| t.tai()).expect("a TAI");
                assert_eq!((tai.plmn(), tai.tac()), (plmn(), 1));
                assert_eq!(request.uplink_data_status.as_ref().map(|s| s.sessions_with_data()), Some(vec![5]));
                assert_eq!(request.pdu_session_status.as_ref().map(|s| s.active_sessions()), Some(vec![5, 9]));
            }
        ),
    ]
}

fn areas() -> NasFGsTrackingAreaIdentityList {
    NasFGsTrackingAreaIdentityList::from_plmn_tacs(&plmn(), &[1, 7]).expect("a TAI list")
}

fn check_areas(list: Option<&NasFGsTrackingAreaIdentityList>) {
    let tais = list.expect("a TAI list").tais();
    let tais: Vec<_> = tais.iter().map(|tai| (tai.plmn(), tai.tac())).collect();
    assert_eq!(tais, [(plmn(), 1), (plmn(), 7)]);
}

/// 001/01 and 262/80 (TS 24.501 9.11.3.45).
const EQUIVALENT: [u8; 6] = [0x00, 0xf1, 0x10, 0x62, 0xf2, 0x08];

fn accepts() -> Vec<Case> {
    vec![
        nas_case!(
            "RegistrationAccept",
            Gmm::RegistrationAccept,
            {
                let result = NasFGsRegistrationResult::from_result(RegistrationResult::ThreeGppAccess);
                let cause = RejectedNssaiCause::NotAvailableInPlmnOrSnpn;
                let rejected = NasRejectedNssai::from_entries(&[(cause, &NasSNssai::from_sst_sd(2, None))]);
                Nas5gsMessage::new_5gmm(
                    NasRegistrationAccept::new(result)
                        .with_fg_guti(NasFGsMobileIdentity::from_guti(guti()))
                        .with_tai_list(areas())
                        .with_allowed_nssai(nssai())
                        .with_rejected_nssai(rejected.expect("a rejected NSSAI"))
                        .with_configured_nssai(nssai())
                        .with_t3512_value(NasT3512Value::from_seconds(9 * 3600).expect("nine hours")),
                )
            },
            |accept| {
                assert_eq!(accept.fgs_registration_result.result_value(), Some(RegistrationResult::ThreeGppAccess));
                assert_eq!(accept.fg_guti.as_ref().and_then(|id| id.as_guti()), Some(guti()));
                check_areas(accept.tai_list.as_ref());
                let both = vec![(1, None), (3, Some([0, 0, 0xab]))];
                assert_eq!(accept.allowed_nssai.as_ref().map(slices), Some(both.clone()));
                assert_eq!(accept.configured_nssai.as_ref().map(slices), Some(both));
                let rejected = accept.rejected_nssai.as_ref().expect("a rejected NSSAI").entries();
                assert_eq!((rejected.len(), rejected[0].0), (1, RejectedNssaiCause::NotAvailableInPlmnOrSnpn));
                assert_eq!((rejected[0].1.sst, rejected[0].1.sd), (2, None));
                assert_eq!(accept.t3512_value.as_ref().and_then(|t| t.to_seconds()), Some(9 * 3600));
            }
        ),
        nas_case!(
            "RegistrationAccept-equivalent-plmns",
            Gmm::RegistrationAccept,
            {
                let result = NasFGsRegistrationResult::from_result(RegistrationResult::ThreeGppAccess);
                Nas5gsMessage::new_5gmm(
                    NasRegistrationAccept::new(result)
                        .with_fg_guti(NasFGsMobileIdentity::from_guti(guti()))
                        .with_equivalent_plmns(NasPlmnList::new(EQUIVALENT.to_vec()))
                        .with_tai_list(areas())
                        .with_allowed_nssai(nssai()),
                )
            },
            |accept| {
                assert_eq!(accept.equivalent_plmns.as_ref().map(|list| list.value.to_vec()), Some(EQUIVALENT.to_vec()));
                check_areas(accept.tai_list.as_ref());
            }
        ),
        nas_case!(
            "RegistrationComplete",
            Gmm::RegistrationComplete,
            Nas5gsMessage::new_5gmm(NasRegistrationComplete::new()),
            |complete| { assert!(complete.sor_transparent_container.is_none()) }
        ),
    ]
}

fn rejects_and_updates() -> Vec<Case> {
    vec![
        nas_case!(
            "RegistrationReject",
            Gmm::RegistrationReject,
            {
                let cause = NasFGmmCause::from_cause(GmmCause::PlmnNotAllowed);
                let timer = NasGprsTimer2::from_seconds(600).expect("ten minutes");
                Nas5gsMessage::new_5gmm(NasRegistrationReject::new(cause).with_t3346_value(timer))
            },
            |reject| {
                assert_eq!(reject.fgmm_cause.cause(), Some(GmmCause::PlmnNotAllowed));
                assert_eq!(reject.t3346_value.as_ref().and_then(|t| t.to_seconds()), Some(600));
            }
        ),
        nas_case!(
            "RegistrationReject-congestion",
            Gmm::RegistrationReject,
            {
                let cause = NasFGmmCause::from_cause(GmmCause::Congestion);
                let timer = NasGprsTimer2::from_seconds(30).expect("half a minute");
                Nas5gsMessage::new_5gmm(NasRegistrationReject::new(cause).with_t3346_value(timer))
            },
            |reject| {
                assert_eq!(reject.fgmm_cause.cause(), Some(GmmCause::Congestion));
                assert_eq!(reject.t3346_value.as_ref().and_then(|t| t.to_seconds()), Some(30));
            }
        ),
        nas_case!(
            "ConfigurationUpdateCommand",
            Gmm::ConfigurationUpdateCommand,
            {
                let indication = NasConfigurationUpdateIndication::from_flags(true, false);
                Nas5gsMessage::new_5gmm(
                    NasConfigurationUpdateCommand::new()
                        .with_configuration_update_indication(indication)
                        .with_fg_guti(NasFGsMobileIdentity::from_guti(guti()))
                        .with_tai_list(areas()),
                )
            },
            |command| {
                let indication = command.configuration_update_indication.as_ref().expect("an indication");
                assert!(indication.ack() && !indication.red());
                assert_eq!(command.fg_guti.as_ref().and_then(|id| id.as_guti()), Some(guti()));
                check_areas(command.tai_list.as_ref());
            }
        ),
        nas_case!(
            "ConfigurationUpdateComplete",
            Gmm::ConfigurationUpdateComplete,
            Nas5gsMessage::new_5gmm(NasConfigurationUpdateComplete::new()),
            |_complete| {}
        ),
    ]
}

fn service() -> Vec<Case> {
    vec![
        nas_case!(
            "ServiceRequest",
            Gmm::ServiceRequest,
            {
                let data = NasUplinkDataStatus::from_sessions(&[5]).expect("sessions");
                let status = NasPduSessionStatus::from_sessions(&[5]).expect("sessions");
                Nas5gsMessage::new_5gmm(
                    NasServiceRequest::new(
                        ngksi(3),
                        NasServiceType::from_service_type(ServiceType::Data),
                        NasFGsMobileIdentity::from_s_tmsi(guti().s_tmsi()),
                    )
                    .with_uplink_data_status(data)
                    .with_pdu_session_status(status),
                )
            },
            |request| {
                assert_eq!(request.service_type.service_type(), Some(ServiceType::Data));
                assert_eq!(request.ngksi.key_set_identifier(), KeySetIdentifier::Native(3));
                assert_eq!(request.fg_s_tmsi.as_s_tmsi(), Some(guti().s_tmsi()));
                assert_eq!(request.uplink_data_status.as_ref().map(|s| s.sessions_with_data()), Some(vec![5]));
            }
        ),
        nas_case!(
            "ServiceAccept",
            Gmm::ServiceAccept,
            {
                let errors =
                    NasPduSessionReactivationResultErrorCause::from_entries(&[(9, GmmCause::LadnNotAvailable)]);
                let failed = NasPduSessionReactivationResult::from_failed_sessions(&[9]).expect("sessions");
                Nas5gsMessage::new_5gmm(
                    NasServiceAccept::new()
                        .with_pdu_session_status(NasPduSessionStatus::from_sessions(&[5]).expect("sessions"))
                        .with_pdu_session_reactivation_result(failed)
                        .with_pdu_session_reactivation_result_error_cause(errors.expect("entries")),
                )
            },
            |accept| {
                assert_eq!(accept.pdu_session_status.as_ref().map(|s| s.active_sessions()), Some(vec![5]));
                let failed = accept.pdu_session_reactivation_result.as_ref();
                assert_eq!(failed.map(|s| s.failed_sessions()), Some(vec![9]));
                let causes = accept.pdu_session_reactivation_result_error_cause.as_ref();
                assert_eq!(causes.map(|c| c.entries()), Some(vec![(9, GmmCause::LadnNotAvailable)]));
            }
        ),
        nas_case!(
            "ServiceReject",
            Gmm::ServiceReject,
            {
                let cause = GmmCause::UeIdentityCannotBeDerivedByTheNetwork;
                Nas5gsMessage::new_5gmm(NasServiceReject::new(NasFGmmCause::from_cause(cause)))
            },
            |reject| {
                assert_eq!(reject.fgmm_cause.cause(), Some(GmmCause::UeIdentityCannotBeDerivedByTheNetwork));
            }
        ),
        nas_case!(
            "ServiceReject-congestion",
            Gmm::ServiceReject,
            {
                let cause = NasFGmmCause::from_cause(GmmCause::Congestion);
                let timer = NasGprsTimer2::from_seconds(42).expect("a multiple of two seconds");
                Nas5gsMessage::new_5gmm(NasServiceReject::new(cause).with_t3346_value(timer))
            },
            |reject| {
                assert_eq!(reject.fgmm_cause.cause(), Some(GmmCause::Congestion));
                assert_eq!(reject.t3346_value.as_ref().and_then(|t| t.to_seconds()), Some(42));
            }
        ),
    ]
}

fn deregistration() -> Vec<Case> {
    fn kind(switch_off: bool, again: bool) -> NasDeRegistrationType {
        NasDeRegistrationType::new(0)
            .with_switch_off(switch_off)
            .with_re_registration_required(again)
            .with_deregistration_access_type(DeregistrationAccessType::ThreeGppAccess)
    }
    vec![
        nas_case!(
            "DeregistrationRequest-UE",
            Gmm::DeregistrationRequestUeOriginating,
            Nas5gsMessage::new_5gmm(NasDeregistrationRequestUeOriginating::new(
                kind(true, false),
                ngksi(3),
                NasFGsMobileIdentity::from_guti(guti())
            )),
            |request| {
                let kind = &request.de_registration_type;
                assert!(kind.switch_off());
                assert_eq!(kind.deregistration_access_type(), Some(DeregistrationAccessType::ThreeGppAccess));
                assert_eq!(request.ngksi.key_set_identifier(), KeySetIdentifier::Native(3));
                assert_eq!(request.fgs_mobile_identity.as_guti(), Some(guti()));
            }
        ),
        nas_case!(
            "DeregistrationAccept-UE",
            Gmm::DeregistrationAcceptUeOriginating,
            Nas5gsMessage::new_5gmm(NasDeregistrationAcceptUeOriginating::new()),
            |_accept| {}
        ),
        nas_case!(
            "DeregistrationRequest-network",
            Gmm::DeregistrationRequestUeTerminated,
            Nas5gsMessage::new_5gmm(
                NasDeregistrationRequestUeTerminated::new(kind(false, true))
                    .with_fgmm_cause(NasFGmmCause::from_cause(GmmCause::Congestion))
            ),
            |request| {
                let kind = &request.de_registration_type;
                assert!(!kind.switch_off() && kind.re_registration_required());
                assert_eq!(request.fgmm_cause.as_ref().and_then(|c| c.cause()), Some(GmmCause::Congestion));
            }
        ),
        nas_case!(
            "DeregistrationAccept-network",
            Gmm::DeregistrationAcceptUeTerminated,
            Nas5gsMessage::new_5gmm(NasDeregistrationAcceptUeTerminated::new()),
            |_accept| {}
        ),
    ]
}
