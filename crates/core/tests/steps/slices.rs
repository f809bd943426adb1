//! Slices: allowed, rejected and configured NSSAI by subscription, PLMN, tracking area and gNB.

use crate::lab::nas::{CIPHERED, protected};
use crate::lab::{Lab, SLICE};
use std::sync::Arc;
use vireo_core::amf::context::UeContext;
use vireo_core::amf::ran::RanNode;
use vireo_core::config::{SliceConfig, SliceProfile};
use vireo_core::step::{Kind, Note};
use vireo_core::subscription::{DnnSubscription, SliceSubscription};
use vireo_emulator::ue::Registration;
use vireo_types::{AssocId, Snssai, Tac};
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, ie};
use vireo_wire::security::CipheringAlgorithm;

const METERS: Snssai = Snssai { sst: 3, sd: Some(0xab) };
const FOREIGN: Snssai = Snssai { sst: 9, sd: None };

/// Returns a network with two slices, both subscribed, which each gNB supports. The UE requests
/// `requested`.
fn network(requested: Snssai) -> Lab {
    let mut lab = Lab::new();
    let first = lab.config.slices[0].clone();
    lab.config.slices.push(SliceConfig {
        name: "meters".into(),
        snssai: METERS,
        profile: SliceProfile::default(),
        ..first
    });
    lab.config.security.ciphering = vec![CipheringAlgorithm::NEA0];
    let dnns = vec![DnnSubscription::default()];
    lab.subscription.slices.push(SliceSubscription { snssai: METERS, default: false, dnns });
    (0..2).for_each(|n| support(&mut lab, n, &[SLICE, METERS]));
    lab.profile.snssai = requested;
    lab
}

/// Changes the slices of gNB `n`.
fn support(lab: &mut Lab, n: usize, slices: &[Snssai]) {
    let node = lab.nodes.0[n].1.as_mut().expect("a node");
    let areas = Arc::make_mut(&mut node.areas);
    areas.iter_mut().for_each(|area| area.slices = slices.to_vec());
}

fn register(lab: &mut Lab) {
    lab.ue_does(|ue, p, out| ue.register(p, Registration::Fresh, out).expect("a request"));
}

fn context(lab: &Lab) -> UeContext {
    lab.context().expect("a context")
}

fn area(lab: &Lab) -> Vec<Tac> {
    context(lab).reachability.area.iter().map(|tai| tai.tac).collect()
}

/// Slices of a registration response: allowed, rejected and configured NSSAI.
type Answer = (Vec<(u8, Option<u32>)>, Vec<(u8, u8)>, Vec<(u8, Option<u32>)>);

fn slices(nssai: Option<&NasNssai>) -> Vec<(u8, Option<u32>)> {
    let one = |s: &SNssaiContents| (s.sst, s.sd.map(|[a, b, c]| u32::from_be_bytes([0, a, b, c])));
    nssai.map(|nssai| nssai.parse_all().iter().map(one).collect()).unwrap_or_default()
}

/// Returns cause and SST of the entries of a rejected NSSAI (TS 24.501 9.11.3.46).
fn rejected(nssai: Option<&NasRejectedNssai>) -> Vec<(u8, u8)> {
    let mut octets = nssai.map_or(&[][..], |nssai| &nssai.value);
    let mut entries = Vec::new();
    while let [head, sst, ..] = octets {
        entries.push((head & 0xf, *sst));
        octets = &octets[1 + usize::from(head >> 4)..];
    }
    entries
}

/// Returns the slices in the last registration response, which is not ciphered.
fn answer(lab: &Lab) -> Answer {
    for pdu in lab.sent.iter().rev() {
        let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
        if !matches!(
            pdu.kind(),
            NgapPduKind::Initiating_InitialContextSetup | NgapPduKind::Initiating_DownlinkNASTransport
        ) {
            continue;
        }
        let Some(Ok(nas)) = pdu.ie::<ie::NAS_PDU>() else { continue };
        let plain = match &nas.0[..] {
            [0x7e, 0, ..] => &nas.0[..],
            protected => &protected[7..],
        };
        match Nas5gsMessage::decode(plain) {
            Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(m))) => {
                let allowed = slices(m.allowed_nssai.as_ref());
                return (allowed, rejected(m.rejected_nssai.as_ref()), slices(m.configured_nssai.as_ref()));
            }
            Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationReject(m))) => {
                return (Vec::new(), rejected(m.rejected_nssai.as_ref()), Vec::new());
            }
            _ => {}
        }
    }
    panic!("no registration response")
}

