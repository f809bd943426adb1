//! S1AP messages of eNBs about handover and E-RABs.

use vireo_wire::s1ap::helpers::{EnbKind, eutran_cgi, global_enb_id, plmn, ue_security_capabilities};
use vireo_wire::s1ap::{self, *};

/// Tunnel end of an eNB for a bearer.
pub(super) const TEID: [u8; 4] = [9, 8, 7, 6];
pub(super) const ADDRESS: [u8; 4] = [127, 0, 0, 3];
/// Tunnel end of the target for forwarded downlink packets.
pub(super) const FORWARDING_TEID: [u8; 4] = [5, 5, 5, 5];
/// eNB UE S1AP ID at the target.
pub(super) const TARGET_ID: u32 = 0x11;
/// EEA1, EEA2, EIA1 and EIA2, as a path switch has them.
pub(super) const ALGORITHMS: (u8, u8) = (0xc0, 0xc0);

pub(super) fn encoded(pdu: Result<S1APPDU<'_>, s1ap::Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

fn network() -> PLMNidentity {
    plmn("999", "70").expect("a PLMN")
}

fn tai(tac: u8) -> TAI {
    helpers::tai(network(), [0, tac])
}

fn cgi() -> EUTRANCGI {
    eutran_cgi(network(), EnbKind::Macro, 0x12346, 1).expect("a cell")
}

fn address() -> TransportLayerAddress<'static> {
    TransportLayerAddress(ADDRESS.into())
}

fn erab_id(ebi: u8) -> ERABID {
    ERABID(ebi.into())
}

/// Returns PATH SWITCH REQUEST of the eNB with TAC `tac`.
pub(super) fn path_switch(mme: u32, tac: u8, erabs: &[u8], algorithms: (u8, u8)) -> Vec<u8> {
    let item = |ebi: &u8| {
        let item = ERABToBeSwitchedDLItem::new(erab_id(*ebi), address(), GTPTEID(TEID), None);
        build_s1ap_ie!(REJECT E_RABToBeSwitchedDLItem(item)).expect("an item")
    };
    encoded(build_s1ap!(
        InitiatingMessage,
        PathSwitchRequest,
        PathSwitchRequest,
        eNB_UE_S1AP_ID(TARGET_ID),
        E_RABToBeSwitchedDLList(ERABToBeSwitchedDLList(erabs.iter().map(item).collect())),
        SourceMME_UE_S1AP_ID(mme),
        EUTRAN_CGI(cgi()),
        TAI(tai(tac)),
        UESecurityCapabilities(ue_security_capabilities(algorithms.0, algorithms.1)),
    ))
}

/// Returns PATH SWITCH REQUEST of the eNB with TAC 2 for bearer 5, with NR UE security capabilities
/// if `nr` has any.
pub(super) fn path_switch_en_dc(mme: u32, algorithms: (u8, u8), nr: Option<(u16, u16)>) -> Vec<u8> {
    let plain = path_switch(mme, 2, &[5], algorithms);
    let Some((ciphering, integrity)) = nr else { return plain };
    let bits = |bits: u16| BitString::from(bits.to_be_bytes());
    let nr = NRUESecurityCapabilities::new(
        NRencryptionAlgorithms(bits(ciphering)),
        NRintegrityProtectionAlgorithms(bits(integrity)),
        None,
    );
    let mut pdu = S1AP_PDU::decode(&plain).expect("a PDU");
    let mut ies = pdu.protocol_ies().expect("IEs").into_owned();
    ies.0.push(build_s1ap_ie!(PathSwitchRequest, NRUESecurityCapabilities(nr)).expect("an IE"));
    pdu.set_protocol_ies(ies).expect("it fits");
    encoded(Ok(pdu))
}

