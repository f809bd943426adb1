//! NGAP and S1AP messages of RAN nodes about handovers between 4G and 5G.

use super::super::phone::{ENB_UE, PLMN, plmn};
use vireo_types::{AmfUeNgapId, RanUeNgapId};

/// RAN UE NGAP ID at the target.
pub(super) const GNB_UE: u32 = 0x77;
/// Tunnel end of a session at its RAN node: the last octet is its identity there.
const TEID: [u8; 3] = [1, 2, 3];
const ADDRESS: [u8; 4] = [127, 0, 0, 4];
/// TEID of its RAN node for forwarded packets.
pub(super) const FORWARDED: [u8; 4] = [9, 9, 9, 9];

fn teid(id: u8) -> [u8; 4] {
    let [a, b, c] = TEID;
    [a, b, c, id]
}

/// Messages of eNBs.
mod s1 {
    use super::*;
    use vireo_wire::s1ap::helpers::{EnbKind, global_enb_id};
    use vireo_wire::s1ap::{self, *};

    fn encoded(pdu: Result<S1APPDU<'_>, s1ap::Error>) -> Vec<u8> {
        pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
    }

    fn cell() -> EUTRANCGI {
        EUTRANCGI::new(plmn(), CellIdentity(Bits::low(0x123_4501, 28)), None)
    }

    /// Returns S1 SETUP REQUEST of the eNB with this macro eNB ID.
    pub(in super::super) fn s1_setup(enb: u32) -> Vec<u8> {
        let area = SupportedTAsItem::new(TAC([0, 1]), BPLMNs(vec![plmn()]), None);
        encoded(build_s1ap!(
            InitiatingMessage,
            S1Setup,
            S1SetupRequest,
            Global_ENB_ID(global_enb_id(plmn(), EnbKind::Macro, enb).expect("20 bits")),
            SupportedTAs(SupportedTAs(vec![area])),
            DefaultPagingDRX(PagingDRX::v128),
        ))
    }

    /// Returns HANDOVER REQUIRED towards the gNB with this ID of 24 bits.
    pub(in super::super) fn required_by_enb(mme: u32, enb: u32, gnb: u32) -> Vec<u8> {
        let id = GlobalGNBID::new(plmn(), GNBIdentity::gNB_ID(GNBID(Bits::low(gnb.into(), 24))), None);
        let tai = FiveGSTAI::new(plmn(), FiveGSTAC([0, 0, 1]), None);
        let target = TargetNgRanNodeID::new(GlobalRANNODEID::gNB(GNB::new(id, None)), tai, None);
        encoded(build_s1ap!(
            InitiatingMessage,
            HandoverPreparation,
            HandoverRequired,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(enb),
            HandoverType(HandoverType::eps_to_5gs),
            Cause(Cause::radioNetwork(CauseRadioNetwork::time_critical_handover)),
            TargetID(TargetID::targetgNgRanNode_ID(target)),
            Source_ToTarget_TransparentContainer(SourceToTargetTransparentContainer(vec![1, 2, 3].into())),
        ))
    }

    /// Returns HANDOVER REQUEST ACKNOWLEDGE that admits these E-RABs.
    pub(in super::super) fn acknowledged_by_enb(mme: u32, erabs: &[u8]) -> Vec<u8> {
        acknowledged(mme, erabs, None)
    }

    /// As [`acknowledged_by_enb`], with this TEID for forwarded packets.
    pub(in super::super) fn forwarded_by_enb(mme: u32, erabs: &[u8]) -> Vec<u8> {
        acknowledged(mme, erabs, Some(FORWARDED))
    }

    fn acknowledged(mme: u32, erabs: &[u8], forwarded: Option<[u8; 4]>) -> Vec<u8> {
        let item = |ebi: &u8| {
            let address = || TransportLayerAddress(ADDRESS.into());
            let (id, teid) = (ERABID((*ebi).into()), GTPTEID(teid(*ebi)));
            let (to, end) = (forwarded.map(|_| address()), forwarded.map(GTPTEID));
            let item = ERABAdmittedItem::new(id, address(), teid, to, end, None, None, None);
            build_s1ap_ie!(IGNORE E_RABAdmittedItem(item)).expect("an item")
        };
        encoded(build_s1ap!(
            SuccessfulOutcome,
            HandoverResourceAllocation,
            HandoverRequestAcknowledge,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(ENB_UE),
            E_RABAdmittedList(ERABAdmittedList(erabs.iter().map(item).collect())),
            Target_ToSource_TransparentContainer(TargetToSourceTransparentContainer(vec![4, 5].into())),
        ))
    }

