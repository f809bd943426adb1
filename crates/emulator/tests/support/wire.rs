//! NGAP side of the scripted network.

use std::net::Ipv4Addr;
use vireo_wire::nas::*;
use vireo_wire::ngap as n;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind as Kind, helpers};

/// Message of a gNB.
pub enum Uplink {
    NgSetup,
    InitialUe {
        ran: u32,
        nas: Vec<u8>,
        s_tmsi: Option<u32>,
    },
    Nas {
        amf: u64,
        ran: u32,
        nas: Vec<u8>,
    },
    ReleaseRequest {
        amf: u64,
        ran: u32,
    },
    ReleaseComplete {
        amf: u64,
    },
    /// Tunnels of the gNB: PSI, address and TEID.
    Tunnels {
        amf: u64,
        tunnels: Vec<(u8, Ipv4Addr, u32)>,
    },
    Reset(bool),
    Update,
    Answer,
    /// Message that a gNB does not send here.
    Other(String),
    /// Invalid NGAP.
    Bad(String),
}

/// Decodes a PDU. It fails if the codec finds a deviation from the specification.
pub fn read(octets: &[u8]) -> Uplink {
    let Ok(pdu) = NGAP_PDU::decode(octets) else { return Uplink::Bad("does not decode".into()) };
    match pdu.check() {
        Ok(deviations) if deviations.is_empty() => {}
        other => return Uplink::Bad(format!("{pdu}: {other:?}")),
    }
    read_kind(&pdu).unwrap_or_else(|error| Uplink::Bad(format!("{pdu}: {error}")))
}

fn read_kind(pdu: &NGAP_PDU) -> Result<Uplink, n::Error> {
    use n::*;
    let ids = || -> Result<(u64, u32), n::Error> {
        extract_ngap_ies!(pdu, UplinkNASTransport,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
        );
        Ok((amf, ran))
    };
    Ok(match pdu.kind() {
        Kind::Initiating_NGSetup => Uplink::NgSetup,
        Kind::Initiating_InitialUEMessage => {
            extract_ngap_ies!(pdu, InitialUEMessage,
                req ran: u32 = RAN_UE_NGAP_ID(id),
                req nas: Vec<u8> = NAS_PDU(nas) => nas.0.to_vec(),
                opt s_tmsi: u32 = FiveG_S_TMSI(id) => u32::from_be_bytes(id.five_g_tmsi.0),
            );
            Uplink::InitialUe { ran, nas, s_tmsi }
        }
        Kind::Initiating_UplinkNASTransport => {
            let (amf, ran) = ids()?;
            extract_ngap_ies!(pdu, UplinkNASTransport, req nas: Vec<u8> = NAS_PDU(nas) => nas.0.to_vec(),);
            Uplink::Nas { amf, ran, nas }
        }
        Kind::Initiating_UEContextReleaseRequest => {
            extract_ngap_ies!(pdu, UEContextReleaseRequest,
                req amf: u64 = AMF_UE_NGAP_ID(id),
                req ran: u32 = RAN_UE_NGAP_ID(id),
            );
            Uplink::ReleaseRequest { amf, ran }
        }
        Kind::Successful_UEContextRelease => {
            extract_ngap_ies!(pdu, UEContextReleaseComplete, req amf: u64 = AMF_UE_NGAP_ID(id),);
            Uplink::ReleaseComplete { amf }
        }
        Kind::Successful_PDUSessionResourceSetup => {
            let list = pdu.ie::<ie::PDUSessionResourceSetupListSURes>().expect("every session was set up")?;
            let amf = pdu.ie::<ie::AMF_UE_NGAP_ID>().expect("is mandatory")?.0;
            let items = list.0.iter();
            let items = items.map(|i| tunnel(i.pdu_session_id.0, &i.pdu_session_resource_setup_response_transfer));
            Uplink::Tunnels { amf, tunnels: items.collect() }
        }
        Kind::Successful_InitialContextSetup => match pdu.ie::<ie::PDUSessionResourceSetupListCxtRes>() {
            Some(list) => {
                let list = list?;
                let amf = pdu.ie::<ie::AMF_UE_NGAP_ID>().expect("is mandatory")?.0;
                let items = list.0.iter();
                let items = items.map(|i| tunnel(i.pdu_session_id.0, &i.pdu_session_resource_setup_response_transfer));
                Uplink::Tunnels { amf, tunnels: items.collect() }
            }
            None => Uplink::Answer,
        },
        Kind::Successful_PDUSessionResourceRelease => Uplink::Answer,
        Kind::Initiating_NGReset => {
            let kind = pdu.ie::<ie::ResetType>().expect("is mandatory")?;
            Uplink::Reset(matches!(kind, ResetType::nG_Interface(_)))
        }
        Kind::Successful_NGReset | Kind::Successful_AMFConfigurationUpdate => Uplink::Answer,
        Kind::Initiating_RANConfigurationUpdate => Uplink::Update,
        _ => Uplink::Other(pdu.to_string()),
    })
}

