//! Fuzz targets of the AMF's steps over one UE, driven by a script.
//!
//! A UE, a RAN and a UPF can also behave correctly. After every step these invariants hold:
//! messages to the RAN have no fault, no downlink NAS COUNT is used twice, and storing and loading
//! does not change the context.

use super::input::Script;
use super::session::{Ids, METERS, config, pfcp_answer, upf};
use super::{codecs, seeds};
use vireo_core::Env;
use vireo_core::amf::context::{self, UeContext};
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::{n2, ran};
use vireo_core::config::CoreConfig;
use vireo_core::schedule::kind::procedure_in_progress;
use vireo_core::step::{Effect, Kind, Note, StepOutput};
use vireo_core::subscription::{
    AuthenticationError, AuthenticationInfo, AuthenticationVector, SliceSubscription, Subscription, TransformedVector,
};
use vireo_types::{AssocId, Bucket, DeregistrationCause, Duration, Instant, Ltmsi, Plmn, RanUeNgapId, Seid};
use vireo_wire::eap::{self, SessionKeys, TransformedKeys};
use vireo_wire::nas::{
    Direction, Nas5gmmMessage, Nas5gsMessage, Nas5gsSecurityHeaderType as Header, NasAuthenticationResponse,
    NasAuthenticationResponseParameter, NasEapMessage, NasSecurityContext,
};
use vireo_wire::ngap::*;
use vireo_wire::pfcp;
use vireo_wire::security::nas_5gs::{KSeaf, Supi, derive_kamf, derive_kseaf};

const ASSOC: AssocId = AssocId(1);
const RAN_ID: u32 = 7;
const KSEAF: [u8; 32] = [0x5e; 32];
const XRES_STAR: [u8; 16] = [0x42; 16];
/// RAND, whose first octet is the identifier of the golden EAP packets.
const RAND: [u8; 16] = [0x23; 16];
const XRES: [u8; 8] = [0x42; 8];
const CK_PRIME: [u8; 16] = [0x11; 16];
const IK_PRIME: [u8; 16] = [0x22; 16];

/// Numbers of the script's steps.
pub mod step {
    /// Initial UE Message with the piece as NAS message.
    pub const INITIAL: u8 = 0;
    /// Initial UE Message with a golden NAS message.
    pub const INITIAL_GOLDEN: u8 = 1;
    /// Uplink NAS Transport with the piece.
    pub const UPLINK: u8 = 2;
    /// Uplink NAS Transport with the piece under the UE's keys.
    pub const UPLINK_PROTECTED: u8 = 3;
    /// Uplink NAS Transport with a golden message under the UE's keys.
    pub const UPLINK_GOLDEN: u8 = 4;
    /// The home network returns a vector; one of EAP-AKA' if the piece is not empty.
    pub const VECTOR: u8 = 5;
    /// The home network refuses.
    pub const NO_VECTOR: u8 = 6;
    /// The correct Authentication Response; that of EAP-AKA' if the piece is not empty.
    pub const RESPONSE: u8 = 7;
    /// A golden message under the keys of the Security Mode Command, as the first of a new context.
    pub const NEW_CONTEXT: u8 = 8;
    /// The UPF answers its last request.
    pub const UPF_ANSWER: u8 = 9;
    /// The UPF sends the piece.
    pub const UPF_RAW: u8 = 10;
    /// The UPF does not answer.
    pub const UPF_SILENT: u8 = 11;
    /// Initial Context Setup Response.
    pub const CONTEXT_SET_UP: u8 = 12;
    /// An unchanged NGAP PDU.
    pub const NGAP: u8 = 13;
    /// PDU Session Resource Setup Response.
    pub const SESSION_SET_UP: u8 = 14;
    /// PDU Session Resource Release Response.
    pub const SESSION_RELEASED: u8 = 15;
    /// UE Context Release Request.
    pub const RELEASE_REQUEST: u8 = 16;
    /// UE Context Release Complete.
    pub const RELEASE_COMPLETE: u8 = 17;
    /// Time passes, in seconds of the piece.
    pub const TIME: u8 = 18;
    /// The association is lost.
    pub const LOST: u8 = 19;
    /// Another context of the subscriber supersedes this one.
    pub const SUPERSEDED: u8 = 20;
    /// The operator deregisters the UE.
    pub const DEREGISTER: u8 = 21;
    /// The UPF has restarted.
    pub const UPF_LOST: u8 = 22;
    /// The RAN node sends a non-UE-associated message.
    pub const NODE: u8 = 23;
    /// The balancer's routing of an NGAP PDU.
    pub const ROUTE: u8 = 24;
    /// Initial UE Message with a golden message under the UE's keys.
    pub const INITIAL_PROTECTED: u8 = 25;
    /// The RAN node reuses its number of the UE.
    pub const RAN_ID_REUSED: u8 = 26;
    /// Initial UE Message with a golden NAS message under the UE's keys, during congestion.
    pub const CONGESTED: u8 = 27;
    /// Number of step kinds.
    pub const COUNT: u8 = 28;
}

