//! Scripted MME for tests: attach, tracking area update, service request and detach.
//!
//! Its NAS security is the codec's, not the emulator's. Each thus verifies the other. It checks
//! every S1AP PDU and every NAS message of the emulator against the specification.

pub(crate) mod lab;
pub(crate) mod wire;

use crate::options::{LAB_K, LAB_OPC};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{Cause, CauseNas, CauseRadioNetwork};
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_eps::{compute_hash_mme, derive_kasme, derive_kenb};
use wire::{Connection, Uplink};

/// First M-TMSI; further ones count up.
const FIRST_TMSI: u32 = 0xd000_0000;
/// EPS bearer identity of the default bearer of every attach. Further ones count up.
pub(crate) const EBI: u8 = 5;

/// Behaviour of the MME.
pub(crate) struct Behaviour {
    pub(crate) eea: CipheringAlgorithm,
    pub(crate) eia: IntegrityAlgorithm,
    /// Refuses attaches with this cause and T3346.
    pub(crate) reject: Option<(EmmCause, Option<u64>)>,
    /// Sends challenges with a wrong MAC.
    pub(crate) forge: bool,
    /// Sends SECURITY MODE COMMAND with capabilities that differ from the UE's.
    pub(crate) bid_down: bool,
    /// Claims to have received another ATTACH REQUEST.
    pub(crate) wrong_hash: bool,
    /// Pages every UE as soon as it is idle.
    pub(crate) page: bool,
    /// Detaches every UE after its ATTACH COMPLETE.
    pub(crate) detach: bool,
    pub(crate) refuse_setup: bool,
    /// Refuses further PDN connections with this cause.
    pub(crate) reject_connection: Option<EsmCause>,
    pub(crate) upf: Ipv4Addr,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            eea: CipheringAlgorithm::EEA2,
            eia: IntegrityAlgorithm::EIA2,
            reject: None,
            forge: false,
            bid_down: false,
            wrong_hash: false,
            page: false,
            detach: false,
            refuse_setup: false,
            reject_connection: None,
            upf: Ipv4Addr::new(127, 46, 1, 1),
        }
    }
}

/// Part of the attach that the MME awaits.
#[derive(Clone, Copy, Default, PartialEq)]
enum Stage {
    #[default]
    Idle,
    Authenticating,
    Securing,
    Information,
    Accepting,
}

#[derive(Default)]
struct UeRecord {
    imsi: String,
    m_tmsi: u32,
    stage: Stage,
    security: Option<NasSecurityContext>,
    k_asme: Option<KAsme>,
    ksi: u8,
    rand: [u8; 16],
    xres: Vec<u8>,
    request: Option<NasAttachRequest>,
    /// Last ATTACH REQUEST without its security header, for HASH_MME.
    octets: Vec<u8>,
    connection: Option<Connection>,
    access_count: u32,
    attached: bool,
    /// EPS bearer identities of its PDN connections.
    bearers: Vec<u8>,
}

impl UeRecord {
    /// Returns the UPF's TEID of a bearer.
    fn teid(&self, ebi: u8) -> u32 {
        self.m_tmsi ^ u32::from(ebi - EBI) << 20
    }
}

/// Scripted MME. `receive` takes a PDU of an eNB and returns the PDUs to send back.
#[derive(Default)]
pub(crate) struct Mme {
    pub(crate) behaviour: Behaviour,
    ues: Vec<UeRecord>,
    /// UE of each MME-UE-S1AP-ID.
    connected: HashMap<u32, usize>,
    /// Connections whose UE the MME has asked for its identity.
    unidentified: HashMap<u32, (Connection, Vec<u8>, NasAttachRequest)>,
    /// MME-UE-S1AP-IDs of the connections that the MME has released.
    released: HashSet<u32>,
    sequence: u64,
    next_id: u32,
    /// Faults in the emulator's messages, for assertions.
    pub(crate) faults: Vec<String>,
    pub(crate) attached: usize,
    pub(crate) log: Vec<String>,
    /// eNB's tunnel end of each TEID of the UPF.
    pub(crate) routes: HashMap<u32, (Ipv4Addr, u32)>,
}

