//! S1AP of the scripted MME: PDUs received and built with the codec.

use std::net::Ipv4Addr;
use vireo_wire::s1ap::*;
use vireo_wire::s1ap::{build_s1ap, build_s1ap_ie, extract_s1ap_ies};

/// MME-UE-S1AP-ID and eNB-UE-S1AP-ID.
pub(crate) type Connection = (u32, u32);

/// E-RAB with the eNB's tunnel end.
pub(crate) type BearerEnd = (u8, (Ipv4Addr, u32));

/// PDU of an eNB.
pub(crate) enum Uplink {
    Setup,
    InitialUe {
        enb: u32,
        nas: Vec<u8>,
        m_tmsi: Option<u32>,
    },
    Nas {
        mme: u32,
        nas: Vec<u8>,
    },
    Tunnels {
        mme: u32,
        tunnels: Vec<BearerEnd>,
    },
    Capability,
    ReleaseRequest(Connection),
    ReleaseComplete {
        mme: u32,
    },
    Reset {
        whole: bool,
    },
    Update,
    /// An answer that the MME awaits and does not use.
    Answer,
    /// A PDU that the specification does not allow, or that the MME does not expect.
    Bad(String),
}

/// Decodes a PDU and checks it against the object sets of TS 36.413.
pub(crate) fn read(octets: &[u8]) -> Uplink {
    match try_read(octets) {
        Ok(uplink) => uplink,
        Err(error) => Uplink::Bad(error.to_string()),
    }
}

fn try_read(octets: &[u8]) -> Result<Uplink, Error> {
    use S1apPduKind as Kind;
    let pdu = S1AP_PDU::decode(octets)?;
    let deviations = pdu.check()?;
    if !deviations.is_empty() {
        return Ok(Uplink::Bad(format!("{pdu}: {deviations:?}")));
    }
    Ok(match pdu.kind() {
        Kind::Initiating_S1Setup => Uplink::Setup,
        Kind::Initiating_initialUEMessage => {
            extract_s1ap_ies!(&pdu, InitialUEMessage,
                req enb: u32 = eNB_UE_S1AP_ID(id),
                req nas: NASPDU = NAS_PDU(nas) => nas,
                opt s_tmsi: STMSI = S_TMSI(id) => id,
            );
            let m_tmsi = s_tmsi.map(|id| u32::from_be_bytes(id.m_tmsi.0));
            Uplink::InitialUe { enb, nas: nas.0.to_vec(), m_tmsi }
        }
        Kind::Initiating_uplinkNASTransport => {
            extract_s1ap_ies!(&pdu, UplinkNASTransport,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req nas: NASPDU = NAS_PDU(nas) => nas,
            );
            Uplink::Nas { mme, nas: nas.0.to_vec() }
        }
        Kind::Successful_InitialContextSetup => {
            extract_s1ap_ies!(&pdu, InitialContextSetupResponse, req mme: u32 = MME_UE_S1AP_ID(id),);
            let items = pdu.items::<ie::E_RABSetupListCtxtSURes>().collect::<Result<Vec<_>, _>>()?;
            let end = |item: ERABSetupItemCtxtSURes<'_>| {
                let address = <[u8; 4]>::try_from(item.transport_layer_address.0.as_octets()).expect("IPv4");
                (item.e_rab_id.0 as u8, (address.into(), u32::from_be_bytes(item.gtp_teid.0)))
            };
            Uplink::Tunnels { mme, tunnels: items.into_iter().map(end).collect() }
        }
        Kind::Successful_E_RABSetup => {
            extract_s1ap_ies!(&pdu, ERABSetupResponse, req mme: u32 = MME_UE_S1AP_ID(id),);
            let items = pdu.items::<ie::E_RABSetupListBearerSURes>().collect::<Result<Vec<_>, _>>()?;
            let end = |item: ERABSetupItemBearerSURes<'_>| {
                let address = <[u8; 4]>::try_from(item.transport_layer_address.0.as_octets()).expect("IPv4");
                (item.e_rab_id.0 as u8, (address.into(), u32::from_be_bytes(item.gtp_teid.0)))
            };
            Uplink::Tunnels { mme, tunnels: items.into_iter().map(end).collect() }
        }
        Kind::Initiating_UECapabilityInfoIndication => Uplink::Capability,
        Kind::Initiating_UEContextReleaseRequest => {
            extract_s1ap_ies!(&pdu, UEContextReleaseRequest,
                req mme: u32 = MME_UE_S1AP_ID(id),
                req enb: u32 = eNB_UE_S1AP_ID(id),
            );
            Uplink::ReleaseRequest((mme, enb))
        }
        Kind::Successful_UEContextRelease => {
            extract_s1ap_ies!(&pdu, UEContextReleaseComplete, req mme: u32 = MME_UE_S1AP_ID(id),);
            Uplink::ReleaseComplete { mme }
        }
        Kind::Initiating_Reset => {
            extract_s1ap_ies!(&pdu, Reset, req kind: ResetType = ResetType(kind) => kind,);
            Uplink::Reset { whole: matches!(kind, ResetType::s1_Interface(_)) }
        }
        Kind::Initiating_ENBConfigurationUpdate => Uplink::Update,
        Kind::Successful_E_RABRelease | Kind::Successful_Reset => Uplink::Answer,
        _ => Uplink::Bad(pdu.to_string()),
    })
}