fn tunnel(psi: u8, transfer: &[u8]) -> (u8, Ipv4Addr, u32) {
    let transfer: n::PDUSessionResourceSetupResponseTransfer<'_> = n::decode_open_type(transfer).expect("decodes");
    match transfer.dl_qos_flow_per_tnl_information.up_transport_layer_information {
        n::UPTransportLayerInformation::gTPTunnel(tunnel) => {
            let address: [u8; 4] = tunnel.transport_layer_address.0.as_octets().try_into().expect("IPv4");
            (psi, address.into(), u32::from_be_bytes(tunnel.gtp_teid.0))
        }
        _ => panic!("no GTP tunnel"),
    }
}

fn plmn() -> n::PLMNIdentity {
    helpers::plmn("999", "70").expect("digits")
}

fn encode(pdu: Result<n::NGAPPDU<'_>, n::Error>) -> Vec<u8> {
    pdu.expect("builds").encode().expect("encodes")
}

pub fn ng_setup_response() -> Vec<u8> {
    use n::*;
    let guami = helpers::guami(plmn(), 2, 1, 0).expect("in range");
    let slices = SliceSupportList(vec![SliceSupportItem::new(helpers::s_nssai(1, None), None)]);
    encode(n::build_ngap!(
        SuccessfulOutcome,
        NGSetup,
        NGSetupResponse,
        AMFName("scripted"),
        ServedGUAMIList(ServedGUAMIList(vec![ServedGUAMIItem::new(guami, None, None)])),
        RelativeAMFCapacity(RelativeAMFCapacity(255)),
        PLMNSupportList(PLMNSupportList(vec![PLMNSupportItem::new(plmn(), slices, None)])),
    ))
}

pub fn ng_setup_failure() -> Vec<u8> {
    use n::*;
    encode(build_ngap!(
        UnsuccessfulOutcome,
        NGSetup,
        NGSetupFailure,
        Cause(Cause::misc(CauseMisc::unknown_PLMN_or_SNPN)),
    ))
}

pub fn downlink_nas((amf, ran): (u64, u32), nas: Vec<u8>) -> Vec<u8> {
    use n::*;
    encode(build_ngap!(
        InitiatingMessage,
        DownlinkNASTransport,
        DownlinkNASTransport,
        AMF_UE_NGAP_ID(amf),
        RAN_UE_NGAP_ID(ran),
        NAS_PDU(nas),
    ))
}

pub fn release_command(amf: u64, ran: u32) -> Vec<u8> {
    use n::*;
    let pair = UENGAPIDPair::new(AMFUENGAPID(amf), RANUENGAPID(ran), None);
    encode(build_ngap!(
        InitiatingMessage,
        UEContextRelease,
        UEContextReleaseCommand,
        UE_NGAP_IDs(UENGAPIDs::uE_NGAP_ID_pair(pair)),
        Cause(Cause::nas(CauseNas::normal_release)),
    ))
}