/// One UE with its environment.
struct Bench {
    config: CoreConfig,
    ids: Ids,
    now: Instant,
    ue: UeContext,
    node: Option<ran::RanNode>,
    card: Option<NasSecurityContext>,
    requested: Vec<u8>,
    counts: Vec<(Vec<u8>, u8)>,
    succeeded: Vec<Kind>,
}

/// Runs a script.
pub fn steps(data: &[u8]) {
    succeeded(data);
}

/// Runs a script. Returns the procedures that ended successfully.
pub fn succeeded(data: &[u8]) -> Vec<Kind> {
    let mut bench = Bench {
        config: config(),
        ids: Ids::default(),
        now: Instant(1_000_000),
        ue: UeContext::new(Ltmsi::new(Bucket::new(7), 1234)),
        node: None,
        card: None,
        requested: Vec::new(),
        counts: Vec::new(),
        succeeded: Vec::new(),
    };
    let mut script = Script(data);
    for _ in 0..96 {
        if script.is_done() {
            break;
        }
        let (step, piece) = (script.byte() % step::COUNT, script.piece());
        bench.play(step, piece);
    }
    bench.succeeded
}

/// Runs a script of a RAN node's messages: an ignored number and an NGAP PDU each. The answers have
/// no fault.
pub fn node_messages(data: &[u8]) {
    let (config, mut node, mut script) = (config(), None, Script(data));
    for _ in 0..32 {
        if script.is_done() {
            break;
        }
        let _ = script.byte();
        let piece = script.piece();
        let _ = ran::claimed_node(piece);
        if let Some(answer) = ran::step(&mut node, piece, &config).answer {
            sound(&answer);
        }
    }
}

fn golden_nas(piece: &[u8]) -> Vec<u8> {
    seeds::nth_nas(piece.first().copied().unwrap_or(0).into())
}

impl Bench {
    fn play(&mut self, step: u8, piece: &[u8]) {
        match step {
            step::INITIAL => self.initial(piece.to_vec()),
            step::INITIAL_GOLDEN => self.initial(golden_nas(piece)),
            step::INITIAL_PROTECTED => {
                let nas = self.protect(&golden_nas(piece), Header::IntegrityProtected);
                self.initial(nas);
            }
            step::UPLINK => self.uplink(piece.to_vec()),
            step::UPLINK_PROTECTED | step::UPLINK_GOLDEN => {
                let plain = if step == step::UPLINK_GOLDEN { golden_nas(piece) } else { piece.to_vec() };
                let nas = self.protect(&plain, Header::IntegrityProtectedAndCiphered);
                self.uplink(nas);
            }
            step::NEW_CONTEXT => {
                let header = Header::IntegrityProtectedAndCipheredWithNewFiveGNasSecurityContext;
                let nas = self.protect(&golden_nas(piece), header);
                self.uplink(nas);
            }
            step::RESPONSE => self.uplink(if piece.is_empty() { response() } else { eap_response() }),
            step::VECTOR => self.event(Event::Authentication(Ok(vector(!piece.is_empty())))),
            step::NO_VECTOR => self.event(Event::Authentication(Err(refusal(piece)))),
            step::UPF_ANSWER => {
                let seid = self.ue.sessions.last().map_or(Seid(0), |s| s.pfcp.cp_seid);
                let answer = pfcp_answer(&self.requested, piece, seid);
                self.upf(&answer);
            }
            step::UPF_RAW => self.upf(piece),
            step::UPF_SILENT => self.on_session(|seid| Event::PfcpTimeout { seid }),
            step::NGAP => self.ngap(piece.to_vec()),
            step::TIME => {
                self.now = self.now + Duration::from_secs(piece.first().copied().unwrap_or(7).into());
                self.event(Event::Deadline);
            }
            step::RAN_ID_REUSED => self.event(Event::RanIdReused { assoc: ASSOC, ran_id: RanUeNgapId(RAN_ID) }),
            step::CONGESTED => {
                let nas = self.protect(&golden_nas(piece), Header::IntegrityProtected);
                if let Ok((_, n2::UeMessage::Initial(message))) = n2::ue_message(&initial_ue_message(nas)) {
                    self.event(Event::Congested { assoc: ASSOC, message });
                }
            }
            step::LOST => self.event(Event::ConnectionLost { assoc: ASSOC }),
            step::SUPERSEDED => self.event(Event::Superseded),
            step::DEREGISTER => {
                let cause = piece.first().and_then(|cause| DeregistrationCause::try_from(*cause).ok());
                self.event(Event::Deregister { reregister: piece.len() & 1 == 1, cause });
            }
            step::UPF_LOST => self.event(Event::UpfLost { upf: upf() }),
            step::NODE => self.node(piece),
            step::ROUTE => drop(n2::peek(piece)),
            _ => self.answer_of_ran(step),
        }
    }

