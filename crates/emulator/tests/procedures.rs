//! All procedures of the pure UE and gNB against the scripted network.

mod support;

use support::{Behaviour, K_OCTETS, Network, OPC_OCTETS, wire};
use vireo_emulator::gnb::{self, Gnb, GnbConfig, Inbox, NgState, Outbox};
use vireo_emulator::ue::{self, Cause, Event, Fault, MmState, Profile, Registration, Service, Ue};
use vireo_emulator::usim::{Concealment, Keys, Usim};
use vireo_types::{GnbId, PduSessionType, Plmn, RanUeNgapId, Snssai, Tac, Tai};
use vireo_wire::nas::{
    CipheringAlgorithm, GmmCause, GsmCause, IntegrityAlgorithm, NasConfigurationUpdateCommand,
    NasConfigurationUpdateIndication, NasDeRegistrationType, NasDeregistrationRequestUeTerminated,
};
use vireo_wire::ngap::{CauseRadioNetwork, RRCEstablishmentCause};
use vireo_wire::security::nas_5gs::HomeNetworkPrivateKey;

const SUPI: &str = "999700000000001";

/// One UE, one gNB and the network, with direct message passing.
struct Lab {
    profile: Profile,
    ue: Ue,
    gnb: Gnb,
    network: Network,
    ran: Option<RanUeNgapId>,
    events: Vec<Event>,
    gnb_events: Vec<gnb::Event>,
}

impl Lab {
    fn new(behaviour: Behaviour) -> Self {
        let plmn: Plmn = "99970".parse().expect("digits");
        let snssai = Snssai { sst: 1, sd: None };
        let profile = Profile::new(plmn, snssai, "internet".parse().expect("a name"));
        let usim = Usim::new(SUPI.parse().expect("digits"), Keys { k: K_OCTETS, opc: OPC_OCTETS });
        let gnb = Gnb::new(GnbConfig {
            id: GnbId { plmn, id: 1, bits: 24 }.into(),
            name: "gnb-1".into(),
            tai: Tai { plmn, tac: Tac(1) },
            slices: vec![snssai],
            n3: "127.0.0.3".parse().expect("an address"),
        });
        let network = Network::new(behaviour);
        let mut lab = Lab { profile, ue: Ue::new(usim), gnb, network, ran: None, events: vec![], gnb_events: vec![] };
        let mut out = Outbox::default();
        lab.gnb.set_up(10, &mut out).expect("encodes");
        lab.carry(out);
        assert_eq!(lab.gnb.state(), NgState::Up);
        lab
    }

    /// Sends the UE's messages and all that follow, until no message remains.
    fn uplink(&mut self, output: &ue::UeOutput) {
        let mut out = Outbox::default();
        self.send_nas(output, &mut out);
        self.carry(out);
    }

    fn send_nas(&mut self, output: &ue::UeOutput, out: &mut Outbox) {
        self.events.extend(&output.events);
        for nas in output.messages() {
            match self.ran {
                Some(ran) => self.gnb.uplink_nas(ran, nas, out).expect("encodes"),
                None => {
                    let cause = RRCEstablishmentCause::mo_Signalling;
                    let ran = self.gnb.initial_ue(7, nas, self.ue.guti(), cause, out).expect("encodes");
                    self.ran = Some(ran);
                }
            }
        }
    }

    fn carry(&mut self, mut out: Outbox) {
        while !out.is_empty() {
            let mut next = Outbox::default();
            let answers: Vec<_> = out.pdus().flat_map(|(_, pdu)| self.network.receive(pdu)).collect();
            for answer in answers {
                self.downlink(&answer, &mut next);
            }
            out = next;
        }
    }

    fn downlink(&mut self, pdu: &[u8], out: &mut Outbox) {
        let mut inbox = Inbox::default();
        self.gnb.receive(pdu, &mut inbox, out).expect("answers encode");
        for event in &inbox.events {
            let mut output = ue::UeOutput::default();
            match event {
                gnb::Event::Nas { owner, range } => {
                    assert_eq!(*owner, 7);
                    self.ue.receive(&self.profile, &inbox.nas[range.clone()], &mut output);
                }
                gnb::Event::ContextSetup { key, .. } => self.ue.check_access_key(key, &mut output),
                gnb::Event::Released { .. } => {
                    self.ran = None;
                    self.ue.connection_released();
                }
                _ => {}
            }
            self.send_nas(&output, out);
        }
        self.gnb_events.append(&mut inbox.events);
    }

