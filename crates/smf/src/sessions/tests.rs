//! Tests of the sessions, with the test as AMF and UPF: no sockets, no clock.

mod compatibility;
mod costs;
mod format;
mod handover;
mod implied;
mod late;
mod lost;
mod memory;
mod piggyback;
mod reports;
mod shared;
mod shared_memory;

use super::*;
use crate::recovery;
use memory::Memory;
use rand::SeedableRng;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use vireo_core::config::{StateScope, UpfConfig};
use vireo_core::sba::{N1N2Content, PiggybackedSmContext};
use vireo_core::smf::{N2Sm, N4State};
use vireo_core::subscription::SliceSubscription;
use vireo_sbi::amf::N1N2MessageTransferReqData;
use vireo_sbi::common::{Guami, N2SmInfoType, PlmnId, RefToBinaryData};
use vireo_sbi::smf::{
    SM_CONTEXTS, SmContextCreateData, SmContextError, SmContextUpdateData, SmContextUpdatedData, UpCnxState,
};
use vireo_sbi::{Message, PartContent};
use vireo_store::records::{Change, Encoded, Name, RecordStore, UpdateMode};
use vireo_types::{Plmn, Snssai, Tac, Teid};
use vireo_wire::ngap::*;
use vireo_wire::pfcp::Element;

const UPF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)), 8805);
const SUPI: &str = "imsi-999700000000001";
/// PDU Session Establishment Request: PSI 5, PTI 1, full integrity rate, IPv4.
const REQUEST: [u8; 7] = [0x2e, 5, 1, 0xc1, 0xff, 0xff, 0x91];

fn config() -> CoreConfig {
    let upf = UpfConfig { name: "upf".into(), n4: UPF, dnns: Vec::new(), n3_ipv6: false };
    let mut config = CoreConfig { upfs: vec![upf], ..CoreConfig::lab() };
    config.dnns[0].ipv4_pool = Some((Ipv4Addr::new(10, 45, 0, 0), 30));
    config
}

struct World {
    smf: Sessions,
    /// Records of SM contexts, if they are not in the SMF's memory.
    records: Option<Memory>,
    /// SM contexts that the AMF stores (piggyback).
    stored_at_amf: BTreeMap<Seid, PiggybackedSmContext>,
    /// AMF part of the UE record, if it is shared.
    amf: Option<shared::Amf>,
    /// Set if the AMF accepts transfers as responses.
    implied: Option<implied::ImpliedState>,
    storage_kind: SessionStorage,
    /// Number of events until the SMF is killed.
    fuse: Option<u32>,
    lives: u64,
    now: Instant,
    /// True if the UPF responds at once.
    upf_answers: bool,
    keys: u32,
    last_key: Option<String>,
    replies: Vec<Reply>,
    transfers: Vec<N1N2MessageTransferReqData>,
    notified: Vec<String>,
    pfcp: Vec<(Seid, Vec<u8>)>,
    /// Messages sent, by key.
    names: BTreeMap<(u64, u64), Vec<u8>>,
}

/// Maximum wait of a request for the database.
const PATIENCE: Duration = Duration::from_secs(4);

/// All storage variants of an SMF.
const PLACES: [fn() -> World; 18] = [
    World::new,
    World::here,
    World::stored,
    World::procedural,
    World::piggyback,
    || World::shared(Format::Binary),
    || World::shared(Format::Json),
    || World::shared_by_all(Format::Json),
    || World::kept_as(Format::Json, UpdateMode::Update),
    || World::kept_as(Format::Protobuf, UpdateMode::Update),
    || World::kept_as(Format::Protobuf, UpdateMode::Replace),
    || World::kept_as(Format::Json, UpdateMode::DeleteCreate),
    || World::kept_as(Format::Binary, UpdateMode::DeleteCreate),
    || World::new().implying(),
    || World::here().implying(),
    || World::procedural().implying(),
    || World::piggyback().implying(),
    || World::shared_by_all(Format::Json).implying(),
];

