//! ESM messages of the SMF part in EPS (TS 24.301 clause 8.3).
//!
//! The EPS bearer identity of the default bearer takes the place of the PDU session identity. The
//! causes are those of 5GSM: TS 24.301 9.9.4.4 has most of them with the same values.

use super::apn_ambr::{apn_ambr, extended_apn_ambr};
use super::context::{N4State, RanState, SmContext, Stage};
use super::interface::Output;
use super::session_request::SessionRequest;
use super::{control_plane, messages, n1, options, qos_change, release};
use crate::Env;
use crate::subscription::Ambr;
use vireo_types::{Dialect, Duration, Instant, PduSessionType};
use vireo_wire::nas::{GsmCause, NasExtendedProtocolConfigurationOptions, NasGprsTimer3};
use vireo_wire::nas_eps::*;

/// Timer of ACTIVATE DEFAULT EPS BEARER CONTEXT REQUEST (TS 24.301 table 10.3.2).
const T3485: Duration = Duration::from_secs(8);
/// Timer of MODIFY EPS BEARER CONTEXT REQUEST (TS 24.301 table 10.3.2).
pub(super) const T3486: Duration = Duration::from_secs(8);
/// Timer of DEACTIVATE EPS BEARER CONTEXT REQUEST (TS 24.301 table 10.3.2).
pub(super) const T3495: Duration = Duration::from_secs(8);
/// ESM cause #52, single address bearers only allowed (TS 24.301 6.5.1.3). 5GSM does not have it.
pub(super) const SINGLE_ADDRESS_BEARERS: u8 = EsmCause::SingleAddressBearersOnlyAllowed as u8;
/// Longest value of the protocol configuration options IE (TS 24.008 10.5.6.3).
const PCO_OCTETS: usize = 251;
/// Reserved PTI value (TS 24.007 11.2.3.1a).
const RESERVED_PTI: u8 = 255;

/// Received ESM message of the UE, with its header.
struct ReceivedEsm {
    ebi: u8,
    pti: u8,
    message: NasEsmMessage,
}

/// Checks PTI and EPS bearer identity in the header of an ESM message (7.3.1, 7.3.2). A UE starts a
/// procedure under a PTI of its own, and with no bearer in the header.
///
/// # Errors
///
/// Returns the cause of the reject, or `None` for a message that is ignored.
pub(crate) fn check_header(header: &NasEsmHeader, message: &NasEsmMessage) -> Result<(), Option<EsmCause>> {
    let (ebi, pti) = (header.eps_bearer_identity, header.procedure_transaction_identity);
    let is_assigned = pti != release::NO_PTI && pti != RESERVED_PTI;
    match message {
        NasEsmMessage::PdnConnectivityRequest(_)
        | NasEsmMessage::PdnDisconnectRequest(_)
        | NasEsmMessage::BearerResourceAllocationRequest(_)
        | NasEsmMessage::BearerResourceModificationRequest(_) => match (is_assigned, ebi) {
            (false, _) => Err(Some(EsmCause::InvalidPtiValue)),
            (true, 0) => Ok(()),
            (true, _) => Err(Some(EsmCause::InvalidEpsBearerIdentity)),
        },
        NasEsmMessage::EsmInformationResponse(_) if !is_assigned || ebi != 0 => Err(None),
        _ if pti == RESERVED_PTI => Err(None),
        _ => Ok(()),
    }
}

/// Decodes an ESM message. The error is the answer that TS 24.301 clause 7 specifies, if any.
fn decode(octets: &[u8]) -> Result<ReceivedEsm, Option<Output>> {
    if octets.first().is_none_or(|first| first & 0x0f != EPS_ESM_PROTOCOL_DISCRIMINATOR) {
        return Err(None);
    }
    let received = NasEpsMessage::decode(octets);
    if let Some(answer) = NasEpsMessage::answer_to(octets, &received, Direction::Uplink) {
        return Err(encode(&answer));
    }
    match received {
        Ok(NasEpsMessage::Esm(header, message)) => {
            let (ebi, pti) = (header.eps_bearer_identity, header.procedure_transaction_identity);
            if let (NasEsmMessage::PdnConnectivityRequest(_), Err(cause)) = (&message, check_header(&header, &message))
            {
                let reject = |cause| NasPdnConnectivityReject::new(NasEsmCause::from_cause(cause));
                return Err(cause.and_then(|cause| output(reject(cause), 0, pti)));
            }
            Ok(ReceivedEsm { ebi, pti, message })
        }
        _ => Err(None),
    }
}