    fn send_to_ue(&mut self, pdu: &[u8]) {
        let mut out = Outbox::default();
        self.downlink(pdu, &mut out);
        self.carry(out);
    }

    fn register(&mut self, registration: Registration) {
        let mut output = ue::UeOutput::default();
        self.ue.register(&self.profile, registration, &mut output).expect("may register");
        self.uplink(&output);
    }

    fn establish(&mut self, psi: u8, kind: PduSessionType) {
        let mut output = ue::UeOutput::default();
        self.ue.establish(&self.profile, psi, kind, &mut output).expect("may establish");
        self.uplink(&output);
    }

    fn idle(&mut self) {
        let mut out = Outbox::default();
        let cause = vireo_wire::ngap::Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
        self.gnb.request_release(self.ran.expect("connected"), cause, &mut out).expect("encodes");
        self.carry(out);
        assert_eq!(self.ran, None);
    }

    fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn check(&self) {
        assert_eq!(self.network.faults, Vec::<String>::new());
        let violations: Vec<_> = self.events.iter().filter(|e| matches!(e, Event::Violation(_))).collect();
        assert!(violations.is_empty(), "{violations:?}");
        let violations: Vec<_> = self.gnb_events.iter().filter(|e| matches!(e, gnb::Event::Violation(_))).collect();
        assert!(violations.is_empty(), "{violations:?}");
    }
}

#[test]
fn ue_registers_with_every_algorithm() {
    use CipheringAlgorithm as C;
    use IntegrityAlgorithm as I;
    for (nea, nia) in [(C::NEA0, I::NIA1), (C::NEA1, I::NIA2), (C::NEA2, I::NIA3), (C::NEA3, I::NIA2)] {
        let mut lab = Lab::new(Behaviour { nea, nia, ..Behaviour::default() });
        lab.register(Registration::Fresh);
        lab.check();
        assert_eq!(lab.ue.mm(), MmState::Registered);
        let secured = Event::Secured { ciphering: nea as u8, integrity: nia as u8 };
        assert_eq!(lab.take(), [secured, Event::Registered { guti: true }]);
        assert_eq!(lab.network.imeisvs, ["imeisv-3570000000000101"]);
        assert_eq!(lab.network.registered, 1);
    }
}

#[test]
fn concealed_identities_register() {
    let keys =
        [HomeNetworkPrivateKey::profile_a(&[0x42; 32]), HomeNetworkPrivateKey::profile_b(&[0x42; 32]).expect("a key")];
    for private in keys {
        let key = private.public_key();
        let mut lab = Lab::new(Behaviour { private: Some(private), ..Behaviour::default() });
        lab.profile.concealment = Concealment::Ecies { key_id: 1, key };
        lab.register(Registration::Fresh);
        lab.check();
        assert_eq!(lab.ue.mm(), MmState::Registered);
    }
}

