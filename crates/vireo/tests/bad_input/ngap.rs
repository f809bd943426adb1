//! NGAP PDUs that decode and are invalid (TS 38.413 clauses 8.7 and 10).

use crate::assert_serves_another;
use crate::core::Core;
use crate::device::{Device, plain, registration};
use crate::messages::{self, error_cause};
use crate::ran::Ran;
use vireo_wire::nas::{NasRegistrationComplete, NasServiceRequest};
use vireo_wire::ngap::*;

fn radio_cause(cause: CauseRadioNetwork) -> Cause {
    Cause::radioNetwork(cause)
}

fn diagnostics(pdu: &NGAPPDU<'_>) -> CriticalityDiagnostics {
    pdu.ie::<ie::CriticalityDiagnostics>().expect("Criticality Diagnostics").expect("they decode")
}

fn is_error(pdu: &NGAPPDU<'_>) -> bool {
    pdu.kind() == NgapPduKind::Initiating_ErrorIndication
}

#[test]
fn ng_setup_comes_first() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::connect(&core);
    let early = [
        messages::initial_ue(1, &registration(1).encode().expect("octets"), None),
        messages::uplink_nas(1, 1, &[0x7e, 0, 0x43]),
        messages::partial_reset(1, 1),
    ];
    for pdu in early {
        ran.send(0, &pdu);
        let answer = ran.expect("a message before NG Setup", is_error);
        let cause = error_cause(&answer);
        let allowed = [
            Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state),
            radio_cause(CauseRadioNetwork::unknown_local_UE_NGAP_ID),
        ];
        assert!(allowed.contains(&cause), "{cause:?}");
    }
    ran.assert_silent("after the errors");
    assert_eq!(core.count("ues"), 0, "no context for a node that is not set up");
    ran.send(0, &messages::ng_setup(1));
    ran.expect("NG Setup after them", |pdu| pdu.kind() == NgapPduKind::Successful_NGSetup);
    assert_serves_another(&mut core, 1);
}

#[test]
fn ng_setup_is_refused_with_the_cause() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::connect(&core);
    let one = helpers::s_nssai(1, None);
    let foreign_plmn = messages::ng_setup_with(1, messages::foreign_plmn(), &[one]);
    let sliceless = messages::ng_setup_with(
        1,
        helpers::plmn("999", "70").expect("a PLMN"),
        &[helpers::s_nssai(9, Some([1, 2, 3]))],
    );
    let refusals = [
        (foreign_plmn, Cause::misc(CauseMisc::unknown_PLMN_or_SNPN)),
        (sliceless, radio_cause(CauseRadioNetwork::slice_not_supported)),
    ];
    for (request, cause) in refusals {
        ran.send(0, &request);
        let answer = ran.expect("NG Setup", |pdu| pdu.kind() == NgapPduKind::Unsuccessful_NGSetup);
        assert_eq!(answer.ie::<ie::Cause>().and_then(Result::ok), Some(cause));
    }
    assert_eq!(core.count("gnbs"), 0);
    // Without a mandatory IE the procedure's own failure message refuses it and names the missing
    // IE (10.3.5).
    for id in [ID_GLOBAL_RANNODE_ID, ID_SUPPORTED_TALIST] {
        ran.send(0, &messages::without(&messages::ng_setup(1), id));
        let answer = ran.expect("NG Setup", |pdu| pdu.kind() == NgapPduKind::Unsuccessful_NGSetup);
        let cause = Cause::protocol(CauseProtocol::abstract_syntax_error_reject);
        assert_eq!(answer.ie::<ie::Cause>().and_then(Result::ok), Some(cause));
        let missing = diagnostics(&answer).ies_criticality_diagnostics.expect("the IE");
        assert_eq!((missing.0[0].ie_id, missing.0[0].type_of_error), (id, TypeOfError::missing));
    }
    // An IE that no release has: handled by its criticality (10.3.4.2).
    ran.send(0, &messages::with_unknown_ie(&messages::ng_setup(1), Criticality::reject));
    ran.expect("an unknown IE to reject", |pdu| pdu.kind() == NgapPduKind::Unsuccessful_NGSetup);
    ran.send(0, &messages::with_unknown_ie(&messages::ng_setup(1), Criticality::ignore));
    ran.expect("an unknown IE to ignore", |pdu| pdu.kind() == NgapPduKind::Successful_NGSetup);
    assert_serves_another(&mut core, 1);
}