fn encode(message: &NasEpsMessage) -> Option<Output> {
    message.encode().ok().map(Output::N1)
}

fn output(message: impl Into<NasEsmMessage>, ebi: u8, pti: u8) -> Option<Output> {
    encode(&NasEpsMessage::new_esm(message, ebi, pti))
}

/// Returns the ESM cause for a 5GSM cause. The values that only 5GSM has name slices and SSC modes.
pub(super) fn cause(cause: GsmCause) -> EsmCause {
    match cause {
        GsmCause::MissingOrUnknownDnnInASlice | GsmCause::MissingOrUnknownDnn => EsmCause::MissingOrUnknownApn,
        other => EsmCause::from_u8(other.as_u8()).unwrap_or(EsmCause::RequestRejectedUnspecified),
    }
}

/// Builds an ESM STATUS.
pub(super) fn status(ebi: u8, pti: u8, reason: GsmCause) -> Option<Output> {
    output(NasEsmStatus::new(NasEsmCause::from_cause(cause(reason))), ebi, pti)
}

/// Builds a PDN CONNECTIVITY REJECT, whose header has no bearer (8.3.19).
pub(super) fn connectivity_reject(pti: u8, reason: GsmCause) -> Option<Output> {
    output(NasPdnConnectivityReject::new(NasEsmCause::from_cause(cause(reason))), 0, pti)
}

/// Builds a PDN CONNECTIVITY REJECT with cause #26 and a back-off time.
pub(super) fn congestion_reject(pti: u8, timer: NasGprsTimer3) -> Option<Output> {
    let reject = NasPdnConnectivityReject::new(NasEsmCause::from_cause(EsmCause::InsufficientResources));
    output(reject.with_back_off_timer_value(timer), 0, pti)
}

/// Builds a PDN DISCONNECT REJECT.
pub(super) fn disconnect_reject(pti: u8, reason: GsmCause) -> Option<Output> {
    output(NasPdnDisconnectReject::new(NasEsmCause::from_cause(cause(reason))), 0, pti)
}

/// Builds a DEACTIVATE EPS BEARER CONTEXT REQUEST.
pub(super) fn deactivate_request(ebi: u8, pti: u8, cause: u8) -> Option<Output> {
    output(NasDeactivateEpsBearerContextRequest::new(NasEsmCause::new(cause)), ebi, pti)
}

/// Reads a PDN CONNECTIVITY REQUEST, for the data network of emergencies or another one. The error
/// is the answer to another message.
pub(super) fn connectivity_request(octets: &[u8], is_emergency: bool) -> Result<SessionRequest, Option<Output>> {
    use vireo_wire::nas_eps::PdnType as Type;
    let ReceivedEsm { ebi, pti, message } = decode(octets)?;
    let NasEsmMessage::PdnConnectivityRequest(request) = message else {
        return Err(status(ebi, pti, GsmCause::MessageTypeNotCompatibleWithTheProtocolState));
    };
    let kind = match (request.request_type.request_type(), request.pdn_type.pdn_type()) {
        // There is no other access to take a connection over from (6.5.1.6 b, e).
        (Some(RequestTypeValue::Handover | RequestTypeValue::EmergencyHandover), _) => {
            return Err(connectivity_reject(pti, GsmCause::PduSessionDoesNotExist));
        }
        (Some(RequestTypeValue::Emergency), _) if !is_emergency => {
            return Err(connectivity_reject(pti, GsmCause::RequestRejectedUnspecified));
        }
        (_, Some(Type::Ipv4)) => PduSessionType::Ipv4,
        (_, Some(Type::Ipv6)) => PduSessionType::Ipv6,
        (_, Some(Type::Ipv4v6)) => PduSessionType::Ipv4v6,
        _ => return Err(connectivity_reject(pti, GsmCause::UnknownPduSessionType)),
    };
    Ok(SessionRequest {
        pti,
        kind: Some(kind),
        options: requested_options(&request),
        is_extended: request.extended_protocol_configuration_options.is_some(),
        always_on: false,
        integrity_rate: u16::MAX,
    })
}

