//! Octets that are not NGAP, and misplaced NGAP (TS 38.412, TS 38.413 10.2).

use crate::assert_serves_another;
use crate::core::Core;
use crate::messages::{self, error_cause};
use crate::ran::{NGAP, Ran};
use vireo_wire::ngap::*;

const GOLDEN: &str = include_str!("../../../../tests/reference/golden.txt");

/// Generator xorshift64.
struct Noise(u64);

impl Noise {
    fn octets(&mut self, most: usize) -> Vec<u8> {
        let length = 1 + self.next() as usize % most;
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Checks that the answers to random octets are only errors and refusals.
fn assert_only_refusals(answers: &[Vec<u8>], what: &str) {
    for octets in answers {
        let pdu = NGAP_PDU::decode(octets).expect("what the core sends decodes");
        let refuses = pdu.kind() == NgapPduKind::Initiating_ErrorIndication
            || pdu.direction() == "UnsuccessfulOutcome"
            || pdu.kind() == NgapPduKind::Initiating_UEContextRelease;
        assert!(refuses, "{what}: {pdu} answers it");
    }
}

#[test]
fn non_ngap_bytes_get_transfer_syntax_error() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    // No PDU alternative; a PDU whose open type is longer than the rest; an empty one (TS 38.413
    // 10.2).
    for octets in [&[0xff][..], &[0x00, 0x15, 0x00, 0x30, 0x00], &[0x00], &[0x00, 0x04, 0x40, 0xc4]] {
        ran.send(0, octets);
        let answer = ran.expect("no NGAP", |pdu| pdu.kind() == NgapPduKind::Initiating_ErrorIndication);
        assert_eq!(error_cause(&answer), Cause::protocol(CauseProtocol::transfer_syntax_error), "{octets:02x?}");
    }
    let mut noise = Noise(0x5649_5245_4f00_0002);
    for n in 0..300_u16 {
        let most = if n == 0 { 60_000 } else { 400 };
        ran.send(n % 5, &noise.octets(most));
    }
    let answers = ran.receive_until_silent();
    assert!(!answers.is_empty(), "random octets get no answer at all");
    assert_only_refusals(&answers, "random octets");
    ran.assert_up("random octets");
    assert_serves_another(&mut core, 1);
}

#[test]
fn truncated_or_changed_messages_harm_no_ue() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::set_up(&core, 1);
    let messages = GOLDEN.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| !name.starts_with('#'));
    let messages: Vec<Vec<u8>> = messages.filter_map(|(_, digits)| hex::decode(digits).ok()).collect();
    let messages: Vec<_> = messages.into_iter().filter(|octets| !matches!(octets[0], 0x7e | 0x2e)).collect();
    for message in &messages {
        for end in (1..message.len()).step_by(3) {
            ran.send(0, &message[..end]);
        }
        assert_only_refusals(&ran.receive_pending(), "a message that is cut short");
    }
    let mut noise = Noise(0x5649_5245_4f00_0003);
    for _ in 0..3_000 {
        let mut message = messages[noise.next() as usize % messages.len()].clone();
        let at = noise.next() as usize % message.len();
        message[at] ^= 1 << (noise.next() % 8);
        ran.send(1, &message);
        ran.receive_pending();
    }
    ran.receive_until_silent();
    ran.assert_up("changed messages");
    assert_serves_another(&mut core, 1);
}

#[test]
fn another_ppid_is_no_ngap() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::connect(&core);
    // PPIDs of S1AP, XnAP, none, and NGAP in the other byte order (TS 38.412 7).
    for ppid in [18, 61, 0, NGAP.swap_bytes()] {
        ran.send_as(0, ppid, &messages::ng_setup(1));
    }
    ran.assert_silent("NG Setup Requests with another PPID");
    assert_eq!(core.count("gnbs"), 0);
    ran.send(0, &messages::ng_setup(1));
    ran.expect("NG Setup after them", |pdu| pdu.kind() == NgapPduKind::Successful_NGSetup);
    assert_serves_another(&mut core, 1);
}

#[test]
fn any_stream_is_accepted_sender_keeps_its_own() {
    let mut core = Core::start(4, "");
    let mut ran = Ran::connect(&core);
    ran.send(3, &messages::ng_setup(1));
    let (stream, answer) = ran.next(crate::ran::ANSWER).expect("an answer");
    assert_eq!(NGAP_PDU::decode(&answer).map(|p| p.kind()), Ok(NgapPduKind::Successful_NGSetup));
    assert_eq!(stream, 0, "signalling that is about no UE is on stream 0");
    let registration = crate::device::registration(1).encode().expect("octets");
    ran.send(0, &messages::initial_ue(5, &registration, None));
    let (stream, answer) = ran.next(crate::ran::ANSWER).expect("an answer");
    assert_eq!(NGAP_PDU::decode(&answer).map(|p| p.kind()), Ok(NgapPduKind::Initiating_DownlinkNASTransport));
    assert_ne!(stream, 0, "signalling about a UE is not on stream 0");
    assert_serves_another(&mut core, 2);
}

#[test]
fn ended_association_releases_only_its_ues() {
    let core = Core::start(8, "");
    let mut keeper = Ran::set_up(&core, 1);
    let mut kept = crate::device::Device::new(1);
    kept.register(&mut keeper);
    for round in 0..5 {
        let mut ran = Ran::set_up(&core, 100 + round);
        let mut device = crate::device::Device::new(2 + round);
        device.register(&mut ran);
        ran.send(1, &messages::initial_ue(77, &crate::device::registration(7).encode().expect("octets"), None));
        drop(ran);
        core.wait_for_count("gnbs", 1);
        core.wait_for_count("connected", 1);
    }
    assert_eq!(core.count("registered"), 6, "a UE whose gNB is lost is idle, not gone");
    kept.assert_served(&mut keeper, "the UE of another gNB");
}