    fn initial(&mut self, nas: Vec<u8>) {
        let pdu = initial_ue_message(nas);
        let view = n2::peek(&pdu);
        if let Ok((_, n2::UeMessage::Initial(message))) = n2::ue_message(&pdu) {
            if let Ok(n2::Route::Initial { nas_identity, .. }) = view.map(|view| view.route) {
                assert_eq!(nas_identity, n2::NasIdentity::peek(&message.nas));
            }
            let _ = engine::is_authentic(&self.ue, &message.nas);
            self.event(Event::Initial { assoc: ASSOC, message });
        }
    }

    fn uplink(&mut self, nas: Vec<u8>) {
        let amf_id = self.amf_id();
        let pdu = build_ngap!(
            InitiatingMessage,
            UplinkNASTransport,
            UplinkNASTransport,
            AMF_UE_NGAP_ID(amf_id),
            RAN_UE_NGAP_ID(RAN_ID),
            NAS_PDU(nas)
        );
        self.ngap(pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    fn amf_id(&self) -> u64 {
        self.ue.connection.map_or(0, |c| c.amf_id.get())
    }

    fn ngap(&mut self, pdu: Vec<u8>) {
        let Some(connection) = self.ue.connection else { return };
        self.event(Event::Ngap { assoc: ASSOC, amf_id: connection.amf_id, pdu: &pdu });
    }

    fn upf(&mut self, message: &[u8]) {
        self.on_session(|seid| Event::Pfcp { seid, message });
    }

    fn on_session<'a>(&mut self, event: impl FnOnce(Seid) -> Event<'a>) {
        if let Some(seid) = self.ue.sessions.last().map(|s| s.pfcp.cp_seid) {
            self.event(event(seid));
        }
    }

    fn answer_of_ran(&mut self, step: u8) {
        let (amf, ran) = (self.amf_id(), RAN_ID);
        let response = [0, 3, 0xe0, 127, 0, 0, 9, 0x0a, 0x0b, 0x0c, 0x0d, 0, 1];
        let psi = self.ue.sessions.last().map_or(5, |s| s.psi);
        let pdu = match step {
            step::CONTEXT_SET_UP => {
                let item = PDUSessionResourceSetupItemCxtRes::new(PDUSessionID(psi), response.to_vec().into(), None);
                build_ngap!(
                    SuccessfulOutcome,
                    InitialContextSetup,
                    InitialContextSetupResponse,
                    AMF_UE_NGAP_ID(amf),
                    RAN_UE_NGAP_ID(ran),
                    PDUSessionResourceSetupListCxtRes(PDUSessionResourceSetupListCxtRes(vec![item]))
                )
            }
            step::SESSION_SET_UP => {
                let item = PDUSessionResourceSetupItemSURes::new(PDUSessionID(psi), response.to_vec().into(), None);
                build_ngap!(
                    SuccessfulOutcome,
                    PDUSessionResourceSetup,
                    PDUSessionResourceSetupResponse,
                    AMF_UE_NGAP_ID(amf),
                    RAN_UE_NGAP_ID(ran),
                    PDUSessionResourceSetupListSURes(PDUSessionResourceSetupListSURes(vec![item]))
                )
            }
            step::SESSION_RELEASED => {
                let item = PDUSessionResourceReleasedItemRelRes::new(PDUSessionID(psi), vec![0].into(), None);
                build_ngap!(
                    SuccessfulOutcome,
                    PDUSessionResourceRelease,
                    PDUSessionResourceReleaseResponse,
                    AMF_UE_NGAP_ID(amf),
                    RAN_UE_NGAP_ID(ran),
                    PDUSessionResourceReleasedListRelRes(PDUSessionResourceReleasedListRelRes(vec![item]))
                )
            }
            step::RELEASE_REQUEST => build_ngap!(
                InitiatingMessage,
                UEContextReleaseRequest,
                UEContextReleaseRequest,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran),
                Cause(Cause::radioNetwork(CauseRadioNetwork::user_inactivity))
            ),
            _ => build_ngap!(
                SuccessfulOutcome,
                UEContextRelease,
                UEContextReleaseComplete,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran)
            ),
        };
        self.ngap(pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    fn node(&mut self, piece: &[u8]) {
        let out = ran::step(&mut self.node, piece, &self.config);
        if let Some(answer) = out.answer {
            sound(&answer);
        }
    }

    /// Returns a message under the keys of the UE; unprotected while it has none.
    fn protect(&mut self, plain: &[u8], header: Header) -> Vec<u8> {
        let protected = self
            .card
            .as_mut()
            .and_then(|card| card.protect_opaque_payload(plain.to_vec(), header, Direction::Uplink).ok());
        protected.unwrap_or_else(|| plain.to_vec())
    }

    fn event(&mut self, event: Event<'_>) {
        let mut random = |octets: &mut [u8]| octets.fill(0x11);
        let mut env = Env {
            now: self.now,
            arrived: self.now,
            config: &self.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &(),
        };
        let out = engine::step(&mut self.ue, event, &mut env);
        self.observe(&out);
        let stored = context::encode(&self.ue, Vec::new()).expect("a context is stored");
        assert_eq!(context::decode(&stored).as_ref(), Ok(&self.ue), "a context changes when it is stored");
        if procedure_in_progress(&self.ue).is_none() {
            assert_eq!(
                self.ue.deadline(),
                self.ue.reachability.expires,
                "nothing is under way, so nothing is waited for"
            );
        }
        if out.effects.contains(&Effect::DeleteContext) {
            self.ue = UeContext::new(self.ue.ltmsi);
            (self.card, self.requested) = (None, Vec::new());
        }
    }

    fn observe(&mut self, out: &StepOutput) {
        self.succeeded.extend(out.notes.iter().filter_map(|note| match note {
            Note::Succeeded(kind, _) => Some(*kind),
            _ => None,
        }));
        for effect in &out.effects {
            match effect {
                Effect::Ngap { pdu, .. } => {
                    sound(pdu);
                    nas_of(pdu).iter().for_each(|nas| self.downlink(nas));
                }
                Effect::Pfcp { message, .. } => {
                    assert!(pfcp::walk(message).is_some(), "a PFCP message that does not read: {message:02x?}");
                    self.requested.clone_from(message);
                }
                _ => {}
            }
        }
    }

    fn downlink(&mut self, nas: &[u8]) {
        codecs::nas(nas);
        let [0x7e, 1..=4, m1, m2, m3, m4, count, plain @ ..] = nas else { return };
        if nas[1] == 3 {
            self.card = new_card(plain);
            self.counts.clear();
        }
        // A repeat has the same octets; other octets need another COUNT (TS 33.501 6.4.3).
        let mac = vec![*m1, *m2, *m3, *m4];
        let reused = self.counts.iter().any(|(seen, at)| at == count && *seen != mac);
        assert!(!reused || self.counts.len() > 200, "NAS COUNT {count} is used for two messages");
        self.counts.push((mac, *count));
    }
}

/// Returns the keys by the algorithms of a Security Mode Command.
fn new_card(plain: &[u8]) -> Option<NasSecurityContext> {
    let Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::SecurityModeCommand(command))) = Nas5gsMessage::decode(plain) else {
        return None;
    };
    let algorithms = &command.selected_nas_security_algorithms;
    let supi = Supi::parse("imsi-999700000000001").ok()?;
    let kseaf = match command.eap_message {
        None => KSeaf::new(&KSEAF),
        Some(_) => derive_kseaf(eap_keys().kausf(), &plmn().serving_network_octets()).ok()?,
    };
    let kamf = derive_kamf(&kseaf, &supi, &[0, 0]).ok()?;
    NasSecurityContext::from_fresh_kamf(&kamf, algorithms.integrity()?, algorithms.ciphering()?).ok()
}

