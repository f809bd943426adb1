//! Received UE-associated S1AP messages as plain values.

use super::{cause_of, cell_of, from_message, has_fault_to_reject, tai_of, unknown_procedure};
use crate::amf::n2::{Cause, Fault, InitialUeMessage, SessionItems, UeMessage};
use crate::smf::ErabTunnel;
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
    // Mandatory in all messages but Error Indication (9.1.8.3).
    let incomplete = enb_id.is_none() && !matches!(message, UeMessage::Error(_));
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
        S1apPduKind::Successful_UEContextRelease => UeMessage::ReleaseComplete,
        S1apPduKind::Successful_E_RABSetup => UeMessage::SessionSetupResponse {
            set_up: tunnels!(pdu, E_RABSetupListBearerSURes),
            failed: erabs!(pdu, E_RABFailedToSetupListBearerSURes),
        },
        S1apPduKind::Successful_E_RABRelease => {
            UeMessage::SessionReleaseResponse { released: erabs!(pdu, E_RABReleaseListBearerRelComp) }
        }
        S1apPduKind::Initiating_UECapabilityInfoIndication => {
            let capability = required(pdu, pdu.ie::<ie::UERadioCapability>())?;
            let octets = capability.0.as_slice();
            UeMessage::RadioCapability(octets[..octets.len().min(limits::UE_CAPABILITY_OCTETS)].to_vec())
        }
        S1apPduKind::Initiating_NASNonDeliveryIndication => UeMessage::NonDelivery,
        S1apPduKind::Initiating_ErrorIndication => {
            UeMessage::Error(pdu.ie::<ie::Cause>().and_then(Result::ok).map(|cause| cause_of(&cause)))
        }
        S1apPduKind::Initiating_LocationReport
        | S1apPduKind::Initiating_LocationReportingFailureIndication
        | S1apPduKind::Initiating_SecondaryRATDataUsageReport => UeMessage::Report,
        _ => return Err(unknown_procedure(pdu)),
    };
    Ok(message)
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
