//! Decoding and encoding of the 5GSM messages of the SMF (TS 24.501 clause 8.3).

use super::apn_ambr::{apn_ambr, extended_apn_ambr};
use super::context::{SmContext, ebi};
use super::interface::Output;
use super::n2::DEFAULT_QFI;
use super::options;
use super::terms::SessionTerms;
use crate::config::CoreConfig;
use std::net::Ipv6Addr;
use vireo_types::{PduSessionType, Snssai};
use vireo_wire::nas::*;

/// Received 5GSM message of the UE, with its header.
pub(super) struct Received5gsm {
    /// PDU session identity of the header.
    pub(super) psi: u8,
    /// Procedure transaction identity of the header.
    pub(super) pti: u8,
    pub(super) message: Nas5gsmMessage,
}

/// Decodes a 5GSM message. The error is the answer that TS 24.501 clause 7 specifies, if any.
pub(super) fn decode(octets: &[u8]) -> Result<Received5gsm, Option<Output>> {
    if octets.first() != Some(&EXTENDED_PROTOCOL_DISCRIMINATOR_5GSM) {
        return Err(None);
    }
    let received = Nas5gsMessage::decode(octets);
    if let Some(answer) = Nas5gsMessage::answer_to(octets, &received, Direction::Uplink) {
        return Err(encode(&answer));
    }
    match received {
        Ok(Nas5gsMessage::Gsm(header, message)) => {
            Ok(Received5gsm { psi: header.pdu_session_identity, pti: header.procedure_transaction_identity, message })
        }
        _ => Err(None),
    }
}

fn encode(message: &Nas5gsMessage) -> Option<Output> {
    message.encode().ok().map(Output::N1)
}

fn output(message: impl Into<Nas5gsmMessage>, psi: u8, pti: u8) -> Option<Output> {
    encode(&Nas5gsMessage::new_5gsm(message, psi, pti))
}

fn cause_ie(cause: GsmCause) -> NasFGsmCause {
    NasFGsmCause::from_cause(cause)
}

/// Builds a 5GSM Status.
pub(super) fn status(psi: u8, pti: u8, cause: GsmCause) -> Option<Output> {
    output(NasFGsmStatus::new(cause_ie(cause)), psi, pti)
}

/// Builds a PDU Session Establishment Reject; with cause #68 it contains SSC mode 1 as the allowed
/// one.
pub(super) fn establishment_reject(psi: u8, pti: u8, cause: GsmCause) -> Option<Output> {
    let mut reject = NasPduSessionEstablishmentReject::new(cause_ie(cause));
    if cause == GsmCause::NotSupportedSscMode {
        reject.set_allowed_ssc_mode(NasAllowedSscMode::from_modes(true, false, false));
    }
    output(reject, psi, pti)
}

/// Builds a PDU Session Establishment Reject with cause #26 and a back-off time.
pub(super) fn congestion_reject(psi: u8, pti: u8, timer: NasGprsTimer3) -> Option<Output> {
    let reject = NasPduSessionEstablishmentReject::new(cause_ie(GsmCause::InsufficientResources));
    output(reject.with_back_off_timer_value(timer), psi, pti)
}

/// Builds a PDU Session Modification Reject.
pub(super) fn modification_reject(psi: u8, pti: u8, cause: GsmCause) -> Option<Output> {
    output(NasPduSessionModificationReject::new(cause_ie(cause)), psi, pti)
}

/// Builds a PDU Session Release Reject.
pub(super) fn release_reject(psi: u8, pti: u8, cause: GsmCause) -> Option<Output> {
    output(NasPduSessionReleaseReject::new(cause_ie(cause)), psi, pti)
}

/// Builds a PDU Session Release Command.
pub(super) fn release_command(psi: u8, pti: u8, cause: u8) -> Option<Output> {
    output(NasPduSessionReleaseCommand::new(NasFGsmCause::new(cause)), psi, pti)
}

/// Returns the default QoS rule (TS 24.501 9.11.4.13): rule 1, create, default, one bidirectional
/// match-all filter, lowest precedence.
pub(super) fn default_rule() -> Vec<u8> {
    vec![1, 0, 6, 0x31, 0x31, 1, 1, 0xff, DEFAULT_QFI]
}

/// Returns the description of the default flow (TS 24.501 9.11.4.12): create, 5QI, and the EPS
/// bearer identity of a session that can move to EPS.
pub(super) fn default_flow(five_qi: u8, ebi: Option<u8>) -> Vec<u8> {
    let mut flow = vec![DEFAULT_QFI, 0x20, 0x41, 1, 1, five_qi];
    if let Some(ebi) = ebi {
        flow[2] += 1;
        flow.extend_from_slice(&[7, 1, ebi << 4]);
    }
    flow
}

/// Returns the change of the default flow to this 5QI (TS 24.501 9.11.4.12): modify, with all
/// parameters.
fn changed_flow(five_qi: u8, ebi: Option<u8>) -> Vec<u8> {
    const MODIFY: u8 = 0x60;
    let mut flow = default_flow(five_qi, ebi);
    flow[1] = MODIFY;
    flow
}