fn response() -> Vec<u8> {
    let parameter = NasAuthenticationResponseParameter::from_res_star(XRES_STAR);
    let response = NasAuthenticationResponse::new().with_authentication_response_parameter(parameter);
    Nas5gsMessage::new_5gmm(response).encode().expect("it encodes")
}

fn plmn() -> Plmn {
    "99970".parse().expect("a PLMN")
}

/// Returns the keys of the vector of EAP-AKA'.
fn eap_keys() -> SessionKeys {
    SessionKeys::derive(&TransformedKeys::new(&CK_PRIME, &IK_PRIME), b"999700000000001")
}

fn eap_response() -> Vec<u8> {
    let packet = eap::response(RAND[0], &XRES, eap_keys().k_aut());
    let response = NasAuthenticationResponse::new().with_eap_message(NasEapMessage::new(packet));
    Nas5gsMessage::new_5gmm(response).encode().expect("it encodes")
}

fn vector(is_eap: bool) -> AuthenticationVector {
    let meters = SliceSubscription { snssai: METERS, ..SliceSubscription::default() };
    let subscription = Subscription { slices: vec![SliceSubscription::default(), meters], ..Subscription::default() };
    let (supi, rand, autn) = ("999700000000001".parse().expect("a SUPI"), RAND, [0x55; 16]);
    if !is_eap {
        return AuthenticationInfo { supi, rand, autn, xres_star: XRES_STAR, kseaf: KSEAF, subscription }.into();
    }
    let (xres, ck_prime, ik_prime) = (XRES, CK_PRIME, IK_PRIME);
    let serving_network = plmn();
    let vector = TransformedVector { supi, serving_network, rand, autn, xres, ck_prime, ik_prime, subscription };
    AuthenticationVector::EapAkaPrime(vector)
}

