//! Refused requests, and the causes of the answers (TS 24.301 5.5.1.2.5, 5.5.3.2.5, 5.6.1.5, 6.5).

use super::network::Network;
use super::{attach_reject, attached, foreign_guti, succeeded};
use vireo_core::amf::engine::Event;
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::AuthenticationError;
use vireo_types::{PduSessionType, Tac};
use vireo_wire::nas_eps::*;

/// PDN CONNECTIVITY REQUEST without options: PTI, PDN type and request type.
fn connectivity(pti: u8, pdn_type: u8, request_type: u8) -> NasEsmMessageContainer {
    NasEsmMessageContainer::new(vec![0x02, pti, 0xd0, pdn_type << 4 | request_type])
}

/// Change of a network and of the request that it receives.
type Change = fn(&mut Network, &mut NasAttachRequest);

/// Sends ATTACH REQUEST as changed. Returns the causes of the reject.
fn refused(network: &mut Network, change: impl FnOnce(&mut NasAttachRequest)) -> (u8, Option<(u8, u8)>) {
    let mut request = network.attach_request();
    change(&mut request);
    network.initial_message(&request);
    let cause = attach_reject(network);
    assert_eq!(network.mme_id, None, "the connection is released");
    let context = network.context();
    assert!(context.is_none_or(|c| !c.is_registered() && !c.sessions.iter().any(|s| s.is_live())));
    assert_eq!(succeeded(network, Kind::Registration), 0);
    assert!(network.notes.contains(&Note::Failed(Kind::Registration, cause.0)), "{:?}", network.notes);
    cause
}

#[test]
fn attach_is_rejected_with_emm_cause() {
    let cases: [(&str, u8, Change); 9] = [
        ("unknown IMSI", 8, |network, _| network.subscriber_error = Some(AuthenticationError::UnknownSubscriber)),
        ("HSS unreachable", 22, |network, _| network.subscriber_error = Some(AuthenticationError::Unavailable)),
        ("other tracking area", 12, |network, _| network.config.tacs = vec![Tac(9)]),
        ("forbidden areas", 12, |network, _| network.subscription.areas.forbidden = network.config.tacs.clone()),
        ("no common algorithm", 23, |_, request| {
            request.ue_network_capability = NasUeNetworkCapability::new(vec![0xe0, 0x80]);
        }),
        ("no served slice", 15, |network, _| network.subscription.slices.clear()),
        ("emergency", 111, |_, request| {
            request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::EpsEmergencyAttach);
        }),
        ("RLOS", 111, |_, request| {
            request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::EpsRlosAttach);
        }),
        ("emergency with IMEI", 5, |_, request| {
            request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::EpsEmergencyAttach);
            request.eps_mobile_identity =
                NasEpsMobileIdentity::new(vec![0x3b, 0x94, 0x10, 0x32, 0x54, 0x76, 0x98, 0x10]);
        }),
    ];
    for (what, cause, change) in cases {
        let mut network = Network::new();
        let mut request = network.attach_request();
        change(&mut network, &mut request);
        assert_eq!(refused(&mut network, |sent| *sent = request), (cause, None), "{what}");
        let NasEmmMessage::AttachReject(reject) = network.last() else { panic!("{what}") };
        assert_eq!(reject.t3346_value.is_some(), cause == 22, "{what}");
    }
}

#[test]
fn attach_is_rejected_with_esm_cause() {
    let cases: [(&str, (u8, u8), Change); 9] = [
        ("unknown APN", (1, 27), |_, request| {
            request.esm_message_container =
                NasEsmMessageContainer::new([&[0x02, 1, 0xd0, 0x11, 0x28, 4, 3], &b"ims"[..]].concat());
        }),
        ("IPv6 of IPv4", (1, 50), |network, request| {
            network.config.dnns[0].types = vec![PduSessionType::Ipv4];
            request.esm_message_container = connectivity(1, 2, 1);
        }),
        ("IPv4 of IPv6", (1, 51), |network, _| {
            network.config.dnns[0].types = vec![PduSessionType::Ipv6];
            network.subscription.slices[0].dnns[0].types = vec![PduSessionType::Ipv6];
        }),
        ("no subscribed type", (1, 33), |network, _| {
            network.config.dnns[0].types = vec![PduSessionType::Ipv6];
            network.subscription.slices[0].dnns[0].types = vec![PduSessionType::Ipv4];
        }),
        ("non-IP", (1, 28), |_, request| request.esm_message_container = connectivity(1, 5, 1)),
        ("emergency bearer", (1, 31), |_, request| request.esm_message_container = connectivity(1, 1, 4)),
        ("PTI 0", (0, 81), |_, request| request.esm_message_container = connectivity(0, 1, 1)),
        ("no address", (1, 26), |network, _| network.ids.address_pool_empty = true),
        ("no UPF", (1, 26), |network, _| network.config.upfs.clear()),
    ];
    for (what, (pti, cause), change) in cases {
        let mut network = Network::new();
        let mut request = network.attach_request();
        change(&mut network, &mut request);
        assert_eq!(refused(&mut network, |sent| *sent = request), (19, Some((pti, cause))), "{what}");
        // T3396 (6.3.6).
        let NasEmmMessage::AttachReject(reject) = network.last() else { panic!("{what}") };
        let esm = &reject.esm_message_container.as_ref().expect("an ESM message").value;
        let timer = matches!(esm[..], [_, _, _, _, 0x37, 1, value] if (0x60..0xc0).contains(&value));
        assert_eq!(timer, cause == 26, "{what} {esm:02x?}");
    }
}

