//! eNBs, and S1AP procedures that are not about one UE (TS 36.413 8.7).
//!
//! An eNB has one association with an MME (TS 36.412 clause 7). Each balancer is an MME of one
//! pool.

use super::{RanNode, RanStepOutput, RanStepRequest, ResetItem, SupportedArea};
use crate::amf::n2::{self, Cause, Fault};
use crate::amf::ran::admission::Refusal as AdmissionRefusal;
use crate::amf::s1::{
    self, cause_to, encode, from_message, has_fault_to_reject, is_for_enb, unknown_procedure, wrong_direction,
};
use crate::config::CoreConfig;
use crate::schedule::shed::{OverloadAction, OverloadResponse};
use vireo_types::{AmfUeNgapId, Guami, RanUeNgapId, Tai};
use vireo_wire::ngap::{CauseMisc, CauseProtocol};
use vireo_wire::s1ap::{Message, OverloadAction as S1apAction, OverloadResponse as S1apResponse, *};

/// Processes one message of an eNB that is not about one UE. `node` is `None` before S1 Setup.
/// `mme` maps to the GUMMEI of the MME that answers.
pub(super) fn step(node: &mut Option<RanNode>, octets: &[u8], (config, mme): (&CoreConfig, Guami)) -> RanStepOutput {
    let read = S1AP_PDU::decode_borrowed(octets).map_err(|_| Fault::transfer_syntax());
    read.and_then(|pdu| message(node, &pdu, (config, mme))).unwrap_or_else(|fault| RanStepOutput {
        answer: fault.cause.as_ref().map(|cause| s1::error_indication(&fault, cause)),
        request: None,
        fault: Some(fault.kind),
    })
}

fn message(
    node: &mut Option<RanNode>,
    pdu: &S1APPDU<'_>,
    (config, mme): (&CoreConfig, Guami),
) -> Result<RanStepOutput, Box<Fault>> {
    match pdu.kind() {
        S1apPduKind::Initiating_S1Setup => Ok(setup(node, pdu, (config, mme))),
        // S1 Setup is the first procedure of an eNB (8.7.3.1).
        _ if node.is_none() => Err(Fault::logical(
            "before-s1-setup",
            Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state),
            None,
            None,
        )),
        S1apPduKind::Initiating_ENBConfigurationUpdate => Ok(configuration_update(node, pdu, config)),
        S1apPduKind::Initiating_Reset => reset(pdu),
        S1apPduKind::Successful_Reset => {
            Ok(RanStepOutput { request: Some(RanStepRequest::ResetAcknowledged), ..RanStepOutput::default() })
        }
        S1apPduKind::Initiating_eNBConfigurationTransfer => Ok(configuration_transfer(pdu)),
        S1apPduKind::Successful_MMEConfigurationUpdate => {
            Ok(RanStepOutput { request: Some(RanStepRequest::Updated { failed: 0 }), ..RanStepOutput::default() })
        }
        S1apPduKind::Unsuccessful_MMEConfigurationUpdate => {
            Ok(RanStepOutput { fault: Some("mme-configuration-update-refused"), ..RanStepOutput::default() })
        }
        // Never answered with an error, which could cause an endless exchange.
        S1apPduKind::Initiating_ErrorIndication => {
            Ok(RanStepOutput { fault: Some("error-indication-received"), ..RanStepOutput::default() })
        }
        kind if is_for_enb(&kind) => Err(wrong_direction(pdu)),
        // UE-associated messages without MME UE S1AP ID, which is mandatory.
        S1apPduKind::Initiating_uplinkNASTransport
        | S1apPduKind::Initiating_UEContextReleaseRequest
        | S1apPduKind::Successful_InitialContextSetup
        | S1apPduKind::Unsuccessful_InitialContextSetup
        | S1apPduKind::Successful_UEContextRelease
        | S1apPduKind::Successful_E_RABSetup
        | S1apPduKind::Successful_E_RABModify
        | S1apPduKind::Successful_E_RABRelease
        | S1apPduKind::Initiating_E_RABReleaseIndication
        | S1apPduKind::Initiating_E_RABModificationIndication
        | S1apPduKind::Initiating_HandoverPreparation
        | S1apPduKind::Successful_HandoverResourceAllocation
        | S1apPduKind::Unsuccessful_HandoverResourceAllocation
        | S1apPduKind::Initiating_HandoverNotification
        | S1apPduKind::Initiating_HandoverCancel
        | S1apPduKind::Initiating_eNBStatusTransfer
        | S1apPduKind::Initiating_LocationReport
        | S1apPduKind::Initiating_LocationReportingFailureIndication
        | S1apPduKind::Initiating_NASNonDeliveryIndication
        | S1apPduKind::Successful_UEContextModification
        | S1apPduKind::Unsuccessful_UEContextModification
        | S1apPduKind::Initiating_UECapabilityInfoIndication => Err(from_message(pdu)),
        // Outcomes without a request are ignored (10.4).
        _ if pdu.direction() != "InitiatingMessage" => {
            Ok(RanStepOutput { fault: Some("unexpected-outcome"), ..RanStepOutput::default() })
        }
        _ => Err(unknown_procedure(pdu)),
    }
}

