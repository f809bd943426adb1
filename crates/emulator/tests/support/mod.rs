//! Scripted network for tests: an AMF and SMF for registrations and sessions.
//!
//! Its NAS security is the codec's, not the emulator's. Each thus verifies the other.
#![allow(dead_code, unreachable_pub)]

pub mod lab;
pub mod upf;
pub mod wire;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use vireo_wire::nas::*;
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{
    HomeNetworkPrivateKey, Suci, Supi, derive_kamf, derive_kausf, derive_kgnb, derive_kseaf,
};
use wire::Uplink;

pub const K_OCTETS: [u8; 16] = *b"\x46\x5B\x5C\xE8\xB1\x99\xB4\x9F\xAA\x5F\x0A\x2E\xE2\x38\xA6\xBC";
pub const OPC_OCTETS: [u8; 16] = *b"\xE8\xED\x28\x9D\xEB\xA9\x52\xE4\x28\x3B\x54\xE8\x8E\x61\x83\xCA";

/// Behaviour of the network.
pub struct Behaviour {
    pub nea: CipheringAlgorithm,
    pub nia: IntegrityAlgorithm,
    /// Refuses registrations with this cause and T3346.
    pub reject: Option<(GmmCause, Option<u32>)>,
    /// Number of registrations that `reject` applies to.
    pub rejections: u32,
    /// Refuses sessions with this 5GSM cause.
    pub reject_session: Option<GsmCause>,
    /// De-conceals SUCIs of Profile A and B.
    pub private: Option<HomeNetworkPrivateKey>,
    /// Sends SECURITY MODE COMMAND with capabilities that differ from the UE's.
    pub bid_down: bool,
    /// Sends challenges with a wrong MAC.
    pub forge: bool,
    /// Assigns IPv6 interface identifiers, too.
    pub ipv6: bool,
    /// Pages every UE as soon as it is idle.
    pub page: bool,
    /// Number of messages that the network ignores.
    pub deaf: u32,
    /// Number of service requests refused with cause #22 and a T3346 of 2 s.
    pub congested: u32,
    /// Answers NG SETUP and nothing else.
    pub mute: bool,
    pub upf: Ipv4Addr,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            nea: CipheringAlgorithm::NEA2,
            nia: IntegrityAlgorithm::NIA2,
            reject: None,
            rejections: u32::MAX,
            reject_session: None,
            private: None,
            bid_down: false,
            forge: false,
            ipv6: false,
            page: false,
            deaf: 0,
            congested: 0,
            mute: false,
            upf: Ipv4Addr::new(127, 0, 1, 1),
        }
    }
}

/// First 5G-TMSI; further ones count up.
const FIRST_TMSI: u32 = 0xc000_0000;

#[derive(Default)]
struct UeRecord {
    supi: String,
    security: Option<NasSecurityContext>,
    ksi: u8,
    tmsi: u32,
    k_amf: Option<KAmf>,
    xres_star: [u8; 16],
    rand: [u8; 16],
    capability: Option<NasUeSecurityCapability>,
    /// PSI and the UPF's TEID of each session.
    sessions: Vec<(u8, u32)>,
    registered: bool,
    /// Purpose of the pending registration, which is answered after security mode control.
    stage: Stage,
    /// AMF-UE-NGAP-ID and RAN-UE-NGAP-ID of the NG connection.
    pub connection: Option<(u64, u32)>,
    access_count: u32,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Stage {
    #[default]
    Idle,
    Authenticating,
    Securing,
    Accepting,
}

/// Scripted network. `receive` takes a PDU of the gNB and returns the PDUs to send back.
#[derive(Default)]
pub struct Network {
    pub behaviour: Behaviour,
    ues: Vec<UeRecord>,
    by_supi: HashMap<String, usize>,
    by_amf_id: HashMap<u64, usize>,
    sequence: u64,
    next_amf_id: u64,
    next_address: u32,
    /// Faults in the emulator's messages, for assertions.
    pub faults: Vec<String>,
    pub registered: usize,
    pub deregistered: usize,
    pub imeisvs: Vec<String>,
    /// gNB address and TEID of each TEID of the UPF.
    pub routes: HashMap<u32, (Ipv4Addr, u32)>,
    pub log: Vec<String>,
}

impl Network {
    pub fn new(behaviour: Behaviour) -> Self {
        Network { behaviour, sequence: 0x1000, next_amf_id: 1, next_address: 1, ..Network::default() }
    }

