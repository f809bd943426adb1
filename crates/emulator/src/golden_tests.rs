//! S1AP and NAS-EPS messages of pycrate (tests/reference), sent and read by the eNB and the LTE UE.

use crate::enb::{self, Enb, EnbConfig, ErrorReport, Event, Inbox, Outbox};
use crate::options::LAB_K;
use crate::ran::{ForwardingEnd, HandoverOrder};
use crate::ue::eps::LteUe;
use crate::ue::{self, Cause, MmState, Profile, Registration, Service, UeOutput};
use crate::usim::{Keys, Usim};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use vireo_types::{EnbId, EnbKind, GnbId, Guami, Guti, PduSessionType, Snssai, Tac, Tai, Teid, Tmsi};
use vireo_wire::nas_eps::{
    CipheringAlgorithm, Direction, IntegrityAlgorithm, NasEpsSecurityHeaderType, NasSecurityContext,
};
use vireo_wire::s1ap::{CauseMisc, CauseNas, CauseProtocol, CauseRadioNetwork, RRCEstablishmentCause};
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{Amf, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_eps::derive_kasme;

/// MME-UE-S1AP-ID of the goldens.
const MME_ID: u32 = 0xa0b0_c0d0;
/// NAS-PDU of the goldens of S1AP.
const NAS: [u8; 24] =
    *b"\x07\x41\x72\x0b\xf6\x99\xf9\x07\x80\x01\xc3\xde\xad\xbe\xef\x02\xe0\x60\x00\x04\x02\x01\xd0\x11";
/// K_eNB and NH of the goldens.
const KEY: [u8; 32] = *b"\xc1\x81\x66\xe1\x3c\xfd\xe1\xde\xa8\x42\xc7\x08\xf6\xe0\xb3\x37\
                         \x2b\x68\x96\x66\x4d\xf4\xe8\x65\xc0\xc7\x8b\xd2\x70\x85\x20\x05";
/// OPc, SQN and AMF of test set 1 of TS 35.208, whose K is the lab's.
const OPC: [u8; 16] = *b"\xcd\x63\xcb\x71\x95\x4a\x9f\x4e\x48\xa5\x99\x4e\x37\xa0\x2b\xaf";
const SQN: u64 = 0xff9b_b4d0_b607;
const AMF: [u8; 2] = [0xb9, 0xb9];

/// Messages that this eNB and UE neither send nor read, and those that need a state which only
/// other tests give them. The core and the codec have tests of all.
const OTHERS: [&str; 14] = [
    "E-RABReleaseIndication",
    "E-RABModificationIndication",
    "E-RABModificationConfirm",
    "SecondaryRATDataUsageReport",
    "NASNonDeliveryIndication",
    "ENBConfigurationTransfer",
    "MMEConfigurationTransfer",
    "TrackingAreaUpdateRequest-from-5g",
    "AuthenticationFailure-synch",
    "SecurityModeReject",
    "ActivateDefaultEPSBearerContextReject",
    "ESMStatus",
    "AttachReject-esm",
    "BearerResourceAllocationReject",
];

/// Messages encoded by pycrate, and the names of those that a test has used.
struct Goldens {
    octets: BTreeMap<&'static str, Vec<u8>>,
    used: RefCell<BTreeSet<&'static str>>,
}

impl Goldens {
    fn read() -> Self {
        let text = include_str!("../../../tests/reference/golden_eps.txt");
        let digit = |pair: &str| u8::from_str_radix(pair, 16).expect("hexadecimal digits");
        let line = |line: &'static str| {
            let (name, octets) = line.split_once(' ').expect("a name and hexadecimal digits");
            (name, (0..octets.len()).step_by(2).map(|at| digit(&octets[at..at + 2])).collect())
        };
        let messages = include_str!("../../../tests/reference/golden_mme.txt");
        let page = messages.lines().filter(|line| line.starts_with("Paging-extended-drx "));
        let octets = text.lines().filter(|line| !line.starts_with('#')).chain(page).map(line).collect();
        Goldens { octets, used: RefCell::default() }
    }

    fn get(&self, name: &str) -> &[u8] {
        let (name, octets) = self.octets.get_key_value(name).unwrap_or_else(|| panic!("no golden {name}"));
        self.used.borrow_mut().insert(name);
        octets
    }

    /// Asserts that the test has used every message of one kind.
    fn assert_used(&self, belongs: impl Fn(&[u8]) -> bool) {
        let all = self.octets.iter().filter(|(_, octets)| belongs(octets)).map(|(name, _)| *name);
        let all = all.filter(|name| !OTHERS.contains(name));
        let unused: Vec<_> = all.filter(|name| !self.used.borrow().contains(name)).collect();
        assert_eq!(unused, Vec::<&str>::new());
    }
}

