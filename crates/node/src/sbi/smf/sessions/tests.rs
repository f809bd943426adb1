//! An SMF with the test in the place of AMF and UPF: no sockets, no clock.

use super::*;
use rand::SeedableRng;
use std::net::{IpAddr, Ipv4Addr};
use vireo_core::config::{Charging, DnnConfig, NodeName, SecurityConfig, SliceConfig, SliceProfile, Timers, UpfConfig};
use vireo_core::session::N2Sm;
use vireo_core::subscription::SliceSubscription;
use vireo_sbi::amf::N1N2MessageTransferReqData;
use vireo_sbi::common::{Guami, N2SmInfoType, PlmnId, RefToBinaryData};
use vireo_sbi::smf::{SM_CONTEXTS, SmContextCreateData, SmContextError, SmContextUpdateData, SmContextUpdatedData};
use vireo_sbi::{Content, Message};
use vireo_types::{Duration, PduSessionType, Plmn, Snssai, Tac, Teid};
use vireo_wire::ngap::*;
use vireo_wire::pfcp::{self, Element};

const UPF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 8)), 8805);
const SUPI: &str = "imsi-999700000000001";
/// PDU Session Establishment Request: PSI 5, PTI 1, full integrity rate, IPv4.
const REQUEST: [u8; 7] = [0x2e, 5, 1, 0xc1, 0xff, 0xff, 0x91];

fn config() -> CoreConfig {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    CoreConfig {
        name: "vireo".into(),
        plmns: vec!["99970".parse().unwrap()],
        tacs: vec![Tac(1)],
        amf_region: 2,
        amf_set: 1,
        amf_pointer: 0,
        relative_capacity: 255,
        slices: vec![SliceConfig {
            name: "phones".into(),
            snssai: Snssai { sst: 1, sd: None },
            profile: SliceProfile::Full,
            charging: Charging::default(),
        }],
        dnns: vec![DnnConfig {
            name: "internet".parse().unwrap(),
            slices: Vec::new(),
            types: vec![PduSessionType::Ipv4],
            ipv4_pool: Some((Ipv4Addr::new(10, 45, 0, 0), 30)),
            ipv6_pool: None,
            dns: Vec::new(),
            mtu: 1400,
        }],
        security: SecurityConfig { integrity: Vec::new(), ciphering: Vec::new() },
        timers: Timers::default(),
        upfs: vec![UpfConfig { name: "upf".into(), n4: UPF, dnns: Vec::new() }],
        n4_address: loopback,
        n4_node: NodeName::Address(loopback),
        n2_endpoints: Vec::new(),
        smf_elsewhere: false,
    }
}

struct World {
    smf: Sessions,
    now: Instant,
    /// Whether the UPF answers at once.
    upf_answers: bool,
    replies: Vec<Reply>,
    transfers: Vec<N1N2MessageTransferReqData>,
    notified: Vec<String>,
    pfcp: Vec<(Seid, Vec<u8>)>,
}

impl World {
    fn new() -> Self {
        World {
            smf: Sessions::new(config(), "http://smf".into(), StdRng::seed_from_u64(1)),
            now: Instant(1_000_000_000),
            upf_answers: true,
            replies: Vec::new(),
            transfers: Vec::new(),
            notified: Vec::new(),
            pfcp: Vec::new(),
        }
    }