fn encoded(pdu: Result<S1APPDU<'_>, Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

pub(crate) fn plmn() -> PLMNidentity {
    helpers::plmn("999", "70").expect("digits")
}

pub(crate) fn setup_response() -> Vec<u8> {
    let gummeis = ServedGUMMEIsItem::new(
        ServedPLMNs(vec![plmn()]),
        ServedGroupIDs(vec![MMEGroupID([0x80, 1])]),
        ServedMMECs(vec![MMECode([0x40])]),
        None,
    );
    encoded(build_s1ap!(
        SuccessfulOutcome,
        S1Setup,
        S1SetupResponse,
        MMEname("mme"),
        ServedGUMMEIs(ServedGUMMEIs(vec![gummeis])),
        RelativeMMECapacity(RelativeMMECapacity(255)),
    ))
}

pub(crate) fn setup_failure() -> Vec<u8> {
    let cause = Cause::misc(CauseMisc::unknown_PLMN);
    encoded(build_s1ap!(UnsuccessfulOutcome, S1Setup, S1SetupFailure, Cause(cause)))
}

pub(crate) fn downlink_nas((mme, enb): Connection, nas: Vec<u8>) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        downlinkNASTransport,
        DownlinkNASTransport,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        NAS_PDU(NASPDU::from(nas)),
    ))
}

fn qos() -> ERABLevelQoSParameters {
    let priority = AllocationAndRetentionPriority::new(
        PriorityLevel(9),
        PreEmptionCapability::shall_not_trigger_pre_emption,
        PreEmptionVulnerability::not_pre_emptable,
        None,
    );
    ERABLevelQoSParameters::new(QCI(9), priority, None, None)
}

/// Returns an E-RAB SETUP REQUEST with one E-RAB to the UPF's `tunnel`.
pub(crate) fn bearer_setup((mme, enb): Connection, (ebi, tunnel): BearerEnd, nas: Vec<u8>) -> Vec<u8> {
    let item = ERABToBeSetupItemBearerSUReq::new(
        ERABID(ebi.into()),
        qos(),
        TransportLayerAddress(tunnel.0.octets().into()),
        GTPTEID(tunnel.1.to_be_bytes()),
        NASPDU::from(nas),
        None,
    );
    let item = build_s1ap_ie!(REJECT E_RABToBeSetupItemBearerSUReq(item)).expect("it encodes");
    encoded(build_s1ap!(
        InitiatingMessage,
        E_RABSetup,
        ERABSetupRequest,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        E_RABToBeSetupListBearerSUReq(ERABToBeSetupListBearerSUReq(vec![item])),
    ))
}

