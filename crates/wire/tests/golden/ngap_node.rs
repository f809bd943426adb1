//! NGAP messages without a UE association (TS 38.413 8.7, 8.5).

use crate::case::{Case, ngap_case};
use crate::values::*;
use vireo_wire::ngap::*;

pub(crate) fn areas() -> SupportedTAList {
    let plmns = BroadcastPLMNList(vec![BroadcastPLMNItem::new(network(), slices(), None)]);
    SupportedTAList(vec![SupportedTAItem::new(TAC(TAC_1), plmns, None)])
}

fn served() -> ServedGUAMIList<'static> {
    ServedGUAMIList(vec![ServedGUAMIItem::new(our_guami(), None, None)])
}

fn support() -> PLMNSupportList {
    PLMNSupportList(vec![PLMNSupportItem::new(network(), slices(), None)])
}

fn endpoint() -> CPTransportLayerInformation<'static> {
    CPTransportLayerInformation::endpointIPAddress(TransportLayerAddress([127, 0, 0, 5].into()))
}

fn endpoint_6() -> CPTransportLayerInformation<'static> {
    let address = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    CPTransportLayerInformation::endpointIPAddress(TransportLayerAddress(address.into()))
}

fn unreachable() -> Cause {
    Cause::transport(CauseTransport::transport_resource_unavailable)
}

fn pairs() -> UEAssociatedLogicalNGConnectionList {
    UEAssociatedLogicalNGConnectionList(vec![
        UEAssociatedLogicalNGConnectionItem::new(Some(amf_id()), Some(ran_id()), None),
        UEAssociatedLogicalNGConnectionItem::new(None, Some(RANUENGAPID(5)), None),
    ])
}

fn diagnostics() -> CriticalityDiagnostics {
    let missing = CriticalityDiagnosticsIEItem::new(Criticality::reject, ProtocolIEID(27), TypeOfError::missing, None);
    CriticalityDiagnostics::new(
        Some(ProcedureCode(21)),
        Some(TriggeringMessage::initiating_message),
        Some(Criticality::reject),
        Some(CriticalityDiagnosticsIEList(vec![missing])),
        None,
    )
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = setup();
    cases.extend(amf_configuration());
    cases.extend(associations());
    cases.extend(overload());
    cases.extend(faults());
    cases
}

fn setup() -> Vec<Case> {
    vec![
        ngap_case!(
            "NGSetupRequest",
            InitiatingMessage,
            NGSetup,
            NGSetupRequest,
            GlobalRANNodeID = gnb(),
            RANNodeName = RANNodeName("vireo-gnb".into()),
            SupportedTAList = areas(),
            DefaultPagingDRX = PagingDRX::v128
        ),
        ngap_case!(
            "NGSetupResponse",
            SuccessfulOutcome,
            NGSetup,
            NGSetupResponse,
            AMFName = AMFName("vireo".into()),
            ServedGUAMIList = served(),
            RelativeAMFCapacity = RelativeAMFCapacity(255),
            PLMNSupportList = support()
        ),
        ngap_case!(
            "NGSetupFailure",
            UnsuccessfulOutcome,
            NGSetup,
            NGSetupFailure,
            Cause = Cause::misc(CauseMisc::unknown_PLMN_or_SNPN),
            TimeToWait = TimeToWait::v10s
        ),
        ngap_case!(
            "NGSetupFailure-diagnostics",
            UnsuccessfulOutcome,
            NGSetup,
            NGSetupFailure,
            Cause = Cause::protocol(CauseProtocol::abstract_syntax_error_reject),
            CriticalityDiagnostics = diagnostics()
        ),
        ngap_case!(
            "RANConfigurationUpdate",
            InitiatingMessage,
            RANConfigurationUpdate,
            RANConfigurationUpdate,
            RANNodeName = RANNodeName("renamed".into()),
            SupportedTAList = areas(),
            DefaultPagingDRX = PagingDRX::v64,
            GlobalRANNodeID = gnb()
        ),
        ngap_case!(
            "RANConfigurationUpdateAcknowledge",
            SuccessfulOutcome,
            RANConfigurationUpdate,
            RANConfigurationUpdateAcknowledge
        ),
        ngap_case!(
            "RANConfigurationUpdateFailure",
            UnsuccessfulOutcome,
            RANConfigurationUpdate,
            RANConfigurationUpdateFailure,
            Cause = Cause::misc(CauseMisc::unknown_PLMN_or_SNPN),
            TimeToWait = TimeToWait::v60s
        ),
    ]
}