/// Returns true for a NAS message. S1AP PDUs begin with 0x00, 0x20 or 0x40.
fn is_nas(octets: &[u8]) -> bool {
    octets[0] & 0xf != 0
}

fn tai() -> Tai {
    Tai { plmn: "99970".parse().expect("digits"), tac: Tac(7) }
}

/// eNB of the goldens, with the PDUs that it sends.
struct EnbUnderTest<'a> {
    goldens: &'a Goldens,
    enb: Enb,
    nas: Vec<u8>,
}

impl<'a> EnbUnderTest<'a> {
    fn new(goldens: &'a Goldens) -> Self {
        let config = EnbConfig { id: 0xabc, name: "enb-2748".into(), tai: tai(), s1u: [127, 0, 0, 9].into() };
        let mut test = EnbUnderTest { goldens, enb: Enb::new(config), nas: Vec::new() };
        test.sends(&["S1SetupRequest"], |enb, out| enb.set_up(2, out));
        assert_eq!(test.receives("S1SetupResponse", &[]), [Event::Ready]);
        test
    }

    #[track_caller]
    fn sends<T>(&mut self, names: &[&str], act: impl FnOnce(&mut Enb, &mut Outbox) -> Result<T, enb::SendError>) -> T {
        let mut out = Outbox::default();
        let result = act(&mut self.enb, &mut out).expect("encodes");
        self.compare(&out, names);
        result
    }

    #[track_caller]
    fn compare(&self, out: &Outbox, names: &[&str]) {
        let sent: Vec<_> = out.pdus().map(|(_, pdu)| pdu).collect();
        let expected: Vec<_> = names.iter().map(|name| self.goldens.get(name)).collect();
        assert_eq!(sent, expected, "{names:?}");
    }

    /// Passes a golden of the MME to the eNB, whose answers are the goldens `answers`.
    #[track_caller]
    fn receives(&mut self, name: &str, answers: &[&str]) -> Vec<Event> {
        let (mut inbox, mut out) = (Inbox::default(), Outbox::default());
        self.enb.receive(self.goldens.get(name), &mut inbox, &mut out).expect("answers encode");
        self.compare(&out, answers);
        self.nas = inbox.nas;
        inbox.events
    }

    /// Connects a UE, to whom the MME assigns its identifier.
    fn connected(goldens: &'a Goldens) -> Self {
        let mut test = EnbUnderTest::new(goldens);
        let nas = NAS.to_vec();
        let cause = RRCEstablishmentCause::mo_Signalling;
        let id = test.sends(&["InitialUEMessage"], |enb, out| enb.initial_ue(7, &nas, None, cause, out));
        assert_eq!(id.0, 0);
        let events = test.receives("DownlinkNASTransport", &[]);
        assert_eq!(events, [Event::Nas { owner: 7, range: 0..nas.len() }]);
        assert_eq!((&test.nas, test.enb.mme_id(id)), (&nas, Some(MME_ID)));
        test
    }
}

const FIRST: enb::ConnectionId = vireo_types::RanUeNgapId(0);

fn guti() -> Guti {
    let guami = Guami { plmn: tai().plmn, region: 0x80, set: 7, pointer: 3 };
    Guti { guami, tmsi: Tmsi(0xdead_beef) }
}

