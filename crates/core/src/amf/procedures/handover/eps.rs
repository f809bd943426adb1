//! S1AP messages of handover (TS 36.413 9.1.5).

use super::messages::{PathSwitchAnswer, Request, RequestedSession};
use crate::amf::context::{Connection, NextHop};
use crate::amf::n2::{Cause, SessionItems};
use crate::amf::s1::{
    ambr_to, capability_to, cause_to, encode, erab_qos, extension, handover_restrictions, masked_imeisv, nr_capability,
    transport_address,
};
use crate::smf::{ErabForwarding, ErabRequest, ErabTunnel};
use vireo_types::{AmfUeNgapId, RanUeNgapId};
use vireo_wire::s1ap::{self, Message, *};

fn security_context(next_hop: NextHop) -> SecurityContext<'static> {
    SecurityContext::new(next_hop.ncc, SecurityKey(next_hop.nh.into()), None)
}

/// Returns the E-RABs of a list, all with this cause.
fn erabs(items: &[(u8, Vec<u8>)], cause: &s1ap::Cause) -> Result<ERABList<'static>, s1ap::Error> {
    let item = |(ebi, _): &(u8, Vec<u8>)| build_s1ap_ie!(IGNORE E_RABItem(ERABItem::new(ERABID((*ebi).into()), cause.clone(), None)));
    Ok(ERABList(items.iter().map(item).collect::<Result<_, _>>()?))
}

/// Encodes PATH SWITCH REQUEST ACKNOWLEDGE (9.1.5.9). An E-RAB is in the uplink list only if the
/// S-GW end of its tunnel has changed.
pub fn path_switch_acknowledge(connection: &Connection, answer: PathSwitchAnswer<'_>) -> Vec<u8> {
    let moved = |(ebi, transfer): &(u8, Vec<u8>)| {
        let tunnel = ErabTunnel::decode(transfer)?;
        let (address, teid) = (transport_address(tunnel.address), GTPTEID(tunnel.teid.0.to_be_bytes()));
        let item = ERABToBeSwitchedULItem::new(ERABID((*ebi).into()), address, teid, None);
        build_s1ap_ie!(IGNORE E_RABToBeSwitchedULItem(item)).ok()
    };
    let uplink: Vec<_> = answer.switched.iter().filter_map(moved).collect();
    let build = || -> Result<S1APPDU<'_>, s1ap::Error> {
        let mut ies = vec![
            build_s1ap_ie!(PathSwitchRequestAcknowledge, MME_UE_S1AP_ID(connection.amf_id.mme()))?,
            build_s1ap_ie!(PathSwitchRequestAcknowledge, eNB_UE_S1AP_ID(connection.ran_id.0))?,
            build_s1ap_ie!(PathSwitchRequestAcknowledge, uEaggregateMaximumBitrate(ambr_to(answer.ambr)?))?,
        ];
        if !uplink.is_empty() {
            let list = ERABToBeSwitchedULList(uplink);
            ies.push(build_s1ap_ie!(PathSwitchRequestAcknowledge, E_RABToBeSwitchedULList(list))?);
        }
        if !answer.released.is_empty() {
            let cause = s1ap::Cause::transport(CauseTransport::transport_resource_unavailable);
            let list = erabs(&answer.released, &cause)?;
            ies.push(build_s1ap_ie!(PathSwitchRequestAcknowledge, E_RABToBeReleasedList(list))?);
        }
        let context = security_context(answer.next_hop);
        ies.push(build_s1ap_ie!(PathSwitchRequestAcknowledge, SecurityContext(context))?);
        if let Some(algorithms) = answer.nr_algorithms {
            let capability = nr_capability(algorithms);
            ies.push(build_s1ap_ie!(PathSwitchRequestAcknowledge, NRUESecurityCapabilities(capability))?);
        }
        if let Some(restrictions) = &answer.information.restrictions {
            let list = handover_restrictions(restrictions)?;
            ies.push(build_s1ap_ie!(PathSwitchRequestAcknowledge, HandoverRestrictionList(list))?);
        }
        if let Some(capability) = answer.capability {
            let capability = capability_to(capability);
            ies.push(build_s1ap_ie!(PathSwitchRequestAcknowledge, UESecurityCapabilities(capability))?);
        }
        let message = PathSwitchRequestAcknowledge::new(ProtocolIEContainer(ies));
        S1AP_PDU::of_message(&message, PathSwitchRequestAcknowledge::CRITICALITY)
    };
    encode(build())
}