/// Returns HANDOVER REQUIRED for the eNB with this ID.
pub(super) fn required((mme, enb): (u32, u32), target: u32, direct: bool) -> Vec<u8> {
    let target = TargeteNBID::new(global_enb_id(network(), EnbKind::Macro, target).expect("20 bits"), tai(2), None);
    let container = SourceToTargetTransparentContainer(vec![1, 2, 3].into());
    let mut ies = vec![
        build_s1ap_ie!(HandoverRequired, MME_UE_S1AP_ID(mme)),
        build_s1ap_ie!(HandoverRequired, eNB_UE_S1AP_ID(enb)),
        build_s1ap_ie!(HandoverRequired, HandoverType(HandoverType::intralte)),
        build_s1ap_ie!(HandoverRequired, Cause(Cause::radioNetwork(CauseRadioNetwork::time_critical_handover))),
        build_s1ap_ie!(HandoverRequired, TargetID(TargetID::targeteNB_ID(target))),
        build_s1ap_ie!(HandoverRequired, Source_ToTarget_TransparentContainer(container)),
    ];
    if direct {
        let path = DirectForwardingPathAvailability::directPathAvailable;
        ies.insert(5, build_s1ap_ie!(HandoverRequired, Direct_Forwarding_Path_Availability(path)));
    }
    let ies: Result<Vec<_>, _> = ies.into_iter().collect();
    encoded(ies.and_then(|ies| {
        S1AP_PDU::of_message(&HandoverRequired::new(ProtocolIEContainer(ies)), HandoverRequired::CRITICALITY)
    }))
}

/// Returns HANDOVER REQUEST ACKNOWLEDGE that admits these E-RABs, with an end for forwarded
/// downlink packets.
pub(super) fn acknowledge(mme: u32, erabs: &[u8]) -> Vec<u8> {
    acknowledge_with(mme, erabs, [Some(FORWARDING_TEID), None])
}

/// As [`acknowledge`], with these ends for forwarded packets, of the downlink and the uplink.
pub(super) fn acknowledge_with(mme: u32, erabs: &[u8], forwarded: [Option<[u8; 4]>; 2]) -> Vec<u8> {
    let item = |ebi: &u8| {
        let [down, up] = forwarded.map(|teid| (teid.map(|_| address()), teid.map(GTPTEID)));
        let (id, teid) = (erab_id(*ebi), GTPTEID(TEID));
        let item = ERABAdmittedItem::new(id, address(), teid, down.0, down.1, up.0, up.1, None);
        build_s1ap_ie!(IGNORE E_RABAdmittedItem(item)).expect("an item")
    };
    encoded(build_s1ap!(
        SuccessfulOutcome,
        HandoverResourceAllocation,
        HandoverRequestAcknowledge,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(TARGET_ID),
        E_RABAdmittedList(ERABAdmittedList(erabs.iter().map(item).collect())),
        Target_ToSource_TransparentContainer(TargetToSourceTransparentContainer(vec![4, 5].into())),
    ))
}

/// Returns HANDOVER FAILURE, which has no eNB UE S1AP ID.
pub(super) fn failure(mme: u32) -> Vec<u8> {
    encoded(build_s1ap!(
        UnsuccessfulOutcome,
        HandoverResourceAllocation,
        HandoverFailure,
        MME_UE_S1AP_ID(mme),
        Cause(Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell)),
    ))
}

/// Returns HANDOVER NOTIFY of the target.
pub(super) fn notify(mme: u32) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        HandoverNotification,
        HandoverNotify,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(TARGET_ID),
        EUTRAN_CGI(cgi()),
        TAI(tai(2)),
    ))
}

/// Returns HANDOVER CANCEL of the source.
pub(super) fn cancel((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        HandoverCancel,
        HandoverCancel,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
    ))
}

/// Returns ENB STATUS TRANSFER of the source, for bearer 5.
pub(super) fn status((mme, enb): (u32, u32)) -> Vec<u8> {
    let count = || COUNTvalue::new(PDCPSN(7), HFN(1), None);
    let item = BearersSubjectToStatusTransferItem::new(erab_id(5), count(), count(), None, None);
    let item = build_s1ap_ie!(IGNORE Bearers_SubjectToStatusTransfer_Item(item)).expect("an item");
    let list = BearersSubjectToStatusTransferList(vec![item]);
    encoded(build_s1ap!(
        InitiatingMessage,
        eNBStatusTransfer,
        ENBStatusTransfer,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        eNB_StatusTransfer_TransparentContainer(ENBStatusTransferTransparentContainer::new(list, None)),
    ))
}

