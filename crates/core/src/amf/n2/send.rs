//! Encoding of UE-associated messages to the RAN.

use super::{Cause, UeInformation, masked_imeisv, plmn_to, snssai_to};
use crate::amf::context::{Connection, UeSecurityCapability};
use crate::subscription::Ambr;
use std::num::NonZeroU16;
use vireo_types::{AmfUeNgapId, Guami, RanUeNgapId, Snssai, limits};
use vireo_wire::ngap::{self, Message, *};

/// Encodes a PDU that was built from values within their constraints.
///
/// The types of this module bound identifiers, lists and octet strings. An encoding error is
/// therefore a bug of this build, not caused by input. It results in no octets, and nothing is
/// sent.
pub(crate) fn encode(pdu: Result<NGAPPDU<'_>, ngap::Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).unwrap_or_default()
}

/// Encodes DOWNLINK NAS TRANSPORT (TS 38.413 9.2.5.2).
pub fn downlink_nas_transport(connection: &Connection, nas: Vec<u8>) -> Vec<u8> {
    encode(build_ngap!(
        InitiatingMessage,
        DownlinkNASTransport,
        DownlinkNASTransport,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        NAS_PDU(nas),
    ))
}

/// Encodes DOWNLINK NAS TRANSPORT (9.2.5.2) with the mobility restrictions, the RFSP Index and the
/// allowed NSSAI (unless empty), which replace those that the RAN node has (8.6.2.2).
pub fn downlink_nas_with_information(
    connection: &Connection,
    nas: Vec<u8>,
    information: &UeInformation,
    allowed: &[Snssai],
) -> Vec<u8> {
    let build = || -> Result<NGAPPDU<'_>, ngap::Error> {
        let mut ies = vec![
            build_ngap_ie!(DownlinkNASTransport, AMF_UE_NGAP_ID(connection.amf_id.get()))?,
            build_ngap_ie!(DownlinkNASTransport, RAN_UE_NGAP_ID(connection.ran_id.0))?,
            build_ngap_ie!(DownlinkNASTransport, NAS_PDU(nas))?,
        ];
        if let Some(restrictions) = &information.restrictions {
            ies.push(build_ngap_ie!(DownlinkNASTransport, MobilityRestrictionList(restrictions.encode()))?);
        }
        if let Some(rfsp) = information.rfsp {
            ies.push(build_ngap_ie!(DownlinkNASTransport, IndexToRFSP(IndexToRFSP(rfsp.get().into())))?);
        }
        if !allowed.is_empty() {
            ies.push(build_ngap_ie!(DownlinkNASTransport, AllowedNSSAI(allowed_nssai(allowed)))?);
        }
        let message = DownlinkNASTransport::new(ProtocolIEContainer(ies));
        NGAP_PDU::of_message(&message, DownlinkNASTransport::CRITICALITY)
    };
    encode(build())
}

/// Encodes UE CONTEXT RELEASE COMMAND (9.2.2.5).
pub fn context_release_command(connection: &Connection, cause: Cause) -> Vec<u8> {
    release_command(connection.amf_id, connection.ran_id, cause)
}

/// Encodes UE CONTEXT RELEASE COMMAND for a connection that a RAN node has and the AMF does not
/// have. Both IDs are those that the RAN node sent, so that a node with another UE under one of
/// them releases nothing (10.6).
pub fn stale_release_command(amf_id: AmfUeNgapId, ran_id: RanUeNgapId) -> Vec<u8> {
    let cause = CauseRadioNetwork::release_due_to_5gc_generated_reason;
    release_command(amf_id, ran_id, Cause::radioNetwork(cause))
}

fn release_command(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, cause: Cause) -> Vec<u8> {
    let pair = UENGAPIDPair::new(AMFUENGAPID(amf_id.get()), RANUENGAPID(ran_id.0), None);
    encode(build_ngap!(
        InitiatingMessage,
        UEContextRelease,
        UEContextReleaseCommand,
        UE_NGAP_IDs(UENGAPIDs::uE_NGAP_ID_pair(pair)),
        Cause(cause),
    ))
}

