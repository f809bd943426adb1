//! NGAP messages and transfers of PDU sessions and mobility (TS 38.413 8.2, 8.4).

use crate::case::{Case, ngap_case};
use crate::values::*;
use vireo_wire::ngap::*;

fn encoded<T: aper::Encode>(transfer: &T) -> Vec<u8> {
    encode_open_type(transfer).expect("it encodes").to_vec()
}

/// PDU Session Resource Setup Request Transfer: one flow with 5QI 9 towards 127.0.0.7.
pub(crate) fn setup_transfer() -> Vec<u8> {
    flow_transfer(None)
}

/// As [`setup_transfer`], with an E-RAB at the source of a handover.
fn flow_transfer(erab: Option<ERABID>) -> Vec<u8> {
    let arp = AllocationAndRetentionPriority::new(
        PriorityLevelARP(8),
        PreEmptionCapability::shall_not_trigger_pre_emption,
        PreEmptionVulnerability::not_pre_emptable,
        None,
    );
    let nine = NonDynamic5QIDescriptor::new(FiveQI(9), None, None, None, None);
    let qos = QosFlowLevelQosParameters::new(QosCharacteristics::nonDynamic5QI(nine), arp, None, None, None, None);
    let flow = QosFlowSetupRequestItem::new(QosFlowIdentifier(1), qos, erab, None);
    let ambr = PDUSessionAggregateMaximumBitRate::new(BitRate(500_000_000), BitRate(100_000_000), None);
    let ie = |ie: Result<ProtocolIEField<'static>, Error>| ie.expect("it builds");
    type Transfer = PDUSessionResourceSetupRequestTransfer<'static>;
    let ies = vec![
        ie(build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, PDUSessionAggregateMaximumBitRate(ambr))),
        ie(build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, UL_NGU_UP_TNLInformation(tunnel(7, 0x101)))),
        ie(build_ngap_ie!(PDUSessionResourceSetupRequestTransfer, PDUSessionType(PDUSessionType::ipv4))),
        ie(build_ngap_ie!(
            PDUSessionResourceSetupRequestTransfer,
            QosFlowSetupRequestList(QosFlowSetupRequestList(vec![flow]))
        )),
    ];
    encoded(&Transfer::new(ProtocolIEContainer(ies)))
}

/// PDU Session Resource Modify Request Transfer: other terms of the flow.
fn modify_transfer() -> Vec<u8> {
    let arp = AllocationAndRetentionPriority::new(
        PriorityLevelARP(3),
        PreEmptionCapability::shall_not_trigger_pre_emption,
        PreEmptionVulnerability::not_pre_emptable,
        None,
    );
    let seven = NonDynamic5QIDescriptor::new(FiveQI(7), None, None, None, None);
    let qos = QosFlowLevelQosParameters::new(QosCharacteristics::nonDynamic5QI(seven), arp, None, None, None, None);
    let flow = QosFlowAddOrModifyRequestItem::new(QosFlowIdentifier(1), Some(qos), None, None);
    let ambr = PDUSessionAggregateMaximumBitRate::new(BitRate(10_000_000), BitRate(5_000_000), None);
    let ie = |ie: Result<ProtocolIEField<'static>, Error>| ie.expect("it builds");
    let ies = vec![
        ie(build_ngap_ie!(PDUSessionResourceModifyRequestTransfer, PDUSessionAggregateMaximumBitRate(ambr))),
        ie(build_ngap_ie!(
            PDUSessionResourceModifyRequestTransfer,
            QosFlowAddOrModifyRequestList(QosFlowAddOrModifyRequestList(vec![flow]))
        )),
    ];
    encoded(&PDUSessionResourceModifyRequestTransfer::new(ProtocolIEContainer(ies)))
}

/// PDU Session Resource Modify Unsuccessful Transfer.
fn unmodified_transfer() -> Vec<u8> {
    let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
    encoded(&PDUSessionResourceModifyUnsuccessfulTransfer::new(cause, None, None))
}

/// PDU Session Resource Modify Response Transfer.
fn modified_transfer() -> Vec<u8> {
    let flows = vec![QosFlowAddOrModifyResponseItem::new(QosFlowIdentifier(1), None)];
    let flows = Some(QosFlowAddOrModifyResponseList(flows));
    encoded(&PDUSessionResourceModifyResponseTransfer::new(None, None, flows, None, None, None))
}

