//! Received UE-associated NGAP messages as plain values.

use super::{Cause, Fault, cell_of, eps_tai_of, eutra_cell_of, has_fault_to_reject, ng_enb_of, ran_node_of, tai_of};
use crate::amf::context::RadioCapability;
use vireo_types::{NrCgi, RanNodeId, RanUeNgapId, Tai, limits};
use vireo_wire::ngap::{self, *};

/// PDU session list: PDU session ID and NGAP transfer of each. Of an eNB: E-RAB ID and the octets
/// of `smf/erab.rs`.
pub type SessionItems = Vec<(u8, Vec<u8>)>;

/// INITIAL UE MESSAGE (TS 38.413 9.2.5.1).
#[derive(Clone, Debug, PartialEq)]
pub struct InitialUeMessage {
    pub ran_id: RanUeNgapId,
    pub nas: Vec<u8>,
    /// Tracking area of the UE.
    pub tai: Tai,
    pub cell: NrCgi,
}

/// UE-associated message of a RAN node. A gNB sends it by NGAP, and an eNB the S1AP message of the
/// same procedure, in which an E-RAB takes the place of a PDU session.
#[derive(Clone, Debug, PartialEq)]
pub enum UeMessage {
    /// First message of an NG connection.
    Initial(InitialUeMessage),
    /// UPLINK NAS TRANSPORT of the UE's RAN node.
    UplinkNas {
        nas: Vec<u8>,
        /// Tracking area and cell of the UE, if they decode.
        location: Option<(Tai, NrCgi)>,
    },
    /// INITIAL CONTEXT SETUP RESPONSE.
    ContextSetupResponse {
        /// Sessions that the RAN node has set up.
        set_up: SessionItems,
        /// Sessions that the RAN node has not set up.
        failed: SessionItems,
    },
    /// INITIAL CONTEXT SETUP FAILURE.
    ContextSetupFailure {
        cause: Cause,
        /// All sessions of the request.
        failed: SessionItems,
    },
    /// UE CONTEXT RELEASE REQUEST.
    ReleaseRequest {
        cause: Cause,
    },
    /// UE CONTEXT RELEASE COMPLETE.
    ReleaseComplete {
        /// Information on Recommended Cells and RAN Nodes (S1AP: eNBs) for Paging with its PER
        /// encoding; empty if the node recommends none.
        recommended: Vec<u8>,
    },
    /// PDU SESSION RESOURCE SETUP RESPONSE, E-RAB SETUP RESPONSE.
    SessionSetupResponse {
        /// Sessions that the RAN node has set up.
        set_up: SessionItems,
        /// Sessions that the RAN node has not set up.
        failed: SessionItems,
    },
    /// PDU SESSION RESOURCE RELEASE RESPONSE, E-RAB RELEASE RESPONSE.
    SessionReleaseResponse {
        released: SessionItems,
    },
    /// PDU SESSION RESOURCE MODIFY RESPONSE, E-RAB MODIFY RESPONSE.
    SessionModifyResponse {
        /// Sessions modified as requested.
        modified: SessionItems,
        /// Sessions that were not modified.
        failed: SessionItems,
    },
    /// E-RAB RELEASE INDICATION: the eNB has released these E-RABs.
    SessionReleaseIndication {
        released: SessionItems,
    },
    /// E-RAB MODIFICATION INDICATION.
    ErabModification(ErabModification),
    /// PDU SESSION RESOURCE MODIFY INDICATION: sessions whose tunnel end at the RAN changes.
    SessionModifyIndication(SessionItems),
    /// PDU SESSION RESOURCE NOTIFY.
    SessionNotify {
        /// Sessions with QoS flows that are released, or whose fulfilment has changed.
        notified: SessionItems,
        /// Sessions that the RAN node has released.
        released: SessionItems,
    },
    /// UE RADIO CAPABILITY INFO INDICATION, UE CAPABILITY INFO INDICATION.
    RadioCapability {
        /// In the coding of the dialect.
        own: RadioCapability,
        /// In the coding of the other dialect, as far as the RAN node has it.
        other: RadioCapability,
    },
    /// NAS NON DELIVERY INDICATION.
    NonDelivery,
    /// ERROR INDICATION about a message of this AMF.
    Error(Option<Cause>),
    /// Reports that need no action of this AMF.
    Report,
    /// LOCATION REPORT or RRC INACTIVE TRANSITION REPORT: tracking area and cell of the UE, if they
    /// decode.
    Location(Option<(Tai, NrCgi)>),
    /// LOCATION REPORTING FAILURE INDICATION.
    LocationReportingFailure,
    /// SECONDARY RAT DATA USAGE REPORT of an eNB: octets of packets over the secondary RAT.
    SecondaryRatUsage {
        uplink: u64,
        downlink: u64,
    },
    ContextModificationResponse,
    ContextModificationFailure {
        cause: Cause,
    },
    /// PATH SWITCH REQUEST of the new RAN node.
    PathSwitch(PathSwitch),
    HandoverRequired(HandoverRequired),
    /// HANDOVER REQUEST ACKNOWLEDGE of the target.
    HandoverAcknowledge {
        /// Sessions that the target has admitted.
        admitted: SessionItems,
        /// Sessions that the target has not admitted.
        failed: SessionItems,
        /// Target to Source Transparent Container.
        container: Vec<u8>,
    },
    HandoverFailure {
        cause: Cause,
    },
    HandoverNotify {
        /// Tracking area and cell of the UE, if they decode.
        location: Option<(Tai, NrCgi)>,
    },
    HandoverCancel {
        cause: Cause,
    },
    /// UPLINK RAN STATUS TRANSFER, ENB STATUS TRANSFER: the encoded container.
    StatusTransfer(Vec<u8>),
}