/// Encodes HANDOVER FAILURE (9.2.3.6) in place of a target that does not get the request.
pub fn handover_failure(amf_id: AmfUeNgapId) -> Vec<u8> {
    encode(build_ngap!(
        UnsuccessfulOutcome,
        HandoverResourceAllocation,
        HandoverFailure,
        AMF_UE_NGAP_ID(amf_id.get()),
        Cause(Cause::misc(CauseMisc::control_processing_overload)),
    ))
}

/// PDU session of a set-up request.
#[derive(Clone, Debug)]
pub struct SessionSetup {
    /// PDU session ID, 1 to 15.
    pub psi: u8,
    pub snssai: Snssai,
    /// Protected NAS message to the UE, if any.
    pub nas: Option<Vec<u8>>,
    /// PDU Session Resource Setup Request Transfer.
    pub transfer: Vec<u8>,
}

/// Contents of INITIAL CONTEXT SETUP REQUEST (9.2.2.1).
#[derive(Debug)]
pub struct ContextSetup<'a> {
    pub guami: Guami,
    pub allowed: &'a [Snssai],
    pub capability: UeSecurityCapability,
    pub kgnb: [u8; 32],
    /// UE-AMBR; sent only with sessions.
    pub ambr: Ambr,
    /// UE Radio Capability; empty if unknown.
    pub radio_capability: &'a [u8],
    /// Algorithms of NR for EN-DC, for an eNB (TS 36.413 9.2.1.127).
    pub nr_algorithms: Option<(u16, u16)>,
    pub information: UeInformation,
    /// UE Radio Capability for Paging in the coding of NGAP, if known.
    pub paging_capability: Option<&'a [u8]>,
    pub sessions: Vec<SessionSetup>,
    /// Protected NAS message to the UE, if any.
    pub nas: Option<Vec<u8>>,
}

/// What a RAN node learns with the accept of an update.
#[derive(Clone, Copy, Debug)]
pub struct AcceptTransport<'a> {
    /// Allowed NSSAI for a gNB that has a UE context.
    pub allowed: &'a [Snssai],
    pub information: &'a UeInformation,
    /// Algorithms of NR for EN-DC (TS 36.413 9.2.1.127); `None` if unknown.
    pub nr_algorithms: Option<(u16, u16)>,
    /// UE Radio Capability; empty if unknown, or if the eNB has it.
    pub radio_capability: &'a [u8],
}

/// Encodes an allowed NSSAI (9.3.1.31).
pub fn allowed_nssai(allowed: &[Snssai]) -> AllowedNSSAI {
    AllowedNSSAI(allowed.iter().map(|s| AllowedNSSAIItem::new(snssai_to(*s), None)).collect())
}

/// Encodes INITIAL CONTEXT SETUP REQUEST (9.2.2.1).
pub fn context_setup_request(connection: &Connection, setup: ContextSetup<'_>) -> Vec<u8> {
    encode(try_context_setup(connection, setup))
}

