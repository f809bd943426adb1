//! NGAP messages of a UE's connection (TS 38.413 8.3, 8.6).

use crate::case::{Case, ngap_case};
use crate::ngap_session::{response_transfer, setup_transfer, unsuccessful_transfer};
use crate::values::*;
use vireo_wire::ngap::*;

/// Assistance for RRC_INACTIVE: DRX cycle of 640 ms, T3512 of one hour, MICO mode.
fn inactive() -> CoreNetworkAssistanceInformationForInactive {
    CoreNetworkAssistanceInformationForInactive::new(
        UEIdentityIndexValue::indexLength10(aper::Bits::low(0x2ef, 10)),
        Some(PagingDRX::v64),
        PeriodicRegistrationUpdateTimer(aper::Bits::low(6, 8)),
        Some(MICOModeIndication::R_true),
        TAIListForInactive(vec![TAIListForInactiveItem::new(area(), None)]),
        None,
        None,
    )
}

/// Extended DRX of E-UTRA, with a cycle of 8 hyperframes, or of NR, with one of 1024 and the 13
/// high bits of the frame check sequence 0x7e25e5e7 of the 5G-TMSI.
fn with_extended_drx(is_nr: bool) -> CoreNetworkAssistanceInformationForInactive {
    let extension = |id, value| ProtocolExtensionField::new(ProtocolExtensionID(id), Criticality::ignore, value);
    let eutra = EUTRAPagingeDRXInformation::new(EUTRAPagingEDRXCycle::hf8, Some(EUTRAPagingTimeWindow::s4), None);
    let nr = NRPagingeDRXInformation::new(NRPagingEDRXCycle::hf1024, Some(NRPagingTimeWindow::s16), None);
    let hashed = HashedUEIdentityIndexValue(aper::Bits::low(0xfc4, 13).into());
    let extensions = match is_nr {
        true => vec![
            extension(332, encode_open_type(&nr).expect("it encodes")),
            extension(365, encode_open_type(&hashed).expect("it encodes")),
        ],
        false => vec![extension(223, encode_open_type(&eutra).expect("it encodes"))],
    };
    let ie_extensions = Some(ProtocolExtensionContainer(extensions));
    CoreNetworkAssistanceInformationForInactive { mico_mode_indication: None, ie_extensions, ..inactive() }
}

/// EPC is forbidden; PLMN 001/01 is equivalent.
fn restrictions() -> MobilityRestrictionList<'static> {
    let value = encode_open_type(&CNTypeRestrictionsForServing::epc_forbidden).expect("it encodes");
    let extension = ProtocolExtensionField::new(ProtocolExtensionID(161), Criticality::ignore, value);
    let equivalent = EquivalentPLMNs(vec![PLMNIdentity([0x00, 0xf1, 0x10])]);
    let extensions = ProtocolExtensionContainer(vec![extension]);
    MobilityRestrictionList::new(network(), Some(equivalent), None, None, None, Some(extensions))
}

fn recommended() -> InfoOnRecommendedCellsAndRANNodesForPaging {
    let targets = [AMFPagingTarget::globalRANNodeID(gnb()), AMFPagingTarget::tAI(area())];
    let nodes = targets.into_iter().map(|target| RecommendedRANNodeItem::new(target, None)).collect();
    let nodes = RecommendedRANNodesForPaging::new(RecommendedRANNodeList(nodes), None);
    InfoOnRecommendedCellsAndRANNodesForPaging::new(recommended_cells(), nodes, None)
}

fn areas() -> MobilityRestrictionList<'static> {
    let forbidden = ForbiddenTACs(vec![TAC([0, 0, 2]), TAC([0xff; 3])]);
    let forbidden = ForbiddenAreaInformation(vec![ForbiddenAreaInformationItem::new(network(), forbidden, None)]);
    let others = NotAllowedTACs(vec![TAC([0, 0, 7])]);
    let service = ServiceAreaInformation(vec![ServiceAreaInformationItem::new(network(), None, Some(others), None)]);
    MobilityRestrictionList::new(network(), None, None, Some(forbidden), Some(service), None)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = transport();
    cases.extend(context());
    cases.extend(extended_drx());
    cases.extend(release());
    cases
}

