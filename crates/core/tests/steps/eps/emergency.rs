//! Emergency attach and emergency PDN connections (TS 24.301 5.5.1.2, 6.5.1; TS 23.401 4.3.12).

use super::attached;
use super::network::{EPCO, Network};
use vireo_core::config::DnnConfig;
use vireo_core::step::Effect;
use vireo_core::subscription::AuthenticationError;
use vireo_types::Duration;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{PriorityLevel, S1AP_PDU, S1apPduKind, ie};

const APN: &str = "sos";

/// Has the network serve emergency calls.
fn serve(network: &mut Network) {
    let served = network.config.dnns[0].clone();
    network.config.dnns.push(DnnConfig { name: APN.parse().expect("an APN"), ..served });
    network.config.eps.emergency.eps = APN.parse().ok();
}

fn request(kind: RequestTypeValue) -> NasPdnConnectivityRequest {
    NasPdnConnectivityRequest::new(NasRequestType::from_request_type(kind), NasPdnType::from_pdn_type(PdnType::Ipv4))
}

fn emergency_attach(network: &Network) -> NasAttachRequest {
    let esm = NasEpsMessage::new_esm(request(RequestTypeValue::Emergency), 0, 1).encode().expect("it encodes");
    let mut attach = network.attach_request();
    attach.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::EpsEmergencyAttach);
    attach.esm_message_container = NasEsmMessageContainer::new(esm);
    attach
}

/// Returns ESM cause and PTI of the last ESM message, a PDN CONNECTIVITY REJECT.
fn refused(network: &Network) -> (u8, u8) {
    let Some((0, pti, NasEsmMessage::PdnConnectivityReject(reject))) = network.ue.received_esm.last() else {
        panic!("{:?}", network.ue.received_esm)
    };
    (reject.esm_cause.value, *pti)
}

fn apns(network: &Network) -> Vec<String> {
    let context = network.context().expect("a context");
    context.sessions.iter().map(|session| session.terms.dnn.as_str().to_owned()).collect()
}