    /// Carries out what is to be done; each request to the UPF is answered, if it answers.
    fn act(&mut self) {
        loop {
            let actions = self.smf.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Reply(_, reply) => self.replies.push(reply),
                    Action::Pfcp { seid, message, upf, .. } => {
                        assert_eq!(upf, UPF);
                        self.pfcp.push((seid, message));
                    }
                    Action::Transfer { message, supi, .. } => {
                        assert_eq!(format!("imsi-{}", supi.reveal()), SUPI);
                        self.transfers.push(message.value().unwrap());
                    }
                    Action::Notify { uri, .. } => self.notified.push(uri),
                }
            }
            if self.upf_answers {
                self.upf();
            }
        }
    }

    /// The UPF answers what it was asked.
    fn upf(&mut self) {
        for (seid, request) in std::mem::take(&mut self.pfcp) {
            use pfcp::MessageType as Kind;
            let kind = match pfcp::Message::new(&request).unwrap().message_type() {
                Kind::SESSION_ESTABLISHMENT_REQUEST => Kind::SESSION_ESTABLISHMENT_RESPONSE,
                Kind::SESSION_MODIFICATION_REQUEST => Kind::SESSION_MODIFICATION_RESPONSE,
                Kind::SESSION_DELETION_REQUEST => Kind::SESSION_DELETION_RESPONSE,
                _ => continue,
            };
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
            assert!(self.smf.pfcp(seid, &octets, self.now));
        }
        self.act();
    }

    fn call(&mut self, path: &str, message: Message) {
        let call = Call { path: path.to_owned(), message, reply: ReplyTo::nobody() };
        let mut lookup = |supi: Supi| {
            let known = format!("imsi-{}", supi.reveal()) == SUPI;
            let slices = vec![SliceSubscription::default()];
            Ok(known.then_some(Subscription { slices, ..Subscription::default() }))
        };
        self.smf.call(call, self.now, &mut lookup);
        self.act();
    }

    fn last(&self) -> &Reply {
        self.replies.last().expect("an answer")
    }

    /// Asks for session 5; the path of its SM context.
    fn create(&mut self) -> String {
        self.call(SM_CONTEXTS, create_message(&data()));
        assert_eq!(self.last().status, 201, "{:?}", self.last());
        let location = self.last().location.clone().expect("a name");
        location.strip_prefix("http://smf").expect("its own").to_owned()
    }

    fn update(&mut self, path: &str, data: &SmContextUpdateData, told: &Told) -> SmContextUpdatedData {
        let mut message = Message::of(data);
        if let Some(n1) = &told.n1 {
            message = message.with("n1", Content::Nas, n1.clone());
        }
        if let Some((_, n2)) = &told.n2 {
            message = message.with("n2", Content::Ngap, n2.clone());
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
        self.update(path, &data, &Told { n1: None, n2: Some((N2Sm::SetupResponse, setup_response())) })
    }

    fn state(&mut self, path: &str, state: UpCnxState) -> SmContextUpdatedData {
        let data = SmContextUpdateData { up_cnx_state: Some(state), ..SmContextUpdateData::default() };
        self.update(path, &data, &Told::default())
    }

    /// A session that forwards.
    fn active(&mut self) -> String {
        let path = self.create();
        self.ran_up(&path);
        assert_eq!((self.replies.len(), self.last().status), (2, 204));
        path
    }

    /// The UPF reports a packet.
    fn downlink_packet(&mut self, path: &str) {
        let seid = wire::seid_of(path.rsplit('/').next().unwrap()).unwrap();
        let mut octets = Vec::new();
        let mut report = pfcp::Builder::new(&mut octets, pfcp::MessageType::SESSION_REPORT_REQUEST, Some(seid.0), 7);
        report.put(&pfcp::ReportType::DLDR).group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
        report.finish().unwrap();
        assert!(self.smf.pfcp(seid, &octets, self.now));
        self.act();
    }

    fn transferred(&mut self, path: &str, result: Transferred) {
        let seid = wire::seid_of(path.rsplit('/').next().unwrap()).unwrap();
        self.smf.transferred(seid, result, self.now);
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
    }
}