fn transport() -> Vec<Case> {
    vec![
        ngap_case!(
            "InitialUEMessage",
            InitiatingMessage,
            InitialUEMessage,
            InitialUEMessage,
            RAN_UE_NGAP_ID = ran_id(),
            NAS_PDU = nas(),
            UserLocationInformation = location(),
            RRCEstablishmentCause = RRCEstablishmentCause::mo_Signalling,
            FiveG_S_TMSI = s_tmsi(),
            UEContextRequest = UEContextRequest::requested
        ),
        ngap_case!(
            "DownlinkNASTransport",
            InitiatingMessage,
            DownlinkNASTransport,
            DownlinkNASTransport,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            NAS_PDU = nas()
        ),
        ngap_case!(
            "DownlinkNASTransport-information",
            InitiatingMessage,
            DownlinkNASTransport,
            DownlinkNASTransport,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            NAS_PDU = nas(),
            MobilityRestrictionList = areas(),
            IndexToRFSP = IndexToRFSP(7)
        ),
        ngap_case!(
            "UplinkNASTransport",
            InitiatingMessage,
            UplinkNASTransport,
            UplinkNASTransport,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            NAS_PDU = nas(),
            UserLocationInformation = location()
        ),
        ngap_case!(
            "NASNonDeliveryIndication",
            InitiatingMessage,
            NASNonDeliveryIndication,
            NASNonDeliveryIndication,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            NAS_PDU = nas(),
            Cause = Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost)
        ),
        ngap_case!(
            "UERadioCapabilityInfoIndication",
            InitiatingMessage,
            UERadioCapabilityInfoIndication,
            UERadioCapabilityInfoIndication,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            UERadioCapability = UERadioCapability((0..64).collect::<Vec<u8>>().into())
        ),
        ngap_case!(
            "UERadioCapabilityInfoIndication-formats",
            InitiatingMessage,
            UERadioCapabilityInfoIndication,
            UERadioCapabilityInfoIndication,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            UERadioCapability = UERadioCapability(vec![0x5a_u8; 32].into()),
            UERadioCapabilityForPaging = UERadioCapabilityForPaging::new(
                Some(UERadioCapabilityForPagingOfNR(vec![6_u8; 30].into())),
                Some(UERadioCapabilityForPagingOfEUTRA(vec![0_u8; 30].into())),
                None
            ),
            UERadioCapability_EUTRA_Format = UERadioCapability(vec![0xa5_u8; 32].into())
        ),
    ]
}

fn key() -> SecurityKey<'static> {
    SecurityKey(octets("c18166e13cfde1dea842c708f6e0b3372b6896664df4e865c0c78bd270852005").into())
}

