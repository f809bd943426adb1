//! Unsuccessful operations, missing answers and unserved procedures of gNBs (TS 38.413 8, 10).

use crate::lab::{self, Lab};
use vireo_core::amf::context::{Connection, RanContext};
use vireo_core::step::{Kind, Note};
use vireo_emulator::ue::{self, Service};
use vireo_types::Duration;
use vireo_wire::ngap::*;

fn connected() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab
}

fn connection(lab: &Lab) -> Connection {
    lab.context().and_then(|context| context.connection).expect("a connection")
}

/// Returns the PDUs of a kind that gNBs were sent.
fn sent(lab: &Lab, kind: NgapPduKind) -> Vec<NGAPPDU<'_>> {
    let pdus = lab.sent.iter().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    pdus.filter(|pdu| pdu.kind() == kind).collect()
}

fn count(lab: &Lab, fits: impl Fn(&Note) -> bool) -> usize {
    lab.notes.iter().filter(|note| fits(note)).count()
}

/// Returns a UE whose service request waits for its gNB.
fn waiting_for_context() -> Lab {
    let mut lab = connected();
    lab.idle();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    lab.ue_does(|ue, _, out| ue.service_request(Service::Data, out).expect("a request"));
    assert!(matches!(connection(&lab).ran, RanContext::SettingUp { .. }));
    lab.late.clear();
    lab
}

/// 8.3.1.3. The UE stays registered, and its session idle.
#[test]
fn failed_context_setup_releases_ue() {
    let mut lab = waiting_for_context();
    let Connection { amf_id, ran_id, .. } = connection(&lab);
    let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
    let failure = build_ngap!(
        UnsuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupFailure,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        Cause(cause.clone()),
    );
    lab.take_from_gnb(0, &failure.and_then(|pdu| pdu.encode()).expect("it encodes"));
    let commands = sent(&lab, NgapPduKind::Initiating_UEContextRelease);
    assert_eq!(commands.last().and_then(|pdu| pdu.ie::<ie::Cause>()), Some(Ok(cause)));
    assert_eq!(count(&lab, |note| matches!(note, Note::Failed(Kind::ServiceRequest, _))), 1);
    assert!(lab.context().is_some_and(|context| context.is_registered() && !context.sessions[0].is_up()));
}

/// 8.3.1.2. A session that the gNB does not set up stays idle, and the next request sets it up.
#[test]
fn partly_failed_context_setup_serves_rest() {
    let mut lab = connected();
    lab.session(2);
    lab.idle();
    lab.slow = Some(NgapPduKind::Successful_InitialContextSetup);
    lab.ue_does(|ue, _, out| ue.service_request(Service::Data, out).expect("a request"));
    let (_, response) = lab.late.remove(0);
    lab.slow = None;
    let response = NGAP_PDU::decode_borrowed(&response).expect("a PDU");
    let list = response.ie::<ie::PDUSessionResourceSetupListCxtRes>().expect("an IE").expect("a list");
    let (second, first): (Vec<_>, Vec<_>) = list.0.into_iter().partition(|item| item.pdu_session_id.0 == 2);
    let cause = Cause::radioNetwork(CauseRadioNetwork::radio_resources_not_available);
    let failure = encode_open_type(&PDUSessionResourceSetupUnsuccessfulTransfer::new(cause, None, None));
    let failure = failure.expect("it encodes").to_vec();
    let item = PDUSessionResourceFailedToSetupItemCxtRes::new(PDUSessionID(1), failure.into(), None);
    let Connection { amf_id, ran_id, .. } = connection(&lab);
    let partly = build_ngap!(
        SuccessfulOutcome,
        InitialContextSetup,
        InitialContextSetupResponse,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        PDUSessionResourceSetupListCxtRes(PDUSessionResourceSetupListCxtRes(second)),
        PDUSessionResourceFailedToSetupListCxtRes(PDUSessionResourceFailedToSetupListCxtRes(vec![item])),
    );
    let partly = partly.and_then(|pdu| pdu.encode()).expect("it encodes");
    lab.take_from_gnb(0, &partly);
    lab.settle();
    let up = |lab: &Lab| {
        let context = lab.context().expect("a context");
        context.sessions.iter().map(|session| (session.psi, session.is_up())).collect::<Vec<_>>()
    };
    assert_eq!((first.len(), up(&lab)), (1, vec![(1, false), (2, true)]));
    assert_eq!(count(&lab, |note| matches!(note, Note::Succeeded(Kind::ServiceRequest, _))), 1);
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(Service::Data, out).expect("a request"));
    assert_eq!(up(&lab), [(1, true), (2, true)]);
}

