//! NGAP messages of handover (TS 38.413 9.2.3).

use super::messages::{MappedCommand, PathSwitchAnswer, Request, RequestedSession};
use crate::amf::context::{Connection, NextHop};
use crate::amf::n2::{
    Cause, SessionItems, allowed_nssai, ambr_to, capability_to, encode, masked_imeisv, plmn_to, snssai_to,
};
use crate::smf;
use vireo_types::{AmfUeNgapId, RanUeNgapId};
use vireo_wire::ngap::{self, Message, *};

fn security_context(next_hop: NextHop) -> SecurityContext<'static> {
    SecurityContext::new(NextHopChainingCount(next_hop.ncc), SecurityKey(next_hop.nh.into()), None)
}

/// Encodes PATH SWITCH REQUEST ACKNOWLEDGE (9.2.3.9). Each session has its transfer: Path Switch
/// Request Acknowledge Transfer, or Unsuccessful Transfer.
pub fn path_switch_acknowledge(connection: &Connection, answer: PathSwitchAnswer<'_>) -> Vec<u8> {
    let PathSwitchAnswer { capability, next_hop, is_renewed, switched, released, allowed, information, .. } = answer;
    let item =
        |(psi, transfer): (u8, Vec<u8>)| PDUSessionResourceSwitchedItem::new(PDUSessionID(psi), transfer.into(), None);
    let switched = PDUSessionResourceSwitchedList(switched.into_iter().map(item).collect());
    let gone = |(psi, transfer): (u8, Vec<u8>)| {
        PDUSessionResourceReleasedItemPSAck::new(PDUSessionID(psi), transfer.into(), None)
    };
    let released = PDUSessionResourceReleasedListPSAck(released.into_iter().map(gone).collect());
    let build = || -> Result<NGAPPDU<'_>, ngap::Error> {
        let mut ies = vec![
            build_ngap_ie!(PathSwitchRequestAcknowledge, AMF_UE_NGAP_ID(connection.amf_id.get()))?,
            build_ngap_ie!(PathSwitchRequestAcknowledge, RAN_UE_NGAP_ID(connection.ran_id.0))?,
        ];
        if let Some(capability) = capability {
            let capability = capability_to(capability);
            ies.push(build_ngap_ie!(PathSwitchRequestAcknowledge, UESecurityCapabilities(capability))?);
        }
        ies.push(build_ngap_ie!(PathSwitchRequestAcknowledge, SecurityContext(security_context(next_hop)))?);
        if is_renewed {
            let mark = NewSecurityContextInd::R_true;
            ies.push(build_ngap_ie!(PathSwitchRequestAcknowledge, NewSecurityContextInd(mark))?);
        }
        ies.push(build_ngap_ie!(PathSwitchRequestAcknowledge, PDUSessionResourceSwitchedList(switched))?);
        if !released.0.is_empty() {
            ies.push(build_ngap_ie!(PathSwitchRequestAcknowledge, PDUSessionResourceReleasedListPSAck(released))?);
        }
        ies.push(build_ngap_ie!(PathSwitchRequestAcknowledge, AllowedNSSAI(allowed_nssai(allowed)))?);
        if let Some(inactive) = &information.inactive {
            let inactive = inactive.encode();
            ies.push(build_ngap_ie!(
                PathSwitchRequestAcknowledge,
                CoreNetworkAssistanceInformationForInactive(inactive)
            )?);
        }
        let message = PathSwitchRequestAcknowledge::new(ProtocolIEContainer(ies));
        NGAP_PDU::of_message(&message, PathSwitchRequestAcknowledge::CRITICALITY)
    };
    encode(build())
}

/// Encodes PATH SWITCH REQUEST FAILURE (9.2.3.10), with the Path Switch Request Unsuccessful
/// Transfer of each session.
pub fn path_switch_failure(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, sessions: Vec<(u8, Vec<u8>)>) -> Vec<u8> {
    let item = |(psi, transfer): (u8, Vec<u8>)| {
        PDUSessionResourceReleasedItemPSFail::new(PDUSessionID(psi), transfer.into(), None)
    };
    let list = PDUSessionResourceReleasedListPSFail(sessions.into_iter().map(item).collect());
    encode(build_ngap!(
        UnsuccessfulOutcome,
        PathSwitchRequest,
        PathSwitchRequestFailure,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        PDUSessionResourceReleasedListPSFail(list),
    ))
}