fn associations() -> Vec<Case> {
    vec![
        ngap_case!(
            "RANConfigurationUpdateFailure-no-node",
            UnsuccessfulOutcome,
            RANConfigurationUpdate,
            RANConfigurationUpdateFailure,
            Cause = Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state),
            TimeToWait = TimeToWait::v1s
        ),
        ngap_case!(
            "AMFConfigurationUpdate-associations",
            InitiatingMessage,
            AMFConfigurationUpdate,
            AMFConfigurationUpdate,
            AMF_TNLAssociationToAddList = AMFTNLAssociationToAddList(
                [endpoint(), endpoint_6()]
                    .map(|endpoint| {
                        let usage = Some(TNLAssociationUsage::both);
                        AMFTNLAssociationToAddItem::new(endpoint, usage, TNLAddressWeightFactor(128), None)
                    })
                    .into()
            )
        ),
        ngap_case!(
            "AMFConfigurationUpdate-gone",
            InitiatingMessage,
            AMFConfigurationUpdate,
            AMFConfigurationUpdate,
            AMF_TNLAssociationToRemoveList = AMFTNLAssociationToRemoveList(
                [endpoint(), endpoint_6()].map(|endpoint| AMFTNLAssociationToRemoveItem::new(endpoint, None)).into()
            )
        ),
        ngap_case!(
            "AMFConfigurationUpdateAcknowledge-failed",
            SuccessfulOutcome,
            AMFConfigurationUpdate,
            AMFConfigurationUpdateAcknowledge,
            AMF_TNLAssociationSetupList =
                AMFTNLAssociationSetupList(vec![AMFTNLAssociationSetupItem::new(endpoint(), None)]),
            AMF_TNLAssociationFailedToSetupList =
                TNLAssociationList(vec![TNLAssociationItem::new(endpoint_6(), unreachable(), None)])
        ),
        ngap_case!(
            "AMFConfigurationUpdateFailure",
            UnsuccessfulOutcome,
            AMFConfigurationUpdate,
            AMFConfigurationUpdateFailure,
            Cause = unreachable()
        ),
    ]
}

