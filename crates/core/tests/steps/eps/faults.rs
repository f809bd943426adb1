//! Faulty S1AP messages and their answers (TS 36.413 clause 10).

use super::attached;
use super::network::{ASSOC, Network, assoc};
use crate::golden;
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::Route;
use vireo_core::amf::{access, ran};
use vireo_core::config::CoreConfig;
use vireo_core::step::Effect;
use vireo_types::{AmfUeNgapId, Dialect};
use vireo_wire::s1ap::*;

/// eNB UE S1AP ID of the test network.
const ENB_ID: u32 = 0x00ab_cdef;

/// Returns cause, MME UE S1AP ID, eNB UE S1AP ID and diagnostics of an ERROR INDICATION.
fn indication(octets: &[u8]) -> (Cause, Option<u32>, Option<u32>, Option<CriticalityDiagnostics>) {
    let pdu = S1AP_PDU::decode(octets).expect("a PDU");
    assert_eq!((pdu.kind(), pdu.check().expect("it decodes")), (S1apPduKind::Initiating_ErrorIndication, vec![]));
    let mme = pdu.ie::<ie::MME_UE_S1AP_ID>().map(|id| id.expect("a number").0);
    let enb = pdu.ie::<ie::eNB_UE_S1AP_ID>().map(|id| id.expect("a number").0);
    let diagnostics = pdu.ie::<ie::CriticalityDiagnostics>().map(|d| d.expect("diagnostics"));
    (pdu.ie::<ie::Cause>().expect("a cause").expect("a cause"), mme, enb, diagnostics)
}

/// Returns the answer to a message that is not about one UE, of an eNB that is set up.
fn node_answer(octets: &[u8]) -> Option<Vec<u8>> {
    let mut network = Network::new();
    let node = &mut network.nodes.0[0].1;
    ran::step_of(assoc(0), node, octets, &CoreConfig::lab()).answer
}

/// Returns the answer to a UE-associated message that is faulty in itself.
fn ue_answer(octets: &[u8]) -> Option<Vec<u8>> {
    let fault = access::ue_message(Dialect::Eps, octets).err()?;
    access::answer(Dialect::Eps, &fault)
}

/// UPLINK NAS TRANSPORT with IEs, as octets.
fn uplink(ies: Vec<ProtocolIEField<'_>>) -> Vec<u8> {
    let message = UplinkNASTransport::new(ProtocolIEContainer(ies));
    S1AP_PDU::of_message(&message, UplinkNASTransport::CRITICALITY).and_then(|pdu| pdu.encode()).expect("it encodes")
}

/// 10.2.
#[test]
fn other_octets_are_transfer_syntax_errors() {
    let sound = super::network::uplink_nas(0x0100_0001, ENB_ID, &[0x07, 0x46]);
    for octets in [&[][..], &[0xff], &[0x00, 13], &sound[..sound.len() - 1]] {
        for answer in [node_answer(octets), ue_answer(octets)] {
            let (cause, ..) = indication(&answer.expect("an answer"));
            assert_eq!(cause, Cause::protocol(CauseProtocol::transfer_syntax_error), "{octets:02x?}");
        }
        assert!(access::peek(Dialect::Eps, octets).is_err(), "{octets:02x?}");
    }
}

/// 10.3.4.1: the criticality of an unknown procedure selects the answer.
#[test]
fn unknown_procedure_is_answered_by_criticality() {
    let pdu = |criticality: u8| [0x00, 200, criticality << 6, 3, 0, 0, 0];
    let reject = (0, CauseProtocol::abstract_syntax_error_reject, Criticality::reject);
    let notify = (2, CauseProtocol::abstract_syntax_error_ignore_and_notify, Criticality::notify);
    for (code, wanted, criticality) in [reject, notify] {
        let (cause, mme, enb, diagnostics) = indication(&node_answer(&pdu(code)).expect("an answer"));
        assert_eq!((cause, mme, enb), (Cause::protocol(wanted), None, None));
        let diagnostics = diagnostics.expect("diagnostics");
        assert_eq!(diagnostics.procedure_code, Some(ProcedureCode(200)));
        assert_eq!(diagnostics.triggering_message, Some(TriggeringMessage::initiating_message));
        assert_eq!(diagnostics.procedure_criticality, Some(criticality));
    }
    assert_eq!(node_answer(&pdu(1)), None, "ignore");
}

