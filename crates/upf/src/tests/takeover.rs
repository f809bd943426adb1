//! Takeover between two N4 endpoints of one control plane.
//!
//! The second endpoint keeps the sessions of the first.

use super::*;
use std::collections::VecDeque;
use vireo_datapath::{Event, Tunnel};
use vireo_n4::{self as n4, N4, Sink, SubmitResult};
use vireo_types::Network;
use vireo_types::{Bucket, Ltmsi, Seid};

const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 6);

/// What an endpoint has reported to its control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Report {
    Up,
    Restarted,
    Delivered(Vec<u8>),
    Other(String),
}

#[derive(Default)]
struct Net {
    sent: VecDeque<Vec<u8>>,
    reports: Vec<Report>,
}

impl Sink for Net {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        assert_eq!(to, SocketAddr::from((UPF, PORT)));
        self.sent.push_back(octets.to_vec());
    }

    fn event(&mut self, event: n4::Event<'_>) {
        self.reports.push(match event {
            n4::Event::UpfUp { .. } => Report::Up,
            n4::Event::UpfRestarted { .. } => Report::Restarted,
            n4::Event::Deliver { message, .. } => Report::Delivered(message.to_vec()),
            other => Report::Other(format!("{other:?}")),
        });
    }
}

/// An N4 endpoint of the control plane.
struct Control {
    n4: N4,
    address: SocketAddr,
    net: Net,
}

impl Control {
    fn new(address: Ipv4Addr, first_sequence: u32) -> Self {
        // Both have the same Node ID and time stamp.
        let stamp = RecoveryTimeStamp(1_000);
        let upfs = vec![(UPF, PORT).into()];
        let own = n4::Config::new(address.into(), upfs, stamp, first_sequence);
        let config = n4::Config { node_id: node(), shared: true, ..own };
        Control { n4: N4::new(config), address: (address, PORT).into(), net: Net::default() }
    }

    /// Sends all pending messages to the UPF, and processes at most `heard` responses.
    fn talk(&mut self, b: &mut Bench, heard: usize) {
        self.n4.on_time(b.now.instant, &mut self.net);
        let mut answers = 0;
        while let Some(octets) = self.net.sent.pop_front() {
            b.from = self.address;
            for (to, answer) in b.deliver(&octets) {
                answers += 1;
                if to == self.address && answers <= heard {
                    self.n4.on_datagram(b.now.instant, (UPF, PORT).into(), &answer, &mut self.net);
                }
            }
        }
    }

    fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.net.reports)
    }

    fn submit(&mut self, b: &Bench, key: u64, octets: &[u8]) {
        let seid = Seid::new(Ltmsi::new(Bucket::new(7), 8), 1, key as u32);
        let submitted = self.n4.submit(b.now.instant, (UPF, PORT).into(), Some(key), seid, octets, &mut self.net);
        assert_eq!(submitted, Ok(SubmitResult::Sent));
    }
}

/// Creates two endpoints. The first has the association and a session, the second neither.
fn controls(b: &mut Bench) -> ([Control; 2], u64) {
    let networks = [SMF, SECOND].map(|address| Network::host(address.into())).to_vec();
    b.upf.settings.associations.control_planes = vec![ControlPlane { node_id: Some(node()), networks }];
    let (mut first, mut second) = (Control::new(SMF, 100), Control::new(SECOND, 9_000));
    second.n4.deactivate(b.now.instant);
    second.talk(b, 9);
    assert!(!second.n4.is_active() && second.reports().is_empty(), "it says nothing");
    first.talk(b, 9);
    assert_eq!(first.reports(), [Report::Up]);
    let mut octets = vec![];
    request().emit(&mut octets, 0, 0).expect("short");
    first.submit(b, 5, &octets);
    first.talk(b, 9);
    let [Report::Delivered(answer)] = &first.reports()[..] else { panic!("an answer") };
    let message = Message::new(answer).expect("sound");
    let session = SessionEstablishmentResponse::parse(&message).expect("sound").up_f_seid.expect("a session").seid;
    ([first, second], session)
}

/// Triggers an error indication report for the session, and returns its destination.
fn reported(b: &mut Bench, session: u64) -> SocketAddr {
    let mut out = vec![];
    let tunnel = Tunnel { teid: RAN_TEID, address: GNB.into() };
    b.upf.event(Event::TunnelError { session, tunnel }, b.now, &mut b.plane, &mut out);
    assert_eq!(out.len(), 1);
    out[0].0
}

