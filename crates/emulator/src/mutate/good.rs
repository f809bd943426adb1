//! Good UEs: a run of another gNB whose identifiers the attacking gNBs know.

use super::report::GoodUes;
use crate::dialect::{Protocol, UeIds};
use crate::engine::run_with;
use crate::error::Error;
use crate::options::{Load, Options};
use crate::progress::EndpointFactory;
use crate::rat::Rat;
use crate::report::{Latency, Report};
use crate::scenario::{Mode, Scenario, Scheme, Step};
use crate::ue::Registration;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vireo_sctp::{Endpoint, Event, SendError, Waker};
use vireo_types::AssocId;
use vireo_wire::ngap::{self, NGAP_PDU};
use vireo_wire::s1ap::{self, S1AP_PDU};

/// Scenario of each good UE until the campaign ends.
static SERVED: Scenario = Scenario {
    name: "mutate",
    about: "registration, session, idle, service request, deregistration, again and again",
    mode: Mode::Steps(&[
        Step::Register(Registration::Fresh),
        Step::Establish { psi: 1, kind: None },
        Step::Idle,
        Step::Rest,
        Step::Service,
        Step::Idle,
        Step::Rest,
        Step::Register(Registration::Mobility),
        Step::Deregister,
        Step::Repeat { to: 0 },
    ]),
    scheme: Scheme::Any,
};

/// Number of remembered identifiers.
const MAX_IDENTIFIERS: usize = 64;
/// Number of the good UEs' endpoint; the attacking nodes have 0.
const ENDPOINT: u32 = 1;
/// Identifier of the good node; it differs from those of the attacking ones in many bits.
const IDENTITY: u32 = 0x0055_5555;

/// Identifiers of good UEs.
#[derive(Debug, Default)]
pub(super) struct GoodIds {
    /// UE IDs, newest last.
    connections: Mutex<VecDeque<UeIds>>,
    /// 5G-S-TMSIs, or S-TMSIs mapped to them, from INITIAL UE MESSAGEs.
    names: Mutex<VecDeque<[u8; 6]>>,
}

fn remember<T: PartialEq>(list: &Mutex<VecDeque<T>>, new: T) {
    let Ok(mut list) = list.lock() else { return };
    if !list.contains(&new) {
        list.push_back(new);
    }
    if list.len() > MAX_IDENTIFIERS {
        list.pop_front();
    }
}

fn nth<T: Copy>(list: &Mutex<VecDeque<T>>, n: usize) -> Option<T> {
    let list = list.lock().ok()?;
    list.get(n.checked_rem(list.len())?).copied()
}

impl GoodIds {
    /// Returns the connection of a good UE.
    pub(super) fn connection(&self, n: usize) -> Option<UeIds> {
        nth(&self.connections, n)
    }

    /// Returns the 5G-S-TMSI of a good UE, or the S-TMSI mapped to it.
    pub(super) fn name(&self, n: usize) -> Option<[u8; 6]> {
        nth(&self.names, n)
    }

    fn received(&self, rat: Rat, octets: &[u8]) {
        let ids = match rat {
            Rat::Nr => NGAP_PDU::decode_borrowed(octets).ok().and_then(|pdu| {
                let core = pdu.ie::<ngap::ie::AMF_UE_NGAP_ID>()?.ok()?.0;
                Some(UeIds { core, ran: pdu.ie::<ngap::ie::RAN_UE_NGAP_ID>()?.ok()?.0 })
            }),
            Rat::Eps => S1AP_PDU::decode_borrowed(octets).ok().and_then(|pdu| {
                let core = pdu.ie::<s1ap::ie::MME_UE_S1AP_ID>()?.ok()?.0.into();
                Some(UeIds { core, ran: pdu.ie::<s1ap::ie::eNB_UE_S1AP_ID>()?.ok()?.0 })
            }),
        };
        if let Some(ids) = ids {
            remember(&self.connections, ids);
        }
    }