fn create_message(data: &SmContextCreateData) -> Message {
    Message::of(data).with("n1", Content::Nas, REQUEST.to_vec())
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
fn a_session_is_created_used_idle_and_released() {
    let mut world = World::new();
    let path = world.create();
    // The accept and what the RAN needs follow when the UPF has answered.
    let [transfer] = &world.transfers[..] else { panic!("{:?}", world.transfers) };
    assert!(transfer.n1_message_container.is_some() && transfer.n2_info_container.is_some());
    assert_eq!(transfer.pdu_session_id, Some(5));
    // The answer waits for the UPF.
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
    world.call(&format!("{path}/release"), Message::of(&smf::SmContextReleaseData::default()));
    assert_eq!((world.last().status, world.smf.len()), (204, 0));
    assert!(world.notified.is_empty(), "the AMF knows it");
    world.call(&format!("{path}/release"), Message::default());
    assert_eq!(world.last().status, 404);
    assert_eq!(world.smf.next_due(), None, "nothing is waited for");
}

#[test]
fn what_the_ue_releases_is_told_to_the_amf() {
    let mut world = World::new();
    let path = world.active();
    let n1 = |octets: Vec<u8>| Told { n1: Some(octets), n2: None };
    let data = SmContextUpdateData { n1_sm_msg: Some(part("n1")), ..SmContextUpdateData::default() };
    // PDU Session Release Request, PTI 2.
    let told = world.update(&path, &data, &n1(vec![0x2e, 5, 2, 0xd1]));
    assert_eq!((told.n1_sm_msg.is_some(), told.n2_sm_info_type), (true, Some(N2SmInfoType::PduResRelCmd)));
    assert_eq!(world.smf.len(), 1);
    // PDU Session Release Complete.
    world.update(&path, &data, &n1(vec![0x2e, 5, 2, 0xd4]));
    assert_eq!((world.last().status, world.smf.len()), (204, 0));
    assert_eq!(world.notified, ["http://amf/status/0"]);
    // Its address is free: the only one of two that is left comes first.
    world.create();
}

#[test]
fn a_packet_for_an_idle_ue_is_told_and_the_ue_comes_back() {
    for result in [Transferred::Attempting, Transferred::Initiated, Transferred::Unreachable] {
        let mut world = World::new();
        let path = world.active();
        world.state(&path, UpCnxState::Deactivated);
        world.transfers.clear();
        world.downlink_packet(&path);
        assert_eq!(world.transfers.len(), 1);
        world.transferred(&path, result);
        match result {
            // The RAN was given it: it answers.
            Transferred::Initiated => assert_eq!(world.ran_up(&path), SmContextUpdatedData::default()),
            _ => {
                let back = world.state(&path, UpCnxState::Activating);
                assert_eq!(back.n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq), "{result:?}");
                world.ran_up(&path);
            }
        }
        let session = world.smf.contexts.values().next().unwrap();
        assert!(session.sm.downlink.is_some() && session.sm.n4 == N4::Told, "{result:?}");
    }
    // The UE's own service request is faster than the word that it is paged.
    let mut world = World::new();
    let path = world.active();
    world.state(&path, UpCnxState::Deactivated);
    world.downlink_packet(&path);
    assert!(world.state(&path, UpCnxState::Activating).n2_sm_info_type.is_some());
    world.transferred(&path, Transferred::Attempting);
    world.ran_up(&path);
    assert!(world.smf.contexts.values().all(|session| session.sm.downlink.is_some()));
}

#[test]
fn what_cannot_be_had_is_refused_with_its_cause() {
    let mut world = World::new();
    let refused = |world: &mut World, data: &SmContextCreateData| {
        world.call(SM_CONTEXTS, create_message(data));
        let reply = world.last();
        let error: SmContextError = reply
            .message
            .value()
            .unwrap_or_else(|_| SmContextError { error: reply.message.value().unwrap(), ..SmContextError::default() });
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
    // There is one address.
    world.create();
    let (status, cause, n1) = refused(&mut world, &with(|d| d.sm_context_status_uri = "http://amf/status/1".into()));
    // The one before is still the UPF's, and goes: the UE has forgotten it.
    assert!(status == 201 || (status, cause.as_str(), n1) == (500, "INSUFFICIENT_RESOURCES_SLICE_DNN", true));
    assert!(world.notified.is_empty());
}

#[test]
fn an_amf_that_knows_no_such_session_has_it_let_go_and_a_silent_upf_too() {
    let mut world = World::new();
    let path = world.create();
    world.transferred(&path, Transferred::Unknown);
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

#[test]
fn time_passes_for_what_waits() {
    let mut world = World::new();
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