/// Returns the protocol configuration options of the UE, extended or not, which have one coding.
fn requested_options(request: &NasPdnConnectivityRequest) -> Option<NasExtendedProtocolConfigurationOptions> {
    let extended = request.extended_protocol_configuration_options.as_ref().map(|options| options.value.to_vec());
    let usual = || request.protocol_configuration_options.as_ref().map(|options| options.value.to_vec());
    extended.or_else(usual).map(NasExtendedProtocolConfigurationOptions::new)
}

/// Returns the PDU session identity that the UE assigns to the PDN connection, for its move to 5G
/// (TS 24.501 6.1.4.1).
pub(crate) fn session_identity(request: &NasPdnConnectivityRequest) -> Option<u8> {
    options::session_identity(&requested_options(request)?)
}

/// Builds an ACTIVATE DEFAULT EPS BEARER CONTEXT REQUEST; `None` if the address does not match the
/// PDN type. The options have a mark if they are those of the extended IE.
pub(super) fn activate_request(sm: &SmContext, pti: u8, cause: Option<u8>, mut options: Vec<u8>) -> Option<Output> {
    let address = match (sm.kind, sm.address.ipv4, sm.address.ipv6_prefix) {
        (PduSessionType::Ipv4, Some(v4), _) => NasPdnAddress::from_ipv4(v4.octets()),
        (PduSessionType::Ipv6, _, Some(v6)) => NasPdnAddress::from_ipv6_iid(n1::interface_identifier(v6)),
        (PduSessionType::Ipv4v6, Some(v4), Some(v6)) => {
            NasPdnAddress::from_ipv4v6(n1::interface_identifier(v6), v4.octets())
        }
        _ => return None,
    };
    let mut request = NasActivateDefaultEpsBearerContextRequest::new(
        NasEpsQualityOfService::new(vec![sm.terms.five_qi]),
        NasAccessPointName::from_string(sm.terms.dnn.as_str()).ok()?,
        address,
    )
    .with_apn_ambr(apn_ambr(sm.terms.ambr.downlink_bps, sm.terms.ambr.uplink_bps)?);
    if let Some(extended) = extended_apn_ambr(sm.terms.ambr.downlink_bps, sm.terms.ambr.uplink_bps) {
        request = request.with_extended_apn_ambr(NasExtendedApnAggregateMaximumBitRate::from_ambr(extended));
    }
    if let Some(cause) = cause {
        request = request.with_esm_cause(NasEsmCause::new(cause));
    }
    if sm.is_over_nas() {
        request = request.with_control_plane_only_indication(NasControlPlaneOnlyIndication::control_plane_only());
    }
    if options::remove_mark(&mut options) {
        request = request.with_extended_protocol_configuration_options(options::ie(options));
    } else if (1..=PCO_OCTETS).contains(&options.len()) {
        request = request.with_protocol_configuration_options(NasProtocolConfigurationOptions::new(options));
    }
    output(request, sm.id(), pti)
}

/// Builds a MODIFY EPS BEARER CONTEXT REQUEST with QoS and APN-AMBR of the bearer (8.3.18).
pub(super) fn modify_request(sm: &SmContext) -> Option<Output> {
    let Ambr { uplink_bps, downlink_bps } = sm.terms.ambr;
    let mut request = NasModifyEpsBearerContextRequest::new()
        .with_new_eps_qos(NasEpsQualityOfService::new(vec![sm.terms.five_qi]))
        .with_apn_ambr(apn_ambr(downlink_bps, uplink_bps)?);
    if let Some(extended) = extended_apn_ambr(downlink_bps, uplink_bps) {
        request = request.with_extended_apn_ambr(NasExtendedApnAggregateMaximumBitRate::from_ambr(extended));
    }
    output(request, sm.id(), release::NO_PTI)
}