/// Encodes PATH SWITCH REQUEST FAILURE (9.1.5.10).
pub fn path_switch_failure(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, cause: &Cause) -> Vec<u8> {
    encode(build_s1ap!(
        UnsuccessfulOutcome,
        PathSwitchRequest,
        PathSwitchRequestFailure,
        MME_UE_S1AP_ID(amf_id.mme()),
        eNB_UE_S1AP_ID(ran_id.0),
        Cause(cause_to(cause)),
    ))
}

/// Encodes E-RAB MODIFICATION CONFIRM (9.1.3.9) with the E-RABs that are modified and those that
/// are not.
pub(super) fn modification_confirm(connection: &Connection, modified: u16, failed: u16) -> Vec<u8> {
    let named = |bits: u16| (0..16_u8).filter(move |ebi| bits >> ebi & 1 == 1);
    let item = |ebi: u8| build_s1ap_ie!(IGNORE E_RABModifyItemBearerModConf(ERABModifyItemBearerModConf::new(ERABID(ebi.into()), None)));
    let build = || -> Result<S1APPDU<'_>, s1ap::Error> {
        let mut ies = vec![
            build_s1ap_ie!(ERABModificationConfirm, MME_UE_S1AP_ID(connection.amf_id.mme()))?,
            build_s1ap_ie!(ERABModificationConfirm, eNB_UE_S1AP_ID(connection.ran_id.0))?,
        ];
        let modified: Vec<_> = named(modified).map(item).collect::<Result<_, _>>()?;
        if !modified.is_empty() {
            let list = ERABModifyListBearerModConf(modified);
            ies.push(build_s1ap_ie!(ERABModificationConfirm, E_RABModifyListBearerModConf(list))?);
        }
        let failed: SessionItems = named(failed).map(|ebi| (ebi, Vec::new())).collect();
        if !failed.is_empty() {
            let list = erabs(&failed, &s1ap::Cause::transport(CauseTransport::transport_resource_unavailable))?;
            ies.push(build_s1ap_ie!(ERABModificationConfirm, E_RABFailedToModifyListBearerModConf(list))?);
        }
        let message = ERABModificationConfirm::new(ProtocolIEContainer(ies));
        S1AP_PDU::of_message(&message, ERABModificationConfirm::CRITICALITY)
    };
    encode(build())
}

/// Returns the mark of an E-RAB whose packets are not forwarded (9.1.5.4).
fn no_forwarding() -> Result<ProtocolExtensionContainer<'static>, s1ap::Error> {
    let mark = extension(143, &DataForwardingNotPossible::data_Forwarding_not_Possible)?;
    Ok(ProtocolExtensionContainer(vec![mark]))
}

fn requested_erab(session: &RequestedSession) -> Option<Result<ProtocolIEField<'static>, s1ap::Error>> {
    // The SMF part of this build has encoded the octets.
    let erab = ErabRequest::decode(&session.transfer)?;
    let build = || {
        let extension = if session.forwards { None } else { Some(no_forwarding()?) };
        let item = ERABToBeSetupItemHOReq::new(
            ERABID(session.psi.into()),
            transport_address(erab.tunnel.address),
            GTPTEID(erab.tunnel.teid.0.to_be_bytes()),
            erab_qos(&erab),
            extension,
        );
        build_s1ap_ie!(REJECT E_RABToBeSetupItemHOReq(item))
    };
    Some(build())
}