#[test]
fn enb_messages_equal_those_of_pycrate() {
    use vireo_wire::s1ap::Cause;
    let goldens = Goldens::read();
    let mut test = EnbUnderTest::connected(&goldens);
    let nas = test.nas.clone();
    test.sends(&["UplinkNASTransport"], |enb, out| enb.uplink_nas(FIRST, &nas, out));
    let answers = ["InitialContextSetupResponse", "UECapabilityInfoIndication"];
    let events = test.receives("InitialContextSetupRequest", &answers);
    let (up, to_ue) = (Event::TunnelUp { owner: 7, psi: 5 }, Event::Nas { owner: 7, range: 0..nas.len() });
    assert_eq!(events, [Event::ContextSetup { owner: 7, key: KEY }, up.clone(), to_ue.clone()]);
    let tunnel = test.enb.tunnels(FIRST)[0];
    assert_eq!((tunnel.upf, tunnel.uplink, tunnel.downlink), ([127, 0, 0, 7].into(), Teid(0x101), Teid(0x75)));
    assert_eq!((test.enb.lose_tunnel(FIRST), test.enb.lose_tunnel(FIRST)), (Some(tunnel), None));
    assert_eq!(test.receives("E-RABSetupRequest", &["E-RABSetupResponse"]), [up, to_ue.clone()]);
    // An E-RAB that exists is not set up again (TS 36.413 8.2.1.3).
    let (mut inbox, mut out) = (Inbox::default(), Outbox::default());
    test.enb.receive(goldens.get("E-RABSetupRequest"), &mut inbox, &mut out).expect("the answer encodes");
    assert_eq!(inbox.events[0], Event::Violation(enb::Violation::Unexpected(5)));
    assert_eq!(test.enb.tunnels(FIRST), [tunnel]);
    let events = test.receives("E-RABReleaseCommand", &["E-RABReleaseResponse"]);
    assert_eq!(events, [Event::TunnelDown { owner: 7, psi: 5 }, to_ue]);
    let inactive = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
    test.sends(&["UEContextReleaseRequest"], |enb, out| enb.request_release(FIRST, inactive.clone(), out));
    let events = test.receives("UEContextReleaseCommand", &["UEContextReleaseComplete"]);
    assert_eq!(events, [Event::Released { owner: 7, cause: inactive }]);
    let mut test = EnbUnderTest::connected(&goldens);
    let events = test.receives("UEContextReleaseCommand-mme-id", &["UEContextReleaseComplete"]);
    assert_eq!(events, [Event::Released { owner: 7, cause: Cause::nas(CauseNas::detach) }]);
    let mut test = EnbUnderTest::new(&goldens);
    let cause = RRCEstablishmentCause::mt_Access;
    test.sends(&["InitialUEMessage-s-tmsi"], |enb, out| enb.initial_ue(7, &nas, Some(guti()), cause, out));
    node_messages(&goldens);
    source_and_target_messages(&goldens);
    path_switch_messages(&goldens);
    intersystem_messages(&goldens);
    goldens.assert_used(|octets| !is_nas(octets));
}

/// Messages of a handover between EPS and 5GS.
fn intersystem_messages(goldens: &Goldens) {
    let target = GnbId { plmn: tai().plmn, id: 0x102, bits: 24 };
    let order = HandoverOrder { target: target.into(), area: tai(), refused: false, direct: false };
    let mut test = with_bearer(goldens);
    let tunnel = test.enb.tunnels(FIRST)[0];
    test.sends(&["HandoverRequired-to-5gs"], |enb, out| enb.require_handover(FIRST, order, out));
    let nas = vec![0x32, 0x56, 0x0a, 0xc7, 0x22, 0x2a, 0, 0];
    let forwarding = vec![ForwardingEnd { tunnel, to: [127, 0, 0, 7].into(), teid: Teid(0x102) }];
    let command = Event::HandoverCommand { owner: 7, target: FIRST, nas, forwarding };
    assert_eq!(test.receives("HandoverCommand-to-5gs", &[]), [command]);

    let mut test = EnbUnderTest::new(goldens);
    let events = test.receives("HandoverRequest-from-5gs", &["HandoverRequestAcknowledge-from-5gs"]);
    let (source, target) = (FIRST, FIRST);
    assert_eq!(events, [Event::HandoverPrepared { owner: 7, source, target, key: KEY, chaining: 2, mapped: true }]);
    let tunnel = test.enb.tunnels(FIRST)[0];
    assert_eq!((tunnel.upf, tunnel.uplink, tunnel.downlink), ([127, 0, 0, 7].into(), Teid(0x101), Teid(0x75)));
    test.sends(&["HandoverNotify"], |enb, out| enb.notify(FIRST, out));
}

/// Connects a UE with its E-RAB.
fn with_bearer(goldens: &Goldens) -> EnbUnderTest<'_> {
    let mut test = EnbUnderTest::connected(goldens);
    let answers = ["InitialContextSetupResponse", "UECapabilityInfoIndication"];
    test.receives("InitialContextSetupRequest", &answers);
    test
}

