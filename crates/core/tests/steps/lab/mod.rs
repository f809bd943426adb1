//! Test network: steps of the core against the emulator's gNBs and UE.
//!
//! The subscriber service and the UPF respond at once, and the test moves the clock. There is no
//! I/O.

pub(crate) mod nas;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use vireo_core::amf::access;
use vireo_core::amf::context::{self, UeContext};
use vireo_core::amf::engine::{self, Event};
use vireo_core::amf::n2::{self, Route, UeMessage};
use vireo_core::amf::ran::{self, RanNode};
use vireo_core::config::*;
use vireo_core::schedule::kind::procedure_in_progress;
use vireo_core::step::{Effect, Note};
use vireo_core::subscription::*;
use vireo_core::{Env, Identifiers, RanNodes};
use vireo_emulator::gnb::{self, Gnb, GnbConfig, Inbox, Outbox};
use vireo_emulator::ue::{self, Profile, Ue, UeOutput};
use vireo_emulator::usim::{Keys, Usim};
use vireo_types::*;
use vireo_wire::eap::TransformedKeys;
use vireo_wire::ngap::{Cause, CauseRadioNetwork, NGAP_PDU, NgapPduKind, RRCEstablishmentCause};
use vireo_wire::pfcp::{self, Element};
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{derive_kausf, derive_kseaf};

const KEYS: Keys = Keys {
    k: [0x46, 0x5b, 0x5c, 0xe8, 0xb1, 0x99, 0xb4, 0x9f, 0xaa, 0x5f, 0x0a, 0x2e, 0xe2, 0x38, 0xa6, 0xbc],
    opc: [0xe8, 0xed, 0x28, 0x9d, 0xeb, 0xa9, 0x52, 0xe4, 0x28, 0x3b, 0x54, 0xe8, 0x8e, 0x61, 0x83, 0xca],
};
pub(crate) const ASSOC: AssocId = AssocId(7);
/// Association of the only eNB.
pub(crate) const ENB: AssocId = ASSOC.with_dialect(Dialect::Eps);
const OWNER: u32 = 1;
/// TEID that UPFs allocate for forwarded downlink packets; the next one is for uplink packets.
pub(crate) const FORWARDING_TEID: u32 = 0x300;
pub(crate) const SLICE: Snssai = Snssai { sst: 1, sd: None };

/// Returns the context after a round trip through the JSON form of databases. `derives_keys` and
/// `agreed_at` are stored separately there, and the dialect of the sessions is that of the context;
/// any other skipped field must be added here.
fn through_json(ue: &UeContext) -> UeContext {
    let text = serde_json::to_string(ue).expect("it is written");
    let mut there: UeContext = serde_json::from_str(&text).expect("it is read");
    let dialect = there.session_dialect();
    there.sessions.iter_mut().for_each(|session| session.dialect = dialect);
    if let (Some(there), Some(keys)) = (&mut there.security, &ue.security) {
        (there.derives_keys, there.agreed_at) = (keys.derives_keys, keys.agreed_at);
    }
    there
}

fn config() -> CoreConfig {
    CoreConfig { tacs: vec![Tac(1), Tac(2)], upfs: vec![upf(8)], ..CoreConfig::lab() }
}

/// Returns the UPF at 127.0.0.`n`.
pub(crate) fn upf(n: u8) -> UpfConfig {
    let n4 = SocketAddr::from(([127, 0, 0, n], 8805));
    UpfConfig { name: format!("upf-{n}"), n4, dnns: Vec::new(), n3_ipv6: false }
}

/// Allocator of consecutive identifiers. The home slice's LTMSIs have bucket 2.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    next: u32,
    pub(crate) address_pool_empty: bool,
}

impl Identifiers for Ids {
    fn tmsi(&mut self, _: Ltmsi) -> Option<Tmsi> {
        self.next += 1;
        Some(Tmsi(0xc000_0000 + self.next))
    }

    fn rekey(&mut self, current: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        (current.bucket().get() != 2).then(|| {
            self.next += 1;
            Ltmsi::new(Bucket::new(2), self.next as u16)
        })
    }

    fn address(&mut self, _: &Dnn, _: PduSessionType) -> Option<SessionAddress> {
        self.next += 1;
        let ipv4 = Some(Ipv4Addr::new(10, 45, 0, self.next as u8));
        (!self.address_pool_empty).then_some(SessionAddress { ipv4, ipv6_prefix: None })
    }
}

/// RAN nodes that the core knows.
#[derive(Default)]
pub(crate) struct Nodes(pub(crate) Vec<(AssocId, Option<RanNode>)>);