/// Encodes HANDOVER REQUEST (9.1.5.4).
pub fn handover_request(amf_id: AmfUeNgapId, request: Request<'_>) -> Vec<u8> {
    let erabs: Result<Vec<_>, _> = request.sessions.iter().filter_map(requested_erab).collect();
    let container = SourceToTargetTransparentContainer(request.container.to_vec().into());
    let handover_type = match request.mapped {
        None => HandoverType::intralte,
        Some(_) => HandoverType::fivegs_to_eps,
    };
    let build = || -> Result<S1APPDU<'_>, s1ap::Error> {
        let erabs = ERABToBeSetupListHOReq(erabs?);
        let mut ies = vec![
            build_s1ap_ie!(HandoverRequest, MME_UE_S1AP_ID(amf_id.mme()))?,
            build_s1ap_ie!(HandoverRequest, HandoverType(handover_type))?,
            build_s1ap_ie!(HandoverRequest, Cause(cause_to(&request.cause)))?,
            build_s1ap_ie!(HandoverRequest, uEaggregateMaximumBitrate(ambr_to(request.ambr)?))?,
            build_s1ap_ie!(HandoverRequest, E_RABToBeSetupListHOReq(erabs))?,
            build_s1ap_ie!(HandoverRequest, Source_ToTarget_TransparentContainer(container))?,
            build_s1ap_ie!(HandoverRequest, UESecurityCapabilities(capability_to(request.capability)))?,
        ];
        if let Some(restrictions) = &request.information.restrictions {
            let list = handover_restrictions(restrictions)?;
            ies.push(build_s1ap_ie!(HandoverRequest, HandoverRestrictionList(list))?);
        }
        ies.push(build_s1ap_ie!(HandoverRequest, SecurityContext(security_context(request.next_hop)))?);
        if let Some(imeisv) = request.information.masked_imeisv.map(masked_imeisv) {
            ies.push(build_s1ap_ie!(HandoverRequest, Masked_IMEISV(imeisv))?);
        }
        if let Some(algorithms) = request.nr_algorithms {
            ies.push(build_s1ap_ie!(HandoverRequest, NRUESecurityCapabilities(nr_capability(algorithms)))?);
        }
        let message = HandoverRequest::new(ProtocolIEContainer(ies));
        S1AP_PDU::of_message(&message, HandoverRequest::CRITICALITY)
    };
    encode(build())
}

/// Returns the item of an E-RAB whose packets are forwarded; `None` if the target takes none.
fn forwarding(ebi: u8, transfer: &[u8]) -> Option<ERABDataForwardingItem<'static>> {
    let ErabForwarding { downlink, uplink } = ErabForwarding::decode(transfer)?;
    // The addresses are those that the target has sent, of any family.
    let end = |octets: &[u8]| {
        let (teid, address) = octets.split_first_chunk::<4>()?;
        Some((TransportLayerAddress(address.to_vec().into()), GTPTEID(*teid)))
    };
    let (downlink, uplink) = (end(&downlink).unzip(), end(&uplink).unzip());
    if downlink.1.is_none() && uplink.1.is_none() {
        return None;
    }
    Some(ERABDataForwardingItem::new(ERABID(ebi.into()), downlink.0, downlink.1, uplink.0, uplink.1, None))
}