/// Handles an ESM message of the UE for an existing bearer.
pub(super) fn on_message(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let ReceivedEsm { ebi, pti, message } = match decode(octets) {
        Ok(received) => received,
        Err(answer) => return out.extend(answer),
    };
    match message {
        NasEsmMessage::ActivateDefaultEpsBearerContextAccept(_) => on_bearer_accept(sm, env, out),
        NasEsmMessage::ActivateDefaultEpsBearerContextReject(_) => ended_by_ue(sm, out),
        NasEsmMessage::DeactivateEpsBearerContextAccept(_) => match sm.stage {
            Stage::Releasing { .. } => release::end(sm, out),
            _ => out.extend(status(ebi, pti, GsmCause::MessageTypeNotCompatibleWithTheProtocolState)),
        },
        NasEsmMessage::ModifyEpsBearerContextAccept(_) if qos_change::on_complete(sm) => {}
        NasEsmMessage::ModifyEpsBearerContextReject(reject) if qos_change::is_sent(sm) => {
            qos_change::on_reject(sm, reject.esm_cause.value, out);
            // The UE does not have the bearer (6.4.3.4).
            if reject.esm_cause.cause() == Some(EsmCause::InvalidEpsBearerIdentity) {
                ended_by_ue(sm, out);
            }
        }
        NasEsmMessage::ModifyEpsBearerContextAccept(_) | NasEsmMessage::ModifyEpsBearerContextReject(_) => {
            out.extend(status(ebi, pti, GsmCause::MessageTypeNotCompatibleWithTheProtocolState));
        }
        NasEsmMessage::PdnDisconnectRequest(_) => release::on_request(sm, pti, env, out),
        NasEsmMessage::BearerResourceAllocationRequest(request) => {
            // 6.5.3.6 b.
            let cause = match is_emergency(sm, env) {
                true => EsmCause::RequestRejectedUnspecified,
                false => resource_cause(&request.traffic_flow_aggregate),
            };
            out.extend(output(NasBearerResourceAllocationReject::new(NasEsmCause::from_cause(cause)), 0, pti));
        }
        // 6.4.3.6 c: the network's own modification continues.
        NasEsmMessage::BearerResourceModificationRequest(_) if qos_change::is_sent(sm) => {}
        NasEsmMessage::BearerResourceModificationRequest(request) => {
            // 6.5.4.6 b.
            let cause = match is_emergency(sm, env) {
                true => EsmCause::RequestRejectedByServingGwOrPdnGw,
                false => resource_cause(&request.traffic_flow_aggregate),
            };
            out.extend(output(NasBearerResourceModificationReject::new(NasEsmCause::from_cause(cause)), 0, pti));
        }
        NasEsmMessage::EsmDataTransport(data) if sm.is_over_nas() => {
            out.extend(control_plane::uplink(sm, &data.user_data_container.value));
        }
        NasEsmMessage::EsmStatus(received) => on_status(sm, received.esm_cause.value, out),
        _ => out.extend(status(ebi, pti, GsmCause::MessageTypeNonExistentOrNotImplemented)),
    }
}

/// Returns true for the PDN connection of emergency calls.
fn is_emergency(sm: &SmContext, env: &Env<'_>) -> bool {
    env.config.emergency(Dialect::Eps) == Some(&sm.terms.dnn)
}

/// Returns the cause for which a request for bearer resources is rejected (6.5.3.4, 6.5.4.4): only
/// the subscribed QoS is granted.
fn resource_cause(flows: &NasTrafficFlowAggregateDescription) -> EsmCause {
    flows.parse_tft().map_or_else(TftError::esm_cause, |_| EsmCause::ServiceOptionNotSupported)
}