impl World {
    fn over(records: Option<Memory>, storage_kind: SessionStorage) -> Self {
        let mut world = World {
            smf: World::start(storage_kind, 1),
            records,
            stored_at_amf: BTreeMap::new(),
            amf: None,
            implied: None,
            storage_kind,
            fuse: None,
            lives: 1,
            now: Instant(1_000_000_000),
            upf_answers: true,
            keys: 0,
            last_key: None,
            replies: Vec::new(),
            transfers: Vec::new(),
            notified: Vec::new(),
            pfcp: Vec::new(),
            names: BTreeMap::new(),
        };
        world.have(Vec::new());
        world
    }

    fn new() -> Self {
        World::over(None, SessionStorage::Memory)
    }

    /// Returns a world with a database.
    fn stored() -> Self {
        World::kept_as(Format::Binary, UpdateMode::Replace)
    }

    /// Returns a world with a database in this format and update mode.
    fn kept_as(format: Format, update_mode: UpdateMode) -> Self {
        World::storing(StatePersist::Transaction, Codec { format, update_mode })
    }

    fn storing(persist: StatePersist, codec: Codec) -> Self {
        World::over(
            Some(Memory::new()),
            SessionStorage::Database(StorageConfig {
                persist,
                codec,
                scope: StateScope::Function,
                octets: codec.format,
                timeout: PATIENCE,
            }),
        )
    }

    /// Returns a world with a database and one commit per procedure.
    fn procedural() -> Self {
        World::storing(StatePersist::Procedure, Codec { format: Format::Json, update_mode: UpdateMode::Update })
    }

    /// Returns a world with piggybacked SM contexts.
    pub(super) fn piggyback() -> Self {
        World::over(None, SessionStorage::Amf(PATIENCE))
    }

    fn start(storage_kind: SessionStorage, life: u64) -> Sessions {
        Sessions::new(config(), "http://smf".into(), StdRng::seed_from_u64(life), storage_kind)
    }

    fn codec(&self) -> Codec {
        if let SessionStorage::Database(storing) = self.storage_kind { storing.codec } else { Codec::default() }
    }

    /// Kills the SMF and starts a new one.
    fn restart(&mut self) {
        self.lives += 1;
        self.smf = World::start(self.storage_kind, self.lives);
        let (codec, scope) = (self.codec(), self.scope());
        let Some(records) = &mut self.records else {
            assert!(self.smf.piggybacks(), "its sessions are found again");
            return;
        };
        let before = recovery::load_previous(records, (codec, scope), 7).unwrap();
        before.sessions.iter().for_each(|stored| self.smf.restore(stored.ltmsi, &stored.session, self.now));
        self.have(before.sessions);
    }

    /// Kills the SMF at this event if the fuse ends. Unfinished work is lost.
    fn kill_if_due(&mut self) -> bool {
        let Some(fuse) = &mut self.fuse else { return false };
        *fuse = fuse.wrapping_sub(1);
        let dies = *fuse == u32::MAX;
        if dies {
            self.fuse = None;
            self.restart();
        }
        dies
    }

    /// Executes one database job. Returns true if there was one.
    fn work(&mut self) -> bool {
        let Some(job) = self.smf.jobs().and_then(VecDeque::pop_front) else { return false };
        if self.kill_if_due() {
            return true;
        }
        self.interferes();
        let records = self.records.as_ref().expect("it has jobs");
        let (ltmsi, done) = records.carry_out(self.codec(), job);
        if !self.kill_if_due() {
            self.smf.on_database_result(ltmsi, done, self.now);
        }
        true
    }

    /// Checks that all messages with one key are equal.
    fn named(&mut self, name: (u64, u64), octets: &[u8]) {
        let before = self.names.entry(name).or_insert_with(|| octets.to_vec());
        assert_eq!(before, octets, "two things of one name have left");
    }

