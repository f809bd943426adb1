//! Encoding of UE-associated messages to eNBs.

use super::{cause_to, handover_restrictions, plmn_to};
use crate::amf::context::{
    Connection, DrxCycle, ExtendedDrx, Reachability, UeSecurityCapability, extended_drx_values, paging_priority,
};
use crate::amf::n2::{AcceptTransport, Cause, ContextSetup, SessionSetup};
use crate::smf::{ErabQos, ErabRequest};
use crate::subscription::Ambr;
use std::net::IpAddr;
use std::num::NonZeroU16;
use vireo_types::{AmfUeNgapId, Dialect, RanUeNgapId, limits};
use vireo_wire::ngap::CauseRadioNetwork;
use vireo_wire::s1ap::{self, Message, *};

/// UE-AMBR of a UE without bearer.
const NO_RATE: Ambr = Ambr { uplink_bps: 0, downlink_bps: 0 };

/// Encodes a PDU that was built from values within their constraints. As in NGAP, an encoding error
/// is a bug of this build; it results in no octets, and nothing is sent.
pub(crate) fn encode(pdu: Result<S1APPDU<'_>, s1ap::Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).unwrap_or_default()
}

/// Encodes DOWNLINK NAS TRANSPORT (TS 36.413 9.1.7.2).
pub fn downlink_nas_transport(connection: &Connection, nas: Vec<u8>) -> Vec<u8> {
    encode(build_s1ap!(
        InitiatingMessage,
        downlinkNASTransport,
        DownlinkNASTransport,
        MME_UE_S1AP_ID(connection.amf_id.mme()),
        eNB_UE_S1AP_ID(connection.ran_id.0),
        NAS_PDU(nas),
    ))
}

/// Encodes DOWNLINK NAS TRANSPORT with what the eNB learns of the UE: restrictions, which replace
/// those that it has (8.6.2.2), what it needs for EN-DC, and the UE radio capability if there is
/// any. An eNB asks a UE whose capability it does not get.
pub fn accept_transport(connection: &Connection, nas: Vec<u8>, content: AcceptTransport<'_>) -> Vec<u8> {
    let AcceptTransport { information, nr_algorithms, radio_capability, allowed: _ } = content;
    let build = || -> Result<S1APPDU<'_>, s1ap::Error> {
        let mut ies = vec![
            build_s1ap_ie!(DownlinkNASTransport, MME_UE_S1AP_ID(connection.amf_id.mme()))?,
            build_s1ap_ie!(DownlinkNASTransport, eNB_UE_S1AP_ID(connection.ran_id.0))?,
            build_s1ap_ie!(DownlinkNASTransport, NAS_PDU(nas))?,
        ];
        if let Some(restrictions) = &information.restrictions {
            let list = handover_restrictions(restrictions)?;
            ies.push(build_s1ap_ie!(DownlinkNASTransport, HandoverRestrictionList(list))?);
        }
        if let Some(rfsp) = information.rfsp {
            let id = SubscriberProfileIDforRFP(rfsp.get());
            ies.push(build_s1ap_ie!(DownlinkNASTransport, SubscriberProfileIDforRFP(id))?);
        }
        if !radio_capability.is_empty() {
            ies.push(build_s1ap_ie!(DownlinkNASTransport, UERadioCapability(radio_capability.to_vec()))?);
        }
        if let Some(algorithms) = nr_algorithms {
            ies.push(build_s1ap_ie!(DownlinkNASTransport, NRUESecurityCapabilities(nr_capability(algorithms)))?);
        }
        let message = DownlinkNASTransport::new(ProtocolIEContainer(ies));
        S1AP_PDU::of_message(&message, DownlinkNASTransport::CRITICALITY)
    };
    encode(build())
}

/// Encodes UE CONTEXT RELEASE COMMAND (9.1.4.6).
pub fn context_release_command(connection: &Connection, cause: &Cause) -> Vec<u8> {
    release_command(connection.amf_id, connection.ran_id, cause)
}