    /// Handles one NGAP PDU.
    pub fn receive(&mut self, pdu: &[u8]) -> Vec<Vec<u8>> {
        match wire::read(pdu) {
            Uplink::NgSetup => vec![wire::ng_setup_response()],
            _ if self.behaviour.mute => vec![],
            _ if self.behaviour.deaf > 0 => {
                self.behaviour.deaf -= 1;
                vec![]
            }
            Uplink::InitialUe { ran, nas, s_tmsi } => self.initial(ran, &nas, s_tmsi),
            Uplink::Nas { amf, ran, nas } => self.nas(amf, ran, &nas),
            Uplink::ReleaseRequest { amf, ran } => vec![wire::release_command(amf, ran)],
            Uplink::ReleaseComplete { amf } => {
                let Some(index) = self.by_amf_id.remove(&amf) else { return vec![] };
                self.ues[index].connection.take_if(|(current, _)| *current == amf);
                match self.behaviour.page && self.ues[index].registered {
                    true => vec![wire::paging(self.ues[index].tmsi)],
                    false => vec![],
                }
            }
            Uplink::Tunnels { amf, tunnels } => {
                let sessions = self.by_amf_id.get(&amf).map(|index| self.ues[*index].sessions.clone());
                for (psi, address, teid) in tunnels {
                    let known = sessions.iter().flatten().find(|(known, _)| *known == psi);
                    // An answer may arrive after the session has ended.
                    known.map(|(_, uplink)| self.routes.insert(*uplink, (address, teid)));
                }
                vec![]
            }
            Uplink::Reset(whole) => {
                if whole {
                    self.by_amf_id.clear();
                }
                vec![wire::reset_acknowledge()]
            }
            Uplink::Update => vec![wire::update_acknowledge()],
            Uplink::Answer => vec![],
            Uplink::Bad(what) => {
                self.faults.push(what);
                vec![wire::error_indication()]
            }
            Uplink::Other(name) => {
                self.faults.push(format!("unexpected {name}"));
                vec![]
            }
        }
    }

    /// Loses all UEs, like a stateful core that dies.
    pub fn forget_all(&mut self) {
        for ue in &mut self.ues {
            ue.security = None;
        }
        self.by_amf_id.clear();
    }

    fn find(&mut self, supi: &str) -> usize {
        if let Some(index) = self.by_supi.get(supi) {
            return *index;
        }
        let tmsi = FIRST_TMSI + self.ues.len() as u32;
        self.ues.push(UeRecord { supi: supi.into(), tmsi, ..UeRecord::default() });
        self.by_supi.insert(supi.into(), self.ues.len() - 1);
        self.ues.len() - 1
    }

    fn connect(&mut self, index: usize, ran: u32) -> (u64, u32) {
        let amf = self.next_amf_id;
        self.next_amf_id += 1;
        self.by_amf_id.insert(amf, index);
        self.ues[index].connection = Some((amf, ran));
        (amf, ran)
    }