fn try_context_setup<'a>(connection: &Connection, setup: ContextSetup<'_>) -> Result<NGAPPDU<'a>, ngap::Error> {
    let mut ies = vec![
        build_ngap_ie!(InitialContextSetupRequest, AMF_UE_NGAP_ID(connection.amf_id.get()))?,
        build_ngap_ie!(InitialContextSetupRequest, RAN_UE_NGAP_ID(connection.ran_id.0))?,
    ];
    if !setup.sessions.is_empty() {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, UEAggregateMaximumBitRate(ambr_to(setup.ambr)))?);
    }
    if let Some(inactive) = &setup.information.inactive {
        let inactive = inactive.encode();
        ies.push(build_ngap_ie!(InitialContextSetupRequest, CoreNetworkAssistanceInformationForInactive(inactive))?);
    }
    let guami =
        ngap::helpers::guami(plmn_to(setup.guami.plmn), setup.guami.region, setup.guami.set, setup.guami.pointer)?;
    ies.push(build_ngap_ie!(InitialContextSetupRequest, GUAMI(guami))?);
    if !setup.sessions.is_empty() {
        let item = |s: SessionSetup| {
            let nas = s.nas.map(|nas| NASPDU(nas.into()));
            PDUSessionResourceSetupItemCxtReq::new(
                PDUSessionID(s.psi),
                nas,
                snssai_to(s.snssai),
                s.transfer.into(),
                None,
            )
        };
        let list = PDUSessionResourceSetupListCxtReq(setup.sessions.into_iter().map(item).collect());
        ies.push(build_ngap_ie!(InitialContextSetupRequest, PDUSessionResourceSetupListCxtReq(list))?);
    }
    ies.push(build_ngap_ie!(InitialContextSetupRequest, AllowedNSSAI(allowed_nssai(setup.allowed)))?);
    ies.push(build_ngap_ie!(InitialContextSetupRequest, UESecurityCapabilities(capability_to(setup.capability)))?);
    ies.push(build_ngap_ie!(InitialContextSetupRequest, SecurityKey(setup.kgnb))?);
    if let Some(restrictions) = &setup.information.restrictions {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, MobilityRestrictionList(restrictions.encode()))?);
    }
    if !setup.radio_capability.is_empty() {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, UERadioCapability(setup.radio_capability.to_vec()))?);
    }
    if let Some(rfsp) = setup.information.rfsp {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, IndexToRFSP(IndexToRFSP(rfsp.get().into())))?);
    }
    if let Some(imeisv) = setup.information.masked_imeisv.map(masked_imeisv) {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, MaskedIMEISV(imeisv))?);
    }
    if let Some(nas) = setup.nas {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, NAS_PDU(nas))?);
    }
    // The octets are those of a RAN node, encoded again.
    let paging = setup.paging_capability.map(decode_open_type::<UERadioCapabilityForPaging<'_>>);
    if let Some(Ok(paging)) = paging {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, UERadioCapabilityForPaging(paging.into_owned()))?);
    }
    let message = InitialContextSetupRequest::new(ProtocolIEContainer(ies));
    NGAP_PDU::of_message(&message, InitialContextSetupRequest::CRITICALITY)
}

/// Encodes PDU SESSION RESOURCE SETUP REQUEST (9.2.1.1) for one session.
pub fn session_setup_request(connection: &Connection, ambr: Ambr, session: SessionSetup) -> Vec<u8> {
    let nas = session.nas.map(|nas| NASPDU(nas.into()));
    let item = PDUSessionResourceSetupItemSUReq::new(
        PDUSessionID(session.psi),
        nas,
        snssai_to(session.snssai),
        session.transfer.into(),
        None,
    );
    encode(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceSetup,
        PDUSessionResourceSetupRequest,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        PDUSessionResourceSetupListSUReq(PDUSessionResourceSetupListSUReq(vec![item])),
        UEAggregateMaximumBitRate(ambr_to(ambr)),
    ))
}

/// Encodes PDU SESSION RESOURCE MODIFY REQUEST (9.2.1.5) for one session.
pub fn session_modify_request(connection: &Connection, psi: u8, nas: Option<Vec<u8>>, transfer: Vec<u8>) -> Vec<u8> {
    let nas = nas.map(|nas| NASPDU(nas.into()));
    let item = PDUSessionResourceModifyItemModReq::new(PDUSessionID(psi), nas, transfer.into(), None);
    encode(build_ngap!(
        InitiatingMessage,
        PDUSessionResourceModify,
        PDUSessionResourceModifyRequest,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        PDUSessionResourceModifyListModReq(PDUSessionResourceModifyListModReq(vec![item])),
    ))
}

/// Encodes UE CONTEXT MODIFICATION REQUEST (9.2.2.7) with another UE-AMBR.
pub fn context_modification_request(connection: &Connection, ambr: Ambr) -> Vec<u8> {
    encode(build_ngap!(
        InitiatingMessage,
        UEContextModification,
        UEContextModificationRequest,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        UEAggregateMaximumBitRate(ambr_to(ambr)),
    ))
}