fn source_and_target_messages(goldens: &Goldens) {
    let mut source = with_bearer(goldens);
    let peer = EnbId { plmn: tai().plmn, kind: EnbKind::Macro, id: 0xabd };
    let order = HandoverOrder { target: peer.into(), area: tai(), refused: false, direct: true };
    source.sends(&["HandoverRequired"], |enb, out| enb.require_handover(FIRST, order, out));
    let cause = vireo_wire::s1ap::Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell);
    assert_eq!(source.receives("HandoverPreparationFailure", &[]), [Event::HandoverRefused { owner: 7, cause }]);
    source.sends(&["HandoverCancel"], |enb, out| enb.cancel_handover(FIRST, out));
    assert_eq!(source.receives("HandoverCancelAcknowledge", &[]), [Event::HandoverCancelled { owner: 7 }]);
    let tunnel = source.enb.tunnels(FIRST)[0];
    let forwarding = vec![ForwardingEnd { tunnel, to: [127, 0, 0, 9].into(), teid: Teid(0x0800_0075) }];
    let events = source.receives("HandoverCommand", &["ENBStatusTransfer"]);
    assert_eq!(events, [Event::HandoverCommand { owner: 7, target: FIRST, nas: Vec::new(), forwarding }]);
    let mut target = EnbUnderTest::new(goldens);
    let events = target.receives("HandoverRequest", &["HandoverRequestAcknowledge"]);
    let (owner, source, chaining) = (7, FIRST, 2);
    let prepared = Event::HandoverPrepared { owner, source, target: FIRST, key: KEY, chaining, mapped: false };
    assert_eq!(events, [prepared]);
    let tunnel = target.enb.tunnels(FIRST)[0];
    assert_eq!((tunnel.upf, tunnel.uplink, tunnel.downlink), ([127, 0, 0, 7].into(), Teid(0x101), Teid(0x75)));
    assert_eq!(target.receives("MMEStatusTransfer", &[]), [Event::StatusTransfer { owner: 7 }]);
    target.sends(&["HandoverNotify"], |enb, out| enb.notify(FIRST, out));
    let mut target = EnbUnderTest::new(goldens);
    assert_eq!(target.receives("HandoverRequest-not-forwarded", &["HandoverFailure"]), []);
}

fn path_switch_messages(goldens: &Goldens) {
    let source = with_bearer(goldens);
    let mut target = EnbUnderTest::new(goldens);
    let mut arrive = || {
        let context = source.enb.handover_context(FIRST, (0x70, 0x70)).expect("a connection");
        target.sends(&["PathSwitchRequest"], |enb, out| enb.path_switch(context, |_| true, out))
    };
    assert_eq!(arrive(), FIRST);
    let switched = [Event::PathSwitched { owner: 7, key: KEY, chaining: 2, renewed: false }];
    assert_eq!(target.receives("PathSwitchRequestAcknowledge", &[]), switched);
    assert_eq!(target.receives("PathSwitchRequestAcknowledge-moved", &[]), switched);
    let tunnel = target.enb.tunnels(FIRST)[0];
    assert_eq!((tunnel.psi, tunnel.upf, tunnel.uplink), (5, [127, 0, 0, 7].into(), Teid(0x101)));
    assert_eq!(target.receives("PathSwitchRequestFailure", &[]), [Event::PathSwitchFailed { owner: 7 }]);
}

