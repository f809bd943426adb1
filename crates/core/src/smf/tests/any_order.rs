//! Inputs in any order, and arbitrary octets.
//!
//! A session never panics, never has two requests outstanding at the UPF, and is deleted once both
//! sides have released it.

use super::*;
use proptest::prelude::*;
use vireo_wire::pfcp::{Cause, Element, MessageType};

/// Next event of a test case.
#[derive(Clone, Debug)]
enum Event {
    N1(Vec<u8>),
    N2(u8, Vec<u8>),
    RanUp(u32),
    Activate,
    Deactivate,
    Release(u8),
    ReleaseLocally,
    UpfAnswers,
    UpfRefuses(u8),
    UpfSilent,
    UpfLost,
    Pfcp(Vec<u8>),
    Report(u8),
    Time,
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

/// Valid 5GSM messages at arbitrary times, truncated ones, and arbitrary octets.
fn n1() -> impl Strategy<Value = Vec<u8>> {
    let known =
        ["2e0501c1ffff91", "2e0507d1", "2e0507d4", "2e0500d4", "2e0508c97a000902000621320101ff02", "2e0500d62b"];
    let known = prop::sample::select(known.map(|m| hex::decode(m).expect("hex")).to_vec());
    prop_oneof![
        4 => known.clone(),
        1 => (known, 0..20_usize).prop_map(|(mut m, n)| { m.truncate(n); m }),
        1 => (0..16_u8, any::<u8>(), any::<u8>(), octets()).prop_map(|(psi, pti, kind, rest)| {
            [[0x2e, psi, pti, kind].as_slice(), &rest].concat()
        }),
        1 => octets(),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => n1().prop_map(Event::N1),
        1 => (0..5_u8, octets()).prop_map(|(kind, o)| Event::N2(kind, o)),
        5 => (1..4_u32).prop_map(Event::RanUp),
        3 => Just(Event::Activate),
        3 => Just(Event::Deactivate),
        1 => any::<u8>().prop_map(Event::Release),
        1 => Just(Event::ReleaseLocally),
        9 => Just(Event::UpfAnswers),
        1 => (0..90_u8).prop_map(Event::UpfRefuses),
        1 => Just(Event::UpfSilent),
        1 => Just(Event::UpfLost),
        1 => octets().prop_map(Event::Pfcp),
        1 => (0..8_u8).prop_map(Event::Report),
        2 => Just(Event::Time),
    ]
}

/// UPF that stores its requests.
#[derive(Default)]
struct Upf {
    /// Unanswered request, and the value of `forwards` after its answer.
    outstanding: Option<(MessageType, Option<Option<u32>>)>,
    /// Tunnel for downlink packets, if the UPF has the session.
    forwards: Option<Option<u32>>,
}

impl Upf {
    fn receive(&mut self, out: &[Output]) {
        for output in out {
            let Output::Pfcp { message, .. } = output else { continue };
            let message = pfcp::Message::new(message).expect("a PFCP message");
            let kind = message.message_type();
            if !kind.is_request() {
                continue;
            }
            assert_eq!(self.outstanding, None, "a second request: {kind:?}");
            let then = match kind {
                MessageType::SESSION_ESTABLISHMENT_REQUEST => Some(None),
                MessageType::SESSION_DELETION_REQUEST => None,
                _ => {
                    let far: pfcp::UpdateFar = message.need().expect("an Update FAR");
                    let header = far.update_forwarding_parameters.and_then(|to| to.outer_header_creation);
                    Some(header.and_then(|h| h.teid).map(|teid| teid.0))
                }
            };
            self.outstanding = Some((kind, then));
        }
    }
}

struct World {
    bench: Bench,
    upf: Upf,
}

impl World {
    fn begin() -> Self {
        let mut world = World { bench: Bench::new(), upf: Upf::default() };
        let out = world.bench.create(REQUEST);
        world.upf.receive(&out);
        world
    }

    fn step(&mut self, input: Input<'_>) {
        let out = self.bench.step(input);
        self.upf.receive(&out);
    }

