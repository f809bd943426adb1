use super::device::Device;
use super::library::{self, Library};
use super::message::{Message, depth, protect};
use super::nas::Names;
use super::report::{Depth, Growth, Level, Mutations, State};
use super::{element, nas, octets};
use crate::dialect::{Node, Protocol, UeIds};
use crate::load::Rng;
use crate::options::Options;
use crate::rat::{Rat, Rats};
use crate::scenario::Scenario;
use crate::ue::security::{NasSecurity, SecurityContext};
use crate::ue::{MmState, Registration};
use vireo_wire::nas::{self as nas_codec, Direction, Nas5gsMessage, NasSecurityContext};
use vireo_wire::nas_eps::{Direction as EpsDirection, NasEpsMessage};
use vireo_wire::security::nas_5gs::KAmf;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

const BOTH: [Rat; 2] = [Rat::Nr, Rat::Eps];
const IDS: UeIds = UeIds { core: 0x1234_5678, ran: 0x0102 };

fn options(rat: Rat) -> Options {
    let core = "10.0.0.1:38412".parse().expect("an address");
    let rats = if rat == Rat::Nr { Rats::Nr } else { Rats::Eps };
    let scenario = Scenario::find_for(rats, "mutate").expect("is listed");
    Options { rats, ..Options::lab(core, scenario) }
}

fn node(rat: Rat) -> Node {
    Node::new(&options(rat), rat, 0)
}

fn names(rat: Rat) -> Names {
    let (suci, guti, psi) = match rat {
        Rat::Nr => (vec![1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10], 0xf2, 1),
        Rat::Eps => (vec![0x99, 0x99, 0x07, 0, 0, 0, 0, 0x10], 0xf6, 5),
    };
    Names { rat, suci, guti: Some([guti; 11]), ksi: Some(3), psi, sst: 1, dnn: "internet".into() }
}

/// Returns a UE in the state of a registered one, with a security context of these keys.
fn device(rat: Rat) -> Device {
    let options = options(rat);
    let mut device = Device::new(&options, 0).expect("there is a subscriber");
    device.out.clear();
    device.ue.register(&options, Registration::Fresh, &mut device.out).expect("it is switched off");
    assert_eq!((device.ue.mm(), device.state()), (MmState::Registering, State::NoContext));
    device
}

#[test]
fn mutated_octets_differ_and_are_bounded() {
    let mut rng = Rng::new(1);
    for length in [0, 1, 2, 40, 900] {
        for from in [0, 3] {
            for _ in 0..2000 {
                let before: Vec<u8> = (0..length).map(|n| n as u8).collect();
                let mut after = before.clone();
                octets::mutate(&mut after, from, &mut rng);
                assert_ne!(before, after, "{length} octets from {from}");
                assert!(after.len() <= octets::MAX_MESSAGE_OCTETS);
                let head = from.min(length);
                assert_eq!(before[..head], after[..head]);
            }
        }
    }
}

#[test]
fn mutated_elements_mostly_decode() {
    for rat in BOTH {
        let (mut rng, protocol) = (Rng::new(2), Protocol::by_rat(rat));
        let library = Library::new(&node(rat), &node(rat));
        let (mut decoded, all) = (0, 3000);
        for _ in 0..all {
            let sound = library.about(IDS, &mut rng).expect("a PDU");
            assert!(protocol.decodes(&sound), "{sound:02x?}");
            let mutated = element::mutate(protocol, &sound, library.any(&mut rng), &mut rng);
            assert_ne!(sound, mutated);
            decoded += u32::from(protocol.decodes(&mutated));
        }
        assert!(decoded > all * 8 / 10, "{decoded} of {all} decode");
    }
}