/// Builds a PDU Session Modification Command (TS 24.501 6.3.2.2) with the present terms.
pub(super) fn modification_command(sm: &SmContext, config: &CoreConfig) -> Option<Output> {
    let ebi = ebi(sm.index).filter(|_| config.eps.interworks);
    let mut command = NasPduSessionModificationCommand::new()
        .with_session_ambr(session_ambr(&sm.terms))
        .with_authorized_qos_flow_descriptions(NasQosFlowDescriptions::new(changed_flow(sm.terms.five_qi, ebi)));
    if let Some(bearer) = ebi.and_then(|ebi| mapped_bearer(sm, ebi, MappedEpsBearerOpCode::Modify)) {
        command.set_mapped_eps_bearer_contexts(bearer);
    }
    output(command, sm.psi, 0)
}

/// Builds the PDU Session Modification Command (TS 24.501 6.3.2.2) that confirms a request of the
/// UE, which changes no QoS.
pub(super) fn confirming_command(sm: &SmContext, pti: u8, always_on: bool, options: Vec<u8>) -> Option<Output> {
    let mut command = NasPduSessionModificationCommand::new();
    if always_on {
        command.set_always_on_pdu_session_indication(NasAlwaysOnPduSessionIndication::from_apsi(true));
    }
    if !options.is_empty() {
        command.set_extended_protocol_configuration_options(options::ie(options));
    }
    output(command, sm.psi, pti)
}

/// Returns the Session-AMBR (TS 24.501 9.11.4.14) of a session.
pub(super) fn session_ambr(terms: &SessionTerms) -> NasSessionAmbr {
    let (down, up) = (ambr(terms.ambr.downlink_bps), ambr(terms.ambr.uplink_bps));
    NasSessionAmbr::from_raw_fields(down.0, down.1, up.0, up.1)
}

/// Returns the EPS bearer that the session becomes in EPS (TS 24.501 9.11.4.8): identity, QoS and
/// APN-AMBR, also the extended one.
fn mapped_bearer(sm: &SmContext, ebi: u8, code: MappedEpsBearerOpCode) -> Option<NasMappedEpsBearerContexts> {
    use vireo_wire::nas_eps::EpsQos;
    let ambr = apn_ambr(sm.terms.ambr.downlink_bps, sm.terms.ambr.uplink_bps)?.value.to_vec();
    let qos = MappedEpsBearerParam::from_eps_qos(EpsQos::new(sm.terms.five_qi, None, None, None)).ok()?;
    let ambr = MappedEpsBearerParam { param_id: MappedEpsBearerParamId::ApnAmbr as u8, contents: ambr };
    let extended = extended_apn_ambr(sm.terms.ambr.downlink_bps, sm.terms.ambr.uplink_bps);
    let extended = extended.map(MappedEpsBearerParam::from_extended_apn_ambr);
    let params = [qos, ambr].into_iter().chain(extended).collect();
    let bearer = MappedEpsBearerContext::new(ebi, code, true, params).ok()?;
    NasMappedEpsBearerContexts::from_contexts(&[bearer]).ok()
}

/// Builds a PDU Session Establishment Accept; `None` if the address does not match the session
/// type.
pub(super) fn establishment_accept(
    sm: &SmContext,
    pti: u8,
    cause: Option<u8>,
    options: Vec<u8>,
    config: &CoreConfig,
) -> Option<Output> {
    let (kind, address) = match (sm.kind, sm.address.ipv4, sm.address.ipv6_prefix) {
        (PduSessionType::Ipv4, Some(v4), _) => (PduSessionTypeValue::Ipv4, NasPduAddress::from_ipv4(v4.octets())),
        (PduSessionType::Ipv6, _, Some(v6)) => {
            (PduSessionTypeValue::Ipv6, NasPduAddress::from_ipv6_iid(interface_identifier(v6)))
        }
        (PduSessionType::Ipv4v6, Some(v4), Some(v6)) => {
            (PduSessionTypeValue::Ipv4v6, NasPduAddress::from_ipv4v6(interface_identifier(v6), v4.octets()))
        }
        _ => return None,
    };
    let ebi = ebi(sm.index).filter(|_| config.eps.interworks);
    let mut accept = NasPduSessionEstablishmentAccept::new(
        NasPduSessionType::from_session_type(kind),
        NasSscMode::from_mode(SscModeValue::Ssc1),
        NasQosRules::new(default_rule()),
        session_ambr(&sm.terms),
    )
    .with_pdu_address(address)
    .with_s_nssai(snssai(sm.terms.snssai))
    .with_authorized_qos_flow_descriptions(NasQosFlowDescriptions::new(default_flow(sm.terms.five_qi, ebi)))
    .with_dnn(NasDnn::from_string(sm.terms.dnn.as_str()).ok()?);
    if let Some(cause) = cause {
        accept.set_fgsm_cause(NasFGsmCause::new(cause));
    }
    if sm.always_on {
        accept.set_always_on_pdu_session_indication(NasAlwaysOnPduSessionIndication::from_apsi(true));
    }
    if let Some(bearer) = ebi.and_then(|ebi| mapped_bearer(sm, ebi, MappedEpsBearerOpCode::Create)) {
        accept.set_mapped_eps_bearer_contexts(bearer);
    }
    if !options.is_empty() {
        accept.set_extended_protocol_configuration_options(options::ie(options));
    }
    output(accept, sm.psi, pti)
}

