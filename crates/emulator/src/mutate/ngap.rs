//! Valid NGAP PDUs of gNBs, as input of mutations or for the wrong time.

use crate::dialect::UeIds;
use crate::gnb::{Gnb, HandoverContext, Outbox};
use vireo_wire::ngap::{build_ngap, *};

/// Returns a PDU of each kind that emulated gNBs do not send by themselves.
pub(super) fn rare(gnb: &Gnb, target: &Gnb) -> Vec<Vec<u8>> {
    let ids = UeIds { core: 1, ran: 1 };
    let built = [
        context_setup_failure(ids),
        modification_failure(ids),
        modification_response(ids),
        capability(ids),
        non_delivery(ids),
        inactive(gnb, ids),
        location_report(gnb, ids),
        handover_failure(ids),
        error_indication(ids),
        notify(ids),
        modify_indication(ids),
        status_transfer(ids),
    ];
    let moved = HandoverContext {
        owner: 0,
        core_id: 1,
        capability: (0xf0, 0x70),
        eutra_capability: (0, 0),
        tunnels: Vec::new(),
    };
    let mut out = Outbox::default();
    let _ = Gnb::new(target.config().clone()).path_switch(moved, |_| true, &mut out);
    built.into_iter().flatten().chain(out.pdus().map(|(_, octets)| octets.to_vec())).collect()
}

fn encoded(pdu: Result<NGAP_PDU, Error>) -> Option<Vec<u8>> {
    pdu.and_then(|pdu| pdu.encode()).ok()
}

fn cause() -> Cause {
    Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost)
}

fn context_setup_failure(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        UnsuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupFailure,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        Cause(cause()),
    ))
}

fn modification_failure(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        UnsuccessfulOutcome,
        UEContextModification,
        UEContextModificationFailure,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        Cause(cause()),
    ))
}

fn modification_response(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        SuccessfulOutcome,
        UEContextModification,
        UEContextModificationResponse,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
    ))
}

fn capability(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        UERadioCapabilityInfoIndication,
        UERadioCapabilityInfoIndication,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        UERadioCapability(vec![0x04, 0x80, 0x10, 0x20]),
    ))
}

fn non_delivery(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        NASNonDeliveryIndication,
        NASNonDeliveryIndication,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        NAS_PDU(vec![0x7e, 0, 0x68, 1, 0, 0]),
        Cause(cause()),
    ))
}

fn inactive(gnb: &Gnb, ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        RRCInactiveTransitionReport,
        RRCInactiveTransitionReport,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        RRCState(RRCState::inactive),
        UserLocationInformation(gnb.location().ok()?),
    ))
}

fn location_report(gnb: &Gnb, ids: UeIds) -> Option<Vec<u8>> {
    let request = LocationReportingRequestType::new(EventType::direct, ReportArea::cell, None, None, None);
    encoded(build_ngap!(
        InitiatingMessage,
        LocationReport,
        LocationReport,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        UserLocationInformation(gnb.location().ok()?),
        LocationReportingRequestType(request),
    ))
}

fn handover_failure(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        UnsuccessfulOutcome,
        HandoverResourceAllocation,
        HandoverFailure,
        AMF_UE_NGAP_ID(ids.core),
        Cause(cause()),
    ))
}

fn error_indication(ids: UeIds) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        ErrorIndication,
        ErrorIndication,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        Cause(cause()),
    ))
}

fn notify(ids: UeIds) -> Option<Vec<u8>> {
    let transfer = PDUSessionResourceNotifyReleasedTransfer::new(cause(), None);
    let item = PDUSessionResourceReleasedItemNot::new(PDUSessionID(1), encode_open_type(&transfer).ok()?, None);
    encoded(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceNotify,
        PDUSessionResourceNotify,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        PDUSessionResourceReleasedListNot(PDUSessionResourceReleasedListNot(vec![item])),
    ))
}

fn modify_indication(ids: UeIds) -> Option<Vec<u8>> {
    let item = PDUSessionResourceModifyItemModInd::new(PDUSessionID(1), vec![0, 0, 0].into(), None);
    encoded(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceModifyIndication,
        PDUSessionResourceModifyIndication,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        PDUSessionResourceModifyListModInd(PDUSessionResourceModifyListModInd(vec![item])),
    ))
}

fn status_transfer(ids: UeIds) -> Option<Vec<u8>> {
    let up = DRBStatusUL::dRBStatusUL18(DRBStatusUL18::new(COUNTValueForPDCPSN18::new(3, 0, None), None, None));
    let down = DRBStatusDL::dRBStatusDL18(DRBStatusDL18::new(COUNTValueForPDCPSN18::new(5, 0, None), None));
    let bearer = DRBsSubjectToStatusTransferItem::new(DRBID(1), up, down, None);
    let status = RANStatusTransferTransparentContainer::new(DRBsSubjectToStatusTransferList(vec![bearer]), None);
    encoded(build_ngap!(
        InitiatingMessage,
        UplinkRANStatusTransfer,
        UplinkRANStatusTransfer,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        RANStatusTransfer_TransparentContainer(status),
    ))
}

/// Returns an UPLINK NAS TRANSPORT with these identifiers.
pub(super) fn uplink_nas(gnb: &Gnb, ids: UeIds, nas: &[u8]) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        UplinkNASTransport,
        UplinkNASTransport,
        AMF_UE_NGAP_ID(ids.core),
        RAN_UE_NGAP_ID(ids.ran),
        NAS_PDU(NASPDU(nas.into())),
        UserLocationInformation(gnb.location().ok()?),
    ))
}

/// Returns a non-UE-associated message that only an answer or an AMF would be, or an NG RESET of
/// one connection.
pub(super) fn node_message(ids: UeIds, kind: usize) -> Option<Vec<u8>> {
    let item =
        || UEAssociatedLogicalNGConnectionItem::new(Some(AMFUENGAPID(ids.core)), Some(RANUENGAPID(ids.ran)), None);
    encoded(match kind {
        0 => {
            let list = ResetType::partOfNG_Interface(UEAssociatedLogicalNGConnectionList(vec![item()]));
            build_ngap!(InitiatingMessage, NGReset, NGReset, Cause(cause()), ResetType(list))
        }
        1 => build_ngap!(SuccessfulOutcome, NGReset, NGResetAcknowledge,),
        2 => build_ngap!(SuccessfulOutcome, AMFConfigurationUpdate, AMFConfigurationUpdateAcknowledge,),
        _ => build_ngap!(InitiatingMessage, ErrorIndication, ErrorIndication, Cause(cause())),
    })
}