impl RanNodes for Nodes {
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId> {
        let serves = |n: &RanNode| n.areas.iter().any(|a| areas.contains(&a.tai));
        self.0.iter().filter(|(_, n)| n.as_ref().is_some_and(serves)).map(|(assoc, _)| *assoc).collect()
    }

    fn find(&self, id: RanNodeId) -> Option<AssocId> {
        self.0.iter().find(|(_, n)| n.as_ref().is_some_and(|n| n.id == id)).map(|(assoc, _)| *assoc)
    }

    fn slices(&self, node: AssocId, tai: Tai) -> Option<Vec<Snssai>> {
        let (_, node) = self.0.iter().find(|(assoc, _)| *assoc == node)?;
        node.as_ref()?.slices(tai).map(<[Snssai]>::to_vec)
    }

    fn misses(&self, tai: Tai, slices: &[Snssai]) -> bool {
        let nodes = self.0.iter().filter(|(assoc, _)| assoc.dialect() == Dialect::Nr);
        ran::area_lacks(nodes.filter_map(|(_, node)| node.as_ref()?.slices(tai)), slices)
    }

    fn is_ng_enb(&self, node: AssocId) -> bool {
        let is_it = |node: &RanNode| matches!(node.id, RanNodeId::NgEnb(_));
        self.0.iter().any(|(assoc, other)| *assoc == node && other.as_ref().is_some_and(is_it))
    }
}

/// Recorded event of a context.
#[derive(Clone, Debug)]
pub(crate) enum RecordedEvent {
    Initial { assoc: AssocId, message: n2::InitialUeMessage },
    Ngap { assoc: AssocId, amf_id: AmfUeNgapId, pdu: Vec<u8> },
    Authentication(Box<Result<AuthenticationVector, AuthenticationError>>),
    Pfcp { seid: Seid, message: Vec<u8> },
}

impl RecordedEvent {
    fn from_event(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            Event::Initial { assoc, message } => RecordedEvent::Initial { assoc: *assoc, message: message.clone() },
            Event::Ngap { assoc, amf_id, pdu } => {
                RecordedEvent::Ngap { assoc: *assoc, amf_id: *amf_id, pdu: pdu.to_vec() }
            }
            Event::Authentication(answer) => RecordedEvent::Authentication(Box::new(answer.clone())),
            Event::Pfcp { seid, message } => RecordedEvent::Pfcp { seid: *seid, message: message.to_vec() },
            _ => return None,
        })
    }

    pub(crate) fn event(&self) -> Event<'_> {
        match self {
            RecordedEvent::Initial { assoc, message } => Event::Initial { assoc: *assoc, message: message.clone() },
            RecordedEvent::Ngap { assoc, amf_id, pdu } => Event::Ngap { assoc: *assoc, amf_id: *amf_id, pdu },
            RecordedEvent::Authentication(answer) => Event::Authentication((**answer).clone()),
            RecordedEvent::Pfcp { seid, message } => Event::Pfcp { seid: *seid, message },
        }
    }
}

/// Network of one UE and its gNBs.
pub(crate) struct Lab {
    pub(crate) config: CoreConfig,
    pub(crate) now: Instant,
    /// Time between the arrival of an event and its step, in microseconds.
    pub(crate) waits_us: u64,
    /// Value of every random byte.
    pub(crate) random: u8,
    pub(crate) ids: Ids,
    /// Context of the UE in its stored form; every step loads and stores it.
    stored: Option<Vec<u8>>,
    /// Earlier contexts of the UE that the core still stores.
    pub(crate) old_contexts: Vec<UeContext>,
    pub(crate) nodes: Nodes,
    /// gNBs; gNB `n` has association `ASSOC + n` and tracking area 1 + `n`.
    pub(crate) gnbs: Vec<Gnb>,
    /// Index of the gNB of the UE.
    pub(crate) at: usize,
    pub(crate) ue: Ue,
    pub(crate) profile: Profile,
    pub(crate) ran: Option<RanUeNgapId>,
    sqn: u64,
    /// K and OPc in the subscriber's record.
    pub(crate) home_keys: Keys,
    pub(crate) subscription: Subscription,
    /// Authentication method of the subscriber.
    pub(crate) method: AuthenticationMethod,
    /// Next response of the subscriber service, if it is to be an error.
    pub(crate) subscriber_error: Option<AuthenticationError>,
    pub(crate) upf_answers: bool,
    /// PFCP requests without a response so far.
    unanswered: Vec<(Vec<u8>, SocketAddr, SessionIndex)>,
    /// True if new UEs are rejected for congestion.
    pub(crate) congested: bool,
    /// True if the UE and its gNB receive messages.
    pub(crate) reachable: bool,
    /// True if the UE arrives at the target of a handover.
    pub(crate) arrives: bool,
    /// True if the UE responds to paging.
    pub(crate) answers_paging: bool,
    pub(crate) events: Vec<ue::Event>,
    pub(crate) gnb_events: Vec<gnb::Event>,
    pub(crate) notes: Vec<Note>,
    pub(crate) effects: Vec<Effect>,
    /// S1AP PDUs sent to eNBs.
    pub(crate) to_enb: Vec<Vec<u8>>,
    /// NGAP PDUs to gNBs that are in transit.
    downlink: VecDeque<(usize, Vec<u8>)>,
    /// All NGAP PDUs sent to gNBs.
    pub(crate) sent: Vec<Vec<u8>>,
    /// All events, with the context before each.
    pub(crate) history: Vec<(UeContext, RecordedEvent)>,
    /// All NGAP PDUs sent by gNBs.
    pub(crate) received: Vec<Vec<u8>>,
    /// Kind of NGAP PDU from gNBs that is withheld from the core.
    pub(crate) slow: Option<NgapPduKind>,
    /// Withheld PDUs, with the index of their gNB.
    pub(crate) late: Vec<(usize, Vec<u8>)>,
    /// All PFCP messages sent to the UPF.
    pub(crate) pfcp: Vec<Vec<u8>>,
}

