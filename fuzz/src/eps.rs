//! Fuzz targets of EPS: S1AP PDUs and NAS messages, as octets and as the core reads them.

use vireo_core::amf::access;
use vireo_core::amf::n2::NasIdentity;
use vireo_core::amf::ran;
use vireo_core::config::CoreConfig;
use vireo_core::schedule::kind::NfKind;
use vireo_types::{AssocId, Dialect};
use vireo_wire::nas_eps::{
    AttachType, NasAttachRequest, NasEpsAttachType, NasEpsMessage, NasEpsMobileIdentity, NasEsmMessageContainer,
    NasKeySetIdentifier, NasPdnConnectivityRequest, NasPdnType, NasRequestType, NasUeNetworkCapability, PdnType,
    RequestTypeValue,
};
use vireo_wire::s1ap::helpers::{EnbKind, global_enb_id, tai};
use vireo_wire::s1ap::*;

/// Decodes an S1AP PDU, and reads it as the balancer, the host and the engine do.
pub fn s1ap(data: &[u8]) {
    if let Ok(pdu) = S1AP_PDU::decode(data) {
        let _ = (pdu.kind(), pdu.check().map(|deviations| deviations.len()), pdu.to_string());
        let again = pdu.encode().expect("what is decoded encodes");
        let second = S1AP_PDU::decode(&again).expect("what is encoded decodes");
        assert_eq!(second.encode().expect("it encodes"), again, "an S1AP PDU changes when it is encoded again");
    }
    let _ = (access::peek(Dialect::Eps, data), access::ue_ids(Dialect::Eps, data));
    if let Err(fault) = access::ue_message(Dialect::Eps, data) {
        let answer = access::answer(Dialect::Eps, &fault).unwrap_or_default();
        assert!(answer.is_empty() || S1AP_PDU::decode(&answer).is_ok(), "an answer is a PDU");
    }
    let config = CoreConfig::lab();
    let mut node = None;
    for octets in [data, &set_up()[..], data] {
        let outcome = ran::step_of(AssocId(1).with_dialect(Dialect::Eps), &mut node, octets, &config);
        let answer = outcome.answer.unwrap_or_default();
        assert!(answer.is_empty() || S1AP_PDU::decode(&answer).is_ok(), "an answer is a PDU");
    }
}

/// Decodes a NAS message of EPS, and what the balancer reads of it.
pub fn nas(data: &[u8]) {
    let _ = (NasIdentity::peek_emm(data), NfKind::from_emm(data));
    if let Ok(message) = NasEpsMessage::decode(data) {
        let again = message.encode().expect("what is decoded encodes");
        let second = NasEpsMessage::decode(&again).expect("what is encoded decodes");
        assert_eq!(second.encode().expect("it encodes"), again, "a NAS message changes when it is encoded again");
    }
}

fn plmn() -> PLMNidentity {
    PLMNidentity(TBCDSTRING([0x99, 0xf9, 0x07]))
}

/// Returns the octets of S1 SETUP REQUEST.
fn set_up() -> Vec<u8> {
    let area = SupportedTAsItem::new(TAC([0, 1]), BPLMNs(vec![plmn()]), None);
    let id = global_enb_id(plmn(), EnbKind::Macro, 0x12345).expect("20 bits");
    let pdu = build_s1ap!(
        InitiatingMessage,
        S1Setup,
        S1SetupRequest,
        Global_ENB_ID(id),
        eNBname("enb-1"),
        SupportedTAs(SupportedTAs(vec![area])),
        DefaultPagingDRX(PagingDRX::v128),
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

fn attach() -> Vec<u8> {
    let connect = NasPdnConnectivityRequest::new(
        NasRequestType::from_request_type(RequestTypeValue::Initial),
        NasPdnType::from_pdn_type(PdnType::Ipv4),
    );
    let esm = NasEpsMessage::new_esm(connect, 0, 1).encode().expect("it encodes");
    let request = NasAttachRequest::new(
        NasEpsAttachType::from_attach_type(AttachType::EpsAttach),
        NasKeySetIdentifier::new(7),
        NasEpsMobileIdentity::from_imsi("999700000000001").expect("an IMSI"),
        NasUeNetworkCapability::new(vec![0xe0, 0x60]),
        NasEsmMessageContainer::new(esm),
    );
    NasEpsMessage::new_emm(request).encode().expect("it encodes")
}

/// Returns S1AP PDUs of an eNB.
pub fn s1ap_seeds() -> Vec<Vec<u8>> {
    let cell = EUTRANCGI::new(plmn(), CellIdentity(Bits::low(0x123_4501, 28)), None);
    let initial = build_s1ap!(
        InitiatingMessage,
        initialUEMessage,
        InitialUEMessage,
        eNB_UE_S1AP_ID(7),
        NAS_PDU(attach()),
        TAI(tai(plmn(), [0, 1])),
        EUTRAN_CGI(cell),
        RRC_Establishment_Cause(RRCEstablishmentCause::mo_Signalling),
    );
    let release = build_s1ap!(
        InitiatingMessage,
        UEContextReleaseRequest,
        UEContextReleaseRequest,
        MME_UE_S1AP_ID(0x0123_4567),
        eNB_UE_S1AP_ID(7),
        Cause(Cause::radioNetwork(CauseRadioNetwork::user_inactivity)),
    );
    let address = TransportLayerAddress([127, 0, 0, 2].into());
    let item = ERABSetupItemCtxtSURes::new(ERABID(5), address, GTPTEID([0, 0, 1, 2]), None);
    let set_up_response = build_s1ap_ie!(IGNORE E_RABSetupItemCtxtSURes(item)).and_then(|item| {
        build_s1ap!(
            SuccessfulOutcome,
            InitialContextSetup,
            InitialContextSetupResponse,
            MME_UE_S1AP_ID(0x0123_4567),
            eNB_UE_S1AP_ID(7),
            E_RABSetupListCtxtSURes(ERABSetupListCtxtSURes(vec![item])),
        )
    });
    let mut seeds = vec![set_up()];
    for pdu in [initial, release, set_up_response] {
        seeds.push(pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }
    seeds
}

/// Returns NAS messages of a UE: attach, service and update requests, authentication response and
/// security mode complete.
pub fn nas_seeds() -> Vec<Vec<u8>> {
    vec![
        attach(),
        vec![0xc7, 0x01, 0x12, 0x34],
        vec![0x07, 0x48, 0x03, 0x0b, 0xf6, 0x99, 0xf9, 0x07, 0x02, 0x00, 0x43, 0xde, 0xad, 0xbe, 0xef],
        vec![0x07, 0x53, 0x08, 1, 2, 3, 4, 5, 6, 7, 8],
        vec![0x07, 0x5e],
    ]
}
