//! Messages of a sender without the keys of a registered UE (TS 24.301 4.4.4.3).
//!
//! The sender knows IMSI and GUTI of the UE, and may use its connection.

use super::attached;
use super::network::{IMSI, Network, emm};
use vireo_core::amf::context::UeContext;
use vireo_core::step::Effect;
use vireo_wire::nas_eps::*;

/// Returns messages of the sender: plain, and with a wrong MAC.
fn forged(network: &Network) -> Vec<Vec<u8>> {
    let guti = network.ue.guti.clone().expect("a GUTI");
    let imsi = NasEpsMobileIdentity::from_imsi(IMSI).expect("an IMSI");
    let mut plain = Vec::new();
    for identity in [guti, imsi] {
        let mut attach = network.attach_request();
        attach.eps_mobile_identity = identity.clone();
        plain.push(emm(attach).encode().expect("it encodes"));
        let identity = [&[identity.value.len() as u8][..], &identity.value].concat();
        // DETACH REQUEST, with and without switch off, and of non-EPS services.
        plain.extend([0x71, 0x79, 0x72].map(|kind| [&[0x07, 0x45, kind], &identity[..]].concat()));
        plain.extend([0x70, 0x73].map(|kind| [&[0x07, 0x48, kind], &identity[..]].concat()));
    }
    plain.extend([
        vec![0x07, 0x46],
        vec![0x07, 0x4c, 0x00, 5, 0xf4, 0xde, 0xad, 0xbe, 0xef],
        vec![0x07, 0x4d, 0x00],
        vec![0x07, 0x5f, 24],
        vec![0x07, 0x5c, 20],
        vec![0x07, 0x5e],
        vec![0x02, 1, 0xd2, 5],
    ]);
    let wrong = plain.iter().map(|plain| [&[0x17, 0xde, 0xad, 0xbe, 0xef, 0][..], plain].concat());
    let ciphered = vec![0x27, 0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3];
    let service = (0..8).map(|key_set| vec![0xc7, key_set << 5, 0xde, 0xad]);
    wrong.chain(service).chain([ciphered]).chain(plain.clone()).collect()
}

fn harms(effect: &Effect) -> bool {
    matches!(effect, Effect::BindSupi(_) | Effect::BindSupiSince(..) | Effect::FreeTmsi(_) | Effect::FreeAddress(..))
}

/// On the UE's connection each is discarded.
#[test]
fn connected_ue_is_not_disturbed() {
    let mut network = attached();
    let before = network.context().expect("a context");
    let (sent, effects) = (network.kinds.len(), network.effects.len());
    for nas in forged(&network) {
        network.uplink(nas.clone());
        let after = network.context().map(|ue| UeContext { sequence: before.sequence, ..ue });
        assert_eq!((after.as_ref(), network.kinds.len()), (Some(&before), sent), "{nas:02x?}");
        assert_eq!(network.effects.len(), effects, "{nas:02x?}");
    }
    network.idle();
    network.service_request();
    assert_eq!(network.tunnel(), Some(super::TUNNEL));
}

/// On another connection each gets a context of its own, without effect on the UE.
#[test]
fn idle_ue_is_not_disturbed() {
    let mut network = attached();
    network.idle();
    let before = network.context().expect("a context");
    for nas in forged(&network) {
        let effects = network.effects.len();
        // The sender does not have the keys: it answers no request of the network.
        network.ue.remaining = Some(0);
        network.uplink(nas.clone());
        network.wait(vireo_types::Duration::from_secs(40));
        assert_eq!(network.old_contexts, std::slice::from_ref(&before), "{nas:02x?}");
        assert!(!network.effects[effects..].iter().any(harms), "{nas:02x?}: {:?}", &network.effects[effects..]);
        assert_eq!(network.mme_id, None, "{nas:02x?}: its connection is released");
        assert_eq!(network.context(), None, "{nas:02x?}: nothing of it is kept");
        network.restore();
    }
    network.ue.remaining = None;
    network.service_request();
    assert_eq!(network.tunnel(), Some(super::TUNNEL));
}