/// Checks that an eNB supports a served PLMN and tracking area. The error has the cause and the
/// label of the fault.
fn check(areas: &[SupportedArea], config: &CoreConfig) -> Result<(), (Cause, &'static str)> {
    let plmn = |a: &&SupportedArea| config.plmns.contains(&a.tai.plmn);
    if !areas.iter().any(|a| plmn(&a)) {
        return Err((Cause::misc(CauseMisc::unknown_PLMN_or_SNPN), "s1-setup-unknown-plmn"));
    }
    if !areas.iter().any(|a| plmn(&a) && config.tacs.contains(&a.tai.tac)) {
        return Err((Cause::misc(CauseMisc::unspecified), "s1-setup-unknown-tac"));
    }
    Ok(())
}

/// Returns the tracking areas of Supported TAs. EPS has no slices.
pub(super) fn areas(list: &SupportedTAs) -> Vec<SupportedArea> {
    let of_item = |item: &SupportedTAsItem| {
        let tac = s1::tac_of(&item.tac);
        let area =
            move |plmn: &PLMNidentity| SupportedArea { tai: Tai { plmn: s1::plmn_of(plmn), tac }, slices: Vec::new() };
        item.broadcast_plmns.0.iter().map(area).collect::<Vec<_>>()
    };
    list.0.iter().flat_map(of_item).collect()
}

/// Processes S1 SETUP REQUEST (8.7.3).
fn setup(node: &mut Option<RanNode>, pdu: &S1APPDU<'_>, (config, mme): (&CoreConfig, Guami)) -> RanStepOutput {
    let id = pdu.ie::<ie::Global_ENB_ID>().and_then(Result::ok).as_ref().and_then(s1::enb_of);
    let supported = pdu.ie::<ie::SupportedTAs>().and_then(Result::ok);
    let (Some(id), Some(supported)) = (id, supported) else {
        return failure(pdu, None, "s1-setup-malformed");
    };
    if has_fault_to_reject(pdu) {
        return failure(pdu, None, "s1-setup-not-understood");
    }
    if config.smf_is_remote {
        // The service-based interface to a separate SMF has no PDN connections.
        return failure(pdu, Some(Cause::misc(CauseMisc::unspecified)), "s1-setup-in-sba-mode");
    }
    let areas = areas(&supported);
    if let Err((cause, kind)) = check(&areas, config) {
        return failure(pdu, Some(cause), kind);
    }
    *node = Some(RanNode { id: id.into(), name: name(pdu).unwrap_or_default(), areas: areas.into() });
    RanStepOutput { answer: Some(response(config, mme)), request: Some(RanStepRequest::Erase), fault: None }
}

/// Returns the eNB Name, whose type limits it to 150 characters. A name that does not decode counts
/// as absent (criticality ignore).
fn name(pdu: &S1APPDU<'_>) -> Option<String> {
    pdu.ie::<ie::eNBname>().and_then(Result::ok).map(|name| name.0.into_owned())
}