/// Encodes UE CONTEXT RELEASE COMMAND for a connection that an eNB has and the MME does not have.
/// Both IDs are those that the eNB sent (10.6).
pub fn stale_release_command(amf_id: AmfUeNgapId, ran_id: RanUeNgapId) -> Vec<u8> {
    let cause = Cause::radioNetwork(CauseRadioNetwork::release_due_to_5gc_generated_reason);
    release_command(amf_id, ran_id, &cause)
}

fn release_command(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, cause: &Cause) -> Vec<u8> {
    let pair = UES1APIDPair::new(MMEUES1APID(amf_id.mme()), ENBUES1APID(ran_id.0), None);
    encode(build_s1ap!(
        InitiatingMessage,
        UEContextRelease,
        UEContextReleaseCommand,
        UE_S1AP_IDs(UES1APIDs::uE_S1AP_ID_pair(pair)),
        Cause(cause_to(cause)),
    ))
}

/// Encodes HANDOVER FAILURE (9.1.5.6) in place of a target that does not get the request.
pub fn handover_failure(mme_id: AmfUeNgapId) -> Vec<u8> {
    encode(build_s1ap!(
        UnsuccessfulOutcome,
        HandoverResourceAllocation,
        HandoverFailure,
        MME_UE_S1AP_ID(mme_id.mme()),
        Cause(s1ap::Cause::misc(CauseMisc::control_processing_overload)),
    ))
}

pub(crate) fn erab_qos(erab: &ErabRequest) -> ERABLevelQoSParameters {
    level_qos(ErabQos { qci: erab.qci, arp_priority: erab.arp_priority })
}

fn level_qos(qos: ErabQos) -> ERABLevelQoSParameters {
    let arp = AllocationAndRetentionPriority::new(
        PriorityLevel(qos.arp_priority.clamp(1, 15)),
        PreEmptionCapability::shall_not_trigger_pre_emption,
        PreEmptionVulnerability::not_pre_emptable,
        None,
    );
    ERABLevelQoSParameters::new(QCI(qos.qci), arp, None, None)
}

pub(crate) fn transport_address(address: IpAddr) -> TransportLayerAddress<'static> {
    match address {
        IpAddr::V4(v4) => TransportLayerAddress(v4.octets().into()),
        IpAddr::V6(v6) => TransportLayerAddress(v6.octets().into()),
    }
}

/// Encodes INITIAL CONTEXT SETUP REQUEST (9.1.4.1). The NAS message to the UE is in the first
/// E-RAB.
pub fn context_setup_request(connection: &Connection, setup: ContextSetup<'_>) -> Vec<u8> {
    encode(try_context_setup(connection, setup))
}

