//! Well-behaved UE, which separates correct behaviour from the tested faults.

use crate::core::{K, OPC};
use crate::messages;
use crate::ran::{ANSWER, Ran};
use std::time::Instant;
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, NGAPPDU, NgapPduKind, ie};
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{K as Key, Milenage, Opc};
use vireo_wire::security::nas_5gs::{Supi, derive_kamf, derive_kausf, derive_kseaf};

const NETWORK: &[u8] = b"5G:mnc070.mcc999.3gppnetwork.org";

/// UE of a lab subscriber.
pub(crate) struct Device {
    number: u32,
    pub(crate) ran_id: u32,
    pub(crate) amf_id: u64,
    pub(crate) security: Option<NasSecurityContext>,
    pub(crate) guti: Option<Guti>,
    k_amf: Option<KAmf>,
    /// Protected messages, as sent.
    pub(crate) sent: Vec<Vec<u8>>,
}

/// Returns a REGISTRATION REQUEST of subscriber `number` with a null-scheme SUCI.
pub(crate) fn registration(number: u32) -> Nas5gsMessage {
    let plmn = Plmn::new("999", "70").expect("a PLMN");
    let suci = ImsiSuci::null(plmn, RoutingIndicator::default(), &format!("{number:010}")).expect("a SUCI");
    let identity = NasFGsMobileIdentity::from_suci(&Suci::Imsi(suci)).expect("an identity");
    let kind = NasFGsRegistrationType::from_registration_type(RegistrationType::InitialRegistration);
    let ngksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::NoKey).expect("no key");
    let request = NasRegistrationRequest::new(kind.with_follow_on_request(true), ngksi, identity);
    Nas5gsMessage::new_5gmm(request.with_ue_security_capability(NasUeSecurityCapability::from_capabilities(0xf0, 0x70)))
}

/// Returns the octets of a plain message.
pub(crate) fn plain(message: impl Into<Nas5gmmMessage>) -> Vec<u8> {
    Nas5gsMessage::new_5gmm(message).encode().expect("it encodes")
}

impl Device {
    pub(crate) fn new(number: u32) -> Self {
        let (ran_id, sent) = (0x0010_0000 + number, Vec::new());
        Device { number, ran_id, amf_id: 0, security: None, guti: None, k_amf: None, sent }
    }

    /// Registers. Returns the duration.
    pub(crate) fn register(&mut self, ran: &mut Ran) -> std::time::Duration {
        let begun = Instant::now();
        ran.send(1, &messages::initial_ue(self.ran_id, &registration(self.number).encode().expect("octets"), None));
        let deadline = begun + ANSWER * 4;
        while self.guti.is_none() {
            assert!(Instant::now() < deadline, "the UE is not registered in time");
            let (_, octets) = ran.next(ANSWER).expect("the core serves the UE");
            self.receive(ran, &octets);
        }
        begun.elapsed()
    }