    /// Executes all actions. The UPF responds to each request if `upf_answers`.
    fn act(&mut self) {
        loop {
            let actions = self.smf.take_actions();
            for action in actions {
                if self.kill_if_due() {
                    // The remaining actions are lost too.
                    break;
                }
                self.carry_out(action);
            }
            if !self.work() && self.smf.actions.is_empty() && !(self.upf_answers && self.upf_answers_one()) {
                return;
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Reply(_, mut reply) => {
                self.takes(&mut reply.message);
                if reply == (Reply { status: 200, ..Reply::default() }) {
                    reply.status = 204;
                }
                if !self.is_spared(&reply) {
                    self.replies.push(reply);
                }
            }
            Action::Pfcp { seid, message, upf, key } => {
                let answers = pfcp::Message::new(&message).unwrap().message_type().is_response();
                assert!(upf == UPF || answers, "{upf} is asked for something");
                self.named((0, key), &message);
                self.pfcp.push((seid, message));
            }
            Action::Transfer { mut message, supi, of, .. } => {
                self.takes(&mut message);
                assert_eq!(format!("imsi-{}", supi.reveal()), SUPI);
                self.named(
                    (of.seid.0, of.number.into()),
                    &message.parts.iter().flat_map(|part| part.octets.clone()).collect::<Vec<_>>(),
                );
                self.transfers.push(message.value().unwrap());
                self.takes_for_answer(of);
                // The AMF replies, unless the SMF dies before it receives the reply.
                if self.smf.piggybacks() && self.implied.is_none() && !of.calls && !self.kill_if_due() {
                    self.smf.on_transfer_result(of, N1N2TransferResult::Initiated, self.now);
                }
            }
            Action::Fetch { ltmsi, seid, of } => {
                assert_eq!(format!("imsi-{}", of.0.reveal()), SUPI);
                let left = self.stored_at_amf.get(&seid).cloned();
                let found = left.map(|PiggybackedSmContext { version, octets }| StoredRecord {
                    version,
                    octets,
                    ..StoredRecord::default()
                });
                self.smf.on_database_result(ltmsi, OperationResult::Loaded(Ok(found)), self.now);
            }
            Action::Notify { uri, seid, .. } => {
                self.notified.push(uri);
                self.stored_at_amf.remove(&seid);
                self.smf.on_notification_answer(seid, self.now);
            }
        }
    }

    /// Returns the SM context.
    fn session(&mut self) -> Session {
        let records = match (&self.smf.backend, &mut self.records) {
            (SessionBackend::Memory(sessions), _) => return (**sessions.values().next().expect("a session")).clone(),
            (SessionBackend::Database(stored), None) => {
                let held = stored.in_memory.values().next().map(|(session, _)| (**session).clone());
                let left = || self.stored_at_amf.values().next().and_then(|left| Session::decode(&left.octets));
                return held.unwrap_or_else(|| *left().expect("a session"));
            }
            (SessionBackend::Database(stored), Some(records)) => match stored.in_memory.values().next() {
                Some((session, _)) => return (**session).clone(),
                None => records,
            },
            (SessionBackend::Shm(_), records) => records.as_mut().expect("they are here"),
        };
        if self.amf.is_some() {
            return self.shared_sessions().pop().expect("a session");
        }
        let numbers = records.list_ids("smf").unwrap();
        let found = records.load(&[Name { collection: "smf", id: numbers[0] }]).unwrap().remove(0).unwrap();
        *Session::decode_stored(self.codec(), found).unwrap().0
    }

    /// Returns true if no SM context is left anywhere.
    fn is_empty(&mut self) -> bool {
        let stored = self.records.as_mut().map_or(0, |records| records.list_ids("smf").unwrap().len());
        let stored = stored + self.shared_sessions().len();
        let lanes = matches!(&self.smf.backend, SessionBackend::Database(stored) if !stored.lanes.is_empty() || !stored.in_memory.is_empty());
        self.stored_at_amf.len()
            + self.smf.len()
            + stored
            + self.smf.index.len()
            + self.smf.by_ue.len()
            + self.smf.due.len()
            == 0
            && !lanes
    }

    /// Answers the first request to the UPF.
    fn upf_answers_one(&mut self) -> bool {
        if self.pfcp.is_empty() {
            return false;
        }
        let (seid, request) = self.pfcp.remove(0);
        use pfcp::MessageType as Kind;
        let kind = match pfcp::Message::new(&request).unwrap().message_type() {
            Kind::SESSION_ESTABLISHMENT_REQUEST => Kind::SESSION_ESTABLISHMENT_RESPONSE,
            Kind::SESSION_MODIFICATION_REQUEST => Kind::SESSION_MODIFICATION_RESPONSE,
            Kind::SESSION_DELETION_REQUEST => Kind::SESSION_DELETION_RESPONSE,
            _ => return true,
        };
        if self.smf.piggybacks() && self.kill_if_due() {
            return true;
        }
        let mut octets = Vec::new();
        let mut answer = pfcp::Builder::new(&mut octets, kind, Some(seid.0), 0);
        let address = Ipv4Addr::new(127, 0, 0, 8);
        answer.put(&pfcp::NodeId::Ipv4(address)).put(&pfcp::Cause::REQUEST_ACCEPTED);
        if kind == Kind::SESSION_ESTABLISHMENT_RESPONSE {
            answer.put(&pfcp::FSeid::new(99, address.into()));
            answer.group(pfcp::CreatedPdr::ID, |pdr| {
                pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(Teid(0x100), address.into()));
            });
        }
        answer.finish().unwrap();
        self.upf_has(&request, kind, &mut octets);
        // A repeated response after the end matches no session.
        self.smf.pfcp((UPF, seid), &octets, self.now);
        true
    }