fn setup_transfer(upf: Ipv4Addr, teid: u32) -> Vec<u8> {
    use n::*;
    let tunnel = GTPTunnel::new(TransportLayerAddress(upf.octets().into()), GTPTEID(teid.to_be_bytes()), None);
    let priority = AllocationAndRetentionPriority::new(
        PriorityLevelARP(1),
        PreEmptionCapability::shall_not_trigger_pre_emption,
        PreEmptionVulnerability::not_pre_emptable,
        None,
    );
    let five_qi = NonDynamic5QIDescriptor::new(FiveQI(9), None, None, None, None);
    let parameters =
        QosFlowLevelQosParameters::new(QosCharacteristics::nonDynamic5QI(five_qi), priority, None, None, None, None);
    let flow = QosFlowSetupRequestItem::new(QosFlowIdentifier(1), parameters, None, None);
    let ies = vec![
        n::build_ngap_ie!(
            PDUSessionResourceSetupRequestTransfer,
            UL_NGU_UP_TNLInformation(UPTransportLayerInformation::gTPTunnel(tunnel))
        ),
        n::build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, PDUSessionType(PDUSessionType::ipv4)),
        n::build_ngap_ie!(
            PDUSessionResourceSetupRequestTransfer,
            QosFlowSetupRequestList(QosFlowSetupRequestList(vec![flow]))
        ),
    ];
    let ies = ies.into_iter().collect::<Result<Vec<_>, _>>().expect("builds");
    let transfer = PDUSessionResourceSetupRequestTransfer::new(ProtocolIEContainer(ies));
    encode_open_type(&transfer).expect("encodes").to_vec()
}

pub fn context_setup(
    (amf, ran): (u64, u32),
    key: [u8; 32],
    nas: Vec<u8>,
    sessions: &[(u8, u32)],
    upf: Ipv4Addr,
) -> Vec<u8> {
    use n::*;
    let guami = helpers::guami(plmn(), 2, 1, 0).expect("in range");
    let allowed = AllowedNSSAI(vec![AllowedNSSAIItem::new(helpers::s_nssai(1, None), None)]);
    let item = |(psi, teid): &(u8, u32)| {
        let transfer = setup_transfer(upf, *teid);
        PDUSessionResourceSetupItemCxtReq::new(
            PDUSessionID(*psi),
            None,
            helpers::s_nssai(1, None),
            transfer.into(),
            None,
        )
    };
    let list = PDUSessionResourceSetupListCxtReq(sessions.iter().map(item).collect());
    let rate = UEAggregateMaximumBitRate::new(BitRate(1_000_000), BitRate(1_000_000), None);
    if sessions.is_empty() {
        return encode(build_ngap!(
            InitiatingMessage,
            InitialContextSetup,
            InitialContextSetupRequest,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran),
            GUAMI(guami),
            AllowedNSSAI(allowed),
            UESecurityCapabilities(helpers::ue_security_capabilities(0xe0, 0xe0)),
            SecurityKey(key),
            NAS_PDU(nas),
        ));
    }
    encode(build_ngap!(
        InitiatingMessage,
        InitialContextSetup,
        InitialContextSetupRequest,
        AMF_UE_NGAP_ID(amf),
        RAN_UE_NGAP_ID(ran),
        UEAggregateMaximumBitRate(rate),
        GUAMI(guami),
        PDUSessionResourceSetupListCxtReq(list),
        AllowedNSSAI(allowed),
        UESecurityCapabilities(helpers::ue_security_capabilities(0xe0, 0xe0)),
        SecurityKey(key),
        NAS_PDU(nas),
    ))
}

pub fn resource_setup((amf, ran): (u64, u32), psi: u8, nas: Vec<u8>, upf: Ipv4Addr, teid: u32) -> Vec<u8> {
    use n::*;
    let item = PDUSessionResourceSetupItemSUReq::new(
        PDUSessionID(psi),
        Some(NASPDU::from(nas)),
        helpers::s_nssai(1, None),
        setup_transfer(upf, teid).into(),
        None,
    );
    encode(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceSetup,
        PDUSessionResourceSetupRequest,
        AMF_UE_NGAP_ID(amf),
        RAN_UE_NGAP_ID(ran),
        PDUSessionResourceSetupListSUReq(PDUSessionResourceSetupListSUReq(vec![item])),
    ))
}

