//! Changes that a RAN node starts (TS 38.413 8.2.4, 8.2.5, 8.3.5, 8.12), and requests that only an
//! AMF sends.

use crate::case::{Case, golden, ngap_case};
use crate::values::*;
use vireo_wire::ngap::aper::Bits;
use vireo_wire::ngap::*;

fn encoded<T: aper::Encode>(transfer: &T) -> Vec<u8> {
    encode_open_type(transfer).expect("it encodes").to_vec()
}

fn indicated() -> PDUSessionResourceModifyListModInd<'static> {
    let flows = AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(QosFlowIdentifier(1), None, None)]);
    let tunnel = QosFlowPerTNLInformation::new(tunnel(10, 0x1122_3344), flows, None);
    let transfer = encoded(&PDUSessionResourceModifyIndicationTransfer::new(tunnel, None, None));
    let item = PDUSessionResourceModifyItemModInd::new(PDUSessionID(5), transfer.into(), None);
    PDUSessionResourceModifyListModInd(vec![item])
}

fn confirmed() -> PDUSessionResourceModifyListModCfm<'static> {
    let flows = QosFlowModifyConfirmList(vec![QosFlowModifyConfirmItem::new(QosFlowIdentifier(1), None)]);
    let transfer = PDUSessionResourceModifyConfirmTransfer::new(flows, tunnel(7, 0x101), None, None, None);
    let item = PDUSessionResourceModifyItemModCfm::new(PDUSessionID(5), encoded(&transfer).into(), None);
    PDUSessionResourceModifyListModCfm(vec![item])
}

fn refused() -> PDUSessionResourceFailedToModifyListModCfm<'static> {
    let cause = Cause::transport(CauseTransport::transport_resource_unavailable);
    let transfer = encoded(&PDUSessionResourceModifyIndicationUnsuccessfulTransfer::new(cause, None));
    let item = PDUSessionResourceFailedToModifyItemModCfm::new(PDUSessionID(6), transfer.into(), None);
    PDUSessionResourceFailedToModifyListModCfm(vec![item])
}

fn notified() -> PDUSessionResourceNotifyList<'static> {
    let flows = vec![
        QosFlowNotifyItem::new(QosFlowIdentifier(1), NotificationCause::not_fulfilled, None),
        QosFlowNotifyItem::new(QosFlowIdentifier(2), NotificationCause::fulfilled, None),
    ];
    let transfer = encoded(&PDUSessionResourceNotifyTransfer::new(Some(QosFlowNotifyList(flows)), None, None));
    PDUSessionResourceNotifyList(vec![PDUSessionResourceNotifyItem::new(PDUSessionID(5), transfer.into(), None)])
}

fn released() -> PDUSessionResourceReleasedListNot<'static> {
    let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
    let transfer = encoded(&PDUSessionResourceNotifyReleasedTransfer::new(cause, None));
    let item = PDUSessionResourceReleasedItemNot::new(PDUSessionID(6), transfer.into(), None);
    PDUSessionResourceReleasedListNot(vec![item])
}

/// Cell 1 of a macro ng-eNB.
fn eutra_location() -> UserLocationInformation<'static> {
    let cell = EUTRACellIdentity(Bits::new(0x123_4501, 28).expect("28 bits"));
    let cell = EUTRACGI::new(network(), cell, None);
    UserLocationInformation::userLocationInformationEUTRA(UserLocationInformationEUTRA::new(cell, area(), None, None))
}

fn unspecified() -> Cause {
    Cause::radioNetwork(CauseRadioNetwork::unspecified)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = sessions();
    cases.extend(reports());
    cases
}

fn sessions() -> Vec<Case> {
    vec![
        ngap_case!(
            "PDUSessionResourceModifyIndication",
            InitiatingMessage,
            PDUSessionResourceModifyIndication,
            PDUSessionResourceModifyIndication,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceModifyListModInd = indicated()
        ),
        ngap_case!(
            "PDUSessionResourceModifyConfirm",
            SuccessfulOutcome,
            PDUSessionResourceModifyIndication,
            PDUSessionResourceModifyConfirm,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceModifyListModCfm = confirmed(),
            PDUSessionResourceFailedToModifyListModCfm = refused()
        ),
        ngap_case!(
            "PDUSessionResourceNotify",
            InitiatingMessage,
            PDUSessionResourceNotify,
            PDUSessionResourceNotify,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            PDUSessionResourceNotifyList = notified(),
            PDUSessionResourceReleasedListNot = released()
        ),
    ]
}

fn reports() -> Vec<Case> {
    vec![
        ngap_case!(
            "RRCInactiveTransitionReport",
            InitiatingMessage,
            RRCInactiveTransitionReport,
            RRCInactiveTransitionReport,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            RRCState = RRCState::inactive,
            UserLocationInformation = location()
        ),
        ngap_case!(
            "LocationReportingControl",
            InitiatingMessage,
            LocationReportingControl,
            LocationReportingControl,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            LocationReportingRequestType =
                LocationReportingRequestType::new(EventType::change_of_serve_cell, ReportArea::cell, None, None, None)
        ),
        ngap_case!(
            "LocationReport",
            InitiatingMessage,
            LocationReport,
            LocationReport,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            UserLocationInformation = eutra_location(),
            LocationReportingRequestType =
                LocationReportingRequestType::new(EventType::change_of_serve_cell, ReportArea::cell, None, None, None)
        ),
        ngap_case!(
            "LocationReportingFailureIndication",
            InitiatingMessage,
            LocationReportingFailureIndication,
            LocationReportingFailureIndication,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            Cause = unspecified()
        ),
        ngap_case!(
            "UEContextModificationFailure",
            UnsuccessfulOutcome,
            UEContextModification,
            UEContextModificationFailure,
            AMF_UE_NGAP_ID = amf_id(),
            RAN_UE_NGAP_ID = ran_id(),
            Cause = unspecified()
        ),
        ngap_case!(
            "RerouteNASRequest",
            InitiatingMessage,
            RerouteNASRequest,
            RerouteNASRequest,
            RAN_UE_NGAP_ID = ran_id(),
            AMF_UE_NGAP_ID = amf_id(),
            NGAP_Message = golden()["InitialUEMessage"].clone(),
            AMFSetID = AMFSetID(Bits::new(1, 10).expect("10 bits"))
        ),
        ngap_case!(
            "AMFStatusIndication",
            InitiatingMessage,
            AMFStatusIndication,
            AMFStatusIndication,
            UnavailableGUAMIList = UnavailableGUAMIList(vec![UnavailableGUAMIItem::new(our_guami(), None, None, None)])
        ),
    ]
}
