//! End-to-end tests of sessions: the test replaces UE, RAN and UPF, without I/O or clock.

mod any_order;
mod charging;
mod establish;
mod release;
mod relocate;
mod terms;
mod userplane;

use super::*;
use crate::Identifiers;
use crate::config::{Charging, CoreConfig, DnnConfig, SliceProfile, StaticPools, UpfConfig};
use crate::subscription::DnnSubscription;
use std::net::SocketAddr;
use std::net::{Ipv4Addr, Ipv6Addr};
use vireo_types::{Bucket, Dialect, Dnn, Duration, Instant, Ltmsi, PduSessionType, Seid, Snssai, Teid, Tmsi};
use vireo_wire::nas::{Nas5gsMessage, Nas5gsmMessage};
use vireo_wire::ngap::*;
use vireo_wire::pfcp;

pub(super) const UPF: &str = "127.0.0.7:8805";
pub(super) const UP_SEID: u64 = 0x0102_0304_0506_0708;
/// PDU Session Establishment Request: PSI 5, PTI 1, full integrity rate, IPv4.
pub(crate) const REQUEST: &str = "2e0501c1ffff91";

pub(crate) fn config() -> CoreConfig {
    let dnn = |name: &str, slices: Vec<Snssai>, types: &[PduSessionType]| DnnConfig {
        name: name.parse().expect("a DNN"),
        slices,
        types: types.to_vec(),
        ipv4_pool: None,
        ipv6_pool: None,
        dns: vec![Ipv4Addr::new(8, 8, 8, 8).into()],
        p_cscf: Vec::new(),
        mtu: 1400,
        static_pools: StaticPools::default(),
        up_security: None,
    };
    use PduSessionType::{Ipv4, Ipv4v6, Ipv6};
    CoreConfig {
        dnns: vec![
            dnn("internet", vec![], &[Ipv4, Ipv6, Ipv4v6]),
            dnn("four", vec![], &[Ipv4]),
            dnn("six", vec![], &[Ipv6]),
            dnn("both", vec![], &[Ipv4v6]),
            dnn("either", vec![], &[Ipv4, Ipv6]),
            dnn("elsewhere", vec![Snssai { sst: 9, sd: None }], &[Ipv4]),
        ],
        upfs: vec![UpfConfig {
            name: "here".into(),
            n4: UPF.parse().expect("an address"),
            dnns: vec![],
            n3_ipv6: false,
        }],
        ..CoreConfig::lab()
    }
}

/// Allocates 10.45.0.2 and 2001:db8:45:2::/64, or nothing.
#[derive(Default)]
struct Ids {
    used_up: bool,
}

impl Identifiers for Ids {
    fn tmsi(&mut self, _: Ltmsi) -> Option<Tmsi> {
        None
    }

    fn rekey(&mut self, _: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        None
    }

    fn address(&mut self, _: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        let v4 = Some(Ipv4Addr::new(10, 45, 0, 2)).filter(|_| kind != PduSessionType::Ipv6);
        let v6 = Some(Ipv6Addr::new(0x2001, 0xdb8, 0x45, 2, 0, 0, 0, 0)).filter(|_| kind != PduSessionType::Ipv4);
        (!self.used_up).then_some(SessionAddress { ipv4: v4, ipv6_prefix: v6 })
    }
}