impl UeMessage {
    /// Returns true if the sending RAN node still has a UE-associated logical connection. Failures
    /// and completed releases end the connection, and a first message names none.
    pub(crate) fn has_connection(&self) -> bool {
        !matches!(
            self,
            UeMessage::Initial(_)
                | UeMessage::ContextSetupFailure { .. }
                | UeMessage::HandoverFailure { .. }
                | UeMessage::ReleaseComplete { .. }
                | UeMessage::NonDelivery
                | UeMessage::Error(_)
        )
    }
}

/// PATH SWITCH REQUEST (TS 38.413 9.2.3.8, TS 36.413 9.1.5.8).
#[derive(Clone, Debug, PartialEq)]
pub struct PathSwitch {
    /// RAN-UE-NGAP-ID of the new RAN node.
    pub ran_id: RanUeNgapId,
    /// Tracking area and cell of the UE, if they decode.
    pub location: Option<(Tai, NrCgi)>,
    /// UE security capabilities of the RAN: 5G-EA and 5G-IA, or EEA and EIA, without the null
    /// algorithms, in the bit order of NGAP.
    pub capability: Option<(u8, u8)>,
    /// The other half of UE security capabilities in NGAP, which an ng-eNB uses: EEA and EIA,
    /// without the null algorithms.
    pub eutra_capability: Option<(u8, u8)>,
    /// NR UE security capabilities of an eNB: 5G-EA and 5G-IA, without the null algorithms.
    pub nr_capability: Option<(u16, u16)>,
    /// Sessions to be switched.
    pub switched: SessionItems,
    /// Sessions that the new RAN node did not set up.
    pub failed: SessionItems,
}

/// E-RAB MODIFICATION INDICATION (TS 36.413 9.1.3.8).
#[derive(Clone, Debug, PartialEq)]
pub struct ErabModification {
    /// E-RABs whose tunnel end at the RAN changes, with the new one.
    pub modified: SessionItems,
    /// E-RABs whose tunnel end stays, one bit each.
    pub unmodified: u16,
}

/// HANDOVER REQUIRED (TS 38.413 9.2.3.1, TS 36.413 9.1.5.1).
#[derive(Clone, Debug, PartialEq)]
pub struct HandoverRequired {
    pub cause: Cause,
    /// Target and tracking area; `None` for a target that cannot be a RAN node of the handover
    /// type.
    pub target: Option<(RanNodeId, Tai)>,
    /// Sessions of the UE with the Handover Required Transfer. S1AP has none.
    pub sessions: SessionItems,
    /// True if the source has a direct path to the target for forwarded packets. In NGAP each
    /// transfer has this information.
    pub is_direct: bool,
    /// Source to Target Transparent Container.
    pub container: Vec<u8>,
}