/// Returns stage and deadline of a session whose activation request is sent.
pub(super) fn activating(pti: u8, request: Vec<u8>, env: &Env<'_>) -> (Stage, Option<Instant>) {
    (Stage::Activating { pti, request, repeats: 0 }, Some(env.now + T3485))
}

/// Leaves the retransmission of the activation request to the attach that contains it (T3450).
pub fn offered_by_attach(sm: &mut SmContext, env: &Env<'_>) {
    if let Stage::Activating { pti, .. } = sm.stage {
        sm.stage = Stage::Accepted { pti };
        sm.deadline = (sm.ran != RanState::Up).then(|| env.now + env.config.timers.ran_response);
    }
}

/// Returns true if the request with this PTI has created the session, and the UE has not answered.
pub(crate) fn is_requested_by(sm: &SmContext, pti: u8) -> bool {
    matches!(sm.stage, Stage::Requested { pti: own, .. } | Stage::Activating { pti: own, .. } if own == pti)
}

/// Returns the activation request that the UE has not answered.
pub(crate) fn unanswered_request(sm: &SmContext) -> Option<Vec<u8>> {
    match &sm.stage {
        Stage::Activating { request, .. } => Some(request.clone()),
        _ => None,
    }
}

/// Handles that the UE has the bearer. It is usable once the eNB has set it up.
fn on_bearer_accept(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Stage::Activating { pti, .. } = sm.stage else { return };
    if sm.ran == RanState::Up && sm.n4 == N4State::Synced && sm.downlink.is_some() {
        (sm.stage, sm.deadline) = (Stage::Established, None);
        out.push(Output::Established);
        return;
    }
    sm.stage = Stage::Accepted { pti };
    sm.deadline = (sm.ran != RanState::Up).then(|| env.now + env.config.timers.ran_response);
}

/// Handles the expiry of T3485 (6.4.1.6 a): sends the activation request again, and releases the
/// bearer after the last retransmission.
pub(super) fn on_t3485_expiry(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Stage::Activating { request, repeats, .. } = &mut sm.stage else { return };
    if *repeats >= env.config.timers.retransmissions {
        return ended_by_ue(sm, out);
    }
    *repeats += 1;
    out.push(Output::N1(request.clone()));
    sm.deadline = Some(env.now + T3485);
}

/// Handles ESM STATUS (6.7): a bearer that the UE does not have is released, and a procedure that
/// the UE does not have ends.
fn on_status(sm: &mut SmContext, cause: u8, out: &mut Vec<Output>) {
    const NOT_IMPLEMENTED: u8 = 97;
    const INVALID_PTI: u8 = EsmCause::InvalidPtiValue as u8;
    const INVALID_BEARER: u8 = EsmCause::InvalidEpsBearerIdentity as u8;
    match (&sm.stage, cause) {
        (Stage::Releasing { .. }, _) => release::end(sm, out),
        (Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established, INVALID_BEARER)
        | (Stage::Activating { .. }, INVALID_PTI | NOT_IMPLEMENTED) => ended_by_ue(sm, out),
        (Stage::Established, NOT_IMPLEMENTED) => {
            qos_change::on_reject(sm, cause, out);
        }
        _ => {}
    }
}

/// Releases a bearer that the UE does not have.
fn ended_by_ue(sm: &mut SmContext, out: &mut Vec<Output>) {
    if matches!(sm.ran, RanState::SettingUp | RanState::Up) {
        out.extend(messages::ran_release_command(sm));
    }
    release::end(sm, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_of_slices_become_those_of_apn() {
        assert_eq!(cause(GsmCause::MissingOrUnknownDnnInASlice), EsmCause::MissingOrUnknownApn);
        assert_eq!(cause(GsmCause::InsufficientResources), EsmCause::InsufficientResources);
        assert_eq!(cause(GsmCause::PduSessionTypeIpv4OnlyAllowed), EsmCause::PdnTypeIpv4OnlyAllowed);
        assert_eq!(cause(GsmCause::NotSupportedSscMode), EsmCause::RequestRejectedUnspecified);
    }
}
