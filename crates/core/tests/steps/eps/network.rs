//! Test network of EPS: steps of the core against an eNB and a UE that are built from the codecs.
//!
//! The UE has the NAS security context of the codec crate, so that keys, MACs and ciphering of the
//! core are compared with an independent implementation.

use crate::lab::{Ids, Nodes, upf, upf_answer};
use std::net::{IpAddr, Ipv4Addr};
use vireo_core::Env;
use vireo_core::amf::access;
use vireo_core::amf::context::{self, UeContext};
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::{InitialUeMessage, Route, UeMessage};
use vireo_core::amf::ran;
use vireo_core::config::{CoreConfig, DnnConfig};
use vireo_core::step::{Effect, Note, StepOutput};
use vireo_core::subscription::*;
use vireo_types::*;
use vireo_wire::gtpu::is_g_pdu;
use vireo_wire::nas::KeySetIdentifier;
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::helpers::{EnbKind, global_enb_id};
use vireo_wire::s1ap::{self, Bits, S1AP_PDU, S1apPduKind, ie};
use vireo_wire::security::milenage::{Amf, AuthenticationVector, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_eps::derive_kasme;
use vireo_wire::security::{Autn, Rand};

pub(super) const IMSI: &str = "999700000000001";
/// EEA0 to EEA2, EIA1 and EIA2.
pub(super) const CAPABILITY: [u8; 2] = [0xe0, 0x60];
/// Extended protocol configuration options, in the second octet of EPS network feature support.
pub(super) const EPCO: u8 = 0x08;
pub(super) const ASSOC: AssocId = AssocId(7);
const KEY: [u8; 16] = [0x46; 16];
const OPC: [u8; 16] = [0xcd; 16];
pub(super) const ENB_ID: u32 = 0x00ab_cdef;
pub(super) const ENB_ADDRESS: [u8; 4] = [127, 0, 0, 2];
pub(super) const ENB_TEID: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
const PLMN: [u8; 3] = [0x99, 0xf9, 0x07];

/// The state that the UE has of its attach.
#[derive(Default)]
pub(super) struct Ue {
    pub(super) keys: Option<NasSecurityContext>,
    pub(super) key_set: u8,
    pub(super) guti: Option<NasEpsMobileIdentity>,
    pub(super) address: Option<[u8; 4]>,
    pub(super) ebi: u8,
    /// EMM messages to the UE.
    pub(super) received: Vec<NasEmmMessage>,
    /// ESM messages to the UE outside of EMM messages.
    pub(super) esm: Vec<NasEsmMessage>,
    /// Highest SQN that the UE has accepted; an AUTN below it is a synchronisation failure.
    pub(super) sqn: u64,
    /// ESM messages to the UE that came outside an EMM message, with EPS bearer identity and PTI.
    pub(super) received_esm: Vec<(u8, u8, NasEsmMessage)>,
    /// Cause in the latest activation request of a default bearer.
    pub(super) bearer_cause: Option<u8>,
    /// ESM INFORMATION RESPONSE of the UE; `None` = one without IEs.
    pub(super) information: Option<NasEsmInformationResponse>,
    /// True if the UE answers no accept.
    pub(super) silent: bool,
    /// True if the UE has another K than the network.
    pub(super) wrong_key: bool,
    /// Number of further NAS messages that reach the UE.
    pub(super) remaining: Option<usize>,
    pub(super) kasme: [u8; 32],
    /// Request that the UE repeats in SECURITY MODE COMPLETE.
    pub(super) repeated: Option<Vec<u8>>,
}

pub(super) struct Network {
    pub(super) config: CoreConfig,
    pub(super) now: Instant,
    pub(super) ids: Ids,
    stored: Option<Vec<u8>>,
    /// Earlier contexts that the core still stores.
    pub(super) old_contexts: Vec<UeContext>,
    /// First message of the latest connection.
    pub(super) initial: Option<InitialUeMessage>,
    pub(super) nodes: Nodes,
    home_sqn: u64,
    pub(super) subscription: Subscription,
    /// Next response of the subscriber service, if it is to be an error.
    pub(super) subscriber_error: Option<AuthenticationError>,
    /// True if new UEs are rejected for congestion.
    pub(super) congested: bool,
    /// MME UE S1AP ID, while the UE is connected.
    pub(super) mme_id: Option<u32>,
    pub(super) ue: Ue,
    /// Kinds of the PDUs to the eNB.
    pub(super) kinds: Vec<S1apPduKind>,
    pub(super) effects: Vec<Effect>,
    pub(super) notes: Vec<Note>,
    /// Number of the eNB that serves the UE, and its eNB UE S1AP ID there.
    pub(super) serving: usize,
    pub(super) enb_id: u32,
    /// PDUs to eNBs, with the number of the eNB.
    pub(super) sent: Vec<(usize, Vec<u8>)>,
    /// SecurityKey of the last INITIAL CONTEXT SETUP REQUEST.
    pub(super) kenb: Vec<u8>,
    /// False if the eNB does not answer INITIAL CONTEXT SETUP REQUEST and the UPF answers nothing.
    pub(super) enb_answers: bool,
    pub(super) upf_answers: bool,
    /// False if the eNB does not answer UE CONTEXT RELEASE COMMAND.
    pub(super) enb_releases: bool,
    /// E-RAB that the eNB neither sets up nor modifies.
    pub(super) refused_erab: Option<u64>,
    unanswered: Vec<(Seid, Vec<u8>)>,
    down: std::collections::VecDeque<(AssocId, Vec<u8>)>,
}

/// Returns the association of eNB `n`.
pub(super) fn assoc(n: usize) -> AssocId {
    AssocId(ASSOC.0 + n as u32).with_dialect(Dialect::Eps)
}

fn milenage() -> Milenage {
    Milenage::new(&K::new(&KEY), &Opc::new(&OPC))
}

fn plmn() -> s1ap::PLMNidentity {
    s1ap::PLMNidentity(s1ap::TBCDSTRING(PLMN))
}

fn tai() -> s1ap::TAI {
    s1ap::helpers::tai(plmn(), [0, 1])
}

fn cgi() -> s1ap::EUTRANCGI {
    s1ap::EUTRANCGI::new(plmn(), s1ap::CellIdentity(Bits::low(0x123_4501, 28)), None)
}

pub(super) fn emm(message: impl Into<NasEmmMessage>) -> NasEpsMessage {
    NasEpsMessage::new_emm(message)
}

fn key_set(value: u8) -> NasKeySetIdentifier {
    let key = if value == 7 { KeySetIdentifier::NoKey } else { KeySetIdentifier::Native(value) };
    NasKeySetIdentifier::from_key_set_identifier(key).expect("a key set")
}

impl Network {
    /// Returns a network whose eNB has completed S1 Setup.
    pub(super) fn new() -> Self {
        let slice = SliceSubscription {
            snssai: Snssai { sst: 1, sd: None },
            default: true,
            dnns: vec![DnnSubscription::default()],
        };
        let mut network = Network {
            config: CoreConfig { tacs: vec![Tac(1), Tac(2)], upfs: vec![upf(8)], ..CoreConfig::lab() },
            now: Instant(1_000_000_000),
            ids: Ids::default(),
            stored: None,
            old_contexts: Vec::new(),
            initial: None,
            nodes: Nodes(vec![(assoc(0), None), (assoc(1), None)]),
            home_sqn: 32,
            subscription: Subscription { slices: vec![slice], ..Subscription::default() },
            subscriber_error: None,
            congested: false,
            mme_id: None,
            ue: Ue { key_set: 7, ..Ue::default() },
            kinds: Vec::new(),
            effects: Vec::new(),
            notes: Vec::new(),
            serving: 0,
            enb_id: ENB_ID,
            sent: Vec::new(),
            kenb: Vec::new(),
            enb_answers: true,
            upf_answers: true,
            enb_releases: true,
            refused_erab: None,
            unanswered: Vec::new(),
            down: std::collections::VecDeque::new(),
        };
        network.set_up_enb(0);
        assert_eq!(network.kinds, [S1apPduKind::Successful_S1Setup]);
        network
    }

    /// Has eNB `n` set up S1 with TAC `n` + 1.
    pub(super) fn set_up_enb(&mut self, n: usize) {
        let area = s1ap::SupportedTAsItem::new(s1ap::TAC([0, 1 + n as u8]), s1ap::BPLMNs(vec![plmn()]), None);
        let request = {
            use vireo_wire::s1ap::*;
            build_s1ap!(
                InitiatingMessage,
                S1Setup,
                S1SetupRequest,
                Global_ENB_ID(global_enb_id(plmn(), EnbKind::Macro, 0x12345 + n as u32).expect("20 bits")),
                SupportedTAs(SupportedTAs(vec![area])),
                DefaultPagingDRX(PagingDRX::v128),
            )
        };
        self.take_from(n, &request.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    pub(super) fn context(&self) -> Option<UeContext> {
        self.stored.as_ref().map(|octets| context::decode(octets).expect("it decodes"))
    }

    /// Changes the stored context without a step.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut UeContext)) {
        let mut context = self.context().expect("a context");
        change(&mut context);
        self.stored = Some(context::encode(&context, Vec::new()).expect("it encodes"));
    }

    /// Makes the earlier context the UE's again, after a connection of another sender.
    pub(super) fn restore(&mut self) {
        let context = self.old_contexts.pop().expect("an earlier context");
        self.stored = Some(context::encode(&context, Vec::new()).expect("it encodes"));
    }

    /// Runs one event of the UE's context.
    pub(super) fn event(&mut self, event: Event<'_>) {
        let Some(ue) = self.context() else { return };
        self.step(ue, event);
    }

    /// Runs one step of a context without storing the result.
    pub(super) fn try_step(&mut self, ue: &mut UeContext, event: Event<'_>) -> StepOutput {
        let mut random = |octets: &mut [u8]| octets.fill(0x5a);
        let mut env = Env {
            now: self.now,
            arrived: self.now,
            config: &self.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &self.nodes,
        };
        engine::step(ue, event, &mut env)
    }

    /// Advances the clock, running each deadline on the way.
    pub(super) fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(deadline) = self.context().and_then(|c| c.deadline()).filter(|d| *d <= end) {
            self.now = deadline.max(self.now);
            self.event(Event::Deadline);
            self.settle();
        }
        self.now = end;
    }

    fn step(&mut self, mut ue: UeContext, event: Event<'_>) {
        let outcome = self.try_step(&mut ue, event);
        let mut octets = Vec::new();
        let before = self.stored.as_deref().unwrap_or_default();
        context::encode_after(&ue, before, &mut octets).expect("it encodes");
        assert_eq!(context::decode(&octets).as_ref(), Ok(&ue), "a context is all in its stored form");
        self.stored = (!outcome.effects.contains(&Effect::DeleteContext)).then_some(octets);
        self.notes.extend(outcome.notes);
        for effect in outcome.effects {
            self.effects.push(effect.clone());
            match effect {
                Effect::Ngap { assoc, pdu } if assoc.dialect() == Dialect::Eps => self.down.push_back((assoc, pdu)),
                Effect::Authenticate(request) => {
                    let answer = self.home(&request);
                    self.event(Event::Authentication(answer));
                }
                Effect::Pfcp { upf, message, session } if !is_g_pdu(&message) => {
                    let context = self.context().expect("a context");
                    let found = context.sessions.iter().find(|s| s.index == session).map(|s| s.seid_at(upf));
                    if let Some((seid, answer)) = found.and_then(|s| Some((s, upf_answer(&message, upf, s)?))) {
                        match self.upf_answers {
                            true => self.event(Event::Pfcp { seid, message: &answer }),
                            false => self.unanswered.push((seid, answer)),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn vector(sqn: u64, rand: [u8; 16]) -> AuthenticationVector {
        let sqn = Sqn::try_from(sqn).expect("48 bits");
        milenage().authentication_vector(&Rand::new(&rand), &sqn, &Amf::new(&[0x80, 0]))
    }

    fn home(
        &mut self,
        request: &AuthenticationRequest,
    ) -> Result<vireo_core::subscription::AuthenticationVector, AuthenticationError> {
        if let Some(error) = self.subscriber_error.take() {
            return Err(error);
        }
        let SubscriberIdentity::Imsi(supi) = request.identity else { panic!("{request:?}") };
        if let Some(resync) = &request.resync {
            let sqn = milenage().verify_auts(&Rand::new(&resync.rand), &Auts::new(&resync.auts));
            self.home_sqn = sqn.map_err(|_| AuthenticationError::BadAuts)?.get();
        }
        self.home_sqn += 32;
        let rand = [self.home_sqn as u8; 16];
        let vector = Network::vector(self.home_sqn, rand);
        let mut xres_star = [0; 16];
        xres_star[..AuthenticationInfo::RES_OCTETS].copy_from_slice(vector.xres().as_octets());
        let network = vireo_wire::security::Plmn::new("999", "70").expect("a PLMN");
        let kasme = derive_kasme(vector.ck(), vector.ik(), network, vector.autn());
        let info = AuthenticationInfo {
            supi,
            rand,
            autn: *vector.autn().as_octets(),
            xres_star,
            kseaf: *kasme.as_octets(),
            subscription: self.subscription.clone(),
        };
        Ok(info.into())
    }

    /// Delivers the answers that the UPF has held back, and later ones at once.
    pub(super) fn upf_catches_up(&mut self) {
        self.upf_answers = true;
        for (seid, answer) in std::mem::take(&mut self.unanswered) {
            self.event(Event::Pfcp { seid, message: &answer });
        }
        self.settle();
    }

    /// Delivers PDUs to eNBs until none is in transit.
    pub(super) fn settle(&mut self) {
        while let Some((assoc, pdu)) = self.down.pop_front() {
            self.bring_to_enb((assoc.with_dialect(Dialect::Nr).0 - ASSOC.0) as usize, &pdu);
        }
    }

    /// Processes a PDU of the UE's eNB.
    pub(super) fn take_from_enb(&mut self, pdu: &[u8]) {
        self.take_from(self.serving, pdu);
    }

    /// Processes a PDU of eNB `n` as the balancer and the host do, and delivers the answers.
    pub(super) fn take_from(&mut self, n: usize, pdu: &[u8]) {
        let assoc = assoc(n);
        match access::route(Dialect::Eps, pdu).expect("a sound PDU") {
            Route::Node => {
                let outcome = ran::step_of(assoc, &mut self.nodes.0[n].1, pdu, &self.config);
                self.down.extend(outcome.answer.map(|answer| (assoc, answer)));
            }
            Route::Ue(amf_id) => self.event(Event::Ngap { assoc, amf_id, pdu }),
            Route::Initial { s_tmsi, nas_identity, .. } => {
                let (_, message) = access::ue_message(Dialect::Eps, pdu).expect("a sound PDU");
                let UeMessage::Initial(message) = message else { panic!("{message:?}") };
                let named = s_tmsi.map(|(.., tmsi)| tmsi).or(nas_identity.and_then(|i| i.tmsi_of(&self.config)));
                let is_known = |c: &UeContext| {
                    let tmsis = [c.identity.tmsi, c.identity.old_tmsi];
                    named.is_some() && tmsis.contains(&named) && engine::is_authentic(c, &message.nas)
                };
                let ue = self.context().filter(is_known).unwrap_or_else(|| {
                    self.old_contexts.extend(self.context());
                    UeContext::new(Ltmsi::new(Bucket::new(1), 77 + self.old_contexts.len() as u16))
                });
                self.initial = Some(message.clone());
                match self.congested {
                    true => self.step(ue, Event::Congested { assoc, message }),
                    false => self.step(ue, Event::Initial { assoc, message }),
                }
            }
        }
        self.settle();
    }

    fn bring_to_enb(&mut self, n: usize, octets: &[u8]) {
        let pdu = S1AP_PDU::decode(octets).expect("a PDU");
        assert_eq!(pdu.check().expect("it decodes"), vec![], "{octets:02x?}");
        self.kinds.push(pdu.kind());
        self.sent.push((n, octets.to_vec()));
        let is_own = pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok).is_some_and(|id| id.0 == self.enb_id);
        if let (Some(Ok(id)), true) = (pdu.ie::<ie::MME_UE_S1AP_ID>(), n == self.serving && is_own) {
            self.mme_id = Some(id.0);
        }
        match pdu.kind() {
            S1apPduKind::Initiating_downlinkNASTransport => {
                let nas = pdu.ie::<ie::NAS_PDU>().expect("an IE").expect("octets").0.to_vec();
                self.bring_to_ue(&nas);
            }
            S1apPduKind::Initiating_InitialContextSetup => self.set_up(&pdu),
            S1apPduKind::Initiating_E_RABSetup => self.set_up_bearer(&pdu),
            S1apPduKind::Initiating_E_RABRelease => self.release_bearer(&pdu),
            S1apPduKind::Initiating_E_RABModify => self.modify_bearer(&pdu),
            S1apPduKind::Initiating_UEContextRelease => {
                use vireo_wire::s1ap::*;
                let ids = pdu.ie::<ie::UE_S1AP_IDs>().expect("an IE").expect("IDs");
                let UES1APIDs::uE_S1AP_ID_pair(pair) = ids else { return };
                if self.enb_releases {
                    self.complete_release(n, (pair.mme_ue_s1ap_id.0, pair.enb_ue_s1ap_id.0));
                }
            }
            _ => {}
        }
    }

    /// Sends a NAS message of the UE, the first one in INITIAL UE MESSAGE.
    pub(super) fn uplink(&mut self, nas: Vec<u8>) {
        use vireo_wire::s1ap::*;
        if let Some(id) = self.mme_id {
            return self.take_from_enb(&uplink_nas(id, self.enb_id, &nas));
        }
        let pdu = {
            let mut ies = vec![
                build_s1ap_ie!(InitialUEMessage, eNB_UE_S1AP_ID(self.enb_id)),
                build_s1ap_ie!(InitialUEMessage, NAS_PDU(nas)),
                build_s1ap_ie!(InitialUEMessage, TAI(tai())),
                build_s1ap_ie!(InitialUEMessage, EUTRAN_CGI(cgi())),
                build_s1ap_ie!(InitialUEMessage, RRC_Establishment_Cause(RRCEstablishmentCause::mo_Signalling)),
            ];
            if let Some(guti) = &self.ue.guti {
                let [code, tmsi @ ..] = *<&[u8; 5]>::try_from(&guti.value[6..]).expect("a GUTI");
                let s_tmsi = STMSI::new(MMECode([code]), MTMSI(tmsi), None);
                ies.push(build_s1ap_ie!(InitialUEMessage, S_TMSI(s_tmsi)));
            }
            let ies: Result<Vec<_>, _> = ies.into_iter().collect();
            ies.and_then(|ies| {
                let message = InitialUEMessage::new(ProtocolIEContainer(ies));
                S1AP_PDU::of_message(&message, InitialUEMessage::CRITICALITY)
            })
        };
        self.take_from_enb(&pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    /// Sends a protected NAS message of the UE.
    pub(super) fn protected(&mut self, message: &NasEpsMessage, header: NasEpsSecurityHeaderType) {
        let keys = self.ue.keys.as_mut().expect("keys");
        let nas = keys.protect(message, header, Direction::Uplink).expect("it encodes");
        self.uplink(nas);
    }

    /// Sends ATTACH REQUEST with the IMSI, or with the GUTI under the keys of the UE.
    pub(super) fn attach(&mut self) {
        let request = self.attach_request();
        self.initial_message(&request);
    }

    /// Sends an initial message, under the keys of the UE if there are any.
    pub(super) fn initial_message(&mut self, request: &NasAttachRequest) {
        let request = emm(request.clone());
        match self.ue.keys {
            Some(_) => self.protected(&request, NasEpsSecurityHeaderType::IntegrityProtected),
            None => self.uplink(request.encode().expect("it encodes")),
        }
    }

    /// Returns ATTACH REQUEST for an IPv4 connection to the default APN.
    pub(super) fn attach_request(&self) -> NasAttachRequest {
        let connect = NasPdnConnectivityRequest::new(
            NasRequestType::from_request_type(RequestTypeValue::Initial),
            NasPdnType::from_pdn_type(PdnType::Ipv4),
        );
        let esm = NasEpsMessage::new_esm(connect, 0, 1).encode().expect("it encodes");
        let identity = self.ue.guti.clone();
        NasAttachRequest::new(
            NasEpsAttachType::from_attach_type(AttachType::EpsAttach),
            key_set(self.ue.key_set),
            identity.unwrap_or_else(|| NasEpsMobileIdentity::from_imsi(IMSI).expect("an IMSI")),
            NasUeNetworkCapability::new(CAPABILITY.to_vec()),
            NasEsmMessageContainer::new(esm),
        )
    }

    /// Returns ATTACH REQUEST without PDN connection, of a UE that supports it.
    pub(super) fn attach_request_without_pdn(&self) -> NasAttachRequest {
        let mut request = self.attach_request();
        request.ue_network_capability.set_erw_opdn(true);
        let dummy = NasEpsMessage::new_esm(NasEsmDummyMessage::new(), 0, 0).encode().expect("it encodes");
        request.esm_message_container = NasEsmMessageContainer::new(dummy);
        request
    }

    /// Subscribes the UE to a further APN, which the network serves.
    pub(super) fn subscribe(&mut self, apn: &str) {
        let name: Dnn = apn.parse().expect("an APN");
        let served = self.config.dnns[0].clone();
        self.config.dnns.push(DnnConfig { name: name.clone(), ..served });
        self.subscription.slices[0].dnns.push(DnnSubscription { dnn: name, ..DnnSubscription::default() });
        if self.stored.is_some() {
            let subscription = std::sync::Arc::new(self.subscription.clone());
            self.change(|ue| ue.subscription = Some(subscription));
        }
    }

    /// Sends an ESM message of the UE.
    pub(super) fn send_esm(&mut self, message: impl Into<NasEsmMessage>, ebi: u8, pti: u8) {
        let message = NasEpsMessage::new_esm(message, ebi, pti);
        self.protected(&message, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
    }

    /// Requests a PDN connection with this PTI.
    pub(super) fn connect(&mut self, pti: u8, apn: Option<&str>) {
        let mut connect = NasPdnConnectivityRequest::new(
            NasRequestType::from_request_type(RequestTypeValue::Initial),
            NasPdnType::from_pdn_type(PdnType::Ipv4),
        );
        connect.access_point_name = apn.map(|apn| NasAccessPointName::from_string(apn).expect("an APN"));
        self.send_esm(connect, 0, pti);
    }

    /// Requests the end of the PDN connection of a default bearer.
    pub(super) fn disconnect(&mut self, pti: u8, ebi: u8) {
        self.send_esm(NasPdnDisconnectRequest::new(NasLinkedEpsBearerIdentity::new(ebi)), 0, pti);
    }

    /// Handles a NAS message at the UE.
    pub(super) fn bring_to_ue(&mut self, nas: &[u8]) {
        match &mut self.ue.remaining {
            Some(0) => return,
            Some(remaining) => *remaining -= 1,
            None => {}
        }
        let header = nas[0] >> 4;
        let message = match (header, &mut self.ue.keys) {
            (0, _) => NasEpsMessage::decode_with_direction(nas, Direction::Downlink).expect("a message"),
            // SECURITY MODE COMMAND is verified by the keys that it takes into use.
            (3, keys) => {
                let plain = NasEpsMessage::decode_with_direction(&nas[6..], Direction::Downlink);
                let NasEpsMessage::Emm(_, NasEmmMessage::SecurityModeCommand(command)) = plain.expect("a message")
                else {
                    panic!("{nas:02x?}")
                };
                let keys = keys.as_mut().expect("authenticated");
                let selected = command.selected_nas_security_algorithms.value;
                assert_eq!(selected, 0x22, "EEA2 and EIA2");
                let verified = keys.unprotect(nas, Direction::Downlink).expect("a right MAC");
                verified.message
            }
            (_, keys) => keys.as_mut().expect("keys").unprotect(nas, Direction::Downlink).expect("a right MAC").message,
        };
        let message = match message {
            NasEpsMessage::Emm(_, message) => message,
            NasEpsMessage::Esm(header, message) => {
                self.ue.esm.push(message.clone());
                return self.esm(&header, message);
            }
            other => panic!("{other:?}"),
        };
        self.ue.received.push(message.clone());
        match message {
            NasEmmMessage::IdentityRequest(_) => {
                let identity = NasMobileIdentity::from_imsi(IMSI).expect("an IMSI");
                self.uplink(emm(NasIdentityResponse::new(identity)).encode().expect("it encodes"));
            }
            NasEmmMessage::AuthenticationRequest(request) => self.authenticate(&request, header != 0),
            NasEmmMessage::SecurityModeCommand(command) => {
                let replayed = &command.replayed_ue_security_capabilities.value;
                assert_eq!(replayed[..2], CAPABILITY, "no bidding down");
                let mut complete = NasSecurityModeComplete::new();
                complete.replayed_nas_message_container =
                    self.ue.repeated.take().map(NasReplayedNasMessageContainer::new);
                self.protected(
                    &emm(complete),
                    NasEpsSecurityHeaderType::IntegrityProtectedAndCipheredWithNewEpsSecurityContext,
                );
            }
            NasEmmMessage::AttachAccept(_) | NasEmmMessage::TrackingAreaUpdateAccept(_) if self.ue.silent => {}
            NasEmmMessage::AttachAccept(accept) => self.attached(&accept),
            NasEmmMessage::TrackingAreaUpdateAccept(accept) => {
                if let Some(guti) = accept.guti {
                    self.ue.guti = Some(guti);
                    let complete = emm(NasTrackingAreaUpdateComplete::new());
                    self.protected(&complete, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
                }
            }
            NasEmmMessage::GutiReallocationCommand(command) if !self.ue.silent => {
                self.ue.guti = Some(command.guti);
                let complete = emm(NasGutiReallocationComplete::new());
                self.protected(&complete, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
            }
            _ => {}
        }
    }

    /// Answers a challenge, under the keys in use if it was protected.
    fn authenticate(&mut self, request: &NasAuthenticationRequest, is_protected: bool) {
        let rand = *<&[u8; 16]>::try_from(&request.authentication_parameter_rand.value[..]).expect("16 octets");
        let autn = *<&[u8; 16]>::try_from(&request.authentication_parameter_autn.value[..]).expect("16 octets");
        let (milenage, autn) = (milenage(), Autn::new(&autn));
        let usim = milenage.check_autn(&Rand::new(&rand), &autn).expect("a right MAC");
        if usim.sqn().get() <= self.ue.sqn {
            let sqn = Sqn::try_from(self.ue.sqn).expect("48 bits");
            let auts = milenage.auts(&Rand::new(&rand), &sqn);
            let failure = NasAuthenticationFailure::new(NasEmmCause::from_cause(EmmCause::SynchFailure))
                .with_authentication_failure_parameter(NasAuthenticationFailureParameter::new(
                    auts.as_octets().to_vec(),
                ));
            self.uplink(emm(failure).encode().expect("it encodes"));
            return;
        }
        self.ue.sqn = usim.sqn().get();
        let network = vireo_wire::security::Plmn::new("999", "70").expect("a PLMN");
        let kasme = derive_kasme(usim.ck(), usim.ik(), network, &autn);
        self.ue.kasme = *kasme.as_octets();
        let (eia, eea) = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2);
        let res = if self.ue.wrong_key { [0; 8] } else { *usim.res().as_octets() };
        let res = NasAuthenticationResponseParameter::from_res(&res).expect("8 octets");
        let response = emm(NasAuthenticationResponse::new(res));
        let header = NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered;
        let response = match self.ue.keys.as_mut().filter(|_| is_protected) {
            Some(keys) => keys.protect(&response, header, Direction::Uplink).expect("it encodes"),
            None => response.encode().expect("it encodes"),
        };
        self.ue.key_set = request.nas_key_set_identifier_asme.value & 7;
        self.ue.keys = Some(NasSecurityContext::from_fresh_kasme(&kasme, eia, eea).expect("keys"));
        self.uplink(response);
    }

    fn attached(&mut self, accept: &NasAttachAccept) {
        self.ue.guti = accept.guti.clone();
        let esm = NasEpsMessage::decode(&accept.esm_message_container.value).expect("a message");
        if matches!(&esm, NasEpsMessage::Esm(_, NasEsmMessage::EsmDummyMessage(_))) {
            let complete = emm(NasAttachComplete::new(accept.esm_message_container.clone()));
            return self.protected(&complete, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
        }
        let NasEpsMessage::Esm(header, NasEsmMessage::ActivateDefaultEpsBearerContextRequest(bearer)) = esm else {
            panic!("{esm:?}")
        };
        assert_eq!(header.procedure_transaction_identity, 1);
        self.ue.address = bearer.pdn_address.ipv4();
        self.ue.ebi = header.eps_bearer_identity;
        self.ue.bearer_cause = bearer.esm_cause.as_ref().map(|cause| cause.value);
        let accept = NasEpsMessage::new_esm(NasActivateDefaultEpsBearerContextAccept::new(), self.ue.ebi, 0);
        let esm = NasEsmMessageContainer::new(accept.encode().expect("it encodes"));
        let complete = emm(NasAttachComplete::new(esm));
        self.protected(&complete, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
    }

    /// Handles an ESM message outside an EMM message: the UE accepts what it is asked.
    fn esm(&mut self, header: &NasEsmHeader, message: NasEsmMessage) {
        let (ebi, pti) = (header.eps_bearer_identity, header.procedure_transaction_identity);
        let accept = match &message {
            NasEsmMessage::ActivateDefaultEpsBearerContextRequest(_) => {
                Some(NasEpsMessage::new_esm(NasActivateDefaultEpsBearerContextAccept::new(), ebi, 0))
            }
            NasEsmMessage::ModifyEpsBearerContextRequest(_) if !self.ue.silent => {
                Some(NasEpsMessage::new_esm(NasModifyEpsBearerContextAccept::new(), ebi, 0))
            }
            NasEsmMessage::DeactivateEpsBearerContextRequest(_) => {
                Some(NasEpsMessage::new_esm(NasDeactivateEpsBearerContextAccept::new(), ebi, 0))
            }
            NasEsmMessage::EsmInformationRequest(_) => {
                let response = self.ue.information.clone().unwrap_or_default();
                Some(NasEpsMessage::new_esm(response, 0, pti))
            }
            _ => None,
        };
        self.ue.received_esm.push((ebi, pti, message));
        if let Some(accept) = accept {
            self.protected(&accept, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
        }
    }

    /// Has the eNB release the UE for inactivity.
    pub(super) fn idle(&mut self) {
        use vireo_wire::s1ap::*;
        let request = build_s1ap!(
            InitiatingMessage,
            UEContextReleaseRequest,
            UEContextReleaseRequest,
            MME_UE_S1AP_ID(self.mme_id.expect("it is connected")),
            eNB_UE_S1AP_ID(self.enb_id),
            Cause(Cause::radioNetwork(CauseRadioNetwork::user_inactivity)),
        );
        self.take_from_enb(&request.and_then(|pdu| pdu.encode()).expect("it encodes"));
        assert_eq!(self.mme_id, None, "the connection is gone");
    }

    /// Sends SERVICE REQUEST.
    pub(super) fn service_request(&mut self) {
        let key_set = self.ue.key_set;
        let keys = self.ue.keys.as_mut().expect("keys");
        let request = keys.protect_service_request(key_set).expect("a request");
        self.uplink(NasEpsMessage::ServiceRequest(request).encode().expect("it encodes"));
    }

    /// Sends TRACKING AREA UPDATE REQUEST of a type.
    pub(super) fn update(&mut self, kind: UpdateType) {
        self.update_with(kind, |_| {});
    }

    /// As [`Network::update`], with a change of the request.
    pub(super) fn update_with(&mut self, kind: UpdateType, change: impl FnOnce(&mut NasTrackingAreaUpdateRequest)) {
        let mut request = NasTrackingAreaUpdateRequest::new(
            NasEpsUpdateType::from_update_type(kind),
            key_set(self.ue.key_set),
            self.ue.guti.clone().expect("a GUTI"),
        );
        change(&mut request);
        self.protected(&emm(request), NasEpsSecurityHeaderType::IntegrityProtected);
    }

    /// Sends DETACH REQUEST.
    pub(super) fn detach(&mut self, switch_off: bool) {
        self.send_detach(NasDetachType::from_ue_detach_kind(UeDetachKind::EpsDetach, switch_off));
    }

    /// Sends DETACH REQUEST of a kind, without switch off.
    pub(super) fn detach_from(&mut self, kind: UeDetachKind) {
        self.send_detach(NasDetachType::from_ue_detach_kind(kind, false));
    }

    fn send_detach(&mut self, kind: NasDetachType) {
        let request =
            NasDetachRequestUeOriginating::new(kind, key_set(self.ue.key_set), self.ue.guti.clone().expect("a GUTI"));
        self.protected(&emm(request), NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
    }

    /// Reports downlink data for the UE, as its UPF does.
    pub(super) fn downlink_data(&mut self) {
        use vireo_wire::pfcp::{self, Element};
        let session = self.context().expect("a context").sessions[0].clone();
        let report = crate::lab::pfcp_report(session.pfcp.cp_seid, pfcp::ReportType::DLDR, |report| {
            report.group(pfcp::DownlinkDataReport::ID, |data| {
                data.put(&pfcp::PdrId(2));
            });
        });
        self.event(Event::Pfcp { seid: session.pfcp.cp_seid, message: &report });
        self.settle();
    }

    /// Returns the last EMM message to the UE.
    pub(super) fn last(&self) -> &NasEmmMessage {
        self.ue.received.last().expect("a message")
    }

    /// Returns the downlink tunnel of the first session.
    pub(super) fn tunnel(&self) -> Option<(IpAddr, u32)> {
        let tunnel = self.context()?.sessions.first()?.downlink?;
        Some((tunnel.address, tunnel.teid.0))
    }
}

/// Tunnel end of the eNB.
pub(super) const TUNNEL: (IpAddr, u32) =
    (IpAddr::V4(Ipv4Addr::new(ENB_ADDRESS[0], ENB_ADDRESS[1], ENB_ADDRESS[2], ENB_ADDRESS[3])), 0x1234_5678);

/// Encodes UPLINK NAS TRANSPORT.
pub(super) fn uplink_nas(mme_id: u32, enb_id: u32, nas: &[u8]) -> Vec<u8> {
    use vireo_wire::s1ap::*;
    let pdu = build_s1ap!(
        InitiatingMessage,
        uplinkNASTransport,
        UplinkNASTransport,
        MME_UE_S1AP_ID(mme_id),
        eNB_UE_S1AP_ID(enb_id),
        NAS_PDU(nas.to_vec()),
        EUTRAN_CGI(cgi()),
        TAI(tai()),
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}