    /// Answers all requests to the UPF.
    fn upf(&mut self) {
        while self.upf_answers_one() {}
        self.act();
    }

    fn call(&mut self, path: &str, message: Message) {
        self.keys += 1;
        self.call_as(path, message, &format!("key-{}", self.keys));
    }

    fn call_as(&mut self, path: &str, message: Message, key: &str) {
        let message = self.with_left(path, message);
        let message = self.with_part(message);
        let message = self.with_wish((path, key), message);
        let key = Some(key.to_owned());
        let repeated = std::mem::replace(&mut self.last_key, key.clone()) == key;
        let call = IncomingRequest { path: path.to_owned(), message, key, repeated, reply: ReplyTo::disconnected() };
        let mut lookup = |supi: Supi| {
            let known = format!("imsi-{}", supi.reveal()) == SUPI;
            let slices = vec![SliceSubscription::default()];
            Ok(known.then_some(Subscription { slices, ..Subscription::default() }))
        };
        let before = self.replies.len();
        self.smf.call(call, self.now, &mut lookup);
        self.act();
        if let (Some(path), Some(reply)) = (path.strip_suffix("/release"), self.replies.get(before))
            && [204, 404].contains(&reply.status)
        {
            self.stored_at_amf.retain(|seid, _| !path.ends_with(&wire::reference(*seid)));
        }
    }

    /// Repeats a request until it is answered, as an AMF does.
    fn insist(&mut self, path: &str, message: &Message) -> Reply {
        self.keys += 1;
        let key = format!("key-{}", self.keys);
        let message = &self.with_left(path, message.clone());
        let message = &self.with_part(message.clone());
        for _ in 0..3 {
            let before = self.replies.len();
            self.call_as(path, message.clone(), &key);
            if self.replies.len() > before {
                return self.last().clone();
            }
        }
        panic!("no answer to {path}");
    }

    fn last(&self) -> &Reply {
        self.replies.last().expect("an answer")
    }

