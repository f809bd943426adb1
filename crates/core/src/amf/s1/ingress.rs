//! Received UE-associated S1AP messages as plain values.

use super::{
    cause_of, cell_of, enb_of, five_gs_tai_of, from_message, has_fault_to_reject, ng_ran_node_of, tai_of,
    unknown_procedure, wrong_direction,
};
use crate::amf::context::RadioCapability;
use crate::amf::n2::{
    self, Cause, ErabModification, Fault, HandoverRequired, InitialUeMessage, PathSwitch, SessionItems, UeMessage,
};
use crate::smf::{ErabAdmission, ErabForwarding, ErabTunnel};
use vireo_types::{NrCgi, RanUeNgapId, Tai, limits};
use vireo_wire::ngap::{CauseProtocol, CauseRadioNetwork};
use vireo_wire::s1ap::{self, *};

/// Decodes a UE-associated message and its eNB UE S1AP ID, which a step compares with that of the
/// context.
///
/// # Errors
///
/// Returns a [`Fault`] if the octets are not a message that an eNB sends about a UE.
pub fn ue_message(octets: &[u8]) -> Result<(Option<RanUeNgapId>, UeMessage), Box<Fault>> {
    let pdu = S1AP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax())?;
    let message = read(&pdu)?;
    let enb_id = pdu.ie::<ie::eNB_UE_S1AP_ID>().transpose().map_err(|_| from_message(&pdu))?;
    // Mandatory in all messages but Error Indication (9.1.8.3) and Handover Failure (9.1.5.6).
    let optional = matches!(message, UeMessage::Error(_) | UeMessage::HandoverFailure { .. });
    let incomplete = enb_id.is_none() && !optional;
    if incomplete || has_fault_to_reject(&pdu) {
        return Err(from_message(&pdu));
    }
    Ok((enb_id.map(|id| RanUeNgapId(id.0)), message))
}

/// Returns the items of an E-RAB set-up list: E-RAB ID and tunnel end of the eNB. These lists have
/// criticality ignore: items that do not decode count as absent (10.3.4.2), and their bearers time
/// out.
macro_rules! tunnels {
    ($pdu:ident, $list:ident) => {
        $pdu.items::<ie::$list>()
            .map_while(Result::ok)
            .take(limits::SESSIONS_PER_UE)
            .filter_map(|item| {
                let address = item.transport_layer_address.0;
                Some((ebi(&item.e_rab_id)?, ErabTunnel::encode(item.gtp_teid.0, address.as_octets())))
            })
            .collect()
    };
}

/// Returns the E-RABs of a list that has no more than a cause for each.
macro_rules! erabs {
    ($pdu:ident, $list:ident) => {
        $pdu.items::<ie::$list>()
            .map_while(Result::ok)
            .take(limits::SESSIONS_PER_UE)
            .filter_map(|item| Some((ebi(&item.e_rab_id)?, Vec::new())))
            .collect()
    };
}

/// Returns the EPS bearer identity of an E-RAB ID, which may exceed 15 (9.2.1.2).
fn ebi(id: &ERABID) -> Option<u8> {
    u8::try_from(id.0).ok()
}

/// Returns what UE CONTEXT RELEASE COMPLETE recommends for paging, unless it is too large to be
/// stored.
fn recommended(pdu: &S1APPDU<'_>) -> Vec<u8> {
    let information = pdu.ie::<ie::InformationOnRecommendedCellsAndENBsForPaging>().and_then(Result::ok);
    let octets = information.and_then(|information| encode_open_type(&information).ok());
    octets.map(|octets| octets.to_vec()).filter(|octets| octets.len() <= limits::RECOMMENDED_OCTETS).unwrap_or_default()
}