    fn sent(&self, rat: Rat, octets: &[u8]) {
        // Other messages have no S-TMSI.
        if !Protocol::by_rat(rat).starts_connection(octets) {
            return;
        }
        let name = match rat {
            Rat::Nr => NGAP_PDU::decode_borrowed(octets).ok().and_then(|pdu| {
                let name = pdu.ie::<ngap::ie::FiveG_S_TMSI>()?.ok()?;
                let set = name.amf_set_id.0.value() << 6 | name.amf_pointer.0.value();
                Some((set as u16, name.five_g_tmsi.0))
            }),
            Rat::Eps => S1AP_PDU::decode_borrowed(octets).ok().and_then(|pdu| {
                let name = pdu.ie::<s1ap::ie::S_TMSI>()?.ok()?;
                Some((u16::from(name.mmec.0[0]), name.m_tmsi.0))
            }),
        };
        if let Some((set, [c, d, e, f])) = name {
            let [a, b] = set.to_be_bytes();
            remember(&self.names, [a, b, c, d, e, f]);
        }
    }
}

/// Runs the good UEs until `over` is set.
pub(super) fn serve(
    options: &Options,
    open: EndpointFactory<'_>,
    good_ids: &Arc<GoodIds>,
    over: &Arc<AtomicBool>,
) -> Result<Report, Error> {
    let rat = options.rats.list()[0];
    let options = Options {
        scenario: &SERVED,
        gnbs: 1,
        tnl_associations: 1,
        drop_association: None,
        // An eNB ID has 20 bits.
        first_gnb_id: (options.first_gnb_id ^ IDENTITY) & if rat == Rat::Eps { 0x000f_ffff } else { 0x00ff_ffff },
        rounds: u32::MAX,
        load: Load::Window(options.ues),
        threads: 1,
        duration: None,
        stop: Some(Arc::clone(over)),
        ..options.clone()
    };
    let watched = |_| {
        let (inner, good_ids) = (open(ENDPOINT)?, Arc::clone(good_ids));
        Ok(Box::new(Watched { rat, inner, good_ids }) as Box<dyn Endpoint>)
    };
    run_with(&options, &watched, &mut |_| ())
}

/// Endpoint wrapper that inspects the messages.
struct Watched {
    rat: Rat,
    inner: Box<dyn Endpoint>,
    good_ids: Arc<GoodIds>,
}

impl Endpoint for Watched {
    fn poll(&mut self, timeout: Option<Duration>, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<usize> {
        let (rat, good_ids) = (self.rat, &self.good_ids);
        self.inner.poll(timeout, &mut |event| {
            if let Event::Message { data, .. } = &event {
                good_ids.received(rat, data);
            }
            sink(event);
        })
    }

    fn send(&mut self, assoc: AssocId, stream: u16, ppid: u32, data: &[u8]) -> Result<(), SendError> {
        self.good_ids.sent(self.rat, data);
        self.inner.send(assoc, stream, ppid, data)
    }

    fn connect(&mut self, peer: SocketAddr) -> io::Result<AssocId> {
        self.inner.connect(peer)
    }

    fn shutdown(&mut self, assoc: AssocId) {
        self.inner.shutdown(assoc);
    }

    fn abort(&mut self, assoc: AssocId) {
        self.inner.abort(assoc);
    }

    fn probe(&mut self, assoc: AssocId) {
        self.inner.probe(assoc);
    }

    fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.inner.watch(fd, token)
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn descriptor(&self) -> RawFd {
        self.inner.descriptor()
    }

    fn driver(&self) -> &str {
        self.inner.driver()
    }

    fn parses_packets(&self) -> bool {
        self.inner.parses_packets()
    }

    fn port(&self) -> u16 {
        self.inner.port()
    }

    fn detach(self: Box<Self>) {
        self.inner.detach();
    }
}

/// Returns the part of the campaign's report about the good UEs.
pub(super) fn summary(report: &Report) -> GoodUes {
    let largest = |of: fn(&Latency) -> u64| report.latency_us.values().map(of).max().unwrap_or(0) as f64 / 1e3;
    let faults = report.failures.iter().chain(&report.violations);
    GoodUes {
        ues: report.ues,
        registrations: report.registered,
        sessions: report.sessions,
        service_requests: report.service_requests,
        deregistrations: report.deregistered,
        failed: report.failed,
        back_offs: report.back_offs,
        faults: faults.map(|(what, count)| (what.clone(), *count)).collect(),
        p50_ms: largest(|latency| latency.p50),
        p99_ms: largest(|latency| latency.p99),
        max_ms: largest(|latency| latency.max),
    }
}