impl Mme {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Mme { behaviour, sequence: 0x1000, next_id: 1, ..Mme::default() }
    }

    /// Handles one S1AP PDU.
    pub(crate) fn receive(&mut self, pdu: &[u8]) -> Vec<Vec<u8>> {
        match wire::read(pdu) {
            Uplink::Setup if self.behaviour.refuse_setup => vec![wire::setup_failure()],
            Uplink::Setup => vec![wire::setup_response()],
            Uplink::InitialUe { enb, nas, m_tmsi } => self.initial(enb, &nas, m_tmsi),
            Uplink::Nas { mme, nas } => self.uplink_nas(mme, &nas),
            Uplink::Tunnels { mme, tunnels } => {
                for (ebi, end) in tunnels {
                    let Some(ue) = self.connected.get(&mme).map(|index| &self.ues[*index]) else { continue };
                    assert!(ue.bearers.contains(&ebi));
                    self.routes.insert(ue.teid(ebi), end);
                }
                vec![]
            }
            // The request may cross the MME's own release.
            Uplink::ReleaseRequest((mme, _)) if !self.released.insert(mme) => vec![],
            Uplink::ReleaseRequest(ids) => {
                vec![wire::release_command(ids, Cause::radioNetwork(CauseRadioNetwork::user_inactivity))]
            }
            Uplink::ReleaseComplete { mme } => {
                let Some(index) = self.connected.remove(&mme) else { return vec![] };
                self.ues[index].connection = None;
                let ue = &self.ues[index];
                for ebi in &ue.bearers {
                    self.routes.remove(&ue.teid(*ebi));
                }
                let paged = self.behaviour.page && self.ues[index].attached;
                if paged { vec![wire::paging(self.ues[index].m_tmsi)] } else { vec![] }
            }
            Uplink::Reset { whole } => {
                if whole {
                    self.connected.clear();
                }
                vec![wire::reset_acknowledge()]
            }
            Uplink::Update => vec![wire::update_acknowledge()],
            Uplink::Answer => vec![],
            Uplink::Capability => {
                self.log.push("capability".into());
                vec![]
            }
            Uplink::Bad(what) => {
                self.faults.push(what);
                vec![]
            }
        }
    }

    fn connect(&mut self, enb: u32) -> Connection {
        self.next_id += 1;
        (self.next_id, enb)
    }

    fn bind(&mut self, index: usize, connection: Connection) {
        self.connected.insert(connection.0, index);
        self.ues[index].connection = Some(connection);
    }

    fn find(&mut self, imsi: &str) -> usize {
        let known = self.ues.iter().position(|ue| ue.imsi == imsi);
        known.unwrap_or_else(|| {
            let m_tmsi = FIRST_TMSI + self.ues.len() as u32;
            self.ues.push(UeRecord { imsi: imsi.into(), m_tmsi, ksi: 6, ..UeRecord::default() });
            self.ues.len() - 1
        })
    }

    fn initial(&mut self, enb: u32, nas: &[u8], m_tmsi: Option<u32>) -> Vec<Vec<u8>> {
        let connection = self.connect(enb);
        let index = m_tmsi.and_then(|tmsi| tmsi.checked_sub(FIRST_TMSI)).map(|index| index as usize);
        let index = index.filter(|index| self.ues.get(*index).is_some_and(|ue| ue.security.is_some()));
        if nas[0] >> 4 == 0 {
            return self.plain_initial(connection, nas);
        }
        let Some(index) = index else {
            self.faults.push("protected initial NAS message of an unknown UE".into());
            return vec![];
        };
        self.bind(index, connection);
        let security = self.ues[index].security.as_mut().expect("filtered");
        if nas[0] >> 4 >= 12 {
            let Ok(NasEpsMessage::ServiceRequest(request)) = NasEpsMessage::decode(nas) else {
                self.faults.push("SERVICE REQUEST does not decode".into());
                return vec![];
            };
            return match security.unprotect_service_request(&request) {
                Ok(count) => {
                    self.log.push("service request".into());
                    self.ues[index].access_count = count.get();
                    vec![self.context_setup(index, None)]
                }
                Err(_) => self.service_reject(connection),
            };
        }
        assert_eq!(nas[0], 0x17, "an initial NAS message is integrity protected and not ciphered");
        match security.unprotect(nas, Direction::Uplink) {
            Ok(verified) => {
                self.faults.extend(verified.message.validate().iter().map(|error| error.to_string()));
                self.ues[index].access_count = verified.count.get();
                self.verified(index, verified.message, &nas[6..])
            }
            // TS 24.301 4.4.4.3: the MME authenticates a UE whose ATTACH REQUEST fails the check.
            Err(_) => {
                self.log.push("wrong MAC".into());
                self.plain_initial(connection, &nas[6..])
            }
        }
    }

    fn service_reject(&mut self, connection: Connection) -> Vec<Vec<u8>> {
        let cause = NasEmmCause::from_cause(EmmCause::UeIdentityCannotBeDerivedByTheNetwork);
        let reject = NasEpsMessage::new_emm(NasServiceReject::new(cause)).encode().expect("encodes");
        let released = wire::release_command(connection, Cause::nas(CauseNas::unspecified));
        vec![wire::downlink_nas(connection, reject), released]
    }

    /// Handles an ATTACH REQUEST without valid protection.
    fn plain_initial(&mut self, connection: Connection, nas: &[u8]) -> Vec<Vec<u8>> {
        let Ok(message) = NasEpsMessage::decode_with_direction(nas, Direction::Uplink) else {
            self.faults.push("a plain initial NAS message does not decode".into());
            return vec![];
        };
        self.faults.extend(message.validate().iter().map(|error| error.to_string()));
        let NasEpsMessage::Emm(_, NasEmmMessage::AttachRequest(request)) = message else {
            self.faults.push(format!("plain initial {message}"));
            return vec![];
        };
        let known = request.eps_mobile_identity.as_guti().and_then(|guti| {
            let index = guti.m_tmsi().checked_sub(FIRST_TMSI)? as usize;
            self.ues.get(index).map(|ue| ue.imsi.clone())
        });
        let imsi = request.eps_mobile_identity.as_imsi().map(|imsi| imsi.as_str().to_string());
        match imsi.or(known) {
            Some(imsi) => {
                let index = self.find(&imsi);
                self.bind(index, connection);
                self.begin(index, *request, nas)
            }
            None => {
                self.unidentified.insert(connection.0, (connection, nas.to_vec(), *request));
                let kind = NasIdentityType2::from_identity_type(IdentityType::Imsi).expect("a type");
                let request = NasEpsMessage::new_emm(NasIdentityRequest::new(kind));
                vec![wire::downlink_nas(connection, request.encode().expect("encodes"))]
            }
        }
    }

    fn begin(&mut self, index: usize, request: NasAttachRequest, octets: &[u8]) -> Vec<Vec<u8>> {
        let ue = &mut self.ues[index];
        (ue.request, ue.octets) = (Some(request), octets.to_vec());
        ue.security = None;
        self.challenge(index)
    }

    fn challenge(&mut self, index: usize) -> Vec<Vec<u8>> {
        self.sequence += 32;
        let milenage = Milenage::new(&K::new(&LAB_K), &Opc::new(&LAB_OPC));
        let mut rand = [0x5a; 16];
        rand[8..].copy_from_slice(&self.sequence.to_be_bytes());
        let sqn = Sqn::try_from(self.sequence).expect("48 bits");
        let vector = milenage.authentication_vector(&Rand::new(&rand), &sqn, &Amf::new(&[0x80, 0]));
        let network = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        let ue = &mut self.ues[index];
        ue.ksi = (ue.ksi + 1) % 7;
        ue.rand = rand;
        ue.xres = vector.xres().as_octets().to_vec();
        ue.k_asme = Some(derive_kasme(vector.ck(), vector.ik(), network, vector.autn()));
        ue.stage = Stage::Authenticating;
        let mut autn = *vector.autn().as_octets();
        if self.behaviour.forge {
            autn[15] ^= 1;
        }
        let ksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(ue.ksi)).expect("0 to 6");
        let request = NasAuthenticationRequest::new(
            ksi,
            NasAuthenticationParameterRand::from_rand(rand),
            NasAuthenticationParameterAutn::from_autn(autn),
        );
        vec![self.plain_downlink(index, request)]
    }

    fn plain_downlink(&self, index: usize, message: impl Into<NasEmmMessage>) -> Vec<u8> {
        let connection = self.ues[index].connection.expect("connected");
        wire::downlink_nas(connection, NasEpsMessage::new_emm(message).encode().expect("encodes"))
    }

    fn uplink_nas(&mut self, mme: u32, nas: &[u8]) -> Vec<Vec<u8>> {
        if let Some((connection, octets, request)) = self.unidentified.remove(&mme) {
            let Ok(NasEpsMessage::Emm(_, NasEmmMessage::IdentityResponse(response))) = NasEpsMessage::decode(nas)
            else {
                self.faults.push("no IDENTITY RESPONSE".into());
                return vec![];
            };
            let imsi = response.mobile_identity.as_imsi().expect("an IMSI").as_str().to_string();
            self.log.push(format!("identity {imsi}"));
            let index = self.find(&imsi);
            self.bind(index, connection);
            return self.begin(index, request, &octets);
        }
        let Some(index) = self.connected.get(&mme).copied() else {
            self.faults.push("uplink NAS of an unknown connection".into());
            return vec![];
        };
        if nas[0] >> 4 == 0 {
            return self.unprotected(index, nas);
        }
        let Some(security) = &mut self.ues[index].security else {
            self.faults.push("protected NAS without a context".into());
            return vec![];
        };
        match security.unprotect(nas, Direction::Uplink) {
            Ok(verified) => {
                self.faults.extend(verified.message.validate().iter().map(|error| error.to_string()));
                if self.ues[index].stage == Stage::Securing {
                    self.ues[index].access_count = verified.count.get();
                }
                self.verified(index, verified.message, &[])
            }
            Err(error) => {
                self.faults.push(format!("uplink NAS: {error}"));
                vec![]
            }
        }
    }

    fn unprotected(&mut self, index: usize, nas: &[u8]) -> Vec<Vec<u8>> {
        let message = NasEpsMessage::decode(nas);
        match message {
            Ok(NasEpsMessage::Emm(_, NasEmmMessage::AuthenticationResponse(response))) => {
                self.authenticated(index, response.authentication_response_parameter.res())
            }
            Ok(NasEpsMessage::Emm(_, NasEmmMessage::AuthenticationFailure(failure))) => {
                let cause = failure.emm_cause.value;
                self.log.push(format!("authentication failure {cause}"));
                if let Some(parameter) = &failure.authentication_failure_parameter {
                    let milenage = Milenage::new(&K::new(&LAB_K), &Opc::new(&LAB_OPC));
                    let auts = Auts::new(parameter.auts().expect("14 octets"));
                    let sqn = milenage.verify_auts(&Rand::new(&self.ues[index].rand), &auts);
                    self.sequence = sqn.expect("a genuine AUTS").get();
                }
                if self.behaviour.forge { self.reject_authentication(index) } else { self.challenge(index) }
            }
            other => {
                self.faults.push(format!("unprotected {other:?}"));
                vec![]
            }
        }
    }

    fn reject_authentication(&mut self, index: usize) -> Vec<Vec<u8>> {
        let reject = self.plain_downlink(index, NasAuthenticationReject::new());
        vec![reject, self.release(index, Cause::nas(CauseNas::authentication_failure))]
    }

    fn release(&mut self, index: usize, cause: Cause) -> Vec<u8> {
        let connection = self.ues[index].connection.expect("connected");
        self.released.insert(connection.0);
        wire::release_command(connection, cause)
    }

    fn authenticated(&mut self, index: usize, res: &[u8]) -> Vec<Vec<u8>> {
        if self.ues[index].stage != Stage::Authenticating || res != self.ues[index].xres {
            return self.reject_authentication(index);
        }
        let (eea, eia) = (self.behaviour.eea, self.behaviour.eia);
        let ue = &mut self.ues[index];
        let k_asme = ue.k_asme.as_ref().expect("challenged");
        let mut security = NasSecurityContext::from_fresh_kasme(k_asme, eia, eea).expect("algorithms");
        let request = ue.request.as_ref().expect("attaching");
        let capability = match self.behaviour.bid_down {
            true => NasUeSecurityCapability::from_eea_eia(0x80, 0x40),
            false => NasUeSecurityCapability::from_ue_network_capability(&request.ue_network_capability),
        };
        let ksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(ue.ksi)).expect("0 to 6");
        let algorithms = NasSecurityAlgorithms::from_algorithms(eea, eia);
        let mut hash = compute_hash_mme(&ue.octets);
        hash[0] ^= u8::from(self.behaviour.wrong_hash);
        let command = NasSecurityModeCommand::new(algorithms, ksi, capability)
            .with_imeisv_request(NasImeisvRequest::from_requested(true))
            .with_hash_mme(NasHashMme::from_hash_mme(hash));
        let header = NasEpsSecurityHeaderType::IntegrityProtectedWithNewEpsSecurityContext;
        let nas = security.protect(&NasEpsMessage::new_emm(command), header, Direction::Downlink).expect("protects");
        (ue.security, ue.stage) = (Some(security), Stage::Securing);
        vec![wire::downlink_nas(ue.connection.expect("connected"), nas)]
    }

    fn verified(&mut self, index: usize, message: NasEpsMessage, octets: &[u8]) -> Vec<Vec<u8>> {
        let message = match message {
            NasEpsMessage::Emm(_, message) => message,
            NasEpsMessage::Esm(head, NasEsmMessage::EsmInformationResponse(response)) => {
                assert_eq!((head.eps_bearer_identity, self.ues[index].stage == Stage::Information), (0, true));
                let apn = response.access_point_name.and_then(|apn| apn.as_string());
                self.log.push(format!("APN {}", apn.unwrap_or_default()));
                return self.accept(index);
            }
            NasEpsMessage::Esm(head, NasEsmMessage::PdnConnectivityRequest(request)) => {
                return vec![self.connect_pdn(index, &head, &request)];
            }
            NasEpsMessage::Esm(head, NasEsmMessage::PdnDisconnectRequest(request)) => {
                return vec![self.disconnect_pdn(index, &head, &request)];
            }
            NasEpsMessage::Esm(head, NasEsmMessage::ActivateDefaultEpsBearerContextAccept(_)) => {
                assert_eq!(head.procedure_transaction_identity, 0);
                self.log.push(format!("bearer {} accepted", head.eps_bearer_identity));
                return vec![];
            }
            NasEpsMessage::Esm(head, NasEsmMessage::DeactivateEpsBearerContextAccept(_)) => {
                assert_eq!(head.procedure_transaction_identity, 0);
                self.log.push(format!("bearer {} ended", head.eps_bearer_identity));
                return vec![];
            }
            other => {
                self.faults.push(format!("protected {other}"));
                return vec![];
            }
        };
        match message {
            NasEmmMessage::SecurityModeComplete(complete) => self.secured(index, &complete),
            NasEmmMessage::AttachRequest(request) => {
                self.ues[index].request = Some(*request);
                self.ues[index].octets = octets.to_vec();
                self.log.push("attach with a known GUTI".into());
                self.information(index)
            }
            NasEmmMessage::AttachComplete(complete) => {
                let esm = complete.esm_message_container.decode_as_esm_message().expect("an ESM message");
                let NasEpsMessage::Esm(head, NasEsmMessage::ActivateDefaultEpsBearerContextAccept(_)) = esm else {
                    panic!("ATTACH COMPLETE with {esm}");
                };
                assert_eq!((head.eps_bearer_identity, head.procedure_transaction_identity), (EBI, 0));
                let ue = &mut self.ues[index];
                (ue.attached, ue.stage) = (true, Stage::Idle);
                self.attached += 1;
                if self.behaviour.detach { vec![self.detach(index)] } else { vec![] }
            }
            NasEmmMessage::TrackingAreaUpdateRequest(request) => self.update(index, &request),
            NasEmmMessage::TrackingAreaUpdateComplete(_) => {
                self.log.push("update complete".into());
                vec![]
            }
            NasEmmMessage::DetachRequestUeOriginating(request) => {
                self.log.push("detach".into());
                self.ues[index].attached = false;
                let mut pdus = vec![];
                if !request.detach_type.is_switch_off() {
                    pdus.push(self.protected_downlink(index, NasDetachAccept::new()));
                }
                pdus.push(self.release(index, Cause::nas(CauseNas::detach)));
                pdus
            }
            NasEmmMessage::DetachAccept(_) => {
                self.log.push("detach accepted".into());
                self.ues[index].attached = false;
                vec![self.release(index, Cause::nas(CauseNas::detach))]
            }
            NasEmmMessage::GutiReallocationComplete(_) => {
                self.log.push("GUTI reallocated".into());
                vec![]
            }
            other => {
                self.faults.push(format!("protected {other:?}"));
                vec![]
            }
        }
    }

    fn secured(&mut self, index: usize, complete: &NasSecurityModeComplete) -> Vec<Vec<u8>> {
        let imeisv = complete.imeisv.as_ref().and_then(|identity| identity.as_imeisv()).expect("an IMEISV");
        self.log.push(format!("IMEISV {}", imeisv.as_str()));
        if let Some(container) = &complete.replayed_nas_message_container {
            assert_eq!(container.value[..], self.ues[index].octets[..]);
            self.log.push("replayed request".into());
        }
        self.information(index)
    }

    /// Requests ESM information if the UE announced it (TS 24.301 6.6.1.2).
    fn information(&mut self, index: usize) -> Vec<Vec<u8>> {
        let container = &self.ues[index].request.as_ref().expect("attaching").esm_message_container;
        let Ok(NasEpsMessage::Esm(head, NasEsmMessage::PdnConnectivityRequest(request))) =
            container.decode_as_esm_message()
        else {
            self.faults.push("ATTACH REQUEST without PDN CONNECTIVITY REQUEST".into());
            return vec![];
        };
        if !request.esm_information_transfer_flag.as_ref().is_some_and(|flag| flag.is_required()) {
            return self.accept(index);
        }
        self.ues[index].stage = Stage::Information;
        let pti = head.procedure_transaction_identity;
        let request = NasEpsMessage::new_esm(NasEsmInformationRequest::new(), 0, pti);
        vec![self.downlink(index, &request)]
    }

    fn accept(&mut self, index: usize) -> Vec<Vec<u8>> {
        if let Some((cause, t3346)) = self.behaviour.reject {
            let mut reject = NasAttachReject::new(NasEmmCause::from_cause(cause));
            if let Some(seconds) = t3346 {
                reject.set_t3346_value(NasGprsTimer2::from_seconds(seconds as _).expect("a timer value"));
            }
            let reject = self.protected_downlink(index, reject);
            return vec![reject, self.release(index, Cause::nas(CauseNas::unspecified))];
        }
        let request = self.ues[index].request.as_ref().expect("attaching");
        let esm = request.esm_message_container.decode_as_esm_message().expect("checked");
        let NasEpsMessage::Esm(head, _) = esm else { unreachable!("checked") };
        let activate = activation(index, EBI, head.procedure_transaction_identity);
        self.ues[index].bearers = vec![EBI];
        let plmn = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        let accept = NasAttachAccept::new(
            NasEpsAttachResult::from_attach_result(AttachResult::EpsOnly),
            NasT3412Value::new(0x49),
            NasTrackingAreaIdentityList::from_plmn_tacs(&plmn, &[1]).expect("a list"),
            NasEsmMessageContainer::from_esm_message(&activate).expect("encodes"),
        );
        let accept = accept.with_guti(self.guti(index));
        self.ues[index].stage = Stage::Accepting;
        let nas = self.protect(index, &NasEpsMessage::new_emm(accept));
        vec![self.context_setup(index, Some(nas))]
    }

    fn guti(&self, index: usize) -> NasEpsMobileIdentity {
        let plmn = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        NasEpsMobileIdentity::from_guti(Guti::new(plmn, 0x8001, 0x40, self.ues[index].m_tmsi))
    }

    fn context_setup(&self, index: usize, nas: Option<Vec<u8>>) -> Vec<u8> {
        let ue = &self.ues[index];
        let count = NasCount::new(ue.access_count).expect("24 bits");
        let key = *derive_kenb(ue.k_asme.as_ref().expect("authenticated"), count).as_octets();
        let tunnel = |ebi: &u8| (*ebi, (self.behaviour.upf, ue.teid(*ebi)));
        let bearers: Vec<_> = ue.bearers.iter().map(tunnel).collect();
        wire::context_setup(ue.connection.expect("connected"), key, &bearers, nas)
    }

    /// Sets up a further PDN connection, or rejects it.
    fn connect_pdn(&mut self, index: usize, head: &NasEsmHeader, request: &NasPdnConnectivityRequest) -> Vec<u8> {
        let pti = head.procedure_transaction_identity;
        assert_eq!((head.eps_bearer_identity, request.esm_information_transfer_flag.is_some()), (0, false));
        let apn = request.access_point_name.as_ref().and_then(|apn| apn.as_string());
        self.log.push(format!("connection {} {}", pti, apn.unwrap_or_default()));
        if let Some(cause) = self.behaviour.reject_connection {
            let reject = NasPdnConnectivityReject::new(NasEsmCause::from_cause(cause));
            return self.downlink(index, &NasEpsMessage::new_esm(reject, 0, pti));
        }
        let free = (EBI..=15).find(|ebi| !self.ues[index].bearers.contains(ebi)).expect("a bearer");
        self.ues[index].bearers.push(free);
        let nas = self.protect(index, &activation(index, free, pti));
        let ue = &self.ues[index];
        wire::bearer_setup(ue.connection.expect("connected"), (free, (self.behaviour.upf, ue.teid(free))), nas)
    }

    /// Ends a PDN connection, or rejects that if it is the last one.
    fn disconnect_pdn(&mut self, index: usize, head: &NasEsmHeader, request: &NasPdnDisconnectRequest) -> Vec<u8> {
        let pti = head.procedure_transaction_identity;
        let ebi = request.linked_eps_bearer_identity.value & 0xf;
        if self.ues[index].bearers == [ebi] {
            let cause = NasEsmCause::from_cause(EsmCause::LastPdnDisconnectionNotAllowed);
            return self.downlink(index, &NasEpsMessage::new_esm(NasPdnDisconnectReject::new(cause), 0, pti));
        }
        assert!(self.ues[index].bearers.contains(&ebi));
        self.ues[index].bearers.retain(|bearer| *bearer != ebi);
        self.release_bearer(index, ebi, pti)
    }

    fn update(&mut self, index: usize, request: &NasTrackingAreaUpdateRequest) -> Vec<Vec<u8>> {
        let kind = &request.eps_update_type;
        self.log.push(format!("update {:?}", kind.update_type().expect("a type")));
        let status = request.eps_bearer_context_status.as_ref().expect("a status");
        assert_eq!(status.active_bearers(), self.ues[index].bearers);
        let result = NasEpsUpdateResult::new(0);
        let accept = NasTrackingAreaUpdateAccept::new(result).with_guti(self.guti(index));
        let accept = self.protected_downlink(index, accept);
        let then = if kind.is_active() {
            self.context_setup(index, None)
        } else {
            self.release(index, Cause::nas(CauseNas::normal_release))
        };
        vec![accept, then]
    }

    fn detach(&mut self, index: usize) -> Vec<u8> {
        let kind = NasDetachType::from_network_detach_kind(NetworkDetachKind::ReattachRequired);
        self.protected_downlink(index, NasDetachRequestUeTerminated::new(kind))
    }

    fn protect(&mut self, index: usize, message: &NasEpsMessage) -> Vec<u8> {
        let security = self.ues[index].security.as_mut().expect("secured");
        let header = NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered;
        security.protect(message, header, Direction::Downlink).expect("protects")
    }

    fn downlink(&mut self, index: usize, message: &NasEpsMessage) -> Vec<u8> {
        let nas = self.protect(index, message);
        wire::downlink_nas(self.ues[index].connection.expect("connected"), nas)
    }

    fn protected_downlink(&mut self, index: usize, message: impl Into<NasEmmMessage>) -> Vec<u8> {
        self.downlink(index, &NasEpsMessage::new_emm(message))
    }

    /// Returns a network-initiated EMM message for the only UE.
    pub(crate) fn push(&mut self, message: impl Into<NasEmmMessage>) -> Vec<u8> {
        self.protected_downlink(0, message)
    }

    /// Returns a GUTI REALLOCATION COMMAND for the only UE.
    pub(crate) fn reallocate(&mut self) -> Vec<u8> {
        let command = NasGutiReallocationCommand::new(self.guti(0));
        self.push(command)
    }

    /// Returns the deactivation of the only UE's bearer.
    pub(crate) fn deactivate(&mut self) -> Vec<u8> {
        self.release_bearer(0, EBI, 0)
    }

    fn release_bearer(&mut self, index: usize, ebi: u8, pti: u8) -> Vec<u8> {
        let cause = NasEsmCause::from_cause(EsmCause::RegularDeactivation);
        let message = NasEpsMessage::new_esm(NasDeactivateEpsBearerContextRequest::new(cause), ebi, pti);
        let nas = self.protect(index, &message);
        wire::bearer_release(self.ues[index].connection.expect("connected"), ebi, nas)
    }

    /// Returns an ESM message for the only UE.
    pub(crate) fn push_esm(&mut self, message: impl Into<NasEsmMessage>, ebi: u8, pti: u8) -> Vec<u8> {
        self.downlink(0, &NasEpsMessage::new_esm(message, ebi, pti))
    }
}

/// Returns the activation of a default bearer of IPv4.
pub(crate) fn activation(index: usize, ebi: u8, pti: u8) -> NasEpsMessage {
    NasEpsMessage::new_esm(activation_request([10, 46, ebi - EBI, 2 + index as u8]), ebi, pti)
}

/// Returns an ACTIVATE DEFAULT EPS BEARER CONTEXT REQUEST with this address.
pub(crate) fn activation_request(address: [u8; 4]) -> NasActivateDefaultEpsBearerContextRequest {
    let apn = NasAccessPointName::from_string("internet").expect("a name");
    let qos = NasEpsQualityOfService::from_qos(EpsQos::new(9, None, None, None)).expect("a QoS");
    NasActivateDefaultEpsBearerContextRequest::new(qos, apn, NasPdnAddress::from_ipv4(address))
}