/// Encodes UE CONTEXT MODIFICATION REQUEST (9.2.2.7) with another KgNB.
pub fn key_renewal_request(connection: &Connection, kgnb: [u8; 32], capability: UeSecurityCapability) -> Vec<u8> {
    encode(build_ngap!(
        InitiatingMessage,
        UEContextModification,
        UEContextModificationRequest,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        SecurityKey(kgnb),
        UESecurityCapabilities(capability_to(capability)),
    ))
}

/// Encodes UE CONTEXT MODIFICATION REQUEST (9.2.2.7) with another Index to RAT/Frequency Selection
/// Priority.
pub fn rfsp_modification_request(connection: &Connection, rfsp: NonZeroU16) -> Vec<u8> {
    encode(build_ngap!(
        InitiatingMessage,
        UEContextModification,
        UEContextModificationRequest,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        IndexToRFSP(IndexToRFSP(rfsp.get().into())),
    ))
}

/// Encodes LOCATION REPORTING CONTROL (9.2.11.1): report the cell of the UE once, if `is_direct`,
/// or each other cell.
pub fn location_reporting_control(connection: &Connection, is_direct: bool) -> Vec<u8> {
    let event = if is_direct { EventType::direct } else { EventType::change_of_serve_cell };
    let kind = LocationReportingRequestType::new(event, ReportArea::cell, None, None, None);
    encode(build_ngap!(
        InitiatingMessage,
        LocationReportingControl,
        LocationReportingControl,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        LocationReportingRequestType(kind),
    ))
}

/// Encodes PDU SESSION RESOURCE RELEASE COMMAND (9.2.1.3) for one session.
pub fn session_release_command(connection: &Connection, psi: u8, nas: Option<Vec<u8>>, transfer: Vec<u8>) -> Vec<u8> {
    encode(try_session_release(connection, psi, nas, transfer))
}

fn try_session_release<'a>(
    connection: &Connection,
    psi: u8,
    nas: Option<Vec<u8>>,
    transfer: Vec<u8>,
) -> Result<NGAPPDU<'a>, ngap::Error> {
    let mut ies = vec![
        build_ngap_ie!(PDUSessionResourceReleaseCommand, AMF_UE_NGAP_ID(connection.amf_id.get()))?,
        build_ngap_ie!(PDUSessionResourceReleaseCommand, RAN_UE_NGAP_ID(connection.ran_id.0))?,
    ];
    if let Some(nas) = nas {
        ies.push(build_ngap_ie!(PDUSessionResourceReleaseCommand, NAS_PDU(nas))?);
    }
    let item = PDUSessionResourceToReleaseItemRelCmd::new(PDUSessionID(psi), transfer.into(), None);
    let list = PDUSessionResourceToReleaseListRelCmd(vec![item]);
    ies.push(build_ngap_ie!(PDUSessionResourceReleaseCommand, PDUSessionResourceToReleaseListRelCmd(list))?);
    let message = PDUSessionResourceReleaseCommand::new(ProtocolIEContainer(ies));
    NGAP_PDU::of_message(&message, PDUSessionResourceReleaseCommand::CRITICALITY)
}

pub(crate) fn ambr_to(ambr: Ambr) -> UEAggregateMaximumBitRate {
    let rate = |bps: u64| BitRate(bps.min(limits::BIT_RATE));
    UEAggregateMaximumBitRate::new(rate(ambr.downlink_bps), rate(ambr.uplink_bps), None)
}

/// Converts to UE Security Capabilities (9.3.1.86): bits of algorithms 1 to 7 from the left,
/// without the null algorithms.
pub(crate) fn capability_to(capability: UeSecurityCapability) -> UESecurityCapabilities<'static> {
    let bits = |octet: u8| ngap::BitString::from([octet << 1, 0]);
    UESecurityCapabilities::new(
        NRencryptionAlgorithms(bits(capability.ea())),
        NRintegrityProtectionAlgorithms(bits(capability.ia())),
        EUTRAencryptionAlgorithms(bits(capability.eea())),
        EUTRAintegrityProtectionAlgorithms(bits(capability.eia())),
        None,
    )
}