/// Decodes a UE-associated message and its RAN-UE-NGAP-ID, which a step compares with that of the
/// context.
///
/// # Errors
///
/// Returns a [`Fault`] if the octets are not a message that a RAN node sends about a UE.
pub fn ue_message(octets: &[u8]) -> Result<(Option<RanUeNgapId>, UeMessage), Box<Fault>> {
    let pdu = NGAP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax())?;
    let message = read(&pdu)?;
    let ran_id = pdu.ie::<ie::RAN_UE_NGAP_ID>().transpose().map_err(|_| Fault::from_message(&pdu))?;
    // Mandatory in all messages but Error Indication (9.2.7.2) and Handover Failure (9.2.3.6).
    let optional = matches!(message, UeMessage::Error(_) | UeMessage::HandoverFailure { .. });
    let incomplete = ran_id.is_none() && !optional;
    if incomplete || has_fault_to_reject(&pdu) {
        return Err(Fault::from_message(&pdu));
    }
    Ok((ran_id.map(|id| RanUeNgapId(id.0)), message))
}

/// Returns the items of a session list IE: PDU session ID and the named transfer. These lists have
/// criticality ignore: a list that does not decode counts as absent (10.3.4.2), and its sessions
/// time out.
macro_rules! items {
    ($pdu:ident, $list:ident, $transfer:ident) => {
        match $pdu.ie::<ie::$list>() {
            Some(Ok(list)) => list.0.into_iter().map(|i| (i.pdu_session_id.0, i.$transfer.into_vec())).collect(),
            _ => SessionItems::new(),
        }
    };
}

/// Returns what UE CONTEXT RELEASE COMPLETE recommends for paging, unless it is too large to be
/// stored.
fn recommended(pdu: &NGAPPDU<'_>) -> Vec<u8> {
    let information = pdu.ie::<ie::InfoOnRecommendedCellsAndRANNodesForPaging>().and_then(Result::ok);
    let octets = information.and_then(|information| encode_open_type(&information).ok());
    octets.map(|octets| octets.to_vec()).filter(|octets| octets.len() <= limits::RECOMMENDED_OCTETS).unwrap_or_default()
}

