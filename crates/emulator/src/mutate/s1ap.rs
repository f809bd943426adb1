//! Valid S1AP PDUs of eNBs, as input of mutations or for the wrong time.

use crate::dialect::UeIds;
use crate::enb::Enb;
use vireo_wire::s1ap::{build_s1ap, build_s1ap_ie, *};

/// Returns a PDU of each kind that emulated eNBs do not send by themselves.
pub(super) fn rare(enb: &Enb) -> Vec<Vec<u8>> {
    let (mme, id) = (1u32, 1u32);
    let bearer = ERABID(5);
    let item = ERABToBeModifiedItemBearerModInd::new(bearer, address(), GTPTEID([0, 0, 0, 9]), None);
    let released = || Ok(vec![build_s1ap_ie!(IGNORE E_RABItem(ERABItem::new(bearer, cause(), None)))?]);
    let modified = || Ok(vec![build_s1ap_ie!(REJECT E_RABToBeModifiedItemBearerModInd(item))?]);
    let built = [
        build_s1ap!(
            UnsuccessfulOutcome,
            InitialContextSetup,
            InitialContextSetupFailure,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id),
            Cause(cause()),
        ),
        build_s1ap!(
            UnsuccessfulOutcome,
            UEContextModification,
            UEContextModificationFailure,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id),
            Cause(cause()),
        ),
        build_s1ap!(
            SuccessfulOutcome,
            UEContextModification,
            UEContextModificationResponse,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id),
        ),
        build_s1ap!(
            InitiatingMessage,
            UECapabilityInfoIndication,
            UECapabilityInfoIndication,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id),
            UERadioCapability(vec![0x04, 0x80, 0x10, 0x20]),
        ),
        build_s1ap!(
            InitiatingMessage,
            NASNonDeliveryIndication,
            NASNonDeliveryIndication,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id),
            NAS_PDU(vec![0x07, 0x61]),
            Cause(cause()),
        ),
        build_s1ap!(
            UnsuccessfulOutcome,
            HandoverResourceAllocation,
            HandoverFailure,
            MME_UE_S1AP_ID(mme),
            Cause(cause())
        ),
        build_s1ap!(
            InitiatingMessage,
            ErrorIndication,
            ErrorIndication,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id),
            Cause(cause()),
        ),
        released().and_then(|list| {
            build_s1ap!(
                InitiatingMessage,
                E_RABReleaseIndication,
                ERABReleaseIndication,
                MME_UE_S1AP_ID(mme),
                eNB_UE_S1AP_ID(id),
                E_RABReleasedList(ERABList(list)),
            )
        }),
        modified().and_then(|list| {
            build_s1ap!(
                InitiatingMessage,
                E_RABModificationIndication,
                ERABModificationIndication,
                MME_UE_S1AP_ID(mme),
                eNB_UE_S1AP_ID(id),
                E_RABToBeModifiedListBearerModInd(ERABToBeModifiedListBearerModInd(list)),
            )
        }),
    ];
    let mut pdus: Vec<Vec<u8>> = built.into_iter().filter_map(encoded).collect();
    pdus.extend(uplink_nas(enb, UeIds { core: 1, ran: 1 }, &[0x07, 0x46]));
    pdus
}

fn encoded(pdu: Result<S1AP_PDU, Error>) -> Option<Vec<u8>> {
    pdu.and_then(|pdu| pdu.encode()).ok()
}

fn cause() -> Cause {
    Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost)
}

fn address() -> TransportLayerAddress<'static> {
    TransportLayerAddress([10, 0, 0, 9].into())
}

/// Returns an UPLINK NAS TRANSPORT with these identifiers.
pub(super) fn uplink_nas(enb: &Enb, ids: UeIds, nas: &[u8]) -> Option<Vec<u8>> {
    encoded(build_s1ap!(
        InitiatingMessage,
        uplinkNASTransport,
        UplinkNASTransport,
        MME_UE_S1AP_ID(ids.core as u32),
        eNB_UE_S1AP_ID(ids.ran & 0x00ff_ffff),
        NAS_PDU(NASPDU(nas.into())),
        EUTRAN_CGI(enb.cell().ok()?),
        TAI(enb.tai()),
    ))
}

/// Returns a non-UE-associated message that only an answer or an MME would be, or a RESET of one
/// connection.
pub(super) fn node_message(ids: UeIds, kind: usize) -> Option<Vec<u8>> {
    encoded(match kind {
        0 => {
            let (mme, enb) = (MMEUES1APID(ids.core as u32), ENBUES1APID(ids.ran & 0x00ff_ffff));
            let item = UEAssociatedLogicalS1ConnectionItem::new(Some(mme), Some(enb), None);
            let item = build_s1ap_ie!(REJECT UE_associatedLogicalS1_ConnectionItem(item)).ok()?;
            let list = ResetType::partOfS1_Interface(UEAssociatedLogicalS1ConnectionListRes(vec![item]));
            build_s1ap!(InitiatingMessage, Reset, Reset, Cause(cause()), ResetType(list))
        }
        1 => build_s1ap!(SuccessfulOutcome, Reset, ResetAcknowledge,),
        2 => build_s1ap!(SuccessfulOutcome, MMEConfigurationUpdate, MMEConfigurationUpdateAcknowledge,),
        _ => build_s1ap!(InitiatingMessage, ErrorIndication, ErrorIndication, Cause(cause())),
    })
}