fn read(pdu: &S1APPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let message = match pdu.kind() {
        S1apPduKind::Initiating_initialUEMessage => return initial(pdu),
        S1apPduKind::Initiating_uplinkNASTransport => {
            // Criticality ignore: if the location does not decode, the known one stays.
            UeMessage::UplinkNas { nas: nas(pdu)?, location: location(pdu) }
        }
        S1apPduKind::Successful_InitialContextSetup => UeMessage::ContextSetupResponse {
            set_up: tunnels!(pdu, E_RABSetupListCtxtSURes),
            failed: erabs!(pdu, E_RABFailedToSetupListCtxtSURes),
        },
        // The message has no list: none of the requested E-RABs is set up.
        S1apPduKind::Unsuccessful_InitialContextSetup => {
            UeMessage::ContextSetupFailure { cause: cause(pdu), failed: SessionItems::new() }
        }
        S1apPduKind::Initiating_UEContextReleaseRequest => UeMessage::ReleaseRequest { cause: cause(pdu) },
        S1apPduKind::Successful_UEContextRelease => UeMessage::ReleaseComplete { recommended: recommended(pdu) },
        S1apPduKind::Successful_E_RABSetup => UeMessage::SessionSetupResponse {
            set_up: tunnels!(pdu, E_RABSetupListBearerSURes),
            failed: erabs!(pdu, E_RABFailedToSetupListBearerSURes),
        },
        S1apPduKind::Successful_E_RABRelease => {
            let mut released: SessionItems = erabs!(pdu, E_RABReleaseListBearerRelComp);
            // The eNB does not have these (8.2.3.2).
            let absent: SessionItems = erabs!(pdu, E_RABFailedToReleaseList);
            released.extend(absent);
            UeMessage::SessionReleaseResponse { released }
        }
        S1apPduKind::Initiating_UECapabilityInfoIndication => {
            let capability = required(pdu, pdu.ie::<ie::UERadioCapability>())?;
            // Criticality ignore: those that do not decode count as absent.
            let paging = pdu.ie::<ie::UERadioCapabilityForPaging>().and_then(Result::ok);
            let paging = paging.map(|paging| paging.0.as_slice().to_vec()).unwrap_or_default();
            let nr = pdu.ie::<ie::UERadioCapability_NR_Format>().and_then(Result::ok);
            let paging_of_nr = pdu.ie::<ie::UERadioCapabilityForPaging_NR_Format>().and_then(Result::ok);
            let paging_of_nr =
                paging_of_nr.map(|nr| n2::paging_capability(nr.0.as_slice(), &paging)).unwrap_or_default();
            let other = RadioCapability {
                whole: nr.map(|capability| capability.0.as_slice().to_vec()).unwrap_or_default(),
                paging: paging_of_nr,
            };
            let own = RadioCapability { whole: capability.0.as_slice().to_vec(), paging };
            UeMessage::RadioCapability { own, other }
        }
        S1apPduKind::Initiating_NASNonDeliveryIndication => UeMessage::NonDelivery,
        S1apPduKind::Initiating_ErrorIndication => {
            UeMessage::Error(pdu.ie::<ie::Cause>().and_then(Result::ok).map(|cause| cause_of(&cause)))
        }
        S1apPduKind::Initiating_LocationReport => UeMessage::Location(location(pdu)),
        S1apPduKind::Initiating_LocationReportingFailureIndication => UeMessage::LocationReportingFailure,
        S1apPduKind::Successful_UEContextModification => UeMessage::ContextModificationResponse,
        S1apPduKind::Unsuccessful_UEContextModification => UeMessage::ContextModificationFailure { cause: cause(pdu) },
        S1apPduKind::Initiating_SecondaryRATDataUsageReport => usage(pdu),
        S1apPduKind::Successful_E_RABModify => UeMessage::SessionModifyResponse {
            modified: erabs!(pdu, E_RABModifyListBearerModRes),
            failed: erabs!(pdu, E_RABFailedToModifyList),
        },
        S1apPduKind::Initiating_E_RABReleaseIndication => {
            UeMessage::SessionReleaseIndication { released: erabs!(pdu, E_RABReleasedList) }
        }
        S1apPduKind::Initiating_E_RABModificationIndication => return modification(pdu),
        S1apPduKind::Initiating_PathSwitchRequest => return path_switch(pdu),
        S1apPduKind::Initiating_HandoverPreparation => return handover_required(pdu),
        S1apPduKind::Successful_HandoverResourceAllocation => return handover_acknowledge(pdu),
        S1apPduKind::Unsuccessful_HandoverResourceAllocation => UeMessage::HandoverFailure { cause: cause(pdu) },
        S1apPduKind::Initiating_HandoverNotification => UeMessage::HandoverNotify { location: location(pdu) },
        S1apPduKind::Initiating_HandoverCancel => UeMessage::HandoverCancel { cause: cause(pdu) },
        S1apPduKind::Initiating_eNBStatusTransfer => {
            let container = required(pdu, pdu.ie::<ie::eNB_StatusTransfer_TransparentContainer>())?;
            UeMessage::StatusTransfer(encode_open_type(&container).map_err(|_| from_message(pdu))?.to_vec())
        }
        kind if is_for_enb(&kind) => return Err(wrong_direction(pdu)),
        // Outcomes without a request are ignored (10.4).
        _ if pdu.direction() != "InitiatingMessage" => UeMessage::Report,
        _ => return Err(unknown_procedure(pdu)),
    };
    Ok(message)
}