#[test]
fn attach_without_esm_message_is_rejected() {
    for esm in [vec![], vec![0x07, 0x60, 0x61], vec![0x52, 0x00, 0xce]] {
        let mut network = Network::new();
        let mut request = network.attach_request();
        request.esm_message_container = NasEsmMessageContainer::new(esm);
        network.initial_message(&request);
        let rejected = matches!(network.last(), NasEmmMessage::AttachReject(_) | NasEmmMessage::EmmStatus(_));
        assert!(rejected, "{:?} {:?}", network.last(), network.notes);
        assert_eq!(network.mme_id, None, "the connection is released");
        assert!(network.context().is_none_or(|c| c.procedure.is_none() && !c.is_registered()));
    }
}

#[test]
fn silent_upf_rejects_attach() {
    let mut network = Network::new();
    network.upf_answers = false;
    network.attach();
    let seid = network.context().and_then(|c| c.sessions.first().map(|s| s.pfcp.cp_seid)).expect("a session");
    network.event(Event::PfcpTimeout { seid });
    network.settle();
    assert_eq!(attach_reject(&network), (19, Some((1, 38))));
}

#[test]
fn wrong_key_gets_authentication_reject() {
    let mut network = Network::new();
    network.ue.wrong_key = true;
    network.attach();
    assert!(matches!(network.last(), NasEmmMessage::AuthenticationReject(_)), "{:?}", network.last());
    assert_eq!((network.mme_id, network.context()), (None, None));
    assert!(network.notes.contains(&Note::NotAuthenticated(Kind::Registration)), "{:?}", network.notes);
}

/// The UE learns that it has one address of two (6.5.1.3).
#[test]
fn dual_stack_request_gets_single_type() {
    let mut network = Network::new();
    network.config.dnns[0].types = vec![PduSessionType::Ipv4];
    let mut request = network.attach_request();
    request.esm_message_container = connectivity(1, 3, 1);
    network.initial_message(&request);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    assert_eq!(network.ue.bearer_cause, Some(50));
    // Either version is possible, but not both with one bearer.
    let mut network = Network::new();
    let types = vec![PduSessionType::Ipv4, PduSessionType::Ipv6];
    network.config.dnns[0].types = types.clone();
    network.subscription.slices[0].dnns[0].types = types;
    let mut request = network.attach_request();
    request.esm_message_container = connectivity(1, 3, 1);
    network.initial_message(&request);
    assert_eq!((network.ue.bearer_cause, network.ue.address.is_some()), (Some(52), true));
}

/// There is no CS domain: the UE is attached for EPS services only (5.5.1.3.4.3, 5.5.3.3.4.3).
#[test]
fn combined_requests_get_eps_only() {
    let mut network = Network::new();
    let mut request = network.attach_request();
    request.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::CombinedEpsImsiAttach);
    network.initial_message(&request);
    let NasEmmMessage::AttachAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(accept.eps_attach_result.attach_result(), Some(AttachResult::EpsOnly));
    assert_eq!(accept.emm_cause.as_ref().map(|cause| cause.value), Some(18));
    network.update(UpdateType::CombinedTaLaUpdating);
    let NasEmmMessage::TrackingAreaUpdateAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(accept.eps_update_result.update_result(), Some(UpdateResult::TaUpdated));
    assert_eq!(accept.emm_cause.as_ref().map(|cause| cause.value), Some(18));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.procedure.is_none()));
}