    /// Creates session 5. Returns the path of its SM context.
    fn create(&mut self) -> String {
        self.call(SM_CONTEXTS, create_message(&data()));
        assert_eq!(self.last().status, 201, "{:?}", self.last());
        let location = self.last().location.clone().expect("a name");
        location.strip_prefix("http://smf").expect("its own").to_owned()
    }

    fn update(&mut self, path: &str, data: &SmContextUpdateData, told: &N1N2Content) -> SmContextUpdatedData {
        let mut message = Message::new(data);
        if let Some(n1) = &told.n1 {
            message = message.with("n1", PartContent::Nas, n1.clone());
        }
        if let Some((_, n2)) = &told.n2 {
            message = message.with("n2", PartContent::Ngap, n2.clone());
        }
        let before = self.replies.len();
        self.call(&format!("{path}/modify"), message);
        match self.replies.get(before) {
            Some(reply) if reply.status == 200 => reply.message.value().unwrap(),
            _ => SmContextUpdatedData::default(),
        }
    }

    fn ran_up(&mut self, path: &str) -> SmContextUpdatedData {
        let data = SmContextUpdateData {
            n2_sm_info: Some(part("n2")),
            n2_sm_info_type: Some(N2SmInfoType::PduResSetupRsp),
            ..SmContextUpdateData::default()
        };
        self.update(path, &data, &N1N2Content { n1: None, n2: Some((N2Sm::SetupResponse, setup_response())) })
    }

    fn state(&mut self, path: &str, state: UpCnxState) -> SmContextUpdatedData {
        let data = SmContextUpdateData { up_cnx_state: Some(state), ..SmContextUpdateData::default() };
        self.update(path, &data, &N1N2Content::default())
    }

    /// Returns a session with an active user plane.
    fn active(&mut self) -> String {
        let path = self.create();
        self.ran_up(&path);
        assert_eq!(self.last().status, 204);
        path
    }

    /// Reports a downlink packet by the UPF.
    fn downlink_packet(&mut self, path: &str) {
        assert!(self.reported_by(UPF, path));
    }

    /// Reports a downlink packet by a UPF. Returns true if the report is accepted.
    fn reported_by(&mut self, upf: SocketAddr, path: &str) -> bool {
        let seid = wire::seid_of(path.rsplit('/').next().unwrap()).unwrap();
        let mut octets = Vec::new();
        let mut report = pfcp::Builder::new(&mut octets, pfcp::MessageType::SESSION_REPORT_REQUEST, Some(seid.0), 7);
        report.put(&pfcp::ReportType::DLDR).group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
        report.finish().unwrap();
        let taken = self.smf.pfcp((upf, seid), &octets, self.now);
        self.act();
        taken
    }

    fn transferred(&mut self, path: &str, result: N1N2TransferResult) {
        let seid = wire::seid_of(path.rsplit('/').next().unwrap()).unwrap();
        self.smf.on_transfer_result(TransferName { seid, number: 0, calls: true }, result, self.now);
        self.act();
    }
}

fn part(id: &str) -> RefToBinaryData {
    RefToBinaryData { content_id: id.into() }
}

fn data() -> SmContextCreateData {
    let plmn: Plmn = "99970".parse().unwrap();
    let plmn = PlmnId::from(plmn);
    SmContextCreateData {
        supi: SUPI.into(),
        pei: None,
        pdu_session_id: 5,
        dnn: "internet".into(),
        s_nssai: Snssai { sst: 1, sd: None }.into(),
        serving_nf_id: "x".into(),
        guami: Guami { plmn_id: plmn.clone(), amf_id: "020040".into() },
        serving_network: plmn,
        request_type: None,
        n1_sm_msg: Some(part("n1")),
        an_type: "3GPP_ACCESS".into(),
        rat_type: None,
        ue_location: None,
        sm_context_status_uri: "http://amf/status/0".into(),
        vireo_piggyback: None,
        vireo_implied: None,
    }
}