fn try_context_setup<'a>(connection: &Connection, setup: ContextSetup<'_>) -> Result<S1APPDU<'a>, s1ap::Error> {
    let mut nas = setup.nas;
    let mut items = Vec::with_capacity(setup.sessions.len());
    for session in setup.sessions {
        // The SMF part of this build has encoded the octets.
        let Some(erab) = ErabRequest::decode(&session.transfer) else { continue };
        let item = ERABToBeSetupItemCtxtSUReq::new(
            ERABID(session.psi.into()),
            erab_qos(&erab),
            transport_address(erab.tunnel.address),
            GTPTEID(erab.tunnel.teid.0.to_be_bytes()),
            session.nas.or_else(|| nas.take()).map(NASPDU::from),
            None,
        );
        items.push(build_s1ap_ie!(REJECT E_RABToBeSetupItemCtxtSUReq(item))?);
    }
    let mut ies = vec![
        build_s1ap_ie!(InitialContextSetupRequest, MME_UE_S1AP_ID(connection.amf_id.mme()))?,
        build_s1ap_ie!(InitialContextSetupRequest, eNB_UE_S1AP_ID(connection.ran_id.0))?,
        build_s1ap_ie!(InitialContextSetupRequest, uEaggregateMaximumBitrate(ambr_to(setup.ambr)?))?,
        build_s1ap_ie!(InitialContextSetupRequest, E_RABToBeSetupListCtxtSUReq(ERABToBeSetupListCtxtSUReq(items)))?,
        build_s1ap_ie!(InitialContextSetupRequest, UESecurityCapabilities(capability_to(setup.capability)))?,
        build_s1ap_ie!(InitialContextSetupRequest, SecurityKey(setup.kgnb))?,
    ];
    if let Some(restrictions) = &setup.information.restrictions {
        let list = handover_restrictions(restrictions)?;
        ies.push(build_s1ap_ie!(InitialContextSetupRequest, HandoverRestrictionList(list))?);
    }
    if !setup.radio_capability.is_empty() {
        ies.push(build_s1ap_ie!(InitialContextSetupRequest, UERadioCapability(setup.radio_capability.to_vec()))?);
    }
    if let Some(rfsp) = setup.information.rfsp {
        let id = SubscriberProfileIDforRFP(rfsp.get());
        ies.push(build_s1ap_ie!(InitialContextSetupRequest, SubscriberProfileIDforRFP(id))?);
    }
    if let Some(imeisv) = setup.information.masked_imeisv.map(masked_imeisv) {
        ies.push(build_s1ap_ie!(InitialContextSetupRequest, Masked_IMEISV(imeisv))?);
    }
    if let Some(algorithms) = setup.nr_algorithms {
        ies.push(build_s1ap_ie!(InitialContextSetupRequest, NRUESecurityCapabilities(nr_capability(algorithms)))?);
    }
    let message = InitialContextSetupRequest::new(ProtocolIEContainer(ies));
    S1AP_PDU::of_message(&message, InitialContextSetupRequest::CRITICALITY)
}

/// Encodes E-RAB SETUP REQUEST (9.1.3.1) for one bearer. Its NAS message is mandatory, so that a
/// bearer without one is empty.
pub fn session_setup_request(connection: &Connection, ambr: Ambr, session: SessionSetup) -> Vec<u8> {
    let Some(erab) = ErabRequest::decode(&session.transfer) else { return Vec::new() };
    let item = ERABToBeSetupItemBearerSUReq::new(
        ERABID(session.psi.into()),
        erab_qos(&erab),
        transport_address(erab.tunnel.address),
        GTPTEID(erab.tunnel.teid.0.to_be_bytes()),
        NASPDU::from(session.nas.unwrap_or_default()),
        None,
    );
    encode(build_s1ap_ie!(REJECT E_RABToBeSetupItemBearerSUReq(item)).and_then(|item| {
        build_s1ap!(
            InitiatingMessage,
            E_RABSetup,
            ERABSetupRequest,
            MME_UE_S1AP_ID(connection.amf_id.mme()),
            eNB_UE_S1AP_ID(connection.ran_id.0),
            uEaggregateMaximumBitrate(ambr_to(ambr)?),
            E_RABToBeSetupListBearerSUReq(ERABToBeSetupListBearerSUReq(vec![item])),
        )
    }))
}

/// Encodes UE CONTEXT MODIFICATION REQUEST (9.1.4.8) with another UE-AMBR.
pub fn context_modification_request(connection: &Connection, ambr: Ambr) -> Vec<u8> {
    encode(ambr_to(ambr).and_then(|ambr| {
        build_s1ap!(
            InitiatingMessage,
            UEContextModification,
            UEContextModificationRequest,
            MME_UE_S1AP_ID(connection.amf_id.mme()),
            eNB_UE_S1AP_ID(connection.ran_id.0),
            uEaggregateMaximumBitrate(ambr),
        )
    }))
}

/// Encodes UE CONTEXT MODIFICATION REQUEST (9.1.4.8) with another KeNB.
pub fn key_renewal_request(connection: &Connection, kenb: [u8; 32], capability: UeSecurityCapability) -> Vec<u8> {
    encode(build_s1ap!(
        InitiatingMessage,
        UEContextModification,
        UEContextModificationRequest,
        MME_UE_S1AP_ID(connection.amf_id.mme()),
        eNB_UE_S1AP_ID(connection.ran_id.0),
        SecurityKey(kenb),
        UESecurityCapabilities(capability_to(capability)),
    ))
}

