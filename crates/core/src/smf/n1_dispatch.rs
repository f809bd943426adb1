//! 5GSM messages of the UE for an existing session.
//!
//! Dispatch of the messages, and the answers of TS 24.501 clauses 6.5 and 7 to unexpected ones.

use super::context::{RanState, SmContext, Stage};
use super::interface::Output;
use super::n1::{self, Received5gsm};
use super::{n2, options, qos_change, release};
use crate::Env;
use vireo_wire::nas::{GsmCause, Nas5gsmMessage as Message, NasPduSessionModificationRequest};

pub(super) fn on_message(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let Received5gsm { psi, pti, message } = match n1::decode(octets) {
        Ok(received) => received,
        Err(answer) => return out.extend(answer),
    };
    let status = |cause| n1::status(psi, pti, cause);
    if psi != sm.psi {
        // The AMF part routes by the outer identity; the inner one must be equal.
        return match message {
            Message::FiveGsmStatus(_) => {}
            _ => out.extend(status(GsmCause::InvalidPduSessionIdentity)),
        };
    }
    match message {
        Message::PduSessionEstablishmentRequest(_)
        | Message::PduSessionModificationRequest(_)
        | Message::PduSessionReleaseRequest(_)
            if pti == release::NO_PTI =>
        {
            out.extend(status(GsmCause::InvalidPtiValue));
        }
        Message::PduSessionEstablishmentRequest(_) => match sm.stage {
            // A repeat (T3580): the answer to the first request is in transit.
            Stage::Requested { pti: running, .. } | Stage::Accepted { pti: running } if running == pti => {}
            _ => out.extend(status(GsmCause::MessageTypeNotCompatibleWithTheProtocolState)),
        },
        Message::PduSessionModificationRequest(requested) => modification(sm, pti, *requested, env, out),
        Message::PduSessionReleaseRequest(_) => release::on_request(sm, pti, env, out),
        Message::PduSessionReleaseComplete(_) => release::on_complete(sm, pti, out),
        // The network's procedure has no PTI (TS 24.501 6.3.2.2).
        Message::PduSessionModificationComplete(_) if pti == release::NO_PTI && qos_change::on_complete(sm) => {}
        Message::PduSessionModificationCommandReject(reject) if pti == release::NO_PTI && qos_change::is_sent(sm) => {
            let cause = reject.fgsm_cause.cause_for_network();
            qos_change::on_reject(sm, cause.as_u8(), out);
            // The UE does not have the session (TS 24.501 6.3.2.4).
            if cause == GsmCause::InvalidPduSessionIdentity {
                ended_by_ue(sm, out);
            }
        }
        // The UE has what it has requested, or does without it (6.3.2.4).
        Message::PduSessionModificationComplete(_) if pti != release::NO_PTI => {}
        Message::PduSessionModificationCommandReject(reject) if pti != release::NO_PTI => {
            let has_session = !matches!(sm.stage, Stage::Releasing { .. } | Stage::Ended);
            if has_session && reject.fgsm_cause.cause_for_network() == GsmCause::InvalidPduSessionIdentity {
                ended_by_ue(sm, out);
            }
        }
        Message::PduSessionModificationComplete(_) | Message::PduSessionModificationCommandReject(_) => {
            out.extend(status(GsmCause::PtiMismatch));
        }
        Message::PduSessionAuthenticationComplete(_) => {
            out.extend(status(GsmCause::MessageTypeNotCompatibleWithTheProtocolState));
        }
        Message::FiveGsmStatus(status) => {
            on_status(sm, pti, status.fgsm_cause.cause_for_network(), env, out);
        }
        // Messages of the network's direction, and those of features that Vireo does not implement.
        _ => out.extend(status(GsmCause::MessageTypeNonExistentOrNotImplemented)),
    }
}

/// Releases a session that the UE does not have.
fn ended_by_ue(sm: &mut SmContext, out: &mut Vec<Output>) {
    if matches!(sm.ran, RanState::SettingUp | RanState::Up) {
        out.extend(n2::release_command());
    }
    release::end(sm, out);
}

