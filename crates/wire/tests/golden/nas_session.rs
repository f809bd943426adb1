//! 5GSM messages (TS 24.501 8.3).

use crate::case::{Case, nas_case};
use crate::nas_mobility::meters;
use vireo_wire::nas::*;

/// DNS Server IPv4 Address and IPv4 Link MTU (TS 24.008 10.5.6.3).
const DNS: u16 = 0x000d;
const MTU: u16 = 0x0010;

fn options(direction: PcoDirection, dns: &[u8], mtu: &[u8]) -> NasExtendedProtocolConfigurationOptions {
    let entry = |identifier, contents: &[u8]| PcoEntry { identifier, contents: contents.to_vec() };
    let options = Pco::new(0, vec![entry(DNS, dns), entry(MTU, mtu)]);
    NasExtendedProtocolConfigurationOptions::from_pco(&options, direction).expect("options")
}

fn gsm_cause(cause: GsmCause) -> NasFGsmCause {
    NasFGsmCause::from_cause(cause)
}

/// Returns the request in a UL NAS Transport.
pub(crate) fn establishment() -> Nas5gsMessage {
    let rates = NasIntegrityProtectionMaximumDataRate::from_rates(MaxDataRate::FullRate, MaxDataRate::FullRate);
    let request = NasPduSessionEstablishmentRequest::new(rates)
        .with_pdu_session_type(NasPduSessionType::from_session_type(PduSessionTypeValue::Ipv4v6))
        .with_ssc_mode(NasSscMode::from_mode(SscModeValue::Ssc1))
        .with_extended_protocol_configuration_options(options(PcoDirection::Uplink, &[], &[]));
    Nas5gsMessage::new_5gsm(request, 5, 1)
}

/// Returns the reject in a DL NAS Transport.
pub(crate) fn rejection() -> Nas5gsMessage {
    let reject = NasPduSessionEstablishmentReject::new(gsm_cause(GsmCause::MissingOrUnknownDnn))
        .with_back_off_timer_value(NasGprsTimer3::new(vec![0x8a]));
    Nas5gsMessage::new_5gsm(reject, 5, 1)
}

fn accept() -> Nas5gsMessage {
    let all = QosPacketFilter::Match {
        direction: QosPacketFilterDirection::Bidirectional,
        identifier: 1,
        components: vec![QosPacketFilterComponent::MatchAll],
    };
    let rule = QosRule::new(1, QosRuleOpCode::Create)
        .with_default_rule(true)
        .with_packet_filters(vec![all])
        .with_precedence(255)
        .with_qfi(1);
    let flow = QosFlowDescription::new(1, QosFlowOpCode::Create, true, vec![QosFlowParameter::FiveQi(9)]);
    let accept = NasPduSessionEstablishmentAccept::new(
        NasPduSessionType::from_session_type(PduSessionTypeValue::Ipv4v6),
        NasSscMode::from_mode(SscModeValue::Ssc1),
        NasQosRules::from_rules(&[rule]).expect("rules"),
        NasSessionAmbr::from_raw_fields(6, 500, 6, 100),
    )
    .with_fgsm_cause(gsm_cause(GsmCause::PduSessionTypeIpv4OnlyAllowed))
    .with_pdu_address(NasPduAddress::from_ipv4v6([0, 0, 0, 0, 0, 0, 0, 5], [10, 45, 0, 5]))
    .with_s_nssai(meters())
    .with_authorized_qos_flow_descriptions(NasQosFlowDescriptions::from_descriptions(&[flow]).expect("flows"))
    .with_extended_protocol_configuration_options(options(PcoDirection::Downlink, &[8, 8, 8, 8], &[0x05, 0x78]))
    .with_dnn(NasDnn::from_string("internet").expect("a DNN"));
    Nas5gsMessage::new_5gsm(accept, 5, 1)
}