/// Returns E-RAB RELEASE INDICATION.
pub(super) fn released((mme, enb): (u32, u32), ebi: u8) -> Vec<u8> {
    let item = ERABItem::new(erab_id(ebi), Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available), None);
    let list = ERABList(vec![build_s1ap_ie!(IGNORE E_RABItem(item)).expect("an item")]);
    encoded(build_s1ap!(
        InitiatingMessage,
        E_RABReleaseIndication,
        ERABReleaseIndication,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        E_RABReleasedList(list),
    ))
}

/// Returns E-RAB MODIFICATION INDICATION that moves these E-RABs.
pub(crate) fn modified((mme, enb): (u32, u32), erabs: &[u8]) -> Vec<u8> {
    let item = |ebi: &u8| {
        let item = ERABToBeModifiedItemBearerModInd::new(erab_id(*ebi), address(), GTPTEID(TEID), None);
        build_s1ap_ie!(REJECT E_RABToBeModifiedItemBearerModInd(item)).expect("an item")
    };
    let list = ERABToBeModifiedListBearerModInd(erabs.iter().map(item).collect());
    encoded(build_s1ap!(
        InitiatingMessage,
        E_RABModificationIndication,
        ERABModificationIndication,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        E_RABToBeModifiedListBearerModInd(list),
    ))
}

fn usage_list(uplink: u64, downlink: u64) -> SecondaryRATDataUsageReportList<'static> {
    let report = ERABUsageReportItem::new([0; 4], [0, 0, 0, 9], uplink, downlink, None);
    let report = build_s1ap_ie!(IGNORE E_RABUsageReportItem(report)).expect("an item");
    let reports = ERABUsageReportList(vec![report]);
    let item = SecondaryRATDataUsageReportItem::new(erab_id(5), SecondaryRATType::nR, reports, None);
    let item = build_s1ap_ie!(IGNORE SecondaryRATDataUsageReportItem(item)).expect("an item");
    SecondaryRATDataUsageReportList(vec![item])
}

/// Returns SECONDARY RAT DATA USAGE REPORT for bearer 5.
pub(super) fn usage((mme, enb): (u32, u32), uplink: u64, downlink: u64) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        SecondaryRATDataUsageReport,
        SecondaryRATDataUsageReport,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        SecondaryRATDataUsageReportList(usage_list(uplink, downlink)),
    ))
}

/// Returns a message that has a usage report for bearer 5 besides.
pub(super) fn with_usage(pdu: &[u8], uplink: u64, downlink: u64) -> Vec<u8> {
    let mut pdu = S1AP_PDU::decode(pdu).expect("a PDU");
    let mut ies = pdu.protocol_ies().expect("IEs").into_owned();
    let list = usage_list(uplink, downlink);
    ies.0.push(build_s1ap_ie!(UEContextReleaseRequest, SecondaryRATDataUsageReportList(list)).expect("an IE"));
    pdu.set_protocol_ies(ies).expect("it fits");
    let octets = encoded(Ok(pdu));
    let read = S1AP_PDU::decode(&octets).expect("a PDU");
    assert_eq!(read.check().expect("it decodes"), vec![]);
    octets
}

/// Returns UE CONTEXT RELEASE REQUEST for inactivity.
pub(super) fn release_request((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        UEContextReleaseRequest,
        UEContextReleaseRequest,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        Cause(Cause::radioNetwork(CauseRadioNetwork::user_inactivity)),
    ))
}

/// Returns UE CONTEXT RELEASE COMPLETE that recommends a macro eNB and a cell of it for paging.
pub(super) fn release_complete_with_recommended((mme, enb): (u32, u32), recommended: u32) -> Vec<u8> {
    let cell = eutran_cgi(network(), EnbKind::Macro, recommended, 1).expect("a cell");
    let cell = RecommendedCellItem::new(cell, Some(9), None);
    let cell = build_s1ap_ie!(IGNORE RecommendedCellItem(cell)).expect("an item");
    let target = global_enb_id(network(), EnbKind::Macro, recommended).expect("20 bits");
    let target = RecommendedENBItem::new(MMEPagingTarget::global_ENB_ID(target), None);
    let target = build_s1ap_ie!(IGNORE RecommendedENBItem(target)).expect("an item");
    let information = InformationOnRecommendedCellsAndENBsForPaging::new(
        RecommendedCellsForPaging::new(RecommendedCellList(vec![cell]), None),
        RecommendedENBsForPaging::new(RecommendedENBList(vec![target]), None),
        None,
    );
    encoded(build_s1ap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        InformationOnRecommendedCellsAndENBsForPaging(information),
    ))
}