/// Encodes UE CONTEXT MODIFICATION REQUEST (9.1.4.8) with another Subscriber Profile ID for
/// RAT/Frequency priority.
pub fn rfsp_modification_request(connection: &Connection, rfsp: NonZeroU16) -> Vec<u8> {
    encode(build_s1ap!(
        InitiatingMessage,
        UEContextModification,
        UEContextModificationRequest,
        MME_UE_S1AP_ID(connection.amf_id.mme()),
        eNB_UE_S1AP_ID(connection.ran_id.0),
        SubscriberProfileIDforRFP(SubscriberProfileIDforRFP(rfsp.get())),
    ))
}

/// Encodes LOCATION REPORTING CONTROL (9.1.15.1): report the cell of the UE once, if `is_direct`,
/// or each other cell.
pub fn location_reporting_control(connection: &Connection, is_direct: bool) -> Vec<u8> {
    let event = if is_direct { EventType::direct } else { EventType::change_of_serve_cell };
    let kind = RequestType::new(event, ReportArea::ecgi, None);
    encode(build_s1ap!(
        InitiatingMessage,
        LocationReportingControl,
        LocationReportingControl,
        MME_UE_S1AP_ID(connection.amf_id.mme()),
        eNB_UE_S1AP_ID(connection.ran_id.0),
        RequestType(kind),
    ))
}

/// Encodes E-RAB MODIFY REQUEST (9.1.3.3) for one bearer. Its NAS message is mandatory.
pub fn session_modify_request(
    connection: &Connection,
    ebi: u8,
    (ambr, nas): (Ambr, Option<Vec<u8>>),
    qos: &[u8],
) -> Vec<u8> {
    let Some(qos) = ErabQos::decode(qos) else { return Vec::new() };
    let nas = NASPDU::from(nas.unwrap_or_default());
    let item = ERABToBeModifiedItemBearerModReq::new(ERABID(ebi.into()), level_qos(qos), nas, None);
    encode(build_s1ap_ie!(REJECT E_RABToBeModifiedItemBearerModReq(item)).and_then(|item| {
        build_s1ap!(
            InitiatingMessage,
            E_RABModify,
            ERABModifyRequest,
            MME_UE_S1AP_ID(connection.amf_id.mme()),
            eNB_UE_S1AP_ID(connection.ran_id.0),
            uEaggregateMaximumBitrate(ambr_to(ambr)?),
            E_RABToBeModifiedListBearerModReq(ERABToBeModifiedListBearerModReq(vec![item])),
        )
    }))
}

/// Encodes E-RAB RELEASE COMMAND (9.1.3.5) for one bearer, with the UE-AMBR of the others.
pub fn session_release_command(connection: &Connection, ebi: u8, content: (Ambr, Option<Vec<u8>>)) -> Vec<u8> {
    encode(try_session_release(connection, ebi, content))
}

fn try_session_release<'a>(
    connection: &Connection,
    ebi: u8,
    (ambr, nas): (Ambr, Option<Vec<u8>>),
) -> Result<S1APPDU<'a>, s1ap::Error> {
    let cause = s1ap::Cause::nas(CauseNas::normal_release);
    let item = build_s1ap_ie!(IGNORE E_RABItem(ERABItem::new(ERABID(ebi.into()), cause, None)))?;
    let mut ies = vec![
        build_s1ap_ie!(ERABReleaseCommand, MME_UE_S1AP_ID(connection.amf_id.mme()))?,
        build_s1ap_ie!(ERABReleaseCommand, eNB_UE_S1AP_ID(connection.ran_id.0))?,
    ];
    // After the last bearer there is none to limit.
    if ambr != NO_RATE {
        ies.push(build_s1ap_ie!(ERABReleaseCommand, uEaggregateMaximumBitrate(ambr_to(ambr)?))?);
    }
    ies.push(build_s1ap_ie!(ERABReleaseCommand, E_RABToBeReleasedList(ERABList(vec![item])))?);
    if let Some(nas) = nas {
        ies.push(build_s1ap_ie!(ERABReleaseCommand, NAS_PDU(nas))?);
    }
    let message = ERABReleaseCommand::new(ProtocolIEContainer(ies));
    S1AP_PDU::of_message(&message, ERABReleaseCommand::CRITICALITY)
}