fn failure(pdu: &S1APPDU<'_>, cause: Option<Cause>, kind: &'static str) -> RanStepOutput {
    let deviations = pdu.check().unwrap_or_default();
    let (cause, diagnostics) = match cause {
        Some(cause) => (cause_to(&cause), None),
        None => {
            let cause =
                deviations.iter().find_map(Deviation::cause).unwrap_or(vireo_wire::s1ap::CauseProtocol::semantic_error);
            let diagnostics = pdu.criticality_diagnostics_for_response(&deviations);
            (vireo_wire::s1ap::Cause::protocol(cause), Some(diagnostics))
        }
    };
    let mut ies: Vec<_> = build_s1ap_ie!(S1SetupFailure, Cause(cause)).into_iter().collect();
    // eNBs retry by themselves; one minute limits the rate of a misconfigured one.
    ies.extend(build_s1ap_ie!(S1SetupFailure, TimeToWait(TimeToWait::v60s)));
    ies.extend(diagnostics.and_then(|d| build_s1ap_ie!(S1SetupFailure, CriticalityDiagnostics(d)).ok()));
    let message = S1SetupFailure::new(ProtocolIEContainer(ies));
    let answer = encode(S1AP_PDU::of_message(&message, S1SetupFailure::CRITICALITY));
    RanStepOutput { answer: Some(answer), request: None, fault: Some(kind) }
}

fn response(config: &CoreConfig, mme: Guami) -> Vec<u8> {
    encode(build_s1ap!(
        SuccessfulOutcome,
        S1Setup,
        S1SetupResponse,
        MMEname(config.name.clone()),
        ServedGUMMEIs(ServedGUMMEIs(vec![s1::served_gummei(mme, &config.plmns)])),
        RelativeMMECapacity(RelativeMMECapacity(config.relative_capacity)),
    ))
}

/// Processes ENB CONFIGURATION UPDATE (8.7.4). Absent IEs leave the values unchanged.
fn configuration_update(node: &mut Option<RanNode>, pdu: &S1APPDU<'_>, config: &CoreConfig) -> RanStepOutput {
    let malformed = Cause::protocol(CauseProtocol::abstract_syntax_error_reject);
    let supported = match pdu.ie::<ie::SupportedTAs>() {
        None => None,
        Some(Ok(list)) => Some(areas(&list)),
        Some(Err(_)) => return update_failure(&malformed),
    };
    if has_fault_to_reject(pdu) {
        return update_failure(&malformed);
    }
    if let Some(Err((cause, _))) = supported.as_deref().map(|areas| check(areas, config)) {
        return update_failure(&cause);
    }
    if let Some(node) = node {
        node.name = name(pdu).unwrap_or_else(|| std::mem::take(&mut node.name));
        if let Some(areas) = supported {
            node.areas = areas.into();
        }
    }
    let message = ENBConfigurationUpdateAcknowledge::new(ProtocolIEContainer(Vec::new()));
    let answer = encode(S1AP_PDU::of_message(&message, ENBConfigurationUpdateAcknowledge::CRITICALITY));
    RanStepOutput { answer: Some(answer), request: None, fault: None }
}

/// Processes ENB CONFIGURATION TRANSFER (8.15): its SON information goes to the eNB that it
/// names. An IE that does not decode counts as absent (criticality ignore).
fn configuration_transfer(pdu: &S1APPDU<'_>) -> RanStepOutput {
    let son = pdu.ie::<ie::SONConfigurationTransferECT>().and_then(Result::ok);
    let Some((target, son)) = son.and_then(|son| Some((s1::enb_of(&son.target_enb_id.global_enb_id)?, son))) else {
        return RanStepOutput { fault: Some("enb-configuration-transfer-without-target"), ..RanStepOutput::default() };
    };
    let pdu = encode(build_s1ap!(
        InitiatingMessage,
        MMEConfigurationTransfer,
        MMEConfigurationTransfer,
        SONConfigurationTransferMCT(son),
    ));
    let request = Some(RanStepRequest::Relay { target: target.into(), pdu });
    RanStepOutput { request, ..RanStepOutput::default() }
}

fn update_failure(cause: &Cause) -> RanStepOutput {
    let answer = encode(build_s1ap!(
        UnsuccessfulOutcome,
        ENBConfigurationUpdate,
        ENBConfigurationUpdateFailure,
        Cause(cause_to(cause)),
        TimeToWait(TimeToWait::v60s),
    ));
    RanStepOutput { answer: Some(answer), request: None, fault: Some("enb-configuration-update-refused") }
}