/// Handover Command Transfer: one flow is forwarded to 127.0.0.7.
fn forwarding_transfer() -> Vec<u8> {
    let flows = QosFlowToBeForwardedList(vec![QosFlowToBeForwardedItem::new(QosFlowIdentifier(1), None)]);
    encoded(&HandoverCommandTransfer::new(Some(tunnel(7, 0x102)), Some(flows), None, None))
}

/// PDU Session Resource Setup Response Transfer: the RAN's tunnel end is 127.0.0.9.
pub(crate) fn response_transfer() -> Vec<u8> {
    let flows = AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(QosFlowIdentifier(1), None, None)]);
    let tunnel = QosFlowPerTNLInformation::new(tunnel(9, 0x0a0b_0c0d), flows, None);
    encoded(&PDUSessionResourceSetupResponseTransfer::new(tunnel, None, None, None, None))
}

/// PDU Session Resource Setup Unsuccessful Transfer.
pub(crate) fn unsuccessful_transfer() -> Vec<u8> {
    let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
    encoded(&PDUSessionResourceSetupUnsuccessfulTransfer::new(cause, None, None))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = sessions();
    cases.extend(modifications());
    cases.extend(handover());
    cases.extend(intersystem());
    cases.extend(path_switch());
    cases
}

fn modifications() -> Vec<Case> {
    vec![
        ngap_case!(
            "PDUSessionResourceModifyRequest",
            InitiatingMessage,
            PDUSessionResourceModify,
            PDUSessionResourceModifyRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceModifyListModReq =
                PDUSessionResourceModifyListModReq(vec![PDUSessionResourceModifyItemModReq::new(
                    PDUSessionID(5),
                    Some(nas()),
                    modify_transfer().into(),
                    None
                )])
        ),
        ngap_case!(
            "PDUSessionResourceModifyResponse",
            SuccessfulOutcome,
            PDUSessionResourceModify,
            PDUSessionResourceModifyResponse,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceModifyListModRes =
                PDUSessionResourceModifyListModRes(vec![PDUSessionResourceModifyItemModRes::new(
                    PDUSessionID(5),
                    modified_transfer().into(),
                    None
                )])
        ),
        ngap_case!(
            "PDUSessionResourceModifyResponse-failed",
            SuccessfulOutcome,
            PDUSessionResourceModify,
            PDUSessionResourceModifyResponse,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceFailedToModifyListModRes =
                PDUSessionResourceFailedToModifyListModRes(vec![PDUSessionResourceFailedToModifyItemModRes::new(
                    PDUSessionID(5),
                    unmodified_transfer().into(),
                    None
                )])
        ),
    ]
}

fn sessions() -> Vec<Case> {
    vec![
        ngap_case!(
            "PDUSessionResourceSetupRequest",
            InitiatingMessage,
            PDUSessionResourceSetup,
            PDUSessionResourceSetupRequest,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceSetupListSUReq =
                PDUSessionResourceSetupListSUReq(vec![PDUSessionResourceSetupItemSUReq::new(
                    PDUSessionID(5),
                    Some(nas()),
                    meters(),
                    setup_transfer().into(),
                    None
                )]),
            UEAggregateMaximumBitRate = ue_ambr()
        ),
        ngap_case!(
            "PDUSessionResourceSetupResponse",
            SuccessfulOutcome,
            PDUSessionResourceSetup,
            PDUSessionResourceSetupResponse,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceSetupListSURes =
                PDUSessionResourceSetupListSURes(vec![PDUSessionResourceSetupItemSURes::new(
                    PDUSessionID(5),
                    response_transfer().into(),
                    None
                )])
        ),
        ngap_case!(
            "PDUSessionResourceSetupResponse-failed",
            SuccessfulOutcome,
            PDUSessionResourceSetup,
            PDUSessionResourceSetupResponse,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceFailedToSetupListSURes =
                PDUSessionResourceFailedToSetupListSURes(vec![PDUSessionResourceFailedToSetupItemSURes::new(
                    PDUSessionID(5),
                    unsuccessful_transfer().into(),
                    None
                )])
        ),
        ngap_case!(
            "PDUSessionResourceReleaseCommand",
            InitiatingMessage,
            PDUSessionResourceRelease,
            PDUSessionResourceReleaseCommand,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            NAS_PDU = nas(),
            PDUSessionResourceToReleaseListRelCmd =
                PDUSessionResourceToReleaseListRelCmd(vec![PDUSessionResourceToReleaseItemRelCmd::new(
                    PDUSessionID(5),
                    encoded(&PDUSessionResourceReleaseCommandTransfer::new(Cause::nas(CauseNas::normal_release), None))
                        .into(),
                    None
                )])
        ),
        ngap_case!(
            "PDUSessionResourceReleaseResponse",
            SuccessfulOutcome,
            PDUSessionResourceRelease,
            PDUSessionResourceReleaseResponse,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceReleasedListRelRes =
                PDUSessionResourceReleasedListRelRes(vec![PDUSessionResourceReleasedItemRelRes::new(
                    PDUSessionID(5),
                    encoded(&PDUSessionResourceReleaseResponseTransfer::new(None)).into(),
                    None
                )])
        ),
    ]
}