#[test]
fn sessions_come_and_go() {
    let mut lab = Lab::new(Behaviour { ipv6: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    for (psi, kind) in [(1, PduSessionType::Ipv4), (2, PduSessionType::Ipv6), (3, PduSessionType::Ipv4v6)] {
        lab.establish(psi, kind);
    }
    lab.check();
    assert_eq!(lab.ue.active_sessions().collect::<Vec<_>>(), [1, 2, 3]);
    let both = lab.ue.sessions()[2].address;
    assert!(both.ipv4.is_some() && both.interface.is_some());
    let ran = lab.ran.expect("connected");
    for tunnel in lab.gnb.tunnels(ran) {
        assert_eq!(lab.network.routes[&tunnel.uplink.0], ("127.0.0.3".parse().expect("one"), tunnel.downlink.0));
    }
    assert_eq!(gnb::downlink_owner(lab.gnb.tunnels(ran)[1].downlink), (7, 2));
    let mut output = ue::UeOutput::default();
    lab.ue.release(2, &mut output).expect("may release");
    lab.uplink(&output);
    lab.check();
    assert_eq!(lab.ue.active_sessions().collect::<Vec<_>>(), [1, 3]);
    assert!(lab.take().contains(&Event::SessionReleased { psi: 2 }));
    assert_eq!(lab.gnb.tunnels(ran).len(), 2);
}

#[test]
fn idle_ue_comes_back_by_service_request() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.establish(1, PduSessionType::Ipv4);
    for round in 0..3 {
        lab.idle();
        assert_eq!(lab.ue.mm(), MmState::Registered);
        let mut output = ue::UeOutput::default();
        let why = if round == 1 { Service::Paged } else { Service::Data };
        lab.ue.service_request(why, &mut output).expect("is idle");
        lab.uplink(&output);
        lab.check();
        assert_eq!(lab.network.log.last().map(String::as_str), Some("service request for [1]"));
        assert_eq!(lab.gnb.tunnels(lab.ran.expect("connected")).len(), 1);
        assert_eq!(lab.take().last(), Some(&Event::ServiceAccepted));
    }
}

#[test]
fn messages_of_one_ue_use_one_stream() {
    let mut lab = Lab::new(Behaviour::default());
    let mut out = Outbox::default();
    let cause = || RRCEstablishmentCause::mo_Signalling;
    let nas = [0x7e, 0, 0x64, 0x6f];
    let first = lab.gnb.initial_ue(5, &nas, None, cause(), &mut out).expect("encodes");
    lab.gnb.initial_ue(6, &nas, None, cause(), &mut out).expect("encodes");
    lab.gnb.forget(first);
    let again = lab.gnb.initial_ue(5, &nas, None, cause(), &mut out).expect("encodes");
    assert_ne!(first, again);
    let streams: Vec<_> = out.pdus().map(|(stream, _)| stream).collect();
    assert!(streams[0] == streams[2] && streams[0] != streams[1] && !streams.contains(&0), "{streams:?}");
}

#[test]
fn ue_returns_with_its_guti() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.establish(1, PduSessionType::Ipv4);
    let mut output = ue::UeOutput::default();
    lab.ue.deregister(&lab.profile, false, &mut output).expect("is registered");
    lab.uplink(&output);
    lab.check();
    assert_eq!((lab.ue.mm(), lab.ran, lab.network.deregistered), (MmState::Deregistered, None, 1));
    lab.take();
    lab.register(Registration::Initial);
    lab.check();
    // No authentication and no security mode control: the context was still valid.
    assert_eq!(lab.take(), [Event::Registered { guti: true }]);
    let mut output = ue::UeOutput::default();
    lab.idle();
    lab.ue.register(&lab.profile, Registration::Periodic, &mut output).expect("is registered");
    lab.uplink(&output);
    lab.check();
    lab.idle();
    let mut output = ue::UeOutput::default();
    lab.ue.deregister(&lab.profile, true, &mut output).expect("is registered");
    lab.uplink(&output);
    lab.check();
    assert_eq!((lab.ue.mm(), lab.network.deregistered), (MmState::Deregistered, 2));
}

#[test]
fn unknown_guti_requests_suci() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::UnknownGuti);
    lab.check();
    assert_eq!(lab.ue.mm(), MmState::Registered);
}

#[test]
fn authentication_goes_wrong_in_each_way() {
    for (fault, cause, recovers) in [
        (Fault::SynchFailure, Some(21), true),
        (Fault::KeySetInUse, Some(71), true),
        (Fault::MacFailure, Some(20), false),
        (Fault::WrongResponse, None, false),
    ] {
        let mut lab = Lab::new(Behaviour::default());
        lab.ue.inject(fault);
        lab.register(Registration::Fresh);
        lab.check();
        let events = lab.take();
        let failed = events.iter().find_map(|e| match e {
            Event::AuthenticationFailed { cause } => Some(*cause),
            _ => None,
        });
        assert_eq!(failed, cause, "{fault:?}");
        let end = if recovers { Event::Registered { guti: true } } else { Event::AuthenticationRejected };
        assert_eq!(events.last(), Some(&end), "{fault:?}");
    }
}