/// Encodes PDU SESSION RESOURCE MODIFY CONFIRM (9.2.1.9): the sessions that are modified with their
/// transfers, and those that are not, one bit each.
pub(super) fn modification_confirm(connection: &Connection, modified: SessionItems, failed: u16) -> Vec<u8> {
    let item = |(psi, transfer): (u8, Vec<u8>)| {
        PDUSessionResourceModifyItemModCfm::new(PDUSessionID(psi), transfer.into(), None)
    };
    let modified = PDUSessionResourceModifyListModCfm(modified.into_iter().map(item).collect());
    let refused = |psi: u8| {
        let transfer = smf::modify_refusal();
        PDUSessionResourceFailedToModifyItemModCfm::new(PDUSessionID(psi), transfer.into(), None)
    };
    let failed = (0..16_u8).filter(|psi| failed >> psi & 1 == 1).map(refused).collect();
    let failed = PDUSessionResourceFailedToModifyListModCfm(failed);
    let build = || -> Result<NGAPPDU<'_>, ngap::Error> {
        let mut ies = vec![
            build_ngap_ie!(PDUSessionResourceModifyConfirm, AMF_UE_NGAP_ID(connection.amf_id.get()))?,
            build_ngap_ie!(PDUSessionResourceModifyConfirm, RAN_UE_NGAP_ID(connection.ran_id.0))?,
        ];
        if !modified.0.is_empty() {
            ies.push(build_ngap_ie!(PDUSessionResourceModifyConfirm, PDUSessionResourceModifyListModCfm(modified))?);
        }
        if !failed.0.is_empty() {
            ies.push(build_ngap_ie!(
                PDUSessionResourceModifyConfirm,
                PDUSessionResourceFailedToModifyListModCfm(failed)
            )?);
        }
        let message = PDUSessionResourceModifyConfirm::new(ProtocolIEContainer(ies));
        NGAP_PDU::of_message(&message, PDUSessionResourceModifyConfirm::CRITICALITY)
    };
    encode(build())
}

/// Encodes HANDOVER REQUEST (9.2.3.4).
pub fn handover_request(amf_id: AmfUeNgapId, request: Request<'_>) -> Vec<u8> {
    let item = |RequestedSession { psi, snssai, transfer, .. }: RequestedSession| {
        PDUSessionResourceSetupItemHOReq::new(PDUSessionID(psi), snssai_to(snssai), transfer.into(), None)
    };
    let sessions = PDUSessionResourceSetupListHOReq(request.sessions.into_iter().map(item).collect());
    let g = request.guami;
    let handover_type = match request.mapped {
        None => HandoverType::intra5gs,
        Some(_) => HandoverType::eps_to_5gs,
    };
    let build = || -> Result<NGAPPDU<'_>, ngap::Error> {
        let guami = ngap::helpers::guami(plmn_to(g.plmn), g.region, g.set, g.pointer)?;
        let source = SourceToTargetTransparentContainer(request.container.to_vec().into());
        let mut ies = vec![
            build_ngap_ie!(HandoverRequest, AMF_UE_NGAP_ID(amf_id.get()))?,
            build_ngap_ie!(HandoverRequest, HandoverType(handover_type))?,
            build_ngap_ie!(HandoverRequest, Cause(request.cause))?,
            build_ngap_ie!(HandoverRequest, UEAggregateMaximumBitRate(ambr_to(request.ambr)))?,
        ];
        if let Some(inactive) = &request.information.inactive {
            let inactive = inactive.encode();
            ies.push(build_ngap_ie!(HandoverRequest, CoreNetworkAssistanceInformationForInactive(inactive))?);
        }
        ies.extend([
            build_ngap_ie!(HandoverRequest, UESecurityCapabilities(capability_to(request.capability)))?,
            build_ngap_ie!(HandoverRequest, SecurityContext(security_context(request.next_hop)))?,
        ]);
        if let Some(nas) = request.mapped.and_then(|mapped| mapped.container) {
            ies.push(build_ngap_ie!(HandoverRequest, NewSecurityContextInd(NewSecurityContextInd::R_true))?);
            ies.push(build_ngap_ie!(HandoverRequest, NASC(NASPDU(nas.to_vec().into())))?);
        }
        ies.extend([
            build_ngap_ie!(HandoverRequest, PDUSessionResourceSetupListHOReq(sessions))?,
            build_ngap_ie!(HandoverRequest, AllowedNSSAI(allowed_nssai(request.allowed)))?,
        ]);
        if let Some(imeisv) = request.information.masked_imeisv.map(masked_imeisv) {
            ies.push(build_ngap_ie!(HandoverRequest, MaskedIMEISV(imeisv))?);
        }
        ies.push(build_ngap_ie!(HandoverRequest, SourceToTarget_TransparentContainer(source))?);
        if let Some(restrictions) = &request.information.restrictions {
            ies.push(build_ngap_ie!(HandoverRequest, MobilityRestrictionList(restrictions.encode()))?);
        }
        ies.push(build_ngap_ie!(HandoverRequest, GUAMI(guami))?);
        let message = HandoverRequest::new(ProtocolIEContainer(ies));
        NGAP_PDU::of_message(&message, HandoverRequest::CRITICALITY)
    };
    encode(build())
}