#[test]
fn foreign_guti_is_identified_or_rejected() {
    let mut network = Network::new();
    network.ue.guti = Some(foreign_guti());
    network.attach();
    assert!(network.ue.received.iter().any(|m| matches!(m, NasEmmMessage::IdentityRequest(_))));
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);

    // An update cannot be authenticated without identity: the UE has to attach.
    let mut network = Network::new();
    network.uplink([&[0x07, 0x48, 0x00, 11][..], &foreign_guti().value].concat());
    let cause = |network: &Network| match network.last() {
        NasEmmMessage::TrackingAreaUpdateReject(reject) => reject.emm_cause.value,
        NasEmmMessage::ServiceReject(reject) => reject.emm_cause.value,
        other => panic!("{other:?}"),
    };
    assert_eq!((cause(&network), network.mme_id, network.context()), (9, None, None));
    network.uplink(vec![0xc7, 0x01, 0xde, 0xad]);
    assert_eq!((cause(&network), network.mme_id, network.context()), (9, None, None));
    network.uplink(vec![0x07, 0x4c, 0x01, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef]);
    assert_eq!((cause(&network), network.mme_id, network.context()), (9, None, None));
}

/// A UE that the network has detached learns it (5.5.3.2.5, 5.6.1.5: #10).
#[test]
fn detached_ue_is_told_so() {
    for update in [true, false] {
        let mut network = attached();
        network.detach(true);
        match update {
            true => network.update(UpdateType::TaUpdating),
            false => network.service_request(),
        }
        let cause = match network.last() {
            NasEmmMessage::TrackingAreaUpdateReject(reject) => reject.emm_cause.value,
            NasEmmMessage::ServiceReject(reject) => reject.emm_cause.value,
            other => panic!("{other:?}"),
        };
        assert_eq!((cause, network.mme_id), (10, None));
    }
}

/// Each gets #22 with T3346 (5.3.9), and a registered UE stays registered.
#[test]
fn congested_network_backs_off_requests() {
    let mut network = Network::new();
    network.congested = true;
    network.attach();
    let NasEmmMessage::AttachReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, reject.t3346_value.is_some()), (22, true));
    assert_eq!((network.mme_id, network.context()), (None, None));

    let mut network = attached();
    network.idle();
    network.congested = true;
    network.service_request();
    let NasEmmMessage::ServiceReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, reject.t3346_value.is_some()), (22, true));
    network.update(UpdateType::TaUpdating);
    let NasEmmMessage::TrackingAreaUpdateReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, reject.t3346_value.is_some()), (22, true));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
    network.detach(false);
    assert!(matches!(network.last(), NasEmmMessage::DetachAccept(_)), "a detach frees resources");
}

/// CS fallback: #18 (5.6.1.5). The UE stays attached, and connected if it was.
#[test]
fn cs_fallback_is_rejected() {
    let mut network = attached();
    for connected in [true, false] {
        if !connected {
            network.idle();
        }
        let header = match connected {
            true => NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered,
            false => NasEpsSecurityHeaderType::IntegrityProtected,
        };
        let request = NasEpsMessage::decode(&[0x07, 0x4c, 0x00, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef]).expect("a message");
        network.protected(&request, header);
        let NasEmmMessage::ServiceReject(reject) = network.last() else { panic!("{:?}", network.last()) };
        assert_eq!((reject.emm_cause.value, network.mme_id.is_some()), (18, connected));
        assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
    }
    network.service_request();
    assert_eq!(network.tunnel(), Some(super::TUNNEL));
}

/// A UE without bearer has to attach (5.5.3.2.5, 5.6.1.5: #40).
#[test]
fn ue_without_bearer_has_to_attach() {
    let mut network = attached();
    network.idle();
    network.update_with(UpdateType::PeriodicUpdating, |request| {
        request.eps_bearer_context_status = Some(NasEpsBearerContextStatus::new(vec![0, 0]));
    });
    let NasEmmMessage::TrackingAreaUpdateReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, network.mme_id), (40, None));
    assert!(network.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty()));

    let mut network = attached();
    network.idle();
    network.change(|ue| ue.sessions.clear());
    network.service_request();
    let NasEmmMessage::ServiceReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, network.mme_id), (40, None));
    assert!(network.context().is_some_and(|c| !c.is_registered()));
}

/// Bearers that the UE does not have are released (5.5.3.2.4).
#[test]
fn bearer_status_is_reconciled() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    assert!(network.context().is_some_and(|c| c.sessions.len() == 2), "{:?}", network.notes);
    network.update_with(UpdateType::TaUpdating, |request| {
        request.eps_bearer_context_status = Some(NasEpsBearerContextStatus::new(vec![0x20, 0]));
    });
    let NasEmmMessage::TrackingAreaUpdateAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(accept.eps_bearer_context_status.as_ref().map(|s| s.value.to_vec()), Some(vec![0x20, 0]));
    assert!(network.context().is_some_and(|c| c.sessions.len() == 1));
}