fn node_messages(goldens: &Goldens) {
    use vireo_wire::s1ap::Cause;
    let mut test = EnbUnderTest::connected(goldens);
    let nas = test.nas.clone();
    let mut out = Outbox::default();
    let cause = RRCEstablishmentCause::mo_Signalling;
    let second = test.enb.initial_ue(8, &nas, None, cause, &mut out).expect("encodes");
    let operator = Cause::misc(CauseMisc::om_intervention);
    let events = test.receives("Reset-mme-part", &["ResetAcknowledge-part"]);
    let released = |owner| Event::Released { owner, cause: operator.clone() };
    assert_eq!(events, [released(7), released(8)]);
    assert_eq!((second.0, test.enb.connected()), (0x100, 0));
    let mut test = EnbUnderTest::connected(goldens);
    let second = test.enb.initial_ue(8, &nas, None, cause, &mut out).expect("encodes");
    let gone = test.sends(&["Reset-enb-part"], |enb, out| enb.reset(Some(&[FIRST, second]), out));
    assert_eq!(gone, [7, 8]);
    assert_eq!(test.receives("ResetAcknowledge-part", &[]), [Event::ResetDone]);
    test.sends(&["Reset-enb-all"], |enb, out| enb.reset(None, out));
    assert_eq!(test.receives("ResetAcknowledge", &[]), [Event::ResetDone]);
    assert_eq!(test.receives("Reset-mme-all", &["ResetAcknowledge"]), []);
    test.sends(&["ENBConfigurationUpdate"], Enb::update_configuration);
    assert_eq!(test.receives("ENBConfigurationUpdateAcknowledge", &[]), [Event::ConfigurationUpdated(true)]);
    for failure in ["ENBConfigurationUpdateFailure", "ENBConfigurationUpdateFailure-wait"] {
        assert_eq!(test.receives(failure, &[]), [Event::ConfigurationUpdated(false)]);
    }
    assert_eq!(test.receives("MMEConfigurationUpdate", &["MMEConfigurationUpdateAcknowledge"]), []);
    assert_eq!(test.receives("Paging", &[]), [Event::Paging(Tmsi(0xdead_beef))]);
    // A cycle of 81.92 s with a window of 5.12 s.
    let extended = Event::ExtendedPaging(Tmsi(0xdead_beef), 0x35);
    assert_eq!(test.receives("Paging-extended-drx", &[]), [extended]);
    assert_eq!(test.receives("OverloadStart", &[]), [Event::Overload(true)]);
    assert_eq!(test.receives("OverloadStop", &[]), [Event::Overload(false)]);
    let syntax = Cause::protocol(CauseProtocol::transfer_syntax_error);
    let report = ErrorReport { core_id: None, ran_id: None, cause: Some(syntax), diagnostics: false };
    assert_eq!(test.receives("ErrorIndication", &[]), [Event::ErrorIndication(report)]);
    test.sends(&["ErrorIndication"], |enb, out| enb.receive(&[0xff], &mut Inbox::default(), out));
    let cause = Some(Cause::radioNetwork(CauseRadioNetwork::unknown_mme_ue_s1ap_id));
    let report = ErrorReport { core_id: Some(MME_ID.into()), ran_id: Some(0), cause, diagnostics: false };
    test.sends(&["ErrorIndication-ue"], |enb, out| enb.indicate_error(report.clone(), out));
    assert_eq!(test.receives("ErrorIndication-ue", &[]), [Event::ErrorIndication(report)]);
    let config = test.enb.config().clone();
    let mut test = EnbUnderTest { goldens, enb: Enb::new(config), nas };
    test.sends(&["S1SetupRequest"], |enb, out| enb.set_up(2, out));
    assert_eq!(test.receives("S1SetupFailure", &[]), [Event::SetupFailed(Cause::misc(CauseMisc::unknown_PLMN))]);
}

/// LTE UE of the goldens, with the network's security context.
struct UeUnderTest<'a> {
    goldens: &'a Goldens,
    profile: Profile,
    ue: LteUe,
    security: NasSecurityContext,
}