/// Returns true for the requests that an MME alone sends.
pub(crate) fn is_for_enb(kind: &S1apPduKind) -> bool {
    matches!(
        kind,
        S1apPduKind::Initiating_ConnectionEstablishmentIndication
            | S1apPduKind::Initiating_DeactivateTrace
            | S1apPduKind::Initiating_DownlinkS1cdma2000tunnelling
            | S1apPduKind::Initiating_E_RABModify
            | S1apPduKind::Initiating_E_RABRelease
            | S1apPduKind::Initiating_E_RABSetup
            | S1apPduKind::Initiating_HandoverResourceAllocation
            | S1apPduKind::Initiating_HandoverSuccess
            | S1apPduKind::Initiating_InitialContextSetup
            | S1apPduKind::Initiating_Kill
            | S1apPduKind::Initiating_LocationReportingControl
            | S1apPduKind::Initiating_MMEConfigurationTransfer
            | S1apPduKind::Initiating_MMEConfigurationUpdate
            | S1apPduKind::Initiating_MMECPRelocationIndication
            | S1apPduKind::Initiating_MMEDirectInformationTransfer
            | S1apPduKind::Initiating_MMEEarlyStatusTransfer
            | S1apPduKind::Initiating_MMEStatusTransfer
            | S1apPduKind::Initiating_OverloadStart
            | S1apPduKind::Initiating_OverloadStop
            | S1apPduKind::Initiating_Paging
            | S1apPduKind::Initiating_RerouteNASRequest
            | S1apPduKind::Initiating_TraceStart
            | S1apPduKind::Initiating_UEContextModification
            | S1apPduKind::Initiating_UEContextRelease
            | S1apPduKind::Initiating_UEInformationTransfer
            | S1apPduKind::Initiating_UERadioCapabilityMatch
            | S1apPduKind::Initiating_WriteReplaceWarning
            | S1apPduKind::Initiating_downlinkNASTransport
            | S1apPduKind::Initiating_downlinkNonUEAssociatedLPPaTransport
            | S1apPduKind::Initiating_downlinkUEAssociatedLPPaTransport
    )
}

fn required<T>(pdu: &S1APPDU<'_>, ie: Option<Result<T, s1ap::Error>>) -> Result<T, Box<Fault>> {
    ie.and_then(Result::ok).ok_or_else(|| from_message(pdu))
}

fn cause(pdu: &S1APPDU<'_>) -> Cause {
    // Criticality ignore (9.1.4.4): the message is valid without a cause.
    let cause = pdu.ie::<ie::Cause>().and_then(Result::ok);
    cause.map_or(Cause::radioNetwork(CauseRadioNetwork::unspecified), |cause| cause_of(&cause))
}

fn nas(pdu: &S1APPDU<'_>) -> Result<Vec<u8>, Box<Fault>> {
    let nas = required(pdu, pdu.ie::<ie::NAS_PDU>())?;
    let octets = nas.0.as_slice();
    if octets.len() > limits::NAS_PDU_OCTETS {
        return Err(Fault::logical("nas-too-long", Cause::protocol(CauseProtocol::semantic_error), None, None));
    }
    Ok(octets.to_vec())
}

fn location(pdu: &S1APPDU<'_>) -> Option<(Tai, NrCgi)> {
    let tai = pdu.ie::<ie::TAI>().and_then(Result::ok)?;
    let cell = pdu.ie::<ie::EUTRAN_CGI>().and_then(Result::ok)?;
    Some((tai_of(&tai), cell_of(&cell)))
}

