//! Timers of the network: retransmission and the end after the last one (TS 24.301 10.2).

use super::attached;
use super::network::{Network, emm};
use vireo_core::amf::context::Registration;
use vireo_core::amf::engine::Event;
use vireo_core::step::{Kind, Note};
use vireo_types::{DeregistrationCause, Duration};
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::S1apPduKind;

/// Default of T3413, T3422, T3450, T3460 and T3470 retransmissions.
const RETRANSMISSIONS: usize = 4;

/// Returns the number of NAS messages that the eNB was sent.
fn sent(network: &Network) -> usize {
    let is_nas = |kind: &&S1apPduKind| **kind == S1apPduKind::Initiating_downlinkNASTransport;
    network.kinds.iter().filter(is_nas).count()
}

/// T3470, T3460: identification, authentication and security mode control end without an answer to
/// the UE (5.4.2.7 b, 5.4.3.7 b, 5.4.4.6 b).
#[test]
fn silent_ue_ends_common_procedure() {
    for (guti, received) in [(true, 0), (false, 0), (false, 1)] {
        let mut network = Network::new();
        network.ue.guti = guti.then(super::foreign_guti);
        network.ue.remaining = Some(received);
        network.attach();
        assert_eq!(sent(&network), 1 + received);
        network.wait(Duration::from_secs(6 * RETRANSMISSIONS as u64 + 5));
        assert_eq!(sent(&network), 1 + received + RETRANSMISSIONS);
        assert!(network.mme_id.is_some(), "it may still answer");
        network.wait(Duration::from_secs(2));
        assert_eq!(sent(&network), 1 + received + RETRANSMISSIONS, "no reject");
        assert_eq!(network.mme_id, None, "the connection is released");
        assert!(network.notes.contains(&Note::Failed(Kind::Registration, 0)), "{:?}", network.notes);
        assert_eq!(network.context(), None, "nothing of the UE is kept");
    }
}

/// T3450 of an attach: the network detaches the UE (5.5.1.2.7 c).
#[test]
fn attach_without_complete_is_aborted() {
    let mut network = Network::new();
    network.ue.remaining = Some(2);
    network.attach();
    assert!(network.context().is_some_and(|c| c.is_registered()));
    let before = sent(&network);
    network.wait(Duration::from_secs(29));
    assert_eq!(sent(&network), before + RETRANSMISSIONS);
    network.wait(Duration::from_secs(2));
    let context = network.context().expect("its keys are kept");
    assert_eq!((context.registration, context.sessions.len()), (Registration::Deregistered, 0));
    assert!(context.identity.tmsi.is_some(), "the UE may use the GUTI");
    assert_eq!((network.mme_id, context.procedure), (None, None));
    assert!(network.notes.contains(&Note::Failed(Kind::Registration, 0)), "{:?}", network.notes);
}

/// A UE that has received a retransmitted ATTACH ACCEPT completes the attach.
#[test]
fn retransmitted_accept_completes_attach() {
    let mut network = Network::new();
    network.ue.remaining = Some(2);
    network.attach();
    network.ue.remaining = None;
    network.wait(Duration::from_secs(7));
    assert!(matches!(network.last(), NasEmmMessage::AttachAccept(_)), "{:?}", network.notes);
    assert_eq!(super::succeeded(&network, Kind::Registration), 1);
}

/// T3450 of an update: both GUTIs stay valid, and the UE stays registered (5.5.3.2.7 c).
#[test]
fn update_without_complete_keeps_both_gutis() {
    let mut network = attached();
    network.idle();
    let old = network.context().and_then(|c| c.identity.tmsi);
    network.ue.remaining = Some(0);
    network.update(UpdateType::TaUpdating);
    let before = sent(&network);
    network.wait(Duration::from_secs(31));
    assert_eq!(sent(&network), before + RETRANSMISSIONS);
    let context = network.context().expect("a context");
    assert!(context.is_registered() && context.procedure.is_none());
    assert_eq!(context.identity.old_tmsi, old);
    assert_ne!(context.identity.tmsi, old);
}

/// T3422: the UE counts as detached after the last retransmission (5.5.2.3.5 a).
#[test]
fn detach_without_answer_is_completed() {
    let mut network = attached();
    network.ue.remaining = Some(0);
    let before = sent(&network);
    network.event(Event::Deregister { reregister: false, cause: None });
    network.settle();
    network.wait(Duration::from_secs(29));
    assert_eq!(sent(&network), before + 1 + RETRANSMISSIONS);
    assert!(network.context().is_some_and(|c| c.is_registered()));
    network.wait(Duration::from_secs(2));
    let context = network.context().expect("its keys are kept");
    assert_eq!((context.registration, context.sessions.len()), (Registration::Deregistered, 0));
    assert_eq!(network.mme_id, None);
}

#[test]
fn detach_by_network_is_completed_by_answer() {
    for (reregister, kind) in
        [(true, NetworkDetachKind::ReattachRequired), (false, NetworkDetachKind::ReattachNotRequired)]
    {
        let mut network = attached();
        network.event(Event::Deregister { reregister, cause: None });
        network.settle();
        let NasEmmMessage::DetachRequestUeTerminated(request) = network.last() else { panic!("{:?}", network.last()) };
        assert_eq!(request.detach_type.network_detach_kind(), kind);
        network.protected(&emm(NasDetachAccept::new()), NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
        assert!(network.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty()));
        assert_eq!((network.mme_id, super::succeeded(&network, Kind::Deregistration)), (None, 1));
    }
}