fn read(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let message = match pdu.kind() {
        NgapPduKind::Initiating_InitialUEMessage => return initial(pdu),
        NgapPduKind::Initiating_UplinkNASTransport => return uplink_nas(pdu),
        NgapPduKind::Successful_InitialContextSetup => UeMessage::ContextSetupResponse {
            set_up: items!(pdu, PDUSessionResourceSetupListCxtRes, pdu_session_resource_setup_response_transfer),
            failed: items!(
                pdu,
                PDUSessionResourceFailedToSetupListCxtRes,
                pdu_session_resource_setup_unsuccessful_transfer
            ),
        },
        NgapPduKind::Unsuccessful_InitialContextSetup => UeMessage::ContextSetupFailure {
            cause: cause(pdu)?,
            failed: items!(
                pdu,
                PDUSessionResourceFailedToSetupListCxtFail,
                pdu_session_resource_setup_unsuccessful_transfer
            ),
        },
        NgapPduKind::Initiating_UEContextReleaseRequest => UeMessage::ReleaseRequest { cause: cause(pdu)? },
        NgapPduKind::Successful_UEContextRelease => UeMessage::ReleaseComplete { recommended: recommended(pdu) },
        NgapPduKind::Successful_PDUSessionResourceSetup => UeMessage::SessionSetupResponse {
            set_up: items!(pdu, PDUSessionResourceSetupListSURes, pdu_session_resource_setup_response_transfer),
            failed: items!(
                pdu,
                PDUSessionResourceFailedToSetupListSURes,
                pdu_session_resource_setup_unsuccessful_transfer
            ),
        },
        NgapPduKind::Successful_PDUSessionResourceRelease => UeMessage::SessionReleaseResponse {
            released: items!(pdu, PDUSessionResourceReleasedListRelRes, pdu_session_resource_release_response_transfer),
        },
        NgapPduKind::Successful_PDUSessionResourceModify => UeMessage::SessionModifyResponse {
            modified: items!(pdu, PDUSessionResourceModifyListModRes, pdu_session_resource_modify_response_transfer),
            failed: items!(
                pdu,
                PDUSessionResourceFailedToModifyListModRes,
                pdu_session_resource_modify_unsuccessful_transfer
            ),
        },
        NgapPduKind::Initiating_UERadioCapabilityInfoIndication => radio_capability(pdu)?,
        NgapPduKind::Initiating_NASNonDeliveryIndication => UeMessage::NonDelivery,
        NgapPduKind::Initiating_ErrorIndication => UeMessage::Error(pdu.ie::<ie::Cause>().and_then(Result::ok)),
        NgapPduKind::Initiating_RRCInactiveTransitionReport | NgapPduKind::Initiating_LocationReport => {
            UeMessage::Location(location(pdu).unwrap_or_default())
        }
        NgapPduKind::Initiating_LocationReportingFailureIndication => UeMessage::LocationReportingFailure,
        NgapPduKind::Initiating_SecondaryRATDataUsageReport => UeMessage::Report,
        NgapPduKind::Successful_UEContextModification => UeMessage::ContextModificationResponse,
        NgapPduKind::Initiating_PDUSessionResourceNotify => session_notify(pdu)?,
        NgapPduKind::Initiating_PDUSessionResourceModifyIndication => {
            let list = required(pdu, pdu.ie::<ie::PDUSessionResourceModifyListModInd>())?;
            let item = |i: PDUSessionResourceModifyItemModInd<'_>| {
                (i.pdu_session_id.0, i.pdu_session_resource_modify_indication_transfer.into_vec())
            };
            UeMessage::SessionModifyIndication(list.0.into_iter().map(item).collect())
        }
        NgapPduKind::Unsuccessful_UEContextModification => UeMessage::ContextModificationFailure { cause: cause(pdu)? },
        NgapPduKind::Initiating_PathSwitchRequest => return path_switch(pdu),
        NgapPduKind::Initiating_HandoverPreparation => return handover_required(pdu),
        NgapPduKind::Successful_HandoverResourceAllocation => UeMessage::HandoverAcknowledge {
            admitted: items!(pdu, PDUSessionResourceAdmittedList, handover_request_acknowledge_transfer),
            failed: items!(
                pdu,
                PDUSessionResourceFailedToSetupListHOAck,
                handover_resource_allocation_unsuccessful_transfer
            ),
            container: required(pdu, pdu.ie::<ie::TargetToSource_TransparentContainer>())?.0.into_vec(),
        },
        NgapPduKind::Unsuccessful_HandoverResourceAllocation => UeMessage::HandoverFailure { cause: cause(pdu)? },
        NgapPduKind::Initiating_HandoverNotification => {
            UeMessage::HandoverNotify { location: location(pdu).unwrap_or_default() }
        }
        NgapPduKind::Initiating_HandoverCancel => UeMessage::HandoverCancel { cause: cause(pdu)? },
        NgapPduKind::Initiating_UplinkRANStatusTransfer => {
            let container = required(pdu, pdu.ie::<ie::RANStatusTransfer_TransparentContainer>())?;
            let octets = encode_open_type(&container).map_err(|_| Fault::from_message(pdu))?;
            UeMessage::StatusTransfer(octets.to_vec())
        }
        kind if is_for_ran(&kind) => return Err(Fault::wrong_direction(pdu)),
        // Outcomes without a request are ignored (10.4).
        _ if pdu.direction() != "InitiatingMessage" => UeMessage::Report,
        _ => return Err(Fault::unknown_procedure(pdu)),
    };
    Ok(message)
}