fn refusal(piece: &[u8]) -> AuthenticationError {
    match piece.len() % 4 {
        0 => AuthenticationError::UnknownSubscriber,
        1 => AuthenticationError::BadSuci,
        2 => AuthenticationError::BadAuts,
        _ => AuthenticationError::Unavailable,
    }
}

/// Checks that an NGAP PDU conforms to the object sets of the specification.
fn sound(pdu: &[u8]) {
    let decoded = NGAP_PDU::decode(pdu).expect("what is sent decodes");
    let deviations = decoded.check().expect("what is sent is a message");
    assert!(deviations.is_empty(), "{decoded} has faults: {deviations:?}");
}

/// Returns the NAS messages in an NGAP PDU.
fn nas_of(pdu: &[u8]) -> Vec<Vec<u8>> {
    let pdu = NGAP_PDU::decode(pdu).expect("what is sent decodes");
    let mut out: Vec<Vec<u8>> = pdu.ie::<ie::NAS_PDU>().into_iter().flatten().map(|nas| nas.0.to_vec()).collect();
    if let Some(Ok(list)) = pdu.ie::<ie::PDUSessionResourceSetupListSUReq>() {
        out.extend(list.0.into_iter().filter_map(|item| item.pdu_session_nas_pdu).map(|nas| nas.0.to_vec()));
    }
    if let Some(Ok(list)) = pdu.ie::<ie::PDUSessionResourceSetupListCxtReq>() {
        out.extend(list.0.into_iter().filter_map(|item| item.nas_pdu).map(|nas| nas.0.to_vec()));
    }
    out
}

fn initial_ue_message(nas: Vec<u8>) -> Vec<u8> {
    let network = helpers::plmn("999", "70").expect("a PLMN");
    let cell = helpers::nr_cgi(network, 0x102, 24, 3).expect("a cell");
    let location = UserLocationInformationNR::new(cell, helpers::tai(network, [0, 0, 1]), None, None);
    let pdu = build_ngap!(
        InitiatingMessage,
        InitialUEMessage,
        InitialUEMessage,
        RAN_UE_NGAP_ID(RAN_ID),
        NAS_PDU(nas),
        UserLocationInformation(UserLocationInformation::userLocationInformationNR(location)),
        RRCEstablishmentCause(RRCEstablishmentCause::mo_Signalling)
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}