/// #27 is of 5G: the UE of 4G gets #15, and so does one that answers a page.
#[test]
fn operator_detaches_with_cause() {
    for (cause, expected, idle) in [(14, 14, false), (27, 15, true)] {
        let mut network = attached();
        if idle {
            network.idle();
        }
        let cause = DeregistrationCause::try_from(cause).ok();
        network.event(Event::Deregister { reregister: false, cause });
        network.settle();
        if idle {
            network.service_request();
        }
        let NasEmmMessage::DetachRequestUeTerminated(request) = network.last() else { panic!("{:?}", network.last()) };
        assert_eq!(request.emm_cause.as_ref().map(|cause| cause.value), Some(expected));
        assert_eq!(request.detach_type.network_detach_kind(), NetworkDetachKind::ReattachNotRequired);
        network.wait(Duration::from_secs(31));
        assert!(network.context().is_some_and(|c| !c.is_registered() && c.connection.is_none()));
    }
}

/// T3489: the attach is rejected with #53 (6.6.1.2.6 a).
#[test]
fn missing_esm_information_rejects_attach() {
    let mut network = Network::new();
    network.ue.remaining = Some(2);
    let mut request = network.attach_request();
    request.esm_message_container = NasEsmMessageContainer::new(vec![0x02, 1, 0xd0, 0x11, 0xd1]);
    network.initial_message(&request);
    let before = sent(&network);
    network.wait(Duration::from_secs(11));
    assert_eq!(sent(&network), before + 2);
    network.ue.remaining = None;
    network.wait(Duration::from_secs(2));
    assert_eq!(super::attach_reject(&network), (19, Some((1, 53))));
    assert_eq!(network.mme_id, None);
    assert!(network.context().is_none_or(|c| !c.is_registered() && c.sessions.is_empty()));
}

/// T3413: the UE counts as unreachable, and the next packet pages it again (5.6.2.2.1).
#[test]
fn paging_without_answer_ends() {
    let mut network = attached();
    network.idle();
    let pages =
        |network: &Network| network.kinds.iter().filter(|kind| **kind == S1apPduKind::Initiating_Paging).count();
    network.downlink_data();
    assert_eq!(pages(&network), 1);
    network.wait(Duration::from_secs(60));
    assert_eq!(pages(&network), 1 + RETRANSMISSIONS);
    assert!(network.notes.contains(&Note::Failed(Kind::Paging, 0)), "{:?}", network.notes);
    assert!(network.context().is_some_and(|c| c.procedure.is_none() && c.is_registered()));
    network.downlink_data();
    assert_eq!(pages(&network), 2 + RETRANSMISSIONS);
}

/// T3412 and 4 minutes: the UE is not paged any more; another 4 minutes: it is detached (5.3.5).
#[test]
fn silent_idle_ue_is_detached() {
    let mut network = attached();
    network.idle();
    let t3412 = network.config.timers.t3512;
    network.wait(Duration::from_secs(t3412.as_secs() + 239));
    assert!(network.context().is_some_and(|c| !c.reachability.unreachable));
    network.wait(Duration::from_secs(2));
    assert!(network.context().is_some_and(|c| c.is_registered() && c.reachability.unreachable));
    network.downlink_data();
    assert!(!network.kinds.contains(&S1apPduKind::Initiating_Paging));
    network.wait(Duration::from_secs(240));
    assert!(network.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty()));
    // The UE returns: it is told that it was detached.
    network.service_request();
    assert!(matches!(network.last(), NasEmmMessage::ServiceReject(reject) if reject.emm_cause.value == 10));
}

/// T3485: a bearer whose UE does not answer is released (6.4.1.6 a).
#[test]
fn bearer_without_answer_is_released() {
    let mut network = attached();
    network.subscribe("ims");
    network.ue.remaining = Some(0);
    network.connect(2, Some("ims"));
    assert!(network.context().is_some_and(|c| c.sessions.len() == 2), "{:?}", network.notes);
    let before = sent(&network);
    network.wait(Duration::from_secs(39));
    assert_eq!(sent(&network), before + RETRANSMISSIONS);
    network.wait(Duration::from_secs(2));
    assert!(network.context().is_some_and(|c| c.sessions.iter().filter(|s| s.is_live()).count() == 1));
    assert!(network.context().is_some_and(|c| c.is_registered()));
}

/// The UE has not received the activation request, and repeats its own (T3482). A second bearer
/// would stay without use.
#[test]
fn repeated_connectivity_request_adds_no_bearer() {
    let mut network = attached();
    network.subscribe("ims");
    network.ue.remaining = Some(0);
    network.connect(2, Some("ims"));
    network.ue.remaining = None;
    network.connect(2, Some("ims"));
    let Some((6, 2, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(_))) = network.ue.received_esm.last() else {
        panic!("{:?}", network.ue.received_esm)
    };
    let bearers = |network: &Network| network.context().map(|c| c.sessions.iter().map(|s| s.id()).collect::<Vec<_>>());
    assert_eq!(bearers(&network), Some(vec![5, 6]));
    // The PTI is free again.
    network.connect(2, Some("ims"));
    assert_eq!(bearers(&network), Some(vec![5, 6, 7]));
    // The UPF has not answered the first one.
    network.upf_answers = false;
    network.connect(3, Some("ims"));
    network.connect(3, Some("ims"));
    network.upf_catches_up();
    assert_eq!(bearers(&network), Some(vec![5, 6, 7, 8]));
}

/// T3495: the bearer is released without the UE's answer (6.4.4.5 a).
#[test]
fn deactivation_without_answer_ends() {
    let mut network = attached();
    network.subscribe("ims");
    network.connect(2, Some("ims"));
    network.ue.remaining = Some(0);
    network.disconnect(3, 6);
    let before = sent(&network);
    network.wait(Duration::from_secs(39));
    assert_eq!(sent(&network), before + RETRANSMISSIONS);
    network.wait(Duration::from_secs(2));
    assert!(network.context().is_some_and(|c| c.sessions.len() == 1), "{:?}", network.notes);
}