#[test]
fn another_endpoint_takes_over_with_all_sessions() {
    let mut b = bench();
    let ([mut first, mut second], session) = controls(&mut b);
    assert_eq!(reported(&mut b, session), first.address);
    // The first endpoint requests a second session and fails before it receives the response.
    let mut another = request();
    another.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None);
    let mut octets = vec![];
    another.emit(&mut octets, 0, 0).expect("short");
    first.submit(&b, 6, &octets);
    first.talk(&mut b, 0);
    assert_eq!(b.upf.sessions(), 2);

    second.n4.activate(b.now.instant, true, &mut second.net);
    second.talk(&mut b, 9);
    assert_eq!(second.reports(), [Report::Up], "nothing is lost");
    assert_eq!(b.upf.sessions(), 2);
    // The second endpoint repeats the request with the same F-SEID. There is one session although
    // the F-SEID's address differs.
    second.submit(&b, 6, &octets);
    second.talk(&mut b, 9);
    let reports = second.reports();
    assert!(matches!(&reports[..], [Report::Delivered(_)]), "{reports:?}");
    assert_eq!(b.upf.sessions(), 2);
    // Another request of the same UE has another sequence number.
    let mut deletion = vec![];
    (SessionDeletionRequest {}).emit(&mut deletion, session, 0).expect("short");
    assert_eq!(reported(&mut b, session), second.address, "there is nobody else to tell");
    // The second endpoint receives the reports that the first did not answer.
    let mut again = vec![];
    b.now.instant = b.now.instant + Duration::from_secs(4);
    b.upf.tick(b.now, &mut again);
    assert_eq!(again.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [second.address; 2]);
    second.submit(&b, 7, &deletion);
    second.talk(&mut b, 9);
    assert_eq!(b.upf.sessions(), 1);
    // The first endpoint returns, learns that it is not active, and sends nothing.
    first.n4.deactivate(b.now.instant);
    b.now.instant = b.now.instant + Duration::from_secs(30);
    first.talk(&mut b, 9);
    assert!(first.reports().is_empty(), "its requests are the other's");
    assert_eq!(b.upf.sessions(), 1);
}

#[test]
fn upf_restart_during_takeover_is_reported() {
    let mut b = bench();
    let ([_, mut second], _) = controls(&mut b);
    b.upf = Upf::new(Settings { started: STARTED + 5, ..b.upf.settings.clone() });
    second.n4.activate(b.now.instant, true, &mut second.net);
    second.talk(&mut b, 9);
    assert_eq!(second.reports(), [Report::Restarted, Report::Up]);
}

#[test]
fn endpoint_takes_over_its_earlier_sessions() {
    let mut b = bench();
    let ([mut first, mut second], session) = controls(&mut b);
    first.n4.deactivate(b.now.instant);
    second.n4.activate(b.now.instant, true, &mut second.net);
    second.talk(&mut b, 9);
    second.n4.deactivate(b.now.instant);
    first.n4.activate(b.now.instant, true, &mut first.net);
    first.talk(&mut b, 9);
    assert_eq!((first.reports(), b.upf.sessions()), (vec![Report::Up], 1));
    assert_eq!(reported(&mut b, session), first.address);
}

#[test]
fn request_waits_for_takeover() {
    let mut b = bench();
    let ([_, mut second], session) = controls(&mut b);
    let mut deletion = vec![];
    (SessionDeletionRequest {}).emit(&mut deletion, session, 0).expect("short");
    second.n4.activate(b.now.instant, true, &mut second.net);
    let seid = Seid::new(Ltmsi::new(Bucket::new(7), 8), 1, 5);
    let upf = (UPF, PORT).into();
    let submitted = second.n4.submit(b.now.instant, upf, Some(9), seid, &deletion, &mut second.net);
    assert_eq!(submitted, Ok(SubmitResult::Waiting));
    second.talk(&mut b, 9);
    let reports = second.reports();
    assert!(matches!(&reports[..], [Report::Up, Report::Delivered(_)]), "{reports:?}");
    assert_eq!(b.upf.sessions(), 0);
}

#[test]
fn endpoint_without_predecessor_starts_empty() {
    let mut b = bench();
    let ([mut first, mut second], _) = controls(&mut b);
    first.n4.deactivate(b.now.instant);
    // An endpoint of a cluster that started after the end of the other one.
    let upfs = vec![(UPF, PORT).into()];
    let own = n4::Config::new(SECOND.into(), upfs, RecoveryTimeStamp(2_000), 7);
    second.n4 = N4::new(n4::Config { node_id: node(), shared: true, ..own });
    second.n4.deactivate(b.now.instant);
    second.n4.activate(b.now.instant, false, &mut second.net);
    second.talk(&mut b, 9);
    assert_eq!((second.reports(), b.upf.sessions()), (vec![Report::Up], 0));
}

#[test]
fn repeated_establishment_creates_one_session() {
    let mut b = bench();
    let (before, teid) = b.session();
    let response = b.establish(&request());
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let (after, _) = established(&response);
    assert_eq!((b.upf.sessions(), before == after), (1, false));
    assert_eq!(b.modify(before, &forward(Teid(7))).cause, Cause::SESSION_CONTEXT_NOT_FOUND);
    assert_eq!(b.modify(after, &forward(Teid(7))).cause, Cause::REQUEST_ACCEPTED);
    let out = ipv4(UE, Ipv4Addr::new(9, 9, 9, 9), 40);
    b.uplink(teid, &out);
    assert_eq!(b.plane.n6.len(), 0, "the tunnel is another");
    // Another control plane, or a request for another session, does not get the address.
    let mut other = request();
    other.cp_f_seid.seid += 1;
    let refused = b.establish(&other);
    assert_eq!((refused.cause, b.upf.sessions()), (Cause::RULE_FAILURE, 1));
}
