//! Valid NGAP PDUs of RAN nodes, as input of mutations or for the wrong time.

use super::asn1;
use super::dice::pick;
use crate::gnb::{Gnb, GnbConfig, Outbox, XnHandoverContext};
use crate::load::Rng;
use vireo_types::{Guti, RanUeNgapId};
use vireo_wire::ngap::{build_ngap, *};

/// UE NGAP IDs of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) amf: u64,
    pub(super) ran: u32,
}

/// Maximum number of stored PDUs of a kind.
const EACH: usize = 4;

/// PDUs by kind. They come from the associations, in both directions, and from builders.
#[derive(Debug, Default)]
pub(super) struct Library {
    ue: Vec<(NgapPduKind, Vec<Vec<u8>>)>,
}

impl Library {
    /// Creates a library with a PDU of each kind that emulated gNBs do not send by themselves.
    pub(super) fn new(gnb: &Gnb, target: &GnbConfig) -> Self {
        let mut library = Library::default();
        let ids = Ids { amf: 1, ran: 1 };
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
        built.into_iter().flatten().for_each(|octets| library.keep(&octets));
        let tunnels = Vec::new();
        let moved = XnHandoverContext { owner: 0, amf_id: 1, capability: (0xf0, 0x70), tunnels };
        let mut out = Outbox::default();
        let _ = Gnb::new(target.clone()).path_switch(moved, |_| true, &mut out);
        out.pdus().for_each(|(_, octets)| library.keep(octets));
        library
    }

    /// Stores a UE-associated PDU if there are few of its kind.
    pub(super) fn keep(&mut self, octets: &[u8]) {
        let Ok(pdu) = NGAP_PDU::decode_borrowed(octets) else { return };
        if pdu.ie::<ie::RAN_UE_NGAP_ID>().is_none() && pdu.ie::<ie::AMF_UE_NGAP_ID>().is_none() {
            return;
        }
        let kind = pdu.kind();
        match self.ue.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, kept)) if kept.len() < EACH => kept.push(octets.to_vec()),
            Some(_) => {}
            None => self.ue.push((kind, vec![octets.to_vec()])),
        }
    }

    /// Returns a PDU of a random kind; all kinds have the same probability.
    pub(super) fn any(&self, rng: &mut Rng) -> &[u8] {
        match self.ue.as_slice() {
            [] => &[],
            kinds => {
                let (_, kept) = pick(rng, kinds);
                pick::<Vec<u8>>(rng, kept)
            }
        }
    }

    /// Returns a PDU of a random kind for this UE.
    pub(super) fn about(&self, ids: Ids, rng: &mut Rng) -> Option<Vec<u8>> {
        asn1::retarget(self.any(rng), Some(ids.amf), Some(ids.ran))
    }

    /// As `about`, without kinds that the AMF accepts from any RAN node: PATH SWITCH REQUEST (TS
    /// 38.413 8.4.4).
    pub(super) fn about_foreign(&self, ids: Ids, rng: &mut Rng) -> Option<Vec<u8>> {
        let octets = self.any(rng);
        let kind = NGAP_PDU::decode_borrowed(octets).ok()?.kind();
        if kind == NgapPduKind::Initiating_PathSwitchRequest {
            return None;
        }
        asn1::retarget(octets, Some(ids.amf), Some(ids.ran))
    }
}

fn encoded(pdu: Result<NGAP_PDU, Error>) -> Option<Vec<u8>> {
    pdu.and_then(|pdu| pdu.encode()).ok()
}

fn cause() -> Cause {
    Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost)
}

fn context_setup_failure(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        UnsuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupFailure,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        Cause(cause()),
    ))
}

fn modification_failure(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        UnsuccessfulOutcome,
        UEContextModification,
        UEContextModificationFailure,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        Cause(cause()),
    ))
}

fn modification_response(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        SuccessfulOutcome,
        UEContextModification,
        UEContextModificationResponse,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
    ))
}

fn capability(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        UERadioCapabilityInfoIndication,
        UERadioCapabilityInfoIndication,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        UERadioCapability(vec![0x04, 0x80, 0x10, 0x20]),
    ))
}

fn non_delivery(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        NASNonDeliveryIndication,
        NASNonDeliveryIndication,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        NAS_PDU(vec![0x7e, 0, 0x68, 1, 0, 0]),
        Cause(cause()),
    ))
}

fn inactive(gnb: &Gnb, ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        RRCInactiveTransitionReport,
        RRCInactiveTransitionReport,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        RRCState(RRCState::inactive),
        UserLocationInformation(gnb.location().ok()?),
    ))
}

fn location_report(gnb: &Gnb, ids: Ids) -> Option<Vec<u8>> {
    let request = LocationReportingRequestType::new(EventType::direct, ReportArea::cell, None, None, None);
    encoded(build_ngap!(
        InitiatingMessage,
        LocationReport,
        LocationReport,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        UserLocationInformation(gnb.location().ok()?),
        LocationReportingRequestType(request),
    ))
}

