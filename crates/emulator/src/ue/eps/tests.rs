//! The LTE UE and the eNB against the scripted MME, with direct message passing.

use super::*;
use crate::enb::{self, Enb, EnbConfig, Inbox, Outbox, S1State};
use crate::options::{LAB_K, LAB_OPC};
use crate::ran::ConnectionId;
use crate::test_mme::{Behaviour, EBI, Mme, activation, activation_request, wire};
use crate::ue::{Registration, SessionVariant};
use crate::usim::{Keys, Usim};
use vireo_types::{Tac, Tai};
use vireo_wire::nas_eps::{
    CipheringAlgorithm, EmmCause, EsmCause, IntegrityAlgorithm, NasDetachRequestUeTerminated, NasDetachType,
    NasEsmCause, NasEsmMessage, NasPdnConnectivityReject, NetworkDetachKind,
};
use vireo_wire::s1ap::{Cause as S1Cause, CauseRadioNetwork, RRCEstablishmentCause};

const IMSI: &str = "999700000000001";

/// One UE, one eNB and the MME.
struct Lab {
    profile: Profile,
    ue: LteUe,
    enb: Enb,
    mme: Mme,
    connection: Option<ConnectionId>,
    events: Vec<Event>,
    enb_events: Vec<enb::Event>,
}

impl Lab {
    fn new(behaviour: Behaviour) -> Self {
        let plmn = "99970".parse().expect("digits");
        let snssai = vireo_types::Snssai { sst: 1, sd: None };
        let usim = Usim::new(IMSI.parse().expect("digits"), Keys { k: LAB_K, opc: LAB_OPC });
        let config = EnbConfig {
            id: 1,
            name: "enb-1".into(),
            tai: Tai { plmn, tac: Tac(1) },
            s1u: "127.0.0.3".parse().expect("an address"),
        };
        let mut lab = Lab {
            profile: Profile::new(plmn, snssai, "internet".parse().expect("a name")),
            ue: LteUe::new(usim),
            enb: Enb::new(config),
            mme: Mme::new(behaviour),
            connection: None,
            events: Vec::new(),
            enb_events: Vec::new(),
        };
        let mut out = Outbox::default();
        lab.enb.set_up(10, &mut out).expect("encodes");
        lab.carry(out);
        lab
    }

    /// Runs a command of the UE and all that follows, until no message remains.
    fn ue_does(&mut self, command: impl FnOnce(&mut LteUe, &Profile, &mut UeOutput) -> Result<(), CommandError>) {
        let mut output = UeOutput::default();
        command(&mut self.ue, &self.profile, &mut output).expect("the command fits");
        let mut out = Outbox::default();
        self.send_nas(&output, &mut out);
        self.carry(out);
    }

    fn register(&mut self, registration: Registration) {
        self.ue_does(|ue, profile, out| ue.register(profile, registration, PduSessionType::Ipv4, out));
    }

    fn send_nas(&mut self, output: &UeOutput, out: &mut Outbox) {
        self.events.extend(&output.events);
        for nas in output.messages() {
            match self.connection {
                Some(id) => self.enb.uplink_nas(id, nas, out).expect("encodes"),
                None => {
                    let cause = RRCEstablishmentCause::mo_Signalling;
                    let id = self.enb.initial_ue(7, nas, self.ue.access_guti(), cause, out).expect("encodes");
                    self.connection = Some(id);
                }
            }
        }
    }

    fn carry(&mut self, mut out: Outbox) {
        while !out.is_empty() {
            let mut next = Outbox::default();
            let answers: Vec<_> = out.pdus().flat_map(|(_, pdu)| self.mme.receive(pdu)).collect();
            for answer in answers {
                self.downlink(&answer, &mut next);
            }
            out = next;
        }
    }

    fn downlink(&mut self, pdu: &[u8], out: &mut Outbox) {
        let mut inbox = Inbox::default();
        self.enb.receive(pdu, &mut inbox, out).expect("answers encode");
        for event in &inbox.events {
            let mut output = UeOutput::default();
            match event {
                enb::Event::Nas { owner, range } => {
                    assert_eq!(*owner, 7);
                    self.ue.receive(&self.profile, &inbox.nas[range.clone()], &mut output);
                }
                enb::Event::ContextSetup { key, .. } => self.ue.check_access_key(key, &mut output),
                enb::Event::Released { .. } => {
                    self.connection = None;
                    self.ue.connection_released();
                }
                _ => {}
            }
            self.send_nas(&output, out);
        }
        self.enb_events.append(&mut inbox.events);
    }

