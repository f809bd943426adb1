//! More UEs than the core's capacity.
//!
//! Half-open UEs are limited and evicted. Beyond the limit of registered UEs, the core tells each
//! new UE to retry later.

use crate::assert_serves_another;
use crate::core::Core;
use crate::device::{Device, nas_of, registration};
use crate::messages;
use crate::ran::{ANSWER, Ran};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vireo_subscribers::{HomeNetworkKey, Profile};
use vireo_wire::nas::*;
use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, UENGAPIDs, ie};
use vireo_wire::security::Plmn as HomePlmn;
use vireo_wire::security::nas_5gs::{HomeNetworkPublicKey, Protection, RoutingIndicator as HomeRouting, Suci};

/// Number of gNBs that flood the core.
const FLOODING: u32 = 8;
/// First flooding subscriber; those before it are good UEs.
const FIRST: u32 = 4000;
/// Interval between registrations of good UEs.
const BETWEEN: Duration = Duration::from_millis(10);

/// Answers of a core to UEs that began to register.
#[derive(Default)]
struct Answers {
    /// Challenged UEs by RAN-UE-NGAP-ID.
    challenged: HashSet<u32>,
    turned_away: HashSet<u32>,
    released: HashSet<u32>,
}

impl Answers {
    fn record(&mut self, octets: &[u8]) {
        let pdu = NGAP_PDU::decode(octets).expect("a PDU");
        match pdu.kind() {
            NgapPduKind::Initiating_DownlinkNASTransport => {
                let id = pdu.ie::<ie::RAN_UE_NGAP_ID>().and_then(Result::ok).expect("a RAN-UE-NGAP-ID").0;
                match Nas5gsMessage::decode(&nas_of(&pdu).expect("NAS")) {
                    Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::AuthenticationRequest(_))) => {
                        self.challenged.insert(id);
                    }
                    Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationReject(reject))) => {
                        assert_eq!(reject.fgmm_cause.cause(), Some(GmmCause::Congestion));
                        let back_off = reject.t3346_value.as_ref().and_then(|timer| timer.to_seconds());
                        assert!(back_off.is_some_and(|seconds| (30..=90).contains(&seconds)), "{back_off:?}");
                        self.turned_away.insert(id);
                    }
                    other => panic!("a UE that registers is told {other:?}"),
                }
            }
            NgapPduKind::Initiating_UEContextRelease => match pdu.ie::<ie::UE_NGAP_IDs>() {
                Some(Ok(UENGAPIDs::uE_NGAP_ID_pair(pair))) => {
                    self.released.insert(pair.ran_ue_ngap_id.0);
                }
                other => panic!("{other:?}"),
            },
            other => panic!("a UE that registers is told {other:?}"),
        }
    }

    /// Returns the number of UEs with an answer.
    fn answered(&self) -> usize {
        self.challenged.union(&self.turned_away).count()
    }

    /// Receives until this number of UEs has an answer.
    fn receive_answers(&mut self, ran: &mut Ran, expected: usize) {
        let deadline = Instant::now() + ANSWER * 3;
        // Each answer concerns at most one more UE.
        let mut missing = expected.saturating_sub(self.answered());
        while missing > 0 {
            for _ in 0..missing {
                let left = deadline.saturating_duration_since(Instant::now());
                let (_, octets) =
                    ran.next(left).unwrap_or_else(|| panic!("{missing} of {expected} UEs have no answer"));
                self.record(&octets);
            }
            missing = expected.saturating_sub(self.answered());
        }
        while !self.turned_away.is_subset(&self.released) {
            let left = deadline.saturating_duration_since(Instant::now());
            let (_, octets) = ran.next(left).expect("UE CONTEXT RELEASE COMMAND");
            self.record(&octets);
        }
        ran.receive_pending().iter().for_each(|octets| self.record(octets));
    }
}