/// Processes RESET of the eNB (8.7.1.2.2). The acknowledgement lists the connections of the
/// request.
fn reset(pdu: &S1APPDU<'_>) -> Result<RanStepOutput, Box<Fault>> {
    let kind = pdu.ie::<ie::ResetType>().and_then(Result::ok).ok_or_else(|| from_message(pdu))?;
    let mut items = Vec::new();
    let mut named = Vec::new();
    match &kind {
        ResetType::partOfS1_Interface(list) => {
            for field in &list.0 {
                let item: UEAssociatedLogicalS1ConnectionItem =
                    decode_open_type(&field.value).map_err(|_| from_message(pdu))?;
                items.push(ResetItem {
                    amf_id: item.mme_ue_s1ap_id.as_ref().map(|id| AmfUeNgapId::from_mme(id.0)),
                    ran_id: item.enb_ue_s1ap_id.as_ref().map(|id| RanUeNgapId(id.0)),
                });
                named.extend(build_s1ap_ie!(IGNORE UE_associatedLogicalS1_ConnectionItem(item)).ok());
            }
        }
        ResetType::s1_Interface(_) => {}
        _ => return Err(from_message(pdu)),
    }
    let list = (!named.is_empty()).then_some(UEAssociatedLogicalS1ConnectionListResAck(named));
    let ie =
        list.and_then(|list| build_s1ap_ie!(ResetAcknowledge, UE_associatedLogicalS1_ConnectionListResAck(list)).ok());
    let message = ResetAcknowledge::new(ProtocolIEContainer(ie.into_iter().collect()));
    let answer = encode(S1AP_PDU::of_message(&message, ResetAcknowledge::CRITICALITY));
    Ok(RanStepOutput { answer: Some(answer), request: Some(RanStepRequest::Reset(items)), fault: None })
}

/// Encodes RESET of the MME for the whole interface (8.7.1.2.1).
pub(super) fn reset_all(cause: &Cause) -> Vec<u8> {
    encode(build_s1ap!(
        InitiatingMessage,
        Reset,
        Reset,
        Cause(cause_to(cause)),
        ResetType(ResetType::s1_Interface(ResetAll::reset_all)),
    ))
}

/// Encodes RESET of the MME for some connections of an eNB.
pub(super) fn reset_part(cause: &Cause, items: &[ResetItem]) -> Vec<u8> {
    let item = |item: &ResetItem| {
        let mme = item.amf_id.map(|id| MMEUES1APID(id.mme()));
        let enb = item.ran_id.map(|id| ENBUES1APID(id.0));
        let item = UEAssociatedLogicalS1ConnectionItem::new(mme, enb, None);
        build_s1ap_ie!(REJECT UE_associatedLogicalS1_ConnectionItem(item))
    };
    let items: Result<Vec<_>, _> = items.iter().map(item).collect();
    encode(items.and_then(|items| {
        let list = UEAssociatedLogicalS1ConnectionListRes(items);
        build_s1ap!(
            InitiatingMessage,
            Reset,
            Reset,
            Cause(cause_to(cause)),
            ResetType(ResetType::partOfS1_Interface(list)),
        )
    }))
}

/// Encodes OVERLOAD START (8.7.6), which has the eNB reduce signalling.
pub(super) fn overload_start(relief: OverloadAction) -> Vec<u8> {
    let action = match relief.action {
        OverloadResponse::RejectSignalling => S1apAction::reject_rrc_cr_signalling,
        OverloadResponse::RejectNonEmergencyData => S1apAction::reject_non_emergency_mo_dt,
        OverloadResponse::PermitEmergencyAndTerminating => {
            S1apAction::permit_emergency_sessions_and_mobile_terminated_services_only
        }
        OverloadResponse::PermitPriorityAndTerminating => {
            S1apAction::permit_high_priority_sessions_and_mobile_terminated_services_only
        }
    };
    encode(build_s1ap!(
        InitiatingMessage,
        OverloadStart,
        OverloadStart,
        OverloadResponse(S1apResponse::overloadAction(action)),
        TrafficLoadReductionIndication(TrafficLoadReductionIndication(relief.percent.clamp(1, 99))),
    ))
}

/// Encodes OVERLOAD STOP (8.7.7).
pub(super) fn overload_stop() -> Vec<u8> {
    let message = OverloadStop::new(ProtocolIEContainer(Vec::new()));
    encode(S1AP_PDU::of_message(&message, OverloadStop::CRITICALITY))
}