/// Has the registered UE request mobility registration updating, with these further IEs. Returns
/// the accept, which the UE does not get.
fn update(lab: &mut Lab, ies: &[u8]) -> NasRegistrationAccept {
    let tmsi = context(lab).identity.tmsi.expect("a 5G-TMSI").0.to_be_bytes();
    let identity = [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi].concat();
    let plain = [&[0x7e, 0, 0x41, 0x0a][..], &identity, ies].concat();
    let keys = context(lab).security.expect("keys");
    lab.reachable = false;
    lab.inject(&protected(&keys, CIPHERED, &plain));
    let pdus = lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
    let mut messages = pdus.filter_map(|pdu| Nas5gsMessage::decode(pdu.ie::<ie::NAS_PDU>()?.ok()?.0.get(7..)?).ok());
    match messages.next() {
        Some(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(accept))) => *accept,
        other => panic!("{other:?}"),
    }
}

const BOTH: [(u8, Option<u32>); 2] = [(1, None), (3, Some(0xab))];

#[test]
fn requested_slice_is_allowed_where_supported() {
    let mut lab = network(METERS);
    register(&mut lab);
    assert_eq!(answer(&lab), (vec![(3, Some(0xab))], vec![], vec![]));
    assert_eq!((context(&lab).allowed.to_vec(), area(&lab)), (vec![METERS], vec![Tac(1), Tac(2)]));
}

/// TS 24.501 9.11.3.46: 1 = not available in the current registration area.
#[test]
fn slice_unsupported_by_gnb_is_rejected_for_area() {
    let mut lab = network(METERS);
    support(&mut lab, 0, &[SLICE]);
    register(&mut lab);
    // The default slice takes its place.
    assert_eq!(answer(&lab), (vec![(1, None)], vec![(1, 3)], vec![]));
    assert_eq!(context(&lab).allowed.to_vec(), [SLICE]);
}

/// The registration area has no tracking area whose gNBs lack an allowed slice.
#[test]
fn area_leaves_out_ta_without_allowed_slice() {
    let mut lab = network(METERS);
    support(&mut lab, 1, &[SLICE]);
    register(&mut lab);
    assert_eq!((context(&lab).allowed.to_vec(), area(&lab)), (vec![METERS], vec![Tac(1)]));
    let mut lab = network(SLICE);
    support(&mut lab, 1, &[SLICE]);
    register(&mut lab);
    assert_eq!(area(&lab), [Tac(1), Tac(2)]);
}

/// A gNB that announces all tracking areas without a slice takes it from no UE of other gNBs.
#[test]
fn contradicting_gnb_shrinks_no_area() {
    let mut lab = network(METERS);
    let nodes: Vec<_> = lab.nodes.0.iter().filter_map(|(_, node)| node.clone()).collect();
    let mut areas: Vec<_> = nodes.iter().flat_map(|node| node.areas.to_vec()).collect();
    areas.iter_mut().for_each(|area| area.slices = vec![SLICE]);
    let contradicting = RanNode { areas: areas.into(), ..nodes[0].clone() };
    lab.nodes.0.push((AssocId(77), Some(contradicting.clone())));
    register(&mut lab);
    assert_eq!((context(&lab).allowed.to_vec(), area(&lab)), (vec![METERS], vec![Tac(1), Tac(2)]));
    // Most gNBs of a tracking area decide. The UE's own one stays.
    let mut lab = network(METERS);
    lab.nodes.0.extend([77, 78].map(|assoc| (AssocId(assoc), Some(contradicting.clone()))));
    register(&mut lab);
    assert_eq!((context(&lab).allowed.to_vec(), area(&lab)), (vec![METERS], vec![Tac(1)]));
}

