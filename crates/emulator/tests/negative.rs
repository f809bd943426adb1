//! Robustness against a core that sends damaged messages.
//!
//! The core sends damaged NGAP, damaged NAS under a valid MAC and damaged user packets. Nothing
//! panics, and the UE's messages stay well formed.

mod support;

use support::{Behaviour, K_OCTETS, Network, OPC_OCTETS};
use vireo_emulator::gnb::{Event, Gnb, GnbConfig, Inbox, Outbox};
use vireo_emulator::traffic;
use vireo_emulator::ue::{self, MmState, Profile, Registration, Ue};
use vireo_emulator::usim::{Keys, Usim};
use vireo_types::{GnbId, PduSessionType, Plmn, Snssai, Tac, Tai};
use vireo_wire::nas::Nas5gsMessage;
use vireo_wire::ngap::{NGAP_PDU, RRCEstablishmentCause};

const SUPI: &str = "999700000000001";

/// A UE on a gNB. Both are deterministic, so the same messages lead to the same state.
struct Ran {
    profile: Profile,
    ue: Ue,
    gnb: Gnb,
    ran: Option<vireo_types::RanUeNgapId>,
    output: ue::UeOutput,
}

impl Ran {
    fn new() -> Self {
        let plmn: Plmn = "99970".parse().expect("digits");
        let snssai = Snssai { sst: 1, sd: None };
        let gnb = Gnb::new(GnbConfig {
            id: GnbId { plmn, id: 1, bits: 24 }.into(),
            name: "gnb-1".into(),
            tai: Tai { plmn, tac: Tac(1) },
            slices: vec![snssai],
            n3: "127.0.0.3".parse().expect("an address"),
        });
        let usim = Usim::new(SUPI.parse().expect("digits"), Keys { k: K_OCTETS, opc: OPC_OCTETS });
        let profile = Profile::new(plmn, snssai, "internet".parse().expect("a name"));
        Ran { profile, ue: Ue::new(usim), gnb, ran: None, output: ue::UeOutput::default() }
    }

    fn begin(&mut self, out: &mut Outbox) {
        self.gnb.set_up(4, out).expect("encodes");
        self.ue.register(&self.profile, Registration::Fresh, &mut self.output).expect("is off");
        self.speak(out);
    }

    fn speak(&mut self, out: &mut Outbox) {
        for nas in self.output.messages() {
            match self.ran {
                // A connection without an AMF-UE-NGAP-ID transports nothing.
                Some(ran) => drop(self.gnb.uplink_nas(ran, nas, out)),
                None => {
                    let cause = RRCEstablishmentCause::mo_Signalling;
                    self.ran = self.gnb.initial_ue(3, nas, self.ue.guti(), cause, out).ok();
                }
            }
        }
        self.output.clear();
    }

    fn receive(&mut self, pdu: &[u8], out: &mut Outbox) {
        let mut inbox = Inbox::default();
        self.gnb.receive(pdu, &mut inbox, out).expect("an answer encodes");
        for event in &inbox.events {
            match event {
                Event::Nas { range, .. } => {
                    self.ue.receive(&self.profile, &inbox.nas[range.clone()], &mut self.output);
                    self.speak(out);
                }
                Event::ContextSetup { key, .. } => self.ue.check_access_key(key, &mut self.output),
                Event::Released { .. } => {
                    self.ran = None;
                    self.ue.connection_released();
                }
                _ => {}
            }
        }
        if self.ue.mm() == MmState::Registered && self.ue.sessions().is_empty() && self.ran.is_some() {
            // Fails in some of the states after damaged messages.
            let _ = self.ue.establish(&self.profile, 1, PduSessionType::Ipv4v6, &mut self.output);
            self.speak(out);
        }
    }
}