#[test]
fn clause_10_tells_what_is_answered() {
    for (rat, paging_code) in [(Rat::Nr, 24), (Rat::Eps, 10)] {
        let protocol = Protocol::by_rat(rat);
        let because = |octets: &[u8]| protocol.answered_because(octets);
        let sound = library::uplink_nas(&node(rat), IDS, &[0x7e, 0, 0x43]).expect("a PDU");
        assert_eq!(because(&sound), None);
        assert!(because(&sound[..sound.len() - 1]).is_some_and(|why| why.contains("10.2")));
        let mut unknown = sound.clone();
        (unknown[1], unknown[2]) = (200, 0);
        assert!(because(&unknown).is_some_and(|why| why.contains("10.3.4.1")));
        unknown[2] = 0x40;
        assert_eq!(because(&unknown), None, "of criticality ignore");
        let mut elements = protocol.elements(&sound);
        elements.remove(2);
        let missing = protocol.with_elements(&sound, &elements).expect("it encodes");
        assert!(because(&missing).is_some_and(|why| why.contains("10.3.5")));
        let mut paging = sound.clone();
        (paging[1], paging[2]) = (paging_code, 0x40);
        assert_eq!(because(&paging), None, "not a procedure of RAN nodes");
        paging[2] = 0;
        assert_eq!(because(&paging), None, "a core may have it");
        let mut answer = sound;
        answer[0] = 0x20;
        assert_eq!(because(&answer), None, "an outcome is handled locally");
    }
}

#[test]
fn mutated_nas_differs_and_is_read_at_times() {
    let reads = |rat, octets: &[u8]| match rat {
        Rat::Nr => Nas5gsMessage::decode(octets).is_ok(),
        Rat::Eps => NasEpsMessage::decode_with_direction(octets, EpsDirection::Uplink).is_ok(),
    };
    for rat in BOTH {
        let (mut rng, names) = (Rng::new(3), names(rat));
        let (mut read, mut inner_read, all) = (0, 0, 4000);
        for n in 0..all {
            let sound = if n % 2 == 0 { nas::mm(&names, &mut rng) } else { nas::sm(&names, &mut rng) };
            let mut mutated = sound.clone();
            nas::mutate(&mut mutated, rat, &mut rng);
            assert_ne!(sound, mutated);
            read += u32::from(reads(rat, &mutated));
            inner_read += u32::from(reads(rat, &nas::inner(&names, &mut rng)));
        }
        assert!((all / 10..all * 9 / 10).contains(&read), "{read} of {all}");
        assert!(inner_read > all / 5, "{inner_read} of {all}");
    }
}

/// The codec's NAS security verifies messages that the emulator has protected.
#[test]
fn protected_messages_verify_independently() {
    let (ciphering, integrity, key) = (CipheringAlgorithm::Aes, IntegrityAlgorithm::Aes, [7; 32]);
    let mut ours = NasSecurity::new(KAmf::new(&key), 3, ciphering, integrity);
    let (their_integrity, their_ciphering) = (nas_codec::IntegrityAlgorithm::NIA2, nas_codec::CipheringAlgorithm::NEA2);
    let context = NasSecurityContext::from_fresh_kamf(&KAmf::new(&key), their_integrity, their_ciphering);
    let mut theirs = context.expect("algorithms that there are");
    let (mut rng, mut same) = (Rng::new(4), 0);
    for n in 0..600 {
        let plain = nas::inner(&names(Rat::Nr), &mut rng);
        let mut protected = Vec::new();
        ours.protect(crate::ue::security::header::CIPHERED, &plain, &mut protected).expect("a COUNT is left");
        let mut forged = protected.clone();
        forged[7] ^= 1;
        assert!(theirs.unprotect_raw(&forged, Direction::Uplink).is_err(), "message {n}");
        match theirs.unprotect_raw(&protected, Direction::Uplink) {
            Ok(opened) => {
                assert_eq!(opened.count.get(), n);
                // For a message with a nested whole initial message, the result is the nested one.
                same += u32::from(opened.message == plain);
            }
            Err(error) => assert!(error.to_string().contains("is authentic"), "message {n}: {error}"),
        }
    }
    assert!(same > 200, "{same}");
}