/// 8.3.1, 8.3.3: the gNB answers neither the set-up nor the release.
#[test]
fn silent_gnb_is_reset() {
    let mut lab = waiting_for_context();
    lab.reachable = false;
    let before = sent(&lab, NgapPduKind::Initiating_UEContextRelease).len();
    lab.wait(Duration::from_secs(11));
    assert_eq!(sent(&lab, NgapPduKind::Initiating_UEContextRelease).len(), before + 1);
    assert!(lab.notes.contains(&Note::fault("context-setup-timeout")) && lab.context().is_some());
    lab.wait(Duration::from_secs(11));
    assert_eq!(sent(&lab, NgapPduKind::Initiating_NGReset).len(), 1);
    assert!(lab.notes.contains(&Note::fault("release-timeout")));
    assert!(lab.context().is_some_and(|context| context.is_registered() && context.connection.is_none()));
}

/// 8.3.2.4: the request crosses UE CONTEXT RELEASE COMMAND.
#[test]
fn release_request_during_release_is_ignored() {
    let mut lab = connected();
    let cause = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
    lab.slow = Some(NgapPduKind::Successful_UEContextRelease);
    let Connection { amf_id, ran_id, .. } = connection(&lab);
    let request = build_ngap!(
        InitiatingMessage,
        UEContextReleaseRequest,
        UEContextReleaseRequest,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        Cause(cause),
    );
    let request = request.and_then(|pdu| pdu.encode()).expect("it encodes");
    for _ in 0..2 {
        lab.take_from_gnb(0, &request);
        lab.settle();
    }
    assert_eq!(sent(&lab, NgapPduKind::Initiating_UEContextRelease).len(), 1);
    assert!(matches!(connection(&lab).ran, RanContext::Releasing { .. }));
}

/// 8.6.4: the timers of the NAS procedures send again.
#[test]
fn undelivered_message_changes_nothing() {
    let mut lab = connected();
    let (before, Connection { amf_id, ran_id, .. }) = (lab.context(), connection(&lab));
    lab.sent.clear();
    let indication = build_ngap!(
        InitiatingMessage,
        NASNonDeliveryIndication,
        NASNonDeliveryIndication,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        NAS_PDU(vec![0x7e, 0, 0x54]),
        Cause(Cause::radioNetwork(CauseRadioNetwork::radio_connection_with_ue_lost)),
    );
    lab.take_from_gnb(0, &indication.and_then(|pdu| pdu.encode()).expect("it encodes"));
    assert_eq!((lab.context(), lab.sent.len()), (before, 0));
}