/// Highest value of BitRate (9.2.1.19). The extended form has higher ones (9.2.1.141).
const BIT_RATE: u64 = 10_000_000_000;

/// Returns the UE-AMBR. A rate above 10 Gbit/s has an extended form, which then counts (9.2.1.20).
pub(crate) fn ambr_to(ambr: Ambr) -> Result<UEAggregateMaximumBitrate, s1ap::Error> {
    let rates = [(EXTENDED_AMBR_DL, ambr.downlink_bps), (EXTENDED_AMBR_UL, ambr.uplink_bps)];
    let high = rates.into_iter().filter(|(_, bps)| *bps > BIT_RATE);
    let extended: Vec<_> =
        high.map(|(id, bps)| extension(id, &ExtendedBitRate(bps.min(limits::BIT_RATE)))).collect::<Result<_, _>>()?;
    let extended = if extended.is_empty() { None } else { Some(ProtocolExtensionContainer(extended)) };
    let [downlink, uplink] = rates.map(|(_, bps)| BitRate(bps.min(BIT_RATE)));
    Ok(UEAggregateMaximumBitrate::new(downlink, uplink, extended))
}

/// IEs in extension containers (9.3.6).
const EXTENDED_AMBR_DL: u16 = 259;
const EXTENDED_AMBR_UL: u16 = 260;

/// Builds an item of an extension container with criticality ignore.
pub(crate) fn extension(
    id: u16,
    value: &impl s1ap::aper::Encode,
) -> Result<ProtocolExtensionField<'static>, s1ap::Error> {
    Ok(ProtocolExtensionField::new(id, Criticality::ignore, encode_open_type(value)?))
}

/// Converts to Masked IMEISV (9.2.3.38).
pub(crate) fn masked_imeisv(bits: u64) -> MaskedIMEISV {
    MaskedIMEISV(Bits::low(bits, 64))
}

/// Converts to NR UE Security Capabilities (9.2.1.127).
pub(crate) fn nr_capability((ciphering, integrity): (u16, u16)) -> NRUESecurityCapabilities<'static> {
    let bits = |bits: u16| BitString::from(bits.to_be_bytes());
    NRUESecurityCapabilities::new(
        NRencryptionAlgorithms(bits(ciphering)),
        NRintegrityProtectionAlgorithms(bits(integrity)),
        None,
    )
}

/// Converts to UE Security Capabilities (9.2.1.40): bits of algorithms 1 to 7 from the left,
/// without the null algorithms.
pub(crate) fn capability_to(capability: UeSecurityCapability) -> UESecurityCapabilities<'static> {
    s1ap::helpers::ue_security_capabilities(capability.eea() << 1, capability.eia() << 1)
}

/// One page of a UE.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'r> {
    /// Paging Priority, 1 to 8.
    pub priority: Option<u8>,
    /// Number of this page, from 1 on, and of all that are intended.
    pub attempts: (u8, u8),
    /// What the last eNB has recommended.
    pub recommended: Option<&'r InformationOnRecommendedCellsAndENBsForPaging<'r>>,
}

