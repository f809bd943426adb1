//! Fuzz targets of EPS: S1AP PDUs and NAS messages, as octets and as the core reads them.

use vireo_core::amf::access;
use vireo_core::amf::context::{
    self, CiotFeatures, Connection, KeySet, NasSecurity, RanContext, Registration, UeContext,
};
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::{InitialUeMessage, NasIdentity};
use vireo_core::amf::ran;
use vireo_core::config::{CiotConfig, CoreConfig, DnnConfig};
use vireo_core::schedule::kind::NfKind;
use vireo_core::step::Effect;
use vireo_core::subscription::{DnnSubscription, SliceSubscription, Subscription};
use vireo_core::{Env, Identifiers};
use vireo_types::*;
use vireo_wire::gtpu;
use vireo_wire::nas_eps::{
    AttachType, NasAttachRequest, NasEpsAttachType, NasEpsMessage, NasEpsMobileIdentity, NasEsmMessageContainer,
    NasKeySetIdentifier, NasPdnConnectivityRequest, NasPdnType, NasRequestType, NasUeNetworkCapability, PdnType,
    RequestTypeValue,
};
use vireo_wire::s1ap::helpers::{EnbKind, global_enb_id, tai};
use vireo_wire::s1ap::*;
use vireo_wire::security::nas_eps::{KNasInt, nas_mac};
use vireo_wire::security::{CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount};

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

/// Decodes a NAS message of EPS, and what the balancer reads of it. The engine receives it as first
/// message, and from a registered UE: as it is and under the keys.
pub fn nas(data: &[u8]) {
    let _ = (NasIdentity::peek_emm(data), NfKind::from_emm(data));
    if let Ok(message) = NasEpsMessage::decode(data) {
        let again = message.encode().expect("what is decoded encodes");
        let second = NasEpsMessage::decode(&again).expect("what is encoded decodes");
        assert_eq!(second.encode().expect("it encodes"), again, "a NAS message changes when it is encoded again");
    }
    let message = InitialUeMessage { ran_id: RAN_ID, nas: data.to_vec(), tai: TAI, cell: CELL };
    step(&mut new_ue(), Event::Initial { assoc: assoc(), message });
    // A G-PDU of the UPF with the octets, for a UE whose packets are sent over NAS.
    let g_pdu = [&gtpu::plain_g_pdu_header(Teid(1), data.len()).unwrap_or_default()[..], data].concat();
    step(&mut registered_ue(), Event::Pfcp { seid: Seid::new(registered_ue().ltmsi, 0, 0), message: &g_pdu });
    for header in [1, 5] {
        let mut ue = UeContext { connection: None, ..registered_ue() };
        let message = InitialUeMessage { ran_id: RAN_ID, nas: protected(&ue, header, data), tai: TAI, cell: CELL };
        step(&mut ue, Event::Initial { assoc: assoc(), message });
    }
    for header in [None, Some(1), Some(2), Some(5)] {
        let mut ue = registered_ue();
        let nas = header.map_or(data.to_vec(), |header| protected(&ue, header, data));
        let pdu = uplink(&ue, nas);
        let Some(connection) = ue.connection else { return };
        step(&mut ue, Event::Ngap { assoc: assoc(), amf_id: connection.amf_id, pdu: &pdu });
        assert!(header.is_some() || ue == registered_ue(), "an unprotected message changes a registered UE");
    }
}

const RAN_ID: RanUeNgapId = RanUeNgapId(7);
const PLMN: [u8; 3] = [0x99, 0xf9, 0x07];
const TAI: vireo_types::Tai = vireo_types::Tai { plmn: Plmn::from_ngap(PLMN), tac: Tac(1) };
const CELL: NrCgi = NrCgi { plmn: Plmn::from_ngap(PLMN), cell: 0x123_4501 };

fn assoc() -> AssocId {
    AssocId(1).with_dialect(Dialect::Eps)
}

fn new_ue() -> UeContext {
    UeContext::new(Ltmsi::new(Bucket::new(1), 1))
}

/// Returns the context of a connected UE without bearer, whose messages are not ciphered.
fn registered_ue() -> UeContext {
    let mut ue = new_ue();
    let keys = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA0);
    ue.security = Some(NasSecurity::agreed(KeySet::new(Dialect::Eps, 1), [7; 32], keys.0, keys.1));
    ue.registration = Registration::Registered;
    ue.identity.supi = "999700000000001".parse().ok();
    ue.identity.tmsi = Some(Tmsi(0xc000_0001));
    let snssai = CoreConfig::lab().slices[0].snssai;
    let slice = SliceSubscription { snssai, default: true, dnns: vec![DnnSubscription::default()] };
    ue.subscription = Some(Subscription { slices: vec![slice], ..Subscription::default() }.into());
    ue.allowed = [snssai].into_iter().collect();
    ue.reachability.paging.ciot.accepted = CiotFeatures { without_pdn: true, control_plane: true };
    let amf_id = AmfUeNgapId::new(ue.ltmsi, 1);
    ue.connection =
        Some(Connection { assoc: assoc(), ran_id: RAN_ID, amf_id, tai: TAI, cell: CELL, ran: RanContext::SetUp });
    ue
}