/// Returns true for the requests that an AMF alone sends.
pub(crate) fn is_for_ran(kind: &NgapPduKind) -> bool {
    matches!(
        kind,
        NgapPduKind::Initiating_AMFConfigurationUpdate
            | NgapPduKind::Initiating_AMFStatusIndication
            | NgapPduKind::Initiating_DeactivateTrace
            | NgapPduKind::Initiating_DownlinkNASTransport
            | NgapPduKind::Initiating_DownlinkNonUEAssociatedNRPPaTransport
            | NgapPduKind::Initiating_DownlinkRANConfigurationTransfer
            | NgapPduKind::Initiating_DownlinkRANStatusTransfer
            | NgapPduKind::Initiating_DownlinkUEAssociatedNRPPaTransport
            | NgapPduKind::Initiating_HandoverResourceAllocation
            | NgapPduKind::Initiating_InitialContextSetup
            | NgapPduKind::Initiating_LocationReportingControl
            | NgapPduKind::Initiating_OverloadStart
            | NgapPduKind::Initiating_OverloadStop
            | NgapPduKind::Initiating_Paging
            | NgapPduKind::Initiating_PDUSessionResourceModify
            | NgapPduKind::Initiating_PDUSessionResourceRelease
            | NgapPduKind::Initiating_PDUSessionResourceSetup
            | NgapPduKind::Initiating_RerouteNASRequest
            | NgapPduKind::Initiating_TraceStart
            | NgapPduKind::Initiating_UEContextModification
            | NgapPduKind::Initiating_UEContextRelease
            | NgapPduKind::Initiating_UERadioCapabilityCheck
            | NgapPduKind::Initiating_UETNLABindingRelease
    )
}

/// Decodes UE RADIO CAPABILITY INFO INDICATION (9.2.13.1).
fn radio_capability(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let capability = required(pdu, pdu.ie::<ie::UERadioCapability>())?;
    // Criticality ignore: those that do not decode count as absent.
    let paging = pdu.ie::<ie::UERadioCapabilityForPaging>().and_then(Result::ok);
    let paging_in_eutra = paging.as_ref().and_then(|p| p.ue_radio_capability_for_paging_of_eutra.as_ref());
    let eutra = pdu.ie::<ie::UERadioCapability_EUTRA_Format>().and_then(Result::ok);
    let other = RadioCapability {
        whole: eutra.map(|capability| capability.0.as_slice().to_vec()).unwrap_or_default(),
        paging: paging_in_eutra.map(|capability| capability.0.as_slice().to_vec()).unwrap_or_default(),
    };
    let paging = paging.as_ref().and_then(|paging| encode_open_type(paging).ok());
    let paging = paging.map(|octets| octets.to_vec()).unwrap_or_default();
    let own = RadioCapability { whole: capability.0.as_slice().to_vec(), paging };
    Ok(UeMessage::RadioCapability { own, other })
}

/// Decodes PDU SESSION RESOURCE NOTIFY (9.2.1.7). Its list of notified sessions has criticality
/// reject.
fn session_notify(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let list = pdu.ie::<ie::PDUSessionResourceNotifyList>().transpose().map_err(|_| Fault::from_message(pdu))?;
    let item =
        |i: PDUSessionResourceNotifyItem<'_>| (i.pdu_session_id.0, i.pdu_session_resource_notify_transfer.into_vec());
    Ok(UeMessage::SessionNotify {
        notified: list.map_or_else(SessionItems::new, |list| list.0.into_iter().map(item).collect()),
        released: items!(pdu, PDUSessionResourceReleasedListNot, pdu_session_resource_notify_released_transfer),
    })
}

fn required<T>(pdu: &NGAPPDU<'_>, ie: Option<Result<T, ngap::Error>>) -> Result<T, Box<Fault>> {
    ie.and_then(Result::ok).ok_or_else(|| Fault::from_message(pdu))
}

fn cause(pdu: &NGAPPDU<'_>) -> Result<Cause, Box<Fault>> {
    // Criticality ignore (9.2.2.4): the message is valid without a cause.
    Ok(pdu.ie::<ie::Cause>().and_then(Result::ok).unwrap_or(Cause::radioNetwork(CauseRadioNetwork::unspecified)))
}

fn nas(pdu: &NGAPPDU<'_>) -> Result<Vec<u8>, Box<Fault>> {
    let nas = required(pdu, pdu.ie::<ie::NAS_PDU>())?;
    let octets = nas.0.as_slice();
    if octets.len() > limits::NAS_PDU_OCTETS {
        return Err(Fault::logical("nas-too-long", Cause::protocol(CauseProtocol::semantic_error), None, None));
    }
    Ok(octets.to_vec())
}