    fn initial(&mut self, ran: u32, nas: &[u8], s_tmsi: Option<u32>) -> Vec<Vec<u8>> {
        self.log.push(format!("initial {:02x?}", &nas[..2]));
        if nas[1] & 0xf != 0 {
            let known = s_tmsi.and_then(|tmsi| tmsi.checked_sub(FIRST_TMSI)).map(|index| index as usize);
            let known = known.filter(|index| self.ues.get(*index).is_some_and(|ue| ue.security.is_some()));
            if let Some(index) = known {
                let security = self.ues[index].security.as_mut().expect("was found with one");
                match security.unprotect(nas, Direction::Uplink) {
                    Ok(verified) => {
                        self.ues[index].access_count = verified.count.get();
                        self.connect(index, ran);
                        return self.protected(index, verified.message);
                    }
                    Err(error) => self.faults.push(format!("initial message: {error}")),
                }
            }
        }
        // An unverifiable registration is decoded for its identity; other messages are not.
        let protected = nas[1] & 0xf != 0;
        match Nas5gsMessage::decode(if protected { &nas[7..] } else { nas }) {
            Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationRequest(request))) => {
                if request.requested_nssai.is_some() || request.fgmm_capability.is_some() {
                    self.faults.push("a plain REGISTRATION REQUEST has non-cleartext IEs".into());
                }
                let capability = request.ue_security_capability.clone();
                match self.supi(&request.fgs_mobile_identity.value) {
                    Some(supi) => {
                        let index = self.find(&supi);
                        self.ues[index].capability = capability;
                        self.connect(index, ran);
                        self.challenge(index)
                    }
                    None => {
                        let index = self.find(&format!("unknown {ran}"));
                        self.ues[index].capability = capability;
                        self.connect(index, ran);
                        // IDENTITY REQUEST for the SUCI.
                        vec![self.downlink(index, vec![0x7e, 0, 0x5b, 1])]
                    }
                }
            }
            _ if protected => vec![],
            other => {
                self.faults.push(format!("initial message {other:?}"));
                vec![]
            }
        }
    }

    fn supi(&self, identity: &[u8]) -> Option<String> {
        let suci = Suci::from_nas_octets(identity).ok()?;
        Some(suci.deconceal(self.behaviour.private.as_ref()).ok()?.identity().to_string())
    }

    fn challenge(&mut self, index: usize) -> Vec<Vec<u8>> {
        self.sequence += 1;
        let milenage = Milenage::new(&K::new(&K_OCTETS), &Opc::new(&OPC_OCTETS));
        let mut rand = [0x5a; 16];
        rand[..8].copy_from_slice(&self.sequence.to_be_bytes());
        let sqn = Sqn::try_from(self.sequence << 5).expect("48 bits");
        let vector = milenage.authentication_vector(&Rand::new(&rand), &sqn, &Amf::new(&[0x80, 0]));
        let mut autn = *vector.autn().as_octets();
        if self.behaviour.forge {
            autn[9] ^= 0x40;
        }
        let name = b"5G:mnc070.mcc999.3gppnetwork.org";
        let ue = &mut self.ues[index];
        ue.rand = rand;
        ue.xres_star = *vector.xres_star(name).expect("a name").as_octets();
        let k_ausf = derive_kausf(vector.ck(), vector.ik(), name, vector.autn()).expect("a name");
        let k_seaf = derive_kseaf(&k_ausf, name).expect("a name");
        let digits = ue.supi.clone();
        ue.k_amf = Supi::imsi(&digits).ok().map(|supi| derive_kamf(&k_seaf, &supi, &[0, 0]).expect("an abba"));
        ue.ksi = (ue.ksi + 1) % 7;
        ue.stage = Stage::Authenticating;
        let ksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(ue.ksi)).expect("0 to 6");
        let request = NasAuthenticationRequest::new(ksi, NasAbba::new(vec![0, 0]))
            .with_authentication_parameter_rand(NasAuthenticationParameterRand::from_rand(rand))
            .with_authentication_parameter_autn(NasAuthenticationParameterAutn::from_autn(autn));
        let request = Nas5gsMessage::new_5gmm(request).encode().expect("encodes");
        vec![self.downlink(index, request)]
    }

    fn nas(&mut self, amf: u64, ran: u32, nas: &[u8]) -> Vec<Vec<u8>> {
        let Some(index) = self.by_amf_id.get(&amf).copied() else {
            self.faults.push(format!("NAS of nobody: {amf} {ran}"));
            return vec![];
        };
        if nas[1] & 0xf == 0 {
            return match Nas5gsMessage::decode(nas) {
                Ok(Nas5gsMessage::Gmm(_, message)) => self.plain(index, message),
                other => {
                    self.faults.push(format!("plain NAS {other:?}"));
                    vec![]
                }
            };
        }
        let Some(security) = self.ues[index].security.as_mut() else {
            self.faults.push("protected NAS without a context".into());
            return vec![];
        };
        match security.unprotect(nas, Direction::Uplink) {
            Ok(verified) => {
                if verified.security_header_type
                    == Nas5gsSecurityHeaderType::IntegrityProtectedAndCipheredWithNewFiveGNasSecurityContext
                {
                    self.ues[index].access_count = verified.count.get();
                }
                self.protected(index, verified.message)
            }
            Err(error) => {
                self.faults.push(format!("uplink NAS: {error}"));
                vec![]
            }
        }
    }

    fn plain(&mut self, index: usize, message: Nas5gmmMessage) -> Vec<Vec<u8>> {
        match message {
            Nas5gmmMessage::AuthenticationResponse(response) => {
                let res_star = response.authentication_response_parameter.as_ref().map(|p| p.value.to_vec());
                if res_star.as_deref() != Some(&self.ues[index].xres_star[..]) {
                    return self.refuse(index);
                }
                self.security_mode(index)
            }
            Nas5gmmMessage::AuthenticationFailure(failure) => match failure.fgmm_cause.cause() {
                Some(GmmCause::SynchFailure) => {
                    let auts = failure.authentication_failure_parameter.as_ref().map(|p| p.value.to_vec());
                    let milenage = Milenage::new(&K::new(&K_OCTETS), &Opc::new(&OPC_OCTETS));
                    let auts = Auts::from_slice(&auts.unwrap_or_default()).expect("14 octets");
                    let rand = Rand::new(&self.ues[index].rand);
                    let sqn = milenage.verify_auts(&rand, &auts).expect("a genuine AUTS");
                    self.sequence = (sqn.get() >> 5) + 1;
                    self.challenge(index)
                }
                Some(GmmCause::NgKsiAlreadyInUse) => self.challenge(index),
                _ => self.refuse(index),
            },
            Nas5gmmMessage::IdentityResponse(response) => match self.supi(&response.mobile_identity.value) {
                Some(supi) => {
                    let (capability, connection) = (self.ues[index].capability.clone(), self.ues[index].connection);
                    let index = self.find(&supi);
                    self.ues[index].capability = capability;
                    if let Some((_, ran)) = connection {
                        self.connect(index, ran);
                    }
                    // The connection keeps its AMF-UE-NGAP-ID.
                    let (amf, ran) = connection.expect("connected");
                    self.by_amf_id.insert(amf, index);
                    self.ues[index].connection = Some((amf, ran));
                    self.challenge(index)
                }
                None => {
                    self.faults.push("IDENTITY RESPONSE without a SUCI".into());
                    vec![]
                }
            },
            Nas5gmmMessage::SecurityModeReject(reject) => {
                self.log.push(format!("security mode reject {}", reject.fgmm_cause.value));
                vec![]
            }
            other => {
                self.faults.push(format!("plain {other:?}"));
                vec![]
            }
        }
    }

    /// Returns AUTHENTICATION REJECT and the release of the connection.
    fn refuse(&self, index: usize) -> Vec<Vec<u8>> {
        let (amf, ran) = self.ues[index].connection.expect("connected");
        vec![self.downlink(index, vec![0x7e, 0, 0x58]), wire::release_command(amf, ran)]
    }

    fn security_mode(&mut self, index: usize) -> Vec<Vec<u8>> {
        let (nia, nea) = (self.behaviour.nia, self.behaviour.nea);
        let bid_down = self.behaviour.bid_down;
        let ue = &mut self.ues[index];
        ue.stage = Stage::Securing;
        let k_amf = ue.k_amf.as_ref().expect("was challenged");
        let mut security = NasSecurityContext::from_fresh_kamf(k_amf, nia, nea).expect("algorithms");
        let ksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(ue.ksi)).expect("0 to 6");
        let mut capability = ue.capability.clone().expect("was given");
        if bid_down {
            capability = NasUeSecurityCapability::from_capabilities(0x80, 0x80);
        }
        let algorithms = NasSecurityAlgorithms::from_algorithms(nea, nia);
        let mut command = NasSecurityModeCommand::new(algorithms, ksi, capability);
        command.set_imeisv_request(NasImeisvRequest::new(1));
        command.set_additional_5g_security_information(NasAdditional5gSecurityInformation::from_flags(true, false));
        let header = Nas5gsSecurityHeaderType::IntegrityProtectedWithNewFiveGNasSecurityContext;
        let sent = security.protect(&Nas5gsMessage::new_5gmm(command), header, Direction::Downlink).expect("protects");
        ue.security = Some(security);
        vec![self.downlink(index, sent)]
    }

    fn protected(&mut self, index: usize, message: Nas5gsMessage) -> Vec<Vec<u8>> {
        let Nas5gsMessage::Gmm(_, message) = message else {
            self.faults.push("protected 5GSM".into());
            return vec![];
        };
        match message {
            Nas5gmmMessage::SecurityModeComplete(complete) => {
                self.imeisvs.extend(complete.imeisv.as_ref().map(|imeisv| format!("{imeisv}")));
                let whole = complete.nas_message_container.as_ref().and_then(|c| c.decode_as_nas_message().ok());
                match whole {
                    Some(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationRequest(request)))
                        if request.requested_nssai.is_some() => {}
                    other => self.faults.push(format!("SECURITY MODE COMPLETE carries {other:?}")),
                }
                self.accept(index)
            }
            Nas5gmmMessage::RegistrationRequest(request) => {
                self.ues[index].capability = request.ue_security_capability.clone();
                self.accept(index)
            }
            Nas5gmmMessage::RegistrationComplete(_) => {
                self.registered += usize::from(!self.ues[index].registered);
                self.ues[index].registered = true;
                vec![]
            }
            Nas5gmmMessage::ServiceRequest(_) if self.behaviour.congested > 0 => {
                self.behaviour.congested -= 1;
                let t3346 = NasGprsTimer2::from_seconds(2 as _).expect("a timer value");
                let reject = NasServiceReject::new(NasFGmmCause::from_cause(GmmCause::Congestion));
                let reject = self.protect(index, reject.with_t3346_value(t3346));
                let (amf, ran) = self.ues[index].connection.expect("connected");
                vec![self.downlink(index, reject), wire::release_command(amf, ran)]
            }
            Nas5gmmMessage::ServiceRequest(request) => {
                let asked = request.uplink_data_status.as_ref().map(|s| s.sessions_with_data()).unwrap_or_default();
                self.log.push(format!("service request for {asked:?}"));
                let accept = self.protect(index, NasServiceAccept::new());
                let (connection, key) = self.access(index);
                let sessions = self.ues[index].sessions.iter().copied();
                let asked: Vec<_> = sessions.filter(|(psi, _)| asked.contains(psi)).collect();
                vec![wire::context_setup(connection, key, accept, &asked, self.behaviour.upf)]
            }
            Nas5gmmMessage::DeregistrationRequestUeOriginating(request) => {
                self.deregistered += 1;
                self.ues[index].registered = false;
                self.ues[index].sessions.clear();
                let (amf, ran) = self.ues[index].connection.expect("connected");
                let mut pdus = vec![];
                if !request.de_registration_type.switch_off() {
                    let accept = self.protect(index, NasDeregistrationAcceptUeOriginating::new());
                    pdus.push(self.downlink(index, accept));
                }
                pdus.push(wire::release_command(amf, ran));
                pdus
            }
            Nas5gmmMessage::UlNasTransport(transport) => self.session(index, &transport),
            Nas5gmmMessage::IdentityResponse(_)
            | Nas5gmmMessage::ConfigurationUpdateComplete(_)
            | Nas5gmmMessage::DeregistrationAcceptUeTerminated(_) => {
                self.log.push(format!("{:?}", message.message_type()));
                vec![]
            }
            Nas5gmmMessage::AuthenticationResponse(_) => self.plain(index, message),
            other => {
                self.faults.push(format!("protected {other:?}"));
                vec![]
            }
        }
    }

    fn accept(&mut self, index: usize) -> Vec<Vec<u8>> {
        if let Some((cause, t3346)) = self.behaviour.reject.filter(|_| self.behaviour.rejections > 0) {
            self.behaviour.rejections -= 1;
            let mut reject = NasRegistrationReject::new(NasFGmmCause::from_cause(cause));
            if let Some(seconds) = t3346 {
                reject.set_t3346_value(NasGprsTimer2::from_seconds(seconds as _).expect("a timer value"));
            }
            let reject = self.protect(index, reject);
            return vec![self.downlink(index, reject)];
        }
        let guti = self.guti(index);
        let plmn = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        let result = NasFGsRegistrationResult::from_result(RegistrationResult::ThreeGppAccess);
        let accept = NasRegistrationAccept::new(result)
            .with_fg_guti(NasFGsMobileIdentity::from_guti(guti))
            .with_tai_list(NasFGsTrackingAreaIdentityList::from_plmn_tacs(&plmn, &[1]).expect("a list"))
            .with_allowed_nssai(NasNssai::from_snssais(&[NasSNssai::from_sst_sd(1, None)]).expect("a list"));
        let accept = self.protect(index, accept);
        self.ues[index].stage = Stage::Accepting;
        let (connection, key) = self.access(index);
        vec![wire::context_setup(connection, key, accept, &[], self.behaviour.upf)]
    }

    fn guti(&self, index: usize) -> Guti {
        let plmn = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        Guti::new(plmn, 2, 1, 0, self.ues[index].tmsi).expect("in range")
    }

    fn access(&self, index: usize) -> ((u64, u32), [u8; 32]) {
        let ue = &self.ues[index];
        let k_amf = ue.k_amf.as_ref().expect("authenticated");
        let count = NasCount::new(ue.access_count).expect("24 bits");
        (ue.connection.expect("connected"), *derive_kgnb(k_amf, count).as_octets())
    }

    fn session(&mut self, index: usize, transport: &NasUlNasTransport) -> Vec<Vec<u8>> {
        let Ok(Nas5gsMessage::Gsm(head, message)) = transport.payload_container.decode_as_n1_sm_message() else {
            self.faults.push("UL NAS TRANSPORT without a 5GSM message".into());
            return vec![];
        };
        let (psi, pti) = (head.pdu_session_identity, head.procedure_transaction_identity);
        let connection = self.ues[index].connection.expect("connected");
        match message {
            Nas5gsmMessage::PduSessionEstablishmentRequest(request) => {
                if let Some(cause) = self.behaviour.reject_session {
                    let reject = NasPduSessionEstablishmentReject::new(NasFGsmCause::from_cause(cause));
                    let reject = self.transport(index, Nas5gsMessage::new_5gsm(reject, psi, pti), psi);
                    return vec![self.downlink(index, reject)];
                }
                self.next_address += 1;
                let kind = request.pdu_session_type.and_then(|t| t.session_type()).expect("a type");
                let accept = wire::session_accept(kind, self.next_address, self.behaviour.ipv6);
                self.ues[index].sessions.push((psi, self.next_address));
                let nas = self.transport(index, Nas5gsMessage::new_5gsm(accept, psi, pti), psi);
                vec![wire::resource_setup(connection, psi, nas, self.behaviour.upf, self.next_address)]
            }
            Nas5gsmMessage::PduSessionReleaseRequest(_) => {
                let command = NasPduSessionReleaseCommand::new(NasFGsmCause::from_cause(GsmCause::RegularDeactivation));
                let nas = self.transport(index, Nas5gsMessage::new_5gsm(command, psi, pti), psi);
                vec![wire::resource_release(connection, psi, nas)]
            }
            Nas5gsmMessage::PduSessionReleaseComplete(_) => {
                self.ues[index].sessions.retain(|(known, _)| *known != psi);
                vec![]
            }
            other => {
                self.faults.push(format!("5GSM {other:?}"));
                vec![]
            }
        }
    }

    fn transport(&mut self, index: usize, message: Nas5gsMessage, psi: u8) -> Vec<u8> {
        let kind = NasPayloadContainerType::from_kind(PayloadContainerKind::N1SmInformation);
        let container = NasPayloadContainer::from_n1_sm_message(&message).expect("encodes");
        let transport = NasDlNasTransport::new(kind, container)
            .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(psi));
        self.protect(index, transport)
    }

    fn protect(&mut self, index: usize, message: impl Into<Nas5gmmMessage>) -> Vec<u8> {
        let security = self.ues[index].security.as_mut().expect("secured");
        let header = Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered;
        security.protect(&Nas5gsMessage::new_5gmm(message), header, Direction::Downlink).expect("protects")
    }

    fn downlink(&self, index: usize, nas: Vec<u8>) -> Vec<u8> {
        wire::downlink_nas(self.ues[index].connection.expect("connected"), nas)
    }

    /// Returns a DOWNLINK NAS TRANSPORT with arbitrary octets under valid protection.
    pub fn push_octets(&mut self, supi: &str, octets: &[u8]) -> Vec<u8> {
        let index = self.find(supi);
        let security = self.ues[index].security.as_mut().expect("secured");
        let header = Nas5gsSecurityHeaderType::IntegrityProtectedAndCiphered;
        security.protect_opaque_payload(octets.to_vec(), header, Direction::Downlink).expect("protects")
    }

    /// Returns a network-initiated message for a UE as DOWNLINK NAS TRANSPORT.
    pub fn push(&mut self, supi: &str, message: impl Into<Nas5gmmMessage>) -> Vec<u8> {
        let index = self.find(supi);
        let nas = self.protect(index, message);
        self.downlink(index, nas)
    }
}