/// Sends one gNB's part of a flood, at most at `rate` UEs per second. The UEs do not answer their
/// challenge.
fn flood(ran: &mut Ran, ues: std::ops::Range<u32>, rate: u32, sent: &AtomicUsize) -> Answers {
    let mut answers = Answers::default();
    let begun = Instant::now();
    for number in ues.clone() {
        let due = Duration::from_secs(1) * (number - ues.start) / rate;
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let nas = registration(number).encode().expect("octets");
        ran.send((1 + number % 8) as u16, &messages::initial_ue(number, &nas, None));
        sent.fetch_add(1, Ordering::Relaxed);
        if number % 64 == 0 {
            ran.receive_pending().iter().for_each(|octets| answers.record(octets));
        }
    }
    answers.receive_answers(ran, ues.len());
    answers
}

/// Parameters of a flood and its permitted effects.
struct Flood {
    ues: u32,
    /// UEs per second of all gNBs together.
    rate: u32,
    /// Minimum number of registrations of good UEs during the flood.
    good: usize,
    /// Maximum number of half-open UEs that may remain.
    limit: usize,
    /// 99th percentile of the good UEs' registrations.
    p99: Duration,
}

/// Returns the number of UEs that were challenged.
fn run(core: &mut Core, flood_of: &Flood) -> usize {
    let mut good = Ran::set_up_from(core, 100, Ipv4Addr::new(127, 0, 0, 9));
    let mut known = Device::new(1);
    known.register(&mut good);
    let mut flooding: Vec<Ran> = (0..FLOODING).map(|gnb| Ran::set_up(core, 1 + gnb)).collect();
    let (sent, each) = (AtomicUsize::new(0), flood_of.ues / FLOODING);
    let (mut times, mut memory, mut number) = (Vec::new(), Vec::new(), 1);
    let begun = Instant::now();
    let answers: Vec<Answers> = thread::scope(|scope| {
        let (sent, rate) = (&sent, flood_of.rate / FLOODING);
        let of = |gnb: u32| FIRST + gnb * each..FIRST + (gnb + 1) * each;
        let threads: Vec<_> =
            (0..).zip(&mut flooding).map(|(gnb, ran)| scope.spawn(move || flood(ran, of(gnb), rate, sent))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            number += 1;
            assert!(number < FIRST, "the flood has no end");
            let mut device = Device::new(number);
            times.push(device.register(&mut good));
            memory.push((sent.load(Ordering::Relaxed), core.resident()));
            thread::sleep(BETWEEN);
        }
        threads.into_iter().map(|thread| thread.join().expect("each UE is answered")).collect()
    });
    let took = begun.elapsed();
    known.assert_served(&mut good, "a UE that was registered before");
    let answered: usize = answers.iter().map(Answers::answered).sum();
    assert_eq!(answered, (each * FLOODING) as usize, "each UE has an answer");
    for of in &answers {
        assert!(of.released.is_subset(&of.turned_away), "no UE is released without a word");
    }
    times.sort_unstable();
    let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
    let challenged: usize = answers.iter().map(|of| of.challenged.len()).sum();
    println!(
        "{answered} half-open UEs in {took:?}, {challenged} challenged; {} good UEs registered, median {:?}, p99 {p99:?}, \
         longest {:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert!(p99 < flood_of.p99 && times.len() >= flood_of.good, "{p99:?} for {} registrations", times.len());
    assert_recovered(core, flood_of.limit, number as u64);
    // From the middle on memory does not grow.
    let half = memory.iter().find(|(sent, _)| *sent >= answered / 2).map_or(0, |(_, octets)| *octets);
    let grown = core.resident().saturating_sub(half) >> 20;
    println!("{} MiB, {grown} MiB more than at half time", core.resident() >> 20);
    assert!(grown < 24, "{grown} MiB more than at half time");
    assert!(
        !core.log().contains("worker ended; other workers"),
        "workers that have much to do are left alone:\n{}",
        core.log()
    );
    assert!(core.log().len() < 1 << 20, "{} octets of log", core.log().len());
    let mut last = Device::new(number + 1);
    last.register(&mut good);
    last.assert_served(&mut good, "a UE that comes afterwards");
    challenged
}

/// Checks that the core recovers within five seconds after a flood, except for up to `limit`
/// half-open UEs.
fn assert_recovered(core: &mut Core, limit: usize, registered: u64) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        core.assert_alive();
        let status = core.status();
        let (overload, counts) = (&status["overload"], &status["counts"]);
        let normal = overload["level"] == "normal" && overload["reduction_percent"].is_null();
        let half_open = counts["ues"].as_u64().unwrap_or(u64::MAX).saturating_sub(registered);
        if normal && half_open <= limit as u64 {
            assert_eq!(counts["registered"].as_u64(), Some(registered), "{counts}");
            return;
        }
        assert!(Instant::now() < deadline, "{overload} {counts}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn flood_of_half_open_ues_harms_no_good_ue() {
    let more = "[state]\nues = 3000\n[half-open]\nmax-ues = 800\nmax-ues-per-address = 600\nmax-ues-per-node = 400\nmin-age = \"500ms\"\n\
        [overload]\nwait = \"5s\"\n";
    // Latency says nothing about the product in a debug build beside other tests; `make flood`
    // measures it. Here each good UE only has to register before the emulator's deadline, so that
    // a wait that other tests cause is no overload.
    let flood = Flood { ues: 8000, rate: 2000, good: 5, limit: 800, p99: ANSWER };
    let mut core = Core::start(FIRST + flood.ues, more);
    let challenged = run(&mut core, &flood);
    let of = |metric: &str| core.metric(metric) as u64;
    let evicted = ["node_limit", "address_limit", "limit", "full"]
        .map(|reason| of(&format!("vireo_half_open_ues_evicted_total{{reason=\"{reason}\"}}")));
    let refused = of("vireo_ues_turned_away_total{reason=\"address_limit\"}");
    println!("evicted {evicted:?}, turned away {refused}");
    assert_eq!(evicted[2..], [0, 0], "the limit of an address comes first");
    // A core with little processor time has refused most of the flood without a challenge.
    assert!(challenged < 1200 || evicted[1] > 0 && refused > 0, "{challenged} challenged, {evicted:?}");
    let left = of("vireo_ues_half_open");
    assert!(left <= 600 + 1, "{left} half-open UEs of one address and one good UE");
}

/// All values of the default configuration. For a release build (`make flood`).
#[test]
#[ignore = "a minute of one machine's whole power"]
fn flood_of_200000_half_open_ues() {
    let flood = Flood { ues: 200_000, rate: 10_000, good: 100, limit: 16_384, p99: Duration::from_millis(100) };
    let mut core = Core::start(FIRST + flood.ues, "");
    assert!(run(&mut core, &flood) > flood.limit, "more than may stay");
}

/// Capacity of a full core, in UEs.
const ROOM: u32 = 24;
/// Number of UEs beyond the capacity.
const BEYOND: u32 = 300;

#[test]
fn full_core_answers_every_ue() {
    let more = format!("[state]\nues = {ROOM}\n[half-open]\nmin-age = \"60s\"\n");
    let core = Core::start(ROOM + BEYOND + 2, &more);
    let mut good = Ran::set_up(&core, 1);
    let mut known: Vec<Device> = (1..=ROOM).map(Device::new).collect();
    for device in &mut known {
        device.register(&mut good);
    }
    core.wait_for_count("registered", ROOM.into());
    let mut ran = Ran::set_up(&core, 2);
    let mut answers = Answers::default();
    for number in ROOM + 1..=ROOM + BEYOND {
        let nas = registration(number).encode().expect("octets");
        ran.send((1 + number % 8) as u16, &messages::initial_ue(number, &nas, None));
    }
    answers.receive_answers(&mut ran, BEYOND as usize);
    let all: HashSet<u32> = (ROOM + 1..=ROOM + BEYOND).collect();
    assert_eq!((&answers.turned_away, answers.challenged.len()), (&all, 0));
    assert_eq!(answers.released, all);
    assert_eq!(core.metric("vireo_ues_turned_away_total{reason=\"full\"}") as u32, BEYOND);
    // The core serves an emergency registration.
    let number = ROOM + BEYOND + 1;
    ran.send(1, &messages::emergency(number, &registration(number).encode().expect("octets")));
    let mut emergency = Answers::default();
    emergency.receive_answers(&mut ran, 1);
    assert!(emergency.challenged.contains(&number));
    // The core also serves registered UEs, including their return.
    for device in &mut known {
        device.assert_served(&mut good, "a registered UE of a full core");
    }
    deregister(&mut known[0], &mut good);
    core.wait_for_count("registered", u64::from(ROOM) - 1);
}

/// Private key of the home network, and SUCIs of the flood.
const HOME_KEY: [u8; 32] = [0x43; 32];
const CONCEALED: u32 = 6000;

/// Returns a REGISTRATION REQUEST of a subscriber with a SUCI of profile B.
fn concealed_registration(number: u32) -> Vec<u8> {
    let key = HomeNetworkKey::new(1, Profile::B, &HOME_KEY).expect("a key");
    let key = HomeNetworkPublicKey::profile_b(&key.public()).expect("a point");
    let (home, msin) = (HomePlmn::new("999", "70").expect("a PLMN"), format!("{number:010}"));
    let protection = Protection::Ecies { key_id: 1, key: &key };
    let suci = Suci::conceal_imsi(home, &msin, HomeRouting::default(), protection).expect("concealed");
    let suci = suci.to_nas_octets().expect("of an IMSI");
    let length = u16::try_from(suci.len()).expect("it is short").to_be_bytes();
    // TS 24.501 8.2.6: initial registration, no key; UE security capability.
    [&[0x7e, 0, 0x41, 0x79][..], &length, &suci, &[0x2e, 2, 0xf0, 0x70]].concat()
}

/// SUCIs that no home network has made cost as much as good ones.
#[test]
fn flood_of_sucis_does_not_delay_others() {
    let private = hex::encode(HOME_KEY);
    let more = format!("[[subscribers.home-network-key]]\nid = 1\nprofile = \"B\"\nprivate = \"{private}\"\n");
    let mut core = Core::start(2, &more);
    let mut flooding = Ran::set_up(&core, 1);
    let mut good = Ran::set_up_from(&core, 2, Ipv4Addr::new(127, 0, 0, 9));
    let mut forged = concealed_registration(2);
    // The last octet of the MAC tag.
    let tag = forged.len() - 5;
    forged[tag] ^= 1;
    for number in 1..=CONCEALED {
        flooding.send((1 + number % 8) as u16, &messages::initial_ue(number, &forged, None));
    }
    let rejected = |ran: &mut Ran| {
        let pdus = ran.receive_pending();
        pdus.iter().filter(|pdu| NGAP_PDU::decode(pdu).is_ok_and(|pdu| nas_of(&pdu).is_some())).count()
    };
    let (mut before, deadline) = (0, Instant::now() + ANSWER * 3);
    while before < 200 {
        before += rejected(&mut flooding);
        assert!(Instant::now() < deadline, "{before} of the flood have an answer");
        thread::sleep(Duration::from_millis(1));
    }
    good.send(1, &messages::initial_ue(7, &concealed_registration(1), None));
    let challenge = good.expect("a good SUCI", |pdu| pdu.kind() == NgapPduKind::Initiating_DownlinkNASTransport);
    let nas = nas_of(&challenge).expect("NAS");
    assert_eq!(nas[..3], [0x7e, 0, 0x56], "AUTHENTICATION REQUEST");
    let meanwhile = rejected(&mut flooding);
    println!("{before} SUCIs before the good one, {meanwhile} meanwhile");
    assert!(meanwhile < CONCEALED as usize / 4, "{meanwhile} of the flood came first");
    assert_serves_another(&mut core, 2);
}

/// Switches a UE off (TS 24.501 5.5.2.2.1).
fn deregister(device: &mut Device, ran: &mut Ran) {
    let kind =
        NasDeRegistrationType::new(0b1000).with_deregistration_access_type(DeregistrationAccessType::ThreeGppAccess);
    let ngksi = NasKeySetIdentifier::from_key_set_identifier(KeySetIdentifier::Native(0)).expect("an ngKSI");
    let guti = NasFGsMobileIdentity::from_guti(device.guti.expect("a 5G-GUTI"));
    device.send(ran, NasDeregistrationRequestUeOriginating::new(kind, ngksi, guti));
}