/// Returns NAS NON DELIVERY INDICATION.
pub(super) fn not_delivered((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        NASNonDeliveryIndication,
        NASNonDeliveryIndication,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        NAS_PDU(vec![0x27; 9]),
        Cause(Cause::radioNetwork(CauseRadioNetwork::x2_handover_triggered)),
    ))
}

/// Returns INITIAL CONTEXT SETUP FAILURE.
pub(super) fn context_setup_failure((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(build_s1ap!(
        UnsuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupFailure,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        Cause(Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available)),
    ))
}

/// Returns UE CONTEXT RELEASE COMPLETE.
pub(super) fn release_complete((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(build_s1ap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
    ))
}

/// Returns E-RAB RELEASE RESPONSE.
pub(super) fn release_response((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(
        build_s1ap!(SuccessfulOutcome, E_RABRelease, ERABReleaseResponse, MME_UE_S1AP_ID(mme), eNB_UE_S1AP_ID(enb),),
    )
}

/// Returns E-RAB MODIFY RESPONSE.
pub(super) fn modify_response((mme, enb): (u32, u32)) -> Vec<u8> {
    encoded(build_s1ap!(SuccessfulOutcome, E_RABModify, ERABModifyResponse, MME_UE_S1AP_ID(mme), eNB_UE_S1AP_ID(enb),))
}

/// Returns UE CAPABILITY INFO INDICATION with this number of octets.
pub(super) fn capability(ids: (u32, u32), octets: usize) -> Vec<u8> {
    capability_with(ids, octets, None)
}

/// As [`capability`], with a capability for paging.
pub(super) fn capability_with((mme, enb): (u32, u32), octets: usize, paging: Option<&[u8]>) -> Vec<u8> {
    let mut ies = vec![
        build_s1ap_ie!(UECapabilityInfoIndication, MME_UE_S1AP_ID(mme)),
        build_s1ap_ie!(UECapabilityInfoIndication, eNB_UE_S1AP_ID(enb)),
        build_s1ap_ie!(UECapabilityInfoIndication, UERadioCapability(vec![0xca; octets])),
    ];
    if let Some(paging) = paging {
        ies.push(build_s1ap_ie!(UECapabilityInfoIndication, UERadioCapabilityForPaging(paging.to_vec())));
    }
    let ies: Result<Vec<_>, _> = ies.into_iter().collect();
    encoded(ies.and_then(|ies| {
        let message = UECapabilityInfoIndication::new(ProtocolIEContainer(ies));
        S1AP_PDU::of_message(&message, UECapabilityInfoIndication::CRITICALITY)
    }))
}

/// Returns UE CAPABILITY INFO INDICATION with the UE's capabilities of E-UTRA and NR.
pub(super) fn capability_of_both((mme, enb): (u32, u32), eutra: &[u8], nr: &[u8]) -> Vec<u8> {
    encoded(build_s1ap!(
        InitiatingMessage,
        UECapabilityInfoIndication,
        UECapabilityInfoIndication,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        UERadioCapability(eutra.to_vec()),
        UERadioCapability_NR_Format(nr.to_vec()),
    ))
}

/// Returns UE CONTEXT MODIFICATION FAILURE.
pub(super) fn modification_failure((mme, enb): (u32, u32), cause: CauseRadioNetwork) -> Vec<u8> {
    encoded(build_s1ap!(
        UnsuccessfulOutcome,
        UEContextModification,
        UEContextModificationFailure,
        MME_UE_S1AP_ID(mme),
        eNB_UE_S1AP_ID(enb),
        Cause(Cause::radioNetwork(cause)),
    ))
}