#[test]
fn depth_tells_how_far_decoders_get() {
    for (rat, complete, cut_off) in
        [(Rat::Nr, [0x7e, 0, 0x43], [0x7e, 0]), (Rat::Eps, [0x07, 0x60, 0x6f], [0x07, 0x60])]
    {
        let (node, protocol) = (node(rat), Protocol::by_rat(rat));
        let of = |nas: &[u8], protected| {
            let octets = library::uplink_nas(&node, IDS, nas).expect("a PDU");
            Message { peer: 0, octets, level: Level::Nas, protected }
        };
        assert_eq!(depth(protocol, &of(&complete, false)), Depth::Nas);
        assert_eq!(depth(protocol, &of(&cut_off, false)), Depth::Asn1);
        assert_eq!(depth(protocol, &of(&[0x7e, 2, 0, 0, 0, 0, 0, 9], true)), Depth::Protected);
        let mut cut = of(&complete, true);
        cut.octets.pop();
        assert_eq!(depth(protocol, &cut), Depth::Transport);
    }
}

#[test]
fn same_seed_gives_same_messages() {
    for rat in BOTH {
        let (node, protocol) = (node(rat), Protocol::by_rat(rat));
        let library = Library::new(&node, &node);
        let run = |seed| {
            let mut rng = Rng::new(seed);
            let mut all = Vec::new();
            for _ in 0..200 {
                let sound = library.about(IDS, &mut rng).expect("a PDU");
                all.push(element::mutate(protocol, &sound, library.any(&mut rng), &mut rng));
                all.push(nas::inner(&names(rat), &mut rng));
                all.extend(library::node_message(&node, IDS, &mut rng));
            }
            all
        };
        assert_eq!(run(9), run(9));
        assert_ne!(run(9), run(10));
    }
}

#[test]
fn ue_without_keys_protects_nothing() {
    for rat in BOTH {
        let mut device = device(rat);
        assert_eq!(protect(&mut device, &options(rat), State::Session, &mut Rng::new(5)), None);
        assert!(!device.spoiled);
    }
}

#[test]
fn ue_is_held_in_its_state() {
    let nr: [&[u8]; 4] = [&[0x7e, 0, 0x57, 0x2d], &[0x7e, 0, 0x5c, 0], &[0x7e, 4, 0, 0, 0, 0, 0], &[0x7e, 0, 0x57]];
    let eps: [&[u8]; 4] = [&[0x07, 0x53, 8], &[0x07, 0x5c, 20], &[0x47, 0, 0, 0, 0, 0], &[0x07, 0x53]];
    for (rat, [response, failure, complete, plain]) in [(Rat::Nr, nr), (Rat::Eps, eps)] {
        let mut device = device(rat);
        device.goal = State::Authenticating;
        assert!(device.holds(response) && !device.holds(failure));
        device.deferred.push(plain.to_vec());
        assert_eq!(device.state(), State::Authenticating);
        device.goal = State::SecurityMode;
        assert!(device.holds(complete) && !device.holds(plain));
        device.forget();
        assert_eq!((device.state(), device.deferred.len()), (State::NoContext, 0));
    }
}

#[test]
fn verdict_names_each_harm() {
    let campaign = |requested: u64, protected: u64| {
        let mut campaign = Mutations { requested, ..Mutations::default() };
        campaign.good.registrations = 1;
        for n in 0..2000 {
            let depth = if n < protected { Depth::Protected } else { Depth::Asn1 };
            campaign.count(Level::Nas, depth, State::Session);
        }
        campaign
    };
    let judged = |mut campaign: Mutations| {
        campaign.finish(1.0);
        campaign.harm.join("; ")
    };
    assert_eq!(judged(campaign(2000, 700)), "");
    assert!(judged(campaign(2000, 500)).contains("25.0% of the messages are validly protected"));
    assert!(judged(campaign(3000, 1500)).contains("stopped after 2000 of 3000"));
    let mut failed = campaign(2000, 700);
    failed.good.failed = 1;
    assert!(judged(failed).contains("1 good UEs failed"));
    let mut silent = campaign(2000, 700);
    silent.silent.insert("IE missing (10.3.5)".into(), 3);
    assert!(judged(silent).contains("3 messages were not answered: IE missing (10.3.5)"));
    let mut growing = campaign(2000, 700);
    growing.judge_memory(Growth { before: 1, after_a_tenth: 10, after: 500 }, 400);
    assert!(judged(growing).contains("grew by 490 KiB"));
    let mut nobody = campaign(2000, 700);
    nobody.good.registrations = 0;
    assert!(judged(nobody).contains("no good UE"));
}