/// Encodes HANDOVER COMMAND (9.1.5.2) with the E-RABs whose packets are forwarded, and those that
/// the target has not admitted. A target of 5GS has put the NAS container for the UE into its own.
pub fn handover_command(
    connection: &Connection,
    (sessions, lost): (&SessionItems, &SessionItems),
    container: &[u8],
    to_5gs: bool,
) -> Vec<u8> {
    let handover_type = if to_5gs { HandoverType::eps_to_5gs } else { HandoverType::intralte };
    let forwarded = sessions.iter().filter_map(|(ebi, transfer)| forwarding(*ebi, transfer));
    let forwarded: Result<Vec<_>, _> =
        forwarded.map(|item| build_s1ap_ie!(IGNORE E_RABDataForwardingItem(item))).collect();
    let build = || -> Result<S1APPDU<'_>, s1ap::Error> {
        let mut ies = vec![
            build_s1ap_ie!(HandoverCommand, MME_UE_S1AP_ID(connection.amf_id.mme()))?,
            build_s1ap_ie!(HandoverCommand, eNB_UE_S1AP_ID(connection.ran_id.0))?,
            build_s1ap_ie!(HandoverCommand, HandoverType(handover_type))?,
        ];
        let forwarded = forwarded?;
        if !forwarded.is_empty() {
            let list = ERABSubjecttoDataForwardingList(forwarded);
            ies.push(build_s1ap_ie!(HandoverCommand, E_RABSubjecttoDataForwardingList(list))?);
        }
        if !lost.is_empty() {
            let cause = CauseRadioNetwork::ho_failure_in_target_EPC_eNB_or_target_system;
            let list = erabs(lost, &s1ap::Cause::radioNetwork(cause))?;
            ies.push(build_s1ap_ie!(HandoverCommand, E_RABtoReleaseListHOCmd(list))?);
        }
        let container = TargetToSourceTransparentContainer(container.to_vec().into());
        ies.push(build_s1ap_ie!(HandoverCommand, Target_ToSource_TransparentContainer(container))?);
        let message = HandoverCommand::new(ProtocolIEContainer(ies));
        S1AP_PDU::of_message(&message, HandoverCommand::CRITICALITY)
    };
    encode(build())
}

/// Encodes HANDOVER PREPARATION FAILURE (9.1.5.3).
pub fn preparation_failure(connection: &Connection, cause: &Cause) -> Vec<u8> {
    encode(build_s1ap!(
        UnsuccessfulOutcome,
        HandoverPreparation,
        HandoverPreparationFailure,
        MME_UE_S1AP_ID(connection.amf_id.mme()),
        eNB_UE_S1AP_ID(connection.ran_id.0),
        Cause(cause_to(cause)),
    ))
}

/// Encodes HANDOVER CANCEL ACKNOWLEDGE (9.1.5.12).
pub fn cancel_acknowledge(connection: &Connection) -> Vec<u8> {
    encode(build_s1ap!(
        SuccessfulOutcome,
        HandoverCancel,
        HandoverCancelAcknowledge,
        MME_UE_S1AP_ID(connection.amf_id.mme()),
        eNB_UE_S1AP_ID(connection.ran_id.0),
    ))
}

/// Encodes MME STATUS TRANSFER (9.1.5.14) with the container of ENB STATUS TRANSFER.
pub fn mme_status_transfer(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, container: &[u8]) -> Vec<u8> {
    encode(decode_open_type::<ENBStatusTransferTransparentContainer<'_>>(container).and_then(|container| {
        build_s1ap!(
            InitiatingMessage,
            MMEStatusTransfer,
            MMEStatusTransfer,
            MME_UE_S1AP_ID(amf_id.mme()),
            eNB_UE_S1AP_ID(ran_id.0),
            eNB_StatusTransfer_TransparentContainer(container),
        )
    }))
}

/// Encodes UE CONTEXT RELEASE COMMAND (9.1.4.6) for resources prepared at a target: with both IDs,
/// or only the MME UE S1AP ID while the other is unknown.
pub fn release_target(amf_id: AmfUeNgapId, ran_id: Option<RanUeNgapId>, cause: &Cause) -> Vec<u8> {
    let mme = MMEUES1APID(amf_id.mme());
    let ids = match ran_id {
        Some(enb) => UES1APIDs::uE_S1AP_ID_pair(UES1APIDPair::new(mme, ENBUES1APID(enb.0), None)),
        None => UES1APIDs::mME_UE_S1AP_ID(mme),
    };
    let cause = cause_to(cause);
    encode(build_s1ap!(InitiatingMessage, UEContextRelease, UEContextReleaseCommand, UE_S1AP_IDs(ids), Cause(cause)))
}