/// 10.3.5: a missing IE of criticality reject.
#[test]
fn missing_ie_is_answered_with_diagnostics() {
    let octets = uplink(vec![
        build_s1ap_ie!(UplinkNASTransport, MME_UE_S1AP_ID(0x0100_0001)).expect("an IE"),
        build_s1ap_ie!(UplinkNASTransport, eNB_UE_S1AP_ID(ENB_ID)).expect("an IE"),
    ]);
    let (cause, mme, enb, diagnostics) = indication(&ue_answer(&octets).expect("an answer"));
    assert_eq!(cause, Cause::protocol(CauseProtocol::abstract_syntax_error_reject));
    assert_eq!((mme, enb), (Some(0x0100_0001), Some(ENB_ID)));
    let items = diagnostics.and_then(|d| d.ies_criticality_diagnostics).expect("items");
    let missing = |item: &&CriticalityDiagnosticsIEItem| item.type_of_error == TypeOfError::missing;
    // NAS-PDU is IE 26; TAI and EUTRAN CGI have criticality ignore.
    assert!(items.0.iter().filter(missing).any(|item| item.ie_id == ProtocolIEID(26)), "{items:?}");
}

/// 10.3.5: a message about a UE that does not name the UE.
#[test]
fn missing_ue_id_is_answered_with_diagnostics() {
    // NAS NON DELIVERY INDICATION, LOCATION REPORT and its failure indication, without IEs.
    for code in [16, 32, 33] {
        let octets = [0x00, code, 1 << 6, 3, 0, 0, 0];
        let (cause, mme, enb, diagnostics) = indication(&node_answer(&octets).expect("an answer"));
        assert_eq!(cause, Cause::protocol(CauseProtocol::abstract_syntax_error_reject), "{code}");
        let items = diagnostics.and_then(|d| d.ies_criticality_diagnostics).expect("items");
        assert!(items.0.iter().any(|item| item.ie_id == ProtocolIEID(0)), "{code}: {items:?}");
        assert_eq!((mme, enb), (None, None));
    }
}

/// 10.4: a request that only an MME sends, whatever its criticality.
#[test]
fn requests_of_an_mme_are_refused() {
    let refused = Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state);
    for name in ["InitialContextSetupRequest", "DownlinkNASTransport", "E-RABSetupRequest", "MMEStatusTransfer"] {
        let octets = golden::eps(name);
        assert!(matches!(access::route(Dialect::Eps, &octets), Ok(Route::Ue(_))), "{name}");
        let (cause, mme, enb, _) = indication(&ue_answer(&octets).expect("an answer"));
        assert_eq!((cause, mme.is_some(), enb.is_some()), (refused.clone(), true, true), "{name}");
    }
    for name in ["Paging", "OverloadStart", "MMEConfigurationUpdate", "MMEConfigurationTransfer"] {
        let octets = golden::eps(name);
        assert_eq!(access::route(Dialect::Eps, &octets).ok(), Some(Route::Node), "{name}");
        let (cause, ..) = indication(&node_answer(&octets).expect("an answer"));
        assert_eq!(cause, refused, "{name}");
    }
}

/// 10.3.4.1: procedures of an eNB that this MME does not serve, by the criticality of each: UE
/// context suspension and resumption, CSG membership, relocation of CIoT UEs, radio capability IDs
/// and early status transfer; RIM, traces, public warning and positioning.
#[test]
fn unserved_procedure_is_answered_by_criticality() {
    for code in [53, 55, 56, 58, 60, 63, 65] {
        let octets = [0x00, code, 0, 3, 0, 0, 0];
        let (cause, ..) = indication(&node_answer(&octets).expect("an answer"));
        assert_eq!(cause, Cause::protocol(CauseProtocol::abstract_syntax_error_reject), "{code}");
    }
    for code in [20, 28, 37, 39, 42, 45, 47, 49, 51, 57] {
        let octets = [0x00, code, 1 << 6, 3, 0, 0, 0];
        assert_eq!(node_answer(&octets), None, "{code}");
    }
}