#[test]
fn forged_network_is_detected() {
    let mut lab = Lab::new(Behaviour { forge: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    assert!(lab.take().contains(&Event::AuthenticationFailed { cause: 20 }));
    let mut lab = Lab::new(Behaviour { bid_down: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    assert!(lab.take().contains(&Event::Violation(ue::Violation::SecurityMode)));
    assert_eq!(lab.network.log.last().map(String::as_str), Some("security mode reject 23"));
    let mut lab =
        Lab::new(Behaviour { nea: CipheringAlgorithm::NEA0, nia: IntegrityAlgorithm::NIA0, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    assert!(lab.take().contains(&Event::Violation(ue::Violation::SecurityMode)));
}

#[test]
fn refusals_are_told() {
    let mut lab = Lab::new(Behaviour { reject: Some((GmmCause::Congestion, Some(60))), ..Behaviour::default() });
    lab.register(Registration::Fresh);
    assert_eq!(lab.take().last(), Some(&Event::RegistrationRejected { cause: 22, retry_after_s: Some(60) }));
    assert_eq!(lab.ue.mm(), MmState::Deregistered);
    let cause = GsmCause::MissingOrUnknownDnn;
    let mut lab = Lab::new(Behaviour { reject_session: Some(cause), ..Behaviour::default() });
    lab.register(Registration::Fresh);
    lab.establish(1, PduSessionType::Ipv4);
    assert_eq!(lab.take().last(), Some(&Event::SessionRejected { psi: 1, cause: Cause::Sm(cause as u8) }));
    lab.check();
}

#[test]
fn network_updates_and_deregisters_ue() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.take();
    let command = NasConfigurationUpdateCommand::new()
        .with_configuration_update_indication(NasConfigurationUpdateIndication::from_flags(true, false));
    let pdu = lab.network.push(SUPI, command);
    lab.send_to_ue(&pdu);
    assert_eq!(lab.take(), [Event::ConfigurationUpdated]);
    assert_eq!(lab.network.log.last().map(String::as_str), Some("ConfigurationUpdateComplete"));
    let request = NasDeregistrationRequestUeTerminated::new(NasDeRegistrationType::new(0x05));
    let pdu = lab.network.push(SUPI, request);
    lab.send_to_ue(&pdu);
    assert_eq!(lab.take(), [Event::DeregisteredByNetwork { cause: None, reregister: true }]);
    lab.check();
}

#[test]
fn unauthentic_downlink_is_refused() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.take();
    let command = NasConfigurationUpdateCommand::new();
    let pdu = lab.network.push(SUPI, command);
    lab.send_to_ue(&pdu);
    lab.send_to_ue(&pdu);
    assert_eq!(lab.take(), [Event::ConfigurationUpdated, Event::Violation(ue::Violation::WrongMac)]);
    let mut out = ue::UeOutput::default();
    lab.ue.receive(&lab.profile, &[0x7e, 0, 0x5b, 1], &mut out);
    assert_eq!(out.events, [Event::Violation(ue::Violation::Unprotected(0x5b))]);
    lab.ue.receive(&lab.profile, &[0x7e], &mut out);
    lab.ue.receive(&lab.profile, &[0x2e, 1, 2], &mut out);
    assert_eq!(out.messages().count(), 0);
}

#[test]
fn resets_of_both_sides_leave_no_connection() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    let ran = lab.ran.expect("connected");
    let amf = lab.gnb.amf_id(ran).expect("known");
    lab.send_to_ue(&wire::ng_reset(Some((amf, ran.0))));
    assert_eq!((lab.gnb.connected(), lab.ran), (0, None));
    lab.idle_register();
    let mut out = Outbox::default();
    assert_eq!(lab.gnb.reset(None, &mut out).expect("encodes"), [7]);
    lab.carry(out);
    assert_eq!(lab.gnb.connected(), 0);
    assert!(lab.gnb_events.contains(&gnb::Event::ResetDone));
    let mut out = Outbox::default();
    lab.gnb.update_configuration(&mut out).expect("encodes");
    lab.carry(out);
    assert!(lab.gnb_events.contains(&gnb::Event::ConfigurationUpdated(true)));
    lab.check();
}

impl Lab {
    fn idle_register(&mut self) {
        let mut output = ue::UeOutput::default();
        self.ue.register(&self.profile, Registration::Periodic, &mut output).expect("is registered");
        self.uplink(&output);
    }
}

#[test]
fn gnb_reports_errors_to_amf() {
    let mut lab = Lab::new(Behaviour::default());
    let mut out = Outbox::default();
    let mut inbox = Inbox::default();
    lab.gnb.receive(&wire::downlink_nas((1, 99 << 8), vec![0x7e, 0, 0x58]), &mut inbox, &mut out).expect("answers");
    lab.gnb.receive(&[0xff, 0, 1], &mut inbox, &mut out).expect("answers");
    let violations = [gnb::Violation::UnknownUe, gnb::Violation::Undecodable].map(gnb::Event::Violation);
    assert_eq!(inbox.events, violations);
    assert_eq!(out.pdus().count(), 2);
    let mut setup = Outbox::default();
    lab.gnb.set_up(10, &mut setup).expect("encodes");
    inbox.clear();
    lab.gnb.receive(&wire::ng_setup_failure(), &mut inbox, &mut out).expect("taken");
    assert!(matches!(inbox.events[..], [gnb::Event::SetupFailed(_)]));
    assert_eq!(lab.gnb.state(), NgState::Down);
}