/// Encodes S1 SETUP FAILURE for an eNB that may not use its identity, or not yet (8.7.3.3).
pub(super) fn setup_refused(refusal: AdmissionRefusal) -> Vec<u8> {
    // By then the eNB that is set up may have been found dead.
    let wait = if refusal == AdmissionRefusal::InUse { TimeToWait::v10s } else { TimeToWait::v60s };
    let cause = cause_to(&n2::Cause::misc(CauseMisc::unspecified));
    encode(build_s1ap!(UnsuccessfulOutcome, S1Setup, S1SetupFailure, Cause(cause), TimeToWait(wait)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::{EnbId, EnbKind as Kind};
    use vireo_wire::s1ap::helpers::{EnbKind, global_enb_id};

    fn request(plmn: &str, tac: u16) -> Vec<u8> {
        let plmn = s1::plmn_to(plmn.parse().expect("a PLMN"));
        let area = SupportedTAsItem::new(TAC(tac.to_be_bytes()), BPLMNs(vec![plmn]), None);
        encode(build_s1ap!(
            InitiatingMessage,
            S1Setup,
            S1SetupRequest,
            Global_ENB_ID(global_enb_id(plmn, EnbKind::Macro, 0x12345).expect("20 bits")),
            eNBname("enb-1"),
            SupportedTAs(SupportedTAs(vec![area])),
            DefaultPagingDRX(PagingDRX::v128),
        ))
    }

    /// Returns a configuration with the MME of the first balancer.
    fn with_first_mme(config: &CoreConfig) -> (&CoreConfig, Guami) {
        (config, config.mme(0))
    }

    fn set_up() -> Option<RanNode> {
        let mut node = None;
        step(&mut node, &request("99970", 1), with_first_mme(&crate::smf::tests::config()));
        node
    }

    #[test]
    fn setup_of_served_area_is_answered_with_gummei() {
        let mut node = None;
        let config = crate::smf::tests::config();
        let outcome = step(&mut node, &request("99970", 1), with_first_mme(&config));
        assert_eq!((outcome.request, outcome.fault), (Some(RanStepRequest::Erase), None));
        let node = node.expect("a node");
        let id = EnbId { plmn: "99970".parse().expect("a PLMN"), kind: Kind::Macro, id: 0x12345 };
        assert_eq!((node.id, node.name.as_str(), node.areas.len()), (id.into(), "enb-1", 1));
        let octets = outcome.answer.expect("an answer");
        let pdu = S1AP_PDU::decode(&octets).expect("a PDU");
        assert_eq!((pdu.kind(), pdu.check().expect("it decodes")), (S1apPduKind::Successful_S1Setup, vec![]));
        let served = pdu.ie::<ie::ServedGUMMEIs>().expect("an IE").expect("a list");
        let (group, code) = config.guami().mme();
        assert_eq!(served.0[0].served_group_ids.0[0].0, group.to_be_bytes());
        assert_eq!(served.0[0].served_mmecs.0[0].0, [code]);
    }

    #[test]
    fn each_balancer_is_mme_of_one_group() {
        let config = crate::smf::tests::config();
        let gummeis = [0, 1, 15].map(|balancer| {
            let octets = response(&config, config.mme(balancer));
            let pdu = S1AP_PDU::decode(&octets).expect("a PDU");
            let served = pdu.ie::<ie::ServedGUMMEIs>().expect("an IE").expect("a list");
            let [code] = served.0[0].served_mmecs.0[0].0;
            assert!(config.is_mme_of_pool(code & 0x3f));
            (served.0[0].served_group_ids.0[0].0, code)
        });
        assert!(gummeis.iter().all(|(group, _)| *group == gummeis[0].0));
        assert!(gummeis[0].1 != gummeis[1].1 && gummeis[1].1 != gummeis[2].1);
        assert!(!config.is_mme_of_pool(config.mme(16).pointer));
    }

    #[test]
    fn setup_of_foreign_enb_fails_with_cause() {
        use vireo_wire::s1ap::{Cause, CauseMisc};
        let config = crate::smf::tests::config();
        for (plmn, tac, fault, cause) in [
            ("00101", 1, "s1-setup-unknown-plmn", CauseMisc::unknown_PLMN),
            ("99970", 77, "s1-setup-unknown-tac", CauseMisc::unspecified),
        ] {
            let mut node = None;
            let outcome = step(&mut node, &request(plmn, tac), with_first_mme(&config));
            assert_eq!((node, outcome.fault), (None, Some(fault)));
            let octets = outcome.answer.expect("an answer");
            let pdu = S1AP_PDU::decode(&octets).expect("a PDU");
            assert_eq!(pdu.kind(), S1apPduKind::Unsuccessful_S1Setup);
            assert_eq!(pdu.ie::<ie::Cause>().and_then(Result::ok), Some(Cause::misc(cause)));
        }
        let mut node = None;
        let whole = request("99970", 1);
        let outcome = step(&mut node, &whole[..whole.len() - 1], with_first_mme(&config));
        assert_eq!((node, outcome.fault), (None, Some("transfer-syntax-error")));
        assert!(outcome.answer.is_some_and(|pdu| pdu.starts_with(&[0x00, 15])), "an Error Indication");
    }

    #[test]
    fn setup_fails_with_separate_smf() {
        use vireo_wire::s1ap::{Cause, CauseMisc};
        let config = crate::config::CoreConfig { smf_is_remote: true, ..crate::smf::tests::config() };
        let mut node = None;
        let outcome = step(&mut node, &request("99970", 1), with_first_mme(&config));
        assert_eq!((node, outcome.fault), (None, Some("s1-setup-in-sba-mode")));
        let octets = outcome.answer.expect("an answer");
        let pdu = S1AP_PDU::decode(&octets).expect("a PDU");
        assert_eq!(pdu.kind(), S1apPduKind::Unsuccessful_S1Setup);
        assert_eq!(pdu.ie::<ie::Cause>().and_then(Result::ok), Some(Cause::misc(CauseMisc::unspecified)));
    }

    #[test]
    fn message_before_setup_is_an_error() {
        let (mut node, config) = (None, crate::smf::tests::config());
        let reset = reset_all(&Cause::misc(CauseMisc::om_intervention));
        assert_eq!(step(&mut node, &reset, with_first_mme(&config)).fault, Some("before-s1-setup"));
    }

    fn transfer(target: u32) -> Vec<u8> {
        let plmn = s1::plmn_to("99970".parse().expect("a PLMN"));
        let tai = || vireo_wire::s1ap::helpers::tai(plmn, [0, 1]);
        let enb = |id| global_enb_id(plmn, EnbKind::Macro, id).expect("20 bits");
        let (to, from) = (TargeteNBID::new(enb(target), tai(), None), SourceeNBID::new(enb(0x12345), tai(), None));
        let information = SONInformation::sONInformationRequest(SONInformationRequest::x2TNL_Configuration_Info);
        let son = SONConfigurationTransfer::new(to, from, information, None);
        encode(build_s1ap!(
            InitiatingMessage,
            eNBConfigurationTransfer,
            ENBConfigurationTransfer,
            SONConfigurationTransferECT(son),
        ))
    }

    #[test]
    fn configuration_transfer_is_for_named_enb() {
        let (mut node, config) = (set_up(), crate::smf::tests::config());
        let outcome = step(&mut node, &transfer(0x77), with_first_mme(&config));
        let Some(RanStepRequest::Relay { target, pdu }) = outcome.request else { panic!("{outcome:?}") };
        let id = EnbId { plmn: "99970".parse().expect("a PLMN"), kind: Kind::Macro, id: 0x77 };
        assert_eq!((target, outcome.answer, outcome.fault), (id.into(), None, None));
        let pdu = S1AP_PDU::decode(&pdu).expect("a PDU");
        assert_eq!(pdu.kind(), S1apPduKind::Initiating_MMEConfigurationTransfer);
        let son = pdu.ie::<ie::SONConfigurationTransferMCT>().expect("an IE").expect("SON information");
        assert_eq!(s1::enb_of(&son.target_enb_id.global_enb_id), Some(id));
        let mut unknown = None;
        assert_eq!(step(&mut unknown, &transfer(0x77), with_first_mme(&config)).fault, Some("before-s1-setup"));
    }

    #[test]
    fn configuration_messages_equal_goldens() {
        use crate::golden::eps as golden;
        let (mut node, config) = (set_up(), crate::smf::tests::config());
        let outcome = step(&mut node, &golden("ENBConfigurationTransfer"), with_first_mme(&config));
        let Some(RanStepRequest::Relay { target, pdu }) = outcome.request else { panic!("{outcome:?}") };
        assert_eq!((target.value(), pdu), (0xabd, golden("MMEConfigurationTransfer")));
        let refused = update_failure(&Cause::misc(CauseMisc::unknown_PLMN_or_SNPN));
        assert_eq!(refused.answer, Some(golden("ENBConfigurationUpdateFailure-wait")));
        let renamed =
            encode(build_s1ap!(InitiatingMessage, ENBConfigurationUpdate, ENBConfigurationUpdate, eNBname("enb-2748")));
        let outcome = step(&mut node, &renamed, with_first_mme(&config));
        assert_eq!(outcome.answer, Some(golden("ENBConfigurationUpdateAcknowledge")));
        assert_eq!(reset_all(&Cause::misc(CauseMisc::om_intervention)), golden("Reset-mme-all"));
        assert_eq!(overload_stop(), golden("OverloadStop"));
    }

    fn update(plmn: &str, tac: u16) -> Vec<u8> {
        let plmns = BPLMNs(vec![s1::plmn_to(plmn.parse().expect("a PLMN"))]);
        let areas = SupportedTAs(vec![SupportedTAsItem::new(TAC(tac.to_be_bytes()), plmns, None)]);
        encode(build_s1ap!(InitiatingMessage, ENBConfigurationUpdate, ENBConfigurationUpdate, SupportedTAs(areas)))
    }

    #[test]
    fn configuration_update_needs_served_area() {
        use vireo_wire::s1ap::{Cause, CauseMisc};
        let (mut node, served) = (set_up(), crate::smf::tests::config());
        let config = CoreConfig { tacs: vec![vireo_types::Tac(1), vireo_types::Tac(2)], ..served };
        let before = node.clone();
        for (plmn, tac, cause) in [("00101", 2, CauseMisc::unknown_PLMN), ("99970", 77, CauseMisc::unspecified)] {
            let outcome = step(&mut node, &update(plmn, tac), with_first_mme(&config));
            let octets = outcome.answer.expect("an answer");
            let pdu = S1AP_PDU::decode(&octets).expect("a PDU");
            assert_eq!(pdu.kind(), S1apPduKind::Unsuccessful_ENBConfigurationUpdate);
            assert_eq!(pdu.ie::<ie::Cause>().and_then(Result::ok), Some(Cause::misc(cause)));
            assert_eq!(node, before, "it keeps its areas");
        }
        let outcome = step(&mut node, &update("99970", 2), with_first_mme(&config));
        assert_eq!(outcome.fault, None);
        let node = node.expect("a node");
        let tacs: Vec<_> = node.areas.iter().map(|area| area.tai.tac.0).collect();
        assert_eq!((node.name.as_str(), tacs), ("enb-1", vec![2]));
    }

    #[test]
    fn mme_configuration_update_answer_is_accepted() {
        let (mut node, config) = (set_up(), crate::smf::tests::config());
        let message = MMEConfigurationUpdateAcknowledge::new(ProtocolIEContainer(Vec::new()));
        let done = encode(S1AP_PDU::of_message(&message, MMEConfigurationUpdateAcknowledge::CRITICALITY));
        let outcome = step(&mut node, &done, with_first_mme(&config));
        assert_eq!((outcome.request, outcome.fault), (Some(RanStepRequest::Updated { failed: 0 }), None));
        let cause = cause_to(&Cause::misc(CauseMisc::unspecified));
        let refused = encode(build_s1ap!(
            UnsuccessfulOutcome,
            MMEConfigurationUpdate,
            MMEConfigurationUpdateFailure,
            Cause(cause),
        ));
        let outcome = step(&mut node, &refused, with_first_mme(&config));
        assert_eq!((outcome.request, outcome.answer), (None, None));
        assert_eq!(outcome.fault, Some("mme-configuration-update-refused"));
    }

    #[test]
    fn partial_reset_names_its_connections() {
        let (mut node, config) = (set_up(), crate::smf::tests::config());
        let items = [
            ResetItem { amf_id: Some(AmfUeNgapId::from_mme(0x1234_5678)), ran_id: Some(RanUeNgapId(9)) },
            ResetItem { amf_id: None, ran_id: Some(RanUeNgapId(10)) },
        ];
        let reset = reset_part(&Cause::misc(CauseMisc::om_intervention), &items);
        let outcome = step(&mut node, &reset, with_first_mme(&config));
        assert_eq!(outcome.request, Some(RanStepRequest::Reset(items.to_vec())));
        let octets = outcome.answer.expect("an answer");
        let pdu = S1AP_PDU::decode(&octets).expect("a PDU");
        assert_eq!((pdu.kind(), pdu.check().expect("it decodes")), (S1apPduKind::Successful_Reset, vec![]));
        assert_eq!(pdu.items::<ie::UE_associatedLogicalS1_ConnectionListResAck>().count(), 2);
        let acknowledged = step(&mut node, &octets, with_first_mme(&config));
        assert_eq!(acknowledged.request, Some(RanStepRequest::ResetAcknowledged));
    }
}