    fn send_to_ue(&mut self, pdu: &[u8]) {
        let mut out = Outbox::default();
        self.downlink(pdu, &mut out);
        self.carry(out);
    }

    fn go_idle(&mut self) {
        let mut out = Outbox::default();
        let cause = S1Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
        self.enb.request_release(self.connection.expect("connected"), cause, &mut out).expect("encodes");
        self.carry(out);
        assert_eq!((self.connection, self.enb.connected()), (None, 0));
    }

    fn violations(&self) -> Vec<Violation> {
        let violation = |event: &Event| if let Event::Violation(violation) = event { Some(*violation) } else { None };
        self.events.iter().filter_map(violation).collect()
    }

    #[track_caller]
    fn assert_sound(&self) {
        assert_eq!(self.mme.faults, Vec::<String>::new());
        assert_eq!(self.violations(), []);
        assert!(!self.enb_events.iter().any(|event| matches!(event, enb::Event::Violation(_))));
    }

    fn tunnels(&self) -> usize {
        self.connection.map_or(0, |id| self.enb.tunnels(id).len())
    }
}

#[test]
fn attach_runs_with_each_algorithm() {
    use {CipheringAlgorithm as Eea, IntegrityAlgorithm as Eia};
    for (eea, eia) in [(Eea::EEA0, Eia::EIA2), (Eea::EEA1, Eia::EIA1), (Eea::EEA2, Eia::EIA2), (Eea::EEA3, Eia::EIA3)] {
        let mut lab = Lab::new(Behaviour { eea, eia, ..Behaviour::default() });
        assert_eq!(lab.enb.state(), S1State::Up);
        lab.register(Registration::Fresh);
        lab.assert_sound();
        assert_eq!((lab.ue.mm(), lab.mme.attached, lab.tunnels()), (MmState::Registered, 1, 1));
        let session = lab.ue.sessions()[0];
        assert_eq!((session.psi, session.kind, session.state), (EBI, PduSessionType::Ipv4, SessionState::Active));
        assert_eq!(session.address.ipv4, Some([10, 46, 0, 2].into()));
        let secured = Event::Secured { ciphering: eea as u8, integrity: eia as u8 };
        assert!(lab.events.contains(&secured) && lab.events.contains(&Event::Registered { guti: true }));
        // The IMEISV, the APN by ESM information and the radio capability have arrived.
        assert_eq!(lab.mme.log, ["IMEISV 3570000000000101", "APN internet", "capability"].map(String::from));
    }
}

#[test]
fn attach_without_apn_skips_esm_information() {
    let mut lab = Lab::new(Behaviour::default());
    lab.profile.requests_apn = false;
    lab.register(Registration::Fresh);
    lab.assert_sound();
    assert_eq!((lab.ue.mm(), lab.mme.attached), (MmState::Registered, 1));
    assert!(!lab.mme.log.iter().any(|line| line.starts_with("APN")));
}

#[test]
fn known_guti_attach_needs_no_authentication() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.ue_does(|ue, _, out| ue.deregister(false, out));
    assert_eq!((lab.ue.mm(), lab.connection), (MmState::Deregistered, None));
    lab.mme.log.clear();
    lab.register(Registration::Initial);
    lab.assert_sound();
    assert_eq!((lab.ue.mm(), lab.mme.log[0].as_str()), (MmState::Registered, "attach with a known GUTI"));
    assert!(!lab.mme.log.iter().any(|line| line.starts_with("IMEISV")));
    lab.ue_does(|ue, _, out| ue.deregister(true, out));
    lab.assert_sound();
    assert_eq!((lab.ue.mm(), lab.connection), (MmState::Deregistered, None));
}

#[test]
fn foreign_guti_attach_is_identified() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::UnknownGuti);
    lab.assert_sound();
    assert_eq!(lab.mme.log[0], format!("identity {IMSI}"));
    assert_eq!((lab.ue.mm(), lab.mme.attached), (MmState::Registered, 1));
}

#[test]
fn guti_attach_with_wrong_mac_is_authenticated() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.ue_does(|ue, _, out| ue.deregister(false, out));
    lab.mme.log.clear();
    lab.ue.inject(Fault::WrongMac);
    lab.register(Registration::Initial);
    lab.assert_sound();
    assert_eq!(lab.mme.log[0], "wrong MAC");
    assert_eq!((lab.ue.mm(), lab.mme.attached), (MmState::Registered, 2));
}