/// 10.3.4.1, with the criticality of each procedure (9.4.3): procedures of gNBs for broadcast of
/// warnings, positioning, traces, user plane of CIoT, and handovers without interruption.
#[test]
fn unserved_procedures_follow_criticality() {
    const REJECT: u8 = 0;
    const IGNORE: u8 = 0x40;
    let mut lab = connected();
    let before = lab.context();
    let Connection { amf_id, ran_id, .. } = connection(&lab);
    // A message about the UE with another procedure code: the identifiers are the first IEs of all.
    let template = lab::uplink_nas(amf_id, ran_id, &[0x7e, 0, 0x64, 0x6f]);
    for (procedure, criticality) in [
        (ID_CELL_TRAFFIC_TRACE, IGNORE),
        (ID_TRACE_FAILURE_INDICATION, IGNORE),
        (ID_UPLINK_UEASSOCIATED_NRPPA_TRANSPORT, IGNORE),
        (ID_UPLINK_NON_UEASSOCIATED_NRPPA_TRANSPORT, IGNORE),
        (ID_PWSRESTART_INDICATION, IGNORE),
        (ID_PWSFAILURE_INDICATION, IGNORE),
        (ID_UPLINK_RIMINFORMATION_TRANSFER, IGNORE),
        (ID_RETRIEVE_UEINFORMATION, REJECT),
        (ID_RANCPRELOCATION_INDICATION, REJECT),
        (ID_UECONTEXT_RESUME, REJECT),
        (ID_UECONTEXT_SUSPEND, REJECT),
        (ID_UPLINK_RANEARLY_STATUS_TRANSFER, REJECT),
    ] {
        lab.sent.clear();
        let mut pdu = template.clone();
        (pdu[1], pdu[2]) = (procedure.0, criticality);
        lab.take_from_gnb(0, &pdu);
        lab.settle();
        let causes: Vec<_> = sent(&lab, NgapPduKind::Initiating_ErrorIndication)
            .iter()
            .map(|pdu| pdu.ie::<ie::Cause>().expect("an IE").expect("a cause"))
            .collect();
        let rejected = Cause::protocol(CauseProtocol::abstract_syntax_error_reject);
        let expected = if criticality == REJECT { vec![rejected] } else { vec![] };
        assert_eq!((causes, lab.sent.len()), (expected.clone(), expected.len()), "procedure {}", procedure.0);
        assert_eq!(lab.context(), before, "procedure {}", procedure.0);
    }
}

/// 10.3.6. IEs in another order are accepted.
#[test]
fn repeated_ie_is_falsely_constructed() {
    let mut lab = connected();
    let before = lab.context();
    let Connection { amf_id, ran_id, .. } = connection(&lab);
    let indication = |other: u32| {
        let pdu = build_ngap!(
            InitiatingMessage,
            UERadioCapabilityInfoIndication,
            UERadioCapabilityInfoIndication,
            AMF_UE_NGAP_ID(amf_id.get()),
            RAN_UE_NGAP_ID(ran_id.0),
            UERadioCapability(vec![7; 3]),
            RAN_UE_NGAP_ID(other),
        );
        pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
    };
    for other in [ran_id.0, ran_id.0 + 1] {
        lab.sent.clear();
        lab.take_from_gnb(0, &indication(other));
        let errors = sent(&lab, NgapPduKind::Initiating_ErrorIndication);
        let cause = Cause::protocol(CauseProtocol::abstract_syntax_error_falsely_constructed_message);
        assert_eq!(errors[0].ie::<ie::Cause>(), Some(Ok(cause)));
        assert_eq!((lab.context(), lab.sent.len()), (before.clone(), 1));
    }
    lab.sent.clear();
    let swapped = build_ngap!(
        InitiatingMessage,
        UERadioCapabilityInfoIndication,
        UERadioCapabilityInfoIndication,
        UERadioCapability(vec![7; 3]),
        RAN_UE_NGAP_ID(ran_id.0),
        AMF_UE_NGAP_ID(amf_id.get()),
    );
    lab.take_from_gnb(0, &swapped.and_then(|pdu| pdu.encode()).expect("it encodes"));
    assert!(lab.sent.is_empty() && lab.context().is_some_and(|context| context.radio_capability == [7; 3]));
}

/// TS 38.413 8.14.1. Half-open UEs have little memory, whatever their gNB reports.
#[test]
fn capability_of_unregistered_ue_is_dropped() {
    let (mut lab, mut out) = (Lab::new(), ue::UeOutput::default());
    let p = lab.profile.clone();
    lab.ue.register(&p, ue::Registration::Fresh, &mut out).expect("a request");
    lab.inject_until(out.messages().next().expect("a message"), &mut 0);
    let Connection { amf_id, ran_id, .. } = connection(&lab);
    let indication = build_ngap!(
        InitiatingMessage,
        UERadioCapabilityInfoIndication,
        UERadioCapabilityInfoIndication,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        UERadioCapability(vec![7; 60_000]),
        UERadioCapability_EUTRA_Format(vec![8; 3000]),
    );
    let before = lab.octets().len();
    lab.take_from_gnb(0, &indication.and_then(|pdu| pdu.encode()).expect("it encodes"));
    assert!(lab.notes.contains(&Note::fault("radio-capability-out-of-place")), "{:?}", lab.notes);
    assert!(lab.octets().len() < before + 16, "{} octets", lab.octets().len());
}