fn check_accept(accept: &NasPduSessionEstablishmentAccept) {
    assert_eq!(accept.selected_pdu_session_type.session_type(), Some(PduSessionTypeValue::Ipv4v6));
    assert_eq!(accept.selected_ssc_mode.mode(), Some(SscModeValue::Ssc1));
    let rules = accept.authorized_qos_rules.rules();
    assert_eq!((rules.len(), rules[0].rule_id, rules[0].dqr), (1, 1, true));
    assert_eq!((rules[0].precedence, rules[0].qfi), (Some(255), Some(1)));
    let QosPacketFilter::Match { direction, identifier: 1, components } = &rules[0].packet_filters[0] else {
        panic!("the filter is {:?}", rules[0].packet_filters)
    };
    assert_eq!(*direction, QosPacketFilterDirection::Bidirectional);
    assert_eq!(*components, [QosPacketFilterComponent::MatchAll]);
    let ambr = &accept.session_ambr;
    assert_eq!((ambr.downlink_kbps(), ambr.uplink_kbps()), (Some(500_000), Some(100_000)));
    let cause = accept.fgsm_cause.as_ref().and_then(|c| c.cause());
    assert_eq!(cause, Some(GsmCause::PduSessionTypeIpv4OnlyAllowed));
    let address = accept.pdu_address.as_ref().expect("an address");
    assert_eq!(address.ipv4(), Some([10, 45, 0, 5]));
    assert_eq!(address.ipv6_interface_id(), Some([0, 0, 0, 0, 0, 0, 0, 5]));
    let flows = accept.authorized_qos_flow_descriptions.as_ref().expect("flows").descriptions();
    assert_eq!((flows.len(), flows[0].qfi, &flows[0].params[..]), (1, 1, &[QosFlowParameter::FiveQi(9)][..]));
    let options = accept.extended_protocol_configuration_options.as_ref().expect("options");
    let options = options.pco(PcoDirection::Downlink).expect("options that parse");
    assert_eq!(options.entry(DNS).map(|e| &e.contents[..]), Some(&[8, 8, 8, 8][..]));
    assert_eq!(options.entry(MTU).map(|e| &e.contents[..]), Some(&1400_u16.to_be_bytes()[..]));
    assert_eq!(accept.dnn.as_ref().and_then(|d| d.as_string()).as_deref(), Some("internet"));
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = establishments();
    cases.extend(releases());
    cases
}

fn identities(header: &Nas5gsmHeader) -> (u8, u8) {
    (header.pdu_session_identity, header.procedure_transaction_identity)
}

fn establishments() -> Vec<Case> {
    vec![
        nas_case!("PDUSessionEstablishmentRequest", Gsm::PduSessionEstablishmentRequest, establishment(), |decoded| {
            let (header, request) = decoded;
            assert_eq!(identities(header), (5, 1));
            let rates = &request.integrity_protection_maximum_data_rate;
            assert_eq!((rates.ul(), rates.dl()), (Some(MaxDataRate::FullRate), Some(MaxDataRate::FullRate)));
            let kind = request.pdu_session_type.as_ref().and_then(|t| t.session_type());
            assert_eq!(kind, Some(PduSessionTypeValue::Ipv4v6));
            assert_eq!(request.ssc_mode.as_ref().and_then(|m| m.mode()), Some(SscModeValue::Ssc1));
            let options = request.extended_protocol_configuration_options.as_ref().expect("options");
            let options = options.pco(PcoDirection::Uplink).expect("options that parse");
            assert!(options.entry(DNS).is_some() && options.entry(MTU).is_some());
        }),
        nas_case!("PDUSessionEstablishmentAccept", Gsm::PduSessionEstablishmentAccept, accept(), |decoded| {
            assert_eq!(identities(decoded.0), (5, 1));
            check_accept(decoded.1);
        }),
        nas_case!("PDUSessionEstablishmentReject", Gsm::PduSessionEstablishmentReject, rejection(), |decoded| {
            let (header, reject) = decoded;
            assert_eq!(identities(header), (5, 1));
            assert_eq!(reject.fgsm_cause.cause(), Some(GsmCause::MissingOrUnknownDnn));
            assert_eq!(reject.back_off_timer_value.as_ref().and_then(|t| t.to_seconds()), Some(300));
        }),
    ]
}