fn initial(pdu: &S1APPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let ran_id = RanUeNgapId(required(pdu, pdu.ie::<ie::eNB_UE_S1AP_ID>())?.0);
    let (tai, cell) = location(pdu).ok_or_else(|| from_message(pdu))?;
    Ok(UeMessage::Initial(InitialUeMessage { ran_id, nas: nas(pdu)?, tai, cell }))
}

/// Decodes PATH SWITCH REQUEST (9.1.5.8). The items of its list have criticality reject.
fn path_switch(pdu: &S1APPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let ran_id = RanUeNgapId(required(pdu, pdu.ie::<ie::eNB_UE_S1AP_ID>())?.0);
    // Criticality ignore: capabilities that do not decode are not compared.
    let capability = pdu.ie::<ie::UESecurityCapabilities>().and_then(Result::ok);
    let bits = |bits: &BitString<'_>| bits.as_octets().first().copied().unwrap_or(0);
    let capability = capability.map(|c| (bits(&c.encryption_algorithms.0), bits(&c.integrity_protection_algorithms.0)));
    let nr_capability = pdu.ie::<ie::NRUESecurityCapabilities>().and_then(Result::ok).map(|c| {
        let bits = |bits: &BitString<'_>| bits.as_octets().first_chunk().copied().map_or(0, u16::from_be_bytes);
        (bits(&c.nr_encryption_algorithms.0), bits(&c.nr_integrity_protection_algorithms.0))
    });
    required(pdu, pdu.ie::<ie::E_RABToBeSwitchedDLList>())?;
    let items = pdu.items::<ie::E_RABToBeSwitchedDLList>();
    let switched = tunnel_ends(pdu, items, |i| TunnelEnd {
        id: i.e_rab_id,
        address: i.transport_layer_address,
        teid: i.gtp_teid,
    })?;
    Ok(UeMessage::PathSwitch(PathSwitch {
        ran_id,
        location: location(pdu),
        capability,
        eutra_capability: None,
        nr_capability,
        switched,
        failed: SessionItems::new(),
    }))
}

/// Decodes HANDOVER REQUIRED (9.1.5.1). Only a target that is an eNB, gNB or ng-eNB is one.
fn handover_required(pdu: &S1APPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let kind = required(pdu, pdu.ie::<ie::HandoverType>())?;
    let target = match required(pdu, pdu.ie::<ie::TargetID>())? {
        TargetID::targeteNB_ID(target) if kind == HandoverType::intralte => {
            enb_of(&target.global_enb_id).map(|id| (id.into(), tai_of(&target.selected_tai)))
        }
        TargetID::targetgNgRanNode_ID(target) if kind == HandoverType::eps_to_5gs => {
            ng_ran_node_of(&target.global_ran_node_id).map(|id| (id, five_gs_tai_of(&target.selected_tai)))
        }
        _ => None,
    };
    Ok(UeMessage::HandoverRequired(HandoverRequired {
        cause: cause(pdu),
        target,
        sessions: SessionItems::new(),
        is_direct: pdu.ie::<ie::Direct_Forwarding_Path_Availability>().is_some_and(|path| path.is_ok()),
        container: required(pdu, pdu.ie::<ie::Source_ToTarget_TransparentContainer>())?.0.into_vec(),
    }))
}

/// Decodes HANDOVER REQUEST ACKNOWLEDGE (9.1.5.5).
fn handover_acknowledge(pdu: &S1APPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let end = |address: Option<TransportLayerAddress<'_>>, teid: Option<GTPTEID>| match (address, teid) {
        (Some(address), Some(teid)) => ErabTunnel::encode(teid.0, address.0.as_octets()),
        _ => Vec::new(),
    };
    let admitted = pdu.items::<ie::E_RABAdmittedList>().map_while(Result::ok).take(limits::SESSIONS_PER_UE);
    let admitted = admitted.filter_map(|item| {
        let forwarding = ErabForwarding {
            downlink: end(item.dl_transport_layer_address, item.dl_gtp_teid),
            uplink: end(item.ul_transport_layer_address, item.ul_gtp_teid),
        };
        let tunnel = ErabTunnel::encode(item.gtp_teid.0, item.transport_layer_address.0.as_octets());
        Some((ebi(&item.e_rab_id)?, ErabAdmission { tunnel, forwarding }.encode()))
    });
    Ok(UeMessage::HandoverAcknowledge {
        admitted: admitted.collect(),
        failed: erabs!(pdu, E_RABFailedToSetupListHOReqAck),
        container: required(pdu, pdu.ie::<ie::Target_ToSource_TransparentContainer>())?.0.into_vec(),
    })
}