/// Protects an uplink message under the UE's keys. EEA0 leaves it as it is.
fn protected(ue: &UeContext, header: u8, plain: &[u8]) -> Vec<u8> {
    let Some(keys) = &ue.security else { return Vec::new() };
    let counted = [&[0], plain].concat();
    let key = KNasInt::new(&keys.knas_int);
    let mac = nas_mac(&key, NasCount::ZERO, Direction::Uplink, &counted, IntegrityAlgorithm::EIA2);
    [&[header << 4 | 7][..], &mac.to_be_bytes(), &counted].concat()
}

fn uplink(ue: &UeContext, nas: Vec<u8>) -> Vec<u8> {
    let id = ue.connection.map_or(0, |connection| connection.amf_id.mme());
    let pdu = build_s1ap!(
        InitiatingMessage,
        uplinkNASTransport,
        UplinkNASTransport,
        MME_UE_S1AP_ID(id),
        eNB_UE_S1AP_ID(RAN_ID.0),
        NAS_PDU(nas),
        EUTRAN_CGI(EUTRANCGI::new(plmn(), CellIdentity(Bits::low(CELL.cell, 28)), None)),
        TAI(tai(plmn(), [0, 1])),
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

/// Runs a step, and asserts that its PDUs have no fault and that the context can be stored.
fn step(ue: &mut UeContext, event: Event<'_>) {
    let mut config = CoreConfig { ciot: CiotConfig { without_pdn: true, control_plane: true }, ..CoreConfig::lab() };
    config.dnns.push(DnnConfig { name: "sos".parse().expect("a DNN"), ..config.dnns[0].clone() });
    config.eps.emergency.eps = "sos".parse().ok();
    config.information.full_name = "Vireo".into();
    let mut random = |octets: &mut [u8]| octets.fill(0x5a);
    let now = Instant(1_000_000);
    let mut ids = Ids(0);
    let mut env = Env { now, arrived: now, config: &config, random: &mut random, ids: &mut ids, ran: &() };
    for effect in engine::step(ue, event, &mut env).effects {
        if let Effect::Ngap { pdu, .. } = effect {
            let pdu = S1AP_PDU::decode(&pdu).expect("a PDU");
            assert_eq!(pdu.check().expect("it decodes"), vec![], "a PDU of the core has no fault");
        }
    }
    let octets = context::encode(ue, Vec::new()).expect("it encodes");
    assert_eq!(context::decode(&octets).as_ref(), Ok(&*ue), "a context is all in its stored form");
}

struct Ids(u32);

impl Identifiers for Ids {
    fn tmsi(&mut self, _: Ltmsi) -> Option<Tmsi> {
        self.0 += 1;
        Some(Tmsi(0xc000_0100 + self.0))
    }

    fn rekey(&mut self, _: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        None
    }

    fn address(&mut self, _: &Dnn, _: PduSessionType) -> Option<SessionAddress> {
        Some(SessionAddress { ipv4: Some([10, 45, 0, 2].into()), ipv6_prefix: None })
    }
}

fn plmn() -> PLMNidentity {
    PLMNidentity(TBCDSTRING(PLMN))
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

fn attach(kind: AttachType, connection: RequestTypeValue) -> Vec<u8> {
    let connect = NasPdnConnectivityRequest::new(
        NasRequestType::from_request_type(connection),
        NasPdnType::from_pdn_type(PdnType::Ipv4),
    );
    let esm = NasEpsMessage::new_esm(connect, 0, 1).encode().expect("it encodes");
    let request = NasAttachRequest::new(
        NasEpsAttachType::from_attach_type(kind),
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
        NAS_PDU(attach(AttachType::EpsAttach, RequestTypeValue::Initial)),
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
        attach(AttachType::EpsAttach, RequestTypeValue::Initial),
        attach(AttachType::EpsEmergencyAttach, RequestTypeValue::Emergency),
        // PDN CONNECTIVITY REQUEST, emergency.
        vec![0x02, 0x08, 0xd0, 0x14],
        vec![0xc7, 0x01, 0x12, 0x34],
        vec![0x07, 0x48, 0x03, 0x0b, 0xf6, 0x99, 0xf9, 0x07, 0x02, 0x00, 0x43, 0xde, 0xad, 0xbe, 0xef],
        vec![0x07, 0x53, 0x08, 1, 2, 3, 4, 5, 6, 7, 8],
        vec![0x07, 0x5e],
        vec![0x02, 0x07, 0xd0, 0x31, 0x28, 0x04, 0x03, b'i', b'm', b's'],
        vec![0x02, 0x07, 0xd2, 0x05],
        vec![0x02, 0x07, 0xd4, 0x05, 0x01, 0x00, 0x01, 0x09],
        vec![0x07, 0x4d, 0x10],
        vec![0x07, 0x4d, 0x10, 0x78, 0, 10, 0x52, 0, 0xeb, 0, 4, 0x45, 0, 0, 4, 0xf1],
        vec![0x52, 0, 0xeb, 0, 4, 0x45, 0, 0, 4],
        vec![0x07, 0x43, 0, 3, 0x02, 0, 0xdc],
        vec![0x07, 0x4c, 0x00, 0x05, 0xf4, 0xde, 0xad, 0xbe, 0xef],
        vec![0x07, 0x45, 0x01, 0x0b, 0xf6, 0x99, 0xf9, 0x07, 0x02, 0x00, 0x43, 0xde, 0xad, 0xbe, 0xef],
    ]
}