fn location(pdu: &NGAPPDU<'_>) -> Result<Option<(Tai, NrCgi)>, Box<Fault>> {
    match pdu.ie::<ie::UserLocationInformation>().transpose().map_err(|_| Fault::from_message(pdu))? {
        Some(UserLocationInformation::userLocationInformationNR(nr)) => {
            Ok(Some((tai_of(&nr.tai), cell_of(&nr.nr_cgi))))
        }
        Some(UserLocationInformation::userLocationInformationEUTRA(eutra)) => {
            Ok(Some((tai_of(&eutra.tai), eutra_cell_of(&eutra.eutra_cgi))))
        }
        _ => Ok(None),
    }
}

fn initial(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let ran_id = RanUeNgapId(required(pdu, pdu.ie::<ie::RAN_UE_NGAP_ID>())?.0);
    // Only gNBs and ng-eNBs are served: a location other than their cells makes the message
    // unusable.
    let (tai, cell) = location(pdu)?.ok_or_else(|| Fault::from_message(pdu))?;
    Ok(UeMessage::Initial(InitialUeMessage { ran_id, nas: nas(pdu)?, tai, cell }))
}

fn uplink_nas(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    // Criticality ignore: if the location does not decode, the known one stays.
    Ok(UeMessage::UplinkNas { nas: nas(pdu)?, location: location(pdu).unwrap_or_default() })
}

fn path_switch(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let ran_id = RanUeNgapId(required(pdu, pdu.ie::<ie::RAN_UE_NGAP_ID>())?.0);
    let bits = |bits: &BitString<'_>| bits.as_octets().first().copied().unwrap_or(0);
    // Criticality ignore: capabilities that do not decode are not compared.
    let capability = pdu.ie::<ie::UESecurityCapabilities>().and_then(Result::ok);
    let list = required(pdu, pdu.ie::<ie::PDUSessionResourceToBeSwitchedDLList>())?;
    Ok(UeMessage::PathSwitch(PathSwitch {
        ran_id,
        location: location(pdu).unwrap_or_default(),
        capability: capability
            .as_ref()
            .map(|c| (bits(&c.nr_encryption_algorithms.0), bits(&c.nr_integrity_protection_algorithms.0))),
        eutra_capability: capability
            .map(|c| (bits(&c.eutra_encryption_algorithms.0), bits(&c.eutra_integrity_protection_algorithms.0))),
        nr_capability: None,
        switched: list.0.into_iter().map(|i| (i.pdu_session_id.0, i.path_switch_request_transfer.into_vec())).collect(),
        failed: items!(pdu, PDUSessionResourceFailedToSetupListPSReq, path_switch_request_setup_failed_transfer),
    }))
}

fn handover_required(pdu: &NGAPPDU<'_>) -> Result<UeMessage, Box<Fault>> {
    let kind = required(pdu, pdu.ie::<ie::HandoverType>())?;
    let target = match required(pdu, pdu.ie::<ie::TargetID>())? {
        TargetID::targetRANNodeID(node) if kind == HandoverType::intra5gs => {
            ran_node_of(&node.global_ran_node_id).ok().map(|id| (id, tai_of(&node.selected_tai)))
        }
        TargetID::targeteNB_ID(node) if kind == HandoverType::fivegs_to_eps => {
            ng_enb_of(&node.global_enb_id).map(|id| (id.into(), eps_tai_of(&node.selected_eps_tai)))
        }
        _ => None,
    };
    let list = required(pdu, pdu.ie::<ie::PDUSessionResourceListHORqd>())?;
    Ok(UeMessage::HandoverRequired(HandoverRequired {
        cause: cause(pdu)?,
        target,
        sessions: list.0.into_iter().map(|i| (i.pdu_session_id.0, i.handover_required_transfer.into_vec())).collect(),
        is_direct: false,
        container: required(pdu, pdu.ie::<ie::SourceToTarget_TransparentContainer>())?.0.into_vec(),
    }))
}

/// Returns the AMF-UE-NGAP-ID and RAN-UE-NGAP-ID of a message, as far as they decode, for the
/// answer to a fault.
pub fn ue_ids(octets: &[u8]) -> (Option<u64>, Option<u32>) {
    match NGAP_PDU::decode_borrowed(octets) {
        Ok(pdu) => (
            pdu.ie::<ie::AMF_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
            pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).map(|id| id.0),
        ),
        Err(_) => (None, None),
    }
}