/// 0 = not available in the current PLMN. The UE then gets the configured NSSAI.
#[test]
fn foreign_slice_is_rejected_for_plmn() {
    let mut lab = network(FOREIGN);
    register(&mut lab);
    assert_eq!(answer(&lab), (vec![(1, None)], vec![(0, 9)], BOTH.to_vec()));
    // A subscribed slice that the network does not serve, and a served one that is not subscribed.
    for remove_subscription in [true, false] {
        let mut lab = network(METERS);
        match remove_subscription {
            true => _ = lab.subscription.slices.pop(),
            false => _ = lab.config.slices.pop(),
        }
        register(&mut lab);
        assert_eq!(answer(&lab), (vec![(1, None)], vec![(0, 3)], vec![(1, None)]));
    }
}

/// TS 24.501 5.5.1.3.4 d: network slicing indication with DCNI. An S-NSSAI counts once.
#[test]
fn default_configured_nssai_is_replaced() {
    for (indication, configured) in [(&[0x92][..], BOTH.to_vec()), (&[0x90], vec![]), (&[], vec![])] {
        let mut lab = network(SLICE);
        register(&mut lab);
        let requested = [0x2f, 4, 1, 1, 1, 1];
        let accept = update(&mut lab, &[&requested[..], indication].concat());
        assert_eq!(slices(accept.configured_nssai.as_ref()), configured, "{indication:x?}");
        assert_eq!(slices(accept.allowed_nssai.as_ref()), [(1, None)]);
    }
}

/// TS 24.501 9.11.3.1 (octet 5, bit 5), 9.11.3.75: one list without a back-off time.
#[test]
fn rejected_nssai_is_extended_if_supported() {
    for (octet, is_extended) in [(0x10, true), (0xef, false)] {
        let mut lab = network(SLICE);
        register(&mut lab);
        support(&mut lab, 0, &[SLICE]);
        // Of another network, and not supported by the gNB.
        let requested = [0x2f, 9, 1, 9, 1, 1, 4, 3, 0, 0, 0xab];
        let accept = update(&mut lab, &[&[0x10, 3, 0, 0, octet][..], &requested].concat());
        let extended = accept.extended_rejected_nssai.map(|nssai| nssai.value.to_vec());
        assert_eq!(extended, is_extended.then(|| vec![0x01, 0x10, 9, 0x41, 3, 0, 0, 0xab]));
        let usual = rejected(accept.rejected_nssai.as_ref());
        assert_eq!(usual, if is_extended { vec![] } else { vec![(0, 9), (1, 3)] });
    }
}

#[test]
fn no_usable_slice_rejects_with_reasons() {
    let mut lab = network(METERS);
    support(&mut lab, 0, &[FOREIGN]);
    register(&mut lab);
    assert_eq!(answer(&lab), (vec![], vec![(1, 3)], vec![]));
    assert!(lab.notes.contains(&Note::Failed(Kind::Registration, 62)), "{:?}", lab.notes);
    assert!(lab.context().is_none());
}

/// An SD of FFFFFF says that the SST has no SD (TS 23.003 28.4.2), for UEs and gNBs.
#[test]
fn sd_of_all_ones_equals_absent_sd() {
    let mut lab = network(Snssai { sst: 1, sd: Some(0x00ff_ffff) });
    register(&mut lab);
    assert_eq!(answer(&lab), (vec![(1, None)], vec![], vec![]));
    lab.session(1);
    assert_eq!(context(&lab).sessions[0].terms.snssai, SLICE);
    // Any other SD is another slice.
    let mut lab = network(Snssai { sst: 1, sd: Some(0) });
    register(&mut lab);
    assert_eq!(answer(&lab).1, [(0, 1)]);
}

/// A UE that moves to a tracking area without its slice gets another one, and the session in the
/// slice ends.
#[test]
fn move_to_ta_without_slice_ends_session() {
    let mut lab = network(METERS);
    register(&mut lab);
    lab.session(1);
    assert_eq!(context(&lab).sessions[0].terms.snssai, METERS);
    lab.idle();
    support(&mut lab, 1, &[SLICE]);
    lab.at = 1;
    lab.ue_does(|ue, p, out| ue.register(p, Registration::Mobility, out).expect("a request"));
    let context = context(&lab);
    assert_eq!((context.allowed.to_vec(), context.sessions.len()), (vec![SLICE], 0));
    assert_eq!(lab.ue.active_sessions().count(), 0, "the PDU session status says so");
}