    fn answer(&mut self, cause: Cause) {
        if let Some((kind, then)) = self.upf.outstanding.take() {
            // A UPF that refuses a deletion does not have the session.
            if cause.is_accepted() || kind == MessageType::SESSION_DELETION_REQUEST {
                self.upf.forwards = then;
            }
            if cause == Cause::SESSION_CONTEXT_NOT_FOUND {
                self.upf.forwards = None;
            }
            let response = kind.response().expect("it is a request");
            let octets = self.bench.upf_message(response, cause);
            self.step(Input::Pfcp(&octets));
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::N1(octets) => self.step(Input::N1(octets)),
            Event::N2(kind, octets) => {
                let kinds = [
                    N2Sm::SetupRequest,
                    N2Sm::SetupResponse,
                    N2Sm::SetupUnsuccessful,
                    N2Sm::ReleaseCommand,
                    N2Sm::ReleaseResponse,
                ];
                self.step(Input::N2(kinds[usize::from(*kind)], octets));
            }
            Event::RanUp(teid) => self.step(Input::N2(N2Sm::SetupResponse, &setup_response(*teid))),
            Event::Activate => self.step(Input::Activate),
            Event::Deactivate => self.step(Input::Deactivate),
            Event::Release(cause) => self.step(Input::Release(*cause)),
            Event::ReleaseLocally => self.step(Input::ReleaseLocally),
            Event::UpfAnswers => self.answer(Cause::REQUEST_ACCEPTED),
            Event::UpfRefuses(cause) => self.answer(Cause(*cause)),
            Event::UpfSilent => {
                if let Some((kind, _)) = self.upf.outstanding.take() {
                    if kind == MessageType::SESSION_DELETION_REQUEST {
                        self.upf.forwards = None;
                    }
                    self.step(Input::PfcpTimeout);
                }
            }
            Event::UpfLost => {
                self.upf = Upf::default();
                self.step(Input::UpfLost);
            }
            Event::Pfcp(octets) => self.step(Input::Pfcp(octets)),
            Event::Report(kind) => {
                let mut octets = Vec::new();
                let seid = Some(self.bench.sm().pfcp.cp_seid.0);
                let mut report = pfcp::Builder::new(&mut octets, MessageType::SESSION_REPORT_REQUEST, seid, 5);
                report.put(&pfcp::ReportType(*kind)).group(pfcp::ErrorIndicationReport::ID, |report| {
                    report.put(&pfcp::FTeid::new(Teid(1), Ipv4Addr::new(10, 3, 0, 2).into()));
                });
                report.finish().expect("a short message");
                self.step(Input::Pfcp(&octets));
            }
            Event::Time => {
                self.bench.wait(Duration::from_secs(8));
                self.step(Input::Deadline);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sessions_survive_everything(events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::begin();
        for event in &events {
            if world.bench.sm.is_none() {
                break;
            }
            world.apply(event);
        }
        // In the end the UPF answers all requests, and then does what the session requires.
        while world.upf.outstanding.is_some() && world.bench.sm.is_some() {
            world.answer(Cause::REQUEST_ACCEPTED);
        }
        if let Some(sm) = &world.bench.sm {
            let alive = !matches!(sm.stage, Stage::Ended | Stage::Releasing { .. });
            let wanted = alive.then(|| sm.downlink.map(|tunnel| tunnel.teid.0));
            prop_assert_eq!(world.upf.forwards, wanted, "{:?}", sm);
            world.step(Input::ReleaseLocally);
            world.answer(Cause::REQUEST_ACCEPTED);
        }
        prop_assert_eq!(&world.bench.sm, &None);
    }

    #[test]
    fn random_first_message_is_answered_or_ignored(octets in n1()) {
        let mut bench = Bench::new();
        let out = bench.create_octets(&octets);
        prop_assert!(out.len() <= 1);
        prop_assert_eq!(bench.sm.is_some(), matches!(out.as_slice(), [Output::Pfcp { .. }]));
    }

    #[test]
    fn options_of_any_octets_do_no_harm(octets in prop::collection::vec(any::<u8>(), 0..80)) {
        let length = u16::try_from(octets.len() + 1).expect("short").to_be_bytes();
        let request = [&[0x2e, 5, 1, 0xc1, 0xff, 0xff, 0x7b], &length[..], &[0x80], &octets].concat();
        let mut bench = Bench::new();
        bench.create_octets(&request);
        if bench.sm.is_some() {
            prop_assert_eq!(brief(&bench.established()), "accept/1 SetupRequest");
        }
    }
}