/// Returns Assistance Data for Paging with the recommended cells (9.1.6).
fn assistance(page: Page<'_>) -> Option<AssistanceDataForPaging<'static>> {
    // Paging Attempt Count, Intended Number of Paging Attempts: 1 to 16.
    let [attempt, intended] = [page.attempts.0, page.attempts.1].map(|count| u64::from(count).clamp(1, 16));
    let cells = page.recommended?.recommended_cells_for_paging.clone().into_owned();
    let cells = AssistanceDataForRecommendedCells::new(cells, None);
    let (attempt, intended) = (PagingAttemptCount(attempt), IntendedNumberOfPagingAttempts(intended));
    let attempts = PagingAttemptInformation::new(attempt, intended, None, None);
    Some(AssistanceDataForPaging::new(Some(cells), None, Some(attempts), None))
}

/// Encodes PAGING (9.1.6) of a UE in the TAIs of its area that EPS has. `index` is the UE Identity
/// Index Value, IMSI mod 1024 (TS 36.304 7.1).
pub fn paging(mme: (u8, vireo_types::Tmsi), index: u16, reachability: &Reachability, page: Page<'_>) -> Vec<u8> {
    encode(try_paging(mme, index, reachability, page))
}

fn try_paging<'a>(
    (code, tmsi): (u8, vireo_types::Tmsi),
    index: u16,
    reachability: &Reachability,
    page: Page<'_>,
) -> Result<S1APPDU<'a>, s1ap::Error> {
    let s_tmsi = STMSI::new(MMECode([code]), MTMSI(tmsi.0.to_be_bytes()), None);
    let item = |tai: s1ap::TAI| build_s1ap_ie!(IGNORE TAIItem(s1ap::TAIItem::new(tai, None)));
    let areas: Result<Vec<_>, _> = reachability.area.iter().filter_map(|tai| super::tai_to(*tai)).map(item).collect();
    let index = Bits::low(u64::from(index & 0x3ff), 10);
    let info = &reachability.paging;
    let mut ies = vec![
        build_s1ap_ie!(Paging, UEIdentityIndexValue(UEIdentityIndexValue(index)))?,
        build_s1ap_ie!(Paging, UEPagingID(UEPagingID::s_TMSI(s_tmsi)))?,
    ];
    if let Some(drx) = info.drx_in(Dialect::Eps) {
        ies.push(build_s1ap_ie!(Paging, pagingDRX(cycle(drx)))?);
    }
    ies.push(build_s1ap_ie!(Paging, CNDomain(CNDomain::ps))?);
    ies.push(build_s1ap_ie!(Paging, TAIList(TAIList(areas?)))?);
    if let Some(priority) = page.priority.and_then(|level| paging_priority!(level, PagingPriority)) {
        ies.push(build_s1ap_ie!(Paging, PagingPriority(priority))?);
    }
    if let Some(capability) = info.capability_for(Dialect::Eps) {
        ies.push(build_s1ap_ie!(Paging, UERadioCapabilityForPaging(capability.to_vec()))?);
    }
    if let Some(assistance) = assistance(page) {
        ies.push(build_s1ap_ie!(Paging, AssistanceDataForPaging(assistance))?);
    }
    if let Some(drx) = info.extended_drx {
        ies.push(build_s1ap_ie!(Paging, Paging_eDRXInformation(extended(drx)))?);
    }
    let message = Paging::new(ProtocolIEContainer(ies));
    S1AP_PDU::of_message(&message, Paging::CRITICALITY)
}

fn cycle(drx: DrxCycle) -> PagingDRX {
    match drx {
        DrxCycle::Frames32 => PagingDRX::v32,
        DrxCycle::Frames64 => PagingDRX::v64,
        DrxCycle::Frames128 => PagingDRX::v128,
        DrxCycle::Frames256 => PagingDRX::v256,
    }
}

/// Returns Paging eDRX Information (9.2.1.111). Its values have the order of those of NAS.
fn extended(drx: ExtendedDrx) -> PagingEDRXInformation {
    let (cycle, window) = extended_drx_values!(drx, PagingEDRXCycle, PagingTimeWindow);
    PagingEDRXInformation::new(cycle, window, None)
}

/// Returns the GUMMEI of a PLMN.
pub(crate) fn served_gummei(guami: vireo_types::Guami, plmns: &[vireo_types::Plmn]) -> ServedGUMMEIsItem {
    let (group, code) = guami.mme();
    ServedGUMMEIsItem::new(
        ServedPLMNs(plmns.iter().take(32).map(|plmn| plmn_to(*plmn)).collect()),
        ServedGroupIDs(vec![MMEGroupID(group.to_be_bytes())]),
        ServedMMECs(vec![MMECode([code])]),
        None,
    )
}