#[test]
fn unknown_procedures_follow_criticality() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    let initiating = |criticality: u8| vec![0x00, 200, criticality << 6, 4, 0, 0, 0, 0];
    // 10.3.4.1: the core answers reject and notify, and does not answer ignore.
    for (criticality, cause) in
        [(0, CauseProtocol::abstract_syntax_error_reject), (2, CauseProtocol::abstract_syntax_error_ignore_and_notify)]
    {
        ran.send(0, &initiating(criticality));
        let answer = ran.expect("an unknown procedure", is_error);
        assert_eq!(error_cause(&answer), Cause::protocol(cause));
        let diagnostics = diagnostics(&answer);
        assert_eq!(diagnostics.procedure_code.map(|code| code.0), Some(200));
        assert_eq!(diagnostics.triggering_message, Some(TriggeringMessage::initiating_message));
    }
    ran.send(0, &initiating(1));
    ran.assert_silent("an unknown procedure with criticality ignore");
    // The core ignores outcomes of procedures that it never started (10.4).
    ran.send(0, &[0x20, 200, 0, 4, 0, 0, 0, 0]);
    ran.send(0, &[0x40, 200, 0, 4, 0, 0, 0, 0]);
    for message in [messages::context_set_up(0x00ff_0000_1000, 1), messages::release_complete(0x00ff_0000_1000, 1)] {
        ran.send(1, &message);
    }
    let answers = ran.receive_until_silent();
    assert!(answers.iter().all(|octets| NGAP_PDU::decode(octets).is_ok_and(|pdu| is_error(&pdu))), "{answers:02x?}");
    assert_serves_another(&mut core, 1);
}

#[test]
fn missing_mandatory_ie_is_named() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    let initial = messages::initial_ue(9, &registration(1).encode().expect("octets"), None);
    for id in [ID_RAN_UE_NGAP_ID, ID_NAS_PDU, ID_USER_LOCATION_INFORMATION] {
        ran.send(1, &messages::without(&initial, id));
        let answer = ran.expect("INITIAL UE MESSAGE without a mandatory IE", is_error);
        assert_eq!(error_cause(&answer), Cause::protocol(CauseProtocol::abstract_syntax_error_reject));
        let missing = diagnostics(&answer).ies_criticality_diagnostics.expect("the IE");
        assert!(missing.0.iter().any(|ie| ie.ie_id == id && ie.type_of_error == TypeOfError::missing), "{missing:?}");
    }
    assert_eq!(core.count("ues"), 0, "no context for a message that is not acted on");
    let mut device = Device::new(1);
    device.register(&mut ran);
    let uplink = messages::uplink_nas(device.amf_id, device.ran_id, &plain(NasRegistrationComplete::new()));
    for id in [ID_AMF_UE_NGAP_ID, ID_RAN_UE_NGAP_ID, ID_NAS_PDU] {
        ran.send(1, &messages::without(&uplink, id));
        let answer = ran.expect("UPLINK NAS TRANSPORT without a mandatory IE", is_error);
        let missing = diagnostics(&answer).ies_criticality_diagnostics.expect("the IE");
        assert!(missing.0.iter().any(|ie| ie.ie_id == id && ie.type_of_error == TypeOfError::missing), "{missing:?}");
    }
    device.assert_served(&mut ran, "the UE of the broken messages");
    assert_serves_another(&mut core, 2);
}