impl<'a> UeUnderTest<'a> {
    fn new(goldens: &'a Goldens) -> Self {
        let profile = Profile::new(tai().plmn, Snssai { sst: 1, sd: None }, "internet".parse().expect("a name"));
        let usim = Usim::new("999700000000001".parse().expect("digits"), Keys { k: LAB_K, opc: OPC });
        let milenage = Milenage::new(&K::new(&LAB_K), &Opc::new(&OPC));
        let request = goldens.get("AuthenticationRequest");
        let rand = Rand::new(request[3..19].try_into().expect("16 octets"));
        let vector = milenage.authentication_vector(&rand, &Sqn::try_from(SQN).expect("48 bits"), &Amf::new(&AMF));
        assert_eq!(vector.autn().as_octets()[..], request[20..]);
        let network = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        let k_asme = derive_kasme(vector.ck(), vector.ik(), network, vector.autn());
        let (eia, eea) = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA0);
        let security = NasSecurityContext::from_fresh_kasme(&k_asme, eia, eea).expect("algorithms");
        UeUnderTest { goldens, profile, ue: LteUe::new(usim), security }
    }

    /// Compares the messages of the UE with the goldens, without their security headers.
    #[track_caller]
    fn compare(&self, output: &UeOutput, names: &[&str]) {
        let plain = |message: &[u8]| if message[0] == 0x07 { message.to_vec() } else { message[6..].to_vec() };
        let sent: Vec<_> = output.messages().map(plain).collect();
        let expected: Vec<_> = names.iter().map(|name| self.goldens.get(name)).collect();
        assert_eq!(sent, expected, "{names:?}");
    }

    #[track_caller]
    fn does(
        &mut self,
        names: &[&str],
        act: impl FnOnce(&mut LteUe, &Profile, &mut UeOutput) -> Result<(), ue::CommandError>,
    ) {
        let mut output = UeOutput::default();
        act(&mut self.ue, &self.profile, &mut output).expect("the command fits");
        self.compare(&output, names);
    }

    #[track_caller]
    fn registers(&mut self, registration: Registration, name: &str) {
        self.does(&[name], |ue, profile, out| ue.register(profile, registration, PduSessionType::Ipv4, out));
    }

    #[track_caller]
    fn receives_octets(&mut self, octets: &[u8], answers: &[&str]) -> Vec<ue::Event> {
        let mut output = UeOutput::default();
        self.ue.receive(&self.profile, octets, &mut output);
        self.compare(&output, answers);
        output.events
    }

    #[track_caller]
    fn receives_plain(&mut self, name: &str, answers: &[&str]) -> Vec<ue::Event> {
        let octets = self.goldens.get(name).to_vec();
        self.receives_octets(&octets, answers)
    }

    #[track_caller]
    fn receives(&mut self, name: &str, answers: &[&str]) -> Vec<ue::Event> {
        let header = match name {
            "SecurityModeCommand" => NasEpsSecurityHeaderType::IntegrityProtectedWithNewEpsSecurityContext,
            _ => NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered,
        };
        let plain = self.goldens.get(name).to_vec();
        let octets = self.security.protect_bytes(plain, header, Direction::Downlink).expect("protects");
        self.receives_octets(&octets, answers)
    }

    /// Returns a UE that is attached and connected.
    fn attached(goldens: &'a Goldens) -> Self {
        let mut test = UeUnderTest::new(goldens);
        test.registers(Registration::Fresh, "AttachRequest-imsi");
        assert_eq!(test.receives_plain("IdentityRequest", &["IdentityResponse"]), []);
        assert_eq!(test.receives_plain("AuthenticationRequest", &["AuthenticationResponse"]), []);
        let secured = ue::Event::Secured { ciphering: 0, integrity: 2 };
        assert_eq!(test.receives("SecurityModeCommand", &["SecurityModeComplete"]), [secured]);
        assert_eq!(test.receives("ESMInformationRequest", &["ESMInformationResponse"]), []);
        test.is_accepted();
        test
    }

    #[track_caller]
    fn is_accepted(&mut self) {
        let address = ue::Address { ipv4: Some([10, 46, 0, 2].into()), interface: None };
        let up = [ue::Event::Registered { guti: true }, ue::Event::SessionUp { psi: 5, address }];
        assert_eq!(self.receives("AttachAccept", &["AttachComplete"]), up);
        assert_eq!((self.ue.mm(), self.ue.guti()), (MmState::Registered, Some(guti())));
    }
}