fn amf_configuration() -> Vec<Case> {
    vec![
        ngap_case!(
            "AMFConfigurationUpdate",
            InitiatingMessage,
            AMFConfigurationUpdate,
            AMFConfigurationUpdate,
            AMFName = AMFName("vireo".into()),
            ServedGUAMIList = served(),
            RelativeAMFCapacity = RelativeAMFCapacity(10),
            PLMNSupportList = support(),
            AMF_TNLAssociationToAddList = AMFTNLAssociationToAddList(vec![AMFTNLAssociationToAddItem::new(
                endpoint(),
                Some(TNLAssociationUsage::both),
                TNLAddressWeightFactor(64),
                None
            )])
        ),
        ngap_case!(
            "AMFConfigurationUpdateAcknowledge",
            SuccessfulOutcome,
            AMFConfigurationUpdate,
            AMFConfigurationUpdateAcknowledge,
            AMF_TNLAssociationSetupList =
                AMFTNLAssociationSetupList(vec![AMFTNLAssociationSetupItem::new(endpoint(), None)])
        ),
        ngap_case!(
            "Paging",
            InitiatingMessage,
            Paging,
            Paging,
            UEPagingIdentity = UEPagingIdentity::fiveG_S_TMSI(s_tmsi()),
            PagingDRX = PagingDRX::v128,
            TAIListForPaging = TAIListForPaging(vec![TAIListForPagingItem::new(area(), None)])
        ),
        ngap_case!(
            "Paging-extended-drx",
            InitiatingMessage,
            Paging,
            Paging,
            UEPagingIdentity = UEPagingIdentity::fiveG_S_TMSI(s_tmsi()),
            PagingDRX = PagingDRX::v128,
            TAIListForPaging = TAIListForPaging(vec![TAIListForPagingItem::new(area(), None)]),
            PagingPriority = PagingPriority::priolevel3,
            EUTRA_PagingeDRXInformation =
                EUTRAPagingeDRXInformation::new(EUTRAPagingEDRXCycle::hf8, Some(EUTRAPagingTimeWindow::s4), None)
        ),
        ngap_case!(
            "Paging-extended-drx-nr",
            InitiatingMessage,
            Paging,
            Paging,
            UEPagingIdentity = UEPagingIdentity::fiveG_S_TMSI(s_tmsi()),
            PagingDRX = PagingDRX::v128,
            TAIListForPaging = TAIListForPaging(vec![TAIListForPagingItem::new(area(), None)]),
            NR_PagingeDRXInformation =
                NRPagingeDRXInformation::new(NRPagingEDRXCycle::hf8, Some(NRPagingTimeWindow::s4), None)
        ),
        ngap_case!(
            "Paging-assistance",
            InitiatingMessage,
            Paging,
            Paging,
            UEPagingIdentity = UEPagingIdentity::fiveG_S_TMSI(s_tmsi()),
            PagingDRX = PagingDRX::v128,
            TAIListForPaging = TAIListForPaging(vec![TAIListForPagingItem::new(area(), None)]),
            AssistanceDataForPaging = AssistanceDataForPaging::new(
                Some(AssistanceDataForRecommendedCells::new(recommended_cells(), None)),
                Some(PagingAttemptInformation::new(
                    PagingAttemptCount(2),
                    IntendedNumberOfPagingAttempts(5),
                    None,
                    None
                )),
                None
            )
        ),
        ngap_case!(
            "OverloadStart",
            InitiatingMessage,
            OverloadStart,
            OverloadStart,
            AMFTrafficLoadReductionIndication = TrafficLoadReductionIndication(50)
        ),
    ]
}

macro_rules! overload_start {
    ($name:literal, $action:ident, $percent:literal) => {
        ngap_case!(
            $name,
            InitiatingMessage,
            OverloadStart,
            OverloadStart,
            AMFOverloadResponse = OverloadResponse::overloadAction(OverloadAction::$action),
            AMFTrafficLoadReductionIndication = TrafficLoadReductionIndication($percent)
        )
    };
}

fn overload() -> Vec<Case> {
    vec![
        overload_start!("OverloadStart-signalling", reject_rrc_cr_signalling, 40),
        overload_start!("OverloadStart-data", reject_non_emergency_mo_dt, 1),
        overload_start!("OverloadStart-emergency", permit_emergency_sessions_and_mobile_terminated_services_only, 99),
        overload_start!(
            "OverloadStart-priority",
            permit_high_priority_sessions_and_mobile_terminated_services_only,
            50
        ),
        ngap_case!("OverloadStop", InitiatingMessage, OverloadStop, OverloadStop),
    ]
}

fn faults() -> Vec<Case> {
    vec![
        ngap_case!(
            "NGReset-interface",
            InitiatingMessage,
            NGReset,
            NGReset,
            Cause = Cause::misc(CauseMisc::om_intervention),
            ResetType = ResetType::nG_Interface(ResetAll::reset_all)
        ),
        ngap_case!(
            "NGReset-part",
            InitiatingMessage,
            NGReset,
            NGReset,
            Cause = Cause::radioNetwork(CauseRadioNetwork::unspecified),
            ResetType = ResetType::partOfNG_Interface(pairs())
        ),
        ngap_case!(
            "NGResetAcknowledge",
            SuccessfulOutcome,
            NGReset,
            NGResetAcknowledge,
            UE_associatedLogicalNG_connectionList = pairs()
        ),
        ngap_case!(
            "ErrorIndication",
            InitiatingMessage,
            ErrorIndication,
            ErrorIndication,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            Cause = Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID)
        ),
        ngap_case!(
            "ErrorIndication-syntax",
            InitiatingMessage,
            ErrorIndication,
            ErrorIndication,
            Cause = Cause::protocol(CauseProtocol::transfer_syntax_error)
        ),
    ]
}
