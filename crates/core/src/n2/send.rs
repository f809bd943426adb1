//! The octets of what is sent to the RAN about a UE.

use super::{Cause, plmn_to, snssai_to};
use crate::context::{Connection, UeSecurityCapability};
use crate::subscription::Ambr;
use vireo_types::{AmfUeNgapId, Guami, RanUeNgapId, Snssai};
use vireo_wire::ngap::{self, Message, *};

/// The octets of a PDU that was built from values within their constraints.
///
/// The identifiers, lists and octet strings of this module are bounded by their types, so that an encoding error is a
/// fault of this build, not of an input; it gives no octets, and nothing is sent.
pub(crate) fn encode(pdu: Result<NGAPPDU<'_>, ngap::Error>) -> Vec<u8> {
    pdu.and_then(|pdu| pdu.encode()).unwrap_or_default()
}

/// DOWNLINK NAS TRANSPORT (TS 38.413 9.2.5.2).
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

/// UE CONTEXT RELEASE COMMAND (9.2.2.5).
pub fn context_release_command(connection: &Connection, cause: Cause) -> Vec<u8> {
    release_command(connection.amf_id, connection.ran_id, cause)
}

/// UE CONTEXT RELEASE COMMAND for a connection that a RAN node has and the AMF has not: both numbers as the node has used
/// them, so that a node which has another UE under one of them releases nothing (10.6).
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

/// A PDU session of a set-up request.
#[derive(Clone, Debug)]
pub struct SessionSetup {
    /// Identity.
    pub psi: u8,
    /// Its slice.
    pub snssai: Snssai,
    /// A protected NAS message for the UE, if one goes with it.
    pub nas: Option<Vec<u8>>,
    /// PDU Session Resource Setup Request Transfer.
    pub transfer: Vec<u8>,
}

/// What an INITIAL CONTEXT SETUP REQUEST tells the RAN of a UE (9.2.2.1).
#[derive(Debug)]
pub struct ContextSetup<'a> {
    /// The AMF.
    pub guami: Guami,
    /// Allowed NSSAI.
    pub allowed: &'a [Snssai],
    /// UE security capabilities.
    pub capability: UeSecurityCapability,
    /// KgNB.
    pub kgnb: [u8; 32],
    /// UE aggregate maximum bit rate; sent with sessions.
    pub ambr: Ambr,
    /// UE radio capability, if it is known.
    pub radio_capability: &'a [u8],
    /// Sessions to set up.
    pub sessions: Vec<SessionSetup>,
    /// A protected NAS message for the UE.
    pub nas: Option<Vec<u8>>,
}

/// INITIAL CONTEXT SETUP REQUEST (9.2.2.1).
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
    let allowed = setup.allowed.iter().map(|s| AllowedNSSAIItem::new(snssai_to(*s), None)).collect();
    ies.push(build_ngap_ie!(InitialContextSetupRequest, AllowedNSSAI(AllowedNSSAI(allowed)))?);
    ies.push(build_ngap_ie!(InitialContextSetupRequest, UESecurityCapabilities(capability_to(setup.capability)))?);
    ies.push(build_ngap_ie!(InitialContextSetupRequest, SecurityKey(setup.kgnb))?);
    if !setup.radio_capability.is_empty() {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, UERadioCapability(setup.radio_capability.to_vec()))?);
    }
    if let Some(nas) = setup.nas {
        ies.push(build_ngap_ie!(InitialContextSetupRequest, NAS_PDU(nas))?);
    }
    let message = InitialContextSetupRequest::new(ProtocolIEContainer(ies));
    NGAP_PDU::of_message(&message, InitialContextSetupRequest::CRITICALITY)
}

/// PDU SESSION RESOURCE SETUP REQUEST (9.2.1.1) for one session.
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

/// PDU SESSION RESOURCE MODIFY REQUEST (9.2.1.5) for one session.
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

/// PDU SESSION RESOURCE RELEASE COMMAND (9.2.1.3) for one session.
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
    // BitRate is at most 4 Tbit/s (9.3.1.4).
    let rate = |bps: u64| BitRate(bps.min(4_000_000_000_000));
    UEAggregateMaximumBitRate::new(rate(ambr.downlink_bps), rate(ambr.uplink_bps), None)
}

/// UE Security Capabilities (9.3.1.86): the bits of algorithms 1 to 7 from the left, without the null ones.
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