fn handover_failure(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        UnsuccessfulOutcome,
        HandoverResourceAllocation,
        HandoverFailure,
        AMF_UE_NGAP_ID(ids.amf),
        Cause(cause()),
    ))
}

fn error_indication(ids: Ids) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        ErrorIndication,
        ErrorIndication,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        Cause(cause()),
    ))
}

fn notify(ids: Ids) -> Option<Vec<u8>> {
    let transfer = PDUSessionResourceNotifyReleasedTransfer::new(cause(), None);
    let item = PDUSessionResourceReleasedItemNot::new(PDUSessionID(1), encode_open_type(&transfer).ok()?, None);
    encoded(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceNotify,
        PDUSessionResourceNotify,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        PDUSessionResourceReleasedListNot(PDUSessionResourceReleasedListNot(vec![item])),
    ))
}

fn modify_indication(ids: Ids) -> Option<Vec<u8>> {
    let item = PDUSessionResourceModifyItemModInd::new(PDUSessionID(1), vec![0, 0, 0].into(), None);
    encoded(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceModifyIndication,
        PDUSessionResourceModifyIndication,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        PDUSessionResourceModifyListModInd(PDUSessionResourceModifyListModInd(vec![item])),
    ))
}

fn status_transfer(ids: Ids) -> Option<Vec<u8>> {
    let up = DRBStatusUL::dRBStatusUL18(DRBStatusUL18::new(COUNTValueForPDCPSN18::new(3, 0, None), None, None));
    let down = DRBStatusDL::dRBStatusDL18(DRBStatusDL18::new(COUNTValueForPDCPSN18::new(5, 0, None), None));
    let bearer = DRBsSubjectToStatusTransferItem::new(DRBID(1), up, down, None);
    let status = RANStatusTransferTransparentContainer::new(DRBsSubjectToStatusTransferList(vec![bearer]), None);
    encoded(build_ngap!(
        InitiatingMessage,
        UplinkRANStatusTransfer,
        UplinkRANStatusTransfer,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        RANStatusTransfer_TransparentContainer(status),
    ))
}

/// Returns an UPLINK NAS TRANSPORT with these identifiers.
pub(super) fn uplink_nas(gnb: &Gnb, ids: Ids, nas: &[u8]) -> Option<Vec<u8>> {
    encoded(build_ngap!(
        InitiatingMessage,
        UplinkNASTransport,
        UplinkNASTransport,
        AMF_UE_NGAP_ID(ids.amf),
        RAN_UE_NGAP_ID(ids.ran),
        NAS_PDU(NASPDU(nas.into())),
        UserLocationInformation(gnb.location().ok()?),
    ))
}

/// Returns an INITIAL UE MESSAGE with this RAN-UE-NGAP-ID.
pub(super) fn initial_ue(config: &GnbConfig, ran: u32, nas: &[u8], guti: Option<Guti>) -> Option<Vec<u8>> {
    let mut out = Outbox::default();
    Gnb::new(config.clone()).initial_ue(0, nas, guti, RRCEstablishmentCause::mo_Signalling, &mut out).ok()?;
    let octets = out.pdus().next()?.1.to_vec();
    asn1::retarget(&octets, None, Some(ran))
}

/// Returns a non-UE-associated message. It is NG SETUP, RAN CONFIGURATION UPDATE, NG RESET of some
/// connections, an answer to one of these, or a message that only an AMF sends.
pub(super) fn node_message(config: &GnbConfig, ids: Ids, rng: &mut Rng) -> Option<Vec<u8>> {
    let mut gnb = Gnb::new(config.clone());
    let mut out = Outbox::default();
    match rng.below(9) {
        0 | 1 => gnb.set_up(2, &mut out).ok()?,
        2..=4 => gnb.update_configuration(&mut out).ok()?,
        5 => {
            let item =
                UEAssociatedLogicalNGConnectionItem::new(Some(AMFUENGAPID(ids.amf)), Some(RANUENGAPID(ids.ran)), None);
            let list = ResetType::partOfNG_Interface(UEAssociatedLogicalNGConnectionList(vec![item]));
            return encoded(build_ngap!(InitiatingMessage, NGReset, NGReset, Cause(cause()), ResetType(list)));
        }
        6 => return encoded(build_ngap!(SuccessfulOutcome, NGReset, NGResetAcknowledge,)),
        7 => {
            let answer = build_ngap!(SuccessfulOutcome, AMFConfigurationUpdate, AMFConfigurationUpdateAcknowledge,);
            return encoded(answer);
        }
        _ => return encoded(build_ngap!(InitiatingMessage, ErrorIndication, ErrorIndication, Cause(cause()))),
    }
    let (_, octets) = out.pdus().next()?;
    Some(octets.to_vec())
}

/// Returns the identifiers of the gNB's connection.
pub(super) fn ids_of(gnb: &Gnb, ran: RanUeNgapId) -> Option<Ids> {
    Some(Ids { amf: gnb.amf_id(ran)?, ran: ran.0 })
}