fn create_message(data: &SmContextCreateData) -> Message {
    Message::new(data).with("n1", PartContent::Nas, REQUEST.to_vec())
}

fn setup_response() -> Vec<u8> {
    let address = TransportLayerAddress([10, 3, 0, 2].into());
    let tunnel = UPTransportLayerInformation::gTPTunnel(GTPTunnel::new(address, GTPTEID([0, 0, 2, 1]), None));
    let flows = AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(QosFlowIdentifier(1), None, None)]);
    let flows = QosFlowPerTNLInformation::new(tunnel, flows, None);
    let transfer = PDUSessionResourceSetupResponseTransfer::new(flows, None, None, None, None);
    encode_open_type(&transfer).unwrap().to_vec()
}

#[test]
fn session_is_created_used_idle_and_released() {
    for start in PLACES {
        let mut world = start();
        let path = world.create();
        // The accept and the N2 content follow the UPF's response.
        let [transfer] = &world.transfers[..] else { panic!("{:?}", world.transfers) };
        assert!(transfer.n1_message_container.is_some() && transfer.n2_info_container.is_some());
        assert_eq!(transfer.pdu_session_id, Some(5));
        // The response waits for the UPF.
        world.upf_answers = false;
        world.ran_up(&path);
        assert_eq!(world.replies.len(), 1);
        world.upf();
        assert_eq!(world.last().status, 204);
        world.upf_answers = true;
        assert_eq!(world.state(&path, UpCnxState::Deactivated).up_cnx_state, Some(UpCnxState::Deactivated));
        let back = world.state(&path, UpCnxState::Activating);
        assert_eq!(
            (back.up_cnx_state, back.n2_sm_info_type),
            (Some(UpCnxState::Activating), Some(N2SmInfoType::PduResSetupReq))
        );
        world.ran_up(&path);
        world.call(&format!("{path}/release"), Message::new(smf::SmContextReleaseData::default()));
        assert_eq!((world.last().status, world.smf.len()), (204, 0));
        assert!(world.notified.is_empty(), "the AMF knows it");
        world.call(&format!("{path}/release"), Message::default());
        assert_eq!(world.last().status, 404);
        assert!(world.is_empty(), "nothing is left, nor waited for");
    }
}

#[test]
fn release_by_ue_notifies_amf() {
    for start in PLACES {
        let mut world = start();
        let path = world.active();
        let n1 = |octets: Vec<u8>| N1N2Content { n1: Some(octets), n2: None };
        let data = SmContextUpdateData { n1_sm_msg: Some(part("n1")), ..SmContextUpdateData::default() };
        // PDU Session Release Request, PTI 2.
        let told = world.update(&path, &data, &n1(vec![0x2e, 5, 2, 0xd1]));
        assert_eq!((told.n1_sm_msg.is_some(), told.n2_sm_info_type), (true, Some(N2SmInfoType::PduResRelCmd)));
        assert_eq!(world.smf.len(), 1);
        // PDU Session Release Complete.
        world.update(&path, &data, &n1(vec![0x2e, 5, 2, 0xd4]));
        assert_eq!((world.last().status, world.smf.len()), (204, 0));
        assert_eq!(world.notified, ["http://amf/status/0"]);
        // The address is free again: the pool has only one.
        world.create();
    }
}