    /// Returns HANDOVER FAILURE.
    pub(in super::super) fn refused_by_enb(mme: u32) -> Vec<u8> {
        encoded(build_s1ap!(
            UnsuccessfulOutcome,
            HandoverResourceAllocation,
            HandoverFailure,
            MME_UE_S1AP_ID(mme),
            Cause(Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell)),
        ))
    }

    /// Returns HANDOVER NOTIFY.
    pub(in super::super) fn notified_by_enb(mme: u32) -> Vec<u8> {
        encoded(build_s1ap!(
            InitiatingMessage,
            HandoverNotification,
            HandoverNotify,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(ENB_UE),
            EUTRAN_CGI(cell()),
            TAI(s1ap::helpers::tai(plmn(), [0, 1])),
        ))
    }

    /// Returns PATH SWITCH REQUEST of another connection for bearer 5, with the tunnel end
    /// [`FORWARDED`].
    pub(in super::super) fn switched_by_enb(mme: u32) -> Vec<u8> {
        let address = TransportLayerAddress(ADDRESS.into());
        let item = ERABToBeSwitchedDLItem::new(ERABID(5), address, GTPTEID(FORWARDED), None);
        let item = build_s1ap_ie!(REJECT E_RABToBeSwitchedDLItem(item)).expect("an item");
        let algorithms = |octet: u8| BitString::from([octet, 0]);
        let capability = UESecurityCapabilities::new(
            EncryptionAlgorithms(algorithms(0xc0)),
            IntegrityProtectionAlgorithms(algorithms(0xc0)),
            None,
        );
        encoded(build_s1ap!(
            InitiatingMessage,
            PathSwitchRequest,
            PathSwitchRequest,
            eNB_UE_S1AP_ID(ENB_UE + 1),
            E_RABToBeSwitchedDLList(ERABToBeSwitchedDLList(vec![item])),
            SourceMME_UE_S1AP_ID(mme),
            EUTRAN_CGI(cell()),
            TAI(s1ap::helpers::tai(plmn(), [0, 1])),
            UESecurityCapabilities(capability),
        ))
    }

    /// Returns HANDOVER CANCEL.
    pub(in super::super) fn cancelled_by_enb(mme: u32, enb: u32) -> Vec<u8> {
        encoded(build_s1ap!(
            InitiatingMessage,
            HandoverCancel,
            HandoverCancel,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(enb),
            Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
        ))
    }
}

/// Messages of gNBs.
mod ng {
    use super::*;
    use vireo_wire::ngap::{self, *};

    fn encoded(pdu: Result<NGAPPDU<'_>, ngap::Error>) -> Vec<u8> {
        pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
    }

    /// Returns HANDOVER REQUIRED towards the eNB with this macro eNB ID, with sessions 3 and 4.
    pub(in super::super) fn required_by_gnb(amf: AmfUeNgapId, ran: RanUeNgapId, enb: u32) -> Vec<u8> {
        let id = GlobalNgENBID::new(PLMNIdentity(PLMN), NgENBID::macroNgENB_ID(Bits::low(enb.into(), 20)), None);
        let tai = EPSTAI::new(PLMNIdentity(PLMN), EPSTAC([0, 1]), None);
        let transfer = encode_open_type(&HandoverRequiredTransfer::new(None, None)).expect("it encodes");
        let item = |psi: u8| PDUSessionResourceItemHORqd::new(PDUSessionID(psi), transfer.clone(), None);
        encoded(build_ngap!(
            InitiatingMessage,
            HandoverPreparation,
            HandoverRequired,
            AMF_UE_NGAP_ID(amf.get()),
            RAN_UE_NGAP_ID(ran.0),
            HandoverType(HandoverType::fivegs_to_eps),
            Cause(Cause::radioNetwork(CauseRadioNetwork::time_critical_handover)),
            TargetID(TargetID::targeteNB_ID(TargeteNBID::new(id, tai, None))),
            PDUSessionResourceListHORqd(PDUSessionResourceListHORqd([3, 4].map(item).into())),
            SourceToTarget_TransparentContainer(SourceToTargetTransparentContainer(vec![1, 2, 3].into())),
        ))
    }