#[test]
fn foreign_ue_ids_do_not_affect_ue() {
    let mut core = Core::start(4, "");
    let (mut ran, mut other) = (Ran::set_up(&core, 1), Ran::set_up(&core, 2));
    let mut device = Device::new(1);
    device.register(&mut ran);
    let (amf, own) = (device.amf_id, device.ran_id);
    let nas = plain(NasRegistrationComplete::new());
    // 10.6: an AMF-UE-NGAP-ID of no UE, of an earlier connection, and one that does not match the
    // RAN-UE-NGAP-ID.
    let unknown = radio_cause(CauseRadioNetwork::unknown_local_UE_NGAP_ID);
    let inconsistent = radio_cause(CauseRadioNetwork::inconsistent_remote_UE_NGAP_ID);
    for (amf, own, cause) in [
        (0x00ff_ffff_ffff, own, &unknown),
        (amf ^ 1, own, &unknown),
        (amf ^ 1 << 39, own, &unknown),
        (amf, own ^ 1, &inconsistent),
    ] {
        for pdu in [messages::uplink_nas(amf, own, &nas), messages::release_request(amf, own)] {
            ran.send(1, &pdu);
            let answer = ran.expect("ids that are wrong", is_error);
            assert_eq!(error_cause(&answer), *cause);
        }
    }
    // Another gNB names the UE and must not change its state. The core releases the assumed
    // connection only at that gNB.
    for pdu in [
        messages::uplink_nas(amf, own, &nas),
        messages::release_request(amf, own),
        messages::release_complete(amf, own),
        messages::context_set_up(amf, own),
        messages::partial_reset(amf, own),
    ] {
        other.send(1, &pdu);
        for octets in other.receive_until_silent() {
            let answer = NGAP_PDU::decode(&octets).expect("a PDU");
            let harmless = match answer.kind() {
                NgapPduKind::Successful_NGReset => true,
                NgapPduKind::Initiating_UEContextRelease => {
                    let ids = answer.ie::<ie::UE_NGAP_IDs>().expect("UE NGAP IDs").expect("they decode");
                    let theirs = |pair: &UENGAPIDPair| (pair.amf_ue_ngap_id.0, pair.ran_ue_ngap_id.0) == (amf, own);
                    matches!(&ids, UENGAPIDs::uE_NGAP_ID_pair(pair) if theirs(pair))
                }
                _ => is_error(&answer),
            };
            assert!(harmless, "another gNB is answered {answer}");
        }
        device.assert_served(&mut ran, "after another gNB named the UE");
    }
    assert_eq!(core.count("connected"), 1);
    ran.assert_silent("the UE's own gNB hears nothing of it");
    assert_serves_another(&mut core, 2);
}

#[test]
fn foreign_guti_does_not_affect_ue() {
    let mut core = Core::start(4, "");
    let (mut ran, mut other) = (Ran::set_up(&core, 1), Ran::set_up(&core, 2));
    let mut device = Device::new(1);
    device.register(&mut ran);
    let guti = device.guti.expect("a 5G-GUTI");
    let tmsi = guti.tmsi().to_be_bytes();
    // A Service Request with an invalid MAC, and plain messages that name the UE (TS 24.501
    // 4.4.4.3).
    let service = service_request(&guti);
    let forged = [&[0x7e, 1, 0xde, 0xad, 0xbe, 0xef, 0x09][..], &service].concat();
    let deregister = [&[0x7e, 0, 0x45, 0x09, 0, 11][..], &guti.to_nas_octets()].concat();
    for (n, nas) in (0..).zip([&forged, &service, &deregister]) {
        other.send(1, &messages::initial_ue(50 + n, nas, Some(tmsi)));
        other.receive_until_silent();
        device.assert_served(&mut ran, "after a stranger named the UE's 5G-GUTI");
    }
    assert_eq!(core.count("registered"), 1);
    ran.assert_silent("the UE's own gNB hears nothing of it");
    assert_serves_another(&mut core, 2);
}

pub(crate) fn service_request(guti: &vireo_wire::nas::Guti) -> Vec<u8> {
    use vireo_wire::nas::{KeySetIdentifier, NasFGsMobileIdentity, NasKeySetIdentifier, NasServiceType, ServiceType};
    let ngksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(0)).expect("an ngKSI");
    let kind = NasServiceType::from_service_type(ServiceType::Signalling);
    plain(NasServiceRequest::new(ngksi, kind, NasFGsMobileIdentity::from_s_tmsi(guti.s_tmsi())))
}