fn handover() -> Vec<Case> {
    vec![
        ngap_case!(
            "HandoverRequired",
            InitiatingMessage,
            HandoverPreparation,
            HandoverRequired,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            HandoverType = HandoverType::intra5gs,
            Cause = Cause::radioNetwork(CauseRadioNetwork::handover_desirable_for_radio_reason),
            TargetID = TargetID::targetRANNodeID(TargetRANNodeID::new(gnb(), area(), None)),
            PDUSessionResourceListHORqd = PDUSessionResourceListHORqd(vec![PDUSessionResourceItemHORqd::new(
                PDUSessionID(5),
                encoded(&HandoverRequiredTransfer::new(
                    Some(DirectForwardingPathAvailability::direct_path_available),
                    None
                ))
                .into(),
                None
            )]),
            SourceToTarget_TransparentContainer = SourceToTargetTransparentContainer(
                octets("000200000099f9070001020030000099f9070001020030800005").into()
            )
        ),
        ngap_case!(
            "HandoverPreparationFailure",
            UnsuccessfulOutcome,
            HandoverPreparation,
            HandoverPreparationFailure,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            Cause = Cause::radioNetwork(CauseRadioNetwork::ho_failure_in_target_5GC_ngran_node_or_target_system)
        ),
        ngap_case!(
            "HandoverCancel",
            InitiatingMessage,
            HandoverCancel,
            HandoverCancel,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            Cause = Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)
        ),
        ngap_case!(
            "HandoverCancelAcknowledge",
            SuccessfulOutcome,
            HandoverCancel,
            HandoverCancelAcknowledge,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id()
        ),
        ngap_case!(
            "HandoverNotify",
            InitiatingMessage,
            HandoverNotification,
            HandoverNotify,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            UserLocationInformation = location()
        ),
    ]
}

/// Returns eNB 0xabc as the target of a handover.
fn target_enb() -> TargetID {
    let enb = GlobalNgENBID::new(network(), NgENBID::macroNgENB_ID(Bits::new(0xabc, 20).expect("20 bits")), None);
    TargetID::targeteNB_ID(TargeteNBID::new(enb, EPSTAI::new(network(), EPSTAC([0, 7]), None), None))
}

/// Returns {NH, NCC} of a UE from EPS.
fn temporary_key() -> SecurityContext<'static> {
    let key = octets("383c6b76bf2a99aa2ca4c5136d4122a2b942301f0b9e07439786939cd30c4a4b");
    let key = <[u8; 32]>::try_from(key).expect("32 octets");
    SecurityContext::new(NextHopChainingCount(0), SecurityKey(key.into()), None)
}

