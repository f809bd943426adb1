//! HASHMME of requests without valid protection (TS 24.301 4.4.4.3, 5.4.3; TS 33.401 7.2.4.4).

use super::kdf::hash_mme;
use super::network::{Network, emm};
use super::{attached, succeeded};
use vireo_core::step::{Kind, Note};
use vireo_types::Duration;
use vireo_wire::nas_eps::*;

/// Returns HASHMME of each SECURITY MODE COMMAND to the UE.
fn hashes(network: &Network) -> Vec<Option<Vec<u8>>> {
    let hash = |message: &NasEmmMessage| match message {
        NasEmmMessage::SecurityModeCommand(command) => Some(command.hash_mme.as_ref().map(|hash| hash.value.to_vec())),
        _ => None,
    };
    network.ue.received.iter().filter_map(hash).collect()
}

fn plain(request: &NasAttachRequest) -> Vec<u8> {
    emm(request.clone()).encode().expect("it encodes")
}

#[test]
fn unprotected_attach_gets_its_hash() {
    let mut network = Network::new();
    let request = network.attach_request();
    network.initial_message(&request);
    assert_eq!(hashes(&network), [Some(hash_mme(&plain(&request)))]);
}

/// The MAC is that of keys that the network does not have.
#[test]
fn unverified_attach_gets_its_hash() {
    let mut network = attached();
    network.idle();
    network.ue.received.clear();
    let request = network.attach_request();
    let mut nas = network.ue.keys.as_mut().expect("keys").protect(
        &emm(request.clone()),
        NasEpsSecurityHeaderType::IntegrityProtected,
        Direction::Uplink,
    );
    nas.as_mut().expect("it encodes")[1] ^= 1;
    network.uplink(nas.expect("it encodes"));
    assert_eq!(hashes(&network), [Some(hash_mme(&plain(&request)))], "{:?}", network.notes);
    assert_eq!(succeeded(&network, Kind::Registration), 2);
}

/// The authentication of an attach that verifies needs no hash, nor does that of a service request.
#[test]
fn verified_request_gets_no_hash() {
    let mut network = attached();
    for attaches in [true, false] {
        network.idle();
        network.ue.received.clear();
        network.change(|ue| ue.pending.authenticate = true);
        match attaches {
            true => network.attach(),
            false => network.service_request(),
        }
        assert_eq!(hashes(&network), [None], "{:?}", network.notes);
    }
}

/// T3460: a retransmitted command has the hash, too.
#[test]
fn retransmitted_command_has_hash() {
    let mut network = Network::new();
    let request = network.attach_request();
    network.ue.remaining = Some(1);
    network.initial_message(&request);
    network.ue.remaining = None;
    network.wait(Duration::from_secs(7));
    assert_eq!(hashes(&network), [Some(hash_mme(&plain(&request)))]);
    assert_eq!(succeeded(&network, Kind::Registration), 1, "{:?}", network.notes);
}

/// 5.4.3.4: the request of SECURITY MODE COMPLETE is that which counts.
#[test]
fn repeated_attach_replaces_altered_one() {
    let mut network = Network::new();
    network.subscribe("ims");
    let altered = network.attach_request();
    let mut sent = altered.clone();
    sent.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::CombinedEpsImsiAttach);
    let mut connect = NasPdnConnectivityRequest::new(
        NasRequestType::from_request_type(RequestTypeValue::Initial),
        NasPdnType::from_pdn_type(PdnType::Ipv4),
    );
    connect.access_point_name = NasAccessPointName::from_string("ims").ok();
    let esm = NasEpsMessage::new_esm(connect, 0, 1).encode().expect("it encodes");
    sent.esm_message_container = NasEsmMessageContainer::new(esm);
    network.ue.repeated = Some(plain(&sent));
    network.initial_message(&altered);
    assert!(network.notes.contains(&Note::fault("attach-request-altered")));
    let NasEmmMessage::AttachAccept(accept) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!(accept.emm_cause.as_ref().map(|cause| cause.value), Some(18), "the attach is a combined one");
    assert!(network.context().is_some_and(|c| c.sessions[0].terms.dnn.as_str() == "ims"));
}

#[test]
fn repeated_attach_may_be_refused() {
    let mut network = Network::new();
    let altered = network.attach_request();
    let mut sent = altered.clone();
    sent.eps_attach_type = NasEpsAttachType::from_attach_type(AttachType::EpsRlosAttach);
    network.ue.repeated = Some(plain(&sent));
    network.initial_message(&altered);
    let NasEmmMessage::AttachReject(reject) = network.last() else { panic!("{:?}", network.last()) };
    assert_eq!((reject.emm_cause.value, network.mme_id), (111, None));
}

/// A container with something else changes nothing of the attach.
#[test]
fn other_repeated_message_is_ignored() {
    for other in [&[0x07, 0x48, 0x70][..], &[0x07, 0x41], &[0xff; 30]] {
        let mut network = Network::new();
        network.ue.repeated = Some(other.to_vec());
        network.attach();
        assert_eq!(succeeded(&network, Kind::Registration), 1, "{other:02x?}: {:?}", network.notes);
        assert!(!network.notes.contains(&Note::fault("attach-request-altered")));
    }
}