#[test]
fn refused_session_names_its_cause() {
    for start in PLACES {
        let mut world = start();
        let refused = |world: &mut World, data: &SmContextCreateData| {
            world.call(SM_CONTEXTS, create_message(data));
            let reply = world.last();
            let error: SmContextError = reply.message.value().unwrap_or_else(|_| SmContextError {
                error: reply.message.value().unwrap(),
                ..SmContextError::default()
            });
            (reply.status, error.error.cause.unwrap_or_default(), error.n1_sm_msg.is_some())
        };
        let with = |change: fn(&mut SmContextCreateData)| {
            let mut data = data();
            change(&mut data);
            data
        };
        let cases: [(SmContextCreateData, (u16, &str, bool)); 6] = [
            (with(|d| d.supi = "imsi-999700000000002".into()), (403, "SUBSCRIPTION_DENIED", false)),
            (with(|d| d.s_nssai.sst = 9), (403, "SNSSAI_DENIED", false)),
            (with(|d| d.dnn = "ims".into()), (403, "DNN_DENIED", false)),
            (with(|d| d.pdu_session_id = 16), (400, "MANDATORY_IE_INCORRECT", false)),
            (with(|d| d.sm_context_status_uri = "file:///x".into()), (400, "MANDATORY_IE_INCORRECT", false)),
            (with(|d| d.pdu_session_id = 6), (403, "N1_SM_ERROR", true)),
        ];
        for (data, expected) in cases {
            let (status, cause, n1) = refused(&mut world, &data);
            assert_eq!((status, cause.as_str(), n1), expected, "{data:?}");
        }
        world.call(SM_CONTEXTS, Message::default());
        assert_eq!(world.last().status, 400);
        world.call("/nsmf-pdusession/v1/nothing", Message::default());
        assert_eq!(world.last().status, 404);
        assert_eq!(world.smf.len(), 0);
        // The pool has one address.
        world.create();
        let (status, cause, n1) =
            refused(&mut world, &with(|d| d.sm_context_status_uri = "http://amf/status/1".into()));
        // The UPF still has the previous session, which is released: the UE no longer has it.
        assert!(status == 201 || (status, cause.as_str(), n1) == (500, "INSUFFICIENT_RESOURCES_SLICE_DNN", true));
        assert!(world.notified.is_empty());
    }
}

#[test]
fn session_unknown_to_amf_or_silent_upf_ends() {
    for start in PLACES.into_iter().filter(|start| !start().smf.piggybacks() && start().implied.is_none()) {
        let mut world = start();
        let path = world.create();
        world.transferred(&path, N1N2TransferResult::Unknown);
        assert_eq!((world.smf.len(), world.notified.len()), (0, 0));

        world.upf_answers = false;
        world.create();
        let (seid, _) = world.pfcp.pop().unwrap();
        world.transfers.clear();
        world.smf.pfcp_timeout(seid, world.now);
        world.act();
        assert_eq!((world.smf.len(), world.notified.len()), (0, 1));
        assert!(world.transfers[0].n1_message_container.is_some(), "the UE is told");
    }
}

#[test]
fn time_passes_for_what_waits() {
    for start in PLACES {
        let mut world = start();
        world.create();
        let due = world.smf.next_due().expect("the RAN is waited for");
        assert!(due > world.now && due.since(world.now) <= Duration::from_secs(30));
        world.transfers.clear();
        world.now = due;
        world.smf.on_time(due);
        world.act();
        assert!(world.transfers[0].n1_message_container.is_some(), "the UE is told to release it");
        assert!(world.smf.next_due().is_some_and(|next| next > due));
    }
}