impl Lab {
    /// Returns a network whose gNBs have completed NG Setup.
    pub(crate) fn new() -> Self {
        let plmn: Plmn = "99970".parse().expect("a PLMN");
        let gnb = |n: u32| GnbConfig {
            id: GnbId { plmn, id: 1 + n, bits: 24 }.into(),
            name: format!("gnb-{n}"),
            tai: Tai { plmn, tac: Tac(1 + n) },
            slices: vec![SLICE],
            n3: Ipv4Addr::new(127, 0, 0, 2 + n as u8).into(),
        };
        let supi = "999700000000001".parse().expect("a SUPI");
        let slice = SliceSubscription { snssai: SLICE, default: true, dnns: vec![DnnSubscription::default()] };
        let mut lab = Lab {
            config: config(),
            now: Instant(1_000_000_000),
            waits_us: 0,
            random: 0x5a,
            ids: Ids::default(),
            stored: None,
            old_contexts: Vec::new(),
            nodes: Nodes((0..2).map(|n| (AssocId(ASSOC.0 + n), None)).collect()),
            gnbs: (0..2).map(|n| Gnb::new(gnb(n))).collect(),
            at: 0,
            ue: Ue::new(Usim::new(supi, KEYS)),
            profile: Profile::new(plmn, SLICE, "internet".parse().expect("a DNN")),
            ran: None,
            sqn: 32,
            home_keys: KEYS,
            subscription: Subscription { slices: vec![slice], ..Subscription::default() },
            method: AuthenticationMethod::default(),
            subscriber_error: None,
            upf_answers: true,
            unanswered: Vec::new(),
            congested: false,
            reachable: true,
            answers_paging: true,
            arrives: true,
            events: Vec::new(),
            gnb_events: Vec::new(),
            notes: Vec::new(),
            effects: Vec::new(),
            to_enb: Vec::new(),
            downlink: VecDeque::new(),
            sent: Vec::new(),
            received: Vec::new(),
            slow: None,
            late: Vec::new(),
            history: Vec::new(),
            pfcp: Vec::new(),
        };
        for n in 0..lab.gnbs.len() {
            let mut out = Outbox::default();
            lab.gnbs[n].set_up(4, &mut out).expect("NG SETUP REQUEST");
            lab.bring_to_core(n, &out);
            lab.settle();
            assert_eq!(lab.gnbs[n].state(), gnb::NgState::Up);
        }
        lab
    }

    /// Returns the UE's context.
    pub(crate) fn context(&self) -> Option<UeContext> {
        self.stored.as_ref().map(|octets| context::decode(octets).expect("it decodes"))
    }

    /// Returns the UE's context in its stored form.
    pub(crate) fn octets(&self) -> &[u8] {
        self.stored.as_deref().expect("a context")
    }