fn context() -> Vec<Case> {
    vec![
        ngap_case!(
            "InitialContextSetupRequest",
            InitiatingMessage,
            InitialContextSetup,
            InitialContextSetupRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            UEAggregateMaximumBitRate = ue_ambr(),
            GUAMI = our_guami(),
            PDUSessionResourceSetupListCxtReq =
                PDUSessionResourceSetupListCxtReq(vec![PDUSessionResourceSetupItemCxtReq::new(
                    PDUSessionID(5),
                    Some(nas()),
                    phones(),
                    setup_transfer().into(),
                    None
                )]),
            AllowedNSSAI = allowed(),
            UESecurityCapabilities = algorithms(),
            SecurityKey = key(),
            MaskedIMEISV = MaskedIMEISV(0x1234_5678_0000_ffff_u64.into()),
            NAS_PDU = nas()
        ),
        ngap_case!(
            "InitialContextSetupRequest-information",
            InitiatingMessage,
            InitialContextSetup,
            InitialContextSetupRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            CoreNetworkAssistanceInformationForInactive = inactive(),
            GUAMI = our_guami(),
            AllowedNSSAI = allowed(),
            UESecurityCapabilities = algorithms(),
            SecurityKey = key(),
            MobilityRestrictionList = restrictions(),
            IndexToRFSP = IndexToRFSP(256)
        ),
        ngap_case!(
            "UEContextModificationRequest-rfsp",
            InitiatingMessage,
            UEContextModification,
            UEContextModificationRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            IndexToRFSP = IndexToRFSP(7)
        ),
        ngap_case!(
            "UEContextModificationRequest-key",
            InitiatingMessage,
            UEContextModification,
            UEContextModificationRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            SecurityKey = key(),
            UESecurityCapabilities = algorithms()
        ),
        ngap_case!(
            "InitialContextSetupResponse",
            SuccessfulOutcome,
            InitialContextSetup,
            InitialContextSetupResponse,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceSetupListCxtRes =
                PDUSessionResourceSetupListCxtRes(vec![PDUSessionResourceSetupItemCxtRes::new(
                    PDUSessionID(5),
                    response_transfer().into(),
                    None
                )])
        ),
        ngap_case!(
            "InitialContextSetupFailure",
            UnsuccessfulOutcome,
            InitialContextSetup,
            InitialContextSetupFailure,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceFailedToSetupListCxtFail =
                PDUSessionResourceFailedToSetupListCxtFail(vec![PDUSessionResourceFailedToSetupItemCxtFail::new(
                    PDUSessionID(5),
                    unsuccessful_transfer().into(),
                    None
                )]),
            Cause = Cause::radioNetwork(CauseRadioNetwork::failure_in_radio_interface_procedure)
        ),
    ]
}

fn extended_drx() -> Vec<Case> {
    vec![
        ngap_case!(
            "InitialContextSetupRequest-extended-drx-eutra",
            InitiatingMessage,
            InitialContextSetup,
            InitialContextSetupRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            CoreNetworkAssistanceInformationForInactive = with_extended_drx(false),
            GUAMI = our_guami(),
            AllowedNSSAI = allowed(),
            UESecurityCapabilities = algorithms(),
            SecurityKey = key()
        ),
        ngap_case!(
            "InitialContextSetupRequest-extended-drx-nr",
            InitiatingMessage,
            InitialContextSetup,
            InitialContextSetupRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            CoreNetworkAssistanceInformationForInactive = with_extended_drx(true),
            GUAMI = our_guami(),
            AllowedNSSAI = allowed(),
            UESecurityCapabilities = algorithms(),
            SecurityKey = key()
        ),
    ]
}

fn release() -> Vec<Case> {
    vec![
        ngap_case!(
            "UEContextReleaseRequest",
            InitiatingMessage,
            UEContextReleaseRequest,
            UEContextReleaseRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceListCxtRelReq =
                PDUSessionResourceListCxtRelReq(vec![PDUSessionResourceItemCxtRelReq::new(PDUSessionID(5), None)]),
            Cause = Cause::radioNetwork(CauseRadioNetwork::user_inactivity)
        ),
        ngap_case!(
            "UEContextReleaseCommand",
            InitiatingMessage,
            UEContextRelease,
            UEContextReleaseCommand,
            UE_NGAP_IDs = UENGAPIDs::uE_NGAP_ID_pair(UENGAPIDPair::new(amf_id(), ran_id(), None)),
            Cause = Cause::nas(CauseNas::normal_release)
        ),
        ngap_case!(
            "UEContextReleaseComplete",
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            UserLocationInformation = location(),
            PDUSessionResourceListCxtRelCpl =
                PDUSessionResourceListCxtRelCpl(vec![PDUSessionResourceItemCxtRelCpl::new(PDUSessionID(5), None)])
        ),
        ngap_case!(
            "UEContextReleaseComplete-recommended",
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            InfoOnRecommendedCellsAndRANNodesForPaging = recommended()
        ),
    ]
}
