//! Two N4 endpoints of one control plane before the UPF: the second takes over, and the sessions stay.

use super::*;
use crate::n4::{self, N4, Sink, Submitted};
use std::collections::VecDeque;
use vireo_datapath::Event;
use vireo_types::{Bucket, Ltmsi, Seid};

const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 6);

/// What an endpoint has said to its control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Up,
    Restarted,
    Delivered(Vec<u8>),
    Other(String),
}

#[derive(Default)]
struct Net {
    sent: VecDeque<Vec<u8>>,
    told: Vec<Told>,
}

impl Sink for Net {
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        assert_eq!(to, SocketAddr::from((UPF, PORT)));
        self.sent.push_back(octets.to_vec());
    }

    fn event(&mut self, event: n4::Event<'_>) {
        self.told.push(match event {
            n4::Event::UpfUp { .. } => Told::Up,
            n4::Event::UpfRestarted { .. } => Told::Restarted,
            n4::Event::Deliver { message, .. } => Told::Delivered(message.to_vec()),
            other => Told::Other(format!("{other:?}")),
        });
    }
}

/// An endpoint of the control plane.
struct Control {
    n4: N4,
    address: SocketAddr,
    net: Net,
}

impl Control {
    fn new(address: Ipv4Addr, first_sequence: u32) -> Self {
        // One Node ID and one time stamp for both.
        let stamp = RecoveryTimeStamp(1_000);
        let mut config = n4::Config::new(SMF.into(), vec![(UPF, PORT).into()], stamp, first_sequence);
        config.shared = true;
        Control { n4: N4::new(config), address: (address, PORT).into(), net: Net::default() }
    }

    /// Says what it has to say to the UPF and hears the answers, as many as `heard`.
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

    fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.net.told)
    }

    fn submit(&mut self, b: &Bench, key: u64, octets: &[u8]) {
        let seid = Seid::new(Ltmsi::new(Bucket::new(7), 8), 1, key as u32);
        let submitted = self.n4.submit(b.now.instant, (UPF, PORT).into(), Some(key), seid, octets, &mut self.net);
        assert_eq!(submitted, Ok(Submitted::Sent));
    }
}

/// The first endpoint has the association and a session, the second nothing.
fn controls(b: &mut Bench) -> ([Control; 2], u64) {
    let (mut first, mut second) = (Control::new(SMF, 100), Control::new(SECOND, 9_000));
    second.n4.let_go(b.now.instant);
    second.talk(b, 9);
    assert!(!second.n4.holds() && second.told().is_empty(), "it says nothing");
    first.talk(b, 9);
    assert_eq!(first.told(), [Told::Up]);
    let mut octets = vec![];
    request().emit(&mut octets, 0, 0).expect("short");
    first.submit(b, 5, &octets);
    first.talk(b, 9);
    let [Told::Delivered(answer)] = &first.told()[..] else { panic!("an answer") };
    let message = Message::new(answer).expect("sound");
    let session = SessionEstablishmentResponse::parse(&message).expect("sound").up_f_seid.expect("a session").seid;
    ([first, second], session)
}

/// A report that packets wait for the session: where it goes.
fn reported(b: &mut Bench, session: u64) -> SocketAddr {
    let mut out = vec![];
    b.upf.event(Event::DownlinkData { session, pdr: 2 }, b.now, &mut b.plane, &mut out);
    assert_eq!(out.len(), 1);
    out[0].0
}

#[test]
fn another_endpoint_takes_over_with_all_sessions() {
    let mut b = bench();
    let ([mut first, mut second], session) = controls(&mut b);
    assert_eq!(reported(&mut b, session), first.address);
    // A second session is asked for, and the first endpoint is gone before it hears the answer.
    let mut another = request();
    another.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, 3)), None);
    let mut octets = vec![];
    another.emit(&mut octets, 0, 0).expect("short");
    first.submit(&b, 6, &octets);
    first.talk(&mut b, 0);
    assert_eq!(b.upf.sessions(), 2);

    second.n4.hold(b.now.instant, &mut second.net);
    second.talk(&mut b, 9);
    assert_eq!(second.told(), [Told::Up], "nothing is lost");
    assert_eq!(b.upf.sessions(), 2);
    // It is asked again, under the same name: it is not done twice.
    second.submit(&b, 6, &octets);
    second.talk(&mut b, 9);
    let told = second.told();
    assert!(matches!(&told[..], [Told::Delivered(_)]), "{told:?}");
    assert_eq!(b.upf.sessions(), 2);
    // Another request of the same UE has another number.
    let mut deletion = vec![];
    (SessionDeletionRequest {}).emit(&mut deletion, session, 0).expect("short");
    assert_eq!(reported(&mut b, session), second.address, "there is nobody else to tell");
    // What the first was told and never answered comes to the second.
    let mut again = vec![];
    b.now.instant = b.now.instant + Duration::from_secs(4);
    b.upf.tick(b.now, &mut again);
    assert_eq!(again.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [second.address; 2]);
    second.submit(&b, 7, &deletion);
    second.talk(&mut b, 9);
    assert_eq!(b.upf.sessions(), 1);
    // The first comes back, is told that it has nothing any more, and says nothing.
    first.n4.let_go(b.now.instant);
    b.now.instant = b.now.instant + Duration::from_secs(30);
    first.talk(&mut b, 9);
    assert!(first.told().is_empty(), "its requests are the other's");
    assert_eq!(b.upf.sessions(), 1);
}

#[test]
fn a_upf_that_has_restarted_meanwhile_has_lost_its_sessions() {
    let mut b = bench();
    let ([_, mut second], _) = controls(&mut b);
    b.upf = Upf::new(Settings { started: STARTED + 5, ..b.upf.settings.clone() });
    second.n4.hold(b.now.instant, &mut second.net);
    second.talk(&mut b, 9);
    assert_eq!(second.told(), [Told::Restarted, Told::Up]);
}

#[test]
fn an_endpoint_takes_over_what_it_had_before() {
    let mut b = bench();
    let ([mut first, mut second], session) = controls(&mut b);
    first.n4.let_go(b.now.instant);
    second.n4.hold(b.now.instant, &mut second.net);
    second.talk(&mut b, 9);
    second.n4.let_go(b.now.instant);
    first.n4.hold(b.now.instant, &mut first.net);
    first.talk(&mut b, 9);
    assert_eq!((first.told(), b.upf.sessions()), (vec![Told::Up], 1));
    assert_eq!(reported(&mut b, session), first.address);
}