/// Returns an INITIAL CONTEXT SETUP REQUEST with E-RABs to these tunnels of the UPF. The NAS
/// message is in the first one.
pub(crate) fn context_setup(
    (mme, enb): Connection,
    key: [u8; 32],
    bearers: &[BearerEnd],
    mut nas: Option<Vec<u8>>,
) -> Vec<u8> {
    let mut item = |(ebi, tunnel): &BearerEnd| {
        let item = ERABToBeSetupItemCtxtSUReq::new(
            ERABID((*ebi).into()),
            qos(),
            TransportLayerAddress(tunnel.0.octets().into()),
            GTPTEID(tunnel.1.to_be_bytes()),
            nas.take().map(NASPDU::from),
            None,
        );
        build_s1ap_ie!(REJECT E_RABToBeSetupItemCtxtSUReq(item)).expect("it encodes")
    };
    let items = bearers.iter().map(&mut item).collect();
    let rate = UEAggregateMaximumBitrate::new(BitRate(1_000_000), BitRate(1_000_000), None);
    encoded(build_s1ap!(
        InitiatingMessage,
        InitialContextSetup,
        InitialContextSetupRequest,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        UEAggregateMaximumBitrate(rate),
        E_RABToBeSetupListCtxtSUReq(ERABToBeSetupListCtxtSUReq(items)),
        UESecurityCapabilities(helpers::ue_security_capabilities(0xe0, 0xe0)),
        SecurityKey(SecurityKey(key.into())),
    ))
}

/// Returns an E-RAB RELEASE COMMAND.
pub(crate) fn bearer_release((mme, enb): Connection, ebi: u8, nas: Vec<u8>) -> Vec<u8> {
    let item = ERABItem::new(ERABID(ebi.into()), Cause::nas(CauseNas::normal_release), None);
    let item = build_s1ap_ie!(IGNORE E_RABItem(item)).expect("it encodes");
    encoded(build_s1ap!(
        InitiatingMessage,
        E_RABRelease,
        ERABReleaseCommand,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        E_RABToBeReleasedList(ERABList(vec![item])),
        NAS_PDU(NASPDU::from(nas)),
    ))
}

pub(crate) fn release_command((mme, enb): Connection, cause: Cause) -> Vec<u8> {
    let pair = UES1APIDPair::new(MMEUES1APID(mme), ENBUES1APID(enb), None);
    encoded(build_s1ap!(
        InitiatingMessage,
        UEContextRelease,
        UEContextReleaseCommand,
        UE_S1AP_IDs(UES1APIDs::uE_S1AP_ID_pair(pair)),
        Cause(cause),
    ))
}

pub(crate) fn paging(m_tmsi: u32) -> Vec<u8> {
    let s_tmsi = STMSI::new(MMECode([0x40]), MTMSI(m_tmsi.to_be_bytes()), None);
    let item = TAIItem::new(helpers::tai(plmn(), [0, 1]), None);
    let item = build_s1ap_ie!(IGNORE TAIItem(item)).expect("it encodes");
    encoded(build_s1ap!(
        InitiatingMessage,
        Paging,
        Paging,
        UEIdentityIndexValue(UEIdentityIndexValue::new(1).expect("10 bits")),
        UEPagingID(UEPagingID::s_TMSI(s_tmsi)),
        CNDomain(CNDomain::ps),
        TAIList(TAIList(vec![item])),
    ))
}

/// Returns a RESET of the whole interface.
pub(crate) fn reset() -> Vec<u8> {
    let cause = Cause::misc(CauseMisc::om_intervention);
    let kind = ResetType::s1_Interface(ResetAll::reset_all);
    encoded(build_s1ap!(InitiatingMessage, Reset, Reset, Cause(cause), ResetType(kind)))
}

pub(crate) fn reset_acknowledge() -> Vec<u8> {
    encoded(build_s1ap!(SuccessfulOutcome, Reset, ResetAcknowledge,))
}

pub(crate) fn update_acknowledge() -> Vec<u8> {
    encoded(build_s1ap!(SuccessfulOutcome, ENBConfigurationUpdate, ENBConfigurationUpdateAcknowledge,))
}