#[test]
fn authentication_faults_get_their_causes() {
    for (fault, cause) in [(Fault::SynchFailure, 21), (Fault::MacFailure, 20)] {
        let mut lab = Lab::new(Behaviour::default());
        lab.ue.inject(fault);
        lab.register(Registration::Fresh);
        lab.assert_sound();
        assert!(lab.events.contains(&Event::AuthenticationFailed { cause }));
        assert_eq!(
            (lab.mme.log[0].clone(), lab.ue.mm()),
            (format!("authentication failure {cause}"), MmState::Registered)
        );
    }
    let mut lab = Lab::new(Behaviour::default());
    lab.ue.inject(Fault::WrongResponse);
    lab.register(Registration::Fresh);
    assert!(lab.events.contains(&Event::AuthenticationRejected));
    assert_eq!((lab.ue.mm(), lab.connection), (MmState::Deregistered, None));
    let mut lab = Lab::new(Behaviour { forge: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    assert!(lab.events.contains(&Event::AuthenticationFailed { cause: 20 }));
    assert!(lab.events.contains(&Event::AuthenticationRejected));
}

#[test]
fn bid_down_is_refused() {
    let mut lab = Lab::new(Behaviour { bid_down: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    assert_eq!(lab.violations(), [Violation::SecurityMode]);
    assert_ne!(lab.ue.mm(), MmState::Registered);
}

#[test]
fn altered_request_is_replayed_under_protection() {
    let mut lab = Lab::new(Behaviour { wrong_hash: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    lab.assert_sound();
    assert!(lab.mme.log.iter().any(|line| line == "replayed request"));
}

#[test]
fn idle_ue_returns_by_service_request() {
    let mut lab = Lab::new(Behaviour { page: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    // More than the 5 bits of the sequence number in a SERVICE REQUEST.
    for _ in 0..40 {
        lab.go_idle();
        let tmsi = lab.ue.guti().expect("attached").tmsi;
        assert_eq!(lab.enb_events.last(), Some(&enb::Event::Paging(tmsi)));
        lab.ue_does(|ue, _, out| ue.service_request(Service::Paged, out));
        assert_eq!((lab.ue.mm(), lab.tunnels()), (MmState::Registered, 1));
        assert_eq!(lab.events.last(), Some(&Event::ServiceAccepted));
    }
    lab.assert_sound();
    lab.ue_does(|ue, _, out| ue.deregister(false, out));
    lab.assert_sound();
}

#[test]
fn tracking_area_updates_keep_the_bearer() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.go_idle();
    lab.register(Registration::Periodic);
    assert_eq!((lab.ue.mm(), lab.connection), (MmState::Registered, None));
    lab.register(Registration::Mobility);
    assert_eq!((lab.ue.mm(), lab.tunnels(), lab.ue.sessions().len()), (MmState::Registered, 1, 1));
    lab.assert_sound();
    let updates: Vec<_> = lab.mme.log.iter().filter(|line| line.starts_with("update")).collect();
    assert_eq!(updates, ["update PeriodicUpdating", "update complete", "update TaUpdating", "update complete"]);
}

fn connect(lab: &mut Lab, psi: u8) {
    lab.ue_does(|ue, profile, out| ue.establish_as(profile, (psi, PduSessionType::Ipv4), SessionVariant::Usual, out));
}

#[test]
fn further_connections_last_until_disconnect() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    connect(&mut lab, 2);
    lab.profile.requests_apn = false;
    connect(&mut lab, 9);
    lab.assert_sound();
    let sessions = |lab: &Lab| lab.ue.sessions().iter().map(|s| (s.psi, s.other)).collect::<Vec<_>>();
    assert_eq!((sessions(&lab), lab.tunnels()), (vec![(5, 1), (6, 2), (7, 9)], 3));
    let addresses: Vec<_> = lab.ue.sessions().iter().filter_map(|s| s.address.ipv4).collect();
    assert_eq!(addresses, [[10, 46, 0, 2], [10, 46, 1, 2], [10, 46, 2, 2]].map(std::net::Ipv4Addr::from));
    lab.go_idle();
    lab.ue_does(|ue, _, out| ue.service_request(Service::Data, out));
    assert_eq!(lab.tunnels(), 3);
    lab.go_idle();
    lab.register(Registration::Mobility);
    assert_eq!(lab.tunnels(), 3);
    lab.ue_does(|ue, _, out| ue.release(2, out));
    assert_eq!((sessions(&lab), lab.tunnels()), (vec![(5, 1), (7, 9)], 2));
    assert_eq!(lab.events.last(), Some(&Event::SessionReleased { psi: 6 }));
    // The network may assign the bearer again.
    connect(&mut lab, 2);
    assert_eq!(sessions(&lab), [(5, 1), (7, 9), (6, 2)]);
    lab.assert_sound();
    let names = ["connection", "bearer"];
    let log: Vec<_> = lab.mme.log.iter().filter(|line| names.iter().any(|name| line.starts_with(name))).collect();
    let expected = ["connection 2 internet", "bearer 6 accepted", "connection 3 ", "bearer 7 accepted"];
    assert_eq!(log[..4], expected);
    assert_eq!(log[4..], ["bearer 6 ended", "connection 5 ", "bearer 6 accepted"]);
}

#[test]
fn refused_connection_leaves_others() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    lab.mme.behaviour.reject_connection = Some(EsmCause::MissingOrUnknownApn);
    connect(&mut lab, 2);
    lab.assert_sound();
    assert_eq!(lab.events.last(), Some(&Event::SessionRejected { psi: 2, cause: Cause::Esm(27) }));
    assert_eq!((lab.ue.sessions().len(), lab.tunnels()), (1, 1));
    // The last connection ends with the attach alone.
    lab.ue_does(|ue, _, out| ue.release(1, out));
    lab.assert_sound();
    assert_eq!(lab.events.last(), Some(&Event::SessionRejected { psi: EBI, cause: Cause::Esm(49) }));
    assert_eq!(lab.ue.active_sessions().collect::<Vec<_>>(), [EBI]);
    let mut output = UeOutput::default();
    for psi in [0, 1, 16] {
        let refused =
            lab.ue.establish_as(&lab.profile, (psi, PduSessionType::Ipv4), SessionVariant::Usual, &mut output);
        assert_eq!(refused, Err(CommandError::Session(psi)));
    }
    assert_eq!(lab.ue.release(2, &mut output), Err(CommandError::Session(2)));
    lab.go_idle();
    let refused = lab.ue.establish_as(&lab.profile, (2, PduSessionType::Ipv4), SessionVariant::Usual, &mut output);
    assert_eq!(refused, Err(CommandError::State(MmState::Registered)));
}

/// Messages that no request of the UE has, or that do not fit it, are violations.
#[test]
fn wrong_esm_messages_are_violations() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    connect(&mut lab, 2);
    // A repeat is answered again.
    let nas = |message: &vireo_wire::nas_eps::NasEpsMessage| match message.clone() {
        vireo_wire::nas_eps::NasEpsMessage::Esm(_, message) => message,
        other => panic!("{other}"),
    };
    let repeat = lab.mme.push_esm(nas(&activation(0, 6, 2)), 6, 2);
    lab.send_to_ue(&repeat);
    lab.assert_sound();
    assert_eq!((lab.mme.log.last().map(String::as_str), lab.ue.sessions().len()), (Some("bearer 6 accepted"), 2));
    let reject = || -> NasEsmMessage {
        NasPdnConnectivityReject::new(NasEsmCause::from_cause(EsmCause::RequestRejectedUnspecified)).into()
    };
    // Of no transaction, of an ended one, and the end of a bearer for a request of nobody.
    let deactivation = vireo_wire::nas_eps::NasDeactivateEpsBearerContextRequest::new(NasEsmCause::new(36));
    let pdus = [
        (lab.mme.push_esm(nas(&activation(0, 7, 9)), 7, 9), Violation::Unexpected(0xc1)),
        (lab.mme.push_esm(reject(), 0, 2), Violation::Unexpected(0xd1)),
        (lab.mme.push_esm(deactivation, 6, 2), Violation::Unexpected(0xcd)),
    ];
    for (pdu, violation) in pdus {
        lab.events.clear();
        lab.send_to_ue(&pdu);
        assert_eq!((lab.violations(), lab.ue.sessions().len()), (vec![violation], 2));
    }
    // A bearer of another session, and an address of another session.
    for (ebi, address) in [(6, [10, 46, 9, 9]), (4, [10, 46, 9, 9]), (7, [10, 46, 1, 2])] {
        lab.ue.forget_session(0);
        let mut output = UeOutput::default();
        lab.ue
            .establish_as(&lab.profile, (3, PduSessionType::Ipv4), SessionVariant::Usual, &mut output)
            .expect("the command fits");
        let pti = lab.ue.sessions().last().expect("a session").pti;
        let pdu = lab.mme.push_esm(activation_request(address), ebi, pti);
        lab.events.clear();
        lab.send_to_ue(&pdu);
        assert_eq!(lab.violations(), [Violation::Incomplete(0xc1)], "{ebi} {address:?}");
    }
}

#[test]
fn network_detach_is_accepted() {
    let mut lab = Lab::new(Behaviour { detach: true, ..Behaviour::default() });
    lab.register(Registration::Fresh);
    lab.assert_sound();
    assert!(lab.events.contains(&Event::DeregisteredByNetwork { cause: None, reregister: true }));
    assert_eq!((lab.ue.mm(), lab.connection, lab.ue.sessions().len()), (MmState::Deregistered, None, 0));
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    let kind = NasDetachType::from_network_detach_kind(NetworkDetachKind::ImsiDetach);
    let pdu = lab.mme.push(NasDetachRequestUeTerminated::new(kind));
    let mut out = Outbox::default();
    lab.downlink(&pdu, &mut out);
    assert_eq!((lab.ue.mm(), lab.ue.sessions().len()), (MmState::Registered, 1));
}

#[test]
fn reallocation_and_deactivation_are_answered() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    let command = lab.mme.reallocate();
    lab.send_to_ue(&command);
    assert_eq!(lab.mme.log.last().map(String::as_str), Some("GUTI reallocated"));
    let command = lab.mme.deactivate();
    lab.send_to_ue(&command);
    lab.assert_sound();
    assert_eq!((lab.ue.sessions().len(), lab.tunnels()), (0, 0));
    assert_eq!(lab.events.last(), Some(&Event::SessionReleased { psi: EBI }));
}

#[test]
fn rejection_keeps_identity_only_in_congestion() {
    for (cause, t3346, kept) in [(EmmCause::Congestion, Some(60), true), (EmmCause::IllegalUe, None, false)] {
        let mut lab = Lab::new(Behaviour::default());
        lab.register(Registration::Fresh);
        lab.ue_does(|ue, _, out| ue.deregister(false, out));
        lab.mme.behaviour.reject = Some((cause, t3346));
        lab.register(Registration::Initial);
        lab.assert_sound();
        let rejected = Event::RegistrationRejected { cause: cause as u8, retry_after_s: t3346.map(|s| s as u32) };
        assert_eq!(lab.events.last(), Some(&rejected));
        assert_eq!((lab.ue.mm(), lab.ue.guti().is_some()), (MmState::Deregistered, kept));
    }
}

#[test]
fn unprotected_and_altered_messages_are_refused() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    let mut output = UeOutput::default();
    // EMM INFORMATION without protection, and a protected message with a wrong MAC.
    lab.ue.receive(&lab.profile, &[0x07, 0x61], &mut output);
    lab.ue.receive(&lab.profile, &[0x27, 1, 2, 3, 4, 9, 0x07, 0x61], &mut output);
    let expected = [Violation::Unprotected(0x61), Violation::WrongMac].map(Event::Violation);
    assert_eq!(output.events, expected);
}

#[test]
fn resets_release_every_ue() {
    let mut lab = Lab::new(Behaviour::default());
    lab.register(Registration::Fresh);
    let id = lab.connection.expect("connected");
    let mut out = Outbox::default();
    assert_eq!(lab.enb.reset(Some(&[id]), &mut out).expect("encodes"), [7]);
    lab.carry(out);
    assert_eq!(lab.enb_events.last(), Some(&enb::Event::ResetDone));
    (lab.connection, lab.mme.faults) = (None, Vec::new());
    lab.ue.connection_released();
    lab.ue_does(|ue, _, out| ue.service_request(Service::Data, out));
    lab.send_to_ue(&wire::reset());
    lab.assert_sound();
    assert_eq!((lab.connection, lab.enb.connected()), (None, 0));
    let mut out = Outbox::default();
    lab.enb.update_configuration(&mut out).expect("encodes");
    lab.carry(out);
    assert_eq!(lab.enb_events.last(), Some(&enb::Event::ConfigurationUpdated(true)));
}

#[test]
fn refused_setup_leaves_enb_down() {
    let lab = Lab::new(Behaviour { refuse_setup: true, ..Behaviour::default() });
    assert!(matches!(lab.enb_events[..], [enb::Event::SetupFailed(_)]));
    assert_eq!(lab.enb.state(), S1State::Down);
}