    /// Changes the stored context without a step.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut UeContext)) {
        let mut context = self.context().expect("a context");
        change(&mut context);
        self.stored = Some(context::encode(&context, Vec::new()).expect("it encodes"));
    }

    /// Sends the UE's messages, the first one in an Initial UE Message if it is not connected, and
    /// delivers all responses.
    pub(crate) fn ue_does(&mut self, act: impl FnOnce(&mut Ue, &Profile, &mut UeOutput)) {
        let mut out = UeOutput::default();
        act(&mut self.ue, &self.profile, &mut out);
        self.uplink(out);
        self.settle();
    }

    /// Resets the UE to its USIM; its connection stays.
    pub(crate) fn forget_ue(&mut self) {
        let supi = "999700000000001".parse().expect("a SUPI");
        self.ue = Ue::new(Usim::new(supi, KEYS));
    }

    /// Sends a NAS message in place of the UE.
    pub(crate) fn inject(&mut self, nas: &[u8]) {
        self.uplink_nas(nas);
        self.settle();
    }

    /// As [`Lab::inject`]; only the next `left` messages reach the UE.
    pub(crate) fn inject_until(&mut self, nas: &[u8], left: &mut u32) {
        self.uplink_nas(nas);
        while let Some((n, pdu)) = self.downlink.pop_front() {
            if *left == 0 {
                self.reachable = false;
            }
            if self.reachable {
                *left -= 1;
                self.bring_to_gnb(n, &pdu);
            }
        }
    }

    /// Ends the connection of UE and gNB without informing the core.
    pub(crate) fn forget_connection(&mut self) {
        self.ran = None;
    }

    /// Runs an action of the UE's gNB.
    pub(crate) fn gnb_does(&mut self, act: impl FnOnce(&mut Gnb, RanUeNgapId, &mut Outbox)) {
        let mut out = Outbox::default();
        act(&mut self.gnbs[self.at], self.ran.expect("a connection"), &mut out);
        self.bring_to_core(self.at, &out);
        self.settle();
    }

    /// Registers the UE, and asserts success.
    pub(crate) fn register(&mut self) {
        self.ue_does(|ue, p, out| ue.register(p, ue::Registration::Initial, out).expect("a request"));
        assert_eq!(self.ue.mm(), ue::MmState::Registered, "{:?} {:?}", self.events, self.notes);
    }

    /// Establishes a session, and asserts success.
    pub(crate) fn session(&mut self, psi: u8) {
        self.ue_does(|ue, p, out| ue.establish(p, psi, PduSessionType::Ipv4, out).expect("a request"));
        assert!(self.ue.active_sessions().any(|s| s == psi), "{:?} {:?}", self.events, self.notes);
    }

    /// Has the gNB release the UE for inactivity.
    pub(crate) fn idle(&mut self) {
        let cause = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
        self.gnb_does(|gnb, ran, out| gnb.request_release(ran, cause, out).expect("a request"));
        assert!(self.ran.is_none(), "the connection is gone");
    }

    /// Advances the clock, running each deadline on the way.
    pub(crate) fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(deadline) = self.context().and_then(|c| c.deadline()).filter(|d| *d <= end) {
            self.now = deadline.max(self.now);
            self.event(Event::Deadline);
            self.settle();
        }
        self.now = end;
    }

    /// Runs one event of the UE's context.
    pub(crate) fn event(&mut self, event: Event<'_>) {
        let Some(mut ue) = self.context() else { return };
        self.step(&mut ue, event);
    }

    /// Runs one step of a context without storing the result.
    pub(crate) fn try_step(&mut self, ue: &mut UeContext, event: Event<'_>) -> vireo_core::step::StepOutput {
        let fill = self.random;
        let mut random = |octets: &mut [u8]| octets.fill(fill);
        let mut env = Env {
            now: self.now,
            arrived: Instant(self.now.0 - self.waits_us),
            config: &self.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &self.nodes,
        };
        engine::step(ue, event, &mut env)
    }

    fn step(&mut self, ue: &mut UeContext, event: Event<'_>) {
        self.history.extend(RecordedEvent::from_event(&event).map(|event| (ue.clone(), event)));
        let outcome = self.try_step(ue, event);
        let forgotten = outcome.effects.contains(&Effect::DeleteContext);
        let mut octets = Vec::new();
        let before = self.stored.as_deref().unwrap_or_default();
        context::encode_after(ue, before, &mut octets).expect("it encodes");
        assert_eq!(context::decode(&octets).as_ref(), Ok(&*ue), "a context is all in its stored form");
        assert_eq!(through_json(ue), *ue, "and in the one that an operator reads");
        if procedure_in_progress(ue).is_none() {
            assert_eq!(ue.deadline(), ue.reachability.expires, "nothing is under way, so nothing is waited for");
        }
        self.stored = (!forgotten).then_some(octets);
        self.notes.extend(outcome.notes);
        for effect in outcome.effects {
            self.effects.push(effect.clone());
            match effect {
                Effect::Ngap { assoc, pdu } if assoc.dialect() == Dialect::Eps => self.to_enb.push(pdu),
                Effect::Ngap { assoc, pdu } => {
                    self.sent.push(pdu.clone());
                    self.downlink.push_back(((assoc.0 - ASSOC.0) as usize, pdu));
                }
                Effect::ReleaseStale { assoc, amf_id, ran_id } => {
                    let pdu = n2::stale_release_command(amf_id, ran_id);
                    self.downlink.push_back(((assoc.0 - ASSOC.0) as usize, pdu));
                }
                Effect::Authenticate(request) => {
                    let answer = self.home(&request);
                    self.event(Event::Authentication(answer));
                }
                Effect::Pfcp { upf, message, session } => {
                    self.pfcp.push(message.clone());
                    if self.upf_answers {
                        self.upf(&message, upf, session);
                    } else {
                        self.unanswered.push((message, upf, session));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the number of NGAP PDUs in transit to gNBs.
    pub(crate) fn downlink_waits(&self) -> usize {
        self.downlink.len()
    }

    /// Delivers messages until none is in transit.
    pub(crate) fn settle(&mut self) {
        while let Some((n, pdu)) = self.downlink.pop_front() {
            if self.reachable {
                self.bring_to_gnb(n, &pdu);
            }
        }
    }

    fn bring_to_gnb(&mut self, n: usize, pdu: &[u8]) {
        let (mut inbox, mut out) = (Inbox::default(), Outbox::default());
        self.gnbs[n].receive(pdu, &mut inbox, &mut out).expect("the gNB answers");
        self.bring_to_core(n, &out);
        for event in std::mem::take(&mut inbox.events) {
            match &event {
                gnb::Event::Nas { range, .. } => {
                    let mut out = UeOutput::default();
                    self.ue.receive(&self.profile, &inbox.nas[range.clone()], &mut out);
                    self.uplink(out);
                }
                // Ignores the release of an earlier connection of the UE.
                gnb::Event::Released { .. }
                    if n == self.at && self.ran.is_none_or(|ran| self.gnbs[n].owner(ran).is_none()) =>
                {
                    self.ran = None;
                    self.ue.connection_released();
                }
                gnb::Event::PathSwitched { key, renewed: true, .. } | gnb::Event::ContextSetup { key, .. } => {
                    let mut out = UeOutput::default();
                    self.ue.check_access_key(key, &mut out);
                    self.uplink(out);
                }
                gnb::Event::PathSwitched { key, chaining, .. }
                | gnb::Event::HandoverPrepared { key, chaining, mapped: false, .. } => {
                    let mut out = UeOutput::default();
                    self.ue.check_next_hop(key, *chaining, &mut out);
                    self.uplink(out);
                }
                gnb::Event::HandoverCommand { target, nas, .. } if self.arrives && nas.is_empty() => {
                    let mut out = Outbox::default();
                    (self.at, self.ran) = (1 - n, Some(*target));
                    self.gnbs[self.at].notify(*target, &mut out).expect("a message");
                    self.bring_to_core(self.at, &out);
                }
                gnb::Event::Paging(tmsi) if n == self.at && self.answers_paging_for(*tmsi) => {
                    let mut out = UeOutput::default();
                    self.ue.service_request(ue::Service::Paged, &mut out).expect("a request");
                    self.uplink(out);
                }
                _ => {}
            }
            self.gnb_events.push(event);
        }
    }

    /// Returns true if the UE is idle and responds to paging with this 5G-TMSI.
    fn answers_paging_for(&self, tmsi: Tmsi) -> bool {
        let named = self.ue.guti().is_some_and(|guti| guti.tmsi == tmsi);
        named && self.answers_paging && self.ran.is_none() && self.ue.mm() == ue::MmState::Registered
    }

    fn uplink(&mut self, mut out: UeOutput) {
        let events = std::mem::take(&mut out.events);
        let violation = events.iter().find(|e| matches!(e, ue::Event::Violation(_)));
        assert_eq!(violation, None, "the network kept to the specification");
        self.events.extend(events);
        let messages: Vec<_> = out.messages().map(<[u8]>::to_vec).collect();
        for nas in messages {
            self.uplink_nas(&nas);
        }
    }

    fn uplink_nas(&mut self, nas: &[u8]) {
        let mut out = Outbox::default();
        match self.ran {
            Some(ran) => self.gnbs[self.at].uplink_nas(ran, nas, &mut out).expect("a message"),
            None => {
                let cause = RRCEstablishmentCause::mo_Signalling;
                let guti = self.ue.guti();
                self.ran = Some(self.gnbs[self.at].initial_ue(OWNER, nas, guti, cause, &mut out).expect("a message"));
            }
        }
        self.bring_to_core(self.at, &out);
    }

    pub(crate) fn bring_to_core(&mut self, n: usize, out: &Outbox) {
        let pdus: Vec<_> = out.pdus().map(|(_, pdu)| pdu.to_vec()).collect();
        for pdu in pdus {
            match &self.slow {
                Some(slow) if NGAP_PDU::decode_borrowed(&pdu).is_ok_and(|pdu| pdu.kind() == *slow) => {
                    self.late.push((n, pdu));
                }
                _ => self.take_from_gnb(n, &pdu),
            }
        }
    }

    /// Processes a PDU from gNB `n` as the balancer and the host do.
    pub(crate) fn take_from_gnb(&mut self, n: usize, pdu: &[u8]) {
        self.received.push(pdu.to_vec());
        let assoc = AssocId(ASSOC.0 + n as u32);
        match n2::route(pdu).expect("a sound PDU") {
            Route::Node => {
                let outcome = ran::step(&mut self.nodes.0[n].1, pdu, &self.config);
                self.downlink.extend(outcome.answer.map(|pdu| (n, pdu)));
                if let Some(ran::RanStepRequest::Reset(_)) = outcome.request {
                    self.event(Event::ConnectionLost { assoc });
                }
            }
            Route::Ue(amf_id) => self.event(Event::Ngap { assoc, amf_id, pdu }),
            Route::Initial { .. } => self.initial(assoc, pdu),
        }
    }

    /// Processes the first message of a connection as that of the known UE, whatever its identity.
    pub(crate) fn as_known(&mut self, n: usize, pdu: &[u8]) {
        let Ok((_, UeMessage::Initial(message))) = n2::ue_message(pdu) else { panic!("an Initial UE Message") };
        self.event(Event::Initial { assoc: AssocId(ASSOC.0 + n as u32), message });
    }

    /// Has the eNB set up S1.
    pub(crate) fn set_up_enb(&mut self, request: &[u8]) {
        let mut node = None;
        ran::step_of(ENB, &mut node, request, &self.config);
        assert!(node.is_some(), "it is accepted");
        self.nodes.0.push((ENB, node));
    }

    /// Processes a UE-associated PDU of the eNB as the balancer and the host do.
    pub(crate) fn take_from_enb(&mut self, pdu: &[u8]) {
        match access::route(Dialect::Eps, pdu).expect("a sound PDU") {
            Route::Node => panic!("a PDU about a UE"),
            Route::Ue(amf_id) => self.event(Event::Ngap { assoc: ENB, amf_id, pdu }),
            Route::Initial { .. } => self.initial(ENB, pdu),
        }
        self.settle();
    }

    fn initial(&mut self, assoc: AssocId, pdu: &[u8]) {
        let Ok((_, UeMessage::Initial(message))) = access::ue_message(assoc.dialect(), pdu) else {
            panic!("an Initial UE Message")
        };
        let identity = match assoc.dialect() {
            Dialect::Nr => n2::NasIdentity::peek(&message.nas),
            Dialect::Eps => n2::NasIdentity::peek_emm(&message.nas),
        };
        let named = identity.and_then(|identity| identity.tmsi_of(&self.config));
        let known = self.context().filter(|c| {
            let tmsis = [c.identity.tmsi, c.identity.old_tmsi];
            named.is_some() && tmsis.contains(&named) && engine::is_authentic(c, &message.nas)
        });
        let mut ue = known.unwrap_or_else(|| {
            self.old_contexts.extend(self.context());
            self.ids.next += 1;
            UeContext::new(Ltmsi::new(Bucket::new(1), self.ids.next as u16))
        });
        let event = match self.congested {
            true => Event::Congested { assoc, message },
            false => Event::Initial { assoc, message },
        };
        self.step(&mut ue, event);
    }

    fn home(&mut self, request: &AuthenticationRequest) -> Result<AuthenticationVector, AuthenticationError> {
        if let Some(error) = self.subscriber_error.take() {
            return Err(error);
        }
        let milenage = Milenage::new(&K::new(&self.home_keys.k), &Opc::new(&self.home_keys.opc));
        if let Some(resync) = &request.resync {
            let auts = Auts::new(&resync.auts);
            let sqn = milenage.verify_auts(&Rand::new(&resync.rand), &auts);
            self.sqn = sqn.map_err(|_| AuthenticationError::BadAuts)?.get();
        }
        self.sqn += 32;
        let rand = [self.sqn as u8; 16];
        let network = request.serving_network.serving_network_name();
        let sqn = Sqn::try_from(self.sqn).expect("48 bits");
        let vector = milenage.authentication_vector(&Rand::new(&rand), &sqn, &Amf::new(&[0x80, 0]));
        let (supi, autn) = (self.ue.usim().supi(), *vector.autn().as_octets());
        let subscription = self.subscription.clone();
        if self.method == AuthenticationMethod::EapAkaPrime {
            let keys = TransformedKeys::derive(vector.ck(), vector.ik(), network.as_bytes(), vector.autn());
            let keys = keys.expect("keys");
            return Ok(AuthenticationVector::EapAkaPrime(TransformedVector {
                supi,
                serving_network: request.serving_network,
                rand,
                autn,
                xres: *vector.xres().as_octets(),
                ck_prime: *keys.ck(),
                ik_prime: *keys.ik(),
                subscription,
            }));
        }
        let kausf = derive_kausf(vector.ck(), vector.ik(), network.as_bytes(), vector.autn()).expect("a key");
        let xres_star = *vector.xres_star(network.as_bytes()).expect("XRES*").as_octets();
        let kseaf = *derive_kseaf(&kausf, network.as_bytes()).expect("a key").as_octets();
        Ok(AuthenticationInfo { supi, rand, autn, xres_star, kseaf, subscription }.into())
    }

    /// Has the UPF respond to all pending requests.
    pub(crate) fn upf_catches_up(&mut self) {
        self.upf_answers = true;
        for (message, upf, session) in std::mem::take(&mut self.unanswered) {
            self.upf(&message, upf, session);
        }
        self.settle();
    }

    /// Moves the UE to the other gNB by Xn; `accept` selects the sessions that this gNB sets up.
    pub(crate) fn xn(&mut self, capability: (u8, u8), accept: impl Fn(u8) -> bool) {
        let (from, to) = (self.at, 1 - self.at);
        let ran = self.ran.expect("a connection");
        let handed = self.gnbs[from].handover_context(ran, capability).expect("a UE");
        self.gnbs[from].forget(ran);
        let mut out = Outbox::default();
        self.ran = Some(self.gnbs[to].path_switch(handed, accept, &mut out).expect("a request"));
        self.at = to;
        self.bring_to_core(to, &out);
        self.settle();
    }

    /// Has the UE's gNB request a handover to the node with this number, or to a gNB that does not
    /// exist.
    pub(crate) fn n2(&mut self, target: u32) {
        let known = self.gnbs.iter().map(|gnb| gnb.config().id).find(|id| id.value() == target);
        let plmn = self.gnbs[0].config().id.plmn();
        let id = known.unwrap_or_else(|| GnbId { plmn, id: target, bits: 24 }.into());
        let area = self.gnbs[1 - self.at].config().tai;
        self.gnb_does(|gnb, ran, out| gnb.require_handover(ran, id, area, out).expect("a request"));
    }

    /// Has the UPF refuse the requests without a response so far.
    pub(crate) fn upf_refuses(&mut self) {
        for (request, upf, session) in std::mem::take(&mut self.unanswered) {
            let found = self.context().and_then(|c| c.sessions.into_iter().find(|s| s.index == session));
            let seid = found.expect("a session").seid_at(upf);
            let accepted = upf_answer(&request, upf, seid).expect("a request");
            let kind = pfcp::Message::new(&accepted).expect("a message").message_type();
            let mut octets = Vec::new();
            let mut answer = pfcp::Builder::new(&mut octets, kind, Some(seid.0), 0);
            answer.put(&pfcp::Cause::NO_RESOURCES);
            answer.finish().expect("a short message");
            self.event(Event::Pfcp { seid, message: &octets });
        }
        self.settle();
    }

    /// Has the UE arrive at the target of HANDOVER COMMAND.
    pub(crate) fn arrive(&mut self) {
        let target = |event: &gnb::Event| match event {
            gnb::Event::HandoverCommand { target, .. } => Some(*target),
            _ => None,
        };
        let target = self.gnb_events.iter().rev().find_map(target).expect("a command");
        let mut out = Outbox::default();
        (self.at, self.ran) = (1 - self.at, Some(target));
        self.gnbs[self.at].notify(target, &mut out).expect("a message");
        self.bring_to_core(self.at, &out);
        self.settle();
    }

    /// Runs a UPF that executes the request.
    fn upf(&mut self, request: &[u8], upf: SocketAddr, session: SessionIndex) {
        let seid = self.context().and_then(|c| c.sessions.iter().find(|s| s.index == session).map(|s| s.seid_at(upf)));
        if let Some(seid) = seid
            && let Some(octets) = upf_answer(request, upf, seid)
        {
            self.event(Event::Pfcp { seid, message: &octets });
        }
    }
}

/// Encodes a Session Report Request of this kind for a session.
pub(crate) fn pfcp_report(seid: Seid, kind: pfcp::ReportType, with: impl FnOnce(&mut pfcp::Builder<'_>)) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut report = pfcp::Builder::new(&mut octets, pfcp::MessageType::SESSION_REPORT_REQUEST, Some(seid.0), 7);
    with(report.put(&kind));
    report.finish().expect("a short message");
    octets
}

/// Returns the response of a UPF that executes the request, for the session with this SEID.
pub(crate) fn upf_answer(request: &[u8], upf: SocketAddr, seid: Seid) -> Option<Vec<u8>> {
    let message = pfcp::Message::new(request).expect("a PFCP message");
    let kind = match message.message_type() {
        pfcp::MessageType::SESSION_ESTABLISHMENT_REQUEST => pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE,
        pfcp::MessageType::SESSION_MODIFICATION_REQUEST => pfcp::MessageType::SESSION_MODIFICATION_RESPONSE,
        pfcp::MessageType::SESSION_DELETION_REQUEST => pfcp::MessageType::SESSION_DELETION_RESPONSE,
        _ => return None,
    };
    let mut octets = Vec::new();
    let mut answer = pfcp::Builder::new(&mut octets, kind, Some(seid.0), 0);
    let std::net::IpAddr::V4(address) = upf.ip() else { return None };
    answer.put(&pfcp::NodeId::Ipv4(address)).put(&pfcp::Cause::REQUEST_ACCEPTED);
    if kind == pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE {
        answer.put(&pfcp::FSeid::new(99, address.into()));
        answer.group(pfcp::CreatedPdr::ID, |pdr| {
            let teid = Teid(0x100 + u32::from(address.octets()[3]) - 8);
            pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(teid, address.into()));
        });
    }
    // PDRs in a modification are for forwarded packets.
    for created in message.ies().map_while(Result::ok).filter(|ie| ie.id == pfcp::CreatePdr::ID) {
        let id = created.ies().map_while(Result::ok).find(|ie| ie.id == pfcp::PdrId::ID);
        let id = id.expect("an ID").read::<pfcp::PdrId>().expect("an ID");
        if kind == pfcp::MessageType::SESSION_MODIFICATION_RESPONSE {
            let teid = Teid(FORWARDING_TEID + u32::from(id == pfcp::PdrId(4)));
            answer.group(pfcp::CreatedPdr::ID, |pdr| {
                pdr.put(&id).put(&pfcp::FTeid::new(teid, address.into()));
            });
        }
    }
    answer.finish().expect("a short message");
    Some(octets)
}

/// Encodes UPLINK NAS TRANSPORT with any identifiers.
pub(crate) fn uplink_nas(amf_id: AmfUeNgapId, ran_id: RanUeNgapId, nas: &[u8]) -> Vec<u8> {
    use vireo_wire::ngap::*;
    let pdu = build_ngap!(
        InitiatingMessage,
        UplinkNASTransport,
        UplinkNASTransport,
        AMF_UE_NGAP_ID(amf_id.get()),
        RAN_UE_NGAP_ID(ran_id.0),
        NAS_PDU(nas.to_vec()),
    );
    pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
}

/// Returns networks with a registered UE with one session, idle and connected, and with a UE during
/// registration. The clock is in 2026, so that times have as many octets as in a running core.
pub(crate) fn in_each_state() -> [(&'static str, Lab); 3] {
    ["idle", "connected", "registering"].map(|state| (state, in_state(state, SliceProfile::Full)))
}

/// Returns one of these networks, with a slice of this profile.
pub(crate) fn in_state(state: &str, profile: SliceProfile) -> Lab {
    let mut lab = Lab::new();
    lab.config.slices[0].profile = profile;
    lab.now = Instant(1_795_000_000_000_000);
    // The first connection has generation 1, as in the stored contexts of layout 4.
    let random = std::mem::take(&mut lab.random);
    if state == "registering" {
        lab.reachable = false;
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Initial, out).expect("a request"));
        assert!(lab.context().is_some_and(|c| c.procedure.is_some()));
        return lab;
    }
    lab.register();
    lab.random = random;
    lab.session(1);
    if state == "idle" {
        lab.idle();
    }
    lab
}