/// Runs a session from start to end, with repeated requests.
fn whole_life(world: &mut World) {
    let reply = world.insist(SM_CONTEXTS, &create_message(&data()));
    assert_eq!(reply.status, 201, "{reply:?}");
    let path = reply.location.unwrap().strip_prefix("http://smf").unwrap().to_owned();
    assert!(world.transfers.iter().any(|transfer| transfer.n1_message_container.is_some()), "the UE is told");
    let address = world.session().sm.address;
    let modify = format!("{path}/modify");
    let n2 = SmContextUpdateData {
        n2_sm_info: Some(part("n2")),
        n2_sm_info_type: Some(N2SmInfoType::PduResSetupRsp),
        ..SmContextUpdateData::default()
    };
    let up = Message::new(&n2).with("n2", PartContent::Ngap, setup_response());
    assert_eq!(world.insist(&modify, &up).status, 204);
    let state =
        |state| Message::new(&SmContextUpdateData { up_cnx_state: Some(state), ..SmContextUpdateData::default() });
    assert_eq!(world.insist(&modify, &state(UpCnxState::Deactivated)).status, 200);
    let back: SmContextUpdatedData = world.insist(&modify, &state(UpCnxState::Activating)).message.value().unwrap();
    assert_eq!(back.n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq));
    assert_eq!(world.insist(&modify, &up).status, 204);
    let session = world.session();
    assert_eq!((session.sm.n4, session.sm.address), (N4State::Synced, address));
    assert!(session.sm.downlink.is_some());
    let switched: SmContextUpdatedData = world.insist(&modify, &handover::path_switch()).message.value().unwrap();
    assert_eq!(switched.n2_sm_info_type, Some(N2SmInfoType::PathSwitchReqAck));
    assert_eq!(world.session().sm.downlink.map(|tunnel| tunnel.teid), Some(Teid(0x301)));
    handover::by_n2(world, &modify);
    // If the response is lost after the removal, a repeat gets 404.
    let released = world.insist(&format!("{path}/release"), &Message::new(smf::SmContextReleaseData::default()));
    assert!([204, 404].contains(&released.status), "{released:?}");
    assert!(world.is_empty() && world.notified.is_empty());
}

#[test]
fn next_smf_continues_after_kill_at_any_time() {
    // Without `DeleteCreate`: an SMF that dies between its two operations loses the record.
    let changed = || World::kept_as(Format::Json, UpdateMode::Update);
    let shared = || World::shared(Format::Binary);
    let all = || World::shared_by_all(Format::Binary);
    let starts = [(World::stored as fn() -> World, 40), (changed, 40), (shared, 40), (all, 40), (World::piggyback, 15)];
    for (start, least) in starts.into_iter().chain([(World::here as fn() -> World, 10)]) {
        let mut kills = 0;
        for fuse in 0.. {
            let mut world = start();
            world.fuse = Some(fuse);
            whole_life(&mut world);
            if world.fuse.is_some() {
                break;
            }
            kills += 1;
        }
        assert!(kills > least, "{kills} places to be killed at");
    }
}

#[test]
fn unsent_notification_of_killed_smf_is_sent() {
    // The UE releases its session, which the AMF must learn. Then a packet arrives for an idle UE.
    let starts = [World::stored, World::piggyback, World::here, || World::shared(Format::Json)];
    for (fuse, start) in (0..24).flat_map(|fuse| starts.map(|start| (fuse, start))) {
        let mut world = start();
        let path = world.active();
        world.fuse = Some(fuse);
        let n1 = SmContextUpdateData { n1_sm_msg: Some(part("n1")), ..SmContextUpdateData::default() };
        let said = |octets: Vec<u8>| Message::new(&n1).with("n1", PartContent::Nas, octets);
        let modify = format!("{path}/modify");
        assert_eq!(world.insist(&modify, &said(vec![0x2e, 5, 2, 0xd1])).status, 200);
        let complete = world.insist(&modify, &said(vec![0x2e, 5, 2, 0xd4]));
        assert!([204, 404].contains(&complete.status), "{complete:?}");
        assert!(world.is_empty());
        assert!(!world.notified.is_empty());
    }
    for (fuse, start) in (0..6).flat_map(|fuse| starts.map(|start| (fuse, start))) {
        let mut world = start();
        let path = world.active();
        world.state(&path, UpCnxState::Deactivated);
        world.transfers.clear();
        world.fuse = Some(fuse);
        // The UPF repeats its report until it is answered.
        for _ in 0..2 {
            if world.transfers.is_empty() {
                world.downlink_packet(&path);
            }
        }
        assert!(!world.transfers.is_empty(), "killed at {fuse}");
        world.fuse = None;
        let back = world.state(&path, UpCnxState::Activating);
        assert_eq!(back.n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq), "killed at {fuse}");
    }
}