/// Messages of a handover between 5GS and EPS.
fn intersystem() -> Vec<Case> {
    vec![
        ngap_case!(
            "HandoverRequired-to-eps",
            InitiatingMessage,
            HandoverPreparation,
            HandoverRequired,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            HandoverType = HandoverType::fivegs_to_eps,
            Cause = Cause::radioNetwork(CauseRadioNetwork::handover_desirable_for_radio_reason),
            TargetID = target_enb(),
            PDUSessionResourceListHORqd = PDUSessionResourceListHORqd(vec![PDUSessionResourceItemHORqd::new(
                PDUSessionID(5),
                encoded(&HandoverRequiredTransfer::new(None, None)).into(),
                None
            )]),
            SourceToTarget_TransparentContainer =
                SourceToTargetTransparentContainer(octets("0001800099f90700abc0100099f90700abc010800005").into())
        ),
        ngap_case!(
            "HandoverRequest-from-eps",
            InitiatingMessage,
            HandoverResourceAllocation,
            HandoverRequest,
            AMF_UE_NGAP_ID = amf_id(),
            HandoverType = HandoverType::eps_to_5gs,
            Cause = Cause::radioNetwork(CauseRadioNetwork::handover_desirable_for_radio_reason),
            UEAggregateMaximumBitRate = ue_ambr(),
            UESecurityCapabilities = algorithms(),
            SecurityContext = temporary_key(),
            NewSecurityContextInd = NewSecurityContextInd::R_true,
            NASC = NASPDU(octets("32560ac7222a0000").into()),
            PDUSessionResourceSetupListHOReq =
                PDUSessionResourceSetupListHOReq(vec![PDUSessionResourceSetupItemHOReq::new(
                    PDUSessionID(5),
                    meters(),
                    flow_transfer(Some(ERABID(6))).into(),
                    None
                )]),
            AllowedNSSAI = allowed(),
            SourceToTarget_TransparentContainer = SourceToTargetTransparentContainer(
                octets("000200000099f9070001020030000099f9070001020030800005").into()
            ),
            GUAMI = our_guami()
        ),
        ngap_case!(
            "HandoverCommand-to-eps",
            SuccessfulOutcome,
            HandoverPreparation,
            HandoverCommand,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            HandoverType = HandoverType::fivegs_to_eps,
            NASSecurityParametersFromNGRAN = NASSecurityParametersFromNGRAN(vec![0x2c].into()),
            PDUSessionResourceHandoverList = PDUSessionResourceHandoverList(vec![PDUSessionResourceHandoverItem::new(
                PDUSessionID(5),
                forwarding_transfer().into(),
                None
            )]),
            TargetToSource_TransparentContainer = TargetToSourceTransparentContainer(octets("000180").into())
        ),
    ]
}

fn path_switch() -> Vec<Case> {
    vec![
        ngap_case!(
            "PathSwitchRequest",
            InitiatingMessage,
            PathSwitchRequest,
            PathSwitchRequest,
            RAN_UE_NGAP_ID = ran_id(),
            SourceAMF_UE_NGAP_ID = amf_id(),
            UserLocationInformation = location(),
            UESecurityCapabilities = algorithms(),
            PDUSessionResourceToBeSwitchedDLList =
                PDUSessionResourceToBeSwitchedDLList(vec![PDUSessionResourceToBeSwitchedDLItem::new(
                    PDUSessionID(5),
                    encoded(&PathSwitchRequestTransfer::new(
                        tunnel(10, 0x1122_3344),
                        None,
                        None,
                        QosFlowAcceptedList(vec![QosFlowAcceptedItem::new(QosFlowIdentifier(1), None)]),
                        None
                    ))
                    .into(),
                    None
                )])
        ),
        ngap_case!(
            "PathSwitchRequestAcknowledge",
            SuccessfulOutcome,
            PathSwitchRequest,
            PathSwitchRequestAcknowledge,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            SecurityContext = SecurityContext::new(
                NextHopChainingCount(2),
                SecurityKey(octets("383c6b76bf2a99aa2ca4c5136d4122a2b942301f0b9e07439786939cd30c4a4b").into()),
                None
            ),
            PDUSessionResourceSwitchedList = PDUSessionResourceSwitchedList(vec![PDUSessionResourceSwitchedItem::new(
                PDUSessionID(5),
                encoded(&PathSwitchRequestAcknowledgeTransfer::new(Some(tunnel(7, 0x101)), None, None)).into(),
                None
            )]),
            AllowedNSSAI = allowed()
        ),
    ]
}