/// Decodes E-RAB MODIFICATION INDICATION (9.1.3.8). The items of its lists have criticality reject.
fn modification(pdu: &S1APPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let unmodified = pdu.items::<ie::E_RABNotToBeModifiedListBearerModInd>();
    let unmodified = tunnel_ends(pdu, unmodified, |i| TunnelEnd {
        id: i.e_rab_id,
        address: i.transport_layer_address,
        teid: i.dl_gtp_teid,
    })?;
    required(pdu, pdu.ie::<ie::E_RABToBeModifiedListBearerModInd>())?;
    let modified = pdu.items::<ie::E_RABToBeModifiedListBearerModInd>();
    Ok(UeMessage::ErabModification(ErabModification {
        modified: tunnel_ends(pdu, modified, |i| TunnelEnd {
            id: i.e_rab_id,
            address: i.transport_layer_address,
            teid: i.dl_gtp_teid,
        })?,
        unmodified: unmodified.iter().filter(|(ebi, _)| *ebi < 16).fold(0, |bits, (ebi, _)| bits | 1 << ebi),
    }))
}

/// E-RAB with an end of its tunnel.
struct TunnelEnd<'a> {
    id: ERABID,
    address: TransportLayerAddress<'a>,
    teid: GTPTEID,
}

/// Returns the tunnel ends of a list whose items must all decode.
fn tunnel_ends<'a, T>(
    pdu: &S1APPDU<'_>,
    items: impl Iterator<Item = Result<T, s1ap::Error>>,
    end: impl Fn(T) -> TunnelEnd<'a>,
) -> Result<SessionItems, Box<Fault>> {
    let mut ends = SessionItems::new();
    for item in items {
        let TunnelEnd { id, address, teid } = end(item.map_err(|_| from_message(pdu))?);
        ends.extend(ebi(&id).map(|ebi| (ebi, ErabTunnel::encode(teid.0, address.0.as_octets()))));
    }
    Ok(ends)
}

/// Returns the sums of a SECONDARY RAT DATA USAGE REPORT (9.1.23), or of its list in another
/// message. Items that do not decode count as absent (criticality ignore).
fn usage(pdu: &S1APPDU<'_>) -> UeMessage {
    let (mut uplink, mut downlink) = (0_u64, 0_u64);
    let items = pdu.items::<ie::SecondaryRATDataUsageReportList>().map_while(Result::ok);
    for field in items.flat_map(|item| item.e_rab_usage_report_list.0) {
        if let Ok(report) = decode_open_type::<ERABUsageReportItem>(&field.value) {
            uplink = uplink.saturating_add(report.usage_count_ul);
            downlink = downlink.saturating_add(report.usage_count_dl);
        }
    }
    UeMessage::SecondaryRatUsage { uplink, downlink }
}

/// Returns the usage report in a message about something else, if it has one.
pub fn usage_report(octets: &[u8]) -> Option<UeMessage> {
    let pdu = S1AP_PDU::decode_borrowed(octets).ok()?;
    pdu.ie::<ie::SecondaryRATDataUsageReportList>()?.ok()?;
    Some(usage(&pdu))
}

/// Returns the MME UE S1AP ID and eNB UE S1AP ID of a message, as far as they decode, for the
/// answer to a fault.
pub fn ue_ids(octets: &[u8]) -> (Option<u64>, Option<u32>) {
    match S1AP_PDU::decode_borrowed(octets) {
        Ok(pdu) => (
            pdu.ie::<ie::MME_UE_S1AP_ID>().and_then(Result::ok).map(|id| id.0.into()),
            pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok).map(|id| id.0),
        ),
        Err(_) => (None, None),
    }
}