    /// Returns HANDOVER REQUEST ACKNOWLEDGE that admits these sessions.
    pub(in super::super) fn acknowledged_by_gnb(amf: u64, sessions: &[u8]) -> Vec<u8> {
        acknowledged(amf, sessions, None)
    }

    /// As [`acknowledged_by_gnb`], with a TEID for forwarded packets.
    pub(in super::super) fn forwarded_by_gnb(amf: u64, sessions: &[u8]) -> Vec<u8> {
        acknowledged(amf, sessions, Some(FORWARDED))
    }

    fn acknowledged(amf: u64, sessions: &[u8], forwarded: Option<[u8; 4]>) -> Vec<u8> {
        let end = |teid| {
            let tunnel = GTPTunnel::new(TransportLayerAddress(ADDRESS.into()), GTPTEID(teid), None);
            UPTransportLayerInformation::gTPTunnel(tunnel)
        };
        let item = |psi: &u8| {
            let flow = QosFlowItemWithDataForwarding::new(QosFlowIdentifier(1), None, None);
            let transfer = HandoverRequestAcknowledgeTransfer::new(
                end(teid(*psi)),
                forwarded.map(end),
                None,
                QosFlowListWithDataForwarding(vec![flow]),
                None,
                None,
                None,
            );
            let transfer = encode_open_type(&transfer).expect("it encodes");
            PDUSessionResourceAdmittedItem::new(PDUSessionID(*psi), transfer, None)
        };
        encoded(build_ngap!(
            SuccessfulOutcome,
            HandoverResourceAllocation,
            HandoverRequestAcknowledge,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(GNB_UE),
            PDUSessionResourceAdmittedList(PDUSessionResourceAdmittedList(sessions.iter().map(item).collect())),
            TargetToSource_TransparentContainer(TargetToSourceTransparentContainer(vec![4, 5].into())),
        ))
    }

    /// Returns HANDOVER FAILURE.
    pub(in super::super) fn refused_by_gnb(amf: u64) -> Vec<u8> {
        encoded(build_ngap!(
            UnsuccessfulOutcome,
            HandoverResourceAllocation,
            HandoverFailure,
            AMF_UE_NGAP_ID(amf),
            Cause(Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell)),
        ))
    }

    /// Returns HANDOVER NOTIFY.
    pub(in super::super) fn notified_by_gnb(amf: u64) -> Vec<u8> {
        let cell = NRCGI::new(PLMNIdentity(PLMN), NRCellIdentity(Bits::low(0x10, 36)), None);
        let tai = ngap::helpers::tai(PLMNIdentity(PLMN), [0, 0, 1]);
        let location = UserLocationInformationNR::new(cell, tai, None, None);
        encoded(build_ngap!(
            InitiatingMessage,
            HandoverNotification,
            HandoverNotify,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(GNB_UE),
            UserLocationInformation(UserLocationInformation::userLocationInformationNR(location)),
        ))
    }

    /// Returns HANDOVER CANCEL.
    pub(in super::super) fn cancelled_by_gnb(amf: AmfUeNgapId, ran: RanUeNgapId) -> Vec<u8> {
        encoded(build_ngap!(
            InitiatingMessage,
            HandoverCancel,
            HandoverCancel,
            AMF_UE_NGAP_ID(amf.get()),
            RAN_UE_NGAP_ID(ran.0),
            Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
        ))
    }

    /// Returns UE CONTEXT RELEASE COMPLETE.
    pub(in super::super) fn released_by_gnb(amf: AmfUeNgapId, ran: RanUeNgapId) -> Vec<u8> {
        encoded(build_ngap!(
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            AMF_UE_NGAP_ID(amf.get()),
            RAN_UE_NGAP_ID(ran.0),
        ))
    }
}

pub(super) use ng::*;
pub(super) use s1::*;