/// Sends an ESM message, and returns the answer: header and cause.
fn answer(network: &mut Network, esm: &[u8]) -> (u8, u8, u8, u8) {
    network.ue.received_esm.clear();
    let message = NasEpsMessage::decode(esm).expect("a message");
    network.protected(&message, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
    let [(ebi, pti, answer)] = &network.ue.received_esm[..] else { panic!("{:?}", network.ue.received_esm) };
    let (kind, cause) = match answer {
        NasEsmMessage::PdnConnectivityReject(m) => (0xd1, m.esm_cause.value),
        NasEsmMessage::PdnDisconnectReject(m) => (0xd3, m.esm_cause.value),
        NasEsmMessage::BearerResourceAllocationReject(m) => (0xd5, m.esm_cause.value),
        NasEsmMessage::BearerResourceModificationReject(m) => (0xd7, m.esm_cause.value),
        NasEsmMessage::EsmStatus(m) => (0xe8, m.esm_cause.value),
        other => panic!("{other:?}"),
    };
    (kind, *ebi, *pti, cause)
}

#[test]
fn esm_request_is_rejected_with_cause() {
    let mut network = attached();
    let before = network.context().map(|c| c.sessions);
    for (esm, wanted) in [
        // PDN CONNECTIVITY REQUEST with an unknown APN.
        (&[&[0x02, 7, 0xd0, 0x11, 0x28, 4, 3], &b"ims"[..]].concat()[..], (0xd1, 0, 7, 27)),
        (&[0x02, 7, 0xd0, 0x51], (0xd1, 0, 7, 28)),
        // No PTI, the reserved one, and a bearer in the header.
        (&[0x02, 0, 0xd0, 0x11], (0xd1, 0, 0, 81)),
        (&[0x02, 255, 0xd0, 0x11], (0xd1, 0, 255, 81)),
        (&[0x52, 7, 0xd0, 0x11], (0xd1, 0, 7, 43)),
        // A connection of another access, which does not exist.
        (&[0x02, 7, 0xd0, 0x12], (0xd1, 0, 7, 54)),
        (&[0x02, 7, 0xd0, 0x16], (0xd1, 0, 7, 54)),
        // PDN DISCONNECT REQUEST of the last connection, and of one that does not exist.
        (&[0x02, 7, 0xd2, 5], (0xd3, 0, 7, 49)),
        (&[0x02, 7, 0xd2, 9], (0xd3, 0, 7, 43)),
        (&[0x02, 0, 0xd2, 5], (0xd3, 0, 0, 81)),
        (&[0x02, 255, 0xd2, 5], (0xd3, 0, 255, 81)),
        (&[0x52, 7, 0xd2, 5], (0xd3, 0, 7, 43)),
        // BEARER RESOURCE ALLOCATION REQUEST: not supported; unknown bearer; no PTI; two faults of
        // the traffic flow aggregate.
        (&[0x02, 7, 0xd4, 5, 4, 0x21, 0, 1, 0, 1, 9], (0xd5, 0, 7, 0)),
        (&[0x02, 7, 0xd4, 9, 1, 0, 1, 9], (0xd5, 0, 7, 43)),
        (&[0x02, 0, 0xd4, 5, 1, 0, 1, 9], (0xd5, 0, 0, 81)),
        (&[0x02, 255, 0xd4, 5, 1, 0, 1, 9], (0xd5, 0, 255, 81)),
        (&[0x52, 7, 0xd4, 5, 1, 0, 1, 9], (0xd5, 0, 7, 43)),
        (&[0x02, 7, 0xd4, 5, 1, 0, 1, 9], (0xd5, 0, 7, 32)),
        (&[0x02, 7, 0xd4, 5, 1, 0xe0, 1, 9], (0xd5, 0, 7, 42)),
        // BEARER RESOURCE MODIFICATION REQUEST.
        (&[0x02, 7, 0xd6, 5, 1, 0], (0xd7, 0, 7, 32)),
        (&[0x02, 7, 0xd6, 9, 1, 0], (0xd7, 0, 7, 43)),
        (&[0x02, 0, 0xd6, 5, 1, 0], (0xd7, 0, 0, 81)),
        (&[0x02, 255, 0xd6, 5, 1, 0], (0xd7, 0, 255, 81)),
        (&[0x52, 7, 0xd6, 5, 1, 0], (0xd7, 0, 7, 43)),
        // ESM STATUS for what is not expected: the end of a bearer that is not released, and ESM
        // information that was not requested.
        (&[0x52, 0, 0xce], (0xe8, 5, 0, 98)),
        (&[0x02, 7, 0xda], (0xe8, 0, 7, 81)),
    ] {
        let answered = answer(&mut network, esm);
        // The fault of a packet filter list is #42 or #45.
        let syntax = wanted.3 == 0 && matches!(answered, (0xd5, 0, 7, 42 | 45));
        assert!(answered == wanted || syntax, "{esm:02x?}: {answered:?}");
    }
    assert_eq!(network.context().map(|c| c.sessions), before, "no refusal changes the bearer");
}

/// 7.3.1 e, f, 7.3.2 e, g: answers that name no procedure or bearer are ignored.
#[test]
fn esm_answer_to_nothing_is_ignored() {
    let mut network = attached();
    let before = network.context().map(|c| c.sessions);
    for esm in [
        // ESM INFORMATION RESPONSE without a PTI, with the reserved one, and with a bearer.
        &[0x02, 0, 0xda][..],
        &[0x02, 255, 0xda],
        &[0x52, 7, 0xda],
        // Answers to the activation, modification and deactivation of a bearer that does not exist.
        &[0x92, 0, 0xc2],
        &[0x92, 0, 0xc3, 31],
        &[0x92, 0, 0xcb, 31],
        &[0x92, 0, 0xce],
        // The reserved PTI, and ESM STATUS of a bearer that does not exist.
        &[0x52, 255, 0xce],
        &[0x92, 0, 0xe8, 43],
    ] {
        network.ue.received_esm.clear();
        let message = NasEpsMessage::decode(esm).expect("a message");
        network.protected(&message, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
        assert!(network.ue.received_esm.is_empty(), "{esm:02x?}: {:?}", network.ue.received_esm);
    }
    assert_eq!(network.context().map(|c| c.sessions), before);
}

/// 6.7: ESM STATUS ends the procedure that the UE does not have.
#[test]
fn esm_status_ends_procedure() {
    for (cause, bearers) in [(81, 1), (97, 1), (43, 1), (98, 2)] {
        let mut network = attached();
        network.ue.remaining = Some(0);
        network.connect(2, None);
        let ebi = network.context().expect("a context").sessions[1].id();
        network.send_esm(NasEsmStatus::new(NasEsmCause::new(cause)), ebi, 2);
        assert_eq!(network.context().map(|c| c.sessions.len()), Some(bearers), "#{cause}: {:?}", network.notes);
    }
}

/// Further PDN connections, up to the limit (#65).
#[test]
fn further_connections_have_a_limit() {
    let mut network = attached();
    let limit = vireo_types::limits::SESSIONS_PER_UE.min(11);
    for n in 1..limit {
        network.connect(1 + n as u8, None);
        assert!(network.context().is_some_and(|c| c.sessions.len() == 1 + n), "{:?}", network.notes);
    }
    assert_eq!(answer(&mut network, &[0x02, 77, 0xd0, 0x11]), (0xd1, 0, 77, 65));
    assert_eq!(succeeded(&network, Kind::Session), limit);
    network.disconnect(78, 6);
    assert!(network.context().is_some_and(|c| c.sessions.len() == limit - 1), "{:?}", network.notes);
    let freed = |effect: &&Effect| matches!(effect, Effect::FreeAddress(..));
    assert_eq!(network.effects.iter().filter(freed).count(), 1);
}

/// ESM INFORMATION RESPONSE has the APN that the attach is for (6.6.1.2.4).
#[test]
fn esm_information_selects_apn() {
    let mut network = Network::new();
    network.subscribe("ims");
    let apn = NasAccessPointName::from_string("ims").expect("an APN");
    network.ue.information = Some(NasEsmInformationResponse::new().with_access_point_name(apn));
    let mut request = network.attach_request();
    request.esm_message_container = NasEsmMessageContainer::new(vec![0x02, 1, 0xd0, 0x11, 0xd1]);
    network.initial_message(&request);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
    assert!(network.context().is_some_and(|c| c.sessions[0].terms.dnn.as_str() == "ims"));
    // It is expected only once.
    network.send_esm(NasEsmInformationResponse::new(), 0, 1);
    let Some((0, 1, NasEsmMessage::EsmStatus(status))) = network.ue.received_esm.last() else {
        panic!("{:?}", network.ue.received_esm)
    };
    assert_eq!(status.esm_cause.value, 81);
    assert!(network.notes.contains(&Note::fault("nas-out-of-place")));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.sessions.len() == 1));
}