pub fn resource_release((amf, ran): (u64, u32), psi: u8, nas: Vec<u8>) -> Vec<u8> {
    use n::*;
    let cause = Cause::nas(CauseNas::normal_release);
    let transfer = encode_open_type(&PDUSessionResourceReleaseCommandTransfer::new(cause, None)).expect("encodes");
    let item = PDUSessionResourceToReleaseItemRelCmd::new(PDUSessionID(psi), transfer, None);
    encode(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceRelease,
        PDUSessionResourceReleaseCommand,
        AMF_UE_NGAP_ID(amf),
        RAN_UE_NGAP_ID(ran),
        NAS_PDU(nas),
        PDUSessionResourceToReleaseListRelCmd(PDUSessionResourceToReleaseListRelCmd(vec![item])),
    ))
}

pub fn error_indication() -> Vec<u8> {
    use n::*;
    encode(build_ngap!(
        InitiatingMessage,
        ErrorIndication,
        ErrorIndication,
        Cause(Cause::protocol(CauseProtocol::transfer_syntax_error)),
    ))
}

pub fn paging(tmsi: u32) -> Vec<u8> {
    use n::*;
    let guami = helpers::guami(plmn(), 2, 1, 0).expect("in range");
    let tmsi = FiveGTMSI(tmsi.to_be_bytes());
    let id = FiveGSTMSI::new(guami.amf_set_id, guami.amf_pointer, tmsi, None);
    let item = TAIListForPagingItem::new(helpers::tai(plmn(), [0, 0, 1]), None);
    encode(build_ngap!(
        InitiatingMessage,
        Paging,
        Paging,
        UEPagingIdentity(UEPagingIdentity::fiveG_S_TMSI(id)),
        TAIListForPaging(TAIListForPaging(vec![item])),
    ))
}

pub fn reset_acknowledge() -> Vec<u8> {
    encode(n::build_ngap!(SuccessfulOutcome, NGReset, NGResetAcknowledge,))
}

pub fn update_acknowledge() -> Vec<u8> {
    encode(n::build_ngap!(SuccessfulOutcome, RANConfigurationUpdate, RANConfigurationUpdateAcknowledge,))
}

pub fn ng_reset(sessions: Option<(u64, u32)>) -> Vec<u8> {
    use n::*;
    let kind = match sessions {
        None => ResetType::nG_Interface(ResetAll::reset_all),
        Some((amf, ran)) => {
            let item = UEAssociatedLogicalNGConnectionItem::new(Some(AMFUENGAPID(amf)), Some(RANUENGAPID(ran)), None);
            ResetType::partOfNG_Interface(UEAssociatedLogicalNGConnectionList(vec![item]))
        }
    };
    encode(build_ngap!(
        InitiatingMessage,
        NGReset,
        NGReset,
        Cause(Cause::misc(CauseMisc::om_intervention)),
        ResetType(kind),
    ))
}

pub fn session_accept(kind: PduSessionTypeValue, n: u32, ipv6: bool) -> NasPduSessionEstablishmentAccept {
    let address = Ipv4Addr::from(0x0a2d_0000 + n).octets();
    let iid = [0, 0, 0, 0, 0, 0, 0, n as u8];
    let told = match kind {
        PduSessionTypeValue::Ipv6 => NasPduAddress::from_ipv6_iid(iid),
        PduSessionTypeValue::Ipv4v6 if ipv6 => NasPduAddress::from_ipv4v6(iid, address),
        _ => NasPduAddress::from_ipv4(address),
    };
    let selected = match kind {
        PduSessionTypeValue::Ipv4v6 if !ipv6 => PduSessionTypeValue::Ipv4,
        kind => kind,
    };
    // One default rule, match-all, QFI 1 (TS 24.501 9.11.4.13).
    let rules = NasQosRules::new(&[1, 0, 6, 0x31, 0x31, 1, 1, 255, 1][..]);
    let ambr = NasSessionAmbr::new(&[6, 0, 100, 6, 0, 100][..]);
    NasPduSessionEstablishmentAccept::new(
        NasPduSessionType::from_session_type(selected),
        NasSscMode::from_mode(SscModeValue::Ssc1),
        rules,
        ambr,
    )
    .with_pdu_address(told)
}