/// Returns the interface identifier for the UE's link-local address (TS 23.501 5.8.2.2.3). It is
/// derived from the prefix, so that it is unique on every link and need not be stored.
pub(super) fn interface_identifier(prefix: Ipv6Addr) -> [u8; 8] {
    let network = u128::from(prefix) >> 64;
    let folded = (network as u64).rotate_left(32) ^ 0x0200_0000_0000_0001;
    // An all-zero identifier is the Subnet-Router anycast address (RFC 4291 2.6.1).
    folded.max(1).to_be_bytes()
}

pub(super) fn snssai(slice: Snssai) -> NasSNssai {
    let sd = slice.sd.map(|sd| {
        let [_, a, b, c] = sd.to_be_bytes();
        [a, b, c]
    });
    NasSNssai::from_sst_sd(slice.sst, sd)
}

/// Returns unit and value of the Session-AMBR (TS 24.501 9.11.4.14): exact in the largest whole
/// unit if possible, else rounded up.
fn ambr(bps: u64) -> (u8, u16) {
    const WHOLE: [(u8, u64); 3] = [(0x0b, 1_000_000), (0x06, 1_000), (0x01, 1)];
    let kbps = bps.div_ceil(1000).max(1);
    let exact = |&(unit, size): &(u8, u64)| {
        let value = u16::try_from(kbps / size).ok().filter(|_| kbps.is_multiple_of(size));
        value.map(|value| (unit, value))
    };
    if let Some(found) = WHOLE.iter().find_map(exact) {
        return found;
    }
    let mut size = 1;
    for unit in 0x01..=0x19_u8 {
        if let Ok(value) = u16::try_from(kbps.div_ceil(size)) {
            return (unit, value);
        }
        // Multiples 1, 4, 16, 64, 256 of a decimal unit, then the next decimal unit.
        size = if unit % 5 == 0 { size / 256 * 1000 } else { size * 4 };
    }
    (0x19, u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_rate_code_is_never_below_subscribed() {
        assert_eq!(ambr(1_000_000_000), (0x0b, 1));
        assert_eq!(ambr(1_500_000), (0x01, 1_500));
        assert_eq!(ambr(300_000_000), (0x06, 300));
        assert_eq!(ambr(0), (0x01, 1));
        for bps in [1, 999, 123_456_789, 98_765_432_100, 7_777_777_777_777, u64::MAX] {
            let (unit, value) = ambr(bps);
            let coded = NasSessionAmbr::from_raw_fields(unit, value, unit, value).downlink_kbps().expect("a unit");
            assert!(u128::from(coded) * 1000 >= u128::from(bps), "{bps} is coded as {coded} kbit/s");
            assert!(u128::from(coded) * 1000 <= u128::from(bps).max(1000) * 3 / 2, "{bps} is coded as {coded} kbit/s");
        }
    }

    #[test]
    fn interface_id_depends_on_prefix_and_is_nonzero() {
        let a = interface_identifier("2001:db8:0:1::".parse().expect("a prefix"));
        let b = interface_identifier("2001:db8:0:2::".parse().expect("a prefix"));
        assert_ne!(a, b);
        assert_ne!(a, [0; 8]);
    }

    #[test]
    fn accept_names_bearer_if_core_interworks() {
        use crate::config::EpsConfig;
        let bench = crate::smf::tests::Bench::active();
        let accepted = |interworks| {
            let config = CoreConfig { eps: EpsConfig { interworks, ..EpsConfig::default() }, ..bench.config.clone() };
            let Some(Output::N1(octets)) = establishment_accept(bench.sm(), 1, None, Vec::new(), &config) else {
                panic!("an accept")
            };
            match Nas5gsMessage::decode(&octets).expect("it decodes") {
                Nas5gsMessage::Gsm(_, Nas5gsmMessage::PduSessionEstablishmentAccept(accept)) => accept,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(accepted(false).mapped_eps_bearer_contexts, None);
        let bearers = accepted(true).mapped_eps_bearer_contexts.and_then(|bearers| bearers.contexts());
        let [bearer] = &bearers.expect("bearers")[..] else { panic!("one bearer") };
        let ebi = crate::smf::ebi(bench.sm().index);
        assert_eq!((Some(bearer.eps_bearer_id), bearer.operation()), (ebi, Some(MappedEpsBearerOpCode::Create)));
        assert!(bearer.params.iter().any(|p| p.eps_qos().is_some_and(|qos| qos.qci == bench.sm().terms.five_qi)));
        assert!(bearer.params.iter().any(|p| p.apn_ambr().is_some()));
        let flows = accepted(true).authorized_qos_flow_descriptions.map(|flows| flows.value.to_vec());
        let ebi = ebi.map_or(0, |ebi| ebi << 4);
        assert_eq!(flows, Some(vec![1, 0x20, 0x42, 1, 1, bench.sm().terms.five_qi, 7, 1, ebi]));
    }
}