/// Network around one session.
pub(crate) struct Bench {
    pub(crate) config: CoreConfig,
    pub(super) subscription: DnnSubscription,
    pub(super) dnn: &'static str,
    pub(super) now: Instant,
    pub(super) sm: Option<SmContext>,
    ids: Ids,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Bench {
            config: config(),
            subscription: DnnSubscription::default(),
            dnn: "internet",
            now: Instant(1_000_000),
            sm: None,
            ids: Ids::default(),
        }
    }

    /// Handles the request of a UE, in hexadecimal octets.
    pub(crate) fn create(&mut self, n1: &str) -> Vec<Output> {
        self.create_octets(&hex::decode(n1).expect("hex"))
    }

    pub(super) fn create_octets(&mut self, n1: &[u8]) -> Vec<Output> {
        let mut random = |octets: &mut [u8]| octets.fill(0x11);
        let mut env = Env {
            now: self.now,
            arrived: self.now,
            config: &self.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &(),
        };
        let request = Create {
            supi: "999700000000001".parse().expect("a SUPI"),
            ltmsi: Ltmsi::new(Bucket::new(7), 1234),
            index: 3,
            psi: 5,
            dialect: Dialect::Nr,
            n1,
            snssai: Snssai { sst: 1, sd: None },
            dnn: &self.dnn.parse().expect("a DNN"),
            subscription: &self.subscription,
        };
        let (sm, out) = create(&request, &mut env);
        self.sm = sm;
        out
    }

    /// Executes one step. The context is encoded and decoded, and deleted when it is released.
    pub(super) fn step(&mut self, input: Input<'_>) -> Vec<Output> {
        let stored = postcard::to_stdvec(self.sm()).expect("a context encodes");
        let mut sm: SmContext = postcard::from_bytes(&stored).expect("a context decodes");
        assert_eq!(Some(&sm), self.sm.as_ref());
        let mut random = |_: &mut [u8]| panic!("a step takes no random octets");
        let env = Env {
            now: self.now,
            arrived: self.now,
            config: &self.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &(),
        };
        let out = step(&mut sm, input, &env);
        let gone = out.iter().filter(|o| **o == Output::Released).count();
        let freed = out.iter().filter(|o| matches!(o, Output::FreeAddress(..))).count();
        assert_eq!(gone, freed, "addresses are freed exactly when the session is gone: {out:?}");
        self.sm = (gone == 0).then_some(sm);
        out
    }

    pub(crate) fn n1(&mut self, octets: &str) -> Vec<Output> {
        self.step(Input::N1(&hex::decode(octets).expect("hex")))
    }

    pub(crate) fn sm(&self) -> &SmContext {
        self.sm.as_ref().expect("there is a session")
    }

    /// Handles the UPF's answer of this kind and cause to the outstanding request.
    pub(super) fn upf(&mut self, kind: pfcp::MessageType, cause: pfcp::Cause) -> Vec<Output> {
        let octets = self.upf_message(kind, cause);
        self.step(Input::Pfcp(&octets))
    }

    pub(super) fn upf_message(&self, kind: pfcp::MessageType, cause: pfcp::Cause) -> Vec<u8> {
        use pfcp::Element;
        let mut octets = Vec::new();
        let mut message = pfcp::Builder::new(&mut octets, kind, Some(self.sm().pfcp.cp_seid.0), 77);
        message.put(&pfcp::NodeId::Ipv4(Ipv4Addr::new(127, 0, 0, 7))).put(&cause);
        if kind == pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE && cause.is_accepted() {
            message.put(&pfcp::FSeid::new(UP_SEID, Ipv4Addr::new(127, 0, 0, 7).into()));
            message.group(pfcp::CreatedPdr::ID, |pdr| {
                pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(Teid(0x101), Ipv4Addr::new(10, 3, 0, 1).into()));
            });
        }
        message.finish().expect("a short message");
        octets
    }

    pub(super) fn established(&mut self) -> Vec<Output> {
        self.upf(pfcp::MessageType::SESSION_ESTABLISHMENT_RESPONSE, pfcp::Cause::REQUEST_ACCEPTED)
    }

    pub(super) fn modified(&mut self) -> Vec<Output> {
        self.upf(pfcp::MessageType::SESSION_MODIFICATION_RESPONSE, pfcp::Cause::REQUEST_ACCEPTED)
    }

    pub(super) fn deleted(&mut self) -> Vec<Output> {
        self.upf(pfcp::MessageType::SESSION_DELETION_RESPONSE, pfcp::Cause::REQUEST_ACCEPTED)
    }

    /// Handles the setup response of the RAN at 10.3.0.2 with this TEID.
    pub(super) fn ran_up(&mut self, teid: u32) -> Vec<Output> {
        self.step(Input::N2(N2Sm::SetupResponse, &setup_response(teid)))
    }

    /// Returns an established session that forwards.
    pub(crate) fn active() -> Self {
        let mut bench = Bench::new();
        bench.create(REQUEST);
        bench.established();
        bench.ran_up(0x201);
        assert_eq!(bench.modified(), [Output::Established]);
        bench
    }

    /// Returns an established session that buffers.
    pub(super) fn inactive() -> Self {
        let mut bench = Bench::active();
        bench.step(Input::Deactivate);
        assert_eq!(bench.modified(), []);
        bench
    }

    pub(super) fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
    }
}