/// Returns the core's PDUs from NG SETUP to the session.
fn conversation() -> (Vec<Vec<u8>>, Network, Ran) {
    let mut network = Network::new(Behaviour { ipv6: true, ..Behaviour::default() });
    let mut ran = Ran::new();
    let mut out = Outbox::default();
    ran.begin(&mut out);
    let mut pdus = Vec::new();
    while !out.is_empty() {
        let answers: Vec<_> = out.pdus().flat_map(|(_, pdu)| network.receive(pdu)).collect();
        out = Outbox::default();
        for pdu in answers {
            ran.receive(&pdu, &mut out);
            pdus.push(pdu);
        }
    }
    assert_eq!(ran.ue.active_sessions().collect::<Vec<_>>(), [1]);
    assert!(pdus.len() >= 5 && network.faults.is_empty());
    (pdus, network, ran)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// Changes one to three octets, cuts the end off, or inserts some octets.
    fn damage(&mut self, octets: &[u8]) -> Vec<u8> {
        let mut octets = octets.to_vec();
        for _ in 0..=self.below(3) {
            let place = self.below(octets.len());
            match self.below(6) {
                0 => octets.truncate(place.max(1)),
                1 => octets.insert(place, self.below(256) as u8),
                _ => octets[place] ^= 1 << self.below(8),
            }
        }
        octets
    }
}

#[test]
fn damaged_ngap_in_every_state_breaks_nothing() {
    let (pdus, _, _) = conversation();
    let mut random = Random(0x5eed);
    for place in 0..pdus.len() {
        for _ in 0..150 {
            let mut ran = Ran::new();
            let mut out = Outbox::default();
            ran.begin(&mut out);
            for pdu in &pdus[..place] {
                ran.receive(pdu, &mut out);
            }
            out.clear();
            ran.receive(&random.damage(&pdus[place]), &mut out);
            for pdu in &pdus[place..] {
                ran.receive(pdu, &mut out);
            }
            for (_, pdu) in out.pdus() {
                let deviations = NGAP_PDU::decode(pdu).and_then(|pdu| pdu.check()).expect("the gNB sends NGAP");
                assert!(deviations.is_empty(), "{deviations:?}");
            }
        }
    }
}

#[test]
fn damaged_nas_under_a_right_mac_breaks_nothing() {
    let samples: [&[u8]; 7] = [
        &[0x7e, 0, 0x42, 1, 1, 0x77, 0, 11, 0xf2, 0x99, 0xf9, 7, 2, 0, 0x40, 0xc0, 0, 0, 1],
        &[0x7e, 0, 0x54, 0xd1, 0x77, 0, 11, 0xf2, 0x99, 0xf9, 7, 2, 0, 0x40, 0xc0, 0, 0, 2],
        &[0x7e, 0, 0x5b, 5],
        &[0x7e, 0, 0x68, 1, 0, 5, 0x2e, 1, 0, 0xd3, 36, 0x12, 1],
        &[0x7e, 0, 0x68, 1, 0, 4, 0x2e, 1, 1, 0xc1, 0x12, 1, 0x58, 90],
        &[0x7e, 0, 0x47, 5],
        &[0x7e, 0, 0x4e, 0x50, 2, 2, 0],
    ];
    let (_, mut network, mut ran) = conversation();
    let mut random = Random(0xfeed);
    for sample in samples {
        for _ in 0..300 {
            let nas = network.push_octets(SUPI, &random.damage(sample));
            ran.ue.receive(&ran.profile, &nas, &mut ran.output);
            for message in ran.output.messages() {
                assert!(Nas5gsMessage::decode(message).is_ok(), "{message:02x?}");
            }
            ran.output.clear();
        }
    }
    // Plain NAS before there is a security context.
    for sample in samples.iter().chain(&[&[0x7e, 0, 0x56, 1, 2, 0, 0, 0x21, 1, 2, 3][..]]) {
        for _ in 0..300 {
            let mut ran = Ran::new();
            ran.begin(&mut Outbox::default());
            ran.ue.receive(&ran.profile, &random.damage(sample), &mut ran.output);
        }
    }
}

#[test]
fn damaged_user_packets_are_read_to_no_harm() {
    let ours = "10.45.0.2".parse().expect("an address");
    let theirs = "10.45.0.1".parse().expect("an address");
    let mut random = Random(0xbeef);
    let mark = traffic::Mark { identifier: 1, sequence: 2 };
    for kind in [traffic::Kind::Icmp, traffic::Kind::Udp(7)] {
        let mut packet = Vec::new();
        let echo = traffic::Echo { kind, mark, octets: 20 };
        traffic::write_echo(echo, theirs, ours, &mut packet).expect("one version");
        for _ in 0..5_000 {
            let damaged = random.damage(&packet);
            let read = traffic::read(&damaged, &[ours]);
            // A damaged packet that still counts as an echo can differ only where no checksum
            // applies.
            if damaged.len() < packet.len() {
                assert!(!matches!(read, traffic::Received::Echo { .. }), "{damaged:02x?}");
            }
        }
    }
}