/// The flow is modified (3), with 5QI 7 as its only parameter.
fn modification() -> Nas5gsMessage {
    let command = NasPduSessionModificationCommand::new()
        .with_session_ambr(NasSessionAmbr::from_raw_fields(6, 10, 6, 5))
        .with_authorized_qos_flow_descriptions(NasQosFlowDescriptions::new(vec![1, 0x60, 0x41, 1, 1, 7]));
    Nas5gsMessage::new_5gsm(command, 5, 0)
}

fn releases() -> Vec<Case> {
    vec![
        nas_case!("PDUSessionModificationCommand", Gsm::PduSessionModificationCommand, modification(), |decoded| {
            assert_eq!(identities(decoded.0), (5, 0));
            let ambr = decoded.1.session_ambr.as_ref().expect("a rate");
            assert_eq!((ambr.downlink_kbps(), ambr.uplink_kbps()), (Some(10_000), Some(5_000)));
            let flows = decoded.1.authorized_qos_flow_descriptions.as_ref().expect("flows").descriptions();
            assert_eq!((flows.len(), flows[0].qfi, &flows[0].params[..]), (1, 1, &[QosFlowParameter::FiveQi(7)][..]));
        }),
        nas_case!(
            "PDUSessionModificationComplete",
            Gsm::PduSessionModificationComplete,
            Nas5gsMessage::new_5gsm(NasPduSessionModificationComplete::new(), 5, 0),
            |decoded| { assert_eq!(identities(decoded.0), (5, 0)) }
        ),
        nas_case!(
            "PDUSessionReleaseRequest",
            Gsm::PduSessionReleaseRequest,
            Nas5gsMessage::new_5gsm(
                NasPduSessionReleaseRequest::new().with_fgsm_cause(gsm_cause(GsmCause::RegularDeactivation)),
                5,
                2
            ),
            |decoded| {
                assert_eq!(identities(decoded.0), (5, 2));
                let cause = decoded.1.fgsm_cause.as_ref().and_then(|c| c.cause());
                assert_eq!(cause, Some(GsmCause::RegularDeactivation));
            }
        ),
        nas_case!(
            "PDUSessionReleaseReject",
            Gsm::PduSessionReleaseReject,
            Nas5gsMessage::new_5gsm(
                NasPduSessionReleaseReject::new(gsm_cause(GsmCause::InvalidPduSessionIdentity)),
                5,
                2
            ),
            |decoded| { assert_eq!(decoded.1.fgsm_cause.cause(), Some(GsmCause::InvalidPduSessionIdentity)) }
        ),
        nas_case!(
            "PDUSessionReleaseCommand",
            Gsm::PduSessionReleaseCommand,
            Nas5gsMessage::new_5gsm(NasPduSessionReleaseCommand::new(gsm_cause(GsmCause::RegularDeactivation)), 5, 2),
            |decoded| { assert_eq!(decoded.1.fgsm_cause.cause(), Some(GsmCause::RegularDeactivation)) }
        ),
        nas_case!(
            "PDUSessionReleaseComplete",
            Gsm::PduSessionReleaseComplete,
            Nas5gsMessage::new_5gsm(NasPduSessionReleaseComplete::new(), 5, 2),
            |decoded| { assert_eq!(identities(decoded.0), (5, 2)) }
        ),
        nas_case!(
            "5GSMStatus",
            Gsm::FiveGsmStatus,
            Nas5gsMessage::new_5gsm(
                NasFGsmStatus::new(gsm_cause(GsmCause::MessageTypeNotCompatibleWithTheProtocolState)),
                5,
                0
            ),
            |decoded| {
                let cause = decoded.1.fgsm_cause.cause();
                assert_eq!(cause, Some(GsmCause::MessageTypeNotCompatibleWithTheProtocolState));
            }
        ),
    ]
}