/// 10.4, 10.6: messages of a connection that does not exist, or of another one.
#[test]
fn message_of_other_connection_changes_nothing() {
    let mut network = attached();
    let mme = network.mme_id.expect("a connection");
    let before = network.context().expect("a context");
    let assoc = ASSOC.with_dialect(Dialect::Eps);
    let mut answer = |mme: u32, pdu: &[u8]| -> Vec<Vec<u8>> {
        let mut ue = network.context().expect("a context");
        let event = Event::Ngap { assoc, amf_id: AmfUeNgapId::from_mme(mme), pdu };
        let effects = network.try_step(&mut ue, event).effects;
        assert_eq!(ue, before, "the connection stays");
        effects.into_iter().filter_map(|e| if let Effect::Ngap { pdu, .. } = e { Some(pdu) } else { None }).collect()
    };
    // Another eNB UE S1AP ID.
    let sent = answer(mme, &super::network::uplink_nas(mme, ENB_ID + 1, &[0x07, 0x46]));
    let (cause, ..) = indication(&sent[0]);
    assert_eq!(cause, Cause::radioNetwork(CauseRadioNetwork::unknown_pair_ue_s1ap_id));
    // Another MME UE S1AP ID of the UE.
    let other = mme ^ 1;
    let sent = answer(other, &super::network::uplink_nas(other, ENB_ID, &[0x07, 0x46]));
    let (cause, ids, ..) = indication(&sent[0]);
    assert_eq!((cause, ids), (Cause::radioNetwork(CauseRadioNetwork::unknown_mme_ue_s1ap_id), Some(other)));
    // The end of an earlier connection, and a fault that the eNB reports of it.
    let complete = build_s1ap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        MME_UE_S1AP_ID(other),
        eNB_UE_S1AP_ID(ENB_ID),
    );
    let error = build_s1ap!(
        InitiatingMessage,
        ErrorIndication,
        ErrorIndication,
        MME_UE_S1AP_ID(other),
        eNB_UE_S1AP_ID(ENB_ID),
        Cause(Cause::protocol(CauseProtocol::semantic_error)),
    );
    for pdu in [complete, error] {
        let octets = pdu.and_then(|pdu| pdu.encode()).expect("it encodes");
        assert!(answer(other, &octets).is_empty());
        assert!(engine::unknown_ue(Dialect::Eps, &octets).is_none(), "neither without a context");
    }
}

/// 10.1: no ERROR INDICATION is answered, whatever its fault.
#[test]
fn error_indication_is_never_answered() {
    let message = ErrorIndication::new(ProtocolIEContainer(Vec::new()));
    let empty = S1AP_PDU::of_message(&message, ErrorIndication::CRITICALITY).and_then(|pdu| pdu.encode());
    let empty = empty.expect("it encodes");
    assert_eq!(node_answer(&empty), None);
    assert_eq!(ue_answer(&empty), None);
}

/// 10.4: an outcome without a request is ignored.
#[test]
fn outcome_without_request_is_ignored() {
    let message = MMEConfigurationUpdateAcknowledge::new(ProtocolIEContainer(Vec::new()));
    let pdu = S1AP_PDU::of_message(&message, MMEConfigurationUpdateAcknowledge::CRITICALITY);
    assert_eq!(node_answer(&pdu.and_then(|pdu| pdu.encode()).expect("it encodes")), None);
    // A set-up response that nothing awaits.
    let network = attached();
    let before = network.context().expect("a context");
    let mme = network.mme_id.expect("a connection");
    let mut network = network;
    let list = ERABSetupListBearerSURes(Vec::new());
    let response = build_s1ap!(
        SuccessfulOutcome,
        E_RABSetup,
        ERABSetupResponse,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(ENB_ID),
        E_RABSetupListBearerSURes(list),
    );
    if let Ok(octets) = response.and_then(|pdu| pdu.encode()) {
        network.take_from_enb(&octets);
    }
    let mut after = network.context().expect("a context");
    after.sequence = before.sequence;
    assert_eq!(after, before);
}