#[test]
fn lte_ue_messages_equal_those_of_pycrate() {
    let goldens = Goldens::read();
    let mut test = UeUnderTest::attached(&goldens);
    test.does(&["DetachRequest-ue"], |ue, _, out| ue.deregister(false, out));
    assert_eq!(
        test.receives_plain("DetachAccept-network", &[]),
        [ue::Event::Violation(ue::Violation::Unprotected(0x46))]
    );
    assert_eq!(test.receives("DetachAccept-network", &[]), [ue::Event::Deregistered]);
    test.ue.connection_released();
    test.registers(Registration::Initial, "AttachRequest-guti");
    let rejected = ue::Event::RegistrationRejected { cause: 22, retry_after_s: Some(60) };
    assert_eq!(test.receives_plain("AttachReject", &[]), [rejected]);
    test.registers(Registration::Initial, "AttachRequest-guti");
    test.is_accepted();
    for (registration, name) in [
        (Registration::Periodic, "TrackingAreaUpdateRequest-periodic"),
        (Registration::Mobility, "TrackingAreaUpdateRequest-active"),
    ] {
        test.ue.connection_released();
        test.registers(registration, name);
        let updated = ue::Event::Registered { guti: true };
        assert_eq!(test.receives("TrackingAreaUpdateAccept", &["TrackingAreaUpdateComplete"]), [updated]);
    }
    let updated = [ue::Event::ConfigurationUpdated];
    assert_eq!(test.receives("GUTIReallocationCommand", &["GUTIReallocationComplete"]), updated);
    assert_eq!(test.receives("EMMInformation", &[]), updated);
    assert_eq!(test.receives("EMMStatus", &[]), [ue::Event::Status(Cause::Emm(97))]);
    let released = ue::Event::SessionReleased { psi: 5 };
    assert_eq!(test.receives("DeactivateEPSBearerContextRequest", &["DeactivateEPSBearerContextAccept"]), [released]);
    let detached = ue::Event::DeregisteredByNetwork { cause: None, reregister: true };
    assert_eq!(test.receives("DetachRequest-network", &["DetachAccept"]), [detached]);
    further_connections(&goldens);
    refusals(&goldens);
    goldens.assert_used(is_nas);
}

fn further_connections(goldens: &Goldens) {
    let connect = |test: &mut UeUnderTest<'_>| {
        test.profile.dnn = "ims".parse().expect("a name");
        let kind = PduSessionType::Ipv4v6;
        let usual = ue::SessionVariant::Usual;
        test.does(&["PDNConnectivityRequest"], |ue, profile, out| ue.establish_as(profile, (2, kind), usual, out));
    };
    let mut test = UeUnderTest::attached(goldens);
    connect(&mut test);
    let accept = ["ActivateDefaultEPSBearerContextAccept"];
    let events = test.receives("ActivateDefaultEPSBearerContextRequest", &accept);
    assert!(matches!(events[..], [ue::Event::SessionUp { psi: 6, .. }]), "{events:?}");
    test.does(&["PDNDisconnectRequest"], |ue, _, out| ue.release(2, out));
    let rejected = ue::Event::SessionRejected { psi: 6, cause: Cause::Esm(49) };
    assert_eq!(test.receives("PDNDisconnectReject", &[]), [rejected]);
    for (name, cause) in [("PDNConnectivityReject", 27), ("PDNConnectivityReject-congestion", 26)] {
        let mut test = UeUnderTest::attached(goldens);
        connect(&mut test);
        let rejected = ue::Event::SessionRejected { psi: 2, cause: Cause::Esm(cause) };
        assert_eq!(test.receives(name, &[]), [rejected]);
    }
}

fn refusals(goldens: &Goldens) {
    let mut test = UeUnderTest::attached(goldens);
    test.does(&["DetachRequest-switch-off"], |ue, _, out| ue.deregister(true, out));
    let mut test = UeUnderTest::attached(goldens);
    test.ue.connection_released();
    let mut output = UeOutput::default();
    test.ue.service_request(Service::Data, &mut output).expect("the command fits");
    let rejected = ue::Event::ServiceRejected { cause: 9, retry_after_s: None };
    assert_eq!(test.receives_plain("ServiceReject", &[]), [rejected]);
    let mut test = UeUnderTest::attached(goldens);
    test.ue.connection_released();
    test.registers(Registration::Periodic, "TrackingAreaUpdateRequest-periodic");
    let rejected = ue::Event::RegistrationRejected { cause: 9, retry_after_s: None };
    assert_eq!(test.receives_plain("TrackingAreaUpdateReject", &[]), [rejected]);
    assert_eq!((test.ue.mm(), test.ue.guti()), (MmState::Deregistered, None));
    let mut test = UeUnderTest::new(goldens);
    test.registers(Registration::Fresh, "AttachRequest-imsi");
    let mut forged = goldens.get("AuthenticationRequest").to_vec();
    *forged.last_mut().expect("not empty") ^= 1;
    let failed = ue::Event::AuthenticationFailed { cause: 20 };
    assert_eq!(test.receives_octets(&forged, &["AuthenticationFailure-mac"]), [failed]);
    assert_eq!(test.receives_plain("AuthenticationReject", &[]), [ue::Event::AuthenticationRejected]);
}