    /// Handles a PDU of the core if it concerns this UE.
    pub(crate) fn receive(&mut self, ran: &mut Ran, octets: &[u8]) {
        let pdu = NGAP_PDU::decode(octets).expect("a PDU");
        if pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).is_none_or(|id| id.0 != self.ran_id) {
            return;
        }
        self.amf_id = pdu.ie::<ie::AMF_UE_NGAP_ID>().expect("an AMF-UE-NGAP-ID").expect("it decodes").0;
        if let Some(nas) = nas_of(&pdu) {
            self.nas(ran, &nas);
        }
        if pdu.kind() == NgapPduKind::Initiating_InitialContextSetup {
            ran.send(1, &messages::context_set_up(self.amf_id, self.ran_id));
        }
    }

    fn nas(&mut self, ran: &mut Ran, octets: &[u8]) {
        if octets.get(1) == Some(&3) {
            self.new_context(&octets[7..]);
        }
        let message = match &mut self.security {
            Some(security) if octets[1] != 0 => {
                security.unprotect(octets, Direction::Downlink).expect("the core's NAS verifies").message
            }
            _ => Nas5gsMessage::decode(octets).expect("a NAS message"),
        };
        let Nas5gsMessage::Gmm(_, message) = message else { panic!("{message}") };
        match message {
            Nas5gmmMessage::AuthenticationRequest(request) => {
                let answer = self.authenticate(&request);
                self.send_plain(ran, &plain(answer));
            }
            Nas5gmmMessage::SecurityModeCommand(_) => {
                let container = NasMessageContainer::from_nas_message(&registration(self.number)).expect("a container");
                let imeisv = NasFGsMobileIdentity::from_imeisv("4370816125816151").expect("an IMEISV");
                let complete = NasSecurityModeComplete::new().with_imeisv(imeisv).with_nas_message_container(container);
                let header = Nas5gsSecurityHeaderType::IntegrityProtectedAndCipheredWithNewFiveGNasSecurityContext;
                let nas = self.protect(&Nas5gsMessage::new_5gmm(complete), header);
                self.send_plain(ran, &nas);
            }
            Nas5gmmMessage::RegistrationAccept(accept) => {
                self.guti = accept.fg_guti.as_ref().and_then(|id| id.as_guti());
                self.send(ran, NasRegistrationComplete::new());
            }
            other => panic!("the UE is told {other:?}"),
        }
    }

    fn authenticate(&mut self, request: &NasAuthenticationRequest) -> NasAuthenticationResponse {
        let octets = |digits: &str| hex::decode(digits).expect("hexadecimal digits");
        let k = Key::from_slice(&octets(K)).expect("a key");
        let card = Milenage::new(&k, &Opc::from_slice(&octets(OPC)).expect("an OPc"));
        let rand = request.authentication_parameter_rand.as_ref().and_then(|r| r.rand()).expect("a RAND");
        let autn = request.authentication_parameter_autn.as_ref().and_then(|a| a.autn()).expect("an AUTN");
        let (rand, autn) = (Rand::new(rand), vireo_wire::security::Autn::new(autn));
        let answer = card.check_autn(&rand, &autn).expect("the AUTN is the home network's");
        let kausf = derive_kausf(answer.ck(), answer.ik(), NETWORK, &autn).expect("a key");
        let kseaf = derive_kseaf(&kausf, NETWORK).expect("a key");
        let supi = Supi::parse(&format!("imsi-99970{:010}", self.number)).expect("a SUPI").into_owned();
        self.k_amf = Some(derive_kamf(&kseaf, &supi, request.abba.abba()).expect("a key"));
        let res_star = *answer.res_star(NETWORK).expect("a RES*").as_octets();
        NasAuthenticationResponse::new()
            .with_authentication_response_parameter(NasAuthenticationResponseParameter::from_res_star(res_star))
    }

    /// Creates the context of a Security Mode Command.
    fn new_context(&mut self, plain: &[u8]) {
        let Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::SecurityModeCommand(command))) = Nas5gsMessage::decode(plain)
        else {
            panic!("a Security Mode Command")
        };
        let algorithms = &command.selected_nas_security_algorithms;
        let (nia, nea) = (algorithms.integrity().expect("an NIA"), algorithms.ciphering().expect("an NEA"));
        let k_amf = self.k_amf.as_ref().expect("authenticated before");
        self.security = Some(NasSecurityContext::from_fresh_kamf(k_amf, nia, nea).expect("a context"));
    }

    /// Returns a message under the UE's keys.
    pub(crate) fn protect(&mut self, message: &Nas5gsMessage, header: Nas5gsSecurityHeaderType) -> Vec<u8> {
        let security = self.security.as_mut().expect("keys");
        let nas = security.protect(message, header, Direction::Uplink).expect("it can be protected");
        self.sent.push(nas.clone());
        nas
    }

    /// Sends a protected message on the UE's connection.
    pub(crate) fn send(&mut self, ran: &mut Ran, message: impl Into<Nas5gmmMessage>) {
        let message = Nas5gsMessage::new_5gmm(message);
        let nas = self.protect(&message, Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered);
        self.send_plain(ran, &nas);
    }

    /// Sends octets as the UE's NAS.
    pub(crate) fn send_plain(&mut self, ran: &mut Ran, nas: &[u8]) {
        ran.send(1, &messages::uplink_nas(self.amf_id, self.ran_id, nas));
    }

    /// Checks that the core still serves the UE. It sends a UL NAS Transport for a session that the
    /// UE does not have, which the core answers at once. It panics unless the answer has the same
    /// keys.
    pub(crate) fn assert_served(&mut self, ran: &mut Ran, what: &str) {
        let release = Nas5gsMessage::new_5gsm(NasPduSessionReleaseRequest::new(), 9, 1);
        let container = NasPayloadContainer::from_n1_sm_message(&release).expect("a container");
        let kind = NasPayloadContainerType::from_kind(PayloadContainerKind::N1SmInformation);
        let id = NasPduSessionIdentity2::from_pdu_session_id(9);
        self.send(ran, NasUlNasTransport::new(kind, container).with_pdu_session_id(id));
        let pdu = ran.expect(what, |pdu| pdu.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
        let nas = nas_of(&pdu).expect("NAS");
        let answer = self.security.as_mut().expect("keys").unprotect(&nas, Direction::Downlink);
        answer.unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// Returns the NAS message of a PDU.
pub(crate) fn nas_of(pdu: &NGAPPDU<'_>) -> Option<Vec<u8>> {
    pdu.ie::<ie::NAS_PDU>().and_then(Result::ok).map(|nas| nas.0.to_vec())
}