/// Handles PDU session modification by the UE (TS 24.501 6.4.2): only the subscribed QoS is
/// granted. What a UE indicates of its capability and of the session, as after its first move from
/// EPS (6.4.2.1), is confirmed. The UE repeats its request if the command is lost (T3581).
fn modification(
    sm: &mut SmContext,
    pti: u8,
    requested: NasPduSessionModificationRequest,
    env: &Env<'_>,
    out: &mut Vec<Output>,
) {
    let cause = match sm.stage {
        Stage::Requested { .. } => {
            let cause = GsmCause::MessageTypeNotCompatibleWithTheProtocolState;
            return out.extend(n1::status(sm.psi, pti, cause));
        }
        // A release continues (TS 24.501 6.4.2.6).
        Stage::Releasing { .. } => return,
        Stage::Ended => Some(GsmCause::InvalidPduSessionIdentity),
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established => modification_cause(&requested),
    };
    match cause {
        Some(cause) => out.extend(n1::modification_reject(sm.psi, pti, cause)),
        // The UE aborts its own procedure (6.3.2.5).
        None if qos_change::is_sent(sm) => {}
        None => confirm(sm, pti, requested, env, out),
    }
}

/// Stores what the UE indicates, and sends the command under the PTI of its request.
fn confirm(
    sm: &mut SmContext,
    pti: u8,
    requested: NasPduSessionModificationRequest,
    env: &Env<'_>,
    out: &mut Vec<Output>,
) {
    if let Some(rate) = &requested.integrity_protection_maximum_data_rate {
        sm.integrity_rate = rate.value;
    }
    let always_on = requested.always_on_pdu_session_requested.as_ref().is_some_and(|ie| ie.apsr());
    sm.always_on |= always_on;
    let dnn = env.config.dnn(&sm.terms.dnn, sm.terms.snssai);
    let options = requested.extended_protocol_configuration_options.zip(dnn);
    let options = options.map_or_else(Vec::new, |(options, dnn)| options::answer(&options, dnn, sm.kind, Vec::new()));
    out.extend(n1::confirming_command(sm, pti, always_on, options));
}

/// Returns the cause for which a request is rejected (6.4.2.4), if it is.
fn modification_cause(requested: &NasPduSessionModificationRequest) -> Option<GsmCause> {
    if let Some(rules) = &requested.requested_qos_rules {
        let wrong = rules.parse_rules().into_iter().find_map(Result::err);
        return Some(wrong.map_or(GsmCause::FiveGsQosNotAccepted, |rule| rule.error.gsm_cause()));
    }
    if let Some(flows) = &requested.requested_qos_flow_descriptions {
        let wrong = flows.parse_descriptions().into_iter().find_map(Result::err);
        return Some(wrong.map_or(GsmCause::FiveGsQosNotAccepted, |flow| flow.gsm_cause()));
    }
    let is_served = requested.fgsm_capability.is_some()
        || requested.maximum_number_of_supported_packet_filters.is_some()
        || requested.always_on_pdu_session_requested.is_some()
        || requested.integrity_protection_maximum_data_rate.is_some()
        || requested.extended_protocol_configuration_options.is_some();
    (!is_served).then_some(GsmCause::ServiceOptionNotSupported)
}

/// Handles a 5GSM Status of the UE (TS 24.501 6.5.3): the procedure of that PTI ends. A session is
/// released if the UE does not have it or could not decode its accept. Other causes change nothing.
fn on_status(sm: &mut SmContext, pti: u8, cause: GsmCause, env: &Env<'_>, out: &mut Vec<Output>) {
    let fatal = matches!(
        cause,
        GsmCause::PtiMismatch
            | GsmCause::InvalidPtiValue
            | GsmCause::InvalidMandatoryInformation
            | GsmCause::MessageTypeNonExistentOrNotImplemented
            | GsmCause::InvalidPduSessionIdentity
    );
    let no_session = cause == GsmCause::InvalidPduSessionIdentity;
    match sm.stage {
        Stage::Releasing { pti: running, .. } if fatal && (no_session || running == pti) => release::end(sm, out),
        Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established if no_session => ended_by_ue(sm, out),
        Stage::Established if fatal && pti == release::NO_PTI => _ = qos_change::on_reject(sm, cause.as_u8(), out),
        Stage::Accepted { pti: running } if fatal && running == pti => {
            release::start(sm, release::NO_PTI, GsmCause::ProtocolErrorUnspecified.as_u8(), env, out);
        }
        _ => {}
    }
}