/// Encodes HANDOVER COMMAND (9.2.3.2) with the sessions that are handed over and those that are
/// lost. The transfers are Handover Command Transfer and Handover Preparation Unsuccessful
/// Transfer. A target of EPS requires the NAS security parameters for the UE (9.3.3.26).
pub fn handover_command(
    connection: &Connection,
    (sessions, lost): (SessionItems, SessionItems),
    container: &[u8],
    mapped: Option<MappedCommand>,
) -> Vec<u8> {
    let handover_type = if mapped.is_some() { HandoverType::fivegs_to_eps } else { HandoverType::intra5gs };
    let item =
        |(psi, transfer): (u8, Vec<u8>)| PDUSessionResourceHandoverItem::new(PDUSessionID(psi), transfer.into(), None);
    let sessions = PDUSessionResourceHandoverList(sessions.into_iter().map(item).collect());
    let gone = |(psi, transfer): (u8, Vec<u8>)| {
        PDUSessionResourceToReleaseItemHOCmd::new(PDUSessionID(psi), transfer.into(), None)
    };
    let lost = PDUSessionResourceToReleaseListHOCmd(lost.into_iter().map(gone).collect());
    let container = TargetToSourceTransparentContainer(container.to_vec().into());
    let build = || -> Result<NGAPPDU<'_>, ngap::Error> {
        let mut ies = vec![
            build_ngap_ie!(HandoverCommand, AMF_UE_NGAP_ID(connection.amf_id.get()))?,
            build_ngap_ie!(HandoverCommand, RAN_UE_NGAP_ID(connection.ran_id.0))?,
            build_ngap_ie!(HandoverCommand, HandoverType(handover_type))?,
        ];
        if let Some(MappedCommand { container }) = mapped {
            let nas = NASSecurityParametersFromNGRAN(vec![container].into());
            ies.push(build_ngap_ie!(HandoverCommand, NASSecurityParametersFromNGRAN(nas))?);
        }
        ies.push(build_ngap_ie!(HandoverCommand, PDUSessionResourceHandoverList(sessions))?);
        if !lost.0.is_empty() {
            ies.push(build_ngap_ie!(HandoverCommand, PDUSessionResourceToReleaseListHOCmd(lost))?);
        }
        ies.push(build_ngap_ie!(HandoverCommand, TargetToSource_TransparentContainer(container))?);
        let message = HandoverCommand::new(ProtocolIEContainer(ies));
        NGAP_PDU::of_message(&message, HandoverCommand::CRITICALITY)
    };
    encode(build())
}

/// Encodes HANDOVER PREPARATION FAILURE (9.2.3.3).
pub fn preparation_failure(connection: &Connection, cause: Cause) -> Vec<u8> {
    encode(build_ngap!(
        UnsuccessfulOutcome,
        HandoverPreparation,
        HandoverPreparationFailure,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        Cause(cause),
    ))
}

/// Encodes HANDOVER CANCEL ACKNOWLEDGE (9.2.3.12).
pub fn cancel_acknowledge(connection: &Connection) -> Vec<u8> {
    encode(build_ngap!(
        SuccessfulOutcome,
        HandoverCancel,
        HandoverCancelAcknowledge,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
    ))
}

/// Encodes DOWNLINK RAN STATUS TRANSFER (9.2.3.14) with the container of the uplink message.
pub fn downlink_status_transfer(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, container: &[u8]) -> Vec<u8> {
    let pdu = decode_open_type::<RANStatusTransferTransparentContainer<'_>>(container).and_then(|container| {
        build_ngap!(
            InitiatingMessage,
            DownlinkRANStatusTransfer,
            DownlinkRANStatusTransfer,
            AMF_UE_NGAP_ID(amf_id.get()),
            RAN_UE_NGAP_ID(ran_id.0),
            RANStatusTransfer_TransparentContainer(container),
        )
    });
    encode(pdu)
}

/// Encodes UE CONTEXT RELEASE COMMAND for resources prepared at a target: with both IDs, or only
/// the AMF-UE-NGAP-ID while the other is unknown.
pub fn release_target(amf_id: AmfUeNgapId, ran_id: Option<RanUeNgapId>, cause: Cause) -> Vec<u8> {
    let amf = AMFUENGAPID(amf_id.get());
    let ids = match ran_id {
        Some(ran) => UENGAPIDs::uE_NGAP_ID_pair(UENGAPIDPair::new(amf, RANUENGAPID(ran.0), None)),
        None => UENGAPIDs::aMF_UE_NGAP_ID(amf),
    };
    encode(build_ngap!(InitiatingMessage, UEContextRelease, UEContextReleaseCommand, UE_NGAP_IDs(ids), Cause(cause),))
}