#[test]
fn emergency_attach_needs_no_subscription() {
    let mut network = Network::new();
    serve(&mut network);
    network.subscribe("ims");
    network.initial_message(&emergency_attach(&network));
    let NasEmmMessage::AttachAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    let support = accept.eps_network_feature_support.as_ref().map(|ie| ie.value.to_vec());
    assert_eq!(support, Some(vec![0x02, EPCO]), "EMC BS");
    let Ok(NasEpsMessage::Esm(_, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(activate))) =
        NasEpsMessage::decode(&accept.esm_message_container.value)
    else {
        panic!("{accept:?}")
    };
    assert_eq!(activate.access_point_name.as_string().as_deref(), Some(APN));
    assert_eq!(activate.eps_qos.value[0], 5);
    let pdus = network.sent.iter().map(|(_, pdu)| S1AP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let setup = pdus.into_iter().find(|pdu| pdu.kind() == S1apPduKind::Initiating_InitialContextSetup);
    let setup = setup.expect("a set-up");
    let erab = setup.items::<ie::E_RABToBeSetupListCtxtSUReq>().next().expect("an E-RAB").expect("an item");
    let qos = &erab.e_rab_level_qos_parameters;
    assert_eq!((qos.qci.0, qos.allocation_retention_priority.priority_level), (5, PriorityLevel(1)));
    assert!(network.context().is_some_and(|context| context.is_registered()));

    // A UE that has attached for it has no other PDN connection, and no second one.
    network.connect(3, Some("ims"));
    assert_eq!(refused(&network), (31, 3));
    network.send_esm(request(RequestTypeValue::Emergency), 0, 4);
    assert_eq!((refused(&network), apns(&network)), ((55, 4), vec![APN.to_owned()]));
    // It has no other bearer resources (6.5.3.6 b, 6.5.4.6 b).
    let flows = || NasTrafficFlowAggregateDescription::new(vec![0]);
    let (bearer, qos) = (NasLinkedEpsBearerIdentity::new(5), NasEpsQualityOfService::new(vec![1]));
    network.send_esm(NasBearerResourceAllocationRequest::new(bearer, flows(), qos), 0, 5);
    let Some((0, 5, NasEsmMessage::BearerResourceAllocationReject(reject))) = network.ue.received_esm.last() else {
        panic!("{:?}", network.ue.received_esm)
    };
    assert_eq!(reject.esm_cause.value, 31);
    network.send_esm(NasBearerResourceModificationRequest::new(NasLinkedEpsBearerIdentity::new(5), flows()), 0, 6);
    let Some((0, 6, NasEsmMessage::BearerResourceModificationReject(reject))) = network.ue.received_esm.last() else {
        panic!("{:?}", network.ue.received_esm)
    };
    assert_eq!(reject.esm_cause.value, 30);
    network.idle();
    network.service_request();
    assert_eq!(network.tunnel(), Some(super::TUNNEL));
}

#[test]
fn attached_ue_gets_emergency_connection() {
    let mut network = Network::new();
    serve(&mut network);
    network.attach();
    let default = apns(&network)[0].clone();
    network.send_esm(request(RequestTypeValue::Emergency), 0, 3);
    assert_eq!(apns(&network), [default.as_str(), APN]);
    network.send_esm(request(RequestTypeValue::Emergency), 0, 4);
    assert_eq!(refused(&network), (55, 4));
    network.send_esm(request(RequestTypeValue::EmergencyHandover), 0, 5);
    assert_eq!(refused(&network), (54, 5), "there is no other access to hand over from");
    // Its APN alone makes a request none for emergencies.
    network.connect(6, Some(APN));
    assert_eq!(refused(&network), (27, 6));
    network.subscribe("ims");
    network.connect(7, Some("ims"));
    assert_eq!(apns(&network), [default.as_str(), APN, "ims"]);
    network.disconnect(8, 6);
    let addresses = network.effects.iter().filter(|effect| matches!(effect, Effect::FreeAddress(..))).count();
    assert_eq!((apns(&network), addresses), (vec![default, "ims".to_owned()], 1));
}

/// UEs that cannot be authenticated are refused (TS 23.401 4.3.12.1: authenticated UEs only).
#[test]
fn unauthenticated_emergency_attach_is_rejected() {
    type Change = fn(&mut Network, &mut NasAttachRequest);
    let cases: [(Change, u8); 2] = [
        (|network, _| network.subscriber_error = Some(AuthenticationError::UnknownSubscriber), 8),
        (
            |_, request| {
                let imei = vec![0x3b, 0x94, 0x10, 0x32, 0x54, 0x76, 0x98, 0x10];
                request.eps_mobile_identity = NasEpsMobileIdentity::new(imei);
            },
            5,
        ),
    ];
    for (change, cause) in cases {
        let mut network = Network::new();
        serve(&mut network);
        let mut request = emergency_attach(&network);
        change(&mut network, &mut request);
        network.initial_message(&request);
        let NasEmmMessage::AttachReject(reject) = network.last() else { panic!("{:?}", network.last()) };
        assert_eq!((reject.emm_cause.value, network.mme_id), (cause, None));
    }
}

#[test]
fn unconfigured_emergency_is_not_offered() {
    let network = attached();
    let support = network.ue.received.iter().find_map(|message| match message {
        NasEmmMessage::AttachAccept(accept) => accept.eps_network_feature_support.clone(),
        _ => None,
    });
    assert_eq!(support.map(|ie| ie.value.to_vec()), Some(vec![0, EPCO]));
}

/// Neither power saving mode nor extended DRX (TS 24.301 5.3.11, 5.3.12).
#[test]
fn emergency_attach_gets_no_power_saving() {
    for is_emergency in [false, true] {
        let mut network = Network::new();
        serve(&mut network);
        network.config.paging.power_saving = super::power_saving::saving();
        let mut request = if is_emergency { emergency_attach(&network) } else { network.attach_request() };
        super::power_saving::request_all(&mut request);
        network.initial_message(&request);
        let granted = super::power_saving::granted(&network).map(|ie| ie.is_some());
        assert_eq!(granted, [!is_emergency; 3], "{:?}", network.notes);
    }
}

/// A UE that saves power is reachable while it has an emergency PDN connection (5.3.11, 5.3.12),
/// and detached after its own period.
#[test]
fn emergency_connection_suspends_power_saving() {
    let mut network = Network::new();
    serve(&mut network);
    network.config.paging.power_saving = super::power_saving::saving();
    let mut attach = network.attach_request();
    super::power_saving::request_all(&mut attach);
    network.initial_message(&attach);
    network.send_esm(request(RequestTypeValue::Emergency), 0, 3);
    network.idle();
    network.wait(Duration::from_secs(60));
    network.downlink_data();
    let paged = network.kinds.iter().filter(|kind| **kind == S1apPduKind::Initiating_Paging).count();
    assert_eq!(paged, 1, "at once, after T3324: {:?}", network.notes);
    let (_, page) = network.sent.last().expect("a page");
    let page = S1AP_PDU::decode_borrowed(page).expect("a PDU");
    assert!(page.ie::<ie::Paging_eDRXInformation>().is_none());
    network.service_request();
    // An update cannot request it.
    network.update_with(UpdateType::TaUpdating, super::power_saving::request_all_in_update);
    let NasEmmMessage::TrackingAreaUpdateAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    assert!(accept.t3324_value.is_none() && accept.extended_drx_parameters.is_none());
    // T3412 and 4 minutes; then the implicit detach timer (5.3.5).
    network.idle();
    network.wait(Duration::from_secs(54 * 60 + 239));
    assert!(network.context().is_some_and(|c| !c.reachability.unreachable));
}