pub(super) fn setup_response(teid: u32) -> Vec<u8> {
    let address = TransportLayerAddress([10, 3, 0, 2].into());
    let tunnel = UPTransportLayerInformation::gTPTunnel(GTPTunnel::new(address, GTPTEID(teid.to_be_bytes()), None));
    let flows = AssociatedQosFlowList(vec![AssociatedQosFlowItem::new(QosFlowIdentifier(1), None, None)]);
    let flows = QosFlowPerTNLInformation::new(tunnel, flows, None);
    let transfer = PDUSessionResourceSetupResponseTransfer::new(flows, None, None, None, None);
    encode_open_type(&transfer).expect("a transfer encodes").to_vec()
}

/// Returns the 5GSM messages among the outputs.
pub(super) fn nas(out: &[Output]) -> Vec<(u8, u8, Nas5gsmMessage)> {
    let octets = out.iter().filter_map(|o| if let Output::N1(octets) = o { Some(octets) } else { None });
    octets
        .map(|octets| match Nas5gsMessage::decode(octets).expect("a 5GSM message") {
            Nas5gsMessage::Gsm(h, message) => (h.pdu_session_identity, h.procedure_transaction_identity, message),
            other => panic!("{other}"),
        })
        .collect()
}

/// Returns a short form of the outputs: 5GSM messages with PTI and cause, transfers, PFCP messages
/// and others.
pub(super) fn brief(out: &[Output]) -> String {
    let words = out.iter().map(|o| match o {
        Output::N1(octets) => {
            let (_, pti, message) = nas(&[Output::N1(octets.clone())]).remove(0);
            let cause = |ie: &vireo_wire::nas::NasFGsmCause| format!("#{}", ie.cause_raw());
            match message {
                Nas5gsmMessage::PduSessionEstablishmentAccept(m) => {
                    format!("accept/{pti}{}", m.fgsm_cause.as_ref().map_or(String::new(), cause))
                }
                Nas5gsmMessage::PduSessionEstablishmentReject(m) => format!("reject/{pti}{}", cause(&m.fgsm_cause)),
                Nas5gsmMessage::PduSessionReleaseCommand(m) => format!("release/{pti}{}", cause(&m.fgsm_cause)),
                Nas5gsmMessage::PduSessionReleaseReject(m) => format!("release-reject/{pti}{}", cause(&m.fgsm_cause)),
                Nas5gsmMessage::PduSessionModificationReject(m) => {
                    format!("modification-reject/{pti}{}", cause(&m.fgsm_cause))
                }
                Nas5gsmMessage::FiveGsmStatus(m) => format!("status/{pti}{}", cause(&m.fgsm_cause)),
                other => panic!("the network does not send {other}"),
            }
        }
        Output::N2(kind, _) => format!("{kind:?}"),
        Output::Pfcp { message, .. } => {
            let message = pfcp::Message::new(message).expect("a PFCP message");
            format!("{:?}", message.message_type()).trim_start_matches("Session ").replace(' ', "-").to_lowercase()
        }
        Output::FreeAddress(..) => "free".into(),
        other => format!("{other:?}").to_lowercase(),
    });
    words.collect::<Vec<_>>().join(" ")
}
